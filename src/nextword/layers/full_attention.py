"""Self-attention in both directions: every token asks all tokens of its text, softmax(Q Kᵀ / √d) V, in several heads.

A batch is laid out in one of two ways, and everything but attention works on (B, T, D) whichever it is:

    padded   a a a a · ·      packed   a a a a b b b c c c c c c       starts = 0 4 7 13
             b b b · · ·               one row without a gap; a, b and c do not see each other
             c c c c c c

A layout says who sees whom. It is made once a batch, by `layout_of`, and serves all layers. No way to attend over
packed texts writes an (N, N) matrix: a GPU has a kernel for ragged rows in 16 bits; elsewhere neighbours of one length
are a block, which is a mere view; and where that would mean many small calls, texts of nearly one length are brought
together and padded a little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.contract import Inputs
from nextword.layers.products import Product

varlen_attn: Any
try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # a torch before 2.10
    varlen_attn = None

# What one more call of attention costs, in numbers copied instead and in products computed instead. Measured on a CPU;
# a GPU copies so fast that there calls are always the dearer.
COPIED = 6_000
COMPUTED = 300_000


class Layout(Protocol):
    def attend(self, joined: Tensor, heads: int, drop: float) -> Tensor: ...  # (B, T, 3 D) → (B, T, D)


class FullAttention(nn.Module):
    """(B, T, width) → (B, T, width). `join` makes queries, keys and values at once; `out` brings the heads together."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.join = Product(width, 3 * width, bias=bias)
        self.out = Product(width, width, bias=bias)

    def forward(self, x: Tensor, layout: Layout, at: Tensor | None = None) -> Tensor:
        """With `at` (K,), flat positions of the batch's B·T, what is asked from these alone: (K, width)."""
        y = layout.attend(self.join(x), self.heads, self.dropout if self.training else 0.0)
        return self.out(taken(y, at))


def taken(x: Tensor, at: Tensor | None) -> Tensor:
    """(B, T, D) → (K, D) at these flat positions; without any, x as it is."""
    return x if at is None else x.reshape(-1, x.shape[-1]).index_select(0, at)


def layout_of(inputs: Inputs, width: int, heads: int, longest: int, dtype: torch.dtype = torch.float32) -> Layout:
    """How a batch lies. `longest` bounds the length of a text where asking for it would stall a GPU: the lower, the
    fewer places the kernel for ragged rows looks at in vain.
    """
    if inputs.starts is None:
        padding = inputs.padding
        if padding is None or (not padding.is_cuda and bool(padding.all())):
            return Padded(None)
        return Padded(padding[:, None, None, :])
    starts = inputs.starts
    if torch.is_autocast_enabled(starts.device.type):
        dtype = torch.get_autocast_dtype(starts.device.type)
    each = width // heads
    if starts.is_cuda and varlen_attn is not None and dtype.itemsize == 2 and each % 8 == 0 and each <= 256:
        return Ragged(starts.to(torch.int32), longest)
    return _in_pieces(starts, width)


# ------------------------------------------------------------------------------------------------ layouts


@dataclass(frozen=True)
class Padded:
    """Texts one below the other."""

    mask: Tensor | None  # (B, 1, 1, T) True at the keys that are there; None: all are

    def attend(self, joined: Tensor, heads: int, drop: float) -> Tensor:
        batch, steps, _ = joined.shape
        return _attend(joined, batch, steps, heads, drop, self.mask).view(batch, steps, joined.shape[-1] // 3)


@dataclass(frozen=True)
class Ragged:
    """Texts end to end on a GPU, in 16 bits: one kernel reads them as they lie, and nothing is known of them here."""

    starts: Tensor  # (n + 1,) int32
    longest: int  # no text has more tokens than these

    def attend(self, joined: Tensor, heads: int, drop: float) -> Tensor:
        batch, total, width = joined.shape
        q, k, v = joined.view(total, 3, heads, -1).unbind(1)  # each (N, H, K)
        ends, most = self.starts, self.longest
        if drop:  # the same kernel by its inner name, for the public one does not drop
            flash = torch.ops.aten._flash_attention_forward
            y = flash(q, k, v, ends, ends, most, most, drop, False, False)[0]
        else:
            y = varlen_attn(q, k, v, ends, ends, most, most)
        return y.reshape(batch, total, width // 3)


@dataclass(frozen=True)
class Runs:
    """Texts end to end, in blocks of neighbours that have one length: views, so nothing is copied but the result."""

    blocks: tuple[tuple[int, int], ...]  # how many texts, and their length

    def attend(self, joined: Tensor, heads: int, drop: float) -> Tensor:
        if len(self.blocks) == 1:
            return _attend(joined, *self.blocks[0], heads, drop).view(*joined.shape[:2], -1)
        parts = joined.squeeze(0).split([texts * length for texts, length in self.blocks])
        done = [_attend(part, *block, heads, drop) for part, block in zip(parts, self.blocks, strict=True)]
        return torch.cat(done).unsqueeze(0)


@dataclass(frozen=True)
class Groups:
    """Texts end to end, brought together by length, the shorter of a group padded at their end.

    row     a a a a b b c c c       slots   a a a a | c c c · | b b
    """

    take: Tensor  # (slots,) which token of the row lies in a slot; where there is none, its text's first
    back: Tensor  # (N,) in which slot a token of the row lies
    blocks: tuple[tuple[int, int], ...]  # how many texts, and their length
    masks: tuple[Tensor | None, ...]  # (texts, 1, 1, length)

    def attend(self, joined: Tensor, heads: int, drop: float) -> Tensor:
        slots = _Brought.apply(joined.squeeze(0), self.take, self.back)
        parts = slots.split([texts * length for texts, length in self.blocks])
        done = [
            _attend(part, *block, heads, drop, mask)
            for part, block, mask in zip(parts, self.blocks, self.masks, strict=True)
        ]
        return torch.cat(done).index_select(0, self.back).unsqueeze(0)


class _Brought(torch.autograd.Function):
    """Rows into slots. Slots that only fill up a group are masked, so that nothing flows back out of them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, take: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        return x.index_select(0, take)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (back,) = ctx.saved_tensors
        return grad.index_select(0, back), None, None


def _attend(
    joined: Tensor, texts: int, length: int, heads: int, drop: float, mask: Tensor | None = None
) -> Tensor:  # (texts · length, 3 D) → (texts · length, D)
    width = joined.shape[-1] // 3
    q, k, v = joined.view(texts, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)  # each (texts, H, length, K)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=drop)
    return y.transpose(1, 2).reshape(texts * length, width)


# ------------------------------------------------------------------------------------------------ which pieces


def _in_pieces(starts: Tensor, width: int) -> Layout:
    """Runs where they are few for what there is to copy, or else groups."""
    ends = starts.tolist()
    lengths = [b - a for a, b in pairwise(ends)]
    runs = tuple((len(list(same)), length) for length, same in groupby(n for n in lengths if n))
    if not runs:  # no token at all
        return Padded(None)
    if len(runs) == 1 or (not starts.is_cuda and len(runs) * COPIED <= ends[-1] * width):
        return Runs(runs)
    return _grouped(ends, lengths, width, starts.device)


def _grouped(starts: Sequence[int], lengths: Sequence[int], width: int, device: torch.device) -> Groups:
    """From the longest text down: a group ends where its padding would cost more than another call."""
    order = sorted((i for i, n in enumerate(lengths) if n), key=lambda i: -lengths[i])
    spare, wasted = COMPUTED / width, 0.0
    groups: list[list[int]] = []
    for i in order:
        if groups:
            wasted += lengths[groups[-1][0]] ** 2 - lengths[i] ** 2
        if not groups or wasted > spare:
            groups.append([])
            wasted = 0.0
        groups[-1].append(i)
    first, count = torch.tensor(starts[:-1]), torch.tensor(lengths)
    take, back, masks = [], torch.empty(starts[-1], dtype=torch.long), []
    slots = 0
    for group in groups:
        longest = lengths[group[0]]
        texts, at = torch.tensor(group), torch.arange(longest)
        there = at < count[texts].unsqueeze(1)  # (texts, length)
        tokens = first[texts].unsqueeze(1) + at * there
        back[tokens[there]] = slots + there.flatten().nonzero().squeeze(1)
        take.append(tokens.flatten())
        masks.append(None if lengths[group[-1]] == longest else there[:, None, None, :].to(device))
        slots += tokens.numel()
    blocks = tuple((len(group), lengths[group[0]]) for group in groups)
    return Groups(torch.cat(take).to(device), back.to(device), blocks, tuple(masks))
