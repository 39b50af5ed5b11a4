"""Words and what stands around them, for vectors that learn from company: windows of a text, and noise.

    the  quick  [brown]  fox  jumps       window = 2 at most; how far it reaches is drawn anew at each place, from 1
          around               targets    brown, then K words that do not belong here, drawn by count^¾

Common words are left out of the text at random before windows are laid (Mikolov et al. 2013b, section 2.3, in the form
of their program): a word whose share of the text is f stays with probability √(t / f) + t / f. So windows reach further
than they seem. No window goes over the end of a line or document; unknown words are left out.

A batch is made of a stretch of the text, and of (seed, k) alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from nextword.compiled import compiled
from nextword.contract import IGNORE, Batch, Inputs, Vocabulary
from nextword.contract_errors import NextwordError

AROUND = -1  # fills the rows of short windows


@dataclass(frozen=True)
class Contexts:
    words: int = 16384  # of the text in a batch
    window: int = 5
    subsample: float = 1e-3  # t; 0: nothing is left out
    negatives: int = 5
    power: float = 0.75  # of a word's count, in the noise

    def __post_init__(self) -> None:
        for name, least in (("words", 2), ("window", 1), ("negatives", 1), ("subsample", 0), ("power", 0)):
            if getattr(self, name) < least:
                raise NextwordError(f"batches: {name} = {getattr(self, name)}; expected at least {least}.")

    def per_epoch(self, ids: np.ndarray) -> int:
        return max(1, -(-len(ids) // self.words))

    def batch(self, ids: np.ndarray, draws: Draws, seed: int, k: int) -> Batch:
        """Number k: which stretch it is follows from how many an epoch has."""
        epoch, at = divmod(k, self.per_epoch(ids))
        part = np.ascontiguousarray(ids[at * self.words : (at + 1) * self.words]).astype(np.int64)
        around = np.full((len(part), 2 * self.window), AROUND, np.int64)
        targets = np.full((len(part), 1 + self.negatives), IGNORE, np.int64)
        state = np.random.SeedSequence([seed, k]).generate_state(1, np.uint64)
        found = _windows(part, draws.keep, draws.boundary, draws.chance, draws.other, state, around, targets)
        ids_, padding = torch.from_numpy(around[:found]), torch.from_numpy(around[:found] != AROUND)
        return Batch(Inputs(ids_, padding), torch.from_numpy(targets[:found]), fresh=True, epoch=epoch)

    def batches(self, ids: np.ndarray, draws: Draws, seed: int, step: int) -> Iterator[Batch]:
        while True:
            yield self.batch(ids, draws, seed, step)
            step += 1


@dataclass(frozen=True)
class Draws:
    """What is left out and what is drawn, from the counts of a text."""

    keep: np.ndarray  # (V,) float64: how likely a word stays; below 0: never, nor is it counted as noise
    boundary: int  # id that no window goes over
    chance: np.ndarray  # (V,) alias table: the word itself with this probability,
    other: np.ndarray  # (V,) or this one


def draws_of(ids: np.ndarray, vocabulary: Vocabulary, subsample: float, power: float) -> Draws:
    counts = np.bincount(np.asarray(ids), minlength=vocabulary.size).astype(np.float64)
    special = list(vocabulary.special.values())
    counts[special] = 0
    total = counts.sum()
    if total < 2 or np.count_nonzero(counts) < 2:
        raise NextwordError(
            "The text has fewer than two words of the vocabulary, and vectors are learnt from words that stand "
            "together. Give more text, or a tokenizer of more words (--set tokenizer.size=…)."
        )
    share = subsample * total / np.maximum(counts, 1)
    keep = np.sqrt(share) + share if subsample else np.ones(len(counts))
    keep[counts == 0] = -1.0
    noise = np.where(counts > 0, counts**power, 0.0)
    boundary = vocabulary.begin if vocabulary.end is None else vocabulary.end
    return Draws(keep, boundary, *_alias(noise / noise.sum()))


def _alias(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Walker's table: a draw is a place, and then the word there or its other. One look, however many words."""
    size = len(p)
    chance, other = p * size, np.arange(size)
    small = [i for i in range(size) if chance[i] < 1]
    large = [i for i in range(size) if chance[i] >= 1]
    while small and large:
        low, high = small.pop(), large[-1]
        other[low] = high
        chance[high] -= 1 - chance[low]
        if chance[high] < 1:
            small.append(large.pop())
    chance[large] = 1.0
    left = np.array(small, np.int64)  # by rounding
    chance[left], other[left] = p[left] > 0, int(np.argmax(p))
    return chance, other


@compiled
def _draw(state: Any) -> Any:
    """SplitMix64 (Steele, Lea & Flood 2014): the next number in [0, 1)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.float64((z ^ (z >> np.uint64(31))) >> np.uint64(11)) / 9007199254740992.0


@compiled
def _windows(ids, keep, boundary, chance, other, state, around, targets):
    """Fills rows of `around` and `targets`; how many."""
    reach, size = around.shape[1] // 2, len(chance)
    kept = np.empty(len(ids), np.int64)
    n = 0
    for id in ids:
        if id == boundary:
            kept[n] = -1
            n += 1
        elif keep[id] >= 1 or _draw(state) < keep[id]:
            kept[n] = id
            n += 1
    found = 0
    for at in range(n):
        if kept[at] < 0:
            continue
        far, c = 1 + int(_draw(state) * reach), 0
        for side in (-1, 1):
            for step in range(1, far + 1):
                where = at + side * step
                if where < 0 or where >= n or kept[where] < 0:
                    break
                around[found, c] = kept[where]
                c += 1
        if not c:
            continue
        targets[found, 0] = kept[at]
        for t in range(1, targets.shape[1]):
            place = _draw(state) * size
            id = int(place)
            if place - id >= chance[id]:
                id = other[id]
            if id != kept[at]:  # what belongs here is no noise: none is drawn in its stead, as in the authors' program
                targets[found, t] = id
        found += 1
    return found
