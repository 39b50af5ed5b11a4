"""In-context learning: a prompted language model chooses a label, and nothing is trained.

    The match ended two to one. This text is about ▁▁▁.        sports  −2.1    weather  −5.4    nats per token

Each label is inserted into a template after the text. Its score is log p of the label and of what follows it in the
template, per token, so that long labels have no disadvantage. With `calibrate` it is log p minus log p of the same
label without the text (Holtzman et al. 2021; the `unconditional` rule of Brown et al. 2020), so that labels that are
likely anyway gain nothing. Probabilities are the softmax of the scores.

    reads left to right            log p(label and the rest | text, beginning of the template)
    bidirectional                  the same as a pseudo-likelihood: each token masked in turn
    fills blanks (T5)              log p(label) where a sentinel stands in the template
    source to target               log p(label) as the target of the text and the template's beginning
    embeds texts, predicts none    the cosine of the text's vector and the label's (`NearestLabelClassifier`)

With solved examples before the text, each in the same template, a model may infer the task from its prompt (few-shot
learning, Brown et al. 2020):

    The vote was close. This text is about politics.⏎⏎The match ended two to one. This text is about ▁▁▁.

`ZeroShotClassifier` prompts any open model. `InContextClassifier` is a run that `nextword transfer gpt3/in-context` has
made: the files of a language model, and `prompt.txt`, the solved examples, which the seed draws from the training rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nextword.conversion.base import model_files
from nextword.core.errors import InvalidSetting, RunError, Unsupported, invalid
from nextword.core.io import link_or_copy
from nextword.core.types import EXACT, Prediction, require_list, texts_of
from nextword.data.tables import Rows
from nextword.lm.base import TextModel
from nextword.lm.completion import context_window, score_completions
from nextword.models import abilities, model_class
from nextword.models.base import Network
from nextword.recipe import Recipe
from nextword.run_folder import RunFolder
from nextword.tasks import error_analysis
from nextword.tasks.base import DEV_IS_TRAINED_ON, Count, Setup
from nextword.tasks.classification import (
    Classification,
    ClassificationConfig,
    LabelObjective,
    score_outputs,
)
from nextword.tasks.heads import ModelWithHead
from nextword.tasks.label_text import (
    WrittenLabels,
    WrittenLabelsConfig,
    check_label_words,
    nearest_strings,
    note_strings,
    tokenize_labels,
)
from nextword.tasks.text_data import TextDataset
from nextword.tokenizers.loading import load_tokenizer

if TYPE_CHECKING:
    from nextword.tasks.plan import Plan

TEMPLATE = "This text is about {label}."
PAIR_TEMPLATE = "{text}\nquestion: {second}\nanswer: {label}"
NUMBER_TEMPLATE, PAIR_NUMBER_TEMPLATE = "{text}\nscore: {label}", "{text}\n{second}\nscore: {label}"
LABEL, TEXT, SECOND = "{label}", "{text}", "{second}"
SEPARATOR = "\n\n"  # between examples
COSINE_TEMPERATURE = 0.05  # as in contrastive training (objectives/contrastive.py)
PROMPT_FILE = "prompt.txt"
PHASE_KIND = "prompt"  # of a phase in which nothing is trained
AT_ONCE = 128  # texts
DEV_IS_SHOWN = "solved examples may be drawn from dev too, so its scores say less than those of test"
Example = str | tuple[str, str]
Solved = Sequence[tuple[Example, str]]  # texts, or pairs of texts, with their labels
Costs = tuple[np.ndarray, np.ndarray]  # nats and tokens (texts, labels)


# ------------------------------------------------------------------------------------------------ any language model


class ZeroShotClassifier(TextModel):
    """A language model as a classifier. `predict` takes texts, or pairs of texts if {second} is in the template.

    `solved`: examples that stand before every text.
    """

    can_average = True
    option_names = ("--labels", "--template")  # what errors call the labels and the template
    needs = "score"  # the ability of the language model that this class uses

    def __init__(
        self,
        lm: Any,
        labels: Sequence[str],
        template: str = TEMPLATE,
        calibrate: bool = False,
        name: str = "",
        solved: Solved = (),
    ) -> None:
        words = tuple(label.strip() for label in labels)
        if len(words) < 2 or not all(words) or len(set(words)) < len(words):
            raise InvalidSetting(
                f"{self.option_names[0]} {','.join(labels)}: expected at least two distinct labels.",
                key="labels",
                value=labels,
            )
        if self.needs not in lm.can:
            raise Unsupported(
                f"{name or 'This run'} gives neither probabilities nor vectors of texts, so it cannot choose labels. "
                "Use a language model, or fine-tune this run on labeled texts (`nextword transfer`).",
                ability=self.needs,
            )
        self.network, self.tokenizer, self.parameters = lm.network, lm.tokenizer, lm.parameters
        self.lm, self.name, self.calibrate, self.label_words = lm, name, calibrate, words
        self.before, self.after = _split_template(template, self.option_names[1])
        self.is_pair = SECOND in self.before
        self.task: Any = Classification(
            ClassificationConfig(
                kind="pair_classification" if self.is_pair else "classification",
                frame="entail" if self.is_pair else "classify",
                labels=words,
                metrics=("accuracy", "macro_f1"),
            )
        )
        self.prefix = self.render_examples(solved)
        self._without_text: Costs | None = None

    def render_examples(self, solved: Solved) -> str:
        """Solved examples as they stand before a text."""
        return "".join(f"{self.render(example)} {label}{self.after}{SEPARATOR}" for example, label in solved)

    def render(self, example: Example) -> str:
        """A text, or two, in the template, up to the label."""
        texts = texts_of(example)
        if len(texts) != 1 + self.is_pair or not all(isinstance(text, str) for text in texts):
            raise InvalidSetting(
                f"{self.option_names[1]} needs {'two texts' if self.is_pair else 'one text'}, and an example is "
                f"{str(example)[:80]}.",
                key="examples",
                value=example,
            )
        values = dict(zip((TEXT, SECOND), texts, strict=False))
        return re.sub(r"\{text\}|\{second\}", lambda mark: values.get(mark[0], mark[0]), self.before).strip()

    def predict(
        self, examples: Sequence[Example], progress: Count | None = None, notes: list[str] | None = None
    ) -> list[Prediction]:
        """The best label of each text, and the probability of every label."""
        predictions: list[Prediction] = []
        examples = require_list(examples)
        for outputs in self.outputs(examples):
            predictions += self.task.predictions(outputs)
            if progress:
                progress(len(predictions), len(examples))
        if notes is not None:
            notes += self.notes_on(examples)
        return predictions

    def outputs(self, examples: Sequence[Example]) -> Iterator[np.ndarray]:
        """Yield (texts, labels) log probabilities, AT_ONCE texts at a time."""
        for at in range(0, len(examples), AT_ONCE):
            with np.errstate(divide="ignore"):
                yield np.log(softmax(self.scores(examples[at : at + AT_ONCE])))

    def scores(self, examples: Sequence[Example]) -> np.ndarray:
        """(texts, labels): the higher the better."""
        nats, tokens = self._costs(examples)
        if not self.calibrate:
            return -nats / np.maximum(tokens, 1)
        if self._without_text is None:
            self._without_text = self._costs([("", "") if self.is_pair else ""])
        return self._without_text[0] - nats

    def _costs(self, examples: Sequence[Example]) -> Costs:
        prompts = [self.prefix + self.render(example) for example in examples for _ in self.label_words]
        labels = [label for _ in examples for label in self.label_words]
        pairs = _score_labels(self.lm, prompts, labels, self.after)
        nats, tokens = (np.array(column, np.float64).reshape(len(examples), -1) for column in zip(*pairs, strict=True))
        return nats, tokens

    def notes_on(self, examples: Sequence[Example]) -> list[str]:
        """What to know about how these examples are read."""
        lm, notes = self.lm, []
        exact = lm.kind == EXACT
        window = context_window(lm) if exact else lm.room
        continues = not lm.is_seq2seq
        if window is not None and continues:
            plain = not self.prefix and not self.is_pair
            texts = [str(example) if plain else self.prefix + self.render(example) for example in examples]
            long = sum(len(encoding) > window for encoding in lm.tokenizer.encode_batch(texts))
            if long:
                what = "texts, with the examples before them," if self.prefix else "texts"
                lost = ", without the first examples" if self.prefix else ""
                notes.append(
                    f"{long:,} of {len(examples):,} {what} are longer than the window of {window:,} tokens: their ends "
                    f"are read{lost}"
                )
        unknown = {id for name, id in lm.tokenizer.special.items() if "unk" in name.lower()}
        texts = [f"{label}{self.after}" if continues else label for label in self.label_words]
        odd = [repr(text) for text in texts if unknown.intersection(lm.tokenizer.encode(text).ids.tolist())]
        if odd:
            notes.append(
                f"the model's vocabulary lacks words of {', '.join(odd)}, which are scored as unknown words (perhaps "
                "what follows {label} in the template needs a space before it)"
            )
        return notes


class NearestLabelClassifier(ZeroShotClassifier):
    """A model of sentence vectors as a classifier: the label whose vector has the largest cosine with the text's.

    The vector of a label is that of the template with the label in it and without a text. With solved examples it is
    the mean of that vector and theirs.
    """

    needs = "embed"

    def __init__(
        self,
        lm: Any,
        labels: Sequence[str],
        template: str = TEMPLATE,
        calibrate: bool = False,
        name: str = "",
        solved: Solved = (),
    ) -> None:
        super().__init__(lm, labels, template, calibrate, name)
        if self.is_pair:
            problem = f"asks about two texts, and {name or 'this run'} compares vectors of single texts."
            raise invalid(self.option_names[1], template, f"{problem} Leave {SECOND} out.")
        if calibrate:
            raise invalid("--calibrate", True, "corrects probabilities, and this run compares vectors. Leave it out.")
        of_labels = self._vectors([f"{self.render('')} {label}{self.after}" for label in self.label_words])
        of_examples = self._vectors([self.render_text(example) for example, _ in solved])
        means = [
            np.mean([vector, *of_examples[[gold == label for _, gold in solved]]], axis=0)
            for label, vector in zip(self.label_words, of_labels, strict=True)
        ]
        self.label_vectors = _normalize(np.stack(means))

    def scores(self, examples: Sequence[Example]) -> np.ndarray:
        """(texts, labels): cosines, divided by the temperature of contrastive training, which makes them logits."""
        vectors = self._vectors([self.render_text(example) for example in examples])
        return np.asarray(vectors @ self.label_vectors.T / COSINE_TEMPERATURE)

    def render_text(self, example: Example) -> str:
        """The text alone: the template belongs to the labels."""
        self.render(example)  # raises unless it is one text
        return str(example) if isinstance(example, str) else example[0]

    def notes_on(self, examples: Sequence[Example]) -> list[str]:
        return []  # a long text is read in windows, and its vector is the mean of theirs

    def _vectors(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, width), each of length 1."""
        vectors: np.ndarray = self.lm.embed(list(texts)).numpy() if texts else np.zeros((0, self.lm.network.widths[-1]))
        return _normalize(vectors)


def _normalize(vectors: np.ndarray) -> np.ndarray:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12))


def zero_shot_class(lm: TextModel) -> type[ZeroShotClassifier]:
    """How this model chooses among labels: by their probabilities if it has any, else by the nearest vector."""
    return NearestLabelClassifier if "score" not in lm.can and "embed" in lm.can else ZeroShotClassifier


def _split_template(template: str, name: str) -> tuple[str, str]:
    """The parts before and after the label; the first has the text in it."""
    before, _, after = template.partition(LABEL)
    misplaced = any(template.count(mark) > 1 or mark in after for mark in (TEXT, SECOND))
    if template.count(LABEL) != 1 or misplaced:
        raise InvalidSetting(
            f"{name} {template!r}: expected {LABEL} once, and {TEXT} (and {SECOND} for pairs) at most once before it, "
            f"as {TEMPLATE!r}. Without {TEXT}, the text comes first.",
            key="task.template",
            value=template,
        )
    return before if TEXT in before else f"{TEXT} {before}", after


def draw_shots(texts: Sequence[Any], labels: Sequence[str], shots: int, seed: int) -> list[tuple[Any, str]]:
    """Draw examples, equally many of each class as far as possible, in random order."""
    draw = np.random.default_rng([seed, len(texts)])
    order = draw.permutation(len(texts)).tolist()
    classes = [[i for i in order if labels[i] == label] for label in dict.fromkeys(labels[i] for i in order)]
    turns = [i for group in zip_longest(*classes) for i in group if i is not None][:shots]
    return [(texts[i], labels[i]) for i in draw.permutation(turns).tolist()]


def _score_labels(lm: Any, prompts: Sequence[str], labels: Sequence[str], after: str) -> list[tuple[float, int]]:
    """Nats and tokens of each label after its prompt, by the means that the model has."""
    if lm.fills_spans:
        scores = lm.score_fillings([(prompt + " ", after) for prompt in prompts], labels)
    elif lm.is_seq2seq:
        scores = lm.score_many(labels, prompts)
    else:
        texts = [f"{' ' * bool(prompt)}{label}{after}" for prompt, label in zip(prompts, labels, strict=True)]
        exact = lm.kind == EXACT
        scores = score_completions(lm, texts, prompts) if exact else lm.score_many(texts, prompts)
    return [(score.nats, score.tokens) for score in scores]


def softmax(scores: np.ndarray) -> np.ndarray:
    """Softmax of each row; uniform if no label is possible at all."""
    best = scores.max(1, keepdims=True)
    odds = np.exp(np.where(np.isfinite(best), scores - np.where(np.isfinite(best), best, 0.0), 0.0))
    return np.asarray(odds / odds.sum(1, keepdims=True))


# ------------------------------------------------------------------------------------------------ a run of a task


class InContextClassifier(ZeroShotClassifier):
    """A language model with the prompt of a task. For numbers, the output is the index of the likeliest string."""

    option_names = ("[task] label_words", "[task] template")

    def __init__(self, lm: Any, task: InContextLearning, prefix: str = "", name: str = "") -> None:
        own = task.config
        words = [str(own.label_words.get(label, label)) for label in own.numbers or own.labels]
        template = own.template or task.default_template
        super().__init__(lm, words, template, own.calibrate, name)
        if self.is_pair != task.is_pair:
            expected = f"{TEXT} and {'' if task.is_pair else 'no '}{SECOND}, as in {task.default_template!r}"
            problem = f"is not for {task.wording().input}. Expected {expected}."
            raise invalid("task.template", own.template, problem)
        self.task, self.prefix = task, prefix
        self.solved: dict[str, int] = {}  # label → solved examples in the prompt, if it was drawn here
        self.notes: list[str] = []
        self._outputs: dict[Any, np.ndarray] = {}

    def show(self, examples: Sequence[Example], labels: Sequence[str], seed: int) -> None:
        """Put solved examples, drawn by the seed, before every text."""
        names, numbers = self.task.config.labels, self.task.config.numbers
        if numbers:
            names, labels = numbers, [numbers[index] for index in nearest_strings(labels, numbers)]
        chosen = draw_shots(examples, labels, self.task.config.shots, seed)
        words = dict(zip(names, self.label_words, strict=True))
        self.prefix = self.render_examples([(example, words[label]) for example, label in chosen])
        counts = {name: sum(label == name for _, label in chosen) for name in names}
        self.solved = {name: n for name, n in counts.items() if n} if numbers else counts

    def outputs(self, examples: Sequence[Example]) -> Iterator[np.ndarray]:
        for log_p in super().outputs(examples):
            yield log_p.argmax(1)[:, None].astype(np.float64) if self.task.is_numeric else log_p

    @property
    def question(self) -> str:
        """What follows the solved examples: the template."""
        return f"{self.before.strip()} {LABEL}{self.after}"

    # -------------------------------------------------------------------------------------------- for the phase

    def num_parameters(self) -> int:
        return self.parameters

    @property
    def device(self) -> torch.device:
        device: torch.device = self.lm.device
        return device

    def save(self, folder: Path) -> list[str]:
        """Link the model's files, and write the prompt."""
        source = RunFolder.open(self.task.config.source)
        names = model_files(source)
        for name in names:
            link_or_copy(source.path / name, folder / name)
        (folder / PROMPT_FILE).write_bytes(self.prefix.encode())
        return [*names, PROMPT_FILE]

    def label_splits(self, splits: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
        """Label all examples and remember the outputs; yield how many are done, of how many."""
        done, total = 0, sum(map(len, splits.values()))
        for rows in splits.values():
            parts = []
            for outputs in self.outputs(rows.examples):
                parts.append(outputs)
                done += len(outputs)
                yield done, total
            self._outputs[rows] = np.concatenate(parts)

    def logits_of(self, rows: LabeledRows) -> np.ndarray:
        """(examples, labels) log probabilities, or (examples, 1) indices, of a split that was labeled."""
        return self._outputs[rows]

    def score_examples(self, rows: LabeledRows) -> dict[str, float]:
        return score_outputs(self.task.config.metrics, rows.labels, self.logits_of(rows))

    def why_not(self, ability: str) -> str:
        return (
            f"{self.name or 'This run'} is for a task: it predicts {self.task.wording().output}. Use "
            f"`nextword predict`, or the language model that it prompts: {self.task.config.source or 'unknown'}."
        )


@dataclass(frozen=True, eq=False)
class LabeledRows:
    """The labeled rows of a split, as a prompt reads them."""

    rows: Rows
    labels: np.ndarray  # class indices, or scaled numbers
    metrics: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def examples(self) -> list[Any]:
        """Texts, or pairs of texts."""
        rows = self.rows
        return rows.texts if rows.seconds is None else list(zip(rows.texts, rows.seconds, strict=True))

    def take(self, chosen: Sequence[int] | np.ndarray) -> LabeledRows:
        return replace(self, rows=self.rows.take([int(i) for i in chosen]), labels=self.labels[chosen])


@dataclass(frozen=True)
class InContextConfig(WrittenLabelsConfig):
    template: str = ""  # with {label} in it, and {text} and {second}; "": TEMPLATE, or its like for pairs and numbers
    shots: int = 0  # solved examples in the prompt, drawn by the seed
    calibrate: bool = False  # subtract each label's log p without the text

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_count("shots", 0, "a number of solved examples, as 16")


class InContextLearning(WrittenLabels[LabeledRows, InContextClassifier]):
    """A class or a number, chosen by a prompted language model."""

    config: InContextConfig
    Config = InContextConfig
    objective = LabelObjective
    trains = False
    example_recipe = "gpt3/in-context"

    @property
    def default_template(self) -> str:
        if self.is_numeric:
            return PAIR_NUMBER_TEMPLATE if self.is_pair else NUMBER_TEMPLATE
        return PAIR_TEMPLATE if self.is_pair else TEMPLATE

    def settings_from(self, data: TextDataset, run: RunFolder | None) -> dict[str, Any]:
        own = super().settings_from(data, run)
        words = self.config.label_words
        if words and data.is_numeric:
            raise invalid("task.label_words", words, f"is for classes, and {data.name} has numbers. Leave it out.")
        check_label_words(words, data.labels)
        if run is not None:
            _require_causal_lm(run)
            if data.is_numeric:  # strings that the tokenizer cannot tell apart are an error
                tokenize_labels(load_tokenizer(run.path / "tokenizer.json"), own["numbers"], {})
        resolved = type(self)(replace(self.config, **own))
        return own | {"template": self.config.template or resolved.default_template}

    def head(self, network: Network) -> ModelWithHead:
        raise Unsupported("In-context learning has no head.", ability="head")

    def encode(self, data: TextDataset, setup: Setup) -> dict[str, LabeledRows]:
        setup.notes[:] = [DEV_IS_SHOWN if note == DEV_IS_TRAINED_ON else note for note in setup.notes]
        setup.notes += note_strings(self.config.numbers)
        return {
            split: LabeledRows(rows, self.encode_labels(rows.labels), tuple(self.config.metrics))
            for split, rows in data.splits.items()
            if rows.labels is not None
        }

    def build(self, plan: Plan, recipe: Recipe, train: LabeledRows) -> InContextClassifier:
        """The language model with its prompt, from training rows that have a text."""
        own = self.config
        model = InContextClassifier(plan.lm, self, name=own.source)
        usable = [i for i, text in enumerate(train.rows.texts) if text.strip()]
        if own.shots > len(usable):
            drawn = f" (--train-fraction {own.train_fraction:g})" if own.train_fraction < 1 else ""
            problem = f"is too many: {len(usable):,} training rows have a text{drawn}. --set task.shots={len(usable)}"
            raise invalid("task.shots", own.shots, problem)
        pool = train.take(usable)
        model.show(pool.examples, pool.rows.labels or [], recipe.phases[0].seed)
        counts = ", ".join(f"{n} of {label!r}" for label, n in model.solved.items())
        model.notes = [f"{own.shots} solved examples stand before every text ({counts})"] if own.shots else []
        model.notes += model.notes_on(
            [example for split, rows in plan.examples.items() if split != "train" for example in rows.examples]
        )
        return model

    def open(self, run: RunFolder, device: torch.device, precision: str = "fp32") -> Any:
        from nextword.lm.loading import load_language_model

        prefix = (run.path / PROMPT_FILE).read_bytes().decode()  # bytes, because line ends must stay as they are
        return InContextClassifier(load_language_model(run, str(device), precision), self, prefix, run.name)

    def finish(
        self, model: InContextClassifier, run: RunFolder, device: torch.device
    ) -> tuple[InContextClassifier, list[str]]:
        return model, model.notes

    def evaluate(
        self, predictor: InContextClassifier, data: TextDataset, examples: Mapping[str, LabeledRows]
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        results, arrays = super().evaluate(predictor, data, examples)
        return results | {"shots": predictor.solved}, arrays

    def analyze_errors(
        self, predictor: InContextClassifier, data: TextDataset, examples: LabeledRows
    ) -> dict[str, Any]:
        analysis = self.analyze_rows(examples.rows, predictor.logits_of(examples))
        prompt = {"text": predictor.prefix + predictor.question, "labels": list(predictor.label_words)}
        return analysis | {"prompt": prompt, "attribution": {"method": "", "why": error_analysis.NO_HEAD}}


def _require_causal_lm(run: RunFolder) -> None:
    """Raise an error unless the run is a language model that reads left to right."""
    recipe = run.recipe
    if recipe.task is not None:
        raise RunError(
            f"{run.name} is a run of a task, and in-context learning needs a language model. Use the run it was made "
            f"from: --from {recipe.task.get('source') or 'RUN'}",
            path=run.path,
        )
    network = model_class(recipe.slug)
    if "generate" not in abilities(network, recipe.model) or network.is_conditional:
        raise Unsupported(
            f"{run.name} is a run of {network.__name__}, which does not continue a prompt. Use a run of gpt2, gpt3, "
            f"lstm or ngram, fine-tune this one, or try `nextword predict {run.name} FILE --labels A,B`.",
            ability="generate",
        )
