"""A corpus whose training text holds nothing of some evaluation sets, found and cut out while it is read.

    corpus ── train ──▶ read once, to see which grams of the held-out texts it has ──▶ read again, without them
           ── valid, test ──▶ as they are

As GPT-3's authors did (appendix C): what is found goes, and some text around it. `nextword data NAME --clean` does the
same into a folder, with a report; this is for training at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import blake2b

from nextword.contract_errors import NextwordError
from nextword.corpora.contamination import Watch, filtered
from nextword.corpora.corpus import Corpus
from nextword.corpora.document import Document

VERSION = b"without 1"


def watch(corpus: Corpus) -> Watch:
    """The grams of all that a corpus holds out."""
    held_out = [split for split in corpus.splits if split != "train"]
    evaluated = (document for split in held_out for document in corpus.documents(split))
    return Watch(evaluated, name=f"{corpus.name} ({', '.join(held_out) or 'no held-out split'})")


class Without(Corpus):
    def __init__(self, corpus: Corpus, others: Sequence[Corpus]) -> None:
        names = ", ".join(other.name for other in others)
        source = f"{corpus.source}, without what stands in the held-out texts of {names}"
        super().__init__(corpus.name, source, corpus.texts, corpus.held_out, corpus.scratch)
        self.others = list(others)

    def documents(self, split: str) -> Iterator[Document]:
        if split != "train":
            return super().documents(split)
        return self._left()

    def _left(self) -> Iterator[Document]:
        some = False
        for result in filtered(super().documents("train"), self.watches):
            some = some or bool(result.left)
            yield from result.left
        if not some:
            raise NextwordError(
                f"Nothing is left of {self.name} without what stands in {', '.join(o.name for o in self.others)}: is "
                "it the same text? Train on another, or leave `without` out of the recipe."
            )

    @cached_property
    def watches(self) -> list[Watch]:
        return [watch(other).read(super(Without, self).documents("train")) for other in self.others]

    @cached_property
    def fingerprint(self) -> str:
        prints = [super().fingerprint, *(other.fingerprint for other in self.others)]
        return blake2b(VERSION + "".join(prints).encode(), digest_size=16).hexdigest()
