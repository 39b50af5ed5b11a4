"""A mixture of corpora, each with its weight: a small TOML file that is opened like any other text.

    bytes = 2_000_000_000  # optional
    [[source]]                              GPT-3's (Brown et al., 2020, table 2.2), for 300 billion tokens:
    data = "enwiki"  # a name or a path       Common Crawl   410 B tokens   weight 60 %   0.44 epochs
    weight = 0.6     # its share of bytes     WebText2        19 B                 22 %   2.9
    [[source]]                                Books1          12 B                  8 %   1.9
    data = "books/"                           Books2          55 B                  8 %   0.43
    weight = 0.4                              Wikipedia        3 B                  3 %   3.4

One pass of the training split has so many `bytes`; unless given, as many as all sources together. It takes whole
documents from the sources in turn, always from the one that lags furthest behind its weight; a source that comes to its
end begins again. So a source with more weight than its size would give is read more than once, one with less is read in
part, from its beginning on. The other splits are the sources' own, one after another, unweighted. A relative path
starts at the TOML file's folder.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from nextword.core.errors import NextwordError
from nextword.core.types import Document
from nextword.data.builtin import BUILT_IN
from nextword.data.catalog import find
from nextword.data.corpus import SPLITS, Corpus
from nextword.data.files import STDIN

SUFFIX = ".toml"
KEYS = ("data", "weight", "column")
STRETCH = 1 << 16, 1 << 20  # bytes of one document, at least and at most, after which another source may come between
EXAMPLE = '[[source]]\ndata = "my.txt"\nweight = 0.6'


@dataclass(frozen=True)
class Source:
    corpus: Corpus
    weight: float  # of all weights together: they sum to 1


@dataclass(frozen=True)
class Row:
    """One line of the data table."""

    name: str
    weight: float
    bytes: int  # in its training split
    epochs: float  # how often one pass of the mixture reads it


@dataclass
class Mixed:
    """The training text of a mixture."""

    sources: tuple[Source, ...]
    length: int | None = None  # bytes of a pass

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of the training text of each source: counted, once."""
        return tuple(sum(len(d.text.encode()) for d in s.corpus.documents("train")) for s in self.sources)

    @property
    def total(self) -> int:
        return self.length or sum(self.sizes)

    def table(self) -> list[Row]:
        """What one pass reads of each source, as the paper's table says it."""
        return [
            Row(source.corpus.name, source.weight, size, source.weight * self.total / size if size else 0.0)
            for source, size in zip(self.sources, self.sizes, strict=True)
        ]

    def documents(self) -> Iterator[Document]:
        total = self.total
        stretch = min(max(total // 256, STRETCH[0]), STRETCH[1])
        given = [0] * len(self.sources)
        turns = [_turns(source.corpus, stretch) for source in self.sources]
        while sum(given) < total:
            # ties go to the first, so that the order is one and the same everywhere
            at = min(range(len(given)), key=lambda i: (given[i] / self.sources[i].weight, i))
            for document in next(turns[at]):
                given[at] += len(document.text.encode())
                yield document

    def size(self) -> int | None:
        known = [source.corpus.bytes("train") for source in self.sources]
        if self.length or "sizes" in self.__dict__:
            return self.total
        return None if None in known else sum(size for size in known if size is not None)

    def update(self, hasher: Any) -> None:
        hasher.update(f"mixture of {len(self.sources)};length={self.length};".encode())
        for source in self.sources:
            hasher.update(f"{source.weight!r}:{source.corpus.fingerprint};".encode())


def _turns(corpus: Corpus, stretch: int) -> Iterator[list[Document]]:
    """What a source gives each time it is asked: a whole document, or a stretch of a long one; without end."""
    while True:
        turn: list[Document] = []
        size = 0
        empty = True
        for document in corpus.documents("train"):
            empty = False
            if turn and (not document.continues or size >= stretch):
                yield turn
                turn, size = [], 0
            if not turn and document.continues:  # something else stands between it and its beginning
                document = Document(document.text, document.id, document.title)
            turn.append(document)
            size += len(document.text.encode())
        if empty:
            raise NextwordError(f"The training split of {corpus.name} is empty, so nothing can be mixed from it.")
        yield turn


@dataclass(frozen=True)
class Joined:
    """A split of every source that has it, one after another."""

    corpora: tuple[Corpus, ...]
    split: str

    def documents(self) -> Iterator[Document]:
        for corpus in self.corpora:
            yield from corpus.documents(self.split)

    def size(self) -> int | None:
        known = [corpus.bytes(self.split) for corpus in self.corpora]
        return None if None in known else sum(size for size in known if size is not None)

    def update(self, hasher: Any) -> None:
        hasher.update(f"joined {self.split} of {len(self.corpora)};".encode())
        for corpus in self.corpora:
            hasher.update(f"{corpus.fingerprint};".encode())


def is_mixture(path: Path) -> bool:
    return path.suffix == SUFFIX and path.is_file()


def open_mixture(path: Path, open_corpus: Callable[..., Corpus]) -> Corpus:
    """The corpus that a TOML file describes; `open_corpus` opens its sources."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise NextwordError(f"{path} is not TOML: {error}. A mixture is written as\n{EXAMPLE}") from None
    tables = given.pop("source", None)
    length = given.pop("bytes", None)
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise NextwordError(f"{path} names no sources. A mixture has one table or more like\n{EXAMPLE}")
    if given:
        raise NextwordError(f"{path}: unknown key {next(iter(given))!r}. A mixture has [[source]] tables and `bytes`.")
    if length is not None and not (_number(length) and length >= 1):
        raise NextwordError(f"{path}: bytes = {length!r}; give how many bytes one pass has, a number above 0.")
    opened = [_source(path, number, table, open_corpus) for number, table in enumerate(tables, 1)]
    whole = math.fsum(weight for _, weight in opened)
    sources = tuple(Source(corpus, weight / whole) for corpus, weight in opened)
    texts: dict[str, Any] = {"train": Mixed(sources, None if length is None else int(length))}
    for split in SPLITS[1:]:
        having = tuple(source.corpus for source in sources if split in source.corpus.splits)
        if having:
            texts[split] = Joined(having, split)
    words = ", ".join(f"{source.weight:.1%} {source.corpus.name}" for source in sources)
    return Corpus(path.stem, f"{path}: {words}", texts)


def _source(path: Path, number: int, table: dict[str, Any], open_corpus: Callable[..., Corpus]) -> tuple[Corpus, float]:
    where = f"{path}, source {number}"
    for key in table:
        if key not in KEYS:
            raise NextwordError(f"{where}: unknown key {key!r}. A source has {', '.join(KEYS)}.")
    data, weight = table.get("data"), cast(float, table.get("weight"))
    if not isinstance(data, str) or not data:
        raise NextwordError(f'{where} has no data. Name a text: data = "my.txt", or a name that `nextword data` lists.')
    if not (_number(weight) and 0 < weight < math.inf):
        raise NextwordError(
            f"{where} ({data}): weight = {weight!r}; give a number above 0: its share of the training text."
        )
    if data == STDIN or Path(data).suffix == SUFFIX:
        raise NextwordError(
            f"{where}: {data} cannot be a source: neither standard input nor another mixture. Name a text."
        )
    named = data in BUILT_IN or find(data) is not None
    place = Path(data).expanduser()
    if not named and not place.is_absolute() and (path.parent / place).exists():
        place = path.parent / place
    corpus = open_corpus(data if named or not place.exists() else place, text_column=table.get("column"))
    if "train" not in corpus.splits:
        raise NextwordError(f"{where}: {corpus.name} has no training text, only {', '.join(corpus.splits)}.")
    return corpus, float(weight)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
