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

Hypotheses of a beam: what one is, what it is worth, and how they are read out of the steps that wrote them.

A step leaves behind, for every slot, the id that was written there and the slot that it was written after. Nothing else
is kept while the search runs; at its end the hypotheses that count are walked back, all at once.

    step      1        2        3
    slot 0    the ◂─┬─ cat ◂─── sat        read backwards from slot 0: sat, cat, the
    slot 1    a     └─ dog

The greatest of many scores, the first of equals first, on any device.

`topk` breaks ties as it likes, and then a beam of one would not be greedy. A long row is looked at in blocks first: the
k greatest lie in the k blocks with the greatest maxima, if of equal blocks the first counts as well.

    scores (R, V) ──maxima──▶ (R, V / 128) ──k blocks──▶ scores (R, k · 128) ──▶ k ids
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.core import pytree as nest
from nextword.core.errors import Unsupported
from nextword.core.protocols import Autoregressive
from nextword.core.types import Beam, State
from nextword.generation.logits_processors import Rules, ensure_numbers, validate


@dataclass(frozen=True)
class Hypothesis:
    ids: tuple[int, ...]  # with `end` as the last, where it was reached
    log_probs: tuple[float, ...]  # of each id, the model's own, untouched by the rules
    score: float  # sum of log p under the rules, over what its length is divided by, and the coverage penalty
    complete: bool  # False: cut at the length, or the rules left nothing to write

    @property
    def log_prob(self) -> float:
        return math.fsum(self.log_probs)


def divisor(how: Beam, length: int) -> float:
    """What a sum of `length` log p is divided by: lengthᵅ, or as Wu et al. (2016, eq. 14) ((5 + length) / 6)ᵅ."""
    length = max(length, 1)
    return float(((5 + length) / 6 if how.normalisation == "gnmt" else length) ** how.length_penalty)


def kindest(how: Beam, written: int, length: int) -> float:
    """The divisor that is best for a sum of log p which has some tokens and must have at least one more.

    Such a sum is below zero: the greatest divisor is the best, at the longest (penalty > 0) or at the next.
    """
    return divisor(how, length if how.length_penalty > 0 else min(written + 1, length))


def bounded(how: Beam) -> bool:
    """Whether a sum never grows: log p is below zero, but a reward can lift it."""
    return how.repetition >= 1 and not any(value > 0 for value in how.bias.values())


def ensure_covers(model: Any, how: Beam) -> None:
    if how.coverage and not hasattr(model, "covered"):
        raise Unsupported(
            f"coverage is {how.coverage}, but {type(model).__name__} has no attention over a source that could be "
            "covered. Leave it out (0), or use a model that translates with attention."
        )


def uncovered(model: Any, state: Any, how: Beam) -> Tensor:
    """The coverage penalty of each row (R,): β Σ_i log min(Σ_j a_ij, 1) over the source tokens i (Wu et al., eq. 14).

    It is at most 0, where every source token has had as much attention as one token pays.
    """
    covered = model.covered(state).double()
    # a token that no one has looked at costs much, and not everything: −inf would make all such texts alike
    return covered.clamp(min=torch.finfo(torch.float32).tiny, max=1.0).log().sum(-1) * how.coverage


class Step(NamedTuple):
    """What one step left behind: over B searches of G groups, for J slots before it and L after it."""

    parents: Tensor  # (B, G, L) the slot, as numbered in the step before, that was written after
    ids: Tensor  # (B, G, L)
    log_probs: Tensor  # (B, G, L) the model's own
    scores: Tensor  # (B, G, L) what the hypothesis is worth if it goes no further
    complete: Tensor  # (B, G, L)
    slots: Tensor  # (B, G, J) how the step before numbered the slots that this one wrote after
    stuck: Tensor  # (B, G, J) after which nothing could be written
    stuck_scores: Tensor  # (B, G, J)


class History:
    """The steps of B searches, G groups each, `width` hypotheses in a group."""

    def __init__(self, searches: int, groups: int, width: int) -> None:
        self.shape = searches, groups, width
        self.steps: list[tuple[list[int], Step]] = []

    def add(self, searches: list[int], step: Step) -> None:
        """A step of these searches; the others are over."""
        self.steps.append((searches, step))

    def best(self, searches: list[int], open: Tensor, n: int) -> list[list[Hypothesis]]:
        """The n best of each search, those included that are still open (B, G, L) after the last step.

        Of equal ones, what ended first comes first.
        """
        count, groups, _ = self.shape
        if not self.steps:  # nothing was to be written
            return [[Hypothesis((), (), 0.0, False)] for _ in range(count)]
        steps: Any = Step(*(self._whole(name) for name in Step._fields))  # each (T, B, G, W)
        last = len(self.steps) - 1
        cut = np.zeros_like(steps.complete)
        cut[last] = _spread(open, self.shape, searches).cpu().numpy()
        # one line for each: search, step, kind, group, slot; in the order in which they ended
        ended = (_lines(steps.stuck, 0), _lines(steps.complete, 1), _lines(cut, 2))
        search, at, kind, group, slot = np.concatenate(ended, 1)
        place = at, search, group, slot
        scores = np.where(kind == 0, steps.stuck_scores[place], steps.scores[place])
        order = np.lexsort((slot, group, kind, at, -scores, search))
        search, at, kind, group, slot, scores = (x[order] for x in (search, at, kind, group, slot, scores))
        if groups == 1:  # otherwise two groups may have written the same, and that is known once it is read
            rank = np.arange(len(search)) - np.searchsorted(search, search)
            search, at, kind, group, slot, scores = (x[rank < n] for x in (search, at, kind, group, slot, scores))
        slot = np.where(kind == 0, steps.slots[at, search, group, slot], slot)
        ids, log_probs = _walked(steps, search, at - (kind == 0), group, slot)
        found: list[dict[tuple[int, ...], Hypothesis]] = [{} for _ in range(count)]
        for one, b in enumerate(search.tolist()):
            length = int(at[one]) + int(kind[one] != 0)
            own = tuple(ids[one, :length].tolist())
            whole = Hypothesis(own, tuple(log_probs[one, :length].tolist()), float(scores[one]), bool(kind[one] == 1))
            found[b].setdefault(own, whole)
        return [list(one.values())[:n] for one in found]

    def _whole(self, name: str) -> Any:
        parts = [_spread(getattr(step, name), self.shape, searches) for searches, step in self.steps]
        return torch.stack(parts).cpu().numpy()


def _spread(values: Tensor, shape: tuple[int, int, int], searches: Sequence[int]) -> Tensor:
    """(b, G, L) of some searches → (B, G, W) of all."""
    count, _, width = shape
    if values.shape[-1] < width:
        values = F.pad(values, (0, width - values.shape[-1]))
    if len(searches) == count:
        return values
    whole = values.new_zeros(count, *values.shape[1:])
    whole[list(searches)] = values
    return whole


def _lines(ended: np.ndarray, kind: int) -> np.ndarray:
    at, search, group, slot = ended.nonzero()
    return np.stack([search, at, np.full_like(at, kind), group, slot])


def _walked(steps: Any, search: np.ndarray, last: np.ndarray, group: np.ndarray, slot: np.ndarray) -> tuple[Any, Any]:
    """Ids and log p (M, T) of M hypotheses that ended in these slots of these steps; −1: in none."""
    ids = np.zeros((len(search), len(steps.ids)), np.int64)
    log_probs = np.zeros(ids.shape, np.float64)
    for t in reversed(range(len(steps.ids))):
        on = (last >= t).nonzero()[0]
        place = search[on], group[on], slot[on]
        ids[on, t] = steps.ids[t][place]
        log_probs[on, t] = steps.log_probs[t][place]
        slot[on] = steps.parents[t][place]
    return ids, log_probs


BLOCK = 128
SHORT = 4  # a row of fewer blocks for each of the k is looked at as it is


def waits(tensor: Tensor) -> bool:
    """Whether to ask a tensor for its values holds up what comes after it: everywhere but on a CPU."""
    return tensor.device.type != "cpu"


def leading(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Of each row (..., V), the k greatest scores and their ids (..., k), in the order of the ids."""
    size = scores.shape[-1]
    if k >= size:
        return scores, torch.arange(size, device=scores.device).expand(scores.shape)
    if size < SHORT * BLOCK * k:
        ids = _chosen(scores, k)
        return scores.gather(-1, ids), ids
    whole = size // BLOCK * BLOCK
    maxima = scores[..., :whole].unflatten(-1, (-1, BLOCK)).amax(-1)
    if whole < size:
        maxima = torch.cat([maxima, scores[..., whole:].amax(-1, keepdim=True)], -1)
    blocks = _chosen(maxima, k)
    ids = (blocks.unsqueeze(-1) * BLOCK + torch.arange(BLOCK, device=scores.device)).flatten(-2)
    few = scores.gather(-1, ids.clamp(max=size - 1)).masked_fill_(ids >= size, -math.inf)
    at = _chosen(few, k)
    return few.gather(-1, at), ids.gather(-1, at).clamp_(max=size - 1)


def _chosen(scores: Tensor, k: int) -> Tensor:
    """Where the k greatest stand, in the order of their places."""
    if not waits(scores):  # elsewhere, to ask whether there are ties costs more than to settle them
        found = scores.topk(k + 1)
        last, next_one = found.values[..., k - 1], found.values[..., k]
        if not bool(((last == next_one) & (last > -math.inf)).any()):
            return found.indices[..., :k].sort(-1).values
    return scores.sort(dim=-1, descending=True, stable=True).indices[..., :k].sort(-1).values


def top(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k greatest of (..., N), or all if they are fewer, and where they stand: greatest first, the first of equals
    first.
    """
    k = min(k, values.shape[-1])
    if k < 1:
        return values[..., :0], values[..., :0].long()
    found, at = leading(values, k)
    ordered = found.sort(dim=-1, descending=True, stable=True)
    return ordered.values, at.gather(-1, ordered.indices)


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
