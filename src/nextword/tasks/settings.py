"""[task] of a recipe: what a head reads and says. A recipe for fine-tuning sets a few; a run's own has them all."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from nextword.core.errors import NextwordError
from nextword.core.types import Vocabulary
from nextword.metrics.classification import MEAN, METRICS
from nextword.metrics.spans import TAGGING_METRICS
from nextword.metrics.squad import ANSWER_METRICS_2_0
from nextword.tasks.base import ModelWithHead
from nextword.tasks.heads import HeadConfig, Headed

WORDS = "words"  # the classifier that writes its labels
PROMPT = "prompt"  # no head: labels are asked of a language model, after solved examples (prompting.py)
VIEWS = "views"  # the classifier that sees words from several sides
KINDS = ("classify", "pair", "regress", "tag", "span", "choice")
SEVERAL = "several"  # tasks on labelled texts, each with a head


@dataclass(frozen=True)
class Settings:
    reads: str = "speaker"  # the vector that speaks for the whole, as the paper of the network has it; or of pooling.py
    dropout: float = 0.1  # before the head
    classifier: str = "linear"  # or "blocks"; or "biattentive", which reads every vector; of tags, or "crf", or "views"
    inner: Sequence[int] = (50,)  # of blocks: widths between their linear layers,
    drops: Sequence[float] = ()  # and what is dropped before each; empty: `dropout`
    chunk: int = 0  # tokens read at once by networks that carry their state; 0: all
    kept: int = 0  # tokens at the end of a text that the head reads, and the gradient reaches; 0: all
    features: str = ""  # the layer that is read, by name or number; "": the last
    frozen: bool = False  # the network under the head stays as it came
    width: int = 300  # of a biattentive classifier; of views, between their two layers
    reduction: int = 4
    scheme: str = "BIOES"  # that tags of spans are learnt in; what the data has is converted
    strict: bool = False  # a CRF learns under the constraints of the scheme, and not only decodes under them
    longest: int = 30  # tokens of an answer that is a span
    threshold: float = 0.0  # how much better than a span "no answer" has to be, where questions may have none
    template: str = ""  # of a prompt: what is read, with {label} in it, and {text} and {second}; "": prompting.py
    shots: int = 0  # solved examples in it, drawn by the seed
    calibrate: bool = False  # take off what labels are worth without the text
    asks: str = ""  # of labels in words: what is read, with {text} in it, and of two texts {second}; "": worded.py
    words: Mapping[str, str] = field(default_factory=dict)  # and what is written for a label, there and in a prompt
    step: float = 0.0  # of numbers in words: from one that is written to the next; 0: numbered.py
    weights: Any = ""  # of classes in the loss: "balanced", {class: weight}, or a list in the order of the classes
    fresh: int = 0  # so many of the last layers are drawn anew, and the pooler with them
    share: float = 1.0  # of the training examples, drawn by the seed: the first of a tenth are those of a hundredth
    final: bool = False  # examples of dev are learnt too, and the last weights kept: once everything is chosen
    changes: Mapping[str, Sequence[str]] = field(default_factory=dict)  # data set → what to --set for it
    # what follows is of a run: it comes from the data and the command
    kind: str = ""  # classify: a class of one text; pair: of two; regress: a number; tag; span; choice; several
    frame: str = ""  # how examples are framed: models/frames.py
    labels: Sequence[str] = ()  # the classes
    tasks: Sequence[Mapping[str, Any]] = ()  # of several tasks at once: name of each, and what of the rest is its own
    numbers: Sequence[str] = ()  # of numbers in words: those that are written, the least first
    spelled: Sequence[Sequence[int]] = ()  # of labels in words, or of numbers: the tokens of each
    unanswered: bool = False  # some questions have no answer
    center: float = 0.0  # numbers are learnt as (number − center) / spread
    spread: float = 1.0
    metrics: Sequence[str] = ()  # the first decides
    text: str = ""  # columns
    second: str = ""
    label: str = ""
    source: str = ""  # the run that was transferred
    scratch: bool = False  # its network, but none of its weights

    def table(self) -> dict[str, Any]:
        return {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items() if key != "changes"}

    @property
    def outputs(self) -> int:
        return 1 if self.kind in ("regress", "choice") else len(self.labels)

    def over(self, model: Any, config: Any) -> tuple[type[ModelWithHead], Any]:
        from nextword.tasks.label_text import LabelTextModel, Numbered, WordedConfig
        from nextword.tasks.multiple_choice import Choosing
        from nextword.tasks.multitask import ManyHeaded
        from nextword.tasks.question_answering import SpanConfig, Spanning

        """The head over a network of this class and Config: its class, and its settings."""
        if self.kind == "tag":
            return self.tag_class, self.tag_head(model, config)
        if self.kind == SEVERAL:
            return ManyHeaded, self.many(model, config)
        if self.kind == "span":
            own = self.longest, self.dropout, str(self.features), self.frozen
            return Spanning, SpanConfig(model, config, *own)
        if self.worded:
            labels = tuple(tuple(one) for one in self.spelled)
            written = WordedConfig(model, config, labels, self.frozen, tuple(self.weights))
            return Numbered if self.numbers else LabelTextModel, written
        return Choosing if self.kind == "choice" else Headed, self.head(model, config)

    def load(self, folder: Path, model: Any, settings: Mapping[str, Any], vocabulary: Vocabulary) -> ModelWithHead:
        """The network of this class with its head, out of a run's folder."""
        head, config = self.over(model, model.Config(**settings))
        return head.load(folder, config, vocabulary)

    @property
    def worded(self) -> bool:
        """Whether labels are written, and not read off a head."""
        return self.classifier == WORDS

    @property
    def prompted(self) -> bool:
        """Whether there is no head, and nothing is trained."""
        return self.classifier == PROMPT

    @property
    def says(self) -> str:
        """What is said of an example, in words."""
        words = {"regress": "a number", "span": "an answer out of a passage", "choice": "one of several candidates"}
        if self.tasks:
            return f"labels of {len(self.tasks)} tasks"
        return words.get(self.kind) or f"one of {', '.join(self.labels[:5])}"

    def head(self, model: Any, config: Any) -> HeadConfig:
        """The head over a network of this class and Config."""
        own = self.classifier, str(self.features), self.frozen, self.width, self.reduction
        more = tuple(self.inner), tuple(self.drops), self.chunk, self.kept, tuple(self.weights)
        return HeadConfig(model, config, self.outputs, self.frame, self.reads, self.dropout, *own, *more)

    def tag_head(self, model: Any, config: Any) -> Any:
        from nextword.tasks.cross_view import ViewsConfig
        from nextword.tasks.tagging import TagConfig

        """The head of tags over a network of this class and Config; `labels` are the tags."""
        if self.classifier == VIEWS:
            return ViewsConfig(model, config, self.of_tags, self.width, str(self.features), self.frozen)
        own = self.classifier, self.strict, self.dropout, str(self.features), self.frozen
        return TagConfig(model, config, tuple(self.labels), self.scheme, *own)

    @property
    def each(self) -> dict[str, Settings]:
        """Of several tasks on texts, the settings of every one."""
        return {
            one["name"]: replace(self, tasks=(), **{key: v for key, v in one.items() if key != "name"})
            for one in self.tasks
        }

    def many(self, model: Any, config: Any) -> Any:
        from nextword.tasks.multitask import ManyConfig

        """The heads of several tasks over a network of this class and Config."""
        heads = tuple(one.head(model, config) for one in self.each.values())
        return ManyConfig(model, config, heads, str(self.features), self.frozen)

    @property
    def tag_class(self) -> Any:
        from nextword.tasks.cross_view import Views
        from nextword.tasks.tagging import Tagging

        return Views if self.classifier == VIEWS else Tagging

    @property
    def of_tags(self) -> tuple[Any, ...]:
        from nextword.tasks.cross_view import TagTask

        """The tasks that a head of tags has: one, or several."""
        if not self.tasks:
            return (TagTask("", tuple(self.labels), self.scheme),)
        return tuple(TagTask(one["name"], tuple(one["labels"]), one["scheme"]) for one in self.tasks)

    def encoded(self, labels: Sequence[str]) -> np.ndarray:
        """Labels as a head learns them: the number of the class, or the scaled number."""
        if self.kind == "regress":
            return ((np.array(labels, np.float64) - self.center) / self.spread).astype(np.float32)
        if self.kind == "choice":  # labels are the candidates' numbers
            return np.array(labels, np.int64)
        place = {label: i for i, label in enumerate(self.labels)}
        return np.array([place[label] for label in labels], np.int64)

    def decoded(self, said: np.ndarray) -> np.ndarray:
        """What a head says (n, outputs), as probabilities of the classes (n, classes), or as numbers (n, 1)."""
        if self.numbers:  # as they are written, to the last digit
            return np.array(self.numbers, np.float64)[said.astype(np.int64)]
        if self.kind == "regress":
            return said * self.spread + self.center
        odds = np.exp(said - said.max(-1, keepdims=True))
        return odds / odds.sum(-1, keepdims=True)


DECIDED = [f.name for f in fields(Settings)].index("changes")  # from there on a run's data and command decide
CHOSEN: Mapping[str, Any] = {f.name: f.default for f in fields(Settings)[:DECIDED]}  # what a recipe may say
DECIDED_BY_DATA: Mapping[str, Any] = {f.name: f.default for f in fields(Settings)[DECIDED + 1 :]}


def settings_of(table: Mapping[str, Any], where: str) -> Settings:
    known = [f.name for f in fields(Settings)]
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise NextwordError(f"{where}: [task] has no key '{key}'.{hint} It has {', '.join(known)}.")
    found = Settings(**table)
    changes = found.changes
    wrong = not isinstance(changes, Mapping) or not all(
        isinstance(one, (list, tuple)) and all(isinstance(text, str) for text in one) for one in changes.values()
    )
    if wrong:
        raise NextwordError(
            f"{where}: [task.changes] has a list for a data set, as in RTE = ['phase.0.epochs=10']; got {changes!r}."
        )
    if isinstance(found.fresh, bool) or not isinstance(found.fresh, int) or found.fresh < 0:
        raise NextwordError(
            f"{where}: [task] fresh = {found.fresh!r}; expected how many of the last layers are drawn anew, as 2."
        )
    if isinstance(found.shots, bool) or not isinstance(found.shots, int) or found.shots < 0:
        raise NextwordError(f"{where}: [task] shots = {found.shots!r}; expected how many examples are shown, as 16.")
    for key, chosen in (("final (--final)", found.final), ("calibrate", found.calibrate)):
        if not isinstance(chosen, bool):
            raise NextwordError(f"{where}: [task] {key} = {chosen!r}; expected true or false.")
    words = found.words
    if not isinstance(words, Mapping) or not all(isinstance(one, str) and one.strip() for one in words.values()):
        like = "{ 0 = 'bad', 1 = 'good' }"
        raise NextwordError(f"{where}: [task] words = {words!r}; expected what is written for labels, as {like}.")
    step = found.step
    if isinstance(step, bool) or not isinstance(step, (int, float)) or not 0 <= step < math.inf:
        raise NextwordError(f"{where}: [task] step = {step!r}; expected how far apart numbers are written, as 0.2.")
    for name, mark in (("asks", "{text}"), ("template", "{label}")):
        if not isinstance(getattr(found, name), str):
            raise NextwordError(
                f"{where}: [task] {name} = {getattr(found, name)!r}; expected a text with {mark} in it."
            )
    for name in ("inner", "drops"):
        if not isinstance(getattr(found, name), (list, tuple)):
            raise NextwordError(
                f"{where}: [task] {name} = {getattr(found, name)!r} must be a list, as in [50] or [0.4, 0.1]."
            )
    if not isinstance(found.metrics, (list, tuple)):
        raise NextwordError(f"{where}: [task] metrics = {found.metrics!r} must be a list, as in ['macro_f1'].")
    of_several = (MEAN, *(one["name"] for one in found.tasks)) if found.tasks else ()
    for name in found.metrics:
        if name not in (*METRICS, *TAGGING_METRICS, *ANSWER_METRICS_2_0, *of_several):
            there = ", ".join((*METRICS, *TAGGING_METRICS, *ANSWER_METRICS_2_0))
            raise NextwordError(f"{where}: [task] metrics names '{name}'. There are {there}.")
    if isinstance(found.threshold, bool) or not isinstance(found.threshold, (int, float)):
        raise NextwordError(f"{where}: [task] threshold = {found.threshold!r}; expected a number, as 0.0.")
    if isinstance(found.share, bool) or not isinstance(found.share, (int, float)) or not 0 < found.share <= 1:
        raise NextwordError(
            f"{where}: [task] share (--labels) = {found.share!r}; expected a share of the training examples, above 0 "
            "and at most 1, as 0.1."
        )
    return found
