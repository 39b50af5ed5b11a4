"""The quality filter: it learns what tells two texts apart, keeps by the paper's rule, and is the same everywhere."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from tests.support.hash_seeds import said_by_two

from nextword.core.errors import NextwordError
from nextword.core.types import Document
from nextword.data.filters.dedup import fold
from nextword.data.filters.quality import Quality, bags, drawn, judged, keeps, marked, sample, train

TALE = "the house was built by its owner and the garden lies behind it in the valley of a river"
FINE = TALE.split()
PAGE = "click here buy now cheap free offer login subscribe the page a link of menu home"
POOR = PAGE.split()


def texts(words: list[str], count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(words, k=draw.randint(20, 60))) for _ in range(count)]


@pytest.fixture(scope="module")
def classifier() -> Quality:
    return train(texts(FINE, 200, 1), texts(POOR, 300, 2), seed=3, names=("fine", "poor"))


def test_it_tells_new_documents_apart(classifier: Quality) -> None:
    good, raw = classifier.score(texts(FINE, 100, 4)), classifier.score(texts(POOR, 100, 5))
    assert good.min() > 0.8
    assert raw.max() < 0.2
    assert classifier.about.accuracy == 1.0
    assert classifier.about.ranked == 1.0
    assert (classifier.about.good_documents, classifier.about.raw_documents) == (200, 300)


def test_the_same_text_on_both_sides_is_chance() -> None:
    same = train(texts(FINE, 300, 1), texts(FINE, 300, 2))
    assert abs(same.about.ranked - 0.5) < 0.2
    assert abs(same.score(texts(FINE, 200, 3)).mean() - 0.5) < 0.15


def test_it_finds_the_minimum_that_plain_descent_finds() -> None:
    """Against ordinary logistic regression, written out with dense matrices: nearly the same scores."""
    rng = np.random.default_rng(0)
    good = [" ".join(rng.choice(["a", "b", "c"], 30, p=[0.5, 0.3, 0.2])) for _ in range(400)]
    raw = [" ".join(rng.choice(["a", "b", "c"], 30, p=[0.3, 0.3, 0.4])) for _ in range(400)]
    x = np.log1p([[fold(t).count(w) for w in "abc"] for t in (*good, *raw)])
    x = np.hstack([x / np.linalg.norm(x, axis=1, keepdims=True), np.ones((800, 1))])
    y, w = np.repeat([1.0, 0.0], 400), np.zeros(4)
    for _ in range(20):  # Newton
        p = 1 / (1 + np.exp(-x @ w))
        w -= np.linalg.solve(x.T @ (x * (p * (1 - p))[:, None]) + 1e-3 * np.eye(4), x.T @ (p - y) + 1e-3 * w)
    exact = 1 / (1 + np.exp(-x @ w))
    ours = train(good, raw).score([*good, *raw])
    assert np.corrcoef(exact, ours)[0, 1] > 0.95
    assert judged(ours, y)[1] > judged(exact, y)[1] - 0.01


def test_bags_are_counts_of_length_one() -> None:
    column, value, starts = bags(["a b a", "", "b, B."])
    assert starts.tolist() == [0, 2, 2, 3]
    first = np.log1p([2, 1])
    assert value == pytest.approx(np.concatenate([first / np.linalg.norm(first), [1.0]]))
    assert column[1] == column[2]  # b is b, whatever its case


def test_draws_are_those_of_numpys_pareto() -> None:
    ours = np.sort([drawn(f"document {i}", 0) for i in range(20_000)])
    theirs = np.sort(np.random.default_rng(0).pareto(9, 20_000))
    assert np.abs(np.searchsorted(theirs, ours) / 20_000 - np.arange(20_000) / 20_000).max() < 0.02


@pytest.mark.parametrize("score", [0.0, 0.5, 0.9, 0.99])
def test_documents_are_kept_as_often_as_the_rule_says(score: float) -> None:
    kept = np.mean([keeps(score, f"document {i}", 7) for i in range(20_000)])
    expected = (2 - score) ** -9.0
    assert abs(kept - expected) < 5 * np.sqrt(expected * (1 - expected) / 20_000)


def test_what_is_kept_depends_on_seed_and_document_alone(classifier: Quality) -> None:
    documents = [Document(text, str(i)) for i, text in enumerate([*texts(FINE, 50, 6), *texts(POOR, 50, 7)])]
    forwards = {d.id for d, _, kept in marked(documents, classifier) if kept}
    assert {d.id for d, _, kept in marked(documents[::-1], classifier) if kept} == forwards
    assert [keeps(0.9, d.text, 0) for d in documents] != [keeps(0.9, d.text, 1) for d in documents]
    assert len([i for i in forwards if int(i) < 50]) > 10
    assert len([i for i in forwards if int(i) >= 50]) < 5


def test_saved_and_loaded_it_says_the_same(classifier: Quality, tmp_path: Path) -> None:
    classifier.save(tmp_path / "q.safetensors")
    again = Quality.load(tmp_path / "q.safetensors")
    some = texts([*FINE, *POOR], 20, 8)
    assert again.score(some).tolist() == classifier.score(some).tolist()
    assert again.about == classifier.about


def test_equal_in_every_process(tmp_path: Path) -> None:
    code = (
        "from nextword.data.filters.quality import train;"
        "q=train([f'good text number {i}' for i in range(40)],[f'raw words {i}' for i in range(40)],5);"
        "print(q.score(['good raw text', 'words']).tolist(), q.bias)"
    )
    one, other = said_by_two(code)
    assert one == other != ""


def test_sampling_is_even_and_bounded() -> None:
    documents = [Document(str(i)) for i in range(2000)]
    drawn_ = [int(t) for seed in range(20) for t in sample(documents, seed, 100)]
    assert len(drawn_) == 2000
    assert abs(np.mean(drawn_) - 1000) < 60
    assert sample(documents, 3, 100) == sample(documents, 3, 100)
    assert sample(documents[:10], 0, 100) == [str(i) for i in range(10)]


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(NextwordError, match=r"wiki has 2 documents .* at least 20"):
        train(["a", "b"], texts(POOR, 50, 1), names=("wiki", "crawl"))
    with pytest.raises(NextwordError, match="crawl has 0 documents"):
        train(texts(POOR, 50, 1), [], names=("wiki", "crawl"))
    (tmp_path / "not.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(NextwordError, match="cannot be read as a classifier"):
        Quality.load(tmp_path / "not.safetensors")
    with pytest.raises(NextwordError, match="cannot be read"):
        Quality.load(tmp_path / "absent.safetensors")
    from safetensors.numpy import save_file

    save_file({"weights": np.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(NextwordError, match="no classifier of this version"):
        Quality.load(tmp_path / "other.safetensors")
