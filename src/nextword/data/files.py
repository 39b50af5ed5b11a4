"""From bytes to text: decompression, UTF-8, and errors that say where the bad byte is.

Text leaves here without a byte-order mark and with `\n` for `\r\n`; nothing else is changed.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import lzma
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, cast

from nextword.core.errors import NextwordError

COMPRESSED = (".gz", ".xz", ".zst", ".bz2")
STDIN = "-"
FROM_STDIN = "standard input"
BLOCK = 1 << 20  # bytes read at a time
SPREADSHEETS = (".xlsx", ".xlsm", ".xls", ".ods", ".numbers")
# What spreadsheets write: all letters of Latin-1, and curly quotation marks, dashes and € besides
WESTERN = "windows-1252"


def plain_name(path: str | Path) -> str:
    """The file's name without the suffix of its compression."""
    name = Path(path).name
    return name[: -len(Path(name).suffix)] if Path(name).suffix.lower() in COMPRESSED else name


def open_bytes(path: str | Path) -> IO[bytes]:
    """The decompressed bytes of a file, or of standard input for `-`."""
    if str(path) == STDIN:
        return sys.stdin.buffer
    path = Path(path)
    if not path.exists():
        raise NextwordError(f"There is no file {path}. Check the spelling, or give a full path.")
    suffix = path.suffix.lower()
    try:
        if suffix == ".gz":
            return cast(IO[bytes], gzip.open(path, "rb"))
        if suffix == ".xz":
            return cast(IO[bytes], lzma.open(path, "rb"))
        if suffix == ".bz2":
            return cast(IO[bytes], bz2.open(path, "rb"))
        if suffix == ".zst":
            return _open_zst(path)
        return open(path, "rb")
    except PermissionError:
        raise NextwordError(f"{path} may not be read by this user. Change its permissions (chmod +r).") from None


def _open_zst(path: Path) -> IO[bytes]:
    try:
        import zstandard
    except ImportError:
        raise NextwordError(
            f"{path} is compressed with zstd, which needs the package zstandard: pip install 'nextword[corpora]' "
            "(or unpack it first: unzstd)."
        ) from None
    return cast(IO[bytes], io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(open(path, "rb"))))


def chunks(path: str | Path) -> Iterator[str]:
    """The text of a file in pieces of about a megabyte; a piece may end anywhere between two characters."""
    name = FROM_STDIN if str(path) == STDIN else str(path)
    pending, base, lines = b"", 0, 1  # undecoded bytes, offset of the first of them, lines begun so far
    held = ""  # a carriage return at the end of a piece, which may be half of \r\n
    with open_bytes(path) as file:
        while True:
            block = _read(file, name)
            data = pending + block
            if base == 0 and not pending:
                _refuse_utf16(data, name)
                if data.startswith(codecs.BOM_UTF8):
                    data, base = data[len(codecs.BOM_UTF8) :], len(codecs.BOM_UTF8)
            if b"\0" in data:
                at = data.index(b"\0")
                line = lines + data.count(b"\n", 0, at)
                raise NextwordError(
                    f"{name} is not text: it has a zero byte at offset {base + at} (line {line}). "
                    f"Expected UTF-8 text, or a .gz, .xz or .zst of it. {_as_text(name)}"
                )
            try:
                text, used = codecs.utf_8_decode(data, "strict", not block)
            except UnicodeDecodeError as error:
                raise _not_utf8(data, error, base, lines, name) from None
            pending, base, lines = data[used:], base + used, lines + data.count(b"\n", 0, used)
            text = held + text
            held = "\r" if block and text.endswith("\r") else ""
            text = (text[:-1] if held else text).replace("\r\n", "\n")
            if text:
                yield text
            if not block:
                return


def lines(path: str | Path) -> Iterator[str]:
    """The lines of a file, each with its line end (the last perhaps without)."""
    return lines_of(chunks(path))


def lines_of(pieces: Iterable[str]) -> Iterator[str]:
    """Lines of text that comes in pieces. Only `\\n` ends a line: form feeds and the like are text."""
    rest = ""
    for piece in pieces:
        whole, newline, tail = piece.rpartition("\n")
        if newline:
            yield from io.StringIO(rest + whole + newline, newline="\n")
            rest = tail
        else:
            rest += piece
    if rest:
        yield rest


def json_objects(name: str | Path, source: Iterable[str], example: str = "") -> Iterator[dict[str, Any]]:
    """JSON lines: the object of each line that is not empty. `example` goes on from "Expected one object a line"."""
    return (found for _, found in numbered_objects(name, source, example))


def numbered_objects(
    name: str | Path, source: Iterable[str], example: str = ""
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The same, each with the number of its line."""
    for number, line in enumerate(source, 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError as problem:
            raise NextwordError(
                f"{name}, line {number} is not JSON: {problem}. Expected one object a line{example}."
            ) from None
        if not isinstance(found, dict):
            raise NextwordError(f"{name}, line {number} is no JSON object. Expected one object a line{example}.")
        yield number, found


def _read(file: IO[bytes], name: str) -> bytes:
    try:
        return file.read(BLOCK)
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise NextwordError(f"{name} is damaged or cut short: {error}. Fetch or compress it again.") from None
    except Exception as error:
        if type(error).__module__.startswith("zstandard"):
            raise NextwordError(f"{name} is damaged or cut short: {error}. Fetch or compress it again.") from None
        raise


def _refuse_utf16(data: bytes, name: str) -> None:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise NextwordError(
            f"{name} is UTF-16 (its first two bytes say so); expected UTF-8. Convert it: {_converted(name, 'utf-16')}"
        )


def _not_utf8(data: bytes, error: UnicodeDecodeError, base: int, lines: int, name: str) -> NextwordError:
    line = lines + data.count(b"\n", 0, error.start)
    return NextwordError(
        f"{name} is not UTF-8: byte 0x{data[error.start]:02x} at offset {base + error.start} (line {line}) is bad. "
        f"If it comes of Windows or is Latin-1, convert it: {_converted(name, WESTERN)}"
    )


def _as_text(name: str) -> str:
    if Path(name).suffix.lower() in SPREADSHEETS:
        return "It is a spreadsheet: save it as csv, with the encoding UTF-8, where it was made."
    return "Convert it to plain text first."


def _converted(name: str, encoding: str) -> str:
    """The command that makes UTF-8 of it, into a file with the same ending: readers go by that."""
    how = f"iconv -f {encoding} -t utf-8"
    return f"{how} {name} > utf8-{plain_name(name)}" if name != FROM_STDIN else f"… | {how} | nextword …"
