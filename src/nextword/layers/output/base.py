"""The base class of all readouts, and what readouts share that depend on word counts.

A readout turns hidden vectors into a distribution over the vocabulary. Some take their form from the training text:
which word is in which class, on which leaf of a tree, how often it is sampled. They see the text once, before the first
training step (`fit_vocabulary`), and store what they need in buffers that are saved with the weights, so that loading
needs no text. Tables for computing are derived from these buffers, after fitting and after loading (`build_tables`):

    ids ──count──▶ buffers, saved ──build_tables──▶ tables, not saved
                        ▲
             state_dict ┘

Until then ids are taken to be sorted by frequency, as those of word tokenizers are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from nextword.core.errors import Unsupported
from nextword.core.types import IGNORE

MAX_COUNTED = 50_000_000  # ids of the training text that are counted


class Readout(nn.Module):
    """From hidden vectors (N, D) to log probabilities over V tokens. Exact in evaluation; training may sample."""

    tied: tuple[Any, ...] = ()  # embeddings whose matrix it uses, in a tuple so that they are not registered twice

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        """−log p of each target: (N, D), (N,) → (N,); 0 where the target is IGNORE."""
        raise NotImplementedError

    def total(self, h: Tensor, targets: Tensor) -> Tensor:
        """The sum of `nll`, for training: it may compute the gradient along the way, or use a sample of the words."""
        return self.nll(h, targets).sum()

    def log_probs(self, h: Tensor) -> Tensor:
        """log p of all tokens: (N, D) → (N, V)."""
        raise NotImplementedError

    def fit_vocabulary(self, ids: np.ndarray) -> None:
        """See the training text once, before the first step."""

    @property
    def output_bias(self) -> Tensor | None:
        """(V,): the bias of each token's logit, where there is one."""
        return None


class CountedReadout(Readout):
    """A readout whose form depends on the training text."""

    prepared: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("prepared", torch.zeros((), dtype=torch.bool))

    def fit_vocabulary(self, ids: np.ndarray) -> None:
        if self.prepared:  # trained weights cannot change their form
            return
        self.count(ids[:MAX_COUNTED])
        self.prepared.fill_(True)
        self.build_tables()

    def count(self, ids: np.ndarray) -> None:
        """Set the buffers that are saved."""
        raise NotImplementedError

    def build_tables(self) -> None:
        """Derive the tables for computing from the saved buffers."""

    def set_table(self, name: str, values: Any) -> None:
        """Store a derived table on the device of the buffers."""
        tensor = torch.as_tensor(values, device=self.prepared.device)
        self.register_buffer(name, tensor, persistent=False)

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self.build_tables()


class NoReadout(Readout):
    """In place of an output layer, for weights that came without one: they give vectors, but predict nothing."""

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        self._refuse()

    def log_probs(self, h: Tensor) -> Tensor:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise Unsupported(
            "This run has no output layer, so it can neither score nor generate text. It gives "
            "vectors: `nextword embed RUN FILE`.",
            ability="score",
        )


# ------------------------------------------------------------------------------------------------ shared functions


def count_ids(ids: np.ndarray, size: int) -> np.ndarray:
    return np.bincount(np.asarray(ids, dtype=np.int64), minlength=size)


def frequency_ranks(counts: np.ndarray) -> np.ndarray:
    """id → how many ids are more frequent; ties in the order of the ids."""
    place = np.empty(len(counts), np.int64)
    place[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return place


def nll_without_ignored(nll: Callable[[Tensor, Tensor], Tensor], h: Tensor, targets: Tensor) -> Tensor:
    """Apply `nll` to the rows with a target; 0 where the target is IGNORE."""
    rows = (targets != IGNORE).nonzero().squeeze(1)
    if len(rows) == len(targets) and len(rows):
        return nll(h, targets)
    zeros = torch.zeros(len(h), device=h.device, dtype=torch.promote_types(h.dtype, torch.float32))
    return zeros.index_copy(0, rows, nll(h[rows], targets[rows]).to(zeros.dtype)) if len(rows) else zeros + 0 * h.sum()


def at_least_float32(x: Tensor) -> Tensor:
    """Sums of exponentials need 32 bits."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def refuse_graph_capture(kind: str, device: torch.device) -> None:
    """These readouts ask the GPU how many rows go where, which a captured graph cannot."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise Unsupported(
            f"A readout of kind '{kind}' cannot be captured in a CUDA graph. Remove graphs = true from the phase.",
            ability="graphs",
        )


def init_like_linear(*parameters: nn.Parameter) -> None:
    """Draw from U(±1/√width), as nn.Linear does; the first parameter is the matrix."""
    bound = parameters[0].shape[-1] ** -0.5
    for parameter in parameters:
        nn.init.uniform_(parameter, -bound, bound)
