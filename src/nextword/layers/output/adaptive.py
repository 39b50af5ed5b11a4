"""Adaptive softmax: frequent words in one small softmax, rare ones behind it, in clusters with narrow vectors.

Grave et al., "Efficient softmax approximation for GPUs" (2017); the same function as torch's
`nn.AdaptiveLogSoftmaxWithLoss`, whose weights fit here name by name.

    cutoffs = [2000, 10000], V = 50000, D = 200

    head   D → 2000 words and 2 clusters
    tail 0       cluster 2000 … 9999     D → D/4  → 8000       reached by the rows whose target is there
    tail 1       cluster 10000 … V−1     D → D/16 → 40000

Ranks are those of frequency in the training text, so ids may come in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import InvalidSetting
from nextword.layers.output.base import (
    CountedReadout,
    count_ids,
    frequency_ranks,
    init_like_linear,
    nll_without_ignored,
    refuse_graph_capture,
)
from nextword.layers.output.softmax import linear_cross_entropy, total_cross_entropy

DEFAULT_CUTOFFS = (20, 5)  # by default the clusters start at V / 20 and V / 5


class AdaptiveSoftmax(CountedReadout):
    """`cutoffs` are the ranks at which clusters begin; each cluster's vectors are `div_value` times narrower than those
    of the cluster before. Without cutoffs ([]) it is the full softmax.
    """

    place: Tensor  # (V,) id → rank

    def __init__(
        self, width: int, size: int, cutoffs: Sequence[int] | None = None, div_value: float = 4.0, bias: bool = False
    ) -> None:
        super().__init__(size)
        given = sorted({size // share for share in DEFAULT_CUTOFFS} - {0}) if cutoffs is None else list(cutoffs)
        bad = [c for c in given if isinstance(c, bool) or not isinstance(c, int) or not 0 < c < size]
        if bad or given != sorted(set(given)):
            raise InvalidSetting(
                f"readout: cutoffs = {given} must be increasing ranks between 0 and {size}, for example "
                f"model.readout.cutoffs=[{max(1, size // 20)},{max(2, size // 5)}].",
                key="model.readout.cutoffs",
                value=cutoffs,
            )
        if div_value < 1:
            raise InvalidSetting(
                f"readout: div_value = {div_value} must be at least 1. Clusters get narrower, never wider.",
                key="model.readout.div_value",
                value=div_value,
            )
        self.edges = [*given, size]
        self.head_weight = nn.Parameter(torch.empty(self.edges[0] + len(given), width))
        self.head_bias = nn.Parameter(torch.empty(len(self.head_weight))) if bias else None
        init_like_linear(self.head_weight, *() if self.head_bias is None else (self.head_bias,))
        self.tail = nn.ModuleList()
        for i, (first, end) in enumerate(pairwise(self.edges), 1):
            narrow = max(1, int(width // div_value**i))
            self.tail.append(
                nn.Sequential(nn.Linear(width, narrow, bias=False), nn.Linear(narrow, end - first, bias=False))
            )
        self.register_buffer("place", torch.arange(size))

    def count(self, ids: np.ndarray) -> None:
        self.place.copy_(torch.from_numpy(frequency_ranks(count_ids(ids, self.size))))

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        return nll_without_ignored(self._nll, h, targets)

    def _nll(self, h: Tensor, targets: Tensor) -> Tensor:
        head, clusters = self._by_cluster(targets)
        nll = linear_cross_entropy(h, self.head_weight, self.head_bias, head)
        for tail, rows, within in clusters:
            each = linear_cross_entropy(tail[0](h[rows]), cast(Tensor, tail[1].weight), None, within)
            nll = nll.index_add(0, rows, each.to(nll.dtype))
        return nll

    def total(self, h: Tensor, targets: Tensor) -> Tensor:
        head, clusters = self._by_cluster(targets)
        total = total_cross_entropy(h, self.head_weight, self.head_bias, head)
        for tail, rows, within in clusters:
            total = total + total_cross_entropy(tail[0](h[rows]), cast(Tensor, tail[1].weight), None, within)
        return total

    def _by_cluster(self, targets: Tensor) -> tuple[Tensor, list[tuple[nn.Sequential, Tensor, Tensor]]]:
        """Each row's target in the head (IGNORE stays), and per cluster: its layers, its rows, their targets."""
        refuse_graph_capture("adaptive", targets.device)
        rank = torch.where(targets < 0, targets, self.place[targets.clamp(min=0)])
        head, clusters = rank, []
        for i, ((first, end), tail) in enumerate(zip(pairwise(self.edges), self.tail, strict=True)):
            inside = (rank >= first) & (rank < end)
            head = torch.where(inside, self.edges[0] + i, head)
            rows = inside.nonzero().squeeze(1)
            if len(rows):
                clusters.append((tail, rows, rank[rows] - first))
        return head, clusters  # type: ignore[return-value]

    def log_probs(self, h: Tensor) -> Tensor:
        first = self.edges[0]
        head = F.log_softmax(F.linear(h, self.head_weight, self.head_bias), -1)
        parts = [head[..., :first]]
        parts += [F.log_softmax(tail(h), -1) + head[..., first + i, None] for i, tail in enumerate(self.tail)]
        return torch.cat(parts, -1).index_select(-1, self.place)
