"""Encode the texts of a task for a network: tokenize, truncate, and add the network's special tokens.

    ids      [CLS] a a [SEP] [CLS] b b b b [SEP] …        starts  0 4 10 …     one frame after the other

All ids are in one array (batching/examples.py). The special tokens around a text depend only on its length, so each
combination of lengths is framed once, with placeholders, and filled in for every example (`Framer`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nextword.batching.examples import Examples, UnknownWords
from nextword.core.errors import InvalidSetting, Unsupported
from nextword.core.protocols import Autoregressive, Encoder
from nextword.core.types import Encoding, FramedText
from nextword.models.base import Network
from nextword.models.framing import truncate_pair
from nextword.tokenizers.base import Tokenizer

Sizes = tuple[int, ...]  # tokens of each text of an example


def encode_texts(
    network: Network,
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
    framer = Framer(network, tokenizer, 1 if seconds is None else 2, length, frame)
    columns = [framer.encode(column) for column in (texts, seconds) if column is not None]
    if network.is_backward:
        columns = [[ids[::-1] for ids in column] for column in columns]
    frames: list[FramedText] = []
    num_truncated = 0
    for example in zip(*columns, strict=True):
        full: Sizes = tuple(map(len, example))
        sizes = _truncate(framer.room, full)
        num_truncated += sizes != full
        frames += framer.frame(*(ids[:size] for ids, size in zip(example, sizes, strict=True)))
    examples = Examples.from_frames(
        frames,
        labels=np.zeros(len(texts), np.int64) if labels is None else labels,
        each=len(frames) // len(texts) if texts else 1,
        packs=(pieces and network.is_stateful) or framer.packs,
        unseen=framer.unseen,
    )
    return examples, num_truncated


# ------------------------------------------------------------------------------------------------ frames


class Framer:
    """Encodes texts, and puts the special tokens of a network around one or two of them.

    `task` is a frame of models/framing.py; "": one frame for both texts. `length`: tokens of an example; 0: the window.
    """

    def __init__(self, network: Network, tokenizer: Tokenizer, num_texts: int, length: int = 0, task: str = "") -> None:
        require_text_network(network)
        self.network, self.task = network, task
        self.unseen = UnknownWords(network, tokenizer)
        self.packs = not isinstance(network, Autoregressive)  # frames are read end to end, without padding
        self.room = max_text_tokens(network, task, num_texts, length)  # tokens of all texts; None: no bound
        self._templates: dict[Sizes, list[_Template]] = {}

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text."""
        return self.unseen.encode(texts)

    def frame(self, *texts: np.ndarray) -> list[FramedText]:
        """The frames of one example."""
        sizes: Sizes = tuple(map(len, texts))
        if sizes not in self._templates:
            frames = _frames_of_placeholders(self.network, self.task, sizes)
            self._templates[sizes] = [_Template(frame, len(sizes)) for frame in frames]
        return [template.fill(texts) for template in self._templates[sizes]]


class _Template:
    """A frame for texts of given lengths, with placeholders where their tokens go."""

    def __init__(self, frame: FramedText, num_texts: int) -> None:
        self.frame = frame
        self.positions = [np.flatnonzero(frame.ids == _placeholder_id(i)) for i in range(num_texts)]

    def fill(self, texts: Sequence[np.ndarray]) -> FramedText:
        ids = self.frame.ids.copy()
        for text, positions in zip(texts, self.positions, strict=True):
            if len(positions):  # a frame may contain only one of two texts
                ids[positions] = text
        return replace(self.frame, ids=ids)


def text_positions(network: Network, frame: str, sizes: Sizes) -> list[list[np.ndarray]]:
    """For each frame of an example whose texts have these sizes: the positions of the tokens of each text."""
    return [_Template(one, len(sizes)).positions for one in _frames_of_placeholders(network, frame, sizes)]


def _frames_of_placeholders(network: Network, task: str, sizes: Sizes) -> list[FramedText]:
    texts = []
    for i, size in enumerate(sizes):
        zeros = np.zeros((size, 2), np.int64)
        texts.append(Encoding(np.full(size, _placeholder_id(i), np.int64), zeros, zeros[:, 0]))
    return network.frames(task, texts) if task else [network.frame(*texts)]


def _placeholder_id(text: int) -> int:
    """A negative id, which no vocabulary has."""
    return -1 - text


# ------------------------------------------------------------------------------------------------ truncation


def truncated_sizes(network: Network, frame: str, sizes: Sizes, length: int) -> Sizes:
    """Tokens kept of each text if an example may have `length` tokens (0: as many as the window)."""
    return _truncate(max_text_tokens(network, frame, len(sizes), length), sizes)


def _truncate(room: int | None, sizes: Sizes) -> Sizes:
    return sizes if room is None or sum(sizes) <= room else truncate_pair(sizes[0], sum(sizes[1:]), room)[: len(sizes)]


def max_text_tokens(network: Network, frame: str, num_texts: int, length: int) -> int | None:
    """Tokens left for texts next to the frame's special tokens; None: no bound."""
    num_special = len(_frames_of_placeholders(network, frame, (0,) * num_texts)[0].ids)
    limit = min(filter(None, (length, network.max_positions)), default=0)
    if limit and limit - num_special < num_texts:
        raise InvalidSetting(
            f"Examples are limited to {limit} tokens, and the frame takes {num_special} of them, so no text fits. "
            "Increase --set phase.0.batches.length=…, or use a network with a longer window.",
            key="phase.0.batches.length",
            value=limit,
        )
    return limit - num_special if limit else None


# ------------------------------------------------------------------------------------------------ which networks


def require_encoder(network: Network) -> None:
    if not isinstance(network, Encoder):
        raise Unsupported(
            f"{type(network).__name__} has no hidden states for a task head. Fine-tune a neural network instead "
            "(`nextword papers` lists those that can embed).",
            ability="encode",
        )


def require_trainable(network: Network) -> None:
    if network.is_quantized:
        raise Unsupported(
            "Int8 weights cannot be trained. Fine-tune the run they were quantized from.", ability="train"
        )


def require_text_network(network: Network) -> None:
    """Require a network that reads whole texts, not a tagger that reads words by their characters."""
    require_encoder(network)
    if network.max_characters:
        raise Unsupported(
            f"{type(network).__name__} reads word by word, so its only task is tagging. Fine-tune another run.",
            ability="predict",
        )
