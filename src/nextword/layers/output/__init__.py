"""Readouts for any network, as a recipe chooses them: `readout = { kind = "adaptive", cutoffs = [2000, 10000] }`.

| kind       | what it is                                                     | cost of a prediction      |
| ---------- | -------------------------------------------------------------- | ------------------------- |
| `full`     | softmax; the embedding's matrix where the network is tied      | V                         |
| `classes`  | p(class) · p(word in class)                                    | about 2√V                 |
| `tree`     | a path through a binary tree                                   | about log₂ V              |
| `adaptive` | frequent words first, rare ones in narrow clusters behind them | the head, seldom more     |
| `sampled`  | softmax, trained against a sample of the words                 | V; in training a sample   |
| `nce`      | softmax, trained to tell text from noise                       | V; in training a sample   |
| `mixture`  | K softmaxes, weighed by the context                            | K · V                     |
| `spelled`  | softmax over vectors made of the words' letters                | V; their making, once     |
| `none`     | nothing: of weights that came without one                      |                           |

All are exact in evaluation. A readout that has `prepare(ids)` is shown the training text before the first step.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from nextword.core.errors import NextwordError
from nextword.core.types import Vocabulary
from nextword.layers.char_cnn import ELMO
from nextword.layers.output.adaptive import AdaptiveSoftmax
from nextword.layers.output.base import NoReadout
from nextword.layers.output.char import CharSoftmax
from nextword.layers.output.class_based import ClassSoftmax
from nextword.layers.output.hierarchical import HierarchicalSoftmax
from nextword.layers.output.mixture import MixtureOfSoftmaxes
from nextword.layers.output.sampled import SampledSoftmax
from nextword.layers.output.softmax import FullSoftmax, LinearReadout, TiedSoftmax

Embedding = nn.Embedding | None
OURS = ("width", "size", "vocabulary", "embedding")  # what a recipe does not say


def _full(width: int, size: int, embedding: Embedding = None) -> LinearReadout:
    return FullSoftmax(width, size) if embedding is None else TiedSoftmax(embedding)


def _sampled(
    width: int,
    size: int,
    samples: int = 1024,
    proposal: str = "unigram",
    power: float = 1.0,
    embedding: Embedding = None,
) -> nn.Module:
    return SampledSoftmax(_full(width, size, embedding), size, samples, proposal, power)


def _nce(
    width: int,
    size: int,
    samples: int = 100,
    proposal: str = "unigram",
    power: float = 1.0,
    embedding: Embedding = None,
) -> nn.Module:
    return SampledSoftmax(_full(width, size, embedding), size, samples, proposal, power, contrastive=True)


def _spelled(
    width: int,
    vocabulary: Vocabulary,
    filters: Sequence[Sequence[int]] = ELMO,
    characters: int = 16,
    highway: int = 2,
    longest: int = 50,
    correction: int = 0,
    samples: int = 0,
    proposal: str = "unigram",
    power: float = 1.0,
) -> nn.Module:
    words = CharSoftmax(width, vocabulary, filters, characters, highway, longest, correction)
    return SampledSoftmax(words, vocabulary.size, samples, proposal, power) if samples else words


READOUTS: dict[str, Callable[..., nn.Module]] = {
    "full": _full,
    "classes": ClassSoftmax,
    "tree": HierarchicalSoftmax,
    "adaptive": AdaptiveSoftmax,
    "sampled": _sampled,
    "nce": _nce,
    "mixture": MixtureOfSoftmaxes,
    "spelled": _spelled,
    "none": lambda width, size: NoReadout(),
}


def make_readout(
    width: int, vocabulary: Vocabulary, options: Mapping[str, Any], embedding: nn.Embedding | None = None
) -> Any:
    """The readout of a recipe's table over hidden vectors of this width; with an embedding, tied to it."""
    given = dict(options)
    kind = given.pop("kind", "full")
    if kind not in READOUTS:
        raise NextwordError(f"No readout is called {kind!r}. There are {', '.join(READOUTS)}.")
    make = READOUTS[kind]
    accepted = inspect.signature(make).parameters
    keys = [name for name in accepted if name not in OURS]
    unknown = [key for key in given if key not in keys]
    if unknown:
        raise NextwordError(
            f"A readout of kind '{kind}' has no key '{unknown[0]}'; it has {', '.join(keys) or 'no keys'}."
        )
    if embedding is not None:
        if "embedding" not in accepted:
            raise NextwordError(
                f"A readout of kind '{kind}' has vectors of its own and cannot be tied: set tied = false in [model]."
            )
        given["embedding"] = embedding
    try:
        return make(width, vocabulary if "vocabulary" in accepted else vocabulary.size, **given)
    except TypeError as problem:
        raise NextwordError(f"The readout {dict(options)} has a value of the wrong type: {problem}.") from None
