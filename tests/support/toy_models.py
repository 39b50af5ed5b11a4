"""The part of the generation contract that toy models in tests share."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from nextword.core import pytree


class ToyModel:
    """A model without attention or hidden states, whose state is reordered like any nest of tensors."""

    has_attention = False
    has_hidden_states = False

    def reorder(self, state: Any, rows: Tensor, searches: list[int] | None) -> Any:
        return pytree.take(state, rows)
