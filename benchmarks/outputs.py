"""Every readout against full softmax: milliseconds of a training step and of exact evaluation, as a table to paste.

    python benchmarks/outputs.py [--sizes 10000 100000 500000] [--tokens 1000] [--width 200] [--repeats 3] [--json FILE]

A step is `total` and its gradients, for h and for every weight of the readout: a dense gradient of V·D numbers is part
of the cost of full softmax, and of most others. Evaluation is `nll`. Targets and training text follow Zipf's law. The
layers take turns, once per round, so that other load on the machine affects all; the best time of each counts. With
OMP_NUM_THREADS=1 the clock is processor time, on which other processes have little effect.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword.core.types import Vocabulary
from nextword.layers.output import make_readout

FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128]]
SPELLED = {"kind": "spelled", "filters": FILTERS, "highway": 1}
LAYERS: dict[str, dict[str, Any]] = {
    "full": {"kind": "full"},
    "classes, by frequency": {"kind": "classes"},
    "classes, by root": {"kind": "classes", "by": "root"},
    "tree, Huffman": {"kind": "tree"},
    "tree, balanced": {"kind": "tree", "tree": "balanced"},
    "adaptive": {"kind": "adaptive"},
    "sampled, 1,024": {"kind": "sampled"},
    "NCE, 100": {"kind": "nce"},
    "mixture of 3": {"kind": "mixture", "experts": 3},
    "spelled, 1,024 sampled": {**SPELLED, "samples": 1024},
}
LONG = {
    "mixture of 3": 100_000,
    "spelled, 1,024 sampled": 100_000,
}  # largest vocabulary; beyond it one round takes minutes


def zipf(size: int, length: int, seed: int) -> np.ndarray:
    mass = 1 / np.arange(1, size + 1)
    return np.random.default_rng(seed).choice(size, length, p=mass / mass.sum())


def seconds(work: Callable[[], Any]) -> float:
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    began = clock()
    work()
    return clock() - began


def measured(size: int, tokens: int, width: int, repeats: int, names: list[str]) -> dict[str, dict[str, float]]:
    words = Vocabulary(size, 0, {}, pieces=[b" " + np.base_repr(i, 26).lower().encode() for i in range(size)])
    text = zipf(size, max(10 * size, 1_000_000), 0)
    h = torch.randn(tokens, width)
    targets = torch.from_numpy(zipf(size, tokens, 1))

    def step(layer: Any) -> None:
        layer.zero_grad()
        x: Tensor = h.clone().requires_grad_()
        layer.total(x, targets).backward()

    def evaluate(layer: Any) -> None:
        with torch.inference_mode():
            layer.nll(h, targets)

    layers, found = {}, {}
    for name in names:
        torch.manual_seed(1)
        layer = layers[name] = make_readout(width, words, LAYERS[name])
        began = time.perf_counter()
        layer.fit_vocabulary(text)
        prepared = time.perf_counter() - began
        found[name] = {"prepared": prepared, "parameters": sum(p.numel() for p in layer.parameters())}
    for what, work in (("step", step), ("evaluation", evaluate)):
        for layer in layers.values():
            layer.zero_grad()
            layer.train(what == "step")
        for round in range(repeats + 1):
            for name, layer in layers.items():
                took = seconds(lambda layer=layer: work(layer))  # type: ignore[misc]  # noqa: B023
                if round:  # the first warms up
                    found[name][what] = min(took, found[name].get(what, took))
    return found


def table(size: int, found: dict[str, dict[str, float]]) -> str:
    lines = [
        f"| V = {size:,} | parameters | training step, ms | × full | exact evaluation, ms | × full | prepare, s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    full = found["full"]
    for name, each in found.items():
        step, evaluation = 1000 * each["step"], 1000 * each["evaluation"]
        ratios = (full[what] / each[what] for what in ("step", "evaluation"))
        faster = [f"{x:.2g}" if x < 100 else f"{x:,.0f}" for x in ratios]
        lines.append(
            f"| {name} | {each['parameters'] / 1e6:.1f} M | {step:,.1f} | {faster[0]} | {evaluation:,.1f} | "
            f"{faster[1]} | {each['prepared']:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 500_000])
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--width", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, fp32; load average {load:.1f}")
    results = {}
    for size in given.sizes:
        layers = [name for name in LAYERS if size <= LONG.get(name, size)]
        results[size] = measured(size, given.tokens, given.width, given.repeats, layers)
        print("\n" + table(size, results[size]), flush=True)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
