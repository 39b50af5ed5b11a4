"""From counts to probabilities: the classic estimators, each as a back-off model.

Every estimator answers two questions about a context h: which probability does each word seen after h get, and which
mass m(h) is left for the others? That mass goes to the next shorter context h′.

    estimator             seen after h: c of C occurrences, T distinct words                   free mass m(h)
    maximum-likelihood    c / C                                                               none
    additive              (c + δ) / (C + δV), longest context only                            δ for every word
    witten-bell           c / (C + T)                                                         T / (C + T)
    absolute              (c − D) / C                                                         the discounts
    kneser-ney            (c − D) / C, with continuation counts below the highest order       the discounts
    modified-kneser-ney   (c − D(c)) / C, the same, with D for counts 1, 2 and 3+             the discounts
    good-turing           d(c) · c / C (Katz)                                                 the discounts
    stupid                (c / C) / Z                                                         α / Z

    interpolated   p(w | h) = seen(w) + m(h) · p(w | h′) for all words
    back-off       p(w | h) = seen(w), and m(h) is divided among the unseen words in proportion to p(w | h′)

The discounts D are in discounts.py, continuation counts in counting.py (`NgramCounts.continuation_counts`), and the
formulas of this table in `smooth_contexts` below.

Below unigrams is the uniform distribution over the vocabulary. Nothing precedes the beginning of a sentence, so its
n-grams keep their own counts. Stupid back-off (Brants et al. 2007) is divided by its sum Z, so that it is a
distribution. A context that would leave nothing for unseen words, although there are some, gets one more count.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from nextword.core.errors import did_you_mean, invalid
from nextword.core.jit import jit
from nextword.ngrams.counting import NgramCounts, blocks, counts_of_counts, release_pages, run_in_blocks
from nextword.ngrams.discounts import DISCOUNTS, MAX_COUNT, check_discounts, discounts_of_order
from nextword.ngrams.trie import Level, Trie

INTERPOLABLE = ("witten-bell", "absolute", "kneser-ney", "modified-kneser-ney")  # have both forms
KINDS = ("maximum-likelihood", "additive", *INTERPOLABLE, "good-turing", "stupid")
USES_CONTINUATION_COUNTS = ("kneser-ney", "modified-kneser-ney")
DISCOUNT, WITTEN_BELL, LIKELIHOOD, ADDITIVE, STUPID = range(5)  # formulas of `smooth_contexts`
MODES = {
    "maximum-likelihood": LIKELIHOOD,
    "additive": ADDITIVE,
    "witten-bell": WITTEN_BELL,
    "stupid": STUPID,
    **dict.fromkeys(DISCOUNTS, DISCOUNT),
}

# ------------------------------------------------------------------------------------------------ settings

EXPECTED = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    tuple: "a list by order, such as [0, 0, 1]",
}


@dataclass(frozen=True)
class Estimator:
    kind: str = "modified-kneser-ney"
    interpolated: bool = True  # if both forms exist
    add: float = 1.0  # δ of `additive`: 1 is Laplace's, less is Lidstone's
    alpha: float = 0.4  # of `stupid`
    cutoff: int = 5  # of `good-turing`: higher counts are not discounted
    discounts: tuple[Sequence[float], ...] = ()  # a list per order; empty: from the counts of counts
    prune: tuple[int, ...] = ()  # drop n-grams that occur at most this often, by order; the last holds for all above
    entropy: float = 0.0  # drop n-grams whose loss raises the perplexity by less than this fraction
    memory: str = ""  # such as "2GB"; empty: half of the machine's
    on_disk: bool = False  # count through disk even if memory suffices

    def __post_init__(self) -> None:
        _require("kind", self.kind, self.kind in KINDS, f"one of {', '.join(KINDS)}")
        _require("add", self.add, 0 < self.add < float("inf"), "a number above 0")
        _require("alpha", self.alpha, 0 < self.alpha < float("inf"), "a number above 0")
        _require("entropy", self.entropy, self.entropy >= 0, "0 (no pruning) or more")
        check_discounts(self.discounts, self.kind)
        _require("cutoff", self.cutoff, self.cutoff >= 1, "at least 1")
        counts, pruned = all(type(n) is int and n >= 0 for n in self.prune), list(self.prune)
        # An n-gram needs the shorter ones that it is made of, so a shorter order cannot be pruned harder.
        _require("prune", pruned, counts and pruned == sorted(pruned), "ascending integers by order, such as [0, 0, 1]")
        _require("prune", pruned, not self.prune or not self.prune[0], "0 for unigrams, which are never pruned")


def _require(name: str, value: object, is_valid: bool, expected: str) -> None:
    if not is_valid:
        raise invalid(f"estimator.{name}", value, f"must be {expected}.")


def parse_estimator(options: Mapping[str, Any]) -> Estimator:
    """Build the estimator of a recipe's phase, with every key and type checked."""
    known = {field.name: field for field in fields(Estimator)}
    settings: dict[str, Any] = {}
    for key, value in options.items():
        if key not in known:
            raise invalid(
                f"estimator.{key}", value, f"is no setting.{did_you_mean(key, known)} Use {', '.join(known)}."
            )
        kind: type = type(known[key].default)
        is_kind = isinstance(value, list | tuple) if kind is tuple else isinstance(value, kind)
        is_valid = (is_kind or (kind is float and type(value) is int)) and (kind is bool or value is not True)
        _require(key, value, is_valid, EXPECTED[kind])
        settings[key] = kind(value)
    return Estimator(**settings)


def parse_memory(size: str) -> int:
    """Bytes of "2GB", "512 MB" or "1.5 GiB"; of an empty string, half of the machine's memory."""
    if not size:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT])(i?)B?", size.strip(), re.IGNORECASE)
    if not match:
        raise invalid("estimator.memory", size, "must be a size such as '2GB' or '512MB'.")
    number, unit, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** ("KMGT".index(unit.upper()) + 1))


# ------------------------------------------------------------------------------------------------ estimation


def estimate(counted: NgramCounts, how: Estimator, closed: np.ndarray) -> Iterator[tuple[float, str] | Trie]:
    """Yield progress (fraction, message) and at last the trie. `closed`: ids that are never predicted."""
    order, arrays = counted.order, counted.arrays
    levels: list[Level] = []
    notes: list[str] = []
    kept: list[np.ndarray] = []  # with `prune`: which n-grams of each level stay
    lower = np.zeros(0, np.float32)  # p of the level before
    interpolated = how.interpolated if how.kind in INTERPOLABLE else False
    # Back-off divides by what the shorter context leaves to unseen words, 1 − Σ p, which may be a difference of nearly
    # equal numbers. So p needs more digits.
    wide = not interpolated and MODES[how.kind] in (DISCOUNT, WITTEN_BELL)
    discounts = []
    for k in range(order):
        is_highest = k == order - 1
        counts = counted.counts[k]
        if how.kind in USES_CONTINUATION_COUNTS and not is_highest:
            counts = counted.continuation_counts(k)
        table = np.zeros(2)
        if how.kind in DISCOUNTS:
            if how.discounts:
                table, note = discounts_of_order(how.discounts, k), ""
            else:
                table, note = DISCOUNTS[how.kind](counts_of_counts(counts, MAX_COUNT), how.cutoff, interpolated)
            discounts.append([round(float(d), 6) for d in table[1:]])
            if note:
                notes.append(f"{k + 1}-grams: {note}")
        prune = how.prune[min(k, len(how.prune) - 1)] if how.prune and k else 0
        value = how.add if how.kind == "additive" else how.alpha
        settings = (MODES[how.kind], interpolated, value, int((~closed).sum()))
        probs = arrays.new(len(counts), np.float64 if wide else np.float32)
        if k == 0:
            _estimate_unigrams(counts, table, settings, closed, order == 1, probs)
        else:
            links = counted.links[k]
            for low, high in blocks(len(lower), counted.block):
                run_in_blocks(len(links), counted.block, gather_lower, lower, links, low, high, probs)
            backoffs = arrays.new(len(lower), np.float32)
            first, raw = counted.first[k - 1], counted.counts[k]
            rest = (counted.beginning(k - 1), is_highest, prune, probs, backoffs)
            run_in_blocks(len(backoffs), counted.block, smooth_contexts, first, counts, raw, table, *settings, *rest)
            levels[-1].log_backoffs = _log(backoffs, counted)
            levels[-1].log_probs = _log(lower, counted)
        if counts is not counted.counts[k]:
            arrays.remove(counts)
        if prune:
            kept.append(np.asarray(raw > prune))
        elif how.prune:
            kept.append(np.ones(len(counts), bool))
        level_links = counted.links[k] if k else None
        levels.append(Level(counted.words[k], level_links, None if is_highest else counted.first[k], probs, None))
        lower = probs
        yield (k + 1) / order, f"estimating {k + 1}-grams"
    levels[-1].log_probs = _log(lower, counted)
    facts: dict[str, Any] = {"estimator": how.kind, "interpolated": interpolated, "notes": notes}
    if discounts:
        facts["discounts"] = discounts
    trie = Trie(levels, counted.boundary, facts)
    if kept or how.entropy:
        from nextword.ngrams.pruning import drop_ngrams, prune_by_entropy

        trie = drop_ngrams(trie, kept) if kept else trie
        trie = prune_by_entropy(trie, how.entropy) if how.entropy else trie
    yield trie


def _estimate_unigrams(
    counts: np.ndarray,
    table: np.ndarray,
    settings: tuple[int, bool, float, int],
    closed: np.ndarray,
    is_highest: bool,
    probs: np.ndarray,
) -> None:
    """The empty context: words with count 0 are unseen after it, and below it is the uniform distribution."""
    seen = np.flatnonzero((counts > 0) & ~closed)
    num_open = settings[-1]
    seen_probs = np.full(len(seen), 1 / num_open, probs.dtype)
    backoff = np.zeros(1, np.float32)
    first = np.array([0, len(seen)], np.uint32)
    seen_counts = np.ascontiguousarray(counts[seen])
    smooth_contexts(0, 1, first, seen_counts, seen_counts, table, *settings, (0, 0), is_highest, 0, seen_probs, backoff)
    if settings[0] == ADDITIVE and not is_highest:
        backoff[0] = 1.0
    probs[:] = backoff[0] / num_open
    probs[closed] = 0.0
    probs[seen] = seen_probs


@jit
def gather_lower(begin, end, table, index, low, high, out):
    """out = table[index], for the entries of the table in [low, high)."""
    for i in range(begin, end):
        j = index[i]
        if low <= j < high:
            out[i] = table[j]


@jit
def smooth_contexts(
    begin, end, first, counts, raw, table, mode, interpolated, value, size, beginning, top, prune, probs, backoffs
):
    """Apply the formula of `mode` to the contexts [begin, end).

    `probs` holds p(w | h′) of the words after each context and is overwritten by p(w | h); `backoffs` gets the weight
    of the shorter context. `raw` are occurrences, for pruning; `counts` may be continuation counts. `table` is D(c).
    """
    last = len(table) - 1
    for h in range(begin, end):
        low, high = np.int64(first[h]), np.int64(first[h + 1])
        total = 0.0  # C
        distinct = 0  # T
        below = 0.0  # Σ p(w | h′) of the words that stay
        for i in range(low, high):
            distinct += 1
            if raw[i] > prune:
                below += probs[i]
            if raw[i] > prune or mode in (DISCOUNT, WITTEN_BELL):  # other formulas have no mass for pruned words
                total += counts[i]
        if total == 0.0:
            backoffs[h] = 1.0
            continue
        if mode == ADDITIVE:
            longest = top or beginning[0] <= h < beginning[1]
            for i in range(low, high):
                probs[i] = (counts[i] + value) / (total + value * size) if longest else 1.0 / size
            backoffs[h] = value * size / (total + value * size) if longest else 1.0
            continue
        unseen = max(1.0 - below, 0.0)  # Σ p(w | h′) of the other words
        if unseen < 1e-6 and high - low >= size:
            unseen = 0.0
        scale = 1.0 / total
        if mode == STUPID:
            backoffs[h] = value / (1.0 + value * unseen)
            scale /= 1.0 + value * unseen
        elif mode == WITTEN_BELL:
            scale = 1.0 / (total + distinct)
        seen = 0.0  # Σ (c − D(c)) / C
        for i in range(low, high):
            if raw[i] > prune:
                c = counts[i]
                d = table[min(c, last)] if mode == DISCOUNT else 0.0
                seen += (c - d) * scale
        free = 1.0 - seen  # m(h)
        if mode == DISCOUNT and free < 1e-9 and unseen > 0.0:
            scale = 1.0 / (total + 1.0)
            free = scale
        if mode in (LIKELIHOOD, STUPID):
            free = 0.0
        if not interpolated and unseen == 0.0 and mode != LIKELIHOOD and seen > 0.0:
            scale /= seen  # every word was seen: no other word can take the rest
            free = 0.0
        for i in range(low, high):
            if raw[i] > prune:
                c = counts[i]
                d = table[min(c, last)] if mode == DISCOUNT else 0.0
                probs[i] = (c - d) * scale + (free * probs[i] if interpolated else 0.0)
        if mode != STUPID:
            backoffs[h] = free if interpolated else (free / unseen if unseen > 0.0 else 0.0)


def _log(values: np.ndarray, counted: NgramCounts) -> np.ndarray:
    """Natural logarithms in float32, in place if the values are; log 0 is −∞."""
    out = values if values.dtype == np.float32 else counted.arrays.new(len(values), np.float32)
    with np.errstate(divide="ignore"):
        for low, high in blocks(len(values), min(counted.block, 1 << 22)):
            np.log(values[low:high], out=out[low:high])
            release_pages(values, out)
    if out is not values:
        counted.arrays.remove(values)
    return out
