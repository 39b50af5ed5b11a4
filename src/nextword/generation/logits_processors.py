"""What may be generated next: functions of log-probabilities (B, V), and a memory for repetition rules.

`normalize`, `apply_temperature`, `keep_top_k`, `keep_top_p`, `keep_min_p` and `keep_typical` return distributions:
every row sums to one. `forbid` and `penalize_repetition` return scores, in which other ids keep their log p. Sampling
normalizes them; beam search must not, because a hypothesis would gain by having had less choice. A row in which
nothing may be generated is all −inf.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.core.errors import RunError, invalid
from nextword.core.types import Beam, Contrastive, Decoding, Greedy, Sample

NO_TOKEN = -1  # before the first id of a row
NORMALIZATIONS = ("power", "gnmt")  # of a beam's scores

# ------------------------------------------------------------------------------------------------ validation


def check_decoding(decoding: Decoding) -> None:
    """Raise InvalidSetting for settings without a meaning, before the first step."""
    if not isinstance(decoding, Decoding):
        raise invalid("decoding", decoding, "must be Greedy(), Sample(), Beam() or Contrastive().")
    for field in fields(decoding):
        value = getattr(decoding, field.name)
        if isinstance(field.default, (int, float)) and not isinstance(value, (int, float)):
            raise invalid(field.name, value, "must be a number.")
    if isinstance(decoding, Sample):
        _require(
            "temperature",
            decoding.temperature,
            0 <= decoding.temperature < math.inf,
            "0 (greedy) or more; 1 is unchanged",
        )
        _require("top_k", decoding.top_k, decoding.top_k >= 0, "a number of tokens, or 0 for all")
        _require("top_p", decoding.top_p, 0 < decoding.top_p <= 1, "above 0 and at most 1 (all tokens)")
        _require("min_p", decoding.min_p, 0 <= decoding.min_p <= 1, "between 0 (all tokens) and 1")
        _require("typical", decoding.typical, 0 < decoding.typical <= 1, "above 0 and at most 1 (all tokens)")
        _require("seed", decoding.seed, decoding.seed is None or 0 <= decoding.seed < 2**63, "between 0 and 2**63 - 1")
    if isinstance(decoding, (Greedy, Sample)):
        for key, value in (("frequency", decoding.frequency), ("presence", decoding.presence)):
            _require(key, value, math.isfinite(value), "a finite number; 0 is off")
    if isinstance(decoding, Beam):
        _require("width", decoding.width, decoding.width >= 1, "1 (greedy) or more hypotheses")
        _require(
            "length_penalty",
            decoding.length_penalty,
            math.isfinite(decoding.length_penalty),
            "a finite number; 0 is off",
        )
        expected = f"one of {', '.join(NORMALIZATIONS)}"
        _require("normalization", decoding.normalization, decoding.normalization in NORMALIZATIONS, expected)
        _require("coverage", decoding.coverage, 0 <= decoding.coverage < math.inf, "0 (off) or more, such as 0.2")
        fits = decoding.groups >= 1 and decoding.width % decoding.groups == 0
        _require("groups", decoding.groups, fits, f"a divisor of the width, {decoding.width}; 1 is an ordinary beam")
        _require("diversity", decoding.diversity, 0 <= decoding.diversity < math.inf, "0 or more")
    if isinstance(decoding, Contrastive):
        _require("k", decoding.k, decoding.k >= 1, "1 (greedy) or more candidates")
        _require("alpha", decoding.alpha, 0 <= decoding.alpha <= 1, "between 0 (greedy) and 1 (similarity alone)")
    for token, value in decoding.bias.items():
        fits = not math.isnan(value) and value != math.inf
        _require("bias", {token: value}, fits, "a number to add to the token's log-probability, or -inf to forbid it")
    _require("repetition", decoding.repetition, 0 < decoding.repetition < math.inf, "above 0; 1 is off, CTRL uses 1.2")
    _require("no_repeat", decoding.no_repeat, decoding.no_repeat >= 0, "the length of an n-gram, or 0 (off)")


def _require(key: str, value: object, is_valid: bool, expected: str) -> None:
    if not is_valid:
        raise invalid(key, value, f"must be {expected}.")


def reject_nan(values: Tensor | Sequence[float]) -> None:
    """Raise an error if a probability is NaN."""
    if bool(values.isnan().any()) if isinstance(values, Tensor) else any(map(math.isnan, values)):
        raise RunError(
            "The model's probabilities are NaN: its weights are damaged, or training diverged. Load an earlier "
            "checkpoint, or train again with a lower learning rate."
        )


# ------------------------------------------------------------------------------------------------ distributions


def normalize(scores: Tensor) -> Tensor:
    """Log-probabilities ∝ exp(scores); a row of −inf stays as it is."""
    return scores - log_sum(scores)


def log_sum(scores: Tensor) -> Tensor:
    """log Σ exp of each row (B, 1); 0 for a row of −inf."""
    result = scores.logsumexp(dim=-1, keepdim=True)
    return result.masked_fill(result == -math.inf, 0.0)


def divide_by_temperature(scores: Tensor, value: float, best: Tensor | None = None) -> Tensor:
    """Scores ∝ p^(1/value), not normalized, with the best at 0; `value` is above 0."""
    # Relative to the best, the best stays at 0 however low the temperature, so that nothing overflows. Below 1e-30
    # the result is already the limit in float32, and a smaller divisor would be rounded to zero.
    if best is None:
        best = scores.amax(dim=-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    return scores - best if value == 1 else (scores - best).div_(max(value, 1e-30))


def apply_temperature(scores: Tensor, value: float) -> Tensor:
    """p^(1/value), normalized; at 0 its limit, all mass on the most probable id (the first of equals)."""
    if value > 0:
        return normalize(divide_by_temperature(scores, value))
    best = scores.max(dim=-1, keepdim=True)
    only = torch.full_like(scores, -math.inf).scatter(-1, best.indices, 0.0)
    return only.masked_fill(best.values == -math.inf, -math.inf)


def keep_top_k(scores: Tensor, k: int) -> Tensor:
    """Keep the k most probable ids, normalized; 0 keeps all."""
    if k == 0 or k >= scores.shape[-1]:
        return normalize(scores)
    values, ids = scores.topk(k, dim=-1)
    return normalize(torch.full_like(scores, -math.inf).scatter(-1, ids, values))


def keep_top_p(scores: Tensor, p: float) -> Tensor:
    """Keep the nucleus, normalized: the fewest ids, most probable first, with mass p; always at least one.

    Holtzman et al. (2020), "The curious case of neural text degeneration".
    """
    log_probs = normalize(scores)
    return log_probs if p == 1 else normalize(keep_top_mass(log_probs, log_probs, p))


def keep_min_p(scores: Tensor, share: float) -> Tensor:
    """Keep the ids with at least this fraction of the highest probability, normalized.

    Nguyen et al. (2024), "Turning up the heat: min-p sampling for creative and coherent LLM outputs".
    """
    if share == 0:
        return normalize(scores)
    least = scores.amax(dim=-1, keepdim=True) + math.log(share)
    return normalize(scores.masked_fill(scores < least, -math.inf))


def keep_typical(scores: Tensor, mass: float) -> Tensor:
    """Keep the fewest ids with this mass, those with surprisal closest to the entropy first; normalized.

    Meister et al. (2023), "Locally typical sampling": the distance is |−log p − H|, with H the entropy of the row.
    """
    log_probs = normalize(scores)
    return log_probs if mass == 1 else normalize(keep_top_mass(log_probs, typicality(log_probs), mass))


def typicality(log_probs: Tensor) -> Tensor:
    """Minus the distance of each id's surprisal to the entropy: 0 is the most typical."""
    finite = log_probs.clamp(min=torch.finfo(log_probs.dtype).min)  # an impossible id adds nothing to the entropy
    entropy = -(log_probs.exp() * finite).sum(dim=-1, keepdim=True)
    return -(log_probs + entropy).abs()


def keep_top_mass(log_probs: Tensor, key: Tensor, share: float) -> Tensor:
    """Keep the fewest ids, greatest key first (the first of equals first), whose mass reaches `share`; others −inf."""
    order, is_late, is_settled = _order_by_key(log_probs, key, share, stable=False)
    if not is_settled:
        order, is_late, _ = _order_by_key(log_probs, key, share, stable=True)
    return log_probs.masked_fill(torch.empty_like(is_late).scatter(-1, order, is_late), -math.inf)


def _order_by_key(log_probs: Tensor, key: Tensor, share: float, stable: bool) -> tuple[Tensor, Tensor, bool]:
    """Ids by key, greatest first; which of them come after the share is reached; whether ties at the edge matter not.

    On a CPU, a sort that may shuffle equals takes a tenth of the time, so it is tried first.
    """
    if stable or key.device.type != "cpu":
        order, stable = key.sort(dim=-1, descending=True, stable=True).indices, True
    else:
        order = torch.from_numpy(np.argsort(-key.detach().numpy(), axis=-1))
    mass = log_probs.gather(-1, order).double().exp()  # a running sum in float32 loses precision over many ids
    before = mass.cumsum(dim=-1) - mass
    # A mass that rounding puts slightly below p counts as reached; relative, so that the first id always stays.
    is_late = before >= share * (1 - 1e-6)
    if stable:
        return order, is_late, True
    ordered = key.gather(-1, order)
    edge = ordered.masked_fill(is_late, math.inf).amin(dim=-1, keepdim=True)
    return order, is_late, bool(((ordered == edge).sum(dim=-1) == 1).all())


# ------------------------------------------------------------------------------------------------ scores


def forbid(scores: Tensor, which: Tensor) -> Tensor:
    """−inf where `which` (V,) or (B, V) is True."""
    return scores.masked_fill(which, -math.inf)


def penalize_repetition(scores: Tensor, which: Tensor, penalty: float) -> Tensor:
    """CTRL's repetition penalty where `which` (B, V) is True: divide the logit by the penalty.

    Keskar et al. (2019), section 4.1. Dividing needs a zero point, which log-probabilities lack; here it is chance,
    1/V. With x = log(p·V), a token more probable than chance moves to x / penalty, a less probable one to
    x · penalty. A penalty above 1 lowers every token it touches; below 1 it raises them.
    """
    chance = math.log(scores.shape[-1])
    x = scores + chance
    either = torch.minimum if penalty > 1 else torch.maximum  # selects x / penalty or x · penalty by the sign of x
    return torch.where(which, either(x / penalty, x * penalty) - chance, scores)


# ------------------------------------------------------------------------------------------------ the processor


class LogitsProcessor:
    """Apply the settings with a memory (repetition, frequency, no_repeat, …) and the fixed ones (bias, forbidden).

    For B rows that are generated side by side. Nothing is stored that no setting needs.

        scores = processor.scores(log_probs)    then choose one id per row    then processor.update(chosen)
    """

    def __init__(
        self,
        decoding: Decoding,
        preceding: Sequence[Sequence[int]],  # for each row, the ids that count as generated before
        forbidden: Iterable[int] = (),
        end: int | None = None,
        min_tokens: int = 0,  # tokens before `end` is allowed
    ):
        self.penalty = decoding.repetition
        self.n = decoding.no_repeat
        self.bias = dict(decoding.bias)
        self.forbidden = tuple(forbidden)
        self.added: Tensor | None = None  # (V,): the bias, −inf for forbidden ids; set once V is known
        self.seen: Tensor | None = None  # (B, V) ids generated before; set once V is known
        self.frequency = self.presence = 0.0
        if isinstance(decoding, (Greedy, Sample)):
            self.frequency, self.presence = decoding.frequency, decoding.presence
        self.counts: Tensor | None = None  # (B, V) how often each id was generated, without the preceding ones
        self.num_rows = len(preceding)
        self.marks = self.penalty != 1 or self.n == 1  # whether `seen` is needed,
        self.preceding = list(preceding) if self.marks else []  # which these become
        self.history = NgramHistory(self.n, preceding) if self.n > 1 else None
        self.remaining = [0 if end is None else min_tokens] * len(preceding)  # tokens before the end is allowed
        self.end = end

    def scores(self, log_probs: Tensor) -> Tensor:
        """(B, V) → (B, V), in at least single precision."""
        scores = log_probs if log_probs.dtype == torch.float64 else log_probs.float()
        if self.marks and self.seen is None:
            self.seen, self.preceding = _mark(self.preceding, scores), []
        if self.seen is not None and self.penalty != 1:
            scores = penalize_repetition(scores, self.seen, self.penalty)
        if self.seen is not None and self.n == 1:
            scores = forbid(scores, self.seen)
        if self.frequency or self.presence:
            if self.counts is None:
                self.counts = torch.zeros_like(scores)
            scores = scores - self.frequency * self.counts - self.presence * (self.counts > 0)
        if self.bias or self.forbidden:
            if self.added is None:
                self.added = self._fixed_scores(scores)
            scores = scores + self.added
        if any(self.remaining):
            scores = scores.clone()
            scores[[row for row, count in enumerate(self.remaining) if count], self.end] = -math.inf
        return scores if self.history is None else self.history.forbid_repeats(scores)

    def update(self, ids: Tensor) -> None:
        """Record the chosen id of each row (B,)."""
        if any(self.remaining):
            self.remaining = [max(0, count - 1) for count in self.remaining]
        if self.seen is not None:
            self.seen.scatter_(1, ids[:, None].to(self.seen.device), True)
        if self.counts is not None:
            own = ids[:, None].to(self.counts.device)
            self.counts.scatter_add_(1, own, torch.ones_like(own, dtype=self.counts.dtype))
        if self.history is not None:
            self.history.add(ids)

    def take(self, rows: Tensor) -> None:
        """Continue with these rows, in this order; rows may repeat (beam search)."""
        self.num_rows = len(rows)
        if any(self.remaining):
            self.remaining = [self.remaining[row] for row in rows.tolist()]
        else:
            self.remaining = [0] * len(rows)
        if self.preceding:
            self.preceding = [self.preceding[row] for row in rows.tolist()]
        if self.seen is not None:
            self.seen = self.seen.index_select(0, rows.to(self.seen.device))
        if self.counts is not None:
            self.counts = self.counts.index_select(0, rows.to(self.counts.device))
        if self.history is not None:
            self.history.take(rows)

    def join(self, other: LogitsProcessor) -> None:
        """Append the rows of a processor with the same settings."""
        both = self, other
        seen = next((p.seen for p in both if p.seen is not None), None)
        if seen is not None:
            self.seen = torch.cat([_mark(p.preceding, seen) if p.seen is None else p.seen for p in both])
        self.preceding = [] if seen is not None else [*self.preceding, *other.preceding]
        counts = next((p.counts for p in both if p.counts is not None), None)
        if counts is not None:
            none = counts.new_zeros(max(self.num_rows, other.num_rows), counts.shape[1])
            self.counts = torch.cat([none[: p.num_rows] if p.counts is None else p.counts for p in both])
        if self.history is not None and other.history is not None:
            self.history.join(other.history)
        self.remaining += other.remaining
        self.num_rows += other.num_rows

    def _fixed_scores(self, scores: Tensor) -> Tensor:
        """(V,): what is added to every row at every step."""
        added = torch.zeros_like(scores[0])
        for id, value in self.bias.items():
            if not isinstance(id, int) or not 0 <= id < len(added):
                raise invalid("bias", id, f"must be an id from 0 to {len(added) - 1}.")
            added[id] = value
        added[list(self.forbidden)] = -math.inf
        return added


def _mark(rows: Sequence[Sequence[int]], like: Tensor) -> Tensor:
    """(B, V): which ids each row contains."""
    marked = torch.zeros(len(rows), like.shape[1], dtype=torch.bool, device=like.device)
    for row, ids in enumerate(rows):
        marked[row, list(ids)] = True
    return marked


class NgramHistory:
    """What each row has generated, as one tensor, to forbid n-grams that were there before.

        n = 3     a b c a b ?
                  ─── ▲ ───        the last two ids occurred before, followed by c: c is forbidden now

    Nothing waits for a GPU, and rows can be reordered cheaply.
    """

    def __init__(self, n: int, preceding: Sequence[Sequence[int]]) -> None:
        self.n = n
        longest = max(map(len, preceding), default=0)
        rows = [[NO_TOKEN] * (longest - len(ids)) + list(ids) for ids in preceding]
        self.ids = torch.tensor(rows, dtype=torch.long).view(len(rows), longest)  # (R, L), padded at the beginning

    def forbid_repeats(self, scores: Tensor) -> Tensor:
        """−inf for ids that would complete an n-gram that was there before."""
        self.ids = self.ids.to(scores.device)
        before = self.ids.shape[1] - self.n + 1  # positions where an n-gram may begin
        if before < 1:
            return scores
        tail = self.ids[:, before:]  # (R, n - 1)
        matches = (tail[:, :1] != NO_TOKEN).expand(-1, before)
        for i in range(self.n - 1):
            matches = matches & (self.ids[:, i : i + before] == tail[:, i : i + 1])
        followers = self.ids[:, self.n - 1 :].clamp(min=0)
        values = torch.full_like(matches, math.inf, dtype=scores.dtype).masked_fill_(matches, -math.inf)
        return scores.scatter_reduce(1, followers, values, "amin")

    def add(self, ids: Tensor) -> None:
        self.ids = torch.cat([self.ids, ids.to(self.ids.device).unsqueeze(1)], 1)

    def join(self, other: NgramHistory) -> None:
        longest = max(self.ids.shape[1], other.ids.shape[1])
        parts = [F.pad(ids, (longest - ids.shape[1], 0), value=NO_TOKEN) for ids in (self.ids, other.ids.to(self.ids))]
        self.ids = torch.cat(parts)

    def take(self, rows: Tensor) -> None:
        self.ids = self.ids.index_select(0, rows.to(self.ids.device))
