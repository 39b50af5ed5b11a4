"""One token after another: greedy, or drawn from the model under the rules.

The log-probability that comes with a token is the model's own, untouched by temperature, top-k, top-p or repetition:
added up, they are what `score` would say of the text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nextword.contract import Autoregressive, Greedy, Sample, State
from nextword.generation.rules import Rules, ensure_numbers, temperature, top_k, top_p, validate


def tokens(
    model: Autoregressive,
    last: Tensor,
    state: State,
    how: Greedy | Sample = Greedy(),
    *,
    written: Sequence[int] = (),
    banned: Iterable[int] = (),
    allowed: Iterable[int] | None = None,
    generator: torch.Generator | None = None,
) -> Iterator[tuple[int, float]]:
    """Endless pairs (id, log p) for one row, each made when it is asked for; `last` (1,) is fed first.

    Consumes the state. `written` are ids, usually the prompt's, that the repetition rules count besides those made
    here. Ends only when the rules leave nothing to write. The generator (on the CPU) replaces `how.seed`.
    """
    validate(how)  # here and not in the stream: a generator function would wait for the first `next`
    rules = Rules(how, [written], banned, allowed)
    return _stream(model, last, state, how, rules, generator or seeded(how))


@torch.no_grad()
def _stream(
    model: Autoregressive, last: Tensor, state: State, how: Greedy | Sample, rules: Rules, generator: torch.Generator
) -> Iterator[tuple[int, float]]:
    while True:
        log_probs, state = model.step(last, state)
        chosen = choose(rules.scores(log_probs), how, generator)
        id = int(chosen)
        if id == NOTHING:
            return
        rules.wrote(chosen)
        last = chosen.to(last)
        yield id, float(log_probs[0, id])


class Written(NamedTuple):
    """What `tokens_batch` wrote: rows padded with `end` (0 without one) and with log p = 0 past their lengths."""

    ids: Tensor  # (B, L)
    log_probs: Tensor  # (B, L)
    lengths: Tensor  # (B,), the `end` included


@torch.no_grad()
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
    generator: torch.Generator | None = None,
) -> Written:
    """Continues B rows at once, each until `end` or `length` tokens; stops when all have ended."""
    validate(how)
    generator = generator or seeded(how)
    rows = len(last)
    rules = Rules(how, written or [()] * rows, banned, allowed)
    live = torch.ones(rows, dtype=torch.bool, device=last.device)
    ids: list[Tensor] = []
    log_ps: list[Tensor] = []
    lengths = torch.zeros(rows, dtype=torch.long, device=last.device)
    for _ in range(length):
        log_probs, state = model.step(last, state)
        chosen = choose(rules.scores(log_probs), how, generator).to(last)
        live = live & (chosen != NOTHING)
        chosen = chosen.masked_fill(~live, 0 if end is None else end)
        log_p = log_probs.gather(1, chosen[:, None].long()).squeeze(1)
        ids.append(chosen)
        log_ps.append(log_p.float().masked_fill(~live, 0.0))
        lengths += live
        if end is not None:
            live = live & (chosen != end)
        if not live.any():
            break
        rules.wrote(chosen.long())
        last = chosen
    if not ids:
        return Written(last.new_zeros(rows, 0), torch.zeros(rows, 0, device=last.device), lengths)
    longest = int(lengths.max())  # a row that could write nothing took part in a step without adding to it
    return Written(torch.stack(ids, 1)[:, :longest], torch.stack(log_ps, 1)[:, :longest], lengths)


# ------------------------------------------------------------------------------------------------ choosing

NOTHING = -1  # in place of an id, where the rules leave none


def choose(scores: Tensor, how: Greedy | Sample, generator: torch.Generator) -> Tensor:
    """One id for each row of the scores (B, V) → (B,); NOTHING where a row is all -inf."""
    best = scores.max(dim=-1)
    ensure_numbers(best.values)
    if isinstance(how, Greedy) or how.temperature == 0:
        chosen = best.indices
    else:
        if how.temperature != 1:
            scores = temperature(scores, how.temperature)
        if how.top_k:
            scores = top_k(scores, how.top_k)
        if how.top_p != 1:
            scores = top_p(scores, how.top_p)
        chosen = draw(scores, generator)
    return chosen.masked_fill(best.values == -math.inf, NOTHING)


def draw(scores: Tensor, generator: torch.Generator) -> Tensor:
    """One id for each row, with probability in proportion to exp(scores), by inverting the cumulative sum.

    One uniform number a row, drawn on the CPU: the same seed writes the same text on every device.
    """
    uniform = torch.rand(len(scores), 1, generator=generator, dtype=torch.float64)
    cumulative = (scores - scores.max(dim=-1, keepdim=True).values).cpu().double().exp().cumsum(dim=-1)
    # The first id whose sum is above a number below one: never an id of probability zero, which adds nothing.
    cumulative = cumulative / cumulative[:, -1:]
    chosen = torch.searchsorted(cumulative, uniform, right=True).squeeze(1)
    return chosen.clamp(max=scores.shape[-1] - 1).to(scores.device)


def seeded(how: Greedy | Sample) -> torch.Generator:
    """A generator that starts at the seed asked for, or anywhere."""
    generator = torch.Generator()
    if isinstance(how, Sample) and how.seed is not None:
        generator.manual_seed(how.seed)
    else:
        generator.seed()
    return generator
