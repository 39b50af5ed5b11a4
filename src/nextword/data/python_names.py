"""`python-names`, tagged text on every machine: lines of Python's standard library, in which names are spans to find.

    from    os          .           path        import   join        def    main         (   args   )   :
    O       B-MODULE    I-MODULE    I-MODULE    O        B-NAME      O      B-FUNCTION   O   O      O   O

Types are MODULE (imported, or imported from), NAME (imported from a module), FUNCTION (after def), CLASS (after class),
RAISED (after raise) and CAUGHT (after except). Which words are tagged depends on words far before them. A sentence is a
logical line of code, with strings as "…". Other versions of Python have other lines.
"""

from __future__ import annotations

import io
import keyword
import re
import sysconfig
import token as token_types
import tokenize
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from nextword.data.conll import TaggedSentence, TaggedText
from nextword.data.tag_schemes import OUTSIDE, Span, write_tags

MODULES = re.findall(
    r"\w+",
    "argparse ast bdb calendar cmd codecs configparser contextlib copy csv dataclasses datetime difflib doctest enum "
    "fractions ftplib functools gettext glob gzip heapq imaplib inspect ipaddress locale mailbox mimetypes netrc "
    "optparse os pdb pickle platform plistlib poplib pprint profile queue random sched selectors shelve shutil smtplib "
    "socket ssl statistics string subprocess tarfile tempfile textwrap threading timeit tokenize trace traceback types "
    "typing uuid warnings weakref webbrowser zipapp zipfile",
)
KEEP_EVERY = 5  # of the lines without a span
MAX_WORDS = 60  # of a line: tables of numbers are not sentences
TYPE_AFTER = {"def": "FUNCTION", "class": "CLASS", "raise": "RAISED", "except": "CAUGHT"}
TYPE_AFTER |= {"from": "MODULE", "import": "MODULE"}
QUOTED = '"…"'


@cache
def python_names() -> dict[str, TaggedText]:
    """Return the splits: of every five modules, three are for train, one for dev and one for test."""
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
    return {split: TaggedText(f"python-names ({split})", sentences) for split, sentences in splits.items()}


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
