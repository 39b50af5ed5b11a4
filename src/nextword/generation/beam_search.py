"""Beam search, once, for every model that can step.

At each step every open hypothesis is extended by every token, and the best `width` extensions stay. A hypothesis that
ends is complete and keeps its place, so the beam narrows as hypotheses complete (Graves 2012; Bahdanau et al. 2015).
Hence a beam of one is greedy decoding, whatever the length penalty.

    width 2        a .5            a b .175
             <                <
                   b .4            b end .36    complete: one place is left

B searches run side by side, and nothing in a step waits for a GPU: hypotheses are numbers in slots (B, G, J), −inf for
a slot without an open hypothesis, and whether all searches are over is asked only now and then. G groups of hypotheses
make beams diverse (Vijayakumar et al. 2018): groups are extended one after the other, and a token is penalized for
each time that earlier groups have chosen it in this step. That penalty decides the choice but is not part of a score.

The file goes from the search itself to its parts: `beam_search`, the beams, the scores, the history of steps from which
hypotheses are read, and the largest values of a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.core.errors import Unsupported
from nextword.core.slices import end_slice
from nextword.core.types import Beam, State
from nextword.generation.logits_processors import LogitsProcessor, check_decoding, reject_nan


class Stepper(Protocol):
    """A model, as far as decoding needs it: one step at a time."""

    def step(self, last: Tensor, state: State) -> tuple[Tensor, State]: ...  # (B,) → log p (B, V)


class BeamModel(Stepper, Protocol):
    """A model that can also reorder its state when hypotheses branch. With `has_attention` it has `covered`, too."""

    has_attention: bool

    def reorder(self, state: State, rows: Tensor, searches: list[int] | None) -> State: ...


@dataclass(frozen=True)
class Hypothesis:
    ids: tuple[int, ...]  # ends with `end` if complete
    log_probs: tuple[float, ...]  # of each id, the model's own, unchanged by the rules
    score: float  # sum of log p under the rules, divided by the length divisor, plus the coverage penalty
    complete: bool  # False: cut at the length, or nothing may be generated

    @property
    def log_prob(self) -> float:
        return math.fsum(self.log_probs)


class Considered(NamedTuple):
    """What a group of beams chose from in a step: the likeliest extensions of each of J hypotheses, best J · N."""

    ids: Tensor  # (B, J, N)
    log_probs: Tensor  # (B, J, N) the model's own
    totals: Tensor  # (B, J, N) sum of log p under the rules, with that of the hypothesis; −inf where it has ended


BeamObserver = Callable[["list[int]", "Step", "list[Considered]"], None]  # searches, what was kept, by group: of what

PATIENCE = 8  # steps on a GPU between checks which searches are over; on a CPU a check costs nothing


def beam_search(
    model: BeamModel,
    last: Tensor,
    state: State,
    decoding: Beam,
    length: int,
    end: int | None = None,
    *,
    n: int | None = None,
    preceding: Sequence[Sequence[int]] | None = None,
    forbidden: Iterable[int] = (),
    min_tokens: int = 0,
    observer: BeamObserver | None = None,
) -> list[list[Hypothesis]]:
    """The best `n` continuations (all `width` if None) of each of the rows `last` (B,), best first.

    A continuation is complete with `end`, after at least `min_tokens` other tokens, or cut at `length` tokens; both
    compete, because together they are all that the model can generate. With n < width the search stops as
    soon as the n best are certain. An `observer` sees every step. Consumes the state.
    """
    return exhaust(
        beam_search_steps(
            model,
            last,
            state,
            decoding,
            length,
            end,
            n=n,
            preceding=preceding,
            forbidden=forbidden,
            min_tokens=min_tokens,
            observer=observer,
        )
    )


@torch.no_grad()
def beam_search_steps(
    model: BeamModel,
    last: Tensor,
    state: State,
    decoding: Beam,
    length: int,
    end: int | None = None,
    *,
    n: int | None = None,
    preceding: Sequence[Sequence[int]] | None = None,
    forbidden: Iterable[int] = (),
    min_tokens: int = 0,
    observer: BeamObserver | None = None,
) -> Generator[None, None, list[list[Hypothesis]]]:
    """`beam_search`, pausing before every step but the first; the hypotheses are what the generator returns."""
    check_decoding(decoding)
    require_attention(model, decoding)
    beams = _Beams(decoding, length, end, n or decoding.width, last, observer)
    rules = LogitsProcessor(decoding, preceding or [()] * len(last), forbidden, end, min_tokens)
    for _ in range(length if len(last) else 0):
        log_probs, state = model.step(last, state)  # (R, V): first one row per search, then one per slot
        beams.extend(
            log_probs, rules.scores(log_probs), coverage_penalty(model, state, decoding) if decoding.coverage else None
        )
        if beams.over():
            break
        rows, last = beams.rows.flatten(), beams.ids.flatten().to(last.dtype)
        if beams.moved:
            state = model.reorder(state, rows, beams.kept)
            rules.take(rows)
        rules.update(last.long())
        yield
    return beams.best()


T = TypeVar("T")


def exhaust(steps: Generator[None, None, T]) -> T:
    """Run all steps and return the result."""
    while True:
        try:
            next(steps)
            end_slice()
        except StopIteration as end:
            result: T = end.value
            return result


class _Beams:
    """B searches side by side, G groups in each, and the hypotheses of a group in J slots, best first."""

    def __init__(
        self, decoding: Beam, length: int, end: int | None, n: int, last: Tensor, observer: BeamObserver | None = None
    ) -> None:
        self.decoding, self.length, self.end, self.n = decoding, length, end, n
        self.observer, self.considered = observer, list[Considered]()
        self.groups, self.width = decoding.groups, decoding.width // decoding.groups
        self.patience = PATIENCE if is_asynchronous(last) else 1
        self.searches = list(range(len(last)))  # numbers of the searches that are not over
        self.history = History(len(last), self.groups, self.width)
        self.length_so_far = 0  # tokens of the open hypotheses
        self.left = self.width  # places that can still be filled in a group, at most
        start = torch.zeros(len(last), self.groups, 1, dtype=torch.float64, device=last.device)
        self.totals = start  # (B, G, J) sum of log p under the rules; −inf: no open hypothesis
        self.covers = start  # (B, G, J) the coverage penalty, if there is one
        self.slots = start.long()  # (B, G, J) the numbers of these slots in the step before
        self.closed = start.long()  # (B, G, 1) places of hypotheses that have ended
        # (B, G, n) scores of the best that have ended
        self.certain = start.new_full((*start.shape[:2], min(n, self.width)), -math.inf)
        self.numbers = torch.arange(len(last) * decoding.width, device=last.device)
        self.broken = start.new_zeros(1, dtype=torch.bool)  # a probability was NaN
        self.rows = self.ids = self.slots  # (B, G, J) of the last step: the row extended, and the id
        self.moved = self.within = False  # whether rows changed places; whether their number stayed
        self.kept: list[int] | None = None  # searches of the last step that continue; None: all

    # -------------------------------------------------------------------------------------------- one step

    def extend(self, log_probs: Tensor, scores: Tensor, covers: Tensor | None) -> None:
        """Extend every open hypothesis by every token (R, V) and keep the best."""
        count, groups, slots = self.totals.shape
        apart = len(scores) // (count * slots)  # groups with rows of their own; 1 before the first step
        own_log_probs = log_probs.reshape(count, apart, slots, -1) if self.observer else None
        stuck, parents, ids, rows, totals = self._choose(scores.reshape(count, apart, slots, -1), own_log_probs)
        complete = (ids == self.end) & (totals > -math.inf) if self.end is not None else torch.zeros_like(ids).bool()
        stuck_scores = self.totals / length_divisor(self.decoding, self.length_so_far)
        new_scores = totals / length_divisor(self.decoding, self.length_so_far + 1)
        if covers is not None:
            stuck_scores = stuck_scores + self.covers
            self.covers = covers.view(count, apart, slots).expand(-1, groups, -1).gather(2, parents)
            new_scores = new_scores + self.covers
        own = log_probs.take(rows * scores.shape[1] + ids).double()
        step = Step(self.slots.gather(2, parents), ids, own, new_scores, complete, self.slots, stuck, stuck_scores)
        self.history.add(self.searches, step)
        if self.observer is not None:
            self.observer(self.searches, step, self.considered)
        self.length_so_far += 1
        self.closed = self.closed + stuck.sum(-1, keepdim=True) + complete.sum(-1, keepdim=True)
        ended = stuck_scores.masked_fill(~stuck, -math.inf), new_scores.masked_fill(~complete, -math.inf)
        self.certain = torch.cat([self.certain, *ended], -1).topk(self.certain.shape[-1]).values
        self.totals = self._close_certain(totals.masked_fill(complete, -math.inf))
        self.rows, self.ids, self.slots = rows, ids, self.numbers[: ids.shape[-1]].expand(ids.shape)
        self.within = apart == groups and rows.numel() == len(scores)
        self.kept = None
        self.moved = not self.within or ids.shape[-1] > 1  # one hypothesis per group stays where it is

    def _choose(self, scores: Tensor, log_probs: Tensor | None) -> Sequence[Tensor]:
        """Choose the best of the scores (B, G or 1, J, V), group after group; `log_probs` are for an observer.

        Returns which hypotheses cannot be extended (B, G, J); and for each extension (B, G, L) the slot that it
        extends, its id, the row of that slot, and the new total, −inf if a place is taken or nothing is left.
        """
        count, apart, slots, size = scores.shape
        first = self.numbers[: count * apart * slots].view(count, apart, slots)[..., :1]  # the row of slot 0
        # How often earlier groups chose each token
        used = scores.new_zeros(count, 1, size) if self.groups > 1 else None
        results = []
        self.considered = []
        for g in range(self.groups):
            own, before = scores[:, g % apart], self.totals[:, g].unsqueeze(-1)
            open = before > -math.inf
            penalized = own if used is None else own - self.decoding.diversity * used
            largest, ids = largest_in_order(penalized, min(self.left, size))
            values = torch.where(open, largest.double() + before, -math.inf)  # a closed slot may hold NaN
            if log_probs is not None:
                sums = torch.where(open, own.gather(-1, ids).double() + before, -math.inf)
                self.considered.append(Considered(ids, log_probs[:, g % apart].gather(-1, ids), sums))
            best = values.amax(-1)
            self.broken |= best.isnan().any()
            is_stuck = (best == -math.inf) & open.squeeze(-1)
            ordered = values.flatten(1).sort(dim=-1, descending=True, stable=True)  # ties: by slot, then by id
            values, at = ordered.values[:, : self.left], ordered.indices[:, : self.left]  # (B, L)
            parents, chosen = at // ids.shape[-1], ids.flatten(1).gather(1, at)
            room = self.width - self.closed[:, g] - is_stuck.sum(-1, keepdim=True)
            is_kept = (values > -math.inf) & (self.numbers[: values.shape[1]] < room)
            if used is not None:  # the total excludes the diversity penalty
                values = own.flatten(1).gather(1, parents * size + chosen).double()
                values = values + self.totals[:, g].gather(1, parents)
                used.scatter_add_(2, chosen.unsqueeze(1), is_kept.to(used).unsqueeze(1))
            rows = first[:, g % apart] + parents
            results.append((is_stuck, parents, chosen, rows, values.masked_fill(~is_kept, -math.inf)))
        return [torch.stack(x, 1) if self.groups > 1 else x[0].unsqueeze(1) for x in zip(*results, strict=True)]

    def _close_certain(self, totals: Tensor) -> Tensor:
        """Close a search in which no open hypothesis can still beat the n-th best complete one.

        A coverage penalty can only lower a score. A group that is certain continues while others are not, because it
        influences what they choose.
        """
        best = totals.amax(-1)  # (B, G)
        over = best == -math.inf
        if is_bounded(self.decoding):
            over = over | (self.certain[..., -1] >= best / best_divisor(self.decoding, self.length_so_far, self.length))
        return totals.masked_fill(over.all(1)[:, None, None], -math.inf)

    # -------------------------------------------------------------------------------------------- between steps

    def over(self) -> bool:
        """Whether nothing is left to extend. Checked now and then; searches that are over are then dropped."""
        if self.length_so_far >= self.length:
            return True
        if self.length_so_far % self.patience:
            return False
        open = self.totals > -math.inf
        broken, *alive = torch.cat([self.broken, open.flatten(1).any(1)]).tolist()
        if broken:
            reject_nan([math.nan])
        if not any(alive):
            return True
        size = len(alive)
        # Halve, because a recorded step has a fixed number of rows and few sizes should serve all searches.
        while sum(alive) <= size // 2:
            size //= 2
        if self.patience == 1:
            size = sum(alive)
        if size < len(alive):
            # Those alive and, to fill up the size, some others
            self._keep(sorted(sorted(range(len(alive)), key=lambda b: not alive[b])[:size]))
        if self.patience == 1:
            self._narrow()
            if self.within:
                self.moved = not torch.equal(self.rows.flatten(), self.numbers[: self.rows.numel()])
        return False

    def _narrow(self) -> None:
        """Reduce the slots to as many as the fullest group needs."""
        open = self.totals > -math.inf
        self.left = self.width - int(self.closed.amin())
        most = int(open.sum(-1).amax())
        if most == open.shape[-1]:
            return
        self.slots = (~open).int().sort(dim=-1, stable=True).indices[..., :most]
        self._rearrange(lambda x: x.gather(2, self.slots))

    def _keep(self, searches: list[int]) -> None:
        """Continue with these searches only."""
        self.searches, self.kept = [self.searches[b] for b in searches], searches
        at = torch.tensor(searches, device=self.totals.device)
        self.slots, self.closed, self.certain = self.slots[at], self.closed[at], self.certain[at]
        self._rearrange(lambda x: x[at])

    def _rearrange(self, change: Callable[[Tensor], Tensor]) -> None:
        self.totals, self.rows, self.ids = change(self.totals), change(self.rows), change(self.ids)
        if self.decoding.coverage:
            self.covers = change(self.covers)
        self.moved, self.within = True, False

    def best(self) -> list[list[Hypothesis]]:
        if bool(self.broken):
            reject_nan([math.nan])
        return self.history.best(self.searches, self.totals > -math.inf, self.n)


# ------------------------------------------------------------------------------------------------ scores


def length_divisor(decoding: Beam, length: int) -> float:
    """The divisor of a sum of `length` log p: lengthᵅ, or ((5 + length) / 6)ᵅ (Wu et al. 2016, eq. 14)."""
    length = max(length, 1)
    return float(((5 + length) / 6 if decoding.normalization == "gnmt" else length) ** decoding.length_penalty)


def best_divisor(decoding: Beam, tokens: int, length: int) -> float:
    """The best divisor for an open hypothesis of `tokens` tokens, which gets at least one more.

    Its sum of log p is negative, so the greatest divisor is best: at full length (penalty > 0) or at the next token.
    """
    return length_divisor(decoding, length if decoding.length_penalty > 0 else min(tokens + 1, length))


def is_bounded(decoding: Beam) -> bool:
    """Whether a sum never grows: log p is negative, but a positive bias or a repetition reward can raise it."""
    return decoding.repetition >= 1 and not any(value > 0 for value in decoding.bias.values())


def require_attention(model: BeamModel, decoding: Beam) -> None:
    """Raise Unsupported if a coverage penalty is set and the model has no attention over a source."""
    if decoding.coverage and not model.has_attention:
        raise Unsupported(
            f"coverage = {decoding.coverage} needs attention over a source, and {type(model).__name__} has none. Set "
            "it to 0, or use a translation model with attention.",
            ability="coverage",
        )


def coverage_penalty(model: Any, state: State, decoding: Beam) -> Tensor:
    """The coverage penalty of each row (R,): β Σ_i log min(Σ_j a_ij, 1) over the source tokens i (Wu et al., eq. 14).

    It is 0 if every source token has received a total attention of 1, and negative otherwise.
    """
    covered = model.covered(state).double()
    # A token without any attention costs much, but not everything: −inf would make all such texts equal.
    return covered.clamp(min=torch.finfo(torch.float32).tiny, max=1.0).log().sum(-1) * decoding.coverage


# ------------------------------------------------------------------------------------------------ history of steps


class Step(NamedTuple):
    """The record of one step, for B searches of G groups: J slots before it and L after it."""

    parents: Tensor  # (B, G, L) the slot of the step before that was extended
    ids: Tensor  # (B, G, L)
    log_probs: Tensor  # (B, G, L) the model's own
    scores: Tensor  # (B, G, L) the score of the hypothesis if it ends here
    complete: Tensor  # (B, G, L)
    slots: Tensor  # (B, G, J) the numbers of the extended slots in the step before
    stuck: Tensor  # (B, G, J) hypotheses that could not be extended
    stuck_scores: Tensor  # (B, G, J)


class History:
    """The steps of B searches, G groups each, `width` hypotheses in a group.

    A step records, for every slot, the id and the slot that it extends. Nothing else is stored while the search runs;
    at its end the hypotheses that count are read backwards, all at once.

        step      1        2        3
        slot 0    the ◂─┬─ cat ◂─── sat        read backwards from slot 0: sat, cat, the
        slot 1    a     └─ dog
    """

    def __init__(self, searches: int, groups: int, width: int) -> None:
        self.shape = searches, groups, width
        self.steps: list[tuple[list[int], Step]] = []

    def add(self, searches: list[int], step: Step) -> None:
        """Record a step of these searches; the others are over."""
        self.steps.append((searches, step))

    def best(self, searches: list[int], open: Tensor, n: int) -> list[list[Hypothesis]]:
        """The n best hypotheses of each search, including those still open (B, G, L) after the last step.

        Of equal ones, the one that ended first comes first.
        """
        count, groups, _ = self.shape
        if not self.steps:  # length 0
            return [[Hypothesis((), (), 0.0, False)] for _ in range(count)]
        steps: Any = Step(*(self._stack(name) for name in Step._fields))  # each (T, B, G, W)
        last = len(self.steps) - 1
        cut = np.zeros_like(steps.complete)
        cut[last] = _spread(open, self.shape, searches).cpu().numpy()
        # One column per hypothesis: search, step, kind, group, slot. Kinds: 0 stuck, 1 complete, 2 cut at the length
        ended = (_columns(steps.stuck, 0), _columns(steps.complete, 1), _columns(cut, 2))
        search, at, kind, group, slot = np.concatenate(ended, 1)
        place = at, search, group, slot
        scores = np.where(kind == 0, steps.stuck_scores[place], steps.scores[place])
        order = np.lexsort((slot, group, kind, at, -scores, search))
        search, at, kind, group, slot, scores = (x[order] for x in (search, at, kind, group, slot, scores))
        if groups == 1:  # two groups may have generated the same text, which is known only after reading it
            rank = np.arange(len(search)) - np.searchsorted(search, search)
            search, at, kind, group, slot, scores = (x[rank < n] for x in (search, at, kind, group, slot, scores))
        slot = np.where(kind == 0, steps.slots[at, search, group, slot], slot)
        ids, log_probs = _read_backwards(steps, search, at - (kind == 0), group, slot)
        results: list[dict[tuple[int, ...], Hypothesis]] = [{} for _ in range(count)]
        for i, b in enumerate(search.tolist()):
            length = int(at[i]) + int(kind[i] != 0)
            text = tuple(ids[i, :length].tolist())
            hypothesis = Hypothesis(text, tuple(log_probs[i, :length].tolist()), float(scores[i]), bool(kind[i] == 1))
            results[b].setdefault(text, hypothesis)
        return [list(texts.values())[:n] for texts in results]

    def _stack(self, name: str) -> Any:
        """A field of all steps, (T, B, G, W)."""
        parts = [_spread(getattr(step, name), self.shape, searches) for searches, step in self.steps]
        return torch.stack(parts).cpu().numpy()


def _spread(values: Tensor, shape: tuple[int, int, int], searches: Sequence[int]) -> Tensor:
    """(b, G, L) of some searches → (B, G, W) of all, padded with 0."""
    count, _, width = shape
    if values.shape[-1] < width:
        values = F.pad(values, (0, width - values.shape[-1]))
    if len(searches) == count:
        return values
    out = values.new_zeros(count, *values.shape[1:])
    out[list(searches)] = values
    return out


def _columns(ended: np.ndarray, kind: int) -> np.ndarray:
    """(5, M): search, step, kind, group and slot of every hypothesis that ended."""
    at, search, group, slot = ended.nonzero()
    return np.stack([search, at, np.full_like(at, kind), group, slot])


def _read_backwards(
    steps: Any, search: np.ndarray, last: np.ndarray, group: np.ndarray, slot: np.ndarray
) -> tuple[Any, Any]:
    """Ids and log p (M, T) of M hypotheses that ended in these slots of these steps; step −1: empty."""
    ids = np.zeros((len(search), len(steps.ids)), np.int64)
    log_probs = np.zeros(ids.shape, np.float64)
    for t in reversed(range(len(steps.ids))):
        on = (last >= t).nonzero()[0]
        place = search[on], group[on], slot[on]
        ids[on, t] = steps.ids[t][place]
        log_probs[on, t] = steps.log_probs[t][place]
        slot[on] = steps.parents[t][place]
    return ids, log_probs


# ------------------------------------------------------------------------------------------------ largest values

BLOCK = 128
SHORT = 4  # a row with fewer blocks for each of the k is searched directly


def is_asynchronous(tensor: Tensor) -> bool:
    """Whether reading the tensor's values waits for earlier operations: everywhere but on a CPU."""
    return tensor.device.type != "cpu"


def largest_in_order(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k greatest scores of each row (..., V) and their ids (..., k), by ascending id; the first of equals counts.

    `topk` breaks ties arbitrarily, and then a beam of one would not be greedy. A long row is searched in blocks first:
    the k greatest lie in the k blocks with the greatest maxima, if of equal blocks the first counts as well.

        scores (R, V) ──maxima──▶ (R, V / 128) ──k blocks──▶ scores (R, k · 128) ──▶ k ids
    """
    size = scores.shape[-1]
    if k >= size:
        return scores, torch.arange(size, device=scores.device).expand(scores.shape)
    if size < SHORT * BLOCK * k:
        ids = _largest_positions(scores, k)
        return scores.gather(-1, ids), ids
    full = size // BLOCK * BLOCK
    maxima = scores[..., :full].unflatten(-1, (-1, BLOCK)).amax(-1)
    if full < size:
        maxima = torch.cat([maxima, scores[..., full:].amax(-1, keepdim=True)], -1)
    blocks = _largest_positions(maxima, k)
    ids = (blocks.unsqueeze(-1) * BLOCK + torch.arange(BLOCK, device=scores.device)).flatten(-2)
    few = scores.gather(-1, ids.clamp(max=size - 1)).masked_fill_(ids >= size, -math.inf)
    at = _largest_positions(few, k)
    return few.gather(-1, at), ids.gather(-1, at).clamp_(max=size - 1)


def _largest_positions(scores: Tensor, k: int) -> Tensor:
    """The positions of the k greatest, ascending."""
    if not is_asynchronous(scores):  # elsewhere, asking whether there are ties costs more than a stable sort
        largest = scores.topk(k + 1)
        last, following = largest.values[..., k - 1], largest.values[..., k]
        if not bool(((last == following) & (last > -math.inf)).any()):
            return largest.indices[..., :k].sort(-1).values
    return scores.sort(dim=-1, descending=True, stable=True).indices[..., :k].sort(-1).values


def largest_sorted(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k greatest of (..., N), or all if fewer, and their positions: greatest first, the first of equals first."""
    k = min(k, values.shape[-1])
    if k < 1:
        return values[..., :0], values[..., :0].long()
    largest, at = largest_in_order(values, k)
    ordered = largest.sort(dim=-1, descending=True, stable=True)
    return ordered.values, at.gather(-1, ordered.indices)
