"""What a transferred run gets wrong, as numbers in its folder and as a page to look at."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nextword
from nextword import tasks as transfer
from nextword.core.errors import NextwordError
from nextword.data.tables import Rows
from nextword.run_folder import RunFolder
from nextword.tasks.error_analysis import KEPT, LETTERS, WHOLE, of_classes, of_numbers, of_tags
from nextword.tasks.report import Looked, render
from nextword.tasks.tagging import TaggedExamples
from tests.support.tiny_transfer import coloured, counted, paired, run_of, sentence, written
from tests.unit.test_report import Page

QUICK = ["phase.0.optimizer.rate=3e-3", "phase.0.batches.rows=16", "model.dropout=0.0", "phase.0.log=2"]


def rows(n: int) -> Rows:
    return Rows([f"text {i}" for i in range(n)], None, [""] * n)


# ------------------------------------------------------------------------------------------------ numbers


def test_the_surest_mistakes_come_first() -> None:
    probabilities = np.array([[0.9, 0.1], [0.3, 0.7], [0.2, 0.8], [0.6, 0.4]])
    found = of_classes(("no", "yes"), np.array([1, 0, 1, 1]), probabilities, rows(4))
    assert found["confusion"] == [[0, 1], [2, 1]]
    assert (found["examples"], found["wrong"]) == (4, 3)
    said = [(one["text"], one["label"], one["predicted"], one["probability"]) for one in found["mistakes"]]
    assert said == [("text 0", "yes", "no", 0.9), ("text 1", "no", "yes", 0.7), ("text 3", "yes", "no", 0.6)]
    assert found["mistakes"][0]["probability_of_label"] == 0.1
    assert [one["text"] for one in found["right_ones"]] == ["text 2"]
    # all in bins of their own: |0 − 0.9|, |0 − 0.7|, |1 − 0.8|, |0 − 0.6|, a quarter each
    assert found["calibration"]["error"] == pytest.approx((0.9 + 0.7 + 0.2 + 0.6) / 4)


def test_many_classes_and_long_texts_stay_readable() -> None:
    n = WHOLE + 1
    draw = np.random.default_rng(0)
    labels = [f"c{i}" for i in range(n)]
    long = Rows(["x" * 10_000] * 300, ["y"] * 300, [""] * 300)
    found = of_classes(labels, draw.integers(0, n, 300), draw.dirichlet(np.ones(n), 300), long)
    assert found["confusion"] is None
    assert len(found["worst"]) == len(found["mistakes"]) == KEPT
    assert len(found["mistakes"][0]["text"]) == LETTERS
    assert found["mistakes"][0]["second"] == "y"


def test_the_largest_errors_come_first() -> None:
    found = of_numbers(np.array([1.0, 2.0, 3.0]), np.array([1.5, 2.0, 1.0]), rows(3))
    assert found["mean_absolute_error"] == pytest.approx(2.5 / 3)
    assert found["root_mean_square_error"] == pytest.approx(np.sqrt((0.25 + 4) / 3))
    assert [(one["text"], one["error"]) for one in found["mistakes"]] == [
        ("text 2", -2.0), ("text 0", 0.5), ("text 1", 0.0)
    ]  # fmt: skip


def test_types_of_spans_and_sentences() -> None:
    names = ("O", "S-LOC", "S-PER")
    starts, tags = np.array([0, 2, 4]), np.array([1, 0, 2, 1])  # LOC O · PER LOC
    text = TaggedExamples(np.zeros(4, np.int64), starts, np.array([0, 1, 0, 1]), starts, tags, names, spans=True)
    said = [np.array([1, 0]), np.array([1, 1])]
    found = of_tags(text, said, [("Rome", "is"), ("Ann", "Paris")])
    types = {one["label"]: one for one in found["types"]}
    assert (types["LOC"]["span_precision"], types["LOC"]["span_recall"]) == (2 / 3, 1.0)
    assert types["PER"]["span_f1"] == 0
    assert (found["examples"], found["wrong"], found["words"]) == (2, 1, 4)
    assert found["mistakes"] == [
        {"words": ["Ann", "Paris"], "tags": ["B-PER", "B-LOC"], "said": ["B-LOC", "B-LOC"]}
    ]  # fmt: skip
    plain = of_tags(
        TaggedExamples(np.zeros(4, np.int64), starts, np.array([0, 1, 0, 1]), starts, tags, names), said, [(), ()]
    )
    assert {one["label"]: one["recall"] for one in plain["classes"]} == {"O": 1.0, "S-LOC": 1.0, "S-PER": 0.0}


# ------------------------------------------------------------------------------------------------ a run's folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("errors")
    run_of(folder / "bert")
    written(folder / "colour.csv", ["text", "label"], coloured(150))
    written(folder / "pair.csv", ["text", "second", "label"], paired(100))
    written(folder / "count.csv", ["text", "label"], counted(100))
    return folder


@pytest.mark.parametrize("data", ["colour", "pair", "count"])
def test_every_run_has_its_errors_and_its_page(place: Path, data: str) -> None:
    out = place / f"out-{data}"
    changes = [*QUICK, "phase.0.epochs=2"]
    outcome = transfer.run("bert/finetune", place / "bert", str(place / f"{data}.csv"), out, changes=changes)
    found = json.loads((out / "errors.json").read_text())
    assert found == transfer.errors_in(out)
    run = RunFolder.open(out)
    assert "errors.json" in run.manifest["files"]
    run.verify()
    lm = nextword.load(out, device="cpu")
    dev = transfer.open_data(str(place / f"{data}.csv")).splits["dev"]
    given: Any = dev.texts if dev.seconds is None else list(zip(dev.texts, dev.seconds, strict=True))
    said = lm.predict(given)
    assert found["examples"] == len(dev)
    if data == "count":
        for one in found["mistakes"][:12]:  # what the page says that they add up to, in the labels' units
            weights = sum(weight for words in one["weights"] for weight in words)
            assert weights - one["gap"] == pytest.approx(one["predicted"] - one["blank"], abs=1e-4)
        off = [one.value - float(gold) for one, gold in zip(said, dev.labels, strict=True)]
        assert found["mean_absolute_error"] == pytest.approx(np.mean(np.abs(off)), abs=1e-5)
    else:
        wrong = sum(one.label != gold for one, gold in zip(said, dev.labels, strict=True))
        assert found["wrong"] == wrong
        assert outcome.results[0]["dev"]["accuracy"] == pytest.approx(1 - wrong / len(dev))
    assert found["attribution"]["method"] == "integrated gradients"
    assert all("weights" in one for one in found["mistakes"][:12])
    page = (out / "report.html").read_text()
    text = Page(page).text
    assert "How it learnt" in text
    assert page.count('class="plot"') >= 4  # loss and metrics, wide and narrow
    assert f"nextword predict {out} my.csv" in text
    assert ("Said against right" in text) == (data == "count")
    assert ("in the units of the labels" in text) == (data == "count")
    assert ("the mean of all classes" in text) == (data != "count")
    assert ("Expected calibration error" in text) == (data != "count")
    nothing_is_loaded(page)


def nothing_is_loaded(page: str) -> None:
    assert not re.search(r"(src|href)=[\"'](?!#|data:)", page)
    assert "http://" not in page and "https://" not in page  # noqa: PT018
    assert "@import" not in page and "url(" not in page  # noqa: PT018
    assert "default-src 'none'" in page


def test_a_changed_file_is_noticed(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    changes = [*QUICK, "phase.0.steps=1"]
    transfer.run("bert/finetune", place / "bert", str(place / "colour.csv"), out, changes=changes)
    (out / "report.html").unlink()  # a page to look at may go
    nextword.load(out, device="cpu")
    (out / "errors.json").write_text("{}")
    with pytest.raises(NextwordError, match=r"errors\.json is not the file"):
        nextword.load(out, device="cpu")


# ------------------------------------------------------------------------------------------------ the page


def looked(**more: Any) -> Looked:
    labels = ["<b>", "no & yes"]
    probabilities = np.array([[0.9, 0.1], [0.3, 0.7], [0.2, 0.8]])
    errors = of_classes(labels, np.array([1, 0, 1]), probabilities, Rows(["<script>x</script>", "it", ""], None, []))
    errors["mistakes"][0] |= {"words": [["<script>x</script>", "b", "c"]], "weights": [[0.5, -1.0, None]]}
    result = {
        "data": "my <data>", "metric": "accuracy", "dev": {"accuracy": 1 / 3}, "seed": 1, "seconds": 2.0,
        "examples": {"train": 9, "dev": 3}, "source": "runs/x", "scratch": False,
    }  # fmt: skip
    whole = {"split": "dev", "kind": "classify", "attribution": {"method": "integrated gradients"}, **errors}
    log = [{"event": "valid", "epoch": 1.0, "valid": 0.5, "accuracy": 0.2}, {"event": "step", "epoch": 0.5}]
    return Looked("runs/my", **{"result": result, "errors": whole, "log": log, "notes": ["a <note>"], **more})


def test_nothing_of_the_data_is_taken_for_markup() -> None:
    page = render(looked())
    assert "<script>" not in page
    assert "<b>" not in page
    text = Page(page).text  # and all tags are closed in order
    assert "my <data>" in text
    assert "a <note>" in text
    nothing_is_loaded(page)


def test_names_of_classes_may_go_over_lines_in_tables() -> None:
    """On a phone the numbers beside a long one could not be reached."""
    page = render(looked())
    assert '<th scope="row" class="model"><span class="class">no &amp; yes</span></th>' in page
    assert ".class { display: block; max-width: 24em; white-space: normal;" in page


def test_signs_and_strengths_are_colours() -> None:
    page = render(looked())
    assert '<span class="f2" title="+0.500">' in page  # half of the greatest, two or three of five
    assert '<span class="g5" title="-1.000">b</span>' in page
    assert "the greatest weight of its own text" in Page(page).text.replace("\n", " ")
    assert '<span class="unread" title="not read' in page
    assert "against" in Page(page).text
    assert "for it" in Page(page).text


def part(page: str, name: str) -> str:
    """The section of that name."""
    return page.split(f'id="{name}"')[1].split("<section")[0]


LEGEND, AT_LENGTH = 'class="legend"', "integrated gradients"


def test_colours_are_explained_wherever_they_are() -> None:
    """At length once, where they are first met."""
    some = looked()
    page = render(some)
    assert LEGEND in part(page, "mistakes")
    assert AT_LENGTH in part(page, "mistakes")
    assert LEGEND not in part(page, "right")  # the only right example is not coloured
    weights = {"words": [["it"]], "weights": [[1.0]]}
    right = [{**some.errors["mistakes"][0], "label": "<b>", "predicted": "<b>", **weights}]
    page = render(looked(errors={**some.errors, "right_ones": right}))
    assert LEGEND in part(page, "right")
    assert AT_LENGTH not in part(page, "right")
    page = render(looked(errors={**some.errors, "mistakes": [], "right_ones": right}))
    assert LEGEND not in part(page, "mistakes")
    assert LEGEND in part(page, "right")
    assert AT_LENGTH in part(page, "right")


def test_colours_of_numbers_raise_and_lower() -> None:
    errors = of_numbers(np.array([1.0, 2.0]), np.array([1.5, 2.0]), rows(2))
    errors["mistakes"][0] |= {"words": [["text", "0"]], "weights": [[0.5, -1.0]]}
    whole = {"split": "dev", "kind": "regress", "attribution": {"method": "integrated gradients"}, **errors}
    shown = part(render(looked(errors=whole)), "mistakes")
    for said in ("raises it", "lowers it", "the number that is said, less the one that is said of blanks alone"):
        assert said in shown
    assert "class lies" not in shown
    assert "mean of all numbers that may be written" in part(
        render(looked(errors={**whole, "numbers": ["1"]})), "mistakes"
    )


def test_texts_too_long_to_be_coloured_are_said_to_be() -> None:
    errors = of_classes(["a", "b"], np.array([1]), np.array([[0.9, 0.1]]), rows(1))
    how = {"method": AT_LENGTH, "examples": 0, "of": 1, "too_long": 1}
    page = render(looked(errors={"split": "dev", "kind": "classify", "attribution": how, **errors}))
    assert LEGEND not in page
    assert "too long for them to be weighed" in part(page, "mistakes")


def test_every_task_has_its_own_shares_of_training() -> None:
    one = of_classes(["a", "b"], np.array([0, 1]), np.array([[0.9, 0.1], [0.1, 0.9]]), rows(2))
    errors = {"split": "dev", "kind": "several", "tasks": [{"task": "x", **one}, {"task": "y", **one}]}
    shares = {"x": {"a": 0.25, "b": 0.75}, "y": {"a": 0.4, "b": 0.6}}
    shown = part(render(looked(errors=errors, balance=shares)), "classes")
    assert re.findall(r"(\d+\.\d)\u00a0%", shown) == ["25.0", "75.0", "40.0", "60.0"]
    assert shown.count("Share of training") == 2


def test_many_classes_are_drawn_by_the_most_mistaken() -> None:
    n = 40
    gold, said = np.arange(n), np.arange(n)
    said[:3] = [1, 2, 0]
    probabilities = np.eye(n)[said]
    errors = of_classes([f"class{i}" for i in range(n)], gold, probabilities, rows(n))
    page = render(looked(errors={"split": "dev", "kind": "classify", "attribution": {}, **errors}))
    assert "Of 40 classes, the 20 that are mistaken most." in Page(page).text
    assert "class0 taken for class1: 1 of 1 (100%)" in page
    assert "class39 taken for" not in page


def test_phases_go_on_where_the_one_before_ended() -> None:
    """Three phases, of which the first learns a language and has no accuracy."""
    log = [{"event": "valid", "index": 0, "epoch": 9.0, "valid": 5.0, "perplexity": 148.4}]
    log += [
        {"event": "valid", "index": i, "epoch": e, "valid": 0.5, "accuracy": 0.2 * i}
        for i in (1, 2)
        for e in (1.0, 2.0)
    ]
    page = render(looked(log=log))
    assert "accuracy ends at 40 after 4" in page
    assert "dev ends at 0.5 after 4" in page


def test_a_run_without_mistakes_says_so() -> None:
    errors = of_classes(["a", "b"], np.array([0, 1]), np.array([[0.9, 0.1], [0.1, 0.9]]), rows(2))
    page = render(looked(errors={"split": "dev", "kind": "classify", "attribution": {}, **errors}))
    assert "None: all 2 examples are right." in Page(page).text


def test_texts_of_other_scripts_and_nothing_at_all(place: Path, tmp_path: Path) -> None:
    draw = random.Random(1)
    texts = [("東京は red", "はい"), ("", "いいえ"), ("שלום blue", "はい")]
    texts += [(sentence(draw, word), label) for word, label in (("red", "はい"), ("blue", "いいえ")) for _ in range(20)]
    data = written(tmp_path / "o.csv", ["text", "label"], texts)
    transfer.run("bert/finetune", place / "bert", str(data), tmp_path / "o", changes=[*QUICK, "phase.0.steps=1"])
    assert "はい" in Page((tmp_path / "o/report.html").read_text()).text
