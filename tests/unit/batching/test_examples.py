"""Batches of labeled examples of different lengths, packed or padded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from nextword.batching.examples import Bucketed, Examples
from nextword.core.errors import InvalidSetting
from nextword.core.types import FramedText, Vocabulary
from nextword.models.bert import BERT, BERTConfig
from nextword.recipe import load_recipe
from nextword.tasks.classification import LabelObjective, TextHeadConfig
from nextword.tasks.heads import TextHead, mean_pool
from nextword.training.events import Job
from nextword.training.steps import RecordedPassesStep, batch_shape
from nextword.training.trainer import Trainer


def make_examples(n: int = 50, each: int = 1, packs: bool = True, seed: int = 0) -> Examples:
    draw = np.random.default_rng(seed)
    frames = []
    for _ in range(n * each):
        size = int(draw.integers(2, 12))
        frames.append(FramedText(draw.integers(5, 99, size), size - 1, np.arange(size) % 2))
    return Examples.from_frames(frames, labels=np.arange(n), each=each, packs=packs)


def make_head(pooling: str) -> TextHead:
    torch.manual_seed(4)
    config = BERTConfig(width=16, layers=2, heads=2, window=16, dropout=0.0)
    marks = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    network = BERT(config, Vocabulary(99, 2, marks))
    return TextHead(network, TextHeadConfig(frame="classify", pooling=pooling, dropout=0.0), 2)


def test_every_example_is_read_once_per_epoch_with_similar_lengths() -> None:
    text, layout = make_examples(70), Bucketed(rows=8, batches_per_bucket=3)
    batches = layout.batches(text, 1, 0)
    for _ in range(2):
        epoch = [next(batches) for _ in range(layout.batches_per_epoch(text))]
        assert sorted(i for batch in epoch for i in batch.targets.tolist()) == list(range(70))
    assert layout.batches_per_epoch(text) == 9
    order = layout.plan_epoch(text, 1, 0)
    spread = np.mean([np.ptp(text.lengths[chosen]) for chosen in order])
    assert spread < 4 < np.ptp(text.lengths)
    assert not np.array_equal(np.concatenate(order), np.concatenate(layout.plan_epoch(text, 2, 0)))
    assert not np.array_equal(np.concatenate(order), np.concatenate(layout.plan_epoch(text, 1, 1)))


def test_batch_depends_on_seed_and_step_alone() -> None:
    text, layout = make_examples(50), Bucketed(rows=8)
    batches = layout.batches(text, 3, 0)
    straight = [next(batches) for _ in range(12)]
    for step in (0, 5, 7, 11):
        resumed = next(layout.batches(text, 3, step))
        assert torch.equal(resumed.inputs.ids, straight[step].inputs.ids)
        assert torch.equal(resumed.targets, straight[step].targets)


@pytest.mark.parametrize("each", [1, 2])
def test_packed_and_padded_batches_hold_the_same_texts(each: int) -> None:
    text = make_examples(9, each)
    chosen = np.array([4, 0, 8])
    packed, padded = (Bucketed(pack=pack).batch(text, chosen, 0) for pack in (True, False))
    assert packed.inputs.starts is not None
    assert packed.inputs.starts[-1] == packed.inputs.ids.shape[1] == text.lengths[chosen].sum()
    assert padded.inputs.token_mask is not None
    mask = padded.inputs.token_mask
    assert torch.equal(padded.inputs.ids[mask], packed.inputs.ids[0])
    assert padded.inputs.segments is not None
    assert packed.inputs.segments is not None
    assert torch.equal(padded.inputs.segments[mask], packed.inputs.segments[0])
    assert mask[:, -1].any()  # no longer than the longest text
    first, second = (b.inputs.ids.reshape(-1)[b.target_positions] for b in (packed, padded))
    assert torch.equal(first, second)  # the same tokens are pooled
    frames = [int(i) * each + k for i in chosen for k in range(each)]
    assert first.tolist() == [int(text.ids[text.starts[f] + text.pooled_position[f]]) for f in frames]
    assert packed.targets.tolist() == [4, 0, 8]


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_padded_row_gives_the_same_outputs_and_gradients(pooling: str) -> None:
    text, chosen = make_examples(9), np.array([4, 0, 8])
    plain, padded = (Bucketed(length=16, pad_multiple=pad_multiple).batch(text, chosen, 0) for pad_multiple in (0, 16))
    assert padded.inputs.ids.shape[1] % 16 == 0
    assert padded.inputs.starts is not None
    assert len(padded.inputs.starts) == 5  # three texts and the padding text
    network = make_head(pooling)
    first, second = (network(batch) for batch in (plain, padded))
    torch.testing.assert_close(first, second)
    gradients = [
        torch.autograd.grad(outputs.square().sum(), list(network.out.parameters())) for outputs in (first, second)
    ]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)


def test_padded_rows_have_few_shapes() -> None:
    text, layout = make_examples(200), Bucketed(rows=8, length=16, pad_multiple=16)
    batches = layout.batches(text, 1, 0)
    shapes = {batch_shape(next(batches)) for _ in range(25)}
    assert len(shapes) <= 6
    assert batch_shape(layout.batch(text, np.arange(8), 0)) != batch_shape(layout.batch(text, np.arange(7), 0))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU for CUDA graphs")
def test_graph_passes_train_like_eager_passes(tmp_path: Any) -> None:
    text = make_examples(64)
    text = replace(text, labels=text.labels % 2, metrics=("accuracy",))
    phase = load_recipe(
        "bert/finetune", ["phase.0.batches.rows=8", "phase.0.batches.length=16", "phase.0.epochs=0", "phase.0.steps=40"]
    ).phases[0]
    results = []
    for graphs in (True, False):
        network = make_head("last").cuda()
        trainer = Trainer(
            Job(network, replace(phase, cuda_graphs=graphs), 0, text, None, False, None, torch.device("cuda"))
        )
        assert isinstance(trainer.take_step, RecordedPassesStep) == graphs
        batches = trainer.batches()
        for _ in range(40):
            trainer.step(batches)
        if isinstance(trainer.take_step, RecordedPassesStep):
            assert trainer.take_step.recorded
        results.append([trainer.nats.float(), *(p.detach().float() for p in network.parameters())])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-3)


def test_regression_loss_is_the_squared_error() -> None:
    text = replace(make_examples(5), labels=np.array([0.5, -3.0, 0.0, 2.0, 7.0], np.float32))
    network = make_head("mean").eval()
    network.out = torch.nn.Linear(16, 1)
    batch = Bucketed().batch(text, np.arange(5), 0)
    with torch.no_grad():
        loss = LabelObjective({}).loss(network, batch, None)
        errors = network(batch)[:, 0] - batch.targets
    assert float(loss.value) == pytest.approx(float((errors**2).mean()), rel=1e-6)
    assert float(loss.nats) == pytest.approx(float((errors**2).sum()), rel=1e-6)


def test_first_takes_the_examples_of_the_first_tokens() -> None:
    text = make_examples(20, 2)
    part = text.first(40)
    assert 1 <= len(part) < 20
    assert len(part.ids) == part.starts[-1] <= 40
    assert len(part.pooled_position) == 2 * len(part)
    assert text.first(None) is text
    assert len(text.first(1)) == 1


@pytest.mark.parametrize(
    ("batches", "options", "key"),
    [
        ({"rows": 0}, {}, "batches.rows"),
        ({"pack": "yes"}, {}, "batches.pack"),
        ({"pad_multiple": 500}, {}, "batches.pad_multiple"),
        ({"width": 3}, {}, "batches.width"),
        ({"kind": "rows"}, {}, "batches.kind"),
        ({}, {"lm_weight": -1}, "objective.lm_weight"),
    ],
)
def test_invalid_settings_are_rejected(batches: dict[str, Any], options: dict[str, float], key: str) -> None:
    with pytest.raises(InvalidSetting) as error:
        LabelObjective(batches, **options)
    assert error.value.key == key


def test_mean_pooling_is_equal_for_packed_and_padded() -> None:
    text = make_examples(6)
    packed, padded = (Bucketed(pack=pack).batch(text, np.arange(6), 0) for pack in (True, False))
    h = torch.randn(99, 4)
    a, b = (mean_pool(h[batch.inputs.ids], batch.inputs) for batch in (packed, padded))
    assert torch.allclose(a, b, atol=1e-6)
    for i in range(6):
        ids = text.ids[text.starts[i] : text.starts[i + 1]]
        assert torch.allclose(a[i], h[ids].mean(0), atol=1e-6)
