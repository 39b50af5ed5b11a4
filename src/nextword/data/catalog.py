"""The catalog of named data sets (catalog.toml): finding, installing and downloading them.

A data set is searched in the data home (`$NEXTWORD_HOME/data`, by default `~/.local/share/nextword/data`) and in each
folder of `$NEXTWORD_DATA`. `nextword data NAME --install PATH` installs a local copy, and `--download` fetches it from
its owner: into the first folder of `$NEXTWORD_DATA`, or into the data home if `$NEXTWORD_HOME` is set or neither is.
File names and checksums are verified before anything is installed, and installing is atomic.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tomllib
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate, mktime_tz, parsedate_tz
from fnmatch import fnmatch
from functools import cache
from hashlib import sha256
from http.client import HTTPMessage
from pathlib import Path
from typing import IO, Any

from nextword.core.errors import CannotWrite, DataError, MissingFile, Unsupported, bad_data, explain_write_errors
from nextword.core.io import open_file, user_path
from nextword.core.scratch import scratch_folder
from nextword.data.files import is_archive, open_archive

KINDS = frozenset(
    {"text", "classification", "pairs", "regression", "choice", "questions"}
    | {"tagging", "roles", "coreference", "translation", "vectors", "collection"}
)
ALL = "all"  # key of a layout without splits


@dataclass(frozen=True)
class Download:
    url: str
    sha256: str = ""


@dataclass(frozen=True)
class Entry:
    """One data set; the top of catalog.toml explains the fields."""

    name: str
    title: str
    kind: str
    license: str
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
    extra: tuple[str, ...] = ()
    note: str = ""
    get: tuple[Download, ...] = ()

    @property
    def is_text(self) -> bool:
        """Whether it is plain text, on which a language model can be trained; the others are tasks."""
        return self.kind == "text" or self.column is not None

    def locate(self, folder: Path) -> dict[str, list[Path]]:
        """Return the files of each split in this folder or below."""
        return {split: [path for path, _ in pairs] for split, pairs in self.arrange(folder).items()}

    def arrange(self, folder: Path) -> dict[str, list[tuple[Path, Path]]]:
        """Return the files of each split, each with its path in the expected layout."""
        files = {}
        for split, alternatives in self.layout.items():
            for names in alternatives:
                groups = [(name, _match(folder, name)) for name in names.split(" + ")]
                if all(paths for _, paths in groups):
                    depth = {name: len(Path(name).parts) for name, _ in groups}
                    files[split] = [
                        (path, Path(*path.parts[-depth[name] :])) for name, paths in groups for path in paths
                    ]
                    break
        return files

    def extra_files(self, folder: Path) -> list[Path]:
        """Return the files in this folder that belong to the data set but to no split."""
        return [path for name in self.extra for path in _match(folder, name)[:1]]

    def find_folder(self) -> Path | None:
        """Return the first folder on this machine that has at least one split; None if there is none."""
        for home in data_folders():
            for name in (self.name, *self.aliases):
                folder = home / name
                if folder.is_dir() and self.locate(folder):
                    return folder
        return None

    def require_folder(self) -> Path:
        """Return that folder; raise if there is none."""
        if (folder := self.find_folder()) is None:
            download = f", or download it: nextword data {self.name} --download" if self.get else ""
            install = f"Get it from {self.home}, then: nextword data {self.name} --install PATH{download}."
            raise MissingFile(f"{self.name} ({self.title}) is not on this machine. {install}", path=self.name)
        return folder

    def verify(self, folder: Path) -> dict[str, bool]:
        """Return file name → whether its checksum is right, for files with a known checksum."""
        paths = {path.name: path for group in self.locate(folder).values() for path in group}
        return {name: sha256_of(paths[name]) == known for name, known in self.sha256.items() if name in paths}


def _match(folder: Path, name: str) -> list[Path]:
    """Return files by name or pattern: directly inside, else at any depth."""
    return sorted(folder.glob(name)) or sorted(folder.glob(f"**/{name}"))


def data_home() -> Path:
    return Path(os.environ.get("NEXTWORD_HOME") or "~/.local/share/nextword").expanduser() / "data"


def shared_folders() -> list[Path]:
    """Return the further folders of data sets listed in `$NEXTWORD_DATA`."""
    return [Path(p).expanduser() for p in os.environ.get("NEXTWORD_DATA", "").split(os.pathsep) if p]


def install_home() -> Path:
    """Return the folder that new data sets are written to."""
    shared = shared_folders()
    return shared[0] if shared and not os.environ.get("NEXTWORD_HOME") else data_home()


def data_folders() -> list[Path]:
    """Return the folders of data sets in the order of search: new data sets come first."""
    return list(dict.fromkeys((install_home(), data_home(), *shared_folders())))


@cache
def catalog() -> dict[str, Entry]:
    """Return every entry by name, in the order of the file."""
    text = (Path(__file__).parent / "catalog.toml").read_text(encoding="utf-8")
    return {name: _entry(name, table) for name, table in tomllib.loads(text).items()}


def _entry(name: str, table: dict[str, Any]) -> Entry:
    table["layout"] = {split: tuple(names) for split, names in table["layout"].items()}
    table |= {key: tuple(table.get(key, ())) for key in ("aliases", "extra")}
    table["get"] = tuple(Download(**item) for item in table.get("get", ()))
    return Entry(name, **table)


def find_entry(name: str) -> Entry | None:
    """Return the entry of this name, or of this alias if only one entry has it."""
    entries = catalog()
    if name in entries:
        return entries[name]
    named = [entry for entry in entries.values() if name.lower() in (alias.lower() for alias in entry.aliases)]
    return named[0] if len(named) == 1 else None


def sha256_of(path: Path) -> str:
    hasher = sha256()
    with open_file(path) as file:
        while block := file.read(1 << 22):
            hasher.update(block)
    return hasher.hexdigest()


# ------------------------------------------------------------------------------------------------ installing

BLOCK = 1 << 20
DOWNLOADS = ".downloads"  # in `install_home()`: what an interrupted download has, by data set; removed when it is done

Progress = Callable[[int, int | None], None]


def install(entry: Entry, source: Path, progress: Progress | None = None) -> Path:
    """Copy a data set from a folder, a file or an archive into `install_home()`. Return its new folder."""
    source = user_path(source)
    if not source.exists():
        raise MissingFile(f"{source} does not exist. Give the path of {entry.name}.", path=source)
    home = install_home()
    with explain_write_errors(home, ", or set NEXTWORD_HOME to another folder. Nothing was changed."):
        home.mkdir(parents=True, exist_ok=True)
        with scratch_folder(home) as scratch:
            unpacked = _unpack(source, scratch / "unpacked")
            _copy_files(entry, unpacked, source, scratch / "new", progress)
            return _replace_folder(scratch, home / entry.name)


def _unpack(source: Path, target: Path) -> Path:
    if source.is_dir() or not is_archive(source):
        return source
    target.mkdir()
    with open_archive(source) as archive:
        archive.unpack(target)
    return target


def _copy_files(entry: Entry, unpacked: Path, source: Path, target: Path, progress: Progress | None) -> None:
    pairs = _wanted_files(entry, unpacked)
    if not pairs:
        expected = "; ".join(f"{split}: {' or '.join(names)}" for split, names in entry.layout.items())
        note = f" Note: {entry.note}." if entry.note else ""
        raise MissingFile(f"{source} has none of the files of {entry.name}. Expected {expected}.{note}", path=source)
    for path, _ in pairs:
        known = entry.sha256.get(path.name)
        if known and path.is_file() and (actual := sha256_of(path)) != known:
            remedy = f"Get it from {entry.home}, or use yours by path: --data {source}."
            raise bad_data(path, f"not the published file: its sha256 is {actual}, expected {known}. {remedy}")
    files = [
        (file, target / place / file.relative_to(path) if path.is_dir() else target / place)
        for path, place in pairs
        for file in (sorted(f for f in path.rglob("*") if f.is_file()) if path.is_dir() else [path])
    ]
    done, total = 0, sum(file.stat().st_size for file, _ in files)
    for file, goal in files:
        goal.parent.mkdir(parents=True, exist_ok=True)
        with open_file(file) as old, open(goal, "wb") as new:
            while block := old.read(BLOCK):
                new.write(block)
                done += len(block)
                if progress:
                    progress(done, total)


def _wanted_files(entry: Entry, place: Path) -> list[tuple[Path, Path]]:
    if place.is_dir():
        pairs = list(dict.fromkeys(pair for pairs in entry.arrange(place).values() for pair in pairs))
        return [*pairs, *((path, Path(path.name)) for path in entry.extra_files(place))] if pairs else []
    names = {name for alternatives in entry.layout.values() for group in alternatives for name in group.split(" + ")}
    return [(place, Path(place.name))] if any(fnmatch(place.name, Path(name).name) for name in names) else []


def _replace_folder(scratch: Path, goal: Path) -> Path:
    """Replace a folder atomically. The old one moves to the scratch folder, which is deleted afterwards."""
    if goal.exists():
        os.rename(goal, scratch / "old")
    os.rename(scratch / "new", goal)
    return goal


def download(entry: Entry, progress: Progress | None = None) -> Path:
    """Download a data set from its owner, verify and install it. An interrupted download resumes."""
    if not entry.get:
        message = f"{entry.name} has no direct download. Get it from {entry.home}, then: nextword data {entry.name}"
        raise Unsupported(f"{message} --install PATH.", ability="download")
    folder = install_home() / DOWNLOADS / entry.name
    with explain_write_errors(folder, ", or set NEXTWORD_HOME to another folder."):
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder, entry):
            files = [_fetch(item, folder, entry, progress) for item in entry.get]
            try:
                place = install(entry, files[0] if len(files) == 1 else folder, progress)
            except (DataError, MissingFile):  # not what was expected: the next download starts from the beginning
                shutil.rmtree(folder)
                raise
            shutil.rmtree(folder)
    return place


@contextmanager
def _lock(folder: Path, entry: Entry) -> Iterator[None]:
    """Let one process at a time download a data set; the lock goes with the process."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            problem = f"Another process is downloading {entry.name}. Wait until it ends."
            raise CannotWrite(problem, path=folder) from None
        yield
    finally:
        os.close(handle)


def _fetch(item: Download, folder: Path, entry: Entry, progress: Progress | None) -> Path:
    """Download a file and verify it."""
    if not (item.sha256 or is_secure(item.url)):
        problem = "is neither https nor has a known checksum, so anyone on the way could change it"
        raise Unsupported(f"{item.url} {problem}. Get {entry.name} from {entry.home}.", ability="download")
    file = folder / item.url.rpartition("/")[2]
    if not file.exists():
        _download_file(item, file, progress)
    if item.sha256 and (actual := sha256_of(file)) != item.sha256:
        file.unlink()
        problem = f"changed: its sha256 is {actual}, expected {item.sha256}. The download was deleted."
        raise bad_data(item.url, f"{problem} See {entry.home}.")
    return file


def is_secure(url: str) -> bool:
    """Whether nobody on the way can change what is downloaded: https, or a server on this machine."""
    parts = urllib.parse.urlsplit(url)
    return parts.scheme == "https" or parts.hostname == "127.0.0.1"


class _SecureRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects, but not from https to http: the checksum of these files is not known."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        if not is_secure(newurl):
            raise urllib.error.URLError(f"it redirects to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _download_file(item: Download, file: Path, progress: Progress | None) -> None:
    url = item.url
    opener = urllib.request.build_opener(*([] if item.sha256 else [_SecureRedirects]))
    part = file.with_name(file.name + ".part")  # stays if the connection ends; its time is that of the server's file
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "nextword", "Range": f"bytes={have}-"}
    if have and not item.sha256:  # nothing would tell that the rest is of another version
        headers["If-Range"] = formatdate(part.stat().st_mtime, usegmt=True)
    request = urllib.request.Request(url, headers=headers)
    try:
        with opener.open(request, timeout=60) as answer:
            if answer.status != 206:
                have = 0  # the server does not resume and sends everything
            length = answer.headers.get("Content-Length")
            total = have + int(length) if length else None
            try:
                with open(part, "ab" if have else "wb") as out:
                    while block := answer.read(BLOCK):
                        out.write(block)
                        have += len(block)
                        if progress:
                            progress(have, total)
            finally:
                if changed := parsedate_tz(answer.headers.get("Last-Modified", "")):
                    os.utime(part, (mktime_tz(changed),) * 2)
        if total is not None and have < total:
            raise OSError(f"the connection ended after {have} of {total} bytes")
    except urllib.error.HTTPError as error:
        message = f"Cannot download {url}: {error.code} {error.reason}. It may have moved; get it by hand."
        raise MissingFile(message, path=url) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        have = part.stat().st_size if part.exists() else 0
        remedy = f"Check the network and run the same command again; it resumes after {have:,} bytes."
        raise MissingFile(f"Cannot download {url}: {reason}. {remedy}", path=url) from None
    os.replace(part, file)
