"""Binary n-gram files: a container of named arrays.

Its two layouts are `fast` (hash_layout.py) and `compact` (trie_layout.py). A file is opened by mapping it, in
milliseconds, and is shared between processes.

    nextword n-grams   16 bytes
    version, length    two uint32: of this format, and of the header in bytes
    header             JSON: layout, facts, arrays (name → type, length, place), size of the file
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
from typing import Any, Literal

import numpy as np

from nextword.core.errors import DataError
from nextword.ngrams.trie import Trie

MAGIC = b"nextword n-grams"
VERSION = 1
ALIGNED = 64


@dataclass(frozen=True)
class NgramFile:
    layout: str
    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]


def create_file(
    path: Path, layout: str, facts: Mapping[str, Any], shapes: Mapping[str, tuple[Any, int]]
) -> dict[str, np.ndarray]:
    """Create a file with room for these arrays (name → type, length) and map them for writing."""
    places: dict[str, dict[str, Any]] = {}
    header = {"layout": layout, "facts": dict(facts), "arrays": places, "size": 0}
    for name, (kind, length) in shapes.items():
        described = np.lib.format.dtype_to_descr(np.dtype(kind))
        places[name] = {"type": described, "length": int(length), "place": 0}
    reserved = len(json.dumps(header)) + 24 * (len(shapes) + 1)  # room for the numbers that are not known yet
    at = _align(len(MAGIC) + 8 + reserved)
    for place in places.values():
        place["place"] = at
        at = _align(at + place["length"] * _dtype(place).itemsize)
    header["size"] = at
    text = json.dumps(header).encode().ljust(reserved)
    with path.open("wb") as file:
        file.write(MAGIC + struct.pack("<II", VERSION, reserved) + text)
        reserve_space(file.fileno(), at, path)
    return _map_arrays(path, places, "r+")


def reserve_space(handle: int, size: int, path: Path) -> None:
    """Allocate disk space before mapping it, so that a full disk is an error here and not a signal in a later loop."""
    try:
        os.posix_fallocate(handle, 0, size)
    except OSError as problem:
        if problem.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise DataError(
            f"The disk is full: {path.parent} has no room for {size / 1e6:,.0f} MB of n-grams. Free some space, or use "
            "a lower order, pruning or the compact layout.",
            path=path.parent,
        ) from None


def open_file(path: Path) -> NgramFile:
    """Map the arrays of a file; an error if it is truncated, of another kind or of another version."""
    with path.open("rb") as file:
        start = file.read(len(MAGIC) + 8)
        if start[: len(MAGIC)] != MAGIC:
            raise DataError(
                f"{path} is not an n-gram file of nextword. To read an ARPA file, use `nextword convert`.", path=path
            )
        version, length = struct.unpack("<II", start[len(MAGIC) :].ljust(8, b"\0"))
        if version != VERSION:
            raise DataError(
                f"{path} has version {version} of the n-gram format, expected {VERSION}. Estimate the model again, or "
                "convert it from its ARPA file.",
                path=path,
            )
        try:
            header = json.loads(file.read(length))
            size = header["size"]
        except (ValueError, KeyError, UnicodeDecodeError):
            raise DataError(f"{path} is damaged: its header is not JSON. Restore it from a copy.", path=path) from None
        actual = file.seek(0, 2)
    if actual != size:
        raise DataError(
            f"{path} is truncated: {actual:,} bytes instead of {size:,}. Restore it from a copy.", path=path
        )
    return NgramFile(header["layout"], header["facts"], _map_arrays(path, header["arrays"], "c"))


def _map_arrays(path: Path, places: Mapping[str, Any], mode: Literal["r+", "c"]) -> dict[str, np.ndarray]:
    """Mode "c" shares pages with other processes and never writes to the file."""
    out = {}
    for name, place in places.items():
        kind = _dtype(place)
        if place["length"]:
            mapped = np.memmap(path, kind, mode, place["place"], (place["length"],))
            out[name] = mapped if mode == "r+" else mapped.view(np.ndarray)
        else:
            out[name] = np.zeros(0, kind)
    return out


def _dtype(place: Mapping[str, Any]) -> np.dtype[Any]:
    described = place["type"]
    return np.dtype(described if isinstance(described, str) else [tuple(column) for column in described])


def _align(at: int) -> int:
    return -(-at // ALIGNED) * ALIGNED


class Layout:
    """An n-gram model that was opened from a file. A subclass reads one of the two layouts."""

    def __init__(self, opened: NgramFile) -> None:
        self.facts = opened.facts
        self.order: int = opened.facts["order"]
        self.size: int = opened.facts["size"]  # words
        self.boundary: int = opened.facts["boundary"]
        self.entries: list[int] = opened.facts["entries"]  # n-grams by order

    def read(self, ids: np.ndarray) -> np.ndarray:
        """(T,) → ln p of each id given those before; NONE resets."""
        raise NotImplementedError

    def distributions(self, contexts: np.ndarray) -> np.ndarray:
        """(B, m) → (B, size), ln p of every word."""
        raise NotImplementedError

    def trie(self) -> Trie:
        raise NotImplementedError


LAYOUTS = ("fast", "compact")


def write_layout(trie: Trie, path: Path, layout: str = "fast", bits: int = 0, block: int = 1 << 32) -> None:
    """Write a trie to a file. `bits`: of a quantized value in the compact layout; `block`: nodes in memory at once."""
    from nextword.ngrams.hash_layout import write_hash_layout
    from nextword.ngrams.trie_layout import write_trie_layout

    if layout == "fast":
        write_hash_layout(trie, path, block)
    else:
        write_trie_layout(trie, path, bits)


def open_layout(path: Path) -> Layout:
    """Open a model file of either layout."""
    from nextword.ngrams.hash_layout import HashLayout
    from nextword.ngrams.trie_layout import TrieLayout

    opened = open_file(path)
    classes: dict[str, type[Layout]] = {"fast": HashLayout, "compact": TrieLayout}
    if opened.layout not in classes:
        raise DataError(f"{path} has the layout {opened.layout!r}. Expected one of {', '.join(classes)}.", path=path)
    return classes[opened.layout](opened)
