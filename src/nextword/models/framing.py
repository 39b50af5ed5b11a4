"""Frames: texts dressed with a network's own tokens for a task, many frames as one batch, and what a head reads of it.

    classify   one text                      before a after                              one frame
    entail     premise, hypothesis           before a between b after                    one
    similar    two texts, neither first      before a between b after                    one, or one for each order
    choose     a context, then its answers   before context between answer after         one for each answer

What stands before, between and after is each paper's affair, and so is which token's vector speaks for the whole. The
table follows Radford et al. (2018, section 3.3 and figure 1). From there to a head:

    texts ──network.frames(task, …)──▶ frames ──collate──▶ Inputs, speaks ──network.encode──▶ h (B, T, D)
    h, speaks ──spoken──▶ (B, D) ──a row an example──▶ (…, n, D) ──combine──▶ what the head reads

A text that does not fit is cut at its end, the longer one first; `Framed.parts` shows what is left of each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import NextwordError, Unsupported
from nextword.core.types import IGNORE, Encoding, FramedText, Inputs

SPREAD = 0.02  # new rows are drawn from N(0, 0.02²), as the paper draws all of them
TASKS = {  # texts that a task is given, in words, and how many they may be
    "classify": ("one text", 1, 1),
    "entail": ("a premise and a hypothesis", 2, 2),
    "similar": ("two texts", 2, 2),
    "choose": ("a context and then two answers or more", 3, None),
}
Marks = tuple[Sequence[int], Sequence[int], Sequence[int]]  # ids before, between and after the texts; any may be empty


# ------------------------------------------------------------------------------------------------ one frame


def frame_texts(texts: Sequence[Encoding], marks: Marks, window: int | None = None) -> FramedText:
    """One text or two between their marks, cut to the window; the last token speaks."""
    before, between, after = marks
    own = len(before) + len(after) + (len(between) if len(texts) > 1 else 0)
    lengths = [len(text) for text in texts]
    if window is not None:
        if window - own < len(texts):
            raise NextwordError(
                f"The window is {window} tokens and the frame itself takes {own} of them, which leaves too few for "
                f"{len(texts)} text{'s' if len(texts) > 1 else ''}. Take a network with a longer window."
            )
        lengths = [*truncate_pair(lengths[0], sum(lengths[1:]), window - own)][: len(texts)]
    ids, parts = list(before), []
    for i, (text, length) in enumerate(zip(texts, lengths, strict=True)):
        ids += between if i else ()
        parts.append((len(ids), len(ids) + length))
        ids += text.ids[:length].tolist()
    ids += after
    return FramedText(np.array(ids, np.int64), len(ids) - 1, text_spans=tuple(parts))


def truncate_pair(a: int, b: int, room: int) -> tuple[int, int]:
    """How much is left of two lengths when the longer loses one (of equals, the second) until both fit.

    Good: fit(10, 3, 8) = (5, 3), fit(10, 10, 7) = (4, 3).
    """
    a = min(a, max(room - b, (room + 1) // 2))
    return a, min(b, room - a)


# ------------------------------------------------------------------------------------------------ a task


def frames_for_task(frame: Callable[..., FramedText], task: str, texts: Sequence[Encoding]) -> list[FramedText]:
    """The frames of one example; `frame` is the network's own."""
    _known(task)
    words, least, most = TASKS[task]
    if len(texts) < least or (most and len(texts) > most):
        raise NextwordError(f"The task '{task}' is about {words}, but {len(texts)} were given.")
    if task == "choose":
        return [frame(texts[0], answer) for answer in texts[1:]]
    return [frame(*texts)]


def combine(task: str, vectors: Tensor) -> Tensor:
    """What a head reads, of the vectors (…, n, D) that speak in the n frames of an example.

    (…, n, D) for "choose", a row an answer, to be scored one by one and then against each other; otherwise (…, D), in
    which both orders of "similar" are added up.
    """
    _known(task)
    return vectors if task == "choose" else vectors.sum(-2)


def _known(task: str) -> None:
    if task not in TASKS:
        raise NextwordError(f"No task is called '{task}'. There are: {', '.join(TASKS)}.")


# ------------------------------------------------------------------------------------------------ many frames


def collate(frames: Sequence[FramedText], pad: int, device: torch.device | str | None = None) -> tuple[Inputs, Tensor]:
    """Frames as rows of one batch, padded at their end, and the position (B,) that speaks in each.

    What `pad` is matters to nobody: `Inputs.token_mask` says where it stands, and from left to right it comes too late.
    """
    if not frames:
        raise NextwordError("There is no frame to make a batch of. Give at least one.")
    segmented = [frame for frame in frames if frame.segments is not None]
    if len(segmented) not in (0, len(frames)):
        raise NextwordError(
            f"{len(segmented)} of {len(frames)} frames have segments, so they are of different networks. Make a batch "
            "of one network's alone."
        )
    lengths = torch.tensor([len(frame.ids) for frame in frames])
    ids = _rows([frame.ids for frame in frames], pad)
    inputs = Inputs(
        ids.to(device),
        token_mask=(torch.arange(ids.shape[1]) < lengths.unsqueeze(1)).to(device),
        segments=_rows([f.segments for f in frames if f.segments is not None], 0).to(device) if segmented else None,
    )
    return inputs, torch.tensor([frame.pooled_position for frame in frames], device=device)


def _rows(rows: Sequence[np.ndarray], pad: int) -> Tensor:
    """(B, T), as long as the longest."""
    out = np.full((len(rows), max(map(len, rows))), pad, np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return torch.from_numpy(out)


def take_positions(h: Tensor, pooled_position: Tensor) -> Tensor:
    """The vectors (B, D) that speak, of a layer (B, T, D)."""
    return h[torch.arange(len(h), device=h.device), pooled_position]


def next_token_targets(inputs: Inputs, size: int) -> Tensor:
    """Targets (B, T) for the loss of the language model beside the task's: at each token the next one.

    IGNORE where the next is padding or a token beyond the vocabulary's `size`, for those are never predicted.
    """
    after = F.pad(inputs.ids[:, 1:], (0, 1), value=IGNORE)
    there = after < size
    if inputs.token_mask is not None:
        there &= F.pad(inputs.token_mask[:, 1:], (0, 1), value=False)
    return after.masked_fill(~there, IGNORE)


# ------------------------------------------------------------------------------------------------ room for new tokens


def add_missing_tokens(network: Any, generator: torch.Generator | None = None) -> Any:
    """The network with room for the tokens that its frames need and its vocabulary lacks: grown, if it is not yet."""
    missing = network.num_extra_tokens - (network.config.extra if network.num_extra_tokens else 0)
    return resize_embeddings(network, missing, generator) if missing > 0 else network


def resize_embeddings(network: Any, n: int, generator: torch.Generator | None = None) -> Any:
    """Room for n more tokens, whose ids follow all others; the same network, with `extra` = n more in its Config.

        embedding (V, D)  as it was, and the readout with it: what it predicts, and how likely, stays to the bit
        extra     (n, D)  drawn from N(0, 0.02²), read and never predicted

    A recipe for the grown network says so under [model], extra = …, and with that it is saved and loaded like any
    other. Grow before an optimizer is made: it would not know of the new rows.
    """
    if n < 0:
        raise NextwordError(f"A network cannot grow by {n} tokens. Give 0 or more.")
    config = network.config
    if not network.num_extra_tokens:
        raise Unsupported(
            f"{type(network).__name__} has no room for tokens beyond its vocabulary: its [model] has no key `extra`. "
            "Its frames need none."
        )
    if network.is_quantized:
        raise Unsupported(
            f"The weights are in {config.bits} bits and cannot be trained, so new tokens would never mean anything. "
            "Grow the network that they were made of."
        )
    if not n:
        return network
    like = network.embedding.weight
    rows = torch.empty(n, like.shape[1]).normal_(0, SPREAD, generator=generator).to(like)
    if network.extra is not None:
        rows = torch.cat([network.extra.weight.detach(), rows])
    network.extra = nn.Embedding.from_pretrained(rows, freeze=False).train(network.training)
    network.config = dataclasses.replace(config, extra=config.extra + n)
    network.fast.reset()
    return network
