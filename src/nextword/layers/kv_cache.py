"""What a self-attending network keeps of the tokens it has read: keys and values of every layer, and the ids.

    state = {"ids": (B, C), "length": (B,), "layers": ((keys, values), …) each (B, H, C, D), "most": int, "even": bool}

Rows may have read differently many tokens: row b's slots 0 … length[b] − 1 hold what it has read, and what lies beyond
is nothing. `most` is no less than any length; while all are equal (`even`), slots are written and read as slices,
otherwise by index and under a mask. Room doubles when it runs out, up to the network's window; where the window is
full, `latest` gives the ids that are to be read again.

Keys and values of what a decoder has written, of all its layers in one tensor, with room to grow.

    kept    (R, L, 2, H, C, K)    R rows, L layers, keys and values, C places, of which the first `length` are in use

One tensor, so that beams that change places cost one copy and not one for each layer. Several rows may write from one
source: then what is known of the source is there once, and their queries ask it side by side (`shared`).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

State = dict[str, Any]
LEAST = 64  # slots to begin with


def empty(batch: int, device: torch.device) -> State:
    """Nothing read yet."""
    return {
        "ids": torch.zeros(batch, 0, dtype=torch.long, device=device),
        "length": torch.zeros(batch, dtype=torch.long, device=device),
        "layers": (),
        "most": 0,
        "even": True,
    }


class Reading:
    """So many more tokens, read after a state: where they stand, where they are written, and what they may look at.

    Made once for all layers, which ask it the same things.
    """

    def __init__(self, state: State, steps: int, window: int) -> None:
        self.state, self.steps, self.window = state, steps, window
        self.most, self.even, self.device = state["most"], state["even"], state["length"].device
        ahead = torch.arange(steps, device=self.device)
        self.positions = ahead + self.most if self.even else ahead + state["length"].unsqueeze(1)  # (T,) or (B, T)
        self._rows = None if self.even else torch.arange(len(state["length"]), device=self.device).unsqueeze(1)
        self._seen: dict[int, Tensor | None] = {}

    def extended(self, old: Tensor | None, new: Tensor) -> Tensor:
        """Keys, values (B, H, C, D) or ids (B, C) with `new` after what each row has; room is made if needed."""
        axis = 2 if new.dim() == 4 else 1
        if old is None or not self.most:  # nothing before: no copy
            return new
        if old.shape[axis] < self.most + self.steps:
            old = self._larger(old, new, axis)
        if self.even:
            old.narrow(axis, self.most, self.steps).copy_(new)
        elif new.dim() == 4:
            old.transpose(1, 2)[self._rows, self.positions] = new.transpose(1, 2)
        else:
            old[self._rows, self.positions] = new
        return old

    def roomy(self, old: Tensor) -> Tensor:
        """Keys or values with room for what comes, in one piece, so that it can be written from outside."""
        fits = old.shape[2] >= self.most + self.steps and old.is_contiguous()
        return old if fits else self._larger(old, old, 2)

    def _larger(self, old: Tensor, like: Tensor, axis: int) -> Tensor:
        needed = self.most + self.steps
        shape = list(like.shape)
        shape[axis] = min(max(2 * needed, LEAST), max(self.window, needed))
        larger = old.new_zeros(shape)
        larger.narrow(axis, 0, self.most).copy_(old.narrow(axis, 0, self.most))
        return larger

    def visible(self, band: int = 0) -> Tensor | None:
        """(T, C) or (B, 1, T, C), True where a new token may look, over the slots in use once it is written.

        `band`: at itself and the band − 1 before it alone. None: everywhere, as for one token after rows that are even.
        """
        if band not in self._seen:
            self._seen[band] = self._look(band)
        return self._seen[band]

    def _look(self, band: int) -> Tensor | None:
        if self.even and self.steps == 1 and (not band or self.most < band):
            return None
        at = self.positions.unsqueeze(-1)
        slots = torch.arange(self.most + self.steps, device=self.device)
        seen = slots <= at
        if band:
            seen = seen & (slots > at - band)
        return seen if self.even else seen.unsqueeze(1)

    def done(self, ids: Tensor, layers: tuple[Any, ...]) -> State:
        """The state after these tokens, whose keys and values are in `layers` already."""
        return {
            "ids": self.extended(self.state["ids"], ids),
            "length": self.state["length"] + self.steps,
            "layers": layers,
            "most": self.most + self.steps,
            "even": self.even,
        }


def settled(state: State, lengths: Tensor) -> State:
    """Rows that were padded at their end have read only so many tokens (B,)."""
    return {**state, "length": lengths.to(state["length"]), "even": bool((lengths == state["most"]).all())}


def latest(state: State, keep: int) -> tuple[Tensor, Tensor]:
    """The last `keep` ids that each row has read (fewer where it has fewer, padded at the end), and how many."""
    lengths = state["length"].clamp(max=keep)
    width = min(keep, state["most"])
    slots = (state["length"] - lengths).unsqueeze(1) + torch.arange(width, device=lengths.device)
    return state["ids"].gather(1, slots.clamp(max=state["ids"].shape[1] - 1)), lengths


def reordered(state: State, rows: Tensor) -> State:
    """Each row goes on from what another (or itself) has read, which has read equally many tokens. In place.

    Only slots in use are copied, and on a CPU only rows that change; what was recorded for this state stays valid.
    """
    changed = None
    if rows.device.type == "cpu":
        changed = (rows != torch.arange(len(rows))).nonzero().squeeze(1)
        rows = rows[changed]
    axes = [(state["ids"], 1), *((t, 2) for pair in state["layers"] for t in pair)]
    for t, axis in axes:
        used = t.narrow(axis, 0, min(state["most"], t.shape[axis]))
        if changed is None:
            used.copy_(used.index_select(0, rows))
        else:
            used.index_copy_(0, changed, used.index_select(0, rows))
    return state


Kept = tuple[Tensor, Tensor]  # keys and values, (B, H, S, K) each


class Writing:
    """So many more tokens after what was written: each layer hands in its own, and gets all there are.

    Under gradients nothing is overwritten, and the tensor is made anew.
    """

    def __init__(self, kept: Tensor | None, length: int, steps: int, layers: int) -> None:
        self.kept, self.length, self.steps, self.layers = kept, length, steps, layers
        self.fresh: list[Kept] = []

    def __call__(self, layer: int, keys: Tensor, values: Tensor) -> Kept:
        if torch.is_grad_enabled():
            if self.kept is not None:
                old = self.kept[:, layer, :, :, : self.length]
                keys, values = torch.cat([old[:, 0], keys], 2), torch.cat([old[:, 1], values], 2)
            self.fresh.append((keys, values))
            return keys, values
        after = self.length + self.steps
        if self.kept is None or self.kept.shape[4] < after:
            self.kept = self._larger(keys, after)
        own = self.kept[:, layer]
        own[:, 0, :, self.length : after] = keys
        own[:, 1, :, self.length : after] = values
        return own[:, 0, :, :after], own[:, 1, :, :after]

    def _larger(self, like: Tensor, after: int) -> Tensor:
        rows, heads, _, each = like.shape
        larger = like.new_zeros(rows, self.layers, 2, heads, max(2 * after, LEAST), each)
        if self.kept is not None:
            larger[:, :, :, :, : self.length] = self.kept[:, :, :, :, : self.length]
        return larger

    def done(self) -> Tensor:
        if self.fresh:
            return torch.stack([torch.stack(pair, 1) for pair in self.fresh], 1)
        assert self.kept is not None
        return self.kept


def reordered_written(kept: Tensor, length: int, rows: Tensor) -> Tensor:
    """Each row goes on from what another (or itself) has written. In place, if rows stay as many; only what is in use
    is copied, and on a CPU only rows that change.
    """
    used = kept[:, :, :, :, :length]
    if len(rows) != len(kept):
        larger = kept.new_zeros(len(rows), *kept.shape[1:])
        larger[:, :, :, :, :length] = used.index_select(0, rows)
        return larger
    if rows.device.type == "cpu":
        changed = (rows != torch.arange(len(rows))).nonzero().squeeze(1)
        used[changed] = used[rows[changed]]
    else:
        used.copy_(used.index_select(0, rows))
    return kept


def shared(q: Tensor, kept: Kept, **how: Any) -> Tensor:
    """Attention of queries (R, H, T, K) at keys and values (B, H, S, K), each serving R / B rows side by side."""
    rows, heads, steps, each = q.shape
    sources = len(kept[0])
    if rows == sources:
        return F.scaled_dot_product_attention(q, *kept, **how)
    beside = q.view(sources, -1, heads, steps, each).transpose(1, 2).reshape(sources, heads, -1, each)
    y = F.scaled_dot_product_attention(beside, *kept, **how)
    return y.view(sources, heads, -1, steps, each).transpose(1, 2).reshape(q.shape)
