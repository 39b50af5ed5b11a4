"""The contract of a training objective: what a network predicts from what, and what the loss is.

    prepared text --batches()--> Batch --loss(network, batch, state)--> Loss --> Trainer

An objective knows no model by name, and the trainer knows no objective by name. Everything that the trainer may want to
know about an objective is an attribute or a method here, with the default of a plain language model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor

from nextword.core.errors import Unsupported, check_keys, did_you_mean, invalid
from nextword.core.types import Batch, Loss, State

Text = TypeVar("Text")  # the prepared data: a Stream, Pairs, or the examples of a task
Layout = TypeVar("Layout")


class Objective(ABC, Generic[Text]):
    """What a network learns to predict. `batches` and `loss` are the heart of it; the rest has defaults."""

    needs_vocabulary: ClassVar[bool] = False  # its constructor takes `vocabulary`, because it inserts special tokens
    is_parallel: ClassVar[bool] = False  # trains on pairs of a source and a target
    fills_blanks: ClassVar[bool] = False  # teaches a sequence-to-sequence network to fill blanks in plain text
    is_likelihood: ClassVar[bool] = True  # nats are −log p of the text itself, so they give bits per byte
    has_perplexity: ClassVar[bool] = True  # nats are those of a softmax, so exp(nats / count) means something
    has_validation: ClassVar[bool] = True  # has validation batches
    has_metrics: ClassVar[bool] = False  # `metrics` decides which weights are best, instead of nats
    recordable: ClassVar[bool] = False  # forward and backward pass can be recorded as a CUDA graph, shape by shape
    unit: ClassVar[str] = "token"  # what one prediction is about, in messages
    tokens_read_per_prediction: float = 1.0  # 0.5 if every token is predicted twice; for tokens per second

    @property
    def length(self) -> int:
        """Tokens in the longest row of a batch, for FLOP counts; 0 if unknown."""
        return 0

    def check(self, network: Any) -> None:
        """Raise an error if this network cannot be trained with this objective. Called once, before training."""

    # -------------------------------------------------------------------------------------------- batches

    @abstractmethod
    def batches_per_epoch(self, text: Text) -> int: ...

    @abstractmethod
    def batches(self, text: Text, seed: int, step: int) -> Iterator[Batch]:
        """Yield batches forever, from this step on. Batch k depends on (seed, k) alone, so that a run can resume."""

    def validation_batches(self, text: Text) -> Iterator[Batch]:
        """Yield one pass over held-out text, the same at every validation."""
        raise Unsupported(f"{type(self).__name__} has no validation batches.", ability="validation")

    def notes(self, text: Text) -> list[str]:
        """What the user should know about this training data before the first step, such as examples left out."""
        return []

    def limit_shapes(self) -> None:
        """Make batches of few distinct shapes, because each shape is recorded once. For `recordable` objectives."""

    # -------------------------------------------------------------------------------------------- loss and metrics

    @abstractmethod
    def loss(self, network: Any, batch: Batch, state: State) -> Loss: ...

    def metrics(self, text: Text, outputs: Tensor) -> dict[str, float]:
        """Metrics of a head's outputs on `validation_batches`, joined in their order. The first one decides."""
        return {}

    def tokens_per_prediction(self, network: Any, text: Text) -> float:
        """Tokens whose nats add up in one prediction, for the divergence check; infinite if nats have no bound."""
        return 1.0


# ------------------------------------------------------------------------------------------------ settings


def build_layout(
    batches: Mapping[str, Any], layouts: Mapping[str, type[Layout]], objective: str, **extra: Any
) -> Layout:
    """Build the batch layout that a recipe's `batches` describe. The first of `layouts` is the default kind.

    `extra` are fields of the layout that belong to the objective's settings, so `batches` may not have them.
    """
    options = dict(batches)
    kind = options.pop("kind", next(iter(layouts)))
    if kind not in layouts:
        problem = f"is not a layout of the {objective} objective.{did_you_mean(str(kind), layouts)}"
        raise invalid("batches.kind", kind, f"{problem} Use {' or '.join(layouts)}.")
    known = [f.name for f in fields(layouts[kind]) if f.init and f.name not in extra]  # type: ignore[arg-type]
    check_keys("batches", options, known, kind)
    return layouts[kind](**options, **extra)
