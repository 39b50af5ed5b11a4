"""Small encoder-decoder networks: the pairs or symbols they learn from, their training, and what they generate.

The built-in pairs are verses of the King James Bible and the same verses in modern English. Many words are the same on
both sides, so a network with attention learns to copy within a minute on one core. On a GPU networks are larger and
train longer.

Copying random symbols (7 3 9 … 4 → 7 3 9 … 4) is a second task. Nothing in a target can be guessed except from its
source, so a network is right only as far as it carries information. Small networks learn the task in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from nextword.batching.seq2seq import Pairs, prepare_pairs
from nextword.batching.token_stream import ROW, Stream
from nextword.core.types import Batch, Decoding, Greedy, Vocabulary
from nextword.data.parallel import BIBLE, open_parallel
from nextword.data.parallel_files import ParallelCorpus
from nextword.evaluation.seq2seq import generate_targets
from nextword.lm.seq2seq import Seq2SeqLM
from nextword.models.base import Network
from nextword.models.seq2seq import Seq2Seq, Seq2SeqConfig
from nextword.objectives.base import Objective
from nextword.objectives.seq2seq import Seq2SeqObjective
from nextword.studies._experiment import describe_corpus, held_out_split, require
from nextword.studies._statistics import Score, bleu, bleu_statistics, format_percent, percent
from nextword.studies._transformers import OPTIMIZER, WARMUP, Size, to_memory, train
from nextword.tokenizers import vocabulary
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.training import train_tokenizer
from nextword.training.device import choose_device, to_device

MIN_PAIRS = 40  # held out
NO_ATTENTION, ATTENTION = "none", "bahdanau"  # values of the recipe key
NETWORKS = {NO_ATTENTION: "no attention", ATTENTION: "attention"}
SYMBOLS, PAIRS = "symbols", "pairs"
TASK_TITLES = {SYMBOLS: "Copying symbols", PAIRS: "Translating pairs"}
QUALITY_SCORES: dict[str, Score] = {SYMBOLS: percent, PAIRS: bleu}


@dataclass(frozen=True)
class TranslatorSize:
    """A network, its pairs and its training."""

    pieces: int = 2000  # vocabulary of the tokenizer
    width: int = 128
    rows: int = 32
    length: int = 30  # longest training pair: tokens of its longer side
    longest: int = 30  # longest held-out pair
    steps: int = 400
    rate: float = 4e-3
    dropout: float = 0.0
    held: int = 300  # held-out pairs

    def config(self, **options: Any) -> Seq2SeqConfig:
        """One GRU layer on each side, a unidirectional encoder, and tied embeddings."""
        shape = {"width": self.width, "cell": "gru", "bidirectional": False, "tied": True, "dropout": self.dropout}
        return Seq2SeqConfig(**{**shape, **options})

    def describe_training(self) -> str:
        return (
            f"{self.steps:,} steps of {self.rows} pairs of at most {self.length} tokens per side; AdamW, learning rate "
            f"{self.rate:g}, linear warmup for {format_percent(WARMUP)} of the steps, then linear decay"
        )

    @property
    def training(self) -> Size:
        """The size that `_transformers.train` takes."""
        return Size(rows=self.rows, length=self.length, steps=self.steps, rate=self.rate)


LARGE = TranslatorSize(
    pieces=6000, width=512, rows=64, steps=6000, length=60, longest=60, rate=1e-3, dropout=0.3, held=1000
)


# ------------------------------------------------------------------------------------------------ pairs


@dataclass(frozen=True)
class PairData:
    """What all networks of a study read. It is in memory, because it is sent to other processes."""

    train: Pairs
    test: Pairs
    tokenizer: Tokenizer
    sources: tuple[str, ...]  # of the held-out pairs
    targets: tuple[str, ...]

    @property
    def vocabulary(self) -> Vocabulary:
        return vocabulary(self.tokenizer)

    @property
    def source_lengths(self) -> np.ndarray:
        """(n,) tokens of the held-out sources, without the end token."""
        return np.diff(self.test.bounds[0])[self.test.chosen] - 1

    def describe(self, corpus: ParallelCorpus) -> str:
        return (
            f"{describe_corpus(corpus)}: {len(self.train):,} training pairs, {len(self.test):,} held out; "
            f"{len(self.tokenizer):,} subwords shared by both sides"
        )


def load_pairs(data: str, size: TranslatorSize, kind: str = "bpe", **tokenizer: Any) -> tuple[ParallelCorpus, PairData]:
    """Pairs by name or path; default: the built-in ones."""
    corpus = open_parallel(data or BIBLE)
    sides = (text for pair in corpus.documents("train") for text in (pair.source or "", pair.text))
    trained = train_tokenizer({"kind": kind, "size": size.pieces, **tokenizer}, sides)
    split = held_out_split(corpus)
    train, test = (_to_memory(prepare_pairs(corpus, part, trained)) for part in ("train", split))
    train, test = train.within(size.length), test.within(size.longest)
    require(len(test), MIN_PAIRS, f"held-out pairs of at most {size.longest} tokens per side", corpus)
    test = replace(test, chosen=test.chosen[spaced_indices(len(test), size.held)])
    documents = list(corpus.documents(split))
    pairs = [documents[i] for i in test.chosen]
    return corpus, PairData(
        train, test, trained, tuple(pair.source or "" for pair in pairs), tuple(pair.text for pair in pairs)
    )


def spaced_indices(total: int, wanted: int) -> np.ndarray:
    """At most `wanted` indices below `total`, evenly spaced, because the parts of a text differ."""
    return np.linspace(0, total - 1, min(total, wanted)).round().astype(int)


def _to_memory(pairs: Pairs) -> Pairs:
    return replace(pairs, source=to_memory(pairs.source), target=to_memory(pairs.target))


def encode_pairs(tokenizer: Tokenizer, texts: Sequence[tuple[str, str]]) -> Pairs:
    """Sources and targets that belong to no corpus, each side with its end token."""
    assert tokenizer.end is not None
    sides = []
    for side in zip(*texts, strict=True):
        encoded = tokenizer.encode_batch(list(side))
        sides.append(ids_to_stream([np.append(encoding.ids, tokenizer.end) for encoding in encoded]))
    return Pairs(sides[0], sides[1], tokenizer.begin, np.arange(len(texts)))


def ids_to_stream(texts: Sequence[np.ndarray]) -> Stream:
    """Texts given as ids; their bytes and words are unknown."""
    documents = np.zeros(len(texts), ROW)
    documents["start"] = np.cumsum([0, *map(len, texts[:-1])])
    ids = np.concatenate(list(texts)).astype(np.uint16)
    return Stream(ids, np.ones(len(ids), np.uint8), documents, len(ids), len(ids), 0)


# ------------------------------------------------------------------------------------------------ training


def train_translator(
    seed: int, size: TranslatorSize, pairs: PairData, objective: dict[str, Any] | None = None, **config: Any
) -> Seq2Seq:
    """Train on the pairs; `objective` holds settings of the sequence objective, such as `scheduled_sampling`."""
    torch.manual_seed(seed)
    network = Seq2Seq(size.config(**config), pairs.vocabulary).to(choose_device())
    aim = Seq2SeqObjective({"rows": size.rows, "length": size.length}, **(objective or {}))
    train_seq2seq(network, aim, pairs.train, seed, size)
    return network


def train_seq2seq(
    network: Network,
    objective: Objective[Any],
    text: Stream | Pairs | None,
    seed: int,
    size: TranslatorSize,
    batches: Iterator[Batch] | None = None,
    optimizer: Mapping[str, Any] = OPTIMIZER,
) -> None:
    """Train on the given batches, or on those the objective makes of the text."""
    moved = (to_device(batch, network.device) for batch in batches or objective.batches(text, seed, 0))
    train(network, moved, lambda batch: objective.loss(network, batch, None).value, size.training, optimizer=optimizer)


# ------------------------------------------------------------------------------------------------ output


@dataclass(frozen=True)
class Output:
    texts: tuple[str, ...]  # generated from the held-out sources
    costs: np.ndarray  # (n, 2) nats and tokens of the true targets


def translate(network: Network, pairs: PairData) -> Output:
    return generate_and_score(network, pairs.tokenizer, pairs.sources, pairs.targets)


def generate_and_score(
    network: Network,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    decoding: Decoding = Greedy(),
) -> Output:
    lm = Seq2SeqLM(network, tokenizer)
    scores = lm.score_many(list(targets), list(sources))
    costs = np.array([[score.nats, score.tokens] for score in scores])
    return Output(tuple(generate_targets(lm, sources, decoding)), costs)


class Scores(NamedTuple):
    """Statistics of the true targets and of the output, summed over targets by a score."""

    nats: np.ndarray  # (n, 2) nats and tokens
    quality: np.ndarray  # (n, k) correct symbols and symbols, or BLEU statistics


def score_translator(network: Network, pairs: PairData) -> Scores:
    output = translate(network, pairs)
    return Scores(output.costs, bleu_statistics(output.texts, pairs.targets))


# ------------------------------------------------------------------------------------------------ copying

NUM_SYMBOLS = 12
BEGIN, END = 0, 1
SYMBOL_VOCABULARY = Vocabulary(NUM_SYMBOLS + 2, BEGIN, {}, end=END)
TRAINED, TESTED = 4000, 200  # training sequences; test sequences of each length
TEST_LENGTHS = (4, 8, 12, 16, 20)


class Lengths(NamedTuple):
    shortest: int
    longest: int


def make_copies(count: int, lengths: Lengths, seed: int) -> Pairs:
    """Random sequences, each paired with itself."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(lengths.shortest, lengths.longest + 1, count)
    sequences = [np.append(draw.integers(2, NUM_SYMBOLS + 2, n), END) for n in sizes]
    return Pairs(ids_to_stream(sequences), ids_to_stream(sequences), BEGIN, np.arange(count))


def train_copier(seed: int, size: TranslatorSize, lengths: Lengths, **config: Any) -> Seq2Seq:
    torch.manual_seed(seed)
    network = Seq2Seq(size.config(**config), SYMBOL_VOCABULARY).to(choose_device())
    objective = Seq2SeqObjective({"rows": size.rows, "length": size.length})
    train_seq2seq(network, objective, make_copies(TRAINED, lengths, seed), seed, size)
    return network


@torch.no_grad()
def score_copies(network: Seq2Seq, length: int) -> Scores:
    """Of sequences of one length; a symbol is correct if it is the most likely given the true ones before it."""
    objective = Seq2SeqObjective({"rows": TESTED, "length": length + 1})
    copies = make_copies(TESTED, Lengths(length, length), 10**6)
    nats, hits = [], []
    for batch in objective.validation_batches(copies):
        batch = to_device(batch, network.device)
        log_p = network.readout.log_probs(network.hidden(batch.inputs, None)[0][-1])  # (B, T, V)
        nats.append(-log_p.gather(2, batch.targets.unsqueeze(2)).squeeze(2).sum(1).cpu())
        hits.append((log_p.argmax(2) == batch.targets).sum(1).cpu())
    count = torch.full((TESTED,), length + 1)
    return Scores(*(torch.stack([torch.cat(part), count], 1).double().numpy() for part in (nats, hits)))


def describe_tasks(size: TranslatorSize, copying: TranslatorSize, lengths: Lengths) -> dict[str, str]:
    """The conditions of a study that trains on both tasks."""
    return {
        "networks": f"one GRU layer of width {size.width} on each side, unidirectional encoder; width {copying.width} "
        "for symbols",
        "training": f"{size.describe_training()}; symbols: {copying.steps:,} steps on sequences of {lengths.shortest} "
        f"to {lengths.longest}",
    }
