"""Several tasks at once on labeled texts ("SST-2 + RTE + STS-B"): one network, and a head for each task.

    texts ──network.encode──▶ h ─┬─ head of task 0 ──▶ (n, outputs₀)
                                 └─ head of task 1 ──▶ (n, outputs₁)          `batch.task_index` says which

A batch is of one task, drawn ∝ size^mixing_power (mixtures.py). Everything that the network has of its own, its pooler
too, is shared. The mean of the tasks' main metrics decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import UnknownName
from nextword.core.types import Batch, Loss, Prediction, State
from nextword.data.tables import Columns
from nextword.metrics.classification import combine_tasks
from nextword.models.base import Network
from nextword.run_folder import RunFolder
from nextword.tasks import task_class
from nextword.tasks.base import Count, Dataset, Setup, Wording, from_data
from nextword.tasks.classification import Classifier, Example, LabelObjective, TextHeadConfig, TextTask
from nextword.tasks.encoding import require_encoder
from nextword.tasks.heads import ModelWithHead, TextHead
from nextword.tasks.mixtures import MixedExamples, join_tasks, mixed_batches, mixed_validation_batches
from nextword.tasks.prediction_files import FilePredictions, PredictionRequest, predict_texts
from nextword.tasks.text_data import MixedTextDataset, read_text_data
from nextword.tokenizers.base import Tokenizer

# ------------------------------------------------------------------------------------------------ heads and loss


class MultitaskHead(ModelWithHead):
    def __init__(self, network: Network, config: MultitaskConfig, tasks: Collection[TextTask[Any, Any, Any]]) -> None:
        super().__init__(network, config.features, config.frozen)
        # A plain list, because every head holds the network: only what belongs to a head alone is registered
        self.heads = [TextHead(network, task.config, task.outputs) for task in tasks]
        self.out = nn.ModuleList(head.out for head in self.heads)
        self.dense = nn.ModuleList(head.dense for head in self.heads if head.dense is not None)
        self.max_outputs = max(task.outputs for task in tasks)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for head in self.heads:
            head.train(mode)
        return self

    def forward(self, batch: Batch) -> Tensor:
        outputs: Tensor = self.heads[batch.task_index](batch)
        return outputs

    def score_layer(self, h: Tensor, batch: Batch) -> Tensor:
        return self.heads[batch.task_index].score_layer(h, batch)


class MultitaskObjective(LabelObjective):
    def batches_per_epoch(self, text: MixedExamples) -> int:
        return sum(map(self.layout.batches_per_epoch, text.parts))

    def batches(self, text: MixedExamples, seed: int, step: int) -> Iterator[Batch]:
        return mixed_batches(self.layout, text, seed, step, self.mixing_power)

    def validation_batches(self, text: MixedExamples) -> Iterator[Batch]:
        return mixed_validation_batches(self.layout, text.parts)

    def tokens_per_prediction(self, network: Any, text: MixedExamples) -> float:  # type: ignore[override]
        return max(super(MultitaskObjective, self).tokens_per_prediction(network, part) for part in text.parts)

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        loss = super().loss(network, batch, state)
        if (
            not network.training and loss.outputs is not None
        ):  # equally many columns, so that all tasks fit in one table
            missing = network.max_outputs - loss.outputs.shape[1]
            loss = replace(loss, outputs=F.pad(loss.outputs, (0, missing), value=-torch.inf))  # never the maximum
        return loss

    def metrics(self, text: MixedExamples, outputs: Tensor) -> dict[str, float]:  # type: ignore[override]
        parts = outputs.split([len(part) for part in text.parts])
        scores = [
            super(MultitaskObjective, self).metrics(part, own) for part, own in zip(text.parts, parts, strict=True)
        ]
        return combine_tasks(text.names, scores)


# ------------------------------------------------------------------------------------------------ task


@dataclass(frozen=True)
class MultitaskConfig(TextHeadConfig):
    tasks: Sequence[Mapping[str, Any]] = from_data((), "--data 'A + B'")  # name and own settings of each


class Multitask(TextTask[MixedTextDataset, MixedExamples, "MultitaskPredictor"]):
    Config = MultitaskConfig
    config: MultitaskConfig
    objective = MultitaskObjective

    @property
    def each(self) -> dict[str, TextTask[Any, Any, Any]]:
        """Name → the task by itself."""
        tasks: dict[str, Any] = {}
        for table in self.config.tasks:
            cls = task_class(table["kind"])
            known = {f.name for f in fields(cls.Config)}
            shared = {f.name: getattr(self.config, f.name) for f in fields(self.config) if f.name in known}
            own = {key: value for key, value in table.items() if key != "name"}
            tasks[table["name"]] = cls(cls.Config(**(shared | own)))
        return tasks

    def read(self, source: str, columns: Columns = Columns(), kind: str = "") -> Dataset:
        return read_text_data(source, columns, kind)

    def settings_from(self, data: Any, run: RunFolder | None) -> dict[str, Any]:
        return {"tasks": data.tasks}

    def head(self, network: Network) -> ModelWithHead:
        return MultitaskHead(network, self.config, self.each.values())

    def encode(self, data: MixedTextDataset, setup: Setup) -> dict[str, MixedExamples]:
        require_encoder(setup.network)
        encoded = [
            task.encode_splits(part, setup, f"{part.name}: ")
            for part, task in zip(data.sets, self.each.values(), strict=True)
        ]
        joined = join_tasks(data.names, encoded)
        return {split: examples for split, examples in joined.items() if split in ("train", "dev")}

    def sample(self, examples: Any, fraction: float, seed: int) -> Any:
        return examples if fraction == 1 else examples.sample(fraction, seed)

    def predictor(self, model: Any, tokenizer: Tokenizer, length: int, name: str) -> Classifier:
        return MultitaskPredictor(model, tokenizer, self, length, name)

    def predict_file(self, predictor: Any, request: PredictionRequest) -> FilePredictions:
        return predict_texts(predictor.of(request.task), replace(request, task=""))

    def evaluate(
        self, predictor: Any, data: Any, examples: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """All metrics of each task on all its labeled splits but train, under "tasks"."""
        results: dict[str, Any] = {}
        for part in data.sets:
            classifier = predictor.of(part.name)
            results[part.name] = {}
            for split, rows in part.splits.items():
                if split != "train" and rows.labels is not None:
                    outputs = classifier.logits(rows.texts, rows.seconds)
                    results[part.name] |= classifier.task.score_split(part, split, outputs)
        return {"tasks": results}, {}

    def predict_split(
        self, predictor: Any, data: Any, part: str, split: str, examples: Mapping[str, Any]
    ) -> np.ndarray | None:
        own = examples[split].parts[examples[split].names.index(part)]
        return self.each[part].best_predictions(predictor.of(part).logits_of(own))

    def analyze_errors(self, predictor: Any, data: Any, examples: Any) -> dict[str, Any]:
        analyses = []
        for part, own in zip(data.sets, examples.parts, strict=True):
            classifier = predictor.of(part.name)
            analysis = classifier.task.analyze_errors(classifier, part, own)
            analyses.append({"task": part.name, "kind": part.kind, **analysis})
        return {"tasks": analyses}

    def wording(self) -> Wording:
        tasks, name = {name: task.wording() for name, task in self.each.items()}, self.config.tasks[0]["name"]
        return Wording(
            summary=f"labels of {len(tasks)} tasks for texts",
            input="texts",
            output="; ".join(f"{name}: {task.output}" for name, task in tasks.items()),
            arguments=f'{tasks[name].arguments}, task="{name}"',
            command=f"my.csv --out labeled.csv --task {name}",
        )


class MultitaskPredictor(Classifier):
    """A run of several tasks: `of` gives a classifier for one of them. They share the network."""

    can_average = False
    model: MultitaskHead

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.task.each)

    def of(self, name: str) -> Classifier:
        """The classifier of one task; for a file, its name without the folder is enough."""
        plain = {key: Path(key).name.lower() for key in self.names}
        matches = [key for key in self.names if name in (key, plain[key]) or name.lower() == plain[key].split(".")[0]]
        matches = [name] if name in matches else matches
        if len(matches) != 1:
            raise UnknownName(
                f"{self.name or 'This run'} has no single task {name!r}. Expected --task with one of "
                f"{', '.join(self.names)}.",
                name=name,
                known=self.names,
            )
        head = self.model.heads[self.names.index(matches[0])]
        return Classifier(head, self.tokenizer, self.task.each[matches[0]], self.length, self.name)

    def predict(
        self,
        examples: Sequence[Example],
        progress: Count | None = None,
        notes: list[str] | None = None,
        task: str = "",
    ) -> list[Prediction]:
        return self.of(task).predict(examples, progress, notes)
