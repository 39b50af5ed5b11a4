"""An artificial language with two topics: each sentence has one, shown by only a few of its words."""

from __future__ import annotations

import random

TOPICS = {"sea": "s", "wood": "w"}
WORDS = 30  # of a topic
COMMON = ("the", "a", "of", "and", "to", "in", "it", "is", "was", "on", "at", "by", "so", "as")


def list_topic_words(topic: str) -> list[str]:
    return [f"{TOPICS[topic]}{i}" for i in range(WORDS)]


def draw_sentence(draw: random.Random, topic: str, length: int = 10, share: float = 0.8) -> str:
    own = list_topic_words(topic)
    return " ".join(draw.choice(own) if draw.random() < share else draw.choice(COMMON) for _ in range(length))


def draw_text(sentences: int, seed: int = 0) -> str:
    """Draw unlabeled text for language-model training."""
    draw = random.Random(seed)
    return "".join(draw_sentence(draw, draw.choice([*TOPICS])) + " .\n" for _ in range(sentences))


def draw_labeled_sentences(n: int, seed: int, share: float = 0.25) -> list[tuple[str, str]]:
    """Draw sentences with their topics, which only few of their words reveal."""
    draw = random.Random(seed)
    topics = [list(TOPICS)[i % 2] for i in range(n)]
    return [
        (f"{draw_sentence(draw, topic, 8, share)} {draw.choice(list_topic_words(topic))}", topic) for topic in topics
    ]
