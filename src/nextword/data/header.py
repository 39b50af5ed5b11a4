"""Decide whether the first row of a table is a header, from its cells and those below.

    text,label            the names of columns: a header              words,mood          not below, not numbers, short:
    A fine film.,good                                                 A fine film.,good   a header
    Not for me.,bad                                                   Not for me.,bad

    A fine film.,good     a sentence, and `good` occurs below:        A fine film.,4.5    a number above numbers:
    Not for me.,bad       a row                                       Not for me.,1.5     a row
    Seen it twice.,good                                               Seen it twice.,4.0

Each column of the first row gives evidence, in points that behave like log-odds; the sum decides. In doubt, the first
row is data: then no row is lost, and the note about it says how to decide otherwise.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

THRESHOLD = 1.5  # points from which on the first row is a header
SURE = 3.0  # points, in either direction, from which on there is no doubt
MAX_NOVELTY = 2.0  # points for a value that does not occur below, as it may be a rare class; in many rows twice that
ENOUGH_ROWS = 100  # that are many
MAX_WEAK = 2.5  # points of all columns together for being short above texts: not enough to be sure
DECISIVE = 10.0  # points for what only nextword writes

TEXT_NAMES = (
    *("text", "sentence", "sentence1", "content", "review", "premise", "question1", "body", "comment", "message"),
    *("tweet", "document", "文本", "内容", "评论", "句子"),
)
SECOND_NAMES = ("sentence2", "hypothesis", "question2", "text2", "second", "text_b", "sentence_b")
LABEL_NAMES = (
    *("label", "labels", "class", "target", "category", "sentiment", "stars", "rating", "score", "gold_label"),
    *("标签", "类别"),
)
ID_NAMES = ("id", "idx", "index", "unnamed: 0", "guid", "uid")
SPLIT = "split"
OTHER_NAMES = (
    *("source", "src", "tgt", "question", "context", "answer", "answers", "article", "summary", "passage", "title"),
    *("text1", "text_a", "sentence_a", "predicted", "translation", "highlights", "choices", "prompt", "response"),
)
KNOWN_NAMES = frozenset((*TEXT_NAMES, *SECOND_NAMES, *LABEL_NAMES, *ID_NAMES, SPLIT, *OTHER_NAMES))
LANGUAGES = frozenset(
    """
    ar bg bn ca cs cy da de el en eo es et eu fa fi fr ga gl he hi hr hu hy id is it ja ka ko la lt lv mk mt nl no
    pl pt ro ru sk sl sq sr sv sw ta th tr uk ur vi yi zh zu eng deu fra spa ita por rus cmn jpn nld pol tur
    """.split()  # noqa: SIM905
)

_NUMBER = re.compile(r"[-+]?(?:\d+(?:[.,]\d+)*|\.\d+)(?:[eE][-+]?\d+)?\s?%?")
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[ T]\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?.*)?")
_LINK = re.compile(r"(?:https?://|www\.)\S+|\S+@\S+\.\w+", re.I)
_SENTENCE_END = re.compile(r"[.!?…。！？]['\"”’»)]*$")
_NUMBERED = re.compile(
    r"(?:choice|option|ending|candidate|text|sentence|sent|column|col|field|label|answer)[ _-]?\d+", re.I
)
_PROBABILITY = re.compile(r"p\(.+\)", re.DOTALL)  # a column that `nextword predict` adds
MAX_NAME_LENGTH = 40  # characters of a column name
MAX_NAME_WORDS = 4
USUAL_LENGTH = 20  # characters of a name that may be longer than short texts
MIN_TEXT_LENGTH = 15  # characters: the median of a column of texts
MIN_ROWS = 4  # below the first row, to recognize a column of labels
MANY_ROWS = 10  # below the first row, to trust a word that is much shorter than all texts
SHORTER = "is shorter than the texts below"
NOTHING = "nothing tells it from the other rows"
NULLS = frozenset({"", "nan", "na", "n/a", "null", "none", "-", "?"})


@dataclass(frozen=True)
class HeaderDecision:
    has_header: bool
    is_sure: bool
    reason: str  # a phrase: "'label' is a usual name of a column"


def detect_header(rows: Sequence[Sequence[str]], expected: Collection[str] = ()) -> HeaderDecision:
    """Decide about the first of these rows. `expected` are columns that the user chose, by name or by number."""
    if not rows:
        return HeaderDecision(False, True, "there is no row")
    first = [cell.strip() for cell in rows[0]]
    names = {name.lower() for name in expected if name and not name.isdigit()}
    if names and names <= {cell.lower() for cell in first} and not is_number(first[0]):
        return HeaderDecision(True, True, f"it has {' and '.join(repr(name) for name in sorted(names))}")
    columns = [[row[i].strip() for row in rows[1:] if i < len(row)] for i in range(len(first))]
    evidence = [_judge(cell, column) for cell, column in zip(first, columns, strict=True)]
    evidence.append(_judge_row(first, columns))
    weak = sum(points for points, reason in evidence if reason.endswith(SHORTER))
    score = sum(points for points, reason in evidence if not reason.endswith(SHORTER)) + min(weak, MAX_WEAK)
    if names and -SURE < score <= THRESHOLD:
        return HeaderDecision(True, False, "a column is chosen by name")
    has_header = score > THRESHOLD
    points, reason = max(evidence, key=lambda item: item[0] if has_header else -item[0])
    speaks = points > 0 if has_header else points < 0
    return HeaderDecision(has_header, abs(score) >= SURE, reason if speaks else NOTHING)


def _judge_row(first: Sequence[str], columns: Sequence[Sequence[str]]) -> tuple[float, str]:
    """Judge the first row as a whole: the names that programs and translators give."""
    lower = [cell.lower() for cell in first]
    if "predicted" in lower and any(_PROBABILITY.fullmatch(cell) for cell in lower):
        return DECISIVE, "these are columns of predictions"
    numbers = [str(i) for i in range(len(first) + 1)]
    counts = first == numbers[:-1] or first == numbers[1:] or first == ["", *numbers[:-2]]
    if len(first) > 1 and counts and any(column and not any(map(is_number, column)) for column in columns):
        return 6.0 * len(first), "its cells count the columns"
    if len(first) > 1 and len(set(lower)) == len(lower) and LANGUAGES.issuperset(lower):
        return 5.0, "its cells are codes of languages"
    return 0.0, NOTHING


def _judge(cell: str, below: Sequence[str]) -> tuple[float, str]:
    """Points for `cell` as the name of the column with these cells below, and the reason."""
    filled = [value for value in below if value.lower() not in NULLS]
    shown = repr(cell if len(cell) <= 30 else cell[:30] + "…")
    if not cell:  # pandas writes its index under an empty name
        is_index = len(filled) > 1 and [*map(str, range(len(filled)))] == filled
        return (3.0, "the first column counts the rows") if is_index else (0.0, "")
    is_known = cell.lower() in KNOWN_NAMES or bool(_NUMBERED.fullmatch(cell))
    bonus = 3.0 if is_known else 0.0
    known = f"{shown} is a usual name of a column"
    if is_number(cell):
        return -5.0 if _all_numbers(filled) or not filled else -2.0, f"{shown} is a number"
    if _DATE.fullmatch(cell) or _LINK.fullmatch(cell):
        return -4.0, f"{shown} is a date or a link"
    if cell[0] in "[{" and cell[-1] in "]}":
        return -4.0, f"{shown} is a list"
    for kind, matches in (("numbers", is_number), ("dates", _is_date), ("links", _is_link)):
        if filled and all(map(matches, filled)) and cell.lower() not in NULLS:
            points = 4.0 if len(filled) >= MIN_ROWS or is_name(cell) else 1.0
            return bonus + points, f"{shown} stands above {kind}"
    if cell in filled:
        return bonus - 4.5, f"{shown} occurs again below"
    if not is_name(cell):
        return bonus - 3.0, f"{shown} is a text"
    if is_known:
        return bonus + _judge_length(cell, filled), known
    if len(filled) >= MIN_ROWS and 2 * len(counts := Counter(filled)) <= len(filled):
        # Good and Turing: the probability that a row has a value that no other row has.
        novel = (sum(n == 1 for n in counts.values()) + 0.5) / (len(filled) + 1)
        cap = MAX_NOVELTY if len(filled) < ENOUGH_ROWS else 2 * MAX_NOVELTY
        return min(cap, -math.log(novel)), f"{shown} does not occur among the {len(counts)} values below"
    return _judge_length(cell, filled), f"{shown} {SHORTER}"


def _judge_length(cell: str, filled: Sequence[str]) -> float:
    """Points for a short name above texts."""
    if not filled:
        return 0.0
    lengths = sorted(map(len, filled))
    is_word = len(cell.split()) == 1
    if lengths[len(lengths) // 2] < MIN_TEXT_LENGTH:
        if not is_word:
            return -1.0
        return 0.75 if all(len(text.split()) > 1 for text in filled) else 0.0
    if is_word and len(filled) >= MANY_ROWS and 2 * len(cell) <= lengths[0]:
        return 2.0
    shortest = lengths[len(lengths) // 20]
    if 2 * len(cell) <= shortest:
        return 1.5 if len(filled) >= MIN_ROWS else 1.0
    return 0.0 if len(cell) <= max(shortest, USUAL_LENGTH) else -1.5


def is_name(cell: str) -> bool:
    """Whether a cell may be the name of a column, and is no sentence."""
    return len(cell) <= MAX_NAME_LENGTH and len(cell.split()) <= MAX_NAME_WORDS and not _SENTENCE_END.search(cell)


def is_number(cell: str) -> bool:
    """Whether a cell is a number as people write it: 1, -2.5, 1,000, 3e-4, 40 %."""
    return bool(_NUMBER.fullmatch(cell))


def _is_date(cell: str) -> bool:
    return bool(_DATE.fullmatch(cell))


def _is_link(cell: str) -> bool:
    return bool(_LINK.fullmatch(cell))


def _all_numbers(cells: Sequence[str]) -> bool:
    return bool(cells) and all(map(is_number, cells))
