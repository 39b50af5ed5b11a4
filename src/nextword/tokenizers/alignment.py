"""Bytes, characters and words of a text, as whole-array arithmetic.

text    n a ï v e ␣ c a t        a word is a run of non-space characters (`str.isspace`)
bytes   0 1 2 4 5 6 7 8 9
word    0 0 0 0 0 · 1 1 1        an id that begins with a space belongs to the word after it
"""

from __future__ import annotations

import numpy as np

from nextword.core.errors import DataError

SPACES = [chr(point) for point in range(0x3001) if chr(point).isspace()]  # all of them: U+3000 is the last
_IS_SPACE_BYTE = np.zeros(256, dtype=bool)  # spaces of one byte
_IS_SPACE_BYTE[[ord(space) for space in SPACES if space.isascii()]] = True
_MAY_LEAD_SPACE = np.zeros(256, dtype=bool)  # first bytes of spaces of two or three bytes
_MAY_LEAD_SPACE[[space.encode()[0] for space in SPACES if not space.isascii()]] = True
IS_WIDE_SPACE = np.zeros(1 << 14, dtype=bool)  # spaces of two or three bytes, by code point
IS_WIDE_SPACE[[ord(space) for space in SPACES if not space.isascii()]] = True


def utf8(text: str) -> bytes:
    """Encode a text. A lone surrogate has no UTF-8 bytes, so it is an error."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        surrogate = f"the lone surrogate U+{ord(text[error.start]):04X}, which UTF-8 cannot represent"
        raise DataError(f"Character {error.start} of the text is {surrogate}. Remove it.") from None


def spaces(raw: bytes) -> np.ndarray:
    """Return for each byte whether it is part of a space character."""
    data = np.frombuffer(raw, dtype=np.uint8)
    is_space = _IS_SPACE_BYTE[data]
    if raw.isascii():
        return is_space
    leads = np.flatnonzero(_MAY_LEAD_SPACE[data])
    lead, second = data[leads].astype(np.int64), data[leads + 1] & 0x3F
    has_three = lead >= 0xE0
    third = data[np.where(has_three, leads + 2, leads)] & 0x3F
    three_bytes = (lead & 0xF) << 12 | second.astype(np.int64) << 6 | third
    wide = IS_WIDE_SPACE[np.where(has_three, three_bytes, (lead & 0x1F) << 6 | second)]
    is_space[leads[wide]] = is_space[leads[wide] + 1] = is_space[leads[wide & has_three] + 2] = True
    return is_space


def words_at(raw: bytes, starts: np.ndarray) -> np.ndarray:
    """Return the index of the word that each byte position begins or lies in; −1 only if the text has no words."""
    is_space = np.append(spaces(raw), True)  # a position may be the very end
    is_start = ~is_space
    is_start[1:] &= is_space[:-1]
    word = np.cumsum(is_start, dtype=np.int32)  # too high by 1 inside words, right in the spaces before them
    return np.minimum(word[starts] - 1 + is_space[starts], word[-1] - 1, dtype=np.int64)


def character_bytes(raw: bytes) -> np.ndarray:
    """Return the first byte of each character, and the length of the text: a map from character to byte offsets."""
    data = np.frombuffer(raw, dtype=np.uint8)
    return np.append(np.flatnonzero((data & 0xC0) != 0x80), len(data))


def partition(lengths: np.ndarray) -> np.ndarray:
    """Return the spans of consecutive pieces of these lengths."""
    ends = np.cumsum(lengths, dtype=np.int64)
    return np.stack([ends - lengths, ends], axis=1)


def remove_overlaps(spans: np.ndarray) -> np.ndarray:
    """Give a character that several ids share (½ read as 1⁄2) to the first of them."""
    ends = np.maximum.accumulate(spans[:, 1]) if len(spans) else spans[:, 1]
    starts = np.maximum(spans[:, 0], np.append(0, ends[:-1])[: len(ends)])
    return np.stack([starts, np.maximum(starts, ends)], axis=1)
