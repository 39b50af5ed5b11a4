"""Tagging schemes: spans of words written as one tag per word, in four ways.

             John  Smith  met  Ann   Mary  in  Rome
    IOB1     I-PER I-PER  O    I-PER B-PER O   I-LOC     B- only if a span follows one of the same type
    IOB2     B-PER I-PER  O    B-PER B-PER O   B-LOC     B- at every beginning
    BIOES    B-PER E-PER  O    S-PER S-PER O   S-LOC     E- at the end, S- for a span of one word
    BILOU    B-PER L-PER  O    U-PER U-PER O   U-LOC     the same in other letters

Tags that do not mark spans, such as parts of speech, have the scheme "" and are never changed. `find_spans` reads all
four schemes, and also invalid tag sequences, by the rule of CoNLL's conlleval script: an inside tag continues the span
before it if that is open and of the same type, and else begins a new span.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from nextword.core.errors import unknown

OUTSIDE = "O"
PLAIN = ""
SCHEMES = ("BIOES", "BILOU", "IOB2", "IOB1")  # in the order in which they are tried
LETTERS = {"BIOES": "BIES", "BILOU": "BILU", "IOB2": "BI", "IOB1": "BI"}
AS_BIOES = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}


class Span(NamedTuple):
    start: int
    end: int  # exclusive
    type: str


def parse_tag(tag: str) -> tuple[str, str]:
    """Return the letter in BIOES and the type: ("B", "PER"); ("O", "") outside; ("", tag) for any other tag."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    if len(tag) > 2 and tag[1] == "-" and tag[0] in AS_BIOES:
        return AS_BIOES[tag[0]], tag[2:]
    return "", tag


def find_spans(tags: Iterable[str]) -> list[Span]:
    """Return the spans of a sentence, in order."""
    spans: list[Span] = []
    start, type, is_open = 0, "", False  # of the current span; whether it may continue
    position = -1
    for position, tag in enumerate(tags):
        letter, own = parse_tag(tag)
        continues = is_open and letter in ("I", "E") and own == type
        if type and not continues:
            spans.append(Span(start, position, type))
            type = ""
        if letter != OUTSIDE and not continues:
            start, type = position, own
        is_open = letter in ("B", "I")
    if type:
        spans.append(Span(start, position + 1, type))
    return spans


def write_tags(spans: Iterable[Span], length: int, scheme: str) -> list[str]:
    """Return one tag per word for ordered spans that do not overlap."""
    tags = [OUTSIDE] * length
    previous: Span | None = None
    for span in spans:
        is_adjacent = previous is not None and (previous.end, previous.type) == (span.start, span.type)
        for i in range(span.start, span.end):
            tags[i] = f"{_letter(span, i, is_adjacent, scheme)}-{span.type}"
        previous = span
    return tags


def _letter(span: Span, i: int, is_adjacent: bool, scheme: str) -> str:
    is_first, is_last = i == span.start, i == span.end - 1
    if scheme in ("BIOES", "BILOU"):
        if is_first and is_last:
            return LETTERS[scheme][3]
        return "B" if is_first else LETTERS[scheme][2] if is_last else "I"
    return "B" if is_first and (is_adjacent or scheme == "IOB2") else "I"


def convert_tags(tags: Sequence[str], scheme: str) -> list[str]:
    """Convert the tags of a sentence, which must be valid (`find_violation`), to another scheme."""
    return list(tags) if scheme == PLAIN else write_tags(find_spans(tags), len(tags), scheme)


# ------------------------------------------------------------------------------------------------ validity


def find_violation(tags: Sequence[str], scheme: str) -> tuple[int, str] | None:
    """Return the first word whose tag violates the scheme, and why; None if all are valid."""
    for i, tag in enumerate(tags):
        if tag != OUTSIDE and (not parse_tag(tag)[0] or tag[0] not in LETTERS[scheme]):
            return i, f"'{tag}' is not a tag of {scheme}"
        if not can_follow(tags[i - 1] if i else OUTSIDE, tag, scheme):
            previous = f"'{tags[i - 1]}'" if i else "nothing"
            return i, f"'{tag}' after {previous} is not {scheme}"
    if tags and not can_follow(tags[-1], OUTSIDE, scheme):
        return len(tags) - 1, f"the sentence ends with '{tags[-1]}', which is not {scheme}: its span is open"
    return None


def can_follow(before: str, now: str, scheme: str) -> bool:
    """Whether a tag may follow another. The beginning and the end of a sentence count as O."""
    (letter, type), (own_letter, own) = parse_tag(before), parse_tag(now)
    continues = letter in ("B", "I") and type == own
    if scheme == "IOB1":
        return own_letter != "B" or (letter != OUTSIDE and type == own)
    if scheme == "IOB2":
        return own_letter != "I" or continues
    return continues if own_letter in ("I", "E") else letter not in ("B", "I")


def has_spans(tags: Collection[str]) -> bool:
    """Whether most of these tags mark spans, unlike parts of speech."""
    inside = sum(parse_tag(tag)[0] not in ("", OUTSIDE) for tag in tags)
    return inside > 0 and 2 * inside >= len(set(tags) - {OUTSIDE})


def allowed_transitions(tags: Sequence[str], scheme: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for K tags which may follow which (K, K), which may begin a sentence (K,) and which may end it (K,)."""
    if scheme not in SCHEMES:
        raise unknown("tagging scheme", scheme, SCHEMES)
    pairs = np.array([[can_follow(a, b, scheme) for b in tags] for a in tags]).reshape(len(tags), len(tags))
    first = np.array([can_follow(OUTSIDE, tag, scheme) for tag in tags])
    last = np.array([can_follow(tag, OUTSIDE, scheme) for tag in tags])
    return pairs, first, last
