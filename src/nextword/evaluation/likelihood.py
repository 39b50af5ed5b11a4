"""Likelihood of a text under a model: bits per byte, word and token perplexity together, and how sure they are.

Every token of the stream is scored exactly once. Document ends, and line ends where the model predicts them, are paid
for like any other token. Sums are kept and divided once. The interval is a block bootstrap: the stream is cut into
contiguous blocks, and whole blocks are drawn with replacement, since neighbouring tokens are not independent.

A token of probability zero (maximum likelihood allows it) makes every perplexity infinite: how many such tokens there
are is told beside it.

Pseudo-likelihood of a text under a model that sees both sides, and how many hidden tokens it guesses right.

    log PL = Σ_t log p(x_t | all other tokens of the window)          Salazar et al. (2020)

Each token is hidden alone, which costs a reading of a whole window for every token; so a sample of the tokens is
hidden, evenly spread over the text, and sums are of the sample. Ends of documents are neither hidden nor counted. The
numbers are labelled `pseudo` and compare with those of other models that see both sides, over the same tokens, alone.

What a perplexity counts: over a closed vocabulary the literature mixes four conventions, so all are given.

    the cat sat on the <unk> <eos>    7 tokens; 6 without <eos> (others write </s>); 6 without <unk>; 5 without both

A token that is left out leaves both the sum and the count; as context it stays, so the model reads the same text each
time. The same 5-gram on Penn Treebank has 141.2, 160.4, 161.8 and 186.7. A lossless tokenizer spells every word, and
its bits per byte need no such choice.

Surprisal: how many bits each token of a text cost, given all before it.

Looking in: what a model does with a text, token by token.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from typing import Any

import numpy as np

from nextword.core.errors import NextwordError
from nextword.core.types import PSEUDO, Score


@dataclass(frozen=True)
class Convention:
    """Sums over the tokens that one convention counts."""

    name: str  # in the tokenizer's own words: "without <eos>, with <unk>"
    line_ends: bool  # whether line ends are counted
    unknown: bool  # whether unknown words are
    tokens: int
    nats: float
    impossible: int  # of the tokens, those with probability zero

    def perplexity(self) -> float | None:
        return Score(self.nats, self.tokens, words=0, bytes=0).token_perplexity()

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "perplexity": self.perplexity()}


def conventions(tokenizer: Any, ids: np.ndarray, nats: np.ndarray) -> tuple[Convention, ...]:
    """All tokens, without line ends, without unknown words, without both; nothing where that is all the same."""
    if tokenizer.lossless:
        return ()
    end, unknown = _line_end(tokenizer), _unknown(tokenizer)
    named = end | unknown
    present = [name for name, id in named.items() if (ids == id).any()]
    found = []
    for left_out in chain.from_iterable(combinations(present, n) for n in range(len(present) + 1)):
        paid = nats[~np.isin(ids, [named[name] for name in left_out])]
        if len(paid):
            said = ", ".join(f"{'without' if name in left_out else 'with'} {name}" for name in present)
            sums = len(paid), float(paid.sum()), int(np.isinf(paid).sum())
            found.append(Convention(said, not end.keys() & left_out, not unknown.keys() & left_out, *sums))
    return tuple(found) if len(found) > 1 else ()


def notes(tokenizer: Any, ids: np.ndarray, nats: np.ndarray) -> tuple[str, ...]:
    """What the number counts, in words."""
    said = []
    if tokenizer.end is None:
        said.append("each line end is predicted and counts as a word (<eos>)")
    else:
        said.append("the end of each document is predicted and paid for")
    for name, id in _unknown(tokenizer).items() if len(ids) else ():
        share = float((np.asarray(ids) == id).mean())
        said.append(f"words outside the vocabulary are scored as {name} ({100 * share:.1f} % of the tokens)")
    if not tokenizer.lossless:
        said.append("no bits per byte: this tokenizer does not keep the whole text")
    impossible = int(np.isinf(nats).sum())
    if impossible:
        said.append(_impossible(impossible, nats[~np.isinf(nats)]))
    return tuple(said)


def _impossible(count: int, rest: np.ndarray) -> str:
    has, them = ("token has", "it") if count == 1 else ("tokens have", "them")
    note = f"{count:,} {has} probability 0"
    perplexity = Score(float(rest.sum()), len(rest), words=0, bytes=0).token_perplexity()
    return note if perplexity is None else f"{note}; without {them}, token perplexity is {perplexity:,.2f}"


def _line_end(tokenizer: Any) -> dict[str, int]:
    """Name and id of the line end, where it is predicted like a word."""
    if tokenizer.end is not None:
        return {}
    return {name: id for name, id in tokenizer.special.items() if tokenizer.piece(id) == b"\n"}


def _unknown(tokenizer: Any) -> dict[str, int]:
    found = [(name, id) for name, id in tokenizer.special.items() if "unk" in name.lower()]
    return dict(found[:1])


FEWEST = 400  # tokens that an interval is worth giving from: below, too few blocks to draw from
UNSPACED = 25  # bytes a "word" from which on the script must be one that writes no spaces


@dataclass(frozen=True)
class Evaluation:
    score: Score
    low: float | None  # bits per byte, 95 % interval
    high: float | None
    seconds: float
    notes: tuple[str, ...] = ()
    conventions: tuple[Convention, ...] = ()  # the same text with and without line ends and unknown words
    impossible: int = 0  # tokens with probability zero
    facts: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        s = self.score
        spaced = s.words and s.bytes / s.words < UNSPACED
        return {
            "kind": s.kind,
            "lossless": s.lossless,
            "bits_per_byte": s.bits_per_byte(),
            "bits_per_byte_low": self.low,
            "bits_per_byte_high": self.high,
            "word_perplexity": s.word_perplexity() if spaced else None,
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


def evaluate_stream(
    lm: Any,
    stream: Any,
    context: int | None = None,
    stride: int | None = None,
    progress: Callable[[float, float | None], None] | None = None,
    method: Any = None,
    limit: int | None = None,
) -> Evaluation:
    """The whole stream under a model; `context` and `stride` bound what it may look back at.

    A `method` (see `methods`) scores the stream in the model's place, and its name and settings are in the result. A
    model that sees both sides has pseudo-likelihoods: of a sample, of `limit` tokens.
    """
    if lm.kind == PSEUDO:
        return evaluate_sample(lm, stream, context, stride, progress, limit)
    began = time.perf_counter()
    if method is not None:
        nats = method.nats(stream.ids, progress)
    elif context:
        stride = stride or max(1, context // 2)
        nats = lm.windowed_nats(stream.ids, context, stride, progress)
    else:
        nats = lm.stream_nats(stream.ids, progress)
    seconds = time.perf_counter() - began
    lines = stream.lines if lm.tokenizer.end is None else 0
    seen, moved = (context, stride) if context else (lm.context, lm.stride)
    if method is not None:
        seen = method.context(lm.context)
        moved = None if seen is None else lm.stride
    score = Score(
        float(nats.sum()),
        len(nats),
        stream.words + lines,
        stream.bytes,
        lm.kind,
        lm.tokenizer.lossless,
        seen,
        moved,
    )
    facts = {} if method is not None or context else is_backward(lm, stream.ids, score)
    paid = as_paid(lm, stream.ids)
    low, high = (None, None)
    if score.bits_per_byte() is not None and len(nats) >= FEWEST:
        low, high = bootstrap(nats, id_bytes(lm.tokenizer)[stream.ids], total=stream.bytes)
    return Evaluation(
        score,
        low,
        high,
        seconds,
        (*(() if method is None else method.notes), *_of_two(facts), *notes(lm.tokenizer, paid, nats)),
        conventions(lm.tokenizer, paid, nats),
        int(np.isinf(nats).sum()),
        facts if method is None else method.facts,
    )


def as_paid(lm: Any, ids: np.ndarray) -> np.ndarray:
    """What the tokens are scored as: some networks read more words than they can write (their `written`)."""
    written = getattr(getattr(lm, "network", None), "written", len(lm.tokenizer))
    if written >= len(lm.tokenizer):
        return ids
    return np.where(np.asarray(ids) < written, ids, lm.network.readout.unknown)


def is_backward(lm: Any, ids: np.ndarray, score: Score) -> dict[str, float | None]:
    """Where a network is two models, one from each end of the text (it has `backward`), how well each does."""
    if not hasattr(getattr(lm, "network", None), "backward"):
        return {}
    other = type(lm)(lm.network.backward(), lm.tokenizer)
    nats = float(other.stream_nats(np.ascontiguousarray(np.asarray(ids)[::-1])).sum())
    turned = replace(score, nats=nats)
    return {"forward_perplexity": score.token_perplexity(), "backward_perplexity": turned.token_perplexity()}


def _of_two(facts: dict[str, float | None]) -> tuple[str, ...]:
    back = facts.get("backward_perplexity")
    if back is None:
        return ()
    return (f"these are the forward model's; the backward one's token perplexity is {back:,.2f}",)


def id_bytes(tokenizer: Any) -> np.ndarray:
    """How many bytes of text each id stands for, for a lossless tokenizer."""
    special = set(tokenizer.special.values())
    return np.array([0 if id in special else len(tokenizer.piece(id)) for id in range(len(tokenizer))])


def bootstrap(
    nats: np.ndarray, weights: np.ndarray, total: int, draws: int = 1000, blocks: int = 200, seed: int = 0
) -> tuple[float, float]:
    """95 % interval of bits per byte over contiguous blocks; `total` bytes scale it to the text's own count.

    Where one token is impossible the expected cost is infinite for certain, however rarely a draw would hold it.
    """
    if np.isinf(nats).any():
        return math.inf, math.inf
    blocks = max(1, min(blocks, len(nats) // 20))
    edges = np.linspace(0, len(nats), blocks + 1).astype(np.int64)[:-1]
    cost = np.add.reduceat(nats, edges)
    size = np.add.reduceat(weights, edges).astype(np.float64)
    size *= total / max(size.sum(), 1)
    drawn = np.random.default_rng(seed).integers(0, blocks, (draws, blocks))
    bits = cost[drawn].sum(1) / np.maximum(size[drawn].sum(1), 1) / math.log(2)
    low, high = np.quantile(bits, [0.025, 0.975])
    return float(low), float(high)


CONTEXT = 128  # tokens around the hidden one, itself among them, where nobody asks for more
SAMPLE = (400, 2000)  # tokens: the fewest and the most, where nobody says how many
WORK = 1e13  # floating point operations that the sample may take between the two: a minute or two of two cores


def evaluate_sample(
    lm: Any,
    stream: Any,
    context: int | None = None,
    stride: int | None = None,
    progress: Callable[[float, float | None], None] | None = None,
    limit: int | None = None,
) -> Evaluation:
    """`context`: tokens that are read with each hidden one; `limit`: how many are hidden."""
    if context is not None and context > lm.room:
        raise NextwordError(
            f"A context of {context:,} tokens does not fit: this model reads {lm.room:,} tokens of a text at a time. "
            "Ask for no more."
        )
    seen, stride = context or min(CONTEXT, lm.room), stride or 1
    if not 1 <= stride <= seen:
        raise NextwordError(f"The stride must lie between 1 and the context; got context {seen}, stride {stride}.")
    end = lm.tokenizer.end
    ids = np.asarray(stream.ids)
    there = np.arange(len(ids)) if end is None else np.flatnonzero(ids != end)
    at = there[_spread(len(there), limit or _affordable(lm.parameters, seen))]
    began = time.perf_counter()
    found = lm.hide_in_stream(ids, at, seen, stride, progress)
    seconds = time.perf_counter() - began
    share = len(at) / max(len(there), 1)
    lines = stream.lines if end is None else 0
    score = Score(
        float(found.nats.sum()),
        len(at),
        round((stream.words + lines) * share),
        round(stream.bytes * share),
        PSEUDO,
        lm.tokenizer.lossless,
        seen,
        stride,
    )
    low, high = (None, None)
    if score.bits_per_byte() is not None and len(at) >= FEWEST:
        low, high = bootstrap(found.nats, id_bytes(lm.tokenizer)[ids[at]], total=score.bytes)
    accuracy = float(found.right.sum()) / max(len(at), 1)
    part = f"a sample of {len(at):,} of {len(there):,} tokens, evenly spread; words and bytes are its share of them"
    said = (
        "pseudo-likelihood: each token hidden alone and guessed from both sides; not to be set beside likelihoods",
        part if share < 1 else f"all {len(there):,} tokens; the ends of documents are not predicted",
        f"each sees at most {seen:,} tokens of its document, itself among them",
        f"{100 * accuracy:.1f} % of the hidden tokens are the likeliest in their place",
        *notes(lm.tokenizer, ids[at], found.nats)[1:],  # all but how document ends are paid for
    )
    facts = {"accuracy": accuracy, "sample": len(at), "of": len(there)}
    return Evaluation(score, low, high, seconds, said, (), int(np.isinf(found.nats).sum()), facts)


def _spread(total: int, wanted: int) -> np.ndarray:
    """So many of the places up to `total`, evenly spread; all of them where that is fewer."""
    if wanted < 1:
        raise NextwordError(f"A sample of {wanted} tokens: give 1 or more.")
    if wanted >= total:
        return np.arange(total)
    return ((np.arange(wanted) + 0.5) * total / wanted).astype(np.int64)


def _affordable(parameters: int, context: int) -> int:
    """Tokens to hide: as many as the work allows, which is two operations a parameter and token read."""
    least, most = SAMPLE
    return int(min(max(WORK / (2 * max(parameters, 1) * context), least), most))


def surprisal(lm: Any, text: str) -> list[tuple[str, float]]:
    """(token's text, bits) for every token; a token that ends inside a character shows the part as U+FFFD."""
    encoding = lm.tokenizer.encode(text)
    raw = text.encode()
    (nats,) = lm.token_nats([encoding.ids])
    return [
        (raw[start:end].decode("utf-8", "replace"), float(cost) / math.log(2))
        for (start, end), cost in zip(encoding.spans.tolist(), nats, strict=True)
    ]
