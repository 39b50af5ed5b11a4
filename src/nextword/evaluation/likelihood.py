"""Likelihood of a text under a model: bits per byte, word and token perplexity, with an interval.

    evaluate_stream              a causal model: every token is scored exactly once
    evaluate_pseudo_likelihood   a masked model: a sample of the tokens is hidden, one at a time
    count_conventions            perplexity with and without line ends and unknown words
    token_surprisal              bits of each token of a text

**Likelihood.** Document ends, and line ends where the model predicts them, count like any other token. Sums are divided
once, at the end. The interval is a block bootstrap: the stream is cut into contiguous blocks, and blocks are resampled,
since neighboring tokens are not independent. A token of probability zero (maximum likelihood allows it) makes every
perplexity infinite; the result then says how many such tokens there are.

**Pseudo-likelihood** (Salazar et al. 2020) of a model that sees both sides:

    log PL = Σ_t log p(x_t | all other tokens of the window)

Hiding each token alone costs one forward pass per token, so an evenly spread sample is hidden. Document ends are
neither hidden nor counted. These numbers are labeled `pseudo` and compare only with those of other masked models over
the same tokens.

**Conventions.** Over a closed vocabulary the literature counts tokens in four ways, so all are given:

    the cat sat on the <unk> <eos>    7 tokens; 6 without <eos> (or </s>); 6 without <unk>; 5 without both

A token that is left out leaves both the sum and the count; it stays in the context, so the model reads the same text
each time. The same 5-gram on Penn Treebank has perplexity 141.2, 160.4, 161.8 and 186.7. A lossless tokenizer spells
every word, and its bits per byte need no such choice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from nextword.batching.token_stream import Stream
from nextword.core.errors import invalid
from nextword.core.io import format_number
from nextword.core.types import PSEUDO, Progress, Score, ignore_progress
from nextword.lm.base import TextModel
from nextword.lm.masked import MaskedLM
from nextword.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from nextword.evaluation.adaptive import AdaptiveMethod

MIN_TOKENS = 400  # for an interval: fewer tokens make too few blocks
MOSTLY_UNKNOWN = 0.5  # share of unknown words from which on a perplexity means nothing
UNSPACED_BYTES = 25  # bytes per "word" above which the script must be one without spaces: no word perplexity
DEFAULT_CONTEXT = 128  # tokens that a masked model reads around the hidden one, including it
SAMPLE_RANGE = (400, 2000)  # fewest and most hidden tokens by default
SAMPLE_FLOPS = 1e13  # operations that the default sample may take within that range: a minute or two on two cores


@dataclass(frozen=True)
class Convention:
    """Sums over the tokens that one convention counts."""

    name: str  # in the tokenizer's own tokens: "without <eos>, with <unk>"
    line_ends: bool  # whether line ends count
    unknown: bool  # whether unknown words count
    tokens: int
    nats: float
    impossible: int  # tokens with probability zero

    def perplexity(self) -> float | None:
        return Score(self.nats, self.tokens, words=0, bytes=0).token_perplexity()

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "perplexity": self.perplexity()}


@dataclass(frozen=True)
class Evaluation:
    score: Score
    low: float | None  # bits per byte, 95 % interval
    high: float | None
    seconds: float
    notes: tuple[str, ...] = ()
    conventions: tuple[Convention, ...] = ()  # the same text with and without line ends and unknown words
    impossible: int = 0  # tokens with probability zero
    facts: Mapping[str, Any] = field(default_factory=dict)
    nats: np.ndarray | None = field(default=None, repr=False, compare=False)  # of every token, if all were scored

    def as_dict(self) -> dict[str, Any]:
        s = self.score
        has_spaces = s.words and s.bytes / s.words < UNSPACED_BYTES
        return {
            "kind": s.kind,
            "lossless": s.lossless,
            "bits_per_byte": s.bits_per_byte(),
            "bits_per_byte_low": self.low,
            "bits_per_byte_high": self.high,
            "word_perplexity": s.word_perplexity() if has_spaces else None,
            "token_perplexity": s.token_perplexity(),
            "nats": s.nats,
            "tokens": s.tokens,
            "words": s.words,
            "bytes": s.bytes,
            "context": s.context,
            "stride": s.stride,
            "seconds": self.seconds,
            "tokens_per_second": s.tokens / self.seconds if self.seconds else None,
            "impossible": self.impossible,
            "conventions": [convention.as_dict() for convention in self.conventions],
            "notes": list(self.notes),
            **self.facts,
        }


# ------------------------------------------------------------------------------------------------ likelihood


def evaluate_stream(
    lm: TextModel,
    stream: Stream,
    context: int | None = None,
    stride: int | None = None,
    progress: Progress = ignore_progress,
    method: AdaptiveMethod | None = None,
    limit: int | None = None,
) -> Evaluation:
    """Score a whole stream; `context` and `stride` bound how far back the model looks.

    A `method` (see adaptive.py) scores the stream in the model's place; its name and settings become part of the
    result. A masked model gets pseudo-likelihoods of a sample of `limit` tokens.
    """
    if isinstance(lm, MaskedLM):
        return evaluate_pseudo_likelihood(lm, stream, context, stride, progress, limit)
    start = time.perf_counter()
    used_context, used_stride = lm.context, lm.stride
    if method is not None:
        nats = method.nats(stream.ids, progress)
        used_context = method.context(lm.context)
        used_stride = None if used_context is None else lm.stride
    elif context:
        used_context, used_stride = context, stride or max(1, context // 2)
        nats = lm.windowed_nats(stream.ids, used_context, used_stride, progress)
    else:
        nats = lm.stream_nats(stream.ids, progress)
    seconds = time.perf_counter() - start
    words = stream.words + _predicted_lines(lm.tokenizer, stream)
    settings = lm.kind, lm.tokenizer.lossless, used_context, used_stride
    score = Score(float(nats.sum()), len(nats), words, stream.bytes, *settings)
    scored_ids = ids_as_scored(lm, stream.ids)
    facts: Mapping[str, Any] = {}
    notes = counting_notes(lm.tokenizer, scored_ids, nats)
    if method is not None:
        facts, notes = method.facts, (*method.notes, *notes)
    elif not context and (facts := score_both_directions(lm, stream.ids, score)):
        backward = format_number(facts["backward_perplexity"], 2)
        note = f"these are the forward model's numbers; the backward model's token perplexity is {backward}"
        notes = (note, *notes)
    low, high = _interval(lm.tokenizer, score, nats, stream.ids)
    conventions = count_conventions(lm.tokenizer, scored_ids, nats)
    return Evaluation(score, low, high, seconds, notes, conventions, int(np.isinf(nats).sum()), facts, nats)


def ids_as_scored(lm: TextModel, ids: np.ndarray) -> np.ndarray:
    """The ids that the tokens are scored as: some networks read more words than they can predict."""
    output_size = lm.network.output_size
    if output_size >= len(lm.tokenizer):
        return ids
    return np.where(np.asarray(ids) < output_size, ids, lm.network.readout.unknown)


def score_both_directions(lm: TextModel, ids: np.ndarray, score: Score) -> dict[str, float | None]:
    """The perplexity of each direction, where a network is two language models, one from each end; else {}."""
    backward = lm.network.backward_model()
    if backward is None:
        return {}
    nats = float(type(lm)(backward, lm.tokenizer).stream_nats(np.ascontiguousarray(np.asarray(ids)[::-1])).sum())
    return {
        "forward_perplexity": score.token_perplexity(),
        "backward_perplexity": replace(score, nats=nats).token_perplexity(),
    }


def _predicted_lines(tokenizer: Tokenizer, stream: Stream) -> int:
    """Line ends that count as words: those of a tokenizer that predicts them in place of document ends."""
    return stream.lines if tokenizer.end is None else 0


def _interval(
    tokenizer: Tokenizer, score: Score, nats: np.ndarray, ids: np.ndarray
) -> tuple[float | None, float | None]:
    if score.bits_per_byte() is None or len(nats) < MIN_TOKENS:
        return None, None
    return bootstrap(nats, bytes_per_id(tokenizer)[ids], total=score.bytes)


def bytes_per_id(tokenizer: Tokenizer) -> np.ndarray:
    """How many bytes of text each id of a lossless tokenizer stands for."""
    special = set(tokenizer.special.values())
    return np.array([0 if id in special else len(tokenizer.piece(id)) for id in range(len(tokenizer))])


def bootstrap(
    nats: np.ndarray, weights: np.ndarray, total: int, draws: int = 1000, blocks: int = 200, seed: int = 0
) -> tuple[float, float]:
    """95 % interval of bits per byte over contiguous blocks; `total` rescales the weights to the text's byte count.

    With an impossible token both ends are infinite: the expected cost is, even if few resamples contain the token.
    """
    if np.isinf(nats).any():
        return math.inf, math.inf
    blocks = max(1, min(blocks, len(nats) // 20))
    edges = np.linspace(0, len(nats), blocks + 1).astype(np.int64)[:-1]
    cost = np.add.reduceat(nats, edges)
    size = np.add.reduceat(weights, edges).astype(np.float64)
    size *= total / max(size.sum(), 1)
    rows = np.random.default_rng(seed).integers(0, blocks, (draws, blocks))
    bits = cost[rows].sum(1) / np.maximum(size[rows].sum(1), 1) / math.log(2)
    low, high = np.quantile(bits, [0.025, 0.975])
    return float(low), float(high)


# ------------------------------------------------------------------------------------------------ what is counted


def count_conventions(tokenizer: Tokenizer, ids: np.ndarray, nats: np.ndarray) -> tuple[Convention, ...]:
    """All tokens, without line ends, without unknown words, without both; () where that makes no difference."""
    if tokenizer.lossless:
        return ()
    line_end, unknown = _line_end(tokenizer), _unknown(tokenizer)
    optional = line_end | unknown
    present = [name for name, id in optional.items() if (ids == id).any()]
    conventions = []
    for left_out in chain.from_iterable(combinations(present, n) for n in range(len(present) + 1)):
        counted = nats[~np.isin(ids, [optional[name] for name in left_out])]
        if len(counted):
            label = ", ".join(f"{'without' if name in left_out else 'with'} {name}" for name in present)
            sums = len(counted), float(counted.sum()), int(np.isinf(counted).sum())
            conventions.append(Convention(label, not line_end.keys() & left_out, not unknown.keys() & left_out, *sums))
    return tuple(conventions) if len(conventions) > 1 else ()


def counting_notes(tokenizer: Tokenizer, ids: np.ndarray, nats: np.ndarray) -> tuple[str, ...]:
    """What the numbers count, in sentences; the first is about line or document ends."""
    notes = []
    if tokenizer.end is None:
        notes.append("each line end is predicted and counts as a word (<eos>)")
    else:
        notes.append("the end of each document is predicted and counted")
    for name, id in _unknown(tokenizer).items() if len(ids) else ():
        share = float((np.asarray(ids) == id).mean())
        notes.append(f"words outside the vocabulary are scored as {name} ({100 * share:.1f} % of the tokens)")
        line_ends = np.isin(ids, list(_line_end(tokenizer).values())).mean()
        if share > MOSTLY_UNKNOWN * (1 - line_ends):
            notes.insert(
                0,
                "the model does not know most of these words, so the numbers mean little: is the text in the language, "
                "case and tokenization of the training text? To read an ARPA file with its tokenizer: nextword convert "
                "FILE RUN --tokenizer PATH",
            )
    if not tokenizer.lossless:
        notes.append("no bits per byte: this tokenizer does not preserve the whole text")
    num_impossible = int(np.isinf(nats).sum())
    if num_impossible:
        notes.append(_describe_impossible(num_impossible, nats[~np.isinf(nats)]))
    return tuple(notes)


def _describe_impossible(count: int, rest: np.ndarray) -> str:
    has, them = ("token has", "it") if count == 1 else ("tokens have", "them")
    note = f"{count:,} {has} probability 0"
    perplexity = Score(float(rest.sum()), len(rest), words=0, bytes=0).token_perplexity()
    if perplexity is None:
        return note
    return f"{note}; without {them}, token perplexity is {format_number(perplexity, 2)}"


def _line_end(tokenizer: Tokenizer) -> dict[str, int]:
    """Name and id of the line end, where it is predicted like a word."""
    if tokenizer.end is not None:
        return {}
    return {name: id for name, id in tokenizer.special.items() if tokenizer.piece(id) == b"\n"}


def _unknown(tokenizer: Tokenizer) -> dict[str, int]:
    matches = [(name, id) for name, id in tokenizer.special.items() if "unk" in name.lower()]
    return dict(matches[:1])


# ------------------------------------------------------------------------------------------------ pseudo-likelihood


def evaluate_pseudo_likelihood(
    lm: MaskedLM,
    stream: Stream,
    context: int | None = None,
    stride: int | None = None,
    progress: Progress = ignore_progress,
    limit: int | None = None,
) -> Evaluation:
    """Hide `limit` tokens one at a time, each inside `context` tokens, and predict them from both sides."""
    if context is not None and context > lm.room:
        raise invalid("context", context, f"does not fit: this model reads at most {lm.room:,} tokens at a time.")
    context, stride = context or min(DEFAULT_CONTEXT, lm.room), stride or 1
    if not 1 <= stride <= context:
        raise invalid("stride", stride, f"must be from 1 to the context, {context}.")
    tokenizer, ids = lm.tokenizer, np.asarray(stream.ids)
    candidates = np.arange(len(ids)) if tokenizer.end is None else np.flatnonzero(ids != tokenizer.end)
    hidden = candidates[_spread(len(candidates), limit or _affordable_sample(lm.parameters, context))]
    start = time.perf_counter()
    result = lm.hide_in_stream(ids, hidden, context, stride, progress)
    seconds = time.perf_counter() - start
    share = len(hidden) / max(len(candidates), 1)
    words = round((stream.words + _predicted_lines(tokenizer, stream)) * share)
    settings = PSEUDO, tokenizer.lossless, context, stride
    score = Score(float(result.nats.sum()), len(hidden), words, round(stream.bytes * share), *settings)
    low, high = _interval(tokenizer, score, result.nats, ids[hidden])
    accuracy = float(result.right.sum()) / max(len(hidden), 1)
    if share < 1:
        sample = (
            f"a sample of {len(hidden):,} of {len(candidates):,} tokens, evenly spread; words and bytes in proportion"
        )
    else:
        sample = f"all {len(candidates):,} tokens; document ends are not predicted"
    notes = (
        "pseudo-likelihood: each token is hidden alone and predicted from both sides; do not compare with likelihoods",
        sample,
        f"each prediction sees at most {context:,} tokens of its document, including the hidden one",
        f"{100 * accuracy:.1f} % of the hidden tokens are the model's first choice",
        *counting_notes(tokenizer, ids[hidden], result.nats)[1:],  # document ends are not predicted here
    )
    facts = {"accuracy": accuracy, "sample": len(hidden), "of": len(candidates)}
    return Evaluation(score, low, high, seconds, notes, (), int(np.isinf(result.nats).sum()), facts)


def _spread(total: int, wanted: int) -> np.ndarray:
    """`wanted` indices below `total`, evenly spread; all of them if there are fewer."""
    if wanted < 1:
        raise invalid("limit", wanted, "must be at least 1 token.")
    if wanted >= total:
        return np.arange(total)
    return ((np.arange(wanted) + 0.5) * total / wanted).astype(np.int64)


def _affordable_sample(num_parameters: int, context: int) -> int:
    """As many hidden tokens as SAMPLE_FLOPS allow, at two operations per parameter and token read."""
    fewest, most = SAMPLE_RANGE
    return int(min(max(SAMPLE_FLOPS / (2 * max(num_parameters, 1) * context), fewest), most))


# ------------------------------------------------------------------------------------------------ surprisal


def token_surprisal(lm: TextModel, text: str) -> list[tuple[str, float]]:
    """(token, bits) for every token of a text. Tokens that split a character are one, which costs their sum."""
    encoding = lm.tokenizer.encode(text)
    raw = text.encode()
    (nats,) = lm.token_nats([encoding.ids])
    tokens: list[tuple[str, float]] = []
    begin, bits = -1, 0.0  # of the character that is not complete yet
    for (start, end), cost in zip(encoding.spans.tolist(), nats, strict=True):
        begin, bits = (start if begin < 0 else begin), bits + float(cost) / math.log(2)
        is_inside_character = end < len(raw) and raw[end] & 0xC0 == 0x80  # a continuation byte of UTF-8
        if not is_inside_character:
            tokens.append((raw[begin:end].decode("utf-8"), bits))
            begin, bits = -1, 0.0
    return tokens
