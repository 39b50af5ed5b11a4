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

Where the sentences of a prepared text lie, and texts for a network made of stretches of it, framed by marks.

    ids        the cat sat . it slept . <end> a dog ran . <end>
    sentences  |           |          |       |         |           an end of document belongs to no sentence
    documents  |                              |

A text is one or more stretches of ids. In its frame there is a mark before it and one after each stretch:

    [CLS] the cat sat . [SEP] it slept . [SEP]        two stretches: a pair, or the ends and beginnings of documents
    [CLS] a dog ran . [SEP]                           one

Rows full of text: whole sentences, one after the other; or whole texts end to end, without padding.

    documents   a1 a2 a3 | b1 | c1 c2              sentences of three documents

    Full        [CLS] a1 a2 a3 [SEP] b1 [SEP]      a row takes as many whole sentences as go into it, and goes on to the
                [CLS] c1 c2 [SEP] . . . . . . .    next document after a mark (RoBERTa's FULL-SENTENCES)
    apart       [CLS] a1 a2 a3 [SEP] . . . . .     … or never goes on to it (DOC-SENTENCES)
                [CLS] b1 [SEP] . . . . . . . .

    Packed      [CLS] c1 c2 [SEP] [CLS] b1 [SEP] [CLS] a1 a2 a3 [SEP] …       one row of `tokens`, many documents
                0                 5              9                            starts: none sees another

Liu et al. (2019, section 4.2). The texts are the same in every epoch, so that a mask can belong to a text; their order
is not, nor which ones share a row. In `Full` a sentence longer than a row is cut; in `Packed` a document longer than
`length` is, into texts of that length and a rest.

In `Packed` every text is read once an epoch. Those that follow each other share a row as long as they fit; what is then
left over, shorter than one text, is filled up with padding that is a text by itself; the last row of an epoch may have
more of it, and no piece of it is longer than `length`. `starts` has the same length for every row: texts that are not
there are empty.

Pairs of segments from documents, one a row: BERT's next sentence and ALBERT's sentence order.

    document   s1 s2 s3 s4 s5 …        sentences are gathered until they fill a row, and cut in two at a random place

    pair = "next"    half  [CLS] s1 s2 [SEP] s3 s4 s5 [SEP]   0: B follows A
                     half  [CLS] s1 s2 [SEP] t7 t8 [SEP]      1: B is of another document; s3 is read next
    pair = "order"   half  [CLS] s1 s2 [SEP] s3 s4 s5 [SEP]   0: in order
                     half  [CLS] s3 s4 s5 [SEP] s1 s2 [SEP]   1: swapped
    pair = "none"          [CLS] s1 s2 [SEP] s3 s4 s5 [SEP]   no label: RoBERTa's first step away from BERT

Devlin et al. (2019, appendix A.2), Lan et al. (2020, section 3.1), after the rules of BERT's own program: one document
in ten (`short`) is gathered into rows of a random shorter length; what is too long for a row loses tokens from the
longer segment, at its beginning or its end as chance will have it.

What is gathered may be a single sentence: a document of one, the last of a document, or one that fills the row alone.

    "next"     it is A, and B is always of another document
    "order"    the sentence after it is taken too, or else the one before it is read again; a document of one sentence
               has no order and is left out
    "none"     the same, but a document of one sentence is [CLS] A [SEP]

A text that is one document has no other: under "next" its two halves stand for two documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from nextword.batching.causal import permuted
from nextword.batching.token_stream import SENTENCE, WORD, Stream
from nextword.core.errors import NextwordError
from nextword.core.jit import compiled
from nextword.core.types import IGNORE, Vocabulary
from nextword.data.filters.dedup import mixed
from nextword.tokenizers.base import Marks

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


KEPT = 4  # of the tables made last: those of the text trained on, and of the one held out


@dataclass(frozen=True, eq=False)
class Sentences:
    first: np.ndarray  # (S,) int64: the id that each begins with
    last: np.ndarray  # (S,) int64: and the one after its end
    documents: np.ndarray  # (D + 1,) int64: document d is made of the sentences from documents[d] to documents[d + 1]

    def __len__(self) -> int:
        return len(self.first)

    @staticmethod
    def of(text: Stream, end: int | None) -> Sentences:
        """`end` is the id that closes a document, if the tokenizer has one. Documents without a token are left out."""
        opens = text.documents["start"].astype(np.int64)
        closes = np.append(opens[1:], len(text.ids))
        if end is not None:
            closes -= (closes > opens) & (np.asarray(text.ids[np.maximum(closes - 1, 0)]) == end)
        opens, closes = opens[closes > opens], closes[closes > opens]
        if not len(opens):
            raise NextwordError("The text has no documents with a token in them: there is nothing to learn from.")
        marked = np.flatnonzero(np.asarray(text.marks) & SENTENCE)
        own = np.searchsorted(opens, marked, side="right") - 1
        inner = marked[1:][own[1:] == own[:-1]]  # a document's first sentence begins where the document does
        first = np.sort(np.concatenate((opens, inner)))
        documents = np.append(np.searchsorted(first, opens), len(first))
        last = np.append(first[1:], len(text.ids))
        last[documents[1:] - 1] = closes
        return Sentences(first, last, documents)


@dataclass(frozen=True, eq=False)
class Texts:
    first: np.ndarray  # (P,) int64: the id that each stretch begins with
    length: np.ndarray  # (P,) int64: how many ids it has
    stretches: np.ndarray  # (n + 1,) int64: text i is made of those from stretches[i] to stretches[i + 1]
    labels: np.ndarray | None = None  # (n,) of pairs

    def __len__(self) -> int:
        return len(self.stretches) - 1

    def sizes(self) -> np.ndarray:
        """Of the texts in their frames, (n,)."""
        added = np.concatenate(([0], np.cumsum(self.length + 1)))
        return 1 + np.diff(added[self.stretches])

    def framed(self, text: Stream, chosen: np.ndarray, marks: Marks, width: int, together: bool = False) -> Framed:
        """These texts, each in a row of `width` that begins with it; or all together in one row, end to end."""
        count = np.diff(self.stretches)[chosen]
        stretch = _ranges(self.stretches[chosen], count)
        length, first = self.length[stretch], self.first[stretch]
        own = np.repeat(np.arange(len(chosen)), count)  # the text of each stretch
        sizes = 1 + np.bincount(own, length + 1, len(chosen)).astype(np.int64)
        before = np.cumsum(sizes) - sizes
        starts = before if together else np.arange(len(chosen)) * width
        # In the row of its text a stretch stands after the mark in front and after the stretches before, with theirs
        places = starts[own] + 1 + np.cumsum(length + 1) - (length + 1) - (before - np.arange(len(chosen)))[own]
        ids = np.full(width if together else width * len(chosen), marks.pad, np.int64)
        begins = np.zeros(len(ids), bool)
        segments = np.zeros(len(ids), np.int64)
        here, there = _ranges(places, length), _ranges(first, length)
        ids[here] = text.ids[there]
        begins[here] = text.marks[there] & WORD
        ids[starts] = marks.cls
        ids[places + length] = marks.sep
        second = np.arange(len(stretch)) - np.repeat(np.cumsum(count) - count, count) > 0
        segments[_ranges(places[second], length[second] + 1)] = 1
        return Framed(ids, begins, segments, starts, sizes)


class Framed(NamedTuple):
    ids: np.ndarray  # (N,) int64
    begins: np.ndarray  # (N,) bool: a word begins here
    segments: np.ndarray  # (N,) 0 up to the mark after the first stretch, then 1
    first: np.ndarray  # (n,) where each text's frame begins
    sizes: np.ndarray  # (n,) how long it is


def _ranges(first: np.ndarray, length: np.ndarray) -> np.ndarray:
    """first[0], first[0] + 1, … of length[0], then those of first[1], and so on."""
    ends = np.cumsum(length)
    return np.repeat(first - ends + length, length) + np.arange(ends[-1] if len(ends) else 0)


# ------------------------------------------------------------------------------------------------ which come when


class Turn(NamedTuple):
    """What a batch is made of."""

    epoch: int
    variant: int  # of the texts and their masks: the epoch itself, or one of the few that come again
    texts: Texts
    chosen: np.ndarray  # (n,) which of them


def in_rows(layout: Any, sentences: Sentences, seed: int, step: int, static: int) -> Iterator[Turn]:
    """Texts one a row, in an order shuffled every epoch. What is left over of the last batch is left out there."""
    per_epoch = layout.per_epoch(sentences)
    while True:
        epoch, i = divmod(step, per_epoch)
        variant = epoch % static if static else epoch
        texts = layout.texts(sentences, seed, variant)
        index = np.arange(i * layout.rows, (i + 1) * layout.rows) % len(texts)
        yield Turn(epoch, variant, texts, permuted(index, len(texts), key=seed * 1_000_003 + epoch))
        step += 1


def one_pass(layout: Any, sentences: Sentences) -> Iterator[Turn]:
    """Every text once, in their order; the last batch may have fewer rows."""
    texts = layout.texts(sentences, 0, 0)
    for at in range(0, len(texts), layout.rows):
        yield Turn(0, 0, texts, np.arange(at, min(at + layout.rows, len(texts))))


def check_whole(**given: tuple[Any, int]) -> None:
    """Sizes of a layout, each with the least that it can be."""
    for name, (value, least) in given.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise NextwordError(f"batches: {name} = {value!r} must be a whole number of at least {least}.")


class Kept:
    """The last few values of a function of a text, or of a table made of one, and of some numbers."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make
        self.found: list[tuple[Any, tuple[Any, ...], Any]] = []

    def __call__(self, text: Any, *key: Any) -> Any:
        known = [entry for entry in self.found if entry[0] is text and entry[1] == key]
        entry = known[0] if known else (text, key, self.make(text, *key))
        self.found = [entry, *(other for other in self.found if other is not entry)][:KEPT]
        return entry[2]


def filled(sizes: np.ndarray, between: np.ndarray, room: int, most: int = 0) -> np.ndarray:
    """Things put one after the other into boxes of a size: the first thing of each box, and how many things there are.

    `between` is what a thing costs beside its own size where it is not the first in its box; `most` is how many a box
    holds at the most, 0 for any number. Each must fit into a box by itself.
    """
    cuts = np.empty(len(sizes) + 1, np.int64)
    return cuts[: _fill(sizes, between, room, most or len(sizes), cuts)].copy()


@compiled
def _fill(sizes, between, room, most, cuts):
    n = used = held = 0
    for i in range(len(sizes)):
        if not n or used + between[i] + sizes[i] > room or held == most:
            cuts[n] = i
            n += 1
            used = sizes[i]
            held = 1
        else:
            used += between[i] + sizes[i]
            held += 1
    cuts[n] = len(sizes)
    return n + 1


@dataclass(frozen=True)
class Full:
    rows: int = 256
    length: int = 512  # tokens in a row, marks and padding included
    apart: bool = False
    kept: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_whole(rows=(self.rows, 1), length=(self.length, 3))
        if not isinstance(self.apart, bool):
            raise NextwordError(f"batches: apart = {self.apart!r} must be true or false.")
        object.__setattr__(self, "kept", Kept(self._made))

    def texts(self, sentences: Sentences, seed: int, variant: int) -> Texts:
        return self.kept(sentences)

    def per_epoch(self, sentences: Sentences) -> int:
        return max(1, len(self.kept(sentences)) // self.rows)

    def turns(self, sentences: Sentences, seed: int, step: int, static: int) -> Iterator[Turn]:
        return in_rows(self, sentences, seed, step, static)

    def held_out(self, sentences: Sentences) -> Iterator[Turn]:
        return one_pass(self, sentences)

    def _made(self, sentences: Sentences) -> Texts:
        room = self.length - 2
        opens = np.zeros(len(sentences), bool)
        opens[sentences.documents[:-1]] = True
        first, length, whole = pieces(sentences.first, sentences.last, room)
        opens = opens[whole]  # true of all pieces of a long sentence, but the later ones begin a row in any case
        cuts = filled(length, opens.astype(np.int64) * (self.length if self.apart else 1), room)
        begins = opens.copy()
        begins[cuts[:-1]] = True  # a stretch: what follows in one document and one row
        stretch = np.flatnonzero(begins)
        together = np.add.reduceat(length, stretch)
        return Texts(first[stretch], together, np.searchsorted(stretch, cuts))


@dataclass(frozen=True)
class Packed:
    tokens: int = 16384  # in the row
    length: int = 128  # of the longest text, marks included: the network's window, or less
    kept: Any = field(init=False, repr=False, compare=False)
    boxed: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_whole(length=(self.length, 3), tokens=(self.tokens, 3))
        if self.tokens < self.length:
            raise NextwordError(
                f"batches: a row of tokens = {self.tokens} has no room for a text of length = {self.length}. Make the "
                "row longer, or the texts shorter."
            )
        object.__setattr__(self, "kept", Kept(self._made))
        object.__setattr__(self, "boxed", Kept(self._boxed))

    def texts(self, sentences: Sentences, seed: int, variant: int) -> Texts:
        return self.kept(sentences)[0]

    def most(self, sentences: Sentences) -> int:
        """How many texts a row can hold: so many more than it does on average that hardly a row is closed early."""
        return self.kept(sentences)[2]

    def per_epoch(self, sentences: Sentences) -> int:
        """Rows in an epoch: chance makes it one more or less."""
        return len(self.boxed(sentences, 0, 0)[1]) - 1

    def turns(self, sentences: Sentences, seed: int, step: int, static: int) -> Iterator[Turn]:
        texts, epoch = self.texts(sentences, seed, 0), 0
        while step >= (rows := len(self.boxed(sentences, seed, epoch)[1]) - 1):
            step, epoch = step - rows, epoch + 1
        while True:
            order, cuts = self.boxed(sentences, seed, epoch)
            for begin, end in pairwise(cuts[step:].tolist()):
                yield Turn(epoch, epoch % static if static else epoch, texts, order[begin:end])
            step, epoch = 0, epoch + 1

    def held_out(self, sentences: Sentences) -> Iterator[Turn]:
        texts, sizes, most = self.kept(sentences)
        cuts = filled(sizes, np.zeros(len(sizes), np.int64), self.tokens, most).tolist()
        for begin, end in pairwise(cuts):
            yield Turn(0, 0, texts, np.arange(begin, end))

    def _made(self, sentences: Sentences) -> tuple[Texts, np.ndarray, int]:
        documents = sentences.documents
        first, last = sentences.first[documents[:-1]], sentences.last[documents[1:] - 1]
        first, length, _ = pieces(first, last, self.length - 2)
        texts = Texts(first, length, np.arange(len(first) + 1))
        sizes = texts.sizes()
        most = min(self.tokens // int(sizes.min()), 8 + int(1.5 * self.tokens / sizes.mean()), len(texts))
        return texts, sizes, most

    def _boxed(self, sentences: Sentences, seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The order of an epoch, and where in it each row begins."""
        texts, sizes, most = self.kept(sentences)
        order = np.random.default_rng([seed, epoch]).permutation(len(texts))
        return order, filled(sizes[order], np.zeros(len(order), np.int64), self.tokens, most)


def pieces(first: np.ndarray, last: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stretches cut into pieces of `room` ids and a rest: where each piece begins, its length, and of which it is."""
    count = -(-(last - first) // room)
    whole = np.repeat(np.arange(len(first)), count)
    inside = np.arange(len(whole)) - np.repeat(np.cumsum(count) - count, count)
    begin = first[whole] + inside * room
    return begin, np.minimum(last[whole] - begin, room), whole


PAIRS = ("next", "order", "none")
PLAN = 1  # keys the draws of this file


@dataclass(frozen=True)
class SentencePairs:
    rows: int = 256
    length: int = 128  # tokens in a row, marks and padding included
    pair: str = "next"
    short: float = 0.1
    kept: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_whole(rows=(self.rows, 1), length=(self.length, 5))
        if self.pair not in PAIRS:
            raise NextwordError(f"batches: pair = {self.pair!r}; expected one of {', '.join(PAIRS)}.")
        if not isinstance(self.short, (int, float)) or not 0 <= self.short <= 1:
            raise NextwordError(f"batches: short = {self.short!r} must be a share of the documents, from 0 to 1.")
        object.__setattr__(self, "kept", Kept(self._made))

    def texts(self, sentences: Sentences, seed: int, variant: int) -> Texts:
        return self.kept(sentences, seed, variant)

    def per_epoch(self, sentences: Sentences) -> int:
        """Batches of an epoch. Chance changes the number of pairs a little; every epoch has as many batches as this."""
        return max(1, len(self.texts(sentences, 0, 0)) // self.rows)

    def turns(self, sentences: Sentences, seed: int, step: int, static: int) -> Iterator[Turn]:
        return in_rows(self, sentences, seed, step, static)

    def held_out(self, sentences: Sentences) -> Iterator[Turn]:
        return one_pass(self, sentences)

    def _made(self, sentences: Sentences, seed: int, variant: int) -> Texts:
        documents = sentences.documents
        if self.pair == "next" and len(documents) == 2:
            documents = np.array([0, len(sentences) // 2, len(sentences)])
        how = (self.length - 3, float(self.short), PAIRS.index(self.pair))
        given = (sentences.first, sentences.last, documents, key_of(PLAN, seed, variant), *how)
        found = 0 if self.pair == "next" and len(sentences) < 2 else _plan(*given, np.empty((0, 5), np.int64))
        if not found:
            why = "one sentence in all" if self.pair == "next" else "documents of one sentence alone"
            raise NextwordError(
                f"No pair for pair = '{self.pair}' can be made of this text: it has {why}. Give documents of several "
                "sentences, or train without pairs (--set phase.0.batches.pair=none)."
            )
        table = np.empty((found, 5), np.int64)
        _plan(*given, table)
        first, length = table[:, 0:4:2], table[:, 1:4:2]
        there = length > 0  # a second segment may be missing
        stretches = np.concatenate(([0], np.cumsum(there.sum(1))))
        return Texts(first[there], length[there], stretches, None if self.pair == "none" else table[:, 4].copy())


@compiled
def _plan(first, last, documents, key, room, short, pair, table):
    """Rows of the table: where A begins and its length, the same of B, the label. Returns how many there are; those
    beyond the table are counted alone."""
    n = 0
    for d in range(len(documents) - 1):
        low, high = documents[d], documents[d + 1]
        own = mixed(key ^ mixed(np.uint64(d) + np.uint64(1)))
        goal = room
        if uniform(own, 0) < short:
            goal = 2 + below(own, 1, room - 1)
        draw = 2
        i = low
        while i < high:
            j = i + 1
            while j < high and last[j - 1] - first[i] < goal:
                j += 1
            if pair > 0 and j - i == 1:
                if j < high:
                    j += 1
                elif i > low:
                    i -= 1
                elif pair == 1:
                    break
            cut = j
            if j - i > 1:
                cut = i + 1 + below(own, draw, j - i - 1)
            a, a_length = first[i], last[cut - 1] - first[i]
            b = b_length = label = 0
            if pair == 0 and (j - i == 1 or uniform(own, draw + 1) < 0.5):
                other = below(own, draw + 2, len(documents) - 2)
                if other >= d:
                    other += 1
                s = documents[other] + below(own, draw + 3, documents[other + 1] - documents[other])
                e = s + 1
                while e < documents[other + 1] and last[e - 1] - first[s] < goal - a_length:
                    e += 1
                b, b_length = first[s], last[e - 1] - first[s]
                label = 1
                i = cut  # what A leaves over is not lost
            else:
                if cut < j:
                    b, b_length = first[cut], last[j - 1] - first[cut]
                i = j
            draw += 4
            while a_length + b_length > room:
                front = below(own, draw, 2)
                draw += 1
                if a_length > b_length:
                    a += front
                    a_length -= 1
                else:
                    b += front
                    b_length -= 1
            if pair == 1 and uniform(own, draw) < 0.5:
                a, a_length, b, b_length = b, b_length, a, a_length
                label = 1
            draw += 1
            if n < len(table):
                table[n, 0], table[n, 1], table[n, 2], table[n, 3], table[n, 4] = a, a_length, b, b_length, label
            n += 1
    return n
