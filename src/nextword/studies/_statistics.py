"""Intervals, tests and number formats that studies share.

A table cell is `[middle, low, high]`: median and range over seeds (`median_and_range`), or a mean with its 95 %
interval. Networks differ by seed and the held-out text is a sample, so an interval is the wider of two: Student's t
over seeds, and a bootstrap over the text. One seed has no interval; JSON stores its infinite bounds as null.

Scores of whole sets of texts (BLEU, nats per token, length) are functions of sums, so statistics are kept per text
and a bootstrap draw adds up other texts:

    statistics (seeds, n, k) ──sum over n──▶ (seeds, k) ──score──▶ one number per seed
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from nextword.core.errors import MissingDependency
from nextword.studies._study import Cell, Part

INTERVALS = "95 %, the wider of Student's t over seeds and a bootstrap over the held-out text; differences are paired"
NO_INTERVAL = "one seed has no interval"
DRAWS = 2000  # bootstrap draws of units of text
SET_DRAWS = 1000  # bootstrap draws of sets of texts
# Student's t at 97.5 % for 1, 2, 3 … degrees of freedom; beyond them 1.96 + 2.4 / n is right to two digits
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)


# ------------------------------------------------------------------------------------------------ seeds


def median_and_range(values: Sequence[float]) -> list[float]:
    """[median, smallest, largest]: for a few seeds the range says more than a standard error. Counts stay integers."""
    cell = [float(np.median(values)), float(min(values)), float(max(values))]
    is_count = all(isinstance(value, int) for value in values) and cell[0].is_integer()
    return [int(value) for value in cell] if is_count else cell


def median_of_means(values: np.ndarray) -> list[float]:
    """(seeds, units of text) → median and range over seeds of the mean over units."""
    return median_and_range(values.mean(1).tolist())


def student_interval(values: np.ndarray) -> tuple[float, float, float] | None:
    """Mean and 95 % interval of a few independent values; None for a single one."""
    n = len(values)
    if n < 2:
        return None
    t = STUDENT[n - 2] if n - 2 < len(STUDENT) else 1.96 + 2.4 / (n - 1)
    mean, half = float(values.mean()), t * float(values.std(ddof=1)) / n**0.5
    return mean, mean - half, mean + half


def paired_difference(these: Sequence[float], those: Sequence[float]) -> list[float]:
    """These minus those, paired by seed: mean and 95 % interval, infinite for a single seed."""
    differences = np.asarray(these, dtype=float) - np.asarray(those, dtype=float)
    interval = student_interval(differences)
    return [float(differences[0]), -np.inf, np.inf] if interval is None else list(interval)


def wider_interval(mean: float, by_seed: np.ndarray, text: tuple[float, float]) -> list[float]:
    """[mean, low, high] with the wider of the interval over seeds and the given interval over the text."""
    seeds = student_interval(by_seed)
    if seeds is None:
        return [mean, -np.inf, np.inf]
    return [mean, min(text[0], seeds[1]), max(text[1], seeds[2])]


# ------------------------------------------------------------------------------------------------ units of text


def mean_interval(values: np.ndarray | Sequence[Sequence[float]], single_network: bool = False) -> list[float]:
    """(seeds, units of text) → mean and 95 % interval, the wider of seeds and text.

    `single_network`: the network was given and has no other seed, so only the text is a sample.
    """
    array = np.asarray(values, dtype=float)
    by_seed = array.mean(1)
    if single_network and len(by_seed) == 1:
        return [float(by_seed[0]), *bootstrap_mean(array[0])]
    return wider_interval(float(by_seed.mean()), by_seed, bootstrap_mean(array.mean(0)))


def bootstrap_mean(units: np.ndarray) -> tuple[float, float]:
    """95 % interval of a mean, resampling the units with a fixed seed."""
    draw = np.random.default_rng(0)
    means = [units[draw.integers(0, len(units), len(units))].mean() for _ in range(DRAWS)]
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


# ------------------------------------------------------------------------------------------------ tests


def has_interval(cell: Sequence[Any]) -> bool:
    return cell[1] is not None and bool(np.isfinite(cell[1]))


def is_above(cell: Sequence[Any], bound: float = 0.0) -> bool | None:
    """Whether the whole interval lies above the bound; None if the bound lies inside it."""
    if cell[1] is None:
        return None
    _, low, high = (np.inf if value is None else value for value in cell)
    return True if low > bound else False if high < bound else None


def is_below(cell: Sequence[Any], bound: float = 0.0) -> bool | None:
    """Whether the whole interval lies below the bound; None if the bound lies inside it."""
    above = is_above(cell, bound)
    return None if above is None else not above


def ranges_below(these: Sequence[float], those: Sequence[float]) -> bool | None:
    """Whether all seeds of one cell are below all seeds of another; False if all are above; None if they overlap."""
    return True if these[2] < those[1] else False if these[1] > those[2] else None


Test = Callable[[Sequence[Any]], bool | None]  # of an interval


def judge_interval(
    statement: str,
    cell: Sequence[Any],
    evidence: str,
    label: str = "95 %",
    digits: int = 3,
    *,
    test: Test = is_above,
    decides: bool = True,
) -> Part:
    """A part that holds if the whole interval passes the test; the interval is its uncertainty."""
    return Part(statement, test(cell), evidence, f"{label}: {format_interval(cell, digits)}", decides)


def all_of(results: Sequence[bool | None]) -> bool | None:
    """False if any is False, else None if any is None, else True."""
    return False if False in results else None if None in results else True


# ------------------------------------------------------------------------------------------------ sets of texts

Score = Callable[[np.ndarray], np.ndarray]  # sums (…, k) → scores (…)
ORDERS = 4
BLEU_SUMS = 2 * ORDERS + 2  # matching n-grams, n-grams, words written, words of the references


def bleu_statistics(texts: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """(n, BLEU_SUMS): what BLEU adds up, text by text, as sacrebleu counts it."""
    metric = _sacrebleu()(effective_order=True)
    statistics = np.zeros((len(texts), BLEU_SUMS))
    for i, (text, reference) in enumerate(zip(texts, references, strict=True)):
        score = metric.sentence_score(text, [reference])
        statistics[i] = [*score.counts, *score.totals, score.sys_len, score.ref_len]
    return statistics


def bleu(sums: np.ndarray) -> np.ndarray:
    """(…, BLEU_SUMS) → (…): BLEU of sets of texts, from 0 to 100."""
    metric = _sacrebleu()

    def score(row: np.ndarray) -> float:
        counts, totals = ([int(n) for n in row[start : start + ORDERS]] for start in (0, ORDERS))
        return float(metric.compute_bleu(counts, totals, int(row[-2]), int(row[-1]), "exp").score)

    flat = np.array([score(row) for row in sums.reshape(-1, BLEU_SUMS)])
    return flat.reshape(sums.shape[:-1])


def ratio(sums: np.ndarray) -> np.ndarray:
    """(…, 2) → (…): the first sum divided by the second, such as nats by tokens."""
    return sums[..., 0] / np.maximum(sums[..., 1], 1e-9)


def percent(sums: np.ndarray) -> np.ndarray:
    return 100 * ratio(sums)


def length_ratio(sums: np.ndarray) -> np.ndarray:
    """Of BLEU's sums: words written divided by words of the references."""
    return ratio(sums[..., -2:])


def negated(score: Score) -> Score:
    """A score where lower is better, from one where higher is better."""
    return lambda sums: -score(sums)


def score_interval(score: Score, statistics: np.ndarray, *, single_network: bool = False) -> list[float]:
    """(seeds, n, k) → mean score over seeds and 95 % interval, the wider of seeds and texts."""
    by_seed, text = score(statistics.sum(1)), _bootstrap_score(score, statistics)
    mean = float(by_seed.mean())
    return [mean, *text] if single_network else wider_interval(mean, by_seed, text)


def score_difference(
    score: Score, these: np.ndarray, those: np.ndarray, *, single_network: bool = False
) -> list[float]:
    """Score of these minus score of those on the same texts: paired by text and seed."""
    return score_interval(difference_of(score), join(these, those), single_network=single_network)


def unpaired_difference(score: Score, these: np.ndarray, those: np.ndarray) -> list[float]:
    """The same on different texts: paired by seed only, so the sampling errors of the texts add up."""
    by_seed = score(these.sum(1)) - score(those.sum(1))
    ends = [_bootstrap_score(score, part) for part in (these, those)]
    half = sum(((high - low) / 2) ** 2 for low, high in ends) ** 0.5
    mean = float(by_seed.mean())
    return wider_interval(mean, by_seed, (mean - half, mean + half))


def join(these: np.ndarray, those: np.ndarray) -> np.ndarray:
    """(seeds, n, k) twice → (seeds, n, 2k), the input of `difference_of(score)`."""
    return np.concatenate([these, those], -1)


def difference_of(score: Score) -> Score:
    """Score of the first half of the sums minus score of the second half."""

    def difference(sums: np.ndarray) -> np.ndarray:
        k = sums.shape[-1] // 2
        return score(sums[..., :k]) - score(sums[..., k:])

    return difference


def _bootstrap_score(score: Score, statistics: np.ndarray) -> tuple[float, float]:
    """95 % interval of the mean over seeds, resampling the texts with a fixed seed."""
    n = statistics.shape[1]
    counts = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), SET_DRAWS).astype(float)
    scores = score(np.einsum("dn,snk->sdk", counts, statistics)).mean(0)
    return float(np.quantile(scores, 0.025)), float(np.quantile(scores, 0.975))


def _sacrebleu() -> Any:
    try:
        from sacrebleu.metrics import BLEU
    except ImportError:
        raise MissingDependency(
            "This study needs sacrebleu to compute BLEU. Install it: pip install 'nextword[tasks]'.",
            package="sacrebleu",
        ) from None
    return BLEU


# ------------------------------------------------------------------------------------------------ growth


class PowerLaw(NamedTuple):
    """y ∝ x^exponent, fitted on logarithms."""

    exponent: float
    r2: float


def fit_line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Slope and R² of a least-squares line; a constant y fits perfectly."""
    slope, offset = np.polyfit(x, y, 1)
    total, residual = ((y - y.mean()) ** 2).sum(), ((y - offset - slope * x) ** 2).sum()
    return float(slope), float(1 - residual / total) if total > 1e-12 else 1.0


def fit_power_law(x: Sequence[float], y: Sequence[float]) -> PowerLaw:
    return PowerLaw(*fit_line(np.log(np.asarray(x, dtype=float)), np.log(np.asarray(y, dtype=float))))


def marginal_costs(x: Sequence[float], y: Sequence[float]) -> list[float]:
    """Increase of y per unit of x between neighbors: all equal exactly if y = a + b·x."""
    return [float(d) for d in np.diff(np.asarray(y, dtype=float)) / np.diff(np.asarray(x, dtype=float))]


# ------------------------------------------------------------------------------------------------ formats


def signed(value: float, digits: int) -> str:
    """A number with a typographic minus sign."""
    return f"{value:.{digits}f}".replace("-", "−")


def format_interval(cell: Sequence[Any], digits: int = 3) -> str:
    """ "0.123 to 0.145"."""
    return " to ".join(signed(end, digits) for end in cell[1:]) if has_interval(cell) else NO_INTERVAL


def format_gain(value: float, unit: str, digits: int) -> str:
    """ "1.3 points better"; a negative value is worse."""
    return f"{abs(value):.{digits}f} {unit} {'better' if value > 0 else 'worse'}"


def more_or_less(value: float, digits: int) -> tuple[str, str]:
    """("1.3", "more"); a negative value is less."""
    return f"{abs(value):.{digits}f}", "more" if value > 0 else "less"


def format_percent(share: float) -> str:
    """ "15 %" of 0.15."""
    return f"{100 * share:.0f} %"


def format_cell(value: Cell) -> str:
    """A table cell for readers: 1,234,567; 3.3e+19 for very large numbers; median (range) over seeds."""
    if value is None:
        return "–"
    if isinstance(value, (list, tuple)):
        middle, low, high = map(format_cell, value)
        return middle if low == high or not has_interval(value) else f"{middle} ({low}–{high})"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**9 else f"{value:.1e}"
    if not isinstance(value, float):
        return str(value)
    if value == 0 or 100 <= abs(value) < 10**6:
        return f"{value:,.0f}"
    return f"{value:#.3g}" if 0.01 <= abs(value) < 100 else f"{value:.1e}"
