"""Text-to-text tasks (T5): each task as pairs of texts with its prefix, mixed at given rates into one parallel corpus.

    label 	 sentence            sst2 sentence: a fine film      →  positive
    1     	 a fine film         ^^^^^^^^^^^^^^^ the prefix

A spec names the tasks and how to mix them:

    tasks:sst2                                one task of text_to_text.toml
    tasks:sst2+cola+summarize                 several, in proportion to their examples (at most 65,536 count)
    tasks:sst2+cola,limit=2000                … at most 2,000 count
    tasks:sst2+cola,temperature=2             … rates to the power of 1/2
    tasks:sst2+cola,equal
    tasks:summarize:my.jsonl:text-short       a task on other pairs
    tasks:sst2+denoise:python                 with span corruption of a plain text, T5's unsupervised objective
    my-tasks.toml                             [[task]] tables, also of your own tasks

Raffel et al. (2020), section 3.5.2: with e_m examples of task m, r_m = min(e_m, K) / Σ min(e_n, K); with a temperature
T, r_m^(1/T), which approaches equal rates as T grows. A table may set its `rate`, a fraction of all examples; the
others share the rest.

A text here can also yield every correct answer (`examples`), if a question has several; training uses the first.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from nextword.core.errors import InvalidSetting, MissingFile, UnknownName, bad_data, invalid, unknown
from nextword.core.io import MAX_TOML_BYTES, path_exists, read_bytes, user_path
from nextword.core.types import Document
from nextword.data.catalog import Entry, data_home
from nextword.data.corpus import HELD_OUT, SPLITS, Corpus, TextSource, assign_split
from nextword.data.files import Hasher, hash_file, read_lines, read_toml_tables, require_nonempty
from nextword.data.mixture import is_number
from nextword.data.parallel_files import ParallelCorpus
from nextword.data.squad import read_squad

PLACE = re.compile(r"\{(\w+)\}")
LABEL = "label"
FORMAT = b"text to text 1;"  # part of the fingerprint; change it if the same files yield different pairs

Example = tuple[Document, tuple[str, ...]]  # the pair, and all correct targets


@dataclass(frozen=True)
class Task:
    """One table of text_to_text.toml, which explains the fields."""

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
        """The text that every source begins with."""
        return self.source[: match.start()] if (match := PLACE.search(self.source)) else self.source

    @cached_property
    def answers(self) -> tuple[str, ...]:
        """The possible targets of a classification task, in the order of classes; empty for free text."""
        return tuple(self.labels.values())

    def fill_templates(self, row: Mapping[str, str], where: str) -> tuple[str, str]:
        """Return source and target of a row."""
        if LABEL in row:
            row = {**row, LABEL: self._label(row[LABEL], where)}
        try:
            source, target = (PLACE.sub(lambda m: row[m[1]], template) for template in (self.source, self.target))
        except KeyError as error:
            raise unknown("field", error.args[0], row, where=f"A template of task {self.name}") from None
        return source, target

    def _label(self, value: str, where: str) -> str:
        if self.step:
            try:
                return round_to_step(float(value), self.step)
            except ValueError:
                raise bad_data(where, f"the label {value!r} of task {self.name} is not a number.") from None
        if value not in self.labels:
            raise unknown(f"label of task {self.name}", value, self.labels, where=where)
        return self.labels[value]


def nearest_multiple(value: float | str | Decimal, step: float | str | Decimal) -> int:
    """Return the nearest multiple of a step, in decimal arithmetic; ties go to the even one, as in T5's code.

    0.1 is nearest to 0 · 0.2, and 0.3 to 2 · 0.2.
    """
    return int((Decimal(str(value)) / Decimal(str(step))).to_integral_value(ROUND_HALF_EVEN))


def round_to_step(value: float | str | Decimal, step: float | str | Decimal) -> str:
    """Round a number to one of few texts, which a model can learn to generate: 2.57 → "2.6" for a step of 0.2."""
    return f"{nearest_multiple(value, step) * Decimal(str(step)):f}"


@dataclass(frozen=True)
class TaskFiles:
    """The pairs in the files of a task."""

    task: Task
    files: tuple[Path, ...]

    def documents(self) -> Iterator[Document]:
        return (document for document, _ in self.examples())

    def examples(self) -> Iterator[Example]:
        for path in self.files:
            yield from require_nonempty(self._read(path), path, f"no examples of task {self.task.name}.")

    def _read(self, path: Path) -> Iterator[Example]:
        read = _read_squad if self.task.reader == "squad" else _read_table
        for place, row, answers in read(path, self.task):
            id = f"{path.name}:{place}"
            source, target = self.task.fill_templates(row, id)
            if source.strip() == self.task.prefix.strip() or not target.strip():
                sides = f"{source[:40]!r} → {target[:40]!r}"
                raise bad_data(
                    path, f"{place}: one side of the pair is empty ({sides}). Remove the line, or fill it in."
                )
            yield Document(target, id, source=source), answers or (target,)

    def size(self) -> int | None:
        return None

    def update(self, hasher: Hasher) -> None:
        hasher.update(FORMAT + repr(self.task).encode())
        for path in self.files:
            hash_file(hasher, path)


@dataclass(frozen=True)
class TaskPairs:
    """One split of a parallel corpus, in the templates of a task."""

    task: Task
    corpus: Corpus
    split: str

    def documents(self) -> Iterator[Document]:
        for pair in self.corpus.documents(self.split):
            row = {"source": pair.source or "", "target": pair.text}
            source, target = self.task.fill_templates(row, pair.id)
            yield Document(target, pair.id, source=source)

    def examples(self) -> Iterator[Example]:
        return ((document, (document.text,)) for document in self.documents())

    def size(self) -> int | None:
        return self.corpus.bytes(self.split)

    def update(self, hasher: Hasher) -> None:
        hasher.update(FORMAT + f"{self.task!r} {self.split} {self.corpus.fingerprint};".encode())


def has_labels(task: Task, path: Path) -> bool:
    """Whether a file has a label column; benchmarks withhold the labels of their test sets."""
    if task.reader != "tsv" or LABEL not in task.fields:
        return True
    first = next(read_lines(path), "").rstrip("\n").split("\t")
    column = task.fields[LABEL]
    return len(first) > max(task.fields.values()) if isinstance(column, int) else bool(set(_names(column)) & set(first))


# ------------------------------------------------------------------------------------------------ formats

TaskRow = tuple[str, dict[str, str], tuple[str, ...]]  # place, fields, all correct answers (empty: the target)


def _names(column: str | Sequence[str]) -> Sequence[str]:
    return [column] if isinstance(column, str) else column


def _read_table(path: Path, task: Task) -> Iterator[TaskRow]:
    """Read a table. Quotation marks do not quote: GLUE has some that are never closed."""
    is_numbered = all(isinstance(column, int) for column in task.fields.values())
    columns: dict[str, int] = dict(task.fields) if is_numbered else {}
    for number, line in enumerate(read_lines(path), 1):
        cells = line.rstrip("\n").split("\t")
        if not columns:
            columns = {name: _find_column(path, task, cells, _names(names)) for name, names in task.fields.items()}
        elif len(cells) > max(columns.values()):
            yield f"line {number}", {name: cells[i].strip() for name, i in columns.items()}, ()
        elif line.strip():
            counts = (
                f"{len(cells)} column{'s' * (len(cells) != 1)}; task {task.name} needs {max(columns.values()) + 1}."
            )
            raise bad_data(path, f"{counts} Correct or remove the line.", number)


def _find_column(path: Path, task: Task, header: Sequence[str], names: Sequence[str]) -> int:
    for name in names:
        if name in header:
            return header.index(name)
    missing = f"no column {' or '.join(map(repr, names))}, which task {task.name} needs"
    message = f"{path} has {missing}. Its first line is {' | '.join(header)[:100]!r}."
    raise UnknownName(message, name=names[0], known=header)


def _read_squad(path: Path, task: Task) -> Iterator[TaskRow]:
    for question in read_squad(path).all:
        answers = tuple(dict.fromkeys(text for text in question.answers or () if text.strip()))
        if answers:  # SQuAD 2.0 has unanswerable questions
            row = {"question": question.question, "context": question.context.strip(), "answer": answers[0]}
            yield question.id, row, answers


NAME = "tasks:"
SUFFIX = ".toml"
LIMIT = 1 << 16
DENOISE = "text"  # reader of plain text, for span corruption
TASK_KEYS = ("name", "data", "rate", "prefix", "source", "target", "labels", "metrics", "longer")  # keys of a [[task]]
EXAMPLE = '[[task]]\nname = "sst2"\n[[task]]\nname = "headline"\nprefix = "headline: "\ndata = "my.jsonl:text-title"'

Opener = Callable[[str], Corpus]


ParsedTask = tuple[Task, str, float | None]  # the task, its data if not its own, its rate if fixed


@dataclass(frozen=True)
class Mixing:
    """How often each task is trained on. `rates` are fixed fractions, in the order of tasks; None: by the rule."""

    limit: int = LIMIT
    temperature: float = 1.0
    rates: tuple[float | None, ...] = ()

    def shares(self, examples: Sequence[int]) -> list[float]:
        """Return the fraction of each task, given its number of examples. Fractions sum to one."""
        rates = [*self.rates, *[None] * (len(examples) - len(self.rates))]
        capped = [min(count, self.limit) for count in examples]
        total = math.fsum(capped)
        power = [
            0.0 if rate else (count / total) ** (1 / self.temperature)
            for count, rate in zip(capped, rates, strict=True)
        ]
        fixed = math.fsum(rate or 0.0 for rate in rates)
        rest = math.fsum(power)
        scale = (1.0 - fixed) / rest if rest else 0.0
        shares = [rate or p * scale for rate, p in zip(rates, power, strict=True)]
        return [share / math.fsum(shares) for share in shares]


@dataclass(frozen=True)
class Member:
    """A task with its pairs, or with a plain text for span corruption."""

    task: Task
    corpus: Corpus

    @property
    def is_plain(self) -> bool:
        return self.task.reader == DENOISE

    def documents(self, split: str) -> Iterator[Document]:
        """Yield pairs; for a plain text, with an empty source."""
        for document in self.corpus.documents(split):
            yield replace(document, source="") if self.is_plain else document

    def examples(self, split: str) -> Iterator[Example]:
        """Yield pairs, each with all correct targets."""
        held_out, texts = self.corpus.held_out, self.corpus.texts
        if split in texts and split not in held_out and not (split == "train" and held_out):
            yield from _examples(texts[split])
            return
        for document, answers in _examples(texts["train"]):
            if assign_split(document.source or "", held_out) == split:
                yield document, answers


def _examples(text: TextSource) -> Iterator[Example]:
    assert isinstance(text, (TaskFiles, TaskPairs))
    return text.examples()


@dataclass(frozen=True)
class JoinedTasks:
    """A split of every task that has it, concatenated."""

    members: tuple[Member, ...]
    split: str
    mixing: Mixing

    def documents(self) -> Iterator[Document]:
        for member in self.members:
            yield from member.documents(self.split)

    def size(self) -> int | None:
        return None

    def update(self, hasher: Hasher) -> None:
        hasher.update(f"tasks {self.split} {self.mixing!r};".encode())
        for member in self.members:
            hasher.update(f"{member.task.name}:{member.corpus.fingerprint};".encode())


@dataclass(repr=False)
class Tasks(ParallelCorpus):
    """A parallel corpus of several tasks. Mixing rates apply in training; other splits are concatenated."""

    members: tuple[Member, ...] = ()
    mixing: Mixing = field(default_factory=Mixing)

    @property
    def prefixes(self) -> tuple[str, ...]:
        return tuple(member.task.prefix for member in self.members if not member.is_plain)


# ------------------------------------------------------------------------------------------------ text_to_text.toml


@cache
def tasks() -> dict[str, Task]:
    """Return every task by name, in the order of the file."""
    text = (Path(__file__).parent / "text_to_text.toml").read_text(encoding="utf-8")
    return {name: _task({"name": name, **given}) for name, given in tomllib.loads(text).items()}


def _task(given: Mapping[str, Any]) -> Task:
    known = {f.name for f in fields(Task)}
    assert given.keys() <= known, given.keys() - known
    lists = {key: tuple(given[key]) for key in ("data", "metrics") if key in given}
    return Task(**{**given, **lists})


def unknown_task_error(name: str) -> UnknownName:
    own = "define your own in a .toml file (docs/text-to-text.md)"
    return unknown("task", name, tasks(), hint=f"The tasks are {', '.join(tasks())}; {own}.")


# ------------------------------------------------------------------------------------------------ parsing a spec


def is_tasks(spec: str) -> bool:
    """Whether a spec names tasks: it begins with `tasks:`, or is a .toml file with [[task]] tables."""
    if spec.startswith(NAME):
        return True
    if not (spec.endswith(SUFFIX) and path_exists(spec)):
        return False
    path = user_path(spec)
    return path.is_file() and b"[[task]]" in read_bytes(path, MAX_TOML_BYTES)


def list_prefixes(spec: str) -> tuple[str, ...]:
    """Return the prefixes of the tasks of a spec, without opening their data."""
    return tuple(task.prefix for task, _, _ in _parse_spec(spec)[0] if task.reader != DENOISE)


def has_denoising(spec: str) -> bool:
    """Whether one of the tasks of a spec is span corruption of a plain text."""
    return any(task.reader == DENOISE for task, _, _ in _parse_spec(spec)[0])


def open_tasks(spec: str, open_parallel: Opener, open_corpus: Opener) -> Tasks:
    """Open the tasks of a spec. The two functions open their data."""
    parsed, options = _parse_spec(spec)
    mixing = _mixing(spec, options, tuple(rate for _, _, rate in parsed))
    members = tuple(_open_member(task, data, open_parallel, open_corpus) for task, data, _ in parsed)
    for member in members:
        if "train" not in member.corpus.splits and len(members) > 1:
            raise bad_data(member.corpus.name, f"no train split, which task {member.task.name} needs.")
    texts: dict[str, TextSource] = {}
    for split in SPLITS:
        if own := tuple(member for member in members if split in member.corpus.splits):
            texts[split] = JoinedTasks(own, split, mixing)
    name = spec if spec.startswith(NAME) else Path(spec).stem
    description = "; ".join(f"{member.task.name}: {member.corpus.source}" for member in members)
    return Tasks(name, description, texts, members=members, mixing=mixing)


def _parse_spec(spec: str) -> tuple[list[ParsedTask], dict[str, object]]:
    """Return each task with its data (if not its own) and its rate (if fixed), and the mixing options."""
    if not spec.startswith(NAME):
        return _from_file(user_path(spec))
    parts = spec.removeprefix(NAME).split(",")
    parsed: list[ParsedTask] = []
    for item in parts[0].split("+"):
        name, _, data = item.strip().partition(":")
        if name not in tasks():
            raise unknown_task_error(name)
        if any(name == task.name and data == other for task, other, _ in parsed):
            raise InvalidSetting(f"{spec} names the task {name} twice.", key="tasks", value=name)
        parsed.append((tasks()[name], data, None))
    options: dict[str, object] = {}
    for item in parts[1:]:
        key, equals, value = item.strip().partition("=")
        try:
            options[key] = float(value) if equals else True
        except ValueError:
            options[key] = value
    return parsed, options


def _from_file(path: Path) -> tuple[list[ParsedTask], dict[str, object]]:
    options, tables = read_toml_tables(path, "task", EXAMPLE)
    parsed: list[ParsedTask] = []
    for number, table in enumerate(tables, 1):
        where = f"{path}, task {number}"
        for key in table:
            if key not in TASK_KEYS:
                raise unknown("key", key, TASK_KEYS, where=where)
        rate = table.pop("rate", None)
        if rate is not None and not (is_number(rate) and 0 < rate < 1):
            raise invalid("rate", rate, "must be a fraction of all examples, between 0 and 1.", where)
        parsed.append((*_parse_task(where, path.parent, table), rate))
    return parsed, options


def _parse_task(where: str, folder: Path, table: dict[str, Any]) -> tuple[Task, str]:
    """Return a known task with changes, or a new one on pairs."""
    name, data = table.pop("name", ""), str(table.pop("data", ""))
    prefix = table.pop("prefix", None)
    if prefix is not None:
        table["source"] = f"{prefix}{{source}}"
    if isinstance(table.get("metrics"), str):
        table["metrics"] = [table["metrics"]]
    changes: dict[str, Any] = {k: tuple(v) if k == "metrics" else v for k, v in table.items()}
    if data and path_exists(folder / data.partition(":")[0]):
        data = str(folder / data)
    if name in tasks():
        return replace(tasks()[name], **changes), data
    if not name or not data or "source" not in changes:
        own = f"Your own task needs a name, a prefix and pairs as data:\n{EXAMPLE}"
        raise unknown("task", name, tasks(), where=where, hint=f"The tasks are {', '.join(tasks())}. {own}")
    defaults: dict[str, Any] = {"target": "{target}", "metrics": ("bleu", "chrf")}
    return Task(name, title=name, reader="pairs", **{**defaults, **changes}), data


def _require_number(key: str, value: object, spec: str) -> float:
    if not (is_number(value) and 1 <= value < math.inf):
        raise invalid(key, value, "must be a number of at least 1.", spec)
    return value


def _mixing(spec: str, options: Mapping[str, object], rates: tuple[float | None, ...]) -> Mixing:
    for key in options:
        if key not in ("limit", "temperature", "equal"):
            raise unknown("option", key, ("limit=NUMBER", "temperature=NUMBER", "equal"), where=spec)
    limit = _require_number("limit", options.get("limit", LIMIT), spec)
    temperature = _require_number("temperature", options.get("temperature", 1.0), spec)
    if math.fsum(rate or 0.0 for rate in rates) > (1.0 if all(rates) else 1.0 - 1e-9):
        raise invalid("rate", rates, "leaves nothing for the other tasks. Lower the rates.", spec)
    return Mixing(int(limit), math.inf if options.get("equal", False) else float(temperature), rates)


# ------------------------------------------------------------------------------------------------ opening a task


def _open_member(task: Task, data: str, open_parallel: Opener, open_corpus: Opener) -> Member:
    if task.reader == DENOISE:
        if not data:
            raise InvalidSetting(f"Task {task.name} needs a text: {NAME}{task.name}:python, or a path.", key="data")
        return Member(task, open_corpus(data))
    if data or task.reader == "pairs":
        if task.reader != "pairs":  # its own files have other fields
            task = replace(task, reader="pairs", source=f"{task.prefix}{{source}}", target="{target}")
        base = open_parallel(data or task.data[0])
        texts = {split: TaskPairs(task, base, split) for split in base.splits}
        return Member(task, ParallelCorpus(f"{task.name} ({base.name})", base.source, texts))
    return Member(task, _task_of_files(task))


def _task_of_files(task: Task) -> Corpus:
    """Open the files of a task. A missing validation split is held out of train by a hash of the source."""
    layout = {split: tuple(names) for split, names in task.files.items()}
    entry = Entry(task.data[0], task.title, "text", "", "", layout, aliases=task.data[1:])
    folder = entry.find_folder()
    if folder is None:
        place = f"{data_home() / task.data[0]}, or into {task.data[0]} in a folder of $NEXTWORD_DATA"
        message = (
            f"The data of task {task.name} ({task.title}) is not on this machine. Put the official files into {place}."
        )
        raise MissingFile(message, path=data_home() / task.data[0])
    files = {s: paths for s, paths in entry.locate(folder).items() if all(has_labels(task, path) for path in paths)}
    if not files:
        raise bad_data(folder, f"no labeled file for task {task.name}. Expected {dict(task.files)}.")
    texts = {split: TaskFiles(task, tuple(files[split])) for split in SPLITS if split in files}
    missing = {"valid": HELD_OUT["valid"]} if "valid" not in texts and "train" in texts else {}
    note = "; valid taken out of train by hash" if missing else ""
    return ParallelCorpus(task.name, f"{folder}, splits as given ({', '.join(texts)}){note}", texts, missing)
