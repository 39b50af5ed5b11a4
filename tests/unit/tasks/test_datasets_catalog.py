"""Tasks beyond GLUE: small samples in their official formats are read as they were written, and bad ones refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nextword.core.errors import NextwordError
from nextword.data.opening import open_corpus
from nextword.tasks.datasets.catalog import BENCHMARKS, find_benchmark
from nextword.tasks.text_data import open_data

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


def put(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def triples(rows: Any) -> list[tuple[str, ...]]:
    columns = [rows.texts, *([rows.seconds] if rows.seconds is not None else []), rows.labels]
    return list(zip(*columns, strict=True))


def as_json(rows: Any, annotators: int = 5) -> str:
    made = [
        {"annotator_labels": [gold] * annotators, "gold_label": gold, "sentence1": a, "sentence1_parse": "(ROOT)"}
        | {"sentence2": b, "sentence2_parse": "(ROOT)", "pairID": f"{i}.jpg#0r1n"}
        for i, (a, b, gold) in enumerate(rows)
    ]
    return "".join(json.dumps(one) + "\n" for one in made)


def as_table(rows: Any) -> str:
    lines = [
        f"{gold}\t( a )\t( b )\t(S a)\t(S b)\t{a}\t{b}\t1.jpg#0\t1.jpg#0r1n\t{gold}\t\t\t\t\n" for a, b, gold in rows
    ]
    return SNLI_HEADER + "".join(lines)


@pytest.mark.parametrize(("ending", "made"), [("jsonl", as_json), ("txt", as_table)])
def test_snli_round_trips(place: Path, ending: str, made: Any) -> None:
    for split in ("train", "dev", "test"):
        put(place / f"snli_1.0/snli_1.0_{split}.{ending}", made(PAIRS))
    data = open_data("SNLI")
    assert {split: triples(rows) for split, rows in data.splits.items()} == dict.fromkeys(
        ("train", "dev", "test"), PAIRS[:3]
    )
    assert data.labels == ("contradiction", "entailment", "neutral")
    assert "1 pairs of test have no label that annotators agreed on" in data.notes
    file = put(place / f"snli_1.0/snli_1.0_dev.{ending}", made([*PAIRS, ("A.", "B.", "maybe")]))
    with pytest.raises(NextwordError, match=rf"snli_1.0_dev.{ending}, line {5 if ending == 'jsonl' else 6}: .*'maybe'"):
        open_data("SNLI")
    put(file, '{"gold_label": "neutral", "sentence1": "A."}\n' if ending == "jsonl" else SNLI_HEADER + "neutral\tx\n")
    with pytest.raises(NextwordError, match=r"line 1 has no 'sentence2'|line 2 has 2 columns; 7 are needed"):
        open_data("SNLI")
    file.unlink()
    with pytest.raises(NextwordError, match=r"lacks snli_1.0_dev.jsonl or snli_1.0_dev.txt"):
        open_data("SNLI")


def test_multinli_as_its_authors_hand_it_out(place: Path) -> None:
    for part in ("train", "dev_matched", "dev_mismatched"):
        put(place / f"multinli_1.0/multinli_1.0_{part}.jsonl", as_json(PAIRS))
    data = open_data("MNLI")
    assert triples(data.splits["mismatched"]) == triples(data.splits["train"]) == PAIRS[:3]


def test_scitail_round_trips_in_both_formats(place: Path) -> None:
    for split in ("train", "dev", "test"):
        lines = "".join("\t".join(row) + "\n" for row in SCIENCE)
        put(place / f"SciTailV1.1/tsv_format/scitail_1.0_{split}.tsv", lines)
    data = open_data("SciTail")
    assert triples(data.splits["train"]) == SCIENCE
    as_snli = [(a, b, {"entails": "entailment"}.get(gold, gold)) for a, b, gold in SCIENCE]
    for split in ("train", "dev", "test"):
        (place / f"SciTailV1.1/tsv_format/scitail_1.0_{split}.tsv").unlink()
        put(place / f"SciTailV1.1/snli_format/scitail_1.0_{split}.txt", as_json(as_snli, 1))
    again = open_data("scitail")
    assert again.fingerprint == data.fingerprint
    put(place / "SciTailV1.1/tsv_format/scitail_1.0_dev.tsv", "A.\tB.\tentails\nA.\tB.\tfollows\n")
    with pytest.raises(
        NextwordError, match=r"scitail_1.0_dev.tsv, line 2: the label is 'follows'; expected one of ent"
    ):
        open_data("SciTail")


def test_imdb_as_folders_and_as_lines(place: Path, tmp_path: Path) -> None:
    reviews = {
        (split, side, i): f"A {side} film,<br />{split} {i}."
        for split in ("train", "test")
        for side in ("neg", "pos")
        for i in range(20)
    }
    for (split, side, i), text in reviews.items():
        put(place / f"aclImdb/{split}/{side}/{i}_{9 if side == 'pos' else 2}.txt", text)
    data = open_data("IMDb")
    assert {split: len(rows) for split, rows in data.splits.items()} == {"train": 36, "dev": 4, "test": 40}
    reviews = {key: text.replace("<br />", "\n") for key, text in reviews.items()}
    assert triples(data.splits["test"]) == [(t, side) for (split, side, _), t in reviews.items() if split == "test"]
    assert {document.text for document in open_corpus("imdb").documents("test")} == set(data.splits["test"].texts)
    held = [(text, side) for (split, side, _), text in reviews.items() if split == "train"]
    assert sorted(triples(data.splits["train"]) + triples(data.splits["dev"])) == sorted(held)
    for split in ("train", "test"):
        rows = [{"id": f"{i}_9", "label": b, "text": text} for (a, b, i), text in reviews.items() if a == split]
        put(place / f"imdb/{split}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert open_data("imdb").fingerprint == data.fingerprint
    put(place / "imdb/test.jsonl", '{"text": "x", "label": "pos"}\n\n{"text": "y", "label": "fine"}\n')
    with pytest.raises(NextwordError, match=r"test.jsonl, line 3: the label is 'fine'; expected one of neg, pos"):
        open_data("IMDb")
    (place / "imdb/train.jsonl").unlink()
    (place / "imdb/test.jsonl").unlink()
    put(place / "aclImdb/train/pos/notes.txt", "no review")
    with pytest.raises(NextwordError, match=r"notes.txt is no review of IMDb"):
        open_data("IMDb")


def test_the_csv_files_of_zhang(place: Path) -> None:
    line = '"{}","Title ""{}""","Text, \\n of it."\n'
    put(place / "ag_news_csv/train.csv", "".join(line.format(1 + i % 4, i) for i in range(80)))
    put(place / "ag_news_csv/test.csv", line.format(4, "x"))
    data = open_data("AG-News")
    assert triples(data.splits["test"]) == [('Title "x" Text, \n of it.', "Sci/Tech")]
    assert data.labels == ("Business", "Sci/Tech", "Sports", "World")
    assert {split: len(rows) for split, rows in data.splits.items()} == {"train": 72, "dev": 8, "test": 1}
    put(place / "ag_news_csv/test.csv", line.format(4, "x") + line.format(5, "y"))
    with pytest.raises(NextwordError, match=r"test.csv, line 2: the label is '5'; expected one of 1, 2, 3, 4"):
        open_data("agnews")
    put(place / "ag_news_csv/test.csv", line.format(4, "x") + '"4","no text"\n')
    with pytest.raises(NextwordError, match=r"test.csv, line 2 has 2 columns; expected 3"):
        open_data("AG-News")
    put(place / "yelp_review_polarity_csv/train.csv", "".join(f'"{1 + i % 2}","Good {i}."\n' for i in range(24)))
    put(place / "yelp_review_polarity_csv/test.csv", '"2","Fine."\n')
    assert triples(open_data("Yelp-2").splits["test"]) == [("Fine.", "pos")]


def test_splits_of_glue_whose_labels_are_kept_back(place: Path) -> None:
    from tests.unit.test_transfer_data import SAMPLES

    for name in ("MNLI", "QNLI", "QQP"):
        for file, text in SAMPLES[name].items():
            put(place / "glue" / name / file, text)
    put(place / "glue/QQP/test.tsv", "id\tquestion1\tquestion2\n0\tA?\tB?\n1\tC?\tD?\n")
    put(place / "glue/QNLI/test.tsv", "index\tquestion\tsentence\n0\tA?\tB.\n")
    parses = "index\tpromptID\tpairID\tgenre\ta\tb\tc\td\tsentence1\tsentence2\n"
    for part in ("matched", "mismatched"):
        put(place / f"glue/MNLI/test_{part}.tsv", f"{parses}7\t1\t1n\tx\t(\t(\t(\t(\tOne {part}.\tTwo.\n")
    put(place / "glue/diagnostic/diagnostic.tsv", "index\tsentence1\tsentence2\n0\tThe cat.\tA cat.\n")
    rows = open_data("QQP").splits["test"]
    assert (rows.texts, rows.seconds, rows.labels, rows.ids) == (["A?", "C?"], ["B?", "D?"], None, ["0", "1"])
    assert open_data("QNLI").splits["test"].seconds == ["B."]
    found = open_data("MNLI").splits
    assert (found["test"].texts, found["test_mismatched"].texts) == (["One matched."], ["One mismatched."])
    assert (found["test"].ids, found["diagnostic"].seconds) == (["7"], ["A cat."])
    put(place / "glue/QQP/test.tsv", "id\tquestion1\tquestion2\n0\tA?\tB?\n1\tcut off\n")
    with pytest.raises(NextwordError, match=r"test.tsv, line 3 has 2 columns; 3 are needed"):
        open_data("QQP")
    put(place / "glue/QNLI/dev.tsv", "index\tquestion\tsentence\tlabel\n0\tA?\tB.\tyes\n")
    with pytest.raises(
        NextwordError, match=r"dev.tsv, line 2: the label is 'yes'; expected one of entailment, not_ent"
    ):
        open_data("QNLI")
    put(place / "glue/STS-B/train.tsv", "index\tsentence1\tsentence2\tscore\n0\tA.\tB.\thigh\n")
    with pytest.raises(NextwordError, match=r"train.tsv, line 2: the label is 'high', which is no number"):
        open_data("STS-B")


def test_names_and_what_else_a_name_may_be(place: Path) -> None:
    assert find_benchmark("snli") is BENCHMARKS["SNLI"]
    assert find_benchmark("agnews") is BENCHMARKS["AG-News"]
    for task in BENCHMARKS.values():
        assert task.dev
        assert task.metrics
        assert find_benchmark(task.name) is task
    with pytest.raises(NextwordError, match=r"snli .* is not on this machine"):
        open_data("SNLI")
    with pytest.raises(NextwordError, match="conll2003 has tags of words"):
        open_data("conll2003")
    with pytest.raises(NextwordError, match="nextword evaluate --tasks"):
        open_data("lambada")
    with pytest.raises(NextwordError, match="Did you mean SciTail"):
        open_data("scitale")


def test_the_real_reviews(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(shared))
    data = open_data("IMDb")
    assert {split: len(rows) for split, rows in data.splits.items()} == {"train": 22500, "dev": 2500, "test": 25000}
    assert data.balance == {"neg": 0.5, "pos": 0.5}
    seen = set(data.splits["train"].texts) | set(data.splits["dev"].texts)
    assert len(seen & set(data.splits["test"].texts)) == 123
