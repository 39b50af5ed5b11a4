"""Text-to-text commands: train, evaluate, and record tasks and summaries; errors."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nextword
from nextword.core.types import Beam, Stop
from nextword.data.parallel import open_parallel
from nextword.evaluation.seq2seq import sample_evenly
from nextword.recipe import RECIPES

from .conftest import Cli, sentences

Js = Callable[..., Any]
SMALL = (
    *(
        "--set",
        "tokenizer.size=300",
        "--set",
        "model.layers=1",
        "--set",
        "model.width=24",
        "--set",
        "model.ffn_width=32",
    ),
    *("--set", "phase.0.objective={kind='seq2seq'}", "--set", "phase.0.steps=12"),
)
ROWS = "phase.0.batches={kind='sequences',rows=4,length=40,pack=true,overflow='truncate'}"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reviews in the format of GLUE, and articles with summaries."""
    folder, draw = tmp_path_factory.mktemp("files"), random.Random(1)
    (folder / "glue/SST-2").mkdir(parents=True)
    for split, count in (("train", 120), ("dev", 12)):
        rows = [
            f"{label}\ta {'good' if label else 'bad'} {item}"
            for item in sentences(count)
            for label in [draw.randint(0, 1)]
        ]
        (folder / f"glue/SST-2/{split}.tsv").write_text("label\tsentence\n" + "\n".join(rows) + "\n")
    lines = [{"article": " ".join(sentences(6, seed)), "summary": sentences(1, seed)[0]} for seed in range(150)]
    (folder / "news.jsonl").write_text("".join(json.dumps(item) + "\n" for item in lines))
    return folder


def train_run(cli: Cli, files: Path, data: str, out: Path, *more: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(out.parent / "cache"))
        patch.setenv("NEXTWORD_DATA", str(files))
        return cli("train", "t5/tiny", "--data", data, "--out", out, *SMALL, "--set", ROWS, *more).stdout


@pytest.fixture(scope="module")
def tasks_run(cli: Cli, files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tasks") / "run"
    message = train_run(cli, files, f"tasks:sst2+summarize:{files / 'news.jsonl'}:article-summary", out)
    assert "accuracy" in message
    assert "ROUGE-1" in message
    assert "Try it:  nextword generate" in message
    assert "sst2 sentence: " in message
    return out


@pytest.fixture(scope="module")
def summaries(cli: Cli, files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("summaries") / "run"
    train_run(cli, files, f"{files / 'news.jsonl'}:article-summary", out)
    return out


def test_evaluate_tasks_run_reports_the_metric_of_each_task(
    js: Js, cli: Cli, files: Path, tasks_run: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(files))
    both = js("evaluate", tasks_run, "--limit", 5)["tasks"]
    assert [(item["task"], item["split"], item["pairs"]) for item in both] == [
        ("sst2", "valid", 5),
        ("summarize", "test", 5),
    ]
    assert both[0].keys() >= {"accuracy", "unread"}
    assert both[1].keys() >= {"rouge1", "rouge2", "rougeL", "rougeLsum"}
    assert 0 <= both[0]["unread"] <= 5
    item = js("evaluate", tasks_run, "--data", "tasks:sst2", "--beam", 2)
    assert [task["task"] for task in item["tasks"]] == ["sst2"]
    assert item["decoding"] == "beam 2"
    assert item["tasks"][0]["scores"]["accuracy"].keys() == {"score", "low", "high", "signature"}
    shown = cli("evaluate", tasks_run, "--data", "tasks:sst2").stdout
    assert "no answer" in shown


def test_evaluate_summaries_reports_rouge(js: Js, cli: Cli, summaries: Path) -> None:
    result = js("evaluate", summaries, "--beam", 2, "--limit", 4)
    assert set(result["scores"]) == {"rouge1", "rouge2", "rougeL", "rougeLsum"}
    assert result["longer"] == 4  # six sentences are more than forty tokens here
    shown = cli("evaluate", summaries, "--limit", 4).stdout
    assert "ROUGE-Lsum" in shown
    assert "4 of 4 sources are longer than any in training" in shown


def test_card_describes_sources_and_targets(tasks_run: Path, summaries: Path) -> None:
    card = (tasks_run / "card.md").read_text()
    assert "task prefix" in card
    assert "`sst2 sentence: …`" in card
    assert "sst2 sentence: a " in card  # the example
    assert "| sst2 valid | 12 | accuracy" in card
    assert f'nextword generate {tasks_run} "sst2 sentence: a ' in card
    card = (summaries / "card.md").read_text()
    assert "reads the source of a pair of" in card
    assert "rouge1" in card
    assert "bits/byte" not in card


def test_record_text_to_text_results(
    cli: Cli, js: Js, files: Path, tasks_run: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    shutil.copytree(RECIPES / "t5", tmp_path / "t5")
    monkeypatch.setattr("nextword.recipe.RECIPES", tmp_path)
    monkeypatch.setenv("NEXTWORD_DATA", str(files))
    cli("evaluate", tasks_run, "--limit", 3)
    result = js("papers", "--record", tasks_run)
    assert result["recipe"] == "t5/tiny"
    measured = result["measured"]
    assert measured.keys() >= {"sst2_accuracy", "summarize_rouge1", "sst2_target_perplexity", "decoding", "seconds"}
    assert measured["data"].startswith("tasks:sst2+summarize")
    text = (tmp_path / "t5/tiny.toml").read_text()
    assert "[measured]" in text
    assert f"sst2_accuracy = {measured['sst2_accuracy']}" in text
    log = (tmp_path / "t5" / measured["log"]).read_text()
    assert '"translated"' in log
    assert '"example"' not in log


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["generate", "RUN", "translate English to French: hello"],
            "sst2 sentence: ",
        ),
        (["generate", "RUN", "hello", "--beam", "2", "--n-best", "2"], "'sst2 sentence: ', 'summarize: '"),
        (["generate", "RUN", "sst2 sentence:good"], "'sst2 sentence: '"),
        (["generate", "RUN", "summarize:"], "'summarize: '"),
        (["generate", "RUN", "sst2 sentence: a <extra_id_0> film"], "<extra_id_…>"),
        (["generate", "RUN", "sst2 sentence: " + "good " * 60, "--overflow", "error"], "trained on at most 40"),
        (["generate", "RUN", "sst2 sentence: good", "--beam", "0"], "--beam"),
        (["evaluate", "RUN", "--beam", "0"], "--beam"),
        (["generate", "RUN", "sst2 sentence: good", "--beam", "2", "--seed", "1"], "--seed"),
        (["generate", "RUN", "sst2 sentence: good", "--contrastive", "0.6"], "--contrastive"),
        (["generate", "RUN"], "nextword generate RUN"),
        (["compare", "RUN", "--minutes", "0.1"], "nextword evaluate RUN"),
        (["evaluate", "RUN", "--data", "tasks:nonsense"], "cola, sst2"),
        (["evaluate", "RUN", "--data", "tasks:sst2", "--split", "test"], "'test'"),
        (["evaluate", "RUN", "--data", "tasks:denoise:python"], "denoise"),
    ],
)
def test_text_to_text_run_refuses_other_uses(
    cli: Cli, files: Path, tasks_run: Path, monkeypatch: Any, words: list[str], message: str
) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(files))
    output = cli(*(tasks_run if word == "RUN" else word for word in words), fails=True).stderr
    assert message in " ".join(output.split())


def test_generate_from_file_keeps_empty_lines(cli: Cli, tasks_run: Path, tmp_path: Path) -> None:
    """Output lines align with their sources, including empty ones."""
    (tmp_path / "sources.txt").write_text("sst2 sentence: good\n\nsst2 sentence: bad\n")
    lines = cli("generate", tasks_run, "--file", tmp_path / "sources.txt", "--max-tokens", 4).stdout.split("\n")
    assert len(lines) == 4
    assert lines[1] == lines[3] == ""


def test_generate_from_long_source_notes_its_length(cli: Cli, tasks_run: Path, tmp_path: Path) -> None:
    long, short = "sst2 sentence: " + "good " * 60, "sst2 sentence: good"
    assert "40 tokens" in cli("generate", tasks_run, long, "--max-tokens", 3).stderr
    assert not cli("generate", tasks_run, short, "--max-tokens", 3).stderr
    (tmp_path / "sources.txt").write_text(f"{long}\n{short}\n")
    output = cli("generate", tasks_run, "--file", tmp_path / "sources.txt", "--max-tokens", 3).stderr
    assert "1 of 2 sources are longer" in output


def test_evaluate_limit_samples_evenly(js: Js, files: Path, summaries: Path) -> None:
    """The first rows of a sorted file would all be of one kind."""
    assert sample_evenly("abcdefghij", 4) == ["a", "c", "f", "h"]
    assert sample_evenly("abc", 0) == sample_evenly("abc", 3) == sample_evenly("abc", 9) == "abc"
    test = [pair.source for pair in open_parallel(f"{files / 'news.jsonl'}:article-summary").documents("test")]
    assert len(test) > 3
    sample = js("evaluate", summaries, "--limit", 2)["sample"]
    assert [item["source"] for item in sample] == [test[0], test[len(test) // 2]]


def test_train_with_unsupported_packing_fails_before_training(cli: Cli, files: Path, tmp_path: Path) -> None:
    data = ("--data", f"{files / 'news.jsonl'}:article-summary", "--out", tmp_path / "run")
    output = cli("train", "seq2seq/tiny", *data, "--set", "phase.0.batches.pack=true", fails=True).stderr
    assert "several pairs into a row" in output
    assert "train:" not in output
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def infilling_run(cli: Cli, files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A T5 pretrained on span corruption."""
    out = tmp_path_factory.mktemp("infilling_run") / "run"
    text = out.parent / "text.txt"
    text.write_text("\n".join(sentences(400)))
    small = (*SMALL[:8], "--set", "phase.0.steps=12", "--set", "phase.0.batches.length=24")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(out.parent / "cache"))
        message = cli("train", "t5/tiny", "--data", text, "--out", out, *small).stdout
    assert f'nextword generate {out} "The ___ of the ___ is" --beam 4' in message
    return out


def test_generate_fills_blanks_of_a_span_infilling_run(cli: Cli, js: Js, infilling_run: Path, tmp_path: Path) -> None:
    text = "The king of ___ went to see his ___."
    lm: Any = nextword.load(infilling_run)
    (wanted,) = lm.infill(text, Beam(3), Stop(20))
    result = js("generate", infilling_run, text, "--beam", 3, "--max-tokens", 20)
    assert (result["text"], result["blanks"]) == (wanted.text, list(wanted.blanks))
    assert result["text"].startswith("The king of ")
    assert result["text"].endswith(".")
    (tmp_path / "lines.txt").write_text(f"{text}\n\nthe ___ of a land\n")
    lines = cli("generate", infilling_run, "--file", tmp_path / "lines.txt", "--max-tokens", 20).stdout.split("\n")
    assert len(lines) == 4
    assert lines[1] == lines[3] == ""
    (tmp_path / "lines.txt").write_text(f"{text}\n\nthe land\n")
    output = cli("generate", infilling_run, "--file", tmp_path / "lines.txt", fails=True).stderr
    assert "line 3: 'the land' has no blank" in " ".join(output.split())
    assert "generate RUN" in cli("next", infilling_run, "the ___", fails=True).stderr


def test_card_of_span_infilling_run_describes_blanks(infilling_run: Path) -> None:
    card = (infilling_run / "card.md").read_text()
    assert "fills the blanks" in card
    assert "spans of 3 tokens on average" in card
    assert f'nextword generate {infilling_run} "The ___ of the ___ is" --beam 4' in card
    assert "language model" not in card
    assert "bits/byte" not in card


def test_generate_of_task_run_reads_blanks_literally(js: Js, tasks_run: Path) -> None:
    result = js("generate", tasks_run, "sst2 sentence: a ___ film", "--max-tokens", 3)
    assert "blanks" not in result


def test_convert_to_huggingface_describes_usage_of_t5(
    cli: Cli, infilling_run: Path, tasks_run: Path, tmp_path: Path
) -> None:
    """The output has no decoder start token, no removed pipeline of transformers, and no family twice."""
    for run, text in ((infilling_run, "t('The <extra_id_0> is',"), (tasks_run, "t('sst2 sentence: The',")):
        output = cli("convert", run, tmp_path / run.parent.name, "--to", "huggingface").stdout
        assert text in output
        assert "pipeline" not in output
    silent = json.loads((tmp_path / infilling_run.parent.name / "generation_config.json").read_text())[
        "suppress_tokens"
    ]
    marks = {id for name, id in nextword.load(infilling_run).tokenizer.special.items() if "extra_id" in name}
    assert marks.isdisjoint(silent)
    assert "___" in cli("convert", tmp_path / infilling_run.parent.name, tmp_path / "back").stdout
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd/config.json").write_text('{"model_type": "odd"}')
    assert cli("convert", tmp_path / "odd", tmp_path / "run", fails=True).stderr.count("t5 (t5 here)") == 1


def test_data_shows_catalog_pairs(cli: Cli, js: Js, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path))
    (tmp_path / "bbc-news-summary").mkdir()
    rows = [{"id": str(i), "topic": "x", "article": f"article {i}", "summary": f"short {i}"} for i in range(400)]
    (tmp_path / "bbc-news-summary/bbc.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    about = js("data", "bbc")
    assert about["pair"] == {"source": "article", "target": "summary"}
    assert about["sample"]["target"].startswith("short")
    assert "article → summary" in cli("data", "bbc").stdout


@pytest.mark.parametrize(
    ("texts", "more", "message"),
    [
        ({"train.xx": "a\nb\nc\n", "train.yy": "A\nB\n"}, [], "33"),
        ({"train.xx": "a\n\nc\n", "train.yy": "A\nB\nC\n"}, [], "train.xx, line 32"),
        ({"train.xx": "a <extra_id_1> b\n", "train.yy": "A\n"}, [], "<extra_id_…>"),
        (
            {"train.xx": "a b " * 60 + "\n", "train.yy": "A\n"},
            ["overflow='error'", "length=40"],
            "1 of 31 pairs",
        ),
        ({"train.xx": "a\n", "train.yy": "A\n"}, ["length=1"], "length = 1"),
    ],
)
def test_train_with_invalid_pairs_fails(
    cli: Cli, tmp_path: Path, texts: dict[str, str], more: list[str], message: str
) -> None:
    for split in ("valid", "test"):
        for side in ("xx", "yy"):
            (tmp_path / f"{split}.{side}").write_text("a b c d e\n" * 30)
    for name, text in texts.items():
        (tmp_path / name).write_text("a b c d e\n" * 30 + text)
    rows = ",".join(["kind='sequences'", "rows=2", *(more or ["length=40"])])
    words = ("--set", f"phase.0.batches={{{rows}}}", "--set", "tokenizer={kind='unigram',size=40,sentinels=4}")
    output = cli(
        "train", "t5/tiny", "--data", f"{tmp_path}:xx-yy", "--out", tmp_path / "out", *SMALL[4:], *words, fails=True
    ).stderr
    assert message in " ".join(output.split())
    assert not (tmp_path / "out").exists()


def test_train_with_unknown_or_missing_tasks_fails(cli: Cli, tmp_path: Path) -> None:
    for data, message in (("tasks:nope", "'nope'"), ("tasks:sst2", "not on this machine")):
        output = cli("train", "t5/tiny", "--data", data, "--out", tmp_path / "out", *SMALL, fails=True).stderr
        assert message in output
        assert message in cli("data", data, fails=True).stderr
