"""Linear interpolation of models, Σ λ p, with the weights that suit held-out text best.

Jelinek & Mercer (1980). Expectation-maximisation: how much of each token a model accounts for under the present
weights is, on average over the tokens, its next weight. The likelihood is concave in the weights, so that there is
one best value; and with g = the mean of p_j / Σ λ p over the tokens, it lies at most ln max g_j above the present one
(Jensen's inequality), which tells when to stop.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nextword.contract_errors import NextwordError


class Fitted(NamedTuple):
    weights: np.ndarray  # (J,) float64, sum to one
    history: list[float]  # mean nats of a token, −ln Σ λ p, at the start and after each round
    left_out: int  # tokens that no model can predict, of no account to the rest


def em(log_probs: np.ndarray, start: np.ndarray | None = None, tolerance: float = 1e-6, most: int = 200) -> Fitted:
    """Weights of J models from what each gives to N held-out tokens (J, N), starting from equal ones.

    Ends within `tolerance` nats a token of the best weights, or after `most` rounds.
    """
    if log_probs.ndim != 2 or not log_probs.size:
        raise NextwordError(f"Weights need log probabilities of shape (models, tokens), but got {log_probs.shape}.")
    if np.isnan(log_probs).any() or np.isposinf(log_probs).any():
        raise NextwordError("Log probabilities of held-out tokens hold NaN or +∞. Look for a damaged model.")
    weights = _positive(start, len(log_probs))
    best = log_probs.max(axis=0)
    known = best > -np.inf
    if not known.any():
        raise NextwordError(f"None of {len(known):,} held-out tokens has a probability in any model. Give other text.")
    best = best[known].astype(np.float64)
    relative = np.exp(log_probs[:, known] - best)  # to the best model of each token, so that none underflows everywhere
    history: list[float] = []
    while True:
        mixture = weights @ relative
        history.append(float(-np.mean(np.log(mixture) + best)))
        growth = (relative @ (1 / mixture)) / len(best)
        if len(history) > most or np.log(growth.max()) < tolerance:
            return Fitted(weights, history, int(len(known) - len(best)))
        weights = weights * growth
        weights /= weights.sum()


def mixed(log_probs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """ln Σ λ p over the first axis, in the type of `log_probs`; −∞ where no model of positive weight has any p."""
    with np.errstate(divide="ignore"):
        terms = log_probs + np.log(weights).astype(log_probs.dtype).reshape(-1, *[1] * (log_probs.ndim - 1))
        best = terms.max(axis=0)
        best[np.isneginf(best)] = 0
        return best + np.log(np.exp(terms - best).sum(axis=0))


def _positive(start: np.ndarray | None, models: int) -> np.ndarray:
    """A weight of zero would stay zero, and could make a token impossible."""
    weights = np.full(models, 1 / models) if start is None else np.asarray(start, np.float64)
    if weights.shape != (models,) or not (np.isfinite(weights) & (weights > 0)).all():
        raise NextwordError(
            f"The starting weights are {weights.tolist()}; expected {models} positive numbers, one a model."
        )
    return weights / weights.sum()
