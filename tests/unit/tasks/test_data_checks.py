"""Problems of labeled rows are reported, and no row is dropped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from nextword.core.errors import NextwordError
from nextword.data.tables import Rows
from nextword.tasks.data_checks import check_classes, check_splits, normalize
from nextword.tasks.text_data import read_one
from tests.support.tiny_transfer import write_table


def make_rows(*examples: tuple[str, str]) -> Rows:
    return Rows([text for text, _ in examples], None, [label for _, label in examples])


def check(train: Sequence[tuple[str, str]], dev: Sequence[tuple[str, str]], numbers: bool = False) -> list[str]:
    return check_splits({"train": make_rows(*train), "dev": make_rows(*dev)}, numbers)


PLAIN = [("one", "a"), ("two", "b")]


def test_checks_of_clean_rows_add_no_notes() -> None:
    assert check(PLAIN, [("three", "a")]) == []


def test_duplicates_within_a_split_are_counted() -> None:
    (note,) = check([*PLAIN, ("one", "a"), ("one", "a"), ("two", "b")], [("x", "a")])
    assert note.startswith("3 of 5 rows of train")
    assert "3 times: 'one'" in note
    (note,) = check(PLAIN, [("x", "a"), ("x", "a")])
    assert note.startswith("1 of 2 rows of dev")
    assert "2 times: 'x'" in note


def test_text_with_two_labels_is_reported_across_splits() -> None:
    (note,) = check([*PLAIN, ("one", "b")], [("x", "a")])
    assert "2 rows" in note
    assert "'one' is a and b" in note
    contradiction, leak = check(PLAIN, [("one", "b")])
    assert contradiction == note
    assert leak.startswith("1 of 1 rows of dev")
    assert not any("label" in note for note in check([*PLAIN, ("one", "3")], [("x", "1")], numbers=True))


def test_near_duplicates_of_train_are_reported() -> None:
    exact, close = check(
        [("It's  fine, really!", "a"), ("two", "b")], [("ITS FINE REALLY", "a"), ("two", "b"), ("2", "a")]
    )
    assert exact.startswith("1 of 3 rows of dev")
    assert close.startswith("1 of 3 rows of dev")
    assert "punctuation" in close
    assert check([("?!", "a"), ("two", "b")], [("...", "a")]) == []  # texts of punctuation only stay different


def test_rows_of_test_in_dev_are_reported() -> None:
    """They are not part of test_unseen, so the user must be told."""
    splits = {
        "train": make_rows(*PLAIN),
        "dev": make_rows(("x", "a")),
        "test": make_rows(("x", "a"), ("one", "a"), ("y", "b")),
    }
    in_train, in_dev = check_splits(splits)
    assert in_train.startswith("1 of 3 rows of test are also in train")
    assert in_dev.startswith("1 of 3 rows of test are also in dev")


@pytest.mark.parametrize(
    ("text", "plain"),
    [("It's  FINE.", "its fine"), ("Straße – ja", "strasse ja"), ("ﬁne…", "fine"), ("हिन्दी!", "हिन्दी"), ("…", "…")],
)
def test_normalize_removes_case_spaces_and_punctuation(text: str, plain: str) -> None:
    assert normalize((text,)) == (plain,)


def test_pairs_match_if_both_texts_match() -> None:
    train = Rows(["a", "b"], ["x", "y"], ["0", "1"])
    dev = Rows(["a", "b", ""], ["y", "Y.", " "], ["0", "1", "1"])
    empty, empty_second, close = check_splits({"train": train, "dev": dev})
    assert empty.startswith("1 of 3 texts in dev")
    assert empty_second.startswith("1 of 3 second texts in dev")
    assert close.startswith("1 of 3 rows of dev")


def test_checks_keep_all_rows(tmp_path: Path) -> None:
    examples = [("same", "a")] * 6 + [("Same!", "b")] * 6 + [("", "a")] * 3
    data = read_one(str(write_table(tmp_path / "d.csv", ["text", "label"], examples)))
    assert sum(len(some) for some in data.splits.values()) == 15
    assert data.balance.keys() == {"a", "b"}


def test_labels_unseen_in_training_raise_with_their_names(tmp_path: Path) -> None:
    examples = [("x", "a", "train"), ("y", "b", "train"), ("z", "c", "dev")]
    with pytest.raises(NextwordError, match="'c'"):
        read_one(str(write_table(tmp_path / "d.csv", ["text", "label", "split"], examples)))
    many = [("x", "a", "train"), ("y", "b", "train"), *((str(i), f"n{i}", "dev") for i in range(7))]
    with pytest.raises(NextwordError, match="'n0', 'n1', 'n2', 'n3', 'n4' and 2 more"):
        read_one(str(write_table(tmp_path / "m.csv", ["text", "label", "split"], many)))


def test_classes_without_dev_rows_and_similar_labels_are_reported() -> None:
    splits = {"train": Rows([""]), "dev": Rows(["x", "y"], None, ["1", "b"])}
    assert check_classes(["1", "b"], splits) == []
    absent, numbers, words = check_classes(["1", "1.0", "b", "B ", "c"], splits)
    assert "3 of 5 classes" in absent
    assert "(1.0, B , c)" in absent
    assert "'1' and '1.0'" in numbers
    assert "'b' and 'B '" in words
    assert any("'b' and 'B' and 'B '" in note for note in check_classes(["1", "b", "B", "B "], splits))
