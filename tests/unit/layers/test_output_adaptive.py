"""Adaptive softmax compared with torch: equal values and gradients with equal weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nextword.core.errors import InvalidSetting
from nextword.layers.output import softmax
from nextword.layers.output.adaptive import AdaptiveSoftmax
from nextword.layers.output.softmax import FullSoftmax
from tests.support.errors import raises

WIDTH, SIZE = 16, 30


def draw_rows(number: int = 40) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    return torch.randn(number, WIDTH, generator=g), torch.randint(SIZE, (number,), generator=g)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("few", [True, False])
def test_adaptive_softmax_equals_torch(bias: bool, few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(softmax.PLAIN, "cpu", 1 << 20 if few else -1)  # with the functions of torch, and with ours
    peer = nn.AdaptiveLogSoftmaxWithLoss(WIDTH, SIZE, [4, 12], div_value=2.0, head_bias=bias)
    layer = AdaptiveSoftmax(WIDTH, SIZE, [4, 12], div_value=2.0, bias=bias)
    names = {"head.weight": "head_weight", "head.bias": "head_bias"}
    weights = {names.get(name, name): t for name, t in peer.state_dict().items()}
    layer.load_state_dict({**layer.state_dict(), **weights})
    h, targets = draw_rows()
    torch.testing.assert_close(layer.log_probs(h), peer.log_prob(h))
    torch.testing.assert_close(-layer.nll(h, targets), peer(h, targets).output)
    x, y = h.clone().requires_grad_(), h.clone().requires_grad_()
    (layer.total(x, targets) / len(h)).backward()
    peer(y, targets).loss.backward()
    torch.testing.assert_close(x.grad, y.grad)
    for name, parameter in peer.named_parameters():
        torch.testing.assert_close(layer.get_parameter(names.get(name, name)).grad, parameter.grad)


def test_adaptive_softmax_without_tail_equals_full_softmax() -> None:
    layer, full = AdaptiveSoftmax(WIDTH, SIZE, [], bias=True), FullSoftmax(WIDTH, SIZE)
    full.load_state_dict({"weight": layer.head_weight, "bias": layer.head_bias})
    h, targets = draw_rows()
    torch.testing.assert_close(layer.nll(h, targets), full.nll(h, targets))
    torch.testing.assert_close(layer.log_probs(h), full.log_probs(h))


def test_adaptive_softmax_puts_frequent_words_into_the_head() -> None:
    layer = AdaptiveSoftmax(WIDTH, SIZE, [2, 4])
    layer.fit_vocabulary(np.array([29] * 5 + [7] * 4 + [3] * 2))
    assert layer.place[[29, 7, 3, 0]].tolist() == [0, 1, 2, 3]
    h, _ = draw_rows(1)
    head = torch.log_softmax(h @ layer.head_weight.t(), -1)
    torch.testing.assert_close(layer.log_probs(h)[:, [29, 7]], head[:, :2])


def test_cutoffs_outside_the_vocabulary_raise() -> None:
    for bad in ([0, 3], [3, 3], [30], [5.5]):
        with raises(InvalidSetting, key="model.readout.cutoffs"):
            AdaptiveSoftmax(WIDTH, SIZE, bad)  # type: ignore[arg-type]
    assert AdaptiveSoftmax(WIDTH, 3).edges[-1] == 3  # default cutoffs are always in range
