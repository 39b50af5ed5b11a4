r"""The value types that everything else passes around. Read this file first.

    text ──Tokenizer──▶ Encoding ──batching──▶ Batch ──Network──▶ hidden ──Readout──▶ nats
                                                 ╰────────── Objective ─────────────▶ Loss
    text ──TextModel (lm/)──▶ Score, Guess, Piece, Prediction

A tokenizer turns a `Document` into ids. Batching cuts the ids into `Batch`es, in the way the objective wants them. A
network maps the `Inputs` of a batch to hidden vectors, the readout maps hidden vectors to a distribution over the
vocabulary, and the objective combines both into a `Loss`. Commands, evaluation and the server work one level higher,
on plain strings.

Shapes in comments: B rows of a batch, T tokens of a row, D hidden size, V vocabulary size. This module does not import
torch at run time, so that the command line starts quickly. What a network can *do* is in protocols.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from nextword.core.errors import InvalidSetting, RunError, invalid

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    Ids = Tensor  # (B, T) integer

# The recurrent state or KV cache of a network: a nest of tuples, lists and dicts with tensors at the leaves (batch
# first), or None for the start of a text. State goes into a call and comes out of it. See pytree.py.
State = Any


# ------------------------------------------------------------------------------------------------ text


@dataclass(frozen=True, slots=True)
class Document:
    """The unit of text: every reader yields documents.

    A document too long for memory comes as several passages. `continues` is True if this passage continues the previous
    one: the two are one document, without an end-of-document token between them.

    In a parallel corpus `text` is the target (a translation, a summary) and `source` the text that it is made from.
    Such pairs are never cut into passages.
    """

    text: str
    id: str = ""
    title: str = ""
    continues: bool = False
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Encoding:
    """The token ids of a text, aligned with the text.

    `spans` are byte ranges of the UTF-8 text. For a lossless tokenizer they partition the text; for a lossy one they
    are ordered, and the gaps are what the tokenizer dropped (spaces). An id that stands for no text has an empty span.
    """

    ids: np.ndarray  # (N,) int64
    spans: np.ndarray  # (N, 2) int64: start and end byte
    words: np.ndarray  # (N,) int64: index of the word (run of non-space characters) that each id belongs to

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Vocabulary:
    """What a network needs to know about its tokenizer."""

    size: int
    begin: int  # fed before the first token of a text (BOS)
    special: Mapping[str, int] = field(default_factory=dict)  # name → id, such as {"[MASK]": 103}
    end: int | None = None  # ends a document (EOS); None if every line ends with its own token instead
    pieces: Sequence[bytes] = ()  # id → bytes, for networks that read the spelling of words (ELMo); else empty


# ------------------------------------------------------------------------------------------------ networks


@dataclass
class Inputs:
    """What a network reads. Each model uses the fields that its paper needs; the others stay None.

    Several texts fit into a batch in one of two ways:

        padded   a text per row; `token_mask` marks the tokens
        packed   B = 1: all texts end to end in one row; `starts` marks the boundaries (`cu_seqlens` in FlashAttention),
                 and no text attends to another

    `longest` and `sizes` repeat on the CPU what the tensors say, so that nobody has to wait for the GPU to read it.
    """

    ids: Ids  # (B, T)
    token_mask: Tensor | None = None  # (B, T) True at tokens, False at padding (`attention_mask` in transformers)
    segments: Tensor | None = None  # (B, T) which of two texts a token belongs to (BERT's `token_type_ids`)
    positions: Tensor | None = None  # (B, T) position ids; (B, T, 2) for GLM; None: 0, 1, 2 …
    mask: Tensor | None = None  # (B, T, T) True where the query (row) may attend to the key (column): XLNet, GLM
    starts: Tensor | None = None  # (n + 1,) packed: where each of n texts begins, and T at the end
    longest: int | None = None  # packed: length of the longest text, or an upper bound
    sizes: tuple[int, ...] | None = None  # number of tokens of each row (padded) or of each text (packed)
    characters: Tensor | None = None  # (K, L) spelling of unknown words, whose ids are V, V + 1 … (ELMo)
    features: Tensor | None = None  # (L, B, T, D) frozen layers of another network
    source: Inputs | None = None  # encoder input of a seq2seq model; read when the state is None


@dataclass(frozen=True)
class FramedText:
    """One text or two, with the special tokens that a paper puts around and between them for a task."""

    ids: np.ndarray  # (T,)
    pooled_position: int  # position whose vector represents the text: [CLS], or the last token
    segments: np.ndarray | None = None  # (T,) which text each token belongs to (BERT)
    text_spans: tuple[tuple[int, int], ...] = ()  # [start, end) of each text within `ids`


# ------------------------------------------------------------------------------------------------ training

IGNORE = -100  # target of a position at which nothing is predicted, as in torch's cross_entropy


@dataclass
class Batch:
    """One training step's worth of data, made by an objective for `Objective.loss`."""

    inputs: Inputs
    targets: Tensor  # (B, T) ids, IGNORE where nothing is predicted; with fewer columns, targets of the last positions
    reset_state: bool = False  # start from an empty state: this batch does not continue the previous one
    epoch: int = 0
    scale: float = 1.0  # factor on the learning rate for this batch (variable-length BPTT)
    # Where only a few positions are predicted (masked LM, a task head), their indices into the flattened (B · T). Some
    # may point at IGNORE targets, to keep K fixed from batch to batch.
    target_positions: Tensor | None = None  # (K,)
    num_targets: int = 0  # predictions in this batch, counted on the CPU
    pair_labels: Tensor | None = None  # (B,) sentence pairs: 0 if B follows A, 1 if B is random (NSP) or swapped (SOP)
    task_index: int = 0  # which task or data set the batch comes from, in multi-task training


@dataclass
class Loss:
    """What an objective computes for a batch. Sums and counts, not means: the trainer divides once, at the end."""

    value: Tensor  # scalar to differentiate
    nats: Tensor  # summed negative log-likelihood of the targets, detached
    count: int  # number of predictions summed in `nats`
    state: State = None  # carried to the next batch (truncated BPTT)
    terms: Mapping[str, Tensor] = field(default_factory=dict)  # named terms of `value`, for the training log
    outputs: Tensor | None = None  # (n, …) outputs of the task head (logits, tags, spans), for `Objective.metrics`
    # Parts of `nats` that are reported separately, as (nats, count): forward and backward in a bidirectional LM.
    breakdown: Mapping[str, tuple[Tensor, int]] = field(default_factory=dict)


# ------------------------------------------------------------------------------------------------ results

EXACT, PSEUDO = "exact", "pseudo"  # likelihood by the chain rule; pseudo-likelihood of a masked LM


@dataclass(frozen=True)
class Score:
    """Negative log-likelihood of a text, and the units to divide it by.

    Sums, not means: the scores of passages add up to the score of the document, and division happens once, at the end.
    """

    nats: float
    tokens: int
    words: int  # runs of non-space characters, plus one per line end if the model predicts line ends
    bytes: int
    kind: str = EXACT
    lossless: bool = True
    context: int | None = None  # tokens of left context the model can see; None: unlimited
    stride: int | None = None  # step between overlapping windows, if the text was scored in windows

    def __post_init__(self) -> None:
        require_number(self.nats)

    def __add__(self, other: Score) -> Score:
        for key in ("kind", "lossless"):
            values = vars(self)[key], vars(other)[key]
            if values[0] != values[1]:
                raise invalid(key, values, "differs between two scores to add. Score both texts with the same model.")
        nats, tokens = self.nats + other.nats, self.tokens + other.tokens
        return replace(self, nats=nats, tokens=tokens, words=self.words + other.words, bytes=self.bytes + other.bytes)

    def bits_per_byte(self) -> float | None:
        """Bits per byte of text; None for a lossy tokenizer, which does not pay for what it drops."""
        if not self.lossless or not self.bytes:
            return None
        return self.nats / math.log(2) / self.bytes

    def word_perplexity(self) -> float | None:
        return safe_exp(self.nats / self.words) if self.words else None

    def token_perplexity(self) -> float | None:
        return safe_exp(self.nats / self.tokens) if self.tokens else None


def require_number(value: float) -> None:
    """Raise RunError for NaN, which a model gives whose weights are so large that sums of them overflow."""
    if math.isnan(value):
        raise RunError("The model's result is not a number (NaN): its weights are damaged, or training diverged.")


def safe_exp(x: float) -> float:
    """exp x, or infinity where it overflows."""
    return math.exp(x) if x < 700 else math.inf


@dataclass(frozen=True)
class Guess:
    """A candidate for the next word or for a blank."""

    text: str
    probability: float

    def __post_init__(self) -> None:
        require_number(self.probability)


@dataclass(frozen=True)
class Piece:
    """One step of streamed generation.

    `text` holds complete characters only: the bytes of an unfinished character wait for the next piece.
    """

    text: str
    ids: tuple[int, ...]
    log_prob: float
    reason: str | None = None  # on the last piece, why generation stopped: "length", "end" or "stop"


@dataclass(frozen=True)
class Prediction:
    """The prediction of a classifier or a regressor for one example."""

    label: str
    probabilities: Mapping[str, float]  # label → probability; empty for regression
    value: float | None = None  # regression: the predicted number

    def __repr__(self) -> str:
        if self.value is not None:
            return f"Prediction({self.value:.6g})"
        ranked = sorted(self.probabilities.items(), key=lambda item: -item[1])[:3]
        shown = ", ".join(f"{label!r}: {probability:.3f}" for label, probability in ranked)
        more = ", …" if len(self.probabilities) > len(ranked) else ""
        return f"Prediction({self.label!r}" + (f", {{{shown}{more}}})" if shown else ")")


@runtime_checkable
class Frame(Protocol):
    """A frame of pandas or polars. Iterating over it yields the names of columns, or columns."""

    columns: Any


def require_list(examples: object) -> list[Any]:
    """Return the examples as a list. A bare string is an error, since iterating over it would yield characters."""
    if isinstance(examples, (str, bytes, Mapping)) or not isinstance(examples, Iterable):
        raise invalid("examples", examples, "must be a list. Wrap a single example: predict([example]).")
    if isinstance(examples, Frame):
        problem = "is a table, and a list of examples was expected. Use nextword.predict(run, table), or one column."
        raise InvalidSetting(f"{type(examples).__name__} {problem}", key="examples")
    return list(examples)


def texts_of(example: object) -> tuple[Any, ...]:
    """Return the texts of an example as a tuple: ("a", "b") for a pair, ("a",) for a bare text."""
    if isinstance(example, (str, bytes)) or not isinstance(example, Iterable):
        return (example,)
    return tuple(example)


# ------------------------------------------------------------------------------------------------ progress

Progress = Callable[[float, float | None], None]  # how much is done, of how much; None: unknown
LabeledProgress = Callable[[str, float, float | None], None]  # what is being done; then the same


def ignore_progress(*_: object) -> None:
    """The default progress callback."""


# ------------------------------------------------------------------------------------------------ decoding

Bias = Mapping[int | str, float]  # token id, or the text of a token → number added to its log-probability


@dataclass(frozen=True)
class Greedy:
    """Choose the most probable token at every step."""

    repetition: float = 1.0  # repetition penalty on tokens generated before (CTRL; Keskar et al. 2019); 1: off
    no_repeat: int = 0  # never generate the same n-gram of tokens twice; 0: off
    bias: Bias = field(default_factory=dict, hash=False)  # −inf forbids a token
    frequency: float = 0.0  # subtracted from a token's log p for each time that it was generated; 0: off
    presence: float = 0.0  # subtracted once if it was generated; 0: off


@dataclass(frozen=True)
class Sample:
    """Sample from the distribution, after applying temperature and then the filters in the order of the fields."""

    temperature: float = 1.0
    top_k: int = 0  # keep the k most probable tokens; 0: all
    top_p: float = 1.0  # nucleus sampling: keep the smallest set with this probability mass
    seed: int | None = None
    repetition: float = 1.0
    no_repeat: int = 0
    min_p: float = 0.0  # keep tokens with at least this fraction of the highest probability; 0: all
    typical: float = 1.0  # locally typical sampling: keep this mass, closest to the entropy first; 1: all
    bias: Bias = field(default_factory=dict, hash=False)
    frequency: float = 0.0
    presence: float = 0.0


@dataclass(frozen=True)
class Beam:
    """Beam search: extend the `width` best hypotheses in parallel and return the best complete one."""

    width: int = 4
    length_penalty: float = 0.0  # α in Σ log p / length^α; 0: sum; 1: mean per token
    repetition: float = 1.0
    no_repeat: int = 0
    bias: Bias = field(default_factory=dict, hash=False)
    normalization: str = "power"  # what is raised to α, for n tokens: n; "gnmt": (5 + n) / 6 (Wu et al. 2016)
    coverage: float = 0.0  # GNMT's coverage penalty for source tokens without attention; 0: off
    groups: int = 1  # diverse beam search (Vijayakumar et al. 2018); `width` must be a multiple
    diversity: float = 0.5  # penalty per earlier group that chose the same token; only with groups > 1


@dataclass(frozen=True)
class Contrastive:
    """Contrastive search (Su et al. 2022): of the k most probable tokens, the one with the highest score

    (1 − alpha) · p(token) − alpha · max cosine similarity to the context
    """

    k: int = 4
    alpha: float = 0.6  # 0: greedy
    repetition: float = 1.0
    no_repeat: int = 0
    bias: Bias = field(default_factory=dict, hash=False)


Decoding = Greedy | Sample | Beam | Contrastive


@dataclass(frozen=True)
class Stop:
    """When generation stops."""

    max_tokens: int = 100
    strings: tuple[str, ...] = ()  # stop before any of these
    at_end: bool = True  # stop when the model generates the end-of-document token
    min_tokens: int = 0  # before the end-of-document token is allowed
