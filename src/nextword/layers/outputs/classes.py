"""Class-based softmax: p(w | h) = p(class of w | h) · p(w | class of w, h).

Goodman, "Classes for fast maximum entropy training" (2001); Mikolov et al., "Extensions of recurrent neural network
language model" (2011). With √V classes of √V words a prediction costs 2√V products instead of V, and is still exact.

Classes are made from the training text: by frequency, so that each has the same share of the text (`frequency`), or of
the square roots of its words' counts (`root`, as rnnlm 0.4: fewer words in the class of the rare ones); or by the words
beside which a word stands (`brown`, see brown.py). Words of a class lie side by side in the matrix.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.contract import IGNORE
from nextword.contract_errors import NextwordError
from nextword.layers.outputs import grouped
from nextword.layers.outputs.prepared import Prepared, fill, frequencies, ignoring, not_recorded
from nextword.layers.softmax import linear_cross_entropy, total_cross_entropy

POWERS = {"frequency": 1.0, "root": 0.5}
WAYS = (*POWERS, "brown")


class Classes(Prepared):
    """`classes` of 0 means √V."""

    classes_of: Tensor  # (V,) id → class
    place: Tensor  # (V,) id → row of the matrix
    first: Tensor  # (C,) class → its first row
    sizes: Tensor  # (C,) class → how many words

    def __init__(self, width: int, size: int, classes: int = 0, by: str = "frequency", sweeps: int = 5) -> None:
        super().__init__(size)
        self.classes = classes or max(1, round(math.sqrt(size)))
        if not 1 <= self.classes <= size:
            raise NextwordError(
                f"The readout is to have {classes} classes, but there are {size} words, and each class needs one: set "
                f"classes to at most {size}, or leave it out for {round(math.sqrt(size))}."
            )
        if by not in WAYS:
            raise NextwordError(f"Classes are made by {', '.join(WAYS)}; the readout says by = {by!r}.")
        self.by, self.sweeps = by, sweeps
        self.class_weight = nn.Parameter(torch.empty(self.classes, width))
        self.class_bias = nn.Parameter(torch.empty(self.classes))
        self.word_weight = nn.Parameter(torch.empty(size, width))  # in the order of classes, as `place` says
        self.word_bias = nn.Parameter(torch.empty(size))
        fill(self.class_weight, self.class_bias)
        fill(self.word_weight, self.word_bias)
        self.register_buffer("classes_of", torch.from_numpy(by_mass(np.ones(size), self.classes)))
        self.arrange()

    def learn(self, ids: np.ndarray) -> None:
        counts = frequencies(ids, self.size)
        found = by_mass(counts ** POWERS.get(self.by, 1.0), self.classes)
        if self.by == "brown":
            from nextword.layers.outputs.brown import exchange

            found = exchange(ids, found, self.classes, self.sweeps)
        self.classes_of.copy_(torch.from_numpy(found))

    def arrange(self) -> None:
        order = torch.argsort(self.classes_of, stable=True)
        place = torch.empty_like(order)
        place[order] = torch.arange(self.size, device=order.device)
        sizes = torch.bincount(self.classes_of, minlength=self.classes)
        self.keep("place", place)
        self.keep("sizes", sizes)
        self.keep("first", sizes.cumsum(0) - sizes)
        self.split = sizes.tolist()

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        return ignoring(self._nll, h, targets)

    def total(self, h: Tensor, targets: Tensor) -> Tensor:
        """The sum, whose gradients are computed along with it."""
        if not torch.is_grad_enabled():
            return self.nll(h, targets).sum()
        rows = (targets != IGNORE).nonzero().squeeze(1)
        if len(rows) < len(targets):
            h, targets = h[rows], targets[rows]
        chosen, words = self._chosen(targets)
        return total_cross_entropy(h, self.class_weight, self.class_bias, chosen) + grouped.total(h, *words)

    def _nll(self, h: Tensor, targets: Tensor) -> Tensor:
        chosen, words = self._chosen(targets)
        return linear_cross_entropy(h, self.class_weight, self.class_bias, chosen) + grouped.each(h, *words)

    def _chosen(self, targets: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor, list[int], Tensor, Tensor]]:
        """Each target's class; and all classes' words, with each target's place among those of its class."""
        not_recorded("classes", targets.device)
        chosen = self.classes_of[targets]
        within = self.place[targets] - self.first[chosen]
        return chosen, (self.word_weight, self.word_bias, self.split, chosen, within)

    def log_probs(self, h: Tensor) -> Tensor:
        of_class = F.log_softmax(F.linear(h, self.class_weight, self.class_bias), -1)
        logits = F.linear(h, self.word_weight, self.word_bias)
        of_word = torch.cat([F.log_softmax(z, -1) for z in logits.split(self.split, -1)], -1)
        return (of_word + of_class.repeat_interleave(self.sizes, -1)).index_select(-1, self.place)


def by_mass(mass: np.ndarray, classes: int) -> np.ndarray:
    """id → class, the heaviest words first, each class with about the same share of the mass and at least one word.

    A word's class is the share of the mass before it, in units of a class (as in rnnlm); but a class is never left out,
    however heavy a single word, and enough words are left at the end for the classes that are.
    """
    order = np.argsort(-mass, kind="stable")
    total = mass.sum()
    share = np.cumsum(mass[order]) / total if total else np.arange(1, len(mass) + 1) / len(mass)
    begun = np.concatenate([[0.0], share[:-1]])
    at = np.arange(len(mass))
    found = np.floor(begun * classes + 1e-9).astype(np.int64)
    found = at + np.minimum.accumulate(found - at)  # one step at a time
    found = np.clip(np.maximum(found, classes - (len(mass) - at)), 0, classes - 1)
    result = np.empty(len(mass), np.int64)
    result[order] = found
    return result
