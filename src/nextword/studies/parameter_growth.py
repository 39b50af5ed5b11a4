"""How fast models grow with the vocabulary |V| and the order N: the n-gram's table against Bengio's network.

An n-gram model "has" |V|^N entries, one for each N words that could follow each other. A text fills only some of them,
and a model that is stored as a list has only those. So three things are counted at each (|V|, N): entries that could be
(arithmetic), entries that the text fills (counted in it), and parameters of the network (built, on torch's meta device,
which gives shapes and no memory).
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nextword.core.types import Vocabulary
from nextword.models.nplm import NPLM, NPLMConfig
from nextword.studies._experiment import corpus_for, enough, word_lists
from nextword.studies._study import (
    BLUE,
    GREEN,
    GREY,
    INK,
    VERMILION,
    Claim,
    Part,
    Progress,
    Settings,
    Table,
    Tables,
    beside,
    growth,
    judged,
    marginal,
    over_seeds,
    written,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = Claim(
    "The table of an n-gram model grows as O(|V|^N), a neural probabilistic language model only as O(|V|·N·m).",
    "Bengio et al. 2003, sections 1 and 2 (the count of free parameters); lecture notes on neural language models: "
    "parameter counts",
)
SIZES = (250, 500, 1000, 2000, 4000, 8000)
ORDERS = (1, 2, 3, 4, 5)
NETWORK = NPLMConfig(embedding=64, width=128)  # m and h of the lecture notes' WikiText-2 network
SHARES = (1 / 8, 1 / 4, 1 / 2, 1.0)  # of the documents: how the list of filled entries grows with the text
STEADY = 0.01  # a price that moves less than this over all sizes is one price


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    corpus = corpus_for(settings.data)
    texts = list(word_lists(corpus))
    counts = Counter(chain.from_iterable(texts))
    enough(len(counts), 4 * SIZES[0], "different words", corpus)
    sizes = [size for size in SIZES if size <= len(counts)]
    if settings.quick:
        sizes = sizes[::2] if len(sizes) > 4 else sizes
    ranks = {word: i + 1 for i, (word, _) in enumerate(counts.most_common())}  # 0 is left for the words without a place
    documents = [np.array([ranks[word] for word in text], dtype=np.int64) for text in texts if text]
    done, total = 0, (1 + len(settings.seeds)) * len(sizes) + len(SHARES)

    def advance() -> None:
        nonlocal done
        done += 1
        progress(done, total)

    stored = {}
    for size in sizes:
        stored[size] = filled(documents, size)
        advance()
    halves: list[list[float]] = [[] for _ in ORDERS]  # exponents, by order, one a seed
    for seed in settings.seeds:
        half = sample(documents, 0.5, seed)
        by_size = []
        for size in sizes:
            by_size.append(filled(half, size))
            advance()
        for i, per_order in enumerate(zip(*by_size, strict=True)):
            halves[i].append(growth(sizes, per_order).exponent)
    lengths = []
    for share in SHARES:
        part = sample(documents, share, settings.seeds[0])
        lengths.append((sum(map(len, part)), filled(part, sizes[-1])))
        advance()

    tables = {
        "growth": _growth_table(sizes, stored, halves, lengths),
        "sizes": _size_table(sizes, stored),
        "text": Table(
            f"Different n-grams in a growing text, |V| = {sizes[-1]:,}",
            ("words of text", *(f"N = {n}" for n in ORDERS)),
            tuple((length, *found) for length, found in lengths),
            detailed=True,
        ),
    }
    words = lengths[-1][0]
    return tables, {
        "data": f"{corpus.name} ({corpus.source}), train: {words:,} words, {len(counts):,} different",
        "vocabularies": sizes,
        "network": f"NPLM with m = {NETWORK.embedding}, h = {NETWORK.width}",
        "sampling": f"{len(settings.seeds)} random halves of the documents",
    }


def filled(documents: list[np.ndarray], size: int) -> list[int]:
    """How many different n-grams of each order a text has, when all but its size − 1 commonest words are <unk>.

    An n-gram is its first n − 1 words, numbered by the step before, and one word: two numbers that make one.
    """
    ids = np.concatenate(documents)
    ids[ids >= size] = 0
    lengths = np.array([len(d) for d in documents])
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(ids))  # words from here to the document's end
    starts, prefix, found = np.arange(len(ids)), ids, [len(np.unique(ids))]
    for n in ORDERS[1:]:
        inside = left[starts] >= n  # n-grams do not reach over the end of a document
        starts = starts[inside]
        different, prefix = np.unique(prefix[inside] * size + ids[starts + n - 1], return_inverse=True)
        found.append(len(different))
    return found


def sample(documents: list[np.ndarray], share: float, seed: int) -> list[np.ndarray]:
    if share >= 1:
        return documents
    chosen = np.random.default_rng(seed).permutation(len(documents))[: max(1, round(share * len(documents)))]
    return [documents[i] for i in sorted(chosen)]


def network_parameters(size: int, order: int, direct: bool) -> dict[str, int]:
    """Counted in the real network, by part: embedding C, inner H and d, readout U, W and b."""
    config = NPLMConfig(order - 1, NETWORK.embedding, NETWORK.width, direct)
    with torch.device("meta"):
        network = NPLM(config, Vocabulary(size, begin=0))
    return {name: sum(p.numel() for p in part.parameters()) for name, part in network.named_children()}


def _size_table(sizes: list[int], stored: dict[int, list[int]]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for size in sizes:
        for n in ORDERS:
            row: tuple[Any, ...] = (size, n, size**n, stored[size][n - 1])
            if n > 1:  # a network of order 1 would have no input
                full = network_parameters(size, n, direct=True)
                row += (sum(full.values()), sum(network_parameters(size, n, direct=False).values()))
                row += (full["embedding"], full["inner"], full["readout"])
            rows.append(row + (None,) * (9 - len(row)))
    columns = ("|V|", "N", "possible", "stored", "NPLM", "NPLM without W", "of it C", "of it H, d", "of it U, W, b")
    return Table("Entries of the table and parameters of the network", columns, tuple(rows), detailed=True)


def _growth_table(
    sizes: list[int], stored: dict[int, list[int]], halves: list[list[float]], lengths: list[Any]
) -> Table:
    rows = []
    for i, n in enumerate(ORDERS):
        nets = [sum(network_parameters(size, n, direct=True).values()) if n > 1 else 0 for size in sizes]
        in_text = growth([length for length, _ in lengths], [found[i] for _, found in lengths])
        rows.append(
            (
                n,
                growth(sizes, [size**n for size in sizes]).exponent,
                growth(sizes, [stored[size][i] for size in sizes]).exponent,
                over_seeds(halves[i]),
                in_text.exponent,
                growth(sizes, nets).exponent if n > 1 else None,
                growth(sizes, nets).r2 if n > 1 else None,
            )
        )
    columns = ("N", "possible", "stored", "stored, half the text", "stored, in text length", "NPLM", "NPLM R²")
    return Table("Exponent of |V| at each order (and of the text's length)", columns, tuple(rows))


def judge(tables: Tables) -> list[Part]:
    sizes, exponents = tables["sizes"], tables["growth"]
    vocabularies = sorted(set(sizes.column("|V|")))
    orders = sorted(n for n in set(sizes.column("N")) if n > 1)
    largest, top = vocabularies[-1], orders[-1]
    cheap = max(marginal(orders, sizes.column("NPLM without W", **{"|V|": largest})[1:]))
    return [
        _linear(
            "The network grows linearly with |V|.",
            {n: (vocabularies, [int(sizes.cell("NPLM", **{"|V|": v, "N": n})) for v in vocabularies]) for n in orders},
            f"At N = {top} each further word of the vocabulary costs the network",
        ),
        _linear(
            "The network grows linearly with N.",
            {v: (orders, [int(sizes.cell("NPLM", **{"|V|": v, "N": n})) for n in orders]) for v in vocabularies},
            f"At |V| = {largest:,} each further word of context costs",
            f" (without the direct connections W {written(cheap)}: the term |V|·N·m is theirs alone)",
        ),
        _dense(exponents),
        _sparse(sizes, exponents, largest, top),
    ]


def _linear(says: str, curves: dict[int, tuple[list[int], list[int]]], costs: str, aside: str = "") -> Part:
    """Linear is: every step has the same price. Log-log slopes would be bent by what does not grow."""
    prices = {key: marginal(x, y) for key, (x, y) in curves.items()}
    spread = max(max(p) / min(p) - 1 if min(p) > 0 else np.inf for p in prices.values())
    known = all(len(p) >= 2 for p in prices.values())
    low, high = min(prices[max(prices)]), max(prices[max(prices)])
    price = f"{low:,.0f}" if high - low < 0.5 else f"{low:,.0f} to {high:,.0f}"
    return Part(
        says,
        judged(spread <= STEADY if known else None),
        f"{costs} {price} parameters{', no matter how many there are' if spread <= STEADY else ''}{aside}.",
        f"counted, not estimated: the price varies by {100 * spread:.2g} %",
    )


def _dense(exponents: Table) -> Part:
    off = max(abs(e - n) for n, e in zip(exponents.column("N"), exponents.column("possible"), strict=True))
    return Part(
        "The table of all n-grams grows as |V|^N.",
        judged(off < 1e-6),
        "The n-grams that could be are |V|^N.",
        "arithmetic, nothing to measure",
    )


def _sparse(sizes: Table, exponents: Table, largest: int, top: int) -> Part:
    """The list a real n-gram model keeps. It is no part of the claim, yet it is what fills a disk."""
    middle, low, high = exponents.cell("stored, half the text", N=3)
    whole, in_text = exponents.cell("stored", N=3), exponents.cell("stored, in text length", N=top)
    kept = sum(int(sizes.cell("stored", **{"|V|": largest, "N": n})) for n in range(1, top + 1))
    network = int(sizes.cell("NPLM", **{"|V|": largest, "N": top}))
    share = int(sizes.cell("stored", **{"|V|": largest, "N": top})) / largest**top
    holds = None if low < 2.5 < high else middle >= 2.5  # nearer to 3 than to 2
    compared = "fewer than" if kept < network else "more than"
    return Part(
        "What an n-gram model stores, the n-grams that occur, grows as |V|^N too.",
        judged(holds),
        f"Yet a text fills only {share:.0e} of the {top}-gram table, and the trigrams stored grow as |V|^{whole:.2f}; "
        f"they grow with the text instead ({top}-grams as its length^{in_text:.2f}). A {top}-gram model of this text, "
        f"all orders together, stores {written(kept)} entries, {compared} the network's {written(network)} parameters.",
        f"trigram exponent over random halves of the text: median {middle:.3f}, range {low:.3f} to {high:.3f}",
        decides=False,
    )


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(12, 5.4)
    left, right = figure.subplots(1, 2, sharey=True)
    _against_vocabulary(tables, left)
    _against_order(tables["sizes"], right)


def _against_vocabulary(tables: Tables, axes: Any) -> None:
    sizes = tables["sizes"]
    x = sorted(set(sizes.column("|V|")))
    axes.set(xscale="log", yscale="log", xlabel="words in the vocabulary, |V|", ylabel="entries or parameters")
    axes.set_title("With the vocabulary")
    labels = []
    for column, colour, mark in (("possible", VERMILION, "--"), ("stored", GREEN, "-o"), ("NPLM", BLUE, "-s")):
        for n in (2, 3, 5) if column != "NPLM" else (5,):
            y = [float(value) for value in sizes.column(column, N=n)]
            axes.plot(x, y, mark, color=colour, markersize=4, linewidth=1.6)
            slope = growth(x, y).exponent
            labels.append((y[-1], f"{column}, N = {n}: $|V|^{{{slope:.2f}}}$".replace(".00}", "}"), colour))
    _ticks(axes, x)
    beside(axes, labels)


def _against_order(sizes: Table, axes: Any) -> None:
    largest = max(sizes.column("|V|"))
    axes.set(xlabel="order N: words in an n-gram, context + 1 in the network", xticks=ORDERS)
    axes.set_title(f"With the order, |V| = {largest:,}")
    labels = []
    for column, colour, mark, name in (
        ("possible", VERMILION, "--", "n-grams that\ncould be, $|V|^N$"),
        ("stored", GREEN, "-o", "n-grams in\nthe text"),
        ("NPLM", BLUE, "-s", "NPLM, $|V|·N·m$"),
        ("NPLM without W", GREY, "-^", "NPLM without W"),
    ):
        found = [(n, v) for n, v in zip(ORDERS, sizes.column(column, **{"|V|": largest}), strict=True) if v is not None]
        axes.plot(*zip(*found, strict=True), mark, color=colour, markersize=4, linewidth=1.6)
        labels.append((float(found[-1][1]), name, colour))
    beside(axes, labels, gap=0.07)
    axes.tick_params(labelleft=True)


def _ticks(axes: Any, x: list[int]) -> None:
    axes.set_xticks(x, [f"{v:,}" for v in x], color=INK)
    axes.set_xticks([], minor=True)
