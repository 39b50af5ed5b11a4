"""Readouts for vocabularies that are spelled or only partly predicted.

`CharSoftmax` computes output vectors from spellings (Jozefowicz et al., "Exploring the limits of language modeling",
2016):

    z_w = h · (CNN(characters of w) + M c_w) + b_w

There is no output matrix, so the model grows with the characters and not with the words, and any word has a vector.
Words that look alike would be confused, hence the `correction`: a short vector c_w per word, mapped to the width of h
by M. In evaluation, all vectors are computed once and cached until the weights change (layers/char_cnn.py). In training
they are computed at each step: all of them, or with `samples` those of a sampled softmax.

`PartialReadout` predicts the first words of a vocabulary, for a network that reads more words than it can predict:

    ids    0 … written − 1   are predicted
           written … V − 1   count as the unknown word as targets, and have probability 0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import InvalidSetting
from nextword.core.types import Vocabulary
from nextword.layers.char_cnn import ELMO, CharacterCNN, WordVectors
from nextword.layers.output.base import Readout
from nextword.layers.output.softmax import LinearReadout


class CorrectedVectors(WordVectors):
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
    """`correction` is the width of c_w, 0 for none; the other arguments are those of the CNN."""

    def __init__(
        self,
        width: int,
        vocabulary: Vocabulary,
        filters: Sequence[Sequence[int]] = ELMO,
        character_width: int = 16,
        highway: int = 2,
        max_word_length: int = 50,
        correction: int = 0,
    ) -> None:
        super().__init__()
        if correction < 0:
            raise InvalidSetting(
                f"readout: correction = {correction} must be the width of a vector, or 0 for none.",
                key="model.readout.correction",
                value=correction,
            )
        self.precision = "fp32"
        cnn = CharacterCNN(width, vocabulary, filters, character_width, highway, max_word_length)
        self.vectors: WordVectors = CorrectedVectors(cnn, width, correction) if correction else cnn
        self.bias = nn.Parameter(torch.zeros(vocabulary.size))

    @property
    def matrix(self) -> Tensor:
        return self.vectors.table()

    def vectors_of(self, ids: Tensor) -> Tensor:
        return self.vectors.lookup(ids)


class PartialReadout(Readout):
    """`inner` predicts the first `written` of `size` words; the others count as `unknown`."""

    def __init__(self, inner: Any, written: int, size: int, unknown: int) -> None:
        super().__init__()
        self.inner, self.written, self.beyond, self.unknown = inner, written, size - written, unknown

    @property
    def output_bias(self) -> Tensor | None:
        return None if self.beyond else self.inner.output_bias

    def fit_vocabulary(self, ids: np.ndarray) -> None:
        self.inner.fit_vocabulary(np.where(ids < self.written, ids, self.unknown))

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        return self.inner.nll(h, self.replace_unwritten(targets))

    def total(self, h: Tensor, targets: Tensor) -> Tensor:
        return self.inner.total(h, self.replace_unwritten(targets))

    def log_probs(self, h: Tensor) -> Tensor:
        return F.pad(self.inner.log_probs(h), (0, self.beyond), value=float("-inf"))

    def replace_unwritten(self, targets: Tensor) -> Tensor:
        """The targets, with the unknown word for those that are not predicted."""
        return targets.masked_fill(targets >= self.written, self.unknown)  # IGNORE is below all ids
