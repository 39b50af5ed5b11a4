"""How fast models grow with the vocabulary |V| and the order N: an n-gram table against Bengio's network.

Claim: the table of an n-gram model grows as O(|V|^N), a neural probabilistic language model only as O(|V|·N·m)
(Bengio et al. 2003).

Measured at each (|V|, N): possible entries (arithmetic), entries that a text fills (counted), and parameters of the
network (built on torch's meta device, which has shapes but no memory).

Verdict: one more word of vocabulary, and one more word of context, must always cost the network the same number of
parameters, within 1 %. A log-log fit would be bent by the constant terms. What an n-gram model really stores, the
n-grams that occur, is a side result.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any

import numpy as np
import torch

from nextword.core.types import Vocabulary
from nextword.models.nplm import NPLM, NPLMConfig
from nextword.studies import _figures as plot
from nextword.studies._experiment import describe_corpus, open_text, require, split_words
from nextword.studies._statistics import fit_power_law, format_cell, marginal_costs, median_and_range
from nextword.studies._study import Claim, Measured, Part, Progress, Settings, Table, Tables

CLAIM = Claim(
    "The table of an n-gram model grows as O(|V|^N), a neural probabilistic language model only as O(|V|·N·m).",
    "Bengio et al. 2003, sections 1 and 2 (the count of free parameters); lecture notes on neural language models: "
    "parameter counts",
)
SIZES = (250, 500, 1000, 2000, 4000, 8000)
ORDERS = (1, 2, 3, 4, 5)
NETWORK = NPLMConfig(embedding=64, width=128)  # m and h of the lecture notes' WikiText-2 network
SHARES = (1 / 8, 1 / 4, 1 / 2, 1.0)  # of the documents, to see how the stored n-grams grow with the text
CONSTANT = 0.01  # a cost that varies less than this over all sizes is constant

HALVES, IN_LENGTH = "stored, random halves", "stored, by text length"


# ------------------------------------------------------------------------------------------------ measure


def measure(settings: Settings, progress: Progress) -> Measured:
    corpus = open_text(settings.data)
    texts = list(split_words(corpus))
    counts = Counter(chain.from_iterable(texts))
    require(len(counts), 4 * SIZES[0], "different words", corpus)
    sizes = [size for size in SIZES if size <= len(counts)]
    if settings.quick and len(sizes) > 4:
        sizes = sizes[::2]
    ranks = {word: i + 1 for i, (word, _) in enumerate(counts.most_common())}  # 0 is <unk>
    documents = [np.array([ranks[word] for word in text], dtype=np.int64) for text in texts if text]
    done, total = 0, (1 + len(settings.seeds)) * len(sizes) + len(SHARES)

    def count(part: list[np.ndarray], size: int) -> list[int]:
        nonlocal done
        done += 1
        progress(done, total)
        return count_ngrams(part, size)

    stored = {size: count(documents, size) for size in sizes}
    exponents: list[list[float]] = [[] for _ in ORDERS]  # by order and seed
    for seed in settings.seeds:
        half = sample(documents, 0.5, seed)
        for i, by_size in enumerate(zip(*(count(half, size) for size in sizes), strict=True)):
            exponents[i].append(fit_power_law(sizes, by_size).exponent)
    parts = [sample(documents, share, settings.seeds[0]) for share in SHARES]
    by_length = [(sum(map(len, part)), count(part, sizes[-1])) for part in parts]
    return {
        "growth": _growth(sizes, stored, exponents, by_length),
        "sizes": _sizes(sizes, stored),
        "text": Table(
            f"Distinct n-grams in a growing text, |V| = {sizes[-1]:,}",
            ("words of text", *(f"N = {n}" for n in ORDERS)),
            tuple((length, *distinct) for length, distinct in by_length),
            detailed=True,
        ),
    }, {
        "data": f"{describe_corpus(corpus)}, train: {by_length[-1][0]:,} words, {len(counts):,} distinct",
        "vocabularies": sizes,
        "network": f"NPLM with m = {NETWORK.embedding}, h = {NETWORK.width}",
        "sampling": f"{len(settings.seeds)} random halves of the documents",
    }


def count_ngrams(documents: list[np.ndarray], size: int) -> list[int]:
    """Distinct n-grams of each order if all but the size − 1 most frequent words are <unk>.

    An n-gram is identified by the number of its first n − 1 words, from the step before, and its last word.
    """
    ids = np.concatenate(documents)
    ids[ids >= size] = 0
    lengths = np.array([len(d) for d in documents])
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(ids))  # words to the end of the document
    starts, prefix, counts = np.arange(len(ids)), ids, [len(np.unique(ids))]
    for n in ORDERS[1:]:
        inside = left[starts] >= n  # n-grams do not cross documents
        starts = starts[inside]
        distinct, prefix = np.unique(prefix[inside] * size + ids[starts + n - 1], return_inverse=True)
        counts.append(len(distinct))
    return counts


def sample(documents: list[np.ndarray], share: float, seed: int) -> list[np.ndarray]:
    if share >= 1:
        return documents
    chosen = np.random.default_rng(seed).permutation(len(documents))[: max(1, round(share * len(documents)))]
    return [documents[i] for i in sorted(chosen)]


def count_parameters(size: int, order: int, direct: bool) -> dict[str, int]:
    """Of the network, by part: embedding C; inner H and d; readout U, W and b."""
    config = NPLMConfig(order - 1, NETWORK.embedding, NETWORK.width, direct)
    with torch.device("meta"):
        network = NPLM(config, Vocabulary(size, begin=0))
    return {name: sum(p.numel() for p in part.parameters()) for name, part in network.named_children()}


def _sizes(sizes: list[int], stored: dict[int, list[int]]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for size in sizes:
        for n in ORDERS:
            row: tuple[Any, ...] = (size, n, size**n, stored[size][n - 1])
            if n > 1:  # a network of order 1 would have no input
                full = count_parameters(size, n, direct=True)
                row += (sum(full.values()), sum(count_parameters(size, n, direct=False).values()))
                row += (full["embedding"], full["inner"], full["readout"])
            rows.append(row + (None,) * (9 - len(row)))
    columns = ("|V|", "N", "possible", "stored", "NPLM", "NPLM without W", "C", "H and d", "U, W and b")
    return Table("Entries of the table and parameters of the network", columns, rows, detailed=True)


def _growth(sizes: list[int], stored: dict[int, list[int]], halves: list[list[float]], by_length: list[Any]) -> Table:
    rows = []
    for i, n in enumerate(ORDERS):
        network = [sum(count_parameters(size, n, direct=True).values()) for size in sizes] if n > 1 else []
        fit = fit_power_law(sizes, network) if network else (None, None)
        possible = fit_power_law(sizes, [size**n for size in sizes]).exponent
        in_text = fit_power_law(sizes, [stored[size][i] for size in sizes]).exponent
        in_length = fit_power_law([length for length, _ in by_length], [counts[i] for _, counts in by_length]).exponent
        rows.append((n, possible, in_text, median_and_range(halves[i]), in_length, *fit))
    columns = ("N", "possible", "stored", HALVES, IN_LENGTH, "NPLM", "NPLM R²")
    return Table("Exponent of |V| at each order (and of the text length)", columns, rows)


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    sizes, growth = tables["sizes"], tables["growth"]
    vocabularies = sorted(set(sizes.column("|V|")))
    orders = sorted(n for n in set(sizes.column("N")) if n > 1)
    largest, top = vocabularies[-1], orders[-1]

    def parameters(size: int, n: int) -> int:
        return int(sizes.cell("NPLM", **{"|V|": size, "N": n}))

    cheap = max(marginal_costs(orders, sizes.column("NPLM without W", **{"|V|": largest})[1:]))
    off = max(abs(e - n) for n, e in zip(growth.column("N"), growth.column("possible"), strict=True))
    return [
        _is_linear(
            "The network grows linearly with |V|.",
            {n: (vocabularies, [parameters(v, n) for v in vocabularies]) for n in orders},
            f"At N = {top} each additional word of vocabulary costs",
        ),
        _is_linear(
            "The network grows linearly with N.",
            {v: (orders, [parameters(v, n) for n in orders]) for v in vocabularies},
            f"At |V| = {largest:,} each additional word of context costs",
            f" (without the direct connections W {format_cell(cheap)}: the term |V|·N·m comes from them alone)",
        ),
        Part(
            "The table of all n-grams grows as |V|^N.",
            off < 1e-6,
            "The number of possible n-grams is |V|^N.",
            "arithmetic, nothing to measure",
        ),
        _stored_grows(sizes, growth, largest, top),
    ]


def _is_linear(statement: str, curves: dict[int, tuple[list[int], list[int]]], costs: str, note: str = "") -> Part:
    steps = {key: marginal_costs(x, y) for key, (x, y) in curves.items()}
    spread = max(max(cost) / min(cost) - 1 if min(cost) > 0 else np.inf for cost in steps.values())
    is_known = all(len(cost) >= 2 for cost in steps.values())
    low, high = min(steps[max(steps)]), max(steps[max(steps)])
    cost = f"{low:,.0f}" if high - low < 0.5 else f"{low:,.0f} to {high:,.0f}"
    return Part(
        statement,
        spread <= CONSTANT if is_known else None,
        f"{costs} {cost} parameters{', at every size' if spread <= CONSTANT else ''}{note}.",
        f"counted, not estimated: the cost varies by {100 * spread:.2g} %",
    )


def _stored_grows(sizes: Table, growth: Table, largest: int, top: int) -> Part:
    """What a real n-gram model stores. The claim is not about it, but it is what fills the disk."""
    middle, low, high = growth.cell(HALVES, N=3)
    trigrams, in_length = growth.cell("stored", N=3), growth.cell(IN_LENGTH, N=top)
    entries = [int(sizes.cell("stored", **{"|V|": largest, "N": n})) for n in range(1, top + 1)]
    network = int(sizes.cell("NPLM", **{"|V|": largest, "N": top}))
    compared = "fewer than" if sum(entries) < network else "more than"
    return Part(
        "The n-grams that occur, which a model really stores, also grow as |V|^N.",
        None if low < 2.5 < high else middle >= 2.5,  # nearer to 3 than to 2
        f"A text fills only {entries[-1] / largest**top:.0e} of the {top}-gram table, and the stored trigrams grow as "
        f"|V|^{trigrams:.2f}; they grow with the text instead ({top}-grams as its length^{in_length:.2f}). A "
        f"{top}-gram model of this text stores {format_cell(sum(entries))} entries of all orders, {compared} the "
        f"network's {format_cell(network)} parameters.",
        f"trigram exponent over random halves of the text: median {middle:.3f}, range {low:.3f} to {high:.3f}",
        decides=False,
    )


# ------------------------------------------------------------------------------------------------ draw


def draw(tables: Tables, figure: plot.Figure) -> None:
    figure.set_size_inches(12, 5.4)
    left, right = figure.subplots(1, 2, sharey=True)
    _draw_by_vocabulary(tables["sizes"], left)
    _draw_by_order(tables["sizes"], right)


def _draw_by_vocabulary(table: Table, axes: plot.Axes) -> None:
    x = sorted(set(table.column("|V|")))
    axes.set(
        xscale="log", yscale="log", xlabel="vocabulary size |V|", ylabel="entries or parameters", title="By vocabulary"
    )
    labels = []
    for column, color, style in (
        ("possible", plot.VERMILION, "--"),
        ("stored", plot.GREEN, "-o"),
        ("NPLM", plot.BLUE, "-s"),
    ):
        for n in (2, 3, 5) if column != "NPLM" else (5,):
            y = [float(value) for value in table.column(column, N=n)]
            axes.plot(x, y, style, color=color, markersize=4, linewidth=1.6)
            slope = fit_power_law(x, y).exponent
            labels.append((y[-1], f"{column}, N = {n}: $|V|^{{{slope:.2f}}}$".replace(".00}", "}"), color))
    axes.set_xticks(x, [f"{v:,}" for v in x], color=plot.INK)
    axes.set_xticks([], minor=True)
    plot.label_lines(axes, labels)


def _draw_by_order(table: Table, axes: plot.Axes) -> None:
    largest = max(table.column("|V|"))
    axes.set(
        xlabel="order N: words in an n-gram, context + 1 of the network",
        xticks=ORDERS,
        title=f"By order, |V| = {largest:,}",
    )
    labels = []
    for column, color, style, name in (
        ("possible", plot.VERMILION, "--", "possible\nn-grams, $|V|^N$"),
        ("stored", plot.GREEN, "-o", "n-grams in\nthe text"),
        ("NPLM", plot.BLUE, "-s", "NPLM, $|V|·N·m$"),
        ("NPLM without W", plot.GREY, "-^", "NPLM without W"),
    ):
        values = table.column(column, **{"|V|": largest})
        points = [(n, value) for n, value in zip(ORDERS, values, strict=True) if value is not None]
        axes.plot(*zip(*points, strict=True), style, color=color, markersize=4, linewidth=1.6)
        labels.append((float(points[-1][1]), name, color))
    plot.label_lines(axes, labels, gap=0.07)
    axes.tick_params(labelleft=True)
