"""Interrupted training resumes bit-identically; diverged training keeps its last good state."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from nextword.core.errors import RunError, TrainingDiverged
from nextword.core.types import Vocabulary
from nextword.models import model_class
from nextword.models.base import FILE
from nextword.run_folder import RunFolder, checksum
from nextword.training.events import BEGIN, END
from nextword.training.trainer import Trainer
from tests.support.small_job import MODEL, SIZE, VALIDATION, are_equal, copy_weights, run_lstm_job


@pytest.mark.parametrize("slug", ["nplm", "rnn", "gru", "lstm"])
@pytest.mark.parametrize(
    "optimizer", [{"kind": "sgd", "rate": 0.3, "momentum": 0.9}, {"kind": "nadamw", "rate": 0.01}, {"kind": "adagrad"}]
)
def test_resume_of_interrupted_run_gives_bit_identical_result(
    slug: str, optimizer: dict[str, Any], tmp_path: Path
) -> None:
    """Covers carried state, dropout randomness, optimizer, plateau schedule, and accumulation together."""
    options: dict[str, Any] = {"slug": slug, "optimizer": optimizer, "steps": 14, "validate_every": 2, "accumulate": 3}
    options |= {"schedule": {"kind": "plateau"}, "clip": 0.5, "log_every": 4}
    options["model"] = {"width": 8, "dropout": 0.3} | ({"context": 1} if slug == "nplm" else {"layers": 2})
    run_lstm_job(tmp_path / "straight", **options)
    for interrupt_after in (1, 5, 6):
        count = iter(range(1, 99))
        run_lstm_job(tmp_path / "interrupted", stop=lambda c=count, b=interrupt_after: next(c) == b, **options)
    run_lstm_job(tmp_path / "interrupted", **options)
    a, b = RunFolder(tmp_path / "straight").load_state(), RunFolder(tmp_path / "interrupted").load_state()
    assert a is not None
    assert b is not None
    assert are_equal(a[0], b[0])
    assert {k: v for k, v in a[1].items() if k != "seconds"} == {k: v for k, v in b[1].items() if k != "seconds"}
    assert (tmp_path / "straight" / FILE).read_bytes() == (tmp_path / "interrupted" / FILE).read_bytes()


@pytest.mark.parametrize("name", ["state.safetensors", "state.json", "checksums.json"])
def test_resume_from_a_damaged_state_gives_bit_identical_result(name: str, tmp_path: Path) -> None:
    """One flipped bit: training resumes from the state before."""
    options: dict[str, Any] = {"steps": 14, "validate_every": 2, "save_every": 0, "log_every": 1}
    options["model"] = {"width": 8, "dropout": 0.3}
    run_lstm_job(tmp_path / "straight", **options)
    count = iter(range(1, 99))
    run_lstm_job(tmp_path / "damaged", stop=lambda: next(count) == 9, **options)
    newest, before = RunFolder(tmp_path / "damaged").states()
    content = bytearray((newest / name).read_bytes())
    content[-9] ^= 4
    (newest / name).write_bytes(content)
    _, events = run_lstm_job(tmp_path / "damaged", **options)
    assert (events[0].kind, events[0].step) == (BEGIN, int(before.name.removeprefix("0-")))
    a, b = RunFolder(tmp_path / "straight").load_state(), RunFolder(tmp_path / "damaged").load_state()
    assert a is not None
    assert b is not None
    assert are_equal(a[0], b[0])
    assert (tmp_path / "straight" / FILE).read_bytes() == (tmp_path / "damaged" / FILE).read_bytes()


def test_resume_never_takes_the_best_weights_of_a_later_phase(tmp_path: Path) -> None:
    options: dict[str, Any] = {"steps": 6, "validate_every": 2}
    run_lstm_job(tmp_path / "run", **options)
    run = RunFolder(tmp_path / "run")
    assert run.manifest["weights"]["phase"] == 0
    run.seal(weights={"phase": 1, "step": 2})  # as after a later phase whose states are damaged
    with pytest.raises(RunError):
        run_lstm_job(tmp_path / "run", **options)


@pytest.mark.parametrize(
    "change",
    [
        {"best": None},
        {"optimizer": {}},
        {"optimizer": {"state": 1, "groups": [1]}},
        {"state": ["no", "state"]},
        {"validations": 3},
        {"total_steps": "many"},
        {"reason": 1},
        {"random": "none"},
    ],
    ids=str,
)
def test_state_of_wrong_content_is_an_error(change: dict[str, Any], tmp_path: Path) -> None:
    run_lstm_job(tmp_path / "run", steps=3)
    (folder,) = RunFolder(tmp_path / "run").states()
    tensors = load_file(folder / "state.safetensors")
    if "random" in change:
        del tensors["random"]
    save_file(tensors, folder / "state.safetensors")
    values = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps({**values, **change}))
    sums = {name: checksum(folder / name) for name in ("state.safetensors", "state.json")}
    (folder / "checksums.json").write_text(json.dumps(sums))
    with pytest.raises(RunError):
        run_lstm_job(tmp_path / "run", steps=3)


def test_resume_of_finished_run_changes_nothing(tmp_path: Path) -> None:
    network, _ = run_lstm_job(tmp_path / "run", steps=6, validate_every=3)
    resumed, events = run_lstm_job(tmp_path / "run", steps=6, validate_every=3)
    assert [e.kind for e in events] == [BEGIN, END]
    assert events[-1].values["reason"] == "steps"
    assert are_equal(copy_weights(network), copy_weights(resumed))


def corrupt_weights_at(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Make weights NaN after this step, as a NaN gradient would after a finite loss."""
    plain = Trainer.step

    def step(self: Trainer, batches: Any) -> None:
        plain(self, batches)
        if self.steps_done == at:
            with torch.no_grad():
                next(self.network.parameters()).fill_(math.nan)

    monkeypatch.setattr(Trainer, "step", step)


@pytest.mark.parametrize("log", [1, 4])
@pytest.mark.parametrize("valid", [None, VALIDATION])
@pytest.mark.parametrize("at", [6, 7, 8, 9])
def test_non_finite_loss_raises_and_keeps_last_good_state(
    at: int, valid: Any, log: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corrupt_weights_at(monkeypatch, at)
    with pytest.raises(TrainingDiverged) as diverged:
        run_lstm_job(tmp_path / "run", steps=9, log_every=log, save_every=0, validate_every=4, valid=valid)
    assert at <= diverged.value.step <= 9
    state = RunFolder(tmp_path / "run").load_state()
    assert state is not None
    assert 4 <= state[1]["step"] < at
    assert all(torch.isfinite(t).all() for name, t in state[0].items())
    if (tmp_path / "run" / FILE).exists():
        cls = model_class("lstm")
        saved = cls.load(tmp_path / "run", cls.Config(**MODEL), Vocabulary(SIZE, SIZE - 1))
        assert all(torch.isfinite(t).all() for t in saved.state_dict().values())


def test_exploding_loss_raises(tmp_path: Path) -> None:
    with pytest.raises(TrainingDiverged):
        run_lstm_job(tmp_path / "run", slug="rnn", model={"width": 8, "activation": "relu"}, steps=200, log_every=1,
            optimizer={"kind": "sgd", "rate": 1e4})  # fmt: skip


def test_interruption_ends_with_reason_and_saved_state(tmp_path: Path) -> None:
    _, events = run_lstm_job(tmp_path / "run", steps=9, stop=lambda: True)
    assert (events[-1].step, events[-1].values["reason"]) == (1, "interrupted")
    state = RunFolder(tmp_path / "run").load_state()
    assert state is not None
    assert state[1]["step"] == 1
    json.dumps([e.as_line() for e in events])


def test_saved_state_holds_json_and_tensors(tmp_path: Path) -> None:
    run_lstm_job(tmp_path / "run", steps=3)
    (folder,) = (tmp_path / "run" / "state").iterdir()
    assert {p.name for p in folder.iterdir()} == {"state.safetensors", "state.json", "checksums.json"}
    assert folder.name == "0-3"
