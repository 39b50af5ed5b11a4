"""Segments of variable length depend only on (seed, epoch), read every token once per epoch, and follow the paper."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nextword.batching.causal import Variable
from nextword.batching.token_stream import Stream
from nextword.core.errors import DataError, InvalidSetting
from nextword.core.types import Batch
from nextword.objectives.causal import CausalObjective


def values(batch: Batch) -> tuple[Any, ...]:
    return batch.inputs.ids.tolist(), batch.targets.tolist(), batch.reset_state, batch.epoch, batch.scale


def epoch_of(layout: Variable, ids: np.ndarray, seed: int, epoch: int) -> list[Batch]:
    out = []
    for batch in layout.batches(ids, seed, 0):
        if batch.epoch > epoch:
            return out
        if batch.epoch == epoch:
            out.append(batch)
    raise AssertionError("batches never end")


LAYOUTS = st.builds(
    Variable,
    rows=st.integers(1, 6),
    length=st.integers(1, 30),
    length_std=st.floats(0, 10),
    half_probability=st.floats(0, 1),
    min_length=st.integers(1, 8),
)


@given(layout=LAYOUTS, length=st.integers(12, 400), seed=st.integers(0, 9), epoch=st.integers(0, 2))
def test_every_token_is_predicted_once_per_epoch(layout: Variable, length: int, seed: int, epoch: int) -> None:
    ids = np.arange(length)
    batches = epoch_of(layout, ids, seed, epoch)
    width = length // layout.rows
    assert [b.reset_state for b in batches] == [True] + [False] * (len(batches) - 1)
    joined = torch.cat([b.inputs.ids for b in batches], 1)
    assert joined.tolist() == [[row * width + t for t in range(width - 1)] for row in range(layout.rows)]
    for b in batches:
        n = b.targets.shape[1]
        assert torch.equal(b.targets, b.inputs.ids + 1)  # the ids count upwards
        assert b.scale == n / layout.length
    assert all(b.targets.shape[1] >= layout.min_length for b in batches[:-1])  # the last is the remainder
    assert batches[-1].targets.shape[1] >= 1


@given(layout=LAYOUTS, length=st.integers(12, 200), first=st.integers(0, 60))
def test_batches_resume_at_any_step(layout: Variable, length: int, first: int) -> None:
    ids = np.arange(length)
    straight = [values(b) for b in islice(layout.batches(ids, 1, 0), first + 12)]
    assert [values(b) for b in islice(layout.batches(ids, 1, first), 12)] == straight[first:]


def test_lengths_depend_on_seed_and_epoch_alone() -> None:
    layout = Variable(4, 20)
    segments = layout.segments(500, 3, 7)
    np.random.seed(0)
    torch.manual_seed(0)
    assert layout.segments(500, 3, 7) == segments
    others = [layout.segments(500, 3, 8), layout.segments(500, 4, 7), layout.segments(500, 7, 3)]
    assert all(other != segments for other in others)
    # a shorter text has the same segments up to its end, and the number of rows does not matter
    assert layout.segments(300, 3, 7)[:-1] == [p for p in segments if sum(p) < 299]
    assert Variable(9, 20).segments(500, 3, 7) == segments


def test_lengths_follow_the_distribution_of_the_paper() -> None:
    """A mean of 70 with probability 0.95, else 35; a standard deviation of 5; rounded down."""
    layout = Variable(20, 70)
    lengths = np.array([n for epoch in range(40) for _, n in layout.segments(40_000, 1, epoch)[:-1]])
    short = lengths < 52
    assert len(lengths) > 20_000
    assert short.mean() == pytest.approx(0.05, abs=0.006)
    assert lengths[~short].mean() == pytest.approx(69.5, abs=0.2)
    assert lengths[short].mean() == pytest.approx(34.5, abs=0.6)
    assert lengths[~short].std() == pytest.approx(5, abs=0.15)
    assert lengths[short].std() == pytest.approx(5, abs=0.5)
    assert layout.batches_per_epoch(np.zeros(40_000 * 20)) == pytest.approx(len(lengths) / 40 + 1, rel=0.02)
    constant = Variable(1, 10, length_std=0, half_probability=0)
    assert constant.segments(101, 1, 0) == [(10 * i, 10) for i in range(10)]
    assert constant.batches_per_epoch(np.zeros(101)) == 10


def test_only_the_last_segment_is_shorter_than_min_length() -> None:
    lengths = [n for epoch in range(50) for _, n in Variable(1, 6, length_std=5).segments(400, 1, epoch)[:-1]]
    assert min(lengths) == 5
    assert lengths.count(5) > len(lengths) / 4


def test_objective_has_variable_batches_and_scales_the_rate() -> None:
    objective = CausalObjective(
        {"kind": "variable", "rows": 2, "length": 8, "length_std": 2.0, "half_probability": 0.2, "min_length": 2}
    )
    ids = np.arange(200)
    batches = list(islice(objective.batches(Stream.from_ids(ids), 1, 0), 10))
    # the mean length is 0.8 · 8 + 0.2 · 4, minus a half for rounding down
    assert objective.batches_per_epoch(Stream.from_ids(ids)) == round(99 / 6.7)
    assert len({b.scale for b in batches}) > 2


@pytest.mark.parametrize("length", [2, 3, 7])
def test_tiny_texts_give_one_short_segment_per_epoch(length: int) -> None:
    layout, ids = Variable(1, 70), np.arange(length)
    assert layout.batches_per_epoch(ids) == 1
    batches = list(islice(layout.batches(ids, 1, 0), 3))
    assert [b.epoch for b in batches] == [0, 1, 2]
    assert [b.inputs.ids.tolist() for b in batches] == [[list(range(length - 1))]] * 3
    assert all(b.reset_state and b.scale == (length - 1) / 70 for b in batches)


def test_too_short_text_is_rejected() -> None:
    with pytest.raises(DataError, match="39 tokens"):
        Variable().batches_per_epoch(np.arange(39))
    with pytest.raises(DataError, match="39 tokens"):
        next(Variable().batches(np.arange(39), 1, 0))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rows", 0),
        ("length", 0),
        ("min_length", 0),
        ("length_std", -1.0),
        ("half_probability", 1.5),
        ("half_probability", -0.1),
    ],
)
def test_invalid_settings_are_rejected(key: str, value: float) -> None:
    with pytest.raises(InvalidSetting) as error:
        Variable(**{key: value})  # type: ignore[arg-type]
    assert (error.value.key, error.value.value) == (f"batches.{key}", value)


@given(layout=LAYOUTS, length=st.integers(12, 400), seed=st.integers(0, 9), epoch=st.integers(0, 2))
def test_rotated_rows_start_anywhere_and_wrap_around(layout: Variable, length: int, seed: int, epoch: int) -> None:
    ids = np.arange(length)
    plain, rotated = (epoch_of(variant, ids, seed, epoch) for variant in (layout, replace(layout, rotate=True)))
    width = length // layout.rows
    assert [b.targets.shape for b in rotated] == [b.targets.shape for b in plain]  # the lengths are the same
    joined = torch.cat([*(b.inputs.ids for b in rotated), rotated[-1].targets[:, -1:]], 1)
    for row, tokens in enumerate(joined.tolist()):
        first = tokens[0] - row * width
        assert tokens == [row * width + (first + t) % width for t in range(width)]


def test_rotation_depends_on_epoch_and_row_and_resumes_at_any_step() -> None:
    layout, ids = Variable(8, 20, rotate=True), np.arange(8 * 500)
    first = [epoch_of(layout, ids, 1, epoch)[0].inputs.ids[:, 0] % 500 for epoch in (0, 1)]
    assert len({*first[0].tolist()}) > 4
    assert not torch.equal(*first)
    straight = [values(b) for b in islice(layout.batches(ids, 1, 0), 60)]
    assert [values(b) for b in islice(layout.batches(ids, 1, 31), 29)] == straight[31:]
