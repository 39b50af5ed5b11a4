"""How far a gradient reaches back in time: ‖∂h_t/∂h_k‖ by t − k, against its bound, untrained and after some training.

    ∂h_t/∂h_k = Π_i Diag(tanh'_i) W        ‖∂h_t/∂h_k‖ ≤ (γ_h·γ_w)^(t−k)        γ_h = max ‖Diag(tanh')‖, γ_w = ‖W‖

The bound is said to decide: below 1 the gradient vanishes, above 1 it explodes. It is measured beside what it bounds.
The remedies are measured in the same way, on the same text: a leak, a residual connection, gates, attention. And the
remedy for explosion, clipping, is tried where gradients do explode.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from nextword.studies.apart import Task, spread
from nextword.studies.measures import over_seeds
from nextword.studies.study import Claim, Progress, Settings, Table
from nextword.studies.text import bytes_of, corpus_for, enough
from nextword.studies.vanishing_gradients_figure import draw
from nextword.studies.vanishing_gradients_paths import (
    BIASES,
    CASES,
    CLIP,
    CURVES,
    EMBEDDING,
    HC,
    LEAK,
    MOST,
    NETWORKS,
    PIECE,
    PLAIN,
    RATE,
    RATES,
    RESIDUAL,
    ROWS,
    SCALES,
    TRAINED,
    UNTRAINED,
    WIDTH,
    H,
    descend,
    gradients,
    layer_of,
    make,
    remembering,
    scaled,
    train,
)
from nextword.studies.vanishing_gradients_verdict import judge

__all__ = ["CLAIM", "draw", "judge", "measure"]
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
