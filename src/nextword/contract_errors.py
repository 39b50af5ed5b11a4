"""contract_errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    Ids = Tensor  # (B, T) integer


class NextwordError(Exception):
    """A mistake the user can mend. The message says what was given, what was expected and what to do."""


class Unsupported(NextwordError):
    """The model's mathematics does not allow what was asked of it."""
