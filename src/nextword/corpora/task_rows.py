"""Files of tasks as pairs of texts: each row's fields are put into the templates of its task.

    label \t sentence            sst2 sentence: a fine film      →  positive
    1     \t a fine film         ^^^^^^^^^^^^^^^ the prefix

A text here can also say every answer that is right (`examples`), where a question has several; the first is what is
trained on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from nextword.contract_errors import NextwordError
from nextword.corpora.corpus import Corpus
from nextword.corpora.decoding import lines
from nextword.corpora.document import Document
from nextword.corpora.parallel_files import feed
from nextword.corpora.questions import read_squad

PLACE = re.compile(r"\{(\w+)\}")
LABEL = "label"
FORMAT = b"text to text 1;"  # raise it when the same files would read as other pairs than before

Example = tuple[Document, tuple[str, ...]]  # the pair, and all targets that are right


@dataclass(frozen=True)
class Task:
    """One line of text_to_text.toml; the fields are explained there."""

    name: str
    title: str = ""
    data: tuple[str, ...] = ()
    reader: str = "tsv"
    files: Mapping[str, Sequence[str]] = field(
        default_factory=lambda: {"train": ["train.tsv"], "valid": ["dev.tsv"], "test": ["test.tsv"]}
    )
    fields: Mapping[str, Any] = field(default_factory=dict)
    source: str = "{source}"
    target: str = "{label}"
    labels: Mapping[str, str] = field(default_factory=dict)
    step: float = 0.0
    metrics: tuple[str, ...] = ()
    longer: float = 2.0

    @property
    def prefix(self) -> str:
        """What every source begins with."""
        return self.source[: found.start()] if (found := PLACE.search(self.source)) else self.source

    @cached_property
    def answers(self) -> tuple[str, ...]:
        """The texts that it chooses from, in the order of classes; none where any text may be right."""
        return tuple(self.labels.values())

    def filled(self, row: Mapping[str, str], where: str) -> tuple[str, str]:
        """Source and target of a row."""
        if LABEL in row:
            row = {**row, LABEL: self._label(row[LABEL], where)}
        try:
            source, target = (PLACE.sub(lambda m: row[m[1]], one) for one in (self.source, self.target))
        except KeyError as error:
            raise NextwordError(
                f"Task {self.name}: a template names {{{error.args[0]}}}; the fields are {', '.join(row)}."
            ) from None
        return source, target

    def _label(self, given: str, where: str) -> str:
        if self.step:
            try:
                return rounded(float(given), self.step)
            except ValueError:
                raise NextwordError(f"{where}: {given!r} is not a number, as task {self.name} needs.") from None
        if given not in self.labels:
            known = ", ".join(self.labels)
            raise NextwordError(f"{where}: the label {given!r} is not among those of task {self.name}: {known}.")
        return self.labels[given]


def multiple(value: float | str | Decimal, step: float | str | Decimal) -> int:
    """Which multiple of the step is nearest, by decimals; of two that are as near, the even one, as in T5's own code:
    0.1 is nearest to 0 · 0.2, and 0.3 to 2 · 0.2."""
    return int((Decimal(str(value)) / Decimal(str(step))).to_integral_value(ROUND_HALF_EVEN))


def rounded(value: float | str | Decimal, step: float | str | Decimal) -> str:
    """2.57 → "2.6" for a step of 0.2: a number as one of few texts, which a model can learn to write."""
    return f"{multiple(value, step) * Decimal(str(step)):f}"


@dataclass(frozen=True)
class Rows:
    """The pairs of a task's own files."""

    task: Task
    files: tuple[Path, ...]

    def documents(self) -> Iterator[Document]:
        return (document for document, _ in self.examples())

    def examples(self) -> Iterator[Example]:
        read = _squad if self.task.reader == "squad" else _table
        some = False
        for path in self.files:
            for at, row, answers in read(path, self.task):
                where = f"{path.name}:{at}"
                source, target = self.task.filled(row, where)
                if source.strip() == self.task.prefix.strip() or not target.strip():
                    raise NextwordError(
                        f"{path}, {at}: a side is empty ({source[:40]!r} → {target[:40]!r}). A pair of task "
                        f"{self.task.name} needs both: remove that line, or fill it."
                    )
                some = True
                yield Document(target, where, source=source), answers or (target,)
        if not some:
            raise NextwordError(f"{', '.join(map(str, self.files))} has no example of task {self.task.name}.")

    def size(self) -> int | None:
        return None

    def update(self, hasher: Any) -> None:
        hasher.update(FORMAT + repr(self.task).encode())
        for path in self.files:
            feed(hasher, path)


@dataclass(frozen=True)
class Framed:
    """One split of a corpus of pairs, in the words of a task."""

    task: Task
    corpus: Corpus
    split: str

    def documents(self) -> Iterator[Document]:
        for pair in self.corpus.documents(self.split):
            row = {"source": pair.source or "", "target": pair.text}
            source, target = self.task.filled(row, pair.id)
            yield Document(target, pair.id, source=source)

    def examples(self) -> Iterator[Example]:
        return ((document, (document.text,)) for document in self.documents())

    def size(self) -> int | None:
        return self.corpus.bytes(self.split)

    def update(self, hasher: Any) -> None:
        hasher.update(FORMAT + f"{self.task!r} {self.split} {self.corpus.fingerprint};".encode())


def labelled(task: Task, path: Path) -> bool:
    """Whether a file has the column of the label: benchmarks keep back those of their test sets."""
    if task.reader != "tsv" or LABEL not in task.fields:
        return True
    first = next(lines(path), "").rstrip("\n").split("\t")
    column = task.fields[LABEL]
    return len(first) > max(task.fields.values()) if isinstance(column, int) else bool(set(_names(column)) & set(first))


# ------------------------------------------------------------------------------------------------ formats

Found = tuple[str, dict[str, str], tuple[str, ...]]  # where, fields, all answers that are right (none: the target)


def _names(column: Any) -> Sequence[str]:
    return [column] if isinstance(column, str) else column


def _table(path: Path, task: Task) -> Iterator[Found]:
    """Tabs alone divide: GLUE's files have quotation marks that are never closed."""
    numbered = all(isinstance(column, int) for column in task.fields.values())
    at: dict[str, int] = dict(task.fields) if numbered else {}
    for number, line in enumerate(lines(path), 1):
        cells = line.rstrip("\n").split("\t")
        if not at:
            at = {name: _at(path, task, cells, _names(column)) for name, column in task.fields.items()}
        elif len(cells) > max(at.values()):
            yield f"line {number}", {name: cells[i].strip() for name, i in at.items()}, ()
        elif line.strip():
            raise NextwordError(
                f"{path}, line {number} has {len(cells)} column{'s' * (len(cells) != 1)}; task {task.name} needs "
                f"{max(at.values()) + 1}. Mend or remove that line."
            )


def _at(path: Path, task: Task, header: Sequence[str], names: Sequence[str]) -> int:
    for name in names:
        if name in header:
            return header.index(name)
    raise NextwordError(
        f"{path} has no column {' or '.join(map(repr, names))}, which task {task.name} needs; its first line is "
        f"{' | '.join(header)[:100]!r}."
    )


def _squad(path: Path, task: Task) -> Iterator[Found]:
    for one in read_squad(path).all:
        answers = tuple(dict.fromkeys(text for text in one.answers or () if text.strip()))
        if answers:  # SQuAD 2.0 has questions without one
            yield one.id, {"question": one.question, "context": one.context.strip(), "answer": answers[0]}, answers
