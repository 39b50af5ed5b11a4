"""Readers of benchmarks beyond GLUE: official files, and errors with the line of malformed ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nextword.core.errors import DataError, NextwordError, UnknownName
from nextword.data.opening import open_corpus
from nextword.tasks.datasets.catalog import BENCHMARKS, find_benchmark
from nextword.tasks.text_data import read_one
from tests.support.glue_samples import SAMPLES

PAIRS = [
    ("A man plays.", 'Somebody "plays', "entailment"),
    ("A man plays.", "Nobody plays.", "contradiction"),
    ("A man plays.", "It is late.", "neutral"),
    ("Two dogs.", "Dogs?", "-"),
]
SNLI_HEADER = (
    "gold_label\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\tsentence1\t"
    "sentence2\tcaptionID\tpairID\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\n"
)
SCIENCE = [("Cells divide.", "Cells can divide.", "entails"), ("Cells divide.", "Ice melts.", "neutral")]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path))
    return tmp_path


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def to_triples(rows: Any) -> list[tuple[str, ...]]:
    columns = [rows.texts, *([rows.seconds] if rows.seconds is not None else []), rows.labels]
    return list(zip(*columns, strict=True))


def to_json_lines(rows: Any, annotators: int = 5) -> str:
    result = [
        {"annotator_labels": [gold] * annotators, "gold_label": gold, "sentence1": a, "sentence1_parse": "(ROOT)"}
        | {"sentence2": b, "sentence2_parse": "(ROOT)", "pairID": f"{i}.jpg#0r1n"}
        for i, (a, b, gold) in enumerate(rows)
    ]
    return "".join(json.dumps(item) + "\n" for item in result)


def to_table(rows: Any) -> str:
    lines = [
        f"{gold}\t( a )\t( b )\t(S a)\t(S b)\t{a}\t{b}\t1.jpg#0\t1.jpg#0r1n\t{gold}\t\t\t\t\n" for a, b, gold in rows
    ]
    return SNLI_HEADER + "".join(lines)


@pytest.mark.parametrize(("ending", "made"), [("jsonl", to_json_lines), ("txt", to_table)])
def test_snli_reads_json_lines_and_tables(place: Path, ending: str, made: Any) -> None:
    for split in ("train", "dev", "test"):
        write(place / f"snli_1.0/snli_1.0_{split}.{ending}", made(PAIRS))
    data = read_one("SNLI")
    assert {split: to_triples(rows) for split, rows in data.splits.items()} == dict.fromkeys(
        ("train", "dev", "test"), PAIRS[:3]
    )
    assert data.labels == ("contradiction", "entailment", "neutral")
    assert any("1 pairs of test" in note for note in data.notes)
    file = write(place / f"snli_1.0/snli_1.0_dev.{ending}", made([*PAIRS, ("A.", "B.", "maybe")]))
    with pytest.raises(DataError, match="'maybe'") as error:
        read_one("SNLI")
    assert (error.value.path, error.value.line) == (str(file), 5 if ending == "jsonl" else 6)
    write(file, '{"gold_label": "neutral", "sentence1": "A."}\n' if ending == "jsonl" else SNLI_HEADER + "neutral\tx\n")
    with pytest.raises(DataError, match=r"'sentence2'|7") as error:
        read_one("SNLI")
    assert (error.value.path, error.value.line) == (str(file), 1 if ending == "jsonl" else 2)
    file.unlink()
    with pytest.raises(DataError, match=r"snli_1.0_dev.jsonl or snli_1.0_dev.txt"):
        read_one("SNLI")


def test_multinli_reads_original_author_files(place: Path) -> None:
    for part in ("train", "dev_matched", "dev_mismatched"):
        write(place / f"multinli_1.0/multinli_1.0_{part}.jsonl", to_json_lines(PAIRS))
    data = read_one("MNLI")
    assert to_triples(data.splits["mismatched"]) == to_triples(data.splits["train"]) == PAIRS[:3]


def test_scitail_reads_both_formats(place: Path) -> None:
    for split in ("train", "dev", "test"):
        lines = "".join("\t".join(row) + "\n" for row in SCIENCE)
        write(place / f"SciTailV1.1/tsv_format/scitail_1.0_{split}.tsv", lines)
    data = read_one("SciTail")
    assert to_triples(data.splits["train"]) == SCIENCE
    as_snli = [(a, b, {"entails": "entailment"}.get(gold, gold)) for a, b, gold in SCIENCE]
    for split in ("train", "dev", "test"):
        (place / f"SciTailV1.1/tsv_format/scitail_1.0_{split}.tsv").unlink()
        write(place / f"SciTailV1.1/snli_format/scitail_1.0_{split}.txt", to_json_lines(as_snli, 1))
    again = read_one("scitail")
    assert again.fingerprint == data.fingerprint
    file = write(place / "SciTailV1.1/tsv_format/scitail_1.0_dev.tsv", "A.\tB.\tentails\nA.\tB.\tfollows\n")
    with pytest.raises(DataError, match="'follows'") as error:
        read_one("SciTail")
    assert (error.value.path, error.value.line) == (str(file), 2)


def test_imdb_reads_folders_and_json_lines(place: Path, tmp_path: Path) -> None:
    reviews = {
        (split, side, i): f"A {side} film,<br />{split} {i}."
        for split in ("train", "test")
        for side in ("neg", "pos")
        for i in range(20)
    }
    for (split, side, i), text in reviews.items():
        write(place / f"aclImdb/{split}/{side}/{i}_{9 if side == 'pos' else 2}.txt", text)
    data = read_one("IMDb")
    assert {split: len(rows) for split, rows in data.splits.items()} == {"train": 36, "dev": 4, "test": 40}
    reviews = {key: text.replace("<br />", "\n") for key, text in reviews.items()}
    assert to_triples(data.splits["test"]) == [(t, side) for (split, side, _), t in reviews.items() if split == "test"]
    assert {document.text for document in open_corpus("imdb").documents("test")} == set(data.splits["test"].texts)
    held = [(text, side) for (split, side, _), text in reviews.items() if split == "train"]
    assert sorted(to_triples(data.splits["train"]) + to_triples(data.splits["dev"])) == sorted(held)
    for split in ("train", "test"):
        rows = [{"id": f"{i}_9", "label": b, "text": text} for (a, b, i), text in reviews.items() if a == split]
        write(place / f"imdb/{split}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert read_one("imdb").fingerprint == data.fingerprint
    file = write(place / "imdb/test.jsonl", '{"text": "x", "label": "pos"}\n\n{"text": "y", "label": "fine"}\n')
    with pytest.raises(DataError, match="'fine'") as error:
        read_one("IMDb")
    assert (error.value.path, error.value.line) == (str(file), 3)
    (place / "imdb/train.jsonl").unlink()
    (place / "imdb/test.jsonl").unlink()
    file = write(place / "aclImdb/train/pos/notes.txt", "no review")
    with pytest.raises(DataError) as error:
        read_one("IMDb")
    assert error.value.path == str(file)


def test_zhang_csv_files_are_read_and_checked(place: Path) -> None:
    line = '"{}","Title ""{}""","Text, \\n of it."\n'
    write(place / "ag_news_csv/train.csv", "".join(line.format(1 + i % 4, i) for i in range(80)))
    write(place / "ag_news_csv/test.csv", line.format(4, "x"))
    data = read_one("AG-News")
    assert to_triples(data.splits["test"]) == [('Title "x" Text, \n of it.', "Sci/Tech")]
    assert data.labels == ("Business", "Sci/Tech", "Sports", "World")
    assert {split: len(rows) for split, rows in data.splits.items()} == {"train": 72, "dev": 8, "test": 1}
    file = write(place / "ag_news_csv/test.csv", line.format(4, "x") + line.format(5, "y"))
    with pytest.raises(DataError, match="'5'") as error:
        read_one("agnews")
    assert (error.value.path, error.value.line) == (str(file), 2)
    write(place / "ag_news_csv/test.csv", line.format(4, "x") + '"4","no text"\n')
    with pytest.raises(DataError) as error:
        read_one("AG-News")
    assert (error.value.path, error.value.line) == (str(file), 2)
    write(place / "yelp_review_polarity_csv/train.csv", "".join(f'"{1 + i % 2}","Good {i}."\n' for i in range(24)))
    write(place / "yelp_review_polarity_csv/test.csv", '"2","Fine."\n')
    assert to_triples(read_one("Yelp-2").splits["test"]) == [("Fine.", "pos")]


def test_glue_test_sets_are_read_without_labels(place: Path) -> None:
    for name in ("MNLI", "QNLI", "QQP"):
        for file, text in SAMPLES[name].items():
            write(place / "glue" / name / file, text)
    write(place / "glue/QQP/test.tsv", "id\tquestion1\tquestion2\n0\tA?\tB?\n1\tC?\tD?\n")
    write(place / "glue/QNLI/test.tsv", "index\tquestion\tsentence\n0\tA?\tB.\n")
    parses = "index\tpromptID\tpairID\tgenre\ta\tb\tc\td\tsentence1\tsentence2\n"
    for part in ("matched", "mismatched"):
        write(place / f"glue/MNLI/test_{part}.tsv", f"{parses}7\t1\t1n\tx\t(\t(\t(\t(\tOne {part}.\tTwo.\n")
    write(place / "glue/diagnostic/diagnostic.tsv", "index\tsentence1\tsentence2\n0\tThe cat.\tA cat.\n")
    rows = read_one("QQP").splits["test"]
    assert (rows.texts, rows.seconds, rows.labels, rows.ids) == (["A?", "C?"], ["B?", "D?"], None, ["0", "1"])
    assert read_one("QNLI").splits["test"].seconds == ["B."]
    data = read_one("MNLI").splits
    assert (data["test"].texts, data["test_mismatched"].texts) == (["One matched."], ["One mismatched."])
    assert (data["test"].ids, data["diagnostic"].seconds) == (["7"], ["A cat."])


@pytest.mark.parametrize(
    ("name", "file", "content", "line"),
    [
        ("QQP", "test.tsv", "id\tquestion1\tquestion2\n0\tA?\tB?\n1\tcut off\n", 3),
        ("QNLI", "dev.tsv", "index\tquestion\tsentence\tlabel\n0\tA?\tB.\tyes\n", 2),
        ("STS-B", "train.tsv", "index\tsentence1\tsentence2\tscore\n0\tA.\tB.\thigh\n", 2),
    ],
)
def test_malformed_glue_row_raises_with_its_line(place: Path, name: str, file: str, content: str, line: int) -> None:
    for sample, text in SAMPLES[name].items():
        write(place / "glue" / name / sample, text)
    path = write(place / "glue" / name / file, content)
    with pytest.raises(DataError) as error:
        read_one(name)
    assert (error.value.path, error.value.line) == (str(path), line)


def test_find_benchmark_by_name_and_unknown_name_raises_with_hint(place: Path) -> None:
    assert find_benchmark("snli") is BENCHMARKS["SNLI"]
    assert find_benchmark("agnews") is BENCHMARKS["AG-News"]
    for task in BENCHMARKS.values():
        assert task.dev
        assert task.metrics
        assert find_benchmark(task.name) is task
    with pytest.raises(NextwordError, match="snli"):
        read_one("SNLI")
    for name, hint in (
        ("conll2003", "bert/tag"),
        ("lambada", "nextword evaluate --list-tasks"),
        ("scitale", "SciTail?"),
    ):
        with pytest.raises(UnknownName) as error:
            read_one(name)
        assert error.value.name == name
        assert hint in str(error.value)


def test_real_imdb_has_the_published_sizes(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(shared))
    data = read_one("IMDb")
    assert {split: len(rows) for split, rows in data.splits.items()} == {"train": 22500, "dev": 2500, "test": 25000}
    assert data.balance == {"neg": 0.5, "pos": 0.5}
    seen = set(data.splits["train"].texts) | set(data.splits["dev"].texts)
    assert len(seen & set(data.splits["test"].texts)) == 123
