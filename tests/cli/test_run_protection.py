"""Runs that are read-only, damaged, hostile, or used by several processes: a clear error, or the right result."""

from __future__ import annotations

import json
import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nextword.cli import app
from nextword.core.scratch import PREFIX
from nextword.run_folder import RunFolder
from tests.support.processes import fork, join, run_as_ordinary_user, run_at_once

from .conftest import QUICK, Cli, sentences
from .test_shell import PYTHON, shell


def command(*words: str | Path) -> tuple[int, str, str]:
    """Exit code, output and errors of a command, in this process."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ------------------------------------------------------------------------------------------------ permissions


@pytest.fixture
def open_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that every user can enter, unlike those of pytest, with a cache that every user can write."""
    folder = Path(tempfile.mkdtemp(prefix="nextword-test-"))
    folder.chmod(0o755)
    (folder / "cache").mkdir(mode=0o777)
    (folder / "cache").chmod(0o777)
    monkeypatch.setenv("NEXTWORD_CACHE", str(folder / "cache"))
    yield folder
    shutil.rmtree(folder)


def test_ordinary_user_evaluates_a_run_that_only_its_owner_can_write(
    trained: Path, text: Path, open_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, data = open_folder / "run", open_folder / "my.txt"
    shutil.copytree(trained, run)
    shutil.copy(text, data)
    with monkeypatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path))
        for words in (("evaluate", run, "--data", data), ("next", run, "the"), ("generate", run, "the")):
            command(*words)  # so that everything is imported
    shutil.rmtree(run)
    shutil.copytree(trained, run)
    for path in (run, *run.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = contents(run)

    def work() -> list[Any]:
        code, output, errors = command("evaluate", run, "--data", data, "--json")
        assert code == 0, errors
        return [code, json.loads(output), *(command(*w)[0] for w in (("next", run, "the"), ("generate", run, "the")))]

    code, result, *others = run_as_ordinary_user(work)
    assert (code, *others) == (0, 0, 0)
    assert result["nats"] > 0
    assert any("not in the log" in note for note in result["notes"])
    assert contents(run) == before


def test_ordinary_user_gets_an_error_for_what_may_not_be_read_or_written(
    trained: Path, text: Path, open_folder: Path
) -> None:
    run = open_folder / "run"
    shutil.copytree(trained, run)
    command("next", run, "the")
    targets = {
        "recipe.toml": ("next", run, "the"),
        "manifest.json": ("next", run, "the"),
        "model.safetensors": ("next", run, "the"),
        "log.jsonl": ("runs", run),
    }
    for name, words in targets.items():
        (run / name).chmod(0)
        code, _, errors = run_as_ordinary_user(lambda words=words: list(command(*words)))
        (run / name).chmod(0o644)
        assert code == 1, name
        assert name in errors
    shut = open_folder / "shut"
    shut.mkdir(mode=0o555)
    data = open_folder / "my.txt"
    shutil.copy(text, data)
    new = ("train", "lstm/tiny", "--data", data, "--out", shut / "run", *QUICK)
    shutil.copytree(run, open_folder / "unfinished")
    RunFolder(open_folder / "unfinished").seal(finished=False)
    for words in (new, ("train", "--resume", "--out", open_folder / "unfinished")):
        code, _, errors = run_as_ordinary_user(lambda words=words: list(command(*words)))
        assert code == 1, words
        assert "permission" in errors


# ------------------------------------------------------------------------------------------------ hostile names


def test_control_characters_never_reach_the_output(run: Path, tmp_path: Path, cli: Cli) -> None:
    evil = "\x1b]0;evil\x07\x9b31m\x7f"
    folder = tmp_path / f"runs{evil}"
    folder.mkdir()
    hostile = folder / "r\x1b[31m"
    shutil.copytree(run, hostile)
    manifest = json.loads((hostile / "manifest.json").read_text())
    (hostile / "manifest.json").write_text(json.dumps({**manifest, "slug": evil, "recipe": evil}))
    (hostile / "card.md").write_text(f"# {evil}\n\n[text](http://{evil})\n")
    (folder / "broken").mkdir()
    (folder / "broken" / "manifest.json").write_text(json.dumps({"format": evil, evil: 1}))
    RunFolder(hostile).log({"event": "evaluation", "data": evil, "split": evil, "bits_per_byte": 1.0, "parameters": 1})
    data = tmp_path / f"{evil}.txt"
    data.write_text(f"{evil}\n".join(sentences(500)))
    shown = [
        cli("runs", "--folder", folder),
        cli("runs", "--folder", folder, "--json"),
        cli("runs", hostile),
        cli("evaluate", hostile, "--data", data),
        cli("evaluate", hostile, "--data", data, "--json"),
        cli("data", data),
        cli("next", hostile, f"the {evil}"),
        cli("evaluate", folder / "broken", fails=True),
        cli("evaluate", tmp_path / evil, fails=True),
        cli("train", evil, fails=True),
        cli("train", "--resume", "--out", hostile, "--set", f"{evil}=1", fails=True),
    ]
    for result in shown:
        assert not set("\x1b\x07\x9b\x7f") & set(result.stdout + result.stderr), result.output
    for file in ("log.jsonl", "manifest.json"):
        assert not set("\x1b\x07\x9b") & set((hostile / file).read_text()), file


def test_closed_standard_input_is_an_error(trained: Path) -> None:
    done = shell(f"{PYTHON} -m nextword evaluate {trained} --data - <&-")
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: Standard input is closed")


def test_names_that_are_not_utf8_are_an_error(run: Path, text: Path, tmp_path: Path, cli: Cli) -> None:
    name = os.fsdecode(b"caf\xe9")
    try:
        shutil.copytree(run, tmp_path / "runs" / name)
    except OSError:
        pytest.skip("this file system has no such names")
    shutil.copy(text, tmp_path / f"{name}.txt")
    for words in (
        ("train", "lstm/tiny", "--data", text, "--out", tmp_path / name, *QUICK),
        ("train", "lstm/tiny", "--data", tmp_path / f"{name}.txt", "--out", tmp_path / "out", *QUICK),
        ("evaluate", tmp_path / "runs" / name),
    ):
        assert "UTF-8" in cli(*words, fails=True).stderr
    assert "unreadable" in cli("runs", "--folder", tmp_path / "runs").stdout
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------------------------------------ limits


def limited(kind: int, limit: int, *words: str | Path) -> tuple[int, str, str]:
    def work() -> list[Any]:
        resource.setrlimit(kind, (limit, limit))
        return list(command(*words))

    code, output, errors = join(fork(work))
    return code, output, errors


@pytest.mark.parametrize("kilobytes", [1, 20, 60])
def test_file_size_limit_is_an_error_and_the_run_resumes(
    trained: Path, text: Path, tmp_path: Path, kilobytes: int, cli: Cli
) -> None:
    """The limit is reached by the model, by a state, or by the log and the prepared text."""
    run, words = tmp_path / "run", ("train", "lstm/tiny", "--data", text, *QUICK, "--quiet", "--out")
    code, _, errors = limited(resource.RLIMIT_FSIZE, kilobytes << 10, *words, run)
    assert code == 1
    assert "ulimit -f" in errors
    if run.exists():
        cli("train", "--resume", "--out", run)
    else:
        cli(*words, run)
    assert (run / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()


def test_memory_limit_is_an_error_and_the_run_resumes(text: Path, tmp_path: Path, cli: Cli) -> None:
    batches = "phase.0.batches={kind='rows', rows=1000, length=20}"  # 80 MB for one step
    changes = (batches, "model.width=256", "phase.0.steps=1", "phase.0.validate_every=1")
    words = ("train", "lstm/tiny", "--data", text, *QUICK, *(w for c in changes for w in ("--set", c)), "--quiet")
    cli(*words, "--out", tmp_path / "straight")
    run = tmp_path / "run"
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    code, _, errors = limited(resource.RLIMIT_AS, used + (32 << 20), *words, "--out", run)
    assert code == 1
    assert "Memory is used up" in errors
    assert "--resume" in errors
    cli("train", "--resume", "--out", run)
    weights = [(folder / "model.safetensors").read_bytes() for folder in (run, tmp_path / "straight")]
    assert weights[0] == weights[1]


# ------------------------------------------------------------------------------------------------ several processes


def test_several_processes_prepare_train_and_read_at_once(
    trained: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The results equal those of one process, and one of two that train into one folder is refused."""
    monkeypatch.setenv("NEXTWORD_CACHE", str(tmp_path / "cache"))
    words = ("train", "lstm/tiny", "--data", text, *QUICK, "--quiet", "--json", "--out")
    evaluate = ("evaluate", trained, "--data", text, "--json")
    works: list[Callable[[], Any]] = [
        *(lambda name=name: list(command(*words, tmp_path / name)) for name in ("a", "b", "same", "same")),
        *(lambda: list(command(*evaluate)) for _ in range(2)),
    ]
    results = run_at_once(works)
    assert [code for code, *_ in results[:2] + results[4:]] == [0, 0, 0, 0]
    assert sorted(code for code, *_ in results[2:4]) == [0, 1]
    refused = next(errors for code, _, errors in results[2:4] if code)
    assert "same" in refused
    for name in ("a", "b", "same"):
        assert (tmp_path / name / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()
    nats = {json.loads(output)["nats"] for _, output, _ in results[4:]}
    assert nats == {json.loads(command(*evaluate)[1])["nats"]}
    assert not [path for path in tmp_path.rglob(f"{PREFIX}*")]
    assert len(RunFolder(trained).read_log()) >= 3, "lines of several processes do not mix"
