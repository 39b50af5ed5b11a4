"""A tag for every word of a sentence: its negative log-likelihood, by a softmax at each word or by a CRF.

    J = 1/B Σ_sentences −log p(tags | sentence)         + λ ‖s‖² of a network that mixes layers and asks for it

The network is one with a head of tags (nextword.tasks.tag_head). Nats are said per word. A sentence of validation with a
tag that training never had is left out of the nats, and counts in the metrics as what it is: one that is never found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from nextword.core.errors import NextwordError
from nextword.core.types import IGNORE, Batch, Loss, State
from nextword.data.tag_schemes import spans
from nextword.metrics.spans import ACCURACY, OF_SPANS
from nextword.tasks.tag_words import Sentences, TaggedExamples


class Tag:
    likelihood = False  # of tags, not of text

    def __init__(self, batches: Mapping[str, Any]) -> None:
        options = dict(batches)
        kind = options.pop("kind", "sentences")
        if kind != "sentences":
            raise NextwordError(f"The tag objective has batches of kind sentences; the recipe says '{kind}'.")
        try:
            self.layout = Sentences(**options)
        except TypeError:
            known = ", ".join(Sentences.__dataclass_fields__)
            raise NextwordError(
                f"Batches of kind 'sentences' take {known}; the recipe says {', '.join(options)}."
            ) from None

    @property
    def length(self) -> int:
        return self.layout.length

    def per_epoch(self, text: TaggedExamples) -> int:
        return self.layout.per_epoch(text)

    def batches(self, text: TaggedExamples, seed: int, step: int) -> Iterator[Batch]:
        return self.layout.batches(text, seed, step)

    def held_out(self, text: TaggedExamples) -> Iterator[Batch]:
        return self.layout.held_out(text)

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        emissions = network(batch)
        nats = network.nats(emissions, batch.targets).sum()
        value = nats / len(batch.targets)
        penalty = network.encoder.penalty() if hasattr(network.encoder, "penalty") else None
        if penalty is not None:
            value = value + penalty
        said = None
        if not network.training:
            there = batch.targets != IGNORE
            said = network.best(emissions.detach(), there)[there]  # (words,) row by row
        return Loss(value, nats.detach(), batch.predicted, said=said)

    # -------------------------------------------------------------------------------------------- how good it is

    def metrics(self, text: TaggedExamples, said: Tensor) -> dict[str, float]:
        """Of tags that were said of all words in the order of `held_out`; the first decides."""
        order = self.layout.in_order(text)
        gold = [text.of(i) for i in order.tolist()]
        ends = np.cumsum([len(one) for one in gold])[:-1]
        return measured(text, gold, np.split(said.cpu().numpy(), ends))


def measured(text: TaggedExamples, gold: Sequence[np.ndarray], said: Sequence[np.ndarray]) -> dict[str, float]:
    """The metrics that the text asks for, of two tags for each word."""
    found: dict[str, float] = {}
    right, guessed = (spans_of(text.names, some) if text.spans else [] for some in (gold, said))
    for name in text.metrics:
        if name == ACCURACY:
            agreed = sum(int((a == b).sum()) for a, b in zip(gold, said, strict=True))
            found[name] = agreed / max(1, sum(map(len, gold)))
        else:
            found[name] = OF_SPANS[name](right, guessed)
    return found


def spans_of(names: Sequence[str], tags: Sequence[np.ndarray]) -> list[tuple[int, int, int, str]]:
    """Spans of many sentences, each with the number of its sentence."""
    return [(i, *span) for i, one in enumerate(tags) for span in spans(names[tag] for tag in one.tolist())]
