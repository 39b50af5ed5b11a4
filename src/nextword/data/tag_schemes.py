"""Spans of words written as one tag a word, in four ways; which of them a text has, and from one into another.

             John  Smith  met  Ann   Mary  in  Rome
    IOB1     I-PER I-PER  O    I-PER B-PER O   I-LOC     B- only where a span follows one of its own type
    IOB2     B-PER I-PER  O    B-PER B-PER O   B-LOC     B- at every beginning
    BIOES    B-PER E-PER  O    S-PER S-PER O   S-LOC     E- at the end, S- for a span of one word
    BILOU    B-PER L-PER  O    U-PER U-PER O   U-LOC     the same in other letters

Tags that are no spans, as parts of speech, are of the scheme "" and are never changed. `spans` reads all four, and what
a network without constraints says besides, by the rule of the CoNLL tasks' own script: an inside tag goes on with the
span before it where that is open and of its type, and begins one where it is not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from nextword.core.errors import NextwordError

OUTSIDE = "O"
PLAIN = ""
SCHEMES = ("BIOES", "BILOU", "IOB2", "IOB1")  # the order in which they are tried
LETTERS = {"BIOES": "BIES", "BILOU": "BILU", "IOB2": "BI", "IOB1": "BI"}
AS_BIOES = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}


class Span(NamedTuple):
    start: int
    end: int  # the first word after it
    type: str


def parts(tag: str) -> tuple[str, str]:
    """The letter, as BIOES has it, and the type: ("B", "PER"); ("O", "") outside; ("", tag) where it is neither."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    if len(tag) > 2 and tag[1] == "-" and tag[0] in AS_BIOES:
        return AS_BIOES[tag[0]], tag[2:]
    return "", tag


def spans(tags: Iterable[str]) -> list[Span]:
    """Of one sentence, in order."""
    found: list[Span] = []
    start, type, open = 0, "", False  # of the span that the last word lies in; may it go on?
    at = -1
    for at, tag in enumerate(tags):
        letter, own = parts(tag)
        goes_on = open and letter in ("I", "E") and own == type
        if type and not goes_on:
            found.append(Span(start, at, type))
            type = ""
        if letter != OUTSIDE and not goes_on:
            start, type = at, own
        open = letter in ("B", "I")
    if type:
        found.append(Span(start, at + 1, type))
    return found


def written(found: Iterable[Span], length: int, scheme: str) -> list[str]:
    """One tag a word for spans that do not overlap, in their order."""
    tags = [OUTSIDE] * length
    before: Span | None = None
    for span in found:
        touching = before is not None and (before.end, before.type) == (span.start, span.type)
        for i in range(span.start, span.end):
            tags[i] = f"{_letter(span, i, touching, scheme)}-{span.type}"
        before = span
    return tags


def _letter(span: Span, i: int, touching: bool, scheme: str) -> str:
    first, last = i == span.start, i == span.end - 1
    if scheme in ("BIOES", "BILOU"):
        if first and last:
            return LETTERS[scheme][3]
        return "B" if first else LETTERS[scheme][2] if last else "I"
    return "B" if first and (touching or scheme == "IOB2") else "I"


def converted(tags: Sequence[str], scheme: str) -> list[str]:
    """A sentence's tags in another scheme. That they fit their own is known: see `violation`."""
    return list(tags) if scheme == PLAIN else written(spans(tags), len(tags), scheme)


# ------------------------------------------------------------------------------------------------ which one it is


def violation(tags: Sequence[str], scheme: str) -> tuple[int, str] | None:
    """The first word whose tag does not fit the scheme, and why; None: all fit."""
    for at, tag in enumerate(tags):
        if tag != OUTSIDE and (not parts(tag)[0] or tag[0] not in LETTERS[scheme]):
            return at, f"'{tag}' is no tag of {scheme}"
        if not may_follow(tags[at - 1] if at else OUTSIDE, tag, scheme):
            return at, f"'{tag}' after {_quoted(tags, at)} is not {scheme}"
    if tags and not may_follow(tags[-1], OUTSIDE, scheme):
        return len(tags) - 1, f"the sentence ends with '{tags[-1]}', which is not {scheme}: its span goes on"
    return None


def _quoted(tags: Sequence[str], at: int) -> str:
    return f"'{tags[at - 1]}'" if at else "nothing"


def may_follow(before: str, now: str, scheme: str) -> bool:
    """Sentences begin and end as if O stood there."""
    (letter, type), (own_letter, own) = parts(before), parts(now)
    goes_on = letter in ("B", "I") and type == own
    if scheme == "IOB1":
        return own_letter != "B" or (letter != OUTSIDE and type == own)
    if scheme == "IOB2":
        return own_letter != "I" or goes_on
    return goes_on if own_letter in ("I", "E") else letter not in ("B", "I")


def has_spans(tags: Collection[str]) -> bool:
    """Whether these tags, or most of them, are of spans: parts of speech and the like are not."""
    inside = sum(parts(tag)[0] not in ("", OUTSIDE) for tag in tags)
    return inside > 0 and 2 * inside >= len(set(tags) - {OUTSIDE})


def allowed(tags: Sequence[str], scheme: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of K tags, which may follow which (K, K), which may begin a sentence (K,), and which may end it (K,)."""
    if scheme not in SCHEMES:
        raise NextwordError(f"No scheme of tags is called {scheme!r}. There are {', '.join(SCHEMES)}.")
    pairs = np.array([[may_follow(a, b, scheme) for b in tags] for a in tags]).reshape(len(tags), len(tags))
    first = np.array([may_follow(OUTSIDE, tag, scheme) for tag in tags])
    last = np.array([may_follow(tag, OUTSIDE, scheme) for tag in tags])
    return pairs, first, last
