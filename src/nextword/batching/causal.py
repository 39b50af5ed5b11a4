"""Layouts for next-token prediction: how one long text of ids becomes batches.

    Rows       parallel rows, read from left to right in segments of fixed length (truncated BPTT)
    Variable   the same in segments of varying length (AWD-LSTM)
    Shifted    the same in segments that shift from epoch to epoch, or in all overlapping windows
    Windows    every position with its n − 1 predecessors, one prediction each (NPLM)
    Blocks     independent blocks, for networks with a fixed window (GPT)

In every layout batch k depends on (seed, k) alone, so that training can resume anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Protocol

import numpy as np
import torch

from nextword.batching.settings import require_bool, require_choice, require_count, require_number
from nextword.core.errors import DataError, invalid
from nextword.core.types import Batch, Inputs


class CausalLayout(Protocol):
    """How a text of ids is laid out in batches for next-token prediction."""

    @property
    def length(self) -> int: ...  # tokens in a row of a batch; 0 if only one token per row is predicted
    def batches_per_epoch(self, ids: np.ndarray) -> int: ...
    def batches(self, ids: np.ndarray, seed: int, step: int) -> Iterator[Batch]: ...


# ------------------------------------------------------------------------------------------------ rows


@dataclass(frozen=True)
class Rows:
    """The whole text as parallel rows, read from left to right `length` tokens at a time.

        text   0 1 2 3 4 5 6 7 8 9 10 11       rows = 2, length = 2
        row 0  0 1 2 3 4 5      batch 0: 0 1 → 1 2     batch 1: 2 3 → 3 4     batch 2: 4 → 5
        row 1  6 7 8 9 10 11             6 7 → 7 8              8 9 → 9 10            10 → 11

    A network that carries its state from batch to batch reads each row as one long sequence.
    """

    rows: int = 20
    length: int = 35

    def __post_init__(self) -> None:
        require_count("batches.rows", self.rows)
        require_count("batches.length", self.length)

    def columns(self, ids: np.ndarray) -> int:
        """Tokens in a row; an error if the text is too short."""
        columns = len(ids) // self.rows
        if columns < 2:
            raise DataError(
                f"The text has {len(ids)} tokens, but {self.rows} rows need at least {2 * self.rows}. Use more text, "
                "or fewer rows (--set phase.0.batches.rows=…)."
            )
        return columns

    def batches_per_epoch(self, ids: np.ndarray) -> int:
        return -(-(self.columns(ids) - 1) // self.length)

    def batches(self, ids: np.ndarray, seed: int, step: int) -> Iterator[Batch]:
        per_epoch, table = self.batches_per_epoch(ids), _table(ids, self.rows)
        while True:
            epoch, i = divmod(step, per_epoch)
            segment = torch.from_numpy(table[:, i * self.length : (i + 1) * self.length + 1].astype(np.int64))
            yield Batch(Inputs(segment[:, :-1]), segment[:, 1:], reset_state=i == 0, epoch=epoch)
            step += 1


def validation_rows(ids: np.ndarray) -> Rows:
    """Few long rows, so that nearly every token of held-out text has its full context."""
    return Rows(rows=max(1, min(10, len(ids) // 500)), length=128)


def _table(ids: np.ndarray, rows: int) -> np.ndarray:
    """(rows, columns); the last tokens, fewer than `rows`, are dropped."""
    return ids[: len(ids) // rows * rows].reshape(rows, -1)


Segment = tuple[int, int]  # where a segment of a row begins, and its length


def _segment_batches(table: np.ndarray, segments: list[Segment], length: int, skip: int, epoch: int) -> Iterator[Batch]:
    """The batches of one epoch from `skip` on. A shorter segment is a mean over fewer tokens, so its rate is scaled."""
    for start, size in segments[skip:]:
        segment = torch.from_numpy(table[:, start : start + size + 1].astype(np.int64))
        inputs, targets = Inputs(segment[:, :-1]), segment[:, 1:]
        yield Batch(inputs, targets, reset_state=start == 0, epoch=epoch, scale=size / length)


# ------------------------------------------------------------------------------------------------ varying lengths


@dataclass(frozen=True)
class Variable:
    """Rows in segments of varying length, so that no token always stands at the edge of what the gradient sees.

    Merity, Keskar & Socher (2018): a segment has about `length` tokens with probability 1 − `half_probability`,
    otherwise about half as many; around that, lengths are normally distributed with standard deviation `length_std`.
    Every token is read once per epoch. The lengths of an epoch depend on (seed, epoch) alone.

    `rotate`: each row begins an epoch at a place of its own and wraps around (Press 2019, "Partially shuffling"):
    b c d a | f g h e | … So the tokens side by side in a batch change, but the context of a token does not, except at
    one place per row.
    """

    rows: int = 20
    length: int = 70
    length_std: float = 5.0
    half_probability: float = 0.05
    min_length: int = 5  # tokens in a segment
    rotate: bool = False

    def __post_init__(self) -> None:
        require_count("batches.rows", self.rows)
        require_count("batches.length", self.length)
        require_number("batches.min_length", self.min_length, 1)
        require_number("batches.length_std", self.length_std, 0)
        require_number("batches.half_probability", self.half_probability, 0, 1)

    def batches_per_epoch(self, ids: np.ndarray) -> int:
        """Expected number of segments in an epoch."""
        columns = Rows(self.rows, self.length).columns(ids)
        rounding = 0.5 if self.length_std else 0  # drawn lengths are rounded down
        mean = self.length * (1 - self.half_probability / 2) - rounding
        return max(1, round((columns - 1) / mean))

    def segments(self, columns: int, seed: int, epoch: int) -> list[Segment]:
        """The segments of an epoch."""
        rng = np.random.default_rng([seed, epoch])
        segments, start = [], 0
        while start < columns - 1:
            base = self.length / 2 if rng.random() < self.half_probability else self.length
            size = min(max(self.min_length, int(rng.normal(base, self.length_std))), columns - 1 - start)
            segments.append((start, size))
            start += size
        return segments

    def batches(self, ids: np.ndarray, seed: int, step: int) -> Iterator[Batch]:
        columns, table = Rows(self.rows, self.length).columns(ids), _table(ids, self.rows)
        epoch = 0
        segments = self.segments(columns, seed, epoch)
        while step >= len(segments):
            step -= len(segments)
            epoch += 1
            segments = self.segments(columns, seed, epoch)
        while True:
            yield from _segment_batches(self._rotate(table, seed, epoch), segments, self.length, step, epoch)
            step, epoch = 0, epoch + 1
            segments = self.segments(columns, seed, epoch)

    def _rotate(self, table: np.ndarray, seed: int, epoch: int) -> np.ndarray:
        """The rows in the order in which this epoch reads them."""
        if not self.rotate:
            return table
        starts = np.random.default_rng([seed, epoch, 1]).integers(0, table.shape[1], len(table))
        return np.stack([np.roll(row, -start) for row, start in zip(table, starts.tolist(), strict=True)])


# ------------------------------------------------------------------------------------------------ shifted windows


@dataclass(frozen=True)
class Shifted:
    """Windows of one fixed length at every offset, as Rogerspy's "LSTMLM" (2021) proposes instead of varying lengths.

        text 0 1 2 3 4 5 6 7 8 9, one row, length = 4         the proposed list:  0 1 2 3   1 2 3 4   2 3 4 5   …

        epoch 0   0 1 2 3 | 4 5 6 7 | 8                       Each window of the list is read once in `length` epochs,
        epoch 1   0 | 1 2 3 4 | 5 6 7 8                       right after the window that ends where it begins. So the
        epoch 2   0 1 | 2 3 4 5 | 6 7 8                       state that it starts from is that of the token before it,
        epoch 3   0 1 2 | 3 4 5 6 | 7 8                       and an epoch costs as much as with rows.
        epoch 4   as epoch 0

    Every token is read once per epoch and stands once at every place of the window in `length` epochs. The segments at
    the two ends of a row are shorter. With fewer than `length` epochs, a larger `shift` spreads the places of a token
    better (27 for 70, 13 for 35, say).

    `overlapping = true` is the proposed list itself, shuffled in every epoch. No window follows the one before it, so
    each starts without a state, and an epoch reads every token `length / shift` times.
    """

    rows: int = 20
    length: int = 70
    shift: int = 1  # tokens that windows move: from epoch to epoch, or from window to window if they overlap
    overlapping: bool = False

    def __post_init__(self) -> None:
        require_count("batches.rows", self.rows)
        require_count("batches.length", self.length)
        require_bool("batches.overlapping", self.overlapping)
        require_count("batches.shift", self.shift)
        if self.shift > self.length:
            raise invalid("batches.shift", self.shift, f"exceeds length = {self.length}, so windows would skip tokens.")
        common = math.gcd(self.shift, self.length)
        if not self.overlapping and common > 1:
            problem = (
                f"and length = {self.length} have the common factor {common}, so a token would stand at only "
                f"{self.length // common} of {self.length} places. Set a coprime number or overlapping = true."
            )
            raise invalid("batches.shift", self.shift, problem)

    def batches_per_epoch(self, ids: np.ndarray) -> int:
        """Batches in an epoch: exact for overlapping windows, otherwise the mean over all shifts."""
        if self.overlapping:
            return _num_windows(ids, self.rows, self.length, self.shift) // self.rows
        return max(1, round(self._segments_per_cycle(Rows(self.rows).columns(ids)) / self.length))

    def batches(self, ids: np.ndarray, seed: int, step: int) -> Iterator[Batch]:
        return self._overlapping_batches(ids, seed, step) if self.overlapping else self._shifted_batches(ids, step)

    # One shift per epoch

    def segments(self, columns: int, epoch: int) -> list[Segment]:
        """The segments of an epoch."""
        end, offset = columns - 1, epoch * self.shift % self.length
        starts = [*([0] if offset else []), *range(offset, end, self.length)]
        return [
            (start, min(following, end) - start) for start, following in zip(starts, [*starts[1:], end], strict=True)
        ]

    def _num_segments(self, columns: int, epoch: int) -> int:
        """len(self.segments(columns, epoch)), without building the list."""
        offset = epoch * self.shift % self.length
        return bool(offset) + max(0, -(-(columns - 1 - offset) // self.length))

    def _segments_per_cycle(self, columns: int) -> int:
        """Segments in `length` epochs, after which the shifts repeat."""
        return sum(self._num_segments(columns, epoch) for epoch in range(self.length))

    def _shifted_batches(self, ids: np.ndarray, step: int) -> Iterator[Batch]:
        columns, table = Rows(self.rows).columns(ids), _table(ids, self.rows)
        cycles, step = divmod(step, self._segments_per_cycle(columns))
        epoch = cycles * self.length
        while step >= (count := self._num_segments(columns, epoch)):
            step -= count
            epoch += 1
        while True:
            yield from _segment_batches(table, self.segments(columns, epoch), self.length, step, epoch)
            step, epoch = 0, epoch + 1

    # All shifts in one epoch

    def _overlapping_batches(self, ids: np.ndarray, seed: int, step: int) -> Iterator[Batch]:
        for window, epoch in _shuffled_windows(ids, self.rows, self.length, self.shift, seed, step):
            yield Batch(Inputs(window[:, :-1]), window[:, 1:], reset_state=True, epoch=epoch)


def _num_windows(ids: np.ndarray, rows: int, length: int, shift: int) -> int:
    """Windows in a text, each with a token after it; an error if they do not fill a batch."""
    count = max(0, (len(ids) - 1 - length) // shift + 1)
    if count < rows:
        raise DataError(
            f"The text has {count} windows of {length} tokens and a next one, fewer than a batch of {rows}. Use more "
            "text, or fewer rows (--set phase.0.batches.rows=…)."
        )
    return count


def _shuffled_windows(
    ids: np.ndarray, rows: int, length: int, shift: int, seed: int, step: int
) -> Iterator[tuple[torch.Tensor, int]]:
    """Yield the windows of each batch with the token after them (rows, length + 1), and the epoch.

    The shuffle is a keyed permutation, computed where it is needed, so that it costs no memory however long the text.
    """
    count, offsets = _num_windows(ids, rows, length, shift), np.arange(length + 1)
    while True:
        epoch, i = divmod(step, count // rows)
        chosen = permute(np.arange(i * rows, (i + 1) * rows), count, key=seed * 1_000_003 + epoch)
        yield torch.from_numpy(ids[shift * chosen[:, None] + offsets].astype(np.int64)), epoch
        step += 1


# ------------------------------------------------------------------------------------------------ sliding windows


@dataclass(frozen=True)
class Windows:
    """Every position is one example: its `context` predecessors → itself (Bengio et al. 2003).

        text 0 1 2 3 4 5, context 3      0 1 2 → 3     1 2 3 → 4     2 3 4 → 5        shuffled in every epoch

    The first `context` tokens of the text are never predicted.
    """

    length: ClassVar[int] = 0
    rows: int = 256
    context: int = 4

    def __post_init__(self) -> None:
        require_count("batches.rows", self.rows)
        require_count("batches.context", self.context)

    def batches_per_epoch(self, ids: np.ndarray) -> int:
        return _num_windows(ids, self.rows, self.context, shift=1) // self.rows

    def batches(self, ids: np.ndarray, seed: int, step: int) -> Iterator[Batch]:
        for window, epoch in _shuffled_windows(ids, self.rows, self.context, 1, seed, step):
            yield Batch(Inputs(window[:, :-1]), window[:, -1:], reset_state=True, epoch=epoch)


def permute(index: np.ndarray, size: int, key: int) -> np.ndarray:
    """Apply a keyed permutation of range(size) to these indices.

    Odd products, sums and right-shifted xors are bijections of b-bit numbers, so their composition permutes the next
    power of two. An image outside the range is sent through again until it lies inside (cycle walking).
    """
    bits = max(2, int(size - 1).bit_length())
    mask, shift = np.uint64((1 << bits) - 1), np.uint64(bits // 2)
    keys = [_splitmix64(key * 8 + i) for i in range(6)]
    image = index.astype(np.uint64)
    outside = np.ones(len(image), dtype=bool)
    with np.errstate(over="ignore"):  # products wrap around on purpose
        while outside.any():
            x = image[outside]
            for factor, summand in zip(keys[::2], keys[1::2], strict=True):
                x = (x * np.uint64(factor | 1) + np.uint64(summand)) & mask
                x ^= x >> shift
            image[outside] = x
            outside = image >= size
    return image.astype(np.int64)


def _splitmix64(key: int) -> int:
    """64 well-mixed bits of a number."""
    x = (key * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


# ------------------------------------------------------------------------------------------------ blocks

VALIDATION_TOKENS = 8192  # tokens of held-out text in a batch
ORDERS = ("shuffled", "random", "sequential")


@dataclass(frozen=True)
class Blocks:
    """Blocks of a stream of documents, for networks that look back over a window and carry no state.

        documents end to end   a a a . b b b b b . c c .     length = 4: blocks of 4 inputs and their 4 targets

        order "random"      each block begins anywhere (nanoGPT): an epoch reads as many tokens as the text has
        order "shuffled"    the text is cut into blocks at an offset that changes in every epoch; each is read once
        order "sequential"  the text is cut at its beginning and read in order

    Held-out text is cut at its beginning and read once.
    """

    rows: int = 8
    length: int = 1024
    order: str = "shuffled"

    def __post_init__(self) -> None:
        require_count("batches.rows", self.rows)
        require_count("batches.length", self.length)
        require_choice("batches.order", self.order, ORDERS)

    def batches_per_epoch(self, ids: np.ndarray) -> int:
        blocks = (len(ids) - 1) // self.length
        if blocks < 1:
            raise DataError(
                f"The text has {len(ids)} tokens, but one block needs {self.length + 1}. Use more text, or shorter "
                "blocks (--set phase.0.batches.length=…)."
            )
        return max(1, blocks // self.rows)

    def batches(self, ids: np.ndarray, seed: int, step: int) -> Iterator[Batch]:
        per_epoch = self.batches_per_epoch(ids)
        while True:
            epoch, i = divmod(step, per_epoch)
            yield self._batch(ids, self._starts(len(ids), seed, step, epoch, i), epoch)
            step += 1

    def _starts(self, total: int, seed: int, step: int, epoch: int, i: int) -> np.ndarray:
        """Where the blocks of batch i of an epoch begin."""
        if self.order == "random":
            return np.random.default_rng([seed, step]).integers(0, total - self.length, self.rows)
        offset, order = _cut_blocks(total, self.length, seed, epoch, self.order == "shuffled")
        chosen = order[np.arange(i * self.rows, (i + 1) * self.rows) % len(order)]
        return offset + chosen * self.length

    def _batch(self, ids: np.ndarray, starts: np.ndarray, epoch: int) -> Batch:
        blocks = np.stack([ids[start : start + self.length + 1] for start in starts.tolist()]).astype(np.int64)
        block = torch.from_numpy(blocks)
        return Batch(Inputs(block[:, :-1]), block[:, 1:], reset_state=True, epoch=epoch)

    def validation_places(self, tokens: int) -> Iterator[tuple[int, np.ndarray]]:
        """Places (rows, length) of the full blocks of held-out text, batch by batch, and the first block's number."""
        blocks, rows = tokens // self.length, max(1, VALIDATION_TOKENS // self.length)
        if not blocks:
            raise DataError(
                f"The held-out text has {tokens} tokens, but one block needs {self.length}. Use more text, or shorter "
                "blocks (--set phase.0.batches.length=…)."
            )
        for at in range(0, blocks, rows):
            yield at, np.arange(at * self.length, min(at + rows, blocks) * self.length).reshape(-1, self.length)

    def validation_batches(self, ids: np.ndarray) -> Iterator[Batch]:
        """Predict every token but the first once; the last block may be shorter."""
        blocks = (len(ids) - 1) // self.length
        rows = max(1, VALIDATION_TOKENS // self.length)
        for at in range(0, blocks, rows):
            yield self._batch(ids, np.arange(at, min(at + rows, blocks)) * self.length, 0)
        rest = torch.from_numpy(ids[blocks * self.length :].astype(np.int64)).unsqueeze(0)
        if rest.shape[1] > 1:
            yield Batch(Inputs(rest[:, :-1]), rest[:, 1:], reset_state=True)


@lru_cache(maxsize=4)
def _cut_blocks(total: int, length: int, seed: int, epoch: int, shuffled: bool) -> tuple[int, np.ndarray]:
    """The offset of an epoch's first block, and the order of its blocks. The remainder is dropped at both ends."""
    blocks = (total - 1) // length
    if not shuffled:
        return 0, np.arange(blocks)
    rng = np.random.default_rng([seed, epoch])
    offset = int(rng.integers(0, total - blocks * length))
    return offset, rng.permutation(blocks)
