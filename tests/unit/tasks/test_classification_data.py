"""Labelled data: GLUE's official files, which differ in everything, and a user's own tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nextword.core.errors import NextwordError
from nextword.data.tables import Columns, Rows, guess, held_out, read_table
from nextword.tasks.datasets.catalog import BENCHMARKS, find_benchmark
from nextword.tasks.datasets.glue import SUITE_TASKS
from nextword.tasks.text_data import open_data
from tests.support.tiny_transfer import written

# Small samples in the formats that the benchmark hands out
SAMPLES: dict[str, dict[str, str]] = {
    "CoLA": {
        "train.tsv": 'gj04\t1\t\tShe said "no.\ngj04\t0\t*\tShe hoarse.\n',
        "dev.tsv": "cj99\t0\t?*\tThe more eat.\n",
        "test.tsv": "index\tsentence\n0\tBill.\n",
    },
    "SST-2": {
        "train.tsv": "sentence\tlabel\nno wit \t0\nso good \t1\n",
        "dev.tsv": "sentence\tlabel\nit 's fine . \t1\n",
        "test.tsv": "index\tsentence\n0\tuneasy .\n",
    },
    "MRPC": {
        "train.tsv": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
        '1\t7\t8\tHe said "yes.\tHe agreed.\n0\t9\t10\tA.\tB.\n',
        "dev.tsv": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t1\t2\tOne.\tUna.\n",
    },
    "STS-B": {
        split: "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
        "0\tmain\tMSRvid\t2012\t1\tnone\tnone\tA plane.\tAn air plane.\t5.000\n"
        "1\tmain\tMSRvid\t2012\t2\tnone\tnone\tA man.\tA dog.\t0.500\n"
        for split in ("train.tsv", "dev.tsv")
    },
    "QQP": {
        "train.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
        "1\t2\t3\tWhy?\tHow come?\t1\n4\t5\t6\tcut off\n7\t8\t9\tWho?\tWhen?\t0\n",
        "dev.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\tA?\tB?\t0\n",
    },
    "MNLI": {
        "train.tsv": "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
        "sentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label\n"
        "0\t1\t1n\tfiction\t( a )\t( b )\t(S a)\t(S b)\tIt rains.\tIt is wet.\tneutral\tentailment\n"
        "1\t1\t1e\tfiction\t( a )\t( b )\t(S a)\t(S b)\tIt rains.\tIt is dry.\tneutral\tcontradiction\n"
        "2\t1\t1c\tfiction\t( a )\t( b )\t(S a)\t(S b)\tIt rains.\tI sing.\tneutral\tneutral\n",
        **{
            f"dev_{part}.tsv": "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
            "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\t"
            "gold_label\n"
            f"0\t1\t1n\t{part}\t( a )\t( b )\t(S a)\t(S b)\tHe ran.\tHe moved.\ta\tb\tc\td\te\tentailment\n"
            f"1\t1\t1n\t{part}\t( a )\t( b )\t(S a)\t(S b)\tHe ran.\tHe won.\ta\tb\tc\td\te\t-\n"
            for part in ("matched", "mismatched")
        },
    },
    "QNLI": {
        split: "index\tquestion\tsentence\tlabel\n0\tWhen?\tIn 1812.\tentailment\n1\tWho?\tIn May.\tnot_entailment\n"
        for split in ("train.tsv", "dev.tsv")
    },
    "RTE": {
        split: "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tentailment\n1\tC.\tD.\tnot_entailment\n"
        for split in ("train.tsv", "dev.tsv")
    },
    "WNLI": {
        split: "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\t0\n1\tC.\tD.\t1\n" for split in ("train.tsv", "dev.tsv")
    },
}


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
def test_official_files(glue: Path, name: str, text: str, second: str | None, label: str, labels: Any) -> None:
    data = open_data(name)
    train = data.splits["train"]
    assert (train.texts[0], train.seconds and train.seconds[0], train.labels and train.labels[0]) == (
        text,
        second,
        label,
    )
    assert data.labels == labels
    assert len(data.splits["dev"])
    if "test" in data.splits:  # its labels are kept back
        assert data.splits["test"].labels is None
        assert data.splits["test"].ids == ["0"]
    assert (data.kind == "classify") == (second is None)
    assert data.metrics[0] == BENCHMARKS[name].metrics[0]
    assert open_data(f"glue/{name.lower()}").fingerprint == data.fingerprint


def test_headlines_are_those_of_the_benchmark() -> None:
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


def test_what_official_files_are_missing_is_said(glue: Path) -> None:
    assert any("1 rows of train.tsv have too few columns" in note for note in open_data("QQP").notes)
    assert any("the first is line 3" in note for note in open_data("QQP").notes)
    data = open_data("MNLI")
    assert any("1 pairs of dev have no label that annotators agreed on" in note for note in data.notes)
    assert len(data.splits["mismatched"]) == 1
    (glue / "RTE/dev.tsv").unlink()
    with pytest.raises(NextwordError, match=r"lacks dev\.tsv"):
        open_data("RTE")
    (glue / "RTE/train.tsv").unlink()
    with pytest.raises(NextwordError, match=r"RTE .* is not on this machine"):
        open_data("RTE")
    (glue / "QNLI/train.tsv").write_text("a\tb\n1\t2\n")
    with pytest.raises(NextwordError, match="has no column 'question'"):
        open_data("QNLI")
    with pytest.raises(NextwordError, match="leave --kind and columns out"):
        open_data("CoLA", Columns("text"))


def test_mrpc_as_microsoft_hands_it_out(glue: Path) -> None:
    folder = glue / "MRPC"
    rows = "".join(f"{i % 2}\t{i}\t{i + 100}\tFirst {i}.\tSecond {i}.\n" for i in range(40))
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).unlink()
    (folder / "msr_paraphrase_train.txt").write_text(header + rows, encoding="utf-8")
    (folder / "msr_paraphrase_test.txt").write_text(header + "1\t1\t2\tX.\tY.\n", encoding="utf-8")
    data = open_data("MRPC")
    assert {split: len(some) for split, some in data.splits.items()} == {"train": 36, "dev": 4, "test": 1}
    assert any("4 training pairs are held out" in note for note in data.notes)
    (folder / "dev_ids.tsv").write_text("3\t103\n5\t105\n7\t107\n")
    data = open_data("MRPC")
    assert data.splits["dev"].texts == ["First 3.", "First 5.", "First 7."]
    assert len(data.splits["train"]) == 37


def test_the_real_files(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(shared))
    found = {name: {s: len(rows) for s, rows in open_data(name).splits.items()} for name in (*SUITE_TASKS, "WNLI")}
    assert found == {
        "CoLA": {"train": 8551, "dev": 1043, "test": 1063},
        "MRPC": {"train": 3669, "dev": 407, "test": 1725},
        "RTE": {"train": 2490, "dev": 277, "test": 3000},
        "SST-2": {"train": 67349, "dev": 872, "test": 1821},
        "STS-B": {"train": 5749, "dev": 1500, "test": 1379},
        "WNLI": {"train": 635, "dev": 71, "test": 146},
    }


# ------------------------------------------------------------------------------------------------ a user's own


REVIEWS = [(f"review {i} is {'good' if i % 3 else 'bad'}", "up" if i % 3 else "down", i) for i in range(60)]


def test_a_csv_of_reviews(tmp_path: Path) -> None:
    data = open_data(str(written(tmp_path / "r.csv", ["Review", "Sentiment", "id"], REVIEWS)))
    assert data.columns == Columns("Review", "", "Sentiment")
    assert data.labels == ("down", "up")
    assert (len(data.splits["train"]), len(data.splits["dev"])) == (54, 6)
    assert data.splits["dev"].labels is not None
    assert data.splits["dev"].labels.count("down") == 2  # a tenth of each class
    assert data.balance == {"down": 18 / 54, "up": 36 / 54}
    assert "columns by their names: text 'Review', label 'Sentiment'" in data.notes
    assert any("6 rows of 60 are held out" in note for note in data.notes)


def test_the_same_rows_are_held_out_whatever_stands_beside_them() -> None:
    texts = [f"text {i}" for i in range(200)]
    rows = Rows(texts, None, ["a"] * 200)
    chosen = {texts[i] for i in held_out(rows)}
    again = Rows(texts[::-1], None, ["a"] * 200)
    assert {again.texts[i] for i in held_out(again)} == chosen
    assert len(chosen) == 20
    double = Rows([*texts, *texts], None, ["a"] * 400)
    both = held_out(double)
    assert all((i + 200) % 400 in both for i in both)  # a row and its copy stay together


def test_json_lines_and_tabs_and_folders(tmp_path: Path) -> None:
    lines = [json.dumps({"body": text, "stars": i % 3, "note": None}) for text, _, i in REVIEWS]
    (tmp_path / "r.jsonl").write_text("\n".join(lines))
    data = open_data(str(tmp_path / "r.jsonl"), Columns(label="stars"))
    assert data.columns == Columns("body", "", "stars")
    assert data.labels == ("0", "1", "2")
    folder = tmp_path / "mine"
    folder.mkdir()
    for name, some in (("train", REVIEWS[:30]), ("valid", REVIEWS[30:50]), ("test", REVIEWS[50:])):
        rows = "".join(f'{label}\tI said "{text}\n' for text, label, _ in some)
        (folder / f"{name}.tsv").write_text("label\ttext\n" + rows)
    data = open_data(str(folder))
    assert {split: len(rows) for split, rows in data.splits.items()} == {"train": 30, "dev": 20, "test": 10}
    assert data.splits["train"].texts[0] == 'I said "review 0 is bad'
    (folder / "test.tsv").write_text("text\nhello\n")
    assert open_data(str(folder)).splits["test"].labels is None


def test_pairs_and_a_split_column(tmp_path: Path) -> None:
    rows = [(f"a {i}", f"b {i}", i % 2, ("train", "validation", "test")[i % 3]) for i in range(30)]
    path = str(written(tmp_path / "p.csv", ["premise", "hypothesis", "label", "split"], rows))
    data = open_data(path)
    assert data.columns == Columns("premise", "hypothesis", "label")
    assert (data.kind, data.frame) == ("pair", "entail")
    assert {split: len(some) for split, some in data.splits.items()} == {"train": 10, "dev": 10, "test": 10}
    assert "splits by the column 'split'" in data.notes
    alone = open_data(path, Columns("premise"))  # whoever names the text wants that one
    assert (alone.kind, alone.columns.second) == ("classify", "")
    assert open_data(path, kind="classify").columns.second == ""
    path = str(written(tmp_path / "q.csv", ["text", "label", "split"], [("a", "b", "maybe")]))
    with pytest.raises(NextwordError, match="row 1: split is 'maybe'; expected train, dev or test"):
        open_data(path)


def test_many_numbers_are_a_number(tmp_path: Path) -> None:
    rows = [(f"text {i}", i / 10) for i in range(50)]
    path = str(written(tmp_path / "n.csv", ["text", "score"], rows))
    data = open_data(path)
    assert data.kind == "regress"
    assert data.metrics == ("spearman", "pearson")
    assert any("50 different numbers: a number is learnt" in note for note in data.notes)
    few = open_data(str(written(tmp_path / "f.csv", ["text", "score"], [(t, i % 5) for i, (t, _) in enumerate(rows)])))
    assert (few.kind, few.labels) == ("classify", ("0", "1", "2", "3", "4"))
    asked = open_data(str(tmp_path / "f.csv"), kind="regress")
    assert asked.kind == "regress"
    with pytest.raises(NextwordError, match="--kind pair is about two texts"):
        open_data(path, kind="pair")


def test_empty_texts_and_rows_seen_before_are_told(tmp_path: Path) -> None:
    rows = [("", "a", "train"), ("x", "b", "train"), ("x", "b", "dev"), ("y", "a", "dev")]
    data = open_data(str(written(tmp_path / "e.csv", ["text", "label", "split"], rows)))
    assert "1 of 2 texts of train are empty: they are read as such" in data.notes
    assert "1 of 2 rows of dev are in train too: they flatter the numbers" in data.notes


@pytest.mark.parametrize(
    ("header", "rows", "columns", "said"),
    [
        (["text", "label"], [("a", "x")] * 30, Columns(), "every training row has the label 'x'"),
        (["text", "label"], [("a", "x"), ("b", "y")], Columns(), "2 rows to train on and 0 to check with"),
        (["text", "label"], [("a", "x"), ("b", "")] * 9, Columns(), "9 of 18 rows of train have no label, .* row 2"),
        (["text", "label"], [("a", "x")], Columns("review"), "no column 'review'; it has text, label"),
        (["text", "label"], [("a", "x")], Columns(label="stars"), "no column 'stars'; it has text, label"),
        (["text", "foo", "bar"], [("a", "x", "y")], Columns(), "which column is the label"),
        (["label"], [("a",)], Columns(), "which column is the text"),
        (["text", "label"], [], Columns(), "has no row in it"),
        (["text", "label"], [("a", "b", "c")], Columns(), "line 2: 3 columns, and the header has 2"),
        (
            ["text", "label", "split"],
            [("a", "x", "train"), ("b", "y", "train"), ("c", "z", "dev")],
            Columns(),
            "dev has the label 'z', which no training row has",
        ),
        (["text", "label", "split"], [("a", "x", "dev")], Columns(), "no row's split is train"),
    ],
)
def test_what_is_wrong_with_a_table(tmp_path: Path, header: Any, rows: Any, columns: Columns, said: str) -> None:
    path = written(tmp_path / "t.csv", header, rows)
    with pytest.raises(NextwordError, match=said):
        open_data(str(path), columns)


def test_what_is_wrong_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"text": "a"}\n{"text": \n')
    with pytest.raises(NextwordError, match="line 2 is not JSON"):
        read_table(tmp_path / "x.jsonl")
    (tmp_path / "x.jsonl").write_text("[1]\n")
    with pytest.raises(NextwordError, match="line 1 is no JSON object"):
        read_table(tmp_path / "x.jsonl")
    (tmp_path / "x.csv").write_text('a,b\n"open,1\n')
    with pytest.raises(NextwordError, match="is not a valid row"):
        read_table(tmp_path / "x.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NextwordError, match=r"has no train\.csv"):
        open_data(str(tmp_path / "empty"))
    rows = [(f"t {i}", "high" if i == 3 else i) for i in range(40)]
    with pytest.raises(NextwordError, match=r"1 of 40 labels of train are no numbers, .* 'high' in row 4"):
        open_data(str(written(tmp_path / "n.csv", ["text", "label"], rows)), kind="regress")


def test_numbers_with_a_comma_for_a_point_are_no_classes(tmp_path: Path) -> None:
    """A spreadsheet that divides by semicolons writes them so."""
    path = tmp_path / "n.csv"
    path.write_text("text;price\n" + "".join(f"t {i};{i % 30},50\n" for i in range(300)))
    said = (
        r"300 of 300 labels of train are no numbers; the first is '0,50' in row 1\. Write a point where decimals begin"
    )
    for kind in ("", "regress"):
        with pytest.raises(NextwordError, match=said):
            open_data(str(path), kind=kind)
    assert len(open_data(str(path), kind="classify").labels) == 30


@pytest.mark.parametrize("odd", ["nan", "NaN", "-inf", "N/A"])
def test_a_label_that_is_no_number_among_numbers_is_named_with_its_row(tmp_path: Path, odd: str) -> None:
    rows = [(f"t {i}", odd if i in (6, 9) else i / 4) for i in range(40)]
    path = str(written(tmp_path / "n.csv", ["text", "score"], rows))
    with pytest.raises(NextwordError, match=f"2 of 40 labels of train are no numbers, .* '{odd}' in row 7. Mend"):
        open_data(path)
    with pytest.raises(NextwordError, match=f"'{odd}' in row 7"):
        open_data(path, kind="regress")
    few = [(f"t {i}", odd if i % 3 == 0 else i % 3) for i in range(60)]  # few numbers are names of classes
    assert odd in open_data(str(written(tmp_path / "c.csv", ["text", "label"], few))).labels
    (tmp_path / "two").mkdir()
    written(tmp_path / "two/train.csv", ["text", "score"], [(f"t {i}", i / 4) for i in range(40)])
    written(tmp_path / "two/dev.csv", ["text", "score"], [("a", 3), ("b", odd)])
    with pytest.raises(NextwordError, match=f"1 of 2 labels of dev are no numbers, .* '{odd}' in row 2"):
        open_data(str(tmp_path / "two"))


def test_plain_lines_and_unknown_names(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("one\n\ntwo\n")
    assert read_table(tmp_path / "lines.txt").rows == [["one"], ["two"]]
    (tmp_path / "pairs.txt").write_text("one\ta\ntwo\n")
    assert read_table(tmp_path / "pairs.txt").rows == [["one", "a"], ["two", ""]]
    table = read_table(written(tmp_path / "t.csv", ["short", "long"], [("x", "a long one"), ("y", "another")]))
    assert guess(table, Columns()) == Columns("long", "", "short")
