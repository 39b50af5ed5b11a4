"""What networks that read sentences word by word have in common: vectors of words out of a file, and bare frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from nextword.contract import Encoding, Framed
from nextword.corpora.vectors import read_words, vectors_for
from nextword.models.causal import Saved
from nextword.models.frames import arrange, dress


class WordByWord(Saved):
    """`config.vectors` names a file or is empty, `config.words` is how wide its vectors are."""

    tags_words = True  # it is trained with a head of tags and models no text
    embedding: nn.Embedding | None

    @classmethod
    def words(cls, config: Any) -> Sequence[str]:
        """Those that have vectors, for a tokenizer to know."""
        return read_words(config.vectors) if config.vectors and config.words else ()

    def furnish(self) -> None:
        """Vectors out of their file, once, before training; from then on they are in the run's own files."""
        if self.config.vectors and self.embedding is not None:
            matrix = vectors_for(self.vocabulary, self.config.vectors, self.config.words, "words")
            with torch.no_grad():
                self.embedding.weight.copy_(torch.from_numpy(matrix))

    def frame(self, a: Encoding, b: Encoding | None = None) -> Framed:
        """The words of a sentence, and nothing around them."""
        return dress([a] if b is None else [a, b], ((), (), ()))

    def frames(self, task: str, texts: Sequence[Encoding]) -> list[Framed]:
        return arrange(self.frame, task, texts)
