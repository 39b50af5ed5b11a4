"""What a self-attending network keeps of the tokens it has read: keys and values of every layer, and the ids.

    state = {"ids": (B, C), "length": (B,), "layers": ((keys, values), …) each (B, H, C, D), "most": int, "even": bool}

Rows may have read differently many tokens: row b's slots 0 … length[b] − 1 hold what it has read, and what lies beyond
is nothing. `most` is no less than any length; while all are equal (`even`), slots are written and read as slices,
otherwise by index and under a mask. Room doubles when it runs out, up to the network's window; where the window is
full, `latest` gives the ids that are to be read again.
"""

from __future__ import annotations

from typing import Any

import torch
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


def positions(state: State | None, steps: int, device: torch.device) -> Tensor:
    """Where the next tokens stand: (T,), or (B, T) where rows differ."""
    ahead = torch.arange(steps, device=device)
    if state is None:
        return ahead
    return ahead + state["most"] if state["even"] else ahead + state["length"].unsqueeze(1)


def extended(old: Tensor | None, new: Tensor, state: State, window: int) -> Tensor:
    """Keys, values (B, H, C, D) or ids (B, C) with `new` written after what each row has; room is made where needed."""
    axis = new.dim() - 2 if new.dim() == 4 else 1
    most, steps = state["most"], new.shape[axis]
    if old is None or not most:  # nothing before: no copy
        return new
    if old.shape[axis] < most + steps:
        room = min(max(2 * (most + steps), LEAST), max(window, most + steps))
        shape = list(new.shape)
        shape[axis] = room
        larger = old.new_zeros(shape)
        larger.narrow(axis, 0, most).copy_(old.narrow(axis, 0, most))
        old = larger
    if state["even"]:
        old.narrow(axis, most, steps).copy_(new)
        return old
    rows = torch.arange(len(new), device=new.device).unsqueeze(1)
    slots = positions(state, steps, new.device)
    if new.dim() == 4:
        old.transpose(1, 2)[rows, slots] = new.transpose(1, 2)
    else:
        old[rows, slots] = new
    return old


def advanced(state: State, ids: Tensor, layers: tuple[Any, ...], window: int) -> State:
    """The state after these tokens, whose keys and values are in `layers` already."""
    steps = ids.shape[1]
    return {
        "ids": extended(state["ids"], ids, state, window),
        "length": state["length"] + steps,
        "layers": layers,
        "most": state["most"] + steps,
        "even": state["even"],
    }


def settled(state: State, lengths: Tensor) -> State:
    """Rows that were padded at their end have read only so many tokens (B,)."""
    return {**state, "length": lengths.to(state["length"]), "even": bool((lengths == state["most"]).all())}


def visible(state: State, steps: int, device: torch.device, band: int = 0) -> Tensor | None:
    """(T, C) or (B, 1, T, C), True where a new token may look, over the slots in use once it is written.

    `band`: at itself and the band − 1 before it alone. None: everywhere, as for one token after rows that are even.
    """
    most = state["most"]
    if state["even"] and steps == 1 and (not band or most < band):
        return None
    at = positions(state, steps, device).unsqueeze(-1)
    slots = torch.arange(most + steps, device=device)
    seen = slots <= at
    if band:
        seen = seen & (slots > at - band)
    return seen if state["even"] else seen.unsqueeze(1)


def latest(state: State, keep: int) -> tuple[Tensor, Tensor]:
    """The last `keep` ids that each row has read (fewer where it has fewer, padded at the end), and how many."""
    lengths = state["length"].clamp(max=keep)
    width = min(keep, state["most"])
    slots = (state["length"] - lengths).unsqueeze(1) + torch.arange(width, device=lengths.device)
    return state["ids"].gather(1, slots.clamp(max=state["ids"].shape[1] - 1)), lengths
