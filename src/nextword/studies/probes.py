"""Linear probes: what can be read off a network's vectors by one matrix, and labelled words to read.

    words    In    the   beginning   God    created            labels of a word's first piece; other pieces have none
    pieces   in    the   begin ##ning god   create ##d
    case      ·     0       0    ·     1       0     ·         capitalised? The pieces are lower-cased, so they hide it
    tags     ADP   DET    NOUN   ·   PROPN    VERB   ·         parts of speech, where a treebank is on this machine

Case is there in every text that has it. A sentence's first word is left out: its case says nothing of the word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.contract import Inputs
from nextword.contract_protocols import Tokenizer
from nextword.corpora import Corpus
from nextword.corpora.catalog import find
from nextword.corpora.decoding import lines
from nextword.corpora.sentences import sentences
from nextword.studies.small_transformers import spans
from nextword.tokens import vocabulary
from nextword.tokens.marks import Marks

TREEBANK = "ud-english-ewt"
CASE, TAGS = "case", "parts of speech"
ROUNDS = 60  # of L-BFGS: enough for the training loss to stand still
RIDGE = 1e-4
AT_ONCE = 64

Words = Sequence[str]
Labelled = tuple[list[str], list[Any]]  # the words of a sentence, and a label or None for each


# ------------------------------------------------------------------------------------------------ labelled words


@dataclass(frozen=True)
class Rows:
    ids: np.ndarray  # (n, length)
    padding: np.ndarray  # (n, length) True where there is a token
    labels: np.ndarray  # (n, length) −1 where there is none


@dataclass(frozen=True)
class Task:
    name: str
    classes: tuple[Any, ...]
    train: Rows
    test: Rows

    @property
    def common(self) -> float:
        """How often the commonest class of the training words is right in the test."""
        seen = self.train.labels[self.train.labels >= 0]
        held = self.test.labels[self.test.labels >= 0]
        return float((held == np.bincount(seen).argmax()).mean())


def case_task(
    corpus: Corpus, splits: tuple[str, str], tokenizer: Tokenizer, length: int, counts: Sequence[int]
) -> Task:
    found = [list(islice(cased(corpus, split), n)) for split, n in zip(splits, counts, strict=True)]
    return _task(CASE, found[0], found[1], tokenizer, length)


def tags_task(tokenizer: Tokenizer, length: int, counts: Sequence[int]) -> Task | None:
    """Of the English Web Treebank; None where it is not on this machine."""
    files = treebank()
    if not {"train", "test"} <= set(files):
        return None
    found = [list(islice(tagged(lines(files[s][0])), n)) for s, n in zip(("train", "test"), counts, strict=True)]
    return _task(TAGS, found[0], found[1], tokenizer, length)


def treebank() -> dict[str, list[Path]]:
    """Its files by split; none where it is not on this machine."""
    entry = find(TREEBANK)
    place = entry.place() if entry else None
    return entry.locate(place) if entry and place else {}


def cased(corpus: Corpus, split: str) -> Iterator[Labelled]:
    """Sentences of all documents, in a random order that is always the same."""
    texts = [document.text for document in corpus.documents(split)]
    for at in np.random.default_rng(0).permutation(len(texts)):
        for low, high in sentences(texts[at]):
            words = texts[at][low:high].split()
            labels: list[Any] = [_capital(word) for word in words]
            if len(words) > 1:
                yield words, [None, *labels[1:]]


def _capital(word: str) -> bool | None:
    letter = next((c for c in word if c.isalpha()), "")
    return letter.isupper() if letter else None


def tagged(conllu: Iterable[str]) -> Iterator[Labelled]:
    """Sentences of a treebank in the format of Universal Dependencies: column 2 is the word, 4 its part of speech."""
    words: list[str] = []
    labels: list[Any] = []
    for line in (*conllu, "\n"):
        columns = line.rstrip("\n").split("\t")
        if len(columns) > 3 and columns[0].isdigit():
            words.append(columns[1].replace(" ", ""))
            labels.append(columns[3])
        elif not line.strip() and words:
            yield words, labels
            words, labels = [], []


def _task(name: str, train: Sequence[Labelled], test: Sequence[Labelled], tokenizer: Tokenizer, length: int) -> Task:
    classes = tuple(sorted({label for _, labels in train for label in labels if label is not None}, key=str))
    return Task(name, classes, *(_rows(part, classes, tokenizer, length) for part in (train, test)))


def _rows(found: Sequence[Labelled], classes: Sequence[Any], tokenizer: Tokenizer, length: int) -> Rows:
    marks = Marks.of(vocabulary(tokenizer))
    number = {label: i for i, label in enumerate(classes)}
    ids = np.full((len(found), length), marks.pad, np.int64)
    labels, sizes = np.full(ids.shape, -1, np.int64), np.zeros(len(found), np.int64)
    encodings = tokenizer.encode_batch([" ".join(words) for words, _ in found])
    for i, (encoding, (_, given)) in enumerate(zip(encodings, found, strict=True)):
        own = encoding.ids[: length - 2]
        ids[i, 0], ids[i, 1 : len(own) + 1], ids[i, len(own) + 1] = marks.cls, own, marks.sep
        sizes[i] = len(own) + 2
        words, first = np.unique(encoding.words[: length - 2], return_index=True)
        labels[i, first + 1] = [number.get(given[word], -1) for word in words]
    return Rows(ids, np.arange(length) < sizes[:, None], labels)


# ------------------------------------------------------------------------------------------------ the probe


@torch.no_grad()
def vectors(network: Any, rows: Rows, layer: int = -1) -> tuple[Tensor, Tensor]:
    """A layer at every labelled word (N, D), and the labels (N,)."""
    found = []
    for here in spans(len(rows.ids), AT_ONCE):
        inputs = Inputs(torch.from_numpy(rows.ids[here]), torch.from_numpy(rows.padding[here]))
        h = network.encode(inputs)[0][layer]
        found.append(h[torch.from_numpy(rows.labels[here] >= 0)])
    return torch.cat(found), torch.from_numpy(rows.labels[rows.labels >= 0])


def probed(network: Any, task: Task, layer: int = -1) -> np.ndarray:
    """Whether each labelled word of the test is told right by logistic regression on the vectors: (words,) bool."""
    guess = fitted(*vectors(network, task.train, layer), len(task.classes))
    held, right = vectors(network, task.test, layer)
    return (guess(held) == right).numpy()


def fitted(x: Tensor, y: Tensor, classes: int, ridge: float = RIDGE) -> Callable[[Tensor], Tensor]:
    """Logistic regression on vectors (N, D) and labels (N,): what it guesses for other vectors."""
    middle, spread = x.mean(0), x.std(0) + 1e-6
    x = (x - middle) / spread
    weight = torch.zeros(x.shape[1] + 1, classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=ROUNDS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(x @ weight[1:] + weight[0], y) + ridge * weight[1:].square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    weight.requires_grad_(False)
    return lambda held: ((held - middle) / spread @ weight[1:] + weight[0]).argmax(1)
