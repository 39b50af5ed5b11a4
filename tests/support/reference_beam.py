"""A readable beam search, one hypothesis at a time, as the reference for the tensor implementation.

Both sum in double precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nextword.core import pytree
from nextword.core.protocols import Autoregressive
from nextword.core.types import Beam, State
from nextword.generation.beam_search import Hypothesis
from nextword.generation.logits_processors import LogitsProcessor, check_decoding, reject_nan


@torch.no_grad()
def search_slowly(
    model: Autoregressive,
    last: Tensor,
    state: State,
    how: Beam,
    length: int,
    end: int | None = None,
    *,
    n: int | None = None,
    preceding: Sequence[Sequence[int]] | None = None,
    forbidden: Iterable[int] = (),
    min_tokens: int = 0,
    patient: bool = False,
) -> list[list[Hypothesis]]:
    """As `nextword.generation.beam_search.search`; with `patient`, search until no hypothesis is open."""
    check_decoding(how)
    searches = [_Search(how, length, end, n or how.width, patient) for _ in last]
    rules = LogitsProcessor(how, preceding or [()] * len(last), forbidden, end, min_tokens)
    for _ in range(length):
        log_probs, state = model.step(last, state)  # (R, V): the open hypotheses of all searches, one after another
        scores = rules.scores(log_probs)
        rows: list[int] = []
        chosen: list[int] = []
        first = 0
        for search in searches:
            own = slice(first, first + len(search.open))
            for row, id in search.extend(log_probs[own], scores[own]):
                rows.append(first + row)
                chosen.append(id)
            first = own.stop
        if not rows:
            break
        taken = torch.tensor(rows, device=last.device)
        last = torch.tensor(chosen, dtype=last.dtype, device=last.device)
        state = pytree.take(state, taken)
        rules.take(taken)
        rules.update(last.long())
    return [search.best() for search in searches]


@dataclass(slots=True)
class _Path:
    """A hypothesis as a chain back to its first token, so that extending it takes constant time."""

    before: _Path | None = None
    id: int = -1
    log_prob: float = 0.0
    total: float = 0.0  # sum of log p under the rules
    length: int = 0
    complete: bool = False


class _Search:
    """The search from one row."""

    def __init__(self, how: Beam, length: int, end: int | None, n: int, patient: bool):
        self.patient = patient
        self.how, self.length, self.end, self.n = how, length, end, n
        self.open = [_Path()]
        self.closed: list[_Path] = []

    def extend(self, log_probs: Tensor, scores: Tensor) -> list[tuple[int, int]]:
        """One step of the beam; returns (row of the hypothesis continued, id) for every one still open."""
        if not self.open:
            return []
        paths, self.open = self.open, []
        totals = scores.double() + torch.tensor([[path.total] for path in paths], dtype=torch.float64)
        best = totals.max(dim=-1).values
        reject_nan(best)
        self.closed += [path for path, top in zip(paths, best.tolist(), strict=True) if top == -math.inf]

        steps = []
        top_totals, indices = take_top(totals.flatten(), self.how.width - len(self.closed))
        own = log_probs.flatten()[indices].tolist()
        for total, index, log_prob in zip(top_totals.tolist(), indices.tolist(), own, strict=True):
            if total == -math.inf:
                break
            row, id = divmod(index, totals.shape[1])
            path = _Path(paths[row], id, log_prob, total, paths[row].length + 1, id == self.end)
            if path.complete:
                self.closed.append(path)
            else:
                self.open.append(path)
                steps.append((row, id))
        if self._certain():
            self.open = []
            return []
        return steps

    def best(self) -> list[Hypothesis]:
        ranked = sorted(self.closed + self.open, key=self._score, reverse=True)
        return [self._hypothesis(path) for path in ranked[: self.n]]

    def _certain(self) -> bool:
        """Whether no open hypothesis can still come before the n-th complete one."""
        if self.patient or len(self.closed) < self.n or not self.open:
            return False
        if self.how.repetition < 1 or any(value > 0 for value in self.how.bias.values()):
            return False  # a reward can make a total grow, so nothing bounds it
        # log p ≤ 0: a total never grows. Divided by a power of the length it is greatest at the longest (penalty > 0)
        # or at the next (penalty < 0), if there is a next.
        kindest = self.length if self.how.length_penalty > 0 else min(self.open[0].length + 1, self.length)
        bound = max(path.total for path in self.open) / self._divisor(kindest)
        return sorted(map(self._score, self.closed), reverse=True)[self.n - 1] >= bound

    def _score(self, path: _Path) -> float:
        return path.total / self._divisor(path.length)

    def _divisor(self, length: int) -> float:
        n = max(length, 1)
        return float((n if self.how.normalization == "power" else (5 + n) / 6) ** self.how.length_penalty)

    def _hypothesis(self, path: _Path) -> Hypothesis:
        ids: list[int] = []
        log_probs: list[float] = []
        step = path
        while step.before is not None:
            ids.append(step.id)
            log_probs.append(step.log_prob)
            step = step.before
        return Hypothesis(tuple(ids[::-1]), tuple(log_probs[::-1]), self._score(path), path.complete)


def take_top(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of (N,) and their indices in descending order; ties keep their order."""
    k = min(k, len(values))
    if k < 1:
        return values[:0], values[:0].long()
    least = values.topk(k).values[-1]
    above = (values > least).nonzero().squeeze(1)
    equal = (values == least).nonzero().squeeze(1)[: k - len(above)]
    at = torch.cat([above, equal])
    ordered = values[at].sort(descending=True, stable=True)
    return ordered.values, at[ordered.indices]
