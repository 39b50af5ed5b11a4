"""LSTM training and generation, side by side with a bare torch loop in one run.

    python benchmarks/lstm.py [--data ../shared/data/wikitext-2] [--blocks 7] [--steps 8] [--json FILE]

The peer is the word_language_model of pytorch/examples as a user would write it today: nn.Embedding, nn.LSTM,
nn.Linear, cross_entropy, clip_grad_norm_, and SGD by hand (embedding and hidden 200, 2 layers, batch 20, bptt 35,
rate 20, clip 0.25, dropout 0.2). Ours is `nextword.train` on the recipe lstm/wikitext2, set to the same model. The
two take turns, a block of steps each, so that whatever else the machine does falls on both; the medians are compared.

Generation: with carried state a token costs the same however many came before it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.types import Sample, Stop
from nextword.lm.loading import wrap_network
from nextword.models import model_class
from nextword.recipe import load_recipe
from nextword.tokenizers import vocabulary
from nextword.tokenizers.loading import load_tokenizer
from nextword.training.train import train_events

ROWS, LENGTH = 20, 35
NEVER = 10**9


# ------------------------------------------------------------------------------------------------ training


class Bare(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.2)
        self.encoder = nn.Embedding(size, 200)
        self.rnn = nn.LSTM(200, 200, 2, dropout=0.2)
        self.decoder = nn.Linear(200, size)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, ids: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y, state = self.rnn(self.dropout(self.encoder(ids)), state)
        return self.decoder(self.dropout(y)).view(-1, self.decoder.out_features), state


def bare_loop(data: Path, block: int) -> Iterator[tuple[int, float]]:
    """Tokens and loss of each block of steps."""
    words: dict[str, int] = {}
    ids = [words.setdefault(w, len(words)) for line in open_lines(data) for w in [*line.split(), "<eos>"]]
    stream = torch.tensor(ids)
    stream = stream[: len(stream) // ROWS * ROWS].view(ROWS, -1).t().contiguous()  # (T, B)
    model = Bare(len(words)).train()
    state = (torch.zeros(2, ROWS, 200), torch.zeros(2, ROWS, 200))
    tokens, loss_sum = 0, 0.0
    for step, i in enumerate(range(0, len(stream) - LENGTH - 1, LENGTH), 1):
        x, y = stream[i : i + LENGTH], stream[i + 1 : i + 1 + LENGTH].reshape(-1)
        state = (state[0].detach(), state[1].detach())
        model.zero_grad()
        z, state = model(x, state)
        loss = F.cross_entropy(z, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-20.0)
        tokens += len(y)
        loss_sum += loss.item()
        if step % block == 0:
            yield tokens, loss_sum / block
            tokens, loss_sum = 0, 0.0


def our_loop(data: Path, block: int, folder: Path) -> Iterator[tuple[int, float]]:
    options = {"steps": NEVER, "log_every": block, "save_every": NEVER, "validate_every": NEVER}
    changes = [f"phase.0.{key}={value}" for key, value in options.items()]
    changes += ["model.tied=false", "phase.0.schedule={kind='constant'}"]  # the peer's model, at the peer's rate
    recipe = load_recipe("lstm/wikitext2", changes).with_data([str(data)])
    seen = 0
    for event in train_events(recipe, folder, device="cpu"):
        if event.kind == "step":
            yield event.values["seen"] - seen, event.values["loss"]
            seen = event.values["seen"]


def open_lines(data: Path) -> Iterator[str]:
    with (data / "train.txt" if data.is_dir() else data).open(encoding="utf-8") as lines:
        yield from lines


def training(data: Path, folder: Path, blocks: int, block: int) -> dict[str, Any]:
    loops = {"bare torch": bare_loop(data, block), "nextword": our_loop(data, block, folder)}
    speeds: dict[str, list[float]] = {name: [] for name in loops}
    losses: dict[str, float] = {}
    for loop in loops.values():
        next(loop)  # reads the text and warms up
    for _ in range(blocks):
        for name, loop in loops.items():
            began = time.perf_counter()
            tokens, losses[name] = next(loop)
            speeds[name].append(tokens / (time.perf_counter() - began))
    for loop in loops.values():
        loop.close()  # type: ignore[attr-defined]
    ratios = [ours / bare for bare, ours in zip(speeds["bare torch"], speeds["nextword"], strict=True)]
    return {
        "tokens_per_second": {name: statistics.median(each) for name, each in speeds.items()},
        "ratio": statistics.median(ratios),
        "ratios": sorted(round(r, 3) for r in ratios),
        "loss": losses,
        "steps": block * (blocks + 1),
    }


# ------------------------------------------------------------------------------------------------ generation


def generation(folder: Path) -> dict[str, Any]:
    """Seconds for a thousand and for ten thousand tokens, the same model with weights as they come."""
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    cls = model_class("lstm")
    torch.manual_seed(1)
    network = cls(cls.Config(**load_recipe("lstm/wikitext2").model), vocabulary(tokenizer)).eval()
    model = wrap_network(network, tokenizer)

    def seconds(length: int) -> float:
        began = time.perf_counter()
        made = sum(len(piece.ids) for piece in model.generate("", Sample(seed=1), Stop(length=length, at_end=False)))
        assert made == length
        return time.perf_counter() - began

    seconds(100)
    before, long, after = (seconds(length) for length in (1_000, 10_000, 1_000))
    short = (before + after) / 2  # the machine may have become slower or faster meanwhile
    return {"seconds": {"1000": short, "10000": long}, "ratio": long / short}


# ------------------------------------------------------------------------------------------------ report


def training_table(found: dict[str, Any]) -> str:
    bare, ours = (found["tokens_per_second"][name] for name in ("bare torch", "nextword"))
    low, high = found["ratios"][0], found["ratios"][-1]
    return f"""
| LSTM training, 200/200/2, batch 20, bptt 35, WikiText-2 words | tokens/s | ratio (least and most of the blocks) |
| --- | --- | --- |
| bare torch loop | {bare:,.0f} | 1.00 |
| nextword | {ours:,.0f} | **{found["ratio"]:.2f}** ({low:.2f}–{high:.2f}) |"""


def generation_table(found: dict[str, Any]) -> str:
    return f"""
| the same model generating with carried state | seconds | ratio |
| --- | --- | --- |
| 1,000 tokens | {found["seconds"]["1000"]:.2f} | 1.0 |
| 10,000 tokens | {found["seconds"]["10000"]:.2f} | **{found["ratio"]:.1f}** |"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).resolve().parents[2] / "shared" / "data" / "wikitext-2"
    parser.add_argument("--data", type=Path, default=default, help="folder with train.txt, words separated by spaces")
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--steps", type=int, default=8, help="in a block")
    parser.add_argument("--json", type=Path, help="write all figures here too")
    given = parser.parse_args()
    if not given.data.exists():
        sys.exit(f"There is no {given.data}. Give WikiText-2 (the folder with train.txt) with --data.")
    load = os.getloadavg()[0]
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, fp32; load of the machine {load:.1f}")
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        results["training"] = training(given.data, folder, given.blocks, given.steps)
        print(training_table(results["training"]), flush=True)
        results["generation"] = generation(folder)
        print(generation_table(results["generation"]))
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
