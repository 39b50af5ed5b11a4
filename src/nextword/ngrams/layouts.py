"""The binary layouts by name: `fast` to read quickly, `compact` to take little room."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np

from nextword.contract_errors import NextwordError
from nextword.ngrams import file
from nextword.ngrams.trie import Trie


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
        from nextword.ngrams.fast import build_fast

        build_fast(trie, path, block)
    else:
        from nextword.ngrams.compact import build_compact

        build_compact(trie, path, bits)


def open_layout(path: Path) -> Layout:
    opened = file.open_file(path)
    if opened.layout == "fast":
        from nextword.ngrams.fast import Fast

        return Fast(opened)
    if opened.layout == "compact":
        from nextword.ngrams.compact import Compact

        return Compact(opened)
    raise NextwordError(f"{path} has the layout {opened.layout!r}; expected one of {', '.join(LAYOUTS)}.")
