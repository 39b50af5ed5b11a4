"""The binary layouts by name: `fast` to read quickly, `compact` to take little room.

One file of named arrays behind a header in JSON: opened by mapping it, in milliseconds, shared between processes.

nextword n-grams   16 bytes
version, length    two uint32: of this format, and of the header in bytes
header             JSON: layout, facts, arrays (name → type, shape, place), size of the whole file
arrays             each at a multiple of 64 bytes, little-endian
"""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from nextword.core.errors import NextwordError
from nextword.ngrams.trie import Trie

MAGIC = b"nextword n-grams"
VERSION = 1
ALIGNED = 64
COPIED = 1 << 22  # entries written at once


@dataclass(frozen=True)
class Opened:
    layout: str
    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]


def create(
    path: Path, layout: str, facts: Mapping[str, Any], shapes: Mapping[str, tuple[Any, int]]
) -> dict[str, np.ndarray]:
    """A new file with room for these arrays (name → type, length), mapped to be filled."""
    header = {"layout": layout, "facts": dict(facts), "arrays": {}, "size": 0}
    places: dict[str, Any] = header["arrays"]  # type: ignore[assignment]
    for name, (kind, length) in shapes.items():
        described = np.lib.format.dtype_to_descr(np.dtype(kind))
        places[name] = {"type": described, "length": int(length), "place": 0}
    reserved = len(json.dumps(header)) + 24 * (len(shapes) + 1)  # room for the numbers yet to come
    at = _aligned(len(MAGIC) + 8 + reserved)
    for place in places.values():
        place["place"] = at
        at = _aligned(at + place["length"] * _type(place).itemsize)
    header["size"] = at
    text = json.dumps(header).encode().ljust(reserved)
    with path.open("wb") as file:
        file.write(MAGIC + struct.pack("<II", VERSION, reserved) + text)
        reserve(file.fileno(), at, path)
    return _mapped(path, places, "r+")


def reserve(handle: int, size: int, path: Path) -> None:
    """Room on the disk before it is mapped: a full one must be an error, and not a signal in the middle of a loop."""
    try:
        os.posix_fallocate(handle, 0, size)
    except OSError as problem:
        if problem.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise NextwordError(
            f"The disk is full: {path.parent} has no room for {size / 1e6:,.0f} MB of n-grams. What was there "
            "before is kept. Free some space, or choose a lower order, pruning or the compact layout."
        ) from None


def write(path: Path, layout: str, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    made = create(path, layout, facts, {name: (array.dtype, len(array)) for name, array in arrays.items()})
    for name, array in arrays.items():
        for at in range(0, len(array), COPIED):
            made[name][at : at + COPIED] = array[at : at + COPIED]


def open_file(path: Path) -> Opened:
    """The arrays, mapped; a file that is cut short, of another kind or of another version is refused."""
    with path.open("rb") as file:
        start = file.read(len(MAGIC) + 8)
        if start[: len(MAGIC)] != MAGIC:
            raise NextwordError(f"{path} is no n-gram file of nextword. An ARPA file is read with `nextword convert`.")
        version, length = struct.unpack("<II", start[len(MAGIC) :].ljust(8, b"\0"))
        if version != VERSION:
            raise NextwordError(
                f"{path} has version {version} of the n-gram format, this nextword reads {VERSION}. Estimate the model "
                "again, or convert it from the ARPA file that it came from."
            )
        try:
            header = json.loads(file.read(length))
            size = header["size"]
        except (ValueError, KeyError, UnicodeDecodeError):
            raise NextwordError(f"{path} is damaged: its header is no JSON. Restore it from where it came.") from None
        found = file.seek(0, 2)
    if found != size:
        raise NextwordError(f"{path} is cut short: {found:,} bytes instead of {size:,}. Restore it from where it came.")
    return Opened(header["layout"], header["facts"], _mapped(path, header["arrays"], "c"))


def _mapped(path: Path, places: Mapping[str, Any], mode: Any) -> dict[str, np.ndarray]:
    """Mode "c": pages are shared with other processes and writing to them never reaches the file."""
    out = {}
    for name, place in places.items():
        kind = _type(place)
        if place["length"]:
            mapped = np.memmap(path, kind, mode, place["place"], (place["length"],))
            out[name] = mapped if mode == "r+" else mapped.view(np.ndarray)
        else:
            out[name] = np.zeros(0, kind)
    return out


def _type(place: Mapping[str, Any]) -> np.dtype[Any]:
    described = place["type"]
    return np.dtype(described if isinstance(described, str) else [tuple(column) for column in described])


def _aligned(at: int) -> int:
    return -(-at // ALIGNED) * ALIGNED


class Layout(Protocol):
    order: int
    size: int  # words
    boundary: int
    entries: list[int]  # n-grams by order
    facts: dict[str, Any]

    def read(self, ids: np.ndarray) -> np.ndarray: ...  # (T,) → ln p of each after those before; NONE forgets
    def distributions(self, contexts: np.ndarray) -> np.ndarray: ...  # (B, m) → (B, size), ln p of every word
    def trie(self) -> Trie: ...


LAYOUTS = ("fast", "compact")


def build(trie: Trie, path: Path, layout: str = "fast", bits: int = 0, block: int = 1 << 32) -> None:
    if layout == "fast":
        from nextword.ngrams.hash_layout import build_fast

        build_fast(trie, path, block)
    else:
        from nextword.ngrams.trie_layout import build_compact

        build_compact(trie, path, bits)


def open_layout(path: Path) -> Layout:
    opened = open_file(path)
    if opened.layout == "fast":
        from nextword.ngrams.hash_layout import Fast

        return Fast(opened)
    if opened.layout == "compact":
        from nextword.ngrams.trie_layout import Compact

        return Compact(opened)
    raise NextwordError(f"{path} has the layout {opened.layout!r}; expected one of {', '.join(LAYOUTS)}.")
