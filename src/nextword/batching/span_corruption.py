"""Text with spans taken out: what is left is the source, what was taken out the target (Raffel et al. 2020, figure 2).

    text     Thank you for inviting me to your party last week          <x> <y> … are sentinels, tokens of their own
    source   Thank you <x> me to your party <y> week end
    target   <x> for inviting <y> last end

A share of the tokens goes, in as many spans as their mean length asks for, so that every row of a batch has the same
lengths: of a block of text just so long that its source fills `length`. Where spans lie is drawn anew: the tokens that
go, and those that stay, are each cut at random into as many parts, which take turns. Batch k is made of
(seed, k) alone.

Text with pieces taken out, a mask in place of each: what is left is read, and then the pieces (Du et al. 2021).

    text      x₁ x₂ x₃ x₄ x₅ x₆           x₃ and x₅ x₆ are taken out, and shuffled
    read      begin x₁ x₂ M x₄ M │ S x₅ x₆ │ S x₃        targets   x₅ x₆ E │ x₃ E

A row of text is taken apart in one of three ways, drawn for each:

    tokens      [MASK]     pieces of a few tokens, as many as Poisson says (but never none), until `share` is out
    sentences   [sMASK]    whole sentences, until `share` is out
    document    [gMASK]    the rest of the text, of which `least` up to all; it goes on, so that nothing ends it

No piece runs over the end of a document, but the rest of a text may. Between two pieces of a few tokens stands at least
one token that stays. Where all texts are equally long, their length gives away how much is missing, and a network that
reads a short text expects long pieces: so a share of the texts, `short`, is cut to any length.

Batch k is made of (seed, k) alone; held-out text is cut at its beginning, and what is taken out of it is always the
same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from nextword.batching.causal import HELD_OUT, Blocks
from nextword.batching.token_stream import SENTENCE, Stream
from nextword.core.errors import NextwordError
from nextword.core.types import IGNORE, Batch, Inputs
from nextword.tokenizers.base import PieceMarks

SPAN_HELD_OUT_SEED = 20_210_720  # the seed of what is taken out of held-out text


@dataclass(frozen=True)
class Spans:
    """`rows` sources of `length` tokens, the end among them; `share` of the text is taken out, in spans of `mean`."""

    rows: int = 8
    length: int = 512
    order: str = "shuffled"
    share: float = 0.15
    mean: float = 3.0

    def __post_init__(self) -> None:
        for name, low, high in (("share", 0.0, 1.0), ("mean", 0.999, 1e9)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low < value < high:
                raise NextwordError(
                    f"objective: {name} = {value!r}; expected a number {'between 0 and 1' if high == 1 else 'from 1'}."
                )
        if not isinstance(self.length, int) or self.length < 4:
            raise NextwordError(f"batches: length = {self.length!r} must be a whole number of at least 4.")
        Blocks(self.rows, self.length, self.order)  # says what is wrong with the rest

    @cached_property
    def sizes(self) -> tuple[int, int, int]:
        """Tokens of the text, how many of them go, and in how many spans: the longest text whose source fits."""
        text = self.length - 1
        while self._fits(text + 1):
            text += 1
        return (text, *self.taken(text))

    def taken(self, text: int) -> tuple[int, int]:
        gone = min(max(round(text * self.share), 1), text - 1)
        return gone, min(max(round(gone / self.mean), 1), gone, text - gone)

    def _fits(self, text: int) -> bool:
        gone, spans = self.taken(text)
        return text - gone + spans + 1 <= self.length

    @property
    def blocks(self) -> Blocks:
        return Blocks(self.rows, self.sizes[0], self.order)

    def per_epoch(self, ids: np.ndarray) -> int:
        return self.blocks.per_epoch(ids)

    def batches(
        self, ids: np.ndarray, seed: int, step: int, begin: int, end: int, sentinels: Sequence[int]
    ) -> Iterator[Batch]:
        for plain in self.blocks.batches(ids, seed, step):
            draw = np.random.default_rng([seed, step])
            yield self.batch(plain.inputs.ids.numpy(), draw, begin, end, sentinels, plain.epoch)
            step += 1

    def held_out(self, ids: np.ndarray, begin: int, end: int, sentinels: Sequence[int]) -> Iterator[Batch]:
        """Whole blocks alone; what is taken out is always the same."""
        text = self.sizes[0]
        rows = max(1, HELD_OUT // text)
        whole = len(ids) // text
        if not whole:
            raise NextwordError(
                f"The held-out text has {len(ids)} tokens, fewer than the {text} that one block needs. Give more text, "
                "or shorter blocks (--set phase.0.batches.length=…)."
            )
        for at in range(0, whole, rows):
            part = np.asarray(ids[at * text : min(at + rows, whole) * text], np.int64).reshape(-1, text)
            yield self.batch(part, np.random.default_rng([SPAN_HELD_OUT_SEED, at]), begin, end, sentinels, 0)

    def batch(
        self, text: np.ndarray, draw: np.random.Generator, begin: int, end: int, sentinels: Sequence[int], epoch: int
    ) -> Batch:
        pairs = [taken_out(row, self.mask(draw), end, sentinels) for row in text]
        source, target = (torch.from_numpy(np.stack(side)) for side in zip(*pairs, strict=True))
        read = torch.cat([torch.full((len(target), 1), begin), target[:, :-1]], 1)
        inputs = Inputs(read, source=Inputs(source))
        return Batch(inputs, target, fresh=True, epoch=epoch, predicted=target.numel())

    def mask(self, draw: np.random.Generator) -> np.ndarray:
        """(text,) True where a token goes. The first span stays, and the last one goes."""
        text, gone, spans = self.sizes
        stays, goes = (_cut(n, spans, draw) for n in (text - gone, gone))
        lengths = np.stack([stays, goes], 1).reshape(-1)
        return np.repeat(np.arange(2 * spans) % 2 == 1, lengths)


def _cut(total: int, parts: int, draw: np.random.Generator) -> np.ndarray:
    """So many lengths of at least one, in all `total`, each way to cut as likely as any other."""
    places = np.sort(draw.permutation(total - 1)[: parts - 1]) + 1
    return np.diff(np.concatenate(([0], places, [total])))


def taken_out(ids: np.ndarray, gone: np.ndarray, end: int, sentinels: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The source and the target of a text (T,) of which the spans `gone` (T,) are taken out."""
    begins = gone & ~np.concatenate(([False], gone[:-1]))
    spans = int(begins.sum())
    if spans > len(sentinels):
        raise NextwordError(
            f"{spans} spans are taken out of {len(ids)} tokens, but the tokenizer has {len(sentinels)} sentinels. Give "
            "it more ([tokenizer] sentinels = …), or take fewer spans out (objective.share, .mean; batches.length)."
        )
    marks = np.asarray(sentinels[:spans], np.int64)
    at = np.flatnonzero(begins)
    source = ids.astype(np.int64).copy()
    source[at] = marks
    source = source[~gone | begins]
    places = np.searchsorted(np.flatnonzero(gone), at)
    target = np.insert(ids[gone].astype(np.int64), places, marks)
    return np.append(source, end), np.append(target, end)


TOKENS, SENTENCES, DOCUMENT = range(3)  # ways to take a text apart, in the order of the masks
LONGEST = 39  # tokens of a piece, where their number is drawn
INFILLING_HELD_OUT_SEED = 20_210_318  # the seed of what is taken out of held-out text
SHORTEST = 4  # tokens of a text
EIGHTS = 8  # lengths of rows are multiples of it, which a GPU reads faster


@dataclass(frozen=True)
class PieceRows:
    """`rows` texts of `length` tokens, the one that texts begin with among them, each taken apart in a way drawn by
    the weights `mix`."""

    rows: int = 16
    length: int = 512
    order: str = "shuffled"
    share: float = 0.15
    mean: float = 3.0  # of Poisson
    least: float = 0.5
    short: float = 0.0
    mix: tuple[float, ...] = (0.5, 0.3, 0.2)  # of tokens, sentences and document

    def __post_init__(self) -> None:
        for name, low, high in (("share", 0.0, 0.5), ("mean", 0.0, 20.0), ("least", 0.0, 1.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low < value <= high:
                raise NextwordError(f"objective: {name} = {value!r}; expected a number above {low:g}, up to {high:g}.")
        if isinstance(self.short, bool) or not isinstance(self.short, (int, float)) or not 0 <= self.short <= 1:
            raise NextwordError(f"objective: short = {self.short!r}; expected a share of the texts, from 0 to 1.")
        if len(self.mix) != 3 or not all(weight >= 0 for weight in self.mix) or not sum(self.mix) > 0:
            raise NextwordError(
                f"objective: tokens, sentences and document = {', '.join(map(str, self.mix))} are how often a text is "
                "taken apart in each way: none of them is negative, and not all are 0."
            )
        if not isinstance(self.length, int) or self.length <= SHORTEST:
            raise NextwordError(f"batches: length = {self.length!r} must be a whole number of at least {SHORTEST + 1}.")
        Blocks(self.rows, self.length, self.order)  # says what is wrong with the rest

    @property
    def blocks(self) -> Blocks:
        return Blocks(self.rows, self.length - 1, self.order)

    def per_epoch(self, text: Stream) -> int:
        return self.blocks.per_epoch(text.ids)

    def batches(self, text: Stream, seed: int, step: int, marks: PieceMarks) -> Iterator[Batch]:
        everywhere: Any = range(len(text.ids))  # blocks of places, for more than the ids is wanted of each
        for plain in self.blocks.batches(everywhere, seed, step):
            yield self.batch(text, plain.inputs.ids.numpy(), np.random.default_rng([seed, step]), marks, plain.epoch)
            step += 1

    def held_out(self, text: Stream, marks: PieceMarks) -> Iterator[Batch]:
        """Whole rows alone."""
        size = self.length - 1
        rows, whole = max(1, HELD_OUT // size), len(text.ids) // size
        if not whole:
            raise NextwordError(
                f"The held-out text has {len(text.ids)} tokens, fewer than the {size} that one row needs. Give more "
                "text, or shorter rows (--set phase.0.batches.length=…)."
            )
        for at in range(0, whole, rows):
            places = np.arange(at * size, min(at + rows, whole) * size).reshape(-1, size)
            yield self.batch(text, places, np.random.default_rng([INFILLING_HELD_OUT_SEED, at]), marks, 0)

    def batch(
        self, text: Stream, places: np.ndarray, draw: np.random.Generator, marks: PieceMarks, epoch: int
    ) -> Batch:
        """The rows of text at these places (R, n), taken apart."""
        ids = text.ids[places].astype(np.int64)
        weights = np.cumsum(self.mix) / sum(self.mix)
        ways = np.searchsorted(weights, draw.random(len(ids)), side="right").clip(max=DOCUMENT)
        sizes = np.full(len(ids), ids.shape[1])
        if self.short:
            cut = draw.random(len(ids)) < self.short
            sizes = np.where(cut, draw.integers(SHORTEST, sizes + 1), sizes)
        gone, begins = self.taken(ids, (text.marks[places] & SENTENCE) > 0, sizes, ways, draw, marks)
        read, positions, targets = apart(ids, gone, begins, sizes, ways, draw, marks)
        at = np.flatnonzero(targets != IGNORE)
        inputs = Inputs(torch.from_numpy(read), positions=torch.from_numpy(positions))
        return Batch(
            inputs, torch.from_numpy(targets), fresh=True, epoch=epoch, at=torch.from_numpy(at), predicted=len(at)
        )

    def taken(
        self,
        ids: np.ndarray,  # (R, n)
        starts: np.ndarray,  # (R, n) bool: a sentence begins here
        sizes: np.ndarray,  # (R,) tokens of each text
        ways: np.ndarray,  # (R,)
        draw: np.random.Generator,
        marks: PieceMarks,
    ) -> tuple[np.ndarray, np.ndarray]:
        """(R, n) bool, twice: which tokens go, and with which of them a piece begins."""
        column, size = np.arange(ids.shape[1]), sizes[:, None]
        # Ends of documents stay, and what a piece would have beyond one is a piece of its own
        inner = (ids != marks.end) & (column < size)
        wanted = np.maximum(1, (self.share * size).astype(np.int64))
        gone = few_tokens(size, ids.shape[1], wanted, self.mean, draw) & inner
        begins = gone & ~_before(gone)
        whole, firsts = sentences(starts, inner, wanted, draw)
        rest = size - draw.integers(np.maximum(1, np.ceil(self.least * size).astype(np.int64)), size + 1)
        after, first = (column >= rest) & (column < size), column == rest
        way = ways[:, None]
        gone = np.where(way == TOKENS, gone, np.where(way == SENTENCES, whole, after))
        return gone, np.where(way == TOKENS, begins, np.where(way == SENTENCES, firsts, first))


# ------------------------------------------------------------------------------------------------ what is taken out


def few_tokens(size: np.ndarray, width: int, wanted: np.ndarray, mean: float, draw: np.random.Generator) -> np.ndarray:
    """(R, width) bool: pieces of Poisson lengths until no fewer than `wanted` (R, 1) tokens of the first `size` (R, 1)
    are out, none beside another."""
    rows, most = len(size), int(wanted.max())
    lengths = np.arange(1, LONGEST + 1)
    odds = np.cumsum(np.exp(lengths * math.log(mean) - [math.lgamma(n + 1) for n in lengths]))
    drawn = 1 + np.searchsorted(odds / odds[-1], draw.random((rows, most))).clip(max=LONGEST - 1)
    drawn = np.minimum(drawn, np.maximum(1, size + 2 - 2 * wanted))  # so that all find room, with a token between them
    short = np.cumsum(drawn, 1) - drawn < wanted  # there were not yet enough
    pieces = short.sum(1, keepdims=True)
    # In an order of their own, since the one that made it enough is long more often than not
    order = np.where(short, draw.random(drawn.shape), 2.0).argsort(1, kind="stable")
    drawn = np.take_along_axis(drawn * short, order, 1)
    short = np.take_along_axis(short, order, 1)
    free = size - drawn.sum(1, keepdims=True) - pieces + 1  # tokens that stay, but for one between each two pieces
    places = np.where(short, (draw.random(drawn.shape) * (free + 1)).astype(np.int64), width)
    first = np.sort(places, 1) + np.cumsum(drawn + 1, 1) - (drawn + 1)
    edges = np.zeros((rows, width + 1), np.int64)
    row = np.nonzero(short)[0]
    np.add.at(edges, (row, first[short]), 1)
    np.add.at(edges, (row, (first + drawn)[short]), -1)
    return np.cumsum(edges, 1)[:, :width] > 0


def sentences(
    starts: np.ndarray, inner: np.ndarray, wanted: np.ndarray | int, draw: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """(R, n) bool, twice: tokens of whole sentences, in random order until no fewer than `wanted` are out; and firsts.

    A row begins, and goes on after the end of a document (where not `inner`), with a sentence, begun before or not.
    """
    rows, size = starts.shape
    first = inner & (starts | ~_before(inner))
    number = np.cumsum(first, 1)  # 0: none yet
    row = np.arange(rows)[:, None]
    count = np.bincount((row * (size + 1) + number)[inner], minlength=rows * (size + 1)).reshape(rows, size + 1)
    order = np.where(count > 0, draw.random(count.shape), 2.0).argsort(1, kind="stable")
    lengths = np.take_along_axis(count, order, 1)
    chosen = np.zeros(count.shape, bool)
    np.put_along_axis(chosen, order, (np.cumsum(lengths, 1) - lengths < wanted) & (lengths > 0), 1)
    gone = np.take_along_axis(chosen, number, 1) & inner
    return gone, gone & first


def _before(flags: np.ndarray) -> np.ndarray:
    """What holds of the token before each (R, n); of nothing before the first."""
    return np.concatenate([np.zeros((len(flags), 1), bool), flags[:, :-1]], 1)


# ------------------------------------------------------------------------------------------------ how it is read


def apart(
    text: np.ndarray,  # (R, n)
    gone: np.ndarray,  # (R, n) bool
    begins: np.ndarray,  # (R, n) bool: a piece begins here
    sizes: np.ndarray,  # (R,) tokens of each text
    ways: np.ndarray,  # (R,) of TOKENS, SENTENCES, DOCUMENT; a DOCUMENT's piece has no end
    draw: np.random.Generator | Sequence[Sequence[int]],  # or the order of each row's pieces, written out
    marks: PieceMarks,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What is read (R, T), its positions (R, T, 2), and what is predicted (R, T); rows are padded at their end."""
    rows = len(text)
    stays = (~gone | begins) & (np.arange(text.shape[1]) < sizes[:, None])
    column = np.cumsum(stays, 1)  # in part A: of a piece that of its mask; in column 0 stands what texts begin with
    first = column[:, -1] + 1  # of part B
    piece = np.cumsum(begins, 1) - 1
    count = np.maximum(begins.sum(1), 1)
    most = int(count.max())
    row = np.broadcast_to(np.arange(rows)[:, None], text.shape)
    length = np.bincount((row * most + piece)[gone], minlength=rows * most).reshape(rows, most)
    turn = _order(draw, count, most)  # (R, most) which comes first, second, …
    room = np.take_along_axis(length + (length > 0), turn, 1)
    offset = np.zeros_like(room)
    np.put_along_axis(offset, turn, np.cumsum(room, 1) - room, 1)

    ends = (length > 0) & (ways != DOCUMENT)[:, None]
    width = int((first + room.sum(1)).max())
    width = -(-width // EIGHTS) * EIGHTS
    read = np.full((rows, width), marks.begin, np.int64)  # which also pads, at the end, where nobody sees it
    positions = np.zeros((rows, width, 2), np.int64)
    positions[:, :, 1] = np.arange(width) >= first[:, None]
    targets = np.full((rows, width), IGNORE, np.int64)

    masks = np.asarray(marks.masks)[ways]
    read[row[stays], column[stays]] = np.where(begins, masks[:, None], text)[stays]
    positions[row[stays], column[stays], 0] = column[stays]

    of, number = np.nonzero(begins)[0], piece[begins]  # every piece: its row, and which of them
    start = first[of] + offset[of, number]
    positions[of, start, 0] = column[begins]  # where S stands
    closed = ends[of, number]
    targets[of[closed], (start + length[of, number])[closed]] = marks.end

    r, p = row[gone], piece[gone]
    since = np.zeros(text.shape, np.int64)
    since[begins] = np.nonzero(begins)[1]
    inside = (np.arange(text.shape[1]) - np.maximum.accumulate(since, 1))[gone]
    at = first[r] + offset[r, p] + inside
    targets[r, at] = text[gone]
    fed = ends[r, p] | (inside < length[r, p] - 1)  # where nothing ends a piece, its last token is not read
    r, at, inside = r[fed], at[fed] + 1, inside[fed]
    read[r, at] = text[gone][fed]
    positions[r, at, 0] = column[gone][fed]
    positions[r, at, 1] = inside + 2
    return read, positions, targets


def _order(draw: np.random.Generator | Sequence[Sequence[int]], count: np.ndarray, most: int) -> np.ndarray:
    """(R, most) numbers of a row's pieces in the order of reading; those that are not there come last."""
    if isinstance(draw, np.random.Generator):
        keys = draw.random((len(count), most))
        return np.where(np.arange(most) < count[:, None], keys, 2.0).argsort(1, kind="stable")
    return np.array([[*own, *range(len(own), most)] for own in draw])
