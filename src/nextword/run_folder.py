"""The run folder: everything that makes up a trained model, in files that anyone can read. No pickles.

    recipe.toml       the recipe with all settings            log.jsonl        all events of training and evaluation
    tokenizer.json                                            card.md          the model card
    model.safetensors (or the model's own format)             manifest.json    checksums, versions, is it finished?
    state/            for exact resume: state/current names the subfolder with the last good state

Every write is atomic: to a temporary name, flushed to disk, then renamed. A kill at any moment leaves the last good
state. The manifest seals the folder: it has a checksum of every file that loading reads (`seal`, `verify`). While a
file is being replaced, the manifest has both the old and the new checksum, so that a kill between the two renames is
not mistaken for tampering.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from nextword import __version__
from nextword.core.errors import MissingFile, NextwordError, RunError
from nextword.core.io import check_json, forget, parse_json, read_json, remembered, replace_nonfinite
from nextword.core.named_models import STARTERS, is_model_name, starter_folder
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
}
MAPPED_SUFFIXES = (".ngram",)  # memory-mapped in milliseconds: reading all of it for a checksum takes seconds


class RunFolder:
    """A run folder. `name` is what people type: the path, or the name of an installed model (core/named_models.py)."""

    def __init__(self, path: str | Path, name: str = "") -> None:
        self.path, self.name = Path(path), name or str(path)

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
        path.parent.mkdir(parents=True, exist_ok=True)
        exists = path.is_dir()  # perhaps a mount point or a shell's working directory: fill it, do not replace it
        run = cls(tempfile.mkdtemp(dir=path if exists else path.parent, prefix=".new-"))
        try:
            with translate_disk_full(path):
                run.path.chmod(0o755)
                run.write("recipe.toml", recipe_toml(recipe))
                tokenizer.save(run.path / "tokenizer.json")
                origin = {"slug": recipe.slug, "recipe": recipe.name, "commit": git_commit(), **facts}
                run._write_manifest({"format": FORMAT, "nextword": __version__, **origin})
                run.seal(*INITIAL_FILES)
                if exists:
                    for name in (*INITIAL_FILES, "manifest.json"):
                        os.rename(run.path / name, path / name)
                else:
                    os.rename(run.path, path)
        finally:
            shutil.rmtree(run.path, ignore_errors=True)
        return cls(path)

    @staticmethod
    def refuse_if_taken(path: str | Path) -> None:
        """Raise an error if the folder is not empty: nothing is ever overwritten."""
        path = Path(path)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            content = "another run" if (path / "manifest.json").is_file() else "other files"
            raise RunError(
                f"{path} already contains {content}. Continue it with --resume, choose another --out, or remove it.",
                path=path,
            )

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        run = cls(_installed_folder(str(path)), str(path)) if is_model_name(path) else cls(path)
        if not run.path.is_dir():
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
        try:
            content = read_json(path, MANIFEST, remedy=REMEDY)
            manifest = {key: value for key, value in content.items() if value is not None}
            for name, sums in manifest.get("files", {}).items():
                check_json({name: sums}, {name: list}, path, "in 'files', ", REMEDY)
        except NextwordError as problem:
            raise RunError(str(problem), path=path) from None
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
        with translate_disk_full(self.path), _temporary_file(self.path) as temporary:
            temporary.write_text(text, encoding="utf-8")
            replace_file(temporary, self.path / name)

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
        with translate_disk_full(self.path), tempfile.TemporaryDirectory(dir=self.path, prefix=".model-") as temporary:
            names = save(Path(temporary))
            manifest = self.manifest
            files = dict(manifest.get("files", {}))
            new = {name: checksum(Path(temporary) / name) for name in names}
            either = {name: [*files.get(name, []), sum] for name, sum in new.items()}
            self._write_manifest({**manifest, "files": files | either})
            for name in names:
                os.chmod(Path(temporary) / name, 0o644)  # safetensors gives only the owner access
                replace_file(Path(temporary) / name, self.path / name)
            self._write_manifest({**manifest, **facts, "files": files | {name: [sum] for name, sum in new.items()}})

    def _write_manifest(self, manifest: Mapping[str, Any]) -> None:
        self.write("manifest.json", json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")

    # -------------------------------------------------------------------------------------------- exact resume

    def save_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Save the state of training next to the previous one, then let state/current point to it."""
        folder = self.path / "state"
        folder.mkdir(exist_ok=True)
        name = f"{values['phase']}-{values['step']}"
        temporary = Path(tempfile.mkdtemp(dir=folder, prefix=".new-"))
        try:
            with translate_disk_full(self.path):
                save_file({key: t.contiguous() for key, t in tensors.items()}, str(temporary / "state.safetensors"))
                (temporary / "state.json").write_text(json.dumps(values))
                _flush(temporary / "state.safetensors")
                _flush(temporary / "state.json")
                if (folder / name).exists():  # the same step saved twice: both are the same state
                    shutil.rmtree(folder / name)
                os.rename(temporary, folder / name)
                with _temporary_file(folder) as pointer:
                    pointer.write_text(name)
                    replace_file(pointer, folder / "current")
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        for old in folder.iterdir():
            if old.is_dir() and old.name != name:
                shutil.rmtree(old, ignore_errors=True)

    @property
    def has_state(self) -> bool:
        """Whether a state of training was saved."""
        return (self.path / "state" / "current").is_file()

    def load_state(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The last good state: tensors and values. None if nothing was saved yet."""
        if not self.has_state:
            return None
        folder = self.path / "state" / (self.path / "state" / "current").read_text()
        try:
            # Cloned because tensors in the file are not aligned, and some CPUs sum differently depending on alignment.
            tensors = {name: t.clone() for name, t in load_file(str(folder / "state.safetensors")).items()}
            return tensors, read_json(folder / "state.json")
        except Exception as problem:
            raise RunError(f"{folder} cannot be read ({problem}). Train again.", path=folder) from None

    # -------------------------------------------------------------------------------------------- log

    def log(self, event: Mapping[str, Any]) -> None:
        """Append a line to log.jsonl, unless it is the log of an installed model."""
        if self.is_installed:
            return
        with translate_disk_full(self.path), (self.path / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(_json_line(event))

    def read_log(self) -> list[dict[str, Any]]:
        path = self.path / "log.jsonl"
        events = []
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            with contextlib.suppress(NextwordError):  # a kill may truncate the last line
                events.append(parse_json(line, path))
        return events

    def rewind_log(self, is_kept: Callable[[Mapping[str, Any]], bool]) -> None:
        """Remove the events after the state that training resumes from: they will happen again."""
        self.write("log.jsonl", "".join(_json_line(event) for event in self.read_log() if is_kept(event)))

    # -------------------------------------------------------------------------------------------- lock

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Allow one training process at a time. The lock disappears with the process, however it ends."""
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                message = f"Another process is training {self.path}. Wait until it ends."
                raise RunError(message, path=self.path) from None
            self._remove_leftovers()
            yield

    def _remove_leftovers(self) -> None:
        """Remove the temporary files of killed processes."""
        for left in (*self.path.glob(".model-*"), *self.path.glob(".new-*"), *self.path.glob("state/.new-*")):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------------------ files


def is_run(path: str | Path) -> bool:
    """Whether this is the path of a run folder, or the name of an installed model."""
    return is_model_name(path) or (Path(path) / "manifest.json").is_file()


def _installed_folder(name: str) -> Path:
    if name.startswith(STARTERS):
        return starter_folder(name)
    from nextword.conversion.minilm import minilm_folder

    return minilm_folder()


def checksum(path: Path) -> str:
    """SHA-256 of all bytes; of a large memory-mapped file, remembered until the file changes."""

    def compute() -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return remembered(path, "sha256", compute) if path.suffix in MAPPED_SUFFIXES else compute()


def replace_file(source: Path, target: Path) -> None:
    """Rename a file over another, after its content has reached the disk."""
    _flush(source)
    os.replace(source, target)


@contextlib.contextmanager
def translate_disk_full(folder: Path) -> Iterator[None]:
    """Turn "no space left on device" into a RunError."""
    try:
        yield
    except NextwordError:
        raise
    except Exception as problem:  # safetensors wraps the OSError in its own error
        is_full = isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT)
        if is_full or "No space left" in str(problem):
            message = f"The disk is full: could not write to {folder}. The last good state is unharmed."
            raise RunError(f"{message} Free some space and continue with --resume.", path=folder) from None
        raise


def git_commit() -> str:
    """The commit of this code, with a "+" if files differ from it; "none" outside a checkout."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        result = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return "none"
    return result.stdout.strip() or "none"


def _json_line(event: Mapping[str, Any]) -> str:
    return json.dumps(replace_nonfinite(event), ensure_ascii=False, allow_nan=False) + "\n"


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def _temporary_file(folder: Path) -> Iterator[Path]:
    handle, name = tempfile.mkstemp(dir=folder, prefix=".new-")
    os.close(handle)
    os.chmod(name, 0o644)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)
