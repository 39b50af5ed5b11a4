"""Transfer in context (Brown et al. 2020): a language model stays as it is, and some training rows stand before a text.

    training rows ──seed──▶ shots of them, class after class ──template──▶ prompt.txt        what varies with the seed
    run           ───────────────────────────────────────────────────────▶ its model, as it is

`nextword.tasks.prompting` asks the model; here is what a plan needs for it, and what cannot be done that way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nextword.core.errors import NextwordError, Unsupported
from nextword.data.tables import Rows
from nextword.models import abilities, model_class
from nextword.recipe import BUDGETS, Recipe
from nextword.run_folder import RunFolder
from nextword.tasks.data import DataSet
from nextword.tasks.prompting import InContext, usual
from nextword.tasks.settings import CHOSEN, PROMPT, Settings
from nextword.tasks.whole import NOTE
from nextword.tasks.worded import in_words

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
