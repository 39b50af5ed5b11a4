"""Batch k depends only on (seed, k), each token is predicted once per epoch, and short text is rejected."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nextword.batching.causal import Rows, Windows, permute
from nextword.batching.token_stream import Stream
from nextword.core.errors import DataError, InvalidSetting
from nextword.core.types import Batch
from nextword.objectives.causal import CausalObjective


def values(batch: Batch) -> tuple[Any, ...]:
    return batch.inputs.ids.tolist(), batch.targets.tolist(), batch.reset_state, batch.epoch


def take(layout: Any, ids: np.ndarray, first: int, n: int, seed: int = 1) -> list[tuple[Any, ...]]:
    return [values(b) for b in islice(layout.batches(ids, seed, first), n)]


# ------------------------------------------------------------------------------------------------ permutation


@given(size=st.integers(1, 3000), key=st.integers(0, 2**70))
def test_permute_is_a_permutation_for_any_size_and_key(size: int, key: int) -> None:
    image = permute(np.arange(size), size, key)
    assert sorted(image.tolist()) == list(range(size))


@given(size=st.integers(1, 2**40), key=st.integers(0, 2**40), seed=st.integers(0, 99))
def test_permute_few_indices_of_a_huge_range_is_injective(size: int, key: int, seed: int) -> None:
    index = np.unique(np.random.default_rng(seed).integers(0, size, 50))
    image = permute(index, size, key)
    assert ((image >= 0) & (image < size)).all()
    assert len(np.unique(image)) == len(index)
    backwards = permute(index[::-1].copy(), size, key)
    assert (backwards[::-1] == image).all()


def test_permute_mixes_well() -> None:
    """Neighbors are separated, keys differ, and new positions hardly correlate with old ones."""
    n = 10_000
    images = [permute(np.arange(n), n, key) for key in range(20)]
    for image in images:
        assert (np.abs(np.diff(image)) <= 1).mean() < 0.05
        assert abs(np.corrcoef(np.arange(n), image)[0, 1]) < 0.2
    assert len({tuple(image[:5]) for image in images}) == 20


# ------------------------------------------------------------------------------------------------ rows


@given(length=st.integers(2, 300), rows=st.integers(1, 12), columns=st.integers(1, 40))
def test_rows_predict_each_token_once_per_epoch(length: int, rows: int, columns: int) -> None:
    if length // rows < 2:
        return
    layout, ids = Rows(rows, columns), np.arange(length)
    batches = list(islice(layout.batches(ids, 1, 0), layout.batches_per_epoch(ids)))
    width = length // rows
    predicted = sorted(t for b in batches for t in b.targets.flatten().tolist())
    # all but the first of each row, which has no context, and the remainder that fills no column
    assert predicted == [t for t in range(width * rows) if t % width]
    for b in batches:
        assert torch.equal(b.targets, b.inputs.ids + 1)  # the ids count upwards
    assert [b.reset_state for b in batches] == [True] + [False] * (len(batches) - 1)
    assert all(b.epoch == 0 for b in batches)
    joined = torch.cat([b.inputs.ids for b in batches], 1)
    assert joined.tolist() == [[row * width + t for t in range(width - 1)] for row in range(rows)]


@pytest.mark.parametrize("layout", [Rows(3, 4), Windows(5, 2)])
def test_batches_resume_at_any_step(layout: Any) -> None:
    ids = np.arange(50)
    straight = take(layout, ids, 0, 30)
    for first in (0, 1, layout.batches_per_epoch(ids) - 1, layout.batches_per_epoch(ids), 17):
        assert take(layout, ids, first, 5) == straight[first : first + 5]
    assert straight[layout.batches_per_epoch(ids)][3] == 1  # the epoch


@given(first=st.integers(0, 10**6), seed=st.integers(0, 10**6))
@settings(max_examples=30)
def test_batch_of_windows_depends_on_seed_and_step_alone(first: int, seed: int) -> None:
    layout, ids = Windows(5, 2), np.arange(50)
    assert take(layout, ids, first, 1, seed) == take(layout, ids, first - 1, 2, seed)[1:] if first else True
    assert take(layout, ids, first, 1, seed) == take(layout, ids, first, 1, seed)


# ------------------------------------------------------------------------------------------------ windows


@given(length=st.integers(2, 200), rows=st.integers(1, 9), context=st.integers(1, 9), epoch=st.integers(0, 5))
def test_windows_predict_each_token_once_per_epoch(length: int, rows: int, context: int, epoch: int) -> None:
    if length - context < rows:
        return
    layout, ids = Windows(rows, context), np.arange(length)
    n = layout.batches_per_epoch(ids)
    batches = list(islice(layout.batches(ids, 7, epoch * n), n))
    predicted = [t for b in batches for t in b.targets.flatten().tolist()]
    assert len(set(predicted)) == len(predicted) == (length - context) // rows * rows
    assert min(predicted) >= context
    for b in batches:
        assert b.reset_state
        assert b.epoch == epoch
        assert b.inputs.ids.shape == (rows, context)
        assert torch.equal(b.inputs.ids, b.targets + torch.arange(-context, 0))


def test_order_of_windows_depends_on_epoch_and_seed() -> None:
    layout, ids = Windows(10, 2), np.arange(52)
    orders = [
        [t for _, targets, _, _ in take(layout, ids, epoch * 5, 5, seed) for (t,) in targets]
        for epoch, seed in ((0, 1), (1, 1), (2, 1), (0, 2))
    ]
    assert all(sorted(order) == list(range(2, 52)) for order in orders)
    assert len(set(map(tuple, orders))) == 4


def test_ids_of_any_unsigned_type_become_int64() -> None:
    for kind in (np.uint8, np.uint16, np.uint32):
        ids = np.arange(30).astype(kind)
        for layout in (Rows(2, 3), Windows(4, 2)):
            (batch,) = islice(layout.batches(ids, 1, 0), 1)  # type: ignore[attr-defined]
            assert batch.inputs.ids.dtype == batch.targets.dtype == torch.int64


# ------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize("layout", [Rows(20, 5), Windows(20, 20)])
def test_too_short_text_is_rejected(layout: Any) -> None:
    with pytest.raises(DataError, match=r"batches\.rows"):
        layout.batches_per_epoch(np.arange(39))


@pytest.mark.parametrize(("kind", "options"), [(Rows, {"rows": 0}), (Rows, {"length": 0}), (Windows, {"context": 0})])
def test_sizes_below_one_are_rejected(kind: Any, options: dict[str, int]) -> None:
    with pytest.raises(InvalidSetting) as error:
        kind(**options)
    assert (error.value.key, error.value.value) == (f"batches.{next(iter(options))}", 0)


@pytest.mark.parametrize(
    ("batches", "options", "key"),
    [
        ({"kind": "boxes"}, {}, "batches.kind"),
        ({"kind": "rows", "context": 3}, {}, "batches.context"),
        ({"kind": "shifted", "context": 3}, {}, "batches.context"),
        ({"kind": "variable", "columns": 3}, {}, "batches.columns"),
        ({"kind": "rows"}, {"reduce": "mean"}, "objective.reduce"),
    ],
)
def test_objective_rejects_unknown_settings(batches: dict[str, Any], options: dict[str, str], key: str) -> None:
    with pytest.raises(InvalidSetting) as error:
        CausalObjective(batches, **options)
    assert error.value.key == key


def test_validation_reads_the_text_once_in_order() -> None:
    ids = np.arange(1200)
    batches = list(CausalObjective({"kind": "windows"}).validation_batches(Stream.from_ids(ids)))
    predicted = sorted(t for b in batches for t in b.targets.flatten().tolist())
    assert predicted == [t for t in range(1200) if t % 600]
    assert [b.reset_state for b in batches] == [True] + [False] * (len(batches) - 1)
