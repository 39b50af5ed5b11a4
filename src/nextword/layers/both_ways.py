"""A recurrent layer over padded rows on a CPU, from one side or from both, forward and backward written out.

torch runs rows of unequal length on a CPU as slices of one packed tensor, and the gradient of a slice is a tensor of
zeros as large as the whole: T of them, T additions. Here rows stay padded, and each direction reads a row from its own
first token, so that padding only ever follows what is read:

    forwards      a b c d ·      h after each, the end at d
    backwards     d c b a ·      the same, the end at a; turned round again afterwards

Both directions take a step in one batched product, and no gradient of a matrix is made before all steps are through.
`packed` is torch's own kernel over the same weights: faster on a GPU, and what says whether this is right.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nextword.layers.recurrent import Memory

Steps = tuple[Tensor, ...]  # (T, K, B, D) each: h, and c of an LSTM


def each_row(layer: nn.RNNBase, x: Tensor, lengths: Tensor) -> tuple[Tensor, Memory]:
    """By the way that is quick where the rows are; with a projection, by torch's."""
    return (packed if x.is_cuda or layer.proj_size else both_ways)(layer, x, lengths.cpu())


def both_ways(layer: nn.RNNBase, x: Tensor, lengths: Tensor) -> tuple[Tensor, Memory]:
    """(B, S, I), (B,) → (B, S, K·D) with zeros at padding, and each row's memory at its end, (B, K·D) each."""
    ways = 2 if layer.bidirectional else 1
    there = torch.arange(x.shape[1]).unsqueeze(0) < lengths.unsqueeze(1)  # (B, S)
    fed = [x, backwards(x, lengths)][:ways]
    flat: Any = layer._flat_weights
    weights = [flat[4 * k : 4 * k + 4] for k in range(ways)]  # of each way
    products = [nn.functional.linear(each.transpose(0, 1), w[0], w[2]) for each, w in zip(fed, weights, strict=True)]
    matrix, bias = (torch.stack([w[i] for w in weights]) for i in (1, 3))
    steps: Steps = SCANS[layer.mode].apply(torch.stack(products, 1).to(matrix.dtype), matrix, bias)
    y = list((steps[0] * there.t()[:, None, :, None]).permute(1, 2, 0, 3))  # K times (B, S, D)
    y[1:] = [backwards(each, lengths) for each in y[1:]]
    at = (lengths - 1).view(1, 1, -1, 1).expand(1, *steps[0].shape[1:])
    ends = tuple(each.gather(0, at)[0].transpose(0, 1).flatten(1) for each in steps)
    return torch.cat(y, -1), ends


def packed(layer: nn.RNNBase, x: Tensor, lengths: Tensor) -> tuple[Tensor, Memory]:
    """The same by torch's kernel, which is what a GPU is fast with."""
    y, end = layer(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    y, _ = pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])
    ends = end if isinstance(end, tuple) else (end,)
    return y, tuple(m.transpose(0, 1).flatten(1) for m in ends)  # both directions side by side


def backwards(x: Tensor, lengths: Tensor) -> Tensor:
    """(B, S, …), each row's first `length` entries the other way round; padding stays where it is."""
    at = torch.arange(x.shape[1], device=x.device)
    back = lengths.unsqueeze(1) - 1 - at
    at = torch.where(back >= 0, back, at)
    return x.gather(1, at.view(*at.shape, *[1] * (x.dim() - 2)).expand(x.shape))


class _BidirectionalGRU(torch.autograd.Function):
    """r, z = σ(a), σ(b)    n = tanh(c + r · u)    h' = n + z (h − n), where a, b, c and u are parts of products."""

    @staticmethod
    def forward(ctx: Any, products: Tensor, matrix: Tensor, bias: Tensor) -> Any:
        steps, ways, rows, gates = products.shape
        width, turned, bias = gates // 3, matrix.transpose(1, 2).contiguous(), bias.unsqueeze(1)
        h = products.new_zeros(steps + 1, ways, rows, width)  # before the first step, and after each
        old, both, candidate = (products.new_empty(steps, ways, rows, n * width) for n in (3, 2, 1))
        for t in range(steps):
            torch.baddbmm(bias, h[t], turned, out=old[t])
            torch.add(products[t, ..., : 2 * width], old[t, ..., : 2 * width], out=both[t]).sigmoid_()
            reset, update = both[t].chunk(2, -1)
            n = torch.addcmul(products[t, ..., 2 * width :], reset, old[t, ..., 2 * width :], out=candidate[t]).tanh_()
            torch.addcmul(n, update, h[t] - n, out=h[t + 1])
        ctx.save_for_backward(matrix, h, both, candidate, old)
        return (h[1:],)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor) -> Any:
        matrix, h, both, candidate, old = ctx.saved_tensors
        steps, ways, rows, width = candidate.shape
        (reset, update), old = both.chunk(2, -1), old[..., 2 * width :]
        da = given.new_empty(steps, ways, rows, 3 * width)  # of the products
        # What needs no step to be known: how a change of h' comes through each gate
        by_candidate = (1 - update) * (1 - candidate * candidate)
        by_update = (h[:-1] - candidate) * update * (1 - update)
        by_reset = old * reset * (1 - reset)
        ds = torch.empty_like(da)  # of U h + b
        dh = torch.zeros_like(h[0])
        for t in range(steps - 1, -1, -1):
            dh = dh + given[t]
            dn = torch.mul(dh, by_candidate[t], out=da[t, ..., 2 * width :])
            torch.mul(dn, by_reset[t], out=ds[t, ..., :width])
            torch.mul(dh, by_update[t], out=ds[t, ..., width : 2 * width])
            torch.mul(dn, reset[t], out=ds[t, ..., 2 * width :])
            dh = torch.baddbmm(dh * update[t], ds[t], matrix)
        da[..., : 2 * width] = ds[..., : 2 * width]
        return da, *_of_weights(ds, h[:-1])


class _BidirectionalLSTM(torch.autograd.Function):
    """i, f, o = σ(·)    g = tanh(·)    c' = f c + i g    h' = o tanh(c')."""

    @staticmethod
    def forward(ctx: Any, products: Tensor, matrix: Tensor, bias: Tensor) -> Any:
        steps, ways, rows, gates = products.shape
        width, turned = gates // 4, matrix.transpose(1, 2).contiguous()
        products = products + bias.unsqueeze(1)
        h, c = (products.new_zeros(steps + 1, ways, rows, width) for _ in range(2))
        acts, squashed = torch.empty_like(products), torch.empty_like(h[1:])
        for t in range(steps):
            a = torch.baddbmm(products[t], h[t], turned)
            g = a[..., 2 * width : 3 * width].tanh()
            torch.sigmoid(a, out=acts[t])
            acts[t, ..., 2 * width : 3 * width] = g
            i, f, g, o = acts[t].chunk(4, -1)
            torch.addcmul(f * c[t], i, g, out=c[t + 1])
            torch.tanh(c[t + 1], out=squashed[t])
            torch.mul(o, squashed[t], out=h[t + 1])
        ctx.save_for_backward(matrix, h, c, acts, squashed)
        return h[1:], c[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor, given_c: Tensor) -> Any:
        matrix, h, c, acts, squashed = ctx.saved_tensors
        i, f, g, o = acts.chunk(4, -1)
        by_c = o * (1 - squashed * squashed)  # how a change of h' comes to c'
        # how a change of c', or of h' at the last gate, comes through each gate
        gates = torch.cat([g * i * (1 - i), c[:-1] * f * (1 - f), i * (1 - g * g), squashed * o * (1 - o)], -1)
        da, width = torch.empty_like(acts), h.shape[-1]
        dh, dc = torch.zeros_like(h[0]), torch.zeros_like(h[0])
        for t in range(len(acts) - 1, -1, -1):
            dh = dh + given[t]
            dc = torch.addcmul(dc + given_c[t], dh, by_c[t])
            torch.mul(torch.cat([dc, dc, dc, dh], -1), gates[t], out=da[t])
            dh = torch.bmm(da[t], matrix)
            dc = dc * acts[t, ..., width : 2 * width]
        return da, *_of_weights(da, h[:-1])


def _of_weights(ds: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """(T, K, B, G), (T, K, B, D) → the gradients of matrix (K, G, D) and bias (K, G)."""
    ds, h = (each.transpose(0, 1).flatten(1, 2) for each in (ds, h))
    return ds.transpose(1, 2) @ h, ds.sum(1)


SCANS: dict[str, Any] = {"GRU": _BidirectionalGRU, "LSTM": _BidirectionalLSTM}
