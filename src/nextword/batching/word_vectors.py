"""Data for word vectors: windows of a text with noise words (word2vec), and co-occurrence counts (GloVe)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from nextword.batching.settings import require_count, require_number
from nextword.batching.token_stream import Stream
from nextword.core.errors import DataError
from nextword.core.io import write_atomically
from nextword.core.jit import jit
from nextword.core.types import IGNORE, Batch, Inputs, Vocabulary

# ------------------------------------------------------------------------------------------------ windows and noise

NO_WORD = -1  # pads short windows


@dataclass(frozen=True)
class Contexts:
    """Windows around each word, and noise words (Mikolov et al. 2013b).

        the  quick  [brown]  fox  jumps       window = 2 at most; its reach is drawn anew at each place, from 1
              context              targets    brown, then K noise words, drawn with probability ∝ count^power

    Frequent words are dropped at random before windows are laid (section 2.3, in the form of the authors' program): a
    word with relative frequency f stays with probability √(t / f) + t / f. So windows reach further than they seem. No
    window crosses the end of a line or document; unknown words are dropped.

    A batch is a stretch of the text. Batch k depends on (seed, k) alone.
    """

    words: int = 16384  # of the text in a batch
    window: int = 5
    subsample: float = 1e-3  # t; 0: drop nothing
    negatives: int = 5  # K
    power: float = 0.75

    def __post_init__(self) -> None:
        require_count("batches.words", self.words, least=2)
        require_count("batches.window", self.window)
        require_count("batches.negatives", self.negatives)
        require_number("batches.subsample", self.subsample, 0)
        require_number("batches.power", self.power, 0)

    def batches_per_epoch(self, ids: np.ndarray) -> int:
        return max(1, -(-len(ids) // self.words))

    def batch(self, ids: np.ndarray, sampler: WordSampler, seed: int, k: int) -> Batch:
        """Batch number k: the number of batches per epoch tells its epoch and its stretch."""
        epoch, at = divmod(k, self.batches_per_epoch(ids))
        part = np.ascontiguousarray(ids[at * self.words : (at + 1) * self.words]).astype(np.int64)
        context = np.full((len(part), 2 * self.window), NO_WORD, np.int64)
        targets = np.full((len(part), 1 + self.negatives), IGNORE, np.int64)
        state = np.random.SeedSequence([seed, k]).generate_state(1, np.uint64)
        count = _windows(
            part, sampler.keep, sampler.boundary, sampler.threshold, sampler.alias, state, context, targets
        )
        inputs = Inputs(torch.from_numpy(context[:count]), torch.from_numpy(context[:count] != NO_WORD))
        return Batch(inputs, torch.from_numpy(targets[:count]), reset_state=True, epoch=epoch)

    def batches(self, ids: np.ndarray, sampler: WordSampler, seed: int, step: int) -> Iterator[Batch]:
        while True:
            yield self.batch(ids, sampler, seed, step)
            step += 1


@dataclass(frozen=True)
class WordSampler:
    """Which words of a text are dropped, and how noise words are drawn."""

    keep: np.ndarray  # (V,) float64: probability that a word stays; negative: never, and never noise
    boundary: int  # id that no window crosses
    threshold: np.ndarray  # (V,) alias table: place i draws word i with this probability,
    alias: np.ndarray  # (V,) or else this word


def build_word_sampler(ids: np.ndarray, vocabulary: Vocabulary, subsample: float, power: float) -> WordSampler:
    """Build the sampler from the word counts of a text."""
    counts = np.bincount(np.asarray(ids), minlength=vocabulary.size).astype(np.float64)
    counts[list(vocabulary.special.values())] = 0
    total = counts.sum()
    if total < 2 or np.count_nonzero(counts) < 2:
        raise DataError(
            "The text has fewer than two words of the vocabulary, so there is nothing to learn vectors from. Use more "
            "text, or a larger vocabulary (--set tokenizer.size=…)."
        )
    ratio = subsample * total / np.maximum(counts, 1)  # t / f
    keep = np.sqrt(ratio) + ratio if subsample else np.ones(len(counts))
    keep[counts == 0] = -1.0
    noise = np.where(counts > 0, counts**power, 0.0)
    boundary = vocabulary.begin if vocabulary.end is None else vocabulary.end
    return WordSampler(keep, boundary, *_alias_table(noise / noise.sum()))


def _alias_table(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Walker's alias method: a draw is a random place, then the word there or its alias, at constant cost."""
    size = len(p)
    threshold, alias = p * size, np.arange(size)
    small = [i for i in range(size) if threshold[i] < 1]
    large = [i for i in range(size) if threshold[i] >= 1]
    while small and large:
        low, high = small.pop(), large[-1]
        alias[low] = high
        threshold[high] -= 1 - threshold[low]
        if threshold[high] < 1:
            small.append(large.pop())
    threshold[large] = 1.0
    rest = np.array(small, np.int64)  # left over by rounding
    threshold[rest], alias[rest] = p[rest] > 0, int(np.argmax(p))
    return threshold, alias


@jit
def _draw(state):
    """The next random number in [0, 1), by SplitMix64 (Steele, Lea & Flood 2014)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.float64((z ^ (z >> np.uint64(31))) >> np.uint64(11)) / 9007199254740992.0


@jit
def _windows(ids, keep, boundary, threshold, alias, state, context, targets):
    """Fill rows of `context` and `targets`; returns their number."""
    window, size = context.shape[1] // 2, len(threshold)
    words = np.empty(len(ids), np.int64)  # those that stay; −1 at a boundary
    n = 0
    for id in ids:
        if id == boundary:
            words[n] = -1
            n += 1
        elif keep[id] >= 1 or _draw(state) < keep[id]:
            words[n] = id
            n += 1
    count = 0
    for at in range(n):
        if words[at] < 0:
            continue
        reach, c = 1 + int(_draw(state) * window), 0
        for side in (-1, 1):
            for step in range(1, reach + 1):
                where = at + side * step
                if where < 0 or where >= n or words[where] < 0:
                    break
                context[count, c] = words[where]
                c += 1
        if not c:
            continue
        targets[count, 0] = words[at]
        for t in range(1, targets.shape[1]):
            place = _draw(state) * size
            id = int(place)
            if place - id >= threshold[id]:
                id = alias[id]
            if id != words[at]:  # the word itself is no noise; like the authors' program, do not draw another
                targets[count, t] = id
        count += 1
    return count


# ------------------------------------------------------------------------------------------------ co-occurrences

FREE = np.uint64(0xFFFFFFFFFFFFFFFF)
START = 1 << 16  # initial size of the hash table
VERSION = 1  # of the file format


@dataclass(frozen=True)
class Cells:
    """Weighted co-occurrence counts X_ij, every pair in both directions, ordered by i, then j.

        the cat sat on        window = 3: (the, cat) 1, (the, sat) ½, (the, on) ⅓, (cat, sat) 1, …

    A pair d words apart counts 1 / d (Pennington, Socher & Manning 2014, section 4.2). Pairs do not cross the end of a
    line or document. An unknown word keeps its place but has no cell.
    """

    pairs: np.ndarray  # (N, 2) int32
    counts: np.ndarray  # (N,) float32

    def __len__(self) -> int:
        return len(self.counts)


def count_cooccurrences(text: Stream, vocabulary: Vocabulary, window: int) -> Cells:
    """Count the cells of a prepared text, or load them from a file next to it, so that a resumed run need not count."""
    require_count("objective.window", window)
    path = text.folder / f"cells-{VERSION}-{window}.npz" if text.folder is not None else None
    if path is not None and path.is_file():
        with np.load(path, allow_pickle=False) as arrays:
            return Cells(arrays["pairs"], arrays["counts"])
    cells = count_cells(text.ids, vocabulary, window)
    if not len(cells):
        raise DataError(
            "No two words of the vocabulary occur near each other in the text. Use more text, or a larger vocabulary "
            "(--set tokenizer.size=…)."
        )
    if path is not None:
        _save_cells(path, cells)
    return cells


def count_cells(ids: np.ndarray, vocabulary: Vocabulary, window: int) -> Cells:
    """Count the cells i ≤ j in one pass over the text, and mirror them."""
    skipped = np.zeros(vocabulary.size, np.bool_)
    skipped[list(vocabulary.special.values())] = True
    boundary = vocabulary.begin if vocabulary.end is None else vocabulary.end
    keys, counts = _count(np.asarray(ids).view(np.ndarray), skipped, boundary, window)
    order = np.argsort(keys)
    keys, counts = keys[order], counts[order]
    low, high = (keys >> np.uint64(32)).astype(np.int32), (keys & np.uint64(0xFFFFFFFF)).astype(np.int32)
    is_diagonal = low == high
    pairs = np.concatenate([np.stack([low, high], 1), np.stack([high, low], 1)[~is_diagonal]])
    # (i, i) counts in both directions
    both = np.concatenate([np.where(is_diagonal, 2 * counts, counts), counts[~is_diagonal]])
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    return Cells(pairs[order], both[order].astype(np.float32))


def _save_cells(path: Path, cells: Cells) -> None:
    with write_atomically(path) as file:
        np.savez(file, pairs=cells.pairs, counts=cells.counts)


@jit
def _place(keys, key):
    """The slot of a key in the hash table, or where to insert it."""
    mask = np.uint64(len(keys) - 1)
    z = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)  # SplitMix64's mixing
    at = (z ^ (z >> np.uint64(27))) & mask
    while keys[at] != key and keys[at] != FREE:
        at = (at + np.uint64(1)) & mask
    return at


@jit
def _grow(keys, counts):
    """The same hash table with twice the size."""
    larger, sums = np.full(2 * len(keys), FREE), np.zeros(2 * len(keys))
    for i in range(len(keys)):
        if keys[i] != FREE:
            at = _place(larger, keys[i])
            larger[at], sums[at] = keys[i], counts[i]
    return larger, sums


@jit
def _count(ids, skipped, boundary, window):
    """Keys (i << 32 | j, i ≤ j) and their counts, in a hash table that doubles when it is half full."""
    keys, counts, used = np.full(START, FREE), np.zeros(START), 0
    begins = 0  # where the line begins
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
                keys, counts = _grow(keys, counts)
    is_used = keys != FREE
    return keys[is_used], counts[is_used]
