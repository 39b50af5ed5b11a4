"""The task contract: one class per task, with its data, encoding, head, loss, decoding, metrics and error analysis.

    recipe [task] ──parse──▶ Task ──read──▶ Dataset ──resolve──▶ Task of the run ──encode──▶ examples ──▶ training
    run folder ──open──▶ Predictor ──predict──▶ predictions ──evaluate, analyze_errors──▶ results.json, report.html

`nextword.tasks.TASKS` maps the `kind` in a recipe's [task] table to a class. Nothing else knows a task by its name: a
new task is one file with a `Task`, and one line in that table. What a task must define is abstract here; everything
else has a default that suits a network with a trained head.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch

from nextword.batching.examples import Bucketed, FramedExamples
from nextword.core.errors import InvalidSetting, Unsupported, unknown
from nextword.core.protocols import Infilling
from nextword.core.slices import end_slice, slice_tokens
from nextword.core.types import Batch, Vocabulary
from nextword.data.tables import Columns
from nextword.lm.base import TextModel
from nextword.lm.embedding import BATCH_TOKENS, EmbeddingMixin, frame_ids
from nextword.models import model_class
from nextword.models.base import Network
from nextword.models.storage import check_weights
from nextword.objectives.base import Objective, build_layout
from nextword.recipe import Recipe, network_config
from nextword.run_folder import RunFolder
from nextword.tasks import task_class
from nextword.tasks.heads import HEAD_FILE, ModelWithHead, tensors_of_last_layers
from nextword.tokenizers import vocabulary
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.loading import load_tokenizer
from nextword.training.device import quantize, to_device
from nextword.training.train import build_network

if TYPE_CHECKING:
    from nextword.tasks.baselines import Method, Scored
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
    layouts: ClassVar[Mapping[str, type[Bucketed[Any]]]] = {
        "examples": Bucketed
    }  # kind → class; the first is the default

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
    return field(default=default, metadata={"option": option})


def default_of(setting: Field[Any]) -> Any:
    return setting.default if setting.default_factory is MISSING else setting.default_factory()


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# Type of a field of a Config, without its parameters → check of a value, and what to expect
TYPE_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "int": (lambda value: isinstance(value, int) and not isinstance(value, bool), "an integer"),
    "float": (is_number, "a number"),
    "str": (lambda value: isinstance(value, str), "a text"),
    "Sequence": (lambda value: isinstance(value, (list, tuple)), "a list"),
    "Mapping": (lambda value: isinstance(value, Mapping), "a table"),
}


@dataclass(frozen=True)
class TaskConfig:
    """The [task] table: what every task has. A task adds its own settings in a subclass.

    Values are checked against the types of the fields; `__post_init__` of a subclass checks the rest.
    """

    kind: str = ""  # a name in nextword.tasks.TASKS
    train_fraction: float = 1.0  # of the training examples; with one seed, a smaller one is part of a larger one
    merge_dev_into_train: bool = False  # train on dev too and keep the last weights, once everything is chosen
    metrics: Sequence[str] = ()  # the first decides which weights are best; (): those of the data
    overrides: Mapping[str, Sequence[str]] = field(default_factory=dict)  # data set → what to --set for it
    labels: Sequence[str] = from_data(())
    text: str = from_data("", "--text")
    second: str = from_data("", "--text-pair")
    label: str = from_data("", "--label")
    header: str = from_data("", "--header")  # whether the table has one: "yes" or "no"; "": it is no table
    source: str = from_data("", "--from")  # the run that was fine-tuned
    scratch: bool = from_data(False, "--scratch")  # its network, without its weights

    def __post_init__(self) -> None:
        for setting in fields(self):
            check = TYPE_CHECKS.get(str(setting.type).partition("[")[0])
            if check is not None:
                is_valid, expected = check
                self.require(setting.name, is_valid(getattr(self, setting.name)), expected)
        self.require("train_fraction", 0 < self.train_fraction <= 1, "a fraction above 0, at most 1 (--train-fraction)")
        is_text_list = all(
            isinstance(changes, (list, tuple)) and all(isinstance(change, str) for change in changes)
            for changes in self.overrides.values()
        )
        self.require("overrides", is_text_list, "a list for each data set, as RTE = ['phase.0.epochs=10']")

    def require(self, name: str, valid: bool, expected: str) -> None:
        """Raise InvalidSetting unless the value of this key is valid."""
        if not valid:
            value = getattr(self, name)
            raise InvalidSetting(f"[task] {name} = {value!r}. Expected {expected}.", key=f"task.{name}", value=value)

    def require_count(self, name: str, least: int, what: str) -> None:
        self.require(name, getattr(self, name) >= least, what)

    def require_choice(self, name: str, choices: Sequence[str]) -> None:
        self.require(name, getattr(self, name) in choices, " or ".join(choices))

    def as_table(self) -> dict[str, Any]:
        """As the run's recipe.toml has it."""
        values = {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items()}
        del values["overrides"]  # those of this data set are applied already
        return values

    @property
    def columns(self) -> Columns:
        return Columns(self.text, self.second, self.label, self.header)


@dataclass(frozen=True)
class HeadTaskConfig(TaskConfig):
    """Settings of a task that trains a head over a network."""

    dropout: float = 0.1  # before the head
    features: str | int = ""  # the layer that the head reads, by name or number; "": the last
    frozen: bool = False  # train the head alone
    reinit_layers: int = 0  # reinitialize so many of the last layers, and the pooler

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("dropout", 0 <= self.dropout < 1, "a fraction from 0 to below 1")
        self.require_count("reinit_layers", 0, "a number of layers, as 2")


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

    # -------------------------------------------------------------------------------------------- baselines

    @property
    def parts(self) -> Mapping[str, Dataset]:
        """The data sets of several tasks by name; by "" if there is only one."""
        return {"": self}

    def is_labeled(self, split: str) -> bool:
        """Whether predictions for a split can be scored."""
        return split in self.splits

    def baselines(self, train: Any, splits: Sequence[str]) -> Iterator[Method]:
        """Predictions of cheap methods (baselines.py) for labeled splits, from some of the training examples."""
        yield from ()

    def score(self, split: str, predictions: Any, metrics: Sequence[str]) -> Scored:
        """Score predictions for the examples of a labeled split."""
        raise Unsupported(f"{self.name}: predictions of {self.kind} are not scored.")

    def only_prediction(self, predictions: Any) -> str:
        """What is predicted, if that is the same for all examples; else ""."""
        return ""

    def merge_dev_into_train(self) -> Self:
        """The same data with the dev examples added to the training examples."""
        raise Unsupported(
            f"{self.name}: dev cannot be merged into the training data of {self.kind}. Leave --merge-dev out."
        )


def draw_fraction(size: int, fraction: float, seed: int) -> np.ndarray:
    """Draw a fraction of `size` examples, in their order; with one seed, a smaller fraction is part of a larger one."""
    return np.sort(np.random.default_rng([seed, size]).permutation(size)[: count_fraction(size, fraction)])


def count_fraction(size: int, fraction: float) -> int:
    """How many examples a fraction is: at least one."""
    return max(1, round(fraction * size))


def splits_beyond_dev(examples: Mapping[str, object]) -> list[str]:
    return [split for split in examples if split not in ("train", "dev")]


@dataclass
class Setup:
    """What encoding needs besides the data. Each text is encoded once, however many seeds follow."""

    recipe: Recipe
    network: Network  # untrained; or that of the language model that is prompted
    tokenizer: Tokenizer
    device: torch.device
    progress: Progress
    notes: list[str] = field(default_factory=list)  # `Task.encode` adds to them, as how many texts were truncated
    other_text: str = ""  # a hash of text that `Task.encode` read and that is not part of the data


# ------------------------------------------------------------------------------------------------ the task


@dataclass(frozen=True)
class Wording:
    """What the report and the model card say about a task."""

    summary: str  # what is predicted for what: "one of 3 classes for a text"
    input: str = "a text"  # what is predicted about
    output: str = ""  # what is predicted
    arguments: str = '["some text"]'  # of `predict`, as Python code
    command: str = "my.csv --out labeled.csv"  # arguments of `nextword predict RUN`
    loss_unit: str = "nats per example"


DataT = TypeVar("DataT", bound=Dataset)
ExamplesT = TypeVar("ExamplesT", bound=Sized)  # the framed examples of one split
PredictorT = TypeVar("PredictorT")


class Task(ABC, Generic[DataT, ExamplesT, PredictorT]):
    """One task. An instance has the settings of a recipe, or, after `resolve`, those of a run."""

    Config: ClassVar[type[TaskConfig]] = TaskConfig
    objective: ClassVar[type[Objective[Any]]]  # a phase's objective = { kind = "<the task's name>" } names it
    trains: ClassVar[bool] = True  # False: a language model is prompted, and nothing is trained
    data_kind: ClassVar[str] = "labeled texts"  # "bert/tag needs tagged words, and x.csv has labeled texts"
    example_recipe: ClassVar[str] = "bert/finetune"

    def __init__(self, config: Any) -> None:
        self.config = config

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.config})"

    @classmethod
    def parse(cls, table: Mapping[str, Any], where: str) -> Self:
        """Read a [task] table. `where` names the recipe or run in errors."""
        known = [setting.name for setting in fields(cls.Config)]
        for key in table:
            if key not in known:
                raise unknown(f"key of [task] kind = {table.get('kind', '')!r}", key, known, where=where)
        try:
            return cls(cls.Config(**table))
        except InvalidSetting as error:
            raise InvalidSetting(f"{where}: {error}", key=error.key, value=error.value) from None

    @abstractmethod
    def wording(self) -> Wording:
        """What the report and the model card say about the task."""

    # -------------------------------------------------------------------------------------------- data

    @classmethod
    def recognizes(cls, source: str) -> bool:
        """Whether a name or a file clearly holds data of this task, for advice when another task fails to read it."""
        return False

    @abstractmethod
    def read(self, source: str, columns: Columns = Columns(), kind: str = "") -> Dataset:
        """Read a benchmark by its name, a file, or a folder. `kind` is --kind; an error if it names another task."""

    def reopen(self, source: str) -> Dataset:
        """Read the data of a run again, to resume it: with the columns and the kind that were used."""
        return self.read(source, self.config.columns, self.config.kind if self.config.text else "")

    def kind_for(self, data: Dataset) -> str:
        """The kind of a run on this data: some recipes serve several tasks."""
        return str(self.config.kind)

    def resolve(self, data: Dataset, run: RunFolder | None, scratch: bool) -> AnyTask:
        """Return the task of the run to be: this one, with what the data and the command decide."""
        kind = self.kind_for(data)
        target = task_class(kind)
        known = {setting.name for setting in fields(target.Config)}
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
            "source": run.name if run else "",
            "scratch": scratch or run is None,
        }
        task = target(target.Config(**values))
        return target(replace(task.config, **task.settings_from(data, run)))

    def settings_from(self, data: DataT, run: RunFolder | None) -> dict[str, Any]:
        """More settings that follow from the data, or an error if the task cannot learn it."""
        return {}

    # -------------------------------------------------------------------------------------------- network

    @abstractmethod
    def head(self, network: Network) -> ModelWithHead:
        """The network with an untrained head."""

    def build(self, plan: Plan, recipe: Recipe, train: ExamplesT) -> Any:
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

    def load_model(self, folder: Path, cls: type[Network], config: Any, words: Vocabulary) -> ModelWithHead:
        """The trained network with its head from a run's folder."""
        network = cls.load(folder, config, words)
        check_weights(folder / HEAD_FILE, lambda: self.head(network).head_tensors())
        model = self.head(network)
        model.load_head(folder)
        return model.eval()

    def load_run(self, run: RunFolder, device: torch.device, precision: str) -> tuple[ModelWithHead, Tokenizer]:
        """The trained network with its head, and the tokenizer, of a run whose files have been checked."""
        tokenizer = load_tokenizer(run.path / "tokenizer.json")
        words = vocabulary(tokenizer, spellings=True)
        model = self.load_model(run.path, model_class(run.recipe.slug), network_config(run.recipe), words)
        return quantize(model, precision).to(device), tokenizer

    # -------------------------------------------------------------------------------------------- examples

    @abstractmethod
    def encode(self, data: DataT, setup: Setup) -> dict[str, ExamplesT]:
        """Split that has labels → its examples, framed for the network."""

    def count(self, examples: ExamplesT) -> int:
        """How many labeled examples there are."""
        return len(examples)

    def sample(self, examples: Any, fraction: float, seed: int) -> Any:
        """A fraction of the training examples, drawn by the seed."""
        return examples if fraction == 1 else examples.take(draw_fraction(len(examples), fraction, seed))

    def check_training(self, train: ExamplesT, available: int) -> None:
        """Raise an error if nothing can be learned from the examples that were drawn from those available."""

    # -------------------------------------------------------------------------------------------- use and results

    @abstractmethod
    def open(self, run: RunFolder, device: torch.device, precision: str = "fp32") -> PredictorT:
        """Open a finished run of this task as a predictor. Its files have been checked."""

    def finish(self, model: Any, run: RunFolder, device: torch.device) -> tuple[PredictorT, list[str]]:
        """The predictor of a run that has just been trained, and notes that depend on the seed."""
        return self.open(run, device), []

    def predict_file(self, predictor: Any, request: PredictionRequest) -> FilePredictions:
        """Predict the examples of a file, in the formats of this task. Default: a table of texts."""
        from nextword.tasks.prediction_files import predict_texts

        return predict_texts(predictor, request)

    def records(self, predictor: Any, predictions: Sequence[Any]) -> list[dict[str, Any]]:
        """Predictions as JSON values, as `nextword predict --json` shows them. Default: labels or numbers."""
        from nextword.tasks.prediction_files import text_record

        return [text_record(prediction) for prediction in predictions]

    @abstractmethod
    def evaluate(
        self, predictor: PredictorT, data: DataT, examples: Mapping[str, ExamplesT]
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Results beyond dev, as {split: {metric: value}}; and, for `predictions.npz`, arrays by split.

        "examples" in the results has the number of examples of further splits.
        """

    def predict_split(
        self, predictor: PredictorT, data: DataT, part: str, split: str, examples: Mapping[str, ExamplesT]
    ) -> Any:
        """Predictions for the examples of a split, as `Dataset.score` of that part of the data takes them.

        None: the task does not compare with baselines.
        """
        return None

    @abstractmethod
    def analyze_errors(self, predictor: PredictorT, data: DataT, examples: ExamplesT) -> dict[str, Any]:
        """What goes wrong on dev, framed as `examples`: a table of error_analysis.py, with its `layout`."""


AnyTask = Task[Any, Any, Any]


# ------------------------------------------------------------------------------------------------ predictors


class Predictor(TextModel):
    """A network with a task's head. Examples have at most `length` tokens (0: the network's window)."""

    model: ModelWithHead
    task: Any  # the Task of the run
    _latest: tuple[FramedExamples, Any] | None = None

    def __init__(self, model: ModelWithHead, tokenizer: Tokenizer, task: Any, length: int = 0, name: str = "") -> None:
        super().__init__(model.encoder, tokenizer, name)
        self.model, self.task, self.length = model.eval(), task, length
        self.parameters = model.num_parameters()

    @property
    def device(self) -> torch.device:
        return self.model.device

    def batches(
        self, layout: Bucketed[Any], examples: FramedExamples, rows: int = 0, progress: Count | None = None
    ) -> Iterator[tuple[np.ndarray, Batch]]:
        """Yield all examples in batches, the longest first, and the index of each example of a batch.

        `rows`: examples of a batch; 0: as many as BATCH_TOKENS hold.
        """
        order, lengths, done = layout.validation_order(examples), examples.lengths, 0
        while done < len(order):
            size = rows or max(1, slice_tokens(BATCH_TOKENS) // int(lengths[order[done]]))
            chosen = order[done : done + size]
            yield chosen, to_device(layout.batch(examples, chosen, 0), self.device)
            done += len(chosen)
            if progress:
                progress(done, len(order))
            end_slice()

    def once(self, examples: FramedExamples, compute: Callable[[], Any]) -> Any:
        """The outputs for these examples, which results, comparison and error analysis of a run ask for in turn."""
        if self._latest is None or self._latest[0] is not examples:
            self._latest = examples, compute()
        return self._latest[1]

    def why_not(self, ability: str) -> str:
        source = self.task.config.source
        other = f", or the language model it was made from: {source}" if source else ""
        return (
            f"{self.name or 'This run'} has a task head: it predicts {self.task.wording().summary}, and does not model "
            f"text. Use `nextword predict`{other}."
        )


class EmbeddingPredictor(Predictor, EmbeddingMixin):
    """A predictor that also embeds texts: `embed` gives vectors of the fine-tuned network."""

    def __init__(self, model: ModelWithHead, tokenizer: Tokenizer, task: Any, length: int = 0, name: str = "") -> None:
        super().__init__(model, tokenizer, task, length, name)
        self.is_bidirectional = isinstance(self.network, Infilling) or self.network.is_bidirectional
        limit = min(filter(None, (length, self.network.max_positions)), default=BATCH_TOKENS)
        self.room = max(1, limit - len(frame_ids(self.network, ()).ids))
