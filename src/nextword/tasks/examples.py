"""Examples of a task, framed: all ids end to end in one array, and batches of examples of like length.

    ids      [CLS] a a [SEP] [CLS] b b b b [SEP] …        starts  0 4 10 …     one frame after the other
    epoch    a permutation, cut into stretches; each is sorted by length and cut into batches, and those are shuffled

So a batch has next to no padding and is nevertheless as good as drawn at random. It lies padded, or packed into one row
for networks that read that. Batch k is made of (seed, k) alone.

Words that have no id, for networks that read words by their letters.

The zweiback was stale .          12  ▢  7  ▢  3     ▢ is a number from the network's `known` on, one a new word
characters  z w e i b a c k, s t a l e               their letters go with the batch (`Inputs.characters`)

Texts of a task into frames of a network: tokenized together, cut where they are too long, dressed by the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nextword.batching.examples import Examples, Unseen, joined
from nextword.core.errors import NextwordError, Unsupported
from nextword.core.protocols import Autoregressive, Encoder, Tokenizer
from nextword.core.types import Encoding, FramedText
from nextword.models.framing import truncate_pair

Sizes = tuple[int, ...]


def examples(
    network: Any,
    tokenizer: Tokenizer,
    frame: str,
    texts: Sequence[str],
    seconds: Sequence[str] | None,
    labels: np.ndarray | None = None,
    length: int = 0,
    pieces: bool = False,
) -> tuple[Examples, int]:
    """Framed examples, and how many of them were cut to `length` tokens (0: to the network's window).

    `frame` is a task of models/frames.py. Without labels they are all 0. `pieces`: a network that carries its state
    reads them piece by piece, so that they lie end to end whatever their lengths (heads/pieces.py).
    """
    check_texts(network)
    unseen = Unseen(network, tokenizer)
    columns = [
        [unseen.ids(text, one) for text, one in zip(some, tokenizer.encode_batch(list(some)), strict=True)]
        for some in (texts, seconds)
        if some is not None
    ]
    if getattr(network, "is_backward", False):
        columns = [[ids[::-1] for ids in some] for some in columns]
    room = room_for(network, frame, len(columns), length)
    molds: dict[Sizes, list[Mold]] = {}
    frames: list[FramedText] = []
    cut = 0
    for several in zip(*columns, strict=True):
        whole: Sizes = tuple(map(len, several))
        sizes = _within(room, whole)
        cut += sizes != whole
        if sizes not in molds:
            molds[sizes] = [
                Mold(one, len(sizes)) for one in network.frames(frame, [blank(i, n) for i, n in enumerate(sizes)])
            ]
        frames += [mold.filled(several, sizes) for mold in molds[sizes]]
    each = len(frames) // len(texts) if texts else 1
    given = np.zeros(len(texts), np.int64) if labels is None else labels
    packs = not isinstance(network, Autoregressive) or (pieces and getattr(network, "is_stateful", False))
    return joined(frames, given, each, packs, unseen if unseen.words else None), cut


class Mold:
    """A frame of texts that have these lengths: what stands around them depends on nothing else."""

    def __init__(self, frame: FramedText, texts: int) -> None:
        self.frame = frame
        self.places = [np.flatnonzero(frame.ids == _mark(i)) for i in range(texts)]

    def filled(self, texts: Sequence[np.ndarray], sizes: Sizes) -> FramedText:
        ids = self.frame.ids.copy()
        for text, places, size in zip(texts, self.places, sizes, strict=True):
            if len(places):  # a frame may be of one of two texts alone
                ids[places] = text[:size]
        return replace(self.frame, ids=ids)


def places(network: Any, frame: str, sizes: Sizes) -> list[list[np.ndarray]]:
    """Of each frame of an example whose texts have these lengths: where the tokens of each text lie in it."""
    return [Mold(one, len(sizes)).places for one in network.frames(frame, [blank(i, n) for i, n in enumerate(sizes)])]


def fitted(network: Any, frame: str, sizes: Sizes, length: int) -> Sizes:
    """How many tokens of each text are read where an example may have `length` of them (0: as the window allows)."""
    return _within(room_for(network, frame, len(sizes), length), sizes)


def _within(room: int | None, sizes: Sizes) -> Sizes:
    return sizes if room is None or sum(sizes) <= room else truncate_pair(sizes[0], sum(sizes[1:]), room)[: len(sizes)]


def _mark(text: int) -> int:
    """An id that no vocabulary has, for every token of the text."""
    return -1 - text


def blank(text: int, size: int) -> Encoding:
    nowhere = np.zeros((size, 2), np.int64)
    return Encoding(np.full(size, _mark(text), np.int64), nowhere, nowhere[:, 0])


def check(network: Any) -> None:
    if not isinstance(network, Encoder) or not hasattr(network, "frames"):
        raise Unsupported(
            f"{type(network).__name__} has no vectors inside, so no head can be put over it. Transfer a network "
            "instead (`nextword papers` says which can embed)."
        )


def check_learning(network: Any) -> None:
    """That it can be trained, whatever the head."""
    if getattr(network.config, "bits", 0):
        raise Unsupported("Weights in eight bits are for reading and cannot be trained. Transfer the run they came of.")


def check_texts(network: Any) -> None:
    """That it can read texts, and not only sentences of words with their letters."""
    check(network)
    if getattr(network, "longest", 0):
        raise Unsupported(
            f"{type(network).__name__} reads sentences word by word, with the letters of each, so that a head over it "
            "can tag words and nothing else. Transfer another run."
        )


def room_for(network: Any, frame: str, columns: int, length: int) -> int | None:
    """Tokens of text that fit beside those of the frame; None: any number."""
    own = len(network.frames(frame, [blank(i, 0) for i in range(columns)])[0].ids)
    return room_beside(network, own, columns, length)


def room_beside(network: Any, own: int, columns: int, length: int) -> int | None:
    """The same, of a frame that has so many tokens of its own."""
    window = getattr(network.config, "window", 0)
    most = min(filter(None, (length, window)), default=0)
    if not most:
        return None
    if most - own < columns:
        raise NextwordError(
            f"Examples may have {most} tokens, of which the frame itself takes {own}: too few are left for the text. "
            "Give more (--set phase.0.batches.length=…), or a network with a longer window."
        )
    return most - own
