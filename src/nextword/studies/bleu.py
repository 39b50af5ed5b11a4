"""Scores of whole sets of texts with their intervals: BLEU, nats a token, how long texts are.

Each is a number made from sums: BLEU of n-grams that are right, n-grams and lengths; nats a token of nats and tokens.
So what a set is made of is kept text by text, and another set of texts is drawn by adding up others:

    statistics (seeds, n, k) ──sum over n──▶ (seeds, k) ──score──▶ one number a seed

The counting is sacrebleu's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nextword.contract_errors import NextwordError
from nextword.studies.measures import widest

ORDERS = 4
SUMS = 2 * ORDERS + 2  # right n-grams, n-grams, words written, words of the references
DRAWS = 1000

Score = Callable[[np.ndarray], np.ndarray]  # (…, k) sums → (…) numbers


def counted(written: Sequence[str], targets: Sequence[str]) -> np.ndarray:
    """(n, SUMS): what BLEU adds up, text by text."""
    metric = _sacrebleu()(effective_order=True)
    found = np.zeros((len(written), SUMS))
    for i, (one, target) in enumerate(zip(written, targets, strict=True)):
        score: Any = metric.sentence_score(one, [target])
        found[i] = [*score.counts, *score.totals, score.sys_len, score.ref_len]
    return found


def bleu(sums: np.ndarray) -> np.ndarray:
    """(…, SUMS) → (…): BLEU of sets of texts, from 0 to 100."""
    metric = _sacrebleu()

    def one(row: np.ndarray) -> float:
        counts, totals = ([int(n) for n in row[at : at + ORDERS]] for at in (0, ORDERS))
        return float(metric.compute_bleu(counts, totals, int(row[-2]), int(row[-1]), "exp").score)

    flat = np.array([one(row) for row in sums.reshape(-1, SUMS)])
    return flat.reshape(sums.shape[:-1])


def lost_bleu(sums: np.ndarray) -> np.ndarray:
    """BLEU below 0: the more, the worse, as with costs."""
    return -bleu(sums)


def ratio(sums: np.ndarray) -> np.ndarray:
    """(…, 2) → (…): the one by the other, as of nats and tokens."""
    return sums[..., 0] / np.maximum(sums[..., 1], 1e-9)


def written_length(sums: np.ndarray) -> np.ndarray:
    """Of BLEU's sums: words written, by words of the references."""
    return ratio(sums[..., -2:])


# ------------------------------------------------------------------------------------------------ intervals


def found(score: Score, statistics: np.ndarray, *, alone: bool = False) -> list[float]:
    """(seeds, n, k) → the mean over seeds, and the wider of two 95 % intervals: over seeds, and over the texts.

    `alone`: there is one network and no other seed of it; its interval is that over the texts.
    """
    by_seed, ends = score(statistics.sum(1)), _drawn(score, statistics)
    middle = float(by_seed.mean())
    return [middle, *ends] if alone else widest(middle, by_seed, ends)


def between(score: Score, these: np.ndarray, those: np.ndarray, *, alone: bool = False) -> list[float]:
    """How much these are above those, of the same texts: texts and seeds go in pairs."""
    return found(difference(score), joined(these, those), alone=alone)


def unpaired(score: Score, these: np.ndarray, those: np.ndarray) -> list[float]:
    """The same where the texts are others: then only seeds go in pairs, and the errors of the texts add up."""
    by_seed = score(these.sum(1)) - score(those.sum(1))
    half = sum(((high - low) / 2) ** 2 for low, high in (_drawn(score, part) for part in (these, those))) ** 0.5
    middle = float(by_seed.mean())
    return widest(middle, by_seed, (middle - half, middle + half))


def joined(these: np.ndarray, those: np.ndarray) -> np.ndarray:
    """(seeds, n, k) twice → (seeds, n, 2k), for the `difference` of a score."""
    return np.concatenate([these, those], -1)


def difference(score: Score) -> Score:
    """Of what was joined, how much the first half is above the second."""

    def apart(sums: np.ndarray) -> np.ndarray:
        k = sums.shape[-1] // 2
        return score(sums[..., :k]) - score(sums[..., k:])

    return apart


def _drawn(score: Score, statistics: np.ndarray) -> tuple[float, float]:
    """95 % of the mean over seeds, as many texts being drawn again, with a fixed seed."""
    n = statistics.shape[1]
    times = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), DRAWS).astype(float)  # how often each is drawn
    drawn = score(np.einsum("dn,snk->sdk", times, statistics)).mean(0)
    return float(np.quantile(drawn, 0.025)), float(np.quantile(drawn, 0.975))


INTERVALS = "95 %, the wider of Student's t over seeds and of a bootstrap over the held-out texts, in pairs"


def _sacrebleu() -> Any:
    try:
        from sacrebleu.metrics import BLEU
    except ImportError:
        raise NextwordError(
            "This study scores texts by BLEU, which sacrebleu counts, and it is not here. Install it: "
            "pip install 'nextword[tasks]'."
        ) from None
    return BLEU
