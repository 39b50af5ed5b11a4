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

Sentences whose words have tags: what the readers of tagged files give.

Words with parts of speech out of the Penn Treebank's own trees (.mrg).

    ( (S (NP-SBJ (NNP Pierre) (NNP Vinken)) (VP (MD will) (VP (VB join) … )) (. .)))      →  Pierre/NNP Vinken/NNP …

A tree in brackets of its own is a sentence. Traces (-NONE-) are no words and are left out, as everybody does.

Tagged sentences that are on every machine: lines of Python's own library, in which names are spans to be found.

    from    os          .           path        import   join        def    main         (   args   )   :
    O       B-MODULE    I-MODULE    I-MODULE    O        B-NAME      O      B-FUNCTION   O   O      O   O

| type       | is                                                      |
| ---------- | ------------------------------------------------------- |
| `MODULE`   | what is imported, or imported from, with its dots       |
| `NAME`     | what is imported from there                             |
| `FUNCTION` | what follows `def`                                      |
| `CLASS`    | what follows `class`                                    |
| `RAISED`   | what follows `raise`, with its dots                     |
| `CAUGHT`   | what follows `except`, with its dots                    |

A sentence is a line of code as Python reads it; what is quoted is written as "…". Which words are tagged is decided by
what stands before them, often far, so that letters alone do not tell. Another Python has other lines.
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

from nextword.core.errors import NextwordError
from nextword.data.catalog import ALL, Entry, absent, catalog, find
from nextword.data.files import lines, plain_name
from nextword.data.tag_schemes import OUTSIDE, PLAIN, SCHEMES, Span, converted, has_spans, violation, written


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    words: tuple[str, ...]
    tags: tuple[str, ...]
    lines: tuple[int, ...] = field(default=(), repr=False)  # where each word stands in its file


@dataclass(frozen=True)
class TaggedText:
    name: str  # of the file
    sentences: list[TaggedSentence] = field(repr=False)
    notes: tuple[str, ...] = ()  # what is to be known of it

    def __len__(self) -> int:
        return len(self.sentences)

    def take(self, chosen: Sequence[int]) -> TaggedText:
        return replace(self, sentences=[self.sentences[i] for i in chosen])

    @property
    def words(self) -> int:
        return sum(len(one.words) for one in self.sentences)

    @property
    def fingerprint(self) -> str:
        hashed = blake2b(digest_size=16)
        for one in self.sentences:
            for column in (one.words, one.tags):
                hashed.update("\x1e".join(column).encode("utf-8", "replace") + b"\x1d")
        return hashed.hexdigest()

    def refused(self, sentence: TaggedSentence, at: int, why: str) -> NextwordError:
        where = f", line {sentence.lines[at]}" if sentence.lines else ""
        return NextwordError(f"{self.name}{where}: {why}.")


TREEBANK_SUFFIX = ".mrg"
TRACE = "-NONE-"
_TOKEN = re.compile(r"[()]|[^\s()]+")


def read_trees(name: str, source: Iterable[str]) -> Iterator[TaggedSentence]:
    """The sentences of one file, in order."""
    open: list[list[str]] = []  # what stands in each bracket that is not yet closed, brackets within left out
    began = number = 0
    words: list[tuple[str, str, int]] = []
    for number, line in enumerate(source, 1):
        for token in _TOKEN.findall(line):
            if token == "(":
                began = began if open else number
                open.append([])
            elif not open:
                raise NextwordError(f"{name}, line {number}: {token[:40]!r} stands outside of any tree.")
            elif token != ")":
                open[-1].append(token)
            else:
                words += _leaf(name, number, open.pop())
                if not open:
                    if words:
                        yield TaggedSentence(*zip(*words, strict=True))
                    words = []
    if open:
        raise NextwordError(f"{name}: the tree that begins in line {began} is never closed; the file ends at {number}.")


def _leaf(name: str, number: int, inside: list[str]) -> list[tuple[str, str, int]]:
    """The word of a bracket that has one: (NN house)."""
    if len(inside) < 2:  # the label of a phrase, or nothing, as at the root
        return []
    if len(inside) > 2:
        raise NextwordError(
            f"{name}, line {number}: ({' '.join(inside)[:40]}) is neither a word with its tag nor a phrase."
        )
    tag, word = inside
    return [] if tag == TRACE else [(word, tag, number)]


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
PLAIN_NAME = 5  # of lines without a span every fifth is kept
LONGEST = 60  # words of a line: tables of numbers are no sentences
OF = {"def": "FUNCTION", "class": "CLASS", "raise": "RAISED", "except": "CAUGHT", "from": "MODULE", "import": "MODULE"}
QUOTED = '"…"'


@cache
def python_names() -> dict[str, TaggedText]:
    """Every fifth module is for dev and every fifth for test, in turns."""
    library = Path(sysconfig.get_paths()["stdlib"])
    splits: dict[str, list[TaggedSentence]] = {"train": [], "dev": [], "test": []}
    for i, name in enumerate(MODULES):
        path = library / f"{name}.py"
        if path.is_file():
            split = {3: "dev", 4: "test"}.get(i % 5, "train")
            lines = list(dict.fromkeys(_code_lines(path)))
            splits[split] += [one for k, one in enumerate(lines) if k % PLAIN_NAME == 0 or set(one.tags) != {OUTSIDE}]
    return {split: TaggedText(f"{PYTHON_NAMES} ({split})", some) for split, some in splits.items()}


def _code_lines(path: Path) -> Iterator[TaggedSentence]:
    words: list[str] = []
    source = io.BytesIO(path.read_bytes())
    for one in tokenize.tokenize(source.readline):
        if one.type == token_types.NEWLINE:
            if 2 < len(words) <= LONGEST:
                yield TaggedSentence(tuple(words), tuple(written(_spans(words), len(words), "IOB2")))
            words = []
        elif one.type == token_types.STRING or one.string.startswith(("'", '"')):
            words.append(QUOTED)
        elif one.type in (token_types.NAME, token_types.NUMBER, token_types.OP):
            words.append(one.string)


def _spans(words: Sequence[str]) -> Iterator[Span]:
    i = 0
    while i < len(words):
        type = OF.get(words[i], "")
        i += 1
        if not type or (words[i - 1] == "from" and (i > 1 or "import" not in words)):  # yield from, raise … from
            continue
        listed = words[i - 1] in ("import", "except")
        if words[i - 1] == "import" and words[0] == "from":
            type = "NAME"
        i += words[i : i + 1] == ["("] and listed
        while i < len(words):
            end = _dotted(words, i)
            if end > i:
                yield Span(i, end, type)
            i = max(end, i)
            if not listed or "," not in words[i:]:
                break
            i = words.index(",", i) + 1


def _dotted(words: Sequence[str], start: int) -> int:
    """Where a name with dots ends."""
    end = start
    while end < len(words) and (words[end] in (".", "...") or _is_name(words[end])):
        if _is_name(words[end]) and end > start and words[end - 1] not in (".", "..."):
            break
        end += 1
    return end


def _is_name(word: str) -> bool:
    return word.isidentifier() and not keyword.iskeyword(word)


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
