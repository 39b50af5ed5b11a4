"""What a model scores on evaluation documents that its training text holds in part (dirty), and on the others (clean).

GPT-3 reports its benchmarks so (Brown et al., 2020, section 4): if the clean documents are scored worse than all of
them, the number over all is flattered by what was seen. Each document is scored from a fresh start, through
`score_many`, so every model that can score takes part; a number over the joined stream, where context runs on, differs
a little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from nextword.core.errors import NextwordError
from nextword.core.protocols import LanguageModel
from nextword.core.types import Document, Score
from nextword.data.filters.decontaminate import Contamination

TOGETHER = 1 << 20  # characters scored at a time
EXAMPLES = 10
DRAWS = 1000
FEWEST = 5  # documents that an interval is worth giving from


@dataclass(frozen=True)
class Subset:
    """Sums over some documents; the interval of bits per byte comes from drawing whole documents again."""

    documents: int
    score: Score | None  # None: there is no document
    low: float | None = None
    high: float | None = None

    def as_dict(self) -> dict[str, Any]:
        s = self.score
        return {
            "documents": self.documents,
            "bytes": s.bytes if s else 0,
            "tokens": s.tokens if s else 0,
            "nats": s.nats if s else 0.0,
            "bits_per_byte": s.bits_per_byte() if s else None,
            "bits_per_byte_low": self.low,
            "bits_per_byte_high": self.high,
            "word_perplexity": s.word_perplexity() if s else None,
            "token_perplexity": s.token_perplexity() if s else None,
        }


@dataclass(frozen=True)
class Apart:
    """All documents, the clean and the dirty ones."""

    all: Subset
    clean: Subset
    dirty: Subset
    contamination: Contamination

    def as_dict(self) -> dict[str, Any]:
        dirty = [verdict for verdict in self.contamination.verdicts if verdict.dirty]
        return {
            "contamination": self.contamination.as_dict(),
            "all": self.all.as_dict(),
            "clean": self.clean.as_dict(),
            "dirty": self.dirty.as_dict(),
            "examples": [
                {
                    "document": verdict.document.title or verdict.document.id,
                    "gram": " ".join(verdict.gram.split()),
                    "seen_in": verdict.seen_in,
                    "seen": verdict.seen,
                    "grams": verdict.grams,
                }
                for verdict in sorted(dirty, key=lambda verdict: -verdict.seen)[:EXAMPLES]
            ],
        }


def score_apart(lm: LanguageModel, found: Contamination, progress: Callable[[int, int], None] | None = None) -> Apart:
    """Score the documents of a split that `split_by_contamination` has looked at."""
    if "score" not in lm.can:
        raise NextwordError("This model cannot score a text, so clean and dirty documents cannot be compared with it.")
    verdicts = found.verdicts
    scores = _scores(lm, [verdict.document for verdict in verdicts], progress)
    clean = [score for score, verdict in zip(scores, verdicts, strict=True) if not verdict.dirty]
    dirty = [score for score, verdict in zip(scores, verdicts, strict=True) if verdict.dirty]
    return Apart(subset(scores), subset(clean), subset(dirty), found)


def _scores(
    lm: LanguageModel, documents: Sequence[Document], progress: Callable[[int, int], None] | None
) -> list[Score]:
    out: list[Score] = []
    while len(out) < len(documents):
        texts: list[str] = []
        while len(out) + len(texts) < len(documents) and sum(map(len, texts)) < TOGETHER:
            texts.append(documents[len(out) + len(texts)].text)
        out += lm.score_many(texts)
        if progress:
            progress(len(out), len(documents))
    return out


def subset(scores: Sequence[Score], seed: int = 0) -> Subset:
    """The sum of scores, with a 95 % interval over documents."""
    if not scores:
        return Subset(0, None)
    total = reduce(add, scores)
    if total.bits_per_byte() is None or len(scores) < FEWEST or not np.isfinite(total.nats):
        return Subset(len(scores), total)
    nats, sizes = np.array([score.nats for score in scores]), np.array([score.bytes for score in scores])
    drawn = np.random.default_rng(seed).integers(0, len(scores), (DRAWS, len(scores)))
    bits = nats[drawn].sum(1) / np.maximum(sizes[drawn].sum(1), 1) / np.log(2)
    low, high = np.quantile(bits, [0.025, 0.975])
    return Subset(len(scores), total, float(low), float(high))
