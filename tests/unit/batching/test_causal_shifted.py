"""Windows advanced by one token: the same windows as the list that is proposed, in an order that state can follow."""

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
    drawn = [["0123", "4567", "8"], ["0", "1234", "5678"], ["01", "2345", "678"], ["012", "3456", "78"]]
    found = epochs(Shifted(1, 4), np.arange(10), 5)
    assert [["".join(map(str, b.inputs.ids[0].tolist())) for b in epoch] for epoch in found] == [*drawn, drawn[0]]


@given(layout=layouts(), length=st.integers(8, 150))
def test_every_token_is_predicted_once_per_epoch_from_the_state_before_it(layout: Shifted, length: int) -> None:
    ids, width = np.arange(length), length // layout.rows
    for batches in epochs(layout, ids, layout.length + 1):
        assert [b.reset_state for b in batches] == [True] + [False] * (len(batches) - 1)
        joined = torch.cat([b.inputs.ids for b in batches], 1)  # each goes on where the last ended
        assert joined.tolist() == [[row * width + t for t in range(width - 1)] for row in range(layout.rows)]
        for b in batches:
            assert torch.equal(b.targets, b.inputs.ids + 1)  # the next token, in a text that counts
            assert b.scale == b.targets.shape[1] / layout.length <= 1
        assert all(b.targets.shape[1] == layout.length for b in batches[1:-1])


@given(layout=layouts(), length=st.integers(8, 150))
def test_all_epochs_together_read_every_window_once(layout: Shifted, length: int) -> None:
    ids = np.arange(length)
    width = length // layout.rows
    whole = [
        batch.inputs.ids[0, 0].item()
        for epoch in epochs(layout, ids, layout.length)
        for batch in epoch
        if batch.targets.shape[1] == layout.length
    ]
    assert sorted(whole) == list(range(width - layout.length))  # the list of the proposal, in one row of it


def test_token_stands_once_at_every_place() -> None:
    places: dict[int, Counter[int]] = {}
    for epoch in epochs(Shifted(1, 5, shift=3), np.arange(41), 5):
        for batch in epoch:
            for place, token in enumerate(batch.inputs.ids[0].tolist()):
                places.setdefault(token, Counter())[place] += 1
    assert all(places[token] == Counter(range(5)) for token in range(5, 36))  # all but those at the ends of the row


@given(layout=layouts(), length=st.integers(8, 120), first=st.integers(0, 400))
def test_batches_resume_at_any_step(layout: Shifted, length: int, first: int) -> None:
    ids = np.arange(length)
    whole = [values(b) for b in islice(layout.batches(ids, 1, 0), first + 12)]
    assert [values(b) for b in islice(layout.batches(ids, 1, first), 12)] == whole[first:]


@given(layout=layouts(), length=st.integers(8, 150))
def test_batches_per_epoch_is_the_mean_over_shifts(layout: Shifted, length: int) -> None:
    ids = np.arange(length)
    found = epochs(layout, ids, layout.length)
    assert layout.batches_per_epoch(ids) == max(1, round(sum(map(len, found)) / layout.length))
    assert [len(layout.segments(length // layout.rows, e)) for e in range(layout.length)] == [len(e) for e in found]


def test_first_epoch_equals_rows() -> None:
    ids = np.arange(101)
    (first,) = epochs(Shifted(2, 7), ids, 1)
    for mine, theirs in zip(first, Rows(2, 7).batches(ids, 1, 0), strict=False):
        assert values(mine)[:4] == values(theirs)[:4]
    assert len(first) == Rows(2, 7).batches_per_epoch(ids)


def test_carried_state_is_that_of_the_token_before() -> None:
    """In any epoch, reading window by window comes to what reading the row at once comes to."""
    torch.manual_seed(0)
    network = LSTM(RecurrentConfig(width=8), Vocabulary(12, 11)).eval()
    ids = np.random.default_rng(0).integers(0, 11, 60)
    objective = CausalObjective({"kind": "shifted", "rows": 2, "length": 7, "shift": 2})
    table = torch.from_numpy(ids.reshape(2, 30))
    with torch.no_grad():
        at_once, _ = network.score(table, torch.tensor([30, 30]), None)
    seen: dict[int, float] = {}
    state = None
    for batch in islice(objective.batches(Stream.from_ids(ids), 1, 0), 40):
        loss = objective.loss(network, batch, None if batch.reset_state else state)
        state = loss.state
        seen[batch.epoch] = seen.get(batch.epoch, 0.0) + float(loss.nats)
    assert len(seen) > 5
    for epoch in range(5):
        assert seen[epoch] == pytest.approx(-float(at_once.sum()), rel=1e-5)


# ---------------------------------------------------------------------------------------- as the list stands


def test_overlapping_windows_are_reshuffled_in_every_epoch() -> None:
    layout, ids = Shifted(3, 5, overlapping=True), np.arange(65)
    assert layout.batches_per_epoch(ids) == 20
    found = epochs(layout, ids, 2)
    orders = [[int(t) for b in epoch for t in b.inputs.ids[:, 0]] for epoch in found]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(60))
    assert orders[0] != orders[1] != list(range(60))
    for batch in found[0]:
        assert batch.reset_state
        assert batch.scale == 1
        assert torch.equal(batch.inputs.ids, batch.inputs.ids[:, :1] + torch.arange(5))
        assert torch.equal(batch.targets, batch.inputs.ids + 1)
    other = next(layout.batches(ids, 2, 0))
    assert values(other) != values(found[0][0])


@given(by=st.integers(1, 5), length=st.integers(30, 80), first=st.integers(0, 60))
def test_overlapping_windows_move_by_their_step_and_resume_anywhere(by: int, length: int, first: int) -> None:
    layout, ids = Shifted(2, 5, by, overlapping=True), np.arange(length)
    whole = [values(b) for b in islice(layout.batches(ids, 1, 0), first + 8)]
    assert [values(b) for b in islice(layout.batches(ids, 1, first), 8)] == whole[first:]
    begins = {row[0] for batch in whole for row in batch[0]}
    assert begins <= set(range(0, length - 5, by))
    assert layout.batches_per_epoch(ids) == len(range(0, length - 5, by)) // 2


# ---------------------------------------------------------------------------------------- borders


def test_objective_has_shifted_batches() -> None:
    objective = CausalObjective({"kind": "shifted", "rows": 2, "length": 8})
    assert (
        objective.batches_per_epoch(Stream.from_ids(np.arange(200))) == 13
    )  # 99 predictions a row: 12 windows and what is left at the ends


@pytest.mark.parametrize("length", [2, 3, 7])
def test_tiny_texts_make_at_most_two_pieces_an_epoch(length: int) -> None:
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


def test_overlapping_windows_may_move_by_a_divisor_of_their_length() -> None:
    assert Shifted(shift=10, overlapping=True).shift == 10


def test_too_short_text_is_rejected() -> None:
    with pytest.raises(DataError, match="39 tokens"):
        next(Shifted().batches(np.arange(39), 1, 0))
    with pytest.raises(DataError, match="0 windows"):
        Shifted(overlapping=True).batches_per_epoch(np.arange(60))
