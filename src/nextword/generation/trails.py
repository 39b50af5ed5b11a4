"""No n-gram twice, for rows that change places at every step: what each has written, as one tensor.

`rules.py` remembers in tables which ids have followed which: a step then costs the same however long the text is. But
tables are copied when hypotheses part, and filled with ids that a GPU must be asked for. Here nothing is asked.

    n = 3     a b c a b ?
              ─── ▲ ───        the last two ids stood there before, and c came after them: c may not be written now
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

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
