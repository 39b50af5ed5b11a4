"""Gates as one operation against their definition: values and gradients, also in 16 bits beside 32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nextword.kernels.lstm import FUSED_GATES
from nextword.layers.recurrent import gru_gates, lstm_gates

DEFINED: dict[str, tuple[Callable[..., Any], int, int]] = {"gru": (gru_gates, 3, 1), "lstm": (lstm_gates, 4, 2)}


def drawn(kind: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    _, gates, memories = DEFINED[kind]
    x, s = (torch.randn(3, gates * 5, dtype=dtype).requires_grad_() for _ in range(2))
    return x, s, tuple(torch.randn(3, 5, dtype=dtype).requires_grad_() for _ in range(memories))


@pytest.mark.parametrize("kind", list(FUSED_GATES))
def test_as_defined(kind: str) -> None:
    x, s, memory = drawn(kind, torch.float64)
    found = []
    for way in (DEFINED[kind][0], FUSED_GATES[kind]):
        new = way(x, s, memory)
        asked = sum((part * torch.arange(1.0, 6.0)).sum() for part in new)
        used = [x, s, memory[-1]]  # an LSTM's gates do not look at h
        found.append([*new, *torch.autograd.grad(asked, used)])
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", list(FUSED_GATES))
def test_products_in_sixteen_bits_leave_the_rest_wide(kind: str) -> None:
    x, s, memory = drawn(kind, torch.float32)
    new = FUSED_GATES[kind](x.bfloat16(), s.bfloat16(), memory)
    sum(part.float().sum() for part in new).backward()
    for tensor in (x, s, memory[-1]):
        assert tensor.grad is not None
        assert tensor.grad.dtype == tensor.dtype
        assert tensor.grad.isfinite().all()
    wide = DEFINED[kind][0](x, s, memory)
    for one, two in zip(new, wide, strict=True):
        torch.testing.assert_close(one.float(), two.float(), rtol=0.05, atol=0.05)
