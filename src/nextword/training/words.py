"""From one vocabulary to another: a language model goes on with other text, and with that text's own words.

    theirs   <unk> <eos> the film king          ours   <unk> <eos> the actor film
    row of          1     2   3    4                    0     1     2   mean   3

A word that both have keeps its vector; one that is new begins with the mean of all their vectors, and its bias with the
mean of theirs (Howard & Ruder 2018, after fastai). This is for vocabularies of words: a piece of a word that two others
have in common may stand for quite different things in them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nextword.contract_errors import NextwordError
from nextword.contract_protocols import Tokenizer
from nextword.layers.outputs.mixture import Mixture
from nextword.layers.outputs.sampling import Sampling
from nextword.layers.softmax import Full, Tied

NEW = -1
DRAWS = "readout.proposal."  # how often words are drawn as wrong answers: made anew of the text


def of_words(tokenizer: Any) -> bool:
    return isinstance(getattr(tokenizer, "words", None), tuple)


def rows_of(theirs: Any, ours: Any) -> np.ndarray:
    """For each of our ids, theirs of the same word, or NEW; special tokens by their names."""
    known = {word: len(theirs) - len(theirs.words) + i for i, word in enumerate(theirs.words)}
    found = np.full(len(ours), NEW, np.int64)
    first = len(ours) - len(ours.words)
    for i, word in enumerate(ours.words):
        found[first + i] = known.get(word, known.get(word.lower(), NEW) if theirs.lower else NEW)
    for name, i in ours.special.items():
        found[i] = theirs.special.get(name, NEW)
    return found


def rewritten(network: Any, theirs: Tokenizer, ours: Tokenizer, where: str) -> tuple[dict[str, Tensor], str]:
    """The tensors of their network over our words, and what is to be said of it. `where` begins an error."""
    rows = rows_of(theirs, ours)
    tensors: dict[str, Tensor] = network.state_dict()
    tables = [p for part in _tables(network, where) for p in part.parameters(recurse=False) if len(p) == len(theirs)]
    for name, p in network.named_parameters():
        if any(p is table for table in tables):
            tensors[name] = moved(tensors[name], rows)
    tensors = {name: t for name, t in tensors.items() if not name.startswith(DRAWS)}
    new = int((rows == NEW).sum())
    return tensors, f"{new:,} of {len(ours):,} words are new to it: they begin with the mean of its vectors"


def moved(table: Tensor, rows: np.ndarray) -> Tensor:
    """(theirs, …) → (ours, …): their rows, and for new words the mean of all."""
    at = torch.from_numpy(rows).to(table.device)
    taken = table.index_select(0, at.clamp(min=0))
    new = (at == NEW).view(-1, *[1] * (table.dim() - 1))
    return torch.where(new, table.double().mean(0).to(table.dtype), taken)


def has_rows(network: Any) -> bool:
    """Whether each word has a row of its own, so that another word can have its place."""
    embedding, words = _parts(network)
    return type(embedding) is nn.Embedding and type(words) in (Full, Tied)


def _parts(network: Any) -> tuple[Any, Any]:
    """What words are read by, and what they are predicted by."""
    readout = getattr(network, "readout", None)
    words = readout.words if isinstance(readout, (Sampling, Mixture)) else readout
    return getattr(network, "embedding", None), words


def _tables(network: Any, where: str) -> list[nn.Module]:
    """What has a row for each word."""
    embedding, words = _parts(network)
    if not has_rows(network):
        raise NextwordError(
            f"{where} Words of another vocabulary can be taken over where each has a row of its own, in the embedding "
            f"and in a full, sampled or mixed softmax; here they are {type(embedding).__name__} and "
            f"{type(words).__name__}. Train with the run's own tokenizer."
        )
    return [embedding, words]
