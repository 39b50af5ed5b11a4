"""Triton kernels: loops that a GPU should run in one pass each. Without Triton, callers use torch functions instead.

Training (reference: torch, tests/parity/test_softmax.py and test_gpt.py; selected by the callers if `available()`):

    softmax_gradient   logits → −log p of each target, and in place of the logits the gradient p − 1_target

Generation (used by cuda_graphs.py, whose steps take as long as they have kernels; in float32, whatever the weights):

    added_norm    x ← x + y, h = norm(x)                                                    one program per row
    attend        store this step's key and value, and attend to what the row has read: empty slots and those before
                  the band are never read                                                   one program per row and head

Projected LSTMs (used by projected_lstm.py; they contain their torch reference; at least float32; slices of longer
tensors are fine):

    open_gates       z (S, B, 4H) becomes σ(i), σ(f), tanh(g), σ(o); c' = clip(σ(f) c + σ(i) tanh(g)); m = σ(o) tanh(c')
    close_gates      from dm and dc': z becomes its own gradient, and dc that of the previous c
    zero_where_clipped   dh is 0 where h is at its limit
"""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from nextword.core.types import IGNORE


@cache
def available() -> bool:
    return importlib.util.find_spec("triton") is not None and torch.cuda.is_available()


@cache
def _training_kernels() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def rows(z, bias, targets, nll, size, width, ignore, BIAS: tl.constexpr, BLOCK: tl.constexpr, LANE: tl.constexpr):
        """One row in two passes; LANE neighbours share a running maximum, so that each number costs one exponential."""
        row = tl.program_id(0).to(tl.int64)
        z += row * width
        target = tl.load(targets + row)
        kept = target != ignore
        chosen = tl.where(kept, target, 0)
        own = tl.load(z + chosen).to(tl.float32)  # now, before any warp writes over it
        if BIAS:
            own += tl.load(bias + chosen)
        here = tl.arange(0, BLOCK // LANE)[:, None] * LANE + tl.arange(0, LANE)[None, :]
        most = tl.full((BLOCK // LANE,), -1e30, tl.float32)
        total = tl.zeros((BLOCK // LANE,), tl.float32)
        for start in range(0, size, BLOCK):
            at = start + here
            x = tl.load(z + at, at < size, -1e30).to(tl.float32)
            if BIAS:
                x += tl.load(bias + at, at < size, 0.0)
            x = x * 1.4426950408889634  # in powers of two from here on
            higher = tl.maximum(most, tl.max(x, 1))
            total = total * tl.exp2(most - higher) + tl.sum(tl.exp2(x - higher[:, None]), 1)
            most = higher
        top = tl.max(most, 0)
        logarithm = top + tl.log2(tl.sum(total * tl.exp2(most - top), 0))
        tl.store(nll + row, tl.where(kept, logarithm * 0.6931471805599453 - own, 0.0))
        for start in range(0, width, BLOCK):
            at = start + here
            x = tl.load(z + at, at < size, -1e30).to(tl.float32)
            if BIAS:
                x += tl.load(bias + at, at < size, 0.0)
            p = tl.where(kept & (at < size), tl.exp2(x * 1.4426950408889634 - logarithm) - (at == target), 0.0)
            tl.store(z + at, p.to(z.dtype.element_ty), at < width)

    return triton, rows


def softmax_gradient(z: Tensor, bias: Tensor | None, targets: Tensor, size: int) -> Tensor:
    """(N, W) logits of `size` words and padding, without their bias (float32) → (N,) float32; z becomes p − 1_target.

    Rows whose target is IGNORE cost nothing and have no gradient.
    """
    triton, rows = _training_kernels()
    nll = torch.empty(len(z), dtype=torch.float32, device=z.device)
    given, own = bias is not None, z if bias is None else bias
    block = min(8192, triton.next_power_of_2(z.shape[1]))
    shape = {"BLOCK": block, "LANE": min(16, block), "num_warps": max(1, block // 512)}
    rows[(len(z),)](z, own, targets, nll, size, z.shape[1], IGNORE, BIAS=given, **shape)
    return nll


SLOTS = 256  # that a program attends to at once


@cache
def _generation_kernels() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def norms(x, y, weight, bias, h, width, epsilon, ADD: tl.constexpr, NORM: tl.constexpr, BIAS: tl.constexpr,
              AFTER: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
        row = tl.program_id(0)
        at = tl.arange(0, BLOCK)
        inside = at < width
        s = tl.load(x + row * width + at, inside, 0.0)
        if ADD:
            s += tl.load(y + row * width + at, inside, 0.0).to(tl.float32)
        n = s
        if NORM:
            mean = tl.sum(s, 0) / width
            away = tl.where(inside, s - mean, 0.0)
            n = away / tl.sqrt(tl.sum(away * away, 0) / width + epsilon) * tl.load(weight + at, inside).to(tl.float32)
            if BIAS:
                n += tl.load(bias + at, inside).to(tl.float32)
        tl.store(h + row * width + at, n.to(h.dtype.element_ty), inside)
        tl.store(x + row * width + at, n if AFTER else s, inside)

    @triton.jit
    def attention(joined, keys, values, lengths, y, heads, slots, each, scale, BAND: tl.constexpr,
                  SLOTS: tl.constexpr, EACH: tl.constexpr):  # fmt: skip
        row, head = tl.program_id(0), tl.program_id(1)
        e = tl.arange(0, EACH)
        inside = e < each
        width = heads * each
        own = joined + row * 3 * width + head * each + e
        q = tl.load(own, inside, 0.0).to(tl.float32) * scale
        k = tl.load(own + width, inside, 0.0)
        v = tl.load(own + 2 * width, inside, 0.0)
        length = tl.load(lengths + row)
        place = ((row * heads + head).to(tl.int64) * slots) * each
        tl.store(keys + place + length * each + e, k, inside)
        tl.store(values + place + length * each + e, v, inside)
        most = tl.sum(q * k.to(tl.float32), 0)  # its own token, of which nothing need be read
        total = most * 0.0 + 1.0
        found = v.to(tl.float32)
        first = length * 0
        if BAND > 0:
            first = tl.maximum(length + 1 - BAND, 0)
        for start in range(first, length, SLOTS):
            at = start + tl.arange(0, SLOTS)
            there = at < length
            where = place + at[:, None] * each + e[None, :]
            mask = there[:, None] & inside[None, :]
            s = tl.sum(tl.load(keys + where, mask, 0.0).to(tl.float32) * q[None, :], 1)
            s = tl.where(there, s, float("-inf"))
            higher = tl.maximum(most, tl.max(s, 0))
            p = tl.exp(s - higher)
            fade = tl.exp(most - higher)
            total = total * fade + tl.sum(p, 0)
            found = found * fade + tl.sum(tl.load(values + where, mask, 0.0).to(tl.float32) * p[:, None], 0)
            most = higher
        tl.store(y + row * width + head * each + e, (found / total).to(y.dtype.element_ty), inside)

    return triton, norms, attention


def added_norm(
    x: Tensor, y: Tensor | None, norm: nn.LayerNorm | None, like: torch.dtype, after: bool = False
) -> Tensor:
    """x (B, D) float32 becomes x + y, and its norm is returned, in the type asked for. `after`: x becomes the norm."""
    triton, norms, _ = _generation_kernels()
    rows, width = x.shape
    h = torch.empty(rows, width, dtype=like, device=x.device)
    weight = x if norm is None else norm.weight
    bias = weight if norm is None or norm.bias is None else norm.bias
    norms[(rows,)](
        x,
        h if y is None else y,
        weight,
        bias,
        h,
        width,
        0.0 if norm is None else norm.eps,
        ADD=y is not None,
        NORM=norm is not None,
        BIAS=norm is not None and norm.bias is not None,
        AFTER=after,
        BLOCK=triton.next_power_of_2(width),
        num_warps=4,
    )
    return h


def attend(joined: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, band: int = 0) -> Tensor:
    """Queries, keys and values of one token a row (B, 3 D), after `lengths` (B,) others in slots (B, H, S, K)."""
    triton, _, attention = _generation_kernels()
    rows, heads, slots, each = keys.shape
    y = torch.empty(rows, heads * each, dtype=joined.dtype, device=joined.device)
    sizes = heads, slots, each, each**-0.5
    wide = triton.next_power_of_2(each)
    attention[(rows, heads)](joined, keys, values, lengths, y, *sizes, BAND=band, SLOTS=SLOTS, EACH=wide, num_warps=8)
    return y


BLOCK = 1024


@cache
def _projected_lstm_kernels() -> Any:
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
        triton, opened, *_ = _projected_lstm_kernels()
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
        triton, _, closed, _ = _projected_lstm_kernels()
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


def zero_where_clipped(dh: Tensor, h: Tensor, most: float) -> None:
    """(S, B, P) both: zero the gradient where h is at its limit."""
    if dh.is_cuda and available():
        triton, *_, stopped = _projected_lstm_kernels()
        size = dh.shape[1] * dh.shape[2]
        grid = (triton.cdiv(size, BLOCK), dh.shape[0])
        stopped[grid](dh, h, size, dh.stride(0), h.stride(0), most, BLOCK=BLOCK, num_warps=4)
        return
    dh.masked_fill_(h.abs() >= most, 0.0)
