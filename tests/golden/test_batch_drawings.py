"""Batches equal the drawings in the documentation of `Rows` and `Windows`; a windowed score sees the drawn context."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword.batching.causal import Rows, Windows
from nextword.core.types import Vocabulary
from nextword.lm.causal import CausalLM
from nextword.models.base import Network
from tests.support.small_job import BYTES


def test_rows_batches_equal_the_drawing() -> None:
    """The drawing in the docstring of `Rows`."""
    ids = np.arange(12)
    batches = [
        (b.inputs.ids.tolist(), b.targets.tolist(), b.reset_state, b.epoch)
        for b in islice(Rows(2, 2).batches(ids, 1, 0), 4)
    ]
    assert batches == [
        ([[0, 1], [6, 7]], [[1, 2], [7, 8]], True, 0),
        ([[2, 3], [8, 9]], [[3, 4], [9, 10]], False, 0),
        ([[4], [10]], [[5], [11]], False, 0),
        ([[0, 1], [6, 7]], [[1, 2], [7, 8]], True, 1),
    ]
    assert Rows(2, 2).batches_per_epoch(ids) == 3


def test_rows_drop_the_remainder() -> None:
    """13 and 14 tokens in 3 rows of 4: the last one or two are dropped."""
    for length in (13, 14):
        (batch,) = islice(Rows(3, 3).batches(np.arange(length), 1, 0), 1)
        assert batch.inputs.ids.tolist() == [[0, 1, 2], [4, 5, 6], [8, 9, 10]]
        assert batch.targets.tolist() == [[1, 2, 3], [5, 6, 7], [9, 10, 11]]


def test_windows_batches_equal_the_drawing() -> None:
    """The drawing in the docstring of `Windows`: three windows, in some order."""
    (batch,) = islice(Windows(3, 3).batches(np.arange(6), 1, 0), 1)
    rows = zip(batch.inputs.ids.tolist(), batch.targets.tolist(), strict=True)
    windows = sorted((*row, *target) for row, target in rows)
    assert windows == [(0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5)]
    assert batch.reset_state


class Spy(Network):
    """A network that records its inputs; token i costs log(1 + i)."""

    def __init__(self) -> None:
        super().__init__(None, Vocabulary(256, 99))
        self.inputs: list[list[int]] = []

    def start(self, batch: int, source: Any = None) -> tuple[Tensor, None]:
        return torch.full((batch,), 99), None

    def step(self, last: Tensor, state: Any) -> Any: ...

    def score(self, ids: Tensor, lengths: Tensor, state: Any) -> tuple[Tensor, None]:
        self.inputs += ids.tolist()
        return torch.log(1 / (1 + ids[:, 1:].float())), None


def test_windowed_score_sees_the_context_of_the_drawing() -> None:
    """Context 4, stride 2 over a b c d e f g: [a b c d], then e f after b c d, then g after d e f."""
    spy = Spy()
    nats = CausalLM(spy, BYTES).windowed_nats(np.arange(7), context=4, stride=2)
    begin = 99
    #                           predicts      1  2  3  4         and the last
    assert sorted(spy.inputs) == [[1, 2, 3, 4, 5], [2, 3, 4, 5, 6], [begin, 0, 1, 2, 3]]
    np.testing.assert_allclose(nats, np.log1p(np.arange(7)), rtol=1e-6)
