"""Labelled words for probes of every layer: the questions, their words as pieces, and what each layer says of them.

    words    to   defeat    him   and   that   's   hard   to   do
    pieces   to   de ##feat him   and   that  ' s   hard   to   do       the mean of a word's pieces is its vector
    labels   ·       ·       ·     ·     ·      ·   HARD1  ·    ·        a sense, or a part of speech for every word

A network that reads letters gets every word whole, those it never saw by their spelling (`Unseen` of embedding.py).

A probe is trained for every question and layer. How strongly its weights are held back is chosen on the text that the
layers are chosen by, for each layer anew, so that none is at a disadvantage for having larger or rarer features.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nextword.contract import Framed
from nextword.contract_protocols import Infilling, Tokenizer
from nextword.corpora.decoding import lines
from nextword.embedding import Unseen, batches, framed
from nextword.models.frames import collate
from nextword.studies.probes import TAGS, Labelled, fitted, tagged, treebank
from nextword.studies.senses import place, senses, shared_out

SENSES = "senses"
RIDGES = (1e-4, 1e-3, 1e-2)
TOGETHER = 4096  # tokens read at once
ROOM = 1 << 30  # bytes of vectors held at once; more layers than fit are read in several goes


class Question(NamedTuple):
    """Sentences with labels: one question for all parts of speech, one for the senses of each word."""

    task: str
    word: str  # whose senses; "" where it is every word
    train: Sequence[Labelled]
    valid: Sequence[Labelled]
    test: Sequence[Labelled]


# ------------------------------------------------------------------------------------------------ questions


def tag_questions(counts: Sequence[int]) -> list[Question]:
    """So many sentences of the treebank's own three parts, drawn at random once and for all; none where it is not."""
    files = treebank()
    if not {"train", "valid", "test"} <= set(files):
        return []
    parts = [list(tagged(lines(files[split][0]))) for split in ("train", "valid", "test")]
    return [Question(TAGS, "", *(_some(part, n) for part, n in zip(parts, counts, strict=True)))]


def sense_questions(counts: Sequence[int]) -> list[Question]:
    """One for each word of Senseval-2, of at most so many contexts; none where they are not on this machine."""
    where = place()
    found = []
    for word, contexts in (senses(where) if where else {}).items():
        parts = [
            _some([(c.words, _at(c.at, c.sense, len(c.words))) for c in part], n)
            for part, n in zip(shared_out(contexts), counts, strict=True)
        ]
        found.append(Question(SENSES, word, *parts))
    return found


def _at(place: int, label: Any, size: int) -> list[Any]:
    return [label if i == place else None for i in range(size)]


def _some(found: Sequence[Labelled], count: int) -> list[Labelled]:
    """The files go topic by topic, so their beginning is no sample."""
    return [found[i] for i in np.random.default_rng(0).permutation(len(found))[:count]]


def guesses(question: Question) -> dict[str, np.ndarray]:
    """Without any network: whether the commonest label of all is right for each word of the test, and of its form."""
    seen = [(word.lower(), label) for word, label in _pairs(question.train)]
    common = Counter(label for _, label in seen).most_common(1)[0][0]
    forms: dict[str, Counter[Any]] = {}
    for word, label in seen:
        forms.setdefault(word, Counter())[label] += 1
    likeliest = {word: count.most_common(1)[0][0] for word, count in forms.items()}
    held = list(_pairs(question.test))
    return {
        "all": np.array([label == common for _, label in held]),
        "form": np.array([label == likeliest.get(word.lower(), common) for word, label in held]),
    }


def _pairs(found: Sequence[Labelled]) -> Iterator[tuple[str, Any]]:
    return (
        (word, label) for words, labels in found for word, label in zip(words, labels, strict=True) if label is not None
    )


# ------------------------------------------------------------------------------------------------ pieces


@dataclass(frozen=True)
class Pieces:
    """Labelled words as a network reads them. It goes to other processes, so it is arrays."""

    windows: list[np.ndarray]  # ids
    words: list[np.ndarray]  # for each piece of a window: which labelled word it is of; −1: of none
    labels: np.ndarray  # (N,) class
    units: np.ndarray  # (N,) sentence

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Asked:
    """A question in a tokenizer's pieces."""

    task: str
    word: str
    classes: int
    train: Pieces
    valid: Pieces
    test: Pieces


def asked(question: Question, tokenizer: Tokenizer, room: int, unseen: Unseen | None = None) -> Asked:
    classes = sorted({label for _, label in _pairs(question.train)}, key=str)
    number = {label: i for i, label in enumerate(classes)}
    parts = (pieces(part, number, tokenizer, room, unseen) for part in question[2:])
    return Asked(question.task, question.word, len(classes), *parts)


def pieces(
    found: Sequence[Labelled], number: dict[Any, int], tokenizer: Tokenizer, room: int, unseen: Unseen | None = None
) -> Pieces:
    """Windows of at most `room` pieces. A label that was not learnt is asked nevertheless, and always missed: −1."""
    windows: list[np.ndarray] = []
    words: list[np.ndarray] = []
    labels: list[int] = []
    units: list[int] = []
    split = split_up([w for w, _ in found], tokenizer, unseen)
    for unit, ((ids, places), (_, given)) in enumerate(zip(split, found, strict=True)):
        wanted = [i for i, label in enumerate(given) if label is not None]
        for here in cut(places, wanted, room):
            of = np.full(here.stop - here.start, -1)
            for word in np.intersect1d(places[here], wanted):
                of[places[here] == word] = len(labels)
                labels.append(number.get(given[word], -1))
                units.append(unit)
            if (of >= 0).any():
                windows.append(np.asarray(ids[here], np.int64))
                words.append(of)
    return Pieces(windows, words, np.array(labels, np.int64), np.array(units, np.int64))


def split_up(
    found: Sequence[Sequence[str]], tokenizer: Tokenizer, unseen: Unseen | None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The ids of each sentence, and which of its words each belongs to. Who reads letters has an id for any word."""
    if unseen is not None and unseen.spells:
        yield from ((unseen.of_words(words), np.arange(len(words))) for words in found)
    else:
        encodings = tokenizer.encode_batch([" ".join(words) for words in found])
        yield from ((encoding.ids, encoding.words) for encoding in encodings)


def cut(words: np.ndarray, wanted: Sequence[int], room: int) -> list[slice]:
    """A text in windows of whole words; where one word alone is asked about, a single window with it in the middle."""
    if len(words) <= room:
        return [slice(0, len(words))]
    if len(wanted) == 1:
        middle = int(np.flatnonzero(words == wanted[0]).mean()) if wanted[0] in words else 0
        first = min(max(middle - room // 2, 0), len(words) - room)
        return [slice(first, first + room)]
    begins = np.flatnonzero(np.diff(words, prepend=-1))
    starts = [0]
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(words)], strict=True):
        if end - starts[-1] > room and begin > starts[-1]:
            starts.append(begin)
    return [slice(a, min(z, a + room)) for a, z in zip(starts, [*starts[1:], len(words)], strict=True)]


# ------------------------------------------------------------------------------------------------ vectors


class Answers(NamedTuple):
    """Of one network and one question: right or not, layer by layer."""

    valid: np.ndarray  # (L, words) bool
    test: np.ndarray  # (L, words) bool


def frame_of(network: Any, ids: Sequence[int] | np.ndarray) -> Framed:
    """As the network knows texts: from left to right after the token that begins them, otherwise in its own frame."""
    if isinstance(network, Infilling) or getattr(network, "two_sided", False):
        return framed(network, ids)
    read = np.array([network.vocabulary.begin, *ids], np.int64)
    return Framed(read, len(read) - 1, parts=((1, len(read)),))


@torch.no_grad()
def word_vectors(
    network: Any,
    given: Pieces,
    layers: Sequence[int],
    read: Callable[[int], None] = lambda windows: None,
    unseen: Unseen | None = None,
) -> list[Tensor]:
    """Of each of these layers the vectors (N, D) of the labelled words: the mean of their pieces."""
    found = [torch.zeros(len(given), network.widths[layer]) for layer in layers]
    order = sorted(range(len(given.windows)), key=lambda i: -len(given.windows[i]))
    size = torch.bincount(torch.from_numpy(np.concatenate([w[w >= 0] for w in given.words])), minlength=len(given))
    for batch in batches(iter(order), TOGETHER, lambda i: len(given.windows[i])):
        frames = [frame_of(network, given.windows[i]) for i in batch]
        inputs, _ = collate(frames, pad=network.vocabulary.begin, device=network.device)
        of = np.full(inputs.ids.shape, -1)
        for row, (i, frame) in enumerate(zip(batch, frames, strict=True)):
            of[row, slice(*frame.parts[0])] = given.words[i]
        there = torch.from_numpy(of >= 0)
        which = torch.from_numpy(of[of >= 0])
        outputs = network.encode(inputs if unseen is None else unseen.spelled(inputs))[0]
        for part, layer in zip(found, layers, strict=True):
            part.index_add_(0, which, outputs[layer].cpu().float()[there])
        read(len(batch))
    return [part.div_(size.unsqueeze(1)) for part in found]


def goes(network: Any, question: Asked) -> list[list[int]]:
    """The layers, in as many goes as there is need for: neighbours whose vectors fit together."""
    words = len(question.train) + len(question.valid) + len(question.test)
    return list(batches(iter(range(len(network.widths))), ROOM, lambda i: 4 * words * network.widths[i]))


def answers(
    network: Any,
    question: Asked,
    read: Callable[[int], None] = lambda windows: None,
    unseen: Unseen | None = None,
) -> Answers:
    """Probes of all layers."""
    valid, test = [], []
    for layers in goes(network, question):
        train, *held = (
            word_vectors(network, part, layers, read, unseen) for part in (question.train, question.valid, question.test)
        )
        for x, *both in zip(train, *held, strict=True):
            hits = probe(x, question, both)
            valid.append(hits[0])
            test.append(hits[1])
    return Answers(np.stack(valid), np.stack(test))


def probe(x: Tensor, question: Asked, held: Sequence[Tensor]) -> list[np.ndarray]:
    """Whether the best probe of several is right, on the text that it is the best on and on the test."""
    best: list[np.ndarray] = []
    for ridge in RIDGES:
        guess = fitted(x, torch.from_numpy(question.train.labels), question.classes, ridge)
        hits = [
            (guess(part) == torch.from_numpy(right.labels)).numpy()
            for part, right in zip(held, (question.valid, question.test), strict=True)
        ]
        if not best or hits[0].mean() > best[0].mean():
            best = hits
    return best
