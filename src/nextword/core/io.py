"""Small helpers for files and numbers.

- Atomic writes: a file appears under its name only when it is complete.
- Compressed files (.gz, .bz2, .xz, .zst): recognized by their first bytes when read, by their suffix when written.
- Memory: what was computed about a large file is remembered until the file changes.
- JSON and TOML: one reader for every file and line, with limits, that names the file and the place of a mistake.
- Infinite numbers: a model may give a text probability 0 (maximum likelihood does), which costs ∞ nats. In memory that
  is math.inf. JSON has no infinity, so files hold null, and the count of `impossible` tokens next to it says what it
  means.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import json
import lzma
import math
import os
import re
import shutil
import stat
import sys
import time
import tomllib
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import UnionType
from typing import IO, Any, BinaryIO, cast, get_args

from nextword.core.errors import (
    DataError,
    InvalidSetting,
    MissingDependency,
    MissingFile,
    NextwordError,
    bad_data,
    describe_os_error,
)
from nextword.core.scratch import scratch_folder

# ------------------------------------------------------------------------------------------------ files


def cache_folder(name: str) -> Path:
    """A folder of files that can be computed again, in `$NEXTWORD_CACHE` or `~/.cache/nextword`."""
    return Path(os.environ.get("NEXTWORD_CACHE") or "~/.cache/nextword").expanduser() / name


REMEMBERED_SIZE = 16 << 20  # bytes of a file from which on reading all of it takes longer than looking up the result
SETTLED = 2.0  # seconds after which another change of a file surely changes its times, on every file system


def remembered(path: Path, fact: str, compute: Callable[[], str]) -> str:
    """Return `compute()`, which depends on nothing but the content of a file; of a large file only once.

    The result is kept in the cache folder until the file's size, times or inode change. One of the times is that of the
    last change of the inode, which no program can set, so a change cannot be hidden by setting the other back. Without
    a cache folder that can be written, the result is computed every time.
    """
    before = path.stat()
    if before.st_size < REMEMBERED_SIZE:
        return compute()
    known = _recall(before).get(fact)
    if isinstance(known, str):
        return known
    result = compute()
    after = path.stat()
    is_settled = time.time() - max(after.st_mtime, after.st_ctime) > SETTLED
    if is_settled and os.path.samestat(before, after) and _version(before) == _version(after):
        content = {**_recall(after), "version": _version(after), fact: result}
        with suppress(OSError, RuntimeError), write_atomically(_memory_of(after)) as file:
            file.write(json.dumps(content).encode())
    return result


def forget(path: Path) -> None:
    """Forget what is remembered about a file, so that it is computed again."""
    with suppress(OSError, RuntimeError):
        _memory_of(path.stat()).unlink()


def _recall(file: os.stat_result) -> dict[str, Any]:
    """What is remembered about a file in this version."""
    try:
        content = read_json(_memory_of(file))
    except (NextwordError, RuntimeError):
        return {}
    return content if content.get("version") == _version(file) else {}


def _memory_of(file: os.stat_result) -> Path:
    return cache_folder("files") / f"{file.st_dev}-{file.st_ino}.json"  # RuntimeError: this user has no home folder


def _version(file: os.stat_result) -> list[int]:
    return [file.st_size, file.st_mtime_ns, file.st_ctime_ns]


def refuse_existing(option: str, path: Path) -> None:
    """Raise an error if an output file exists: nothing is overwritten. (Devices such as /dev/null may be written.)"""
    if path.is_file():
        message = f"{option} {path} already exists. Choose another name, or remove it."
        raise InvalidSetting(message, key=option, value=str(path))


def link_or_copy(source: Path, target: Path) -> None:
    """Make the same bytes available at another path: as a hard link, which takes no space, or else as a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def open_stdin() -> BinaryIO:
    """Standard input, as bytes."""
    if sys.stdin is None:  # closed by the shell: <&-
        raise MissingFile("Standard input is closed. Pipe a text into the command, or name a file.", path="-")
    return sys.stdin.buffer


@contextmanager
def write_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Open a binary file that gets its name only when it is complete, compressed as its suffix says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(path.parent) as scratch:
        unfinished = scratch / path.name
        with unfinished.open("wb") as raw:
            with _compress(raw, path.suffix.lower(), path) as stream:
                yield stream
            raw.flush()
            os.fsync(raw.fileno())
        unfinished.replace(path)


def open_file(path: Path) -> io.BufferedReader:
    """Open a file to read its bytes. Raises MissingFile if it is missing, unreadable, a folder, a pipe or a device.

    Files are read more than once, which a pipe does not allow, and opening one that nobody writes to waits forever.
    """
    try:
        file = open(path, "rb", opener=_open_without_waiting)  # noqa: SIM115 (the caller closes it)
    except (OSError, ValueError) as error:  # ValueError: a zero character
        problem = error.strerror if isinstance(error, OSError) else str(error)
        raise MissingFile(f"Cannot read {path}: {problem}. Check the path and its permissions.", path=path) from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        what = "it is a pipe or a device, and files are read more than once"
        raise MissingFile(f"Cannot read {path}: {what}. Give a file, or - for standard input.", path=path)
    return file


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # which has no meaning for files


def user_path(name: str | Path) -> Path:
    """The path that somebody names, with ~ for the home folder. Raises MissingFile if no file can have this name."""
    try:
        path = Path(name).expanduser()
        path.exists()
    except (OSError, RuntimeError) as error:  # RuntimeError: ~ and no such user
        what, remedy = describe_os_error(error) if isinstance(error, OSError) else (str(error), "Check the path")
        raise MissingFile(f"Cannot read {str(name)[:200]}: {what}. {remedy}.", path=name) from error
    return path


def path_exists(name: str | Path) -> bool:
    """Whether this names a file or folder. A name that the system cannot have, such as a very long one, does not."""
    try:
        return user_path(name).exists()
    except MissingFile as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno != errno.ENAMETOOLONG:
            raise
        return False


MAX_RATIO, SMALL = 100, 100 << 20  # ten times what the best compressors reach on text; and bytes that do no harm


def most_unpacked(size: int) -> int:
    """The most bytes that a compressed file or an archive of this size may hold: more is taken for a bomb."""
    return max(SMALL, MAX_RATIO * size)


def bomb_error(path: Path, most: int) -> DataError:
    problem = f"it unpacks to more than {most >> 20:,} MB, {MAX_RATIO} times its size: it may be a bomb."
    return bad_data(path, f"{problem} If you trust it, unpack it, and give what it holds.")


_MAGIC = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\0": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}


class DecompressedFile:
    """The decompressed bytes of a file, with the position in the compressed file for progress bars.

    A file that is truncated, that changes before its end has been read, or that holds far more than it should (see
    `most_unpacked`) is a DataError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unpacked = 0
        self.raw = open_file(path)
        self._version = _version(os.fstat(self.raw.fileno()))
        self.size = self._version[0]  # of the compressed file
        start = self.raw.read(8)
        self.raw.seek(0)
        kind = next((suffix for magic, suffix in _MAGIC.items() if start.startswith(magic)), "")
        self.stream = _decompress(self.raw, kind, path)
        self._most = most_unpacked(self.size) if kind else sys.maxsize
        self._errors: tuple[type[Exception], ...] = (EOFError, zlib.error, lzma.LZMAError, OSError)
        if kind == ".zst":
            self._errors += (_zstandard(path).ZstdError,)

    def __enter__(self) -> DecompressedFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        """Yield the lines, with their ends."""
        try:
            for line in self.stream:
                self._count(len(line))
                yield line
        except self._errors as error:
            raise self._explain(error) from None
        self._require_unchanged()

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes; none at the end of the file."""
        try:
            block = self.stream.read(size)
        except self._errors as error:
            raise self._explain(error) from None
        self._count(len(block))
        if not block:
            self._require_unchanged()
        return block

    def read_into(self, buffer: memoryview) -> int:
        """Fill the buffer from the front; return the number of bytes read, 0 at the end of the file."""
        try:
            size = cast(io.BufferedReader, self.stream).readinto(buffer)
        except self._errors as error:
            raise self._explain(error) from None
        self._count(size)
        if not size:
            self._require_unchanged()
        return size

    def _count(self, size: int) -> None:
        self._unpacked += size
        if self._unpacked > self._most:
            raise bomb_error(self.path, self._most)

    def _explain(self, error: Exception) -> DataError:
        self._require_unchanged()
        return damaged_error(self.path, error)

    def _require_unchanged(self) -> None:
        size, modified, _ = _version(os.fstat(self.raw.fileno()))
        if [size, modified] != self._version[:2]:
            raise bad_data(self.path, "it changed while it was read. Wait until it is complete, then try again.")

    def position(self) -> int:
        """Return how many bytes of the compressed file have been read."""
        return self.raw.tell()

    def close(self) -> None:
        self.stream.close()
        self.raw.close()


def damaged_error(path: Path, error: Exception) -> DataError:
    return bad_data(path, f"damaged or truncated ({error}). Copy or download it again.")


def _decompress(raw: IO[bytes], kind: str, path: Path) -> IO[bytes]:
    if kind == ".gz":
        return cast(IO[bytes], gzip.GzipFile(fileobj=raw))
    if kind == ".bz2":
        return cast(IO[bytes], bz2.BZ2File(raw))
    if kind == ".xz":
        return cast(IO[bytes], lzma.LZMAFile(raw))
    if kind == ".zst":
        return cast(IO[bytes], io.BufferedReader(_ZstdFile(raw, path), 1 << 17))
    return raw


class _ZstdFile(io.RawIOBase):
    """The decompressed bytes of all frames of a .zst file; EOFError if the last frame is cut short.

    The reader of the package zstandard takes the end of the file for the end of the frame.
    """

    BLOCK = 2 << 10  # bytes to decompress at once. Each can become 32 kB, so this bounds the memory to 64 MB.

    def __init__(self, raw: IO[bytes], path: Path) -> None:
        self._raw, self._decompressor = raw, _zstandard(path).ZstdDecompressor()
        self._frame = self._decompressor.decompressobj()
        self._is_inside = False  # of a frame
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            compressed = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame, self._is_inside = self._decompressor.decompressobj(), False
            compressed = compressed or self._raw.read(self.BLOCK)
            if not compressed and self._is_inside:
                raise EOFError("the last frame is incomplete")
            if not compressed:
                return 0
            self._is_inside = True
            self._ready = memoryview(self._frame.decompress(compressed))
            if self._frame.eof and not self._frame.unused_data:
                self._frame, self._is_inside = self._decompressor.decompressobj(), False
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


def _compress(raw: IO[bytes], kind: str, path: Path) -> AbstractContextManager[IO[bytes]]:
    if kind == ".gz":
        return cast(IO[bytes], gzip.GzipFile("", "wb", 6, raw, mtime=0))  # no name, no time: same content, same bytes
    if kind == ".bz2":
        return cast(IO[bytes], bz2.BZ2File(raw, "wb"))
    if kind == ".xz":
        return cast(IO[bytes], lzma.LZMAFile(raw, "wb", preset=1))  # higher presets take minutes and save little
    if kind == ".zst":
        return cast(IO[bytes], _zstandard(path).ZstdCompressor().stream_writer(raw, closefd=False))
    return nullcontext(raw)


def _zstandard(path: Path) -> Any:
    try:
        import zstandard
    except ImportError:
        problem = f"{path} needs the package zstandard. Run pip install 'nextword[corpora]', or use .gz or .xz."
        raise MissingDependency(problem, package="zstandard") from None
    return zstandard


# ------------------------------------------------------------------------------------------------ JSON

MAX_JSON_BYTES = 256 << 20  # of a file or a line; a vocabulary of ten million words fits
MAX_JSON_DEPTH = 100  # objects and lists within each other
JSON_TYPES = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    type(None): "null",
}

Types = Mapping[str, type | UnionType]  # key → type; a type that includes None: the key may be missing or null


def read_json(path: Path, types: Types | None = None, remedy: str = "Restore it from a copy.") -> dict[str, Any]:
    """Read a file with one JSON object; `types` are the keys that the caller relies on.

    Raises MissingFile if the file cannot be read, and DataError with its path and line if its content is not as
    described in `parse_json`, is no object, or lacks a key of `types`. `remedy` ends the message.
    """
    content = parse_json(read_bytes(path, MAX_JSON_BYTES + 1), path, remedy=remedy)
    if not isinstance(content, dict):
        raise bad_data(path, f"expected a JSON object, got {json_type(content)}. {remedy}")
    check_json(content, types or {}, path, remedy=remedy)
    return content


def read_bytes(path: Path, most: int = -1) -> bytes:
    """Read a file that is held in memory, up to `most` bytes. Raises as `open_file` does."""
    with open_file(path) as file:
        try:
            is_long = 0 <= most < os.fstat(file.fileno()).st_size
            return file.read(most) if is_long else file.read()  # read(most) would allocate as much
        except OSError as error:
            raise MissingFile(f"Cannot read {path}: {error.strerror}. Check the disk.", path=path) from None


def parse_json(text: str | bytes, path: str | Path, line: int | None = None, remedy: str = "Correct it.") -> Any:
    """Parse JSON that comes from `path`, or from one line of it.

    Raises DataError if it is not UTF-8 or not JSON, has NaN or an infinity, a key twice in one object or half of a
    surrogate pair, or is larger or nested more deeply than MAX_JSON_BYTES and MAX_JSON_DEPTH: other programs would
    read something else, or this one would fail later, far from the file.
    """
    if len(text) > MAX_JSON_BYTES:
        raise bad_data(path, f"more than {MAX_JSON_BYTES >> 20} MB of JSON, the limit. {remedy}", line)
    try:
        decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        content = _DECODER.decode(decoded)
        if _SURROGATE.search(decoded):
            json.dumps(content, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        at = line if line is not None else error.object.count(b"\n", 0, error.start) + 1
        raise bad_data(path, f"not UTF-8 (byte {error.start:,}: {error.reason}). {remedy}", at) from None
    except UnicodeEncodeError:
        raise bad_data(
            path, f"half of a surrogate pair (\\ud800 to \\udfff), which is no character. {remedy}", line
        ) from None
    except json.JSONDecodeError as error:
        at = line if line is not None else error.lineno
        raise bad_data(path, f"not JSON ({error.msg}, column {error.colno}). {remedy}", at) from None
    except ValueError as error:  # of the functions below, or a number with thousands of digits
        raise bad_data(path, f"not JSON ({error}). {remedy}", line) from None
    except RecursionError:
        raise _too_deep(path, line, remedy) from None
    if decoded.count("[") + decoded.count("{") > MAX_JSON_DEPTH and _is_deeper(content, MAX_JSON_DEPTH):
        raise _too_deep(path, line, remedy)
    return content


def check_json(content: Mapping[str, Any], types: Types, path: str | Path, where: str = "", remedy: str = "") -> None:
    """Raise DataError unless the keys have these types; `where` names the object within the file."""
    for key, expected in types.items():
        value = content.get(key)
        accepted = get_args(expected) or (expected,)
        if isinstance(value, bool):
            is_right = bool in accepted
        else:
            is_right = isinstance(value, expected) or (isinstance(value, int) and float in accepted)
        if not is_right:
            actual = json_type(value) if key in content else "nothing"
            names = " or ".join(JSON_TYPES[kind] for kind in accepted if kind is not type(None))
            raise bad_data(path, f"{where}{key!r} is {actual}; expected {names}. {remedy}".rstrip())


def json_type(value: object) -> str:
    """The type of a JSON value in words: "a list"."""
    return JSON_TYPES[type(value)]


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {max(keys, key=keys.count)!r} twice in one object")
    return content


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"the number {number} is too large, or none")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_float=_finite, parse_constant=_finite)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # escaped; text that was read as UTF-8 cannot have one unescaped


def _is_deeper(content: object, limit: int) -> bool:
    level: list[Any] = [content]
    for _ in range(limit):
        parts = (value.values() if isinstance(value, dict) else value for value in level)
        level = [part for values in parts for part in values if isinstance(part, (dict, list))]
    return bool(level)


def _too_deep(path: str | Path, line: int | None, remedy: str) -> DataError:
    return bad_data(path, f"JSON nested more than {MAX_JSON_DEPTH} levels deep, the limit. {remedy}", line)


MAX_TOML_BYTES = 16 << 20


def read_toml(path: Path, remedy: str = "Correct it.") -> dict[str, Any]:
    """Read a TOML file. Raises MissingFile if it cannot be read, and DataError if it is not TOML or too large."""
    raw = read_bytes(path, MAX_TOML_BYTES + 1)
    if len(raw) > MAX_TOML_BYTES:
        raise bad_data(path, f"more than {MAX_TOML_BYTES >> 20} MB of TOML, the limit. {remedy}")
    try:
        return tomllib.loads(raw.decode("utf-8-sig").replace("\r\n", "\n"))
    except RecursionError:
        raise bad_data(path, f"TOML nested too deeply. {remedy}") from None
    except ValueError as error:  # of TOML, of UTF-8, or a number with thousands of digits
        raise bad_data(path, f"not TOML ({error}). {remedy}") from None


def to_json(value: object, indent: int | None = None) -> str:
    """JSON for everyone: infinities and NaN are null, and every control character is escaped."""
    text = json.dumps(replace_nonfinite(value), ensure_ascii=False, allow_nan=False, indent=indent)
    return _LATE_CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


_LATE_CONTROLS = re.compile(r"[\x7f-\x9f]")  # json escapes those up to \x1f


# ------------------------------------------------------------------------------------------------ infinite numbers

INFINITY = "∞"
SCIENTIFIC_FROM = 1e7  # a perplexity beyond this says no more than its order of magnitude
_PERPLEXITIES = ("perplexity", "word_perplexity", "token_perplexity")
_MAY_BE_INFINITE = ("nats", "bits_per_byte", "bits_per_byte_low", "bits_per_byte_high", *_PERPLEXITIES)


def replace_nonfinite(value: object) -> Any:
    """Return the value with every infinity and NaN, however deeply nested, replaced by None, for JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: replace_nonfinite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [replace_nonfinite(part) for part in value]
    return value


def restore_infinities(result: Mapping[str, Any]) -> dict[str, Any]:
    """Undo `replace_nonfinite` on an evaluation result: None means ∞ if some token was impossible.

    Bits per byte of a lossy tokenizer stay None, since they were never a number.
    """
    restored = dict(result)
    if restored.get("impossible"):
        is_lossless = restored.get("lossless", True)
        missing = [key for key in _MAY_BE_INFINITE if key in restored and restored[key] is None]
        restored |= {key: math.inf for key in missing if is_lossless or "byte" not in key}
    if restored.get("conventions"):
        restored["conventions"] = [restore_infinities(row) for row in restored["conventions"]]
    if restored.get("surprisal"):  # every token has a surprisal, so None can only mean ∞
        restored["surprisal"] = [math.inf if bits is None else bits for bits in restored["surprisal"]]
    return restored


def format_number(value: float | None, digits: int) -> str:
    """Format a number for people: "1,234.57", "3.23e+73" from ten million on, "∞", or "–" for None."""
    if value is None:
        return "–"
    if value == math.inf:
        return INFINITY
    return f"{value:,.{digits}f}" if value < SCIENTIFIC_FROM else f"{value:.3g}"
