"""`nextword transfer t5/finetune` and `predict` end to end: labels of a csv generated as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nextword
from nextword.core.errors import InvalidSetting
from nextword.tasks.label_text import LabelTextConfig, fill_prompt, tokenize_labels
from tests.cli.conftest import Cli, sets
from tests.support.tiny_transfer import draw_color_counts, draw_color_pairs, draw_color_texts, make_run, write_table

Js = Callable[..., Any]
QUICK = sets("phase.0.optimizer.rate=3e-3", "model.dropout=0.0", "phase.0.epochs=10")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    for slug in ("t5", "bert", "seq2seq"):
        make_run(folder / slug, slug)
    write_table(folder / "color.csv", ["text", "label"], draw_color_texts(300))
    write_table(folder / "new.csv", ["text", "label"], draw_color_texts(30, 9))
    write_table(folder / "pair.csv", ["text", "second", "label"], draw_color_pairs(60))
    write_table(folder / "count.csv", ["text", "label"], draw_color_counts(60))
    write_table(
        folder / "choice.csv", ["context", "choice0", "choice1", "label"], [(f"a{i}", "b", "c", 0) for i in range(20)]
    )
    return folder


@pytest.fixture(scope="module")
def output(cli: Cli, place: Path) -> Any:
    asked = ("transfer", "t5/finetune", "--from", place / "t5", "--data", place / "color.csv", "--out", place / "out")
    return cli(*asked, *QUICK)


def test_label_text_transfer_learns_and_predicts_a_file(cli: Cli, output: Any, place: Path) -> None:
    assert "dev (30 examples): accuracy 100.0" in output.stdout
    message = cli("predict", place / "out", place / "new.csv")
    rows = list(csv.DictReader(io.StringIO(message.stdout)))
    assert list(rows[0]) == ["text", "label", "predicted", "p(blue)", "p(red)"]
    assert sum(row["predicted"] == row["label"] for row in rows) >= 28
    assert all(abs(float(row["p(blue)"]) + float(row["p(red)"]) - 1) < 1e-5 for row in rows)
    assert (place / "out/report.html").is_file()


def test_explanation_of_a_label_names_the_color(output: Any, place: Path) -> None:
    model: Any = nextword.load(place / "out", device="cpu")
    result = model.explain(["the old red king went far"])[0]
    assert result.label == "red"
    assert result.words == (["the", "old", "red", "king", "went", "far"],)
    weights = result.weights[0]
    assert max(range(6), key=lambda i: abs(weights[i])) == 2
    assert sum(weights) == pytest.approx(result.score - result.baseline + result.gap, abs=1e-5)
    assert abs(result.gap) < 0.1 * sum(map(abs, weights))


def test_label_text_transfer_of_pairs_and_other_networks(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    short = sets("phase.0.steps=3")
    base = ("transfer", "t5/finetune", "--from", place / "t5", "--data", place / "pair.csv")
    asks = sets("task.prompt='the pair {text} and {second}'")
    result = js(*base, "--out", tmp_path / "pair", *short, *asks)
    assert result["kind"] == "label_text"
    model: Any = nextword.load(tmp_path / "pair", device="cpu")
    explained = model.explain([("the red king", "a blue house far")])[0]
    assert [len(item) for item in explained.weights] == [3, 4]
    assert all(item is not None for some in explained.weights for item in some)
    cli(*base[:3], place / "seq2seq", *base[4:], "--out", tmp_path / "other", *short)
    assert nextword.load(tmp_path / "other", device="cpu").predict([("a red", "a blue")])[0].label in ("red", "blue")


def test_label_text_seeds_are_resumed(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    base = ("transfer", "t5/finetune", "--from", place / "t5", "--data", place / "color.csv", *sets("phase.0.steps=4"))
    result = js(*base, "--num-seeds", "2", "--out", tmp_path / "k")
    assert len(result["values"]) == 2
    again = js(*base, "--num-seeds", "2", "--out", tmp_path / "k", "--resume")
    assert again["values"] == result["values"]


@pytest.mark.parametrize(
    ("run", "data", "changes", "values"),  # values: what the error names
    [
        ("bert", "color.csv", (), ("BERT", "t5")),
        ("bert", "color.csv", ("task.label_words={red='one',blue='one'}",), ("BERT", "t5")),  # the network comes first
        ("t5", "count.csv", (), ("'0.0'", "'0.2'", "digits")),
        ("t5", "choice.csv", (), ("choice.csv", "multiple_choice")),
        ("t5", "color.csv", ("task.number_step=0.2",), ("number_step", "0.2", "color.csv")),
        ("t5", "color.csv", ("task.label_words={red='one',blue='one'}",), ("'blue'", "'red'", "task.label_words")),
        ("t5", "color.csv", ("task.label_words={green='one'}",), ("label_words", "'green'", "blue, red")),
        ("t5", "color.csv", ("task.label_words=3",), ("label_words", "3")),
        ("t5", "color.csv", ("task.prompt='which color?'",), ("prompt", "'which color?'", "{text}")),
        ("t5", "pair.csv", ("task.prompt='{text}'",), ("prompt", "'{text}'", "{second}")),
        ("t5", "color.csv", ("phase.0.objective.lm_weight=0.5",), ("phase.*.objective.lm_weight=0",)),
    ],
)
def test_transfer_with_invalid_combination_names_it_and_writes_nothing(
    run: str, data: str, changes: tuple[str, ...], values: tuple[str, ...], cli: Cli, place: Path, tmp_path: Path
) -> None:
    words = ("transfer", "t5/finetune", "--from", place / run, "--data", place / data, "--out", tmp_path / "x")
    stderr = " ".join(cli(*words, *sets(*changes), fails=True).stderr.split())
    error = stderr[stderr.index("error:") :]
    assert [value for value in values if value not in error] == []
    assert not (tmp_path / "x").exists() or "language" in changes[0]


def test_fill_prompt_keeps_texts_verbatim() -> None:
    assert fill_prompt("", ["a"], None) == ["classify: a"]
    assert fill_prompt("", ["a"], ["b"]) == ["classify sentence1: a sentence2: b"]
    assert fill_prompt("{second} / {text}", ["has {second} in it"], ["b {text}"]) == ["b {text} / has {second} in it"]
    with pytest.raises(InvalidSetting) as caught:
        fill_prompt("{text} {text}", ["a"], None)
    assert (caught.value.key, caught.value.value) == ("task.prompt", "{text} {text}")


def test_glue_prompts_equal_the_templates_of_t5() -> None:
    """The templates equal those of `tasks:`, so a text-to-text run can be fine-tuned further."""
    from nextword.data.text_to_text import tasks
    from nextword.recipe import load_recipe

    recipe = load_recipe("t5/finetune")
    fields = {"cola": ("sentence",), "sst2": ("sentence",), "mrpc": ("one", "other"), "qqp": ("one", "other")}
    fields |= {
        "stsb": ("one", "other"),
        "mnli": ("premise", "hypothesis"),
        "qnli": ("question", "sentence"),
        "rte": ("one", "other"),
    }
    changes = LabelTextConfig(**(recipe.task or {})).overrides
    assert {name.lower().replace("-", "") for name in changes} == set(fields)
    for name, given in changes.items():
        config = LabelTextConfig(**(load_recipe("t5/finetune", given).task or {}))
        task = tasks()[name.lower().replace("-", "")]
        values = dict(zip(fields[task.name], ("A b.", "C d."), strict=False))
        seconds = ["C d."] if len(fields[task.name]) == 2 else None
        assert fill_prompt(config.prompt, ["A b."], seconds) == [task.source.format(**values)]
        assert {label: config.label_words.get(label, label) for label in task.labels} == dict(task.labels)
        assert config.number_step == task.step


def test_label_ids_end_with_the_end_token(place: Path) -> None:
    from nextword.tokenizers.loading import load_tokenizer

    tokenizer = load_tokenizer(place / "t5/tokenizer.json")
    result = tokenize_labels(tokenizer, ["red", "blue"], {"red": "the queen"})
    assert [item[-1] for item in result] == [tokenizer.end, tokenizer.end]
    assert list(result[0][:-1]) == tokenizer.encode("the queen").ids.tolist()
