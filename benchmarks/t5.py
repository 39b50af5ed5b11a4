"""T5 compared with transformers in one run: training, and beam search of a fixed number of tokens.

    python benchmarks/t5.py                     # T5-small; training 64 × (512 + 114) on a GPU, 2 × (128 + 32) on a CPU
    python benchmarks/t5.py --part beam         # beam 5, 64 tokens, batch 32 on a GPU and 4 on a CPU
    python benchmarks/t5.py --rehearse          # tiny sizes, to check that it runs

Both train with dropout, in bf16 (32 bits on a CPU), compiled on a GPU, with fused AdamW and no clipping; both write
with random weights. Peers take turns block by block; medians count, and the ratio.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpt import CUDA, DEVICE, blocks, ratio
from nextword.core.types import Beam, Inputs, Vocabulary
from nextword.generation.beam_search import beam_search
from nextword.models.t5 import T5, T5Config

SIZE = 32128


def peer(config: T5Config) -> Any:
    from transformers import T5Config as Theirs
    from transformers import T5ForConditionalGeneration

    made = Theirs(
        vocab_size=SIZE,
        d_model=config.width,
        d_kv=config.head_width,
        d_ff=config.ffn_width,
        num_layers=config.layers,
        num_heads=config.heads,
        dropout_rate=config.dropout,
        decoder_start_token_id=0,
    )
    return T5ForConditionalGeneration(made).to(DEVICE)


def ours(config: T5Config) -> Any:
    return T5(config, Vocabulary(SIZE, 0, end=1)).to(DEVICE)


def training(network: Any, loss: Callable[[], Tensor], steps: int) -> Callable[[], None]:
    network.train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)

    def work() -> None:
        for _ in range(steps):
            with torch.autocast(DEVICE.type, torch.bfloat16, enabled=CUDA):
                value = loss()
            value.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return work


def train(config: T5Config, rows: int, source: int, target: int, steps: int, rounds: int) -> None:
    shape = f"{config.layers}×{config.width}, {rows} × ({source} + {target})"
    print(f"\n| training T5 {shape} | tokens/s | ratio | memory |")
    print("| --- | --- | --- | --- |")
    ids, goals = (torch.randint(2, SIZE, (rows, n), device=DEVICE) for n in (source, target))
    fed = torch.cat([torch.zeros_like(goals[:, :1]), goals[:, :-1]], 1)
    their, mine = peer(config), ours(config)
    run = torch.compile(their) if CUDA else their
    if CUDA:
        mine.compile_training()

    def own() -> Tensor:
        h = mine.hidden(Inputs(fed, source=Inputs(ids)), None)[0][-1]
        return mine.readout.total(h.flatten(0, 1), goals.flatten()) / goals.numel()

    both = {
        "transformers": training(their, lambda: run(input_ids=ids, labels=goals).loss, steps),
        "nextword": training(mine, own, steps),
    }
    peak = {}
    for name, work in both.items():
        before = torch.cuda.memory_allocated() if CUDA else 0
        if CUDA:
            torch.cuda.reset_peak_memory_stats()
        work()
        if CUDA:
            peak[name] = (torch.cuda.max_memory_allocated() - before) / 2**30
    took = blocks(both, rounds)
    for name, each in took.items():
        speed = steps * rows * (source + target) / statistics.median(each)
        shown = ratio(took["transformers"], each) if name == "nextword" else ""
        print(f"| {name} | {speed:,.0f} | {shown} | {peak.get(name, 0):.1f} GiB |", flush=True)


def writing(config: T5Config, batch: int, source: int, length: int, width: int, rounds: int) -> None:
    dtype = torch.bfloat16 if CUDA else torch.float32
    ids = torch.randint(2, SIZE, (batch, source), device=DEVICE)
    their, mine = peer(config).to(dtype).eval(), ours(config).to(dtype).eval()
    lengths = {"max_new_tokens": length, "min_new_tokens": length}

    @torch.no_grad()
    def theirs() -> Any:
        mask = torch.ones_like(ids)
        return their.generate(ids, attention_mask=mask, num_beams=width, do_sample=False, **lengths)

    @torch.no_grad()
    def own() -> Any:
        return beam_search(mine, *mine.start(batch, Inputs(ids)), Beam(width, 1.0), length, n=1)

    both = {"transformers": theirs, "nextword": own}
    for work in both.values():
        work()
    took = blocks(both, rounds)
    for name, each in took.items():
        speed = batch * length / statistics.median(each)
        shown = ratio(took["transformers"], each) if name == "nextword" else ""
        print(f"| {name}, batch {batch} | {speed:,.0f} | {shown} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["train", "beam", "all"], default="all")
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0, help="of the CPU (0: all)")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    config = T5Config(width=64, layers=2, heads=2, head_width=32, ffn_width=128) if given.rehearse else T5Config()
    tiny = given.rehearse
    if given.part in ("train", "all"):
        shape = (2, 16, 8, 1) if tiny else (64, 512, 114, 10) if CUDA else (2, 128, 32, 2)
        train(config, *shape, rounds=given.rounds)
    if given.part in ("beam", "all"):
        length, source = (8, 8) if tiny else (64, 64)
        print(f"\n| T5 {config.layers}×{config.width}, beam 5, {length} tokens of {source} | tokens/s | ratio |")
        print("| --- | --- | --- |")
        for batch in (2,) if tiny else (1, 32) if CUDA else (1, 4):
            writing(config, batch, source, length, 5, given.rounds)


if __name__ == "__main__":
    main()
