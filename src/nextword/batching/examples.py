"""Examples of tasks in batches of like length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from nextword.core.errors import NextwordError
from nextword.core.protocols import Tokenizer
from nextword.core.types import Batch, Encoding, Framed, Inputs


class Unseen:
    """Words that have no id, for a network that reads letters (it has `spelled`): numbered from its `known` on."""

    def __init__(self, network: Any, tokenizer: Tokenizer) -> None:
        self.network, self.tokenizer = network, tokenizer
        self.spells = hasattr(network, "spelled")
        self.unknown = next((id for name, id in tokenizer.special.items() if "unk" in name.lower()), None)
        self.words: dict[bytes, int] = {}
        self.numbers: dict[str, int] = {}  # of words that were asked for one by one

    def ids(self, text: str, encoding: Encoding) -> np.ndarray:
        """The ids of a text, in which a word that is unknown has a number of its own."""
        ids = encoding.ids.astype(np.int64)
        if self.spells and self.unknown is not None:
            raw = text.encode()
            for at in np.flatnonzero(ids == self.unknown).tolist():
                ids[at] = self._number(raw[slice(*encoding.spans[at])])
        return ids

    def of_words(self, words: Sequence[str]) -> np.ndarray:
        """Of words that stay as they are, whatever the tokenizer would make of them."""
        for word in dict.fromkeys(word for word in words if word not in self.numbers):
            found = self.tokenizer.encode_batch([word])[0].ids
            known = len(found) == 1 and found[0] != self.unknown
            self.numbers[word] = int(found[0]) if known else self._number(word.encode())
        return np.array([self.numbers[word] for word in words], np.int64)

    def _number(self, word: bytes) -> int:
        return self.network.known + self.words.setdefault(word, len(self.words))

    def spelled(self, inputs: Inputs) -> Inputs:
        """With the letters of those words that are in it."""
        new = inputs.ids >= self.network.known if self.words else None
        if new is None or not new.any():
            return inputs
        found, places = inputs.ids[new].unique(return_inverse=True)
        names = list(self.words)
        letters = self.network.spelled([names[id - self.network.known] for id in found.tolist()])
        ids = inputs.ids.masked_scatter(new, places + self.network.known)
        return replace(inputs, ids=ids, characters=letters)


NEAR = 128  # what the length of the longest text is rounded up to: a bound with few values


AHEAD = 4  # batches of training in one of validation, which keeps nothing for a backward pass


@dataclass(frozen=True)
class Examples:
    """`each` frames belong to an example: two where a paper reads a pair in both orders."""

    ids: np.ndarray  # (N,) of all frames
    starts: np.ndarray  # (frames + 1,) where each begins
    speaks: np.ndarray  # (frames,) the position in it whose vector stands for the whole
    labels: np.ndarray  # (examples,) int64 classes, or float32 numbers
    segments: np.ndarray | None = None  # (N,)
    each: int = 1
    packs: bool = False  # the network that they are framed for reads texts end to end
    metrics: tuple[
        str, ...
    ] = ()  # of nextword.metrics.classification: what is to be said of predictions; the first decides
    unseen: Unseen | None = field(default=None, repr=False)  # words without an id, where the network reads letters
    gold: np.ndarray | None = field(default=None, repr=False)  # (examples,) what is right, if labels only come near it
    bytes: int = field(default=0, repr=False)  # of text: not known, so nobody speaks of bits per byte

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> np.ndarray:
        """(examples,) tokens, the frame's own included."""
        return np.diff(self.starts).reshape(-1, self.each).sum(1)

    def first(self, tokens: int | None) -> Examples:
        """Those of the first so many tokens, at least one; None: all."""
        if tokens is None or tokens >= len(self.ids):
            return self
        return self.take(np.arange(max(1, int(np.searchsorted(self.starts[:: self.each], tokens, side="right")) - 1)))

    def take(self, chosen: np.ndarray) -> Examples:
        """These examples, in this order."""
        frames = frames_of(self, chosen)
        taken, starts = gathered(self.starts, frames)
        return replace(
            self,
            ids=self.ids[taken],
            starts=starts,
            speaks=self.speaks[frames],
            labels=self.labels[chosen],
            gold=None if self.gold is None else self.gold[chosen],
            segments=None if self.segments is None else self.segments[taken],
        )


def frames_of(text: Any, chosen: np.ndarray) -> np.ndarray:
    """The frames of these examples, one example after the other."""
    counts = getattr(text, "counts", None)
    if counts is None:
        return (chosen[:, None] * text.each + np.arange(text.each)).reshape(-1)
    return gathered(np.concatenate(([0], np.cumsum(counts))), chosen)[0]


def gathered(starts: np.ndarray, chosen: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of all that lies in the chosen stretches, one after the other, and where each then begins."""
    chosen = np.asarray(chosen, np.int64)
    sizes = starts[chosen + 1] - starts[chosen]
    ends = np.cumsum(sizes)
    taken = np.repeat(starts[chosen] - (ends - sizes), sizes) + np.arange(ends[-1] if len(ends) else 0)
    return taken, np.concatenate(([0], ends))


def joined(
    frames: Sequence[Framed], labels: np.ndarray, each: int = 1, packs: bool = False, unseen: Unseen | None = None
) -> Examples:
    """Examples of their frames, `each` after the other."""
    sizes = np.fromiter((len(frame.ids) for frame in frames), np.int64, len(frames))
    parts = [frame.segments for frame in frames if frame.segments is not None]
    return Examples(
        np.concatenate([frame.ids for frame in frames]) if frames else np.zeros(0, np.int64),
        np.concatenate(([0], np.cumsum(sizes))),
        np.fromiter((frame.speaks for frame in frames), np.int64, len(frames)),
        labels,
        np.concatenate(parts) if parts else None,
        each,
        packs,
        unseen=unseen,
    )


@dataclass(frozen=True)
class Bucketed:
    """`rows` examples a batch, of at most `length` tokens each (0: as many as the network can read); `stretch` batches
    are sorted by length together.

    `pack = false` pads also where the network could read texts end to end. With `fill`, one more text, of padding,
    fills such a row up to a multiple of so many tokens: then batches have few shapes.
    """

    rows: int = 32
    length: int = 128
    stretch: int = 50
    pack: bool = True
    fill: int = 0

    def __post_init__(self) -> None:
        for name, least in (("rows", 1), ("length", 0), ("stretch", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise NextwordError(f"batches: {name} = {value!r} must be a whole number of at least {least}.")
        most = self.length or NEAR
        if isinstance(self.fill, bool) or not isinstance(self.fill, int) or not 0 <= self.fill <= most:
            raise NextwordError(
                f"batches: fill = {self.fill!r} must be a whole number, at most length, {most}; 0 is for none."
            )
        if not isinstance(self.pack, bool):
            raise NextwordError(f"batches: pack = {self.pack!r} must be true or false.")

    def per_epoch(self, text: Any) -> int:
        return -(-len(text) // self.rows)

    def batches(self, text: Any, seed: int, step: int) -> Iterator[Batch]:
        yield from self.epochs(text, seed, step, self.per_epoch(text))

    def epochs(self, text: Any, seed: int, step: int, per_epoch: int) -> Iterator[Batch]:
        """Epoch after epoch, from this step on."""
        known, order = -1, []
        while True:
            epoch, i = divmod(step, per_epoch)
            if epoch != known:
                known, order = epoch, self.epoch(text, seed, epoch)
            yield self.batch(text, order[i], epoch)
            step += 1

    def epoch(self, text: Any, seed: int, epoch: int) -> list[np.ndarray]:
        """Which examples are in each batch of an epoch."""
        draw, lengths = np.random.default_rng([seed, epoch]), text.lengths
        drawn = self.drawn(text, draw, seed, epoch)
        found: list[np.ndarray] = []
        for at in range(0, len(drawn), self.rows * self.stretch):
            some = drawn[at : at + self.rows * self.stretch]
            some = some[np.argsort(-lengths[some], kind="stable")]
            found += [some[i : i + self.rows] for i in range(0, len(some), self.rows)]
        return [found[i] for i in draw.permutation(len(found))]

    def drawn(self, text: Any, draw: np.random.Generator, seed: int, epoch: int) -> np.ndarray:
        """Which examples an epoch has, in the order that chance gives."""
        return draw.permutation(len(text))

    def in_order(self, text: Any) -> np.ndarray:
        """All examples, the longest first: the order in which they are read without training."""
        return np.argsort(-text.lengths, kind="stable")

    def held_out(self, text: Any) -> Iterator[Batch]:
        order, rows = self.in_order(text), self.rows * AHEAD
        for at in range(0, len(order), rows):
            yield self.batch(text, order[at : at + rows], 0)

    def batch(self, text: Any, chosen: np.ndarray, epoch: int) -> Batch:
        """`at` are the flat positions that speak, `each` for an example."""
        frames = frames_of(text, chosen)
        taken, starts = gathered(text.starts, frames)
        begins, sizes = starts[:-1], np.diff(starts)
        ids = text.ids[taken]
        segments = None if text.segments is None else text.segments[taken]
        if text.packs and self.pack:
            ids, segments, starts = self._filled(ids, segments, starts)
            inputs = Inputs(_tensor(ids[None]), segments=_tensor(segments, row=True), starts=_tensor(starts))
            inputs.longest = -(-int(np.diff(starts).max()) // NEAR) * NEAR
        else:
            longest = int(sizes.max())
            there = np.arange(longest) < sizes[:, None]
            begins = np.arange(len(frames)) * longest
            inputs = Inputs(_padded(ids, there), _tensor(there), None if segments is None else _padded(segments, there))
        inputs.sizes = tuple(sizes.tolist())
        if text.unseen is not None:
            inputs = text.unseen.spelled(inputs)
        at = _tensor(begins + text.speaks[frames])
        labels = _tensor(text.labels[chosen])
        return Batch(inputs, labels, fresh=True, epoch=epoch, at=at, predicted=len(chosen))

    def _filled(
        self, ids: np.ndarray, segments: np.ndarray | None, starts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        if not self.fill:
            return ids, segments, starts
        more = np.zeros(self.fill - len(ids) % self.fill, ids.dtype)  # one at least: there is always such a text
        return (
            np.concatenate([ids, more]),
            None if segments is None else np.concatenate([segments, more.astype(segments.dtype)]),
            np.append(starts, starts[-1] + len(more)),
        )


def _tensor(values: np.ndarray | None, row: bool = False) -> torch.Tensor:
    """None stays None: networks without segments have none."""
    if values is None:
        return None  # type: ignore[return-value]
    return torch.from_numpy(values[None] if row else values)


def _padded(values: np.ndarray, there: np.ndarray) -> torch.Tensor:
    """(B, T), padded with 0, which nobody looks at."""
    rows = np.zeros(there.shape, np.int64)
    rows[there] = values
    return torch.from_numpy(rows)


UNTAGGED = -1  # the part of a batch without tags
