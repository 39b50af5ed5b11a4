"""A made language of two topics: a sentence keeps to one of them, and says so by a few of its many words alone."""

from __future__ import annotations

import random

TOPICS = {"sea": "s", "wood": "w"}
WORDS = 30  # of a topic
COMMON = ("the", "a", "of", "and", "to", "in", "it", "is", "was", "on", "at", "by", "so", "as")


def words_of(topic: str) -> list[str]:
    return [f"{TOPICS[topic]}{i}" for i in range(WORDS)]


def sentence(draw: random.Random, topic: str, length: int = 10, share: float = 0.8) -> str:
    own = words_of(topic)
    return " ".join(draw.choice(own) if draw.random() < share else draw.choice(COMMON) for _ in range(length))


def text(sentences: int, seed: int = 0) -> str:
    """To learn the language from: no label is in it."""
    draw = random.Random(seed)
    return "".join(sentence(draw, draw.choice([*TOPICS])) + " .\n" for _ in range(sentences))


def labelled(n: int, seed: int, share: float = 0.25) -> list[tuple[str, str]]:
    """Sentences with their topics, which few of their words tell."""
    draw = random.Random(seed)
    topics = [list(TOPICS)[i % 2] for i in range(n)]
    return [(f"{sentence(draw, topic, 8, share)} {draw.choice(words_of(topic))}", topic) for topic in topics]
