"""Labelled rows that one should know of: told, and kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from nextword.core.errors import NextwordError
from nextword.data.tables import Rows
from nextword.tasks.data_checks import normalize, check_splits
from nextword.tasks.text_data import open_data
from tests.support.tiny_transfer import written


def rows(*examples: tuple[str, str]) -> Rows:
    return Rows([text for text, _ in examples], None, [label for _, label in examples])


def said(train: Sequence[tuple[str, str]], dev: Sequence[tuple[str, str]], numbers: bool = False) -> list[str]:
    return check_splits({"train": rows(*train), "dev": rows(*dev)}, numbers)


PLAIN = [("one", "a"), ("two", "b")]


def test_clean_rows_are_not_spoken_of() -> None:
    assert said(PLAIN, [("three", "a")]) == []


def test_repeated_rows_in_a_split() -> None:
    notes = said([*PLAIN, ("one", "a"), ("one", "a"), ("two", "b")], [("x", "a")])
    assert notes == ["3 of 5 rows of train repeat another, label and all; the commonest, 3 times: 'one'"]
    notes = said(PLAIN, [("x", "a"), ("x", "a")])
    assert notes == ["1 of 2 rows of dev repeat another, label and all; the commonest, 2 times: 'x'"]


def test_one_text_with_two_labels_wherever_it_is() -> None:
    (note,) = said([*PLAIN, ("one", "b")], [("x", "a")])
    assert note == "1 text has more than one label, in 2 rows: nobody can get all of them right ('one' is a and b)"
    notes = said(PLAIN, [("one", "b")])
    assert notes[0].startswith("1 text has more than one label, in 2 rows")
    assert notes[1] == "1 of 1 rows of dev are in train too: they flatter the numbers"
    assert not any("label" in note for note in said([*PLAIN, ("one", "3")], [("x", "1")], numbers=True))


def test_rows_that_are_in_train_nearly() -> None:
    notes = said([("It's  fine, really!", "a"), ("two", "b")], [("ITS FINE REALLY", "a"), ("two", "b"), ("2", "a")])
    assert notes == [
        "1 of 3 rows of dev are in train too: they flatter the numbers",
        "1 of 3 rows of dev are in train too but for case, spaces and punctuation: they flatter the numbers",
    ]
    assert said([("?!", "a"), ("two", "b")], [("...", "a")]) == []  # nothing but punctuation is not all the same


def test_rows_of_test_that_are_in_dev() -> None:
    """They are left out of test_unseen, so that they have to be told of."""
    splits = {"train": rows(*PLAIN), "dev": rows(("x", "a")), "test": rows(("x", "a"), ("one", "a"), ("y", "b"))}
    assert check_splits(splits) == [
        "1 of 3 rows of test are in train too: they flatter the numbers",
        "1 of 3 rows of test are in dev too, by which a run is chosen: they flatter the numbers",
    ]


@pytest.mark.parametrize(
    ("text", "plain"),
    [("It's  FINE.", "its fine"), ("Straße – ja", "strasse ja"), ("ﬁne…", "fine"), ("हिन्दी!", "हिन्दी"), ("…", "…")],
)
def test_what_is_nearly_the_same(text: str, plain: str) -> None:
    assert normalize((text,)) == (plain,)


def test_pairs_are_the_same_if_both_texts_are() -> None:
    train = Rows(["a", "b"], ["x", "y"], ["0", "1"])
    dev = Rows(["a", "b", ""], ["y", "Y.", " "], ["0", "1", "1"])
    assert check_splits({"train": train, "dev": dev}) == [
        "1 of 3 texts of dev are empty: they are read as such",
        "1 of 3 second texts of dev are empty: they are read as such",
        "1 of 3 rows of dev are in train too but for case, spaces and punctuation: they flatter the numbers",
    ]


def test_nothing_is_dropped(tmp_path: Path) -> None:
    examples = [("same", "a")] * 6 + [("Same!", "b")] * 6 + [("", "a")] * 3
    data = open_data(str(written(tmp_path / "d.csv", ["text", "label"], examples)))
    assert sum(len(some) for some in data.splits.values()) == 15
    assert data.balance.keys() == {"a", "b"}


def test_labels_that_training_lacks_are_named(tmp_path: Path) -> None:
    examples = [("x", "a", "train"), ("y", "b", "train"), ("z", "c", "dev")]
    with pytest.raises(NextwordError, match=r"dev has the label 'c', which no training row has \(those are a, b\)"):
        open_data(str(written(tmp_path / "d.csv", ["text", "label", "split"], examples)))
    many = [("x", "a", "train"), ("y", "b", "train"), *((str(i), f"n{i}", "dev") for i in range(7))]
    with pytest.raises(NextwordError, match="dev has the labels 'n0', 'n1', 'n2', 'n3', 'n4' and 2 more, which"):
        open_data(str(written(tmp_path / "m.csv", ["text", "label", "split"], many)))
