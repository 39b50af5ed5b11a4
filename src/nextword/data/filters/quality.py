"""A quality filter: keeps documents that look like good text, and a few that do not.

Logistic regression on hashed words, good text against raw text, as GPT-3 filtered Common Crawl (Brown et al. 2020,
appendix A, with Spark's HashingTF and logistic regression). A document with score s is kept if

    pareto(α = 9) > 1 − s          that is, with probability (2 − s)⁻⁹

    score   1      0.95   0.9    0.7    0.5    0
    kept    100 %  64 %   42 %   9.4 %  2.6 %  0.2 %

Features are ln(1 + count) of each of 2¹⁸ hashed words, normalized to length one, so that the score of a long document
is not more certain because of its length. The random draw only depends on the seed and the document: the same documents
are kept whatever surrounds them.
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

from nextword.core.errors import bad_data
from nextword.core.io import parse_json
from nextword.core.jit import jit
from nextword.core.types import Document
from nextword.data.filters.word_hashes import batch_parts, hash_words, join_passages

FEATURES = 1 << 18  # as Spark's HashingTF
ALPHA = 9.0
SAMPLE = 8192  # documents of each class to train on
MIN_DOCUMENTS = 20  # of each class
HELD_OUT = 10  # every tenth document is for validation
EPOCHS = 20
LEARNING_RATE = 0.5
WEIGHT_DECAY = 1e-4  # per epoch
FORMAT = "nextword quality 1"

Progress = Callable[[int], None]


class Bags(NamedTuple):
    """A sparse matrix (CSR): the features of document i are column[starts[i] : starts[i + 1]], with these values."""

    column: np.ndarray  # int32
    value: np.ndarray  # float32
    starts: np.ndarray  # int64


@dataclass(frozen=True)
class ClassifierInfo:
    """What a classifier was trained on, and how well it separates the classes on held-out documents."""

    good: str = ""
    raw: str = ""
    good_documents: int = 0
    raw_documents: int = 0
    seed: int = 0
    accuracy: float = 0.0  # balanced: classes count equally
    ranked: float = 0.0  # area under the ROC curve


@jit
def _bag(hashes, firsts, features, index, value, starts):
    """Write the distinct features of each text, with ln(1 + count), normalized to length 1."""
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


def bag_of_words(texts: list[str]) -> Bags:
    """Return the features of each text."""
    words = hash_words(texts)
    index, value = np.empty(len(words.hashes), np.int32), np.empty(len(words.hashes), np.float32)
    starts = np.empty(len(texts) + 1, np.int64)
    n = _bag(words.hashes, words.firsts, FEATURES, index, value, starts)
    return Bags(index[:n].copy(), value[:n].copy(), starts)


@jit
def _predict(index, value, starts, weights, bias, out):
    for row in range(len(starts) - 1):
        total = bias
        for i in range(starts[row], starts[row + 1]):
            total += value[i] * weights[index[i]]
        out[row] = 1 / (1 + math.exp(-total))


@jit
def _adagrad_epoch(index, value, starts, order, target, cost, rate, weights, squares, bias):
    """One epoch of AdaGrad over rows in this order; `bias` holds the bias and the sum of its squared gradients."""
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


class QualityClassifier:
    """A trained classifier: `score` is the probability of good text."""

    def __init__(self, weights: np.ndarray, bias: float, about: ClassifierInfo) -> None:
        self.weights, self.bias, self.about = weights, bias, about

    def score(self, texts: list[str]) -> np.ndarray:
        rows = bag_of_words(texts)
        out = np.empty(len(texts))
        _predict(*rows, self.weights, self.bias, out)
        return out

    def save(self, path: Path) -> None:
        """Write one safetensors file, with the classifier's info in its metadata."""
        from safetensors.numpy import save_file

        about = {"format": FORMAT, "about": json.dumps(asdict(self.about))}
        save_file({"weights": self.weights, "bias": np.array([self.bias])}, path, metadata=about)

    @classmethod
    def load(cls, path: Path) -> QualityClassifier:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "np") as file:
                about = file.metadata() or {}
                if about.get("format") != FORMAT:
                    problem = f"the format is {about.get('format')!r}, expected {FORMAT!r}."
                    raise bad_data(path, f"{problem} Train the classifier again.")
                weights, bias = file.get_tensor("weights"), file.get_tensor("bias")
                info = ClassifierInfo(**parse_json(about["about"], path))
                return cls(weights, float(bias[0]), info)
        except (SafetensorError, OSError, KeyError, IndexError, TypeError, ValueError) as error:
            raise bad_data(path, f"cannot read the classifier ({error}). Train it again.") from None


def sample_texts(
    documents: Iterable[Document], seed: int, size: int = SAMPLE, progress: Progress | None = None
) -> list[str]:
    """Sample texts uniformly from a stream of any length (reservoir sampling)."""
    rng = np.random.default_rng(seed)
    texts: list[str] = []
    done = 0
    for number, (document, _) in enumerate(join_passages(documents)):
        done += len(document.text.encode())
        if len(texts) < size:
            texts.append(document.text)
        elif (place := int(rng.integers(0, number + 1))) < size:
            texts[place] = document.text
        if progress and number % 64 == 0:
            progress(done)
    return texts


def train_classifier(
    good: list[str], raw: list[str], seed: int = 0, names: tuple[str, str] = ("good", "raw")
) -> QualityClassifier:
    """Train a classifier of good against raw texts. Both classes have the same weight, whatever their sizes."""
    for name, texts in zip(names, (good, raw), strict=True):
        if len(texts) < MIN_DOCUMENTS:
            problem = f"{len(texts)} documents, but training a classifier needs at least {MIN_DOCUMENTS}."
            raise bad_data(name, f"{problem} Give more, one per line of .jsonl or one per file of a folder.")
    rows = bag_of_words([*good, *raw])
    target = np.repeat([1.0, 0.0], [len(good), len(raw)])
    cost = np.where(target == 1, 0.5 / len(good), 0.5 / len(raw)) * len(target)
    order = np.random.default_rng(seed).permutation(len(target))
    held_out, training = np.sort(order[::HELD_OUT]), np.delete(order, np.s_[::HELD_OUT])
    weights, squares, bias = np.zeros(FEATURES, np.float32), np.zeros(FEATURES, np.float32), np.zeros(2)
    for _ in range(EPOCHS):
        _adagrad_epoch(*rows, training, target, cost, LEARNING_RATE, weights, squares, bias)
        weights *= 1 - WEIGHT_DECAY
    out = np.empty(len(target))
    _predict(*rows, weights, bias[0], out)
    accuracy, ranked = measure_separation(out[held_out], target[held_out])
    about = ClassifierInfo(*names, len(good), len(raw), seed, accuracy, ranked)
    return QualityClassifier(weights, float(bias[0]), about)


def measure_separation(scores: np.ndarray, target: np.ndarray) -> tuple[float, float]:
    """Return balanced accuracy and area under the ROC curve; chance level if a class is missing."""
    good, raw = scores[target == 1], scores[target == 0]
    if not len(good) or not len(raw):
        return 0.5, 0.5
    ranks = np.searchsorted(np.sort(raw), good, "left") + np.searchsorted(np.sort(raw), good, "right")
    return float(((good > 0.5).mean() + (raw <= 0.5).mean()) / 2), float(ranks.mean() / 2 / len(raw))


def draw_pareto(text: str, seed: int, alpha: float = ALPHA) -> float:
    """Draw from a Pareto distribution, as np.random.pareto does, deterministically from the seed and the text."""
    key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8, salt=seed.to_bytes(8, "little", signed=True))
    uniform = int.from_bytes(key.digest(), "big") / 2.0**64
    return math.expm1(-math.log1p(-min(uniform, 1 - 2.0**-53)) / alpha)


def is_kept(score: float, text: str, seed: int = 0, alpha: float = ALPHA) -> bool:
    """Whether to keep a document with this score, by GPT-3's rule."""
    return draw_pareto(text, seed, alpha) > 1 - score


def score_documents(
    documents: Iterable[Document], quality: QualityClassifier, seed: int = 0
) -> Iterable[tuple[Document, float, bool]]:
    """Yield every document with its score, and whether it is kept. Passages of a document come joined."""
    for batch in batch_parts(join_passages(documents)):
        texts = [part.document.text for part in batch]
        for part, score in zip(batch, quality.score(texts).tolist(), strict=True):
            yield part.document, score, is_kept(score, part.document.text, seed)
