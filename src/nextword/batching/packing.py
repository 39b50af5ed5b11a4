"""Several pairs in one row, none of which sees another.

    source     a a a end b b end · ·      segments   1 1 1 1 2 2 2 0 0       0 is padding, and sees itself alone
    fed        begin A begin B B B        segments   1 1 2 2 2 2
    predicted  A end B B B end            padding goes on with the segment before it: nothing of it is predicted, and
                                          nothing that is comes after it
    attention from p to q, also of target to source:  segments[p] == segments[q]

A pair lies in one piece, so that what counts between two of its tokens, their distance, is what it is where the pair is
alone. Pairs are put, in the order in which they are drawn, into the first of a few open rows that has room on both
sides; where none has, the oldest row is closed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from nextword.compiled import compiled
from nextword.contract import IGNORE, Batch, Inputs

OPEN = 16  # rows

Row = Sequence[tuple[np.ndarray, np.ndarray]]  # pairs of source and target


def boxes(source: np.ndarray, target: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs row by row, and where in that order each row begins and the last one ends. Each must fit by itself."""
    row = np.empty(len(source), np.int64)
    count = _fill(source.astype(np.int64), target.astype(np.int64), room, row, np.zeros((OPEN, 3), np.int64))
    return np.argsort(row, kind="stable"), np.concatenate(([0], np.cumsum(np.bincount(row, minlength=count))))


@compiled
def _fill(source, target, room, row, rows):
    """`rows` are the open ones: tokens read and written so far, and its number; `row` becomes that of each pair."""
    count = len(rows)
    rows[:, 2] = np.arange(count)
    used = 0  # rows that have something in them
    for i in range(len(source)):
        chosen = -1
        for k in range(count):
            if rows[k, 0] + source[i] <= room and rows[k, 1] + target[i] <= room:
                chosen = k
                break
        if chosen < 0:
            chosen = int(np.argmin(rows[:, 2]))
            rows[chosen, 0] = rows[chosen, 1] = 0
            rows[chosen, 2] = rows[:, 2].max() + 1
        rows[chosen, 0] += source[i]
        rows[chosen, 1] += target[i]
        row[i] = rows[chosen, 2]
        used = max(used, row[i] + 1)
    return used


def packed(rows: Sequence[Row], begin: int, epoch: int = 0) -> Batch:
    """A batch of such rows, as long as the longest of them."""
    sizes = [[sum(len(pair[side]) for pair in row) for row in rows] for side in (0, 1)]
    shapes = [(len(rows), max(size)) for size in sizes]
    ids, segments = np.zeros(shapes[0], np.int64), np.zeros(shapes[0], np.int64)
    fed, targets = np.zeros(shapes[1], np.int64), np.full(shapes[1], IGNORE, np.int64)
    own = np.zeros(shapes[1], np.int64)
    for r, row in enumerate(rows):
        at = to = 0
        for number, (source, target) in enumerate(row, 1):
            ids[r, at : at + len(source)] = source
            segments[r, at : at + len(source)] = number
            fed[r, to] = begin
            fed[r, to + 1 : to + len(target)] = target[:-1]
            targets[r, to : to + len(target)] = target
            own[r, to:] = number
            at, to = at + len(source), to + len(target)
    there = torch.from_numpy(segments > 0)
    read = Inputs(torch.from_numpy(ids), there, segments=torch.from_numpy(segments))
    inputs = Inputs(torch.from_numpy(fed), torch.from_numpy(targets != IGNORE), torch.from_numpy(own), source=read)
    return Batch(inputs, torch.from_numpy(targets), fresh=True, epoch=epoch, predicted=sum(sizes[1]))
