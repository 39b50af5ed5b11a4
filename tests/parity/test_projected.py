"""The projected LSTM compared with torch, and its training path with autograd on its definition."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from nextword.layers.recurrent import ProjectedLSTM

LIMITS = [(0.0, 0.0), (0.4, 0.0), (0.0, 0.15), (0.3, 0.2)]
T, B, INPUTS, CELLS, WIDTH = 7, 3, 5, 16, 6


def layer(limits: tuple[float, float] = (0.0, 0.0), sides: int = 2) -> ProjectedLSTM:
    torch.manual_seed(3)
    return ProjectedLSTM(INPUTS, CELLS, WIDTH, sides, *limits).double()


def sequence(sides: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    shapes = (sides, T, B, INPUTS), (sides, B, WIDTH), (sides, B, CELLS)
    x, h, c = (torch.randn(shape, generator=generator, dtype=torch.double) for shape in shapes)
    return x.mul(2).requires_grad_(), h.mul(0.1).requires_grad_(), c.mul(0.1).requires_grad_()


def value(y: Tensor, h: Tensor, c: Tensor) -> Tensor:
    """Something in which every output has a say of its own."""
    return (y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum() + h.sin().sum() + (c.pow(2) * 0.3).sum()


def test_direction_without_clipping_equals_torch_lstm() -> None:
    ours, (x, h, c) = layer(), sequence()
    y, h_after, c_after = ours.stepwise(x, h, c, ours.weights())
    value(y, h_after, c_after).backward()
    for side in (0, 1):
        theirs = nn.LSTM(INPUTS, CELLS, proj_size=WIDTH).double()
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "weight_hr_l0")
        with torch.no_grad():
            for name, mine in zip(names, (ours.weight_ih, ours.weight_hh, ours.bias, ours.weight_hr), strict=True):
                getattr(theirs, name).copy_(mine[side])
            theirs.bias_hh_l0.zero_()
        given = [t[side].detach().requires_grad_() for t in (x, h, c)]
        out, (h_out, c_out) = theirs(given[0], (given[1][None], given[2][None]))
        torch.testing.assert_close(out, y[side])
        torch.testing.assert_close(c_out[0], c_after[side])
        weights = torch.linspace(-1, 1, y.numel()).view_as(y)[side]
        ((out * weights).sum() + h_out.sin().sum() + (c_out.pow(2) * 0.3).sum()).backward()
        for name, mine in zip(names, (ours.weight_ih, ours.weight_hh, ours.bias, ours.weight_hr), strict=True):
            assert mine.grad is not None
            torch.testing.assert_close(getattr(theirs, name).grad, mine.grad[side])
        assert x.grad is not None
        torch.testing.assert_close(given[0].grad, x.grad[side])


@pytest.mark.parametrize("limits", LIMITS)
def test_deferred_gradients_equal_stepwise_autograd(limits: tuple[float, float]) -> None:
    ours = layer(limits)
    found = []
    for way in (ours.stepwise, ours.loops):
        x, h, c = sequence()
        y, h_after, c_after = way(x, h, c, ours.weights())
        grads = torch.autograd.grad(value(y, h_after, c_after), [x, h, c, *ours.parameters()])
        found.append([y, h_after, c_after, *grads])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)
    y, _, c_after = found[0][:3]
    if limits[0]:
        assert 0.01 < (c_after.abs() >= limits[0]).double().mean() < 0.9  # it is cut, here and there
        assert c_after.abs().max() == limits[0]
    if limits[1]:
        assert 0.01 < (y.abs() >= limits[1]).double().mean() < 0.9


def test_gradient_taken_twice_is_equal() -> None:
    """What lies in the room after the first time is no longer what went forward."""
    ours, (x, h, c) = layer((0.3, 0.2)), sequence()
    loss = value(*ours.loops(x, h, c, ours.weights()))
    first = torch.autograd.grad(loss, [x, *ours.parameters()], retain_graph=True)
    second = torch.autograd.grad(loss, [x, *ours.parameters()])
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b)


def test_frozen_weights_propagate_gradients() -> None:
    ours, (x, h, c) = layer((0.3, 0.2)), sequence()
    (wanted,) = torch.autograd.grad(value(*ours.stepwise(x, h, c, ours.weights())), [x])
    ours.requires_grad_(False)
    (found,) = torch.autograd.grad(value(*ours.loops(x, h, c, ours.weights())), [x])
    torch.testing.assert_close(found, wanted)
    with torch.no_grad():
        for a, b in zip(ours.loops(x, h, c, ours.weights()), ours.stepwise(x, h, c, ours.weights()), strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("learning", [True, False])
def test_carried_state_equals_one_long_sequence(learning: bool) -> None:
    ours, (x, _, _) = layer((0.3, 0.2)), sequence()
    with torch.set_grad_enabled(learning):
        whole, end = ours(x, ours.start(2 * B))
        first, memory = ours(x[:, :3], ours.start(2 * B))
        second, after = ours(x[:, 3:], memory)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    for a, b in zip(after, end, strict=True):
        torch.testing.assert_close(a, b)


def test_finished_row_keeps_its_state() -> None:
    ours, (x, _, _) = layer((0.3, 0.2)), sequence()
    lengths = torch.tensor([7, 2, 4])
    with torch.no_grad():
        _, padded = ours(x, ours.start(2 * B), token_mask=torch.arange(T)[:, None] < lengths)
        for row, length in enumerate(lengths.tolist()):
            _, alone = ours(x[:, :length, row : row + 1], ours.start(2))
            for a, b in zip(padded, alone, strict=True):
                torch.testing.assert_close(a.view(2, B, -1)[:, row], b.view(2, -1))


def test_single_direction_equals_its_half_of_both() -> None:
    ours, (x, _, _) = layer((0.3, 0.2)), sequence()
    y, _ = ours(x, ours.start(2 * B))
    for side in (0, 1):
        alone, _ = ours(x[side : side + 1], ours.start(B), side)
        torch.testing.assert_close(alone[0], y[side])
    loss = ours(x[1:], ours.start(B), 1)[0].sum()
    (gradient,) = torch.autograd.grad(loss, [ours.weight_hh])
    assert not gradient[0].any()
    assert gradient[1].any()


def test_bf16_output_is_close_to_float32() -> None:
    ours = layer((3.0, 3.0)).float()
    x, h, c = (t.detach().float() for t in sequence())
    exact = ours.loops(x, h, c, ours.weights())[0]
    with torch.autocast("cpu", torch.bfloat16):
        narrow = ours.loops(x, h, c, ours.weights())[0]
    assert narrow.dtype == torch.bfloat16
    torch.testing.assert_close(narrow.float(), exact, atol=0.03, rtol=0.03)


def test_deepcopy_has_its_own_weights() -> None:
    ours, (x, _, _) = layer(), sequence()
    other = copy.deepcopy(ours)
    with torch.no_grad():
        other.weight_hr.zero_()
    assert ours(x, ours.start(2 * B))[0].any()
    assert not other(x, other.start(2 * B))[0].any()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here: kernels and recorded loops are not run")
@pytest.mark.parametrize("limits", LIMITS)
def test_captured_layer_on_gpu_equals_definition(limits: tuple[float, float]) -> None:
    ours = layer(limits).float().cuda()
    x, h, c = (t.detach().float().cuda() for t in sequence())
    wanted = None
    for time in range(6):  # at the third it is recorded
        y, h_after, c_after = ours.loops(x * (1 + time), h, c, ours.weights())
        found = torch.autograd.grad(value(y.cpu(), h_after.cpu(), c_after.cpu()), list(ours.parameters()))
        y, h_after, c_after = ours.stepwise(x * (1 + time), h, c, ours.weights())
        wanted = torch.autograd.grad(value(y.cpu(), h_after.cpu(), c_after.cpu()), list(ours.parameters()))
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b, atol=1e-3, rtol=1e-3)
    assert ours.loops.workspaces
