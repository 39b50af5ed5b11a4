"""Words and what stands around them, for vectors that learn from company: windows of a text, and noise.

    the  quick  [brown]  fox  jumps       window = 2 at most; how far it reaches is drawn anew at each place, from 1
          around               targets    brown, then K words that do not belong here, drawn by count^¾

Common words are left out of the text at random before windows are laid (Mikolov et al. 2013b, section 2.3, in the form
of their program): a word whose share of the text is f stays with probability √(t / f) + t / f. So windows reach further
than they seem. No window goes over the end of a line or document; unknown words are left out.

A batch is made of a stretch of the text, and of (seed, k) alone.

How often words stand near each other: the table that GloVe is fitted to.

    the cat sat on        window = 3: (the, cat) 1, (the, sat) ½, (the, on) ⅓, (cat, sat) 1, …

A pair d words apart counts 1 / d, in both directions: X_ij = X_ji (Pennington, Socher & Manning 2014, section 4.2).
Ends of lines and documents are not gone over. An unknown word keeps its place and has no cell.

One pass over the text adds up the cells i ≤ j in a table by hash, which doubles when it is half full. They are kept
beside the prepared text, so that a run which goes on need not count again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nextword.core.errors import NextwordError
from nextword.core.jit import compiled
from nextword.core.types import IGNORE, Batch, Inputs, Vocabulary

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


FREE = np.uint64(0xFFFFFFFFFFFFFFFF)
START = 1 << 16  # places of the table at first
VERSION = 1  # of the file


@dataclass(frozen=True)
class Cells:
    """Every pair that was seen, once in each direction; ordered by i, then j."""

    pairs: np.ndarray  # (N, 2) int32
    counts: np.ndarray  # (N,) float32

    def __len__(self) -> int:
        return len(self.counts)


def cooccurrences(text: Any, vocabulary: Vocabulary, window: int) -> Cells:
    """Of a prepared text: from beside it, or counted now."""
    if window < 1:
        raise NextwordError(f"objective: window = {window}; expected at least 1.")
    path = text.folder / f"cells-{VERSION}-{window}.npz" if text.folder is not None else None
    if path is not None and path.is_file():
        with np.load(path, allow_pickle=False) as kept:
            return Cells(kept["pairs"], kept["counts"])
    found = count_cells(text.ids, vocabulary, window)
    if not len(found):
        raise NextwordError(
            "No two words of the vocabulary stand near each other in the text: there is nothing to count. Give more "
            "text, or a tokenizer of more words (--set tokenizer.size=…)."
        )
    if path is not None:
        _keep(path, found)
    return found


def count_cells(ids: np.ndarray, vocabulary: Vocabulary, window: int) -> Cells:
    skipped = np.zeros(vocabulary.size, np.bool_)
    skipped[list(vocabulary.special.values())] = True
    boundary = vocabulary.begin if vocabulary.end is None else vocabulary.end
    keys, counts = _count(np.asarray(ids).view(np.ndarray), skipped, boundary, window)
    order = np.argsort(keys)
    keys, counts = keys[order], counts[order]
    low, high = (keys >> np.uint64(32)).astype(np.int32), (keys & np.uint64(0xFFFFFFFF)).astype(np.int32)
    same = low == high
    pairs = np.concatenate([np.stack([low, high], 1), np.stack([high, low], 1)[~same]])
    both = np.concatenate([np.where(same, 2 * counts, counts), counts[~same]])  # (i, i) is seen from both its ends
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    return Cells(pairs[order], both[order].astype(np.float32))


def _keep(path: Path, cells: Cells) -> None:
    part = path.with_suffix(f".{os.getpid()}.part")
    with part.open("wb") as file:
        np.savez(file, pairs=cells.pairs, counts=cells.counts)
    os.replace(part, path)


@compiled
def _place(keys, key):
    """Where a key is in the table, or where it would go."""
    mask = np.uint64(len(keys) - 1)
    z = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)  # as SplitMix64 mixes
    at = (z ^ (z >> np.uint64(27))) & mask
    while keys[at] != key and keys[at] != FREE:
        at = (at + np.uint64(1)) & mask
    return at


@compiled
def _grown(keys, counts):
    larger, sums = np.full(2 * len(keys), FREE), np.zeros(2 * len(keys))
    for i in range(len(keys)):
        if keys[i] != FREE:
            at = _place(larger, keys[i])
            larger[at], sums[at] = keys[i], counts[i]
    return larger, sums


@compiled
def _count(ids, skipped, boundary, window):
    keys, counts, used = np.full(START, FREE), np.zeros(START), 0
    begins = 0  # of the line
    for at in range(len(ids)):
        if ids[at] == boundary:
            begins = at + 1
            continue
        if skipped[ids[at]]:
            continue
        for back in range(max(begins, at - window), at):
            if skipped[ids[back]]:
                continue
            low, high = np.uint64(min(ids[at], ids[back])), np.uint64(max(ids[at], ids[back]))
            key = (low << np.uint64(32)) | high
            place = _place(keys, key)
            if keys[place] == FREE:
                keys[place] = key
                used += 1
            counts[place] += 1.0 / (at - back)
            if 2 * used > len(keys):
                keys, counts = _grown(keys, counts)
    there = keys != FREE
    return keys[there], counts[there]
