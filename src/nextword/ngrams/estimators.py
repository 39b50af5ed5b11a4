"""From counts to probabilities: the classic estimators, each as a back-off model.

Every estimator answers two questions about a context h: what does each word seen after h get, and what is left for the
words that were not? The rest, m(h), goes to the next shorter context h′.

    estimator             seen after h, of c out of C in all, T of them different             free mass m(h)
    maximum-likelihood    c / C                                                               none
    additive              (c + δ) / (C + δV), longest context only                            δ for every word
    witten-bell           c / (C + T)                                                         T / (C + T)
    absolute              (c − D) / C                                                         what D took
    kneser-ney            (c − D) / C, lower orders count the words before, not occurrences    what D took
    modified-kneser-ney   (c − D(c)) / C, the same, with D for counts 1, 2 and 3+              what D took
    good-turing           d(c) · c / C (Katz)                                                 what d took
    stupid                (c / C) / Z                                                         α / Z

    interpolated   p(w | h) = seen(w) + m(h) · p(w | h′) for all words
    back-off       p(w | h) = seen(w), and m(h) is shared by the unseen words in proportion to p(w | h′)

Below unigrams stands the uniform distribution over the vocabulary. A beginning of a sentence has nothing before it, so
its n-grams keep their own counts. Stupid back-off (Brants et al., 2007) is divided by its sum Z, so that it can be
compared. A context that leaves nothing for unseen words although there are some is counted once more than it occurred.

How much each count gives up, by estimator: read off the counts of counts, with a fallback that says so.

n_r: how many different n-grams occur r times        Y = n1 / (n1 + 2 n2)

absolute, Kneser-Ney     D(r) = Y                                                   Ney, Essen & Kneser (1994)
modified Kneser-Ney      D(r) = r − (r + 1) Y n_{r+1} / n_r for r = 1, 2, 3+        Chen & Goodman (1998)
Good-Turing (Katz)       D(r) = r (1 − d_r), d_r Katz's ratio for r ≤ cut-off       Katz (1987)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from nextword.core.errors import NextwordError
from nextword.core.jit import compiled
from nextword.ngrams.counting import Counted, blocks, counts_of_counts, release, sweep
from nextword.ngrams.trie import Level, Trie

FALLBACK = (0.5, 1.0, 1.5)  # as KenLM's --discount_fallback
HIGHEST = 16  # the longest table: its last entry holds for all higher counts

Table = tuple[np.ndarray, str]  # D(0 …), and a note where the counts of counts would not do


def absolute(n: np.ndarray, cutoff: int, interpolated: bool) -> Table:
    if n[1] and n[2]:
        return _table([n[1] / (n[1] + 2 * n[2])]), ""
    return _table([0.5]), f"no n-gram occurs {'once' if not n[1] else 'twice'}: the discount is set to 0.5"


def modified(n: np.ndarray, cutoff: int, interpolated: bool) -> Table:
    """Counts of counts that are zero, or give a discount below 0 or above its count, are not those of a real text.

    Nor may it be the count itself (3, where n4 = 0) unless a shorter context adds something to what is left.
    """
    if not (n[1] and n[2] and n[3]):
        lacking = next(r for r in (1, 2, 3) if not n[r])
        return _table(FALLBACK), f"no n-gram occurs {_times(lacking)}: the discounts are set to 0.5, 1, 1.5"
    y = n[1] / (n[1] + 2 * n[2])
    found = [r - (r + 1) * y * n[r + 1] / n[r] for r in (1, 2, 3)]
    for r, discount in enumerate(found, 1):
        if not 0 <= discount <= r or (discount == r and not interpolated):
            return _table(FALLBACK), (
                f"the discount for count {r} would be {discount:.2f}: the discounts are set to 0.5, 1, 1.5"
            )
    return _table(found), ""


def good_turing(n: np.ndarray, cutoff: int, interpolated: bool) -> Table:
    """The cut-off is lowered until all ratios lie between 0 and 1; where none does, the discount is 0.5 of count 1."""
    for k in range(min(cutoff, HIGHEST - 2), 0, -1):
        if not n[1 : k + 2].all():
            continue
        common = (k + 1) * n[k + 1] / n[1]
        ratios = [
            ((r + 1) * n[r + 1] / n[r] / r - common) / (1 - common) if common != 1 else -1 for r in range(1, k + 1)
        ]
        if all(0 < ratio <= 1 for ratio in ratios):
            note = (
                "" if k == cutoff else f"counts up to {k} are discounted instead of {cutoff}: beyond, they are too rare"
            )
            return _table([*(r * (1 - ratio) for r, ratio in enumerate(ratios, 1)), 0.0]), note
    return _table([0.5, 0.0]), "the counts of counts do not fall as Good and Turing assume: 0.5 is taken off count 1"


DISCOUNTS: dict[str, Callable[[np.ndarray, int, bool], Table]] = {
    "absolute": absolute,
    "kneser-ney": absolute,
    "modified-kneser-ney": modified,
    "good-turing": good_turing,
}


def check_given(discounts: Sequence[Any], kind: str) -> None:
    """Discounts that a recipe gives: a list for each order, D of counts 1, 2, …; the last of both holds beyond."""
    if not discounts:
        return
    fine = all(
        isinstance(row, list | tuple)
        and row
        and all(isinstance(d, int | float) and 0 <= d <= r for r, d in enumerate(row, 1))
        for row in discounts
    )
    if kind not in DISCOUNTS or not fine:
        raise NextwordError(
            f"[phase] estimator discounts = {list(discounts)}: lists by order, D of counts 1, 2, … each from 0 to its "
            f"count, such as [[0.5, 1, 1.5]], for one of {', '.join(DISCOUNTS)}."
        )


def given_table(discounts: Sequence[Any], k: int) -> np.ndarray:
    return _table(discounts[min(k, len(discounts) - 1)])


def _table(discounts: Sequence[float]) -> np.ndarray:
    """D by count, zero for count 0; the last one holds for all counts beyond."""
    return np.array([0.0, *discounts])


def _times(r: int) -> str:
    return ("once", "twice", "three times")[r - 1]


EITHER = ("witten-bell", "absolute", "kneser-ney", "modified-kneser-ney")  # interpolated, or back-off
KINDS = ("maximum-likelihood", "additive", *EITHER, "good-turing", "stupid")
CONTINUATION = ("kneser-ney", "modified-kneser-ney")
DISCOUNT, WITTEN_BELL, LIKELIHOOD, ADDITIVE, STUPID = range(5)
MODES = {
    "maximum-likelihood": LIKELIHOOD,
    "additive": ADDITIVE,
    "witten-bell": WITTEN_BELL,
    "stupid": STUPID,
    **dict.fromkeys(DISCOUNTS, DISCOUNT),
}
EXPECTED = {
    str: "text in quotes",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    tuple: "a list by order, such as [0, 0, 1]",
}


@dataclass(frozen=True)
class Estimator:
    kind: str = "modified-kneser-ney"
    interpolated: bool = True  # where both forms exist
    add: float = 1.0  # δ of `additive`: 1 is Laplace's, less is Lidstone's
    alpha: float = 0.4  # of `stupid`
    cutoff: int = 5  # of `good-turing`: counts above are trusted
    discounts: tuple[Any, ...] = ()  # given ones, a list by order; empty: from the counts of counts
    prune: tuple[int, ...] = ()  # drop n-grams that occur at most so often, by order; the last holds for all above
    entropy: float = 0.0  # drop n-grams whose loss raises the perplexity by less than this share
    memory: str = ""  # such as "2GB"; empty: half of what the machine has
    on_disk: bool = False  # count through disk even if memory would do

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise NextwordError(f"[phase] estimator kind = {self.kind!r}; expected one of {', '.join(KINDS)}.")
        for name in ("add", "alpha"):
            if not 0 < getattr(self, name) < float("inf"):
                raise NextwordError(f"[phase] estimator {name} = {getattr(self, name)}: it must be a number above 0.")
        if not self.entropy >= 0:
            raise NextwordError(f"[phase] estimator entropy = {self.entropy}: it must be 0 (prune nothing) or more.")
        check_given(self.discounts, self.kind)
        if self.cutoff < 1:
            raise NextwordError(f"[phase] estimator cutoff = {self.cutoff}: it must be at least 1.")
        if any(type(n) is not int or n < 0 for n in self.prune) or list(self.prune) != sorted(self.prune):
            raise NextwordError(
                f"[phase] estimator prune = {list(self.prune)}: whole numbers by order, none smaller than the one "
                "before, for an n-gram needs the shorter ones that it is made of."
            )
        if self.prune and self.prune[0]:
            raise NextwordError("[phase] estimator prune: unigrams are never pruned; its first number must be 0.")


def estimator(options: Mapping[str, Any]) -> Estimator:
    known = {f.name: f for f in fields(Estimator)}
    for key in options:
        if key not in known:
            raise NextwordError(f"[phase] estimator has no key {key!r}. It has {', '.join(known)}.")
    given: dict[str, Any] = {}
    for key, value in options.items():
        wanted: Any = type(known[key].default)
        fine = isinstance(value, list | tuple) if wanted is tuple else isinstance(value, wanted)
        if (not fine and not (wanted is float and type(value) is int)) or (wanted is not bool and value is True):
            raise NextwordError(f"[phase] estimator {key} = {value!r} must be {EXPECTED[wanted]}.")
        given[key] = wanted(value)
    return Estimator(**given)


def memory_cap(given: str) -> int:
    """Bytes: "2GB", "512 MB", "1.5 GiB"; empty: half of what the machine has."""
    import os
    import re

    if not given:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT])(i?)B?", given.strip(), re.IGNORECASE)
    if not found:
        raise NextwordError(f"[phase] estimator memory = {given!r}; expected a size such as '2GB' or '512MB'.")
    number, unit, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** ("KMGT".index(unit.upper()) + 1))


def estimate(counted: Counted, how: Estimator, closed: np.ndarray) -> Iterator[tuple[float, str] | Trie]:
    """Progress, and at last the trie. `closed`: ids that are never predicted."""
    order, arrays = counted.order, counted.arrays
    levels: list[Level] = []
    notes: list[str] = []
    kept: list[np.ndarray] = []
    lower = np.zeros(0, np.float32)  # p of the level before
    interpolated = how.interpolated if how.kind in EITHER else False
    # Backing off divides by what the shorter context leaves to unseen words: 1 − Σ p may be a difference of equals
    wide = not interpolated and MODES[how.kind] in (DISCOUNT, WITTEN_BELL)
    discounts = []
    for k in range(order):
        top = k == order - 1
        counts = counted.counts[k] if top or how.kind not in CONTINUATION else counted.extensions(k)
        table = np.zeros(2)
        if how.kind in DISCOUNTS:
            if how.discounts:
                table, note = given_table(how.discounts, k), ""
            else:
                table, note = DISCOUNTS[how.kind](counts_of_counts(counts, HIGHEST), how.cutoff, interpolated)
            discounts.append([round(float(d), 6) for d in table[1:]])
            if note:
                notes.append(f"{k + 1}-grams: {note}")
        prune = how.prune[min(k, len(how.prune) - 1)] if how.prune and k else 0
        value = how.add if how.kind == "additive" else how.alpha
        settings = (MODES[how.kind], interpolated, value, int((~closed).sum()))
        probs = arrays.new(len(counts), np.float64 if wide else np.float32)
        if k == 0:
            _unigrams(counts, table, settings, closed, order == 1, probs)
        else:
            links = counted.links[k]
            for low, high in blocks(len(lower), counted.block):
                sweep(len(links), counted.block, gather, lower, links, low, high, probs)
            backoffs = arrays.new(len(lower), np.float32)
            first, raw = counted.first[k - 1], counted.counts[k]
            last = (counted.beginning(k - 1), top, prune, probs, backoffs)
            sweep(len(backoffs), counted.block, smooth, first, counts, raw, table, *settings, *last)
            levels[-1].log_backoffs = _log(backoffs, counted)
            levels[-1].log_probs = _log(lower, counted)
        if counts is not counted.counts[k]:
            arrays.remove(counts)
        if prune:
            kept.append(np.asarray(raw > prune))
        elif how.prune:
            kept.append(np.ones(len(counts), bool))
        links_or_none = counted.links[k] if k else None
        levels.append(Level(counted.words[k], links_or_none, None if top else counted.first[k], probs, None))
        lower = probs
        yield (k + 1) / order, f"estimating {k + 1}-grams"
    levels[-1].log_probs = _log(lower, counted)
    facts: dict[str, Any] = {"estimator": how.kind, "interpolated": interpolated, "notes": notes}
    if discounts:
        facts["discounts"] = discounts
    trie = Trie(levels, counted.boundary, facts)
    if kept:
        from nextword.ngrams.pruning import drop

        trie = drop(trie, kept)
    if how.entropy:
        from nextword.ngrams.pruning import prune as prune_by_entropy

        trie = prune_by_entropy(trie, how.entropy)
    yield trie


def _unigrams(
    counts: np.ndarray,
    table: np.ndarray,
    settings: tuple[int, bool, float, int],
    closed: np.ndarray,
    top: bool,
    probs: np.ndarray,
) -> None:
    """The root context: all words come after it, those with count 0 are unseen; below lies the uniform distribution."""
    seen = np.flatnonzero((counts > 0) & ~closed)
    opened = settings[-1]
    part = np.full(len(seen), 1 / opened, probs.dtype)
    backoff = np.zeros(1, np.float32)
    first = np.array([0, len(seen)], np.uint32)
    some = np.ascontiguousarray(counts[seen])
    smooth(0, 1, first, some, some, table, *settings, (0, 0), top, 0, part, backoff)
    if settings[0] == ADDITIVE and not top:
        backoff[0] = 1.0
    probs[:] = backoff[0] / opened
    probs[closed] = 0.0
    probs[seen] = part


@compiled
def gather(begin, end, table, index, low, high, out):
    """out = table[index], for the entries of the table in [low, high)."""
    for i in range(begin, end):
        j = index[i]
        if low <= j < high:
            out[i] = table[j]


@compiled
def smooth(
    begin, end, first, counts, raw, table, mode, interpolated, value, size, beginning, top, prune, probs, backoffs
):
    """Probabilities of the children of these contexts, written in place of p(w | h′), and the contexts' back-offs."""
    last = len(table) - 1
    for h in range(begin, end):
        low, high = np.int64(first[h]), np.int64(first[h + 1])
        total = 0.0
        kinds = 0
        below = 0.0  # p(w | h′) of the words that are kept
        for i in range(low, high):
            kinds += 1
            if raw[i] > prune:
                below += probs[i]
            if raw[i] > prune or mode in (DISCOUNT, WITTEN_BELL):  # the others have no place for what is dropped
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
        left = max(1.0 - below, 0.0)  # p(w | h′) of the words that are not
        if left < 1e-6 and high - low >= size:
            left = 0.0
        scale = 1.0 / total
        if mode == STUPID:
            backoffs[h] = value / (1.0 + value * left)
            scale /= 1.0 + value * left
        elif mode == WITTEN_BELL:
            scale = 1.0 / (total + kinds)
        taken = 0.0
        for i in range(low, high):
            if raw[i] > prune:
                c = counts[i]
                d = table[min(c, last)] if mode == DISCOUNT else 0.0
                taken += (c - d) * scale
        free = 1.0 - taken
        if mode == DISCOUNT and free < 1e-9 and left > 0.0:
            scale = 1.0 / (total + 1.0)
            free = scale
        if mode in (LIKELIHOOD, STUPID):
            free = 0.0
        if not interpolated and left == 0.0 and mode != LIKELIHOOD and taken > 0.0:
            scale /= taken  # every word was seen: there is nobody to give the rest to
            free = 0.0
        for i in range(low, high):
            if raw[i] > prune:
                c = counts[i]
                d = table[min(c, last)] if mode == DISCOUNT else 0.0
                probs[i] = (c - d) * scale + (free * probs[i] if interpolated else 0.0)
        if mode != STUPID:
            backoffs[h] = free if interpolated else (free / left if left > 0.0 else 0.0)


def _log(values: np.ndarray, counted: Counted) -> np.ndarray:
    """Natural logarithms, in place where they are as narrow as they shall be; log 0 is −∞."""
    out = values if values.dtype == np.float32 else counted.arrays.new(len(values), np.float32)
    with np.errstate(divide="ignore"):
        for low, high in blocks(len(values), min(counted.block, 1 << 22)):
            np.log(values[low:high], out=out[low:high])
            release(values, out)
    if out is not values:
        counted.arrays.remove(values)
    return out
