"""Text-to-text tasks: named tasks, each with its prefix, mixed at given rates into one corpus of pairs.

    tasks:sst2                                one task of text_to_text.toml
    tasks:sst2+cola+summarize                 several, as many examples of each as it has (T5's limit is 65,536)
    tasks:sst2+cola,limit=2000                … none counts for more than 2,000
    tasks:sst2+cola,temperature=2             … rates to the power of 1/2
    tasks:sst2+cola,equal
    tasks:summarize:my.jsonl:text-short       a task's words over other pairs
    tasks:sst2+denoise:python                 and spans taken out of a plain text, as T5 learns without a supervisor
    my-tasks.toml                             [[task]] tables, also of tasks of one's own

Raffel et al. (2020), section 3.5.2: of e_m examples of task m, r_m = min(e_m, K) / Σ min(e_n, K); with a temperature,
r_m to the power of 1/T, which grows equal as T grows. A table may give its `rate` itself, a share of all examples; the
others divide what is left.

Files of tasks as pairs of texts: each row's fields are put into the templates of its task.

    label 	 sentence            sst2 sentence: a fine film      →  positive
    1     	 a fine film         ^^^^^^^^^^^^^^^ the prefix

A text here can also say every answer that is right (`examples`), where a question has several; the first is what is
trained on.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import ROUND_HALF_EVEN, Decimal
from difflib import get_close_matches
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from nextword.core.errors import NextwordError
from nextword.core.types import Document
from nextword.data.catalog import Entry, data_home
from nextword.data.corpus import HELD_OUT, SPLITS, Corpus, side
from nextword.data.files import lines
from nextword.data.pairs import Parallel, feed
from nextword.data.squad import read_squad

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


NAME = "tasks:"
SUFFIX = ".toml"
LIMIT = 1 << 16
DENOISE = "text"  # the reader of plain text, out of which spans are taken
GIVEN = ("name", "data", "rate", "prefix", "source", "target", "labels", "metrics", "longer")  # keys of a [[task]]
EXAMPLE = '[[task]]\nname = "sst2"\n[[task]]\nname = "headline"\nprefix = "headline: "\ndata = "my.jsonl:text-title"'

Opens = Callable[..., Any]


@dataclass(frozen=True)
class Mixing:
    """How often each task is trained on. `rates` are the shares that are given, by place; None: by the rule."""

    limit: int = LIMIT
    temperature: float = 1.0
    rates: tuple[float | None, ...] = ()

    def shares(self, examples: Sequence[int]) -> list[float]:
        """Of each task with so many examples; they add up to one."""
        given = [*self.rates, *[None] * (len(examples) - len(self.rates))]
        capped = [min(count, self.limit) for count in examples]
        whole = math.fsum(capped)
        power = [
            0.0 if rate else (one / whole) ** (1 / self.temperature) for one, rate in zip(capped, given, strict=True)
        ]
        fixed = math.fsum(rate or 0.0 for rate in given)
        rest = math.fsum(power)
        scale = (1.0 - fixed) / rest if rest else 0.0
        found = [rate or p * scale for rate, p in zip(given, power, strict=True)]
        return [one / math.fsum(found) for one in found]


@dataclass(frozen=True)
class Member:
    """A task with its pairs; of reader "text", with a plain text."""

    task: Task
    corpus: Corpus

    @property
    def plain(self) -> bool:
        return self.task.reader == DENOISE

    def documents(self, split: str) -> Iterator[Document]:
        """Of a plain text, with nothing for a source."""
        for document in self.corpus.documents(split):
            yield replace(document, source="") if self.plain else document

    def examples(self, split: str) -> Iterator[Example]:
        """Pairs, each with all targets that are right."""
        held, texts = self.corpus.held_out, self.corpus.texts
        if split in texts and split not in held and not (split == "train" and held):
            yield from texts[split].examples()  # type: ignore[attr-defined]
            return
        for document, answers in texts["train"].examples():  # type: ignore[attr-defined]
            if side(document.source or "", held) == split:
                yield document, answers


@dataclass(frozen=True)
class Joined:
    """A split of every task that has it, one after another."""

    members: tuple[Member, ...]
    split: str
    mixing: Mixing

    def documents(self) -> Iterator[Document]:
        for member in self.members:
            yield from member.documents(self.split)

    def size(self) -> int | None:
        return None

    def update(self, hasher: Any) -> None:
        hasher.update(f"tasks {self.split} {self.mixing!r};".encode())
        for member in self.members:
            hasher.update(f"{member.task.name}:{member.corpus.fingerprint};".encode())


@dataclass
class Tasks(Parallel):
    """A corpus of pairs of several tasks. Rates count in training; other splits are all there is, task after task."""

    members: tuple[Member, ...] = ()
    mixing: Mixing = field(default_factory=Mixing)

    @property
    def prefixes(self) -> tuple[str, ...]:
        return tuple(member.task.prefix for member in self.members if not member.plain)


# ------------------------------------------------------------------------------------------------ the table


@cache
def tasks() -> dict[str, Task]:
    """Every task by name, in the order of the file."""
    text = (Path(__file__).parent / "text_to_text.toml").read_text(encoding="utf-8")
    return {name: _task({"name": name, **given}) for name, given in tomllib.loads(text).items()}


def _task(given: Mapping[str, Any]) -> Task:
    known = {f.name for f in fields(Task)}
    assert given.keys() <= known, given.keys() - known
    lists = {key: tuple(given[key]) for key in ("data", "metrics") if key in given}
    return Task(**{**given, **lists})


def unknown_task(name: str) -> NextwordError:
    near = get_close_matches(name.lower(), tasks(), 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return NextwordError(
        f"No task is called {name!r}.{hint} There are {', '.join(tasks())}; one of your own goes into a .toml file "
        "(docs/text-to-text.md)."
    )


# ------------------------------------------------------------------------------------------------ a spec


def is_tasks(spec: str) -> bool:
    """Whether a spec names tasks: it begins with `tasks:`, or is a .toml file with [[task]] tables."""
    if spec.startswith(NAME):
        return True
    path = Path(spec).expanduser()
    return path.suffix == SUFFIX and path.is_file() and "[[task]]" in path.read_text("utf-8", "replace")


def prefixes(spec: str) -> tuple[str, ...]:
    """What the sources of a spec's tasks begin with; nothing is opened but a .toml file."""
    return tuple(task.prefix for task, _, _ in _named(spec)[0] if task.reader != DENOISE)


def denoises(spec: str) -> bool:
    """Whether one of a spec's tasks is to write what was taken out of a plain text."""
    return any(task.reader == DENOISE for task, _, _ in _named(spec)[0])


def open_tasks(spec: str, open_parallel: Opens, open_corpus: Opens) -> Tasks:
    """The corpus that a spec of tasks means; the two functions open what its tasks read."""
    named, options = _named(spec)
    mixing = _mixing(spec, options, tuple(rate for _, _, rate in named))
    members = tuple(_member(task, data, open_parallel, open_corpus) for task, data, _ in named)
    for member in members:
        if "train" not in member.corpus.splits and len(members) > 1:
            raise NextwordError(
                f"Task {member.task.name}: {member.corpus.name} has no training split, so nothing can be mixed from it."
            )
    texts: dict[str, Any] = {}
    for split in SPLITS:
        if having := tuple(member for member in members if split in member.corpus.splits):
            texts[split] = Joined(having, split, mixing)
    name = spec if spec.startswith(NAME) else Path(spec).stem
    words = "; ".join(f"{member.task.name}: {member.corpus.source}" for member in members)
    return Tasks(name, words, texts, members=members, mixing=mixing)


def _named(spec: str) -> tuple[list[tuple[Task, str, float | None]], dict[str, Any]]:
    """Each task, its data where they are not its own, and its rate where one is given; and how to mix."""
    if not spec.startswith(NAME):
        return _from_file(Path(spec).expanduser())
    parts = spec.removeprefix(NAME).split(",")
    found: list[tuple[Task, str, float | None]] = []
    for one in parts[0].split("+"):
        name, _, data = one.strip().partition(":")
        if name not in tasks():
            raise unknown_task(name)
        if any(name == task.name and data == other for task, other, _ in found):
            raise NextwordError(f"{spec}: task {name} stands there twice. Name it once.")
        found.append((tasks()[name], data, None))
    options: dict[str, Any] = {}
    for one in parts[1:]:
        key, equals, value = one.strip().partition("=")
        try:
            options[key] = float(value) if equals else True
        except ValueError:
            options[key] = value
    return found, options


def _from_file(path: Path) -> tuple[list[tuple[Task, str, float | None]], dict[str, Any]]:
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise NextwordError(f"There is no file of tasks {path}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise NextwordError(f"{path} is not TOML: {error}. Tasks are written as\n{EXAMPLE}") from None
    tables = given.pop("task", None)
    if not isinstance(tables, list) or not tables or not all(isinstance(one, dict) for one in tables):
        raise NextwordError(f"{path} names no tasks. Expected tables like\n{EXAMPLE}")
    found: list[tuple[Task, str, float | None]] = []
    for number, table in enumerate(tables, 1):
        where = f"{path}, task {number}"
        for key in table:
            if key not in GIVEN:
                raise NextwordError(f"{where}: unknown key {key!r}. A task has {', '.join(GIVEN)}.")
        rate = table.pop("rate", None)
        if rate is not None and not (_number(rate) and 0 < rate < 1):
            raise NextwordError(f"{where}: rate = {rate!r}; expected a share of all examples, between 0 and 1.")
        found.append((*_own(where, path.parent, table), rate))
    return found, given


def _own(where: str, folder: Path, table: dict[str, Any]) -> tuple[Task, str]:
    """A task of the table with changes, or a new one over pairs."""
    name, data = table.pop("name", ""), str(table.pop("data", ""))
    prefix = table.pop("prefix", None)
    if prefix is not None:
        table["source"] = f"{prefix}{{source}}"
    if isinstance(table.get("metrics"), str):
        table["metrics"] = [table["metrics"]]
    changes: dict[str, Any] = {k: tuple(v) if k == "metrics" else v for k, v in table.items()}
    if data and (folder / data.partition(":")[0]).exists():
        data = str(folder / data)
    if name in tasks():
        return replace(tasks()[name], **changes), data
    if not name or not data or "source" not in changes:
        raise NextwordError(
            f"{where}: {name!r} is none of the tasks that come along ({', '.join(tasks())}); a task of your own has a "
            f"name, a prefix and pairs as data:\n{EXAMPLE}"
        )
    usual: dict[str, Any] = {"target": "{target}", "metrics": ("bleu", "chrf")}
    return Task(name, title=name, reader="pairs", **{**usual, **changes}), data


def _mixing(spec: str, given: dict[str, Any], rates: tuple[float | None, ...]) -> Mixing:
    known = {"limit": LIMIT, "temperature": 1.0, "equal": False}
    for key in given:
        if key not in known:
            raise NextwordError(
                f"{spec}: {key!r} is no way to mix tasks. Expected limit=NUMBER, temperature=NUMBER or equal, after a "
                "comma or as a key of the file."
            )
    limit, temperature, equal = (given.get(key, usual) for key, usual in known.items())
    if not (_number(limit) and limit >= 1) or not (_number(temperature) and temperature >= 1):
        raise NextwordError(
            f"{spec}: limit = {limit!r} and temperature = {temperature!r}; expected numbers of at least 1."
        )
    if math.fsum(rate or 0.0 for rate in rates) > (1.0 if all(rates) else 1.0 - 1e-9):
        raise NextwordError(f"{spec}: the rates that are given leave nothing for the other tasks. Lower them.")
    return Mixing(int(limit), math.inf if equal else float(temperature), rates)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)


# ------------------------------------------------------------------------------------------------ one task


def _member(task: Task, data: str, open_parallel: Opens, open_corpus: Opens) -> Member:
    if task.reader == DENOISE:
        if not data:
            raise NextwordError(f"Task {task.name} needs a text: {NAME}{task.name}:python, or a path.")
        return Member(task, open_corpus(data))
    if data or task.reader == "pairs":
        task = replace(task, **_over_pairs(task))
        return Member(task, _of_pairs(task, open_parallel(data or task.data[0])))
    return Member(task, _of_files(task))


def _over_pairs(task: Task) -> dict[str, Any]:
    """The words of a task whose own files have other fields: its prefix before the whole source."""
    if task.reader == "pairs":
        return {}
    return {"reader": "pairs", "source": f"{task.prefix}{{source}}", "target": "{target}"}


def _of_pairs(task: Task, base: Corpus) -> Corpus:
    texts = {split: Framed(task, base, split) for split in base.splits}
    return Parallel(f"{task.name} ({base.name})", base.source, texts)


def _of_files(task: Task) -> Corpus:
    """Of files without a validation split, some of train is held out by a hash of the source."""
    layout = {split: tuple(names) for split, names in task.files.items()}
    entry = Entry(task.data[0], task.title, "text", "", "", layout, aliases=task.data[1:])
    folder = entry.place()
    if folder is None:
        raise NextwordError(
            f"The data of task {task.name} ({task.title}) are not on this machine. Put the official files into "
            f"{data_home() / task.data[0]}, or into a folder named in $NEXTWORD_DATA, as {task.data[0]}."
        )
    found = {s: paths for s, paths in entry.locate(folder).items() if all(labelled(task, path) for path in paths)}
    if not found:
        raise NextwordError(f"{folder} has no file with labels for task {task.name}; it needs {dict(task.files)}.")
    texts = {split: Rows(task, tuple(found[split])) for split in SPLITS if split in found}
    missing = {"valid": HELD_OUT["valid"]} if "valid" not in texts and "train" in texts else {}
    words = f"{folder}, splits as given ({', '.join(texts)})" + (
        "; valid taken out of train by hash" if missing else ""
    )
    return Parallel(task.name, words, texts, missing)
