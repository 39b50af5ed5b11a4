"""Small encoder-decoder networks: the pairs they learn from, their training, and what they generate.

The built-in pairs are verses of the King James Bible and the same verses in modern English. Many words are the same on
both sides, so a network with attention learns to copy within a minute on one core. On a GPU networks are larger and
train longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from nextword.batching.seq2seq import Pairs, prepare_pairs
from nextword.batching.token_stream import ROW, Stream
from nextword.core.types import Batch, Decoding, Greedy, Inputs, Vocabulary
from nextword.data.parallel import BIBLE, open_parallel
from nextword.data.parallel_files import ParallelCorpus
from nextword.evaluation.translation import generate_targets
from nextword.lm.loading import wrap_network
from nextword.models.seq2seq import Seq2Seq, Seq2SeqConfig
from nextword.objectives.seq2seq import Seq2SeqObjective
from nextword.studies._experiment import describe_corpus, held_out_split, require
from nextword.studies._statistics import format_percent
from nextword.studies._transformers import OPTIMIZER, WARMUP, Size, to_memory, train
from nextword.tokenizers import vocabulary
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.training import train_tokenizer
from nextword.training.device import choose_device

MIN_PAIRS = 40  # held out
NO_ATTENTION, ATTENTION = "none", "bahdanau"  # values of the recipe key


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


def choose_size(quick: bool, small: TranslatorSize, full: TranslatorSize, large: TranslatorSize) -> TranslatorSize:
    """The large size only on a GPU."""
    return small if quick else large if choose_device().type == "cuda" else full


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
    """Train on the pairs; `objective` holds settings of the sequence objective, such as `sampled`."""
    torch.manual_seed(seed)
    network = Seq2Seq(size.config(**config), pairs.vocabulary).to(choose_device())
    aim = Seq2SeqObjective({"rows": size.rows, "length": size.length}, **(objective or {}))
    train_seq2seq(network, aim, pairs.train, seed, size)
    return network


def train_seq2seq(
    network: Any,
    objective: Any,
    text: Any,
    seed: int,
    size: TranslatorSize,
    batches: Iterator[Batch] | None = None,
    optimizer: Mapping[str, Any] = OPTIMIZER,
) -> None:
    """Train on the given batches, or on those the objective makes of the text."""
    moved = to_device(batches or objective.batches(text, seed, 0), network.device)
    train(network, moved, lambda batch: objective.loss(network, batch, None).value, size.training, optimizer=optimizer)


def to_device(batches: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    for batch in batches:
        yield replace(batch, inputs=_inputs_to(batch.inputs, device), targets=batch.targets.to(device))


def _inputs_to(inputs: Inputs, device: torch.device) -> Inputs:
    padding = None if inputs.token_mask is None else inputs.token_mask.to(device)
    source = None if inputs.source is None else _inputs_to(inputs.source, device)
    return replace(inputs, ids=inputs.ids.to(device), token_mask=padding, source=source)


# ------------------------------------------------------------------------------------------------ output


@dataclass(frozen=True)
class Output:
    texts: tuple[str, ...]  # generated from the held-out sources
    costs: np.ndarray  # (n, 2) nats and tokens of the true targets


def translate(network: Any, pairs: PairData) -> Output:
    return generate_and_score(network, pairs.tokenizer, pairs.sources, pairs.targets)


def generate_and_score(
    network: Any, tokenizer: Tokenizer, sources: Sequence[str], targets: Sequence[str], decoding: Decoding = Greedy()
) -> Output:
    lm = wrap_network(network, tokenizer)
    scores = lm.score_many(list(targets), list(sources))
    costs = np.array([[score.nats, score.tokens] for score in scores])
    return Output(tuple(generate_targets(lm, sources, decoding)), costs)
