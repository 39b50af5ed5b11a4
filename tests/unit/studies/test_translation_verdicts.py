"""Verdicts of the studies of translators follow the numbers, whichever way they fall; and each study runs, if small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.small_pairs import write_pairs
from tests.support.csv_tables import read_tables

from nextword.core.errors import NextwordError, Unsupported
from nextword.data.opening import open_corpus
from nextword.recipe import load_recipe
from nextword.studies import _experiment as pool
from nextword.studies import attention_length, beam_size, find_study, reversed_source, span_corruption
from nextword.studies import exposure_bias as teacher_forcing
from nextword.studies._small_models import TranslatorSize
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Settings, Table, run, verdict, write
from nextword.training.train import train

MORE, LESS, UNSURE, NO_INTERVAL = [0.2, 0.1, 0.3], [-0.2, -0.3, -0.1], [0.1, -0.1, 0.3], [0.1, None, None]


def verdicts(study: Any, tables: dict[str, Table]) -> list[str]:
    return [part.verdict for part in study.judge(tables) if part.decides]


# ------------------------------------------------------------------------------------------------ sources backwards


def gains(**cells: Any) -> dict[str, Table]:
    """Backwards helps without attention, and with it less; `symbols_less=…` and so on say otherwise."""
    names = {"without": "without attention", "with": "with attention", "less": reversed_source.MORE}
    rows = [
        (task, name, cells.get(f"{task}_{key}", UNSURE if key == "with" else MORE), MORE)
        for task in ("symbols", "pairs")
        for key, name in names.items()
    ]
    return {"gains": Table("", ("task", "network", "nats a token", reversed_source.QUALITY), tuple(rows))}


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({}, HOLDS),
        ({"pairs_without": LESS}, FAILS),
        ({"pairs_without": UNSURE}, UNDECIDED),
        ({"symbols_without": NO_INTERVAL}, UNDECIDED),
        ({"symbols_less": LESS}, FAILS),
        ({"pairs_less": UNSURE, "symbols_less": LESS}, FAILS),
        ({"pairs_with": MORE, "symbols_with": MORE}, HOLDS),  # it may help with attention, too, if less
    ],
)
def test_sources_backwards(cells: dict[str, Any], expected: str) -> None:
    parts = reversed_source.judge(gains(**cells))
    assert verdict(parts) == expected
    assert "0.200 nats less" in reversed_source.judge(gains())[0].found
    assert "0.200 nats more" in reversed_source.judge(gains(symbols_without=LESS))[0].found


# ------------------------------------------------------------------------------------------------ long sources


def by_length(**cells: Any) -> dict[str, Table]:
    rows, levels = [], []
    for task in ("symbols", "pairs"):
        levels += [(task, length, *[MORE] * 4) for length in ("4", "20")]
        for measure in (attention_length.NATS, attention_length.QUALITY):
            worth = cells.get(f"{task}_{measure}", MORE)
            rows.append((task, measure, cells.get(f"{task}_lost", MORE), UNSURE, MORE, MORE, worth))
    columns = ("task", "measure", *attention_length.LOST.values())
    columns += (attention_length.SHORTEST, attention_length.LONGEST, attention_length.MORE)
    return {"gains": Table("", columns, tuple(rows)), "levels": Table("", ("task", "source", *"abcd"), tuple(levels))}


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({}, HOLDS),
        ({"symbols_lost": LESS}, FAILS),
        ({"pairs_lost": LESS}, HOLDS),  # decides nothing
        ({"pairs_nats": LESS}, FAILS),
        ({"pairs_nats": UNSURE}, UNDECIDED),
        ({"symbols_quality": LESS}, FAILS),
        ({"pairs_quality": LESS}, HOLDS),
        ({"symbols_nats": NO_INTERVAL}, UNDECIDED),
    ],
)
def test_long_sources(cells: dict[str, Any], expected: str) -> None:
    assert verdict(attention_length.judge(by_length(**cells))) == expected


# ------------------------------------------------------------------------------------------------ beams


def beams(gain: Any = MORE, wide: Any = LESS, liked: Any = MORE, **rest: Any) -> dict[str, Table]:
    given = {("5, plain", "1, plain"): gain, ("50, plain", "10, plain"): wide} | rest
    rows = []
    for one, other in beam_size.COMPARED:
        names = beam_size._name(one), beam_size._name(other)
        rows.append((*names, given.get(names, UNSURE), liked, LESS))
    return {"differences": Table("", ("this", "above", *beam_size.SCORES), tuple(rows))}


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({}, [HOLDS, HOLDS, HOLDS]),
        ({"gain": LESS}, [FAILS, HOLDS, HOLDS]),
        ({"gain": UNSURE}, [UNDECIDED, HOLDS, HOLDS]),
        ({"wide": [1.0, 0.5, 1.5]}, [HOLDS, FAILS, HOLDS]),
        ({"wide": [0.2, 0.1, 0.29]}, [HOLDS, HOLDS, HOLDS]),  # better, by less than what counts
        ({"wide": [0.2, 0.0, 0.5]}, [HOLDS, UNDECIDED, HOLDS]),
        ({"liked": LESS}, [HOLDS, HOLDS, FAILS]),
    ],
)
def test_beams(cells: dict[str, Any], expected: list[str]) -> None:
    assert verdicts(beam_size, beams(**cells)) == expected


# ------------------------------------------------------------------------------------------------ fed the truth


def fed(**cells: Any) -> dict[str, Table]:
    said = {
        "writing on": (
            "further off after own words",
            "the more, the longer it writes",
            "less so after scheduled sampling",
            "the gap is narrower",
            "scheduled sampling costs, fed the truth",
        ),
        "translating": (
            "own words are worse",
            "better after scheduled sampling",
            "scheduled sampling costs, fed the truth",
        ),
    }
    rows = [(task, one, cells.get(one.replace(" ", "_").replace(",", ""), MORE)) for task in said for one in said[task]]
    writing = [(n, f, MORE, MORE, MORE) for n in teacher_forcing.NETWORKS for f in ("the truth", "its own")]
    translating = [(n, MORE, MORE, MORE) for n in teacher_forcing.NETWORKS]
    columns = ("network", "BLEU, fed the truth", "BLEU, fed its own", "nats a token, fed the truth")
    return {
        "differences": Table("", ("task", "said", "by"), tuple(rows)),
        "writing": Table("", ("network", "fed", "all", "1–10", "11–20"), tuple(writing)),
        "translating": Table("", columns, tuple(translating)),
    }


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({}, HOLDS),
        ({"further_off_after_own_words": LESS}, FAILS),
        ({"the_more_the_longer_it_writes": UNSURE}, UNDECIDED),
        ({"own_words_are_worse": LESS}, FAILS),
        ({"better_after_scheduled_sampling": LESS}, FAILS),
        ({"less_so_after_scheduled_sampling": NO_INTERVAL}, UNDECIDED),
        ({"the_gap_is_narrower": LESS}, HOLDS),  # decides nothing
        ({"scheduled_sampling_costs_fed_the_truth": LESS}, HOLDS),
    ],
)
def test_fed_the_truth(cells: dict[str, Any], expected: str) -> None:
    assert verdict(teacher_forcing.judge(fed(**cells))) == expected


# ------------------------------------------------------------------------------------------------ beginnings


def beginnings(verses: Any = MORE, books: Any = MORE, nothing: Any = MORE) -> dict[str, Table]:
    given = {span_corruption.VERSES: verses, span_corruption.BOOKS: books}
    rows = [
        (task, one, than, cell if than == "plain" else nothing, MORE)
        for one, than in (("spans", "plain"), ("spans", "nothing"), ("plain", "nothing"))
        for task, cell in given.items()
    ]
    return {"differences": Table("", ("task", "beginning", "than", "nats", "BLEU or % right"), tuple(rows))}


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({}, HOLDS),
        ({"verses": LESS}, FAILS),
        ({"books": UNSURE}, UNDECIDED),
        ({"books": LESS, "verses": UNSURE}, FAILS),
        ({"nothing": LESS}, HOLDS),  # decides nothing
    ],
)
def test_beginnings(cells: dict[str, Any], expected: str) -> None:
    assert verdict(span_corruption.judge(beginnings(**cells))) == expected


# ------------------------------------------------------------------------------------------------ whole, very small

TINY = TranslatorSize(pieces=280, width=12, rows=8, length=60, longest=60, steps=3, held=64)
STUDIES = {
    "reversed-source": {"QUICK": TINY, "QUICK_COPYING": TINY},
    "attention-length": {"QUICK": TINY, "QUICK_COPYING": TINY},
    "beam-size": {"QUICK": TranslatorSize(280, 12, 8, 60, 20, 3, held=40), "WIDTHS": (1, 5, 10, 50)},
    "teacher-forcing": {"QUICK": TINY, "QUICK_MODEL": TINY, "corpus_for": lambda data: open_corpus("python")},
    "span-corruption": {"QUICK": TranslatorSize(90, 12, 8, 24, 60, 3, held=50), "QUICK_TUNING": (20, 3)},
}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_pairs(tmp_path_factory.mktemp("pairs"))


@pytest.mark.parametrize("name", STUDIES)
def test_a_small_run_has_all_it_should(name: str, pairs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study: Any = find_study(name)
    monkeypatch.setattr(pool, "cores", lambda: 1)
    for key, value in STUDIES[name].items():
        monkeypatch.setattr(study, key, value)
    heard: list[float] = []
    finding = run(name, study, Settings((0, 1), quick=True, data=pairs), lambda done, total: heard.append(done / total))
    assert heard[-1] == 1
    assert {"data", "training", "intervals", "seeds", "command"} <= set(finding.conditions)
    for table in finding.tables.values():
        assert all(len(row) == len(table.columns) for row in table.rows)
    write(finding, study, tmp_path)  # the figure, too
    tables = read_tables(tmp_path)
    assert [part.verdict for part in study.judge(tables)] == [part.verdict for part in finding.parts]


def test_beams_of_a_trained_run(pairs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beam_size, "WIDTHS", (1, 5, 10, 50))
    monkeypatch.setattr(beam_size, "QUICK_OF_A_RUN", 16)
    changes = [f"phase.0.data={pairs}", "tokenizer.size=280", "phase.0.steps=3"]
    list(train(load_recipe("seq2seq/tiny", changes), tmp_path / "run", device="cpu"))
    finding = run("beam-size", find_study("beam-size"), Settings(run=str(tmp_path / "run"), quick=True))
    assert "the run run" in finding.conditions["data"]
    assert "16 of 70 held-out pairs" in finding.conditions["data"]
    assert len(finding.tables["widths"].rows) == 8
    for _, _, *cells in finding.tables["widths"].rows:
        assert all(low <= middle <= high for middle, low, high in cells)  # of its texts: one run has no seeds
    log_p = finding.tables["widths"].column("log p of a text", search="plain")
    assert log_p[0][0] <= log_p[-1][0] + 1e-6  # a beam finds no less likely texts


def test_beams_need_a_model_of_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list(train(load_recipe("rnn/tiny", ["phase.0.data=python", "phase.0.steps=2"]), tmp_path / "run", device="cpu"))
    with pytest.raises(Unsupported, match="makes no text from a source"):
        run("beam-size", find_study("beam-size"), Settings(run=str(tmp_path / "run"), quick=True))
    with pytest.raises(NextwordError, match="trains its own networks"):
        run("span-corruption", find_study("span-corruption"), Settings(run="runs/x"))
