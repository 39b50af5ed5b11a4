"""Recurrent layers over padded rows, and dropout on a CPU."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from nextword.layers.dropout import MANY, dropout
from nextword.layers.recurrent import BiLSTM, reverse_padded, run_padded

LENGTHS = torch.tensor([9, 1, 4, 6])


def test_run_padded_never_reads_padding() -> None:
    torch.manual_seed(0)
    layer = nn.GRU(5, 7, batch_first=True, bidirectional=True)
    x = torch.randn(4, 9, 5)
    other = torch.where(torch.arange(9)[None, :, None] < LENGTHS[:, None, None], x, 100 * torch.randn(4, 9, 5))
    for actual, expected in zip(*(nested(run_padded(layer, each, LENGTHS)) for each in (x, other)), strict=True):
        assert torch.equal(actual, expected)


def nested(found: tuple[torch.Tensor, tuple[torch.Tensor, ...]]) -> list[torch.Tensor]:
    return [found[0], *found[1]]


def test_reverse_padded_leaves_padding_in_place() -> None:
    ids = torch.tensor([[1, 2, 3, 0], [4, 5, 0, 0]])
    assert reverse_padded(ids, torch.tensor([3, 2])).tolist() == [[3, 2, 1, 0], [5, 4, 0, 0]]


def test_projection_suppresses_only_its_own_warning() -> None:
    layer, before, always = BiLSTM(3, 6, 2), list(warnings.filters), torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # otherwise torch warns once per process
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            layer(torch.randn(2, 4, 3), torch.ones(2, 4, dtype=torch.bool))
            assert caught == []
            layer.lstm(torch.randn(2, 4, 3))
            assert any("projections" in str(warning.message) for warning in caught)
    finally:
        torch.set_warn_always(always)
    assert warnings.filters == before


def test_dropout_keeps_rate_expectation_and_gradient() -> None:
    torch.manual_seed(0)
    x = torch.ones(16 * MANY, requires_grad=True)
    y = dropout(x, 0.3, True)
    assert set(y.unique().tolist()) == {0.0, torch.tensor(1 / 0.7).item()}
    assert (y == 0).float().mean().item() == pytest.approx(0.3, abs=2e-3)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())
    assert torch.equal(dropout(x, 0.3, False), x)
