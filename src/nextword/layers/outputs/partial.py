"""A readout over the first words of a vocabulary: a network may read more words than it can write.

ids    0 … written − 1   are predicted
       written … V − 1   count as the unknown word where they are to be predicted, and are never written
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn


class Partial(nn.Module):
    """`inner` is over `written` words of `size`; the others count as `unknown`."""

    def __init__(self, inner: Any, written: int, size: int, unknown: int) -> None:
        super().__init__()
        self.inner, self.written, self.beyond, self.unknown = inner, written, size - written, unknown

    @property
    def bias(self) -> nn.Parameter | None:
        return None if self.beyond else getattr(self.inner, "bias", None)  # of each word of the vocabulary, or none

    def prepare(self, ids: np.ndarray) -> None:
        if hasattr(self.inner, "prepare"):
            self.inner.prepare(np.where(ids < self.written, ids, self.unknown))

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        return self.inner.nll(h, self._known(targets))

    def total(self, h: Tensor, targets: Tensor) -> Tensor:
        return self.inner.total(h, self._known(targets))

    def log_probs(self, h: Tensor) -> Tensor:
        return F.pad(self.inner.log_probs(h), (0, self.beyond), value=float("-inf"))

    def _known(self, targets: Tensor) -> Tensor:
        return targets.masked_fill(targets >= self.written, self.unknown)  # IGNORE is below all ids
