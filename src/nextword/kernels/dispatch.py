"""The only module of this package that models import: it chooses the fast path of a network.

A network calls `FastDecoding.step` first and falls back to its own, readable `step` where that returns None. So model
files never name a kernel, and the plain step stays the reference that every fast path is tested against.

    generating, decoder, CUDA      one captured CUDA graph per shape              cuda_graphs.GraphSteps
    generating, decoder, CPU       the whole stack as one compiled function       cpu_decode.CompiledSteps
    generating, T5, CUDA           one captured CUDA graph per shape              cuda_graphs.T5GraphSteps
    training word vectors          one compiled step per window or cell           `train_windows`, `train_cells`

Layers choose their own fast paths (layers/recurrent.py, quantized.py, output/softmax.py).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nextword.core.types import State
from nextword.kernels.cpu_decode import CompiledSteps
from nextword.kernels.cuda_graphs import GraphSteps, T5GraphSteps
from nextword.kernels.word2vec import train_cells, train_windows

__all__ = ["FastDecoding", "FastT5Decoding", "train_cells", "train_windows"]


class FastDecoding:
    """Fast steps of a decoder-only network (`models/decoder.py`)."""

    def __init__(self, network: Any) -> None:
        self.network = network
        self.gpu, self.cpu = GraphSteps(network), CompiledSteps(network)

    def step(self, last: Tensor, state: State) -> tuple[Tensor, State] | None:
        """As `network.step`, or None where no fast path applies."""
        if torch.is_grad_enabled():
            return None
        if last.is_cuda and self.gpu.applies(state):
            return self.gpu(last, state)
        if last.device.type == "cpu" and self.cpu.applies(last, state):
            return self.cpu(last, state)
        return None

    def prompt(self, ids: Tensor, lengths: Tensor) -> State | None:
        """As `network.prompt`, or None where no fast path applies."""
        if ids.device.type == "cpu" and not torch.is_grad_enabled() and self.cpu.applies_to_prompt(ids):
            return self.cpu.prompt(ids, lengths)
        return None

    def reset(self) -> None:
        """Forget captured graphs and weight addresses, after weights were replaced or resized."""
        self.gpu.captured.clear()
        self.cpu = CompiledSteps(self.network, self.cpu.least)


class FastT5Decoding:
    """Fast steps of T5's decoder (`models/t5.py`)."""

    def __init__(self, network: Any) -> None:
        self.gpu = T5GraphSteps(network)

    def step(self, last: Tensor, state: State) -> tuple[Tensor, State] | None:
        if last.is_cuda and not torch.is_grad_enabled() and state["kv_cache"] is not None:
            return self.gpu(last, state)
        return None
