"""Surprisal: how many bits each token of a text cost, given all before it."""

from __future__ import annotations

import math
from typing import Any


def surprisal(lm: Any, text: str) -> list[tuple[str, float]]:
    """(token's text, bits) for every token; a token that ends inside a character shows the part as U+FFFD."""
    encoding = lm.tokenizer.encode(text)
    raw = text.encode()
    (nats,) = lm.token_nats([encoding.ids])
    return [
        (raw[start:end].decode("utf-8", "replace"), float(cost) / math.log(2))
        for (start, end), cost in zip(encoding.spans.tolist(), nats, strict=True)
    ]
