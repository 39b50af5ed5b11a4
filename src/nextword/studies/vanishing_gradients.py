"""How far do gradients reach back in time? ‖∂h_t/∂h_k‖ by distance t − k, untrained and after some training.

    ∂h_t/∂h_k = Π_i Diag(tanh'_i) W        ‖∂h_t/∂h_k‖ ≤ (γ_h·γ_w)^(t−k)        γ_h = max ‖Diag(tanh')‖, γ_w = ‖W‖

Claim: in a plain RNN the norm stays below this bound and falls exponentially with the distance; leaky, residual and
gated units make it fall more slowly, attention makes the path short, and clipping tames exploding gradients
(Pascanu, Mikolov & Bengio 2013; Hochreiter & Schmidhuber 1997).

Measured exactly, through each network:

    h_t = step(x_t, h_{t−1})        J_t = ∂h_t/∂h_{t−1}        ∂h_t/∂h_k = J_t J_{t−1} … J_{k+1}

Each J is the full matrix, by automatic differentiation of the layer's own step in double precision; the norm is the
largest singular value of the product. An LSTM's state is (h, c), so its J is the matrix of both, and the path from h
to h is a block of the product: all effects of h_k on h_t, including those through c.

Verdict: the bound must never be broken; the norm of a tanh RNN must fall with R² ≥ 0.95 on a logarithmic scale;
after training the other units must fall more slowly in every seed; with attention more than 10 % of the norm must be
left from a quarter of the distance on; and clipping must give a lower loss where gradients explode. Whether the
LSTM's gradient does not fall at all, whether gradients help learning, and whether γ_h·γ_w > 1 means explosion are
side results.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import jacrev, vmap

from nextword.batching.token_stream import Stream
from nextword.core.types import Inputs, State, Vocabulary
from nextword.layers.recurrent import CellState, RecurrentLayer
from nextword.models.rnn import GRU, LSTM, RNN, ElmanConfig, RecurrentConfig, RecurrentNetwork
from nextword.objectives.causal import CausalObjective
from nextword.studies import _figures as plot
from nextword.studies._experiment import Job, byte_ids, describe_corpus, open_text, require, run_parallel
from nextword.studies._statistics import all_of, fit_line, format_cell, median_and_range, ranges_below
from nextword.studies._study import Claim, Measured, Part, Progress, Settings, Table, Tables
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer

CLAIM = Claim(
    "In a plain RNN ‖∂h_t/∂h_k‖ stays below (γ_h·γ_w)^(t−k) and falls exponentially with t − k; leaky, residual and "
    "gated units make it fall more slowly, attention makes the path short, and clipping tames exploding gradients.",
    "Pascanu, Mikolov & Bengio 2013, sections 2 and 3; Hochreiter & Schmidhuber 1997; lecture notes on language models "
    "and RNNs: vanishing and exploding gradients",
)
EMBEDDING, WIDTH, LEAK = 32, 64, 0.9
ROWS, CHUNK = 16, 64  # training sequences, and bytes in each
RATE, CLIP = 0.01, 1.0
TRAIN_BYTES, HELD_BYTES = 1_000_000, 20_000
WARMUP = 32  # steps before the first k, so that no state is near its initial value
SPAN, QUICK_SPAN = 100, 40
PASSAGES, QUICK_PASSAGES = 8, 4  # held-out passages, others for each seed
STEPS, QUICK_STEPS = 500, 50
CLIP_STEPS, QUICK_CLIP_STEPS = 100, 40
JACOBIANS = 64  # at once: some tens of MB
MAX_NATS = 100.0  # a larger loss, or one that is not a number, is stored as this

PLAIN, RELU, LEAKY, RESIDUAL, ATTENTION = "tanh RNN", "ReLU RNN", "leaky RNN", "residual RNN", "attention"
GATED, H, HC, BOUND = "GRU", "LSTM (h to h)", "LSTM (h, c)", "bound"
NETWORKS = (PLAIN, LEAKY, RESIDUAL, GATED, HC, ATTENTION)
CURVES = (PLAIN, LEAKY, RESIDUAL, GATED, H, HC, ATTENTION)  # the LSTM has two curves
SLOWER = (LEAKY, RESIDUAL, GATED, HC)
UNTRAINED, TRAINED = "untrained", "trained"
RATES = {RESIDUAL: 0.001}  # its states are sums, ten times as large
SCALES = (0.5, 0.9, 2.0, 4.0, 8.0)  # ‖W‖ of tanh RNNs
BIASES = (0.0, 2.0, 5.0)  # of an LSTM's forget gate
DECIDING = ((RELU, 2.0, 1.0), (PLAIN, 2.0, 1.0))  # network, ‖W‖, learning rate: exploding cases
CASES = (*DECIDING, (RELU, 2.0, 0.1), (PLAIN, 2.0, 0.1), (PLAIN, 8.0, 1.0))

FACTOR, FARTHEST, DIRECTIONS, NATS = "factor per step", "norm at the farthest", "directions", "nats per byte"
GAMMA, SHARE = "γ_h·γ_w", "norm / bound, at most"
KEPT = "kept from a quarter of the distance"
FINAL = "final nats"

EXPONENTIAL = 0.95  # R² of the log norm against the distance
LITTLE = 0.1  # share of the norm kept from a quarter of the distance on
WHOLE = 0.5  # share of the norm kept over the whole distance
ROUNDING = 1e-9
GROWS = 1.005  # factor per step; closer to 1 counts as constant
OVER_SEEDS = "range over seeds"


# ------------------------------------------------------------------------------------------------ networks


class ResidualLayer(RecurrentLayer):
    """h_t = h_{t−1} + tanh(W x_t + U h_{t−1} + b), as in the blocks of a ResNet."""

    def forward(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        return self.stepwise(x, state)

    def stepwise(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        outputs, weights = [], self.weights()
        for x_t in x:
            state = (state[0] + self.kind.cell(x_t, state, weights)[0],)
            outputs.append(state[0])
        return torch.stack(outputs), state


class ResidualRNN(RNN):
    def build_layer(self, inputs: int) -> RecurrentLayer:
        return ResidualLayer("tanh", inputs, self.config.width)


class AttentionRNN(RNN):
    """A tanh RNN whose output at t attends to all states up to t: y_t = h_t + Σ_k a_tk V h_k."""

    def __init__(self, config: RecurrentConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.query, self.key, self.value = (nn.Linear(config.width, config.width, bias=False) for _ in range(3))

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        layers, state = super().hidden(inputs, state)
        h = layers[-1]  # (B, T, D)
        q, k, v = self.query(h), self.key(h), self.value(h)
        return [*layers, h + F.scaled_dot_product_attention(q, k, v, is_causal=True)], state

    def last_output(self, h: Tensor) -> Tensor:
        """The output at the last of the states (T, D): (D,)."""
        scores = self.key(h) @ self.query(h[-1]) / h.shape[-1] ** 0.5
        return h[-1] + torch.softmax(scores, 0) @ self.value(h)


CLASSES: dict[str, type[RecurrentNetwork]] = {GATED: GRU, HC: LSTM, RESIDUAL: ResidualRNN, ATTENTION: AttentionRNN}


def make_network(name: str, seed: int) -> RecurrentNetwork:
    """A network on bytes with one recurrent layer."""
    torch.manual_seed(seed)
    words = vocabulary(train_tokenizer({"kind": "bytes"}, ()))
    leak, activation = (LEAK if name == LEAKY else 0.0), ("relu" if name == RELU else "tanh")
    config = ElmanConfig(width=WIDTH, embedding=EMBEDDING, leak=leak, activation=activation)
    return CLASSES.get(name, RNN)(config, words)


def recurrent_layer(network: RecurrentNetwork) -> RecurrentLayer:
    return cast(RecurrentLayer, network.layers[0])


@torch.no_grad()
def set_norm(network: RecurrentNetwork, norm: float) -> RecurrentNetwork:
    """Scale W_hh to this spectral norm."""
    weight = recurrent_layer(network).weight_hh
    weight.mul_(norm / torch.linalg.matrix_norm(weight, 2))
    return network


@torch.no_grad()
def raise_forget_bias(network: RecurrentNetwork, bias: float) -> RecurrentNetwork:
    """Add to the bias of an LSTM's forget gate: about σ(bias) of c is kept per step."""
    recurrent_layer(network).bias_ih[WIDTH : 2 * WIDTH] += bias
    return network


def train(
    network: RecurrentNetwork, optimizer: torch.optim.Optimizer, ids: np.ndarray, steps: int, seed: int, clip: float
) -> Iterator[tuple[float, float]]:
    """Nats per byte and gradient norm at each step, until the loss is not finite. A clip of 0 means none.

    Every chunk starts with an empty state, since the residual network's state would grow with the whole text.
    """
    objective = CausalObjective({"kind": "rows", "rows": ROWS, "length": CHUNK})
    first = int(np.random.default_rng(seed).integers(0, 10_000))  # seeds also differ in what they read
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


# ------------------------------------------------------------------------------------------------ Jacobians


def compute_jacobians(layer: RecurrentLayer, x: Tensor, span: int) -> tuple[Tensor, Tensor]:
    """(T, B, I) → states after each step (T, B, M), and the last `span` Jacobians (span, B, M, M), oldest first."""

    def step(state: Tensor, x_t: Tensor) -> Tensor:
        return torch.cat(layer.stepwise(x_t.unsqueeze(0), state.split(layer.width, -1))[1], -1)

    state, before = torch.cat(layer.start(x.shape[1]), -1), []
    for x_t in x:
        before.append(state)
        state = step(state, x_t)
    flat = (torch.stack(before[-span:]).flatten(0, 1), x[-span:].flatten(0, 1))
    matrices = vmap(jacrev(step), chunk_size=JACOBIANS)(*flat)
    return torch.stack([*before[1:], state]), matrices.unflatten(0, (span, -1))


def accumulate(matrices: Tensor) -> Tensor:
    """(n, B, M, M), oldest first → ∂h_t/∂h_{t−1}, ∂h_t/∂h_{t−2}, … as (n, B, M, M)."""
    products = [matrices[-1]]
    for matrix in matrices.flip(0)[1:]:
        products.append(products[-1] @ matrix)
    return torch.stack(products)


def accumulate_attention(network: AttentionRNN, states: Tensor, matrices: Tensor) -> Tensor:
    """∂y_t/∂h_k: directly through attention, and through all later states, Σ_j (∂y_t/∂h_j)(∂h_j/∂h_k)."""
    direct = vmap(jacrev(network.last_output))(states.transpose(0, 1))  # (B, D, T, D), each state separately
    product, products = direct[:, :, -1], []
    for n in range(1, len(matrices) + 1):
        product = direct[:, :, -1 - n] + product @ matrices[-n]
        products.append(product)
    return torch.stack(products)


def spectral_norms(matrices: Tensor) -> Tensor:
    """Largest singular values of (…, M, N), scaled first because squares could underflow after 100 steps."""
    size = matrices.abs().amax((-2, -1), keepdim=True).clamp(min=1e-290)
    unit = matrices / size
    return torch.linalg.eigvalsh(unit @ unit.mT)[..., -1].clamp(min=0).sqrt() * size[..., 0, 0]


def stable_rank(matrices: Tensor) -> float:
    """Σσ² / max σ² of (B, M, N), geometric mean over B: 1 if a single direction is left."""
    unit = matrices / matrices.abs().amax((-2, -1), keepdim=True).clamp(min=1e-290)
    return float((unit.square().sum((-2, -1)) / spectral_norms(unit) ** 2).log().mean().exp())


@torch.no_grad()
def gradient_norms(
    network: RecurrentNetwork, name: str, ids: Tensor, span: int
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """(B, T) bytes → norms (span, B) by t − k for each curve of this network, t being the last step; stable ranks.

    The tanh RNN also has a curve for its bound (γ_h·γ_w)^(t−k): γ_w = ‖W_hh‖, γ_h the largest tanh' on the way.
    """
    network = copy.deepcopy(network).double().eval()
    layer = recurrent_layer(network)
    states, matrices = compute_jacobians(layer, network.embedding(ids.t()), span)
    if name == ATTENTION:
        products = {name: accumulate_attention(cast(AttentionRNN, network), states, matrices)}
    else:
        products = {name: accumulate(matrices)}
    if name == HC:
        products[H] = products[HC][..., : layer.width, : layer.width]
    norms = {curve: spectral_norms(product).clamp(min=1e-300) for curve, product in products.items()}
    if name == PLAIN:
        slopes = (1 - states[-span:] ** 2).amax((0, 2))  # (B,): max ‖Diag(tanh')‖
        gamma = slopes * torch.linalg.matrix_norm(layer.weight_hh, 2)
        norms[BOUND] = gamma ** torch.arange(1, span + 1).unsqueeze(1)
    return norms, {curve: stable_rank(product[-1]) for curve, product in products.items()}


# ------------------------------------------------------------------------------------------------ measure


def measure(settings: Settings, progress: Progress) -> Measured:
    corpus, quick, seeds = open_text(settings.data), settings.quick, settings.seeds
    span, passages, steps = (QUICK_SPAN, QUICK_PASSAGES, QUICK_STEPS) if quick else (SPAN, PASSAGES, STEPS)
    clip_steps = QUICK_CLIP_STEPS if quick else CLIP_STEPS
    text = byte_ids(corpus, "train", TRAIN_BYTES)
    held = byte_ids(corpus, "valid" if "valid" in corpus.splits else "test", HELD_BYTES)
    require(len(held), passages * (span + WARMUP), "held-out bytes", corpus)
    jobs: dict[tuple[Any, ...], Job] = {}
    for seed in seeds:
        ids = draw_passages(held, passages, span + WARMUP, seed)
        for name in NETWORKS:
            jobs[seed, name] = (_run_network, (name, text, ids, span, steps, seed))
        jobs[seed, "scales"] = (_run_scales, (ids, span, seed))
        jobs[seed, "biases"] = (_run_biases, (ids, span, seed))
        for case in CASES:
            for clip in (0.0, CLIP):
                jobs[seed, case, clip] = (_run_clipping, (case, clip, text, clip_steps, seed))
    results = run_parallel(jobs, progress)
    norms: Logs = {}
    ranks: dict[tuple[str, str], list[float]] = {}
    bounds: dict[str, list[tuple[float, ...]]] = {}
    for seed in seeds:
        for name in NETWORKS:
            for weights, (logs, by_curve, bound) in results[seed, name][1].items():
                for curve, values in logs.items():
                    norms.setdefault((curve, weights), []).append(values)
                for curve, rank in by_curve.items():
                    ranks.setdefault((curve, weights), []).append(rank)
                if bound:
                    bounds.setdefault(weights, []).append(bound)
        for scale, bound in results[seed, "scales"].items():
            bounds.setdefault(f"untrained, ‖W‖ = {scale:g}", []).append(bound)
    nats = {name: [results[seed, name][0] for seed in seeds] for name in NETWORKS}
    factors = {bias: [results[seed, "biases"][bias] for seed in seeds] for bias in BIASES}
    losses = {(*case, clip): [results[s, case, clip] for s in seeds] for case in CASES for clip in (0.0, CLIP)}
    return {
        "decay": _decay(norms, ranks, nats),
        "bound": Table(
            f"The tanh RNN and its bound, t − k up to {span}",
            ("weights", "‖W‖", GAMMA, FACTOR, SHARE),
            tuple((name, *map(median_and_range, zip(*rows, strict=True))) for name, rows in bounds.items()),
        ),
        "gate": Table(
            "An untrained LSTM, (h, c), by the bias of its forget gate",
            ("bias", "σ(bias)", FACTOR),
            tuple((bias, 1 / (1 + math.exp(-bias)), median_and_range(rows)) for bias, rows in factors.items()),
        ),
        "clipping": Table(
            f"SGD with and without clipping; {MAX_NATS:g} nats means this or more, or not a number",
            ("network", "‖W‖", "learning rate", "clip", FINAL, "largest gradient"),
            tuple((*case[:3], case[3] or "none", *_final(runs)) for case, runs in losses.items()),
        ),
        "kept": _kept(norms, span),
        "norms": _by_distance(norms, span),
        "losses": _losses(losses),
    }, {
        "data": f"{describe_corpus(corpus)}: {len(text):,} training bytes, {passages} passages of {span + WARMUP} "
        "held-out bytes per seed",
        "networks": f"one layer of {WIDTH} on bytes, m = {EMBEDDING}, leak {LEAK}, weights from ±1/√{WIDTH}; attention "
        "is one head over the states of a tanh RNN, y_t = h_t + Σ_k a_tk V h_k, and ∂y_t/∂h_k is measured",
        "norms": "largest singular value of the product of full Jacobians in double precision; geometric mean over "
        "passages, then median and range over seeds",
        "training": f"{steps} steps of {ROWS} chunks of {CHUNK} bytes, Adam at {RATE} (residual: {RATES[RESIDUAL]}), "
        f"gradient clipping at {CLIP:g}; nats per byte are means of the last 20 steps",
        "directions": "stable rank Σσ² / max σ² at the farthest distance, geometric mean over passages",
    }


Logs = dict[tuple[str, str], list[np.ndarray]]  # (curve, weights) → for each seed, log norms by distance


def draw_passages(ids: np.ndarray, count: int, length: int, seed: int) -> Tensor:
    starts = np.random.default_rng(seed).integers(0, len(ids) - length + 1, count)
    return torch.from_numpy(np.stack([ids[start : start + length] for start in starts]).astype(np.int64))


def _fit_factor(logs: np.ndarray) -> tuple[float, float]:
    """Factor per step, and the R² of the exponential fit."""
    slope, r2 = fit_line(np.arange(1, len(logs) + 1), logs)
    return math.exp(slope), r2


def _compare_with_bound(network: RecurrentNetwork, norms: dict[str, Tensor]) -> tuple[float, ...]:
    """‖W‖, γ_h·γ_w, the factor per step, and the largest ratio of norm and bound."""
    norm = float(torch.linalg.matrix_norm(recurrent_layer(network).weight_hh.detach().double(), 2))
    gamma, ratio = norms[BOUND][0].max(), (norms[PLAIN].log() - norms[BOUND].log()).max().exp()
    return norm, float(gamma), _fit_factor(norms[PLAIN].log().mean(1).numpy())[0], float(ratio)


def _run_network(name: str, text: np.ndarray, ids: Tensor, span: int, steps: int, seed: int) -> Any:
    """Nats per byte after training; untrained and trained: log norms by distance, ranks, and the bound."""
    network, results, nats = make_network(name, seed), {}, math.nan
    for weights in (UNTRAINED, TRAINED):
        if weights == TRAINED:
            optimizer = torch.optim.Adam(network.parameters(), lr=RATES.get(name, RATE))
            nats = float(np.mean([loss for loss, _ in train(network, optimizer, text, steps, seed, CLIP)][-20:]))
        norms, ranks = gradient_norms(network, name, ids, span)
        logs = {curve: by_passage.log().mean(1).numpy() for curve, by_passage in norms.items()}
        results[weights] = (logs, ranks, _compare_with_bound(network, norms) if name == PLAIN else None)
    return nats, results


def _run_scales(ids: Tensor, span: int, seed: int) -> dict[float, tuple[float, ...]]:
    networks = {scale: set_norm(make_network(PLAIN, seed), scale) for scale in SCALES}
    return {s: _compare_with_bound(net, gradient_norms(net, PLAIN, ids, span)[0]) for s, net in networks.items()}


def _run_biases(ids: Tensor, span: int, seed: int) -> dict[float, float]:
    networks = {bias: raise_forget_bias(make_network(HC, seed), bias) for bias in BIASES}
    norms = {bias: gradient_norms(network, HC, ids, span)[0][HC] for bias, network in networks.items()}
    return {bias: _fit_factor(norm.log().mean(1).numpy())[0] for bias, norm in norms.items()}


def _run_clipping(case: tuple[str, float, float], clip: float, ids: np.ndarray, steps: int, seed: int) -> Any:
    name, scale, rate = case
    network = set_norm(make_network(name, seed), scale)
    return list(train(network, torch.optim.SGD(network.parameters(), lr=rate), ids, steps, seed, clip))


def _cap(nats: float) -> float:
    return min(nats, MAX_NATS) if math.isfinite(nats) else MAX_NATS


def _final(runs: Sequence[Sequence[tuple[float, float]]]) -> tuple[Any, Any]:
    """Nats over the last tenth (a run that stopped early ended in no number), and the largest finite gradient."""
    finals = [_cap(float(np.mean([nats for nats, _ in run[-len(run) // 10 :]]))) for run in runs]
    largest = [max((norm for _, norm in run if math.isfinite(norm)), default=0.0) for run in runs]
    return median_and_range(finals), median_and_range(largest)


def _decay(norms: Logs, ranks: dict[tuple[str, str], list[float]], nats: dict[str, list[float]]) -> Table:
    rows = []
    for weights in (UNTRAINED, TRAINED):
        for curve in CURVES:
            logs = norms[curve, weights]
            fits = zip(*map(_fit_factor, logs), strict=True)
            last = [math.exp(by_distance[-1]) for by_distance in logs]
            loss = median_and_range(nats[HC if curve == H else curve]) if weights == TRAINED else None
            rows.append((curve, weights, *map(median_and_range, (*fits, last, ranks[curve, weights])), loss))
    columns = ("network", "weights", FACTOR, "R²", FARTHEST, DIRECTIONS, NATS)
    return Table(f"Decay of ‖∂h_t/∂h_k‖, t − k = 1 to {len(logs[0])}", columns, rows)


def _kept(norms: Logs, span: int) -> Table:
    """What is left of the norm at the farthest: since the first step, and since a quarter of the distance."""
    rows = []
    for (curve, weights), logs in norms.items():
        kept = (
            [math.exp(by_distance[-1] - by_distance[index]) for by_distance in logs] for index in (0, span // 4 - 1)
        )
        rows.append((curve, weights, span // 4, *map(median_and_range, kept)))
    columns = ("network", "weights", "quarter", "kept", KEPT)
    return Table("Share of the norm kept to the farthest distance", columns, rows, detailed=True)


def _by_distance(norms: Logs, span: int) -> Table:
    rows = [
        (curve, weights, index + 1, median_and_range([math.exp(by_distance[index]) for by_distance in logs]))
        for (curve, weights), logs in norms.items()
        for index in range(span)
    ]
    return Table("‖∂h_t/∂h_k‖ by distance", ("network", "weights", "t − k", "norm"), rows, detailed=True)


def _losses(losses: dict[tuple[Any, ...], list[list[tuple[float, float]]]]) -> Table:
    rows = [
        (*case[:3], case[3] or "none", step + 1,
         median_and_range([_cap(run[step][0]) if step < len(run) else MAX_NATS for run in runs]))
        for case, runs in losses.items()
        for step in range(max(map(len, runs)))
    ]  # fmt: skip
    columns = ("network", "‖W‖", "learning rate", "clip", "step", "nats")
    return Table("Training with and without clipping, step by step", columns, rows, detailed=True)


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    return [
        _is_bounded(tables["bound"]),
        _falls_exponentially(tables["decay"]),
        _falls_more_slowly(tables["decay"], TRAINED, SLOWER, decides=True),
        _attention_is_short(tables["kept"], tables["decay"]),
        _clipping_tames(tables["clipping"]),
        _falls_more_slowly(tables["decay"], UNTRAINED, (GATED, HC), decides=False),
        _lstm_keeps_all(tables["decay"], tables["gate"]),
        _gradient_helps(tables["decay"]),
        _bound_means_explosion(tables["bound"]),
        _clipping_always_helps(tables["clipping"]),
    ]


def _every(cells: list[Any], test: Callable[[float], bool]) -> bool | None:
    """True if every seed of every cell passes, False if all seeds of some cell fail, else None."""
    ends = [(test(low), test(high)) for _, low, high in cells]
    if all(low and high for low, high in ends):
        return True
    return False if any(not low and not high for low, high in ends) else None


def _is_bounded(table: Table) -> Part:
    cells, rows = table.column(SHARE), table.column("weights")
    largest = max(high for *_, high in cells)
    broken = [row for row, (*_, high) in zip(rows, cells, strict=True) if high > 1 + ROUNDING]
    return Part(
        "‖∂h_t/∂h_k‖ ≤ (γ_h·γ_w)^(t−k) at every distance.",
        not broken,
        (f"The bound is broken by {', '.join(broken)}." if broken else "The bound is never broken.")
        + f" The norm is at most {format_cell(largest)} of it, in {len(rows)} settings of a tanh RNN.",
        "every seed, passage and distance",
    )


def _falls_exponentially(table: Table) -> Part:
    factors, fits, far = (
        [table.cell(column, network=PLAIN, weights=weights) for weights in (UNTRAINED, TRAINED)]
        for column in (FACTOR, "R²", FARTHEST)
    )
    return Part(
        "In a tanh RNN the norm falls exponentially.",
        all_of([_every(factors, lambda x: x < 1), _every(fits, lambda x: x >= EXPONENTIAL)]),
        f"Each step back multiplies it by {factors[0][0]:.2f} before training and {factors[1][0]:.2f} after; at the "
        f"farthest {far[0][0]:.0e} and {far[1][0]:.0e} are left.",
        f"R² of the logarithm against t − k at least {min(low for _, low, _ in fits):.3f}; {OVER_SEEDS} "
        + " and ".join(f"{low:.2f} to {high:.2f}" for _, low, high in factors),
    )


def _falls_more_slowly(table: Table, weights: str, names: tuple[str, ...], decides: bool) -> Part:
    """More slowly in every seed than the plain RNN in any."""
    plain, *cells = (table.cell(FACTOR, network=name, weights=weights) for name in (PLAIN, *names))
    results = [ranges_below(plain, cell) for cell in cells]
    notes = []
    growing = [name for name, cell in zip(names, cells, strict=True) if cell[1] > GROWS]
    if growing:
        notes.append(f"In the {' and the '.join(growing)} it even grows.")
    if decides:
        ranks = [(name, table.cell(DIRECTIONS, network=name, weights=weights)[0]) for name in names]
        kept = ", ".join(f"{name} {rank:.0f}" for name, rank in ranks)
        notes.append(f"Number of directions in which it is kept: {kept} (the factor is that of the best direction).")
    slow = [name for name, result in zip(names, results, strict=True) if result is not True]
    if slow:
        notes.append(f"Not more slowly in every seed: {', '.join(slow)}.")
    factors = ", ".join(f"{name} {cell[0]:.2f}" for name, cell in zip(names, cells, strict=True))
    ranges = ", ".join(f"{name} {cell[1]:.2f} to {cell[2]:.2f}" for name, cell in zip(names, cells, strict=True))
    when = "After training" if decides else "Before training"
    return Part(
        f"{when} it falls more slowly in other units: {', '.join(names)}.",
        all_of(results),
        " ".join([f"{weights.capitalize()}, factor per step: {factors}; tanh RNN {plain[0]:.2f}.", *notes]),
        f"{weights}, {OVER_SEEDS}: {ranges}",
        decides,
    )


def _attention_is_short(table: Table, decay: Table) -> Part:
    kept = [table.cell(KEPT, network=ATTENTION, weights=weights) for weights in (UNTRAINED, TRAINED)]
    plain, quarter = (table.cell(column, network=PLAIN, weights=TRAINED) for column in (KEPT, "quarter"))
    far = decay.cell(FARTHEST, network=ATTENTION, weights=TRAINED)
    return Part(
        "With attention the distance does not matter: every state is one step away.",
        _every(kept, lambda x: x > LITTLE),
        f"From t − k = {quarter} on, attention keeps {kept[0][0]:.2g} of the norm untrained and {kept[1][0]:.2g} "
        f"trained; the tanh RNN keeps {plain[0]:.0e}. The norm is small throughout, {far[0]:.2g} at the farthest, "
        "because attention is divided among all states.",
        f"attention, {OVER_SEEDS}: " + " and ".join(f"{low:.2g} to {high:.2g}" for _, low, high in kept),
    )


def _final_nats(table: Table, case: tuple[str, float, float]) -> tuple[Any, Any]:
    """Without and with clipping."""
    rows = [row for row in table.rows if tuple(row[:3]) == case]
    without, clipped = sorted(rows, key=lambda row: row[3] != "none")
    final = table.columns.index(FINAL)
    return without[final], clipped[final]


def _format_nats(value: float) -> str:
    return f"{value:.2f} nats" if value < MAX_NATS else "no number"


def _clipping_tames(table: Table) -> Part:
    pairs = [(case, *_final_nats(table, case)) for case in DECIDING]
    results = [True if c[2] < w[1] else False if c[1] >= w[2] else None for _, w, c in pairs]
    slower = [(case[0], *_final_nats(table, (*case[:2], 0.1))) for case in DECIDING]
    fast = "; ".join(f"{case[0]} {_format_nats(c[0])} with, {_format_nats(w[0])} without" for case, w, c in pairs)
    slow = "; ".join(f"{name} {_format_nats(c[0])} and {_format_nats(w[0])}" for name, w, c in slower)
    return Part(
        "Clipping tames exploding gradients: without it the loss is higher or not a number.",
        all_of(results),
        f"With ‖W‖ = {DECIDING[0][1]:g} and learning rate {DECIDING[0][2]:g}: {fast}. At a tenth of that rate: {slow}.",
        f"clipping, {OVER_SEEDS}: "
        + "; ".join(f"{c[1]:.2f} to {c[2]:.2f} and {_format_nats(w[1])} to {_format_nats(w[2])}" for _, w, c in pairs),
    )


def _lstm_keeps_all(table: Table, gate: Table) -> Part:
    """With the condition under which it is true: a forget gate near 1."""
    both, h = (table.cell(FARTHEST, network=name, weights=TRAINED) for name in (HC, H))
    factors = ", ".join(f"{row[2][0]:.3f} at bias {row[0]:g}" for row in gate.rows)
    return Part(
        "An LSTM's gradient does not fall at all.",
        _every([both], lambda x: x > WHOLE),
        f"Trained, the norm of (h, c) at the farthest is {both[0]:.2g}, that from h to h {h[0]:.0e}. It depends on a "
        f"forget gate near 1: untrained, the factor per step is {factors}.",
        f"(h, c), {OVER_SEEDS}: {both[1]:.2g} to {both[2]:.2g}",
        decides=False,
    )


def _gradient_helps(table: Table) -> Part:
    names = (*SLOWER, ATTENTION)
    plain, *cells = (table.cell(NATS, network=name, weights=TRAINED) for name in (PLAIN, *names))
    results = [ranges_below(cell, plain) for cell in cells]
    losses = ", ".join(f"{name} {cell[0]:.2f}" for name, cell in zip(names, cells, strict=True))
    worse = [name for name, result in zip(names, results, strict=True) if result is False]
    return Part(
        "Networks that keep the gradient learn more.",
        all_of(results),
        f"After the same training the tanh RNN has {plain[0]:.2f} nats per byte; {losses}."
        + (f" Worse in every seed: {' and '.join(worse)}." if worse else ""),
        f"tanh RNN, {OVER_SEEDS}: {plain[1]:.2f} to {plain[2]:.2f}",
        decides=False,
    )


def _bound_means_explosion(table: Table) -> Part:
    rows = list(zip(*(table.column(name) for name in ("weights", GAMMA, FACTOR)), strict=True))
    above = [row for row in rows if row[1][1] > 1]
    vanishing = [row for row in above if row[2][2] < 1]
    below = [factor for _, gamma, factor in rows if gamma[2] < 1]
    settings = "; ".join(f"{name}: γ_h·γ_w = {gamma[0]:.3g}, factor {step[0]:.2f}" for name, gamma, step in vanishing)
    evidence = (
        f"It vanishes nevertheless: {settings}. A bound above 1 allows explosion and does not cause it."
        if vanishing
        else "It does in every setting."
    )
    return Part(
        "Where γ_h·γ_w > 1 the gradient explodes.",
        _every([factor for *_, factor in above], lambda x: x > 1) if above else None,
        f"{evidence} Where γ_h·γ_w < 1 the gradient vanishes in {sum(high < 1 for *_, high in below)} of {len(below)} "
        "settings.",
        f"γ_h·γ_w, {OVER_SEEDS}: " + ", ".join(f"{g[1]:.3g} to {g[2]:.3g}" for _, g, _ in vanishing or above),
        decides=False,
    )


def _clipping_always_helps(table: Table) -> Part:
    case = next(tuple(row[:3]) for row in table.rows if row[0] == PLAIN and row[1] > 2)
    without, clipped = _final_nats(table, case)
    holds = ranges_below(clipped, without)
    why = (
        " The first unclipped step makes W so large that all units stay at ±1, where nothing explodes any more and the "
        "output layer can learn; with clipping, the exploding part crowds out the rest of the gradient."
    )
    return Part(
        f"Clipping also helps at ‖W‖ = {case[1]:g}.",
        holds,
        f"The tanh RNN with ‖W‖ = {case[1]:g} ends at {_format_nats(clipped[0])} with clipping and at "
        f"{_format_nats(without[0])} without.{why if holds is False else ''}",
        f"{OVER_SEEDS}: {clipped[1]:.2f} to {clipped[2]:.2f}, {without[1]:.2f} to {without[2]:.2f}",
        decides=False,
    )


# ------------------------------------------------------------------------------------------------ draw

STYLES = {
    PLAIN: (plot.VERMILION, "-"),
    LEAKY: (plot.ORANGE, "-"),
    RESIDUAL: (plot.PURPLE, "-"),
    GATED: (plot.GREEN, "-"),
    HC: (plot.BLUE, "-"),
    H: (plot.BLUE, ":"),
    ATTENTION: (plot.SKY, "-"),
    BOUND: (plot.GREY, "--"),
}


def draw(tables: Tables, figure: plot.Figure) -> None:
    figure.set_size_inches(13, 9)
    figure.set_layout_engine("constrained", hspace=0.08, wspace=0.04)
    (untrained, trained), (bound, clipping) = figure.subplots(2, 2, height_ratios=(1.35, 1))
    _draw_norms(tables["norms"], untrained, UNTRAINED)
    _draw_norms(tables["norms"], trained, TRAINED)
    _draw_bound(tables["bound"], bound)
    _draw_clipping(tables["losses"], clipping)


def _draw_norms(table: Table, axes: plot.Axes, weights: str) -> None:
    distances = table.column("t − k", network=PLAIN, weights=weights)
    labels, visible = [], [1.0]
    for name, (color, dash) in STYLES.items():
        cells = table.column("norm", network=name, weights=weights)
        text = r"bound $(\gamma_h\,\gamma_w)^{t-k}$" if name == BOUND else name
        labels.append((plot.line(axes, distances, cells, color, dash), text, color))
        if name != BOUND:
            visible += [min(cell[1] for cell in cells), max(cell[2] for cell in cells)]
    top, bound = 1e6 * max(visible), labels[-1][0]
    axes.set(yscale="log", ylim=(min(visible) / 10, min(top, 10 * max(bound, *visible))), xlim=(1, distances[-1]))
    if bound > top:  # the bound leaves the figure: its label stays at the edge and gives its value
        labels[-1] = (top, f"bound: {bound:.0e}", plot.GREY)
    axes.set(
        xlabel="t − k, steps back",
        ylabel=r"$\|\partial h_t/\partial h_k\|$",
        title=f"{weights.capitalize()}: gradient by distance",
    )
    plot.label_lines(axes, labels, gap=0.07)


def _draw_bound(table: Table, axes: plot.Axes) -> None:
    """The factor per step against ‖W‖, with the factor that the bound allows."""
    rows = sorted((row for row in table.rows if row[0] != TRAINED), key=lambda row: row[1][0])
    x = [row[1][0] for row in rows]
    labels = []
    for column, color, style, name in (
        (GAMMA, plot.GREY, "o--", r"bound $\gamma_h\,\gamma_w$"),
        (FACTOR, plot.VERMILION, "o-", PLAIN),
    ):
        cells = [row[table.columns.index(column)] for row in rows]
        labels.append((plot.line(axes, x, cells, color, style, size=4), name, color))
    lowest = min(cell[1] for cell in cells)
    axes.axhline(1, color=plot.INK, linewidth=0.8)
    axes.text(x[0], 1.06, "explodes", fontsize=9, color=plot.INK, va="bottom")
    axes.text(x[-1], 0.94, "vanishes", fontsize=9, color=plot.INK, va="top", ha="right")
    axes.set(xscale="log", yscale="log", xlabel="‖W‖ of an untrained tanh RNN", ylabel="factor per step")
    axes.set_xticks(x, [f"{norm:.2g}" for norm in x])
    axes.set_xticks([], minor=True)
    ticks = [tick for tick in (0.25, 0.5, 1, 2, 4, 8) if tick >= lowest / 2]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.set_title("The bound, and what happens")
    plot.label_lines(axes, labels, gap=0.12)


def _draw_clipping(table: Table, axes: plot.Axes) -> None:
    labels, highest = [], 0.0
    for (name, scale, rate), color in zip(DECIDING, (plot.GREEN, plot.VERMILION), strict=True):
        for clip in dict.fromkeys(table.column("clip")):
            cells = table.column("nats", network=name, learning_rate=rate, clip=clip, **{"‖W‖": scale})
            last = plot.line(axes, range(1, len(cells) + 1), cells, color, "--" if clip == "none" else "-")
            labels.append((last, f"{name},\n{'no clipping' if clip == 'none' else 'clipped'}", color))
            highest = max(highest, *(cell[2] for cell in cells))
    axes.set(yscale="log", xlabel="step", ylabel="nats per byte", xlim=(1, None), ylim=(2, 1.15 * highest))
    ticks = [tick for tick in (2, 3, 5, 10, 20, 50, 100) if tick <= highest]
    axes.set_yticks(ticks, [f"{tick}" if tick < 100 else "100 or\nno number" for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.set_title(f"Exploding gradients: SGD at rate {DECIDING[0][2]:g}, ‖W‖ = {DECIDING[0][1]:g}")
    plot.label_lines(axes, labels, gap=0.13)
