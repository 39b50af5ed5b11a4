"""How good spans are: those that are right in both ends and in their type count, and nothing counts half.

| metric           |                                                        |
| ---------------- | ------------------------------------------------------ |
| `span_f1`        | harmonic mean of the two below, over all types together |
| `span_precision` | the share of what was said that is right               |
| `span_recall`    | the share of what is right that was said               |
| `token_accuracy` | the share of words whose tag is right                  |

As CoNLL's script and seqeval (its default) count: micro-averaged. Where nothing is to be divided by, the result is 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any

Spans = Collection[Hashable]


def span_precision(gold: Spans, said: Spans) -> float:
    return _ratio(len(set(gold) & set(said)), len(set(said)))


def span_recall(gold: Spans, said: Spans) -> float:
    return _ratio(len(set(gold) & set(said)), len(set(gold)))


def span_f1(gold: Spans, said: Spans) -> float:
    gold, said = set(gold), set(said)
    return _ratio(2 * len(gold & said), len(gold) + len(said))


def by_type(gold: Sequence[tuple[Any, ...]], said: Sequence[tuple[Any, ...]]) -> dict[str, dict[str, float]]:
    """The same for each type, which is the last of a span's parts, with how many are right to be found."""
    right, found, there = (Counter(one[-1] for one in some) for some in (set(gold) & set(said), set(said), set(gold)))
    return {
        str(type): {
            "span_f1": _ratio(2 * right[type], there[type] + found[type]),
            "span_precision": _ratio(right[type], found[type]),
            "span_recall": _ratio(right[type], there[type]),
            "spans": there[type],
        }
        for type in sorted(there | found, key=str)
    }


def _ratio(above: float, below: float) -> float:
    return above / below if below else 0.0


OF_SPANS: dict[str, Callable[[Spans, Spans], float]] = {
    "span_f1": span_f1,
    "span_precision": span_precision,
    "span_recall": span_recall,
}
ACCURACY = "token_accuracy"
OF_TAGS = (*OF_SPANS, ACCURACY)
