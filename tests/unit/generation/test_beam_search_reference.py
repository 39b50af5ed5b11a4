"""The search in tensors against the search hypothesis by hypothesis (tests/slow_beam.py): the same to the last id."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from nextword.core.types import Beam
from nextword.generation.beam_search import beam_search, largest_in_order, largest_sorted
from tests.support.reference_beam import search_slowly
from tests.support.toy_models import ToyModel

seeds = st.integers(0, 10_000)
END = 0


class Trigram(ToyModel):
    """log p(next | the one before last, last); the state is the id before last, so that rows must be taken rightly.

    `grain` rounds: the coarser, the more exact ties. `holes` is the share of tokens that are impossible.
    """

    window = 2

    def __init__(self, size: int, seed: int, grain: float = 0.0, holes: float = 0.0, dtype: Any = torch.float32):
        draw = torch.Generator().manual_seed(seed)
        table = torch.randn(size, size, size, generator=draw).mul(2).log_softmax(-1)
        if grain:
            table = (table / grain).round() * grain
        self.table = table.masked_fill(torch.rand(table.shape, generator=draw) < holes, -torch.inf).to(dtype)
        self.steps = 0
        self.rows = 0

    def start(self, batch: int, source: Any = None) -> Any:
        last = torch.arange(batch) % len(self.table)
        return last, {"before": torch.zeros(batch, dtype=torch.long), "none": None}

    def step(self, last: Any, state: Any) -> Any:
        self.steps += 1
        self.rows += len(last)
        return self.table[state["before"], last], {"before": last, "none": None}


def same(got: list[list[Any]], want: list[list[Any]]) -> None:
    assert [[(one.ids, one.complete) for one in row] for row in got] == [
        [(one.ids, one.complete) for one in row] for row in want
    ]
    for mine, theirs in zip(got, want, strict=True):
        assert [one.score for one in mine] == pytest.approx([one.score for one in theirs], rel=1e-12)
        assert [one.log_probs for one in mine] == [one.log_probs for one in theirs]


@pytest.fixture(params=["asked at every step", "asked now and then"])
def asked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a CPU, and as on a GPU: slots of a fixed number, ties settled without a look."""
    if "then" in request.param:
        monkeypatch.setattr("nextword.generation.beam_search.is_asynchronous", lambda tensor: True)
        monkeypatch.setattr("nextword.generation.beam_search.PATIENCE", 3)


beams = st.builds(
    Beam,
    width=st.integers(1, 7),
    length_penalty=st.sampled_from([-1.0, 0.0, 0.6, 1.0, 2.5]),
    repetition=st.sampled_from([0.7, 1.0, 1.0, 1.5]),
    no_repeat=st.sampled_from([0, 0, 1, 2, 3]),
    bias=st.dictionaries(st.integers(0, 2), st.sampled_from([-torch.inf, -1.0, 0.5]), max_size=2),
    normalization=st.sampled_from(["power", "gnmt"]),
)


@pytest.mark.usefixtures("asked")
@given(
    seeds,
    st.sampled_from([3, 5, 9]),
    st.sampled_from([0.0, 0.5, 2.0]),
    st.sampled_from([0.0, 0.3, 0.7]),
    beams,
    st.integers(0, 9),
    st.integers(1, 4),
    st.sampled_from([None, 1, 2, 9]),
    st.integers(0, 3),
    st.sampled_from([(), (1,), (END,)]),
    st.booleans(),
)
@settings(max_examples=250, deadline=None)
def test_beam_search_equals_the_reference_for_every_rule_and_shape(
    seed: int,
    size: int,
    grain: float,
    holes: float,
    how: Beam,
    length: int,
    rows: int,
    n: int | None,
    least: int,
    banned: tuple[int, ...],
    ends: bool,
) -> None:
    """Ties, impossible tokens, rules that leave nothing to write, more places than tokens, rows that end in turn."""
    model = Trigram(size, seed, grain, holes)
    written = [[1, 2, 1, 2][: row + seed % 2] for row in range(rows)]
    rest: Any = {"n": n, "preceding": written, "forbidden": banned, "min_tokens": least}
    args = how, length, END if ends else None
    same(beam_search(model, *model.start(rows), *args, **rest), search_slowly(model, *model.start(rows), *args, **rest))


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [1, 2, 5, 24])
def test_beam_search_equals_the_reference_with_ties(width: int, dtype: torch.dtype) -> None:
    """Rows that are looked at in blocks; sixteen bits make ties of what was different."""
    for seed in range(3):
        model = Random(5000, seed, dtype)
        how = Beam(width, 0.6)
        args = how, 12, END
        want = search_slowly(model, *model.start(3), *args)
        same(beam_search(model, *model.start(3), *args), want)
        assert any(one.complete for row in want for one in row)


class Random(ToyModel):
    """Any distribution after any id, without a table; the state is how many were read."""

    window = None

    def __init__(self, size: int, seed: int, dtype: torch.dtype):
        draw = torch.Generator().manual_seed(seed)
        self.phases = torch.rand(size, generator=draw) * 6.3
        self.dtype = dtype
        self.size = size

    def start(self, batch: int, source: Any = None) -> Any:
        return torch.arange(batch), torch.zeros(batch)

    def step(self, last: Any, state: Any) -> Any:
        angles = self.phases + last.unsqueeze(1) * 0.37 + state.unsqueeze(1)
        logits = 6 * angles.sin()
        logits[:, END] = 6.0 + state / 4 - last % 3
        return logits.log_softmax(-1).to(self.dtype), state + 1


@given(seeds, st.sampled_from([0.0, 0.5]), st.integers(1, 6), st.integers(1, 3), st.integers(0, 12), beams)
@settings(max_examples=80, deadline=None)
def test_stopping_when_certain_changes_nothing(
    seed: int, grain: float, width: int, n: int, length: int, how: Beam
) -> None:
    model = Trigram(5, seed, grain)
    how = replace(how, width=width)
    early = beam_search(model, *model.start(2), how, length, END, n=n)
    late = search_slowly(model, *model.start(2), how, length, END, n=n, patient=True)
    for mine, theirs in zip(early, late, strict=True):
        assert [one.score for one in mine] == pytest.approx([one.score for one in theirs], rel=1e-9)


def test_finished_searches_are_not_computed() -> None:
    """Row 0 ends at once, row 1 never: from then on one search is stepped, and no place that is taken."""
    model = Trigram(4, 0)
    model.table[:, 0] = torch.tensor([0.97, 0.01, 0.01, 0.01]).log()
    model.table[:, 1:] = torch.tensor([0.0, 0.4, 0.3, 0.3]).log()
    first, second = beam_search(model, torch.tensor([0, 1]), model.start(2)[1], Beam(2), 20, END, n=1)
    assert (first[0].ids, len(second[0].ids)) == ((END,), 20)
    assert model.rows == 2 + 19 * 2
    model.rows = 0
    beam_search(model, torch.tensor([0]), model.start(1)[1], Beam(2), 20, END, n=2)
    assert model.rows == 1 + 19  # one hypothesis is complete, the other is cut at the length


class Questions(TorchDispatchMode):
    """Counts what makes a program wait for a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.asked += name in ("_local_scalar_dense", "nonzero", "equal", "masked_select", "unique", "is_nonzero")
        return func(*args, **(kwargs or {}))


def test_gpu_is_synchronized_once_in_eight_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Trigram(9, 3)
    monkeypatch.setattr("nextword.generation.beam_search.is_asynchronous", lambda tensor: True)
    calls: list[int] = []
    before = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: calls.append(self.numel()) or before(self))
    for how in (Beam(4, 0.6), Beam(4, no_repeat=2, repetition=1.2, bias={3: -1.0}), Beam(4, groups=2)):
        calls.clear()
        with Questions() as questions:
            beam_search(model, *model.start(3), how, 64, preceding=[[1, 2], [3], []])
        assert questions.asked == 1  # whether there was a NaN, at the end
        assert calls == [1 + 3] * 7


def test_gpu_slots_halve_when_half_of_the_searches_are_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nextword.generation.beam_search.is_asynchronous", lambda tensor: True)
    model = Trigram(4, 0)
    model.table[:, 0] = torch.tensor([1.0, 0, 0, 0]).log()
    model.table[:, 1:] = torch.tensor([0.0, 0.4, 0.3, 0.3]).log()
    model.table[:, 1:, 3] = torch.tensor(0.0).log()
    last = torch.tensor([0, 1, 0, 2, 0, 0])
    found = beam_search(model, last, model.start(6)[1], Beam(2), 20, END)
    want = search_slowly(model, last, model.start(6)[1], Beam(2), 20, END)
    same(found, want)
    model.rows = 0
    beam_search(model, last, model.start(6)[1], Beam(2), 20, END)
    assert model.rows == 6 + 7 * 12 + 12 * 6


def test_state_is_not_copied_if_rows_stay() -> None:
    """A beam of one; and a network's own way to reorder is told rows of the same search."""
    model: Any = Trigram(6, 1)
    reordered: list[list[int]] = []

    def reorder(state: Any, rows: Any, searches: Any) -> Any:
        reordered.append(rows.tolist())
        return {"before": state["before"][rows], "none": None}

    want = search_slowly(model, *model.start(2), Beam(3), 10)
    model.reorder = reorder
    beam_search(model, *model.start(2), Beam(1), 10)
    assert reordered == []
    same(beam_search(model, *model.start(2), Beam(3), 10), want)
    first, *others = reordered
    assert first == [0, 0, 0, 1, 1, 1]  # one row a search becomes three
    assert others
    for rows in others:
        assert [row // 3 for row in rows] == [0, 0, 0, 1, 1, 1]
        assert rows != list(range(6))


@given(seeds, st.integers(1, 40), st.integers(1, 700), st.sampled_from([0, 1, 3]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_largest_in_order_equals_sorting(seed: int, k: int, size: int, values: int, block: bool) -> None:
    """Against a stable sort, with ties and -inf, in blocks and without."""
    draw = torch.Generator().manual_seed(seed)
    scores = torch.randn(3, 2, size, generator=draw)
    scores = (scores * values).round() if values else scores
    scores = scores.masked_fill(torch.rand(scores.shape, generator=draw) < 0.2, -torch.inf)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nextword.generation.beam_search.BLOCK", 8 if block else 128)
        patch.setattr("nextword.generation.beam_search.SHORT", 2 if block else 4)
        found, ids = largest_in_order(scores, k)
        ordered, at = largest_sorted(scores, k)
    want = scores.sort(dim=-1, descending=True, stable=True)
    alive = want.values[..., :k] > -torch.inf  # which of the impossible is chosen does not matter
    assert torch.equal(ordered, want.values[..., :k])
    assert torch.equal(at[alive], want.indices[..., :k][alive])
    assert torch.equal(ids, ids.sort(-1).values)
    assert torch.equal(found[found > -torch.inf], scores.gather(-1, ids)[found > -torch.inf])
    assert torch.equal(found.sort(-1, descending=True).values, want.values[..., :k])
