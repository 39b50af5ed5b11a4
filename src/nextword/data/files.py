"""From bytes to text: decompression, UTF-8, lines, JSON lines, with errors that say where the bad byte is.

Removes the byte-order mark and turns `\\r\\n` into `\\n`; nothing else is changed.
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

from nextword.core.errors import DataError, MissingDependency, MissingFile

COMPRESSED = (".gz", ".xz", ".zst", ".bz2")
STDIN = "-"
FROM_STDIN = "standard input"
BLOCK = 1 << 20  # bytes read at a time
SPREADSHEETS = (".xlsx", ".xlsm", ".xls", ".ods", ".numbers")
# What spreadsheets write on Windows: Latin-1 plus curly quotes, dashes and €.
WINDOWS_ENCODING = "windows-1252"


def plain_name(path: str | Path) -> str:
    """Return the name of a file without the suffix of its compression."""
    name = Path(path).name
    return name[: -len(Path(name).suffix)] if Path(name).suffix.lower() in COMPRESSED else name


def open_bytes(path: str | Path) -> IO[bytes]:
    """Open a file, decompressing it, or standard input for `-`."""
    if str(path) == STDIN:
        return sys.stdin.buffer
    path = Path(path)
    if not path.exists():
        raise MissingFile(f"{path} does not exist. Check the spelling, or give a full path.", path=path)
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
        raise MissingFile(f"No permission to read {path}. Change it: chmod +r {path}", path=path) from None


def _open_zst(path: Path) -> IO[bytes]:
    try:
        import zstandard
    except ImportError:
        raise MissingDependency(
            f"{path} is compressed with zstd, which needs the package zstandard. Run pip install 'nextword[corpora]', "
            "or decompress it with unzstd.",
            package="zstandard",
        ) from None
    return cast(IO[bytes], io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(open(path, "rb"))))


def read_chunks(path: str | Path) -> Iterator[str]:
    """Yield the text of a file in chunks of about a megabyte, which end anywhere between two characters."""
    name = FROM_STDIN if str(path) == STDIN else str(path)
    pending, base, lines = b"", 0, 1  # undecoded bytes, their offset, number of the current line
    held = ""  # a carriage return at the end of a chunk, which may be half of \r\n
    with open_bytes(path) as file:
        while True:
            block = _read(file, name)
            data = pending + block
            if base == 0 and not pending:
                _check_not_utf16(data, name)
                if data.startswith(codecs.BOM_UTF8):
                    data, base = data[len(codecs.BOM_UTF8) :], len(codecs.BOM_UTF8)
            if b"\0" in data:
                at = data.index(b"\0")
                line = lines + data.count(b"\n", 0, at)
                raise DataError(
                    f"{name} is not text: it has a zero byte at offset {base + at} (line {line}). Expected UTF-8 text, "
                    f"or a .gz, .xz or .zst of it. {_conversion_hint(name)}",
                    path=name,
                    line=line,
                )
            try:
                text, used = codecs.utf_8_decode(data, "strict", not block)
            except UnicodeDecodeError as error:
                raise _utf8_error(data, error, base, lines, name) from None
            pending, base, lines = data[used:], base + used, lines + data.count(b"\n", 0, used)
            text = held + text
            held = "\r" if block and text.endswith("\r") else ""
            text = (text[:-1] if held else text).replace("\r\n", "\n")
            if text:
                yield text
            if not block:
                return


def read_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a file, each with its line end (the last perhaps without)."""
    return split_lines(read_chunks(path))


def split_lines(chunks: Iterable[str]) -> Iterator[str]:
    """Yield the lines of chunked text. Only `\\n` ends a line: form feeds and the like are text."""
    rest = ""
    for chunk in chunks:
        complete, newline, tail = chunk.rpartition("\n")
        if newline:
            yield from io.StringIO(rest + complete + newline, newline="\n")
            rest = tail
        else:
            rest += chunk
    if rest:
        yield rest


def read_objects(name: str | Path, source: Iterable[str], example: str = "") -> Iterator[dict[str, Any]]:
    """Yield the object of each nonempty line of JSON lines. `example` completes "Expected one object per line"."""
    return (item for _, item in read_numbered_objects(name, source, example))


def read_numbered_objects(
    name: str | Path, source: Iterable[str], example: str = ""
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line number and object of each nonempty line."""
    for number, line in enumerate(source, 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except ValueError as error:
            raise DataError(
                f"{name}, line {number} is not JSON ({error}). Expected one object per line{example}.",
                path=name,
                line=number,
            ) from None
        if not isinstance(item, dict):
            raise DataError(
                f"{name}, line {number} is not a JSON object. Expected one object per line{example}.",
                path=name,
                line=number,
            )
        yield number, item


def _read(file: IO[bytes], name: str) -> bytes:
    try:
        return file.read(BLOCK)
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise damaged_error(name, error) from None
    except Exception as error:
        if type(error).__module__.startswith("zstandard"):
            raise damaged_error(name, error) from None
        raise


def damaged_error(path: str | Path, error: Exception) -> DataError:
    return DataError(f"{path} is damaged or truncated ({error}). Copy or download it again.", path=path)


def _check_not_utf16(data: bytes, name: str) -> None:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(
            f"{name} is UTF-16; expected UTF-8. Convert it: {_iconv_command(name, 'utf-16')}", path=name, line=1
        )


def _utf8_error(data: bytes, error: UnicodeDecodeError, base: int, lines: int, name: str) -> DataError:
    line = lines + data.count(b"\n", 0, error.start)
    return DataError(
        f"{name} is not UTF-8: byte 0x{data[error.start]:02x} at offset {base + error.start} (line {line}) is invalid. "
        f"If it comes from Windows or is Latin-1, convert it: {_iconv_command(name, WINDOWS_ENCODING)}",
        path=name,
        line=line,
    )


def _conversion_hint(name: str) -> str:
    if Path(name).suffix.lower() in SPREADSHEETS:
        return "It is a spreadsheet: export it as CSV with the encoding UTF-8."
    return "Convert it to plain text first."


def _iconv_command(name: str, encoding: str) -> str:
    """Return the command that converts to UTF-8, into a file with the same suffix, since readers go by that."""
    command = f"iconv -f {encoding} -t utf-8"
    return f"{command} {name} > utf8-{plain_name(name)}" if name != FROM_STDIN else f"… | {command} | nextword …"
