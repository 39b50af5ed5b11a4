"""The run folder: everything that makes up a trained model, in files that anyone can read. No pickles.

    recipe.toml       the recipe with all settings            log.jsonl        all events of training and evaluation
    tokenizer.json                                            card.md          the model card
    model.safetensors (or the model's own format)             manifest.json    checksums, versions, is it finished?
    state/            for exact resume: the last two states, each in a folder <phase>-<step> with its checksums

Every write is atomic: to a scratch folder (core/scratch.py), flushed to disk, then renamed. A kill at any moment leaves
the last good state. The manifest seals the folder: it has a checksum of every file that loading reads (`seal`,
`verify`). While a file is being replaced, the manifest has both the old and the new checksum, so that a kill between
the two renames is not mistaken for tampering. docs/run-folder.md describes all of it for users.

A run folder may come from a stranger. Names in its files are plain names of files inside it, links are not written
through, and what cannot be read is a RunError (`explain_read_errors`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from nextword import __version__
from nextword.core.errors import (
    DataError,
    MissingFile,
    NextwordError,
    RunError,
    bad_data,
    describe_os_error,
    explain_write_errors,
    is_out_of_memory,
)
from nextword.core.io import (
    MAX_JSON_BYTES,
    check_json,
    forget,
    open_file,
    parse_json,
    path_exists,
    read_json,
    remembered,
    to_json,
    user_path,
)
from nextword.core.named_models import STARTERS, is_model_name, starter_folder
from nextword.core.scratch import PREFIX, remove_leftovers, scratch_folder
from nextword.recipe import Recipe, load_recipe, recipe_toml
from nextword.tokenizers.base import Tokenizer

FORMAT = 1
INITIAL_FILES = ("recipe.toml", "tokenizer.json")  # the model's files come later
REMEDY = "Restore it, or train again."
MANIFEST = {  # the keys that reading relies on
    "format": int,
    "nextword": str | None,
    "slug": str | None,
    "recipe": str | None,
    "commit": str | None,
    "files": dict | None,
    "finished": bool | None,
    "parameters": int | None,
    "converted": dict | None,
    "result": dict | None,
    "data": dict | None,
    "texts": dict | None,
    "storage": str | None,
    "license": str | None,
    "measured": list | None,
    "rounding": list | None,
}
RESULT = {"metric": str, "dev": dict, "best": dict | None, "shots": dict | None}  # of a task
STATE = {"phase": int, "step": int}
LOG_LINE = {"event": str, "phase": str | None, "index": int | None, "step": int | None, "seconds": float | None}
STATE_NAME = re.compile(r"(\d{1,18})-(\d{1,18})(?:\.(\d{1,9}))?")  # phase, step, and a number if saved repeatedly
STATE_FILES = ("state.safetensors", "state.json")
STATE_CHECKSUMS = "checksums.json"
LOCK = ".lock"
MAX_DETAIL = 200  # characters of another error in a message
MAPPED_SUFFIXES = (".ngram",)  # memory-mapped in milliseconds: reading all of it for a checksum takes seconds


class RunFolder:
    """A run folder. `name` is what people type: the path, or the name of an installed model (core/named_models.py)."""

    def __init__(self, path: str | Path, name: str = "") -> None:
        self.path, self.name = Path(path), name or str(path)
        self._good_state: Path | None = None  # the state that was last saved or found undamaged here

    def __repr__(self) -> str:
        return f"RunFolder({self.name!r})"

    # -------------------------------------------------------------------------------------------- create and open

    @classmethod
    def create(cls, path: str | Path, recipe: Recipe, tokenizer: Tokenizer, **facts: object) -> RunFolder:
        """Create a run that can be resumed from its first moment on; `facts` go into the manifest.

        The files are written under a hidden name, and appear under `path` when all of them are there.
        """
        cls.refuse_if_taken(path)
        path = Path(path)
        with explain_write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            exists = path.is_dir()  # perhaps a mount point or a shell's working directory: fill it, do not replace it
            with scratch_folder(path if exists else path.parent) as scratch:
                scratch.chmod(0o755)
                (scratch / "recipe.toml").write_text(recipe_toml(recipe), encoding="utf-8")
                (scratch / "tokenizer.json").write_bytes(tokenizer.to_bytes())
                origin = {"slug": recipe.slug, "recipe": recipe.name, "commit": git_commit(), **facts}
                files = {name: [checksum(scratch / name)] for name in INITIAL_FILES}
                manifest = {"format": FORMAT, "nextword": __version__, **origin, "files": files}
                (scratch / "manifest.json").write_text(_manifest_text(manifest), encoding="utf-8")
                for file in scratch.iterdir():
                    flush(file)
                if exists:
                    with cls(path).lock():  # another process may be filling it, too
                        cls.refuse_if_taken(path)
                        for name in (*INITIAL_FILES, "manifest.json"):
                            os.rename(scratch / name, path / name)
                else:
                    cls._publish(scratch, path)
        return cls(path)

    @classmethod
    def _publish(cls, scratch: Path, path: Path) -> None:
        try:
            os.rename(scratch, path)
        except OSError as problem:
            if problem.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                cls.refuse_if_taken(path)  # another process has just created it
            raise

    @staticmethod
    def refuse_if_taken(path: str | Path) -> None:
        """Raise an error if the folder is not empty: nothing is ever overwritten. Scratch of a kill does not count."""
        path = Path(path)
        _require_utf8(path)
        user_path(path)  # raises if no folder can have this name
        if path.exists() and (not path.is_dir() or any(not _is_hidden_own(file) for file in path.iterdir())):
            content = "another run" if (path / "manifest.json").is_file() else "other files"
            raise RunError(
                f"{path} already contains {content}. Continue it with --resume, choose another --out, or remove it.",
                path=path,
            )

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        run = cls(_installed_folder(str(path)), str(path)) if is_model_name(path) else cls(path)
        _require_utf8(run.path)
        if not (path_exists(run.path) and run.path.is_dir()):
            if path_exists(run.path):
                problem = f"{run.path} is a file, not a run folder. A model of another program must be converted first"
                raise MissingFile(f"{problem}: nextword convert {run.path} RUN", path=run.path)
            raise MissingFile(f"There is no run folder {run.path}. `nextword runs` lists all runs here.", path=run.path)
        manifest = run.manifest
        if manifest["format"] > FORMAT:
            raise RunError(
                f"{run.path} was written by nextword {manifest.get('nextword')} in format {manifest.get('format')}, "
                f"but nextword {__version__} reads formats up to {FORMAT}. Upgrade nextword.",
                path=run.path,
            )
        return run

    @property
    def manifest(self) -> dict[str, Any]:
        path = self.path / "manifest.json"
        if not path.is_file():
            inside = sorted(other.parent.name for other in self.path.glob("*/manifest.json"))
            hint = f" It contains runs; use one of them: {', '.join(inside[:5])}." if inside else ""
            raise RunError(
                f"{self.path} is not a run folder: it has no manifest.json.{hint} `nextword runs` lists all runs here.",
                path=self.path,
            )
        with explain_read_errors(path):
            content = read_json(path, MANIFEST, remedy=REMEDY)
            manifest = {key: value for key, value in content.items() if value is not None}
            for name, sums in manifest.get("files", {}).items():
                check_json({name: sums}, {name: list}, path, "in 'files', ", REMEDY)
                check_plain_name(name, path)
            if result := manifest.get("result"):
                check_json(result, RESULT, path, "in 'result', ", REMEDY)
                scores = {result["metric"]: float | None, **dict.fromkeys(result["dev"], float | None)}
                check_json(result["dev"], scores, path, "in 'dev', ", REMEDY)
        return manifest

    @property
    def is_installed(self) -> bool:
        """Whether it is a model of an installed package, into which nothing is written."""
        return self.name != str(self.path)

    @property
    def recipe(self) -> Recipe:
        return load_recipe(str(self.path / "recipe.toml"))

    @property
    def is_finished(self) -> bool:
        """Whether training has ended, rather than been interrupted."""
        return bool(self.manifest.get("finished"))

    @property
    def has_model(self) -> bool:
        """Whether weights have been saved."""
        return bool(self.manifest.get("files", {}).keys() - set(INITIAL_FILES))

    # -------------------------------------------------------------------------------------------- write and seal

    def write(self, name: str, text: str) -> None:
        """Write a text file atomically."""
        with self._explain_write_errors(), scratch_folder(self.path) as scratch:
            file = scratch / name
            file.write_text(text, encoding="utf-8")
            file.chmod(0o644)
            replace_file(file, self.path / name)

    def seal(self, *names: str, **facts: object) -> None:
        """Write the checksums of these files, and other facts, into the manifest."""
        manifest = self.manifest
        files = dict(manifest.get("files", {}))
        files.update({name: [checksum(self.path / name)] for name in names})
        self._write_manifest({**manifest, **facts, "files": files})

    def verify(self, *names: str, again: bool = False) -> None:
        """Raise an error unless every file of the manifest, or each of these, is there and unchanged.

        `again`: read every file to its end, even if its checksum is remembered.
        """
        while True:
            manifest = self.manifest
            try:
                for name, checksums in manifest.get("files", {}).items():
                    if not names or name in names:
                        self._verify_file(self.path / name, checksums, again)
                return
            except RunError:
                if self.manifest == manifest:  # otherwise a process that trains it has just saved other weights
                    raise

    @staticmethod
    def _verify_file(path: Path, checksums: list[str], again: bool) -> None:
        if not path.is_file():
            raise RunError(f"{path} is missing. Restore it, or train again.", path=path)
        if again:
            forget(path)
        if checksum(path) not in checksums:
            raise RunError(
                f"{path} was changed or truncated after training: its checksum differs. Restore it or train again.",
                path=path,
            )

    def save_model(self, save: Callable[[Path], list[str]], **facts: object) -> None:
        """Let a model write its files into a temporary folder, then replace the old ones and seal the new ones.

        `save` gets that folder and returns the names of the files.
        """
        with self._explain_write_errors(), scratch_folder(self.path) as scratch:
            names = save(scratch)
            manifest = self.manifest
            files = dict(manifest.get("files", {}))
            new = {name: checksum(scratch / name) for name in names}
            if either := {name: [*files[name], sum] for name, sum in new.items() if name in files}:
                self._write_manifest({**manifest, "files": files | either})  # both are valid while files are replaced
            for name in names:
                (scratch / name).chmod(0o644)  # safetensors gives only the owner access
                replace_file(scratch / name, self.path / name)
            self._write_manifest({**manifest, **facts, "files": files | {name: [sum] for name, sum in new.items()}})

    def _write_manifest(self, manifest: Mapping[str, Any]) -> None:
        self.write("manifest.json", _manifest_text(manifest))

    def _explain_write_errors(self) -> contextlib.AbstractContextManager[None]:
        return explain_write_errors(self.path, ", then continue with --resume: the last good state is unharmed.")

    # -------------------------------------------------------------------------------------------- exact resume

    def states(self) -> list[Path]:
        """The folders of the saved states, newest first: at most two."""
        found = [path for path in self._state_folder().glob("*-*") if STATE_NAME.fullmatch(path.name)]
        found = [path for path in found if path.is_dir() and not path.is_symlink()]
        return sorted(found, key=lambda path: (state_position(path), _repetition(path)), reverse=True)

    def _state_folder(self) -> Path:
        folder = self.path / "state"
        if folder.is_symlink():  # states are removed there
            raise RunError(f"{folder} is a symbolic link, which may lead to other files. Remove it.", path=folder)
        return folder

    def save_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Save the state of training. The state before is removed only when another one follows."""
        with self._explain_write_errors():
            folder = self._state_folder()
            folder.mkdir(exist_ok=True)
            states = self.states()
            before = self._good_state if self._good_state in states else next(iter(states), None)
            for old in states:
                if old != before:
                    shutil.rmtree(old)
            with scratch_folder(folder) as scratch:
                save_file({key: t.contiguous() for key, t in tensors.items()}, str(scratch / "state.safetensors"))
                (scratch / "state.json").write_text(json.dumps(values, allow_nan=False), encoding="utf-8")
                checksums = {name: checksum(scratch / name) for name in STATE_FILES}
                (scratch / STATE_CHECKSUMS).write_text(json.dumps(checksums) + "\n", encoding="utf-8")
                scratch.chmod(0o755)
                for name in (*STATE_FILES, STATE_CHECKSUMS):
                    (scratch / name).chmod(0o644)
                    flush(scratch / name)
                place = folder / f"{values['phase']}-{values['step']}"
                if before is not None and state_position(before) == state_position(place):  # the same step again
                    place = place.with_name(f"{place.name}.{_repetition(before) + 1}")
                os.rename(scratch, place)
            flush(folder)
            self._good_state = place

    @property
    def has_state(self) -> bool:
        """Whether a state of training was saved."""
        return bool(self.states())

    def find_state(self) -> tuple[Path | None, list[str]]:
        """The newest undamaged state, None if none was saved; and a note about each damaged one that is passed over.

        Raises RunError if all are damaged.
        """
        problems = []
        for folder in self.states():
            try:
                with explain_read_errors(folder):
                    _verify_state(folder)
            except RunError as problem:
                problems.append(problem)
            else:
                self._good_state = folder
                return folder, [f"{problem} Training resumes from the state before it." for problem in problems]
        if problems:
            message = f"No saved state of {self.path} can be read: {' '.join(map(str, problems))} Train again."
            raise RunError(message, path=problems[0].path)
        return None, []

    def load_state(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest undamaged state: tensors and values. None if nothing was saved yet."""
        folder, _ = self.find_state()
        if folder is None:
            return None
        with explain_read_errors(folder, "Train again."):
            values = read_json(folder / "state.json", STATE)
            if (values["phase"], values["step"]) != state_position(folder):
                raise bad_data(folder, "it has the state of another step. Train again.")
            # Cloned because tensors in the file are not aligned, and some CPUs sum differently depending on alignment.
            return {name: t.clone() for name, t in load_file(str(folder / "state.safetensors")).items()}, values

    # -------------------------------------------------------------------------------------------- log

    def log(self, event: Mapping[str, Any]) -> None:
        """Append a line to log.jsonl, unless it is the log of an installed model."""
        if self.is_installed:
            return
        with self._explain_write_errors(), _open_without_links(self.path / "log.jsonl") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # several processes may evaluate the run
            end = _end_of_lines(file)
            try:
                line = memoryview(_json_line(event).encode())
                while line:  # a limit on the size of files cuts the line before it becomes an error
                    line = line[file.write(line) :]
            except OSError:
                os.ftruncate(file.fileno(), end)
                raise

    def read_log(self) -> list[dict[str, Any]]:
        """All events. A line that a kill cut short is left out; RunError for other damage."""
        path = self.path / "log.jsonl"
        if not path.is_file():
            return []
        events = []
        with explain_read_errors(path), path.open("rb") as file:
            number = 0
            while line := file.readline(MAX_JSON_BYTES):
                number += 1
                if line.endswith(b"\n"):
                    events.append(_parse_event(line, path, number))
                else:
                    with contextlib.suppress(DataError):
                        events.append(_parse_event(line, path, number))
        return events

    def rewind_log(self, is_kept: Callable[[Mapping[str, Any]], bool]) -> None:
        """Remove the events after the state that training resumes from: they will happen again."""
        self.write("log.jsonl", "".join(_json_line(event) for event in self.read_log() if is_kept(event)))

    # -------------------------------------------------------------------------------------------- lock

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Allow one training process at a time. The lock disappears with the process, however it ends."""
        with self._explain_write_errors():
            file = _open_without_links(self.path / LOCK)
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                message = f"Another process is training {self.path}. Wait until it ends."
                raise RunError(message, path=self.path) from None
            except OSError as problem:
                what, _ = describe_os_error(problem)
                message = f"Cannot lock {self.path}: {what}. Choose a file system with locks for --out."
                raise RunError(message, path=self.path) from problem
            remove_leftovers(self.path)
            remove_leftovers(self._state_folder())
            yield


# ------------------------------------------------------------------------------------------------ files


def is_run(path: str | Path) -> bool:
    """Whether this is the path of a run folder, or the name of an installed model."""
    return is_model_name(path) or (path_exists(path) and (Path(path) / "manifest.json").is_file())


def _installed_folder(name: str) -> Path:
    if name.startswith(STARTERS):
        return starter_folder(name)
    from nextword.conversion.minilm import minilm_folder

    return minilm_folder()


def checksum(path: Path) -> str:
    """SHA-256 of all bytes; of a large memory-mapped file, remembered until the file changes."""

    def compute() -> str:
        with open_file(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return remembered(path, "sha256", compute) if path.suffix in MAPPED_SUFFIXES else compute()


def replace_file(source: Path, target: Path) -> None:
    """Rename a file over another, after its content has reached the disk."""
    flush(source)
    os.replace(source, target)


# Errors that damaged or hostile files of a run cause while they are read, and what they mean
READ_PROBLEMS: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    ((SafetensorError, struct.error, EOFError), "its tensors are damaged"),
    ((UnicodeError,), "it is not UTF-8"),
    ((KeyError,), "something is missing"),
    ((RecursionError,), "it is nested too deeply"),
    ((ValueError, TypeError, IndexError, AttributeError, OverflowError, RuntimeError), "it does not fit"),
)


@contextlib.contextmanager
def explain_read_errors(path: Path, remedy: str = REMEDY) -> Iterator[None]:
    """Turn whatever goes wrong while a file or folder of a run is read into a RunError."""
    try:
        yield
    except (DataError, MissingFile) as problem:
        raise RunError(str(problem), path=problem.path) from problem
    except NextwordError:
        raise
    except OSError as problem:
        what, _ = describe_os_error(problem)
        place = problem.filename or path
        raise RunError(f"Cannot read {place}: {what}. {remedy}", path=str(place)) from problem
    except Exception as problem:
        if is_out_of_memory(problem):
            raise
        for kinds, what in READ_PROBLEMS:
            if isinstance(problem, kinds):
                detail = " ".join(str(problem).split())[:MAX_DETAIL]
                raise RunError(f"Cannot use {path}: {what} ({detail}). {remedy}", path=path) from problem
        raise


def check_plain_name(name: str, path: Path) -> None:
    """Raise DataError unless this is the name of a file in a folder: no path that leads elsewhere."""
    if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise bad_data(path, f"{name!r} is not the name of a file in the run folder. {REMEDY}")


def _require_utf8(path: Path) -> None:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise RunError(f"The name of the run folder {path} is not valid UTF-8. Rename it.", path=path) from None


def _manifest_text(manifest: Mapping[str, Any]) -> str:
    return to_json(manifest, indent=2) + "\n"


def _is_hidden_own(file: Path) -> bool:
    return file.name == LOCK or file.name.startswith(PREFIX)


def state_position(folder: Path) -> tuple[int, int]:
    """Phase and step of a saved state."""
    phase, step, _ = _state_name(folder)
    return phase, step


def _repetition(folder: Path) -> int:
    return _state_name(folder)[2]


def _state_name(folder: Path) -> tuple[int, int, int]:
    name = STATE_NAME.fullmatch(folder.name)
    assert name is not None
    return int(name[1]), int(name[2]), int(name[3] or 0)


def _verify_state(folder: Path) -> None:
    checksums = read_json(folder / STATE_CHECKSUMS, dict.fromkeys(STATE_FILES, str))
    for name in STATE_FILES:
        if checksum(folder / name) != checksums[name]:
            raise RunError(f"{folder / name} is damaged: its checksum differs.", path=folder / name)


def _parse_event(line: bytes, path: Path, number: int) -> dict[str, Any]:
    event = parse_json(line, path, number, REMEDY)
    if not isinstance(event, dict):
        raise bad_data(path, f"not a JSON object. {REMEDY}", number)
    check_json(event, LOG_LINE, path, f"line {number}: ", REMEDY)
    return event


def _open_without_links(path: Path) -> io.FileIO:
    """Open a file for appending, and create it if needed; a link is an error, since it may lead to another file."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK  # not waiting for the end of a pipe
    return io.FileIO(os.open(path, flags, 0o644), "r+")


def _end_of_lines(file: io.FileIO) -> int:
    """Where to append: the end of the file, after removing a last line that a kill cut short."""
    end = file.seek(0, os.SEEK_END)
    if end and os.pread(file.fileno(), 1, end - 1) != b"\n":
        file.seek(0)
        end = file.readall().rfind(b"\n") + 1
        file.truncate(end)
    return end


def git_commit() -> str:
    """The commit of this code, with a "+" if files differ from it; "none" outside a checkout."""
    # `git describe --dirty` would write the index of the checkout.
    command = ["git", "--no-optional-locks", "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        result = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return "none"
    commit = re.search(r"^# branch\.oid ([0-9a-f]{7})", result.stdout, re.MULTILINE)
    is_changed = re.search("^[^#]", result.stdout, re.MULTILINE)
    return f"{commit[1]}{'+' if is_changed else ''}" if commit else "none"


def _json_line(event: Mapping[str, Any]) -> str:
    return to_json(event) + "\n"


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
