"""The quasi-recurrent layer: gates from a convolution over time; between steps nothing but an average.

Bradbury, Merity, Xiong & Socher, "Quasi-Recurrent Neural Networks" (2016), eq. 1–5, as the AWD-LSTM's authors use it:

    z_t = tanh(W_z x̃_t + b_z)    f_t = σ(W_f x̃_t + b_f)    o_t = σ(W_o x̃_t + b_o)       x̃_t = [x_t; x_{t−1}] or x_t
    c_t = f_t · c_{t−1} + (1 − f_t) · z_t                   h_t = o_t · c_t

Difference from the LSTM: no matrix leads from state to state, so the gates of all steps are one product, and what must
be done in order is a few operations per number. The input before the first is zero, and is carried on as part of the
state. (The authors' code swaps f and 1 − f. To load its weights, negate W_f and b_f.)

`QRNN.stepwise` is the reference. The fast path (`forward`) is one pass over time on a CPU, and one Triton kernel per
direction on a GPU: tiles of steps, combined by the associative rule (f, x), (f', x') → (f f', f' x + x').
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nextword.kernels import triton_kernels as kernels
from nextword.layers.dropout import drop_connections
from nextword.layers.recurrent import CellTrace

QRNNState = tuple[Tensor, ...]  # (c,), or (c, x) where the window is 2: (B, D) and (B, I)

STEPS, BLOCK = 16, 64  # a kernel's tile


class QRNN(nn.Module):
    """One layer over time-major input, with the interface of `RecurrentLayer`.

    `weight` (3D, window · I) has the rows of z, f, o and the columns of x_t, then x_{t−1}; `drop` is DropConnect of it,
    with one mask per sequence.
    """

    def __init__(self, inputs: int, width: int, window: int = 1, drop: float = 0.0) -> None:
        super().__init__()
        self.inputs, self.width, self.window, self.drop = inputs, width, window, drop
        self.weight = nn.Parameter(torch.empty(3 * width, window * inputs))
        self.bias = nn.Parameter(torch.empty(3 * width))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -((window * inputs) ** -0.5), (window * inputs) ** -0.5)  # as nn.Linear

    def start(self, batch: int) -> QRNNState:
        sizes = [self.width] + [self.inputs] * (self.window - 1)
        return tuple(self.weight.new_zeros(batch, size) for size in sizes)

    def forward(self, x: Tensor, state: QRNNState) -> tuple[Tensor, QRNNState]:
        """(T, B, I), state → (T, B, D), state after the last step."""
        seen = x
        if self.window == 2:
            before = torch.cat([state[1].to(x.dtype).unsqueeze(0), x[:-1]])
            seen = torch.cat([x, before], -1)
        gates = F.linear(seen, drop_connections(self.weight, self.drop, self.training), self.bias)  # (T, B, 3D)
        h, c = fo_pool(gates, state[0])
        return h, (c, x[-1].to(state[1].dtype)) if self.window == 2 else (c,)

    def trace(self, x: Tensor) -> CellTrace:
        """Read (T, B, I) from an empty state, step by step, and keep everything. A step's state is shown as (h, c)."""
        c, *before = self.start(x.shape[1])
        gates, states = [], []
        for x_t in x:
            z, f, o = F.linear(torch.cat([x_t, *before], -1), self.weight, self.bias).chunk(3, -1)
            z, f, o = torch.tanh(z), torch.sigmoid(f), torch.sigmoid(o)
            c = f * c + (1 - f) * z
            gates.append({"candidate": z, "forget": f, "output": o})
            states.append((o * c, c))
            before = [x_t] if before else []
        return CellTrace(tuple(gates), tuple(states))

    def stepwise(self, x: Tensor, state: QRNNState) -> tuple[Tensor, QRNNState]:
        """The reference, step by step."""
        weight, outputs = drop_connections(self.weight, self.drop, self.training), []
        c, *before = state
        for x_t in x:
            z, f, o = F.linear(torch.cat([x_t, *before], -1), weight, self.bias).chunk(3, -1)
            z, f, o = torch.tanh(z), torch.sigmoid(f), torch.sigmoid(o)
            c = f * c + (1 - f) * z
            outputs.append(o * c)
            before = [x_t] if before else []
        return torch.stack(outputs), (c, *before)


def fo_pool(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Gates before their nonlinearities (T, B, 3D) and the first c → outputs (T, B, D) and the last c.

    Sums over time use at least 32 bits, whatever the type of the gates; c keeps its type.
    """
    if gates.is_cuda and gates.dtype in (torch.float32, torch.bfloat16, torch.float16) and kernels.available():
        return _Fused.apply(gates, c)
    with torch.autocast(gates.device.type, enabled=False):
        z, f, o = gates.to(torch.promote_types(gates.dtype, torch.float32)).chunk(3, -1)
        cs = forget_mult(torch.sigmoid(f), torch.tanh(z), c.to(z.dtype))
        return (torch.sigmoid(o) * cs).to(gates.dtype), cs[-1].to(c.dtype)


def forget_mult(f: Tensor, z: Tensor, c: Tensor) -> Tensor:
    """c_t = f_t c_{t−1} + (1 − f_t) z_t of all steps: (T, B, D), (T, B, D), (B, D) → (T, B, D)."""
    cs = []
    for f_t, z_t in zip(f.unbind(), z.unbind(), strict=True):
        c = torch.lerp(z_t, c, f_t)  # z + f (c − z)
        cs.append(c)
    return torch.stack(cs)


# ------------------------------------------------------------------------------------------------ on a GPU


class _Fused(torch.autograd.Function):
    """Nonlinearities, average and output gate in one kernel: every number is read once and written once."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        (time, batch, _), width = gates.shape, c.shape[-1]
        gates, start = gates.contiguous(), c.float().contiguous()
        h = torch.empty(time, batch, width, dtype=gates.dtype, device=gates.device)
        cs, last = torch.empty_like(h, dtype=torch.float32), torch.empty_like(start)
        triton, forward, _ = _compiled()
        grid = (triton.cdiv(batch * width, BLOCK),)
        forward[grid](gates, start, h, cs, last, time, batch, width, STEPS=STEPS, BLOCK=BLOCK, num_warps=4)
        ctx.save_for_backward(gates, start, cs)
        ctx.kept = c.dtype
        return h, last.to(c.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_h: Tensor, grad_last: Tensor) -> Any:
        gates, start, cs = ctx.saved_tensors
        time, batch, width = cs.shape
        grad_gates, grad_start = torch.empty_like(gates), torch.empty_like(start)
        grads = grad_h.contiguous(), grad_last.float().contiguous()
        triton, _, backward = _compiled()
        grid = (triton.cdiv(batch * width, BLOCK),)
        sizes = time, batch, width
        backward[grid](gates, start, cs, *grads, grad_gates, grad_start, *sizes, STEPS=STEPS, BLOCK=BLOCK, num_warps=4)
        return grad_gates, grad_start.to(ctx.kept)


@cache
def _compiled() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def composed(f, x, f_next, x_next):
        return f * f_next, f_next * x + x_next

    @triton.jit
    def forward(gates, start, h, cs, last, time, batch, width, STEPS: tl.constexpr, BLOCK: tl.constexpr):
        """One program: BLOCK numbers of the memory through all time, STEPS at once."""
        size = batch * width
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = at < size
        place = at // width * 3 * width + at % width  # of z in the gates of one step
        c = tl.load(start + at, inside, 0.0)
        step = tl.arange(0, STEPS)[:, None]
        for first in range(0, time, STEPS):
            t = (first + step).to(tl.int64)
            here = (t < time) & inside[None, :]
            z_at = gates + t * (3 * size) + place[None, :]
            z = 2 * tl.sigmoid(2 * tl.load(z_at, here, 0.0).to(tl.float32)) - 1  # tanh
            f = tl.sigmoid(tl.load(z_at + width, here, 0.0).to(tl.float32))
            o = tl.sigmoid(tl.load(z_at + 2 * width, here, 0.0).to(tl.float32))
            # steps after the last change nothing
            kept, added = tl.associative_scan((tl.where(here, f, 1.0), tl.where(here, (1 - f) * z, 0.0)), 0, composed)
            now = kept * c[None, :] + added
            to = t * size + at[None, :]
            tl.store(cs + to, now, here)
            tl.store(h + to, (o * now).to(h.dtype.element_ty), here)
            c = tl.sum(tl.where(step == STEPS - 1, now, 0.0), 0)
        tl.store(last + at, c, inside)

    @triton.jit
    def backward(
        gates,
        start,
        cs,
        grad_h,
        grad_last,
        grad_gates,
        grad_start,
        time,
        batch,
        width,
        STEPS: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        """The same from the last step to the first: dL/dc_t = o_t dL/dh_t + f_{t+1} dL/dc_{t+1}."""
        size = batch * width
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = at < size
        place = at // width * 3 * width + at % width
        total = tl.load(grad_last + at, inside, 0.0)
        step = tl.arange(0, STEPS)[:, None]
        for first in range(0, time, STEPS):
            t = (time - 1 - first - step).to(tl.int64)  # downwards
            here = (t >= 0) & inside[None, :]
            z_at = gates + t * (3 * size) + place[None, :]
            z = 2 * tl.sigmoid(2 * tl.load(z_at, here, 0.0).to(tl.float32)) - 1
            f = tl.sigmoid(tl.load(z_at + width, here, 0.0).to(tl.float32))
            o = tl.sigmoid(tl.load(z_at + 2 * width, here, 0.0).to(tl.float32))
            later = here & (t + 1 < time)
            f_next = tl.sigmoid(tl.load(z_at + width + 3 * size, later, 0.0).to(tl.float32))
            from_at = t * size + at[None, :]
            g = tl.load(grad_h + from_at, here, 0.0).to(tl.float32)
            c = tl.load(cs + from_at, here, 0.0)
            before = tl.load(cs + from_at - size, here & (t > 0), 0.0)
            before = tl.where(t > 0, before, tl.load(start + at, inside, 0.0)[None, :])
            kept, added = tl.associative_scan((tl.where(later, f_next, 1.0), g * o), 0, composed)
            now = kept * total[None, :] + added
            z_to = grad_gates + t * (3 * size) + place[None, :]
            kind = grad_gates.dtype.element_ty
            tl.store(z_to, (now * (1 - f) * (1 - z * z)).to(kind), here)
            tl.store(z_to + width, (now * (before - z) * f * (1 - f)).to(kind), here)
            tl.store(z_to + 2 * width, (g * c * o * (1 - o)).to(kind), here)
            total = tl.sum(tl.where(step == STEPS - 1, now, 0.0), 0)
        f_first = tl.sigmoid(tl.load(gates + place + width, inside, 0.0).to(tl.float32))
        tl.store(grad_start + at, total * f_first, inside)

    return triton, forward, backward
