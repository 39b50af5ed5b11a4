"""Direct connections: n-gram features that score the next word past the hidden layer.

Mikolov, Deoras, Povey, Burget & Černocký, "Strategies for training large scale neural network language models" (2011),
the RNNME; `-direct` and `-direct-order` of the rnnlm toolkit. A maximum entropy model over n-grams, trained jointly
with the network:

    z_w = (V h + b)_w + s Σ_n T[place(w_{t−n+2} … w_t) + w]        n = 1 … order; n = 1 has no word before it

All n-grams share one table T of `size` weights, zero at first. A context of n − 1 words is hashed to a place in it, and
the words that may follow have adjacent entries from there on; contexts that collide share weights. With classes, one
half of the table is for the class after a context, the other for the word after a context and within a class.

    context ──hash──▶ │ c₀ c₁ c₂ … │          context, class ──hash──▶ │ w₀ w₁ … │
                      └─ scores of classes, first half                 └─ scores of the class's words, second half

The `scale` s makes the table's learning rate s² times the
network's: if a step is the mean over many rows, n-grams, each of which is in few of them, learn more slowly than word
by word, as in the toolkit, at the same rate. A prediction reads order · (C + V/C) weights with classes and order · V
with the full softmax, where it is slow.

The network appends the last words to h, scaled so small that no product of h notices them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nextword.core.errors import InvalidSetting, UnknownName
from nextword.layers.output.base import CountedReadout, at_least_float32, nll_without_ignored, refuse_graph_capture
from nextword.layers.output.class_based import ClassSoftmax
from nextword.layers.output.softmax import LinearReadout

SMALL = 2.0**-100  # ids times this are exact in float32 up to 2²⁴, and the product of two is zero
MAX_READ = 1 << 22  # weights read at once in a full softmax
KEYS = ("size", "order", "scale")
SEED, STEP, CLASS = 0x2545F4914F6CDD1D, 0x9E3779B97F4A7C15 - 2**64, 0x632BE59BD9B4E019


class DirectConnections(CountedReadout):
    """A readout with direct connections over `words`: a full softmax, tied or not, or one with classes."""

    def __init__(self, words: Any, vocabulary: int, size: int = 2_000_000, order: int = 3, scale: float = 1.0) -> None:
        super().__init__(vocabulary)
        if not isinstance(words, (LinearReadout, ClassSoftmax)):
            raise InvalidSetting(
                f"Direct connections need a readout of kind 'classes' or 'full', not {type(words).__name__}. Use one "
                "of those, or leave direct out of [model].",
                key="model.direct",
                value=type(words).__name__,
            )
        if isinstance(order, bool) or not isinstance(order, int) or not 1 <= order <= 20:
            raise InvalidSetting(
                f"direct.order = {order!r} must be an integer from 1 (no word before) to 20.",
                key="model.direct.order",
                value=order,
            )
        least = 2 * vocabulary
        if isinstance(size, bool) or not isinstance(size, int) or size < least:
            raise InvalidSetting(
                f"direct.size = {size!r} must be at least {least}, two weights for each of the {vocabulary} words; "
                "millions are usual.",
                key="model.direct.size",
                value=size,
            )
        if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not 0 < scale < float("inf"):
            raise InvalidSetting(
                f"direct.scale = {scale!r} must be a number above zero.", key="model.direct.scale", value=scale
            )
        self.words: Any = words
        self.order, self.scale = order, scale
        self.table = nn.Parameter(torch.zeros(size))

    # -------------------------------------------------------------------------------------------- the last words

    def begin(self, batch: int) -> Tensor:
        """For the network's state: the order − 2 words before the next one; −1: none."""
        return torch.full((batch, max(self.order - 2, 0)), -1, device=self.table.device)

    def append_words(self, h: Tensor, ids: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        """h (B, T, D) with the last order − 1 words of each position appended, the latest first; and the new state."""
        words = torch.cat([before, ids], 1)
        length, lead = ids.shape[1], before.shape[1]
        last = [words[:, lead - back : lead - back + length] for back in range(self.order - 1)]
        if last:
            h = torch.cat([at_least_float32(h), (torch.stack(last, -1) + 1).to(at_least_float32(h).dtype) * SMALL], -1)
        return h, words[:, length:]

    def _split(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """h itself, and a hash of the context for each order: (N, D + order − 1) → (N, D), (K, N)."""
        width = h.shape[-1] - self.order + 1
        last = (h[:, width:].detach() / SMALL).round().long()
        keys = [torch.full((len(h),), SEED, device=h.device)]
        for column in last.unbind(1):
            keys.append(_hash(keys[-1] * 31 + column * STEP))
        return h[:, :width], torch.stack(keys)

    # -------------------------------------------------------------------------------------------- places in the table

    def places(self, keys: Tensor) -> Tensor:
        """Where the scores after a context begin, of classes or of all words: (K, N) → (K, N)."""
        if isinstance(self.words, ClassSoftmax):
            return keys % (len(self.table) // 2 - self.words.classes + 1)
        return keys % (len(self.table) - self.size + 1)

    def places_within(self, keys: Tensor, classes: Tensor) -> Tensor:
        """Where the scores of a class's words begin; shapes are broadcast."""
        half = len(self.table) // 2
        return half + _hash(keys + (classes + 1) * CLASS) % (len(self.table) - half - self.size + 1)

    def _read_runs(self, places: Tensor, length: int) -> Tensor:
        """`length` scores from each place on, summed over the orders: (K, N) → (N, length)."""
        at = places.unsqueeze(-1) + torch.arange(length, device=places.device)
        return self._read(at.flatten(1)).view(-1, length)

    def _read(self, at: Tensor) -> Tensor:
        scores = read(self.table, at)
        return scores if self.scale == 1 else scores * self.scale

    # -------------------------------------------------------------------------------------------- as a readout

    @property
    def output_bias(self) -> Tensor | None:
        return self.words.output_bias

    def fit_vocabulary(self, ids: np.ndarray) -> None:
        self.words.fit_vocabulary(ids)
        super().fit_vocabulary(ids)

    def count(self, ids: np.ndarray) -> None:
        """The table starts at zero, whatever the recipe's initialization: an unseen n-gram should change nothing."""
        with torch.no_grad():
            self.table.zero_()

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        return nll_without_ignored(self._nll, h, targets)

    def log_probs(self, h: Tensor) -> Tensor:
        h, keys = self._split(h)
        parts = zip(h.split(self._rows()), keys.split(self._rows(), 1), strict=True)
        each: Callable[[Tensor, Tensor], Tensor]
        each = self._class_log_probs if isinstance(self.words, ClassSoftmax) else self._full_log_probs
        return torch.cat([each(*part) for part in parts])

    def _rows(self) -> int:
        return max(1, MAX_READ // (self.size * self.order))

    def _nll(self, h: Tensor, targets: Tensor) -> Tensor:
        h, keys = self._split(h)
        if isinstance(self.words, ClassSoftmax):
            return self._class_nll(h, keys, targets)
        parts = zip(h.split(self._rows()), keys.split(self._rows(), 1), targets.split(self._rows()), strict=True)
        return torch.cat([F.nll_loss(self._full_log_probs(x, k), t, reduction="none") for x, k, t in parts])

    def _full_log_probs(self, h: Tensor, keys: Tensor) -> Tensor:
        return F.log_softmax(at_least_float32(self.words.logits(h)) + self._read_runs(self.places(keys), self.size), -1)

    def _class_logits(self, h: Tensor, keys: Tensor) -> Tensor:
        words = self.words
        z = F.linear(h, words.class_weight, words.class_bias)
        return at_least_float32(z) + self._read_runs(self.places(keys), words.classes)

    def _class_nll(self, h: Tensor, keys: Tensor, targets: Tensor) -> Tensor:
        words = self.words
        refuse_graph_capture("classes", h.device)
        chosen = words.classes_of[targets]
        of_class = F.cross_entropy(self._class_logits(h, keys), chosen, reduction="none")
        order = chosen.argsort()
        sizes = words.sizes[chosen[order]]
        begins = sizes.cumsum(0) - sizes
        places = self.places_within(keys[:, order], chosen[order]) - begins
        at = places.repeat_interleave(sizes, 1)
        plus = self._read(at + torch.arange(at.shape[1], device=at.device))  # the scores of all rows, concatenated
        within = (words.place[targets] - words.first[chosen])[order]
        counts = torch.bincount(chosen, minlength=words.classes).tolist()
        of_word = _Grouped.apply(h[order], words.word_weight, words.word_bias, plus, words.split, counts, within)
        return of_class + of_word[order.argsort()]

    def _class_log_probs(self, h: Tensor, keys: Tensor) -> Tensor:
        words = self.words
        of_class = F.log_softmax(self._class_logits(h, keys), -1)
        rows = torch.arange(words.classes, device=h.device).repeat_interleave(words.sizes)  # row of the matrix → class
        places = self.places_within(keys.unsqueeze(-1), rows)  # (K, N, V), in the matrix's order
        places += torch.arange(self.size, device=h.device) - words.first[rows]
        z = at_least_float32(F.linear(h, words.word_weight, words.word_bias)) + self._read(places.flatten(1)).view(
            len(h), -1
        )
        of_word = torch.cat([F.log_softmax(part, -1) for part in z.split(words.split, -1)], -1)
        return (of_word + of_class[:, rows]).index_select(-1, words.place)


def with_direct(words: Any, vocabulary: int, options: Mapping[str, Any]) -> Any:
    """The readout itself, or with direct connections as a recipe says: { size = 2_000_000, order = 3 }."""
    if not options:
        return words
    unknown = [key for key in options if key not in KEYS]
    if unknown:
        raise UnknownName(
            f"[model] direct has no key '{unknown[0]}'. It has {', '.join(KEYS)}.", name=unknown[0], known=KEYS
        )
    return DirectConnections(words, vocabulary, **options)


def _hash(x: Tensor) -> Tensor:
    """Mix 64 bits (products wrap around), as splitmix64 with signed shifts."""
    x = (x ^ (x >> 30)) * -0x40A7B892E31B1A47
    x = (x ^ (x >> 27)) * -0x6B2FB644ECCEEE15
    return x ^ (x >> 31)


# ------------------------------------------------------------------------------------------------ gradients


def read(table: Tensor, at: Tensor) -> Tensor:
    """Σ_k table[at[k]]: (size,), (K, S) → (S,)."""
    return _Read.apply(table, at)


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, at: Tensor) -> Tensor:
        ctx.save_for_backward(at)
        ctx.size = len(table)
        found = table[at[0]]
        for more in at[1:]:
            found += table[more]
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (at,) = ctx.saved_tensors
        of_table = grad.new_zeros(ctx.size)
        for places in at:
            of_table.index_add_(0, places, grad)
        return of_table, None


class _Grouped(torch.autograd.Function):
    """−log softmax of each row's target within its group, the rows in order of groups; `plus` is added to the scores.

    As `class_based.grouped_nll`, with a gradient of its own for each row.
    """

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, plus: Tensor, sizes: list[int], counts: list[int], t: Tensor
    ) -> Tensor:
        with torch.autocast(h.device.type, enabled=False):
            x, target = h.to(weight.dtype), t.unsqueeze(1)
            nll, log_p = x.new_empty(len(x)), torch.empty_like(plus)
            for rows, words, part in _blocks(sizes, counts):
                z = torch.addmm(bias[words], x[rows], weight[words].t()).add_(plus[part].view(-1, _length(words)))
                z = torch.log_softmax(z, 1, out=log_p[part].view_as(z))
                torch.neg(z.gather(1, target[rows]).squeeze(1), out=nll[rows])
        ctx.save_for_backward(x, weight, log_p, target)
        ctx.blocks, ctx.kind = (sizes, counts), h.dtype
        return nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, log_p, target = ctx.saved_tensors
        sizes, counts = ctx.blocks
        p = log_p.exp()
        grad_x, grad_weight = torch.empty_like(x), torch.zeros_like(weight)
        grad_bias, factor = weight.new_zeros(len(weight)), grad.unsqueeze(1)
        for rows, words, part in _blocks(sizes, counts):
            dz = p[part].view(-1, _length(words)).mul_(factor[rows])
            dz.scatter_add_(1, target[rows], -factor[rows])
            torch.mm(dz, weight[words], out=grad_x[rows])
            torch.mm(dz.t(), x[rows], out=grad_weight[words])
            torch.sum(dz, 0, out=grad_bias[words])
        return grad_x.to(ctx.kind), grad_weight, grad_bias, p, None, None, None


def _blocks(sizes: list[int], counts: list[int]) -> Any:
    """Of each group that has rows: these rows, its words, and their scores in a row of all scores."""
    row = word = score = 0
    for size, count in zip(sizes, counts, strict=True):
        if count:
            yield slice(row, row + count), slice(word, word + size), slice(score, score + count * size)
        row, word, score = row + count, word + size, score + count * size


def _length(part: slice) -> int:
    return part.stop - part.start
