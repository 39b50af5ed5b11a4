"""The worked example of CONTRIBUTING.md: a study is one module and one line in the table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nextword.cli import app
from nextword.studies import STUDIES
from nextword.studies._study import FAILS, HOLDS, Settings, overall_verdict
from tests.support import toy_study


def test_toy_study_runs_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STUDIES, "toy", "tests.support.toy_study")
    result = CliRunner().invoke(app, ["look", "toy", "--quick", "--out", str(tmp_path / "toy"), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["verdict"] == HOLDS


def test_toy_study_with_other_numbers_fails() -> None:
    tables, _ = toy_study.measure(Settings(), lambda done, total: None)
    flat = replace(tables["coverage"], rows=((100, 50),))
    assert overall_verdict(toy_study.judge({"coverage": flat})) == FAILS
