"""KV caches: the keys and values of tokens already read, so that each new token is computed once.

Decoder-only networks keep a state of

    {"ids": (B, C), "length": (B,), "layers": ((keys, values), …) each (B, H, C, K), "most": int, "even": bool}

Row b has read length[b] tokens, in slots 0 … length[b] − 1; slots beyond hold nothing. `most` is at least every length.
While all lengths are equal (`even`), slots are slices; otherwise they are indexed and masked. Capacity C doubles when
it runs out, up to the window. When the window is full, `latest` returns the ids to read again.

Rows come and go while others continue (`join`, `take`): "ids" and "layers" may have more rows than "length", and those
beyond hold nothing. So a row that joins, or takes the place of one that leaves, is copied, and no other.

The decoder of T5 keeps all layers in one tensor (R, L, 2, H, C, K) of R rows, L layers, keys and values, so that
reordering a beam is one copy. Several rows may share a source, whose keys and values are stored once
(`shared_attention`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

State = dict[str, Any]
KeyValues = tuple[Tensor, Tensor]  # each (B, H, S, K)
LEAST = 64  # slots of the smallest cache
SPARE = 8  # a cache of so many times the rows that are left gives its memory back


# ------------------------------------------------------------------------------------------------ decoder-only networks


def empty(batch: int, device: torch.device) -> State:
    """The state of a network that has read nothing."""
    return {
        "ids": torch.zeros(batch, 0, dtype=torch.long, device=device),
        "length": torch.zeros(batch, dtype=torch.long, device=device),
        "layers": (),
        "most": 0,
        "even": True,
    }


class CacheUpdate:
    """Append `steps` tokens to every row of a state: their positions, their slots and what they may attend to.

    Created once per forward pass and used by all layers.
    """

    def __init__(self, state: State, steps: int, window: int) -> None:
        self.state, self.steps, self.window = state, steps, window
        self.most, self.even, self.device = state["most"], state["even"], state["length"].device
        self.rows = len(state["length"])
        ahead = torch.arange(steps, device=self.device)
        self.positions = ahead + self.most if self.even else ahead + state["length"].unsqueeze(1)  # (T,) or (B, T)
        self._rows = None if self.even else torch.arange(self.rows, device=self.device).unsqueeze(1)
        self._masks: dict[int, Tensor | None] = {}

    def append(self, old: Tensor | None, new: Tensor) -> Tensor:
        """Return keys or values (B, H, C, K), or ids (B, C), with `new` after what each row has; grow if needed."""
        axis = 2 if new.dim() == 4 else 1
        if old is None or not self.most:  # nothing before: no copy
            return new
        if old.shape[axis] < self.most + self.steps:
            old = self._grow(old, axis)
        if self.even:
            old[: self.rows].narrow(axis, self.most, self.steps).copy_(new)
        elif new.dim() == 4:
            old.transpose(1, 2)[self._rows, self.positions] = new.transpose(1, 2)
        else:
            old[self._rows, self.positions] = new
        return old

    def reserve(self, old: Tensor) -> Tensor:
        """Keys or values with capacity for the new tokens, contiguous, so that a kernel can write them by address."""
        fits = old.shape[2] >= self.most + self.steps and old.is_contiguous()
        return old if fits else self._grow(old, 2)

    def seen(self, cache: KeyValues) -> KeyValues:
        """The keys and values of the rows and slots in use after `append`."""
        slots = self.most + self.steps
        return cache[0][: self.rows, :, :slots], cache[1][: self.rows, :, :slots]

    def _grow(self, old: Tensor, axis: int) -> Tensor:
        needed = self.most + self.steps
        shape = list(old.shape)
        shape[axis] = min(max(2 * needed, LEAST), max(self.window, needed))
        larger = old.new_zeros(shape)
        larger.narrow(axis, 0, self.most).copy_(old.narrow(axis, 0, self.most))
        return larger

    def attention_mask(self, band: int = 0) -> Tensor | None:
        """(T, C) or (B, 1, T, C), True where a new token may attend, over the slots in use afterwards.

        With a `band`, only to itself and the band − 1 tokens before it. None: everywhere.
        """
        if band not in self._masks:
            self._masks[band] = self._compute_mask(band)
        return self._masks[band]

    def _compute_mask(self, band: int) -> Tensor | None:
        if self.even and self.steps == 1 and (not band or self.most < band):
            return None
        at = self.positions.unsqueeze(-1)
        slots = torch.arange(self.most + self.steps, device=self.device)
        mask = slots <= at
        if band:
            mask = mask & (slots > at - band)
        return mask if self.even else mask.unsqueeze(1)

    def finish(self, ids: Tensor, layers: tuple[Any, ...]) -> State:
        """The state after these tokens; `layers` already hold their keys and values."""
        return {
            "ids": self.append(self.state["ids"], ids),
            "length": self.state["length"] + self.steps,
            "layers": layers,
            "most": self.most + self.steps,
            "even": self.even,
        }


def with_lengths(state: State, lengths: Tensor) -> State:
    """The state of rows that were padded at their end: row b has read lengths[b] tokens (B,)."""
    return {**state, "length": lengths.to(state["length"]), "even": bool((lengths == state["most"]).all())}


def latest(state: State, count: int) -> tuple[Tensor, Tensor]:
    """The last `count` ids of each row, fewer where it has fewer, padded at the end; and how many there are (B,)."""
    lengths = state["length"].clamp(max=count)
    width = min(count, state["most"])
    slots = (state["length"] - lengths).unsqueeze(1) + torch.arange(width, device=lengths.device)
    return state["ids"].gather(1, slots.clamp(max=state["ids"].shape[1] - 1)), lengths


def reorder(state: State, rows: Tensor) -> State:
    """Let row i continue row rows[i], in place. All rows have read equally many tokens.

    Only slots in use are copied, and on a CPU only rows that change. Graphs captured for this state stay valid.
    """
    changed = None
    if rows.device.type == "cpu":
        changed = (rows != torch.arange(len(rows))).nonzero().squeeze(1)
        rows = rows[changed]
    for t, axis in _tensors(state):
        used = t[: len(state["length"])].narrow(axis, 0, min(state["most"], t.shape[axis]))
        if changed is None:
            used.copy_(used.index_select(0, rows))
        else:
            used.index_copy_(0, changed, used.index_select(0, rows))
    return state


def take(state: State, rows: Tensor) -> State:
    """Continue with these rows only, in this order, in place: only rows that move are copied. No row may repeat.

    To remove a row at little cost, move the last row to its place.
    """
    moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero().squeeze(1)
    for t, axis in _tensors(state) if len(moved) else ():
        used = t.narrow(axis, 0, min(state["most"], t.shape[axis]))
        used.index_copy_(0, moved, used.index_select(0, rows[moved]))
    state = _with_most({**state, "length": state["length"][rows]})
    return state if SPARE * len(rows) > len(state["ids"]) else _with_room(state, len(rows))


def join(states: Sequence[State], window: int) -> State:
    """The rows of all states side by side. Consumes the first, to which the others are appended where it has room."""
    counts = [len(state["length"]) for state in states]
    most, total = max(state["most"] for state in states), sum(counts)
    like = next((state for state in states if state["layers"]), None)
    lengths = torch.cat([state["length"] for state in states])
    if like is None or not most:  # nothing has been read
        return empty(total, lengths.device)
    first, at = states[0], counts[0]
    if not first["layers"] or first["ids"].shape[0] < total or first["ids"].shape[1] < most:
        first, at = _make_room(like, total, most, window), 0
    for state, count in zip(states if not at else states[1:], counts if not at else counts[1:], strict=True):
        if state["layers"]:
            _copy_rows(state, first, count, at)
        at += count
    return _with_most({**states[0], "ids": first["ids"], "layers": first["layers"], "length": lengths, "most": most})


def _make_room(like: State, rows: int, slots: int, window: int) -> State:
    """Empty ids and layers of this form, with room for rows and slots, and for some more."""
    rows, slots = 1 << (rows - 1).bit_length(), min(max(2 * slots, LEAST), max(window, slots))

    def room(t: Tensor) -> Tensor:
        return t.new_zeros(rows, t.shape[1], slots, t.shape[3])

    layers = tuple((room(k), room(v)) for k, v in like["layers"])
    return {"ids": like["ids"].new_zeros(rows, slots), "layers": layers}


def _with_room(state: State, rows: int) -> State:
    """The state in a smaller cache."""
    if not rows or not state["layers"]:
        return state
    room = _make_room(state, rows, state["most"], state["ids"].shape[1])
    _copy_rows(state, room, rows, 0)
    return {**state, **room}


def _copy_rows(state: State, to: State, count: int, at: int) -> None:
    """Copy the first rows of a state to the rows of another from `at` on."""
    for (new, axis), (t, _) in zip(_tensors(to), _tensors(state), strict=True):
        slots = min(state["most"], t.shape[axis])
        new[at : at + count].narrow(axis, 0, slots).copy_(t[:count].narrow(axis, 0, slots))


def replace_rows(state: State, rows: Tensor, new: State) -> State:
    """Let the rows of a new state take the place of these rows, in place."""
    for (to, axis), (t, _) in zip(_tensors(state), _tensors(new), strict=bool(new["layers"])):
        slots = min(new["most"], t.shape[axis])
        to.narrow(axis, 0, slots).index_copy_(0, rows, t[: len(rows)].narrow(axis, 0, slots))
    return _with_most({**state, "length": state["length"].index_copy(0, rows, new["length"])})


def truncate(state: State, count: int) -> State:
    """The state of a single row after the first `count` of its tokens, which shares memory with it."""
    layers = tuple((k[:1, :, :count], v[:1, :, :count]) for k, v in state["layers"])
    return {**state, "ids": state["ids"][:1, :count], "length": state["length"] * 0 + count, "layers": layers} | {
        "most": count,
        "even": True,
    }


def _tensors(state: State) -> list[tuple[Tensor, int]]:
    """Ids, keys and values of all layers, and the dimension of their slots."""
    return [(state["ids"], 1), *((t, 2) for pair in state["layers"] for t in pair)]


def _with_most(state: State) -> State:
    """The state with the most tokens that any row has read."""
    lengths = state["length"]
    most = int(lengths.max()) if len(lengths) else 0
    return {**state, "most": most, "even": bool((lengths == most).all())}


# ------------------------------------------------------------------------------------------------ T5's decoder


class StackedCacheUpdate:
    """Append `steps` tokens to a cache of all layers; called per layer, it returns that layer's keys and values so far.

    With gradients nothing is overwritten: `finish` builds a new tensor.
    """

    def __init__(self, cache: Tensor | None, length: int, steps: int, layers: int) -> None:
        self.cache, self.length, self.steps, self.layers = cache, length, steps, layers
        self.new: list[KeyValues] = []

    def __call__(self, layer: int, keys: Tensor, values: Tensor) -> KeyValues:
        if torch.is_grad_enabled():
            if self.cache is not None:
                old = self.cache[:, layer, :, :, : self.length]
                keys, values = torch.cat([old[:, 0], keys], 2), torch.cat([old[:, 1], values], 2)
            self.new.append((keys, values))
            return keys, values
        after = self.length + self.steps
        if self.cache is None or self.cache.shape[4] < after:
            self.cache = self._grow(keys, after)
        own = self.cache[:, layer]  # (R, 2, H, C, K)
        own[:, 0, :, self.length : after] = keys
        own[:, 1, :, self.length : after] = values
        return own[:, 0, :, :after], own[:, 1, :, :after]

    def _grow(self, like: Tensor, after: int) -> Tensor:
        rows, heads, _, each = like.shape
        larger = like.new_zeros(rows, self.layers, 2, heads, max(2 * after, LEAST), each)
        if self.cache is not None:
            larger[:, :, :, :, : self.length] = self.cache[:, :, :, :, : self.length]
        return larger

    def finish(self) -> Tensor:
        if self.new:
            return torch.stack([torch.stack(pair, 1) for pair in self.new], 1)
        assert self.cache is not None
        return self.cache


def reorder_stacked(cache: Tensor, length: int, rows: Tensor) -> Tensor:
    """Let row i continue row rows[i]; in place if the number of rows stays.

    Only slots in use are copied, and on a CPU only rows that change.
    """
    used = cache[:, :, :, :, :length]
    if len(rows) != len(cache):
        larger = cache.new_zeros(len(rows), *cache.shape[1:])
        larger[:, :, :, :, :length] = used.index_select(0, rows)
        return larger
    if rows.device.type == "cpu":
        changed = (rows != torch.arange(len(rows))).nonzero().squeeze(1)
        used[changed] = used[rows[changed]]
    else:
        used.copy_(used.index_select(0, rows))
    return cache


def shared_attention(q: Tensor, kv: KeyValues, **options: Any) -> Tensor:
    """Attention of queries (R, H, T, K) to keys and values (B, H, S, K), each shared by R / B consecutive rows."""
    rows, heads, steps, each = q.shape
    sources = len(kv[0])
    if rows == sources:
        return F.scaled_dot_product_attention(q, *kv, **options)
    side_by_side = q.view(sources, -1, heads, steps, each).transpose(1, 2).reshape(sources, heads, -1, each)
    y = F.scaled_dot_product_attention(side_by_side, *kv, **options)
    return y.view(sources, heads, -1, steps, each).transpose(1, 2).reshape(q.shape)
