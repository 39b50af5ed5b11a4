"""A run that writes its labels in words (heads/worded.py), on strings: `predict` and `explain` as of any classifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from nextword.batching.examples import Bucketed
from nextword.run_folder import RunFolder
from nextword.tasks.attribution import attributed, of_words
from nextword.tasks.predicting import Classifier, Explained, open_headed
from nextword.tasks.worded import SECOND, TEXT, framed_words, sources
from nextword.training.device import placed


def open_writer(run: RunFolder, device: torch.device, precision: str = "fp32") -> Writer:
    """Of a run whose files have been checked."""
    headed, tokenizer, settings = open_headed(run, device, precision)
    length = int(run.recipe.phases[-1].batches.get("length", Bucketed.length))
    return Writer(headed, tokenizer, settings, length, str(run.path))


class Writer(Classifier):
    """Of a run that writes its labels (heads/worded.py): texts are read in the words of the task around them."""

    def said(
        self,
        texts: Sequence[str],
        seconds: Sequence[str] | None = None,
        progress: Callable[[int, int], None] | None = None,
        notes: list[str] | None = None,
    ) -> np.ndarray:
        found, cut = framed_words(self.tokenizer, sources(self.settings.asks, texts, seconds), None, self.length)
        self.tell_cut(cut, len(texts), notes)
        return self.said_of(found, progress)

    def _explained(self, texts: tuple[str, ...], label: str) -> Explained:
        """Words of the task around the texts stay as they are; those of the texts fade in.

        Of numbers it is the mean by the strings' shares that is explained (heads/numbered.py), in the labels' units.
        """
        second = [texts[1]] if len(texts) > 1 else None
        source = sources(self.settings.asks, [texts[0]], second)[0]
        example, _ = framed_words(self.tokenizer, [source], None, self.length)
        encoding = self.tokenizer.encode(source)
        words, marked = tuple(text.split() for text in texts), sources(self.settings.asks, [TEXT], second and [SECOND])
        whose, at = np.full(len(source.split()) + 1, -1), 0
        for word in marked[0].split():
            i = next((k for k, mark in enumerate((TEXT, SECOND)) if mark in word), None)
            size = 1 if i is None else len(words[i])
            whose[at : at + size] = -1 if i is None else i
            at += size
        owner = whose[np.minimum(encoding.words[: len(example.ids) - 1], len(whose) - 1)]
        own = np.append(owner >= 0, False)
        numbers = bool(self.settings.numbers)
        scale, base = (self.settings.spread, self.settings.center) if numbers else (1.0, 0.0)
        output = 0 if numbers else list(self.settings.labels).index(label)
        found = attributed(self.headed, example, own, output, partial(placed, device=self.device))
        weights = []
        for i, some in enumerate(words):
            mine = np.flatnonzero(owner == i)
            inside = encoding.words[mine] - np.flatnonzero(whose == i)[:1] if len(mine) else mine
            weights.append(of_words(scale * found.tokens[mine], inside, len(some)))
        said, blank = (scale * one + base for one in (found.said, found.blank))
        return Explained(label, words, tuple(weights), said, blank, scale * found.gap)
