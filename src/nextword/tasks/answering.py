"""A run that finds answers in passages, on strings.

    reader = nextword.load("runs/squad")
    reader.predict([("Who won?", "Denver beat Carolina.")])[0].text        # "Denver"; "" where there is none
    reader.predict(questions)                                               # of corpora/questions.py, by their ids

A passage of any length is read, in windows. Where questions may have no answer, "none" is said if it is better than the
best span by more than `threshold`, which was chosen on dev (Devlin et al. 2019, section 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from nextword.core.errors import NextwordError
from nextword.core.types import parts_of, several
from nextword.data.squad import Question
from nextword.lm.embedding import TOGETHER
from nextword.metrics.squad import best_threshold
from nextword.run_folder import RunFolder
from nextword.tasks.asking import Answer, Asked, answers, asked, layout_of, measured_answers
from nextword.tasks.predicting import Classifier, open_headed
from nextword.tasks.span_head import BEST
from nextword.training.device import placed

Progress = Callable[[int, int], None]


def open_answerer(run: RunFolder, device: torch.device, precision: str = "fp32") -> Answerer:
    """Of a run whose files have been checked."""
    headed, tokenizer, settings = open_headed(run, device, precision)
    found = Answerer(headed, tokenizer, settings, 0, str(run.path))
    found.layout = layout_of(run.recipe.phases[-1].batches)
    found.threshold = float(run.manifest.get("result", {}).get("best", {}).get("threshold", settings.threshold))
    return found


class Answerer(Classifier):
    """`predict` questions: pairs of a question and a passage."""

    layout = layout_of({})
    threshold = 0.0

    def __init__(self, headed: Any, tokenizer: Any, settings: Any, length: int = 0, name: str = "") -> None:
        super().__init__(headed, tokenizer, settings, length or self.layout.length, name)

    def predict(  # type: ignore[override]
        self, given: Sequence[Any], progress: Progress | None = None, notes: list[str] | None = None
    ) -> list[Answer]:
        """An answer for each, with its probability among the best spans."""
        text = self.framed([self.question(one, i) for i, one in enumerate(several(given))], notes)
        return answers(text, self.spans(text, progress))

    def question(self, one: Any, number: int) -> Question:
        if isinstance(one, Question):
            return one
        parts = parts_of(one)
        if len(parts) != 2 or not all(isinstance(text, str) for text in parts):
            raise NextwordError(
                f"{self.name or 'This run'} answers questions out of passages, and an example is {str(one)[:80]!r}. "
                "Give (question, passage)."
            )
        return Question(str(number), *parts)

    def framed(self, questions: Sequence[Question], notes: list[str] | None = None) -> Asked:
        found, left = asked(self.network, self.tokenizer, questions, self.layout)
        if left.cut and notes is not None:
            notes.append(f"{left.cut:,} of {len(questions):,} questions are cut to fit: of those the beginning is read")
        return found.judged_by(self.settings.metrics, self.settings.unanswered, self.threshold)

    @torch.no_grad()
    def spans(self, text: Asked, progress: Progress | None = None) -> np.ndarray:
        """(windows, 1 + 3 · BEST) the best spans of each window; windows of like length are read together."""
        out = np.zeros((len(text), 1 + 3 * BEST))
        order, done = self.layout.in_order(text), 0
        while done < len(order):
            rows = max(1, TOGETHER // int(text.lengths[order[done]]))
            chosen = order[done : done + rows]
            batch = placed(self.layout.batch(text, chosen, 0), self.device)
            out[chosen] = self.headed.best(self.headed(batch)).double().cpu().numpy()
            done += len(chosen)
            if progress:
                progress(done, len(order))
        return out

    def measured(self, text: Asked) -> dict[str, float]:
        """The task's metrics on framed questions that have answers."""
        text = replace(text, threshold=self.threshold)
        return measured_answers(text, answers(text, self.spans(text)))

    def chosen_threshold(self, text: Asked) -> dict[str, float]:
        """The threshold that is best for these questions, and the metrics with it; it is used from then on."""
        found = answers(text, self.spans(text))
        golds = [one.answers or () for one in text.questions]
        self.threshold, numbers = best_threshold([one.margin for one in found], [one.best for one in found], golds)
        return {"threshold": self.threshold, **numbers}
