"""Compare: train each model under one budget on one text, score all on the same held-out bytes; a generator of events.

Models already trained are kept however it ends; `resume` takes up where it stopped, in the middle of a model too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from nextword.batching.prepare import prepare
from nextword.batching.sequences import prepare_pairs
from nextword.checkpoint import RunFolder
from nextword.compare.ladder import counts, default_ladder, fitted
from nextword.compare.plan import Plan
from nextword.compare.translating import TRANSLATOR, examples, scored, translates
from nextword.contract import Sample, Stop
from nextword.contract_errors import NextwordError, Unsupported
from nextword.corpora import open_corpus
from nextword.corpora.parallel import open_parallel
from nextword.evaluation.likelihood import evaluate_stream
from nextword.lens.surprisal import surprisal
from nextword.loading_lm import load
from nextword.models import title
from nextword.recipe import Recipe, from_tables, load_recipe, short_authors, to_tables
from nextword.tokens import load_tokenizer
from nextword.training import learn_tokenizer, train
from nextword.training.scale import choose_device

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
    from nextword.card import write_card

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
