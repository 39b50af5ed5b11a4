"""Vectors of words in context, of a run that stays as it is: all its layers, found once and kept.

    context = Contextual(nextword.load("runs/elmo"))
    context.of([["A", "bank", "of", "sand"], …])        # (layers, words of all sentences, width) in 16 bits
    context.kept(sentences)                             # the same, from the cache's folder if it is there

Any model serves that can embed. One that gives layers of words by itself has `word_layers(sentences)`, (layers, words,
width) of each sentence; of others a word is known by its first token, or where they read from left to right by its
last. Layers narrower or wider than the last are left out, for all are to be mixed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nextword.checkpoint import RunFolder
from nextword.contract import NextwordError, Unsupported
from nextword.heads.words import joined, tokens_of

TOGETHER = 256  # sentences read at once
Progress = Callable[[str, float, float | None], None]
Sentences = Sequence[Sequence[str]]


def nobody(label: str, done: float, total: float | None) -> None:
    pass


class Contextual:
    def __init__(self, lm: Any, run: str | Path = "") -> None:
        if "embed" not in lm.can or not hasattr(lm.network, "widths"):
            raise Unsupported(f"{run or 'This run'} has no vectors inside to give. Use a network that can embed.")
        self.lm, self.run = lm, str(run)
        if hasattr(lm, "word_layers"):
            layers, _, width = next(iter(lm.word_layers([["a"]]))).shape
            widths = [width] * layers
        else:
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
        for start in range(0, len(sentences), TOGETHER):
            for layers in self._read(sentences[start : start + TOGETHER]):
                found[:, at : at + layers.shape[1]] = layers.clip(-65504, 65504)
                at += layers.shape[1]
            progress("reading words in context", at, total)
        return found

    def _read(self, sentences: Sentences) -> Iterator[np.ndarray]:
        """(layers, words, width) of each sentence."""
        if hasattr(self.lm, "word_layers"):
            for layers in self.lm.word_layers(sentences):
                yield layers.float().cpu().numpy()
            return
        yield from self._read_tokens(sentences)

    @torch.no_grad()
    def _read_tokens(self, sentences: Sentences) -> Iterator[np.ndarray]:
        lm = self.lm
        encodings = lm.tokenizer.encode_batch([joined(one) for one in sentences])
        ids = [encoding.ids.astype(np.int64) for encoding in encodings]
        tokens: list[list[np.ndarray]] = [[] for _ in ids]
        for part in lm._read_frames(ids) if lm.two_sided else lm._read_onward(ids):
            stack = torch.stack([part.layers[i] for i in self.chosen]).float().cpu().numpy()  # (layers, N, width)
            for i in np.unique(part.text):
                tokens[i].append(stack[:, (part.text == i) & part.own])
        for words, encoding, parts in zip(sentences, encodings, tokens, strict=True):
            layers = np.concatenate(parts, 1)
            at = tokens_of(encoding, len(words), not lm.two_sided, 0, len(encoding.ids))
            found = layers[:, at.clip(min=0)] if len(encoding.ids) else np.zeros((self.layers, len(at), self.width))
            found[:, at < 0] = 0
            yield found

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

    def _key(self, sentences: Sentences) -> str:
        files = RunFolder.open(self.run).manifest.get("files", {}) if self.run else {}
        hashed = blake2b(f"{sorted(map(str, files.items()))} {self.chosen}".encode(), digest_size=16)
        for one in sentences:
            hashed.update("\x1e".join(one).encode("utf-8", "replace") + b"\x1d")
        return hashed.hexdigest()


def cache_folder() -> Path:
    return Path(os.environ.get("NEXTWORD_CACHE") or "~/.cache/nextword").expanduser() / "contextual"
