"""A classifier of quality: documents that look like good text are kept, and now and then one that does not.

Logistic regression on hashed words, good text against raw text, as GPT-3 filtered Common Crawl (Brown et al., 2020,
appendix A, with Spark's HashingTF and logistic regression). A document of score s is kept if

    pareto(α = 9) > 1 − s          which is with probability (2 − s)⁻⁹

    score   1      0.95   0.9    0.7    0.5    0
    kept    100 %  64 %   42 %   9.4 %  2.6 %  0.2 %

Our features are ln(1 + count) of each of 2¹⁸ hashed words, scaled to length one, so that a long document's score is not
more certain for its length alone. The draw depends on the seed and the document alone: the same documents are kept
whatever stands around them, in every process.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nextword.core.errors import NextwordError
from nextword.core.jit import compiled
from nextword.core.types import Document
from nextword.data.filters.dedup import batches, parts, words

FEATURES = 1 << 18  # as Spark's HashingTF
ALPHA = 9.0
SAMPLE = 8192  # documents of each side to learn from
FEWEST = 20  # documents of each side below which there is nothing to learn
HELD_OUT = 10  # one in so many tells how well it was learned
EPOCHS = 20
RATE = 0.5
DECAY = 1e-4  # of the weights, after each epoch
FORMAT = "nextword quality 1"

Progress = Callable[[int], None]


class Bags(NamedTuple):
    """Sparse rows: features of document i are column[starts[i] : starts[i + 1]], with these values."""

    column: np.ndarray  # int32
    value: np.ndarray  # float32
    starts: np.ndarray  # int64


@dataclass(frozen=True)
class About:
    """What a classifier was made from, and how well it tells the two apart in documents it did not learn from."""

    good: str = ""
    raw: str = ""
    good_documents: int = 0
    raw_documents: int = 0
    seed: int = 0
    accuracy: float = 0.0  # classes count equally
    ranked: float = 0.0  # how often a good document scores above a raw one (area under the curve)


@compiled
def _bag(hashes, firsts, features, index, value, starts):
    """Each text's distinct features, with ln(1 + count), scaled to length 1."""
    n = 0
    counts, touched = np.zeros(features, np.int32), np.empty(features, np.int32)
    for text in range(len(firsts) - 1):
        starts[text] = n
        k = 0
        for i in range(firsts[text], firsts[text + 1]):
            f = np.int64(hashes[i] & np.uint64(features - 1))
            if counts[f] == 0:
                touched[k] = f
                k += 1
            counts[f] += 1
        total = 0.0
        for j in range(k):
            x = math.log1p(counts[touched[j]])
            index[n + j], value[n + j] = touched[j], x
            total += x * x
            counts[touched[j]] = 0
        for j in range(n, n + k):
            value[j] /= math.sqrt(total)
        n += k
    starts[len(firsts) - 1] = n
    return n


def bags(texts: list[str]) -> Bags:
    found = words(texts)
    index, value = np.empty(len(found.hashes), np.int32), np.empty(len(found.hashes), np.float32)
    starts = np.empty(len(texts) + 1, np.int64)
    n = _bag(found.hashes, found.firsts, FEATURES, index, value, starts)
    return Bags(index[:n].copy(), value[:n].copy(), starts)


@compiled
def _dot(index, value, starts, weights, bias, out):
    for row in range(len(starts) - 1):
        total = bias
        for i in range(starts[row], starts[row + 1]):
            total += value[i] * weights[index[i]]
        out[row] = 1 / (1 + math.exp(-total))


@compiled
def _descend(index, value, starts, order, target, cost, rate, weights, squares, bias):
    """One pass of AdaGrad over rows in this order; `bias` holds the bias and the sum of its squared gradients."""
    for row in order:
        total = bias[0]
        for i in range(starts[row], starts[row + 1]):
            total += value[i] * weights[index[i]]
        error = cost[row] * (1 / (1 + math.exp(-total)) - target[row])
        bias[1] += error * error
        if bias[1] > 0:
            bias[0] -= rate * error / math.sqrt(bias[1])
        for i in range(starts[row], starts[row + 1]):
            g = error * value[i]
            f = index[i]
            squares[f] += g * g
            if squares[f] > 0:
                weights[f] -= rate * g / math.sqrt(squares[f])


class Quality:
    """A trained classifier: `score` of texts, in (0, 1)."""

    def __init__(self, weights: np.ndarray, bias: float, about: About) -> None:
        self.weights, self.bias, self.about = weights, bias, about

    def score(self, texts: list[str]) -> np.ndarray:
        rows = bags(texts)
        out = np.empty(len(texts))
        _dot(*rows, self.weights, self.bias, out)
        return out

    def save(self, path: Path) -> None:
        """One safetensors file; what it was made from is in its header."""
        from safetensors.numpy import save_file

        about = {"format": FORMAT, "about": json.dumps(asdict(self.about))}
        save_file({"weights": self.weights, "bias": np.array([self.bias])}, path, metadata=about)

    @classmethod
    def load(cls, path: Path) -> Quality:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "np") as file:
                about = file.metadata() or {}
                if about.get("format") != FORMAT:
                    raise NextwordError(
                        f"{path} is no classifier of this version: it says {about.get('format')!r}, expected "
                        f"{FORMAT!r}. Train it again from good text."
                    )
                weights, bias = file.get_tensor("weights"), file.get_tensor("bias")
        except (SafetensorError, OSError) as error:
            raise NextwordError(
                f"{path} cannot be read as a classifier: {error}. Train it again from good text."
            ) from None
        return cls(weights, float(bias[0]), About(**json.loads(about["about"])))


def sample(documents: Iterable[Document], seed: int, size: int = SAMPLE, progress: Progress | None = None) -> list[str]:
    """Texts drawn evenly from a stream of any length, each as likely as the others."""
    draw = np.random.default_rng(seed)
    kept: list[str] = []
    done = 0
    for number, (document, _) in enumerate(parts(documents)):
        done += len(document.text.encode())
        if len(kept) < size:
            kept.append(document.text)
        elif (place := int(draw.integers(0, number + 1))) < size:
            kept[place] = document.text
        if progress and number % 64 == 0:
            progress(done)
    return kept


def train(good: list[str], raw: list[str], seed: int = 0, names: tuple[str, str] = ("good", "raw")) -> Quality:
    """Learn to tell good texts from raw ones; both sides count equally, however many there are."""
    for name, texts in zip(names, (good, raw), strict=True):
        if len(texts) < FEWEST:
            raise NextwordError(
                f"{name} has {len(texts)} documents to learn from, and at least {FEWEST} are needed. Give more text, "
                "or text that is divided into documents (one a line of .jsonl, or a folder of files)."
            )
    rows = bags([*good, *raw])
    target = np.repeat([1.0, 0.0], [len(good), len(raw)])
    cost = np.where(target == 1, 0.5 / len(good), 0.5 / len(raw)) * len(target)
    order = np.random.default_rng(seed).permutation(len(target))
    held_out, learned = np.sort(order[::HELD_OUT]), np.delete(order, np.s_[::HELD_OUT])
    weights, squares, bias = np.zeros(FEATURES, np.float32), np.zeros(FEATURES, np.float32), np.zeros(2)
    for _ in range(EPOCHS):
        _descend(*rows, learned, target, cost, RATE, weights, squares, bias)
        weights *= 1 - DECAY
    out = np.empty(len(target))
    _dot(*rows, weights, bias[0], out)
    accuracy, ranked = judged(out[held_out], target[held_out])
    about = About(*names, len(good), len(raw), seed, accuracy, ranked)
    return Quality(weights, float(bias[0]), about)


def judged(scores: np.ndarray, target: np.ndarray) -> tuple[float, float]:
    """Accuracy with classes counted equally, and the area under the curve; chance where one class is missing."""
    good, raw = scores[target == 1], scores[target == 0]
    if not len(good) or not len(raw):
        return 0.5, 0.5
    ranks = np.searchsorted(np.sort(raw), good, "left") + np.searchsorted(np.sort(raw), good, "right")
    return float(((good > 0.5).mean() + (raw <= 0.5).mean()) / 2), float(ranks.mean() / 2 / len(raw))


def drawn(text: str, seed: int, alpha: float = ALPHA) -> float:
    """A Pareto number, as np.random.pareto draws them, from the seed and the text alone."""
    key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8, salt=seed.to_bytes(8, "little", signed=True))
    uniform = int.from_bytes(key.digest(), "big") / 2.0**64
    return math.expm1(-math.log1p(-min(uniform, 1 - 2.0**-53)) / alpha)


def keeps(score: float, text: str, seed: int = 0, alpha: float = ALPHA) -> bool:
    """The paper's rule."""
    return drawn(text, seed, alpha) > 1 - score


def marked(documents: Iterable[Document], quality: Quality, seed: int = 0) -> Iterable[tuple[Document, float, bool]]:
    """Every document with its score, and whether it is kept. Passages of a document come joined."""
    for batch in batches(parts(documents)):
        texts = [part.document.text for part in batch]
        for part, score in zip(batch, quality.score(texts).tolist(), strict=True):
            yield part.document, score, keeps(score, part.document.text, seed)
