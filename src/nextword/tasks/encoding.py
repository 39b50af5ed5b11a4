"""Encode the texts of a task for a network: tokenize, truncate, and add the network's special tokens.

    ids      [CLS] a a [SEP] [CLS] b b b b [SEP] …        starts  0 4 10 …     one frame after the other

All ids are in one array (batching/examples.py). The special tokens around a text depend only on its length, so each
combination of lengths is framed once, with placeholders, and filled in for every example (`FrameTemplate`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nextword.batching.examples import Examples, UnknownWords, join_frames
from nextword.core.errors import InvalidSetting, Unsupported
from nextword.core.protocols import Autoregressive, Encoder
from nextword.core.types import Encoding, FramedText
from nextword.models.framing import truncate_pair
from nextword.tokenizers.base import Tokenizer

Sizes = tuple[int, ...]  # tokens of each text of an example


def encode_texts(
    network: Any,
    tokenizer: Tokenizer,
    frame: str,
    texts: Sequence[str],
    seconds: Sequence[str] | None,
    labels: np.ndarray | None = None,
    length: int = 0,
    pieces: bool = False,
) -> tuple[Examples, int]:
    """Return the framed examples, and how many of them were truncated to `length` tokens (0: to the network's window).

    `frame` is a task of models/framing.py. Labels default to 0. `pieces`: a stateful network will read the examples
    piece by piece, so they are packed end to end.
    """
    require_text_network(network)
    unseen = UnknownWords(network, tokenizer)
    columns = [
        [
            unseen.ids(text, encoding)
            for text, encoding in zip(column, tokenizer.encode_batch(list(column)), strict=True)
        ]
        for column in (texts, seconds)
        if column is not None
    ]
    if network.is_backward:
        columns = [[ids[::-1] for ids in column] for column in columns]
    room = max_text_tokens(network, frame, len(columns), length)
    templates: dict[Sizes, list[FrameTemplate]] = {}
    frames: list[FramedText] = []
    num_truncated = 0
    for example in zip(*columns, strict=True):
        full: Sizes = tuple(map(len, example))
        sizes = _truncate(room, full)
        num_truncated += sizes != full
        if sizes not in templates:
            templates[sizes] = _templates(network, frame, sizes)
        frames += [template.fill(example, sizes) for template in templates[sizes]]
    frames_per_example = len(frames) // len(texts) if texts else 1
    targets = np.zeros(len(texts), np.int64) if labels is None else labels
    is_packed = (pieces and network.is_stateful) or not isinstance(network, Autoregressive)
    return join_frames(frames, targets, frames_per_example, is_packed, unseen if unseen.words else None), num_truncated


# ------------------------------------------------------------------------------------------------ templates


class FrameTemplate:
    """A frame for texts of given lengths, with placeholders where their tokens go."""

    def __init__(self, frame: FramedText, num_texts: int) -> None:
        self.frame = frame
        self.positions = [np.flatnonzero(frame.ids == _placeholder_id(i)) for i in range(num_texts)]

    def fill(self, texts: Sequence[np.ndarray], sizes: Sizes) -> FramedText:
        ids = self.frame.ids.copy()
        for text, positions, size in zip(texts, self.positions, sizes, strict=True):
            if len(positions):  # a frame may contain only one of two texts
                ids[positions] = text[:size]
        return replace(self.frame, ids=ids)


def _templates(network: Any, frame: str, sizes: Sizes) -> list[FrameTemplate]:
    frames = network.frames(frame, [placeholder(i, n) for i, n in enumerate(sizes)])
    return [FrameTemplate(one, len(sizes)) for one in frames]


def text_positions(network: Any, frame: str, sizes: Sizes) -> list[list[np.ndarray]]:
    """For each frame of an example whose texts have these sizes: the positions of the tokens of each text."""
    return [template.positions for template in _templates(network, frame, sizes)]


def placeholder(text: int, size: int) -> Encoding:
    zeros = np.zeros((size, 2), np.int64)
    return Encoding(np.full(size, _placeholder_id(text), np.int64), zeros, zeros[:, 0])


def _placeholder_id(text: int) -> int:
    """A negative id, which no vocabulary has."""
    return -1 - text


# ------------------------------------------------------------------------------------------------ truncation


def truncated_sizes(network: Any, frame: str, sizes: Sizes, length: int) -> Sizes:
    """Tokens kept of each text if an example may have `length` tokens (0: as many as the window)."""
    return _truncate(max_text_tokens(network, frame, len(sizes), length), sizes)


def _truncate(room: int | None, sizes: Sizes) -> Sizes:
    return sizes if room is None or sum(sizes) <= room else truncate_pair(sizes[0], sum(sizes[1:]), room)[: len(sizes)]


def max_text_tokens(network: Any, frame: str, num_texts: int, length: int) -> int | None:
    """Tokens left for texts next to the frame's special tokens; None: no bound."""
    empty = network.frames(frame, [placeholder(i, 0) for i in range(num_texts)])[0]
    return room_in_frame(network, len(empty.ids), num_texts, length)


def room_in_frame(network: Any, num_special: int, num_texts: int, length: int) -> int | None:
    """The same for a frame with this many special tokens."""
    window = network.max_positions
    limit = min(filter(None, (length, window)), default=0)
    if not limit:
        return None
    if limit - num_special < num_texts:
        raise InvalidSetting(
            f"Examples are limited to {limit} tokens, and the frame takes {num_special} of them, so no text fits. "
            "Increase --set phase.0.batches.length=…, or use a network with a longer window.",
            key="phase.0.batches.length",
            value=limit,
        )
    return limit - num_special


# ------------------------------------------------------------------------------------------------ which networks


def require_encoder(network: Any) -> None:
    if not isinstance(network, Encoder):
        raise Unsupported(
            f"{type(network).__name__} has no hidden states for a task head. Fine-tune a neural network instead "
            "(`nextword papers` lists those that can embed).",
            ability="encode",
        )


def require_trainable(network: Any) -> None:
    if network.is_quantized:
        raise Unsupported(
            "Int8 weights cannot be trained. Fine-tune the run they were quantized from.", ability="train"
        )


def require_text_network(network: Any) -> None:
    """Require a network that reads whole texts, not a tagger that reads words by their characters."""
    require_encoder(network)
    if network.max_characters:
        raise Unsupported(
            f"{type(network).__name__} reads word by word, so its only task is tagging. Fine-tune another run.",
            ability="predict",
        )
