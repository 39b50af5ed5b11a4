"""What weights start as: equal ones learn one feature; Xavier's variance carries a signal through many layers.

Two measurements. A small NPLM reads the bytes of a text from six different beginnings, and after training its hidden
units are compared with each other on text it has not seen. And a signal goes forward, and a gradient backward, through
ten layers that are not trained at all, which is where Xavier's variance comes from:

    Var(h_l) = n_in · Var(W) · Var(h_{l−1})        Var(g_{l−1}) = n_out · Var(W) · Var(g_l)
    both constant, if only it could be, at Var(W) = 1/n_in = 1/n_out; the compromise is 2 / (n_in + n_out)

That derivation takes the layers to be linear. So the stack is measured as linear layers and as tanh layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from nextword.batching.token_stream import Stream
from nextword.layers import init as initial
from nextword.models.nplm import NPLM, NPLMConfig
from nextword.objectives.causal import Causal
from nextword.studies._experiment import bytes_of, corpus_for, enough
from nextword.studies._study import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    Claim,
    Part,
    Progress,
    Settings,
    Table,
    Tables,
    beside,
    judged,
    over_seeds,
    written,
)
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = Claim(
    "Weights that all start at zero learn one and the same feature; with Xavier's variance 2 / (n_in + n_out) a signal "
    "keeps its variance from layer to layer, where smaller weights let it vanish and larger ones saturate the units.",
    "Glorot & Bengio 2010, sections 2 to 4; lecture notes on language models and RNNs: initialising weights",
)
CONTEXT, EMBEDDING, UNITS = 4, 16, 32
ROWS, RATE = 128, 0.01
STEPS, QUICK_STEPS = 200, 60
READ, HELD = 400_000, 8_000  # bytes to learn from, and to look at the units on
SAME = 1e-3  # units that differ by less than this everywhere are one unit
DEPTH, WIDTH, SIGNALS = 10, 256, 512
KEPT = 2.0  # the last layer's variance is the first's, give or take this factor
VANISHED, LIVES = 1e-6, 1e-3  # shares of the signal's variance
SATURATED, FREE = 0.5, 0.05  # shares of the units

Fill = Callable[[nn.Module], None]


def constant(network: nn.Module, scale: float) -> None:
    """Matrices all one number: as equal as zeros, but a signal comes through."""
    for parameter in network.parameters():
        nn.init.constant_(parameter, scale if parameter.dim() > 1 else 0.0)


def square_orthogonal(network: nn.Module) -> None:
    """`layers.initial.orthogonal` knows recurrent matrices by name; here every matrix is square."""
    for parameter in network.parameters():
        nn.init.orthogonal_(parameter)


EQUAL = ("zeros", "constant 0.1")
TRAINED: dict[str, Fill] = {
    "zeros": lambda network: initial.zeros(network, 0.0),
    "constant 0.1": lambda network: constant(network, 0.1),
    "normal 0.01": lambda network: initial.small_normal(network, 0.01),
    "uniform ±0.1": lambda network: initial.uniform(network, 0.1),
    "Xavier": lambda network: initial.xavier(network, 1.0),
    "normal 1": lambda network: initial.small_normal(network, 1.0),
}
STACKED: dict[str, Fill] = {
    "normal 0.01": TRAINED["normal 0.01"],
    "uniform ±1/√n": lambda network: initial.uniform(network, WIDTH**-0.5),
    "Xavier": TRAINED["Xavier"],
    "orthogonal": square_orthogonal,
    "normal 1": TRAINED["normal 1"],
}
STACKS = ("linear", "tanh")


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    corpus = corpus_for(settings.data)
    steps = QUICK_STEPS if settings.quick else STEPS
    learnt = bytes_of(corpus, "train", READ)
    held = bytes_of(corpus, "valid" if "valid" in corpus.splits else "test", HELD)
    enough(len(held), HELD // 4, "bytes held out", corpus)
    total = len(TRAINED) * len(settings.seeds)
    features, layers, ends = [], [], []
    with _apart():
        for i, (name, fill) in enumerate(TRAINED.items()):
            seen = []
            for j, seed in enumerate(settings.seeds):
                seen.append(trained(fill, learnt, held, steps, seed))
                progress(i * len(settings.seeds) + j + 1, total)
            features.append((name, *(over_seeds(column) for column in zip(*seen, strict=True))))
        for stack in STACKS:
            for name, fill in STACKED.items():
                runs = [carried(fill, stack == "tanh", seed) for seed in settings.seeds]
                signal, gradient, full = (over_seeds(column) for column in zip(*map(arrived, runs), strict=True))
                ends.append((stack, name, signal, gradient, full if stack == "tanh" else None))
                for layer in range(DEPTH):
                    columns = zip(*(run[layer] for run in runs), strict=True)
                    layers.append((stack, name, layer + 1, *(over_seeds(column) for column in columns)))
    detail = Table(
        "The untrained stack, layer by layer",
        ("stack", "weights", "layer", "signal", "gradient", "saturated"),
        tuple(layers),
        detailed=True,
    )
    tables = {
        "features": Table(
            f"The hidden layer of an NPLM, {UNITS} units, after {steps} steps",
            ("weights", "different units", "features", "bits/byte"),
            (*features, ("no hidden layer: unigram", None, None, [unigram(learnt, held)] * 3)),
        ),
        "stack": Table(
            f"Variance through {DEPTH} untrained layers of {WIDTH}",
            ("stack", "weights", "signal, last / first layer", "gradient, first / last layer", "saturated at the end"),
            tuple(ends),
        ),
        "layers": detail,
    }
    return tables, {
        "data": f"{corpus.name} ({corpus.source}): {len(learnt):,} bytes to learn from, {len(held):,} held out",
        "network": f"NPLM on bytes, context {CONTEXT}, m = {EMBEDDING}, h = {UNITS}; output bias of a unigram",
        "training": f"{steps} steps of {ROWS} windows, Adam at {RATE}",
        "stack": f"{DEPTH} layers of {WIDTH} units without biases, {SIGNALS} signals from N(0, 1)",
    }


@contextmanager
def _apart() -> Iterator[None]:
    """Seeds set here leave the caller's generator alone. One thread: these products are too small to share out."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)


def trained(fill: Fill, learnt: np.ndarray, held: np.ndarray, steps: int, seed: int) -> tuple[float, float, float]:
    """Different units, features, and bits per byte on the held-out text."""
    torch.manual_seed(seed)
    network = NPLM(NPLMConfig(CONTEXT, EMBEDDING, UNITS), vocabulary(train_tokenizer({"kind": "bytes"}, ())))
    fill(network)
    # From the unigram on, all that is learnt is learnt through the hidden layer.
    counts = torch.from_numpy(np.bincount(learnt, minlength=network.vocabulary.size))
    initial.unigram_bias(network.get_parameter("readout.bias"), counts)
    objective = Causal({"kind": "windows", "rows": ROWS, "context": CONTEXT})
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    for batch in islice(objective.batches(Stream.from_ids(learnt), seed, 0), steps):
        optimizer.zero_grad()
        objective.loss(network, batch, None).value.backward()
        optimizer.step()
    whole = Causal({"kind": "windows", "rows": len(held) - CONTEXT, "context": CONTEXT})
    with torch.no_grad():
        batch = next(whole.batches(Stream.from_ids(held), 0, 0))
        loss = objective.loss(network, batch, None)
        units = network.hidden(batch.inputs, None)[0][-1][:, -1]  # (N, h)
    return different(units), features(units), float(loss.nats) / loss.count / math.log(2)


def different(units: Tensor) -> int:
    """How many units there are when those that always say the same count once."""
    apart = torch.cdist(units.T.contiguous(), units.T.contiguous(), p=math.inf) > SAME
    kept: list[int] = []
    for unit in range(units.shape[1]):
        if all(apart[unit, other] for other in kept):
            kept.append(unit)
    return len(kept)


def features(units: Tensor) -> int:
    """Directions that hold 99 % of what the units say: none when they say nothing."""
    power = torch.linalg.svdvals((units - units.mean(0)).double()) ** 2
    if power.sum() < SAME**2:
        return 0
    return int((power.cumsum(0) / power.sum() < 0.99).sum()) + 1


def unigram(learnt: np.ndarray, held: np.ndarray) -> float:
    counts = np.bincount(learnt, minlength=257) + 1
    return float(-np.log2(counts / counts.sum())[held[CONTEXT:]].mean())


def carried(fill: Fill, tanh: bool, seed: int) -> list[tuple[float, float, float]]:
    """At each layer: variance of the signal, variance of the gradient, share of units within 0.01 of ±1."""
    torch.manual_seed(seed)
    stack = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(DEPTH))
    fill(stack)
    h = torch.randn(SIGNALS, WIDTH)
    hs = []
    for layer in stack:
        h = torch.tanh(layer(h)) if tanh else layer(h)
        hs.append(h)
    gs = torch.autograd.grad(h, hs, torch.randn_like(h))
    hs = [h.detach() for h in hs]
    # Doubles: through ten small layers the variance leaves what a float can hold.
    return [
        (float(h.double().var()), float(g.double().var()), float((h.abs() > 0.99).double().mean()) if tanh else 0.0)
        for h, g in zip(hs, gs, strict=True)
    ]


def arrived(run: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    """What is left of the signal's variance at the end, of the gradient's at the beginning, and who is saturated."""
    (first, last_gradient, _), (last, first_gradient, saturated) = run[0], run[-1]
    return last / first, last_gradient / first_gradient, saturated


def judge(tables: Tables) -> list[Part]:
    return [
        _one_feature(tables["features"]),
        _kept(tables["stack"], "linear", decides=True),
        _neither(tables["stack"]),
        _none_at_all(tables["features"]),
        _kept(tables["stack"], "tanh", decides=False),
    ]


def _one_feature(table: Table) -> Part:
    equal = [table.cell("different units", weights=name) for name in EQUAL]
    others = [table.cell("different units", weights=name) for name in TRAINED if name not in EQUAL]
    fewest = int(min(low for _, low, _ in others))
    if fewest < UNITS // 2:
        holds = None  # if random units look equal too, the measure cannot tell
    elif max(high for _, _, high in equal) == 1:
        holds = True
    else:
        holds = False if min(low for _, low, _ in equal) > 1 else None
    most = int(max(high for _, _, high in equal))
    became = "are one and the same after training" if most == 1 else f"are up to {most} different ones after training"
    return Part(
        "Units that start equal stay equal.",
        judged(holds),
        f"From equal weights the {UNITS} hidden units {became}, from random weights at least {fewest} differ.",
        "the same in every seed" if holds else "range over seeds: " + ", ".join(written(cell) for cell in equal),
    )


def _none_at_all(table: Table) -> Part:
    zeros, same = (table.cell("features", weights=name) for name in EQUAL)
    bits, base = (
        table.cell("bits/byte", weights="zeros"),
        table.cell("bits/byte", weights="no hidden layer: unigram")[0],
    )
    holds = True if zeros[1:] == [1, 1] else False if not zeros[1] <= 1 <= zeros[2] else None
    return Part(
        "What zeros learn is one feature.",
        judged(holds),
        f"Zeros learn {written(zeros)} features in an NPLM: with H, U and C all zero no gradient reaches any of them, "
        f"and only the output bias moves ({bits[0]:.2f} bits/byte, a unigram has {base:.2f}). Equal weights that are "
        f"not zero learn {written(same)}.",
        f"bits/byte over seeds: {written(bits)}",
        decides=False,
    )


def _within(cell: list[float]) -> bool | None:
    """All seeds inside the band, none, or some."""
    _, low, high = cell
    if low >= 1 / KEPT and high <= KEPT:
        return True
    return False if high < 1 / KEPT or low > KEPT else None


def _kept(table: Table, stack: str, decides: bool) -> Part:
    where = {"stack": stack, "weights": "Xavier"}
    signal, gradient = (table.cell(name, **where) for name in table.columns[2:4])
    both = (_within(signal), _within(gradient))
    per_layer = signal[0] ** (1 / (DEPTH - 1))
    return Part(
        f"Through {stack} layers Xavier keeps the variance (within a factor of {KEPT:g} over {DEPTH} layers).",
        judged(False if False in both else None if None in both else True),
        f"Through {DEPTH} {stack} layers Xavier's signal arrives with {_percent(signal[0])} of its variance and the "
        f"gradient with {_percent(gradient[0])}"
        + ("." if decides else f": the signal keeps {_percent(per_layer)} a layer."),
        f"{stack}, range over seeds: signal {_percent(signal[1])} to {_percent(signal[2])}, gradient "
        f"{_percent(gradient[1])} to {_percent(gradient[2])}",
        decides,
    )


def _neither(table: Table) -> Part:
    """Small weights vanish, large ones saturate, Xavier does neither: all three, in every seed."""
    signal = {name: table.cell(table.columns[2], stack="tanh", weights=name) for name in STACKED}
    full = {name: table.cell(table.columns[4], stack="tanh", weights=name) for name in STACKED}
    small, large, xavier = "normal 0.01", "normal 1", "Xavier"
    sure = signal[small][2] < VANISHED and full[large][1] > SATURATED
    sure = sure and signal[xavier][1] > LIVES and full[xavier][2] < FREE
    middle = signal[small][0] < VANISHED and full[large][0] > SATURATED
    middle = middle and signal[xavier][0] > LIVES and full[xavier][0] < FREE
    return Part(
        "Through tanh layers small weights let the signal vanish, large ones saturate, Xavier does neither.",
        judged(True if sure else None if middle else False),
        f"Through {DEPTH} tanh layers normal(0.01) leaves {signal[small][0]:.0e} of the variance and normal(1) drives "
        f"{_percent(full[large][0])} of the units to ±1; Xavier leaves {_percent(signal[xavier][0])} and drives "
        f"{_percent(full[xavier][0])} there.",
        f"tanh, range over seeds: {signal[small][1]:.1e} to {signal[small][2]:.1e}, {_percent(full[large][1])} to "
        f"{_percent(full[large][2])}, {_percent(signal[xavier][1])} to {_percent(signal[xavier][2])}",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.{0 if share > 0.2 or share == 0 else 1}f} %"


COLOURS = {"normal 0.01": VERMILION, "uniform ±1/√n": ORANGE, "Xavier": SKY, "orthogonal": INK, "normal 1": PURPLE}


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(12, 8.6)
    figure.set_layout_engine("constrained", hspace=0.08)
    (units, bits), (signal, gradient) = figure.subplots(2, 2, height_ratios=(0.8, 1))
    both = {"different units": (BLUE, "o", -0.17), "features": (GREEN, "s", 0.17)}
    _rows(tables["features"], units, both, "how many", f"After training: what the {UNITS} hidden units became")
    units.set(xlim=(-1, UNITS * 1.3), xticks=range(0, UNITS + 1, 8))
    _rows(
        tables["features"], bits, {"bits/byte": (BLUE, "o", 0.0)}, "bits per byte, held out", "After training: the loss"
    )
    base = tables["features"].cell("bits/byte", weights="no hidden layer: unigram")[0]
    bits.axvline(base, color=GREY, linestyle="--", linewidth=1)
    bits.text(base, -0.65, "unigram ", color=GREY, fontsize=9, va="center", ha="right")
    _lines(tables["layers"], signal, "signal", f"Forward: the signal through {DEPTH} tanh layers")
    _lines(tables["layers"], gradient, "gradient", f"Backward: the gradient through the same {DEPTH} layers")


def _rows(table: Table, axes: Any, columns: dict[str, tuple[str, str, float]], label: str, title: str) -> None:
    """One row a beginning: the median of the seeds with its range, and the number beside it."""
    names = list(TRAINED)
    for column, (colour, shape, lift) in columns.items():
        for y, name in enumerate(names):
            middle, low, high = table.cell(column, weights=name)
            axes.plot([low, high], [y + lift] * 2, color=colour, linewidth=2, solid_capstyle="round")
            axes.plot(middle, y + lift, shape, color=colour, markersize=6)
            text = f"{middle:.2f}" if column == "bits/byte" else f"{middle:.0f} {column.split()[0]}"
            where = {"textcoords": "offset points", "va": "center_baseline", "fontsize": 9}
            clear = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # of the lines behind
            axes.annotate(text, (high, y + lift), (8, 0), color=colour, bbox=clear, **where)
    axes.set_yticks(range(len(names)), names, color=INK)
    axes.set(xlabel=label, ylim=(len(names) - 0.5, -0.9))
    axes.set_title(title)
    axes.grid(axis="y", visible=False)


def _lines(table: Table, axes: Any, column: str, title: str) -> None:
    """The variance at each layer, read in the direction of travel: the gradient comes from the last layer."""
    layers = list(range(1, DEPTH + 1))
    labels = []
    for name, colour in COLOURS.items():
        middle, low, high = zip(*table.column(column, stack="tanh", weights=name), strict=True)
        # Orthogonal weights carry as Xavier's do: a thin dashed line on a broad one shows both.
        broad, dash = (4.0 if name == "Xavier" else 1.6), ("--" if name == "orthogonal" else "-")
        axes.plot(layers, middle, dash, marker="o", color=colour, markersize=3.5, linewidth=broad)
        axes.fill_between(layers, low, high, color=colour, alpha=0.2, linewidth=0)
        labels.append((middle[-1] if column == "signal" else middle[0], name, colour))
    axes.set(yscale="log", xlabel="layer", ylabel=f"variance of the {column}", xticks=layers)
    if column == "gradient":
        axes.invert_xaxis()
    axes.set_title(title)
    beside(axes, labels, gap=0.06)
