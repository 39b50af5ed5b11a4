"""Special CPU paths for large tensors: masks from random bits, chunked averaged steps, layers in bf16."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nextword.layers.dropout import MANY, drop_connections
from nextword.layers.recurrent import CELLS, RecurrentLayer
from nextword.training.optimizers import AveragedSGD


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_bit_masks_keep_rate_and_are_uncorrelated(share: float) -> None:
    torch.manual_seed(0)
    w = (torch.rand(1024, 513) + 1).requires_grad_()
    assert w.numel() >= MANY
    a, b = drop_connections(w, share, True), drop_connections(w, share, True)
    assert not torch.equal(a, b)
    kept = a != 0
    assert abs(kept.float().mean().item() - (1 - share)) < 4 * (share * (1 - share) / w.numel()) ** 0.5
    torch.testing.assert_close(a[kept], w[kept] / (1 - share))
    for x, y in ((kept[:-1], kept[1:]), (kept[:, :-1], kept[:, 1:]), (kept[:, :-4], kept[:, 4:])):
        r = torch.corrcoef(torch.stack([x.flatten().float(), y.flatten().float()]))[0, 1]
        assert abs(r) < 5 / x.numel() ** 0.5
    g = torch.randn_like(w)
    a.backward(g)
    assert w.grad is not None
    torch.testing.assert_close(w.grad, (g * kept) / (1 - share))
    torch.manual_seed(0)
    torch.rand(1024, 513)
    assert torch.equal(drop_connections(w, share, True), a)  # the same seed, the same mask
    assert drop_connections(w, share, False) is w


@pytest.mark.parametrize("decay", [0.0, 1.2e-3])
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("power", [0.0, 4.0])
def test_chunked_averaged_step_equals_formula(decay: float, scale: float | None, power: float) -> None:
    torch.manual_seed(0)
    shapes = [(), (3,), (700, 513), (5, 0), (2, 300_000)]
    ps = [nn.Parameter(torch.randn(s)) for s in shapes] + [nn.Parameter(torch.randn(400, 900).t())]
    q = [p.detach().clone() for p in ps]
    m = [x.clone() for x in q]
    optimizer = AveragedSGD(ps, lr=0.5, weight_decay=decay, start=2, power=power)
    for _ in range(6):
        gs = [torch.randn(p.shape) for p in ps]
        for p, g in zip(ps, gs, strict=True):
            p.grad = g.clone()
        optimizer.prepare_step()
        optimizer.apply_step(None if scale is None else torch.tensor(scale))
        for p, g in zip(ps, gs, strict=True):
            assert p.grad is not None
            assert torch.equal(p.grad, g)
        n = max(optimizer.param_groups[0]["averaged"], 1)
        for i, g in enumerate(gs):
            q[i] = q[i] - 0.5 * (g * (scale or 1.0) + decay * q[i])
            m[i] = m[i] + (q[i] - m[i]) * (power + 1) / (n + power)
    for p, a, b in zip(ps, q, m, strict=True):
        torch.testing.assert_close(p.detach(), a)
        torch.testing.assert_close(optimizer.state[p]["mean"], b)


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("time", [1, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("leak", [0.0, 0.3])
def test_recurrent_layer_accepts_16_bit_input(kind: str, time: int, dtype: torch.dtype, leak: float) -> None:
    torch.manual_seed(0)
    a, b = RecurrentLayer(kind, 6, 8, drop=(0.0, 0.5), leak=leak), RecurrentLayer(kind, 8, 8, leak=leak)
    with torch.autocast("cpu", torch.bfloat16):
        y, _ = a(torch.randn(time, 3, 6).to(dtype), a.start(3))
        z, _ = b(y, b.start(3))
    z.float().pow(2).sum().backward()
    assert a.weight_ih.grad is not None
    assert torch.isfinite(a.weight_ih.grad).all()
    assert a.weight_ih.grad.abs().sum() > 0
