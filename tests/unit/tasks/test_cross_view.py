"""Cross-view training with the trainer: alternating batches, unlabeled text, several tasks, and resuming."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import nextword
from nextword import tasks as transfer
from nextword.batching.examples import UNLABELED
from nextword.cli import app
from nextword.core.errors import DataError, InvalidSetting, RunError, UnknownName
from nextword.data.opening import open_unsplit
from nextword.layers.char_cnn import word_characters
from nextword.tasks.cross_view import CrossViewObjective, read_untagged
from nextword.tasks.datasets.tagged import MixedTagDataset, read_tag_data
from nextword.tasks.mixtures import MixedExamples, draw_tasks, probabilities
from nextword.tasks.plan import make_plan
from nextword.tasks.tagging import TaggedExamples
from nextword.tokenizers.training import train_tokenizer
from tests.support.tiny_tagged import draw_sentence, write_tagged_data

TEXT = "The U.S. has said so in 1990. It knows. Nobody else (as it seems) has ever said that it isn't so.\n\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write tag data with two columns: the type of a name, and whether a word is one."""
    import random

    folder = write_tagged_data(tmp_path_factory.mktemp("tagged") / "names", 200, 40)
    draw = random.Random(7)
    plain = [" ".join(word for word, _ in draw_sentence(draw)) + " ." for _ in range(300)]
    (folder.parent / "plain.txt").write_text("\n\n".join(plain))
    other = folder.parent / "capitals"
    other.mkdir()
    for split in ("train", "dev", "test"):
        rows = [line.split() for line in (folder / f"{split}.conll").read_text().splitlines()]
        lines = [f"{row[0]}\t{'NAME' if row[0][0].isupper() else 'WORD'}" if row else "" for row in rows]
        (other / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def make_changes(data: Path, *changes: str, steps: int = 60) -> list[str]:
    return [
        f"phase.0.objective.unlabeled={data.parent / 'plain.txt'}",
        "model.width=16",
        "model.second_width=16",
        "model.projection=12",
        "tokenizer.size=100",
        "phase.0.validate_every=0",
        f"phase.0.steps={steps}",
        *changes,
    ]


def train_tagger(data: str, out: Path, changes: list[str], **options: Any) -> Any:
    return transfer.run("cvt/tiny", "", data, out, changes=changes, device="cpu", **options)


def join_tasks(data: Path) -> str:
    return f"{data} + {data.parent / 'capitals'}"


# ------------------------------------------------------------------------------------------------ whose turn it is


def make_text(sentences: int, first: int = 0) -> TaggedExamples:
    """Make sentences of two ids that occur in no other text."""
    starts = np.arange(sentences + 1) * 2
    ids = first + np.arange(2 * sentences)
    zeros = np.zeros(len(ids), np.int64)
    return TaggedExamples(ids, starts, np.zeros(len(starts) - 1, np.int64), words=zeros, word_starts=starts, tags=zeros)


def test_tasks_are_sampled_by_square_root_of_size() -> None:
    np.testing.assert_allclose(probabilities([100, 400, 2500]), [10 / 80, 20 / 80, 50 / 80])
    text = MixedExamples(("a", "b", "c"), (make_text(4), make_text(16), make_text(100)))
    counts = Counter(islice(draw_tasks(text, 3), 20_000))
    np.testing.assert_allclose([counts[i] / 20_000 for i in range(3)], [2 / 16, 4 / 16, 10 / 16], atol=0.015)


def are_equal(a: Any, b: Any) -> bool:
    return (
        a.task_index == b.task_index and torch.equal(a.inputs.ids, b.inputs.ids) and torch.equal(a.targets, b.targets)
    )


@pytest.mark.parametrize("unlabeled", [True, False])
def test_batches_alternate_and_depend_only_on_seed_and_step(unlabeled: bool) -> None:
    text = MixedExamples(("a", "b"), (make_text(30), make_text(90, 1000)), make_text(50, 5000) if unlabeled else None)
    objective = CrossViewObjective({"rows": 4})
    results = list(islice(objective.batches(text, 5, 0), 200))
    parts = [batch.task_index for batch in results]
    if unlabeled:
        assert parts[1::2] == [UNLABELED] * 100
        assert set(parts[::2]) == {0, 1}
        assert all((batch.inputs.ids >= 5000).all() for batch in results[1::2])
    else:
        assert set(parts) == {0, 1}
    assert all((batch.inputs.ids < 1000).all() for batch in results if batch.task_index == 0)
    for k in (0, 1, 2, 7, 33, 150):
        later = islice(objective.batches(text, 5, k), 20)
        assert all(are_equal(a, b) for a, b in zip(later, results[k : k + 20], strict=True))
    assert not all(are_equal(a, b) for a, b in zip(results, objective.batches(text, 6, 0), strict=False))
    first = [b for b in results if b.task_index == 0][:8]  # 30 sentences are 8 batches; an epoch reads each once
    seen = torch.cat([batch.inputs.ids.reshape(-1) for batch in first])
    assert sorted(seen.tolist()) == list(range(60))
    assert objective.batches_per_epoch(text) == (8 + 23) * (2 if unlabeled else 1)


# ------------------------------------------------------------------------------------------------ text without tags


def select_words(text: TaggedExamples, i: int) -> list[str]:
    rows = text.letters[np.arange(text.starts[i], text.starts[i + 1])]
    return ["".join(chr(c) for c in row if c < 256) for row in rows]


def test_unlabeled_text_is_split_into_sentences_and_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text((TEXT + "History\n\n") * 5)
    first, second = ("The U.S. has said so in 1990 .", "Nobody else ( as it seems ) has ever said that it is n't so .")
    options = {"kind": "lexicon", "size": 50, "min_count": 1, "whole": True}
    tokenizer = train_tokenizer(options, [first, second])
    corpus = open_unsplit(str(tmp_path / "text.txt"))
    text, key = read_untagged(corpus, tokenizer, 12, 7, 30)
    assert len(text) == 7
    assert text.tokens_are_words
    assert [select_words(text, i) for i in (0, 1)] == [first.split(), second.split()]
    assert text.ids[: len(first.split())].tolist() == tokenizer.encode(first).ids.tolist()
    wanted = word_characters(first.split(), 12)
    np.testing.assert_array_equal(text.letters[np.arange(8)][:, : wanted.shape[1]], wanted)
    (file,) = (tmp_path / "cache" / "sentences").iterdir()
    monkeypatch.setattr("nextword.tasks.cross_view._split_corpus", None)  # from now on the cache is only read
    again, same_key = read_untagged(corpus, tokenizer, 12, 7, 30)
    assert same_key == key
    np.testing.assert_array_equal(again.ids, text.ids)
    monkeypatch.undo()
    monkeypatch.setenv("NEXTWORD_CACHE", str(tmp_path / "cache"))
    file.write_bytes(file.read_bytes()[:100])  # a damaged cache is rebuilt
    np.testing.assert_array_equal(read_untagged(corpus, tokenizer, 12, 7, 30)[0].ids, text.ids)
    assert read_untagged(corpus, tokenizer, 12, 8, 30)[1] != key
    with pytest.raises(DataError, match="5 to 3 words"):
        read_untagged(corpus, tokenizer, 12, 7, 3)


def test_missing_unlabeled_text_raises_before_the_folder_exists(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting) as problem:
        train_tagger(str(data), tmp_path / "run", make_changes(data, "phase.0.objective.unlabeled=nowhere.txt"))
    assert problem.value.value == "nowhere.txt"
    assert not (tmp_path / "run").exists()


# ------------------------------------------------------------------------------------------------ through the loop


def test_cvt_run_predicts_tags_and_trains_without_unlabeled_text(data: Path, tmp_path: Path) -> None:
    result = train_tagger(str(data), tmp_path / "run", make_changes(data, "task.train_fraction=0.5", steps=120))
    assert result.metric == "span_f1"
    assert result.results[0]["examples"] == {"train": 100, "dev": 40, "test": 40}
    tagger: Any = nextword.load(tmp_path / "run", device="cpu")
    assert tagger.predict(["mister Zuze went away", ""])[1].words == ()
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["event"] == "step"]
    assert {"full", "forwards", "backwards", "future", "past"} <= steps[0].keys()
    plan = make_plan(
        "cvt/tiny", "", str(data), changes=make_changes(data, "phase.0.objective.unlabeled=''"), device="cpu"
    )
    assert plan.examples["train"].unlabeled is None
    assert plan.examples["train"].turns == 1


def test_interrupted_run_resumes_bit_identically(data: Path, tmp_path: Path) -> None:
    own = make_changes(data, "phase.0.save_every=0", "phase.0.log_every=1")
    train_tagger(join_tasks(data), tmp_path / "whole", own)
    calls = iter(range(1000))
    assert train_tagger(join_tasks(data), tmp_path / "parts", own, stop=lambda: next(calls) >= 24).interrupted
    plan, events = transfer.resume(tmp_path / "parts", "cpu")
    assert isinstance(plan.data, MixedTagDataset)
    list(events)
    for name in ("model.safetensors", "head.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()
    assert transfer.read_result(tmp_path / "whole")["test"] == transfer.read_result(tmp_path / "parts")["test"]  # type: ignore[index]


def test_resume_with_changed_unlabeled_text_raises(data: Path, tmp_path: Path) -> None:
    own = make_changes(data, "phase.0.save_every=0")
    calls = iter(range(1000))
    train_tagger(str(data), tmp_path / "run", own, stop=lambda: next(calls) >= 10)
    plain = data.parent / "plain.txt"
    text = plain.read_text()
    try:
        plain.write_text(text + "\n\nmister Karo went to see the old king .\n")
        with pytest.raises(RunError):
            list(transfer.resume(tmp_path / "run", "cpu")[1])
    finally:
        plain.write_text(text)


# ------------------------------------------------------------------------------------------------ several tasks


@pytest.fixture(scope="module")
def multitask_run(data: Path) -> Path:
    out = data.parent / "several"
    own = make_changes(data, "phase.0.optimizer={kind='adam', rate=0.01, ema_decay=0.9}", steps=300)
    train_tagger(join_tasks(data), out, own)
    return out


def test_error_analysis_lists_mistakes_per_task(data: Path, multitask_run: Path) -> None:
    names, capitals = join_tasks(data).split(" + ")
    results = {task["task"]: task for task in (transfer.read_errors(multitask_run) or {})["tasks"]}
    assert results.keys() == {names, capitals}
    assert {item["label"] for item in results[names]["types"]} == {"PER", "LOC"}
    tags = results[capitals]["classes"]
    assert {tag["label"] for tag in tags} == {"NAME", "WORD"}
    right = sum(tag["recall"] * tag["examples"] for tag in tags) / results[capitals]["words"]
    assert (transfer.read_result(multitask_run) or {})["dev"][capitals] == pytest.approx(right)
    assert names in (multitask_run / "report.html").read_text()


def test_several_tasks_share_an_encoder_and_all_are_learned(data: Path, multitask_run: Path) -> None:
    result: Any = transfer.read_result(multitask_run)
    names, capitals = join_tasks(data).split(" + ")
    assert result["metric"] == "mean"
    assert result["test"]["mean"] == pytest.approx((result["test"][names] + result["test"][capitals]) / 2)
    assert result["test"][capitals] > 0.95
    assert result["test"][names] > 0.6
    tagger: Any = nextword.load(multitask_run, device="cpu")
    predictions = tagger.predict([["mister", "Zuze", "went", "to", "Wuwepolis"], []])
    assert predictions[0][capitals].tags == ("WORD", "NAME", "WORD", "WORD", "NAME")
    assert predictions[0][names].words == predictions[0][capitals].words
    assert {tag[0] for tag in predictions[0][names].tags} <= set("OBI")  # trained as BIOES, returned as IOB2
    assert predictions[1][names].tags == ()


def test_predict_command_writes_tags_of_all_tasks_into_one_file(
    data: Path, multitask_run: Path, tmp_path: Path
) -> None:
    names, capitals = join_tasks(data).split(" + ")
    (tmp_path / "new.txt").write_text("mister Zuze went to Wuwepolis.\n\nthe king met mister Karo Wim.\n")
    for ending in (".conll", ".tsv", ".jsonl"):
        out = tmp_path / f"tagged{ending}"
        command = ["predict", str(multitask_run), str(tmp_path / "new.txt"), "--out", str(out), "--device", "cpu"]
        assert CliRunner().invoke(app, command).exit_code == 0
    rows = [line.split("\t") for line in (tmp_path / "tagged.conll").read_text().splitlines()]
    assert rows[0] == ["mister", "O", "WORD"]
    assert rows[1][::2] == ["Zuze", "NAME"]
    assert [row for row in rows if row == [""]]
    assert (tmp_path / "tagged.tsv").read_text().splitlines()[0].split("\t") == ["word", names, capitals]
    lines = [json.loads(line) for line in (tmp_path / "tagged.jsonl").read_text().splitlines()]
    assert [len(line["words"]) for line in lines] == [6, 0, 7]
    assert lines[0]["tags"][capitals][1] == "NAME"
    result = CliRunner().invoke(
        app, ["predict", str(multitask_run), str(tmp_path / "new.txt"), "--json", "--device", "cpu"]
    )
    assert json.loads(result.stdout)["labels"][capitals] == ["NAME", "WORD"]


def test_read_tag_data_parses_names_with_columns(data: Path) -> None:
    dataset = read_tag_data(f"{data}:1 + {data.parent / 'capitals'}")
    assert isinstance(dataset, MixedTagDataset)
    assert dataset.names == (f"{data}:1", str(data.parent / "capitals"))
    assert dataset.sets[0].columns.label == "1"
    assert len(dataset.splits["train"]) == 400
    assert not isinstance(read_tag_data(str(data)), MixedTagDataset)
    with pytest.raises(InvalidSetting) as error:
        read_tag_data(f"{data} + {data}")
    assert error.value.key == "data"
    with pytest.raises(InvalidSetting) as error:
        read_tag_data(join_tasks(data), "1")
    assert error.value.key == "label"


def test_incompatible_recipe_settings_raise(data: Path) -> None:
    with pytest.raises(InvalidSetting) as error:
        make_plan("tagger/tiny", "", join_tasks(data), device="cpu")
    assert error.value.key == "data"
    with pytest.raises(UnknownName) as unknown:
        make_plan("cvt/tiny", "", str(data), changes=[*make_changes(data)[1:], "task.classifier=crf"], device="cpu")
    assert unknown.value.name == "classifier"
    with pytest.raises(InvalidSetting) as error:
        make_plan(
            "cvt/tiny",
            "",
            str(data),
            changes=[*make_changes(data)[1:], "phase.0.objective={kind='tagging'}"],
            device="cpu",
        )
    assert error.value.value == "tagging"


def test_train_fraction_applies_to_every_task(data: Path) -> None:
    plan = make_plan("cvt/tiny", "", join_tasks(data), changes=make_changes(data), device="cpu")
    train = plan.examples["train"]
    few = plan.task.sample(train, 0.1, 3)
    assert [len(part) for part in few.parts] == [20, 20]
    assert few.unlabeled is train.unlabeled
    assert len(replace(train, unlabeled=None).first(60).parts[0].ids) <= 30
