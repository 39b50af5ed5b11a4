"""Readouts whose form follows from the training text: which word is in which class, on which leaf, drawn how often.

The training loop shows them the text once, before the first step (`prepare`). What they learn from it is kept in
buffers of fixed shape, and saved with the weights, so that loading needs no text. What is computed with, class by class
or path by path, is derived from those buffers, after preparing and after loading alike (`arrange`).

    ids ──learn──▶ buffers, saved ──arrange──▶ tables, not saved
                        ▲
             state_dict ┘

Until then a layer goes by the ids' own order, which for words is already that of their frequency.

No readout at all: weights that came without one can be looked into, but say nothing of what follows a text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from nextword.core.errors import NextwordError, Unsupported
from nextword.core.types import IGNORE

MOST = 50_000_000  # ids of the training text that are counted


class Prepared(nn.Module):
    prepared: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("prepared", torch.zeros((), dtype=torch.bool))

    def prepare(self, ids: np.ndarray) -> None:
        """Learn from the training text, once: weights that began with one form cannot go on in another."""
        if self.prepared:
            return
        self.learn(ids[:MOST])
        self.prepared.fill_(True)
        self.arrange()

    def learn(self, ids: np.ndarray) -> None:
        """Set the buffers that are saved."""
        raise NotImplementedError

    def arrange(self) -> None:
        """Derive from them what is computed with."""

    def keep(self, name: str, values: Any) -> None:
        """A derived table, on the device of the buffers it comes from."""
        tensor = torch.as_tensor(values, device=self.prepared.device)
        self.register_buffer(name, tensor, persistent=False)

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self.arrange()


def frequencies(ids: np.ndarray, size: int) -> np.ndarray:
    return np.bincount(np.asarray(ids, dtype=np.int64), minlength=size)


def ranks(counts: np.ndarray) -> np.ndarray:
    """id → how many ids are more frequent than it; equals in the order of their ids."""
    place = np.empty(len(counts), np.int64)
    place[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return place


def ignoring(nll: Callable[[Tensor, Tensor], Tensor], h: Tensor, targets: Tensor) -> Tensor:
    """`nll` of the rows that have a target, and 0 where it is IGNORE."""
    rows = (targets != IGNORE).nonzero().squeeze(1)
    if len(rows) == len(targets) and len(rows):
        return nll(h, targets)
    zeros = torch.zeros(len(h), device=h.device, dtype=torch.promote_types(h.dtype, torch.float32))
    return zeros.index_copy(0, rows, nll(h[rows], targets[rows]).to(zeros.dtype)) if len(rows) else zeros + 0 * h.sum()


def wide(x: Tensor) -> Tensor:
    """In 32 bits at the least: sums of exponentials need them."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def not_recorded(kind: str, device: torch.device) -> None:
    """These layers ask the device how many rows go where, which a recorded step cannot do."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise NextwordError(f"A readout of kind '{kind}' cannot be recorded: leave graphs = true out of the phase.")


def fill(*parameters: nn.Parameter) -> None:
    """As nn.Linear: U(±1/√width), where the first parameter is the matrix."""
    bound = parameters[0].shape[-1] ** -0.5
    for parameter in parameters:
        nn.init.uniform_(parameter, -bound, bound)


class Silent(nn.Module):
    bias = None

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        self._refuse()

    def total(self, h: Tensor, targets: Tensor) -> Tensor:
        self._refuse()

    def log_probs(self, h: Tensor) -> Tensor:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise Unsupported(
            "This run has no output layer: it was read from weights that hold none, so it neither scores nor writes "
            "text. It gives vectors: `nextword embed RUN FILE`."
        )
