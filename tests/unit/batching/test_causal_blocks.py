"""Blocks of a packed stream; activation checkpointing, accumulation, and compiling of transformer networks."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from nextword.batching.causal import Blocks
from nextword.core.errors import DataError, InvalidSetting, NextwordError
from nextword.core.types import Batch, Inputs, Vocabulary
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.training.trainer import Trainer, run_gradient_phase
from tests.support.small_job import draw_walk, make_small_job

IDS = np.arange(103, dtype=np.uint16)


def take_batches(layout: Blocks, n: int, seed: int = 1, step: int = 0) -> list[Batch]:
    return list(islice(layout.batches(IDS, seed, step), n))


@pytest.mark.parametrize("order", ["shuffled", "random", "sequential"])
def test_targets_follow_inputs_and_batch_depends_on_its_step_alone(order: str) -> None:
    layout = Blocks(rows=3, length=7, order=order)
    batches = take_batches(layout, 12)
    for batch in batches:
        assert batch.reset_state
        assert batch.inputs.ids.shape == (3, 7)
        assert torch.equal(batch.targets, batch.inputs.ids + 1)
    for k in (0, 4, 5, 11):  # the same from any start
        resumed = take_batches(layout, 1, step=k)[0]
        assert torch.equal(resumed.inputs.ids, batches[k].inputs.ids)
        assert resumed.epoch == batches[k].epoch
    if order != "sequential":
        assert not torch.equal(take_batches(layout, 1, seed=2)[0].inputs.ids, batches[0].inputs.ids)


@pytest.mark.parametrize("order", ["shuffled", "sequential"])
def test_epoch_reads_every_block_once(order: str) -> None:
    layout = Blocks(rows=2, length=17, order=order)  # six blocks: three batches
    assert layout.batches_per_epoch(IDS) == 3
    for epoch in range(3):
        batches = take_batches(layout, 3, step=3 * epoch)
        assert {b.epoch for b in batches} == {epoch}
        ids = torch.cat([b.inputs.ids for b in batches]).flatten().tolist()
        assert len(set(ids)) == len(ids) == 102
    cuts = {int(take_batches(layout, 1, step=3 * e)[0].inputs.ids[0, 0]) % 17 for e in range(20)}
    assert len(cuts) == 1  # 103 tokens leave no room to shift 6 blocks of 17
    shifted = {int(next(Blocks(1, 20).batches(IDS, 1, 5 * e)).inputs.ids[0, 0]) % 20 for e in range(20)}
    assert len(shifted) == 3  # 2 tokens are left over: three possible starts


def test_validation_predicts_every_token_once() -> None:
    batches = list(Blocks(rows=2, length=10).validation_batches(IDS))
    targets = torch.cat([b.targets.flatten() for b in batches]).tolist()
    assert sorted(targets) == list(range(1, 103))


@pytest.mark.parametrize(
    ("key", "value"),
    [("rows", 0), ("length", 2.5), ("order", "odd")],
)
def test_invalid_settings_are_rejected(key: str, value: object) -> None:
    with pytest.raises(InvalidSetting) as error:
        Blocks(**{key: value})  # type: ignore[arg-type]
    assert (error.value.key, error.value.value) == (f"batches.{key}", value)


def test_text_shorter_than_a_block_is_rejected() -> None:
    with pytest.raises(DataError, match="103 tokens"):
        Blocks(length=200).batches_per_epoch(IDS)


# ------------------------------------------------------------------------------------------------ training

MODEL = {"width": 16, "layers": 2, "heads": 2, "window": 8, "dropout": 0.0}
PHASE = {
    "batches": {"kind": "blocks", "rows": 4, "length": 8},
    "optimizer": {"kind": "adamw", "rate": 0.01, "weight_decay": 0.1, "decay_on": "matrices"},
    "schedule": {"kind": "cosine", "warmup": 0.1},
    "clip": 1.0,
    "log_every": 1,
}


def test_checkpointing_gives_the_same_gradients() -> None:
    torch.manual_seed(0)
    network = GPT2(GPT2Config(**{**MODEL, "dropout": 0.3}), Vocabulary(30, 0))  # type: ignore[arg-type]
    ids = torch.randint(0, 30, (3, 8))
    gradients = []
    for checkpointing in (False, True):
        network.checkpointing = checkpointing
        network.zero_grad()
        torch.manual_seed(7)
        network.hidden(Inputs(ids), None)[0][-1].pow(2).sum().backward()
        gradients.append([p.grad.clone() for p in network.parameters() if p.grad is not None])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)


def test_accumulated_batches_equal_one_large_batch(tmp_path: Path) -> None:
    """Four sequential batches of two rows hold the same rows as one batch of eight."""
    weights = []
    for rows, accumulate in ((8, 1), (2, 4)):
        phase = {**PHASE, "batches": {"kind": "blocks", "rows": rows, "length": 8, "order": "sequential"}, "steps": 3}
        phase["optimizer"] = {"kind": "sgd", "rate": 0.5}  # Adam would amplify rounding where a gradient is zero
        job = make_small_job(
            tmp_path / str(rows),
            "gpt2",
            MODEL,
            30,
            draw_walk(29, 600),
            draw_walk(29, 100),
            **phase,
            accumulate=accumulate,
        )
        list(run_gradient_phase(job))
        weights.append(job.network.state_dict())
    for name, weight in weights[0].items():
        torch.testing.assert_close(weights[1][name], weight, rtol=1e-4, atol=1e-6)


def test_compiling_and_checkpointing_need_attention_blocks(tmp_path: Path) -> None:
    for key in ("compile", "checkpointing"):
        phase = {"steps": 1, key: True}
        job = make_small_job(tmp_path / key, "lstm", {"width": 8}, 30, draw_walk(29, 300), None, **phase)
        with pytest.raises(NextwordError, match=key):
            Trainer(job)


def test_flops_are_six_times_the_weights_plus_attention() -> None:
    """The published 124M model at 1,024 tokens: 6 · 123.65 M + 12 · 12 · 768 · 1,024."""
    with torch.device("meta"):
        network = GPT2(GPT2Config(), Vocabulary(50257, 50256))
    assert network.flops_per_token(1024) == 6 * (124_439_808 - 1024 * 768) + 12 * 12 * 768 * 1024
