"""From bytes to text: decompression, archives, encodings, lines, JSON lines, TOML, with errors that name the bad line.

Text is UTF-8, or UTF-16 with a byte-order mark; tables may also be windows-1252 or gb18030. Removes the byte-order mark
and turns `\\r\\n` into `\\n`; nothing else is changed.
"""

from __future__ import annotations

import codecs
import errno
import io
import lzma
import os
import re
import shutil
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, Protocol, TypeVar

from nextword.core.errors import CannotWrite, DataError, NextwordError, bad_data, invalid
from nextword.core.io import (
    DecompressedFile,
    bomb_error,
    damaged_error,
    most_unpacked,
    open_file,
    open_stdin,
    parse_json,
    read_toml,
)

Item = TypeVar("Item")

COMPRESSED = (".gz", ".xz", ".zst", ".bz2")
STDIN = "-"
FROM_STDIN = "standard input"
BLOCK = 1 << 20  # bytes read at a time
SPREADSHEETS = (".xlsx", ".xlsm", ".xls", ".ods", ".numbers")
UTF8, UTF8_WITH_MARK, UTF16 = "utf-8", "utf-8-sig", "utf-16"
WINDOWS = "windows-1252"  # what spreadsheets write on Windows: Latin-1 plus curly quotes, dashes and €
CHINESE = "gb18030"


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
    with open_file(path) as raw:
        while block := raw.read(1 << 22):
            hasher.update(block)


# ------------------------------------------------------------------------------------------------ text


def open_bytes(path: str | Path) -> DecompressedFile | BinaryIO:
    """Open a file, decompressing it, or standard input for `-`."""
    return open_stdin() if str(path) == STDIN else DecompressedFile(Path(path))


class TextStream:
    """The text of a file: UTF-8, or UTF-16 with a byte-order mark.

    With `legacy`, as tables are read, text that is not UTF-8 is decoded in the encoding of `guess_encoding`.
    `encoding` is valid once the text has been read; "" means that all of it is ASCII.
    """

    def __init__(self, path: str | Path, legacy: bool = False) -> None:
        self.path, self.legacy = path, legacy
        self.encoding = ""

    def chunks(self) -> Iterator[str]:
        """Yield chunks of about a megabyte, which end anywhere between two characters."""
        with open_bytes(self.path) as file:
            yield from self._decode(iter(lambda: file.read(BLOCK), b""), display_name(self.path))

    def lines(self) -> Iterator[str]:
        return split_lines(self.chunks(), display_name(self.path))

    def _decode(self, blocks: Iterable[bytes], name: str, member: str = "") -> Iterator[str]:
        place = f"{member} is " if member else ""
        decoder: codecs.IncrementalDecoder | None = None  # of another encoding than UTF-8
        pending, base, lines = b"", 0, 1  # undecoded bytes, their offset, number of the current line
        held = ""  # a carriage return at the end of a chunk, which may be half of \r\n
        for block in chain(blocks, [b""]):
            data = pending + block
            if base == 0 and not pending:
                if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    self.encoding = UTF16
                    decoder = codecs.getincrementaldecoder(UTF16)()
                elif data.startswith(codecs.BOM_UTF8):
                    self.encoding = UTF8_WITH_MARK
                    data, base = data[len(codecs.BOM_UTF8) :], len(codecs.BOM_UTF8)
            if b"\0" in data and self.encoding != UTF16:
                offset = data.index(b"\0")
                is_spreadsheet = Path(name).suffix.lower() in SPREADSHEETS
                remedy = (
                    "Export the spreadsheet as CSV in UTF-8." if is_spreadsheet else "Convert it to plain text first."
                )
                problem = f"{place}not text: it has a zero byte at offset {base + offset}."
                raise bad_data(name, f"{problem} {remedy}", lines + data.count(b"\n", 0, offset))
            if decoder is None:
                try:
                    text, used = codecs.utf_8_decode(data, "strict", not block)
                    self.encoding = self.encoding or ("" if text.isascii() else UTF8)
                except UnicodeDecodeError as error:
                    # All before was ASCII, which is the same in every encoding that is guessed.
                    guess = guess_encoding(data) if self.legacy and not self.encoding else ""
                    if not guess:
                        problem = f"{place}not UTF-8: byte 0x{data[error.start]:02x} at offset {base + error.start}."
                        command = _iconv_command(name, WINDOWS)
                        remedy = f"If it comes from Windows or is Latin-1, convert it: {command}"
                        line = lines + data.count(b"\n", 0, error.start)
                        raise bad_data(name, f"{problem} {remedy}", line) from None
                    self.encoding = guess
                    decoder = codecs.getincrementaldecoder(guess)()
            if decoder is not None:
                try:
                    text, used = decoder.decode(data, not block), len(data)
                except UnicodeDecodeError as error:
                    problem = f"{place}neither UTF-8 nor {self.encoding}, in which it begins: {error.reason}."
                    command = _iconv_command(name, "ENCODING")
                    line = lines + data.count(b"\n", 0, error.start)
                    raise bad_data(name, f"{problem} Convert it: {command}", line) from None
            pending, base, lines = data[used:], base + used, lines + data.count(b"\n", 0, used)
            text = held + text
            held = "\r" if block and text.endswith("\r") else ""
            text = (text[:-1] if held else text).replace("\r\n", "\n")
            if text:
                yield text


def read_chunks(path: str | Path) -> Iterator[str]:
    """Yield the text of a UTF-8 file in chunks of about a megabyte, which end anywhere between two characters."""
    return TextStream(path).chunks()


def _iconv_command(name: str, encoding: str) -> str:
    """Return the command that converts to UTF-8, into a file with the same suffix, since readers go by that."""
    command = f"iconv -f {encoding} -t utf-8"
    return f"{command} {name} > utf8-{plain_name(name)}" if name != FROM_STDIN else f"… | {command} | nextword …"


def read_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, each with its line end (the last perhaps without)."""
    return TextStream(path).lines()


MAX_LINE = 64 << 20  # characters of a line, or of a row of a table: bounds the memory that reading takes
LINE_VARIABLE = "NEXTWORD_MAX_LINE"


def line_limit() -> int:
    """The most characters of a line, or of a row of a table: MAX_LINE, or the environment's NEXTWORD_MAX_LINE."""
    value = os.environ.get(LINE_VARIABLE, "")
    if not value:
        return MAX_LINE
    if not value.isdecimal() or not 0 < len(value) < 15:
        raise invalid(LINE_VARIABLE, value, "must be a number of characters.")
    return int(value)


def long_line_error(name: str | Path, limit: int, line: int | None) -> DataError:
    problem = f"a line or row of more than {limit:,} characters, the limit. Is a line end or quotation mark missing?"
    return bad_data(name, f"{problem} To read it anyway, set {LINE_VARIABLE} to a larger number.", line)


def split_lines(chunks: Iterable[str], name: str | Path = "") -> Iterator[str]:
    """Yield the lines of chunked text. Only `\\n` ends a line: form feeds and the like are text."""
    limit, number = line_limit(), 1
    rest: list[str] = []
    size = 0
    for chunk in chunks:
        complete, newline, tail = chunk.rpartition("\n")
        if newline:
            yield from io.StringIO("".join((*rest, complete, newline)), newline="\n")
            number += chunk.count("\n")
            rest, size = [], 0
        rest.append(tail)
        size += len(tail)
        if size > limit:
            raise long_line_error(name, limit, number)
    if size:
        yield "".join(rest)


# ------------------------------------------------------------------------------------------------ encodings

_HIGH_RUN = re.compile(rb"[\x80-\xff]+")
_UTF8_SEQUENCE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")
_WESTERN = frozenset({0x80, 0x85, *range(0x91, 0x98), 0x99, *range(0xA0, 0x100)})  # of windows-1252, in real texts
_COMMON_CHINESE = frozenset(
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里很好没都还看，。、；：？！"
)


def guess_encoding(data: bytes) -> str:
    """Return the encoding of text that is not UTF-8: windows-1252 or gb18030; "" if it looks like neither.

    In Western text, single letters with accents stand among ASCII; in Chinese text, all bytes are high, in pairs, and
    a few characters are very frequent. Anything else (Cyrillic, Korean, damaged UTF-8) is for the user to convert.
    """
    runs = _HIGH_RUN.findall(data)
    count = sum(map(len, runs))
    if _CONTROL.search(data):
        return ""
    if _is_chinese(data):
        return CHINESE
    if 2 * sum(map(len, _UTF8_SEQUENCE.findall(data))) > count:  # damaged UTF-8
        return ""
    try:
        data.decode(WINDOWS)
    except UnicodeDecodeError:
        return ""
    plausible = sum(byte in _WESTERN for run in runs for byte in run)
    return WINDOWS if count <= 2 * len(runs) and 10 * plausible >= 9 * count else ""


def _is_chinese(data: bytes) -> bool:
    try:
        text = codecs.getincrementaldecoder(CHINESE)().decode(data)
    except UnicodeDecodeError:
        return False
    foreign = [letter for letter in text if letter > "\x7f"]
    chinese = [c for c in foreign if "\u3000" <= c <= "\u9fff" or "\uff00" <= c <= "\uffef"]
    common = sum(letter in _COMMON_CHINESE for letter in chinese)
    if 10 * sum("\u3040" <= letter <= "\u30ff" for letter in chinese) > len(chinese):  # kana: Japanese in EUC
        return False
    return 10 * len(chinese) >= 9 * len(foreign) and 25 * common >= len(chinese) > 0


# ------------------------------------------------------------------------------------------------ archives

ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.xz", ".tar.bz2")
MAX_MEMBERS = 500_000
MAX_HEADER = 16 << 20  # bytes that describe one member of a tar
# What the modules zipfile and tarfile raise for damaged archives. RuntimeError: encrypted, an unknown method, recursion
_ARCHIVE_ERRORS: tuple[type[Exception], ...] = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error, EOFError),
    *(OSError, RuntimeError, ValueError, LookupError, OverflowError),
)
_NAME_ERRORS = (errno.ENAMETOOLONG, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.EINVAL, errno.EILSEQ, errno.ENOENT)


def is_archive(path: Path) -> bool:
    return path.name.lower().endswith(ARCHIVES)


class Archive:
    """The files in a zip or tar archive; links, devices and folders are left out.

    Whatever is wrong with the archive is a DataError, also what would fill the memory or the disk: see `most_unpacked`.
    """

    def __init__(self, path: Path, opened: zipfile.ZipFile | tarfile.TarFile, size: int) -> None:
        self.path, self._opened = path, opened
        self._most = most_unpacked(size)

    def members(self) -> Iterator[tuple[str, int]]:
        """Yield the name and the size of each file."""
        for name, size, _ in self._files():
            yield name, size

    def open(self, member: str) -> IO[bytes]:
        for name, size, item in self._files():
            if name == member:
                self._require_expected(size)
                return self._open(item)
        raise bad_data(self.path, f"it has no file {member!r} any more. Start again.")

    def unpack(self, folder: Path) -> None:
        """Write all files into a folder."""
        total, free = 0, shutil.disk_usage(folder).free
        for name, size, item in self._files():
            total += size
            self._require_expected(total)
            if total > free:
                problem = f"{self.path} unpacks to more than the free space, {free >> 20:,} MB. Free some space."
                raise CannotWrite(problem, path=folder)
            self._write(self._open(item), folder, self._safe_path(name))

    def _files(self) -> Iterator[tuple[str, int, zipfile.ZipInfo | tarfile.TarInfo]]:
        if isinstance(self._opened, zipfile.ZipFile):
            for info in self._opened.infolist():
                if not info.is_dir():
                    yield info.filename, info.file_size, info
            return
        total = 0
        for number, item in enumerate(self._opened):
            total += item.size
            self._require_expected(total)  # before it is skipped, which means to unpack it
            if number >= MAX_MEMBERS:
                problem = f"more than {MAX_MEMBERS:,} members, the limit. Unpack it, and give the folder."
                raise bad_data(self.path, problem)
            if item.isfile():
                yield item.name, item.size, item

    def _open(self, item: zipfile.ZipInfo | tarfile.TarInfo) -> IO[bytes]:
        if isinstance(self._opened, zipfile.ZipFile):
            assert isinstance(item, zipfile.ZipInfo)
            return self._opened.open(item)
        assert isinstance(item, tarfile.TarInfo)
        stream = self._opened.extractfile(item)
        assert stream is not None  # only for members that are no files
        return stream

    def _write(self, stream: IO[bytes], folder: Path, place: PurePosixPath) -> None:
        try:
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            with stream, open(folder / place, "xb") as file:
                shutil.copyfileobj(stream, file, BLOCK)
        except OSError as error:
            if error.errno not in _NAME_ERRORS:
                raise
            problem = f"its file {str(place)[:200]!r} cannot be unpacked ({error.strerror})."
            raise bad_data(self.path, f"{problem} Unpack it by hand, and give the folder.") from None

    def _safe_path(self, name: str) -> PurePosixPath:
        place = PurePosixPath(name.replace("\\", "/"))
        if not place.parts or place.is_absolute() or ".." in place.parts or ":" in place.parts[0] or "\0" in name:
            problem = f"its file {name[:200]!r} would be written outside of the folder. Do not trust it."
            raise bad_data(self.path, problem)
        return place

    def _require_expected(self, size: int) -> None:
        if size > self._most:
            raise bomb_error(self.path, self._most)


class _LimitedReads(io.RawIOBase):
    """A file of which little is read at once: a header in a tar may claim gigabytes, and tarfile reads all of it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def read(self, size: int = -1, /) -> bytes:
        if size > MAX_HEADER:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._file.read(size)


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open a zip or tar archive. Errors that a damaged archive causes become a DataError."""
    try:
        size = path.stat().st_size
        if path.suffix.lower() == ".zip":
            with open_file(path) as raw, zipfile.ZipFile(raw) as opened:
                yield Archive(path, opened, size)
        else:
            with DecompressedFile(path) as file, tarfile.open(fileobj=_LimitedReads(file.stream), mode="r:") as tar:
                yield Archive(path, tar, size)
    except NextwordError:
        raise
    except _ARCHIVE_ERRORS as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # of the system: a full disk
            raise
        raise damaged_error(path, error) from None


def list_members(path: Path) -> list[str]:
    """Return the names of the files in an archive."""
    with open_archive(path) as archive:
        return [name for name, _ in archive.members()]


def read_member(path: Path, member: str) -> Iterator[str]:
    """Yield the lines of a file in an archive."""
    with open_archive(path) as archive, archive.open(member) as stream:
        blocks = iter(lambda: stream.read(BLOCK), b"")
        yield from split_lines(TextStream(path)._decode(blocks, str(path), member), path)


# ------------------------------------------------------------------------------------------------ JSON lines and TOML


def read_objects(name: str | Path, source: Iterable[str], example: str = "") -> Iterator[tuple[int, dict[str, object]]]:
    """Yield line number and object of each nonempty line. `example` completes "Expected one object per line"."""
    for number, line in enumerate(source, 1):
        if not line.strip():
            continue
        item = parse_json(line, name, number, f"Expected one object per line{example}.")
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
    settings: dict[str, object] = read_toml(path, f"Expected\n{example}")
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
