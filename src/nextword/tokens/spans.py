"""Where ids lie in the text: bytes, characters and words, as whole-array arithmetic.

text    n a ï v e ␣ c a t        a word is a run of non-space characters (`str.isspace`)
bytes   0 1 2 4 5 6 7 8 9
word    0 0 0 0 0 · 1 1 1        an id that begins in a space belongs to the word that follows
"""

from __future__ import annotations

import numpy as np

from nextword.contract_errors import NextwordError

SPACES = [chr(point) for point in range(0x3001) if chr(point).isspace()]  # U+3000 is the last one; a test says so
_NARROW = np.zeros(256, dtype=bool)  # spaces of one byte
_NARROW[[ord(space) for space in SPACES if space.isascii()]] = True
_LEADS = np.zeros(256, dtype=bool)  # first bytes of spaces of two and three
_LEADS[[space.encode()[0] for space in SPACES if not space.isascii()]] = True
_WIDE = np.zeros(1 << 14, dtype=bool)  # those, by code point
_WIDE[[ord(space) for space in SPACES if not space.isascii()]] = True


def utf8(text: str) -> bytes:
    """The text's bytes. Half a surrogate pair has none, and a lossless tokenizer cannot invent them."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise NextwordError(
            f"Character {error.start} of the text is the lone surrogate U+{ord(text[error.start]):04X}, which is no "
            "character and cannot be written as UTF-8. Remove it, or read the file again with errors='replace'."
        ) from None


def spaces(raw: bytes) -> np.ndarray:
    """Which bytes are part of a space character, as booleans."""
    data = np.frombuffer(raw, dtype=np.uint8)
    space = _NARROW[data]
    if raw.isascii():
        return space
    at = np.flatnonzero(_LEADS[data])
    lead, second = data[at].astype(np.int64), data[at + 1] & 0x3F
    three = lead >= 0xE0
    third = data[np.where(three, at + 2, at)] & 0x3F
    wide = _WIDE[
        np.where(three, (lead & 0xF) << 12 | second.astype(np.int64) << 6 | third, (lead & 0x1F) << 6 | second)
    ]
    space[at[wide]] = space[at[wide] + 1] = space[at[wide & three] + 2] = True
    return space


def words_at(raw: bytes, starts: np.ndarray) -> np.ndarray:
    """The index of the word that each byte position begins or lies in; -1 only where the text has no word."""
    space = np.append(spaces(raw), True)  # a position may be the very end
    begins = ~space
    begins[1:] &= space[:-1]
    word = np.cumsum(begins, dtype=np.int32)  # one too high inside words, right in the spaces before them
    return np.minimum(word[starts] - 1 + space[starts], word[-1] - 1, dtype=np.int64)


def character_bytes(raw: bytes) -> np.ndarray:
    """The byte at which each character starts, and the text's length after them: turns character offsets into bytes."""
    data = np.frombuffer(raw, dtype=np.uint8)
    return np.append(np.flatnonzero((data & 0xC0) != 0x80), len(data))


def partition(lengths: np.ndarray) -> np.ndarray:
    """The spans of pieces of these lengths that follow each other without a gap."""
    ends = np.cumsum(lengths, dtype=np.int64)
    return np.stack([ends - lengths, ends], axis=1)


def in_order(spans: np.ndarray) -> np.ndarray:
    """The same spans without overlap: where several ids share one character (½ read as 1⁄2), the first one has it."""
    ends = np.maximum.accumulate(spans[:, 1]) if len(spans) else spans[:, 1]
    starts = np.maximum(spans[:, 0], np.append(0, ends[:-1])[: len(ends)])
    return np.stack([starts, np.maximum(starts, ends)], axis=1)
