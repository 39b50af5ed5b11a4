"""What to know of labelled rows before anything is learnt of them. Nothing is dropped: it is counted and told.

empty texts · rows that occur more than once in a split · the same text with different labels
classes that dev lacks, or that are one, written in two ways
rows of dev or test that are in train too, as they are or nearly: but for case, spaces and punctuation
rows of test that are in dev, by which a run is chosen
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence

from nextword.data.tables import BETWEEN, Rows

Key = tuple[str, ...]
NAMED = 5  # classes in a note
WAYS = {2: "two", 3: "three", 4: "four"}
LETTERS = 60  # of a text that is quoted


def check_splits(splits: Mapping[str, Rows], numbers: bool = False) -> list[str]:
    """Notes on the rows of all splits. `numbers`: labels are no classes, and may well differ."""
    notes = [note for split, rows in splits.items() for note in (*count_empty_texts(split, rows), *_again(split, rows))]
    if not numbers:
        notes += _at_odds(splits)
    return notes + _across(splits)


def count_empty_texts(split: str, rows: Rows) -> list[str]:
    of = f" of {split}" if split else ""
    found = []
    for column, what in ((rows.texts, "texts"), (rows.seconds, "second texts")):
        n = sum(not text.strip() for text in column or ())
        if n:
            found.append(f"{n:,} of {len(rows):,} {what}{of} are empty: they are read as such")
    return found


def check_classes(labels: Sequence[str], splits: Mapping[str, Rows]) -> list[str]:
    """Classes that nothing is known of on dev, and those that may be one, written in two ways."""
    notes = []
    there = set(splits["dev"].labels or ())
    lacking = [label for label in labels if label not in there]
    if lacking:
        n = f"{len(lacking):,} of {len(labels):,} classes"
        notes.append(f"dev has no row of {n} ({_some(lacking)}): how well those are found is not measured")
    alike: dict[str | float, list[str]] = {}
    for label in labels:
        alike.setdefault(_meant(label), []).append(label)
    for some in alike.values():
        if len(some) > 1:
            all_of_them, ways = " and ".join(map(repr, some)), WAYS.get(len(some), f"{len(some)}")
            notes.append(f"the labels {all_of_them} look like one, written in {ways} ways: each is a class")
    return notes


def _meant(label: str) -> str | float:
    try:
        return float(label)
    except ValueError:
        return " ".join(label.casefold().split())


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")


def keys(rows: Rows) -> list[Key]:
    """Texts of each row, as they are."""
    return [tuple(example.split(BETWEEN)) for example in rows.examples]


def normalize(key: Key) -> Key:
    """The same but for case, spaces and punctuation; of a text that is nothing else, the text itself.

    near(("It's  FINE.",)) == ("its fine",)
    """
    return tuple(_plain(text) or text for text in key)


class _Marks(dict[int, int | None]):
    """For str.translate: punctuation and symbols go, and each character is asked about once."""

    def __missing__(self, character: int) -> int | None:
        goes = unicodedata.category(chr(character))[0] in "PS"
        return self.setdefault(character, None if goes else character)


_MARKS = _Marks()


def _plain(text: str) -> str:
    folded = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.translate(_MARKS).split())


def _again(split: str, rows: Rows) -> list[str]:
    """Rows that occur before in the same split, with the same label."""
    labels: Sequence[str] = rows.labels or [""] * len(rows)
    counts = Counter(zip(keys(rows), labels, strict=True))
    more = len(rows) - len(counts)
    if not more:
        return []
    (key, _), times = counts.most_common(1)[0]
    return [
        f"{more:,} of {len(rows):,} rows of {split} repeat another, label and all; the commonest, {times:,} times: "
        f"{_quoted(key)}"
    ]


def _at_odds(splits: Mapping[str, Rows]) -> list[str]:
    """The same text, wherever it is, with more than one label."""
    seen: dict[Key, set[str]] = {}
    rows_of: Counter[Key] = Counter()
    for some in splits.values():
        for key, label in zip(keys(some), some.labels or (), strict=False):
            seen.setdefault(key, set()).add(label)
            rows_of[key] += 1
    odd = [key for key, labels in seen.items() if len(labels) > 1]
    if not odd:
        return []
    first = f"{_quoted(odd[0])} is {' and '.join(sorted(seen[odd[0]])[:3])}"
    texts, rows = "text has" if len(odd) == 1 else "texts have", sum(rows_of[key] for key in odd)
    return [f"{len(odd):,} {texts} more than one label, in {rows:,} rows: nobody can get all of them right ({first})"]


def _across(splits: Mapping[str, Rows]) -> list[str]:
    exact = set(keys(splits["train"]))
    alike = {normalize(key) for key in exact}
    chosen_by = set(keys(splits["dev"])) if "dev" in splits else set()
    notes = []
    for split, rows in splits.items():
        if split == "train":
            continue
        mine = keys(rows)
        again = sum(key in exact for key in mine)
        nearly = sum(key not in exact and normalize(key) in alike for key in mine)
        in_dev = sum(key not in exact and key in chosen_by for key in mine) if split != "dev" else 0
        of = f"of {len(rows):,} rows of {split} are in"
        if again:
            notes.append(f"{again:,} {of} train too: they flatter the numbers")
        if nearly:
            notes.append(f"{nearly:,} {of} train too but for case, spaces and punctuation: they flatter the numbers")
        if in_dev:
            notes.append(f"{in_dev:,} {of} dev too, by which a run is chosen: they flatter the numbers")
    return notes


def _quoted(key: Key) -> str:
    text = " ".join(" / ".join(key).split())
    return f"'{text if len(text) <= LETTERS else text[: LETTERS - 1] + '…'}'"
