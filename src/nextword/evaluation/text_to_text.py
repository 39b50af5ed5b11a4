"""How well a model does tasks that are text in, text out: what it writes is read as an answer, and measured as usual.

    source   sst2 sentence: a fine film        written   positive   → class 1      right
                                               written   posit      → no class     wrong, and counted

What is none of a task's answers is of no class, and so wrong; where a number is wanted it counts as −1, as in T5. SQuAD
is judged as its authors do: without case, articles and punctuation, against the answer that it is most like.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nextword.core.errors import NextwordError
from nextword.core.types import Decoding
from nextword.evaluation.prompt_tasks import resampled
from nextword.evaluation.translation import AT_ONCE, Progress, compared, evenly, written_from
from nextword.metrics.classification import METRICS, OF_NUMBERS
from nextword.metrics.rouge import bounds, rouge
from nextword.metrics.squad import OF_ANSWERS, overlap, same

MORE = 4  # tokens that may be written beyond the longest of the answers that a task chooses from
MISSING = -1.0  # for what is no number


@dataclass(frozen=True)
class Done:
    """One task: what was written, and the numbers of it, from 0 to 100 (correlations −100 to 100)."""

    task: str
    data: str
    split: str
    pairs: int
    written: list[str]
    scores: dict[str, dict[str, Any]]  # by name: score, low, high, signature
    nats: float  # of the true targets
    tokens: int
    unread: int | None = None  # written texts that are none of the answers; None: any text is one
    longer: int = 0  # sources that are longer than those it was trained on
    shown: list[tuple[str, str, str]] = field(default_factory=list)  # source, target, written

    def as_dict(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "data": self.data,
            "split": self.split,
            "pairs": self.pairs,
            **{name: one["score"] for name, one in self.scores.items()},
            "scores": self.scores,
            "unread": self.unread,
            "longer": self.longer,
            "nats": self.nats,
            "tokens": self.tokens,
            "token_perplexity": math.exp(min(self.nats / max(self.tokens, 1), 700)),
        }


def split_of(member: Any, asked: str) -> str:
    """The split that is asked for, or the first of test, valid and train that a task has."""
    splits = member.corpus.splits
    if asked and asked not in splits:
        raise NextwordError(f"Task {member.task.name} has no split '{asked}'; it has {', '.join(splits)}.")
    return asked or next(name for name in ("test", "valid", "train") if name in splits)


def do_task(
    lm: Any,
    member: Any,
    split: str,
    how: Decoding,
    limit: int = 0,
    shown: int = 0,
    progress: Progress = lambda done, total: None,
) -> Done:
    """Write what becomes of the sources of a split, and measure it."""
    task = member.task
    examples = evenly(list(member.examples(split)), limit)
    sources = [document.source or "" for document, _ in examples]
    targets, golds = [document.text for document, _ in examples], [answers for _, answers in examples]
    most = None
    if task.answers:
        most = MORE + max(len(one) for one in lm.tokenizer.encode_batch(list(task.answers)))
    written = written_from(lm, sources, how, progress, longer=task.longer, most=most)
    scored = [
        one
        for at in range(0, len(sources), AT_ONCE)
        for one in lm.score_many(targets[at : at + AT_ONCE], sources[at : at + AT_ONCE])
    ]
    scores, unread = judged(task, written, golds)
    chosen = sorted({round(i * (len(sources) - 1) / max(shown - 1, 1)) for i in range(shown)})
    return Done(
        task.name,
        member.corpus.name,
        split,
        len(sources),
        written,
        scores,
        math.fsum(one.nats for one in scored),
        sum(one.tokens for one in scored),
        unread,
        lm.past_training(sources),
        [(sources[i], targets[i], written[i]) for i in chosen],
    )


# ------------------------------------------------------------------------------------------------ judging


def judged(
    task: Any, written: Sequence[str], golds: Sequence[Sequence[str]]
) -> tuple[dict[str, dict[str, Any]], int | None]:
    """The task's metrics, and how many texts could not be read as answers."""
    first = [answers[0] for answers in golds]
    if task.answers:
        classes = {text: i for i, text in enumerate(task.answers)}
        said = np.array([classes.get(text.strip(), -1) for text in written])
        gold = np.array([classes[text] for text in first])
        return {name: _counted(name, gold, said) for name in task.metrics}, int((said < 0).sum())
    if any(name in OF_NUMBERS for name in task.metrics):
        numbers = [_number(text) for text in written]
        said, gold = np.array([MISSING if x is None else x for x in numbers]), np.array([float(x) for x in first])
        return {name: _counted(name, gold, said) for name in task.metrics}, sum(x is None for x in numbers)
    found: dict[str, dict[str, Any]] = {}
    if any(name.startswith("rouge") for name in task.metrics):
        found |= rouge(written, first)
    if any(name in ("bleu", "bleu_lowercase", "chrf") for name in task.metrics):
        found |= compared(written, first)
    for name, like in ((OF_ANSWERS[0], overlap), (OF_ANSWERS[1], same)):
        if name in task.metrics:
            found[name] = _best(like, written, golds)
    return {name: found[name] for name in task.metrics if name in found}, None


def _counted(name: str, gold: np.ndarray, said: np.ndarray) -> dict[str, Any]:
    measured = resampled(METRICS[name], gold.tolist(), said.tolist())
    signature = f"{name} × 100, of {len(gold):,}"
    return {
        "score": 100 * measured.value,
        "low": 100 * measured.low,
        "high": 100 * measured.high,
        "signature": signature,
    }


def _number(text: str) -> float | None:
    try:
        value = float(text.strip())
    except ValueError:
        return None
    return value if math.isfinite(value) else None


# ------------------------------------------------------------------------------------------------ answers of SQuAD


def _best(like: Callable[[str, str], float], written: Sequence[str], golds: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Against the answer that it is most like."""
    values = 100 * np.array([max(like(text, one) for one in some) for text, some in zip(written, golds, strict=True)])
    low, high = bounds(values)
    signature = f"without case, articles and punctuation, mean of {len(values):,}"
    return {"score": float(values.mean()), "low": low, "high": high, "signature": signature}
