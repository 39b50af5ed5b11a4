"""Question files: SQuAD JSON, tables, misplaced and absent answers, and malformed entries."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from nextword.core.errors import NextwordError, UnknownName
from nextword.data.squad import NOT_FOUND, locate_answer, read_squad
from nextword.data.tables import Columns
from nextword.tasks.base import draw_fraction
from nextword.tasks.datasets.questions import read_question_file, read_questions
from nextword.tasks.plan import make_plan
from tests.support.tiny_questions import make_squad, write_json, write_json_lines
from tests.support.tiny_transfer import make_run, write_table

CONTEXT = "Denver beat Carolina in 2016. Carolina had beaten Denver before."
SAMPLE: dict[str, Any] = {
    "version": "v2.0",
    "data": [
        {
            "title": "Super_Bowl",
            "paragraphs": [
                {
                    "context": CONTEXT,
                    "qas": [
                        {
                            "id": "a1",
                            "question": " Who won? ",
                            "is_impossible": False,
                            "answers": [
                                {"text": "Denver", "answer_start": 0},
                                {"text": "Denver beat", "answer_start": 0},
                            ],
                        },
                        {
                            "id": "a2",
                            "question": "Who sang?",
                            "is_impossible": True,
                            "answers": [],
                            "plausible_answers": [{"text": "Denver", "answer_start": 0}],
                        },
                    ],
                }
            ],
        }
    ],
}


def test_read_squad_returns_questions_of_official_file(tmp_path: Path) -> None:
    data = read_squad(write_json(tmp_path / "dev-v2.0.json", SAMPLE))
    first, second = data.all
    assert (first.id, first.question, first.context) == ("a1", "Who won?", CONTEXT)
    assert first.answers == ("Denver", "Denver beat")
    assert first.place == (0, 6)
    assert second.answers == ()  # plausible answers do not count
    assert second.place is None
    assert not second.is_lost
    assert data.has_unanswerable
    assert data.is_labeled
    assert (data.moved, data.absent) == ((), ())


def test_read_squad_without_answers_is_unlabeled(tmp_path: Path) -> None:
    sample = copy.deepcopy(SAMPLE)
    del sample["data"][0]["paragraphs"][0]["qas"][0]["answers"]
    data = read_squad(write_json(tmp_path / "test.json", sample))
    assert data.all[0].answers is None
    assert not data.is_labeled


def test_locate_answer_searches_near_the_given_position() -> None:
    assert locate_answer(CONTEXT, "Carolina", 12) == ("Carolina", 12, False)
    assert locate_answer(CONTEXT, "Carolina", 13) == ("Carolina", 12, True)
    assert locate_answer(CONTEXT, "Carolina", 28) == ("Carolina", 30, True)  # the nearer one
    assert locate_answer(CONTEXT, " Carolina\n", 28) == ("Carolina", 30, True)
    assert locate_answer(CONTEXT, "Seattle", 3) == ("Seattle", NOT_FOUND, False)
    assert locate_answer(CONTEXT, "Denver", -5) == ("Denver", 0, True)
    assert locate_answer(CONTEXT, "Carolina", None) == ("Carolina", 12, False)  # tables need no answer position


@pytest.mark.parametrize(
    ("context", "answer", "near", "place"),
    [
        ("The cart was full of art.", "art", None, 21),
        ("The cart was full of art.", "art", 5, 5),  # the given position
        ("The cart was full of art.", "art", 6, 21),  # not the given position
        ("art, cart, art", "art", 8, 11),  # the nearer of the two
        ("artful art", "art", None, 7),
        ("carts, and smart", "art", None, 1),  # never a separate word: the first occurrence
        ("It cost 1905 in 190.", "190", None, 16),
        ("Zoë knew Zo", "Zo", None, 9),
        ("Zoe\u0308 knew Zoe", "Zoe", None, 10),  # a combining mark belongs to its letter
        ("कामा काम", "काम", None, 5),
        ("US$5 and $5", "$5", None, 2),  # a separator ends a word
        ("東京大学は東京にある", "大学", None, 2),  # no spaces
        ("art", "art", None, 0),
    ],
)
def test_locate_answer_prefers_whole_words(context: str, answer: str, near: int | None, place: int) -> None:
    assert locate_answer(context, answer, near)[1] == place


def test_misplaced_and_absent_answers_are_noted_and_kept(tmp_path: Path) -> None:
    content = make_squad(40)
    qas = [paragraph["qas"][0] for paragraph in content["data"][0]["paragraphs"]]
    for item in qas[:3]:
        item["answers"][0]["answer_start"] += 1
    qas[5]["answers"][0]["text"] = "Seattle"
    data = read_questions(str(write_json(tmp_path / "mine.json", content)))
    assert sum(map(len, data.splits.values())) == 40
    notes = " | ".join(data.notes)
    moved = {split: len(some.moved) for split, some in data.splits.items()}
    assert sum(moved.values()) == 3
    for split, count in moved.items():
        assert (f"{count} questions of {split} have an answer at another place" in notes) == (count > 0)
    assert "(q0-5)" in notes
    lost = [item for some in data.splits.values() for item in some.all if item.is_lost]
    assert [item.id for item in lost] == ["q0-5"]


def test_absent_answers_are_noted_once(tmp_path: Path) -> None:
    content = make_squad(40)
    for paragraph in content["data"][0]["paragraphs"][:20]:
        paragraph["qas"][0]["answers"][0]["text"] = "Seattle"
    make_run(tmp_path / "bert")
    file = str(write_json(tmp_path / "mine.json", content))
    notes = make_plan("bert/span", tmp_path / "bert", file, device="cpu").notes
    assert sum("of train" in note and "q0-" in note for note in notes) == 1


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda d: d.pop("data"), "'data'.*version"),
        (lambda d: d["data"].append(3), "article 2.*3"),
        (lambda d: d["data"][0].pop("paragraphs"), r"article 1 \(Super_Bowl\).*'paragraphs'"),
        (
            lambda d: d["data"][0]["paragraphs"][0].pop("context"),
            r"article 1 \(Super_Bowl\), paragraph 1.*'context'",
        ),
        (
            lambda d: d["data"][0]["paragraphs"][0]["qas"][0].pop("id"),
            "paragraph 1, question 1.*'id'",
        ),
        (
            lambda d: d["data"][0]["paragraphs"][0]["qas"][0]["answers"][1].pop("text"),
            r"question 1 \(id a1\), answer 2.*'text'",
        ),
        (
            lambda d: d["data"][0]["paragraphs"][0]["qas"][0]["answers"][0].update(answer_start="0"),
            r"\(id a1\), answer 1.*answer_start.*0",
        ),
        (
            lambda d: d["data"][0]["paragraphs"][0]["qas"][0].update(is_impossible=True),
            r"\(id a1\).*is_impossible",
        ),
        (lambda d: d["data"][0]["paragraphs"][0]["qas"][1].update(id="a1"), "'a1'"),
        (lambda d: d["data"][0]["paragraphs"][0].update(context="\ud800"), "surrogate"),
        (lambda d: d.update(data=[]), "x.json"),
    ],
)
def test_read_squad_with_malformed_entry_raises_with_its_name(change: Any, named: str, tmp_path: Path) -> None:
    sample = copy.deepcopy(SAMPLE)
    change(sample)
    with pytest.raises(NextwordError, match=named):
        read_squad(write_json(tmp_path / "x.json", sample))


def test_read_question_file_of_invalid_json_raises(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"data": [')
    with pytest.raises(NextwordError, match="not JSON"):
        read_question_file(tmp_path / "x.json")


# ------------------------------------------------------------------------------------------------ tables and sets


def test_read_question_file_of_user_table_recognizes_columns(tmp_path: Path) -> None:
    rows = [("Who won?", CONTEXT, "Denver"), ("Who sang?", CONTEXT, ""), ("When?", CONTEXT, "2016")]
    data, columns, table = read_question_file(write_table(tmp_path / "q.csv", ["question", "context", "answer"], rows))
    assert columns == Columns("context", "question", "answer")
    assert [item.answers for item in data.all] == [("Denver",), (), ("2016",)]
    assert [item.place for item in data.all] == [(0, 6), None, (24, 28)]
    assert [item.id for item in data.all] == ["0", "1", "2"]
    assert table is not None
    same = write_table(
        tmp_path / "same.csv", ["id", "question", "context"], [("7", "who ?", "x"), ("7", "when ?", "x")]
    )
    assert [item.id for item in read_question_file(same)[0].all] == ["0", "1"]  # ids that repeat are ignored
    data, columns, _ = read_question_file(
        write_table(tmp_path / "own.csv", ["q", "p", "a"], rows), required=Columns("p", "q", "a")
    )
    assert [item.place for item in data.all] == [(0, 6), None, (24, 28)]
    with pytest.raises(NextwordError, match=r"passage.*q, p, a"):
        read_question_file(tmp_path / "own.csv", required=Columns(header="yes"))
    with pytest.raises(NextwordError, match=r"'z'.*q, p, a"):
        read_question_file(tmp_path / "own.csv", required=Columns("z", header="yes"))


def test_read_json_lines_accepts_several_answer_formats(tmp_path: Path) -> None:
    base = {"question": "Who?", "context": CONTEXT}
    rows = [
        {**base, "id": "x", "answers": {"text": ["Carolina"], "answer_start": [30]}},  # as on the Hub
        {**base, "id": "y", "answers": ["Carolina", "Denver"]},
        {**base, "id": "z", "answers": [{"text": "Denver", "answer_start": 50}]},
        {**base, "id": "w", "answers": []},
    ]
    for name in ("q.jsonl", "q.json"):
        data, _, _ = read_question_file(write_json_lines(tmp_path / name, rows))
        assert [item.id for item in data.all] == ["x", "y", "z", "w"]
        assert [item.starts for item in data.all] == [(30,), (12, 0), (50,), ()]
    with pytest.raises(NextwordError, match="row 1"):
        read_question_file(write_json_lines(tmp_path / "bad.jsonl", [{**base, "answers": [3]}]))
    with pytest.raises(NextwordError, match=r"row 1.*'x'"):
        read_question_file(
            write_json_lines(tmp_path / "bad.jsonl", [{**base, "answer": "Denver", "answer_start": "x"}])
        )


def test_squad_by_name_reads_available_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path))
    with pytest.raises(NextwordError, match="squad"):
        read_questions("squad")
    write_json(tmp_path / "squad/dev-v1.1.json", make_squad(4, seed=1))
    with pytest.raises(NextwordError, match="only dev"):
        read_questions("squad")
    write_json(tmp_path / "squad/du_test-v1.1.json", make_squad(8))
    data = read_questions("squad")
    assert {split: len(some) for split, some in data.splits.items()} == {"train": 8, "dev": 4}
    assert any("du_test-v1.1.json" in note for note in data.notes)
    write_json(tmp_path / "squad/train-v1.1.json", make_squad(9, seed=2))
    data = read_questions("squad")
    assert len(data.splits["train"]) == 9
    assert not data.notes
    assert data.metrics == ("answer_f1", "exact")
    assert not data.has_unanswerable


def test_read_questions_of_folder_notes_passages_in_both_splits(tmp_path: Path) -> None:
    content = make_squad(12, without=0.4, version="v2.0")
    write_json(tmp_path / "train-v2.0.json", content)
    write_json(tmp_path / "dev-v2.0.json", content)
    data = read_questions(str(tmp_path))
    assert "12 of 12 questions of dev are in train too" in data.notes
    assert data.has_unanswerable
    assert data.metrics == ("answer_f1", "exact", "has_answer_f1", "no_answer_f1")
    assert data.balance["without"] == pytest.approx(sum(not item.answers for item in data.splits["dev"].all) / 12)


def test_held_out_dev_keeps_questions_of_a_passage_together(tmp_path: Path) -> None:
    content = make_squad(60)
    for paragraph in content["data"][0]["paragraphs"]:
        more = copy.deepcopy(paragraph["qas"][0])
        paragraph["qas"].append({**more, "id": more["id"] + "b", "question": "and what then?"})
    data = read_questions(str(write_json(tmp_path / "mine.json", content)))
    train, dev = ({item.context for item in data.splits[split].all} for split in ("train", "dev"))
    assert not train & dev
    assert len(data.splits["dev"]) == 12
    again = read_questions(str(tmp_path / "mine.json"))
    assert again.fingerprint == data.fingerprint


def test_read_questions_of_unusable_data_raises(tmp_path: Path) -> None:
    with pytest.raises(UnknownName):
        read_questions(str(tmp_path / "nothing.json"))
    content = make_squad(30)
    for paragraph in content["data"][0]["paragraphs"]:
        paragraph["qas"][0]["answers"][0]["text"] = "Seattle"
    with pytest.raises(NextwordError, match=r"x.json"):
        read_questions(str(write_json(tmp_path / "x.json", content)))
    for paragraph in content["data"][0]["paragraphs"]:
        del paragraph["qas"][0]["answers"]
    with pytest.raises(NextwordError, match="'q0-0'"):
        read_questions(str(write_json(tmp_path / "x.json", content)))
    with pytest.raises(NextwordError, match="2 questions"):
        read_questions(str(write_json(tmp_path / "x.json", make_squad(2))))


def test_real_squad_has_the_published_sizes(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(shared))
    data = read_questions("squad")
    assert {split: len(some) for split, some in data.splits.items()} == {"train": 11_877, "dev": 10_570}
    assert all(not some.moved and not some.absent for some in data.splits.values())
    first = data.splits["dev"].all[0]
    assert first.place is not None
    assert first.context[slice(*first.place)] == "Denver Broncos" == json.loads(json.dumps(first.answers))[0]


def test_balance_of_fraction_counts_the_drawn_questions(tmp_path: Path) -> None:
    """Questions with absent answers are not trained on, and so are not sampled."""
    answers = ["king", "", "emperor", "king"]
    rows = [(f"who is {i} ?", f"the king {i} is far", answers[i % 4]) for i in range(80)]
    file = str(write_table(tmp_path / "q.csv", ["question", "context", "answer"], rows))
    make_run(tmp_path / "bert")
    plan = make_plan("bert/span", tmp_path / "bert", file, device="cpu")
    train = [item for item in plan.data.splits["train"].all if item.answers != ("emperor",)]
    assert plan.task.count(plan.examples["train"]) == len(train) < len(plan.data.splits["train"])
    chosen = [train[i] for i in draw_fraction(len(train), 0.25, 7)]
    assert plan.task.count(plan.task.sample(plan.examples["train"], 0.25, 7)) == len(chosen)
    without = sum(not item.answers for item in chosen) / len(chosen)
    assert plan.data.balance_of_fraction(0.25, 7) == pytest.approx({"with an answer": 1 - without, "without": without})
