"""The task contract: one class per task, with its data, encoding, head, loss, decoding, metrics and error analysis.

    recipe [task] ──parse──▶ Task ──read──▶ Dataset ──resolve──▶ Task of the run ──encode──▶ examples ──▶ training
    run folder ──open──▶ Predictor ──predict──▶ predictions ──evaluate, analyze_errors──▶ results.json, report.html

`nextword.tasks.TASKS` maps the `kind` in a recipe's [task] table to a class. Nothing else knows a task by its name: a
new task is one file with a `Task`, and one line in that table. What a task must define is abstract here; everything
else has a default that suits a network with a trained head.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import torch

from nextword.batching.examples import Bucketed
from nextword.core.errors import DataError, InvalidSetting, UnknownName, Unsupported, did_you_mean
from nextword.core.types import Batch, Vocabulary
from nextword.data.tables import Columns, Rows, choose_held_out
from nextword.models import model_class
from nextword.models.base import Network
from nextword.objectives.base import Objective, build_layout
from nextword.recipe import Recipe
from nextword.run_folder import RunFolder
from nextword.tasks import task_class
from nextword.tasks.encoding import require_trainable
from nextword.tasks.heads import ModelWithHead, tensors_of_last_layers
from nextword.tokenizers import vocabulary
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.loading import load_tokenizer
from nextword.training.device import quantize
from nextword.training.train import build_network

if TYPE_CHECKING:
    from nextword.tasks.plan import Plan
    from nextword.tasks.prediction_files import FilePredictions, PredictionRequest

Progress = Callable[[str, float, float | None], None]  # what is being done, how much is done, of how much
Count = Callable[[int, int], None]  # how many examples are done, of how many

DEV_IS_TRAINED_ON = "dev is part of the training data, so its scores mean little; the weights of the last step are kept"


# ------------------------------------------------------------------------------------------------ objective

BatchedT = TypeVar("BatchedT")  # the examples that an objective makes batches of


class TaskObjective(Objective[BatchedT]):
    """The objective of a task: a layout makes the batches, and metrics decide which weights are best."""

    is_likelihood = False  # of labels, not of text
    has_metrics = True
    layouts: ClassVar[Mapping[str, type[Bucketed]]] = {"examples": Bucketed}  # kind → class; the first is the default

    def __init__(self, batches: Mapping[str, Any]) -> None:
        self.layout = build_layout(batches, self.layouts, "task")

    @property
    def length(self) -> int:
        return self.layout.length

    def batches_per_epoch(self, text: BatchedT) -> int:
        return self.layout.batches_per_epoch(text)

    def batches(self, text: BatchedT, seed: int, step: int) -> Iterator[Batch]:
        return self.layout.batches(text, seed, step)

    def validation_batches(self, text: BatchedT) -> Iterator[Batch]:
        return self.layout.validation_batches(text)


# ------------------------------------------------------------------------------------------------ settings


def from_data(default: Any, option: str = "") -> Any:
    """A field of a Config that the data or the command decide. A recipe must not set it; the run's recipe has it.

    `option` is the command-line option that sets it, if there is one.
    """
    metadata = {"option": option}
    if isinstance(default, (dict, list)):
        return field(default_factory=lambda: type(default)(), metadata=metadata)
    return field(default=default, metadata=metadata)


def default_of(setting: Field[Any]) -> Any:
    return setting.default if setting.default_factory is MISSING else setting.default_factory()


@dataclass(frozen=True)
class TaskConfig:
    """The [task] table: what every task has. A task adds its own settings in a subclass."""

    kind: str = ""  # a name in nextword.tasks.TASKS
    train_fraction: float = (
        1.0  # of the training examples, drawn by the seed; a smaller fraction is part of a larger one
    )
    merge_dev_into_train: bool = False  # train on dev too and keep the last weights, once everything is chosen
    metrics: Sequence[str] = ()  # the first decides which weights are best; (): those of the data
    overrides: Mapping[str, Sequence[str]] = field(default_factory=dict)  # data set → what to --set for it
    labels: Sequence[str] = from_data(())
    text: str = from_data("", "--text")
    second: str = from_data("", "--text-pair")
    label: str = from_data("", "--label")
    source: str = from_data("", "--from")  # the run that was fine-tuned
    scratch: bool = from_data(False, "--scratch")  # its network, without its weights

    def __post_init__(self) -> None:
        fraction = self.train_fraction
        self.require(
            "train_fraction",
            is_number(fraction) and 0 < fraction <= 1,
            "a fraction above 0, at most 1 (--train-fraction)",
        )
        self.require_bool("merge_dev_into_train")
        self.require("metrics", isinstance(self.metrics, (list, tuple)), "a list, as ['macro_f1']")
        lists = isinstance(self.overrides, Mapping) and all(
            isinstance(changes, (list, tuple)) and all(isinstance(text, str) for text in changes)
            for changes in self.overrides.values()
        )
        self.require("overrides", lists, "a list for each data set, as RTE = ['phase.0.epochs=10']")

    def require(self, name: str, valid: bool, expected: str) -> None:
        """Raise InvalidSetting unless the value of this key is valid."""
        if not valid:
            value = getattr(self, name)
            raise InvalidSetting(f"[task] {name} = {value!r}. Expected {expected}.", key=f"task.{name}", value=value)

    def require_bool(self, *names: str) -> None:
        for name in names:
            self.require(name, isinstance(getattr(self, name), bool), "true or false")

    def require_count(self, name: str, least: int, what: str) -> None:
        value = getattr(self, name)
        self.require(name, isinstance(value, int) and not isinstance(value, bool) and value >= least, what)

    def require_choice(self, name: str, choices: Sequence[str]) -> None:
        self.require(name, getattr(self, name) in choices, " or ".join(choices))

    def as_table(self) -> dict[str, Any]:
        """As the run's recipe.toml has it."""
        values = {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items()}
        del values["overrides"]  # those of this data set are applied already
        return values

    @property
    def columns(self) -> Columns:
        return Columns(self.text, self.second, self.label)


@dataclass(frozen=True)
class HeadTaskConfig(TaskConfig):
    """Settings of a task that trains a head over a network."""

    dropout: float = 0.1  # before the head
    features: str = ""  # the layer that the head reads, by name or number; "": the last
    frozen: bool = False  # train the head alone
    reinit_layers: int = 0  # reinitialize so many of the last layers, and the pooler

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("dropout", is_number(self.dropout) and 0 <= self.dropout < 1, "a fraction from 0 to below 1")
        self.require_bool("frozen")
        self.require_count("reinit_layers", 0, "a number of layers, as 2")


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# ------------------------------------------------------------------------------------------------ data


class Dataset(ABC):
    """Labeled data, ready for training: splits, labels, and notes on what to know about it."""

    name: str
    kind: str  # the task that learns it: a name in TASKS
    splits: Mapping[str, Any]  # train, dev, and perhaps others
    columns: Columns
    notes: tuple[str, ...]
    labels: tuple[str, ...]  # classes or tags; (): there are none
    metrics: tuple[str, ...]  # to report; the first decides

    @property
    def possible_metrics(self) -> Sequence[str]:
        """Metrics that [task] metrics may name."""
        return self.metrics

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of train and dev."""

    @property
    def balance(self) -> dict[str, float]:
        """Class → its fraction of the training examples; {}: there are no classes."""
        return {}

    def balance_of_fraction(self, fraction: float, seed: int) -> dict[str, float]:
        """The balance of the training examples that `train_fraction` and the seed draw."""
        if fraction == 1:
            return self.balance
        train = self.trainable
        drawn = train.take(draw_fraction(len(train), fraction, seed).tolist())
        return replace(self, splits={**self.splits, "train": drawn}).balance  # type: ignore[type-var]

    def balances(self, fraction: float, seed: int) -> dict[str, dict[str, float]]:
        """The same by the name of each task; "" if there is only one."""
        return {"": self.balance_of_fraction(fraction, seed)}

    @property
    def trainable(self) -> Any:
        """The training examples that something can be learned from."""
        return self.splits["train"]

    @abstractmethod
    def training_texts(self) -> list[str]:
        """All texts of the training split, to count words that a vocabulary lacks."""

    def merge_dev_into_train(self) -> Self:
        """The same data with the dev examples added to the training examples."""
        raise Unsupported(
            f"{self.name}: dev cannot be merged into the training data of {self.kind}. Leave --merge-dev out."
        )


def draw_fraction(size: int, fraction: float, seed: int) -> np.ndarray:
    """Draw a fraction of `size` examples, in their order; with one seed, a smaller fraction is part of a larger one."""
    return np.sort(np.random.default_rng([seed, size]).permutation(size)[: count_fraction(size, fraction)])


class Split(Protocol):
    """The examples of one split."""

    def __len__(self) -> int: ...
    def take(self, indices: Sequence[int], /) -> Self: ...


SplitT = TypeVar("SplitT", bound=Split)


def hold_out_dev(
    splits: Mapping[str, SplitT], keys: Sequence[str], name: str, unit: str
) -> tuple[dict[str, SplitT], list[str]]:
    """Split a tenth of train off as dev if there is no dev. Training examples with equal keys stay together.

    `name` is the data, and `unit` what the examples are, for the error and for the note that is returned.
    """
    if "dev" in splits:
        return dict(splits), []
    train, chosen = splits["train"], choose_held_out(Rows(list(keys)), by_class=False)
    if not chosen:
        raise DataError(
            f"{name} has {len(train)} {unit}, too few to hold some out. Give more, or a folder with a train and a dev "
            "file.",
            path=name,
        )
    rest = sorted(set(range(len(train))) - set(chosen))
    note = f"no dev split: {len(chosen):,} of {len(train):,} {unit} are held out, the same ones each time"
    return {**splits, "train": train.take(rest), "dev": train.take(chosen)}, [note]


def count_fraction(size: int, fraction: float) -> int:
    """How many examples a fraction is: at least one."""
    return max(1, round(fraction * size))


@dataclass
class EncodedData:
    """The data of a task as a network reads it."""

    examples: dict[str, Any]  # split that has labels → its examples
    notes: list[str]
    network: Any  # the untrained network that framed them, or that of the language model
    lm: Any = None  # the language model that is prompted, if nothing is trained


# ------------------------------------------------------------------------------------------------ the task


class Task(ABC):
    """One task. An instance has the settings of a recipe, or, after `resolve`, those of a run."""

    Config: ClassVar[type[TaskConfig]] = TaskConfig
    objective: ClassVar[type[Objective[Any]]]  # a phase's objective = { kind = "<the task's name>" } names it
    trains: ClassVar[bool] = True  # False: a language model is prompted, and nothing is trained
    reads_tables: ClassVar[bool] = True  # from columns that --text and --label may name

    # For messages, the report and the card
    data_kind: ClassVar[str] = "labeled texts"  # "bert/tag learns tags of words, but x.csv has labeled texts"
    example_recipe: ClassVar[str] = "bert/finetune"
    loss_unit: ClassVar[str] = "nats per example"
    example_files: ClassVar[str] = "my.csv --out labeled.csv"  # of `nextword predict RUN …`

    def __init__(self, config: Any) -> None:
        self.config = config

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.config})"

    @classmethod
    def parse(cls, table: Mapping[str, Any], where: str) -> Self:
        """Read a [task] table. `where` names the recipe or run in errors."""
        known = [f.name for f in fields(cls.Config)]
        for key in table:
            if key not in known:
                kind = table.get("kind", "")
                raise UnknownName(
                    f"{where}: [task] of kind {kind!r} has no key {key!r}.{did_you_mean(key, known)} "
                    f"Expected {', '.join(known)}.",
                    name=key,
                    known=known,
                )
        try:
            return cls(cls.Config(**table))
        except InvalidSetting as error:
            raise InvalidSetting(f"{where}: {error}", key=error.key, value=error.value) from None

    # -------------------------------------------------------------------------------------------- data

    @classmethod
    def recognizes(cls, source: str) -> bool:
        """Whether a name or a file clearly holds data of this task, for advice when another task fails to read it."""
        return False

    @abstractmethod
    def read(self, source: str, columns: Columns = Columns(), kind: str = "") -> Dataset:
        """Read a benchmark by its name, a file, or a folder. `kind` is --kind; an error if it names another task."""

    def reopen(self, source: str) -> Dataset:
        """Read the data of a run again, to resume it: with the columns that were used."""
        return self.read(source, self.config.columns)

    def check_recipe(self, recipe: Recipe) -> None:  # noqa: B027
        """Raise an error if the phases of the recipe do not suit the task."""

    def kind_for(self, data: Dataset) -> str:
        """The kind of a run on this data: some recipes serve several tasks."""
        return self.config.kind

    def resolve(self, data: Dataset, run: RunFolder | None, scratch: bool) -> Task:
        """Return the task of the run to be: this one, with what the data and the command decide."""
        kind = self.kind_for(data)
        target = task_class(kind)
        known = {f.name for f in fields(target.Config)}
        values: dict[str, Any] = {}
        for setting in fields(self.config):
            value = getattr(self.config, setting.name)
            if setting.name in known:
                values[setting.name] = value
            elif value != default_of(setting):
                raise InvalidSetting(
                    f"[task] {setting.name} = {value!r} is not for {kind}, the task of {data.name}. Leave it out.",
                    key=f"task.{setting.name}",
                    value=value,
                )
        values |= {
            "kind": kind,
            "metrics": tuple(self.config.metrics) or data.metrics,
            "overrides": {},
            "labels": data.labels,
            **vars(data.columns),
            "source": str(run.path) if run else "",
            "scratch": scratch or run is None,
        }
        task = target(target.Config(**values))
        return target(replace(task.config, **task.settings_from(data, run)))

    def settings_from(self, data: Dataset, run: RunFolder | None) -> dict[str, Any]:
        """More settings that follow from the data, or an error if the task cannot learn it."""
        return {}

    # -------------------------------------------------------------------------------------------- network

    @abstractmethod
    def head(self, network: Network) -> ModelWithHead:
        """The network with this task's head, untrained."""

    def build(self, plan: Plan, recipe: Recipe, train: Any) -> Any:
        """The model that a run trains on these examples."""
        return self.build_model(recipe, plan.tokenizer)

    def build_model(self, recipe: Recipe, tokenizer: Tokenizer) -> ModelWithHead:
        """The recipe's network with its head, untrained. The head's weights are drawn after the network's."""
        network = build_network(recipe, tokenizer)
        if self.config.scratch:
            network.load_pretrained_embeddings()
        model = self.head(network)
        model.reinitialized = tensors_of_last_layers(network, self.config.reinit_layers)
        return model

    def load_model(
        self, folder: Path, network: type[Network], settings: Mapping[str, Any], words: Vocabulary
    ) -> ModelWithHead:
        """The trained network with its head from a run's folder."""
        model = self.head(network.load(folder, network.Config(**settings), words))
        model.load_head(folder)
        return model.eval()

    def load_run(self, run: RunFolder, device: torch.device, precision: str) -> tuple[ModelWithHead, Tokenizer]:
        """The trained network with its head, and the tokenizer, of a run whose files have been checked."""
        recipe = run.recipe
        tokenizer = load_tokenizer(run.path / "tokenizer.json")
        words = vocabulary(tokenizer, spellings=True)
        model = self.load_model(run.path, model_class(recipe.slug), recipe.model, words)
        network: Any = model
        return quantize(network, precision).to(device), tokenizer

    # -------------------------------------------------------------------------------------------- examples

    def prepare(
        self, recipe: Recipe, tokenizer: Tokenizer, data: Any, device: torch.device, progress: Progress
    ) -> EncodedData:
        """Everything that is read before training. Each text is tokenized once, however many seeds follow."""
        network = build_network(recipe, tokenizer)
        require_trainable(network)
        tensors_of_last_layers(network, self.config.reinit_layers)  # or an error
        notes = list(data.notes)
        examples = self.encode(data, network, tokenizer, recipe, device, progress, notes)
        return EncodedData(examples, notes, network)

    @abstractmethod
    def encode(
        self,
        data: Any,
        network: Any,
        tokenizer: Tokenizer,
        recipe: Recipe,
        device: torch.device,
        progress: Progress,
        notes: list[str],
    ) -> dict[str, Any]:
        """Split that has labels → its examples, framed for the network. Adds to the notes, as how many were cut."""

    def count(self, examples: Any) -> int:
        """How many labeled examples there are."""
        return len(examples)

    def sample(self, examples: Any, fraction: float, seed: int) -> Any:
        """A fraction of the training examples, drawn by the seed."""
        if fraction == 1:
            return examples
        return examples.take(draw_fraction(self.count(examples), fraction, seed))

    def check_training(self, train: Any, available: int) -> None:  # noqa: B027
        """Raise an error if nothing can be learned from the examples that were drawn from those available."""

    def validation(self, examples: Mapping[str, Any]) -> Any:
        """What is scored during training."""
        return examples["dev"]

    def fingerprint(self, data: Dataset, examples: Mapping[str, Any]) -> str:
        """A hash of all that training reads."""
        return data.fingerprint

    # -------------------------------------------------------------------------------------------- use

    @abstractmethod
    def open(self, run: RunFolder, device: torch.device, precision: str = "fp32") -> Any:
        """Open a finished run of this task as a predictor. Its files have been checked."""

    def notes_on(self, model: Any) -> list[str]:
        """Notes that depend on the seed, as which examples are in a prompt."""
        return []

    def finish(self, model: Any, run: RunFolder, device: torch.device) -> Any:
        """The predictor of a run that has just been trained."""
        return self.open(run, device)

    def predict_file(self, predictor: Any, request: PredictionRequest) -> FilePredictions:
        """Predict the examples of a file, in the formats of this task. Default: a table of texts."""
        from nextword.tasks.prediction_files import predict_texts

        return predict_texts(predictor, request)

    # -------------------------------------------------------------------------------------------- results

    @abstractmethod
    def evaluate(
        self, predictor: Any, data: Any, examples: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Results beyond dev, as {split: {metric: value}}; and, for `predictions.npz`, arrays by split."""

    @abstractmethod
    def analyze_errors(self, predictor: Any, data: Any, examples: Any) -> dict[str, Any]:
        """What goes wrong on dev, framed as `examples`: a table of error_analysis.py, with its `layout`."""

    def prompt_of(self, predictor: Any) -> tuple[str, str, Sequence[str]] | None:
        """Examples, question and possible answers of a prompt, for the report; None: nothing is prompted."""
        return None

    # -------------------------------------------------------------------------------------------- in words

    @abstractmethod
    def describe(self) -> str:
        """What is predicted for what, as "one of 3 classes for a text"."""

    @property
    def input_name(self) -> str:
        """What is predicted about, for the model card."""
        return "a text"

    @property
    def output_name(self) -> str:
        """What is predicted, for the model card."""
        return ", ".join(self.config.labels)

    @property
    def example_input(self) -> str:
        """Python code of one example for `predict`, for the model card."""
        return '"some text"'

    @property
    def example_options(self) -> str:
        """Options that `nextword predict` needs, for the model card and the report."""
        return ""

    @property
    def example_arguments(self) -> str:
        """More arguments that `predict` needs, as Python code, for the model card."""
        return ""


def splits_beyond_dev(examples: Mapping[str, Any]) -> list[str]:
    return [split for split in examples if split not in ("train", "dev")]
