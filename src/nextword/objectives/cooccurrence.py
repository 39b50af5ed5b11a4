"""Fit the logarithm of how often words stand together (batching/cooccurrence.py, models/glove.py).

    f(X) = min(1, (X / x_max)^power)      rare cells are noise and count little; common ones do not count without bound

An epoch is all cells once, in an order of its own. Nothing is held out: counts of another text are of another size, and
say nothing of how well these are fitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from nextword.batching.cooccurrence import Cells, cooccurrences
from nextword.contract import Batch, Inputs, Loss, State, Vocabulary
from nextword.contract_errors import NextwordError


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
