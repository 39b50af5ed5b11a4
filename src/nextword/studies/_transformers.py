"""Small BERTs and GPT-2s: the text they read, their initialization, their training, and how masked tokens are scored.

A small masked network first learns token frequencies and stays there for long before it starts to use the context. Two
things shorten that phase, and all networks here have them: initial weights scaled to the width, as the papers' weights
are to theirs (768), and several heads. Seeds differ mostly in when the phase ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from nextword.batching.token_stream import ROW, Stream, prepare
from nextword.core.types import IGNORE, Batch, Inputs, Vocabulary
from nextword.data.corpus import Corpus
from nextword.models.base import Network
from nextword.models.bert import BERT, BERTConfig
from nextword.models.framing import next_token_targets
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.objectives.masked import MaskedObjective
from nextword.studies._experiment import held_out_split
from nextword.studies._statistics import format_percent
from nextword.tokenizers import vocabulary
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.training import train_tokenizer
from nextword.training.optimizers import make_optimizer
from nextword.training.schedules import Progress, Schedule

ScaledNetwork = TypeVar("ScaledNetwork", bound=Network)
PUBLISHED_WIDTH = 768  # for which the papers draw weights from N(0, 0.02²)
OPTIMIZER = {"kind": "adamw", "weight_decay": 0.01, "decay_on": "matrices", "betas": (0.9, 0.98)}
WARMUP = 0.1
CLIP = 1.0


@dataclass(frozen=True)
class Size:
    """A network and its training. Rows are [CLS] … [SEP]; their length includes special tokens and padding."""

    width: int = 96
    layers: int = 2
    heads: int = 6
    rows: int = 64
    length: int = 32
    steps: int = 1200
    rate: float = 3e-3

    @property
    def shape(self) -> dict[str, Any]:
        """Options of the configs of BERT, GPT-2 and GLM. No dropout: no network reads its text often enough."""
        return {"width": self.width, "layers": self.layers, "heads": self.heads, "window": self.length, "dropout": 0.0}

    def describe_network(self) -> str:
        return f"{self.layers} layer(s) of width {self.width}, {self.heads} heads, window {self.length}"

    def describe_training(self) -> str:
        return (
            f"{self.steps:,} steps of {self.rows} rows of {self.length} tokens; AdamW, learning rate {self.rate:g}, "
            f"linear warmup for {format_percent(WARMUP)} of the steps, then linear decay"
        )


# ------------------------------------------------------------------------------------------------ text


@dataclass(frozen=True)
class Text:
    """What all runs of a study read. It is in memory, because it is sent to other processes."""

    train: Stream
    test: Stream
    vocabulary: Vocabulary


def encode_corpus(corpus: Corpus, pieces: int) -> tuple[Text, Tokenizer]:
    """A corpus as lower-cased WordPiece, trained on its training text."""
    tokenizer = train_tokenizer({"kind": "wordpiece", "size": pieces}, (d.text for d in corpus.documents("train")))
    train, test = (to_memory(prepare(corpus, split, tokenizer)) for split in ("train", held_out_split(corpus)))
    return Text(train, test, vocabulary(tokenizer)), tokenizer


def to_memory(stream: Stream) -> Stream:
    ids, marks, documents = (np.array(part) for part in (stream.ids, stream.marks, stream.documents))
    return replace(stream, ids=ids, marks=marks, documents=documents, folder=None)


def sample_documents(stream: Stream, tokens: int) -> Stream:
    """Documents in a fixed random order, as many as have this number of tokens together."""
    starts = stream.documents["start"].astype(np.int64)
    ends = np.append(starts[1:], len(stream))
    order = np.random.default_rng(0).permutation(len(starts))
    order = order[: 1 + int(np.searchsorted(np.cumsum((ends - starts)[order]), tokens))]
    kept = np.concatenate([np.arange(starts[d], ends[d]) for d in order])
    documents = np.zeros(len(order), ROW)
    documents["start"] = np.cumsum([0, *(ends - starts)[order][:-1]])
    return replace(stream, ids=stream.ids[kept], marks=stream.marks[kept], documents=documents, folder=None)


def slices(total: int, size: int) -> Iterator[slice]:
    """0 … total in slices of at most this size."""
    return (slice(first, min(first + size, total)) for first in range(0, total, size))


# ------------------------------------------------------------------------------------------------ networks


def scale_weights(network: ScaledNetwork) -> ScaledNetwork:
    """Scale the matrices to the network's width, as the published networks' are to theirs."""
    with torch.no_grad():
        for weight in network.parameters():
            if weight.dim() > 1:
                weight.mul_((PUBLISHED_WIDTH / network.config.width) ** 0.5)
    return network


def make_bert(size: Size, vocabulary: Vocabulary, seed: int) -> BERT:
    torch.manual_seed(seed)
    return scale_weights(BERT(BERTConfig(**size.shape), vocabulary))


def masked_lm(size: Size, vocabulary: Vocabulary, **options: Any) -> MaskedObjective:
    """MaskedObjective language modeling on rows of full sentences."""
    return MaskedObjective({"kind": "sentences", "rows": size.rows, "length": size.length}, vocabulary, **options)


def always_masked(size: Size, vocabulary: Vocabulary, **options: Any) -> MaskedObjective:
    """The same with [MASK] at every chosen position: the test that all networks take, however they were trained."""
    return masked_lm(size, vocabulary, mask_token_fraction=1.0, random_token_fraction=0.0, **options)


# ------------------------------------------------------------------------------------------------ training


def train(
    network: nn.Module,
    batches: Iterable[Batch],
    loss: Callable[[Batch], Tensor],
    size: Size,
    check: Callable[[int], None] = lambda step: None,
    checks: int = 0,
    optimizer: Mapping[str, Any] = OPTIMIZER,
) -> None:
    """Train for the steps of the size; call `check(step)` at evenly spaced steps, the last time at the end."""
    params: list[Any] = list(network.parameters())
    descent = make_optimizer(params, {**optimizer, "rate": size.rate})
    schedule = Schedule(size.rate, {"kind": "linear", "warmup": WARMUP})
    stops = {round(size.steps * i / checks) for i in range(1, checks + 1)} if checks else set()
    network.train()
    for step, batch in enumerate(islice(batches, size.steps), 1):
        for group in descent.param_groups:
            group["lr"] = schedule(Progress(step, 0, step / (size.steps + 1), ()))
        loss(batch).backward()
        nn.utils.clip_grad_norm_(params, CLIP)
        descent.step()
        descent.zero_grad()
        if step in stops:
            network.eval()
            check(step)
            network.train()
    network.eval()


def train_on(
    network: nn.Module,
    objective: MaskedObjective,
    text: Stream,
    seed: int,
    size: Size,
    check: Callable[[int], None] = lambda step: None,
    checks: int = 0,
) -> None:
    """Train on the batches of an objective."""
    batches = objective.batches(text, seed, 0)
    train(network, batches, lambda batch: objective.loss(network, batch, None).value, size, check, checks)


def train_bert(seed: int, size: Size, text: Text, **masking: Any) -> BERT:
    network = make_bert(size, text.vocabulary, seed)
    train_on(network, masked_lm(size, text.vocabulary, **masking), text.train, seed, size)
    return network


def train_gpt2(seed: int, size: Size, text: Text) -> GPT2:
    """A GPT-2 trained on the rows that BERT reads, with nothing masked."""
    torch.manual_seed(seed)
    network = scale_weights(GPT2(GPT2Config(**size.shape), text.vocabulary))
    rows = masked_lm(size, text.vocabulary).batches(text.train, seed, 0)
    batches = (predict_next(batch, text.vocabulary) for batch in rows)
    train(network, batches, lambda batch: next_token_loss(network, batch), size)
    return network


def predict_next(batch: Batch, vocabulary: Vocabulary) -> Batch:
    """The same rows unmasked; the target of each token is the next one."""
    inputs = Inputs(original_ids(batch), batch.inputs.token_mask)
    targets = next_token_targets(inputs, vocabulary.size)
    return Batch(inputs, targets, reset_state=True, num_targets=int((targets != IGNORE).sum()))


def next_token_loss(network: GPT2, batch: Batch) -> Tensor:
    h = network.hidden(batch.inputs, None)[0][-1]
    return network.readout.total(h.flatten(0, 1), batch.targets.flatten()) / batch.num_targets


# ------------------------------------------------------------------------------------------------ masked tokens


@torch.no_grad()
def score_masked(network: Network, objective: MaskedObjective, text: Stream) -> tuple[np.ndarray, np.ndarray]:
    """For each masked token of a held-out text: its nats, and whether it is the most likely. Always the same tokens."""
    nats, hits = [], []
    for batch in objective.validation_batches(text):
        h = network.hidden(batch.inputs, None)[0][-1]
        positions, targets = masked_positions(batch)
        log_p = network.readout.log_probs(h.reshape(-1, h.shape[-1])[positions])
        nats.append(-log_p.gather(1, targets[:, None]).squeeze(1).numpy())
        hits.append((log_p.argmax(1) == targets).numpy())
    return np.concatenate(nats), np.concatenate(hits)


def masked_positions(batch: Batch) -> tuple[Tensor, Tensor]:
    """The masked positions (n,) in the flattened batch, and the original tokens (n,)."""
    assert batch.target_positions is not None
    positions = batch.target_positions[: batch.num_targets]
    return positions, batch.targets.reshape(-1)[positions]


def original_ids(batch: Batch) -> Tensor:
    """The ids (B, T) before masking."""
    return torch.where(batch.targets >= 0, batch.targets, batch.inputs.ids)
