r"""Parallel corpora, and the files they come from. `open_parallel` in parallel.py opens one.

Two aligned files, line by line (`AlignedFiles`):

    train.en + train.de                      line 7 of one translates line 7 of the other
    train.tags.en-de.en + ….de               IWSLT: lines of tags (<url>, <title>) are skipped
    newstest2014-deen-src.en.sgm + -ref.de   WMT, and IWSLT's .xml: the text between <seg> and </seg>

One table with both sides (`PairTable`):

    pairs.tsv  deu.txt      source TAB target, or a line of Tatoeba:
                            source TAB target TAB attribution        id TAB source TAB id TAB target
    pairs.csv  pairs.tsv    a header, then a pair per row
    pairs.jsonl             an object per line; also {"translation": {"en": …, "de": …}}

Files may be compressed (.gz .xz .zst .bz2), and aligned files may be in an archive (.tgz, .zip).
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
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
    read_objects,
    require_nonempty,
    text_keys,
    text_under,
)
from nextword.data.tables import DELIMITERS, JSON_LINES, read_rows

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
        count = 0
        for pair in self.texts["train"].documents():
            count += 1
            missing.discard(assign_split(pair.source or "", self.held_out))
            if not missing:
                return
        problem = f"too short to split: none of its {count:,} pairs is in {' or '.join(sorted(missing))}."
        remedy = "Give about 100 pairs or more, or a folder with files for train, valid and test."
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
PairRow = tuple[int, str, str, str]  # line, id, source, target


@dataclass(frozen=True)
class PairTable:
    """Pairs from files with both sides, in two named columns, or in two numbered ones if there is no header."""

    files: tuple[Path, ...]
    pair: tuple[str, str]
    bare: bool = False  # without a header: the names are column numbers

    def documents(self) -> Iterator[Document]:
        for path in self.files:
            yield from require_nonempty(self._pairs(path), path, "no pairs.")

    def _pairs(self, path: Path) -> Iterator[Document]:
        rows = _read_objects(path, self.pair) if is_json(path) else _read_columns(path, self.pair, self.bare)
        for line, id, source, target in rows:
            if source.strip() and target.strip():
                yield Document(target, id, source=source)
            elif source.strip() or target.strip():
                name = f"{'column ' if self.bare else ''}{self.pair[bool(source.strip())]}"
                raise bad_data(path, f"{name} is empty. Remove the line, or fill it in.", line)

    def size(self) -> int | None:
        return None  # unknown: the targets are only part of each line

    def update(self, hasher: Hasher) -> None:
        hasher.update(FORMAT + f"{self.pair};{self.bare};".encode())
        for path in self.files:
            hasher.update(f"{''.join(path.suffixes[-2:])};".encode())
            hash_file(hasher, path)


def is_json(path: Path) -> bool:
    return format_suffix(path) in JSON_LINES


def is_table(path: Path) -> bool:
    return is_json(path) or format_suffix(path) in DELIMITERS


def find_columns(path: Path, pair: str, name: str) -> tuple[tuple[str, str], bool]:
    """Return the two keys or columns of a spec, and whether they are column numbers of a file without a header."""
    names = _read_header(path)
    if is_json(path):
        return choose_pair(pair, names, name), False
    if len(names) < 2:
        raise not_parallel_error(path)
    if pair and pair.replace("-", "").isdigit():
        return choose_pair(pair, [str(number) for number in range(1, len(names) + 1)], name), True
    requested = {part for sides in split_pair(pair) for part in sides}
    has_header = requested & set(names) or any(set(sides) <= set(names) for sides in USUAL_PAIRS)
    if format_suffix(path) == ".csv" or has_header:
        return choose_pair(pair, names, name), False
    if not pair and (usual := tatoeba_columns(names)):
        return usual, True
    columns = f"{len(names)} columns, and none is named {pair or 'source or target'}: {' | '.join(names)[:120]!r}"
    message = f"{path} has {columns}. If it has no header, give column numbers, source first: {name}:1-2."
    raise UnknownName(message, name=pair, known=names)


def _read_header(path: Path) -> list[str]:
    """Return the text keys of the first object, or the cells of the first row."""
    names: list[str] | None
    if is_json(path):
        first = next((item for _, item in read_objects(path, read_lines(path), " with both sides")), None)
        names = None if first is None else text_keys(_unnest(first))
    else:
        names = next((cells for _, cells in _read_cells(path)), None)
    if names is None:
        raise bad_data(path, "empty. Expected pairs.")
    return names


def tatoeba_columns(columns: Sequence[str]) -> tuple[str, str] | None:
    """Return the columns of source and target in a line without a header, as Tatoeba exports it."""
    if len(columns) in (2, 3):  # source, target, perhaps an attribution
        return "1", "2"
    if len(columns) == 4 and columns[0].isdigit() and columns[2].isdigit():  # id, text, id, text
        return "2", "4"
    return None


def _read_objects(path: Path, pair: tuple[str, str]) -> Iterator[PairRow]:
    for number, item in read_objects(path, read_lines(path), " with both sides"):
        source, target = (text_under(key, _unnest(item), path, number) for key in pair)
        yield number, str(item.get("id", f"{plain_name(path)}:{number}")), source, target


def _unnest(item: dict[str, object]) -> dict[str, object]:
    nested = item.get(NESTED)
    return nested if isinstance(nested, dict) else item


def _read_columns(path: Path, pair: tuple[str, str], bare: bool) -> Iterator[PairRow]:
    rows = _read_cells(path)
    header = [] if bare else next(rows, (0, []))[1]
    if not bare and (missing := [column for column in pair if column not in header]):
        message = f"{path} has no column {missing[0]!r}; its columns are {', '.join(header)}."
        raise UnknownName(message, name=missing[0], known=header)
    first, second = (int(column) - 1 if bare else header.index(column) for column in pair)
    least = 1 + max(first, second)
    for number, row in rows:
        if len(row) < least:
            counts = f"{len(row)} column{'s' * (len(row) != 1)}; expected at least {least}"
            sides = f"with the source in {first + 1} and the target in {second + 1}"
            raise bad_data(path, f"{counts}, {sides}. Correct or remove the line.", number)
        yield number, f"{plain_name(path)}:{number}", row[first], row[second]


def _read_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and cells of each row that is not blank. Quotation marks only quote in .csv files."""
    if format_suffix(path) == ".csv":
        return ((number, row) for number, row in read_rows(path, read_lines(path), ".csv") if row)
    numbered = enumerate(read_lines(path), 1)
    return ((number, line.removesuffix("\n").split("\t")) for number, line in numbered if line.strip())
