"""Questions and passages into frames of a network: tokenized, cut into windows, and the answer's place in each.

    Denver beat Carolina .      Denver be ##at Carolina .      characters of each token 0–6 7–9 9–11 12–20 21–22
    answer: characters 7–11                 begin 2, end 3      places from 1 on; 0 is "not in this window"

Where a token speaks for the whole ([CLS], or the last) it stands for "no answer" too; in a network whose frames have no
token of their own that is the question's last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from nextword.batching.questions import Asked, Passages
from nextword.batching.unseen import Unseen
from nextword.contract import Encoding, Framed
from nextword.contract_errors import Unsupported
from nextword.contract_protocols import Autoregressive, Tokenizer
from nextword.corpora.questions import Question
from nextword.heads.framing import Mold, blank, check_texts, room_beside


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
    if getattr(network, "from_the_end", False):
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
