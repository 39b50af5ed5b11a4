"""A label for every example: the class or the candidate, by cross-entropy, or a number, by squared error; and the
language beside it.

    J = 1/n Σ −log p(label | example)   or   1/n Σ (number − label)²        + language · −1/T Σ_t log p(x_{t+1} | x_≤t)
    J = Σ w_label · −log p(label | example) / Σ w_label                     where classes have weights
    J = 1/n Σ −log p(tokens of the label | example)                         where labels are written (heads/worded.py)

The second term is the auxiliary objective of Radford et al. (2018, section 3.2), for networks that read from left to
right. The network is one with a head (nextword.tasks.heads), or with a head for each of several tasks (heads/many.py): then a
batch is of one task, drawn by its size to the power of `mix`, and the mean over tasks decides. Nats are those of the
labels; of numbers, the squares of errors.

How much a class counts in the loss, from what a recipe says under [task] weights.

"balanced"                  n / (classes · n_class): all classes count alike, however rare (as in scikit-learn)
{ spam = 4.0 }              by name; those that are not named count 1
[1.0, 4.0]                  in the order of the classes

A run that carries a task's head, on strings: labels with their probabilities, or numbers; and several runs together.

Averaged([load("runs/forward"), load("runs/backward")]).predict(["A fine film."])
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.batching.examples import Bucketed, Examples
from nextword.core.errors import NextwordError, Unsupported, did_you_mean
from nextword.core.protocols import Autoregressive, Infilling, Tokenizer
from nextword.core.types import IGNORE, Batch, Loss, Prediction, State, require_list, texts_of
from nextword.lm.embedding import OF_TEXT, TOGETHER, Embedding, framed
from nextword.metrics.classification import METRICS, REGRESSION_METRICS, combine_tasks
from nextword.models import count_parameters, model_class
from nextword.models.framing import next_token_targets
from nextword.objectives.base import Objective
from nextword.run_folder import RunFolder
from nextword.tasks.attribution import attributed, of_words
from nextword.tasks.examples import examples, fitted, places
from nextword.tasks.mixtures import Several, in_turn, parts_of, validation_batches
from nextword.tasks.multiple_choice import Candidates, choices
from nextword.tasks.settings import SEVERAL, Settings, settings_of
from nextword.tokenizers import vocabulary
from nextword.tokenizers.loading import load_tokenizer
from nextword.training.device import quantize, to_device

FILLED = 128  # tokens: rows of a multiple of them, where shapes should be few


class Task(Objective[Any]):
    is_likelihood = False  # of labels, not of text
    has_metrics = True
    recordable = True  # the shape of a batch fixes its number of predictions
    unit = "prediction"

    def __init__(self, batches: Mapping[str, Any], language: float = 0.0, mix: float = 1.0) -> None:
        options = dict(batches)
        kind = options.pop("kind", "examples")
        if kind != "examples":
            raise NextwordError(f"The task objective has batches of kind examples; the recipe says '{kind}'.")
        try:
            self.layout = Candidates(**options)
        except TypeError:
            known = ", ".join(Bucketed.__dataclass_fields__)
            raise NextwordError(
                f"Batches of kind 'examples' take {known}; the recipe says {', '.join(options)}."
            ) from None
        if isinstance(language, bool) or not isinstance(language, (int, float)) or language < 0:
            raise NextwordError(f"objective: language = {language!r} is the weight of a loss: 0 or more.")
        if isinstance(mix, bool) or not isinstance(mix, (int, float)) or not 0 <= mix <= 1:
            raise NextwordError(
                f"objective: mix = {mix!r}; expected a number from 0 (all tasks are drawn alike) to 1 (by their size)."
            )
        self.language, self.mix = float(language), float(mix)

    @property
    def length(self) -> int:
        """Tokens in the longest example."""
        return self.layout.length

    def limit_shapes(self) -> None:
        """Batches of few shapes, for those who record what is done with each."""
        self.layout = replace(self.layout, fill=min(FILLED, self.layout.length))

    def batches_per_epoch(self, text: Examples | Several) -> int:
        return sum(map(self.layout.batches_per_epoch, parts_of(text)))

    def batches(self, text: Examples | Several, seed: int, step: int) -> Iterator[Batch]:
        if isinstance(text, Several):
            return in_turn(self.layout, text, seed, step, self.mix)
        return self.layout.batches(text, seed, step)

    def validation_batches(self, text: Examples | Several) -> Iterator[Batch]:
        return validation_batches(self.layout, text)

    def check(self, network: Any) -> None:
        """Or an error: the language beside the task goes with this network."""
        if not self.language:
            return
        encoder = getattr(network, "encoder", network)
        out = "Leave it out (--set 'phase.*.objective.language=0')."
        if hasattr(network, "written"):
            raise Unsupported(
                f"objective: language = {self.language:g} is for networks that read from left to right, and here "
                f"labels are written. {out}"
            )
        both = isinstance(encoder, Infilling) or hasattr(
            encoder, "backward"
        )  # one model, or two that read from both ends
        if not isinstance(encoder, Autoregressive) or both:
            raise Unsupported(
                f"objective: language = {self.language:g} is for networks that read from left to right; "
                f"{type(encoder).__name__} sees both sides of a token. {out}"
            )
        if getattr(network, "is_stateful", False):
            raise NextwordError(
                f"objective: language = {self.language:g} is for texts that are read at once; [task] chunk = "
                f"{network.config.chunk} reads them piece by piece. Leave out either."
            )

    def tokens_per_prediction(self, network: Any, text: Examples | Several) -> float:
        """How many tokens the nats of one prediction are of, for whoever asks whether they are too many: a label that
        is written is paid for to its end, and squares of errors have no bound."""
        if hasattr(network, "written"):
            return float(network.sizes.max())
        numbers = any(np.issubdtype(part.labels.dtype, np.floating) for part in parts_of(text))
        return math.inf if numbers else 1.0

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        if hasattr(network, "written"):
            return self._written(network, batch)
        parts: dict[str, Tensor] = {}
        if self.language and network.training:
            layers = network.encoder.hidden(batch.inputs, None)[0]
            said, beside = network.judge(layers[network.at], batch), self._beside(network, layers[-1], batch)
        else:
            said, beside = network(batch), None
        count = len(batch.targets)
        if batch.targets.is_floating_point():
            nats = F.mse_loss(said.squeeze(-1), batch.targets, reduction="sum")
        else:
            nats = F.cross_entropy(said, batch.targets, reduction="sum")
        weights = getattr(network, "weights", None)
        value = nats / count if weights is None else F.cross_entropy(said, batch.targets, weights)
        if beside is not None:
            parts = {"task": value.detach(), "language": beside.detach()}
            value = value + self.language * beside
        if not network.training and hasattr(network, "evened"):
            said = network.evened(said)
        return Loss(value, nats.detach(), count, None, parts, said.detach())

    def _written(self, network: Any, batch: Batch) -> Loss:
        """A label in words costs what its tokens cost, whatever other labels would; all are compared in use alone."""
        every = None if network.training else network.every(batch)
        log_p = network.written(batch) if every is None else every.gather(1, batch.targets.unsqueeze(1)).squeeze(1)
        said = None if every is None else network.said(every).detach()
        weights = None if network.weights is None else network.weights[batch.targets]
        value = -log_p.mean() if weights is None else -(weights * log_p).sum() / weights.sum()
        return Loss(value, -log_p.sum().detach(), len(log_p), None, {}, said)

    def _beside(self, network: Any, h: Tensor, batch: Batch) -> Tensor:
        """Nats a token of the texts themselves."""
        targets = next_token_targets(batch.inputs, network.vocabulary.size)
        total = network.encoder.readout.total(h.flatten(0, 1), targets.flatten())
        return total / (targets != IGNORE).sum().clamp(min=1)

    # -------------------------------------------------------------------------------------------- how good it is

    def metrics(self, text: Examples | Several, said: Tensor) -> dict[str, float]:
        """What the examples ask for, of what was said of them in the order of `held_out`; the first decides."""
        if isinstance(text, Several):
            sizes = [len(part) for part in text.parts]
            return combine_tasks(text.names, [self.metrics(*one) for one in zip(text.parts, said.split(sizes), strict=True)])
        gold = (text.labels if text.gold is None else text.gold)[self.layout.in_order(text)]
        return measured(text.metrics, gold, said.float().cpu().numpy())


def measured(names: tuple[str, ...], gold: np.ndarray, said: np.ndarray) -> dict[str, float]:
    """Metrics by name, of what a head says (n, outputs)."""
    classes, numbers = said.argmax(-1), said[:, 0]
    return {name: METRICS[name](gold, numbers if name in REGRESSION_METRICS else classes) for name in names}


BALANCED = "balanced"
SHOWN = 8  # weights in a note


def class_weights(asked: Any, data: Any) -> tuple[float, ...]:
    """One for each class of the data, in their order; none: all count alike."""
    if isinstance(asked, (str, list, tuple, Mapping)) and not asked:
        return ()
    if data.kind not in ("classify", "pair"):
        what = "tags of words" if data.kind == "tag" else "numbers"
        raise NextwordError(f"[task] weights are of classes, and {data.name} is about {what}. Leave them out.")
    labels = data.labels
    if asked == BALANCED:
        train = data.splits["train"].labels
        counts = Counter(train)
        return tuple(len(train) / (len(labels) * counts[label]) for label in labels)
    if isinstance(asked, Mapping):
        for name in asked:
            if name not in labels:
                raise NextwordError(
                    f"[task] weights names the class {name!r}.{did_you_mean(name, labels)} There are "
                    f"{', '.join(labels[:8])}."
                )
        asked = [asked.get(label, 1.0) for label in labels]
    if not isinstance(asked, (list, tuple)):
        raise NextwordError(
            f"[task] weights = {asked!r}; expected '{BALANCED}', a table as {{{labels[0]} = 2.0}}, or a list."
        )
    if len(asked) != len(labels):
        raise NextwordError(
            f"[task] weights has {len(asked)} numbers, and there are {len(labels)} classes: {', '.join(labels[:8])}."
        )
    for label, weight in zip(labels, asked, strict=True):
        number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if not number or not math.isfinite(weight) or weight <= 0:
            raise NextwordError(f"[task] weights: {weight!r} for {label}; expected a number above 0.")
    return tuple(float(weight) for weight in asked)


def weights_told(settings: Settings) -> list[str]:
    if not settings.weights:
        return []
    some = [f"{label} {weight:.3g}" for label, weight in zip(settings.labels, settings.weights, strict=True)][:SHOWN]
    more = f" and {len(settings.labels) - SHOWN} more" if len(settings.labels) > SHOWN else ""
    return [f"classes have weights in the loss: {', '.join(some)}{more}"]


Example = str | tuple[str, str] | Sequence[str]

ROWS = 64  # texts at once, where each is read piece by piece


@dataclass(frozen=True)
class Explained:
    """How much each word of an example speaks for a label, or, below zero, against it."""

    label: str  # that was predicted, or asked for
    words: tuple[list[str], ...]  # of its text, or of its two texts
    weights: tuple[list[float | None], ...]  # None: the word was not read, for the text was cut before it
    said: float  # the logit of the label above the mean of all, or the number
    blank: float  # the same of a text of blanks, as long: the weights add up to the difference of the two
    gap: float  # but for this


def open_headed(run: RunFolder, device: torch.device, precision: str) -> tuple[Any, Tokenizer, Settings]:
    """The network with its head, the tokenizer and the settings of a run whose files have been checked."""
    recipe = run.recipe
    settings = settings_of(recipe.task or {}, str(run.path))
    tokenizer = load_tokenizer(run.path / "tokenizer.json")
    known = vocabulary(tokenizer, spellings=True)
    headed = settings.load(run.path, model_class(recipe.slug), recipe.model, known)
    return quantize(headed, precision).to(device), tokenizer, settings


def open_classifier(run: RunFolder, device: torch.device, precision: str = "fp32") -> Classifier:
    """Of a run whose files have been checked."""
    headed, tokenizer, settings = open_headed(run, device, precision)
    length = int(run.recipe.phases[-1].batches.get("length", Bucketed.length))
    kind = {"choice": Chooser, SEVERAL: ManyClassifier}.get(settings.kind, Classifier)
    return kind(headed, tokenizer, settings, length, str(run.path))


class Classifier(Embedding):
    """`predict` examples: texts, or pairs of texts. What it embeds is what fine-tuning has made of the network."""

    def __init__(self, headed: Any, tokenizer: Tokenizer, settings: Settings, length: int, name: str = "") -> None:
        self.headed, self.network, self.tokenizer, self.settings = headed.eval(), headed.encoder, tokenizer, settings
        self.name, self.length = name, length
        self.can = frozenset({"predict", "embed"})
        self.parameters = count_parameters(headed)
        self.is_bidirectional = isinstance(self.network, Infilling) or getattr(self.network, "is_bidirectional", False)
        most = min(filter(None, (length, getattr(self.network.config, "window", 0))), default=TOGETHER)
        self.room = max(1, most - len(framed(self.network, ()).ids))

    @property
    def device(self) -> torch.device:
        return self.headed.device

    def predict(
        self,
        given: Sequence[Example],
        progress: Callable[[int, int], None] | None = None,
        notes: list[str] | None = None,
    ) -> list[Prediction]:
        """A label for each, with the probability of every label; for a task of numbers, the number.

        `notes`: to be given what is to be known of how they were read.
        """
        texts, seconds = self.columns(given)
        found = self.settings.decoded(self.said(texts, seconds, progress, notes))
        if self.settings.kind == "regress":
            return [Prediction(f"{value:.4g}", {}, value) for value in found[:, 0].tolist()]
        labels = self.settings.labels
        return [Prediction(labels[int(np.argmax(p))], dict(zip(labels, p, strict=True))) for p in found.tolist()]

    def columns(self, given: Sequence[Example]) -> tuple[list[str], list[str] | None]:
        """One list of texts, or two; an example of the other make is an error."""
        wanted = 2 if self.pairs else 1
        rows = [texts_of(one) for one in require_list(given)]
        for i, row in enumerate(rows):
            if len(row) != wanted or not all(isinstance(text, str) for text in row):
                odd = next((text for text in row if not isinstance(text, str)), None)
                what = f"has {len(row)}: {str(row)[:80]}" if len(row) != wanted else f"has {str(odd)[:40]}, no text"
                raise NextwordError(
                    f"The task of {self.name or 'this run'} is about {'two texts' if wanted == 2 else 'one text'}, and "
                    f"example {i + 1} {what}. Give {'(text, text)' if wanted == 2 else 'a text'}."
                )
        return [row[0] for row in rows], [row[1] for row in rows] if wanted == 2 else None

    @property
    def pairs(self) -> bool:
        return self.settings.frame != "classify"

    def said(
        self,
        texts: Sequence[str],
        seconds: Sequence[str] | None = None,
        progress: Callable[[int, int], None] | None = None,
        notes: list[str] | None = None,
    ) -> np.ndarray:
        """(n, outputs) what the head says, unscaled; texts of like length are read together."""
        network, frame = self.network, self.settings.frame
        own = self.length, self.headed.is_stateful
        found, cut = examples(network, self.tokenizer, frame, texts, seconds, None, *own)
        self.tell_cut(cut, len(texts), notes)
        return self.said_of(found, progress)

    def tell_cut(self, cut: int, number: int, notes: list[str] | None) -> None:
        if cut and notes is not None:
            notes.append(f"{cut:,} of {number:,} examples are longer than {self.length:,} tokens and are cut")

    @torch.no_grad()
    def said_of(self, found: Examples, progress: Callable[[int, int], None] | None = None) -> np.ndarray:
        """The same of framed examples."""
        parts: dict[int, np.ndarray] = {}
        layout, done = Candidates(), 0
        for chosen in _together(found, getattr(self.headed, "is_stateful", False)):
            batch = to_device(layout.batch(found, chosen, 0), self.device)
            parts |= dict(zip(chosen.tolist(), self.headed(batch).double().cpu().numpy(), strict=True))
            done += len(chosen)
            if progress:
                progress(done, len(found))
        return np.stack([parts[i] for i in range(len(found))]) if parts else np.zeros((0, self.settings.outputs))

    # -------------------------------------------------------------------------------------------- why

    def explain(self, given: Sequence[Example], labels: Sequence[str] | None = None) -> list[Explained]:
        """Which words speak for the label that is predicted of each, or for these labels: integrated gradients
        (heads/attribution.py), summed over the tokens of a word."""
        texts, seconds = self.columns(given)
        if labels is None:
            labels = [one.label for one in self.predict(given)]
        columns = [texts] if seconds is None else [texts, seconds]
        return [self._explained(row, label) for row, label in zip(zip(*columns, strict=True), labels, strict=True)]

    def _explained(self, texts: tuple[str, ...], label: str) -> Explained:
        frame, scale = self.settings.frame, 1.0
        output = 0 if self.settings.kind == "regress" else list(self.settings.labels).index(label)
        if self.settings.kind == "regress":
            scale = self.settings.spread  # in the labels' own units
        second = [texts[1]] if len(texts) > 1 else None
        example, _ = examples(self.network, self.tokenizer, frame, [texts[0]], second, length=self.length)
        encodings = self.tokenizer.encode_batch(list(texts))
        sizes = fitted(self.network, frame, tuple(map(len, encodings)), self.length)
        lie = [
            [at + start for at in some]
            for start, some in zip(example.starts.tolist(), places(self.network, frame, sizes), strict=False)
        ]
        own = np.zeros(len(example.ids), bool)
        for some in lie:
            for at in some:
                own[at] = True
        found = attributed(self.headed, example, own, output, partial(to_device, device=self.device))
        words = tuple(text.split() for text in texts)
        weights = tuple(
            of_words(sum((scale * found.tokens[f[i]] for f in lie if len(f[i])), np.zeros(n)), one.words, len(words[i]))
            for i, (one, n) in enumerate(zip(encodings, sizes, strict=True))
        )
        base = self.settings.center if self.settings.kind == "regress" else 0.0
        return Explained(
            label, words, weights, scale * found.said + base, scale * found.blank + base, scale * found.gap
        )

    def __getattr__(self, name: str) -> Any:
        if name in OF_TEXT:
            raise Unsupported(
                f"{self.name or 'This run'} carries a task's head: it predicts {self.settings.says}, and models no "
                "text. Use `nextword predict`; the language model that it was made of is "
                f"{self.settings.source or 'elsewhere'}."
            )
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


class ManyClassifier(Classifier):
    """Of a run that has learnt several tasks: `of` is a classifier for one of them; they share the network."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.settings.each)

    def of(self, name: str) -> Classifier:
        """By the task's name; of a file, its name without the folder is enough."""
        plain = {key: Path(key).name.lower() for key in self.names}
        found = [key for key in self.names if name in (key, plain[key]) or name.lower() == plain[key].split(".")[0]]
        found = [name] if name in found else found
        if len(found) != 1:
            raise NextwordError(
                f"{self.name or 'This run'} has learnt {', '.join(self.names)}: name one of them with --task"
                + (f"; there is no {name!r} among them." if name else ".")
            )
        head = self.headed.heads[self.names.index(found[0])]
        return Classifier(head, self.tokenizer, self.settings.each[found[0]], self.length, self.name)

    def predict(
        self,
        given: Sequence[Example],
        progress: Callable[[int, int], None] | None = None,
        notes: list[str] | None = None,
        task: str = "",
    ) -> list[Prediction]:
        return self.of(task).predict(given, progress, notes)


class Chooser(Classifier):
    """`predict` examples that offer candidates: (context, [candidates]), or (context, question, [candidates])."""

    def predict(
        self,
        given: Sequence[Any],
        progress: Callable[[int, int], None] | None = None,
        notes: list[str] | None = None,
    ) -> list[Prediction]:
        """The number of the best candidate, from 0 on, with the probability of each."""
        rows = [self.example(one) for one in require_list(given)]
        columns = [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
        found, cut = choices(self.network, self.tokenizer, *columns, length=self.length)
        self.tell_cut(cut, len(rows), notes)
        made = []
        for row, p in zip(rows, self.settings.decoded(self.said_of(found, progress)), strict=True):
            shares = {str(i): float(share) for i, share in enumerate(p[: len(row[2])])}
            made.append(Prediction(max(shares, key=lambda i: shares[i]), shares))
        return made

    def example(self, one: Any) -> tuple[str, str, Sequence[str]]:
        """Context, question and candidates of an example; one of another make is an error."""
        parts = texts_of(one)
        texts, some = parts[:-1], parts[-1] if parts and isinstance(parts[-1], (list, tuple)) else ()
        good = len(texts) in (1, 2) and all(isinstance(text, str) for text in (*texts, *some))
        if not good or len(some) < 2:
            raise NextwordError(
                f"The task of {self.name or 'this run'} is about a context and at least two candidates, and an example "
                f"is {str(one)[:80]!r}. Give (context, [candidates]), or (context, question, [candidates])."
            )
        return texts[0], texts[1] if len(texts) == 2 else "", tuple(some)


class Averaged:
    """Several runs of one task: the mean of their probabilities, or of their numbers (Howard & Ruder 2018, 3.3)."""

    def __init__(self, models: Sequence[Any]) -> None:
        self.models = tuple(models)
        if not self.models:
            raise NextwordError("There is no run to predict with. Give at least one.")
        for one in self.models:
            if not hasattr(one, "pairs"):
                name = getattr(one, "name", "") or "A run"
                raise NextwordError(f"{name} carries no head of a task of texts, so it cannot be averaged with others.")
        first, *others = self.models
        self.settings, self.pairs = first.settings, first.pairs
        self.name = " + ".join(one.name for one in self.models)
        self.can = frozenset({"predict"})
        self.parameters = sum(one.parameters for one in self.models)
        for one in others:
            self._check(first, one)

    @staticmethod
    def _check(first: Classifier, other: Classifier) -> None:
        a, b = first.settings, other.settings
        if (a.kind, first.pairs) != (b.kind, other.pairs) or set(a.labels) != set(b.labels):
            told = [
                f"{one.name or 'one run'} ({'a number' if s.kind == 'regress' else ', '.join(s.labels[:8])}, of "
                f"{'two texts' if one.pairs else 'one text'})"
                for one, s in ((first, a), (other, b))
            ]
            raise NextwordError(
                f"Runs are averaged that learnt the same task with the same labels; these are of "
                f"{told[0]} and {told[1]}."
            )

    def predict(
        self,
        given: Sequence[Example],
        progress: Callable[[int, int], None] | None = None,
        notes: list[str] | None = None,
    ) -> list[Prediction]:
        given = require_list(given)
        total, share = len(given) * len(self.models), 1 / len(self.models)
        found: list[list[Prediction]] = []
        for i, model in enumerate(self.models):
            before = i * len(given)
            told = None if progress is None else lambda done, _, before=before: progress(before + done, total)
            found.append(model.predict(given, told, None if i else notes))
        if self.settings.kind == "regress":
            numbers = [share * sum(one.value or 0.0 for one in all_said) for all_said in zip(*found, strict=True)]
            return [Prediction(f"{value:.4g}", {}, value) for value in numbers]
        said = []
        for all_said in zip(*found, strict=True):
            odds = {k: share * sum(one.probabilities[k] for one in all_said) for k in self.settings.labels}
            said.append(Prediction(max(odds, key=lambda k: odds[k]), odds))
        return said


def _together(found: Examples, pieces: bool) -> Iterator[np.ndarray]:
    """Examples, the longest first, as many as TOGETHER tokens hold; ROWS where they are read piece by piece."""
    order, lengths = Bucketed().in_order(found), found.lengths
    while len(order):
        rows = ROWS if pieces else max(1, TOGETHER // int(lengths[order[0]]))
        yield order[:rows]
        order = order[rows:]
