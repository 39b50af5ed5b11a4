"""Readouts in the trainer: fitted before the first step, saved, resumed, and loaded without the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nextword
from nextword.core.errors import InvalidSetting
from nextword.models import model_class
from nextword.recipe import load_recipe
from nextword.training.schedules import Progress, Schedule
from nextword.training.train import train_events
from nextword.training.trainer import Trainer
from tests.support.errors import raises
from tests.support.small_job import draw_walk, filter_events, make_small_job, train_small_job

SIZE = 40
READOUTS: dict[str, dict[str, Any]] = {
    "classes": {"kind": "classes", "by": "brown"},
    "tree": {"kind": "tree"},
    "adaptive": {"kind": "adaptive", "cutoffs": [5, 20]},
    "sampled": {"kind": "sampled", "samples": 20},
    "nce": {"kind": "nce", "samples": 20},
    "mixture": {"kind": "mixture", "experts": 3},
}
PHASE: dict[str, Any] = {
    "batches": {"kind": "rows", "rows": 8, "length": 10},
    "optimizer": {"kind": "adam", "rate": 0.01},
    "steps": 60,
    "log_every": 10,
    "validate_every": 30,
}


@pytest.mark.parametrize("kind", READOUTS)
def test_readout_trains_saves_and_loads(kind: str, tmp_path: Path) -> None:
    train_ids, valid = draw_walk(SIZE - 1, 4000), draw_walk(SIZE - 1, 600, seed=1)
    model = {"width": 24, "readout": READOUTS[kind]}
    network, events = train_small_job(tmp_path / "run", "lstm", model, SIZE, train_ids, valid, **PHASE)
    nats = [event.values["valid"] for event in filter_events(events, "valid")]
    assert nats[-1] < 0.8 * np.log(SIZE)  # validation is exact, even for readouts trained on samples
    if kind != "mixture":
        buffers = [b for name, b in network.readout.named_buffers() if name.endswith("prepared")]
        assert [bool(b) for b in buffers] == [True]
    loaded = type(network).load(tmp_path / "run", network.config, network.vocabulary)
    ids = torch.from_numpy(valid[:50].astype(np.int64))[None]
    lengths = torch.tensor([50])
    expected, _ = network.score(ids, lengths, None)
    result, _ = loaded.score(ids, lengths, None)
    torch.testing.assert_close(result, expected, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["classes", "sampled"])
def test_interrupted_run_resumes_bit_identically(kind: str, tmp_path: Path) -> None:
    model, inputs = {"width": 8, "readout": READOUTS[kind]}, 0

    def stop() -> bool:
        nonlocal inputs
        inputs += 1
        return inputs == 17

    data = (draw_walk(SIZE - 1, 2000), draw_walk(SIZE - 1, 600, seed=1))
    phase = {**PHASE, "log_every": 1, "steps": 30}
    straight, _ = train_small_job(tmp_path / "straight", "rnn", model, SIZE, *data, **phase)
    train_small_job(tmp_path / "broken", "rnn", model, SIZE, *data, stop=stop, **phase)
    broken, _ = train_small_job(tmp_path / "broken", "rnn", model, SIZE, *data, **phase)
    for name, tensor in straight.state_dict().items():
        assert torch.equal(tensor, broken.state_dict()[name]), name


def test_class_softmax_takes_classes_from_the_training_text(tmp_path: Path) -> None:
    """The most frequent id is alone in its class, whatever its number."""
    ids = np.where(np.arange(4000) % 2, 31, np.arange(4000) % 39).astype(np.uint8)
    job = make_small_job(tmp_path / "run", "rnn", {"width": 8, "readout": {"kind": "classes"}}, SIZE, ids, **PHASE)
    Trainer(job).begin()
    classes = job.network.readout.classes_of
    assert (classes == classes[31]).sum() == 1
    assert len(classes.unique()) == job.network.readout.classes == 6


def test_unigram_bias_needs_a_readout_with_word_biases(tmp_path: Path) -> None:
    model = {"width": 8, "readout": {"kind": "tree"}}
    job = make_small_job(
        tmp_path / "run", "rnn", model, SIZE, draw_walk(SIZE - 1, 900), initialization={"bias": "unigram"}, **PHASE
    )
    with raises(InvalidSetting, key="initialization.bias"):
        Trainer(job)
    model = {"width": 8, "readout": {"kind": "sampled"}}
    job = make_small_job(
        tmp_path / "other", "rnn", model, SIZE, draw_walk(SIZE - 1, 900), initialization={"bias": "unigram"}, **PHASE
    )
    trainer = Trainer(job)
    trainer.begin()
    assert job.network.readout.output_bias.argmin() == SIZE - 1  # never occurs


@pytest.mark.parametrize("slug", ["gru", "awd-lstm"])
def test_adaptive_readout_normalizes_in_other_networks(slug: str, tmp_path: Path) -> None:
    job = make_small_job(tmp_path / "run", "rnn", {}, SIZE, draw_walk(30, 900), **PHASE)
    model = {"embedding": 8, "width": 8, "layers": 1, "tied": False, "readout": READOUTS["adaptive"]}
    cls = model_class(slug)
    network = cls(cls.Config(**model), job.network.vocabulary).eval()
    log_p, _ = network.step(*network.start(2))
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(2))


def test_recipe_with_characters_in_and_out_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Input and output are character CNNs, so only biases grow with the vocabulary."""
    monkeypatch.setenv("NEXTWORD_CACHE", str(tmp_path / "cache"))
    filters = "filters=[[1,8],[2,16],[3,16]]"
    recipe = load_recipe(
        "lstm/tiny",
        [
            "phase.0.steps=40",
            "tokenizer={kind='words', size=300}",
            f"model.characters={{{filters}, highway=1}}",
            f"model.readout={{kind='spelled', {filters}, highway=1, samples=64}}",
        ],
    )
    list(train_events(recipe, tmp_path / "run", device="cpu"))
    lm = nextword.load(tmp_path / "run", device="cpu")
    size = len(lm.tokenizer)
    assert [n for n, p in lm.network.named_parameters() if size in p.shape] == ["readout.words.bias"]
    score = lm.score("the value of the type")
    assert score.nats / score.tokens < 0.9 * np.log(size)


def test_slowing_schedule_halves_from_the_first_slow_validation_on() -> None:
    schedule = Schedule(0.1, {"kind": "slowing", "ratio": 1.003})
    nats = [6.0, 5.5, 5.3, 5.29, 5.1, 5.09]  # 5.3 → 5.29 is a gain of 0.19 %
    rates = [schedule(Progress(0, 0, 0.0, nats[:n])) for n in range(7)]
    assert rates == pytest.approx([0.1, 0.1, 0.1, 0.1, 0.05, 0.025, 0.0125])


@pytest.mark.parametrize("name", ["rnn/mikolov-ptb", "lstm/sundermeyer-ptb"])
def test_recipe_with_classes_trains(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_CACHE", str(tmp_path / "cache"))
    small = ["phase.0.steps=120", "model.width=16", "tokenizer.size=500", "phase.0.data=python", "phase.0.log_every=30"]
    events = list(train_events(load_recipe(name, small), tmp_path / "run", device="cpu"))
    losses = [e.values["loss"] for e in events if e.kind == "step"]
    assert losses[-1] < losses[0] < np.log(500) + 1
    assert nextword.load(tmp_path / "run", device="cpu").network.readout.classes == 100
