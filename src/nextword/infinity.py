"""Numbers without end: a model may rule a text out, as maximum likelihood does, and what that text costs is infinite.

Inside, infinity is a float like others. JSON has no word for it: files hold null, beside the count of `impossible`
tokens that tells a reader what the null stands for. People read ∞.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

NAME = "∞"
COSTS = (
    "nats",
    "bits_per_byte",
    "bits_per_byte_low",
    "bits_per_byte_high",
    "word_perplexity",
    "token_perplexity",
    "perplexity",
)


def finite(value: Any) -> Any:
    """The same value for JSON: what is not finite becomes null, however deep it lies."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    return value


def infinite(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result as it was before `finite`: null is infinite where a token was impossible, unless it never was a number.

    Bits per byte never are one where the tokenizer is not lossless.
    """
    found = dict(result)
    if found.get("impossible"):
        lossless = found.get("lossless", True)
        missing = [key for key in COSTS if key in found and found[key] is None]
        found |= {key: math.inf for key in missing if lossless or "byte" not in key}
    if found.get("conventions"):
        found["conventions"] = [infinite(row) for row in found["conventions"]]
    if found.get("surprisal"):  # each token has a cost, so null is but one thing
        found["surprisal"] = [math.inf if bits is None else bits for bits in found["surprisal"]]
    return found


def number(value: float | None, digits: int) -> str:
    if value is None:
        return "–"
    return NAME if value == math.inf else f"{value:,.{digits}f}"
