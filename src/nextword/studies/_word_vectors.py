"""Static and contextual word vectors of a small text: skip-gram, and an ELMo that trains in a minute.

    he broke the bread .  他 画 画 。         lower-cased words, single punctuation marks, single Chinese characters
    he broke the bread . <eos> and …          one stream of ids for both networks; a rare word is <unk>, or its letters

A study asks for the vectors of a place: a sentence and the index of a word. A run (`--run`) is used in the same way.
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

from nextword.batching.token_stream import Stream
from nextword.core.errors import Unsupported
from nextword.core.pytree import detach
from nextword.core.types import Batch, State, Vocabulary
from nextword.data.corpus import Corpus
from nextword.data.segmentation import sentence_spans
from nextword.lm.base import TextModel
from nextword.lm.embedding import ALL_LAYERS
from nextword.lm.loading import load, wrap_network
from nextword.models.elmo import ELMo, ELMoConfig
from nextword.models.word2vec import Word2Vec, Word2VecConfig
from nextword.objectives.bidirectional import BidirectionalObjective
from nextword.objectives.word_vectors import NegativeSamplingObjective
from nextword.studies._experiment import held_out_split
from nextword.studies._transformers import Size, slices, train
from nextword.tokenizers import vocabulary
from nextword.tokenizers.ptb_words import EOS, UNKNOWN, Lexicon

CHARACTERS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = re.compile(rf"[{CHARACTERS}]|[^\W{CHARACTERS}]+(?:['’][^\W{CHARACTERS}]+)*|[^\w\s]")
MAX_WORDS = 2_000_000
CELLS = 3  # LSTM cells per projected dimension
LETTERS = {"filters": [[1, 16], [2, 32], [3, 32]], "character_width": 16, "highway": 1, "max_word_length": 16}
PASSES, RATE, WIDTH = 5, 0.05, 64  # skip-gram
REACH = 24  # context words read on either side of a place
BATCH = 128  # sentences
STATIC, SMALL = "skip-gram", "ELMo"
ENGLISH, CHINESE = "English", "Chinese"

Sentence = list[str]


class Place(NamedTuple):
    words: Sequence[str]
    position: int


Reader = Callable[[Sequence[Place]], dict[str, np.ndarray]]  # places → their vectors (n, D), by name of the vector


# ------------------------------------------------------------------------------------------------ text


@dataclass(frozen=True)
class Words:
    """What all runs of a study read."""

    train: list[Sentence]
    test: list[Sentence]

    def counts(self) -> Counter[str]:
        return Counter(chain.from_iterable(self.train))


def split_corpus(corpus: Corpus) -> Words:
    splits = ("train", held_out_split(corpus))
    return Words(*(split_sentences(document.text for document in corpus.documents(split)) for split in splits))


def split_sentences(texts: Iterable[str]) -> list[Sentence]:
    """Sentences with at most about MAX_WORDS words."""
    result: list[Sentence] = []
    count = 0
    for text in texts:
        for low, high in sentence_spans(text):
            words = WORD.findall(text[low:high].lower())
            if words:
                result.append(words)
                count += len(words)
        if count >= MAX_WORDS:
            break
    return result


def detect_language(counts: Mapping[str, int]) -> str:
    """English by its articles, Chinese by its characters; "" for any other."""
    total = sum(counts.values())
    if sum(n for word, n in counts.items() if re.match(f"[{CHARACTERS}]", word)) > total / 2:
        return CHINESE
    return ENGLISH if counts.get("the", 0) + counts.get("a", 0) > 0.03 * total else ""


def make_lexicon(counts: Mapping[str, int], size: int) -> Lexicon:
    """The most frequent words; equally frequent ones in alphabetical order."""
    common = sorted(counts, key=lambda word: (-counts[word], word))
    return Lexicon([word for word in common if word not in (UNKNOWN, EOS)][: size - 2], whole=True)


def encode_sentences(text: Sequence[Sentence], tokenizer: Lexicon) -> Stream:
    """The sentences one after the other, each followed by <eos>."""
    ids = {word: id for id, word in enumerate(tokenizer.words, 2)}
    flat = [id for words in text for id in (*(ids.get(word, 0) for word in words), tokenizer.begin)]
    return Stream.from_ids(np.array(flat))


# ------------------------------------------------------------------------------------------------ networks


def train_elmo(seed: int, size: Size, text: Stream, vocabulary: Vocabulary) -> ELMo:
    torch.manual_seed(seed)
    config = ELMoConfig(
        width=size.width, cell_size=CELLS * size.width, layers=size.layers, dropout=0.0, characters=LETTERS
    )
    network = ELMo(config, vocabulary)
    objective = BidirectionalObjective({"kind": "rows", "rows": size.rows, "length": size.length})
    state: State = None

    def loss(batch: Batch) -> Tensor:
        nonlocal state
        result = objective.loss(network, batch, None if batch.reset_state else state)
        state = detach(result.state)
        return result.value

    train(network, objective.batches(text, seed, 0), loss, size)
    return network


def train_skip_gram(seed: int, text: Stream, vocabulary: Vocabulary) -> np.ndarray:
    """One vector per word: (V, WIDTH)."""
    torch.manual_seed(seed)
    network = Word2Vec(Word2VecConfig(width=WIDTH), vocabulary)
    objective = NegativeSamplingObjective({"kind": "contexts", "words": 8192}, vocabulary)
    optimizer = torch.optim.SGD(network.parameters(), RATE)
    steps, batches = PASSES * objective.batches_per_epoch(text), objective.batches(text, seed, 0)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / steps)
        network.learn(next(batches), optimizer)
    return network.table.detach().numpy()


# ------------------------------------------------------------------------------------------------ vectors of places


def make_reader(seed: int, size: Size, text: Words, pieces: int, run: str = "") -> Reader:
    """Vectors of skip-gram and of every layer of an ELMo, both trained on the text; or of a run instead of the ELMo."""
    tokenizer = make_lexicon(text.counts(), pieces)
    stream = encode_sentences(text.train, tokenizer)
    table = train_skip_gram(seed, stream, vocabulary(tokenizer))
    ids = {word: id for id, word in enumerate(tokenizer.words, 2)}
    if run:
        model, name = load_layered_run(run), Path(run).resolve().name
    else:
        network = train_elmo(seed, size, stream, vocabulary(tokenizer, spellings=True))
        model, name = wrap_network(network, tokenizer), SMALL

    def read(places: Sequence[Place]) -> dict[str, np.ndarray]:
        static = table[[ids.get(place.words[place.position].lower(), 0) for place in places]]
        layers = contextual_vectors(model, places)
        names = [f"{name}, layer {i}" if i else f"{name}, input" for i in range(len(layers))]
        return {STATIC: static, **dict(zip(names, layers, strict=True))}

    return read


def load_layered_run(run: str) -> Any:
    """A run whose network has contextual layers."""
    model: TextModel = load(run)
    if "embed" not in model.can:
        raise Unsupported(f"{run} has no vectors. Choose a run of a network that can embed.", ability="embed")
    if len(model.network.widths) < 2:
        raise Unsupported(
            f"{run} has static word vectors but no layer that reads the context. Choose an ELMo, a BERT or another "
            "network with layers.",
            ability="embed",
        )
    return model


def contextual_vectors(model: TextModel, places: Sequence[Place]) -> list[np.ndarray]:
    """(n, D) for each layer, reading at most REACH words on either side of a place."""
    widths = model.network.widths
    groups: list[Any] = [ALL_LAYERS] if len(set(widths)) == 1 else [[i] for i in range(len(widths))]
    vectors: list[list[np.ndarray]] = [[] for _ in widths]
    near = [crop(place) for place in places]
    for layers in groups:
        which = range(len(widths)) if layers == ALL_LAYERS else layers
        for part in slices(len(near), BATCH):
            embedded = model.embed_words([list(place.words) for place in near[part]], layers)
            stacked = torch.stack(
                [text.vectors[:, p.position] for text, p in zip(embedded, near[part], strict=True)], 1
            )
            for i, layer in zip(which, stacked.numpy(), strict=True):
                vectors[i].append(layer)
    return [np.concatenate(layer) for layer in vectors]


def crop(place: Place) -> Place:
    first = max(0, place.position - REACH)
    return Place(place.words[first : place.position + REACH + 1], place.position - first)


def normalize(x: np.ndarray) -> np.ndarray:
    """Rows of length one."""
    x = x.astype(np.float64)
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)
