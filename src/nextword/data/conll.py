r"""Sentences with a tag for every word: CoNLL columns, CoNLL-U, Penn Treebank trees, and a built-in set.

CoNLL (`read_tagged`): one word per line, with its tags in columns separated by spaces or tabs; an empty line ends a
sentence, and -DOCSTART- begins a document.

    EU NNP I-NP I-ORG
    rejects VBZ I-VP O

CoNLL-U (.conllu): ten columns separated by tabs. Comments, multiword tokens (3-4) and empty nodes (8.1) are skipped.

    1 They they PRON PRP …

Penn Treebank (.mrg, `read_trees`): the words and parts of speech of trees, without traces (-NONE-).

    ( (S (NP-SBJ (NNP Pierre) (NNP Vinken)) (VP (MD will) (VP (VB join) … )) (. .)))      →  Pierre/NNP Vinken/NNP …

`python-names`, on every machine: lines of Python's standard library, in which names are spans to be found.

    from    os          .           path        import   join        def    main         (   args   )   :
    O       B-MODULE    I-MODULE    I-MODULE    O        B-NAME      O      B-FUNCTION   O   O      O   O

    splits = open_tagged("conll2003")                   # or a file, or a folder with train, dev and test files
    splits["train"].sentences[0].words, .tags           # ("EU", "rejects", …), ("I-ORG", "O", …)
    open_tagged("conll2003", column="pos")              # by name if columns have names, or by number: 0 is the word

`detect_scheme` finds out in which scheme (tag_schemes.py) spans are written.
"""

from __future__ import annotations

import io
import keyword
import re
import sysconfig
import token as token_types
import tokenize
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import cache
from hashlib import blake2b
from io import TextIOWrapper
from pathlib import Path

from nextword.core.errors import DataError, MissingFile, UnknownName
from nextword.data.catalog import ALL, Entry, catalog, find_entry, not_installed_error
from nextword.data.files import plain_name, read_lines
from nextword.data.tag_schemes import OUTSIDE, PLAIN, SCHEMES, Span, convert_tags, find_violation, has_spans, write_tags


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

    def error(self, sentence: TaggedSentence, at: int, problem: str) -> DataError:
        """Return the error for a word of a sentence."""
        line = sentence.lines[at] if sentence.lines else None
        return DataError(
            f"{self.name}{'' if line is None else f', line {line}'}: {problem}.", path=self.name, line=line
        )


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
REPAIRED = {"conll2002-es": "IOB2"}  # a span crosses the end of a sentence, once in every split
SPLITS = {
    "train": ("train", "training"),
    "dev": ("dev", "valid", "val", "validation", "development", "testa"),
    "test": ("test", "testing", "testb"),
}


def open_tagged(spec: str | Path, column: str = "") -> dict[str, TaggedText]:
    """Open the splits (train, dev, test) of a name in the catalog or of a folder; a single file is all train."""
    path = Path(spec).expanduser()
    if spec == PYTHON_NAMES:
        return python_names()
    entry = find_entry(spec) if isinstance(spec, str) else None
    if entry is not None and entry.kind == KIND and not path.is_file():
        folder = entry.find_folder()
        if folder is None:
            raise not_installed_error(entry)
        files = entry.locate(folder)
        if ALL in files:
            raise DataError(f"{entry.name} has no known splits. Give a folder with a file per split.", path=folder)
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
    raise UnknownName(
        f"No tagged sentences at {spec}.{kind} Expected a file with a word and its tag per line, a folder with such "
        f"train, dev and test files, or one of {', '.join(known)}.",
        name=str(spec),
        known=known,
    )


def _read_entry(entry: Entry, split: str, files: Sequence[Path], column: str) -> TaggedText:
    """Read one split of a data set of the catalog. The files may be inside a zip."""
    is_zip = files[0].suffix.lower() == ZIP
    sources = (
        dict(_zip_members(files[0], entry.layout[split])) if is_zip else {str(file): read_lines(file) for file in files}
    )
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
    corrected = [replace(one, tags=tuple(convert_tags(one.tags, scheme))) for one in text.sentences]
    lines = ", ".join(str(sentence.lines[0]) for sentence in invalid[:3])
    note = f"{len(invalid)} sentences of {text.name} have an invalid {scheme} tag (line {lines}), read as B-"
    return replace(text, sentences=corrected, notes=(note,))


def _zip_members(path: Path, layout: Sequence[str]) -> Iterator[tuple[str, Iterator[str]]]:
    """Yield the files in a zip that match the layout, each with its lines."""
    with zipfile.ZipFile(path) as archive:
        inside = sorted(archive.namelist())
        for names in layout:
            groups = [[file for file in inside if fnmatch(Path(file).name, name)] for name in names.split(" + ")]
            if all(groups):
                for file in (file for group in groups for file in group):
                    yield f"{path}/{file}", iter(archive.read(file).decode("utf-8").splitlines(keepends=True))
                return
    expected = ", ".join(name for name in layout if not name.endswith(ZIP))
    raise MissingFile(f"{path} contains none of {expected}.", path=path)


def files_by_split(folder: Path) -> dict[str, Path]:
    """Return the file of each split, by name: eng.train, train.conll, en_ewt-ud-train.conllu.xz."""
    files: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        parts = re.split(r"[^a-z0-9]+", file.name.lower())
        split = next((split for split, names in SPLITS.items() if any(name in parts for name in names)), "")
        if split and file.is_file():
            if split in files:
                raise DataError(
                    f"{folder} has two files for {split}: {files[split].name} and {file.name}. Remove one.", path=folder
                )
            files[split] = file
    if "train" not in files:
        raise MissingFile(f"{folder} has no file with train in its name.", path=folder)
    return files


# ------------------------------------------------------------------------------------------------ CoNLL and CoNLL-U


def read_tagged(
    path: str | Path,
    column: str = "",
    names: tuple[str, ...] = (),
    split: str = "",
    bare: bool = False,
    source: Iterable[str] | None = None,
) -> TaggedText:
    """Read one file, with the tags of one column: by default the last, in CoNLL-U `upos`.

    With `bare`, a file may have words without tags. In a zip, `split` names the file inside. `source` are the lines, if
    they have been read before.
    """
    name = str(path)
    is_conllu = plain_name(path).endswith(CONLLU)
    names = NAMES[CONLLU] if is_conllu else names
    sentences: list[TaggedSentence] = []
    words: list[str] = []
    tags: list[str] = []
    lines: list[int] = []
    width = at = 0
    has_hash = False  # a sentence begins with #, as comments do
    for number, cells in _rows(name, _lines_of(path, split) if source is None else source, is_conllu):
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
                at = _column(name, number, cells, column, names)
        if len(cells) != width:
            hint = " If lines with # are comments, remove them." if has_hash else ""
            raise DataError(
                f"{name}, line {number} has {len(cells)} columns, but the lines before it have {width}: "
                f"{' '.join(cells)[:60]!r}. Correct the line.{hint}",
                path=name,
                line=number,
            )
        word = cells[1] if is_conllu else cells[0]
        if not word or (at and not cells[at]):
            raise DataError(
                f"{name}, line {number} has an empty {'tag' if word else 'word'}. Correct the line.",
                path=name,
                line=number,
            )
        words.append(word)
        lines.append(number)
        if at:
            tags.append(cells[at])
    if words:
        sentences.append(TaggedSentence(tuple(words), tuple(tags), tuple(lines)))
    if not sentences:
        raise DataError(f"{name} has no sentences. Expected a word and its tag per line.", path=name)
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
            raise DataError(
                f"{name}, line {number} begins with {cells[0][:40]!r}. Expected the number of the word and a tab "
                "(CoNLL-U).",
                path=name,
                line=number,
            )
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
        raise DataError(
            f"{name}, line {number} has one column, {cells[0][:40]!r}. Expected a word and at least one tag, separated "
            "by a space or a tab.",
            path=name,
            line=number,
        )
    if requested in names:
        at = names.index(requested)
    elif not requested:
        at = names.index("upos") if "upos" in names else width - 1
    elif re.fullmatch(r"-?\d+", requested):
        at = int(requested) + (width if requested.startswith("-") else 0)
    else:
        at = width
    first = names.index("word") if "word" in names else 0
    if not 0 <= at < width or at == first:
        listed = f" ({', '.join(names)})" if names else ""
        raise UnknownName(
            f"{name} has {width} columns{listed}; '{requested}' cannot be the tags. Give the name or number of a "
            f"column: {first} is the word, {width - 1} or -1 the last.",
            name=requested,
            known=names,
        )
    return at


def _lines_of(path: str | Path, split: str) -> Iterator[str]:
    if Path(path).suffix.lower() != ZIP:
        yield from read_lines(path)
        return
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if Path(name).stem.lower() in SPLITS.get(split, ())]
        if len(names) != 1:
            raise DataError(
                f"{path} has {len(names)} files for {split or 'no split'}. Unpack it, and give one of the files.",
                path=path,
            )
        with archive.open(names[0]) as file:
            yield from TextIOWrapper(file, encoding="utf-8")


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
    raise DataError(
        f"{error} Up to there the tags are {likeliest}; as a whole they are none of {', '.join(SCHEMES)}. Correct the "
        "line, or write all splits in one scheme.",
        path=error.path,
        line=error.line,
    )


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
                raise DataError(
                    f"{name}, line {number}: {token[:40]!r} is outside of any tree.", path=name, line=number
                )
            elif token != ")":
                open[-1].append(token)
            else:
                words += _parse_leaf(name, number, open.pop())
                if not open:
                    if words:
                        yield TaggedSentence(*zip(*words, strict=True))
                    words = []
    if open:
        raise DataError(
            f"{name} is truncated: the tree that begins on line {begin} is not closed.", path=name, line=begin
        )


def _parse_leaf(name: str, number: int, inside: list[str]) -> list[tuple[str, str, int]]:
    """Return the word of a bracket that has one: (NN house)."""
    if len(inside) < 2:  # the label of a phrase, or nothing at the root
        return []
    if len(inside) > 2:
        raise DataError(
            f"{name}, line {number}: ({' '.join(inside)[:40]}) is neither a word with its tag nor a phrase.",
            path=name,
            line=number,
        )
    tag, word = inside
    return [] if tag == TRACE else [(word, tag, number)]


# ------------------------------------------------------------------------------------------------ python-names

PYTHON_NAMES = "python-names"
MODULES = (
    *(
        "argparse",
        "ast",
        "bdb",
        "calendar",
        "cmd",
        "codecs",
        "configparser",
        "contextlib",
        "copy",
        "csv",
        "dataclasses",
    ),
    *("datetime", "difflib", "doctest", "enum", "fractions", "ftplib", "functools", "gettext", "glob", "gzip", "heapq"),
    *("imaplib", "inspect", "ipaddress", "locale", "mailbox", "mimetypes", "netrc", "optparse", "os", "pdb", "pickle"),
    *("platform", "plistlib", "poplib", "pprint", "profile", "queue", "random", "sched", "selectors", "shelve"),
    *("shutil", "smtplib", "socket", "ssl", "statistics", "string", "subprocess", "tarfile", "tempfile", "textwrap"),
    *("threading", "timeit", "tokenize", "trace", "traceback", "types", "typing", "uuid", "warnings", "weakref"),
    *("webbrowser", "zipapp", "zipfile"),
)
KEEP_EVERY = 5  # of the lines without a span
MAX_WORDS = 60  # of a line: tables of numbers are not sentences
TYPE_AFTER = {
    "def": "FUNCTION",
    "class": "CLASS",
    "raise": "RAISED",
    "except": "CAUGHT",
    "from": "MODULE",
    "import": "MODULE",
}
QUOTED = '"…"'


@cache
def python_names() -> dict[str, TaggedText]:
    """Return the splits: of every five modules, three are for train, one for dev and one for test.

    Types are MODULE (imported, or imported from), NAME (imported from a module), FUNCTION (after def), CLASS (after
    class), RAISED (after raise) and CAUGHT (after except). Which words are tagged depends on words far before them. A
    sentence is a logical line of code, with strings as "…". Other versions of Python have other lines.
    """
    library = Path(sysconfig.get_paths()["stdlib"])
    splits: dict[str, list[TaggedSentence]] = {"train": [], "dev": [], "test": []}
    for i, name in enumerate(MODULES):
        path = library / f"{name}.py"
        if path.is_file():
            split = {3: "dev", 4: "test"}.get(i % 5, "train")
            lines = list(dict.fromkeys(_code_lines(path)))
            splits[split] += [
                line for k, line in enumerate(lines) if k % KEEP_EVERY == 0 or set(line.tags) != {OUTSIDE}
            ]
    return {split: TaggedText(f"{PYTHON_NAMES} ({split})", sentences) for split, sentences in splits.items()}


def _code_lines(path: Path) -> Iterator[TaggedSentence]:
    words: list[str] = []
    source = io.BytesIO(path.read_bytes())
    for token in tokenize.tokenize(source.readline):
        if token.type == token_types.NEWLINE:
            if 2 < len(words) <= MAX_WORDS:
                yield TaggedSentence(tuple(words), tuple(write_tags(_spans(words), len(words), "IOB2")))
            words = []
        elif token.type == token_types.STRING or token.string.startswith(("'", '"')):
            words.append(QUOTED)
        elif token.type in (token_types.NAME, token_types.NUMBER, token_types.OP):
            words.append(token.string)


def _spans(words: Sequence[str]) -> Iterator[Span]:
    i = 0
    while i < len(words):
        type = TYPE_AFTER.get(words[i], "")
        i += 1
        if not type or (words[i - 1] == "from" and (i > 1 or "import" not in words)):  # yield from, raise … from
            continue
        may_list = words[i - 1] in ("import", "except")
        if words[i - 1] == "import" and words[0] == "from":
            type = "NAME"
        i += words[i : i + 1] == ["("] and may_list
        while i < len(words):
            end = _end_of_dotted_name(words, i)
            if end > i:
                yield Span(i, end, type)
            i = max(end, i)
            if not may_list or "," not in words[i:]:
                break
            i = words.index(",", i) + 1


def _end_of_dotted_name(words: Sequence[str], start: int) -> int:
    """Return where a name with dots ends."""
    end = start
    while end < len(words) and (words[end] in (".", "...") or _is_name(words[end])):
        if _is_name(words[end]) and end > start and words[end - 1] not in (".", "..."):
            break
        end += 1
    return end


def _is_name(word: str) -> bool:
    return word.isidentifier() and not keyword.iskeyword(word)
