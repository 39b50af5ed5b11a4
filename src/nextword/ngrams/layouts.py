"""Binary n-gram files: a container of named arrays.

Its two layouts are `fast` (hash_layout.py) and `compact` (trie_layout.py). A file is opened by mapping it, in
milliseconds, and is shared between processes.

    nextword n-grams   16 bytes
    version, length    two uint32: of this format, and of the header in bytes
    header             JSON: layout, facts, arrays (name → type, length, place), size of the file
    arrays             each at a multiple of 64 bytes, little-endian

The compiled readers follow offsets without looking whether they leave the array. So whatever they follow is validated
when a file is opened for the first time (`find_damage` of the layout), and a file that fails is refused: whoever wrote
it, no content makes a reader crash or run forever. The result is remembered until the file changes.
"""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from nextword.core.errors import DataError, MissingFile
from nextword.core.io import check_json, parse_json, remembered
from nextword.ngrams.trie import MAX_ORDER, NONE, Trie, find_trie_damage

MAGIC = b"nextword n-grams"
VERSION = 1
ALIGNED = 64
MAX_HEADER = 1 << 20  # bytes
CHECK = "n-grams, check 1"  # what is remembered about a file; count up when a check is added
MAX_LOG_PROB = 1e-3  # natural logarithm; rounding may leave a little more than 0


@dataclass(frozen=True)
class NgramFile:
    path: Path
    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]


def create_file(
    path: Path, layout: str, facts: Mapping[str, Any], shapes: Mapping[str, tuple[Any, int]]
) -> dict[str, np.ndarray]:
    """Create a file with room for these arrays (name → type, length) and map them for writing."""
    places: dict[str, dict[str, Any]] = {}
    header = {"layout": layout, "facts": dict(facts), "arrays": places, "size": 0}
    for name, (kind, length) in shapes.items():
        places[name] = {"type": _describe_type(kind), "length": int(length), "place": 0}
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


def _describe_type(kind: Any) -> Any:
    """A type as JSON."""
    described = np.lib.format.dtype_to_descr(np.dtype(kind))
    return described if isinstance(described, str) else [list(column) for column in described]


def _align(at: int) -> int:
    return -(-at // ALIGNED) * ALIGNED


# ------------------------------------------------------------------------------------------------ opening


class Layout:
    """An n-gram model that was opened from a file. A subclass reads one of the two layouts."""

    types: ClassVar[Mapping[str, Any]]  # of the arrays in its files, in their order

    def __init__(self, opened: NgramFile) -> None:
        self.path, self.facts = opened.path, opened.facts
        self.order: int = opened.facts["order"]
        self.size: int = opened.facts["size"]  # words
        self.boundary: int = opened.facts["boundary"]
        self.entries: list[int] = opened.facts["entries"]  # n-grams by order

    @staticmethod
    def find_damage(opened: NgramFile) -> str:
        """What is wrong with the arrays of a file, or an empty string: whatever reading relies on is checked."""
        raise NotImplementedError

    def read(self, ids: np.ndarray) -> np.ndarray:
        """(T,) → ln p of each id given those before; NONE resets."""
        raise NotImplementedError

    def distributions(self, contexts: np.ndarray) -> np.ndarray:
        """(B, m) → (B, size), ln p of every word."""
        raise NotImplementedError

    def trie(self) -> Trie:
        """The model as plain arrays."""
        trie = self.rebuild()
        if problem := find_trie_damage(trie):
            raise damaged_file(self.path, problem)
        return trie

    def rebuild(self) -> Trie:
        """The trie as the file describes it, which may contradict itself if the file was not written by nextword."""
        raise NotImplementedError

    def check_ids(self, ids: np.ndarray) -> np.ndarray:
        """The ids as the compiled readers take them; an error if one is outside the vocabulary."""
        ids = np.ascontiguousarray(ids, np.uint32)
        if ids.size and int((ids + np.uint32(1)).max()) > self.size:  # NONE + 1 is 0
            wrong = ids[(ids >= self.size) & (ids != NONE)]
            raise DataError(
                f"Id {wrong[0]} is outside the model's vocabulary of {self.size:,}. Encode the text with the model's "
                "own tokenizer."
            )
        return ids


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
    """Open a model file of either layout; an error if it is damaged, truncated, of another kind or version."""
    from nextword.ngrams.hash_layout import HashLayout
    from nextword.ngrams.trie_layout import TrieLayout

    header, end = _read_header(path)
    classes: dict[str, type[Layout]] = {"fast": HashLayout, "compact": TrieLayout}
    if header["layout"] not in classes:
        raise DataError(f"{path} has the layout {header['layout']!r}. Expected {' or '.join(classes)}.", path=path)
    cls = classes[header["layout"]]
    if problem := _find_header_damage(header, end, cls.types):
        raise damaged_file(path, problem)
    opened = NgramFile(path, header["facts"], _map_arrays(path, header["arrays"], "c"))
    if problem := remembered(path, CHECK, lambda: cls.find_damage(opened)):
        raise damaged_file(path, problem)
    return cls(opened)


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header, and where it ends."""
    if not path.is_file():  # reading a pipe could wait forever
        raise MissingFile(f"There is no file {path}. Restore it, or train again.", path=path)
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
        if length > MAX_HEADER:
            raise damaged_file(path, f"its header has {length:,} bytes, more than {MAX_HEADER:,}")
        header = parse_json(file.read(length), path, remedy="Restore it from a copy.")
        actual = file.seek(0, os.SEEK_END)
    types = {"layout": str, "facts": dict, "arrays": dict, "size": int}
    if not isinstance(header, dict):
        raise damaged_file(path, "its header is not a JSON object")
    check_json(header, types, path, "in the header, ", "Restore it from a copy.")
    if actual != header["size"]:
        raise DataError(
            f"{path} is truncated: {actual:,} bytes instead of {header['size']:,}. Restore it from a copy.", path=path
        )
    return header, len(MAGIC) + 8 + length


def _find_header_damage(header: Mapping[str, Any], end: int, types: Mapping[str, Any]) -> str:
    """What is wrong with the header of a file of that layout, or an empty string."""
    facts = header["facts"]
    order, size, boundary, entries = (facts.get(key) for key in ("order", "size", "boundary", "entries"))
    if type(order) is not int or not 1 <= order <= MAX_ORDER:
        return f"its order is {order!r}, expected 1 to {MAX_ORDER}"
    if type(size) is not int or not 1 <= size < NONE:
        return f"its vocabulary has {size!r} words, expected 1 to {NONE - 1:,}"
    if type(boundary) is not int or not 0 <= boundary < size:
        return f"its boundary is word {boundary!r}, expected 0 to {size - 1:,}"
    if not isinstance(entries, list) or len(entries) != order or entries[0] != size:
        return f"it does not have {order} numbers of n-grams, of which the first is {size:,}"
    if not all(type(count) is int and 0 <= count < NONE for count in entries):
        return f"a number of n-grams is not between 0 and {NONE - 1:,}"
    arrays, at = header["arrays"], _align(end)
    if list(arrays) != list(types):
        return f"it does not have the arrays {', '.join(types)}"
    for name, kind in types.items():
        place = arrays[name] if isinstance(arrays[name], dict) else {}
        length = place.get("length")
        if type(length) is not int or not 0 <= length <= header["size"]:
            return f"its array {name} does not fit into the file"
        if place != {"type": _describe_type(kind), "length": length, "place": at} or type(place["place"]) is not int:
            return f"its array {name} is not of the type or not at the place that the format prescribes"
        at = _align(at + length * np.dtype(kind).itemsize)
    return "" if at == header["size"] else "its arrays do not end where the file does"


def damaged_file(path: Path, problem: str) -> DataError:
    return DataError(f"{path} is damaged: {problem}. Restore it from a copy, or train again.", path=path)
