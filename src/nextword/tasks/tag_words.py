"""Sentences that are split into words already, into frames of a network, and which token stands for which word.

    Washington spoke   ──encode──▶  Wash ##ing ##ton spoke   ──network.frame──▶  [CLS] Wash ##ing ##ton spoke [SEP]
    word               0            0    0     0     1        its token                1                4

Words are joined by spaces, so that every tokenizer sees them as it sees text, and says which word each token lies in. A
space within a word is written as an underscore.

Sentences with a tag for every word, framed: tokens end to end, words end to end, and batches of like length.

    tokens    [CLS] Wash ##ing ##ton spoke [SEP] [CLS] …        starts        0 6 …      one frame after the other
    words           0                1                          words         1 4 …      its token within the frame
    tags            S-LOC            O                          word_starts   0 2 …

A batch has (B, W) tags, padded with IGNORE, and the flat position of each word's token; None where rows are the words
themselves. Letters and vectors in context go with words, for the networks that read them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from nextword.batching.examples import Bucketed, Unseen, gathered
from nextword.core.errors import NextwordError, Unsupported
from nextword.core.protocols import Autoregressive, Infilling, Tokenizer
from nextword.core.types import IGNORE, Batch, Encoding, Framed
from nextword.layers.char_cnn import PADDING, letters_of
from nextword.tasks.examples import check, room_for


@dataclass(frozen=True)
class TaggedExamples:
    ids: np.ndarray  # (N,) of all frames
    starts: np.ndarray  # (sentences + 1,) where each frame begins
    words: np.ndarray  # (M,) the token of each word, counted from its frame's beginning; −1: it was cut off
    word_starts: np.ndarray  # (sentences + 1,)
    tags: np.ndarray  # (M,) int64: places in `names`
    names: tuple[str, ...] = ()  # of all tags; those that no training sentence has come last
    spans: bool = False  # tags are those of spans
    segments: np.ndarray | None = None  # (N,)
    letters: Any = None  # (M, L) array, or what is indexed as one (untagged.py)
    features: np.ndarray | None = field(default=None, repr=False)  # (layers, M, D) float16, perhaps on disk
    packs: bool = False  # the network that they are framed for reads texts end to end
    metrics: tuple[str, ...] = ()
    unseen: Unseen | None = field(default=None, repr=False)  # words without an id, where the network reads letters
    bytes: int = field(default=0, repr=False)  # of text: not known, so nobody speaks of bits per byte

    each = 1  # frame an example

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    @property
    def speaks(self) -> np.ndarray:
        """No token speaks for the whole; with 0 a batch says where frames begin."""
        return np.zeros(len(self), np.int64)

    @property
    def labels(self) -> np.ndarray:
        return self.speaks

    @cached_property
    def own(self) -> bool:
        """Tokens are the words themselves."""
        sizes = np.diff(self.word_starts)
        places = np.arange(len(self.words)) - np.repeat(self.word_starts[:-1], sizes)
        return np.array_equal(self.starts, self.word_starts) and np.array_equal(self.words, places)

    def of(self, sentence: int) -> np.ndarray:
        """The tags of one sentence."""
        return self.tags[self.word_starts[sentence] : self.word_starts[sentence + 1]]

    def first(self, tokens: int | None) -> TaggedExamples:
        """The sentences of the first so many tokens, at least one; None: all."""
        if tokens is None or tokens >= len(self.ids):
            return self
        return self.take(np.arange(max(1, int(np.searchsorted(self.starts, tokens, side="right")) - 1)))

    def take(self, chosen: np.ndarray) -> TaggedExamples:
        """These sentences, in this order."""
        tokens, starts = gathered(self.starts, chosen)
        words, word_starts = gathered(self.word_starts, chosen)
        return replace(
            self,
            ids=self.ids[tokens],
            starts=starts,
            words=self.words[words],
            word_starts=word_starts,
            tags=self.tags[words],
            segments=None if self.segments is None else self.segments[tokens],
            letters=None if self.letters is None else self.letters[words],
            features=None if self.features is None else self.features[:, words],
        )


class Sentences(Bucketed):
    """`rows` sentences a batch; else as examples of a task are laid out."""

    def batch(self, text: Any, chosen: np.ndarray, epoch: int) -> Batch:
        batch = super().batch(text, chosen, epoch)
        taken, starts = gathered(text.word_starts, chosen)
        sizes = np.diff(starts)
        there = np.arange(max(1, int(sizes.max()))) < sizes[:, None]  # (B, W)
        inputs = batch.inputs
        if text.letters is not None:
            inputs.characters = torch.from_numpy(_spread(_trimmed(text.letters[taken]), there, PADDING))
        if text.features is not None:
            layers = [_spread(np.asarray(layer[taken]), there, 0) for layer in text.features]
            inputs.features = torch.from_numpy(np.stack(layers))
        at = None
        if text.packs or not text.own:
            assert batch.at is not None
            token = text.words[taken]
            flat = np.repeat(batch.at.numpy(), sizes) + token
            at = torch.from_numpy(_spread(np.where(token < 0, -1, flat), there, -1))
        tags = torch.from_numpy(_spread(text.tags[taken], there, IGNORE))
        return Batch(inputs, tags, fresh=True, epoch=epoch, at=at, predicted=len(taken))


def _spread(values: np.ndarray, there: np.ndarray, padding: int) -> np.ndarray:
    """(M, …) → (B, W, …)."""
    rows = np.full((*there.shape, *values.shape[1:]), padding, values.dtype)
    rows[there] = values
    return rows


def _trimmed(letters: np.ndarray) -> np.ndarray:
    """Without the columns at the end that no word of these reaches; three are always kept."""
    used = np.flatnonzero((letters != PADDING).any(0))
    return letters[:, : max(3, int(used[-1]) + 1 if len(used) else 0)]


_SPACE = re.compile(r"\s")


def joined(words: Sequence[str]) -> str:
    return " ".join(map(unbroken, words))


def unbroken(word: str) -> str:
    """One word of a text, whatever was written as one: 10 000 is 10_000."""
    return _SPACE.sub("_", word)


def sentences(
    network: Any,
    tokenizer: Tokenizer,
    words: Sequence[Sequence[str]],
    tags: Sequence[Sequence[int]] | None = None,
    length: int = 0,
) -> tuple[TaggedExamples, int]:
    """Framed sentences of at least one word each, and of how many words there is no token: they were cut off.

    `length`: tokens of a sentence, at most (0: the network's window). Without tags they are all 0.
    """
    check(network)
    if getattr(network, "is_backward", False):
        raise Unsupported(
            "[model] backward reads texts from their end, and words are tagged in order: no head of tags goes over it. "
            "Its vectors can be read beside words instead (`contextual`)."
        )
    empty = next((i for i, one in enumerate(words) if not one), None)
    if empty is not None:
        raise NextwordError(f"Sentence {empty + 1} has no words. Leave it out.")
    room = room_for(network, "classify", 1, length)
    last = isinstance(network, Autoregressive) and not isinstance(network, Infilling)
    framed: list[Framed] = []
    tokens: list[np.ndarray] = []
    unseen = Unseen(network, tokenizer)
    for one, encoding in zip(words, _encoded(words, tokenizer, unseen), strict=True):
        part = encoding if room is None else _cut(encoding, room)
        frame = network.frame(part)
        framed.append(frame)
        tokens.append(tokens_of(part, len(one), last, *frame.parts[0]))
    sizes = np.fromiter(map(len, words), np.int64, len(words))
    at = np.concatenate(tokens) if tokens else np.zeros(0, np.int64)
    segments = [frame.segments for frame in framed if frame.segments is not None]
    every = [word for one in words for word in one]
    longest = getattr(network, "longest", 0)
    found = TaggedExamples(
        ids=np.concatenate([frame.ids for frame in framed]) if framed else np.zeros(0, np.int64),
        starts=_starts([len(frame.ids) for frame in framed]),
        words=at,
        word_starts=_starts(sizes),
        tags=np.zeros(len(at), np.int64) if tags is None else np.array([tag for one in tags for tag in one], np.int64),
        segments=np.concatenate(segments) if segments else None,
        letters=letters_of(every, longest) if longest else None,
        packs=not isinstance(network, Autoregressive) and not getattr(network, "tags_words", False),
        unseen=unseen if unseen.words else None,
    )
    if longest and not found.own:
        raise NextwordError(
            f"{type(network).__name__} reads words one by one, but its tokenizer cuts them ({tokenizer.kind}). Give it "
            'one of kind "words", or "lexicon" with whole = true.'
        )
    return found, int((at < 0).sum())


def _encoded(words: Sequence[Sequence[str]], tokenizer: Tokenizer, unseen: Unseen) -> Sequence[Encoding]:
    """Of each sentence; a network that reads letters gets every word whole, those it never saw by their spelling."""
    if not unseen.spells:
        return tokenizer.encode_batch([joined(one) for one in words])
    return [Encoding(unseen.of_words(one), np.zeros((len(one), 2), np.int64), np.arange(len(one))) for one in words]


def tokens_of(encoding: Encoding, words: int, last: bool, begin: int, end: int) -> np.ndarray:
    """(words,): the first token of each, or the last, in a frame whose text lies from `begin` to `end`; −1: none."""
    found = np.full(words, -1, np.int64)
    some, at, count = np.unique(encoding.words, return_index=True, return_counts=True)
    at = at + count - 1 if last else at
    fits = (some < words) & (at < end - begin)
    found[some[fits]] = begin + at[fits]
    return found


def _cut(encoding: Encoding, room: int) -> Encoding:
    return replace(encoding, ids=encoding.ids[:room], spans=encoding.spans[:room], words=encoding.words[:room])


def _starts(sizes: Sequence[int] | np.ndarray) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
