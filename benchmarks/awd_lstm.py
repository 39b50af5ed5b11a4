"""AWD-LSTM: one training step with every regularizer, compared with its peers in one run.

    python benchmarks/awd_lstm.py [--fastai FOLDER] [--sizes 10000 33278] [--blocks 5] [--steps 3] [--json FILE]
    python benchmarks/awd_lstm.py --part gpu [--repeats 20]       on a machine with a GPU
    python benchmarks/awd_lstm.py --rehearse                      both parts in seconds, tiny, on any machine

CPU. The peer is fastai's AWD_LSTM with its language-model head, its dropouts and what its RNNRegularizer adds to the
loss, trained by torch's SGD and clipping. Ours is the loop of `nextword train` on the recipe awd-lstm/ptb, averaging
from the second step on. Same shape (400, 1152, 3 layers, batch 20, sequences of 70), dropouts, rate, decay and threads,
in fp32. Where fastai is not installed, give a folder that holds it (pip install --target FOLDER --no-deps fastai …).

GPU. The peer is the original's network in plain torch: nn.LSTM whose recurrent weights are dropped before each call.
Ours are the recipes awd-lstm/ptb and awd-lstm/wikitext2, their kernels launched one by one and recorded as a graph. In
fp32 nothing is rounded to tf32, which torch would let cuDNN do.

Ids are random, by Zipf's law: they take as long as text. Whoever is compared takes turns, a block of steps each, so
that whatever else the machine does falls on all; medians are compared. With OMP_NUM_THREADS=1 it is processor time that
is compared on a CPU, which others on the machine lengthen little.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.batching.token_stream import Stream
from nextword.core.types import Vocabulary
from nextword.models import model_class
from nextword.recipe import load_recipe
from nextword.training.device import autocast, synchronize
from nextword.training.events import Job
from nextword.training.trainer import Trainer

CPU = torch.device("cpu")
EPOCHS = {10_000: ("PTB", 929_589, 73_760), 33_278: ("WikiText-2", 2_088_628, 217_646)}  # tokens: train, valid
RECIPES = {"awd-lstm/ptb": 10_000, "awd-lstm/wikitext2": 33_278}
HELD_ROWS, HELD_LENGTH, HELD_BATCHES = 10, 128, 4  # what our validation makes of so many tokens
HELD_TOKENS = HELD_BATCHES * HELD_ROWS * HELD_LENGTH
ORDER = ("plain torch", "one by one", "recorded")
RECURRENT = "weight_hh_l0"


Work = Callable[[], Any]


@dataclass
class Contender:
    step: Work  # one training step
    nats: Callable[[], float]  # mean loss of a token in all steps so far
    held: Callable[[], float]  # a validation pass: nats a token
    network: Any
    recurrent: Callable[[], Tensor]  # its first layer's recurrent weights as they are in a pass

    def dropped(self) -> float:
        """The share of recurrent connections that are cut in training and not in evaluation."""
        self.network.train()
        zeros = (self.recurrent() == 0).float().mean()
        self.network.eval()
        return float(zeros - (self.recurrent() == 0).float().mean())


# ------------------------------------------------------------------------------------------------ ids


@dataclass(frozen=True)
class Text:
    """Random ids in rows, so long that every batch of an epoch has the same length."""

    size: int
    rows: int
    length: int
    batches: int

    def ids(self, held: bool = False) -> np.ndarray:
        length = HELD_TOKENS + HELD_ROWS if held else self.rows * (self.length * self.batches + 1)
        mass = 1 / np.arange(1, self.size + 1)
        return np.random.default_rng(held).choice(self.size, length, p=mass / mass.sum()).astype(np.int64)


def pieces(ids: np.ndarray, rows: int, length: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """(B, T) inputs and targets, over and over."""
    table = torch.from_numpy(ids).view(rows, -1).to(device)
    while True:
        for at in range(0, table.shape[1] - 1, length):
            yield table[:, at : at + length], table[:, at + 1 : at + 1 + length]


# ------------------------------------------------------------------------------------------------ contenders


def ours(recipe: str, text: Text, model: Mapping[str, Any], device: torch.device, **phase: Any) -> Contender:
    """The loop of `nextword train` on the ids; `phase` and `model` change the recipe."""
    found = load_recipe(recipe)
    same = {"rows": text.rows, "length": text.length, "length_std": 0.0, "half_probability": 0.0}
    one = found.phases[0]
    changes: Any = {"batches": {**one.batches, **same}, "optimizer": {**one.optimizer, "start": 1}, **phase}
    cls = model_class(found.slug)
    torch.manual_seed(1)
    network = cls(cls.Config(**{**found.model, **model}), Vocabulary(text.size, 0))
    train, held = Stream.from_ids(text.ids()), Stream.from_ids(text.ids(held=True))
    trainer = Trainer(Job(network, dataclasses.replace(one, **changes), 0, train, held, False, None, device))
    trainer.begin()
    source = trainer.batches()

    return Contender(
        step=lambda: trainer.step(source),
        nats=lambda: trainer.nats.item() / trainer.predictions,
        held=lambda: trainer.compute_validation().nats,
        network=network,
        recurrent=lambda: network.layers[0].weights()[1],
    )


def plain(network: Any, rnn: Any, text: Text, device: torch.device = CPU, precision: str = "fp32") -> Contender:
    """A training loop by hand around a network that returns logits, its last layer, and that after dropout."""
    optimizer = torch.optim.SGD(network.parameters(), lr=30.0, weight_decay=1.2e-6)
    source = pieces(text.ids(), text.rows, text.length, device)
    losses: list[Tensor] = []

    def loss(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z, raw, out = network(x)
        return F.cross_entropy(z.float().view(-1, z.shape[-1]), y.reshape(-1)), raw, out

    def step() -> None:
        network.train()
        with autocast(precision, device):
            value, raw, out = loss(*next(source))
            penalties = 2 * out.float().pow(2).mean() + (raw[:, 1:] - raw[:, :-1]).float().pow(2).mean()
        (value + penalties).backward()
        nn.utils.clip_grad_norm_(network.parameters(), 0.25)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(value.detach())

    @torch.no_grad()
    def held() -> float:
        network.eval()
        network.reset()
        batches = pieces(text.ids(held=True), HELD_ROWS, HELD_LENGTH, device)
        return sum(loss(*next(batches))[0].item() for _ in range(HELD_BATCHES)) / HELD_BATCHES

    @torch.no_grad()
    def recurrent() -> Tensor:
        network(torch.zeros(text.rows, 1, dtype=torch.long, device=device))
        return getattr(rnn, RECURRENT)

    return Contender(step, lambda: torch.stack(losses).mean().item(), held, network, recurrent)


def fastai(text: Text, model: Mapping[str, Any]) -> Contender:
    try:
        from fastai.text.models.awdlstm import AWD_LSTM, awd_lstm_lm_config
        from fastai.text.models.core import get_language_model
    except ImportError as problem:
        sys.exit(f"fastai cannot be imported ({problem}). Give a folder that holds it with --fastai, or --part gpu.")
    m = {**load_recipe("awd-lstm/ptb").model, **model}
    names = {"emb_sz": "embedding", "n_hid": "width", "n_layers": "layers"}
    shares = {
        "embed": "word_dropout",
        "input": "input_dropout",
        "hidden": "layer_dropout",
        "output": "output_dropout",
        "weight": "weight_dropout",
    }
    config = {**awd_lstm_lm_config, **{theirs: m[name] for theirs, name in names.items()}}
    config |= {f"{theirs}_p": m[name] for theirs, name in shares.items()}
    torch.manual_seed(1)
    network = get_language_model(AWD_LSTM, text.size, config)
    return plain(network, network[0].rnns[0].module, text)


class Original(nn.Module):
    """salesforce/awd-lstm-lm as it would be written for today's torch; batch first outside, time first inside."""

    def __init__(self, size: int, m: Mapping[str, Any]) -> None:
        super().__init__()
        self.m = m
        widths = [m["embedding"], *[m["width"]] * (m["layers"] - 1), m["embedding"]]
        self.encoder = nn.Embedding(size, m["embedding"])
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        self.rnns = nn.ModuleList(nn.LSTM(a, b) for a, b in pairwise(widths))
        self.raw = nn.ParameterList()
        for rnn in self.rnns:
            self.raw.append(nn.Parameter(getattr(rnn, RECURRENT).detach()))
            delattr(rnn, RECURRENT)
            setattr(rnn, RECURRENT, self.raw[-1].detach())
            rnn.flatten_parameters = lambda: None  # type: ignore[assignment]  # it would move the dropped weights
        self.bias = nn.Parameter(torch.zeros(size))
        self.reset()

    def reset(self) -> None:
        self.state: list[Any] = [None] * len(self.rnns)

    def dropped(self, x: Tensor, shape: tuple[int, ...], share: float) -> Tensor:
        return x * x.new_empty(shape).bernoulli_(1 - share).div_(1 - share) if self.training else x

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        weight, m = self.encoder.weight, self.m
        x = F.embedding(ids.t(), self.dropped(weight, (len(weight), 1), m["word_dropout"]))
        for i, (rnn, raw) in enumerate(zip(self.rnns, self.raw, strict=True)):
            x = self.dropped(x, (1, *x.shape[1:]), m["layer_dropout" if i else "input_dropout"])
            setattr(rnn, RECURRENT, F.dropout(raw, m["weight_dropout"], self.training))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the weights are not in one piece: so it is in the original
                x, state = rnn(x, self.state[i])
            self.state[i] = tuple(s.detach() for s in state)
        out = self.dropped(x, (1, *x.shape[1:]), m["output_dropout"])
        z = F.linear(out, self.encoder.weight, self.bias).transpose(0, 1).contiguous()
        return z, x.transpose(0, 1), out.transpose(0, 1)


def original(recipe: str, text: Text, model: Mapping[str, Any], device: torch.device, precision: str) -> Contender:
    torch.manual_seed(1)
    network = Original(text.size, {**load_recipe(recipe).model, **model}).to(device)
    return plain(network, network.rnns[0], text, device, precision)


# ------------------------------------------------------------------------------------------------ measuring


def seconds(work: Work, times: int, device: torch.device) -> float:
    """Of one, where `times` are done without a pause."""
    clock = time.process_time if device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    synchronize(device)
    began = clock()
    for _ in range(times):
        work()
    synchronize(device)
    return (clock() - began) / times


def turns(works: Mapping[str, Work], blocks: int, steps: int, device: torch.device) -> dict[str, list[float]]:
    """Seconds of a step, in each block of each; those who come late in one round come early in the next."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for block in range(blocks):
        for name in list(works)[:: 1 if block % 2 else -1]:
            times[name].append(seconds(works[name], steps, device))
    return times


def against(peer: list[float], own: list[float]) -> dict[str, float]:
    """How many times as fast as the peer: the median of the rounds, the least and the most."""
    ratios = sorted(p / o for p, o in zip(peer, own, strict=True))
    return {"ratio": statistics.median(ratios), "least": ratios[0], "most": ratios[-1]}


def on_cpu(text: Text, model: Mapping[str, Any], blocks: int, steps: int) -> dict[str, Any]:
    contenders = {
        "fastai": fastai(text, model),
        "nextword": ours("awd-lstm/ptb", text, model, CPU, precision="fp32", cuda_graphs=False),
    }
    dropped = {name: each.dropped() for name, each in contenders.items()}
    before = {name: each.held() for name, each in contenders.items()}
    for each in contenders.values():
        seconds(each.step, 2, CPU)  # warms up
    times = turns({name: each.step for name, each in contenders.items()}, blocks, steps, CPU)
    held = turns({name: each.held for name, each in contenders.items()}, blocks, 1, CPU)
    after = {name: each.held() for name, each in contenders.items()}
    for name in contenders:
        if abs(dropped[name] - 0.5) > 0.05 or not after[name] < before[name]:
            sys.exit(
                f"{name} does not train as it should, so that its time says nothing: {dropped[name]:.0%} of its "
                f"recurrent connections are dropped, and the held-out loss goes {before[name]:.2f} → {after[name]:.2f}."
            )
    return {
        "step": {name: statistics.median(each) for name, each in times.items()},
        "held": {name: statistics.median(each) for name, each in held.items()},
        "training": against(times["fastai"], times["nextword"]),
        "validation": against(held["fastai"], held["nextword"]),
        **{"dropped": dropped, "before": before, "after": after},
    }


def on_gpu(
    recipe: str, text: Text, model: Mapping[str, Any], precision: str, blocks: int, steps: int, device: torch.device
) -> dict[str, Any]:
    """One recipe in one precision; prints why a peer is skipped."""
    torch.backends.cudnn.allow_tf32 = precision != "fp32"  # torch's own setting is that cuDNN may round
    torch.set_float32_matmul_precision("highest")
    makers: dict[str, Callable[[], Contender]] = {
        ORDER[0]: lambda: original(recipe, text, model, device, precision),
        ORDER[1]: lambda: ours(recipe, text, model, device, precision=precision, cuda_graphs=False),
        ORDER[2]: lambda: ours(recipe, text, model, device, precision=precision, cuda_graphs=True),
    }
    ready: dict[str, Contender] = {}
    failed: dict[str, str] = {}
    for name, make in makers.items():
        try:
            ready[name] = make()
            seconds(ready[name].step, 5, device)  # the first makes libraries ready, the second is recorded
        except Exception as problem:
            ready.pop(name, None)
            failed[name] = f"{type(problem).__name__}: {problem}".splitlines()[0][:200]
    times = turns({name: each.step for name, each in ready.items()}, blocks, steps, device)
    peer = times.get(ORDER[0])
    found = {
        "step": {name: statistics.median(each) for name, each in times.items()},
        "ratios": {name: against(peer, times[name]) for name in times} if peer else {},
        "nats": {name: each.nats() for name, each in ready.items()},
        "failed": failed,
    }
    ready.clear()
    gc.collect()
    torch.cuda.empty_cache()
    return found


# ------------------------------------------------------------------------------------------------ report


def span(r: Mapping[str, float] | None) -> str:
    return f"**{r['ratio']:.2f}** ({r['least']:.2f}–{r['most']:.2f})" if r else "–"


def cpu_table(text: Text, found: dict[str, Any]) -> str:
    name, train, valid = EPOCHS.get(text.size, ("a million tokens", 1_000_000, 0))
    lines = [
        f"| AWD-LSTM on a CPU, batch {text.rows}, bptt {text.length}, V = {text.size:,} | ms a step | tokens/s | "
        f"validation tokens/s | an epoch of {name} | held-out nats before → after |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for who in ("fastai", "nextword"):
        speed, held = text.rows * text.length / found["step"][who], HELD_TOKENS / found["held"][who]
        minutes = (train / speed + valid / held) / 60
        lines.append(
            f"| {who} | {1000 * found['step'][who]:,.0f} | {speed:,.0f} | {held:,.0f} | {minutes:,.0f} min | "
            f"{found['before'][who]:.2f} → {found['after'][who]:.2f} |"
        )
    ratios = " | ".join(span(found[what]) for what in ("training", "validation"))
    return "\n".join([*lines, f"| ratio (least and most of the blocks) | | {ratios} | | |"])


def gpu_table(found: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [
        f"| recipe | precision | {', ms | '.join(ORDER)}, ms | recorded × plain (least and most) |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    notes = []
    for recipe, precisions in found.items():
        for precision, each in precisions.items():
            cells = [f"{1000 * each['step'][n]:.1f}" if n in each["step"] else "–" for n in ORDER]
            lines.append(f"| `{recipe}` | {precision} | {' | '.join(cells)} | {span(each['ratios'].get(ORDER[2]))} |")
            notes += [f"{recipe}, {precision}, {name} did not run. {why}" for name, why in each["failed"].items()]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("cpu", "gpu", "both"), help="as a rule cpu; with --rehearse both")
    parser.add_argument("--fastai", type=Path, help="a folder that holds fastai")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000], help="words, on the CPU")
    parser.add_argument("--blocks", type=int, default=5, help="turns of each")
    parser.add_argument("--steps", type=int, default=3, help="in a block, on the CPU")
    parser.add_argument("--repeats", type=int, default=20, help="steps in a block, on the GPU")
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes, the GPU's part on the CPU too")
    parser.add_argument("--json", type=Path, help="write all figures here too")
    given = parser.parse_args()
    part = given.part or ("both" if given.rehearse else "cpu")
    device = CPU if given.rehearse else torch.device("cuda")
    if part != "cpu" and not given.rehearse and not torch.cuda.is_available():
        sys.exit("torch sees no GPU here. Use --part cpu, or --rehearse to see that all of it runs.")
    model = {"embedding": 16, "width": 24} if given.rehearse else {}
    shape, sizes = ((4, 8), [200]) if given.rehearse else ((20, 70), given.sizes)
    blocks, steps, repeats = (2, 8, 4) if given.rehearse else (given.blocks, given.steps, given.repeats)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; load of the machine {os.getloadavg()[0]:.1f}")
    results: dict[str, Any] = {"cpu": {}, "gpu": {}}
    if part != "gpu":
        sys.path[:0] = [str(given.fastai)] if given.fastai else []
        warnings.filterwarnings("ignore", category=Warning)  # what fastai misses of its many dependencies
        for size in sizes:
            text = Text(size, *shape, 8)
            results["cpu"][size] = on_cpu(text, model, blocks, steps)
            print("\n" + cpu_table(text, results["cpu"][size]), flush=True)
    if part != "cpu":
        print(f"\n{torch.cuda.get_device_name() if device.type == 'cuda' else 'rehearsal on the CPU'}")
        for recipe, size in RECIPES.items():
            batches: Any = load_recipe(recipe).phases[0].batches
            text = Text(200, *shape, 40) if given.rehearse else Text(size, batches["rows"], batches["length"], 40)
            results["gpu"][recipe] = {
                precision: on_gpu(recipe, text, model, precision, blocks, repeats, device)
                for precision in ("fp32", "tf32", "bf16")
            }
        print("\n" + gpu_table(results["gpu"]))
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
