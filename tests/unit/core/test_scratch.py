"""Scratch folders go with their process; those of killed processes are removed by the next one, and nothing else is."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from nextword.core.scratch import PREFIX, Scratch, remove_leftovers, scratch_folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fork_holder(parent: Path) -> int:
    """A child that makes a scratch folder and waits."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        with scratch_folder(parent) as folder:
            (folder / "half").write_text("half")
            os.write(writer, b"ready")
            time.sleep(60)
        os._exit(0)
    os.close(writer)
    assert os.read(reader, 5) == b"ready"
    os.close(reader)
    return pid


def test_scratch_folder_of_a_killed_process_is_removed_by_the_next(tmp_path: Path) -> None:
    pid = fork_holder(tmp_path)
    (left,) = names(tmp_path)
    with scratch_folder(tmp_path):
        assert left in names(tmp_path), "its process lives"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert names(tmp_path) == [left]
    with scratch_folder(tmp_path) as folder:
        assert names(tmp_path) == [folder.name]
    assert names(tmp_path) == []


def test_scratch_folder_that_was_renamed_stays(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as folder:
        (folder / "a").write_text("a")
        folder.rename(tmp_path / "done")
    assert names(tmp_path / "done") == ["a"]


def test_forked_child_leaves_the_folder_of_its_parent(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    pid = os.fork()
    if not pid:
        scratch.close()
        os._exit(0)
    os.waitpid(pid, 0)
    assert scratch.path.is_dir()
    scratch.close()
    assert names(tmp_path) == []


def test_nothing_of_the_user_is_removed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("mine")
    home = tmp_path / "home"
    for name in (".new-website", "nextword", ".nextword"):
        (home / name).mkdir(parents=True)
    (home / f"{PREFIX}link").symlink_to(outside)
    (home / f"{PREFIX}file").write_text("mine")
    os.mkfifo(home / f"{PREFIX}pipe")
    before = names(home)
    remove_leftovers(home)
    assert names(home) == before
    assert names(outside) == ["mine"]
