"""What fine-tuning will do, decided before it begins: the resolved recipe, the data, and the encoded examples.

    recipe (bert/finetune)  how to train         ┐
    run    (runs/bert)      network, tokenizer   ├──▶  a recipe that says everything, with init = RUN and a [task]
    data   (RTE)            texts and labels     ┘

A recipe may have a network of its own (tagger/conll2003): then there is no run, and the network is trained from
scratch. Everything that can be wrong is an error here, before there is a run folder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch

from nextword.batching.examples import Bucketed
from nextword.conversion import huggingface
from nextword.core.errors import InvalidSetting, NextwordError, RunError, invalid, unknown
from nextword.core.types import Vocabulary
from nextword.data.tables import DELIMITERS, Columns
from nextword.lm.base import TextModel
from nextword.models import model_class
from nextword.objectives import make_objective
from nextword.recipe import BUDGETS, Phase, Recipe, load_recipe, recipe_names
from nextword.run_folder import RunFolder
from nextword.tasks import TASKS, parse_task, task_class
from nextword.tasks.base import AnyTask, Dataset, Progress, Setup, default_of
from nextword.tasks.baselines import Baseline, measure
from nextword.tasks.encoding import require_trainable
from nextword.tasks.heads import tensors_of_last_layers
from nextword.tasks.tagging import open_features
from nextword.tasks.unknown_words import check_vocabulary
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.training import train_tokenizer
from nextword.training.device import choose_device, cpu_has_bf16
from nextword.training.train import build_network, pretrained_words
from nextword.training.trainer import count_steps

SEED_STEP = 1000  # between the seeds of the phases of one run, so that they see batches in different orders
MIN_BF16_WIDTH = 256  # of a Transformer that is trained in 16 bits on a CPU
FEW_STEPS = 100  # Mosbach et al. (2021): fine-tuning that fails on little data was mostly stopped too early
SMALL_BATCH = 16
FEW_LABELS = "few"  # the name of a paper's recipe for few labels


@dataclass(frozen=True)
class Plan:
    recipe: Recipe  # of the run to be, complete but for its seed
    tokenizer: Tokenizer
    data: Dataset
    examples: dict[str, Any]  # train, dev, and other labeled splits, as the task encodes them
    device: torch.device
    notes: tuple[str, ...] = ()
    lm: TextModel | None = None  # the language model that is prompted, if nothing is trained
    unknown: float | None = None  # fraction of training words that the vocabulary lacks; None: it spells any word
    fingerprint: str = ""  # a hash of all that training reads
    measured: dict[int, dict[str, list[Baseline]]] = field(default_factory=dict, repr=False)  # see `baselines`

    @property
    def task(self) -> AnyTask:
        return parse_task(self.recipe.task, self.recipe.name)

    def with_seed(self, seed: int | None) -> Recipe:
        return with_seed(self.recipe, seed)

    def baselines(self, recipe: Recipe) -> dict[str, list[Baseline]]:
        """The baselines of each part of the data, for a recipe with its seed; measured once for the same examples."""
        task, seed = self.task.config, recipe.phases[0].seed
        key = 0 if task.train_fraction == 1 else seed
        if key not in self.measured:
            self.measured[key] = {
                name: measure(part, part.metrics if name else task.metrics, task.train_fraction, seed)
                for name, part in self.data.parts.items()
            }
        return self.measured[key]

    def compared_split(self, part: Dataset) -> str:
        """Where a model is compared with baselines: on test if it has labels, else on dev; "": both were trained on."""
        if part is self.data and part.is_labeled("test"):
            return "test"
        return "" if self.task.config.merge_dev_into_train else "dev"


def with_seed(recipe: Recipe, seed: int | None) -> Recipe:
    if seed is None:
        return recipe
    phases = tuple(replace(phase, seed=seed + SEED_STEP * i) for i, phase in enumerate(recipe.phases))
    return replace(recipe, phases=phases)


@dataclass(frozen=True)
class Resolved:
    """A recipe that says everything, before a text is tokenized."""

    recipe: Recipe
    data: Dataset
    source: RunFolder | None
    device: torch.device


def make_plan(
    name: str,
    source: str | Path,
    data: str | Path,
    *,
    progress: Progress = lambda label, done, total: None,
    **options: Any,
) -> Plan:
    """Plan to fine-tune a run on data with a recipe. The options are those of `resolve`."""
    return prepare(resolve(name, source, data, **options), progress)


def resolve(
    name: str,
    source: str | Path,
    data: str | Path,
    columns: Columns = Columns(),
    kind: str = "",
    scratch: bool = False,
    changes: Sequence[str] = (),
    device: str = "auto",
) -> Resolved:
    """Read the data, and complete the recipe with what the data, the run and the command decide."""
    run = open_source(source) if source else None
    recipe = load_task_recipe(name, changes)
    task = parse_task(recipe.task, recipe.name)
    if run is None and not recipe.tokenizer:
        raise InvalidSetting(f"{name} fine-tunes a run. Name it with --from RUN.", key="source", value="")
    if run is not None and recipe.tokenizer:
        problem = f"{name} has a network of its own. Leave --from {source} out, or use another recipe."
        raise InvalidSetting(problem, key="source", value=source)
    if scratch:
        require_training(recipe)
    location = str(data) or recipe.phases[0].data
    if not location:
        problem = "There is no data. Name a file or a benchmark with --data (`nextword data` lists them)."
        raise InvalidSetting(problem, key="data", value="")
    dataset = read_data(task, recipe, location, columns, kind)
    overrides = {key.lower(): list(own) for key, own in task.config.overrides.items()}
    if dataset.name.lower() in overrides:
        recipe = load_recipe(name, [*overrides[dataset.name.lower()], *changes])
        task = parse_task(recipe.task, recipe.name)
    if task.config.merge_dev_into_train:
        dataset = dataset.merge_dev_into_train()
        recipe = replace(recipe, phases=tuple(replace(phase, keep="last") for phase in recipe.phases))
    if not task.trains:
        _require_no_training(recipe)
    own_task = task.resolve(dataset, run, scratch)
    chosen = choose_device(device)
    if run is None:
        recipe = _with_features(_resolve_own_network(recipe, task, own_task, location, chosen, changes), chosen)
    elif task.trains:
        recipe = _resolve_fine_tuning(recipe, task, own_task, run, location, chosen, load_recipe(name), changes)
    else:
        recipe = _complete(
            recipe, own_task, run, model=run.recipe.model, phases=(replace(recipe.phases[0], data=location),)
        )
    return Resolved(recipe, dataset, run, chosen)


def prepare(resolved: Resolved, progress: Progress) -> Plan:
    """Tokenize the texts, with the run's tokenizer or with one that is trained on them."""
    recipe = resolved.recipe
    if resolved.source is None:
        progress("training the tokenizer", 0, None)
        texts = resolved.data.training_texts()
        tokenizer = train_tokenizer(recipe.tokenizer, texts, pretrained_words(recipe))
    else:
        tokenizer = load_tokenizer(resolved.source.path / "tokenizer.json")
    return build_plan(recipe, tokenizer, resolved.data, resolved.device, progress)


def build_plan(recipe: Recipe, tokenizer: Tokenizer, data: Dataset, device: torch.device, progress: Progress) -> Plan:
    """The plan of a resolved recipe. Each text is tokenized once, however many seeds follow."""
    task = parse_task(recipe.task, recipe.name)
    lm: TextModel | None = None
    if task.trains:
        network = build_network(recipe, tokenizer)
        require_trainable(network)
        tensors_of_last_layers(network, task.config.reinit_layers)  # or an error
    else:
        from nextword.lm.loading import load

        lm = load(task.config.source, str(device))
        network = lm.network
    setup = Setup(recipe, network, tokenizer, device, progress, list(data.notes))
    examples = task.encode(data, setup)
    if task.trains:
        setup.notes += note_few_steps(task, recipe, examples["train"], network.vocabulary)
    unknown, notes = check_vocabulary(task.config.source, network, tokenizer, data)
    fingerprint = f"{data.fingerprint}-{setup.other_text}" if setup.other_text else data.fingerprint
    return Plan(recipe, tokenizer, data, examples, device, (*setup.notes, *notes), lm, unknown, fingerprint)


# ------------------------------------------------------------------------------------------------ recipe and run


def load_task_recipe(name: str, changes: Sequence[str] = ()) -> Recipe:
    """A recipe that has a [task]."""
    if load_recipe(name).task is None:
        recipes = [recipe for recipe in map(load_recipe, recipe_names()) if recipe.task is not None]
        known = [recipe.name for recipe in recipes if not recipe.tokenizer]
        hint = f"Recipes for fine-tuning a run of any network: {', '.join(known)}."
        raise unknown("task in the recipe", name, known, hint=hint)
    return load_recipe(name, changes)


def open_source(source: str | Path) -> RunFolder:
    """The run to fine-tune."""
    path = Path(source)
    if path.is_dir() and not (path / "manifest.json").is_file() and huggingface.is_source(path):
        raise RunError(
            f"{path} is a Hugging Face folder. Convert it first: nextword convert {path} runs/{path.name}", path=path
        )
    run = RunFolder.open(source)
    if not run.has_model:
        raise RunError(f"{path} has no model yet. Resume it: nextword train --resume --out {path}", path=path)
    return run


def require_training(recipe: Recipe) -> None:
    """Raise an error if the recipe trains nothing: then there is no baseline from scratch."""
    if not parse_task(recipe.task, recipe.name).trains:
        advice = "Leave --scratch and --compare-scratch out, or compare with --set task.shots=0."
        problem = f"{recipe.name} trains nothing, so there is no baseline from scratch. {advice}"
        raise InvalidSetting(problem, key="scratch", value=True)


def _require_no_training(recipe: Recipe) -> None:
    """Raise an error if the phases of a recipe for a prompted language model would train something."""
    phase = recipe.phases[0]
    if len(recipe.phases) > 1 or phase.kind != "prompt":
        raise invalid("phase.0.kind", phase.kind, "must be the only phase, of kind 'prompt'.", recipe.name)
    extra = [f"phase.0.{key}" for key in BUDGETS if getattr(phase, key)] + [f"model.{key}" for key in recipe.model]
    if extra:
        raise InvalidSetting(
            f"{recipe.name} trains nothing, so {', '.join(extra)} would be ignored. Leave it out.", key=extra[0]
        )


# ------------------------------------------------------------------------------------------------ data


def read_data(task: AnyTask, recipe: Recipe, source: str, columns: Columns, kind: str) -> Dataset:
    """Read the data as the task needs it, and check [task] against it."""
    _refuse_settings_from_data(task, recipe)
    try:
        data = task.read(source, columns, kind)
    except NextwordError as error:
        if columns != Columns() or kind:  # the user has named the columns or the task
            raise
        raise _recommend_recipe(error, task, recipe.name, source) from None
    possible = data.possible_metrics
    wrong = next((name for name in task.config.metrics if name not in possible), None)
    if wrong is not None:
        expected = f"Expected {', '.join(possible)}" if possible else "Each of several tasks has its own; leave it out"
        raise invalid("task.metrics", wrong, f"cannot be measured on {data.name}. {expected}.", recipe.name)
    return data


def _refuse_settings_from_data(task: AnyTask, recipe: Recipe) -> None:
    """Raise an error if [task] sets what the data or the command decide: it would be ignored."""
    for setting in fields(task.config):
        value, default = getattr(task.config, setting.name), default_of(setting)
        if "option" not in setting.metadata or value == default or (not value and not default):
            continue
        option = setting.metadata["option"]
        how = f"is set with {option}" if option else "follows from the data"
        raise invalid(f"task.{setting.name}", value, f"{how}. Leave it out of the recipe.", recipe.name)


def recognize(source: str) -> str:
    """The first task in TASKS that recognizes the data; "" if that is not clear."""
    return next((kind for kind in TASKS if task_class(kind).recognizes(source)), "")


def _recommend_recipe(error: NextwordError, task: AnyTask, recipe: str, source: str) -> NextwordError:
    """The error of reading the data; if they belong to another task, one that names a recipe for that."""
    kind = recognize(source)
    other = task_class(kind) if kind else type(task)
    if other.data_kind == task.data_kind or issubclass(other, type(task)):
        return error
    is_table = Path(source).suffix.lower() in (*DELIMITERS, ".jsonl")  # whose columns may have any names
    reason = f"{error} Or: " if is_table else ""
    return InvalidSetting(
        f"{reason}{recipe} needs {task.data_kind}, and {source} has {other.data_kind}. Use a recipe for those: "
        f"nextword transfer {other.example_recipe} --from RUN --data {source}",
        key="data",
        value=source,
    )


# ------------------------------------------------------------------------------------------------ the resolved recipe


def _complete(
    recipe: Recipe, task: AnyTask, run: RunFolder | None, phases: tuple[Phase, ...], model: Mapping[str, Any]
) -> Recipe:
    theirs = recipe if run is None else run.recipe
    return replace(
        recipe,
        paper=theirs.paper,
        tokenizer=theirs.tokenizer,
        model=model,
        phases=phases,
        reported={},
        measured={},
        compare={},
        task=task.config.as_table(),
    )


def _resolve_fine_tuning(
    recipe: Recipe,
    task: AnyTask,
    own_task: AnyTask,
    run: RunFolder,
    data: str,
    device: torch.device,
    plain: Recipe,
    changes: Sequence[str],
) -> Recipe:
    """The recipe's training of the run's network. `plain` is the recipe without any changes."""
    theirs = run.recipe
    network = model_class(theirs.slug)
    known = {f.name for f in dataclasses.fields(network.Config)}
    # A recipe's settings for any network (dropout) apply to networks that have them; the user's must fit
    ours = {key: v for key, v in recipe.model.items() if key in known or (key, v) not in plain.model.items()}
    model = {**theirs.model, **ours}
    if network.num_extra_tokens:
        model["extra_tokens"] = max(int(model.get("extra_tokens", 0)), network.num_extra_tokens)
    defaults: dict[str, Any] = {f.name: f.default for f in dataclasses.fields(network.Config)}
    width = int((defaults | model).get("width", 0)) if network.can_compile else 0
    # A network with positions has not learned those beyond the longest text that it was trained on
    lengths = [int(phase.batches.get("length", 0)) for phase in theirs.phases] if "window" in known else []
    longest = max(lengths, default=0)
    phases = []
    for i, phase in enumerate(_with_objective(recipe, task, own_task)):
        batches = dict(phase.batches)
        if longest:
            batches["length"] = min(int(batches.get("length", Bucketed.length)) or longest, longest)
        init = "" if own_task.config.scratch or i else run.name
        phase = replace(phase, data=data, init_from=init, batches=batches, seed=phase.seed + SEED_STEP * i)
        phases.append(replace(phase, precision=choose_precision(phase, device, changes, width)))
    return _complete(recipe, own_task, run, tuple(phases), model)


def _resolve_own_network(
    recipe: Recipe, task: AnyTask, own_task: AnyTask, data: str, device: torch.device, changes: Sequence[str]
) -> Recipe:
    """A recipe that has a network of its own."""
    phases = _with_objective(recipe, task, own_task)
    phases = [replace(phase, data=data, precision=choose_precision(phase, device, changes)) for phase in phases]
    return _complete(recipe, own_task, None, tuple(phases), recipe.model)


def _with_objective(recipe: Recipe, task: AnyTask, own_task: AnyTask) -> list[Phase]:
    """Phases with the objective of the run's task: a recipe for classification may have become one for regression."""
    phases = []
    for phase in recipe.phases:
        kind = phase.objective.get("kind")
        if kind not in (task.config.kind, own_task.config.kind):
            expected = f"must be that of [task]: {task.config.kind!r}."
            raise invalid(f"phase.{phase.name}.objective.kind", kind, expected, recipe.name)
        phases.append(replace(phase, objective={**phase.objective, "kind": own_task.config.kind}))
    return phases


def _with_features(recipe: Recipe, device: torch.device) -> Recipe:
    """Write down how many layers the run in --features has, how wide they are, and its fingerprint."""
    vectors = open_features(recipe, device)
    if vectors is None:
        return recipe
    facts = {
        "contextual_layers": vectors.layers,
        "contextual_width": vectors.width,
        "contextual_fingerprint": vectors.fingerprint,
    }
    return replace(recipe, model={**recipe.model, **facts})


def choose_precision(phase: Phase, device: torch.device, changes: Sequence[str], width: int = 0) -> str:
    """The recipe's precision, as far as the device computes in it fast: other CPUs emulate 16 bits very slowly.

    On a CPU with instructions for bf16, a Transformer of `width` 384 takes half the time; recurrent and small networks
    (`width` 0) gain nothing.
    """
    is_fast = device.type != "cpu" or (width >= MIN_BF16_WIDTH and cpu_has_bf16())
    return phase.precision if names_precision(changes) or is_fast else "fp32"


def names_precision(changes: Sequence[str]) -> bool:
    return any(".precision" in change.partition("=")[0] for change in changes)


# ------------------------------------------------------------------------------------------------ notes


def note_few_steps(task: AnyTask, recipe: Recipe, train: Any, vocabulary: Vocabulary) -> list[str]:
    """A note, if there are so few examples that training would be over before it has learned anything."""
    if any(phase.steps or phase.minutes or not phase.epochs for phase in recipe.phases):
        return []  # the user chose how long to train
    train = task.sample(train, task.config.train_fraction, recipe.phases[0].seed)
    steps = sum(_count_steps(phase, train, vocabulary) for phase in recipe.phases)
    if steps >= FEW_STEPS:
        return []
    few = f"{recipe.name.partition('/')[0]}/{FEW_LABELS}"
    if few in recipe_names() and recipe.name != few:
        advice = f"{few} has smaller batches and more epochs"
    else:
        last = recipe.phases[-1]
        epochs = -(-FEW_STEPS * max(1, round(last.epochs)) // steps)
        rows = max(int(phase.batches.get("rows", Bucketed.rows)) for phase in recipe.phases)
        smaller = f"--set 'phase.*.batches.rows={SMALL_BATCH}' " if rows > SMALL_BATCH else ""
        advice = f"smaller batches or more epochs may help ({smaller}--set phase.{last.name}.epochs={epochs})"
    return [f"{task.count(train):,} examples give only {steps} step{'s' * (steps != 1)} in all: {advice}"]


def _count_steps(phase: Phase, train: Any, vocabulary: Vocabulary) -> int:
    batches = make_objective(phase.objective, phase.batches, vocabulary).batches_per_epoch(train)
    return count_steps(phase, max(1, batches // phase.accumulate))
