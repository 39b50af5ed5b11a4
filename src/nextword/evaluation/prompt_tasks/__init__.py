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

Examples out of files: each is a dictionary with the fields that a task's templates name.

Sums in words (Brown et al. 2020, §3.9.1), made from a seed: no data set need be at hand.

    add, subtract, multiply    "48 plus 76", operands drawn uniformly from [0, 10^digits); a difference may be negative
    composite                  "6+(4*8)": three numbers of one digit, brackets around the last two, operations + - *

The questions that shots are drawn from never are among those that are scored.

From answers to one number with an interval, and what one gets without any model.

Shares have Wilson's interval, which keeps its 95 % for few answers and near 0 and 1, where others do not. Numbers that
are no mean of answers (Matthews correlation, F1, BLEU) are computed again on answers drawn with replacement.
"""

from __future__ import annotations

import csv
import json
import math
import random
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from nextword.core.errors import NextwordError
from nextword.data.catalog import absent, find
from nextword.data.files import json_objects, lines, plain_name

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


COUNT = 2000  # questions of each kind, as in the paper
POOL = 500  # from which shots are drawn
WORDS = {"add": "plus", "subtract": "minus", "multiply": "times"}
SIGNS = ("+", "-", "*")
SEED = 2020


def sums(split: str, options: Mapping[str, Any]) -> list[dict[str, str]]:
    """The questions of a split ("test" is scored, "train" is drawn from), the same on every machine."""
    kind, digits = str(options.get("kind", "add")), int(options.get("digits", 2))
    if kind not in (*WORDS, "composite"):
        raise NextwordError(f"arithmetic: kind = {kind!r}; expected {', '.join(WORDS)} or composite.")
    if not 1 <= digits <= 15:
        raise NextwordError(f"arithmetic: digits = {digits}; expected 1 to 15.")
    draw = random.Random(f"{kind} {digits} {options.get('seed', SEED)}")
    asked = [_sum(draw, kind, digits) for _ in range(int(options.get("count", COUNT)))]
    if split == "test":
        return asked
    scored = {one["sum"] for one in asked}
    pool: dict[str, dict[str, str]] = {}
    for _ in range(50 * POOL):  # few sums of one digit are left over, perhaps
        one = _sum(draw, kind, digits)
        if one["sum"] not in scored:
            pool[one["sum"]] = one
        if len(pool) == POOL:
            break
    return list(pool.values())


def _sum(draw: random.Random, kind: str, digits: int) -> dict[str, str]:
    a, b, c = (draw.randrange(10**digits) for _ in range(3))
    if kind == "composite":
        first, second = draw.choice(SIGNS), draw.choice(SIGNS)
        return {
            "sum": f"{a}{first}({b}{second}{c})",
            "result": str(_arithmetic_of(first, a, _arithmetic_of(second, b, c))),
        }
    sign = SIGNS[list(WORDS).index(kind)]
    return {"sum": f"{a} {WORDS[kind]} {b}", "result": str(_arithmetic_of(sign, a, b))}


def _arithmetic_of(sign: str, a: int, b: int) -> int:
    return a + b if sign == "+" else a - b if sign == "-" else a * b


Example = dict[str, str]
Row = Mapping[Any, str]
GENERATED: dict[str, Callable[[str, Mapping[str, Any]], list[Example]]] = {"arithmetic": sums}


def examples(task: Task, split: str, folder: str | Path | None = None) -> list[Example]:
    """The examples of a split, from `folder` or from where the catalog finds the data set."""
    if task.data in GENERATED:
        return GENERATED[task.data](split, task.options)
    files = _files(task, split, folder)
    read = READERS.get(task.reader)
    if read is None:
        raise NextwordError(f"{task.name}: reader = {task.reader!r}; expected one of {', '.join(READERS)}.")
    found = []
    for row in read(files, task):
        example = {name: _cell(row, column, files[0]) for name, column in task.fields.items()}
        if task.last:
            before, _, last = example[task.last].strip().rpartition(" ")
            if not before:
                continue  # one word alone leaves nothing to go by
            example |= {"before": before, "last": last}
        found.append(example)
    if not found:
        raise NextwordError(f"{files[0]} has no example. Expected {task.reader} with {_columns(task)}.")
    return found


def _files(task: Task, split: str, folder: str | Path | None) -> list[Path]:
    entry = find(task.data)
    place = Path(folder).expanduser() if folder else None
    if place is not None and not place.exists():
        raise NextwordError(f"There is no file or folder {place}. Give the folder in which {task.data} lies.")
    if place is None:
        beside = task.folder / task.data
        if entry is not None:
            place = entry.place()
            if place is None:
                raise absent(entry)
        elif beside.exists():
            place = beside
        else:
            raise NextwordError(
                f"{task.name} names the data {task.data!r}, which is neither in the catalog nor beside the task's file "
                f"({beside}). Give its place with --data."
            )
    if place.is_file():
        return [place]
    layout = {**(entry.layout if entry is not None else {}), **task.layout}
    for names in layout.get(split, ()):
        paths = [next(iter(sorted(place.glob(name)) or sorted(place.glob(f"**/{name}"))), None) for name in _of(names)]
        if all(paths):
            return [path for path in paths if path]
    if split not in layout:
        raise NextwordError(f"{task.name} has no split '{split}'; it has {', '.join(layout) or 'none'}.")
    expected = " or ".join(layout[split])
    raise NextwordError(
        f"{place} lacks the {split} split of {task.data}: expected {expected}. When you have it: "
        f"nextword data {task.data} --from PATH, or give its folder with --data."
    )


def _of(names: str) -> list[str]:
    return names.split(" + ")


def _cell(row: Row, column: Any, file: Path) -> str:
    wanted = column if isinstance(column, (list, tuple)) else [column]
    for name in wanted:
        if name in row:
            return row[name]
    raise NextwordError(
        f"{file} has no column {' or '.join(map(repr, wanted))}; it has {', '.join(map(repr, row))}. Where labels are "
        "kept back, as in the test sets of GLUE, score another split (--split valid)."
    )


def _columns(task: Task) -> str:
    return ", ".join(f"{name} in column {column!r}" for name, column in task.fields.items())


# ------------------------------------------------------------------------------------------------ formats


def _tsv(files: Sequence[Path], task: Task) -> Iterator[Row]:
    """Tabs alone divide: GLUE's files have quotation marks that are never closed. Columns by number: no header."""
    numbered = all(isinstance(column, int) for column in task.fields.values())
    for file in files:
        header: list[str] | None = None
        for number, line in enumerate(lines(file), 1):
            cells = line.rstrip("\n").split("\t")
            if numbered:
                if len(cells) > max(task.fields.values()):
                    yield dict(enumerate(cells))
                elif line.strip():
                    raise NextwordError(
                        f"{file}, line {number} has {len(cells)} columns, not the {max(task.fields.values()) + 1} that "
                        "hold the labels. The test sets of GLUE keep them back: score another split (--split valid)."
                    )
            elif header is None:
                header = cells
            elif line.strip():
                yield dict(zip(header, cells, strict=False))


def _csv(files: Sequence[Path], task: Task) -> Iterator[Row]:
    for file in files:
        rows = csv.DictReader(lines(file))
        try:
            for row in rows:
                yield {key: value for key, value in row.items() if key is not None and value is not None}
        except csv.Error as problem:
            raise NextwordError(f"{file}, line {rows.line_num} is not a valid row: {problem}.") from None


def _jsonl(files: Sequence[Path], task: Task) -> Iterator[Row]:
    for file in files:
        for found in json_objects(file, lines(file)):
            yield {key: text if isinstance(text, str) else json.dumps(text) for key, text in found.items()}


def _lines(files: Sequence[Path], task: Task) -> Iterator[Row]:
    """Each line is the column "text"; a file of JSON lines is read as such."""
    for file in files:
        if Path(plain_name(file)).suffix == ".jsonl":
            yield from _jsonl([file], task)
        else:
            yield from ({"text": line.strip()} for line in lines(file) if line.strip())


def _labelled(files: Sequence[Path], task: Task) -> Iterator[Row]:
    """ "label text" on each line; a table of tabs with a header is read as such."""
    for file in files:
        if Path(plain_name(file)).suffix == ".tsv":
            yield from _tsv([file], task)
            continue
        for line in lines(file):
            if line.strip():
                label, _, text = line.strip().partition(" ")
                yield {"label": label, "sentence": text}


def _parallel(files: Sequence[Path], task: Task) -> Iterator[Row]:
    """The same sentence of each file; columns are the files' numbers."""
    for number, group in enumerate(zip_longest(*(lines(file) for file in files)), 1):
        if None in group:
            raise NextwordError(f"{' and '.join(map(str, files))} differ in length: one ends before line {number}.")
        yield {i: line.strip() for i, line in enumerate(group)}


READERS: dict[str, Callable[[Sequence[Path], Task], Iterator[Row]]] = {
    "tsv": _tsv,
    "csv": _csv,
    "jsonl": _jsonl,
    "lines": _lines,
    "labelled": _labelled,
    "parallel": _parallel,
}


DRAWS = 1000
NORMAL = 1.959963984540054  # 97.5 % of a normal distribution lie below


@dataclass(frozen=True)
class Measured:
    value: float
    low: float
    high: float


def wilson(right: int, total: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927)."""
    if not total:
        return 0.0, 1.0
    share, square = right / total, NORMAL**2
    middle = (share + square / (2 * total)) / (1 + square / total)
    half = NORMAL * math.sqrt(share * (1 - share) / total + square / (4 * total**2)) / (1 + square / total)
    return max(0.0, middle - half), min(1.0, middle + half)


def accuracy(right: Sequence[bool]) -> Measured:
    count = sum(right)
    return Measured(count / len(right) if right else 0.0, *wilson(count, len(right)))


def resampled(measure: Callable[[np.ndarray, np.ndarray], float], gold: Sequence[int], said: Sequence[int]) -> Measured:
    a, b = np.asarray(gold), np.asarray(said)
    draw = np.random.default_rng(0)
    values = []
    for _ in range(DRAWS):
        rows = draw.integers(0, len(a), len(a))
        values.append(measure(a[rows], b[rows]))
    low, high = np.quantile(values, [0.025, 0.975])
    return Measured(measure(a, b), float(low), float(high))


def bleu(written: Sequence[str], wanted: Sequence[str]) -> tuple[Measured, str]:
    """Corpus BLEU from 0 to 100, and sacrebleu's signature, without which such a number says nothing."""
    try:
        from sacrebleu.metrics import BLEU
    except ImportError:
        raise NextwordError("BLEU is counted by sacrebleu, which is not installed: pip install sacrebleu.") from None
    metric = BLEU()
    found = metric.corpus_score(list(written), [list(wanted)], n_bootstrap=DRAWS)
    half, mean = float(found._ci), float(found._mean)
    value = float(found.score)
    return Measured(value, max(0.0, min(mean - half, value)), max(mean + half, value)), str(metric.get_signature())


def commonest(answers: Sequence[str]) -> float:
    """The share of answers that always saying the commonest one gets right."""
    return Counter(answers).most_common(1)[0][1] / len(answers) if answers else 0.0
