"""BERT-base compared with transformers in one run: training steps, texts of uneven length, and encoding.

    python benchmarks/bert.py                   # on a CPU encoding, on a GPU training
    python benchmarks/bert.py --rehearse        # tiny sizes, to check that it runs

    train    rows of 128 full tokens: hidden tokens and pairs, bf16, dropout on, both compiled, AdamW, clip 1.0
    uneven   texts as long as Wikipedia's sentences or paragraphs are: the peer pads, ours lie end to end
    encode   without a gradient, on a CPU: fp32 and bf16, full rows and uneven texts

Ids and weights are random: nothing here depends on what they are. The peer's batches lie on the device before the clock
starts; ours are made, masked and moved while it runs, by the house's own loop. Peers take turns block by block; medians
count, and the ratio. Useful tokens are those of texts, their marks included, without padding.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nextword.batching.masked import cut_pieces
from nextword.batching.token_stream import DOCUMENT, ROW, SENTENCE, WORD, Stream
from nextword.core.types import IGNORE, Inputs, Vocabulary
from nextword.models.bert import BERT, BERTConfig
from nextword.recipe import load_recipe
from nextword.training.device import flops_utilization
from nextword.training.events import Job
from nextword.training.trainer import Trainer

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
MARKS = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}

# How many word pieces (BERT's uncased ones) texts of the English Wikipedia have, of 120 and 400 articles: such a share
# of them no more than that. Paragraphs are lines, headings among them.
SHARES = (0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1)
LENGTHS = {
    "sentences": (1, 2, 3, 7, 14, 18, 21, 25, 29, 33, 39, 48, 58, 71, 83, 98, 147, 437),
    "paragraphs": (1, 2, 2, 3, 4, 8, 26, 51, 74, 99, 127, 169, 211, 261, 300, 340, 462, 800),
}


@dataclass(frozen=True)
class Sizes:
    config: BERTConfig
    vocabulary: int
    rows: int
    length: int
    steps: int  # in a block
    rounds: int


# ------------------------------------------------------------------------------------------------ measuring


def now() -> float:
    if CUDA:
        torch.cuda.synchronize()
    return time.perf_counter()


def seconds(work: Callable[[], Any]) -> float:
    began = now()
    work()
    return now() - began


def blocks(contenders: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each, taking turns. One that fails says so and is left out."""
    ready: dict[str, Callable[[], Any]] = {}
    for name, work in contenders.items():
        with failing_alone(name):
            work()  # warm
            ready[name] = work
    took: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(rounds):
        for name, work in ready.items():
            took[name].append(seconds(work))
    return took


def ratio(peer: list[float], own: list[float], by: float = 1.0) -> str:
    each = [by * a / b for a, b in zip(peer, own, strict=True)]
    return f"**{statistics.median(each):.2f}** ({min(each):.2f}–{max(each):.2f})"


def times(step: Callable[[], Any], n: int) -> Callable[[], None]:
    def work() -> None:
        for _ in range(n):
            step()

    return work


@contextlib.contextmanager
def failing_alone(what: str) -> Iterator[None]:
    """What goes wrong in one part leaves the others their turn."""
    try:
        yield
    except Exception as problem:
        print(f"\nFAILED: {what}: {type(problem).__name__}: {str(problem)[:300]}", flush=True)
        print(traceback.format_exc()[:1500], flush=True)


def table(*head: str) -> None:
    print("\n| " + " | ".join(head) + " |\n|" + " --- |" * len(head), flush=True)


# ------------------------------------------------------------------------------------------------ texts


def lengths(kind: str, n: int) -> np.ndarray:
    """Word pieces in each of n documents."""
    return np.interp(np.random.default_rng(0).random(n), SHARES, LENGTHS[kind]).round().astype(np.int64)


def framed_lengths(kind: str, n: int, length: int) -> np.ndarray:
    """Tokens in each of n texts as a network reads them: long documents are cut, and two marks stand around each."""
    whole = lengths(kind, n)
    _, each, _ = cut_pieces(np.cumsum(whole) - whole, np.cumsum(whole), length - 2)
    return np.random.default_rng(1).permutation(each + 2)[:n]


def stream(documents: np.ndarray, size: int) -> Stream:
    rng = np.random.default_rng(0)
    starts, total = np.cumsum(documents) - documents, int(documents.sum())
    marks = np.where(rng.random(total) < 0.75, WORD, 0).astype(np.uint8)
    marks[rng.random(total) < 0.04] |= WORD | SENTENCE
    marks[starts] |= WORD | SENTENCE | DOCUMENT
    rows = np.zeros(len(documents), ROW)
    rows["start"] = starts
    return Stream(rng.integers(len(MARKS), size, total).astype(np.uint16), marks, rows, 0, 0, 0)


def padded(sizes: np.ndarray, vocabulary: int, width: int) -> dict[str, Tensor]:
    """A peer's batch: rows of ids with padding, a mask, and labels at 15 % of the tokens."""
    there = torch.arange(width) < torch.from_numpy(sizes).unsqueeze(1)
    ids = torch.randint(len(MARKS), vocabulary, there.shape).masked_fill(~there, MARKS["[PAD]"])
    hidden = there & (torch.rand(there.shape) < 0.15)
    labels = ids.masked_fill(~hidden, IGNORE)
    ids = ids.masked_fill(hidden, MARKS["[MASK]"])
    return {k: v.to(DEVICE) for k, v in {"input_ids": ids, "attention_mask": there.long(), "labels": labels}.items()}


# ------------------------------------------------------------------------------------------------ training steps


def theirs(config: BERTConfig, size: int, kind: str) -> Any:
    import transformers

    made = transformers.BertConfig(
        vocab_size=size,
        hidden_size=config.width,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        intermediate_size=config.ffn_width or 4 * config.width,
        max_position_embeddings=config.window,
        hidden_dropout_prob=config.dropout,
        attention_probs_dropout_prob=config.dropout,
    )
    made._attn_implementation = "sdpa"
    options = {"add_pooling_layer": False} if kind == "BertModel" else {}
    return getattr(transformers, kind)(made, **options).to(DEVICE)


def peers_step(model: Any, run: Callable[..., Any], batches: list[dict[str, Tensor]]) -> Callable[[], None]:
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.01, fused=True)
    turn = itertools.cycle(batches)

    def step() -> None:
        with torch.autocast(DEVICE.type, torch.bfloat16):
            loss = run(**next(turn))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def compiled(work: Callable[..., Any], dynamic: bool | None = None) -> Callable[..., Any]:
    return torch.compile(work, dynamic=dynamic) if CUDA else work


def our_step(sizes: Sizes, changes: list[str], text: Stream) -> tuple[Callable[[], None], BERT, Trainer]:
    phase = load_recipe("bert/base", changes).phases[0]
    network = BERT(sizes.config, Vocabulary(sizes.vocabulary, MARKS["[CLS]"], MARKS))
    trainer = Trainer(Job(network, phase, 0, text, None, False, None, DEVICE))
    batches = trainer.batches()
    return lambda: trainer.step(batches), network, trainer


def our_rows(sizes: Sizes) -> tuple[Callable[[], None], BERT, Trainer]:
    """Documents so long that all but a few rows are full."""
    changes = [f"phase.0.batches.rows={sizes.rows}", f"phase.0.batches.length={sizes.length}"]
    long = np.full(40, 4 * sizes.rows * sizes.length)
    return our_step(sizes, [*changes, "phase.0.batches.short_fraction=0.0"], stream(long, sizes.vocabulary))


def peak_of(step: Callable[[], None], n: int = 3) -> float:
    """GiB beyond what lay there before, after a few steps."""
    if CUDA:
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if CUDA else 0
    times(step, n)()
    return (torch.cuda.max_memory_allocated() - before) / 2**30 if CUDA else 0.0


def train(sizes: Sizes) -> None:
    rows, length, config = sizes.rows, sizes.length, sizes.config
    full = [padded(np.full(rows, length), sizes.vocabulary, length) for _ in range(4)]
    for batch in full:
        del batch["attention_mask"]  # it hides nothing: without it the peer is faster
        batch["token_type_ids"] = (torch.arange(length, device=DEVICE) > length // 2).long().repeat(rows, 1)
        batch["next_sentence_label"] = torch.randint(0, 2, (rows,), device=DEVICE)
    ours, network, _ = our_rows(sizes)
    plain, lean = (theirs(config, sizes.vocabulary, "BertForPreTraining") for _ in range(2))
    whole = compiled(plain)

    def plain_loss(**batch: Tensor) -> Tensor:
        return whole(**batch).loss

    def lean_loss(**batch: Tensor) -> Tensor:
        return lean(**batch).loss

    contenders = {
        "transformers, `torch.compile(model)`": peers_step(plain, plain_loss, full),
        "transformers, model and loss compiled as one": peers_step(lean, compiled(lean_loss), full),
        "nextword": ours,
    }
    peaks = {}
    for name, step in list(contenders.items()):
        with failing_alone(name):
            peaks[name] = peak_of(step)
    took = blocks({name: times(contenders[name], sizes.steps) for name in peaks}, sizes.rounds)
    head = f"training BERT {config.layers}×{config.width}, {rows}×{length}, masked tokens and pairs, bf16"
    table(head, "tokens/s", "ms a step", "MFU", "ratio to the first", "to the second", "peak memory")
    peers = [took[name] for name in took if name.startswith("transformers")]
    for name, each in took.items():
        step = statistics.median(each) / sizes.steps
        used = flops_utilization(network, rows * length / step, length, DEVICE) or 0
        shown = ["", ""] if name.startswith("transformers") else [ratio(peer, each) for peer in peers]
        cells = [f"{rows * length / step:,.0f}", f"{1e3 * step:.2f}", f"{used:.3f}", *shown, f"{peaks[name]:.1f} GiB"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print("\nPeers: no mask, logits of every token, batches ready on the device; the first gives its logits out.")
    print("nextword: its whole loop, batches made and masked anew, with a padding mask; reads out hidden tokens alone,")
    print("and its last block computes no others. MFU counts the work that this takes, for all alike.", flush=True)


def uneven(sizes: Sizes, kind: str) -> None:
    rows, length, vocabulary = sizes.rows, sizes.length, sizes.vocabulary
    groups = framed_lengths(kind, 8 * rows, length).reshape(8, rows)
    most = [min(length, -(-int(group.max()) // 8) * 8) for group in groups]
    fixed = [padded(group, vocabulary, length) for group in groups]
    tight = [padded(group, vocabulary, width) for group, width in zip(groups, most, strict=True)]
    packed = f'phase.0.batches={{kind = "packed", tokens = {rows * length}, length = {length}}}'
    documents = lengths(kind, 400 * rows)
    ours, _, trainer = our_step(sizes, [packed], stream(documents, vocabulary))
    one, other = (theirs(sizes.config, vocabulary, "BertForMaskedLM") for _ in range(2))

    def one_loss(**batch: Tensor) -> Tensor:
        return one(**batch).loss

    def other_loss(**batch: Tensor) -> Tensor:  # a function of its own: what is compiled for it is not the other's
        return other(**batch).loss

    contenders = {
        f"transformers padded to {length}": peers_step(one, compiled(one_loss), fixed),
        "transformers padded to a batch's longest": peers_step(other, compiled(other_loss, True), tight),
        "nextword, end to end": ours,
    }
    took = blocks({name: times(step, len(groups)) for name, step in contenders.items()}, sizes.rounds)  # every shape
    turns = itertools.islice(trainer.objective.batches(trainer.train_data, 0, 0), 20)
    own = np.mean([float((batch.inputs.ids != MARKS["[PAD]"]).sum()) for batch in turns])
    positions = {name: length for name in took} | {"transformers padded to a batch's longest": float(np.mean(most))}
    read = {name: own if name.startswith("nextword") else float(groups.sum(1).mean()) for name in took}
    head = f"training on {kind}, {groups.mean():.0f} tokens on average, at most {length}, masked tokens alone, bf16"
    table(head, "useful tokens/s", "ms a step", "useful of all", "ratio to the better peer")
    peers = [name for name in took if name.startswith("transformers")]
    best = min(peers, key=lambda name: statistics.median(took[name])) if peers else ""
    for name, each in took.items():
        step = statistics.median(each) / len(groups)
        shown = ratio(took[best], each, own / read[best]) if best and name not in peers else ""
        share = read[name] / (rows * positions[name])
        print(f"| {name} | {read[name] / step:,.0f} | {1e3 * step:.2f} | {share:.2f} | {shown} |", flush=True)


# ------------------------------------------------------------------------------------------------ encoding


def encode(sizes: Sizes, rows: int, bf16: bool) -> None:
    length, config = sizes.length, replace(sizes.config, dropout=0.0)
    known: dict[str, float] = {}  # seconds that transformers needs in fp32
    for dtype in (torch.float32, torch.bfloat16) if bf16 else (torch.float32,):
        peer = theirs(config, sizes.vocabulary, "BertModel").eval().to(dtype)
        ours = BERT(config, Vocabulary(sizes.vocabulary, MARKS["[CLS]"], MARKS)).to(DEVICE, dtype).eval()
        label = str(dtype).removeprefix("torch.")
        full = np.full(rows, length)
        _encode(label, f"{rows}×{length}", peer, ours, [full], sizes, known)
        for kind in LENGTHS:
            groups = np.split(framed_lengths(kind, 2 * rows, length), 2)
            what = f"{2 * rows} {kind} of {np.mean(groups):.0f} tokens on average"
            _encode(label, what, peer, ours, groups, sizes, known)


def _encode(label: str, what: str, peer: Any, ours: BERT, groups: list[np.ndarray], sizes: Sizes, known: Any) -> None:
    """The peer reads group after group, each padded to its longest; ours all texts end to end, as `embed` does."""
    each = np.concatenate(groups)
    ordered = -np.sort(-each)
    batches = {"transformers": [padded(group, sizes.vocabulary, int(group.max())) for group in groups]}
    if len(groups) > 1:
        by_length = [padded(group, sizes.vocabulary, int(group.max())) for group in np.split(ordered, len(groups))]
        batches["transformers, texts sorted by length"] = by_length
    total = int(each.sum())
    ids = torch.randint(len(MARKS), sizes.vocabulary, (1, total), device=DEVICE)
    starts = torch.from_numpy(np.concatenate(([0], np.cumsum(ordered)))).to(DEVICE)
    row = Inputs(ids.view(len(each), -1)) if len(groups) == 1 else Inputs(ids, starts=starts)

    @torch.no_grad()
    def read(group: list[dict[str, Tensor]]) -> None:
        for batch in group:
            peer(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])

    @torch.no_grad()
    def own() -> None:
        ours.encode(row)

    contenders: dict[str, Callable[[], Any]] = {
        name: lambda group=group: read(group)  # type: ignore[misc]
        for name, group in batches.items()
    }
    took = blocks(contenders | {"nextword": own}, sizes.rounds)
    known.setdefault(what, statistics.median(took["transformers"]))
    head = f"encoding, BERT {ours.config.layers}×{ours.config.width}, {label}, {what}"
    table(head, "useful tokens/s", "ratio to transformers", "to transformers in fp32")
    for name, spent in took.items():
        middle = statistics.median(spent)
        shown = "1" if name == "transformers" else ratio(took["transformers"], spent)
        print(f"| {name} | {total / middle:,.1f} | {shown} | {known[what] / middle:.2f} |", flush=True)


# ------------------------------------------------------------------------------------------------ all


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="all", choices=("all", "train", "uneven", "encode"))
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes, every part")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="in a block")
    parser.add_argument("--rows", type=int, default=128, help="of a training step")
    parser.add_argument("--vocabulary", type=int, default=30522)
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0: torch's own choice")
    parser.add_argument("--no-bf16", action="store_true", help="no encoding in bf16")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    where = torch.cuda.get_device_name() if CUDA else f"{torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {where}", flush=True)
    sizes = Sizes(BERTConfig(), args.vocabulary, args.rows, 128, args.steps, args.rounds)
    if args.rehearse:
        tiny = BERTConfig(width=64, layers=2, heads=2, window=64)
        sizes = Sizes(tiny, 512, 8, 32, 2, 2)
    parts: dict[str, Callable[[], None]] = {
        "train": lambda: train(sizes),
        "uneven sentences": lambda: uneven(sizes, "sentences"),
        "uneven paragraphs": lambda: uneven(sizes, "paragraphs"),
        "encode": lambda: encode(sizes, 4 if args.rehearse else 32, not args.no_bf16),
    }
    here = ("train", "uneven") if CUDA else ("encode",)
    for name, part in parts.items():
        kind = name.split()[0]
        if args.part == kind or (args.part == "all" and (args.rehearse or kind in here)):
            with failing_alone(name):
                if CUDA:
                    torch.compiler.reset()
                part()
            if CUDA:
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
