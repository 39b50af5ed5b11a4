"""ROUGE of summaries (Lin 2004): how much of the true ones is in those written, and the other way round, as F1.

    rouge1, rouge2   words and pairs of words that both have
    rougeL           the longest sequence of words that both have in this order
    rougeLsum        the same sentence by sentence, as the literature gives it of summaries of several sentences

Counted by rouge-score, the authors' way in Python: lower case, letters and digits alone, Porter's stemmer. Means over
the summaries from 0 to 100; the interval is of a thousand resamplings of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from nextword.data.segmentation import sentences

TYPES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
RESAMPLED = 1000
WITHOUT = "Without rouge-score there is no ROUGE: pip install 'nextword[tasks]'."
_GLUED = re.compile(r"(?<=[a-z0-9)\"'”’][.!?])(?=[A-Z\"“‘])")  # sentences put together as they are: "profit.The firm"


def rouge(written: Sequence[str], targets: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Each type's score, interval and how it was counted; nothing where rouge-score is not installed."""
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        return {}
    scorer = RougeScorer(list(TYPES), use_stemmer=True)
    both = zip(map(lines_of, targets), map(lines_of, written), strict=True)
    scores = [scorer.score(target, text) for target, text in both]
    found = {}
    for name in TYPES:
        values = 100 * np.array([one[name].fmeasure for one in scores])
        low, high = bounds(values)
        signature = f"F1, stemmed, mean of {len(values):,}, rouge-score {version('rouge-score')}"
        found[name] = {"score": float(values.mean()), "low": low, "high": high, "signature": signature}
    return found


def bounds(values: np.ndarray) -> tuple[float | None, float | None]:
    """95 % of the means of as many values drawn again lie between these."""
    if len(values) < 2:
        return None, None
    draw = np.random.default_rng(0)
    means = [values[draw.integers(0, len(values), len(values))].mean() for _ in range(RESAMPLED)]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def lines_of(text: str) -> str:
    """A sentence a line, as rougeLsum wants it."""
    spaced = _GLUED.sub(" ", text)
    return "\n".join(" ".join(spaced[a:b].split()) for a, b in sentences(spaced))
