"""What a network or an objective can do, as protocols.

`isinstance(network, Autoregressive)` asks whether a network has the methods. A causal language model is Autoregressive
and often an Encoder, BERT is Infilling and an Encoder, an n-gram model is Autoregressive and Counting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from nextword.core.types import (
    Batch,
    Decoding,
    Encoding,
    FramedText,
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


# ------------------------------------------------------------------------------------------------ networks


@runtime_checkable
class Readout(Protocol):
    """Hidden vectors → distribution over the vocabulary: a softmax or one of its alternatives."""

    def nll(self, h: Tensor, targets: Tensor) -> Tensor: ...  # (N, D), (N,) → (N,) exact negative log-likelihoods
    def total(self, h: Tensor, targets: Tensor) -> Tensor: ...  # their sum, for training; may be fused or sampled
    def log_probs(self, h: Tensor) -> Tensor: ...  # (N, D) → (N, V), exact


class Network(Protocol):
    """What objectives train. (Not runtime_checkable: since Python 3.12 isinstance does not see submodules.)"""

    readout: Readout
    widths: list[int]  # hidden size of the embedding, then of each layer

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]: ...  # each (B, T, widths[i])


@runtime_checkable
class Autoregressive(Protocol):
    """log p(next token | all before), one step at a time or many at once."""

    window: int | None  # tokens of left context; None: unlimited

    def start(self, batch: int, source: Inputs | None = None) -> tuple[Tensor, State]: ...
    def step(self, last: Tensor, state: State) -> tuple[Tensor, State]: ...  # (B,) → log p (B, V)

    # log p(x[1:] | x[:1], state) as (B, T − 1), zero beyond the lengths; the state returned has read x[:-1]
    def score(self, ids: Ids, lengths: Tensor, state: State) -> tuple[Tensor, State]: ...


@runtime_checkable
class Infilling(Protocol):
    """log p at masked positions, given the context on both sides."""

    def fill(self, inputs: Inputs, at: Tensor) -> Tensor: ...


@runtime_checkable
class Encoder(Protocol):
    """Contextual vectors of a text, which the paper frames with special tokens."""

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]: ...
    def frame(self, a: Encoding, b: Encoding | None = None) -> FramedText: ...


@runtime_checkable
class Counting(Protocol):
    """A model that is trained by counting instead of gradient descent (phase kind `count`).

    It may also define `check(train, options)`, which validates the options before the run folder is created.
    """

    def check(self, train: Any, options: Mapping[str, Any]) -> Any: ...  # raise errors before there is a run folder
    def count(self, train: Any, valid: Any, options: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]: ...
    def save(self, folder: Path) -> list[str]: ...


@runtime_checkable
class Online(Protocol):
    """A network that updates its own weights after every prediction of a batch (a phase with `online`).

    word2vec touches a few rows of large tables at a time. Dense gradients would be almost entirely zeros.
    """

    learns_with: str  # kind of the optimizer whose learning rate and state it uses

    def learn(self, batch: Batch, optimizer: Any) -> Loss: ...


# ------------------------------------------------------------------------------------------------ training


class Objective(Protocol):
    """What is predicted from what. A text is a token stream (batching/) with its word, sentence and document starts.

    An objective whose losses have `outputs` also defines `metrics(text, outputs)`: numbers by name, the first of which
    selects the best checkpoint.
    """

    def per_epoch(self, text: Any) -> int: ...  # number of batches
    def batches(self, text: Any, seed: int, step: int) -> Iterator[Batch]: ...  # batch k depends on (seed, k) alone
    def held_out(self, text: Any) -> Iterator[Batch]: ...  # one pass, for validation
    def loss(self, network: Any, batch: Batch, state: State) -> Loss: ...


# ------------------------------------------------------------------------------------------------ text level


class LanguageModel(Protocol):
    """Plain strings in, plain values out: what commands, evaluation and the server use (implemented in lm/)."""

    can: frozenset[str]  # subset of "score", "next", "fill", "generate", "embed", "predict"
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
