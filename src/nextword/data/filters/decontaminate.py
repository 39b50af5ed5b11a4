"""Contamination: evaluation text that stands in the training text too, found by runs of words that both have.

As GPT-3 did it (Brown et al., 2020, appendix C), in its two uses:

    which examples were seen     an example is dirty if any of its N-grams is in the training text, else clean. N is
                                 the 5th percentile of the examples' lengths in words, at least 8 and at most 13
    training text without them   each N-gram of the evaluation set goes, with 200 characters on both sides; that cuts
                                 the document into pieces, and pieces shorter than 200 characters go too. A document in
                                 more than 10 pieces goes whole. N-grams in more than 10 training documents are
                                 common phrases: they are left alone

        …an article that quotes [200 characters| the very words of the test set |200 characters] and goes on…

Only the evaluation set is held in memory, as a table of its grams by 64-bit hashes; the training text streams by, once
for the first use and twice for the second. A hash is never believed: what is reported or removed has the same words.

A corpus whose training text holds nothing of some evaluation sets, found and cut out while it is read.

    corpus ── train ──▶ read once, to see which grams of the held-out texts it has ──▶ read again, without them
           ── valid, test ──▶ as they are

As GPT-3's authors did (appendix C): what is found goes, and some text around it. `nextword data NAME --clean` does the
same into a folder, with a report; this is for training at once.

How much of the held-out text was seen in training: documents that stand word for word on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np

from nextword.core.errors import NextwordError
from nextword.core.jit import compiled
from nextword.core.types import Document
from nextword.data.corpus import Corpus
from nextword.data.filters.dedup import Part, batches, fold, grams, parts, words

FEWEST, MOST_WORDS = 8, 13  # words of a gram: fewer coincide by chance, more than that need not be asked for
PERCENTILE = 5
WINDOW = 200  # characters removed on both sides
SHORTEST = 200  # characters of a piece that is kept
PIECES = 10
COMMON = 10  # training documents

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Verdict:
    """One evaluation document: `gram` is the first run of words that the training document `seen_in` has too."""

    document: Document
    grams: int  # how many it has
    seen: int  # how many of them are in the training text
    gram: str = ""
    seen_in: str = ""

    @property
    def dirty(self) -> bool:
        return self.seen > 0

    @property
    def short(self) -> bool:
        """Too short to have a gram: counted as clean, though nobody can tell."""
        return self.grams == 0


@dataclass(frozen=True)
class Hit:
    """A gram of the evaluation set in a training document: characters [start, end) of it."""

    gram: int
    start: int
    end: int


def gram_length(lengths: Sequence[int]) -> int:
    """N for examples of so many words: the 5th percentile, at least 8 and at most 13."""
    return int(min(max(np.percentile(lengths, PERCENTILE), FEWEST), MOST_WORDS)) if len(lengths) else MOST_WORDS


@compiled
def _enter(hashes, slots, ids, gram_of, first):
    """Numbers for distinct hashes, in order of appearance; returns how many."""
    mask = len(slots) - 1
    made = 0
    for i in range(len(hashes)):
        key = max(hashes[i], np.uint64(1))
        s = np.int64(key) & mask
        while slots[s] and slots[s] != key:
            s = (s + 1) & mask
        if not slots[s]:
            slots[s], ids[s], first[made] = key, made, i
            made += 1
        gram_of[i] = ids[s]
    return made


@compiled
def _find(hashes, slots, ids, at, gram):
    mask = len(slots) - 1
    n = 0
    for i in range(len(hashes)):
        key = max(hashes[i], np.uint64(1))
        s = np.int64(key) & mask
        while slots[s]:
            if slots[s] == key:
                at[n], gram[n] = i, ids[s]
                n += 1
                break
            s = (s + 1) & mask
    return n


class Watch:
    """The grams of evaluation documents, and which of them training text was seen to have.

    After `read(training documents)`, `seen[g]` is the number of documents that hold gram g.
    """

    def __init__(self, documents: Iterable[Document], n: int | None = None, name: str = "The evaluation set") -> None:
        self.name = name
        self.documents = [part.document for part in parts(documents, 1 << 62)]
        if not self.documents:
            raise NextwordError(f"{name} has no documents, so there is nothing to look for. Give one that has text.")
        found = words([document.text for document in self.documents])
        lengths = np.diff(found.firsts)
        self.n = gram_length(lengths.tolist()) if n is None else n
        if self.n < 1:
            raise NextwordError(f"Grams of {self.n} words: give 1 or more ({FEWEST} to {MOST_WORDS} are usual).")
        if lengths.max() < self.n:
            raise NextwordError(
                f"{name} is too short to look for: its longest document has {lengths.max()} words, and {self.n} in a "
                f"row are compared. Give whole passages, or join short ones."
            )
        hashes, at = grams(found, self.n)
        places = 1 << max(8, (4 * len(hashes)).bit_length())
        self.slots, self.ids = np.zeros(places, np.uint64), np.zeros(places, np.int32)
        self.gram_of, first = np.empty(len(hashes), np.int32), np.empty(len(hashes), np.int64)
        self.size = _enter(hashes, self.slots, self.ids, self.gram_of, first)
        text_of = np.searchsorted(found.firsts, at, "right") - 1  # the document of each gram
        self.edges = np.searchsorted(text_of, np.arange(len(self.documents) + 1))  # its grams
        begin = found.spans[at, 0] - found.edges[text_of]
        end = found.spans[at + self.n - 1, 1] - found.edges[text_of]
        self.spans = np.stack([begin, end], 1)
        self.text_of, self.first = text_of, first[: self.size]
        self.seen, self._last = np.zeros(self.size, np.int64), np.full(self.size, -1, np.int64)
        self.seen_in: dict[int, str] = {}  # gram → id of the first training document that has it
        self.read_documents = self.read_bytes = 0

    def spelling(self, occurrence: int) -> str:
        """The text of a gram where it stands for the nth time of all."""
        begin, end = self.spans[occurrence]
        return self.documents[self.text_of[occurrence]].text[begin:end]

    @cached_property
    def _folded(self) -> dict[int, list[str]]:
        return {}

    def _is(self, gram: int, text: str) -> bool:
        """Whether the text has the words of this gram, and not just their hash."""
        if gram not in self._folded:
            self._folded[gram] = fold(self.spelling(int(self.first[gram])))
        return self._folded[gram] == fold(text)

    def hits(self, batch: Sequence[Part]) -> list[list[Hit]]:
        """For each of some training documents, the grams in it, as they come; those in `before` alone are not new."""
        texts = [part.before + part.document.text for part in batch]
        found = words(texts)
        hashes, first_word = grams(found, self.n)
        at, gram = np.empty(len(hashes), np.int64), np.empty(len(hashes), np.int32)
        count = _find(hashes, self.slots, self.ids, at, gram)
        out: list[list[Hit]] = [[] for _ in batch]
        word = first_word[at[:count]]
        rows = np.searchsorted(found.firsts, word, "right") - 1
        starts, ends = found.spans[word, 0] - found.edges[rows], found.spans[word + self.n - 1, 1] - found.edges[rows]
        for row, id, start, end in zip(
            rows.tolist(), gram[:count].tolist(), starts.tolist(), ends.tolist(), strict=True
        ):
            before = len(batch[row].before)
            if end > before and self._is(id, texts[row][start:end]):
                out[row].append(Hit(id, max(0, start - before), end - before))
        return out

    def read(self, documents: Iterable[Document], progress: Progress | None = None) -> Watch:
        """One pass over training text."""
        for batch in batches(parts(documents)):
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
        """What was seen of each evaluation document; grams in more than `common` training documents do not count."""
        counts = (self.seen > 0) & (self.seen <= (common or np.iinfo(np.int64).max))
        out = []
        for number, document in enumerate(self.documents):
            low, high = int(self.edges[number]), int(self.edges[number + 1])
            dirty = (low + np.flatnonzero(counts[self.gram_of[low:high]])).tolist()
            same = [i for i in dirty if self._is(int(self.gram_of[i]), self.spelling(i))]
            if same:
                where = self.seen_in[int(self.gram_of[same[0]])]
                out.append(Verdict(document, high - low, len(same), self.spelling(same[0]), where))
            else:
                out.append(Verdict(document, high - low, 0))
        return out


@dataclass(frozen=True)
class Contamination:
    """An evaluation split against a training text: which of its documents are clean."""

    n: int
    verdicts: list[Verdict]
    read_documents: int
    read_bytes: int

    @property
    def clean(self) -> list[Document]:
        return [verdict.document for verdict in self.verdicts if not verdict.dirty]

    @property
    def dirty(self) -> list[Document]:
        return [verdict.document for verdict in self.verdicts if verdict.dirty]

    def as_dict(self) -> dict[str, int | float]:
        return {
            "n": self.n,
            "documents": len(self.verdicts),
            "dirty": len(self.dirty),
            "too_short": sum(verdict.short for verdict in self.verdicts),
            "grams": sum(verdict.grams for verdict in self.verdicts),
            "grams_seen": sum(verdict.seen for verdict in self.verdicts),
            "training_documents": self.read_documents,
            "training_bytes": self.read_bytes,
        }


def training_documents(corpus: Corpus) -> Iterator[Document]:
    """What could have been trained on: the training split; of a corpus that has none, all."""
    for split in ("train",) if "train" in corpus.splits else corpus.splits:
        yield from corpus.documents(split)


def split_by_contamination(
    corpus: Corpus, split: str, against: Corpus, n: int | None = None, progress: Progress | None = None
) -> Contamination:
    """Which documents of an evaluation split share an N-gram with the training text of a corpus, another or its own."""
    watch = Watch(corpus.documents(split), n, f"{corpus.name} ({split})")
    watch.read(training_documents(against), progress)
    return Contamination(watch.n, watch.verdicts(), watch.read_documents, watch.read_bytes)


@dataclass(frozen=True)
class Filtered:
    """A training document and what is left of it: itself, some pieces, or nothing."""

    document: Document
    left: list[Document]
    gram: str = ""  # the first one found in it, as the document writes it

    @property
    def touched(self) -> bool:
        return bool(self.gram)


def filtered(documents: Iterable[Document], watches: Sequence[Watch], common: int = COMMON) -> Iterator[Filtered]:
    """Training documents without the evaluation sets' grams; each watch has read the same documents before."""
    for batch in batches(parts(documents)):
        found: list[list[Hit]] = [[] for _ in batch]
        for watch in watches:
            for mine, hits in zip(found, watch.hits(batch), strict=True):
                mine += [hit for hit in hits if watch.seen[hit.gram] <= common]
        for part, hits in zip(batch, found, strict=True):
            document = part.document
            if not hits:
                yield Filtered(document, [document])
                continue
            first = min(hits, key=lambda hit: hit.start)
            left = pieces(document.text, [(hit.start, hit.end) for hit in hits])
            named = [Document(text, f"{document.id}#{i}", document.title) for i, text in enumerate(left, 1)]
            yield Filtered(document, named, document.text[first.start : first.end])


def _between(text: str, at: int) -> bool:
    """Whether a cut before this character leaves words whole."""
    return text[at - 1].isspace() or text[at].isspace()


def pieces(text: str, hits: Sequence[tuple[int, int]]) -> list[str]:
    """What is left of a text without these spans and what is near them. Cuts widen to the next space: no half words."""
    edge, cut = 0, []
    for start, end in sorted(hits):
        low, high = max(0, start - WINDOW), min(len(text), end + WINDOW)
        while low > 0 and not _between(text, low) and start - low < 2 * WINDOW:
            low -= 1
        while high < len(text) and not _between(text, high) and high - end < 2 * WINDOW:
            high += 1
        if low > edge:
            cut.append(text[edge:low])
        edge = max(edge, high)
    if edge < len(text):
        cut.append(text[edge:])
    return [piece.strip() for piece in cut if len(piece) >= SHORTEST] if len(cut) <= PIECES else []


VERSION = b"without 1"


def watch(corpus: Corpus) -> Watch:
    """The grams of all that a corpus holds out."""
    held_out = [split for split in corpus.splits if split != "train"]
    evaluated = (document for split in held_out for document in corpus.documents(split))
    return Watch(evaluated, name=f"{corpus.name} ({', '.join(held_out) or 'no held-out split'})")


class Without(Corpus):
    def __init__(self, corpus: Corpus, others: Sequence[Corpus]) -> None:
        names = ", ".join(other.name for other in others)
        source = f"{corpus.source}, without what stands in the held-out texts of {names}"
        super().__init__(corpus.name, source, corpus.texts, corpus.held_out, corpus.scratch)
        self.others = list(others)

    def documents(self, split: str) -> Iterator[Document]:
        if split != "train":
            return super().documents(split)
        return self._left()

    def _left(self) -> Iterator[Document]:
        some = False
        for result in filtered(super().documents("train"), self.watches):
            some = some or bool(result.left)
            yield from result.left
        if not some:
            raise NextwordError(
                f"Nothing is left of {self.name} without what stands in {', '.join(o.name for o in self.others)}: is "
                "it the same text? Train on another, or leave `without` out of the recipe."
            )

    @cached_property
    def watches(self) -> list[Watch]:
        return [watch(other).read(super(Without, self).documents("train")) for other in self.others]

    @cached_property
    def fingerprint(self) -> str:
        prints = [super().fingerprint, *(other.fingerprint for other in self.others)]
        return blake2b(VERSION + "".join(prints).encode(), digest_size=16).hexdigest()


def leakage(corpus: Corpus) -> dict[str, int]:
    """For each held-out split, how many of its documents are also in train. Empty where there is no training text.

    A split made by hash has none, since equal texts fall on one side; only given splits need to be read.
    """
    held_out = [split for split in corpus.splits if split != "train"]
    if "train" not in corpus.splits:
        return {}
    if set(held_out) <= set(corpus.held_out):
        return dict.fromkeys(held_out, 0)
    train = np.fromiter(_hashes(corpus.documents("train")), np.uint64)
    return {split: _count(corpus, split, train) for split in held_out}


def _count(corpus: Corpus, split: str, train: np.ndarray) -> int:
    if split in corpus.held_out:
        return 0
    return int(np.isin(np.fromiter(_hashes(corpus.documents(split)), np.uint64), train).sum())


def _hashes(documents: Iterable[Document]) -> Iterator[int]:
    """One 64-bit hash a whole document, however many passages it comes in."""
    hasher = None
    for document in documents:
        if hasher is not None and not document.continues:
            yield int.from_bytes(hasher.digest(), "big")
        if hasher is None or not document.continues:
            hasher = blake2b(digest_size=8)
        hasher.update(document.text.strip().encode())
    if hasher is not None:
        yield int.from_bytes(hasher.digest(), "big")
