"""Studies: the contract over each of them, verdicts that numbers to the contrary turn round, and the command."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
import typer
from tests.support.csv_tables import read_tables
from typer.testing import CliRunner

from nextword.cli.console import guarded
from nextword.cli.look import look
from nextword.core.errors import NextwordError
from nextword.core.io import finite
from nextword.studies import STUDIES, find_study, parameter_growth
from nextword.studies import initialization as initialisation
from nextword.studies._study import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Claim,
    Finding,
    Part,
    Settings,
    Table,
    growth,
    judged,
    marginal,
    over_seeds,
    run,
    verdict,
    write,
    written,
)


@pytest.fixture(scope="module", params=("ngram-sparsity", "parameter-growth", "initialisation"))  # those of seconds
def finding(request: pytest.FixtureRequest) -> Finding:
    """Each study, really run, on the text that every Python has."""
    return run(request.param, find_study(request.param), Settings(quick=True, seeds=(0, 1), data="python"))


def changed(table: Table, column: str, value: object, **where: object) -> Table:
    """The table with other numbers in it; `value` may be a function of the row as a dictionary."""
    rows = []
    for row in table.rows:
        named = dict(zip(table.columns, row, strict=True))
        if all(named[key] == wanted for key, wanted in where.items()):
            named[column] = value(named) if callable(value) else value
        rows.append(tuple(named.values()))
    return replace(table, rows=tuple(rows))


# ------------------------------------------------------------------------------------------------ every study


def test_a_study_finds_what_the_literature_says(finding: Finding) -> None:
    assert finding.verdict == HOLDS
    assert any(part.verdict == FAILS and not part.decides for part in finding.parts)  # and qualifies it


def test_a_finding_states_its_claim_conditions_and_uncertainty(finding: Finding) -> None:
    assert finding.claim.sentence.endswith(".")
    assert finding.claim.source
    assert all(part.says and part.found and part.uncertainty for part in finding.parts)
    assert {"data", "seeds", "seconds", "command"} <= set(finding.conditions)
    assert finding.conditions["command"].endswith(f"{finding.name} --seeds 2 --seed 0 --quick --data python")
    for table in finding.tables.values():
        assert all(len(row) == len(table.columns) for row in table.rows)


def test_the_files_are_whole_and_the_verdict_follows_from_the_numbers(finding: Finding, tmp_path: Path) -> None:
    study = find_study(finding.name)
    files = write(finding, study, tmp_path / "a")
    assert sorted(file.name for file in (tmp_path / "a").iterdir()) == sorted(file.name for file in files)
    tables = read_tables(tmp_path / "a")
    assert tuple(study.judge(tables)) == finding.parts
    assert (tmp_path / "a" / "figure.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "a" / "study.md").read_text()
    assert finding.sentence in page
    assert "figure.svg" in page
    write(finding, study, tmp_path / "b")
    assert (tmp_path / "a" / "figure.svg").read_bytes() == (tmp_path / "b" / "figure.svg").read_bytes()


def test_a_study_leaves_the_callers_random_numbers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initialisation, "QUICK_STEPS", 1)
    torch.manual_seed(7)
    expected, threads = torch.rand(3), torch.get_num_threads()
    torch.manual_seed(7)
    initialisation.measure(Settings(quick=True, seeds=(0,), data="python"), lambda done, total: None)
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads


def test_too_short_a_text_says_what_to_do(tmp_path: Path) -> None:
    text = tmp_path / "short.txt"
    text.write_text("\n".join(f"line {i % 50} of a text with few different words" for i in range(2000)))
    with pytest.raises(NextwordError, match=r"different words.*--data"):
        parameter_growth.measure(Settings(data=str(text)), lambda done, total: None)


# ------------------------------------------------------------------------------------------------ verdicts


def test_a_claim_falls_with_one_part_and_waits_for_all() -> None:
    def part(word: str, decides: bool = True) -> Part:
        return Part("", word, "", "", decides)

    assert verdict([part(HOLDS), part(HOLDS), part(FAILS, decides=False)]) == HOLDS
    assert verdict([part(HOLDS), part(UNDECIDED)]) == UNDECIDED
    assert verdict([part(UNDECIDED), part(FAILS)]) == FAILS
    assert verdict([]) == UNDECIDED
    assert [judged(x) for x in (True, False, None)] == [HOLDS, FAILS, UNDECIDED]


@pytest.fixture(scope="module")
def growing() -> dict[str, Table]:
    return parameter_growth.measure(Settings(quick=True, seeds=(0, 1), data="python"), lambda done, total: None)[0]


def test_a_network_that_grew_otherwise_would_be_found_out(growing: dict[str, Table]) -> None:
    sizes = growing["sizes"]
    square = changed(sizes, "NPLM", lambda row: row["NPLM"] and row["|V|"] ** 2 * row["N"])
    assert [p.verdict for p in parameter_growth.judge({**growing, "sizes": square})][:2] == [FAILS, HOLDS]
    barely = changed(sizes, "NPLM", lambda row: row["NPLM"] and round(row["|V|"] ** 1.05 * 1000 * row["N"]))
    assert parameter_growth.judge({**growing, "sizes": barely})[0].verdict == FAILS
    exponential = changed(sizes, "NPLM", lambda row: row["NPLM"] and row["|V|"] * 10 ** row["N"])
    assert [p.verdict for p in parameter_growth.judge({**growing, "sizes": exponential})][:2] == [HOLDS, FAILS]
    two = replace(sizes, rows=tuple(row for row in sizes.rows if row[0] in (250, 500)))
    assert parameter_growth.judge({**growing, "sizes": two})[0].verdict == UNDECIDED


def test_a_text_that_filled_the_table_would_turn_the_qualification(growing: dict[str, Table]) -> None:
    full = changed(growing["growth"], "stored, half the text", [3.0, 2.9, 3.0], N=3)
    assert parameter_growth.judge({**growing, "growth": full})[-1].verdict == HOLDS
    unsure = changed(growing["growth"], "stored, half the text", [2.5, 2.1, 2.9], N=3)
    assert parameter_growth.judge({**growing, "growth": unsure})[-1].verdict == UNDECIDED


@pytest.fixture(scope="module")
def started() -> dict[str, Table]:
    """The full run's numbers, rounded: enough to judge."""
    units = {"zeros": (1, 0, 4.37), "constant 0.1": (1, 1, 4.0)}
    rows = [(name, *([x] * 3 for x in units.get(name, (32, 25, 3.0)))) for name in initialisation.TRAINED]
    rows.append(("no hidden layer: unigram", None, None, [4.37] * 3))
    kept = {"normal 0.01": 5e-15, "uniform ±1/√n": 4e-5, "Xavier": 0.13, "orthogonal": 0.13, "normal 1": 1.0}
    stack = [("linear", name, [1.0] * 3, [1.0] * 3, None) for name in kept]
    stack += [("tanh", n, [x] * 3, [x] * 3, [0.87 if n == "normal 1" else 0.0] * 3) for n, x in kept.items()]
    columns = ("stack", "weights", "signal, last / first layer", "gradient, first / last layer", "saturated at the end")
    return {
        "features": Table("", ("weights", "different units", "features", "bits/byte"), tuple(rows)),
        "stack": Table("", columns, tuple(stack)),
    }


def verdicts(tables: dict[str, Table]) -> list[str]:
    return [part.verdict for part in initialisation.judge(tables)]


def test_initialisation_as_measured(started: dict[str, Table]) -> None:
    assert verdicts(started) == [HOLDS, HOLDS, HOLDS, FAILS, FAILS]


@pytest.mark.parametrize(
    ("name", "cell", "expected"),
    [
        ("zeros", [5, 4, 6], UNDECIDED),  # one of the two equal beginnings, and not the other
        ("constant 0.1", [1, 1, 3], UNDECIDED),  # some seeds
        ("normal 0.01", [1, 1, 1], UNDECIDED),  # the measure sees no difference anywhere
    ],
)
def test_units_that_part_are_found_out(started: dict[str, Table], name: str, cell: list[int], expected: str) -> None:
    features = changed(started["features"], "different units", cell, weights=name)
    assert verdicts({**started, "features": features})[0] == expected


def test_equal_weights_that_learnt_many_features_would_refute(started: dict[str, Table]) -> None:
    features = started["features"]
    for name in initialisation.EQUAL:
        features = changed(features, "different units", [32, 30, 32], weights=name)
    features = changed(features, "features", [1, 1, 1], weights="zeros")
    assert verdicts({**started, "features": features}) == [FAILS, HOLDS, HOLDS, HOLDS, FAILS]


@pytest.mark.parametrize(("cell", "expected"), [([0.3, 0.2, 0.4], FAILS), ([0.6, 0.4, 0.9], UNDECIDED)])
def test_a_lost_variance_is_found_out(started: dict[str, Table], cell: list[float], expected: str) -> None:
    for column in started["stack"].columns[2:4]:
        stack = changed(started["stack"], column, cell, stack="linear", weights="Xavier")
        assert verdicts({**started, "stack": stack})[1] == expected


def test_xavier_that_saturates_is_found_out(started: dict[str, Table]) -> None:
    stack = changed(started["stack"], "saturated at the end", [0.6, 0.5, 0.7], stack="tanh", weights="Xavier")
    assert verdicts({**started, "stack": stack})[2] == FAILS
    stack = changed(started["stack"], "saturated at the end", [0.04, 0.03, 0.06], stack="tanh", weights="Xavier")
    assert verdicts({**started, "stack": stack})[2] == UNDECIDED


# ------------------------------------------------------------------------------------------------ measuring


def test_ngrams_are_counted_within_documents_and_with_rare_words_as_one() -> None:
    draw = np.random.default_rng(0)
    documents = [draw.integers(1, 30, size=n) for n in (1, 3, 50, 400)]
    kept = [[int(word) if word < 12 else 0 for word in document] for document in documents]
    for n, found in zip(parameter_growth.ORDERS, parameter_growth.filled(documents, 12), strict=True):
        assert found == len(Counter(tuple(d[i : i + n]) for d in kept for i in range(len(d) - n + 1)))


@pytest.mark.parametrize("n", [2, 5])
def test_the_network_has_as_many_parameters_as_the_paper_says(n: int) -> None:
    v, m, h = 500, parameter_growth.NETWORK.embedding, parameter_growth.NETWORK.width
    counted = sum(parameter_growth.network_parameters(v, n, direct=True).values())
    assert counted == v * (1 + n * m + h) + h * (1 + (n - 1) * m)  # Bengio et al. 2003, section 2


def test_units_and_features() -> None:
    one = torch.randn(100, 1, generator=torch.Generator().manual_seed(0))
    two = torch.randn(100, 1, generator=torch.Generator().manual_seed(1))
    assert (initialisation.different(one.repeat(1, 8)), initialisation.features(one.repeat(1, 8))) == (1, 1)
    mixed = torch.cat([one, 2 * one, two, one], 1)
    assert (initialisation.different(mixed), initialisation.features(mixed)) == (3, 2)
    assert (initialisation.different(torch.zeros(100, 8)), initialisation.features(torch.zeros(100, 8))) == (1, 0)


def test_orthogonal_layers_carry_a_signal_unchanged() -> None:
    run = initialisation.carried(initialisation.square_orthogonal, tanh=False, seed=0)
    signal, gradient, saturated = initialisation.arrived(run)
    assert signal == pytest.approx(1, rel=1e-4)
    assert gradient == pytest.approx(1, rel=1e-4)
    assert saturated == 0


def test_growth_marginal_and_ranges() -> None:
    cubic = growth([1, 2, 4, 8], [5, 40, 320, 2560])
    assert (cubic.exponent, cubic.r2) == (pytest.approx(3), pytest.approx(1))
    assert growth([1, 2, 4], [7, 7, 7]).exponent == pytest.approx(0)
    assert marginal([1, 2, 4], [10, 13, 19]) == [3, 3]
    assert over_seeds([3, 1, 2]) == [2, 1, 3]
    assert over_seeds([0.5, 1, 2, 4]) == [1.5, 0.5, 4]


def test_numbers_are_written_for_readers() -> None:
    cells = [None, 1234567, 8000**5, 0.0, 3.5, 280478948.0, 4.7e-15, [2, 1, 3], [1, 1, 1], "Xavier"]
    expected = ["–", "1,234,567", "3.3e+19", "0", "3.50", "2.8e+08", "4.7e-15", "2 (1–3)", "1", "Xavier"]
    assert [written(cell) for cell in cells] == expected
    assert finite({"a": (float("inf"), 1.0)}) == {"a": [None, 1.0]}


# ------------------------------------------------------------------------------------------------ the command


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """`look` with one more study: what adding one takes."""
    module = ModuleType("studies_of_this_test")
    module.CLAIM = Claim("Two and two are four.", "any primer")  # type: ignore[attr-defined]
    table = Table("sums", ("a", "b", "a + b"), ((2, 2, 4),))
    module.measure = lambda settings, progress: ({"sums": table}, {"data": "none [really]"})  # type: ignore[attr-defined]
    module.judge = lambda tables: [  # type: ignore[attr-defined]
        Part("2 + 2 = 4.", judged(tables["sums"].cell("a + b", a=2) == 4), "It is 4.", "arithmetic")
    ]
    module.draw = lambda tables, figure: figure.subplots().plot([1, 2])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(STUDIES, "sums", module.__name__)
    app = typer.Typer()
    app.command()(guarded(look))
    return app


def test_look_runs_a_study_and_writes_it(command: typer.Typer, tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["sums", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "The claim holds." in result.output
    assert "none [really]" in result.output
    assert {file.name for file in (tmp_path / "sums").iterdir()} == {
        "figure.svg",
        "figure.png",
        "numbers.json",
        "study.md",
    }


def test_look_speaks_json(command: typer.Typer, tmp_path: Path) -> None:
    args = ["sums", "--json", "--seeds", "2", "--seed", "3", "--out", str(tmp_path)]
    result = json.loads(CliRunner().invoke(command, args).stdout)
    assert (result["study"], result["verdict"], result["conditions"]["seeds"]) == ("sums", HOLDS, [3, 4])
    assert all(Path(file).is_file() for file in result["files"])
    listed = json.loads(CliRunner().invoke(command, ["--json"]).stdout)
    assert {entry["study"] for entry in listed} == set(STUDIES)


def test_look_lists_the_claims(command: typer.Typer) -> None:
    output = CliRunner().invoke(command, []).output
    assert all(name in output for name in STUDIES)
    assert "Two and two are four." in output


def test_look_errs_before_it_works(command: typer.Typer, tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["parameter-grow"])
    assert result.exit_code == 1
    assert "parameter-growth" in result.output
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(command, ["initialisation", "--out", str(tmp_path / "file")])
    assert result.exit_code == 1
    assert "--out" in result.output
    with pytest.raises(NextwordError, match="from 0 on"):
        Settings(seeds=(-1,))
