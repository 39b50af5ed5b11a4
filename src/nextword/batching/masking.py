"""Which tokens are hidden, and what stands in their place: the cloze test of BERT and its kin.

    text      [CLS] the cat sat on the mat [SEP]
    chosen                  ^           ^             `share` of the tokens, 15 %; never a special one; at least one
    becomes   [CLS] the cat [MASK] on the car [SEP]   80 % the mask, 10 % any ordinary token, 10 % stay as they are
    targets                 sat         mat           IGNORE everywhere else

Devlin et al. (2019, section 3.1). How many are chosen is `share` of the text's tokens, rounded up or down at random, so
that it is right on average however short the text.

    whole_words   all tokens of a word or none of them (BERT's later release)
    grams = 3     runs of up to three words; a run of n with probability ∝ 1/n (ALBERT, section 4.1)

A word is what stands between spaces. Words are taken in random order as long as they fit into the number: one that does
not is passed over, and a run of words is cut where it no longer fits. Where not one word of a text fits, as many tokens
as may be hidden are, at the beginning of one.

Everything is drawn from (seed, variant, number of the text) alone: `variant` is the epoch for masks that are new in
every epoch (RoBERTa), or the epoch modulo k where a text has k masks that come again (BERT's duplicated data).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nextword.compiled import compiled
from nextword.contract import IGNORE, Vocabulary
from nextword.contract_errors import NextwordError
from nextword.corpora.grams import mixed
from nextword.tokens.marks import Marks

# ------------------------------------------------------------------------------------------------ random numbers

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def key_of(*numbers: int) -> np.uint64:
    """A key for `bits`, made of whole numbers that are not negative: a purpose, a seed, an epoch."""
    return np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]


@compiled
def bits(key, i):
    """Draw number i of a key: 64 random bits. There is no state, so any draw can be made at any time."""
    return mixed(key + np.uint64(i) * GOLDEN)


@compiled
def uniform(key, i):
    return (bits(key, i) >> np.uint64(11)) * 2.0**-53  # 0 ≤ u < 1


@compiled
def below(key, i, n):
    """One of 0 … n − 1."""
    return np.int64(bits(key, i) % np.uint64(n))


# ------------------------------------------------------------------------------------------------ masking


@dataclass(frozen=True)
class Masking:
    """How texts are masked; `ordinary` are the ids that may stand in for another."""

    vocabulary: Vocabulary
    share: float = 0.15
    masked: float = 0.8  # of the chosen become the mask
    replaced: float = 0.1  # of the chosen become any ordinary token; the rest stay
    whole_words: bool = False
    grams: int = 0  # words in the longest run; 0: no runs
    marks: Marks = field(init=False)
    ordinary: np.ndarray = field(init=False, repr=False)  # (V − specials,)
    special: np.ndarray = field(init=False, repr=False)  # (V,) bool

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise NextwordError(f"objective: share = {self.share!r} must lie between 0 and 1; BERT has 0.15.")
        if self.masked < 0 or self.replaced < 0 or self.masked + self.replaced > 1:
            raise NextwordError(
                f"objective: masked = {self.masked!r} and replaced = {self.replaced!r} are shares of the chosen tokens "
                "and cannot exceed 1 together; BERT has 0.8 and 0.1."
            )
        if not isinstance(self.whole_words, bool):
            raise NextwordError(f"objective: whole_words = {self.whole_words!r} must be true or false.")
        if not isinstance(self.grams, int) or isinstance(self.grams, bool) or self.grams < 0:
            raise NextwordError(
                f"objective: grams = {self.grams!r} must be a whole number: the words in the longest run, or 0."
            )
        special = np.zeros(self.vocabulary.size, bool)
        special[list(self.vocabulary.special.values())] = True
        if special.all():
            raise NextwordError("The tokenizer has special tokens alone: there is nothing to hide, and to guess.")
        object.__setattr__(self, "marks", Marks.of(self.vocabulary))
        object.__setattr__(self, "special", special)
        object.__setattr__(self, "ordinary", np.flatnonzero(~special))

    def most(self, tokens: int, texts: int = 1) -> int:
        """How many can be chosen at most in texts that have so many tokens together, the marks not counted."""
        return int(self.share * tokens) + texts

    def __call__(
        self,
        ids: np.ndarray,  # (N,) int64; where tokens are hidden they are overwritten
        begins: np.ndarray,  # (N,) bool: a word begins here
        first: np.ndarray,  # (n,) where each text begins
        last: np.ndarray,  # (n,) and ends
        numbers: np.ndarray,  # (n,) of the texts
        key: np.uint64,  # of seed and variant
        room: int,
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Targets (N,); positions (room,) of the hidden tokens, the rest of them 0; and how many are hidden."""
        targets = np.full(len(ids), IGNORE, np.int64)
        at = np.zeros(room, np.int64)
        free = ~self.special[ids]
        runs = np.cumsum(1 / np.arange(1, self.grams + 1))  # of 1, 2, … words; empty without runs
        whole = self.whole_words or self.grams > 0
        odds = (self.share, self.masked, self.masked + self.replaced)
        places = (self.marks.mask, self.ordinary)
        longest = int((last - first).max(initial=0))
        scratch = np.empty((5, longest + 1), np.int64)
        n = _mask(ids, begins, free, first, last, numbers, key, odds, runs, whole, places, targets, at, scratch)
        return targets, at, n


@compiled
def _mask(ids, begins, free, first, last, numbers, key, odds, runs, whole, places, targets, at, scratch):
    share, masked, replaced = odds
    mask, ordinary = places
    word, stop, run, order, chosen = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    done = 0
    for t in range(len(first)):
        own = mixed(key ^ mixed(np.uint64(numbers[t]) + GOLDEN))
        draw = 0

        # Words of the text that may be hidden: from word[w] to stop[w]
        tokens = words = 0
        for p in range(first[t], last[t]):
            if not free[p]:
                continue
            if whole and words and stop[words - 1] == p and not begins[p]:
                stop[words - 1] = p + 1
            else:
                word[words], stop[words] = p, p + 1
                words += 1
            tokens += 1
        if not tokens:
            continue
        wanted = max(1, int(share * tokens + uniform(own, draw)))
        draw += 1

        # Runs of words: from run[r] to run[r + 1]; never across what cannot be hidden
        count = 0
        if len(runs):
            w = 0
            while w < words:
                u = uniform(own, draw) * runs[-1]
                draw += 1
                run[count] = w
                count += 1
                n = 1
                w += 1
                while u >= runs[n - 1] and w < words and word[w] == stop[w - 1]:
                    n += 1
                    w += 1
        else:
            for w in range(words):
                run[w] = w
            count = words
        run[count] = words

        # Runs in random order, as long as they fit
        for r in range(count):
            order[r] = r
        found = 0
        for r in range(count):
            s = r + below(own, draw, count - r)
            draw += 1
            order[r], order[s] = order[s], order[r]
            for w in range(run[order[r]], run[order[r] + 1]):
                if found + stop[w] - word[w] <= wanted:
                    for p in range(word[w], stop[w]):
                        chosen[found] = p
                        found += 1
                else:
                    break
            if found == wanted:
                break
        if not found:
            w = run[order[0]]
            for p in range(word[w], min(stop[w], word[w] + wanted)):
                chosen[found] = p
                found += 1

        for c in range(found):
            p = chosen[c]
            targets[p] = ids[p]
            at[done] = p
            done += 1
            u = uniform(own, draw)
            if u < masked:
                ids[p] = mask
            elif u < replaced:
                ids[p] = ordinary[below(own, draw + 1, len(ordinary))]
            draw += 2
    return done
