"""A language of which every probability is known: what an n-gram model of a real text writes.

Of a real text one continuation is there, and after a network's own words none. Here the truth can be asked anywhere:

    truth   an n-gram model of the text ──draws──▶ rows ──▶ a network learns them
    then    KL(truth ‖ network) after true words, and after words that the network has drawn itself

so that a network fed its own words is not blamed for hints that are gone, but for what it says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword.batching.prepare import prepare
from nextword.contract import Batch, Inputs, Vocabulary
from nextword.corpora import Corpus
from nextword.models.ngram import NGram, NGramConfig
from nextword.studies.small_transformers import in_memory
from nextword.studies.text import enough
from nextword.studies.translators import TranslatorSize
from nextword.tokens import train_tokenizer, vocabulary

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
