"""Multiple choice: which of several candidates fits a context (SWAG, RACE, Story Cloze).

    frames of an example ──network.encode──▶ one vector per frame ──linear──▶ scores (B, K) ──softmax──▶ probabilities

Each candidate is framed with its context. How follows the papers, and depends on what a network can do:

    bidirectional              context │ question candidate        BERT, RoBERTa on SWAG and RACE
    reads left to right        context question │ candidate        GPT: Radford et al. 2018, section 3.3

What does not fit is cut: the context at its end while it is the longer side, then the question, the candidate last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from nextword.batching.examples import Bucketed, Examples, gather_ranges
from nextword.core.errors import InvalidSetting, invalid
from nextword.core.protocols import Infilling
from nextword.core.types import Batch, FramedText, Prediction, require_list, texts_of
from nextword.data.tables import Columns, Rows
from nextword.models.base import Network
from nextword.models.framing import truncate_pair
from nextword.tasks import error_analysis
from nextword.tasks.base import Count, Dataset, Wording
from nextword.tasks.classification import Classifier, LabelObjective, TextHeadConfig, TextTask
from nextword.tasks.data_checks import count_empty_texts
from nextword.tasks.datasets.base import table_header
from nextword.tasks.datasets.catalog import find_benchmark
from nextword.tasks.datasets.multiple_choice import has_candidates, read_multiple_choice
from nextword.tasks.encoding import Framer
from nextword.tasks.heads import AUTO, ModelWithHead, TextHead, pool
from nextword.tasks.prediction_files import (
    TABLES,
    FilePredictions,
    PredictionRequest,
    Record,
    require_unique_columns,
    write_table,
)
from nextword.tasks.text_data import CHOICE, TextDataset, read_one
from nextword.tokenizers.base import Tokenizer

# ------------------------------------------------------------------------------------------------ examples and batches


@dataclass(frozen=True, kw_only=True)
class ChoiceExamples(Examples):
    """A frame per candidate; examples may have different numbers of candidates."""

    counts: np.ndarray  # (examples,) candidates
    most: int  # candidates of any example, also of those that were left out: the width of the scores

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def lengths(self) -> np.ndarray:
        """(examples,) tokens of all candidates."""
        ends = np.cumsum(self.counts)
        return np.asarray(self.starts[ends] - self.starts[ends - self.counts])

    def frame_indices(self, chosen: np.ndarray) -> np.ndarray:
        return gather_ranges(np.concatenate(([0], np.cumsum(self.counts))), chosen)[0]

    def take(self, chosen: np.ndarray) -> Self:
        return replace(super().take(chosen), counts=self.counts[chosen])


@dataclass(frozen=True)
class ChoiceBatches(Bucketed[ChoiceExamples]):
    """`rows` examples per batch, with all their candidates."""

    def batch(self, text: ChoiceExamples, chosen: np.ndarray, epoch: int) -> Batch:
        """`target_positions` is (B, K), −1 where an example has fewer than K candidates."""
        batch = super().batch(text, chosen, epoch)
        assert batch.target_positions is not None
        mask = torch.arange(text.most) < torch.from_numpy(text.counts[chosen]).unsqueeze(1)  # (B, K)
        positions = torch.full(mask.shape, -1, dtype=torch.long).masked_scatter(mask, batch.target_positions)
        return replace(batch, target_positions=positions)


def encode_choices(
    network: Network,
    tokenizer: Tokenizer,
    contexts: Sequence[str],
    questions: Sequence[str] | None,
    candidates: Sequence[Sequence[str]],
    labels: np.ndarray | None = None,
    length: int = 0,
) -> tuple[ChoiceExamples, int]:
    """Return the framed examples, and how many of them were cut to `length` tokens (0: to the network's window)."""
    framer = Framer(network, tokenizer, 2, length)
    distinct = list(dict.fromkeys(contexts))
    context_ids = dict(zip(distinct, framer.encode(distinct), strict=True))
    question_ids = [np.zeros(0, np.int64)] * len(contexts) if questions is None else framer.encode(questions)
    candidate_ids = iter(framer.encode([text for choices in candidates for text in choices]))
    frames: list[FramedText] = []
    num_cut = 0
    for context, question, choices in zip(contexts, question_ids, candidates, strict=True):
        is_cut = False
        for _ in choices:
            parts = context_ids[context], question, next(candidate_ids)
            sizes = _fit(len(parts[0]), len(parts[1]), len(parts[2]), framer.room)
            is_cut |= sum(sizes) < sum(map(len, parts))
            a, b, c = (part[:size] for part, size in zip(parts, sizes, strict=True))
            before, after = (a, np.append(b, c)) if isinstance(network, Infilling) else (np.append(a, b), c)
            if network.is_backward:
                before, after = before[::-1], after[::-1]
            frames += framer.frame(before, after)
        num_cut += is_cut
    counts = np.fromiter(map(len, candidates), np.int64, len(candidates))
    examples = ChoiceExamples.from_frames(
        frames,
        labels=np.zeros(len(candidates), np.int64) if labels is None else labels,
        packs=framer.packs,
        unseen=framer.unseen,
        counts=counts,
        most=int(counts.max(initial=0)),
    )
    return examples, num_cut


def _fit(context: int, question: int, candidate: int, room: int | None) -> tuple[int, int, int]:
    """Tokens that are kept of each."""
    if room is None or context + question + candidate <= room:
        return context, question, candidate
    context, rest = truncate_pair(context, question + candidate, room)
    candidate = min(candidate, rest)
    return context, rest - candidate, candidate


# ------------------------------------------------------------------------------------------------ head and loss


class ChoiceHead(TextHead):
    """A score for each candidate, from the vector of its frame."""

    def __init__(self, network: Network, config: TextHeadConfig) -> None:
        if config.classifier != "linear":
            problem = "is not for candidates, which a linear layer scores. Leave it out."
            raise invalid("task.classifier", config.classifier, problem)
        super().__init__(network, config, outputs=1)

    def score_layer(self, h: Tensor, batch: Batch) -> Tensor:
        """(B, K) in 32 bits; −∞ where there is no candidate."""
        positions = batch.target_positions
        assert positions is not None
        h = h[..., : self.encoder.widths[self.layer_index]]
        mask = positions >= 0
        if self.config.pooling != AUTO:
            x = pool(self.config.pooling, h, batch.inputs)  # one row per frame, in their order
        else:
            x = h.reshape(-1, h.shape[-1]).index_select(0, positions[mask])  # (frames, D)
        scores = self.score_vectors(x).squeeze(-1)
        return torch.full(mask.shape, -torch.inf, device=h.device, dtype=scores.dtype).masked_scatter(mask, scores)


class ChoiceObjective(LabelObjective):
    layouts: ClassVar[Mapping[str, type[Bucketed[Any]]]] = {"examples": ChoiceBatches}


# ------------------------------------------------------------------------------------------------ task


class MultipleChoice(TextTask[TextDataset, ChoiceExamples, "ChoicePredictor"]):
    """The index of the right candidate."""

    Config = TextHeadConfig
    objective = ChoiceObjective
    data_kind = "several candidates in each row"
    example_recipe = "bert/choice"

    @property
    def outputs(self) -> int:
        return 1

    @classmethod
    def recognizes(cls, source: str) -> bool:
        benchmark = find_benchmark(source)
        if benchmark is not None and not Path(source).exists():
            return benchmark.kind == CHOICE
        return has_candidates(table_header(source))

    def read(self, source: str, columns: Columns = Columns(), kind: str = "") -> Dataset:
        return read_one(source, columns, kind or CHOICE)

    def encode_labels(self, labels: Sequence[str]) -> np.ndarray:
        return np.array(labels, np.int64)

    def head(self, network: Network) -> ModelWithHead:
        return ChoiceHead(network, self.config)

    def encode_rows(
        self, rows: Rows, network: Network, tokenizer: Tokenizer, length: int
    ) -> tuple[ChoiceExamples, int]:
        labels = self.encode_labels(rows.labels or ())
        return encode_choices(network, tokenizer, rows.texts, rows.seconds, rows.choices or (), labels, length)

    def predictor(self, model: ModelWithHead, tokenizer: Tokenizer, length: int, name: str) -> Classifier:
        return ChoicePredictor(model, tokenizer, self, length, name)

    def predict_file(self, predictor: ChoicePredictor, request: PredictionRequest) -> FilePredictions:
        return predict_choices(predictor, request)

    def records(self, predictor: ChoicePredictor, predictions: Sequence[Any]) -> list[Record]:
        return [{"predicted": int(p.label), "probabilities": list(p.probabilities.values())} for p in predictions]

    def analyze_errors(self, predictor: ChoicePredictor, data: TextDataset, examples: ChoiceExamples) -> dict[str, Any]:
        return error_analysis.analyze_choices(data.splits["dev"], self.decode(predictor.logits_of(examples)))

    def wording(self) -> Wording:
        return Wording(
            summary="one of several candidates for a context",
            input="a context and candidates",
            output="which of them is right",
            arguments='[("a context", ["one candidate", "another"])]',
        )


class ChoicePredictor(Classifier):
    """`predict` the right candidate of (context, [candidates]), or of (context, question, [candidates])."""

    can_average = False

    def predict(
        self, examples: Sequence[Any], progress: Count | None = None, notes: list[str] | None = None
    ) -> list[Prediction]:
        """The index of the best candidate, from 0 on, with the probability of each."""
        rows = [self.parse_example(example) for example in require_list(examples)]
        columns = [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
        encoded, cut = encode_choices(self.network, self.tokenizer, *columns, length=self.length)
        self.note_truncation(cut, len(rows), notes)
        predictions = []
        for row, p in zip(rows, self.task.decode(self.logits_of(encoded, progress)), strict=True):
            odds = {str(i): float(probability) for i, probability in enumerate(p[: len(row[2])])}
            predictions.append(Prediction(max(odds, key=lambda i: odds[i]), odds))
        return predictions

    def parse_example(self, example: object) -> tuple[str, str, Sequence[str]]:
        """Context, question and candidates of an example."""
        parts = texts_of(example)
        texts, choices = parts[:-1], parts[-1] if parts and isinstance(parts[-1], (list, tuple)) else ()
        is_text = all(isinstance(text, str) for text in (*texts, *choices))
        if not is_text or len(texts) not in (1, 2) or len(choices) < 2:
            raise InvalidSetting(
                f"{self.name or 'This run'} chooses between at least two candidates, and an example is "
                f"{str(example)[:80]!r}. Expected (context, [candidates]), or (context, question, [candidates]).",
                key="examples",
                value=example,
            )
        return texts[0], texts[1] if len(texts) == 2 else "", tuple(choices)


# ------------------------------------------------------------------------------------------------ files


def predict_choices(model: ChoicePredictor, request: PredictionRequest) -> FilePredictions:
    """Predict the index of the best candidate, from 0, with the probability of each."""
    suffix = request.suffix(TABLES, ".csv")
    config, named = model.task.config, request.columns
    usual = Columns(named.text or config.text, named.second or config.second, config.label)
    rows, _, table = read_multiple_choice(request.file, usual, insist=named)
    require_unique_columns(table, request.output)
    assert rows.choices is not None
    notes = [*table.notes, *count_empty_texts(rows)]
    examples = list(zip(rows.texts, rows.seconds or [""] * len(rows), rows.choices, strict=True))
    predictions = model.predict(examples, request.progress, notes)
    scores, more = _score_choices(rows, predictions)
    records = model.task.records(model, predictions)
    cells: list[Record] = records
    if suffix != ".jsonl":
        width = max(map(len, rows.choices))
        cells = [{"predicted": p.label, **_choice_probabilities(p, width)} for p in predictions]
    content, notes = write_table(table, cells, suffix, request, [*notes, *more])
    summary = f"{len(predictions):,} predictions"
    return FilePredictions(content, records, summary, [], scores, f"the labels in {table.name}", notes)


def _choice_probabilities(prediction: Prediction, width: int) -> dict[str, str]:
    probabilities = [prediction.probabilities.get(str(i)) for i in range(width)]
    return {f"p({i})": "" if p is None else f"{p:.6f}" for i, p in enumerate(probabilities)}


def _score_choices(rows: Rows, predictions: Sequence[Prediction]) -> tuple[dict[str, float], list[str]]:
    if rows.labels is None:
        return {}, []
    if not all(rows.labels):
        empty = sum(not label for label in rows.labels)
        return {}, [f"{empty:,} of {len(rows):,} rows have no label, so nothing is scored"]
    right = sum(p.label == gold for p, gold in zip(predictions, rows.labels, strict=True))
    return {"accuracy": right / len(predictions)}, []
