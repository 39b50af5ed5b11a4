from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nextword.core.errors import DataError
from nextword.studies import parameter_growth as study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Settings, Table
from tests.support.study_tables import change


@pytest.fixture(scope="module")
def tables() -> dict[str, Table]:
    return study.measure(Settings(quick=True, seeds=(0, 1), data="python"), lambda done, total: None)[0]


def test_superlinear_network_fails(tables: dict[str, Table]) -> None:
    sizes = tables["sizes"]
    square = change(sizes, "NPLM", lambda row: row["NPLM"] and row["|V|"] ** 2 * row["N"])
    assert [p.verdict for p in study.judge({**tables, "sizes": square})][:2] == [FAILS, HOLDS]
    barely = change(sizes, "NPLM", lambda row: row["NPLM"] and round(row["|V|"] ** 1.05 * 1000 * row["N"]))
    assert study.judge({**tables, "sizes": barely})[0].verdict == FAILS
    exponential = change(sizes, "NPLM", lambda row: row["NPLM"] and row["|V|"] * 10 ** row["N"])
    assert [p.verdict for p in study.judge({**tables, "sizes": exponential})][:2] == [HOLDS, FAILS]


def test_two_sizes_leave_linearity_undecided(tables: dict[str, Table]) -> None:
    sizes = tables["sizes"]
    two = replace(sizes, rows=tuple(row for row in sizes.rows if row[0] in (250, 500)))
    assert study.judge({**tables, "sizes": two})[0].verdict == UNDECIDED


def test_text_that_fills_the_table_reverses_the_side_result(tables: dict[str, Table]) -> None:
    full = change(tables["growth"], study.HALVES, [3.0, 2.9, 3.0], N=3)
    assert study.judge({**tables, "growth": full})[-1].verdict == HOLDS
    unsure = change(tables["growth"], study.HALVES, [2.5, 2.1, 2.9], N=3)
    assert study.judge({**tables, "growth": unsure})[-1].verdict == UNDECIDED


def test_ngrams_are_counted_within_documents_with_rare_words_merged() -> None:
    draw = np.random.default_rng(0)
    documents = [draw.integers(1, 30, size=n) for n in (1, 3, 50, 400)]
    merged = [[int(word) if word < 12 else 0 for word in document] for document in documents]
    for n, count in zip(study.ORDERS, study.count_ngrams(documents, 12), strict=True):
        assert count == len(Counter(tuple(d[i : i + n]) for d in merged for i in range(len(d) - n + 1)))


@pytest.mark.parametrize("n", [2, 5])
def test_network_parameters_match_the_formula_of_the_paper(n: int) -> None:
    v, m, h = 500, study.NETWORK.embedding, study.NETWORK.width
    counted = sum(study.count_parameters(v, n, direct=True).values())
    assert counted == v * (1 + n * m + h) + h * (1 + (n - 1) * m)  # Bengio et al. 2003, section 2


def test_text_with_few_words_is_rejected(tmp_path: Path) -> None:
    text = tmp_path / "short.txt"
    text.write_text("\n".join(f"line {i % 50} of a text with few different words" for i in range(2000)))
    with pytest.raises(DataError, match="--data"):
        study.measure(Settings(data=str(text)), lambda done, total: None)
