"""Training a recurrent translator with attention, compared with joeynmt in one run on the same batches.

    pip install --target FOLDER --no-deps joeynmt sacremoses subword-nmt sentencepiece pandas tensorboard …
    PYTHONPATH=FOLDER python benchmarks/seq2seq.py
    python benchmarks/seq2seq.py --rehearse     # tiny sizes, to check that it runs

A bidirectional GRU encoder with one layer of 256 per direction; a GRU decoder of 256 with additive attention and input
feeding (joeynmt's "bahdanau" is Luong's network with the additive score); embeddings of 256 tied to the output, 8,000
tokens; batches of 64 pairs, about as long as captions (14 tokens, at most 40), sorted by length; dropout 0.2, Adam,
clipping at 1. Speed counts predicted tokens. Peers take turns block by block; the table has medians and the ratio.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import logging
import statistics
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from gpt import DEVICE, blocks, ratio
from nextword.core.types import IGNORE, Batch, Inputs, Vocabulary
from nextword.models.seq2seq import Seq2Seq, Seq2SeqConfig
from nextword.objectives.seq2seq import Seq2SeqObjective

UNKNOWN, PAD, BEGIN, END = range(4)
Pair = tuple[list[Tensor], list[Tensor]]  # a batch: sources and targets, each ending with END


def drawn(count: int, rows: int, size: int) -> list[Pair]:
    draw = torch.Generator().manual_seed(0)
    lengths = (14 + 4.5 * torch.randn(count * rows, generator=draw)).clamp(3, 40).long().sort().values

    def side() -> list[Tensor]:
        texts = [torch.randint(4, size, (int(n),), generator=draw) for n in lengths]
        return [torch.cat([ids, torch.tensor([END])]) for ids in texts]

    source, target = side(), side()
    return [(source[i : i + rows], target[i : i + rows]) for i in range(0, count * rows, rows)]


def step(network: nn.Module, loss: Callable[[Any], Tensor], batches: list[Any]) -> Callable[[], None]:
    network.to(DEVICE).train()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)

    def work() -> None:
        for batch in batches:
            loss(batch).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return work


def ours(pairs: list[Pair], width: int, size: int) -> tuple[nn.Module, Callable[[], None]]:
    sizes = {"width": width, "embedding": width, "encoder_width": width, "cell": "gru", "tied": True, "dropout": 0.2}
    config = Seq2SeqConfig(attention="luong", attention_score="concat", **sizes)
    network = Seq2Seq(config, Vocabulary(size, BEGIN, end=END))
    objective, batches = Seq2SeqObjective({"kind": "sequences", "rows": 64, "length": 80}), []
    for source, target in pairs:
        ids = pad_sequence(source, True, 0)
        there = pad_sequence([torch.ones(len(s), dtype=torch.bool) for s in source], True, False)
        goals = pad_sequence(target, True, IGNORE)
        fed = torch.cat([torch.full((len(goals), 1), BEGIN), goals[:, :-1].clamp(min=0)], 1)
        inputs = Inputs(fed.to(DEVICE), source=Inputs(ids.to(DEVICE), there.to(DEVICE)))
        batches.append(Batch(inputs, goals.to(DEVICE), num_targets=int((goals != IGNORE).sum())))
    return network, step(network, lambda batch: objective.loss(network, batch, None).value, batches)


def theirs(pairs: list[Pair], width: int, size: int) -> tuple[nn.Module, Callable[[], None]]:
    sys.modules.setdefault(
        "importlib_metadata", importlib.metadata
    )  # joeynmt imports the backport; the standard library has the same
    from joeynmt.batch import Batch as Theirs
    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary as Words

    logging.disable(logging.INFO)
    names = {"unk": UNKNOWN, "pad": PAD, "bos": BEGIN, "eos": END}
    given = {f"{name}_token": f"<{name}>" for name in names} | {f"{name}_id": id for name, id in names.items()}
    special = types.SimpleNamespace(**given, sep_token=None, sep_id=None, lang_tags=[])
    words = Words([f"w{i}" for i in range(size - 4)], special)
    part = {"rnn_type": "gru", "embeddings": {"embedding_dim": width, "dropout": 0.2}, "hidden_size": width}
    made = {
        "encoder": {"type": "recurrent", "bidirectional": True, "num_layers": 1, "dropout": 0.2, **part},
        "decoder": {
            "type": "recurrent",
            "attention": "bahdanau",
            "num_layers": 1,
            "dropout": 0.2,
            "layer_dropout": 0.2,
            "init_hidden": "bridge",
            "input_feeding": True,
            **part,
        },
        "tied_embeddings": True,
        "tied_softmax": True,
    }
    network = build_model(made, words, words)
    network.loss_function = ("crossentropy", 0.0)
    batches = []
    for source, target in pairs:
        ids, goals = pad_sequence(source, True, PAD), pad_sequence(target, True, PAD)
        goals = torch.cat([torch.full((len(goals), 1), BEGIN), goals], 1)
        lengths = torch.tensor([len(s) for s in source])
        batch = Theirs(ids, lengths, None, goals, None, torch.arange(len(ids)), DEVICE, PAD, END)
        batch.sort_by_src_length()
        batches.append(batch)

    def loss(batch: Any) -> Tensor:
        return network(return_type="loss", **vars(batch))[0] / batch.ntokens

    return network, step(network, loss, batches)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=12, help="batches in a block")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0: torch's default")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    width, size, rows = (16, 50, 4) if given.rehearse else (256, 8000, 64)
    pairs = drawn(given.batches, rows, size)
    tokens = sum(len(t) for _, target in pairs for t in target)
    made = {"joeynmt": theirs(pairs, width, size), "nextword": ours(pairs, width, size)}
    print(f"\n| attention RNN, {width} wide, {size:,} tokens, {rows} pairs | parameters | tokens/s | ratio |")
    print("| --- | --- | --- | --- |")
    for _, work in made.values():
        work()
    took = blocks({name: work for name, (_, work) in made.items()}, given.rounds)
    for name, each in took.items():
        weights = sum(p.numel() for p in made[name][0].parameters())
        shown = ratio(took["joeynmt"], each) if name == "nextword" else ""
        print(f"| {name} | {weights:,} | {tokens / statistics.median(each):,.0f} | {shown} |")


if __name__ == "__main__":
    main()
