r"""The nouns of nextword: value types and the small protocols that say what a model's mathematics allows.

Read this file first. It imports no torch at run time, so that the command line can speak of these things quickly.

    text --Tokenizer--> Encoding --batching--> Batch --Network--> hidden --Readout--> nats
                                                 \--Objective--/
    LanguageModel: the same things on plain strings, which is all that commands, evaluation and server see

The unit of text: everything that reads text yields documents.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nextword.core.errors import NextwordError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    Ids = Tensor  # (B, T) integer

State = Any  # a nest (tuples, lists, dicts) of tensors, batch first, or None: see nest.py


# ------------------------------------------------------------------------------------------------ tokens


@dataclass(frozen=True, slots=True)
class Encoding:
    """Ids of a text, with the part of the text that each id stands for.

    `spans` are byte ranges of the UTF-8 text. For a lossless tokenizer they partition it; for a lossy one they are
    ordered and the gaps are what was dropped (spaces). An id that stands for no text has an empty span.
    """

    ids: np.ndarray  # (N,) int64
    spans: np.ndarray  # (N, 2) int64: start and end byte
    words: np.ndarray  # (N,) int64: index of the word (run of non-space characters) that each id begins or lies in

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Vocabulary:
    """What a network must know of its tokenizer: how many ids there are, which are special, how words are spelled."""

    size: int
    begin: int
    special: Mapping[str, int] = field(default_factory=dict)
    end: int | None = None  # as the tokenizer's
    pieces: Sequence[bytes] = ()  # id → bytes; empty unless the network reads spellings


# ------------------------------------------------------------------------------------------------ networks


@dataclass
class Inputs:
    """What a network reads. A paper sets what it needs and leaves the rest None."""

    ids: Ids  # (B, T)
    padding: Tensor | None = None  # (B, T) True where there is a token
    segments: Tensor | None = None  # (B, T) BERT
    positions: Tensor | None = None  # (B, T), or (B, T, 2) for GLM
    mask: Tensor | None = None  # (B, T, T) True where attention is allowed: XLNet, GLM
    starts: Tensor | None = None  # (n + 1,) B is 1: n texts lie end to end in the row, none sees another; the last is T
    longest: int | None = None  # of those texts, or a bound that is known without asking a GPU
    sizes: tuple[int, ...] | None = None  # (B,) tokens of each padded row, or of each text; known without a GPU
    characters: Tensor | None = None  # (K, L) ELMo: words without an id, by their letters; ids past all others
    features: Tensor | None = None  # (L, B, T, D) layers of another network, as they were found
    source: Inputs | None = None  # of what it is a translation, or a summary: read where the state is None

    # log p(x[1:] | x[:1], state) as (B, T-1), zero past the lengths; afterwards the state has read x[:-1]


@dataclass(frozen=True)
class Framed:
    """One text or two as a network reads them for a task, with the paper's own tokens around and between."""

    ids: np.ndarray  # (T,)
    speaks: int  # the position whose vector stands for the whole: [CLS], or the last
    segments: np.ndarray | None = None  # (T,) BERT: which text each token belongs to
    parts: tuple[tuple[int, int], ...] = ()  # where each text lies among the ids, for labels of words and for answers


# ------------------------------------------------------------------------------------------------ training


@dataclass
class Batch:
    inputs: Inputs
    targets: Tensor  # (B, T), or fewer columns: they belong to the last positions; IGNORE where nothing is predicted
    fresh: bool = False  # the carried state does not belong to this batch: start anew
    epoch: int = 0
    scale: float = 1.0  # what to multiply the rate by for this batch (variable-length BPTT)
    at: Tensor | None = None  # (K,) flat positions of what is predicted, where that is little; others are IGNORE there
    predicted: int = 0  # how many of `at` that is: known without asking a GPU
    pair: Tensor | None = None  # (B,) 0: segment B follows A; 1: it does not, or they are swapped
    part: int = 0  # which of several texts it was taken from, where an objective reads more than one


IGNORE = -100


@dataclass
class Loss:
    value: Tensor  # to differentiate
    nats: Tensor  # summed, detached
    count: int  # how many predictions the nats are summed over
    state: State = None
    parts: Mapping[str, Tensor] = field(default_factory=dict)  # named terms, for the log
    said: Tensor | None = None  # (n, outputs) what a head says of each example, for metrics
    apart: Mapping[str, tuple[Tensor, int]] = field(default_factory=dict)  # nats and counts of shares that add up


# ------------------------------------------------------------------------------------------------ text level

EXACT, PSEUDO = "exact", "pseudo"


@dataclass(frozen=True)
class Score:
    """Sums, not means: scores of parts add up to the score of the whole; division happens once, at the end."""

    nats: float
    tokens: int
    words: int  # runs of non-space characters, plus one per line end where the model predicts line ends
    bytes: int
    kind: str = EXACT
    lossless: bool = True
    context: int | None = None  # how many tokens back the model could see; None: without bound
    stride: int | None = None

    def __add__(self, other: Score) -> Score:
        if (self.kind, self.lossless) != (other.kind, other.lossless):
            raise NextwordError(
                "Scores of different kinds do not add up: an exact likelihood with a pseudo-likelihood, or a lossless "
                "tokenizer's with a lossy one's. Score both texts with the same model."
            )
        return Score(
            self.nats + other.nats,
            self.tokens + other.tokens,
            self.words + other.words,
            self.bytes + other.bytes,
            self.kind,
            self.lossless,
            self.context,
            self.stride,
        )

    def bits_per_byte(self) -> float | None:
        """None for a lossy tokenizer: what it drops was never paid for, so the number would flatter it."""
        if not self.lossless or not self.bytes:
            return None
        return self.nats / math.log(2) / self.bytes

    def word_perplexity(self) -> float | None:
        return _exp(self.nats / self.words) if self.words else None

    def token_perplexity(self) -> float | None:
        return _exp(self.nats / self.tokens) if self.tokens else None


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf


@dataclass(frozen=True)
class Guess:
    text: str
    probability: float


@dataclass(frozen=True)
class Piece:
    """One step of generation. `text` is whole characters only: bytes of an unfinished one wait for the next piece."""

    text: str
    ids: tuple[int, ...]
    log_prob: float
    reason: str | None = None  # on the last piece: "length", "end", "stop"


@dataclass(frozen=True)
class Prediction:
    label: str
    probabilities: Mapping[str, float]  # of every label; empty where a number is predicted
    value: float | None = None  # that number


def several(examples: Any) -> list[Any]:
    """Examples to be predicted. One text alone is an error: its letters would be taken for them."""
    if isinstance(examples, (str, bytes, Mapping)) or not isinstance(examples, Iterable):
        raise NextwordError(
            f"Expected a list of examples, and got {str(examples)[:40]!r}. Put one into a list: predict([example])."
        )
    return list(examples)


def parts_of(example: Any) -> tuple[Any, ...]:
    """The texts of an example; of one that is a text, or nothing of the kind, itself."""
    whole = isinstance(example, (str, bytes)) or not isinstance(example, Iterable)
    return (example,) if whole else tuple(example)


Bias = Mapping[int | str, float]  # token, as its id or as the text that it writes → what is added to its log p


@dataclass(frozen=True)
class Greedy:
    """The likeliest token at every step."""

    repetition: float = 1.0  # lower the scores of tokens already written (CTRL, measured from chance); 1: off
    no_repeat: int = 0  # never write the same n-gram of tokens twice; 0: off
    bias: Bias = field(default_factory=dict, hash=False)  # −inf: never written


@dataclass(frozen=True)
class Sample:
    """Drawn from the model's probabilities, sharpened by `temperature`, then narrowed in the order of the fields."""

    temperature: float = 1.0
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    seed: int | None = None
    repetition: float = 1.0
    no_repeat: int = 0
    min_p: float = 0.0  # only tokens that have at least this share of the likeliest one's probability; 0: all
    typical: float = 1.0  # the tokens nearest to the expected surprise that hold this share; 1: all
    bias: Bias = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Beam:
    """The best of many continuations, `width` of which are followed at once."""

    width: int = 4
    length_penalty: float = 0.0  # 0: sum of log p; 1: mean per token
    repetition: float = 1.0
    no_repeat: int = 0
    bias: Bias = field(default_factory=dict, hash=False)
    normalisation: str = "power"  # of n tokens, to the length_penalty: n; "gnmt": (5 + n) / 6
    coverage: float = 0.0  # how much it costs to leave parts of the source without attention; 0: nothing
    groups: int = 1  # of hypotheses that avoid each other's tokens; the width is a multiple of it
    diversity: float = 0.5  # what a token loses for each time that groups before have chosen it; with groups alone


@dataclass(frozen=True)
class Contrastive:
    """The best of the k likeliest by (1 − alpha) · p − alpha · greatest likeness to what was read before."""

    k: int = 4
    alpha: float = 0.6  # 0: greedy
    repetition: float = 1.0
    no_repeat: int = 0
    bias: Bias = field(default_factory=dict, hash=False)


Decoding = Greedy | Sample | Beam | Contrastive


@dataclass(frozen=True)
class Stop:
    length: int = 100  # tokens
    strings: tuple[str, ...] = ()
    at_end: bool = True  # stop when the model ends the document
    least: int = 0  # tokens before the model may end the document


@dataclass(frozen=True, slots=True)
class Document:
    """A text, or one passage of a text too long to hold in memory.

    `continues` is True when this passage goes on exactly where the one before it stopped: the two are one document,
    with no end-of-document token between them.

    In a pair, `text` is the target (a translation, a summary) and `source` what it is made from; a pair is never cut
    into passages.
    """

    text: str
    id: str = ""
    title: str = ""
    continues: bool = False
    source: str | None = None
