"""The run folder: everything a trained model is, in files that anyone can read. Nothing in it is a pickle.

    recipe.toml  tokenizer.json  model.safetensors (or the model's own files)  log.jsonl  card.md  manifest.json
    state/       what exact resume needs: state/current names the folder that holds the last good state

Every write is atomic: to a temporary name, flushed, then renamed. A kill at any moment leaves the last good state. The
manifest holds a checksum of every file that loading reads; while a file is replaced it names both the old sum and the
new one, so that a kill between the two renames is not mistaken for tampering.
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
from nextword.core.errors import NextwordError
from nextword.core.io import finite
from nextword.core.protocols import Tokenizer
from nextword.recipe import Recipe, dump, load_recipe

FORMAT = 1
MAPPED = (".ngram",)  # opened by mapping, in milliseconds: reading them whole for a checksum would undo that
WHOLE = 16 << 20  # bytes up to which they are read nevertheless
SAMPLES = 256


class RunFolder:
    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    # -------------------------------------------------------------------------------------------- making and opening

    @classmethod
    def create(cls, path: str | Path, recipe: Recipe, tokenizer: Tokenizer, **facts: Any) -> RunFolder:
        """A run that can be resumed from its first moment on: made under a hidden name, it appears whole."""
        cls.refuse_if_taken(path)
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        empty = path.is_dir()  # it may be where someone stands, or another disk: then it is filled, not replaced
        run = cls(tempfile.mkdtemp(dir=path if empty else path.parent, prefix=".new-"))
        try:
            with full_disk_is_no_loss(path):
                run.path.chmod(0o755)
                run.write("recipe.toml", dump(recipe))
                tokenizer.save(run.path / "tokenizer.json")
                known = {"format": FORMAT, "nextword": __version__, "slug": recipe.slug, "recipe": recipe.name}
                known["commit"] = commit()
                run._write_manifest({**known, **facts})
                run.seal("recipe.toml", "tokenizer.json")
                if empty:
                    for name in ("recipe.toml", "tokenizer.json", "manifest.json"):
                        os.rename(run.path / name, path / name)
                else:
                    os.rename(run.path, path)
        finally:
            shutil.rmtree(run.path, ignore_errors=True)
        return cls(path)

    @staticmethod
    def refuse_if_taken(path: str | Path) -> None:
        """A folder that holds anything already is refused, for nothing may be lost."""
        path = Path(path)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            what = "another run" if (path / "manifest.json").is_file() else "other files"
            raise NextwordError(
                f"{path} already holds {what}. Continue it with --resume, choose another --out, or remove it first."
            )

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        run = cls(path)
        if not run.path.is_dir():
            raise NextwordError(f"There is no run folder {run.path}. `nextword runs` lists those that are here.")
        manifest = run.manifest
        if manifest["format"] > FORMAT:
            raise NextwordError(
                f"{run.path} was written by nextword {manifest.get('nextword')} in format {manifest.get('format')}; "
                f"this is {__version__}, which reads up to format {FORMAT}. Upgrade nextword to open it."
            )
        return run

    @property
    def manifest(self) -> dict[str, Any]:
        path = self.path / "manifest.json"
        if not path.is_file():
            inside = sorted(one.parent.name for one in self.path.glob("*/manifest.json"))
            some = f" It holds runs, take one of them: {', '.join(inside[:5])}." if inside else ""
            raise NextwordError(
                f"{self.path} is no run folder: it has no manifest.json.{some} `nextword runs` lists those that are "
                "here."
            )
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            found = None
        if not isinstance(found, dict) or not isinstance(found.get("format"), int):
            raise NextwordError(f"{path} is damaged: it is no manifest in JSON. Restore it, or train again.")
        return found

    @property
    def recipe(self) -> Recipe:
        return load_recipe(str(self.path / "recipe.toml"))

    # -------------------------------------------------------------------------------------------- writing

    def write(self, name: str, text: str) -> None:
        with full_disk_is_no_loss(self.path), _temporary(self.path) as temporary:
            temporary.write_text(text, encoding="utf-8")
            replace_file(temporary, self.path / name)

    def seal(self, *names: str, **facts: Any) -> None:
        """Enter files into the manifest with their checksums, and facts beside them."""
        manifest = self.manifest
        files = dict(manifest.get("files", {}))
        files.update({name: [checksum(self.path / name)] for name in names})
        self._write_manifest({**manifest, **facts, "files": files})

    def save_model(self, save: Callable[[Path], list[str]], **facts: Any) -> None:
        """Have a model write its files, then put them in place of the old ones."""
        with full_disk_is_no_loss(self.path), tempfile.TemporaryDirectory(dir=self.path, prefix=".model-") as temporary:
            names = save(Path(temporary))
            manifest = self.manifest
            files = dict(manifest.get("files", {}))
            sums = {name: checksum(Path(temporary) / name) for name in names}
            self._write_manifest({**manifest, "files": files | {n: [*files.get(n, []), s] for n, s in sums.items()}})
            for name in names:
                os.chmod(Path(temporary) / name, 0o644)  # safetensors writes for the owner alone
                replace_file(Path(temporary) / name, self.path / name)
            self._write_manifest({**manifest, **facts, "files": files | {n: [s] for n, s in sums.items()}})

    def verify(self, *names: str) -> None:
        """Every file that loading reads, or these of them, is there and is the one that training wrote."""
        for name, sums in self.manifest.get("files", {}).items():
            if names and name not in names:
                continue
            path = self.path / name
            if not path.is_file():
                raise NextwordError(f"{self.path} lacks {name}, which its manifest names. Restore it, or train again.")
            if checksum(path) not in sums:
                raise NextwordError(
                    f"{path} is not the file that training wrote: its checksum differs, so it was cut or changed. "
                    "Restore it from where it came, or train again."
                )

    def _write_manifest(self, manifest: Mapping[str, Any]) -> None:
        self.write("manifest.json", json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")

    # -------------------------------------------------------------------------------------------- exact resume

    def save_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """The whole state of training, next to the last one; only then does `current` point at it."""
        folder = self.path / "state"
        folder.mkdir(exist_ok=True)
        name = f"{values['phase']}-{values['step']}"
        temporary = Path(tempfile.mkdtemp(dir=folder, prefix=".new-"))
        try:
            with full_disk_is_no_loss(self.path):
                save_file({key: t.contiguous() for key, t in tensors.items()}, str(temporary / "state.safetensors"))
                (temporary / "state.json").write_text(json.dumps(values))
                _flush(temporary / "state.safetensors")
                _flush(temporary / "state.json")
                if (folder / name).exists():  # the same step saved twice: both are the same state
                    shutil.rmtree(folder / name)
                os.rename(temporary, folder / name)
                with _temporary(folder) as pointer:
                    pointer.write_text(name)
                    replace_file(pointer, folder / "current")
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        for old in folder.iterdir():
            if old.is_dir() and old.name != name:
                shutil.rmtree(old, ignore_errors=True)

    @property
    def begun(self) -> bool:
        """Whether a state was saved."""
        return (self.path / "state" / "current").is_file()

    def load_state(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The last good state, or None before the first."""
        pointer = self.path / "state" / "current"
        if not pointer.is_file():
            return None
        folder = self.path / "state" / pointer.read_text()
        try:
            # copied: in the file they lie anywhere, and some processors round sums by where their numbers lie
            tensors = {name: t.clone() for name, t in load_file(str(folder / "state.safetensors")).items()}
            return tensors, json.loads((folder / "state.json").read_text())
        except Exception as problem:
            raise NextwordError(f"{folder} cannot be read ({problem}). Train again from the recipe.") from None

    # -------------------------------------------------------------------------------------------- log

    def log(self, event: Mapping[str, Any]) -> None:
        with full_disk_is_no_loss(self.path), (self.path / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(_line(event))

    def read_log(self) -> list[dict[str, Any]]:
        path = self.path / "log.jsonl"
        events = []
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            with contextlib.suppress(ValueError):  # a kill may cut the last line short
                events.append(json.loads(line))
        return events

    def rewind_log(self, keep: Callable[[Mapping[str, Any]], bool]) -> None:
        """Drop what happened after the state that is resumed from: it will happen again."""
        kept = [event for event in self.read_log() if keep(event)]
        self.write("log.jsonl", "".join(map(_line, kept)))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """One training process at a time; the lock goes with the process, however that ends."""
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise NextwordError(f"{self.path} is being trained by another process. Wait for it to end.") from None
            self._sweep()
            yield

    def _sweep(self) -> None:
        """Remove what writes that were killed left behind."""
        for left in (*self.path.glob(".model-*"), *self.path.glob(".new-*"), *self.path.glob("state/.new-*")):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def _line(event: Mapping[str, Any]) -> str:
    return json.dumps(finite(event), ensure_ascii=False, allow_nan=False) + "\n"


def commit() -> str:
    """Which code this is: the commit, with a + where files differ from it; "none" outside a checkout."""
    here = Path(__file__).parent
    try:
        asked = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
        found = subprocess.run(asked, cwd=here, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return "none"
    return found.stdout.strip() or "none"


def checksum(path: Path) -> str:
    """Of all bytes; of a large file that is mapped, not read, of its size and of samples all along it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if path.suffix not in MAPPED or size < WHOLE:
            return hashlib.file_digest(file, "sha256").hexdigest()
        sum = hashlib.sha256(str(size).encode())
        for i in range(SAMPLES + 1):
            file.seek((size - 4096) * i // SAMPLES)
            sum.update(file.read(4096))
        return "sampled " + sum.hexdigest()


def replace_file(source: Path, target: Path) -> None:
    _flush(source)
    os.replace(source, target)


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    handle, name = tempfile.mkstemp(dir=folder, prefix=".new-")
    os.close(handle)
    os.chmod(name, 0o644)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


@contextlib.contextmanager
def full_disk_is_no_loss(folder: Path) -> Iterator[None]:
    """What a full disk says, in our words: nothing that was there is touched until the new is whole."""
    try:
        yield
    except Exception as problem:  # safetensors wraps the OSError in its own error
        full = isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT)
        if full or "No space left" in str(problem):
            raise NextwordError(
                f"The disk is full: could not save to {folder}. The last good state is kept; free some space and go on "
                "with --resume."
            ) from None
        raise
