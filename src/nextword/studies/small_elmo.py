"""Words in their context, small: a text cut into words, an ELMo that learns from it in a minute, skip-gram beside it.

    he broke the bread .  他 画 画 。         words in lower case, marks by themselves, Chinese by its characters
    he broke the bread . <eos> and …          one stream of ids for both; a word that has none is <unk>, or its letters

What is asked of either network is a vector at a place: a sentence, and which of its words. A run is asked likewise.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nextword.batching.prepare import Stream
from nextword.contract import Batch, State, Vocabulary
from nextword.contract_errors import NextwordError, Unsupported
from nextword.corpora import Corpus
from nextword.corpora.sentences import sentences
from nextword.embedding import ALL
from nextword.loading_lm import load, of_network
from nextword.models.elmo import ELMo, ELMoConfig
from nextword.models.word2vec import Word2Vec, Word2VecConfig
from nextword.nest import detach
from nextword.objectives.bidirectional import Bidirectional
from nextword.objectives.contexts import Negatives
from nextword.studies.small_transformers import Size, descend, spans
from nextword.studies.text import held_out
from nextword.tokens import vocabulary
from nextword.tokens.lexicon import EOS, UNKNOWN, Lexicon

CHARACTERS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = re.compile(rf"[{CHARACTERS}]|[^\W{CHARACTERS}]+(?:['’][^\W{CHARACTERS}]+)*|[^\w\s]")
MOST = 2_000_000  # words of a text that are read
CELLS = 3  # of an LSTM, for each number that it is projected to
LETTERS = {"filters": [[1, 16], [2, 32], [3, 32]], "characters": 16, "highway": 1, "longest": 16}
PASSES, RATE, WIDTH = 5, 0.05, 64  # of skip-gram
REACH = 24  # words on either side of a place that are read
AT_ONCE = 128  # sentences
STATIC, SMALL = "skip-gram", "ELMo"
ENGLISH, CHINESE = "English", "Chinese"

Sentence = list[str]


class Place(NamedTuple):
    words: Sequence[str]
    at: int


Read = Callable[[Sequence[Place]], dict[str, np.ndarray]]  # places → their vectors (n, D), by the name of the vector


# ------------------------------------------------------------------------------------------------ text


@dataclass(frozen=True)
class Words:
    """What all runs of a study read. It goes to other processes, so it lies in memory."""

    train: list[Sentence]
    test: list[Sentence]

    def counts(self) -> Counter[str]:
        return Counter(chain.from_iterable(self.train))


def words_of(corpus: Corpus) -> Words:
    return Words(*(read_words(document.text for document in corpus.documents(s)) for s in ("train", held_out(corpus))))


def read_words(texts: Iterable[str]) -> list[Sentence]:
    """Sentences, as many as have MOST words."""
    found: list[Sentence] = []
    count = 0
    for text in texts:
        for low, high in sentences(text):
            words = WORD.findall(text[low:high].lower())
            if words:
                found.append(words)
                count += len(words)
        if count >= MOST:
            break
    return found


def language(counts: Mapping[str, int]) -> str:
    """English by its articles, Chinese by its characters; "" for any other."""
    total = sum(counts.values())
    if sum(n for word, n in counts.items() if re.match(f"[{CHARACTERS}]", word)) > total / 2:
        return CHINESE
    return ENGLISH if counts.get("the", 0) + counts.get("a", 0) > 0.03 * total else ""


def lexicon(counts: Mapping[str, int], size: int) -> Lexicon:
    """Its tokens are words as they are cut here; equally common ones in alphabetical order."""
    common = sorted(counts, key=lambda word: (-counts[word], word))
    return Lexicon([word for word in common if word not in (UNKNOWN, EOS)][: size - 2], whole=True)


def stream_of(found: Sequence[Sentence], tokenizer: Lexicon) -> Stream:
    """The sentences one after the other, <eos> after each."""
    ids = {word: id for id, word in enumerate(tokenizer.words, 2)}
    flat = [id for words in found for id in (*(ids.get(word, 0) for word in words), tokenizer.begin)]
    return Stream.from_ids(np.array(flat))


# ------------------------------------------------------------------------------------------------ networks


def elmo(seed: int, size: Size, train: Stream, words: Vocabulary) -> ELMo:
    """Two language models of so many layers, their states carried from batch to batch."""
    torch.manual_seed(seed)
    shape: Any = {"width": size.width, "cells": CELLS * size.width, "layers": size.layers, "dropout": 0.0}
    network = ELMo(ELMoConfig(**shape, characters=LETTERS), words)
    objective = Bidirectional({"kind": "rows", "rows": size.rows, "length": size.length})
    state: State = None

    def loss(batch: Batch) -> Tensor:
        nonlocal state
        found = objective.loss(network, batch, None if batch.fresh else state)
        state = detach(found.state)
        return found.value

    descend(network, objective.batches(train, seed, 0), loss, size)
    return network


def skip_gram(seed: int, train: Stream, words: Vocabulary) -> np.ndarray:
    """(V, width): a vector a word."""
    torch.manual_seed(seed)
    network = Word2Vec(Word2VecConfig(width=WIDTH), words)
    objective = Negatives({"kind": "contexts", "words": 8192}, words)
    optimizer = torch.optim.SGD(network.parameters(), RATE)
    steps, batches = PASSES * objective.per_epoch(train), objective.batches(train, seed, 0)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / steps)
        network.learn(next(batches), optimizer)
    return network.vectors.numpy()


# ------------------------------------------------------------------------------------------------ vectors at places


def reader(seed: int, size: Size, text: Words, pieces: int, run: str = "") -> Read:
    """The vectors of skip-gram and of every layer of an ELMo, both learnt from the text; or, in its place, of a run."""
    tokenizer = lexicon(text.counts(), pieces)
    train = stream_of(text.train, tokenizer)
    table = skip_gram(seed, train, vocabulary(tokenizer))
    ids = {word: id for id, word in enumerate(tokenizer.words, 2)}
    if run:
        model, name = opened(run), Path(run).resolve().name
    else:
        model, name = of_network(elmo(seed, size, train, vocabulary(tokenizer, spellings=True)), tokenizer), SMALL

    def read(places: Sequence[Place]) -> dict[str, np.ndarray]:
        static = table[[ids.get(place.words[place.at].lower(), 0) for place in places]]
        layers = in_context(model, places)
        return {STATIC: static, **{f"{name}, {_layer(i)}": layer for i, layer in enumerate(layers)}}

    return read


def _layer(i: int) -> str:
    return f"layer {i}" if i else "input"


def opened(run: str) -> Any:
    """A run with several layers of vectors."""
    model: Any = load(run)
    if "embed" not in model.can:
        raise Unsupported(f"{run} is a model without vectors. Give the run of a network that can embed.")
    if len(model.network.widths) < 2:
        raise NextwordError(
            f"{run} has one vector for each word and no layer that reads the context. Give the run of an ELMo, a BERT "
            "or another network with layers."
        )
    return model


def in_context(model: Any, places: Sequence[Place]) -> list[np.ndarray]:
    """(n, D) of each layer. The words around a place are read, as far as they are within reach."""
    widths = model.network.widths
    goes: list[Any] = [ALL] if len(set(widths)) == 1 else [[i] for i in range(len(widths))]
    found: list[list[np.ndarray]] = [[] for _ in widths]
    near = [nearby(place) for place in places]
    for layers in goes:
        which = range(len(widths)) if layers == ALL else layers
        for here in spans(len(near), AT_ONCE):
            read = model.embed_words([list(place.words) for place in near[here]], layers)
            vectors = torch.stack([one.vectors[:, p.at] for one, p in zip(read, near[here], strict=True)], 1)
            for i, layer in zip(which, vectors.numpy(), strict=True):
                found[i].append(layer)
    return [np.concatenate(layer) for layer in found]


def nearby(place: Place) -> Place:
    first = max(0, place.at - REACH)
    return Place(place.words[first : place.at + REACH + 1], place.at - first)


def unit(x: np.ndarray) -> np.ndarray:
    """Rows at length one."""
    x = x.astype(np.float64)
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)
