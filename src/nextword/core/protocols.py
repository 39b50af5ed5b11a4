"""What a model allows, as protocols: scoring left to right, filling in, encoding, counting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from nextword.core.types import (
    Batch,
    Decoding,
    Encoding,
    Framed,
    Greedy,
    Guess,
    Inputs,
    Loss,
    Piece,
    Prediction,
    Score,
    State,
    Stop,
)

if TYPE_CHECKING:
    from torch import Tensor

    Ids = Tensor  # (B, T) integer


class Tokenizer(Protocol):
    kind: str  # "bytes", "characters", "words", "bpe", "classic-bpe", "wordpiece", "unigram"
    lossless: bool  # decode(encode(text).ids) == text for every text
    special: Mapping[str, int]  # the ids that text itself can never produce, by name
    begin: int  # fed before the first token of a text
    end: int | None  # appended to every document; None where each line already ends in its own token (words)

    def __len__(self) -> int: ...
    def encode(self, text: str) -> Encoding: ...
    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]: ...
    def decode(self, ids: Iterable[int]) -> str: ...
    def piece(self, id: int) -> bytes: ...  # the bytes that this id writes when it stands inside a text
    def save(self, path: Path) -> None: ...  # one JSON file


@runtime_checkable
class Readout(Protocol):
    """From hidden vectors to a distribution over the vocabulary."""

    def nll(self, h: Tensor, targets: Tensor) -> Tensor: ...  # (N, D), (N,) → (N,), exact
    def total(self, h: Tensor, targets: Tensor) -> Tensor: ...  # their sum, for training; may fuse, or sample
    def log_probs(self, h: Tensor) -> Tensor: ...  # (N, D) → (N, V), exact


class Network(Protocol):
    """What objectives train. (isinstance would not see a readout that is a submodule, since Python 3.12.)"""

    readout: Readout
    widths: list[int]  # embedding, then each layer

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]: ...  # each (B, T, widths[i])


@runtime_checkable
class Autoregressive(Protocol):
    """log p(next | all before), one step at a time or many at once. State goes in and comes out."""

    window: int | None  # how many tokens back it looks; None: without bound

    def start(self, batch: int, source: Inputs | None = None) -> tuple[Tensor, State]: ...
    def step(self, last: Tensor, state: State) -> tuple[Tensor, State]: ...  # (B,) → log p (B, V)
    def score(self, ids: Ids, lengths: Tensor, state: State) -> tuple[Tensor, State]: ...


@runtime_checkable
class Infilling(Protocol):
    def fill(self, inputs: Inputs, at: Tensor) -> Tensor: ...  # log p at these positions


@runtime_checkable
class Encoder(Protocol):
    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]: ...
    def frame(self, a: Encoding, b: Encoding | None = None) -> Framed: ...  # how this paper dresses one or two texts


@runtime_checkable
class Counting(Protocol):
    """A model whose training is counting, not descent (phase kind `count`).

    It may have `check(train, options)` too, which raises what is wrong before there is a run folder.
    """

    def count(self, train: Any, valid: Any, options: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]: ...
    def save(self, folder: Path) -> list[str]: ...


@runtime_checkable
class Online(Protocol):
    """A network that takes its own steps through a batch, one for each thing it predicts (a phase with `online`).

    Where a few rows of large tables change at a time, gradients of all of them would be zeros to carry about.
    """

    learns_with: str  # the kind of optimizer whose steps they are, and whose rate and memory they use

    def learn(self, batch: Batch, optimizer: Any) -> Loss: ...


class Objective(Protocol):
    """A text is a prepared one (batching/prepare.py): its ids, and where words, sentences and documents begin.

    One whose losses have `said` has `metrics(text, said)` too: numbers by name, of which the first is what counts.
    """

    def per_epoch(self, text: Any) -> int: ...
    def batches(self, text: Any, seed: int, step: int) -> Iterator[Batch]: ...  # batch k is made of (seed, k) alone
    def held_out(self, text: Any) -> Iterator[Batch]: ...  # one pass, for validation
    def loss(self, network: Any, batch: Batch, state: State) -> Loss: ...


class LanguageModel(Protocol):
    """Plain strings in, plain values out: what commands, server and evaluation see."""

    can: frozenset[str]  # of "score", "next", "fill", "generate", "embed", "predict"
    tokenizer: Tokenizer
    parameters: int

    def score(self, text: str, given: str = "") -> Score: ...
    def score_many(self, texts: Sequence[str], given: Sequence[str] | None = None) -> list[Score]: ...
    def next(self, left: str, right: str = "", k: int = 10) -> list[Guess]: ...
    def generate(self, prompt: str = "", how: Decoding = Greedy(), stop: Stop = Stop()) -> Iterator[Piece]: ...
    def generate_many(
        self, prompts: Sequence[str], how: Decoding = Greedy(), stop: Stop = Stop()
    ) -> list[list[Piece]]: ...
    def embed(self, texts: Sequence[str], layer: Any = -1, pooling: str = "mean") -> Tensor: ...
    def predict(self, examples: Sequence[Any]) -> list[Prediction]: ...
