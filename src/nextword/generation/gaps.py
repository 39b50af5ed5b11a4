"""Texts with blanks in them: where these are, the ids of what stands beside them, and a text with them filled.

    The ___ sat on the ___.          parts  "The ", " sat on the ", "."          filled  The cat sat on the mat.

A blank is a word or more of its own, whether there are spaces around it or not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nextword.contract import Beam, Decoding, Stop
from nextword.contract_errors import NextwordError
from nextword.contract_protocols import Tokenizer

BLANK = "___"
LINES = re.compile("_{3,}")  # a blank, as long as somebody likes to draw it


@dataclass(frozen=True)
class Filled:
    """A text with its blanks filled, as far as the length went."""

    text: str
    blanks: tuple[str, ...]  # those that were reached
    log_prob: float  # the model's own, of the pieces and their ends
    tokens: int
    score: float  # by which a beam ranks
    complete: bool  # every piece was brought to its end


def check_asked(how: Decoding, stop: Stop, n: int) -> None:
    """Refuses what has no meaning where blanks are filled."""
    most = how.width if isinstance(how, Beam) else 1
    if not 1 <= n <= most:
        raise NextwordError(
            f"The {n} best are asked for, and there are from 1 to {most}. Ask for fewer, or widen the beam."
        )
    if stop.strings:
        raise NextwordError("A blank is over when the model says so, and not at a string: leave stop strings away.")


def ids_beside(tokenizer: Tokenizer, text: str, first: bool = False) -> list[int]:
    """Of a part of a text that stands before a blank or, if it is not the first, after one.

    What stands after one is read as after a word: with a letter before it, whose ids are then dropped. A word right
    after the blank is a word of its own.
    """
    text = text.rstrip(" ")
    if first or not text:
        return tokenizer.encode(text).ids.tolist()
    if text[0].isalnum():
        text = " " + text
    encoding = tokenizer.encode("a" + text)
    mine = encoding.spans[:, 1] > 1  # the letter may be several tokens, of which the last are of no length
    if (encoding.spans[mine, 0] < 1).any():  # a token across the seam
        return tokenizer.encode(text).ids.tolist()
    return encoding.ids[mine].tolist()


def joined(parts: Sequence[str], blanks: Sequence[str]) -> str:
    """The parts of a text with something between them, one less than there are parts."""
    return parts[0] + "".join(blank + part for blank, part in zip(blanks, parts[1:], strict=True))


def lettered(parts: Sequence[str]) -> bool:
    """Whether a letter stands before the blank that follows these parts: of the text, or of what fills another."""
    return parts[-1].rstrip(" ")[-1:].isalnum() or (len(parts) > 1 and not parts[-1].strip())


def short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "…")
