"""Baselines: what cheap methods reach on the same data as a fine-tuned model, and how much better the model is.

    classes of texts       majority class; TF-IDF + logistic regression
    classes of pairs       majority class; overlap features, and TF-IDF of both texts, + logistic regression
    numbers                training mean; TF-IDF (of pairs: overlap features) + ridge regression
    candidates             first candidate; most frequent position; the candidate most similar to the context (TF-IDF)
    tags                   most frequent tag of each word; of spans, most frequent type of each word
    questions              sentence of the passage with the most words of the question; no answer

They are trained on the training examples that the model gets, and scored on the same examples with the same metric.
None has a setting that is chosen on dev. The interval of a difference is a paired bootstrap over the examples.

`Dataset.baselines` calls the functions here, and `Dataset.score` scores predictions; nothing here knows a task.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np

from nextword.data.conll import TaggedSentence
from nextword.data.segmentation import sentence_spans
from nextword.data.squad import Question
from nextword.data.tables import Rows
from nextword.data.tag_schemes import OUTSIDE, find_spans
from nextword.metrics.intervals import bootstrap_difference
from nextword.metrics.squad import normalize_words
from nextword.tasks.base import Dataset, draw_fraction

Predictions = dict[str, Any]  # split → predictions for its examples
Method = tuple[str, Predictions]  # a name, and what it predicts

MAJORITY, MEAN = "majority class", "training mean"
LOGISTIC, RIDGE = "logistic regression", "ridge regression"
INVERSE_REGULARIZATION = 10.0  # of logistic regression over TF-IDF, whose rows have length 1
MAX_FEATURES = 200_000  # words and pairs of words, the most frequent ones
MAX_WEIGHTS = 20_000_000  # features × classes
MAX_WORK = 100_000_000  # characters of training text × classes: beyond that, a sample of the rows is enough
MAX_PAIRS = 50_000  # pairs of texts whose overlap is learned from
MAX_ITERATIONS = 300


# ------------------------------------------------------------------------------------------------ measuring


@dataclass(frozen=True)
class Scored:
    """The scores of predictions for one split: all metrics, and the first one on any sample of the examples."""

    metrics: Mapping[str, float]
    on_sample: Callable[[np.ndarray], float]  # indices of examples, with repetitions → the first metric
    size: int


def ratio_of_sums(above: np.ndarray, below: np.ndarray, rows: np.ndarray) -> float:
    """A metric that is a ratio of counts, such as F1, from the counts of each example."""
    total = float(below[rows].sum())
    return float(above[rows].sum()) / total if total else 0.0


@dataclass(frozen=True)
class Baseline:
    """One method, scored on labeled splits beyond train."""

    name: str
    seconds: float
    scored: Mapping[str, Scored]


def measure(data: Dataset, metrics: Sequence[str], fraction: float, seed: int) -> list[Baseline]:
    """Train the methods for this data on the fraction of the training examples that the seed draws, and score them."""
    train = data.trainable
    if fraction < 1:
        train = train.take(draw_fraction(len(train), fraction, seed).tolist())
    splits = [split for split in data.splits if split != "train" and data.is_labeled(split)]
    methods = data.baselines(train, splits)
    baselines: list[Baseline] = []
    while True:
        start = perf_counter()
        method = next(methods, None)
        if method is None:
            return baselines
        name, predictions = method
        scored = {split: data.score(split, predictions[split], metrics) for split in splits}
        baselines.append(Baseline(name, perf_counter() - start, scored))


# ------------------------------------------------------------------------------------------------ comparing


def compare(
    model: Scored, baselines: Sequence[Baseline], split: str, metrics: Sequence[str], name: str = ""
) -> dict[str, Any]:
    """How much better a model is than the baselines, as a run's result has it. `name`: of one of several tasks."""
    methods = []
    for baseline in baselines:
        own = baseline.scored[split]
        difference = bootstrap_difference(model.size, model.on_sample, own.on_sample)
        methods.append(
            {
                "name": baseline.name,
                "seconds": round(baseline.seconds, 2),
                **{of: dict(scored.metrics) for of, scored in baseline.scored.items()},
                "difference": difference.value,
                "low": difference.low,
                "high": difference.high,
            }
        )
    comparison = {
        **({"task": name} if name else {}),
        "split": split,
        "examples": model.size,
        "metric": metrics[0],
        "scores": dict(model.metrics),
        "methods": methods,
    }
    return comparison | {"verdict": judge(comparison)}


BETTER, UNCLEAR, WORSE = "better", "unclear", "worse"


def judge(comparison: Mapping[str, Any]) -> str:
    """Whether the model is better than every baseline, worse than one of them, or neither can be said."""
    methods = comparison["methods"]
    if any(method["high"] < 0 for method in methods):
        return WORSE
    return BETTER if all(method["low"] > 0 for method in methods) else UNCLEAR


def format_difference(method: Mapping[str, Any], form: str = "{} ({} to {})") -> str:
    """How much better the model is than a baseline, with the 95 % interval: "+2.6 (0.8 to 4.4)"."""
    difference, low, high = (f"{100 * method[key]:.1f}".replace("-", "−") for key in ("difference", "low", "high"))
    return form.format(f"{'+' * (method['difference'] > 0)}{difference}", low, high)


def describe_verdict(comparison: Mapping[str, Any]) -> str:
    """Which is better, the model or the best baseline, and by how much."""
    best, metric, split = sort_methods(comparison)[0], comparison["metric"], comparison["split"]
    own, other = (f"{100 * scores[metric]:.1f}" for scores in (comparison["scores"], best[split]))
    difference = format_difference(best, "difference {}, 95 % interval {} to {}")
    match comparison["verdict"]:
        case "better":
            start = f"Better than every baseline: {metric} {own} against {other} of {best['name']}"
        case "worse":
            start = f"The baseline is better: {best['name']} has {metric} {other}, this model {own}"
        case _:
            start = f"Not clearly better than {best['name']}: {metric} {own} against {other}"
    return f"{start} on {split} ({difference}; {comparison['examples']:,} examples)."


def describe_only_prediction(comparison: Mapping[str, Any]) -> str:
    """A sentence if the model predicts the same for all examples; else ""."""
    only, examples = comparison["only_prediction"], f"all {comparison['examples']:,} examples of {comparison['split']}"
    return f"This model predicts {only!r} for {examples}." if only else ""


def sort_methods(comparison: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The baselines, the best one first."""
    split, metric = comparison["split"], comparison["metric"]
    return sorted(comparison["methods"], key=lambda method: -method[split][metric])


def table(comparison: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: the model, then the baselines, the best one first."""
    split, names = comparison["split"], list(comparison["scores"])
    header = [f"on {split}", *names, f"model − baseline, {comparison['metric']}", "seconds"]
    rows = [["this model", *(f"{100 * comparison['scores'][name]:.1f}" for name in names), "", ""]]
    for method in sort_methods(comparison):
        scores = [f"{100 * method[split][name]:.1f}" for name in names]
        rows.append([method["name"], *scores, format_difference(method), f"{method['seconds']:.1f}"])
    return header, rows


# ------------------------------------------------------------------------------------------------ scikit-learn


@contextmanager
def repeatable() -> Iterator[None]:
    """Fit on one thread, so that sums are added in the same order everywhere; a fit that stops early is good enough."""
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


# Words; in scripts without spaces between words (Thai, Lao, Burmese, Khmer, kana, Han), single characters
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
WORDS, WORDS_OR_CHARACTERS = re.compile(r"\w+"), re.compile(rf"[{_UNSPACED}]|(?:(?![{_UNSPACED}])\w)+")


def word_pattern(texts: Sequence[str]) -> re.Pattern[str]:
    """What counts as a word of these texts."""
    return WORDS_OR_CHARACTERS if any(map(_IS_UNSPACED.search, texts)) else WORDS


def fit_tfidf(texts: Sequence[str], classes: int = 1) -> Any:
    """TF-IDF of words and pairs of adjacent words; None if the texts have no words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    pattern = word_pattern(texts)
    most = max(1, min(MAX_FEATURES, MAX_WEIGHTS // classes))
    vectorizer = TfidfVectorizer(
        ngram_range=(1, 2), sublinear_tf=True, token_pattern=pattern.pattern, max_features=most, dtype=np.float64
    )
    if not any(map(pattern.search, texts)):
        return None
    return vectorizer.fit(texts)


def fit_classes(features: Any, labels: np.ndarray, strength: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=strength, max_iter=MAX_ITERATIONS).fit(features, labels)


def fit_numbers(features: Any, labels: np.ndarray) -> Any:
    from sklearn.linear_model import Ridge

    return Ridge(alpha=1.0).fit(features, labels)


# ------------------------------------------------------------------------------------------------ texts


def text_baselines(train: Rows, splits: Mapping[str, Rows], labels: Sequence[str]) -> Iterator[Method]:
    """Predict classes, as indices of `labels`, or numbers, if there are no labels."""
    gold = encode_labels(train, labels)
    constant = float(gold.mean()) if not labels else int(np.argmax(np.bincount(gold, minlength=len(labels))))
    yield MEAN if not labels else MAJORITY, {split: np.full(len(rows), constant) for split, rows in splits.items()}
    if len(np.unique(gold)) < 2:
        return
    with repeatable():
        yield from _pair_methods(train, splits, labels) if train.seconds is not None else _tfidf(train, splits, labels)


def encode_labels(rows: Rows, labels: Sequence[str]) -> np.ndarray:
    """Indices of classes, or numbers."""
    index = {label: i for i, label in enumerate(labels)}
    given = rows.labels or []
    return np.array([index[label] for label in given], np.int64) if labels else np.array(given, np.float64)


def _sample(train: Rows, most: int) -> Rows:
    """At most this many rows, evenly spaced."""
    return train if len(train) <= most else train.take(np.linspace(0, len(train) - 1, most).astype(int).tolist())


def _affordable(train: Rows, classes: int) -> Rows:
    characters = sum(map(len, train.texts)) + sum(map(len, train.seconds or ()))
    return _sample(train, max(1, int(len(train) * MAX_WORK / max(1, characters * max(1, classes)))))


def _sampled(name: str, used: Rows, train: Rows) -> str:
    return name if len(used) == len(train) else f"{name} (of {len(used):,} rows)"


def _tfidf(train: Rows, splits: Mapping[str, Rows], labels: Sequence[str]) -> Iterator[Method]:
    """TF-IDF and a linear model; the two texts of a pair have features of their own."""
    used = _affordable(train, len(labels))
    vectorizer = fit_tfidf([*used.texts, *(used.seconds or ())], max(1, len(labels)))
    if vectorizer is None:
        return
    features, gold = _text_features(vectorizer, used), encode_labels(used, labels)
    model = fit_classes(features, gold, INVERSE_REGULARIZATION) if labels else fit_numbers(features, gold)
    name = f"TF-IDF{' of both texts' if train.seconds is not None else ''} + {LOGISTIC if labels else RIDGE}"
    predicted = {split: model.predict(_text_features(vectorizer, rows)) for split, rows in splits.items()}
    yield _sampled(name, used, train), predicted


def _text_features(vectorizer: Any, rows: Rows) -> Any:
    from scipy.sparse import hstack

    first = vectorizer.transform(rows.texts)
    return first if rows.seconds is None else hstack([first, vectorizer.transform(rows.seconds)]).tocsr()


# ------------------------------------------------------------------------------------------------ pairs of texts

NEGATIONS = frozenset(["no", "not", "never", "nobody", "none", "nothing", "nor", "neither", "cannot", "without", "t"])


def _pair_methods(train: Rows, splits: Mapping[str, Rows], labels: Sequence[str]) -> Iterator[Method]:
    used = _sample(train, MAX_PAIRS)
    vectorizer = fit_tfidf([*used.texts, *(used.seconds or ())])
    if vectorizer is not None:
        features, gold = overlap_features(used, vectorizer), encode_labels(used, labels)
        mean, scale = features.mean(0), features.std(0)
        scale[scale == 0] = 1.0
        standardized = (features - mean) / scale
        model = fit_classes(standardized, gold, 1.0) if labels else fit_numbers(standardized, gold)
        predicted = {
            split: model.predict((overlap_features(rows, vectorizer) - mean) / scale) for split, rows in splits.items()
        }
        yield _sampled(f"overlap features + {LOGISTIC if labels else RIDGE}", used, train), predicted
    if labels:
        yield from _tfidf(train, splits, labels)


def overlap_features(rows: Rows, vectorizer: Any) -> np.ndarray:
    """(pairs, features): how much two texts have in common, and how their lengths, negations and numbers compare."""
    seconds = rows.seconds or []
    vectors = vectorizer.transform(rows.texts), vectorizer.transform(seconds)
    cosines = np.asarray(vectors[0].multiply(vectors[1]).sum(1)).ravel()
    words = re.compile(vectorizer.token_pattern)
    pairs = (_overlap(words, a, b) for a, b in zip(rows.texts, seconds, strict=True))
    return np.column_stack([np.array(list(pairs), np.float64).reshape(len(rows), -1), cosines])


def _overlap(words: re.Pattern[str], first: str, second: str) -> list[float]:
    first, second = first.lower(), second.lower()
    a, b = words.findall(first), words.findall(second)
    grams = set(pairwise(a)), set(pairwise(b))
    letters = [{text[i : i + 3] for i in range(len(text) - 2)} for text in (first, second)]
    negated = [not NEGATIONS.isdisjoint(side) for side in (a, b)]
    numbers = [{word for word in side if word.isdigit()} for side in (a, b)]
    return [
        *_shared(set(a), set(b)),
        *_shared(*grams),
        *_shared(*letters),
        min(len(a), len(b)) / max(1, len(a), len(b)),
        np.log1p(len(a)),
        np.log1p(len(b)),
        *negated,
        negated[0] != negated[1],
        numbers[0] != numbers[1],
        first == second,
    ]


def _shared(a: set[Any], b: set[Any]) -> tuple[float, float, float]:
    """The share of common elements: of all (Jaccard), of the first set, and of the second."""
    common = len(a & b)
    return common / max(1, len(a | b)), common / max(1, len(a)), common / max(1, len(b))


# ------------------------------------------------------------------------------------------------ candidates


def choice_baselines(train: Rows, splits: Mapping[str, Rows]) -> Iterator[Method]:
    """Predict the index of a candidate."""
    yield "first candidate", {split: np.zeros(len(rows), np.int64) for split, rows in splits.items()}
    counts = np.bincount(np.array(train.labels, np.int64))
    position = int(np.argmax(counts))
    name = f"most frequent position ({position + 1})"
    yield name, {split: np.full(len(rows), position) for split, rows in splits.items()}
    used = _affordable(train, 1)
    vectorizer = fit_tfidf([*dict.fromkeys(used.texts), *(text for row in used.choices or () for text in row)])
    if vectorizer is not None:
        yield (
            "candidate most similar to the context (TF-IDF)",
            {split: _most_similar(rows, vectorizer) for split, rows in splits.items()},
        )


def _most_similar(rows: Rows, vectorizer: Any) -> np.ndarray:
    choices = rows.choices or []
    seconds = rows.seconds or [""] * len(rows)
    contexts = vectorizer.transform([f"{a}\n{b}" for a, b in zip(rows.texts, seconds, strict=True)])
    candidates = vectorizer.transform([text for row in choices for text in row])
    sizes = np.array([len(row) for row in choices], np.int64)
    owners = np.repeat(np.arange(len(rows)), sizes)
    cosines = np.asarray(contexts[owners].multiply(candidates).sum(1)).ravel()
    best = [int(np.argmax(part)) for part in np.split(cosines, np.cumsum(sizes)[:-1])]
    return np.array(best, np.int64)


# ------------------------------------------------------------------------------------------------ tags


def tag_baselines(
    train: Sequence[TaggedSentence], splits: Mapping[str, Sequence[TaggedSentence]], type_of: Callable[[str], str]
) -> Iterator[Method]:
    """Predict tags of sentences. `type_of` gives the type of a span's tag, and any other tag itself."""
    counts: dict[str, Counter[str]] = {}
    for sentence in train:
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            counts.setdefault(word, Counter())[type_of(tag)] += 1
    total = sum(counts.values(), Counter[str]())
    best = {word: max(own, key=lambda tag: (own[tag], total[tag], tag)) for word, own in counts.items()}
    usual = max(total, key=lambda tag: (total[tag], tag))
    has_spans = any(type_of(tag) != tag for sentence in train for tag in sentence.tags)
    predicted = {}
    for split, sentences in splits.items():
        rows = [[best.get(word, usual) for word in sentence.words] for sentence in sentences]
        # Words of one type in a row are one span: an inside tag continues the span before it (data/tag_schemes.py)
        predicted[split] = (
            [[tag if tag == OUTSIDE else f"I-{tag}" for tag in row] for row in rows] if has_spans else rows
        )
    yield f"most frequent {'type' if has_spans else 'tag'} of each word", predicted


def count_tags(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
    """For each sentence, the numbers of words and spans, and of right ones."""
    rows = []
    for a, b in zip(gold, predicted, strict=True):
        spans = set(find_spans(a)), set(find_spans(b))
        right = sum(x == y for x, y in zip(a, b, strict=True))
        rows.append((len(a), right, len(spans[0]), len(spans[1]), len(spans[0] & spans[1])))
    columns = np.array(rows, np.int64).reshape(len(rows), 5).T
    return dict(zip(("words", "right_words", "gold", "predicted", "right"), columns, strict=True))


def tag_metric_on_samples(
    metric: str, gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> Callable[[np.ndarray], float]:
    """The function of sampled sentences that computes a metric of tags."""
    counts = count_tags(gold, predicted)
    above, below = {
        "span_f1": (2 * counts["right"], counts["gold"] + counts["predicted"]),
        "span_precision": (counts["right"], counts["predicted"]),
        "span_recall": (counts["right"], counts["gold"]),
        "token_accuracy": (counts["right_words"], counts["words"]),
    }[metric]
    return partial(ratio_of_sums, above, below)


# ------------------------------------------------------------------------------------------------ questions


def question_baselines(splits: Mapping[str, Sequence[Question]], has_unanswerable: bool) -> Iterator[Method]:
    """Predict answers as texts."""
    if has_unanswerable:
        yield "no answer", {split: [""] * len(questions) for split, questions in splits.items()}
    closest = {split: [_closest_sentence(question) for question in questions] for split, questions in splits.items()}
    yield "sentence with the most words of the question", closest


def _closest_sentence(question: Question) -> str:
    asked = set(normalize_words(question.question))
    sentences = [question.context[start:end].strip() for start, end in sentence_spans(question.context)]
    return max(sentences, key=lambda sentence: len(asked & set(normalize_words(sentence))), default="")
