"""What nextword would read in a file, and for which task: what `nextword data FILE` shows.

describe_file("reviews.csv")     kind, encoding, delimiter, header, columns with roles, rows, classes, lengths, warnings
describe_file("my/folder")       the same of its train, dev and test files
"""

from __future__ import annotations

import shlex
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from nextword.core.errors import DataError, InvalidSetting, NextwordError
from nextword.core.io import user_path
from nextword.data.conll import is_tagged, open_tagged
from nextword.data.corpus import hash_text
from nextword.data.files import TextStream, format_suffix, is_archive, plain_name, text_keys
from nextword.data.header import LABEL_NAMES, LANGUAGES
from nextword.data.parallel_files import NESTED, USUAL_PAIRS, usual_columns
from nextword.data.squad import read_squad
from nextword.data.tables import (
    DELIMITER_NAMES,
    DELIMITERS,
    IGNORED,
    JSON,
    LINES,
    MAX_COLUMNS_NAMED,
    TABLE_JSON_SUFFIXES,
    Columns,
    OpenTable,
    Table,
    cell_text,
    guess_columns,
    open_table,
)
from nextword.tasks.datasets.base import is_number
from nextword.tasks.datasets.multiple_choice import has_candidates
from nextword.tasks.text_data import MANY, SPLITS

OnProgress = Callable[[str, float, float | None], None]
SAMPLE_ROWS = 1000  # that decide about the kind
MAX_LINES = 400  # that decide whether a file has tagged words
NUM_EXAMPLES = 5
FEW_ROWS = 50  # in training; below, no model learns much
MAX_COUNTED = 1_000_000  # rows whose duplicates are counted
MAX_LABEL_LENGTH = 60  # characters
TEXT, PARALLEL, TAGS, QUESTIONS, CHOICE = "text", "parallel", "tagging", "question_answering", "multiple_choice"
LABELED, LABELED_PAIRS, NUMBERS = "classification", "pair_classification", "regression"
TITLES = {
    LABELED: "labeled texts",
    LABELED_PAIRS: "labeled pairs of texts",
    NUMBERS: "texts with a number each (regression)",
    CHOICE: "questions with several choices",
    PARALLEL: "parallel text (pairs of source and target)",
    TAGS: "tagged words (CoNLL)",
    QUESTIONS: "questions about passages",
    TEXT: "texts, one per row",
}
COMMANDS = {
    LABELED: "transfer bert/finetune --from RUN",
    LABELED_PAIRS: "transfer bert/finetune --from RUN",
    NUMBERS: "transfer bert/finetune --from RUN",
    CHOICE: "transfer bert/choice --from RUN",
    PARALLEL: "train seq2seq/small",
    TAGS: "transfer bert/tag --from RUN",
    QUESTIONS: "transfer bert/span --from RUN",
    TEXT: "compare",
}


@dataclass
class Lengths:
    """Lengths of many texts."""

    words: array[int] = field(default_factory=lambda: array("Q"))
    characters: array[int] = field(default_factory=lambda: array("Q"))

    def add(self, text: str) -> None:
        self.words.append(len(text.split()))
        self.characters.append(len(text))

    def as_dict(self) -> dict[str, dict[str, int]]:
        return {unit: _quantiles(lengths) for unit, lengths in (("words", self.words), ("characters", self.characters))}


def _quantiles(lengths: array[int]) -> dict[str, int]:
    if not lengths:
        return {"median": 0, "p95": 0, "longest": 0}
    median, p95, longest = np.quantile(np.asarray(lengths), (0.5, 0.95, 1.0), method="nearest")
    return {"median": int(median), "p95": int(p95), "longest": int(longest)}


@dataclass
class Split:
    """What is counted in the rows of one split."""

    rows: int = 0
    empty: Counter[str] = field(default_factory=Counter)  # by role
    labels: Counter[str] = field(default_factory=Counter)
    hashes: set[int] = field(default_factory=set)  # of the first rows
    duplicates: int = 0

    def add(self, roles: Mapping[str, str], label: str) -> None:
        self.rows += 1
        self.empty.update(role for role, text in roles.items() if not text.strip())
        if label:
            self.labels[label] += 1
        if self.rows <= MAX_COUNTED:
            code = hash_text("\x1e".join(roles.values()))
            self.duplicates += code in self.hashes
            self.hashes.add(code)


def describe_file(
    source: str | Path, columns: Columns = Columns(), on_progress: OnProgress = lambda label, done, total: None
) -> dict[str, Any] | None:
    """Describe a file, or a folder with a file for each split; None for plain text and what is no table at all."""
    path = user_path(source)
    files = _files(path)
    if not files or is_archive(next(iter(files.values()))):
        return None
    first = next(iter(files.values()))
    lines = list(islice(TextStream(first, legacy=True).lines(), MAX_LINES)) if format_suffix(first) != ".csv" else []
    if format_suffix(first) == ".json" and '"data"' in "".join(lines)[: 1 << 16]:
        return _describe_questions(path, files)
    if lines and format_suffix(first) not in TABLE_JSON_SUFFIXES and _is_tagged(first, lines):
        return _describe_tags(path)
    table = _open(first, columns)
    if table.kind == LINES:
        return None
    return _describe_table(path, files, table, columns, on_progress)


def _is_tagged(path: Path, lines: Sequence[str]) -> bool:
    """Whether lines have a word and its tags. Those of a .tsv have no spaces in their first column, as texts do."""
    has_words = format_suffix(path) not in DELIMITERS or not any(" " in line.split("\t")[0] for line in lines)
    return has_words and is_tagged(plain_name(path), lines)


def _open(path: Path, columns: Columns) -> OpenTable:
    expected = [name for name in columns.roles.values() if name]
    return open_table(path, header=columns.has_header, expected=expected, min_columns=2)


def _files(path: Path) -> dict[str, Path]:
    """Split → its file; "" if a single file has no splits."""
    if path.is_file():
        return {"": path}
    files: dict[str, Path] = {}
    for split, names in SPLITS.items() if path.is_dir() else ():
        for file in sorted(path.iterdir()):
            if file.is_file() and file.name.split(".")[0].lower() in names:
                files.setdefault(split, file)
    return files if "train" in files else {}


# ------------------------------------------------------------------------------------------------ tables


def _describe_table(
    path: Path, files: Mapping[str, Path], table: OpenTable, columns: Columns, on_progress: OnProgress
) -> dict[str, Any]:
    sample = _sample(table)
    kind, roles, why = _choose_kind(sample, table, columns)
    texts = {role: name for role, name in roles.items() if role != "label"}
    lengths = {role: Lengths() for role in texts}
    splits: dict[str, Split] = {}
    examples: list[dict[str, str]] = []
    encodings = set()
    lacks: list[str] = []
    for split, file in files.items():
        counts = splits.setdefault(split or "all", Split())
        opened = _open(file, columns)
        missing = [name for name in texts.values() if opened.is_delimited and opened.find(name) is None]
        for name in missing:
            lacks.append(f"{file.name} has no column '{name}', only {', '.join(opened.columns[:MAX_COLUMNS_NAMED])}")
        for cells in _cells(opened, list(roles.values())):
            named = dict(zip(roles, cells, strict=True))
            if missing:
                counts.rows += 1
                continue
            own = {role: named[role] for role in texts}
            counts.add(own, named.get("label", "").strip())
            for role, text in own.items():
                lengths[role].add(text)
            if len(examples) < NUM_EXAMPLES:
                examples.append(named)
            on_progress(f"reading {file.name}", counts.rows, None)
        encodings.add(opened.encoding)
    labels = sum((counts.labels for counts in splits.values()), Counter[str]())
    if kind in (LABELED, LABELED_PAIRS) and len(labels) > MANY and all(map(is_number, labels)):
        kind = NUMBERS
    notes = [*table.header_note(), *why]
    return {
        "name": path.name or path.resolve().name,
        "kind": kind,
        "title": TITLES[kind],
        "source": str(path),
        "files": {split or "all": str(file) for split, file in files.items()},
        "format": table.kind,
        "encoding": ", ".join(sorted(encoding or "ascii" for encoding in encodings)),
        "delimiter": DELIMITER_NAMES.get(table.layout.delimiter, ""),
        "header": table.has_header if table.is_delimited else None,
        "columns": [
            {"name": name, "role": next((role for role, own in roles.items() if own == name), "")}
            for name in dict.fromkeys([*sample.header, *roles.values()])
        ],
        "rows": {split: counts.rows for split, counts in splits.items()},
        **_label_facts(kind, labels),
        "lengths": {role: own.as_dict() for role, own in lengths.items()},
        "warnings": [*lacks, *_warnings(kind, splits, labels)],
        "notes": notes,
        "examples": examples,
        "command": _command(kind, path, columns),
    }


def _sample(table: OpenTable) -> Table:
    """The first rows of a table, as a table in memory."""
    if table.kind == JSON:
        objects = [item for _, item in islice(table.objects, SAMPLE_ROWS)]
        header = list(dict.fromkeys(key for item in objects for key in item))
        rows = [[cell_text(item.get(key)) for key in header] for item in objects]
        return Table(table.name, header, rows, JSON, (), objects)
    rows = [row for _, row in islice(table.rows, SAMPLE_ROWS) if row]
    return Table(table.name, table.columns, rows, table.kind, has_header=table.has_header)


def _cells(table: OpenTable, names: Sequence[str]) -> Iterator[list[str]]:
    """The cells of these columns, row by row; empty lines are left out, and columns that a split lacks are empty."""
    if table.kind == JSON:
        for _, item in table.objects:
            nested = item.get(NESTED)
            inner = nested if isinstance(nested, dict) else item
            yield [cell_text(inner.get(name, item.get(name))) for name in names]
        return
    indices = [table.find(name) for name in names]
    for _, row in table.rows:
        if row:
            yield ["" if index is None else row[index] for index in indices]


def _choose_kind(sample: Table, table: OpenTable, columns: Columns) -> tuple[str, dict[str, str], list[str]]:
    """The kind of a table, role → column, and notes."""
    lower = {name.lower(): name for name in reversed(sample.header)}
    if not sample.rows:
        raise DataError(
            f"{sample.name}: no rows. Expected one or more, after a header if there is one.", path=sample.name
        )
    if columns.text and columns.label:
        roles = guess_columns(sample, columns).roles
        return (LABELED_PAIRS if columns.second else LABELED), _only(roles), []
    if has_candidates(sample.header):
        context = next(
            (lower[name] for name in ("context", "passage", "article", "text", "sent1") if name in lower), ""
        )
        rest = {"question": lower.get("question", ""), "label": lower.get("label", "")}
        return CHOICE, _only({"context": context, **rest}), []
    nested = sample.objects[0].get(NESTED) if sample.objects else None
    if isinstance(nested, dict) and len(keys := text_keys(nested)) > 1:
        return PARALLEL, {"source": keys[0], "target": keys[1]}, []
    for source, target in USUAL_PAIRS:
        if source in sample.header and target in sample.header:
            return PARALLEL, {"source": source, "target": target}, []
    if {"question", "context"} <= set(lower):
        answer = next((lower[name] for name in ("answers", "answer") if name in lower), "")
        return QUESTIONS, _only({"context": lower["context"], "question": lower["question"], "label": answer}), []
    languages = [name for name in sample.header if name.lower() in LANGUAGES]
    if table.is_delimited and len(languages) == 2:
        return PARALLEL, {"source": languages[0], "target": languages[1]}, []
    return _kind_by_content(sample, table, columns)


def _only(roles: Mapping[str, str]) -> dict[str, str]:
    return {role: name for role, name in roles.items() if name}


def _kind_by_content(sample: Table, table: OpenTable, columns: Columns) -> tuple[str, dict[str, str], list[str]]:
    notes: list[str] = []
    try:
        guessed = guess_columns(sample, columns)
        labels = sample.column(guessed.label)
        is_named = bool(columns.label) or guessed.label.lower() in LABEL_NAMES
        if (is_named or len(set(labels)) > 1) and looks_like_labels(labels, sample.column(guessed.text)):
            return (LABELED_PAIRS if guessed.second else LABELED), _only(guessed.roles), []
    except InvalidSetting:
        pass  # no column is the label
    except NextwordError as error:  # two columns of one name
        notes = [str(error)]
    pair = usual_columns(table) if table.is_delimited else None
    if pair and all(_are_texts(sample.column(name)) for name in pair):
        return PARALLEL, {"source": pair[0], "target": pair[1]}, []
    names = [name for name in sample.header if sample.header.count(name) == 1]
    known = next((name for name in names if name == "text"), "")
    sizes = {name: sum(map(len, sample.column(name))) for name in names if name.lower() not in IGNORED} or {names[0]: 0}
    if len(sizes) > 1:
        notes.append("no column looks like labels. If one is: --columns TEXT,LABEL")
    return TEXT, {"text": columns.text or known or max(sizes, key=lambda name: sizes[name])}, notes


def looks_like_labels(cells: Sequence[str], texts: Sequence[str]) -> bool:
    """Whether cells are names of classes, or numbers, rather than texts."""
    filled = [cell.strip() for cell in cells if cell.strip()]
    distinct = set(filled)
    if not filled or max(map(len, distinct)) > MAX_LABEL_LENGTH:
        return False
    if all(map(is_number, distinct)) or (len(distinct) < len(filled) and 2 * len(distinct) <= len(filled)):
        return True
    return 4 * sum(map(len, filled)) < sum(map(len, texts)) and all(len(cell.split()) < 3 for cell in distinct)


def _are_texts(cells: Sequence[str]) -> bool:
    return not all(is_number(cell.strip()) for cell in cells)


# ------------------------------------------------------------------------------------------------ labels, warnings


def _label_facts(kind: str, labels: Counter[str]) -> dict[str, Any]:
    if kind == NUMBERS:
        numbers = np.array([float(label) for label, n in labels.items() for _ in range(n)])
        return {
            "numbers": {"lowest": numbers.min().item(), "mean": numbers.mean().item(), "highest": numbers.max().item()}
        }
    return {"classes": dict(labels.most_common())} if kind in (LABELED, LABELED_PAIRS) else {}


def _warnings(kind: str, splits: Mapping[str, Split], labels: Counter[str]) -> list[str]:
    warnings = []
    for split, counts in splits.items():
        where = "" if split == "all" else f" of {split}"
        for role, empty in counts.empty.items():
            warnings.append(f"{empty:,} of the {counts.rows:,} rows{where} have an empty {role}")
        unlabeled = counts.rows - counts.labels.total() if counts.hashes else 0  # without hashes, its columns differ
        if kind in (LABELED, LABELED_PAIRS, NUMBERS) and unlabeled > 0:
            withheld = split == "test" and unlabeled == counts.rows
            warnings += [] if withheld else [f"{unlabeled:,} of the {counts.rows:,} rows{where} have no label"]
        if counts.duplicates:
            warnings.append(f"{counts.duplicates:,} of the {counts.rows:,} rows{where} repeat an earlier row")
    if kind in (LABELED, LABELED_PAIRS):
        rare = [label for label, count in labels.items() if count < 6]
        if len(labels) == 1:
            warnings.append(f"there is only one class, {next(iter(labels))!r}: nothing can be learned")
        elif rare:
            shown = ", ".join(map(repr, rare[:5])) + (" …" if len(rare) > 5 else "")
            warnings.append(f"{len(rare):,} of {len(labels):,} classes have fewer than 6 rows ({shown})")
    train = splits.get("train") or splits.get("all")
    warnings += _few(train.rows, "row") if train is not None else []
    for split, counts in splits.items():
        if train is not None and counts is not train and (both := len(counts.hashes & train.hashes)):
            warnings.append(f"{both:,} different rows of {split} are also in train")
    return warnings


def _few(n: int, noun: str) -> list[str]:
    return [f"{n:,} {noun}{'s' * (n != 1)} to learn from: that is very few"] if n < FEW_ROWS else []


def _command(kind: str, path: Path, columns: Columns = Columns()) -> str:
    """The command to try next, with the options that were given."""
    names = [name for name in columns.roles.values() if name]
    options = [f"--columns {shlex.quote(','.join(names))}"] if names else []
    if columns.header:
        options.append("--header" if columns.has_header else "--no-header")
    return " ".join(["nextword", COMMANDS[kind], "--data", shlex.quote(str(path)), *options])


# ------------------------------------------------------------------------------------------------ other formats


def _describe_tags(path: Path) -> dict[str, Any]:
    splits = open_tagged(path)
    lengths = Lengths()
    for text in splits.values():
        for sentence in text.sentences:
            lengths.add(" ".join(sentence.words))
    sentences = [sentence for text in splits.values() for sentence in text.sentences]
    tags = Counter(tag for sentence in sentences for tag in sentence.tags)
    return {
        **_common(TAGS, path),
        "rows": {split: len(text) for split, text in splits.items()},
        "tags": dict(tags.most_common()),
        "lengths": {"sentence": lengths.as_dict()},
        "warnings": _few(len(sentences), "sentence"),
        "notes": [note for text in splits.values() for note in text.notes],
        "examples": [
            {"words": " ".join(sentence.words), "tags": " ".join(sentence.tags)}
            for sentence in sentences[:NUM_EXAMPLES]
        ],
        "command": _command(TAGS, path),
    }


def _describe_questions(path: Path, files: Mapping[str, Path]) -> dict[str, Any]:
    splits = {split or "all": read_squad(file) for split, file in files.items()}
    questions = [question for split in splits.values() for question in split.all]
    lengths = {"context": Lengths(), "question": Lengths(), "answer": Lengths()}
    for question in questions:
        lengths["context"].add(question.context)
        lengths["question"].add(question.question)
        for answer in (question.answers or ())[:1]:
            lengths["answer"].add(answer)
    without = sum(question.answers == () for question in questions)
    lost = sum(question.is_lost for question in questions)
    warnings = [f"{lost:,} questions have an answer that is not in the passage"] if lost else []
    warnings += _few(len(questions), "question")
    return {
        **_common(QUESTIONS, path),
        "rows": {split: len(part) for split, part in splits.items()},
        "lengths": {role: own.as_dict() for role, own in lengths.items()},
        "warnings": warnings,
        "notes": [f"{without:,} questions have no answer"] if without else [],
        "examples": [
            {"question": one.question, "answer": (one.answers or ("",))[0], "context": one.context}
            for one in questions[:NUM_EXAMPLES]
        ],
        "command": _command(QUESTIONS, path),
    }


def _common(kind: str, path: Path) -> dict[str, Any]:
    return {"name": path.name or path.resolve().name, "kind": kind, "title": TITLES[kind], "source": str(path)}
