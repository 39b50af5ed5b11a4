"""One token after another: greedy, or drawn from the model under the rules; one row, or many side by side.

The log-probability that comes with a token is the model's own, untouched by temperature, top-k, top-p or repetition:
added up, they are what `score` would say of the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nextword import nest
from nextword.contract import Greedy, Sample, State
from nextword.contract_protocols import Autoregressive
from nextword.generation.choosing import NOTHING, choose, likeliest, seeded, takes_the_best
from nextword.generation.rules import Rules, validate


class Rows:
    """B rows that are written side by side. Consumes the state.

        while rows:
            for id, log_prob in rows.step(): ...     one token in each row; NOTHING where the rules leave none
            rows.keep([0, 2])                        the others have ended, and cost nothing from here on

    Each row has its own generator, so that what it says does not depend on its neighbours.
    """

    def __init__(
        self,
        model: Autoregressive,
        last: Tensor,
        state: State,
        how: Greedy | Sample,
        rules: Rules,
        generators: Sequence[torch.Generator] | None = None,
    ):
        self.model, self.last, self.state, self.how, self.rules = model, last, state, how, rules
        self.generators = list(generators or [seeded(how, row) for row in range(len(last))])

    def __len__(self) -> int:
        return len(self.last)

    @torch.no_grad()
    def step(self) -> list[tuple[int, float]]:
        log_probs, self.state = self.model.step(self.last, self.state)
        scores = self.rules.scores(log_probs)
        if log_probs.is_cuda and takes_the_best(self.how):
            chosen, ids, own = likeliest(scores, log_probs)
        else:
            chosen = choose(scores, self.how, self.generators)
            ids = chosen.tolist()
            if NOTHING in ids:  # such a row must be fed something until it is left out
                chosen = chosen.clamp(min=0)
            own = log_probs.gather(1, chosen.unsqueeze(1)).flatten().tolist()
        self.rules.wrote(chosen)
        self.last = chosen.to(self.last)
        return list(zip(ids, own, strict=True))

    def keep(self, rows: Sequence[int]) -> None:
        """Goes on with these rows alone."""
        if len(rows) == len(self):
            return
        taken = torch.tensor(rows, dtype=torch.long, device=self.last.device)
        self.last = self.last[taken]
        self.generators = [self.generators[row] for row in rows]
        if rows:
            self.state = nest.take(self.state, taken)
            self.rules.take(taken)


def tokens(
    model: Autoregressive,
    last: Tensor,
    state: State,
    how: Greedy | Sample = Greedy(),
    *,
    written: Sequence[int] = (),
    banned: Iterable[int] = (),
    allowed: Iterable[int] | None = None,
    end: int | None = None,
    least: int = 0,
    generator: torch.Generator | None = None,
) -> Iterator[tuple[int, float]]:
    """Endless pairs (id, log p) for one row, each made when it is asked for; `last` (1,) is fed first.

    Consumes the state. `written` are ids, usually the prompt's, that the repetition rules count besides those made
    here. `end` is not written before `least` other tokens, and ends nothing: the stream ends only when the rules leave
    nothing to write. The generator (on the CPU) replaces `how.seed`.
    """
    validate(how)  # here and not in the stream: a generator function would wait for the first `next`
    rules = Rules(how, [written], banned, allowed, end, least)
    return _stream(Rows(model, last, state, how, rules, [generator] if generator else None))


def _stream(rows: Rows) -> Iterator[tuple[int, float]]:
    while True:
        (made,) = rows.step()
        if made[0] == NOTHING:
            return
        yield made


class Written(NamedTuple):
    """What `tokens_batch` wrote: rows padded with `end` (0 without one) and with log p = 0 past their lengths."""

    ids: Tensor  # (B, L)
    log_probs: Tensor  # (B, L)
    lengths: Tensor  # (B,), the `end` included


def tokens_batch(
    model: Autoregressive,
    last: Tensor,
    state: State,
    how: Greedy | Sample,
    length: int,
    end: int | None = None,
    *,
    written: Sequence[Sequence[int]] | None = None,
    banned: Iterable[int] = (),
    allowed: Iterable[int] | None = None,
    least: int = 0,
    generators: Sequence[torch.Generator] | None = None,
) -> Written:
    """Continues B rows at once, each until `end` or `length` tokens; a row that has ended costs nothing more."""
    validate(how)
    count = len(last)
    rules = Rules(how, written or [()] * count, banned, allowed, end, least)
    rows = Rows(model, last, state, how, rules, generators)
    made: list[list[tuple[int, float]]] = [[] for _ in range(count)]
    live = list(range(count))
    for _ in range(length):
        goes_on = []
        for place, (row, one) in enumerate(zip(live, rows.step(), strict=True)):
            if one[0] != NOTHING:
                made[row].append(one)
            if one[0] not in (NOTHING, end):
                goes_on.append(place)
        rows.keep(goes_on)
        live = [live[place] for place in goes_on]
        if not live:
            break
    lengths = [len(one) for one in made]
    longest = max(lengths, default=0)
    padded = [one + [(end or 0, 0.0)] * (longest - len(one)) for one in made]
    ids = torch.tensor([[id for id, _ in one] for one in padded], dtype=last.dtype, device=last.device)
    log_probs = torch.tensor([[p for _, p in one] for one in padded], dtype=torch.float, device=last.device)
    shape = count, longest
    return Written(ids.view(shape), log_probs.view(shape), torch.tensor(lengths, device=last.device))
