"""Sentences and their neighbors, for contrastive learning: which sentences share a batch, and with which partner.

document      s1 s2 s3 s4
pairs         (s1, s2)  (s2, s3)  (s3, s4)        a sentence and the one after it
              (s1, s1)  (s2, s2)  …               a sentence and itself, which dropout makes two different views
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from nextword.batching.causal import permute
from nextword.batching.masked import RecentCache, Sentences, Texts
from nextword.batching.settings import require_count, require_number
from nextword.batching.token_stream import Stream
from nextword.core.errors import DataError
from nextword.core.types import IGNORE, Batch, Inputs
from nextword.tokenizers.special_tokens import Marks


@dataclass(frozen=True)
class Neighbors:
    """Batches of 2 · `rows` texts: `rows` sentences, then their partners in the same order.

    A sentence has at least `min_tokens`, and is cut at `length` tokens, special tokens included. A fraction
    `same_fraction` of the sentences are their own partner.
    """

    rows: int = 256
    length: int = 64
    min_tokens: int = 8
    same_fraction: float = 0.5
    _tables: RecentCache[tuple[Texts, np.ndarray]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_count("batches.rows", self.rows, least=2)
        require_count("batches.length", self.length, least=3)
        require_count("batches.min_tokens", self.min_tokens)
        require_number("batches.same_fraction", self.same_fraction, 0, 1)
        object.__setattr__(self, "_tables", RecentCache(self._make_tables))

    def batches_per_epoch(self, sentences: Sentences) -> int:
        return max(1, len(self._tables(sentences)[0]) // self.rows)

    def batches(self, text: Stream, sentences: Sentences, marks: Marks, seed: int, step: int) -> Iterator[Batch]:
        """Yield batches forever; each sentence is read once per epoch, and the remainder of an epoch is dropped."""
        texts, following = self._tables(sentences)
        per_epoch = self.batches_per_epoch(sentences)
        while True:
            epoch, i = divmod(step, per_epoch)
            index = np.arange(i * self.rows, (i + 1) * self.rows) % len(texts)
            chosen = permute(index, len(texts), key=seed * 1_000_003 + epoch)
            is_same = np.random.default_rng([seed, step]).random(self.rows) < self.same_fraction
            partners = np.where(is_same, chosen, following[chosen])
            yield self._batch(text, texts, np.concatenate((chosen, partners)), marks, epoch)
            step += 1

    def _batch(self, text: Stream, texts: Texts, chosen: np.ndarray, marks: Marks, epoch: int) -> Batch:
        framed = texts.frame(text, chosen, marks, self.length)
        ids = torch.from_numpy(framed.ids).view(-1, self.length)
        token_mask = torch.from_numpy(np.arange(self.length) < framed.sizes[:, None])
        targets = torch.full_like(ids, IGNORE)
        return Batch(Inputs(ids, token_mask), targets, reset_state=True, epoch=epoch, num_targets=self.rows)

    def _make_tables(self, sentences: Sentences) -> tuple[Texts, np.ndarray]:
        """The sentences that are long enough, and for each the next one of its document, or itself at the end."""
        length = sentences.last - sentences.first
        kept = np.flatnonzero(length >= self.min_tokens)
        if len(kept) < 2:
            raise DataError(
                f"The text has {len(kept)} sentences of at least {self.min_tokens} tokens; at least 2 are needed. Use "
                "more text."
            )
        first = sentences.first[kept]
        length = np.minimum(length[kept], self.length - 2)
        document = np.searchsorted(sentences.documents, kept, side="right") - 1
        following = np.arange(len(kept))
        following[:-1] += document[1:] == document[:-1]
        return Texts(first, length, np.arange(len(kept) + 1)), following
