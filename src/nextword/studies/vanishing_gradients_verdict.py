"""What the numbers of the study of vanishing gradients say, part by part; they alone decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nextword.studies.measures import written
from nextword.studies.study import Part, Table, Tables, judged
from nextword.studies.vanishing_gradients_paths import (
    ATTENTION,
    GATED,
    HC,
    LEAKY,
    MOST,
    PLAIN,
    RESIDUAL,
    TAMED,
    TRAINED,
    UNTRAINED,
    H,
)

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
