"""Predict some tokens of a segment one after the other, in an order drawn anew: J = −Σ_t log p(x_{z_t} | x_{z_<t}).

Yang et al., "XLNet" (2019), section 2.3 and appendix A.7. Only the last 1/K of an order is predicted, K = `every`; what
comes before it is given, and has no order in itself. The text is laid out in rows, as for any network with a memory;
segment follows segment, and what was kept of the one before is seen by all:

    text      the cat sat on the mat and slept        every = 4, segments of 8: two are predicted
    drawn         cat         the                     spans of 1 to `span` tokens that begin a word
    order     given: the _ sat on _ mat and slept     first "the" from these, then "cat" from these and "the"

With `backward`, half of the rows read the same text from right to left (the memory is then of what follows), with
distances as they are in the text. Batch k is made of (seed, k) alone; held-out text is read once, from left to right,
with draws that are always the same. Nats are those of the predicted tokens: of text that is seen on both sides, so no
other objective's compare with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from nextword.batching.causal import Rows, check_counts
from nextword.batching.token_stream import WORD, Stream
from nextword.core.errors import NextwordError, Unsupported
from nextword.core.types import IGNORE, Batch, Inputs, Loss, State
from nextword.layers.attention import visible

HELD_OUT = 10  # rows of held-out text at the most, and the fewest tokens in each
SHORTEST = 500


class Permuted:
    """One token in `every` is predicted, in runs of at most `span`; `backward` reads from both ends."""

    likelihood = False  # of some of the tokens, each from others

    def __init__(self, batches: Mapping[str, Any], every: int = 6, span: int = 5, backward: bool = False) -> None:
        options = dict(batches)
        kind = options.pop("kind", "rows")
        if kind != "rows" or options.keys() - {"rows", "length"}:
            raise NextwordError(
                f"The permuted objective has batches of kind rows, with rows and length; the recipe says '{kind}' with "
                f"{', '.join(options) or 'nothing'}."
            )
        self.layout = Rows(**options)
        self.every, self.span, self.backward = every, span, backward
        for name, value in (("every", every), ("span", span)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise NextwordError(f"objective: {name} = {value!r} must be a whole number of at least 1.")
        if not isinstance(backward, bool):
            raise NextwordError(f"objective: backward = {backward!r} must be true or false.")
        if backward and self.layout.rows % 2:
            raise NextwordError(
                f"With backward = true half of the rows read from right to left, but rows = {self.layout.rows} is odd. "
                "Give an even number (--set phase.0.batches.rows=…)."
            )
        check_counts(self.layout)

    @property
    def length(self) -> int:
        """Tokens in a row of a batch."""
        return self.layout.length

    def predicted(self, steps: int) -> int:
        """How many tokens of a segment of so many are predicted."""
        return max(1, steps // self.every)

    # -------------------------------------------------------------------------------------------- batches

    def per_epoch(self, text: Stream) -> int:
        return -(-self._columns(text, self.layout.rows // (1 + self.backward)) // self.length)

    def _columns(self, text: Stream, rows: int) -> int:
        columns = len(text.ids) // rows
        if columns < 2:
            raise NextwordError(
                f"The text has {len(text.ids)} tokens, fewer than the {2 * rows} that {rows} rows need. Give more "
                "text, or fewer rows (--set phase.0.batches.rows=…)."
            )
        return columns

    def batches(self, text: Stream, seed: int, step: int) -> Iterator[Batch]:
        per_epoch, rows = self.per_epoch(text), self.layout.rows // (1 + self.backward)
        while True:
            epoch, i = divmod(step, per_epoch)
            yield self._batch(text, rows, i, np.random.default_rng([seed, step]), self.backward, epoch)
            step += 1

    def held_out(self, text: Stream) -> Iterator[Batch]:
        rows = max(1, min(HELD_OUT, len(text.ids) // SHORTEST))
        for i in range(-(-self._columns(text, rows) // self.length)):
            yield self._batch(text, rows, i, np.random.default_rng([0, i]), False, 0)

    def _batch(self, text: Stream, rows: int, i: int, draw: np.random.Generator, backward: bool, epoch: int) -> Batch:
        """Segment i of every row; then, if asked for, segment i from the right, its tokens in the order of reading."""
        columns = self._columns(text, rows)
        first = i * self.length
        last = min(first + self.length, columns)
        table = np.arange(rows).reshape(-1, 1) * columns
        at = table + np.arange(first, last)
        ranks = np.stack([self._ranks(text.marks[row] & WORD > 0, draw) for row in at])
        places = None
        if backward:
            mirrored = table + np.arange(columns - last, columns - first)
            other = np.stack([self._ranks(text.marks[row] & WORD > 0, draw) for row in mirrored])
            at, ranks = np.concatenate([at, mirrored[:, ::-1]]), np.concatenate([ranks, other[:, ::-1]])
            places = torch.from_numpy(at % columns)
        ids = torch.from_numpy(text.ids[at].astype(np.int64))
        turns = torch.from_numpy(ranks)
        inputs = Inputs(ids, positions=places, mask=visible(turns))
        return Batch(inputs, ids.masked_fill(turns < 0, IGNORE), fresh=i == 0, epoch=epoch)

    def _ranks(self, begins: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        """(T,) When each token is predicted; −1 for those that are given."""
        wanted = self.predicted(len(begins))
        ranks = np.full(len(begins), -1)
        ranks[spans(begins, wanted, self.every, self.span, draw)] = draw.permutation(wanted)
        return ranks

    # -------------------------------------------------------------------------------------------- loss

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        if not hasattr(network, "queries"):
            raise Unsupported(
                f"{type(network).__name__} cannot be asked what stands at a place without being shown it, as the "
                "permuted objective needs. Use it with a network of two streams, or another objective."
            )
        rows, steps = batch.targets.shape
        given = (batch.targets == IGNORE).to(torch.uint8)
        at = given.argsort(dim=1, stable=True)[
            :, : self.predicted(steps)
        ]  # as many in every row: no shape waits for a GPU
        layers, state = network.queries(batch.inputs, at, state)
        targets = batch.targets.gather(1, at)
        nats = network.readout.total(layers[-1].flatten(0, 1), targets.flatten())
        count = rows * at.shape[1]
        return Loss(nats / count, nats.detach(), count, state)


def spans(begins: np.ndarray, wanted: int, every: int, longest: int, draw: np.random.Generator) -> np.ndarray:
    """(T,) bool: so many tokens to predict, in runs of n ≤ longest drawn with p(n) ∝ 1/n, as long as there is room.

    A run of n stands anywhere in a stretch of n · every tokens, at the first one from there on that begins a word
    (`begins`). What is missing in the end is made up by tokens drawn one by one.
    """
    total = len(begins)
    chosen = np.zeros(total, bool)
    words = np.flatnonzero(begins)
    after = np.append(words, total)[np.searchsorted(words, np.arange(total))]  # the next place that begins a word
    weights = 1 / np.arange(1, longest + 1)
    lengths = draw.choice(longest, wanted, p=weights / weights.sum()) + 1
    left, at = wanted, 0
    for n in lengths.tolist():
        n = min(n, left)
        aim = at + int(draw.integers(n * (every - 1) + 1))
        begin = int(after[aim]) if aim < total else total
        if not n or begin + n > total:
            break
        chosen[begin : begin + n] = True
        left -= n
        at = max(at + n * every, begin + n)
    if left:
        chosen[draw.choice(np.flatnonzero(~chosen), left, replace=False)] = True
    return chosen
