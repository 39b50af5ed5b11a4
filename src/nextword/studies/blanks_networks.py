"""The three networks of the study of blanks: they read the same rows, and learn from them each in its own way.

    row     [CLS] a man rides his bike . [SEP]
    GPT-2   [CLS] a man rides his bike . [SEP]                                each token from those before it
    BERT    [CLS] a man [MASK] his bike . [SEP]                               15 % hidden, each on its own
    GLM     [CLS] a man M bike . [SEP]  │  S rides his  →  rides his E        15 % taken out, in pieces of any length

GLM reads its pieces beside the text, so its rows are longer. What is equal is the number of tokens read: it takes
fewer steps, by as much as its rows are longer. Padding is not counted; marks, masks and pieces are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword.batching.pieces import TOKENS, apart, few_tokens
from nextword.contract import IGNORE, Batch, Inputs, Vocabulary
from nextword.models.bert import BERT, BERTConfig
from nextword.models.frames import following
from nextword.models.glm import GLM, GLMConfig
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.objectives.infilling import Infilling
from nextword.objectives.masked import Masked
from nextword.studies.small_transformers import Size, Text, descend, short_sentences, unhidden, wider
from nextword.tokens.marks import PieceMarks
from nextword.training.scale import choose_device

SHARE, MEAN = 0.15, 3.0  # of the tokens that are taken out, and tokens of a piece: the paper's
COUNTED = 20  # batches by which tokens are counted


def rows_of(batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Ids (R, T) with nothing hidden, and how many of each row are no padding (R,)."""
    assert batch.inputs.padding is not None
    return unhidden(batch).numpy(), batch.inputs.padding.sum(1).numpy()


# ------------------------------------------------------------------------------------------------ what GLM reads


def taken_apart(batches: Iterator[Batch], words: Vocabulary, seed: int) -> Iterator[Batch]:
    """The same rows, pieces of a few tokens taken out of each; marks stay."""
    marks, special = PieceMarks.of(words), list(words.special.values())
    for step, batch in enumerate(batches):
        ids, sizes = rows_of(batch)
        yield pieces_out(ids[:, 1:], sizes - 1, special, marks, np.random.default_rng([seed, step]))


def pieces_out(
    ids: np.ndarray, sizes: np.ndarray, special: list[int], marks: PieceMarks, draw: np.random.Generator
) -> Batch:
    """Of rows (R, n) of so many tokens (R,), without the mark that texts begin with."""
    inner = ~np.isin(ids, special) & (np.arange(ids.shape[1]) < sizes[:, None])
    wanted = np.maximum(1, (SHARE * sizes).astype(np.int64))[:, None]
    gone = few_tokens(sizes[:, None], ids.shape[1], wanted, MEAN, draw) & inner
    begins = gone & ~np.concatenate([np.zeros((len(gone), 1), bool), gone[:, :-1]], 1)
    ways = np.full(len(ids), TOKENS)
    read, positions, targets = apart(ids, gone, begins, sizes, ways, draw, marks)
    at = np.flatnonzero(targets != IGNORE)
    inputs = Inputs(torch.from_numpy(read), positions=torch.from_numpy(positions))
    return Batch(inputs, torch.from_numpy(targets), fresh=True, at=torch.from_numpy(at), predicted=len(at))


def tokens_read(batch: Batch) -> int:
    """What is no padding. GLM's has the position of nothing, which a row has once more: what it begins with."""
    if batch.inputs.padding is not None:
        return int(batch.inputs.padding.sum())
    assert batch.inputs.positions is not None
    return int((batch.inputs.positions[..., 0] > 0).sum()) + len(batch.targets)


def equal_steps(size: Size, text: Text) -> int:
    """Steps of GLM in which it reads as many tokens as the others in theirs."""
    plain = list(islice(_rows(size, text, 0), COUNTED))
    longer = taken_apart(iter(plain), text.vocabulary, 0)
    return round(size.steps * sum(map(tokens_read, plain)) / sum(map(tokens_read, longer)))


# ------------------------------------------------------------------------------------------------ learning

Read = tuple[int, int, int]  # steps, tokens read, tokens predicted


def filler(seed: int, size: Size, text: Text) -> tuple[GLM, Read]:
    """A GLM that has learnt to write pieces of a few tokens."""
    torch.manual_seed(seed)
    network = wider(GLM(GLMConfig(**size.shape), text.vocabulary))
    objective = Infilling({"rows": size.rows, "length": size.length}, text.vocabulary, 1.0, 0.0, 0.0, SHARE, MEAN)
    batches = taken_apart(_rows(size, text, seed), text.vocabulary, seed)
    fewer = replace(size, steps=equal_steps(size, text))
    return _learnt(network, batches, lambda batch: objective.loss(network, batch, None).value, fewer)


def both_sides(seed: int, size: Size, text: Text) -> tuple[BERT, Read]:
    """A BERT that has learnt to guess hidden tokens. Its norms come first, as the others' do: so it learns at once."""
    torch.manual_seed(seed)
    network = wider(BERT(BERTConfig(**size.shape, norms="before"), text.vocabulary))
    objective = _sentences(size, text)
    batches = _rows(size, text, seed)
    return _learnt(network, batches, lambda batch: objective.loss(network, batch, None).value, size)


def from_the_left(seed: int, size: Size, text: Text) -> tuple[GPT2, Read]:
    """A GPT-2 that has learnt to write on."""
    torch.manual_seed(seed)
    network = wider(GPT2(GPT2Config(**size.shape), text.vocabulary))

    def loss(batch: Batch) -> Tensor:
        h = network.hidden(batch.inputs, None)[0][-1]
        return network.readout.total(h.flatten(0, 1), batch.targets.flatten()) / batch.predicted

    return _learnt(network, (read_on(batch, text.vocabulary) for batch in _rows(size, text, seed)), loss, size)


def read_on(batch: Batch, words: Vocabulary) -> Batch:
    """The same rows with nothing hidden; at each token the next is predicted."""
    inputs = Inputs(unhidden(batch), batch.inputs.padding)
    targets = following(inputs, words.size)
    return Batch(inputs, targets, fresh=True, predicted=int((targets != IGNORE).sum()))


def _sentences(size: Size, text: Text) -> Masked:
    return short_sentences(size, text.vocabulary, share=SHARE)


def _rows(size: Size, text: Text, seed: int) -> Iterator[Batch]:
    return _sentences(size, text).batches(text.train, seed, 0)


def _learnt(network: Any, batches: Iterator[Batch], loss: Callable[[Batch], Tensor], size: Size) -> tuple[Any, Read]:
    network.to(choose_device())
    tokens = predicted = 0

    def counted() -> Iterator[Batch]:
        nonlocal tokens, predicted
        for batch in islice(batches, size.steps):
            tokens, predicted = tokens + tokens_read(batch), predicted + batch.predicted
            yield on_device(batch, network.device)

    descend(network, counted(), loss, size)
    return network, (size.steps, tokens, predicted)


def on_device(batch: Batch, device: torch.device) -> Batch:
    inputs = batch.inputs
    padding, positions, at = (None if t is None else t.to(device) for t in (inputs.padding, inputs.positions, batch.at))
    moved = replace(inputs, ids=inputs.ids.to(device), padding=padding, positions=positions)
    return replace(batch, inputs=moved, targets=batch.targets.to(device), at=at)
