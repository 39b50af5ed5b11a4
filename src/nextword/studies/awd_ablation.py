"""AWD-LSTM with one technique removed at a time, as in table 4 of its paper.

Claim: removing any single technique of AWD-LSTM raises the perplexity of new text (Merity, Keskar & Socher 2018).

Measured, in two sizes. By default, in minutes: a small network on so little text that it soon memorizes it, which is
when regularization matters. With `--data ptb` on a GPU, without --quick: the paper's own recipe for 80 of its 500
epochs, about 25 of them averaged. There a run takes about five minutes on an H200; five seeds of all variants take
just under four hours, and `--num-seeds 2` an hour and a half. Everything else stays the same, including dropout and
learning rates, which the authors tuned with all techniques on.

Verdict: for every technique, the test loss without it must be higher, with the whole 95 % interval over seeds.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nextword.batching.token_stream import prepare
from nextword.data.corpus import Corpus
from nextword.recipe import Recipe, load_recipe
from nextword.studies import _figures as plot
from nextword.studies._experiment import describe_corpus, open_text
from nextword.studies._recipe_runs import (
    MILLI,
    SPLITS,
    Runs,
    TextFolder,
    describe_intervals,
    encode_beginning,
    millinat_differences,
    nats_cells,
    train_all,
    with_model,
    with_phase,
)
from nextword.studies._statistics import has_interval, is_above, more_or_less, signed
from nextword.studies._study import Claim, Measured, Part, Progress, Settings, Table, Tables
from nextword.training.device import choose_device
from nextword.training.train import build_tokenizer

CLAIM = Claim(
    "Each technique of AWD-LSTM earns its place: removing any one raises the perplexity of new text.",
    "Merity, Keskar & Socher 2018, table 4 (without its row on fine-tuning)",
)
SMALL, LARGE = "awd-lstm/tiny", "awd-lstm/ptb"  # recipes
PIECES = 500
CHARACTERS, HELD = (30_000, 15_000), (15_000, 8_000)  # of text; with --quick
EPOCHS, LARGE_EPOCHS = (20, 10), 80
ROWS, LENGTH, CLIP = 5, 30, 0.5
NETWORK = {"embedding": 64, "width": 128, "layers": 2}
DROPOUT = {
    "word_dropout": 0.05,
    "input_dropout": 0.2,
    "layer_dropout": 0.15,
    "output_dropout": 0.2,
    "weight_dropout": 0.3,
}
# The paper's weight decay of 1.2e-6 acts over 300,000 steps; these few steps need more of it
OPTIMIZER = {"kind": "nt-asgd", "rate": 20.0, "weight_decay": 2e-5, "patience": 2}
NEVER = 10**9  # steps before averaging starts: plain SGD

NOTHING, ALL = "nothing", "any regularizer"


# ------------------------------------------------------------------------------------------------ variants


def _use_sgd(recipe: Recipe) -> Recipe:
    """Plain SGD; the learning rate is halved when the validation loss stops falling, as in the paper."""
    optimizer = dict(recipe.phases[0].optimizer)
    schedule = {"kind": "plateau", "factor": 0.5, "patience": optimizer.get("patience", 5)}
    return with_phase(recipe, optimizer=optimizer | {"start": NEVER}, schedule=schedule)


def _fix_lengths(recipe: Recipe) -> Recipe:
    batches = recipe.phases[0].batches
    return with_phase(recipe, batches={"kind": "rows", "rows": batches["rows"], "length": batches["length"]})


REMOVE: dict[str, Callable[[Recipe], Recipe]] = {
    "averaging (NT-ASGD)": _use_sgd,
    "varying lengths": _fix_lengths,
    "word dropout": lambda r: with_model(r, word_dropout=0.0),
    "weight decay": lambda r: with_phase(r, optimizer={**r.phases[0].optimizer, "weight_decay": 0.0}),
    "AR and TAR": lambda r: with_phase(r, objective={"kind": "causal"}),
    "a smaller embedding": lambda r: with_model(r, embedding=r.model["width"]),
    "weight dropping": lambda r: with_model(r, weight_dropout=0.0),
}
# Validation and test perplexity on PTB in table 4
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


def make_variants(recipe: Recipe) -> dict[str, Recipe]:
    """The full recipe, the recipe without each technique, and the same network without any regularizer.

    The last also lacks the variational dropouts, which have no row in the paper's table.
    """
    bare = recipe
    for name, remove in REMOVE.items():
        bare = bare if name == "a smaller embedding" else remove(bare)
    bare = with_model(bare, input_dropout=0.0, layer_dropout=0.0, output_dropout=0.0)
    return {NOTHING: recipe, **{name: remove(recipe) for name, remove in REMOVE.items()}, ALL: bare}


# ------------------------------------------------------------------------------------------------ measure


def measure(settings: Settings, progress: Progress) -> Measured:
    corpus, is_large = open_text(settings.data), is_paper_size(settings)
    with tempfile.TemporaryDirectory() as folder:
        recipe, text = (_prepare_large if is_large else _prepare_small)(corpus, settings, Path(folder))
        recipes = {
            (name, seed): with_phase(variant, seed=seed)
            for name, variant in make_variants(recipe).items()
            for seed in settings.seeds
        }
        runs = train_all(recipes, text, progress)
        tokens = {split: len(text.ids(split)) for split in SPLITS}
    phase = recipe.phases[0]
    starts = [run.averaged for (name, _), run in runs.items() if name == NOTHING]
    return {"nats": _nats(runs), "costs": _costs(runs)}, {
        "data": f"{describe_corpus(corpus)}: {tokens['train']:,} training tokens, read {phase.epochs:g} times, "
        f"{tokens['valid']:,} validation and {tokens['test']:,} test tokens",
        "network": "AWD-LSTM: " + ", ".join(f"{key} {value}" for key, value in recipe.model.items()),
        "training": ", ".join(f"{key} {value}" for key, value in phase.optimizer.items())
        + f"; gradient clipping at {phase.clip}; {phase.batches['rows']} rows of about {phase.batches['length']}; "
        f"{phase.precision}",
        "averaging": f"started after epoch {', '.join(map(str, starts))} with all techniques, by seed",
        "intervals": "95 %, Student's t over seeds; paired runs start with the same weights if their sizes agree",
        "weights": "those of the best validation, so the test text decides",
        "size": "the paper's" if is_large else "small: results need not carry over to the paper's size, nor back",
    }


def is_paper_size(settings: Settings) -> bool:
    """Only on a GPU, on the recipe's own text, and without --quick."""
    data = load_recipe(LARGE).phases[0].data
    return settings.data == data and not settings.quick and choose_device().type == "cuda"


def _prepare_large(corpus: Corpus, settings: Settings, folder: Path) -> tuple[Recipe, TextFolder]:
    recipe = load_recipe(LARGE)
    tokenizer = build_tokenizer(recipe, corpus)
    splits = {split: np.asarray(prepare(corpus, split, tokenizer).ids) for split in SPLITS}
    return with_phase(recipe, epochs=LARGE_EPOCHS, save_every=1e9), TextFolder.write(folder, tokenizer, **splits)


def _prepare_small(corpus: Corpus, settings: Settings, folder: Path) -> tuple[Recipe, TextFolder]:
    is_quick = int(settings.quick)
    tokenizer, splits = encode_beginning(corpus, PIECES, CHARACTERS[is_quick], HELD[is_quick], 20 * ROWS)
    recipe = with_model(load_recipe(SMALL), **NETWORK, **DROPOUT)
    batches = {"kind": "variable", "rows": ROWS, "length": LENGTH, "length_std": LENGTH / 14, "min_length": 2}
    phase = {"batches": batches, "optimizer": OPTIMIZER, "clip": CLIP, "steps": 0, "epochs": EPOCHS[is_quick]}
    return with_phase(recipe, **phase, data="", log_every=10**6, save_every=1e9), TextFolder.write(
        folder, tokenizer, **splits
    )


def _nats(runs: Runs) -> Table:
    parameters = {name: run.parameters for (name, _), run in runs.items()}
    rows = [(name, count, *nats_cells(runs, (name,))) for name, count in parameters.items()]
    return Table("Nats per token, median and range over seeds", ("without", "parameters", *SPLITS), rows)


def _costs(runs: Runs) -> Table:
    rows = []
    for name in dict.fromkeys(name for name, _ in runs):
        if name != NOTHING:
            paper = [MILLI * math.log(x / full) for x, full in zip(PAPER.get(name, ()), PAPER_FULL, strict=False)]
            rows.append((name, *millinat_differences(runs, (name,), (NOTHING,)), *(paper or (None, None))))
    columns = ("without", "valid", "test", "valid, paper", "test, paper")
    title = "Cost of removing it, in thousandths of a nat per token: mean and 95 % interval over seeds"
    return Table(title, columns, rows)


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    costs = tables["costs"]
    return [*(_hurts(costs, name) for name in REMOVE), _regularization_matters(tables), _dropping_matters_most(costs)]


def _hurts(costs: Table, name: str) -> Part:
    valid, test, paper = (costs.cell(column, without=name) for column in ("valid", "test", "test, paper"))
    return Part(
        f"Without {name} the test loss is higher.",
        is_above(test),
        f"Without {name} a test token costs {_cost(test)}"
        f"{'' if paper is None else f' (in the paper {paper:.0f} more, on PTB)'}.",
        describe_intervals(valid, test),
    )


def _cost(cell: Sequence[Any]) -> str:
    if list(cell) == [0, 0, 0]:
        return "exactly the same: in so few epochs the technique had not become active"
    amount, word = more_or_less(cell[0], 0)
    return f"{amount} thousandths of a nat {word}"


def _regularization_matters(tables: Tables) -> Part:
    """Whether this size and text can show anything: without all techniques, is the text memorized?"""
    valid, test = (tables["costs"].cell(split, without=ALL) for split in ("valid", "test"))
    full, bare = (
        tables["nats"].cell("test", without=name)[0] - tables["nats"].cell("train", without=name)[0]
        for name in (NOTHING, ALL)
    )
    return Part(
        "Regularization matters here: without any, the test loss is higher.",
        is_above(test),
        f"Without any regularizer a test token costs {_cost(test)}; the gap between training and test text is "
        f"{bare:.2f} nats instead of {full:.2f}.",
        describe_intervals(valid, test),
        decides=False,
    )


def _dropping_matters_most(table: Table) -> Part:
    """In the paper it has the largest cost."""
    costs = {name: table.cell("test", without=name) for name in REMOVE}
    largest = max(costs, key=lambda name: costs[name][0])
    own = costs["weight dropping"]
    others = [cell for name, cell in costs.items() if name != "weight dropping"]
    if not all(has_interval(cell) for cell in costs.values()):
        holds = None
    elif all(own[1] > cell[2] for cell in others):
        holds = True
    else:
        holds = False if any(cell[1] > own[2] for cell in others) else None
    return Part(
        "Weight dropping matters most.",
        holds,
        f"Removing {largest} has the largest cost, {signed(costs[largest][0], 0)}; removing weight dropping costs "
        f"{signed(own[0], 0)}.",
        "95 % intervals overlap, or there are none" if holds is None else "95 % intervals do not overlap",
        decides=False,
    )


# ------------------------------------------------------------------------------------------------ draw


def draw(tables: Tables, figure: plot.Figure) -> None:
    left, right = plot.panels(figure, 13, 5.8, 2, (1.25, 1))
    _draw_costs(tables["costs"], left)
    _draw_gaps(tables["nats"], right)
    for axes in (left, right):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, frameon=False, fontsize=9)


def _draw_costs(table: Table, axes: plot.Axes) -> None:
    for y, (_, _, test, _, paper) in enumerate(table.rows):
        plot.dot(axes, test, y, plot.BLUE)
        if paper is not None:
            axes.plot(paper, y, "D", color=plot.ORANGE, markersize=7, markerfacecolor="white", zorder=2)
    axes.plot([], [], "o", color=plot.BLUE, label="here, 95 % over seeds")
    axes.plot([], [], "D", color=plot.ORANGE, markerfacecolor="white", label="paper, PTB")
    axes.axvline(0, color=plot.GREY, linewidth=1)
    label = "thousandths of a nat per test token (positive: worse without it)"
    plot.name_rows(axes, table.column("without"), label, "Cost of going without …")


def _draw_gaps(table: Table, axes: plot.Axes) -> None:
    """From training text to new text: a long line means a memorized text."""
    for y, (_, _, train, _, test) in enumerate(table.rows):
        axes.plot([train[0], test[0]], [y, y], color="#cccccc", linewidth=3, zorder=1)
        axes.plot(train[0], y, "s", color=plot.GREEN, markersize=6.5, label="training text" if y == 0 else None)
        axes.plot(test[0], y, "o", color=plot.VERMILION, markersize=6.5, label="test text" if y == 0 else None)
    plot.name_rows(axes, table.column("without"), "nats per token, median over seeds", "Memorization without …")
