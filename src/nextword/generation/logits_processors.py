"""What may be written next: functions of log-probabilities (B, V), and a memory for the rules that look back.

`normalise`, `temperature`, `top_k`, `top_p`, `min_p` and `typical` return distributions: every row sums to one.
`forbid` and `penalise` return scores, which leave the ids they do not touch at their log p: sampling normalises them,
and beam search must not, or a hypothesis would gain by having had less choice. A row in which nothing may be written is
all -inf.

No n-gram twice, for rows that change places at every step: what each has written, as one tensor.

`rules.py` remembers in tables which ids have followed which: a step then costs the same however long the text is. But
tables are copied when hypotheses part, and filled with ids that a GPU must be asked for. Here nothing is asked.

    n = 3     a b c a b ?
              ─── ▲ ───        the last two ids stood there before, and c came after them: c may not be written now
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from nextword.core.errors import NextwordError
from nextword.core.types import Beam, Contrastive, Decoding, Sample

NOTHING = -1  # before the first id of a row


class Trails:
    def __init__(self, n: int, written: Sequence[Sequence[int]]) -> None:
        self.n = n
        longest = max(map(len, written), default=0)
        rows = [[NOTHING] * (longest - len(ids)) + list(ids) for ids in written]
        self.ids = torch.tensor(rows, dtype=torch.long).view(len(rows), longest)  # (R, L)

    def forbid_repeats(self, scores: Tensor) -> Tensor:
        """−inf for what would complete an n-gram that is already there."""
        self.ids = self.ids.to(scores.device)
        before = self.ids.shape[1] - self.n + 1  # places at which an n-gram may begin
        if before < 1:
            return scores
        tail = self.ids[:, before:]  # (R, n - 1)
        found = (tail[:, :1] != NOTHING).expand(-1, before)
        for i in range(self.n - 1):
            found = found & (self.ids[:, i : i + before] == tail[:, i : i + 1])
        followers = self.ids[:, self.n - 1 :].clamp(min=0)
        values = torch.full_like(found, math.inf, dtype=scores.dtype).masked_fill_(found, -math.inf)
        return scores.scatter_reduce(1, followers, values, "amin")

    def add(self, ids: Tensor) -> None:
        self.ids = torch.cat([self.ids, ids.to(self.ids.device).unsqueeze(1)], 1)

    def take(self, rows: Tensor) -> None:
        self.ids = self.ids.index_select(0, rows.to(self.ids.device))


NORMALISATIONS = ("power", "gnmt")  # of a beam's scores


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
        if not 0 <= how.min_p <= 1:
            raise NextwordError(f"min_p is {how.min_p}; it must lie between 0 (keeps all tokens) and 1.")
        if not 0 < how.typical <= 1:
            raise NextwordError(f"typical is {how.typical}; it must be above 0 and at most 1 (1 keeps all tokens).")
        if how.seed is not None and not 0 <= how.seed < 2**63:
            raise NextwordError(f"seed is {how.seed}; it must lie between 0 and 2**63 - 1.")
    if isinstance(how, Beam):
        if how.width < 1:
            raise NextwordError(f"The beam's width is {how.width}; it must be 1 or more (1 is greedy).")
        if not math.isfinite(how.length_penalty):
            raise NextwordError(f"length_penalty is {how.length_penalty}; it must be a finite number (0: off).")
        if how.normalisation not in NORMALISATIONS:
            raise NextwordError(
                f"normalisation is {how.normalisation!r}; expected one of {', '.join(NORMALISATIONS)}: the length, or "
                "(5 + length) / 6, to the length penalty."
            )
        if not 0 <= how.coverage < math.inf:
            raise NextwordError(f"coverage is {how.coverage}; it must be 0 (off) or more (Wu et al. 2016 have 0.2).")
        if how.groups < 1 or how.width % how.groups:
            raise NextwordError(
                f"A beam of width {how.width} cannot be cut into {how.groups} groups of equal width. Choose a width "
                "that is a multiple of the groups (1: one beam, as usual)."
            )
        if not 0 <= how.diversity < math.inf:
            raise NextwordError(f"diversity is {how.diversity}; it must be 0 (groups that are alike) or more.")
    if isinstance(how, Contrastive):
        if how.k < 1:
            raise NextwordError(f"k is {how.k}; contrastive search chooses among 1 or more tokens (1 is greedy).")
        if not 0 <= how.alpha <= 1:
            raise NextwordError(f"alpha is {how.alpha}; it must lie between 0 (greedy) and 1 (likeness alone counts).")
    for token, value in how.bias.items():
        if math.isnan(value) or value == math.inf:
            raise NextwordError(
                f"The bias of {token!r} is {value}; it must be a number to add to the token's log-probability, or -inf "
                "to ban it."
            )
    if not 0 < how.repetition < math.inf:
        raise NextwordError(f"repetition is {how.repetition}; it must be above 0 (1: off; CTRL's value is 1.2).")
    if how.no_repeat < 0:
        raise NextwordError(f"no_repeat is {how.no_repeat}; it must be 0 (off) or the length of the n-gram.")


def ensure_numbers(values: Tensor | Sequence[float]) -> None:
    if bool(values.isnan().any()) if isinstance(values, Tensor) else any(map(math.isnan, values)):
        raise NextwordError(
            "The model's probabilities are not numbers (NaN), so nothing can be written. Its weights are damaged, or "
            "its training diverged: load an earlier state or train again with a lower rate."
        )


# ------------------------------------------------------------------------------------------------ distributions


def normalise(scores: Tensor) -> Tensor:
    """Log-probabilities in proportion to exp(scores); a row of nothing but -inf stays so."""
    return scores - total(scores)


def total(scores: Tensor) -> Tensor:
    """log Σ exp of each row (B, 1); 0 where that is nothing."""
    found = scores.logsumexp(dim=-1, keepdim=True)
    return found.masked_fill(found == -math.inf, 0.0)


def sharpened(scores: Tensor, value: float, best: Tensor | None = None) -> Tensor:
    """Scores over the temperature (above 0), measured from the best: in proportion to p^(1/value), not normalised."""
    # Measured from the best, the best stays at 0 however cold it is, so that nothing overflows; below 1e-30 the
    # result is already the limit in float32, and a smaller divisor would be rounded to zero.
    if best is None:
        best = scores.amax(dim=-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    return scores - best if value == 1 else (scores - best).div_(max(value, 1e-30))


def temperature(scores: Tensor, value: float) -> Tensor:
    """p^(1/value), normalised; at 0 its limit, all on the likeliest id (the first of equals)."""
    if value > 0:
        return normalise(sharpened(scores, value))
    best = scores.max(dim=-1, keepdim=True)
    only = torch.full_like(scores, -math.inf).scatter(-1, best.indices, 0.0)
    return only.masked_fill(best.values == -math.inf, -math.inf)


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
    return log_probs if p == 1 else normalise(fewest(log_probs, log_probs, p))


def min_p(scores: Tensor, share: float) -> Tensor:
    """The ids that have at least this share of the likeliest one's probability, normalised.

    Nguyen et al. (2024), "Turning up the heat: min-p sampling for creative and coherent LLM outputs".
    """
    if share == 0:
        return normalise(scores)
    least = scores.amax(dim=-1, keepdim=True) + math.log(share)
    return normalise(scores.masked_fill(scores < least, -math.inf))


def typical(scores: Tensor, mass: float) -> Tensor:
    """The fewest ids whose mass reaches `mass`, those first whose surprise is nearest to the expected; normalised.

    Meister et al. (2023), "Locally typical sampling": the distance is |−log p − H|, with H the entropy of the row.
    """
    log_probs = normalise(scores)
    return log_probs if mass == 1 else normalise(fewest(log_probs, typicality(log_probs), mass))


def typicality(log_probs: Tensor) -> Tensor:
    """How near each id's surprise is to the expected one: 0 is there, and less is farther."""
    finite = log_probs.clamp(min=torch.finfo(log_probs.dtype).min)  # what is impossible adds nothing
    entropy = -(log_probs.exp() * finite).sum(dim=-1, keepdim=True)
    return -(log_probs + entropy).abs()


def fewest(log_probs: Tensor, key: Tensor, share: float) -> Tensor:
    """-inf but for the fewest ids, those of greatest key first (the first of equals first), whose mass reaches it."""
    order, late, settled = _late(log_probs, key, share, stable=False)
    if not settled:
        order, late, _ = _late(log_probs, key, share, stable=True)
    return log_probs.masked_fill(torch.empty_like(late).scatter(-1, order, late), -math.inf)


def _late(log_probs: Tensor, key: Tensor, share: float, stable: bool) -> tuple[Tensor, Tensor, bool]:
    """Ids by key, greatest first; which come after the share is reached; whether the order of equals has no say in it.

    On a CPU a sort that may shuffle equals takes a tenth of the time.
    """
    if stable or key.device.type != "cpu":
        order, stable = key.sort(dim=-1, descending=True, stable=True).indices, True
    else:
        order = torch.from_numpy(np.argsort(-key.detach().numpy(), axis=-1))
    mass = log_probs.gather(-1, order).double().exp()  # a running sum of float32 goes astray over many ids
    before = mass.cumsum(dim=-1) - mass
    # A mass of p that rounding has put a hair below p has reached it; relative, so that the first always stays.
    late = before >= share * (1 - 1e-6)
    if stable:
        return order, late, True
    ordered = key.gather(-1, order)
    edge = ordered.masked_fill(late, math.inf).amin(dim=-1, keepdim=True)
    return order, late, bool(((ordered == edge).sum(dim=-1) == 1).all())


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
    either = torch.minimum if penalty > 1 else torch.maximum  # of the two, the one that the sign of x asks for
    return torch.where(which, either(x / penalty, x * penalty) - chance, scores)


# ------------------------------------------------------------------------------------------------ memory


class Rules:
    """The rules that look back (repetition, no_repeat, least) and those that never change (bias, banned, allowed).

    They hold for B rows, which are written side by side. A step costs the same however long the text has grown, and
    nothing is remembered that no rule asks for.

        scores = rules.scores(log_probs)    then choose one id a row    then rules.wrote(chosen)
    """

    def __init__(
        self,
        how: Decoding,
        written: Sequence[Sequence[int]],  # for each row, the ids that count as already written
        banned: Iterable[int] = (),
        allowed: Iterable[int] | None = None,  # None: all
        end: int | None = None,
        least: int = 0,  # tokens to be written before `end`
        beams: bool = False,  # rows change places at every step, and nothing may wait for a GPU
    ):
        self.penalty = how.repetition
        self.n = how.no_repeat
        self.bias = dict(how.bias)
        self.banned = tuple(banned)
        self.allowed = None if allowed is None else tuple(allowed)
        self.added: Tensor | None = None  # (V,): the bias, and -inf for what is never written; once V is known
        self.seen: Tensor | None = None  # (B, V), once V is known
        self.written = written
        self.grams = [_Grams(self.n, ids) for ids in written] if self.n > 1 and not beams else []
        self.trails = Trails(self.n, written) if self.n > 1 and beams else None
        self.early = 0 if end is None else least  # tokens still to be written before the end
        self.end = end

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
        if self.bias or self.banned or self.allowed is not None:
            if self.added is None:
                self.added = self._added(scores)
            scores = scores + self.added
        repeats = [(row, ids) for row, grams in enumerate(self.grams) if (ids := grams.repeats())]
        if repeats or self.early:
            scores = scores.clone()
            for row, ids in repeats:
                scores[row, list(ids)] = -math.inf
            if self.early:
                scores[:, self.end] = -math.inf
        return scores if self.trails is None else self.trails.forbid_repeats(scores)

    def wrote(self, ids: Tensor) -> None:
        """One id a row (B,)."""
        self.early = max(0, self.early - 1)
        if self.seen is not None:
            self.seen.scatter_(1, ids[:, None].to(self.seen.device), True)
        if self.grams:
            for grams, id in zip(self.grams, ids.tolist(), strict=True):
                grams.add(id)
        if self.trails is not None:
            self.trails.add(ids)

    def take(self, rows: Tensor) -> None:
        """Goes on with these rows, in this order; rows may repeat (beam search)."""
        if self.seen is not None:
            self.seen = self.seen.index_select(0, rows)
        if self.grams:
            self.grams = [self.grams[row].copy() for row in rows.tolist()]
        if self.trails is not None:
            self.trails.take(rows)

    def _looks_at_single_ids(self) -> bool:
        return self.penalty != 1 or self.n == 1

    def _added(self, scores: Tensor) -> Tensor:
        added = torch.zeros_like(scores[0])
        for id, value in self.bias.items():
            if not isinstance(id, int) or not 0 <= id < len(added):
                raise NextwordError(f"A bias is set on {id!r}; expected an id from 0 to {len(added) - 1}.")
            added[id] = value
        if self.allowed is not None:
            others = torch.ones_like(added, dtype=torch.bool)
            others[list(self.allowed)] = False
            added = added.masked_fill(others, -math.inf)
        added[list(self.banned)] = -math.inf
        return added


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
