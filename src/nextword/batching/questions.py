"""Questions with their passages, framed: a passage that is too long is read in windows that overlap.

    [CLS] who won ? [SEP] p₀ … p₂₉₉ [SEP]          one window of a question
    [CLS] who won ? [SEP] p₁₂₈ … p₄₂₇ [SEP]        the next, `stride` tokens on

An answer begins at one place of a window and ends at one. Place 0 is none: the answer is not in this window. Place 1 is
the window's first token of the passage. A batch has the flat position of every place (B, W), −1 beyond the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from nextword.batching.examples import Bucketed, gathered
from nextword.batching.unseen import Unseen
from nextword.contract import Batch
from nextword.contract_errors import NextwordError
from nextword.corpora.questions import Question


@dataclass(frozen=True)
class Asked:
    """Windows of questions; an example is a window."""

    ids: np.ndarray  # (N,) of all windows
    starts: np.ndarray  # (windows + 1,) where each begins
    speaks: np.ndarray  # (windows,) the token that stands for "no answer"
    passage: np.ndarray  # (windows, 2) where the passage lies in each
    targets: np.ndarray  # (windows, 2) places where the answer begins and ends; 0, 0: none
    whose: np.ndarray  # (windows,) the question, in `questions`
    begins: np.ndarray  # (windows,) where the characters of the window's first token stand in `characters`
    characters: np.ndarray = field(repr=False)  # (M, 2) the characters that each token of a passage stands for
    questions: tuple[Question, ...] = field(default=(), repr=False)
    segments: np.ndarray | None = None  # (N,)
    packs: bool = False
    metrics: tuple[str, ...] = ()
    some_without: bool = False  # some questions of the task have no answer
    threshold: float = 0.0  # how much better none has to be than the best answer
    unseen: Unseen | None = field(default=None, repr=False)
    bytes: int = field(default=0, repr=False)

    each = 1  # frame an example

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def units(self) -> int:
        """Questions."""
        return len(self.questions)

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    @property
    def labels(self) -> np.ndarray:
        return self.targets

    def first(self, tokens: int | None) -> Asked:
        """The windows of the first so many tokens, at least one; None: all."""
        if tokens is None or tokens >= len(self.ids):
            return self
        return self.take(np.arange(max(1, int(np.searchsorted(self.starts, tokens, side="right")) - 1)))

    def take(self, chosen: np.ndarray) -> Asked:
        """These windows, in this order; questions of which none is left are left out."""
        tokens, starts = gathered(self.starts, chosen)
        kept, whose = np.unique(self.whose[chosen], return_inverse=True)
        return replace(
            self,
            ids=self.ids[tokens],
            starts=starts,
            speaks=self.speaks[chosen],
            passage=self.passage[chosen],
            targets=self.targets[chosen],
            whose=whose.reshape(-1),
            begins=self.begins[chosen],
            questions=tuple(self.questions[i] for i in kept.tolist()),
            segments=None if self.segments is None else self.segments[tokens],
        )

    def take_units(self, chosen: np.ndarray) -> Asked:
        """All windows of these questions."""
        return self.take(np.flatnonzero(np.isin(self.whose, chosen)))

    def judged_by(self, metrics: Sequence[str], some_without: bool, threshold: float) -> Asked:
        return replace(self, metrics=tuple(metrics), some_without=some_without, threshold=float(threshold))

    def text(self, window: int, begin: int, end: int) -> str:
        """What stands in the passage from one place of a window to another, without spaces around it."""
        at = self.begins[window] - 1
        question = self.questions[self.whose[window]]
        return question.context[self.characters[at + begin, 0] : self.characters[at + end, 1]].strip()


@dataclass(frozen=True)
class Passages(Bucketed):
    """`rows` windows a batch, of at most `length` tokens; the next begins `stride` tokens of the passage further on.

    A question is cut after `question` tokens, and never takes more than half of a window. Where windows are short, the
    stride is half of what they hold of the passage.
    """

    length: int = 384
    stride: int = 128
    question: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("stride", "question"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise NextwordError(f"batches: {name} = {value!r} must be a whole number of at least 1.")

    def batch(self, text: Any, chosen: np.ndarray, epoch: int) -> Batch:
        batch = super().batch(text, chosen, epoch)
        assert batch.at is not None
        none = batch.at.numpy()  # flat
        begins = none - text.speaks[chosen] + text.passage[chosen, 0]
        sizes = text.passage[chosen, 1] - text.passage[chosen, 0]
        places = np.arange(int(sizes.max()))
        flat = np.where(places < sizes[:, None], begins[:, None] + places, -1)
        at = torch.from_numpy(np.concatenate((none[:, None], flat), 1))
        return Batch(batch.inputs, batch.targets, fresh=True, epoch=epoch, at=at, predicted=len(chosen))
