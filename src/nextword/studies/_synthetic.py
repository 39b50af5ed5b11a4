"""Sequences made up: what a network must carry from a source to a target, and nothing else.

    copied      7 3 9 … 4   →   7 3 9 … 4

Symbols are drawn at random, so nothing of a target can be guessed but from its source. Small networks learn this in
seconds, and lengths are whatever a study asks for.

A language of which every probability is known: what an n-gram model of a real text writes.

Of a real text one continuation is there, and after a network's own words none. Here the truth can be asked anywhere:

    truth   an n-gram model of the text ──draws──▶ rows ──▶ a network learns them
    then    KL(truth ‖ network) after true words, and after words that the network has drawn itself

so that a network fed its own words is not blamed for hints that are gone, but for what it says.

Pairs of neighbouring passages that differ in nothing but whether they belong together: for the study of pairs.

Batches as BERT's program gathers them (batching/pairs.py) give themselves away where rows are short. A row is gathered
until it is full, so the sentence that no longer fits is a long one and stands last; what is cut off is cut off the
longer segment; and a sentence that fills a row alone has a random second segment. Here both passages have as many
sentences, and both fit whole:

    "next"    A  the sentences after A            0        half of each, drawn anew in every epoch
              A  another passage, as long         1        of another document
    "order"   A  the sentences after A            0
              the sentences after A  A            1
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword.batching.masked import SentencePairs, Sentences, Texts, key_of
from nextword.batching.seq2seq import Pairs
from nextword.batching.token_stream import prepare
from nextword.core.errors import NextwordError
from nextword.core.types import Batch, Inputs, Vocabulary
from nextword.data.corpus import Corpus
from nextword.models.ngram import NGram, NGramConfig
from nextword.models.seq2seq import Seq2Seq
from nextword.objectives.seq2seq import Seq2SeqObjective
from nextword.studies._experiment import enough
from nextword.studies._small_models import TranslatorSize, in_memory, learn_translation, on_device, stream_of_pairs
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer
from nextword.training.device import choose_device

SYMBOLS = 12
BEGIN, END = 0, 1
VOCABULARY = Vocabulary(SYMBOLS + 2, BEGIN, {}, end=END)
COUNT, ASKED = 4000, 200  # sequences to learn from, and asked of each length


@dataclass(frozen=True)
class Lengths:
    least: int
    most: int


def copies(count: int, lengths: Lengths, seed: int) -> Pairs:
    """So many sequences, each to be written again."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(lengths.least, lengths.most + 1, count)
    ended = [np.append(draw.integers(2, SYMBOLS + 2, n), END) for n in sizes]
    return Pairs(stream_of_pairs(ended), stream_of_pairs(ended), BEGIN, np.arange(count))


def copier(seed: int, size: TranslatorSize, lengths: Lengths, **model: Any) -> Seq2Seq:
    """A network that has learnt to copy sequences of these lengths, as far as it could."""
    torch.manual_seed(seed)
    network = Seq2Seq(size.built(**model), VOCABULARY).to(choose_device())
    learn_translation(
        network, Seq2SeqObjective({"rows": size.rows, "length": size.length}), copies(COUNT, lengths, seed), seed, size
    )
    return network


@torch.no_grad()
def copied(network: Seq2Seq, length: int) -> np.ndarray:
    """(ASKED, 3): nats, symbols written right when fed the truth, and symbols, of sequences of one length."""
    asked = Seq2SeqObjective({"rows": ASKED, "length": length + 1})
    parts = []
    for batch in on_device(asked.held_out(copies(ASKED, Lengths(length, length), 10**6)), network.device):
        log_p = network.readout.log_probs(network.hidden(batch.inputs, None)[0][-1])  # (B, T, V)
        nats = -log_p.gather(2, batch.targets.unsqueeze(2)).squeeze(2)
        right = log_p.argmax(2) == batch.targets
        count = torch.full((len(nats),), nats.shape[1])
        parts.append(torch.stack([nats.sum(1).cpu(), right.sum(1).cpu(), count], 1))
    return torch.cat(parts).double().numpy()


CONFIG = NGramConfig(order=3)
AT_ONCE = 2000  # rows drawn together
LEAST = 2000  # tokens of the text that is counted


@dataclass(frozen=True)
class Made:
    """Rows drawn from the truth, and the folder it lies in, so that each process can open it."""

    folder: Path
    train: np.ndarray  # (rows, length)
    test: np.ndarray
    vocabulary: Vocabulary

    @property
    def truth(self) -> NGram:
        return NGram.load(self.folder, CONFIG, self.vocabulary)

    def batches(self, rows: int, seed: int) -> Iterator[Batch]:
        """For ever, in a new order every epoch."""
        epoch = 0
        while True:
            order = np.random.default_rng([seed, epoch]).permutation(len(self.train))
            for at in range(0, len(order) - rows + 1, rows):
                ids = torch.from_numpy(self.train[order[at : at + rows]])
                begin = torch.full((rows, 1), self.vocabulary.begin)
                read = Inputs(torch.cat([begin, ids[:, :-1]], 1))
                yield Batch(read, ids, fresh=True, epoch=epoch, predicted=ids.numel())
            epoch += 1


def made_from(corpus: Corpus, size: TranslatorSize, length: int, folder: Path) -> Made:
    """As many rows as the training reads in two epochs, and `held` more."""
    tokenizer = train_tokenizer({"kind": "bpe", "size": size.pieces}, (d.text for d in corpus.documents("train")))
    stream = in_memory(prepare(corpus, "train", tokenizer))
    enough(len(stream), LEAST, "tokens to count", corpus)
    words = vocabulary(tokenizer)
    truth = NGram(CONFIG, words)
    for _ in truth.count(stream, None, {}):
        pass
    truth.save(folder)
    rows = drawn(truth, size.steps * size.rows // 2 + size.held, length)
    return Made(folder, rows[: -size.held], rows[-size.held :], words)


@torch.no_grad()
def drawn(network: Any, count: int, length: int, seed: int = 0) -> np.ndarray:
    """(count, length) ids as the network draws them, from a beginning."""
    chance, parts = torch.Generator().manual_seed(seed), []
    for at in range(0, count, AT_ONCE):
        last, state = network.start(min(AT_ONCE, count - at))
        rows = []
        for _ in range(length):
            log_p, state = network.step(last, state)
            last = log_p.exp().multinomial(1, generator=chance).squeeze(1)
            rows.append(last)
        parts.append(torch.stack(rows, 1))
    return torch.cat(parts).numpy()


@torch.no_grad()
def off_by(network: Any, made: Made, read: int, own: bool, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(n, length − read) each: KL(truth ‖ network) of the next token, and the network's nats of a true one.

    The first `read` tokens are those of the test rows; then come theirs, or with `own` those that the network draws.
    """
    truth, rows = made.truth, torch.from_numpy(made.test)
    chance = torch.Generator().manual_seed(seed)
    (last, known), state = truth.start(len(rows)), network.start(len(rows))[1]
    off: list[Tensor] = []
    nats: list[Tensor] = []
    for t in range(rows.shape[1]):
        is_so, known = truth.step(last, known)
        says, state = network.step(last.to(network.device), state)
        is_so, says = is_so.double(), says.double().cpu()
        if t >= read:
            off.append((is_so.exp() * (is_so - says)).sum(1))
            nats.append(-(is_so.exp() * says).sum(1))
        draws = own and t >= read
        last = says.exp().multinomial(1, generator=chance).squeeze(1) if draws else rows[:, t]
    return torch.stack(off, 1).numpy(), torch.stack(nats, 1).numpy()


NEIGHBOURS = 7  # keys the draws of this file


@dataclass(frozen=True)
class Neighbours(SentencePairs):
    """Pairs of `each` sentences and the `each` after them, wherever both fit into a row; passages may overlap."""

    each: int = 1

    def _made(self, sentences: Sentences, seed: int, variant: int) -> Texts:
        first, middle, last, document = whole(sentences, self.each, self.length - 3)
        if len(first) < 2:
            raise NextwordError(
                f"Fewer than two pairs of {self.each} and {self.each} sentences fit into rows of {self.length} tokens. "
                "Give a text of documents with several sentences each."
            )
        draw = np.random.default_rng(int(key_of(NEIGHBOURS, seed, variant)))
        label = draw.random(len(first)) < 0.5
        a, b = np.stack((first, middle - first), 1), np.stack((middle, last - middle), 1)
        if self.pair == "order":
            pairs = np.where(label[:, None, None], np.stack((b, a), 1), np.stack((a, b), 1))
        else:
            other = strangers(b[:, 1], document, draw)
            label &= document[other] != document
            pairs = np.stack((a, np.where(label[:, None], b[other], b)), 1)
            pairs[:, 1, 1] = np.minimum(pairs[:, 1, 1], self.length - 3 - pairs[:, 0, 1])
        stretches = np.arange(0, 2 * len(first) + 1, 2)
        return Texts(pairs[:, :, 0].reshape(-1), pairs[:, :, 1].reshape(-1), stretches, label.astype(np.int64))


def whole(sentences: Sentences, each: int, room: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Where runs of 2 · each sentences begin, where their second half does, where they end, and of which document."""
    at = np.arange(len(sentences) - 2 * each + 1)
    document = np.searchsorted(sentences.documents, np.arange(len(sentences)), side="right") - 1
    first, middle = sentences.first[at], sentences.first[at + each]
    last = sentences.last[at + 2 * each - 1]
    good = (document[at] == document[at + 2 * each - 1]) & (last - first <= room)
    return first[good], middle[good], last[good], document[at[good]]


def strangers(lengths: np.ndarray, document: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """For each passage another one of nearly its length, if it can be of another document."""
    order = np.lexsort((draw.random(len(lengths)), lengths))
    other = np.empty_like(order)
    other[order] = np.roll(order, 1)
    same = document[other] == document
    further = np.empty_like(order)
    further[order] = np.roll(order, 2)
    return np.where(same, further, other)
