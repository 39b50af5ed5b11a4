"""Sparsity and storage of n-grams with growing n, and what smoothing and back-off contribute.

Claim: the longer an n-gram, the rarer; most long n-grams of a new text were never seen, so counts alone give it
probability 0, while the table keeps growing. Smoothing and back-off fix that; still n is rarely larger than 5
(lecture notes; Chen & Goodman 1998 for the estimators).

A count can fail in two ways. The word was never seen after its context: 0 / c, for which smoothing takes probability
from what was seen. Or the context itself was never seen: 0 / 0, for which back-off uses a shorter one.

    neither     maximum likelihood                     back-off    stupid back-off, normalized
    smoothing   adding δ to all counts of a context    both        Katz, Witten-Bell, absolute discounting, Kneser-Ney

Measured: every estimator at every n on held-out text. Words are those of the `words` tokenizer; line ends are
predicted, and no n-gram crosses one. Intervals are over blocks of the held-out text; two estimators are compared
token by token.

Verdict: new n-grams must become more frequent with n until they are the majority; maximum likelihood must give some
tokens probability 0 from n = 2 on; no other estimator may, and one with both remedies must gain from context; the
table must grow with n; and beyond n = 5 another word of context must lower the perplexity by less than 1 %.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from nextword.batching.token_stream import prepare
from nextword.core.io import INFINITY
from nextword.evaluation.likelihood import bootstrap
from nextword.ngrams.counting import NgramCounts, count_ngrams
from nextword.ngrams.estimators import INTERPOLABLE, Estimator, estimate
from nextword.ngrams.layouts import open_layout, write_layout
from nextword.ngrams.trie import Level, Trie
from nextword.studies import _figures as plot
from nextword.studies._experiment import describe_corpus, held_out_split, open_text, require
from nextword.studies._statistics import format_cell, signed
from nextword.studies._study import Claim, Measured, Part, Progress, Settings, Table, Tables
from nextword.tokenizers.training import train_tokenizer

CLAIM = Claim(
    "The longer an n-gram, the rarer: most long n-grams of a new text were never seen, so counts alone give the text "
    "probability 0, while the table keeps growing. Smoothing and back-off fix that; still n is rarely larger than 5.",
    "Lecture notes on language models: sparsity and storage problems of n-grams; Chen & Goodman 1998 (the estimators)",
)
MAX_ORDER = 7
USUAL_ORDER = 5  # the longest that the claim calls useful
WORTH = 1.0  # per cent of perplexity that one more word of context must save to be useful
MAJORITY = 50.0  # per cent
CLEAR = 1.05  # ratio: closer perplexities are too close to call without an interval
QUICK_TOKENS = 200_000
MIN_TRAIN, MIN_HELD = 5_000, 400  # tokens
MIN_COUNT = 2  # a word that occurs once is <unk>, so that <unk> has been seen

KATZ, STUPID, LIKELIHOOD = "Katz", "stupid back-off", "maximum likelihood"
TITLES = {
    "witten-bell": "Witten-Bell",
    "absolute": "absolute",
    "kneser-ney": "Kneser-Ney",
    "modified-kneser-ney": "modified Kneser-Ney",
}
FORMS = {False: "back-off", True: "interpolated"}
REMEDIES: dict[str, dict[str, Estimator]] = {
    "neither": {LIKELIHOOD: Estimator("maximum-likelihood")},
    "smoothing": {"add 1": Estimator("additive"), "add 0.01": Estimator("additive", add=0.01)},
    "back-off": {STUPID: Estimator("stupid")},
    "both": {
        KATZ: Estimator("good-turing"),
        **{f"{TITLES[kind]}, {FORMS[form]}": Estimator(kind, form) for kind in INTERPOLABLE for form in FORMS},
    },
}
ESTIMATORS = {name: estimator for group in REMEDIES.values() for name, estimator in group.items()}
BEST = "modified Kneser-Ney, interpolated"  # the model in the storage table
PAIRS = [
    *((f"{title}, back-off", f"{title}, interpolated") for title in TITLES.values()),
    (STUPID, KATZ),
    ("absolute, interpolated", "Kneser-Ney, interpolated"),
    ("Kneser-Ney, interpolated", BEST),
]
OVER_BLOCKS = "95 % interval over blocks of the held-out text"

POSSIBLE, IN_TEXT, ONCE = "possible, |V|^n", "in the text", "seen once, %"
NEW, NEW_WORD, NEW_CONTEXT = "new in held-out text, %", "of these word new, %", "of these context new, %"
ENTRIES, FAST, COMPACT, BITS8, RATIO = "all up to n", "fast, MB", "compact, MB", "8 bits, MB", "fast / text"
IMPOSSIBLE, REST = "probability 0, % of tokens", "perplexity of the other tokens"
GAIN, LOWER = "lower than before, %", "lower by, %"


# ------------------------------------------------------------------------------------------------ measure


def measure(settings: Settings, progress: Progress) -> Measured:
    corpus = open_text(settings.data)
    split = held_out_split(corpus)
    tokenizer = train_tokenizer({"kind": "words", "min_count": MIN_COUNT}, (d.text for d in corpus.documents("train")))
    train, held = prepare(corpus, "train", tokenizer), prepare(corpus, split, tokenizer)
    require(len(train), MIN_TRAIN, "words to count", corpus)
    require(len(held), MIN_HELD, "held-out words", corpus)
    ids = np.asarray(train.ids[: QUICK_TOKENS if settings.quick else None])
    size, boundary, seed = len(tokenizer), tokenizer.begin, settings.seeds[0]
    counted = [*count_ngrams(ids, MAX_ORDER, size, boundary, memory=1 << 60)][-1]
    assert isinstance(counted, NgramCounts)
    stream = np.concatenate([[boundary], held.ids]).astype(np.uint32)
    nats: dict[str, list[np.ndarray]] = {name: [] for name in ESTIMATORS}  # of each held-out token, by order
    stored = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        longest = longest_seen(counted, stream, path)
        for n in range(1, MAX_ORDER + 1):
            part = limit_order(counted, n)
            for name, estimator in ESTIMATORS.items():
                trie = make_trie(part, estimator)
                write_layout(trie, path, "fast")
                nats[name].append(-open_layout(path).read(stream)[1:].astype(np.float64))
                if name == BEST:
                    stored.append(_stored_sizes(trie, path))
            progress(n, MAX_ORDER)
    unknown = 100 * float((held.ids == tokenizer.special["<unk>"]).mean())
    return {
        "sparsity": _sparsity(counted, longest, stream, seed),
        "storage": _storage(stored, train.bytes * len(ids) / len(train)),
        "likelihood": likelihood_table(nats[LIKELIHOOD], seed),
        "perplexity": Table(
            "Perplexity of the held-out text, by remedy",
            ("estimator", "remedy", *(f"n = {n}" for n in range(1, MAX_ORDER + 1))),
            tuple((name, remedy, *map(perplexity, nats[name])) for remedy in REMEDIES for name in REMEDIES[remedy]),
        ),
        "context": _context(nats[BEST], seed),
        "pairs": _pairs(nats, seed),
    }, {
        "data": f"{describe_corpus(corpus)}: {len(ids):,} tokens counted, {len(held):,} held out ({split})",
        "vocabulary": f"{size:,} words that occur at least twice, split at spaces; closed",
        "conventions": f"each line end is predicted and counted; other words are <unk>, a word like any other "
        f"({unknown:.1f} % of the held-out tokens)",
        "intervals": f"95 %, 1,000 draws of blocks of the held-out text with seed {seed}; nothing else is random",
    }


def limit_order(counted: NgramCounts, n: int) -> NgramCounts:
    """Only the counts of n-grams up to n: the same as counting with that order."""
    lists = (counted.words[:n], counted.counts[:n], counted.first[: n - 1], counted.links[:n])
    return NgramCounts(counted.boundary, counted.size, counted.arrays, counted.block, *lists)


def make_trie(counted: NgramCounts, estimator: Estimator) -> Trie:
    trie = [*estimate(counted, estimator, np.zeros(counted.size, bool))][-1]
    assert isinstance(trie, Trie)
    return trie


def longest_seen(counted: NgramCounts, stream: np.ndarray, path: Path) -> np.ndarray:
    """Length of the longest n-gram ending at each token that occurs in the counted text; 0 for a new word.

    This is what a model returns, negated, whose n-grams all have "log-probability" −n and whose back-off is free.
    """
    levels = []
    for k in range(counted.order):
        is_last = k == counted.order - 1
        lengths = np.full(len(counted.words[k]), -(k + 1), np.float32)
        backoff = None if is_last else np.zeros(len(lengths), np.float32)
        links = counted.links[k] if k else None
        levels.append(Level(counted.words[k], links, None if is_last else counted.first[k], lengths, backoff))
    levels[0].log_probs[counted.counts[0] == 0] = 0.0
    write_layout(Trie(levels, counted.boundary), path, "fast")
    return -open_layout(path).read(stream).astype(np.int64)


def find_new(longest: np.ndarray, stream: np.ndarray, boundary: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """For each token after the first: whether its n-gram is new, and whether its context is.

    Near the beginning of a line both are as long as possible: they start with the line.
    """
    positions = np.arange(len(stream))
    line = np.maximum.accumulate(np.where(stream == boundary, positions, 0))  # start of the line that a token ends
    before = positions[1:] - line[:-1]  # tokens before, including the line's beginning
    return longest[1:] < np.minimum(n, before + 1), longest[:-1] < np.minimum(n - 1, before)


def _stored_sizes(trie: Trie, path: Path) -> tuple[int, int, int, int]:
    """N-grams, and bytes on disk: fast, compact, compact with 8-bit probabilities."""
    sizes = []
    for layout, bits in (("fast", 0), ("compact", 0), ("compact", 8)):
        write_layout(trie, path, layout, bits)
        sizes.append(path.stat().st_size)
    return len(trie), sizes[0], sizes[1], sizes[2]


def perplexity(nats: np.ndarray) -> float | str:
    mean = float(nats.mean())
    return INFINITY if mean == math.inf else math.exp(mean)


def block_interval(values: np.ndarray, seed: int) -> list[float]:
    """Mean and 95 % interval of a value per token; `bootstrap` converts nats to bits, hence the factor."""
    low, high = bootstrap(values * math.log(2), np.ones(len(values)), len(values), seed=seed)
    return [float(values.mean()), low, high]


def perplexity_reduction(before: np.ndarray, after: np.ndarray, seed: int) -> list[float]:
    """In %, paired token by token; negative if the perplexity rises."""
    low, middle, high = (100 * (1 - math.exp(x)) for x in sorted(block_interval(after - before, seed), reverse=True))
    return [middle, low, high]


def _sparsity(counted: NgramCounts, longest: np.ndarray, stream: np.ndarray, seed: int) -> Table:
    rows = []
    for n in range(1, counted.order + 1):
        counts = counted.counts[n - 1]
        distinct, once = int((counts > 0).sum()), int((counts == 1).sum())
        new, lost = find_new(longest, stream, counted.boundary, n)
        shares = (block_interval(100.0 * part, seed) for part in (new, new & ~lost, new & lost))
        rows.append((n, counted.size**n, distinct, distinct / counted.size**n, 100 * once / distinct, *shares))
    columns = ("n", POSSIBLE, IN_TEXT, "of the possible", ONCE, NEW, NEW_WORD, NEW_CONTEXT)
    return Table("Sparsity: n-grams of the counted text, and shares of the held-out tokens", columns, rows)


def _storage(stored: Sequence[tuple[int, int, int, int]], text: float) -> Table:
    rows = []
    for n, (entries, *sizes) in enumerate(stored, 1):
        added = entries - (stored[n - 2][0] if n > 1 else 0)
        rows.append((n, added, entries, *(size / 1e6 for size in sizes), sizes[0] / text))
    columns = ("n", "n-grams of n words", ENTRIES, FAST, COMPACT, BITS8, RATIO)
    return Table(f"Storage: a model of all n-grams up to n ({text / 1e6:.1f} MB of text)", columns, rows)


def likelihood_table(nats: Sequence[np.ndarray], seed: int) -> Table:
    rows = [
        (n, block_interval(100.0 * np.isinf(costs), seed), perplexity(costs[~np.isinf(costs)]))
        for n, costs in enumerate(nats, 1)
    ]
    title = "Counts alone: maximum likelihood (unseen contexts use shorter ones)"
    return Table(title, ("n", IMPOSSIBLE, REST), rows)


def _context(nats: Sequence[np.ndarray], seed: int) -> Table:
    rows: list[tuple[Any, ...]] = [(1, perplexity(nats[0]), None)]
    for n, (before, after) in enumerate(pairwise(nats), 2):
        rows.append((n, perplexity(after), perplexity_reduction(before, after, seed)))
    return Table(f"Value of one more word of context: {BEST}", ("n", "perplexity", GAIN), rows)


def _pairs(nats: Mapping[str, Sequence[np.ndarray]], seed: int) -> Table:
    rows = [
        (worse, better, n, perplexity_reduction(a, b, seed))
        for worse, better in PAIRS
        for n, (a, b) in enumerate(zip(nats[worse], nats[better], strict=True), 1)
    ]
    return Table("Perplexity of one estimator below another", ("from", "to", "n", LOWER), rows, detailed=True)


def rows_by_remedy(table: Table, *remedies: str) -> dict[str, list[Any]]:
    """Perplexities by order of the estimators with these remedies."""
    return {row[0]: list(row[2:]) for row in table.rows if row[1] in remedies}


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    return [
        _becomes_sparse(tables["sparsity"]),
        _is_impossible(tables["likelihood"]),
        _is_fixed(tables["perplexity"]),
        _table_grows(tables["storage"]),
        _five_is_enough(tables["context"]),
        _smoothing_suffices(tables["perplexity"]),
        _backoff_suffices(tables["perplexity"], tables["pairs"]),
        _interpolation_is_better(tables["pairs"]),
        _all_are_stored(tables["sparsity"]),
    ]


def _percent(value: float) -> str:
    return f"{value:.0f} %" if value >= 10 or value == 0 else f"{value:.1f} %"


def _signed(value: float) -> str:
    return signed(value, 0).replace("−0", "0")


def _becomes_sparse(table: Table) -> Part:
    shares = table.column(NEW)
    top, context = table.column("n")[-1], table.column(NEW_CONTEXT)[-1]
    rises = all(b[0] > a[0] for a, b in pairwise(shares))
    middle, low, high = shares[-1]
    is_majority = None if low <= MAJORITY <= high else middle > MAJORITY
    return Part(
        "Sparsity grows with n, until most n-grams of a new text were never seen.",
        is_majority if rises else False,
        f"Of the held-out n-grams {', '.join(_percent(share[0]) for share in shares)} are new at n = 1 to {top}; at n "
        f"= {top} the context is also new for {_percent(context[0])}.",
        f"{OVER_BLOCKS}, n = {top}: {low:.1f} to {high:.1f} %",
    )


def _is_impossible(table: Table) -> Part:
    orders, shares, rest = (table.column(name)[1:] for name in ("n", IMPOSSIBLE, REST))
    lows, highs = [low for _, low, _ in shares], [high for *_, high in shares]
    note = (
        f", and one such token makes the perplexity infinite. That of the other tokens alone, {format_cell(rest[0])} "
        f"and {format_cell(rest[-1])}, leaves out everything that is hard."
    )
    return Part(
        "Counts alone give a new text probability 0.",
        True if min(lows) > 0 else False if min(highs) == 0 else None,
        f"Maximum likelihood gives {_percent(shares[0][0])} of the tokens probability 0 at n = {orders[0]} and "
        f"{_percent(shares[-1][0])} at n = {orders[-1]}{note if max(highs) > 0 else '.'}",
        f"{OVER_BLOCKS}, n = {orders[-1]}: {lows[-1]:.1f} to {highs[-1]:.1f} %",
    )


def _best_order(rows: Mapping[str, Sequence[float]]) -> tuple[str, int]:
    """The best estimator and its best n."""
    names = [(name, n) for name, row in rows.items() for n in range(1, len(row) + 1)]
    return min(names, key=lambda pair: rows[pair[0]][pair[1] - 1])


def _is_fixed(table: Table) -> Part:
    every = rows_by_remedy(table, "smoothing", "back-off", "both")
    impossible = [name for name, row in every.items() if INFINITY in row]
    both = {name: row for name, row in rows_by_remedy(table, "both").items() if name not in impossible}
    name, n = _best_order(both) if both else ("", 1)
    helps = bool(both) and both[name][n - 1] < both[name][0]
    context = (
        f"With both, a longer context helps: from {format_cell(both[name][0])} at n = 1 to "
        f"{format_cell(both[name][n - 1])} at n = {n} with {name}."
        if helps
        else "Even with both, no longer context helps."
    )
    tokens = (
        f"Still impossible under {', '.join(impossible)}." if impossible else "No token has probability 0 any more."
    )
    return Part(
        "Smoothing and back-off make every text possible, and a longer context useful.",
        not impossible and helps,
        f"{tokens} {context}",
        "each token has a probability above 0, or not",
    )


def _table_grows(table: Table) -> Part:
    sizes, compact, entries, ratios = (table.column(name) for name in (FAST, COMPACT, ENTRIES, RATIO))
    usual = min(USUAL_ORDER, len(sizes)) - 1
    return Part(
        "The table grows with n.",
        all(b > a for column in (sizes, compact, entries) for a, b in pairwise(column)),
        f"{format_cell(entries[0])} n-grams at n = 1 become {format_cell(entries[usual])} at n = {usual + 1}. On disk "
        f"{format_cell(sizes[0])} MB become {format_cell(sizes[usual])}, {ratios[usual]:.1f} times the text; the "
        f"compact layout takes {format_cell(compact[usual])}.",
        "counted, not estimated",
    )


def _five_is_enough(table: Table) -> Part:
    gains = list(zip(table.column("n")[1:], table.column(GAIN)[1:], strict=True))
    beyond = [gain for n, gain in gains if n > USUAL_ORDER]
    if not beyond:
        holds = None
    elif any(low > WORTH for _, low, _ in beyond):
        holds = False
    else:
        holds = True if all(high < WORTH for *_, high in beyond) else None
    useful = max((n for n, (_, low, _) in gains if low > WORTH), default=1)
    deciding = [(n, gain) for n, gain in gains if n > USUAL_ORDER] or gains[-1:]
    return Part(
        f"Beyond n = {USUAL_ORDER} a longer context is not worth it: it saves less than {WORTH:g} % of perplexity.",
        holds,
        f"From n = {gains[0][0]} to {gains[-1][0]} each additional word lowers the perplexity by "
        f"{', '.join(f'{gain[0]:.1f} %' for _, gain in gains)} ({BEST}): worth it up to n = {useful}.",
        f"{OVER_BLOCKS}: " + ", ".join(f"n = {n}: {low:.1f} to {high:.1f} %" for n, (_, low, high) in deciding),
    )


def _smoothing_suffices(table: Table) -> Part:
    rows = {name: row for name, row in rows_by_remedy(table, "smoothing").items() if INFINITY not in row}
    name, n = _best_order(rows)
    top, ratio = len(rows[name]), rows[name][-1] / rows[name][n - 1]
    holds = True if n == top else None if ratio < CLEAR else False
    numbers = " ".join(f"{other.capitalize()}: {', '.join(map(format_cell, row))}." for other, row in rows.items())
    why = " The added mass goes to all unseen words equally, and an unseen context makes all words equal."
    return Part(
        "Smoothing alone suffices: with δ added to every count, longer contexts help as well.",
        holds,
        f"{numbers} The best is {format_cell(rows[name][n - 1])}, at n = {n}.{why if holds is False else ''}",
        f"at n = {top} the perplexity is {ratio:.3g} times the best",
        decides=False,
    )


def _backoff_suffices(table: Table, pairs: Table) -> Part:
    row = rows_by_remedy(table, "back-off")[STUPID]
    _, n = _best_order({STUPID: row})
    gains = pairs.column(LOWER, **{"from": STUPID, "to": KATZ})[1:]
    holds: bool | None = all(high <= 0 for *_, high in gains)
    if not holds and not all(low > 0 for _, low, _ in gains):
        holds = None
    why = ": without discounts, n-grams seen once get too much probability" * (holds is False)
    return Part(
        "Back-off alone suffices: seen counts need no discount.",
        holds,
        f"Stupid back-off is best at n = {n} with {format_cell(row[n - 1])}, and has {format_cell(row[-1])} at n = "
        f"{len(row)}. Good-Turing discounts (Katz) lower that by {_signed(gains[0][0])} % at n = 2 and "
        f"{_signed(gains[-1][0])} % at n = {len(row)}{why}.",
        f"{OVER_BLOCKS}, n = {len(row)}: {gains[-1][1]:.1f} to {gains[-1][2]:.1f} %",
        decides=False,
    )


def _interpolation_is_better(pairs: Table) -> Part:
    gains = {
        title: pairs.column(LOWER, **{"from": f"{title}, back-off", "to": f"{title}, interpolated"})[-1]
        for title in TITLES.values()
    }
    holds: bool | None = all(low > 0 for _, low, _ in gains.values())
    if not holds and not any(high < 0 for *_, high in gains.values()):
        holds = None
    amounts = ", ".join(f"{title} by {_signed(gain[0])} %" for title, gain in gains.items())
    bounds = ", ".join(f"{title} {low:.1f} to {high:.1f} %" for title, (_, low, high) in gains.items())
    return Part(
        "Always using the shorter context (interpolation) beats using it only when the longer one fails (back-off).",
        holds,
        f"At n = {max(pairs.column('n'))} interpolation lowers the perplexity of {amounts} (negative: raises it).",
        f"{OVER_BLOCKS}: {bounds}",
        decides=False,
    )


def _all_are_stored(table: Table) -> Part:
    n, possible, stored = (table.column(name)[-1] for name in ("n", POSSIBLE, IN_TEXT))
    return Part(
        "All |V|^n possible n-grams must be stored.",
        stored == possible,
        f"Of {format_cell(possible)} possible n-grams of {n} words the text has {format_cell(stored)}, and only those "
        "are stored: storage grows with the text, not as |V|^n.",
        "counted, not estimated",
        decides=False,
    )


# ------------------------------------------------------------------------------------------------ draw

COLORS = {
    "Witten-Bell": plot.PURPLE,
    "absolute": plot.SKY,
    "Kneser-Ney": plot.GREEN,
    "modified Kneser-Ney": plot.BLUE,
    KATZ: plot.VERMILION,
    STUPID: plot.ORANGE,
}


def draw(tables: Tables, figure: plot.Figure) -> None:
    figure.set_size_inches(13, 7.2)
    sides: Any = figure.subfigures(1, 2, width_ratios=(1, 1.25))
    top, bottom = sides[0].subplots(2, 1)
    _draw_sparsity(tables["sparsity"], top)
    _draw_storage(tables["storage"], bottom)
    _draw_perplexity(tables["perplexity"], *sides[1].subplots(2, 1, sharex=True, height_ratios=(1, 2.6)))


def _draw_sparsity(table: Table, axes: plot.Axes) -> None:
    orders = table.column("n")
    word, context = ([share[0] for share in table.column(name)] for name in (NEW_WORD, NEW_CONTEXT))
    axes.set_title("Sparsity: n-grams of a new text never seen before")
    axes.bar(orders, word, color=plot.ORANGE, width=0.7)
    axes.bar(orders, context, bottom=word, color=plot.VERMILION, width=0.7)
    for n, share in zip(orders, table.column(NEW), strict=True):
        axes.text(n, share[0] + 2, _percent(share[0]), ha="center", fontsize=9, color=plot.INK)
    axes.set(xlabel="n", ylabel="% of the held-out tokens", xticks=orders, ylim=(0, 108))
    axes.grid(axis="x", visible=False)
    labels = [(word[-1] / 2, "context seen, but\nnot with this word:\nneeds smoothing", plot.ORANGE)]
    labels.append((word[-1] + context[-1] / 2, "context new:\nneeds back-off", plot.VERMILION))
    plot.label_lines(axes, labels, gap=0.3)


def _draw_storage(table: Table, axes: plot.Axes) -> None:
    orders = table.column("n")
    axes.set_title("Storage: a model of all n-grams up to n")
    labels = []
    for column, name, color in (
        (FAST, "fast layout", plot.BLUE),
        (COMPACT, "compact layout", plot.GREEN),
        (BITS8, "compact, 8 bits", plot.SKY),
    ):
        y = table.column(column)
        axes.plot(orders, y, "-o", color=color, markersize=4, linewidth=1.8)
        labels.append((y[-1], f"{name}:\n{y[-1]:.3g} MB", color))
    text = table.column(FAST)[-1] / table.column(RATIO)[-1]
    axes.axhline(text, color=plot.GREY, linestyle="--", linewidth=1.2)
    labels.append((text, f"the text: {text:.3g} MB", plot.GREY))
    axes.set(xlabel="n", ylabel="MB on disk", xticks=orders)
    axes.set_ylim(bottom=0)
    plot.label_lines(axes, labels, gap=0.13)


def _draw_perplexity(table: Table, top: plot.Axes, bottom: plot.Axes) -> None:
    """A broken axis: most estimators differ by a few per cent, and adding δ is far above them."""
    rows = rows_by_remedy(table, "smoothing", "back-off", "both")
    orders = range(1, len(table.columns) - 1)
    close = [v for row in rows_by_remedy(table, "back-off", "both").values() for v in row[1:] if v != INFINITY]
    margin = 0.05 * (max(close) - min(close)) or 1.0
    highest = max(v for row in rows.values() for v in row if v != INFINITY)
    bottom.set_ylim(min(close) - margin, max(close) + margin)
    top.set(yscale="log", ylim=(1.15 * (max(close) + margin), 4 * highest))
    ticks = [d * 10**e for e in range(2, 7) for d in (1, 2, 5)]
    ticks = [tick for tick in ticks if top.get_ylim()[0] <= tick <= highest]
    top.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
    top.set_yticks([], minor=True)
    for axes in (top, bottom):
        labels = []
        for name, row in rows.items():
            title, _, form = name.partition(", ")
            remedy = next((f" ({r} alone)" for r in ("smoothing", "back-off") if name in REMEDIES[r]), "")
            color = COLORS.get(title, plot.GREY)
            points = [(n, value) for n, value in zip(orders, row, strict=True) if value != INFINITY]
            style = "--" if form == "back-off" else "-"
            axes.plot(*zip(*points, strict=True), style, marker="o", color=color, markersize=4, linewidth=1.8)
            if (axes is top) == (name in REMEDIES["smoothing"]):
                labels.append((points[-1][1], name + remedy, color))
        if axes is top and INFINITY in rows_by_remedy(table, "neither")[LIKELIHOOD]:
            labels.append((3 * highest, f"{LIKELIHOOD}: {INFINITY} (neither)", plot.INK))
        plot.label_lines(axes, labels, gap=0.05 if axes is bottom else 0.13)
    top.set_title("Perplexity by estimator")
    top.spines["bottom"].set_visible(False)
    top.tick_params(axis="x", length=0)
    top.set_ylabel("logarithmic scale")
    bottom.set(xlabel="n", ylabel="perplexity", xticks=orders)
