"""Validation of the settings of batches and objectives: one error type, with the key that is wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nextword.core.errors import did_you_mean, invalid


def require_count(key: str, value: object, least: int = 1) -> None:
    """Raise InvalidSetting unless the value is an integer of at least `least`. The key is dotted: "batches.rows"."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise invalid(key, value, f"must be an integer of at least {least}.")


def require_number(
    key: str,
    value: object,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    exclude_low: bool = False,
    exclude_high: bool = False,
) -> None:
    """Raise InvalidSetting unless the value is a number from low to high, without the bounds that are excluded."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    in_range = is_number and low <= value <= high  # type: ignore[operator]
    if not in_range or (exclude_low and value == low) or (exclude_high and value == high):
        bounds = [f"{'above' if exclude_low else 'at least'} {low:g}"] if low > -math.inf else []
        bounds += [f"{'below' if exclude_high else 'at most'} {high:g}"] if high < math.inf else []
        raise invalid(key, value, f"must be a number{': ' if bounds else ''}{' and '.join(bounds)}.")


def require_bool(key: str, value: object) -> None:
    """Raise InvalidSetting unless the value is true or false."""
    if not isinstance(value, bool):
        raise invalid(key, value, "must be true or false.")


def require_choice(key: str, value: object, choices: Sequence[str]) -> None:
    """Raise InvalidSetting unless the value is one of these."""
    if value not in choices:
        expected = " or ".join(map(repr, choices))
        raise invalid(key, value, f"must be {expected}.{did_you_mean(str(value), choices)}")
