"""The text a study is run on: a corpus's training documents, or the built-in ones."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nextword.contract import NextwordError
from nextword.corpora import Corpus, default_name, open_corpus

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


def enough(found: int, needed: int, what: str, corpus: Corpus) -> None:
    if found < needed:
        raise NextwordError(
            f"{corpus.name} has {found:,} {what}, and this study needs {needed:,}. "
            "Give a longer text with --data, or leave --data out to use the built-in one."
        )
