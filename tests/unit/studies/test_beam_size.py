from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nextword.core.errors import Unsupported
from nextword.recipe import load_recipe
from nextword.studies import beam_size as study
from nextword.studies import run_study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Settings, Table
from nextword.training.train import train_events
from tests.support.small_pairs import write_pairs
from tests.support.study_tables import ABOVE, BELOW, UNSURE, verdicts


def make_tables(gain: Any = ABOVE, wide: Any = BELOW, log_p: Any = ABOVE) -> dict[str, Table]:
    cells = {study.COMPARED[0]: gain, study.COMPARED[2]: wide}
    rows = [(*map(study.beam_name, pair), cells.get(pair, UNSURE), log_p, BELOW) for pair in study.COMPARED]
    return {"differences": Table("", ("beam", "minus", *study.SCORES), tuple(rows))}


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({}, [HOLDS, HOLDS, HOLDS]),
        ({"gain": BELOW}, [FAILS, HOLDS, HOLDS]),
        ({"gain": UNSURE}, [UNDECIDED, HOLDS, HOLDS]),
        ({"wide": [1.0, 0.5, 1.5]}, [HOLDS, FAILS, HOLDS]),
        ({"wide": [0.2, 0.1, 0.29]}, [HOLDS, HOLDS, HOLDS]),  # better by less than what counts
        ({"wide": [0.2, 0.0, 0.5]}, [HOLDS, UNDECIDED, HOLDS]),
        ({"log_p": BELOW}, [HOLDS, HOLDS, FAILS]),
    ],
)
def test_verdict_follows_the_differences(cells: dict[str, Any], expected: list[str]) -> None:
    assert verdicts([part for part in study.judge(make_tables(**cells)) if part.decides]) == expected


def test_trained_run_translates_its_own_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "WIDTHS", (1, 5, 10, 50))
    monkeypatch.setattr(study, "QUICK_RUN_PAIRS", 16)
    changes = [f"phase.0.data={write_pairs(tmp_path)}", "tokenizer.size=280", "phase.0.steps=3"]
    list(train_events(load_recipe("seq2seq/tiny", changes), tmp_path / "run", device="cpu"))
    finding = run_study("beam-size", Settings(run=str(tmp_path / "run"), quick=True))
    assert "the run run" in finding.conditions["data"]
    assert "16 of 70 held-out pairs" in finding.conditions["data"]
    assert len(finding.tables["widths"].rows) == 8
    for _, _, *cells in finding.tables["widths"].rows:
        assert all(low <= mean <= high for mean, low, high in cells)  # over the texts
    log_p = finding.tables["widths"].column(study.LOG_P, ranked_by=study.BY_PROBABILITY)
    assert log_p[0][0] <= log_p[-1][0] + 1e-6


def test_run_that_does_not_translate_is_rejected(tmp_path: Path) -> None:
    recipe = load_recipe("rnn/tiny", ["phase.0.data=python", "phase.0.steps=2"])
    list(train_events(recipe, tmp_path / "run", device="cpu"))
    with pytest.raises(Unsupported) as caught:
        run_study("beam-size", Settings(run=str(tmp_path / "run"), quick=True))
    assert caught.value.ability == "translate"
