"""Vectors of words in context, of a run that stays as it is: all its layers, found once and kept.

    context = Contextual(nextword.load("runs/elmo"))
    context.of([["A", "bank", "of", "sand"], …])        # (layers, words of all sentences, width) in 16 bits
    context.kept(sentences)                             # the same, from the cache's folder if it is there

Any model serves that can embed; a word of several tokens is the mean of theirs. Layers narrower or wider than the last
are left out, for all are to be mixed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from nextword.checkpoint import RunFolder
from nextword.contract_errors import NextwordError, Unsupported
from nextword.heads.words import unbroken

SENTENCES_PER_BATCH = 256  # sentences read at once
Progress = Callable[[str, float, float | None], None]
Sentences = Sequence[Sequence[str]]


def nobody(label: str, done: float, total: float | None) -> None:
    pass


class Contextual:
    def __init__(self, lm: Any, run: str | Path = "") -> None:
        if "embed" not in lm.can or not hasattr(lm.network, "widths"):
            raise Unsupported(f"{run or 'This run'} has no vectors inside to give. Use a network that can embed.")
        self.lm, self.run = lm, str(run)
        widths = list(lm.network.widths)
        self.chosen = [i for i, width in enumerate(widths) if width == widths[-1]]
        self.width = int(widths[-1])

    @property
    def layers(self) -> int:
        return len(self.chosen)

    def of(self, sentences: Sentences, progress: Progress = nobody, into: np.ndarray | None = None) -> np.ndarray:
        """(layers, words, width) float16, written `into` an array if one is given."""
        total = sum(map(len, sentences))
        found = np.zeros((self.layers, total, self.width), np.float16) if into is None else into
        at = 0
        for start in range(0, len(sentences), SENTENCES_PER_BATCH):
            for layers in self._read(sentences[start : start + SENTENCES_PER_BATCH]):
                found[:, at : at + layers.shape[1]] = layers.clip(-65504, 65504)
                at += layers.shape[1]
            progress("reading words in context", at, total)
        return found

    def _read(self, sentences: Sentences) -> Iterator[np.ndarray]:
        """(layers, words, width) of each sentence."""
        for found in self.lm.embed_words([[unbroken(word) for word in one] for one in sentences], self.chosen):
            yield found.vectors.numpy()

    # -------------------------------------------------------------------------------------------- kept

    def kept(self, sentences: Sentences, progress: Progress = nobody) -> np.ndarray:
        """As `of`, memory-mapped from a file that is made once for these sentences and this run's weights."""
        path = cache_folder() / f"{self._key(sentences)}.npy"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(f".{os.getpid()}.npy")
            shape = (self.layers, sum(map(len, sentences)), self.width)
            try:
                self.of(sentences, progress, np.lib.format.open_memmap(temporary, "w+", np.float16, shape))
                temporary.replace(path)
            except OSError as problem:
                raise NextwordError(
                    f"The vectors of {shape[1]:,} words cannot be kept in {path.parent}: {problem.strerror}. Set "
                    "NEXTWORD_CACHE to a folder with room."
                ) from None
            finally:
                temporary.unlink(missing_ok=True)
        return np.load(path, mmap_mode="r")

    @property
    def fingerprint(self) -> str:
        """Of the run's files: another where it was trained again."""
        files = RunFolder.open(self.run).manifest.get("files", {}) if self.run else {}
        return blake2b(str(sorted(map(str, files.items()))).encode(), digest_size=8).hexdigest()

    def _key(self, sentences: Sentences) -> str:
        hashed = blake2b(f"{self.fingerprint} {self.chosen}".encode(), digest_size=16)
        for one in sentences:
            hashed.update("\x1e".join(one).encode("utf-8", "replace") + b"\x1d")
        return hashed.hexdigest()


def cache_folder() -> Path:
    return Path(os.environ.get("NEXTWORD_CACHE") or "~/.cache/nextword").expanduser() / "contextual"
