"""Sentences with a tag for every word, as CoNLL's tasks and Universal Dependencies write them: a word a line.

    EU NNP I-NP I-ORG              columns, with spaces or a tab between; an empty line ends a sentence
    rejects VBZ I-VP O             -DOCSTART- begins a document and is no word
    German JJ I-NP I-MISC

    1 They they PRON PRP …         CoNLL-U (.conllu), with tabs: comments, 3-4 (a word that is several) and 8.1 (one
                                   that is not there) are passed over

    splits = open_tagged("conll2003")                   # or a file, or a folder with train, dev and test files
    splits["train"].sentences[0].words, .tags           # ("EU", "rejects", …), ("I-ORG", "O", …)
    open_tagged("conll2003", column="pos")              # by name where columns have names, or by number: 0 is the word

The Penn Treebank is read out of its trees (treebank.py). `python-names` is on every machine (tagged_code.py). Which
scheme spans are written in is found out by `scheme_of`; a tag that fits none is refused with its line.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from io import TextIOWrapper
from pathlib import Path

from nextword.contract_errors import NextwordError
from nextword.corpora.catalog import ALL, Entry, absent, catalog, find
from nextword.corpora.decoding import lines, plain_name
from nextword.corpora.tag_schemes import PLAIN, SCHEMES, converted, has_spans, violation
from nextword.corpora.tagged_code import PYTHON_NAMES
from nextword.corpora.tagged_code import python_names
from nextword.corpora.tagged_text import TaggedSentence, TaggedText
from nextword.corpora.treebank import TREEBANK_SUFFIX
from nextword.corpora.treebank import read_trees

KIND = "tagging"  # of the catalog's entries
DOCUMENT = "-DOCSTART-"
CONLLU = ".conllu"
ZIP = ".zip"
ENDINGS = (CONLLU, ".conll", ".iob", ".iob2", ".bio", ".bioes")  # of files that are nothing but this
NAMES = {  # of columns
    "conll2003": ("word", "pos", "chunk", "ner"),
    "conll2000": ("word", "pos", "chunk"),
    "conll2002-es": ("word", "pos", "ner"),
    "conll2002-nl": ("word", "pos", "ner"),
    CONLLU: ("id", "word", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"),
}
MENDED = {"conll2002-es": "IOB2"}  # sets in which a span goes on over the end of a sentence, once in every split
SPLITS = {
    "train": ("train", "training"),
    "dev": ("dev", "valid", "val", "validation", "development", "testa"),
    "test": ("test", "testing", "testb"),
}


def open_tagged(spec: str | Path, column: str = "") -> dict[str, TaggedText]:
    """The splits (train, dev, test) of a name in the catalog, a folder, or a file, which is all train."""
    path = Path(spec).expanduser()
    if spec == PYTHON_NAMES:
        return python_names()
    entry = find(spec) if isinstance(spec, str) else None
    if entry is not None and entry.kind == KIND and not path.is_file():
        folder = entry.place()
        if folder is None:
            raise absent(entry)
        files = entry.locate(folder)
        if ALL in files:
            raise NextwordError(f"{entry.name} has no splits that nextword knows. Give a folder with a file for each.")
        return {
            ("dev" if split == "valid" else split): _of_entry(entry, split, found, column)
            for split, found in files.items()
        }
    if path.is_dir():
        return {split: read_tagged(file, column) for split, file in files_by_split(path).items()}
    if path.is_file():
        return {"train": read_tagged(path, column)}
    known = ", ".join(one.name for one in catalog().values() if one.kind == KIND)
    other = f" {entry.name} is another kind of set: {entry.title}." if entry is not None else ""
    raise NextwordError(
        f"There are no tagged sentences at {spec}.{other} Expected a file with a word and its tag on each line, a "
        f"folder with such train, dev and test files, or one of {PYTHON_NAMES}, {known}."
    )


def _of_entry(entry: Entry, split: str, files: Sequence[Path], column: str) -> TaggedText:
    """One split of a set of the catalog; a zip holds the files that the catalog names besides."""
    packed = files[0].suffix.lower() == ZIP
    sources = dict(_members(files[0], entry.layout[split])) if packed else {str(file): lines(file) for file in files}
    name = next(iter(sources))
    if not name.endswith(TREEBANK_SUFFIX):
        text = read_tagged(name, column, NAMES.get(entry.name, ()), source=sources[name])
        return _mended(text, MENDED[entry.name]) if entry.name in MENDED else text
    if column not in ("", "pos"):
        raise NextwordError(f"{entry.name} has parts of speech alone: leave --label {column} out, or say pos.")
    found = [one for name, source in sources.items() for one in read_trees(name, source)]
    return TaggedText(str(files[0] if packed else files[0].parent), found)


def _mended(text: TaggedText, scheme: str) -> TaggedText:
    """Tags of official files that do not fit their own scheme, read as CoNLL's script reads them, and counted."""
    if not has_spans({tag for one in text.sentences for tag in one.tags}):
        return text
    wrong = [one for one in text.sentences if violation(one.tags, scheme)]
    if not wrong:
        return text
    found = [replace(one, tags=tuple(converted(one.tags, scheme))) for one in text.sentences]
    where = ", ".join(str(one.lines[0]) for one in wrong[:3])
    note = f"{len(wrong)} sentences of {text.name} have a tag that is not {scheme} (line {where}): it begins a span"
    return replace(text, sentences=found, notes=(note,))


def _members(path: Path, layout: Sequence[str]) -> Iterator[tuple[str, Iterator[str]]]:
    """The files in a zip that the first fitting line of a layout names, each with its lines."""
    with zipfile.ZipFile(path) as archive:
        inside = sorted(archive.namelist())
        for names in layout:
            groups = [[one for one in inside if fnmatch(Path(one).name, name)] for name in names.split(" + ")]
            if all(groups):
                for one in (one for group in groups for one in group):
                    yield f"{path}/{one}", iter(archive.read(one).decode("utf-8").splitlines(keepends=True))
                return
    raise NextwordError(f"{path} has none of {', '.join(name for name in layout if not name.endswith(ZIP))} in it.")


def files_by_split(folder: Path) -> dict[str, Path]:
    """eng.train, train.conll, en_ewt-ud-train.conllu.xz: a part of the name says which split it is."""
    found: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        said = re.split(r"[^a-z0-9]+", file.name.lower())
        split = next((split for split, names in SPLITS.items() if any(name in said for name in names)), "")
        if split and file.is_file():
            if split in found:
                raise NextwordError(f"{folder} has two files for {split}, {found[split].name} and {file.name}.")
            found[split] = file
    if "train" not in found:
        raise NextwordError(
            f"{folder} has no file with train in its name. Expected that, and dev and test files if there are."
        )
    return found


# ------------------------------------------------------------------------------------------------ one file


def read_tagged(
    path: str | Path,
    column: str = "",
    names: tuple[str, ...] = (),
    split: str = "",
    bare: bool = False,
    source: Iterable[str] | None = None,
) -> TaggedText:
    """The sentences of one file with the tags of one column, by default the last (of CoNLL-U `upos`).

    `bare`: a file may have words alone; they have no tags. Of a zip, the file inside that is named after the split.
    `source`: its lines, where they have been read before.
    """
    name = str(path)
    universal = plain_name(path).endswith(CONLLU)
    names = NAMES[CONLLU] if universal else names
    found: list[TaggedSentence] = []
    words: list[str] = []
    tags: list[str] = []
    places: list[int] = []
    width = at = 0
    marked = False  # a sentence began with #, as comments do
    for number, cells in _rows(name, _lines(path, split) if source is None else source, universal):
        if cells is None:
            if words:
                found.append(TaggedSentence(tuple(words), tuple(tags), tuple(places)))
                words, tags, places = [], [], []
            continue
        marked = marked or (not words and cells[0].startswith("#"))
        if not width:
            width = len(cells)
            names = names if universal or len(names) == width else ()
            if width > 1 or not bare:
                at = _column(name, number, cells, column, names)
        if len(cells) != width:
            remark = " If lines with # are comments, remove them: here they are read as words." if marked else ""
            raise NextwordError(
                f"{name}, line {number} has {len(cells)} columns, and the lines before it have {width}: "
                f"{' '.join(cells)[:60]!r}. Mend that line.{remark}"
            )
        word = cells[1] if universal else cells[0]
        if not word or (at and not cells[at]):
            raise NextwordError(f"{name}, line {number} has an empty {'tag' if word else 'word'}. Mend that line.")
        words.append(word)
        places.append(number)
        if at:
            tags.append(cells[at])
    if words:
        found.append(TaggedSentence(tuple(words), tuple(tags), tuple(places)))
    if not found:
        raise NextwordError(f"{name} has no sentence in it. Expected a word and its tag on each line.")
    return TaggedText(name, found)


def _rows(name: str, source: Iterable[str], universal: bool) -> Iterator[tuple[int, list[str] | None]]:
    """The cells of each line with its number; None where a sentence ends."""
    tabs: bool | None = universal or None
    for number, line in enumerate(source, 1):
        line = line.rstrip("\r\n")
        if not line.strip():
            yield number, None
            continue
        if universal and line.startswith("#"):
            continue
        if tabs is None and not line.startswith(DOCUMENT):
            tabs = "\t" in line
        cells = line.split("\t") if tabs else line.split(" ")
        cells = [cell.strip(" ") for cell in cells] if tabs else [cell for cell in cells if cell]
        if cells[0] == DOCUMENT or (not universal and line.startswith(DOCUMENT)):
            yield number, None
        elif not universal or cells[0].isdigit():
            yield number, cells
        elif not re.fullmatch(r"\d+[-.]\d+", cells[0]):
            raise NextwordError(
                f"{name}, line {number} begins with {cells[0][:40]!r}. In CoNLL-U the number of the word stands there, "
                "before a tab."
            )
    yield 0, None


def is_columns(name: str, source: Sequence[str]) -> bool:
    """Whether these are lines of a word and its tags, and not plain text: by the name, or by the look of them.

    Plain text has lines of different lengths; columns are as many on each line, with empty lines between sentences, or
    tags of spans at the end of every line.
    """
    if name.lower().endswith(ENDINGS):
        return True
    rows = [line.split("\t") if "\t" in line else line.split() for line in source if line.strip()]
    if len({len(row) for row in rows}) != 1 or len(rows[0]) == 1 or len(rows) < 3:
        return False
    return "\n" in source[:-1] or has_spans({row[-1].strip() for row in rows})


def _column(name: str, number: int, cells: list[str], asked: str, names: tuple[str, ...]) -> int:
    """Which column has the tags."""
    width = len(cells)
    if width < 2:
        raise NextwordError(
            f"{name}, line {number} has one column, {cells[0][:40]!r}. Expected a word and at least one tag, with a "
            "space or a tab between."
        )
    if asked in names:
        at = names.index(asked)
    elif not asked:
        at = names.index("upos") if "upos" in names else width - 1
    elif re.fullmatch(r"-?\d+", asked):
        at = int(asked) + (width if asked.startswith("-") else 0)
    else:
        at = width
    first = names.index("word") if "word" in names else 0
    if not 0 <= at < width or at == first:
        called = f", which are {', '.join(names)}" if names else ""
        raise NextwordError(
            f"{name} has {width} columns{called}; the tags cannot be in '{asked}'. Name a column or give its number: "
            f"{first} is the word, {width - 1} or -1 the last."
        )
    return at


def _lines(path: str | Path, split: str) -> Iterator[str]:
    if Path(path).suffix.lower() != ZIP:
        yield from lines(path)
        return
    with zipfile.ZipFile(path) as archive:
        inside = [one for one in archive.namelist() if Path(one).stem.lower() in SPLITS.get(split, ())]
        if len(inside) != 1:
            raise NextwordError(f"{path} has {len(inside)} files for {split or 'no split'}. Unpack it, and name one.")
        with archive.open(inside[0]) as file:
            yield from TextIOWrapper(file, encoding="utf-8")


# ------------------------------------------------------------------------------------------------ schemes


def scheme_of(splits: Mapping[str, TaggedText]) -> str:
    """The scheme that all splits are written in; "" where tags are no spans. Splits that differ are refused."""
    if not has_spans({tag for text in splits.values() for one in text.sentences for tag in one.tags}):
        return PLAIN
    failed: dict[str, NextwordError] = {}
    reached: dict[str, int] = {}  # words that fit until then
    for scheme in SCHEMES:
        problem, fitted = _misfit(splits, scheme)
        if problem is None:
            return scheme
        failed[scheme], reached[scheme] = problem, fitted
    likeliest = max(SCHEMES, key=lambda scheme: reached[scheme])
    raise NextwordError(
        f"{failed[likeliest]} Up to there the tags are {likeliest}, and as a whole they fit none of "
        f"{', '.join(SCHEMES)}. Mend that line, or write all splits in one scheme."
    )


def _misfit(splits: Mapping[str, TaggedText], scheme: str) -> tuple[NextwordError | None, int]:
    fitted = 0
    for text in splits.values():
        for one in text.sentences:
            found = violation(one.tags, scheme)
            if found is not None:
                return text.refused(one, *found), fitted + found[0]
            fitted += len(one.tags)
    return None, fitted
