"""One of several candidates, over any network: each is framed with its context and scored, and a softmax is over them.

    frames of an example ──network.encode──▶ the vector that speaks in each ──linear──▶ scores (B, K) ──softmax──▶ p

How context, question and candidate are dressed follows the papers, and is seen from what a network can do:

    sees both sides            context │ question candidate        BERT, RoBERTa on SWAG and RACE
    reads from left to right   context question │ candidate        GPT: Radford et al. 2018, section 3.3

What does not fit is cut: the context at its end while it is the longer side, then the question, the candidate last.

Examples that offer candidates: a frame for each, as many as there are, scored one against the other.

It rained. [SEP] He got wet.     ┐
It rained. [SEP] He ate.         ├ one example: (B, K) positions that speak, −1 where an example has fewer than K
It rained. [SEP] …               ┘
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from nextword.batching.examples import Bucketed, Examples, Unseen
from nextword.core.errors import NextwordError
from nextword.core.protocols import Autoregressive, Infilling, Tokenizer
from nextword.core.types import Batch, FramedText
from nextword.models.framing import truncate_pair
from nextword.tasks.examples import Mold, blank, check_texts, room_beside
from nextword.tasks.heads import HeadConfig, Headed, pooled


@dataclass(frozen=True)
class Choices(Examples):
    counts: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # (examples,) candidates
    most: int = 0  # of all examples, those that were left out too: what is said of one has this width

    @property
    def lengths(self) -> np.ndarray:
        """(examples,) tokens of all candidates."""
        ends = np.cumsum(self.counts)
        return self.starts[ends] - self.starts[ends - self.counts]

    def first(self, tokens: int | None) -> Choices:
        if tokens is None or tokens >= len(self.ids):
            return self
        ends = self.starts[np.cumsum(self.counts)]
        return self.take(np.arange(max(1, int(np.searchsorted(ends, tokens, side="right")))))

    def take(self, chosen: np.ndarray) -> Choices:
        return cast(Choices, replace(super().take(chosen), counts=self.counts[chosen]))  # type: ignore[call-arg]


@dataclass(frozen=True)
class Candidates(Bucketed):
    """`rows` examples a batch, with all their candidates."""

    def batch(self, text: Any, chosen: np.ndarray, epoch: int) -> Batch:
        batch = super().batch(text, chosen, epoch)
        if not isinstance(text, Choices):
            return batch
        assert batch.target_positions is not None
        there = torch.arange(text.most) < torch.from_numpy(text.counts[chosen]).unsqueeze(1)  # (B, K)
        at = torch.full(there.shape, -1, dtype=torch.long).masked_scatter(there, batch.target_positions)
        return replace(batch, target_positions=at)


class Choosing(Headed):
    """A score for each candidate, of the vector that speaks for its frame, or of the mean."""

    def __init__(self, config: HeadConfig, network: Any) -> None:
        if config.classifier != "linear":
            raise NextwordError(
                f"[task] classifier = {config.classifier!r}: candidates are scored by a linear layer. Leave it out."
            )
        super().__init__(config, network)

    def judge(self, h: Tensor, batch: Batch) -> Tensor:
        """(B, K) in 32 bits; −∞ where there is no candidate."""
        assert batch.target_positions is not None
        h = h[..., : self.encoder.widths[self.at]]
        there = batch.target_positions >= 0
        if self.config.reads != "speaker":
            x = pooled(self.config.reads, h, batch.inputs)  # a row a frame, in their order
        else:
            x = h.reshape(-1, h.shape[-1]).index_select(0, batch.target_positions[there])  # (frames, D)
        scores = self.score(x).squeeze(-1)
        return torch.full(there.shape, -torch.inf, device=h.device, dtype=scores.dtype).masked_scatter(there, scores)


def choices(
    network: Any,
    tokenizer: Tokenizer,
    contexts: Sequence[str],
    questions: Sequence[str] | None,
    candidates: Sequence[Sequence[str]],
    labels: np.ndarray | None = None,
    length: int = 0,
) -> tuple[Choices, int]:
    """Framed examples, and how many of them were cut to `length` tokens (0: to the network's window)."""
    check_texts(network)
    unseen = Unseen(network, tokenizer)

    def encoded(texts: Sequence[str]) -> list[np.ndarray]:
        return [unseen.ids(text, one) for text, one in zip(texts, tokenizer.encode_batch(list(texts)), strict=True)]

    known = list(dict.fromkeys(contexts))
    context_of = dict(zip(known, encoded(known), strict=True))
    asked = [np.zeros(0, np.int64)] * len(contexts) if questions is None else encoded(questions)
    every = iter(encoded([text for some in candidates for text in some]))
    room = room_beside(network, len(network.frame(blank(0, 0), blank(1, 0)).ids), 2, length)
    with_answer, turned = isinstance(network, Infilling), getattr(network, "is_backward", False)
    molds: dict[tuple[int, ...], Mold] = {}
    frames: list[FramedText] = []
    cut = 0
    for context, question, some in zip(contexts, asked, candidates, strict=True):
        short = False
        for _ in some:
            parts = context_of[context], question, next(every)
            kept = _fitted(len(parts[0]), len(parts[1]), len(parts[2]), room)
            short |= sum(kept) < sum(map(len, parts))
            before, asking, answer = (part[:size] for part, size in zip(parts, kept, strict=True))
            sides = _sides(before, asking, answer, with_answer)
            if turned:
                sides = tuple(side[::-1] for side in sides)
            sizes = tuple(map(len, sides))
            if sizes not in molds:
                molds[sizes] = Mold(network.frame(*(blank(i, n) for i, n in enumerate(sizes))), 2)
            frames.append(molds[sizes].filled(sides, sizes))
        cut += short
    return _joined(network, frames, candidates, labels, unseen), cut


def _sides(context: np.ndarray, question: np.ndarray, answer: np.ndarray, with_answer: bool) -> tuple[np.ndarray, ...]:
    if with_answer:
        return context, np.concatenate((question, answer))
    return np.concatenate((context, question)), answer


def _fitted(context: int, question: int, answer: int, room: int | None) -> tuple[int, int, int]:
    """How much is left of each."""
    if room is None or context + question + answer <= room:
        return context, question, answer
    context, rest = truncate_pair(context, question + answer, room)
    answer = min(answer, rest)
    return context, rest - answer, answer


def _joined(
    network: Any,
    frames: Sequence[FramedText],
    candidates: Sequence[Sequence[str]],
    labels: np.ndarray | None,
    unseen: Unseen,
) -> Choices:
    counts = np.fromiter(map(len, candidates), np.int64, len(candidates))
    segments = [frame.segments for frame in frames if frame.segments is not None]
    return Choices(
        ids=np.concatenate([frame.ids for frame in frames]) if frames else np.zeros(0, np.int64),
        starts=np.concatenate(([0], np.cumsum([len(frame.ids) for frame in frames]))).astype(np.int64),
        pooled_position=np.fromiter((frame.pooled_position for frame in frames), np.int64, len(frames)),
        labels=np.zeros(len(candidates), np.int64) if labels is None else labels,
        segments=np.concatenate(segments) if segments else None,
        packs=not isinstance(network, Autoregressive),
        unseen=unseen if unseen.words else None,
        counts=counts,
        most=int(counts.max()) if len(counts) else 0,
    )
