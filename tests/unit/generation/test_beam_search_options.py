"""Coverage, groups and what a beam refuses, against a search over plain tuples of ids."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nextword.core.errors import InvalidSetting, RunError, Unsupported
from nextword.core.types import Beam
from nextword.generation.beam_search import beam_search
from nextword.generation.logits_processors import check_decoding
from tests.support.toy_models import ToyModel

END = 0
seeds = st.integers(0, 10_000)


class Attentive(ToyModel):
    """A trigram that looks at a source of four tokens: after each step, `covered` is what each has had so far.

    `holes` is the share of tokens that are impossible; after some, nothing may be written.
    """

    window = 2
    has_attention = True

    def __init__(self, size: int, seed: int, holes: float = 0.0) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.table = torch.randn(size, size, size, generator=draw, dtype=torch.float64).mul(2).log_softmax(-1)
        self.table[torch.rand(self.table.shape, generator=draw) < holes] = -torch.inf
        self.looks = torch.randn(size, size, 4, generator=draw, dtype=torch.float64).mul(2).softmax(-1)

    def start(self, batch: int, source: Any = None) -> Any:
        last = torch.arange(batch) % len(self.table)
        return last, {"before": torch.zeros(batch, dtype=torch.long), "covered": torch.zeros(batch, 4).double()}

    def step(self, last: Any, state: Any) -> Any:
        before = state["before"]
        covered = state["covered"] + self.looks[before, last]
        return self.table[before, last], {"before": last, "covered": covered}

    def covered(self, state: Any) -> torch.Tensor:
        found = state["covered"].clone()
        found[:, 3] = 1.0  # padding
        return found

    def after(self, first: int, ids: tuple[int, ...]) -> tuple[list[float], list[float]]:
        """log p of what follows, and the attention paid until that is known; one id after another."""
        before, last, covered = 0, first, [0.0] * 4
        for id in (*ids, None):
            covered = [a + float(b) for a, b in zip(covered, self.looks[before, last], strict=True)]
            if id is not None:
                before, last = last, id
        return self.table[before, last].tolist(), covered


Scored = tuple[float, tuple[int, ...], bool]


def plain(model: Attentive, first: int, how: Beam, length: int, n: int) -> list[tuple[float, tuple[int, ...]]]:
    """The n best: groups of open tuples, one group after the other, to the very end."""
    width = how.width // how.groups
    groups: list[list[tuple[float, tuple[int, ...]]]] = [[(0.0, ())] for _ in range(how.groups)]
    ended: list[list[Scored]] = [[] for _ in range(how.groups)]
    for step in range(length):
        used = [0] * len(model.table)
        for g, open in enumerate(groups):
            options = []
            for total, ids in open:
                found = [(id, p) for id, p in enumerate(model.after(first, ids)[0]) if p > -math.inf]
                options += [(total + p - how.diversity * used[id], total + p, (*ids, id)) for id, p in found]
                if not found:
                    ended[g].append((total, ids, False))
            options = sorted(options, key=lambda one: -one[0])[: width - len(ended[g])]
            groups[g] = [(total, ids) for _, total, ids in options if ids[-1] != END and step < length - 1]
            ended[g] += [(total, ids, True) for _, total, ids in options if ids[-1] == END or step == length - 1]
            for _, _, ids in options:
                used[ids[-1]] += 1
    worth: dict[tuple[int, ...], float] = {}
    for total, ids, _ in (one for group in ended for one in group):
        length = max(1, len(ids))
        size = length if how.normalization == "power" else (5 + length) / 6
        covered = model.after(first, ids[:-1])[1][:3] if ids else [1.0]
        worth[ids] = total / size**how.length_penalty + how.coverage * sum(math.log(min(c, 1.0)) for c in covered)
    return sorted(((score, ids) for ids, score in worth.items()), key=lambda one: -one[0])[:n]


beams = st.builds(
    lambda groups, each, **rest: Beam(groups * each, groups=groups, **rest),
    groups=st.integers(1, 3),
    each=st.integers(1, 3),
    length_penalty=st.sampled_from([-0.5, 0.0, 0.6, 1.5]),
    normalization=st.sampled_from(["power", "gnmt"]),
    coverage=st.sampled_from([0.0, 0.2, 3.0]),
    diversity=st.sampled_from([0.0, 0.3, 2.0]),
)


@pytest.mark.parametrize("asked", ["at every step", "now and then"])
@given(seeds, st.sampled_from([0.0, 0.0, 0.5]), beams, st.integers(1, 7), st.integers(1, 3), st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_coverage_and_groups_match_the_plain_search(
    asked: str, seed: int, holes: float, how: Beam, length: int, rows: int, n: int
) -> None:
    """n below the width stops early; the plain search never does."""
    model = Attentive(4, seed, holes)
    with pytest.MonkeyPatch.context() as patch:
        if asked == "now and then":
            patch.setattr("nextword.generation.beam_search.is_asynchronous", lambda tensor: True)
        got = beam_search(model, *model.start(rows), how, length, END, n=n)
    for first, found in enumerate(got):
        want = plain(model, first, how, length, n)
        assert [(pytest.approx(one.score, abs=1e-9), one.ids) for one in found] == want


def test_certain_group_continues_while_another_is_not() -> None:
    """Two groups of two, by hand. D = 5 makes a token that the first has chosen impossible for the second.

    step    group 1                              group 2
    1       x .4, y .35                          z .25, x
    2       x end .2 (certain), x q .12          z u .225, x v .08
    3       x q w .12                            z u w .214 has lost its place: w is taken;  x v y .048, x v q .032

    Had group 1 stopped after step 2, group 2 would have come to z u w end .214, and that would be the best.
    """
    end, x, y, z, u, q, v, w, begin = range(9)
    after = {begin: {x: 0.4, y: 0.35, z: 0.25}, x: {end: 0.5, q: 0.3, v: 0.2}, y: {q: 0.3, v: 0.3, u: 0.2, end: 0.2}}
    after |= {z: {u: 0.9, v: 0.1}, u: {w: 0.95, q: 0.03, y: 0.02}, q: {w: 1.0}, v: {y: 0.6, q: 0.4}, w: {end: 1.0}}
    model: Any = Attentive(9, 0)
    model.table[:] = -torch.inf
    for before, options in after.items():
        for id, p in options.items():
            model.table[:, before, id] = math.log(p)
    start = torch.tensor([begin]), model.start(1)[1]
    (one,) = beam_search(model, *start, Beam(4, groups=2, diversity=5.0), 9, end, n=1)[0]
    assert (one.ids, one.score) == ((x, end), pytest.approx(math.log(0.2)))
    (one,) = beam_search(model, *start, Beam(6), 9, end, n=1)[0]
    assert (one.ids, one.score) == ((z, u, w, end), pytest.approx(math.log(0.25 * 0.9 * 0.95)))


def test_coverage_prefers_attention_to_the_whole_source() -> None:
    """Two texts of like probability: after 1 the model looks at what it has not seen, after 2 again at the same."""
    model: Any = Attentive(4, 0)
    model.table[:] = torch.tensor([1e-9, 0.49, 0.51, 1e-9]).log()
    model.table[:, 1:3] = torch.tensor([1.0, 0, 0, 0]).log()
    model.looks[:] = torch.tensor([0.98, 0.01, 0.01, 0])
    model.looks[:, 1] = torch.tensor([0.01, 0.49, 0.50, 0])
    (plainly,) = beam_search(model, *model.start(1), Beam(3), 5, END, n=1)[0]
    (covering,) = beam_search(model, *model.start(1), Beam(3, coverage=0.2), 5, END, n=1)[0]
    assert (plainly.ids, covering.ids) == ((2, END), (1, END))
    want = 0.2 * (math.log(0.99) + math.log(0.50) + math.log(0.51))
    assert covering.score == pytest.approx(covering.log_prob + want)
    model.looks[..., 1] = 0  # a token that is never looked at: dear, and still a number
    assert all(
        math.isfinite(one.score) for one in beam_search(model, *model.start(1), Beam(3, coverage=0.2), 5, END)[0]
    )


def test_coverage_without_attention_is_unsupported() -> None:
    model: Any = Attentive(4, 0)
    bare: Any = type("Bare", (ToyModel,), {"start": model.start, "step": model.step, "window": 2})()
    assert beam_search(bare, *model.start(1), Beam(2), 3, END)
    with pytest.raises(Unsupported, match="Bare"):
        beam_search(bare, *model.start(1), Beam(2, coverage=0.2), 3, END)


@pytest.mark.parametrize(
    ("how", "key"),
    [
        (Beam(0), "width"),
        (Beam(-3), "width"),
        (Beam(normalization="mean"), "normalization"),
        (Beam(coverage=-0.1), "coverage"),
        (Beam(coverage=math.inf), "coverage"),
        (Beam(coverage=math.nan), "coverage"),
        (Beam(4, groups=3), "groups"),
        (Beam(4, groups=0), "groups"),
        (Beam(4, groups=-2), "groups"),
        (Beam(4, groups=8), "groups"),
        (Beam(4, groups=2, diversity=-1.0), "diversity"),
        (Beam(length_penalty=math.inf), "length_penalty"),
    ],
)
def test_invalid_beam_settings_are_rejected(how: Beam, key: str) -> None:
    with pytest.raises(InvalidSetting) as error:
        check_decoding(how)
    assert error.value.key == key


@pytest.mark.parametrize("at", [0, 1, 5, 9])
@pytest.mark.parametrize("asked", ["at every step", "now and then"])
def test_nan_probabilities_are_an_error(asked: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if asked == "now and then":
        monkeypatch.setattr("nextword.generation.beam_search.is_asynchronous", lambda tensor: True)
    model: Any = Attentive(4, 0)
    step: Callable[..., Any] = model.step
    seen = [0]

    def breaks(last: Any, state: Any) -> Any:
        log_probs, state = step(last, state)
        seen[0] += 1
        return log_probs * math.nan if seen[0] == at + 1 else log_probs, state

    model.step = breaks
    with pytest.raises(RunError):
        beam_search(model, *model.start(2), Beam(3), 10)


def test_beam_search_of_no_rows_is_empty() -> None:
    model = Attentive(4, 0)
    assert beam_search(model, *model.start(0), Beam(3), 10) == []
