"""`nextword data … --out`: removed, kept, and reported documents; descriptions of mixtures."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from nextword.core.scratch import PREFIX
from nextword.data.opening import open_corpus
from tests.cli.conftest import Cli, contents

WORDS = [f"word{i}" for i in range(900)]
SPAM = [f"spam{i}" for i in range(50)]


def prose(seed: int, words: list[str] = WORDS, length: int = 150) -> str:
    return " ".join(random.Random(seed).choices(words, k=length))


def jsonl(path: Path, texts: dict[str, str]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps({"id": id, "text": text}) + "\n" for id, text in texts.items()))
    return path


def ids(path: Path) -> list[str]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


@pytest.fixture
def crawl(tmp_path: Path) -> Path:
    """40 good documents, two of them twice; 30 of spam; one with test text; one similar to a held-out document."""
    texts = {f"fine{i}": prose(i) for i in range(40)}
    texts |= {"copy3": texts["fine3"].upper(), "copy4": texts["fine4"] + " end"}
    texts |= {f"spam{i}": prose(500 + i, SPAM) for i in range(30)}
    texts["leak"] = f"{prose(60)} {prose(900)[:400]} {prose(61)}"
    texts["held"] = f"{prose(800)} more"
    jsonl(tmp_path / "crawl" / "train.jsonl", texts)
    jsonl(tmp_path / "crawl" / "valid.jsonl", {"v": prose(800)})
    jsonl(tmp_path / "crawl" / "test.jsonl", {"t": prose(801)})
    jsonl(tmp_path / "eval.jsonl", {"e0": prose(900), "e1": prose(901)})
    jsonl(tmp_path / "good.jsonl", {f"g{i}": prose(1000 + i) for i in range(60)})
    return tmp_path / "crawl"


def step(report: dict[str, Any], name: str) -> dict[str, Any]:
    return next(item for item in report["steps"] if item["name"] == name)


def test_clean_with_all_filters_reports_every_step(js: Any, crawl: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    good, evaluated = tmp_path / "good.jsonl", tmp_path / "eval.jsonl"
    report = js("data", crawl, "--out", out, "--deduplicate", "--quality", good, "--decontaminate", evaluated)
    assert [item["name"] for item in report["steps"]] == ["quality", "duplicates", "contamination"]
    left = ids(out / "train.jsonl")
    assert not [id for id in left if id.startswith("spam")]
    assert step(report, "quality")["documents"] == 74
    assert step(report, "quality")["facts"]["ranked"] > 0.5
    for before, after in zip(report["steps"], report["steps"][1:], strict=False):
        assert (after["documents"], after["bytes"]) == (before["documents_left"], before["bytes_left"])
    assert step(report, "contamination")["documents_left"] == len(left)
    assert json.loads((out / "report.json").read_text())["steps"] == report["steps"]
    assert sorted(path.name for path in out.iterdir()) == [
        "quality.safetensors",
        "report.json",
        "test.jsonl",
        "train.jsonl",
        "valid.jsonl",
    ]
    again = tmp_path / "again"
    js(
        "data",
        crawl,
        "--out",
        again,
        "--deduplicate",
        "--quality",
        out / "quality.safetensors",
        "--decontaminate",
        evaluated,
    )
    assert contents(again)["train.jsonl"] == contents(out)["train.jsonl"]


def test_clean_removes_duplicates_and_leaks(js: Any, cli: Cli, crawl: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    before = contents(crawl)
    report = js("data", crawl, "--out", out, "--deduplicate", "--decontaminate", tmp_path / "eval.jsonl")
    kept = [id for id in ids(crawl / "train.jsonl") if id not in ("copy3", "copy4", "held", "leak")]
    assert ids(out / "train.jsonl") == [*kept, "leak#1", "leak#2"]
    assert step(report, "duplicates")["facts"]["of_held_out"] == 1
    assert [e["id"] for e in step(report, "duplicates")["examples"]] == ["copy3", "copy4", "held"]
    assert step(report, "duplicates")["examples"][0]["why"] == "100% as fine3"
    facts = step(report, "contamination")["facts"]
    assert (facts["cut"], facts["dropped"]) == (1, 0)
    assert (facts["sets"][0]["n"], facts["sets"][0]["dirty"], facts["sets"][0]["documents"]) == (13, 1, 2)
    old, new = open_corpus(crawl), open_corpus(out)
    for split in ("valid", "test"):  # held-out text is as it was
        assert [d.text for d in new.documents(split)] == [d.text for d in old.documents(split)]
    texts = {d.id: d.text for d in old.documents("train")}
    assert all(d.text == texts[d.id] for d in new.documents("train") if "#" not in d.id)
    assert contents(crawl) == before
    shown = cli(
        "data", crawl, "--out", tmp_path / "shown", "--deduplicate", "--decontaminate", tmp_path / "eval.jsonl"
    ).stdout
    assert "100% as fine3" in shown
    assert "1 training documents were cut, 0 dropped" in shown


def test_clean_leaves_clean_text_unchanged(js: Any, tmp_path: Path) -> None:
    jsonl(tmp_path / "text.jsonl", {f"d{i}": prose(i) for i in range(200)})
    jsonl(tmp_path / "eval.jsonl", {"e": prose(900)})
    js(
        "data",
        tmp_path / "text.jsonl",
        "--out",
        tmp_path / "out",
        "--deduplicate",
        "--decontaminate",
        tmp_path / "eval.jsonl",
    )
    old, new = open_corpus(tmp_path / "text.jsonl"), open_corpus(tmp_path / "out")
    for split in ("train", "valid", "test"):
        assert [(d.id, d.text) for d in new.documents(split)] == [(d.id, d.text) for d in old.documents(split)]


def test_clean_with_wrong_input_writes_nothing(cli: Cli, crawl: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def expect_error(*words: str | Path) -> str:
        message = cli("data", *words, fails=True).stderr
        assert not out.exists()
        assert not list(tmp_path.glob(f"{PREFIX}*"))
        return " ".join(message.split())

    assert "--deduplicate" in expect_error(crawl, "--out", out)
    assert "--out" in expect_error(crawl, "--deduplicate")
    assert "needs a text" in expect_error("--out", out, "--deduplicate")
    assert "exists already" in " ".join(cli("data", crawl, "--out", crawl, "--deduplicate", fails=True).stderr.split())
    jsonl(tmp_path / "tiny.jsonl", {"t": "two words"})
    assert "8-grams" in expect_error(crawl, "--out", out, "--decontaminate", tmp_path / "tiny.jsonl")
    assert "at least 20" in expect_error(crawl, "--out", out, "--quality", tmp_path / "tiny.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    assert "empty.jsonl" in expect_error(crawl, "--out", out, "--decontaminate", tmp_path / "empty.jsonl")
    jsonl(tmp_path / "only" / "test.jsonl", {"t": prose(1)})
    assert "only" in expect_error(tmp_path / "only", "--out", out, "--deduplicate")
    jsonl(tmp_path / "same" / "train.jsonl", {"a": prose(1)})
    for split in ("valid", "test"):
        jsonl(tmp_path / "same" / f"{split}.jsonl", {"a": prose(1)})
    assert "same" in expect_error(tmp_path / "same", "--out", out, "--deduplicate")


def test_data_describes_a_mixture(js: Any, cli: Cli, crawl: Path, tmp_path: Path) -> None:
    (tmp_path / "mix.toml").write_text(
        '[[source]]\ndata = "crawl"\nweight = 3\n[[source]]\ndata = "python"\nweight = 1\n'
    )
    about = js("data", tmp_path / "mix.toml")
    assert [(row["name"], row["weight"]) for row in about["sources"]] == [("crawl", 0.75), ("python", 0.25)]
    assert about["sources"][0]["epochs"] > 1 > about["sources"][1]["epochs"]
    assert set(about["splits"]) == {"train", "valid", "test"}
    assert "epochs per pass" in cli("data", tmp_path / "mix.toml").stdout


def test_evaluate_against_training_text_scores_dirty_documents_separately(
    trained: Path, text: Path, tmp_path: Path
) -> None:
    """One of three documents occurs in the training text, so it is dirty."""
    from nextword.cli.evaluate import print_overlap
    from nextword.data.opening import open_unsplit
    from nextword.evaluation.evaluate_run import score_overlap
    from nextword.lm.loading import load

    seen = next(open_corpus(text).documents("train")).text[:300]
    path = jsonl(tmp_path / "three.jsonl", {"new": prose(1), "seen": seen, "other": prose(2)})
    result = score_overlap(load(trained, "cpu"), open_unsplit(path), "test", str(text))
    assert [result[key]["documents"] for key in ("all", "clean", "dirty")] == [3, 2, 1]
    assert result["all"]["nats"] == pytest.approx(result["clean"]["nats"] + result["dirty"]["nats"])
    assert result["examples"][0]["document"] == "seen"
    print_overlap(result)
