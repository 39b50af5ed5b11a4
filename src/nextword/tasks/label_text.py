"""Labels written as text, by a network that generates texts from sources (T5): there is no head.

    classify: a fine film end ──encoder──▶ memory        log p(positive end)  −0.2      one number for every label,
                                 begin ──decoder──▶      log p(negative end)  −1.9      and the greatest wins

    J = 1/n Σ −log p(tokens of the label, end | source)

Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer" (2020): a task is a
text with a prefix, its answer another text, and the network learns to generate that. The paper lets the network
generate freely and counts what is not a label as wrong; here only the labels are compared.

A number is written as one of few strings, in equal steps from the smallest to the largest training label:

    stsb sentence1: … sentence2: … ──encoder──▶ memory      log p(2.4 end)  −3.1       2.57 is learned as "2.6"; the
                                   begin ──decoder──▶      log p(2.6 end)  −0.4       likeliest string is the
                                                           log p(2.8 end)  −1.7       prediction

as the paper rounds STS-B to increments of 0.2 (section 2.4). The head's output is the index of a string, so that
mean + std · index is the number, with the first string as mean and the step as std.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword.batching.examples import Examples
from nextword.core import pytree
from nextword.core.errors import InvalidSetting, Unsupported, invalid, unknown
from nextword.core.types import Batch, FramedText, Inputs, Loss, State
from nextword.data.tables import Columns, Rows
from nextword.data.text_to_text import nearest_multiple, round_to_step
from nextword.models import model_class
from nextword.models.base import Network
from nextword.run_folder import RunFolder
from nextword.tasks import error_analysis
from nextword.tasks.attribution import Explanation, attribute_tokens, sum_by_word
from nextword.tasks.base import Dataset, ExamplesT, PredictorT, TaskConfig, from_data, is_number
from nextword.tasks.classification import (
    Classifier,
    ClassWeights,
    LabelObjective,
    TextTask,
    note_class_weights,
    resolve_class_weights,
)
from nextword.tasks.heads import ModelWithHead
from nextword.tasks.text_data import CLASSIFICATION, PAIRS, REGRESSION, TextDataset
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.loading import load_tokenizer
from nextword.training.device import to_device

TEXT, SECOND = "{text}", "{second}"
PROMPTS = ("classify: {text}", "classify sentence1: {text} sentence2: {second}")  # for one text, and for two
LABEL_TOKENS = 4096  # of labels that are compared at once: each needs a number for every word of the vocabulary
SOURCE_TOKENS = 1 << 14  # of their sources, which every label of a text has in its memory
STEPS = 25  # at most, between the smallest and the largest number: STS-B has 25, from 0 to 5 by 0.2
MAX_STRINGS = 1000  # every one is scored for every text
LABEL_ADVICE = 'Give words that the tokenizer knows: --set \'task.label_words={ A = "bad", B = "good" }\'.'
NUMBER_ADVICE = "Use a run whose tokenizer knows digits, or a recipe with a head, as bert/finetune."
LabelIds = tuple[tuple[int, ...], ...]


# ------------------------------------------------------------------------------------------------ model and loss


class LabelTextModel(ModelWithHead):
    """Its outputs are log p of every label (n, labels)."""

    ids: Tensor  # (labels, tokens of the longest)
    sizes: Tensor

    def __init__(self, network: Network, config: LabelTextConfig) -> None:
        require_text_to_text(type(network))
        super().__init__(network, frozen=config.frozen)
        self.num_labels = len(config.label_ids)
        longest = max(map(len, config.label_ids))
        ids = torch.tensor([[*label, *[0] * (longest - len(label))] for label in config.label_ids])
        self.register_buffer("ids", ids, persistent=False)
        self.register_buffer("sizes", torch.tensor([len(label) for label in config.label_ids]), persistent=False)
        self.weights = torch.tensor(config.class_weights) if config.class_weights else None

    @property
    def device(self) -> torch.device:
        device: torch.device = self.encoder.device
        return device

    def forward(self, batch: Batch) -> Tensor:
        return self.outputs(self.score_labels(batch))

    def outputs(self, log_p: Tensor) -> Tensor:
        """What is predicted, from log p of every label."""
        return log_p

    def score_labels(self, batch: Batch) -> Tensor:
        """log p of every label (n, labels)."""
        n, labels = len(batch.targets), self.num_labels
        every = torch.arange(labels, device=self.ids.device)
        return self._score(batch.inputs, every.repeat(n), labels).view(n, labels)

    def score_targets(self, batch: Batch) -> Tensor:
        """log p of the right label of each example (n,)."""
        return self._score(batch.inputs, batch.targets, 1)

    def _score(self, source: Inputs, chosen: Tensor, each: int) -> Tensor:
        """log p of the chosen labels, `each` of them per source; a source is encoded once."""
        n = len(source.ids)
        first, state = self.encoder.start(n, source)
        rows = torch.arange(n, device=chosen.device).repeat_interleave(each)
        ids = torch.cat([first[rows].unsqueeze(1), self.ids[chosen]], 1)
        if each == 1:
            return self._score_rows(ids, chosen, state)
        size = max(1, min(LABEL_TOKENS // ids.shape[1], SOURCE_TOKENS // source.ids.shape[1]))
        parts = zip(ids.split(size), chosen.split(size), rows.split(size), strict=True)
        return torch.cat([self._score_rows(part, own, pytree.take(state, whose)) for part, own, whose in parts])

    def _score_rows(self, ids: Tensor, chosen: Tensor, state: State) -> Tensor:
        log_p: Tensor = self.encoder.score(ids, self.sizes[chosen] + 1, state)[0]
        return log_p.float().sum(1)

    # -------------------------------------------------------------------------------------------- for attribution

    def layer(self, inputs: Inputs) -> Tensor:
        """No single layer is read: `score_layer` starts from the texts."""
        return inputs.ids

    def score_layer(self, h: Tensor, batch: Batch) -> Tensor:
        return self.forward(batch)


class NumberTextModel(LabelTextModel):
    """Its output is the index of the likeliest string (n, 1)."""

    def outputs(self, log_p: Tensor) -> Tensor:
        return log_p.argmax(1, keepdim=True).float()

    def score_layer(self, h: Tensor, batch: Batch) -> Tensor:
        """The expected index (n, 1): the likeliest one has no gradient, and this one follows it."""
        p = self.score_labels(batch).softmax(1)
        return p @ torch.arange(p.shape[1], dtype=p.dtype, device=p.device).unsqueeze(1)


class LabelTextObjective(LabelObjective):
    """Cross-entropy of the label's tokens. In training only the right label is scored; in validation, all of them."""

    def check(self, network: ModelWithHead) -> None:
        if self.lm_weight:
            raise Unsupported(
                f"objective.lm_weight = {self.lm_weight:g} needs a network that reads left to right; here labels are "
                "generated as text. Leave it out: --set 'phase.*.objective.lm_weight=0'."
            )

    def tokens_per_prediction(self, network: Any, text: Examples) -> float:
        return float(network.sizes.max())

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        outputs = None
        if network.training:
            log_p = network.score_targets(batch)
        else:
            scores = network.score_labels(batch)
            log_p = scores.gather(1, batch.targets.unsqueeze(1)).squeeze(1)
            outputs = network.outputs(scores).detach()
        weights = None if network.weights is None else network.weights[batch.targets]
        value = -log_p.mean() if weights is None else -(weights * log_p).sum() / weights.sum()
        return Loss(value, -log_p.sum().detach(), len(log_p), None, {}, outputs)


# ------------------------------------------------------------------------------------------------ sources and labels


def require_text_to_text(network: type[Network]) -> None:
    """Raise an error unless networks of this class generate texts from sources."""
    if not network.is_conditional:
        raise Unsupported(
            f"Labels as text need a text-to-text network, and {network.__name__} is not one. Use a run of t5 or "
            "seq2seq, or another recipe, as bert/finetune.",
            ability="generate",
        )


def end_token(tokenizer: Tokenizer) -> int:
    """What ends a source and a label; in word vocabularies the line end."""
    return tokenizer.end if tokenizer.end is not None else int(tokenizer.encode("\n").ids[0])


def tokenize_labels(
    tokenizer: Tokenizer, labels: Sequence[str], label_words: Mapping[str, str], advice: str = LABEL_ADVICE
) -> LabelIds:
    """The tokens of each label, or of the words that stand for it, and the end token.

    `advice`: what to do if the tokenizer cannot tell two of them apart.
    """
    check_label_words(label_words, labels)
    texts = [str(label_words.get(label, label)) for label in labels]
    ids = tuple((*encoding.ids.tolist(), end_token(tokenizer)) for encoding in tokenizer.encode_batch(texts))
    for i, tokens in enumerate(ids):
        if tokens in ids[:i]:
            same = labels[ids.index(tokens)]
            raise InvalidSetting(
                f"The labels {same!r} and {labels[i]!r} have the same tokens, so they cannot be told apart. {advice}",
                key="task.label_words",
                value=(same, labels[i]),
            )
    return ids


def check_label_words(label_words: Mapping[str, str], labels: Sequence[str]) -> None:
    for name in label_words:
        if name not in labels:
            raise unknown("label", name, labels, where="[task] label_words")


def fill_prompt(prompt: str, texts: Sequence[str], seconds: Sequence[str] | None) -> list[str]:
    """The source of each example: its texts in the prompt."""
    prompt = prompt or PROMPTS[seconds is not None]
    for mark, expected in ((TEXT, True), (SECOND, seconds is not None)):
        if prompt.count(mark) != expected:
            raise InvalidSetting(
                f"[task] prompt = {prompt!r}. Expected {TEXT} once"
                + f" and {SECOND} once" * (seconds is not None)
                + f", as in {PROMPTS[seconds is not None]!r}.",
                key="task.prompt",
                value=prompt,
            )
    if seconds is None:
        return [prompt.replace(TEXT, text) for text in texts]
    parts = re.split(f"({re.escape(TEXT)}|{re.escape(SECOND)})", prompt)
    rows = ({TEXT: a, SECOND: b} for a, b in zip(texts, seconds, strict=True))
    return ["".join(row.get(part, part) for part in parts) for row in rows]


def encode_sources(
    tokenizer: Tokenizer, sources: Sequence[str], labels: np.ndarray | None = None, length: int = 0
) -> tuple[Examples, int]:
    """Sources with the end token, as a text-to-text network reads them; and how many were cut to `length` tokens."""
    end, cut, frames = end_token(tokenizer), 0, []
    for encoding in tokenizer.encode_batch(list(sources)):
        room = length - 1 if length else len(encoding.ids)
        cut += len(encoding.ids) > room
        ids = np.append(encoding.ids[:room], end).astype(np.int64)
        frames.append(FramedText(ids, len(ids) - 1))
    labels = np.zeros(len(sources), np.int64) if labels is None else labels
    return Examples.from_frames(frames, labels=labels), cut


# ------------------------------------------------------------------------------------------------ numbers as strings


def number_strings(labels: Sequence[str], step: float = 0.0, name: str = "The data") -> tuple[str, ...]:
    """All multiples of the step from the smallest to the largest label; `step` = 0: `default_step`."""
    by = Decimal(str(step)) if step else default_step(labels)
    low, high = min(labels, key=Decimal), max(labels, key=Decimal)
    first, last = nearest_multiple(low, by), nearest_multiple(high, by)
    count = last - first + 1
    if not 2 <= count <= MAX_STRINGS:
        raise InvalidSetting(
            f"{name}: numbers from {low} to {high} in steps of {by:f} are {count:,} strings. Expected 2 to "
            f"{MAX_STRINGS:,}: --set task.number_step={default_step(labels):f}",
            key="task.number_step",
            value=step,
        )
    return tuple(round_to_step(i * by, by) for i in range(first, last + 1))


def default_step(labels: Sequence[str]) -> Decimal:
    """The smallest of … 0.1, 0.2, 0.5, 1, 2 … with at most STEPS steps between the smallest and the largest label, but
    no finer than the labels are: 1 for stars from 1 to 5."""
    numbers = [Decimal(label) for label in labels]
    span = max(numbers) - min(numbers)
    power = (span / STEPS).adjusted()
    steps = (Decimal(m).scaleb(power + more) for more in (0, 1) for m in (1, 2, 5))
    by = next(step for step in steps if span <= STEPS * step)
    finest = min((int(number.normalize().as_tuple().exponent) for number in numbers if number), default=0)
    return max(by, Decimal(1).scaleb(finest))


def nearest_strings(labels: Sequence[str], numbers: Sequence[str]) -> np.ndarray:
    """The index of the nearest string of each label (n,); beyond the last, the last."""
    by = Decimal(numbers[1]) - Decimal(numbers[0])
    first = nearest_multiple(numbers[0], by)
    indices = [min(max(nearest_multiple(label, by) - first, 0), len(numbers) - 1) for label in labels]
    return np.array(indices, np.int64)


def scale_of_strings(numbers: Sequence[str]) -> tuple[float, float]:
    """The first number, and the step from one to the next."""
    return float(numbers[0]), float(Decimal(numbers[1]) - Decimal(numbers[0]))


def note_strings(numbers: Sequence[str]) -> list[str]:
    if not numbers:
        return []
    by = Decimal(numbers[1]) - Decimal(numbers[0])
    shown = f"{', '.join(numbers[:2])} … {numbers[-1]}" if len(numbers) > 3 else ", ".join(numbers)
    return [
        f"numbers are written as the nearest of {len(numbers)} strings: {shown}, steps of {by:f} (task.number_step)"
    ]


# ------------------------------------------------------------------------------------------------ task


@dataclass(frozen=True)
class WrittenLabelsConfig(TaskConfig):
    """Settings of tasks whose labels are text: generated (label_text), or scored in a prompt (in_context)."""

    frame: str = ""  # "classify": one text; otherwise two
    label_words: Mapping[str, str] = field(default_factory=dict)  # what is written for a label
    number_step: float = 0.0  # from one number that can be written to the next; 0: at most 25 steps
    numbers: Sequence[str] = from_data(())  # that can be written, the smallest first; (): labels are classes
    mean: float = from_data(0.0)  # number = mean + std · index
    std: float = from_data(1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        words = self.label_words
        texts = isinstance(words, Mapping) and all(isinstance(text, str) and text.strip() for text in words.values())
        self.require("label_words", texts, "a text for each label, as { 0 = 'bad', 1 = 'good' }")
        step = self.number_step
        self.require("number_step", is_number(step) and 0 <= step < math.inf, "the step between numbers, as 0.2")


class WrittenLabels(TextTask[TextDataset, ExamplesT, PredictorT]):
    """Classification, or regression if `numbers` is not empty, with labels as text."""

    config: WrittenLabelsConfig

    @property
    def is_numeric(self) -> bool:
        return bool(self.config.numbers)

    @property
    def outputs(self) -> int:
        return 1 if self.is_numeric else len(self.config.labels)

    def reopen(self, source: str) -> Dataset:
        kind = REGRESSION if self.is_numeric else PAIRS if self.is_pair else CLASSIFICATION
        return self.read(source, self.config.columns, kind if self.config.text else "")

    def read(self, source: str, columns: Columns = Columns(), kind: str = "") -> Dataset:
        data = super().read(source, columns, kind)
        if data.kind not in (CLASSIFICATION, PAIRS, REGRESSION):
            problem = f"is for {data.kind}. Expected classes or numbers of texts; use another recipe, as bert/finetune."
            raise invalid("data", source, problem)
        return data

    def kind_for(self, data: Dataset) -> str:
        return self.config.kind

    def settings_from(self, data: TextDataset, run: RunFolder | None) -> dict[str, Any]:
        own = self.config
        if own.number_step and not data.is_numeric:
            problem = f"is for numbers, and {data.name} has classes. Leave it out."
            raise invalid("task.number_step", own.number_step, problem)
        labels = data.splits["train"].labels or ()
        numbers = number_strings(labels, own.number_step, data.name) if data.is_numeric else ()
        mean, std = scale_of_strings(numbers) if numbers else (0.0, 1.0)
        return super().settings_from(data, run) | {"numbers": numbers, "mean": mean, "std": std}

    def encode_labels(self, labels: Sequence[str]) -> np.ndarray:
        if not self.is_numeric:
            return super().encode_labels(labels)
        numbers = np.array(labels, np.float64)
        return ((numbers - self.config.mean) / self.config.std).astype(np.float32)

    def decode(self, outputs: np.ndarray) -> np.ndarray:
        if not self.is_numeric:
            return super().decode(outputs)
        return np.array(self.config.numbers, np.float64)[outputs.astype(np.int64)]  # as written, to the last digit

    def analyze_rows(self, rows: Rows, outputs: np.ndarray) -> dict[str, Any]:
        if not self.is_numeric:
            return super().analyze_rows(rows, outputs)
        gold, predicted = np.array(rows.labels, np.float64), self.decode(outputs)[:, 0]
        return error_analysis.analyze_numbers(gold, predicted, rows, self.config.numbers)


@dataclass(frozen=True)
class LabelTextConfig(WrittenLabelsConfig):
    prompt: str = ""  # the source, with {text} in it, and {second} for two texts; "": PROMPTS
    class_weights: ClassWeights = ""  # as of classification
    frozen: bool = False
    reinit_layers: int = 0
    label_ids: Sequence[Sequence[int]] = from_data(())  # tokens of each label, or of each number

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_count("reinit_layers", 0, "a number of layers, as 2")


class LabelText(WrittenLabels[Examples, Classifier]):
    """A label generated as text."""

    config: LabelTextConfig
    Config = LabelTextConfig
    objective = LabelTextObjective
    example_recipe = "t5/finetune"

    def settings_from(self, data: TextDataset, run: RunFolder | None) -> dict[str, Any]:
        if run is None:
            problem = "Labels as text need a pretrained run. Name it with --from RUN."
            raise InvalidSetting(problem, key="source", value="")
        require_text_to_text(model_class(run.recipe.slug))
        own = super().settings_from(data, run)
        tokenizer = load_tokenizer(run.path / "tokenizer.json")
        names, advice = (own["numbers"], NUMBER_ADVICE) if data.is_numeric else (data.labels, LABEL_ADVICE)
        ids = tokenize_labels(tokenizer, names, self.config.label_words, advice)
        weights = self.config.class_weights
        if weights and data.is_numeric:
            raise invalid("task.class_weights", weights, f"is for classes, and {data.name} has numbers. Leave it out.")
        own["class_weights"] = () if data.is_numeric else resolve_class_weights(weights, data)
        return own | {"label_ids": [list(tokens) for tokens in ids]}  # lists, as TOML has them

    def head(self, network: Network) -> ModelWithHead:
        model = NumberTextModel if self.is_numeric else LabelTextModel
        return model(network, self.config)

    def notes(self) -> list[str]:
        weights = self.config.class_weights  # resolved: a list, unless labels are numbers
        notes = note_class_weights(weights, self.config.labels) if isinstance(weights, (list, tuple)) else []
        return [*notes, *note_strings(self.config.numbers)]

    def encode_rows(self, rows: Rows, network: Network, tokenizer: Tokenizer, length: int) -> tuple[Examples, int]:
        labels = self.encode_labels(rows.labels or ())
        sources = fill_prompt(self.config.prompt, rows.texts, rows.seconds)
        examples, cut = encode_sources(tokenizer, sources, labels, length)
        if self.is_numeric:  # the nearest string is learned; metrics compare with the number itself
            examples = replace(examples, labels=nearest_strings(rows.labels or (), self.config.numbers), gold=labels)
        return examples, cut

    def long_text_notes(self, examples: Examples) -> list[str]:
        return []

    def predictor(self, model: ModelWithHead, tokenizer: Tokenizer, length: int, name: str) -> Classifier:
        return LabelTextPredictor(model, tokenizer, self, length, name)


class LabelTextPredictor(Classifier):
    """`predict` and `explain` as any classifier; texts are read in the prompt of the task."""

    def encode(self, texts: Sequence[str], seconds: Sequence[str] | None) -> tuple[Examples, int]:
        sources = fill_prompt(self.task.config.prompt, texts, seconds)
        return encode_sources(self.tokenizer, sources, None, self.length)

    def explain_one(self, texts: tuple[str, ...], label: str) -> Explanation:
        """Attributions of the words of the texts; the words of the prompt stay as they are.

        For numbers it explains the expected number under the strings' probabilities, in the units of the labels.
        """
        prompt, (scale, offset) = self.task.config.prompt, self.unit_scale
        second = list(texts[1:]) or None
        source = fill_prompt(prompt, [texts[0]], second)[0]
        example, _ = encode_sources(self.tokenizer, [source], None, self.length)
        encoding = self.tokenizer.encode(source)
        words, marked = tuple(text.split() for text in texts), fill_prompt(prompt, [TEXT], second and [SECOND])
        text_of_word, at = np.full(len(source.split()) + 1, -1), 0
        for word in marked[0].split():
            i = next((k for k, mark in enumerate((TEXT, SECOND)) if mark in word), None)
            size = 1 if i is None else len(words[i])
            text_of_word[at : at + size] = -1 if i is None else i
            at += size
        owner = text_of_word[np.minimum(encoding.words[: len(example.ids) - 1], len(text_of_word) - 1)]
        is_text = np.append(owner >= 0, False)
        output = 0 if self.task.is_numeric else list(self.task.config.labels).index(label)
        found = attribute_tokens(self.model, example, is_text, output, partial(to_device, device=self.device))
        weights = []
        for i, text in enumerate(words):
            mine = np.flatnonzero(owner == i)
            inside = encoding.words[mine] - np.flatnonzero(text_of_word == i)[:1] if len(mine) else mine
            weights.append(sum_by_word(scale * found.tokens[mine], inside, len(text)))
        score, baseline = (scale * value + offset for value in (found.score, found.baseline))
        return Explanation(label, words, tuple(weights), score, baseline, scale * found.gap)
