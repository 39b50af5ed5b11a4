"""Class-based softmax: p(w | h) = p(class of w | h) · p(w | class of w, h).

Goodman, "Classes for fast maximum entropy training" (2001); Mikolov et al., "Extensions of recurrent neural network
language model" (2011). With √V classes of √V words a prediction costs 2√V products instead of V, and is still exact.
Words of a class are adjacent rows of the matrix.

Classes come from the training text, in one of three ways:

    frequency   each class has the same share of the text root        each class has the same share of the square roots
    of the counts, as in rnnlm 0.4: fewer rare words per class brown       words are alike that occur next to the same
    classes of words (Brown et al. 1992), see `exchange`
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nextword.core.errors import InvalidSetting
from nextword.core.jit import jit
from nextword.core.types import IGNORE
from nextword.layers.output.base import (
    CountedReadout,
    count_ids,
    init_like_linear,
    nll_without_ignored,
    refuse_graph_capture,
)
from nextword.layers.output.softmax import linear_cross_entropy, total_cross_entropy

# ------------------------------------------------------------------------------------------------ Brown classes

# Brown et al., "Class-based n-gram models of natural language" (1992) look for the classes that make the text most
# likely under p(w' | w) = p(class' | class) · p(w' | class'), that is, whose neighbors tell most about each other:
#
#     F = Σ_{a,b} f(N(a, b)) − Σ_a f(N(a, ·)) − Σ_b f(N(·, b))      f(x) = x log x,  N(a, b): a word of a, then one of b
#
# Found here by exchange (Kneser & Ney 1993; Martin, Liermann & Ney 1998): each word in turn, the most frequent first,
# moves to where F is largest. F never falls. Trying all C classes for a word costs C times the number of classes that
# it occurs next to: five sweeps over the 10,000 words of PTB and 100 classes take about a second.

TABLE = 1 << 16  # x log x is looked up below this


def exchange(ids: np.ndarray, start: np.ndarray, classes: int, sweeps: int = 5) -> np.ndarray:
    """id → class, starting from given classes. Sweeps end early when no word moves. No class becomes empty."""
    size = len(start)
    after = bigrams(ids, size)
    before = tuple(np.ascontiguousarray(x) for x in _reverse_bigrams(*after))
    own = start.astype(np.int64)
    matrix = _class_bigrams(*after, own, classes)
    x = np.arange(TABLE, dtype=np.float64)
    x[1:] *= np.log(x[1:])
    frequent = np.argsort(-np.bincount(np.asarray(ids, np.int64), minlength=size), kind="stable")
    for _ in range(sweeps):
        if not _sweep(*after, *before, own, matrix, x, frequent):
            break
    return own


def bigrams(ids: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which words follow each word, and how often: starts (V+1,), words, counts."""
    ids = np.asarray(ids, np.int64)
    keys, counts = np.unique(ids[:-1] * size + ids[1:], return_counts=True)
    begins = np.searchsorted(keys, np.arange(size + 1) * size)
    return begins, keys % size, counts


def _reverse_bigrams(
    begins: np.ndarray, words: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which words precede each word, and how often."""
    size = len(begins) - 1
    left = np.repeat(np.arange(size), np.diff(begins))
    order = np.argsort(words, kind="stable")
    return np.searchsorted(words[order], np.arange(size + 1)), left[order], counts[order]


def _class_bigrams(
    begins: np.ndarray, words: np.ndarray, counts: np.ndarray, own: np.ndarray, classes: int
) -> np.ndarray:
    left = np.repeat(np.arange(len(own)), np.diff(begins))
    keys = own[left] * classes + own[words]
    return np.bincount(keys, counts, minlength=classes * classes).astype(np.int64).reshape(classes, classes)


def gain(ids: np.ndarray, own: np.ndarray, classes: int) -> float:
    """F, computed from scratch: what `exchange` increases."""
    n = _class_bigrams(*bigrams(ids, len(own)), own, classes)

    def f(x: Any) -> float:
        return float((x * np.log(np.maximum(x, 1))).sum())

    return f(n) - f(n.sum(0)) - f(n.sum(1))


@jit
def _f(x: int, table: np.ndarray) -> float:
    return table[x] if x < len(table) else x * np.log(x)


@jit
def _count_neighbors(
    word: int, begins: np.ndarray, words: np.ndarray, counts: np.ndarray, own: np.ndarray, tally: np.ndarray
) -> int:
    """How often each class occurs next to the word, not counting the word itself; returns how often that does."""
    itself = 0
    for i in range(begins[word], begins[word + 1]):
        if words[i] == word:
            itself += counts[i]
        else:
            tally[own[words[i]]] += counts[i]
    return itself


@jit
def _sweep(
    begins: np.ndarray,
    words: np.ndarray,
    counts: np.ndarray,
    begins_before: np.ndarray,
    words_before: np.ndarray,
    counts_before: np.ndarray,
    own: np.ndarray,
    matrix: np.ndarray,
    table: np.ndarray,
    order: np.ndarray,
) -> int:
    """Move each word to its best class; returns how many moved."""
    classes = len(matrix)
    members = np.zeros(classes, np.int64)
    for c in own:
        members[c] += 1
    lefts, rights = matrix.sum(1), matrix.sum(0)
    right, left = np.zeros(classes, np.int64), np.zeros(classes, np.int64)
    beside = np.zeros(classes, np.int64)
    moved = 0
    for word in order:
        old = own[word]
        if members[old] == 1:
            continue
        right[:] = 0
        left[:] = 0
        itself = _count_neighbors(word, begins, words, counts, own, right)
        _count_neighbors(word, begins_before, words_before, counts_before, own, left)
        out, into = right.sum() + itself, left.sum() + itself
        if out + into == 0:
            continue
        n = 0
        for c in range(classes):
            if right[c] or left[c]:
                beside[n] = c
                n += 1
        _move(matrix, lefts, rights, old, right, left, itself, out, into, -1)
        best, most = old, -np.inf
        for c in range(classes):
            delta = _f(lefts[c], table) - _f(lefts[c] + out, table) + _f(rights[c], table) - _f(rights[c] + into, table)
            for i in range(n):
                d = beside[i]
                if d == c:
                    continue
                if right[d]:
                    delta += _f(matrix[c, d] + right[d], table) - _f(matrix[c, d], table)
                if left[d]:
                    delta += _f(matrix[d, c] + left[d], table) - _f(matrix[d, c], table)
            delta += _f(matrix[c, c] + right[c] + left[c] + itself, table) - _f(matrix[c, c], table)
            if delta > most + 1e-9 or (c == old and delta >= most - 1e-9):  # among equals, stay
                best, most = c, delta
        _move(matrix, lefts, rights, best, right, left, itself, out, into, 1)
        if best != old:
            own[word] = best
            members[old] -= 1
            members[best] += 1
            moved += 1
    return moved


@jit
def _move(
    matrix: np.ndarray,
    lefts: np.ndarray,
    rights: np.ndarray,
    c: int,
    right: np.ndarray,
    left: np.ndarray,
    itself: int,
    out: int,
    into: int,
    sign: int,
) -> None:
    """Add a word with these neighbors to class c (sign 1), or remove it (sign −1)."""
    for d in range(len(matrix)):
        matrix[c, d] += sign * right[d]
        matrix[d, c] += sign * left[d]
    matrix[c, c] += sign * itself
    lefts[c] += sign * out
    rights[c] += sign * into


# ------------------------------------------------------------------------------------------------ many small softmaxes

# Each row of h is read by one group of words, whose vectors are adjacent:
#
#     rows sorted by group      h₀ h₀ h₀ │ h₂ │ h₃ h₃
#     blocks of the matrix      W₀       │ W₁ │ W₂ │ W₃ …        a row has the logits of its own block only
#
# `grouped_nll` has any gradient. `grouped_total` computes the gradient along with the sum, block by block, into one
# matrix: a third less time for many words, and no graph of hundreds of nodes.


def grouped_nll(h: Tensor, weight: Tensor, bias: Tensor, sizes: list[int], groups: Tensor, within: Tensor) -> Tensor:
    """−log softmax of row n's target `within` its group, of `sizes` words: (N, D), (V, D), (V,), …, (N,) → (N,)."""
    order = groups.argsort()
    counts = torch.bincount(groups, minlength=len(sizes)).tolist()
    parts = zip(
        h[order].split(counts), weight.split(sizes), bias.split(sizes), within[order].split(counts), strict=True
    )
    found = [F.cross_entropy(F.linear(x, w, b), t, reduction="none") for x, w, b, t in parts if len(x)]
    return torch.cat(found)[order.argsort()]


def grouped_total(h: Tensor, weight: Tensor, bias: Tensor, sizes: list[int], groups: Tensor, within: Tensor) -> Tensor:
    """The sum of `grouped_nll`."""
    return _Total.apply(h, weight, bias, sizes, groups, within)


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, sizes: list[int], groups: Tensor, within: Tensor
    ) -> Tensor:
        with torch.autocast(h.device.type, enabled=False):
            order = groups.argsort()
            counts = torch.bincount(groups, minlength=len(sizes)).tolist()
            x, target = h[order].to(weight.dtype), within[order].unsqueeze(1)
            grad_x, grad_weight, grad_bias = torch.empty_like(x), torch.zeros_like(weight), torch.zeros_like(bias)
            nats, row, word, minus = x.new_zeros(()), 0, 0, x.new_full((1, 1), -1.0)
            for count, size in zip(counts, sizes, strict=True):
                if count:
                    rows, words = slice(row, row + count), slice(word, word + size)
                    z = torch.addmm(bias[words], x[rows], weight[words].t())
                    log_p = torch.log_softmax(z, 1)
                    nats -= log_p.gather(1, target[rows]).sum()
                    p = log_p.exp_().scatter_add_(1, target[rows], minus.expand(count, 1))
                    torch.mm(p, weight[words], out=grad_x[rows])
                    torch.mm(p.t(), x[rows], out=grad_weight[words])
                    torch.sum(p, 0, out=grad_bias[words])
                row, word = row + count, word + size
            grad_h = torch.empty_like(grad_x)
            grad_h[order] = grad_x
        ctx.grads = [grad_h.to(h.dtype), grad_weight, grad_bias]
        return nats

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        grads, ctx.grads = ctx.grads, None
        if grads is None:
            raise RuntimeError(
                "The total was differentiated a second time, but its gradient is used up the first. Use nll(…).sum()."
            )
        return *(g.mul_(grad) for g in grads), None, None, None


# ------------------------------------------------------------------------------------------------ the readout

POWERS = {"frequency": 1.0, "root": 0.5}
WAYS = (*POWERS, "brown")


class ClassSoftmax(CountedReadout):
    """`classes` of 0 means √V."""

    classes_of: Tensor  # (V,) id → class
    place: Tensor  # (V,) id → row of the matrix
    first: Tensor  # (C,) class → its first row
    sizes: Tensor  # (C,) class → how many words

    def __init__(self, width: int, size: int, classes: int = 0, by: str = "frequency", sweeps: int = 5) -> None:
        super().__init__(size)
        self.classes = classes or max(1, round(math.sqrt(size)))
        if not 1 <= self.classes <= size:
            raise InvalidSetting(
                f"readout: classes = {classes}, but there are only {size} words. Set at most {size}, or leave it out "
                f"for {round(math.sqrt(size))}.",
                key="model.readout.classes",
                value=classes,
            )
        if by not in WAYS:
            raise InvalidSetting(
                f"readout: by = {by!r} is unknown. Use {' or '.join(WAYS)}.", key="model.readout.by", value=by
            )
        self.by, self.sweeps = by, sweeps
        self.class_weight = nn.Parameter(torch.empty(self.classes, width))
        self.class_bias = nn.Parameter(torch.empty(self.classes))
        self.word_weight = nn.Parameter(torch.empty(size, width))  # in the order of classes, as `place` says
        self.word_bias = nn.Parameter(torch.empty(size))
        init_like_linear(self.class_weight, self.class_bias)
        init_like_linear(self.word_weight, self.word_bias)
        self.register_buffer("classes_of", torch.from_numpy(by_mass(np.ones(size), self.classes)))
        self.build_tables()

    def count(self, ids: np.ndarray) -> None:
        counts = count_ids(ids, self.size)
        found = by_mass(counts ** POWERS.get(self.by, 1.0), self.classes)
        if self.by == "brown":
            found = exchange(ids, found, self.classes, self.sweeps)
        self.classes_of.copy_(torch.from_numpy(found))

    def build_tables(self) -> None:
        order = torch.argsort(self.classes_of, stable=True)
        place = torch.empty_like(order)
        place[order] = torch.arange(self.size, device=order.device)
        sizes = torch.bincount(self.classes_of, minlength=self.classes)
        self.set_table("place", place)
        self.set_table("sizes", sizes)
        self.set_table("first", sizes.cumsum(0) - sizes)
        self.split = sizes.tolist()

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        return nll_without_ignored(self._nll, h, targets)

    def total(self, h: Tensor, targets: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return self.nll(h, targets).sum()
        rows = (targets != IGNORE).nonzero().squeeze(1)
        if len(rows) < len(targets):
            h, targets = h[rows], targets[rows]
        chosen, words = self._chosen(targets)
        return total_cross_entropy(h, self.class_weight, self.class_bias, chosen) + grouped_total(h, *words)

    def _nll(self, h: Tensor, targets: Tensor) -> Tensor:
        chosen, words = self._chosen(targets)
        return linear_cross_entropy(h, self.class_weight, self.class_bias, chosen) + grouped_nll(h, *words)

    def _chosen(self, targets: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor, list[int], Tensor, Tensor]]:
        """Each target's class, and the arguments of `grouped_nll`: words by class, and each target within its class."""
        refuse_graph_capture("classes", targets.device)
        chosen = self.classes_of[targets]
        within = self.place[targets] - self.first[chosen]
        return chosen, (self.word_weight, self.word_bias, self.split, chosen, within)

    def log_probs(self, h: Tensor) -> Tensor:
        of_class = F.log_softmax(F.linear(h, self.class_weight, self.class_bias), -1)
        logits = F.linear(h, self.word_weight, self.word_bias)
        of_word = torch.cat([F.log_softmax(z, -1) for z in logits.split(self.split, -1)], -1)
        return (of_word + of_class.repeat_interleave(self.sizes, -1)).index_select(-1, self.place)


def by_mass(mass: np.ndarray, classes: int) -> np.ndarray:
    """id → class, the heaviest words first; each class has about the same share of the mass and at least one word.

    A word's class is the share of the mass before it, in units of a class (as in rnnlm); but no class is skipped,
    however heavy a single word, and enough words are left at the end for the remaining classes.
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
