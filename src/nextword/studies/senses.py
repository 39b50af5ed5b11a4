"""Senses of four words in the newspaper, as NLTK has them from Senseval-2: hard, interest, line, serve.

    <instance id="line-n.w7_010:888:">
    <answer instance="line-n.w7_010:888:" senseid="cord"/>
    <context>
     <wf pos="JJ">safety</wf> <head> <wf pos="NNS">lines</wf></head> <wf pos="IN">on</wf> the 3 FRASL <wf …
    </context>
    </instance>

One file a word, read where it lies, in NLTK's zip or unpacked. All of it is in lower case. What is told by a person is
the sense of the word inside <head>. Some words stand outside any <wf>; FRASL is a stroke; <compound> and <s> mean
nothing here. The same context may be there twice, so contexts are shared out by what they say and not by their id.
"""

from __future__ import annotations

import zipfile
from bisect import bisect
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import IO, NamedTuple
from xml.etree.ElementTree import Element, ParseError, iterparse

from nextword.contract_errors import NextwordError
from nextword.corpora.catalog import data_home, find, shared_folders

NAME = "senseval"
ENDING = ".pos"
ZIPS = ("senseval.zip", "nltk/senseval.zip", "corpora/senseval.zip", "nltk_data/corpora/senseval.zip")
STROKE = "FRASL"
SHARED = (0.6, 0.8)  # 60, 20 and 20 % to learn from, to choose by and to test on
ABSENT = (
    "The contexts of Senseval-2 are not on this machine. They are NLTK's senseval.zip: put it into a folder that "
    "NEXTWORD_DATA names, or say `nextword data senseval --from senseval.zip`."
)


class Context(NamedTuple):
    words: list[str]
    at: int  # which of them has the sense
    sense: str


def place() -> Path | None:
    """Where they are on this machine: a zip, or a folder of .pos files."""
    for home in (data_home(), *shared_folders()):
        for name in ZIPS:
            if (home / name).is_file():
                return home / name
    entry = find(NAME)
    return entry.place() if entry else None


def senses(where: Path) -> dict[str, list[Context]]:
    """The contexts of each word, in the order of the files."""
    found: dict[str, list[Context]] = {}
    try:
        if where.is_file():
            with zipfile.ZipFile(where) as archive:
                for name in sorted(n for n in archive.namelist() if n.endswith(ENDING)):
                    with archive.open(name) as file:
                        found[Path(name).stem] = list(contexts(file, f"{where}, {name}"))
        else:
            for path in sorted(where.glob(f"**/*{ENDING}")):
                with path.open("rb") as file:
                    found[path.stem] = list(contexts(file, str(path)))
    except zipfile.BadZipFile as problem:
        raise NextwordError(f"{where} is no whole zip file: {problem}. Fetch it again.") from problem
    if not any(found.values()):
        raise NextwordError(
            f"{where} has no contexts of Senseval-2; expected were hard.pos, interest.pos, line.pos and serve.pos, as "
            "in NLTK's senseval.zip."
        )
    return found


def contexts(file: IO[bytes], name: str) -> Iterator[Context]:
    try:
        for _, element in iterparse(file):
            if element.tag == "instance":
                yield _context(element, name)
                element.clear()  # all of them together are a hundred megabytes
    except ParseError as problem:
        raise NextwordError(
            f"{name} cannot be read: {problem}. NLTK's files of Senseval-2 are well-formed XML; fetch them again."
        ) from problem


def _context(instance: Element, name: str) -> Context:
    answer, context = instance.find("answer"), instance.find("context")
    words: list[str] = []
    at: list[int] = []
    if context is not None:
        for word, head in _words(context, False):
            if head:
                at.append(len(words))
            words.append("/" if word == STROKE else word)
    if answer is None or not answer.get("senseid") or len(at) != 1:
        raise NextwordError(
            f"{name}, {instance.get('id')}: expected are one <answer senseid=…> and one word inside <head>; found are "
            f"{'an' if answer is not None else 'no'} answer and {len(at)} such words. Fetch the file again."
        )
    return Context(words, at[0], str(answer.get("senseid")))


def _words(element: Element, head: bool) -> Iterator[tuple[str, bool]]:
    """The words below an element, and whether each is inside <head>; text between the elements is words, too."""
    head = head or element.tag == "head"
    yield from ((word, head) for word in (element.text or "").split())
    for child in element:
        yield from _words(child, head)
        yield from ((word, head) for word in (child.tail or "").split())


def shared_out(found: Sequence[Context]) -> list[list[Context]]:
    """To learn from, to choose by, to test on: by a hash of the text, so always the same, and equal texts together."""
    out: list[list[Context]] = [[], [], []]
    for context in found:
        digest = sha256(" ".join(context.words).encode()).digest()
        out[bisect(SHARED, int.from_bytes(digest[:8], "big") / 2**64)].append(context)
    return out
