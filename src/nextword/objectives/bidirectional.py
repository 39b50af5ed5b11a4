"""Two language models at once, one in each direction: predict each word from all before it and from all after it.

    J = −Σ_k log p(w_k | w_1 … w_{k−1}) + log p(w_k | w_{k+1} … w_N)

Peters et al., "ELMo" (2018). Each model reads the rows of the text from its own end and carries its state from batch to
batch:

    row       0 1 2 3 4 5 6                  length = 3
    forward   0 1 2 → 1 2 3    then   3 4 5 → 4 5 6
    backward  6 5 4 → 5 4 3    then   3 2 1 → 2 1 0

A batch holds the forward rows and, below them, as many reversed rows. The log has the perplexity of each model and of
both together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from nextword.batching.causal import Rows, validation_rows
from nextword.batching.settings import require_choice
from nextword.batching.token_stream import Stream
from nextword.core.errors import Unsupported
from nextword.core.types import Batch, Inputs, Loss, State
from nextword.objectives.base import Objective, build_layout

DIRECTIONS = ("forward", "backward")
REDUCTIONS = ("token", "sequence")


class BidirectionalObjective(Objective[Stream]):
    """`reduce`: the gradient is a mean over predictions, or over rows (a sum over time)."""

    tokens_read_per_prediction = 0.5  # each token is predicted twice

    def __init__(self, batches: Mapping[str, Any], reduce: str = "token") -> None:
        self.layout = build_layout(batches, {"rows": Rows}, "bidirectional")
        require_choice("objective.reduce", reduce, REDUCTIONS)
        self.reduce = reduce

    @property
    def length(self) -> int:
        return self.layout.length

    def batches_per_epoch(self, text: Stream) -> int:
        return self.layout.batches_per_epoch(text.ids)

    def batches(self, text: Stream, seed: int, step: int) -> Iterator[Batch]:
        return forward_and_backward_batches(self.layout, text.ids, step)

    def validation_batches(self, text: Stream) -> Iterator[Batch]:
        layout = validation_rows(text.ids)
        batches = forward_and_backward_batches(layout, text.ids, 0)
        return (next(batches) for _ in range(layout.batches_per_epoch(text.ids)))

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        if not network.has_two_directions:
            raise Unsupported(
                f"The bidirectional objective trains two language models, but {type(network).__name__} is one. Use "
                'objective = { kind = "causal" }.',
                ability="bidirectional",
            )
        layers, state = network.both(batch.inputs, state)
        rows, steps = batch.targets.shape
        halves = zip(layers[-1].chunk(2), batch.targets.chunk(2), strict=True)
        forward, backward = (network.readout.total(h.flatten(0, 1), targets.flatten()) for h, targets in halves)
        nats, count = forward + backward, rows * steps
        value = nats / (count if self.reduce == "token" else rows)
        breakdown = {
            direction: (part.detach(), count // 2)
            for direction, part in zip(DIRECTIONS, (forward, backward), strict=True)
        }
        terms = {direction: part / half for direction, (part, half) in breakdown.items()}
        return Loss(value, nats.detach(), count, state, terms, breakdown=breakdown)


def forward_and_backward_batches(layout: Rows, ids: np.ndarray, step: int) -> Iterator[Batch]:
    """Yield batches of the rows from left to right and, below them, of the same rows from right to left."""
    per_epoch, columns = layout.batches_per_epoch(ids), len(ids) // layout.rows
    table = ids[: columns * layout.rows].reshape(layout.rows, columns)
    while True:
        epoch, i = divmod(step, per_epoch)
        start, end = i * layout.length, min((i + 1) * layout.length + 1, columns)
        reverse = table[:, columns - end : columns - start][:, ::-1]
        part = torch.from_numpy(np.concatenate([table[:, start:end], reverse]).astype(np.int64))
        yield Batch(Inputs(part[:, :-1]), part[:, 1:], reset_state=i == 0, epoch=epoch)
        step += 1
