"""The study of ULMFiT's parts: verdicts follow the numbers, and every way to leave something out does that."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nextword.data.tables import Rows
from nextword.studies import find_study
from nextword.studies import ulmfit_ablation as ulmfit_parts_runs
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Settings, Table, verdict
from nextword.studies.ulmfit_ablation import (
    ALL,
    BACKWARD,
    CLASSIFIERS,
    LAST,
    SPLITS,
    TOGETHER,
    Said,
    Size,
    judge,
    tables_of,
    write_task,
)

TINY = Size(examples=(32, 16, 24), general=4, tuned=3, epochs=1, embedding=8, width=8)


def said(wrong: list[int], n: int = 100) -> Said:
    """Of n examples of class 0, these are taken for class 1; the more so, the smaller their number."""
    p = np.tile([0.8, 0.2], (n, 1))
    p[wrong] = [0.3, 0.7]
    return Said(p, np.zeros(n, np.int64))


def made(**errors: int) -> dict[str, Table]:
    """Tables of three seeds in which everything has 30 errors but these, and all parts together 20."""
    cells = {}
    for how in CLASSIFIERS:
        number = errors.get(how.replace(" ", "_"), 20 if how == ALL else 30)
        for seed in range(3):
            first = 60 if how == BACKWARD else 0  # errors of its own, which the average takes away
            cells[how, seed] = said(list(range(first, first + number + seed)))
    return tables_of(cells, (0, 1, 2))


def test_it_holds_where_every_part_left_out_costs_something() -> None:
    tables = made()
    assert tables["errors"].cell("error", left_out=ALL) == pytest.approx([21.0, 20.0, 22.0])
    assert tables["errors"].cell("above", left_out="no tuning") == pytest.approx([10.0, 10.0, 10.0])
    assert tables["errors"].cell("error", left_out=TOGETHER)[0] == 0.0  # 0.3 + 0.8 is more than half
    assert verdict(judge(tables)) == HOLDS


def test_a_part_that_costs_nothing_turns_it_round() -> None:
    assert verdict(judge(made(one_rate=10))) == FAILS
    assert verdict(judge(made(one_rate=20))) == UNDECIDED
    beside = judge(made(last_vector=10))
    assert verdict(beside) == HOLDS
    assert [part.verdict for part in beside if not part.decides] == [FAILS, HOLDS]


def test_one_seed_decides_nothing() -> None:
    cells = {(how, 0): said(list(range(20 if how == ALL else 30))) for how in CLASSIFIERS}
    assert verdict(judge(tables_of(cells, (0,)))) == UNDECIDED


def test_verses_are_a_task_where_there_is_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ulmfit_parts_runs, "SOURCES", (("no-such-task", "web"),))
    name, text = write_task(tmp_path / "task", (60, 30, 30))
    assert (name, text) == (ulmfit_parts_runs.BOOKS, "kjv")
    splits = ulmfit_parts_runs._verses()
    assert all(set(rows.labels or ()) == set(ulmfit_parts_runs.PARTS.values()) for rows in splits.values())
    assert len((tmp_path / "task" / "train.jsonl").read_text().splitlines()) == 60
    assert len((tmp_path / "task.texts.jsonl").read_text().splitlines()) == sum(map(len, splits.values()))


def test_what_is_left_out_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every way through all stages, tiny; and what reaches the recipes."""
    seen: dict[str, list[str]] = {}
    run = ulmfit_parts_runs.transfer.run

    def listened(recipe: str, source: Any, data: str, out: Any, **given: Any) -> Any:
        seen[Path(out).name] = [Path(source).name, *given["changes"], f"scratch={given['scratch']}"]
        return run(recipe, source, data, out, **given)

    monkeypatch.setattr(ulmfit_parts_runs.transfer, "run", listened)
    words = tmp_path / "words.txt"
    words.write_text("".join(f"a fine film {i} and a bad film {i * i}\n" for i in range(600)))
    rows = Rows([f"a {'fine' if i % 2 else 'bad'} film {i}" for i in range(900)], labels=["no", "yes"] * 450)
    monkeypatch.setattr(ulmfit_parts_runs, "_found", lambda: ("films", str(words), dict.fromkeys(SPLITS, rows)))
    study: Any = find_study("ulmfit-parts")
    monkeypatch.setattr(study, "QUICK", TINY)
    monkeypatch.setattr(study, "spread", lambda jobs, _: {key: work(*own) for key, (work, own) in jobs.items()})
    tables, about = study.measure(Settings(seeds=(0,), quick=True), lambda done, total: None)
    assert [row[0] for row in tables["errors"].rows] == [*CLASSIFIERS, TOGETHER]
    assert "words.txt for the first" in about["data"]
    assert seen["3-no_tuning-0"][0] == "1-False-0"
    assert seen["3-all_parts-0"] == ["2-all_parts-0", "phase.all.epochs=1", "scratch=False"]
    assert seen["3-neither-0"][-1] == "scratch=True"
    assert "phase.*.optimizer.discount=1" in seen["3-one_rate-0"]
    assert seen["3-constant_rate-0"][:1] == ["2-constant_rate-0"]
    assert "phase.*.trains=0" in seen["3-thawed_at_once-0"]
    assert "task.reads=last" in seen[f"3-{LAST.replace(' ', '_')}-0"]
    assert seen["3-backwards-0"][0] == "2-backwards-0"
