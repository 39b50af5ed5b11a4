"""Measuring n-gram models on held-out text, for the study of their sparsity: which n-grams are new, what models cost.

    neither     maximum likelihood                     back-off    stupid back-off, divided by its sum
    smoothing   adding δ to all counts of a context    both        Katz, Witten-Bell, absolute discounting, Kneser-Ney

Intervals are of 95 %, over blocks of the held-out text. Two models are compared token by token on the same blocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nextword.evaluation.likelihood import bootstrap
from nextword.infinity import NAME
from nextword.ngrams.counting import Counted
from nextword.ngrams.estimate import EITHER, Estimator, estimate
from nextword.ngrams.layouts import build, open_layout
from nextword.ngrams.trie import Level, Trie
from nextword.studies.study import Table

KATZ, STUPID, LIKELIHOOD = "Katz", "stupid back-off", "maximum likelihood"
TITLES = {
    "witten-bell": "Witten-Bell",
    "absolute": "absolute",
    "kneser-ney": "Kneser-Ney",
    "modified-kneser-ney": "modified Kneser-Ney",
}
FORMS = {False: "back-off", True: "interpolated"}
EITHERS = {f"{TITLES[kind]}, {FORMS[form]}": Estimator(kind, form) for kind in EITHER for form in FORMS}
REMEDIES: dict[str, dict[str, Estimator]] = {
    "neither": {LIKELIHOOD: Estimator("maximum-likelihood")},
    "smoothing": {"add 1": Estimator("additive"), "add 0.01": Estimator("additive", add=0.01)},
    "back-off": {STUPID: Estimator("stupid")},
    "both": {KATZ: Estimator("good-turing"), **EITHERS},
}
BEST = "modified Kneser-Ney, interpolated"  # the one that the files of the storage table hold
PAIRS = [
    *((f"{title}, back-off", f"{title}, interpolated") for title in TITLES.values()),
    (STUPID, KATZ),
    ("absolute, interpolated", "Kneser-Ney, interpolated"),
    ("Kneser-Ney, interpolated", BEST),
]


def shorter(counted: Counted, n: int) -> Counted:
    """The counts of the n-grams up to n alone: what counting with that order would have given."""
    lists = (counted.words[:n], counted.counts[:n], counted.first[: n - 1], counted.links[:n])
    return Counted(counted.boundary, counted.size, counted.arrays, counted.block, *lists)


def estimated(counted: Counted, how: Estimator) -> Trie:
    trie: Any = [*estimate(counted, how, np.zeros(counted.size, bool))][-1]
    return trie


def seen(counted: Counted, stream: np.ndarray, path: Path) -> np.ndarray:
    """How long the longest n-gram ending at each token is that occurs in the counted text; 0 for a new word.

    A model that says "n" of every n-gram it has, and takes nothing for backing off, says just that.
    """
    levels = []
    for k in range(counted.order):
        last = k == counted.order - 1
        says = np.full(len(counted.words[k]), k + 1, np.float32)
        free = None if last else np.zeros(len(says), np.float32)
        links = counted.links[k] if k else None
        levels.append(Level(counted.words[k], links, None if last else counted.first[k], says, free))
    levels[0].log_probs[counted.counts[0] == 0] = 0.0
    build(Trie(levels, counted.boundary), path, "fast")
    return open_layout(path).read(stream).astype(np.int64)


def unseen(longest: np.ndarray, stream: np.ndarray, boundary: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """For each token after the first: is its n-gram new, and is the context of that new already?

    Near the beginning of a line both are as long as they can be: they begin with the line.
    """
    at = np.arange(len(stream))
    line = np.maximum.accumulate(np.where(stream == boundary, at, 0))  # where the line that a token ends begins
    back = at[1:] - line[:-1]  # tokens before, with the line's beginning
    return longest[1:] < np.minimum(n, back + 1), longest[:-1] < np.minimum(n - 1, back)


def stored_in(trie: Trie, path: Path) -> tuple[int, int, int, int]:
    """N-grams, and bytes on disk: fast, compact, compact with probabilities of 8 bits."""
    sizes = []
    for layout, bits in (("fast", 0), ("compact", 0), ("compact", 8)):
        build(trie, path, layout, bits)
        sizes.append(path.stat().st_size)
    return len(trie), sizes[0], sizes[1], sizes[2]


def perplexity(nats: np.ndarray) -> float | str:
    mean = float(nats.mean())
    return NAME if mean == math.inf else math.exp(mean)


def interval(values: np.ndarray, seed: int) -> list[float]:
    """[mean, low, high] of a value that every token has; `bootstrap` gives bits, so it is given nats."""
    low, high = bootstrap(values * math.log(2), np.ones(len(values)), len(values), seed=seed)
    return [float(values.mean()), low, high]


def falls(before: np.ndarray, after: np.ndarray, seed: int) -> list[float]:
    """By how many per cent the perplexity falls, token by token on the same text; below 0 it rises."""
    low, middle, high = (100 * (1 - math.exp(x)) for x in sorted(interval(after - before, seed), reverse=True))
    return [middle, low, high]


def sparsity(counted: Counted, longest: np.ndarray, stream: np.ndarray, seed: int) -> Table:
    rows = []
    for n in range(1, counted.order + 1):
        counts = counted.counts[n - 1]
        kinds, once = int((counts > 0).sum()), int((counts == 1).sum())
        new, lost = unseen(longest, stream, counted.boundary, n)
        held = (
            interval(100.0 * new, seed),
            interval(100.0 * (new & ~lost), seed),
            interval(100.0 * (new & lost), seed),
        )
        rows.append((n, counted.size**n, kinds, kinds / counted.size**n, 100 * once / kinds, *held))
    columns = (
        "n",
        "possible, |V|^n",
        "in the text",
        "of the possible",
        "once only, %",
        "new when held out, %",
        "word new, %",
        "context new, %",
    )
    return Table("Sparsity: n-grams of the counted text, and of the held-out text by tokens", columns, tuple(rows))


def storage(stored: Sequence[tuple[int, int, int, int]], text: float) -> Table:
    rows = []
    for n, (entries, *sizes) in enumerate(stored, 1):
        added = entries - (stored[n - 2][0] if n > 1 else 0)
        rows.append((n, added, entries, *(size / 1e6 for size in sizes), sizes[0] / text))
    columns = ("n", "n-grams of n words", "all up to n", "fast, MB", "compact, MB", "8 bits, MB", "fast / text")
    return Table(f"Storage: a model of all n-grams up to n ({text / 1e6:.1f} MB of text)", columns, tuple(rows))


def likelihood(costs: Sequence[np.ndarray], seed: int) -> Table:
    rows = []
    for n, nats in enumerate(costs, 1):
        none = np.isinf(nats)
        rows.append((n, interval(100.0 * none, seed), perplexity(nats[~none])))
    columns = ("n", "probability 0, % of tokens", "perplexity of the other tokens")
    return Table("Counts alone: maximum likelihood (unseen contexts ask shorter ones)", columns, tuple(rows))


def context(costs: Sequence[np.ndarray], seed: int) -> Table:
    rows: list[tuple[Any, ...]] = [(1, perplexity(costs[0]), None)]
    for n in range(2, len(costs) + 1):
        rows.append((n, perplexity(costs[n - 1]), falls(costs[n - 2], costs[n - 1], seed)))
    return Table(
        f"What one more word of context buys: {BEST}", ("n", "perplexity", "lower than before, %"), tuple(rows)
    )


def pairs(costs: Mapping[str, Sequence[np.ndarray]], seed: int) -> Table:
    rows = []
    for worse, better in PAIRS:
        for n, (a, b) in enumerate(zip(costs[worse], costs[better], strict=True), 1):
            rows.append((worse, better, n, falls(a, b, seed)))
    return Table("By how much one estimator is better than another", ("from", "to", "n", "lower, %"), tuple(rows), True)


def by_remedy(table: Table, *remedies: str) -> dict[str, list[Any]]:
    """The perplexities of the estimators of these remedies, by order, out of the table of all."""
    return {row[0]: list(row[2:]) for row in table.rows if row[1] in remedies}


def percent(value: float) -> str:
    return f"{value:.0f} %" if value >= 10 or value == 0 else f"{value:.1f} %"
