"""Examples of tasks, framed for a network, in batches of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
import torch

from nextword.batching.settings import require_bool, require_count
from nextword.core.errors import invalid
from nextword.core.types import Batch, Encoding, FramedText, Inputs
from nextword.tokenizers.base import Tokenizer

LENGTH_MULTIPLE = 128  # the length of the longest text is rounded up to this: a bound with few values
VALIDATION_FACTOR = 4  # validation batches hold this many training batches, because nothing is kept for a backward pass
UNLABELED = -1  # Batch.task_index of a batch without labels


# ------------------------------------------------------------------------------------------------ unknown words


class UnknownWords:
    """Words without an id, for a network that reads letters (it has `spelled`): numbered from `network.known` on."""

    def __init__(self, network: Any, tokenizer: Tokenizer) -> None:
        self.network, self.tokenizer = network, tokenizer
        self.reads_letters = network.is_open_vocabulary
        self.unknown = next((id for name, id in tokenizer.special.items() if "unk" in name.lower()), None)
        self.words: dict[bytes, int] = {}
        self.numbers: dict[str, int] = {}  # of words that were looked up one by one

    def ids(self, text: str, encoding: Encoding) -> np.ndarray:
        """The ids of a text, with a number of its own for every unknown word."""
        ids = encoding.ids.astype(np.int64)
        if self.reads_letters and self.unknown is not None:
            raw = text.encode()
            for at in np.flatnonzero(ids == self.unknown).tolist():
                ids[at] = self._number(raw[slice(*encoding.spans[at])])
        return ids

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text."""
        encodings = self.tokenizer.encode_batch(list(texts))
        return [self.ids(text, encoding) for text, encoding in zip(texts, encodings, strict=True)]

    def of_words(self, words: Sequence[str]) -> np.ndarray:
        """The ids of given words, one for each, however the tokenizer would split them."""
        for word in dict.fromkeys(word for word in words if word not in self.numbers):
            ids = self.tokenizer.encode_batch([word])[0].ids
            is_known = len(ids) == 1 and ids[0] != self.unknown
            self.numbers[word] = int(ids[0]) if is_known else self._number(word.encode())
        return np.array([self.numbers[word] for word in words], np.int64)

    def _number(self, word: bytes) -> int:
        return self.network.known + self.words.setdefault(word, len(self.words))

    def spelled(self, inputs: Inputs) -> Inputs:
        """Add the letters of the unknown words in these inputs."""
        is_new = inputs.ids >= self.network.known if self.words else None
        if is_new is None or not is_new.any():
            return inputs
        numbers, places = inputs.ids[is_new].unique(return_inverse=True)
        names = list(self.words)
        letters = self.network.spell([names[id - self.network.known] for id in numbers.tolist()])
        ids = inputs.ids.masked_scatter(is_new, places + self.network.known)
        return replace(inputs, ids=ids, characters=letters)


# ------------------------------------------------------------------------------------------------ examples


@dataclass(frozen=True)
class FramedExamples:
    """Framed texts as one array of ids. `each` frames belong to an example: two if a pair is read in both orders."""

    ids: np.ndarray  # (N,) of all frames, one after the other
    starts: np.ndarray  # (frames + 1,) where each begins
    pooled_position: np.ndarray  # (frames,) the position in it whose vector stands for the whole
    segments: np.ndarray | None = None  # (N,)
    each: int = 1
    packs: bool = False  # the network reads texts end to end, without padding
    metrics: tuple[str, ...] = ()  # the first one decides
    unseen: UnknownWords | None = field(default=None, repr=False)  # words without an id

    bytes: ClassVar[int] = 0  # of text: unknown, so there are no bits per byte

    @classmethod
    def from_frames(cls, frames: Sequence[FramedText], **fields: Any) -> Self:
        """Examples from their frames; `fields` are the other fields of the class."""
        sizes = np.fromiter((len(frame.ids) for frame in frames), np.int64, len(frames))
        segments = [frame.segments for frame in frames if frame.segments is not None]
        return cls(
            ids=np.concatenate([frame.ids for frame in frames]) if frames else np.zeros(0, np.int64),
            starts=np.concatenate(([0], np.cumsum(sizes))),
            pooled_position=np.fromiter((frame.pooled_position for frame in frames), np.int64, len(frames)),
            segments=np.concatenate(segments) if segments else None,
            **fields,
        )

    def __len__(self) -> int:
        return (len(self.starts) - 1) // self.each

    @property
    def lengths(self) -> np.ndarray:
        """(examples,) tokens, special tokens included."""
        return np.diff(self.starts).reshape(-1, self.each).sum(1)

    def first(self, tokens: int | None) -> Self:
        """The examples within the first `tokens` tokens, at least one; None: all."""
        if tokens is None or tokens >= len(self.ids):
            return self
        return self.take(np.arange(max(1, int(np.searchsorted(np.cumsum(self.lengths), tokens, side="right")))))

    def frame_indices(self, chosen: np.ndarray) -> np.ndarray:
        """The frames of these examples, one example after the other."""
        return (chosen[:, None] * self.each + np.arange(self.each)).reshape(-1)

    def take(self, chosen: np.ndarray) -> Self:
        """These examples, in this order."""
        frames = self.frame_indices(chosen)
        tokens, starts = gather_ranges(self.starts, frames)
        return replace(
            self,
            ids=self.ids[tokens],
            starts=starts,
            pooled_position=self.pooled_position[frames],
            segments=None if self.segments is None else self.segments[tokens],
        )


@dataclass(frozen=True, kw_only=True)
class Examples(FramedExamples):
    """Texts with a label for each."""

    labels: np.ndarray  # (examples,) int64 classes, or float32 numbers
    gold: np.ndarray | None = field(default=None, repr=False)  # (examples,) the truth, if labels only approximate it

    def take(self, chosen: np.ndarray) -> Self:
        gold = None if self.gold is None else self.gold[chosen]
        return replace(super().take(chosen), labels=self.labels[chosen], gold=gold)


def gather_ranges(starts: np.ndarray, chosen: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The places in the chosen ranges, one range after the other, and where each range then begins."""
    chosen = np.asarray(chosen, np.int64)
    sizes = starts[chosen + 1] - starts[chosen]
    ends = np.cumsum(sizes)
    taken = np.repeat(starts[chosen] - (ends - sizes), sizes) + np.arange(ends[-1] if len(ends) else 0)
    return taken, np.concatenate(([0], ends))


# ------------------------------------------------------------------------------------------------ batches


class Measured(Protocol):
    """Examples that can be sorted by length."""

    def __len__(self) -> int: ...
    @property
    def lengths(self) -> np.ndarray: ...


TextT = TypeVar("TextT", bound=Measured)


@dataclass(frozen=True)
class Bucketed(Generic[TextT]):
    """`rows` examples per batch, of at most `length` tokens each (0: as many as the network can read).

    The texts of `batches_per_bucket` batches are sorted by length together, so that a batch has little padding.
    `pack = false` pads even if the network can read texts end to end. With `pad_multiple`, a packed row gets one more
    text, of padding, up to a multiple of that many tokens, so that batches have few shapes.
    """

    rows: int = 32
    length: int = 128
    batches_per_bucket: int = 50
    pack: bool = True
    pad_multiple: int = 0

    def __post_init__(self) -> None:
        require_count("batches.rows", self.rows)
        require_count("batches.length", self.length, least=0)
        require_count("batches.batches_per_bucket", self.batches_per_bucket)
        require_count("batches.pad_multiple", self.pad_multiple, least=0)
        require_bool("batches.pack", self.pack)
        most = self.length or LENGTH_MULTIPLE
        if self.pad_multiple > most:
            raise invalid(
                "batches.pad_multiple", self.pad_multiple, f"exceeds length = {most}. Lower it, or set it to 0."
            )

    def batches_per_epoch(self, text: TextT) -> int:
        return -(-len(text) // self.rows)

    def batches(self, text: TextT, seed: int, step: int) -> Iterator[Batch]:
        yield from self.epoch_batches(text, seed, step, self.batches_per_epoch(text))

    def epoch_batches(self, text: TextT, seed: int, step: int, per_epoch: int) -> Iterator[Batch]:
        """Yield the batches of epoch after epoch, from this step on."""
        planned = -1
        plan: list[np.ndarray] = []
        while True:
            epoch, i = divmod(step, per_epoch)
            if epoch != planned:
                planned, plan = epoch, self.plan_epoch(text, seed, epoch)
            yield self.batch(text, plan[i], epoch)
            step += 1

    def plan_epoch(self, text: TextT, seed: int, epoch: int) -> list[np.ndarray]:
        """Which examples are in each batch of an epoch."""
        rng, lengths = np.random.default_rng([seed, epoch]), text.lengths
        order = self.draw_order(text, rng, seed, epoch)
        batches: list[np.ndarray] = []
        for at in range(0, len(order), self.rows * self.batches_per_bucket):
            bucket = order[at : at + self.rows * self.batches_per_bucket]
            bucket = bucket[np.argsort(-lengths[bucket], kind="stable")]
            batches += [bucket[i : i + self.rows] for i in range(0, len(bucket), self.rows)]
        return [batches[i] for i in rng.permutation(len(batches))]

    def draw_order(self, text: TextT, rng: np.random.Generator, seed: int, epoch: int) -> np.ndarray:
        """The examples of an epoch, in random order."""
        return rng.permutation(len(text))

    def validation_order(self, text: TextT) -> np.ndarray:
        """All examples, the longest first: the order of `validation_batches`."""
        return np.argsort(-text.lengths, kind="stable")

    def validation_batches(self, text: TextT) -> Iterator[Batch]:
        order, rows = self.validation_order(text), self.rows * VALIDATION_FACTOR
        for at in range(0, len(order), rows):
            yield self.batch(text, order[at : at + rows], 0)

    def batch(self, text: Any, chosen: np.ndarray, epoch: int) -> Batch:
        """The batch of these examples; `target_positions` are the pooled positions, `each` for an example."""
        inputs, begins = self.read(text, chosen)
        positions = begins + text.pooled_position[text.frame_indices(chosen)]
        return Batch(
            inputs,
            torch.from_numpy(text.labels[chosen]),
            reset_state=True,
            epoch=epoch,
            target_positions=torch.from_numpy(positions),
            num_targets=len(chosen),
        )

    def read(self, text: FramedExamples, chosen: np.ndarray) -> tuple[Inputs, np.ndarray]:
        """What the network reads, and where each frame begins in it, as a flat position."""
        frames = text.frame_indices(chosen)
        taken, starts = gather_ranges(text.starts, frames)
        begins, sizes = starts[:-1], np.diff(starts)
        ids = text.ids[taken]
        segments = None if text.segments is None else text.segments[taken]
        if text.packs and self.pack:
            ids, segments, starts = self._fill_row(ids, segments, starts)
            row_segments = None if segments is None else torch.from_numpy(segments[None])
            inputs = Inputs(torch.from_numpy(ids[None]), segments=row_segments, starts=torch.from_numpy(starts))
            inputs.longest = -(-int(np.diff(starts).max()) // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
        else:
            longest = int(sizes.max())
            is_token = np.arange(longest) < sizes[:, None]
            begins = np.arange(len(frames)) * longest
            padded_segments = None if segments is None else _pad(segments, is_token)
            inputs = Inputs(_pad(ids, is_token), torch.from_numpy(is_token), padded_segments)
        inputs.sizes = tuple(sizes.tolist())
        return inputs if text.unseen is None else text.unseen.spelled(inputs), begins

    def _fill_row(
        self, ids: np.ndarray, segments: np.ndarray | None, starts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """Append one text of padding, never empty, up to a multiple of `pad_multiple`."""
        if not self.pad_multiple:
            return ids, segments, starts
        padding = np.zeros(self.pad_multiple - len(ids) % self.pad_multiple, ids.dtype)
        return (
            np.concatenate([ids, padding]),
            None if segments is None else np.concatenate([segments, padding.astype(segments.dtype)]),
            np.append(starts, starts[-1] + len(padding)),
        )


def _pad(values: np.ndarray, is_token: np.ndarray) -> torch.Tensor:
    """(B, T), padded with 0, which the token mask hides."""
    rows = np.zeros(is_token.shape, np.int64)
    rows[is_token] = values
    return torch.from_numpy(rows)
