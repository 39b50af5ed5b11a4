"""Interpolation weights by expectation-maximization: optimal, and robust to tokens without probability."""

from itertools import pairwise

import numpy as np
import pytest

from nextword.ngrams.interpolation import fit_weights


def held_out(seed: int, models: int = 2, tokens: int = 500) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.log(rng.beta(0.5, 2, (models, tokens))).astype(np.float32)


def best_of_two(log_probs: np.ndarray) -> float:
    """The first weight by grid search over ten thousand values."""
    p, q = np.exp(log_probs.astype(np.float64))
    grid = np.linspace(0, 1, 10_001)[1:-1]
    return float(grid[np.argmax([np.log(w * p + (1 - w) * q).sum() for w in grid])])


def mean_nats(log_probs: np.ndarray, weights: np.ndarray) -> float:
    return float(-np.log(weights @ np.exp(log_probs.astype(np.float64))).mean())


@pytest.mark.parametrize("seed", range(5))
def test_fitted_weights_match_a_grid_search(seed: int) -> None:
    log_probs = held_out(seed)
    fitted = fit_weights(log_probs, tolerance=1e-12, most=5000)
    best = best_of_two(log_probs)
    assert fitted.weights[0] == pytest.approx(best, abs=1e-4)
    assert mean_nats(log_probs, np.array([best, 1 - best])) >= fitted.history[-1] - 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_likelihood_never_falls_and_stops_within_tolerance(seed: int) -> None:
    log_probs = held_out(seed, models=4)
    weights, history, left_out = fit_weights(log_probs, tolerance=1e-5)
    assert len(history) > 3
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(history))
    probs = np.exp(log_probs.astype(np.float64))
    assert np.log((probs / (weights @ probs)).mean(axis=1).max()) < 1e-5  # upper bound on any further improvement
    assert history[-1] - fit_weights(log_probs, tolerance=1e-12, most=20_000).history[-1] < 1e-5
    assert history[-1] == pytest.approx(mean_nats(log_probs, weights), abs=1e-9)
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    assert left_out == 0


def test_first_round_equals_hand_computation() -> None:
    """One model predicts three tokens, the other predicts one: the weights are 3/4 and 1/4 after one round."""
    log_probs = np.log(np.array([[0.5, 0.5, 0.5, 1e-30], [1e-30, 1e-30, 1e-30, 0.2]]))
    fitted = fit_weights(log_probs)
    assert fitted.weights == pytest.approx([0.75, 0.25])
    assert len(fitted.history) == 2
    assert fitted.history[0] == pytest.approx(-(3 * np.log(0.25) + np.log(0.1)) / 4)


def test_tokens_with_zero_probability_are_handled_or_left_out() -> None:
    log_probs = held_out(0, models=3)
    log_probs[0, :100] = -np.inf
    log_probs[2] = -np.inf  # a useless model
    with_holes = fit_weights(log_probs)
    assert np.isfinite(with_holes.history).all()
    assert with_holes.weights[2] == 0
    assert with_holes.left_out == 0
    impossible = np.full((3, 7), -np.inf, np.float32)
    extended = fit_weights(np.concatenate([impossible, log_probs], axis=1))
    assert extended.left_out == 7
    assert np.array_equal(extended.weights, with_holes.weights)
    assert extended.history == with_holes.history


def test_tiny_probabilities_do_not_underflow() -> None:
    log_probs = np.array([[-2000.0, -2001.0], [-1990.0, -2500.0]])
    fitted = fit_weights(log_probs)
    assert fitted.weights == pytest.approx([0.5, 0.5], abs=1e-3)
    assert fitted.history[-1] == pytest.approx((1990 + 2001) / 2 + np.log(2), abs=1e-3)


def test_number_of_rounds_is_limited() -> None:
    assert len(fit_weights(held_out(0), tolerance=0, most=7).history) == 8
    assert fit_weights(held_out(0), most=0).weights.tolist() == [0.5, 0.5]


def test_single_model_gets_all_weight() -> None:
    assert fit_weights(held_out(0, models=1)).weights.tolist() == [1.0]
