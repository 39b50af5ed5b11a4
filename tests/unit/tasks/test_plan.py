"""Data that do not match the task of a recipe: the error recommends a suitable recipe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nextword.core.errors import DataError, InvalidSetting, NextwordError
from nextword.data.tables import Columns
from nextword.tasks.plan import recognize, resolve
from tests.support.tiny_transfer import draw_color_pairs, draw_color_texts, make_run, write_table


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fitting")
    make_run(folder / "bert")
    write_table(folder / "color.csv", ["text", "label"], draw_color_texts(40))
    write_table(folder / "pair.csv", ["text", "second", "label"], draw_color_pairs(40))
    inputs = [(f"who is {i} ?", f"the king {i} is far", f"king {i}") for i in range(40)]
    write_table(folder / "asked.csv", ["question", "context", "answer"], inputs)
    (folder / "european.csv").write_text((folder / "asked.csv").read_text().replace(",", ";"))
    outputs = [(f"the old house {i}", "the king", "a queen", i % 2) for i in range(40)]
    write_table(folder / "ends.csv", ["context", "ending0", "ending1", "label"], outputs)
    qas = [{"id": str(i), "question": "who ?", "answers": [{"text": "king", "answer_start": 4}]} for i in range(3)]
    squad = {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": "the king", "qas": qas}]}]}
    (folder / "squad.json").write_text(json.dumps(squad))
    for name in ("names.conll", "names.txt"):
        (folder / name).write_text("\n\n".join(f"the O\nking B-P\nof O\nland{i} B-L" for i in range(40)) + "\n")
    (folder / "plain.txt").write_text("the king went far\nand saw it\n")
    (folder / "lines.jsonl").write_text(
        "".join(json.dumps({"text": t, "label": a}) + "\n" for t, a in draw_color_texts(40))
    )
    (folder / "names").mkdir()
    (folder / "names/train.conll").write_text((folder / "names.conll").read_text())
    return folder


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("color.csv", "classification"),
        ("pair.csv", "classification"),
        ("lines.jsonl", "classification"),
        ("asked.csv", "question_answering"),
        ("european.csv", "question_answering"),
        ("squad.json", "question_answering"),
        ("ends.csv", "multiple_choice"),
        ("names.conll", "tagging"),
        ("names.txt", "tagging"),
        ("names", "tagging"),
        ("plain.txt", ""),
        ("nothing.csv", ""),
    ],
)
def test_recognize_file_returns_its_task(name: str, kind: str, place: Path) -> None:
    assert recognize(str(place / name)) == kind


def test_recognize_name_returns_its_task() -> None:
    results = {name: recognize(name) for name in ("RTE", "SWAG", "squad", "conll2003", "wikitext-2", "nothing")}
    assert results == {
        "RTE": "classification",
        "SWAG": "multiple_choice",
        "squad": "question_answering",
        "conll2003": "tagging",
        "wikitext-2": "",
        "nothing": "",
    }


@pytest.mark.parametrize(
    ("recipe", "name", "fits"),
    [
        ("bert/finetune", "squad.json", "bert/span"),
        ("bert/finetune", "asked.csv", "bert/span"),
        ("ulmfit/classify", "names.conll", "bert/tag"),
        ("bert/choice", "names.txt", "bert/tag"),
        ("bert/span", "color.csv", "bert/finetune"),
        ("bert/choice", "color.csv", "bert/finetune"),
        ("bert/span", "ends.csv", "bert/choice"),
        ("bert/span", "names", "bert/tag"),
        ("bert/tag", "color.csv", "bert/finetune"),
        ("bert/tag", "asked.csv", "bert/span"),
        ("bert/tag", "ends.csv", "bert/choice"),
        ("tagger/tiny", "squad.json", "bert/span"),
    ],
)
def test_error_recommends_a_recipe_for_the_data(recipe: str, name: str, fits: str, place: Path) -> None:
    source = "" if recipe == "tagger/tiny" else place / "bert"
    with pytest.raises(NextwordError) as error:
        resolve(recipe, source, str(place / name), device="cpu")
    assert f"nextword transfer {fits} --from RUN --data {place / name}" in str(error.value)
    assert recipe in str(error.value)


@pytest.mark.parametrize(
    ("recipe", "name", "kind"),
    [("bert/finetune", "color.csv", "classification"), ("bert/finetune", "ends.csv", "multiple_choice"),
     ("bert/span", "asked.csv", "question_answering"), ("bert/tag", "names.txt", "tagging")],
)  # fmt: skip
def test_resolve_with_suitable_data_returns_their_kind(recipe: str, name: str, kind: str, place: Path) -> None:
    assert resolve(recipe, place / "bert", str(place / name), device="cpu").data.kind == kind


def test_question_table_with_few_different_answers_makes_pairs(place: Path) -> None:
    """A question and a passage with the answer yes or no are a labeled pair."""
    rows = [(f"is it {i} ?", f"it is {i} or so", "yes" if i % 2 else "no") for i in range(40)]
    file = str(write_table(place / "yes.csv", ["question", "passage", "answer"], rows))
    for columns in (Columns(), Columns("passage", "question", "answer")):
        assert resolve("bert/finetune", place / "bert", file, columns, device="cpu").data.labels == ("no", "yes")
    with pytest.raises(NextwordError, match="'reply'"):  # the original error, without advice
        resolve("bert/finetune", place / "bert", file, Columns("passage", "question", "reply"), device="cpu")
    with pytest.raises(InvalidSetting, match="bert/tag"):
        resolve("bert/finetune", place / "bert", file, kind="tagging", device="cpu")


def test_malformed_suitable_data_raise_the_original_error(place: Path, tmp_path: Path) -> None:
    file = str(write_table(tmp_path / "one.csv", ["text", "label"], [("a", "x"), ("b", "x"), ("c", "x")]))
    with pytest.raises(DataError) as error:
        resolve("bert/finetune", place / "bert", file, device="cpu")
    assert error.value.path == file
