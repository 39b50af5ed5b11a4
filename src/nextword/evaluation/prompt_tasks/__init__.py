"""Tasks posed to a language model as text. Each is a TOML file in this folder, such as `rte.toml`, with the keys

    title       what is asked
    data        a name of the catalog (`nextword data`), a path next to the file, or "arithmetic", which is generated
    layout      file names of each split, if they differ from the catalog's
    reader      tsv, csv, jsonl, lines, parallel (one file per language), labeled ("1 text")
    fields      name in the templates = column: its name, its number, or a list of alternative names
    last        a field to split before its last word, into {before} and {last}
    split       the split that is scored; `shots_from`: the split that shots are drawn from
    context     the template of a question; `choices` are the templates of the completions, of which the field `gold`
                names the right one through `labels`. Or else `answer`, the only right completion
    separator   between shots; `instruction` comes before them all
    rule        for choices: sum, token, byte, unconditional (GPT-3 §2.4; needs `answer_context`)
                for an answer: word (would greedy decoding produce it?), generate (until `stop`, up to `length` tokens)
    metric      accuracy, mcc, f1 (of choice number `positive`), bleu
    published   results in papers: model, shots, value, source
    variants    the same task with some keys changed; the table `sub` defines the task `rte-sub`

A space between a context and a completion belongs to the completion.
"""

from __future__ import annotations

import csv
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from nextword.core.errors import DataError, InvalidSetting, MissingFile, invalid, unknown
from nextword.core.io import read_toml, user_path
from nextword.data.catalog import Entry, find_entry
from nextword.data.files import line_limit, plain_name, read_lines, read_objects

FOLDER = Path(__file__).parent
CHOICE_RULES = ("sum", "token", "byte", "unconditional")
ANSWER_RULES = ("word", "generate")
METRICS = ("accuracy", "mcc", "f1", "bleu")
PLACEHOLDER = re.compile(r"\{(\w+)\}")

Example = dict[str, str]  # field → text
UNLABELED_HINT = "If this split has no labels, as the test sets of GLUE, score another one: --split valid."
Column = str | int  # its name or its number
Row = Mapping[Column, str]


@dataclass(frozen=True)
class PromptTask:
    """One task; the fields are explained at the head of this file."""

    name: str
    title: str
    data: str
    context: str
    split: str
    reader: str = ""
    fields: Mapping[str, Column | Sequence[Column]] = field(default_factory=dict)
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
    options: Mapping[str, object] = field(default_factory=dict)  # for generated data
    note: str = ""
    published: tuple[Mapping[str, object], ...] = ()
    folder: Path = FOLDER  # of the TOML file

    def __post_init__(self) -> None:
        where = self.name
        for key, value, known in (
            ("metric", self.metric, METRICS),
            ("rule", self.rule, CHOICE_RULES if self.choices else ANSWER_RULES),
        ):
            if value not in known:
                raise invalid(key, value, f"must be one of {', '.join(known)}.", where)
        if bool(self.choices) == bool(self.answer):
            raise invalid("answer", self.answer, "must be given instead of `choices` with `gold`.", where)
        if self.choices and not self.gold:
            raise invalid("gold", "", "must name the field that says which choice is right.", where)
        if self.rule == "unconditional" and not self.answer_context:
            raise invalid("answer_context", "", 'must be a text such as "Answer: " for the rule unconditional.', where)
        if self.shots_from == self.split:
            raise invalid("split", self.split, "must be another split than `shots_from`.", where)

    @property
    def has_fixed_choices(self) -> bool:
        """Whether every question has the same choices."""
        return bool(self.choices) and not any(PLACEHOLDER.search(choice) for choice in self.choices)

    def has_data(self) -> bool:
        """Whether the data is on this machine, or generated."""
        entry = find_entry(self.data)
        return self.data in GENERATED or (entry is not None and entry.find_folder() is not None)


# ------------------------------------------------------------------------------------------------ task files


def task_names() -> list[str]:
    """Every task and variant that comes with nextword."""
    return [name for file in sorted(FOLDER.glob("*.toml")) for name in _read_tables(file)]


def load_task(name: str, **changes: object) -> PromptTask:
    """A task by its name or by the path of a TOML file; `changes` override its keys."""
    if name.endswith(".toml"):
        path = user_path(name)
        if not path.is_file():
            raise MissingFile(f"There is no file {path}. `nextword evaluate --list-tasks` lists the tasks.", path=path)
        return _make_task(path.stem, {**_read_tables(path)[path.stem], **changes}, path)
    for file in FOLDER.glob("*.toml"):
        if name == file.stem or name.startswith(f"{file.stem}-"):
            tables = _read_tables(file)
            if name in tables:
                return _make_task(name, {**tables[name], **changes}, file)
    raise unknown(
        "task", name, task_names(), hint="`nextword evaluate --list-tasks` lists them; your own file ends in .toml."
    )


def _read_tables(file: Path) -> dict[str, dict[str, Any]]:
    """Name → keys, of the task in a file and of its variants."""
    table = read_toml(file)
    variants = table.pop("variants", {})
    if not isinstance(variants, dict) or not all(isinstance(changes, dict) for changes in variants.values()):
        raise invalid("variants", variants, "must be tables.", str(file))
    tables = {file.stem: table}
    for name, changes in variants.items():
        tables[f"{file.stem}-{name}"] = {**table, "published": [], **changes}
    return tables


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_column(value: object) -> bool:
    return _is_text(value) or _is_number(value) or (_is_list(value, _is_column) and bool(value))


def _is_list(value: object, is_right: Callable[[object], bool] = _is_text) -> bool:
    return isinstance(value, (list, tuple)) and all(map(is_right, value))


def _is_table(value: object, is_right: Callable[[object], bool]) -> bool:
    return isinstance(value, dict) and all(map(is_right, value.values()))


KINDS: dict[str, tuple[Callable[[object], bool], str]] = {  # of the keys that are no strings
    "fields": (partial(_is_table, is_right=_is_column), "a table of columns: names, numbers or lists of them"),
    "choices": (_is_list, "a list of strings"),
    "labels": (partial(_is_table, is_right=_is_number), "a table of integers"),
    "positive": (_is_number, "an integer"),
    "stop": (_is_list, "a list of strings"),
    "length": (_is_number, "an integer"),
    "layout": (partial(_is_table, is_right=_is_list), "a table of lists of file names"),
    "options": (lambda value: isinstance(value, dict), "a table"),
    "published": (partial(_is_list, is_right=lambda value: isinstance(value, dict)), "a list of tables"),
}


def _make_task(name: str, table: Mapping[str, Any], file: Path) -> PromptTask:
    known = {f.name for f in fields(PromptTask)} - {"name", "folder"}
    for key in table:
        if key not in known:
            raise unknown("key", key, sorted(known), where=str(file))
    missing = [key for key in ("title", "data", "context", "split") if key not in table]
    if missing:
        raise InvalidSetting(f"{file} needs the keys {', '.join(missing)}.", key=missing[0], value=None)
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    for key, value in values.items():
        is_right, expected = KINDS.get(key, (_is_text, "a string"))
        if not is_right(value):
            raise invalid(key, value, f"must be {expected}.", str(file))
    return PromptTask(name, folder=file.parent, **values)


# ------------------------------------------------------------------------------------------------ examples


def read_examples(task: PromptTask, split: str, folder: str | Path | None = None) -> list[Example]:
    """The examples of a split, from `folder` or from where the catalog finds the data set."""
    if task.data in GENERATED:
        return GENERATED[task.data](split, task.options)
    files = _find_files(task, split, folder)
    read = READERS.get(task.reader)
    if read is None:
        raise invalid("reader", task.reader, f"must be one of {', '.join(READERS)}.", task.name)
    examples = []
    for row in read(files, task):
        example = {name: _cell(row, column, files[0]) for name, column in task.fields.items()}
        if task.last:
            before, _, last = example[task.last].strip().rpartition(" ")
            if not before:
                continue  # a single word has no context
            example |= {"before": before, "last": last}
        examples.append(example)
    if not examples:
        columns = ", ".join(f"{name} in column {column!r}" for name, column in task.fields.items())
        raise DataError(f"{files[0]} has no examples. Expected {task.reader} with {columns}.", path=files[0])
    return examples


def majority_share(answers: Sequence[str]) -> float:
    """The accuracy of always giving the most frequent answer."""
    return Counter(answers).most_common(1)[0][1] / len(answers) if answers else 0.0


def _find_files(task: PromptTask, split: str, folder: str | Path | None) -> list[Path]:
    entry = find_entry(task.data)
    place = _find_folder(task, entry) if folder is None else user_path(folder)
    if not place.exists():
        raise MissingFile(f"There is no file or folder {place}. Give the folder with {task.data}.", path=place)
    if place.is_file():
        return [place]
    layout = {**(entry.layout if entry is not None else {}), **task.layout}
    if split not in layout:
        raise unknown("split", split, layout, where=task.name)
    for alternative in layout[split]:
        names = alternative.split(" + ")
        paths = [next(iter(sorted(place.glob(name)) or sorted(place.glob(f"**/{name}"))), None) for name in names]
        if all(paths):
            return [path for path in paths if path]
    raise MissingFile(
        f"{place} has no {split} split of {task.data}: expected {' or '.join(layout[split])}. Install it with "
        f"`nextword data {task.data} --install PATH`, or give its folder with --data.",
        path=place,
    )


def _find_folder(task: PromptTask, entry: Entry | None) -> Path:
    """Where the catalog has the data set, or the path next to the task's file."""
    if entry is not None:
        return entry.require_folder()
    neighbor = task.folder / task.data
    if not neighbor.exists():
        raise MissingFile(
            f"{task.name} uses the data {task.data!r}, which is neither in the catalog nor at {neighbor}. Give its "
            "folder with --data.",
            path=neighbor,
        )
    return neighbor


def _cell(row: Row, column: Column | Sequence[Column], file: Path) -> str:
    names = [column] if isinstance(column, (str, int)) else column
    for name in names:
        if name in row:
            return row[name]
    columns = f"column {' or '.join(map(repr, names))}; it has {', '.join(map(repr, row))}"
    raise DataError(f"{file} has no {columns}. {UNLABELED_HINT}", path=file)


# ------------------------------------------------------------------------------------------------ readers


def _read_tsv(files: Sequence[Path], task: PromptTask) -> Iterator[Row]:
    """Only tabs separate cells: GLUE's files have unbalanced quotation marks. Columns by number mean no header."""
    numbers = [column for column in task.fields.values() if isinstance(column, int)]
    for file in files:
        header: list[str] | None = None
        for number, line in enumerate(read_lines(file), 1):
            cells = line.rstrip("\n").split("\t")
            if numbers:
                if len(cells) > max(numbers):
                    yield dict(enumerate(cells))
                elif line.strip():
                    columns = f"{len(cells)} columns; expected {max(numbers) + 1}"
                    raise DataError(f"{file}, line {number} has {columns}. {UNLABELED_HINT}", path=file, line=number)
            elif header is None:
                header = cells
            elif line.strip():
                yield dict(zip(header, cells, strict=False))


def _read_csv(files: Sequence[Path], task: PromptTask) -> Iterator[Row]:
    for file in files:
        csv.field_size_limit(line_limit())
        rows = csv.DictReader(read_lines(file))
        try:
            for row in rows:
                yield {key: value for key, value in row.items() if key is not None and value is not None}
        except csv.Error as error:
            raise DataError(
                f"{file}, line {rows.line_num} is not a valid CSV row: {error}.", path=file, line=rows.line_num
            ) from None


def _read_jsonl(files: Sequence[Path], task: PromptTask) -> Iterator[Row]:
    for file in files:
        for _, row in read_objects(file, read_lines(file)):
            yield {key: value if isinstance(value, str) else json.dumps(value) for key, value in row.items()}


def _read_lines(files: Sequence[Path], task: PromptTask) -> Iterator[Row]:
    """Each line is the column "text"; a .jsonl file is read as JSON lines."""
    for file in files:
        if Path(plain_name(file)).suffix == ".jsonl":
            yield from _read_jsonl([file], task)
        else:
            for line in read_lines(file):
                if line.strip():
                    yield {"text": line.strip()}


def _read_labeled(files: Sequence[Path], task: PromptTask) -> Iterator[Row]:
    """ "label text" on each line; a .tsv file with a header is read as such."""
    for file in files:
        if Path(plain_name(file)).suffix == ".tsv":
            yield from _read_tsv([file], task)
            continue
        for line in read_lines(file):
            if line.strip():
                label, _, text = line.strip().partition(" ")
                yield {"label": label, "sentence": text}


def _read_parallel(files: Sequence[Path], task: PromptTask) -> Iterator[Row]:
    """The same line of each file; columns are the files' numbers."""
    for number, group in enumerate(zip_longest(*(read_lines(file) for file in files)), 1):
        if None in group:
            raise DataError(
                f"{' and '.join(map(str, files))} differ in length: one ends before line {number}.",
                path=files[0],
                line=number,
            )
        yield {i: line.strip() for i, line in enumerate(group)}


READERS: dict[str, Callable[[Sequence[Path], PromptTask], Iterator[Row]]] = {
    "tsv": _read_tsv,
    "csv": _read_csv,
    "jsonl": _read_jsonl,
    "lines": _read_lines,
    "labeled": _read_labeled,
    "parallel": _read_parallel,
}


# ------------------------------------------------------------------------------------------------ arithmetic

NUM_QUESTIONS = 2000  # per kind, as in Brown et al. (2020), §3.9.1
POOL_SIZE = 500  # questions to draw shots from
OPERATORS = {"add": ("plus", "+"), "subtract": ("minus", "-"), "multiply": ("times", "*")}
SEED = 2020


def arithmetic_examples(split: str, options: Mapping[str, object]) -> list[Example]:
    """Generate arithmetic questions from a seed, the same on every machine: "test" is scored, "train" gives the shots.

    add, subtract, multiply    "48 plus 76", operands uniform in [0, 10^digits); a difference may be negative
    composite                  "6+(4*8)": three one-digit numbers, parentheses around the last two, operators + - *

    No shot is among the scored questions.
    """
    kind, digits = str(options.get("kind", "add")), int(str(options.get("digits", 2)))
    if kind not in (*OPERATORS, "composite"):
        raise invalid("options.kind", kind, f"must be {', '.join(OPERATORS)} or composite.", "arithmetic")
    if not 1 <= digits <= 15:
        raise invalid("options.digits", digits, "must be 1 to 15.", "arithmetic")
    generator = random.Random(f"{kind} {digits} {options.get('seed', SEED)}")
    asked = [_arithmetic_example(generator, kind, digits) for _ in range(int(str(options.get("count", NUM_QUESTIONS))))]
    if split == "test":
        return asked
    scored = {example["sum"] for example in asked}
    pool: dict[str, Example] = {}
    for _ in range(50 * POOL_SIZE):  # bounded, since there may be few one-digit questions left
        example = _arithmetic_example(generator, kind, digits)
        if example["sum"] not in scored:
            pool[example["sum"]] = example
        if len(pool) == POOL_SIZE:
            break
    return list(pool.values())


def _arithmetic_example(generator: random.Random, kind: str, digits: int) -> Example:
    a, b, c = (generator.randrange(10**digits) for _ in range(3))
    if kind == "composite":
        signs = [sign for _, sign in OPERATORS.values()]
        first, second = generator.choice(signs), generator.choice(signs)
        return {"sum": f"{a}{first}({b}{second}{c})", "result": str(_compute(first, a, _compute(second, b, c)))}
    word, sign = OPERATORS[kind]
    return {"sum": f"{a} {word} {b}", "result": str(_compute(sign, a, b))}


def _compute(sign: str, a: int, b: int) -> int:
    return a + b if sign == "+" else a - b if sign == "-" else a * b


GENERATED: dict[str, Callable[[str, Mapping[str, object]], list[Example]]] = {"arithmetic": arithmetic_examples}
