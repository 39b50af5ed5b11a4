"""In-context learning, end to end: `nextword transfer gpt3/in-context` and `predict` with a prompted language model."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nextword
from nextword.core.errors import Unsupported
from nextword.metrics.classification import METRICS
from nextword.tasks.finetune import resume
from tests.cli.conftest import BY_HAND, Cli, sets
from tests.support.tiny_transfer import (
    COLORS,
    draw_color_counts,
    draw_color_pairs,
    draw_color_texts,
    make_run,
    write_table,
)

Js = Callable[..., Any]
SPACED = "task.template='{text} so it is {label}'"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("asked")
    for slug in ("gpt1", "lstm", "bert", "t5"):
        digits = ["0 1 2 3 4 5 score : ."] if slug == "gpt1" else []
        make_run(folder / slug, slug, more=digits, **({"window": 512} if slug == "gpt1" else {}))
    make_run(folder / "narrow", "gpt1")
    where = ["train"] * 60 + ["dev"] * 20 + ["test"] * 20
    rows = [(*row, split) for row, split in zip(draw_color_texts(100), where, strict=True)]
    write_table(folder / "color.csv", ["text", "label", "split"], rows)
    write_table(folder / "test.csv", ["text", "label"], [row[:2] for row in rows[80:]])
    write_table(folder / "pair.csv", ["text", "second", "label"], draw_color_pairs(40))
    write_table(folder / "count.csv", ["text", "label"], draw_color_counts(60))
    choices = [(f"which one {i}", "a red king", "a blue king", i % 2, where[i + 40]) for i in range(60)]
    write_table(folder / "choice.csv", ["text", "choice0", "choice1", "label", "split"], choices)
    write_table(folder / "one.csv", ["text", "label"], [(text, "red") for text, _ in draw_color_texts(20)])
    return folder


def transfer_command(place: Path, run: str, data: str, out: Path, *changes: str) -> tuple[Any, ...]:
    base = ("transfer", "gpt3/in-context", "--from", place / run, "--data", place / data, "--out", out)
    return (*base, *sets(*changes))


@pytest.fixture(scope="module")
def output(cli: Cli, place: Path) -> Any:
    return cli(*transfer_command(place, "gpt1", "color.csv", place / "out", SPACED, "task.shots=4"))


def test_run_folder_has_prompt_results_and_report(output: Any, place: Path) -> None:
    out = place / "out"
    assert "(2 of 'blue', 2 of 'red')" in output.stderr
    assert "nothing is trained" in output.stderr
    assert "dev (20 examples): accuracy" in output.stdout
    assert "test (20 examples): accuracy" in output.stdout
    result = json.loads((out / "manifest.json").read_text())["result"]
    assert result["shots"] == {"blue": 2, "red": 2}
    assert result["examples"] == {"train": 60, "dev": 20, "test": 20}
    errors = json.loads((out / "errors.json").read_text())
    assert sum(map(sum, errors["confusion"])) == errors["examples"] == 20
    assert errors["wrong"] == round(20 * (1 - result["dev"]["accuracy"]))
    prompt = (out / "prompt.txt").read_text()
    shots = re.findall(r"(.+) so it is (red|blue)\n\n", prompt)
    assert len(shots) == 4 == prompt.count("so it is")
    known = [row.split(",")[:2] for row in (place / "color.csv").read_text().splitlines()[1:61]]  # train alone
    assert all(list(shot) in known for shot in shots)
    page = (out / "report.html").read_text()
    assert prompt + "{text} so it is {label}" in page
    assert "4 of 60 examples" in page
    assert "Loss by epoch" not in page
    assert "`prompt.txt`" in (out / "card.md").read_text()


def test_probabilities_match_single_steps_of_the_network(output: Any, place: Path) -> None:
    """Compute them without `score_completions`."""
    lm: Any = nextword.load(place / "gpt1", device="cpu")
    prompt = (place / "out/prompt.txt").read_text()
    rows = (place / "test.csv").read_text().splitlines()[1:4]
    message = np.load(place / "out/predictions.npz")["test"]
    for i, row in enumerate(rows):
        scores = []
        for label in ("blue", "red"):
            head = f"{prompt}{row.split(',')[0]} so it is"
            before, ids = len(lm.tokenizer.encode(head).ids), lm.tokenizer.encode(f"{head} {label}").ids.tolist()
            last, state = lm.network.start(1)
            costs = []
            with torch.no_grad():
                for id in ids:
                    log_p, state = lm.network.step(last, state)
                    costs.append(float(log_p[0, id]))
                    last = torch.tensor([id])
            scores.append(sum(costs[before:]) / len(costs[before:]))
        odds = np.exp(np.array(scores))
        assert message[i] == pytest.approx(odds / odds.sum(), abs=1e-5)


def test_predict_works_after_the_source_is_deleted(js: Js, output: Any, place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "gpt1", tmp_path / "gpt1")
    js(*transfer_command(tmp_path, "gpt1", place / "color.csv", tmp_path / "out", SPACED, "task.shots=4"))
    shutil.rmtree(tmp_path / "gpt1")
    answer = js("predict", tmp_path / "out", place / "test.csv")
    odds = np.array([[item["probabilities"][label] for label in ("blue", "red")] for item in answer["predictions"]])
    assert odds == pytest.approx(np.load(tmp_path / "out/predictions.npz")["test"], abs=1e-6)
    assert odds == pytest.approx(np.load(place / "out/predictions.npz")["test"], abs=1e-6)
    result = json.loads((tmp_path / "out/manifest.json").read_text())["result"]
    assert answer["scores"] == pytest.approx(result["test"])


@pytest.mark.parametrize(("calibrate", "odds"), [(False, [1 / 3, 2 / 3]), (True, [0.1, 0.9])])
def test_probabilities_match_hand_computed_ones(js: Js, calibrate: bool, odds: list[float], tmp_path: Path) -> None:
    """After "b", a costs −log 0.1 and b −log 0.2. At the beginning of a line a has 0.5, and b 0.2 · 0.5 / 0.9 = 1/9, so
    that calibrated they get 0.1 / 0.5 = 0.2 and 0.2 · 9 = 1.8, of which the shares are 0.1 and 0.9."""
    (tmp_path / "hand.arpa").write_text(BY_HAND)
    js("convert", tmp_path / "hand.arpa", tmp_path / "ngram")
    rows = [(f"{'b ' * (i + 1)}b", "ab"[i % 2], ("train", "dev", "test")[i % 3]) for i in range(12)]
    write_table(tmp_path / "data.csv", ["text", "label", "split"], rows)
    changes = ("task.template='{text} {label}'", "task.shots=2", f"task.calibrate={str(calibrate).lower()}")
    js(*transfer_command(tmp_path, "ngram", "data.csv", tmp_path / "out", *changes))
    message = np.load(tmp_path / "out/predictions.npz")["test"]
    assert message == pytest.approx(np.array([odds] * 4), abs=1e-5)
    (answer,) = nextword.load(tmp_path / "out", device="cpu").predict(["b b b b"])
    assert answer.probabilities == pytest.approx(dict(zip("ab", odds, strict=True)), abs=1e-5)
    assert answer.label == "b"


def test_label_words_replace_labels_in_the_prompt(js: Js, output: Any, place: Path, tmp_path: Path) -> None:
    """Each label has the other's name, so the prompt is the same with names swapped."""
    words = "task.label_words={ red = 'blue', blue = 'red' }"
    js(*transfer_command(place, "gpt1", "color.csv", tmp_path / "out", SPACED, "task.shots=4", words))
    swapped = {"red": "blue", "blue": "red"}
    ours, theirs = ((folder / "prompt.txt").read_text() for folder in (tmp_path / "out", place / "out"))
    assert ours == re.sub(r"so it is (\w+)", lambda answer: f"so it is {swapped[answer[1]]}", theirs)
    answer = js("predict", tmp_path / "out", place / "test.csv")["predictions"][0]
    assert set(answer["probabilities"]) == set(COLORS)


def test_seeds_draw_different_examples(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    base = transfer_command(place, "lstm", "color.csv", tmp_path / "k", SPACED, "task.shots=3")
    answer = js(*base, "--num-seeds", "3")
    assert len(answer["values"]) == 3
    assert answer["interval"] is not None
    prompts = [(tmp_path / f"k/seed-{k}/prompt.txt").read_text() for k in range(3)]
    assert len(set(prompts)) == 3
    again = js(*base, "--num-seeds", "3", "--resume")
    assert again["values"] == answer["values"]
    other = cli(*base[:-1], "task.shots=5", "--num-seeds", "3", "--resume", fails=True).stderr
    assert "task.shots is 3 there and 5 here" in " ".join(other.split())
    both = js("predict", tmp_path / "k/seed-0", place / "test.csv", "--ensemble", tmp_path / "k/seed-1")
    each = [np.load(tmp_path / f"k/seed-{k}/predictions.npz")["test"] for k in range(2)]
    odds = [[item["probabilities"][label] for label in ("blue", "red")] for item in both["predictions"]]
    assert np.array(odds) == pytest.approx((each[0] + each[1]) / 2, abs=1e-6)


def test_examples_come_from_the_training_fraction_or_from_dev_too(
    cli: Cli, js: Js, place: Path, tmp_path: Path
) -> None:
    few = js(
        *transfer_command(place, "lstm", "color.csv", tmp_path / "few", SPACED, "task.shots=6"),
        "--train-fraction",
        "0.1",
    )
    assert few["examples"]["train"] == 6
    message = cli(
        *transfer_command(place, "lstm", "color.csv", tmp_path / "x", SPACED), "--train-fraction", "0.1", fails=True
    ).stderr
    assert "shots = 16" in message
    assert "task.shots=6" in message
    last = js(*transfer_command(place, "lstm", "color.csv", tmp_path / "all", SPACED, "task.shots=80"), "--merge-dev")
    assert last["examples"]["train"] == 80
    assert any("dev" in note for note in last["notes"])


def test_interrupted_run_resumes(output: Any, place: Path, tmp_path: Path) -> None:
    from nextword.tasks.finetune import read_result, transfer
    from nextword.tasks.plan import make_plan

    changes = (SPACED, "task.shots=4")
    plan = make_plan("gpt3/in-context", place / "gpt1", str(place / "color.csv"), changes=changes, device="cpu")
    events = list(transfer(plan, tmp_path / "out", stop=lambda: True))
    assert events[-1].values["reason"] == "interrupted"
    assert read_result(tmp_path / "out") is None
    _, rest = resume(tmp_path / "out", "cpu")
    list(rest)
    answer: Any = read_result(tmp_path / "out")
    whole: Any = read_result(place / "out")
    assert answer["test"] == whole["test"]
    assert (tmp_path / "out/prompt.txt").read_bytes() == (place / "out/prompt.txt").read_bytes()


@pytest.mark.parametrize("slug", ["xlnet", "elmo"])
def test_other_causal_networks_can_be_prompted(js: Js, slug: str, place: Path, tmp_path: Path) -> None:
    make_run(tmp_path / slug, slug)
    js(*transfer_command(tmp_path, slug, place / "color.csv", tmp_path / "out", SPACED, "task.shots=2"))
    lm: Any = nextword.load(tmp_path / slug, device="cpu")
    prompt, text = (tmp_path / "out/prompt.txt").read_text(), "the red king"
    odds = [
        math.exp(-item.nats / item.tokens) for item in (lm.score(f" {c}", f"{prompt}{text} so it is") for c in COLORS)
    ]
    (message,) = nextword.load(tmp_path / "out", device="cpu").predict([text])
    assert message.probabilities["red"] == pytest.approx(odds[0] / sum(odds), abs=1e-5)


def test_prompted_run_can_be_fine_tuned(js: Js, output: Any, place: Path, tmp_path: Path) -> None:
    base = (
        "transfer",
        "gpt1/finetune",
        "--from",
        place / "out",
        "--data",
        place / "color.csv",
        "--out",
        tmp_path / "x",
    )
    assert js(*base, *sets("phase.0.steps=1"))["source"] == str(place / "out")


def test_pairs_use_the_pair_template(js: Js, place: Path, tmp_path: Path) -> None:
    answer = js(*transfer_command(place, "gpt1", "pair.csv", tmp_path / "out", "task.shots=2"))
    assert answer["kind"] == "in_context"
    prompt = (tmp_path / "out/prompt.txt").read_text()
    assert re.fullmatch(r"(.+\nquestion: .+\nanswer: (red|blue)\n\n){2}", prompt)
    model: Any = nextword.load(tmp_path / "out", device="cpu")
    (message,) = model.predict([("has {second} in it", "a blue")])
    lm: Any = nextword.load(place / "gpt1", device="cpu")
    given = f"{prompt}has {{second}} in it\nquestion: a blue\nanswer:"
    paid = [lm.score(f" {label}", given) for label in ("blue", "red")]
    odds = [math.exp(-item.nats / item.tokens) for item in paid]
    assert list(message.probabilities.values()) == pytest.approx([p / sum(odds) for p in odds], abs=1e-5)


def test_regression_predicts_the_likeliest_string(js: Js, place: Path, tmp_path: Path) -> None:
    answer = js(*transfer_command(place, "gpt1", "count.csv", tmp_path / "out", "task.shots=3", "task.number_step=1"))
    assert answer["kind"] == "in_context"
    prompt = (tmp_path / "out/prompt.txt").read_text()
    shots = re.findall(r"(.+)\nscore: (\d+)\n\n", prompt)
    assert len(shots) == 3 == sum(answer["shots"].values())
    rows = dict(line.split(",") for line in (place / "count.csv").read_text().splitlines()[1:])
    assert all(round(float(rows[text])) == int(number) for text, number in shots)
    model: Any = nextword.load(tmp_path / "out", device="cpu")
    lm: Any = nextword.load(place / "gpt1", device="cpu")
    (message,) = model.predict(["a red blue red"])
    paid = [lm.score(f" {number}", f"{prompt}a red blue red\nscore:") for number in model.task.config.numbers]
    best = min(range(len(paid)), key=lambda i: paid[i].nats / paid[i].tokens)
    assert message.value == float(model.task.config.numbers[best])
    assert message.probabilities == {}
    assert "Predicted against gold" in (tmp_path / "out/report.html").read_text()
    again = js("predict", tmp_path / "out", place / "count.csv")
    values = [float(item["predicted"]) for item in again["predictions"]]
    assert len(set(values)) > 1
    assert set(values) <= set(map(float, model.task.config.numbers))
    ranks = METRICS["spearman"](np.array([float(number) for number in rows.values()]), np.array(values))
    assert again["scores"]["spearman"] == pytest.approx(ranks, abs=1e-9)


def test_zero_shot_classifies_pairs(cli: Cli, js: Js, place: Path) -> None:
    both = ("--labels", "red,blue", "--template", "{text} {second} {label}")
    answer = js("predict", place / "gpt1", place / "pair.csv", *both)
    lm: Any = nextword.load(place / "gpt1", device="cpu")
    first = (place / "pair.csv").read_text().splitlines()[1].split(",")
    odds = [math.exp(-item.nats / item.tokens) for item in (lm.score(f" {c}", " ".join(first[:2])) for c in COLORS)]
    assert answer["predictions"][0]["probabilities"]["red"] == pytest.approx(odds[0] / sum(odds), abs=1e-5)
    some = ("--examples", place / "pair.csv", "--template", "{text} {second} {label}")
    message = cli("predict", place / "gpt1", place / "pair.csv", *some, fails=True).stderr
    assert "nextword transfer gpt3/in-context --from" in " ".join(message.split())


def test_prompts_without_examples_and_beyond_the_window(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    none = js(*transfer_command(place, "gpt1", "color.csv", tmp_path / "none", SPACED, "task.shots=0"))
    assert (tmp_path / "none/prompt.txt").read_text() == ""
    so = ("--labels", "blue,red", "--template", "so it is {label}")
    with_labels = js("predict", place / "gpt1", place / "test.csv", *so)
    assert none["test"]["accuracy"] == pytest.approx(with_labels["scores"]["accuracy"])
    long = js(*transfer_command(place, "narrow", "color.csv", tmp_path / "long", SPACED, "task.shots=16"))
    lost = "the window of 32 tokens"
    assert any(lost in note for note in long["notes"])
    assert lost in (tmp_path / "long/report.html").read_text()
    assert lost in cli("predict", tmp_path / "long", place / "test.csv").stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("run", "data", "changes", "more", "value"),
    [
        ("bert", "color.csv", (), (), "BERT"),
        ("t5", "color.csv", (), (), "T5"),
        ("out", "color.csv", (), (), "gpt1"),
        ("gpt1", "choice.csv", (), (), "choice.csv"),
        ("lstm", "count.csv", (), (), "tokenizer"),
        ("gpt1", "count.csv", ("task.number_step=9",), (), "number_step"),
        ("gpt1", "count.csv", ("task.label_words={ 1 = 'one' }",), (), "label_words"),
        ("gpt1", "color.csv", ("task.number_step=0.5",), (), "number_step = 0.5"),
        ("gpt1", "one.csv", (), (), "'red'"),
        ("gpt1", "color.csv", ("task.shots=61",), (), "task.shots=60"),
        ("gpt1", "color.csv", ("task.shots=-1",), (), "shots = -1"),
        ("gpt1", "color.csv", ("task.calibrate=3",), (), "calibrate = 3"),
        ("gpt1", "color.csv", ("task.template='{text}'",), (), "{label}"),
        ("gpt1", "color.csv", ("task.template='{label} {text}'",), (), "'{label} {text}'"),
        ("gpt1", "color.csv", ("task.template='{text} {second} {label}'",), (), "{second}"),
        ("gpt1", "pair.csv", ("task.template='{text} {label}'",), (), "{second}"),
        ("gpt1", "color.csv", ("task.label_words={ green = 'x' }",), (), "green"),
        ("gpt1", "color.csv", ("task.label_words={ red = 'x', blue = 'x' }",), (), "label_words"),
        ("gpt1", "color.csv", ("phase.0.epochs=3",), (), "phase.0.epochs"),
        ("gpt1", "color.csv", ("task.class_weights=balanced",), (), "class_weights"),
        ("gpt1", "color.csv", ("model.layers=1",), (), "model.layers"),
        ("gpt1", "color.csv", (), ("--scratch",), "baseline"),
        ("gpt1", "color.csv", (), ("--compare-scratch",), "baseline"),
    ],
)
def test_invalid_settings_fail_and_create_no_folder(
    run: str,
    data: str,
    changes: tuple[str, ...],
    more: tuple[str, ...],
    value: str,
    cli: Cli,
    output: Any,
    place: Path,
    tmp_path: Path,
) -> None:
    error = cli(*transfer_command(place, run, data, tmp_path / "x", *changes), *more, fails=True).stderr
    assert value in " ".join(error.split())
    assert not (tmp_path / "x").exists()


def test_prompted_run_only_predicts(cli: Cli, output: Any, place: Path, tmp_path: Path) -> None:
    model: Any = nextword.load(place / "out", device="cpu")
    with pytest.raises(Unsupported, match="gpt1"):
        model.score("a text")
    for command in (("generate", place / "out", "the"), ("next", place / "out", "the"), ("evaluate", place / "out")):
        assert "predict" in cli(*command, fails=True).stderr
    with pytest.raises(Unsupported, match="nextword predict"):
        model.embed(["a text"])
    message = cli("convert", place / "out", tmp_path / "x", *sets("model.bits=8"), fails=True).stderr
    assert "gpt3/in-context" in message
    message = cli("predict", place / "out", place / "test.csv", "--labels", "a,b", fails=True).stderr
    assert "--labels" in message
