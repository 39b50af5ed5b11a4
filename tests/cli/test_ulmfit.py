"""ULMFiT commands: language model, fine-tuning on task texts, classifier, and both directions."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nextword.lm.loading import load
from nextword.run_folder import RunFolder
from tests.cli.conftest import Cli, sets
from tests.support.tiny_topics import draw_labeled_sentences, draw_text
from tests.support.tiny_transfer import write_table

Js = Callable[..., Any]
DIRECTIONS = {"ahead": "false", "back": "true"}


@pytest.fixture(scope="module")
def place(cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run three stages per direction: lm-ahead, own-ahead, ahead; lm-back, own-back, back."""
    folder = tmp_path_factory.mktemp("ulmfit")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        (folder / "plain.txt").write_text(draw_text(600))
        rows = [
            (f"{item} zebra", topic) for item, topic in draw_labeled_sentences(300, seed=1)
        ]  # a word that plain text has not
        write_table(folder / "topics.csv", ["text", "label"], rows)
        write_table(folder / "new.csv", ["text", "label"], draw_labeled_sentences(40, seed=2))
        for name, back in DIRECTIONS.items():
            pre, own = folder / f"lm-{name}", folder / f"own-{name}"
            way = sets(f"model.backward={back}")
            cli("train", "ulmfit/tiny", "--data", folder / "plain.txt", "--out", pre, *sets("phase.0.steps=60"), *way)
            message = cli(
                *("train", "ulmfit/tiny-lm", "--data", folder / "topics.csv", "--out", own, *way),
                *sets(f"phase.0.init_from={pre}", "phase.words.steps=10", "phase.all.steps=20"),
            )
            (folder / f"{name}.err").write_text(message.stderr)
            (folder / f"{name}.out").write_text(message.stdout)
            third = ("transfer", "ulmfit/tiny-classify", "--from", own, "--data", folder / "topics.csv")
            message = cli(*third, "--out", folder / name)
            (folder / f"{name}-task.err").write_text(message.stderr)
    return folder


def test_missing_first_stage_is_named_with_its_command_at_once(cli: Cli, tmp_path: Path) -> None:
    """Before any text is opened: the text does not exist either."""
    words = ("train", "ulmfit/tiny-lm", "--data", tmp_path / "nothing.csv", "--out", tmp_path / "out")
    message = " ".join(cli(*words, fails=True).stderr.split())
    assert "runs/ulmfit-tiny, which does not exist" in message
    assert "nextword train ulmfit/tiny. Or" in message
    elsewhere = sets(f"phase.0.init_from={tmp_path}/ulmfit-pretrain")
    message = " ".join(cli(*words, *elsewhere, fails=True).stderr.split())
    assert f"nextword train ulmfit/pretrain --out {tmp_path}/ulmfit-pretrain." in message
    message = " ".join(cli(*words, *sets("phase.0.init_from=mine"), fails=True).stderr.split())
    assert "Name another run with --set phase.words.init_from=RUN." in message
    assert not (tmp_path / "out").exists()


def table(message: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(message)))


def test_ulmfit_stages_report_words_and_phases(place: Path) -> None:
    output = (place / "ahead.err").read_text()
    assert "words: " in output
    (note,) = [line for line in output.splitlines() if f"{place / 'lm-ahead'}" in line]
    assert " 1 of " in note  # zebra is the only new word
    assert "all: " in output
    assert "nextword generate" in (place / "ahead.out").read_text()
    assert "nextword generate" not in (place / "back.out").read_text()
    assert f"nextword embed {place / 'lm-back'} lines.txt" in (place / "lm-back" / "card.md").read_text()
    assert "nextword generate" not in (place / "lm-back" / "card.md").read_text()
    phases = (place / "ahead-task.err").read_text()
    for name in ("head: ", "one-layer: ", "two-layers: ", "all: "):
        assert name in phases


def test_unknown_words_note_suggests_the_second_stage(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    """The note about unknown words suggests the second stage, and the command in it works."""
    third = ("transfer", "ulmfit/tiny-classify", "--data", place / "topics.csv", *sets("phase.*.steps=1"))
    before = cli(*third, "--from", place / "lm-back", "--out", tmp_path / "before").stderr
    (note,) = [line for line in before.splitlines() if "'zebra'" in line]
    assert "10.0 %" in note
    words = shlex.split(note.partition(": nextword ")[2])
    assert words[:2] == ["train", "ulmfit/tiny-lm"]
    cli(*words, "--out", tmp_path / "own", *sets("phase.*.steps=1"))
    assert RunFolder.open(tmp_path / "own").recipe.model["backward"] is True
    after = cli(*third, "--from", tmp_path / "own", "--out", tmp_path / "after").stderr
    assert "zebra" not in after
    assert js("predict", place / "ahead", place / "new.csv")["notes"] == []
    message = cli("predict", tmp_path / "before", stdin="zebra zebra\n")
    assert message.stdout.startswith("text,predicted,")
    assert len(message.stdout.splitlines()) == 2
    assert "100.0 %" in message.stderr
    assert "'zebra'" in message.stderr


def test_run_folder_records_every_stage(place: Path) -> None:
    recipe = RunFolder.open(place / "back").recipe
    assert recipe.slug == "ulmfit"
    assert recipe.model["backward"] is True
    assert [phase.trainable_groups for phase in recipe.phases] == [1, 2, 3, 0]
    assert len({phase.seed for phase in recipe.phases}) == 4
    assert recipe.task is not None
    assert (recipe.task["pooling"], recipe.task["chunk"], recipe.task["hidden_sizes"]) == ("concat", 16, [50])


def test_predict_with_ensemble_averages_two_runs(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    message = cli("predict", place / "ahead", place / "new.csv", "--ensemble", place / "back")
    both = table(message.stdout)
    each = [table(cli("predict", place / name, place / "new.csv").stdout) for name in DIRECTIONS]
    for row, a, b in zip(both, *each, strict=True):
        mean = (float(a["p(sea)"]) + float(b["p(sea)"])) / 2
        assert float(row["p(sea)"]) == pytest.approx(mean, abs=2e-6)
        assert row["predicted"] == ("sea" if float(row["p(sea)"]) > float(row["p(wood)"]) else "wood")
    right = sum(row["predicted"] == row["label"] for row in both)
    assert right > 30
    assert f"against the column 'label': accuracy {100 * right / 40:.1f}" in message.stderr
    whole = js("predict", place / "ahead", place / "new.csv", "--ensemble", place / "back")
    assert whole["scores"]["accuracy"] == right / 40
    assert whole["run"] == f"{place / 'ahead'} + {place / 'back'}"
    done = cli(
        "predict", place / "ahead", place / "new.csv", "--ensemble", place / "back", "--out", tmp_path / "o.jsonl"
    )
    assert "40 predictions" in done.stdout
    kept = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert [item["predicted"] for item in kept] == [row["predicted"] for row in both]


def test_quantized_classifier_predicts_the_same(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    """A quantized classifier keeps its head, predicts nearly the same, and cannot be trained."""
    small = tmp_path / "small"
    message = cli("convert", place / "ahead", small, *sets("model.bits=8"))
    assert f"nextword predict {small} FILE" in message.stdout
    assert "Converted from `ahead`" in (small / "card.md").read_text()
    before, after = (table(cli("predict", run, place / "new.csv").stdout) for run in (place / "ahead", small))
    assert [row["predicted"] for row in after] == [row["predicted"] for row in before]
    apart = [abs(float(a["p(sea)"]) - float(b["p(sea)"])) for a, b in zip(after, before, strict=True)]
    assert 0 < max(apart) < 0.02
    at_once = cli("predict", place / "ahead", place / "new.csv", "--precision", "int8")
    assert table(at_once.stdout) == after
    files = [path / "model.safetensors" for path in (place / "ahead", small)]
    assert files[1].stat().st_size < 0.4 * files[0].stat().st_size
    assert [run["parameters"] for run in js("runs", "--folder", tmp_path)] == [
        RunFolder.open(place / "ahead").manifest["parameters"]
    ]
    cli("predict", small, place / "new.csv", "--ensemble", place / "back")
    models: list[Any] = [load(small), load(place / "ahead")]
    why, full = (model.explain([before[0]["text"]])[0] for model in models)
    assert why.label == full.label
    assert why.weights[0] == pytest.approx(full.weights[0], abs=0.05 * max(map(abs, full.weights[0])))
    again = cli("convert", small, tmp_path / "smaller", *sets("model.bits=8"), fails=True)
    assert "model.bits=8" in again.stderr
    assert not (tmp_path / "smaller").exists()
    third = ("transfer", "ulmfit/tiny-classify", "--from", small, "--data", place / "topics.csv")
    assert "int8" in cli(*third, "--out", tmp_path / "out", fails=True).stderr.lower()
    assert not (tmp_path / "out").exists()
    assert "int8" in cli("predict", small, place / "new.csv", "--precision", "bf16", fails=True).stderr


def test_predict_with_incompatible_ensemble_fails(cli: Cli, place: Path) -> None:
    refused = cli("predict", place / "ahead", place / "new.csv", "--ensemble", place / "lm-back", fails=True)
    assert str(place / "lm-back") in refused.stderr


def test_transfer_from_run_of_other_direction_fails(cli: Cli, place: Path, tmp_path: Path) -> None:
    second = ("train", "ulmfit/tiny-lm", "--data", place / "topics.csv", "--out", tmp_path / "x")
    third = ("transfer", "ulmfit/tiny-classify", "--data", place / "topics.csv", "--out", tmp_path / "x")
    for words in (
        (*second, *sets(f"phase.0.init_from={place / 'lm-ahead'}", "model.backward=true")),
        (*third, "--from", place / "own-ahead", *sets("model.backward=true")),
    ):
        message = " ".join(cli(*words, fails=True).stderr.split())
        assert "model.backward" in message
        assert not (tmp_path / "x").exists()
    back = (*third, "--from", place / "own-back", *sets("model.backward=false"))
    assert "model.backward" in " ".join(cli(*back, fails=True).stderr.split())


def test_backward_model_can_be_evaluated_but_not_generate(cli: Cli, js: Js, place: Path) -> None:
    assert js("evaluate", place / "own-back", "--data", place / "plain.txt")["nats"] > 0
    for words in (("generate", place / "own-back"), ("next", place / "own-back", "the")):
        assert "backward = true" in " ".join(cli(*words, fails=True).stderr.split())


@pytest.mark.parametrize(
    "off",
    [
        ["phase.*.optimizer.layer_discount=1"],
        ["phase.*.schedule=constant"],
        ["phase.*.trainable_groups=0"],
        ["task.pooling=last"],
        ["task.pooling=mean", "task.classifier=linear"],
        ["task.chunk=0", "task.bptt_window=0"],
    ],
)
def test_each_part_of_ulmfit_can_be_disabled(cli: Cli, place: Path, tmp_path: Path, off: list[str]) -> None:
    words = ("transfer", "ulmfit/tiny-classify", "--from", place / "lm-ahead", "--data", place / "topics.csv")
    cli(*words, "--out", tmp_path / "out", *sets("phase.*.steps=1", *off))
    assert RunFolder.open(tmp_path / "out").manifest["finished"]
