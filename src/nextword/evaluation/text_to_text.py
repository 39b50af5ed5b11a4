"""Evaluate text-to-text tasks: read what the model writes as an answer, and score it with the task's own metrics.

    source   sst2 sentence: a fine film        output   positive   → class 1     right
                                               output   posit      → no class    wrong, and counted as unread

An output that is none of the task's answers has no class and is wrong; where a number is expected it counts as −1, as
in T5. SQuAD outputs are compared without case, articles and punctuation with the most similar gold answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nextword.core.errors import UnknownName
from nextword.core.types import Decoding
from nextword.evaluation.translation import (
    Progress,
    generate_targets,
    ignore_progress,
    sample_evenly,
    score_targets,
    spread_indices,
)
from nextword.metrics.bleu import METRICS as BLEU_METRICS
from nextword.metrics.bleu import bleu_and_chrf
from nextword.metrics.classification import METRICS, REGRESSION_METRICS
from nextword.metrics.intervals import bootstrap_mean, bootstrap_metric
from nextword.metrics.rouge import rouge_scores
from nextword.metrics.squad import ANSWER_METRICS, exact_match, word_f1

ANSWER_MARGIN = 4  # tokens that may be written beyond the longest answer of a task with fixed answers
UNREADABLE_NUMBER = -1.0


@dataclass(frozen=True)
class TextTaskResult:
    """The outputs of one task and their scores, from 0 to 100 (correlations from −100)."""

    task: str
    data: str
    split: str
    pairs: int
    written: list[str]
    scores: dict[str, dict[str, Any]]  # metric → score, low, high, signature
    nats: float  # of the true targets
    tokens: int
    unread: int | None = None  # outputs that are none of the answers; None: any text is an answer
    longer: int = 0  # sources longer than any in training
    shown: list[tuple[str, str, str]] = field(default_factory=list)  # examples: source, target, output

    def as_dict(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "data": self.data,
            "split": self.split,
            "pairs": self.pairs,
            **{name: score["score"] for name, score in self.scores.items()},
            "scores": self.scores,
            "unread": self.unread,
            "longer": self.longer,
            "nats": self.nats,
            "tokens": self.tokens,
            "token_perplexity": math.exp(min(self.nats / max(self.tokens, 1), 700)),
        }


def choose_split(member: Any, split: str) -> str:
    """The split, or, if it is empty, the task's first of test, valid and train."""
    splits = member.corpus.splits
    if split and split not in splits:
        raise UnknownName(
            f"Task {member.task.name} has no split '{split}'. Use one of {', '.join(splits)}.", name=split, known=splits
        )
    return split or next(name for name in ("test", "valid", "train") if name in splits)


def evaluate_text_task(
    lm: Any,
    member: Any,
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
    written = generate_targets(lm, sources, decoding, progress, task.longer, max_tokens)
    likelihoods = score_targets(lm, sources, targets)
    scores, unread = score_outputs(task, written, golds)
    return TextTaskResult(
        task.name,
        member.corpus.name,
        split,
        len(sources),
        written,
        scores,
        math.fsum(score.nats for score in likelihoods),
        sum(score.tokens for score in likelihoods),
        unread,
        lm.past_training(sources),
        [(sources[i], targets[i], written[i]) for i in spread_indices(num_shown, len(sources))],
    )


# ------------------------------------------------------------------------------------------------ scoring


def score_outputs(
    task: Any, written: Sequence[str], golds: Sequence[Sequence[str]]
) -> tuple[dict[str, dict[str, Any]], int | None]:
    """The task's metrics, and how many outputs could not be read as answers (None: every text can)."""
    gold_texts = [answers[0] for answers in golds]
    if task.answers:
        classes = {text: i for i, text in enumerate(task.answers)}
        predicted = np.array([classes.get(text.strip(), -1) for text in written])
        gold = np.array([classes[text] for text in gold_texts])
        return {name: _score_metric(name, gold, predicted) for name in task.metrics}, int((predicted < 0).sum())
    if any(name in REGRESSION_METRICS for name in task.metrics):
        numbers = [_parse_number(text) for text in written]
        predicted = np.array([UNREADABLE_NUMBER if x is None else x for x in numbers])
        gold = np.array([float(text) for text in gold_texts])
        return {name: _score_metric(name, gold, predicted) for name in task.metrics}, sum(x is None for x in numbers)
    scores: dict[str, dict[str, Any]] = {}
    if any(name.startswith("rouge") for name in task.metrics):
        scores |= rouge_scores(written, gold_texts)
    if any(name in BLEU_METRICS for name in task.metrics):
        scores |= bleu_and_chrf(written, gold_texts)
    for name, similarity in zip(ANSWER_METRICS, (word_f1, exact_match), strict=True):
        if name in task.metrics:
            scores[name] = _score_answers(similarity, written, golds)
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
    similarity: Callable[[str, str], float], written: Sequence[str], golds: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """The mean similarity with the most similar gold answer."""
    best = [max(similarity(text, gold) for gold in answers) for text, answers in zip(written, golds, strict=True)]
    values = 100 * np.array(best)
    low, high = bootstrap_mean(values)
    signature = f"without case, articles and punctuation, mean of {len(values):,}"
    return {"score": float(values.mean()), "low": low, "high": high, "signature": signature}
