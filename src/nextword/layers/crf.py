"""A linear-chain conditional random field: a score for every sequence of tags, and so a probability for it.

    score(y | x) = begin[y_1] + Σ_t emissions[t, y_t] + Σ_t transitions[y_{t−1}, y_t] + end[y_T]
    log p(y | x) = score(y | x) − log Σ_{y'} exp score(y' | x)

Lafferty, McCallum & Pereira, "Conditional Random Fields" (2001); over a recurrent network: Lample et al. (2016). The
sum over all sequences goes through them word by word, α_t[k] = emissions[t, k] + log Σ_j exp(α_{t−1}[j] +
transitions[j, k]), and the best one is found in the same way with max for log Σ exp (Viterbi). Both are one loop over
time, over all rows at once, in 32 bits. Rows may differ in length: what the mask leaves out at their end changes
nothing.

`allowed` forbids steps, those that a scheme of tags does not have: always in Viterbi, and with `strict` in training
too, where then no probability is lost to sequences that cannot be. Shapes: B rows, T words, K tags.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

FORBIDDEN = -1e4  # added to a score. Not −inf: were every sequence forbidden, one would have to be given nevertheless


class Steps(NamedTuple):
    """Scores of one tag after another, at the beginning, and at the end."""

    transitions: Tensor  # (K, K) from, to
    begin: Tensor  # (K,)
    end: Tensor  # (K,)


class CRF(nn.Module):
    """`allowed`: which tag may follow which (K, K), begin (K,), end (K,), as truth values; None: all may."""

    forbidden: Tensor

    def __init__(self, tags: int, allowed: Sequence[Tensor] | None = None, strict: bool = False) -> None:
        super().__init__()
        self.strict = strict
        self.transitions = nn.Parameter(torch.empty(tags, tags).uniform_(-0.1, 0.1))
        self.begin = nn.Parameter(torch.empty(tags).uniform_(-0.1, 0.1))
        self.end = nn.Parameter(torch.empty(tags).uniform_(-0.1, 0.1))
        self.register_buffer("forbidden", penalties(tags, allowed), persistent=False)

    def log_likelihood(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """(B, T, K), (B, T), (B, T) True where there is a word → log p of each row's tags, (B,)."""
        steps = self.steps(self.strict)
        emissions = emissions.to(self.transitions.dtype)
        return path_score(emissions, tags, mask, steps) - log_partition(emissions, mask, steps)

    def viterbi(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """(B, T): the best sequence of tags of each row; 0 where there is no word."""
        return viterbi(emissions.to(self.transitions.dtype), mask, self.steps(True))

    def steps(self, constrained: bool) -> Steps:
        learnt = Steps(self.transitions, self.begin, self.end)
        return plus(learnt, self.forbidden) if constrained else learnt


def penalties(tags: int, allowed: Sequence[Tensor] | None) -> Tensor:
    """(K + 2, K): what is added to transitions, and in the last two rows to the beginning and the end."""
    if allowed is None:
        return torch.zeros(tags + 2, tags)
    pairs, first, last = (torch.as_tensor(part) for part in allowed)
    every = torch.cat([pairs, first.unsqueeze(0), last.unsqueeze(0)])
    return torch.zeros(tags + 2, tags).masked_fill(~every, FORBIDDEN)


def plus(steps: Steps, forbidden: Tensor) -> Steps:
    transitions, begin, end = steps
    return Steps(transitions + forbidden[:-2], begin + forbidden[-2], end + forbidden[-1])


def path_score(emissions: Tensor, tags: Tensor, mask: Tensor, steps: Steps) -> Tensor:
    """(B,) of the tags given. Where the mask is False any tag may stand that there is."""
    tags = tags.masked_fill(~mask, 0)
    there = mask.to(emissions.dtype)
    own = emissions.gather(2, tags.unsqueeze(2)).squeeze(2)  # (B, T)
    between = steps.transitions[tags[:, :-1], tags[:, 1:]]  # (B, T − 1)
    last = tags.gather(1, (mask.sum(1, keepdim=True) - 1).clamp(min=0)).squeeze(1)
    score = (own * there).sum(1) + (between * there[:, 1:]).sum(1)
    return score + torch.where(mask[:, 0], steps.begin[tags[:, 0]] + steps.end[last], 0.0)


def log_partition(emissions: Tensor, mask: Tensor, steps: Steps) -> Tensor:
    """(B,): log Σ exp score over all sequences of tags; 0 for a row without words."""
    if not emissions.shape[1]:
        return emissions.new_zeros(len(emissions))
    over_time = emissions.transpose(0, 1)  # (T, B, K)
    alpha = steps.begin + over_time[0]  # (B, K)
    for emitted, there in zip(over_time[1:], mask.t()[1:], strict=True):
        new = torch.logsumexp(alpha.unsqueeze(2) + steps.transitions, 1) + emitted
        alpha = torch.where(there.unsqueeze(1), new, alpha)
    total = torch.logsumexp(alpha + steps.end, 1)
    return torch.where(mask[:, 0], total, 0.0)


@torch.no_grad()
def viterbi(emissions: Tensor, mask: Tensor, steps: Steps) -> Tensor:
    """(B, T): the sequence with the greatest score of each row; 0 where the mask is False."""
    length = emissions.shape[1]
    if not length:
        return emissions.new_zeros(emissions.shape[:2], dtype=torch.long)
    over_time, there = emissions.transpose(0, 1), mask.t().unsqueeze(2)  # (T, B, K), (T, B, 1)
    best = steps.begin + over_time[0]  # (B, K)
    stay = torch.arange(emissions.shape[2], device=emissions.device).expand_as(best)
    came: list[Tensor] = []  # from which tag each tag is best reached
    for emitted, now in zip(over_time[1:], there[1:], strict=True):
        value, before = (best.unsqueeze(2) + steps.transitions).max(1)
        came.append(torch.where(now, before, stay))
        best = torch.where(now, value + emitted, best)
    tag = (best + steps.end).argmax(1, keepdim=True)  # (B, 1)
    path = [tag]
    for before in reversed(came):
        tag = before.gather(1, tag)
        path.append(tag)
    return torch.cat(path[::-1], 1).masked_fill(~mask, 0)
