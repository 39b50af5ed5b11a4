"""Likelihood of a text under a model: bits per byte, word and token perplexity together, and how sure they are.

Every token of the stream is scored exactly once. Document ends, and line ends where the model predicts them, are paid
for like any other token. Sums are kept and divided once. The interval is a block bootstrap: the stream is cut into
contiguous blocks, and whole blocks are drawn with replacement, since neighbouring tokens are not independent.

A token of probability zero (maximum likelihood allows it) makes every perplexity infinite: how many such tokens there
are is told beside it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nextword.contract import PSEUDO, Score
from nextword.evaluation.conventions import Convention, conventions, notes

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
        from nextword.evaluation.pseudo import evaluate_sample

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
    facts = {} if method is not None or context else from_the_end(lm, stream.ids, score)
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


def from_the_end(lm: Any, ids: np.ndarray, score: Score) -> dict[str, float | None]:
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
