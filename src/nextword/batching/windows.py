"""One-step sliding windows: every position of the text is one example, its n − 1 predecessors → itself (Bengio 2003).

    text 0 1 2 3 4 5, context 3      0 1 2 → 3     1 2 3 → 4     2 3 4 → 5        in an order shuffled every epoch

The first `context` tokens of the text are only ever context. The shuffle is a keyed permutation computed where it is
needed, so that it costs no memory however long the text, and batch k depends on (seed, k) alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from nextword.batching.rows import check_counts
from nextword.contract import Batch, Inputs
from nextword.contract_errors import NextwordError


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
