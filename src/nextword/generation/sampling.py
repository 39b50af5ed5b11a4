"""One token after another: greedy, or drawn from the model under the rules; one row, or many side by side.

The log-probability that comes with a token is the model's own, untouched by temperature, top-k, top-p or repetition:
added up, they are what `score` would say of the text.

One id for each row of scores: the likeliest, or one drawn under temperature, top-k, top-p, min-p and typicality.

`rules.py` says what these are, over the whole vocabulary. Here they are the same functions over few ids: what lies
outside the nucleus need not be sorted, nor summed, to be left out.

    scores (B, V) ──top-k, or a top that must hold the nucleus──▶ scores (B, K) and their ids, in order ──▶ one id

Contrastive search: likely, and unlike what was said before.

Su, Lan, Wang, Yogatama, Kong & Collier, "A Contrastive Framework for Neural Text Generation" (2022), eq. 5: of the k
likeliest tokens, the one is written that has the greatest

    (1 − α) · p(v | x)  −  α · max over the tokens j before of  cos(h_v, h_j)

where h is the last layer's vector of a token that was read. Each candidate must be read for that, so a step reads k
rows where others read one; the row of the one that is chosen goes on.

    state ──▶ candidate 1 … k, read side by side ──▶ h, likeness ──▶ the best one's state, and p of its next token
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.core import pytree as nest
from nextword.core.errors import Unsupported
from nextword.core.protocols import Autoregressive
from nextword.core.types import Contrastive, Decoding, Greedy, Inputs, Sample, State
from nextword.generation.beam_search import top
from nextword.generation.logits_processors import (
    Rules,
    ensure_numbers,
    fewest,
    min_p,
    normalise,
    sharpened,
    total,
    typicality,
    validate,
)

NOTHING = -1  # in place of an id, where the rules leave none
WIDTHS = (1024, 8192)  # ids to look for the nucleus among, before it is looked for among all

Generators = torch.Generator | Sequence[torch.Generator]  # for all rows, or for each


def choose(scores: Tensor, how: Greedy | Sample, generators: Generators) -> Tensor:
    """One id for each row of the scores (B, V) → (B,); NOTHING where a row is all -inf.

    After a step of a large network every operation finds the caches cold: few are made, not only small ones.
    """
    if isinstance(how, Greedy) or takes_the_best(how):
        best, chosen = scores.max(dim=-1)
        values = best.tolist()
        ensure_numbers(values)
    else:
        best = scores.amax(dim=-1, keepdim=True)
        values = best.flatten().tolist()
        ensure_numbers(values)
        few, ids = narrowed(scores, how, best if -math.inf not in values else None)
        chosen = draw(few, generators)
        if ids is not None:
            chosen = ids.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
    return chosen.masked_fill(best.view(-1) == -math.inf, NOTHING) if -math.inf in values else chosen


def takes_the_best(how: Greedy | Sample) -> bool:
    return isinstance(how, Greedy) or how.temperature == 0


def likeliest(scores: Tensor, log_probs: Tensor) -> tuple[Tensor, list[int], list[float]]:
    """What `choose` says where the best is taken, as a tensor of ids that exist and as a list, and the log p of each.

    For a GPU: all that must be known here comes over at once, for to ask three times is to wait three times.
    """
    best, chosen = scores.max(dim=-1)
    own = log_probs.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
    values, ids, known = torch.stack((best.double(), chosen.double(), own.double())).tolist()
    ensure_numbers(values)
    return chosen, [NOTHING if value == -math.inf else int(id) for value, id in zip(values, ids, strict=True)], known


def narrowed(scores: Tensor, how: Sample, best: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """What may be drawn, as scores (B, K) in proportion to log p, at most 0, and their ids in order; None: all ids.

    `best`: the greatest of each row (B, 1), where it is known and finite.
    """
    scores, ids = sharpened(scores, how.temperature, best), None
    if 0 < how.top_k < scores.shape[-1]:
        ids = greatest(scores, how.top_k)
        scores = scores.gather(-1, ids)
    if how.top_p < 1:
        whole = total(scores)
        scores, ids = _among_few(lambda few, key: fewest(few - whole, key, how.top_p), scores, scores, ids)
    if how.min_p > 0:
        scores, ids = _among_few(lambda few, _: min_p(few, how.min_p), scores, scores, ids)
    if how.typical < 1:
        scores = normalise(scores)
        scores, ids = _among_few(lambda few, key: fewest(few, key, how.typical), scores, typicality(scores), ids)
    return scores, ids


Rule = Callable[[Tensor, Tensor], Tensor]  # scores, and the key whose greatest it keeps → scores, else -inf


def _among_few(rule: Rule, scores: Tensor, key: Tensor, ids: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """What the rule keeps, looked for among the ids of greatest key alone where these settle it for every row."""
    for width in WIDTHS:
        if 2 * width > scores.shape[-1]:
            break
        at = greatest(key, width)  # in order, so that of equals the first comes first, as among all
        near = key.gather(-1, at)
        found = rule(scores.gather(-1, at), near)
        # Ids at the edge may have equals beyond it: settled is what stays clear of the edge.
        least = near.masked_fill(found == -math.inf, math.inf).amin(dim=-1)
        if bool((least > near.amin(dim=-1)).all()):
            return found, at if ids is None else ids.gather(-1, at)
    return rule(scores, key), ids


def greatest(values: Tensor, k: int) -> Tensor:
    """The ids of the k greatest of each row (B, V), in the order of the ids (B, k); of equals at the edge, any."""
    if values.device.type != "cpu":
        return values.topk(k, dim=-1).indices.sort(dim=-1).values
    found = np.argpartition(values.detach().numpy(), -k, axis=-1)[:, -k:]  # on a CPU a fraction of topk's time
    found.sort(axis=-1)
    return torch.from_numpy(found)


def draw(scores: Tensor, generators: Generators) -> Tensor:
    """One id for each row, with probability in proportion to exp(scores), by inverting the cumulative sum.

    Scores are log-probabilities, or else at most 0 with the best near it. One uniform number a row, drawn on the CPU:
    the same seed writes the same text on every device.
    """
    if isinstance(generators, torch.Generator):
        uniform = torch.rand(len(scores), 1, generator=generators, dtype=torch.float64)
    else:
        uniform = torch.cat([torch.rand(1, 1, generator=one, dtype=torch.float64) for one in generators])
    cumulative = scores.exp().cumsum(dim=-1, dtype=torch.float64)
    # The first id whose sum is above a number below the whole: never an id of probability zero, which adds nothing.
    chosen = torch.searchsorted(cumulative, uniform.to(scores.device) * cumulative[:, -1:], right=True)
    return chosen.squeeze(1).clamp(max=scores.shape[-1] - 1)


def seeded(how: Decoding, row: int = 0) -> torch.Generator:
    """A generator that starts at the seed asked for, or anywhere. Row i of many is written as with the seed + i."""
    generator = torch.Generator()
    if isinstance(how, Sample) and how.seed is not None:
        generator.manual_seed((how.seed + row) % 2**63)
    else:
        generator.seed()
    return generator


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


def ensure_vectors(model: Any) -> None:
    """Refuses a model that has no vectors to compare."""
    if not (hasattr(model, "hidden") and hasattr(model, "readout")):
        raise Unsupported(
            f"{type(model).__name__} has no vectors inside, so contrastive search has no likeness to measure. Use a "
            "network, or another way to write: greedy, sampling or beam search."
        )


def contrastive(
    model: Any,
    last: Tensor,
    state: State,
    how: Contrastive = Contrastive(),
    *,
    before: Tensor | None = None,
    written: Sequence[int] = (),
    banned: Iterable[int] = (),
    allowed: Iterable[int] | None = None,
    end: int | None = None,
    least: int = 0,
) -> Iterator[tuple[int, float]]:
    """Endless pairs (id, log p) for one row, as `sampling.tokens`; `before` (N, D): vectors of the tokens in the state.

    p is under the rules (banned tokens and the like), and normalised; the log p that comes out is the model's own.
    """
    validate(how)
    ensure_vectors(model)
    return _contrastive_stream(model, last, state, how, Rules(how, [written], banned, allowed, end, least), before)


@torch.no_grad()
def _contrastive_stream(
    model: Any, last: Tensor, state: State, how: Contrastive, rules: Rules, before: Tensor | None
) -> Iterator[tuple[int, float]]:
    h, state = model.hidden(Inputs(last.unsqueeze(1)), state)
    h = h[-1][:, -1]  # (1, D), as the readout reads it
    memory = _Memory(vectors(model, h), before)
    while True:
        log_probs = model.readout.log_probs(h)
        scores = normalise(rules.scores(log_probs))[0].double()
        ensure_numbers(scores.amax())
        found, ids = top(scores, how.k)
        ids = ids[found > -math.inf]
        if not len(ids):
            return
        rows = torch.zeros(len(ids), dtype=torch.long, device=last.device)
        layers, states = model.hidden(Inputs(ids.to(last).unsqueeze(1)), nest.take(state, rows))
        h = layers[-1][:, -1]  # (k, D)
        unit = vectors(model, h)
        values = (1 - how.alpha) * scores[ids].exp() - how.alpha * memory.likeness(unit).double()
        best = values.max(dim=0).indices.unsqueeze(0)
        h, state = h[best], nest.take(states, best)
        memory.add(unit[best])
        rules.wrote(ids[best])
        yield int(ids[best]), float(log_probs[0, ids[best]])


def vectors(model: Any, h: Tensor) -> Tensor:
    """(…, D) → of length one. What stands beside the last layer, for the readout alone, is no part of it."""
    return F.normalize(h[..., : model.widths[-1]].float(), dim=-1)


class _Memory:
    """Vectors of all tokens before, of length one, with room that doubles."""

    def __init__(self, first: Tensor, before: Tensor | None):
        self.kept = first if before is None else torch.cat([before.to(first), first])
        self.count = len(self.kept)

    def likeness(self, unit: Tensor) -> Tensor:
        """(k, D) → (k,): the greatest cosine with a token before."""
        return (unit @ self.kept[: self.count].T).amax(dim=1)

    def add(self, unit: Tensor) -> None:
        if self.count == len(self.kept):
            self.kept = torch.cat([self.kept, torch.zeros_like(self.kept)])
        self.kept[self.count] = unit[0]
        self.count += 1
