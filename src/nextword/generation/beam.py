"""Beam search, once, for every model that can step.

At each step every open hypothesis is continued by every token, and the best `width` continuations stay. One that
writes `end` is complete and keeps its place, so the beam narrows as hypotheses complete (Graves 2012; Bahdanau et al.
2015). Hence a beam of one is greedy, whatever the length penalty.

    width 2        a .5            a b .175
             <                <
                   b .4            b end .36    complete: one place is left

B searches run side by side, and nothing of a step waits for a GPU: hypotheses are numbers in slots (B, G, J), −inf
where none is open, and whether all searches are over is asked now and then. G groups of hypotheses make beams diverse
(Vijayakumar et al. 2018): they are extended one after the other, and a token counts less for each time that groups
before have written it in this step. That penalty chooses, and is no part of a score.

A model may have `reorder(state, rows, searches)` beside `step`: what `nest.take` gives, each search having equally many
rows that stand together; `searches` are those that remain, None being all. So what belongs to the source of a search,
and room not yet used, need not be copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from nextword import nest
from nextword.contract import Beam, State
from nextword.contract_protocols import Autoregressive
from nextword.generation.hypotheses import (
    History,
    Hypothesis,
    Step,
    bounded,
    divisor,
    ensure_covers,
    kindest,
    uncovered,
)
from nextword.generation.leading import leading, top, waits
from nextword.generation.rules import Rules, ensure_numbers, validate

__all__ = ["Hypothesis", "search", "top"]

PATIENCE = 8  # steps on a GPU before it is asked which searches are over; on a CPU to ask costs nothing


@torch.no_grad()
def search(
    model: Autoregressive,
    last: Tensor,
    state: State,
    how: Beam,
    length: int,
    end: int | None = None,
    *,
    n: int | None = None,
    written: Sequence[Sequence[int]] | None = None,
    banned: Iterable[int] = (),
    least: int = 0,
) -> list[list[Hypothesis]]:
    """For each of the rows `last` (B,), the best `n` continuations (all `width` if None), best first.

    A continuation is complete with `end`, after no fewer than `least` other tokens, or cut at `length` tokens; these
    compete, since together they are all that the model can write. Asking for fewer than `width` lets the search stop as
    soon as those are certain. Consumes the state.
    """
    validate(how)
    ensure_covers(model, how)
    beams = _Beams(how, length, end, n or how.width, last)
    rules = Rules(how, written or [()] * len(last), banned, end=end, least=least, beams=True)
    for _ in range(length if len(last) else 0):
        log_probs, state = model.step(last, state)  # (R, V): first one row a search, then one a slot
        beams.extend(log_probs, rules.scores(log_probs), uncovered(model, state, how) if how.coverage else None)
        if beams.over():
            break
        rows, last = beams.rows.flatten(), beams.ids.flatten().to(last.dtype)
        if beams.moved:
            own = getattr(model, "reorder", None)
            state = own(state, rows, beams.kept) if own else nest.take(state, rows)
            rules.take(rows)
        rules.wrote(last.long())
    return beams.best()


class _Beams:
    """Searches side by side: B of them, G groups in each, and a group's hypotheses in J slots, best first."""

    def __init__(self, how: Beam, length: int, end: int | None, n: int, last: Tensor) -> None:
        self.how, self.length, self.end, self.n = how, length, end, n
        self.groups, self.width = how.groups, how.width // how.groups
        self.patience = PATIENCE if waits(last) else 1
        self.searches = list(range(len(last)))  # which of those asked for
        self.history = History(len(last), self.groups, self.width)
        self.written = 0  # tokens of the hypotheses that are open
        self.left = self.width  # places of a group that can still be filled, no fewer than in any
        start = torch.zeros(len(last), self.groups, 1, dtype=torch.float64, device=last.device)
        self.totals = start  # (B, G, J) sum of log p under the rules; −inf: nothing is open here
        self.covers = start  # (B, G, J) the coverage penalty, where there is one
        self.slots = start.long()  # (B, G, J) how the step before numbered these slots
        self.closed = start.long()  # (B, G, 1) places that are taken for good
        self.certain = start.new_full((*start.shape[:2], min(n, self.width)), -math.inf)  # scores of the best closed
        self.numbers = torch.arange(len(last) * how.width, device=last.device)
        self.broken = start.new_zeros(1, dtype=torch.bool)  # a probability was no number
        self.rows = self.ids = self.slots  # (B, G, J) of the step before: the row written after, and what
        self.moved = self.within = False  # whether rows changed places; and stay as many
        self.kept: list[int] | None = None  # searches of the step before that go on, None if all do

    # -------------------------------------------------------------------------------------------- one step

    def extend(self, log_probs: Tensor, scores: Tensor, covers: Tensor | None) -> None:
        """Every open hypothesis by every token (R, V); the best stay."""
        count, groups, slots = self.totals.shape
        apart = len(scores) // (count * slots)  # groups that have rows of their own: before the first step, 1
        stuck, parents, ids, rows, totals = self._chosen(scores.reshape(count, apart, slots, -1))
        complete = (ids == self.end) & (totals > -math.inf) if self.end is not None else torch.zeros_like(ids).bool()
        stuck_scores = self.totals / divisor(self.how, self.written)
        worth = totals / divisor(self.how, self.written + 1)
        if covers is not None:
            stuck_scores = stuck_scores + self.covers
            self.covers = covers.view(count, apart, slots).expand(-1, groups, -1).gather(2, parents)
            worth = worth + self.covers
        own = log_probs.take(rows * scores.shape[1] + ids).double()
        step = Step(self.slots.gather(2, parents), ids, own, worth, complete, self.slots, stuck, stuck_scores)
        self.history.add(self.searches, step)
        self.written += 1
        self.closed = self.closed + stuck.sum(-1, keepdim=True) + complete.sum(-1, keepdim=True)
        ended = stuck_scores.masked_fill(~stuck, -math.inf), worth.masked_fill(~complete, -math.inf)
        self.certain = torch.cat([self.certain, *ended], -1).topk(self.certain.shape[-1]).values
        self.totals = self._unless_certain(totals.masked_fill(complete, -math.inf))
        self.rows, self.ids, self.slots = rows, ids, self.numbers[: ids.shape[-1]].expand(ids.shape)
        self.within = apart == groups and rows.numel() == len(scores)
        self.kept = None
        self.moved = not self.within or ids.shape[-1] > 1  # one hypothesis a group stays where it is

    def _chosen(self, scores: Tensor) -> Sequence[Tensor]:
        """Of scores (B, G or 1, J, V) the best, group after group.

        After which hypotheses nothing can be written (B, G, J); and what is written (B, G, L): the slot that it is
        written after, the id, the slot's row, and the new total, −inf where a place is taken or nothing is left.
        """
        count, apart, slots, size = scores.shape
        first = self.numbers[: count * apart * slots].view(count, apart, slots)[..., :1]  # the row of slot 0
        used = scores.new_zeros(count, 1, size) if self.groups > 1 else None  # how often each token was chosen
        each = []
        for g in range(self.groups):
            own, before = scores[:, g % apart], self.totals[:, g].unsqueeze(-1)
            open = before > -math.inf
            found, ids = leading(own if used is None else own - self.how.diversity * used, min(self.left, size))
            values = torch.where(open, found.double() + before, -math.inf)  # what is not open may be no number
            best = values.amax(-1)
            self.broken |= best.isnan().any()
            none = (best == -math.inf) & open.squeeze(-1)
            ordered = values.flatten(1).sort(dim=-1, descending=True, stable=True)  # slot by slot, then id by id
            values, at = ordered.values[:, : self.left], ordered.indices[:, : self.left]  # (B, L)
            parents, chosen = at // ids.shape[-1], ids.flatten(1).gather(1, at)
            room = self.width - self.closed[:, g] - none.sum(-1, keepdim=True)
            kept = (values > -math.inf) & (self.numbers[: values.shape[1]] < room)
            if used is not None:  # a total is without the penalty that has chosen
                values = own.flatten(1).gather(1, parents * size + chosen).double()
                values = values + self.totals[:, g].gather(1, parents)
                used.scatter_add_(2, chosen.unsqueeze(1), kept.to(used).unsqueeze(1))
            each.append((none, parents, chosen, first[:, g % apart] + parents, values.masked_fill(~kept, -math.inf)))
        return [torch.stack(x, 1) if self.groups > 1 else x[0].unsqueeze(1) for x in zip(*each, strict=True)]

    def _unless_certain(self, totals: Tensor) -> Tensor:
        """Nothing is open in a search where no open hypothesis can still come before the n-th complete one.

        A coverage penalty can only lower what is found. A group that is certain goes on as long as others are not: it
        has a say in what they choose.
        """
        best = totals.amax(-1)  # (B, G)
        over = best == -math.inf
        if bounded(self.how):
            over = over | (self.certain[..., -1] >= best / kindest(self.how, self.written, self.length))
        return totals.masked_fill(over.all(1)[:, None, None], -math.inf)

    # -------------------------------------------------------------------------------------------- between steps

    def over(self) -> bool:
        """Whether nothing is left to extend. Asked now and then; searches that are over are then left out."""
        if self.written >= self.length:
            return True
        if self.written % self.patience:
            return False
        open = self.totals > -math.inf
        broken, *alive = torch.cat([self.broken, open.flatten(1).any(1)]).tolist()
        if broken:
            ensure_numbers([math.nan])
        if not any(alive):
            return True
        size = len(alive)
        while sum(alive) <= size // 2:  # by halves: a recorded step has so many rows, and few sizes serve all
            size //= 2
        if self.patience == 1:
            size = sum(alive)
        if size < len(alive):
            # the living and, where there is room, some others
            self._keep(sorted(sorted(range(len(alive)), key=lambda b: not alive[b])[:size]))
        if self.patience == 1:
            self._narrow()
            if self.within:
                self.moved = not torch.equal(self.rows.flatten(), self.numbers[: self.rows.numel()])
        return False

    def _narrow(self) -> None:
        """As many slots as the fullest group needs."""
        open = self.totals > -math.inf
        self.left = self.width - int(self.closed.amin())
        most = int(open.sum(-1).amax())
        if most == open.shape[-1]:
            return
        self.slots = (~open).int().sort(dim=-1, stable=True).indices[..., :most]
        self._rearrange(lambda x: x.gather(2, self.slots))

    def _keep(self, searches: list[int]) -> None:
        """Go on with these alone."""
        self.searches, self.kept = [self.searches[b] for b in searches], searches
        at = torch.tensor(searches, device=self.totals.device)
        self.slots, self.closed, self.certain = self.slots[at], self.closed[at], self.certain[at]
        self._rearrange(lambda x: x[at])

    def _rearrange(self, change: Callable[[Tensor], Tensor]) -> None:
        self.totals, self.rows, self.ids = change(self.totals), change(self.rows), change(self.ids)
        if self.how.coverage:
            self.covers = change(self.covers)
        self.moved, self.within = True, False

    def best(self) -> list[list[Hypothesis]]:
        if bool(self.broken):
            ensure_numbers([math.nan])
        return self.history.best(self.searches, self.totals > -math.inf, self.n)
