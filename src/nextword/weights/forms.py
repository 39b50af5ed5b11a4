"""How a tensor of ours lies in a folder of theirs: as it is, turned, cut into several, or with rows around it.

    ours     attending.3.attention.join.weight        (3 · width, width)
    theirs   encoder.layer.3.attention.self.query.weight, … key.weight, … value.weight      (width, width) each

A form knows both ways. What shapes theirs must have is what comes of writing a tensor without numbers, so it is said
only once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Said = Mapping[str, Any]  # their config.json


@dataclass(frozen=True)
class Form:
    write: Callable[[Tensor, Said], Sequence[Tensor]]  # one of ours → theirs, one for each of their names
    read: Callable[[Sequence[Tensor], Said], Tensor]  # theirs → ours


def one(write: Callable[[Tensor, Said], Tensor], read: Callable[[Tensor, Said], Tensor]) -> Form:
    """Where theirs is one tensor too."""
    return Form(lambda ours, said: [write(ours, said)], lambda theirs, said: read(theirs[0], said))


def behind(rows: Callable[[Said], int]) -> Form:
    """Theirs has rows before ours that nothing reads: they are left away, and written as zeros."""
    return one(
        lambda ours, said: torch.cat([ours.new_zeros(rows(said), *ours.shape[1:]), ours]),
        lambda theirs, said: theirs[rows(said) :],
    )


def before(rows: Callable[[Said], int]) -> Form:
    """Theirs has so many rows, and ours the first of them alone."""
    return one(
        lambda ours, said: torch.cat([ours, ours.new_zeros(rows(said) - len(ours), *ours.shape[1:])]),
        lambda theirs, said: theirs[:1],
    )


SAME = one(lambda ours, said: ours, lambda theirs, said: theirs)
TURNED = one(lambda ours, said: ours.t(), lambda theirs, said: theirs.t())  # of a bias: the same
JOINED = Form(lambda ours, said: ours.chunk(3), lambda theirs, said: torch.cat(list(theirs)))
