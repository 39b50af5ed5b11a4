"""Framing: put a network's special tokens around the texts of a task, and collate frames into a batch.

    classify   one text                      before a after                              one frame
    entail     premise, hypothesis           before a between b after                    one frame
    similar    two texts, neither first      before a between b after                    one frame, or one per order
    choose     a context, then its answers   before context between answer after         one frame per answer

Each paper says what stands before, between and after, and which token's vector represents the text. The table follows
Radford et al. (2018, section 3.3 and figure 1). From texts to the input of a task head:

    texts ──network.frames(task, …)──▶ frames ──collate──▶ Inputs, positions ──network.encode──▶ h (B, T, D)
    h, positions ──take_positions──▶ (B, D) ──one row per example──▶ (…, n, D) ──combine──▶ what the head reads

Texts that do not fit are cut at their end, the longer one first; `FramedText.text_spans` shows what is left of each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import DataError, InvalidSetting, UnknownName, Unsupported, did_you_mean
from nextword.core.types import IGNORE, Encoding, FramedText, Inputs

SPREAD = 0.02  # new rows are drawn from N(0, 0.02²), as GPT draws all of them
TASKS = {  # what a task's texts are, and how many there may be
    "classify": ("one text", 1, 1),
    "entail": ("a premise and a hypothesis", 2, 2),
    "similar": ("two texts", 2, 2),
    "choose": ("a context and at least two answers", 3, None),
}
Marks = tuple[Sequence[int], Sequence[int], Sequence[int]]  # ids before, between and after the texts; any may be empty


# ------------------------------------------------------------------------------------------------ one frame


def frame_texts(texts: Sequence[Encoding], marks: Marks, window: int | None = None) -> FramedText:
    """One text or two between their marks, cut to the window; the last token's vector represents them."""
    before, between, after = marks
    num_marks = len(before) + len(after) + (len(between) if len(texts) > 1 else 0)
    lengths = [len(text) for text in texts]
    if window is not None:
        if window - num_marks < len(texts):
            raise InvalidSetting(
                f"A window of {window} tokens is too small: the special tokens take {num_marks} of them. Use a network "
                "with a longer window.",
                key="model.window",
                value=window,
            )
        lengths = [*truncate_pair(lengths[0], sum(lengths[1:]), window - num_marks)][: len(texts)]
    ids, spans = list(before), []
    for i, (text, length) in enumerate(zip(texts, lengths, strict=True)):
        ids += between if i else ()
        spans.append((len(ids), len(ids) + length))
        ids += text.ids[:length].tolist()
    ids += after
    return FramedText(np.array(ids, np.int64), len(ids) - 1, text_spans=tuple(spans))


def truncate_pair(a: int, b: int, room: int) -> tuple[int, int]:
    """What is left of two lengths when the longer loses one token (of equals, the second) until both fit.

    >>> truncate_pair(10, 3, 8), truncate_pair(10, 10, 7)
    ((5, 3), (4, 3))
    """
    a = min(a, max(room - b, (room + 1) // 2))
    return a, min(b, room - a)


# ------------------------------------------------------------------------------------------------ one example


def frames_for_task(frame: Callable[..., FramedText], task: str, texts: Sequence[Encoding]) -> list[FramedText]:
    """The frames of one example; `frame` is the network's own."""
    _check_task(task)
    description, least, most = TASKS[task]
    if len(texts) < least or (most and len(texts) > most):
        raise DataError(f"The task '{task}' needs {description}, but got {len(texts)} texts.")
    if task == "choose":
        return [frame(texts[0], answer) for answer in texts[1:]]
    return [frame(*texts)]


def combine(task: str, vectors: Tensor) -> Tensor:
    """What a head reads, from the vectors (…, n, D) that represent the n frames of an example.

    For "choose" (…, n, D), because each answer is scored by itself; otherwise their sum (…, D), over both orders of
    "similar".
    """
    _check_task(task)
    return vectors if task == "choose" else vectors.sum(-2)


def _check_task(task: str) -> None:
    if task not in TASKS:
        raise UnknownName(
            f"There is no frame '{task}'.{did_you_mean(task, TASKS)} Use one of {', '.join(TASKS)}.",
            name=task,
            known=TASKS,
        )


# ------------------------------------------------------------------------------------------------ a batch


def collate(frames: Sequence[FramedText], pad: int, device: torch.device | str | None = None) -> tuple[Inputs, Tensor]:
    """Frames as rows of a batch, padded at their end, and the position (B,) whose vector represents each.

    The pad id does not matter: `Inputs.token_mask` tells where it is, and left-to-right networks never see it.
    """
    if not frames:
        raise DataError("A batch needs at least one frame.")
    segments = [frame.segments for frame in frames if frame.segments is not None]
    if len(segments) not in (0, len(frames)):
        raise DataError(
            f"{len(segments)} of {len(frames)} frames have segments, so they belong to different networks. Collate "
            "those of one network at a time."
        )
    lengths = torch.tensor([len(frame.ids) for frame in frames])
    ids = _pad_rows([frame.ids for frame in frames], pad)
    inputs = Inputs(
        ids.to(device),
        token_mask=(torch.arange(ids.shape[1]) < lengths.unsqueeze(1)).to(device),
        segments=_pad_rows(segments, 0).to(device) if segments else None,
    )
    return inputs, torch.tensor([frame.pooled_position for frame in frames], device=device)


def _pad_rows(rows: Sequence[np.ndarray], pad: int) -> Tensor:
    out = np.full((len(rows), max(map(len, rows))), pad, np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return torch.from_numpy(out)  # (B, T)


def take_positions(h: Tensor, positions: Tensor) -> Tensor:
    """The vector at one position of each row: (B, T, D), (B,) → (B, D)."""
    return h[torch.arange(len(h), device=h.device), positions]


def next_token_targets(inputs: Inputs, size: int) -> Tensor:
    """Targets (B, T) of an auxiliary language-model loss: the next token at each position.

    IGNORE where the next token is padding, or a special token beyond the vocabulary's `size`, which is never predicted.
    """
    following = F.pad(inputs.ids[:, 1:], (0, 1), value=IGNORE)
    is_target = following < size
    if inputs.token_mask is not None:
        is_target &= F.pad(inputs.token_mask[:, 1:], (0, 1), value=False)
    return following.masked_fill(~is_target, IGNORE)


# ------------------------------------------------------------------------------------------------ extra special tokens


def add_missing_tokens(network: Any, generator: torch.Generator | None = None) -> Any:
    """Give a network embeddings for the special tokens that its frames need, unless it has them already."""
    if not network.num_extra_tokens:
        return network
    return resize_embeddings(network, max(0, network.num_extra_tokens - network.config.extra_tokens), generator)


def resize_embeddings(network: Any, n: int, generator: torch.Generator | None = None) -> Any:
    """Add embeddings for n more tokens, whose ids follow all others; returns the same network.

        embedding (V, D)  unchanged, and the readout with it: predictions stay the same to the bit
        extra     (n, D)  drawn from N(0, 0.02²), read and never predicted

    Its Config then has n more `extra_tokens`, and a recipe must say so too ([model] extra_tokens = …). Resize before
    making an optimizer, which would not know the new rows.
    """
    if n < 0:
        raise InvalidSetting(f"Cannot add {n} tokens to a network. Give 0 or more.", key="n", value=n)
    if not network.num_extra_tokens:
        raise Unsupported(
            f"{type(network).__name__} has no embeddings beyond its vocabulary (no `extra_tokens` in [model]), and its "
            "frames need none.",
            ability="extra tokens",
        )
    if network.is_quantized:
        raise Unsupported(
            "The weights are int8 and cannot be trained, so new tokens would stay random. Resize the network before "
            "quantizing it.",
            ability="extra tokens",
        )
    if not n:
        return network
    like = network.embedding.weight
    rows = torch.empty(n, like.shape[1]).normal_(0, SPREAD, generator=generator).to(like)
    if network.extra is not None:
        rows = torch.cat([network.extra.weight.detach(), rows])
    network.extra = nn.Embedding.from_pretrained(rows, freeze=False).train(network.training)
    network.config = dataclasses.replace(network.config, extra_tokens=network.config.extra_tokens + n)
    network.fast.reset()  # captured graphs have the old embeddings
    return network
