"""Tell the word between others from words drawn at random: negative sampling (batching/contexts.py).

What it costs is the sum of 1 + K binary decisions for every word around a place. It is no likelihood of any text, and
it has no perplexity: with fewer words of noise it is lower, and not better.

Fit the logarithm of how often words stand together (batching/cooccurrence.py, models/glove.py).

    f(X) = min(1, (X / x_max)^power)      rare cells are noise and count little; common ones do not count without bound

An epoch is all cells once, in an order of its own. Nothing is held out: counts of another text are of another size, and
say nothing of how well these are fitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from nextword.batching.word_vectors import Cells, Contexts, Draws, cooccurrences, draws_of
from nextword.core.errors import NextwordError
from nextword.core.types import IGNORE, Batch, Inputs, Loss, State, Vocabulary

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


class Cooccurrence:
    """`batches` says how many `cells` one has; the rest is about X and f."""

    likelihood = False
    perplexity = False

    def __init__(
        self,
        batches: Mapping[str, Any],
        vocabulary: Vocabulary,
        window: int = 10,
        x_max: float = 100.0,
        power: float = 0.75,
    ) -> None:
        size = batches.get("cells", 1 << 16)
        if batches.keys() - {"kind", "cells"} or batches.get("kind", "cells") != "cells" or size < 1:
            raise NextwordError(
                "The objective 'cooccurrence' has batches of kind cells, as in { kind = 'cells', cells = 65536 }; the "
                f"recipe says {dict(batches)}."
            )
        if not x_max > 0 or power < 0:
            raise NextwordError(f"objective: x_max = {x_max}, power = {power}; expected above 0, and not below 0.")
        self.size, self.vocabulary, self.window, self.x_max, self.power = size, vocabulary, window, x_max, power
        self.counted: Cells | None = None

    def per_epoch(self, text: Any) -> int:
        return -(-len(self._cells(text)) // self.size)

    def _cells(self, text: Any) -> Cells:
        if self.counted is None:
            self.counted = cooccurrences(text, self.vocabulary, self.window)
        return self.counted

    def weights(self, counts: np.ndarray) -> np.ndarray:
        return np.minimum(1.0, (counts / self.x_max) ** self.power)

    def batches(self, text: Any, seed: int, step: int) -> Iterator[Batch]:
        cells, each = self._cells(text), self.per_epoch(text)
        epoch, at = divmod(step, each)
        while True:
            order = np.random.default_rng([seed, epoch]).permutation(len(cells))
            for k in range(at, each):
                chosen = order[k * self.size : (k + 1) * self.size]
                counts = cells.counts[chosen]
                wanted = np.stack([np.log(counts), self.weights(counts)], 1).astype(np.float32)
                pairs = torch.from_numpy(cells.pairs[chosen].astype(np.int64))
                yield Batch(Inputs(pairs), torch.from_numpy(wanted), fresh=True, epoch=epoch)
            epoch, at = epoch + 1, 0

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        logs, weights = batch.targets.unbind(1)
        cost = 0.5 * (weights * (network.scores(batch.inputs) - logs) ** 2).sum()
        return Loss(cost / len(logs), cost.detach(), len(logs))
