"""`nextword transfer` and `nextword predict`, end to end: a pretrained run, a csv, labels."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nextword.run_folder import RunFolder
from tests.cli.conftest import Cli, sets
from tests.support.glue_samples import SAMPLES
from tests.support.tiny_transfer import draw_color_counts, draw_color_pairs, draw_color_texts, make_run, write_table

Js = Callable[..., Any]
QUICK = sets("phase.0.optimizer.rate=3e-3", "phase.0.batches.rows=16", "model.dropout=0.0", "phase.0.epochs=4")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("transfer")
    make_run(folder / "bert")
    write_table(folder / "color.csv", ["text", "label"], draw_color_texts(200))
    write_table(
        folder / "new.csv", ["number", "text", "label"], [(i, *row) for i, row in enumerate(draw_color_texts(20, 9))]
    )
    write_table(folder / "pair.csv", ["premise", "hypothesis", "label"], draw_color_pairs(60))
    write_table(folder / "count.csv", ["text", "score"], draw_color_counts(60))
    return folder


@pytest.fixture(scope="module")
def output(cli: Cli, place: Path) -> Any:
    """Fine-tune a run; return the output of the command."""
    words = ("transfer", "bert/finetune", "--from", place / "bert", "--data", place / "color.csv")
    return cli(*words, "--out", place / "out", *QUICK)


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_transfer_describes_data_progress_and_next_step(output: Any, place: Path) -> None:
    assert "one of 2 classes for a text · 180 train · 20 dev" in output.stderr
    assert "text 'text', label 'label'" in output.stderr
    assert "held out" in output.stderr
    assert "blue" in output.stderr
    assert output.stderr.count(" · dev accuracy") == 4
    assert "baselines, dev accuracy: majority class" in output.stderr
    assert f"nextword predict {place / 'out'} FILE" in output.stdout
    assert "dev (20 examples): accuracy" in output.stdout


def test_predict_adds_columns_to_a_csv(cli: Cli, js: Js, output: Any, place: Path, tmp_path: Path) -> None:
    message = cli("predict", place / "out", place / "new.csv")
    rows = table(message.stdout)
    assert list(rows[0]) == ["number", "text", "label", "predicted", "p(blue)", "p(red)"]
    right = sum(row["predicted"] == row["label"] for row in rows)
    assert right >= 18
    assert f"against the column 'label': accuracy {100 * right / 20:.1f}" in message.stderr
    assert all(abs(float(row["p(blue)"]) + float(row["p(red)"]) - 1) < 1e-5 for row in rows)
    done = cli("predict", place / "out", place / "new.csv", "--out", tmp_path / "out.jsonl")
    assert "20 predictions" in done.stdout
    kept = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [item["predicted"] for item in kept] == [row["predicted"] for row in rows]
    assert kept[0]["probabilities"].keys() == {"blue", "red"}
    cli("predict", place / "out", place / "new.csv", "-o", tmp_path / "out.csv", "--quiet")
    assert (tmp_path / "out.csv").read_text() == message.stdout
    answer = js("predict", place / "out", place / "new.csv", "-o", tmp_path / "more.csv")
    assert (tmp_path / "more.csv").read_text() == message.stdout
    assert answer["file"] == str(tmp_path / "more.csv")
    again = cli("predict", place / "out", place / "new.csv", "-o", tmp_path / "more.csv", "--json", fails=True)
    assert str(tmp_path / "more.csv") in "".join(again.stderr.split())
    answer = js("predict", place / "out", place / "new.csv")
    assert "file" not in answer
    assert [item["predicted"] for item in answer["predictions"]] == [row["predicted"] for row in rows]
    assert answer["scores"]["accuracy"] == right / 20


def test_predict_reads_lines_and_json_from_standard_input(cli: Cli, output: Any, place: Path) -> None:
    rows = table(cli("predict", place / "out", stdin="the red house\nan old blue king\n").stdout)
    assert [row["predicted"] for row in rows] == ["red", "blue"]
    rows = table(cli("predict", place / "out", "-", stdin='{"text": "a red river"}\n').stdout)
    assert [row["predicted"] for row in rows] == ["red"]


def test_predict_reads_a_piped_table_like_a_file(cli: Cli, output: Any, place: Path, tmp_path: Path) -> None:
    """The first line is a header if it has the text column of training, for any delimiter."""
    named, out = place / "new.csv", place / "out"
    wanted = cli("predict", out, named)
    piped = cli("predict", out, stdin=named.read_bytes())
    assert piped.stdout == wanted.stdout
    assert "the first line, 'number,text,label', is read as the header of a csv" in piped.stderr
    assert "against the column 'label': accuracy" in piped.stderr
    tabs = tmp_path / "new.tsv"
    tabs.write_text("".join("\t".join(row) + "\n" for row in csv.reader(io.StringIO(named.read_text()))))
    assert cli("predict", out, stdin=tabs.read_bytes()).stdout == cli("predict", out, tabs).stdout == wanted.stdout
    other = tmp_path / "table"  # an ending that says nothing
    other.write_bytes(named.read_bytes())
    assert cli("predict", out, other).stdout == wanted.stdout
    alone = cli("predict", out, stdin='text\nthe red house\n"red, or\nblue"\n')
    assert "the first line, 'text', is read as the header of a csv" in alone.stderr
    assert [row["text"] for row in table(alone.stdout)] == ["the red house", "red, or\nblue"]
    lines = cli("predict", out, "-o", tmp_path / "p.csv", "--text", "b", stdin="a,b\nx,the red house\n")
    assert "header of a csv" in lines.stderr
    assert [row["b"] for row in table((tmp_path / "p.csv").read_text())] == ["the red house"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "text\nthe red house, and a blue one\n",
            "line 2: 2 columns .* The first line, 'text'",
        ),
        (
            "n;text\n1;the red house; a blue one\n",
            "line 2: 3 columns .* The first line, 'n;text'",
        ),
        ('[{"text": "the red house"}]', "jq -c '.[]' | nextword"),
    ],
)
def test_malformed_piped_table_fails(cli: Cli, output: Any, place: Path, given: str, message: str) -> None:
    answer = " ".join(cli("predict", place / "out", fails=True, stdin=given).stderr.split())
    for part in ["standard input", *message.split(" .* ")]:
        assert part in answer


def test_predict_reads_the_named_column(cli: Cli, output: Any, place: Path, tmp_path: Path) -> None:
    other = write_table(tmp_path / "o.csv", ["a", "b"], [("x", "the red house"), ("a long long long one", "blue")])
    rows = table(cli("predict", place / "out", other, "--text", "b").stdout)
    assert [row["predicted"] for row in rows] == ["red", "blue"]
    message = cli("predict", place / "out", other, "--text", "c", fails=True).stderr
    assert "'c'" in message
    assert "a, b" in message


def test_predict_reports_guessed_columns_and_never_overwrites(
    cli: Cli, output: Any, place: Path, tmp_path: Path
) -> None:
    out = place / "out"
    other = write_table(tmp_path / "o.csv", ["n", "body"], [(1, "the red house")])
    message = cli("predict", out, other).stderr
    assert "texts are read from 'body'" in message
    assert "are read from" not in cli("predict", out, place / "new.csv").stderr
    assert "are read from" not in cli("predict", out, other, "--text", "body").stderr
    message = cli("predict", out, stdin="number,body\n1,the red house\n\n").stderr
    assert "the first line, 'number,body', looks like a header" in message
    assert "after a tab, is ignored" in cli("predict", out, stdin="the red house\tblue\n").stderr
    cli("predict", out, other, "-o", tmp_path / "p.csv")
    before = (tmp_path / "p.csv").read_text()
    message = " ".join(cli("predict", out, tmp_path / "p.csv", "-o", tmp_path / "p.csv", fails=True).stderr.split())
    assert "p.csv already exists" in message
    assert (tmp_path / "p.csv").read_text() == before
    message = cli("predict", out, tmp_path / "p.csv", "-o", tmp_path / "again.csv").stderr  # once more
    assert "'predicted', 'p(blue)', 'p(red)'" in message
    assert list(table((tmp_path / "again.csv").read_text())[0]) == ["n", "body", "predicted", "p(blue)", "p(red)"]
    (tmp_path / "folder.csv").mkdir()
    assert "folder.csv" in cli("predict", out, other, "-o", tmp_path / "folder.csv", fails=True).stderr


def test_merging_dev_into_train_is_reported(cli: Cli, place: Path, tmp_path: Path) -> None:
    own = ("--from", place / "bert", "--data", place / "color.csv", "--merge-dev", "--quiet")
    message = cli("transfer", "bert/finetune", *own, "--set", "phase.0.steps=2", "--out", tmp_path / "last").stdout
    assert "dev (20 examples, also trained on): accuracy" in message
    assert "(20 examples, also trained on)" in (tmp_path / "last/report.html").read_text()


def test_test_predictions_are_saved(cli: Cli, place: Path, tmp_path: Path) -> None:
    rows = (place / "color.csv").read_text().splitlines()
    (tmp_path / "set").mkdir()
    for split, some in (("train", rows[1:61]), ("dev", rows[61:81]), ("test", rows[81:101])):
        (tmp_path / "set" / f"{split}.csv").write_text("\n".join([rows[0], *some]) + "\n")
    own = ("--from", place / "bert", "--data", tmp_path / "set", "--quiet", "--set", "phase.0.steps=4")
    cli("transfer", "bert/finetune", *own, "--out", tmp_path / "run")
    predicted = table(cli("predict", tmp_path / "run", tmp_path / "set/test.csv").stdout)
    with np.load(tmp_path / "run" / "predictions.npz") as answer:
        assert set(answer) == {"test"}
        for row, p in zip(predicted, answer["test"], strict=True):
            assert [float(row["p(blue)"]), float(row["p(red)"])] == pytest.approx(p.tolist(), abs=1e-4)
    assert "predictions.npz" in json.loads((tmp_path / "run" / "manifest.json").read_text())["files"]


def test_transfer_guesses_pairs_and_regression(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    words = ("transfer", "bert/finetune", "--from", place / "bert", "--set", "phase.0.steps=2")
    answer = js(*words, "--data", place / "pair.csv", "--out", tmp_path / "pair")
    assert answer["kind"] == "pair_classification"
    assert answer["run"] == str(tmp_path / "pair")
    assert set(answer["dev"]) == {"accuracy", "macro_f1"}
    assert table(cli("predict", tmp_path / "pair", stdin="a red\tthe blue\n").stdout)[0]["predicted"] in ("red", "blue")
    message = cli("predict", tmp_path / "pair", place / "new.csv", fails=True).stderr
    assert "--text-pair" in message
    answer = js(*words, "--data", place / "count.csv", "--out", tmp_path / "count")
    assert answer["kind"] == "regression"
    rows = table(cli("predict", tmp_path / "count", place / "count.csv").stdout)
    assert list(rows[0]) == ["text", "score", "predicted"]
    assert float(rows[0]["predicted"]) == pytest.approx(2, abs=2.5)


def test_seeds_from_scratch_are_summarized_and_resumed(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    words = ["transfer", "bert/finetune", "--from", place / "bert", "--data", place / "color.csv"]
    words += ["--out", tmp_path / "k", "--num-seeds", "2", "--scratch", "--set", "phase.0.steps=2"]
    message = cli(*words).stdout
    assert "mean, 95 % interval" in message
    assert "±" in message
    assert "--resume" in cli(*words, fails=True).stderr
    answer = js(*words, "--resume")
    assert len(answer["values"]) == 2
    assert all(result["scratch"] for result in answer["results"])
    message = cli("predict", tmp_path / "k", place / "new.csv", fails=True).stderr
    assert "seed-0, seed-1" in message
    listed = js("runs", "--folder", tmp_path)
    assert [Path(item["run"]).name for item in listed] == ["seed-0", "seed-1"]
    assert all(item["task"]["accuracy"] >= 0 for item in listed)
    shown = cli("runs", "--folder", tmp_path).stdout
    assert "finished · accuracy" in shown
    assert "bert" in cli("runs", tmp_path / "k/seed-0").stdout


def test_glue_suite_reuses_finished_tasks(
    cli: Cli, js: Js, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for task in ("CoLA", "MRPC", "RTE", "SST-2", "STS-B"):
        (tmp_path / "glue" / task).mkdir(parents=True)
        for name, text in SAMPLES[task].items():
            (tmp_path / "glue" / task / name).write_text(text, encoding="utf-8")
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path))
    words = ["transfer", "bert/finetune", "--from", place / "bert", "--set", "phase.0.steps=1", "--num-seeds", "2"]
    js(*words, "--data", "RTE", "--out", tmp_path / "suite/RTE")  # a process of its own, for example
    message = cli(*words, "--data", "glue", "--out", tmp_path / "suite", "--resume")
    assert message.stderr.count("RTE") == 0  # finished before
    for task, metric in (("CoLA", "mcc"), ("MRPC", "f1"), ("RTE", "accuracy"), ("STS-B", "spearman")):
        assert any(line.split()[:2] == [task, metric] for line in message.stdout.splitlines() if line.strip())
    assert any(line.split()[:1] == ["mean"] for line in message.stdout.splitlines() if line.strip())
    answer = json.loads((tmp_path / "suite/results.json").read_text())
    assert [task["name"] for task in answer["tasks"]] == ["CoLA", "MRPC", "RTE", "SST-2", "STS-B"]
    assert answer["mean"] == pytest.approx(sum(task["mean"] for task in answer["tasks"]) / 5)


def test_resume_needs_only_the_run_folder(cli: Cli, js: Js, output: Any, place: Path, tmp_path: Path) -> None:
    from nextword import tasks as transfer

    asked = iter([False] * 5 + [True])
    changes = ["phase.0.optimizer.rate=3e-3", "phase.0.batches.rows=16", "model.dropout=0.0", "phase.0.epochs=4"]
    data = str(place / "color.csv")
    stop: Callable[[], bool] = lambda: next(asked)  # noqa: E731
    transfer.run("bert/finetune", place / "bert", data, tmp_path / "cut", changes=changes, stop=stop)
    message = " ".join(cli("predict", tmp_path / "cut", place / "new.csv", fails=True).stderr.split())
    assert "nextword transfer --resume" in message
    answer = js("transfer", "--resume", "--out", tmp_path / "cut")
    assert answer["dev"] == RunFolder(place / "out").manifest["result"]["dev"]
    message = cli("transfer", "--resume", "--out", tmp_path / "cut").stderr
    assert "finished" in message
    assert "nextword train --resume" in cli("transfer", "--resume", "--out", place / "bert", fails=True).stderr
    assert "--out RUN" in cli("transfer", "--resume", fails=True).stderr


def test_predicting_with_an_unfinished_run_is_noted(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    from nextword import tasks as transfer

    asked = iter([False] * 15 + [True])  # with keep = "best" there are weights after an epoch, of 12 steps
    changes = ["phase.0.batches.rows=16", "phase.0.epochs=2", "phase.0.keep=best"]
    data, stop = str(place / "color.csv"), lambda: next(asked)
    transfer.run("bert/finetune", place / "bert", data, tmp_path / "cut", changes=changes, stop=stop)
    words = ("predict", tmp_path / "cut", place / "new.csv")
    assert js(*words)["notes"][0].startswith(f"{tmp_path / 'cut'} is not finished")
    assert "is not finished" in cli(*words).stderr
    cli("transfer", "--resume", "--out", tmp_path / "cut")
    assert not any("not finished" in note for note in js(*words)["notes"])


def test_unsupported_commands_suggest_another(cli: Cli, output: Any, place: Path, tmp_path: Path) -> None:
    run = place / "out"
    for words in (["next", run, "the"], ["next", run, "the ___"], ["generate", run], ["evaluate", run, "--data", "x"]):
        assert "nextword predict" in cli(*words, fails=True).stderr, words
    assert "nextword transfer" in cli("predict", place / "bert", place / "new.csv", fails=True).stderr
    assert "nextword transfer bert/finetune" in cli("train", "bert/finetune", fails=True).stderr
    assert ".jsonl" in cli("predict", run, place / "new.csv", "-o", tmp_path / "x.txt", fails=True).stderr
    assert (
        str(tmp_path / "no") in cli("predict", run, place / "new.csv", "-o", tmp_path / "no/x.csv", fails=True).stderr
    )
    lines = tmp_path / "lines.txt"
    lines.write_text("the red king\n")
    assert "32" in cli("embed", run, lines).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "bert/finetune"),
        (["bert/finetune"], "--from RUN"),
        (["bert/finetune", "--from", "BERT"], "--data"),
        (["bert/finetune", "--from", "BERT", "--data", "CSV", "--label", "stars"], "text, label"),
        (["bert/finetune", "--from", "BERT", "--data", "nothing.csv"], "nothing.csv"),
        (
            ["bert/tiny", "--from", "BERT", "--data", "CSV"],
            "bert/choice, bert/finetune, bert/names, bert/pos, bert/span, bert/tag",
        ),
    ],
)
def test_invalid_arguments_fail(cli: Cli, place: Path, words: list[str], message: str) -> None:
    named = {"BERT": str(place / "bert"), "CSV": str(place / "color.csv")}
    assert message in cli("transfer", *(named.get(word, word) for word in words), fails=True).stderr
