"""Decontamination: find evaluation text in the training text, by n-grams of words, and remove it.

As in GPT-3 (Brown et al. 2020, appendix C), for two purposes:

- Evaluate on clean documents only (`split_by_contamination`). A document is dirty if the training text has any of its
  N-grams. N is the 5th percentile of the lengths of documents in words, at least 8 and at most 13.
- Train without them (`remove_contamination`). Each N-gram of the evaluation set is removed with 200 characters on both
  sides, which cuts the document into pieces. Pieces shorter than 200 characters are dropped, and so are documents in
  more than 10 pieces. N-grams in more than 10 training documents are common phrases and are left alone.

        …an article that quotes [200 characters| the very words of the test set |200 characters] and continues…

Only the evaluation set is held in memory, as a hash table of its n-grams; the training text is streamed, once for the
first purpose and twice for the second. Every match of hashes is verified on the words themselves.

`DecontaminatedCorpus` removes contamination on the fly, while training. `nextword data NAME --out OUT` (pipeline.py)
writes the cleaned text into a folder, with a report. `count_leaks` counts documents that are in train and test word for
word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np

from nextword.core.errors import bad_data, invalid
from nextword.core.jit import jit
from nextword.core.types import Document
from nextword.data.corpus import Corpus
from nextword.data.files import require_nonempty
from nextword.data.filters.word_hashes import (
    DocumentPart,
    batch_parts,
    fold_words,
    hash_ngrams,
    hash_words,
    join_passages,
)

MIN_WORDS, MAX_WORDS = 8, 13  # of an n-gram: shorter ones coincide by chance, longer ones are not needed
PERCENTILE = 5
WINDOW = 200  # characters removed on both sides
MIN_PIECE = 200  # characters
MAX_PIECES = 10
MAX_DOCUMENTS = 10  # an n-gram in more training documents is a common phrase

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Verdict:
    """The result for one evaluation document: `gram` is its first n-gram that the training document `seen_in` has."""

    document: Document
    grams: int  # number of its n-grams
    seen: int  # number of those in the training text
    gram: str = ""
    seen_in: str = ""

    @property
    def is_dirty(self) -> bool:
        return self.seen > 0

    @property
    def is_too_short(self) -> bool:
        """Whether it is too short to have an n-gram; it counts as clean."""
        return self.grams == 0


@dataclass(frozen=True)
class Hit:
    """An n-gram of the evaluation set in a training document, at characters [start, end)."""

    gram: int
    start: int
    end: int


def choose_ngram_length(lengths: Sequence[int]) -> int:
    """Return N for documents of these lengths in words: the 5th percentile, at least 8 and at most 13."""
    return int(min(max(np.percentile(lengths, PERCENTILE), MIN_WORDS), MAX_WORDS)) if len(lengths) else MAX_WORDS


@jit
def _number_hashes(hashes, slots, ids, gram_of, first):
    """Number the distinct hashes in order of appearance; return how many there are."""
    mask = len(slots) - 1
    count = 0
    for i in range(len(hashes)):
        key = max(hashes[i], np.uint64(1))
        s = np.int64(key) & mask
        while slots[s] and slots[s] != key:
            s = (s + 1) & mask
        if not slots[s]:
            slots[s], ids[s], first[count] = key, count, i
            count += 1
        gram_of[i] = ids[s]
    return count


@jit
def _find(hashes, slots, ids, position, gram):
    mask = len(slots) - 1
    n = 0
    for i in range(len(hashes)):
        key = max(hashes[i], np.uint64(1))
        s = np.int64(key) & mask
        while slots[s]:
            if slots[s] == key:
                position[n], gram[n] = i, ids[s]
                n += 1
                break
            s = (s + 1) & mask
    return n


class NgramIndex:
    """The n-grams of evaluation documents, and how often each occurs in training documents.

    After `read(training documents)`, `seen[g]` is the number of documents that contain n-gram g.
    """

    def __init__(self, documents: Iterable[Document], n: int | None = None, name: str = "The evaluation set") -> None:
        self.name = name
        self.documents = [part.document for part in join_passages(documents, 1 << 62)]
        if not self.documents:
            raise bad_data(name, "no documents.")
        words = hash_words([document.text for document in self.documents])
        lengths = np.diff(words.firsts)
        self.n = choose_ngram_length(lengths.tolist()) if n is None else n
        if self.n < 1:
            raise invalid("n", self.n, f"must be 1 word or more ({MIN_WORDS} to {MAX_WORDS} are usual).")
        if lengths.max() < self.n:
            problem = f"too short: its longest document has {lengths.max()} words, but {self.n}-grams are compared."
            raise bad_data(name, f"{problem} Join short documents into passages.")
        hashes, word = hash_ngrams(words, self.n)
        num_slots = 1 << max(8, (4 * len(hashes)).bit_length())
        self.slots, self.ids = np.zeros(num_slots, np.uint64), np.zeros(num_slots, np.int32)
        self.gram_of, first = np.empty(len(hashes), np.int32), np.empty(len(hashes), np.int64)
        self.size = _number_hashes(hashes, self.slots, self.ids, self.gram_of, first)
        text_of = np.searchsorted(words.firsts, word, "right") - 1  # document of each n-gram
        self.edges = np.searchsorted(text_of, np.arange(len(self.documents) + 1))  # n-grams of each document
        begin = words.spans[word, 0] - words.edges[text_of]
        end = words.spans[word + self.n - 1, 1] - words.edges[text_of]
        self.spans = np.stack([begin, end], 1)
        self.text_of, self.first = text_of, first[: self.size]
        self.seen, self._last = np.zeros(self.size, np.int64), np.full(self.size, -1, np.int64)
        self._folded: dict[int, list[str]] = {}  # words of n-grams that were compared
        self.seen_in: dict[int, str] = {}  # n-gram → id of the first training document that has it
        self.read_documents = self.read_bytes = 0

    def spelling(self, occurrence: int) -> str:
        """Return the text of the nth n-gram, counted over all documents."""
        begin, end = self.spans[occurrence]
        return self.documents[self.text_of[occurrence]].text[begin:end]

    def _matches(self, gram: int, text: str) -> bool:
        """Whether the text has the words of this n-gram, and not just their hash."""
        if gram not in self._folded:
            self._folded[gram] = fold_words(self.spelling(int(self.first[gram])))
        return self._folded[gram] == fold_words(text)

    def hits(self, batch: Sequence[DocumentPart]) -> list[list[Hit]]:
        """Return the n-grams in each training document, in order, without those entirely in the part before."""
        texts = [part.before + part.document.text for part in batch]
        words = hash_words(texts)
        hashes, first_word = hash_ngrams(words, self.n)
        positions, gram = np.empty(len(hashes), np.int64), np.empty(len(hashes), np.int32)
        count = _find(hashes, self.slots, self.ids, positions, gram)
        out: list[list[Hit]] = [[] for _ in batch]
        word = first_word[positions[:count]]
        rows = np.searchsorted(words.firsts, word, "right") - 1
        starts, ends = words.spans[word, 0] - words.edges[rows], words.spans[word + self.n - 1, 1] - words.edges[rows]
        columns = (array.tolist() for array in (rows, gram[:count], starts, ends))
        for row, id, start, end in zip(*columns, strict=True):
            before = len(batch[row].before)
            if end > before and self._matches(id, texts[row][start:end]):
                out[row].append(Hit(id, max(0, start - before), end - before))
        return out

    def read(self, documents: Iterable[Document], progress: Progress | None = None) -> NgramIndex:
        """Count n-grams in one pass over the training text."""
        for batch in batch_parts(join_passages(documents)):
            for part, hits in zip(batch, self.hits(batch), strict=True):
                self.read_documents += not part.document.continues
                self.read_bytes += len(part.document.text.encode())
                for hit in hits:
                    if self._last[hit.gram] != self.read_documents:
                        self._last[hit.gram] = self.read_documents
                        self.seen[hit.gram] += 1
                        self.seen_in.setdefault(hit.gram, part.document.id or part.document.title)
            if progress:
                progress(self.read_bytes)
        return self

    def verdicts(self, common: int | None = None) -> list[Verdict]:
        """Return the result for each evaluation document; ignore n-grams in more than `common` training documents."""
        counts = (self.seen > 0) & (self.seen <= (common or np.iinfo(np.int64).max))
        out = []
        for number, document in enumerate(self.documents):
            low, high = int(self.edges[number]), int(self.edges[number + 1])
            dirty = (low + np.flatnonzero(counts[self.gram_of[low:high]])).tolist()
            verified = [i for i in dirty if self._matches(int(self.gram_of[i]), self.spelling(i))]
            if verified:
                where = self.seen_in[int(self.gram_of[verified[0]])]
                out.append(Verdict(document, high - low, len(verified), self.spelling(verified[0]), where))
            else:
                out.append(Verdict(document, high - low, 0))
        return out


# ------------------------------------------------------------------------------------------------ evaluation


@dataclass(frozen=True)
class Contamination:
    """Which documents of an evaluation split are clean with respect to a training text."""

    n: int
    verdicts: list[Verdict]
    read_documents: int
    read_bytes: int

    @property
    def clean(self) -> list[Document]:
        return [verdict.document for verdict in self.verdicts if not verdict.is_dirty]

    @property
    def dirty(self) -> list[Document]:
        return [verdict.document for verdict in self.verdicts if verdict.is_dirty]

    def as_dict(self) -> dict[str, int | float]:
        return {
            "n": self.n,
            "documents": len(self.verdicts),
            "dirty": len(self.dirty),
            "too_short": sum(verdict.is_too_short for verdict in self.verdicts),
            "grams": sum(verdict.grams for verdict in self.verdicts),
            "grams_seen": sum(verdict.seen for verdict in self.verdicts),
            "training_documents": self.read_documents,
            "training_bytes": self.read_bytes,
        }


def training_documents(corpus: Corpus) -> Iterator[Document]:
    """Yield what may have been trained on: the training split, or everything if there is none."""
    for split in ("train",) if "train" in corpus.splits else corpus.splits:
        yield from corpus.documents(split)


def split_by_contamination(
    corpus: Corpus, split: str, against: Corpus, n: int | None = None, progress: Progress | None = None
) -> Contamination:
    """Find the documents of an evaluation split that share an n-gram with the training text of a corpus."""
    index = NgramIndex(corpus.documents(split), n, f"{corpus.name} ({split})")
    index.read(training_documents(against), progress)
    return Contamination(index.n, index.verdicts(), index.read_documents, index.read_bytes)


# ------------------------------------------------------------------------------------------------ training


@dataclass(frozen=True)
class FilteredDocument:
    """A training document and what remains of it: itself, some pieces, or nothing."""

    document: Document
    left: list[Document]
    gram: str = ""  # the first n-gram removed, as the document spells it

    @property
    def is_changed(self) -> bool:
        return bool(self.gram)


def remove_contamination(
    documents: Iterable[Document], indexes: Sequence[NgramIndex], common: int = MAX_DOCUMENTS
) -> Iterator[FilteredDocument]:
    """Remove the n-grams of evaluation sets from training documents, which each index must have read before."""
    for batch in batch_parts(join_passages(documents)):
        all_hits: list[list[Hit]] = [[] for _ in batch]
        for index in indexes:
            for own, hits in zip(all_hits, index.hits(batch), strict=True):
                own += [hit for hit in hits if index.seen[hit.gram] <= common]
        for part, hits in zip(batch, all_hits, strict=True):
            document = part.document
            if not hits:
                yield FilteredDocument(document, [document])
                continue
            first = min(hits, key=lambda hit: hit.start)
            texts = cut_spans(document.text, [(hit.start, hit.end) for hit in hits])
            left = [Document(text, f"{document.id}#{i}", document.title) for i, text in enumerate(texts, 1)]
            yield FilteredDocument(document, left, document.text[first.start : first.end])


def _is_word_boundary(text: str, offset: int) -> bool:
    """Whether a cut before this character leaves words intact."""
    return text[offset - 1].isspace() or text[offset].isspace()


def cut_spans(text: str, hits: Sequence[tuple[int, int]]) -> list[str]:
    """Return what remains of a text without these spans and their surroundings. Cuts are widened to word boundaries."""
    edge, pieces = 0, []
    for start, end in sorted(hits):
        low, high = max(0, start - WINDOW), min(len(text), end + WINDOW)
        while low > 0 and not _is_word_boundary(text, low) and start - low < 2 * WINDOW:
            low -= 1
        while high < len(text) and not _is_word_boundary(text, high) and high - end < 2 * WINDOW:
            high += 1
        if low > edge:
            pieces.append(text[edge:low])
        edge = max(edge, high)
    if edge < len(text):
        pieces.append(text[edge:])
    return [piece.strip() for piece in pieces if len(piece) >= MIN_PIECE] if len(pieces) <= MAX_PIECES else []


VERSION = b"without 1"


def index_held_out(corpus: Corpus) -> NgramIndex:
    """Index the n-grams of all held-out splits of a corpus."""
    held_out = [split for split in corpus.splits if split != "train"]
    documents = (document for split in held_out for document in corpus.documents(split))
    return NgramIndex(documents, name=f"{corpus.name} ({', '.join(held_out) or 'no held-out split'})")


class DecontaminatedCorpus(Corpus):
    """A corpus whose training text has nothing of the held-out texts of other corpora.

    The training text is read once, to count their n-grams, and then again without them.
    """

    def __init__(self, corpus: Corpus, others: Sequence[Corpus]) -> None:
        names = ", ".join(other.name for other in others)
        source = f"{corpus.source}, without the held-out texts of {names}"
        super().__init__(corpus.name, source, corpus.texts, corpus.held_out, corpus.scratch)
        self.others = list(others)

    def documents(self, split: str) -> Iterator[Document]:
        if split != "train":
            return super().documents(split)
        return self._clean_documents()

    def _clean_documents(self) -> Iterator[Document]:
        cleaned = remove_contamination(super().documents("train"), self.indexes)
        names = ", ".join(other.name for other in self.others)
        problem = f"nothing remains without {names}: is it the same text?"
        remedy = "Train on another text, or remove `without` from the recipe."
        left = (document for result in cleaned for document in result.left)
        yield from require_nonempty(left, self.name, f"{problem} {remedy}")

    @cached_property
    def indexes(self) -> list[NgramIndex]:
        return [
            index_held_out(other).read(super(DecontaminatedCorpus, self).documents("train")) for other in self.others
        ]

    def compute_fingerprint(self) -> str:
        prints = [super().compute_fingerprint(), *(other.compute_fingerprint() for other in self.others)]
        return blake2b(VERSION + "".join(prints).encode(), digest_size=16).hexdigest()


# ------------------------------------------------------------------------------------------------ exact duplicates


def count_leaks(corpus: Corpus) -> dict[str, int]:
    """Return for each held-out split how many of its documents are also in train. Empty without a training text.

    Splits by hash have none, since equal texts belong to the same split, so they are not read.
    """
    held_out = [split for split in corpus.splits if split != "train"]
    if "train" not in corpus.splits:
        return {}
    if set(held_out) <= set(corpus.held_out):
        return dict.fromkeys(held_out, 0)
    train = np.fromiter(_hashes(corpus.documents("train")), np.uint64)
    leaks = dict.fromkeys(held_out, 0)
    for split in set(held_out) - set(corpus.held_out):
        leaks[split] = int(np.isin(np.fromiter(_hashes(corpus.documents(split)), np.uint64), train).sum())
    return leaks


def _hashes(documents: Iterable[Document]) -> Iterator[int]:
    """Yield one 64-bit hash per document, however many passages it comes in."""
    hasher = None
    for document in documents:
        if hasher is not None and not document.continues:
            yield int.from_bytes(hasher.digest(), "big")
        if hasher is None or not document.continues:
            hasher = blake2b(digest_size=8)
        hasher.update(document.text.strip().encode())
    if hasher is not None:
        yield int.from_bytes(hasher.digest(), "big")
