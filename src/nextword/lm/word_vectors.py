"""A run that gives texts and words vectors, and no probabilities: it embeds, and all else it says it cannot do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch

from nextword.core.errors import Unsupported
from nextword.core.protocols import Tokenizer
from nextword.data.word_vectors import Vectors, parse_sum
from nextword.lm.embedding import OF_TEXT, Embedding
from nextword.models import count_parameters
from nextword.models.base import word_table

WINDOW = 1 << 20  # tokens of a text that are read at once: nothing grows with them


class WordVectorModel(Embedding):
    """`embed` texts; `nearest` words and sums of words, where the vectors are of words."""

    room = WINDOW
    is_bidirectional = True  # nothing is read from left to right

    def __init__(self, network: Any, tokenizer: Tokenizer, name: str = "") -> None:
        self.network, self.tokenizer, self.name = network, tokenizer, name
        self.can = frozenset({"embed"})
        self.parameters = count_parameters(network)

    @property
    def device(self) -> torch.device:
        return self.network.device

    @cached_property
    def vectors(self) -> Vectors:
        return word_table(self.network, self.tokenizer, self.name)

    def nearest(self, text: str, k: int = 10) -> list[tuple[str, float]]:
        """Words and cosines, nearest first: of a word, or of a sum such as "king - man + woman"."""
        return self.vectors.nearest(parse_sum(text), k)

    def predict(self, examples: Sequence[Any]) -> Any:
        raise Unsupported("This run carries no task head, so it predicts no labels. Transfer it to a task first.")

    def __getattr__(self, name: str) -> Any:
        if name in OF_TEXT:
            raise Unsupported(
                f"{self.name or 'This run'} gives words vectors and no probabilities: it is no language model, and has "
                "no scores, no next words and no text to write. Use `nextword embed`, as in `embed RUN --nearest WORD`."
            )
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
