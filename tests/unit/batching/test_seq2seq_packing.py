"""Packing of pairs into rows: no pair is lost, no row is too long, and inputs and targets stay within their pair."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextword.batching.seq2seq import Pairs, Sequences, build_packed_batch, pack_pairs
from nextword.batching.token_stream import ROW, Stream
from nextword.core.errors import InvalidSetting
from nextword.core.types import IGNORE
from nextword.objectives.seq2seq import Seq2SeqObjective

sizes = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=40)


@settings(deadline=None)  # the first call compiles
@given(sizes, st.integers(9, 30))
def test_pack_pairs_puts_every_pair_into_one_row_with_room(lengths: list[tuple[int, int]], room: int) -> None:
    source, target = (np.array(side) for side in zip(*lengths, strict=True))
    order, cuts = pack_pairs(source, target, room)
    assert sorted(order.tolist()) == list(range(len(lengths)))
    assert (cuts[0], cuts[-1]) == (0, len(lengths))
    assert (np.diff(cuts) > 0).all()
    rows = [order[a:b] for a, b in pairwise(cuts.tolist())]
    assert all(max(source[row].sum(), target[row].sum()) <= room for row in rows)
    if len(rows) > 1:  # the first pair of the last row had no room in the first row
        last = rows[-1][0]
        before = rows[0][rows[0] < last]
        assert max(source[before].sum() + source[last], target[before].sum() + target[last]) > room or len(rows) > 16


def test_packed_row_equals_hand_computation() -> None:
    pair = lambda *ids: np.array(ids)  # noqa: E731
    batch = build_packed_batch(
        [[(pair(5, 6, 1), pair(7, 1)), (pair(8, 1), pair(9, 10, 1))], [(pair(3, 1), pair(4, 1))]], begin=0
    )
    inputs = batch.inputs
    assert inputs.source is not None
    assert inputs.source.ids.tolist() == [[5, 6, 1, 8, 1], [3, 1, 0, 0, 0]]
    assert inputs.source.segments is not None
    assert inputs.source.segments.tolist() == [[1, 1, 1, 2, 2], [1, 1, 0, 0, 0]]
    assert inputs.ids.tolist() == [[0, 7, 0, 9, 10], [0, 4, 0, 0, 0]]
    assert inputs.segments is not None
    assert inputs.segments.tolist() == [[1, 1, 2, 2, 2], [1, 1, 1, 1, 1]]
    assert batch.targets.tolist() == [[7, 1, 9, 10, 1], [4, 1, *[IGNORE] * 3]]
    assert batch.num_targets == 7


def pairs_of(lengths: list[tuple[int, int]]) -> Pairs:
    def stream(sizes: list[int]) -> Stream:
        starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        ids = np.concatenate([np.append(np.full(n - 1, 10 + i), 1) for i, n in enumerate(sizes)]).astype(np.uint8)
        rows = np.array([(start, n, n, 0) for start, n in zip(starts, sizes, strict=True)], ROW)
        return Stream(ids, np.zeros(len(ids), np.uint8), rows, len(ids), len(ids), 0)

    source, target = (list(side) for side in zip(*lengths, strict=True))
    return Pairs(stream(source), stream(target), 0, np.arange(len(lengths)))


def test_epoch_has_every_pair_once_and_batch_depends_on_seed_and_step_alone() -> None:
    text = pairs_of([(2 + i % 5, 2 + i % 3) for i in range(60)])
    layout = Sequences(rows=2, length=12, pack=True)
    count = layout.batches_per_epoch(text)
    batches = layout.batches(text, 7, 0)
    straight = [next(batches) for _ in range(2 * count + 2)]
    first = [b for b in straight if b.epoch == 0]
    source_ids = sorted(int(x) for b in first for x in b.inputs.source.ids.flatten() if x >= 10)  # type: ignore[union-attr]
    assert source_ids == sorted(x for i in range(60) for x in [10 + i] * (1 + i % 5))
    resumed = next(layout.batches(text, 7, len(first) + 1))
    assert resumed.epoch == 1
    assert resumed.targets.equal(straight[len(first) + 1].targets)
    assert sum(b.num_targets for b in first) == sum(2 + i % 3 for i in range(60))


def test_too_long_pairs_are_left_out_cut_or_rejected() -> None:
    mostly = pairs_of([(4, 3)] * 6 + [(30, 3)] * 2)
    assert len(Sequences(length=10).fitting(mostly)) == 6
    assert len(Sequences(length=10, overflow="drop").fitting(pairs_of([(4, 3)] + [(30, 3)] * 9))) == 1
    for overflow, text in (("error", mostly), ("", pairs_of([(4, 3)] + [(30, 3)] * 9))):
        with pytest.raises(InvalidSetting, match="overflow=truncate"):
            Sequences(length=10, overflow=overflow).fitting(text)
    with pytest.raises(InvalidSetting, match="30 tokens"):
        Sequences(length=10).fitting(pairs_of([(30, 3)]))
    truncated = Sequences(length=10, overflow="truncate").fitting(mostly)
    assert len(truncated) == 8
    assert truncated.side(0, 7).tolist() == [17] * 9 + [1]  # the end token stays
    assert truncated.sizes[0].tolist() == [4] * 6 + [10] * 2
    longest = {
        overflow: max(
            b.inputs.source.ids.shape[1] for b in Sequences(length=10, overflow=overflow).validation_batches(mostly)
        )  # type: ignore[union-attr]
        for overflow in ("drop", "truncate")
    }
    assert longest == {"drop": 30, "truncate": 10}  # validation drops no pair
    with pytest.raises(InvalidSetting) as error:
        Sequences(overflow="snip")
    assert error.value.key == "batches.overflow"


def test_invalid_settings_are_rejected() -> None:
    with pytest.raises(InvalidSetting) as error:
        Seq2SeqObjective({"pack": True}, scheduled_sampling=0.2)
    assert error.value.key == "objective.scheduled_sampling"
    with pytest.raises(InvalidSetting) as error:
        Seq2SeqObjective({"packs": True})
    assert error.value.key == "batches.packs"
