"""Sentences that are split into words already, into frames of a network, and which token stands for which word.

    Washington spoke   ──encode──▶  Wash ##ing ##ton spoke   ──network.frame──▶  [CLS] Wash ##ing ##ton spoke [SEP]
    word               0            0    0     0     1        its token                1                4

Words are joined by spaces, so that every tokenizer sees them as it sees text, and says which word each token lies in. A
space within a word is written as an underscore.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nextword.batching.tagged import TaggedExamples
from nextword.batching.unseen import Unseen
from nextword.contract import Encoding, Framed
from nextword.contract_errors import NextwordError, Unsupported
from nextword.contract_protocols import Autoregressive, Infilling, Tokenizer
from nextword.heads.framing import check, room_for
from nextword.layers.spelling import letters_of

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
    if getattr(network, "from_the_end", False):
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
