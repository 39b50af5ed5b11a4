"""Windows shifted by one token per epoch: all windows of the overlapping list, in an order that can carry state."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nextword.batching.causal import Rows, Shifted
from nextword.batching.token_stream import Stream
from nextword.core.errors import DataError, InvalidSetting
from nextword.core.types import Batch, Vocabulary
from nextword.models.rnn import LSTM, RecurrentConfig
from nextword.objectives.causal import CausalObjective


def values(batch: Batch) -> tuple[Any, ...]:
    return batch.inputs.ids.tolist(), batch.targets.tolist(), batch.reset_state, batch.epoch, batch.scale


def epochs(layout: Shifted, ids: np.ndarray, count: int) -> list[list[Batch]]:
    out: list[list[Batch]] = [[] for _ in range(count)]
    for batch in layout.batches(ids, 1, 0):
        if batch.epoch == count:
            return out
        out[batch.epoch].append(batch)
    raise AssertionError("batches never end")


@st.composite
def layouts(draw: st.DrawFn) -> Shifted:
    length = draw(st.integers(1, 12))
    by = draw(st.integers(1, length).filter(lambda n: np.gcd(n, length) == 1))
    return Shifted(draw(st.integers(1, 4)), length, by)


def test_segments_match_the_docstring() -> None:
    expected = [["0123", "4567", "8"], ["0", "1234", "5678"], ["01", "2345", "678"], ["012", "3456", "78"]]
    actual = epochs(Shifted(1, 4), np.arange(10), 5)
    assert [["".join(map(str, b.inputs.ids[0].tolist())) for b in epoch] for epoch in actual] == [
        *expected,
        expected[0],
    ]


@given(layout=layouts(), length=st.integers(8, 150))
def test_every_token_is_predicted_once_per_epoch_with_carried_state(layout: Shifted, length: int) -> None:
    ids, width = np.arange(length), length // layout.rows
    for batches in epochs(layout, ids, layout.length + 1):
        assert [b.reset_state for b in batches] == [True] + [False] * (len(batches) - 1)
        joined = torch.cat([b.inputs.ids for b in batches], 1)  # each batch continues the previous one
        assert joined.tolist() == [[row * width + t for t in range(width - 1)] for row in range(layout.rows)]
        for b in batches:
            assert torch.equal(b.targets, b.inputs.ids + 1)  # the ids count upwards
            assert b.scale == b.targets.shape[1] / layout.length <= 1
        assert all(b.targets.shape[1] == layout.length for b in batches[1:-1])


@given(layout=layouts(), length=st.integers(8, 150))
def test_all_epochs_together_read_every_window_once(layout: Shifted, length: int) -> None:
    ids = np.arange(length)
    width = length // layout.rows
    starts = [
        batch.inputs.ids[0, 0].item()
        for epoch in epochs(layout, ids, layout.length)
        for batch in epoch
        if batch.targets.shape[1] == layout.length
    ]
    assert sorted(starts) == list(range(width - layout.length))  # every window of the first row


def test_token_occurs_once_at_every_position() -> None:
    positions: dict[int, Counter[int]] = {}
    for epoch in epochs(Shifted(1, 5, shift=3), np.arange(41), 5):
        for batch in epoch:
            for position, token in enumerate(batch.inputs.ids[0].tolist()):
                positions.setdefault(token, Counter())[position] += 1
    assert all(positions[token] == Counter(range(5)) for token in range(5, 36))  # all but the ends of the row


@given(layout=layouts(), length=st.integers(8, 120), first=st.integers(0, 400))
def test_batches_resume_at_any_step(layout: Shifted, length: int, first: int) -> None:
    ids = np.arange(length)
    straight = [values(b) for b in islice(layout.batches(ids, 1, 0), first + 12)]
    assert [values(b) for b in islice(layout.batches(ids, 1, first), 12)] == straight[first:]


@given(layout=layouts(), length=st.integers(8, 150))
def test_batches_per_epoch_is_the_mean_over_shifts(layout: Shifted, length: int) -> None:
    ids = np.arange(length)
    batches = epochs(layout, ids, layout.length)
    assert layout.batches_per_epoch(ids) == max(1, round(sum(map(len, batches)) / layout.length))
    assert [len(layout.segments(length // layout.rows, e)) for e in range(layout.length)] == [len(e) for e in batches]


def test_first_epoch_equals_rows() -> None:
    ids = np.arange(101)
    (first,) = epochs(Shifted(2, 7), ids, 1)
    for shifted, expected in zip(first, Rows(2, 7).batches(ids, 1, 0), strict=False):
        assert values(shifted)[:4] == values(expected)[:4]
    assert len(first) == Rows(2, 7).batches_per_epoch(ids)


def test_windows_with_carried_state_score_like_reading_at_once() -> None:
    """In every epoch, the nats of all windows add up to those of the complete rows."""
    torch.manual_seed(0)
    network = LSTM(RecurrentConfig(width=8), Vocabulary(12, 11)).eval()
    ids = np.random.default_rng(0).integers(0, 11, 60)
    objective = CausalObjective({"kind": "shifted", "rows": 2, "length": 7, "shift": 2})
    table = torch.from_numpy(ids.reshape(2, 30))
    with torch.no_grad():
        at_once, _ = network.score(table, torch.tensor([30, 30]), None)
    nats: dict[int, float] = {}
    state = None
    for batch in islice(objective.batches(Stream.from_ids(ids), 1, 0), 40):
        loss = objective.loss(network, batch, None if batch.reset_state else state)
        state = loss.state
        nats[batch.epoch] = nats.get(batch.epoch, 0.0) + float(loss.nats)
    assert len(nats) > 5
    for epoch in range(5):
        assert nats[epoch] == pytest.approx(-float(at_once.sum()), rel=1e-5)


# ---------------------------------------------------------------------------------------- overlapping


def test_overlapping_windows_are_reshuffled_in_every_epoch() -> None:
    layout, ids = Shifted(3, 5, overlapping=True), np.arange(65)
    assert layout.batches_per_epoch(ids) == 20
    batches = epochs(layout, ids, 2)
    orders = [[int(t) for b in epoch for t in b.inputs.ids[:, 0]] for epoch in batches]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(60))
    assert orders[0] != orders[1] != list(range(60))
    for batch in batches[0]:
        assert batch.reset_state
        assert batch.scale == 1
        assert torch.equal(batch.inputs.ids, batch.inputs.ids[:, :1] + torch.arange(5))
        assert torch.equal(batch.targets, batch.inputs.ids + 1)
    other = next(layout.batches(ids, 2, 0))
    assert values(other) != values(batches[0][0])


@given(by=st.integers(1, 5), length=st.integers(30, 80), first=st.integers(0, 60))
def test_overlapping_windows_shift_and_resume_at_any_step(by: int, length: int, first: int) -> None:
    layout, ids = Shifted(2, 5, by, overlapping=True), np.arange(length)
    straight = [values(b) for b in islice(layout.batches(ids, 1, 0), first + 8)]
    assert [values(b) for b in islice(layout.batches(ids, 1, first), 8)] == straight[first:]
    starts = {row[0] for batch in straight for row in batch[0]}
    assert starts <= set(range(0, length - 5, by))
    assert layout.batches_per_epoch(ids) == len(range(0, length - 5, by)) // 2


# ---------------------------------------------------------------------------------------- edge cases


def test_objective_has_shifted_batches() -> None:
    objective = CausalObjective({"kind": "shifted", "rows": 2, "length": 8})
    # 99 predictions per row: 12 windows and the remainder at both ends
    assert objective.batches_per_epoch(Stream.from_ids(np.arange(200))) == 13


@pytest.mark.parametrize("length", [2, 3, 7])
def test_tiny_texts_give_at_most_two_segments_per_epoch(length: int) -> None:
    layout, ids = Shifted(1, 70), np.arange(length)
    assert layout.batches_per_epoch(ids) == 1
    for batches in epochs(layout, ids, 71):
        assert torch.cat([b.inputs.ids for b in batches], 1).tolist() == [list(range(length - 1))]
        assert len(batches) <= 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rows", 0),
        ("length", 0),
        ("shift", 0),
        ("shift", 71),
        ("shift", 1.5),
        ("shift", True),
        ("shift", 10),
        ("overlapping", 1),
    ],
)
def test_invalid_settings_are_rejected(key: str, value: object) -> None:
    with pytest.raises(InvalidSetting) as error:
        Shifted(**{key: value})  # type: ignore[arg-type]
    assert (error.value.key, error.value.value) == (f"batches.{key}", value)


def test_overlapping_windows_accept_a_shift_that_divides_their_length() -> None:
    assert Shifted(shift=10, overlapping=True).shift == 10


def test_too_short_text_is_rejected() -> None:
    with pytest.raises(DataError, match="39 tokens"):
        next(Shifted().batches(np.arange(39), 1, 0))
    with pytest.raises(DataError, match="0 windows"):
        Shifted(overlapping=True).batches_per_epoch(np.arange(60))
