from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nextword.data.tables import Rows
from nextword.studies import ulmfit_ablation as study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Settings, Table, overall_verdict
from nextword.studies.ulmfit_ablation import (
    BACKWARD,
    BOTH,
    CLASSIFIERS,
    COMPLETE,
    LAST,
    NO_TUNING,
    SPLITS,
    Prediction,
    Size,
    judge,
    make_tables,
)

TINY = Size(examples=(32, 16, 24), general=4, tuned=3, epochs=1, embedding=8, width=8)


def predict(wrong: list[int], n: int = 100) -> Prediction:
    """Of n examples of class 0, these are taken for class 1; the more so, the smaller their number."""
    p = np.tile([0.8, 0.2], (n, 1))
    p[wrong] = [0.3, 0.7]
    return Prediction(p, np.zeros(n, np.int64))


def make_error_tables(**errors: int) -> dict[str, Table]:
    """Tables of three seeds in which everything has 30 errors but these, and all parts together 20."""
    cells = {}
    for how in CLASSIFIERS:
        number = errors.get(how.replace(" ", "_"), 20 if how == COMPLETE else 30)
        for seed in range(3):
            first = 60 if how == BACKWARD else 0  # errors of its own, which the average takes away
            cells[how, seed] = predict(list(range(first, first + number + seed)))
    return make_tables(cells, (0, 1, 2))


def test_claim_holds_if_every_part_lowers_the_error() -> None:
    tables = make_error_tables()
    assert tables["errors"].cell(study.ERROR, variant=COMPLETE) == pytest.approx([21.0, 20.0, 22.0])
    assert tables["errors"].cell(study.DIFFERENCE, variant=NO_TUNING) == pytest.approx([10.0, 10.0, 10.0])
    assert tables["errors"].cell(study.ERROR, variant=BOTH)[0] == 0.0  # 0.3 + 0.8 is more than half
    assert overall_verdict(judge(tables)) == HOLDS


def test_part_that_costs_nothing_reverses_the_verdict() -> None:
    assert overall_verdict(judge(make_error_tables(one_rate=10))) == FAILS
    assert overall_verdict(judge(make_error_tables(one_rate=20))) == UNDECIDED
    side = judge(make_error_tables(last_vector=10))
    assert overall_verdict(side) == HOLDS
    assert [part.verdict for part in side if not part.decides] == [FAILS, HOLDS]


def test_one_seed_is_undecided() -> None:
    cells = {(how, 0): predict(list(range(20 if how == COMPLETE else 30))) for how in CLASSIFIERS}
    assert overall_verdict(judge(make_tables(cells, (0,)))) == UNDECIDED


def test_verses_are_the_task_without_data_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "SOURCES", (("no-such-task", "web"),))
    name, text = study.write_task(tmp_path / "task", (60, 30, 30))
    assert (name, text) == (study.BOOKS, "kjv")
    splits = study.make_verses()
    assert all(set(rows.labels or ()) == set(study.BOOK_PARTS.values()) for rows in splits.values())
    assert len((tmp_path / "task" / "train.jsonl").read_text().splitlines()) == 60
    assert len((tmp_path / "task.texts.jsonl").read_text().splitlines()) == sum(map(len, splits.values()))


def test_variants_change_their_stage_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every way through all stages, tiny; and what reaches the recipes."""
    seen: dict[str, list[str]] = {}
    run = study.transfer.run

    def record(recipe: str, source: Any, data: str, out: Any, **given: Any) -> Any:
        seen[Path(out).name] = [Path(source).name, *given["changes"], f"scratch={given['scratch']}"]
        return run(recipe, source, data, out, **given)

    monkeypatch.setattr(study.transfer, "run", record)
    words = tmp_path / "words.txt"
    words.write_text("".join(f"a fine film {i} and a bad film {i * i}\n" for i in range(600)))
    rows = Rows([f"a {'fine' if i % 2 else 'bad'} film {i}" for i in range(900)], labels=["no", "yes"] * 450)
    monkeypatch.setattr(study, "_find_task", lambda: ("films", str(words), dict.fromkeys(SPLITS, rows)))
    monkeypatch.setattr(study, "QUICK", TINY)
    monkeypatch.setattr(study, "run_parallel", lambda jobs, _: {k: work(*args) for k, (work, args) in jobs.items()})
    tables, about = study.measure(Settings(seeds=(0,), quick=True), lambda done, total: None)
    assert [row[0] for row in tables["errors"].rows] == [*CLASSIFIERS, BOTH]
    assert "words.txt for the first" in about["data"]
    assert seen["3-no_tuning-0"][0] == "1-False-0"
    assert seen["3-complete-0"] == ["2-complete-0", "phase.all.epochs=1", "scratch=False"]
    assert seen["3-neither-0"][-1] == "scratch=True"
    assert "phase.*.optimizer.layer_discount=1" in seen["3-one_rate-0"]
    assert seen["3-constant_rate-0"][:1] == ["2-constant_rate-0"]
    assert "phase.*.trainable_groups=0" in seen["3-unfrozen_at_once-0"]
    assert "task.pooling=last" in seen[f"3-{LAST.replace(' ', '_')}-0"]
    assert seen["3-backward-0"][0] == "2-backward-0"
