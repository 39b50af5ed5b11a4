"""What a transfer will do, settled before it begins: the resolved recipe, the data, and its framed examples.

recipe (bert/finetune)  how to train         ┐
run    (runs/bert)      network, tokenizer   ├──▶  a recipe that says all of it, with init = RUN and a [task]
data   (RTE)            texts and labels     ┘

A recipe may have a network of its own (tagger/conll2003): then there is no run, and that is trained from nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from nextword.batching.examples import Bucketed
from nextword.checkpoint import RunFolder
from nextword.contract_errors import NextwordError
from nextword.contract_protocols import Tokenizer
from nextword.heads.framing import check, check_learning
from nextword.heads.fresh import last_layers
from nextword.heads.numbered import in_words, scale_of
from nextword.heads.over import Over
from nextword.heads.settings import VIEWS, Settings, settings_of
from nextword.heads.words import joined
from nextword.loading_lm import load
from nextword.models import model_class
from nextword.recipe import Phase, Recipe, load_recipe, names
from nextword.tokens import load_tokenizer, train_tokenizer
from nextword.training import build, furnish, known_words
from nextword.training.scale import choose_device
from nextword.transfer import in_context
from nextword.transfer.fitting import CROSS_VIEW, OF_ANSWERS, opened
from nextword.transfer.framing import Progress, context_of, framed_set, framed_texts
from nextword.transfer.missing_words import lacking
from nextword.transfer.questions import framed_questions
from nextword.transfer.several import DataSets, TagSets, in_parts, with_untagged
from nextword.transfer.share import few_steps
from nextword.transfer.tables import Columns
from nextword.transfer.tagging import TagSet
from nextword.transfer.weighting import class_weights, weights_told
from nextword.transfer.whole import whole
from nextword.transfer.wording import in_words_of
from nextword.weights import huggingface

APART = 1000  # seeds of the phases of one run, so that none sees the batches of another in the same order


@dataclass(frozen=True)
class Plan:
    recipe: Recipe  # of the run to be: all that it is but its seed
    tokenizer: Tokenizer
    data: Any  # a DataSet, a TagSet, or a QuestionSet
    examples: dict[str, Any]  # Examples, TaggedExamples, or Asked: train, dev, and what else has labels
    device: torch.device
    notes: tuple[str, ...] = ()
    lm: Any = None  # that labels are asked of, where nothing is trained
    unknown: float | None = None  # share of the training words that the run's vocabulary lacks; None: it can lack none

    @property
    def settings(self) -> Settings:
        return settings_of(self.recipe.task or {}, self.recipe.name)

    @property
    def fingerprint(self) -> str:
        """Of all that is read, with labels and without."""
        beside = getattr(self.examples["train"], "key", "")
        return f"{self.data.fingerprint}{'-' if beside else ''}{beside}"

    def seeded(self, seed: int | None) -> Recipe:
        return seeded(self.recipe, seed)


def seeded(recipe: Recipe, seed: int | None) -> Recipe:
    if seed is None:
        return recipe
    phases = tuple(replace(phase, seed=seed + APART * i) for i, phase in enumerate(recipe.phases))
    return replace(recipe, phases=phases)


@dataclass(frozen=True)
class Intent:
    """What is asked for, all of it, before a text is tokenized."""

    recipe: Recipe  # resolved
    data: Any
    source: RunFolder | None
    device: torch.device


def make_plan(
    given: str,
    source: str | Path,
    data: str | Path,
    columns: Columns = Columns(),
    kind: str = "",
    scratch: bool = False,
    changes: Sequence[str] = (),
    device: str = "auto",
    progress: Progress = lambda label, done, total: None,
) -> Plan:
    """Everything that can be wrong is wrong here, before there is a folder."""
    return planned(intended(given, source, data, columns, kind, scratch, changes, device), progress)


def intended(
    given: str,
    source: str | Path,
    data: str | Path,
    columns: Columns = Columns(),
    kind: str = "",
    scratch: bool = False,
    changes: Sequence[str] = (),
    device: str = "auto",
) -> Intent:
    """The recipe that says all of it, and the data that it was resolved with."""
    data, chosen = str(data), choose_device(device)
    run = open_source(source) if source else None
    asked = fine_tuning(given, changes)
    if run is None and not asked.tokenizer:
        raise NextwordError(
            f"{given} says how to fine-tune a run, and has no network of its own: name the run with --from RUN "
            "(`nextword runs` lists them)."
        )
    if run is not None and asked.tokenizer:
        raise NextwordError(f"{given} has a network of its own: leave --from {source} out, or take another recipe.")
    data = data or asked.phases[0].data
    if not data:
        raise NextwordError("Say what to learn, with --data: a file, or the name of a task (`nextword data`).")
    found = opened(asked, data, columns, kind)
    special = settings_of(asked.task or {}, asked.name).changes
    own = next((list(one) for name, one in special.items() if name.lower() == found.name.lower()), [])
    recipe = load_recipe(given, [*own, *changes])
    if settings_of(recipe.task or {}, recipe.name).final:
        found = whole(found)
        recipe = replace(recipe, phases=tuple(replace(phase, keep="last") for phase in recipe.phases))
    settings = _settled(recipe, found, run, scratch)
    if settings.prompted and run is not None:
        recipe = in_context.resolved(recipe, run, data, settings)
    elif run is None:
        recipe = _with_context(_own(recipe, data, settings, chosen, changes), chosen)
    else:
        recipe = _resolved(recipe, run, data, settings, chosen, load_recipe(given), changes)
    return Intent(recipe, found, run, chosen)


def planned(asked: Intent, progress: Progress) -> Plan:
    """The texts tokenized, with the run's tokenizer or with one that is learnt of them."""
    recipe = asked.recipe
    if asked.source is None:
        progress("learning the vocabulary", 0, None)
        texts = (joined(one.words) for one in asked.data.splits["train"].sentences)
        tokenizer = train_tokenizer(recipe.tokenizer, texts, known_words(recipe))
    else:
        tokenizer = load_tokenizer(asked.source.path / "tokenizer.json")
    return framed(recipe, tokenizer, asked.data, asked.device, progress)


def framed(recipe: Recipe, tokenizer: Tokenizer, data: Any, device: torch.device, progress: Progress) -> Plan:
    """The plan of a resolved recipe: each text is tokenized once, however many runs follow."""
    settings = settings_of(recipe.task or {}, recipe.name)
    if settings.prompted:
        rows, notes = in_context.labelled(settings, data)
        plan = Plan(recipe, tokenizer, data, rows, device, tuple(notes), load(settings.source, str(device)))
        network: Any = plan.lm.network
    else:
        network = build(recipe, tokenizer)
        check_learning(network)
        last_layers(network, settings.fresh)  # or an error
        plan = _framed(recipe, network, tokenizer, data, device, progress)
        few = few_steps(recipe, plan.examples["train"], network.vocabulary)
        plan = replace(plan, notes=(*plan.notes, *few))
    share, more = lacking(settings.source, network, tokenizer, data)
    return replace(plan, notes=(*plan.notes, *more), unknown=share)


def _framed(
    recipe: Recipe, network: Any, tokenizer: Tokenizer, data: Any, device: torch.device, progress: Progress
) -> Plan:
    settings = settings_of(recipe.task or {}, recipe.name)
    if settings.kind == "tag":
        return _framed_tags(recipe, network, tokenizer, data, device, progress)
    if settings.kind == "span":
        asked, told = framed_questions(recipe, network, tokenizer, data, progress)
        return Plan(recipe, tokenizer, data, asked, device, tuple(told))
    check(network)
    length = int(recipe.phases[0].batches.get("length", Bucketed.length))
    notes = [*data.notes, *weights_told(settings), *in_words(settings.numbers)]
    found: dict[str, Any]
    if isinstance(data, DataSets):
        each = [
            framed_texts(network, tokenizer, settings.each[one.name], one, length, progress, notes, f"{one.name}: ")
            for one in data.sets
        ]
        found = {split: some for split, some in in_parts(data.names, each).items() if split in ("train", "dev")}
    else:
        found = framed_texts(network, tokenizer, settings, data, length, progress, notes)
    return Plan(recipe, tokenizer, data, found, device, tuple(notes))


def _framed_tags(
    recipe: Recipe, network: Any, tokenizer: Tokenizer, data: TagSet | TagSets, device: torch.device, progress: Progress
) -> Plan:
    notes = list(data.notes)
    found: dict[str, Any]
    if isinstance(data, TagSets):
        found = in_parts(
            data.names,
            [framed_set(recipe, network, tokenizer, one, one.metrics, device, progress, notes) for one in data.sets],
        )
    else:
        metrics = tuple(settings_of(recipe.task or {}, recipe.name).metrics)
        found = framed_set(recipe, network, tokenizer, data, metrics, device, progress, notes)
    if recipe.phases[0].objective.get("kind") == CROSS_VIEW:
        found = with_untagged(recipe, network, tokenizer, found, progress)
    return Plan(recipe, tokenizer, data, found, device, tuple(notes))


def _with_context(recipe: Recipe, device: torch.device) -> Recipe:
    """How many layers there are, and how wide, written down: the network is built of that; and whose they are."""
    context = context_of(recipe, device)
    if context is None:
        return recipe
    found = {
        "contextual_layers": context.layers,
        "contextual_width": context.width,
        "contextual_of": context.fingerprint,
    }
    return replace(recipe, model={**recipe.model, **found})


def open_source(source: str | Path) -> RunFolder:
    path = Path(source)
    if path.is_dir() and not (path / "manifest.json").is_file() and huggingface.is_source(path):
        raise NextwordError(
            f"{path} is a Hugging Face folder. Make a run of it first: nextword convert {path} runs/{path.name}"
        )
    run = RunFolder.open(path)
    if not run.manifest.get("files", {}).keys() - {"recipe.toml", "tokenizer.json"}:
        raise NextwordError(f"{path} has no model yet. Go on training with `nextword train --resume --out {path}`.")
    return run


def fine_tuning(given: str, changes: Sequence[str] = ()) -> Recipe:
    """A recipe that is for fine-tuning."""
    if load_recipe(given).task is None:
        known = [one.name for one in map(load_recipe, names()) if one.task is not None and not one.tokenizer]
        raise NextwordError(
            f"{given} trains a language model; it is no recipe for a task. For fine-tuning there are "
            f"{', '.join(known)}, whatever network RUN is of."
        )
    return load_recipe(given, changes)


def headed(recipe: Recipe, tokenizer: Tokenizer) -> Over:
    """The recipe's network with a head, both with untrained weights; the head's are drawn after the network's."""
    network = build(recipe, tokenizer)
    settings = settings_of(recipe.task or {}, recipe.name)
    if settings.scratch:
        furnish(network)
    head, config = settings.over(type(network), network.config)
    found: Over = head(config, network)
    found.fresh = last_layers(network, settings.fresh)
    return found


# ------------------------------------------------------------------------------------------------ the resolved recipe


def _settled(recipe: Recipe, data: Any, run: RunFolder | None, scratch: bool) -> Settings:
    """[task] with what the data says."""
    asked = settings_of(recipe.task or {}, recipe.name)
    crossed = recipe.phases[0].objective.get("kind") == CROSS_VIEW
    if crossed != (asked.classifier == VIEWS):
        raise NextwordError(
            f"{recipe.name}: the objective {CROSS_VIEW} and [task] classifier = '{VIEWS}' go together: set both, or "
            "neither."
        )
    if asked.prompted:
        in_context.check(recipe, asked, data, run, scratch)
    numbers, spelled = in_words_of(asked, data, run)
    center, spread = scale_of(numbers) if numbers else data.scale
    return replace(
        asked,
        changes={},
        kind=data.kind,
        frame=asked.frame or data.frame,
        labels=data.labels,
        center=center,
        spread=spread,
        metrics=tuple(asked.metrics) or data.metrics,
        weights=class_weights(asked.weights, data),
        numbers=numbers,
        spelled=spelled,
        text=data.columns.text,
        second=data.columns.second,
        label=data.columns.label,
        source=str(run.path) if run else "",
        scratch=scratch or run is None,
        tasks=getattr(data, "tasks", ()),
        unanswered=getattr(data, "unanswered", False),
        **({"scheme": data.scheme} if data.kind == "tag" else {}),
    )


def _resolved(
    recipe: Recipe,
    run: RunFolder,
    data: str,
    settings: Settings,
    device: torch.device,
    plain: Recipe,
    changes: Sequence[str],
) -> Recipe:
    """The recipe's training of the run's network on the data. `plain` is the recipe without any changes."""
    theirs = run.recipe
    model_of = model_class(theirs.slug)
    known = {f.name for f in dataclasses.fields(model_of.Config)}
    # what a recipe says of any network (dropout) holds for those that have it; what the user sets has to fit
    ours = {
        key: v for key, v in recipe.model.items() if key in known or key not in plain.model or v != plain.model[key]
    }
    model = {**theirs.model, **ours}
    needed = getattr(model_of, "own_tokens", 0)
    if needed:
        model["extra"] = max(int(model.get("extra", 0)), needed)
    longest = _longest(theirs) if "window" in known else 0
    kind = settings.kind if settings.kind in ("tag", OF_ANSWERS) else "task"
    phases = []
    for i, phase in enumerate(recipe.phases):
        if phase.objective.get("kind") != kind:
            raise NextwordError(
                f"{recipe.name}: phase '{phase.name}' has the objective {phase.objective.get('kind')!r}; in a recipe "
                f"for this task every phase has objective = {{ kind = '{kind}' }}."
            )
        phases.append(
            replace(
                phase,
                data=data,
                init="" if settings.scratch or i else str(run.path),
                batches=_shortened(phase, longest),
                precision=_precision(phase, device, changes),
                seed=phase.seed + APART * i,
            )
        )
    return replace(
        recipe,
        paper=theirs.paper,
        tokenizer=theirs.tokenizer,
        model=model,
        phases=tuple(phases),
        reported={},
        measured={},
        compare={},
        task=settings.table(),
    )


def _own(recipe: Recipe, data: str, settings: Settings, device: torch.device, changes: Sequence[str]) -> Recipe:
    """A recipe that has a network of its own, on the data."""
    phases = [replace(phase, data=data, precision=_precision(phase, device, changes)) for phase in recipe.phases]
    return replace(recipe, phases=tuple(phases), reported={}, measured={}, compare={}, task=settings.table())


def _precision(phase: Phase, device: torch.device, changes: Sequence[str]) -> str:
    """Sixteen bits are a GPU's: few CPUs compute in them, and the others do so at a crawl."""
    return phase.precision if names_precision(changes) or device.type != "cpu" else "fp32"


def names_precision(changes: Sequence[str]) -> bool:
    return any(".precision" in change.partition("=")[0] for change in changes)


def _longest(theirs: Recipe) -> int:
    """Tokens in the longest text that a network with positions was trained on; beyond, they were never learnt."""
    return max((int(phase.batches.get("length", 0)) for phase in theirs.phases), default=0)


def _shortened(phase: Phase, longest: int) -> dict[str, Any]:
    batches = dict(phase.batches)
    if longest:
        batches["length"] = min(int(batches.get("length", Bucketed.length)) or longest, longest)
    return batches
