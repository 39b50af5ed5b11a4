"""SIGKILL at any moment leaves a valid state, and resuming gives a bit-identical result."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nextword.run_folder import RunFolder

from .conftest import QUICK, Cli, environment, sentences, start


def wait_until(true: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert process.poll() is None, f"ended by itself: {process.communicate()}"
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def steps_done(run: Path) -> int:
    path = run / "log.jsonl"
    steps = 0
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            steps = max(steps, json.loads(line).get("step", 0))
        except ValueError:  # being written
            continue
    return steps


def drive(*words: object) -> str:
    """Run killing.py, which imports once and forks, so that a dozen kills take seconds."""
    command = [sys.executable, "-m", "tests.support.killing", *map(str, words)]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300, cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_run_killed_repeatedly_gives_bit_identical_result(tmp_path: Path) -> None:
    """`make kill` does this a hundred times with every family."""
    assert drive("families", 3, tmp_path, "lstm", "ngram-disk").count("0 differences") == 2


def test_run_killed_before_any_rename_gives_bit_identical_result(text: Path, tmp_path: Path) -> None:
    count = int(drive("renames", text, tmp_path))
    assert count >= 8
    straight = (tmp_path / "straight" / "model.safetensors").read_bytes()
    for n in range(count):
        assert (tmp_path / f"at-{n}" / "model.safetensors").read_bytes() == straight, n


def test_run_killed_in_the_second_phase_gives_bit_identical_result(text: Path, tmp_path: Path) -> None:
    """The second phase overwrites the model files of the first."""
    from nextword.recipe import load_recipe, parse_recipe, recipe_tables
    from nextword.training.train import train_events

    settings = ['tokenizer={kind="bytes"}', "model.width=8", "phase.0.steps=6", "phase.0.validate_every=2"]
    tables = recipe_tables(load_recipe("lstm/tiny", settings).with_data([str(text)]))
    more = {"name": "more", "seed": 2, "optimizer": {"kind": "sgd", "rate": 0.5}}
    tables["phase"] = [tables["phase"][0], {**tables["phase"][0], **more}]
    recipe = parse_recipe(tables, "two")
    list(train_events(recipe, tmp_path / "straight", device="cpu"))
    for event in train_events(recipe, tmp_path / "broken", device="cpu"):
        if (event.phase, event.kind, event.step) == ("more", "valid", 4):
            break  # the generator is dropped here, between two saved states
    list(train_events(None, tmp_path / "broken", resume=True, device="cpu"))
    a, b = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("straight", "broken"))
    assert a == b


def test_train_killed_while_reading_text_leaves_no_folder(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, big = tmp_path / "cache", tmp_path / "big.txt"
    monkeypatch.setenv("NEXTWORD_CACHE", str(cache))
    big.write_text("\n".join(sentences(30_000)), encoding="utf-8")
    train = ("train", "lstm/tiny", "--data", big, "--out", tmp_path / "run", *QUICK)
    process = start(*train, env=environment())
    wait_until(lambda: any(cache.rglob("*.bin")), process)
    process.send_signal(signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    process.communicate()
    assert not (tmp_path / "run").exists()
    cli(*train)


def test_resume_of_a_locked_run_fails(cli: Cli, run: Path) -> None:
    with RunFolder(run).lock():
        message = cli("train", "--resume", "--out", run, fails=True).stderr
    assert "nother process" in message
    assert os.path.exists(run / "model.safetensors")
