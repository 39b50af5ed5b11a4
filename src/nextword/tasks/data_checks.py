"""Checks of labeled rows before training. They drop nothing: they return notes for the user.

empty texts · duplicate rows within a split · one text with several labels
classes without dev rows · labels that differ only in spelling
rows of dev or test that also occur in train, exactly or up to case, spaces and punctuation
rows of test that also occur in dev, which selects the checkpoint
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

from nextword.data.tables import SEPARATOR, Rows

Key = tuple[str, ...]  # all texts of one example
MAX_LABELS = 5  # named in a note
MAX_QUOTE = 60  # characters of a quoted text


def check_splits(splits: Mapping[str, Rows], numbers: bool = False) -> list[str]:
    """Return notes about the rows of all splits. `numbers`: labels are numbers, so one text may have several."""
    notes = [
        note for split, rows in splits.items() for note in (*count_empty_texts(rows, split), *_duplicates(split, rows))
    ]
    if not numbers:
        notes += _contradictions(splits)
    return notes + _leaks(splits)


def count_empty_texts(rows: Rows, split: str = "") -> list[str]:
    where = f" in {split}" if split else ""
    counts = {
        name: sum(not text.strip() for text in column or ())
        for name, column in (("texts", rows.texts), ("second texts", rows.seconds))
    }
    return [f"{n:,} of {len(rows):,} {name}{where} are empty" for name, n in counts.items() if n]


def check_classes(labels: Sequence[str], splits: Mapping[str, Rows]) -> list[str]:
    """Return notes about classes that dev does not measure, and labels that look like one class spelled twice."""
    notes = []
    in_dev = set(splits["dev"].labels or ())
    absent = [label for label in labels if label not in in_dev]
    if absent:
        shown = ", ".join(absent[:MAX_LABELS]) + (", …" if len(absent) > MAX_LABELS else "")
        notes.append(f"dev has no rows of {len(absent):,} of {len(labels):,} classes, which are not measured ({shown})")
    by_meaning: dict[str | float, list[str]] = {}
    for label in labels:
        by_meaning.setdefault(_normalize_label(label), []).append(label)
    for spellings in by_meaning.values():
        if len(spellings) > 1:
            notes.append(f"the labels {' and '.join(map(repr, spellings))} look alike; each is a class of its own")
    return notes


def _normalize_label(label: str) -> str | float:
    try:
        return float(label)
    except ValueError:
        return " ".join(label.casefold().split())


# ------------------------------------------------------------------------------------------------ comparing rows


def _keys(rows: Rows) -> list[Key]:
    return [tuple(example.split(SEPARATOR)) for example in rows.examples]


def normalize(key: Key) -> Key:
    """Remove case, punctuation and extra spaces. A text that is nothing but punctuation stays as it is.

    normalize(("It's  FINE.",)) == ("its fine",)
    """
    return tuple(_normalize_text(text) or text for text in key)


class _WithoutPunctuation(dict[int, int | None]):
    """A table for str.translate that deletes punctuation and symbols, and looks up each character once."""

    def __missing__(self, character: int) -> int | None:
        is_mark = unicodedata.category(chr(character))[0] in "PS"
        return self.setdefault(character, None if is_mark else character)


_WITHOUT_PUNCTUATION = _WithoutPunctuation()


def _normalize_text(text: str) -> str:
    folded = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.translate(_WITHOUT_PUNCTUATION).split())


def _duplicates(split: str, rows: Rows) -> list[str]:
    """Rows that repeat another of the same split, including the label."""
    labels: Sequence[str] = rows.labels or [""] * len(rows)
    counts = Counter(zip(_keys(rows), labels, strict=True))
    duplicates = len(rows) - len(counts)
    if not duplicates:
        return []
    (key, _), times = counts.most_common(1)[0]
    most = f"most often, {times:,} times: {_quote(key)}"
    return [f"{duplicates:,} of {len(rows):,} rows of {split} are duplicates, label included ({most})"]


def _contradictions(splits: Mapping[str, Rows]) -> list[str]:
    """Texts with more than one label, in any split."""
    labels_of: dict[Key, set[str]] = {}
    counts: Counter[Key] = Counter()
    for rows in splits.values():
        for key, label in zip(_keys(rows), rows.labels or (), strict=False):
            labels_of.setdefault(key, set()).add(label)
            counts[key] += 1
    ambiguous = [key for key, labels in labels_of.items() if len(labels) > 1]
    if not ambiguous:
        return []
    example = f"{_quote(ambiguous[0])} is {' and '.join(sorted(labels_of[ambiguous[0]])[:3])}"
    texts = "text has" if len(ambiguous) == 1 else "texts have"
    n = sum(counts[key] for key in ambiguous)
    return [f"{len(ambiguous):,} {texts} more than one label, in {n:,} rows, so 100 % is out of reach ({example})"]


def _leaks(splits: Mapping[str, Rows]) -> list[str]:
    """Rows of dev or test that are also in train, and rows of test that are also in dev."""
    train = set(_keys(splits["train"]))
    normalized_train = {normalize(key) for key in train}
    dev = set(_keys(splits["dev"])) if "dev" in splits else set()
    notes = []
    for split, rows in splits.items():
        if split == "train":
            continue
        keys = _keys(rows)
        of = f"of {len(rows):,} rows of {split} are also in"
        exact = sum(key in train for key in keys)
        close = sum(key not in train and normalize(key) in normalized_train for key in keys)
        in_dev = sum(key not in train and key in dev for key in keys) if split != "dev" else 0
        if exact:
            notes.append(f"{exact:,} {of} train, which inflates the score")
        if close:
            notes.append(f"{close:,} {of} train up to case, spaces and punctuation, which inflates the score")
        if in_dev:
            notes.append(f"{in_dev:,} {of} dev, which selects the checkpoint: this inflates the score")
    return notes


def note_duplicates(keys: Mapping[str, Sequence[Hashable]], unit: str) -> list[str]:
    """Return notes about examples of other splits that are also in train. `unit`: what the examples are."""
    train = set(keys["train"])
    counts = {split: sum(key in train for key in keys[split]) for split in keys if split != "train"}
    return [f"{n:,} of {len(keys[split]):,} {unit} of {split} are in train too" for split, n in counts.items() if n]


def _quote(key: Key) -> str:
    text = " ".join(" / ".join(key).split())
    return f"'{text if len(text) <= MAX_QUOTE else text[: MAX_QUOTE - 1] + '…'}'"
