"""Contiguous rows: the whole text laid out as B parallel rows, read from left to right T tokens at a time.

    text   0 1 2 3 4 5 6 7 8 9 10 11       rows = 2, length = 2
    row 0  0 1 2 3 4 5      batch 0: 0 1 → 1 2     batch 1: 2 3 → 3 4     batch 2: 4 → 5
    row 1  6 7 8 9 10 11             6 7 → 7 8              8 9 → 9 10            10 → 11

A network that carries its state from batch to batch reads each row as one long sequence (truncated BPTT). Batch k
depends on k alone, so training can begin again anywhere.

Rows read in pieces of varying length, so that no token always stands at the edge of what the gradient sees.

    with probability 0.95 the piece is about `length` tokens, otherwise about half; around that, normally distributed

Merity, Keskar & Socher (2018). Every token of a row is read once an epoch, whatever the lengths. A longer piece is a
mean over more tokens, so its rate is scaled by its length. Lengths of an epoch are drawn from (seed, epoch) alone.

    rotate = true: each row begins an epoch at a place of its own and goes round    b c d a | f g h e | …

Press (2019), "Partially shuffling": which words stand side by side in a batch changes, what precedes a word does not,
but for one place a row.

Windows of one fixed length, advanced by one token: what Rogerspy's "LSTMLM" (2021) proposes for varying lengths.

    text 0 1 2 3 4 5 6 7 8 9, one row, length = 4         the list that is proposed:  0 1 2 3   1 2 3 4   2 3 4 5   …

    epoch 0   0 1 2 3 | 4 5 6 7 | 8                       each window of the list is read once in `length` epochs,
    epoch 1   0 | 1 2 3 4 | 5 6 7 8                       right after the one that ends where it begins: so the state
    epoch 2   0 1 | 2 3 4 5 | 6 7 8                       carried to it is that of the token before it, and an epoch
    epoch 3   0 1 2 | 3 4 5 6 | 7 8                       costs what it costs with rows
    epoch 4   as epoch 0

Every token is read once an epoch, and in `length` epochs stands once at every place of the window. What is left over at
the two ends of a row is shorter, and its rate is scaled by its length. `by` is how far windows move each epoch: with
fewer than `length` epochs a larger one spreads a token's places better (27 for 70, 13 for 35, say).

`overlapping = true` is the list as it stands, in an order shuffled every epoch. The state that one window ends with is
not that of the token before any other, so each begins with none, and an epoch reads every token `length / by` times: at
by = 1 it is `length` times the work.

One-step sliding windows: every position of the text is one example, its n − 1 predecessors → itself (Bengio 2003).

    text 0 1 2 3 4 5, context 3      0 1 2 → 3     1 2 3 → 4     2 3 4 → 5        in an order shuffled every epoch

The first `context` tokens of the text are only ever context. The shuffle is a keyed permutation computed where it is
needed, so that it costs no memory however long the text, and batch k depends on (seed, k) alone.

Blocks of a packed stream, for networks that look back over a window and carry nothing from batch to batch.

    documents end to end   a a a . b b b b b . c c .     length = 4: blocks of 4 inputs and their 4 targets

    order "random"      each block begins anywhere (nanoGPT): an epoch reads as many tokens as there are, not each once
    order "shuffled"    the text cut into blocks at a place that changes from epoch to epoch, in random order: each once
    order "sequential"  the same cut at the beginning, in the text's order

Batch k is made of (seed, k) alone. Held-out text is cut at its beginning and read once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from nextword.core.errors import NextwordError
from nextword.core.types import Batch, Inputs


def check_counts(layout: Any) -> None:
    """Every size of a layout is a whole number of at least 1."""
    for name, value in vars(layout).items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise NextwordError(f"batches: {name} = {value!r} must be a whole number of at least 1.")


@dataclass(frozen=True)
class Rows:
    rows: int = 20
    length: int = 35

    def __post_init__(self) -> None:
        check_counts(self)

    def per_epoch(self, ids: np.ndarray) -> int:
        columns = len(ids) // self.rows
        if columns < 2:
            raise NextwordError(
                f"The text has {len(ids)} tokens, fewer than the {2 * self.rows} that {self.rows} rows need. "
                "Give more text, or fewer rows (--set phase.0.batches.rows=…)."
            )
        return -(-(columns - 1) // self.length)

    def batches(self, ids: np.ndarray, seed: int, step: int) -> Iterator[Batch]:
        per_epoch = self.per_epoch(ids)
        table = ids[: len(ids) // self.rows * self.rows].reshape(self.rows, -1)
        while True:
            epoch, i = divmod(step, per_epoch)
            part = torch.from_numpy(table[:, i * self.length : (i + 1) * self.length + 1].astype(np.int64))
            yield Batch(Inputs(part[:, :-1]), part[:, 1:], fresh=i == 0, epoch=epoch)
            step += 1


@dataclass(frozen=True)
class Variable:
    rows: int = 20
    length: int = 70
    spread: float = 5.0  # standard deviation
    half: float = 0.05  # how often a piece is about half as long
    least: int = 5
    rotate: bool = False

    def __post_init__(self) -> None:
        check_counts(Rows(self.rows, self.length))
        if self.least < 1 or self.spread < 0 or not 0 <= self.half <= 1:
            raise NextwordError(
                f"batches: least = {self.least} must be at least 1, spread = {self.spread} not negative, and half = "
                f"{self.half} a share."
            )

    def per_epoch(self, ids: np.ndarray) -> int:
        """How many pieces there are in an epoch, on average."""
        columns = self._columns(ids)
        mean = self.length * (1 - self.half / 2) - (0.5 if self.spread else 0)  # what is drawn is rounded down
        return max(1, round((columns - 1) / mean))

    def _columns(self, ids: np.ndarray) -> int:
        Rows(self.rows, self.length).per_epoch(ids)  # says so where the text is too short
        return len(ids) // self.rows

    def pieces(self, columns: int, seed: int, epoch: int) -> list[tuple[int, int]]:
        """Where each piece of an epoch begins, and its length."""
        draw = np.random.default_rng([seed, epoch])
        out, at = [], 0
        while at < columns - 1:
            base = self.length / 2 if draw.random() < self.half else self.length
            n = min(max(self.least, int(draw.normal(base, self.spread))), columns - 1 - at)
            out.append((at, n))
            at += n
        return out

    def batches(self, ids: np.ndarray, seed: int, step: int) -> Iterator[Batch]:
        columns = self._columns(ids)
        table = ids[: columns * self.rows].reshape(self.rows, -1)
        epoch = 0
        pieces = self.pieces(columns, seed, epoch)
        while step >= len(pieces):
            step -= len(pieces)
            epoch += 1
            pieces = self.pieces(columns, seed, epoch)
        while True:
            turned = self._turned(table, seed, epoch)
            for at, n in pieces[step:]:
                part = torch.from_numpy(turned[:, at : at + n + 1].astype(np.int64))
                yield Batch(Inputs(part[:, :-1]), part[:, 1:], fresh=at == 0, epoch=epoch, scale=n / self.length)
            step, epoch = 0, epoch + 1
            pieces = self.pieces(columns, seed, epoch)

    def _turned(self, table: np.ndarray, seed: int, epoch: int) -> np.ndarray:
        """The rows as this epoch reads them."""
        if not self.rotate:
            return table
        first = np.random.default_rng([seed, epoch, 1]).integers(0, table.shape[1], len(table))
        return np.stack([np.roll(row, -by) for row, by in zip(table, first.tolist(), strict=True)])


@dataclass(frozen=True)
class Windows:
    rows: int = 256
    context: int = 4

    def __post_init__(self) -> None:
        check_counts(self)

    def per_epoch(self, ids: np.ndarray) -> int:
        examples = len(ids) - self.context
        if examples < self.rows:
            raise NextwordError(
                f"The text has {max(examples, 0)} windows of {self.context} tokens and a next one, fewer than a batch "
                f"of {self.rows}. Give more text, or fewer rows (--set phase.0.batches.rows=…)."
            )
        return examples // self.rows

    def batches(self, ids: np.ndarray, seed: int, step: int) -> Iterator[Batch]:
        per_epoch = self.per_epoch(ids)
        offsets = np.arange(self.context + 1)
        while True:
            epoch, i = divmod(step, per_epoch)
            at = np.arange(i * self.rows, (i + 1) * self.rows)
            starts = permuted(at, len(ids) - self.context, key=seed * 1_000_003 + epoch)
            part = torch.from_numpy(ids[starts[:, None] + offsets].astype(np.int64))
            yield Batch(Inputs(part[:, :-1]), part[:, -1:], fresh=True, epoch=epoch)
            step += 1


def permuted(index: np.ndarray, size: int, key: int) -> np.ndarray:
    """Where a keyed permutation of range(size) sends these indices.

    Odd products, sums and right-shifted xors are each a bijection of b-bit numbers, so their composition permutes the
    next power of two; an image outside the range is sent through again until it lies inside.
    """
    bits = max(2, int(size - 1).bit_length())
    mask, shift = np.uint64((1 << bits) - 1), np.uint64(bits // 2)
    keys = [_mixed(key * 8 + i) for i in range(6)]
    image = index.astype(np.uint64)
    outside = np.ones(len(image), dtype=bool)
    with np.errstate(over="ignore"):  # products wrap around on purpose
        while outside.any():
            x = image[outside]
            for times, plus in zip(keys[::2], keys[1::2], strict=True):
                x = (x * np.uint64(times | 1) + np.uint64(plus)) & mask
                x ^= x >> shift
            image[outside] = x
            outside = image >= size
    return image.astype(np.int64)


def _mixed(key: int) -> int:
    """64 well-mixed bits of a number (splitmix64)."""
    x = (key * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


@dataclass(frozen=True)
class Shifted:
    rows: int = 20
    length: int = 70
    by: int = 1  # tokens that the windows move: from epoch to epoch, or from window to window where they overlap
    overlapping: bool = False

    def __post_init__(self) -> None:
        check_counts(Rows(self.rows, self.length))
        if not isinstance(self.overlapping, bool):
            raise NextwordError(f"batches: overlapping = {self.overlapping!r} must be true or false.")
        if not isinstance(self.by, int) or isinstance(self.by, bool) or not 1 <= self.by <= self.length:
            raise NextwordError(
                f"batches: by = {self.by!r} must be a whole number from 1 to length = {self.length}: windows that move "
                "further leave tokens out."
            )
        common = math.gcd(self.by, self.length)
        if not self.overlapping and common > 1:
            raise NextwordError(
                f"batches: by = {self.by} and length = {self.length} have the factor {common} in common, so a token "
                f"would only ever stand at {self.length // common} of the {self.length} places. Choose a `by` without "
                "one (1 always does), or overlapping = true."
            )

    def per_epoch(self, ids: np.ndarray) -> int:
        """How many batches there are in an epoch: where they do not overlap, on average over the shifts."""
        if self.overlapping:
            return self._windows(ids) // self.rows
        return max(1, round(self._cycle(self._columns(ids)) / self.length))

    def batches(self, ids: np.ndarray, seed: int, step: int) -> Iterator[Batch]:
        return self._overlapping(ids, seed, step) if self.overlapping else self._in_turn(ids, step)

    # -------------------------------------------------------------------------------------- one shift an epoch

    def _columns(self, ids: np.ndarray) -> int:
        Rows(self.rows, self.length).per_epoch(ids)  # says so where the text is too short
        return len(ids) // self.rows

    def pieces(self, columns: int, epoch: int) -> list[tuple[int, int]]:
        """Where each piece of an epoch begins, and its length."""
        end, first = columns - 1, epoch * self.by % self.length
        begins = [*([0] if first else []), *range(first, end, self.length)]
        return [(at, min(then, end) - at) for at, then in zip(begins, [*begins[1:], end], strict=True)]

    def _count(self, columns: int, epoch: int) -> int:
        """len(pieces), without making them."""
        first = epoch * self.by % self.length
        return bool(first) + max(0, -(-(columns - 1 - first) // self.length))

    def _cycle(self, columns: int) -> int:
        """Pieces in `length` epochs, after which the windows stand where they stood."""
        return sum(self._count(columns, epoch) for epoch in range(self.length))

    def _in_turn(self, ids: np.ndarray, step: int) -> Iterator[Batch]:
        columns = self._columns(ids)
        table = ids[: columns * self.rows].reshape(self.rows, -1)
        turns, step = divmod(step, self._cycle(columns))
        epoch = turns * self.length
        while step >= (count := self._count(columns, epoch)):
            step -= count
            epoch += 1
        while True:
            for at, n in self.pieces(columns, epoch)[step:]:
                part = torch.from_numpy(table[:, at : at + n + 1].astype(np.int64))
                yield Batch(Inputs(part[:, :-1]), part[:, 1:], fresh=at == 0, epoch=epoch, scale=n / self.length)
            step, epoch = 0, epoch + 1

    # -------------------------------------------------------------------------------------- all shifts in an epoch

    def _windows(self, ids: np.ndarray) -> int:
        """How many windows there are in the text, each with the token after it."""
        found = max(0, (len(ids) - 1 - self.length) // self.by + 1)
        if found < self.rows:
            raise NextwordError(
                f"The text has {found} windows of {self.length} tokens and a next one, fewer than a batch of "
                f"{self.rows}. Give more text, or fewer rows (--set phase.0.batches.rows=…)."
            )
        return found

    def _overlapping(self, ids: np.ndarray, seed: int, step: int) -> Iterator[Batch]:
        windows, per_epoch = self._windows(ids), self.per_epoch(ids)
        places = np.arange(self.length + 1)
        while True:
            epoch, i = divmod(step, per_epoch)
            chosen = permuted(np.arange(i * self.rows, (i + 1) * self.rows), windows, key=seed * 1_000_003 + epoch)
            part = torch.from_numpy(ids[self.by * chosen[:, None] + places].astype(np.int64))
            yield Batch(Inputs(part[:, :-1]), part[:, 1:], fresh=True, epoch=epoch)
            step += 1


HELD_OUT = 8192  # tokens of held-out text read at once
ORDERS = ("shuffled", "random", "sequential")


@dataclass(frozen=True)
class Blocks:
    rows: int = 8
    length: int = 1024
    order: str = "shuffled"

    def __post_init__(self) -> None:
        for name in ("rows", "length"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise NextwordError(f"batches: {name} = {getattr(self, name)!r} must be a whole number of at least 1.")
        if self.order not in ORDERS:
            raise NextwordError(f"batches: order = {self.order!r}; expected one of {', '.join(ORDERS)}.")

    def per_epoch(self, ids: np.ndarray) -> int:
        blocks = (len(ids) - 1) // self.length
        if blocks < 1:
            raise NextwordError(
                f"The text has {len(ids)} tokens, fewer than the {self.length + 1} that one block needs. Give more "
                "text, or shorter blocks (--set phase.0.batches.length=…)."
            )
        return max(1, blocks // self.rows)

    def batches(self, ids: np.ndarray, seed: int, step: int) -> Iterator[Batch]:
        per_epoch = self.per_epoch(ids)
        while True:
            epoch, i = divmod(step, per_epoch)
            yield self._batch(ids, self._starts(len(ids), seed, step, epoch, i), epoch)
            step += 1

    def _starts(self, total: int, seed: int, step: int, epoch: int, i: int) -> np.ndarray:
        if self.order == "random":
            return np.random.default_rng([seed, step]).integers(0, total - self.length, self.rows)
        first, order = _cut(total, self.length, seed, epoch, self.order == "shuffled")
        chosen = order[np.arange(i * self.rows, (i + 1) * self.rows) % len(order)]
        return first + chosen * self.length

    def _batch(self, ids: np.ndarray, starts: np.ndarray, epoch: int) -> Batch:
        part = np.stack([ids[s : s + self.length + 1] for s in starts.tolist()]).astype(np.int64)
        block = torch.from_numpy(part)
        return Batch(Inputs(block[:, :-1]), block[:, 1:], fresh=True, epoch=epoch)

    def held_out(self, ids: np.ndarray) -> Iterator[Batch]:
        """Every token but the first is predicted once; the last block may be shorter than the others."""
        whole = (len(ids) - 1) // self.length
        rows = max(1, HELD_OUT // self.length)
        for at in range(0, whole, rows):
            yield self._batch(ids, np.arange(at, min(at + rows, whole)) * self.length, 0)
        rest = torch.from_numpy(ids[whole * self.length :].astype(np.int64)).unsqueeze(0)
        if rest.shape[1] > 1:
            yield Batch(Inputs(rest[:, :-1]), rest[:, 1:], fresh=True)


@lru_cache(maxsize=4)
def _cut(total: int, length: int, seed: int, epoch: int, shuffled: bool) -> tuple[int, np.ndarray]:
    """Where an epoch's first block begins, and the order of its blocks."""
    blocks = (total - 1) // length
    if not shuffled:
        return 0, np.arange(blocks)
    draw = np.random.default_rng([seed, epoch])
    first = int(draw.integers(0, total - blocks * length))  # what is left over is left out here, at both ends
    return first, draw.permutation(blocks)
