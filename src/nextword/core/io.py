"""A file under a second name.

Numbers without end: a model may rule a text out, as maximum likelihood does, and what that text costs is infinite.

Inside, infinity is a float like others. JSON has no word for it: files hold null, beside the count of `impossible`
tokens that tells a reader what the null stands for. People read ∞.

Files that may be compressed: read by what they begin with, written by the suffix of their name.
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

from nextword.core.errors import NextwordError


def linked(source: Path, target: Path) -> None:
    """The same bytes at another place: as a link, which takes no room and stays when the first name goes, where the
    disk allows that; else as a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


NAME = "∞"
COSTS = (
    "nats",
    "bits_per_byte",
    "bits_per_byte_low",
    "bits_per_byte_high",
    "word_perplexity",
    "token_perplexity",
    "perplexity",
)


def finite(value: Any) -> Any:
    """The same value for JSON: what is not finite becomes null, however deep it lies."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    return value


def infinite(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result as it was before `finite`: null is infinite where a token was impossible, unless it never was a number.

    Bits per byte never are one where the tokenizer is not lossless.
    """
    found = dict(result)
    if found.get("impossible"):
        lossless = found.get("lossless", True)
        missing = [key for key in COSTS if key in found and found[key] is None]
        found |= {key: math.inf for key in missing if lossless or "byte" not in key}
    if found.get("conventions"):
        found["conventions"] = [infinite(row) for row in found["conventions"]]
    if found.get("surprisal"):  # each token has a cost, so null is but one thing
        found["surprisal"] = [math.inf if bits is None else bits for bits in found["surprisal"]]
    return found


def number(value: float | None, digits: int) -> str:
    if value is None:
        return "–"
    return NAME if value == math.inf else f"{value:,.{digits}f}"


_MAGIC = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\0": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}


class Bytes:
    """The decompressed bytes of a file, and how far into the file itself they reach."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.raw = path.open("rb")
        except OSError as error:
            raise NextwordError(f"{path} cannot be read ({error.strerror}). Check the path and its rights.") from None
        self.size = os.fstat(self.raw.fileno()).st_size
        start = self.raw.read(8)
        self.raw.seek(0)
        kind = next((suffix for magic, suffix in _MAGIC.items() if start.startswith(magic)), "")
        self.stream = _unpacking(self.raw, kind, path)
        self._errors: tuple[type[Exception], ...] = (EOFError, zlib.error, lzma.LZMAError, OSError)
        if kind == ".zst":
            self._errors += (_zstandard(path).ZstdError,)

    def read_into(self, room: memoryview) -> int:
        """How many bytes were read: 0 at the end."""
        try:
            return cast(Any, self.stream).readinto(room)
        except self._errors as error:
            raise NextwordError(
                f"{self.path} is damaged or cut short: it cannot be unpacked to its end ({error}). "
                "Copy or download it again."
            ) from None

    def place(self) -> int:
        return self.raw.tell()

    def close(self) -> None:
        self.stream.close()
        self.raw.close()


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name only when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as raw:
            with _packing(raw, path.suffix.lower(), path) as stream:
                yield stream
            raw.flush()
            os.fsync(raw.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _unpacking(raw: IO[bytes], kind: str, path: Path) -> IO[bytes]:
    if kind == ".gz":
        return cast(IO[bytes], gzip.GzipFile(fileobj=raw))
    if kind == ".bz2":
        return cast(IO[bytes], bz2.BZ2File(raw))
    if kind == ".xz":
        return cast(IO[bytes], lzma.LZMAFile(raw))
    if kind == ".zst":
        unpacker = _zstandard(path).ZstdDecompressor()
        return cast(IO[bytes], io.BufferedReader(unpacker.stream_reader(raw, read_across_frames=True)))
    return raw


def _packing(raw: IO[bytes], kind: str, path: Path) -> AbstractContextManager[IO[bytes]]:
    if kind == ".gz":
        return cast(IO[bytes], gzip.GzipFile("", "wb", 6, raw, mtime=0))  # no name, no time: same model, same bytes
    if kind == ".bz2":
        return cast(IO[bytes], bz2.BZ2File(raw, "wb"))
    if kind == ".xz":
        return cast(IO[bytes], lzma.LZMAFile(raw, "wb", preset=1))  # higher ones take minutes and win little
    if kind == ".zst":
        return cast(IO[bytes], _zstandard(path).ZstdCompressor().stream_writer(raw, closefd=False))
    return nullcontext(raw)


def _zstandard(path: Path) -> Any:
    try:
        import zstandard
    except ImportError:
        raise NextwordError(
            f"{path} is compressed with zstd, which needs the package zstandard: pip install 'nextword[corpora]', "
            "or use .gz or .xz instead."
        ) from None
    return zstandard
