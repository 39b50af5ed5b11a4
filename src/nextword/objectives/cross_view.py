"""Cross-view training: in turn, sentences with tags and sentences without (Clark et al. 2018, section 2).

    with tags       J = 1/W Σ_words CE(tag, p)                       p: the primary head. Tags are smoothed
    without         J = 1/W Σ_tasks Σ_views Σ_words −Σ_k p_k log q_k  q: a head that sees less; p is a target, no more

The network has heads for every task and view (nextword.heads.views). A target is made of the weights as they are, with
nothing dropped, and no gradient goes into it. What is dropped elsewhere is the network's own share where there are
tags, and `dropout` where there are none. Without `unlabelled` text all steps are of the first kind: the same network,
learnt from tags alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from nextword.batching.several import UNTAGGED, Several, held_out, in_turn
from nextword.batching.tagged import TaggedExamples
from nextword.contract import IGNORE, Batch, Loss, State
from nextword.contract_errors import NextwordError
from nextword.heads.views import soft_cross_entropy
from nextword.metrics import together
from nextword.objectives.tag import Tag


class CrossView(Tag):
    """`unlabelled`: a text, as --data names one; of it the first `sentences` of at most `longest` words are read."""

    def __init__(
        self,
        batches: Mapping[str, Any],
        unlabelled: str = "",
        sentences: int = 300_000,
        longest: int = 50,
        smoothing: float = 0.1,
        dropout: float = 0.2,
    ) -> None:
        super().__init__(batches)
        for name, value in (("smoothing", smoothing), ("dropout", dropout)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
                raise NextwordError(f"objective: {name} = {value!r} is a share, from 0 up to below 1.")
        for name, value in (("sentences", sentences), ("longest", longest)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise NextwordError(f"objective: {name} = {value!r} must be a whole number of at least 1.")
        self.unlabelled, self.sentences, self.longest = unlabelled, sentences, longest
        self.smoothing, self.dropout = smoothing, dropout

    def per_epoch(self, text: Several) -> int:  # type: ignore[override]
        """Steps in which there are as many batches with tags as all tasks together have."""
        return text.turns * sum(self.layout.per_epoch(part) for part in text.parts)

    def batches(self, text: Several, seed: int, step: int) -> Iterator[Batch]:  # type: ignore[override]
        return in_turn(self.layout, text, seed, step)

    def held_out(self, text: Several | TaggedExamples) -> Iterator[Batch]:
        return held_out(self.layout, text)

    # -------------------------------------------------------------------------------------------- losses

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        if batch.part == UNTAGGED:
            return self._between_views(network, batch)
        emissions = network(batch)
        nats = network.nats(emissions, batch.targets).sum()
        if not network.training:
            there = batch.targets != IGNORE
            said = network.best(emissions.detach(), there, batch.part)[there]  # (words,) row by row
            return Loss(nats / batch.predicted, nats, batch.predicted, said=said)
        value = network.nats(emissions, batch.targets, self.smoothing).sum() / batch.predicted
        return Loss(value, nats.detach(), batch.predicted)

    def _between_views(self, network: Any, batch: Batch) -> Loss:
        """Nothing of it is counted as nats, which are of tags."""
        there = batch.targets != IGNORE
        targets = network.taught(batch.inputs)
        losses: dict[str, Tensor] = {}
        for target, views in zip(targets, network.auxiliary(batch.inputs, self.dropout), strict=True):
            for name, emissions in views.items():
                loss = soft_cross_entropy(emissions, target, there) / batch.predicted
                losses[name] = losses[name] + loss if name in losses else loss
        value = torch.stack(list(losses.values())).sum()
        parts = {name: loss.detach() for name, loss in losses.items()}
        return Loss(value, value.new_zeros(()).detach(), 0, parts=parts)

    # -------------------------------------------------------------------------------------------- how good it is

    def metrics(self, text: Several | TaggedExamples, said: Tensor) -> dict[str, float]:
        """Of one task as `tag` has it; of several, the mean of what decides in each, and then those."""
        if not isinstance(text, Several):
            return super().metrics(text, said)
        sizes = [len(part.tags) for part in text.parts]
        each = [super(CrossView, self).metrics(*one) for one in zip(text.parts, said.split(sizes), strict=True)]
        return together(text.names, each)
