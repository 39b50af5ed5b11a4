"""The walks over an LSTM's gates, one step of all sides and rows: on a GPU in Triton, elsewhere torch's functions.

open_gates       z (S, B, 4H) becomes σ(i), σ(f), tanh(g), σ(o); c' = clip(σ(f) c + σ(i) tanh(g)); m = σ(o) tanh(c')
close_gates      from dm and dc': z becomes its own gradient, and dc that of the c before
stop_where_cut   dh is 0 where h lies at its limit

All compute in float32 at the least. Slices of a longer tensor are welcome: only their rows must be whole.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from nextword.layers.kernels import available

BLOCK = 1024


@cache
def _compiled_projected() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def opened(z, c, new, m, rows, cells, z_side, c_side, new_side, m_side, most, CLIP: tl.constexpr,
               BLOCK: tl.constexpr):  # fmt: skip
        side, row = tl.program_id(2).to(tl.int64), tl.program_id(1).to(tl.int64)
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = at < cells
        z += side * z_side + row * 4 * cells + at
        i = tl.sigmoid(tl.load(z, inside, 0.0).to(tl.float32))
        f = tl.sigmoid(tl.load(z + cells, inside, 0.0).to(tl.float32))
        g = 2 * tl.sigmoid(2 * tl.load(z + 2 * cells, inside, 0.0).to(tl.float32)) - 1
        o = tl.sigmoid(tl.load(z + 3 * cells, inside, 0.0).to(tl.float32))
        value = f * tl.load(c + side * c_side + row * cells + at, inside, 0.0) + i * g
        if CLIP:
            value = tl.minimum(tl.maximum(value, -most), most)
        tl.store(z, i.to(z.dtype.element_ty), inside)
        tl.store(z + cells, f.to(z.dtype.element_ty), inside)
        tl.store(z + 2 * cells, g.to(z.dtype.element_ty), inside)
        tl.store(z + 3 * cells, o.to(z.dtype.element_ty), inside)
        tl.store(new + side * new_side + row * cells + at, value, inside)
        said = o * (2 * tl.sigmoid(2 * value) - 1)
        tl.store(m + side * m_side + row * cells + at, said.to(m.dtype.element_ty), inside)

    @triton.jit
    def closed(z, c, new, dm, dc, rows, cells, z_side, c_side, new_side, most, CLIP: tl.constexpr,
               BLOCK: tl.constexpr):  # fmt: skip
        side, row = tl.program_id(2).to(tl.int64), tl.program_id(1).to(tl.int64)
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = at < cells
        z += side * z_side + row * 4 * cells + at
        i = tl.load(z, inside, 0.0).to(tl.float32)
        f = tl.load(z + cells, inside, 0.0).to(tl.float32)
        g = tl.load(z + 2 * cells, inside, 0.0).to(tl.float32)
        o = tl.load(z + 3 * cells, inside, 0.0).to(tl.float32)
        before = tl.load(c + side * c_side + row * cells + at, inside, 0.0)
        value = tl.load(new + side * new_side + row * cells + at, inside, 0.0)
        t = 2 * tl.sigmoid(2 * value) - 1
        here = (side * rows + row) * cells + at
        d = tl.load(dm + here, inside, 0.0).to(tl.float32)
        whole = tl.load(dc + here, inside, 0.0) + d * o * (1 - t * t)
        if CLIP:
            whole = tl.where(tl.abs(value) < most, whole, 0.0)
        tl.store(dc + here, whole * f, inside)
        tl.store(z, (whole * g * i * (1 - i)).to(z.dtype.element_ty), inside)
        tl.store(z + cells, (whole * before * f * (1 - f)).to(z.dtype.element_ty), inside)
        tl.store(z + 2 * cells, (whole * i * (1 - g * g)).to(z.dtype.element_ty), inside)
        tl.store(z + 3 * cells, (d * t * o * (1 - o)).to(z.dtype.element_ty), inside)

    @triton.jit
    def stopped(dh, h, size, dh_side, h_side, most, BLOCK: tl.constexpr):
        side = tl.program_id(1).to(tl.int64)
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = at < size
        value = tl.load(h + side * h_side + at, inside, 0.0).to(tl.float32)
        d = tl.load(dh + side * dh_side + at, inside, 0.0)
        tl.store(dh + side * dh_side + at, tl.where(tl.abs(value) < most, d, 0.0).to(dh.dtype.element_ty), inside)

    return triton, opened, closed, stopped


def open_gates(z: Tensor, c: Tensor, new: Tensor, m: Tensor, most: float) -> None:
    """z (S, B, 4H), c (S, B, H) → new (S, B, H), m (S, B, H); z is overwritten. `most` is the limit of c, or 0."""
    if z.is_cuda and available():
        triton, opened, *_ = _compiled_projected()
        sides, rows, cells = m.shape
        grid = (triton.cdiv(cells, BLOCK), rows, sides)
        strides = z.stride(0), c.stride(0), new.stride(0), m.stride(0)
        opened[grid](z, c, new, m, rows, cells, *strides, most, CLIP=most > 0, BLOCK=BLOCK, num_warps=4)
        return
    i, f, g, o = z.chunk(4, -1)
    for gate in (i, f, o):
        gate.sigmoid_()
    g.tanh_()
    torch.add(f * c, i * g, out=new)
    if most:
        new.clamp_(-most, most)
    m.copy_(o * torch.tanh(new))


def close_gates(z: Tensor, c: Tensor, new: Tensor, dm: Tensor, dc: Tensor, most: float) -> None:
    """z holds the gates as `open_gates` left them, and then its gradient; dc goes from that of `new` to that of c."""
    if z.is_cuda and available():
        triton, _, closed, _ = _compiled_projected()
        sides, rows, cells = dm.shape
        grid = (triton.cdiv(cells, BLOCK), rows, sides)
        strides = z.stride(0), c.stride(0), new.stride(0)
        closed[grid](z, c, new, dm, dc, rows, cells, *strides, most, CLIP=most > 0, BLOCK=BLOCK, num_warps=4)
        return
    i, f, g, o = (gate.to(c.dtype) for gate in z.chunk(4, -1))
    t = torch.tanh(new)
    d = dm.to(c.dtype)
    whole = dc + d * o * (1 - t * t)
    if most:
        whole = whole.masked_fill(new.abs() >= most, 0.0)
    parts = whole * g * i * (1 - i), whole * c * f * (1 - f), whole * i * (1 - g * g), d * t * o * (1 - o)
    torch.mul(whole, f, out=dc)
    for gate, part in zip(z.chunk(4, -1), parts, strict=True):
        gate.copy_(part)


def stop_where_cut(dh: Tensor, h: Tensor, most: float) -> None:
    """(S, B, P) both: no gradient where h is at its limit."""
    if dh.is_cuda and available():
        triton, *_, stopped = _compiled_projected()
        size = dh.shape[1] * dh.shape[2]
        grid = (triton.cdiv(size, BLOCK), dh.shape[0])
        stopped[grid](dh, h, size, dh.stride(0), h.stride(0), most, BLOCK=BLOCK, num_warps=4)
        return
    dh.masked_fill_(h.abs() >= most, 0.0)
