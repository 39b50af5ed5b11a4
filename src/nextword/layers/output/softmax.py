"""Full softmax, with its own matrix or the embedding's, and a fast cross-entropy for large vocabularies.

    z = W h + b        p(w) = exp z_w / Σ_v exp z_v        nll = log Σ_v exp z_v − z_w

With a large vocabulary this is most of a language model's work, and the naive way, which writes all (N, V) logits and
reads them again and again, spends half its time on memory. Here logits live in a buffer of a few hundred rows that is
used over and over, and the gradient is computed while they are there:

    rows of h ──▶ logits ──▶ probabilities p, in place ──▶ dL/dh = (p − 1_w) W      dL/dW += (p − 1_w)ᵀ h
                     └──────────── the same (rows, V) buffer, chunk after chunk ────────────┘

`linear_cross_entropy` and `total_cross_entropy` choose: torch's own functions for a few logits (the reference,
`_plain`), chunks otherwise, and in bf16 training on a GPU one Triton kernel (`_OnePass`). `FullSoftmax` has its own
output matrix, `TiedSoftmax` uses the embedding's (Press & Wolf 2017; Inan et al. 2017).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nextword.core.types import IGNORE
from nextword.kernels import triton_kernels as kernels
from nextword.layers.output.base import Readout

# Logits in memory at once. With fewer rows per chunk, products read W more often than needed; with more, logits leave
# the cache between passes. Flat between 4 and 12 million on a machine with 48 MB of cache. With very few rows, reading
# W costs more than leaving the cache: 500,000 words, 16 rows at a time, take almost twice as long.
HELD = {"cpu": 1 << 23, "cuda": 1 << 28}
MIN_ROWS = 64  # per chunk
HALF = 1 << 30  # 16-bit logits in memory at once on a GPU

# Up to so many logits torch's own functions are as fast. On a GPU, chunks save memory, not time.
PLAIN = {"cpu": 1 << 17, "cuda": 1 << 28}

TINY = 1e-30  # below this, the logarithm of a float32 probability loses digits and finally becomes infinite

Bias = Tensor | None


def linear_cross_entropy(h: Tensor, weight: Tensor, bias: Bias, targets: Tensor, precision: str = "fp32") -> Tensor:
    """−log softmax(h Wᵀ + b)[target] of each row, (N, D), (N,) → (N,); 0 where the target is IGNORE.

    Any gradient may flow back, so the backward pass computes the logits again. If only the sum is wanted,
    `total_cross_entropy` needs three large products instead of four.
    """
    narrow = _narrow(h, precision)
    if _is_small(h, weight):
        return _plain(h, weight, bias, targets, narrow, "none")
    if _needs_grad(h, weight, bias):
        return _Each.apply(h, weight, bias, targets, narrow)
    return _sweep(h, weight, bias, targets, narrow)[0]


def total_cross_entropy(h: Tensor, weight: Tensor, bias: Bias, targets: Tensor, precision: str = "fp32") -> Tensor:
    """The sum of `linear_cross_entropy`, a scalar whose gradient is computed along with it, in the forward pass."""
    narrow = _narrow(h, precision)
    if narrow and h.is_cuda and _needs_grad(h, weight, bias) and kernels.available():
        return _OnePass.apply(h, weight, bias, targets)
    if _is_small(h, weight):
        return _plain(h, weight, bias, targets, narrow, "sum")
    if _needs_grad(h, weight, bias):
        return _Total.apply(h, weight, bias, targets, narrow)
    return _sweep(h, weight, bias, targets, narrow)[0].sum()


class LinearReadout(Readout):
    """z = matrix · project(h) + bias. Products are computed in the `precision` "fp32" or "bf16"."""

    bias: nn.Parameter | None
    precision: str

    @property
    def matrix(self) -> Tensor:  # (V, D)
        raise NotImplementedError

    def project(self, h: Tensor) -> Tensor:
        return h

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        return linear_cross_entropy(self.project(h), self.matrix, self.bias, targets, self.precision)

    def total(self, h: Tensor, targets: Tensor) -> Tensor:
        return total_cross_entropy(self.project(h), self.matrix, self.bias, targets, self.precision)

    def vectors_of(self, ids: Tensor) -> Tensor:
        """Rows of the matrix: (K,) → (K, D)."""
        return F.embedding(ids, self.matrix)

    @property
    def output_bias(self) -> Tensor | None:
        return self.bias

    def logits(self, h: Tensor) -> Tensor:
        return F.linear(self.project(h), self.matrix, self.bias)

    def log_probs(self, h: Tensor) -> Tensor:
        z = self.logits(h)
        return F.log_softmax(z, -1, dtype=torch.promote_types(z.dtype, torch.float32))


class FullSoftmax(LinearReadout):
    """A softmax with its own output matrix."""

    def __init__(self, width: int, size: int, bias: bool = True, precision: str = "fp32") -> None:
        super().__init__()
        self.precision = precision
        self.weight = nn.Parameter(torch.empty(size, width))
        self.bias = nn.Parameter(torch.empty(size)) if bias else None
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(width**-0.5), width**-0.5)  # as nn.Linear

    @property
    def matrix(self) -> Tensor:
        return self.weight


class TiedSoftmax(LinearReadout):
    """A softmax whose matrix is the embedding's. If their widths differ, `projection` maps h to the embedding's.

    `TiedSoftmax(nn.Embedding(V, 128), projection=nn.Linear(768, 128))`. Do not assign `readout.weight =
    embedding.weight`: that registers one tensor under two names, and saving refuses it.
    """

    def __init__(
        self, embedding: nn.Embedding, bias: bool = True, projection: nn.Linear | None = None, precision: str = "fp32"
    ) -> None:
        super().__init__()
        self.precision = precision
        self.tied = (embedding,)  # in a tuple, so that the embedding is registered with the network only
        self.projection = projection
        self.bias = nn.Parameter(torch.zeros(embedding.num_embeddings)) if bias else None

    @property
    def matrix(self) -> Tensor:
        return self.tied[0].weight

    def project(self, h: Tensor) -> Tensor:
        return h if self.projection is None else self.projection(h)


# ------------------------------------------------------------------------------------------------ chunk by chunk


def _sweep(
    h: Tensor,
    weight: Tensor,
    bias: Bias,
    targets: Tensor,
    narrow: bool,
    factor: Tensor | float | None = None,  # (N,), or one number
    wanted: tuple[bool, ...] = (False, False, False),
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """nll of each row and, given a factor, the wanted gradients of Σ factor · nll for h, weight and bias."""
    with torch.no_grad(), torch.autocast(h.device.type, enabled=False):
        exact = torch.promote_types(weight.dtype, torch.float32)
        operand = torch.bfloat16 if narrow else exact
        x, w, b = h.to(operand), weight.to(operand), None if bias is None else bias.to(exact)
        ignored = targets == IGNORE
        targets = targets.masked_fill(ignored, 0)  # any word: its contribution is removed below
        nll = h.new_empty(len(h), dtype=exact)
        new = h.new_empty if len(h) else h.new_zeros
        grad_h = new(h.shape, dtype=exact) if wanted[0] else None
        grad_weight = new(weight.shape, dtype=exact) if wanted[1] else None
        grad_bias = new(len(weight), dtype=exact) if wanted[2] else None
        if factor is not None:
            factor = (~ignored * factor).to(exact).unsqueeze(1)
        for part, z in _chunks(len(h), len(weight), exact, h.device):
            target = targets[part].unsqueeze(1)  # (rows, 1)
            _product(x[part], w.t(), z)
            if b is not None:
                z.add_(b)
            torch.softmax(z, 1, out=z)
            nll[part] = _nll(z, x[part], w, b, target).squeeze(1)
            if factor is None:
                continue
            z.scatter_add_(1, target, z.new_full(target.shape, -1))  # dL/dz = factor · (p − 1_w)
            p, f = z.to(operand), factor[part]  # the factor is applied to the narrow, (rows, D), side of each product
            keep = 0.0 if part.start == 0 else 1.0  # the first chunk has nothing to add to
            if grad_h is not None:
                _product(p, w, grad_h[part])
                grad_h[part] *= f
            if grad_weight is not None:
                _product(p.t(), (h[part] * f).to(operand), grad_weight, keep)
            if grad_bias is not None:
                grad_bias.addmv_(z.t(), f.squeeze(1), beta=keep)
        return nll.masked_fill_(ignored, 0), grad_h, grad_weight, grad_bias


def _nll(p: Tensor, x: Tensor, w: Tensor, b: Bias, target: Tensor) -> Tensor:
    """−log p[target], (rows, 1), also where p underflows: then from the most likely word, which does not.

    log p_t = log p_top − (z_top − z_t), with both logits computed again: one pass over p instead of two over z.
    """
    chosen = p.gather(1, target)
    nll = -chosen.log()
    if p.is_cuda:
        rows = torch.arange(len(p), device=p.device)  # all of them: selecting those that need it would stall the GPU
    else:
        rows = (chosen < TINY).squeeze(1).nonzero().squeeze(1)
    if len(rows):
        likeliest, top = p[rows].max(1, keepdim=True)
        z_top, z_t = (
            (F.embedding(at.squeeze(1), w).to(p.dtype) * x[rows]).sum(1, keepdim=True) + (0 if b is None else b[at])
            for at in (top, target[rows])
        )
        nll[rows] = z_top - z_t - likeliest.log()
    return nll


def _chunks(rows: int, size: int, dtype: torch.dtype, device: torch.device) -> Iterator[tuple[slice, Tensor]]:
    """Slices of the rows, of nearly equal size, and a buffer for their logits, the same each time."""
    most = max(MIN_ROWS, HELD.get(device.type, HELD["cuda"]) // size)
    chunks = -(-rows // most)
    each = -(-rows // max(chunks, 1))
    buffer = torch.empty(each * size, dtype=dtype, device=device)
    for first in range(0, rows, max(each, 1)):
        n = min(each, rows - first)
        yield slice(first, first + n), buffer[: n * size].view(n, size)


def _product(a: Tensor, b: Tensor, out: Tensor, keep: float = 0.0) -> None:
    """out = keep · out + a b, where a and b may be narrower than out."""
    if a.dtype == out.dtype:
        torch.addmm(out, a, b, beta=keep, out=out) if keep else torch.mm(a, b, out=out)
    elif keep:
        out.mul_(keep).add_(torch.mm(a, b))
    else:
        out.copy_(torch.mm(a, b))


class _Total(torch.autograd.Function):
    """A scalar: its gradient is known up to a factor, so the forward pass computes it and the backward scales it."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Bias, targets: Tensor, narrow: bool) -> Tensor:
        nll, *grads = _sweep(h, weight, bias, targets, narrow, 1.0, ctx.needs_input_grad[:3])
        ctx.grads = _like(grads, (h, weight, bias))
        return nll.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        return *(None if g is None else g.mul_(grad) for g in _take_gradients(ctx)), None, None


class _OnePass(torch.autograd.Function):
    """The total on a GPU in bf16: sizes padded to multiples of 64 for fast products, and one kernel for the rest.

    A column of ones appended to h makes the bias gradient part of the weight gradient. Chunks have HALF logits.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Bias, targets: Tensor) -> Tensor:
        with torch.autocast("cuda", enabled=False):
            size, width = weight.shape
            w = torch.empty(_round_up(size, 64), width, dtype=torch.bfloat16, device=weight.device)
            w[:size] = weight
            w[size:] = 0
            plus = None if bias is None else bias.float()
            chunks = -(-len(h) * len(w) // HALF) or 1
            grad_h = torch.empty_like(h)
            total = torch.zeros((), dtype=torch.float32, device=h.device)
            summed: Tensor | None = None
            for rows, rows_targets, rows_grad in zip(*(t.chunk(chunks) for t in (h, targets, grad_h)), strict=True):
                x = rows.to(torch.bfloat16)
                if bias is not None:
                    x = F.pad(x, (0, _round_up(width + 1, 8) - width))
                    x[:, width] = 1
                z = torch.mm(x[:, :width], w.t())
                total += kernels.softmax_gradient(z, plus, rows_targets, size).sum()
                if rows_grad.dtype == z.dtype:
                    torch.mm(z, w, out=rows_grad)
                else:
                    rows_grad.copy_(torch.mm(z, w))
                summed = _accumulate(summed, z.t(), x)
            if summed is None:  # no rows
                summed = weight.new_zeros(size, width + 1)
            ctx.grads = [grad_h, summed[:size, :width], None if bias is None else summed[:size, width]]
            ctx.kind = weight.dtype
            return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        grad_h, *others = _take_gradients(ctx)
        return grad_h.mul_(grad), *(None if g is None else g.mul_(grad).to(ctx.kind) for g in others), None


def _take_gradients(ctx: Any) -> list[Any]:
    """The gradients that the forward pass computed; they can be used once."""
    grads, ctx.grads = ctx.grads, None
    if grads is None:
        raise RuntimeError(
            "total() was differentiated twice, but its gradient can be used once only. Use nll(…).sum() instead."
        )
    return list(grads)


def _accumulate(total: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
    """total + a b in 32 bits, for a and b in 16 bits."""
    if not a.is_cuda:  # torch has no such product there
        part = torch.mm(a, b).float()
        return part if total is None else total.add_(part)
    if total is None:
        return torch.mm(a, b, out_dtype=torch.float32)
    return torch.addmm(total, a, b, out_dtype=torch.float32)


def _round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


class _Each(torch.autograd.Function):
    """A number per row, each with its own gradient: nothing is stored, and the backward pass computes logits again."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Bias, targets: Tensor, narrow: bool) -> Tensor:
        ctx.save_for_backward(h, weight, bias, targets)
        ctx.narrow = narrow
        return _sweep(h, weight, bias, targets, narrow)[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        h, weight, bias, targets = ctx.saved_tensors
        _, *grads = _sweep(h, weight, bias, targets, ctx.narrow, grad, ctx.needs_input_grad[:3])
        return *_like(grads, (h, weight, bias)), None, None


def _like(grads: list[Bias], inputs: tuple[Bias, ...]) -> list[Bias]:
    return [g if g is None or x is None else g.to(x.dtype) for g, x in zip(grads, inputs, strict=True)]


def _needs_grad(*tensors: Bias) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _narrow(h: Tensor, precision: str) -> bool:
    """Whether products are computed in bf16."""
    return precision == "bf16" or torch.is_autocast_enabled(h.device.type)


def _is_small(h: Tensor, weight: Tensor) -> bool:
    return len(h) * len(weight) <= PLAIN.get(h.device.type, PLAIN["cuda"])


def _plain(h: Tensor, weight: Tensor, bias: Bias, targets: Tensor, narrow: bool, reduction: str) -> Tensor:
    with torch.autocast(h.device.type, torch.bfloat16, enabled=narrow):
        z = F.linear(h.to(weight.dtype), weight, bias)
    exact = torch.promote_types(z.dtype, torch.float32)
    return F.cross_entropy(z.to(exact), targets, ignore_index=IGNORE, reduction=reduction)
