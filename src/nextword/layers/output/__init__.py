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
from nextword.layers.output.adaptive import Adaptive
from nextword.layers.output.base import Silent
from nextword.layers.output.char import Spelled
from nextword.layers.output.class_based import Classes
from nextword.layers.output.hierarchical import Tree
from nextword.layers.output.mixture import Mixture
from nextword.layers.output.sampled import Sampling
from nextword.layers.output.softmax import Full, Linear, Tied

Embedding = nn.Embedding | None
OURS = ("width", "size", "vocabulary", "embedding")  # what a recipe does not say


def _full(width: int, size: int, embedding: Embedding = None) -> Linear:
    return Full(width, size) if embedding is None else Tied(embedding)


def _sampled(
    width: int,
    size: int,
    samples: int = 1024,
    proposal: str = "unigram",
    power: float = 1.0,
    embedding: Embedding = None,
) -> nn.Module:
    return Sampling(_full(width, size, embedding), size, samples, proposal, power)


def _nce(
    width: int,
    size: int,
    samples: int = 100,
    proposal: str = "unigram",
    power: float = 1.0,
    embedding: Embedding = None,
) -> nn.Module:
    return Sampling(_full(width, size, embedding), size, samples, proposal, power, contrastive=True)


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
    words = Spelled(width, vocabulary, filters, characters, highway, longest, correction)
    return Sampling(words, vocabulary.size, samples, proposal, power) if samples else words


READOUTS: dict[str, Callable[..., nn.Module]] = {
    "full": _full,
    "classes": Classes,
    "tree": Tree,
    "adaptive": Adaptive,
    "sampled": _sampled,
    "nce": _nce,
    "mixture": Mixture,
    "spelled": _spelled,
    "none": lambda width, size: Silent(),
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
