"""AWD-LSTM with one technique taken away at a time, as Table 4 of its paper does.

Two sizes. Anywhere, in minutes: a small network on so little text that it soon knows it by heart, which is when
regularisation shows. And with `--data ptb` where there is a GPU, without --quick: the paper's own recipe, 80 of its 500
epochs, some 25 of them averaged. There a run takes about five minutes on an H200, so five seeds of all rows are just
under four hours, and `--seeds 2` an hour and a half.

Everything else stays as it is, the sizes of dropouts and rates too, which the authors tuned with all techniques on.

The figure of the ablation: what each technique's absence costs here, beside what the paper says it costs.

Many small trainings for one study: each is the recipe's own loop on ids in memory, as many at once as cores.

A run computes with one thread and its own seed, so it comes out the same whatever runs beside it. On a GPU they run
one after the other.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nextword.batching.token_stream import Stream, prepare
from nextword.core.protocols import Tokenizer
from nextword.core.types import State
from nextword.data.corpus import Corpus
from nextword.objectives import make_objective
from nextword.recipe import Recipe, load_recipe
from nextword.run_folder import RunFolder
from nextword.studies._experiment import apart, corpus_for, enough, spread
from nextword.studies._study import (
    BLUE,
    GREEN,
    GREY,
    INK,
    NO_INTERVAL,
    ORANGE,
    VERMILION,
    Claim,
    Part,
    Progress,
    Settings,
    Table,
    Tables,
    above,
    bounded,
    in_pairs,
    judged,
    over_seeds,
)
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.training import train_tokenizer
from nextword.training.device import arithmetic, choose_device
from nextword.training.events import VALID, Job
from nextword.training.train import build, learn_tokenizer
from nextword.training.trainer import descend

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(13, 5.8)
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    _draw_costs(tables["harm"], left)
    _gaps(tables["nats"], right)


def _draw_costs(table: Table, axes: Any) -> None:
    names = table.column("without")
    for y, row in enumerate(table.rows):
        _, _, (middle, low, high), _, said = row
        if bounded((middle, low, high)):
            axes.plot([low, high], [y, y], color=BLUE, linewidth=2.5, solid_capstyle="round", zorder=3)
        axes.plot(middle, y, "o", color=BLUE, markersize=7, zorder=4, label="here, 95 % over seeds" if y == 0 else None)
        if said is not None:
            label = "the paper, PTB" if y == 0 else None
            axes.plot(said, y, "D", color=ORANGE, markersize=7, markerfacecolor="white", zorder=2, label=label)
    axes.axvline(0, color=GREY, linewidth=1)
    axes.set_yticks(range(len(names)), names, color=INK)
    axes.set(xlabel="thousandths of a nat a token, test  (right: worse without it)", ylim=(len(names) - 0.4, -0.6))
    axes.set_title("What going without it costs")
    axes.grid(axis="y", visible=False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, frameon=False, fontsize=9)


def _gaps(table: Table, axes: Any) -> None:
    """From the text that was learnt to a new one: a long line is a text learnt by heart."""
    names = table.column("without")
    for y, row in enumerate(table.rows):
        train, test = row[2][0], row[4][0]
        axes.plot([train, test], [y, y], color="#cccccc", linewidth=3, zorder=1)
        axes.plot(train, y, "s", color=GREEN, markersize=6.5, label="text it learnt from" if y == 0 else None)
        axes.plot(test, y, "o", color=VERMILION, markersize=6.5, label="new text" if y == 0 else None)
    axes.set_yticks(range(len(names)), names, color=INK)
    axes.set(xlabel="nats a token, median of seeds", ylim=(len(names) - 0.4, -0.6))
    axes.set_title("Learnt, and learnt by heart, without …")
    axes.grid(axis="y", visible=False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, frameon=False, fontsize=9)


SAMPLE = 10_000  # tokens of the training text on which the finished network is asked what it has learnt by heart


@dataclass(frozen=True)
class Text:
    """What every run of a study reads, in a folder, so that each process can open it."""

    folder: Path

    @staticmethod
    def write(folder: Path, tokenizer: Tokenizer, **splits: np.ndarray) -> Text:
        tokenizer.save(folder / "tokenizer.json")
        for name, ids in splits.items():
            np.save(folder / f"{name}.npy", ids)
        return Text(folder)

    @property
    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.folder / "tokenizer.json")

    def ids(self, split: str) -> np.ndarray:
        return np.load(self.folder / f"{split}.npy")


@dataclass(frozen=True)
class Outcome:
    """Nats a token of the network that a run keeps, and what it took."""

    train: float  # without dropout, on the beginning of the training text
    valid: float
    test: float
    curve: tuple[float, ...]  # validations as they came
    averaged: int | None  # the validation after which averaging began
    parameters: int
    seconds: float


def with_seed(recipe: Recipe, seed: int, **phase: Any) -> Recipe:
    """The recipe's one phase with a seed, and with other settings."""
    return replace(recipe, phases=(replace(recipe.phases[0], seed=seed, **phase),))


def with_model(recipe: Recipe, **model: Any) -> Recipe:
    return replace(recipe, model={**recipe.model, **model})


def trained(recipe: Recipe, text: Text, device: torch.device) -> Outcome:
    """Train the first phase of a recipe on this text, and measure what is kept."""
    began = time.perf_counter()
    phase, tokenizer = recipe.phases[0], text.tokenizer
    with tempfile.TemporaryDirectory() as folder, apart(device):
        network = build(recipe, tokenizer)
        run = RunFolder.create(Path(folder) / "run", recipe, tokenizer)
        train, valid = (Stream.from_ids(text.ids(split)) for split in ("train", "valid"))
        events = list(descend(Job(network, phase, 0, train, valid, tokenizer.lossless, run, device)))
        checks = [event.values for event in events if event.kind == VALID]
        found = {
            split: nats(network, phase, text.ids(split)[: SAMPLE if split == "train" else None], device)
            for split in ("train", "valid", "test")
        }
    return Outcome(
        **found,
        curve=tuple(check["valid"] for check in checks),
        averaged=next((i for i, check in enumerate(checks, 1) if check.get("averaging")), None),
        parameters=sum(p.numel() for p in network.parameters()),
        seconds=time.perf_counter() - began,
    )


@torch.no_grad()
def nats(network: Any, phase: Any, ids: np.ndarray, device: torch.device) -> float:
    """A token, on a text read from left to right without dropout."""
    objective = make_objective(phase.objective, phase.batches, network.vocabulary)
    network.eval()
    total, count = 0.0, 0
    state: State = None
    for batch in objective.held_out(Stream.from_ids(ids)):
        batch.inputs.ids, batch.targets = batch.inputs.ids.to(device), batch.targets.to(device)
        with arithmetic(phase.precision, device):
            loss = objective.loss(network, batch, None if batch.fresh else state)
        total, count, state = total + float(loss.nats), count + loss.count, loss.state
    return total / count


def train_all(recipes: Mapping[Any, Recipe], text: Text, progress: Progress) -> dict[Any, Outcome]:
    """Each recipe trained; the result has their keys in their order."""
    device = choose_device()
    tasks = {key: (trained, (recipe, text, device)) for key, recipe in recipes.items()}
    return spread(tasks, progress, workers=1 if device.type == "cuda" else 0)


MILLI = 1000.0


def paired(these: Sequence[float], those: Sequence[float]) -> list[float]:
    """How many thousandths of a nat these are above those: mean over seeds, and its 95 % interval.

    Pairs have the seed in common.
    """
    return [MILLI * value for value in in_pairs(these, those)]


def intervals(valid: Sequence[Any], test: Sequence[Any], digits: int = 0) -> str:
    """What `paired` found on both texts, in words."""
    if not bounded(test):
        return NO_INTERVAL
    ends = [f"{cell[1]:.{digits}f} to {cell[2]:.{digits}f}" for cell in (test, valid)]
    return f"95 % over seeds: test {ends[0]}, valid {ends[1]}"


def beginning(corpus: Corpus, characters: int) -> list[str]:
    """So many first documents of the training text as have these characters together."""
    out: list[str] = []
    for document in corpus.documents("train"):
        out.append(document.text)
        if sum(map(len, out)) >= characters:
            break
    return out


def ids_of(corpus: Corpus, split: str, tokenizer: Tokenizer, characters: int) -> np.ndarray:
    """The beginning of a split, its documents one after the other, each with its end where the tokenizer has one."""
    end = [] if tokenizer.end is None else [tokenizer.end]
    parts: list[Sequence[int] | np.ndarray] = []
    for document in corpus.documents(split):
        part = document.text[:characters]
        parts += [tokenizer.encode(part).ids, end]
        characters -= len(part)
        if characters <= 0:
            break
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)


CLAIM = Claim(
    "Each technique of AWD-LSTM earns its place: take any one away, and the perplexity of new text rises.",
    "Merity, Keskar & Socher 2018, Table 4 (without its row on fine-tuning)",
)
SMALL, LARGE = "awd-lstm/tiny", "awd-lstm/ptb"
SIZE = 500  # tokens in the small vocabulary
CHARACTERS, HELD = (30_000, 15_000), (15_000, 8_000)  # of text: in full, and when quick
EPOCHS, LARGE_EPOCHS = (20, 10), 80
ROWS, LENGTH, CLIP = 5, 30, 0.5
NETWORK = {"embedding": 64, "width": 128, "layers": 2}
DROPPED = {"words": 0.05, "input": 0.2, "between": 0.15, "output": 0.2, "connections": 0.3}
# The paper's decay of 1.2e-6 works over 300,000 steps; so few as these need more of it to do anything
OPTIMIZER = {"kind": "nt-asgd", "rate": 20.0, "decay": 2e-5, "patience": 2}
NEVER = 10**9  # steps before averaging begins: plain SGD

FULL, ALL_OFF = "nothing", "any regulariser"


def _sgd(recipe: Recipe) -> Recipe:
    """Plain SGD, its rate halved where the held-out loss no longer falls, as in the paper's row."""
    optimizer = dict(recipe.phases[0].optimizer)
    schedule = {"kind": "plateau", "factor": 0.5, "patience": optimizer.get("patience", 5)}
    return _phase(recipe, optimizer=optimizer | {"start": NEVER}, schedule=schedule)


def _phase(recipe: Recipe, **settings: Any) -> Recipe:
    return with_seed(recipe, recipe.phases[0].seed, **settings)


def _fixed(recipe: Recipe) -> Recipe:
    batches = recipe.phases[0].batches
    return _phase(recipe, batches={"kind": "rows", "rows": batches["rows"], "length": batches["length"]})


REMOVE: dict[str, Callable[[Recipe], Recipe]] = {
    "averaging (NT-ASGD)": _sgd,
    "varying lengths": _fixed,
    "word dropout": lambda r: with_model(r, words=0.0),
    "weight decay": lambda r: _phase(r, optimizer={**r.phases[0].optimizer, "decay": 0.0}),
    "AR and TAR": lambda r: _phase(r, objective={"kind": "causal"}),
    "a smaller embedding": lambda r: with_model(r, embedding=r.model["width"]),
    "weight dropping": lambda r: with_model(r, connections=0.0),
}
# Perplexity on PTB, valid and test, in Table 4
PAPER_FULL = (60.0, 57.3)
PAPER = {
    "averaging (NT-ASGD)": (66.3, 63.7),
    "varying lengths": (61.3, 58.9),
    "word dropout": (65.1, 62.7),
    "weight decay": (63.7, 61.0),
    "AR and TAR": (62.7, 60.3),
    "a smaller embedding": (68.0, 65.6),
    "weight dropping": (71.1, 68.9),
}


def _all_off(recipe: Recipe) -> Recipe:
    """No regulariser, the locked dropouts neither, for which the paper's table has no row; and the same network."""
    for name, remove in REMOVE.items():
        recipe = recipe if name == "a smaller embedding" else remove(recipe)
    return with_model(recipe, input=0.0, between=0.0, output=0.0)


def variants(recipe: Recipe) -> dict[str, Recipe]:
    """The recipe whole, without each technique, and without any."""
    removed = {name: remove(recipe) for name, remove in REMOVE.items()}
    return {FULL: recipe, **removed, ALL_OFF: _all_off(recipe)}


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    corpus, large = corpus_for(settings.data), at_paper_size(settings)
    with tempfile.TemporaryDirectory() as folder:
        recipe, text = (_large if large else _small)(corpus, settings, Path(folder))
        recipes = {
            (name, seed): with_seed(variant, seed)
            for name, variant in variants(recipe).items()
            for seed in settings.seeds
        }
        runs = train_all(recipes, text, progress)
        tokens = {split: len(text.ids(split)) for split in ("train", "valid", "test")}
    phase, model = recipe.phases[0], recipe.model
    began = [run.averaged for (name, _), run in runs.items() if name == FULL]
    return {"nats": _nats(runs), "harm": _harm(runs)}, {
        "data": f"{corpus.name} ({corpus.source}): {tokens['train']:,} tokens to learn from, read {phase.epochs:g} "
        f"times, {tokens['valid']:,} and {tokens['test']:,} held out",
        "network": "AWD-LSTM: " + ", ".join(f"{key} {value}" for key, value in model.items()),
        "training": ", ".join(f"{key} {value}" for key, value in phase.optimizer.items())
        + f"; clipped at {phase.clip}; "
        f"{phase.batches['rows']} rows of about {phase.batches['length']}; {phase.precision}",
        "averaging": f"began after epoch {', '.join(map(str, began))} with all techniques, by seed",
        "intervals": "95 %, Student's t over seeds; the runs of a pair begin with the same weights where sizes agree",
        "weights": "those of the best validation are kept, so the test text decides",
        "size": "the paper's" if large else "small: what holds here need not hold at the paper's size, nor the reverse",
    }


def at_paper_size(settings: Settings) -> bool:
    """On a GPU, on the recipe's own text, when nobody is in a hurry."""
    named = load_recipe(LARGE).phases[0].data
    return settings.data == named and not settings.quick and choose_device().type == "cuda"


def _large(corpus: Corpus, settings: Settings, folder: Path) -> tuple[Recipe, Text]:
    recipe = load_recipe(LARGE)
    tokenizer = learn_tokenizer(recipe, corpus)
    splits = {split: np.asarray(prepare(corpus, split, tokenizer).ids) for split in ("train", "valid", "test")}
    return _phase(recipe, epochs=LARGE_EPOCHS, save=1e9), Text.write(folder, tokenizer, **splits)


def _small(corpus: Corpus, settings: Settings, folder: Path) -> tuple[Recipe, Text]:
    at = int(settings.quick)
    tokenizer = train_tokenizer({"kind": "bpe", "size": SIZE}, beginning(corpus, CHARACTERS[at]))
    splits = {"train": ids_of(corpus, "train", tokenizer, CHARACTERS[at])}
    for split, other in (("valid", "test"), ("test", "valid")):
        splits[split] = ids_of(corpus, split if split in corpus.splits else other, tokenizer, HELD[at])
    enough(len(splits["train"]), 20 * ROWS, "tokens to learn from", corpus)
    enough(len(splits["valid"]), 500, "tokens held out", corpus)
    recipe = with_model(load_recipe(SMALL), **NETWORK, **DROPPED)
    batches = {"kind": "variable", "rows": ROWS, "length": LENGTH, "spread": LENGTH / 14, "least": 2}
    phase = {"batches": batches, "optimizer": OPTIMIZER, "clip": CLIP, "steps": 0, "epochs": EPOCHS[at]}
    return _phase(recipe, **phase, data="", log=10**6, save=1e9), Text.write(folder, tokenizer, **splits)


Runs = dict[tuple[str, int], Outcome]


def _of(runs: Runs, name: str, split: str) -> list[float]:
    return [getattr(run, split) for (which, _), run in runs.items() if which == name]


def _nats(runs: Runs) -> Table:
    rows = []
    for name in dict.fromkeys(name for name, _ in runs):
        parameters = next(run.parameters for (which, _), run in runs.items() if which == name)
        rows.append((name, parameters, *(over_seeds(_of(runs, name, split)) for split in ("train", "valid", "test"))))
    return Table("Nats a token", ("without", "parameters", "train", "valid", "test"), tuple(rows))


def _harm(runs: Runs) -> Table:
    rows = []
    for name in dict.fromkeys(name for name, _ in runs):
        if name == FULL:
            continue
        apart = [paired(_of(runs, name, split), _of(runs, FULL, split)) for split in ("valid", "test")]
        said = [MILLI * float(np.log(one / whole)) for one, whole in zip(PAPER.get(name, ()), PAPER_FULL, strict=False)]
        rows.append((name, *apart, *(said or (None, None))))
    return Table(
        "What taking it away costs: thousandths of a nat a token, mean and 95 % interval over seeds",
        ("without", "valid", "test", "valid, in the paper", "test, in the paper"),
        tuple(rows),
    )


# ------------------------------------------------------------------------------------------------ judging


def judge(tables: Tables) -> list[Part]:
    harm = tables["harm"]
    return [*(_part(harm, name) for name in REMOVE), _matters(tables), _most(harm)]


def _part(harm: Table, name: str) -> Part:
    valid, test = harm.cell("valid", without=name), harm.cell("test", without=name)
    hurts = above(test)
    said = harm.cell("test, in the paper", without=name)
    paper = "" if said is None else f" (in the paper {said:.0f} more, on PTB)"
    return Part(
        f"Without {name} it is worse.",
        judged(hurts),
        f"Without {name} a token of the test text costs {_costs(test)}{paper}.",
        intervals(valid, test),
    )


def _costs(cell: Sequence[Any]) -> str:
    if list(cell) == [0, 0, 0]:
        return "the same to the last digit, for nothing was taken away: in so few epochs it had not come into play"
    return f"{abs(cell[0]):.0f} thousandths of a nat {'more' if cell[0] > 0 else 'less'}"


def _matters(tables: Tables) -> Part:
    """Whether this size and text can show anything: without all of them, is it learnt by heart, and worse?"""
    nats = tables["nats"]
    valid, test = (tables["harm"].cell(split, without=ALL_OFF) for split in ("valid", "test"))
    gaps = {name: nats.cell("test", without=name)[0] - nats.cell("train", without=name)[0] for name in (FULL, ALL_OFF)}
    return Part(
        "Here regularisation matters: without any it is worse.",
        judged(above(test)),
        f"Without any it costs {_costs(test)}; between the text it learnt from and a new one lie "
        f"{gaps[ALL_OFF]:.2f} nats instead of {gaps[FULL]:.2f}.",
        intervals(valid, test),
        decides=False,
    )


def _most(harm: Table) -> Part:
    """The paper's last row is its largest."""
    costs = {name: harm.cell("test", without=name) for name in REMOVE}
    first = max(costs, key=lambda name: costs[name][0])
    name = "weight dropping"
    others = [cell for other, cell in costs.items() if other != name]
    own = costs[name]
    if not all(bounded(cell) for cell in costs.values()):
        holds = None
    elif all(own[1] > cell[2] for cell in others):
        holds = True
    else:
        holds = False if any(cell[1] > own[2] for cell in others) else None
    return Part(
        "Weight dropping is what matters most.",
        judged(holds),
        f"The largest of these costs is that of going without {first}, {costs[first][0]:.0f}; weight dropping's is "
        f"{own[0]:.0f}.",
        "95 % intervals apart, or overlapping" if holds is None else "95 % intervals do not overlap",
        decides=False,
    )
