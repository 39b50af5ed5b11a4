"""Training the two LSTM stacks of ELMo, compared with torch.nn.LSTM with a projection, in one run.

    python benchmarks/elmo.py [--precision bf16|tf32|fp32] [--rounds 9] [--steps 10] [--json FILE]
    python benchmarks/elmo.py --device cpu --cells 256 --width 64 --rows 16 --precision fp32

Both compute everything between word vectors and softmax: two layers per direction, separate weights per direction,
dropout before each layer, a residual connection around the second layer, states carried from batch to batch, and the
gradients of all weights and of the input. nextword clips cells and projections to ±3, as ELMo does; the peer,
`nn.LSTM(width, cells, proj_size=width)`, cannot. On a GPU the peer is also timed with one stream per direction, so that
the directions can overlap. Weights, states and vectors have the precision of --precision (tf32: float32, with rounded
operands of matrix products). Embedding, softmax and optimizer are left out: they are the same for all.

The contenders take turns, a few steps each, so that other load on the machine affects all. The table has the median of
the ratios of the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core import pytree
from nextword.layers.recurrent import ProjectedLSTM

DROPOUT, LIMIT = 0.1, 3.0


class Ours(nn.Module):
    def __init__(self, width: int, cells: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ProjectedLSTM(width, cells, width, 2, LIMIT, LIMIT) for _ in range(layers))

    def forward(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """(2, T, B, width)."""
        after = []
        for i, layer in enumerate(self.layers):
            entered = F.dropout(x, DROPOUT)
            x, memory = layer(entered, layer.start(2 * x.shape[2]) if state is None else state[i])  # type: ignore
            x = x + entered if i else x
            after.append(memory)
        return x, after


class Torch(nn.Module):
    def __init__(self, width: int, cells: int, layers: int, streams: bool) -> None:
        super().__init__()
        self.sides = nn.ModuleList(
            nn.ModuleList(nn.LSTM(width, cells, proj_size=width) for _ in range(layers)) for _ in range(2)
        )
        self.streams = [torch.cuda.Stream() for _ in range(2)] if streams else []

    def forward(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        if not self.streams:
            found = [self.side(side, x[side], None if state is None else state[side]) for side in (0, 1)]
            return torch.stack([y for y, _ in found]), [after for _, after in found]
        now, found = torch.cuda.current_stream(), []
        for side, stream in enumerate(self.streams):
            stream.wait_stream(now)
            with torch.cuda.stream(stream):
                found.append(self.side(side, x[side], None if state is None else state[side]))
        for stream in self.streams:
            now.wait_stream(stream)
        return torch.stack([y for y, _ in found]), [after for _, after in found]

    def side(self, side: int, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        after = []
        for i, layer in enumerate(self.sides[side]):  # type: ignore[arg-type]
            entered = F.dropout(x, DROPOUT)
            x, memory = layer(entered, None if state is None else state[i])
            x = x + entered if i else x
            after.append(memory)
        return x, after


def stepper(network: nn.Module, given: argparse.Namespace, kind: torch.dtype) -> Callable[[int], None]:
    """A function that runs a number of training steps and waits for the device."""
    network.to(given.device, kind).train()
    x = torch.randn(2, given.length, given.rows, given.width, device=given.device, dtype=kind, requires_grad=True)
    dy = torch.randn_like(x)
    held: list[Any] = [None]

    def steps(number: int) -> None:
        for _ in range(number):
            y, state = network(x, held[0])
            y.backward(dy)
            held[0] = pytree.detach(state)
            x.grad = None
            for parameter in network.parameters():
                parameter.grad = None
        if given.device == "cuda":
            torch.cuda.synchronize()

    return steps


def measure(given: argparse.Namespace) -> dict[str, Any]:
    kind = torch.bfloat16 if given.precision == "bf16" else torch.float32
    rounded = given.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = rounded
    torch.manual_seed(1)
    sizes = given.width, given.cells, given.layers
    contenders = {"nn.LSTM(proj_size)": Torch(*sizes, streams=False), "nextword": Ours(*sizes)}
    if given.device == "cuda":
        contenders["nn.LSTM(proj_size), a stream a direction"] = Torch(*sizes, streams=True)
    run = {name: stepper(network, given, kind) for name, network in contenders.items()}
    for steps in run.values():
        steps(5)  # warm up; nextword records its CUDA graphs at the third step
    seconds: dict[str, list[float]] = {name: [] for name in run}
    for _ in range(given.rounds):
        for name, steps in run.items():
            began = time.perf_counter()
            steps(given.steps)
            seconds[name].append((time.perf_counter() - began) / given.steps)
    tokens = given.rows * given.length
    found = {}
    for name, each in seconds.items():
        ratios = sorted(peer / own for peer, own in zip(seconds["nn.LSTM(proj_size)"], each, strict=True))
        found[name] = {
            "milliseconds": 1e3 * statistics.median(each),
            "tokens_per_second": tokens / statistics.median(each),
            "ratio": statistics.median(ratios),
            "ratios": [round(ratio, 3) for ratio in ratios],
        }
    return found


def table(found: dict[str, Any], given: argparse.Namespace) -> str:
    sizes = f"{given.layers} layers of {given.cells}/{given.width}, batch {given.rows}, unroll {given.length}"
    lines = [
        f"| both directions of ELMo in training, {sizes}, {given.precision} | ms a step | tokens/s | ratio |",
        "| --- | --- | --- | --- |",
    ]
    for name, one in found.items():
        spread = f"{one['ratio']:.2f} ({one['ratios'][0]:.2f}–{one['ratios'][-1]:.2f})"
        lines.append(f"| {name} | {one['milliseconds']:.2f} | {one['tokens_per_second']:,.0f} | {spread} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cuda", "cpu"))
    parser.add_argument("--precision", default="bf16", choices=("bf16", "tf32", "fp32"))
    sizes = {"width": 512, "cells": 4096, "layers": 2, "rows": 128, "length": 20, "rounds": 9, "steps": 10}
    for name, value in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    given = parser.parse_args()
    where = torch.cuda.get_device_name() if given.device == "cuda" else f"{torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {where}")
    found = measure(given)
    print(table(found, given))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
