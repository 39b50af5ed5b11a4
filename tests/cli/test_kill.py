"""SIGKILL at any moment: the last good state is whole, and going on ends in the same bits."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from nextword.checkpoint import RunFolder

from .conftest import QUICK, Cli, environment, sentences, start

STEPS = 60
SETTINGS = (*QUICK, *("--set", f"phase.0.steps={STEPS}", "--set", "phase.0.validate=7"))
EVERY_STEP = ("--set", "phase.0.save=0", "--set", "phase.0.log=1")


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


def test_killed_again_and_again_it_ends_in_the_same_bits(text: Path, tmp_path: Path) -> None:
    train = ("train", "lstm/tiny", "--data", text, "--quiet", *SETTINGS, *EVERY_STEP)
    assert start(*train, "--out", tmp_path / "straight").wait(120) == 0
    broken, killed = tmp_path / "broken", []
    for at in (1, STEPS // 3, 2 * STEPS // 3):
        words = ("train", "--resume", "--quiet", "--out", broken) if broken.exists() else (*train, "--out", broken)
        process = start(*words)
        wait_until(lambda at=at: steps_done(broken) >= at, process)  # type: ignore[misc]
        time.sleep(random.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL, killed
        process.communicate()
        killed.append(steps_done(broken))
    assert killed[-1] < STEPS
    last = start("train", "--resume", "--quiet", "--out", broken)
    _, said = last.communicate(timeout=120)
    assert last.returncode == 0, (killed, said)
    for name in ("model.safetensors", "tokenizer.json", "recipe.toml"):
        assert (broken / name).read_bytes() == (tmp_path / "straight" / name).read_bytes(), (name, killed)
    steps = [line["step"] for line in RunFolder(broken).read_log() if line["event"] == "step"]
    assert steps == list(range(1, STEPS + 1)), killed
    left = [path for path in broken.rglob(".*") if path.name != ".lock"]
    assert left == [], "what killed writes left behind is swept away"


# Each child dies right before its n-th rename; a fresh child then goes on, or begins where there is nothing to go on from.
DRIVER = """
import os, sys, torch
from pathlib import Path
from nextword.checkpoint import RunFolder
from nextword.recipe import load_recipe
from nextword.training import train

base, text = Path(sys.argv[1]), sys.argv[2]
settings = ['tokenizer={kind="bytes"}', "model.width=8", "phase.0.steps=2", "phase.0.validate=1", "phase.0.log=1"]
recipe = load_recipe("lstm/tiny", [*settings, "phase.0.save=0"]).with_data([text])

os.fsync = lambda handle: None  # the disk outlives a killed process

def child(work):
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        torch.set_num_threads(1)
        work()
        os._exit(0)
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)

def dying(n, folder):
    left = n
    def before(function):
        def call(*a, **k):
            nonlocal left
            left -= 1
            if left < 0:
                os._exit(9)
            return function(*a, **k)
        return call
    os.replace, os.rename = before(os.replace), before(os.rename)
    for _ in train(recipe, folder, device="cpu"): pass

def whole(folder):
    resume = (folder / "manifest.json").is_file()
    for _ in train(recipe, folder, resume, device="cpu"): pass

assert child(lambda: whole(base / "straight")) == 0
n = 0
while True:
    code = child(lambda: dying(n, base / f"at-{n}"))
    if code == 0:
        break
    assert code == 9, (n, code)
    assert child(lambda: whole(base / f"at-{n}")) == 0, n
    RunFolder(base / f"at-{n}").verify()
    n += 1
print(n)
"""


def test_killed_before_any_rename_it_ends_in_the_same_bits(text: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", DRIVER, str(tmp_path), str(text)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300)
    assert done.returncode == 0, done.stderr
    count = int(done.stdout)
    assert count > 10
    straight = (tmp_path / "straight" / "model.safetensors").read_bytes()
    for n in range(count):
        assert (tmp_path / f"at-{n}" / "model.safetensors").read_bytes() == straight, n


def test_killed_in_the_second_phase_it_ends_in_the_same_bits(text: Path, tmp_path: Path) -> None:
    """The second phase overwrites the model files that the first one ended with."""
    from nextword.recipe import from_tables, load_recipe, to_tables
    from nextword.training import train

    settings = ['tokenizer={kind="bytes"}', "model.width=8", "phase.0.steps=6", "phase.0.validate=2"]
    tables = to_tables(load_recipe("lstm/tiny", settings).with_data([str(text)]))
    more = {"name": "more", "seed": 2, "optimizer": {"kind": "sgd", "rate": 0.5}}
    tables["phase"] = [tables["phase"][0], {**tables["phase"][0], **more}]
    recipe = from_tables(tables, "two")
    list(train(recipe, tmp_path / "straight", device="cpu"))
    for event in train(recipe, tmp_path / "broken", device="cpu"):
        if (event.phase, event.kind, event.step) == ("more", "valid", 4):
            break  # the generator is dropped here, between two saved states
    list(train(None, tmp_path / "broken", resume=True, device="cpu"))
    a, b = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("straight", "broken"))
    assert a == b


def test_killed_while_it_reads_the_text_there_is_nothing_to_clear_away(cli: Cli, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
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


def test_two_do_not_train_one_run(cli: Cli, run: Path) -> None:
    with RunFolder(run).lock():
        said = cli("train", "--resume", "--out", run, fails=True).stderr
    assert "another process" in said
    assert os.path.exists(run / "model.safetensors")
