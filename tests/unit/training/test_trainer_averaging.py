"""NT-ASGD in the trainer: validated and saved weights, trigger, resume, and CUDA graph steps."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from nextword.core.errors import InvalidSetting
from nextword.models.base import FILE
from nextword.run_folder import RunFolder
from nextword.training.events import VALID
from nextword.training.optimizers import AveragedSGD
from nextword.training.steps import compute_step
from nextword.training.trainer import Trainer, Validation, run_gradient_phase
from tests.support.small_job import draw_walk, filter_events, make_small_job

SIZE = 12
MODEL = {"embedding": 6, "width": 8, "layers": 2}
TRAIN, HELD_OUT = draw_walk(SIZE - 1, 405), draw_walk(SIZE - 1, 120, seed=1)
PHASE: dict[str, Any] = {
    "batches": {"kind": "variable", "rows": 4, "length": 6, "length_std": 2.0, "min_length": 2},
    "objective": {"kind": "causal", "activation_penalty": 2.0, "temporal_penalty": 1.0},
    "optimizer": {"kind": "nt-asgd", "rate": 2.0, "weight_decay": 0.001, "start": 5},
    "clip": 0.25,
    "log_every": 1,
}


@pytest.mark.parametrize("keep", ["best", "last"])
def test_nt_asgd_saves_the_averaged_weights(keep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twelve steps, seven are averaged; the file and the network hold the mean of those seven."""
    phase = {**PHASE, "steps": 12, "keep": keep, "validate_every": 12}
    job = make_small_job(tmp_path / "run", "awd-lstm", MODEL, SIZE, TRAIN, HELD_OUT, **phase)
    history: list[dict[str, Tensor]] = []  # the weights after each step
    plain = AveragedSGD.apply_step

    def apply(self: AveragedSGD, scale: Tensor | None = None) -> None:
        plain(self, scale)
        history.append({name: t.clone() for name, t in job.network.state_dict().items()})

    monkeypatch.setattr(AveragedSGD, "apply_step", apply)
    list(run_gradient_phase(job))
    assert len(history) == 12
    saved, current = load_file(tmp_path / "run" / FILE), job.network.state_dict()
    for name, tensor in saved.items():
        expected = torch.stack([weights[name].double() for weights in history[5:]]).mean(0)
        torch.testing.assert_close(tensor.double(), expected, rtol=1e-5, atol=1e-6)
        assert not torch.allclose(tensor, history[-1][name], rtol=1e-4, atol=1e-5)
        assert torch.equal(current[name], tensor), name  # the next phase starts from them


def test_nt_asgd_validates_with_averages_without_changing_training(tmp_path: Path) -> None:
    losses = []
    for every in (3, 15):
        phase = {**PHASE, "steps": 15, "validate_every": every}
        job = make_small_job(tmp_path / str(every), "awd-lstm", MODEL, SIZE, TRAIN, HELD_OUT, **phase)
        losses.append(filter_events(list(run_gradient_phase(job)), VALID)[-1].values["valid"])
    assert losses[0] == losses[1]


def test_nt_asgd_trigger_in_training_equals_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = [3.0, 2.9, 2.0, 2.6, 2.7, 2.8, 2.95, 2.85, 2.5, 1.9, 1.8]
    remaining = iter(losses)
    monkeypatch.setattr(Trainer, "compute_validation", lambda self: Validation(next(remaining)))
    options = {"kind": "nt-asgd", "rate": 1.0, "patience": 5}
    phase = {**PHASE, "optimizer": options, "steps": len(losses), "validate_every": 1}
    job = make_small_job(tmp_path / "run", "awd-lstm", MODEL, SIZE, TRAIN, HELD_OUT, **phase)
    events = filter_events(list(run_gradient_phase(job)), VALID)
    assert [e.step for e in events if e.values.get("averaging")] == [9]  # after the ninth validation, 2.5


@pytest.mark.parametrize("at", [4, 9])  # before and during averaging
def test_nt_asgd_resume_gives_bit_identical_result(at: int, tmp_path: Path) -> None:
    def job(name: str, stop: Any = lambda: False) -> Any:
        phase = {**PHASE, "steps": 14, "validate_every": 7, "save_every": 0}
        return make_small_job(tmp_path / name, "awd-lstm", MODEL, SIZE, TRAIN, HELD_OUT, stop, **phase)

    list(run_gradient_phase(job("straight")))
    calls = iter(range(1, 99))
    assert list(run_gradient_phase(job("interrupted", lambda: next(calls) == at)))[-1].values["reason"] == "interrupted"
    list(run_gradient_phase(job("interrupted")))
    states = [RunFolder(tmp_path / name).load_state() for name in ("straight", "interrupted")]
    assert states[0] is not None
    assert states[1] is not None
    assert states[0][0].keys() == states[1][0].keys()
    assert any("mean" in name for name in states[0][0])
    for name, tensor in states[0][0].items():
        assert torch.equal(tensor, states[1][0][name]), name
    assert states[0][1]["validations"] == states[1][1]["validations"]
    assert (tmp_path / "straight" / FILE).read_bytes() == (tmp_path / "interrupted" / FILE).read_bytes()


def test_nt_asgd_step_equals_torch_with_clip_decay_and_length_scaled_rate(tmp_path: Path) -> None:
    """One step equals torch: gradient, clip_grad_norm_, SGD with decay at rate · length / 6."""
    phase = {**PHASE, "steps": 1, "clip": 0.05, "optimizer": {"kind": "nt-asgd", "rate": 2.0, "weight_decay": 0.3}}
    trainer = Trainer(make_small_job(tmp_path / "run", "awd-lstm", MODEL, SIZE, TRAIN, None, **phase))
    twin = make_small_job(tmp_path / "twin", "awd-lstm", MODEL, SIZE, TRAIN, None, **phase).network.train()
    batch = next(trainer.batches())
    assert batch.scale == batch.targets.shape[1] / 6 != 1
    torch.manual_seed(1)
    trainer.step(iter([batch]))
    torch.manual_seed(1)
    trainer.objective.loss(twin, batch, None).value.backward()
    norm = nn.utils.clip_grad_norm_(twin.parameters(), 0.05)
    assert norm > 0.1
    torch.optim.SGD(twin.parameters(), lr=2.0 * batch.scale, weight_decay=0.3).step()
    for (name, p), q in zip(trainer.network.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6, msg=name)


def test_graph_step_function_without_capture_equals_plain_step(tmp_path: Path) -> None:
    """Without a GPU: same weights, averages, nats, norm, and carried state."""
    results = []
    for as_graph in (False, True):
        job = make_small_job(tmp_path / str(as_graph), "awd-lstm", MODEL, SIZE, TRAIN, None, steps=9, **PHASE)
        trainer = Trainer(job)
        trainer.begin()
        batches = trainer.batches()
        state = trainer.network.train().initial(4)
        for _ in range(9):
            if as_graph:
                batch = next(batches)
                trainer.set_rate(batch.scale)
                trainer.optimizer.prepare_step()
                state = tuple(tuple(m.detach() for m in layer) for layer in compute_step(trainer, batch, state))
                trainer.steps_done += 1
            else:
                trainer.step(batches)
                state = trainer.state
        means = [trainer.optimizer.state[p]["mean"] for p in trainer.network.parameters()]
        memories = [m for layer in state for m in layer]
        results.append([*trainer.network.parameters(), *means, *memories, trainer.nats, trainer.grad_norm])
    for plain, replayed in zip(*results, strict=True):
        torch.testing.assert_close(plain, replayed, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------------------ CUDA graphs


def test_graphs_without_gpu_are_ignored(tmp_path: Path) -> None:
    weights = []
    for graphs in (False, True):
        phase = {**PHASE, "steps": 4, "cuda_graphs": graphs}
        job = make_small_job(tmp_path / str(graphs), "awd-lstm", MODEL, SIZE, TRAIN, None, **phase)
        list(run_gradient_phase(job))
        weights.append(list(job.network.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


def test_graphs_with_accumulation_raise(tmp_path: Path) -> None:
    changes = {"accumulate": 2, "cuda_graphs": True}
    job = make_small_job(tmp_path / "run", "awd-lstm", MODEL, SIZE, TRAIN, None, **{**PHASE, "steps": 4, **changes})
    for check in (Trainer, Trainer.check):
        with pytest.raises(InvalidSetting) as invalid:
            check(job)
        assert (invalid.value.key, invalid.value.value) == ("accumulate", 2)


def test_batches_of_one_time_step_keep_losses_finite(tmp_path: Path) -> None:
    """Rows of 14 ids, read 6 at a time, end in a segment of one time step."""
    phase = {
        **PHASE,
        "batches": {"kind": "variable", "rows": 4, "length": 6, "length_std": 0.0, "half_probability": 0.0},
        "steps": 7,
    }
    job = make_small_job(tmp_path / "run", "awd-lstm", MODEL, SIZE, TRAIN[:56], None, **phase)
    lengths = [length for _, length in Trainer(job).objective.layout.segments(14, 1, 0)]
    assert lengths == [6, 6, 1]
    events = list(run_gradient_phase(job))
    assert all(math.isfinite(e.values["loss"]) for e in events if "loss" in e.values)
    assert all(torch.isfinite(p).all() for p in job.network.parameters())
