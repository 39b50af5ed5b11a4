"""Blanks filled by a network that writes what was taken out of a text, span after span (Raffel et al. 2020, figure 2).

    read      Thank you <x> me to your party <y> week end          <x> <y> … are sentinels, tokens of their own
    written   <x> for inviting <y> last end

Left to itself such a network may leave a sentinel out, or write one twice. `Ordered` is the same network held to the
order: first <x>, then something that shows, then <y>, and the end after the last span alone. Probabilities stay the
network's own, so what order forbids is missing from them. Some have learnt that one more sentinel stands after the last
span: to write that, or the end, is to be over, and p(over) is the sum of the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nextword import nest
from nextword.contract import State
from nextword.generation.blanks import Pieces


class Ordered:
    """What `step` says of the next token of a span, or of the next span. Ids that go on with a word begin no span that
    stands behind a letter."""

    def __init__(self, network: Any, sentinels: Sequence[int], end: int, pieces: Pieces) -> None:
        self.network, self.end, self.inner = network, end, pieces.inner.to(network.device)
        self.shows = torch.tensor([bool(piece.strip()) for piece in pieces.bytes], device=network.device)  # (V,)
        self.sentinels = torch.tensor(sentinels, device=network.device)

    def begin(self, last: Tensor, own: State, lettered: Sequence[Sequence[bool]]) -> tuple[Tensor, State]:
        """After the sources were read; of each blank of a row, whether a letter stands before it."""
        count = torch.tensor([len(row) for row in lettered], device=last.device)
        before = torch.zeros(len(lettered), int(count.max()), dtype=torch.bool, device=last.device)
        for row, flags in enumerate(lettered):
            before[row, : len(flags)] = torch.tensor(flags, device=last.device)
        state = {"own": own, "lettered": before, "count": count, "which": torch.full_like(count, -1)}
        return last, {**state, "shown": torch.zeros_like(count, dtype=torch.bool)}

    def step(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        log_p, own = self.network.step(last, state["own"])
        fresh = last == self._after(state["which"])  # a span begins
        which = state["which"] + fresh  # (R,) the span that is written; −1: none is yet
        shown = (state["shown"] | self.shows[last]) & ~fresh  # something stands in it
        final = which == state["count"] - 1
        follows = self._after(which).unsqueeze(1)
        onward = log_p.gather(1, follows).squeeze(1)
        more = which + 1 < len(self.sentinels)
        over = torch.where(more, torch.logaddexp(log_p[:, self.end], onward), log_p[:, self.end])
        behind = state["lettered"].gather(1, which.clamp(min=0).unsqueeze(1)).squeeze(1)
        said = log_p.masked_fill((fresh & behind).unsqueeze(1) & self.inner, -math.inf)
        said = said.masked_fill((~shown & ~fresh).unsqueeze(1) & ~self.shows, -math.inf)  # one space, and then a word
        said = said.masked_fill((which < 0).unsqueeze(1), -math.inf)
        said = said.index_fill(1, self.sentinels, -math.inf)
        said = said.scatter(1, follows, onward.masked_fill((which >= 0) & (~shown | final), -math.inf).unsqueeze(1))
        said[:, self.end] = over.masked_fill(~shown | ~final, -math.inf)
        return said, {**state, "own": own, "which": which, "shown": shown}

    def _after(self, which: Tensor) -> Tensor:
        """The sentinel that begins the next span."""
        return self.sentinels[(which + 1).clamp(max=len(self.sentinels) - 1)]

    def reorder(self, state: State, rows: Tensor, searches: list[int] | None) -> State:
        rest = {name: part for name, part in state.items() if name != "own"}
        reorder = getattr(self.network, "reorder", None)
        own = reorder(state["own"], rows, searches) if reorder else nest.take(state["own"], rows)
        return {**nest.take(rest, rows), "own": own}


def spans(ids: Sequence[int], sentinels: Sequence[int], end: int) -> list[list[int]]:
    """What was written, span by span; the last may have no end."""
    found: list[list[int]] = []
    for id in ids:
        if id in sentinels:
            found.append([])
        elif id != end and found:
            found[-1].append(id)
    return found
