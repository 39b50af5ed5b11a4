"""Objectives of word vectors: negative sampling (word2vec) and weighted least squares on co-occurrence counts (GloVe).

Neither is the likelihood of a text, so neither has a perplexity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from nextword.batching.settings import require_number
from nextword.batching.token_stream import Stream
from nextword.batching.word_vectors import Cells, Contexts, WordSampler, build_word_sampler, count_cooccurrences
from nextword.core.errors import invalid
from nextword.core.types import IGNORE, Batch, Inputs, Loss, State, Vocabulary
from nextword.objectives.base import Objective, build_layout

VALIDATION_SEED = 7


class NegativeSamplingObjective(Objective[Stream]):
    """Tell a word from K noise words, given the words around it (Mikolov et al. 2013).

        J = −log σ(score of the word) − Σ_k log σ(−score of noise word k)      for each context word (skip-gram),
                                                                               or for each window (CBOW)

    The loss is a sum of 1 + K binary decisions: fewer noise words lower it without making the vectors better.
    """

    needs_vocabulary = True
    is_likelihood = False
    has_perplexity = False

    def __init__(self, batches: Mapping[str, Any], vocabulary: Vocabulary) -> None:
        self.layout = build_layout(batches, {"contexts": Contexts}, "negative_sampling")
        self.vocabulary = vocabulary
        self.sampler: WordSampler | None = None  # of the training text, also for validation

    def batches_per_epoch(self, text: Stream) -> int:
        self.sampler = self._build_sampler(text)
        return self.layout.batches_per_epoch(text.ids)

    def batches(self, text: Stream, seed: int, step: int) -> Iterator[Batch]:
        return self.layout.batches(text.ids, self.sampler or self._build_sampler(text), seed, step)

    def validation_batches(self, text: Stream) -> Iterator[Batch]:
        sampler = self.sampler or self._build_sampler(text)
        count = self.layout.batches_per_epoch(text.ids)
        return (self.layout.batch(text.ids, sampler, VALIDATION_SEED, k) for k in range(count))

    def _build_sampler(self, text: Stream) -> WordSampler:
        return build_word_sampler(text.ids, self.vocabulary, self.layout.subsample, self.layout.power)

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        scores = network.scores(batch.inputs, batch.targets)  # (N, C or 1, 1 + K): the word, then the noise
        is_context = batch.inputs.token_mask
        assert is_context is not None
        if scores.shape[1] == 1:
            is_context = is_context.any(1, keepdim=True)
        signs = torch.ones(scores.shape[2], device=scores.device)
        signs[1:] = -1
        counted = is_context.unsqueeze(2) & (batch.targets != IGNORE).unsqueeze(1)
        nats = -(F.logsigmoid(scores * signs) * counted).sum()
        count = int(is_context.sum())
        return Loss(nats / max(count, 1), nats.detach(), count)


class CooccurrenceObjective(Objective[Stream]):
    """Fit the logarithm of co-occurrence counts X (Pennington, Socher & Manning 2014, "GloVe"; models/glove.py).

        J = ½ Σ f(X) (score − log X)²        f(X) = min(1, (X / x_max)^power)

    Rare cells are noisy and count little; frequent ones do not count without bound. An epoch is one pass over all cells
    in random order. There is no validation: counts of another text have another scale.
    """

    needs_vocabulary = True
    is_likelihood = False
    has_perplexity = False
    has_validation = False

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
            raise invalid("batches", dict(batches), "must be like { kind = 'cells', cells = 65536 }.")
        require_number("objective.power", power, 0)
        require_number("objective.x_max", x_max, 0, exclude_low=True)
        self.size, self.vocabulary, self.window, self.x_max, self.power = size, vocabulary, window, x_max, power
        self.cells: Cells | None = None

    def batches_per_epoch(self, text: Stream) -> int:
        return -(-len(self._count_cells(text)) // self.size)

    def _count_cells(self, text: Stream) -> Cells:
        if self.cells is None:
            self.cells = count_cooccurrences(text, self.vocabulary, self.window)
        return self.cells

    def weights(self, counts: np.ndarray) -> np.ndarray:
        """f(X)."""
        return np.minimum(1.0, (counts / self.x_max) ** self.power)

    def batches(self, text: Stream, seed: int, step: int) -> Iterator[Batch]:
        cells, per_epoch = self._count_cells(text), self.batches_per_epoch(text)
        epoch, first = divmod(step, per_epoch)
        while True:
            order = np.random.default_rng([seed, epoch]).permutation(len(cells))
            for k in range(first, per_epoch):
                chosen = order[k * self.size : (k + 1) * self.size]
                counts = cells.counts[chosen]
                targets = np.stack([np.log(counts), self.weights(counts)], 1).astype(np.float32)
                pairs = torch.from_numpy(cells.pairs[chosen].astype(np.int64))
                yield Batch(Inputs(pairs), torch.from_numpy(targets), reset_state=True, epoch=epoch)
            epoch, first = epoch + 1, 0

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        logs, weights = batch.targets.unbind(1)
        cost = 0.5 * (weights * (network.scores(batch.inputs) - logs) ** 2).sum()
        return Loss(cost / len(logs), cost.detach(), len(logs))
