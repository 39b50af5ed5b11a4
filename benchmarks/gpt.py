"""GPT-2 124M compared with its peers in one run: training and greedy generation.

    python benchmarks/gpt.py                    # on a CPU generation, on a GPU training and generation
    python benchmarks/gpt.py --rehearse         # tiny sizes, to check that it runs

The peer in training is the network as nanoGPT has it, written here in plain torch: compiled, bf16 autocast, fused
AdamW, logits written out. In writing it is transformers' `generate`. Weights are random: nothing here depends on what
they are. Peers take turns block by block; medians count, and the ratio.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.batching.token_stream import Stream
from nextword.core.types import Greedy, Vocabulary
from nextword.generation.sampling import generate_batch
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.recipe import load_recipe
from nextword.training.device import flops_utilization
from nextword.training.events import Job
from nextword.training.trainer import Trainer

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")


def synchronize() -> None:
    if CUDA:
        torch.cuda.synchronize()


def seconds(work: Callable[[], Any]) -> float:
    synchronize()
    began = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - began


def blocks(contenders: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each, taking turns."""
    for work in contenders.values():
        work()  # warm
    took: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, work in contenders.items():
            took[name].append(seconds(work))
    return took


def ratio(peer: list[float], own: list[float]) -> str:
    each = [a / b for a, b in zip(peer, own, strict=True)]
    return f"**{statistics.median(each):.2f}** ({min(each):.2f}–{max(each):.2f})"


# ------------------------------------------------------------------------------------------------ training


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.join, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.join(x).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).contiguous().view(b, t, c))


class Peer(nn.Module):
    """The same network with its logits written out."""

    def __init__(self, config: GPT2Config, size: int) -> None:
        super().__init__()
        w = config.width
        self.embedding, self.positions = nn.Embedding(size, w), nn.Embedding(config.window, w)
        self.attend = nn.ModuleList(Attention(w, config.heads) for _ in range(config.layers))
        self.norms = nn.ModuleList(nn.LayerNorm(w) for _ in range(2 * config.layers + 1))
        self.wide = nn.ModuleList(nn.Linear(w, 4 * w) for _ in range(config.layers))
        self.narrow = nn.ModuleList(nn.Linear(4 * w, w) for _ in range(config.layers))
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and loss, both, as nanoGPT's."""
        x = self.embedding(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for i, attend in enumerate(self.attend):
            x = x + attend(self.norms[2 * i](x))
            x = x + self.narrow[i](F.gelu(self.wide[i](self.norms[2 * i + 1](x)), approximate="tanh"))
        logits = F.linear(self.norms[-1](x), self.embedding.weight)
        return logits, F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def peers_step(config: GPT2Config, size: int, rows: int) -> Callable[[], None]:
    peer: Any = Peer(config, size).to(DEVICE)
    optimizer = torch.optim.AdamW(peer.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    run = torch.compile(peer) if CUDA else peer
    ids = torch.randint(0, size, (rows, config.window + 1), device=DEVICE)

    def step() -> None:
        with torch.autocast(DEVICE.type, torch.bfloat16):
            _, loss = run(ids[:, :-1], ids[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def our_step(config: GPT2Config, size: int, rows: int) -> tuple[Callable[[], None], Any]:
    changes = [f"phase.0.batches.rows={rows}", f"phase.0.batches.length={config.window}", "phase.0.accumulate=1"]
    phase = load_recipe("gpt2/124m", changes).phases[0]
    network = GPT2(config, Vocabulary(size, 0))
    ids = np.random.default_rng(0).integers(0, size, 20 * rows * config.window + 1).astype(np.uint16)
    job = Job(network, phase, 0, Stream.from_ids(ids), None, False, None, DEVICE)
    trainer = Trainer(job)
    batches = trainer.batches()
    return lambda: trainer.step(batches), network


def train(config: GPT2Config, size: int, rows: int, steps: int, rounds: int) -> None:
    print(
        f"\n| training GPT-2 {config.layers}×{config.width}, {rows}×{config.window}, bf16 "
        "| tokens/s | MFU | ratio | peak memory |"
    )
    print("| --- | --- | --- | --- | --- |")
    both: dict[str, Callable[[], None]] = {}
    peak = {}
    for name in ("peer", "nextword"):
        before = torch.cuda.memory_allocated() if CUDA else 0
        if CUDA:
            torch.cuda.reset_peak_memory_stats()
        if name == "peer":
            both[name] = peers_step(config, size, rows)
        else:
            both[name], network = our_step(config, size, rows)
        for _ in range(5):
            both[name]()
        if CUDA:  # weights, gradients, the optimizer's moments and a step's activations
            peak[name] = (torch.cuda.max_memory_allocated() - before) / 2**30
    took = blocks({name: _times(step, steps) for name, step in both.items()}, rounds)
    for name, each in took.items():
        speed = steps * rows * config.window / statistics.median(each)
        used = flops_utilization(network, speed, config.window, DEVICE)
        shown = "" if name == "peer" else ratio(took["peer"], each)
        print(f"| {name} | {speed:,.0f} | {used or 0:.3f} | {shown} | {peak.get(name, 0):.1f} GiB |")


def _times(step: Callable[[], None], n: int) -> Callable[[], None]:
    def work() -> None:
        for _ in range(n):
            step()

    return work


# ------------------------------------------------------------------------------------------------ writing


def writer(network: Any, prompt: Tensor, length: int) -> Callable[[], Any]:
    @torch.no_grad()
    def work() -> Any:
        read = torch.full((len(prompt),), prompt.shape[1] - 1, device=prompt.device)
        state = network.prompt(prompt[:, :-1], read)
        return generate_batch(network, prompt[:, -1], state, Greedy(), length)

    return work


def theirs(config: GPT2Config, size: int, dtype: torch.dtype) -> Any:
    from transformers import GPT2Config as Config
    from transformers import GPT2LMHeadModel

    made = Config(
        vocab_size=size, n_positions=config.window, n_embd=config.width, n_layer=config.layers, n_head=config.heads
    )
    return GPT2LMHeadModel(made).to(DEVICE, dtype).eval()


def write(config: GPT2Config, size: int, batches: list[int], prompt: int, length: int, rounds: int) -> None:
    dtype = torch.bfloat16 if CUDA else torch.float32
    made = {"nextword": GPT2(config, Vocabulary(size, 0)).to(DEVICE, dtype).eval()}
    if not CUDA:
        made["nextword, 8 bits"] = GPT2(config, Vocabulary(size, 0)).eval()
        made["nextword, 8 bits"].quantize()
    peer = theirs(config, size, dtype)
    kind = str(dtype).removeprefix("torch.")
    print(
        f"\n| writing greedily, GPT-2 {config.layers}×{config.width}, {prompt} + {length} tokens, {kind} "
        "| tokens/s | ratio |"
    )
    print("| --- | --- | --- |")
    for rows in batches:
        ids = torch.randint(1, size, (rows, prompt), device=DEVICE)

        def generate(ids: Tensor = ids) -> Any:
            with torch.no_grad():
                return peer.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=length,
                    min_new_tokens=length,
                    do_sample=False,
                    pad_token_id=0,
                )

        contenders: dict[str, Callable[[], Any]] = {"transformers": generate}
        contenders |= {name: writer(network, ids, length) for name, network in made.items()}
        took = blocks(contenders, rounds)
        for name, each in took.items():
            shown = "1" if name == "transformers" else ratio(took["transformers"], each)
            print(f"| {name}, batch {rows} | {rows * length / statistics.median(each):,.1f} | {shown} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("all", "train", "write"), default="all")
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes")
    parser.add_argument("--rows", type=int, default=32, help="of 1024 tokens, in training")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    where = torch.cuda.get_device_name() if CUDA else f"{torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {where}")
    tiny = GPT2Config(width=32, layers=2, heads=2, window=64, dropout=0.0)
    config = tiny if args.rehearse else GPT2Config(dropout=0.0)
    if args.part != "write" and (CUDA or args.rehearse):
        train(
            config,
            512 if args.rehearse else 50304,
            4 if args.rehearse else args.rows,
            2 if args.rehearse else 10,
            args.rounds,
        )
    if args.part != "train":
        size = 512 if args.rehearse else 50257
        batches = [1, 8, 64] if CUDA else [1, 8]
        write(
            config, size, batches, 8 if args.rehearse else 32, 16 if args.rehearse else 128 if CUDA else 48, args.rounds
        )


if __name__ == "__main__":
    main()
