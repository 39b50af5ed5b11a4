"""Text classification: one of several classes for a text or for a pair of texts.

    J = 1/n Σ −log p(label | example)  + lm_weight · −1/T Σ_t log p(x_{t+1} | x_≤t)
    J = Σ w_label · −log p(label | example) / Σ w_label                                   with class weights

The second term of the first line is the auxiliary language-model loss of Radford et al. (2018, section 3.2), for
networks that read left to right.

`Classification` is also the base class of the other tasks that predict one label for an example: regression, multiple
choice, several tasks at once, labels written as text, and labels chosen by a prompted language model. A recipe of kind
"classification" serves them too: the data decide (text_data.py).

    nextword.load("runs/reviews").predict(["A fine film."])[0].label
    AveragedClassifier([load("runs/forward"), load("runs/backward")]).predict(["A fine film."])
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.batching.examples import Bucketed, Examples, FramedExamples
from nextword.batching.settings import require_number
from nextword.core.errors import InvalidSetting, Unsupported, invalid, unknown
from nextword.core.protocols import Autoregressive, Infilling
from nextword.core.types import IGNORE, Batch, Loss, Prediction, State, require_list, texts_of
from nextword.data.tables import Columns, Rows
from nextword.metrics.classification import METRICS, REGRESSION_METRICS
from nextword.models.base import Network
from nextword.models.framing import next_token_targets
from nextword.run_folder import RunFolder
from nextword.tasks import error_analysis, task_class
from nextword.tasks.attribution import Explanation, attribute_tokens, sum_by_word
from nextword.tasks.base import (
    Count,
    Dataset,
    DataT,
    EmbeddingPredictor,
    ExamplesT,
    HeadTaskConfig,
    PredictorT,
    Setup,
    Task,
    TaskObjective,
    Wording,
    is_number,
    splits_beyond_dev,
)
from nextword.tasks.datasets.base import table_header
from nextword.tasks.datasets.catalog import find_benchmark
from nextword.tasks.encoding import encode_texts, require_encoder, text_positions, truncated_sizes
from nextword.tasks.heads import (
    AUTO,
    CLASSIFIERS,
    POOLINGS,
    ModelWithHead,
    TextHead,
    tokens_before_window,
)
from nextword.tasks.text_data import TextDataset, read_text_data
from nextword.tokenizers.base import Tokenizer
from nextword.training.device import to_device

FILLED = 128  # tokens: rows are filled up to a multiple of this, if few distinct shapes are wanted
ROWS = 64  # texts at once, if they are read chunk by chunk
SLOW = 0.1  # fraction of tokens before the BPTT window that deserves a note
SHOWN = 8  # class weights in a note
UNSEEN = "_unseen"  # a split without the examples that are also in train or dev
Example = str | tuple[str, str] | Sequence[str]


# ------------------------------------------------------------------------------------------------ objective


class LabelObjective(TaskObjective[Any]):
    """Cross-entropy of classes, or squared error of numbers; and perhaps a language-model loss."""

    recordable = True  # the shape of a batch says how many predictions it has

    def __init__(self, batches: Mapping[str, Any], lm_weight: float = 0.0, mixing_power: float = 1.0) -> None:
        """`lm_weight`: weight of the LM loss. `mixing_power`: several tasks are drawn ∝ size^mixing_power."""
        super().__init__(batches)
        require_number("objective.lm_weight", lm_weight, 0)
        require_number("objective.mixing_power", mixing_power, 0, 1)
        self.lm_weight, self.mixing_power = float(lm_weight), float(mixing_power)

    def limit_shapes(self) -> None:
        self.layout = replace(self.layout, pad_multiple=min(FILLED, self.layout.length))

    def check(self, network: ModelWithHead) -> None:
        """Raise an error if the language-model loss does not suit this network."""
        if not self.lm_weight:
            return
        encoder = network.base
        reads_left_to_right = isinstance(encoder, Autoregressive) and not isinstance(encoder, Infilling)
        if not reads_left_to_right or encoder.has_two_directions:
            raise Unsupported(
                f"objective.lm_weight = {self.lm_weight:g} needs a network that reads left to right, and "
                f"{type(encoder).__name__} is bidirectional. Leave it out: --set 'phase.*.objective.lm_weight=0'."
            )
        if network.is_stateful:
            problem = "does not work with [task] chunk, which reads texts piece by piece. Leave one of them out."
            raise invalid("objective.lm_weight", self.lm_weight, problem)

    def tokens_per_prediction(self, network: ModelWithHead, text: Examples) -> float:
        return math.inf if np.issubdtype(text.labels.dtype, np.floating) else 1.0  # squared errors have no bound

    def loss(self, network: ModelWithHead, batch: Batch, state: State) -> Loss:
        terms: dict[str, Tensor] = {}
        language: Tensor | None = None
        if self.lm_weight and network.training:
            layers = network.encoder.hidden(batch.inputs, None)[0]
            outputs = network.score_layer(layers[network.layer_index], batch)
            language = self._language_loss(network, layers[-1], batch)
        else:
            outputs = network(batch)
        count = len(batch.targets)
        if batch.targets.is_floating_point():
            nats = F.mse_loss(outputs.squeeze(-1), batch.targets, reduction="sum")
        else:
            nats = F.cross_entropy(outputs, batch.targets, reduction="sum")
        weights = network.weights
        value = nats / count if weights is None else F.cross_entropy(outputs, batch.targets, weights)
        if language is not None:
            terms = {"task": value.detach(), "language": language.detach()}
            value = value + self.lm_weight * language
        return Loss(value, nats.detach(), count, None, terms, outputs.detach())

    def _language_loss(self, network: ModelWithHead, h: Tensor, batch: Batch) -> Tensor:
        """Nats per token of the texts themselves."""
        targets = next_token_targets(batch.inputs, network.vocabulary.size)
        total: Tensor = network.encoder.readout.total(h.flatten(0, 1), targets.flatten())
        return total / (targets != IGNORE).sum().clamp(min=1)

    def metrics(self, text: Examples, outputs: Tensor) -> dict[str, float]:
        gold = (text.labels if text.gold is None else text.gold)[self.layout.validation_order(text)]
        return score_outputs(text.metrics, gold, outputs.float().cpu().numpy())


def score_outputs(names: Sequence[str], gold: np.ndarray, outputs: np.ndarray) -> dict[str, float]:
    """Metrics by name, of logits (n, classes) or numbers (n, 1)."""
    classes, numbers = outputs.argmax(-1), outputs[:, 0]
    return {name: METRICS[name](gold, numbers if name in REGRESSION_METRICS else classes) for name in names}


# ------------------------------------------------------------------------------------------------ settings


@dataclass(frozen=True)
class TextHeadConfig(HeadTaskConfig):
    """Settings of a head that reads a whole text: heads.py."""

    frame: str = ""  # how examples are framed: models/framing.py; "": as the data are
    pooling: str = AUTO  # the vector of a text: auto (as the network's paper), last, mean, max, concat
    classifier: str = "linear"  # or mlp, or biattentive
    hidden_sizes: Sequence[int] = (50,)  # mlp: sizes between its linear layers
    dropouts: Sequence[float] = ()  # mlp: before each linear layer; (): `dropout`
    width: int = 300  # biattentive: hidden size in each direction
    reduction: int = 4  # biattentive: of its first maxout layer
    chunk: int = 0  # tokens read at once by stateful networks; 0: all
    bptt_window: int = 0  # tokens at the end of a text that the head reads and the gradient reaches; 0: all

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_choice("pooling", (AUTO, *POOLINGS))
        self.require_choice("classifier", CLASSIFIERS)
        for name in ("width", "reduction"):
            self.require_count(name, 1, "an integer of at least 1")
        for name in ("chunk", "bptt_window"):
            self.require_count(name, 0, "a number of tokens, or 0 for all")
        fits = not self.bptt_window or self.bptt_window >= self.chunk > 0
        self.require("bptt_window", fits, f"at least chunk = {self.chunk}, which must be set too, as chunk = 70")
        sizes = all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in self.hidden_sizes)
        self.require("hidden_sizes", sizes, "sizes between linear layers, as [50]")
        fractions = all(is_number(p) and 0 <= p < 1 for p in self.dropouts)
        layers = len(self.hidden_sizes) + 1
        self.require(
            "dropouts", fractions and len(self.dropouts) in (0, layers), f"a fraction for each of {layers} layers"
        )


BALANCED = "balanced"
ClassWeights = str | Sequence[float] | Mapping[str, float]


@dataclass(frozen=True)
class ClassificationConfig(TextHeadConfig):
    class_weights: ClassWeights = ""  # in the loss: "balanced", {class: weight}, or a list in the order of the classes


def resolve_class_weights(weights: ClassWeights, data: TextDataset) -> tuple[float, ...]:
    """One weight per class, in the order of the classes; (): all count alike.

    "balanced" is n / (classes · n_class), as in scikit-learn. In a table, classes that are not named have weight 1.
    """
    labels = data.labels
    if isinstance(weights, (str, list, tuple, Mapping)) and not weights:
        return ()
    if weights == BALANCED:
        train = data.splits["train"].labels or []
        counts = Counter(train)
        return tuple(len(train) / (len(labels) * counts[label]) for label in labels)
    if isinstance(weights, Mapping):
        for name in weights:
            if name not in labels:
                raise unknown("class", name, labels, where="[task] class_weights")
        weights = [weights.get(label, 1.0) for label in labels]

    def error(expected: str) -> InvalidSetting:
        return invalid("task.class_weights", weights, f"must be {expected}.")

    if not isinstance(weights, (list, tuple)):
        raise error(f"'{BALANCED}', a table as {{{labels[0]} = 2.0}}, or a list")
    if len(weights) != len(labels):
        raise error(f"a weight for each of the {len(labels)} classes: {', '.join(labels[:8])}")
    if not all(is_number(weight) and math.isfinite(weight) and weight > 0 for weight in weights):
        raise error("numbers above 0")
    return tuple(float(weight) for weight in weights)


def note_class_weights(weights: Sequence[float], labels: Sequence[str]) -> list[str]:
    if not weights:
        return []
    named = [f"{label} {weight:.3g}" for label, weight in zip(labels, weights, strict=True)][:SHOWN]
    more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
    return [f"class weights in the loss: {', '.join(named)}{more}"]


# ------------------------------------------------------------------------------------------------ task


class TextTask(Task[DataT, ExamplesT, PredictorT]):
    """A task that reads a text, or two, and predicts a label: the base of all tasks but tagging and answering."""

    config: Any  # a TextHeadConfig, or a WrittenLabelsConfig: it has a `frame`
    objective = LabelObjective

    # -------------------------------------------------------------------------------------------- labels

    @property
    def is_numeric(self) -> bool:
        """Whether a number is predicted, not a class."""
        return False

    @property
    def is_pair(self) -> bool:
        """Whether an example has two texts."""
        return bool(self.config.frame != "classify")

    @property
    def outputs(self) -> int:
        """Numbers per example that the head computes."""
        return len(self.config.labels)

    def encode_labels(self, labels: Sequence[str]) -> np.ndarray:
        """Labels as the head learns them: the index of the class."""
        index = {label: i for i, label in enumerate(self.config.labels)}
        return np.array([index[label] for label in labels], np.int64)

    def decode(self, outputs: np.ndarray) -> np.ndarray:
        """Logits (n, classes) as probabilities."""
        odds = np.exp(outputs - outputs.max(-1, keepdims=True))
        probabilities: np.ndarray = odds / odds.sum(-1, keepdims=True)
        return probabilities

    def predictions(self, outputs: np.ndarray) -> list[Prediction]:
        """Logits (n, classes) as labels with probabilities; (n, 1) as numbers."""
        decoded = self.decode(outputs)
        if self.is_numeric:
            return [Prediction(f"{value:.4g}", {}, value) for value in decoded[:, 0].tolist()]
        labels = self.config.labels
        return [Prediction(labels[int(np.argmax(p))], dict(zip(labels, p, strict=True))) for p in decoded.tolist()]

    # -------------------------------------------------------------------------------------------- data

    @classmethod
    def recognizes(cls, source: str) -> bool:
        if find_benchmark(source) is not None and not Path(source).exists():
            return True
        return len({name.lower() for name in table_header(source)}) > 1

    def read(self, source: str, columns: Columns = Columns(), kind: str = "") -> Dataset:
        if kind and not issubclass(task_class(kind), TextTask):
            recipe = task_class(kind).example_recipe
            raise invalid("kind", kind, f"needs another recipe, as {recipe}. Leave --kind out.")
        return read_text_data(source, columns, kind)

    def kind_for(self, data: Dataset) -> str:
        return data.kind

    def settings_from(self, data: Any, run: RunFolder | None) -> dict[str, Any]:
        return {"frame": self.config.frame or data.frame}

    # -------------------------------------------------------------------------------------------- examples

    def notes(self) -> list[str]:
        """What to know about the settings before training."""
        return []

    def encode(self, data: DataT, setup: Setup) -> dict[str, ExamplesT]:
        require_encoder(setup.network)
        setup.notes += self.notes()
        return self.encode_splits(data, setup)

    def encode_splits(self, data: Dataset, setup: Setup, prefix: str = "") -> dict[str, Any]:
        network, length = setup.network, int(setup.recipe.phases[0].batches.get("length", Bucketed.length))
        limit = min(filter(None, (length, network.max_positions)), default=0)
        encoded: dict[str, Any] = {}
        for split, rows in data.splits.items():
            if rows.labels is None:
                continue
            setup.progress(f"reading {prefix}{split}", 0, None)
            examples, cut = self.encode_rows(rows, network, setup.tokenizer, length)
            encoded[split] = replace(examples, metrics=tuple(self.config.metrics))
            if cut:
                setup.notes.append(f"{prefix}{cut:,} of {len(rows):,} examples of {split} are cut to {limit} tokens")
            if split == "train" and network.is_stateful:
                setup.notes += [f"{prefix}{note}" for note in self.long_text_notes(examples)]
        return encoded

    def encode_rows(self, rows: Rows, network: Network, tokenizer: Tokenizer, length: int) -> tuple[Examples, int]:
        """Examples of labeled rows, and how many were cut."""
        labels = self.encode_labels(rows.labels or ())
        pieces = self.config.chunk > 0
        return encode_texts(network, tokenizer, self.config.frame, rows.texts, rows.seconds, labels, length, pieces)

    def long_text_notes(self, examples: Examples) -> list[str]:
        """A note, if much of the texts lies before the BPTT window: it is read in every epoch, without learning."""
        chunk, window = self.config.chunk, self.config.bptt_window
        sizes = np.diff(examples.starts)
        if not chunk or not window or not sizes.sum():
            return []
        before = int(tokens_before_window(sizes.tolist(), chunk, window).sum())
        if before < SLOW * sizes.sum():
            return []
        longer = int((sizes.reshape(-1, examples.each).max(1) > window).sum())
        return [
            f"{longer:,} of {len(examples):,} training examples are longer than {window:,} tokens, the longest has "
            f"{sizes.max():,}: gradients reach the last {window:,} (task.bptt_window), but the {before:,} tokens "
            f"before them are read in every epoch too. To read only beginnings: --set 'phase.*.batches.length={window}'"
        ]

    def check_training(self, train: Any, available: int) -> None:
        labels = self.config.labels
        if labels and len(set(train.labels.tolist())) < 2:
            raise InvalidSetting(
                f"--train-fraction {self.config.train_fraction:g} draws {len(train)} of {available} examples, and all "
                f"of them are {labels[int(train.labels[0])]!r}. Draw more, or use another --seed.",
                key="task.train_fraction",
                value=self.config.train_fraction,
            )

    # -------------------------------------------------------------------------------------------- use and results

    def open(self, run: RunFolder, device: torch.device, precision: str = "fp32") -> Any:
        model, tokenizer = self.load_run(run, device, precision)
        length = int(run.recipe.phases[-1].batches.get("length", Bucketed.length))
        return self.predictor(model, tokenizer, length, run.name)

    def predictor(self, model: Any, tokenizer: Tokenizer, length: int, name: str) -> Classifier:
        return Classifier(model, tokenizer, self, length, name)

    def evaluate(
        self, predictor: Any, data: Any, examples: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        results: dict[str, Any] = {"examples": {}}
        arrays: dict[str, np.ndarray] = {}
        for split in splits_beyond_dev(examples):
            outputs = predictor.logits_of(examples[split])
            arrays[split] = self.decode(outputs).astype(np.float32)
            results |= self.score_split(data, split, outputs)
            if f"{split}{UNSEEN}" in results:
                results["examples"][f"{split}{UNSEEN}"] = len(data.unseen_rows(split))
        return results, arrays

    def predict_split(
        self, predictor: Any, data: Any, part: str, split: str, examples: Mapping[str, Any]
    ) -> np.ndarray | None:
        return self.best_predictions(predictor.logits_of(examples[split]))

    def best_predictions(self, outputs: np.ndarray) -> np.ndarray:
        """(n,) indices of classes or candidates, or numbers."""
        decoded = self.decode(outputs)
        best: np.ndarray = decoded[:, 0] if self.is_numeric else decoded.argmax(1)
        return best

    def score_split(self, data: TextDataset, split: str, outputs: np.ndarray) -> dict[str, dict[str, float]]:
        """Metrics of a split; and without the examples that are also in train or dev, if there are such."""
        rows, names = data.splits[split], self.config.metrics
        gold = self.encode_labels(rows.labels or ())
        results = {split: score_outputs(names, gold, outputs)}
        unseen = data.unseen_rows(split) if split != "dev" else []
        if 0 < len(unseen) < len(rows):
            results[f"{split}{UNSEEN}"] = score_outputs(names, gold[unseen], outputs[unseen])
        return results

    def analyze_errors(self, predictor: Any, data: Any, examples: Any) -> dict[str, Any]:
        errors = self.analyze_rows(data.splits["dev"], predictor.logits_of(examples))
        error_analysis.attribute_words(predictor, errors)
        return errors

    def analyze_rows(self, rows: Rows, outputs: np.ndarray) -> dict[str, Any]:
        """Error analysis of the outputs for labeled rows."""
        decoded = self.decode(outputs)
        if self.is_numeric:
            return error_analysis.analyze_numbers(np.array(rows.labels, np.float64), decoded[:, 0], rows)
        gold = self.encode_labels(rows.labels or [])
        return error_analysis.analyze_classes(self.config.labels, gold, decoded, rows)

    # -------------------------------------------------------------------------------------------- in words

    def wording(self) -> Wording:
        labels = self.config.labels
        predicted = "a number" if self.is_numeric else f"one of {len(labels)} classes"
        given = "two texts" if self.is_pair else "a text"
        return Wording(
            summary=f"{predicted} for {given}",
            input=given,
            output="a number" if self.is_numeric else ", ".join(labels),
            arguments='[("one text", "another")]' if self.is_pair else '["some text"]',
        )


class Classification(TextTask[TextDataset, Examples, "Classifier"]):
    """One of several classes for a text, or for a pair of texts."""

    Config = ClassificationConfig
    config: ClassificationConfig

    def settings_from(self, data: TextDataset, run: RunFolder | None) -> dict[str, Any]:
        weights = resolve_class_weights(self.config.class_weights, data)
        return super().settings_from(data, run) | {"class_weights": weights}

    @property
    def class_weights(self) -> tuple[float, ...]:
        """Those of a run, in the order of the classes; before `resolve` there are none."""
        weights = self.config.class_weights
        return () if isinstance(weights, (str, Mapping)) else tuple(weights)

    def notes(self) -> list[str]:
        return note_class_weights(self.class_weights, self.config.labels)

    def head(self, network: Network) -> ModelWithHead:
        return TextHead(network, self.config, self.outputs, self.class_weights)


# ------------------------------------------------------------------------------------------------ predictor


class Classifier(EmbeddingPredictor):
    """`predict` labels of texts or pairs of texts."""

    can_average = True

    @property
    def is_pair(self) -> bool:
        return bool(self.task.is_pair)

    def predict(
        self, examples: Sequence[Example], progress: Count | None = None, notes: list[str] | None = None
    ) -> list[Prediction]:
        """A label for each example with the probability of every label; for regression, the number.

        Adds to `notes` what to know about how the examples were read.
        """
        texts, seconds = self.columns(examples)
        predictions: list[Prediction] = self.task.predictions(self.logits(texts, seconds, progress, notes))
        return predictions

    def columns(self, examples: Sequence[Example]) -> tuple[list[str], list[str] | None]:
        """One list of texts, or two."""
        rows = [texts_of(example) for example in require_list(examples)]
        for i, row in enumerate(rows):
            if len(row) != 1 + self.is_pair or not all(isinstance(text, str) for text in row):
                expected = "(text, text)" if self.is_pair else "a string"
                raise InvalidSetting(
                    f"Example {i + 1} is {str(row)[:80]}. {self.name or 'This run'} expects {expected}.",
                    key="examples",
                    value=row,
                )
        return [row[0] for row in rows], [row[1] for row in rows] if self.is_pair else None

    def logits(
        self,
        texts: Sequence[str],
        seconds: Sequence[str] | None = None,
        progress: Count | None = None,
        notes: list[str] | None = None,
    ) -> np.ndarray:
        """(n, outputs) of the head. Texts of similar length are read together."""
        examples, cut = self.encode(texts, seconds)
        self.note_truncation(cut, len(texts), notes)
        return self.logits_of(examples, progress)

    def encode(self, texts: Sequence[str], seconds: Sequence[str] | None) -> tuple[Examples, int]:
        """Examples without labels, and how many were cut."""
        frame, pieces = self.task.config.frame, self.model.is_stateful
        return encode_texts(self.network, self.tokenizer, frame, texts, seconds, None, self.length, pieces)

    def note_truncation(self, cut: int, number: int, notes: list[str] | None) -> None:
        if cut and notes is not None:
            notes.append(f"{cut:,} of {number:,} examples are cut to {self.length:,} tokens")

    def logits_of(self, examples: FramedExamples, progress: Count | None = None) -> np.ndarray:
        """(n, outputs) of encoded examples."""
        logits: np.ndarray = self.once(examples, lambda: self._logits_of(examples, progress))
        return logits

    @torch.no_grad()
    def _logits_of(self, examples: FramedExamples, progress: Count | None) -> np.ndarray:
        rows: dict[int, np.ndarray] = {}
        layout = next(iter(self.task.objective.layouts.values()))()
        for chosen, batch in self.batches(layout, examples, ROWS if self.model.is_stateful else 0, progress):
            rows |= dict(zip(chosen.tolist(), self.model(batch).double().cpu().numpy(), strict=True))
        return np.stack([rows[i] for i in range(len(examples))]) if rows else np.zeros((0, self.task.outputs))

    # -------------------------------------------------------------------------------------------- attribution

    def explain(self, examples: Sequence[Example], labels: Sequence[str] | None = None) -> list[Explanation]:
        """How much each word contributes to the predicted label, or to these labels: integrated gradients, summed over
        the tokens of a word (attribution.py)."""
        texts, seconds = self.columns(examples)
        if labels is None:
            labels = [prediction.label for prediction in self.predict(examples)]
        columns = [texts] if seconds is None else [texts, seconds]
        return [self.explain_one(row, label) for row, label in zip(zip(*columns, strict=True), labels, strict=True)]

    @property
    def unit_scale(self) -> tuple[float, float]:
        """Scale and offset that turn an output into the units of the labels."""
        return (self.task.config.std, self.task.config.mean) if self.task.is_numeric else (1.0, 0.0)

    def explain_one(self, texts: tuple[str, ...], label: str) -> Explanation:
        frame, (scale, offset) = self.task.config.frame, self.unit_scale
        output = 0 if self.task.is_numeric else list(self.task.config.labels).index(label)
        columns = [texts[0]], list(texts[1:]) or None
        example, _ = encode_texts(self.network, self.tokenizer, frame, *columns, length=self.length)
        encodings = self.tokenizer.encode_batch(list(texts))
        sizes = truncated_sizes(self.network, frame, tuple(map(len, encodings)), self.length)
        frames = [  # of each frame: the positions of the tokens of each text, among those of all frames
            [start + positions for positions in by_text]
            for start, by_text in zip(example.starts.tolist(), text_positions(self.network, frame, sizes), strict=False)
        ]
        is_text = np.zeros(len(example.ids), bool)
        for positions in chain(*frames):
            is_text[positions] = True
        attribution = attribute_tokens(self.model, example, is_text, output, partial(to_device, device=self.device))
        words = tuple(text.split() for text in texts)
        weights = []
        for i, (encoding, size) in enumerate(zip(encodings, sizes, strict=True)):
            parts = (scale * attribution.tokens[by_text[i]] for by_text in frames if len(by_text[i]))
            weights.append(sum_by_word(sum(parts, np.zeros(size)), encoding.words, len(words[i])))
        score, baseline = (scale * value + offset for value in (attribution.score, attribution.baseline))
        return Explanation(label, words, tuple(weights), score, baseline, scale * attribution.gap)


class TextPredictor(Protocol):
    """What predicts labels of texts: a classifier, the average of several, or a prompted language model."""

    name: str
    network: Any
    tokenizer: Tokenizer
    parameters: int
    can_average: bool
    task: Any  # a TextTask

    @property
    def is_pair(self) -> bool: ...
    def predict(
        self, examples: Sequence[Any], progress: Count | None = None, notes: list[str] | None = None
    ) -> list[Prediction]: ...


class AveragedClassifier:
    """Several runs of one task: the mean of their probabilities, or of their numbers (Howard & Ruder 2018, 3.3)."""

    can = frozenset({"predict"})
    can_average = True

    def __init__(self, models: Sequence[TextPredictor]) -> None:
        self.models = tuple(models)
        if not self.models:
            raise InvalidSetting("There is no run to predict with.", key="models", value=())
        first, *others = self.models
        for model in self.models:
            if not model.can_average:
                name = model.name or "A run"
                raise Unsupported(f"{name} does not classify texts, so it cannot be averaged with others.")
        self.task, self.is_pair, self.tokenizer, self.network = (
            first.task,
            first.is_pair,
            first.tokenizer,
            first.network,
        )
        self.name = " + ".join(model.name for model in self.models)
        self.parameters = sum(model.parameters for model in self.models)
        for other in others:
            a, b = first.task, other.task
            same = (a.is_numeric, a.is_pair) == (b.is_numeric, b.is_pair)
            if not same or set(a.config.labels) != set(b.config.labels):
                ours, theirs = a.wording(), b.wording()
                other_labels = f"{other.name or 'another'} {theirs.output} for {theirs.input}"
                raise InvalidSetting(
                    f"Averaged runs need the same task and labels. {first.name or 'One run'} predicts {ours.output} "
                    f"for {ours.input}, {other_labels}.",
                    key="with",
                    value=other.name,
                )

    def predict(
        self, examples: Sequence[Example], progress: Count | None = None, notes: list[str] | None = None
    ) -> list[Prediction]:
        examples = require_list(examples)
        total, share = len(examples) * len(self.models), 1 / len(self.models)
        predictions: list[list[Prediction]] = []
        for i, model in enumerate(self.models):
            before = i * len(examples)
            count = None if progress is None else lambda done, _, before=before: progress(before + done, total)
            predictions.append(model.predict(examples, count, None if i else notes))
        averages = []
        for group in zip(*predictions, strict=True):
            if self.task.is_numeric:
                value = share * sum(p.value or 0.0 for p in group)
                averages.append(Prediction(f"{value:.4g}", {}, value))
            else:
                odds = {label: share * sum(p.probabilities[label] for p in group) for label in self.task.config.labels}
                averages.append(Prediction(max(odds, key=lambda label: odds[label]), odds))
        return averages
