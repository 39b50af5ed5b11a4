"""Linear probes: what one matrix can read off the vectors of each layer.

    words    to   defeat    him   and   that   's   hard   to   do
    pieces   to   de ##feat him   and   that  ' s   hard   to   do       a word's vector is the mean of its pieces
    labels   ·       ·       ·     ·     ·      ·   HARD1  ·    ·        a sense, or a part of speech for every word

A network that reads letters gets every word whole, unknown words by their spelling. The ridge of each probe is
chosen on validation text, for every layer separately, so that no layer suffers from larger or rarer features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.batching.examples import UnknownWords
from nextword.core.protocols import Infilling
from nextword.core.types import FramedText
from nextword.lm import embedding
from nextword.lm.embedding import batch_by_size
from nextword.models.base import CausalNetwork
from nextword.models.encoder import BidirectionalEncoder
from nextword.models.framing import collate
from nextword.studies._labeled_words import Labeled, Question, words_and_labels
from nextword.tokenizers.base import Tokenizer

ITERATIONS = 60  # of L-BFGS: enough for the training loss to converge
RIDGE = 1e-4
RIDGES = (1e-4, 1e-3, 1e-2)
BATCH_TOKENS = 4096
MEMORY = 1 << 30  # bytes of vectors held at once; layers that do not fit are read in several passes


def fit_probe(x: Tensor, y: Tensor, classes: int, ridge: float = RIDGE) -> Callable[[Tensor], Tensor]:
    """Logistic regression on standardized vectors (N, D) and labels (N,); returns the classifier."""
    mean, std = x.mean(0), x.std(0) + 1e-6
    x = (x - mean) / std
    weight = torch.zeros(x.shape[1] + 1, classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(x @ weight[1:] + weight[0], y) + ridge * weight[1:].square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    weight.requires_grad_(False)
    return lambda vectors: ((vectors - mean) / std @ weight[1:] + weight[0]).argmax(1)


# ------------------------------------------------------------------------------------------------ pieces


@dataclass(frozen=True)
class LabeledPieces:
    """Labeled words as a network reads them. Arrays, because they are sent to other processes."""

    windows: list[np.ndarray]  # ids
    words: list[np.ndarray]  # for each piece of a window, the labeled word it belongs to, or −1
    labels: np.ndarray  # (N,) class
    units: np.ndarray  # (N,) sentence

    def __len__(self) -> int:
        return len(self.labels)


class ProbeTask(NamedTuple):
    """A question in a tokenizer's pieces."""

    task: str
    word: str
    classes: int
    train: LabeledPieces
    valid: LabeledPieces
    test: LabeledPieces


def encode_question(
    question: Question, tokenizer: Tokenizer, room: int, unknown: UnknownWords | None = None
) -> ProbeTask:
    classes = sorted({label for _, label in words_and_labels(question.train)}, key=str)
    numbers = {label: i for i, label in enumerate(classes)}
    parts = (encode_labeled(part, numbers, tokenizer, room, unknown) for part in question[2:])
    return ProbeTask(question.task, question.word, len(classes), *parts)


def encode_labeled(
    labeled: Sequence[Labeled],
    numbers: dict[Any, int],
    tokenizer: Tokenizer,
    room: int,
    unknown: UnknownWords | None = None,
) -> LabeledPieces:
    """Windows of at most `room` pieces. A label that training lacks becomes −1, which no probe can predict."""
    windows: list[np.ndarray] = []
    words: list[np.ndarray] = []
    numbered: list[int] = []
    units: list[int] = []
    encoded = _encode_words([w for w, _ in labeled], tokenizer, unknown)
    for unit, ((ids, places), (_, labels)) in enumerate(zip(encoded, labeled, strict=True)):
        wanted = [i for i, label in enumerate(labels) if label is not None]
        for window in cut_windows(places, wanted, room):
            of = np.full(window.stop - window.start, -1)
            for word in np.intersect1d(places[window], wanted):
                of[places[window] == word] = len(numbered)
                numbered.append(numbers.get(labels[word], -1))
                units.append(unit)
            if (of >= 0).any():
                windows.append(np.asarray(ids[window], np.int64))
                words.append(of)
    return LabeledPieces(windows, words, np.array(numbered, np.int64), np.array(units, np.int64))


def _encode_words(
    texts: Sequence[Sequence[str]], tokenizer: Tokenizer, unknown: UnknownWords | None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The ids of each sentence, and the word that each id belongs to."""
    if unknown is not None and unknown.reads_letters:
        yield from ((unknown.of_words(words), np.arange(len(words))) for words in texts)
    else:
        encodings = tokenizer.encode_batch([" ".join(words) for words in texts])
        yield from ((encoding.ids, encoding.words) for encoding in encodings)


def cut_windows(words: np.ndarray, wanted: Sequence[int], room: int) -> list[slice]:
    """Windows of whole words; if a single word is wanted, one window with it in the middle."""
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


# ------------------------------------------------------------------------------------------------ probing all layers


class Hits(NamedTuple):
    """Correct predictions of one network on one task, layer by layer."""

    valid: np.ndarray  # (L, words) bool
    test: np.ndarray  # (L, words) bool


def probe_layers(
    network: CausalNetwork | BidirectionalEncoder,
    task: ProbeTask,
    on_read: Callable[[int], None] = lambda windows: None,
    unknown: UnknownWords | None = None,
) -> Hits:
    valid, test = [], []
    for layers in layer_groups(network, task):
        train, *held = (
            word_vectors(network, part, layers, on_read, unknown) for part in (task.train, task.valid, task.test)
        )
        for x, *both in zip(train, *held, strict=True):
            hits = _best_probe(x, task, both)
            valid.append(hits[0])
            test.append(hits[1])
    return Hits(np.stack(valid), np.stack(test))


def layer_groups(network: CausalNetwork | BidirectionalEncoder, task: ProbeTask) -> list[list[int]]:
    """Layers to read in one pass: neighbors whose vectors fit into memory together."""
    words = len(task.train) + len(task.valid) + len(task.test)
    return list(batch_by_size(iter(range(len(network.widths))), MEMORY, lambda i: 4 * words * network.widths[i]))


def _best_probe(x: Tensor, task: ProbeTask, held: Sequence[Tensor]) -> list[np.ndarray]:
    """Hits on validation and test text of the ridge that is best on validation text."""
    best: list[np.ndarray] = []
    for ridge in RIDGES:
        probe = fit_probe(x, torch.from_numpy(task.train.labels), task.classes, ridge)
        hits = [
            (probe(vectors) == torch.from_numpy(part.labels)).numpy()
            for vectors, part in zip(held, (task.valid, task.test), strict=True)
        ]
        if not best or hits[0].mean() > best[0].mean():
            best = hits
    return best


@torch.no_grad()
def word_vectors(
    network: CausalNetwork | BidirectionalEncoder,
    pieces: LabeledPieces,
    layers: Sequence[int],
    on_read: Callable[[int], None] = lambda windows: None,
    unknown: UnknownWords | None = None,
) -> list[Tensor]:
    """The vectors (N, D) of the labeled words in each of these layers: the mean of their pieces."""
    vectors = [torch.zeros(len(pieces), network.widths[layer]) for layer in layers]
    order = sorted(range(len(pieces.windows)), key=lambda i: -len(pieces.windows[i]))
    size = torch.bincount(torch.from_numpy(np.concatenate([w[w >= 0] for w in pieces.words])), minlength=len(pieces))
    for batch in batch_by_size(iter(order), BATCH_TOKENS, lambda i: len(pieces.windows[i])):
        frames = [frame_ids(network, pieces.windows[i]) for i in batch]
        inputs, _ = collate(frames, pad=network.vocabulary.begin, device=network.device)
        words = np.full(inputs.ids.shape, -1)
        for row, (i, frame) in enumerate(zip(batch, frames, strict=True)):
            words[row, slice(*frame.text_spans[0])] = pieces.words[i]
        is_labeled, which = torch.from_numpy(words >= 0), torch.from_numpy(words[words >= 0])
        outputs = network.encode(inputs if unknown is None else unknown.spelled(inputs))[0]
        for part, layer in zip(vectors, layers, strict=True):
            part.index_add_(0, which, outputs[layer].cpu().float()[is_labeled])
        on_read(len(batch))
    return [part.div_(size.unsqueeze(1)) for part in vectors]


def frame_ids(network: CausalNetwork | BidirectionalEncoder, ids: Sequence[int] | np.ndarray) -> FramedText:
    """A causal network reads the begin token and the text; a bidirectional one has a frame of its own."""
    if isinstance(network, Infilling) or network.is_bidirectional:
        return embedding.frame_ids(network, ids)
    read = np.array([network.vocabulary.begin, *ids], np.int64)
    return FramedText(read, len(read) - 1, text_spans=((1, len(read)),))
