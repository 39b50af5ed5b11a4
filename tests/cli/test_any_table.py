"""Tables as people have them, through the commands: no header, semicolons, columns by number."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nextword.core.errors import InvalidSetting
from nextword.data.tables import choose_in_spec, parse_columns, split_header
from nextword.run_folder import RunFolder
from tests.cli.conftest import Cli, sets
from tests.support.errors import raises
from tests.support.tiny_transfer import draw_color_texts, make_run

Js = Callable[..., Any]
SHORT = sets("phase.0.steps=2", "phase.0.batches.rows=8")
ROWS = draw_color_texts(120)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("any")
    make_run(folder / "bert")
    (folder / "color.csv").write_text("".join(f"{i};{label};{text}\n" for i, (text, label) in enumerate(ROWS)))
    return folder


def test_transfer_and_predict_without_a_header(cli: Cli, js: Js, place: Path) -> None:
    run = place / "run"
    words = ("transfer", "bert/finetune", "--from", place / "bert", "--data", place / "color.csv", "--out", run)
    shown = cli(*words, "--columns", "3,2", *SHORT).stderr
    assert "108 train · 12 dev" in shown  # all 120 rows
    assert "semicolons" in shown
    assert "no header" in shown
    task = RunFolder.open(run).recipe.task
    assert task is not None
    assert (task["text"], task["label"], task["header"], task["labels"]) == ("3", "2", "no", ["blue", "red"])
    assert js(*words, "--columns", "3,2", *SHORT, "--resume")["examples"]["train"] == 108  # the same settings
    done = js("predict", run, place / "color.csv")
    assert len(done["predictions"]) == 120
    assert "accuracy" in done["scores"]
    alone = cli("predict", run, place / "color.csv", "--columns", "3", "--no-header")
    rows = list(csv.reader(io.StringIO(alone.stdout)))
    assert rows[0] == ["1", "2", "3", "predicted", "p(blue)", "p(red)"]
    assert len(rows) == 121


def test_predict_without_a_header_takes_no_text_for_a_label(js: Js, cli: Cli, place: Path, tmp_path: Path) -> None:
    """Labels came first in training, and the new file has texts alone: its column 1 is not the labels' column 1."""
    (tmp_path / "a.csv").write_text("".join(f"{label};{text}\n" for text, label in ROWS))
    (tmp_path / "new.csv").write_text("".join(f"{text}\n" for text, _ in ROWS[:9]))
    words = ("transfer", "bert/finetune", "--from", place / "bert", "--data", tmp_path / "a.csv", *SHORT)
    cli(*words, "--out", tmp_path / "run")
    assert "accuracy" in js("predict", tmp_path / "run", tmp_path / "a.csv")["scores"]
    done = js("predict", tmp_path / "run", tmp_path / "new.csv")
    assert len(done["predictions"]) == 9
    assert done["scores"] == {}
    assert not any("scored" in note for note in done["notes"])


def test_transfer_reads_a_header_that_is_named(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("good\tbad\n" + "".join(f"{label}\t{text}\n" for text, label in ROWS))
    words = ("transfer", "bert/finetune", "--from", place / "bert", "--data", tmp_path / "a.tsv", *SHORT)
    assert js(*words, "--header", "--columns", "bad,good", "--out", tmp_path / "a")["examples"] == {
        "train": 108,
        "dev": 12,
    }
    message = cli(*words, "--columns", "bad,good", "--label", "good", "--out", tmp_path / "b", fails=True).stderr
    assert "--columns" in message


def test_train_on_columns_of_a_table(cli: Cli, tmp_path: Path) -> None:
    """The choice becomes part of the recipe, so that evaluation reads the same."""
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("".join(f"{text};{label} {i};x\n" for i, (text, label) in enumerate(ROWS)))
    words = ("train", "seq2seq/tiny", "--data", pairs, "--columns", "2,1", "--no-header", *sets("phase.0.steps=2"))
    cli(*words, "--out", tmp_path / "run")
    run = RunFolder.open(tmp_path / "run")
    assert run.recipe.phases[0].data.endswith("pairs.csv:2-1:no-header")
    about = json.loads(cli("data", f"{pairs}:2-1:no-header", "--json").stdout)
    assert sum(split["pairs"] for split in about["splits"].values()) == 120
    assert about["sample"]["source"] == "blue 0" or about["sample"]["source"] == "red 0"


def test_number_of_a_column_of_a_text(js: Js, tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_text("id,mood,words\n" + "".join(f"{i},{label},{text}\n" for i, (text, label) in enumerate(ROWS)))
    for column in ("3", "words"):
        about = js("data", f"{table}:{column}")
        words = sum(counts["words"] for counts in about["splits"].values())
        assert words == sum(len(text.split()) for text, _ in ROWS)


@pytest.mark.parametrize("spec", ["a.csv", "a.csv:3", "a.csv:en-de", "web"])
def test_header_words_of_a_spec(spec: str) -> None:
    assert split_header(f"{spec}:no-header") == (spec, False)
    assert split_header(f"{spec}:header") == (spec, True)
    assert split_header(spec) == (spec, None)


def test_columns_option() -> None:
    assert parse_columns("text,label").roles == {"text": "text", "second": "", "label": "label"}
    assert parse_columns([1, 2, 3], False).roles == {"text": "1", "second": "2", "label": "3"}
    assert parse_columns('"what, why",2', labeled=False).second == "2"
    assert parse_columns(header=False).has_header is False
    assert choose_in_spec("a.csv", "en,de", True, is_parallel=True) == "a.csv:en-de:header"
    for wrong in ("a,b,c,d", "a,,b"):
        with raises(InvalidSetting, key="columns", value=wrong):
            parse_columns(wrong)
    with raises(InvalidSetting, key="columns", value="1,2"):
        choose_in_spec("a.csv", "1,2", None, is_parallel=False)
    with raises(InvalidSetting, key="columns", value="1"):
        choose_in_spec("", "1", None)
