"""The quality filter: it separates two kinds of text, keeps by the rule of the paper, and is deterministic."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from nextword.core.errors import DataError
from nextword.core.types import Document
from nextword.data.filters.quality import (
    QualityClassifier,
    bag_of_words,
    draw_pareto,
    is_kept,
    measure_separation,
    sample_texts,
    score_documents,
    train_classifier,
)
from nextword.data.filters.word_hashes import fold_words
from tests.support.errors import raises
from tests.support.hash_seeds import run_with_two_hash_seeds

TALE = "the house was built by its owner and the garden lies behind it in the valley of a river"
FINE = TALE.split()
PAGE = "click here buy now cheap free offer login subscribe the page a link of menu home"
POOR = PAGE.split()


def texts(words: list[str], count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(words, k=draw.randint(20, 60))) for _ in range(count)]


@pytest.fixture(scope="module")
def classifier() -> QualityClassifier:
    return train_classifier(texts(FINE, 200, 1), texts(POOR, 300, 2), seed=3, names=("fine", "poor"))


def test_classifier_separates_new_documents(classifier: QualityClassifier) -> None:
    good, raw = classifier.score(texts(FINE, 100, 4)), classifier.score(texts(POOR, 100, 5))
    assert good.min() > 0.8
    assert raw.max() < 0.2
    assert classifier.about.accuracy == 1.0
    assert classifier.about.ranked == 1.0
    assert (classifier.about.good_documents, classifier.about.raw_documents) == (200, 300)


def test_classifier_on_equal_classes_is_at_chance() -> None:
    same = train_classifier(texts(FINE, 300, 1), texts(FINE, 300, 2))
    assert abs(same.about.ranked - 0.5) < 0.2
    assert abs(same.score(texts(FINE, 200, 3)).mean() - 0.5) < 0.15


def test_training_reaches_the_minimum_of_plain_gradient_descent() -> None:
    """Scores are close to those of logistic regression on dense matrices."""
    rng = np.random.default_rng(0)
    good = [" ".join(rng.choice(["a", "b", "c"], 30, p=[0.5, 0.3, 0.2])) for _ in range(400)]
    raw = [" ".join(rng.choice(["a", "b", "c"], 30, p=[0.3, 0.3, 0.4])) for _ in range(400)]
    x = np.log1p([[fold_words(t).count(w) for w in "abc"] for t in (*good, *raw)])
    x = np.hstack([x / np.linalg.norm(x, axis=1, keepdims=True), np.ones((800, 1))])
    y, w = np.repeat([1.0, 0.0], 400), np.zeros(4)
    for _ in range(20):  # Newton
        p = 1 / (1 + np.exp(-x @ w))
        w -= np.linalg.solve(x.T @ (x * (p * (1 - p))[:, None]) + 1e-3 * np.eye(4), x.T @ (p - y) + 1e-3 * w)
    exact = 1 / (1 + np.exp(-x @ w))
    ours = train_classifier(good, raw).score([*good, *raw])
    assert np.corrcoef(exact, ours)[0, 1] > 0.95
    assert measure_separation(ours, y)[1] > measure_separation(exact, y)[1] - 0.01


def test_bag_of_words_is_normalized_log_counts() -> None:
    column, value, starts = bag_of_words(["a b a", "", "b, B."])
    assert starts.tolist() == [0, 2, 2, 3]
    first = np.log1p([2, 1])
    assert value == pytest.approx(np.concatenate([first / np.linalg.norm(first), [1.0]]))
    assert column[1] == column[2]  # case is ignored


def test_draw_pareto_has_the_distribution_of_numpy() -> None:
    ours = np.sort([draw_pareto(f"document {i}", 0) for i in range(20_000)])
    theirs = np.sort(np.random.default_rng(0).pareto(9, 20_000))
    assert np.abs(np.searchsorted(theirs, ours) / 20_000 - np.arange(20_000) / 20_000).max() < 0.02


@pytest.mark.parametrize("score", [0.0, 0.5, 0.9, 0.99])
def test_is_kept_with_the_probability_of_the_paper(score: float) -> None:
    kept = np.mean([is_kept(score, f"document {i}", 7) for i in range(20_000)])
    expected = (2 - score) ** -9.0
    assert abs(kept - expected) < 5 * np.sqrt(expected * (1 - expected) / 20_000)


def test_is_kept_depends_only_on_seed_and_document(classifier: QualityClassifier) -> None:
    documents = [Document(text, str(i)) for i, text in enumerate([*texts(FINE, 50, 6), *texts(POOR, 50, 7)])]
    forwards = {d.id for d, _, kept in score_documents(documents, classifier) if kept}
    assert {d.id for d, _, kept in score_documents(documents[::-1], classifier) if kept} == forwards
    assert [is_kept(0.9, d.text, 0) for d in documents] != [is_kept(0.9, d.text, 1) for d in documents]
    assert len([i for i in forwards if int(i) < 50]) > 10
    assert len([i for i in forwards if int(i) >= 50]) < 5


def test_save_and_load_gives_the_same_scores(classifier: QualityClassifier, tmp_path: Path) -> None:
    classifier.save(tmp_path / "q.safetensors")
    loaded = QualityClassifier.load(tmp_path / "q.safetensors")
    some = texts([*FINE, *POOR], 20, 8)
    assert loaded.score(some).tolist() == classifier.score(some).tolist()
    assert loaded.about == classifier.about


def test_training_is_the_same_in_every_process(tmp_path: Path) -> None:
    code = (
        "from nextword.data.filters.quality import train_classifier;"
        "q=train_classifier([f'good text number {i}' for i in range(40)],[f'raw words {i}' for i in range(40)],5);"
        "print(q.score(['good raw text', 'words']).tolist(), q.bias)"
    )
    first, second = run_with_two_hash_seeds(code)
    assert first == second != ""


def test_sample_texts_is_uniform_and_bounded() -> None:
    documents = [Document(str(i)) for i in range(2000)]
    numbers = [int(t) for seed in range(20) for t in sample_texts(documents, seed, 100)]
    assert len(numbers) == 2000
    assert abs(np.mean(numbers) - 1000) < 60
    assert sample_texts(documents, 3, 100) == sample_texts(documents, 3, 100)
    assert sample_texts(documents[:10], 0, 100) == [str(i) for i in range(10)]


def test_too_few_documents_or_bad_file_raises(tmp_path: Path) -> None:
    with raises(DataError, match="2.*20", path="wiki"):
        train_classifier(["a", "b"], texts(POOR, 50, 1), names=("wiki", "crawl"))
    with raises(DataError, path="crawl"):
        train_classifier(texts(POOR, 50, 1), [], names=("wiki", "crawl"))
    (tmp_path / "not.safetensors").write_bytes(b"nothing of the kind")
    with raises(DataError, path=tmp_path / "not.safetensors"):
        QualityClassifier.load(tmp_path / "not.safetensors")
    with raises(DataError, path=tmp_path / "absent.safetensors"):
        QualityClassifier.load(tmp_path / "absent.safetensors")
    from safetensors.numpy import save_file

    save_file({"weights": np.zeros(3)}, tmp_path / "other.safetensors")
    with raises(DataError, path=tmp_path / "other.safetensors"):
        QualityClassifier.load(tmp_path / "other.safetensors")
