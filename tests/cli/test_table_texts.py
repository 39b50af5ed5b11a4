"""Language models on tables of a user: every skipped row or guessed column is reported."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Cli, sets


def test_language_model_on_a_table_reports_columns_and_empty_rows(cli: Cli, tmp_path: Path) -> None:
    file, out, few = tmp_path / "a.csv", tmp_path / "a", sets("phase.0.steps=1", "model.width=16")
    cells = [f'"the house, number {i}, is red",1\n' for i in range(400)]
    file.write_text("text,label\n" + "".join(cells) + ",0\n,1\n")
    message = " ".join(cli("train", "lstm/tiny", "--data", file, "--out", out, *few).stderr.split())
    assert "2 of the 402 rows" in message
    assert "2 of the 402 rows" in " ".join(cli("data", file).stderr.split())
    file.write_text("text,label\n" + "".join(cells) + "fine, wonderful even,1\n")
    for words in (
        ("train", "lstm/tiny", "--data", file, "--out", tmp_path / "b"),
        ("train", "lstm/tiny", "--data", file, "--out", tmp_path / "b", "--quiet"),
        ("evaluate", out, "--data", file),
        ("data", file),
    ):
        assert "line 402" in " ".join(cli(*words, fails=True).stderr.split())
    file.write_text("Kommentar;Urteil\n" + "".join(f"Haus Nummer {i};1\n" for i in range(400)))
    assert "Kommentar (text)" in cli("data", file).stdout
