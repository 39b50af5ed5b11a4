"""From bytes to text: decompression, archives, UTF-8, lines, JSON lines, TOML, with errors that name the bad line.

Removes the byte-order mark and turns `\\r\\n` into `\\n`; nothing else is changed.
"""

from __future__ import annotations

import codecs
import io
import json
import lzma
import sys
import tarfile
import tomllib
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from nextword.core.errors import MissingFile, bad_data
from nextword.core.io import DecompressedFile, damaged_error

Item = TypeVar("Item")

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


def format_suffix(path: str | Path) -> str:
    """Return the suffix that tells the format of a file, in lower case: ".csv" for A.CSV.gz."""
    return Path(plain_name(path)).suffix.lower()


def display_name(path: str | Path) -> str:
    """Return the path as messages show it."""
    return FROM_STDIN if str(path) == STDIN else str(path)


class Hasher(Protocol):
    """What `blake2b()` returns."""

    def update(self, data: bytes, /) -> None: ...


def hash_file(hasher: Hasher, path: Path) -> None:
    """Add the size and the bytes of a file to a hash."""
    hasher.update(f"{path.stat().st_size};".encode())
    hash_content(hasher, path)


def hash_content(hasher: Hasher, path: Path) -> None:
    with open(path, "rb") as raw:
        while block := raw.read(1 << 22):
            hasher.update(block)


# ------------------------------------------------------------------------------------------------ text


def open_bytes(path: str | Path) -> DecompressedFile | BinaryIO:
    """Open a file, decompressing it, or standard input for `-`."""
    return sys.stdin.buffer if str(path) == STDIN else DecompressedFile(Path(path))


def read_chunks(path: str | Path) -> Iterator[str]:
    """Yield the text of a file in chunks of about a megabyte, which end anywhere between two characters."""
    with open_bytes(path) as file:
        yield from _decode(iter(lambda: file.read(BLOCK), b""), display_name(path))


def _decode(blocks: Iterable[bytes], name: str, member: str = "") -> Iterator[str]:
    """Yield the text of a file, or of a member of an archive."""
    place = f"{member} is " if member else ""
    pending, base, lines = b"", 0, 1  # undecoded bytes, their offset, number of the current line
    held = ""  # a carriage return at the end of a chunk, which may be half of \r\n
    for block in chain(blocks, [b""]):
        data = pending + block
        if base == 0 and not pending:
            if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise bad_data(name, f"{place}UTF-16; expected UTF-8. Convert it: {_iconv_command(name, 'utf-16')}", 1)
            if data.startswith(codecs.BOM_UTF8):
                data, base = data[len(codecs.BOM_UTF8) :], len(codecs.BOM_UTF8)
        if b"\0" in data:
            offset = data.index(b"\0")
            is_spreadsheet = Path(name).suffix.lower() in SPREADSHEETS
            remedy = "Export the spreadsheet as CSV in UTF-8." if is_spreadsheet else "Convert it to plain text first."
            problem = f"{place}not text: it has a zero byte at offset {base + offset}."
            raise bad_data(name, f"{problem} {remedy}", lines + data.count(b"\n", 0, offset))
        try:
            text, used = codecs.utf_8_decode(data, "strict", not block)
        except UnicodeDecodeError as error:
            problem = f"{place}not UTF-8: byte 0x{data[error.start]:02x} at offset {base + error.start}."
            remedy = f"If it comes from Windows or is Latin-1, convert it: {_iconv_command(name, WINDOWS_ENCODING)}"
            raise bad_data(name, f"{problem} {remedy}", lines + data.count(b"\n", 0, error.start)) from None
        pending, base, lines = data[used:], base + used, lines + data.count(b"\n", 0, used)
        text = held + text
        held = "\r" if block and text.endswith("\r") else ""
        text = (text[:-1] if held else text).replace("\r\n", "\n")
        if text:
            yield text


def _iconv_command(name: str, encoding: str) -> str:
    """Return the command that converts to UTF-8, into a file with the same suffix, since readers go by that."""
    command = f"iconv -f {encoding} -t utf-8"
    return f"{command} {name} > utf8-{plain_name(name)}" if name != FROM_STDIN else f"… | {command} | nextword …"


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


# ------------------------------------------------------------------------------------------------ archives

ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.xz", ".tar.bz2")
_ARCHIVE_ERRORS = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError)


def is_archive(path: Path) -> bool:
    return path.name.lower().endswith(ARCHIVES)


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile | tarfile.TarFile]:
    """Open a zip or tar archive. Errors that a damaged archive causes become a DataError."""
    try:
        with zipfile.ZipFile(path) if path.suffix.lower() == ".zip" else tarfile.open(path) as archive:
            yield archive
    except _ARCHIVE_ERRORS as error:
        if isinstance(error, OSError) and error.errno is not None:  # from the operating system: a full disk
            raise
        raise damaged_error(path, error) from None


def list_members(path: Path) -> list[str]:
    """Return the names of the files in an archive."""
    with open_archive(path) as archive:
        if isinstance(archive, zipfile.ZipFile):
            return [item.filename for item in archive.infolist() if not item.is_dir()]
        return [item.name for item in archive if item.isfile()]


def read_member(path: Path, member: str) -> Iterator[str]:
    """Yield the lines of a file in an archive."""
    with open_archive(path) as archive:
        stream = archive.open(member) if isinstance(archive, zipfile.ZipFile) else archive.extractfile(member)
        assert stream is not None  # only for members that are no files
        with stream:
            yield from split_lines(_decode(iter(lambda: stream.read(BLOCK), b""), str(path), member))


# ------------------------------------------------------------------------------------------------ JSON lines and TOML


def read_objects(name: str | Path, source: Iterable[str], example: str = "") -> Iterator[tuple[int, dict[str, object]]]:
    """Yield line number and object of each nonempty line. `example` completes "Expected one object per line"."""
    for number, line in enumerate(source, 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except ValueError as error:
            raise bad_data(name, f"not JSON ({error}). Expected one object per line{example}.", number) from None
        if not isinstance(item, dict):
            raise bad_data(name, f"not a JSON object. Expected one object per line{example}.", number)
        yield number, item


def text_under(key: str, item: Mapping[str, object], path: str | Path, line: int) -> str:
    """Return the text under a key of a JSON object, with `\\r\\n` as `\\n`."""
    text = item.get(key)
    if not isinstance(text, str):
        keys = ", ".join(text_keys(item)) or "none"
        problem = f'no text under "{key}"; its keys with text: {keys}.'
        remedy = f"Correct or remove the line, or choose another key: {plain_name(path)}:KEY."
        raise bad_data(path, f"{problem} {remedy}", line)
    if not is_encodable(text):
        raise bad_data(path, "a lone surrogate. Remove it.", line)
    return text.replace("\r\n", "\n")


def text_keys(item: Mapping[str, object]) -> list[str]:
    return [key for key, value in item.items() if isinstance(value, str)]


def is_encodable(text: str) -> bool:
    """Whether a text can be written as UTF-8: it has no lone surrogate, which JSON can spell."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_toml_tables(path: Path, name: str, example: str) -> tuple[dict[str, object], list[dict[str, object]]]:
    """Return the settings of a TOML file, and its [[name]] tables, of which there must be one or more."""
    try:
        settings: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MissingFile(f"Cannot read {path}: {error.strerror}.", path=path) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise bad_data(path, f"not TOML ({error}). Expected\n{example}") from None
    tables = settings.pop(name, None)
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise bad_data(path, f"no [[{name}]] table. Expected one or more tables like\n{example}")
    return settings, tables


def require_nonempty(items: Iterable[Item], path: str | Path, problem: str) -> Iterator[Item]:
    """Pass on the items; raise if there are none."""
    is_empty = True
    for item in items:
        is_empty = False
        yield item
    if is_empty:
        raise bad_data(path, problem)
