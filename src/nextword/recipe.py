"""Recipes: what to train, on what, how; as TOML, with the source of each number and the results beside it.

    [paper] [reported] [measured] [tokenizer] [model] [compare] [task] and one or more [[phase]]

A recipe with a [task] is for fine-tuning: tokenizer and model are those of the run that is transferred (`transfer/`).
Keys are strict. A recipe may `extends = "slug/name"`: its tables replace the parent's whole. From the command line a
number is changed in one way only, `--set a.b=c`; phases are addressed by number or name (`phase.0.epochs`), or all of
them by a star (`phase.*.optimizer.discount`).
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from nextword.core.errors import NextwordError, did_you_mean

TABLES = ("paper", "reported", "measured", "tokenizer", "model", "phase", "compare", "task", "extends")
BUDGETS = ("epochs", "steps", "minutes")
TYPES: dict[str, tuple[Any, str]] = {  # as dataclasses of settings write them → what is accepted, in words
    "str": (str, "a string"),
    "bool": (bool, "true or false"),
    "int": (int, "a whole number, not negative"),
    "float": ((int, float), "a number, not negative"),
    "Mapping[str, Any]": (Mapping, "a table, as in { kind = … }"),
}
ABOUT = ("paper", "reported")  # tables that say where a recipe comes from, and change nothing
NOTHING = "not set"
WIDE = 60  # characters of a setting in a message
RECIPES = Path(str(resources.files("nextword"))) / "recipes"


@dataclass(frozen=True)
class Phase:
    name: str = "train"
    kind: str = "gradient"  # or "count"; or "show", where nothing is learnt
    data: str = ""  # a path or a name; empty: --data must say
    without: Sequence[str] = field(default_factory=list)  # evaluation sets to be cut out of the training text
    objective: Mapping[str, Any] = field(default_factory=lambda: {"kind": "causal"})
    batches: Mapping[str, Any] = field(default_factory=lambda: {"kind": "rows"})
    optimizer: Mapping[str, Any] = field(default_factory=lambda: {"kind": "adam", "rate": 0.001})
    schedule: Mapping[str, Any] = field(default_factory=lambda: {"kind": "constant"})
    initial: Mapping[str, Any] = field(default_factory=dict)  # weights; empty: each layer's own
    estimator: Mapping[str, Any] = field(default_factory=dict)  # for kind "count"
    init: str = ""  # a run folder whose weights to begin with
    trains: int = 0  # the last so many groups of layers (models/groups.py) learn; 0, or more than there are: all
    clip: float = 0.0  # norm of the gradient; 0: no clipping
    accumulate: int = 1  # batches per step
    precision: str = "fp32"  # or "tf32", "bf16"
    online: bool = False  # on the CPU, one step for each thing that is predicted, by networks that can
    graphs: bool = False  # on a GPU, record a step and replay it: the whole of it, or forward and backward
    compile: bool = False  # on a GPU, have torch compile the network
    checkpointing: bool = False  # keep one tensor a block, and compute the rest again in the backward pass
    epochs: float = 0
    steps: int = 0
    minutes: float = 0
    validate: int = 0  # steps between validations; 0: once an epoch
    patience: int = 0  # validations without a better one before stopping; 0: never
    keep: str = "best"  # weights at the end: those of the best validation, or the "last"
    save: float = 60  # seconds between saved states
    log: int = 20  # steps between log lines
    scored: int = 0  # tokens of the held-out text that the finished model is scored on, in whole documents; 0: all
    seed: int = 1

    def __post_init__(self) -> None:
        if self.kind == "gradient" and sum(bool(getattr(self, b)) for b in BUDGETS) != 1:
            raise NextwordError(
                f"Phase '{self.name}' needs exactly one budget: epochs, steps or minutes; it has epochs = {self.epochs}"
                f", steps = {self.steps}, minutes = {self.minutes}."
            )
        for key in ("accumulate", "log"):
            if getattr(self, key) < 1:
                raise NextwordError(f"Phase '{self.name}': {key} = {getattr(self, key)} must be at least 1.")
        for key, allowed in (("keep", ("best", "last")), ("precision", ("fp32", "tf32", "bf16"))):
            if getattr(self, key) not in allowed:
                raise NextwordError(f"Phase '{self.name}': {key} = '{getattr(self, key)}' is not one of {allowed}.")


@dataclass(frozen=True)
class Recipe:
    name: str  # "lstm/tiny", or the file's path
    paper: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    model: Mapping[str, Any]
    phases: tuple[Phase, ...]
    reported: Mapping[str, Any] = field(default_factory=dict)
    measured: Mapping[str, Any] = field(default_factory=dict)
    compare: Mapping[str, Any] = field(default_factory=dict)  # sizes on offer for `nextword compare`
    task: Mapping[str, Any] | None = None  # what the head over the network reads and says: heads/settings.py
    path: Path | None = None

    @property
    def slug(self) -> str:
        return self.paper["slug"]

    def with_data(self, given: Iterable[str]) -> Recipe:
        """`X` replaces the data of the first phase, and is that of phases that name none; `NAME=X` is the phase's so
        named."""
        phases = list(self.phases)
        for item in given:
            name, _, rest = item.partition("=")
            at = next((i for i, phase in enumerate(phases) if rest and phase.name == name), None)
            value = rest if at is not None else item
            phases[at or 0] = replace(phases[at or 0], data=value)
            if at is None:
                phases[1:] = [phase if phase.data else replace(phase, data=value) for phase in phases[1:]]
        return replace(self, phases=tuple(phases))


def names() -> list[str]:
    return sorted(f"{path.parent.name}/{path.stem}" for path in RECIPES.glob("*/*.toml"))


def load_recipe(given: str | Path, changes: Iterable[str] = ()) -> Recipe:
    """A recipe by `slug/name`, by `slug` alone where that has but one, or by the path of a TOML file."""
    path = _find(str(given))
    tables = _read(path)
    for change in changes:
        _set(tables, change)
    name = f"{path.parent.name}/{path.stem}" if path.is_relative_to(RECIPES) else str(path)
    return _checked(tables, name, path)


def from_tables(tables: Mapping[str, Any], name: str, changes: Iterable[str] = ()) -> Recipe:
    own = copy.deepcopy(dict(tables))  # the caller's stay as they are
    for change in changes:
        _set(own, change)
    return _checked(own, name, None)


def to_tables(recipe: Recipe) -> dict[str, Any]:
    """Every table with every key: a run can be repeated from this alone."""
    return {
        "paper": dict(recipe.paper),
        "reported": dict(recipe.reported),
        "tokenizer": dict(recipe.tokenizer),
        "model": dict(recipe.model),
        **({} if recipe.task is None else {"task": dict(recipe.task)}),
        "phase": [{f.name: _plain(getattr(phase, f.name)) for f in fields(Phase)} for phase in recipe.phases],
    }


def differences(first: Recipe, second: Recipe) -> dict[str, tuple[Any, Any]]:
    """Settings that two recipes do not share, by their paths, as phase.0.epochs; NOTHING where one has none."""
    a, b = (_flat({key: v for key, v in to_tables(one).items() if key not in ABOUT}) for one in (first, second))
    pairs = {key: (a.get(key, NOTHING), b.get(key, NOTHING)) for key in [*a, *b]}
    return {key: (one, other) for key, (one, other) in pairs.items() if one != other}


def differing(there: Recipe, asked: Recipe) -> list[str]:
    """The same in words: "phase.0.epochs is 3 there and 5 here"."""
    found = differences(there, asked).items()
    return [f"{key} is {_shown(one)} there and {_shown(other)} here" for key, (one, other) in found]


def _flat(value: Any, under: str = "") -> dict[str, Any]:
    """Every value of nested tables, by its path."""
    if not isinstance(value, Mapping):
        several = isinstance(value, (list, tuple)) and value and all(isinstance(one, Mapping) for one in value)
        if not several:
            return {under: list(value) if isinstance(value, tuple) else value}
        value = dict(enumerate(value))
    inside = [_flat(one, f"{under}.{key}" if under else str(key)) for key, one in value.items()]
    return {path: one for some in inside for path, one in some.items()}


def _shown(value: Any) -> str:
    said = value if value is NOTHING else repr(value)
    return said if len(said) <= WIDE else f"{said[:WIDE]}…"


def dump(recipe: Recipe) -> str:
    import tomli_w

    return tomli_w.dumps(to_tables(recipe))


def record(path: Path, measured: Mapping[str, Any]) -> None:
    """Write `[measured]` at the end of a recipe file, in place of what stood there, and leave the rest as it is."""
    import tomli_w

    lines, keep = [], True
    for line in path.read_bytes().decode().split("\n"):  # as they are: no line end is translated
        if line.startswith("["):
            keep = not line.lstrip("[").startswith(("measured]", "measured."))
        if keep:
            lines.append(line)
    text = "\n".join(lines).rstrip() + "\n\n" + tomli_w.dumps({"measured": dict(measured)})
    tomllib.loads(text)
    path.write_bytes(text.encode())


def short_authors(authors: str) -> str:
    """As a citation names them: one, two, or the first and others."""
    first, *others = authors.split(", ")
    return first if not others else f"{first} & {others[0]}" if len(others) == 1 else f"{first} et al."


def _find(given: str) -> Path:
    if given.endswith(".toml"):
        if not Path(given).is_file():
            raise NextwordError(f"There is no recipe file {given}. Recipes that come along: `nextword papers`.")
        return Path(given)
    known = names()
    if given in known:
        return RECIPES / f"{given}.toml"
    of_slug = [name for name in known if name.startswith(given + "/")]
    if len(of_slug) == 1:
        return RECIPES / f"{of_slug[0]}.toml"
    if of_slug:
        raise NextwordError(f"'{given}' has several recipes: {', '.join(of_slug)}. Name one of them.")
    raise NextwordError(f"No recipe is called '{given}'.{did_you_mean(given, known)} `nextword papers` lists them all.")


def _read(path: Path, children: tuple[Path, ...] = ()) -> dict[str, Any]:
    if path.resolve() in children:
        circle = " → ".join(str(one) for one in (*children, path.resolve()))
        raise NextwordError(f"A recipe extends itself: {circle}. Take one of these `extends` away.")
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise NextwordError(f"{path} is not TOML: {problem}.") from None
    if "extends" in tables:
        parent = _read(_find(str(tables.pop("extends"))), (*children, path.resolve()))
        parent.pop("measured", None)  # results belong to the recipe that was run
        tables = {**parent, **tables}
    return tables


def _set(tables: dict[str, Any], change: str) -> None:
    key, equals, text = change.partition("=")
    if not equals:
        raise NextwordError(f"--set {change}: expected a.b=c, for example --set phase.0.epochs=3.")
    try:
        value = tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        value = text  # a bare word is a string
    *path, last = key.strip().split(".")
    if path[:2] == ["phase", "*"]:
        for i in range(len(tables.get("phase", ()))):
            _set(tables, f"{'.'.join(['phase', str(i), *path[2:], last])}={text}")
        return
    here: Any = tables
    for i, part in enumerate(path):
        if isinstance(here, list):
            here = _phase(here, part, change)
        else:
            if i == 0 and part not in TABLES:
                raise NextwordError(f"--set {change}: there is no table '{part}'.{did_you_mean(part, TABLES)}")
            here = here.setdefault(part, {})
        if not isinstance(here, (dict, list)):
            raise NextwordError(f"--set {change}: '{'.'.join(path[: i + 1])}' is {here!r} and has no '{last}' in it.")
    if isinstance(here, list):
        raise NextwordError(f"--set {change}: name the phase and its key, as in phase.0.epochs=3.")
    if path[:1] == ["phase"] and last in BUDGETS:  # a new budget replaces the old one
        for other in BUDGETS:
            here.pop(other, None)
    here[last] = value


def _phase(phases: list[dict[str, Any]], part: str, change: str) -> dict[str, Any]:
    for i, phase in enumerate(phases):
        if part in (str(i), phase.get("name", Phase.name)):
            return phase
    known = [f"{i} ({phase.get('name', Phase.name)})" for i, phase in enumerate(phases)]
    raise NextwordError(f"--set {change}: there is no phase '{part}'. The recipe has {', '.join(known)}.")


def _checked(tables: Mapping[str, Any], name: str, path: Path | None) -> Recipe:
    for table in tables:
        if table not in TABLES:
            raise NextwordError(f"{name}: unknown table [{table}].{did_you_mean(table, TABLES)}")
    for table in ("paper", "phase") if "task" in tables else ("paper", "tokenizer", "model", "phase"):
        if table not in tables:
            raise NextwordError(f"{name}: the table [{table}] is missing.")
    for table, value in tables.items():
        if table == "phase":
            if not isinstance(value, list) or not value or not all(isinstance(phase, Mapping) for phase in value):
                raise NextwordError(f"{name}: phases are written as tables under [[phase]], at least one.")
        elif not isinstance(value, Mapping):
            raise NextwordError(f"{name}: {table} = {value!r} must be a table, as in --set {table}.key=value.")
    if "slug" not in tables["paper"]:
        raise NextwordError(f"{name}: [paper] must say its slug, for example slug = 'lstm'.")
    known = [f.name for f in fields(Phase)]
    phases = []
    for given in tables["phase"]:
        given = {
            k: {"kind": v} if k in ("objective", "schedule") and isinstance(v, str) else v for k, v in given.items()
        }
        for key in given:
            if key not in known:
                raise NextwordError(f"{name}: a phase has no key '{key}'.{did_you_mean(key, known)}")
        check_types(given, Phase, f"{name}: in a phase,")
        phases.append(Phase(**given))
    return Recipe(
        name=name,
        paper=tables["paper"],
        tokenizer=tables.get("tokenizer", {}),
        model=tables.get("model", {}),
        phases=tuple(phases),
        reported=tables.get("reported", {}),
        measured=tables.get("measured", {}),
        compare=tables.get("compare", {}),
        task=tables.get("task"),
        path=path,
    )


def check_types(values: Mapping[str, Any], settings: type, where: str) -> None:
    """The values are of the types that a dataclass of settings declares, and no number is below zero."""
    for f in fields(settings):
        if f.name not in values or str(f.type) not in TYPES:
            continue
        value, (accepted, words) = values[f.name], TYPES[str(f.type)]
        wrong = not isinstance(value, accepted) or (isinstance(value, bool) and accepted is not bool)
        if wrong or (isinstance(value, (int, float)) and not value >= 0):
            raise NextwordError(f"{where} {f.name} = {value!r} must be {words}.")


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
