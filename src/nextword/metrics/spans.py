"""Metrics for tagged spans: a span counts as right if its start, its end and its type are right.

| metric           |                                                          |
| ---------------- | -------------------------------------------------------- |
| `span_f1`        | harmonic mean of precision and recall, over all types     |
| `span_precision` | the share of predicted spans that are right               |
| `span_recall`    | the share of gold spans that were predicted               |
| `token_accuracy` | the share of words with the right tag                     |

Micro-averaged, as in CoNLL's evaluation script and seqeval's default mode. A division by zero gives 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any

from nextword.data.tag_schemes import find_spans

Spans = Collection[Hashable]


def span_precision(gold: Spans, predicted: Spans) -> float:
    return _ratio(len(set(gold) & set(predicted)), len(set(predicted)))


def span_recall(gold: Spans, predicted: Spans) -> float:
    return _ratio(len(set(gold) & set(predicted)), len(set(gold)))


def span_f1(gold: Spans, predicted: Spans) -> float:
    gold, predicted = set(gold), set(predicted)
    return _ratio(2 * len(gold & predicted), len(gold) + len(predicted))


def score_types(gold: Sequence[tuple[Any, ...]], predicted: Sequence[tuple[Any, ...]]) -> dict[str, dict[str, float]]:
    """The same metrics for each type (the last element of a span), with the number of gold spans."""
    num_right = Counter(span[-1] for span in set(gold) & set(predicted))
    num_predicted = Counter(span[-1] for span in set(predicted))
    num_gold = Counter(span[-1] for span in set(gold))
    return {
        str(type): {
            "span_f1": _ratio(2 * num_right[type], num_gold[type] + num_predicted[type]),
            "span_precision": _ratio(num_right[type], num_predicted[type]),
            "span_recall": _ratio(num_right[type], num_gold[type]),
            "spans": num_gold[type],
        }
        for type in sorted(num_gold | num_predicted, key=str)
    }


def _ratio(above: float, below: float) -> float:
    return above / below if below else 0.0


SPAN_METRICS: dict[str, Callable[[Spans, Spans], float]] = {
    "span_f1": span_f1,
    "span_precision": span_precision,
    "span_recall": span_recall,
}
TOKEN_ACCURACY = "token_accuracy"
TAGGING_METRICS = (*SPAN_METRICS, TOKEN_ACCURACY)


def score_tags(
    metrics: Sequence[str], gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Metrics by name, from two tags for each word of many sentences."""
    needs_spans = any(name in SPAN_METRICS for name in metrics)
    right, found = (
        [(i, *span) for i, tags in enumerate(side) for span in find_spans(tags)] if needs_spans else []
        for side in (gold, predicted)
    )
    scores = {}
    for name in metrics:
        if name == TOKEN_ACCURACY:
            pairs = [pair for a, b in zip(gold, predicted, strict=True) for pair in zip(a, b, strict=True)]
            scores[name] = sum(a == b for a, b in pairs) / max(1, len(pairs))
        else:
            scores[name] = SPAN_METRICS[name](right, found)
    return scores
