"""What n-grams cost and what mends them: sparsity and storage with growing n, and what smoothing and back-off each buy.

A count can fail in two ways. The word was never seen after its context: 0 / c, which smoothing mends by taking from
what was seen. Or the context itself was never seen: 0 / 0, which back-off mends by asking a shorter one. Each estimator
is measured at every n on text that was held out:

    p(w | students opened their) = c(students opened their w) / c(students opened their)

Words are those of the `words` tokenizer; each line end is predicted, and no n-gram reaches over one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from nextword.batching.prepare import prepare
from nextword.infinity import NAME
from nextword.ngrams.counting import count_ngrams
from nextword.ngrams.layouts import build, open_layout
from nextword.studies.measures import written
from nextword.studies.ngram_figure import draw
from nextword.studies.ngram_models import (
    BEST,
    KATZ,
    LIKELIHOOD,
    REMEDIES,
    STUPID,
    TITLES,
    by_remedy,
    context,
    estimated,
    likelihood,
    pairs,
    percent,
    perplexity,
    seen,
    shorter,
    sparsity,
    storage,
    stored_in,
)
from nextword.studies.study import Claim, Part, Progress, Settings, Table, Tables, judged
from nextword.studies.text import corpus_for, enough, held_out
from nextword.tokens import train_tokenizer

__all__ = ["CLAIM", "draw", "judge", "measure"]
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
