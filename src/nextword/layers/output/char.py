"""Softmax over words by their letters: z_w = h · (CNN(characters of w) + M c_w) + b_w.

Jozefowicz et al., "Exploring the limits of language modeling" (2016). The output has no matrix: vectors are computed
from spellings, so it grows with the letters, not with the words, and a word never seen has a vector too. Words that
look alike would be confused, hence the `correction`: a short vector c_w for each word, led to the width of h by M.

In evaluation all vectors are computed once and kept until the weights change (see characters.py). In training they are
all computed at each step, or only those needed: kind = "spelled" with `samples` trains by sampled softmax.

A readout over the first words of a vocabulary: a network may read more words than it can write.

ids    0 … written − 1   are predicted
       written … V − 1   count as the unknown word where they are to be predicted, and are never written
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import NextwordError
from nextword.core.types import Vocabulary
from nextword.layers.char_cnn import ELMO, CharacterCNN, WordVectors
from nextword.layers.output.base import Readout
from nextword.layers.output.softmax import LinearReadout


class Corrected(WordVectors):
    """CNN(characters of w) + M c_w."""

    def __init__(self, cnn: CharacterCNN, width: int, correction: int) -> None:
        super().__init__()
        self.cnn, self.size, self.held = cnn, cnn.size, cnn.held
        self.own = nn.Embedding(cnn.size, correction)
        nn.init.normal_(self.own.weight, std=0.1)
        self.lead = nn.Linear(correction, width, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.cnn(ids) + self.lead(self.own(ids))


class CharSoftmax(LinearReadout):
    """`correction` is the width of c_w; 0 for none. The rest are the CNN's sizes."""

    def __init__(
        self,
        width: int,
        vocabulary: Vocabulary,
        filters: Sequence[Sequence[int]] = ELMO,
        characters: int = 16,
        highway: int = 2,
        longest: int = 50,
        correction: int = 0,
    ) -> None:
        super().__init__()
        if correction < 0:
            raise NextwordError(f"correction = {correction}: it is the width of a word's own vector; 0 for none.")
        self.precision = "fp32"
        cnn = CharacterCNN(width, vocabulary, filters, characters, highway, longest)
        self.vectors: WordVectors = Corrected(cnn, width, correction) if correction else cnn
        self.bias = nn.Parameter(torch.zeros(vocabulary.size))

    @property
    def matrix(self) -> Tensor:
        return self.vectors.table()

    def vectors_of(self, ids: Tensor) -> Tensor:
        """The vectors of these words alone."""
        return self.vectors.some(ids)


class PartialReadout(Readout):
    """`inner` is over `written` words of `size`; the others count as `unknown`."""

    def __init__(self, inner: Any, written: int, size: int, unknown: int) -> None:
        super().__init__()
        self.inner, self.written, self.beyond, self.unknown = inner, written, size - written, unknown

    @property
    def output_bias(self) -> Tensor | None:
        return None if self.beyond else self.inner.output_bias

    def fit_vocabulary(self, ids: np.ndarray) -> None:
        self.inner.fit_vocabulary(np.where(ids < self.written, ids, self.unknown))

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        return self.inner.nll(h, self._known(targets))

    def total(self, h: Tensor, targets: Tensor) -> Tensor:
        return self.inner.total(h, self._known(targets))

    def log_probs(self, h: Tensor) -> Tensor:
        return F.pad(self.inner.log_probs(h), (0, self.beyond), value=float("-inf"))

    def _known(self, targets: Tensor) -> Tensor:
        return targets.masked_fill(targets >= self.written, self.unknown)  # IGNORE is below all ids
