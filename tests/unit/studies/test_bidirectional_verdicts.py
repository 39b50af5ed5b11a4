"""Studies of networks that read both sides: verdicts that follow the numbers, whichever way they point."""

from __future__ import annotations

from typing import Any

import pytest

from nextword.studies import _probes as probes
from nextword.studies import dynamic_masking as masks
from nextword.studies import layer_sharing as sharing
from nextword.studies import mask_mismatch
from nextword.studies import masked_vs_causal as fill_in
from nextword.studies import nsp_vs_sop as sentence_pairs
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Table, verdict

MORE, LESS, UNSURE, ONE_SEED = [1.0, 0.5, 1.5], [-1.0, -1.5, -0.5], [0.1, -1.0, 1.2], [1.0, None, None]
EITHER_WAY = [(MORE, HOLDS), (LESS, FAILS), (UNSURE, UNDECIDED), (ONE_SEED, UNDECIDED)]


def filled(right: Any, nats: Any, rescored: Any = MORE, fewer: Any = MORE) -> dict[str, Table]:
    names = (fill_in.BOTH, fill_in.LEFT, fill_in.RESCORED, fill_in.FEWER)
    return {
        "networks": Table("", ("network", "right, %", "nats"), tuple((n, [20.0] * 3, [4.0] * 3) for n in names)),
        "differences": Table(
            "",
            ("than", "right, %", "nats"),
            ((names[1], right, nats), (names[2], MORE, rescored), (names[3], MORE, fewer)),
        ),
    }


@pytest.mark.parametrize(("cell", "expected"), EITHER_WAY)
def test_filling_in_is_judged_by_both_measures(cell: Any, expected: str) -> None:
    assert verdict(fill_in.judge(filled(MORE, MORE))) == HOLDS
    for tables, at in ((filled(cell, MORE), 0), (filled(MORE, cell), 1)):
        parts = fill_in.judge(tables)
        assert parts[at].verdict == expected
        assert verdict(parts) == expected
    parts = fill_in.judge(filled(MORE, MORE, cell, cell))
    assert [part.verdict for part in parts[2:]] == [expected] * 2
    assert verdict(parts) == HOLDS


def paired(
    own: Any = MORE, crossed: float = 51.0, back: float = 60.0, short: float = 70.0, order: float = 70.0
) -> dict[str, Table]:
    def cell(middle: float) -> list[float]:
        return [middle, middle - 2, middle + 2]

    found = {("next", "next"): 80.0, ("next", "order"): crossed, ("order", "next"): back, ("order", "order"): order}
    return {
        "pairs": Table(
            "",
            ("trained on", "asked", "right, %", "mean and 95 % interval"),
            tuple((*key, cell(value), cell(value)) for key, value in found.items()),
        ),
        "differences": Table("", ("points",), ((own,),)),
        "lengths": Table("", ("tokens in a row", "pairs", "right, %"), ((64, 10, short), (512, 10, 51.0))),
    }


@pytest.mark.parametrize(("cell", "expected"), EITHER_WAY)
def test_next_is_easier_if_the_numbers_say_so(cell: Any, expected: str) -> None:
    parts = sentence_pairs.judge(paired(cell))
    assert [part.verdict for part in parts] == [expected, *[HOLDS] * 5]
    assert verdict(parts) == expected


@pytest.mark.parametrize(
    ("cells", "at", "expected"),
    [
        ({"crossed": 65.0}, 2, FAILS),
        ({"crossed": 54.5}, 2, UNDECIDED),
        ({"back": 45.0}, 3, FAILS),
        ({"back": 51.0}, 3, UNDECIDED),
        ({"short": 52.0}, 5, FAILS),
    ],
)
def test_questions_that_are_crossed(cells: dict[str, float], at: int, expected: str) -> None:
    assert sentence_pairs.judge(paired(**cells))[at].verdict == expected


def test_an_order_that_nobody_learnt_decides_nothing() -> None:
    parts = sentence_pairs.judge(paired(order=50.5))
    assert [part.verdict for part in parts] == [HOLDS, HOLDS, UNDECIDED, UNDECIDED, UNDECIDED, HOLDS]
    assert "not learnt" in parts[2].found
    assert sentence_pairs.judge(paired(order=45.0))[4].verdict == FAILS


def shares(cell: Any, none: float = 4.0, blocks: int = 100) -> dict[str, Table]:
    rows: list[tuple[Any, ...]] = [(s, 1000, 300, [none] * 3, [20.0] * 3) for s in sharing.SHARE[:-1]]
    rows += [("all", 800, blocks, [none] * 3, [20.0] * 3), ("frequencies alone", None, None, [5.0] * 3, None)]
    return {
        "shared": Table("", ("shared", "parameters", "of the blocks", "nats", "right, %"), tuple(rows)),
        "differences": Table("", ("shared", "nats", "right, %"), tuple((s, cell, cell) for s in sharing.SHARE[1:])),
    }


@pytest.mark.parametrize(
    ("cell", "expected"),
    [([0.01, 0.0, 0.02], HOLDS), ([0.3, 0.2, 0.4], FAILS), ([0.05, 0.0, 0.1], UNDECIDED), (ONE_SEED, UNDECIDED)],
)
def test_little_is_a_share_of_what_context_is_worth(cell: Any, expected: str) -> None:
    parts = sharing.judge(shares(cell))  # context is worth 1 nat, so 0.05 is little
    assert [part.verdict for part in parts] == [HOLDS, expected, expected, expected]
    assert verdict(parts) == expected


def test_a_network_that_has_not_learnt_could_not_have_told() -> None:
    parts = sharing.judge(shares([0.0, -0.01, 0.01], none=4.95))
    assert verdict(parts) == UNDECIDED
    assert "hardly better than frequencies" in parts[1].found
    assert sharing.judge(shares([0.0, 0.0, 0.0], blocks=200))[0].verdict == FAILS


def masked(ten: Any, one: Any) -> dict[str, Table]:
    ways = tuple((way, [4.0] * 3, [20.0] * 3, [4.0] * 3) for way in masks.WAYS)
    cells = {masks.TEN: ten, masks.ONE: one, masks.WORDS: LESS, masks.RUNS: MORE}
    columns = ("masks", masks.TOKENS, masks.RIGHT, masks.WHOLE)
    return {
        "ways": Table("", columns, ways),
        "differences": Table("", columns, tuple((w, c, c, c) for w, c in cells.items())),
    }


@pytest.mark.parametrize(
    ("cell", "no_worse", "better"),
    [
        (MORE, HOLDS, HOLDS),
        ([0.0, -0.01, 0.01], HOLDS, UNDECIDED),
        ([0.0, -0.1, 0.1], UNDECIDED, UNDECIDED),
        (LESS, FAILS, FAILS),
    ],
)
def test_new_masks_need_only_be_as_good(cell: Any, no_worse: str, better: str) -> None:
    for tables, at in ((masked(cell, MORE), 0), (masked(MORE, cell), 1)):
        parts = masks.judge(tables)
        assert verdict(parts) == no_worse
        assert parts[at].verdict == no_worse
    assert masks.judge(masked(MORE, cell))[2].verdict == better
    assert [part.verdict for part in masks.judge(masked(MORE, MORE))[4:]] == [FAILS, HOLDS]


def mismatched(cell: Any, matched: Any = LESS, tags: bool = True) -> dict[str, Table]:
    probed = [f"{name}, right, %" for name in (probes.CASE, probes.TAGS)[: 2 if tags else 1]]
    measures = (*probed, mask_mismatch.HIDDEN, mask_mismatch.GIVEN, mask_mismatch.NOTICED)
    rows = tuple((way, *([50.0] * 3 for _ in measures), [100.0] * 3) for way in mask_mismatch.ORDER)
    mixed, stopped, alone, never = mask_mismatch.ORDER
    pairs = ((alone, mixed, cell), (alone, stopped, matched), (never, mixed, cell))
    return {
        "ways": Table("", ("hidden places hold", *measures, mask_mismatch.STEP), rows),
        "differences": Table(
            "", ("hidden places hold", "above", *measures), tuple((a, b, *(c for _ in measures)) for a, b, c in pairs)
        ),
    }


@pytest.mark.parametrize(
    ("cell", "worse", "above"),
    [(LESS, HOLDS, FAILS), (MORE, FAILS, HOLDS), (UNSURE, UNDECIDED, UNDECIDED), (ONE_SEED, UNDECIDED, UNDECIDED)],
)
def test_the_mask_costs_something_if_probes_say_so(cell: Any, worse: str, above: str) -> None:
    parts = mask_mismatch.judge(mismatched(cell))
    assert [part.verdict for part in parts] == [worse, HOLDS, worse, HOLDS, above, above, worse, worse]
    assert [part.decides for part in parts] == [True, True, *[False] * 6]
    assert verdict(parts) == worse
    assert verdict(mask_mismatch.judge(mismatched(LESS, cell))) == worse  # where both have learnt as much
    alone = mask_mismatch.judge(mismatched(cell, tags=False))
    assert (len(alone), alone[0].decides, verdict(alone)) == (6, True, worse)
