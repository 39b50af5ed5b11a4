"""Ctrl-C saves the state and prints the resume command; a second one stops immediately."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from nextword.run_folder import RunFolder

from .conftest import QUICK, Cli, start
from .test_kill import steps_done, wait_until


def read_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stderr is not None
    message = ""
    for line in process.stderr:
        message += line
        if words in line:
            return message
    raise AssertionError(f"ended without saying '{words}': {message}")


def test_ctrl_c_saves_the_state_and_prints_the_resume_command(cli: Cli, text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    many = ("--set", "phase.0.steps=100000", "--set", "phase.0.validate_every=100000", "--set", "phase.0.log_every=1")
    process = start("train", "lstm/tiny", "--data", text, "--out", run, *QUICK, *many)
    wait_until(lambda: steps_done(run) >= 3, process)
    process.send_signal(signal.SIGINT)
    shown, message = process.communicate(timeout=60)
    assert process.returncode == 130, message
    assert f"nextword train --resume --out {run}\n" in message
    assert "Traceback" not in message
    assert shown == ""
    state = RunFolder(run).load_state()
    assert state is not None
    assert state[1]["step"] >= 3
    assert "no trained weights yet" in cli("generate", run, fails=True).stderr  # and how to get them:
    assert "--resume" in cli("next", run, "the", fails=True).stderr


def test_run_interrupted_twice_resumes_and_finishes(cli: Cli, text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = (
        *QUICK,
        "--set",
        "phase.0.steps=300",
        "--set",
        "phase.0.log_every=1",
        "--set",
        "phase.0.validate_every=100",
    )
    process = start("train", "lstm/tiny", "--data", text, "--out", run, *settings)
    wait_until(lambda: steps_done(run) >= 2, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130, process.communicate()
    process.communicate()
    before = steps_done(run)
    result = json.loads(cli("train", "lstm/tiny", "--data", text, "--out", run, *settings, "--resume", "--json").stdout)
    assert result["bits_per_byte"] > 0
    assert before < steps_done(run) == 300
    assert RunFolder(run).manifest["finished"]


def test_second_ctrl_c_stops_immediately(text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    endless = ("--set", "phase.0.accumulate=10000000")  # one step would take days
    process = start("train", "lstm/tiny", "--data", text, "--out", run, *QUICK, *endless)
    read_until(process, "parameters")
    process.send_signal(signal.SIGINT)
    read_until(process, "again to stop at once")
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in message
    assert "Traceback" not in message
