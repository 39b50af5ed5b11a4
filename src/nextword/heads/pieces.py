"""Texts of any length, read piece by piece with the state carried over; the gradient reaches back as far as is kept.

    chunk = 3, kept = 7      a b c│d e f│g h i│j k            of 11 tokens
                             no gradient│ kept: read by the head, and learnt through

Backpropagation through time for text classification (BPT3C: Howard & Ruder 2018, section 3.3). Pieces begin at
multiples of `chunk`, and those are kept that begin among the last `kept` tokens: so fastai does it. Within what is kept
the state is carried with its gradient, so that for a text no longer than that all is as if it were read at once. What
lies before costs time, but no memory. For networks that carry their state from left to right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from nextword import nest
from nextword.contract import Batch, Inputs, State

TOGETHER = 2048  # tokens of all texts that are read at once, where nothing is learnt, or drawn for a piece

Read = Callable[[Inputs, State], tuple[Tensor, State]]  # what the head reads (B, T, D), and the state after it


def skipped(sizes: Sequence[int], chunk: int, kept: int) -> np.ndarray:
    """Tokens at the beginning of each text that are read without a gradient; `kept` = 0: none."""
    beyond = np.maximum(np.array(sizes, np.int64) - kept, 0) if kept else np.zeros(len(sizes), np.int64)
    return -(-beyond // chunk) * chunk


def in_pieces(
    read: Read, initial: State, batch: Batch, chunk: int, kept: int, drawn: bool = True
) -> tuple[Tensor, Batch]:
    """The vectors of what is kept (frames, T, D), and the batch as it lies then: rows of that alone, padded.

    `initial` is the state that every frame begins with, a row each. `drawn`: dropout is drawn for every piece; where it
    is not, what is not kept is read many pieces at once, which says the same.
    """
    inputs = batch.inputs
    begins, sizes = _layout(inputs)
    ids, device = inputs.ids.reshape(-1), inputs.ids.device
    skips = skipped(sizes.tolist(), chunk, kept)
    state = initial
    with torch.no_grad():
        at = 0
        while len(those := np.flatnonzero(skips > at)):  # they go on together until one of them is as far as it goes
            until, going = int(skips[those].min()), torch.from_numpy(those).to(device)
            some = nest.take(state, going)
            step = chunk if drawn else chunk * max(1, TOGETHER // (len(those) * chunk))
            for begin in range(at, until, step):
                piece = begins[those, None] + np.arange(begin, min(begin + step, until))
                some = read(_whole(inputs, ids[torch.from_numpy(piece).to(device)]), some)[1]
            state, at = _put(state, going, some), until
    rest = sizes - skips
    there = np.arange(int(rest.max())) < rest[:, None]
    places = np.where(there, (begins + skips)[:, None] + np.arange(there.shape[1]), begins[:, None])
    rows = ids[torch.from_numpy(places).to(device)]
    found = []
    for at in range(0, rows.shape[1], chunk):
        those = np.flatnonzero(rest > at)  # a text that has ended is read no further
        if len(those) == len(rows):
            h, state = read(_whole(inputs, rows[:, at : at + chunk]), state)
        else:
            going = torch.from_numpy(those).to(device)
            some, after = read(_whole(inputs, rows[going, at : at + chunk]), nest.take(state, going))
            h, state = some.new_zeros(len(rows), *some.shape[1:]).index_copy(0, going, some), _put(state, going, after)
        found.append(h)
    assert batch.at is not None
    moved = torch.from_numpy(np.arange(len(sizes)) * there.shape[1] - begins - skips).to(device)
    laid = Inputs(rows, torch.from_numpy(there).to(device), sizes=tuple(rest.tolist()))
    return torch.cat(found, 1), replace(batch, inputs=laid, at=batch.at + moved)


def _whole(inputs: Inputs, ids: Tensor) -> Inputs:
    """Ids of rows without padding, or with some that nobody looks at: from left to right it comes too late."""
    return replace(inputs, ids=ids, padding=None, starts=None, sizes=None)


def _layout(inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
    """Where each frame begins among the flat ids, and its tokens."""
    rows, width = inputs.ids.shape
    if inputs.starts is not None:
        sizes = np.array(inputs.sizes or inputs.starts.diff().tolist(), np.int64)
        return np.cumsum(sizes) - sizes, sizes
    there = [width] * rows if inputs.padding is None else inputs.padding.sum(1).tolist()
    return np.arange(rows) * width, np.array(inputs.sizes or there, np.int64)


def _put(state: State, rows: Tensor, values: State) -> State:
    """The state with these rows replaced."""
    new, _ = nest.flatten(values, "state")
    old, shape = nest.flatten(state, "state")
    return nest.unflatten({name: t.index_copy(0, rows, new[name].to(t.dtype)) for name, t in old.items()}, shape)
