"""Attention: softmax(Q Kᵀ / √K) V in several heads, in the five forms that the papers here need.

    CausalAttention          each token attends to those before it, with a KV cache            GPT
    BidirectionalAttention   each token attends to its whole text, padded or packed            BERT
    PrefixAttention          any mask, with a KV cache                                         GLM
    RelativeAttention        scores by relative position, in two streams                       Transformer-XL, XLNet
    SourceAttention          a recurrent decoder attends to a source                           seq2seq
    DistanceBias             a learned bias per distance bucket                                T5

All but the last two call torch's scaled_dot_product_attention, as T5 does. It picks a fused kernel, avoids (T, T)
matrices where it can, and returns no weights. `AttentionRecorder` computes them beside it, for whoever wants to look.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from nextword.core.errors import invalid
from nextword.core.types import Inputs
from nextword.layers.kv_cache import CacheUpdate, KeyValues

# ------------------------------------------------------------------------------------------------ left to right


class CausalAttention(nn.Module):
    """(B, T, width) → (B, T, width). `join` computes queries, keys and values; `out` merges the heads.

    With a `band` b, a token attends to itself and the b − 1 tokens before it (locally banded layers, Child et al.
    2019).
    """

    def __init__(self, width: int, heads: int, dropout: float = 0.0, band: int = 0, bias: bool = True) -> None:
        super().__init__()
        self.heads, self.dropout, self.band = heads, dropout, band
        self.join = nn.Linear(width, 3 * width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(
        self, x: Tensor, update: CacheUpdate | None, cache: KeyValues | None
    ) -> tuple[Tensor, KeyValues | None]:
        """Attend to all tokens before. `update` appends to this layer's `cache`; None: nothing is cached."""
        q, k, v = self.join(x).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        drop = self.dropout if self.training else 0.0
        if update is None or not update.most:
            y = self._attend(q, k, v, drop)
            cache = None if update is None else (k, v)
        else:
            old_k, old_v = cache if cache is not None else (None, None)
            cache = (update.append(old_k, k), update.append(old_v, v))
            y = self._attend_cached(q, cache, update, drop)
        return self.out(y.transpose(1, 2).reshape(x.shape)), cache

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, drop: float) -> Tensor:
        if self.band and q.shape[2] > self.band:
            return banded_attention(q, k, v, self.band, drop)
        return F.scaled_dot_product_attention(q, k, v, dropout_p=drop, is_causal=True)

    def _attend_cached(self, q: Tensor, cache: KeyValues, update: CacheUpdate, drop: float) -> Tensor:
        k, v = update.seen(cache)
        mask = update.attention_mask(self.band)
        if self.band and update.even:  # tokens before the band of the first new one need not be read
            first = max(0, update.most + 1 - self.band)
            k, v = k[:, :, first:], v[:, :, first:]
            mask = None if mask is None or update.steps == 1 else mask[:, first:]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=drop)


def banded_attention(q: Tensor, k: Tensor, v: Tensor, band: int, drop: float = 0.0) -> Tensor:
    """Attention to the last `band` tokens, over (B, H, T, K), in blocks: T · 2b products instead of T².

    keys     [ block 0 | block 1 | block 2 | block 3 ]
    queries              [ block 2 ] attends to ↑ 1 and 2
    """
    batch, heads, steps, width = q.shape
    blocks = -(-steps // band)
    q, k, v = (F.pad(t, (0, 0, 0, blocks * band - steps)).view(batch, heads, blocks, band, width) for t in (q, k, v))
    # each block of queries reads the previous block of keys and its own
    k, v = (torch.cat([F.pad(t, (0, 0, 0, 0, 1, 0))[:, :, :-1], t], 3) for t in (k, v))
    here = torch.arange(band, device=q.device).unsqueeze(1)
    there = torch.arange(2 * band, device=q.device) - band
    seen = (there <= here) & (there > here - band)
    first = seen & (there >= 0)  # nothing comes before the first block
    mask = torch.cat([first.unsqueeze(0), seen.expand(blocks - 1, -1, -1)])
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=drop)
    return y.reshape(batch, heads, blocks * band, width)[:, :, :steps]


def merge_blocks(weights: Tensor) -> Tensor:
    """The weights of `banded_attention`, (B, H, N, b, 2b) by block, as one matrix (B, H, N·b, N·b)."""
    batch, heads, blocks, band, _ = weights.shape
    wide = weights.new_zeros(batch, heads, blocks, band, (blocks + 1) * band)  # a block of nothing comes first
    for i in range(blocks):
        wide[:, :, i, :, i * band : (i + 2) * band] = weights[:, :, i]
    return wide[..., band:].flatten(2, 3)


# ------------------------------------------------------------------------------------------------ the weights


def attention_weights(
    q: Tensor, k: Tensor, mask: Tensor | None = None, is_causal: bool = False, scale: float | None = None
) -> Tensor:
    """softmax(Q Kᵀ · scale + mask), which scaled_dot_product_attention multiplies V by: (…, T, K), (…, S, K) → (T, S).

    The mask is True where a query may attend, or a number to add to the score. The default scale is 1 / √K.
    """
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1)


class AttentionRecorder(TorchFunctionMode):
    """Records the weights of all attention that this thread computes inside the block.

        with AttentionRecorder() as recorder:
            network.hidden(inputs, None)
        recorder.weights  # (B, H, T, S) of every call, in order

    Layers call their kernel as always, and know nothing of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[Tensor] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = kwargs or {}
        if func is F.scaled_dot_product_attention:
            q, k = args[:2]
            weights = attention_weights(
                q, k, options.get("attn_mask"), options.get("is_causal", False), options.get("scale")
            )
            self.weights.append(merge_blocks(weights) if weights.dim() == 5 else weights)
        return func(*args, **options)


# ------------------------------------------------------------------------------------------------ both directions

# A batch is laid out in one of two ways; everything but attention works on (B, T, D) either way:
#
#     padded   a a a a · ·      packed   a a a a b b b c c c c c c       starts = 0 4 7 13
#              b b b · · ·               one row without gaps; a, b and c do not see each other
#              c c c c c c
#
# A layout says who sees whom. `choose_layout` makes it once per batch, for all layers. No layout writes an (N, N)
# matrix for packed texts: a GPU has a kernel for ragged rows in 16 bits; elsewhere, texts of similar length are
# gathered and padded a little.

varlen_attn: Any
try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # torch before 2.10
    varlen_attn = None

CALL_COST = 300_000  # products that could be computed in the time of one more call of attention, on a CPU


class Layout(Protocol):
    def attend(self, joined: Tensor, heads: int, drop: float) -> Tensor: ...  # (B, T, 3 D) → (B, T, D)


class BidirectionalAttention(nn.Module):
    """(B, T, width) → (B, T, width). `join` computes queries, keys and values; `out` merges the heads."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.join = nn.Linear(width, 3 * width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor, layout: Layout, at: Tensor | None = None) -> Tensor:
        """With flat positions `at` (K,) of the batch's B·T, only those are returned: (K, width)."""
        y = layout.attend(self.join(x), self.heads, self.dropout if self.training else 0.0)
        return self.out(select_positions(y, at))


def select_positions(x: Tensor, at: Tensor | None) -> Tensor:
    """(B, T, D) → (K, D) at these flat positions; None: x itself."""
    return x if at is None else x.reshape(-1, x.shape[-1]).index_select(0, at)


def choose_layout(inputs: Inputs, width: int, heads: int, longest: int, dtype: torch.dtype = torch.float32) -> Layout:
    """The fastest layout of a batch. `longest` is an upper bound of a text's length, so that no GPU need be asked."""
    if inputs.starts is None:
        padding = inputs.token_mask
        if padding is None or (not padding.is_cuda and bool(padding.all())):
            return Padded(None)
        return Padded(padding[:, None, None, :])
    starts = inputs.starts
    if torch.is_autocast_enabled(starts.device.type):
        dtype = torch.get_autocast_dtype(starts.device.type)
    each = width // heads
    if starts.is_cuda and varlen_attn is not None and dtype.itemsize == 2 and each % 8 == 0 and each <= 256:
        return Ragged(starts.to(torch.int32), longest)
    return _group_by_length(starts, width)


@dataclass(frozen=True)
class Padded:
    """One text per row."""

    mask: Tensor | None  # (B, 1, 1, T) True at tokens; None: no padding

    def attend(self, joined: Tensor, heads: int, drop: float) -> Tensor:
        batch, steps, _ = joined.shape
        return _attend(joined, batch, steps, heads, drop, self.mask).view(batch, steps, joined.shape[-1] // 3)


@dataclass(frozen=True)
class Ragged:
    """Packed texts on a GPU in 16 bits: one kernel reads them, and their lengths stay on the GPU."""

    starts: Tensor  # (n + 1,) int32
    longest: int  # upper bound of a text's length

    def attend(self, joined: Tensor, heads: int, drop: float) -> Tensor:
        batch, total, width = joined.shape
        q, k, v = joined.view(total, 3, heads, -1).unbind(1)  # each (N, H, K)
        ends, most = self.starts, self.longest
        if drop:  # the same kernel by its internal name, because the public function has no dropout
            flash = torch.ops.aten._flash_attention_forward
            y = flash(q, k, v, ends, ends, most, most, drop, False, False)[0]
        else:
            y = varlen_attn(q, k, v, ends, ends, most, most)
        return y.reshape(batch, total, width // 3)


@dataclass(frozen=True)
class Groups:
    """Packed texts, grouped by length, the shorter ones of a group padded at their end.

    row     a a a a b b c c c       slots   a a a a | c c c · | b b
    """

    take: Tensor  # (slots,) the token in each slot; in padding, the first of its text
    back: Tensor  # (N,) the slot of each token
    blocks: tuple[tuple[int, int], ...]  # number of texts, and their padded length
    masks: tuple[Tensor | None, ...]  # (texts, 1, 1, length)

    def attend(self, joined: Tensor, heads: int, drop: float) -> Tensor:
        slots = joined.squeeze(0).index_select(0, self.take)
        parts = slots.split([texts * length for texts, length in self.blocks])
        done = [
            _attend(part, *block, heads, drop, mask)
            for part, block, mask in zip(parts, self.blocks, self.masks, strict=True)
        ]
        return torch.cat(done).index_select(0, self.back).unsqueeze(0)


def _attend(
    joined: Tensor, texts: int, length: int, heads: int, drop: float, mask: Tensor | None = None
) -> Tensor:  # (texts · length, 3 D) → (texts · length, D)
    width = joined.shape[-1] // 3
    q, k, v = joined.view(texts, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)  # each (texts, H, length, K)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=drop)
    return y.transpose(1, 2).reshape(texts * length, width)


def _group_by_length(row_starts: Tensor, width: int) -> Layout:
    """From the longest text to the shortest: a group ends where its padding would cost more than another call."""
    starts, device = row_starts.tolist(), row_starts.device
    lengths = [end - start for start, end in pairwise(starts)]
    if not any(lengths):
        return Padded(None)
    order = sorted((i for i, n in enumerate(lengths) if n), key=lambda i: -lengths[i])
    spare, wasted = CALL_COST / width, 0.0
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


# ------------------------------------------------------------------------------------------------ any mask


class PrefixAttention(nn.Module):
    """Self-attention under any mask, with a KV cache: (B, T, width) → (B, T, width).

    prefix   a a a          every token of it sees all of it
    after        b b b      each sees the prefix and what came before it
    """

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.join = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(
        self, x: Tensor, mask: Tensor | None, update: CacheUpdate | None, cache: KeyValues | None
    ) -> tuple[Tensor, KeyValues | None]:
        """`mask` (…, T, S) is True where a token may attend, over all S tokens so far; None: everywhere."""
        q, k, v = self.join(x).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if update is not None:
            old_k, old_v = cache if cache is not None else (None, None)
            cache = (update.append(old_k, k), update.append(old_v, v))
            k, v = update.seen(cache)
        drop = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=drop)
        return self.out(y.transpose(1, 2).reshape(x.shape)), cache


# ------------------------------------------------------------------------------------------------ relative positions

# Transformer-XL (Dai et al. 2019, section 3.3) under the orders of XLNet (Yang et al. 2019, sections 2.3 to 2.5). A
# query at i scores a key at j by its content, by the distance, and by whether both are in the same segment:
#
#     ( (q_i + u)·k_j  +  (q_i + w)·W r_{i−j}  +  (q_i + s)·e_{same or other} ) / √K      softmax over the j that i sees
#
# Rows that ask are of two kinds. Both go through the same weights, and both attend to the content of tokens only:
#
#     content   starts as the token itself, sees itself and what comes before it in the order
#     query     starts as one learned vector, knows its position but not its token, sees what comes before it
#
#                 known   [ memory | content of the segment ]                           S = M + T
#     rows that ask                [ content, T rows ][ queries, P rows ]               Q = T + P

NEVER = -1e9  # a score that gets no weight; finite, so that a row that sees nothing is not NaN


def order_mask(ranks: Tensor) -> Tensor:
    """(B, T) → (B, T, T), True where the token at i is predicted, or read, from the one at j.

    A rank says when a token's turn comes. Tokens with a negative rank are given: all see them, and they see only each
    other.

    order 2 0 3 1, so ranks 1 3 0 2        j  0 1 2 3        rank 2 is given: −1     j  0 1 2 3
                                      i = 0   . . # .        and ranks 0 2 −1 1  0   . . # .
                                          1   # . # #                            1   # . # #
                                          2   . . . .                            2   . . # .
                                          3   # . # .                            3   # . # .
    """
    i, j = ranks.unsqueeze(-1), ranks.unsqueeze(-2)
    return (j < i) | (j < 0)


def distance_encodings(distances: Tensor, width: int) -> Tensor:
    """(R,) → (R, width): sines, then cosines, of each distance at wavelengths from 2π to 10000 · 2π."""
    frequencies = 10000.0 ** (-torch.arange(0, width, 2, device=distances.device, dtype=torch.float32) / width)
    angles = distances.float().unsqueeze(1) * frequencies
    return torch.cat([angles.sin(), angles.cos()], 1)


@dataclass(frozen=True)
class RelativeView:
    """What each row that asks sees of what is known; the same for all layers."""

    seen: Tensor  # (B or 1, Q, S) True where a row may attend
    near: Tensor  # (B or 1, Q, S) row of `table` for the distance of each pair
    table: Tensor  # (R, D) encodings of distances
    apart: Tensor | None = None  # (B, Q, S) True where the two are in different segments; None: no segments

    def last(self, rows: int) -> RelativeView:
        """The view of the last rows only."""
        apart = None if self.apart is None else self.apart[:, -rows:]
        return RelativeView(self.seen[:, -rows:], self.near[:, -rows:], self.table, apart)


class RelativeAttention(nn.Module):
    """(B, Q, width), (B, S, width) → (B, Q, width). A row that sees nothing gets zeros."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.distance = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        each = width // heads
        self.content_bias = nn.Parameter(torch.zeros(heads, 1, each))  # u
        self.distance_bias = nn.Parameter(torch.zeros(heads, 1, each))  # w
        self.segment_bias = nn.Parameter(torch.zeros(heads, 1, each))  # s
        self.segments = nn.Parameter(torch.zeros(heads, 2, each))  # e: of the same segment, of another

    def forward(self, x: Tensor, known: Tensor, view: RelativeView) -> Tensor:
        q, k, v = self._heads(self.query(x)), self._heads(self.key(known)), self._heads(self.value(known))
        r = self.distance(view.table).view(len(view.table), self.heads, -1).transpose(0, 1)  # (H, R, K)
        scale = q.shape[-1] ** -0.5
        by_distance = (q + self.distance_bias) @ r.transpose(1, 2)  # (B, H, Q, R): for every distance
        near = view.near.unsqueeze(1).expand(*q.shape[:3], -1)
        scores = by_distance.gather(3, near)  # (B, H, Q, S): for that of each pair
        if view.apart is not None:
            same, other = ((q + self.segment_bias) @ self.segments.transpose(1, 2)).split(1, -1)
            scores = scores + torch.where(view.apart.unsqueeze(1), other, same)
        scores = (scores * scale).masked_fill(~view.seen.unsqueeze(1), NEVER)
        drop = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q + self.content_bias, k, v, attn_mask=scores, dropout_p=drop)
        y = y.masked_fill(~view.seen.any(-1)[:, None, :, None], 0.0)
        return self.out(y.transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)  # (B, H, T, K)


# ---------------------------------------------------------------------------------------------- a decoder over a source

# weights_j = softmax_j(e(query, memory_j))        context = Σ_j weights_j · memory_j
#
#     AdditiveAttention         e = vᵀ tanh(W q + U m_j)        Bahdanau, Cho & Bengio 2015; Luong's "concat"
#     MultiplicativeAttention   e = qᵀ W m_j, or qᵀ m_j         Luong, Pham & Manning 2015: "general" and "dot"

SCORES = ("general", "dot", "concat")


class SourceAttention(nn.Module):
    def keys(self, memory: Tensor) -> Tensor:
        """What depends on the memory only, computed once per source: (B, S, M) → (B, S, K)."""
        raise NotImplementedError

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        """e: (B, T, D), (B, S, K) → (B, T, S)."""
        raise NotImplementedError

    def forward(self, query: Tensor, keys: Tensor, memory: Tensor, token_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Query (B, T, D), memory (B, S, M), token mask (B, S) → context (B, T, M) and weights (B, T, S)."""
        e = self.energies(query, keys).masked_fill(~token_mask.unsqueeze(1), float("-inf"))
        weights = e.softmax(-1)
        return weights.to(memory.dtype) @ memory, weights


class AdditiveAttention(SourceAttention):
    def __init__(self, query: int, memory: int, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(query, width)
        self.key = nn.Linear(memory, width, bias=False)
        self.score = nn.Parameter(torch.empty(width))
        nn.init.uniform_(self.score, -(width**-0.5), width**-0.5)

    def keys(self, memory: Tensor) -> Tensor:
        return self.key(memory)

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        return torch.tanh(self.query(query).unsqueeze(2) + keys.unsqueeze(1)) @ self.score


class MultiplicativeAttention(SourceAttention):
    """With `scaled`, scores are multiplied by a learned number, the sharpness of the softmax."""

    def __init__(self, query: int, memory: int, score: str = "general", scaled: bool = False) -> None:
        super().__init__()
        if score not in SCORES:
            raise invalid("model.attention_score", score, f"is unknown. Use {' or '.join(SCORES)}.")
        if score == "dot" and query != memory:
            raise invalid(
                "model.attention_score",
                score,
                f"compares vectors of equal width, but the decoder has {query}, the encoder {memory}",
            )
        self.key = nn.Linear(memory, query, bias=False) if score == "general" else None
        self.scale = nn.Parameter(torch.ones(())) if scaled else None

    def keys(self, memory: Tensor) -> Tensor:
        return memory if self.key is None else self.key(memory)

    def energies(self, query: Tensor, keys: Tensor) -> Tensor:
        e = query @ keys.transpose(1, 2)
        return e if self.scale is None else e * self.scale


def luong_attention(query: int, memory: int, score: str, scaled: bool) -> SourceAttention:
    """One of the three attentions of Luong et al."""
    if score != "concat":
        return MultiplicativeAttention(query, memory, score, scaled)
    if scaled:
        raise invalid(
            "model.scaled_score", scaled, "needs attention_score = 'general' or 'dot'; 'concat' learns its own scale"
        )
    return AdditiveAttention(query, memory, query)


def distance_bucket(distance: Tensor, buckets: int = 32, most: int = 128, both: bool = True) -> Tensor:
    """The bucket of a distance (key minus query): small ones have one each, larger ones share (Raffel et al. 2020).

    distance   0  1  2 … 7   8–9  10–12 …   ≥ 128        of 32 buckets: 16 for what follows, 16 for what came before;
    bucket     0  1  2 … 7    8     9   …     15         left to right, all 32 look back
    """
    first = torch.zeros_like(distance)
    if both:
        buckets //= 2
        first = (distance > 0).long() * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    far = torch.log(distance.clamp(min=1).float() / exact) / math.log(most / exact) * (buckets - exact)
    far = (exact + far.long()).clamp(max=buckets - 1)
    return first + torch.where(distance < exact, distance, far)


class DistanceBias(nn.Module):
    """A bias of attention scores: one learned number per bucket and head."""

    def __init__(self, heads: int, buckets: int, most: int, both: bool) -> None:
        super().__init__()
        self.most, self.both = most, both
        self.weight = nn.Parameter(torch.empty(buckets, heads))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, queries: int, keys: int) -> Tensor:
        """(H, queries, keys), where the queries are the last of the keys."""
        # one number per distance, from −(keys − 1) to queries − 1; each query reads a window of them, shifted by one
        distance = torch.arange(1 - keys, queries, device=self.weight.device)
        which = distance_bucket(distance, len(self.weight), self.most, self.both)
        return nn.functional.embedding(which, self.weight).t().contiguous().unfold(1, keys, 1).flip(1)
