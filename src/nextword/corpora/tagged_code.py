"""Tagged sentences that are on every machine: lines of Python's own library, in which names are spans to be found.

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
import sysconfig
import token
import tokenize
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from nextword.corpora.tag_schemes import OUTSIDE, Span, written
from nextword.corpora.tagged_text import TaggedSentence, TaggedText

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
        if one.type == token.NEWLINE:
            if 2 < len(words) <= LONGEST:
                yield TaggedSentence(tuple(words), tuple(written(_spans(words), len(words), "IOB2")))
            words = []
        elif one.type == token.STRING or one.string.startswith(("'", '"')):
            words.append(QUOTED)
        elif one.type in (token.NAME, token.NUMBER, token.OP):
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
