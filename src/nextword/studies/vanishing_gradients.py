"""How far a gradient reaches back in time: ‖∂h_t/∂h_k‖ by t − k, against its bound, untrained and after some training.

    ∂h_t/∂h_k = Π_i Diag(tanh'_i) W        ‖∂h_t/∂h_k‖ ≤ (γ_h·γ_w)^(t−k)        γ_h = max ‖Diag(tanh')‖, γ_w = ‖W‖

The bound is said to decide: below 1 the gradient vanishes, above 1 it explodes. It is measured beside what it bounds.
The remedies are measured in the same way, on the same text: a leak, a residual connection, gates, attention. And the
remedy for explosion, clipping, is tried where gradients do explode.

The figure of the study of vanishing gradients: norms by distance before and after training, and clipping.

The networks of the study of vanishing gradients, and how far a gradient travels through each, exactly.

    h_t = step(x_t, h_{t−1})        J_t = ∂h_t/∂h_{t−1}        ∂h_t/∂h_k = J_t J_{t−1} … J_{k+1}

Each J is the whole matrix, by automatic differentiation of the layer's own readable step, in double precision; the norm
is the largest singular value of the product. An LSTM's memory is (h, c), so its J is the matrix of both, and the path
from h to h is a block of the product: what h_k does to h_t in every way there is, through c as well.

What the numbers of the study of vanishing gradients say, part by part; they alone decide.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import jacrev, vmap

from nextword.batching.token_stream import Stream
from nextword.core.types import Inputs, State, Vocabulary
from nextword.layers.recurrent import Layer, Memory
from nextword.models.rnn import GRU, LSTM, RNN, ElmanConfig, Recurrent, RecurrentConfig
from nextword.objectives.causal import Causal
from nextword.studies._experiment import Task, bytes_of, corpus_for, enough, spread
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

PLAIN, RELU, LEAKY, RESIDUAL, ATTENTION = "tanh RNN", "ReLU RNN", "leaky RNN", "residual RNN", "attention"
GATED, H, HC = "GRU", "LSTM (h to h)", "LSTM (h, c)"
NETWORKS = (PLAIN, LEAKY, RESIDUAL, GATED, HC, ATTENTION)
CURVES = (PLAIN, LEAKY, RESIDUAL, GATED, H, HC, ATTENTION)  # what is measured; both of the LSTM's are of one network
UNTRAINED, TRAINED = "untrained", "trained"
SCALES = (0.5, 0.9, 2.0, 4.0, 8.0)  # ‖W‖ of tanh RNNs
BIASES = (0.0, 2.0, 5.0)  # of an LSTM's forget gate
TAMED = ((RELU, 2.0, 1.0), (PLAIN, 2.0, 1.0))  # network, ‖W‖, rate: the exploding cases that decide
CASES = (*TAMED, (RELU, 2.0, 0.1), (PLAIN, 2.0, 0.1), (PLAIN, 8.0, 1.0))
MOST = 100.0  # nats: a loss above this, or one that is no number, is written as this
EMBEDDING, WIDTH, LEAK = 32, 64, 0.9
ROWS, PIECE = 16, 64  # sequences in a step of training, and bytes in each
RATE, CLIP = 0.01, 1.0
RATES = {RESIDUAL: 0.001}  # where another is better: its states are sums, ten times as large
CHUNK = 64  # Jacobians at once: a few tens of MB


# ------------------------------------------------------------------------------------------------ networks


class ResidualLayer(Layer):
    """h_t = h_{t−1} + tanh(W x_t + U h_{t−1} + b): the old state goes on whole, as through the blocks of a ResNet."""

    def forward(self, x: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        return self.stepwise(x, memory)

    def stepwise(self, x: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        outputs, weights = [], self.weights()
        for x_t in x:
            memory = (memory[0] + self.kind.cell(x_t, memory, weights)[0],)
            outputs.append(memory[0])
        return torch.stack(outputs), memory


class ResidualRNN(RNN):
    def layer(self, inputs: int) -> Layer:
        return ResidualLayer("tanh", inputs, self.config.width)


class Attending(RNN):
    """A tanh RNN whose output at t reads all states up to t by one head: y_t = h_t + Σ_k a_tk V h_k."""

    def __init__(self, config: RecurrentConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.query, self.key, self.value = (nn.Linear(config.width, config.width, bias=False) for _ in range(3))

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        layers, state = super().hidden(inputs, state)
        h = layers[-1]  # (B, T, D)
        q, k, v = self.query(h), self.key(h), self.value(h)
        return [*layers, h + F.scaled_dot_product_attention(q, k, v, is_causal=True)], state

    def last(self, h: Tensor) -> Tensor:
        """The output at the last of the states alone: (T, D) → (D,)."""
        scores = self.key(h) @ self.query(h[-1]) / h.shape[-1] ** 0.5
        return h[-1] + torch.softmax(scores, 0) @ self.value(h)


CLASSES: dict[str, type[Recurrent]] = {GATED: GRU, HC: LSTM, RESIDUAL: ResidualRNN, ATTENTION: Attending}


def make(name: str, seed: int) -> Recurrent:
    """A network on bytes, with one recurrent layer."""
    torch.manual_seed(seed)
    words = vocabulary(train_tokenizer({"kind": "bytes"}, ()))
    leak, activation = (LEAK if name == LEAKY else 0.0), ("relu" if name == RELU else "tanh")
    config = ElmanConfig(width=WIDTH, embedding=EMBEDDING, leak=leak, activation=activation)
    return CLASSES.get(name, RNN)(config, words)


def layer_of(network: Recurrent) -> Layer:
    return cast(Layer, network.layers[0])


@torch.no_grad()
def scaled(network: Recurrent, norm: float) -> Recurrent:
    """The same network with ‖W_hh‖ = norm."""
    weight = layer_of(network).weight_hh
    weight.mul_(norm / torch.linalg.matrix_norm(weight, 2))
    return network


@torch.no_grad()
def remembering(network: Recurrent, bias: float) -> Recurrent:
    """The same LSTM with this much added to the bias of its forget gate: σ(bias) is about how much of c it keeps."""
    layer_of(network).bias_ih[WIDTH : 2 * WIDTH] += bias
    return network


def train(network: Recurrent, name: str, ids: np.ndarray, steps: int, seed: int) -> list[float]:
    """Adam, with clipping. Nats a byte at each step."""
    optimizer = torch.optim.Adam(network.parameters(), lr=RATES.get(name, RATE))
    return [nats for nats, _ in descend(network, optimizer, ids, steps, seed, CLIP)]


def descend(
    network: Recurrent, optimizer: torch.optim.Optimizer, ids: np.ndarray, steps: int, seed: int, clip: float
) -> Iterator[tuple[float, float]]:
    """Nats a byte and the gradient's norm at each step, until the loss is no number. A clip of 0 is none.

    Each piece is read from an empty memory, since the residual network's would grow with all of the text.
    """
    objective = Causal({"kind": "rows", "rows": ROWS, "length": PIECE})
    first = int(np.random.default_rng(seed).integers(0, 10_000))  # seeds differ in what they read, too
    for batch in islice(objective.batches(Stream.from_ids(ids), seed, first), steps):
        loss = objective.loss(network, batch, None)
        optimizer.zero_grad()
        loss.value.backward()
        norm = float(nn.utils.clip_grad_norm_(network.parameters(), clip or math.inf))
        optimizer.step()
        nats = float(loss.value.detach())
        yield nats, norm
        if not math.isfinite(nats):
            return


# ------------------------------------------------------------------------------------------------ gradients


def walk(layer: Layer, x: Tensor, span: int) -> tuple[Tensor, Tensor]:
    """(T, B, I) → memories after each step (T, B, M), and the last `span` Jacobians (span, B, M, M), oldest first."""

    def step(memory: Tensor, x_t: Tensor) -> Tensor:
        return torch.cat(layer.stepwise(x_t.unsqueeze(0), memory.split(layer.width, -1))[1], -1)

    memory, seen = torch.cat(layer.start(x.shape[1]), -1), []
    for x_t in x:
        seen.append(memory)
        memory = step(memory, x_t)
    before = torch.stack(seen)  # (T, B, M)
    flat = (before[-span:].flatten(0, 1), x[-span:].flatten(0, 1))
    matrices = vmap(jacrev(step), chunk_size=CHUNK)(*flat)
    return torch.stack([*seen[1:], memory]), matrices.unflatten(0, (span, -1))


def products(matrices: Tensor) -> Tensor:
    """(n, B, M, M), oldest first → ∂h_t/∂h_{t−1}, ∂h_t/∂h_{t−2}, … as (n, B, M, M)."""
    out = [matrices[-1]]
    for matrix in matrices.flip(0)[1:]:
        out.append(out[-1] @ matrix)
    return torch.stack(out)


def spectral(matrices: Tensor) -> Tensor:
    """Largest singular values of (…, M, N). Scaled first: squares of what is left after 100 steps could underflow."""
    size = matrices.abs().amax((-2, -1), keepdim=True).clamp(min=1e-290)
    unit = matrices / size
    return torch.linalg.eigvalsh(unit @ unit.mT)[..., -1].clamp(min=0).sqrt() * size[..., 0, 0]


def directions(matrices: Tensor) -> float:
    """Stable rank of (B, M, N), geometric mean over the first: 1 where one direction has all that is left."""
    unit = matrices / matrices.abs().amax((-2, -1), keepdim=True).clamp(min=1e-290)
    return float((unit.square().sum((-2, -1)) / spectral(unit) ** 2).log().mean().exp())


@torch.no_grad()
def gradients(network: Recurrent, name: str, ids: Tensor, span: int) -> tuple[dict[str, Tensor], dict[str, float]]:
    """(B, T) bytes → for each curve of this network ‖∂ at t / ∂ at k‖, t the last step, as (span, B) by t − k; and in
    how many directions what is farthest is left.

    For the tanh RNN there is a curve `bound` as well, (γ_h·γ_w)^(t−k): γ_w = ‖W_hh‖, γ_h the largest derivative of tanh
    on the way.
    """
    network = copy.deepcopy(network).double().eval()
    layer = layer_of(network)
    memories, matrices = walk(layer, network.embedding(ids.t()), span)
    if name == ATTENTION:
        whole = {name: shortened(cast(Attending, network), memories, matrices)}
    else:
        whole = {name: products(matrices)}
    if name == HC:
        whole[H] = whole[HC][..., : layer.width, : layer.width]
    norms = {curve: spectral(found).clamp(min=1e-300) for curve, found in whole.items()}
    if name == PLAIN:
        slopes = (1 - memories[-span:] ** 2).amax((0, 2))  # (B,): max ‖Diag(tanh')‖
        gamma = slopes * torch.linalg.matrix_norm(layer.weight_hh, 2)
        norms["bound"] = gamma ** torch.arange(1, span + 1).unsqueeze(1)
    return norms, {curve: directions(found[-1]) for curve, found in whole.items()}


def shortened(network: Attending, memories: Tensor, matrices: Tensor) -> Tensor:
    """∂y_t/∂h_k: straight through attention, and through all later states, Σ_j (∂y_t/∂h_j)(∂h_j/∂h_k)."""
    direct = vmap(jacrev(network.last))(memories.transpose(0, 1))  # (B, D, T, D): each state for itself
    found, out = direct[:, :, -1], []
    for n in range(1, len(matrices) + 1):
        found = direct[:, :, -1 - n] + found @ matrices[-n]
        out.append(found)
    return torch.stack(out)


STROKES = {  # colour and dashes: two ways to tell lines apart
    PLAIN: (VERMILION, "-"),
    LEAKY: (ORANGE, "-"),
    RESIDUAL: (PURPLE, "-"),
    GATED: (GREEN, "-"),
    HC: (BLUE, "-"),
    H: (BLUE, ":"),
    ATTENTION: (SKY, "-"),
    "bound": (GREY, "--"),
}
BOUND = r"bound $(\gamma_h\,\gamma_w)^{t-k}$"


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(13, 9)
    figure.set_layout_engine("constrained", hspace=0.08, wspace=0.04)
    (untrained, trained), (bound, clipping) = figure.subplots(2, 2, height_ratios=(1.35, 1))
    _curves(tables["norms"], untrained, UNTRAINED, "Untrained: how much of a gradient arrives")
    _curves(tables["norms"], trained, TRAINED, "Trained on text: how much of a gradient arrives")
    _bound(tables["bound"], bound)
    _clipping(tables["losses"], clipping)


def _curves(table: Table, axes: Any, weights: str, title: str) -> None:
    far = table.column("t − k", network=PLAIN, weights=weights)
    labels, every = [], [1.0]
    for name, (colour, dash) in STROKES.items():
        middle, low, high = zip(*table.column("norm", network=name, weights=weights), strict=True)
        axes.plot(far, middle, dash, color=colour, linewidth=1.8)
        axes.fill_between(far, low, high, color=colour, alpha=0.18, linewidth=0)
        text = BOUND if name == "bound" else name
        labels.append((middle[-1], text, colour))
        every += [] if name == "bound" else [min(low), max(high)]
    top, bound = 1e6 * max(every), labels[-1][0]
    axes.set(yscale="log", ylim=(min(every) / 10, min(top, 10 * max(bound, *every))), xlim=(1, far[-1]))
    if bound > top:  # it leaves the picture: its name stays at the edge, and says where it goes
        labels[-1] = (top, f"bound: {bound:.0e}", GREY)
    axes.set(xlabel="t − k, steps back", ylabel=r"$\|\partial h_t/\partial h_k\|$")
    axes.set_title(title)
    beside(axes, labels, gap=0.07)


def _bound(table: Table, axes: Any) -> None:
    """The factor a step against ‖W‖, with the one that the bound allows."""
    rows = sorted((row for row in table.rows if row[0] != TRAINED), key=lambda row: row[table.columns.index("‖W‖")][0])
    norms, gammas, steps = ([row[table.columns.index(name)] for row in rows] for name in ("‖W‖", "γ_h·γ_w", "a step"))
    x = [norm[0] for norm in norms]
    labels = []
    for cells, colour, dash, name in (
        (gammas, GREY, "--", r"bound $\gamma_h\,\gamma_w$"),
        (steps, VERMILION, "-", PLAIN),
    ):
        middle, low, high = zip(*cells, strict=True)
        axes.plot(x, middle, dash, marker="o", color=colour, markersize=4, linewidth=1.8)
        axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
        labels.append((middle[-1], name, colour))
    axes.axhline(1, color=INK, linewidth=0.8)
    axes.text(x[0], 1.06, "explodes", fontsize=9, color=INK, va="bottom")
    axes.text(x[-1], 0.94, "vanishes", fontsize=9, color=INK, va="top", ha="right")
    axes.set(xscale="log", yscale="log", xlabel="‖W‖ of an untrained tanh RNN", ylabel="factor a step back")
    axes.set_xticks(x, [f"{norm:.2g}" for norm in x])
    axes.set_xticks([], minor=True)
    ticks = [tick for tick in (0.25, 0.5, 1, 2, 4, 8) if tick >= min(low for _, low, _ in steps) / 2]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.set_title("What the bound allows, and what happens")
    beside(axes, labels, gap=0.12)


def _clipping(table: Table, axes: Any) -> None:
    labels = []
    most = 0.0
    for (name, scale, rate), colour in zip(TAMED, (GREEN, VERMILION), strict=True):
        for clip in dict.fromkeys(table.column("clip")):
            found = table.column("nats", **{"network": name, "‖W‖": scale, "rate": rate, "clip": clip})
            middle, low, high = zip(*found, strict=True)
            steps = range(1, len(middle) + 1)
            dash = "--" if clip == "none" else "-"
            axes.plot(steps, middle, dash, color=colour, linewidth=1.8)
            axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
            labels.append((middle[-1], f"{name},\n{'without' if clip == 'none' else 'clipped'}", colour))
            most = max(most, *high)
    axes.set(yscale="log", xlabel="step", ylabel="nats a byte", xlim=(1, None), ylim=(2, 1.15 * most))
    ticks = [tick for tick in (2, 3, 5, 10, 20, 50, 100) if tick <= most]
    axes.set_yticks(ticks, [f"{tick}" if tick < 100 else "100 or\nno number" for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.set_title(f"SGD at rate {TAMED[0][2]:g} where gradients explode (‖W‖ = {TAMED[0][1]:g})")
    beside(axes, labels, gap=0.13)


STRAIGHT = 0.95  # R² of log norm against distance from which on a fall is called exponential
LITTLE = 0.1  # a gradient that keeps more than this from a quarter of the way on does not fall like that
WHOLE = 0.5  # one that keeps more than this over the whole way does not fall
ROUNDING = 1e-9
GROWS = 1.005  # a step; nearer to 1 it is kept
SLOWER = (LEAKY, RESIDUAL, GATED, HC)
RANGE = "range over seeds"


def judge(tables: Tables) -> list[Part]:
    return [
        _bounded(tables["bound"]),
        _exponential(tables["decay"]),
        _slower(tables["decay"], TRAINED, SLOWER, decides=True),
        _short(tables["kept"], tables["decay"]),
        _tamed(tables["clipping"]),
        _slower(tables["decay"], UNTRAINED, (GATED, HC), decides=False),
        _carousel(tables["decay"], tables["gate"]),
        _learns(tables["decay"]),
        _explodes(tables["bound"]),
        _always(tables["clipping"]),
    ]


def _all(cells: list[Any], holds: Callable[[float], bool]) -> bool | None:
    """True if every seed of every cell holds, False if in some cell none does, None otherwise."""
    both = [(holds(low), holds(high)) for _, low, high in cells]
    if all(low and high for low, high in both):
        return True
    return False if any(not low and not high for low, high in both) else None


def _bounded(table: Table) -> Part:
    cells, rows = table.column("norm / bound, at most"), table.column("weights")
    most = max(high for *_, high in cells)
    broken = [row for row, (*_, high) in zip(rows, cells, strict=True) if high > 1 + ROUNDING]
    said = f"It is broken by {', '.join(broken)}." if broken else "It is never broken."
    return Part(
        "‖∂h_t/∂h_k‖ ≤ (γ_h·γ_w)^(t−k) at every distance.",
        judged(not broken),
        f"{said} The norm is at most {written(most)} of its bound, in {len(rows)} settings of a tanh RNN.",
        "every seed, passage and distance",
    )


def _exponential(table: Table) -> Part:
    factors, fits = (
        [table.cell(name, network=PLAIN, weights=weights) for weights in (UNTRAINED, TRAINED)]
        for name in ("a step", "R²")
    )
    falls, straight = _all(factors, lambda x: x < 1), _all(fits, lambda x: x >= STRAIGHT)
    far = [table.cell("farthest", network=PLAIN, weights=weights)[0] for weights in (UNTRAINED, TRAINED)]
    return Part(
        "Through a tanh RNN it falls exponentially.",
        judged(False if False in (falls, straight) else None if None in (falls, straight) else True),
        f"Each step back multiplies it by {factors[0][0]:.2f} before training and {factors[1][0]:.2f} after; at the "
        f"farthest {far[0]:.0e} and {far[1]:.0e} are left.",
        f"R² of the logarithm against t − k at least {min(low for _, low, _ in fits):.3f}; {RANGE} "
        + " and ".join(f"{low:.2f} to {high:.2f}" for _, low, high in factors),
    )


def _slower(table: Table, weights: str, names: tuple[str, ...], decides: bool) -> Part:
    """Slower in every seed than the plain RNN in any."""
    plain, *others = (table.cell("a step", network=name, weights=weights) for name in (PLAIN, *names))
    verdicts = [True if o[1] > plain[2] else False if o[2] < plain[1] else None for o in others]
    factors = [f"{name} {found[0]:.2f}" for name, found in zip(names, others, strict=True)]
    grows = [name for name, found in zip(names, others, strict=True) if found[1] > GROWS]
    few = [table.cell("directions", network=name, weights=weights)[0] for name in names]
    said = f" Through the {' and the '.join(grows)} it even grows." if grows else ""
    if decides:
        kept = ", ".join(f"{name} {count:.0f}" for name, count in zip(names, few, strict=True))
        said += f" Directions in which it is kept: {kept} (a step counts the best of them)."
    slow = [name for name, verdict in zip(names, verdicts, strict=True) if verdict is not True]
    if slow:
        said += f" Not slower in every seed: {', '.join(slow)}."
    return Part(
        ("After training" if decides else "From the start") + f" it falls slower in other units: {', '.join(names)}.",
        judged(False if False in verdicts else None if None in verdicts else True),
        f"{weights.capitalize()}, a step multiplies it by {', '.join(factors)}, where the tanh RNN has {plain[0]:.2f}."
        + said,
        f"{weights}, {RANGE}: "
        + ", ".join(f"{name} {cell[1]:.2f} to {cell[2]:.2f}" for name, cell in zip(names, others, strict=True)),
        decides,
    )


def _short(table: Table, decay: Table) -> Part:
    kept = [table.cell("kept from there", network=ATTENTION, weights=weights) for weights in (UNTRAINED, TRAINED)]
    plain = table.cell("kept from there", network=PLAIN, weights=TRAINED)
    quarter = table.cell("quarter", network=PLAIN, weights=TRAINED)
    far = decay.cell("farthest", network=ATTENTION, weights=TRAINED)
    return Part(
        "With attention the distance does not matter: every state is one step away.",
        judged(_all(kept, lambda x: x > LITTLE)),
        f"From t − k = {quarter} on it keeps {kept[0][0]:.2g} of its norm untrained and {kept[1][0]:.2g} trained; "
        f"the tanh RNN keeps {plain[0]:.0e}. The norm is small all along, {far[0]:.2g} at the farthest: attention is "
        "shared among all states.",
        f"attention, {RANGE}: " + " and ".join(f"{low:.2g} to {high:.2g}" for _, low, high in kept),
    )


def _verdict_ends(table: Table, case: tuple[str, float, float]) -> tuple[Any, Any]:
    """Nats at the end, (without, with) clipping."""
    rows = [row for row in table.rows if tuple(row[:3]) == case]
    without, clipped = sorted(rows, key=lambda row: row[3] != "none")
    at = table.columns.index("nats at the end")
    return without[at], clipped[at]


def _nats(value: float) -> str:
    return f"{value:.2f} nats" if value < MOST else "no number"


def _tamed(table: Table) -> Part:
    pairs = [(case, *_verdict_ends(table, case)) for case in TAMED]
    verdicts = [True if c[2] < w[1] else False if c[1] >= w[2] else None for _, w, c in pairs]
    said = "; ".join(f"{case[0]} {_nats(c[0])} with, {_nats(w[0])} without" for case, w, c in pairs)
    slower = [(case[0], *_verdict_ends(table, (*case[:2], 0.1))) for case in TAMED]
    still = "; ".join(f"{name} {_nats(c[0])} and {_nats(w[0])}" for name, w, c in slower)
    return Part(
        "Clipping tames gradients that explode: training goes on where without it the loss is worse or no number.",
        judged(False if False in verdicts else None if None in verdicts else True),
        f"With ‖W‖ = {TAMED[0][1]:g} and rate {TAMED[0][2]:g}: {said}. At a tenth of that rate: {still}.",
        f"clipping, {RANGE}: "
        + "; ".join(f"{c[1]:.2f} to {c[2]:.2f} and {_nats(w[1])} to {_nats(w[2])}" for _, w, c in pairs),
    )


def _carousel(table: Table, gate: Table) -> Part:
    """The claim that an LSTM's gradient does not fall at all, with the condition that belongs to it."""
    trained = table.cell("farthest", network=HC, weights=TRAINED)
    through = table.cell("farthest", network=H, weights=TRAINED)
    said = ", ".join(f"{row[2][0]:.3f} at bias {row[0]:g}" for row in gate.rows)
    return Part(
        "An LSTM's gradient does not fall at all.",
        judged(_all([trained], lambda x: x > WHOLE)),
        f"Trained, at the farthest the norm of (h, c) is {trained[0]:.2g}, that from h to h {through[0]:.0e}. What "
        f"keeps it is a forget gate near 1: untrained, a step multiplies it by {said}.",
        f"(h, c), {RANGE}: {trained[1]:.2g} to {trained[2]:.2g}",
        decides=False,
    )


def _learns(table: Table) -> Part:
    """Whoever keeps its gradient has learnt more than the tanh RNN, in every seed; one that has not in any refutes."""
    plain, *others = (table.cell("nats a byte", network=name, weights=TRAINED) for name in (PLAIN, *SLOWER, ATTENTION))
    names = (*SLOWER, ATTENTION)
    verdicts = [True if o[2] < plain[1] else False if o[1] > plain[2] else None for o in others]
    said = ", ".join(f"{name} {found[0]:.2f}" for name, found in zip(names, others, strict=True))
    worse = [name for name, verdict in zip(names, verdicts, strict=True) if verdict is False]
    why = f" Worse in every seed: {' and '.join(worse)}."
    return Part(
        "Whoever keeps the gradient learns more.",
        judged(False if False in verdicts else None if None in verdicts else True),
        f"After the same training the tanh RNN has {plain[0]:.2f} nats a byte; {said}.{why if worse else ''}",
        f"tanh RNN, {RANGE}: {plain[1]:.2f} to {plain[2]:.2f}",
        decides=False,
    )


def _explodes(table: Table) -> Part:
    rows = list(zip(*(table.column(name) for name in ("weights", "γ_h·γ_w", "a step")), strict=True))
    above = [(name, gamma, step) for name, gamma, step in rows if gamma[1] > 1]
    vanish = [(name, gamma, step) for name, gamma, step in above if step[2] < 1]
    verdict = _all([step for *_, step in above], lambda x: x > 1) if above else None
    said = "; ".join(f"{name}: γ_h·γ_w = {gamma[0]:.3g}, a step {step[0]:.2f}" for name, gamma, step in vanish)
    below = [step for _, gamma, step in rows if gamma[2] < 1]
    gone = sum(high < 1 for *_, high in below)
    why = " A bound above 1 allows explosion and does not cause it."
    return Part(
        "Where γ_h·γ_w > 1 the gradient explodes.",
        judged(verdict),
        (f"It vanishes all the same: {said}.{why}" if vanish else "It does in every setting.")
        + f" Where it is below 1 the gradient vanishes in {gone} of {len(below)} settings.",
        f"γ_h·γ_w, {RANGE}: " + ", ".join(f"{g[1]:.3g} to {g[2]:.3g}" for _, g, _ in vanish or above),
        decides=False,
    )


def _always(table: Table) -> Part:
    case = next(tuple(row[:3]) for row in table.rows if row[0] == PLAIN and row[1] > 2)
    without, clipped = _verdict_ends(table, case)
    holds = True if clipped[2] < without[1] else False if clipped[1] > without[2] else None
    why = ". The first unclipped step makes W so large that all units stay at ±1, where nothing explodes any more and "
    why += "the output layer can learn; clipped, what explodes crowds out the rest of the gradient."
    return Part(
        f"The larger ‖W‖, the more clipping helps: with {case[1]:g}, too.",
        judged(holds),
        f"The tanh RNN with ‖W‖ = {case[1]:g} ends at {_nats(clipped[0])} with clipping and at {_nats(without[0])} "
        f"without{why if holds is False else '.'}",
        f"{RANGE}: {clipped[1]:.2f} to {clipped[2]:.2f}, {without[1]:.2f} to {without[2]:.2f}",
        decides=False,
    )


CLAIM = Claim(
    "Through a plain RNN ‖∂h_t/∂h_k‖ stays below (γ_h·γ_w)^(t−k) and falls exponentially with t − k; leaky, residual "
    "and gated units make it fall slower, attention makes the path short, and clipping tames gradients that explode.",
    "Pascanu, Mikolov & Bengio 2013, sections 2 and 3; Hochreiter & Schmidhuber 1997; lecture notes on language models "
    "and RNNs: vanishing and exploding gradients",
)
READ, HELD = 1_000_000, 20_000  # bytes to learn from, and to measure on
WARM = 32  # steps before the first k, so that no state is still near its beginning
SPAN, QUICK_SPAN = 100, 40
TEXTS, QUICK_TEXTS = 8, 4  # held-out passages, for each seed others
STEPS, QUICK_STEPS = 500, 50
TRIED, QUICK_TRIED = 100, 40  # steps with clipping and without


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    corpus = corpus_for(settings.data)
    quick = settings.quick
    span, texts, steps = (QUICK_SPAN, QUICK_TEXTS, QUICK_STEPS) if quick else (SPAN, TEXTS, STEPS)
    learnt = bytes_of(corpus, "train", READ)
    held = bytes_of(corpus, "valid" if "valid" in corpus.splits else "test", HELD)
    enough(len(held), texts * (span + WARM), "bytes held out", corpus)
    tasks: dict[tuple[Any, ...], Task] = {}
    for seed in settings.seeds:
        ids = passages(held, texts, span + WARM, seed)
        for name in NETWORKS:
            tasks[seed, name] = (_before_and_after, (name, learnt, ids, span, steps, seed))
        tasks[seed, "scales"] = (_by_scale, (ids, span, seed))
        tasks[seed, "biases"] = (_by_bias, (ids, span, seed))
        for case in CASES:
            for clip in (0.0, CLIP):
                tasks[seed, case, clip] = (_try, (case, clip, learnt, QUICK_TRIED if quick else TRIED, seed))
    seen = spread(tasks, progress)

    norms: dict[tuple[str, str], list[np.ndarray]] = {}  # (curve, weights) → for each seed by distance
    directions: dict[tuple[str, str], list[float]] = {}  # that are left at the farthest
    bounded: dict[str, list[tuple[float, ...]]] = {}
    nats: dict[str, list[float]] = {}
    kept: dict[float, list[float]] = {}
    tried: dict[tuple[Any, ...], list[list[tuple[float, float]]]] = {}
    for seed in settings.seeds:
        for name in NETWORKS:
            reached, by_weights = seen[seed, name]
            nats.setdefault(name, []).append(reached)
            for weights, (logs, ranks, against) in by_weights.items():
                for curve, found in logs.items():
                    norms.setdefault((curve, weights), []).append(found)
                for curve, rank in ranks.items():
                    directions.setdefault((curve, weights), []).append(rank)
                if against:
                    bounded.setdefault(weights, []).append(against)
        for scale, against in seen[seed, "scales"].items():
            bounded.setdefault(f"untrained, ‖W‖ = {scale:g}", []).append(against)
        for bias, factor in seen[seed, "biases"].items():
            kept.setdefault(bias, []).append(factor)
        for case in CASES:
            for clip in (0.0, CLIP):
                tried.setdefault((*case, clip), []).append(seen[seed, case, clip])
    tables = {
        "decay": _decay(norms, directions, nats),
        "bound": Table(
            f"The tanh RNN against its bound, t − k up to {span}",
            ("weights", "‖W‖", "γ_h·γ_w", "a step", "norm / bound, at most"),
            tuple((name, *map(over_seeds, zip(*rows, strict=True))) for name, rows in bounded.items()),
        ),
        "gate": Table(
            "An untrained LSTM, (h, c), by the bias of its forget gate",
            ("bias", "σ(bias)", "a step"),
            tuple((bias, 1 / (1 + math.exp(-bias)), over_seeds(rows)) for bias, rows in kept.items()),
        ),
        "clipping": Table(
            f"SGD with clipping and without; {MOST:g} nats: that or more, or no number",
            ("network", "‖W‖", "rate", "clip", "nats at the end", "largest gradient"),
            tuple((*case[:3], case[3] or "none", *_ended(runs)) for case, runs in tried.items()),
        ),
        "kept": _ends(norms, span),
        "norms": _by_distance(norms, span),
        "losses": _losses(tried),
    }
    return tables, {
        "data": f"{corpus.name} ({corpus.source}): {len(learnt):,} bytes to learn from, {texts} passages of "
        f"{span + WARM} held-out bytes a seed",
        "networks": f"one layer of {WIDTH} on bytes, m = {EMBEDDING}, leak {LEAK}, weights from ±1/√{WIDTH}; attention "
        "is one head over the states of a tanh RNN, y_t = h_t + Σ_k a_tk V h_k, of which ∂y_t/∂h_k is measured",
        "norms": "largest singular value of the whole product of Jacobians in double precision; geometric mean over "
        "passages, then median and range over seeds",
        "training": f"{steps} steps of {ROWS} pieces of {PIECE} bytes, Adam at {RATE} (residual: "
        f"{RATES[RESIDUAL]}), clipped at {CLIP:g}; nats a byte are those of the last 20 steps",
        "directions": "Σσ² / max σ² of the singular values σ at the farthest, geometric mean over passages: 1 where "
        "one direction has all that is left",
    }


def passages(ids: np.ndarray, count: int, length: int, seed: int) -> torch.Tensor:
    starts = np.random.default_rng(seed).integers(0, len(ids) - length + 1, count)
    return torch.from_numpy(np.stack([ids[at : at + length] for at in starts]).astype(np.int64))


def _fit(logs: np.ndarray) -> tuple[float, float]:
    """What is multiplied by at each step, and the R² of that."""
    far = np.arange(1, len(logs) + 1)
    slope, offset = np.polyfit(far, logs, 1)
    total = ((logs - logs.mean()) ** 2).sum()
    left = ((logs - offset - slope * far) ** 2).sum()
    return math.exp(slope), float(1 - left / total) if total > 1e-12 else 1.0


def _against(network: Any, found: dict[str, torch.Tensor]) -> tuple[float, ...]:
    """‖W‖, γ_h·γ_w, the factor a step, and the largest norm in units of its bound, over passages and distances."""
    norm = float(torch.linalg.matrix_norm(layer_of(network).weight_hh.detach().double(), 2))
    gamma, ratio = found["bound"][0].max(), (found[PLAIN].log() - found["bound"].log()).max().exp()
    return norm, float(gamma), _fit(found[PLAIN].log().mean(1).numpy())[0], float(ratio)


def _before_and_after(name: str, learnt: np.ndarray, ids: torch.Tensor, span: int, steps: int, seed: int) -> Any:
    """Nats a byte that training reached; and untrained and trained log norms by distance, directions, and the bound."""
    network, seen, reached = make(name, seed), {}, math.nan
    for weights in (UNTRAINED, TRAINED):
        if weights == TRAINED:
            reached = float(np.mean(train(network, name, learnt, steps, seed)[-20:]))
        found, ranks = gradients(network, name, ids, span)
        logs = {curve: by_text.log().mean(1).numpy() for curve, by_text in found.items()}
        seen[weights] = (logs, ranks, _against(network, found) if name == PLAIN else None)
    return reached, seen


def _by_scale(ids: torch.Tensor, span: int, seed: int) -> dict[float, tuple[float, ...]]:
    networks = {scale: scaled(make(PLAIN, seed), scale) for scale in SCALES}
    return {scale: _against(network, gradients(network, PLAIN, ids, span)[0]) for scale, network in networks.items()}


def _by_bias(ids: torch.Tensor, span: int, seed: int) -> dict[float, float]:
    networks = {bias: remembering(make(HC, seed), bias) for bias in BIASES}
    norms = {bias: gradients(network, HC, ids, span)[0][HC] for bias, network in networks.items()}
    return {bias: _fit(found.log().mean(1).numpy())[0] for bias, found in norms.items()}


def _try(case: tuple[str, float, float], clip: float, ids: np.ndarray, steps: int, seed: int) -> Any:
    name, scale, rate = case
    network = scaled(make(name, seed), scale)
    optimizer = torch.optim.SGD(network.parameters(), lr=rate)
    return list(descend(network, optimizer, ids, steps, seed, clip))


def _capped(nats: float) -> float:
    return min(nats, MOST) if math.isfinite(nats) else MOST


def _ended(runs: Sequence[Sequence[tuple[float, float]]]) -> tuple[Any, Any]:
    """Nats over the last tenth (a run that broke off broke at no number), and the largest norm that was a number."""
    ends = [_capped(float(np.mean([nats for nats, _ in run[-len(run) // 10 :]]))) for run in runs]
    return over_seeds(ends), over_seeds([max((n for _, n in run if math.isfinite(n)), default=0.0) for run in runs])


def _decay(
    norms: dict[tuple[str, str], list[np.ndarray]],
    ranks: dict[tuple[str, str], list[float]],
    nats: dict[str, list[float]],
) -> Table:
    rows = []
    for weights in (UNTRAINED, TRAINED):
        for curve in CURVES:
            logs = norms[curve, weights]
            last = [math.exp(seed[-1]) for seed in logs]
            fits = zip(*map(_fit, logs), strict=True)
            reached = over_seeds(nats[HC if curve == H else curve]) if weights == TRAINED else None
            rows.append((curve, weights, *map(over_seeds, (*fits, last, ranks[curve, weights])), reached))
    return Table(
        f"How ‖∂h_t/∂h_k‖ falls, t − k = 1 to {len(logs[0])}",
        ("network", "weights", "a step", "R²", "farthest", "directions", "nats a byte"),
        tuple(rows),
    )


def _ends(norms: dict[tuple[str, str], list[np.ndarray]], span: int) -> Table:
    """What is kept on the way: from the first step on, and from a quarter of the way on, when near paths are done."""
    rows = []
    for (curve, weights), logs in norms.items():
        kept = ([math.exp(seed[-1] - seed[at]) for seed in logs] for at in (0, span // 4 - 1))
        rows.append((curve, weights, span // 4, *map(over_seeds, kept)))
    columns = ("network", "weights", "quarter", "kept", "kept from there")
    return Table("What is kept of the norm up to the farthest", columns, tuple(rows), detailed=True)


def _by_distance(norms: dict[tuple[str, str], list[np.ndarray]], span: int) -> Table:
    rows = []
    for (curve, weights), logs in norms.items():
        for at in range(span):
            rows.append((curve, weights, at + 1, over_seeds([math.exp(seed[at]) for seed in logs])))
    return Table("‖∂h_t/∂h_k‖ by distance", ("network", "weights", "t − k", "norm"), tuple(rows), detailed=True)


def _losses(tried: dict[tuple[Any, ...], list[list[tuple[float, float]]]]) -> Table:
    rows = []
    for case, runs in tried.items():
        for at in range(max(map(len, runs))):
            nats = [_capped(run[at][0]) if at < len(run) else MOST for run in runs]
            rows.append((*case[:3], case[3] or "none", at + 1, over_seeds(nats)))
    return Table(
        "Training with clipping and without, step by step",
        ("network", "‖W‖", "rate", "clip", "step", "nats"),
        tuple(rows),
        detailed=True,
    )
