"""One id for each row of scores: the likeliest, or one drawn under temperature, top-k, top-p, min-p and typicality.

`rules.py` says what these are, over the whole vocabulary. Here they are the same functions over few ids: what lies
outside the nucleus need not be sorted, nor summed, to be left out.

    scores (B, V) ──top-k, or a top that must hold the nucleus──▶ scores (B, K) and their ids, in order ──▶ one id
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from nextword.contract import Decoding, Greedy, Sample
from nextword.generation.rules import ensure_numbers, fewest, min_p, normalise, sharpened, total, typicality

NOTHING = -1  # in place of an id, where the rules leave none
WIDTHS = (1024, 8192)  # ids to look for the nucleus among, before it is looked for among all

Generators = torch.Generator | Sequence[torch.Generator]  # for all rows, or for each


def choose(scores: Tensor, how: Greedy | Sample, generators: Generators) -> Tensor:
    """One id for each row of the scores (B, V) → (B,); NOTHING where a row is all -inf.

    After a step of a large network every operation finds the caches cold: few are made, not only small ones.
    """
    if isinstance(how, Greedy) or takes_the_best(how):
        best, chosen = scores.max(dim=-1)
        values = best.tolist()
        ensure_numbers(values)
    else:
        best = scores.amax(dim=-1, keepdim=True)
        values = best.flatten().tolist()
        ensure_numbers(values)
        few, ids = narrowed(scores, how, best if -math.inf not in values else None)
        chosen = draw(few, generators)
        if ids is not None:
            chosen = ids.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
    return chosen.masked_fill(best.view(-1) == -math.inf, NOTHING) if -math.inf in values else chosen


def takes_the_best(how: Greedy | Sample) -> bool:
    return isinstance(how, Greedy) or how.temperature == 0


def likeliest(scores: Tensor, log_probs: Tensor) -> tuple[Tensor, list[int], list[float]]:
    """What `choose` says where the best is taken, as a tensor of ids that exist and as a list, and the log p of each.

    For a GPU: all that must be known here comes over at once, for to ask three times is to wait three times.
    """
    best, chosen = scores.max(dim=-1)
    own = log_probs.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
    values, ids, known = torch.stack((best.double(), chosen.double(), own.double())).tolist()
    ensure_numbers(values)
    return chosen, [NOTHING if value == -math.inf else int(id) for value, id in zip(values, ids, strict=True)], known


def narrowed(scores: Tensor, how: Sample, best: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """What may be drawn, as scores (B, K) in proportion to log p, at most 0, and their ids in order; None: all ids.

    `best`: the greatest of each row (B, 1), where it is known and finite.
    """
    scores, ids = sharpened(scores, how.temperature, best), None
    if 0 < how.top_k < scores.shape[-1]:
        ids = greatest(scores, how.top_k)
        scores = scores.gather(-1, ids)
    if how.top_p < 1:
        whole = total(scores)
        scores, ids = _among_few(lambda few, key: fewest(few - whole, key, how.top_p), scores, scores, ids)
    if how.min_p > 0:
        scores, ids = _among_few(lambda few, _: min_p(few, how.min_p), scores, scores, ids)
    if how.typical < 1:
        scores = normalise(scores)
        scores, ids = _among_few(lambda few, key: fewest(few, key, how.typical), scores, typicality(scores), ids)
    return scores, ids


Rule = Callable[[Tensor, Tensor], Tensor]  # scores, and the key whose greatest it keeps → scores, else -inf


def _among_few(rule: Rule, scores: Tensor, key: Tensor, ids: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """What the rule keeps, looked for among the ids of greatest key alone where these settle it for every row."""
    for width in WIDTHS:
        if 2 * width > scores.shape[-1]:
            break
        at = greatest(key, width)  # in order, so that of equals the first comes first, as among all
        near = key.gather(-1, at)
        found = rule(scores.gather(-1, at), near)
        # Ids at the edge may have equals beyond it: settled is what stays clear of the edge.
        least = near.masked_fill(found == -math.inf, math.inf).amin(dim=-1)
        if bool((least > near.amin(dim=-1)).all()):
            return found, at if ids is None else ids.gather(-1, at)
    return rule(scores, key), ids


def greatest(values: Tensor, k: int) -> Tensor:
    """The ids of the k greatest of each row (B, V), in the order of the ids (B, k); of equals at the edge, any."""
    if values.device.type != "cpu":
        return values.topk(k, dim=-1).indices.sort(dim=-1).values
    found = np.argpartition(values.detach().numpy(), -k, axis=-1)[:, -k:]  # on a CPU a fraction of topk's time
    found.sort(axis=-1)
    return torch.from_numpy(found)


def draw(scores: Tensor, generators: Generators) -> Tensor:
    """One id for each row, with probability in proportion to exp(scores), by inverting the cumulative sum.

    Scores are log-probabilities, or else at most 0 with the best near it. One uniform number a row, drawn on the CPU:
    the same seed writes the same text on every device.
    """
    if isinstance(generators, torch.Generator):
        uniform = torch.rand(len(scores), 1, generator=generators, dtype=torch.float64)
    else:
        uniform = torch.cat([torch.rand(1, 1, generator=one, dtype=torch.float64) for one in generators])
    cumulative = scores.exp().cumsum(dim=-1, dtype=torch.float64)
    # The first id whose sum is above a number below the whole: never an id of probability zero, which adds nothing.
    chosen = torch.searchsorted(cumulative, uniform.to(scores.device) * cumulative[:, -1:], right=True)
    return chosen.squeeze(1).clamp(max=scores.shape[-1] - 1)


def seeded(how: Decoding, row: int = 0) -> torch.Generator:
    """A generator that starts at the seed asked for, or anywhere. Row i of many is written as with the seed + i."""
    generator = torch.Generator()
    if isinstance(how, Sample) and how.seed is not None:
        generator.manual_seed((how.seed + row) % 2**63)
    else:
        generator.seed()
    return generator
