"""Texts for masked language modeling: which tokens are masked, and which stretches of a text share a row.

1. Masking        which tokens are chosen, and what replaces them (BERT, whole words, ALBERT's n-grams)
2. Texts          stretches of a prepared text, framed by special tokens
3. FullSentences  rows full of whole sentences (RoBERTa)
4. PackedTexts    whole texts end to end in one row, without padding
5. SentencePairs  two segments per row (BERT's next sentence, ALBERT's sentence order)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from nextword.batching.causal import permute
from nextword.batching.settings import require_bool, require_choice, require_count, require_number
from nextword.batching.token_stream import SENTENCE, WORD, Stream
from nextword.core.errors import DataError, Unsupported, invalid
from nextword.core.jit import jit, mix_bits
from nextword.core.types import IGNORE, Vocabulary
from nextword.tokenizers.special_tokens import Marks

# ------------------------------------------------------------------------------------------------ random numbers

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def derive_key(*numbers: int) -> np.uint64:
    """A key for `random_bits` from non-negative integers: a purpose, a seed, an epoch."""
    return np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]


@jit
def random_bits(key, i):
    """Draw number i of a key: 64 random bits. There is no state, so any draw can be made at any time."""
    return mix_bits(key + np.uint64(i) * GOLDEN)


@jit
def random_uniform(key, i):
    """A number in [0, 1)."""
    return (random_bits(key, i) >> np.uint64(11)) * 2.0**-53


@jit
def random_below(key, i, n):
    """One of 0 … n − 1."""
    return np.int64(random_bits(key, i) % np.uint64(n))


# ------------------------------------------------------------------------------------------------ masking


@dataclass(frozen=True)
class Masking:
    """Choose tokens of each text and replace them (Devlin et al. 2019, section 3.1).

        text      [CLS] the cat sat on the mat [SEP]
        chosen                  ^           ^             15 % (`mask_fraction`); never a special one; at least one
        becomes   [CLS] the cat [MASK] on the car [SEP]   80 % the mask, 10 % a random ordinary token, 10 % unchanged
        targets                 sat         mat           IGNORE everywhere else

    The number of chosen tokens is `mask_fraction` of the text's, rounded up or down at random, so that it is right on
    average however short the text.

        whole_words   all tokens of a word or none of them (BERT's later release)
        max_ngram = 3   runs of up to three words; a run of n with probability ∝ 1/n (ALBERT, section 4.1)

    A word is what stands between spaces. Words are taken in random order while they fit into the number; a word that
    does not fit is skipped, and a run of words is cut where it no longer fits. If no word fits, the first tokens of one
    word are masked.

    All draws depend on (seed, variant, number of the text) alone. `variant` is the epoch if masks are new in every
    epoch (RoBERTa), or the epoch modulo k if each text has k masks (BERT's duplicated data).
    """

    vocabulary: Vocabulary
    mask_fraction: float = 0.15
    mask_token_fraction: float = 0.8  # share of the chosen tokens that become the mask
    random_token_fraction: float = 0.1  # share of the chosen tokens that become a random ordinary token
    whole_words: bool = False
    max_ngram: int = 0  # words in the longest run; 0: no runs
    marks: Marks = field(init=False)
    ordinary: np.ndarray = field(init=False, repr=False)  # (V − specials,) ids that may replace another
    special: np.ndarray = field(init=False, repr=False)  # (V,) bool

    def __post_init__(self) -> None:
        require_number("objective.mask_fraction", self.mask_fraction, 0, 1, exclude_low=True, exclude_high=True)
        require_number("objective.mask_token_fraction", self.mask_token_fraction, 0)
        require_number("objective.random_token_fraction", self.random_token_fraction, 0)
        require_bool("objective.whole_words", self.whole_words)
        require_count("objective.max_ngram", self.max_ngram, least=0)
        if self.mask_token_fraction + self.random_token_fraction > 1:
            problem = f"and random_token_fraction = {self.random_token_fraction} add up to more than 1."
            raise invalid("objective.mask_token_fraction", self.mask_token_fraction, problem)
        special = np.zeros(self.vocabulary.size, bool)
        special[list(self.vocabulary.special.values())] = True
        if special.all():
            raise Unsupported("The tokenizer has only special tokens, so there is nothing to mask.", ability="masking")
        object.__setattr__(self, "marks", Marks.of(self.vocabulary))
        object.__setattr__(self, "special", special)
        object.__setattr__(self, "ordinary", np.flatnonzero(~special))

    def max_targets(self, tokens: int, texts: int = 1) -> int:
        """The most targets in texts that have this many tokens together, special tokens excluded."""
        return int(self.mask_fraction * tokens) + texts

    def __call__(
        self,
        ids: np.ndarray,  # (N,) int64; masked in place
        begins: np.ndarray,  # (N,) bool: a word begins here
        first: np.ndarray,  # (n,) where each text begins
        last: np.ndarray,  # (n,) where it ends
        numbers: np.ndarray,  # (n,) numbers of the texts
        key: np.uint64,  # of seed and variant
        room: int,
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Targets (N,); positions of the masked tokens (room,), padded with 0; and their number."""
        targets = np.full(len(ids), IGNORE, np.int64)
        positions = np.zeros(room, np.int64)
        is_ordinary = ~self.special[ids]
        runs = np.cumsum(1 / np.arange(1, self.max_ngram + 1))  # cumulative weights of 1, 2, … words, if there are runs
        whole = self.whole_words or self.max_ngram > 0
        odds = (self.mask_fraction, self.mask_token_fraction, self.mask_token_fraction + self.random_token_fraction)
        replacements = (self.marks.mask, self.ordinary)
        longest = int((last - first).max(initial=0))
        scratch = np.empty((5, longest + 1), np.int64)
        texts = (ids, begins, is_ordinary, first, last, numbers)
        count = _mask(*texts, key, odds, runs, whole, replacements, targets, positions, scratch)
        return targets, positions, count


@jit
def _mask(ids, begins, free, first, last, numbers, key, odds, runs, whole, places, targets, at, scratch):
    """Mask the texts in place; returns the number of targets. `odds` are cumulative: masked, masked or replaced."""
    share, masked, replaced = odds
    mask, ordinary = places
    word, stop, run, order, chosen = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    done = 0
    for t in range(len(first)):
        own = mix_bits(key ^ mix_bits(np.uint64(numbers[t]) + GOLDEN))
        draw = 0

        # Words of the text that may be masked: from word[w] to stop[w]
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
        wanted = max(1, int(share * tokens + random_uniform(own, draw)))
        draw += 1

        # Runs of words: from run[r] to run[r + 1], never across a special token
        count = 0
        if len(runs):
            w = 0
            while w < words:
                u = random_uniform(own, draw) * runs[-1]
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

        # Take runs in random order (Fisher-Yates) while they fit
        for r in range(count):
            order[r] = r
        found = 0
        for r in range(count):
            s = r + random_below(own, draw, count - r)
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
            u = random_uniform(own, draw)
            if u < masked:
                ids[p] = mask
            elif u < replaced:
                ids[p] = ordinary[random_below(own, draw + 1, len(ordinary))]
            draw += 2
    return done


# ------------------------------------------------------------------------------------------------ texts


@dataclass(frozen=True, eq=False)
class Sentences:
    """Where the sentences of a prepared text lie.

    ids        the cat sat . it slept . <end> a dog ran . <end>
    sentences  |           |          |       |         |           an end of document belongs to no sentence
    documents  |                              |
    """

    first: np.ndarray  # (S,) int64: where each begins
    last: np.ndarray  # (S,) int64: where it ends, exclusive
    documents: np.ndarray  # (D + 1,) int64: document d has the sentences from documents[d] to documents[d + 1]

    def __len__(self) -> int:
        return len(self.first)

    @staticmethod
    def of(text: Stream, end: int | None) -> Sentences:
        """`end` is the id that closes a document, if the tokenizer has one. Empty documents are left out."""
        opens = text.documents["start"].astype(np.int64)
        closes = np.append(opens[1:], len(text.ids))
        if end is not None:
            closes -= (closes > opens) & (np.asarray(text.ids[np.maximum(closes - 1, 0)]) == end)
        opens, closes = opens[closes > opens], closes[closes > opens]
        if not len(opens):
            raise DataError("The text has no documents with a token in them. Use another text.")
        marked = np.flatnonzero(np.asarray(text.marks) & SENTENCE)
        document = np.searchsorted(opens, marked, side="right") - 1
        inner = marked[1:][document[1:] == document[:-1]]  # a document's first sentence begins where the document does
        first = np.sort(np.concatenate((opens, inner)))
        documents = np.append(np.searchsorted(first, opens), len(first))
        last = np.append(first[1:], len(text.ids))
        last[documents[1:] - 1] = closes
        return Sentences(first, last, documents)


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts that a network reads, each made of one or more stretches of ids, with special tokens around them.

    [CLS] the cat sat . [SEP] it slept . [SEP]        two stretches: a pair, or the end and beginning of documents
    [CLS] a dog ran . [SEP]                           one
    """

    first: np.ndarray  # (P,) int64: where each stretch begins
    length: np.ndarray  # (P,) int64: ids in it
    stretches: np.ndarray  # (n + 1,) int64: text i has the stretches from stretches[i] to stretches[i + 1]
    labels: np.ndarray | None = None  # (n,) of segment pairs

    def __len__(self) -> int:
        return len(self.stretches) - 1

    def sizes(self) -> np.ndarray:
        """(n,) tokens of each text, special tokens included."""
        ends = np.concatenate(([0], np.cumsum(self.length + 1)))
        return 1 + np.diff(ends[self.stretches])

    def frame(
        self, text: Stream, chosen: np.ndarray, marks: Marks, width: int, in_one_row: bool = False
    ) -> FramedTexts:
        """The chosen texts with special tokens: each at the start of a row of `width`, or end to end in one row."""
        count = np.diff(self.stretches)[chosen]
        stretch = _ranges(self.stretches[chosen], count)
        length, first = self.length[stretch], self.first[stretch]
        owner = np.repeat(np.arange(len(chosen)), count)  # the text of each stretch
        sizes = 1 + np.bincount(owner, length + 1, len(chosen)).astype(np.int64)
        before = np.cumsum(sizes) - sizes
        starts = before if in_one_row else np.arange(len(chosen)) * width
        # A stretch stands after the [CLS] of its text and after the stretches before it, each with its [SEP].
        places = starts[owner] + 1 + np.cumsum(length + 1) - (length + 1) - (before - np.arange(len(chosen)))[owner]
        ids = np.full(width if in_one_row else width * len(chosen), marks.pad, np.int64)
        begins = np.zeros(len(ids), bool)
        segments = np.zeros(len(ids), np.int64)
        to, source = _ranges(places, length), _ranges(first, length)
        ids[to] = text.ids[source]
        begins[to] = text.marks[source] & WORD
        ids[starts] = marks.cls
        ids[places + length] = marks.sep
        is_second = np.arange(len(stretch)) - np.repeat(np.cumsum(count) - count, count) > 0
        segments[_ranges(places[is_second], length[is_second] + 1)] = 1
        return FramedTexts(ids, begins, segments, starts, sizes)


class FramedTexts(NamedTuple):
    ids: np.ndarray  # (N,) int64
    begins: np.ndarray  # (N,) bool: a word begins here
    segments: np.ndarray  # (N,) 0 up to the [SEP] after the first stretch, then 1
    first: np.ndarray  # (n,) where each text begins
    sizes: np.ndarray  # (n,) its tokens, special tokens included


def _ranges(first: np.ndarray, length: np.ndarray) -> np.ndarray:
    """first[0], first[0] + 1, … (length[0] numbers), then those of first[1], and so on."""
    ends = np.cumsum(length)
    return np.repeat(first - ends + length, length) + np.arange(ends[-1] if len(ends) else 0)


# ------------------------------------------------------------------------------------------------ layouts

Result = TypeVar("Result")


class Selection(NamedTuple):
    """The texts of one batch."""

    epoch: int
    variant: int  # of the texts and their masks: the epoch, or the epoch modulo k
    texts: Texts
    chosen: np.ndarray  # (n,) which of them


class RecentCache(Generic[Result]):
    """Remember the last few results of a function of a text, compared by identity, and of some numbers."""

    SIZE = 4  # enough for the tables of the training text and of the held-out text

    def __init__(self, make: Callable[..., Result]) -> None:
        self.make = make
        self.entries: list[tuple[object, tuple[int, ...], Result]] = []

    def __call__(self, text: object, *key: int) -> Result:
        hits = [entry for entry in self.entries if entry[0] is text and entry[1] == key]
        entry = hits[0] if hits else (text, key, self.make(text, *key))
        self.entries = [entry, *(other for other in self.entries if other is not entry)][: self.SIZE]
        return entry[2]


def pack_in_order(sizes: np.ndarray, between: np.ndarray, room: int, most: int = 0) -> np.ndarray:
    """Put items into boxes in their order. Returns the first item of each box, and the number of items at the end.

    `between` is what an item costs besides its own size if it is not the first in its box; `most` is the greatest
    number of items in a box, 0 for any number. Each item must fit into a box alone.
    """
    cuts = np.empty(len(sizes) + 1, np.int64)
    return cuts[: _fill(sizes, between, room, most or len(sizes), cuts)].copy()


@jit
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


def cut_pieces(first: np.ndarray, last: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut stretches into pieces of `room` ids and a rest: where each piece begins, its length, and its stretch."""
    count = -(-(last - first) // room)
    stretch = np.repeat(np.arange(len(first)), count)
    number = np.arange(len(stretch)) - np.repeat(np.cumsum(count) - count, count)
    begin = first[stretch] + number * room
    return begin, np.minimum(last[stretch] - begin, room), stretch


class MaskedLayout(Protocol):
    """Which texts share a batch."""

    @property
    def length(self) -> int: ...  # tokens of the longest text
    def texts(self, sentences: Sentences, seed: int, variant: int) -> Texts: ...
    def batches_per_epoch(self, sentences: Sentences) -> int: ...
    def selections(self, sentences: Sentences, seed: int, step: int, static: int) -> Iterator[Selection]: ...
    def validation_selections(self, sentences: Sentences) -> Iterator[Selection]: ...


@dataclass(frozen=True)
class TextPerRow(ABC):
    """Layouts with one text per row, padded."""

    rows: int = 256
    length: int = 512  # tokens in a row, special tokens and padding included

    @abstractmethod
    def texts(self, sentences: Sentences, seed: int, variant: int) -> Texts:
        """The texts of an epoch. `variant` is the epoch, or the epoch modulo the number of static masks."""

    def batches_per_epoch(self, sentences: Sentences) -> int:
        """The same for every epoch, although the number of texts may vary a little."""
        return max(1, len(self.texts(sentences, 0, 0)) // self.rows)

    def selections(self, sentences: Sentences, seed: int, step: int, static: int) -> Iterator[Selection]:
        """Shuffled in every epoch. The remainder of the last batch is dropped."""
        per_epoch = self.batches_per_epoch(sentences)
        while True:
            epoch, i = divmod(step, per_epoch)
            variant = epoch % static if static else epoch
            texts = self.texts(sentences, seed, variant)
            index = np.arange(i * self.rows, (i + 1) * self.rows) % len(texts)
            yield Selection(epoch, variant, texts, permute(index, len(texts), key=seed * 1_000_003 + epoch))
            step += 1

    def validation_selections(self, sentences: Sentences) -> Iterator[Selection]:
        """Every text once, in order; the last batch may have fewer rows."""
        texts = self.texts(sentences, 0, 0)
        for at in range(0, len(texts), self.rows):
            yield Selection(0, 0, texts, np.arange(at, min(at + self.rows, len(texts))))


# ------------------------------------------------------------------------------------------------ full sentences


@dataclass(frozen=True)
class FullSentences(TextPerRow):
    """Rows full of whole sentences (Liu et al. 2019, section 4.2).

        documents   a1 a2 a3 | b1 | c1 c2              sentences of three documents

        default     [CLS] a1 a2 a3 [SEP] b1 [SEP]      a row takes as many sentences as fit, and continues with the next
                    [CLS] c1 c2 [SEP] . . . . . . .    document after a separator (FULL-SENTENCES)
        separate    [CLS] a1 a2 a3 [SEP] . . . . .     … or never does (DOC-SENTENCES)
                    [CLS] b1 [SEP] . . . . . . . .

    The texts are the same in every epoch, so that a mask can belong to a text; their order changes. A sentence longer
    than a row is cut.
    """

    separate_documents: bool = False
    _texts: RecentCache[Texts] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_count("batches.rows", self.rows)
        require_count("batches.length", self.length, least=3)
        require_bool("batches.separate_documents", self.separate_documents)
        object.__setattr__(self, "_texts", RecentCache(self._make_texts))

    def texts(self, sentences: Sentences, seed: int, variant: int) -> Texts:
        return self._texts(sentences)

    def _make_texts(self, sentences: Sentences) -> Texts:
        room = self.length - 2
        opens = np.zeros(len(sentences), bool)
        opens[sentences.documents[:-1]] = True
        first, length, sentence = cut_pieces(sentences.first, sentences.last, room)
        opens = opens[sentence]  # true of all pieces of a long sentence, but the later ones begin a row in any case
        cuts = pack_in_order(length, opens.astype(np.int64) * (self.length if self.separate_documents else 1), room)
        begins = opens.copy()
        begins[cuts[:-1]] = True  # a stretch continues within one document and one row
        stretch = np.flatnonzero(begins)
        return Texts(first[stretch], np.add.reduceat(length, stretch), np.searchsorted(stretch, cuts))


# ------------------------------------------------------------------------------------------------ packed texts


@dataclass(frozen=True)
class PackedTexts:
    """Whole documents end to end in one row of `tokens`; attention stays within each (`starts`).

        [CLS] c1 c2 [SEP] [CLS] b1 [SEP] [CLS] a1 a2 a3 [SEP] …
        0                 5              9                            starts

    A document longer than `length` is cut into texts of that length and a rest. Every text is read once per epoch.
    Texts that follow each other in the epoch's order share a row while they fit. The room that is left, shorter than
    one text, is padding that forms a text of its own; the last row of an epoch may have more of it, in pieces of at
    most `length`. `starts` has the same length for every row: missing texts are empty.
    """

    tokens: int = 16384
    length: int = 128  # of the longest text, special tokens included: the network's window, or less
    _tables: RecentCache[tuple[Texts, np.ndarray, int]] = field(init=False, repr=False, compare=False)
    _packing: RecentCache[tuple[np.ndarray, np.ndarray]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_count("batches.length", self.length, least=3)
        require_count("batches.tokens", self.tokens, least=3)
        if self.tokens < self.length:
            raise invalid(
                "batches.tokens", self.tokens, f"is less than length = {self.length}: no text fits into a row."
            )
        object.__setattr__(self, "_tables", RecentCache(self._make_tables))
        object.__setattr__(self, "_packing", RecentCache(self._pack_epoch))

    def texts(self, sentences: Sentences, seed: int, variant: int) -> Texts:
        return self._tables(sentences)[0]

    def max_texts(self, sentences: Sentences) -> int:
        """The most texts in a row: so many more than on average that hardly any row is closed early."""
        return self._tables(sentences)[2]

    def rows_in_epoch(self, sentences: Sentences, seed: int, epoch: int) -> int:
        return len(self._packing(sentences, seed, epoch)[1]) - 1

    def batches_per_epoch(self, sentences: Sentences) -> int:
        """Rows in an epoch; the order of texts changes it by one or so."""
        return self.rows_in_epoch(sentences, 0, 0)

    def selections(self, sentences: Sentences, seed: int, step: int, static: int) -> Iterator[Selection]:
        texts, epoch = self.texts(sentences, seed, 0), 0
        while step >= (rows := self.rows_in_epoch(sentences, seed, epoch)):
            step, epoch = step - rows, epoch + 1
        while True:
            order, cuts = self._packing(sentences, seed, epoch)
            for begin, end in pairwise(cuts[step:].tolist()):
                yield Selection(epoch, epoch % static if static else epoch, texts, order[begin:end])
            step, epoch = 0, epoch + 1

    def validation_selections(self, sentences: Sentences) -> Iterator[Selection]:
        texts, sizes, most = self._tables(sentences)
        cuts = pack_in_order(sizes, np.zeros(len(sizes), np.int64), self.tokens, most).tolist()
        for begin, end in pairwise(cuts):
            yield Selection(0, 0, texts, np.arange(begin, end))

    def _make_tables(self, sentences: Sentences) -> tuple[Texts, np.ndarray, int]:
        """The texts, their sizes, and the most of them in a row."""
        documents = sentences.documents
        first, last = sentences.first[documents[:-1]], sentences.last[documents[1:] - 1]
        first, length, _ = cut_pieces(first, last, self.length - 2)
        texts = Texts(first, length, np.arange(len(first) + 1))
        sizes = texts.sizes()
        most = min(self.tokens // int(sizes.min()), 8 + int(1.5 * self.tokens / sizes.mean()), len(texts))
        return texts, sizes, most

    def _pack_epoch(self, sentences: Sentences, seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The order of an epoch, and where in it each row begins."""
        texts, sizes, most = self._tables(sentences)
        order = np.random.default_rng([seed, epoch]).permutation(len(texts))
        return order, pack_in_order(sizes[order], np.zeros(len(order), np.int64), self.tokens, most)


# ------------------------------------------------------------------------------------------------ pairs of segments

PAIRS = ("next", "order", "none")
PLAN = 1  # keys the random draws of pairs


@dataclass(frozen=True)
class SentencePairs(TextPerRow):
    """Pairs of segments, one per row: BERT's next-sentence prediction and ALBERT's sentence-order prediction.

        document   s1 s2 s3 s4 s5 …        sentences are gathered until they fill a row, and cut in two at random

        pair = "next"    half  [CLS] s1 s2 [SEP] s3 s4 s5 [SEP]   0: B follows A
                         half  [CLS] s1 s2 [SEP] t7 t8 [SEP]      1: B is from another document; s3 is read next
        pair = "order"   half  [CLS] s1 s2 [SEP] s3 s4 s5 [SEP]   0: in order
                         half  [CLS] s3 s4 s5 [SEP] s1 s2 [SEP]   1: swapped
        pair = "none"          [CLS] s1 s2 [SEP] s3 s4 s5 [SEP]   no label

    Devlin et al. (2019, appendix A.2), Lan et al. (2020, section 3.1), with the rules of BERT's program: one document
    in ten (`short_fraction`) is gathered into rows of a random shorter length; a pair too long for a row loses tokens
    from the longer segment, at its beginning or its end at random.

    The gathered sentences may be a single one: a document of one, the last of a document, or one that fills the row.

        "next"     it is A, and B is always from another document
        "order"    the sentence after it is added, or else the one before it is read again; a document of one sentence
                   has no order and is left out
        "none"     the same, but a document of one sentence is [CLS] A [SEP]

    If the text is one document, its two halves count as two documents for "next".
    """

    length: int = 128
    pair: str = "next"
    short_fraction: float = 0.1
    _texts: RecentCache[Texts] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_count("batches.rows", self.rows)
        require_count("batches.length", self.length, least=5)
        require_choice("batches.pair", self.pair, PAIRS)
        require_number("batches.short_fraction", self.short_fraction, 0, 1)
        object.__setattr__(self, "_texts", RecentCache(self._make_texts))

    def texts(self, sentences: Sentences, seed: int, variant: int) -> Texts:
        return self._texts(sentences, seed, variant)

    def _make_texts(self, sentences: Sentences, seed: int, variant: int) -> Texts:
        documents = sentences.documents
        if self.pair == "next" and len(documents) == 2:
            documents = np.array([0, len(sentences) // 2, len(sentences)])
        settings = (self.length - 3, float(self.short_fraction), PAIRS.index(self.pair))
        args = (sentences.first, sentences.last, documents, derive_key(PLAN, seed, variant), *settings)
        count = 0 if self.pair == "next" and len(sentences) < 2 else _plan(*args, np.empty((0, 5), np.int64))
        if not count:
            reason = "only one sentence" if self.pair == "next" else "only documents of one sentence"
            raise DataError(
                f"The text has {reason}, so pair = '{self.pair}' finds no pairs. Use documents of several sentences, "
                "or train without pairs (--set phase.0.batches.pair=none)."
            )
        table = np.empty((count, 5), np.int64)
        _plan(*args, table)
        first, length = table[:, 0:4:2], table[:, 1:4:2]
        exists = length > 0  # a second segment may be missing
        stretches = np.concatenate(([0], np.cumsum(exists.sum(1))))
        return Texts(first[exists], length[exists], stretches, None if self.pair == "none" else table[:, 4].copy())


@jit
def _plan(first, last, documents, key, room, short, pair, table):
    """Fill rows of the table: start and length of A, start and length of B, label. Returns the number of pairs; those
    beyond the end of the table are only counted."""
    n = 0
    for d in range(len(documents) - 1):
        low, high = documents[d], documents[d + 1]
        own = mix_bits(key ^ mix_bits(np.uint64(d) + np.uint64(1)))
        goal = room
        if random_uniform(own, 0) < short:
            goal = 2 + random_below(own, 1, room - 1)
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
                cut = i + 1 + random_below(own, draw, j - i - 1)
            a, a_length = first[i], last[cut - 1] - first[i]
            b = b_length = label = 0
            if pair == 0 and (j - i == 1 or random_uniform(own, draw + 1) < 0.5):
                other = random_below(own, draw + 2, len(documents) - 2)
                if other >= d:
                    other += 1
                s = documents[other] + random_below(own, draw + 3, documents[other + 1] - documents[other])
                e = s + 1
                while e < documents[other + 1] and last[e - 1] - first[s] < goal - a_length:
                    e += 1
                b, b_length = first[s], last[e - 1] - first[s]
                label = 1
                i = cut  # the rest of the gathered sentences is read next
            else:
                if cut < j:
                    b, b_length = first[cut], last[j - 1] - first[cut]
                i = j
            draw += 4
            while a_length + b_length > room:
                front = random_below(own, draw, 2)
                draw += 1
                if a_length > b_length:
                    a += front
                    a_length -= 1
                else:
                    b += front
                    b_length -= 1
            if pair == 1 and random_uniform(own, draw) < 0.5:
                a, a_length, b, b_length = b, b_length, a, a_length
                label = 1
            draw += 1
            if n < len(table):
                table[n, 0], table[n, 1], table[n, 2], table[n, 3], table[n, 4] = a, a_length, b, b_length, label
            n += 1
    return n
