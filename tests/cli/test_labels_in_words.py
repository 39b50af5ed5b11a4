"""`nextword transfer t5/finetune` and `predict`, end to end: a csv to labels that a T5 writes."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nextword
from nextword.core.errors import NextwordError
from nextword.tasks.worded import sources, spelled
from tests.cli.conftest import Cli, sets
from tests.support.tiny_transfer import coloured, counted, paired, run_of, written

Js = Callable[..., Any]
QUICK = sets("phase.0.optimizer.rate=3e-3", "model.dropout=0.0", "phase.0.epochs=10")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    for slug in ("t5", "bert", "seq2seq"):
        run_of(folder / slug, slug)
    written(folder / "colour.csv", ["text", "label"], coloured(300))
    written(folder / "new.csv", ["text", "label"], coloured(30, 9))
    written(folder / "pair.csv", ["text", "second", "label"], paired(60))
    written(folder / "count.csv", ["text", "label"], counted(60))
    written(
        folder / "choice.csv", ["context", "choice0", "choice1", "label"], [(f"a{i}", "b", "c", 0) for i in range(20)]
    )
    return folder


@pytest.fixture(scope="module")
def told(cli: Cli, place: Path) -> Any:
    asked = ("transfer", "t5/finetune", "--from", place / "t5", "--data", place / "colour.csv", "--out", place / "out")
    return cli(*asked, *QUICK)


def test_it_learns_and_labels_a_file(cli: Cli, told: Any, place: Path) -> None:
    assert "dev (30 examples): accuracy 100.0" in told.stdout
    said = cli("predict", place / "out", place / "new.csv")
    rows = list(csv.DictReader(io.StringIO(said.stdout)))
    assert list(rows[0]) == ["text", "label", "predicted", "p(blue)", "p(red)"]
    assert sum(row["predicted"] == row["label"] for row in rows) >= 28
    assert all(abs(float(row["p(blue)"]) + float(row["p(red)"]) - 1) < 1e-5 for row in rows)
    assert (place / "out/report.html").is_file()


def test_what_speaks_for_a_label_is_the_colour(told: Any, place: Path) -> None:
    model: Any = nextword.load(place / "out", device="cpu")
    found = model.explain(["the old red king went far"])[0]
    assert found.label == "red"
    assert found.words == (["the", "old", "red", "king", "went", "far"],)
    weights = found.weights[0]
    assert max(range(6), key=lambda i: abs(weights[i])) == 2
    assert sum(weights) == pytest.approx(found.said - found.blank + found.gap, abs=1e-5)
    assert abs(found.gap) < 0.1 * sum(map(abs, weights))


def test_two_texts_and_other_networks(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    short = sets("phase.0.steps=3")
    base = ("transfer", "t5/finetune", "--from", place / "t5", "--data", place / "pair.csv")
    asks = sets("task.asks='the pair {text} and {second}'")
    found = js(*base, "--out", tmp_path / "pair", *short, *asks)
    assert found["kind"] == "pair"
    model: Any = nextword.load(tmp_path / "pair", device="cpu")
    explained = model.explain([("the red king", "a blue house far")])[0]
    assert [len(one) for one in explained.weights] == [3, 4]
    assert all(one is not None for some in explained.weights for one in some)
    cli(*base[:3], place / "seq2seq", *base[4:], "--out", tmp_path / "other", *short)
    assert nextword.load(tmp_path / "other", device="cpu").predict([("a red", "a blue")])[0].label in ("red", "blue")


def test_seeds_and_going_on(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    base = ("transfer", "t5/finetune", "--from", place / "t5", "--data", place / "colour.csv", *sets("phase.0.steps=4"))
    found = js(*base, "--seeds", "2", "--out", tmp_path / "k")
    assert len(found["values"]) == 2
    again = js(*base, "--seeds", "2", "--out", tmp_path / "k", "--resume")
    assert again["values"] == found["values"]


@pytest.mark.parametrize(
    ("run", "data", "changes", "said"),
    [
        ("bert", "colour.csv", (), "BERT makes no text from a source. Transfer a run of t5 or seq2seq"),
        ("bert", "colour.csv", ("task.words={red='one',blue='one'}",), "BERT makes no text from a source"),  # first
        (
            "t5",
            "count.csv",
            (),
            "count.csv take a run whose tokenizer knows digits, or a recipe with a head",
        ),
        ("t5", "choice.csv", (), "writes classes of texts, or numbers, and"),
        ("t5", "colour.csv", ("task.step=0.2",), "step = 0.2 is of numbers that are written"),
        ("t5", "colour.csv", ("task.words={red='one',blue='one'}",), "are written with the same tokens"),
        ("t5", "colour.csv", ("task.words={green='one'}",), "names 'green'; the labels are blue, red"),
        ("t5", "colour.csv", ("task.words=3",), "expected what is written for labels"),
        ("t5", "colour.csv", ("task.asks='which colour?'",), "expected {text} in it once"),
        ("t5", "pair.csv", ("task.asks='{text}'",), "expected {text} in it once and {second} once"),
        ("t5", "colour.csv", ("phase.0.objective.language=0.5",), "for networks that read from left to right"),
    ],
)
def test_mistakes(
    run: str, data: str, changes: tuple[str, ...], said: str, cli: Cli, place: Path, tmp_path: Path
) -> None:
    asked = ("transfer", "t5/finetune", "--from", place / run, "--data", place / data, "--out", tmp_path / "x")
    assert said in " ".join(cli(*asked, *sets(*changes), fails=True).stderr.split())
    assert not (tmp_path / "x").exists() or "language" in changes[0]


def test_texts_are_put_into_the_template_as_they_stand() -> None:
    assert sources("", ["a"], None) == ["classify: a"]
    assert sources("", ["a"], ["b"]) == ["classify sentence1: a sentence2: b"]
    assert sources("{second} / {text}", ["has {second} in it"], ["b {text}"]) == ["b {text} / has {second} in it"]
    with pytest.raises(NextwordError, match=r"expected \{text\} in it once"):
        sources("{text} {text}", ["a"], None)


def test_glue_is_asked_in_the_words_of_the_paper() -> None:
    """The same templates as `tasks:` has for text-to-text training, so that such a run can be gone on with."""
    from nextword.data.text_to_text import tasks
    from nextword.recipe import load_recipe
    from nextword.tasks.settings import settings_of

    recipe = load_recipe("t5/finetune")
    fields = {"cola": ("sentence",), "sst2": ("sentence",), "mrpc": ("one", "other"), "qqp": ("one", "other")}
    fields |= {
        "stsb": ("one", "other"),
        "mnli": ("premise", "hypothesis"),
        "qnli": ("question", "sentence"),
        "rte": ("one", "other"),
    }
    changes = settings_of(recipe.task or {}, "").changes
    assert {name.lower().replace("-", "") for name in changes} == set(fields)
    for name, given in changes.items():
        settings = settings_of(load_recipe("t5/finetune", given).task or {}, "")
        task = tasks()[name.lower().replace("-", "")]
        values = dict(zip(fields[task.name], ("A b.", "C d."), strict=False))
        seconds = ["C d."] if len(fields[task.name]) == 2 else None
        assert sources(settings.asks, ["A b."], seconds) == [task.source.format(**values)]
        assert {label: settings.words.get(label, label) for label in task.labels} == dict(task.labels)
        assert settings.step == task.step


def test_labels_end_with_the_end(place: Path) -> None:
    from nextword.tokenizers.loading import load_tokenizer

    tokenizer = load_tokenizer(place / "t5/tokenizer.json")
    found = spelled(tokenizer, ["red", "blue"], {"red": "the queen"})
    assert [one[-1] for one in found] == [tokenizer.end, tokenizer.end]
    assert list(found[0][:-1]) == tokenizer.encode("the queen").ids.tolist()
