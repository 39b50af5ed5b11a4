"""Readouts for any network, as a recipe chooses them: `readout = { kind = "adaptive", cutoffs = [2000, 10000] }`.

| kind       | what it is                                                     | cost of a prediction      |
| ---------- | -------------------------------------------------------------- | ------------------------- |
| `full`     | softmax; the embedding's matrix where the network is tied      | V                         |
| `classes`  | p(class) · p(word in class)                                    | about 2√V                 |
| `tree`     | a path through a binary tree                                   | about log₂ V              |
| `adaptive` | frequent words first, rare ones in narrow clusters             | the head, seldom more     |
| `sampled`  | softmax, trained against a sample of the words                 | V; in training a sample   |
| `nce`      | softmax, trained to tell text from noise                       | V; in training a sample   |
| `mixture`  | K softmaxes, weighted by the context                           | K · V                     |
| `spelled`  | softmax over vectors made from the words' characters           | V; computing them, once   |
| `none`     | no output layer, for weights that came without one             |                           |

All are exact in evaluation. They implement `Readout` (base.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from nextword.core.errors import InvalidSetting, UnknownName, did_you_mean
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
OURS = ("width", "size", "vocabulary", "embedding")  # arguments that do not come from a recipe


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
    character_width: int = 16,
    highway: int = 2,
    max_word_length: int = 50,
    correction: int = 0,
    samples: int = 0,
    proposal: str = "unigram",
    power: float = 1.0,
) -> nn.Module:
    words = CharSoftmax(width, vocabulary, filters, character_width, highway, max_word_length, correction)
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
    """Build the readout that a recipe describes, over hidden vectors of this width; with an embedding, tied to it."""
    settings = dict(options)
    kind = settings.pop("kind", "full")
    if kind not in READOUTS:
        raise UnknownName(
            f"[model] readout: there is no kind {kind!r}.{did_you_mean(str(kind), READOUTS)} Kinds: "
            f"{', '.join(READOUTS)}.",
            name=str(kind),
            known=READOUTS,
        )
    build = READOUTS[kind]
    accepted = inspect.signature(build).parameters
    keys = [name for name in accepted if name not in OURS]
    unknown = [key for key in settings if key not in keys]
    if unknown:
        raise UnknownName(
            f"A readout of kind '{kind}' has no key '{unknown[0]}'. It has {', '.join(keys) or 'no keys'}.",
            name=unknown[0],
            known=keys,
        )
    if embedding is not None:
        if "embedding" not in accepted:
            raise InvalidSetting(
                f"A readout of kind '{kind}' cannot share the embedding's matrix. Set tied = false in [model].",
                key="model.tied",
                value=True,
            )
        settings["embedding"] = embedding
    try:
        return build(width, vocabulary if "vocabulary" in accepted else vocabulary.size, **settings)
    except TypeError as problem:
        raise InvalidSetting(
            f"[model] readout = {dict(options)} has a value of the wrong type: {problem}.",
            key="model.readout",
            value=options,
        ) from None
