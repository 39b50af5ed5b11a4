"""Scheduled sampling: feed the network some of its own predictions during training, as in generation.

Bengio, Vinyals, Jaitly & Shazeer (2015). With teacher forcing alone, a network never sees what follows one of its own
mistakes. Here each input token but the first is, with probability p, sampled from the network's last prediction:

    input    begin  the  [a]   sat         [a] was sampled; the true token is "cat"
    target   the    cat  sat   down        targets do not change

p grows linearly from 0 to `scheduled_sampling` over the first `sampling_ramp` epochs. No gradient flows through the
samples.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nextword.batching.settings import require_number
from nextword.core.errors import Unsupported
from nextword.core.types import Batch, Inputs, State


class ScheduledSampling:
    def __init__(self, sampled: float, ramp: float = 0.0) -> None:
        self.sampled, self.ramp = float(sampled), float(ramp)

    @classmethod
    def from_settings(cls, sampled: float, ramp: float) -> ScheduledSampling | None:
        """Validate an objective's settings. None, plain teacher forcing, if `sampled` is 0."""
        require_number("objective.scheduled_sampling", sampled, 0, 1)
        require_number("objective.sampling_ramp", ramp, 0)
        return cls(sampled, ramp) if sampled else None

    def probability(self, epoch: int) -> float:
        """Probability of feeding a sampled token, in this epoch."""
        return self.sampled * (min(1.0, epoch / self.ramp) if self.ramp else 1.0)

    def hidden(self, network: Any, batch: Batch, state: State) -> tuple[list[Tensor], State]:
        """Like `network.hidden`, but token by token, with sampled inputs."""
        inputs, probability = batch.inputs, self.probability(batch.epoch)
        if not probability:  # the first epoch of a ramp
            return network.hidden(inputs, state)
        if network.window is not None:
            raise Unsupported(
                f"objective.scheduled_sampling = {self.sampled:g} needs a network with a recurrent state; "
                f"{type(network).__name__} would read its whole window again for every token. Set it to 0.",
                ability="scheduled sampling",
            )
        ids, steps, sample = inputs.ids, [], inputs.ids[:, 0]
        for t in range(ids.shape[1]):
            tokens = ids[:, t]
            if t:
                is_sampled = torch.rand(len(ids), device=ids.device) < probability
                tokens = torch.where(is_sampled, sample, tokens)
            layers, state = network.hidden(Inputs(tokens.unsqueeze(1), source=None if t else inputs.source), state)
            steps.append(layers)
            with torch.no_grad():
                sample = network.readout.log_probs(layers[-1][:, -1]).exp().multinomial(1).squeeze(1)
        return [torch.cat(layer, 1) for layer in zip(*steps, strict=True)], state
