"""The catalog of named data sets (catalog.toml), and where each lies on this machine.

A name is looked for in the data home (`$NEXTWORD_HOME/data`, by default `~/.local/share/nextword/data`), where
`nextword data NAME --from PATH` puts things, and then in each folder of `$NEXTWORD_DATA`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from nextword.contract_errors import NextwordError

KINDS = frozenset(
    {"text", "classification", "pairs", "regression", "choice", "questions"}
    | {"tagging", "roles", "coreference", "translation", "vectors", "collection"}
)
ALL = "all"  # the key of a layout that has no splits of its own


@dataclass(frozen=True)
class Download:
    url: str
    sha256: str = ""


@dataclass(frozen=True)
class Entry:
    """One data set; the fields are explained at the head of catalog.toml."""

    name: str
    title: str
    kind: str
    licence: str
    home: str
    layout: Mapping[str, tuple[str, ...]]
    unit: str = ""
    splits: Mapping[str, int] = field(default_factory=dict)
    sha256: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    reader: str = "auto"
    column: str | None = None
    pair: str = ""
    contiguous: Mapping[str, float] = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    note: str = ""
    get: tuple[Download, ...] = ()

    @property
    def is_text(self) -> bool:
        """Whether it can be modelled as it is; the others are tasks."""
        return self.kind == "text" or self.column is not None

    def locate(self, folder: Path) -> dict[str, list[Path]]:
        """The files of each split that are in this folder or below it."""
        return {split: [path for path, _ in pairs] for split, pairs in self.arrange(folder).items()}

    def arrange(self, folder: Path) -> dict[str, list[tuple[Path, Path]]]:
        """The files of each split, each with the place it has in the expected layout."""
        found = {}
        for split, alternatives in self.layout.items():
            for names in alternatives:
                groups = [(name, _match(folder, name)) for name in names.split(" + ")]
                if all(paths for _, paths in groups):
                    depth = {name: len(Path(name).parts) for name, _ in groups}
                    found[split] = [
                        (path, Path(*path.parts[-depth[name] :])) for name, paths in groups for path in paths
                    ]
                    break
        return found

    def along(self, folder: Path) -> list[Path]:
        """Files of no split that belong to it, those that are there."""
        return [path for name in self.beside for path in _match(folder, name)[:1]]

    def place(self) -> Path | None:
        """The first folder on this machine that has some of it."""
        for home in (data_home(), *shared_folders()):
            for name in (self.name, *self.aliases):
                folder = home / name
                if folder.is_dir() and self.locate(folder):
                    return folder
        return None

    def verify(self, folder: Path) -> dict[str, bool]:
        """File name → whether its checksum is the known one; only files with a known checksum are looked at."""
        paths = {path.name: path for group in self.locate(folder).values() for path in group}
        return {name: file_sha256(paths[name]) == known for name, known in self.sha256.items() if name in paths}


def _match(folder: Path, name: str) -> list[Path]:
    """Files by name or pattern: directly inside, else at any depth."""
    return sorted(folder.glob(name)) or sorted(folder.glob(f"**/{name}"))


def data_home() -> Path:
    return Path(os.environ.get("NEXTWORD_HOME") or "~/.local/share/nextword").expanduser() / "data"


def shared_folders() -> list[Path]:
    """Further folders of data sets, as listed in `$NEXTWORD_DATA`."""
    return [Path(p).expanduser() for p in os.environ.get("NEXTWORD_DATA", "").split(os.pathsep) if p]


@cache
def catalog() -> dict[str, Entry]:
    """Every entry by name, in the order of the file. A key that no field takes is refused."""
    text = (Path(__file__).parent / "catalog.toml").read_text(encoding="utf-8")
    return {name: _entry(name, table) for name, table in tomllib.loads(text).items()}


def _entry(name: str, table: dict[str, Any]) -> Entry:
    known = {f.name for f in fields(Entry)} - {"name"}
    for key in table:
        if key not in known:
            raise NextwordError(f"catalog.toml, [{name}]: unknown key {key!r}. {_near(key, known)}")
    if table["kind"] not in KINDS:
        raise NextwordError(f"catalog.toml, [{name}]: unknown kind {table['kind']!r}. {_near(table['kind'], KINDS)}")
    table["layout"] = {split: tuple(names) for split, names in table["layout"].items()}
    for key in ("aliases", "beside"):
        table[key] = tuple(table.get(key, ()))
    table["get"] = tuple(Download(**item) for item in table.get("get", ()))
    return Entry(name, **table)


def find(name: str) -> Entry | None:
    """The entry of that name; or of that alias, where only one has it."""
    entries = catalog()
    if name in entries:
        return entries[name]
    named = [entry for entry in entries.values() if name.lower() in (alias.lower() for alias in entry.aliases)]
    return named[0] if len(named) == 1 else None


def _near(word: str, known: Iterable[str]) -> str:
    near = get_close_matches(word, list(known), 1)
    return f"Did you mean {near[0]!r}?" if near else f"Known are {', '.join(sorted(known))}."


def absent(entry: Entry) -> NextwordError:
    """What to do about a data set that is known but not here."""
    fetch = f", or fetch it from there: nextword data {entry.name} --get" if entry.get else ""
    return NextwordError(
        f"{entry.name} ({entry.title}) is not on this machine. Its home is {entry.home}. When you have it: "
        f"nextword data {entry.name} --from PATH{fetch}."
    )


def file_sha256(path: Path) -> str:
    hasher = sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            hasher.update(block)
    return hasher.hexdigest()
