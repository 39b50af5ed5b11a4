"""The study of mixes: its tasks' files, its sums, and verdicts that can come out either way."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nextword.core.errors import NextwordError
from nextword.data.conll import open_tagged
from nextword.studies import elmo_layers as elmo_mix_runs
from nextword.studies import find_study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, verdict
from nextword.studies.elmo_layers import (
    CHUNKS,
    NAMES,
    PENALTIES,
    PLACES,
    USUAL,
    Tagged,
    cache_in,
    distance,
    judge,
    tables_of,
    write_tasks,
)

SEEDS = (0, 1, 2)


def runs(first: float, held: float, chunks: float, tasks: tuple[str, ...] = (NAMES, CHUNKS)) -> dict[Any, Tagged]:
    """Layer 1's share with λ = 0 and with λ = 1 for names; for chunks with λ = 0. Others share the rest."""
    found = {}
    for task in tasks:
        for seed in SEEDS:
            draw = np.random.default_rng([seed, task == NAMES])
            for penalty, share in zip(PENALTIES, (first if task == NAMES else chunks, 0.4, 0.37, held), strict=True):
                share = share + 0.002 * draw.normal()
                mix = ((1 - share) * 0.55, share, (1 - share) * 0.45)
                found[task, "input", penalty, seed] = Tagged(80 - penalty + 0.01 * draw.normal(), {"input": (mix, 1.1)})
            equal = ((1 / 3,) * 3, 1.0)
            mixes = {"": {}, "output": {"output": equal}, "both": {"input": equal, "output": equal}}
            for place, mixed in mixes.items():
                score = {"": 70.0, "output": 78.0, "both": 80.5}[place] + 0.01 * draw.normal()
                found[task, place, USUAL, seed] = Tagged(score, mixed)
    return found


@pytest.mark.parametrize(
    ("first", "held", "chunks", "expected"),
    [
        (0.6, 0.34, 0.8, HOLDS),
        (0.2, 0.34, 0.8, FAILS),  # another layer is larger
        (0.6, 0.7, 0.8, FAILS),  # a large λ draws them apart
        (0.6, 0.34, 0.601, UNDECIDED),  # both tasks mix alike
    ],
)
def test_the_numbers_decide(first: float, held: float, chunks: float, expected: str) -> None:
    parts = judge(tables_of(runs(first, held, chunks), (NAMES, CHUNKS), SEEDS))
    assert verdict(parts) == expected
    assert all(part.found.endswith(".") for part in parts)


def test_what_stands_beside_the_claim() -> None:
    said = {part.says: part.verdict for part in judge(tables_of(runs(0.6, 0.34, 0.8), (NAMES, CHUNKS), SEEDS))}
    assert said["Without ELMo it is worse than with it at the input (names)."] == HOLDS
    assert said["At the output ELMo does better than at the input (names)."] == FAILS
    assert said["At the output too it does better than at the input alone (names)."] == HOLDS
    assert said["A small λ scores better than a large one (names)."] == HOLDS


def test_one_task_and_one_seed_decide_nothing() -> None:
    every = runs(0.6, 0.34, 0.8, (NAMES,))
    assert verdict(judge(tables_of(every, (NAMES,), SEEDS))) == UNDECIDED
    assert verdict(judge(tables_of(runs(0.6, 0.34, 0.8), (NAMES, CHUNKS), (0,)))) == UNDECIDED


def test_distance_is_what_would_change_hands() -> None:
    assert distance([1 / 3] * 3) == pytest.approx(0)
    assert distance([0.5, 0.25, 0.25]) == pytest.approx(100 * (0.5 - 1 / 3))
    assert distance([1, 0, 0, 0]) == pytest.approx(75)


def test_tasks_are_columns_of_the_same_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for split in ("train", "dev", "test"):
        (theirs / f"{split}.conll").write_text("EU NNP I-ORG\nspoke VBD O\n\nPeter NNP I-PER\n\nso RB O\n")
    known = (("nowhere", {NAMES: "1"}), (str(theirs), {NAMES: "2", CHUNKS: "1"}))
    monkeypatch.setattr(elmo_mix_runs, "SOURCES", known)
    name, columns = write_tasks(tmp_path / "made", (2, 1, 1))
    assert name == str(theirs)
    names, chunks = (open_tagged(tmp_path / "made", columns[task]) for task in (NAMES, CHUNKS))
    assert [one.tags for one in names["train"].sentences] == [("I-ORG", "O"), ("I-PER",)]
    assert [one.words for one in chunks["dev"].sentences] == [("EU", "spoke")]
    monkeypatch.setattr(elmo_mix_runs, "SOURCES", known[:1])
    with pytest.raises(NextwordError, match="no tagged sentences"):
        write_tasks(tmp_path / "other", (2, 1, 1))


def test_what_is_kept_goes_with_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_CACHE", "before")
    with cache_in(tmp_path):
        assert os.environ["NEXTWORD_CACHE"] == str(tmp_path)
    assert os.environ["NEXTWORD_CACHE"] == "before"


def test_it_is_in_the_table_of_studies_and_compares_every_place() -> None:
    assert find_study("elmo-mix").CLAIM.sentence
    assert set(PLACES) == {"", "input", "output", "both"}
