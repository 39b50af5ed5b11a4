"""word2vec compared with gensim in one run: words per second and quality of the vectors; speed and quality of GloVe.

    python benchmarks/vectors.py --text FILE [--words 5000000] [--epochs 5] [--repeat 3]

FILE is plain text or jsonl, compressed or not. Its first `--words` words are used, in lower case without punctuation.
Both have the same settings: 100 dimensions, window 5, 5 negative samples, subsampling at 1e-3, learning rate from 0.025
down to 0.0001. gensim runs with two workers and with one. nextword runs with one thread, so that a run resumes
bit-exactly. They take turns, and medians are compared. Splitting text and building the vocabulary are not timed.

gensim's own functions and files (questions-words.txt, wordsim353.tsv) measure quality, on vectors that nextword wrote
and gensim read. Only this benchmark needs `pip install gensim`.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nextword.batching.token_stream import Stream
from nextword.conversion.word_vectors import write_vectors
from nextword.core.types import Vocabulary
from nextword.data.word_vectors import Vectors
from nextword.models.glove import GloVe, GloVeConfig
from nextword.models.word2vec import Word2Vec, Word2VecConfig
from nextword.objectives.word_vectors import CooccurrenceObjective, NegativeSamplingObjective

WIDTH, WINDOW, NOISE, SAMPLE, RATE, FLOOR, LEAST = 100, 5, 5, 1e-3, 0.025, 0.0001, 5
LINE = 10_000  # words in a sentence, the most that gensim accepts


def read(path: Path, words: int) -> list[str]:
    from nextword.data.opening import open_unsplit

    found: list[str] = []
    corpus = open_unsplit(str(path))
    for document in corpus.documents(corpus.splits[0]):
        found += re.findall(r"[a-z0-9]+(?:'[a-z]+)?", document.text.lower())
        if len(found) >= words:
            break
    return found[:words]


class Ours:
    """The words as ids, and the networks trained on them."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.words = [word for word, n in Counter(tokens).most_common() if n >= LEAST]
        ids = {word: i for i, word in enumerate(self.words, 2)}
        self.text = Stream.from_ids(np.array([ids.get(word, 0) for word in tokens], np.uint32))
        self.vocabulary = Vocabulary(len(ids) + 2, 1, {"<unk>": 0, "<eos>": 1}, 1)

    def word2vec(self, cbow: bool, epochs: float) -> Any:
        torch.manual_seed(1)
        network = Word2Vec(Word2VecConfig(WIDTH, cbow), self.vocabulary)
        options = {"words": 16384, "window": WINDOW, "negatives": NOISE, "subsample": SAMPLE}
        objective = NegativeSamplingObjective(options, self.vocabulary)
        optimizer = torch.optim.SGD(network.parameters(), RATE)
        steps = int(epochs * objective.batches_per_epoch(self.text))
        batches = objective.batches(self.text, 1, 0)
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = RATE + (FLOOR - RATE) * step / steps
            network.learn(next(batches), optimizer)
        return network

    def glove(self, epochs: int) -> tuple[Any, dict[str, float]]:
        torch.manual_seed(1)
        network = GloVe(GloVeConfig(WIDTH), self.vocabulary)
        objective = CooccurrenceObjective({"cells": 1 << 18}, self.vocabulary, window=10, x_max=10.0)
        began = time.perf_counter()
        each = objective.batches_per_epoch(self.text)
        counted = time.perf_counter() - began
        optimizer = torch.optim.Adagrad(network.parameters(), 0.05, initial_accumulator_value=1.0)
        batches, began = objective.batches(self.text, 1, 0), time.perf_counter()
        for _ in range(epochs * each):
            network.learn(next(batches), optimizer)
        took = time.perf_counter() - began
        cells = len(objective.cells)
        return network, {"counting": counted, "cells": cells, "cells/s": epochs * cells / took, "seconds": took}

    def vectors(self, network: Any) -> Vectors:
        return Vectors("ours", self.words, network.table.detach()[2:].numpy())


def theirs(tokens: Sequence[str], cbow: bool, workers: int, epochs: int) -> tuple[Any, float]:
    from gensim.models import Word2Vec as Gensim

    lines = [list(tokens[i : i + LINE]) for i in range(0, len(tokens), LINE)]
    model = Gensim(
        vector_size=WIDTH, window=WINDOW, negative=NOISE, sample=SAMPLE, min_count=LEAST, sg=int(not cbow), seed=1,
        alpha=RATE, min_alpha=FLOOR, workers=workers,
    )  # fmt: skip
    model.build_vocab(lines)
    began = time.perf_counter()
    model.train(lines, total_examples=len(lines), epochs=epochs)
    return model.wv, time.perf_counter() - began


def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def quality(vectors: Any) -> str:
    """Accuracy on analogies in %, and Spearman's ρ with human similarity ratings of pairs."""
    from gensim.test.utils import datapath

    score, _ = vectors.evaluate_word_analogies(datapath("questions-words.txt"), restrict_vocab=30_000)
    _, rank, unknown = vectors.evaluate_word_pairs(datapath("wordsim353.tsv"))
    return f"analogies {100 * score:5.1f} %   wordsim353 {rank.statistic:.3f} ({unknown:.0f} % of the pairs unknown)"


def as_gensim(vectors: Vectors) -> Any:
    from gensim.models import KeyedVectors

    with tempfile.TemporaryDirectory() as folder:
        write_vectors(Path(folder) / "ours.vec", vectors, has_header=True)
        return KeyedVectors.load_word2vec_format(Path(folder) / "ours.vec")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--words", type=int, default=5_000_000)
    parser.add_argument("--epochs", type=int, default=5, help="epochs of the vectors whose quality is measured")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--timed", type=int, default=1_000_000, help="words in one timed pass")
    given = parser.parse_args()
    tokens = read(given.text, given.words)
    some = tokens[: given.timed]
    ours, whole = Ours(some), Ours(tokens)
    print(f"{len(tokens):,} words, {len(whole.words):,} distinct words that occur at least {LEAST} times")
    for cbow in (False, True):
        ours.word2vec(cbow, 0.1)  # compiles
        turns: dict[str, list[float]] = {"nextword, 1 thread": [], "gensim, 2 workers": [], "gensim, 1 worker": []}
        for _ in range(given.repeat):
            turns["nextword, 1 thread"].append(timed(lambda cbow=cbow: ours.word2vec(cbow, 1)))  # type: ignore[misc]
            turns["gensim, 2 workers"].append(theirs(some, cbow, 2, 1)[1])
            turns["gensim, 1 worker"].append(theirs(some, cbow, 1, 1)[1])
        speeds = {name: len(some) / statistics.median(seconds) for name, seconds in turns.items()}
        print("\nCBOW" if cbow else "\nskip-gram")
        for name, speed in speeds.items():
            print(f"  {name:<20} {speed:>11,.0f} words/s   ours × {speeds['nextword, 1 thread'] / speed:.2f}")
        print("  nextword            ", quality(as_gensim(whole.vectors(whole.word2vec(cbow, given.epochs)))))
        print("  gensim, 2 workers   ", quality(theirs(tokens, cbow, 2, given.epochs)[0]))
    network, facts = whole.glove(3 * given.epochs)
    print(f"\nGloVe  {'   '.join(f'{name} {value:,.1f}' for name, value in facts.items())}")
    print("  nextword            ", quality(as_gensim(whole.vectors(network))))


if __name__ == "__main__":
    main()
