"""A run that carries a task's head, on strings: labels with their probabilities, or numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nextword.batching.examples import Bucketed, Examples
from nextword.checkpoint import RunFolder
from nextword.contract import Infilling, NextwordError, Prediction, Tokenizer, Unsupported
from nextword.embedding import OF_TEXT, TOGETHER, Embedding, framed
from nextword.heads import Headed
from nextword.heads.framing import examples
from nextword.heads.many import ManyHeaded
from nextword.heads.settings import SEVERAL, Settings, settings_of
from nextword.models import count_parameters, model_class
from nextword.tokens import load_tokenizer, vocabulary
from nextword.training.scale import narrowed, placed

Example = str | tuple[str, str] | Sequence[str]


def open_classifier(run: RunFolder, device: torch.device, precision: str = "fp32") -> Classifier:
    """Of a run whose files have been checked."""
    recipe = run.recipe
    settings = settings_of(recipe.task or {}, str(run.path))
    model = model_class(recipe.slug)
    tokenizer = load_tokenizer(run.path / "tokenizer.json")
    length = int(recipe.phases[-1].batches.get("length", Bucketed.length))
    words, own = vocabulary(tokenizer, spellings=True), model.Config(**recipe.model)
    if settings.kind == SEVERAL:
        many = narrowed(ManyHeaded.load(run.path, settings.many(model, own), words), precision)
        return ManyClassifier(many.to(device), tokenizer, settings, length, str(run.path))
    network = narrowed(Headed.load(run.path, settings.head(model, own), words), precision)
    return Classifier(network.to(device), tokenizer, settings, length, str(run.path))


class Classifier(Embedding):
    """`predict` examples: texts, or pairs of texts. What it embeds is what fine-tuning has made of the network."""

    def __init__(self, headed: Any, tokenizer: Tokenizer, settings: Settings, length: int, name: str = "") -> None:
        self.headed, self.network, self.tokenizer, self.settings = headed.eval(), headed.under, tokenizer, settings
        self.name, self.length = name, length
        self.can = frozenset({"predict", "embed"})
        self.parameters = count_parameters(headed)
        self.two_sided = isinstance(self.network, Infilling) or getattr(self.network, "two_sided", False)
        self.room = max(
            1, min(length, getattr(self.network.config, "window", length)) - len(framed(self.network, ()).ids)
        )

    @property
    def device(self) -> torch.device:
        return self.headed.device

    def predict(self, given: Sequence[Example], progress: Callable[[int, int], None] | None = None) -> list[Prediction]:
        """A label for each, with the probability of every label; for a task of numbers, the number."""
        texts, seconds = self.columns(given)
        found = self.settings.decoded(self.said(texts, seconds, progress))
        if self.settings.kind == "regress":
            return [Prediction(f"{value:.4g}", {}, value) for value in found[:, 0].tolist()]
        labels = self.settings.labels
        return [Prediction(labels[int(np.argmax(p))], dict(zip(labels, p, strict=True))) for p in found.tolist()]

    def columns(self, given: Sequence[Example]) -> tuple[list[str], list[str] | None]:
        """One list of texts, or two; an example of the other make is an error."""
        wanted = 2 if self.pairs else 1
        rows = [(one,) if isinstance(one, str) else tuple(one) for one in given]
        for row in rows:
            if len(row) != wanted or not all(isinstance(text, str) for text in row):
                raise NextwordError(
                    f"The task of {self.name or 'this run'} is about {'two texts' if wanted == 2 else 'one text'}, and "
                    f"an example has {len(row)}: {str(row)[:80]}. Give {'(text, text)' if wanted == 2 else 'a text'}."
                )
        return [row[0] for row in rows], [row[1] for row in rows] if wanted == 2 else None

    @property
    def pairs(self) -> bool:
        return self.settings.frame != "classify"

    @torch.no_grad()
    def said(
        self,
        texts: Sequence[str],
        seconds: Sequence[str] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> np.ndarray:
        """(n, outputs) what the head says, unscaled; texts of like length are read together."""
        network, frame = self.network, self.settings.frame
        found, _ = examples(network, self.tokenizer, frame, texts, seconds, length=self.length)
        out = np.zeros((len(texts), self.settings.outputs), np.float64)
        layout, done = Bucketed(), 0
        for chosen in _together(found):
            batch = placed(layout.batch(found, chosen, 0), self.device)
            out[chosen] = self.headed(batch).double().cpu().numpy()
            done += len(chosen)
            if progress:
                progress(done, len(texts))
        return out

    def __getattr__(self, name: str) -> Any:
        if name in OF_TEXT:
            label = "a number" if self.settings.kind == "regress" else f"one of {', '.join(self.settings.labels[:5])}"
            label = f"labels of {len(self.settings.tasks)} tasks" if self.settings.tasks else label
            raise Unsupported(
                f"{self.name or 'This run'} carries a task's head: it predicts {label}, and models no text. Use "
                f"`nextword predict`; the language model that it was made of is {self.settings.source or 'elsewhere'}."
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
        if len(found) != 1:
            raise NextwordError(
                f"{self.name or 'This run'} has learnt {', '.join(self.names)}: name one of them with --task"
                + (f"; there is no {name!r} among them." if name else ".")
            )
        head = self.headed.heads[self.names.index(found[0])]
        return Classifier(head, self.tokenizer, self.settings.each[found[0]], self.length, self.name)

    def predict(
        self, given: Sequence[Example], progress: Callable[[int, int], None] | None = None, task: str = ""
    ) -> list[Prediction]:
        return self.of(task).predict(given, progress)


def _together(found: Examples) -> Iterator[np.ndarray]:
    """Examples, the longest first, as many as TOGETHER tokens hold."""
    order, lengths = Bucketed().in_order(found), found.lengths
    while len(order):
        rows = max(1, TOGETHER // int(lengths[order[0]]))
        yield order[:rows]
        order = order[rows:]
