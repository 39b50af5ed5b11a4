"""Score evaluation documents that overlap with the training text (dirty) and the others (clean) separately.

GPT-3 reports its benchmarks this way (Brown et al. 2020, section 4): if the clean documents score worse than all of
them, the overall number profits from what the model saw in training. Each document is scored from a fresh start with
`score_many`, so every model that can score takes part; a number over the concatenated stream, where context carries
over from document to document, differs a little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from nextword.core.errors import Unsupported
from nextword.core.types import Document, Progress, Score, ignore_progress
from nextword.data.filters.decontaminate import Contamination
from nextword.lm.base import TextModel

BATCH_CHARACTERS = 1 << 20  # characters scored at a time
MAX_EXAMPLES = 10
NUM_RESAMPLES = 1000
MIN_DOCUMENTS = 5  # for an interval


@dataclass(frozen=True)
class Subset:
    """Sums over some documents, with a bootstrap interval of bits per byte over documents."""

    documents: int
    score: Score | None  # None: no documents
    low: float | None = None
    high: float | None = None

    def as_dict(self) -> dict[str, Any]:
        s = self.score or Score(0.0, 0, 0, 0)
        return {
            "documents": self.documents,
            "bytes": s.bytes,
            "tokens": s.tokens,
            "nats": s.nats,
            "bits_per_byte": s.bits_per_byte(),
            "bits_per_byte_low": self.low,
            "bits_per_byte_high": self.high,
            "word_perplexity": s.word_perplexity(),
            "token_perplexity": s.token_perplexity(),
        }


def score_by_contamination(
    lm: TextModel, contamination: Contamination, progress: Progress = ignore_progress
) -> dict[str, Any]:
    """Score the documents that `split_by_contamination` has classified as clean or dirty."""
    if "score" not in lm.can:
        raise Unsupported(
            "This model cannot score a text, so --overlap-with has no numbers to compare.", ability="score"
        )
    verdicts = contamination.verdicts
    scores = _score_documents(lm, [verdict.document for verdict in verdicts], progress)
    dirty = [verdict for verdict in verdicts if verdict.is_dirty]
    subsets = {
        "all": scores,
        "clean": [score for score, verdict in zip(scores, verdicts, strict=True) if not verdict.is_dirty],
        "dirty": [score for score, verdict in zip(scores, verdicts, strict=True) if verdict.is_dirty],
    }
    return {
        "contamination": contamination.as_dict(),
        **{name: summarize_scores(subset).as_dict() for name, subset in subsets.items()},
        "examples": [
            {
                "document": verdict.document.title or verdict.document.id,
                "gram": " ".join(verdict.gram.split()),
                "seen_in": verdict.seen_in,
                "seen": verdict.seen,
                "grams": verdict.grams,
            }
            for verdict in sorted(dirty, key=lambda verdict: -verdict.seen)[:MAX_EXAMPLES]
        ],
    }


def _score_documents(lm: TextModel, documents: Sequence[Document], progress: Progress) -> list[Score]:
    scores: list[Score] = []
    while len(scores) < len(documents):
        batch: list[str] = []
        while len(scores) + len(batch) < len(documents) and sum(map(len, batch)) < BATCH_CHARACTERS:
            batch.append(documents[len(scores) + len(batch)].text)
        scores += lm.score_many(batch)
        progress(len(scores), len(documents))
    return scores


def summarize_scores(scores: Sequence[Score], seed: int = 0) -> Subset:
    """The sum of the scores, with a 95 % interval from resampling documents."""
    if not scores:
        return Subset(0, None)
    total = reduce(add, scores)
    if total.bits_per_byte() is None or len(scores) < MIN_DOCUMENTS or not np.isfinite(total.nats):
        return Subset(len(scores), total)
    nats, sizes = np.array([score.nats for score in scores]), np.array([score.bytes for score in scores])
    rows = np.random.default_rng(seed).integers(0, len(scores), (NUM_RESAMPLES, len(scores)))
    bits = nats[rows].sum(1) / np.maximum(sizes[rows].sum(1), 1) / np.log(2)
    low, high = np.quantile(bits, [0.025, 0.975])
    return Subset(len(scores), total, float(low), float(high))
