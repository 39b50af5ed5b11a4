"""Blanks of unknown length, each filled from left to right until it is over, by a network that writes pieces.

    read      The M sat on the M .          part A, its blanks as masks
    written   cat E │ red mat E             a piece for each, after all pieces before it

Such a network (models/glm.py) has `pieces`, the ids around pieces and in their place, and beside `step`

    opened(ids, lengths) → state            part A was read
    turned(state, rows, at) → state         these rows begin a piece, in place of the mask at a position

`Filler` makes one text of all pieces, so that `search` and `tokens_batch` fill blanks as they write on. A piece has a
token at least, and does not go on with a word that stands before the blank. The log-probability of a filling is exact:
log p(pieces, each with its end | what is around them).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword import nest
from nextword.contract import IGNORE, Beam, Contrastive, Decoding, Inputs, State
from nextword.contract_errors import Unsupported
from nextword.contract_protocols import Tokenizer
from nextword.generation.beam import search
from nextword.generation.choosing import seeded
from nextword.generation.hypotheses import Hypothesis
from nextword.generation.sampling import tokens_batch

TOGETHER = 8192  # tokens read at once


@dataclass(frozen=True)
class Gapped:
    """A text with blanks, as a network reads it."""

    ids: tuple[int, ...]  # part A
    places: tuple[int, ...]  # where its masks stand, in the order in which they are filled
    lettered: tuple[bool, ...]  # whether a letter stands before each


class Filler:
    """What `step` says of the next token of a piece or, after a piece's end, of the first token of the next one.

    The end of the last piece has an id of its own, `done`, one beyond the vocabulary: there the text is over. `inner`
    (V,) are ids that go on with a word.
    """

    def __init__(self, network: Any, inner: Tensor) -> None:
        self.network, self.inner = network, inner.to(network.device)
        self.done = network.vocabulary.size

    def begin(self, texts: Sequence[Gapped]) -> tuple[Tensor, State]:
        """What to feed first, and the state before it: as if a piece had just ended."""
        device = self.network.device
        ids, lengths = (t.to(device) for t in _rows([text.ids for text in texts]))
        places, count = (t.to(device) for t in _rows([text.places for text in texts]))
        lettered = _rows([text.lettered for text in texts])[0].to(device) > 0
        state = {"own": self.network.opened(ids, lengths), "places": places, "lettered": lettered, "count": count}
        return torch.full_like(count, self.network.pieces.end), {**state, "which": torch.full_like(count, -1)}

    def step(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        marks = self.network.pieces
        fresh = last == marks.end
        which = (state["which"] + fresh).clamp(max=state["places"].shape[1] - 1)
        here = which.unsqueeze(1)
        own = self.network.turned(state["own"], fresh, state["places"].gather(1, here).squeeze(1))
        fed = torch.where(fresh, marks.begin, last.clamp(max=self.done - 1))
        log_p, own = self.network.step(fed, own)
        lettered = state["lettered"].gather(1, here).squeeze(1)
        log_p = log_p.masked_fill((fresh & lettered).unsqueeze(1) & self.inner, -math.inf)
        over = log_p[:, marks.end].masked_fill(fresh, -math.inf)
        final = which == state["count"] - 1
        log_p = torch.cat([log_p, over.masked_fill(~final, -math.inf).unsqueeze(1)], 1)
        log_p[:, marks.end] = over.masked_fill(final, -math.inf)
        return log_p, {**state, "own": own, "which": which}

    def reorder(self, state: State, rows: Tensor, searches: list[int] | None) -> State:
        rest = {name: part for name, part in state.items() if name != "own"}
        return {**nest.take(rest, rows), "own": self.network.reorder(state["own"], rows, searches)}


@torch.no_grad()
def filled(
    network: Any,
    texts: Sequence[Gapped],
    inner: Tensor,
    how: Decoding,
    length: int,
    n: int = 1,
    *,
    banned: Sequence[int] = (),
    least: int = 0,
) -> list[list[Hypothesis]]:
    """The n best fillings of each text that a beam finds; one that is drawn, or greedy. At most `length` tokens, ends
    of pieces among them; the last id is `Filler.done` where all are filled. Text i is drawn with `how.seed` + i."""
    filler = Filler(network, inner)
    length = min(length, network.window)
    found: list[list[Hypothesis]] = []
    for some in _batches(texts, length):
        rows = range(len(found), len(found) + len(some))
        found += written(filler, *filler.begin(some), how, length, filler.done, rows, n, banned=banned, least=least)
    return found


@torch.no_grad()
def written(
    model: Any,
    last: Tensor,
    state: State,
    how: Decoding,
    length: int,
    end: int,
    rows: Sequence[int],
    n: int = 1,
    *,
    banned: Sequence[int] = (),
    least: int = 0,
) -> list[list[Hypothesis]]:
    """What fills the blanks of some texts: the n best of each; one that is drawn, with `how.seed` + row, or greedy."""
    if isinstance(how, Contrastive):
        raise Unsupported("Contrastive search writes on from a prompt, and fills no blanks. Draw, or use a beam.")
    if isinstance(how, Beam):
        return search(model, last, state, how, length, end, n=n, banned=banned, least=least)
    draws = [seeded(how, row) for row in rows]
    made = tokens_batch(model, last, state, how, length, end, banned=banned, least=least, generators=draws)
    found: list[list[Hypothesis]] = []
    for ids, own, size in zip(*(t.tolist() for t in made), strict=True):
        log_probs = tuple(own[:size])
        complete = bool(size) and ids[size - 1] == end
        found.append([Hypothesis(tuple(ids[:size]), log_probs, math.fsum(log_probs), complete)])
    return found


@torch.no_grad()
def likeliest(
    network: Any, text: Gapped, inner: Tensor, k: int, *, banned: Sequence[int] = (), width: int = 64, length: int = 16
) -> list[Hypothesis]:
    """The k likeliest pieces for one blank, of up to `length` tokens, best first; may be fewer.

    Unlike in a beam, nothing that has ended takes the place of what has not: at each step every piece that may end here
    is counted, and the likeliest `width` beginnings go on, until none of them can become one of the k.
    """
    filler = Filler(network, inner)
    last, state = filler.begin([text])
    never = torch.tensor(banned, dtype=torch.long, device=last.device)
    totals = torch.zeros(1, dtype=torch.float64, device=last.device)
    growing: list[tuple[tuple[int, ...], tuple[float, ...]]] = [((), ())]
    found: list[Hypothesis] = []
    for _ in range(length + 1):
        log_p, state = filler.step(last, state)
        own = log_p.double().index_fill(1, never, -math.inf)  # (H, V + 1)
        for (ids, before), end in zip(growing, own[:, filler.done].tolist(), strict=True):
            if end > -math.inf:
                found.append(Hypothesis((*ids, filler.done), (*before, end), math.fsum((*before, end)), True))
        found = sorted(found, key=lambda one: -one.score)[:k]
        goes_on = (totals.unsqueeze(1) + own)[:, : filler.done].flatten()
        best = goes_on.topk(min(width, len(goes_on)))
        least = found[-1].score if len(found) == k else -math.inf
        keep = best.values > least
        totals, at = best.values[keep], best.indices[keep]
        if not len(at):
            break
        rows, last = at // filler.done, at % filler.done
        costs = own[rows, last].tolist()
        pairs = zip(rows.tolist(), last.tolist(), costs, strict=True)
        growing = [((*growing[row][0], id), (*growing[row][1], cost)) for row, id, cost in pairs]
        state = nest.take(state, rows)
    return found


def divided(network: Any, ids: Sequence[int]) -> list[list[int]]:
    """What was written, piece by piece; the last may have no end."""
    pieces: list[list[int]] = [[]]
    for id in ids:
        if id in (network.pieces.end, network.vocabulary.size):
            pieces.append([])
        else:
            pieces[-1].append(id)
    return pieces if pieces[-1] else pieces[:-1]


@torch.no_grad()
def filling_nats(network: Any, texts: Sequence[Gapped], pieces: Sequence[Sequence[Sequence[int]]]) -> list[float]:
    """−log p of these pieces, and that each is over, in place of each text's blanks, in their order."""
    marks = network.pieces
    rows: list[tuple[Any, ...]] = []
    for text, own in zip(texts, pieces, strict=True):
        read, where, inside, targets = list(text.ids), list(range(len(text.ids))), [0] * len(text.ids), []
        for place, piece in zip(text.places, own, strict=True):
            read += [marks.begin, *piece]
            where += [place] * (len(piece) + 1)
            inside += range(1, len(piece) + 2)
            targets += [*piece, marks.end]
        rows.append((read, where, inside, [IGNORE] * len(text.ids) + targets))
    found: list[float] = []
    for some in _batches(rows, 0, lambda row: len(row[0])):
        ids, first, second, wanted = (
            _rows(column, fill)[0].to(network.device)
            for column, fill in zip(zip(*some, strict=True), (marks.begin, 0, 1, IGNORE), strict=True)
        )
        h = network.hidden(Inputs(ids, positions=torch.stack([first, second], -1)), None)[0][-1]
        nats = network.readout.nll(h.flatten(0, 1), wanted.flatten()).view(wanted.shape)
        found += nats.double().sum(1).tolist()
    return found


def unwritten(tokenizer: Tokenizer, end: int) -> list[int]:
    """Special ids that stand in no text, but for the end; and what stands for unknown words."""
    special = tokenizer.special
    silent = [id for id in special.values() if id != end and not tokenizer.piece(id)]
    return silent + [id for name, id in special.items() if "unk" in name.lower() and id != end]


def _rows(rows: Sequence[Sequence[int]], fill: int = 0) -> tuple[Tensor, Tensor]:
    """(B, T), padded at their end, and their lengths (B,)."""
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), int(lengths.max())), fill, np.int64)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return torch.from_numpy(padded), torch.from_numpy(lengths)


def _batches(rows: Sequence[Any], more: int, size: Any = lambda text: len(text.ids)) -> Iterator[Sequence[Any]]:
    """Neighbours that are read together, padded to the longest of them and `more`."""
    first, longest = 0, 0
    for i, row in enumerate(rows):
        longest = max(longest, size(row) + more)
        if i > first and (i + 1 - first) * longest > TOGETHER:
            yield rows[first:i]
            first, longest = i, size(row) + more
    if len(rows) > first:
        yield rows[first:]
