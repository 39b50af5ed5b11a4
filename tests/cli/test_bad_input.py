"""User errors: one message that names the problem, exit code 1, and no file lost or created.

Expectations are values of the input (a path, key, number or suggested name), not sentences.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from nextword import run_folder as checkpoint
from nextword.cli import app
from nextword.run_folder import RunFolder

from .conftest import QUICK, Cli, contents, environment, sentences

TRAIN = ("train", "lstm/tiny")


def bad_files(folder: Path) -> None:
    (folder / "empty.txt").write_bytes(b"")
    (folder / "binary.txt").write_bytes(b"some text\n" + bytes(range(256)) * 50)
    (folder / "latin.txt").write_bytes(b"plain line\n" * 1000 + "un café noir\n".encode("latin-1") * 100)
    (folder / "utf16.txt").write_bytes(("a b c\n" * 1000).encode("utf-16")[:-1])
    (folder / "short.txt").write_text("far too short\n")
    (folder / "folder").mkdir()
    (folder / "recipe.toml").write_text("[paper\n")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    bad_files(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("shirt.txt", ["shirt.txt", "short.txt"]),
        ("empty.txt", ["empty.txt"]),
        ("binary.txt", ["offset 10"]),
        ("latin.txt", ["UTF-8", "0xe9", "offset 11006", "line 1001", "iconv -f windows-1252 -t utf-8"]),
        ("utf16.txt", ["utf-16", "truncated", "iconv"]),
        ("short.txt", ["short.txt", "14"]),
        ("folder", ["folder"]),
        ("wikitxt-2", ["wikitext-2"]),
        ("wikitext-103", ["https://", "nextword data wikitext-103 --install PATH"]),
    ],
)
def test_train_with_unusable_text_names_the_problem(cli: Cli, here: Path, data: str, says: list[str]) -> None:
    for command in (TRAIN, ("compare", "lstm/tiny")):
        message = cli(*command, "--data", data, "--out", here / "out", *QUICK, fails=True).stderr
        assert all(words in message for words in says), message
        assert not (here / "out").exists()


def test_train_with_less_text_than_a_batch_names_the_setting(cli: Cli, here: Path, text: Path) -> None:
    few = ("--set", "phase.0.batches.rows=50000")
    message = cli(*TRAIN, "--data", text, "--out", here / "out", *QUICK, *few, fails=True).stderr
    assert "100000" in message
    assert "phase.0.batches.rows" in message
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train"], "nextword train lstm/tiny"),
        (["train", "lstm/tny"], "lstm/tiny"),
        (["train", "lstm"], "lstm/small"),
        (["train", "absent.toml"], "absent.toml"),
        (["train", "recipe.toml"], "recipe.toml"),
        (["train", "--resume"], "--out"),
        (["train", "--resume", "--out", "nowhere"], "nextword runs"),
        (["papers", "lsm"], "lstm"),
        (["look", "initialisatoin"], "initialization"),
        (["data", "wikitxt-2"], "wikitext-2"),
        (["generate", "folder"], "manifest.json"),
        (["runs", "nowhere"], "nowhere"),
        (["papers", "--record", "nowhere"], "nowhere"),
        (["compare", "folder"], "manifest.json"),
        (["compare", "lstm/tny"], "lstm/tiny"),
        (["compare", "--minutes", "0"], "minutes = 0"),
        (["compare", "--resume", "--out", "nowhere"], "nowhere"),
        (["train", "lstm/tiny", "--out", "short.txt"], "short.txt"),
        (["train", "lstm/tiny", "--out", "short.txt/run", *QUICK], "short.txt"),
    ],
)
def test_unknown_names_are_reported_and_change_nothing(cli: Cli, here: Path, words: list[str], says: str) -> None:
    before = contents(here)
    assert says in cli(*words, fails=True).stderr
    assert contents(here) == before


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("phase.0.epochs", "phase.0.epochs"),
        ("=3", "no table ''"),
        ("modle.width=3", "'model'"),
        ("modle=3", "'model'"),
        ("model=3", "model"),
        ("model.widht=3", "'width'"),
        ("model.width=wide", "whole number"),
        ("model.width=-3", "-3"),
        ("model.width=2.5", "whole number"),
        ("model.tied=maybe", "true or false"),
        ("model.width.x=3", "model.width"),
        ("paper.slug=lsmt", "lstm"),
        ("tokenizer.kind=byte", "'bytes'"),
        ("tokenizer.sizes=3", "'sizes'"),
        ("tokenizer={kind='bpe', siz=300}", "'size'"),
        ("phase=3", "[[phase]]"),
        ("phase.steps=3", "phase.0"),
        ("phase.1.steps=3", "0 (train)"),
        ("phase.0.stpes=3", "'steps'"),
        ("phase.0.steps=many", "whole number"),
        ("phase.0.steps=0", "steps"),
        ("phase.0.log_every=0", "at least 1"),
        ("phase.0.accumulate=0", "at least 1"),
        ("phase.0.clip=x", "clip"),
        ("phase.0.keep=all", "best"),
        ("phase.0.kind=gradeint", "gradient"),
        ("phase.0.kind=count", "gradient"),
        ("phase.0.optimizer=adam", "optimizer"),
        ("phase.0.optimizer.kind=adm", "adam"),
        ("phase.0.optimizer.rat=1", "'rate'"),
        ("phase.0.optimizer.rate=-1", "-1"),
        ("phase.0.optimizer.weight_decay=x", "optimizer.weight_decay"),
        ("phase.0.optimizer.betas=3", "optimizer.betas"),
        ("phase.0.schedule=cosin", "cosine"),
        ("phase.0.schedule.warmpu=1", "warmpu"),
        ("phase.0.objective=causla", "causal"),
        ("phase.0.objective.reduec=token", "reduec"),
        ("phase.0.batches.kind=row", "rows"),
        ("phase.0.batches.row=3", "rows, length"),
        ("phase.0.batches.rows=0", "at least 1"),
        ("phase.0.initialization.kind=xavir", "xavier"),
        ("phase.0.init_from=nowhere", "nowhere"),
        ("phase.0.precision=fp8", "bf16"),
    ],
)
def test_wrong_settings_are_reported_before_a_folder_exists(
    cli: Cli, text: Path, tmp_path: Path, change: str, says: str
) -> None:
    out = tmp_path / "run"
    message = cli(*TRAIN, "--data", text, "--out", out, *QUICK, "--set", change, fails=True).stderr
    assert says in message, message
    if "kind=count" not in change:
        assert not out.exists(), "the corrected command must find the place free"


def test_set_addresses_phases_by_number_or_name(cli: Cli, text: Path, tmp_path: Path) -> None:
    cli(*TRAIN, "--data", text, "--out", tmp_path / "run", *QUICK, "--set", "phase.train.steps=2")
    assert RunFolder(tmp_path / "run").recipe.phases[0].steps == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["evaluate", "RUN", "--stride", "4"], "--context"),
        (["evaluate", "RUN", "--context", "4", "--stride", "9"], "9"),
        (["evaluate", "RUN", "--split", "tset"], "train, valid, test"),
        (["evaluate", "RUN", "--data", "latin.txt"], "offset 11006"),
        (["evaluate", "RUN", "--lines"], "--data"),
        (["evaluate", "RUN", "--lines", "--data", "latin.txt"], "offset 11006"),
        (["evaluate", "RUN", "--lines", "--data", "empty.txt"], "empty.txt"),
        (["evaluate", "RUN", "--device", "cuda"], "--device cpu"),
        (["evaluate", "RUN", "--device", "gpu"], "cuda"),
        (["train", "lstm/tiny", "--device", "cuda"], "--device cpu"),
        (["compare", "lstm/tiny", "--device", "cuda"], "--device cpu"),
        (["next", "RUN", "the", "-k", "0"], "--top"),
        (["next", "RUN", "the ___ is"], "left to right"),
        (["generate", "RUN", "--file", "absent.txt"], "absent.txt"),
        (["generate", "RUN", "--file", "latin.txt"], "offset 11006"),
        (["generate", "RUN", "--file", "empty.txt"], "empty.txt"),
        (["generate", "RUN", "--temperature", "-1"], "temperature"),
        (["generate", "RUN", "--top-p", "2"], "top_p"),
        (["generate", "RUN", "--beam", "-1"], "--beam"),
        (["embed", "RUN", "absent.txt"], "absent.txt"),
        (["embed", "RUN", "empty.txt"], "empty.txt"),
        (["embed", "RUN", "latin.txt"], "offset 11006"),
        (["embed", "RUN", "short.txt", "--layer", "9"], "9"),
        (["embed", "RUN", "short.txt", "--out", "v.txt"], ".safetensors"),
        (["embed", "RUN", "short.txt", "--out", "nowhere/v.safetensors"], "nowhere"),
    ],
)
def test_wrong_options_are_reported_and_change_nothing(
    cli: Cli, trained: Path, here: Path, words: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    before = contents(trained), contents(here)
    assert says in cli(*(trained if word == "RUN" else word for word in words), fails=True).stderr
    assert (contents(trained), contents(here)) == before


def test_train_never_overwrites_another_run(cli: Cli, run: Path, text: Path) -> None:
    before = contents(run)
    message = cli("train", "gru/tiny", "--data", text, "--out", run, *QUICK, fails=True).stderr
    assert "--resume" in message
    message = cli("train", "gru/tiny", "--data", text, "--out", run, "--resume", *QUICK, fails=True).stderr
    assert "another recipe" in message
    more = ("--set", "phase.0.steps=11")
    cli(*TRAIN, "--data", text, "--out", run, "--resume", *QUICK, *more, fails=True)
    assert contents(run) == before


def test_resume_of_a_finished_run_keeps_its_weights(cli: Cli, run: Path) -> None:
    before = (run / "model.safetensors").read_bytes()
    result = cli("train", "--resume", "--out", run)
    assert "finished" in result.stderr
    assert "bits/byte" in result.stdout
    assert (run / "model.safetensors").read_bytes() == before
    ends = [line for line in RunFolder(run).read_log() if line["event"] == "end"]
    assert len(ends) == 1


def test_resume_with_changed_text_is_refused(cli: Cli, text: Path, tmp_path: Path) -> None:
    mine = Path(shutil.copy(text, tmp_path / "mine.txt"))
    cli(*TRAIN, "--data", mine, "--out", tmp_path / "run", *QUICK)
    mine.write_text(mine.read_text(encoding="utf-8") + "One more sentence.\n", encoding="utf-8")
    assert "changed" in cli("train", "--resume", "--out", tmp_path / "run", fails=True).stderr


def cut(name: str) -> Callable[[Path], None]:
    return lambda run: os.truncate(run / name, (run / name).stat().st_size // 2)


def flip(name: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        data = bytearray((run / name).read_bytes())
        data[len(data) // 2] ^= 1
        (run / name).write_bytes(data)

    return change


def newer(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (cut("model.safetensors"), "model.safetensors"),
        (cut("tokenizer.json"), "tokenizer.json"),
        (cut("recipe.toml"), "recipe.toml"),
        (cut("manifest.json"), "manifest.json"),
        (flip("model.safetensors"), "model.safetensors"),
        (flip("tokenizer.json"), "tokenizer.json"),
        (flip("recipe.toml"), "recipe.toml"),
        (newer, "pgrade"),
        (lambda run: (run / "manifest.json").unlink(), "manifest.json"),
        (lambda run: (run / "manifest.json").write_text("[]"), "manifest.json"),
        (lambda run: (run / "model.safetensors").unlink(), "model.safetensors"),
    ],
)
def test_damaged_run_is_refused_and_left_unchanged(
    cli: Cli, run: Path, damage: Callable[[Path], None], says: str
) -> None:
    damage(run)
    before = contents(run)
    for words in (("generate", run), ("evaluate", run), ("next", run, "the"), ("embed", run, __file__)):
        assert says in cli(*words, fails=True).stderr
    assert contents(run) == before
    assert says in cli("train", "--resume", "--out", run, fails=True).stderr
    kept = {name: data for name, data in contents(run).items() if name not in ("log.jsonl", ".lock")}
    assert kept == {name: data for name, data in before.items() if name not in ("log.jsonl", ".lock")}


@pytest.mark.parametrize("rate", ["1e6", "1e38"])
def test_diverging_training_keeps_the_last_good_state(cli: Cli, text: Path, tmp_path: Path, rate: str) -> None:
    run = tmp_path / "run"
    hot = ("--set", f"phase.0.optimizer={{kind='sgd', rate={rate}}}", "--set", "phase.0.clip=0")
    every = ("--set", "phase.0.log_every=1", "--set", "phase.0.save_every=0", "--set", "phase.0.validate_every=1")
    message = cli(*TRAIN, "--data", text, "--out", run, *QUICK, *hot, *every, fails=True).stderr
    assert "diverged" in message
    assert "phase.0.optimizer.rate" in message
    assert "step 1" in message or "step 2" in message
    state = RunFolder(run).load_state()
    if state is not None:
        assert all(torch.isfinite(t).all() for name, t in state[0].items() if name.startswith("network."))
    if (run / "model.safetensors").is_file():
        RunFolder(run).verify()
        for line in RunFolder(run).read_log():
            assert math.isfinite(line.get("valid", 0.0))


class Full:
    """A disk that is full from the n-th write of a state."""

    def __init__(self, save: Callable[..., None], after: int, problem: Exception) -> None:
        self.save, self.left, self.problem = save, after, problem

    def __call__(self, tensors: object, path: str) -> None:
        self.left -= 1
        if self.left < 0:
            Path(path).write_bytes(b"half of i")
            raise self.problem
        self.save(tensors, path)


@pytest.mark.parametrize(
    "problem",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("I/O error: No space left on device (os error 28)"),
    ],
)
def test_full_disk_keeps_the_last_good_state(
    cli: Cli, text: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    run = tmp_path / "run"
    every = ("--set", "phase.0.log_every=1", "--set", "phase.0.save_every=0")
    cli(*TRAIN, "--data", text, "--out", tmp_path / "straight", *QUICK, *every)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", Full(checkpoint.save_file, 4, problem))
        message = cli(*TRAIN, "--data", text, "--out", run, *QUICK, *every, fails=True).stderr
    assert "disk is full" in message
    assert "--resume" in message
    state = RunFolder(run).load_state()
    assert state is not None
    assert state[1]["step"] == 4
    cli("train", "--resume", "--out", run)
    assert (run / "model.safetensors").read_bytes() == (tmp_path / "straight" / "model.safetensors").read_bytes()


def test_full_tmpfs_keeps_the_last_good_state(text: Path, tmp_path: Path) -> None:
    """Use a tmpfs of one megabyte, mounted for these processes only."""
    script = f"""
        set -u; mkdir disk; mount -t tmpfs -o size=1m disk disk || exit 77
        nextword() {{ {sys.executable} -m nextword "$@"; }}
        head -c 820000 /dev/zero > disk/filler
        nextword train lstm/tiny --data {text} --out disk/run --quiet {" ".join(f"'{w}'" for w in QUICK)} \
            --set phase.0.save_every=0 --set phase.0.log_every=1; echo "code $?" >&2
        rm disk/filler
        nextword train --resume --out disk/run --json || exit 1
    """
    namespace = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    try:
        done = subprocess.run(
            [*namespace, "sh", "-c", script],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=120,
        )
    except FileNotFoundError:
        pytest.skip("no unshare on this machine")
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert "disk is full" in done.stderr
    assert "code 1" in done.stderr
    assert json.loads(done.stdout)["bits_per_byte"] > 0


def test_runs_verify_reports_the_changed_run_and_fails(cli: Cli, here: Path) -> None:
    text = here / "text.txt"
    text.write_text("\n".join(sentences(600)))
    for name in ("good", "bad"):
        cli("train", "ngram/kn5", "--data", text, "--out", here / "all" / name)
    verify = ["runs", "--folder", str(here / "all"), "--verify"]
    assert "good" in cli(*verify).stdout
    path = here / "all" / "bad" / "model.json"
    path.write_text(path.read_text() + " ")
    listed = CliRunner().invoke(app, verify)
    assert listed.exit_code == 1
    assert "good" in listed.stdout
    assert "model.json" in listed.output
    assert "model.json" in cli("runs", here / "all" / "bad", "--verify", fails=True).stderr
    cli("runs", here / "all" / "good", "--verify")
    cli("runs", here / "all" / "bad")
