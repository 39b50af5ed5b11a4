"""Texts to train on: those that clients upload, and the built-in corpora.

    FOLDER/text-<hash>.txt       the text as it came, or .tsv for pairs; the hash is that of the content
    FOLDER/text-<hash>.json      its name for people

A client chooses only the name, which is shown and never becomes a path.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from nextword.core.errors import NextwordError
from nextword.core.io import read_json, to_json, write_atomically
from nextword.data.builtin import BUILT_IN, PACKAGES, bible_chapters, edition_size, is_installed
from nextword.data.opening import open_corpus
from nextword.data.parallel import open_parallel
from nextword.server.security import Refusal

Kind = Literal["text", "pairs"]
MAX_UPLOADS = 50
MAX_TEXT = 6_000_000  # characters: with escapes, they fit into a request
MIN_CHARACTERS, MIN_PAIRS = 2000, 100  # of less, the held-out splits mean nothing
PREVIEW = 200  # characters
BIBLES = "bible:kjv-web"
UPLOAD = re.compile(r"text-[0-9a-f]{16}")
DAMAGED = (NextwordError, OSError, KeyError)  # what reading an upload raises if one of its files is gone or damaged
SUFFIXES: dict[Kind, str] = {"text": ".txt", "pairs": ".tsv"}


class Texts:
    """The texts of a folder, which is made when the first one is uploaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def overview(self) -> list[dict[str, Any]]:
        """All texts: uploads, newest first, then those that are built in."""
        uploads = []
        for path in self.folder.glob("text-*.json"):
            with suppress(*DAMAGED):
                uploads.append((path.stat().st_mtime, self._describe(path.stem)))
        uploads.sort(key=lambda upload: upload[0], reverse=True)
        built_in = [entry | _describe_built_in(id) for id, entry in _built_in().items()]
        return [*(entry for _, entry in uploads), *built_in]

    def find(self, id: str) -> dict[str, Any]:
        """A text by its id. Raises Refusal."""
        if id in _built_in():
            return _built_in()[id]
        if UPLOAD.fullmatch(id):
            with suppress(*DAMAGED):
                return self._describe(id)
        raise Refusal(404, f"There is no text {id[:80]!r}. GET /api/texts lists them.", code="no_text", param="data")

    def source(self, id: str) -> str:
        """A text as `nextword train --data` takes it."""
        entry = self.find(id)
        if entry["built_in"]:
            return id
        return f"{self._file(id, entry['kind']).resolve()}{':1-2:no-header' if entry['kind'] == 'pairs' else ''}"

    def add(self, name: str, text: str, kind: Kind = "text") -> dict[str, Any]:
        """Save an upload. The same text again is the same entry. Raises Refusal."""
        content = text.removeprefix("\ufeff").replace("\r\n", "\n")
        _check_content(content, kind)
        id = f"text-{blake2b(f'{kind}:{content}'.encode(), digest_size=8).hexdigest()}"
        with suppress(*DAMAGED):
            return self._describe(id)
        if len(list(self.folder.glob("text-*.json"))) >= MAX_UPLOADS:
            raise Refusal(409, f"There are {MAX_UPLOADS} texts already. Delete one first.", code="too_many_texts")
        file = self._file(id, kind)
        with write_atomically(file) as stream:
            stream.write(content.encode())
        try:
            _check_splits(file, kind)
        except BaseException:
            file.unlink()
            raise
        with write_atomically(self.folder / f"{id}.json") as stream:
            stream.write(to_json({"name": name, "kind": kind}).encode())
        return self._describe(id)

    def remove(self, id: str, used_by: Collection[str]) -> None:
        """Remove an upload. Raises Refusal."""
        entry = self.find(id)
        if entry["built_in"]:
            raise Refusal(409, f"{id} is built in and cannot be deleted.", code="built_in")
        if used_by:
            problem = f"A job needs this text ({', '.join(sorted(used_by))}). Delete the job first."
            raise Refusal(409, problem, code="in_use")
        (self.folder / f"{id}.json").unlink()
        self._file(id, entry["kind"]).unlink(missing_ok=True)

    def _file(self, id: str, kind: Kind) -> Path:
        return self.folder / f"{id}{SUFFIXES[kind]}"

    def _describe(self, id: str) -> dict[str, Any]:
        info = read_json(self.folder / f"{id}.json", {"name": str, "kind": str})
        file = self._file(id, info["kind"])
        with file.open("rb") as stream:
            preview = stream.read(4 * PREVIEW).decode(errors="ignore")[:PREVIEW]
        return {"id": id, **info, "bytes": file.stat().st_size, "built_in": False, "preview": preview}


@cache
def _built_in() -> dict[str, dict[str, Any]]:
    """The corpora that are installed, by id."""
    names = {id: title for id, (title, _) in BUILT_IN.items() if is_installed(id)}
    found = {id: {"id": id, "name": title, "kind": "text", "built_in": True} for id, title in names.items()}
    if {"web", "kjv"} <= names.keys():
        title = "King James Bible to World English Bible, verse by verse"
        found[BIBLES] = {"id": BIBLES, "name": title, "kind": "pairs", "built_in": True}
    return found


@cache
def _describe_built_in(id: str) -> dict[str, Any]:
    """Size and beginning. To build a Bible takes a second, so its size is that of the edition: 1 % larger."""
    if id == BIBLES:
        pair = (next(bible_chapters(version)).text.partition("\n")[0] for version in ("kjv", "web"))
        return {"bytes": None, "preview": "\t".join(pair)[:PREVIEW]}
    size = edition_size(id) if id in PACKAGES else open_corpus(id).texts["train"].size()
    return {"bytes": size, "preview": next(BUILT_IN[id][1]()).text[:PREVIEW]}


# ------------------------------------------------------------------------------------------------ checks


def _refuse(problem: str, status: int = 400, code: str = "invalid_value") -> Refusal:
    return Refusal(status, problem, code=code, param="text")


def _check_content(text: str, kind: Kind) -> None:
    if len(text) > MAX_TEXT:
        raise _refuse(f"The text has more than {MAX_TEXT:,} characters. Use the command line for it.", 413, "too_large")
    if not text.strip():
        raise _refuse("The text is empty. Choose a file of plain text.")
    controls = sum(text.count(chr(code)) for code in range(32) if code not in (9, 10, 12, 13))
    if "\0" in text or controls + text.count("\ufffd") > len(text) / 100:
        raise _refuse("The file is not plain text. Save it as UTF-8 text first; PDF and Word files cannot be read.")
    if kind == "pairs":
        lines = [line for line in text.split("\n") if line.strip()]
        wrong = next((i for i, line in enumerate(lines, 1) if len(line.split("\t")) != 2), None)
        if wrong is not None:
            raise _refuse(f"Line {wrong} is not a pair. Each line must have a source, a tab and a target.")
        if len(lines) < MIN_PAIRS:
            raise _refuse(f"The text has {len(lines)} pairs. Training needs at least {MIN_PAIRS}.")
    elif len(text.strip()) < MIN_CHARACTERS:
        raise _refuse(f"The text has {len(text.strip()):,} characters. Training needs at least {MIN_CHARACTERS:,}.")


def _check_splits(file: Path, kind: Kind) -> None:
    """Read the text as training will, so that what is wrong with it shows now."""
    try:
        corpus = open_corpus(file) if kind == "text" else open_parallel(f"{file.resolve()}:1-2:no-header")
        empty = [split for split in corpus.splits if not any(islice(corpus.documents(split), 1))]
    except NextwordError as error:
        problem = str(error).replace(str(file), "the text").removeprefix(f"{file.name}: ")
        raise _refuse(f"The text cannot be used: {problem}") from None
    if empty:
        raise _refuse("The text is too short or too uniform to hold out a part of it for tests. Add more text.")
