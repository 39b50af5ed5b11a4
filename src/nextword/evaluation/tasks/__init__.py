"""Tasks put to a language model as text: each is a file here, `rte.toml`, that says all there is to say about it.

    title       what is asked
    data        a name of the catalog (`nextword data`), a path beside the file, or "arithmetic", which is made here
    layout      file names of each split, where they are not the catalog's
    reader      tsv, csv, jsonl, lines, parallel (one file a language), labelled ("1 text"); see reading.py
    fields      name in the templates = column: its name, its number, or several names of which one is there
    last        a field to be cut in two before its last word: {before} and {last}
    split       what is scored; `shots_from`: the split that shots are drawn from
    context     the template of a question, and `choices` those of the completions that may follow it, of which the
                field `gold` names the right one through `labels`; or else `answer`, the only right one
    separator   between shots; `instruction` stands before them all
    rule        of choices: sum, token, byte, unconditional (GPT-3 §2.4; needs `answer_context`)
                of an answer: word (is it the likeliest, token by token?), generate (until `stop`, at most `length`)
    metric      accuracy, mcc, f1 (of choice number `positive`), bleu
    published   what papers report: model, shots, value, source
    variants    the same with other words for some keys; the table `sub` is the task `rte-sub`

A space that divides a completion from its context belongs to the completion.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from nextword.contract_errors import NextwordError

FOLDER = Path(__file__).parent
OF_CHOICES = ("sum", "token", "byte", "unconditional")
OF_ANSWERS = ("word", "generate")
METRICS = ("accuracy", "mcc", "f1", "bleu")
PLACE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Task:
    """One task; the fields are explained at the head of this file."""

    name: str
    title: str
    data: str
    context: str
    split: str
    reader: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    last: str = ""
    shots_from: str = "train"
    choices: tuple[str, ...] = ()
    gold: str = ""
    labels: Mapping[str, int] = field(default_factory=dict)
    answer: str = ""
    answer_context: str = ""
    separator: str = "\n\n"
    instruction: str = ""
    rule: str = "sum"
    metric: str = "accuracy"
    positive: int = 1
    stop: tuple[str, ...] = ("\n",)
    length: int = 100
    layout: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)  # of a generator
    note: str = ""
    published: tuple[Mapping[str, Any], ...] = ()
    folder: Path = FOLDER  # where the file lies

    def __post_init__(self) -> None:
        _one_of(self, "metric", self.metric, METRICS)
        _one_of(self, "rule", self.rule, OF_CHOICES if self.choices else OF_ANSWERS)
        if bool(self.choices) == bool(self.answer):
            raise NextwordError(f"{self.name}: give `choices` and `gold`, or `answer`; exactly one of the two.")
        if self.choices and not self.gold:
            raise NextwordError(f"{self.name}: `gold` must name the field that says which of the choices is right.")
        if self.rule == "unconditional" and not self.answer_context:
            raise NextwordError(
                f"{self.name}: the rule unconditional divides by P(completion | answer_context), and `answer_context` "
                'is not given. GPT-3 uses "Answer: " or "A: ".'
            )
        if self.shots_from == self.split:
            raise NextwordError(
                f"{self.name}: shots come from the split '{self.split}', which is also the one to be scored. "
                "Score another split."
            )

    @property
    def by_generation(self) -> bool:
        return self.rule == "generate"

    @property
    def fixed(self) -> bool:
        """Whether every question has the same choices."""
        return bool(self.choices) and not any(PLACE.search(choice) for choice in self.choices)


def task_names() -> list[str]:
    """Every task and variant that comes with nextword."""
    return [name for file in sorted(FOLDER.glob("*.toml")) for name in _tables(file)]


def load_task(name: str, **changes: Any) -> Task:
    """A task by its name, or by the path of a file of one's own; `changes` are put in the place of what it says."""
    if name.endswith(".toml"):
        path = Path(name).expanduser()
        if not path.is_file():
            raise NextwordError(f"There is no file {path}. `nextword evaluate --tasks` lists the tasks that are here.")
        tables = _tables(path)
        return _task(path.stem, {**tables[path.stem], **changes}, path)
    for file in FOLDER.glob("*.toml"):
        if name == file.stem or name.startswith(f"{file.stem}-"):
            tables = _tables(file)
            if name in tables:
                return _task(name, {**tables[name], **changes}, file)
    known = task_names()
    near = get_close_matches(name.lower(), known, 3)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"There are {', '.join(known)}."
    raise NextwordError(f"There is no task {name!r}. {hint} A file of your own ends in .toml.")


def _tables(file: Path) -> dict[str, dict[str, Any]]:
    """Name → keys, of the task in a file and of its variants."""
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise NextwordError(f"{file} is no valid TOML: {problem}.") from None
    variants = table.pop("variants", {})
    found = {file.stem: table}
    for name, changes in variants.items():
        found[f"{file.stem}-{name}"] = {**table, "published": [], **changes}
    return found


def _task(name: str, table: Mapping[str, Any], file: Path) -> Task:
    known = {f.name for f in fields(Task)} - {"name", "folder"}
    for key in table:
        if key not in known:
            near = get_close_matches(key, known, 1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known are {', '.join(sorted(known))}."
            raise NextwordError(f"{file}: unknown key {key!r}. {hint}")
    missing = [key for key in ("title", "data", "context", "split") if key not in table]
    if missing:
        raise NextwordError(f"{file} lacks {', '.join(missing)}; see any task that comes with nextword.")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return Task(name, folder=file.parent, **values)


def _one_of(task: Task, key: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise NextwordError(f"{task.name}: {key} = {value!r}; here it must be one of {', '.join(known)}.")
