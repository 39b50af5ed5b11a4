"""Does a word with two meanings get one vector or two? One that looks words up against one that reads the sentence.

What a word means in a place is rarely written down. So words are made whose meaning is known (Gale, Church & Yarowsky
1992; Schütze 1992): two ordinary words become one, in the text to learn from and in the held-out one.

    he broke the BREAD/SWORD and gave it to them        meant: bread
    he drew his BREAD/SWORD and went out                meant: sword

    skip-gram   a table: one vector for BREAD/SWORD, whatever stands around it
    BERT        a small one: its input, which is a table too, and its layers, which look at the neighbours

Every vector is asked what is meant by the simplest means: which of two means, of the places of either meaning in the
text that was learnt from, it is nearer to. Who cannot tell says the commoner meaning. This works in any language that
the tokenizer cuts into words, Chinese by its characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from nextword.batching.prepare import Stream
from nextword.contract import Inputs, Tokenizer
from nextword.models.word2vec import Word2Vec, Word2VecConfig
from nextword.objectives.contexts import Negatives
from nextword.studies.apart import spread
from nextword.studies.measures import above, over_seeds
from nextword.studies.small_transformers import (
    INTERVALS,
    Size,
    Text,
    certain,
    encoder,
    learn,
    ranged,
    sentences,
    some,
    text_of,
    unhidden,
)
from nextword.studies.study import Claim, Part, Progress, Settings, Table, Tables, judged
from nextword.studies.text import corpus_for, enough
from nextword.studies.word_senses_figure import draw

__all__ = ["CLAIM", "draw", "judge", "measure"]
CLAIM = Claim(
    "A table gives a word one vector for all that it means; a network that reads its context gives it another in "
    "another meaning.",
    "Peters et al. 2018, sections 1 and 5.3; lecture notes on ELMo: word2vec gives both 画 of 画画 the same vector",
)
STATIC, INPUT = "skip-gram", "BERT, input"
PIECES = 2000
FULL = Size(layers=2, steps=2500, rate=3e-3)
QUICK = Size(layers=1, width=64, heads=4, rows=32, steps=400, rate=4e-3)
PAIRS, COMMONEST = 16, 60  # made words; and so many of the commonest words are not taken, for they mean little
SHOWN = 400_000  # tokens of the training text whose places the two means are made of
LEAST = 400  # held-out places
PASSES, RATE, WIDTH = 5, 0.05, 64  # of skip-gram
SAME = 1e-9  # cosines that differ by less are equal


class Places(NamedTuple):
    """Where a made word stands in rows of a text, and which of its two words stood there."""

    rows: np.ndarray  # (n, length) ids, as they are read
    padding: np.ndarray  # (n, length)
    at: np.ndarray  # (n,)
    pair: np.ndarray  # (n,)
    meant: np.ndarray  # (n,) 0 or 1


# ------------------------------------------------------------------------------------------------ made words


def pairs_of(text: Text, tokenizer: Tokenizer) -> np.ndarray:
    """(pairs, 2) ids of whole words of like frequency, the commonest left out."""
    counts = np.bincount(text.train.ids, minlength=len(tokenizer))
    whole = [id for id in np.argsort(-counts, kind="stable").tolist() if counts[id] and _whole(tokenizer, id)]
    chosen = np.array(whole[COMMONEST : COMMONEST + 2 * PAIRS])
    return chosen[: len(chosen) // 2 * 2].reshape(-1, 2)


def _whole(tokenizer: Tokenizer, id: int) -> bool:
    """A word, or a Chinese character; not the end of a word, nor a mark."""
    piece = tokenizer.piece(id).decode("utf-8", "replace")
    word = piece.strip()
    if id in tokenizer.special.values() or not word.isalpha():
        return False
    return "\u4e00" <= word <= "\u9fff" or (piece.startswith(" ") and len(word) > 2)


def merged(stream: Stream, pairs: np.ndarray) -> Stream:
    """The text with the first word of each pair wherever either stood."""
    ids = np.array(stream.ids)
    for first, second in pairs.tolist():
        ids[ids == second] = first
    return replace(stream, ids=ids)


def places(stream: Stream, size: Size, text: Text, pairs: np.ndarray) -> Places:
    """Every place of a made word, in rows of whole sentences."""
    rows, there = [], []
    for batch in sentences(size, text.vocabulary).held_out(stream):
        assert batch.inputs.padding is not None
        rows.append(unhidden(batch).numpy())
        there.append(batch.inputs.padding.numpy())
    ids, padding = np.concatenate(rows), np.concatenate(there)
    row, at = np.nonzero(padding & np.isin(ids, pairs))
    found = ids[row, at]
    pair, meant = np.nonzero(found[:, None, None] == pairs[None])[1:]
    read = ids.copy()
    for first, second in pairs.tolist():
        read[read == second] = first
    return Places(read[row], padding[row], at, pair, meant)


# ------------------------------------------------------------------------------------------------ one run

Vectors = Mapping[str, tuple[np.ndarray, np.ndarray]]  # by name: of the places known (n, D), of those asked (m, D)


def static(seed: int, text: Text, known: Places, asked: Places) -> Vectors:
    torch.manual_seed(seed)
    network = Word2Vec(Word2VecConfig(width=WIDTH), text.vocabulary)
    objective = Negatives({"kind": "contexts", "words": 8192}, text.vocabulary)
    optimizer = torch.optim.SGD(network.parameters(), RATE)
    steps, batches = PASSES * objective.per_epoch(text.train), objective.batches(text.train, seed, 0)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / steps)
        network.learn(next(batches), optimizer)
    table = network.vectors.numpy()
    of_known, of_asked = (table[p.rows[np.arange(len(p.at)), p.at]] for p in (known, asked))
    return {STATIC: (of_known, of_asked)}


def contextual(seed: int, size: Size, text: Text, known: Places, asked: Places) -> Vectors:
    """Each layer of a network that reads the row. Another network that has `encode` goes here in BERT's place."""
    network = encoder(size, text.vocabulary, seed)
    learn(network, sentences(size, text.vocabulary), text.train, seed, size)
    names = [INPUT, *(f"BERT, layer {i}" for i in range(1, len(network.widths)))]
    of_known, of_asked = (_layers(network, p) for p in (known, asked))
    return dict(zip(names, zip(of_known, of_asked, strict=True), strict=True))


@torch.no_grad()
def _layers(network: Any, given: Places, at_once: int = 256) -> list[np.ndarray]:
    parts: list[list[np.ndarray]] = []
    for first in range(0, len(given.at), at_once):
        here = slice(first, first + at_once)
        rows, padding = torch.from_numpy(given.rows[here]), torch.from_numpy(given.padding[here])
        layers, _ = network.encode(Inputs(rows, padding))
        which = torch.arange(len(rows)), torch.from_numpy(given.at[here])
        parts.append([layer[which].float().numpy() for layer in layers])
    return [np.concatenate(layer) for layer in zip(*parts, strict=True)]


def senses(seed: int, size: Size, text: Text, known: Places, asked: Places) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By name, of each pair: % of the places whose meaning is told, and how much nearer the same meaning is."""
    found = {**static(seed, text, known, asked), **contextual(seed, size, text, known, asked)}
    return {name: told(*vectors, known, asked) for name, vectors in found.items()}


def told(vectors: np.ndarray, others: np.ndarray, known: Places, asked: Places) -> tuple[np.ndarray, np.ndarray]:
    right, nearer = [], []
    for pair in np.unique(asked.pair):
        mine, theirs = known.pair == pair, asked.pair == pair
        meant = asked.meant[theirs]
        means = [_unit(vectors[mine & (known.meant == k)].astype(np.float64)).mean(0) for k in (0, 1)]
        cosines = _unit(others[theirs].astype(np.float64)) @ _unit(np.stack(means)).T  # (m, 2)
        apart = cosines[:, 1] - cosines[:, 0]
        apart[np.abs(apart) < SAME] = 0.0
        commoner = np.mean(known.meant[mine]) > 0.5
        said = np.where(apart == 0, commoner, apart > 0)
        right.append(100 * np.mean(said == meant))
        nearer.append(np.mean(np.where(meant == 1, apart, -apart)))
    return np.array(right), np.array(nearer)


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


# ------------------------------------------------------------------------------------------------ measuring


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    corpus = corpus_for(settings.data)
    size = QUICK if settings.quick else FULL
    text, tokenizer = text_of(corpus, PIECES)
    pairs = pairs_of(text, tokenizer)
    known, asked = places(some(text.train, SHOWN), size, text, pairs), places(text.test, size, text, pairs)
    both = [
        k for k in range(len(pairs)) if all(len(set(p.meant[p.pair == k].tolist())) == 2 for p in (known, asked))
    ]  # meanings that are seen and asked about
    known, asked = (_only(p, both) for p in (known, asked))
    enough(len(asked.at), LEAST, "held-out places of words that were made of two", corpus)
    read = replace(text, train=merged(text.train, pairs))
    tasks: dict[Any, Any] = {seed: (senses, (seed, size, read, known, asked)) for seed in settings.seeds}
    runs = spread(tasks, progress)
    names = list(runs[settings.seeds[0]])
    right = {name: np.stack([runs[seed][name][0] for seed in settings.seeds]) for name in names}
    nearer = {name: np.stack([runs[seed][name][1] for seed in settings.seeds]) for name in names}
    words = [" / ".join(tokenizer.piece(id).decode("utf-8", "replace").strip() for id in pairs[k]) for k in both]
    return {
        "vectors": _vectors(names, right, nearer),
        "differences": _differences(names, right, nearer),
        "words": _words(words, names, right, asked),
    }, {
        "data": f"{corpus.name} ({corpus.source}): {len(text.train):,} tokens to learn from; {len(both)} words made of "
        f"two, {len(asked.at):,} held-out places; WordPiece of {len(tokenizer):,}",
        "networks": f"skip-gram of width {WIDTH}, {PASSES} passes; BERT of {size.built()}",
        "training": size.said(),
        "intervals": INTERVALS.replace("held-out text", "made words"),
    }


def _only(given: Places, pairs: Sequence[int]) -> Places:
    kept = np.isin(given.pair, pairs)
    return Places(*(part[kept] for part in given))


def _vectors(names: Sequence[str], right: Mapping[str, np.ndarray], nearer: Mapping[str, np.ndarray]) -> Table:
    rows = [
        (name, over_seeds(right[name].mean(1).tolist()), over_seeds(nearer[name].mean(1).tolist())) for name in names
    ]
    return Table("What a vector says of the meaning", ("vector", "right, %", "nearer"), tuple(rows))


def _differences(names: Sequence[str], right: Mapping[str, np.ndarray], nearer: Mapping[str, np.ndarray]) -> Table:
    rows = [
        (name, certain(right[name] - right[STATIC]), certain(nearer[name] - nearer[STATIC]))
        for name in names
        if name != STATIC
    ]
    return Table(f"More than {STATIC}, mean and 95 % interval", ("vector", "right, %", "nearer"), tuple(rows))


def _words(words: Sequence[str], names: Sequence[str], right: Mapping[str, np.ndarray], asked: Places) -> Table:
    rows = [
        (word, int((asked.pair == pair).sum()), *(float(right[name][:, i].mean()) for name in names))
        for i, (word, pair) in enumerate(zip(words, np.unique(asked.pair), strict=True))
    ]
    return Table("Right, %, by made word", ("word", "places", *names), tuple(rows), detailed=True)


# ------------------------------------------------------------------------------------------------ judging


def judge(tables: Tables) -> list[Part]:
    levels, more = tables["vectors"], tables["differences"]
    last = levels.column("vector")[-1]
    nearer, told_, most = (
        levels.cell("nearer", vector=STATIC),
        *(levels.cell("right, %", vector=v) for v in (STATIC, last)),
    )
    gain, input_ = more.cell("right, %", vector=last), more.cell("right, %", vector=INPUT)
    moved = levels.cell("nearer", vector=last)
    return [
        Part(
            "A table gives the word the same vector in both meanings.",
            judged(nearer[1] == nearer[2] == 0),
            f"The vectors of {STATIC} are nearer to their own meaning by {nearer[0]:.3f} in cosine; what they say is "
            f"right in {told_[0]:.1f} % of the places.",
            "in every seed" if nearer[1] == nearer[2] else f"{nearer[1]:.3f} to {nearer[2]:.3f}",
        ),
        Part(
            "A network that reads the context tells the meanings apart.",
            judged(above(gain)),
            f"{last} is right in {most[0]:.1f} % of the places and nearer to its own meaning by {moved[0]:.3f}: "
            f"{abs(gain[0]):.1f} points {'more' if gain[0] > 0 else 'less'} than {STATIC}.",
            f"more by {ranged(gain, 1)}",
        ),
        Part(
            "It is the layers that do so, not the table that they read from.",
            judged(above(gain, input_[0])),
            f"The input of the same network is {abs(input_[0]):.1f} points {'above' if input_[0] > 0 else 'below'} "
            f"{STATIC}.",
            ranged(input_, 1),
            decides=False,
        ),
    ]  # fmt: skip
