"""Multiple choice: readers of RACE, Story Cloze, SWAG and tables of users, frames, and scores."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nextword.core.errors import DataError, InvalidSetting, NextwordError
from nextword.data.tables import Columns, Rows, choose_held_out, concatenate_rows, read_table
from nextword.models import model_class
from nextword.models.framing import add_missing_tokens
from nextword.tasks.classification import TextHeadConfig
from nextword.tasks.datasets.multiple_choice import candidate_index, multiple_choice_rows, read_multiple_choice
from nextword.tasks.multiple_choice import ChoiceBatches, ChoiceHead, ChoiceObjective, encode_choices
from nextword.tasks.text_data import read_one
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer
from tests.support.tiny_questions import draw_endings, write_json, write_json_lines
from tests.support.tiny_transfer import SHAPE, SHAPES, SPECS, write_table

PASSAGE: dict[str, Any] = {
    "answers": ["B", "D"],
    "options": [["At home.", "In town.", "At sea.", "Nowhere."], ["Red", "Blue", "Green", "Grey"]],
    "questions": ["Where did he go?", "The house was _ ."],
    "article": "He went to town.\nThe house was grey.",
    "id": "middle1.txt",
}
STORY = [
    *("InputStoryid", "InputSentence1", "InputSentence2", "InputSentence3", "InputSentence4"),
    *("RandomFifthSentenceQuiz1", "RandomFifthSentenceQuiz2", "AnswerRightEnding"),
]
SWAG = [
    *("", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source"),
    *("ending0", "ending1", "ending2", "ending3", "label"),
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path))
    return tmp_path


def write_race(folder: Path) -> None:
    for split in ("train", "dev", "test"):
        for part, numbers in (("middle", (10, 2)), ("high", (7,))):
            for number in numbers:
                own = {**PASSAGE, "article": f"{split} {part} {number}. {PASSAGE['article']}"}
                write_json(folder / split / part / f"{number}.txt", own)


def test_race_reads_passages_in_numerical_order(home: Path) -> None:
    write_race(home / "race/RACE")
    data = read_one("RACE")
    assert (data.kind, data.frame, data.metrics, data.labels) == ("multiple_choice", "choose", ("accuracy",), ())
    assert {split: len(rows) for split, rows in data.splits.items()} == {"train": 6, "dev": 6, "test": 6}
    rows = data.splits["train"]
    assert rows.texts[0] == "train middle 2. He went to town.\nThe house was grey."  # 2 before 10
    assert rows.seconds == ["Where did he go?", "The house was _ ."] * 3
    assert rows.labels == ["1", "3"] * 3
    assert rows.choices is not None
    assert rows.choices[0] == ("At home.", "In town.", "At sea.", "Nowhere.")
    assert data.balance == {"1": 0.5, "3": 0.5}
    assert [len(read_one(name).splits["dev"]) for name in ("RACE-middle", "race-h", "race-m")] == [4, 2, 4]
    assert read_one(str(home / "race/RACE")).splits["train"] == rows  # by path
    some, _, table = read_multiple_choice(home / "race/RACE/test/high")
    assert some.texts == ["test high 7. He went to town.\nThe house was grey."] * 2
    assert table.header == ["question", "choices"]
    assert json.loads(table.rows[1][1]) == PASSAGE["options"][1]


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ({"answers": ["B"]}, "2 'answers'"),
        ({"answers": ["B", "E"]}, "question 2: .*'E'"),
        ({"options": [["one"], ["a", "b"]]}, "question 1"),
        ({"article": None}, "'article'"),
    ],
)
def test_race_with_malformed_passage_raises_with_its_file(tmp_path: Path, change: dict[str, Any], value: str) -> None:
    write_json(tmp_path / "high/3.txt", {**PASSAGE, **change})
    with pytest.raises(DataError, match=value) as error:
        read_multiple_choice(tmp_path / "high")
    assert error.value.path == str(tmp_path / "high/3.txt")


def make_stories(n: int) -> list[list[str]]:
    return [
        [f"id{i}", f"Ann {i} woke.", "She ate.", "She ran. ", "It rained.", "She got wet.", "She flew.", "1"]
        for i in range(n)
    ]


def test_story_cloze_trains_on_its_validation_stories(home: Path) -> None:
    (home / "story-cloze").mkdir()
    write_table(home / "story-cloze/cloze_test_val__spring2016 - cloze_test_ALL_val.csv", STORY, make_stories(40))
    write_table(home / "story-cloze/cloze_test_test__spring2016 - cloze_test_ALL_test.csv", STORY, make_stories(5))
    data = read_one("story-cloze")
    assert {split: len(rows) for split, rows in data.splits.items()} == {"train": 36, "dev": 4, "test": 5}
    assert any("4 of 40" in note for note in data.notes)
    rows = data.splits["test"]
    assert rows.texts[0] == "Ann 0 woke. She ate. She ran. It rained."
    assert rows.seconds is None
    assert rows.choices == [("She got wet.", "She flew.")] * 5
    assert rows.labels == ["0"] * 5
    assert rows.ids == [f"id{i}" for i in range(5)]
    blind = [row[:-1] for row in make_stories(5)]
    write_table(home / "story-cloze/cloze_test_test__spring2016 - cloze_test_ALL_test.csv", STORY[:-1], blind)
    kept_back = read_one("story-cloze").splits["test"]  # as in 2018
    assert kept_back == replace(rows, labels=None)
    bad = write_table(home / "bad.csv", STORY, [[*make_stories(1)[0][:-1], "3"]])
    with pytest.raises(DataError, match="AnswerRightEnding is '3'") as error:
        read_multiple_choice(bad)
    assert (error.value.path, error.value.line) == (str(bad), 1)


def test_swag_prepends_the_start_to_each_ending(home: Path) -> None:
    row = ["0", "v1", "1", "He sits. He", "He sits.", "He", "gold", "sings.", "flies.", "melts.", "ends.", "2"]
    for name, header, rows in (
        ("train.csv", SWAG, [row, row]),
        ("val.csv", SWAG, [row]),
        ("test.csv", SWAG[:-1], [row[:-1]]),  # labels are withheld
    ):
        (home / "swag").mkdir(exist_ok=True)
        write_table(home / "swag" / name, header, rows)
    data = read_one("swag")
    rows = data.splits["train"]
    assert rows.texts[0] == "He sits."
    assert rows.seconds is None
    assert rows.choices is not None
    assert rows.choices[0] == ("He sings.", "He flies.", "He melts.", "He ends.")
    assert rows.labels == ["2", "2"]
    assert data.splits["test"].labels is None
    own = read_one(str(home / "swag"))
    assert own.splits["train"] == rows
    again = read_one(str(home / "swag"), own.columns, "multiple_choice")  # as a resumed run names them
    assert again.fingerprint == own.fingerprint
    assert again.splits["test"].labels is None


def test_multiple_choice_table_is_recognized(tmp_path: Path) -> None:
    header = ["context", "question", "choice1", "choice0", "choice2", "label"]
    rows: list[Any] = []
    for i in range(10):
        rows += [(f"It rained {i}.", "Then?", "one", "nought", "", 1), (f"It snowed {i}.", "Then?", "b", "a", "c", "c")]
    data = read_one(str(write_table(tmp_path / "a.csv", header, rows)))
    assert data.kind == "multiple_choice"
    assert data.columns == Columns("context", "question", "label", "yes")
    result = concatenate_rows([data.splits["train"], data.splits["dev"]])
    assert result.choices is not None
    assert set(zip(result.choices, result.labels or (), strict=True)) == {
        (("nought", "one"), "1"),
        (("a", "b", "c"), "2"),
    }
    lines = write_json_lines(tmp_path / "b.jsonl", draw_endings(30))
    data = read_one(str(lines))
    assert data.kind == "multiple_choice"
    assert any("'context'" in note and "'label'" in note for note in data.notes)
    assert sum(map(len, data.splits.values())) == 30
    assert read_one(str(lines)).fingerprint == data.fingerprint
    other = [dict(row, choices=row["choices"][::-1]) for row in draw_endings(30)]
    assert read_one(str(write_json_lines(tmp_path / "c.jsonl", other))).fingerprint != data.fingerprint


def test_candidate_index_accepts_index_letter_or_text() -> None:
    assert [candidate_index(cell, ("x", "y"), "") for cell in ("0", "1", "A", "b", "y", " x ", "")] == [
        *("0", "1", "0", "1", "1", "0", "")
    ]
    with pytest.raises(DataError, match=r"row 3: .*'2'"):
        candidate_index("2", ("x", "y"), "row 3")


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([{"context": "a", "choices": ["b"], "label": 0}], "row 1: .*b"),
        ([{"context": "a", "choices": "b", "label": 0}], "row 1: .*b"),
        ([{"what": "a", "choices": ["b", "c"], "label": 0}], "--text"),
        ([{"context": "a", "choices": ["b", "c"], "label": ""}] * 9, "9 of 9"),
        ([{"context": "a", "choices": ["b", "c"]}] * 9, "--label"),
    ],
)
def test_read_of_malformed_table_raises(tmp_path: Path, rows: list[dict[str, Any]], named: str) -> None:
    with pytest.raises(NextwordError, match=named):
        read_one(str(write_json_lines(tmp_path / "x.jsonl", rows)))


def test_choose_held_out_distinguishes_rows_by_their_candidates() -> None:
    """Examples differ even if their contexts are equal or empty."""
    rows = Rows([""] * 50, None, ["0"] * 50, choices=[(str(i), "x") for i in range(50)])
    assert len(choose_held_out(rows)) == 5
    assert multiple_choice_rows(to_table(rows))[0].choices == rows.choices


def to_table(rows: Rows) -> Any:
    from nextword.data.tables import Table

    cells = [[text, *some, "0"] for text, some in zip(rows.texts, rows.choices or (), strict=True)]
    return Table("made", ["context", "choice0", "choice1", "label"], cells)


# ------------------------------------------------------------------------------------------------ frames and scores

TEXTS = ["the old king went far", "a new house", "queen saw river"]


def make_network(slug: str) -> tuple[Any, Any]:
    tokenizer = train_tokenizer(SPECS[slug], [*TEXTS, "? yes no"] * 5)
    cls = model_class(slug)
    torch.manual_seed(0)
    network = cls(cls.Config(**SHAPES.get(slug, SHAPE)), vocabulary(tokenizer, spellings=True))
    return add_missing_tokens(network).eval(), tokenizer


def select_frame(text: Any, i: int) -> list[int]:
    return text.ids[text.starts[i] : text.starts[i + 1]].tolist()


def test_encode_choices_frames_candidates_as_the_papers() -> None:
    """BERT joins the question to the candidate, GPT to the context before the delimiter."""
    for slug in ("bert", "gpt1"):
        network, tokenizer = make_network(slug)
        context, question, first, second = map(tokenizer.encode, ("the old king", "went far ?", "a house", "river"))
        text, cut = encode_choices(network, tokenizer, ["the old king"], ["went far ?"], [("a house", "river")])
        assert (cut, len(text), text.counts.tolist()) == (0, 1, [2])
        for i, answer in enumerate((first, second)):
            row = select_frame(text, i)
            if slug == "bert":
                cls, sep = (tokenizer.special[name] for name in ("[CLS]", "[SEP]"))
                assert row == [cls, *context.ids, sep, *question.ids, *answer.ids, sep]
            else:
                size = len(tokenizer)  # start, delimiter, extract
                assert row == [size, *context.ids, *question.ids, size + 1, *answer.ids, size + 2]


def test_encode_choices_truncates_the_context_and_keeps_the_candidate() -> None:
    network, tokenizer = make_network("bert")
    long = " ".join(["king"] * 40)
    text, cut = encode_choices(
        network, tokenizer, [long, "king"], ["went far ?", ""], [("a house", "river")] * 2, length=16
    )
    assert cut == 1
    ids = {word: int(tokenizer.encode(word).ids[0]) for word in ("king", "river", "house")}
    for i in (0, 1):
        row = select_frame(text, i)
        assert len(row) == 16
        assert ids["house" if i == 0 else "river"] in row
    both = [
        encode_choices(
            make_network("gpt1")[0], make_network("gpt1")[1], [long], ["went far ?"], [("a house", "river")], length=16
        )[0]
    ]
    question = make_network("gpt1")[1].encode("went far ?").ids.tolist()
    row = select_frame(both[0], 0)
    at = row.index(len(make_network("gpt1")[1]) + 1)  # the delimiter
    assert row[at - len(question) : at] == question  # the context was truncated


@pytest.mark.parametrize("slug", ["bert", "gpt1", "lstm"])
@pytest.mark.parametrize("pooling", ["auto", "mean"])
def test_choice_scores_equal_scores_of_single_candidates(slug: str, pooling: str) -> None:
    """Also with different numbers of candidates, packed or padded."""
    network, tokenizer = make_network(slug)
    headed = ChoiceHead(network, TextHeadConfig(frame="choose", pooling=pooling, dropout=0.0)).eval()
    torch.nn.init.normal_(headed.out.weight)
    offered = [("a house", "river", "king"), ("queen", "old"), ("far", "new", "went", "saw")]
    text, _ = encode_choices(network, tokenizer, TEXTS, ["went ?", "", "far ?"], offered, np.array([2, 0, 3]))
    assert text.most == 4
    with torch.no_grad():
        logits = headed(ChoiceBatches().batch(text, np.array([2, 0, 1]), 0))
        assert logits.shape == (3, 4)
        assert torch.isneginf(logits).sum().item() == 1 + 2
        for row, i in zip(logits, (2, 0, 1), strict=True):
            for k, answer in enumerate(offered[i]):
                inputs = (["went ?", "", "far ?"][i],)
                single, _ = encode_choices(network, tokenizer, [TEXTS[i]], inputs, [(answer, answer)])
                alone = headed(ChoiceBatches().batch(single, np.array([0]), 0))[0, 0]
                torch.testing.assert_close(row[k], alone, rtol=1e-4, atol=1e-5)
        batch = ChoiceBatches().batch(text, np.array([0, 1]), 0)
        loss = ChoiceObjective({"kind": "examples"}).loss(headed, batch, None)
        wanted = -headed(batch).double().log_softmax(-1)[[0, 1], [2, 0]].mean()
        assert float(loss.value) == pytest.approx(float(wanted), rel=1e-5)


def test_choice_examples_first_returns_a_prefix() -> None:
    network, tokenizer = make_network("bert")
    text, _ = encode_choices(network, tokenizer, TEXTS, None, [("a", "b", "c"), ("d", "e"), ("f", "g")], np.arange(3))
    some = text.take(np.array([2, 0]))
    assert some.counts.tolist() == [2, 3]
    assert some.labels.tolist() == [2, 0]
    assert some.most == text.most == 3  # the width of the output stays
    assert select_frame(some, 0) == select_frame(text, 5)
    assert select_frame(some, 4) == select_frame(text, 2)
    assert some.lengths.tolist() == text.lengths[[2, 0]].tolist()
    assert text.first(None) is text
    assert len(text.first(1)) == 1
    assert len(text.first(int(text.lengths[:2].sum()))) == 2


def test_choice_head_with_pair_classifier_raises() -> None:
    network, _ = make_network("bert")
    with pytest.raises(InvalidSetting) as error:
        ChoiceHead(network, TextHeadConfig(frame="choose", classifier="biattentive"))
    assert error.value.key == "task.classifier"


def test_multiple_choice_rows_sorts_option_columns_by_number(tmp_path: Path) -> None:
    table = read_table(write_table(tmp_path / "o.csv", ["option_10", "text", "option_2"], [("ten", "t", "two")]))
    rows, columns = multiple_choice_rows(table)
    assert rows.choices == [("two", "ten")]
    assert columns == Columns("text")
