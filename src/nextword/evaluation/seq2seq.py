"""Evaluate a sequence-to-sequence model: generate from the sources, compare with the targets.

Translations are scored with BLEU (cased and lower-cased) and chrF, summaries with ROUGE, and text-to-text tasks with
the task's own metrics. Beside them stands the perplexity of the true targets.

    source   sst2 sentence: a fine film        output   positive   → class 1     right
                                               output   posit      → no class    wrong, and counted as unread

An output that is none of the task's answers has no class and is wrong; where a number is expected it counts as −1, as
in T5. SQuAD outputs are compared without case, articles and punctuation with the most similar gold answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from nextword.core.errors import DataError
from nextword.core.types import Decoding, Document, Progress, Score, Stop, ignore_progress, safe_exp
from nextword.data.text_to_text import Member, Task
from nextword.lm.seq2seq import Seq2SeqLM
from nextword.metrics.classification import METRICS, REGRESSION_METRICS
from nextword.metrics.intervals import bootstrap_mean, bootstrap_metric
from nextword.metrics.squad import ANSWER_METRICS, exact_match, word_f1
from nextword.metrics.text_generation import BLEU_METRICS, bleu_and_chrf, rouge_scores

BATCH_SIZE = 64  # sources per generation batch
MAX_LENGTH_RATIO, EXTRA_TOKENS = 2, 10  # a target has at most 2 · source length + 10 tokens,
SUMMARY_LENGTH_RATIO = 0.6  # a summary at most 0.6 · source length + 10
ANSWER_MARGIN = 4  # tokens that may be written beyond the longest answer of a task with fixed answers
UNREADABLE_NUMBER = -1.0

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


# ------------------------------------------------------------------------------------------------ text-to-text tasks


@dataclass(frozen=True, kw_only=True)
class TextTaskResult(TranslationResult):
    """The outputs of one task and their scores, from 0 to 100 (correlations from −100)."""

    task: str
    data: str
    split: str
    unread: int | None  # outputs that are none of the answers; None: any text is an answer
    shown: Sequence[dict[str, str]]  # examples: source, target, output

    def as_dict(self) -> dict[str, Any]:
        place = {"task": self.task, "data": self.data, "split": self.split}
        return {**place, **super().as_dict(), "unread": self.unread}


def evaluate_text_task(
    lm: Seq2SeqLM,
    member: Member,
    split: str,
    decoding: Decoding,
    limit: int = 0,
    num_shown: int = 0,
    progress: Progress = ignore_progress,
) -> TextTaskResult:
    """Generate from the sources of a split, or from `limit` of them, and score the outputs."""
    task = member.task
    examples = sample_evenly(list(member.examples(split)), limit)
    sources = [document.source or "" for document, _ in examples]
    targets, golds = [document.text for document, _ in examples], [answers for _, answers in examples]
    max_tokens = None
    if task.answers:
        max_tokens = ANSWER_MARGIN + max(len(answer) for answer in lm.tokenizer.encode_batch(list(task.answers)))
    outputs = generate_targets(lm, sources, decoding, progress, task.longer, max_tokens)
    scores, unread = score_outputs(task, outputs, golds)
    return TextTaskResult(
        task=task.name,
        data=member.corpus.name,
        split=split,
        outputs=outputs,
        scores=scores,
        unread=unread,
        longer=lm.num_longer_than_training(sources),
        shown=[
            {"source": sources[i], "target": targets[i], "output": outputs[i]}
            for i in spread_indices(num_shown, len(sources))
        ],
        **sum_likelihoods(lm, sources, targets),
    )


# ------------------------------------------------------------------------------------------------ scoring


def score_outputs(
    task: Task, outputs: Sequence[str], golds: Sequence[Sequence[str]]
) -> tuple[dict[str, dict[str, Any]], int | None]:
    """The task's metrics, and how many outputs could not be read as answers (None: every text can)."""
    gold_texts = [answers[0] for answers in golds]
    if task.answers:
        classes = {text: i for i, text in enumerate(task.answers)}
        predicted = np.array([classes.get(text.strip(), -1) for text in outputs])
        gold = np.array([classes[text] for text in gold_texts])
        return {name: _score_metric(name, gold, predicted) for name in task.metrics}, int((predicted < 0).sum())
    if any(name in REGRESSION_METRICS for name in task.metrics):
        numbers = [_parse_number(text) for text in outputs]
        predicted = np.array([UNREADABLE_NUMBER if x is None else x for x in numbers])
        gold = np.array([float(text) for text in gold_texts])
        return {name: _score_metric(name, gold, predicted) for name in task.metrics}, sum(x is None for x in numbers)
    scores: dict[str, dict[str, Any]] = {}
    if any(name.startswith("rouge") for name in task.metrics):
        scores |= rouge_scores(outputs, gold_texts)
    if any(name in BLEU_METRICS for name in task.metrics):
        scores |= bleu_and_chrf(outputs, gold_texts)
    for name, similarity in zip(ANSWER_METRICS, (word_f1, exact_match), strict=True):
        if name in task.metrics:
            scores[name] = _score_answers(similarity, outputs, golds)
    return {name: scores[name] for name in task.metrics if name in scores}, None


def _score_metric(name: str, gold: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
    estimate = bootstrap_metric(METRICS[name], gold.tolist(), predicted.tolist())
    return {
        "score": 100 * estimate.value,
        "low": 100 * estimate.low,
        "high": 100 * estimate.high,
        "signature": f"{name} × 100, of {len(gold):,}",
    }


def _parse_number(text: str) -> float | None:
    try:
        value = float(text.strip())
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _score_answers(
    similarity: Callable[[str, str], float], outputs: Sequence[str], golds: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """The mean similarity with the most similar gold answer."""
    best = [max(similarity(text, gold) for gold in answers) for text, answers in zip(outputs, golds, strict=True)]
    values = 100 * np.array(best)
    low, high = bootstrap_mean(values)
    signature = f"without case, articles and punctuation, mean of {len(values):,}"
    return {"score": float(values.mean()), "low": low, "high": high, "signature": signature}
