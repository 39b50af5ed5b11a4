"""Two language models at once: each word from all before it, and from all after it (Peters et al. 2018).

    J = −Σ_k log p(w_k | w_1 … w_{k−1}) + log p(w_k | w_{k+1} … w_N)

The text lies in rows (batching/rows.py), and each model reads them from its own end, so that both carry their state
from batch to batch through all of a row:

    row       0 1 2 3 4 5 6                  length = 3
    forward   0 1 2 → 1 2 3    then   3 4 5 → 4 5 6
    backward  6 5 4 → 5 4 3    then   3 2 1 → 2 1 0

A batch holds the forward rows and beneath them as many backward ones, already turned round. The log has the perplexity
of each model, and of both together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from nextword.batching.causal import Rows
from nextword.batching.token_stream import Stream
from nextword.core.errors import NextwordError
from nextword.core.types import Batch, Inputs, Loss, State

SIDES = ("forward", "backward")
REDUCE = ("token", "sequence")
HELD_ROWS, HELD_LENGTH = 10, 128


class Bidirectional:
    """`reduce` says what the gradient is a mean over: predictions, or rows (then it is a sum over time)."""

    def __init__(self, batches: Mapping[str, Any], reduce: str = "token") -> None:
        options = dict(batches)
        kind = options.pop("kind", "rows")
        if kind != "rows" or reduce not in REDUCE:
            raise NextwordError(
                f"The bidirectional objective has batches of kind rows and reduce = {' or '.join(REDUCE)}; the recipe "
                f"says '{kind}' and '{reduce}'."
            )
        try:
            self.layout = Rows(**options)
        except TypeError:
            fields = ", ".join(Rows.__dataclass_fields__)
            raise NextwordError(
                f"Batches of kind 'rows' take {fields}; the recipe says {', '.join(options)}."
            ) from None
        self.reduce = reduce
        self.shown = 0.5  # tokens read for each prediction: each is predicted twice

    @property
    def length(self) -> int:
        """Tokens in a row of a batch."""
        return self.layout.length

    def per_epoch(self, text: Stream) -> int:
        return self.layout.per_epoch(text.ids)

    def batches(self, text: Stream, seed: int, step: int) -> Iterator[Batch]:
        return from_both_ends(self.layout, text.ids, step)

    def held_out(self, text: Stream) -> Iterator[Batch]:
        """One pass over held-out text in few rows, so that nearly every token has its whole context."""
        layout = Rows(max(1, min(HELD_ROWS, len(text.ids) // 500)), HELD_LENGTH)
        batches = from_both_ends(layout, text.ids, 0)
        return (next(batches) for _ in range(layout.per_epoch(text.ids)))

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        if not hasattr(network, "both"):
            raise NextwordError(
                f"{type(network).__name__} is one language model, and the bidirectional objective trains two. Use "
                'objective = { kind = "causal" }.'
            )
        layers, state = network.both(batch.inputs, state)
        rows, steps = batch.targets.shape
        halves = zip(layers[-1].chunk(2), batch.targets.chunk(2), strict=True)
        nats = [network.readout.total(h.flatten(0, 1), targets.flatten()) for h, targets in halves]
        whole, count = nats[0] + nats[1], rows * steps
        value = whole / (count if self.reduce == "token" else rows)
        apart = {side: (part.detach(), count // 2) for side, part in zip(SIDES, nats, strict=True)}
        parts = {side: part / half for side, (part, half) in apart.items()}
        return Loss(value, whole.detach(), count, state, parts, apart=apart)


def from_both_ends(layout: Rows, ids: np.ndarray, step: int) -> Iterator[Batch]:
    """Batches of the rows as they are, and of the same rows turned round, beneath them."""
    per_epoch, columns = layout.per_epoch(ids), len(ids) // layout.rows
    table = ids[: columns * layout.rows].reshape(layout.rows, columns)
    while True:
        epoch, i = divmod(step, per_epoch)
        first, last = i * layout.length, min((i + 1) * layout.length + 1, columns)
        turned = table[:, columns - last : columns - first][:, ::-1]
        part = torch.from_numpy(np.concatenate([table[:, first:last], turned]).astype(np.int64))
        yield Batch(Inputs(part[:, :-1]), part[:, 1:], fresh=i == 0, epoch=epoch)
        step += 1
