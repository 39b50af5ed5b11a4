"""Questions and passages into frames of a network: tokenized, cut into windows, and the answer's place in each.

    Denver beat Carolina .      Denver be ##at Carolina .      characters of each token 0–6 7–9 9–11 12–20 21–22
    answer: characters 7–11                 begin 2, end 3      places from 1 on; 0 is "not in this window"

Where a token speaks for the whole ([CLS], or the last) it stands for "no answer" too; in a network whose frames have no
token of their own that is the question's last.

Questions with their passages, framed: a passage that is too long is read in windows that overlap.

    [CLS] who won ? [SEP] p₀ … p₂₉₉ [SEP]          one window of a question
    [CLS] who won ? [SEP] p₁₂₈ … p₄₂₇ [SEP]        the next, `stride` tokens on

An answer begins at one place of a window and ends at one. Place 0 is none: the answer is not in this window. Place 1 is
the window's first token of the passage. A batch has the flat position of every place (B, W), −1 beyond the last.

Where the answer to a question begins and ends in its passage: cross-entropy of both, halved.

    J = 1/B Σ_windows ½ (−log p(begin | window) − log p(end | window))

The network is one with a head of spans (nextword.tasks.span_head). A window that does not hold the answer has to say so.

From the best spans of windows to the answer of each question: the best over all its windows, as text.

    score of none = the least over the windows: one of them that has the answer is enough
    an answer is given unless none is better than the best span by more than the threshold (Devlin et al. 2019, 4.3)

The text is cut out of the passage as it stands there. Spans that give the same text count once, with their best score.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nextword.batching.examples import Bucketed, Unseen, gathered
from nextword.core.errors import NextwordError, Unsupported
from nextword.core.protocols import Autoregressive, Tokenizer
from nextword.core.types import Batch, Encoding, Framed, Loss, State
from nextword.data.squad import Question
from nextword.metrics.squad import measured
from nextword.tasks.examples import Mold, blank, check_texts, room_beside


@dataclass(frozen=True)
class Asked:
    """Windows of questions; an example is a window."""

    ids: np.ndarray  # (N,) of all windows
    starts: np.ndarray  # (windows + 1,) where each begins
    speaks: np.ndarray  # (windows,) the token that stands for "no answer"
    passage: np.ndarray  # (windows, 2) where the passage lies in each
    targets: np.ndarray  # (windows, 2) places where the answer begins and ends; 0, 0: none
    whose: np.ndarray  # (windows,) the question, in `questions`
    begins: np.ndarray  # (windows,) where the characters of the window's first token stand in `characters`
    characters: np.ndarray = field(repr=False)  # (M, 2) the characters that each token of a passage stands for
    questions: tuple[Question, ...] = field(default=(), repr=False)
    segments: np.ndarray | None = None  # (N,)
    packs: bool = False
    metrics: tuple[str, ...] = ()
    some_without: bool = False  # some questions of the task have no answer
    threshold: float = 0.0  # how much better none has to be than the best answer
    unseen: Unseen | None = field(default=None, repr=False)
    bytes: int = field(default=0, repr=False)

    each = 1  # frame an example

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def units(self) -> int:
        """Questions."""
        return len(self.questions)

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    @property
    def labels(self) -> np.ndarray:
        return self.targets

    def first(self, tokens: int | None) -> Asked:
        """The windows of the first so many tokens, at least one; None: all."""
        if tokens is None or tokens >= len(self.ids):
            return self
        return self.take(np.arange(max(1, int(np.searchsorted(self.starts, tokens, side="right")) - 1)))

    def take(self, chosen: np.ndarray) -> Asked:
        """These windows, in this order; questions of which none is left are left out."""
        tokens, starts = gathered(self.starts, chosen)
        kept, whose = np.unique(self.whose[chosen], return_inverse=True)
        return replace(
            self,
            ids=self.ids[tokens],
            starts=starts,
            speaks=self.speaks[chosen],
            passage=self.passage[chosen],
            targets=self.targets[chosen],
            whose=whose.reshape(-1),
            begins=self.begins[chosen],
            questions=tuple(self.questions[i] for i in kept.tolist()),
            segments=None if self.segments is None else self.segments[tokens],
        )

    def take_units(self, chosen: np.ndarray) -> Asked:
        """All windows of these questions."""
        return self.take(np.flatnonzero(np.isin(self.whose, chosen)))

    def judged_by(self, metrics: Sequence[str], some_without: bool, threshold: float) -> Asked:
        return replace(self, metrics=tuple(metrics), some_without=some_without, threshold=float(threshold))

    def text(self, window: int, begin: int, end: int) -> str:
        """What stands in the passage from one place of a window to another, without spaces around it."""
        at = self.begins[window] - 1
        question = self.questions[self.whose[window]]
        return question.context[self.characters[at + begin, 0] : self.characters[at + end, 1]].strip()


@dataclass(frozen=True)
class Passages(Bucketed):
    """`rows` windows a batch, of at most `length` tokens; the next begins `stride` tokens of the passage further on.

    A question is cut after `question` tokens, and never takes more than half of a window. Where windows are short, the
    stride is half of what they hold of the passage.
    """

    length: int = 384
    stride: int = 128
    question: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("stride", "question"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise NextwordError(f"batches: {name} = {value!r} must be a whole number of at least 1.")

    def batch(self, text: Any, chosen: np.ndarray, epoch: int) -> Batch:
        batch = super().batch(text, chosen, epoch)
        assert batch.at is not None
        none = batch.at.numpy()  # flat
        begins = none - text.speaks[chosen] + text.passage[chosen, 0]
        sizes = text.passage[chosen, 1] - text.passage[chosen, 0]
        places = np.arange(int(sizes.max()))
        flat = np.where(places < sizes[:, None], begins[:, None] + places, -1)
        at = torch.from_numpy(np.concatenate((none[:, None], flat), 1))
        return Batch(batch.inputs, batch.targets, fresh=True, epoch=epoch, at=at, predicted=len(chosen))


class _Text(NamedTuple):
    ids: np.ndarray
    characters: np.ndarray  # (N, 2)
    at: int  # where those stand among the characters of all passages


class Left(NamedTuple):
    """What could not be read as it stands."""

    cut: int  # questions that were cut
    windows: int  # of passages that did not fit into one
    lost: int  # questions whose answer is in no token of their passage: nothing can be learnt of them


def asked(
    network: Any, tokenizer: Tokenizer, questions: Sequence[Question], layout: Passages, learn: bool = False
) -> tuple[Asked, Left]:
    """Windows of all questions. To `learn` from, those are left out whose answer is nowhere."""
    check_texts(network)
    if getattr(network, "is_backward", False):
        raise Unsupported(
            "[model] backward reads texts from their end, and an answer is found by where it begins and ends: no head "
            "of answers goes over it. Transfer a run that reads from left to right, or one that sees both sides."
        )
    unseen = Unseen(network, tokenizer)
    passages = _passages(tokenizer, unseen, questions)
    encoded = tokenizer.encode_batch([one.question for one in questions])
    room = room_beside(network, len(network.frame(blank(0, 0), blank(1, 0)).ids), 2, layout.length)
    molds: dict[tuple[int, int], tuple[Mold, Framed]] = {}
    framed: list[Framed] = []
    rows: list[tuple[int, ...]] = []  # speaks, passage, targets, whose, begins
    kept: list[Question] = []
    cut = windows = lost = 0
    for one, encoding in zip(questions, encoded, strict=True):
        text = passages[one.context]
        place = _tokens(one, text.characters)
        if one.answers and place is None:
            lost += 1
            if learn:
                continue
        ids = unseen.ids(one.question, encoding)
        most = layout.question if room is None else max(1, min(layout.question, room // 2))
        cut += len(ids) > most
        ids = ids[:most]
        spans = list(_windows(len(text.ids), room, len(ids), layout.stride))
        windows += len(spans) > 1
        for begin, end in spans:
            sizes = len(ids), end - begin
            if sizes not in molds:
                frame = network.frame(*(blank(i, n) for i, n in enumerate(sizes)))
                molds[sizes] = Mold(frame, 2), frame
            mold, frame = molds[sizes]
            framed.append(mold.filled((ids, text.ids[begin:end]), sizes))
            rows.append((none_at(frame), *frame.parts[1], *_target(place, begin, end), len(kept), text.at + begin))
        kept.append(one)
    table = np.array(rows, np.int64).reshape(-1, 7)
    segments = [frame.segments for frame in framed if frame.segments is not None]
    found = Asked(
        ids=np.concatenate([frame.ids for frame in framed]) if framed else np.zeros(0, np.int64),
        starts=np.concatenate(([0], np.cumsum([len(frame.ids) for frame in framed]))).astype(np.int64),
        speaks=table[:, 0],
        passage=table[:, 1:3],
        targets=table[:, 3:5],
        whose=table[:, 5],
        begins=table[:, 6],
        characters=np.concatenate([np.zeros((0, 2), np.int64), *(text.characters for text in passages.values())]),
        questions=tuple(kept),
        segments=np.concatenate(segments) if segments else None,
        packs=not isinstance(network, Autoregressive),
        unseen=unseen if unseen.words else None,
    )
    return found, Left(cut, windows, lost)


def none_at(frame: Framed) -> int:
    """The token that stands for "no answer": the one that speaks, unless it is of the passage."""
    (begin, end), passage = frame.parts
    if passage[0] <= frame.speaks < passage[1] and end > begin:
        return end - 1
    return frame.speaks


def _passages(tokenizer: Tokenizer, unseen: Unseen, questions: Sequence[Question]) -> dict[str, _Text]:
    """Every passage once, however many questions ask of it."""
    contexts = list(dict.fromkeys(one.context for one in questions))
    found: dict[str, _Text] = {}
    at = 0
    for context, encoding in zip(contexts, tokenizer.encode_batch(contexts), strict=True):
        found[context] = _Text(unseen.ids(context, encoding), characters_of(context, encoding), at)
        at += len(encoding)
    return found


def characters_of(text: str, encoding: Encoding) -> np.ndarray:
    """(N, 2): spans of bytes as spans of characters; a character of which a token has a part belongs to it."""
    raw = np.frombuffer(text.encode(), np.uint8)
    which = np.append(np.cumsum((raw & 0xC0) != 0x80) - 1, len(text))  # the character of each byte
    begin, end = encoding.spans[:, 0], encoding.spans[:, 1]
    first = which[begin]
    last = np.where(end > begin, which[np.maximum(end, 1) - 1] + 1, first)
    return np.stack((first, last), 1)


def _tokens(question: Question, characters: np.ndarray) -> tuple[int, int] | None:
    """The first and the last token of the answer in the passage."""
    if question.place is None:
        return None
    begin, end = question.place
    first = int(np.searchsorted(characters[:, 1], begin, side="right"))
    last = int(np.searchsorted(characters[:, 0], end, side="left")) - 1
    return (first, last) if first <= last else None


def _windows(tokens: int, room: int | None, question: int, stride: int) -> Iterator[tuple[int, int]]:
    """Where each window of a passage begins and ends."""
    width = tokens if room is None else room - question
    step = min(stride, max(1, width // 2))
    begin = 0
    while begin + width < tokens:
        yield begin, begin + width
        begin += step
    yield begin, tokens


def _target(place: tuple[int, int] | None, begin: int, end: int) -> tuple[int, int]:
    if place is None or place[0] < begin or place[1] >= end:
        return 0, 0
    return place[0] - begin + 1, place[1] - begin + 1


@dataclass(frozen=True)
class Answer:
    """What is said of one question."""

    id: str
    text: str  # "": it has no answer
    best: str  # the best span, whether or not it is given
    probability: float  # of the text, among the best spans and none
    none: float  # the probability that there is no answer, likewise
    margin: float  # score of none − score of the best span
    others: tuple[tuple[str, float], ...] = ()  # the best texts with their probabilities, `best` first


def answers(text: Asked, said: np.ndarray, n: int = 5) -> list[Answer]:
    """Of every question, of what the head said of its windows (windows, 1 + 3k) in their order."""
    spans: list[dict[str, float]] = [{} for _ in text.questions]
    none = np.full(len(text.questions), np.inf)
    for window, row in enumerate(said):
        question = int(text.whose[window])
        none[question] = min(none[question], row[0])
        for begin, end, score in row[1:].reshape(-1, 3):
            if not math.isfinite(score):
                break
            found = text.text(window, int(begin), int(end))
            if found and score > spans[question].get(found, -math.inf):
                spans[question][found] = float(score)
    return [
        _answer(one.id, some, float(zero), text.some_without, text.threshold, n)
        for one, some, zero in zip(text.questions, spans, none, strict=True)
    ]


def _answer(id: str, spans: dict[str, float], none: float, may_be_none: bool, threshold: float, n: int) -> Answer:
    if not spans:  # the passage has no text in it
        return Answer(id, "", "", 1.0, 1.0, math.inf)
    ranked = sorted(spans.items(), key=lambda one: -one[1])
    scores = np.array([score for _, score in ranked] + ([none] if may_be_none else []))
    odds = np.exp(scores - scores.max())
    shares = (odds / odds.sum()).tolist()
    margin = none - ranked[0][1]
    empty = may_be_none and margin > threshold
    nothing = shares[-1] if may_be_none else 0.0
    others = tuple((text, share) for (text, _), share in zip(ranked[:n], shares, strict=False))
    given = "" if empty else ranked[0][0]
    return Answer(id, given, ranked[0][0], nothing if empty else shares[0], nothing, margin, others)


def measured_answers(text: Asked, found: Sequence[Answer]) -> dict[str, float]:
    """The metrics that the questions ask for."""
    golds = [one.answers or () for one in text.questions]
    return measured(text.metrics, [one.text for one in found], golds, text.some_without)


class Span:
    likelihood = False  # of answers, not of text

    def __init__(self, batches: Mapping[str, Any]) -> None:
        self.layout = layout_of(batches)

    @property
    def length(self) -> int:
        return self.layout.length

    def per_epoch(self, text: Asked) -> int:
        return self.layout.per_epoch(text)

    def batches(self, text: Asked, seed: int, step: int) -> Iterator[Batch]:
        return self.layout.batches(text, seed, step)

    def held_out(self, text: Asked) -> Iterator[Batch]:
        return self.layout.held_out(text)

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        logits = network(batch)
        nats = network.nats(logits, batch.targets).sum()
        said = None if network.training else network.best(logits.detach())
        return Loss(nats / len(batch.targets), nats.detach(), len(batch.targets), said=said)

    def metrics(self, text: Asked, said: Tensor) -> dict[str, float]:
        """Of the spans that were said of all windows in the order of `held_out`; the first decides."""
        ordered = np.zeros(said.shape)
        ordered[self.layout.in_order(text)] = said.double().cpu().numpy()
        return measured_answers(text, answers(text, ordered))


def layout_of(batches: Mapping[str, Any]) -> Passages:
    options = dict(batches)
    kind = options.pop("kind", "passages")
    if kind != "passages":
        raise NextwordError(f"The span objective has batches of kind passages; the recipe says '{kind}'.")
    try:
        return Passages(**options)
    except TypeError:
        known = ", ".join(Passages.__dataclass_fields__)
        raise NextwordError(f"Batches of kind 'passages' take {known}; the recipe says {', '.join(options)}.") from None
