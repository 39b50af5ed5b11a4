"""The first hour of a new user, with a starter model installed and files as people have them.

Each test takes one kind of data from `nextword data FILE` through the command that it suggests to a useful answer, and
checks that no row is lost on the way. Networks are tiny and untrained: answers are there, but not good.
"""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nextword
from nextword.run_folder import RunFolder
from tests.cli.conftest import Cli, sets
from tests.support.fake_starters import install_starter
from tests.support.tiny_transfer import draw_color_counts, draw_color_pairs, draw_color_texts

Js = Callable[..., Any]
QUICK = sets("phase.0.steps=3", "phase.0.batches.rows=8")
ROWS = draw_color_texts(120)
PAIRS = draw_color_pairs(60)
COUNTS = draw_color_counts(60)


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The user's folder, with the package of starter models installed."""
    folder = tmp_path_factory.mktemp("hour")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("NEXTWORD_HOME", str(folder / "home"))
        patch.setenv("NEXTWORD_CACHE", str(folder / "cache"))
        install_starter(folder, patch, "bert", "bert")
        yield folder


def rows_of(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def run_suggestion(cli: Cli, about: dict[str, Any], out: str, *more: str) -> Any:
    """Run the command that `nextword data` suggests, with the starter model where it names a run."""
    words = about["command"].split()
    assert words[0] == "nextword"
    words = ["starter/bert" if word == "RUN" else word for word in words[1:]]
    return cli(*words, "--out", out, *more)


def test_a_csv_without_a_header(cli: Cli, js: Js) -> None:
    Path("reviews.csv").write_text("".join(f'"{text}",{label}\n' for text, label in ROWS))
    about = js("data", "reviews.csv")
    assert about["kind"] == "classification"
    assert about["header"] is False
    assert about["rows"] == {"all": len(ROWS)}
    assert sorted(about["classes"]) == ["blue", "red"]
    shown = run_suggestion(cli, about, "runs/reviews", *QUICK)
    assert "108 train · 12 dev" in shown.stderr
    assert "majority class" in shown.stdout  # the baselines
    assert "logistic regression" in shown.stdout
    Path("new.csv").write_text("".join(f'"{text}"\n' for text, _ in ROWS[:5]))
    predicted = rows_of(cli("predict", "runs/reviews", "new.csv").stdout)
    assert len(predicted) == 1 + 5
    assert {row[-3] for row in predicted[1:]} <= {"blue", "red"}


def test_a_txt_with_tabs(cli: Cli, js: Js) -> None:
    Path("labeled.txt").write_text("".join(f"{label}\t{text}\n" for text, label in ROWS))
    about = js("data", "labeled.txt")
    assert (about["kind"], about["header"], about["rows"]) == ("classification", False, {"all": len(ROWS)})
    shown = run_suggestion(cli, about, "runs/labeled", *QUICK)
    assert "108 train · 12 dev" in shown.stderr
    task = RunFolder.open("runs/labeled").recipe.task
    assert task is not None
    assert task["labels"] == ["blue", "red"]


def test_pairs_with_numbers(cli: Cli, js: Js) -> None:
    draw = random.Random(3)
    lines = [f"{first};{second};{draw.random() * 5:.1f}\n" for first, second, _ in PAIRS]
    Path("similar.csv").write_text("first sentence;second sentence;similarity\n" + "".join(lines))
    about = js("data", "similar.csv")
    assert (about["kind"], about["header"], about["rows"]) == ("regression", True, {"all": len(PAIRS)})
    shown = run_suggestion(cli, about, "runs/similar", *QUICK)
    assert "ridge regression" in shown.stdout
    assert "spearman" in shown.stdout.lower()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame(library: str) -> None:
    frames = pytest.importorskip(library, reason=f"PACKAGE ABSENT: {library}")
    frame = frames.DataFrame({"review": [text for text, _ in ROWS], "mood": [label for _, label in ROWS]})
    result = nextword.transfer(
        "bert/finetune",
        from_="starter/bert",
        data=frame,
        out=f"runs/{library}",
        progress=False,
        changes=QUICK[1::2],
    )
    assert result.results[0]["examples"] == {"train": 108, "dev": 12}
    assert "data in memory accuracy" in repr(result)
    for shown in (repr(result), result._repr_html_()):
        assert "TF-IDF + logistic regression" in shown
    predictions = result.model.predict(list(frame["review"][:3]))
    assert {prediction.label for prediction in predictions} <= {"blue", "red"}
    labels = nextword.predict(result, frame).labels
    assert len(labels) == len(ROWS)


def test_parallel_lines(cli: Cli, js: Js) -> None:
    draw = random.Random(5)
    words = {"the": "le", "king": "roi", "sees": "voit", "a": "un", "river": "fleuve", "house": "palais"}
    sources = [" ".join(draw.choices(list(words), k=draw.randint(3, 7))) for _ in range(200)]
    targets = [" ".join(words[word] for word in source.split()) for source in sources]
    Path("pairs.tsv").write_text("".join(f"{a} .\t{b} .\n" for a, b in zip(sources, targets, strict=True)))
    about = js("data", "pairs.tsv")
    assert (about["kind"], about["header"], about["rows"]) == ("parallel", False, {"all": 200})
    words_of = about["command"].replace("seq2seq/small", "seq2seq/tiny").split()
    cli(*words_of[1:], "--out", "runs/translate", *sets("phase.0.steps=3", "phase.0.batches.rows=8"))
    evaluated = js("evaluate", "runs/translate")
    assert 0 <= evaluated["bleu"] <= 100
    cli("generate", "runs/translate", "the king sees a river .", "--max-tokens", 5)


def test_a_chinese_text(cli: Cli, js: Js) -> None:
    draw = random.Random(7)
    words = ["春天", "江水", "明月", "东风", "花落", "归来", "何处", "无人", "千里", "不见"]
    lines = ["，".join("".join(draw.choices(words, k=3)) for _ in range(2)) + "。" for _ in range(400)]
    Path("poems.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    about = js("data", "poems.txt")
    assert about["kind"] == "text"
    shown = cli("data", "poems.txt").stdout
    assert [word in shown for word in ("characters", "words")] == [True, False]
    cli("compare", "ngram/tiny", "lstm/tiny", "--data", "poems.txt", "--minutes", 0.03, "--out", "runs/poems")
    report = Path("runs/poems/report.html").read_text(encoding="utf-8")
    generated = re.compile(r'<p class="text" dir="auto">.*?</p>', re.S)  # by a model that has learned nothing
    assert "�" not in generated.sub("", report)
    assert "characters" in report
    comparison = json.loads(Path("runs/poems/comparison.json").read_text(encoding="utf-8"))
    assert [model["status"] for model in comparison["models"]] == ["done", "done"]


def test_python_alone() -> None:
    """Names that the first prompt shows, and a run that explains itself."""
    assert {"train", "compare", "transfer", "predict", "load", "Sample", "Beam"} <= set(dir(nextword))
    run = nextword.train("lstm/tiny", data=[text for text, _ in ROWS * 5], out="runs/lstm", progress=False, steps=3)
    assert str(run.path) in repr(run)
    assert run.model.generate("the", decoding=nextword.Sample(seed=1)).text
    assert "<" in run._repr_html_()
