"""Small translators for studies: the pairs they learn from, the networks, their training, and what they write.

    pairs ──▶ Texts ──▶ a network for each seed ──▶ Said: what it writes from held-out sources, and what the true
                                                    targets cost it

The built-in pairs are verses of the King James Bible and the same in today's English. Words that are the same in both
make them easy: a network that can look at its source learns to copy within a minute of one core. On a GPU networks are
larger and learn longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from nextword.batching.prepare import ROW, Stream
from nextword.batching.sequences import Pairs, prepare_pairs
from nextword.contract import Batch, Decoding, Greedy, Inputs, Vocabulary
from nextword.contract_protocols import Tokenizer
from nextword.corpora.parallel import BIBLE, Parallel, open_parallel
from nextword.evaluation.translation import written_from
from nextword.loading_lm import of_network
from nextword.models.seq2seq import Seq2Seq, Seq2SeqConfig
from nextword.objectives.sequence import Seq2SeqObjective
from nextword.studies import small_transformers as small
from nextword.studies.text import enough, held_out
from nextword.tokens import train_tokenizer, vocabulary
from nextword.training.scale import choose_device

LEAST = 40  # held-out pairs
NONE, LOOKING = "none", "bahdanau"  # as a recipe says it


@dataclass(frozen=True)
class TranslatorSize:
    """A network, its pairs and its training."""

    pieces: int = 2000  # of the tokenizer
    width: int = 128
    rows: int = 32
    length: int = 30  # tokens of the longer side of a pair that is learnt from
    longest: int = 30  # of one that is held out
    steps: int = 400
    rate: float = 4e-3
    dropout: float = 0.0
    held: int = 300  # pairs held out

    def built(self, **model: Any) -> Seq2SeqConfig:
        """One layer of gated units on either side, read in one direction, one matrix for all words."""
        shape = {"width": self.width, "cell": "gru", "bidirectional": False, "tied": True, "dropout": self.dropout}
        return Seq2SeqConfig(**{**shape, **model})

    def said(self) -> str:
        return (
            f"{self.steps:,} steps of {self.rows} pairs of at most {self.length} tokens a side; AdamW, rate "
            f"{self.rate:g}, {small.WARMUP:.0%} of the steps up and then down in a line"
        ).replace("%", " %")

    @property
    def pace(self) -> small.Size:
        """As `small_transformers.descend` takes it."""
        return small.Size(rows=self.rows, length=self.length, steps=self.steps, rate=self.rate)


def sized(quick: bool, small_one: TranslatorSize, full: TranslatorSize, large: TranslatorSize) -> TranslatorSize:
    """By haste and by machine: a GPU has time for the large one."""
    return small_one if quick else large if choose_device().type == "cuda" else full


# ------------------------------------------------------------------------------------------------ pairs


@dataclass(frozen=True)
class Texts:
    """What all networks of a study read. It goes to other processes, so it lies in memory."""

    train: Pairs
    test: Pairs
    tokenizer: Tokenizer
    sources: tuple[str, ...]  # of the held-out pairs
    targets: tuple[str, ...]

    @property
    def vocabulary(self) -> Vocabulary:
        return vocabulary(self.tokenizer)

    @property
    def lengths(self) -> np.ndarray:
        """(n,) tokens of the held-out sources, their ends not counted."""
        return np.diff(self.test.bounds[0])[self.test.chosen] - 1


def texts_of(data: str, size: TranslatorSize, kind: str = "bpe", **tokenizer: Any) -> tuple[Parallel, Texts]:
    """Pairs by name or path; the built-in ones if none is given."""
    corpus = open_parallel(data or BIBLE)
    sides = (text for pair in corpus.documents("train") for text in (pair.source or "", pair.text))
    made = train_tokenizer({"kind": kind, "size": size.pieces, **tokenizer}, sides)
    split = held_out(corpus)
    train, test = (pairs_in_memory(prepare_pairs(corpus, part, made)) for part in ("train", split))
    train, test = train.within(size.length), test.within(size.longest)
    enough(len(test), LEAST, f"held-out pairs of at most {size.longest} tokens a side", corpus)
    test = replace(test, chosen=test.chosen[spaced(len(test), size.held)])
    documents = list(corpus.documents(split))
    pairs = [documents[i] for i in test.chosen]
    return corpus, Texts(
        train, test, made, tuple(pair.source or "" for pair in pairs), tuple(pair.text for pair in pairs)
    )


def spaced(total: int, wanted: int) -> np.ndarray:
    """At most so many of so many, from all of a text, for its parts differ."""
    return np.linspace(0, total - 1, min(total, wanted)).round().astype(int)


def pairs_in_memory(pairs: Pairs) -> Pairs:
    sides: list[Stream] = [small.in_memory(side) for side in (pairs.source, pairs.target)]
    return replace(pairs, source=sides[0], target=sides[1])


def pairs_of(tokenizer: Tokenizer, texts: Sequence[tuple[str, str]]) -> Pairs:
    """Sources and targets that stand in no corpus, each side with its end."""
    assert tokenizer.end is not None
    sides = []
    for side in zip(*texts, strict=True):
        encoded = tokenizer.encode_batch(list(side))
        sides.append(stream_of_pairs([np.append(one.ids, tokenizer.end) for one in encoded]))
    return Pairs(sides[0], sides[1], tokenizer.begin, np.arange(len(texts)))


def stream_of_pairs(texts: Sequence[np.ndarray]) -> Stream:
    """Texts, which are ids already, as a prepared one: its bytes and words are not known."""
    documents = np.zeros(len(texts), ROW)
    documents["start"] = np.cumsum([0, *map(len, texts[:-1])])
    ids = np.concatenate(list(texts)).astype(np.uint16)
    return Stream(ids, np.ones(len(ids), np.uint8), documents, len(ids), len(ids), 0)


def about(corpus: Parallel, texts: Texts) -> str:
    """The data of a study in words."""
    return (
        f"{corpus.name} ({corpus.source}): {len(texts.train):,} pairs to learn from, {len(texts.test):,} held out; "
        f"{len(texts.tokenizer):,} subwords for both sides"
    )


# ------------------------------------------------------------------------------------------------ networks


def translator(seed: int, size: TranslatorSize, texts: Texts, objective: dict[str, Any] | None = None, **model: Any) -> Seq2Seq:
    """A network trained on the pairs; `objective` are settings of the sequence objective, such as `sampled`."""
    torch.manual_seed(seed)
    network = Seq2Seq(size.built(**model), texts.vocabulary).to(choose_device())
    aim = Seq2SeqObjective({"rows": size.rows, "length": size.length}, **(objective or {}))
    learn_translation(network, aim, texts.train, seed, size)
    return network


def learn_translation(
    network: Any,
    objective: Any,
    text: Any,
    seed: int,
    size: TranslatorSize,
    batches: Iterator[Batch] | None = None,
    descent: Mapping[str, Any] = small.OPTIMIZER,
) -> None:
    """On the objective's own batches of a text, or on those given."""
    read = on_device(batches or objective.batches(text, seed, 0), network.device)
    small.descend(network, read, lambda batch: objective.loss(network, batch, None).value, size.pace, descent=descent)


def on_device(batches: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    for batch in batches:
        yield replace(batch, inputs=placed(batch.inputs, device), targets=batch.targets.to(device))


def placed(inputs: Inputs, device: torch.device) -> Inputs:
    padding = None if inputs.padding is None else inputs.padding.to(device)
    source = None if inputs.source is None else placed(inputs.source, device)
    return replace(inputs, ids=inputs.ids.to(device), padding=padding, source=source)


def workers() -> int:
    """For `spread`: on a GPU one after the other, elsewhere one a core."""
    return 1 if choose_device().type == "cuda" else 0


# ------------------------------------------------------------------------------------------------ what they say


@dataclass(frozen=True)
class Said:
    written: tuple[str, ...]
    costs: np.ndarray  # (n, 2) nats and tokens of the true targets


def said(network: Any, texts: Texts, how: Decoding = Greedy()) -> Said:
    return answered(network, texts.tokenizer, texts.sources, texts.targets, how)


def answered(
    network: Any, tokenizer: Tokenizer, sources: Sequence[str], targets: Sequence[str], how: Decoding = Greedy()
) -> Said:
    lm = of_network(network, tokenizer)
    scores = lm.score_many(list(targets), list(sources))
    costs = np.array([[score.nats, score.tokens] for score in scores])
    return Said(tuple(written_from(lm, sources, how)), costs)
