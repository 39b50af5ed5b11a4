"""The worker of a job: samples that leave training alone, and an end that always saves the state."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import nextword
from nextword.progress.display import Interrupt
from nextword.run_folder import RunFolder
from nextword.server.jobs import WORKER
from nextword.server.worker import BLANK, Sampler, run_job
from nextword.training.events import VALID
from tests.support.running_server import eventually
from tests.unit.server.test_jobs import TALE

STEPS = {"steps": 12, "validate_every": 4, "log_every": 2}
# The worker's parent: it starts one, hands it its job, and waits to be killed.
PARENT = """
import subprocess, sys, time
worker = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, start_new_session=True)
worker.stdin.write(sys.argv[1].encode() + b"\\n")
worker.stdin.flush()
print(worker.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def tale(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "tale.txt"
    file.write_text(TALE)
    return file


def train(recipe: str, data: Path, folder: Path, with_samples: bool, **settings: Any) -> list[dict[str, Any]]:
    """Train with or without samples at every validation; return the samples."""
    sampler = Sampler(folder)
    samples = []
    for event in nextword.train(recipe, data, out=folder, events=True, device="cpu", **STEPS, **settings):
        if with_samples and event.kind == VALID:
            sampler.spent = 0.0  # however slow the machine is
            samples.append(sampler.sample(event))
    assert not sampler.is_broken
    return [sample for sample in samples if sample is not None]


@pytest.mark.parametrize(
    ("recipe", "kind"),
    [("awd-lstm/tiny", "continuation"), ("bert/tiny", "blank")],
)
def test_samples_leave_training_alone(recipe: str, kind: str, tale: Path, tmp_path: Path) -> None:
    """Dropout, masks and batches come from the same random numbers, so all weights and the state are equal."""
    assert train(recipe, tale, tmp_path / "plain", with_samples=False) == []
    samples = train(recipe, tale, tmp_path / "sampled", with_samples=True)
    assert len(samples) == 3
    assert {sample["kind"] for sample in samples} == {kind}
    assert (kind == "blank") == (BLANK in samples[0]["prompt"])
    files = ("model.safetensors", "state/0-12/state.safetensors")
    assert all((tmp_path / "plain" / file).read_bytes() == (tmp_path / "sampled" / file).read_bytes() for file in files)


def test_sample_is_that_of_the_weights_now(tale: Path, tmp_path: Path) -> None:
    """A sample during training equals that of a run that ends there."""
    samples = train("lstm/tiny", tale, tmp_path / "run", with_samples=True, keep="last", model={"dropout": 0.5})
    assert samples[-1] == Sampler(tmp_path / "run").sample_finished()
    assert len({sample["text"] for sample in samples}) > 1


def test_translations_have_their_reference(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    lines = [f"the {n} and the {n + 1}\tle {n} et le {n + 1}" for n in range(300)]
    pairs.write_text("\n".join(lines))
    (sample, *_) = train("seq2seq/tiny", pairs, tmp_path / "run", with_samples=True)
    assert sample["kind"] == "translation"
    assert f"{sample['prompt']}\t{sample['reference']}" in lines


def test_prompt_may_be_given(tale: Path, tmp_path: Path) -> None:
    nextword.train("ngram/tiny", tale, out=tmp_path / "run", progress=False)
    sample = Sampler(tmp_path / "run", f"The king of {BLANK} lands").sample_finished()
    assert sample is not None
    assert sample["prompt"] == "The king of"
    before = torch.get_rng_state()
    assert Sampler(tmp_path / "run", "The king of").sample_finished() == sample
    assert torch.equal(before, torch.get_rng_state())


def test_broken_samples_never_end_a_training(tale: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sampler = Sampler(tmp_path / "nothing")
    assert sampler.sample_finished() is None
    assert sampler.is_broken
    assert "Traceback" in capsys.readouterr().err


def test_samples_take_a_bounded_share_of_the_time(tale: Path, tmp_path: Path) -> None:
    sampler = Sampler(tmp_path / "run")
    for event in nextword.train("lstm/tiny", tale, out=tmp_path / "run", events=True, device="cpu", **STEPS):
        if event.kind == VALID:
            sampler.spent, sampler.last = 0.06 * event.seconds, 0.0
            assert sampler.sample(event) is None
            sampler.spent, sampler.last = 0.01 * event.seconds, 0.01 * event.seconds
            assert sampler.sample(event) is not None


def make_job(tale: Path, folder: Path, **changes: Any) -> dict[str, Any]:
    job = {"kind": "train", "recipe": "lstm/tiny", "models": ["mine"], "source": str(tale), "folder": str(folder)}
    return {**job, "device": "cpu", "minutes": None, "prompt": "", "data": {"id": "x", "name": "tale"}, **changes}


def test_errors_are_an_outcome(tale: Path, tmp_path: Path) -> None:
    outcome = run_job(make_job(tmp_path / "missing.txt", tmp_path / "run"), Interrupt(), lambda event: None)
    assert outcome["state"] == "failed"
    assert "missing.txt" in outcome["error"]


def test_worker_outlives_no_server(tale: Path, tmp_path: Path) -> None:
    """The parent is killed with SIGKILL. The worker ends by itself, with its state saved."""
    folder = tmp_path / "run"
    job = json.dumps(make_job(tale, folder, minutes=10))
    command = [sys.executable, "-c", PARENT, job, *WORKER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        try:
            log = folder / "log.jsonl"
            assert eventually(lambda: log.exists() and '"event": "step"' in log.read_text())
            parent.kill()
            assert eventually(lambda: not is_running(worker))
        finally:
            parent.kill()
            if is_running(worker):
                os.kill(worker, signal.SIGKILL)
    (state, *_) = RunFolder.open(folder).states()
    last = [json.loads(line) for line in log.read_text().splitlines()][-1]
    assert (last["event"], last["reason"]) == ("end", "interrupted")
    assert state.name == f"0-{last['step']}"


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
