"""Scratch folders: hidden folders for unfinished work, which do not outlive their process for long.

    with scratch_folder(parent) as folder:
        …                                     # write files
        os.rename(folder, parent / "done")    # or leave them: the folder is removed at the end

A killed process cannot remove its folder. So every scratch folder is locked while its process lives (the lock goes with
the process, however it ends), and whoever makes the next one in the same parent removes those that nobody locks. Their
prefix is one that no folder of a user has.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = ".nextword-"


class Scratch:
    """An empty folder in `parent`, by default the one for temporary files; removed with this object, or by `close`.

    Those that killed processes left in `parent` are removed first.
    """

    def __init__(self, parent: Path | None = None) -> None:
        parent = parent or Path(tempfile.gettempdir())
        remove_leftovers(parent)
        self.path, handle = _make_locked(parent)
        self._remove = weakref.finalize(self, _remove, self.path, handle, os.getpid())

    def close(self) -> None:
        self._remove()


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Make an empty folder in `parent`, and remove it at the end, unless it has been renamed."""
    scratch = Scratch(parent)
    try:
        yield scratch.path
    finally:
        scratch.close()


def remove_leftovers(parent: Path) -> None:
    """Remove the scratch folders of killed processes: those that no process has locked."""
    for left in parent.glob(f"{PREFIX}*"):
        try:
            handle = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # removed meanwhile, or of another user
            continue
        try:
            with suppress(OSError):  # in use, or this file system cannot tell
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
        finally:
            os.close(handle)


def _make_locked(parent: Path) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(dir=parent, prefix=PREFIX))
        try:
            handle = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:  # another process took it for a leftover before it was locked
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:  # a file system without locks: nothing is removed there either
                return folder, handle
        else:
            if folder.exists():
                return folder, handle
        os.close(handle)  # it is being removed


def _remove(folder: Path, handle: int, pid: int) -> None:
    if os.getpid() == pid:  # not in a forked child
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)
