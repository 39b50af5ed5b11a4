"""`nextword data FILE`: what would be read of a file, and for which task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.cells import cell_len
from typer.testing import CliRunner

from nextword.cli.console import handle_errors
from nextword.cli.data import data
from nextword.core.errors import DataError
from nextword.data.tables import Columns
from nextword.tasks.overview import describe_file
from tests.support.errors import raises
from tests.unit.data.test_header import CHINESE, PAIRS, labeled, quoted, sentences

app = typer.Typer()
app.command()(handle_errors(data))

NLI = [
    [label, text, second] for (text, label), second in zip(labeled(["yes", "no"]), sentences(40, seed=1), strict=True)
]
CONLL = "U.N.\tB-ORG\nofficial\tO\n\n" * 60
SQUAD = {"paragraphs": [{"context": "Denver won.", "qas": [
    {"id": "1", "question": "Who won?", "answers": [{"text": "Denver", "answer_start": 0}]}]}]}  # fmt: skip
FILES: dict[str, tuple[str, list[list[str]] | str, dict[str, str]]] = {
    "labels.csv": ("classification", labeled(["good", "bad"]), {"text": "1", "label": "2"}),
    "named.csv": ("classification", [["mood", "words"], *([b, a] for a, b in labeled(["up", "down"]))],
                  {"text": "words", "label": "mood"}),
    "chinese.csv": ("classification", [["影评", "情绪"], *CHINESE], {"text": "影评", "label": "情绪"}),
    "numbers.csv": ("regression", [["text", "score"], *([t, str(i / 8)] for i, t in enumerate(sentences(30)))],
                    {"text": "text", "label": "score"}),
    "nli.csv": ("pair_classification", NLI, {"text": "2", "second": "3", "label": "1"}),
    "pairs.csv": ("parallel", PAIRS, {"source": "1", "target": "2"}),
    "languages.csv": ("parallel", [["id", "en", "de"], *([str(i), *row] for i, row in enumerate(PAIRS))],
                      {"source": "en", "target": "de"}),
    "texts.csv": ("text", [[text] for text in sentences(20)], {"text": "1"}),
    "bodies.jsonl": ("text", "".join(json.dumps({"id": i, "url": "x/y", "body": t}) + "\n"
                                     for i, t in enumerate(sentences(20))), {"text": "body"}),
    "translation.jsonl": ("parallel", '{"translation": {"en": "a", "de": "b"}}\n' * 3,
                          {"source": "en", "target": "de"}),
    "ends.csv": ("multiple_choice", [["context", "ending0", "ending1", "label"], *[["a b", "c", "d", "0"]] * 9],
                 {"context": "context", "label": "label"}),
    "asked.csv": ("question_answering", [["question", "context", "answer"], *[["who ?", "the king", "king"]] * 9],
                  {"context": "context", "question": "question", "label": "answer"}),
    "words.conll": ("tagging", CONLL, {}),
    "squad.json": ("question_answering", json.dumps({"data": [SQUAD]}), {}),
}  # fmt: skip


def write(folder: Path, name: str) -> Path:
    path, content = folder / name, FILES[name][1]
    if isinstance(content, str):
        path.write_text(content)
    else:
        quoted(",")(path, content)
    return path


@pytest.mark.parametrize("name", FILES)
def test_describe_kind_roles_and_rows(tmp_path: Path, name: str) -> None:
    kind, _, roles = FILES[name]
    about = describe_file(write(tmp_path, name))
    assert about is not None
    assert about["kind"] == kind
    assert {c["role"]: c["name"] for c in about.get("columns", ()) if c["role"]} == roles
    assert str(tmp_path / name) in about["command"]


def test_describe_counts(tmp_path: Path) -> None:
    rows = labeled(["good", "bad"], n=60)
    quoted(";")(tmp_path / "a.csv", [*rows, ["", "good"], rows[0], ["one more text", ""]])
    about = describe_file(tmp_path / "a.csv")
    assert about is not None
    assert about["rows"] == {"all": 63}
    assert about["classes"] == {"good": 32, "bad": 30}
    assert (about["delimiter"], about["encoding"], about["header"]) == ("semicolons", "ascii", False)
    assert about["lengths"]["text"]["words"] == {"median": 8, "p95": 8, "longest": 8}
    assert [row["label"] for row in about["examples"]] == ["good", "bad"] * 2 + ["good"]
    warnings = " ".join(about["warnings"])
    for words in ("1 of the 63 rows have an empty text", "1 of the 63 rows have no label", "repeat"):
        assert words in warnings


def test_describe_warns_of_one_class_and_of_few_rows(tmp_path: Path) -> None:
    quoted(",")(tmp_path / "a.csv", [["text", "label"], *labeled(["good"], n=8)])
    about = describe_file(tmp_path / "a.csv")
    assert about is not None
    assert any("only one class" in note for note in about["warnings"])
    assert any("8 rows" in note for note in about["warnings"])
    (tmp_path / "b.csv").write_text("text,label\n")
    with raises(DataError, path=tmp_path / "b.csv"):
        describe_file(tmp_path / "b.csv")


def test_describe_a_folder_by_its_splits(tmp_path: Path) -> None:
    for split, n in (("train", 60), ("dev", 9), ("test", 5)):
        quoted("\t")(tmp_path / f"{split}.tsv", labeled(["good", "bad"], n=n))
    about = describe_file(tmp_path)
    assert about is not None
    assert about["rows"] == {"train": 60, "dev": 9, "test": 5}
    assert any("9 different rows of dev are also in train" in note for note in about["warnings"])


def test_describe_a_folder_whose_files_differ_in_columns(tmp_path: Path) -> None:
    quoted(",")(tmp_path / "train.csv", [["sentence", "label"], *labeled(["good", "bad"], n=60)])
    quoted(",")(tmp_path / "dev.csv", [["content", "label"], *labeled(["good", "bad"], n=60)])
    about = describe_file(tmp_path)
    assert about is not None
    assert about["warnings"] == ["dev.csv has no column 'sentence', only content, label"]
    assert about["rows"] == {"train": 60, "dev": 60}


def test_describe_with_chosen_columns_and_header(tmp_path: Path) -> None:
    quoted(",")(tmp_path / "a.csv", [["a", "b", "c"], *NLI])
    about = describe_file(tmp_path / "a.csv", Columns("3", "", "1", "no"))
    assert about is not None
    assert about["rows"] == {"all": 41}
    assert about["command"].endswith("--columns 3,1 --no-header")


def test_describe_plain_text_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one line\nanother, longer line\n")
    assert describe_file(tmp_path / "a.txt") is None
    assert describe_file("web") is None


def show(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("name", FILES)
def test_command_shows_a_file_in_80_columns(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, name)
    monkeypatch.chdir(tmp_path)
    shown = show(name)
    assert "Try it:  nextword" in shown
    assert all(cell_len(line) <= 80 for line in shown.splitlines() if not line.startswith("·"))
    about: dict[str, Any] = json.loads(show(name, "--json"))
    assert about["kind"] == FILES[name][0]


def test_command_describes_a_text_that_is_too_short_to_split(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one line\nanother, longer line\n")
    assert json.loads(show(str(tmp_path / "a.txt"), "--json"))["splits"]["test"]["words"] == 5


def test_command_describes_a_folder_of_aligned_files(tmp_path: Path) -> None:
    for split in ("train", "valid", "test"):
        for language in ("de", "en"):
            (tmp_path / f"{split}.{language}").write_text(f"{split} {language}\n")
    about = json.loads(show(str(tmp_path), "--json"))
    assert (about["kind"], about["pair"]) == ("parallel", {"source": "de", "target": "en"})
    assert about["command"].endswith(f"{tmp_path}:de-en")
