"""Hypotheses of a beam: what one is, what it is worth, and how they are read out of the steps that wrote them.

A step leaves behind, for every slot, the id that was written there and the slot that it was written after. Nothing else
is kept while the search runs; at its end the hypotheses that count are walked back, all at once.

    step      1        2        3
    slot 0    the ◂─┬─ cat ◂─── sat        read backwards from slot 0: sat, cat, the
    slot 1    a     └─ dog
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.contract import Beam
from nextword.contract_errors import Unsupported


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
