"""Real words for the study of meanings: senses that people wrote down, a word twice in a sentence, a few to look at.

senses     hard, interest, line, serve of Senseval-2, in English. What is meant in a place is what is meant in most
           of the K places, of those that are known, whose vectors are the nearest. Places that are equally near vote
           together: where a form has one vector, all its places do, and what they say is its commonest sense.
twice      the same word at two places of a sentence: the cosine of its two vectors, which of a table is 1
examples   bank, play, and 画画: "he paints a painting", where the first 画 is a verb and the second a noun
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nextword.studies.probing_words import Question, sense_questions
from nextword.studies.small_elmo import CHINESE, ENGLISH, Place, Read, Sentence, unit

K = 9
NEAR = 1e-6  # cosines that differ by less are equal, as float32 has them
TWICE = 200  # sentences
RIVER, HARP = "he stood on the *bank* of the river .", "they will *play* the harp before the king ."
EXAMPLES: Mapping[str, Sequence[tuple[str, str]]] = {  # the word that is meant between stars
    ENGLISH: (
        (RIVER, "they sat down by the *bank* of the sea ."),
        (RIVER, "he put his money in the *bank* ."),
        (HARP, "let him *play* on the trumpet ."),
        (HARP, "the boys and the girls *play* in the streets ."),
    ),
    CHINESE: (("他 *画* 画 。", "他 画 *画* 。"),),
}


class Labelled(NamedTuple):
    """The senses of one word: places whose sense is known, and places that are asked about."""

    word: str
    known: list[Place]
    senses: np.ndarray  # of the known ones
    asked: list[Place]
    meant: np.ndarray  # of the asked ones; −1 for a sense that is not among the known


class Real(NamedTuple):
    """All that is asked of real words."""

    senses: list[Labelled]
    twice: list[tuple[Place, Place]]
    examples: list[tuple[Place, Place]]


# ------------------------------------------------------------------------------------------------ what is asked


def labelled(counts: Sequence[int]) -> list[Labelled]:
    """At most so many places of each word of Senseval-2, known and asked; none where it is not on this machine."""
    return [_labelled(question) for question in sense_questions((counts[0], 0, counts[1]))]


def _labelled(question: Question) -> Labelled:
    (known, senses), (asked, meant) = (_places(part) for part in (question.train, question.test))
    names = {sense: i for i, sense in enumerate(sorted(set(senses)))}
    numbers = [np.array([names.get(sense, -1) for sense in part]) for part in (senses, meant)]
    return Labelled(question.word, known, numbers[0], asked, numbers[1])


def _places(found: Sequence[tuple[list[str], list[str | None]]]) -> tuple[list[Place], list[str]]:
    at = [next(i for i, label in enumerate(labels) if label is not None) for _, labels in found]
    return [Place(words, i) for (words, _), i in zip(found, at, strict=True)], [
        str(labels[i]) for (_, labels), i in zip(found, at, strict=True)
    ]


def repeated(found: Sequence[Sentence], without: set[str]) -> list[tuple[Place, Place]]:
    """Sentences, drawn at random once and for all, with their first word that comes again, if it is none of these."""
    pairs = []
    for i in np.random.default_rng(0).permutation(len(found)):
        seen: dict[str, int] = {}
        for at, word in enumerate(found[i]):
            if word in seen and word.isalpha() and word not in without:
                pairs.append((Place(found[i], seen[word]), Place(found[i], at)))
                break
            seen.setdefault(word, at)
        if len(pairs) == TWICE:
            break
    return pairs


def examples(language: str) -> list[tuple[Place, Place]]:
    return [(starred(here), starred(there)) for here, there in EXAMPLES.get(language, ())]


def starred(text: str) -> Place:
    """The place of the word between stars."""
    words = text.split()
    return Place([word.strip("*") for word in words], next(i for i, word in enumerate(words) if word[0] == "*"))


# ------------------------------------------------------------------------------------------------ what vectors say


def neighbours(known: np.ndarray, senses: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """(m,) what is meant in the places asked, by the vote of the nearest; of equally many votes the commoner sense."""
    cosines = unit(asked) @ unit(known).T  # (m, n)
    k = min(K, len(senses))
    least = np.partition(cosines, -k, axis=1)[:, -k] - NEAR
    count = np.bincount(senses)
    votes = (cosines >= least[:, None]).astype(float) @ np.eye(len(count))[senses]  # (m, senses)
    return (votes + count / (10 * count.sum())).argmax(1)


def told_senses(read: Read, asked: Sequence[Labelled]) -> dict[str, list[np.ndarray]]:
    """By name of the vector, for each word: 100 where the sense is told and 0 where it is not."""
    found: dict[str, list[np.ndarray]] = {}
    for one in asked:
        known, held = read(one.known), read(one.asked)
        for name, vectors in known.items():
            guess = neighbours(vectors, one.senses, held[name])
            found.setdefault(name, []).append(100.0 * (guess == one.meant))
    return found


def commonest(asked: Sequence[Labelled]) -> list[np.ndarray]:
    """The same for who always says the commonest sense."""
    return [100.0 * (one.meant == np.bincount(one.senses).argmax()) for one in asked]


def alike(read: Read, pairs: Sequence[tuple[Place, Place]]) -> dict[str, np.ndarray]:
    """By name of the vector, the cosine of each pair's two."""
    if not pairs:
        return {}
    first, second = (read([pair[i] for pair in pairs]) for i in (0, 1))
    return {name: (unit(vectors) * unit(second[name])).sum(1) for name, vectors in first.items()}
