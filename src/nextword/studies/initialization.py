"""How should weights be initialized?

Claim: weights that all start at zero learn one and the same feature; with Xavier's variance 2 / (n_in + n_out) a
signal keeps its variance from layer to layer, while smaller weights let it vanish and larger ones saturate the units
(Glorot & Bengio 2010).

Measured, twice. A small NPLM on bytes is trained from six initializations, and its hidden units are compared on
held-out text. And a signal passes forward, and a gradient backward, through ten untrained layers, from which
Xavier's variance is derived:

    Var(h_l) = n_in · Var(W) · Var(h_{l−1})        Var(g_{l−1}) = n_out · Var(W) · Var(g_l)
    both are constant at Var(W) = 1/n_in = 1/n_out; the compromise is 2 / (n_in + n_out)

The derivation assumes linear layers, so the stack is measured with linear and with tanh layers.

Verdict: units that start equal must stay equal in all seeds, while random ones differ; through linear layers Xavier
must keep the variance of signal and gradient within a factor of 2; through tanh layers normal(0.01) must vanish,
normal(1) must saturate, and Xavier must do neither.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nextword.batching.token_stream import Stream
from nextword.layers import init
from nextword.models.nplm import NPLM, NPLMConfig
from nextword.objectives.causal import CausalObjective
from nextword.studies import _figures as plot
from nextword.studies._experiment import byte_ids, describe_corpus, isolated, open_text, require
from nextword.studies._statistics import all_of, format_cell, median_and_range
from nextword.studies._study import Claim, Measured, Part, Progress, Settings, Table, Tables
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer

CLAIM = Claim(
    "Weights that all start at zero learn one and the same feature; with Xavier's variance 2 / (n_in + n_out) a signal "
    "keeps its variance from layer to layer, while smaller weights let it vanish and larger ones saturate the units.",
    "Glorot & Bengio 2010, sections 2 to 4; lecture notes on language models and RNNs: initializing weights",
)
CONTEXT, EMBEDDING, UNITS = 4, 16, 32
ROWS, RATE = 128, 0.01
STEPS, QUICK_STEPS = 200, 60
TRAIN_BYTES, HELD_BYTES = 400_000, 8_000
SAME = 1e-3  # units that differ by less than this everywhere count as one
DEPTH, WIDTH, SIGNALS = 10, 256, 512
FACTOR = 2.0  # within which a variance counts as kept
VANISHED, ALIVE = 1e-6, 1e-3  # shares of the signal's variance
SATURATED, FREE = 0.5, 0.05  # shares of the units

UNITS_LEFT, FEATURES, BITS = "distinct units", "features", "bits per byte"
SIGNAL, GRADIENT, SATURATION = "signal, last / first layer", "gradient, first / last layer", "saturated units"
UNIGRAM = "no hidden layer: unigram"

Initializer = Callable[[nn.Module], None]


def fill_constant(network: nn.Module, value: float) -> None:
    """All matrices one number: as equal as zeros, but a signal passes."""
    for parameter in network.parameters():
        nn.init.constant_(parameter, value if parameter.dim() > 1 else 0.0)


def fill_orthogonal(network: nn.Module) -> None:
    for parameter in network.parameters():
        nn.init.orthogonal_(parameter)


SMALL, XAVIER, LARGE = "normal 0.01", "Xavier", "normal 1"
EQUAL = ("zeros", "constant 0.1")
TRAINED: dict[str, Initializer] = {
    "zeros": lambda network: init.zeros(network, 0.0),
    "constant 0.1": lambda network: fill_constant(network, 0.1),
    SMALL: lambda network: init.small_normal(network, 0.01),
    "uniform ±0.1": lambda network: init.uniform(network, 0.1),
    XAVIER: lambda network: init.xavier(network, 1.0),
    LARGE: lambda network: init.small_normal(network, 1.0),
}
STACKED: dict[str, Initializer] = {
    SMALL: TRAINED[SMALL],
    "uniform ±1/√n": lambda network: init.uniform(network, WIDTH**-0.5),
    XAVIER: TRAINED[XAVIER],
    "orthogonal": fill_orthogonal,
    LARGE: TRAINED[LARGE],
}
LINEAR, TANH = "linear", "tanh"


# ------------------------------------------------------------------------------------------------ measure


def measure(settings: Settings, progress: Progress) -> Measured:
    corpus, seeds = open_text(settings.data), settings.seeds
    steps = QUICK_STEPS if settings.quick else STEPS
    train = byte_ids(corpus, "train", TRAIN_BYTES)
    held = byte_ids(corpus, "valid" if "valid" in corpus.splits else "test", HELD_BYTES)
    require(len(held), HELD_BYTES // 4, "held-out bytes", corpus)
    units: list[tuple[Any, ...]] = []
    ends: list[tuple[Any, ...]] = []
    layers: list[tuple[Any, ...]] = []
    with isolated():
        for i, (name, fill) in enumerate(TRAINED.items()):
            results = []
            for j, seed in enumerate(seeds):
                results.append(train_units(fill, train, held, steps, seed))
                progress(i * len(seeds) + j + 1, len(TRAINED) * len(seeds))
            units.append((name, *_over_seeds(results)))
        for stack in (LINEAR, TANH):
            for name, fill in STACKED.items():
                runs = [pass_through(fill, stack == TANH, seed) for seed in seeds]
                signal, gradient, saturated = _over_seeds([from_end_to_end(run) for run in runs])
                ends.append((stack, name, signal, gradient, saturated if stack == TANH else None))
                for layer in range(DEPTH):
                    layers.append((stack, name, layer + 1, *_over_seeds([run[layer] for run in runs])))
    units.append((UNIGRAM, None, None, [unigram_bits(train, held)] * 3))
    unit_columns = ("weights", UNITS_LEFT, FEATURES, BITS)
    stack_columns = ("stack", "weights", SIGNAL, GRADIENT, SATURATION)
    layer_columns = ("stack", "weights", "layer", "signal", "gradient", "saturated")
    return {
        "units": Table(f"Hidden layer of an NPLM with {UNITS} units after {steps} steps", unit_columns, units),
        "stack": Table(f"Variance through {DEPTH} untrained layers of {WIDTH} units", stack_columns, ends),
        "layers": Table("The untrained stack, layer by layer", layer_columns, layers, detailed=True),
    }, {
        "data": f"{describe_corpus(corpus)}: {len(train):,} training bytes, {len(held):,} held out",
        "network": f"NPLM on bytes, context {CONTEXT}, m = {EMBEDDING}, h = {UNITS}; output bias of a unigram",
        "training": f"{steps} steps of {ROWS} windows, Adam at {RATE}",
        "stack": f"{DEPTH} layers of {WIDTH} units without biases, {SIGNALS} signals from N(0, 1)",
    }


def _over_seeds(results: Sequence[tuple[float, ...]]) -> list[list[float]]:
    return [median_and_range(column) for column in zip(*results, strict=True)]


def train_units(
    fill: Initializer, train: np.ndarray, held: np.ndarray, steps: int, seed: int
) -> tuple[float, float, float]:
    """Distinct units, features, and bits per byte on held-out text."""
    torch.manual_seed(seed)
    network = NPLM(NPLMConfig(CONTEXT, EMBEDDING, UNITS), vocabulary(train_tokenizer({"kind": "bytes"}, ())))
    fill(network)
    # Starting from the unigram, everything that is learned is learned through the hidden layer.
    counts = torch.from_numpy(np.bincount(train, minlength=network.vocabulary.size))
    init.unigram_bias(network.get_parameter("readout.bias"), counts)
    objective = CausalObjective({"kind": "windows", "rows": ROWS, "context": CONTEXT})
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    for batch in islice(objective.batches(Stream.from_ids(train), seed, 0), steps):
        optimizer.zero_grad()
        objective.loss(network, batch, None).value.backward()
        optimizer.step()
    held_objective = CausalObjective({"kind": "windows", "rows": len(held) - CONTEXT, "context": CONTEXT})
    with torch.no_grad():
        batch = next(held_objective.batches(Stream.from_ids(held), 0, 0))
        loss = objective.loss(network, batch, None)
        units = network.hidden(batch.inputs, None)[0][-1][:, -1]  # (N, h)
    return count_distinct(units), count_features(units), float(loss.nats) / loss.count / math.log(2)


def count_distinct(units: Tensor) -> int:
    """Units of (N, h), counting those that always agree once."""
    differ = torch.cdist(units.T.contiguous(), units.T.contiguous(), p=math.inf) > SAME
    distinct: list[int] = []
    for unit in range(units.shape[1]):
        if all(differ[unit, other] for other in distinct):
            distinct.append(unit)
    return len(distinct)


def count_features(units: Tensor) -> int:
    """Directions that hold 99 % of the variance of the units (N, h); 0 if they are constant."""
    power = torch.linalg.svdvals((units - units.mean(0)).double()) ** 2
    if power.sum() < SAME**2:
        return 0
    return int((power.cumsum(0) / power.sum() < 0.99).sum()) + 1


def unigram_bits(train: np.ndarray, held: np.ndarray) -> float:
    counts = np.bincount(train, minlength=257) + 1
    return float(-np.log2(counts / counts.sum())[held[CONTEXT:]].mean())


def pass_through(fill: Initializer, tanh: bool, seed: int) -> list[tuple[float, float, float]]:
    """For each layer: variance of the signal, variance of the gradient, share of units within 0.01 of ±1."""
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
    # In double precision: after ten small layers the variance is below what a float can hold.
    return [
        (float(h.double().var()), float(g.double().var()), float((h.abs() > 0.99).double().mean()) if tanh else 0.0)
        for h, g in zip(hs, gs, strict=True)
    ]


def from_end_to_end(run: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    """Share of the signal's variance left at the end, of the gradient's at the beginning, and saturated units."""
    (first, last_gradient, _), (last, first_gradient, saturated) = run[0], run[-1]
    return last / first, last_gradient / first_gradient, saturated


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    return [
        _stay_equal(tables["units"]),
        _keeps_variance(tables["stack"], LINEAR, decides=True),
        _vanish_and_saturate(tables["stack"]),
        _zeros_learn_one(tables["units"]),
        _keeps_variance(tables["stack"], TANH, decides=False),
    ]


def _stay_equal(table: Table) -> Part:
    equal = [table.cell(UNITS_LEFT, weights=name) for name in EQUAL]
    fewest = int(min(table.cell(UNITS_LEFT, weights=name)[1] for name in TRAINED if name not in EQUAL))
    most = int(max(high for _, _, high in equal))
    if fewest < UNITS // 2:
        holds = None  # if random units look equal too, the measure cannot tell
    elif most == 1:
        holds = True
    else:
        holds = False if min(low for _, low, _ in equal) > 1 else None
    result = "are all equal after training" if most == 1 else f"are up to {most} distinct units after training"
    return Part(
        "Units that start equal stay equal.",
        holds,
        f"From equal weights the {UNITS} hidden units {result}; from random weights at least {fewest} differ.",
        "the same in every seed" if holds else "range over seeds: " + ", ".join(format_cell(cell) for cell in equal),
    )


def _zeros_learn_one(table: Table) -> Part:
    zeros, constant = (table.cell(FEATURES, weights=name) for name in EQUAL)
    bits, base = table.cell(BITS, weights="zeros"), table.cell(BITS, weights=UNIGRAM)[0]
    return Part(
        "Zeros learn one feature.",
        True if zeros[1:] == [1, 1] else False if not zeros[1] <= 1 <= zeros[2] else None,
        f"Zeros learn {format_cell(zeros)} features in an NPLM: with H, U and C all zero no gradient reaches any of "
        f"them, and only the output bias changes ({bits[0]:.2f} bits per byte; a unigram has {base:.2f}). Equal "
        f"weights other than zero learn {format_cell(constant)}.",
        f"bits per byte over seeds: {format_cell(bits)}",
        decides=False,
    )


def _is_kept(cell: list[float]) -> bool | None:
    """All seeds within the factor, none, or some."""
    _, low, high = cell
    if low >= 1 / FACTOR and high <= FACTOR:
        return True
    return False if high < 1 / FACTOR or low > FACTOR else None


def _keeps_variance(table: Table, stack: str, decides: bool) -> Part:
    signal, gradient = (table.cell(column, stack=stack, weights=XAVIER) for column in (SIGNAL, GRADIENT))
    per_layer = signal[0] ** (1 / (DEPTH - 1))
    return Part(
        f"Through {stack} layers Xavier keeps the variance (within a factor of {FACTOR:g} over {DEPTH} layers).",
        all_of([_is_kept(signal), _is_kept(gradient)]),
        f"Through {DEPTH} {stack} layers Xavier's signal keeps {_percent(signal[0])} of its variance and the gradient "
        f"{_percent(gradient[0])}" + ("." if decides else f": {_percent(per_layer)} of the signal per layer."),
        f"{stack}, range over seeds: signal {_percent(signal[1])} to {_percent(signal[2])}, gradient "
        f"{_percent(gradient[1])} to {_percent(gradient[2])}",
        decides,
    )


def _vanish_and_saturate(table: Table) -> Part:
    """All three, in every seed."""
    signal, saturated = (
        {name: table.cell(column, stack=TANH, weights=name) for name in STACKED} for column in (SIGNAL, SATURATION)
    )

    def test(vanish: int, saturate: int) -> bool:
        return (
            signal[SMALL][vanish] < VANISHED
            and saturated[LARGE][saturate] > SATURATED
            and signal[XAVIER][saturate] > ALIVE
            and saturated[XAVIER][vanish] < FREE
        )

    return Part(
        "Through tanh layers small weights let the signal vanish, large ones saturate, Xavier does neither.",
        True if test(2, 1) else None if test(0, 0) else False,
        f"Through {DEPTH} tanh layers normal(0.01) leaves {signal[SMALL][0]:.0e} of the variance and normal(1) drives "
        f"{_percent(saturated[LARGE][0])} of the units to ±1; Xavier leaves {_percent(signal[XAVIER][0])} and "
        f"saturates {_percent(saturated[XAVIER][0])}.",
        f"tanh, range over seeds: {signal[SMALL][1]:.1e} to {signal[SMALL][2]:.1e}, {_percent(saturated[LARGE][1])} to "
        f"{_percent(saturated[LARGE][2])}, {_percent(signal[XAVIER][1])} to {_percent(signal[XAVIER][2])}",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.{0 if share > 0.2 or share == 0 else 1}f} %"


# ------------------------------------------------------------------------------------------------ draw

COLORS = {
    SMALL: plot.VERMILION,
    "uniform ±1/√n": plot.ORANGE,
    XAVIER: plot.SKY,
    "orthogonal": plot.INK,
    LARGE: plot.PURPLE,
}


def draw(tables: Tables, figure: plot.Figure) -> None:
    figure.set_size_inches(12, 8.6)
    figure.set_layout_engine("constrained", hspace=0.08)
    (units, bits), (signal, gradient) = figure.subplots(2, 2, height_ratios=(0.8, 1))
    table = tables["units"]
    _draw_rows(table, units, UNITS_LEFT, plot.BLUE, "o", -0.17)
    _draw_rows(table, units, FEATURES, plot.GREEN, "s", 0.17)
    plot.name_rows(units, list(TRAINED), "count", f"After training: the {UNITS} hidden units")
    units.set(xlim=(-1, UNITS * 1.45), xticks=range(0, UNITS + 1, 8))
    _draw_rows(table, bits, BITS, plot.BLUE, "o", 0.0)
    plot.name_rows(bits, list(TRAINED), "bits per byte, held out", "After training: the loss")
    base = table.cell(BITS, weights=UNIGRAM)[0]
    bits.axvline(base, color=plot.GREY, linestyle="--", linewidth=1)
    bits.set_ylim(len(TRAINED) - 0.5, -0.9)
    bits.text(base, -0.65, "unigram ", color=plot.GREY, fontsize=9, va="center", ha="right")
    _draw_layers(tables["layers"], signal, "signal", f"Forward: the signal through {DEPTH} tanh layers")
    _draw_layers(tables["layers"], gradient, "gradient", f"Backward: the gradient through the same {DEPTH} layers")


def _draw_rows(table: Table, axes: plot.Axes, column: str, color: str, marker: str, shift: float) -> None:
    for y, name in enumerate(TRAINED):
        cell = table.cell(column, weights=name)
        plot.dot(axes, cell, y + shift, color, marker=marker, size=6)
        text = f"{cell[0]:.2f}" if column == BITS else f"{cell[0]:.0f} {column.split()[0]}"
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # hides the grid
        axes.annotate(
            text, (cell[2], y + shift), (8, 0), textcoords="offset points", va="center_baseline", fontsize=9,
            color=color, bbox=box,
        )  # fmt: skip


def _draw_layers(table: Table, axes: plot.Axes, column: str, title: str) -> None:
    """In the direction of travel: the gradient starts at the last layer."""
    layers = list(range(1, DEPTH + 1))
    labels = []
    for name, color in COLORS.items():
        cells = table.column(column, stack=TANH, weights=name)
        # Orthogonal weights behave like Xavier's: a thin dashed line on a broad one shows both.
        style, width = ("o--" if name == "orthogonal" else "o-"), (4.0 if name == XAVIER else 1.6)
        plot.line(axes, layers, cells, color, style, width=width, size=3.5)
        labels.append((cells[-1 if column == "signal" else 0][0], name, color))
    axes.set(yscale="log", xlabel="layer", ylabel=f"variance of the {column}", xticks=layers)
    if column == "gradient":
        axes.invert_xaxis()
    axes.set_title(title)
    plot.label_lines(axes, labels, gap=0.06)
