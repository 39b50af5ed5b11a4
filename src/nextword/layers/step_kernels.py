"""What stands between the products of one step of writing on a GPU, in Triton: a step takes as long as it has kernels.

added_norm    x ← x + y, h = norm(x)                                     a program a row
attend        this step's key and value put into their slot, and attention over what the row has read so far
              (only that: slots that are empty or before the band are never looked at)    a program a row and head
row_product   act(W x + b) for one row alone, W read once at the speed of memory         a program for a few outputs

All compute in float32, whatever the weights are.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.layers.kernels import available

__all__ = ["added_norm", "attend", "available", "linear", "row_product"]

SLOTS = 256  # looked at together
OUTPUTS = 8  # of a program


@cache
def _compiled_steps() -> Any:
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

    @triton.jit
    def product(x, matrix, bias, y, outputs, width, BIAS: tl.constexpr, GELU: tl.constexpr, OUTPUTS: tl.constexpr,
                BLOCK: tl.constexpr):  # fmt: skip
        n = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
        inside = n < outputs
        at = tl.arange(0, BLOCK)
        total = tl.zeros((OUTPUTS, BLOCK), tl.float32)
        for start in range(0, width, BLOCK):
            here = start + at < width
            w = tl.load(matrix + n[:, None].to(tl.int64) * width + start + at[None, :],
                        inside[:, None] & here[None, :], 0.0)  # fmt: skip
            total += w.to(tl.float32) * tl.load(x + start + at, here, 0.0).to(tl.float32)[None, :]
        z = tl.sum(total, 1)
        if BIAS:
            z += tl.load(bias + n, inside, 0.0).to(tl.float32)
        if GELU:  # z · sigmoid(2 √(2/π) (z + 0.044715 z³)), which is the approximation by tanh
            z = z / (1 + tl.exp(-1.5957691216057308 * (z + 0.044715 * z * z * z)))
        tl.store(y + n, z.to(y.dtype.element_ty), inside)

    return triton, norms, attention, product


def added_norm(
    x: Tensor, y: Tensor | None, norm: nn.LayerNorm | None, like: torch.dtype, after: bool = False
) -> Tensor:
    """x (B, D) float32 becomes x + y, and its norm is returned, in the type asked for. `after`: x becomes the norm."""
    triton, norms, _, _ = _compiled_steps()
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
    triton, _, attention, _ = _compiled_steps()
    rows, heads, slots, each = keys.shape
    y = torch.empty(rows, heads * each, dtype=joined.dtype, device=joined.device)
    sizes = heads, slots, each, each**-0.5
    wide = triton.next_power_of_2(each)
    attention[(rows, heads)](joined, keys, values, lengths, y, *sizes, BAND=band, SLOTS=SLOTS, EACH=wide, num_warps=8)
    return y


def row_product(x: Tensor, weight: Tensor, bias: Tensor | None, gelu: bool = False) -> Tensor:
    """(1, D), (N, D), (N,) → (1, N)."""
    triton, _, _, product = _compiled_steps()
    outputs, width = weight.shape
    y = torch.empty(1, outputs, dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(width), 1024)
    product[(triton.cdiv(outputs, OUTPUTS),)](
        x,
        weight,
        weight if bias is None else bias,
        y,
        outputs,
        width,
        BIAS=bias is not None,
        GELU=gelu,
        OUTPUTS=OUTPUTS,
        BLOCK=block,
        num_warps=4,
    )
    return y


def linear(x: Tensor, layer: Any, gelu: bool = False) -> Tensor:
    """A layer's product with few rows (B, D), and the gelu of it (its approximation by tanh)."""
    if len(x) == 1:
        return row_product(x, layer.weight, layer.bias, gelu)
    if gelu and layer.bias is not None:
        return torch._addmm_activation(layer.bias, x, layer.weight.t(), use_gelu=True)
    y = F.linear(x, layer.weight, layer.bias)
    return F.gelu(y, approximate="tanh") if gelu else y
