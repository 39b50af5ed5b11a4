"""What a network can do, as protocols.

`isinstance(network, Autoregressive)` asks whether a network has the methods. A causal language model is Autoregressive
and often an Encoder, BERT is Infilling and an Encoder, an n-gram model is Autoregressive and Counting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from nextword.core.types import Batch, Encoding, FramedText, Inputs, Loss, State

if TYPE_CHECKING:
    from torch import Tensor

    Ids = Tensor  # (B, T) integer


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
