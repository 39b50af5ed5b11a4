"""Causal language modeling: predict each token from all tokens before it, with teacher forcing.

J = −Σ_t log p(x_{t+1} | x_{≤t})
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword.batching.causal import Blocks, CausalLayout, Rows, Shifted, Variable, Windows, validation_rows
from nextword.batching.settings import require_choice, require_number
from nextword.batching.token_stream import Stream
from nextword.core.errors import Unsupported
from nextword.core.types import Batch, Loss, State
from nextword.objectives.base import Objective, build_layout
from nextword.objectives.scheduled_sampling import ScheduledSampling

LAYOUTS: dict[str, type[CausalLayout]] = {
    "rows": Rows,
    "variable": Variable,
    "shifted": Shifted,
    "windows": Windows,
    "blocks": Blocks,
}
REDUCTIONS = ("token", "sequence")


class CausalObjective(Objective[Stream]):
    """Predict the next token.

    `reduce`: the gradient is a mean over tokens, or over rows (a sum over time, as in Zaremba et al. 2014).
    `activation_penalty`, `temporal_penalty`: weights of the penalties of Merity, McCann & Socher (2017) on the last
        layer, which are added to the gradient but not to the nats: α · mean h² after dropout, and
        β · mean (h_t − h_{t−1})² before it.
    `scheduled_sampling`, `sampling_ramp`: see objectives/scheduled_sampling.py; 0: teacher forcing.
    """

    def __init__(
        self,
        batches: Mapping[str, Any],
        reduce: str = "token",
        activation_penalty: float = 0.0,
        temporal_penalty: float = 0.0,
        scheduled_sampling: float = 0.0,
        sampling_ramp: float = 0.0,
    ) -> None:
        self.layout = build_layout(batches, LAYOUTS, "causal")
        require_choice("objective.reduce", reduce, REDUCTIONS)
        require_number("objective.activation_penalty", activation_penalty, 0)
        require_number("objective.temporal_penalty", temporal_penalty, 0)
        self.reduce, self.activation_penalty, self.temporal_penalty = reduce, activation_penalty, temporal_penalty
        self.scheduled_sampling = ScheduledSampling.from_settings(scheduled_sampling, sampling_ramp)
        self.is_backward = False

    @property
    def length(self) -> int:
        return self.layout.length

    def check(self, network: Any) -> None:
        """Record the network's reading direction: a backward network reads the whole text from its end."""
        self.is_backward = network.is_backward

    # -------------------------------------------------------------------------------------------- batches

    def batches_per_epoch(self, text: Stream) -> int:
        return self.layout.batches_per_epoch(text.ids)

    def batches(self, text: Stream, seed: int, step: int) -> Iterator[Batch]:
        return self.layout.batches(self._ids(text), seed, step)

    def validation_batches(self, text: Stream) -> Iterator[Batch]:
        """Read held-out text in few long rows, so that nearly every token has its full context; or in blocks."""
        ids = self._ids(text)
        if isinstance(self.layout, Blocks):
            return self.layout.validation_batches(ids)
        layout = validation_rows(ids)
        batches = layout.batches(ids, 0, 0)
        return (next(batches) for _ in range(layout.batches_per_epoch(ids)))

    def _ids(self, text: Stream) -> np.ndarray:
        return text.ids[::-1] if self.is_backward else text.ids

    # -------------------------------------------------------------------------------------------- loss

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        is_penalized = network.training and bool(self.activation_penalty or self.temporal_penalty)
        if self.scheduled_sampling and network.training:
            layers, state = self.scheduled_sampling.hidden(network, batch, state)
        elif is_penalized:
            layers, state = network.hidden(batch.inputs, state)
        else:
            h, state = network.last_hidden(batch.inputs, state)
            layers = [h]
        rows, steps = batch.targets.shape
        h = layers[-1][:, -steps:]  # targets belong to the last positions
        nats = network.readout.total(h.reshape(-1, h.shape[-1]), batch.targets.reshape(-1))
        count = rows * steps
        value = nats / (count if self.reduce == "token" else rows)
        if is_penalized:
            value = value + self._penalty(network, layers)
        return Loss(value, nats.detach(), count, state)

    def _penalty(self, network: Any, layers: list[Tensor]) -> Tensor:
        activations = network.regularized_activations(layers)
        if activations is None:
            raise Unsupported(
                f"{type(network).__name__} does not expose its last layer before and after dropout. Remove activation"
                "_penalty and temporal_penalty from the objective.",
                ability="activation penalties",
            )
        before, after = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in activations)
        value = self.activation_penalty * after.pow(2).mean()
        if before.shape[1] > 1:  # the end of a row may be a single step; the mean of no differences would be NaN
            value = value + self.temporal_penalty * (before[:, 1:] - before[:, :-1]).pow(2).mean()
        return value
