"""GLUE's official files, which differ in headers, order and quoting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nextword.core.errors import DataError, MissingFile, NextwordError
from nextword.data.tables import Columns
from nextword.tasks.datasets.catalog import BENCHMARKS, find_benchmark
from nextword.tasks.datasets.glue import SUITE_TASKS
from nextword.tasks.text_data import read_one
from tests.support.glue_samples import SAMPLES


@pytest.fixture
def glue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for task, files in SAMPLES.items():
        (tmp_path / "glue" / task).mkdir(parents=True)
        for name, text in files.items():
            (tmp_path / "glue" / task / name).write_text(text, encoding="utf-8")
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path))
    return tmp_path / "glue"


@pytest.mark.parametrize(
    ("name", "text", "second", "label", "labels"),
    [
        ("CoLA", 'She said "no.', None, "1", ("0", "1")),
        ("SST-2", "no wit ", None, "0", ("0", "1")),
        ("MRPC", 'He said "yes.', "He agreed.", "1", ("0", "1")),
        ("STS-B", "A plane.", "An air plane.", "5.000", ()),
        ("QQP", "Why?", "How come?", "1", ("0", "1")),
        ("MNLI", "It rains.", "It is wet.", "entailment", ("contradiction", "entailment", "neutral")),
        ("QNLI", "When?", "In 1812.", "entailment", ("entailment", "not_entailment")),
        ("RTE", "A.", "B.", "entailment", ("entailment", "not_entailment")),
        ("WNLI", "A.", "B.", "0", ("0", "1")),
    ],
)
def test_glue_task_reads_its_official_files(
    glue: Path, name: str, text: str, second: str | None, label: str, labels: Any
) -> None:
    data = read_one(name)
    train = data.splits["train"]
    assert (train.texts[0], train.seconds and train.seconds[0], train.labels and train.labels[0]) == (
        text,
        second,
        label,
    )
    assert data.labels == labels
    assert len(data.splits["dev"])
    if "test" in data.splits:  # its labels are withheld
        assert data.splits["test"].labels is None
        assert data.splits["test"].ids == ["0"]
    assert (data.kind == "classification") == (second is None)
    assert data.metrics[0] == BENCHMARKS[name].metrics[0]
    assert read_one(f"glue/{name.lower()}").fingerprint == data.fingerprint


def test_headline_metrics_equal_those_of_glue() -> None:
    headlines = {name: task.metrics[0] for name, task in BENCHMARKS.items() if not task.catalog}
    assert headlines == {
        "CoLA": "mcc",
        "SST-2": "accuracy",
        "MRPC": "f1",
        "STS-B": "spearman",
        "QQP": "f1",
        "MNLI": "accuracy",
        "QNLI": "accuracy",
        "RTE": "accuracy",
        "WNLI": "accuracy",
    }
    assert set(SUITE_TASKS) <= set(BENCHMARKS)
    assert find_benchmark("sst2") is BENCHMARKS["SST-2"]
    assert find_benchmark("GLUE/rte") is BENCHMARKS["RTE"]
    assert find_benchmark("nothing") is None


def test_truncated_rows_and_disputed_pairs_are_counted(glue: Path) -> None:
    assert any("1 rows of train.tsv" in note and "line 3" in note for note in read_one("QQP").notes)
    data = read_one("MNLI")
    assert any("1 pairs of dev" in note for note in data.notes)
    assert len(data.splits["mismatched"]) == 1


def test_missing_or_unrelated_glue_files_raise(glue: Path) -> None:
    (glue / "RTE/dev.tsv").unlink()
    with pytest.raises(DataError, match=r"dev\.tsv") as error:
        read_one("RTE")
    assert error.value.path == str(glue / "RTE")
    (glue / "RTE/train.tsv").unlink()
    with pytest.raises(MissingFile, match="RTE"):
        read_one("RTE")
    (glue / "QNLI/train.tsv").write_text("a\tb\n1\t2\n")
    with pytest.raises(DataError, match="'question'") as error:
        read_one("QNLI")
    assert error.value.path == str(glue / "QNLI/train.tsv")
    with pytest.raises(NextwordError, match="CoLA"):
        read_one("CoLA", Columns("text"))


def test_mrpc_reads_original_microsoft_files(glue: Path) -> None:
    folder = glue / "MRPC"
    rows = "".join(f"{i % 2}\t{i}\t{i + 100}\tFirst {i}.\tSecond {i}.\n" for i in range(40))
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).unlink()
    (folder / "msr_paraphrase_train.txt").write_text(header + rows, encoding="utf-8")
    (folder / "msr_paraphrase_test.txt").write_text(header + "1\t1\t2\tX.\tY.\n", encoding="utf-8")
    data = read_one("MRPC")
    assert {split: len(some) for split, some in data.splits.items()} == {"train": 36, "dev": 4, "test": 1}
    assert any("4 training pairs" in note for note in data.notes)
    (folder / "dev_ids.tsv").write_text("3\t103\n5\t105\n7\t107\n")
    data = read_one("MRPC")
    assert data.splits["dev"].texts == ["First 3.", "First 5.", "First 7."]
    assert len(data.splits["train"]) == 37


def test_real_glue_has_the_published_sizes(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(shared))
    results = {name: {s: len(rows) for s, rows in read_one(name).splits.items()} for name in (*SUITE_TASKS, "WNLI")}
    assert results == {
        "CoLA": {"train": 8551, "dev": 1043, "test": 1063},
        "MRPC": {"train": 3669, "dev": 407, "test": 1725},
        "RTE": {"train": 2490, "dev": 277, "test": 3000},
        "SST-2": {"train": 67349, "dev": 872, "test": 1821},
        "STS-B": {"train": 5749, "dev": 1500, "test": 1379},
        "WNLI": {"train": 635, "dev": 71, "test": 146},
    }
