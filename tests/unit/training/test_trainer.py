"""The trainer: steps, budgets, stopping, and saved weights, on synthetic ids."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nextword.core.errors import InvalidSetting, UnknownName
from nextword.core.types import Batch, Inputs, Vocabulary
from nextword.models import model_class
from nextword.models.nplm import NPLM
from nextword.objectives.causal import CausalObjective
from nextword.run_folder import RunFolder
from nextword.training import trainer as loop
from nextword.training.events import BEGIN, STEP, VALID
from nextword.training.trainer import Trainer, Validation, run_gradient_phase
from tests.support.small_job import (
    MODEL,
    ROWS,
    SIZE,
    TRAIN,
    VALIDATION,
    are_equal,
    copy_weights,
    filter_events,
    make_lstm_job,
    run_lstm_job,
    train_small_job,
)

WINDOWS = {"kind": "windows", "rows": 8, "context": 3}
PER_EPOCH = 20  # 405 ids in 4 rows of 101: 100 predictions per row, 5 at a time


# ------------------------------------------------------------------------------------------------ one step


def test_training_steps_equal_plain_torch_loop(tmp_path: Path) -> None:
    """Three steps equal a plain torch loop, with carried state, clipping, and rate."""
    small = make_lstm_job(tmp_path / "run", steps=3, clip=0.5, optimizer={"kind": "sgd", "rate": 0.7}, valid=None)
    cls = model_class("lstm")
    plain = cls(cls.Config(**MODEL), Vocabulary(SIZE, SIZE - 1))
    plain.load_state_dict(copy_weights(small.network))
    list(run_gradient_phase(small))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.7)
    table = torch.from_numpy(TRAIN[:404].reshape(4, 101).astype(np.int64))
    state = None
    for step in range(3):
        part = table[:, step * 5 : step * 5 + 6]
        layers, state = plain.hidden(Inputs(part[:, :-1]), state)
        state = tuple(tuple(t.detach() for t in memory) for memory in state)
        loss = nn.functional.cross_entropy(plain.readout.logits(layers[-1]).flatten(0, 1), part[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        optimizer.step()
    for name, t in copy_weights(small.network).items():
        torch.testing.assert_close(t, copy_weights(plain)[name], rtol=1e-5, atol=1e-6)


def test_state_is_carried_within_an_epoch_and_reset_between_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resets: list[bool] = []
    plain = CausalObjective.loss

    def loss(self: CausalObjective, network: Any, batch: Batch, state: Any) -> Any:
        resets.append(state is None)
        return plain(self, network, batch, state)

    monkeypatch.setattr(CausalObjective, "loss", loss)
    run_lstm_job(tmp_path / "run", epochs=2, valid=None)
    assert resets == ([True] + [False] * (PER_EPOCH - 1)) * 2


def test_accumulation_of_two_half_batches_equals_one_full_batch(tmp_path: Path) -> None:
    options: dict[str, Any] = {"slug": "nplm", "model": {"context": 3, "embedding": 4, "width": 6}, "valid": None}
    options |= {"optimizer": {"kind": "sgd", "rate": 0.5}, "steps": 4}
    full, _ = run_lstm_job(tmp_path / "full", batches=WINDOWS, **options)
    halves, _ = run_lstm_job(tmp_path / "halves", batches={**WINDOWS, "rows": 4}, accumulate=2, **options)
    for name, t in copy_weights(full).items():
        torch.testing.assert_close(t, copy_weights(halves)[name], rtol=1e-5, atol=1e-7)


def test_clipping_limits_the_step_to_rate_times_clip(tmp_path: Path) -> None:
    """With plain SGD a step is rate × gradient, so its norm is at most rate × clip, and exactly that when clipped."""
    for clip, clipped in ((0.01, True), (1e6, False)):
        small = make_lstm_job(
            tmp_path / str(clip), steps=1, clip=clip, optimizer={"kind": "sgd", "rate": 1.0}, log_every=1, valid=None
        )
        before = copy_weights(small.network)
        (line,) = filter_events(list(run_gradient_phase(small)), STEP)
        distance = math.sqrt(sum(((t - before[n]) ** 2).sum().item() for n, t in copy_weights(small.network).items()))
        assert distance == pytest.approx(clip if clipped else line.values["norm"], rel=1e-3)
        assert line.values["norm"] > 0.01  # the logged norm is the one before clipping


def test_sequence_reduction_gradient_is_length_times_token_gradient() -> None:
    torch.manual_seed(0)
    network = NPLM(NPLM.Config(2, 3, 4), Vocabulary(SIZE, 0)).double()
    ids = torch.randint(SIZE, (4, 7))
    grads = []
    for reduce in ("token", "sequence"):
        loss = CausalObjective({"kind": "rows"}, reduce).loss(network, Batch(Inputs(ids[:, :-1]), ids[:, 1:]), None)
        assert loss.count == 24
        grads.append(torch.autograd.grad(loss.value, list(network.parameters())))
    for token, sequence in zip(*grads, strict=True):
        torch.testing.assert_close(sequence, 6 * token)


def test_unigram_bias_initial_loss_equals_unigram_model(tmp_path: Path) -> None:
    ids = np.repeat(np.arange(4), [400, 200, 100, 100]).astype(np.uint8)
    np.random.default_rng(0).shuffle(ids)
    small = make_lstm_job(
        tmp_path / "run", steps=1, train=ids, initialization={"kind": "zeros", "bias": "unigram"}, valid=None
    )
    trainer = Trainer(small)
    trainer.begin()
    loss = trainer.objective.loss(small.network, next(trainer.batches()), None)
    probabilities = (np.bincount(ids, minlength=SIZE) + 1) / (len(ids) + SIZE)
    targets = next(trainer.batches()).targets.numpy()
    assert loss.value.item() == pytest.approx(-np.log(probabilities[targets]).mean(), rel=1e-5)


def test_initial_table_with_invalid_value_raises(tmp_path: Path) -> None:
    with pytest.raises(UnknownName) as unknown:
        run_lstm_job(tmp_path / "run", steps=1, initialization={"kind": "xavierr"})
    assert unknown.value.name == "xavierr"
    for key, value in (("bias", "trigram"), ("scael", 1.0)):
        with pytest.raises(InvalidSetting) as invalid:
            run_lstm_job(tmp_path / key, steps=1, initialization={key: value})
        assert (invalid.value.key, invalid.value.value) == (f"initialization.{key}", value)


# ------------------------------------------------------------------------------------------------ budgets


def test_epochs_or_steps_limit_training_and_set_validations(tmp_path: Path) -> None:
    _, events = run_lstm_job(tmp_path / "epochs", epochs=1.5)
    assert (events[-1].step, events[-1].epoch, events[-1].values["reason"]) == (30, 1.5, "epochs")
    assert [e.step for e in filter_events(events, VALID)] == [20, 30]  # once per epoch, and at the end
    _, events = run_lstm_job(tmp_path / "steps", steps=17)
    assert (events[-1].step, events[-1].values["reason"]) == (17, "steps")
    assert [e.step for e in filter_events(events, VALID)] == list(range(1, 18))  # at least ten times
    _, events = run_lstm_job(tmp_path / "every", steps=17, validate_every=6)
    assert [e.step for e in filter_events(events, VALID)] == [6, 12, 17]
    assert events[0].values["steps"] == 17
    assert events[0].values["per_epoch"] == PER_EPOCH
    assert events[0].values["tokens"] == 405


def test_min_steps_extend_a_budget_in_epochs(tmp_path: Path) -> None:
    _, events = run_lstm_job(tmp_path / "few", epochs=0.5, min_steps=40)  # 20 steps per epoch
    assert (events[-1].step, events[-1].epoch) == (40, 2.0)
    assert [event.step for event in events if event.kind == VALID] == list(range(4, 41, 4))
    _, events = run_lstm_job(tmp_path / "enough", epochs=1.5, min_steps=10)
    assert events[-1].step == 30


def test_accumulation_counts_epochs_by_text_read(tmp_path: Path) -> None:
    _, events = run_lstm_job(tmp_path / "run", epochs=1, accumulate=4, valid=None)
    assert events[-1].step == PER_EPOCH // 4


def test_log_line_has_mean_loss_since_previous_line(tmp_path: Path) -> None:
    _, every_step = run_lstm_job(tmp_path / "every-1", steps=10, log_every=1, valid=None)
    _, every_fifth = run_lstm_job(tmp_path / "every-5", steps=10, log_every=5, valid=None)
    losses = [e.values["loss"] for e in filter_events(every_step, STEP)]
    assert len(losses) == 10
    means = [e.values["loss"] for e in filter_events(every_fifth, STEP)]
    assert means == pytest.approx([np.mean(losses[:5]), np.mean(losses[5:])])
    assert [e.values["seen"] for e in filter_events(every_fifth, STEP)] == [100, 200]


def test_minutes_are_converted_to_steps_before_training(tmp_path: Path) -> None:
    _, events = run_lstm_job(tmp_path / "run", minutes=0.003)
    assert events[0].kind == BEGIN
    assert events[0].values["steps"] >= 10
    assert events[-1].values["reason"] == "minutes"
    state = RunFolder(tmp_path / "run").load_state()
    assert state is not None
    assert events[-1].step == state[1]["step"] <= state[1]["total_steps"]  # fewer if the machine slowed down


def test_retime_corrects_the_number_of_steps_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine takes one step per second but was estimated at three: 10 minutes are 600 steps, not 1800."""
    trainer = Trainer(make_lstm_job(tmp_path / "run", minutes=10))
    monkeypatch.setattr(Trainer, "seconds", lambda self: float(self.steps_done))
    trainer.total_steps, trainer.validate_every = 1800, 180
    totals = []
    for trainer.steps_done in (1, 119, 120, 121, 599):
        trainer.retime()
        totals.append((trainer.total_steps, trainer.validate_every))
    assert totals == [(1800, 180)] * 2 + [(600, 60)] * 3
    resumed = Trainer(make_lstm_job(tmp_path / "run", minutes=10))
    assert resumed.restore()
    assert (resumed.total_steps, resumed.validate_every, resumed.is_budget_final) == (600, 60, True)


def test_retime_ignores_slow_first_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds of startup, then a hundred steps per second: 10 minutes are nearly 60,000 steps."""
    trainer = Trainer(make_lstm_job(tmp_path / "run", minutes=10))
    monkeypatch.setattr(Trainer, "seconds", lambda self: 10 + self.steps_done / 100)
    trainer.total_steps = 60
    for trainer.steps_done in range(1, 20_000):
        trainer.retime()
    assert trainer.is_budget_final
    assert 0.8 * 59_000 < trainer.total_steps <= 59_000


def test_timing_leaves_weights_randomness_and_counters_unchanged(tmp_path: Path) -> None:
    """Weights, randomness, optimizer, counters, and memory equal those of a run with a fixed number of steps."""
    jobs = {
        budget: make_lstm_job(
            tmp_path / budget, model={"width": 8, "dropout": 0.3}, initialization={"kind": "normal"}, **{budget: value}
        )
        for budget, value in (("minutes", 0.003), ("steps", 9))
    }
    trainers, random = {}, {}
    for budget, small in jobs.items():
        trainers[budget] = Trainer(small)
        trainers[budget].begin()
        random[budget] = torch.get_rng_state()
    timed, fixed = trainers["minutes"], trainers["steps"]
    timed.total_steps = fixed.total_steps
    assert are_equal(copy_weights(timed.network), copy_weights(fixed.network))
    assert torch.equal(random["minutes"], random["steps"])
    for trainer in (timed, fixed):
        assert (trainer.steps_done, trainer.predictions, trainer.steps_since_log, trainer.state) == (0, 0, 0, None)
        assert not trainer.optimizer.state
        assert trainer.nats == 0
        assert all(p.grad is None for p in trainer.network.parameters())
        torch.set_rng_state(random["steps"])
        trainer.step(trainer.batches())
    assert are_equal(copy_weights(timed.network), copy_weights(fixed.network))


def test_resume_with_minutes_keeps_the_number_of_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def stop() -> bool:
        nonlocal calls
        calls += 1
        return calls == 3

    _, events = run_lstm_job(tmp_path / "run", minutes=0.2, stop=stop)
    total = events[0].values["steps"]
    assert events[-1].values["reason"] == "interrupted"
    state = RunFolder(tmp_path / "run").load_state()
    assert state is not None
    assert (state[1]["total_steps"], state[1]["step"]) == (total, 3)
    monkeypatch.setattr(Trainer, "_set_budget_by_timing", lambda self: pytest.fail("the steps were timed again"))
    resumed = run_gradient_phase(make_lstm_job(tmp_path / "run", minutes=0.2))
    assert next(resumed).values["steps"] == total
    resumed.close()


def test_kill_after_timing_keeps_the_number_of_steps(tmp_path: Path) -> None:
    events = run_gradient_phase(make_lstm_job(tmp_path / "run", minutes=0.003))
    total = next(events).values["steps"]
    events.close()  # like a kill before the first step
    state = RunFolder(tmp_path / "run").load_state()
    assert state is not None
    assert (state[1]["step"], state[1]["total_steps"]) == (0, total)


# ------------------------------------------------------------------------------------------------ validation


def test_validation_leaves_trained_weights_unchanged(tmp_path: Path) -> None:
    model = {"width": 8, "dropout": 0.4}
    often, _ = run_lstm_job(tmp_path / "often", steps=12, validate_every=1, keep="last", model=model)
    never, _ = run_lstm_job(tmp_path / "never", steps=12, valid=None, model=model)
    assert are_equal(copy_weights(often), copy_weights(never))


def script_validations(monkeypatch: pytest.MonkeyPatch, values: list[float]) -> None:
    """Replace validation losses by the given values."""
    losses = iter(values)
    monkeypatch.setattr(Trainer, "compute_validation", lambda self: Validation(next(losses)))


def test_patience_stops_after_too_many_validations_without_improvement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script_validations(monkeypatch, [3, 2, 2.5, 1, 1, 2, 3, 0])
    _, events = run_lstm_job(tmp_path / "run", steps=8, validate_every=1, patience=2)
    assert (events[-1].step, events[-1].values["reason"]) == (7, "patience")
    assert [e.values["best"] for e in filter_events(events, VALID)] == [True, True, False, True, False, False, False]
    assert (events[-1].values["best_step"], events[-1].values["valid"]) == (4, 1)


def test_best_checkpoint_with_equal_metrics_has_lower_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = iter([(0.5, 9.0), (1.0, 3.0), (1.0, 2.0), (0.9, 1.0), (1.0, 2.5), (1.0, 1.5), (1.0, 0.5)])

    def compute_validation(self: Trainer) -> Validation:
        metric, nats = next(results)
        return Validation(nats, {"accuracy": metric})

    monkeypatch.setattr(Trainer, "compute_validation", compute_validation)
    _, events = run_lstm_job(tmp_path / "run", steps=9, validate_every=1, patience=3)
    assert [e.values["best"] for e in filter_events(events, VALID)] == [True, True, True, False, False, True]
    assert (events[-1].values["best_step"], events[-1].values["valid"]) == (6, 1.5)
    assert events[-1].values["reason"] == "patience"  # no metric exceeded the second


@pytest.mark.parametrize(("keep", "step"), [("best", 3), ("last", 6)])
def test_keep_saves_the_best_or_last_weights(
    keep: str, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script_validations(monkeypatch, [3, 2, 1, 2, 3, 4])
    network, _ = run_lstm_job(tmp_path / "run", steps=6, validate_every=1, keep=keep)
    monkeypatch.undo()
    straight, _ = run_lstm_job(tmp_path / "straight", steps=step, valid=None)
    saved = model_class("lstm").load(tmp_path / "run", network.config, network.vocabulary)
    assert are_equal(copy_weights(network), copy_weights(straight))
    assert are_equal(copy_weights(saved), copy_weights(straight))


def test_keep_without_validation_text_saves_the_last_weights(tmp_path: Path) -> None:
    network, _ = run_lstm_job(tmp_path / "run", steps=6, valid=None)
    saved = model_class("lstm").load(tmp_path / "run", network.config, network.vocabulary)
    assert are_equal(copy_weights(network), copy_weights(saved))


def test_validation_loss_is_the_mean_over_held_out_text(tmp_path: Path) -> None:
    network, events = run_lstm_job(tmp_path / "run", steps=3, validate_every=3)
    ids = torch.from_numpy(VALIDATION.astype(np.int64))[None]
    network.eval()
    log_p, _ = network.score(ids, torch.tensor([ids.shape[1]]), None)
    (event,) = filter_events(events, VALID)
    assert event.values["valid"] == pytest.approx(-log_p.double().mean().item(), rel=1e-5)
    assert event.values["perplexity"] == pytest.approx(math.exp(event.values["valid"]))


# ------------------------------------------------------------------------------------------------ learning


def test_training_reaches_a_low_validation_loss(tmp_path: Path) -> None:
    network, events = train_small_job(
        tmp_path / "run", "gru", {"width": 16}, SIZE, TRAIN, VALIDATION,
        batches=ROWS, optimizer={"kind": "adam", "rate": 0.03}, clip=1.0, epochs=6,
    )  # fmt: skip
    values = [e.values["valid"] for e in filter_events(events, VALID)]
    assert values[-1] < 0.75 * math.log(SIZE - 1)
    assert not network.training
    assert loop.VALIDATIONS == 10
