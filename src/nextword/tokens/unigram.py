"""Learning a unigram vocabulary (Kudo 2018, "Subword Regularization", section 3.2), the same way every time.

    p(x) = Σ over segmentations Π p(piece)       eq. 6: EM finds p, given the pieces
    start from too many pieces; again and again drop the quarter that the likelihood would miss least

The library's own trainer sums in the order of a randomly seeded hash table, so its pieces differ from run to run. Words
of equal length are worked on together here, as arrays: n words, L characters, M the longest piece.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

_LONGEST = 16  # characters in a piece, as in SentencePiece
_VOTERS = 200_000  # the commonest words decide: the rare rest changes little and would cost most
_SEEDS = 10  # pieces to start from, for each one wanted
_KEPT = 0.75  # of the pieces, each time
_ROUNDS = 2  # of EM between prunings


@dataclass
class _Lattice:
    """All segmentations of n words of length L."""

    counts: np.ndarray  # (n,)
    ids: np.ndarray  # (n, L, M) the piece of m + 1 characters that starts at each character; -1: there is none

    def forward(self, scores: np.ndarray, reduce: Callable[..., np.ndarray]) -> np.ndarray:
        """(n, L + 1): over all ways to the left of each character, their sum or their best."""
        n, length, longest = self.ids.shape
        paths = np.full((n, length + 1), -np.inf)
        paths[:, 0] = 0
        for end in range(1, length + 1):
            starts = end - 1 - np.arange(min(longest, end))
            paths[:, end] = reduce(paths[:, starts] + scores[self.ids[:, starts, end - 1 - starts]], axis=1)
        return paths

    def expected(self, scores: np.ndarray) -> np.ndarray:
        """How often each piece is used, in expectation over the segmentations."""
        n, length, longest = self.ids.shape
        left = self.forward(scores, np.logaddexp.reduce)
        right = np.full((n, length + 1), -np.inf)
        right[:, length] = 0
        used = np.zeros(len(scores))
        for start in reversed(range(length)):
            m = min(longest, length - start)
            ids = self.ids[:, start, :m]
            ways = scores[ids] + right[:, start + 1 : start + m + 1]
            right[:, start] = np.logaddexp.reduce(ways, axis=1)
            posterior = np.exp(ways + (left[:, start] - left[:, length])[:, None]) * self.counts[:, None]
            used += np.bincount((ids % len(scores)).ravel(), posterior.ravel(), minlength=len(scores))
        return used


def train_unigram(words: Counter[str], size: int) -> list[tuple[str, float]]:
    """Up to `size` pieces with their log-probabilities, likeliest first; single characters are never dropped."""
    characters = _characters(words, size)
    voters = sorted((word for word in words if characters.issuperset(word)), key=lambda word: (-words[word], word))
    voters = voters[:_VOTERS]
    pieces = sorted(characters) + _seeds(voters, words, characters, size)
    lattices = _lattices(voters, pieces, [words[word] for word in voters])
    scores = _log(_expected(lattices, _log(np.ones(len(pieces)))))
    while True:
        for _ in range(_ROUNDS):
            used = _expected(lattices, scores)
            scores = _log(used)
        if len(pieces) <= size:
            break
        kept = _worth_most(pieces, used, scores, len(characters), max(size, int(_KEPT * len(pieces))))
        pieces = [pieces[id] for id in kept]
        scores = _log(used[kept])
        renumber = np.full(len(used) + 1, -1, dtype=np.int32)  # the last entry serves -1
        renumber[kept] = np.arange(len(kept))
        for lattice in lattices:
            lattice.ids = renumber[lattice.ids]
    ranked = sorted(zip(pieces, scores[:-1], strict=True), key=lambda entry: (-round(entry[1], 6), entry[0]))
    return [(piece, round(float(score), 6)) for piece, score in ranked]


def _characters(words: Counter[str], size: int) -> set[str]:
    """The commonest characters, at most half of the vocabulary; a word with another one is unknown in part."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    return set(sorted(counts, key=lambda c: (-counts[c], c))[: max(1, size // 2)])


def _seeds(voters: Sequence[str], words: Counter[str], characters: set[str], size: int) -> list[str]:
    """The substrings that cover most text (count · length)."""
    counts: Counter[str] = Counter()
    for word in voters:
        for start in range(len(word)):
            for end in range(start + 2, min(start + _LONGEST, len(word)) + 1):
                counts[word[start:end]] += words[word]
    often = [piece for piece, count in counts.items() if count > 1]
    often.sort(key=lambda piece: (-counts[piece] * len(piece), piece))
    return often[: max(0, _SEEDS * size - len(characters))]


def _lattices(texts: Iterable[str], pieces: Sequence[str], counts: Sequence[float]) -> list[_Lattice]:
    id_of = {piece: id for id, piece in enumerate(pieces)}
    longest = max(map(len, pieces))
    by_length: dict[int, list[tuple[str, float]]] = defaultdict(list)
    for text, count in zip(texts, counts, strict=True):
        by_length[len(text)].append((text, count))
    lattices = []
    for length, group in sorted(by_length.items()):
        ids = np.full((len(group), length, min(longest, length)), -1, dtype=np.int32)
        for row, (text, _) in enumerate(group):
            for start in range(length):
                found = [id_of.get(text[start:end], -1) for end in range(start + 1, min(start + longest, length) + 1)]
                ids[row, start, : len(found)] = found
        lattices.append(_Lattice(np.array([count for _, count in group], dtype=float), ids))
    return lattices


def _expected(lattices: Sequence[_Lattice], scores: np.ndarray) -> np.ndarray:
    used = np.zeros(len(scores))
    for lattice in lattices:
        used += lattice.expected(scores)
    return used[:-1]


def _log(used: np.ndarray) -> np.ndarray:
    """Log-probabilities from counts, and -∞ behind them for id -1. A character never quite dies out."""
    used = np.maximum(used, 1e-3)
    return np.append(np.log(used / used.sum()), -np.inf)


def _worth_most(pieces: Sequence[str], used: np.ndarray, scores: np.ndarray, characters: int, count: int) -> np.ndarray:
    """The ids to keep: what would be lost if a piece were written with the others is its use × the drop in score."""
    loss = np.full(len(pieces), np.inf)  # the first ids are the characters, which stay
    longer = np.arange(characters, len(pieces))
    lengths = np.array([len(piece) for piece in pieces[characters:]])
    order = longer[np.argsort(lengths, kind="stable")]  # as `_lattices` groups them
    others = _lattices([pieces[id] for id in order.tolist()], pieces, used[order].tolist())
    for lattice in others:
        lattice.ids[:, 0, -1] = -1  # the piece itself
    best = np.concatenate([lattice.forward(scores, np.maximum.reduce)[:, -1] for lattice in others])
    loss[order] = used[order] * (scores[order] - best)
    return np.sort(np.argsort(-loss, kind="stable")[:count])
