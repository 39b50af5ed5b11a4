"""Permutation language modeling: predict some tokens of a segment in a random order.

    J = −Σ_t log p(x_{z_t} | x_{z_<t})          z: a permutation, drawn anew for each segment

Yang et al., "XLNet" (2019), section 2.3 and appendix A.7. Only the last 1/K of the order is predicted, K =
`predict_every`; the tokens before it are visible from the start, so their order does not matter. The text is laid out
in rows; each segment also sees the memory of the segment before it:

    text      the cat sat on the mat and slept        predict_every = 4, segments of 8: two tokens are predicted
    chosen        cat         the                     spans of 1 to `max_span` tokens that begin with a word
    order     visible: the _ sat on _ mat and slept   first "the" from these, then "cat" from these and "the"

With `both_directions`, half of the rows read the same text from right to left (their memory holds what follows);
distances stay those in the text. Batch k depends on (seed, k) alone. Held-out text is read once, from left to right,
always with the same draws. Nats are those of predicted tokens with context on both sides: they do not compare with
others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from nextword.batching.causal import Rows
from nextword.batching.settings import require_bool, require_count
from nextword.batching.token_stream import WORD, Stream
from nextword.core.errors import Unsupported, invalid
from nextword.core.types import IGNORE, Batch, Inputs, Loss, State
from nextword.layers.attention import order_mask
from nextword.objectives.base import Objective, build_layout

MAX_VALIDATION_ROWS, MIN_VALIDATION_LENGTH = 10, 500  # rows of held-out text, and tokens in each


class PermutationObjective(Objective[Stream]):
    """Predict one token in `predict_every`, in spans of at most `max_span` tokens."""

    is_likelihood = False  # of some of the tokens, given the others

    def __init__(
        self, batches: Mapping[str, Any], predict_every: int = 6, max_span: int = 5, both_directions: bool = False
    ) -> None:
        self.layout = build_layout(batches, {"rows": Rows}, "permutation")
        require_count("objective.predict_every", predict_every)
        require_count("objective.max_span", max_span)
        require_bool("objective.both_directions", both_directions)
        if both_directions and self.layout.rows % 2:
            problem = "must be even with both_directions = true, where half of the rows read from right to left."
            raise invalid("batches.rows", self.layout.rows, problem)
        self.predict_every, self.max_span, self.both_directions = predict_every, max_span, both_directions

    @property
    def length(self) -> int:
        return self.layout.length

    def num_predicted(self, length: int) -> int:
        """Number of tokens predicted in a segment of this length."""
        return max(1, length // self.predict_every)

    # -------------------------------------------------------------------------------------------- batches

    def batches_per_epoch(self, text: Stream) -> int:
        return -(-Rows(self._rows).columns(text.ids) // self.length)

    @property
    def _rows(self) -> int:
        """Rows of text in a batch, each of which is read once or in both directions."""
        return self.layout.rows // (1 + self.both_directions)

    def batches(self, text: Stream, seed: int, step: int) -> Iterator[Batch]:
        per_epoch, rows = self.batches_per_epoch(text), self._rows
        while True:
            epoch, i = divmod(step, per_epoch)
            yield self._batch(text, rows, i, np.random.default_rng([seed, step]), self.both_directions, epoch)
            step += 1

    def validation_batches(self, text: Stream) -> Iterator[Batch]:
        rows = max(1, min(MAX_VALIDATION_ROWS, len(text.ids) // MIN_VALIDATION_LENGTH))
        for i in range(-(-Rows(rows).columns(text.ids) // self.length)):
            yield self._batch(text, rows, i, np.random.default_rng([0, i]), False, 0)

    def _batch(self, text: Stream, rows: int, i: int, rng: np.random.Generator, backward: bool, epoch: int) -> Batch:
        """Segment i of every row; if `backward`, also segment i from the right, with its tokens in reading order."""
        columns = Rows(rows).columns(text.ids)
        start = i * self.length
        end = min(start + self.length, columns)
        row_starts = np.arange(rows).reshape(-1, 1) * columns
        places = row_starts + np.arange(start, end)
        ranks = np.stack([self._ranks(text.marks[row] & WORD > 0, rng) for row in places])
        positions = None
        if backward:
            mirrored = row_starts + np.arange(columns - end, columns - start)
            mirrored_ranks = np.stack([self._ranks(text.marks[row] & WORD > 0, rng) for row in mirrored])
            places = np.concatenate([places, mirrored[:, ::-1]])
            ranks = np.concatenate([ranks, mirrored_ranks[:, ::-1]])
            positions = torch.from_numpy(places % columns)
        ids = torch.from_numpy(text.ids[places].astype(np.int64))
        order = torch.from_numpy(ranks)
        inputs = Inputs(ids, positions=positions, mask=order_mask(order))
        return Batch(inputs, ids.masked_fill(order < 0, IGNORE), reset_state=i == 0, epoch=epoch)

    def _ranks(self, begins_word: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(T,) position of each token in the order of prediction; −1 for tokens that are visible from the start."""
        wanted = self.num_predicted(len(begins_word))
        ranks = np.full(len(begins_word), -1)
        ranks[choose_spans(begins_word, wanted, self.predict_every, self.max_span, rng)] = rng.permutation(wanted)
        return ranks

    # -------------------------------------------------------------------------------------------- loss

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        if not network.has_query_stream:
            raise Unsupported(
                f"The permutation objective needs a network with two-stream attention; {type(network).__name__} cannot "
                "predict a position without reading it. Use another objective.",
                ability="two-stream attention",
            )
        rows, steps = batch.targets.shape
        is_visible = (batch.targets == IGNORE).to(torch.uint8)
        # Every row predicts equally many tokens, so the shape is known without waiting for a GPU.
        positions = is_visible.argsort(dim=1, stable=True)[:, : self.num_predicted(steps)]
        layers, state = network.queries(batch.inputs, positions, state)
        targets = batch.targets.gather(1, positions)
        nats = network.readout.total(layers[-1].flatten(0, 1), targets.flatten())
        count = rows * positions.shape[1]
        return Loss(nats / count, nats.detach(), count, state)


def choose_spans(
    begins_word: np.ndarray, wanted: int, every: int, longest: int, rng: np.random.Generator
) -> np.ndarray:
    """(T,) bool: `wanted` tokens to predict, in spans of n ≤ longest tokens with p(n) ∝ 1/n, while there is room.

    A span of n lies somewhere in a stretch of n · every tokens and begins at the next word boundary (`begins_word`).
    If the text is too short for the last spans, the missing tokens are drawn one by one.
    """
    total = len(begins_word)
    chosen = np.zeros(total, bool)
    words = np.flatnonzero(begins_word)
    next_word = np.append(words, total)[np.searchsorted(words, np.arange(total))]
    weights = 1 / np.arange(1, longest + 1)
    lengths = rng.choice(longest, wanted, p=weights / weights.sum()) + 1
    left, stretch = wanted, 0  # tokens still to choose, and where the current stretch begins
    for n in lengths.tolist():
        n = min(n, left)
        aim = stretch + int(rng.integers(n * (every - 1) + 1))
        start = int(next_word[aim]) if aim < total else total
        if not n or start + n > total:
            break
        chosen[start : start + n] = True
        left -= n
        stretch = max(stretch + n * every, start + n)
    if left:
        chosen[rng.choice(np.flatnonzero(~chosen), left, replace=False)] = True
    return chosen
