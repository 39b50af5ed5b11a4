"""What each of three networks writes into a blank of unknown length, and what the true words cost it.

    GLM     left M right           pieces and their end, by its own beam: log p is exact, length included
    BERT    left [MASK]ⁿ right     n is in no network: for every n pieces are followed from left to right, those to come
                                   still hidden, and P(n) is how often blanks of the text learnt from have n pieces
    GPT-2   left                   what may come next, of every length, with the same P(n)
            left {x, y, …} right   rescored: those found share their probability by how well the right side follows

All of these are distributions over fillings of any length, so their nats compare. Whoever is told the number of pieces
has P(n) = 1. BERT has three ways more: told the number, all pieces at once, none knowing of the others; not told, the
filling that is likeliest a token if it and its neighbours are hidden one by one; and what the truth costs when it is
hidden so, a pseudo-likelihood, which is no distribution and compares with nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nextword.contract import Beam, Inputs
from nextword.generation.blanks import Pieces
from nextword.generation.pieces import Gapped, divided, filled, filling_nats, unwritten
from nextword.studies.blanks_asked import Blank, Rules
from nextword.studies.blanks_verdict import AT_ONCE, BERT_NAME, GLM_NAME, GPT, LIKED, PSEUDO, RESCORED, TOLD_BERT, TOLD_GPT
from nextword.tokens.marks import Marks

TOGETHER = 1 << 14  # tokens read at once
SEARCHED = 64  # blanks searched side by side

Ids = tuple[int, ...]


class Found(NamedTuple):
    """Pieces that may fill a blank, and their log p."""

    ids: Ids
    log_p: float


class Answer(NamedTuple):
    """What one way of filling says of all blanks; None where it says nothing."""

    written: list[Ids] | None
    nats: np.ndarray | None  # (n,) of the truth


Answers = dict[str, Answer]


# ------------------------------------------------------------------------------------------------ reading


@torch.no_grad()
def said(network: Any, rows: Sequence[Sequence[int]], at: Sequence[int]) -> Tensor:
    """log p (n, V) of what stands at a place in each row; or after it, for who reads from the left."""
    found = []
    for here in _parts(rows):
        ids, padding = _padded(rows[here], network.device)
        first = torch.arange(len(ids), device=ids.device) * ids.shape[1]
        places = first + torch.tensor(at[here], device=ids.device)
        if hasattr(network, "fill"):
            found.append(network.fill(Inputs(ids, padding), places).float())
        else:
            h = network.hidden(Inputs(ids), None)[0][-1]
            found.append(network.readout.log_probs(h.flatten(0, 1)[places]).float())
    return torch.cat(found)


@torch.no_grad()
def followed(network: Any, rows: Sequence[Sequence[int]], first: Sequence[int]) -> np.ndarray:
    """log p (n,) of what stands in each row from a place on, from left to right, given what is before it."""
    found = []
    for here in _parts(rows):
        ids, padding = _padded(rows[here], network.device)
        h = network.hidden(Inputs(ids), None)[0][-1][:, :-1]
        columns = torch.arange(1, ids.shape[1], device=ids.device)
        asked = padding[:, 1:] & (columns >= torch.tensor(first[here], device=ids.device).unsqueeze(1))
        nats = network.readout.nll(h[asked], ids[:, 1:][asked]).double()
        none = torch.zeros(len(ids), dtype=torch.float64, device=ids.device)
        found.append(none.index_add(0, asked.nonzero()[:, 0], -nats))
    return torch.cat(found).cpu().numpy()


def _parts(rows: Sequence[Sequence[int]]) -> Iterator[slice]:
    many = max(1, TOGETHER // max(map(len, rows), default=1))
    return (slice(first, first + many) for first in range(0, len(rows), many))


def _padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """(B, T), and where there is a token (B, T)."""
    lengths = np.array([len(row) for row in rows])
    there = np.arange(lengths.max()) < lengths[:, None]
    ids = np.zeros(there.shape, np.int64)
    ids[there] = [id for row in rows for id in row]
    return torch.from_numpy(ids).to(device), torch.from_numpy(there).to(device)


# ------------------------------------------------------------------------------------------------ searching

Beams = list[list[Found]]  # of each blank, the same number
Says = Callable[[Sequence[Blank], Beams], Tensor]  # log p (all rows of the beams, V) of a piece more


def grown(blanks: Sequence[Blank], says: Says, steps: int, rules: Rules) -> Iterator[Beams]:
    """A beam for each blank: its likeliest beginnings of one piece, of two, … , best first."""
    inner = Pieces(rules.tokenizer).inner
    never = torch.zeros(len(rules.tokenizer), dtype=torch.bool)
    never[list(rules.tokenizer.special.values())] = True
    beams: Beams = [[Found((), 0.0)] for _ in blanks]
    for step in range(steps):
        log_p = says(blanks, beams).cpu().double()
        log_p[:, never if step else never | inner] = -math.inf  # a blank begins with a word of its own
        before = torch.tensor([[one.log_p for one in beam] for beam in beams], dtype=torch.float64)  # (B, J)
        size = log_p.shape[1]
        total = (log_p.view(*before.shape, size) + before.unsqueeze(-1)).flatten(1)
        best = total.topk(min(rules.width, total.shape[1]))
        beams = [
            [Found((*beam[i // size].ids, i % size), value) for value, i in zip(values, at, strict=True)]
            for beam, values, at in zip(beams, best.values.tolist(), best.indices.tolist(), strict=True)
        ]
        yield beams


def in_turns(blanks: Sequence[Blank]) -> Iterator[Sequence[Blank]]:
    return (blanks[first : first + SEARCHED] for first in range(0, len(blanks), SEARCHED))


def weighed(found: Sequence[Found], rules: Rules) -> list[Found]:
    """Fillings of several lengths, with P(n)."""
    return [Found(one.ids, one.log_p + rules.log_share(one.ids)) for one in found]


def likeliest(found: Sequence[Found]) -> Ids:
    return max(found, key=lambda one: one.log_p).ids


def log_shares(blanks: Sequence[Blank], rules: Rules) -> np.ndarray:
    return np.array([rules.log_share(blank.piece) for blank in blanks])


# ------------------------------------------------------------------------------------------------ GLM


def glm_fills(network: Any, blanks: Sequence[Blank], rules: Rules) -> Answers:
    marks = network.pieces
    # What texts begin with is [CLS], which is there; and no blank goes on with the word before it
    texts = [Gapped((*b.left, marks.masks[0], *b.right), (len(b.left),), (True,)) for b in blanks]
    banned, inner = unwritten(rules.tokenizer, marks.end), Pieces(rules.tokenizer).inner
    best = filled(network, texts, inner, Beam(rules.width), rules.most + 1, banned=banned)
    written = [tuple((divided(network, some[0].ids) or [[]])[0]) for some in best]
    return {GLM_NAME: Answer(written, np.array(filling_nats(network, texts, [[blank.piece] for blank in blanks])))}


# ------------------------------------------------------------------------------------------------ GPT-2


def gpt_fills(network: Any, blanks: Sequence[Blank], rules: Rules) -> Answers:
    def says(some: Sequence[Blank], beams: Beams) -> Tensor:
        rows = [[*blank.left, *one.ids] for blank, beam in zip(some, beams, strict=True) for one in beam]
        return said(network, rows, [len(row) - 1 for row in rows])

    told: list[Ids] = []
    every: list[list[Found]] = []  # of each blank
    for some in in_turns(blanks):
        by_length = list(grown(some, says, rules.most, rules))
        told += [by_length[len(blank.piece) - 1][i][0].ids for i, blank in enumerate(some)]
        every += [weighed([one for beams in by_length for one in beams[i]], rules) for i in range(len(some))]
    alone = [likeliest(own) for own in every]
    known = followed(network, [[*b.left, *b.piece] for b in blanks], [len(b.left) for b in blanks])  # log p (n,)
    unknown = known + log_shares(blanks, rules)
    rescored, nats = [], []
    for blank, own, log_p in zip(blanks, every, unknown.tolist(), strict=True):
        rows = [blank.with_in(one.ids) for one in own]
        follows = followed(network, rows, [len(blank.left) + len(one.ids) for one in own])
        best, cost = shared(own, follows, blank, log_p)
        rescored.append(best)
        nats.append(cost)
    return {
        GPT: Answer(alone, -unknown),
        TOLD_GPT: Answer(told, -known),
        RESCORED: Answer(rescored, np.array(nats)),
    }


def shared(every: Sequence[Found], follows: np.ndarray, blank: Blank, own: float) -> tuple[Ids, float]:
    """The likeliest by what follows, and nats of the truth: those found share the probability that they have together,
    and a truth that was not found keeps its `own` log p."""
    log_p = np.array([one.log_p for one in every])
    both = log_p + follows
    share = both - np.logaddexp.reduce(both) + np.logaddexp.reduce(log_p)
    true = [i for i, one in enumerate(every) if one.ids == blank.piece]
    return every[int(both.argmax())].ids, -float(share[true[0]] if true else own)


# ------------------------------------------------------------------------------------------------ BERT


def bert_fills(network: Any, blanks: Sequence[Blank], rules: Rules) -> Answers:
    best: list[list[Found]] = [[] for _ in blanks]  # of each blank the likeliest of each length
    for n in range(1, rules.most + 1):
        last = [beam for some in in_turns(blanks) for beam in list(grown(some, _hidden(network, n), n, rules))[-1]]
        for own, beam in zip(best, last, strict=True):
            own.append(beam[0])
    told = [own[len(blank.piece) - 1].ids for blank, own in zip(blanks, best, strict=True)]
    alone = [likeliest(weighed(own, rules)) for own in best]
    liked = [
        own[int(pseudo(network, [(blank, one.ids) for one in own], beside=1)[1].argmax())].ids
        for blank, own in zip(blanks, best, strict=True)
    ]
    one_by_one, at_once = (truth(network, blanks, together) for together in (False, True))
    costs = pseudo(network, [(blank, blank.piece) for blank in blanks], beside=0)[0]
    assert one_by_one.nats is not None
    return {
        BERT_NAME: Answer(alone, one_by_one.nats - log_shares(blanks, rules)),
        LIKED: Answer(liked, None),
        TOLD_BERT: Answer(told, one_by_one.nats),
        AT_ONCE: at_once,
        PSEUDO: Answer(None, -costs),
    }


def _hidden(network: Any, n: int) -> Says:
    """n pieces are missing; the first of them are there."""
    mask = Marks.of(network.vocabulary).mask

    def says(some: Sequence[Blank], beams: Beams) -> Tensor:
        pairs = [(blank, one.ids) for blank, beam in zip(some, beams, strict=True) for one in beam]
        rows = [blank.with_in([*ids, *[mask] * (n - len(ids))]) for blank, ids in pairs]
        return said(network, rows, [len(blank.left) + len(ids) for blank, ids in pairs])

    return says


def truth(network: Any, blanks: Sequence[Blank], together: bool) -> Answer:
    """BERT that is told the number of pieces: the likeliest in each place, and nats of the truth; all pieces hidden, or
    one by one, the true ones before it being there."""
    mask = Marks.of(network.vocabulary).mask
    rows, at, ids = [], [], []
    for blank in blanks:
        for k, id in enumerate(blank.piece):
            seen = () if together else blank.piece[:k]
            rows.append(blank.with_in([*seen, *[mask] * (len(blank.piece) - len(seen))]))
            at.append(len(blank.left) + k)
            ids.append(id)
    log_p = said(network, rows, at).cpu()
    costs = -log_p.gather(1, torch.tensor(ids).unsqueeze(1)).squeeze(1).double().numpy()
    edges = np.cumsum([0, *(len(blank.piece) for blank in blanks)])
    best = log_p.argmax(1).tolist()
    written = [tuple(best[i:j]) for i, j in pairwise(edges.tolist())]
    return Answer(written if together else None, np.add.reduceat(costs, edges[:-1]))


def pseudo(network: Any, fillings: Sequence[tuple[Blank, Ids]], beside: int) -> tuple[np.ndarray, np.ndarray]:
    """log p of each filling and of so many tokens on either side, hidden one by one: their sum (n,), and mean (n,)."""
    mask = Marks.of(network.vocabulary).mask
    rows, at, ids, own = [], [], [], []
    for i, (blank, filling) in enumerate(fillings):
        row = blank.with_in(filling)
        for place in range(len(blank.left) - beside, len(blank.left) + len(filling) + beside):
            rows.append([*row[:place], mask, *row[place + 1 :]])
            at.append(place)
            ids.append(row[place])
            own.append(i)
    log_p = said(network, rows, at).cpu().gather(1, torch.tensor(ids).unsqueeze(1)).squeeze(1).double().numpy()
    total = np.bincount(own, log_p, len(fillings))
    return total, total / np.bincount(own, minlength=len(fillings))
