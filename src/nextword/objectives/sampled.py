"""Scheduled sampling: some of the tokens that are fed are the model's own, as all of them are when it writes.

Bengio, Vinyals, Jaitly & Shazeer (2015). Fed the truth alone (teacher forcing), a network never sees what follows a
mistake of its own. Here each token but the first is, with a probability, drawn from what the network has just said:

    fed      begin  the  [a]   sat         [a] was drawn; the truth was "cat"
    target   the    cat  sat   down        which stays what it is

The draws have no gradient. The probability grows from 0 to `sampled` over the first `ramp` epochs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nextword.contract import Batch, Inputs, State
from nextword.contract_errors import NextwordError, Unsupported


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
