"""Loops that a GPU should run in one pass each, written in Triton; torch's own functions do where it is missing.

softmax_gradient   logits → −log p of each target, and in place of the logits the gradient p − 1_target
column_sums        Σ over the rows, in an order that is always the same
averaged_step      θ ← θ − η (c g + λθ), θ̄ ← θ̄ + s (θ − θ̄): every number is read once and written once
"""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

import torch
from torch import Tensor

from nextword.contract import IGNORE


@cache
def available() -> bool:
    return importlib.util.find_spec("triton") is not None and torch.cuda.is_available()


@cache
def _compiled_gates() -> Any:
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

    @triton.jit
    def columns(x, parts, rows, width, EACH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
        """The sums of EACH rows, for some columns."""
        at = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
        total = tl.zeros((ROWS, COLUMNS), tl.float32)
        for start in range(0, EACH, ROWS):
            row = tl.program_id(1) * EACH + start + tl.arange(0, ROWS)[:, None]
            total += tl.load(x + row.to(tl.int64) * width + at, (row < rows) & (at < width), 0.0).to(tl.float32)
        at = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
        tl.store(parts + tl.program_id(1) * width + at, tl.sum(total, 0), at < width)

    @triton.jit
    def gathered(parts, out, count, width, COUNT: tl.constexpr, COLUMNS: tl.constexpr):
        at = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
        part = tl.arange(0, COUNT)[:, None]
        x = tl.load(parts + part * width + at[None, :], (part < count) & (at < width)[None, :], 0.0)
        tl.store(out + at, tl.sum(x, 0).to(out.dtype.element_ty), at < width)

    @triton.jit
    def update(p, g, mean, rate, share, scale, decay, size, BLOCK: tl.constexpr):
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = at < size
        old = tl.load(p + at, inside)
        new = old - tl.load(rate) * (tl.load(g + at, inside) * tl.load(scale) + decay * old)
        before = tl.load(mean + at, inside)
        tl.store(p + at, new, inside)
        tl.store(mean + at, before + tl.load(share) * (new - before), inside)

    return triton, rows, update, columns, gathered


def softmax_gradient(z: Tensor, bias: Tensor | None, targets: Tensor, size: int) -> Tensor:
    """(N, W) logits of `size` words and padding, without their bias (float32) → (N,) float32; z becomes p − 1_target.

    Rows whose target is IGNORE cost nothing and have no gradient.
    """
    triton, rows, *_ = _compiled_gates()
    nll = torch.empty(len(z), dtype=torch.float32, device=z.device)
    given, own = bias is not None, z if bias is None else bias
    block = min(8192, triton.next_power_of_2(z.shape[1]))
    shape = {"BLOCK": block, "LANE": min(16, block), "num_warps": max(1, block // 512)}
    rows[(len(z),)](z, own, targets, nll, size, z.shape[1], IGNORE, BIAS=given, **shape)
    return nll


def column_sums(x: Tensor, out: Tensor) -> None:
    """(M, N) → (N,). Torch's sum walks over memory at a half to a quarter of its speed where rows are many."""
    triton, _, _, columns, gathered = _compiled_gates()
    (rows, width), across = x.shape, triton.cdiv(x.shape[1], 128)
    parts = min(triton.cdiv(768, across), triton.cdiv(rows, 32))
    each = triton.cdiv(triton.cdiv(rows, parts), 32) * 32
    parts = triton.cdiv(rows, each)
    between = torch.empty(parts, width, dtype=torch.float32, device=x.device)
    columns[(across, parts)](x, between, rows, width, EACH=each, ROWS=32, COLUMNS=128, num_warps=4)
    count = triton.next_power_of_2(parts)
    gathered[(triton.cdiv(width, 32),)](between, out, parts, width, COUNT=count, COLUMNS=32, num_warps=4)


def averaged_step(
    params: list[Tensor],
    grads: list[Tensor],
    means: list[Tensor],
    rate: Tensor,
    share: Tensor,
    scale: Tensor,
    decay: float,
) -> None:
    triton, _, update, *_ = _compiled_gates()
    for p, g, mean in zip(params, grads, means, strict=True):
        grid = (triton.cdiv(p.numel(), 4096),)
        update[grid](p, g.contiguous(), mean, rate, share, scale, decay, p.numel(), BLOCK=4096, num_warps=8)
