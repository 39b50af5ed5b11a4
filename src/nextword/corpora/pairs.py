"""A corpus whose documents are pairs of a source and a target; `open_parallel` (parallel.py) opens one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nextword.contract_errors import NextwordError
from nextword.corpora.corpus import Corpus
from nextword.corpora.document import Document
from nextword.corpora.splits import side

SUMMARIES = frozenset({"summary", "summaries", "highlights", "abstract", "tldr", "headline", "title"})


@dataclass
class Parallel(Corpus):
    """A corpus of pairs. Where splits are held out of train, the source decides."""

    pair: tuple[str, str] = ("source", "target")  # what the sides are called

    def __post_init__(self) -> None:
        self.unit = None  # a pair is never cut
        if self.held_out:
            self._check_size()

    @property
    def parallel(self) -> bool:
        return True

    @property
    def summaries(self) -> bool:
        """Whether targets are called summaries, which are judged otherwise than translations."""
        return self.pair[1].lower() in SUMMARIES

    def documents(self, split: str) -> Iterator[Document]:
        self._check(split)
        if split != "train" and split not in self.held_out:
            return self.texts[split].documents()
        pairs = self.texts["train"].documents()
        if not self.held_out:
            return pairs
        return (pair for pair in pairs if side(pair.source or "", self.held_out) == split)

    def _check_size(self) -> None:
        """Every split gets some pair; a long corpus is not read to its end for this."""
        wanted = {"train", *self.held_out}
        count = 0
        for pair in self.texts["train"].documents():
            count += 1
            wanted.discard(side(pair.source or "", self.held_out))
            if not wanted:
                return
        raise NextwordError(
            f"{self.name} is too short to split: of its {count:,} pairs none falls into {' or '.join(sorted(wanted))}; "
            "about 100 are needed. Give more, or a folder with files for train, valid and test."
        )
