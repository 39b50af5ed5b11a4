"""A label for every example: the class or the candidate, by cross-entropy, or a number, by squared error; and the
language beside it.

    J = 1/n Σ −log p(label | example)   or   1/n Σ (number − label)²        + language · −1/T Σ_t log p(x_{t+1} | x_≤t)
    J = Σ w_label · −log p(label | example) / Σ w_label                     where classes have weights
    J = 1/n Σ −log p(tokens of the label | example)                         where labels are written (heads/worded.py)

The second term is the auxiliary objective of Radford et al. (2018, section 3.2), for networks that read from left to
right. The network is one with a head (nextword.tasks.heads), or with a head for each of several tasks (heads/many.py): then a
batch is of one task, drawn by its size to the power of `mix`, and the mean over tasks decides. Nats are those of the
labels; of numbers, the squares of errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from nextword.batching.examples import Bucketed, Examples
from nextword.core.errors import NextwordError, Unsupported
from nextword.core.protocols import Autoregressive, Infilling
from nextword.core.types import IGNORE, Batch, Loss, State
from nextword.metrics.classification import METRICS, OF_NUMBERS, together
from nextword.models.framing import following
from nextword.tasks.choosing import Candidates
from nextword.tasks.mixed_examples import Several, held_out, in_turn, parts_of

FILLED = 128  # tokens: rows of a multiple of them, where shapes should be few


class Task:
    likelihood = False  # of labels, not of text
    recordable = True  # a batch says by its shape how many predictions it has

    def __init__(self, batches: Mapping[str, Any], language: float = 0.0, mix: float = 1.0) -> None:
        options = dict(batches)
        kind = options.pop("kind", "examples")
        if kind != "examples":
            raise NextwordError(f"The task objective has batches of kind examples; the recipe says '{kind}'.")
        try:
            self.layout = Candidates(**options)
        except TypeError:
            known = ", ".join(Bucketed.__dataclass_fields__)
            raise NextwordError(
                f"Batches of kind 'examples' take {known}; the recipe says {', '.join(options)}."
            ) from None
        if isinstance(language, bool) or not isinstance(language, (int, float)) or language < 0:
            raise NextwordError(f"objective: language = {language!r} is the weight of a loss: 0 or more.")
        if isinstance(mix, bool) or not isinstance(mix, (int, float)) or not 0 <= mix <= 1:
            raise NextwordError(
                f"objective: mix = {mix!r}; expected a number from 0 (all tasks are drawn alike) to 1 (by their size)."
            )
        self.language, self.mix = float(language), float(mix)

    @property
    def length(self) -> int:
        """Tokens in the longest example."""
        return self.layout.length

    def even_out(self) -> None:
        """Batches of few shapes, for those who record what is done with each."""
        self.layout = replace(self.layout, fill=min(FILLED, self.layout.length))

    def per_epoch(self, text: Examples | Several) -> int:
        return sum(map(self.layout.per_epoch, parts_of(text)))

    def batches(self, text: Examples | Several, seed: int, step: int) -> Iterator[Batch]:
        if isinstance(text, Several):
            return in_turn(self.layout, text, seed, step, self.mix)
        return self.layout.batches(text, seed, step)

    def held_out(self, text: Examples | Several) -> Iterator[Batch]:
        return held_out(self.layout, text)

    def check(self, network: Any) -> None:
        """Or an error: the language beside the task goes with this network."""
        if not self.language:
            return
        encoder = getattr(network, "encoder", network)
        out = "Leave it out (--set 'phase.*.objective.language=0')."
        if hasattr(network, "written"):
            raise Unsupported(
                f"objective: language = {self.language:g} is for networks that read from left to right, and here "
                f"labels are written. {out}"
            )
        both = isinstance(encoder, Infilling) or hasattr(
            encoder, "backward"
        )  # one model, or two that read from both ends
        if not isinstance(encoder, Autoregressive) or both:
            raise Unsupported(
                f"objective: language = {self.language:g} is for networks that read from left to right; "
                f"{type(encoder).__name__} sees both sides of a token. {out}"
            )
        if getattr(network, "is_stateful", False):
            raise NextwordError(
                f"objective: language = {self.language:g} is for texts that are read at once; [task] chunk = "
                f"{network.config.chunk} reads them piece by piece. Leave out either."
            )

    def tokens_each(self, network: Any, text: Examples | Several) -> float:
        """How many tokens the nats of one prediction are of, for whoever asks whether they are too many: a label that
        is written is paid for to its end, and squares of errors have no bound."""
        if hasattr(network, "written"):
            return float(network.sizes.max())
        numbers = any(np.issubdtype(part.labels.dtype, np.floating) for part in parts_of(text))
        return math.inf if numbers else 1.0

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        if hasattr(network, "written"):
            return self._written(network, batch)
        parts: dict[str, Tensor] = {}
        if self.language and network.training:
            layers = network.encoder.hidden(batch.inputs, None)[0]
            said, beside = network.judge(layers[network.at], batch), self._beside(network, layers[-1], batch)
        else:
            said, beside = network(batch), None
        count = len(batch.targets)
        if batch.targets.is_floating_point():
            nats = F.mse_loss(said.squeeze(-1), batch.targets, reduction="sum")
        else:
            nats = F.cross_entropy(said, batch.targets, reduction="sum")
        weights = getattr(network, "weights", None)
        value = nats / count if weights is None else F.cross_entropy(said, batch.targets, weights)
        if beside is not None:
            parts = {"task": value.detach(), "language": beside.detach()}
            value = value + self.language * beside
        if not network.training and hasattr(network, "evened"):
            said = network.evened(said)
        return Loss(value, nats.detach(), count, None, parts, said.detach())

    def _written(self, network: Any, batch: Batch) -> Loss:
        """A label in words costs what its tokens cost, whatever other labels would; all are compared in use alone."""
        every = None if network.training else network.every(batch)
        log_p = network.written(batch) if every is None else every.gather(1, batch.targets.unsqueeze(1)).squeeze(1)
        said = None if every is None else network.said(every).detach()
        weights = None if network.weights is None else network.weights[batch.targets]
        value = -log_p.mean() if weights is None else -(weights * log_p).sum() / weights.sum()
        return Loss(value, -log_p.sum().detach(), len(log_p), None, {}, said)

    def _beside(self, network: Any, h: Tensor, batch: Batch) -> Tensor:
        """Nats a token of the texts themselves."""
        targets = following(batch.inputs, network.vocabulary.size)
        total = network.encoder.readout.total(h.flatten(0, 1), targets.flatten())
        return total / (targets != IGNORE).sum().clamp(min=1)

    # -------------------------------------------------------------------------------------------- how good it is

    def metrics(self, text: Examples | Several, said: Tensor) -> dict[str, float]:
        """What the examples ask for, of what was said of them in the order of `held_out`; the first decides."""
        if isinstance(text, Several):
            sizes = [len(part) for part in text.parts]
            return together(text.names, [self.metrics(*one) for one in zip(text.parts, said.split(sizes), strict=True)])
        gold = (text.labels if text.gold is None else text.gold)[self.layout.in_order(text)]
        return measured(text.metrics, gold, said.float().cpu().numpy())


def measured(names: tuple[str, ...], gold: np.ndarray, said: np.ndarray) -> dict[str, float]:
    """Metrics by name, of what a head says (n, outputs)."""
    classes, numbers = said.argmax(-1), said[:, 0]
    return {name: METRICS[name](gold, numbers if name in OF_NUMBERS else classes) for name in names}
