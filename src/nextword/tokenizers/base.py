"""One JSON file per tokenizer, written whole or not at all, and the fingerprint of what it holds.

Kinds of our own are `{"nextword": {...}, ...}`. Kinds of the `tokenizers` library keep that library's own JSON, so that
`tokenizers.Tokenizer.from_file` reads the file too; it refuses foreign keys at the top, hence `{"model": {"nextword":
{...}}}` there.

Where ids lie in the text: bytes, characters and words, as whole-array arithmetic.

text    n a ï v e ␣ c a t        a word is a run of non-space characters (`str.isspace`)
bytes   0 1 2 4 5 6 7 8 9
word    0 0 0 0 0 · 1 1 1        an id that begins in a space belongs to the word that follows

From ids back to text, one id at a time or all at once.

Lossless tokenizers write bytes and the text is their concatenation. Lossy ones forgot which spaces there were, so the
spaces their pieces ask for (`" the"`, `"the "`) become one space between words, and none at either end of a line.

Tokens that stand around texts and in place of hidden ones, by whichever names a tokenizer's family has for them.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nextword.core.errors import NextwordError
from nextword.core.protocols import Tokenizer
from nextword.core.types import Vocabulary

VERSION = 1


def write(path: Path, content: Mapping[str, Any]) -> None:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def read(path: Path) -> dict[str, Any]:
    """The JSON object in the file; half of one, or none, is an error that says where it breaks off."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise NextwordError(
            f"{path} is not a whole JSON file ({error}). It was cut short or is something else: "
            "copy it again, or train the tokenizer anew."
        ) from None
    if not isinstance(content, dict):
        raise NextwordError(f"{path} holds a JSON {type(content).__name__}, where a tokenizer is an object.")
    return content


def own(content: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What nextword wrote into the file about the tokenizer; None if nextword did not write it."""
    model = content.get("model")
    found = content.get("nextword") or (model.get("nextword") if isinstance(model, dict) else None)
    return found if isinstance(found, dict) else None


def check_version(header: Mapping[str, Any], path: Path) -> None:
    if header.get("version", 0) > VERSION:
        raise NextwordError(
            f"{path} was written by a newer nextword (tokenizer version {header['version']}; this one reads up to "
            f"{VERSION}). Upgrade nextword."
        )


def fingerprint(content: Mapping[str, Any]) -> str:
    """16 hexadecimal digits: equal for equal tokenizers, on every machine and after saving and loading."""
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


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


class Decoder:
    """Text as it is generated: whole characters only, so what was once given out never changes.

    `after` are ids that are written already (the prompt): they decide on the first space and are not given out again.

        decoder = Decoder(tokenizer, after=prompt_ids)
        for id in generated: print(decoder.push(id), end="")
        print(decoder.flush())
    """

    def __init__(self, tokenizer: Tokenizer, after: Iterable[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._fresh = True  # at the start of a line, where no space is written
        self._space = False  # a space to write if a word follows
        for id in after:
            self.push(id)

    def push(self, id: int) -> str:
        data = self._tokenizer.piece(int(id))
        if not self._tokenizer.lossless:
            data = self._spaced(data)
        return self._utf8.decode(data)

    def flush(self) -> str:
        """What is left at the end: bytes of a character that was never finished, as U+FFFD."""
        return self._utf8.decode(b"", final=True)

    def _spaced(self, data: bytes) -> bytes:
        body = data.strip(b" ")
        before = data.startswith(b" ") or self._space
        self._space = (data.endswith(b" ") and bool(body)) or (before and not body)
        if not body:
            return b""
        written = b" " + body if before and not self._fresh and body != b"\n" else body
        self._fresh = body.endswith(b"\n")
        return written


def join(tokenizer: Tokenizer, ids: Iterable[int]) -> str:
    """What a `Decoder` writes for these ids in all."""
    decoder = Decoder(tokenizer)
    return "".join([decoder.push(id) for id in ids]) + decoder.flush()


MARKS = {
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "pad": ("[PAD]", "<pad>"),
}


@dataclass(frozen=True)
class Marks:
    """Ids of the tokens that stand around texts, between them, in place of a hidden one and after the end."""

    cls: int
    sep: int
    mask: int
    pad: int

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Marks:
        """By whichever names the tokenizer's family has for them."""
        found = {
            mark: next((vocabulary.special[n] for n in called if n in vocabulary.special), None)
            for mark, called in MARKS.items()
        }
        lacking = [" or ".join(MARKS[mark]) for mark, id in found.items() if id is None]
        if lacking:
            raise NextwordError(
                f"The tokenizer has no {', no '.join(lacking)}; its special tokens are: "
                f"{', '.join(vocabulary.special) or 'none'}. A model that fills in hidden tokens needs them: use a "
                "tokenizer of kind 'wordpiece', or 'bpe' or 'unigram' with marks = true, or one that came with such a "
                "model."
            )
        return cls(**{mark: int(id) for mark, id in found.items() if id is not None})


MASKS = ("[MASK]", "[sMASK]", "[gMASK]")  # a blank of a few tokens, of whole sentences, of the rest of a text
SENTINEL = "<extra_id_"  # T5's: <extra_id_0> stands in the place of the first span that was taken out, and so on


def sentinels(special: Mapping[str, int]) -> list[int]:
    """The ids of a tokenizer's sentinels, in order."""
    found: list[int] = []
    while (name := f"{SENTINEL}{len(found)}>") in special:
        found.append(special[name])
    return found


@dataclass(frozen=True)
class PieceMarks:
    """Ids for texts whose blanks are filled piece by piece. A tokenizer needs nothing new for them:

    begin, end   around a piece, as around any text: the tokenizer's own. Where it has no end, what it begins with
    masks        in place of a piece: beyond the vocabulary, for they are read and never written
    """

    begin: int
    end: int
    masks: tuple[int, ...]  # as in MASKS

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> PieceMarks:
        end = vocabulary.begin if vocabulary.end is None else vocabulary.end
        return cls(vocabulary.begin, end, tuple(vocabulary.size + i for i in range(len(MASKS))))
