"""Contrastive search: likely, and unlike what was said before.

Su, Lan, Wang, Yogatama, Kong & Collier, "A Contrastive Framework for Neural Text Generation" (2022), eq. 5: of the k
likeliest tokens, the one is written that has the greatest

    (1 − α) · p(v | x)  −  α · max over the tokens j before of  cos(h_v, h_j)

where h is the last layer's vector of a token that was read. Each candidate must be read for that, so a step reads k
rows where others read one; the row of the one that is chosen goes on.

    state ──▶ candidate 1 … k, read side by side ──▶ h, likeness ──▶ the best one's state, and p of its next token
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nextword import nest
from nextword.contract import Contrastive, Inputs, State
from nextword.contract_errors import Unsupported
from nextword.generation.beam import top
from nextword.generation.rules import Rules, ensure_numbers, normalise, validate


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
