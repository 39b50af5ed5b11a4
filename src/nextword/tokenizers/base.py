"""The base class of all tokenizers, their JSON file, and incremental decoding.

A tokenizer is one JSON file. Our own kinds are `{"nextword": {header}, ...}`. Kinds of the `tokenizers` library keep
that library's JSON, so that `tokenizers.Tokenizer.from_file` reads the file too. It rejects unknown keys at the top
level, so the header is at `{"model": {"nextword": {header}}}` there.
"""

from __future__ import annotations

import codecs
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from nextword.core.errors import bad_data
from nextword.core.io import write_atomically
from nextword.core.types import Encoding, Vocabulary
from nextword.html.notebook import facts_html

VERSION = 1  # of the file format


class Tokenizer(ABC):
    """Text ↔ ids. A subclass sets the attributes and overrides `content` and `encode` or `encode_batch`."""

    kind: str  # one of the table in __init__.py
    lossless: bool  # decode(encode(text).ids) == text for every text
    special: Mapping[str, int]  # special tokens, whose ids no text produces: name → id
    begin: int  # fed before the first token of a text (BOS)
    end: int | None  # appended to every document (EOS); None if every line ends with its own token instead
    pieces: Sequence[bytes]  # id → the bytes that it stands for inside a text
    words: tuple[str, ...] | None = None  # vocabulary of a word-level tokenizer, without special tokens
    lower: bool = False  # whether text is lowercased; only word-level tokenizers say so

    def __len__(self) -> int:
        return len(self.pieces)

    def __repr__(self) -> str:
        facts = [f"{len(self):,} tokens", "lossless" if self.lossless else "lossy", *["lowercase"] * self.lower]
        return f"{type(self).__name__}({self.kind}; {', '.join(facts)})"

    def _repr_html_(self) -> str:
        facts = [
            ("tokens", f"{len(self):,}"),
            ("lossless", "yes" if self.lossless else "no"),
            ("lowercase", "yes" if self.lower else ""),
            ("special tokens", ", ".join(self.special)),
        ]
        return facts_html(f"Tokenizer {self.kind}", facts)

    def encode(self, text: str) -> Encoding:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        return [self.encode(text) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        if self.lossless:
            return b"".join([self.pieces[id] for id in ids]).decode(errors="replace")
        decoder = Decoder(self)
        return "".join([decoder.push(id) for id in ids]) + decoder.flush()

    def piece(self, id: int) -> bytes:
        return self.pieces[id]

    def split_words(self, text: str) -> list[str]:
        """Split a text into words, with punctuation and clitics separate, as taggers need it."""
        from nextword.tokenizers.ptb_words import split

        return [part for run in text.split() for part in split(run, ())]

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Return the JSON object that `save` writes."""

    def save(self, path: Path) -> None:
        with write_atomically(Path(path)) as file:
            file.write(self.to_bytes())

    def to_bytes(self) -> bytes:
        """The content of the file that `save` writes."""
        return json.dumps(self.content(), ensure_ascii=False).encode()


class _Pieces(Sequence[bytes]):
    """id → bytes, computed on access: most networks never look."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def __len__(self) -> int:
        return len(self.tokenizer)

    @overload
    def __getitem__(self, id: int) -> bytes: ...
    @overload
    def __getitem__(self, id: slice) -> list[bytes]: ...
    def __getitem__(self, id: int | slice) -> bytes | list[bytes]:
        if isinstance(id, slice):
            return [self[i] for i in range(*id.indices(len(self)))]
        if not -len(self) <= id < len(self):
            raise IndexError(id)
        return self.tokenizer.piece(id % len(self))


def vocabulary(tokenizer: Tokenizer, spellings: bool = False) -> Vocabulary:
    """Return what a network needs to know; with `spellings`, for networks that read the characters of words (ELMo)."""
    pieces = _Pieces(tokenizer) if spellings else ()
    return Vocabulary(len(tokenizer), tokenizer.begin, tokenizer.special, tokenizer.end, pieces)


def fingerprint(tokenizer: Tokenizer) -> str:
    """Return 16 hexadecimal digits, equal for equal tokenizers on every machine, also after saving and loading."""
    canonical = json.dumps(tokenizer.content(), sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


# ------------------------------------------------------------------------------------------------ the JSON file


def header_of(content: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the header that nextword wrote into a tokenizer file; None if another program wrote the file."""
    model = content.get("model")
    header = content.get("nextword") or (model.get("nextword") if isinstance(model, dict) else None)
    return header if isinstance(header, dict) else None


def check_version(header: Mapping[str, Any], path: Path) -> None:
    version = header.get("version", 0)
    if not isinstance(version, int):
        raise bad_data(path, f"the version of the tokenizer is {version!r}; expected a number. Copy it again.")
    if version > VERSION:
        versions = f"tokenizer version {header['version']}, this nextword reads up to {VERSION}"
        raise bad_data(path, f"written by a newer nextword ({versions}). Upgrade nextword.")


# ------------------------------------------------------------------------------------------------ decoding


class Decoder:
    """Incremental decoding: emits complete characters only, so what was emitted never changes.

    A lossless tokenizer stands for bytes, and the text is their concatenation. A lossy one has forgotten the spaces, so
    the spaces in its pieces (`" the"`, `"the "`) become one space between words, and none at either end of a line.

    `after` are ids already shown (the prompt): they decide about the first space and are not emitted again.

        decoder = Decoder(tokenizer, after=prompt_ids)
        for id in generated: print(decoder.push(id), end="")
        print(decoder.flush())
    """

    def __init__(self, tokenizer: Tokenizer, after: Iterable[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_line_start = True  # where no space is written
        self._space = False  # a space to write if a word follows
        for id in after:
            self.push(id)

    def push(self, id: int) -> str:
        data = self._tokenizer.piece(int(id))
        if not self._tokenizer.lossless:
            data = self._with_space(data)
        return self._utf8.decode(data)

    def flush(self) -> str:
        """Return what is left at the end: the bytes of an unfinished character, as U+FFFD."""
        return self._utf8.decode(b"", final=True)

    def _with_space(self, data: bytes) -> bytes:
        body = data.strip(b" ")
        before = data.startswith(b" ") or self._space
        self._space = (data.endswith(b" ") and bool(body)) or (before and not body)
        if not body:
            return b""
        text = b" " + body if before and not self._at_line_start and body != b"\n" else body
        self._at_line_start = body.endswith(b"\n")
        return text
