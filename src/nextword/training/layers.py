"""Which layers learn in a phase, and how fast: gradual unfreezing, and rates that fall from the head down.

    [[phase]]  trains = 1      embedding · layer 1 · layer 2 · layer 3 │ head          one epoch
    [[phase]]  trains = 2      embedding · layer 1 · layer 2 │ layer 3 · head          another
    [[phase]]                  │ embedding · layer 1 · layer 2 · layer 3 · head        until it is enough
                               what is left of │ stays as it is, to the bit

    optimizer = { rate = 0.01, discount = 2.6 }        0.01/2.6⁴ · 0.01/2.6³ · 0.01/2.6² · 0.01/2.6 · 0.01

Howard & Ruder (2018, sections 3.2 and 3.3). The groups are those of models/groups.py, for any network and any head.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from nextword.models.groups import groups
from nextword.recipe import Phase
from nextword.training.optimizers import make_optimizer


class Learning:
    """What of a network learns in a phase. Weights that are fixed by nature (`frozen`) are in no group."""

    def __init__(self, network: Any, phase: Phase) -> None:
        self.network, self.phase = network, phase
        able = [[p for p in group if p.requires_grad] for group in groups(network)]
        able = [group for group in able if group]
        self.layers = able[-phase.trains :]
        self.resting = [p for group in able[: len(able) - len(self.layers)] for p in group]

    def optimizer(self) -> torch.optim.Optimizer:
        """A new one. Where all learn, it has them in the order in which the network has them."""
        learning = {p for group in self.layers for p in group}
        chosen = [p for p in self.network.parameters() if p in learning or not self.phase.trains]
        return make_optimizer(chosen, self.phase.optimizer, self.layers)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """While this is open, nothing else has gradients."""
        for p in self.resting:
            p.requires_grad_(False)
        try:
            yield
        finally:
            for p in self.resting:
                p.requires_grad_(True)
