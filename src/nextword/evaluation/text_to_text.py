"""Evaluate text-to-text tasks: read what the model writes as an answer, and score it with the task's own metrics.

    source   sst2 sentence: a fine film        output   positive   → class 1     right
                                               output   posit      → no class    wrong, and counted as unread

An output that is none of the task's answers has no class and is wrong; where a number is expected it counts as −1, as
in T5. SQuAD outputs are compared without case, articles and punctuation with the most similar gold answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nextword.core.types import Decoding, Progress, ignore_progress
from nextword.data.text_to_text import Member, Task
from nextword.evaluation.translation import (
    TranslationResult,
    generate_targets,
    sample_evenly,
    spread_indices,
    sum_likelihoods,
)
from nextword.lm.seq2seq import Seq2SeqLM
from nextword.metrics.classification import METRICS, REGRESSION_METRICS
from nextword.metrics.intervals import bootstrap_mean, bootstrap_metric
from nextword.metrics.squad import ANSWER_METRICS, exact_match, word_f1
from nextword.metrics.text_generation import BLEU_METRICS, bleu_and_chrf, rouge_scores

ANSWER_MARGIN = 4  # tokens that may be written beyond the longest answer of a task with fixed answers
UNREADABLE_NUMBER = -1.0


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
