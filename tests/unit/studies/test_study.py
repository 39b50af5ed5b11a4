"""The contract of a study, the three studies that run in seconds, and the command `nextword look`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import typer
from typer.testing import CliRunner

from nextword.cli.console import handle_errors
from nextword.cli.look import look
from nextword.core.errors import InvalidSetting, UnknownName
from nextword.core.io import replace_nonfinite
from nextword.studies import ACCEPTS_RUN, STUDIES, command_line, find_study, run_study
from nextword.studies._report import write
from nextword.studies._study import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Claim,
    Finding,
    Part,
    Settings,
    Table,
    overall_verdict,
)
from tests.support.study_tables import read_tables


@pytest.fixture(scope="module", params=("ngram-sparsity", "parameter-growth", "initialization"))
def finding(request: pytest.FixtureRequest) -> Finding:
    return run_study(request.param, Settings(quick=True, seeds=(0, 1), data="python"))


# ------------------------------------------------------------------------------------------------ fast studies


def test_fast_study_on_real_text_confirms_the_literature(finding: Finding) -> None:
    assert finding.verdict == HOLDS
    assert any(part.verdict == FAILS and not part.decides for part in finding.parts)


def test_finding_has_claim_conditions_and_uncertainty(finding: Finding) -> None:
    assert finding.claim.sentence.endswith(".")
    assert finding.claim.source
    assert all(part.statement and part.evidence and part.uncertainty for part in finding.parts)
    assert {"data", "seeds", "seconds", "command"} <= set(finding.conditions)
    assert finding.conditions["command"].endswith(f"{finding.name} --num-seeds 2 --seed 0 --quick --data python")
    for table in finding.tables.values():
        assert all(len(row) == len(table.columns) for row in table.rows)


def test_written_files_reproduce_parts_and_figure(finding: Finding, tmp_path: Path) -> None:
    study = find_study(finding.name)
    files = write(finding, study, tmp_path / "a")
    assert sorted(file.name for file in (tmp_path / "a").iterdir()) == sorted(file.name for file in files)
    assert tuple(study.judge(read_tables(tmp_path / "a"))) == finding.parts
    assert (tmp_path / "a" / "figure.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "a" / "study.md").read_text()
    assert finding.summary in page
    assert "figure.svg" in page
    write(finding, study, tmp_path / "b")
    assert (tmp_path / "a" / "figure.svg").read_bytes() == (tmp_path / "b" / "figure.svg").read_bytes()


# ------------------------------------------------------------------------------------------------ contract


def test_overall_verdict_ignores_side_results_and_fails_with_any_part() -> None:
    def part(holds: bool | None, decides: bool = True) -> Part:
        return Part("", holds, "", "", decides)

    assert overall_verdict([part(True), part(True), part(False, decides=False)]) == HOLDS
    assert overall_verdict([part(True), part(None)]) == UNDECIDED
    assert overall_verdict([part(None), part(False)]) == FAILS
    assert overall_verdict([]) == UNDECIDED
    assert [part(holds).verdict for holds in (True, False, None)] == [HOLDS, FAILS, UNDECIDED]


def test_table_cell_selects_by_other_columns() -> None:
    table = Table("", ("trained on", "n", "value"), (("a", 1, 10), ("a", 2, 20), ("b", 1, 30)))
    assert table.cell("value", trained_on="a", n=2) == 20
    assert table.column("value", trained_on="a") == [10, 20]
    with pytest.raises(ValueError):
        table.cell("value", trained_on="a")


def test_settings_defaults_depend_on_quick_and_run() -> None:
    assert Settings().seeds == (0, 1, 2, 3, 4)
    assert Settings(quick=True).seeds == (0, 1, 2)
    assert Settings(run="runs/a").seeds == (0,)
    with pytest.raises(InvalidSetting) as caught:
        Settings(seeds=(-1,))
    assert (caught.value.key, caught.value.value) == ("seeds", (-1,))


def test_infinite_cells_become_null_in_json() -> None:
    assert replace_nonfinite({"a": (float("inf"), 1.0)}) == {"a": [None, 1.0]}


def test_command_line_quotes_paths() -> None:
    expected = "nextword look probing --num-seeds 1 --seed 0 --run 'runs/a b'"
    assert command_line("probing", Settings(run="runs/a b")) == expected


@pytest.mark.parametrize("name", STUDIES)
def test_run_is_rejected_by_studies_that_train_their_own(name: str) -> None:
    if name not in ACCEPTS_RUN:
        with pytest.raises(InvalidSetting) as caught:
            run_study(name, Settings(run="runs/a"))
        assert caught.value.key == "run"


def test_study_names_follow_module_names() -> None:
    for name, module in STUDIES.items():
        assert module == f"nextword.studies.{name.replace('-', '_')}"
        assert find_study(name).CLAIM.sentence


# ------------------------------------------------------------------------------------------------ the command


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """`study` with one more study: what adding one takes."""
    module = ModuleType("study_of_this_test")
    module.CLAIM = Claim("Two and two are four.", "any primer")  # type: ignore[attr-defined]
    table = Table("sums", ("a", "b", "a + b"), ((2, 2, 4),))
    module.measure = lambda settings, progress: ({"sums": table}, {"data": "none [really]"})  # type: ignore[attr-defined]
    module.judge = lambda tables: [  # type: ignore[attr-defined]
        Part("2 + 2 = 4.", tables["sums"].cell("a + b", a=2) == 4, "It is 4.", "arithmetic")
    ]
    module.draw = lambda tables, figure: figure.subplots().plot([1, 2])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(STUDIES, "sums", module.__name__)
    app = typer.Typer()
    app.command()(handle_errors(look))
    return app


def test_study_command_runs_study_and_writes_four_files(command: typer.Typer, tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["sums", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "The claim holds." in result.output
    assert "none [really]" in result.output
    files = {"figure.svg", "figure.png", "numbers.json", "study.md"}
    assert {file.name for file in (tmp_path / "sums").iterdir()} == files


def test_study_command_with_json_prints_finding_and_list(command: typer.Typer, tmp_path: Path) -> None:
    args = ["sums", "--json", "--num-seeds", "2", "--seed", "3", "--out", str(tmp_path)]
    result = json.loads(CliRunner().invoke(command, args).stdout)
    assert (result["study"], result["verdict"], result["conditions"]["seeds"]) == ("sums", HOLDS, [3, 4])
    assert result["parts"][0]["verdict"] == HOLDS
    assert all(Path(file).is_file() for file in result["files"])
    entries = json.loads(CliRunner().invoke(command, ["--json"]).stdout)
    assert {entry["study"] for entry in entries} == set(STUDIES)


def test_study_command_without_study_lists_claims(command: typer.Typer) -> None:
    output = CliRunner().invoke(command, []).output
    assert all(name in output for name in STUDIES)
    assert "Two and two are four." in output


def test_unknown_study_suggests_a_name() -> None:
    with pytest.raises(UnknownName) as caught:
        find_study("parameter-grow")
    assert caught.value.name == "parameter-grow"
    assert "parameter-growth" in str(caught.value)


def test_unwritable_folder_fails_before_the_study_runs(command: typer.Typer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(command, ["initialization", "--out", str(tmp_path / "file")])
    assert result.exit_code == 1
    assert "--out" in result.output
