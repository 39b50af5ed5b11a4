"""Compare: train each model under one budget on one text, score all on the same held-out bytes; a generator of events.

Models already trained are kept however it ends; `resume` takes up where it stopped, in the middle of a model too.

A comparison on disk: what is to be compared, on what, in how much time; and what has come of it so far.

The ladder: which models compare trains when none is named, and how large each may be in the time it has.

A recipe takes part by having a table [compare] with `sizes`, smallest first: each is a set of [model] keys. Of these
the largest is taken that this machine can still train well: one that can pass over the text often enough (`passes`). If
it will pass over it very often, the keys of `often` (dropout) are set too. A model that counts passes over it once,
in seconds: it takes its largest size, and no share of the time.
"""

from __future__ import annotations

import json
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
from nextword.batching.seq2seq import prepare_pairs
from nextword.batching.token_stream import prepare
from nextword.compare.translation import TRANSLATOR, examples, scored, translates
from nextword.core.errors import NextwordError, Unsupported
from nextword.core.io import finite, infinite
from nextword.core.protocols import Tokenizer
from nextword.core.types import Sample, Stop
from nextword.data.opening import open_corpus
from nextword.data.parallel import open_parallel
from nextword.evaluation.likelihood import evaluate_stream, surprisal
from nextword.lm.loading import load
from nextword.models import MODELS, title
from nextword.recipe import Recipe, from_tables, load_recipe, names, short_authors, to_tables
from nextword.run_folder import RunFolder, full_disk_is_no_loss
from nextword.tokenizers.loading import load_tokenizer
from nextword.training.device import choose_device
from nextword.training.events import Job
from nextword.training.train import build, learn_tokenizer, train
from nextword.training.trainer import Trainer

FILE = "comparison.json"


@dataclass
class Plan:
    folder: Path
    data: str
    minutes: float
    entries: list[dict[str, Any]]  # {"name", "recipe": tables} to train, or {"name", "run": folder} to score as it is
    changes: list[str] = field(default_factory=list)  # --set
    models: dict[str, dict[str, Any]] = field(default_factory=dict)  # results so far, by name
    facts: dict[str, Any] = field(default_factory=dict)  # data, tokenizer, passage, notes

    @classmethod
    def open(cls, folder: Path) -> Plan:
        path = folder / FILE
        if not path.is_file():
            raise NextwordError(f"{folder} holds no comparison to resume. Start one without --resume.")
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))["plan"]
        except (ValueError, KeyError):
            raise NextwordError(f"{path} is damaged. Remove {folder} and compare again.") from None
        plan = cls(folder, **saved)
        plan.models = {name: infinite(model) for name, model in plan.models.items()}
        return plan

    @staticmethod
    def refuse_if_taken(folder: Path) -> None:
        if (folder / FILE).exists():
            raise NextwordError(
                f"{folder} already holds a comparison. Go on with it (--resume), or choose another --out."
            )
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise NextwordError(f"{folder} already holds other files. Choose another --out.")

    def save(self, device: str) -> dict[str, Any]:
        """Write all that is known so far, and return it as `compare --json` prints it."""
        document = {**self.result(device), "plan": {k: v for k, v in vars(self).items() if k != "folder"}}
        self.folder.mkdir(parents=True, exist_ok=True)
        with full_disk_is_no_loss(self.folder):
            temporary = self.folder / f".{FILE}.new"
            text = json.dumps(finite(document), ensure_ascii=False, indent=1, allow_nan=False)
            temporary.write_text(text, encoding="utf-8")
            os.replace(temporary, self.folder / FILE)
        return self.result(device)

    def result(self, device: str) -> dict[str, Any]:
        import torch

        order = [entry["name"] for entry in self.entries if entry["name"] in self.models]
        models = [self.models[name] for name in order]
        models.sort(key=lambda m: (m["kind"] != "exact", m.get("bits_per_byte") is None, m.get("bits_per_byte") or 0.0))
        machine = f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"
        return {
            "version": __version__,
            "created": datetime.now().isoformat(timespec="seconds"),
            "data": self.facts.get("data", {"name": self.data}),
            "tokenizer": self.facts.get("tokenizer"),
            "budget": {
                "minutes": self.minutes if any("recipe" in entry for entry in self.entries) else None,
                "device": device,
                "threads": torch.get_num_threads(),
                "machine": machine,
            },
            "models": models,
            "passage": self._passage(),
            **({"examples": self.facts["examples"]} if "examples" in self.facts else {}),
            "notes": self.facts.get("notes", []),
        }

    def _passage(self) -> Mapping[str, Any] | None:
        passage = self.facts.get("passage")
        if not passage:
            return None
        found = {name: model["surprisal"] for name, model in self.models.items() if model.get("surprisal")}
        return {**passage, "surprisal": found} if found else None


PASSES = 0.8  # over the text, that a size must at least manage to be taken, unless it is the smallest
OFTEN = 4.0  # passes from which on a model needs what the recipe's `often` says against learning the text by heart
TIMED = 4  # steps


def default_ladder() -> list[Recipe]:
    """Every recipe that offers itself, in the order of the canon."""
    found = [recipe for recipe in map(load_recipe, names()) if recipe.compare]
    return sorted(found, key=lambda recipe: list(MODELS).index(recipe.slug))


def fitted(recipe: Recipe, seconds: float, tokenizer: Tokenizer, train: Any, device: torch.device) -> Recipe:
    """The recipe at the largest of its sizes that can pass over the text often enough in the time given."""
    if counts(recipe):
        largest = recipe.compare.get("sizes", [])[-1:]
        return with_model(recipe, largest[0]) if largest else recipe
    chosen, passes = recipe, 0.0
    for size in recipe.compare.get("sizes", []):
        candidate = with_model(recipe, size)
        possible = seen(candidate, seconds, tokenizer, train, device) / len(train.ids)
        if chosen is not recipe and possible < float(recipe.compare.get("passes", PASSES)):
            break
        chosen, passes = candidate, possible
    return with_model(chosen, recipe.compare.get("often", {})) if passes > OFTEN else chosen


def counts(recipe: Recipe) -> bool:
    """Whether it learns by counting: once over the text, in seconds, whatever its size."""
    return recipe.phases[0].kind == "count"


def with_model(recipe: Recipe, size: Mapping[str, Any]) -> Recipe:
    return replace(recipe, model={**recipe.model, **size})


def seen(recipe: Recipe, seconds: float, tokenizer: Tokenizer, train: Any, device: torch.device) -> float:
    """How many tokens training would get to see in this time, from a few timed steps."""
    job = Job(build(recipe, tokenizer), recipe.phases[0], 0, train, None, tokenizer.lossless, None, device)
    descent = Trainer(job)
    descent.total = 1_000_000  # far from the end of any schedule
    batches = descent.batches()
    descent.advance(batches)
    before, began = descent.count, time.perf_counter()
    for _ in range(TIMED):
        descent.advance(batches)
    descent.nats.item()  # wait for the device
    return (descent.count - before) / (time.perf_counter() - began) * seconds


SHARE = 0.92  # of the budget is for training; the rest for choosing sizes and scoring
SAMPLE = 60  # tokens


@dataclass(frozen=True)
class Update:
    """What happens to one model: waiting, sizing, training, scoring, done, failed."""

    name: str
    status: str
    values: dict[str, Any] = field(default_factory=dict)
    event: Any = None  # the training loop's own, while training


def make_plan(folder: Path, what: Sequence[str], data: str, minutes: float, changes: Sequence[str] = ()) -> Plan:
    """What to compare: the default ladder, or recipes and run folders by name."""
    Plan.refuse_if_taken(folder)
    if minutes <= 0:
        raise NextwordError(f"--minutes {minutes}: the budget must be more than nothing.")
    entries: list[dict[str, Any]] = []
    for given in what:
        if (Path(given) / "manifest.json").is_file():
            entries.append({"name": Path(given).name, "run": str(given)})
        elif Path(given).is_dir():
            raise NextwordError(f"{given} is a folder but no run folder (it has no manifest.json).")
        else:
            entries.append({"name": given.replace("/", "-").removesuffix(".toml"), "given": given})
    recipes = [load_recipe(e["given"], changes) for e in entries if "given" in e] if what else default_ladder()
    if not what:
        entries = [{"name": recipe.slug, "given": recipe.name} for recipe in recipes]
        recipes = [load_recipe(recipe.name, changes) for recipe in recipes]
    for entry, recipe in zip((e for e in entries if "given" in e), recipes, strict=True):
        del entry["given"]
        entry["recipe"] = {**to_tables(recipe), "compare": dict(recipe.compare)}
        entry["recipe_name"] = recipe.name
    for i, entry in enumerate(entries):  # two runs may have the same last name
        if any(other["name"] == entry["name"] for other in entries[:i]):
            entry["name"] = f"{entry['name']}-{i + 1}"
    return Plan(folder, data, minutes, entries, list(changes))


def compare(
    plan: Plan,
    device: str = "auto",
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[str, float, float | None], None] = lambda label, done, total: None,
) -> Iterator[Update]:
    chosen = choose_device(device)
    pairs = translates(plan.entries)
    corpus = open_parallel(plan.data) if pairs else open_corpus(plan.data)
    split = "test" if "test" in corpus.splits else "valid"
    plan.save(str(chosen))  # before anything else is written: a kill from here on can be resumed
    to_train = [entry for entry in plan.entries if "recipe" in entry]
    tokenizer: Any = None
    streams: dict[str, Any] = {}
    if to_train:
        tokenizer, streams = _shared_text(plan, corpus, to_train[0], progress)
    if "notes" not in plan.facts:
        plan.facts |= {"examples": examples(corpus)} if pairs else {"passage": {"text": _passage(corpus, split)}}
        _describe(plan, corpus, split)
    plan.save(str(chosen))
    for entry in plan.entries:
        name = entry["name"]
        if plan.models.get(name, {}).get("status") == "done":
            yield Update(name, "done", plan.models[name])
            continue
        try:
            if "recipe" in entry:
                interrupted = yield from _train(plan, entry, tokenizer, streams, chosen, device, stop)
                if interrupted:
                    plan.save(str(chosen))
                    return
            yield Update(name, "scoring")
            plan.models[name] = _scored(plan, entry, corpus, split, device)
        except NextwordError as problem:  # one model's trouble is not the others'
            plan.models[name] = {"name": name, "slug": entry.get("recipe", {}).get("paper", {}).get("slug", name)}
            plan.models[name] |= {"kind": TRANSLATOR if pairs else "exact", "status": "failed", "error": str(problem)}
        plan.save(str(chosen))
        yield Update(name, plan.models[name]["status"], plan.models[name])


def _shared_text(plan: Plan, corpus: Any, entry: dict[str, Any], progress: Any) -> tuple[Any, dict[str, Any]]:
    """One tokenizer, learnt on the training text, for all: so all have bits per byte over the same tokens."""
    path = plan.folder / "tokenizer.json"
    if path.is_file():
        tokenizer = load_tokenizer(path)
    else:
        tokenizer = learn_tokenizer(from_tables(entry["recipe"], entry["recipe_name"]), corpus, progress)
        plan.folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save(path)
    made = prepare_pairs if corpus.parallel else prepare
    return tokenizer, {s: made(corpus, s, tokenizer, progress=partial(progress, f"reading {s}")) for s in corpus.splits}


def _train(
    plan: Plan, entry: dict[str, Any], tokenizer: Any, streams: Any, chosen: Any, device: str, stop: Any
) -> Generator[Update, None, bool]:
    """Train one model, or go on with it; returns whether it was interrupted."""
    name, folder = entry["name"], plan.folder / entry["name"]
    resume = (folder / "manifest.json").is_file()
    recipe: Recipe | None = None
    if not resume:
        yield Update(name, "sizing")
        seconds = SHARE * plan.minutes * 60 / max(1, sum(map(_takes_time, plan.entries)))
        began = time.perf_counter()
        recipe = from_tables(entry["recipe"], entry["recipe_name"])
        recipe = _under_budget(recipe, plan, seconds)
        recipe = fitted(recipe, seconds, tokenizer, streams["train"], chosen)
        spent = time.perf_counter() - began
        recipe = _under_budget(recipe, plan, max(seconds - spent, 0.5 * seconds))
    for event in train(recipe, folder, resume, tokenizer=tokenizer, device=device, stop=stop):
        yield Update(name, "training", event=event)
        if event.values.get("reason") == "interrupted":
            return True
    return False


def _takes_time(entry: dict[str, Any]) -> bool:
    """Whether a share of the minutes is this one's: runs are trained already, and counting takes seconds."""
    return "recipe" in entry and not counts(from_tables(entry["recipe"], entry["recipe_name"]))


def _under_budget(recipe: Recipe, plan: Plan, seconds: float) -> Recipe:
    phase = replace(recipe.phases[0], data=plan.data)
    if not counts(recipe):
        phase = replace(phase, epochs=0, steps=0, minutes=seconds / 60)
    shared = next(entry["recipe"]["tokenizer"] for entry in plan.entries if "recipe" in entry)
    return replace(recipe, phases=(phase, *recipe.phases[1:]), tokenizer=shared)


def _scored(plan: Plan, entry: dict[str, Any], corpus: Any, split: str, device: str) -> dict[str, Any]:
    run = RunFolder.open(entry.get("run") or plan.folder / entry["name"])
    lm = load(run.path, device)
    if corpus.parallel:
        return _summed(entry, run, lm, scored(lm, corpus, split, plan.facts["examples"]))
    if "score" not in lm.can:
        raise Unsupported(f"{run.path} gives no likelihood of plain text, so it cannot be compared.")
    evaluation = evaluate_stream(lm, prepare(corpus, split, lm.tokenizer)).as_dict()
    run.log({"event": "evaluation", "data": corpus.name, "split": split, "parameters": lm.parameters, **evaluation})
    from nextword.model_card import write_card

    write_card(run)
    tokens = surprisal(lm, plan.facts["passage"]["text"])
    plan.facts["passage"].setdefault("tokens", [text for text, _ in tokens])
    same = [text for text, _ in tokens] == plan.facts["passage"]["tokens"]
    found = {
        "can": sorted(lm.can),
        "sample": _sample(lm, plan.facts["passage"]["text"]) if "generate" in lm.can else None,
        "surprisal": [bits for _, bits in tokens] if same else None,
    }
    return _summed(entry, run, lm, {**evaluation, **found})


def _summed(entry: dict[str, Any], run: RunFolder, lm: Any, found: dict[str, Any]) -> dict[str, Any]:
    """What was measured, with what the run says of itself."""
    recipe, log = run.recipe, run.read_log()
    ends = [line for line in log if line.get("event") == "end"]
    return {
        "slug": recipe.slug,
        "name": entry["name"],
        "title": _title(recipe),
        "run": str(run.path),
        **found,
        "parameters": lm.parameters,
        "size": _disk(run),
        "seconds": sum(line["seconds"] for line in ends) or None,
        "epochs": ends[-1]["epoch"] if ends else None,
        "steps": ends[-1]["step"] if ends else None,
        "stopped": ends[-1]["reason"] if ends else None,
        "config": dict(recipe.model),
        "curve": _curve(log),
        "status": "done",
        "error": None,
    }


def _title(recipe: Recipe) -> str:
    """LSTM (Hochreiter et al. 1997); a recipe of one's own may name no paper."""
    paper, name = recipe.paper, title(recipe.slug)
    if not {"authors", "year"} <= paper.keys():
        return name
    return f"{name} ({short_authors(paper['authors'])} {paper['year']})"


def _disk(run: RunFolder) -> int:
    names = set(run.manifest.get("files", {})) - {"recipe.toml", "tokenizer.json"}
    return sum((run.path / name).stat().st_size for name in names)


def _curve(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
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


def _sample(lm: Any, passage: str) -> str:
    """The same beginning for every model: the first words of the held-out passage."""
    prompt = " ".join(passage.split()[:4])
    pieces = lm.generate(prompt, Sample(temperature=0.8, seed=1), Stop(SAMPLE))
    return prompt + "".join(piece.text for piece in pieces)


def _passage(corpus: Any, split: str) -> str:
    """The first held-out document with some length to it, cut at a word."""
    text = ""
    for document in corpus.documents(split):
        text = max(text, document.text.strip()[:420], key=len)
        if len(text) >= 400:
            break
    return text[: text.rfind(" ")] if len(text) >= 400 and " " in text[300:] else text


def _describe(plan: Plan, corpus: Any, split: str) -> None:
    notes = [] if split == "test" else ["This text has no test split: models are scored on the validation split."]
    splits: dict[str, Any] = {}
    path = plan.folder / "tokenizer.json"
    if path.is_file():
        tokenizer = load_tokenizer(path)
        for s in corpus.splits:
            stream = prepare_pairs(corpus, s, tokenizer).target if corpus.parallel else prepare(corpus, s, tokenizer)
            splits[s] = {"bytes": stream.bytes, "words": stream.words, "tokens": stream.tokens}
            splits[s]["documents"] = len(stream.documents)
        plan.facts["tokenizer"] = {
            "kind": tokenizer.kind,
            "size": len(tokenizer),
            "lossless": tokenizer.lossless,
            "bytes_per_token": splits["train"]["bytes"] / splits["train"]["tokens"],
        }
    plan.facts["data"] = {"name": corpus.name, "source": corpus.source, "splits": splits}
    plan.facts["notes"] = notes
