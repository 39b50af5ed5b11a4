"""Word vectors: a run that embeds words and texts, and models no text (word2vec, GloVe)."""

from __future__ import annotations

from functools import cached_property

from nextword.data.word_vectors import Vectors, parse_sum
from nextword.lm.embedding import EmbeddingMixin
from nextword.models.base import word_vectors


class WordVectorModel(EmbeddingMixin):
    """`embed` texts; `nearest` words of words and of sums such as "king - man + woman"."""

    room = 1 << 20  # tokens of a text that are read at once
    is_bidirectional = True  # nothing is read from left to right

    @cached_property
    def vectors(self) -> Vectors:
        return word_vectors(self.network, self.tokenizer, self.name)

    def nearest(self, text: str, k: int = 10) -> list[tuple[str, float]]:
        return self.vectors.nearest(parse_sum(text), k)

    def why_not(self, ability: str) -> str:
        if ability == "predict":
            return super().why_not(ability)
        return (
            f"{self.name or 'This run'} has word vectors and no probabilities, so it cannot {ability}. Use `nextword "
            "embed`, as in `nextword embed RUN --nearest WORD`."
        )
