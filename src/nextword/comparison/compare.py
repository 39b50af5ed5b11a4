"""Compare models: train each under one budget on one text, score all on the same held-out bytes.

    plan = open_plan(["lstm/small", "runs/mine"], "my.txt", minutes=10, out="runs/compare")
    run_plan(plan).report                     # the path of the HTML report
    plan.result(device)                       # what `nextword compare --json` prints

The plan and all results so far are in comparison.json, so a comparison can be interrupted at any time, also in the
middle of a model, and resumed with `Plan.open`.

**Sizes.** A recipe takes part in the default ladder if it has a table [compare] with `sizes`, smallest first, each a
set of [model] keys. `choose_size` takes the largest one that this machine can train well: one that sees the text least
`min_passes` times in its share of the budget. If it will see the text very often, the keys of `regularization`
(dropout) are set too. A count-based model reads the text once, in seconds: it takes its largest size and no share of
the budget. All sizes are chosen first, so that a budget too short for the text is known before anything is trained.

**Limits.** limits.py says what the budget leaves open, and whether there is a winner; mixture.py, what a model gains
from another. The scores of every token stay in scores/, one file per model, for the mixture.
"""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nextword import __version__
from nextword.batching.seq2seq import Pairs, prepare_pairs
from nextword.batching.token_stream import Stream, prepare
from nextword.comparison.limits import find_limits
from nextword.comparison.mixture import find_best_mixture, save_scores, token_scores
from nextword.comparison.report import render
from nextword.comparison.result import ComparisonResult
from nextword.comparison.translation import (
    TRANSLATOR,
    are_translators,
    choose_examples,
    default_pairs,
    score_translator,
)
from nextword.core.errors import NextwordError, RunError, Unsupported, explain_write_errors, invalid, unknown
from nextword.core.io import format_number, read_json, restore_infinities, to_json, write_atomically
from nextword.core.scratch import PREFIX
from nextword.core.types import LabeledProgress, Sample, Stop, ignore_progress
from nextword.data.builtin import default_name
from nextword.data.corpus import Corpus
from nextword.data.opening import open_corpus
from nextword.data.parallel import open_parallel
from nextword.data.segmentation import is_unspaced, opening_words
from nextword.evaluation.likelihood import MIN_TOKENS, UNSPACED_BYTES, evaluate_stream, token_surprisal
from nextword.html.formatting import format_size
from nextword.lm.base import TextModel
from nextword.lm.loading import load
from nextword.lm.seq2seq import Seq2SeqLM
from nextword.model_card import write_card
from nextword.models import MODELS, title
from nextword.recipe import Recipe, load_recipe, parse_recipe, recipe_names, recipe_tables, short_authors
from nextword.run_folder import RunFolder, explain_read_errors, is_run
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.loading import load_tokenizer
from nextword.training.device import choose_device
from nextword.training.events import Event, Job
from nextword.training.train import build_network, build_tokenizer, train_events
from nextword.training.trainer import Trainer

FILE = "comparison.json"
REPORT = "report.html"
TRAINING_SHARE = 0.92  # of the budget; the rest is for choosing sizes and scoring
MIN_PASSES = 0.8  # over the text that a size must manage, unless it is the smallest
MANY_PASSES = 4.0  # from here on the recipe's `regularization` settings apply
TIMED_STEPS = 4
SAMPLE_TOKENS = 60
PASSAGE_LENGTH = 420  # characters
SMALL_TEXT = 20_000  # words of training text below which a ranking is hardly that of the language
SHORT_TRAINING = 10.0  # seconds per network below which it hardly learns
SCORES = "scores"  # folder with the cost of every token under each model

Prepared = Stream | Pairs  # a tokenized split of plain text, or of pairs


# ------------------------------------------------------------------------------------------------ the plan


@dataclass
class Plan:
    """What to compare, on what, in how much time; and the results so far."""

    folder: Path
    data: str
    minutes: float
    entries: list[dict[str, Any]]  # {"name", "recipe": tables} to train, or {"name", "run": folder} to score as it is
    changes: list[str] = field(default_factory=list)  # --set
    models: dict[str, dict[str, Any]] = field(default_factory=dict)  # results by name
    facts: dict[str, Any] = field(default_factory=dict)  # data, tokenizer, passage, notes

    @classmethod
    def open(cls, folder: Path) -> Plan:
        path = folder / FILE
        if not path.is_file():
            raise RunError(f"{folder} has no comparison to resume. Start one without --resume.", path=folder)
        with explain_read_errors(path, f"Remove {folder} and compare again."):
            plan = cls(folder, **read_json(path, {"plan": dict})["plan"])
            plan.models = {name: restore_infinities(model) for name, model in plan.models.items()}
            return plan

    @property
    def has_pairs(self) -> bool:
        """Whether this is a comparison of sequence-to-sequence models."""
        return are_translators(self.entries)

    def save(self, device: str) -> None:
        """Write the plan and the results so far."""
        document = {**self.result(device), "plan": {k: v for k, v in vars(self).items() if k != "folder"}}
        self.folder.mkdir(parents=True, exist_ok=True)
        ending = ", then continue with --resume."
        with explain_write_errors(self.folder, ending), write_atomically(self.folder / FILE) as file:
            file.write(to_json(document, indent=1).encode())

    def result(self, device: str) -> dict[str, Any]:
        """The comparison as `compare --json` prints it; exact likelihoods first, best first."""
        order = [entry["name"] for entry in self.entries if entry["name"] in self.models]
        models = [self.models[name] for name in order]
        models.sort(key=lambda m: (m["kind"] != "exact", m.get("bits_per_byte") is None, m.get("bits_per_byte") or 0.0))
        return {
            "version": __version__,
            "created": datetime.now().isoformat(timespec="seconds"),
            "data": self.facts.get("data", {"name": self.data}),
            "tokenizer": self.facts.get("tokenizer"),
            "budget": {
                "minutes": self.minutes if any("recipe" in entry for entry in self.entries) else None,
                "device": device,
                "threads": torch.get_num_threads(),
                "machine": f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}",
            },
            "models": models,
            "limits": find_limits(models),
            "mixture": self.facts.get("mixture"),
            "passage": self._passage(),
            **({"examples": self.facts["examples"]} if "examples" in self.facts else {}),
            "warnings": self.facts.get("warnings", []),
            "notes": self.facts.get("notes", []),
        }

    def _passage(self) -> Mapping[str, Any] | None:
        passage = self.facts.get("passage")
        surprisal = {name: model["surprisal"] for name, model in self.models.items() if model.get("surprisal")}
        return {**passage, "surprisal": surprisal} if passage and surprisal else None


def open_plan(
    models: Sequence[str] = (),
    data: str = "",
    minutes: float = 4.0,
    out: str | Path | None = None,
    changes: Sequence[str] = (),
    resume: bool = False,
) -> Plan:
    """A new plan, or the one in `out` to resume. The arguments are those of `nextword.compare`."""
    text = data or default_pairs(models) or default_name()
    folder = Path(out or f"runs/compare-{Path(text).stem.replace(':', '-')}")
    return Plan.open(folder) if resume else make_plan(folder, models, text, minutes, changes)


def make_plan(folder: Path, names: Sequence[str], data: str, minutes: float, changes: Sequence[str] = ()) -> Plan:
    """Plan a comparison of recipes and run folders, or of the default ladder."""
    if (folder / FILE).exists():
        raise RunError(f"{folder} has a comparison. Resume it with --resume, or choose another --out.", path=folder)
    if folder.exists() and (not folder.is_dir() or any(not f.name.startswith(PREFIX) for f in folder.iterdir())):
        raise RunError(f"{folder} has other files. Choose another --out.", path=folder)
    if minutes <= 0:
        raise invalid("minutes", minutes, "must be positive.")
    if names:
        entries = [_make_entry(name, changes) for name in names]
    else:
        entries = [_recipe_entry(recipe.slug, recipe.name, changes) for recipe in default_ladder()]
    for i, entry in enumerate(entries):  # two runs may have the same folder name
        if any(other["name"] == entry["name"] for other in entries[:i]):
            entry["name"] = f"{entry['name']}-{i + 1}"
    return Plan(folder, data, minutes, entries, list(changes))


def default_ladder() -> list[Recipe]:
    """Every recipe with a [compare] table, in the order of MODELS."""
    recipes = [recipe for recipe in map(load_recipe, recipe_names()) if recipe.compare]
    return sorted(recipes, key=lambda recipe: list(MODELS).index(recipe.slug))


def _make_entry(name: str, changes: Sequence[str]) -> dict[str, Any]:
    if is_run(name):
        return {"name": Path(name).name, "run": str(name)}
    if Path(name).is_dir():
        raise RunError(f"{name} is not a run folder: it has no manifest.json.", path=name)
    if name not in recipe_names() and not name.endswith(".toml"):
        hint = "`nextword runs` and `nextword papers` list them."
        raise unknown("run folder or recipe", name, recipe_names(), hint=hint)
    return _recipe_entry(name.replace("/", "-").removesuffix(".toml"), name, changes)


def _recipe_entry(name: str, recipe_name: str, changes: Sequence[str]) -> dict[str, Any]:
    recipe = load_recipe(recipe_name, changes)
    tables = {**recipe_tables(recipe), "compare": dict(recipe.compare)}
    return {"name": name, "recipe": tables, "recipe_name": recipe.name}


def _load_entry(entry: Mapping[str, Any]) -> Recipe:
    return parse_recipe(entry["recipe"], entry["recipe_name"])


# ------------------------------------------------------------------------------------------------ running it


@dataclass(frozen=True)
class Update:
    """What happens to one model: waiting, sizing, training, scoring, done or failed.

    An update without a name has the status "warning", and a list of `warnings` about the whole comparison.
    """

    name: str
    status: str
    values: dict[str, Any] = field(default_factory=dict)
    event: Event | None = None  # of the training loop, while training


def run_plan(
    plan: Plan,
    device: str = "auto",
    on_update: Callable[[Update], None] = lambda update: None,
    on_progress: LabeledProgress = ignore_progress,
    stop: Callable[[], bool] = lambda: False,
) -> ComparisonResult:
    """Train and score the models of a plan, and write the report."""
    ended = set()
    for update in compare_events(plan, device, stop, on_progress):
        on_update(update)
        if update.status in ("done", "failed"):
            ended.add(update.name)
    comparison = plan.result(str(choose_device(device)))
    report = None
    if any(model["status"] == "done" for model in comparison["models"]):
        report = plan.folder / REPORT
        report.write_text(render(comparison), encoding="utf-8")
    names = tuple(entry["name"] for entry in plan.entries)
    return ComparisonResult(plan.folder, comparison, report, names, len(ended) < len(plan.entries))


def compare_events(
    plan: Plan,
    device: str = "auto",
    stop: Callable[[], bool] = lambda: False,
    progress: LabeledProgress = ignore_progress,
) -> Iterator[Update]:
    """Train and score the models of a plan one after the other; skip those that are done."""
    chosen_device = choose_device(device)
    corpus = open_parallel(plan.data) if plan.has_pairs else open_corpus(plan.data)
    split = "test" if "test" in corpus.splits else "valid"
    plan.save(str(chosen_device))  # before anything else is written, so that a kill from here on can be resumed
    to_train = [entry for entry in plan.entries if "recipe" in entry]
    text = _prepare_text(plan, corpus, to_train[0], progress) if to_train else None
    if "notes" not in plan.facts:
        if corpus.is_parallel:
            plan.facts["examples"] = choose_examples(corpus)
        else:
            plan.facts["passage"] = {"text": _choose_passage(corpus, split)}
        _describe_data(plan, corpus, split)
    plan.save(str(chosen_device))
    if text is not None:
        recipes = yield from _choose_sizes(plan, *text, chosen_device)
    for entry in plan.entries:
        name = entry["name"]
        if plan.models.get(name, {}).get("status") == "done":
            yield Update(name, "done", plan.models[name])
            continue
        try:
            if "recipe" in entry and text is not None:
                is_interrupted = yield from _train(plan, entry, recipes, text[0], device, stop)
                if is_interrupted:
                    plan.save(str(chosen_device))
                    return
            yield Update(name, "scoring")
            plan.models[name] = _score(plan, entry, corpus, split, device)
        except NextwordError as error:  # one model's failure must not stop the others
            slug = entry.get("recipe", {}).get("paper", {}).get("slug", name)
            kind = TRANSLATOR if corpus.is_parallel else "exact"
            plan.models[name] = {"name": name, "slug": slug, "kind": kind, "status": "failed", "error": str(error)}
        plan.save(str(chosen_device))
        yield Update(name, plan.models[name]["status"], plan.models[name])
    if not corpus.is_parallel:
        done = [model for model in plan.models.values() if model["status"] == "done"]
        plan.facts["mixture"] = find_best_mixture(done, plan.folder / SCORES)
        plan.save(str(chosen_device))


def _prepare_text(
    plan: Plan, corpus: Corpus, entry: Mapping[str, Any], progress: LabeledProgress
) -> tuple[Tokenizer, dict[str, Prepared]]:
    """One tokenizer, trained on the training text, for all models, and the tokenized splits."""
    path = plan.folder / "tokenizer.json"
    if path.is_file():
        tokenizer = load_tokenizer(path)
    else:
        tokenizer = build_tokenizer(_load_entry(entry), corpus, progress)
        plan.folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save(path)
    prepare_split = prepare_pairs if corpus.is_parallel else prepare
    streams = {
        split: prepare_split(corpus, split, tokenizer, progress=partial(progress, f"reading {split}"))
        for split in corpus.splits
    }
    return tokenizer, streams


def _choose_sizes(
    plan: Plan, tokenizer: Tokenizer, streams: Mapping[str, Prepared], device: torch.device
) -> Generator[Update, None, dict[str, Recipe | NextwordError]]:
    """The recipe of every model that is not trained yet, at its size and with its budget, or why there is none."""
    entries = [entry for entry in plan.entries if "recipe" in entry]
    num_timed = sum(not is_count_model(_load_entry(entry)) for entry in entries)
    seconds = TRAINING_SHARE * plan.minutes * 60 / max(1, num_timed)
    recipes: dict[str, Recipe | NextwordError] = {}
    passes: dict[str, float] = {}
    for entry in entries:
        name = entry["name"]
        if (plan.folder / name / "manifest.json").is_file():
            continue  # its size was chosen before
        yield Update(name, "sizing")
        start = time.perf_counter()
        try:
            recipe, possible = choose_size(
                _with_budget(_load_entry(entry), plan, seconds), seconds, tokenizer, streams["train"], device
            )
        except NextwordError as error:
            recipes[name] = error
            continue
        spent = time.perf_counter() - start
        recipes[name] = _with_budget(recipe, plan, max(seconds - spent, 0.5 * seconds))
        if possible is not None:
            passes[name] = possible
    if recipes and "warnings" not in plan.facts:
        plan.facts["warnings"] = _warnings(plan, streams, seconds if num_timed else None, passes)
        yield Update("", "warning", {"warnings": plan.facts["warnings"]})
    return recipes


def _warnings(
    plan: Plan, streams: Mapping[str, Prepared], seconds: float | None, passes: Mapping[str, float]
) -> list[str]:
    """What is known before training to make the comparison mean little: a small text, a short budget."""
    texts = {split: text.target if isinstance(text, Pairs) else text for split, text in streams.items()}
    warnings = []
    if (words := texts["train"].words) < SMALL_TEXT and texts["train"].bytes < 5 * SMALL_TEXT:
        size = f"{words:,} words"
        if texts["train"].bytes >= UNSPACED_BYTES * words:  # a script without spaces
            size = format_size(texts["train"].bytes)
        warnings.append(f"The training text has only {size}: on more text of this kind, the order may be another.")
    test = texts.get("test") or texts["valid"]
    if test.tokens < MIN_TOKENS:
        warnings.append(f"The test text has only {test.tokens:,} tokens, so there are no intervals of the scores.")
    short = {name: count for name, count in passes.items() if count < 1}
    if seconds is not None and seconds < SHORT_TRAINING:
        enough = plan.minutes * SHORT_TRAINING / seconds
        warnings.append(
            f"The budget leaves {seconds:.1f} s to train each network, which hardly learns in that time. Give at least "
            f"--minutes {format_number(math.ceil(10 * enough) / 10, 1)}."
        )
    elif short:
        listed = ", ".join(f"{name} about {count:.2f}" for name, count in short.items())
        enough = math.ceil(plan.minutes / min(short.values()))
        warnings.append(
            f"Within the budget some networks will see less than one pass of the training text ({listed}). About "
            f"--minutes {enough} would be enough for one."
        )
    return warnings


def _train(
    plan: Plan,
    entry: Mapping[str, Any],
    recipes: Mapping[str, Recipe | NextwordError],
    tokenizer: Tokenizer,
    device: str,
    stop: Callable[[], bool],
) -> Generator[Update, None, bool]:
    """Train one model, or resume it if it has no recipe here; return whether it was interrupted."""
    name, folder = entry["name"], plan.folder / entry["name"]
    recipe = recipes.get(name)
    if isinstance(recipe, NextwordError):
        raise recipe
    for event in train_events(recipe, folder, recipe is None, tokenizer=tokenizer, device=device, stop=stop):
        yield Update(name, "training", event=event)
        if event.values.get("reason") == "interrupted":
            return True
    return False


def _with_budget(recipe: Recipe, plan: Plan, seconds: float) -> Recipe:
    """The recipe on the plan's data, with the shared tokenizer and this training time."""
    phase = replace(recipe.phases[0], data=plan.data)
    if not is_count_model(recipe):
        phase = replace(phase, epochs=0, steps=0, minutes=seconds / 60)
    shared = next(entry["recipe"]["tokenizer"] for entry in plan.entries if "recipe" in entry)
    return replace(recipe, phases=(phase, *recipe.phases[1:]), tokenizer=shared)


# ------------------------------------------------------------------------------------------------ sizes


def choose_size(
    recipe: Recipe, seconds: float, tokenizer: Tokenizer, train: Prepared, device: torch.device
) -> tuple[Recipe, float | None]:
    """The recipe at the largest of its sizes that sees the text often enough in this time; and how often, if timed."""
    sizes = recipe.compare.get("sizes", [])
    if is_count_model(recipe) or not sizes:
        return with_model_settings(recipe, sizes[-1]) if sizes else recipe, None
    chosen, passes = recipe, 0.0
    for size in sizes:
        candidate = with_model_settings(recipe, size)
        possible = estimate_tokens(candidate, seconds, tokenizer, train, device) / len(train.ids)
        if chosen is not recipe and possible < float(recipe.compare.get("min_passes", MIN_PASSES)):
            break
        chosen, passes = candidate, possible
    if passes > MANY_PASSES:
        chosen = with_model_settings(chosen, recipe.compare.get("regularization", {}))
    return chosen, passes


def is_count_model(recipe: Recipe) -> bool:
    """Whether training is counting: one pass over the text, in seconds, whatever the size."""
    return recipe.phases[0].kind == "count"


def with_model_settings(recipe: Recipe, settings: Mapping[str, Any]) -> Recipe:
    return replace(recipe, model={**recipe.model, **settings})


def estimate_tokens(
    recipe: Recipe, seconds: float, tokenizer: Tokenizer, train: Prepared, device: torch.device
) -> float:
    """How many tokens training would process in this time, extrapolated from a few timed steps."""
    job = Job(build_network(recipe, tokenizer), recipe.phases[0], 0, train, None, tokenizer.lossless, None, device)
    trainer = Trainer(job)
    trainer.total_steps = 1_000_000  # far from the end of any schedule
    batches = trainer.batches()
    trainer.step(batches)
    before, start = trainer.predictions, time.perf_counter()
    for _ in range(TIMED_STEPS):
        trainer.step(batches)
    trainer.nats.item()  # wait for the device
    return (trainer.predictions - before) / (time.perf_counter() - start) * seconds


# ------------------------------------------------------------------------------------------------ scoring


def _score(plan: Plan, entry: Mapping[str, Any], corpus: Corpus, split: str, device: str) -> dict[str, Any]:
    run = RunFolder.open(entry.get("run") or plan.folder / entry["name"])
    lm = load(run.path, device)
    if isinstance(lm, Seq2SeqLM):
        return _summarize(entry, run, lm, score_translator(lm, corpus, split, plan.facts["examples"]))
    if "score" not in lm.can:
        raise Unsupported(
            f"{run.path} assigns no probability to plain text, so it cannot be compared.", ability="score"
        )
    result = evaluate_stream(lm, prepare(corpus, split, lm.tokenizer))
    evaluation = result.as_dict()
    if split == "test" and "valid" in corpus.splits and result.nats is not None:
        save_scores(plan.folder / SCORES / f"{entry['name']}.npz", token_scores(lm, corpus, result.nats))
    run.log({"event": "evaluation", "data": corpus.name, "split": split, "parameters": lm.parameters, **evaluation})
    if not run.is_installed:
        write_card(run)
    passage = plan.facts["passage"]
    costs = token_surprisal(lm, passage["text"])
    tokens = [token for token, _ in costs]
    has_same_tokens = tokens == passage.setdefault("tokens", tokens)
    extra = {
        "can": sorted(lm.can),
        "sample": _generate_sample(lm, passage["text"]) if "generate" in lm.can else None,
        "surprisal": [bits for _, bits in costs] if has_same_tokens else None,
    }
    return _summarize(entry, run, lm, {**evaluation, **extra})


def _summarize(entry: Mapping[str, Any], run: RunFolder, lm: TextModel, scores: Mapping[str, Any]) -> dict[str, Any]:
    """The scores, with the facts of the run and of its training."""
    recipe, log = run.recipe, run.read_log()
    ends = [line for line in log if line.get("event") == "end"]
    files = set(run.manifest.get("files", {})) - {"recipe.toml", "tokenizer.json"}
    return {
        "slug": recipe.slug,
        "name": entry["name"],
        "title": _title(recipe),
        "run": run.name,
        **scores,
        "parameters": lm.parameters,
        "size": sum((run.path / name).stat().st_size for name in files),
        "seconds": sum(line["seconds"] for line in ends) or None,
        "epochs": ends[-1]["epoch"] if ends else None,
        "steps": ends[-1]["step"] if ends else None,
        "stopped": ends[-1]["reason"] if ends else None,
        "config": dict(recipe.model),
        "curve": _learning_curve(log),
        "status": "done",
        "error": None,
    }


def _title(recipe: Recipe) -> str:
    """LSTM (Hochreiter et al. 1997), or only the name if the recipe names no paper."""
    paper, name = recipe.paper, title(recipe.slug)
    if not {"authors", "year"} <= paper.keys():
        return name
    return f"{name} ({short_authors(paper['authors'])} {paper['year']})"


def _learning_curve(log: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "seconds": line["seconds"],
            "step": line["step"],
            "tokens": line.get("seen"),
            "train_bits_per_byte": line.get("train_bits_per_byte"),
            "valid_bits_per_byte": line.get("valid_bits_per_byte"),
            **({"valid_perplexity": line["perplexity"]} if "perplexity" in line else {}),
        }
        for line in log
        if line.get("event") in ("step", "valid")
    ]


def _generate_sample(lm: TextModel, passage: str) -> str:
    """A continuation of the first words of the held-out passage, the same words for every model."""
    prompt = opening_words(passage)
    pieces = lm.generate(prompt, Sample(temperature=0.8, seed=1), Stop(SAMPLE_TOKENS))
    return prompt + "".join(piece.text for piece in pieces)


def _choose_passage(corpus: Corpus, split: str) -> str:
    """The beginning of the first long held-out document, cut at a word; a third of that in scripts without spaces."""
    text = ""
    for document in corpus.documents(split):
        text = max(text, document.text.strip()[:PASSAGE_LENGTH], key=len)
        if len(text) >= 400:
            break
    if is_unspaced(text):
        return text[: PASSAGE_LENGTH // 3]
    return text[: text.rfind(" ")] if len(text) >= 400 and " " in text[300:] else text


def _count_characters(corpus: Corpus, split: str, stream: Stream) -> dict[str, int]:
    """The number of characters in place of words that mean nothing, for a script without spaces; else {}."""
    if stream.bytes < UNSPACED_BYTES * stream.words:
        return {}
    return {"characters": sum(len(document.text) for document in corpus.documents(split))}


def _describe_data(plan: Plan, corpus: Corpus, split: str) -> None:
    """Add data, tokenizer and notes to the plan's facts."""
    splits: dict[str, Any] = {}
    path = plan.folder / "tokenizer.json"
    if path.is_file():
        tokenizer = load_tokenizer(path)
        for name in corpus.splits:
            if corpus.is_parallel:
                stream = prepare_pairs(corpus, name, tokenizer).target
            else:
                stream = prepare(corpus, name, tokenizer)
            splits[name] = {
                "bytes": stream.bytes,
                "words": stream.words,
                "tokens": stream.tokens,
                "documents": len(stream.documents),
                **_count_characters(corpus, name, stream),
            }
        plan.facts["tokenizer"] = {
            "kind": tokenizer.kind,
            "size": len(tokenizer),
            "lossless": tokenizer.lossless,
            "bytes_per_token": splits["train"]["bytes"] / splits["train"]["tokens"],
        }
    plan.facts["data"] = {"name": corpus.name, "source": corpus.source, "splits": splits}
    has_test = split == "test"
    plan.facts["notes"] = [] if has_test else ["The text has no test split: models are scored on the validation split."]
