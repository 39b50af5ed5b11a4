"""Predict the next token from all before it, fed the true past (teacher forcing): J = −Σ_t log p(x_{t+1} | x_{≤t})."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from nextword.batching.rows import Rows
from nextword.batching.windows import Windows
from nextword.contract import Batch, Loss, NextwordError, State

BATCHES: dict[str, Any] = {"rows": Rows, "windows": Windows}
REDUCE = ("token", "sequence")


class Causal:
    """`reduce` says what the gradient is a mean over: tokens, or rows (then it is a sum over time, as Zaremba 2014)."""

    def __init__(self, batches: Mapping[str, Any], reduce: str = "token") -> None:
        options = dict(batches)
        kind = options.pop("kind", "rows")
        if kind not in BATCHES or reduce not in REDUCE:
            raise NextwordError(
                f"The causal objective has batches of kind {' or '.join(BATCHES)} and reduce = {' or '.join(REDUCE)}; "
                f"the recipe says '{kind}' and '{reduce}'."
            )
        try:
            self.layout = BATCHES[kind](**options)
        except TypeError:
            fields = ", ".join(BATCHES[kind].__dataclass_fields__)
            raise NextwordError(
                f"Batches of kind '{kind}' take {fields}; the recipe says {', '.join(options)}."
            ) from None
        self.reduce = reduce

    def per_epoch(self, ids: np.ndarray) -> int:
        return self.layout.per_epoch(ids)

    def batches(self, ids: np.ndarray, seed: int, step: int) -> Iterator[Batch]:
        return self.layout.batches(ids, seed, step)

    def held_out(self, ids: np.ndarray) -> Iterator[Batch]:
        """One pass over held-out text in few rows, so that nearly every token has its whole past."""
        rows = max(1, min(10, len(ids) // 500))
        layout = Rows(rows, 128)
        batches = layout.batches(ids, 0, 0)
        return (next(batches) for _ in range(layout.per_epoch(ids)))

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        layers, state = network.hidden(batch.inputs, state)
        rows, predicted = batch.targets.shape
        h = layers[-1][:, -predicted:]  # targets belong to the last positions
        nats = network.readout.total(h.reshape(-1, h.shape[-1]), batch.targets.reshape(-1))
        count = rows * predicted
        value = nats / (count if self.reduce == "token" else rows)
        return Loss(value, nats.detach(), count, state)
