"""Labelled rows out of a user's files: csv, tsv, JSON lines, or plain lines; and which column is what.

text,stars                      columns are guessed by their names, or named: --text review --label stars
"A fine film, truly.",5
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

from nextword.contract_errors import NextwordError
from nextword.corpora.decoding import FROM_STDIN, STDIN, json_objects, lines, plain_name
from nextword.corpora.delimited import rows
from nextword.corpora.marks import DELIMITERS, MARKS, Header, cells_of, mark_of

TEXTS = (
    *("text", "sentence", "sentence1", "content", "review", "premise", "question1", "body", "comment", "message"),
    *("tweet", "document"),
)
SECONDS = ("sentence2", "hypothesis", "question2", "text2", "second", "text_b", "sentence_b")
LABELS = ("label", "labels", "class", "target", "category", "sentiment", "stars", "rating", "score", "gold_label")
SPLIT = "split"
BETWEEN = "\x1e"  # texts of an example, written as one
IGNORED = ("", "id", "index", "idx", "unnamed: 0", SPLIT)  # "": where pandas writes the number of the row
TABLE_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
HELD_OUT_FRACTION = 0.1  # of the rows, held out where a data set names none
MAX_COLUMNS_NAMED = 8  # columns named in a message


@dataclass(frozen=True)
class Rows:
    """Examples as they stand in a file. Labels are None where they are kept back. With `choices`, texts are contexts,
    seconds the questions about them, and labels the numbers of the right candidates."""

    texts: list[str]
    seconds: list[str] | None = None
    labels: list[str] | None = None
    ids: list[str] | None = None  # that a benchmark asks predictions for
    choices: list[tuple[str, ...]] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def examples(self) -> list[str]:
        """All that is read of each, as one text."""
        return [self.key(i) for i in range(len(self))]

    def key(self, i: int) -> str:
        second = () if self.seconds is None else (self.seconds[i],)
        return BETWEEN.join((self.texts[i], *second, *(self.choices[i] if self.choices else ())))

    def take(self, chosen: Sequence[int]) -> Rows:
        pick = lambda column: None if column is None else [column[i] for i in chosen]  # noqa: E731
        rest = pick(self.seconds), pick(self.labels), pick(self.ids), pick(self.choices)
        return Rows([self.texts[i] for i in chosen], *rest)


def joined_rows(parts: Sequence[Rows]) -> Rows:
    """One after the other; what one of them lacks, all lack."""
    columns = ((part.seconds, part.labels, part.ids, part.choices) for part in parts)
    seconds, labels, ids, choices = (None if None in some else [*chain(*some)] for some in zip(*columns, strict=True))
    return Rows([text for part in parts for text in part.texts], seconds, labels, ids, choices)


@dataclass(frozen=True)
class Columns:
    """Which column of a table is what; "" where there is none."""

    text: str = ""
    second: str = ""
    label: str = ""


@dataclass(frozen=True)
class Table:
    name: str
    header: list[str]
    rows: list[list[str]] = field(repr=False)
    kind: str = "csv"  # csv, tsv, jsonl, lines
    notes: tuple[str, ...] = ()  # what was not read
    objects: list[dict[str, Any]] | None = field(default=None, repr=False)  # of JSON lines, as they stand there

    def column(self, name: str) -> list[str]:
        if name not in self.header:
            known = ", ".join(self.header[:MAX_COLUMNS_NAMED]) + (", …" if len(self.header) > MAX_COLUMNS_NAMED else "")
            raise NextwordError(
                f"{self.name} has no column '{name}'; it has {known}. Name the right ones with --text, --second and "
                "--label."
            )
        if self.header.count(name) > 1:
            raise NextwordError(f"{self.name} has {self.header.count(name)} columns '{name}'. Rename all but one.")
        at = self.header.index(name)
        return [row[at] for row in self.rows]

    def rows_of(self, columns: Columns) -> Rows:
        texts = self.column(columns.text)
        seconds = self.column(columns.second) if columns.second else None
        return Rows(texts, seconds, [one.strip() for one in self.column(columns.label)] if columns.label else None)


def held_out(rows: Rows, by_class: bool = True) -> list[int]:
    """The same rows on every machine: those of each class whose texts' hashes are least. Equal rows stay together."""
    groups: dict[str, list[tuple[bytes, int]]] = {}
    for i in range(len(rows)):
        hashed = blake2b(rows.key(i).encode("utf-8", "replace"), digest_size=8).digest()
        groups.setdefault(rows.labels[i] if by_class and rows.labels else "", []).append((hashed, i))
    chosen: list[int] = []
    for group in groups.values():
        group.sort()
        n = round(HELD_OUT_FRACTION * len(group))
        while 0 < n < len(group) and group[n][0] == group[n - 1][0]:
            n += 1
        chosen += [i for _, i in group[:n]] if n < len(group) else []
    return sorted(chosen)


# ------------------------------------------------------------------------------------------------ reading


def read_table(path: str | Path, header: Header | None = None, source: Iterator[str] | None = None) -> Table:
    """By the file's ending. Standard input (`-`) and other files are JSON lines if they begin with {, a csv or a tsv if
    their first line is a `header`, else plain lines, in which a tab divides two texts.

    `source`: the lines, where they have been read already.
    """
    name, suffix = FROM_STDIN if str(path) == STDIN else str(path), Path(plain_name(path)).suffix.lower()
    source = lines(path) if source is None else source
    if suffix in DELIMITERS:
        table = _delimited(name, source, suffix)
    else:
        before = list(_to_first(source))
        first = before[-1].rstrip("\n") if before else ""
        table = _by_first_line(name, first, chain(before, source), suffix, header)
    if not table.rows:
        who = "Standard input" if name == FROM_STDIN else name
        raise NextwordError(f"{who} has no row in it. Expected examples, one a line, after a header if it is a table.")
    return table


def _to_first(source: Iterator[str]) -> Iterator[str]:
    """Empty lines, and the first that is not."""
    for line in source:
        yield line
        if line.strip():
            return


def _by_first_line(name: str, first: str, source: Iterator[str], suffix: str, header: Header | None) -> Table:
    opening = first.lstrip()
    if opening.startswith("[") and (suffix == ".json" or opening[1:].lstrip()[:1] in ("", "{")):
        how = "… | jq -c '.[]' | nextword …" if name == FROM_STDIN else f"jq -c '.[]' {name} > {Path(name).stem}.jsonl"
        raise NextwordError(f"{name} is one JSON list. Expected one object a line: {how}")
    if suffix in TABLE_JSON_SUFFIXES or opening.startswith("{"):
        return _json_lines(name, source)
    mark = mark_of(first, header) if header else ""
    if not mark:
        return _plain(name, source)
    ending = ".tsv" if mark == DELIMITERS[".tsv"] else ".csv"
    said = f"the first line, {first!r}, is read as the header of a {ending[1:]}"
    try:
        table = _delimited(name, source, ending)
    except NextwordError as problem:
        raise NextwordError(f"{problem} ({said[0].upper()}{said[1:]}.)") from None
    return replace(table, notes=(said, *table.notes))


def _delimited(name: str, source: Iterator[str], suffix: str) -> Table:
    told: list[str] = []
    found = rows(name, source, suffix, {*TEXTS, *SECONDS, *LABELS}, told=told)
    header = [cell.strip() for cell in next(found, (0, []))[1]]
    filled = [row for _, row in found]
    there = [row for row in filled if row]
    return Table(name, header, there, suffix[1:], (*told, *_blank(len(filled) - len(there))))


def _blank(n: int) -> tuple[str, ...]:
    return (f"{n:,} empty line{'s are' if n > 1 else ' is'} left out",) if n else ()


def _json_lines(name: str, source: Iterator[str]) -> Table:
    found = list(json_objects(name, source, ', as {"text": …}'))
    header = list(dict.fromkeys(key for one in found for key in one))
    return Table(name, header, [[_cell(one.get(key)) for key in header] for one in found], "jsonl", (), found)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _plain(name: str, source: Iterator[str]) -> Table:
    given = [line.rstrip("\n") for line in source]
    rows = [line.split("\t") for line in given if line.strip()]
    width = max(map(len, rows), default=1)
    header = ["text"] if width == 1 else ["text", "second"] if width == 2 else [f"column{i}" for i in range(width)]
    filled = [row + [""] * (width - len(row)) for row in rows]
    return Table(name, header, filled, "lines", _blank(len(given) - len(rows)))


# ------------------------------------------------------------------------------------------------ which column is what


def labelled(asked: Columns = Columns()) -> Header:
    """Names of columns with a text and a label among them: those asked for, or such as are known."""

    def fits(cells: Sequence[str]) -> bool:
        low = {cell.lower() for cell in cells}
        there = [name in cells for name in vars(asked).values() if name]
        known = [asked.text or low & {*TEXTS}, asked.label or low & {*LABELS}]
        return len(cells) > 1 and all(there) and all(known)

    return fits


def like_a_header(line: str) -> bool:
    """Whether a plain line is names with a mark and no space between them, one of them a usual name of texts."""
    made = (cells_of(line, mark) for mark in MARKS if " " not in line)
    return any(len(cells) > 1 and any(cell.lower() in TEXTS for cell in cells) for cells in made)


def guess(table: Table, asked: Columns, labelled: bool = True) -> Columns:
    """The columns asked for, and for the rest the likeliest by name.

    Without a name that is known, the text is the column with most in it, and the label the only one that is left.
    """
    there = [name for name in vars(asked).values() if name]
    for name in there:
        table.column(name)
    if len(set(there)) < len(there):
        said = ", ".join(f"--{role} {name}" for role, name in vars(asked).items() if name)
        raise NextwordError(f"{table.name}: one column cannot be two things: {said}.")
    named = {name.lower(): name for name in reversed(table.header) if name not in (asked.text, asked.second)}
    label = asked.label
    if labelled and not label:
        label = next((named[one] for one in LABELS if one in named), "")
    text, second = asked.text, asked.second
    if not text:
        free = {low: name for low, name in named.items() if name != label}
        text = next((free[one] for one in TEXTS if one in free), "") or _longest(table, free.values())
        if not second:
            second = next((free[one] for one in SECONDS if one in free and free[one] != text), "")
    if labelled and not label:
        left = [n for n in table.header if n not in (text, second) and n.lower() not in IGNORED]
        if len(left) != 1:
            raise NextwordError(
                f"{table.name}: which column is the label? It has {', '.join(table.header[:MAX_COLUMNS_NAMED])}. Name it with "
                "--label."
            )
        label = left[0]
    if not text or text == label:
        raise NextwordError(
            f"{table.name}: which column is the text? It has {', '.join(table.header[:MAX_COLUMNS_NAMED]) or 'none'}. Name it with "
            "--text."
        )
    return Columns(text, second, label)


def how_found(table: Table, asked: Columns, found: Columns) -> list[str]:
    """How the columns that nobody named were found, and which others may have been meant."""
    known = {"text": TEXTS, "second": SECONDS, "label": LABELS}
    guessed = {role: name for role, name in vars(found).items() if name and not getattr(asked, role)}
    notes = []
    for how, by_name in (("their names", True), ("what is in them", False)):
        said = [f"{role} '{name}'" for role, name in guessed.items() if (name.lower() in known[role]) == by_name]
        notes += [f"columns by {how}: {', '.join(said)}"] if said else []
    for role in guessed:
        others = [n for n in table.header if n.lower() in known[role] and n not in vars(found).values()]
        if others:
            notes.append(f"the {role} could also be {' or '.join(map(repr, others))}: --{role} says which")
    return notes


def found_in(table: Table, usual: Columns, insist: Columns) -> Columns:
    """The columns that are insisted on, and of the usual ones those that the table has."""
    there = {role: name if name in table.header else "" for role, name in vars(usual).items()}
    return Columns(**{role: name or there[role] for role, name in vars(insist).items()})


def _longest(table: Table, names: Any) -> str:
    fit = [name for name in names if name.lower() not in IGNORED and table.header.count(name) == 1]
    sizes = {name: sum(map(len, table.column(name))) for name in fit}
    return max(sizes, key=lambda name: sizes[name], default="")
