"""`nextword transfer` and `predict` for questions and multiple choice, end to end, in their official formats."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from nextword import tasks as transfer
from nextword.core.errors import NextwordError
from nextword.lm.loading import load
from nextword.metrics.squad import ANSWER_METRICS_2_0, score_answers
from nextword.run_folder import RunFolder
from nextword.tasks.heads import HEAD_FILE
from tests.cli.conftest import Cli, sets
from tests.support.tiny_questions import draw_endings, make_squad, write_json, write_json_lines
from tests.support.tiny_transfer import make_run, write_table

Js = Callable[..., Any]
SET = ("phase.0.optimizer.rate=5e-3", "phase.0.batches.rows=16", "model.dropout=0.0", "phase.0.epochs=2")
QUICK = sets(*SET)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("answers")
    make_run(folder / "bert")
    make_run(folder / "lstm", "lstm")
    content = make_squad(120, without=0.3, version="v2.0", length=(6, 60))
    content["data"][0]["paragraphs"][0]["qas"][0].update(answers=[{"text": "Seattle", "answer_start": 0}])
    content["data"][0]["paragraphs"][0]["qas"][0].update(is_impossible=False)
    write_json(folder / "two/train.json", content)
    write_json(folder / "two/dev.json", make_squad(30, seed=1, without=0.3, version="v2.0"))
    write_json(folder / "two/test.json", make_squad(20, seed=2, without=0.3, version="v2.0"))
    write_json_lines(folder / "ends.jsonl", draw_endings(120))
    return folder


@pytest.fixture(scope="module")
def spans(cli: Cli, place: Path) -> Any:
    """Fine-tune a run on questions; return the output of the command."""
    words = ("transfer", "bert/span", "--from", place / "bert", "--data", place / "two", "--out", place / "spans")
    return cli(*words, *QUICK)


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_transfer_describes_questions(spans: Any, place: Path) -> None:
    message = " ".join(spans.stderr.split())
    assert "a span of a passage for a question, or none · 119 train · 30 dev · 20 test" in message
    assert "1 of 120 questions of train" in message
    assert "(q0-0)" in message
    assert "windows of 32 tokens" in message
    assert "test (20 examples): answer_f1" in spans.stdout
    assert "no-answer threshold" in spans.stdout
    assert "a question and a passage" in (place / "spans/card.md").read_text()


def test_predict_writes_squads_file(cli: Cli, js: Js, spans: Any, place: Path, tmp_path: Path) -> None:
    dev = place / "two/dev.json"
    message = cli("predict", place / "spans", dev, "--out", tmp_path / "predictions.json")
    assert "30 answers" in message.stdout
    answer = json.loads((tmp_path / "predictions.json").read_text())
    chances = json.loads((tmp_path / "predictions.na_prob.json").read_text())
    paragraphs = json.loads(dev.read_text())["data"][0]["paragraphs"]
    asked = {item["qas"][0]["id"]: item for item in paragraphs}
    assert list(answer) == list(chances) == list(asked)
    assert all(text in asked[id]["context"] for id, text in answer.items())
    assert all(0 <= p <= 1 for p in chances.values())
    golds = [[a["text"] for a in item["qas"][0]["answers"]] for item in paragraphs]
    numbers = score_answers(ANSWER_METRICS_2_0, list(answer.values()), golds, True)
    assert f"answer_f1 {100 * numbers['answer_f1']:.1f} · exact {100 * numbers['exact']:.1f}" in message.stderr
    kept = transfer.read_result(place / "spans")
    assert kept is not None
    assert numbers == pytest.approx(
        {name: kept["best"][name] for name in ANSWER_METRICS_2_0}
    )  # with the threshold of dev
    whole = js("predict", place / "spans", dev)
    assert [item["predicted"] for item in whole["predictions"]] == list(answer.values())
    assert whole["scores"] == pytest.approx(numbers)
    assert json.loads(cli("predict", place / "spans", dev).stdout) == answer  # without a place to write to
    assert js("predict", place / "spans", dev, "-o", tmp_path / "p.json")["file"] == str(tmp_path / "p.json")
    assert json.loads((tmp_path / "p.json").read_text()) == answer
    assert json.loads((tmp_path / "p.na_prob.json").read_text()) == chances


def test_predict_answers_a_table(cli: Cli, spans: Any, place: Path, tmp_path: Path) -> None:
    given = [("7", "what follows red ?", "the king saw red river"), ("8", "what follows red ?", "old house far")]
    table = write_table(tmp_path / "q.csv", ["id", "question", "context"], given)
    answer = rows(cli("predict", place / "spans", table).stdout)
    assert list(answer[0]) == ["id", "question", "context", "predicted", "probability", "p(no answer)"]
    assert [row["context"] for row in answer] == [row[2] for row in given]
    cli("predict", place / "spans", table, "-o", tmp_path / "p.json")
    assert json.loads((tmp_path / "p.json").read_text()) == {row["id"]: row["predicted"] for row in answer}
    line = "what follows red ?\tthe king saw red river\n"
    assert rows(cli("predict", place / "spans", stdin=line).stdout)[0]["predicted"] == answer[0]["predicted"]
    piped = cli("predict", place / "spans", stdin=table.read_bytes())
    assert rows(piped.stdout) == answer
    assert "the first line, 'id,question,context', is read as the header of a csv" in piped.stderr
    dev = place / "two/dev.json"
    assert cli("predict", place / "spans", stdin=dev.read_bytes()).stdout == cli("predict", place / "spans", dev).stdout
    cli("predict", place / "spans", table, "-o", tmp_path / "p.jsonl")
    kept = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert [item["predicted"] for item in kept] == [row["predicted"] for row in answer]
    assert all(isinstance(item["probability"], float) for item in kept)
    other = write_table(tmp_path / "o.csv", ["q", "passage"], [row[1:] for row in given])
    again = rows(cli("predict", place / "spans", other, "--text-pair", "q").stdout)
    assert [row["predicted"] for row in again] == [row["predicted"] for row in answer]
    assert "which column is the question" in cli("predict", place / "spans", other, fails=True).stderr
    assert ".json" in cli("predict", place / "spans", table, "-o", tmp_path / "x.conll", fails=True).stderr


def test_problems_of_questions_are_noted(js: Js, spans: Any, place: Path, tmp_path: Path) -> None:
    long = " ".join(["what"] * 90)
    given = [("", "the king saw red river"), ("what follows red ?", " "), (long, "saw red river"), ("who ?", "a king")]
    answer = js("predict", place / "spans", write_table(tmp_path / "q.csv", ["question", "context"], given))
    assert [note[:16] for note in answer["notes"]] == ["1 of 4 questions"] * 3
    assert len(answer["predictions"]) == 4


def test_multiple_choice_end_to_end(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    words = ("transfer", "bert/choice", "--from", place / "bert", "--data", place / "ends.jsonl")
    message = cli(*words, "--out", tmp_path / "run", *QUICK)
    assert "one of several candidates for a context · 108 train · 12 dev" in " ".join(message.stderr.split())
    new = draw_endings(9, seed=5)
    done = cli("predict", tmp_path / "run", write_json_lines(tmp_path / "new.jsonl", new), "-o", tmp_path / "out.jsonl")
    kept = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    right = sum(row["predicted"] == item["label"] for row, item in zip(kept, new, strict=True))
    assert all(sum(row["probabilities"]) == pytest.approx(1) for row in kept)
    assert f"against the labels in {tmp_path / 'new.jsonl'}: accuracy {100 * right / 9:.1f}" in " ".join(
        done.stderr.split()
    )
    header = ["context", "choice0", "choice1", "choice2"]
    table = write_table(tmp_path / "t.csv", header, [(item["context"], *item["choices"]) for item in new])
    answer = rows(cli("predict", tmp_path / "run", table).stdout)
    assert list(answer[0]) == [*header, "predicted", "p(0)", "p(1)", "p(2)"]
    assert [int(row["predicted"]) for row in answer] == [row["predicted"] for row in kept]
    assert all(abs(sum(float(row[f"p({i})"]) for i in range(3)) - 1) < 1e-5 for row in answer)
    piped = cli("predict", tmp_path / "run", stdin=table.read_bytes())
    assert rows(piped.stdout) == answer
    assert "is read as the header of a csv" in piped.stderr
    whole = js("predict", tmp_path / "run", table, "-o", tmp_path / "t-out.csv")
    assert rows((tmp_path / "t-out.csv").read_text()) == answer
    gaps = [
        {**item, "context": ""} if i == 1 else {**item, "label": ""} if i == 2 else item for i, item in enumerate(new)
    ]
    empty, unlabeled = js("predict", tmp_path / "run", write_json_lines(tmp_path / "gaps.jsonl", gaps))["notes"]
    assert empty.startswith("1 of 9 texts")
    assert unlabeled.startswith("1 of 9 rows")
    assert [str(item["predicted"]) for item in whole["predictions"]] == [row["predicted"] for row in answer]
    assert whole["scores"] == {}
    assert "a context and candidates: which of them is right" in (tmp_path / "run/card.md").read_text()
    assert "nextword predict" in cli("next", tmp_path / "run", "the", fails=True).stderr


@pytest.mark.parametrize(("recipe", "data"), [("bert/span", "two"), ("bert/choice", "ends.jsonl")])
def test_unfinished_run_is_noted(cli: Cli, js: Js, place: Path, tmp_path: Path, recipe: str, data: str) -> None:
    out = tmp_path / "x"
    transfer.run(recipe, place / "bert", str(place / data), out, changes=["phase.0.steps=1"])
    words = ("predict", out, place / (data if data != "two" else "two/dev.json"))
    assert not any("not finished" in note for note in js(*words)["notes"])
    RunFolder.open(out).seal(finished=False)
    assert any(f"{out} is not finished" in note for note in js(*words)["notes"])
    assert "is not finished" in " ".join(cli(*words).stderr.split())


@pytest.mark.parametrize(("recipe", "data"), [("bert/span", "two"), ("bert/choice", "ends.jsonl")])
def test_seeds_with_a_training_fraction_from_scratch(
    cli: Cli, js: Js, place: Path, tmp_path: Path, recipe: str, data: str
) -> None:
    words = ["transfer", recipe, "--from", place / "lstm", "--data", place / data, "--out", tmp_path / "k"]
    words += ["--num-seeds", "2", "--train-fraction", "0.1", "--scratch", "--set", "phase.0.steps=2"]
    assert "mean, 95 % interval" in cli(*words).stdout
    answer = js(*words, "--resume")
    assert [result["examples"]["train"] for result in answer["results"]] == [12 if data == "two" else 11] * 2
    assert all(result["scratch"] for result in answer["results"])
    listed = js("runs", "--folder", tmp_path)
    assert all(answer["metric"] in item["task"] for item in listed)


@pytest.mark.parametrize(("recipe", "data"), [("bert/span", "two"), ("gpt1/choice", "ends.jsonl")])
def test_resume_is_bit_exact(place: Path, tmp_path: Path, recipe: str, data: str) -> None:
    options: dict[str, Any] = {"changes": [*SET, "task.dropout=0.1"], "device": "cpu", "seed": 3}
    whole = transfer.run(recipe, place / "lstm", str(place / data), tmp_path / "whole", **options)
    asked = iter([False] * 5 + [True])
    cut = transfer.run(recipe, place / "lstm", str(place / data), tmp_path / "cut", stop=lambda: next(asked), **options)
    assert cut.interrupted
    list(transfer.resume(tmp_path / "cut", device="cpu")[1])
    for name in ("model.safetensors", HEAD_FILE):
        a, b = (load_file(str(tmp_path / run / name)) for run in ("whole", "cut"))
        assert all(torch.equal(a[key], b[key]) for key in a)
    answer = transfer.read_result(tmp_path / "cut")
    assert answer is not None
    assert answer["dev"] == whole.results[0]["dev"]


def test_malformed_examples_raise(spans: Any, place: Path, tmp_path: Path) -> None:
    reader: Any = load(place / "spans", device="cpu")
    with pytest.raises(NextwordError, match="'who"):
        reader.predict("who ?")
    for item in ("who ?", ("who ?",), ("who ?", 3), None):
        with pytest.raises(NextwordError, match=r"\(question, passage\)"):
            reader.predict([item])
    transfer.run("bert/choice", place / "bert", str(place / "ends.jsonl"), tmp_path / "x", changes=["phase.0.steps=1"])
    chooser: Any = load(tmp_path / "x", device="cpu")
    with pytest.raises(NextwordError, match="'went'"):
        chooser.predict("went")
    for item in ("a text", ("context", ["one"]), ("context", 3), ("a", "b", "c", ["d", "e"]), None):
        with pytest.raises(NextwordError, match=r"\(context, \[candidates\]\)"):
            chooser.predict([item])
    two, more = chooser.predict([("went", ["far", "to"]), ("went", "where ?", ["far", "to", "in", "of"])])
    assert [len(item.probabilities) for item in (two, more)] == [2, 4]
    assert sum(more.probabilities.values()) == pytest.approx(1)


def test_invalid_arguments_fail(cli: Cli, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path))
    base = ("transfer", "--from", place / "bert", "--out", tmp_path / "x")
    for recipe, data, message in (
        ("bert/finetune", "squad", "nextword transfer bert/span"),
        ("bert/span", "squad", "squad"),
        ("bert/span", str(tmp_path / "no.json"), "no.json"),
        ("bert/choice", "RACE", "race"),
        ("bert/span", str(place / "ends.jsonl"), "nextword transfer bert/choice"),
    ):
        assert message in " ".join(cli(*base, recipe, "--data", data, fails=True).stderr.split()), recipe
    assert not (tmp_path / "x").exists()
    refused = cli(*base, "bert/span", "--data", place / "two", "--kind", "pair_classification", fails=True)
    assert "--kind pair_classification" in refused.stderr
    refused = cli(*base, "bert/span", "--data", place / "two", "--set", "task.max_answer_length=0", fails=True)
    assert "max_answer_length = 0" in refused.stderr
    refused = cli(*base, "gpt1/choice", "--data", place / "ends.jsonl", fails=True)
    assert "objective.lm_weight=0" in " ".join(refused.stderr.split())
