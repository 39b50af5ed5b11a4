"""A run that tags words, on sentences: the best tags of each, and the spans that they make.

    tagger = nextword.load("runs/tagger")
    tagger.predict(["U.N. official Ekeus heads for Baghdad ."])[0].tags         # B-ORG O B-PER O O B-LOC O, as IOB2
    tagger.predict([["U.N.", "official", …]])                                   # or split into words already

A text is split as the tokenizer of words does it, with punctuation apart. Tags of spans are given as IOB2, whatever
scheme was learnt. A sentence without words has no tags.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from nextword.core.errors import NextwordError, Unsupported
from nextword.core.protocols import Tokenizer
from nextword.core.types import IGNORE, Batch, parts_of, several
from nextword.data.conll import TaggedSentence
from nextword.data.tag_schemes import PLAIN, Span, converted, spans
from nextword.lm.embedding import OF_TEXT, Contextual
from nextword.metrics.classification import together
from nextword.models import count_parameters, model_class
from nextword.run_folder import RunFolder
from nextword.tasks.settings import Settings, settings_of
from nextword.tasks.tag_objective import measured
from nextword.tasks.tag_words import Sentences, TaggedExamples, sentences
from nextword.tokenizers import vocabulary
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.ptb_words import split
from nextword.training.device import narrowed, placed

ROWS = 64  # sentences read at once
OUTPUT = "IOB2"
Load = Callable[..., Any]


def open_tagger(run: RunFolder, device: torch.device, precision: str = "fp32", load: Load | None = None) -> WordTagger:
    """Of a run whose files have been checked. `load` opens another run, which some taggers read vectors of."""
    recipe = run.recipe
    settings = settings_of(recipe.task or {}, str(run.path))
    model = model_class(recipe.slug)
    tokenizer = load_tokenizer(run.path / "tokenizer.json")
    config = settings.tag_head(model, model.Config(**recipe.model))
    network = settings.tag_class.load(run.path, config, vocabulary(tokenizer, spellings=True))
    length = int(recipe.phases[-1].batches.get("length", 0))
    own = narrowed(network, precision).to(device), tokenizer, settings, length, str(run.path), load
    return ManyTagger(*own) if settings.tasks else WordTagger(*own)


class WordTagger:
    """`predict` sentences: texts, or lists of words."""

    can = frozenset({"predict"})
    no_tags = np.zeros(0, np.int64)

    def __init__(
        self,
        headed: Any,  # heads/tags.py, or heads/views.py
        tokenizer: Tokenizer,
        settings: Settings,
        length: int = 0,
        name: str = "",
        load: Load | None = None,
    ) -> None:
        self.headed, self.network, self.tokenizer, self.settings = headed.eval(), headed.encoder, tokenizer, settings
        self.length, self.name, self.load = length, name, load
        self.parameters = count_parameters(headed)
        self._context: Contextual | None = None

    @property
    def device(self) -> torch.device:
        return self.headed.device

    @property
    def spans(self) -> bool:
        """Tags are those of spans."""
        return self.settings.scheme != PLAIN

    def predict(
        self, given: Sequence[str | Sequence[str]], progress: Callable[[int, int], None] | None = None
    ) -> list[Any]:
        words = [self.words_of(one) if isinstance(one, str) else self.given(one) for one in several(given)]
        there = [i for i, one in enumerate(words) if one]
        found = [self.said((), self.no_tags) for _ in words]
        if there:
            chosen = [words[i] for i in there]
            text, _ = sentences(self.network, self.tokenizer, chosen, length=self.length)
            if getattr(self.network, "context", 0):
                text = replace(text, features=self._in_context(chosen))
            for i, tags in zip(there, self.best(text, progress), strict=True):
                found[i] = self.said(words[i], tags)
        return found

    def said(self, words: Sequence[str], tags: np.ndarray) -> Any:
        """A sentence with its tags by their names."""
        return TaggedSentence(tuple(words), _named(tags, self.settings.labels, self.settings.scheme))

    @staticmethod
    def given(sentence: Any) -> list[str]:
        """One that is split into words already."""
        words = list(parts_of(sentence))
        if not all(isinstance(word, str) for word in words):
            raise NextwordError(f"Expected a sentence, a text or a list of words, and one is {str(sentence)[:80]}.")
        return words

    def words_of(self, text: str) -> list[str]:
        """The words of a plain text, punctuation apart; what the tokenizer knows stays whole."""
        if hasattr(self.tokenizer, "parts"):
            return self.tokenizer.parts(text)
        return [part for run in text.split() for part in split(run, ())]

    def spans_of(self, sentence: TaggedSentence) -> list[Span]:
        return spans(sentence.tags) if self.spans else []

    @torch.no_grad()
    def best(self, text: TaggedExamples, progress: Callable[[int, int], None] | None = None) -> list[Any]:
        """The best tags of every sentence, in order; sentences of like length are read together."""
        layout = Sentences(rows=ROWS)
        order = layout.in_order(text)
        found: list[Any] = [None] * len(text)
        for at in range(0, len(order), ROWS):
            chosen = order[at : at + ROWS]
            batch = placed(layout.batch(text, chosen, 0), self.device)
            there = batch.targets != IGNORE
            tags = self.tags_of(batch, there).cpu().numpy()
            for i, row, size in zip(chosen.tolist(), tags, there.sum(1).tolist(), strict=True):
                found[i] = row[:size]
            if progress:
                progress(min(at + ROWS, len(order)), len(order))
        return found

    def tags_of(self, batch: Batch, there: torch.Tensor) -> torch.Tensor:
        """(B, W)"""
        return self.headed.best(self.headed(batch), there)

    def measured(self, text: TaggedExamples) -> dict[str, float]:
        """The task's metrics on sentences with tags."""
        return measured(text, [text.of(i) for i in range(len(text))], self.best(text))

    def _in_context(self, words: Sequence[Sequence[str]]) -> np.ndarray:
        if self._context is None:
            run = self.network.config.contextual
            if self.load is None:
                raise NextwordError(f"{self.name} reads the vectors of {run} too. Open it with nextword.load.")
            try:
                self._context = Contextual(self.load(run, str(self.device)), run)
            except NextwordError as problem:
                raise NextwordError(f"{self.name} reads the vectors of {run} besides its own: {problem}") from None
            if self.network.config.contextual_of not in ("", self._context.fingerprint):
                self._context = None
                raise NextwordError(
                    f"{self.name} learnt from the vectors of {run}, whose files have changed since: they would mean "
                    "something else to it. Restore that run, or train the tagger again."
                )
        return self._context.of(words)

    def __getattr__(self, name: str) -> Any:
        if name in (*OF_TEXT, "embed", "embed_words"):
            raise Unsupported(
                f"{self.name or 'This run'} tags words: it models no text and gives no vectors. Use `nextword predict`."
            )
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


class ManyTagger(WordTagger):
    """Of a run that has learnt several tasks at once: each sentence gets tags of them all, and is read but once.

    `predict` gives for every sentence {task: TaggedSentence}.
    """

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(task.name for task in self.settings.of_tags)

    @property
    def no_tags(self) -> np.ndarray:  # type: ignore[override]
        return np.zeros((0, len(self.names)), np.int64)

    def said(self, words: Sequence[str], tags: np.ndarray) -> Any:
        each = zip(self.settings.of_tags, tags.T, strict=True)
        return {task.name: TaggedSentence(tuple(words), _named(own, task.tags, task.scheme)) for task, own in each}

    def tags_of(self, batch: Batch, there: torch.Tensor) -> torch.Tensor:
        """(B, W, tasks)"""
        return torch.stack(self.headed.best_of_all(batch.inputs, there), -1)

    def measured(self, text: Any) -> dict[str, float]:
        """The mean of what decides in each task, and each; of sentences of every task."""
        found = []
        for i, part in enumerate(text.parts):
            said = [tags[:, i] for tags in self.best(part)]
            found.append(measured(part, [part.of(k) for k in range(len(part))], said))
        return together(text.names, found)


def _named(tags: np.ndarray, labels: Sequence[str], scheme: str) -> tuple[str, ...]:
    """Tags by their names, those of spans as IOB2."""
    named = [labels[tag] for tag in tags.tolist()]
    return tuple(converted(named, OUTPUT) if scheme != PLAIN else named)
