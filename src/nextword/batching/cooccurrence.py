"""How often words stand near each other: the table that GloVe is fitted to.

    the cat sat on        window = 3: (the, cat) 1, (the, sat) ½, (the, on) ⅓, (cat, sat) 1, …

A pair d words apart counts 1 / d, in both directions: X_ij = X_ji (Pennington, Socher & Manning 2014, section 4.2).
Ends of lines and documents are not gone over. An unknown word keeps its place and has no cell.

One pass over the text adds up the cells i ≤ j in a table by hash, which doubles when it is half full. They are kept
beside the prepared text, so that a run which goes on need not count again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nextword.compiled import compiled
from nextword.contract import Vocabulary
from nextword.contract_errors import NextwordError

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
