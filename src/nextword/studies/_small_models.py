"""Small transformers for studies: the text they read, a beginning that suits their size, training, and intervals.

A small network that fills in hidden tokens first learns how frequent each token is, and stays there long, before it
suddenly begins to look at the neighbours. Two things bring that forward, and every network of a study has them: weights
drawn as wide for its width as the papers draw theirs for 768, and several heads. Seeds differ in when it happens, which
is most of what intervals over seeds are about.

Small translators for studies: the pairs they learn from, the networks, their training, and what they write.

    pairs ──▶ Texts ──▶ a network for each seed ──▶ Said: what it writes from held-out sources, and what the true
                                                    targets cost it

The built-in pairs are verses of the King James Bible and the same in today's English. Words that are the same in both
make them easy: a network that can look at its source learns to copy within a minute of one core. On a GPU networks are
larger and learn longer.

Words in their context, small: a text cut into words, an ELMo that learns from it in a minute, skip-gram beside it.

    he broke the bread .  他 画 画 。         words in lower case, marks by themselves, Chinese by its characters
    he broke the bread . <eos> and …          one stream of ids for both; a word that has none is <unk>, or its letters

What is asked of either network is a vector at a place: a sentence, and which of its words. A run is asked likewise.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from nextword.batching.seq2seq import Pairs, prepare_pairs
from nextword.batching.token_stream import ROW, Stream, prepare
from nextword.core.errors import NextwordError, Unsupported
from nextword.core.protocols import Tokenizer
from nextword.core.pytree import detach
from nextword.core.types import Batch, Decoding, Greedy, Inputs, State, Vocabulary
from nextword.data.corpus import Corpus
from nextword.data.pairs import Parallel
from nextword.data.parallel import BIBLE, open_parallel
from nextword.data.segmentation import sentences
from nextword.evaluation.translation import written_from
from nextword.lm.embedding import ALL
from nextword.lm.loading import load, of_network
from nextword.models.bert import BERT, BERTConfig
from nextword.models.elmo import ELMo, ELMoConfig
from nextword.models.framing import following
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.models.seq2seq import Seq2Seq, Seq2SeqConfig
from nextword.models.word2vec import Word2Vec, Word2VecConfig
from nextword.objectives.bidirectional import Bidirectional
from nextword.objectives.masked import Masked
from nextword.objectives.seq2seq import Seq2SeqObjective
from nextword.objectives.word_vectors import Negatives
from nextword.studies._experiment import enough, held_out
from nextword.studies._study import NO_INTERVAL, bounded, widest
from nextword.tokenizers import vocabulary
from nextword.tokenizers.ptb_words import EOS, UNKNOWN, Lexicon
from nextword.tokenizers.training import train_tokenizer
from nextword.training.device import choose_device
from nextword.training.optimizers import make_optimizer
from nextword.training.schedules import Progress, Schedule

PUBLISHED = 768  # the width for which weights are drawn from N(0, 0.02²)
OPTIMIZER = {"kind": "adamw", "decay": 0.01, "decayed": "matrices", "betas": (0.9, 0.98)}
WARMUP = 0.1
CLIP = 1.0
DRAWS = 2000  # of a bootstrap


@dataclass(frozen=True)
class Size:
    """A network and its training. Rows are [CLS] … [SEP], marks and padding included in their length."""

    width: int = 96
    layers: int = 2
    heads: int = 6
    rows: int = 64
    length: int = 32
    steps: int = 1200
    rate: float = 3e-3

    @property
    def shape(self) -> dict[str, Any]:
        """As the configs of BERT, ALBERT and GPT-2 name it. No dropout: none of these reads a text often enough."""
        return {
            "width": self.width,
            "layers": self.layers,
            "heads": self.heads,
            "window": self.length,
            "dropout": 0.0,
        }

    def built(self) -> str:
        return f"{self.layers} layer(s) of width {self.width}, {self.heads} heads, window {self.length}"

    def said(self) -> str:
        return (
            f"{self.steps:,} steps of {self.rows} rows of {self.length} tokens; AdamW, rate {self.rate:g}, "
            f"{WARMUP:.0%} of the steps up and then down in a line".replace("%", " %")
        )


# ------------------------------------------------------------------------------------------------ text


@dataclass(frozen=True)
class Text:
    """What all runs of a study read. It goes to other processes, so it lies in memory."""

    train: Stream
    test: Stream
    vocabulary: Vocabulary


def text_of(corpus: Corpus, pieces: int) -> tuple[Text, Tokenizer]:
    """A corpus as WordPiece of so many pieces, lower-cased, learnt from its training text."""
    tokenizer = train_tokenizer({"kind": "wordpiece", "size": pieces}, (d.text for d in corpus.documents("train")))
    train, test = (in_memory(prepare(corpus, split, tokenizer)) for split in ("train", held_out(corpus)))
    return Text(train, test, vocabulary(tokenizer)), tokenizer


def in_memory(stream: Stream) -> Stream:
    ids, marks, documents = (np.array(part) for part in (stream.ids, stream.marks, stream.documents))
    return replace(stream, ids=ids, marks=marks, documents=documents, folder=None)


def some(stream: Stream, tokens: int) -> Stream:
    """So many documents, in a random order that is always the same, as have these tokens together."""
    opens = stream.documents["start"].astype(np.int64)
    closes = np.append(opens[1:], len(stream))
    order = np.random.default_rng(0).permutation(len(opens))
    order = order[: 1 + int(np.searchsorted(np.cumsum((closes - opens)[order]), tokens))]
    at = np.concatenate([np.arange(opens[d], closes[d]) for d in order])
    documents = np.zeros(len(order), ROW)
    documents["start"] = np.cumsum([0, *(closes - opens)[order][:-1]])
    return replace(stream, ids=stream.ids[at], marks=stream.marks[at], documents=documents, folder=None)


# ------------------------------------------------------------------------------------------------ training


def wider(network: Any) -> Any:
    """Its matrices as large for their width as those of the published networks for theirs."""
    with torch.no_grad():
        for weight in network.parameters():
            if weight.dim() > 1:
                weight.mul_((PUBLISHED / network.config.width) ** 0.5)
    return network


def encoder(size: Size, words: Vocabulary, seed: int) -> BERT:
    torch.manual_seed(seed)
    return wider(BERT(BERTConfig(**size.shape), words))


def short_sentences(size: Size, words: Vocabulary, **options: Any) -> Masked:
    """Full sentences, one row after the other, some of their tokens hidden."""
    return Masked({"kind": "sentences", "rows": size.rows, "length": size.length}, words, **options)


def masked_sentences(size: Size, words: Vocabulary, **options: Any) -> Masked:
    """The same with [MASK] in every hidden place: so a held-out text is asked about, whatever was learnt from."""
    return short_sentences(size, words, masked=1.0, replaced=0.0, **options)


def descend(
    network: nn.Module,
    batches: Iterable[Batch],
    loss: Callable[[Batch], Tensor],
    size: Size,
    check: Callable[[int], None] = lambda step: None,
    checks: int = 0,
    descent: Mapping[str, Any] = OPTIMIZER,
) -> None:
    """Train for the size's steps; `check(step)` is called so many times on the way, the last time at the end."""
    params: list[Any] = list(network.parameters())
    optimizer = make_optimizer(params, {**descent, "rate": size.rate})
    schedule = Schedule(size.rate, {"kind": "linear", "warmup": WARMUP})
    stops = {round(size.steps * i / checks) for i in range(1, checks + 1)} if checks else set()
    network.train()
    for step, batch in enumerate(islice(batches, size.steps), 1):
        for group in optimizer.param_groups:
            group["lr"] = schedule(Progress(step, 0, step / (size.steps + 1), ()))
        loss(batch).backward()
        nn.utils.clip_grad_norm_(params, CLIP)
        optimizer.step()
        optimizer.zero_grad()
        if step in stops:
            network.eval()
            check(step)
            network.train()
    network.eval()


def learn(
    network: nn.Module,
    objective: Masked,
    train: Stream,
    seed: int,
    size: Size,
    check: Callable[[int], None] = lambda step: None,
    checks: int = 0,
) -> None:
    """`descend` on an objective's own batches."""
    batches = objective.batches(train, seed, 0)
    descend(network, batches, lambda batch: objective.loss(network, batch, None).value, size, check, checks)


def left_to_right(seed: int, size: Size, text: Text) -> Any:
    """A GPT-2 trained on the rows that BERT reads, nothing hidden: each token is predicted from those before it."""
    torch.manual_seed(seed)
    network = wider(GPT2(GPT2Config(**size.shape), text.vocabulary))

    def loss(batch: Batch) -> Tensor:
        inputs = Inputs(unhidden(batch), batch.inputs.padding)
        targets = following(inputs, text.vocabulary.size).reshape(-1)
        h = network.hidden(inputs, None)[0][-1]
        return network.readout.total(h.reshape(-1, h.shape[-1]), targets) / (targets >= 0).sum()

    descend(network, short_sentences(size, text.vocabulary).batches(text.train, seed, 0), loss, size)
    return network


# ------------------------------------------------------------------------------------------------ hidden tokens


@torch.no_grad()
def hidden_tokens(network: Any, objective: Masked, text: Stream) -> tuple[np.ndarray, np.ndarray]:
    """Of each hidden token of a held-out text: its nats, and whether it is the likeliest. Always the same tokens."""
    nats, hits = [], []
    for batch in objective.held_out(text):
        h = network.hidden(batch.inputs, None)[0][-1]
        at, targets = asked(batch)
        log_p = network.readout.log_probs(h.reshape(-1, h.shape[-1])[at])
        nats.append(-log_p.gather(1, targets[:, None]).squeeze(1).numpy())
        hits.append((log_p.argmax(1) == targets).numpy())
    return np.concatenate(nats), np.concatenate(hits)


def asked(batch: Batch) -> tuple[Tensor, Tensor]:
    """The places (n,) that are asked about, its rows laid end to end, and the tokens (n,) that belong there."""
    assert batch.at is not None
    at = batch.at[: batch.predicted]
    return at, batch.targets.reshape(-1)[at]


def unhidden(batch: Batch) -> Tensor:
    """The ids (B, T) as they were before some were hidden."""
    return torch.where(batch.targets >= 0, batch.targets, batch.inputs.ids)


# ------------------------------------------------------------------------------------------------ intervals


def certain(values: np.ndarray | Sequence[Sequence[float]], alone: bool = False) -> list[float]:
    """(seeds, units of text) → their mean, and the wider of two 95 % intervals: over seeds, and over the text.

    Over seeds it is Student's t; over the text, a bootstrap of the units' means. A single seed has no interval, unless
    the network is one that was given (`alone`), so that nothing but the text is a draw.
    """
    found = np.asarray(values, dtype=float)
    by_seed = found.mean(1)
    if alone and len(by_seed) == 1:
        return [float(by_seed[0]), *resampled(found[0])]
    return widest(float(by_seed.mean()), by_seed, resampled(found.mean(0)))


def resampled(units: np.ndarray) -> tuple[float, float]:
    """95 % interval of a mean by drawing as many of the units again, with a fixed seed."""
    draw = np.random.default_rng(0)
    means = [units[draw.integers(0, len(units), len(units))].mean() for _ in range(DRAWS)]
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


INTERVALS = "95 %, the wider of Student's t over seeds and of a bootstrap over the held-out text, in pairs"


def ranged(cell: Sequence[Any], digits: int = 3, times: float = 1.0) -> str:
    """ "0.123 to 0.145"; of a single seed there is none."""
    if not bounded(cell):
        return NO_INTERVAL
    return " to ".join(_minus(end * times, digits) for end in cell[1:])


def _minus(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


def by(value: float, unit: str, digits: int) -> str:
    """ "1.3 points better"; below 0 it is worse."""
    return f"{abs(value):.{digits}f} {unit} {'better' if value > 0 else 'worse'}"


def spans(total: int, at_once: int) -> Iterator[slice]:
    """0 … total in slices of at most so many."""
    return (slice(first, min(first + at_once, total)) for first in range(0, total, at_once))


LEAST = 40  # held-out pairs
NONE, LOOKING = "none", "bahdanau"  # as a recipe says it


@dataclass(frozen=True)
class TranslatorSize:
    """A network, its pairs and its training."""

    pieces: int = 2000  # of the tokenizer
    width: int = 128
    rows: int = 32
    length: int = 30  # tokens of the longer side of a pair that is learnt from
    longest: int = 30  # of one that is held out
    steps: int = 400
    rate: float = 4e-3
    dropout: float = 0.0
    held: int = 300  # pairs held out

    def built(self, **model: Any) -> Seq2SeqConfig:
        """One layer of gated units on either side, read in one direction, one matrix for all words."""
        shape = {"width": self.width, "cell": "gru", "bidirectional": False, "tied": True, "dropout": self.dropout}
        return Seq2SeqConfig(**{**shape, **model})

    def said(self) -> str:
        return (
            f"{self.steps:,} steps of {self.rows} pairs of at most {self.length} tokens a side; AdamW, rate "
            f"{self.rate:g}, {WARMUP:.0%} of the steps up and then down in a line"
        ).replace("%", " %")

    @property
    def pace(self) -> Size:
        """As `small_transformers.descend` takes it."""
        return Size(rows=self.rows, length=self.length, steps=self.steps, rate=self.rate)


def sized(quick: bool, small_one: TranslatorSize, full: TranslatorSize, large: TranslatorSize) -> TranslatorSize:
    """By haste and by machine: a GPU has time for the large one."""
    return small_one if quick else large if choose_device().type == "cuda" else full


# ------------------------------------------------------------------------------------------------ pairs


@dataclass(frozen=True)
class Texts:
    """What all networks of a study read. It goes to other processes, so it lies in memory."""

    train: Pairs
    test: Pairs
    tokenizer: Tokenizer
    sources: tuple[str, ...]  # of the held-out pairs
    targets: tuple[str, ...]

    @property
    def vocabulary(self) -> Vocabulary:
        return vocabulary(self.tokenizer)

    @property
    def lengths(self) -> np.ndarray:
        """(n,) tokens of the held-out sources, their ends not counted."""
        return np.diff(self.test.bounds[0])[self.test.chosen] - 1


def texts_of(data: str, size: TranslatorSize, kind: str = "bpe", **tokenizer: Any) -> tuple[Parallel, Texts]:
    """Pairs by name or path; the built-in ones if none is given."""
    corpus = open_parallel(data or BIBLE)
    sides = (text for pair in corpus.documents("train") for text in (pair.source or "", pair.text))
    made = train_tokenizer({"kind": kind, "size": size.pieces, **tokenizer}, sides)
    split = held_out(corpus)
    train, test = (pairs_in_memory(prepare_pairs(corpus, part, made)) for part in ("train", split))
    train, test = train.within(size.length), test.within(size.longest)
    enough(len(test), LEAST, f"held-out pairs of at most {size.longest} tokens a side", corpus)
    test = replace(test, chosen=test.chosen[spaced(len(test), size.held)])
    documents = list(corpus.documents(split))
    pairs = [documents[i] for i in test.chosen]
    return corpus, Texts(
        train, test, made, tuple(pair.source or "" for pair in pairs), tuple(pair.text for pair in pairs)
    )


def spaced(total: int, wanted: int) -> np.ndarray:
    """At most so many of so many, from all of a text, for its parts differ."""
    return np.linspace(0, total - 1, min(total, wanted)).round().astype(int)


def pairs_in_memory(pairs: Pairs) -> Pairs:
    sides: list[Stream] = [in_memory(side) for side in (pairs.source, pairs.target)]
    return replace(pairs, source=sides[0], target=sides[1])


def pairs_of(tokenizer: Tokenizer, texts: Sequence[tuple[str, str]]) -> Pairs:
    """Sources and targets that stand in no corpus, each side with its end."""
    assert tokenizer.end is not None
    sides = []
    for side in zip(*texts, strict=True):
        encoded = tokenizer.encode_batch(list(side))
        sides.append(stream_of_pairs([np.append(one.ids, tokenizer.end) for one in encoded]))
    return Pairs(sides[0], sides[1], tokenizer.begin, np.arange(len(texts)))


def stream_of_pairs(texts: Sequence[np.ndarray]) -> Stream:
    """Texts, which are ids already, as a prepared one: its bytes and words are not known."""
    documents = np.zeros(len(texts), ROW)
    documents["start"] = np.cumsum([0, *map(len, texts[:-1])])
    ids = np.concatenate(list(texts)).astype(np.uint16)
    return Stream(ids, np.ones(len(ids), np.uint8), documents, len(ids), len(ids), 0)


def about(corpus: Parallel, texts: Texts) -> str:
    """The data of a study in words."""
    return (
        f"{corpus.name} ({corpus.source}): {len(texts.train):,} pairs to learn from, {len(texts.test):,} held out; "
        f"{len(texts.tokenizer):,} subwords for both sides"
    )


# ------------------------------------------------------------------------------------------------ networks


def translator(
    seed: int, size: TranslatorSize, texts: Texts, objective: dict[str, Any] | None = None, **model: Any
) -> Seq2Seq:
    """A network trained on the pairs; `objective` are settings of the sequence objective, such as `sampled`."""
    torch.manual_seed(seed)
    network = Seq2Seq(size.built(**model), texts.vocabulary).to(choose_device())
    aim = Seq2SeqObjective({"rows": size.rows, "length": size.length}, **(objective or {}))
    learn_translation(network, aim, texts.train, seed, size)
    return network


def learn_translation(
    network: Any,
    objective: Any,
    text: Any,
    seed: int,
    size: TranslatorSize,
    batches: Iterator[Batch] | None = None,
    descent: Mapping[str, Any] = OPTIMIZER,
) -> None:
    """On the objective's own batches of a text, or on those given."""
    read = on_device(batches or objective.batches(text, seed, 0), network.device)
    descend(network, read, lambda batch: objective.loss(network, batch, None).value, size.pace, descent=descent)


def on_device(batches: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    for batch in batches:
        yield replace(batch, inputs=placed(batch.inputs, device), targets=batch.targets.to(device))


def placed(inputs: Inputs, device: torch.device) -> Inputs:
    padding = None if inputs.padding is None else inputs.padding.to(device)
    source = None if inputs.source is None else placed(inputs.source, device)
    return replace(inputs, ids=inputs.ids.to(device), padding=padding, source=source)


def workers() -> int:
    """For `spread`: on a GPU one after the other, elsewhere one a core."""
    return 1 if choose_device().type == "cuda" else 0


# ------------------------------------------------------------------------------------------------ what they say


@dataclass(frozen=True)
class Said:
    written: tuple[str, ...]
    costs: np.ndarray  # (n, 2) nats and tokens of the true targets


def said(network: Any, texts: Texts, how: Decoding = Greedy()) -> Said:
    return answered(network, texts.tokenizer, texts.sources, texts.targets, how)


def answered(
    network: Any, tokenizer: Tokenizer, sources: Sequence[str], targets: Sequence[str], how: Decoding = Greedy()
) -> Said:
    lm = of_network(network, tokenizer)
    scores = lm.score_many(list(targets), list(sources))
    costs = np.array([[score.nats, score.tokens] for score in scores])
    return Said(tuple(written_from(lm, sources, how)), costs)


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
