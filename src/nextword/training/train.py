"""Train a recipe into a run folder: open the text, build tokenizer and network, run the phases, yield events.

    recipe ──▶ corpora ──▶ tokenizer ──▶ network ──▶ run folder ──▶ phase 0 ──▶ phase 1 … ──▶ sealed manifest

Phases are of three kinds (PHASES): `gradient` trains by gradient descent (trainer.py), `count` lets an n-gram model
count the text, and `prompt` trains nothing, but lets a language model label examples in context.

`nextword.train` (../api.py) consumes these events, and then evaluates the run and writes its model card.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from nextword.batching.seq2seq import Pairs, PairsAndSources, Sources, prepare_parallel
from nextword.batching.token_stream import prepare
from nextword.core.errors import (
    SMALLER,
    DataError,
    InvalidSetting,
    NextwordError,
    RunError,
    explain_memory_errors,
    invalid,
    unknown,
)
from nextword.core.protocols import Counting
from nextword.core.types import LabeledProgress, Vocabulary, ignore_progress
from nextword.data.corpus import Corpus
from nextword.data.filters.decontaminate import DecontaminatedCorpus
from nextword.data.opening import open_corpus, open_unsplit
from nextword.data.parallel import open_parallel
from nextword.models import model_class
from nextword.objectives import make_objective, trains_on_pairs
from nextword.recipe import Phase, Recipe, describe_differences, network_config
from nextword.run_folder import RunFolder, state_position
from nextword.tokenizers import vocabulary
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.training import train_tokenizer
from nextword.training.device import choose_device
from nextword.training.events import BEGIN, END, STEP, VALID, Event, Job, never_stop
from nextword.training.trainer import Trainer, run_gradient_phase
from nextword.training.warm_start import check_initial_runs, initial_weights, load_initial_weights

MAX_NAMED = 4  # differing settings in an error message


def train_events(
    recipe: Recipe | None,
    folder: str | Path,
    resume: bool = False,
    *,
    tokenizer: Tokenizer | None = None,
    device: str = "auto",
    stop: Callable[[], bool] = never_stop,
    on_progress: LabeledProgress = ignore_progress,
) -> Iterator[Event]:
    """Train into a run folder, yielding events, which are also written to its log.

    resume        continue the run in `folder`; a recipe that is given too must equal the run's own
    tokenizer     one already trained for this recipe on the same text, to save training it again
    stop          called between steps; if it returns True, training ends with its state saved
    on_progress   called with (label, done, total) while text is read
    """
    chosen_device = choose_device(device)
    run = open_for_resume(folder, recipe) if resume else None
    recipe = run.recipe if run else recipe
    if recipe is None:
        raise InvalidSetting("Training needs a recipe. `nextword papers` lists them.", key="recipe")
    if recipe.task is not None:
        source = "" if recipe.tokenizer else "--from RUN "
        arguments = f"--resume --out {folder}" if run else f"{recipe.name} {source}--data X"
        raise InvalidSetting(
            f"{recipe.name} trains a task. Use `nextword transfer {arguments}`.", key="recipe", value=recipe.name
        )
    if not run:
        RunFolder.refuse_if_taken(folder)
        check_initial_runs(recipe)
    with explain_memory_errors(SMALLER):
        corpora = [_open_corpus(phase) for phase in recipe.phases]
        if run:
            tokenizer = load_tokenizer(run.path / "tokenizer.json")
        elif tokenizer is None:
            tokenizer = build_tokenizer(recipe, corpora[0], on_progress)
        network = build_network(recipe, tokenizer)
        if not run or not run.has_state:  # otherwise the vectors are part of the saved state
            network.load_pretrained_embeddings()
        splits = [_prepare_splits(corpus, tokenizer, on_progress) for corpus in corpora]
        fingerprints = {phase.name: corpus.fingerprint for phase, corpus in zip(recipe.phases, corpora, strict=True)}
        for phase, data in zip(recipe.phases, splits, strict=True):
            if trains_on_pairs(phase.objective) and phase.objective.get("unlabeled"):
                data["train"], fingerprint = add_unlabeled_sources(
                    phase, data["train"], tokenizer, network.vocabulary, on_progress
                )
                fingerprints[phase.name] += f"-{fingerprint}"
        sources = {phase.name: corpus.source for phase, corpus in zip(recipe.phases, corpora, strict=True)}
        yield from run_phases(
            recipe, folder, run, network, tokenizer, splits, chosen_device, stop, data=sources, texts=fingerprints
        )


# ------------------------------------------------------------------------------------------------ resume


def open_for_resume(folder: str | Path, recipe: Recipe | None = None) -> RunFolder:
    """Open a run to continue it. A recipe that is given must equal the run's own."""
    run = RunFolder.open(folder)
    run.verify("recipe.toml", "tokenizer.json")  # a kill may have left it without its model
    if recipe is not None and dataclasses.replace(recipe, name="", path=None) != dataclasses.replace(
        run.recipe, name="", path=None, measured=recipe.measured, compare=recipe.compare
    ):
        raise recipe_mismatch(folder, recipe, describe_differences(run.recipe, recipe))
    return run


def recipe_mismatch(folder: str | Path, recipe: Recipe, differences: Sequence[str]) -> RunError:
    """The error for a folder that holds a run of another recipe."""
    command = "train" if recipe.task is None else "transfer"
    more = f", and {len(differences) - MAX_NAMED} more" if len(differences) > MAX_NAMED else ""
    details = f": {'; '.join(differences[:MAX_NAMED])}{more}" if differences else ""
    return RunError(
        f"{folder} holds a run of another recipe or with other settings{details}. Resume it as it is (`nextword "
        f"{command} --resume --out {folder}`), or choose another --out.",
        path=folder,
    )


# ------------------------------------------------------------------------------------------------ phases


def run_phases(
    recipe: Recipe,
    folder: str | Path,
    run: RunFolder | None,
    network: Any,
    tokenizer: Tokenizer,
    splits: Sequence[Mapping[str, Any]],
    device: torch.device,
    stop: Callable[[], bool] = never_stop,
    final: bool = False,
    *,
    texts: Mapping[str, str],
    **facts: object,
) -> Iterator[Event]:
    """Run all phases of a recipe into a run folder.

    run      the folder to resume; None creates a new one
    splits   the data of each phase: {"train": …, "valid": …}
    final    nothing will follow the last phase, so its end is not saved as a state
    texts    fingerprints of the data, by phase
    facts    further entries of the manifest
    """
    last = len(recipe.phases) - 1
    jobs = []
    for i, (phase, data) in enumerate(zip(recipe.phases, splits, strict=True)):
        train, valid = data["train"], data.get("valid")
        jobs.append(Job(network, phase, i, train, valid, tokenizer.lossless, run, device, stop, final and i == last))
    if run is None:
        for job in jobs:  # all phases, before there is a run folder
            _check_phase(job, tokenizer)
        run = RunFolder.create(folder, recipe, tokenizer, texts=texts, **facts)
    elif run.manifest.get("texts", texts) != texts:
        raise RunError(
            f"The data of {folder} has changed since the run began. Restore it to resume, or train again with another "
            "--out.",
            path=folder,
        )
    smaller = f"or train a smaller model or batch with another --out. The last good state of {run.path} is unharmed."
    with run.lock(), explain_memory_errors(f"Free memory or raise the limit, then continue with --resume; {smaller}"):
        yield from _run_and_log(run, [dataclasses.replace(job, run=run) for job in jobs], tokenizer)


def _check_phase(job: Job, tokenizer: Tokenizer) -> None:
    if job.phase.init_from:
        initial_weights(job, tokenizer)
    if job.phase.kind == "gradient":
        Trainer.check(job)
    elif job.phase.kind == "count":
        _require_counting(job).check(job.train, job.phase.estimator)


def _run_and_log(run: RunFolder, jobs: list[Job], tokenizer: Tokenizer) -> Iterator[Event]:
    """Run the phases from the saved state on, write every event to the log, and seal the finished run."""
    state, damage = run.find_state()
    first = 0
    if state is not None:
        first, step = state_position(state)
        if first >= len(jobs):
            raise RunError(
                f"{state} belongs to phase {first}, but the recipe has {len(jobs)}. Train again.", path=state
            )
        run.rewind_log(lambda line: _is_before(line, first, step))
    elif (run.path / "log.jsonl").exists():
        run.rewind_log(lambda line: False)
    for job in jobs[first:]:
        notes = [*damage, *(load_initial_weights(job, tokenizer) if job.phase.init_from else ())]
        damage = []
        for event in PHASES[job.phase.kind](job):
            if event.kind == BEGIN and notes:
                all_notes = [*notes, *event.values.get("notes", ())]
                event = dataclasses.replace(event, values={**event.values, "notes": all_notes})
            run.log({"index": job.index, **event.as_line()})
            yield event
            if event.is_interrupted:
                return
    run.seal(finished=True, parameters=jobs[0].network.num_parameters())


def _is_before(line: Mapping[str, Any], phase: int, step: int) -> bool:
    """Whether a log line was written before the saved state, so that it will not be written again."""
    is_end = line.get("event") == END and line.get("index") == phase
    return (line.get("index", 0), line.get("step", 0)) <= (phase, step) and not is_end


def run_count_phase(job: Job) -> Iterator[Event]:
    """Phases of kind `count`. A resumed run counts from the beginning: one pass, which gives the same model."""
    network, event, tokens, step = _require_counting(job), _event_factory(job), len(job.train.ids), 0
    assert job.run is not None
    yield event(BEGIN, step, 0.0, {"tokens": tokens})
    for step, values in enumerate(network.count(job.train, job.valid, job.phase.estimator), 1):
        yield event(STEP, step, values.get("fraction", 0.0), values)
        if job.stop():
            yield event(END, step, 0.0, {"reason": "interrupted"})
            return
    job.run.save_model(network.save)
    yield event(END, step, 1.0, {"reason": "counted", "tokens": tokens})


def _event_factory(job: Job) -> Callable[[str, int, float, Mapping[str, Any]], Event]:
    """A function that makes the events of a phase from their kind, step, fraction done and values."""
    started = time.perf_counter()

    def make_event(kind: str, step: int, fraction: float, values: Mapping[str, Any]) -> Event:
        seconds = 0.0 if kind == BEGIN else time.perf_counter() - started
        return Event(kind, job.phase.name, step, fraction, seconds, values)

    return make_event


def _require_counting(job: Job) -> Counting:
    if not isinstance(job.network, Counting):
        problem = f"does not work: {type(job.network).__name__} is trained by gradient descent. Use kind = 'gradient'."
        raise invalid("kind", "count", problem, f"phase '{job.phase.name}'")
    return job.network


def run_prompt_phase(job: Job) -> Iterator[Event]:
    """Phases of kind `prompt`: label the data. A resumed run labels all of it again, with the same result."""
    model, phase, event, done = job.network, job.phase, _event_factory(job), 0
    if not isinstance(model, InContextModel):
        problem = "trains nothing. Use `nextword transfer gpt3/in-context`."
        raise invalid("kind", "prompt", problem, f"phase '{phase.name}'")
    assert job.run is not None
    facts = {"shots": sum(model.solved.values()), "parameters": model.num_parameters(), "seed": phase.seed}
    yield event(BEGIN, done, 0.0, {**facts, "device": str(job.device), "notes": model.notes})
    job.run.save_model(model.save)
    for done, total in model.label_splits(job.valid):
        yield event(STEP, done, done / total, {"of": total})
        if job.stop() and done < total:
            yield event(END, done, 0.0, {"reason": "interrupted"})
            return
    yield event(VALID, done, 1.0, {**model.score_examples(job.valid["dev"]), "best": True})
    yield event(END, done, 1.0, {"reason": "shown"})


@runtime_checkable
class InContextModel(Protocol):
    """A language model that labels examples after a prompt of solved ones (tasks/in_context.py)."""

    solved: Mapping[str, int]  # label → solved examples in the prompt
    notes: Sequence[str]

    def num_parameters(self) -> int: ...
    def label_splits(self, splits: Mapping[str, Any]) -> Iterator[tuple[int, int]]: ...  # done, total
    def score_examples(self, examples: Any) -> dict[str, float]: ...
    def save(self, folder: Path) -> list[str]: ...


PHASES = {"gradient": run_gradient_phase, "count": run_count_phase, "prompt": run_prompt_phase}


# ------------------------------------------------------------------------------------------------ parts of a run


def build_network(recipe: Recipe, tokenizer: Tokenizer) -> Any:
    """The recipe's network for this tokenizer, with random weights."""
    config = network_config(recipe)
    torch.manual_seed(recipe.phases[0].seed)
    return model_class(recipe.slug)(config, vocabulary(tokenizer, spellings=True))


def build_tokenizer(recipe: Recipe, corpus: Corpus, on_progress: LabeledProgress = ignore_progress) -> Tokenizer:
    """The recipe's tokenizer, trained on the training split alone.

    With `[tokenizer] every = N` it reads one in N documents, which is enough of a large text.
    """
    spec = dict(recipe.tokenizer)
    every = spec.pop("every", 1)
    if "load" in spec:
        return train_tokenizer(recipe.tokenizer, ())
    if type(every) is not int or every < 1:
        raise invalid("tokenizer.every", every, "must be a whole number of at least 1: one in so many documents.")

    def texts() -> Iterator[str]:
        done, total = 0, corpus.bytes("train")
        for i, document in enumerate(corpus.documents("train")):
            parts = (document.text,) if document.source is None else (document.source, document.text)
            if i % every == 0:
                yield from parts
            done += sum(map(len, parts))
            on_progress("training the tokenizer", done, total)

    return train_tokenizer(spec, texts(), pretrained_words(recipe))


def pretrained_words(recipe: Recipe) -> Sequence[str]:
    """Words that the recipe's network has pretrained vectors for."""
    words: Sequence[str] = model_class(recipe.slug).pretrained_words(network_config(recipe))
    return words


def _open_corpus(phase: Phase) -> Corpus:
    """A phase's text, without the passages of its evaluation sets (`decontaminate`)."""
    if phase.kind not in PHASES:
        raise unknown("kind", phase.kind, PHASES, where=f"phase '{phase.name}'")
    if not phase.data:
        raise InvalidSetting(
            f"Phase '{phase.name}' has no data. Name a path or a data set (`nextword data`) with --data.", key="data"
        )
    corpus = open_parallel(phase.data) if trains_on_pairs(phase.objective) else open_corpus(phase.data)
    names = [phase.decontaminate] if isinstance(phase.decontaminate, str) else phase.decontaminate
    if names and corpus.is_parallel:
        problem = "cuts passages out of a text, which is not possible for pairs. Leave it out."
        raise invalid("decontaminate", names, problem, f"phase '{phase.name}'")
    return DecontaminatedCorpus(corpus, [open_corpus(name) for name in names]) if names else corpus


def _prepare_splits(corpus: Corpus, tokenizer: Tokenizer, on_progress: LabeledProgress) -> dict[str, Any]:
    prepare_split = prepare_parallel if corpus.is_parallel else prepare
    return {
        split: prepare_split(corpus, split, tokenizer, progress=partial(on_progress, f"reading {split}"))
        for split in ("train", "valid")
        if split in corpus.splits
    }


def add_unlabeled_sources(
    phase: Phase, pairs: Pairs, tokenizer: Tokenizer, vocabulary: Vocabulary, on_progress: LabeledProgress
) -> tuple[PairsAndSources, str]:
    """Combine the pairs with the untranslated sources that the objective names; return also the text's fingerprint."""
    objective: Any = make_objective(phase.objective, phase.batches, vocabulary)
    name, key = objective.unlabeled, f"phase.{phase.name}.objective.unlabeled"
    if tokenizer.end is None:
        problem = "has no end token, which untranslated sources need. Use another, such as unigram or bpe."
        raise invalid("tokenizer.kind", tokenizer.kind, problem)
    try:
        corpus = open_unsplit(name)
    except NextwordError as problem:
        raise DataError(
            f"Cannot read untranslated sources from {name!r}: {problem} Name another text with --set {key}=FILE, or "
            f"train on pairs only with --set {key}=''.",
            path=name,
        ) from None
    split = "train" if "train" in corpus.splits else corpus.splits[0]
    text = prepare(corpus, split, tokenizer, progress=partial(on_progress, "reading untranslated sources"))
    combined = PairsAndSources(pairs, Sources(text, tokenizer.end, objective.layout.length))
    len(combined.sources)  # raises an error now if there are none
    return combined, corpus.fingerprint
