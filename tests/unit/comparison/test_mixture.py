"""The mixture of two models in a comparison: weights, perplexity and gain against a computation by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nextword.comparison.mixture import (
    TokenScores,
    describe_mixture,
    find_best_mixture,
    load_scores,
    mix,
    save_scores,
)

A = {"a": (0.9, 0.2), "b": (0.1, 0.4)}  # probability of the two kinds of token under either model


def nats_of(model: str, text: str) -> np.ndarray:
    """−ln p of every token of a text of x and y under a model of A."""
    x, y = A[model]
    return -np.log([x if token == "x" else y for token in text])


def write(folder: Path, name: str, valid: np.ndarray, test: np.ndarray, **more: Any) -> dict[str, Any]:
    """The scores of a model; and its row, with a byte per token."""
    arrays = {"valid": valid, "test": test, "bytes": np.ones(len(test)), "tokens": "same", "is_counted": False} | more
    save_scores(folder / f"{name}.npz", {key: np.asarray(value) for key, value in arrays.items()})
    row = {"name": name, "kind": "exact", "status": "done", "words": 10, "bytes": len(test), "word_perplexity": 9.0}
    return row | {"stopped": "minutes", "steps": 900}


def test_weights_and_perplexity_equal_the_closed_form(tmp_path: Path) -> None:
    """The validation text has n = 5 each of x (0.9 and 0.1) and y (0.2 and 0.4). The likelihood has its maximum where

        5 · 0.8 / (0.1 + 0.8 λ) = 5 · 0.2 / (0.4 − 0.2 λ)   so   λ = (0.8 · 0.4 − 0.2 · 0.1) / (2 · 0.8 · 0.2) = 0.9375

    With six x of ten the maximum is beyond 1, so the weight of b is 0.
    """
    valid, test = "xyxyxyxyxy", "xxy"
    models = [write(tmp_path, name, nats_of(name, valid), nats_of(name, test)) for name in A]
    found = find_best_mixture(models, tmp_path)
    assert found is not None
    assert [part["name"] for part in found["models"]] == ["a", "b"]
    assert [part["weight"] for part in found["models"]] == pytest.approx([0.9375, 0.0625], abs=1e-3)
    share = found["models"][0]["weight"]
    x, y = share * 0.9 + (1 - share) * 0.1, share * 0.2 + (1 - share) * 0.4
    nats = -(2 * math.log(x) + math.log(y)) / 3
    assert found["token_perplexity"] == pytest.approx(math.exp(nats), rel=1e-9)
    assert found["bits_per_byte"] == pytest.approx(nats / math.log(2), rel=1e-9)
    assert found["word_perplexity"] == pytest.approx(math.exp(3 * nats / 10), rel=1e-9)
    alone = -(2 * math.log(0.9) + math.log(0.2)) / 3
    assert found["best_single"] == "a"
    assert found["gain"] == pytest.approx((alone - nats) / math.log(2), rel=1e-9)
    one_sided = "xxxyxyxxyy"
    models = [write(tmp_path, name, nats_of(name, one_sided), nats_of(name, test)) for name in A]
    found = find_best_mixture(models, tmp_path)
    assert found is not None
    assert found["models"][0]["weight"] == pytest.approx(1.0, abs=1e-2)


def test_mixed_probabilities_are_weighted_means() -> None:
    nats = [-np.log([0.5, 0.1, 1e-300]), -np.log([0.25, 0.3, 1e-300])]
    assert np.exp(-mix(np.array([0.4, 0.6]), nats)) == pytest.approx([0.35, 0.22, 1e-300], rel=1e-9)
    impossible = [np.array([math.inf, math.inf]), np.array([math.inf, 1.0])]
    assert mix(np.array([0.5, 0.5]), impossible).tolist() == [math.inf, pytest.approx(1 + math.log(2))]


def test_n_grams_are_mixed_with_networks_only(tmp_path: Path) -> None:
    """Two networks that complement each other would gain more, but the question is what the n-gram adds."""
    valid = test = "xy" * 50
    models = [write(tmp_path, name, nats_of(name, valid), nats_of(name, test)) for name in A]
    weak = np.full(100, 3.0)
    models.append(write(tmp_path, "ngram", weak, weak, is_counted=True))
    found = find_best_mixture(models, tmp_path)
    assert found is not None
    assert found["models"][0]["name"] == "ngram"
    assert found["best_single"] == "a"
    assert "not clearly better than a alone" in describe_mixture(found)


def test_only_models_of_the_same_tokens_are_mixed(tmp_path: Path) -> None:
    nats = nats_of("a", "xy")
    models = [write(tmp_path, "a", nats, nats), write(tmp_path, "b", nats, nats, tokens="others")]
    assert find_best_mixture(models, tmp_path) is None
    models.append(write(tmp_path, "c", nats, nats))
    found = find_best_mixture(models, tmp_path)
    assert found is not None
    assert found["other_tokens"] == ["b"]
    assert describe_mixture(found).endswith("Other tokens, so not mixed: b.")
    backward = [write(tmp_path, name, nats, nats, tokens="same backward") for name in A]
    assert find_best_mixture(backward, tmp_path) is None
    unscored = [models[0], models[0] | {"name": "never scored"}]
    assert find_best_mixture(unscored, tmp_path) is None
    hasty = [models[0], models[2] | {"steps": 3}]
    assert find_best_mixture(hasty, tmp_path) is None


def test_gain_has_a_paired_interval(tmp_path: Path) -> None:
    """The loss is the same in every block, so its interval has no width, although those of the scores have."""
    a = np.random.default_rng(0).uniform(1, 9, 4000)
    models = [write(tmp_path, "a", a, a), write(tmp_path, "b", a + math.log(2), a + math.log(2))]
    found = find_best_mixture(models, tmp_path)
    assert found is not None
    assert found["bits_per_byte_high"] - found["bits_per_byte_low"] > 0.1
    assert found["gain_high"] - found["gain_low"] < 1e-6
    assert "not clearly better than a alone" in describe_mixture(found)


def test_lossy_tokens_are_measured_by_perplexity(tmp_path: Path) -> None:
    valid = test = "xy" * 10
    models = [write(tmp_path, name, nats_of(name, valid), nats_of(name, test), bytes=np.zeros(20)) for name in A]
    found = find_best_mixture(models, tmp_path)
    assert found is not None
    assert (found["bits_per_byte"], found["gain"]) == (None, None)
    alone = math.exp(nats_of("a", test).mean())
    assert found["token_perplexity_gain"] == pytest.approx(alone - found["token_perplexity"])
    assert "lower than a alone" in describe_mixture(found)


def test_scores_survive_their_file(tmp_path: Path) -> None:
    write(tmp_path, "a", np.array([1.0]), np.array([2.0, math.inf]), is_counted=True)
    loaded = load_scores(tmp_path / "a.npz")
    assert isinstance(loaded, TokenScores)
    assert (loaded.valid.tolist(), loaded.test.tolist()) == ([1.0], [2.0, math.inf])
    assert (loaded.tokens, loaded.is_counted) == ("same", True)
    assert load_scores(tmp_path / "b.npz") is None
    assert describe_mixture(None) == ""
