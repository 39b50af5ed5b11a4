"""A linear-chain conditional random field: scores, and so probabilities, of tag sequences.

    score(y | x) = begin[y_1] + Σ_t emissions[t, y_t] + Σ_t transitions[y_{t−1}, y_t] + end[y_T]
    log p(y | x) = score(y | x) − log Σ_{y'} exp score(y' | x)

Lafferty, McCallum & Pereira, "Conditional Random Fields" (2001); over a recurrent network: Lample et al. (2016). The
sum over all sequences is computed word by word, α_t[k] = emissions[t, k] + log Σ_j exp(α_{t−1}[j] + transitions[j, k]),
and the best sequence in the same way with max instead of log Σ exp (Viterbi). Both are one loop over time, for all rows
at once, in 32 bits. Rows may have different lengths; masked words at their end change nothing.

`allowed` forbids transitions that a tagging scheme does not have: always in Viterbi, and with `strict` in training too,
so that no probability is wasted on impossible sequences. Shapes: B rows, T words, K tags.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

FORBIDDEN = -1e4  # added to a score; finite, because a tag sequence is wanted even if all are forbidden


class Transitions(NamedTuple):
    """Scores of one tag after another, at the beginning and at the end."""

    transitions: Tensor  # (K, K) from, to
    begin: Tensor  # (K,)
    end: Tensor  # (K,)

    def plus(self, forbidden: Tensor) -> Transitions:
        """Add the penalties of `forbidden_scores` (K + 2, K)."""
        return Transitions(self.transitions + forbidden[:-2], self.begin + forbidden[-2], self.end + forbidden[-1])


class CRF(nn.Module):
    """`allowed`: booleans that say which tag may follow which (K, K), begin (K,) and end (K,); None: all may."""

    forbidden: Tensor

    def __init__(self, tags: int, allowed: Sequence[Tensor] | None = None, strict: bool = False) -> None:
        super().__init__()
        self.strict = strict
        self.transitions = nn.Parameter(torch.empty(tags, tags).uniform_(-0.1, 0.1))
        self.begin = nn.Parameter(torch.empty(tags).uniform_(-0.1, 0.1))
        self.end = nn.Parameter(torch.empty(tags).uniform_(-0.1, 0.1))
        self.register_buffer("forbidden", forbidden_scores(tags, allowed), persistent=False)

    def log_likelihood(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """log p of each row's tags: (B, T, K), (B, T), mask (B, T) True at words → (B,)."""
        steps = self.steps(self.strict)
        emissions = emissions.to(self.transitions.dtype)
        return path_score(emissions, tags, mask, steps) - log_partition(emissions, mask, steps)

    def viterbi(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """The best tag sequence of each row (B, T); 0 where there is no word."""
        return viterbi(emissions.to(self.transitions.dtype), mask, self.steps(True))

    def steps(self, constrained: bool) -> Transitions:
        steps = Transitions(self.transitions, self.begin, self.end)
        return steps.plus(self.forbidden) if constrained else steps


def forbidden_scores(tags: int, allowed: Sequence[Tensor] | None) -> Tensor:
    """(K + 2, K): penalties of transitions, and in the last two rows of begin and end."""
    if allowed is None:
        return torch.zeros(tags + 2, tags)
    pairs, first, last = (torch.as_tensor(part) for part in allowed)
    every = torch.cat([pairs, first.unsqueeze(0), last.unsqueeze(0)])
    return torch.zeros(tags + 2, tags).masked_fill(~every, FORBIDDEN)


def path_score(emissions: Tensor, tags: Tensor, mask: Tensor, steps: Transitions) -> Tensor:
    """The score of a tag sequence (B,). Where the mask is False, tags are ignored."""
    tags = tags.masked_fill(~mask, 0)
    weight = mask.to(emissions.dtype)
    own = emissions.gather(2, tags.unsqueeze(2)).squeeze(2)  # (B, T)
    between = steps.transitions[tags[:, :-1], tags[:, 1:]]  # (B, T − 1)
    last = tags.gather(1, (mask.sum(1, keepdim=True) - 1).clamp(min=0)).squeeze(1)
    score = (own * weight).sum(1) + (between * weight[:, 1:]).sum(1)
    return score + torch.where(mask[:, 0], steps.begin[tags[:, 0]] + steps.end[last], 0.0)


def log_partition(emissions: Tensor, mask: Tensor, steps: Transitions) -> Tensor:
    """(B,): log Σ exp score over all sequences of tags; 0 for a row without words."""
    if not emissions.shape[1]:
        return emissions.new_zeros(len(emissions))
    over_time = emissions.transpose(0, 1)  # (T, B, K)
    alpha = steps.begin + over_time[0]  # (B, K)
    for emitted, is_word in zip(over_time[1:], mask.t()[1:], strict=True):
        new = torch.logsumexp(alpha.unsqueeze(2) + steps.transitions, 1) + emitted
        alpha = torch.where(is_word.unsqueeze(1), new, alpha)
    total = torch.logsumexp(alpha + steps.end, 1)
    return torch.where(mask[:, 0], total, 0.0)


@torch.no_grad()
def viterbi(emissions: Tensor, mask: Tensor, steps: Transitions) -> Tensor:
    """The tag sequence with the highest score of each row (B, T); 0 where the mask is False."""
    length = emissions.shape[1]
    if not length:
        return emissions.new_zeros(emissions.shape[:2], dtype=torch.long)
    over_time, is_word = emissions.transpose(0, 1), mask.t().unsqueeze(2)  # (T, B, K), (T, B, 1)
    best = steps.begin + over_time[0]  # (B, K)
    stay = torch.arange(emissions.shape[2], device=emissions.device).expand_as(best)
    pointers: list[Tensor] = []  # the best previous tag of each tag
    for emitted, now in zip(over_time[1:], is_word[1:], strict=True):
        value, before = (best.unsqueeze(2) + steps.transitions).max(1)
        pointers.append(torch.where(now, before, stay))
        best = torch.where(now, value + emitted, best)
    tag = (best + steps.end).argmax(1, keepdim=True)  # (B, 1)
    path = [tag]
    for before in reversed(pointers):
        tag = before.gather(1, tag)
        path.append(tag)
    return torch.cat(path[::-1], 1).masked_fill(~mask, 0)
