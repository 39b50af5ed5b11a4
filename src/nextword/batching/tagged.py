"""Sentences with a tag for every word, framed: tokens end to end, words end to end, and batches of like length.

    tokens    [CLS] Wash ##ing ##ton spoke [SEP] [CLS] …        starts        0 6 …      one frame after the other
    words           0                1                          words         1 4 …      its token within the frame
    tags            S-LOC            O                          word_starts   0 2 …

A batch has (B, W) tags, padded with IGNORE, and the flat position of each word's token; None where rows are the words
themselves. Letters and vectors in context go with words, for the networks that read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from nextword.batching.examples import Bucketed, gathered
from nextword.batching.unseen import Unseen
from nextword.contract import IGNORE, Batch
from nextword.layers.characters import PADDING


@dataclass(frozen=True)
class TaggedExamples:
    ids: np.ndarray  # (N,) of all frames
    starts: np.ndarray  # (sentences + 1,) where each frame begins
    words: np.ndarray  # (M,) the token of each word, counted from its frame's beginning; −1: it was cut off
    word_starts: np.ndarray  # (sentences + 1,)
    tags: np.ndarray  # (M,) int64: places in `names`
    names: tuple[str, ...] = ()  # of all tags; those that no training sentence has come last
    spans: bool = False  # tags are those of spans
    segments: np.ndarray | None = None  # (N,)
    letters: Any = None  # (M, L) array, or what is indexed as one (untagged.py)
    features: np.ndarray | None = field(default=None, repr=False)  # (layers, M, D) float16, perhaps on disk
    packs: bool = False  # the network that they are framed for reads texts end to end
    metrics: tuple[str, ...] = ()
    unseen: Unseen | None = field(default=None, repr=False)  # words without an id, where the network reads letters
    bytes: int = field(default=0, repr=False)  # of text: not known, so nobody speaks of bits per byte

    each = 1  # frame an example

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    @property
    def speaks(self) -> np.ndarray:
        """No token speaks for the whole; with 0 a batch says where frames begin."""
        return np.zeros(len(self), np.int64)

    @property
    def labels(self) -> np.ndarray:
        return self.speaks

    @cached_property
    def own(self) -> bool:
        """Tokens are the words themselves."""
        sizes = np.diff(self.word_starts)
        places = np.arange(len(self.words)) - np.repeat(self.word_starts[:-1], sizes)
        return np.array_equal(self.starts, self.word_starts) and np.array_equal(self.words, places)

    def of(self, sentence: int) -> np.ndarray:
        """The tags of one sentence."""
        return self.tags[self.word_starts[sentence] : self.word_starts[sentence + 1]]

    def first(self, tokens: int | None) -> TaggedExamples:
        """The sentences of the first so many tokens, at least one; None: all."""
        if tokens is None or tokens >= len(self.ids):
            return self
        return self.take(np.arange(max(1, int(np.searchsorted(self.starts, tokens, side="right")) - 1)))

    def take(self, chosen: np.ndarray) -> TaggedExamples:
        """These sentences, in this order."""
        tokens, starts = gathered(self.starts, chosen)
        words, word_starts = gathered(self.word_starts, chosen)
        return replace(
            self,
            ids=self.ids[tokens],
            starts=starts,
            words=self.words[words],
            word_starts=word_starts,
            tags=self.tags[words],
            segments=None if self.segments is None else self.segments[tokens],
            letters=None if self.letters is None else self.letters[words],
            features=None if self.features is None else self.features[:, words],
        )


class Sentences(Bucketed):
    """`rows` sentences a batch; else as examples of a task are laid out."""

    def batch(self, text: Any, chosen: np.ndarray, epoch: int) -> Batch:
        batch = super().batch(text, chosen, epoch)
        taken, starts = gathered(text.word_starts, chosen)
        sizes = np.diff(starts)
        there = np.arange(max(1, int(sizes.max()))) < sizes[:, None]  # (B, W)
        inputs = batch.inputs
        if text.letters is not None:
            inputs.characters = torch.from_numpy(_spread(_trimmed(text.letters[taken]), there, PADDING))
        if text.features is not None:
            layers = [_spread(np.asarray(layer[taken]), there, 0) for layer in text.features]
            inputs.features = torch.from_numpy(np.stack(layers))
        at = None
        if text.packs or not text.own:
            assert batch.at is not None
            token = text.words[taken]
            flat = np.repeat(batch.at.numpy(), sizes) + token
            at = torch.from_numpy(_spread(np.where(token < 0, -1, flat), there, -1))
        tags = torch.from_numpy(_spread(text.tags[taken], there, IGNORE))
        return Batch(inputs, tags, fresh=True, epoch=epoch, at=at, predicted=len(taken))


def _spread(values: np.ndarray, there: np.ndarray, padding: int) -> np.ndarray:
    """(M, …) → (B, W, …)."""
    rows = np.full((*there.shape, *values.shape[1:]), padding, values.dtype)
    rows[there] = values
    return rows


def _trimmed(letters: np.ndarray) -> np.ndarray:
    """Without the columns at the end that no word of these reaches; three are always kept."""
    used = np.flatnonzero((letters != PADDING).any(0))
    return letters[:, : max(3, int(used[-1]) + 1 if len(used) else 0)]
