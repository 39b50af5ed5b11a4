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
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from nextword.core.errors import DataError, InvalidSetting, UnknownName, did_you_mean
from nextword.core.types import Document
from nextword.data.builtin import BUILT_IN
from nextword.data.catalog import find_entry
from nextword.data.corpus import SPLITS, Corpus
from nextword.data.files import STDIN

SUFFIX = ".toml"
KEYS = ("data", "weight", "column")
STRETCH_LIMITS = (
    1 << 16,
    1 << 20,
)  # bytes of a long document after which another source may follow
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
            at = min(range(len(taken)), key=lambda i: (taken[i] / self.sources[i].weight, i))  # ties go to the first
            for document in next(turns[at]):
                taken[at] += len(document.text.encode())
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
            raise DataError(f"The training split of {corpus.name} is empty.", path=corpus.name)
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
        known = [corpus.bytes(self.split) for corpus in self.corpora]
        return None if None in known else sum(size for size in known if size is not None)

    def update(self, hasher: Any) -> None:
        hasher.update(f"joined {self.split} of {len(self.corpora)};".encode())
        for corpus in self.corpora:
            hasher.update(f"{corpus.fingerprint};".encode())


def is_mixture(path: Path) -> bool:
    return path.suffix == SUFFIX and path.is_file()


def open_mixture(path: Path, open_corpus: Callable[..., Corpus]) -> Corpus:
    """Open the mixture that a TOML file describes. `open_corpus` opens its sources."""
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not TOML ({error}). Expected\n{EXAMPLE}", path=path) from None
    tables = settings.pop("source", None)
    length = settings.pop("bytes", None)
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise DataError(f"{path} has no sources. Expected one or more tables like\n{EXAMPLE}", path=path)
    if settings:
        key = next(iter(settings))
        raise UnknownName(
            f"{path}: unknown key {key!r}. A mixture has [[source]] tables and `bytes`.",
            name=key,
            known=("source", "bytes"),
        )
    if length is not None and not (_is_number(length) and length >= 1):
        raise InvalidSetting(
            f"{path}: bytes = {length!r}; expected the bytes of one pass, a positive number.", key="bytes", value=length
        )
    opened = [_source(path, number, table, open_corpus) for number, table in enumerate(tables, 1)]
    total = math.fsum(weight for _, weight in opened)
    sources = tuple(Source(corpus, weight / total) for corpus, weight in opened)
    texts: dict[str, Any] = {"train": MixedText(sources, None if length is None else int(length))}
    for split in SPLITS[1:]:
        corpora = tuple(source.corpus for source in sources if split in source.corpus.splits)
        if corpora:
            texts[split] = JoinedText(corpora, split)
    description = ", ".join(f"{source.weight:.1%} {source.corpus.name}" for source in sources)
    return Corpus(path.stem, f"{path}: {description}", texts)


def _source(path: Path, number: int, table: dict[str, Any], open_corpus: Callable[..., Corpus]) -> tuple[Corpus, float]:
    where = f"{path}, source {number}"
    for key in table:
        if key not in KEYS:
            raise UnknownName(
                f"{where}: unknown key {key!r}.{did_you_mean(key, KEYS)} A source has {', '.join(KEYS)}.",
                name=key,
                known=KEYS,
            )
    data, weight = table.get("data"), cast(float, table.get("weight"))
    if not isinstance(data, str) or not data:
        raise InvalidSetting(
            f'{where} has no data. Give a path, data = "my.txt", or a name that `nextword data` lists.', key="data"
        )
    if not (_is_number(weight) and 0 < weight < math.inf):
        raise InvalidSetting(
            f"{where} ({data}): weight = {weight!r}; expected a positive number, its part of the training text.",
            key="weight",
            value=weight,
        )
    if data == STDIN or Path(data).suffix == SUFFIX:
        raise InvalidSetting(
            f"{where}: data = {data!r}; standard input and other mixtures cannot be sources. Give a path or a name.",
            key="data",
            value=data,
        )
    is_name = data in BUILT_IN or find_entry(data) is not None
    file = Path(data).expanduser()
    if not is_name and not file.is_absolute() and (path.parent / file).exists():
        file = path.parent / file
    corpus = open_corpus(data if is_name or not file.exists() else file, text_column=table.get("column"))
    if "train" not in corpus.splits:
        raise DataError(f"{where}: {corpus.name} has no train split, only {', '.join(corpus.splits)}.", path=data)
    return corpus, float(weight)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
