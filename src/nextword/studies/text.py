"""The text a study is run on: a corpus's training documents, or the built-in ones."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from nextword.contract_errors import NextwordError
from nextword.corpora import Corpus, default_name, open_corpus
from nextword.tokens import train_tokenizer

WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")  # words with their apostrophes, and punctuation marks one by one


def corpus_for(data: str) -> Corpus:
    return open_corpus(data or default_name())


def held_out(corpus: Corpus) -> str:
    """The split that nobody learns from: the test text, or the validation text where there is no other."""
    return "test" if "test" in corpus.splits else "valid"


def word_lists(corpus: Corpus, split: str = "train") -> Iterator[list[str]]:
    """Each document's words in lower case, punctuation marks being words of their own."""
    for document in corpus.documents(split):
        yield WORD.findall(document.text.lower())


def bytes_of(corpus: Corpus, split: str, size: int) -> np.ndarray:
    """The first so many bytes of a split, as ids: few bits each, for they travel to other processes."""
    tokenizer = train_tokenizer({"kind": "bytes"}, ())
    parts: list[np.ndarray] = []
    for document in corpus.documents(split):
        parts.append(tokenizer.encode(document.text).ids)
        if sum(map(len, parts)) >= size:
            break
    return np.concatenate(parts)[:size].astype(np.uint16)


def enough(found: int, needed: int, what: str, corpus: Corpus) -> None:
    if found < needed:
        raise NextwordError(
            f"{corpus.name} has {found:,} {what}, and this study needs {needed:,}. "
            "Give a longer text with --data, or leave --data out to use the built-in one."
        )
