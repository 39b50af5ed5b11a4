"""One vector of the many that a network has for a text, whichever way texts lie in a batch.

    last      h_T              mean   1/T Σ h_t              max   the greatest of each number
    concat    [h_T; max; mean]                               three times as wide (Howard & Ruder 2018, section 3.3)

Padding is never read.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nextword.contract import Inputs

TIMES = {"last": 1, "mean": 1, "max": 1, "concat": 3}  # how much wider than the layer the vector is


def pooled(how: str, h: Tensor, inputs: Inputs) -> Tensor:
    """(B, T, D) → (frames, D), in 32 bits or more; of "concat" (frames, 3 D)."""
    if how == "mean":
        return mean(h, inputs)
    x, there = rows(h.to(torch.promote_types(h.dtype, torch.float32)), inputs)
    sizes = there.sum(1).clamp(min=1)
    last = x[torch.arange(len(x), device=x.device), sizes - 1]
    if how == "last":
        return last
    most = x.masked_fill(~there.unsqueeze(-1), -torch.inf).amax(1)
    if how == "max":
        return most
    return torch.cat([last, most, mean(x, Inputs(inputs.ids, there))], -1)


def rows(h: Tensor, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """(frames, T, D), and where there is something, whichever way the frames lie."""
    if inputs.starts is not None:
        sizes = inputs.starts.long().diff()
        parts = h[0].split(sizes.tolist())
        padded = pad_sequence(list(parts), batch_first=True)
        return padded, torch.arange(padded.shape[1], device=h.device) < sizes.unsqueeze(1)
    there = torch.ones(h.shape[:2], dtype=torch.bool, device=h.device) if inputs.padding is None else inputs.padding
    return h, there


def mean(h: Tensor, inputs: Inputs) -> Tensor:
    """(frames, D): the mean of the vectors of each frame, whichever way they lie."""
    wide = h.to(torch.promote_types(h.dtype, torch.float32))
    if inputs.starts is not None:
        starts = inputs.starts.long()
        sizes = starts.diff()
        slots = torch.arange(wide.shape[1], device=h.device)
        whose = torch.searchsorted(starts, slots, right=True) - 1
        sums = wide.new_zeros(len(sizes), wide.shape[-1]).index_add(0, whose, wide[0])
        return sums / sizes.clamp(min=1).unsqueeze(1)
    if inputs.padding is None:
        return wide.mean(1)
    there = inputs.padding.unsqueeze(-1).to(wide.dtype)
    return (wide * there).sum(1) / there.sum(1).clamp(min=1)
