"""Tell the word between others from words drawn at random: negative sampling (batching/contexts.py).

What it costs is the sum of 1 + K binary decisions for every word around a place. It is no likelihood of any text, and
it has no perplexity: with fewer words of noise it is lower, and not better.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from nextword.batching.contexts import Contexts, Draws, draws_of
from nextword.contract import IGNORE, Batch, Loss, State, Vocabulary
from nextword.contract_errors import NextwordError

HELD = 7  # the seed of what is drawn for held-out text: the same at every validation


class Negatives:
    """`batches` are the fields of Contexts: words, window, subsample, negatives, power."""

    likelihood = False
    perplexity = False

    def __init__(self, batches: Mapping[str, Any], vocabulary: Vocabulary) -> None:
        options = dict(batches)
        kind = options.pop("kind", "contexts")
        if kind != "contexts" or options.keys() - Contexts.__dataclass_fields__.keys():
            raise NextwordError(
                f"The objective 'contexts' has batches of kind contexts with {', '.join(Contexts.__dataclass_fields__)}"
                f"; the recipe says {dict(batches)}."
            )
        self.layout, self.vocabulary = Contexts(**options), vocabulary
        self.draws: Draws | None = None

    def per_epoch(self, text: Any) -> int:
        self.draws = draws_of(text.ids, self.vocabulary, self.layout.subsample, self.layout.power)
        return self.layout.per_epoch(text.ids)

    def batches(self, text: Any, seed: int, step: int) -> Iterator[Batch]:
        return self.layout.batches(text.ids, self._draws(text), seed, step)

    def held_out(self, text: Any) -> Iterator[Batch]:
        """One pass, with the noise of the training text."""
        draws = self._draws(text)
        return (self.layout.batch(text.ids, draws, HELD, k) for k in range(self.layout.per_epoch(text.ids)))

    def _draws(self, text: Any) -> Draws:
        return self.draws or draws_of(text.ids, self.vocabulary, self.layout.subsample, self.layout.power)

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        """−log σ of the word, −log σ(−·) of the noise, for each word around: the mean over those is differentiated."""
        scores = network.scores(batch.inputs, batch.targets)  # (N, C or 1, 1 + K)
        assert batch.inputs.padding is not None
        there = batch.inputs.padding if scores.shape[1] > 1 else batch.inputs.padding.any(1, keepdim=True)
        signs = torch.ones(scores.shape[2], device=scores.device)
        signs[1:] = -1
        asked = there.unsqueeze(2) & (batch.targets != IGNORE).unsqueeze(1)
        nats = -(F.logsigmoid(scores * signs) * asked).sum()
        count = int(there.sum())
        return Loss(nats / max(count, 1), nats.detach(), count)
