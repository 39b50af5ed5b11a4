"""A weighted mixture of corpora: a small TOML file that is opened like any other text.

    bytes = 2_000_000_000  # optional
    [[source]]                              GPT-3's (Brown et al., 2020, table 2.2), for 300 billion tokens:
    data = "enwiki"  # a name or a path       Common Crawl   410 B tokens   weight 60 %   0.44 epochs
    weight = 0.6     # fraction of bytes      WebText2        19 B                 22 %   2.9
    [[source]]                                Books1          12 B                  8 %   1.9
    data = "books/"                           Books2          55 B                  8 %   0.43
    weight = 0.4                              Wikipedia        3 B                  3 %   3.4

One pass over the training split has `bytes` bytes; by default as many as all sources together. It takes whole documents
from the source that is furthest behind its weight; a source that ends starts again. So a source whose weight exceeds
its size is read more than once, and one with less weight only in part, from its beginning. The other splits are those
of the sources, concatenated and unweighted. A relative path starts at the folder of the TOML file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeGuard

from nextword.core.errors import InvalidSetting, bad_data, invalid, unknown
from nextword.core.io import path_exists, user_path
from nextword.core.types import Document
from nextword.data.builtin import BUILT_IN
from nextword.data.catalog import find_entry
from nextword.data.corpus import SPLITS, Corpus, TextSource
from nextword.data.files import STDIN, Hasher, read_toml_tables

SUFFIX = ".toml"
KEYS = ("data", "weight", "column")
STRETCH_LIMITS = (1 << 16, 1 << 20)  # bytes of a long document after which another source may follow
MAX_BYTES = 1 << 50  # of one pass
EXAMPLE = '[[source]]\ndata = "my.txt"\nweight = 0.6'


@dataclass(frozen=True)
class Source:
    corpus: Corpus
    weight: float  # normalized: weights sum to 1


@dataclass(frozen=True)
class MixtureRow:
    """One row of the table that describes a mixture."""

    name: str
    weight: float
    bytes: int  # in its training split
    epochs: float  # passes over it per pass over the mixture


@dataclass
class MixedText:
    """The training text of a mixture."""

    sources: tuple[Source, ...]
    length: int | None = None  # bytes of a pass; None: as many as all sources together

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of the training text of each source."""
        return tuple(sum(len(d.text.encode()) for d in s.corpus.documents("train")) for s in self.sources)

    @property
    def total(self) -> int:
        return self.length or sum(self.sizes)

    def table(self) -> list[MixtureRow]:
        """Return what one pass reads of each source, as in GPT-3's table 2.2."""
        return [
            MixtureRow(source.corpus.name, source.weight, size, source.weight * self.total / size if size else 0.0)
            for source, size in zip(self.sources, self.sizes, strict=True)
        ]

    def documents(self) -> Iterator[Document]:
        total = self.total
        stretch = min(max(total // 256, STRETCH_LIMITS[0]), STRETCH_LIMITS[1])
        taken = [0] * len(self.sources)  # bytes
        turns = [_take_turns(source.corpus, stretch) for source in self.sources]
        while sum(taken) < total:
            behind = min(range(len(taken)), key=lambda i: (taken[i] / self.sources[i].weight, i))  # first if equal
            for document in next(turns[behind]):
                taken[behind] += len(document.text.encode())
                yield document

    def size(self) -> int | None:
        if self.length or "sizes" in self.__dict__:
            return self.total
        return _sum_known([source.corpus.bytes("train") for source in self.sources])

    def update(self, hasher: Hasher) -> None:
        hasher.update(f"mixture of {len(self.sources)};length={self.length};".encode())
        for source in self.sources:
            hasher.update(f"{source.weight!r}:{source.corpus.fingerprint};".encode())


def _take_turns(corpus: Corpus, stretch: int) -> Iterator[list[Document]]:
    """Yield a whole document, or a stretch of a long one, forever."""
    while True:
        turn: list[Document] = []
        size = 0
        is_empty = True
        for document in corpus.documents("train"):
            is_empty = False
            if turn and (not document.continues or size >= stretch):
                yield turn
                turn, size = [], 0
            if not turn and document.continues:  # another source came in between
                document = Document(document.text, document.id, document.title)
            turn.append(document)
            size += len(document.text.encode())
        if is_empty:
            raise bad_data(corpus.name, "the training split is empty.")
        yield turn


@dataclass(frozen=True)
class JoinedText:
    """A split of every source that has it, concatenated."""

    corpora: tuple[Corpus, ...]
    split: str

    def documents(self) -> Iterator[Document]:
        for corpus in self.corpora:
            yield from corpus.documents(self.split)

    def size(self) -> int | None:
        return _sum_known([corpus.bytes(self.split) for corpus in self.corpora])

    def update(self, hasher: Hasher) -> None:
        hasher.update(f"joined {self.split} of {len(self.corpora)};".encode())
        for corpus in self.corpora:
            hasher.update(f"{corpus.fingerprint};".encode())


def _sum_known(sizes: list[int | None]) -> int | None:
    """Return the sum; None if one of them is unknown."""
    return None if None in sizes else sum(size for size in sizes if size is not None)


def is_mixture(path: Path) -> bool:
    return path.suffix == SUFFIX and path_exists(path) and path.is_file()


def open_mixture(path: Path, open_corpus: Callable[..., Corpus]) -> Corpus:
    """Open the mixture that a TOML file describes. `open_corpus` opens its sources."""
    settings, tables = read_toml_tables(path, "source", EXAMPLE)
    length = settings.pop("bytes", None)
    for key in settings:
        raise unknown("key", key, ("[[source]]", "bytes"), where=str(path))
    if length is not None and not (is_number(length) and 1 <= length < MAX_BYTES):
        raise invalid("bytes", length, "must be the bytes of one pass, a positive number.", str(path))
    opened = [_source(path, number, table, open_corpus) for number, table in enumerate(tables, 1)]
    total = math.fsum(weight for _, weight in opened)
    sources = tuple(Source(corpus, weight / total) for corpus, weight in opened)
    texts: dict[str, TextSource] = {"train": MixedText(sources, None if length is None else int(length))}
    for split in SPLITS[1:]:
        corpora = tuple(source.corpus for source in sources if split in source.corpus.splits)
        if corpora:
            texts[split] = JoinedText(corpora, split)
    description = ", ".join(f"{source.weight:.1%} {source.corpus.name}" for source in sources)
    return Corpus(path.stem, f"{path}: {description}", texts)


def _source(
    path: Path, number: int, table: dict[str, object], open_corpus: Callable[..., Corpus]
) -> tuple[Corpus, float]:
    where = f"{path}, source {number}"
    for key in table:
        if key not in KEYS:
            raise unknown("key", key, KEYS, where=where)
    data, weight = table.get("data"), table.get("weight")
    if not isinstance(data, str) or not data:
        expected = 'Give a path, data = "my.txt", or a name that `nextword data` lists.'
        raise InvalidSetting(f"{where} has no data. {expected}", key="data")
    if not (is_number(weight) and 0 < weight < math.inf):
        raise invalid("weight", weight, "must be a positive number, the part of the training text.", where)
    if data == STDIN or Path(data).suffix == SUFFIX:
        problem = "is not allowed: standard input and other mixtures cannot be sources. Give a path or a name."
        raise invalid("data", data, problem, where)
    is_name = data in BUILT_IN or find_entry(data) is not None
    file = user_path(data)
    if not is_name and not file.is_absolute() and path_exists(path.parent / file):
        file = path.parent / file
    corpus = open_corpus(data if is_name or not path_exists(file) else file, text_column=table.get("column"))
    if "train" not in corpus.splits:
        raise bad_data(data, f"no train split, only {', '.join(corpus.splits)}.")
    return corpus, float(weight)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value from TOML is a number: not a boolean and not NaN."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
