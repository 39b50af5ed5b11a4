"""Labels for texts from a model that was never shown one: which label would it write after the text?

    The match ended two to one. This text is about ▁▁▁.        sports  −2.1    weather  −5.4    nats a token

Each label is put into a template behind the text, and what the model pays for it, and for what follows it in the
template, is its score. Scores are log p a token, so that long labels are not punished, or with `calibrate` log p less
log p of the same label after the template alone (Holtzman et al. 2021; the `unconditional` rule of Brown et al. 2020):
so labels that are likely anyway win nothing. Probabilities are the softmax of the scores: shares among these labels.

    reads from left to right       log p(label and the rest | text, beginning of the template)
    sees both sides                the same as a pseudo-likelihood: each token hidden in turn
    writes what is missing (T5)    log p(label) where a sentinel stands in the template
    makes a text from a source     log p(label) as the target of the text and the template's beginning

With solved examples ahead of the text, each in the same template, a model may learn from its prompt what is asked
(in-context, Brown et al. 2020): nothing of it is trained.

    The vote was close. This text is about politics.⏎⏎The match ended two to one. This text is about ▁▁▁.

`ZeroShot` asks any model that is open; `InContext` is a run folder that `nextword transfer gpt3/in-context` has made:
the files of a language model, and `prompt.txt`, what stands before every text.

Transfer in context (Brown et al. 2020): a language model stays as it is, and some training rows stand before a text.

    training rows ──seed──▶ shots of them, class after class ──template──▶ prompt.txt        what varies with the seed
    run           ───────────────────────────────────────────────────────▶ its model, as it is

`nextword.tasks.in_context` asks the model; here is what a plan needs for it, and what cannot be done that way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nextword.convert.base import model_files
from nextword.core.errors import NextwordError, Unsupported
from nextword.core.io import link_or_copy
from nextword.core.types import EXACT, Prediction, require_list, texts_of
from nextword.data.tables import Rows
from nextword.lm.completion import likelihoods, window_of
from nextword.lm.embedding import OF_TEXT
from nextword.models import abilities, model_class
from nextword.recipe import BUDGETS, Recipe
from nextword.run_folder import RunFolder
from nextword.tasks.classification import measured
from nextword.tasks.label_text import in_words, places
from nextword.tasks.settings import CHOSEN, PROMPT, Settings, settings_of
from nextword.tasks.subsets import NOTE
from nextword.tasks.text_data import DataSet

TEMPLATE = "This text is about {label}."
OF_TWO = "{text}\nquestion: {second}\nanswer: {label}"  # where two texts are asked about
NUMBER, OF_TWO_NUMBER = "{text}\nscore: {label}", "{text}\n{second}\nscore: {label}"
LABEL, TEXT, SECOND = "{label}", "{text}", "{second}"
APART = "\n\n"  # between examples
FILE = "prompt.txt"
AT_ONCE = 128  # texts
Example = str | tuple[str, str]
Solved = Sequence[tuple[Example, str]]  # texts, or pairs of texts, with their labels
Costs = tuple[np.ndarray, np.ndarray]  # nats and tokens (texts, labels)
Progress = Callable[[int, int], None]


class ZeroShot:
    """A language model as a classifier: `predict` texts, as of a run that carries a head; pairs of them, where {second}
    is in the template. `solved`: examples that stand before every text."""

    can = frozenset({"predict"})
    named = ("--labels", "--template")  # what errors call the labels that are put in, and what they are put into

    def __init__(
        self,
        lm: Any,
        labels: Sequence[str],
        template: str = TEMPLATE,
        calibrate: bool = False,
        name: str = "",
        solved: Solved = (),
    ) -> None:
        put = tuple(label.strip() for label in labels)
        if len(put) < 2 or not all(put) or len(set(put)) < len(put):
            raise NextwordError(
                f"{self.named[0]} {','.join(labels)}: expected two labels or more, none empty and none twice, as "
                '"sports,politics,weather".'
            )
        if "score" not in getattr(lm, "can", ()):
            raise Unsupported(
                f"{name or 'This run'} gives no text a probability, so no label can be scored. Take a language model, "
                "or transfer this run to labelled texts (`nextword transfer`)."
            )
        self.lm, self.name, self.calibrate, self.put = lm, name, calibrate, put
        self.before, self.after = _halves(template, self.named[1])
        self.pairs = SECOND in self.before
        self.ahead = self.shown(solved)
        kind, frame = ("pair", "entail") if self.pairs else ("classify", "classify")
        self.settings = Settings(kind=kind, frame=frame, labels=put, metrics=("accuracy", "macro_f1"))
        self._alone: Costs | None = None

    @property
    def parameters(self) -> int:
        return self.lm.parameters

    def shown(self, solved: Solved) -> str:
        """Examples as they stand before a text, each with its label behind it."""
        return "".join(f"{self.asked(one)} {label}{self.after}{APART}" for one, label in solved)

    def asked(self, one: Example) -> str:
        """A text, or two, in the template, up to where the label stands."""
        texts = texts_of(one)
        if not all(isinstance(text, str) for text in texts):
            raise NextwordError(f"Expected a text, or two, and an example is {str(one)[:80]}.")
        if len(texts) != 1 + self.pairs:
            raise NextwordError(
                f"{self.named[1]} asks about {'two texts' if self.pairs else 'one text'}, and an example has "
                f"{len(texts)}: {str(one)[:80]}."
            )
        values = dict(zip((TEXT, SECOND), texts, strict=False))
        return re.sub(r"\{text\}|\{second\}", lambda mark: values.get(mark[0], mark[0]), self.before).strip()

    def predict(
        self, given: Sequence[Example], progress: Progress | None = None, notes: list[str] | None = None
    ) -> list[Prediction]:
        """The best label of each text, and the share of every label."""
        found: list[Prediction] = []
        given = require_list(given)
        for rows in self.parts(given):
            found += map(self._prediction, self.settings.decoded(rows).tolist())
            if progress:
                progress(len(found), len(given))
        if notes is not None:
            notes += self.told(given)
        return found

    def _prediction(self, said: list[float]) -> Prediction:
        if self.settings.kind == "regress":
            return Prediction(f"{said[0]:.4g}", {}, said[0])
        labels = self.settings.labels
        return Prediction(labels[int(np.argmax(said))], dict(zip(labels, said, strict=True)))

    def parts(self, given: Sequence[Example]) -> Iterator[np.ndarray]:
        """(texts, labels) log of the shares, of some texts after the other."""
        for at in range(0, len(given), AT_ONCE):
            with np.errstate(divide="ignore"):
                yield np.log(shares(self.scores(given[at : at + AT_ONCE])))

    def scores(self, given: Sequence[Example]) -> np.ndarray:
        """(texts, labels): what decides, the higher the better."""
        nats, tokens = self._costs(given)
        if not self.calibrate:
            return -nats / np.maximum(tokens, 1)
        if self._alone is None:
            self._alone = self._costs([("", "") if self.pairs else ""])
        return self._alone[0] - nats

    def _costs(self, given: Sequence[Example]) -> Costs:
        prompts = [self.ahead + self.asked(one) for one in given for _ in self.put]
        found = _paid(self.lm, prompts, [label for _ in given for label in self.put], self.after)
        nats, tokens = (np.array(column, np.float64).reshape(len(given), -1) for column in zip(*found, strict=True))
        return nats, tokens

    def told(self, given: Sequence[Example]) -> list[str]:
        """What is to be known of how these are read."""
        lm, notes = self.lm, []
        exact = getattr(lm, "kind", EXACT) == EXACT
        window = window_of(lm) if exact else lm.room
        if window is not None and getattr(lm, "goes_on", True):
            plain = not self.ahead and not self.pairs
            texts = [str(one) if plain else self.ahead + self.asked(one) for one in given]
            long = sum(len(one) > window for one in lm.tokenizer.encode_batch(texts))
            if long:
                what = "texts, with the examples ahead of them," if self.ahead else "texts"
                lost = ", so that the first examples fall away" if self.ahead else ""
                said = f"{long:,} of {len(given):,} {what} are longer than the window of {window:,} tokens"
                notes.append(f"{said}: of those the end is read{lost}")
        unknown = {id for name, id in lm.tokenizer.special.items() if "unk" in name.lower()}
        put = [f"{label}{self.after}" if getattr(lm, "goes_on", True) else label for label in self.put]
        odd = [repr(one) for one in put if unknown.intersection(lm.tokenizer.encode(one).ids.tolist())]
        if odd:
            notes.append(
                f"the model's vocabulary lacks words of {', '.join(odd)}: they are scored as unknown words (perhaps "
                "what follows {label} in the template needs a space before it)"
            )
        return notes


def _halves(template: str, name: str) -> tuple[str, str]:
    """What stands before the label, the text in it, and what stands after."""
    if template.count(LABEL) != 1 or template.count(TEXT) > 1 or template.count(SECOND) > 1:
        raise NextwordError(
            f"{name} {template!r}: expected {LABEL} in it once, and {TEXT} at most once before it, as {TEMPLATE!r}; "
            f"without {TEXT} it comes after the text. Where there are two texts, {SECOND} is the other."
        )
    before, after = template.split(LABEL)
    for mark in (TEXT, SECOND):
        if mark in after:
            raise NextwordError(f"{name} {template!r}: {mark} has to come before {LABEL}.")
    return before if TEXT in before else f"{TEXT} {before}", after


def drawn(texts: Sequence[Any], labels: Sequence[str], shots: int, seed: int) -> list[tuple[Any, str]]:
    """So many examples, by lot, class after class so that each has its share, in an order by lot."""
    draw = np.random.default_rng([seed, len(texts)])
    order = draw.permutation(len(texts)).tolist()
    classes = [[i for i in order if labels[i] == label] for label in dict.fromkeys(labels[i] for i in order)]
    turns = [i for some in zip_longest(*classes) for i in some if i is not None][:shots]
    return [(texts[i], labels[i]) for i in draw.permutation(turns).tolist()]


def _paid(lm: Any, prompts: Sequence[str], labels: Sequence[str], after: str) -> list[tuple[float, int]]:
    """Nats and tokens of each label behind its prompt, by what the model offers."""
    if getattr(lm, "mends", False):
        filled = lm.score_fillings([(prompt + " ", after) for prompt in prompts], labels)
        return [(one.nats, one.tokens) for one in filled]
    if not getattr(lm, "goes_on", True):
        return [(one.nats, one.tokens) for one in lm.score_many(labels, prompts)]
    texts = [f"{' ' * bool(prompt)}{label}{after}" for prompt, label in zip(prompts, labels, strict=True)]
    if getattr(lm, "kind", EXACT) == EXACT:
        return [(one.nats, one.tokens) for one in likelihoods(lm, texts, prompts)]
    return [(one.nats, one.tokens) for one in lm.score_many(texts, prompts)]


def shares(scores: np.ndarray) -> np.ndarray:
    """Softmax of each row; where no label is possible at all, all have the same share."""
    best = scores.max(1, keepdims=True)
    odds = np.exp(np.where(np.isfinite(best), scores - np.where(np.isfinite(best), best, 0.0), 0.0))
    return odds / odds.sum(1, keepdims=True)


# ------------------------------------------------------------------------------------------------ a run of a task


def open_prompted(run: RunFolder, lm: Any) -> InContext:
    """Of a run whose files have been checked; `lm` is the language model that lies in it."""
    ahead = (run.path / FILE).read_bytes().decode()  # as it is: no line end is translated
    return InContext(lm, settings_of(run.recipe.task or {}, str(run.path)), ahead, str(run.path))


def usual(settings: Settings) -> str:
    """The template of a task that names none."""
    one, two = (NUMBER, OF_TWO_NUMBER) if settings.kind == "regress" else (TEMPLATE, OF_TWO)
    return one if settings.frame == "classify" else two


class InContext(ZeroShot):
    """A language model, and the task that its prompt shows it: [task] of a recipe says how. Nothing is trained.

    Of numbers, what is said is the place of the likeliest of some strings (heads/numbered.py).
    """

    named = ("[task] words", "[task] template")

    def __init__(self, lm: Any, settings: Settings, ahead: str = "", name: str = "") -> None:
        pairs = settings.frame != "classify"
        put = [str(settings.words.get(label, label)) for label in settings.numbers or settings.labels]
        super().__init__(lm, put, settings.template or usual(settings), settings.calibrate, name)
        if self.pairs != pairs:
            what = f"{TEXT} and {SECOND}" if pairs else f"{TEXT} and no {SECOND}"
            raise NextwordError(
                f"[task] template = {settings.template!r}: the task is about {'two texts' if pairs else 'one text'}; "
                f"expected {what} in it, as {usual(settings)!r}."
            )
        self.settings, self.ahead = settings, ahead
        self.solved: dict[str, int] = {}  # label → examples in the prompt, of one that was drawn here
        self.notes: list[str] = []  # what is to be known of it
        self._said: dict[Any, np.ndarray] = {}

    def show(self, given: Sequence[Example], labels: Sequence[str], seed: int) -> None:
        """Put examples, drawn by the seed, before every text."""
        names, numbers = self.settings.labels, self.settings.numbers
        if numbers:  # the nearest that is written
            names, labels = numbers, [numbers[place] for place in places(labels, numbers)]
        chosen = drawn(given, labels, self.settings.shots, seed)
        put = dict(zip(names, self.put, strict=True))
        self.ahead = self.shown([(one, put[label]) for one, label in chosen])
        solved = {name: sum(label == name for _, label in chosen) for name in names}
        self.solved = {name: n for name, n in solved.items() if n} if numbers else solved

    def parts(self, given: Sequence[Example]) -> Iterator[np.ndarray]:
        for shares in super().parts(given):
            yield shares.argmax(1)[:, None].astype(np.float64) if self.settings.numbers else shares

    @property
    def question(self) -> str:
        """What follows the examples: the template as it is."""
        return f"{self.before.strip()} {LABEL}{self.after}"

    # -------------------------------------------------------------------------------------------- what a phase needs

    @property
    def stored(self) -> int:
        return self.parameters

    @property
    def device(self) -> torch.device:
        return self.lm.device

    def save(self, folder: Path) -> list[str]:
        """The model's files as they are, and the prompt."""
        source = RunFolder.open(self.settings.source)
        names = model_files(source)
        for name in names:
            link_or_copy(source.path / name, folder / name)
        (folder / FILE).write_bytes(self.ahead.encode())
        return [*names, FILE]

    def labelled(self, splits: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
        """Label all examples, and remember what was said of them; yields how many are done, and of how many."""
        done, total = 0, sum(map(len, splits.values()))
        for some in splits.values():
            parts = []
            for rows in self.parts(some.given):
                parts.append(rows)
                done += len(rows)
                yield done, total
            self._said[some] = np.concatenate(parts)

    def said_of(self, examples: Any) -> np.ndarray:
        """(examples, labels) log of the shares, or (examples, 1) places, of a split that was labelled."""
        return self._said[examples]

    def measured(self, examples: Any) -> dict[str, float]:
        return measured(tuple(self.settings.metrics), examples.labels, self.said_of(examples))

    def __getattr__(self, name: str) -> Any:
        if name in OF_TEXT or name.startswith("embed"):
            raise Unsupported(
                f"{self.name or 'This run'} is for a task: it predicts {self.settings.says}. Use `nextword predict`; "
                f"the language model that it asks is {self.settings.source or 'elsewhere'}."
            )
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


KIND = "show"  # of a phase in which nothing is learnt
# of [task], what counts
SAID = {"classifier", "template", "shots", "calibrate", "words", "step", "share", "final", "metrics"}
FROM_DEV = "examples may be drawn from dev too: its scores say less than those of test"


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows that have labels, as a prompt reads them."""

    rows: Rows
    labels: np.ndarray  # places of the classes, or scaled numbers
    metrics: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def given(self) -> list[Any]:
        """Texts, or pairs of them."""
        rows = self.rows
        return rows.texts if rows.seconds is None else list(zip(rows.texts, rows.seconds, strict=True))

    def take(self, chosen: Sequence[int]) -> Labelled:
        return replace(self, rows=self.rows.take(chosen), labels=self.labels[chosen])


def check(recipe: Recipe, asked: Settings, data: Any, run: RunFolder | None, scratch: bool) -> None:
    """Or an error: what is asked for goes with a prompt."""
    if scratch:
        refuse_twin(recipe)
    if data.kind not in ("classify", "pair", "regress"):
        raise NextwordError(
            f"{recipe.name} chooses among classes of texts, or numbers, and {data.name} is of kind {data.kind}. Take "
            "another recipe, as bert/finetune; candidates and answers are asked for by `nextword evaluate --task`."
        )
    phase = recipe.phases[0]
    if len(recipe.phases) > 1 or phase.kind != KIND:
        raise NextwordError(f"{recipe.name}: [task] classifier = '{PROMPT}' goes with one phase, of kind = '{KIND}'.")
    extra = [f"task.{key}" for key, usual in CHOSEN.items() if key not in SAID and getattr(asked, key) != usual]
    extra += [f"phase.0.{key}" for key in BUDGETS if getattr(phase, key)] + [f"model.{key}" for key in recipe.model]
    if extra:
        raise NextwordError(
            f"{recipe.name} trains nothing, so {', '.join(extra)} would change nothing: leave it out. It reads "
            f"{', '.join(f'task.{key}' for key in sorted(SAID))}."
        )
    if asked.words and data.kind == "regress":
        raise NextwordError(f"[task] words is for classes, and {data.name} has numbers: leave it out.")
    strange = [name for name in asked.words if name not in data.labels]
    if strange:
        raise NextwordError(f"[task] words names {strange[0]!r}; the labels are {', '.join(data.labels[:8])}.")
    if run is not None:
        _reads_on(recipe, run)


def _reads_on(recipe: Recipe, run: RunFolder) -> None:
    """A language model that reads from left to right, and no task's run."""
    theirs = run.recipe
    if theirs.task is not None:
        raise NextwordError(
            f"{run.path} is a run of a task, and {recipe.name} asks a language model. Take the run that it was made "
            f"of: --from {theirs.task.get('source') or 'RUN'}"
        )
    cls = model_class(theirs.slug)
    if "generate" not in abilities(cls, theirs.model) or getattr(cls, "is_conditional", False):
        raise Unsupported(
            f"{run.path} is a run of {cls.__name__}, which does not read a text on from left to right, so no label "
            "follows a prompt. Take one that does (gpt2, gpt3, lstm, ngram …), fine-tune this one (bert/finetune, "
            f"t5/finetune), or try `nextword predict {run.path} FILE --labels A,B`."
        )


def refuse_twin(recipe: Recipe) -> None:
    """A network that has learnt nothing is no baseline where nothing is learnt."""
    if (recipe.task or {}).get("classifier") == PROMPT:
        raise NextwordError(
            f"{recipe.name} trains nothing, so there is no twin from scratch: leave --scratch and --twin out. To see "
            "what examples are worth, set --set task.shots=0 beside."
        )


def resolved(recipe: Recipe, run: RunFolder, data: str, settings: Settings) -> Recipe:
    """The recipe with the run's network as it is, on the data."""
    theirs = run.recipe
    return replace(
        recipe,
        paper=theirs.paper,
        tokenizer=theirs.tokenizer,
        model=theirs.model,
        phases=(replace(recipe.phases[0], data=data),),
        reported={},
        measured={},
        compare={},
        task=replace(settings, template=settings.template or usual(settings)).table(),
    )


def labelled(settings: Settings, data: DataSet) -> tuple[dict[str, Labelled], list[str]]:
    """Split that has labels → its rows; and what is to be known of them."""
    found = {
        split: Labelled(rows, settings.encoded(rows.labels), tuple(settings.metrics))
        for split, rows in data.splits.items()
        if rows.labels is not None
    }
    return found, [*(FROM_DEV if note == NOTE else note for note in data.notes), *in_words(settings.numbers)]


def shown(lm: Any, settings: Settings, train: Labelled, held: Sequence[Labelled], seed: int) -> InContext:
    """The model with its prompt, of training rows that have a text; its notes are of that, and of what is held out."""
    model = InContext(lm, settings, name=settings.source)
    there = [i for i, one in enumerate(train.rows.texts) if one.strip()]
    if settings.shots > len(there):
        share = f" (--labels {settings.share:g})" if settings.share < 1 else ""
        raise NextwordError(
            f"[task] shots = {settings.shots}, and there are {len(there):,} training rows with a text to draw them "
            f"from{share}. Set at most so many: --set task.shots={len(there)}"
        )
    pool = train.take(there)
    model.show(pool.given, pool.rows.labels or [], seed)
    counts = ", ".join(f"{n} of {label!r}" for label, n in model.solved.items())
    model.notes = [f"{settings.shots} solved examples stand before every text ({counts})"] if settings.shots else []
    model.notes += model.told([one for some in held for one in some.given])
    return model
