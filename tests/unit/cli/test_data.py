"""`nextword data`, as a function: what it prints and what it brings in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from nextword.cli.console import handle_errors
from nextword.cli.data import data
from nextword.data.catalog import catalog, data_home
from nextword.data.describe import compare_sizes

app = typer.Typer()
app.command()(handle_errors(data))


def run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_list_has_every_entry() -> None:
    rows = json.loads(run("--json"))
    assert [row["name"] for row in rows] == ["web", "kjv", "python", *catalog()]
    assert all(row["license"] for row in rows)
    shown = run()
    assert "wikitext-103" in shown
    assert "CC BY-SA" in shown


def test_data_of_a_missing_set_shows_how_to_install_it() -> None:
    shown = run("snli")
    assert "not installed" in shown
    assert "nextword data snli --install PATH" in shown
    assert json.loads(run("snli", "--json"))["place"] is None


def test_data_installs_and_counts(tmp_path: Path) -> None:
    texts = {"wiki.train.raw": "a b\n", "wiki.valid.raw": "a b\n", "wiki.test.raw": "c d e\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    about = json.loads(run("wikitext-2-raw", "--install", str(tmp_path), "--json"))
    assert about["place"] == str(data_home() / "wikitext-2-raw")
    assert about["splits"]["test"] == {"documents": 1, "bytes": 6, "characters": 6, "words": 3}
    assert about["leakage"] == {"valid": 1, "test": 0}
    assert "also in train" in run("wikitext-2-raw")


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("RACE-middle", "race"),
        ("IMDb", "imdb"),
        ("Story-Cloze", "story-cloze"),
        ("SST-2", "glue-sst-2"),
        ("RTE", "rte"),
    ],
)
def test_data_knows_benchmarks_by_name(task: str, name: str) -> None:
    assert json.loads(run(task, "--json"))["name"] == name


def test_data_installs_a_benchmark_by_name(tmp_path: Path) -> None:
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("sentence\tlabel\nfine \t1\n")
    assert json.loads(run("SST-2", "--install", str(tmp_path), "--json"))["place"] == str(data_home() / "glue-sst-2")


def test_install_of_a_part_warns_with_the_published_size(tmp_path: Path) -> None:
    rows = "".join(f'"{1 + i % 4}","Title {i}","First line\n of text {i}"\n' for i in range(60))
    for name in ("train.csv", "test.csv"):
        (tmp_path / name).write_text(rows)
    result = CliRunner().invoke(app, ["ag-news", "--install", str(tmp_path)])
    assert result.exit_code == 0
    shown = " ".join(result.stderr.split())
    assert "train has 60 articles, but 120,000 were published" in shown
    assert "test has 60 articles, but 7,600 were published" in shown
    about = json.loads(run("ag-news", "--json"))
    assert len(about["warnings"]) == 2


@pytest.mark.parametrize("name", ["rte", "mrpc", "subj", "tinyshakespeare"])
def test_whole_copies_give_no_warning(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = catalog()[name]
    sizes = {"rte": (2490, 277, 3000), "mrpc": (3668, 408, 1725), "subj": (10_000,), "tinyshakespeare": (1_115_394,)}
    files = {"subj": ["subj.all"], "tinyshakespeare": ["input.txt"]}.get(name, ["train.tsv", "dev.tsv", "test.tsv"])
    for file, size in zip(files, sizes[name], strict=True):
        (tmp_path / file).write_text("x" * size if entry.unit == "bytes" else "header\n" + "a\tb\n" * size)
    assert compare_sizes(entry, tmp_path) == []
    (tmp_path / files[0]).write_text("a\tb\n")
    assert len(compare_sizes(entry, tmp_path)) == 1


def test_install_goes_where_nextword_data_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEXTWORD_HOME")
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path / "mine"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "train.csv").write_text('"1","A","B"\n')
    assert json.loads(run("ag-news", "--install", str(tmp_path), "--json"))["place"] == str(tmp_path / "mine/ag-news")
    assert not (tmp_path / "home").exists()


def test_data_describes_your_own_text(tmp_path: Path) -> None:
    (tmp_path / "my.txt").write_text("".join(f"This is sentence number {i}.\n" for i in range(1000)))
    about = json.loads(run(str(tmp_path / "my.txt"), "--json"))
    assert about["source"].endswith("split by hash")
    assert set(about["splits"]) == {"train", "valid", "test"}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["nothing-like-it"], "nothing-like-it"),
        (["wikitxt-2"], "wikitext-2"),
        (["ptb", "--install", "absent"], "absent"),
        (["decanlp", "--download"], "decanlp"),
        (["--download"], "NAME"),
        (["ptb", "--download", "--install", "."], "--install"),
    ],
)
def test_data_with_a_mistake_names_it(words: list[str], problem: str) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    assert problem in result.stderr.replace("\n", " ")
