"""Blank infilling: remove pieces from a text, put a mask in place of each, and read the pieces after the text.

    text      x₁ x₂ x₃ x₄ x₅ x₆           x₃ and x₅ x₆ are removed, and shuffled
    read      begin x₁ x₂ M x₄ M │ S x₅ x₆ │ S x₃        targets   x₅ x₆ E │ x₃ E

Du et al., "GLM" (2021). Part A is what is left, part B the pieces. Each row draws one of three kinds of blanks:

    tokens      [MASK]     pieces of Poisson lengths (never 0), until `mask_fraction` of the text is removed
    sentences   [sMASK]    whole sentences, until `mask_fraction` is removed
    document    [gMASK]    the end of the text, from `min_generated` of it to all, without an end token

No piece crosses the end of a document, but the rest of a text may. Between two pieces of a few tokens stands at least
one token that stays. If all texts were equally long, their length would tell how much is missing, and a network that
reads a short text would expect long pieces; so `short_fraction` of the texts are cut to a random length.

Batch k depends on (seed, k) alone. Held-out text is cut at its beginning, always with the same pieces.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from nextword.batching.causal import Blocks
from nextword.batching.settings import require_count, require_number
from nextword.batching.token_stream import SENTENCE, Stream
from nextword.core.errors import invalid
from nextword.core.types import IGNORE, Batch, Inputs
from nextword.tokenizers.special_tokens import PieceMarks

TOKENS, SENTENCES, DOCUMENT = range(3)  # kinds of blanks, in the order of their masks
MAX_PIECE = 39  # tokens in a piece of Poisson length
MIN_TEXT = 4  # tokens in a text
ROW_MULTIPLE = 8  # rows are padded to a multiple of this, which a GPU reads faster
BLANK_VALIDATION_SEED = 20_210_318


@dataclass(frozen=True)
class Blanks:
    """`rows` texts of `length` tokens, begin token included; the kinds of blanks are drawn with the weights `mix`."""

    rows: int = 16
    length: int = 512
    order: str = "shuffled"
    mask_fraction: float = 0.15
    mean_span: float = 3.0  # of the Poisson distribution
    min_generated: float = 0.5
    short_fraction: float = 0.0
    mix: tuple[float, ...] = (0.5, 0.3, 0.2)  # tokens, sentences, document

    def __post_init__(self) -> None:
        require_number("objective.mask_fraction", self.mask_fraction, 0, 0.5, exclude_low=True)
        require_number("objective.mean_span", self.mean_span, 0, 20, exclude_low=True)
        require_number("objective.min_generated", self.min_generated, 0, 1, exclude_low=True)
        require_number("objective.short_fraction", self.short_fraction, 0, 1)
        if len(self.mix) != 3 or not all(weight >= 0 for weight in self.mix) or not sum(self.mix) > 0:
            problem = f"is a weight of {self.mix}. Weights must be at least 0, and not all 0."
            raise invalid("objective.tokens", self.mix[0], problem)
        require_count("batches.length", self.length, least=MIN_TEXT + 1)
        Blocks(self.rows, self.length, self.order)  # checks rows and order

    @property
    def blocks(self) -> Blocks:
        return Blocks(self.rows, self.length - 1, self.order)

    def batches_per_epoch(self, text: Stream) -> int:
        return self.blocks.batches_per_epoch(text.ids)

    def batches(self, text: Stream, seed: int, step: int, marks: PieceMarks) -> Iterator[Batch]:
        places: Any = range(len(text.ids))  # blocks of places instead of ids, because marks of sentences are needed too
        for block in self.blocks.batches(places, seed, step):
            yield self.batch(text, block.inputs.ids.numpy(), np.random.default_rng([seed, step]), marks, block.epoch)
            step += 1

    def validation_batches(self, text: Stream, marks: PieceMarks) -> Iterator[Batch]:
        """Full rows only."""
        for first, places in self.blocks.validation_places(len(text.ids)):
            yield self.batch(text, places, np.random.default_rng([BLANK_VALIDATION_SEED, first]), marks, 0)

    def batch(self, text: Stream, places: np.ndarray, rng: np.random.Generator, marks: PieceMarks, epoch: int) -> Batch:
        """The rows of text at these places (R, n), with pieces removed."""
        ids = text.ids[places].astype(np.int64)
        weights = np.cumsum(self.mix) / sum(self.mix)
        kinds = np.searchsorted(weights, rng.random(len(ids)), side="right").clip(max=DOCUMENT)
        sizes = np.full(len(ids), ids.shape[1])
        if self.short_fraction:
            is_short = rng.random(len(ids)) < self.short_fraction
            sizes = np.where(is_short, rng.integers(MIN_TEXT, sizes + 1), sizes)
        removed, begins = self.choose_pieces(ids, (text.marks[places] & SENTENCE) > 0, sizes, kinds, rng, marks)
        read, positions, targets = arrange_pieces(ids, removed, begins, sizes, kinds, rng, marks)
        target_positions = np.flatnonzero(targets != IGNORE)
        return Batch(
            Inputs(torch.from_numpy(read), positions=torch.from_numpy(positions)),
            torch.from_numpy(targets),
            reset_state=True,
            epoch=epoch,
            target_positions=torch.from_numpy(target_positions),
            num_targets=len(target_positions),
        )

    def choose_pieces(
        self,
        ids: np.ndarray,  # (R, n)
        starts: np.ndarray,  # (R, n) bool: a sentence begins here
        sizes: np.ndarray,  # (R,) tokens of each text
        kinds: np.ndarray,  # (R,)
        rng: np.random.Generator,
        marks: PieceMarks,
    ) -> tuple[np.ndarray, np.ndarray]:
        """(R, n) bool, twice: which tokens are removed, and with which of them a piece begins."""
        column, size = np.arange(ids.shape[1]), sizes[:, None]
        # Ends of documents stay; a piece that would cross one becomes two pieces.
        inner = (ids != marks.end) & (column < size)
        wanted = np.maximum(1, (self.mask_fraction * size).astype(np.int64))
        short = choose_short_pieces(size, ids.shape[1], wanted, self.mean_span, rng) & inner
        short_begins = short & ~_shift(short)
        sentences, sentence_begins = choose_sentences(starts, inner, wanted, rng)
        rest = size - rng.integers(np.maximum(1, np.ceil(self.min_generated * size).astype(np.int64)), size + 1)
        document, document_begins = (column >= rest) & (column < size), column == rest
        kind = kinds[:, None]
        removed = np.where(kind == TOKENS, short, np.where(kind == SENTENCES, sentences, document))
        begins = np.where(kind == TOKENS, short_begins, np.where(kind == SENTENCES, sentence_begins, document_begins))
        return removed, begins


# ------------------------------------------------------------------------------------------------ choosing pieces


def choose_short_pieces(
    size: np.ndarray, width: int, wanted: np.ndarray, mean: float, rng: np.random.Generator
) -> np.ndarray:
    """(R, width) bool: pieces of Poisson lengths until at least `wanted` (R, 1) of the first `size` (R, 1) tokens are
    removed; no two pieces touch."""
    rows, most = len(size), int(wanted.max())
    lengths = np.arange(1, MAX_PIECE + 1)
    odds = np.cumsum(np.exp(lengths * math.log(mean) - [math.lgamma(n + 1) for n in lengths]))
    drawn = 1 + np.searchsorted(odds / odds[-1], rng.random((rows, most))).clip(max=MAX_PIECE - 1)
    drawn = np.minimum(drawn, np.maximum(1, size + 2 - 2 * wanted))  # so that all fit, with a token between them
    used = np.cumsum(drawn, 1) - drawn < wanted  # the pieces before did not suffice
    pieces = used.sum(1, keepdims=True)
    # Shuffle the pieces, because the last one, which reached the number, tends to be long.
    order = np.where(used, rng.random(drawn.shape), 2.0).argsort(1, kind="stable")
    drawn = np.take_along_axis(drawn * used, order, 1)
    used = np.take_along_axis(used, order, 1)
    free = size - drawn.sum(1, keepdims=True) - pieces + 1  # tokens that stay, except one between each two pieces
    places = np.where(used, (rng.random(drawn.shape) * (free + 1)).astype(np.int64), width)
    first = np.sort(places, 1) + np.cumsum(drawn + 1, 1) - (drawn + 1)
    edges = np.zeros((rows, width + 1), np.int64)
    row = np.nonzero(used)[0]
    np.add.at(edges, (row, first[used]), 1)
    np.add.at(edges, (row, (first + drawn)[used]), -1)
    return np.cumsum(edges, 1)[:, :width] > 0


def choose_sentences(
    starts: np.ndarray, inner: np.ndarray, wanted: np.ndarray | int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """(R, n) bool, twice: tokens of whole sentences, in random order until at least `wanted` are removed; their firsts.

    A row, and what follows the end of a document (not `inner`), begins with a sentence, even in its middle.
    """
    rows, size = starts.shape
    first = inner & (starts | ~_shift(inner))
    number = np.cumsum(first, 1)  # 0: before the first sentence
    row = np.arange(rows)[:, None]
    count = np.bincount((row * (size + 1) + number)[inner], minlength=rows * (size + 1)).reshape(rows, size + 1)
    order = np.where(count > 0, rng.random(count.shape), 2.0).argsort(1, kind="stable")
    lengths = np.take_along_axis(count, order, 1)
    chosen = np.zeros(count.shape, bool)
    np.put_along_axis(chosen, order, (np.cumsum(lengths, 1) - lengths < wanted) & (lengths > 0), 1)
    removed = np.take_along_axis(chosen, number, 1) & inner
    return removed, removed & first


def _shift(flags: np.ndarray) -> np.ndarray:
    """The flag of the token before each one (R, n); False before the first."""
    return np.concatenate([np.zeros((len(flags), 1), bool), flags[:, :-1]], 1)


# ------------------------------------------------------------------------------------------------ arranging pieces


def arrange_pieces(
    text: np.ndarray,  # (R, n)
    removed: np.ndarray,  # (R, n) bool
    begins: np.ndarray,  # (R, n) bool: a piece begins here
    sizes: np.ndarray,  # (R,) tokens of each text
    kinds: np.ndarray,  # (R,) TOKENS, SENTENCES or DOCUMENT; a DOCUMENT's piece has no end token
    order: np.random.Generator | Sequence[Sequence[int]],  # draws the order of pieces, or is the order itself
    marks: PieceMarks,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The input (R, T), its two positions (R, T, 2), and the targets (R, T). Rows are padded at their end."""
    rows = len(text)
    stays = (~removed | begins) & (np.arange(text.shape[1]) < sizes[:, None])
    column = np.cumsum(stays, 1)  # in part A; of a piece, the column of its mask. Column 0 holds the begin token
    first = column[:, -1] + 1  # where part B begins
    piece = np.cumsum(begins, 1) - 1
    count = np.maximum(begins.sum(1), 1)
    most = int(count.max())
    row = np.broadcast_to(np.arange(rows)[:, None], text.shape)
    length = np.bincount((row * most + piece)[removed], minlength=rows * most).reshape(rows, most)
    rank = _piece_order(order, count, most)  # (R, most) which piece comes first, second, …
    room = np.take_along_axis(length + (length > 0), rank, 1)
    offset = np.zeros_like(room)
    np.put_along_axis(offset, rank, np.cumsum(room, 1) - room, 1)

    has_end = (length > 0) & (kinds != DOCUMENT)[:, None]
    width = int((first + room.sum(1)).max())
    width = -(-width // ROW_MULTIPLE) * ROW_MULTIPLE
    read = np.full((rows, width), marks.begin, np.int64)  # also the padding, which nothing attends to
    positions = np.zeros((rows, width, 2), np.int64)
    positions[:, :, 1] = np.arange(width) >= first[:, None]
    targets = np.full((rows, width), IGNORE, np.int64)

    # Part A: what stays, and a mask for each piece
    masks = np.asarray(marks.masks)[kinds]
    read[row[stays], column[stays]] = np.where(begins, masks[:, None], text)[stays]
    positions[row[stays], column[stays], 0] = column[stays]

    # Part B: the start token S of each piece has the position of its mask; the last target of a piece is the end token
    owner, number = np.nonzero(begins)[0], piece[begins]  # of every piece: its row, and its number there
    start = first[owner] + offset[owner, number]
    positions[owner, start, 0] = column[begins]
    is_closed = has_end[owner, number]
    targets[owner[is_closed], (start + length[owner, number])[is_closed]] = marks.end

    # Part B: the tokens of the pieces, each predicted one position before it is read
    r, p = row[removed], piece[removed]
    piece_start = np.zeros(text.shape, np.int64)
    piece_start[begins] = np.nonzero(begins)[1]
    inside = (np.arange(text.shape[1]) - np.maximum.accumulate(piece_start, 1))[removed]
    at = first[r] + offset[r, p] + inside
    targets[r, at] = text[removed]
    is_read = has_end[r, p] | (inside < length[r, p] - 1)  # the last token of a piece without an end is not read
    r, at, inside = r[is_read], at[is_read] + 1, inside[is_read]
    read[r, at] = text[removed][is_read]
    positions[r, at, 0] = column[removed][is_read]
    positions[r, at, 1] = inside + 2
    return read, positions, targets


def _piece_order(order: np.random.Generator | Sequence[Sequence[int]], count: np.ndarray, most: int) -> np.ndarray:
    """(R, most) numbers of each row's pieces in reading order; missing pieces come last."""
    if isinstance(order, np.random.Generator):
        keys = order.random((len(count), most))
        return np.where(np.arange(most) < count[:, None], keys, 2.0).argsort(1, kind="stable")
    return np.array([[*row, *range(len(row), most)] for row in order])
