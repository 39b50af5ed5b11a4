r"""Parallel corpora, and the files they come from. `open_parallel` in parallel.py opens one.

Two aligned files, line by line (`AlignedFiles`):

    train.en + train.de                      line 7 of one translates line 7 of the other
    train.tags.en-de.en + ….de               IWSLT: lines of tags (<url>, <title>) are skipped
    newstest2014-deen-src.en.sgm + -ref.de   WMT, and IWSLT's .xml: the text between <seg> and </seg>

One table with both sides (`PairTable`):

    pairs.csv  pairs.tsv    a pair per row, after a header or without one
    deu.txt                 the same; also a line of Tatoeba:
                            source TAB target TAB attribution        id TAB source TAB id TAB target
    pairs.jsonl             an object per line; also {"translation": {"en": …, "de": …}}

Files may be compressed (.gz .xz .zst .bz2), and aligned files may be in an archive (.tgz, .zip).
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from nextword.core.errors import DataError, InvalidSetting, UnknownName, bad_data
from nextword.core.types import Document
from nextword.data.corpus import Corpus, assign_split
from nextword.data.files import (
    COMPRESSED,
    Hasher,
    format_suffix,
    hash_file,
    list_members,
    plain_name,
    read_lines,
    read_member,
    require_nonempty,
    text_keys,
    text_under,
)
from nextword.data.tables import (
    DELIMITERS,
    IGNORED,
    JSON,
    JSON_LINES,
    LINES,
    OpenTable,
    find_column,
    open_table,
)

SUMMARIES = frozenset({"summary", "summaries", "highlights", "abstract", "tldr", "headline", "title"})
FORMAT = b"parallel 1;"  # part of the fingerprint; change it if the same files yield different pairs


@dataclass(repr=False)
class ParallelCorpus(Corpus):
    """A corpus whose documents are pairs. A hash of the source decides about held-out splits."""

    pair: tuple[str, str] = ("source", "target")  # names of the sides

    def __post_init__(self) -> None:
        self.passage_size = None  # pairs are never cut
        if self.held_out:
            self._require_every_split()

    @property
    def is_parallel(self) -> bool:
        return True

    @property
    def is_summarization(self) -> bool:
        """Whether the targets are summaries, which have other metrics than translations."""
        return self.pair[1].lower() in SUMMARIES

    def documents(self, split: str) -> Iterator[Document]:
        self._require_split(split)
        if split != "train" and split not in self.held_out:
            return self.texts[split].documents()
        pairs = self.texts["train"].documents()
        if not self.held_out:
            return pairs
        return (pair for pair in pairs if assign_split(pair.source or "", self.held_out) == split)

    def _require_every_split(self) -> None:
        """Raise if a split would be empty. Reads only until every split has a pair."""
        missing = {"train", *self.held_out}
        count, sources = 0, set()
        for pair in self.texts["train"].documents():
            count += 1
            sources.add(pair.source)
            missing.discard(assign_split(pair.source or "", self.held_out))
            if not missing:
                return
        problem = f"{count:,} pairs with {len(sources):,} different sources cannot be split: none is in "
        problem += f"{' or '.join(sorted(missing))}."
        remedy = "Give about 100 different pairs or more, or a folder with files for train, valid and test."
        raise bad_data(self.name, f"{problem} {remedy}")


# ------------------------------------------------------------------------------------------------ two aligned files

_SEGMENTS = re.compile(r"\.(?:sgml?|xml)$", re.I)
_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.I | re.S)
_OPEN = re.compile(r"<seg\b", re.I)
_TAGGED = re.compile(r"^train\.tags\.", re.I)
_TAG = re.compile(r"\s*</?(?:url|keywords|speaker|talkid|title|description|reviewer|translator|doc)\b", re.I)


@dataclass(frozen=True)
class SideFile:
    """One side of a parallel text: a file, or a member of an archive."""

    path: Path
    member: str = ""

    def __str__(self) -> str:
        return f"{self.path} ({self.member})" if self.member else str(self.path)

    @property
    def name(self) -> str:
        return Path(self.member).name if self.member else plain_name(self.path)

    @property
    def is_segmented(self) -> bool:
        return bool(_SEGMENTS.search(self.name))

    def lines(self) -> Iterator[str]:
        return read_member(self.path, self.member) if self.member else read_lines(self.path)


def list_folder(folder: Path) -> list[SideFile]:
    """Return the files directly inside a folder."""
    return [SideFile(path) for path in sorted(folder.iterdir()) if path.is_file()]


def list_archive(path: Path) -> list[SideFile]:
    return [SideFile(path, member) for member in list_members(path)]


@dataclass(frozen=True)
class AlignedFiles:
    """Pairs of files, (source, target), that are aligned line by line."""

    files: tuple[tuple[SideFile, SideFile], ...]

    def documents(self) -> Iterator[Document]:
        for source, target in self.files:
            pairs = read_aligned(source, target)
            yield from require_nonempty(pairs, source.path, f"no pairs, and none in {target}.")

    def size(self) -> int | None:
        targets = [target for _, target in self.files]
        if any(file.member or file.path.suffix.lower() in COMPRESSED for file in targets):
            return None
        return sum(file.path.stat().st_size for file in targets)

    def update(self, hasher: Hasher) -> None:
        hasher.update(FORMAT)
        for file in (file for pair in self.files for file in pair):
            form = "segments" if file.is_segmented else "tagged" if _TAGGED.search(file.name) else "lines"
            hasher.update(f"{form};{file.path.suffix.lower()};{file.member};".encode())
            hash_file(hasher, file.path)


def read_aligned(source: SideFile, target: SideFile) -> Iterator[Document]:
    """Yield the pairs of two files. A pair of two empty lines is skipped."""
    sources, targets = read_side(source), read_side(target)
    for number, (left, right) in enumerate(zip_longest(sources, targets), 1):
        if left is None or right is None:
            rest = 1 + sum(1 for _ in (targets if left is None else sources))
            unpaired, (line, text) = (target, right) if left is None else (source, left)
            raise _length_error(source, target, number - 1, rest, unpaired, line, text)
        (line, text), (other, translation) = left, right
        if text.strip() and translation.strip():
            yield Document(translation, f"{source.name}:{line}", source=text)
        elif text.strip():
            raise _empty_side_error(target, other, source, line)
        elif translation.strip():
            raise _empty_side_error(source, line, target, other)


def _empty_side_error(empty: SideFile, line: int, full: SideFile, other: int) -> DataError:
    remedy = "Remove the line from both files, or fill it in."
    return bad_data(empty.path, f"the line is empty, but its partner ({full}, line {other}) is not. {remedy}", line)


def _length_error(
    source: SideFile, target: SideFile, common: int, rest: int, unpaired: SideFile, line: int, text: str
) -> DataError:
    counts = [common + (rest if file is unpaired else 0) for file in (source, target)]
    unit = "segments" if source.is_segmented else "lines"
    lengths = f"{source} has {counts[0]:,} {unit} and {target} has {counts[1]:,}; aligned files need the same number."
    remedy = "Look for a line that is broken in two or missing."
    return bad_data(unpaired.path, f"{lengths} {text.strip()[:60]!r} has no partner. {remedy}", line)


def read_side(file: SideFile) -> Iterator[tuple[int, str]]:
    """Yield the sentences of one file, each with the number of the line on which it begins."""
    if file.is_segmented:
        return _read_segments(file)
    numbered = ((number, line.removesuffix("\n")) for number, line in enumerate(file.lines(), 1))
    if _TAGGED.search(file.name):
        return ((number, line.strip()) for number, line in numbered if not _TAG.match(line))
    return numbered


def _read_segments(file: SideFile) -> Iterator[tuple[int, str]]:
    """Yield the text between <seg> and </seg>, which may span lines, with entities resolved."""
    pending, begin = "", 0
    for number, line in enumerate(file.lines(), 1):
        begin = begin if pending else number
        pending += line
        while match := _SEGMENT.search(pending):
            yield begin, " ".join(html.unescape(match.group(1)).split())
            pending, begin = pending[match.end() :], number
        if not _OPEN.search(pending):
            pending = ""
    if pending:
        raise bad_data(file.path, "truncated: this segment has no </seg>. Get the file again.", begin)


# ------------------------------------------------------------------------------------------------ aligned file names

# train.en   train.en.txt   train.source   newstest2014-deen-src.en.sgm
SIDE = re.compile(
    r"(?P<stem>.+?)(?:-(?P<role>src|ref))?"
    r"\.(?P<language>[A-Za-z]{2,3}(?:[-_][A-Za-z]{2,8})?|source|target)(?:\.(?:txt|sgml?|xml))?",
    re.I,
)
_NOT_LANGUAGES = frozenset(
    {"bin", "bpe", "csv", "dev", "idx", "log", "md", "npy", "npz", "pdf", "pos", "py", "raw", "sgm", "tar"}
    | {"tgz", "tok", "tsv", "tst", "txt", "val", "xml", "zip", "zst"}
)
Stems = dict[str, dict[str, dict[str, SideFile]]]  # stem → language → "src", "ref" or "" → file


def group_by_stem(files: Iterable[SideFile]) -> Stems:
    """Group files by stem and language: `train.en` and `train.de.gz` are two languages of the stem `train`."""
    stems: Stems = {}
    for file in files:
        match = SIDE.fullmatch(file.name)
        if match and match["language"].lower() not in _NOT_LANGUAGES and not file.name.startswith("."):
            languages = stems.setdefault(match["stem"], {})
            languages.setdefault(match["language"], {}).setdefault((match["role"] or "").lower(), file)
    return stems


def list_languages(stems: Stems) -> list[str]:
    """Return the languages that some stem has together with another language."""
    return sorted({language for sides in stems.values() if len(sides) > 1 for language in sides})


def match_languages(stems: Stems, source: str, target: str) -> tuple[dict[str, tuple[SideFile, SideFile]], list[str]]:
    """Return stem → its two files, and a sentence for each stem that has only one of the two languages."""
    pairs, unmatched = {}, []
    for stem, sides in stems.items():
        if source in sides and target in sides:
            pairs[stem] = _file_of_role(sides[source], "src"), _file_of_role(sides[target], "ref")
        elif source in sides or target in sides:
            unmatched.append(f"{stem} has no {target if source in sides else source}")
    return pairs, unmatched


def _file_of_role(files: Mapping[str, SideFile], role: str) -> SideFile:
    """Prefer WMT's marks for the original (src) and the translation (ref); either serves as either side."""
    return files.get(role) or files.get("") or next(iter(files.values()))


# ------------------------------------------------------------------------------------------------ SOURCE-TARGET

USUAL_PAIRS = (("source", "target"), ("src", "tgt"))  # names that say which side is which


def split_pair(pair: str) -> list[tuple[str, str]]:
    """Return every way to read SOURCE-TARGET, since a name may contain hyphens."""
    return [(pair[: hyphen.start()], pair[hyphen.end() :]) for hyphen in re.finditer("-", pair)]


def choose_pair(pair: str, names: Iterable[str], place: str, default: tuple[str, str] | None = None) -> tuple[str, str]:
    """Return source and target of SOURCE-TARGET; without a pair, the default, or names that say which is which."""
    names = list(dict.fromkeys(names))
    if len(names) < 2:
        raise not_parallel_error(place)
    if not pair:
        usual = [default] if default else [sides for sides in USUAL_PAIRS if set(sides) <= set(names)]
        if usual:
            return usual[0]
        example = f"{place}:{names[0]}-{names[1]} or {place}:{names[1]}-{names[0]}"
        example = example if len(names) == 2 else f"{place}:SOURCE-TARGET with two of these"
        question = f"{place} has {', '.join(names)}, but which is the source and which the target?"
        raise InvalidSetting(f"{question} Write {example}.", key="pair", value=names)
    source, target = next((sides for sides in split_pair(pair) if set(sides) <= set(names)), split_pair(pair)[0])
    if missing := [name for name in (source, target) if name not in names]:
        problem = f"{' and '.join(map(repr, missing))} not found; {place} has {', '.join(names)}."
        message = f"{place}:{pair}: {problem} Write two of these as SOURCE-TARGET."
        raise UnknownName(message, name=missing[0], known=names)
    if source == target:
        message = f"{place}:{pair} has {source} on both sides. Write two of {', '.join(names)}."
        raise InvalidSetting(message, key="pair", value=pair)
    return source, target


def not_parallel_error(path: str | Path) -> DataError:
    expected = "a folder with files such as train.en and train.de, or one file with both sides (.tsv, .csv, .jsonl)"
    return bad_data(path, f"no pairs of a source and a target. Expected {expected}. See docs/parallel.md.")


# ------------------------------------------------------------------------------------------------ one table

NESTED = "translation"  # key of a nested object with both sides, as in Hugging Face's translation data sets
EMPTY = "empty. Expected pairs."
PairRow = tuple[int, str, str, str]  # line, id, source, target


@dataclass(frozen=True)
class PairTable:
    """Pairs from files with both sides, in two columns or keys, by name or by number."""

    files: tuple[Path, ...]
    pair: tuple[str, str]
    header: bool | None = None  # whether the files have one; None: detect it

    def documents(self) -> Iterator[Document]:
        for path in self.files:
            yield from require_nonempty(self._pairs(path), path, "no pairs.")

    def _pairs(self, path: Path) -> Iterator[Document]:
        table = open_pairs(path, self.pair, self.header)
        for line, id, source, target in _read_pairs(path, table, self.pair):
            if source.strip() and target.strip():
                yield Document(target, id, source=source)
            elif source.strip() or target.strip():
                empty = self.pair[bool(source.strip())]
                problem = f"{'' if table.has_header else 'column '}{empty} is empty. Remove the line, or fill it in."
                raise bad_data(path, problem, line)

    def size(self) -> int | None:
        return None  # unknown: the targets are only part of each line

    def update(self, hasher: Hasher) -> None:
        hasher.update(FORMAT)
        for path in self.files:
            has_header = open_pairs(path, self.pair, self.header).has_header
            hasher.update(f"{self.pair};{not has_header};{''.join(path.suffixes[-2:])};".encode())
            hash_file(hasher, path)


def is_json(path: Path) -> bool:
    return format_suffix(path) in JSON_LINES


def is_table(path: Path) -> bool:
    return is_json(path) or format_suffix(path) in DELIMITERS


def open_pairs(path: Path, pair: Collection[str] = (), header: bool | None = None) -> OpenTable:
    """Open a table whose header, if it has one, has the columns of a pair."""
    return open_table(path, header=header, expected=pair, min_columns=2)


def find_columns(path: Path, pair: str, name: str, header: bool | None = None) -> tuple[tuple[str, str], OpenTable]:
    """Return the two keys or columns that a spec chooses, by name or number, and the table as it is read."""
    for sides in split_pair(pair) or [("", "")]:
        table = open_pairs(path, sides, header)
        if table.kind == JSON:
            return choose_pair(pair, _keys(path, table), name), table
        if len(table.columns) < 2:
            raise not_parallel_error(path) if table.first or table.kind == LINES else bad_data(path, EMPTY)
        if pair and None not in [find_column(side, table.columns) for side in sides]:
            choose_pair("-".join(sides), sides, name)  # raises if they are the same
            return sides, table
    if pair or any(set(sides) <= set(table.columns) for sides in USUAL_PAIRS):
        return choose_pair(pair, table.columns, name), table
    if usual := usual_columns(table):
        return usual, table
    named = ", and none is named source or target" if table.has_header else " and no header"
    columns = f"{len(table.columns)} columns{named}: {' | '.join(table.first)[:120]!r}"
    message = f"{path} has {columns}. Give two of them by name or number, source first: {name}:1-2."
    raise UnknownName(message, name=pair, known=table.columns)


def _keys(path: Path, table: OpenTable) -> list[str]:
    """The keys with text of the first object."""
    first = next(table.objects, None)
    if first is None:
        raise bad_data(path, EMPTY)
    table.objects = chain([first], table.objects)
    return text_keys(_unnest(first[1]))


def usual_columns(table: OpenTable) -> tuple[str, str] | None:
    """Return the columns of source and target where no name says which they are, the source first.

    These are the only two columns; or, without a header, those of a line as Tatoeba exports it.
    """
    if table.has_header:
        names = [name for name in table.columns if name.lower() not in IGNORED]
        return (names[0], names[1]) if len(names) == 2 else None
    return tatoeba_columns(table.first)


def tatoeba_columns(cells: Sequence[str]) -> tuple[str, str] | None:
    """Return the columns of source and target in a line without a header, as Tatoeba exports it."""
    if len(cells) == 3 and cells[0].isdigit():  # id, source, target
        return "2", "3"
    if len(cells) in (2, 3):  # source, target, perhaps an attribution
        return "1", "2"
    if len(cells) == 4 and cells[0].isdigit() and cells[2].isdigit():  # id, text, id, text
        return "2", "4"
    return None


def _unnest(item: dict[str, object]) -> dict[str, object]:
    nested = item.get(NESTED)
    return nested if isinstance(nested, dict) else item


def _read_pairs(path: Path, table: OpenTable, pair: tuple[str, str]) -> Iterator[PairRow]:
    if table.kind == JSON:
        for number, item in table.objects:
            source, target = (text_under(key, _unnest(item), path, number) for key in pair)
            yield number, str(item.get("id", f"{plain_name(path)}:{number}")), source, target
        return
    first, second = (table.index(column) for column in pair)
    for number, row in table.rows:
        if any(map(str.strip, row)):
            yield number, f"{plain_name(path)}:{number}", row[first], row[second]
