"""How good translations are: BLEU and chrF of what a model writes, and what the true targets cost it.

Scores are sacrebleu's, of raw text against raw text, each with the signature that says how it was counted; the interval
is of a thousand resamplings of the pairs. BLEU is given with capitals and without. Summaries are judged by ROUGE
instead (rouge.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nextword.core.errors import NextwordError
from nextword.core.types import Decoding, Document, Stop
from nextword.metrics.rouge import rouge

AT_ONCE = 64  # sources that are written side by side
LONGER, MORE = 2, 10  # a target has at most twice the tokens of its source, and ten
SHORTER = 0.6  # a summary at most this share of its source, and ten
RESAMPLED = 1000
METRICS = {"bleu": ("BLEU", {}), "bleu_lowercase": ("BLEU", {"lowercase": True}), "chrf": ("CHRF", {})}

Progress = Callable[[float, float | None], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Translated:
    written: list[str]
    nats: float  # of the true targets
    tokens: int
    scores: dict[str, dict[str, Any]] = field(default_factory=dict)  # by name: score, low, high, signature
    longer: int = 0  # sources that are longer than those it was trained on

    def as_dict(self) -> dict[str, Any]:
        flat = {name: one["score"] for name, one in self.scores.items()}
        return {
            "pairs": len(self.written),
            **flat,
            "scores": self.scores,
            "longer": self.longer,
            "nats": self.nats,
            "tokens": self.tokens,
            "token_perplexity": math.exp(min(self.nats / max(self.tokens, 1), 700)),
        }


def translate(
    lm: Any,
    pairs: Sequence[Document],
    how: Decoding,
    progress: Progress = lambda done, total: None,
    summaries: bool = False,
) -> Translated:
    """What the model makes of the sources, scored against the targets."""
    if not pairs:
        raise NextwordError("There is no pair to translate.")
    sources, targets = [pair.source or "" for pair in pairs], [pair.text for pair in pairs]
    written = written_from(lm, sources, how, progress, longer=SHORTER if summaries else LONGER)
    scores = [one for at in range(0, len(pairs), AT_ONCE) for one in _scored(lm, sources, targets, at)]
    found = rouge(written, targets) if summaries else compared(written, targets)
    nats, tokens = math.fsum(s.nats for s in scores), sum(s.tokens for s in scores)
    return Translated(written, nats, tokens, found, lm.past_training(sources))


def evenly(items: Sequence[T], most: int) -> Sequence[T]:
    """At most so many, at equal distances, for files are often sorted; 0: all of them."""
    if not 0 < most < len(items):
        return items
    return [items[i * len(items) // most] for i in range(most)]


def written_from(
    lm: Any,
    sources: Sequence[str],
    how: Decoding,
    progress: Progress = lambda done, total: None,
    longer: float = LONGER,
    most: int | None = None,
) -> list[str]:
    """What becomes of each source, `longer` times as long and a bit at the most, or `most` tokens.

    Those of like length are written side by side.
    """
    lengths = _lengths(lm, sources)
    order = sorted(range(len(sources)), key=lambda i: -lengths[i])
    found = [""] * len(sources)
    for at in range(0, len(order), AT_ONCE):
        group = order[at : at + AT_ONCE]
        stop = Stop(int(longer * lengths[group[0]]) + MORE if most is None else most)
        for i, pieces in zip(group, lm.generate_many([sources[i] for i in group], how, stop), strict=True):
            found[i] = "".join(piece.text for piece in pieces).strip()
        progress(at + len(group), len(order))
    return found


def room_for(lm: Any, sources: Sequence[str]) -> int:
    """Tokens that what becomes of any of these may have."""
    return LONGER * max(_lengths(lm, sources), default=0) + MORE


def _lengths(lm: Any, sources: Sequence[str]) -> list[int]:
    return [len(encoding) for encoding in lm.tokenizer.encode_batch(list(sources))]


def _scored(lm: Any, sources: Sequence[str], targets: Sequence[str], at: int) -> Any:
    return lm.score_many(targets[at : at + AT_ONCE], sources[at : at + AT_ONCE])


def compared(written: Sequence[str], targets: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Each metric's score, interval and signature; nothing where sacrebleu is not installed."""
    try:
        from sacrebleu import metrics
    except ImportError:
        return {}
    found = {}
    for name, (kind, options) in METRICS.items():
        metric = getattr(metrics, kind)(**options)
        again = {"n_bootstrap": RESAMPLED} if len(written) > 1 else {}
        given = list(written), [list(targets)]
        try:
            score: Any = metric.corpus_score(*given, **again)
        except TypeError:  # where resamplings score exactly 0, sacrebleu averages two kinds of numbers, and cannot
            score = metric.corpus_score(*given)
        ci, middle = float(getattr(score, "_ci", -1.0)), float(getattr(score, "_mean", score.score))
        bounds = {"low": middle - ci, "high": middle + ci} if ci >= 0 else {"low": None, "high": None}
        found[name] = {"score": float(score.score), **bounds, "signature": str(metric.get_signature())}
    return found
