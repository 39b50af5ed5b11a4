"""Beam search compared with transformers' `generate(num_beams=5)`, in one run, over the same random network.

    python benchmarks/beam.py                   # GPT-2 124M: batch 1 and 4 on a CPU, 1 and 32 on a GPU
    python benchmarks/beam.py --small           # 6 layers of 384, 8,000 tokens: a minute
    python benchmarks/beam.py --rehearse        # tiny sizes, to check that it runs

Both generate exactly --length tokens. Contenders take turns block by block; the table has medians and the ratio. The
cost of the search itself is measured with a model whose step returns constant log probabilities.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpt import CUDA, DEVICE, blocks, ratio
from nextword.core.types import Beam, Vocabulary
from nextword.generation.beam_search import beam_search
from nextword.models.gpt2 import GPT2, GPT2Config


def ours(config: GPT2Config, size: int, ids: Tensor, width: int, length: int, dtype: torch.dtype) -> Callable[[], Any]:
    network: Any = GPT2(config, Vocabulary(size, 0)).to(DEVICE, dtype).eval()

    @torch.no_grad()
    def work() -> Any:
        read = torch.full((len(ids),), ids.shape[1] - 1, device=DEVICE)
        state = network.prompt(ids[:, :-1], read)
        return beam_search(network, ids[:, -1], state, Beam(width, 1.0), length, n=1)

    return work


def theirs(config: GPT2Config, size: int, ids: Tensor, width: int, length: int, dtype: torch.dtype) -> Callable:
    from transformers import GPT2Config as Config
    from transformers import GPT2LMHeadModel

    made = Config(
        vocab_size=size, n_positions=config.window, n_embd=config.width, n_layer=config.layers, n_head=config.heads
    )
    network: Any = GPT2LMHeadModel(made).to(DEVICE, dtype).eval()
    lengths = {"max_new_tokens": length, "min_new_tokens": length}

    @torch.no_grad()
    def work() -> Any:
        mask = torch.ones_like(ids)
        return network.generate(
            ids, attention_mask=mask, num_beams=width, do_sample=False, early_stopping=False, pad_token_id=0, **lengths
        )

    return work


class Silent:
    """A model whose step costs nothing, so that only the search is timed."""

    has_attention = False

    def __init__(self, rows: int, size: int) -> None:
        self.log_probs = torch.randn(rows, size, device=DEVICE).log_softmax(-1)

    def start(self, batch: int) -> Any:
        return torch.zeros(batch, dtype=torch.long, device=DEVICE), None

    def step(self, last: Tensor, state: Any) -> Any:
        return self.log_probs[: len(last)], state

    def reorder(self, state: Any, rows: Tensor, searches: list[int] | None) -> Any:
        return state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes")
    parser.add_argument("--small", action="store_true", help="a network with a tenth of the parameters")
    parser.add_argument("--width", type=int, default=5)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    where = torch.cuda.get_device_name() if CUDA else f"{torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {where}")
    config, size, length = GPT2Config(dropout=0.0), 50257, args.length
    if args.small:
        config, size = GPT2Config(width=384, layers=6, heads=6, window=256, dropout=0.0), 8000
    if args.rehearse:
        config, size, length = GPT2Config(width=32, layers=2, heads=2, window=64, dropout=0.0), 512, 8
    dtype = torch.bfloat16 if CUDA else torch.float32
    print(
        f"\n| beam {args.width}, GPT-2 {config.layers}×{config.width}, 16 + {length} tokens, "
        f"{str(dtype).removeprefix('torch.')} | tokens/s | ratio | ms a step |"
    )
    print("| --- | --- | --- | --- |")
    for rows in (1, 32) if CUDA else (1, 4):
        ids = torch.randint(1, size, (rows, 16), device=DEVICE)
        silent = Silent(rows * args.width, size)
        contenders: dict[str, Callable[[], Any]] = {
            "transformers": theirs(config, size, ids, args.width, length, dtype),
            "nextword": ours(config, size, ids, args.width, length, dtype),
            "the search alone": lambda s=silent, r=rows: beam_search(
                s, *s.start(r), Beam(args.width, 1.0), length, n=1
            ),
        }
        took = blocks(contenders, args.rounds)
        for name, each in took.items():
            middle = statistics.median(each)
            shown = {"transformers": "1", "nextword": ratio(took["transformers"], each)}.get(name, "")
            step = 1000 * middle / length
            print(f"| {name}, batch {rows} | {rows * length / middle:,.1f} | {shown} | {step:.2f} |", flush=True)


if __name__ == "__main__":
    main()
