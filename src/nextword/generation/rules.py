"""What may be written next: functions of log-probabilities (B, V), and a memory for the rules that look back.

`normalise`, `temperature`, `top_k` and `top_p` return distributions: every row sums to one. `forbid` and `penalise`
return scores, which leave the ids they do not touch at their log p: sampling normalises them, and beam search must
not, or a hypothesis would gain by having had less choice. A row in which nothing may be written is all -inf.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from nextword.contract import Beam, Decoding, NextwordError, Sample


def validate(how: Decoding) -> None:
    """Refuses choices that have no meaning, before the first step is taken."""
    if isinstance(how, Sample):
        if not 0 <= how.temperature < math.inf:
            raise NextwordError(
                f"temperature is {how.temperature}; it must be 0 or more: 0 always takes the likeliest token, 1 "
                "samples from the model as it is."
            )
        if how.top_k < 0:
            raise NextwordError(f"top_k is {how.top_k}; it must be 0 (all tokens) or the number of tokens to keep.")
        if not 0 < how.top_p <= 1:
            raise NextwordError(f"top_p is {how.top_p}; it must be above 0 and at most 1 (1 keeps all tokens).")
        if how.seed is not None and not 0 <= how.seed < 2**63:
            raise NextwordError(f"seed is {how.seed}; it must lie between 0 and 2**63 - 1.")
    if isinstance(how, Beam):
        if how.width < 1:
            raise NextwordError(f"The beam's width is {how.width}; it must be 1 or more (1 is greedy).")
        if not math.isfinite(how.length_penalty):
            raise NextwordError(f"length_penalty is {how.length_penalty}; it must be a finite number (0: off).")
    if not 0 < how.repetition < math.inf:
        raise NextwordError(f"repetition is {how.repetition}; it must be above 0 (1: off; CTRL's value is 1.2).")
    if how.no_repeat < 0:
        raise NextwordError(f"no_repeat is {how.no_repeat}; it must be 0 (off) or the length of the n-gram.")


def ensure_numbers(values: Tensor) -> None:
    if bool(values.isnan().any()):
        raise NextwordError(
            "The model's probabilities are not numbers (NaN), so nothing can be written. Its weights are damaged, or "
            "its training diverged: load an earlier state or train again with a lower rate."
        )


# ------------------------------------------------------------------------------------------------ distributions


def normalise(scores: Tensor) -> Tensor:
    """Log-probabilities in proportion to exp(scores); a row of nothing but -inf stays so."""
    total = scores.logsumexp(dim=-1, keepdim=True)
    return scores - total.masked_fill(total == -math.inf, 0.0)


def temperature(scores: Tensor, value: float) -> Tensor:
    """p^(1/value), normalised; at 0 its limit, all on the likeliest id (the first of equals)."""
    best = scores.max(dim=-1, keepdim=True)
    if value == 0:
        only = torch.full_like(scores, -math.inf).scatter(-1, best.indices, 0.0)
        return only.masked_fill(best.values == -math.inf, -math.inf)
    # Measured from the best, the best stays at 0 however cold it is, so that nothing overflows; below 1e-30 the
    # result is already the limit in float32, and a smaller divisor would be rounded to zero.
    return normalise((scores - best.values.clamp(min=torch.finfo(scores.dtype).min)) / max(value, 1e-30))


def top_k(scores: Tensor, k: int) -> Tensor:
    """The k likeliest ids, normalised; 0 keeps all."""
    if k == 0 or k >= scores.shape[-1]:
        return normalise(scores)
    values, ids = scores.topk(k, dim=-1)
    return normalise(torch.full_like(scores, -math.inf).scatter(-1, ids, values))


def top_p(scores: Tensor, p: float) -> Tensor:
    """The nucleus, normalised: the fewest ids, likeliest first, whose mass reaches p; always at least one.

    Holtzman et al. (2020), "The curious case of neural text degeneration".
    """
    log_probs = normalise(scores)
    if p == 1:
        return log_probs
    ordered, ids = log_probs.sort(dim=-1, descending=True, stable=True)
    mass = ordered.double().exp()  # a running sum of float32 goes astray over a large vocabulary
    before = mass.cumsum(dim=-1) - mass
    # A mass of p that rounding has put a hair below p has reached it; relative, so that the best always stays.
    kept = ordered.masked_fill(before >= p * (1 - 1e-6), -math.inf)
    return normalise(torch.empty_like(kept).scatter(-1, ids, kept))


# ------------------------------------------------------------------------------------------------ scores


def forbid(scores: Tensor, which: Tensor) -> Tensor:
    """-inf where `which` (V,) or (B, V) is True."""
    return scores.masked_fill(which, -math.inf)


def penalise(scores: Tensor, which: Tensor, penalty: float) -> Tensor:
    """CTRL's repetition penalty where `which` (B, V) is True: the logit, over the penalty.

    Keskar et al. (2019), section 4.1. A quotient of logits needs a zero to measure from, and log-probabilities have
    none of their own: here it is chance, 1/V. With x = log(p·V), a token likelier than chance moves to x / penalty and
    one less likely to x · penalty: above 1 the penalty lowers every token it touches, below 1 it lifts them.
    """
    chance = math.log(scores.shape[-1])
    x = scores + chance
    return torch.where(which, torch.where(x > 0, x / penalty, x * penalty) - chance, scores)


# ------------------------------------------------------------------------------------------------ memory


class Rules:
    """The rules that look back (repetition, no_repeat) and those that never change (banned, allowed), for B rows.

    A step costs the same however long the text has grown, and nothing is remembered that no rule asks for.

        scores = rules.scores(log_probs)    then choose one id a row    then rules.wrote(chosen)
    """

    def __init__(
        self,
        how: Decoding,
        written: Sequence[Sequence[int]],  # for each row, the ids that count as already written
        banned: Iterable[int] = (),
        allowed: Iterable[int] | None = None,  # None: all
    ):
        self.penalty = how.repetition
        self.n = how.no_repeat
        self.banned = tuple(banned)
        self.allowed = None if allowed is None else tuple(allowed)
        self.forbidden: Tensor | None = None  # (V,), once V is known
        self.seen: Tensor | None = None  # (B, V), once V is known
        self.written = written
        self.grams = [_Grams(self.n, ids) for ids in written] if self.n > 1 else []

    def scores(self, log_probs: Tensor) -> Tensor:
        """(B, V) → (B, V), in at least single precision."""
        scores = log_probs if log_probs.dtype == torch.float64 else log_probs.float()
        if self.seen is None and self._looks_at_single_ids():
            self.seen = torch.zeros_like(scores, dtype=torch.bool)
            for row, ids in enumerate(self.written):
                self.seen[row, list(ids)] = True
        if self.seen is not None and self.penalty != 1:
            scores = penalise(scores, self.seen, self.penalty)
        if self.seen is not None and self.n == 1:
            scores = forbid(scores, self.seen)
        if self.grams:
            repeats = torch.zeros_like(scores, dtype=torch.bool)
            for row, grams in enumerate(self.grams):
                repeats[row, list(grams.repeats())] = True
            scores = forbid(scores, repeats)
        if self.banned or self.allowed is not None:
            if self.forbidden is None:
                self.forbidden = self._forbidden(scores)
            scores = forbid(scores, self.forbidden)
        return scores

    def wrote(self, ids: Tensor) -> None:
        """One id a row (B,)."""
        if self.seen is not None:
            self.seen.scatter_(1, ids[:, None].to(self.seen.device), True)
        if self.grams:
            for grams, id in zip(self.grams, ids.tolist(), strict=True):
                grams.add(id)

    def take(self, rows: Tensor) -> None:
        """Goes on with these rows, in this order; rows may repeat (beam search)."""
        if self.seen is not None:
            self.seen = self.seen.index_select(0, rows)
        if self.grams:
            self.grams = [self.grams[row].copy() for row in rows.tolist()]

    def _looks_at_single_ids(self) -> bool:
        return self.penalty != 1 or self.n == 1

    def _forbidden(self, scores: Tensor) -> Tensor:
        forbidden = torch.zeros_like(scores[0], dtype=torch.bool)
        if self.allowed is not None:
            forbidden[:] = True
            forbidden[list(self.allowed)] = False
        forbidden[list(self.banned)] = True
        return forbidden


class _Grams:
    """Which ids have followed each n-1 ids of one row (n ≥ 2)."""

    def __init__(self, n: int, ids: Sequence[int] = ()):
        self.n = n
        self.tail: tuple[int, ...] = ()  # the last n-1 ids
        self.followers: dict[tuple[int, ...], tuple[int, ...]] = {}
        for id in ids:
            self.add(id)

    def add(self, id: int) -> None:
        if len(self.tail) == self.n - 1:
            self.followers[self.tail] = (*self.followers.get(self.tail, ()), id)
        self.tail = (*self.tail, id)[-(self.n - 1) :]

    def repeats(self) -> tuple[int, ...]:
        return self.followers.get(self.tail, ()) if len(self.tail) == self.n - 1 else ()

    def copy(self) -> _Grams:
        other = _Grams(self.n)
        other.tail, other.followers = self.tail, self.followers.copy()
        return other
