"""Small helpers for files and numbers.

- Atomic writes: a file appears under its name only when it is complete.
- Compressed files (.gz, .bz2, .xz, .zst): recognized by their first bytes when read, by their suffix when written.
- Infinite numbers: a model may give a text probability 0 (maximum likelihood does), which costs ∞ nats. In memory that
  is math.inf. JSON has no infinity, so files hold null, and the count of `impossible` tokens next to it says what it
  means.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, cast

from nextword.core.errors import DataError, InvalidSetting, MissingDependency, MissingFile, bad_data

# ------------------------------------------------------------------------------------------------ files


def cache_folder(name: str) -> Path:
    """A folder of files that can be computed again, in `$NEXTWORD_CACHE` or `~/.cache/nextword`."""
    return Path(os.environ.get("NEXTWORD_CACHE") or "~/.cache/nextword").expanduser() / name


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


@contextmanager
def write_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Open a binary file that gets its name only when it is complete, compressed as its suffix says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as raw:
            with _compress(raw, path.suffix.lower(), path) as stream:
                yield stream
            raw.flush()
            os.fsync(raw.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


_MAGIC = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\0": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}


class DecompressedFile:
    """The decompressed bytes of a file, with the position in the compressed file for progress bars."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.raw = path.open("rb")
        except OSError as error:
            problem = f"Cannot read {path}: {error.strerror}. Check the path and its permissions."
            raise MissingFile(problem, path=path) from None
        self.size = os.fstat(self.raw.fileno()).st_size  # of the compressed file
        start = self.raw.read(8)
        self.raw.seek(0)
        kind = next((suffix for magic, suffix in _MAGIC.items() if start.startswith(magic)), "")
        self.stream = _decompress(self.raw, kind, path)
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
            yield from self.stream
        except self._errors as error:
            raise damaged_error(self.path, error) from None

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes; none at the end of the file."""
        try:
            return self.stream.read(size)
        except self._errors as error:
            raise damaged_error(self.path, error) from None

    def read_into(self, buffer: memoryview) -> int:
        """Fill the buffer from the front; return the number of bytes read, 0 at the end of the file."""
        try:
            return cast(io.BufferedReader, self.stream).readinto(buffer)
        except self._errors as error:
            raise damaged_error(self.path, error) from None

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
        decompressor = _zstandard(path).ZstdDecompressor()
        return cast(IO[bytes], io.BufferedReader(decompressor.stream_reader(raw, read_across_frames=True)))
    return raw


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
