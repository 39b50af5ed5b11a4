"""Weights: one loop for every model. `train` opens the text, makes the tokenizer, and runs the recipe's phases.

Pairs with sources beside them that nobody has translated, for an objective that names such a text (`unlabelled`).

Phases of kind `count`: the model reads the text once and counts, and reports how far it is.

Phases of kind `show`: nothing is learnt. A language model is shown solved examples (prompting.py), and labels what
is held out.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nextword.batching.seq2seq import Beside, Pairs, Sources, prepare_pairs
from nextword.batching.token_stream import prepare
from nextword.core.errors import NextwordError, did_you_mean
from nextword.core.protocols import Counting, Tokenizer
from nextword.core.types import Vocabulary
from nextword.data.corpus import Corpus
from nextword.data.filters.decontaminate import Without
from nextword.data.opening import open_corpus, open_whole
from nextword.data.parallel import open_parallel
from nextword.models import count_parameters, model_class
from nextword.objectives import make_objective, of_pairs
from nextword.recipe import Phase, Recipe, check_types, differing
from nextword.run_folder import RunFolder
from nextword.tokenizers import vocabulary
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.training import train_tokenizer
from nextword.training.device import choose_device
from nextword.training.events import BEGIN, END, STEP, VALID, Event, Job
from nextword.training.trainer import Trainer, descend
from nextword.training.warm_start import _begin_with, _beginning


def with_sources(
    phase: Phase, pairs: Pairs, tokenizer: Tokenizer, vocabulary: Vocabulary, progress: Any
) -> tuple[Beside, str]:
    """The pairs with the text beside them, and its fingerprint."""
    objective = make_objective(phase.objective, phase.batches, vocabulary)
    name, key = objective.unlabelled, f"phase.{phase.name}.objective.unlabelled"
    if tokenizer.end is None:
        raise NextwordError(
            f"Phase '{phase.name}': what a network writes of sources alone has to have an end, and a tokenizer of kind "
            f"'{tokenizer.kind}' has none. Take another, as unigram or bpe."
        )
    try:
        corpus = open_whole(name)
    except NextwordError as problem:
        raise NextwordError(
            f"Sources without translations are to come from {name!r}: {problem} Name another text with --set "
            f"{key}=FILE, or learn from pairs alone with --set {key}=''."
        ) from None
    split = "train" if "train" in corpus.splits else corpus.splits[0]
    text = prepare(corpus, split, tokenizer, progress=partial(progress, "reading sources without translations"))
    found = Beside(pairs, Sources(text, tokenizer.end, objective.layout.length))
    len(found.sources)  # what is wrong with them shows now
    return found, corpus.fingerprint


def count(job: Job) -> Iterator[Event]:
    """Counting begins anew when it is resumed: it is one pass, and the same pass gives the same model."""
    network, phase = job.network, job.phase
    if not isinstance(network, Counting):
        raise NextwordError(
            f"Phase '{phase.name}' is of kind 'count', but {type(network).__name__} learns by gradient."
        )
    began = time.perf_counter()
    tokens = len(job.train.ids)
    yield Event(BEGIN, phase.name, 0, 0.0, 0.0, {"tokens": tokens})
    steps = 0
    for steps, values in enumerate(network.count(job.train, job.valid, phase.estimator), 1):
        yield Event(STEP, phase.name, steps, values.get("fraction", 0.0), time.perf_counter() - began, values)
        if job.stop():
            yield Event(END, phase.name, steps, 0.0, time.perf_counter() - began, {"reason": "interrupted"})
            return
    job.run.save_model(network.save)
    yield Event(END, phase.name, steps, 1.0, time.perf_counter() - began, {"reason": "counted", "tokens": tokens})


def show(job: Job) -> Iterator[Event]:
    """Labelling begins anew when it is resumed: the same examples are shown, and the same is said."""
    model, phase = job.network, job.phase
    if not hasattr(model, "labelled"):
        raise NextwordError(
            f"Phase '{phase.name}' is of kind 'show', in which nothing is learnt: it is for `nextword transfer "
            "gpt3/in-context`."
        )
    began = time.perf_counter()
    shown = {"shots": sum(model.solved.values()), "parameters": model.stored, "seed": phase.seed}
    yield Event(BEGIN, phase.name, 0, 0.0, 0.0, {**shown, "device": str(job.device), "notes": model.notes})
    job.run.save_model(model.save)
    done = 0
    for done, total in model.labelled(job.valid):
        yield Event(STEP, phase.name, done, done / total, time.perf_counter() - began, {"of": total})
        if job.stop() and done < total:
            yield Event(END, phase.name, done, 0.0, time.perf_counter() - began, {"reason": "interrupted"})
            return
    values = {**model.measured(job.valid["dev"]), "best": True}
    yield Event(VALID, phase.name, done, 1.0, time.perf_counter() - began, values)
    yield Event(END, phase.name, done, 1.0, time.perf_counter() - began, {"reason": "shown"})


PHASES = {"gradient": descend, "count": count, "show": show}
NAMED = 4  # tensors that do not fit, or settings that differ, in a message


def train(
    recipe: Recipe | None,
    folder: str | Path,
    resume: bool = False,
    *,
    tokenizer: Tokenizer | None = None,
    device: str = "auto",
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[str, float, float | None], None] = lambda label, done, total: None,
) -> Iterator[Event]:
    """Train into a run folder, yielding events; all of them are in its log too.

    A `tokenizer` already learnt from the recipe's table on the same text saves learning it again.
    `stop` is asked between steps: true ends training with its state saved. With `resume`, the recipe is the folder's.
    """
    chosen = choose_device(device)
    run = reopened(folder, recipe) if resume else None
    recipe = run.recipe if run else recipe
    if recipe is None:
        raise NextwordError("Training needs a recipe. `nextword papers` lists those that come along.")
    if recipe.task is not None:
        source = "" if recipe.tokenizer else "--from RUN "
        how = f"--resume --out {folder}" if run else f"{recipe.name} {source}--data X"
        raise NextwordError(f"{recipe.name} is for learning a task: `nextword transfer {how}`.")
    if not run:
        RunFolder.refuse_if_taken(folder)
    corpora = [_corpus(phase) for phase in recipe.phases]
    if run:
        tokenizer = load_tokenizer(run.path / "tokenizer.json")
    elif tokenizer is None:
        tokenizer = learn_tokenizer(recipe, corpora[0], progress)
    network = build(recipe, tokenizer)
    if not run or not run.begun:  # what goes on has it in its state
        load_pretrained_embeddings(network)
    streams = [_streams(corpus, tokenizer, progress) for corpus in corpora]
    texts = {phase.name: corpus.fingerprint for phase, corpus in zip(recipe.phases, corpora, strict=True)}
    for phase, stream in zip(recipe.phases, streams, strict=True):
        if of_pairs(phase.objective) and phase.objective.get("unlabelled"):
            stream["train"], read = with_sources(phase, stream["train"], tokenizer, network.vocabulary, progress)
            texts[phase.name] += f"-{read}"
    sources = {phase.name: corpus.source for phase, corpus in zip(recipe.phases, corpora, strict=True)}
    yield from run_phases(recipe, folder, run, network, tokenizer, streams, chosen, stop, data=sources, texts=texts)


def reopened(folder: str | Path, recipe: Recipe | None = None) -> RunFolder:
    """A run that is to be gone on with. A recipe that is given has to be its own."""
    run = RunFolder.open(folder)
    run.verify("recipe.toml", "tokenizer.json")  # a kill may have come before the model it names was there
    if recipe is not None and dataclasses.replace(recipe, name="", path=None) != dataclasses.replace(
        run.recipe, name="", path=None, measured=recipe.measured, compare=recipe.compare
    ):
        raise other_settings(folder, recipe, differing(run.recipe, recipe))
    return run


def other_settings(folder: str | Path, recipe: Recipe, found: Sequence[str]) -> NextwordError:
    """Of a run that is to be gone on with, or whose result is asked for, by another recipe than its own."""
    command = "train" if recipe.task is None else "transfer"
    more = f", and {len(found) - NAMED} more" if len(found) > NAMED else ""
    which = f": {'; '.join(found[:NAMED])}{more}" if found else ""
    return NextwordError(
        f"{folder} holds a run of another recipe, or of this one with other settings{which}. Take it as it is "
        f"(`nextword {command} --resume --out {folder}`), or choose another --out."
    )


def run_phases(
    recipe: Recipe,
    folder: str | Path,
    run: RunFolder | None,
    network: Any,
    tokenizer: Tokenizer,
    streams: Sequence[Mapping[str, Any]],
    device: torch.device,
    stop: Callable[[], bool] = lambda: False,
    final: bool = False,
    *,
    texts: Mapping[str, str],
    **facts: Any,
) -> Iterator[Event]:
    """Run the phases of a network over what each reads, {"train": …, "valid": …}, into the run folder.

    `run` is the folder to be gone on with, or None for a new one; `texts` are fingerprints of what is read. `final`: no
    state is kept of the end.
    """
    last = len(recipe.phases) - 1
    jobs = [
        Job(
            network,
            phase,
            i,
            streams[i]["train"],
            streams[i].get("valid"),
            tokenizer.lossless,
            run,
            device,
            stop,
            final and i == last,
        )
        for i, phase in enumerate(recipe.phases)
    ]
    if run is None:
        _check(jobs, tokenizer)
        run = RunFolder.create(folder, recipe, tokenizer, texts=texts, **facts)
    elif run.manifest.get("texts", texts) != texts:
        raise NextwordError(
            f"The text is not the one that {folder} was trained on so far: it or its splits have changed. Restore it "
            "to resume, or train anew with another --out."
        )
    with run.lock():
        yield from _phases(run, [dataclasses.replace(job, run=run) for job in jobs], tokenizer)


def _check(jobs: list[Job], tokenizer: Tokenizer) -> None:
    """What is wrong with a phase shows before there is a folder for it."""
    for job in jobs:
        if job.phase.init:
            _beginning(job, tokenizer)
        if job.phase.kind == "gradient":
            Trainer(job)
        elif hasattr(job.network, "check"):
            job.network.check(job.train, job.phase.estimator)


def _phases(run: RunFolder, jobs: list[Job], tokenizer: Tokenizer) -> Iterator[Event]:
    state = run.load_state()
    first = 0
    if state is not None:
        first, step = state[1]["phase"], state[1]["step"]
        run.rewind_log(
            lambda line: (
                (line.get("index", 0), line.get("step", 0)) <= (first, step)
                and not (line.get("event") == "end" and line.get("index") == first)
            )
        )
    elif (run.path / "log.jsonl").exists():
        run.rewind_log(lambda line: False)
    for job in jobs[first:]:
        notes = _begin_with(job, tokenizer) if job.phase.init else ()
        for event in PHASES[job.phase.kind](job):
            if event.kind == BEGIN and notes:
                event = dataclasses.replace(event, values={**event.values, "notes": list(notes)})
            run.log({"index": job.index, **event.as_line()})
            yield event
            if event.values.get("reason") == "interrupted":
                return
    run.seal(finished=True, parameters=count_parameters(jobs[0].network))


def build(recipe: Recipe, tokenizer: Tokenizer) -> Any:
    """The recipe's network over this tokenizer's ids, with untrained weights."""
    cls = model_class(recipe.slug)
    known = [f.name for f in dataclasses.fields(cls.Config)]
    for key in recipe.model:
        if key not in known:
            raise NextwordError(
                f"{recipe.name}: [model] of '{recipe.slug}' has no key '{key}'.{did_you_mean(key, known)} "
                f"It has {', '.join(known)}."
            )
    check_types(recipe.model, cls.Config, f"{recipe.name}: in [model],")
    torch.manual_seed(recipe.phases[0].seed)
    return cls(cls.Config(**recipe.model), vocabulary(tokenizer, spellings=True))


def load_pretrained_embeddings(network: Any) -> None:
    """What a network has that is neither learnt nor drawn: vectors of words, out of a file that its recipe names."""
    if hasattr(network, "load_pretrained_embeddings"):
        network.load_pretrained_embeddings()


def _corpus(phase: Any) -> Corpus:
    """A phase's text, less what its evaluation sets hold."""
    _data(phase)
    corpus = open_parallel(phase.data) if of_pairs(phase.objective) else open_corpus(phase.data)
    names = [phase.without] if isinstance(phase.without, str) else phase.without
    if names and corpus.parallel:
        raise NextwordError(
            f"Phase '{phase.name}': `without` cuts passages out of a text, and pairs cannot be cut. Leave it out."
        )
    return Without(corpus, [open_corpus(name) for name in names]) if names else corpus


def _data(phase: Any) -> None:
    if phase.kind not in PHASES:
        raise NextwordError(f"No phase is of kind '{phase.kind}'. There are {', '.join(PHASES)}.")
    if not phase.data:
        raise NextwordError(
            f"Phase '{phase.name}' names no data. Give it with --data, a path or a name (`nextword data`)."
        )


def learn_tokenizer(recipe: Recipe, corpus: Corpus, progress: Any = lambda label, done, total: None) -> Tokenizer:
    """The recipe's tokenizer, learnt on the training split alone."""
    if "load" in recipe.tokenizer:
        return train_tokenizer(recipe.tokenizer, ())

    def texts() -> Iterator[str]:
        done, total = 0, corpus.bytes("train")
        for document in corpus.documents("train"):
            for text in (document.source, document.text) if document.source is not None else (document.text,):
                yield text
                done += len(text)
            progress("learning the vocabulary", done, total)

    return train_tokenizer(recipe.tokenizer, texts(), known_words(recipe))


def known_words(recipe: Recipe) -> Sequence[str]:
    """Words that the recipe's network has vectors of before it has learnt anything."""
    cls = model_class(recipe.slug)
    return cls.words(cls.Config(**recipe.model)) if hasattr(cls, "words") else ()


def _streams(corpus: Corpus, tokenizer: Tokenizer, progress: Any) -> dict[str, Any]:
    made = prepare_pairs if corpus.parallel else prepare
    return {
        split: made(corpus, split, tokenizer, progress=partial(progress, f"reading {split}"))
        for split in ("train", "valid")
        if split in corpus.splits
    }


# ------------------------------------------------------------------------------------------------ init = RUN
