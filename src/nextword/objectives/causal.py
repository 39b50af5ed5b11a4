"""Predict the next token from all before it, fed the true past (teacher forcing): J = −Σ_t log p(x_{t+1} | x_{≤t}).

Scheduled sampling: some of the tokens that are fed are the model's own, as all of them are when it writes.

Bengio, Vinyals, Jaitly & Shazeer (2015). Fed the truth alone (teacher forcing), a network never sees what follows a
mistake of its own. Here each token but the first is, with a probability, drawn from what the network has just said:

    fed      begin  the  [a]   sat         [a] was drawn; the truth was "cat"
    target   the    cat  sat   down        which stays what it is

The draws have no gradient. The probability grows from 0 to `sampled` over the first `ramp` epochs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword.batching.causal import Blocks, Rows, Shifted, Variable, Windows
from nextword.batching.token_stream import Stream
from nextword.core.errors import NextwordError, Unsupported
from nextword.core.types import Batch, Inputs, Loss, State


class Sampled:
    def __init__(self, sampled: float, ramp: float) -> None:
        for name, value, most in (("sampled", sampled, 1.0), ("ramp", ramp, float("inf"))):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
                wanted = "a share from 0 to 1" if most == 1 else "epochs, from 0"
                raise NextwordError(f"objective: {name} = {value!r}; expected {wanted}.")
        self.most, self.ramp = float(sampled), float(ramp)

    def share(self, epoch: int) -> float:
        """Of tokens drawn, in an epoch."""
        return self.most * (min(1.0, epoch / self.ramp) if self.ramp else 1.0)

    def __call__(self, network: Any, batch: Batch, state: State) -> tuple[list[Tensor], State]:
        """What the network makes of a batch: in training with some tokens of its own, if it is to be so."""
        share = self.share(batch.epoch) if network.training else 0.0
        return self.hidden(network, batch.inputs, state, share) if share else network.hidden(batch.inputs, state)

    def hidden(self, network: Any, inputs: Inputs, state: State, share: float) -> tuple[list[Tensor], State]:
        """As `network.hidden`, token by token, each drawn with this probability."""
        if network.window is not None:
            raise Unsupported(
                f"objective: sampled = {self.most:g} feeds a network token by token, which {type(network).__name__} "
                "with its window of tokens would read again and again. It is for networks that carry a state."
            )
        ids, parts, said = inputs.ids, [], inputs.ids[:, 0]
        for t in range(ids.shape[1]):
            fed = ids[:, t]
            if t:
                drawn = torch.rand(len(ids), device=ids.device) < share
                fed = torch.where(drawn, said, fed)
            layers, state = network.hidden(Inputs(fed.unsqueeze(1), source=None if t else inputs.source), state)
            parts.append(layers)
            with torch.no_grad():
                said = network.readout.log_probs(layers[-1][:, -1]).exp().multinomial(1).squeeze(1)
        return [torch.cat(layer, 1) for layer in zip(*parts, strict=True)], state


BATCHES: dict[str, Any] = {
    "rows": Rows,
    "variable": Variable,
    "shifted": Shifted,
    "windows": Windows,
    "blocks": Blocks,
}
REDUCE = ("token", "sequence")


class Causal:
    """`reduce` says what the gradient is a mean over: tokens, or rows (then it is a sum over time, as Zaremba 2014).

    `activation` and `temporal` are penalties on the last layer (Merity, McCann & Socher 2017): on its size after
    dropout, α · mean h², and on its change from step to step before it, β · mean (h_t − h_{t−1})². No nats hold them.
    `sampled` and `ramp`: some of the tokens that are fed are the model's own (sampled.py). Of a network that reads from
    the end (`turned`), the text is turned round as a whole.
    """

    def __init__(
        self,
        batches: Mapping[str, Any],
        reduce: str = "token",
        activation: float = 0.0,
        temporal: float = 0.0,
        sampled: float = 0.0,
        ramp: float = 0.0,
    ) -> None:
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
        if activation < 0 or temporal < 0:
            raise NextwordError(f"Penalties are not negative: activation = {activation}, temporal = {temporal}.")
        self.reduce, self.activation, self.temporal = reduce, activation, temporal
        self.sampled = Sampled(sampled, ramp)
        self.turned = False

    @property
    def length(self) -> int:
        """Tokens in a row of a batch."""
        return int(getattr(self.layout, "length", 0))

    def check(self, network: Any) -> None:
        """Hear which way the network reads."""
        self.turned = getattr(network, "is_backward", False)

    def _ids(self, text: Stream) -> np.ndarray:
        return text.ids[::-1] if self.turned else text.ids

    def per_epoch(self, text: Stream) -> int:
        return self.layout.per_epoch(text.ids)

    def batches(self, text: Stream, seed: int, step: int) -> Iterator[Batch]:
        return self.layout.batches(self._ids(text), seed, step)

    def held_out(self, text: Stream) -> Iterator[Batch]:
        """One pass over held-out text in few rows, so that nearly every token has its whole past; or in blocks."""
        ids = self._ids(text)
        if isinstance(self.layout, Blocks):
            return self.layout.held_out(ids)
        rows = max(1, min(10, len(ids) // 500))
        layout = Rows(rows, 128)
        batches = layout.batches(ids, 0, 0)
        return (next(batches) for _ in range(layout.per_epoch(ids)))

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        layers, state = self.sampled(network, batch, state)
        rows, predicted = batch.targets.shape
        h = layers[-1][:, -predicted:]  # targets belong to the last positions
        nats = network.readout.total(h.reshape(-1, h.shape[-1]), batch.targets.reshape(-1))
        count = rows * predicted
        value = nats / (count if self.reduce == "token" else rows)
        if network.training and (self.activation or self.temporal):
            value = value + self._penalty(network, layers)
        return Loss(value, nats.detach(), count, state)

    def _penalty(self, network: Any, layers: list[Tensor]) -> Tensor:
        if not hasattr(network, "last"):
            raise NextwordError(
                f"{type(network).__name__} does not show its last layer before and after dropout, so it takes no "
                "penalties on it: leave activation and temporal out of the objective."
            )
        before, after = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in network.last(layers))
        value = self.activation * after.pow(2).mean()
        if before.shape[1] > 1:  # the rest of a row may be one step, which has no change: a mean over nothing is NaN
            value = value + self.temporal * (before[:, 1:] - before[:, :-1]).pow(2).mean()
        return value
