"""The process behind a job: it trains what the first line of its input says, and prints a JSON object per event.

    server ──job, later "stop"──▶ stdin │ worker │ stdout ──events, at last the outcome──▶ server

"stop" has the effect of Ctrl-C on the command line: training ends after the current step with its state saved. So has
the end of the input, which comes when the server ends, however it ends: no worker outlives its server for long.

**Samples.** At a validation the worker generates a short text, as long as this takes a twentieth of the training time
at most. The text comes from a copy of the network, and random numbers of its own, so that training with samples and
without gives the same bits.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

import torch

import nextword
from nextword.comparison.compare import FILE, Update, open_plan, run_plan
from nextword.comparison.report import describe_winner
from nextword.core.errors import NextwordError, as_keywords, in_command_line
from nextword.core.io import parse_json, to_json
from nextword.core.types import Greedy, Sample, Stop
from nextword.data.opening import open_corpus
from nextword.data.parallel import open_parallel
from nextword.data.segmentation import is_unspaced, opening_words
from nextword.lm.base import TextModel
from nextword.lm.loading import load, wrap_run
from nextword.lm.seq2seq import Seq2SeqLM
from nextword.models import abilities, model_class
from nextword.objectives import trains_on_pairs
from nextword.progress.display import Interrupt, interruptible
from nextword.recipe import Recipe, load_recipe
from nextword.run_folder import RunFolder
from nextword.server.comparisons import describe_row
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.loading import load_tokenizer
from nextword.training.events import BEGIN, END, STEP, VALID, Event
from nextword.training.train import build_network
from nextword.training.trainer import load_network_tensors, network_tensors

GRACE_SECONDS = 30.0  # for a step to end after a stop; then the process ends, and the state saved before counts
NICENESS = 5  # the server answers first
STEP_SECONDS = 0.5  # between two step events, or
STEP_SHARE = 1 / 1000  # of the time so far, so that a long training has no more than a few thousand
SAMPLE_SHARE = 0.05  # of the training time
SAMPLE_TOKENS, SAMPLE_SEED, SAMPLE_CHARACTERS = 40, 1, 1000
PROMPT_WORDS = 12  # of a held-out text, with a blank among them
GUESSES = 5
BLANK = "___"

Object = dict[str, Any]
Emit = Callable[[Object], None]


def main() -> None:
    """Run one job and exit."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed goes to the log
    os.nice(NICENESS)
    in_command_line.set(False)
    with open(0, "rb", buffering=0, closefd=False) as source:
        job = parse_json(source.readline(), "the job")
    emit = _Output(output)
    with interruptible() as interrupt:
        threading.Thread(target=_wait_for_stop, daemon=True).start()
        emit({"event": "outcome", **run_job(job, interrupt, emit)})


class _Output:
    def __init__(self, file: TextIO) -> None:
        self.file = file

    def __call__(self, event: Object) -> None:
        try:
            self.file.write(to_json(event) + "\n")
            self.file.flush()
        except OSError:  # the server is gone: the end of the input stops training
            self.file = open(os.devnull, "w")  # noqa: SIM115 (until the process ends)


def run_job(job: Mapping[str, Any], interrupt: Interrupt, emit: Emit) -> Object:
    """Train or compare; return the outcome: {"state": "finished", "stopped" or "failed", "error"}."""
    try:
        interrupt.stops_at_once = True  # until there is a step whose end is worth waiting for
        work = {"train": _train, "compare": _compare}[job["kind"]]
        is_complete = not interrupt.is_requested and work(job, interrupt, emit)
        return {"state": "finished" if is_complete else "stopped", "error": None}
    except KeyboardInterrupt:
        return {"state": "stopped", "error": None}
    except NextwordError as error:
        return {"state": "failed", "error": as_keywords(str(error))}


def _wait_for_stop() -> None:
    os.read(0, 1)
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    signal.pthread_kill(main_thread, signal.SIGINT)
    time.sleep(GRACE_SECONDS)
    os._exit(1)


def _train(job: Mapping[str, Any], interrupt: Interrupt, emit: Emit) -> bool:
    folder, name, device = Path(job["folder"]), job["models"][0], job["device"]
    if (folder / "manifest.json").is_file():
        events = nextword.train(resume=True, out=folder, device=device, events=True, stop=interrupt)
    else:
        recipe = load_recipe(job["recipe"])
        is_timed = job["minutes"] and recipe.phases[0].kind == "gradient"
        settings = {"minutes": job["minutes"]} if is_timed else {}
        events = nextword.train(
            job["recipe"], job["source"], out=folder, device=device, events=True, stop=interrupt, **settings
        )
    emit({"event": "activity", "model": name, "label": "preparing the text", "fraction": None})
    observer = _Observer(name, folder, job["prompt"], emit)
    is_complete = False
    for event in events:
        interrupt.stops_at_once = event.kind not in (BEGIN, STEP, VALID)
        observer(event)
        is_complete = event.kind == "evaluate"
        if event.kind == END and not event.is_interrupted:
            emit({"event": "activity", "model": name, "label": "evaluating", "fraction": None})
    return is_complete


def _compare(job: Mapping[str, Any], interrupt: Interrupt, emit: Emit) -> bool:
    folder = Path(job["folder"])
    is_begun = (folder / FILE).is_file()
    plan = open_plan(job["compared"], job["source"], job["minutes"], folder, resume=is_begun)
    observers: dict[str, _Observer] = {}
    throttle = _Throttle()

    def on_update(update: Update) -> None:
        name, event = update.name, update.event
        interrupt.stops_at_once = event is None or event.kind not in (BEGIN, STEP, VALID)
        if update.status == "warning":
            emit({"event": "warning", "warnings": [as_keywords(warning) for warning in update.values["warnings"]]})
        elif event is not None:
            observer = observers.setdefault(name, _Observer(name, folder / name, job["prompt"], emit))
            observer(event)
        else:
            row = describe_row(update.values) if update.values else None
            emit({"event": "status", "model": name, "status": update.status, "row": row})

    def on_progress(label: str, done: float, total: float | None) -> None:
        if throttle.is_due():
            emit({"event": "activity", "model": None, "label": label, "fraction": done / total if total else None})

    result = run_plan(plan, job["device"], on_update, on_progress, interrupt)
    if result.is_interrupted:
        return False
    if result.report is None:
        errors = [f"{model['name']}: {model['error']}" for model in result.models]
        raise NextwordError(f"No model could be trained. {' '.join(errors)}")
    named = {**result.comparison, "data": {**result.comparison["data"], "name": job["data"]["name"]}}
    facts = {"headline": describe_winner(named), "winner": result.winner}
    emit({"event": "comparison", **facts, "mixture": result.comparison["mixture"]})
    return True


class _Throttle:
    """Allows an event from time to time."""

    def __init__(self) -> None:
        self.began = self.last = time.monotonic()

    def is_due(self) -> bool:
        now = time.monotonic()
        if now - self.last < max(STEP_SECONDS, STEP_SHARE * (now - self.began)):
            return False
        self.last = now
        return True


class _Observer:
    """Prints the events of one run, with samples."""

    def __init__(self, name: str, folder: Path, prompt: str, emit: Emit) -> None:
        self.name, self.folder, self.emit = name, folder, emit
        self.throttle = _Throttle()
        self.sampler = Sampler(folder, prompt)

    def __call__(self, event: Event) -> None:
        is_rare = event.kind != STEP or "ngrams" in event.values or event.step == event.values.get("of")
        if is_rare or self.throttle.is_due():
            self.emit({**event.as_line(), "event": event.kind, "model": self.name})
        sample = None
        if event.kind == VALID:
            sample = self.sampler.sample(event)
        elif event.kind == END and not event.is_interrupted:
            sample = self.sampler.sample_finished()
        if sample is not None:
            facts = {"model": self.name, "step": event.step, "seconds": event.seconds, "final": event.kind == END}
            self.emit({"event": "sample", **facts, **sample})


# ------------------------------------------------------------------------------------------------ samples


class Sampler:
    """Short texts of a network that is being trained, all with one prompt and one seed."""

    def __init__(self, folder: Path, prompt: str = "") -> None:
        self.folder, self.given = folder, prompt
        self.spent = self.last = 0.0  # seconds
        self.is_broken = False

    @cached_property
    def run(self) -> RunFolder:
        return RunFolder.open(self.folder)

    @cached_property
    def recipe(self) -> Recipe:
        return self.run.recipe

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.folder / "tokenizer.json")

    @property
    def can_sample(self) -> bool:
        """Whether this kind of model writes or fills anything."""
        return bool(abilities(model_class(self.recipe.slug), self.recipe.model) & {"generate", "fill"})

    def sample(self, event: Event) -> Object | None:
        """A sample of the network at a validation; None if that would take too much of the time."""
        is_dear = self.spent and self.spent + self.last > SAMPLE_SHARE * event.seconds
        if event.network is None or is_dear:
            return None
        started = time.perf_counter()
        sample = self._try(lambda: copy_model(self.run, self.tokenizer, event.network))
        self.last = time.perf_counter() - started
        self.spent += self.last
        return sample

    def sample_finished(self) -> Object | None:
        """A sample of the finished model."""
        return self._try(lambda: load(self.folder))

    def _try(self, open_model: Callable[[], TextModel]) -> Object | None:
        """A sample must never end a training: the first problem ends the samples."""
        if self.is_broken:
            return None
        devices = range(torch.cuda.device_count())
        try:
            if not self.can_sample:
                return None
            with torch.random.fork_rng(devices):
                return draw_sample(open_model(), *self.prompt)
        except Exception:
            traceback.print_exc()
            self.is_broken = True
            return None

    @cached_property
    def prompt(self) -> tuple[str, str | None]:
        """What the samples continue, fill or translate, and for a held-out source its translation."""
        if self.given:
            return self.given, None
        phase = self.recipe.phases[-1]
        is_parallel = trains_on_pairs(phase.objective)
        corpus = open_parallel(phase.data) if is_parallel else open_corpus(phase.data)
        document = next(corpus.documents("valid" if "valid" in corpus.splits else "train"))
        if document.source is not None:
            return document.source, document.text
        words = opening_words(document.text, PROMPT_WORDS).split()
        if is_unspaced(document.text[:200]) or len(words) < 2:
            return opening_words(document.text), None
        middle = len(words) // 2
        return " ".join([*words[:middle], BLANK, *words[middle + 1 :]]), None


def copy_model(run: RunFolder, tokenizer: Tokenizer, network: Any) -> TextModel:
    """A model with the weights that a network has now. The network is left alone."""
    copy = build_network(run.recipe, tokenizer)
    load_network_tensors(copy, network_tensors(network))
    return wrap_run(copy.to(network.device).eval(), tokenizer, run)


def draw_sample(lm: TextModel, prompt: str, reference: str | None = None) -> Object | None:
    """A continuation of the prompt; of models that see both sides, its blank filled; else its translation."""
    stop = Stop(SAMPLE_TOKENS)
    with_blank = prompt if BLANK in prompt else f"{prompt} {BLANK}"
    if lm.can_infill:
        filled = lm.infill(with_blank, Greedy(), stop)[0]
        return {"kind": "blank", "prompt": with_blank, "text": " ".join(filled.blanks)[:SAMPLE_CHARACTERS]}
    if isinstance(lm, Seq2SeqLM):
        text = lm.generate(prompt, Greedy(), stop).text[:SAMPLE_CHARACTERS]
        return {"kind": "translation", "prompt": prompt, "text": text, "reference": reference}
    if "generate" in lm.can:
        opening = prompt.partition(BLANK)[0].rstrip()
        text = lm.generate(opening, Sample(temperature=0.8, seed=SAMPLE_SEED), stop).text
        return {"kind": "continuation", "prompt": opening, "text": text[:SAMPLE_CHARACTERS]}
    if "fill" in lm.can:
        guesses = [{"text": guess.text, "p": guess.probability} for guess in lm.fill(with_blank, GUESSES)[0]]
        return {"kind": "blank", "prompt": with_blank, "text": guesses[0]["text"], "guesses": guesses}
    return None


if __name__ == "__main__":
    main()
