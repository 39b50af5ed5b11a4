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
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from nextword.contract_errors import NextwordError
from nextword.corpora.catalog import Entry, data_home
from nextword.corpora.corpus import Corpus
from nextword.corpora.document import Document
from nextword.corpora.pairs import Parallel
from nextword.corpora.splits import HELD_OUT, SPLITS, side
from nextword.corpora.task_rows import Example, Framed, Rows, Task, labelled

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
