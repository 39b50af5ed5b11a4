"""The catalog of named data sets (catalog.toml), and where each lies on this machine.

A name is looked for in the data home (`$NEXTWORD_HOME/data`, by default `~/.local/share/nextword/data`), where
`nextword data NAME --from PATH` puts things, and then in each folder of `$NEXTWORD_DATA`.

Bringing a data set of the catalog into the data home: from a local path, or, only when told, from its owner.

What arrives is checked (names, checksums) before anything is put in place, and is put in place whole.
"""

from __future__ import annotations

import errno
import os
import shutil
import tarfile
import tempfile
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from fnmatch import fnmatch
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from nextword.core.errors import NextwordError

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


ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.xz", ".tar.bz2")
BLOCK = 1 << 20

Progress = Callable[[int, int | None], None]


def install(entry: Entry, source: Path, progress: Progress | None = None) -> Path:
    """Copy a data set from a folder, a file or an archive into the data home; returns where it now lies."""
    source = source.expanduser()
    if not source.exists():
        raise NextwordError(f"There is no file or folder {source}. Give the place where {entry.name} lies.")
    home = data_home()
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{entry.name}.", suffix=".part", dir=home) as scratch:
            unpacked = _unpacked(source, Path(scratch) / "unpacked")
            _collect(entry, unpacked, source, Path(scratch) / "new", progress)
            return _put(Path(scratch), home / entry.name)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        raise NextwordError(
            f"{home} could not be written ({error.strerror}); nothing was changed there. "
            "Make room, or set NEXTWORD_HOME to a folder on another disk."
        ) from None


def _unpacked(source: Path, target: Path) -> Path:
    if source.is_dir() or not source.name.lower().endswith(ARCHIVES):
        return source
    target.mkdir()
    try:
        if source.suffix.lower() == ".zip":
            with zipfile.ZipFile(source) as archive:
                archive.extractall(target)
        else:
            with tarfile.open(source) as tar:
                tar.extractall(target, filter="data")
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        raise NextwordError(f"{source} is damaged or cut short: {error}. Fetch it again.") from None
    return target


def _collect(entry: Entry, unpacked: Path, source: Path, target: Path, progress: Progress | None) -> None:
    pairs = _wanted(entry, unpacked)
    if not pairs:
        expected = "; ".join(f"{split}: {' or '.join(names)}" for split, names in entry.layout.items())
        note = f" Note: {entry.note}." if entry.note else ""
        raise NextwordError(f"{source} has none of the files of {entry.name}. Expected {expected}.{note}")
    for path, _ in pairs:
        known = entry.sha256.get(path.name)
        if known and path.is_file() and (actual := file_sha256(path)) != known:
            raise NextwordError(
                f"{path.name} is not the file others use: its sha256 is {actual}, expected {known}. "
                f"Get it from {entry.home}; or use yours under its own path: --data {source}."
            )
    files = [
        (file, target / place / file.relative_to(path) if path.is_dir() else target / place)
        for path, place in pairs
        for file in (sorted(f for f in path.rglob("*") if f.is_file()) if path.is_dir() else [path])
    ]
    done, total = 0, sum(file.stat().st_size for file, _ in files)
    for file, goal in files:
        goal.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "rb") as old, open(goal, "wb") as new:
            while block := old.read(BLOCK):
                new.write(block)
                done += len(block)
                if progress:
                    progress(done, total)


def _wanted(entry: Entry, place: Path) -> list[tuple[Path, Path]]:
    if place.is_dir():
        pairs = list(dict.fromkeys(pair for pairs in entry.arrange(place).values() for pair in pairs))
        return [*pairs, *((path, Path(path.name)) for path in entry.along(place))] if pairs else []
    names = {name for alternatives in entry.layout.values() for one in alternatives for name in one.split(" + ")}
    return [(place, Path(place.name))] if any(fnmatch(place.name, Path(name).name) for name in names) else []


def _put(scratch: Path, goal: Path) -> Path:
    """Replace what was there in one step; the old lies in the scratch folder and goes with it."""
    if goal.exists():
        os.rename(goal, scratch / "old")
    os.rename(scratch / "new", goal)
    return goal


def fetch(entry: Entry, progress: Progress | None = None) -> Path:
    """Download a data set from its owner, check it, and install it. A download that broke off goes on where it was."""
    if not entry.get:
        raise NextwordError(
            f"{entry.name} has no --get: its owner offers no plain download. Get it from {entry.home}, "
            f"then: nextword data {entry.name} --from PATH."
        )
    folder = data_home() / ".downloads" / entry.name
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for item in entry.get:
        file = folder / item.url.rpartition("/")[2]
        if not file.exists():
            _download(item.url, file, progress)
        if item.sha256 and (actual := file_sha256(file)) != item.sha256:
            file.unlink()
            raise NextwordError(
                f"{item.url} is not what it was: its sha256 is {actual}, expected {item.sha256}. It was removed again. "
                f"Look at {entry.home} for what has changed."
            )
        files.append(file)
    place = install(entry, files[0] if len(files) == 1 else folder, progress)
    shutil.rmtree(folder)
    return place


def _download(url: str, file: Path, progress: Progress | None) -> None:
    part = file.with_name(file.name + ".part")
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "nextword", "Range": f"bytes={have}-"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            if getattr(answer, "status", None) != 206:
                have = 0  # the server sends all of it again
            length = answer.headers.get("Content-Length")
            total = have + int(length) if length else None
            with open(part, "ab" if have else "wb") as out:
                while block := answer.read(BLOCK):
                    out.write(block)
                    have += len(block)
                    if progress:
                        progress(have, total)
        if total is not None and have < total:
            raise OSError(f"the connection ended after {have} of {total} bytes")
    except urllib.error.HTTPError as error:
        raise NextwordError(f"{url} answers {error.code} {error.reason}. It may have moved; get it by hand.") from None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        reason = getattr(error, "reason", None) or error
        raise NextwordError(
            f"{url} could not be fetched: {reason}. Check the network and run the same command again; it goes on from "
            f"the {part.stat().st_size if part.exists() else 0:,} bytes it has."
        ) from None
    os.replace(part, file)
