"""Predict a target from its source, token by token, fed the true past: J = −Σ_t log p(y_t | y_<t, source).

With label smoothing ε the target is not one token but a mixture: 1 − ε of it, and ε spread over all V (Szegedy et al.
2016). What that adds is linear in the logits,

    (1 − ε) · −log p(y) + ε · mean_v −log p(v)   =   −log p(y) + ε · (z_y − mean_v z_v)

so that it needs one dot product more for each token, with W_y − mean W, and no second softmax. Nats do not hold it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from nextword.batching.sequences import Pairs, Sequences
from nextword.contract import IGNORE, Batch, Loss, State
from nextword.contract_errors import NextwordError, Unsupported
from nextword.layers.softmax import Linear
from nextword.objectives.sampled import Sampled

REDUCE = ("token", "sequence")


class Seq2SeqObjective:
    """`reduce` says what the gradient is a mean over: tokens, or pairs. `sampled` and `ramp`: sampled.py."""

    parallel = True  # its text is pairs of a source and a target
    likelihood = False  # of a text given another: no bits of plain text

    def __init__(
        self,
        batches: Mapping[str, Any],
        smoothing: float = 0.0,
        reduce: str = "token",
        sampled: float = 0.0,
        ramp: float = 0.0,
    ) -> None:
        options = dict(batches)
        kind = options.pop("kind", "sequences")
        if kind != "sequences" or reduce not in REDUCE:
            raise NextwordError(
                f"The sequence objective has batches of kind sequences and reduce = {' or '.join(REDUCE)}; the recipe "
                f"says '{kind}' and '{reduce}'."
            )
        try:
            self.layout = Sequences(**options)
        except TypeError:
            raise NextwordError(
                "Batches of kind 'sequences' take rows, length, stretch, long and pack; the recipe says "
                f"{', '.join(options)}."
            ) from None
        if isinstance(smoothing, bool) or not isinstance(smoothing, (int, float)) or not 0 <= smoothing < 1:
            raise NextwordError(f"objective: smoothing = {smoothing!r} is a share of the target: 0 up to below 1.")
        self.smoothing, self.reduce = float(smoothing), reduce
        self.sampled = Sampled(sampled, ramp)
        if self.layout.pack and sampled:
            raise NextwordError(
                f"objective: sampled = {sampled} feeds a network its own tokens one by one, which cannot be done in "
                "rows of several pairs. Leave it out, or batches.pack."
            )

    @property
    def length(self) -> int:
        """Tokens in the longest target."""
        return self.layout.length

    def per_epoch(self, text: Pairs) -> int:
        return self.layout.per_epoch(text)

    def batches(self, text: Pairs, seed: int, step: int) -> Iterator[Batch]:
        return self.layout.batches(text, seed, step)

    def held_out(self, text: Pairs) -> Iterator[Batch]:
        return self.layout.held_out(text)

    def check(self, network: Any) -> None:
        """What this network cannot do."""
        if self.layout.pack and not getattr(network, "packs", False):
            raise Unsupported(
                f"batches: pack = true puts several pairs into a row, which {type(network).__name__} would read as "
                "one. Leave it out (--set phase.0.batches.pack=false)."
            )

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        layers, _ = self.sampled(network, batch, None)
        h, targets = layers[-1].flatten(0, 1), batch.targets.flatten()
        nats = network.readout.total(h, targets)
        value = nats
        if self.smoothing and network.training:
            value = nats + self.smoothing * surplus(network.readout, h, targets)
        value = value / (batch.predicted if self.reduce == "token" else len(batch.targets))
        return Loss(value, nats.detach(), batch.predicted)


def surplus(readout: Any, h: Tensor, targets: Tensor) -> Tensor:
    """Σ z_y − mean_v z_v, over the targets y that are there."""
    if not isinstance(readout, Linear):
        raise Unsupported(
            f"Label smoothing needs the logits of all tokens, which {type(readout).__name__} does not have. Set "
            "smoothing = 0, or a full softmax."
        )
    there = targets != IGNORE
    with torch.autocast(h.device.type, enabled=False):
        x = readout.lead(h).float() if h.dtype == torch.bfloat16 else readout.lead(h)
        matrix, bias = readout.matrix, readout.bias
        chosen = targets.masked_fill(~there, 0)
        z = (x * (torch.nn.functional.embedding(chosen, matrix) - matrix.mean(0))).sum(-1)
        if bias is not None:
            z = z + bias[chosen] - bias.mean()
    return (z * there).sum()
