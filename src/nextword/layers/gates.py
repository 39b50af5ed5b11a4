"""The gates of one step of a GRU or an LSTM as one operation each, its gradient written out.

recurrent.py has the definition, `gru_gates` and `lstm_gates`, of which autograd makes twenty small steps. A decoder
that goes step by step, since it looks at its source between two, feels each of them. These give the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nextword.layers.recurrent import Memory

aten = torch.ops.aten


def gru(from_input: Tensor, from_state: Tensor, memory: Memory) -> Memory:
    """(B, 3 D) each, and h (B, D)."""
    return (_GRU.apply(from_input, from_state, memory[0]),)


def lstm(from_input: Tensor, from_state: Tensor, memory: Memory) -> Memory:
    """(B, 4 D) each, and h and c (B, D)."""
    return _LSTM.apply(from_input, from_state, memory[1])


QUICK = {"gru": gru, "lstm": lstm}


class _GRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, s: Tensor, h: Tensor) -> Tensor:
        width = h.shape[-1]
        x = x.to(s.dtype)
        both = (x[..., : 2 * width] + s[..., : 2 * width]).sigmoid_()
        reset, update = both.chunk(2, -1)
        n = torch.addcmul(x[..., 2 * width :], reset, s[..., 2 * width :]).tanh_()
        ctx.save_for_backward(both, n, s, h)
        return torch.addcmul(n, update.to(n.dtype), h.to(n.dtype) - n)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor) -> Any:
        both, n, s, h = ctx.saved_tensors
        reset, update = both.chunk(2, -1)
        kept = dh * update
        dn = aten.tanh_backward(dh - kept, n)
        dz = aten.sigmoid_backward(dh * (h - n), update)
        dr = aten.sigmoid_backward(dn * s[..., 2 * n.shape[-1] :], reset)
        return torch.cat([dr, dz, dn], -1), torch.cat([dr, dz, dn * reset], -1), kept.to(h.dtype)


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, s: Tensor, c: Tensor) -> Any:
        a = x.to(s.dtype) + s
        i, f, g, o = a.chunk(4, -1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        new = torch.addcmul(f.to(c.dtype) * c, i.to(c.dtype), g.to(c.dtype))
        bent = torch.tanh(new)
        ctx.save_for_backward(i, f, g, o, c, bent)
        return o * bent.to(o.dtype), new

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor, dc: Tensor) -> Any:
        i, f, g, o, c, bent = ctx.saved_tensors
        dc = dc + aten.tanh_backward(dh * o, bent)
        parts = (
            aten.sigmoid_backward(dc * g, i),
            aten.sigmoid_backward(dc * c, f),
            aten.tanh_backward(dc * i, g),
            aten.sigmoid_backward(dh * bent, o),
        )
        da = torch.cat(parts, -1).to(o.dtype)
        return da, da, (dc * f).to(c.dtype)
