"""Small n-gram files of every layout, and damage to them.

    python -m tests.support.ngram_files 0-2 FILE…     open damaged copies of these files, and use those that open

Each damaged file prints a line before and a line after, so that a crash shows which one caused it; a watchdog ends the
process if one takes too long. The parent of the process judges by what it printed.
"""

from __future__ import annotations

import faulthandler
import json
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nextword.core.errors import DataError
from nextword.ngrams.layouts import MAGIC, Layout, open_layout, write_layout
from nextword.ngrams.trie import NONE
from tests.support.random_tries import make_random_trie

LAYOUTS: dict[str, dict[str, Any]] = {
    "fast": {"layout": "fast"},
    "compact": {"layout": "compact"},
    "quantized": {"layout": "compact", "bits": 4},
}
SECONDS = 60  # for one damaged file, on a busy machine


def write_ngram_files(folder: Path) -> list[Path]:
    """A file of each of LAYOUTS, with tables of all kinds and with unlikely values."""
    paths = []
    for name, settings in LAYOUTS.items():
        trie = make_random_trie(seed=1, order=4, size=60, boundary=0, length=1500)
        write_layout(trie, folder / name, settings["layout"], settings.get("bits", 0))
        paths.append(folder / name)
    return paths


# ------------------------------------------------------------------------------------------------ damage


def read_header(content: bytes | bytearray) -> dict[str, Any]:
    start = len(MAGIC) + 8
    header: dict[str, Any] = json.loads(content[start : start + struct.unpack("<I", content[start - 4 : start])[0]])
    return header


def with_header(content: bytes, header: dict[str, Any]) -> bytes:
    """The file with another header of the same length."""
    start = len(MAGIC) + 8
    (length,) = struct.unpack("<I", content[start - 4 : start])
    text = json.dumps(header).encode().ljust(length)
    assert len(text) == length, "the new header is too long"
    return content[:start] + text + content[start + length :]


def element_type(described: Any) -> np.dtype[Any]:
    return np.dtype(described if isinstance(described, str) else [tuple(column) for column in described])


def sections(content: bytes | bytearray) -> dict[str, tuple[int, int]]:
    """Where the header and the arrays begin and end."""
    arrays = read_header(content)["arrays"]
    found = {"header": (0, min(place["place"] for place in arrays.values()))}
    for name, place in arrays.items():
        size = place["length"] * element_type(place["type"]).itemsize
        found[name] = (place["place"], place["place"] + size)
    return found


def edit_array(path: Path, name: str, edit: Callable[[np.ndarray], object]) -> None:
    """Edit an array within a file."""
    content = bytearray(path.read_bytes())
    begin, end = sections(content)[name]
    edit(np.frombuffer(content, np.uint8)[begin:end].view(element_type(read_header(content)["arrays"][name]["type"])))
    path.write_bytes(content)


def damaged_copies(content: bytes, seeds: range) -> Iterator[tuple[str, bytes]]:
    """Copies of a file with flipped bits, noise, constants, or elements that were overwritten by others."""
    header = read_header(content)
    for section, (begin, end) in sections(content).items():
        place = header["arrays"].get(section)
        for seed in seeds:
            draw = np.random.default_rng([seed, begin])
            for kind in ("one bit", "64 bits", "noise", "constant", "copied elements", "small changes"):
                copy = bytearray(content)
                bytes_ = np.frombuffer(copy, np.uint8)
                if kind in ("one bit", "64 bits"):
                    for at in draw.integers(begin, end, 1 if kind == "one bit" else 64):
                        bytes_[at] ^= 1 << int(draw.integers(8))
                elif kind in ("noise", "constant"):
                    low = int(draw.integers(begin, end))
                    high = min(end, low + int(draw.choice([4, 64, 2048])))
                    noise = draw.integers(0, 256, high - low)
                    bytes_[low:high] = noise if kind == "noise" else draw.choice([0, 1, 127, 128, 255])
                elif place is not None:
                    array = bytes_[begin:end].view(element_type(place["type"]))
                    fields = [array[name] for name in array.dtype.names] if array.dtype.names else [array]
                    for _ in range(int(draw.choice([1, 5]))):
                        field = fields[int(draw.integers(len(fields)))]
                        at, other = draw.integers(0, len(field), 2)
                        if kind == "copied elements":
                            field[at] = field[other]
                        elif field.dtype.kind == "f":
                            field[at] = draw.choice([np.nan, np.inf, -np.inf, 3e38, -3e38, 0.5])
                        else:
                            numbers = field.astype(object)
                            number = numbers[at] + int(draw.choice([-100, -1, 1, 2, 100]))
                            field[at] = number % (1 << (8 * field.dtype.itemsize - 1))
                yield f"{section}, {kind}, seed {seed}", bytes(copy)


def use(model: Layout) -> list[np.ndarray]:
    """What a model says about a fixed text and fixed contexts, and its trie if it is sound."""
    draw = np.random.default_rng(2)
    ids = np.minimum(draw.geometric(0.07, 3000) - 1, model.size - 1).astype(np.uint32)
    ids[draw.random(len(ids)) < 0.02] = NONE
    results = [model.read(ids)]
    results += [model.distributions(ids[: 40 * width].reshape(40, width)) for width in (0, 1, 3, 7)]
    try:
        trie = model.trie()
    except DataError:
        return results
    return [*results, *(level.log_probs for level in trie.levels)]


def main(paths: list[str], seeds: range) -> None:
    for path in map(Path, paths):
        content = path.read_bytes()
        expected = use(open_layout(path))
        other = path.with_name("damaged")
        for name, copy in damaged_copies(content, seeds):
            print(f"{path.name}: {name}: ", end="", flush=True)
            faulthandler.dump_traceback_later(SECONDS, exit=True)
            other.write_bytes(copy)
            try:
                results = use(open_layout(other))
            except DataError:
                print("refused")
                continue
            finally:
                faulthandler.cancel_dump_traceback_later()
            is_same = all(np.array_equal(a, b) for a, b in zip(expected, results, strict=False))
            is_sound = all(not np.isnan(a).any() and (a < 1e9).all() for a in results)
            print("same" if is_same else "other numbers" if is_sound else "UNSOUND NUMBERS")
    print("done")


if __name__ == "__main__":
    first, last = map(int, sys.argv[1].split("-"))
    main(sys.argv[2:], range(first, last))
