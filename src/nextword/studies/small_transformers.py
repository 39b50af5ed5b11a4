"""Small transformers for studies: the text they read, a beginning that suits their size, training, and intervals.

A small network that fills in hidden tokens first learns how frequent each token is, and stays there long, before it
suddenly begins to look at the neighbours. Two things bring that forward, and every network of a study has them: weights
drawn as wide for its width as the papers draw theirs for 768, and several heads. Seeds differ in when it happens, which
is most of what intervals over seeds are about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nextword.batching.prepare import ROW, Stream, prepare
from nextword.contract import Batch, Inputs, Vocabulary
from nextword.contract_protocols import Tokenizer
from nextword.corpora import Corpus
from nextword.models.bert import BERT, BERTConfig
from nextword.models.frames import following
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.objectives.masked import Masked
from nextword.studies.measures import NO_INTERVAL, bounded, widest
from nextword.studies.text import held_out
from nextword.tokens import train_tokenizer, vocabulary
from nextword.training.optimizers import make_optimizer
from nextword.training.schedules import Progress, Schedule

PUBLISHED = 768  # the width for which weights are drawn from N(0, 0.02²)
OPTIMIZER = {"kind": "adamw", "decay": 0.01, "decayed": "matrices", "betas": (0.9, 0.98)}
WARMUP = 0.1
CLIP = 1.0
DRAWS = 2000  # of a bootstrap


@dataclass(frozen=True)
class Size:
    """A network and its training. Rows are [CLS] … [SEP], marks and padding included in their length."""

    width: int = 96
    layers: int = 2
    heads: int = 6
    rows: int = 64
    length: int = 32
    steps: int = 1200
    rate: float = 3e-3

    @property
    def shape(self) -> dict[str, Any]:
        """As the configs of BERT, ALBERT and GPT-2 name it. No dropout: none of these reads a text often enough."""
        return {
            "width": self.width,
            "layers": self.layers,
            "heads": self.heads,
            "window": self.length,
            "dropout": 0.0,
        }

    def built(self) -> str:
        return f"{self.layers} layer(s) of width {self.width}, {self.heads} heads, window {self.length}"

    def said(self) -> str:
        return (
            f"{self.steps:,} steps of {self.rows} rows of {self.length} tokens; AdamW, rate {self.rate:g}, "
            f"{WARMUP:.0%} of the steps up and then down in a line".replace("%", " %")
        )


# ------------------------------------------------------------------------------------------------ text


@dataclass(frozen=True)
class Text:
    """What all runs of a study read. It goes to other processes, so it lies in memory."""

    train: Stream
    test: Stream
    vocabulary: Vocabulary


def text_of(corpus: Corpus, pieces: int) -> tuple[Text, Tokenizer]:
    """A corpus as WordPiece of so many pieces, lower-cased, learnt from its training text."""
    tokenizer = train_tokenizer({"kind": "wordpiece", "size": pieces}, (d.text for d in corpus.documents("train")))
    train, test = (in_memory(prepare(corpus, split, tokenizer)) for split in ("train", held_out(corpus)))
    return Text(train, test, vocabulary(tokenizer)), tokenizer


def in_memory(stream: Stream) -> Stream:
    ids, marks, documents = (np.array(part) for part in (stream.ids, stream.marks, stream.documents))
    return replace(stream, ids=ids, marks=marks, documents=documents, folder=None)


def some(stream: Stream, tokens: int) -> Stream:
    """So many documents, in a random order that is always the same, as have these tokens together."""
    opens = stream.documents["start"].astype(np.int64)
    closes = np.append(opens[1:], len(stream))
    order = np.random.default_rng(0).permutation(len(opens))
    order = order[: 1 + int(np.searchsorted(np.cumsum((closes - opens)[order]), tokens))]
    at = np.concatenate([np.arange(opens[d], closes[d]) for d in order])
    documents = np.zeros(len(order), ROW)
    documents["start"] = np.cumsum([0, *(closes - opens)[order][:-1]])
    return replace(stream, ids=stream.ids[at], marks=stream.marks[at], documents=documents, folder=None)


# ------------------------------------------------------------------------------------------------ training


def wider(network: Any) -> Any:
    """Its matrices as large for their width as those of the published networks for theirs."""
    with torch.no_grad():
        for weight in network.parameters():
            if weight.dim() > 1:
                weight.mul_((PUBLISHED / network.config.width) ** 0.5)
    return network


def encoder(size: Size, words: Vocabulary, seed: int) -> BERT:
    torch.manual_seed(seed)
    return wider(BERT(BERTConfig(**size.shape), words))


def short_sentences(size: Size, words: Vocabulary, **options: Any) -> Masked:
    """Full sentences, one row after the other, some of their tokens hidden."""
    return Masked({"kind": "sentences", "rows": size.rows, "length": size.length}, words, **options)


def masked_sentences(size: Size, words: Vocabulary, **options: Any) -> Masked:
    """The same with [MASK] in every hidden place: so a held-out text is asked about, whatever was learnt from."""
    return short_sentences(size, words, masked=1.0, replaced=0.0, **options)


def descend(
    network: nn.Module,
    batches: Iterable[Batch],
    loss: Callable[[Batch], Tensor],
    size: Size,
    check: Callable[[int], None] = lambda step: None,
    checks: int = 0,
    descent: Mapping[str, Any] = OPTIMIZER,
) -> None:
    """Train for the size's steps; `check(step)` is called so many times on the way, the last time at the end."""
    params: list[Any] = list(network.parameters())
    optimizer = make_optimizer(params, {**descent, "rate": size.rate})
    schedule = Schedule(size.rate, {"kind": "linear", "warmup": WARMUP})
    stops = {round(size.steps * i / checks) for i in range(1, checks + 1)} if checks else set()
    network.train()
    for step, batch in enumerate(islice(batches, size.steps), 1):
        for group in optimizer.param_groups:
            group["lr"] = schedule(Progress(step, 0, step / (size.steps + 1), ()))
        loss(batch).backward()
        nn.utils.clip_grad_norm_(params, CLIP)
        optimizer.step()
        optimizer.zero_grad()
        if step in stops:
            network.eval()
            check(step)
            network.train()
    network.eval()


def learn(
    network: nn.Module,
    objective: Masked,
    train: Stream,
    seed: int,
    size: Size,
    check: Callable[[int], None] = lambda step: None,
    checks: int = 0,
) -> None:
    """`descend` on an objective's own batches."""
    batches = objective.batches(train, seed, 0)
    descend(network, batches, lambda batch: objective.loss(network, batch, None).value, size, check, checks)


def left_to_right(seed: int, size: Size, text: Text) -> Any:
    """A GPT-2 trained on the rows that BERT reads, nothing hidden: each token is predicted from those before it."""
    torch.manual_seed(seed)
    network = wider(GPT2(GPT2Config(**size.shape), text.vocabulary))

    def loss(batch: Batch) -> Tensor:
        inputs = Inputs(unhidden(batch), batch.inputs.padding)
        targets = following(inputs, text.vocabulary.size).reshape(-1)
        h = network.hidden(inputs, None)[0][-1]
        return network.readout.total(h.reshape(-1, h.shape[-1]), targets) / (targets >= 0).sum()

    descend(network, short_sentences(size, text.vocabulary).batches(text.train, seed, 0), loss, size)
    return network


# ------------------------------------------------------------------------------------------------ hidden tokens


@torch.no_grad()
def hidden_tokens(network: Any, objective: Masked, text: Stream) -> tuple[np.ndarray, np.ndarray]:
    """Of each hidden token of a held-out text: its nats, and whether it is the likeliest. Always the same tokens."""
    nats, hits = [], []
    for batch in objective.held_out(text):
        h = network.hidden(batch.inputs, None)[0][-1]
        at, targets = asked(batch)
        log_p = network.readout.log_probs(h.reshape(-1, h.shape[-1])[at])
        nats.append(-log_p.gather(1, targets[:, None]).squeeze(1).numpy())
        hits.append((log_p.argmax(1) == targets).numpy())
    return np.concatenate(nats), np.concatenate(hits)


def asked(batch: Batch) -> tuple[Tensor, Tensor]:
    """The places (n,) that are asked about, its rows laid end to end, and the tokens (n,) that belong there."""
    assert batch.at is not None
    at = batch.at[: batch.predicted]
    return at, batch.targets.reshape(-1)[at]


def unhidden(batch: Batch) -> Tensor:
    """The ids (B, T) as they were before some were hidden."""
    return torch.where(batch.targets >= 0, batch.targets, batch.inputs.ids)


# ------------------------------------------------------------------------------------------------ intervals


def certain(values: np.ndarray | Sequence[Sequence[float]], alone: bool = False) -> list[float]:
    """(seeds, units of text) → their mean, and the wider of two 95 % intervals: over seeds, and over the text.

    Over seeds it is Student's t; over the text, a bootstrap of the units' means. A single seed has no interval, unless
    the network is one that was given (`alone`), so that nothing but the text is a draw.
    """
    found = np.asarray(values, dtype=float)
    by_seed = found.mean(1)
    if alone and len(by_seed) == 1:
        return [float(by_seed[0]), *resampled(found[0])]
    return widest(float(by_seed.mean()), by_seed, resampled(found.mean(0)))


def resampled(units: np.ndarray) -> tuple[float, float]:
    """95 % interval of a mean by drawing as many of the units again, with a fixed seed."""
    draw = np.random.default_rng(0)
    means = [units[draw.integers(0, len(units), len(units))].mean() for _ in range(DRAWS)]
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


INTERVALS = "95 %, the wider of Student's t over seeds and of a bootstrap over the held-out text, in pairs"


def ranged(cell: Sequence[Any], digits: int = 3, times: float = 1.0) -> str:
    """ "0.123 to 0.145"; of a single seed there is none."""
    if not bounded(cell):
        return NO_INTERVAL
    return " to ".join(_minus(end * times, digits) for end in cell[1:])


def _minus(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


def by(value: float, unit: str, digits: int) -> str:
    """ "1.3 points better"; below 0 it is worse."""
    return f"{abs(value):.{digits}f} {unit} {'better' if value > 0 else 'worse'}"


def spans(total: int, at_once: int) -> Iterator[slice]:
    """0 … total in slices of at most so many."""
    return (slice(first, min(first + at_once, total)) for first in range(0, total, at_once))
