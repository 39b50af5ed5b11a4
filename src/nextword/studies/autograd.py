"""How exact is backpropagation, and what does it cost? The engine of `nextword.micro` against finite differences.

    backpropagation       one pass forward and one back               every ∂L/∂w at once
    finite differences    (L(w + ε) − L(w − ε)) / 2ε                  two losses for each w; ε too large: a wrong slope,
                                                                      ε too small: the difference drowns in rounding

Claim: the chain rule, applied node by node from the loss backward, gives every weight its exact gradient for a small
multiple of the price of the loss; finite differences need two losses for each weight, and lose digits (Griewank &
Walther 2008; Baydin, Pearlmutter, Radul & Siskind 2018).

Measured on an NPLM, an RNN and an LSTM written in the engine, on words of the text: the slope of the loss along a
random direction, by backpropagation and by finite differences of many step sizes; the NPLM's gradient compared
with PyTorch's, in double precision; and the time of the gradient compared with that of the loss.

Verdict: the NPLM's gradient must equal PyTorch's to 1e-10; finite differences must err at least a hundred times more,
whatever their step; and a gradient must cost at most five times as much as a loss.

The figure shows the graph of one neuron: data go from left to right, gradients from right to left.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.patches import FancyBboxPatch
from threadpoolctl import threadpool_limits

from nextword.micro import LSTM, NPLM, RNN, Value
from nextword.micro.engine import sorted_graph
from nextword.micro.models import Model
from nextword.studies import _figures as plot
from nextword.studies._experiment import describe_corpus, open_text, require, split_words
from nextword.studies._statistics import median_and_range
from nextword.studies._study import Claim, Measured, Part, Progress, Settings, Table, Tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLAIM = Claim(
    "Backpropagation gives every weight its exact gradient for a small multiple of the price of the loss; finite "
    "differences need two losses for each weight, and lose digits.",
    "Griewank & Walther 2008, chapter 3; Baydin, Pearlmutter, Radul & Siskind 2018; lecture notes on neural language "
    "models: automatic differentiation",
)
WORDS, VOCABULARY = 4000, 300  # words that are read; the most frequent ones, all others are one
ROWS, TIME = 8, 12
STEPS = tuple(10.0**-n for n in range(1, 14))
REPEATS, QUICK_REPEATS = 20, 5
EQUAL = 1e-10
WORSE = 100
CHEAP = 5.0  # the bound of Griewank & Walther for one gradient
FACTOR = "gradient / loss, time"
MODELS: dict[str, type[NPLM] | type[RNN] | type[LSTM]] = {"NPLM": NPLM, "RNN": RNN, "LSTM": LSTM}


def measure(settings: Settings, progress: Progress) -> Measured:
    corpus, repeats = open_text(settings.data), QUICK_REPEATS if settings.quick else REPEATS
    text: list[str] = []
    for words in split_words(corpus):
        text += words
        if len(text) >= WORDS:
            break
    require(len(text), WORDS, "words", corpus)
    ids = number_words(text[:WORDS])
    errors: dict[tuple[str, float], list[float]] = {}
    factors: dict[str, list[float]] = {name: [] for name in MODELS}
    differences, weights = [], {}
    for i, seed in enumerate(settings.seeds):
        starts = np.random.default_rng(seed).integers(0, len(ids) - TIME - 1, ROWS)
        pieces = np.stack([ids[start : start + TIME + 1] for start in starts])
        for name, kind in MODELS.items():
            model = kind(int(ids.max()) + 1, seed=seed)
            weights[name] = sum(weight.data.size for weight in model.weights.values())
            factors[name].append(time_gradient(model, pieces, repeats))
            for step, error in difference_errors(model, pieces, seed).items():
                errors.setdefault((name, step), []).append(error)
            if isinstance(model, NPLM):
                differences.append(distance_to_torch(model, pieces))
        progress(i + 1, len(settings.seeds))
    return {
        "exact": Table(
            "The NPLM's gradient compared with PyTorch's, in double precision",
            ("largest difference / largest gradient",),
            ((median_and_range(differences),),),
        ),
        "cost": Table(
            "What all gradients cost",
            ("model", "weights", FACTOR, "losses for finite differences"),
            tuple((name, weights[name], median_and_range(factors[name]), 2 * weights[name]) for name in MODELS),
        ),
        "differences": Table(
            "Relative error of a slope by finite differences",
            ("ε", *MODELS),
            tuple((step, *(median_and_range(errors[name, step]) for name in MODELS)) for step in STEPS),
        ),
        "graph": draw_neuron(),
    }, {
        "data": f"{describe_corpus(corpus)}: {WORDS:,} words, the {VOCABULARY} most frequent of which have ids",
        "networks": f"embeddings of 16 and 32 hidden units in double precision, {ROWS} pieces of {TIME} words",
        "time": f"of one thread on the processor; median of {repeats} losses and gradients in turns",
    }


def number_words(text: list[str]) -> np.ndarray:
    """Ids by frequency; 0 for rare words."""
    counts: dict[str, int] = {}
    for word in text:
        counts[word] = counts.get(word, 0) + 1
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[: VOCABULARY - 1]
    place = {word: i for i, word in enumerate(frequent, 1)}
    return np.array([place.get(word, 0) for word in text])


def compute_gradients(model: Model, pieces: np.ndarray) -> None:
    loss = model.loss(pieces[:, :-1], pieces[:, 1:])
    for weight in model.weights.values():
        weight.zero_grad()
    loss.backward()


def time_gradient(model: Model, pieces: np.ndarray, repeats: int) -> float:
    """How many times as long as a loss alone a loss and all of its gradients take."""
    alone, together = [], []
    with threadpool_limits(1):
        for _ in range(repeats):
            began = time.thread_time()
            model.loss(pieces[:, :-1], pieces[:, 1:])
            between = time.thread_time()
            compute_gradients(model, pieces)
            alone.append(between - began)
            together.append(time.thread_time() - between)
    return float(np.median(together) / np.median(alone))


def difference_errors(model: Model, pieces: np.ndarray, seed: int) -> dict[float, float]:
    """The relative error of finite differences by step, along a random direction of length 1 of all weights."""
    compute_gradients(model, pieces)
    draw = np.random.default_rng(seed)
    direction = {name: draw.normal(size=weight.shape) for name, weight in model.weights.items()}
    length = np.sqrt(sum((part**2).sum() for part in direction.values()))
    slope = sum(float((model[name].grad * part).sum()) for name, part in direction.items()) / length
    start = {name: weight.data.copy() for name, weight in model.weights.items()}

    def loss_at(distance: float) -> float:
        for name, part in direction.items():
            model[name].data[...] = start[name] + distance * part / length
        return model.loss(pieces[:, :-1], pieces[:, 1:]).item()

    errors = {step: abs((loss_at(step) - loss_at(-step)) / (2 * step) - slope) / abs(slope) for step in STEPS}
    loss_at(0.0)
    return errors


def distance_to_torch(model: NPLM, pieces: np.ndarray) -> float:
    """The largest difference between the engine's gradient and PyTorch's, relative to the largest gradient."""
    compute_gradients(model, pieces)
    w = {name: torch.tensor(weight.data, requires_grad=True) for name, weight in model.weights.items()}
    windows = torch.tensor(pieces[:, :-1]).unfold(1, model.context, 1)
    x = F.embedding(windows, w["C"]).flatten(2)
    logits = torch.tanh(x @ w["H"] + w["d"]) @ w["U"] + x @ w["W"] + w["b"]
    targets = torch.tensor(model.targets(pieces[:, :-1], pieces[:, 1:]).copy())
    gradients = torch.autograd.grad(F.cross_entropy(logits.flatten(0, 1), targets), list(w.values()))
    largest = max(float(gradient.abs().max()) for gradient in gradients)
    pairs = zip(model.weights.values(), gradients, strict=True)
    return max(float((torch.tensor(weight.grad) - gradient).abs().max()) for weight, gradient in pairs) / largest


def draw_neuron() -> Table:
    """The nodes of loss = (tanh(x·w + b) − y)², with data and gradients, and their parents by number."""
    x, w, b, y = (Value(number, name=name) for name, number in (("x", 0.5), ("w", -1.2), ("b", 0.3), ("y", 1.0)))
    loss = ((x * w + b).tanh() - y) ** 2
    loss.name = "loss"
    loss.backward()
    nodes = sorted_graph(loss)
    number = {id(node): i for i, node in enumerate(nodes)}
    rows = [
        (i, node.name or ("" if node.parents else "number"), node.op, node.data, node.grad, parents)
        for i, node in enumerate(nodes)
        for parents in [" ".join(str(number[id(parent)]) for parent in node.parents)]
    ]
    return Table("The graph of one neuron", ("node", "name", "operation", "data", "gradient", "parents"), rows, True)


# ------------------------------------------------------------------------------------------------ verdict


def judge(tables: Tables) -> list[Part]:
    name = "largest difference / largest gradient"
    exact = tables["exact"].cell(name)
    best = {model: min(cell[0] for cell in tables["differences"].column(model)) for model in MODELS}
    costs = tables["cost"].column(FACTOR)
    most = max(tables["cost"].column("weights"))
    return [
        Part(
            "Backpropagation gives the exact gradient.",
            exact[2] <= EQUAL,
            f"The NPLM's gradient differs from PyTorch's by {exact[2]:.1e} of the largest one at most.",
            f"range over seeds {exact[1]:.1e} to {exact[2]:.1e}",
        ),
        Part(
            "Finite differences lose digits.",
            min(best.values()) >= WORSE * exact[2],
            f"With the best step, the slope is wrong by {min(best.values()):.1e} to {max(best.values()):.1e}.",
            "medians over seeds; the best of all steps",
        ),
        Part(
            "A gradient costs a small multiple of a loss.",
            max(cell[0] for cell in costs) <= CHEAP,
            f"A loss with all gradients takes {min(c[0] for c in costs):.1f} to {max(c[0] for c in costs):.1f} times "
            f"as long as the loss alone; finite differences would need up to {2 * most:,} losses.",
            f"range over seeds {min(c[1] for c in costs):.1f} to {max(c[2] for c in costs):.1f}",
        ),
    ]


def draw(tables: Tables, figure: Figure) -> None:
    left, right = plot.panels(figure, 12, 4.6, 2, (1, 1.7))
    table = tables["differences"]
    for color, model in zip(plot.COLORS, MODELS, strict=False):
        plot.line(left, table.column("ε"), table.column(model), color)
        left.plot([], [], "o-", color=color, label=model)
    exact = tables["exact"].rows[0][0][0]
    left.axhline(max(exact, 1e-17), color=plot.INK, linestyle="--", label="backpropagation (NPLM)")
    left.set(xscale="log", yscale="log", xlabel="step ε", ylabel="relative error", title="Finite differences err")
    left.legend(frameon=False)
    _draw_graph(right, tables["graph"])


def _draw_graph(axes: Axes, table: Table) -> None:
    """Boxes in columns by distance from the loss."""
    rows = {row[0]: row for row in table.rows}
    column = dict.fromkeys(rows, 0)
    for node in sorted(rows, reverse=True):  # parents come before their results
        for parent in map(int, rows[node][5].split()):
            column[parent] = max(column[parent], column[node] + 1)
    by_column: dict[int, list[int]] = {}
    for node, own in column.items():
        by_column.setdefault(own, []).append(node)
    place = {
        node: (max(by_column) - own, (len(nodes) - 1) / 2 - i)
        for own, nodes in by_column.items()
        for i, node in enumerate(nodes)
    }
    for node, (_, name, operation, data, gradient, parents) in rows.items():
        x, y = place[node]
        color = plot.BLUE if not parents else plot.VERMILION if name == "loss" else plot.GREY
        box = FancyBboxPatch((x - 0.36, y - 0.24), 0.72, 0.48, boxstyle="round,pad=0.02", fc="white", ec=color)
        axes.add_patch(box)
        axes.text(x, y + 0.09, f"{name} {operation}".strip(), ha="center", va="center", weight="bold", size=9)
        axes.text(x, y - 0.11, f"{data:.3g} | {gradient:.3g}".replace("-", "−"), ha="center", va="center", size=8)
        for parent in map(int, parents.split()):
            px, py = place[parent]
            axes.annotate("", (x - 0.39, y), (px + 0.39, py), arrowprops={"arrowstyle": "->", "color": plot.GREY})
    axes.set(xlim=(-0.5, max(by_column) + 0.5), ylim=(-2, 2), title="One neuron: data | gradient of the loss")
    axes.axis("off")
