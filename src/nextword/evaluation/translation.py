"""Evaluate a sequence-to-sequence model: generate from the sources, compare with the targets.

Translations are scored with BLEU (cased and lower-cased) and chrF, summaries with ROUGE. Beside them stands the
perplexity of the true targets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from nextword.core.errors import DataError
from nextword.core.types import Decoding, Document, Progress, Score, Stop, ignore_progress, safe_exp
from nextword.lm.seq2seq import Seq2SeqLM
from nextword.metrics.text_generation import bleu_and_chrf, rouge_scores

BATCH_SIZE = 64  # sources per generation batch
MAX_LENGTH_RATIO, EXTRA_TOKENS = 2, 10  # a target has at most 2 · source length + 10 tokens,
SUMMARY_LENGTH_RATIO = 0.6  # a summary at most 0.6 · source length + 10

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class TranslationResult:
    outputs: list[str]
    scores: Mapping[str, Mapping[str, Any]]  # metric → score, low, high, signature
    nats: float  # of the true targets
    tokens: int
    longer: int  # sources longer than any in training

    def as_dict(self) -> dict[str, Any]:
        return {
            "pairs": len(self.outputs),
            **{name: score["score"] for name, score in self.scores.items()},
            "scores": self.scores,
            "longer": self.longer,
            "nats": self.nats,
            "tokens": self.tokens,
            "token_perplexity": safe_exp(self.nats / max(self.tokens, 1)),
        }


def evaluate_translations(
    lm: Seq2SeqLM,
    pairs: Sequence[Document],
    decoding: Decoding,
    progress: Progress = ignore_progress,
    summaries: bool = False,
) -> TranslationResult:
    """Generate a target for every source and score it against the true one."""
    if not pairs:
        raise DataError("There are no pairs to translate.")
    sources, targets = [pair.source or "" for pair in pairs], [pair.text for pair in pairs]
    ratio = SUMMARY_LENGTH_RATIO if summaries else MAX_LENGTH_RATIO
    outputs = generate_targets(lm, sources, decoding, progress, ratio)
    scores = rouge_scores(outputs, targets) if summaries else bleu_and_chrf(outputs, targets)
    longer = lm.num_longer_than_training(sources)
    return TranslationResult(outputs=outputs, scores=scores, longer=longer, **sum_likelihoods(lm, sources, targets))


def generate_targets(
    lm: Seq2SeqLM,
    sources: Sequence[str],
    decoding: Decoding,
    progress: Progress = ignore_progress,
    length_ratio: float = MAX_LENGTH_RATIO,
    max_tokens: int | None = None,
) -> list[str]:
    """Generate from every source at most `length_ratio` · its length + EXTRA_TOKENS tokens, or `max_tokens`.

    Sources of similar length are batched.
    """
    lengths = _token_counts(lm, sources)
    order = sorted(range(len(sources)), key=lambda i: -lengths[i])
    outputs = [""] * len(sources)
    for start in range(0, len(order), BATCH_SIZE):
        batch = order[start : start + BATCH_SIZE]
        stop = Stop(int(length_ratio * lengths[batch[0]]) + EXTRA_TOKENS if max_tokens is None else max_tokens)
        texts = lm.generate_many([sources[i] for i in batch], decoding, stop)
        for i, pieces in zip(batch, texts, strict=True):
            outputs[i] = "".join(piece.text for piece in pieces).strip()
        progress(start + len(batch), len(order))
    return outputs


def sum_likelihoods(lm: Seq2SeqLM, sources: Sequence[str], targets: Sequence[str]) -> dict[str, Any]:
    """The nats and tokens of all targets, given their sources."""
    scores: list[Score] = []
    for start in range(0, len(sources), BATCH_SIZE):
        scores += lm.score_many(targets[start : start + BATCH_SIZE], sources[start : start + BATCH_SIZE])
    return {"nats": math.fsum(score.nats for score in scores), "tokens": sum(score.tokens for score in scores)}


def max_target_length(lm: Seq2SeqLM, sources: Sequence[str]) -> int:
    """The largest number of tokens that the target of any of these sources may have."""
    return MAX_LENGTH_RATIO * max(_token_counts(lm, sources), default=0) + EXTRA_TOKENS


def sample_evenly(items: Sequence[T], limit: int) -> Sequence[T]:
    """At most `limit` items at equal distances, since files are often sorted; 0: all of them."""
    if not 0 < limit < len(items):
        return items
    return [items[i * len(items) // limit] for i in range(limit)]


def spread_indices(count: int, total: int) -> list[int]:
    """Up to `count` indices below `total`, from the first to the last at equal distances."""
    return sorted({round(i * (total - 1) / max(count - 1, 1)) for i in range(count)})


def _token_counts(lm: Seq2SeqLM, sources: Sequence[str]) -> list[int]:
    return [len(encoding) for encoding in lm.tokenizer.encode_batch(list(sources))]
