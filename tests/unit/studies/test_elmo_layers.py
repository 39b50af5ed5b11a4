from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nextword.core.errors import MissingFile
from nextword.data.conll import open_tagged
from nextword.studies import elmo_layers as study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, overall_verdict
from nextword.studies.elmo_layers import CHUNKS, ENTITIES, PENALTIES, USUAL, Tagger, cache_in, judge, make_tables

SEEDS = (0, 1, 2)


def make_runs(
    first: float, held: float, chunks: float, tasks: tuple[str, ...] = (ENTITIES, CHUNKS)
) -> dict[Any, Tagger]:
    """Layer 1's share with λ = 0 and with λ = 1 for names; for chunks with λ = 0. Others share the rest."""
    result = {}
    for task in tasks:
        for seed in SEEDS:
            draw = np.random.default_rng([seed, task == ENTITIES])
            for penalty, share in zip(PENALTIES, (first if task == ENTITIES else chunks, 0.4, 0.37, held), strict=True):
                share = share + 0.002 * draw.normal()
                mix = ((1 - share) * 0.55, share, (1 - share) * 0.45)
                result[task, "input", penalty, seed] = Tagger(
                    80 - penalty + 0.01 * draw.normal(), {"input": (mix, 1.1)}
                )
            equal = ((1 / 3,) * 3, 1.0)
            mixes = {"": {}, "output": {"output": equal}, "both": {"input": equal, "output": equal}}
            for place, mixed in mixes.items():
                score = {"": 70.0, "output": 78.0, "both": 80.5}[place] + 0.01 * draw.normal()
                result[task, place, USUAL, seed] = Tagger(score, mixed)
    return result


@pytest.mark.parametrize(
    ("first", "held", "chunks", "expected"),
    [
        (0.6, 0.34, 0.8, HOLDS),
        (0.2, 0.34, 0.8, FAILS),  # another layer is larger
        (0.6, 0.7, 0.8, FAILS),  # a large λ draws them apart
        (0.6, 0.34, 0.601, UNDECIDED),  # both tasks mix alike
    ],
)
def test_verdict_follows_the_mixes(first: float, held: float, chunks: float, expected: str) -> None:
    parts = judge(make_tables(make_runs(first, held, chunks), (ENTITIES, CHUNKS), SEEDS))
    assert overall_verdict(parts) == expected
    assert all(part.evidence.endswith(".") for part in parts)


def test_side_results_follow_the_scores() -> None:
    results = {
        part.statement: part.verdict
        for part in judge(make_tables(make_runs(0.6, 0.34, 0.8), (ENTITIES, CHUNKS), SEEDS))
    }
    assert results["Without ELMo the tagger is worse than with it at the input (named entities)."] == HOLDS
    assert results["ELMo at the output is better than at the input (named entities)."] == FAILS
    assert results["ELMo at both is better than at the input alone (named entities)."] == HOLDS
    assert results["A small λ scores better than a large one (named entities)."] == HOLDS


def test_one_task_or_one_seed_is_undecided() -> None:
    every = make_runs(0.6, 0.34, 0.8, (ENTITIES,))
    assert overall_verdict(judge(make_tables(every, (ENTITIES,), SEEDS))) == UNDECIDED
    assert overall_verdict(judge(make_tables(make_runs(0.6, 0.34, 0.8), (ENTITIES, CHUNKS), (0,)))) == UNDECIDED


def test_distance_from_equal_weights() -> None:
    assert study.distance_from_equal([1 / 3] * 3) == pytest.approx(0)
    assert study.distance_from_equal([0.5, 0.25, 0.25]) == pytest.approx(100 * (0.5 - 1 / 3))
    assert study.distance_from_equal([1, 0, 0, 0]) == pytest.approx(75)


def test_tasks_are_columns_of_the_same_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for split in ("train", "dev", "test"):
        (theirs / f"{split}.conll").write_text("EU NNP I-ORG\nspoke VBD O\n\nPeter NNP I-PER\n\nso RB O\n")
    known = (("nowhere", {ENTITIES: "1"}), (str(theirs), {ENTITIES: "2", CHUNKS: "1"}))
    monkeypatch.setattr(study, "SOURCES", known)
    name, columns = study.write_tasks(tmp_path / "made", (2, 1, 1))
    assert name == str(theirs)
    names, chunks = (open_tagged(tmp_path / "made", columns[task]) for task in (ENTITIES, CHUNKS))
    assert [sentence.tags for sentence in names["train"].sentences] == [("I-ORG", "O"), ("I-PER",)]
    assert [sentence.words for sentence in chunks["dev"].sentences] == [("EU", "spoke")]
    monkeypatch.setattr(study, "SOURCES", known[:1])
    with pytest.raises(MissingFile):
        study.write_tasks(tmp_path / "other", (2, 1, 1))


def test_cache_folder_is_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_CACHE", "before")
    with cache_in(tmp_path):
        assert os.environ["NEXTWORD_CACHE"] == str(tmp_path)
    assert os.environ["NEXTWORD_CACHE"] == "before"
