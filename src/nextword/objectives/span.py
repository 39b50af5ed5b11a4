"""Where the answer to a question begins and ends in its passage: cross-entropy of both, halved.

    J = 1/B Σ_windows ½ (−log p(begin | window) − log p(end | window))

The network is one with a head of spans (nextword.heads.spans). A window that does not hold the answer has to say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from nextword.batching.questions import Asked, Passages
from nextword.contract import Batch, Loss, State
from nextword.contract_errors import NextwordError
from nextword.heads.answers import answers, measured_answers


class Span:
    likelihood = False  # of answers, not of text

    def __init__(self, batches: Mapping[str, Any]) -> None:
        self.layout = layout_of(batches)

    @property
    def length(self) -> int:
        return self.layout.length

    def per_epoch(self, text: Asked) -> int:
        return self.layout.per_epoch(text)

    def batches(self, text: Asked, seed: int, step: int) -> Iterator[Batch]:
        return self.layout.batches(text, seed, step)

    def held_out(self, text: Asked) -> Iterator[Batch]:
        return self.layout.held_out(text)

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        logits = network(batch)
        nats = network.nats(logits, batch.targets).sum()
        said = None if network.training else network.best(logits.detach())
        return Loss(nats / len(batch.targets), nats.detach(), len(batch.targets), said=said)

    def metrics(self, text: Asked, said: Tensor) -> dict[str, float]:
        """Of the spans that were said of all windows in the order of `held_out`; the first decides."""
        ordered = np.zeros(said.shape)
        ordered[self.layout.in_order(text)] = said.double().cpu().numpy()
        return measured_answers(text, answers(text, ordered))


def layout_of(batches: Mapping[str, Any]) -> Passages:
    options = dict(batches)
    kind = options.pop("kind", "passages")
    if kind != "passages":
        raise NextwordError(f"The span objective has batches of kind passages; the recipe says '{kind}'.")
    try:
        return Passages(**options)
    except TypeError:
        known = ", ".join(Passages.__dataclass_fields__)
        raise NextwordError(f"Batches of kind 'passages' take {known}; the recipe says {', '.join(options)}.") from None
