"""What n-grams cost and what mends them: sparsity and storage with growing n, and what smoothing and back-off each buy.

A count can fail in two ways. The word was never seen after its context: 0 / c, which smoothing mends by taking from
what was seen. Or the context itself was never seen: 0 / 0, which back-off mends by asking a shorter one. Each estimator
is measured at every n on text that was held out:

    p(w | students opened their) = c(students opened their w) / c(students opened their)

Words are those of the `words` tokenizer; each line end is predicted, and no n-gram reaches over one.

Measuring n-gram models on held-out text, for the study of their sparsity: which n-grams are new, what models cost.

    neither     maximum likelihood                     back-off    stupid back-off, divided by its sum
    smoothing   adding δ to all counts of a context    both        Katz, Witten-Bell, absolute discounting, Kneser-Ney

Intervals are of 95 %, over blocks of the held-out text. Two models are compared token by token on the same blocks.

The figure of the study of n-gram sparsity: what is new in a new text, what is stored, what each remedy buys.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nextword.batching.token_stream import prepare
from nextword.core.io import NAME
from nextword.evaluation.likelihood import bootstrap
from nextword.ngrams.counting import Counted, count_ngrams
from nextword.ngrams.estimators import EITHER, Estimator, estimate
from nextword.ngrams.layouts import build, open_layout
from nextword.ngrams.trie import Level, Trie
from nextword.studies._experiment import corpus_for, enough, held_out
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
    written,
)
from nextword.tokenizers.training import train_tokenizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


COLOURS = {
    "Witten-Bell": PURPLE,
    "absolute": SKY,
    "Kneser-Ney": GREEN,
    "modified Kneser-Ney": BLUE,
    KATZ: VERMILION,
    STUPID: ORANGE,
}
ALONE = ("smoothing", "back-off")


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(13, 7.2)
    sides: Any = figure.subfigures(1, 2, width_ratios=(1, 1.25))
    left, right = sides
    above, below = left.subplots(2, 1)
    _draw_sparsity(tables["sparsity"], above)
    _draw_storage(tables["storage"], below)
    _draw_perplexity(tables["perplexity"], *right.subplots(2, 1, sharex=True, height_ratios=(1, 2.6)))


def _draw_sparsity(table: Table, axes: Any) -> None:
    orders = table.column("n")
    word, lost = ([share[0] for share in table.column(name)] for name in ("word new, %", "context new, %"))
    axes.set_title("Sparsity: how much of a new text was never seen")
    axes.bar(orders, word, color=ORANGE, width=0.7)
    axes.bar(orders, lost, bottom=word, color=VERMILION, width=0.7)
    for n, share in zip(orders, table.column("new when held out, %"), strict=True):
        axes.text(n, share[0] + 2, percent(share[0]), ha="center", fontsize=9, color=INK)
    axes.set(xlabel="n", ylabel="% of the held-out tokens", xticks=orders, ylim=(0, 108))
    axes.grid(axis="x", visible=False)
    labels = [(word[-1] / 2, "the context was seen,\nbut not this word after it:\nfor smoothing", ORANGE)]
    labels.append((word[-1] + lost[-1] / 2, "the context itself\nis new: for back-off", VERMILION))
    beside(axes, labels, gap=0.3)


def _draw_storage(table: Table, axes: Any) -> None:
    orders = table.column("n")
    axes.set_title("Storage: a model of all n-grams up to n")
    labels = []
    for column, name, colour in (
        ("fast, MB", "fast layout", BLUE),
        ("compact, MB", "compact layout", GREEN),
        ("8 bits, MB", "compact, 8 bits", SKY),
    ):
        y = table.column(column)
        axes.plot(orders, y, "-o", color=colour, markersize=4, linewidth=1.8)
        labels.append((y[-1], f"{name}:\n{y[-1]:.3g} MB", colour))
    text = table.column("fast, MB")[-1] / table.column("fast / text")[-1]
    axes.axhline(text, color=GREY, linestyle="--", linewidth=1.2)
    labels.append((text, f"the text: {text:.3g} MB", GREY))
    axes.set(xlabel="n", ylabel="MB on disk", xticks=orders)
    axes.set_ylim(bottom=0)
    beside(axes, labels, gap=0.13)


def _draw_perplexity(table: Table, above: Any, below: Any) -> None:
    """One axis in two parts: most estimators differ by a few per cent, and adding δ is far above them."""
    lines = by_remedy(table, "smoothing", "back-off", "both")
    orders = range(1, len(table.columns) - 1)
    close = [v for row in by_remedy(table, "back-off", "both").values() for v in row[1:] if v != NAME]
    edge = 0.05 * (max(close) - min(close)) or 1.0
    most = max(v for row in lines.values() for v in row if v != NAME)
    below.set_ylim(min(close) - edge, max(close) + edge)
    above.set(yscale="log", ylim=(1.15 * (max(close) + edge), 4 * most))
    ticks = [d * 10**e for e in range(2, 7) for d in (1, 2, 5)]
    above.set_yticks(shown := [t for t in ticks if above.get_ylim()[0] <= t <= most], [f"{t:,}" for t in shown])
    above.set_yticks([], minor=True)
    for axes in (above, below):
        labels = []
        for name, row in lines.items():
            title, _, form = name.partition(", ")
            alone = next((f" ({remedy} alone)" for remedy in ALONE if name in REMEDIES[remedy]), "")
            colour = COLOURS.get(title, GREY)
            at = [(n, value) for n, value in zip(orders, row, strict=True) if value != NAME]
            stroke = "--" if form == "back-off" else "-"
            axes.plot(*zip(*at, strict=True), stroke, marker="o", color=colour, markersize=4, linewidth=1.8)
            if (axes is above) == (name in REMEDIES["smoothing"]):
                labels.append((at[-1][1], name + alone, colour))
        if axes is above and NAME in by_remedy(table, "neither")[LIKELIHOOD]:
            labels.append((3 * most, f"{LIKELIHOOD}: {NAME} (neither)", INK))
        beside(axes, labels, gap=0.05 if axes is below else 0.13)
    above.set_title("Perplexity: what smoothing and back-off buy")
    above.spines["bottom"].set_visible(False)
    above.tick_params(axis="x", length=0)
    above.set_ylabel("logarithmic scale")
    below.set(xlabel="n", ylabel="perplexity", xticks=orders)


CLAIM = Claim(
    "The longer an n-gram, the rarer: most long n-grams of a new text were never seen, so counts alone find the text "
    "impossible, while the table only grows. Smoothing and back-off make it possible; still n is rarely more than 5.",
    "Lecture notes on language models: sparsity and storage problems of n-grams; Chen & Goodman 1998 (the estimators)",
)
TOP = 7  # the longest n-gram
USUAL = 5  # the longest that is said to be worth having
WORTH = 1.0  # per cent of perplexity that one more word of context must buy
MOST = 50.0  # per cent
CLEAR = 1.05  # times: perplexities nearer than this are too near to call without an interval
QUICK = 200_000  # tokens to count
TRAINED, HELD = 5_000, 400  # tokens, at least
TWICE = 2  # a word that occurs but once is <unk>, so that <unk> has been seen


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    corpus = corpus_for(settings.data)
    split = held_out(corpus)
    tokenizer = train_tokenizer({"kind": "words", "min_count": TWICE}, (d.text for d in corpus.documents("train")))
    train, held = prepare(corpus, "train", tokenizer), prepare(corpus, split, tokenizer)
    enough(len(train), TRAINED, "words to count", corpus)
    enough(len(held), HELD, "words held out", corpus)
    ids = np.asarray(train.ids[: QUICK if settings.quick else None])
    size, boundary, seed = len(tokenizer), tokenizer.begin, settings.seeds[0]
    counted: Any = [*count_ngrams(ids, TOP, size, boundary, memory=1 << 60)][-1]
    stream = np.concatenate([[boundary], held.ids]).astype(np.uint32)
    orders, names = range(1, TOP + 1), [name for group in REMEDIES.values() for name in group]
    costs: dict[str, list[np.ndarray]] = {name: [] for name in names}  # nats of each held-out token, by order
    stored = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        longest = seen(counted, stream, path)
        for n in orders:
            part = shorter(counted, n)
            for group in REMEDIES.values():
                for name, how in group.items():
                    trie = estimated(part, how)
                    build(trie, path, "fast")
                    costs[name].append(-open_layout(path).read(stream)[1:].astype(np.float64))
                    if name == BEST:
                        stored.append(stored_in(trie, path))
            progress(n, TOP)
    share = len(ids) / len(train)
    tables = {
        "sparsity": sparsity(counted, longest, stream, seed),
        "storage": storage(stored, train.bytes * share),
        "likelihood": likelihood(costs[LIKELIHOOD], seed),
        "perplexity": Table(
            "Perplexity of the held-out text, by what is done about sparsity",
            ("estimator", "remedy", *(f"n = {n}" for n in orders)),
            tuple(
                (name, remedy, *map(perplexity, costs[name])) for remedy, group in REMEDIES.items() for name in group
            ),
        ),
        "context": context(costs[BEST], seed),
        "pairs": pairs(costs, seed),
    }
    unknown = 100 * float((held.ids == tokenizer.special["<unk>"]).mean())
    return tables, {
        "data": f"{corpus.name} ({corpus.source}): {len(ids):,} tokens counted, {len(held):,} held out ({split})",
        "vocabulary": f"{size:,} words that occur at least twice, split at spaces; closed",
        "conventions": f"each line end is predicted and counted; other words are <unk>, which is a word like others "
        f"({unknown:.1f} % of the held-out tokens)",
        "intervals": f"95 %, 1,000 draws of blocks of the held-out text with seed {seed}; nothing else is random",
    }


def judge(tables: Tables) -> list[Part]:
    return [
        _rarer(tables["sparsity"]),
        _impossible(tables["likelihood"]),
        _mended(tables["perplexity"]),
        _grows(tables["storage"]),
        _enough(tables["context"]),
        _adding(tables["perplexity"]),
        _falling_back(tables["perplexity"], tables["pairs"]),
        _interpolated(tables["pairs"]),
        _all_possible(tables["sparsity"]),
    ]


DRAWN = "95 % interval over blocks of the held-out text"


def _rarer(table: Table) -> Part:
    shares = table.column("new when held out, %")
    top, lost = table.column("n")[-1], table.column("context new, %")[-1]
    rises = all(b[0] > a[0] for a, b in pairwise(shares))
    middle, low, high = shares[-1]
    holds = None if low <= MOST <= high else middle > MOST
    said = ", ".join(percent(share[0]) for share in shares)
    return Part(
        "Sparsity grows with n, until most n-grams of a new text were never seen.",
        judged(holds if rises else False),
        f"Of the held-out n-grams {said} are new at n = 1 to {top}; of those of {top} words {percent(lost[0])} have a "
        "context that is new, too.",
        f"{DRAWN}, n = {top}: {low:.1f} to {high:.1f} %",
    )


def _impossible(table: Table) -> Part:
    orders, shares = table.column("n")[1:], table.column("probability 0, % of tokens")[1:]
    rest = table.column("perplexity of the other tokens")[1:]
    lows, highs = [low for _, low, _ in shares], [high for *_, high in shares]
    holds = True if min(lows) > 0 else False if min(highs) == 0 else None
    hard = ", and one is enough to make the perplexity infinite. That of the other tokens alone, "
    hard += f"{written(rest[0])} and {written(rest[-1])}, leaves out all that is hard."
    return Part(
        "Counts alone find a new text impossible.",
        judged(holds),
        f"Maximum likelihood gives {percent(shares[0][0])} of the tokens probability 0 at n = {orders[0]} and "
        f"{percent(shares[-1][0])} at n = {orders[-1]}{hard if max(highs) > 0 else '.'}",
        f"{DRAWN}, n = {orders[-1]}: {lows[-1]:.1f} to {highs[-1]:.1f} %",
    )


def _least(rows: Mapping[str, Sequence[float]]) -> tuple[str, int]:
    """Which estimator is best at which n."""
    return min(
        ((name, n) for name, row in rows.items() for n in range(1, len(row) + 1)), key=lambda at: rows[at[0]][at[1] - 1]
    )


def _mended(table: Table) -> Part:
    every = by_remedy(table, "smoothing", "back-off", "both")
    ruled_out = [name for name, row in every.items() if NAME in row]
    both = {name: row for name, row in by_remedy(table, "both").items() if name not in ruled_out}
    name, n = _least(both) if both else ("", 1)
    helps = bool(both) and both[name][n - 1] < both[name][0]
    said = (
        f"With both, a longer context helps: from {written(both[name][0])} at n = 1 to {written(both[name][n - 1])} at "
        f"n = {n} with {name}."
        if helps
        else "Even with both, no longer context helps."
    )
    possible = (
        f"Still impossible under {', '.join(ruled_out)}." if ruled_out else "No token has probability 0 any more."
    )
    return Part(
        "Smoothing and back-off make every text possible, and a longer context useful.",
        judged(not ruled_out and helps),
        f"{possible} {said}",
        "each token has a probability above 0, or has not",
    )


def _grows(table: Table) -> Part:
    sizes, entries = table.column("fast, MB"), table.column("all up to n")
    compact, times = table.column("compact, MB"), table.column("fast / text")
    at = min(USUAL, len(sizes))
    rises = all(b > a for column in (sizes, compact, entries) for a, b in pairwise(column))
    return Part(
        "The table grows with n.",
        judged(rises),
        f"{written(entries[0])} n-grams at n = 1 become {written(entries[at - 1])} at n = {at}. On disk "
        f"{written(sizes[0])} MB become {written(sizes[at - 1])}, {times[at - 1]:.1f} times the text; the compact "
        f"layout takes {written(compact[at - 1])}.",
        "counted, not estimated",
    )


def _enough(table: Table) -> Part:
    orders, gains = table.column("n")[1:], table.column("lower than before, %")[1:]
    worth = [n for n, (_, low, _) in zip(orders, gains, strict=True) if low > WORTH]
    beyond = [gain for n, gain in zip(orders, gains, strict=True) if n > USUAL]
    if not beyond:
        holds = None
    elif any(low > WORTH for _, low, _ in beyond):
        holds = False
    else:
        holds = True if all(high < WORTH for *_, high in beyond) else None
    last = max(worth, default=1)
    said = ", ".join(f"{gain[0]:.1f} %" for gain in gains)
    return Part(
        f"Beyond n = {USUAL} a longer context is not worth having: it buys less than {WORTH:g} % of perplexity.",
        judged(holds),
        f"From n = {orders[0]} to {orders[-1]} each further word lowers the perplexity by {said} ({BEST}): worth it "
        f"up to n = {last}.",
        f"{DRAWN}: " + ", ".join(f"n = {n}: {low:.1f} to {high:.1f} %" for n, (_, low, high) in _beyond(orders, gains)),
    )


def _beyond(orders: Sequence[int], gains: Sequence[Any]) -> list[tuple[int, Any]]:
    """The orders that decide, or the last where none does."""
    both = list(zip(orders, gains, strict=True))
    return [pair for pair in both if pair[0] > USUAL] or both[-1:]


def _adding(table: Table) -> Part:
    rows = {name: row for name, row in by_remedy(table, "smoothing").items() if NAME not in row}
    name, n = _least(rows)
    top, times = len(rows[name]), rows[name][-1] / rows[name][n - 1]
    holds = True if n == top else None if times < CLEAR else False
    said = " ".join(f"{other[:1].upper() + other[1:]}: {', '.join(map(written, row))}." for other, row in rows.items())
    why = " What is added goes to all unseen words alike, and an unseen context leaves all words alike."
    return Part(
        "Smoothing alone is enough: with δ added to every count, longer contexts help as well.",
        judged(holds),
        f"{said} The best is {written(rows[name][n - 1])}, at n = {n}.{why if holds is False else ''}",
        f"at n = {top} the perplexity is {times:.3g} times the best",
        decides=False,
    )


def _falling_back(table: Table, differences: Table) -> Part:
    alone = by_remedy(table, "back-off")[STUPID]
    _, n = _least({STUPID: alone})
    why = ": what was seen once is believed too much"
    gains = differences.column("lower, %", **{"from": STUPID, "to": KATZ})[1:]
    holds: bool | None = all(high <= 0 for *_, high in gains)
    if not holds and not all(low > 0 for _, low, _ in gains):
        holds = None
    return Part(
        "Back-off alone is enough: nothing need be taken from the counts of what was seen.",
        judged(holds),
        f"Stupid back-off is at its best at n = {n} with {written(alone[n - 1])}, and has {written(alone[-1])} at n = "
        f"{len(alone)}. Good-Turing's discounts, which make it Katz's, lower that by {_signed(gains[0][0])} % at n = 2 "
        f"and {_signed(gains[-1][0])} % at n = {len(alone)}{why * (holds is False)}.",
        f"{DRAWN}, n = {len(alone)}: {gains[-1][1]:.1f} to {gains[-1][2]:.1f} %",
        decides=False,
    )


def _signed(value: float) -> str:
    return f"{value:.0f}".replace("-0", "0").replace("-", "−")


def _interpolated(differences: Table) -> Part:
    gains = {}
    for title in TITLES.values():
        gains[title] = differences.column("lower, %", **{"from": f"{title}, back-off", "to": f"{title}, interpolated"})[
            -1
        ]
    top = max(differences.column("n"))
    holds: bool | None = all(low > 0 for _, low, _ in gains.values())
    if not holds and not any(high < 0 for *_, high in gains.values()):
        holds = None
    said = ", ".join(f"{title} by {_signed(gain[0])} %" for title, gain in gains.items())
    bounds = ", ".join(f"{title} {low:.1f} to {high:.1f} %" for title, (_, low, high) in gains.items())
    return Part(
        "Asking the shorter context always (interpolation) is better than only where the longer one fails (back-off).",
        judged(holds),
        f"At n = {top} interpolation lowers the perplexity of {said} (below 0: raises it).",
        f"{DRAWN}: {bounds}",
        decides=False,
    )


def _all_possible(table: Table) -> Part:
    n, possible, found = (table.column(name)[-1] for name in ("n", "possible, |V|^n", "in the text"))
    return Part(
        "All |V|^n n-grams that could be must be stored.",
        judged(found == possible),
        f"Of {written(possible)} n-grams of {n} words that could be the text has {written(found)}, and only those are "
        "stored: storage grows with the text, not as |V|^n.",
        "counted, not estimated",
        decides=False,
    )
