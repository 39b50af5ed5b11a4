"""What a transfer will do, settled before it begins: the resolved recipe, the data, and its framed examples.

recipe (bert/finetune)  how to train         ┐
run    (runs/bert)      network, tokenizer   ├──▶  a recipe that says all of it, with init = RUN and a [task]
data   (RTE)            texts and labels     ┘

A recipe may have a network of its own (tagger/conll2003): then there is no run, and that is trained from nothing.

The data, opened as a recipe learns them: what a file or a name holds, and an error where that is something else.

    texts   labels of one text or two, or one of several candidates       bert/finetune, bert/choice, ulmfit/classify
    span    questions that a passage answers                              bert/span
    tag     a tag for every word                                          bert/tag

A name is looked up. A file is judged by its ending, its header and its first lines, and only where that is clear.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nextword.batching.examples import Bucketed, Examples
from nextword.convert import huggingface
from nextword.core.errors import NextwordError
from nextword.core.protocols import Tokenizer
from nextword.data.catalog import find
from nextword.data.conll import is_columns
from nextword.data.files import chunks, json_objects, lines, plain_name
from nextword.data.segmentation import join_words
from nextword.data.tables import (
    DELIMITERS,
    TABLE_JSON_SUFFIXES,
    Columns,
    rows,
)
from nextword.data.tag_schemes import PLAIN
from nextword.lm.embedding import Contextual
from nextword.lm.loading import load
from nextword.metrics.classification import CLASSIFICATION_METRICS, REGRESSION_METRICS
from nextword.metrics.spans import TAGGING_METRICS as METRICS_OF_TAGS
from nextword.metrics.spans import TOKEN_ACCURACY
from nextword.models import model_class
from nextword.recipe import Phase, Recipe, load_recipe, names
from nextword.run_folder import RunFolder
from nextword.tasks import in_context
from nextword.tasks import question_answering as questions
from nextword.tasks.base import ModelWithHead
from nextword.tasks.classification import class_weights, weights_told
from nextword.tasks.cross_view import TagSets, open_several, with_untagged
from nextword.tasks.datasets.catalog import find_benchmark
from nextword.tasks.datasets.multiple_choice import has_candidates
from nextword.tasks.examples import check, check_learning
from nextword.tasks.fresh import last_layers
from nextword.tasks.heads import skipped
from nextword.tasks.label_text import framed_words, in_words, in_words_of, places, scale_of, sources
from nextword.tasks.unknown_words import check_vocabulary
from nextword.tasks.multitask import DataSets, in_parts, open_texts
from nextword.tasks.question_answering import framed_questions, open_questions
from nextword.tasks.settings import DECIDED_BY_DATA, VIEWS, Settings, settings_of
from nextword.tasks.subsets import few_steps, whole
from nextword.tasks.tagging import TaggedExamples, TagSet, sentences
from nextword.tasks.text_data import DataSet, Progress, framed_rows
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.training import train_tokenizer
from nextword.training.device import choose_device
from nextword.training.train import build_network, load_pretrained_embeddings, pretrained_words

TEXTS, CHOICE, SPAN, TAG = "texts", "choice", "span", "tag"
LEARNS = {TEXTS: "labels of texts", SPAN: "answers out of passages", TAG: "tags of words"}
HAS = {
    TEXTS: ("has labelled texts", "bert/finetune"),
    CHOICE: ("has several candidates in each row", "bert/choice"),
    SPAN: ("has questions that a passage answers", "bert/span"),
    TAG: ("has tags of words", "bert/tag"),
}
OF_CATALOG = {"tagging": TAG, "questions": SPAN}
CROSS_VIEW = "cross_view"  # objectives, by what they learn
OF_TAGS = ("tag", CROSS_VIEW)
OF_ANSWERS = "span"
OF_KIND = {"classify": CLASSIFICATION_METRICS, "pair": CLASSIFICATION_METRICS, "choice": CLASSIFICATION_METRICS, "regress": REGRESSION_METRICS}
OPTIONS = {
    **{"kind": "--kind", "text": "--text", "second": "--second", "label": "--label"},
    **{"source": "--from", "scratch": "--scratch", "tasks": "--data 'A + B'"},
}
ALL_THE_SAME = ("frame", "metrics")  # that may be set, though data have their own
SEEN = 200  # lines of a file that are looked at
SQUAD = ('"paragraphs"', '"data"')


def tags_words(recipe: Recipe) -> bool:
    return recipe.phases[0].objective.get("kind") in OF_TAGS


def opened(recipe: Recipe, data: str, columns: Columns, kind: str) -> Any:
    """The data, as the recipe's objective has to have it."""
    refuse_decided(recipe)
    learns = TAG if tags_words(recipe) else SPAN if recipe.phases[0].objective.get("kind") == OF_ANSWERS else TEXTS
    if columns != Columns() or kind:  # what is what has been said
        found = _opened_as(learns, recipe, data, columns, kind)
    else:
        with fitting(recipe.name, learns, data):
            found = _opened_as(learns, recipe, data, columns, kind)
    _refuse_metrics(recipe, found)
    return found


def refuse_decided(recipe: Recipe) -> None:
    """An error where [task] says what the data and the command decide: it would count for nothing."""
    asked = settings_of(recipe.task or {}, recipe.name)
    for key, usual in DECIDED_BY_DATA.items():
        value = getattr(asked, key)
        if key in ALL_THE_SAME or value == usual or (not value and not usual):
            continue
        how = f"said with {OPTIONS[key]}, and not here" if key in OPTIONS else "decided by the data: leave it out"
        raise NextwordError(f"{recipe.name}: [task] {key} = {str(value)[:60]} is {how}.")


def _refuse_metrics(recipe: Recipe, data: Any) -> None:
    """An error where [task] metrics are of another kind of task."""
    fits = _metrics_of(data)
    odd = next((name for name in settings_of(recipe.task or {}, recipe.name).metrics if name not in fits), None)
    if odd is not None:
        what = f"there are {', '.join(fits)}" if fits else "each of several tasks has its own"
        raise NextwordError(f"{recipe.name}: [task] metrics names '{odd}', which {data.name} cannot have: {what}.")


def _metrics_of(data: Any) -> Sequence[str]:
    """All that the data can be measured by."""
    if isinstance(data, (DataSets, TagSets)):
        return ()
    if data.kind == TAG:
        return METRICS_OF_TAGS if tuple(data.metrics) != (TOKEN_ACCURACY,) else (TOKEN_ACCURACY,)
    names = OF_KIND.get(data.kind, data.metrics)
    return [name for name in names if name != "f1" or len(data.labels) == 2]  # which is of two classes


def _opened_as(learns: str, recipe: Recipe, data: str, columns: Columns, kind: str) -> Any:
    if learns == SPAN:
        if kind not in ("", "span"):
            raise NextwordError(f"{recipe.name} learns answers to questions: leave --kind {kind} out.")
        return open_questions(data, columns)
    if learns == TEXTS:
        if kind in ("tag", "span"):
            raise NextwordError(
                f"{recipe.name} learns labels of texts. For tags of words there is bert/tag, for questions bert/span."
            )
        return open_texts(data, columns, kind)
    if kind not in ("", "tag") or columns.text or columns.second:
        raise NextwordError(f"{recipe.name} learns tags of words: leave --kind, --text and --second out.")
    asked = settings_of(recipe.task or {}, recipe.name).scheme
    found = open_several(data, columns.label, asked or Settings.scheme)
    if isinstance(found, TagSets) and recipe.phases[0].objective.get("kind") != CROSS_VIEW:
        raise NextwordError(f"{data} are several tasks, and {recipe.name} learns one. Take a recipe as cvt/multi.")
    return found


@contextmanager
def fitting(recipe: str, learns: str, data: str) -> Iterator[None]:
    """While the data are opened: if that fails because they are of another kind than the recipe `learns`, the error
    says which recipe fits."""
    if (learns, held_in(data)) == (SPAN, CHOICE):  # a label that is a number may stand in the passage by chance
        raise NextwordError(_misfit(recipe, learns, data, CHOICE))
    try:
        yield
    except NextwordError as problem:
        found = held_in(data)
        if not found or found == learns or (learns, found) == (TEXTS, CHOICE):
            raise
        ours = Path(data).suffix.lower() in (*DELIMITERS, ".jsonl") and learns != TAG  # columns may be called anyhow
        raise NextwordError(f"{problem} Or: " * ours + _misfit(recipe, learns, data, found)) from None


def _misfit(recipe: str, learns: str, data: str, found: str) -> str:
    has, fits = HAS[found]
    return (
        f"{recipe} learns {LEARNS[learns]}, and {data} {has}. Take a recipe that learns those: nextword transfer "
        f"{fits} --from RUN --data {data}"
    )


def held_in(data: str) -> str:
    """What the data are, of the kinds above; "" where that is not clear."""
    path = Path(data).expanduser()
    if not path.exists():
        task, entry = find_benchmark(data), find(data)
        if task is not None:
            return CHOICE if task.kind == "choice" else TEXTS
        return OF_CATALOG.get(entry.kind, "") if entry is not None else ""
    if path.is_dir():
        path = next((one for one in sorted(path.iterdir()) if "train" in one.name.lower() and one.is_file()), path)
    return _held_in_file(path) if path.is_file() else ""


def _held_in_file(path: Path) -> str:
    name = plain_name(path)
    suffix = Path(name).suffix.lower()
    if suffix == ".json" and all(part in next(chunks(path), "") for part in SQUAD):
        return SPAN
    try:
        if suffix in (*DELIMITERS, *TABLE_JSON_SUFFIXES):
            return _held_in_table(_header(path, name, suffix))
        return TAG if is_columns(name, list(islice(lines(path), SEEN))) else ""
    except NextwordError:  # whoever reads it says what is wrong
        return ""


def _header(path: Path, name: str, suffix: str) -> list[str]:
    """Of a table, without reading all of it; of JSON lines the keys of the first."""
    if suffix in DELIMITERS:
        return next(rows(name, lines(path), suffix), (0, []))[1]
    return list(next(json_objects(name, lines(path)), {}))


def _held_in_table(header: Sequence[str]) -> str:
    low = {name.lower() for name in header}
    answers = any(name in low for name in ("answers", "answer"))
    if answers and low & set(questions.ASKED[:2]) and low & set(questions.CONTEXTS[:3]):
        return SPAN
    return CHOICE if has_candidates(header) else TEXTS if len(low) > 1 else ""


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
        texts = (join_words(one.words) for one in asked.data.splits["train"].sentences)
        tokenizer = train_tokenizer(recipe.tokenizer, texts, pretrained_words(recipe))
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
        network = build_network(recipe, tokenizer)
        check_learning(network)
        last_layers(network, settings.fresh)  # or an error
        plan = _framed(recipe, network, tokenizer, data, device, progress)
        few = few_steps(recipe, plan.examples["train"], network.vocabulary)
        plan = replace(plan, notes=(*plan.notes, *few))
    share, more = check_vocabulary(settings.source, network, tokenizer, data)
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


def headed(recipe: Recipe, tokenizer: Tokenizer) -> ModelWithHead:
    """The recipe's network with a head, both with untrained weights; the head's are drawn after the network's."""
    network = build_network(recipe, tokenizer)
    settings = settings_of(recipe.task or {}, recipe.name)
    if settings.scratch:
        load_pretrained_embeddings(network)
    head, config = settings.over(type(network), network.config)
    found: ModelWithHead = head(config, network)
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
    needed = getattr(model_of, "num_extra_tokens", 0)
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


MUCH = 0.1  # of all tokens that are read


def framed_texts(
    network: Any,
    tokenizer: Tokenizer,
    settings: Settings,
    data: DataSet,
    length: int,
    progress: Progress,
    notes: list[str],
    whose: str = "",
) -> dict[str, Examples]:
    """Split that has labels → its examples; how many were cut, or take long to read, is added to the notes."""
    most = min(filter(None, (length, getattr(network.config, "window", 0))), default=0)
    found: dict[str, Examples] = {}
    for split, rows in data.splits.items():
        if rows.labels is None:
            continue
        progress(f"reading {whose}{split}", 0, None)
        labels = settings.encoded(rows.labels)
        if settings.worded:
            made, cut = framed_words(tokenizer, sources(settings.asks, rows.texts, rows.seconds), labels, length)
            if settings.numbers:  # the nearest that is written is learnt, the number itself is measured with
                made = replace(made, labels=places(rows.labels, settings.numbers), gold=labels)
        else:
            made, cut = framed_rows(network, tokenizer, settings.frame, rows, labels, length, settings.chunk > 0)
        found[split] = replace(made, metrics=tuple(settings.metrics))
        if cut:
            cuts = f"{cut:,} of {len(rows):,} examples of {split} are longer than {most} tokens and are cut"
            notes.append(f"{whose}{cuts}")
        if split == "train" and getattr(network, "is_stateful", False):
            notes += [f"{whose}{note}" for note in _long(made, settings.chunk, settings.kept)]
    return found


def _long(made: Examples, chunk: int, kept: int) -> list[str]:
    """A note on texts of which much is read that nothing is learnt from: one of a million tokens takes minutes."""
    sizes = np.diff(made.starts)
    if not chunk or not kept or not sizes.sum():
        return []
    before = int(skipped(sizes.tolist(), chunk, kept).sum())
    if before < MUCH * sizes.sum():
        return []
    longer = int((sizes.reshape(-1, made.each).max(1) > kept).sum())
    return [
        f"{longer:,} of {len(made):,} examples of train are longer than {kept:,} tokens, the longest has "
        f"{sizes.max():,}: the last {kept:,} are learnt from (task.kept), but the {before:,} before them are read in "
        f"every epoch, too, which takes its time. To read beginnings alone: --set 'phase.*.batches.length={kept}'"
    ]


def framed_set(
    recipe: Recipe,
    network: Any,
    tokenizer: Tokenizer,
    data: TagSet,
    metrics: tuple[str, ...],
    device: torch.device,
    progress: Progress,
    notes: list[str],
) -> dict[str, TaggedExamples]:
    """Split → its sentences, framed; what is to be known of them is added to the notes."""
    length = int(recipe.phases[0].batches.get("length", 0))
    context = context_of(recipe, device)
    found: dict[str, TaggedExamples] = {}
    for split, text in data.splits.items():
        progress(f"reading {split}", 0, None)
        words = [one.words for one in text.sentences]
        made, cut = sentences(network, tokenizer, words, data.encoded(split), length)
        found[split] = replace(
            made,
            names=(*data.labels, *data.unseen),
            spans=data.scheme != PLAIN,
            metrics=metrics,
            features=context.kept(words, progress) if context else None,
        )
        if cut:
            notes.append(f"{cut:,} of {text.words:,} words of {split} lie beyond the window, and are tagged unread")
    return found


def context_of(recipe: Recipe, device: torch.device) -> Contextual | None:
    """The run whose vectors a network reads beside words, if it reads any."""
    run = recipe.model.get("contextual", "")
    return Contextual(load(run, str(device)), run) if run else None
