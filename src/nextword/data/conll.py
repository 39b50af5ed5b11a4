r"""Sentences with a tag for every word: CoNLL columns, CoNLL-U, Penn Treebank trees.

CoNLL (`read_tagged`): one word per line, with its tags in columns separated by spaces or tabs; an empty line ends a
sentence, and -DOCSTART- begins a document.

    EU NNP I-NP I-ORG
    rejects VBZ I-VP O

CoNLL-U (.conllu): ten columns separated by tabs. Comments, multiword tokens (3-4) and empty nodes (8.1) are skipped.

    1 They they PRON PRP …

Penn Treebank (.mrg, `read_trees`): the words and parts of speech of trees, without traces (-NONE-).

    ( (S (NP-SBJ (NNP Pierre) (NNP Vinken)) (VP (MD will) (VP (VB join) … )) (. .)))      →  Pierre/NNP Vinken/NNP …

    splits = open_tagged("conll2003")                   # or a file, or a folder with train, dev and test files
    splits["train"].sentences[0].words, .tags           # ("EU", "rejects", …), ("I-ORG", "O", …)
    open_tagged("conll2003", column="pos")              # by name if columns have names, or by number: 0 is the word

The built-in `python-names` is in builtin.py. `detect_scheme` finds out in which scheme (tag_schemes.py) spans are
written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from hashlib import blake2b
from pathlib import Path

from nextword.core.errors import DataError, MissingFile, UnknownName, bad_data
from nextword.core.io import user_path
from nextword.data.catalog import ALL, Entry, catalog, find_entry
from nextword.data.corpus import split_of_name
from nextword.data.files import list_members, plain_name, read_lines, read_member
from nextword.data.tag_schemes import PLAIN, SCHEMES, convert_tags, find_violation, has_spans


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    words: tuple[str, ...]
    tags: tuple[str, ...]
    lines: tuple[int, ...] = field(default=(), repr=False)  # line of each word in its file


@dataclass(frozen=True)
class TaggedText:
    name: str  # of the file
    sentences: list[TaggedSentence] = field(repr=False)
    notes: tuple[str, ...] = ()  # about how it was read, for people

    def __len__(self) -> int:
        return len(self.sentences)

    def take(self, indices: Sequence[int]) -> TaggedText:
        return replace(self, sentences=[self.sentences[i] for i in indices])

    @property
    def words(self) -> int:
        return sum(len(sentence.words) for sentence in self.sentences)

    @property
    def fingerprint(self) -> str:
        hasher = blake2b(digest_size=16)
        for sentence in self.sentences:
            for column in (sentence.words, sentence.tags):
                hasher.update("\x1e".join(column).encode("utf-8", "replace") + b"\x1d")
        return hasher.hexdigest()

    def error(self, sentence: TaggedSentence, word: int, problem: str) -> DataError:
        """Return the error for a word of a sentence."""
        return bad_data(self.name, f"{problem}.", sentence.lines[word] if sentence.lines else None)


# ------------------------------------------------------------------------------------------------ opening

KIND = "tagging"  # of entries of the catalog
DOCUMENT = "-DOCSTART-"
CONLLU = ".conllu"
ZIP = ".zip"
SUFFIXES = (CONLLU, ".conll", ".iob", ".iob2", ".bio", ".bioes")
NAMES = {  # names of columns
    "conll2003": ("word", "pos", "chunk", "ner"),
    "conll2000": ("word", "pos", "chunk"),
    "conll2002-es": ("word", "pos", "ner"),
    "conll2002-nl": ("word", "pos", "ner"),
    CONLLU: ("id", "word", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"),
}
PYTHON_NAMES = "python-names"
REPAIRED = {"conll2002-es": "IOB2"}  # a span crosses the end of a sentence, once in every split


def open_tagged(spec: str | Path, column: str = "") -> dict[str, TaggedText]:
    """Open the splits (train, dev, test) of a name in the catalog or of a folder; a single file is all train."""
    path = user_path(spec)
    if spec == PYTHON_NAMES:
        from nextword.data.builtin import python_names

        return python_names()
    entry = find_entry(spec) if isinstance(spec, str) else None
    if entry is not None and entry.kind == KIND and not path.is_file():
        folder = entry.require_folder()
        files = entry.locate(folder)
        if ALL in files:
            raise bad_data(folder, f"{entry.name} has no known splits. Give a folder with a file per split.")
        return {
            ("dev" if split == "valid" else split): _read_entry(entry, split, paths, column)
            for split, paths in files.items()
        }
    if path.is_dir():
        return {split: read_tagged(file, column) for split, file in files_by_split(path).items()}
    if path.is_file():
        return {"train": read_tagged(path, column)}
    known = [PYTHON_NAMES, *(other.name for other in catalog().values() if other.kind == KIND)]
    kind = f" {entry.name} is a data set for {entry.kind}." if entry is not None else ""
    expected = "a file with a word and its tag per line, a folder with such train, dev and test files, or one of"
    message = f"No tagged sentences at {spec}.{kind} Expected {expected} {', '.join(known)}."
    raise UnknownName(message, name=str(spec), known=known)


def _read_entry(entry: Entry, split: str, files: Sequence[Path], column: str) -> TaggedText:
    """Read one split of a data set of the catalog. The files may be inside a zip."""
    is_zip = files[0].suffix.lower() == ZIP
    if is_zip:
        members = _match_members(files[0], entry.layout[split])
        sources = {f"{files[0]}/{member}": read_member(files[0], member) for member in members}
    else:
        sources = {str(file): read_lines(file) for file in files}
    name = next(iter(sources))
    if not name.endswith(TREEBANK_SUFFIX):
        text = read_tagged(name, column, NAMES.get(entry.name, ()), source=sources[name])
        return _repair(text, REPAIRED[entry.name]) if entry.name in REPAIRED else text
    if column not in ("", "pos"):
        raise UnknownName(f"{entry.name} has no column {column!r}, only pos.", name=column, known=("pos",))
    sentences = [sentence for name, source in sources.items() for sentence in read_trees(name, source)]
    return TaggedText(str(files[0] if is_zip else files[0].parent), sentences)


def _repair(text: TaggedText, scheme: str) -> TaggedText:
    """Correct the invalid tags of an official file as CoNLL's script reads them, and note how many there are."""
    if not has_spans({tag for sentence in text.sentences for tag in sentence.tags}):
        return text
    invalid = [sentence for sentence in text.sentences if find_violation(sentence.tags, scheme)]
    if not invalid:
        return text
    corrected = [replace(s, tags=tuple(convert_tags(s.tags, scheme))) for s in text.sentences]
    lines = ", ".join(str(sentence.lines[0]) for sentence in invalid[:3])
    note = f"{len(invalid)} sentences of {text.name} have an invalid {scheme} tag (line {lines}), read as B-"
    return replace(text, sentences=corrected, notes=(note,))


def _match_members(path: Path, layout: Sequence[str]) -> list[str]:
    """Return the files in a zip that match the layout."""
    members = sorted(list_members(path))
    for names in layout:
        groups = [[member for member in members if fnmatch(Path(member).name, name)] for name in names.split(" + ")]
        if all(groups):
            return [member for group in groups for member in group]
    expected = ", ".join(name for name in layout if not name.endswith(ZIP))
    raise MissingFile(f"{path} contains none of {expected}.", path=path)


def files_by_split(folder: Path) -> dict[str, Path]:
    """Return the file of each split, by name: eng.train, train.conll, en_ewt-ud-train.conllu.xz."""
    files: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        split = split_of_name(file.name)
        split = "dev" if split == "valid" else split
        if split and file.is_file():
            if split in files:
                raise bad_data(folder, f"two files for {split}: {files[split].name} and {file.name}. Remove one.")
            files[split] = file
    if "train" not in files:
        raise MissingFile(f"{folder} has no file with train in its name.", path=folder)
    return files


# ------------------------------------------------------------------------------------------------ CoNLL and CoNLL-U


def read_tagged(
    path: str | Path,
    column: str = "",
    names: tuple[str, ...] = (),
    bare: bool = False,
    source: Iterable[str] | None = None,
) -> TaggedText:
    """Read one file, with the tags of one column: by default the last, in CoNLL-U `upos`.

    With `bare`, a file may have words without tags. `source` are the lines, if they have been read before.
    """
    name = str(path)
    is_conllu = plain_name(path).endswith(CONLLU)
    names = NAMES[CONLLU] if is_conllu else names
    sentences: list[TaggedSentence] = []
    words: list[str] = []
    tags: list[str] = []
    lines: list[int] = []
    width = tag = 0  # number of columns, and the one of the tags
    has_hash = False  # a sentence begins with #, as comments do
    for number, cells in _rows(name, read_lines(path) if source is None else source, is_conllu):
        if cells is None:
            if words:
                sentences.append(TaggedSentence(tuple(words), tuple(tags), tuple(lines)))
                words, tags, lines = [], [], []
            continue
        has_hash = has_hash or (not words and cells[0].startswith("#"))
        if not width:
            width = len(cells)
            names = names if is_conllu or len(names) == width else ()
            if width > 1 or not bare:
                tag = _column(name, number, cells, column, names)
        if len(cells) != width:
            counts = f"{len(cells)} columns, but the lines before have {width}: {' '.join(cells)[:60]!r}."
            hint = " If lines with # are comments, remove them." if has_hash else ""
            raise bad_data(name, f"{counts} Correct the line.{hint}", number)
        word = cells[1] if is_conllu else cells[0]
        if not word or (tag and not cells[tag]):
            raise bad_data(name, f"the {'tag' if word else 'word'} is empty. Correct the line.", number)
        words.append(word)
        lines.append(number)
        if tag:
            tags.append(cells[tag])
    if not sentences:
        raise bad_data(name, "no sentences. Expected a word and its tag per line.")
    return TaggedText(name, sentences)


def _rows(name: str, source: Iterable[str], is_conllu: bool) -> Iterator[tuple[int, list[str] | None]]:
    """Yield the number and the cells of each line; None at the end of a sentence."""
    has_tabs: bool | None = is_conllu or None
    for number, line in enumerate(source, 1):
        line = line.rstrip("\r\n")
        if not line.strip():
            yield number, None
            continue
        if is_conllu and line.startswith("#"):
            continue
        if has_tabs is None and not line.startswith(DOCUMENT):
            has_tabs = "\t" in line
        cells = line.split("\t") if has_tabs else line.split(" ")
        cells = [cell.strip(" ") for cell in cells] if has_tabs else [cell for cell in cells if cell]
        if cells[0] == DOCUMENT or (not is_conllu and line.startswith(DOCUMENT)):
            yield number, None
        elif not is_conllu or cells[0].isdigit():
            yield number, cells
        elif not re.fullmatch(r"\d+[-.]\d+", cells[0]):
            expected = "Expected the number of the word and a tab (CoNLL-U)."
            raise bad_data(name, f"begins with {cells[0][:40]!r}. {expected}", number)
    yield 0, None


def is_tagged(name: str, source: Sequence[str]) -> bool:
    """Whether these are lines of a word and its tags, and not plain text: by the name, or by the lines.

    Plain text has lines of different lengths. Tagged text has as many columns on each line, with empty lines between
    sentences, or tags of spans at the end of every line.
    """
    if name.lower().endswith(SUFFIXES):
        return True
    rows = [line.split("\t") if "\t" in line else line.split() for line in source if line.strip()]
    if len({len(row) for row in rows}) != 1 or len(rows[0]) == 1 or len(rows) < 3:
        return False
    return "\n" in source[:-1] or has_spans({row[-1].strip() for row in rows})


def _column(name: str, number: int, cells: list[str], requested: str, names: tuple[str, ...]) -> int:
    """Return the column of the tags."""
    width = len(cells)
    if width < 2:
        expected = "Expected a word and at least one tag, separated by a space or a tab."
        raise bad_data(name, f"one column, {cells[0][:40]!r}. {expected}", number)
    if requested in names:
        tag = names.index(requested)
    elif not requested:
        tag = names.index("upos") if "upos" in names else width - 1
    elif re.fullmatch(r"-?\d+", requested):
        tag = int(requested) + (width if requested.startswith("-") else 0)
    else:
        tag = width
    word = names.index("word") if "word" in names else 0
    if not 0 <= tag < width or tag == word:
        columns = f"{width} columns ({', '.join(names)})" if names else f"{width} columns"
        choice = f"Give the name or number of a column: {word} is the word, {width - 1} or -1 the last."
        message = f"{name} has {columns}; '{requested}' cannot be the tags. {choice}"
        raise UnknownName(message, name=requested, known=names)
    return tag


# ------------------------------------------------------------------------------------------------ schemes


def detect_scheme(splits: Mapping[str, TaggedText]) -> str:
    """Return the scheme of all splits; "" if the tags do not mark spans. Raises if the splits differ."""
    if not has_spans({tag for text in splits.values() for sentence in text.sentences for tag in sentence.tags}):
        return PLAIN
    errors: dict[str, DataError] = {}
    valid: dict[str, int] = {}  # number of words before the first violation
    for scheme in SCHEMES:
        error, words = _first_violation(splits, scheme)
        if error is None:
            return scheme
        errors[scheme], valid[scheme] = error, words
    likeliest = max(SCHEMES, key=lambda scheme: valid[scheme])
    error = errors[likeliest]
    remedy = "Correct the line, or write all splits in one scheme."
    message = (
        f"{error} Up to there the tags are {likeliest}; as a whole they are none of {', '.join(SCHEMES)}. {remedy}"
    )
    raise DataError(message, path=error.path, line=error.line)


def _first_violation(splits: Mapping[str, TaggedText], scheme: str) -> tuple[DataError | None, int]:
    """Return the error for the first invalid tag, if any, and the number of words before it."""
    words = 0
    for text in splits.values():
        for sentence in text.sentences:
            violation = find_violation(sentence.tags, scheme)
            if violation is not None:
                return text.error(sentence, *violation), words + violation[0]
            words += len(sentence.tags)
    return None, words


# ------------------------------------------------------------------------------------------------ Penn Treebank

TREEBANK_SUFFIX = ".mrg"
TRACE = "-NONE-"
_TOKEN = re.compile(r"[()]|[^\s()]+")


def read_trees(name: str, source: Iterable[str]) -> Iterator[TaggedSentence]:
    """Yield the sentences of one file. A tree in brackets of its own is a sentence."""
    open: list[list[str]] = []  # the tokens directly inside each open bracket
    begin = number = 0
    words: list[tuple[str, str, int]] = []
    for number, line in enumerate(source, 1):
        for token in _TOKEN.findall(line):
            if token == "(":
                begin = begin if open else number
                open.append([])
            elif not open:
                raise bad_data(name, f"{token[:40]!r} is outside of any tree.", number)
            elif token != ")":
                open[-1].append(token)
            else:
                words += _parse_leaf(name, number, open.pop())
                if not open:
                    if words:
                        yield TaggedSentence(*zip(*words, strict=True))
                    words = []
    if open:
        raise bad_data(name, "truncated: the tree that begins here is not closed.", begin)


def _parse_leaf(name: str, number: int, inside: list[str]) -> list[tuple[str, str, int]]:
    """Return the word of a bracket that has one: (NN house)."""
    if len(inside) < 2:  # the label of a phrase, or nothing at the root
        return []
    if len(inside) > 2:
        raise bad_data(name, f"({' '.join(inside)[:40]}) is neither a word with its tag nor a phrase.", number)
    tag, word = inside
    return [] if tag == TRACE else [(word, tag, number)]
