"""The run folder: whole after a kill at any write, refused when damaged, used by one process at a time."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nextword import run_folder as checkpoint
from nextword.core.errors import CannotWrite, MissingFile, RunError
from nextword.core.scratch import PREFIX
from nextword.recipe import parse_recipe
from nextword.run_folder import FORMAT, RunFolder, checksum, is_run
from tests.support.small_job import BYTES

TABLES = {
    "paper": {"slug": "lstm"},
    "tokenizer": {"kind": "bytes"},
    "model": {"width": 8},
    "phase": [{"data": "python", "epochs": 1}],
}


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", parse_recipe(TABLES, "here"), BYTES, data={"train": "a text"})


def saver(text: str, *names: str) -> Any:
    """A model that writes these files."""

    def save(folder: Path) -> list[str]:
        for name in names:
            (folder / name).write_text(f"{text} {name}")
        return list(names)

    return save


def state(step: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    return {"weight": torch.full((3,), float(step))}, {"phase": 0, "step": step}


def leftovers(run: RunFolder) -> list[str]:
    return [p.name for p in run.path.rglob("*") if p.name.startswith(PREFIX)]


# ------------------------------------------------------------------------------------------------ making, opening


def test_a_new_folder_holds_recipe_tokenizer_and_manifest(run: RunFolder) -> None:
    assert {p.name for p in run.path.iterdir()} == {"recipe.toml", "tokenizer.json", "manifest.json"}
    manifest = RunFolder.open(run.path).manifest
    assert (manifest["format"], manifest["slug"], manifest["data"]) == (FORMAT, "lstm", {"train": "a text"})
    assert manifest["files"].keys() == {"recipe.toml", "tokenizer.json"}
    assert run.recipe.model == {"width": 8}
    run.verify()


def test_a_folder_that_holds_something_is_refused(run: RunFolder, tmp_path: Path) -> None:
    recipe = parse_recipe(TABLES, "here")
    with pytest.raises(RunError, match="another run"):
        RunFolder.create(run.path, recipe, BYTES)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    with pytest.raises(RunError, match="other files"):
        RunFolder.create(tmp_path / "notes", recipe, BYTES)
    (tmp_path / "empty").mkdir()
    RunFolder.create(tmp_path / "empty", recipe, BYTES).verify()


def test_a_kill_while_it_is_made_leaves_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*args: Any) -> None:
        raise Killed

    monkeypatch.setattr(checkpoint, "flush", killed)
    with pytest.raises(Killed):
        RunFolder.create(tmp_path / "run", parse_recipe(TABLES, "here"), BYTES)
    assert not (tmp_path / "run").exists()


def test_open_a_file_names_the_command_that_converts_it(tmp_path: Path) -> None:
    (tmp_path / "m.arpa").write_text("\\data\\\n")
    with pytest.raises(MissingFile, match="nextword convert") as error:
        RunFolder.open(tmp_path / "m.arpa")
    assert Path(str(error.value.path)) == tmp_path / "m.arpa"


def test_what_is_no_run_or_from_the_future_is_refused(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(MissingFile):
        RunFolder.open(tmp_path / "none")
    with pytest.raises(RunError, match=r"manifest\.json"):
        RunFolder.open(tmp_path)
    path = run.path / "manifest.json"
    good = path.read_text()
    path.write_text(good.replace(f'"format": {FORMAT}', f'"format": {FORMAT + 1}'))
    with pytest.raises(RunError, match="Upgrade"):
        RunFolder.open(run.path)
    path.write_text(good[:-20])
    with pytest.raises(RunError, match=r"manifest\.json"):
        RunFolder.open(run.path)


# ------------------------------------------------------------------------------------------------ model files


def test_verify_accepts_weights_saved_in_the_meantime(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may train the run that is read."""
    run.save_model(saver("first", "model.bin"))
    compute, saves = checkpoint.checksum, iter(("second", "third"))

    def save_before(path: Path) -> str:
        if path.parent == run.path and path.name == "model.bin" and (text := next(saves, "")):
            run.save_model(saver(text, "model.bin"))
        return compute(path)

    monkeypatch.setattr(checkpoint, "checksum", save_before)
    run.verify()
    assert next(saves, "") == ""
    (run.path / "model.bin").write_text("damaged")
    with pytest.raises(RunError, match="checksum"):
        run.verify()


def test_a_changed_or_missing_file_is_noticed(run: RunFolder) -> None:
    run.save_model(saver("first", "model.bin"), best=1.5)
    run.verify()
    assert run.manifest["best"] == 1.5
    path = run.path / "model.bin"
    path.write_text(path.read_text() + " ")
    with pytest.raises(RunError, match=r"model\.bin"):
        run.verify()
    path.unlink()
    with pytest.raises(RunError, match=r"model\.bin"):
        run.verify()


def test_any_changed_byte_of_a_large_mapped_file_is_noticed(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checksum is remembered, until the file changes or every file is to be read again."""
    monkeypatch.setattr("nextword.core.io.SETTLED", -10.0)
    size = 17 << 20
    run.save_model(saver("x" * size, "model.ngram"))
    run.verify()
    reads = 0
    digest = hashlib.file_digest

    def count(file: Any, name: str) -> Any:
        nonlocal reads
        reads += file.name.endswith(".ngram")
        return digest(file, name)

    monkeypatch.setattr("hashlib.file_digest", count)
    run.verify()
    assert reads == 0
    run.verify(again=True)
    assert reads == 1
    with (run.path / "model.ngram").open("r+b") as file:
        file.seek(size // 3)
        file.write(b"y")
    with pytest.raises(RunError, match=r"model\.ngram"):
        run.verify()


@pytest.mark.parametrize("kill", range(1, 5))
def test_a_kill_between_two_renames_is_not_tampering(
    kill: int, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Renames of the second save: the manifest with both sums, file a, file b, the manifest with the new sums."""
    run.save_model(saver("old", "a", "b"))
    plain, count = checkpoint.replace_file, 0

    def replace(source: Path, target: Path) -> None:
        nonlocal count
        count += 1
        if count == kill:
            raise Killed
        plain(source, target)

    monkeypatch.setattr(checkpoint, "replace_file", replace)
    with pytest.raises(Killed):
        run.save_model(saver("new", "a", "b"))
    assert count == kill
    run.verify()
    assert [(run.path / n).read_text() for n in "ab"] == [
        f"{'new' if kill > 2 else 'old'} a",
        f"{'new' if kill > 3 else 'old'} b",
    ]
    monkeypatch.undo()
    run.save_model(saver("third", "a", "b"))  # and training can go on
    run.verify()
    assert all(sums == [checksum(run.path / n)] for n, sums in run.manifest["files"].items())
    assert not leftovers(run)


def test_a_full_disk_loses_nothing(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    run.save_model(saver("old", "a"))
    run.save_state(*state(1))

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "replace_file", full)
    with pytest.raises(CannotWrite, match="disk is full"):
        run.save_model(saver("new", "a"))
    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(CannotWrite, match="disk is full"):
        run.save_state(*state(2))
    monkeypatch.undo()
    run.verify()
    assert (run.path / "a").read_text() == "old a"
    found = run.load_state()
    assert found is not None
    assert found[1]["step"] == 1
    assert not leftovers(run)


# ------------------------------------------------------------------------------------------------ state


def test_the_last_state_is_the_one_there_is(run: RunFolder) -> None:
    assert run.load_state() is None
    for step in (1, 2, 2, 3):
        run.save_state(*state(step))
        found = run.load_state()
        assert found is not None
        assert found[1] == {"phase": 0, "step": step}
        assert torch.equal(found[0]["weight"], torch.full((3,), float(step)))
        assert len(list((run.path / "state").iterdir())) <= 2
    assert [path.name for path in run.states()] == ["0-3", "0-2.1"]


def test_a_kill_before_the_state_has_its_name_keeps_the_state_before(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.save_state(*state(1))

    def killed(*args: Any) -> None:
        raise Killed

    monkeypatch.setattr(checkpoint.os, "rename", killed)
    with pytest.raises(Killed):
        run.save_state(*state(2))
    found = run.load_state()
    assert found is not None
    assert found[1]["step"] == 1
    monkeypatch.undo()
    run.save_state(*state(2))  # what the kill left in its place is no hindrance
    found = run.load_state()
    assert found is not None
    assert found[1]["step"] == 2


def flip_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def link_to_a_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def replace_by_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("damage", [flip_bit, cut_short, Path.unlink, link_to_a_device, replace_by_a_pipe])
@pytest.mark.parametrize("name", ["state.safetensors", "state.json", "checksums.json"])
def test_a_damaged_state_gives_way_to_the_one_before(name: str, damage: Callable[[Path], None], run: RunFolder) -> None:
    for step in (4, 5):
        run.save_state(*state(step))
    damage(run.path / "state" / "0-5" / name)
    reopened = RunFolder.open(run.path)
    folder, notes = reopened.find_state()
    assert folder == run.path / "state" / "0-4"
    assert len(notes) == 1
    assert "0-5" in notes[0]
    found = reopened.load_state()
    assert found is not None
    assert found[1]["step"] == 4
    reopened.save_state(*state(5))  # the good one is kept, the damaged one is not
    assert [path.name for path in run.states()] == ["0-5", "0-4"]
    damage(run.path / "state" / "0-5" / name)
    damage(run.path / "state" / "0-4" / name)
    with pytest.raises(RunError, match="0-5"):
        run.load_state()


def test_a_state_with_a_seal_but_without_sense_is_refused(run: RunFolder) -> None:
    run.save_state(*state(5))
    folder = run.path / "state" / "0-5"
    for values in ({"phase": 0, "step": 6}, {"phase": "0", "step": 5}, {"step": 5}):
        (folder / "state.json").write_text(json.dumps(values))
        sums = {name: checksum(folder / name) for name in ("state.safetensors", "state.json")}
        (folder / "checksums.json").write_text(json.dumps(sums))
        with pytest.raises(RunError):
            run.load_state()


def test_a_state_is_only_looked_for_inside_the_run(run: RunFolder, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    other = RunFolder.create(outside, parse_recipe(TABLES, "here"), BYTES)
    other.save_state(*state(5))
    (run.path / "state").mkdir()
    (run.path / "state" / "current").write_text("../../outside/state/0-5")  # of earlier versions
    (run.path / "state" / "0-7").symlink_to(outside / "state" / "0-5")
    (run.path / "state" / "0-8 ").mkdir()
    assert run.load_state() is None
    (run.path / "state" / "0-7").unlink()
    shutil.rmtree(run.path / "state")
    (run.path / "state").symlink_to(outside / "state")
    for use in (run.load_state, lambda: run.save_state(*state(6))):
        with pytest.raises(RunError):
            use()
    assert [path.name for path in other.states()] == ["0-5"]


# ------------------------------------------------------------------------------------------------ log, lock


def test_a_log_line_cut_short_is_left_out(run: RunFolder) -> None:
    for step in (1, 2, 3):
        run.log({"event": "step", "step": step})
    with (run.path / "log.jsonl").open("a") as file:
        file.write('{"event": "st')
    assert [line["step"] for line in run.read_log()] == [1, 2, 3]
    run.rewind_log(lambda line: line["step"] <= 2)
    assert [json.loads(line)["step"] for line in (run.path / "log.jsonl").read_text().splitlines()] == [1, 2]


def test_a_log_goes_on_after_a_line_cut_short(run: RunFolder) -> None:
    run.log({"event": "step", "step": 1})
    with (run.path / "log.jsonl").open("a") as file:
        file.write('{"event": "st')
    run.log({"event": "step", "step": 2})
    assert [line["step"] for line in run.read_log()] == [1, 2]


@pytest.mark.parametrize(
    "line",
    [b"\xff\xfe", b"[1]", b'{"event": 1}', b'{"step": 1}', b'{"event": "step", "step": "1"}', b"[" * 100_000, b"{"],
)
def test_a_damaged_log_line_is_an_error_with_its_number(line: bytes, run: RunFolder) -> None:
    run.log({"event": "step", "step": 1})
    with (run.path / "log.jsonl").open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(RunError, match="line 2"):
        run.read_log()


def test_nothing_is_written_through_links(run: RunFolder, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (run.path / "log.jsonl").symlink_to(precious)
    (run.path / ".lock").symlink_to(precious)
    with pytest.raises(CannotWrite):
        run.log({"event": "step"})
    with pytest.raises(CannotWrite), run.lock():
        pass
    run.write("log.jsonl", "new")  # replaces the link
    assert precious.read_text() == "precious"


@pytest.mark.parametrize("name", ["../precious", "/etc/passwd", "..", "a/b", ""])
def test_a_manifest_names_files_of_the_run_alone(name: str, run: RunFolder) -> None:
    manifest = run.manifest
    (run.path / "manifest.json").write_text(json.dumps({**manifest, "files": {name: ["0"]}}))
    with pytest.raises(RunError):
        RunFolder.open(run.path)


@pytest.mark.parametrize(
    "content",
    [b"\xff", b"[" * 100_000, b'{"format": "1"}', b'{"format": true}', b'{"format": 1, "files": []}',
     b'{"format": NaN}',
     b'{"format": 1, "files": {"a": "b"}}', b'{"format": 1, "finished": "yes"}', b'{"format": 1, "format": 1}',
     b'{"format": 1, "data": "x"}', b'{"format": 1, "measured": 1}'],
)  # fmt: skip
def test_a_manifest_without_sense_is_refused(content: bytes, run: RunFolder) -> None:
    (run.path / "manifest.json").write_bytes(content)
    with pytest.raises(RunError, match=r"manifest\.json"):
        RunFolder.open(run.path)


@pytest.mark.parametrize("name", ["x" * 300, "a/" * 3000 + "b"])
def test_name_that_no_folder_can_have_is_a_missing_file(name: str) -> None:
    assert not is_run(name)
    for use in (RunFolder.open, RunFolder.refuse_if_taken):
        with pytest.raises(MissingFile):
            use(name)


def test_two_processes_cannot_create_one_run(tmp_path: Path) -> None:
    """All but one see that the folder is taken, whether it was there, empty, or not."""
    recipe = parse_recipe(TABLES, "here")
    (tmp_path / "there").mkdir()
    for place in (tmp_path / "there", tmp_path / "new"):
        children = []
        for n in range(4):
            pid = os.fork()
            if not pid:
                try:
                    RunFolder.create(place, recipe, BYTES, by=n)
                except RunError:
                    os._exit(3)
                except BaseException:
                    os._exit(1)
                os._exit(0)
            children.append(pid)
        codes = sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children)
        assert codes == [0, 3, 3, 3]
        RunFolder.open(place).verify()


def test_the_log_is_json_for_everyone(run: RunFolder) -> None:
    """JSON has no infinity: what is not finite is null."""
    run.log({"event": "evaluation", "nats": math.inf, "conventions": [{"perplexity": math.nan}], "impossible": 2})
    expected = {"event": "evaluation", "nats": None, "conventions": [{"perplexity": None}], "impossible": 2}
    assert run.read_log() == [expected]
    assert "Infinity" not in (run.path / "log.jsonl").read_text()


def test_a_second_process_is_refused(run: RunFolder) -> None:
    hold = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True); input()"
    command = [sys.executable, "-c", hold, str(run.path / ".lock")]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(RunError), run.lock():
            pass
    finally:
        other.kill()  # however it ends, the lock goes with it
        other.communicate()
    with run.lock():
        pass
    with run.lock():
        pass
