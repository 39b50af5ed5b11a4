"""How much of the held-out text was seen in training: documents that stand word for word on both sides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b

import numpy as np

from nextword.corpora.corpus import Corpus
from nextword.corpora.document import Document


def leakage(corpus: Corpus) -> dict[str, int]:
    """For each held-out split, how many of its documents are also in train. Empty where there is no training text.

    A split made by hash has none, since equal texts fall on one side; only given splits need to be read.
    """
    held_out = [split for split in corpus.splits if split != "train"]
    if "train" not in corpus.splits:
        return {}
    if set(held_out) <= set(corpus.held_out):
        return dict.fromkeys(held_out, 0)
    train = np.fromiter(_hashes(corpus.documents("train")), np.uint64)
    return {split: _count(corpus, split, train) for split in held_out}


def _count(corpus: Corpus, split: str, train: np.ndarray) -> int:
    if split in corpus.held_out:
        return 0
    return int(np.isin(np.fromiter(_hashes(corpus.documents(split)), np.uint64), train).sum())


def _hashes(documents: Iterable[Document]) -> Iterator[int]:
    """One 64-bit hash a whole document, however many passages it comes in."""
    hasher = None
    for document in documents:
        if hasher is not None and not document.continues:
            yield int.from_bytes(hasher.digest(), "big")
        if hasher is None or not document.continues:
            hasher = blake2b(digest_size=8)
        hasher.update(document.text.strip().encode())
    if hasher is not None:
        yield int.from_bytes(hasher.digest(), "big")
