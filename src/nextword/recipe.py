"""Recipes: what to train, on what and how, as TOML with the source of each number.

    [paper]       slug, title, authors, year             [tokenizer]   kind and size
    [reported]    the paper's results                     [model]       the fields of the model's Config
    [measured]    our results, written by the program     [[phase]]     data, objective, optimizer, budget; one or more
    [compare]     sizes for `nextword compare`            [task]        settings of fine-tuning (`nextword transfer`)

A recipe with a [task] may leave [tokenizer] and [model] out: they come from the run that is fine-tuned. Unknown keys
are errors. A recipe may extend another (`extends = "slug/name"`); its tables replace those of its parent as a whole.

The command line changes settings in one way, `--set a.b=c`. A phase is addressed by its index or name
(`phase.0.epochs`), or all phases by a star (`phase.*.optimizer.rate`). Python changes them by keyword, which becomes
the same: `minutes=2, model={"width": 128}`.
"""

from __future__ import annotations

import copy
import json
import numbers
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from nextword.core.errors import DataError, InvalidSetting, MissingFile, UnknownName, invalid, unknown
from nextword.core.io import path_exists, read_toml
from nextword.models import model_class

RECIPES = Path(str(resources.files("nextword"))) / "recipes"
TABLES = ("paper", "reported", "measured", "tokenizer", "model", "phase", "compare", "task", "extends")
DESCRIPTIVE_TABLES = ("paper", "reported")  # have no influence on training
BUDGETS = ("epochs", "steps", "minutes")
PRECISIONS = ("fp32", "tf32", "bf16")
LARGEST = 1e38  # that float32 can hold
NOT_SET = "not set"  # a setting that one of two recipes lacks
MAX_VALUE_LENGTH = 60  # characters of a value in a message
FIELD_TYPES: dict[str, tuple[Any, str]] = {  # annotation of a settings field → accepted types, in words
    "str": (str, "a string"),
    "bool": (bool, "true or false"),
    "int": (int, "a whole number, not negative"),
    "float": ((int, float), "a number, not negative"),
    "Mapping[str, Any]": (Mapping, "a table, as in { kind = … }"),
}


@dataclass(frozen=True)
class Phase:
    """One stage of training: its data, objective, optimizer and budget. Exactly one budget is set."""

    name: str = "train"
    kind: str = "gradient"  # or "count" (n-grams); or "prompt" (nothing is trained)
    data: str = ""  # a path or the name of a data set; empty: --data is required
    decontaminate: Sequence[str] = field(default_factory=list)  # evaluation sets to remove from the training text
    objective: Mapping[str, Any] = field(default_factory=lambda: {"kind": "causal"})
    batches: Mapping[str, Any] = field(default_factory=lambda: {"kind": "rows"})
    optimizer: Mapping[str, Any] = field(default_factory=lambda: {"kind": "adam", "rate": 0.001})
    schedule: Mapping[str, Any] = field(default_factory=lambda: {"kind": "constant"})
    initialization: Mapping[str, Any] = field(default_factory=dict)  # kind, scale and bias; empty: each layer's own
    estimator: Mapping[str, Any] = field(default_factory=dict)  # for kind "count"
    init_from: str = ""  # a run folder to take the initial weights from
    noise: Mapping[str, Any] = field(default_factory=dict)  # on those weights, before training (training/noise.py)
    trainable_groups: int = 0  # number of top layer groups to train (models/parameter_groups.py); 0: all
    clip: float = 0.0  # maximal norm of the gradient; 0: no clipping
    accumulate: int = 1  # batches per optimizer step
    precision: str = "fp32"  # or "tf32", "bf16"
    online: bool = False  # the network updates itself after every prediction, on the CPU (word2vec, GloVe)
    cuda_graphs: bool = False  # on a GPU, record steps as CUDA graphs
    compile: bool = False  # on a GPU, use torch.compile
    checkpointing: bool = False  # recompute activations in the backward pass to save memory
    epochs: float = 0
    steps: int = 0
    minutes: float = 0
    min_steps: int = 0  # a budget in epochs is extended to this many steps: few examples need more epochs
    validate_every: int = 0  # steps between validations; 0: once per epoch
    patience: int = 0  # validations without improvement before training stops; 0: never stop early
    keep: str = "best"  # final weights: those of the "best" validation, or the "last"
    save_every: float = 60  # seconds between saved states
    log_every: int = 20  # steps between log lines
    eval_tokens: int = 0  # tokens of the test text for the final evaluation, in whole documents; 0: all
    seed: int = 1

    def __post_init__(self) -> None:
        if self.kind == "gradient" and sum(map(bool, (self.epochs, self.steps, self.minutes))) != 1:
            raise InvalidSetting(
                f"Phase '{self.name}' needs exactly one budget. It has epochs = {self.epochs}, steps = {self.steps} "
                f"and minutes = {self.minutes}.",
                key="budget",
            )
        where = f"phase '{self.name}'"
        if self.min_steps and not self.epochs:
            raise invalid(
                "min_steps", self.min_steps, "extends a budget in epochs. Set epochs, or leave it out.", where
            )
        for key, count in (("accumulate", self.accumulate), ("log_every", self.log_every)):
            if count < 1:
                raise invalid(key, count, "must be at least 1.", where)
        for key, value, allowed in (("keep", self.keep, ("best", "last")), ("precision", self.precision, PRECISIONS)):
            if value not in allowed:
                raise invalid(key, value, f"must be {' or '.join(allowed)}.", where)


@dataclass(frozen=True)
class Recipe:
    name: str  # "lstm/tiny", or the path of the file
    paper: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    model: Mapping[str, Any]
    phases: tuple[Phase, ...]
    reported: Mapping[str, Any] = field(default_factory=dict)
    measured: Mapping[str, Any] = field(default_factory=dict)
    compare: Mapping[str, Any] = field(default_factory=dict)
    task: Mapping[str, Any] | None = None
    path: Path | None = None

    def __repr__(self) -> str:
        """All settings, as TOML."""
        import tomli_w

        tables = recipe_tables(self)
        settings = {key: tables[key] for key in ("tokenizer", "model", "task", "phase") if tables.get(key)}
        return f"Recipe({self.name!r})\n\n{tomli_w.dumps(settings)}"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"

    @property
    def slug(self) -> str:
        """The model's short name: a key of models.MODELS, and a folder of recipes/."""
        return str(self.paper["slug"])

    def with_data(self, items: Iterable[str]) -> Recipe:
        """Set the data of phases.

        "X" is the data of the first phase and of all phases without data; "NAME=X" that of the phase called NAME.
        """
        phases = list(self.phases)
        for item in items:
            name, _, value = item.partition("=")
            index = next((i for i, phase in enumerate(phases) if value and phase.name == name), None)
            if index is not None:
                phases[index] = replace(phases[index], data=value)
            else:
                phases[0] = replace(phases[0], data=item)
                phases[1:] = [phase if phase.data else replace(phase, data=item) for phase in phases[1:]]
        return replace(self, phases=tuple(phases))

    def with_seed(self, seed: int) -> Recipe:
        """Set the random seed of all phases."""
        return replace(self, phases=tuple(replace(phase, seed=seed) for phase in self.phases))


# ------------------------------------------------------------------------------------------------ reading


def recipe_names() -> list[str]:
    """All recipes of the package, as "slug/name"."""
    return sorted(f"{path.parent.name}/{path.stem}" for path in RECIPES.glob("*/*.toml"))


def load_recipe(name: str | Path, changes: Iterable[str] = ()) -> Recipe:
    """Load a recipe by "slug/name", by "slug" if it has only one recipe, or by the path of a TOML file.

    `changes` are settings to change, in the form of `--set`: "phase.0.epochs=3".
    """
    path = _find_file(str(name))
    tables = _read_tables(path)
    for change in changes:
        _apply_change(tables, change)
    full_name = f"{path.parent.name}/{path.stem}" if path.is_relative_to(RECIPES) else str(path)
    return _build_recipe(tables, full_name, path)


def parse_recipe(tables: Mapping[str, Any], name: str, changes: Iterable[str] = ()) -> Recipe:
    """Build a recipe from its tables, which stay unchanged."""
    own = copy.deepcopy(dict(tables))
    for change in changes:
        _apply_change(own, change)
    return _build_recipe(own, name, None)


def _find_file(name: str) -> Path:
    if name.endswith(".toml"):
        if not path_exists(name):
            raise MissingFile(f"There is no recipe file {name}. `nextword papers` lists built-in ones.", path=name)
        return Path(name)
    known = recipe_names()
    if name in known:
        return RECIPES / f"{name}.toml"
    of_slug = [other for other in known if other.startswith(name + "/")]
    if len(of_slug) == 1:
        return RECIPES / f"{of_slug[0]}.toml"
    if of_slug:
        raise UnknownName(f"'{name}' has several recipes. Choose one: {', '.join(of_slug)}.", name=name, known=of_slug)
    raise unknown("recipe", name, known, hint="`nextword papers` lists them.")


def _read_tables(path: Path, children: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read a file and its parents. `children` are the files that extend this one."""
    if path.resolve() in children:
        circle = " → ".join(map(str, (*children, path.resolve())))
        raise InvalidSetting(f"Recipes extend each other in a circle: {circle}. Remove one `extends`.", key="extends")
    try:
        tables = read_toml(path)
    except DataError as problem:
        raise InvalidSetting(str(problem), key=str(path)) from None
    if "extends" in tables:
        parent = _read_tables(_find_file(str(tables.pop("extends"))), (*children, path.resolve()))
        parent.pop("measured", None)  # results belong to the recipe that was run
        tables = {**parent, **tables}
    return tables


def _build_recipe(tables: Mapping[str, Any], name: str, path: Path | None) -> Recipe:
    """Validate the tables: known names, required tables, types."""
    for table in tables:
        if table not in TABLES:
            raise unknown("table", table, TABLES, where=name)
    for table in ("paper", "phase") if "task" in tables else ("paper", "tokenizer", "model", "phase"):
        if table not in tables:
            raise InvalidSetting(f"{name}: the table [{table}] is missing.", key=table)
    for table, value in tables.items():
        if table == "phase":
            if not isinstance(value, list) or not value or not all(isinstance(phase, Mapping) for phase in value):
                raise invalid("phase", value, "must be one or more tables under [[phase]].", name)
        elif not isinstance(value, Mapping):
            raise invalid(table, value, f"must be a table. Set its keys, as in --set {table}.key=value.", name)
    if not isinstance(tables["paper"].get("slug"), str):
        raise InvalidSetting(f"{name}: [paper] needs a slug, for example slug = 'lstm'.", key="paper.slug")
    _check_kinds(tables, name)
    return Recipe(
        name=name,
        paper=tables["paper"],
        tokenizer=tables.get("tokenizer", {}),
        model=tables.get("model", {}),
        phases=tuple(_build_phase(phase, name) for phase in tables["phase"]),
        reported=tables.get("reported", {}),
        measured=tables.get("measured", {}),
        compare=tables.get("compare", {}),
        task=tables.get("task"),
        path=path,
    )


def _check_kinds(value: object, where: str, key: str = "") -> None:
    """Raise InvalidSetting for a `kind` that is no string, in any table: it chooses from a table of names."""
    parts = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        path = f"{key}.{name}" if key else str(name)
        if name == "kind" and not isinstance(part, str):
            raise invalid(path, part, "must be a string.", where)
        _check_kinds(part, where, path)


def _build_phase(table: Mapping[str, Any], name: str) -> Phase:
    settings = dict(table)
    for key in ("objective", "schedule"):  # "causal" is short for { kind = "causal" }
        if isinstance(settings.get(key), str):
            settings[key] = {"kind": settings[key]}
    known = [f.name for f in fields(Phase)]
    for key in settings:
        if key not in known:
            raise unknown("key", key, known, where=f"{name}: [[phase]]")
    check_types(settings, Phase, f"{name}: in a phase")
    names = settings.get("decontaminate", [])
    if not isinstance(names, (str, list)) or not all(isinstance(item, str) for item in names):
        raise invalid("decontaminate", names, "must be a list of data sets.", name)
    length = settings.get("batches", {}).get("length", 0)
    if type(length) is not int or length < 0:
        raise invalid("batches.length", length, "must be a whole number, not negative.", name)
    try:
        return Phase(**settings)
    except InvalidSetting as error:  # a phase does not know its recipe
        raise InvalidSetting(f"{name}: {error}", key=error.key, value=error.value) from None


def check_types(values: Mapping[str, Any], settings: type, where: str) -> None:
    """Check that values have the types of a settings dataclass, and that no number is negative."""
    for f in fields(settings):
        if f.name not in values or str(f.type) not in FIELD_TYPES:
            continue
        value, (accepted, expected) = values[f.name], FIELD_TYPES[str(f.type)]
        is_wrong = not isinstance(value, accepted) or (isinstance(value, bool) and accepted is not bool)
        if is_wrong or (isinstance(value, (int, float)) and not 0 <= value < LARGEST):
            raise invalid(f.name, value, f"must be {expected}.", where)


def network_config(recipe: Recipe) -> Any:
    """The Config of the recipe's network; raise an error for unknown keys and wrong types in [model]."""
    config = model_class(recipe.slug).Config
    known = [f.name for f in fields(config)]
    for key in recipe.model:
        if key not in known:
            raise unknown("key", key, known, where=f"{recipe.name}: [model] of '{recipe.slug}'")
    check_types(recipe.model, config, f"{recipe.name}: in [model]")
    return config(**recipe.model)


# ------------------------------------------------------------------------------------------------ --set


def _apply_change(tables: dict[str, Any], change: str) -> None:
    """Apply "a.b=c" to the tables, in place."""
    key, equals, text = change.partition("=")
    if not equals:
        raise InvalidSetting(f"--set {change}: expected KEY=VALUE, for example phase.0.epochs=3.", key=change)
    try:
        value = tomllib.loads(f"x = {text}")["x"]
    except (ValueError, RecursionError):
        value = text  # a bare word is a string
    *path, last = key.strip().split(".")
    if path[:2] == ["phase", "*"]:
        for i in range(len(tables.get("phase", ()))):
            _apply_change(tables, f"{'.'.join(['phase', str(i), *path[2:], last])}={text}")
        return
    table: Any = tables
    for i, part in enumerate(path):
        if isinstance(table, list):
            table = _find_phase(table, part, change)
        else:
            if i == 0 and part not in TABLES:
                raise unknown("table", part, TABLES, where=f"--set {change}")
            table = table.setdefault(part, {})
        if not isinstance(table, (dict, list)):
            parent = ".".join(path[: i + 1])
            raise invalid(parent, table, "has no keys.", f"--set {change}")
    if isinstance(table, list):
        raise InvalidSetting(f"--set {change}: name a phase and its key, as in phase.0.epochs=3.", key=key)
    if path[:1] == ["phase"] and last in BUDGETS:  # a new budget replaces the old one
        for budget in (*BUDGETS, "min_steps"):
            table.pop(budget, None)
    table[last] = value


def _find_phase(phases: list[dict[str, Any]], part: str, change: str) -> dict[str, Any]:
    for i, phase in enumerate(phases):
        if part in (str(i), phase.get("name", Phase.name)):
            return phase
    known = [f"{i} ({phase.get('name', Phase.name)})" for i, phase in enumerate(phases)]
    raise UnknownName(
        f"--set {change}: there is no phase '{part}'. The recipe has {', '.join(known)}.", name=part, known=known
    )


# ------------------------------------------------------------------------------------------------ keywords

KEYWORD_TABLES = ("tokenizer", "model", "task", "phase")
PHASE_KEYS = tuple(f.name for f in fields(Phase) if f.name != "name")
CALL_KEYS = ("from_", "data", "out", "seed", "progress", "events", "device", "resume")  # of the functions themselves
FOREIGN_NAMES = {  # what other libraries call a setting
    **dict.fromkeys(("lr", "learning_rate"), "rate"),
    **dict.fromkeys(("batch_size", "per_device_train_batch_size"), "rows"),
    **dict.fromkeys(("dim", "hidden_size", "d_model", "n_embd", "embedding_dim"), "width"),
    **dict.fromkeys(("num_layers", "n_layers", "n_layer", "num_hidden_layers"), "layers"),
    **dict.fromkeys(("num_heads", "n_heads", "n_head", "num_attention_heads"), "heads"),
    **dict.fromkeys(("max_length", "max_seq_length", "seq_len", "block_size", "bptt"), "length"),
    **dict.fromkeys(("num_epochs", "num_train_epochs", "n_epochs"), "epochs"),
    **dict.fromkeys(("max_steps", "num_steps", "iterations"), "steps"),
    "vocab_size": "size",
}


def settings_as_changes(settings: Mapping[str, Any], recipe: Recipe | None = None) -> list[str]:
    """Settings given as Python keywords, in the form of `--set`.

        settings_as_changes({"minutes": 2, "model": {"width": 128}}, recipe)
        ["phase.0.minutes=2", "model.width=128"]

    A table changes the recipe key by key; one with a `kind` replaces the recipe's. A setting of a phase needs a recipe
    with one phase, or `phase={"NAME": {…}}`. `recipe` is the one to change; None: any recipe, in all of its phases.
    """
    phases = [phase.name for phase in recipe.phases] if recipe else []
    changes: list[str] = []
    for key, value in settings.items():
        if key == "phase":
            changes += _phase_changes(value)
        elif key in KEYWORD_TABLES:
            if not isinstance(value, Mapping):
                raise invalid(key, value, f"must be a dictionary of its settings, as in {key}={{'key': value}}.")
            changes += _table_changes(key, value)
        elif key in PHASE_KEYS:
            if len(phases) > 1:
                example = f"phase={{{phases[0]!r}: {{{key!r}: {value!r}}}}}"
                raise InvalidSetting(
                    f"The recipe has {len(phases)} phases ({', '.join(phases)}), so {key} = {value!r} is not clear. "
                    f"Name the phase: {example}.",
                    key=key,
                    value=value,
                )
            changes += _table_changes(f"phase.{0 if recipe else '*'}.{key}", value)
        else:
            raise _unknown_keyword(key, value, recipe)
    return changes


def _unknown_keyword(key: str, value: object, recipe: Recipe | None) -> UnknownName:
    """An error that shows where the setting is, if it has this name in a table or another name here."""
    table, _, rest = key.partition(".")
    name = FOREIGN_NAMES.get(key, key)
    places = [name] if name in PHASE_KEYS else []
    if rest and table in (*KEYWORD_TABLES, *PHASE_KEYS):
        places = [f"{table}={{{rest!r}: {value!r}}}"]
    elif recipe is not None:
        tables = {"model": recipe.model, "tokenizer": recipe.tokenizer, "task": recipe.task or {}}
        tables |= {field: getattr(recipe.phases[0], field) for field in ("optimizer", "batches", "schedule")}
        places += [f"{table}={{{name!r}: {value!r}}}" for table, items in tables.items() if name in items]
    if places:
        written = f"{places[0]}={value!r}" if places[0] == name else places[0]
        return UnknownName(f"There is no setting {key!r}. Use {written}.", name=key)
    hint = "Use a table (model={…}, tokenizer={…}, optimizer={…}) or a setting of training, such as minutes or epochs."
    return unknown("setting", key, [*KEYWORD_TABLES, *PHASE_KEYS, *CALL_KEYS], hint=hint)


def _phase_changes(value: object) -> list[str]:
    """Settings of phases by name or number, or a list of them in order."""
    tables = dict(enumerate(value)) if isinstance(value, (list, tuple)) else value
    if not isinstance(tables, Mapping) or not all(isinstance(table, Mapping) for table in tables.values()):
        problem = "must name phases: phase={'NAME': {'epochs': 3}}, or phase=[{…}, {…}] in their order."
        raise invalid("phase", value, problem)
    return [change for name, table in tables.items() for change in _table_changes(f"phase.{name}", table)]


def _table_changes(path: str, value: object) -> list[str]:
    if isinstance(value, Mapping) and "kind" not in value:
        return [change for key, item in value.items() for change in _table_changes(f"{path}.{key}", item)]
    return [f"{path}={_toml_literal(value, path)}"]


def _toml_literal(value: object, path: str) -> str:
    """A value in TOML's notation, on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, numbers.Integral):  # numpy's too
        return str(int(value))
    if isinstance(value, numbers.Real):
        return repr(float(value))
    if isinstance(value, (str, Path)):
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_toml_literal(item, path) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(str(k))} = {_toml_literal(v, path)}' for k, v in value.items())}}}"
    raise invalid(path, value, "must be a number, a text, true or false, a list or a dictionary.")


# ------------------------------------------------------------------------------------------------ writing


def recipe_tables(recipe: Recipe) -> dict[str, Any]:
    """The inverse of `parse_recipe`, with every key of every phase: enough to repeat the run."""
    phases = [
        {key: dict(value) if isinstance(value, Mapping) else value for key, value in vars(phase).items()}
        for phase in recipe.phases
    ]
    return {
        "paper": dict(recipe.paper),
        "reported": dict(recipe.reported),
        "tokenizer": dict(recipe.tokenizer),
        "model": dict(recipe.model),
        **({} if recipe.task is None else {"task": dict(recipe.task)}),
        "phase": phases,
    }


def recipe_toml(recipe: Recipe) -> str:
    import tomli_w

    return tomli_w.dumps(recipe_tables(recipe))


def record_measured(path: Path, measured: Mapping[str, Any]) -> None:
    """Replace [measured] at the end of a recipe file, and leave everything else as it is."""
    import tomli_w

    lines, is_kept = [], True
    for line in path.read_bytes().decode().split("\n"):  # without translating line ends
        if line.startswith("["):
            is_kept = not line.lstrip("[").startswith(("measured]", "measured."))
        if is_kept:
            lines.append(line)
    text = "\n".join(lines).rstrip() + "\n\n" + tomli_w.dumps({"measured": dict(measured)})
    tomllib.loads(text)
    path.write_bytes(text.encode())


def short_authors(authors: str) -> str:
    """Authors as a citation names them: "Mikolov", "Howard & Ruder", "Vaswani et al."."""
    first, *others = authors.split(", ")
    return first if not others else f"{first} & {others[0]}" if len(others) == 1 else f"{first} et al."


# ------------------------------------------------------------------------------------------------ comparing


def setting_differences(first: Recipe, second: Recipe) -> dict[str, tuple[Any, Any]]:
    """Settings in which two recipes differ, such as "phase.0.epochs": (3, 5); NOT_SET where one lacks a setting."""
    a, b = (
        _flatten({key: table for key, table in recipe_tables(recipe).items() if key not in DESCRIPTIVE_TABLES})
        for recipe in (first, second)
    )
    pairs = {key: (a.get(key, NOT_SET), b.get(key, NOT_SET)) for key in [*a, *b]}
    return {key: (value, other) for key, (value, other) in pairs.items() if value != other}


def describe_differences(saved: Recipe, given: Recipe) -> list[str]:
    """The same in words: "phase.0.epochs is 3 there and 5 here"."""
    differences = setting_differences(saved, given).items()
    return [f"{key} is {_shorten(there)} there and {_shorten(here)} here" for key, (there, here) in differences]


def _flatten(value: object, path: str = "") -> dict[str, Any]:
    """All values of nested tables by their paths."""
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, Mapping) for item in value):
        value = dict(enumerate(value))
    if not isinstance(value, Mapping):
        return {path: list(value) if isinstance(value, tuple) else value}
    parts = [_flatten(item, f"{path}.{key}" if path else str(key)) for key, item in value.items()]
    return {key: item for part in parts for key, item in part.items()}


def _shorten(value: object) -> str:
    text = NOT_SET if value is NOT_SET else repr(value)
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]}…"
