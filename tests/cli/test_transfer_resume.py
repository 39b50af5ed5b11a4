"""`--resume` reuses a finished run only if the settings are the same, and no file is overwritten."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli, contents, sets
from tests.support.tiny_transfer import draw_color_texts, make_run, write_table

Js = Callable[..., Any]
SHORT = sets("phase.0.steps=2", "phase.0.batches.rows=8")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("again")
    make_run(folder / "bert")
    make_run(folder / "other", seed=5)
    write_table(folder / "color.csv", ["text", "label"], draw_color_texts(80))
    return folder


def transfer_command(place: Path, out: Path, *more: str | Path) -> tuple[str | Path, ...]:
    data = ("--from", place / "bert", "--data", place / "color.csv")
    return "transfer", "bert/finetune", *data, "--num-seeds", "2", "--out", out, *SHORT, *more


@pytest.fixture(scope="module")
def finished(js: Js, place: Path) -> dict[str, Any]:
    result: dict[str, Any] = js(*transfer_command(place, place / "k"))
    return result


def test_finished_run_with_the_same_settings_is_reused(
    js: Js, place: Path, finished: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(place / "k/seed-0")
    assert js(*transfer_command(place, place / "k", "--resume"))["values"] == finished["values"]
    monkeypatch.chdir(place)  # a path is the same, written in full or not
    near = (
        "transfer",
        "bert/finetune",
        "--from",
        "bert",
        "--data",
        "color.csv",
        "--num-seeds",
        "2",
        "--out",
        "k",
        *SHORT,
    )
    assert js(*near, "--resume")["values"] == finished["values"]
    assert contents(place / "k/seed-0") == before


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (sets("phase.0.steps=3"), "phase.0.steps is 2 there and 3 here"),
        (sets("phase.0.optimizer.rate=2e-4", "task.dropout=0.3"), "phase.0.optimizer.rate is 0.0001 there and 0.0002"),
        (["--train-fraction", "0.5"], "task.train_fraction is 1.0 there and 0.5 here"),
        (["--scratch"], "task.scratch is False there and True here"),
        (["--merge-dev"], "task.merge_dev_into_train is False there and True here"),
        (sets("phase.0.precision=bf16"), "phase.0.precision is 'fp32' there and 'bf16' here"),
    ],
)
def test_other_settings_fail_and_are_named(more: list[str], message: str, cli: Cli, place: Path, finished: Any) -> None:
    before = contents(place / "k")
    output = " ".join(cli(*transfer_command(place, place / "k", "--resume", *more), fails=True).stderr.split())
    assert message in output
    assert contents(place / "k") == before


def test_another_source_or_other_rows_fail(cli: Cli, place: Path, finished: Any, tmp_path: Path) -> None:
    words = transfer_command(place, place / "k", "--resume")
    output = cli(*[place / "other" if word == place / "bert" else word for word in words], fails=True).stderr
    assert "task.source is" in output.partition("other settings: ")[2][:20]  # what the rest follows from comes first
    shutil.copytree(place / "k/seed-0", tmp_path / "one")
    shutil.copy(place / "color.csv", tmp_path / "kept.csv")
    try:
        write_table(place / "color.csv", ["text", "label"], draw_color_texts(80, seed=3))
        output = " ".join(cli(*words, fails=True).stderr.split())
        assert str(place / "color.csv") in output
    finally:
        shutil.copy(tmp_path / "kept.csv", place / "color.csv")


def test_no_seed_is_trained_if_another_differs(cli: Cli, place: Path, finished: Any, tmp_path: Path) -> None:
    """The second seed has other settings, which is noticed before the first is trained."""
    shutil.copytree(place / "k/seed-1", tmp_path / "k/seed-1")
    cli(*transfer_command(place, tmp_path / "k", "--resume", *sets("phase.0.steps=3")), fails=True)
    assert not (tmp_path / "k/seed-0").exists()


def test_missing_seed_is_trained(js: Js, place: Path, finished: Any, tmp_path: Path) -> None:
    shutil.copytree(place / "k", tmp_path / "k")
    shutil.rmtree(tmp_path / "k/seed-0")
    assert js(*transfer_command(place, tmp_path / "k", "--resume"))["values"] == finished["values"]


def test_resume_without_a_recipe_takes_no_settings(cli: Cli, place: Path, finished: Any) -> None:
    for command in ("transfer", "train"):
        output = cli(command, "--resume", "--out", place / "k/seed-0", *sets("phase.0.steps=9"), fails=True).stderr
        assert "--set" in output
    output = cli(
        "transfer", "--resume", "--out", place / "k/seed-0", "--train-fraction", "0.5", "--seed", "3", fails=True
    ).stderr
    assert "--seed, --train-fraction" in " ".join(output.split())


def test_existing_files_are_never_overwritten(cli: Cli, place: Path, finished: Any, tmp_path: Path) -> None:
    run, lines = place / "k/seed-0", tmp_path / "lines.txt"
    lines.write_text("a red house\n")
    for name in ("p.csv", "lines.npy", "lines.safetensors", "v.npy"):
        (tmp_path / name).write_text("mine")
    for words in (
        ("predict", run, lines, "--out", tmp_path / "p.csv"),
        ("embed", place / "bert", lines),
        ("embed", place / "bert", lines, "--out", tmp_path / "v.npy"),
    ):
        before = contents(tmp_path)
        message = " ".join(cli(*words, fails=True).stderr.split())
        assert "exists" in message, words
        assert contents(tmp_path) == before
    cli("embed", place / "bert", lines, "--query", "a house")  # nothing is written
    (tmp_path / "p.csv").unlink()
    cli("predict", run, lines, "--out", tmp_path / "p.csv")


# ------------------------------------------------------------------------------------------------ what is said


def test_class_balance_is_that_of_the_training_fraction(cli: Cli, place: Path, tmp_path: Path) -> None:
    """Ten rows, drawn by seed 4 and counted by hand."""
    from nextword.tasks.base import draw_fraction
    from nextword.tasks.text_data import read_one

    data = read_one(str(place / "color.csv"))
    labels = data.splits["train"].labels or []
    chosen = [labels[i] for i in draw_fraction(len(labels), 0.14, 4)]
    share = 100 * chosen.count("blue") / len(chosen)
    assert share != pytest.approx(100 * data.balance["blue"], abs=0.1)
    words = ("transfer", "bert/finetune", "--from", place / "bert", "--data", place / "color.csv", *SHORT)
    message = " ".join(cli(*words, "--train-fraction", "0.14", "--seed", "4", "--out", tmp_path / "x").stderr.split())
    assert f"blue {share:.1f} % · red {100 - share:.1f} %" in message
    assert f"{len(chosen)} of {len(labels)} train" in message
    assert f"{share:.1f}" in (tmp_path / "x/report.html").read_text()
    assert data.balance_of_fraction(1.0, 4) == data.balance


def test_train_reports_the_text_column(cli: Cli, tmp_path: Path) -> None:
    rows = [
        (i, f"{text} and so on and so forth in row {i}", label) for i, (text, label) in enumerate(draw_color_texts(300))
    ]
    file = write_table(tmp_path / "reviews.csv", ["number", "review", "label"], rows)
    words = ("train", "lstm/tiny", *sets("phase.0.steps=2"))
    message = " ".join(cli(*words, "--data", file, "--out", tmp_path / "a").stderr.split())
    assert str(file) in message
    assert "'review'" in message
    message = " ".join(cli(*words, "--data", f"{file}:label", "--out", tmp_path / "b", fails=True).stderr.split())
    assert "'label'" in message
    assert "'review'" not in cli(*words, "--data", file, "--out", tmp_path / "c", "--quiet").stderr


def test_embed_reads_a_table_row_by_row(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    import numpy as np

    rows = [(i, text, label) for i, (text, label) in enumerate(draw_color_texts(12))]
    file = write_table(tmp_path / "reviews.csv", ["n", "review", "label"], rows)
    message = cli("embed", place / "bert", file, "--out", tmp_path / "a.npy")
    assert "'review'" in message.stderr
    (tmp_path / "lines.txt").write_text("".join(f"{text}\n" for _, text, _ in rows))
    cli("embed", place / "bert", tmp_path / "lines.txt", "--out", tmp_path / "b.npy")
    assert np.array_equal(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"))
    (tmp_path / "lines.jsonl").write_text("".join(f'{{"id": {i}, "body": "{text}"}}\n' for i, text, _ in rows))
    result = js("embed", place / "bert", f"{tmp_path}/lines.jsonl:body", "--query", rows[3][1], "-k", "1")
    assert result["lines"][0]["line"] == 4
    for given, why in (
        (f"{file}:nope", "'nope'"),
        (f"{tmp_path}/lines.txt:body", "body"),
        (f"{tmp_path}/none.csv:body", "none.csv"),
    ):
        assert why in " ".join(cli("embed", place / "bert", given, fails=True).stderr.split())


def test_exact_task_name_wins_over_a_prefix(
    cli: Cli, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mine is a prefix of mine.csv."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    write_table(tmp_path / "mine/train.csv", ["text", "label"], draw_color_texts(60))
    write_table(
        tmp_path / "mine.csv", ["text", "label"], [(text, label.upper()) for text, label in draw_color_texts(60, 1)]
    )
    both = ("transfer", "bert/finetune", "--from", place / "bert", "--data", "mine + mine.csv", *SHORT)
    cli(*both, "--out", "run")
    assert "p(blue),p(red)" in cli("predict", "run", "mine.csv", "--task", "mine").stdout
    assert "p(BLUE),p(RED)" in cli("predict", "run", "mine.csv", "--task", "mine.csv").stdout
