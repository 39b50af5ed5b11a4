"""Sums in words (Brown et al. 2020, §3.9.1), made from a seed: no data set need be at hand.

    add, subtract, multiply    "48 plus 76", operands drawn uniformly from [0, 10^digits); a difference may be negative
    composite                  "6+(4*8)": three numbers of one digit, brackets around the last two, operations + - *

The questions that shots are drawn from never are among those that are scored.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from nextword.contract_errors import NextwordError

COUNT = 2000  # questions of each kind, as in the paper
POOL = 500  # from which shots are drawn
WORDS = {"add": "plus", "subtract": "minus", "multiply": "times"}
SIGNS = ("+", "-", "*")
SEED = 2020


def sums(split: str, options: Mapping[str, Any]) -> list[dict[str, str]]:
    """The questions of a split ("test" is scored, "train" is drawn from), the same on every machine."""
    kind, digits = str(options.get("kind", "add")), int(options.get("digits", 2))
    if kind not in (*WORDS, "composite"):
        raise NextwordError(f"arithmetic: kind = {kind!r}; expected {', '.join(WORDS)} or composite.")
    if not 1 <= digits <= 15:
        raise NextwordError(f"arithmetic: digits = {digits}; expected 1 to 15.")
    draw = random.Random(f"{kind} {digits} {options.get('seed', SEED)}")
    asked = [_sum(draw, kind, digits) for _ in range(int(options.get("count", COUNT)))]
    if split == "test":
        return asked
    scored = {one["sum"] for one in asked}
    pool: dict[str, dict[str, str]] = {}
    for _ in range(50 * POOL):  # few sums of one digit are left over, perhaps
        one = _sum(draw, kind, digits)
        if one["sum"] not in scored:
            pool[one["sum"]] = one
        if len(pool) == POOL:
            break
    return list(pool.values())


def _sum(draw: random.Random, kind: str, digits: int) -> dict[str, str]:
    a, b, c = (draw.randrange(10**digits) for _ in range(3))
    if kind == "composite":
        first, second = draw.choice(SIGNS), draw.choice(SIGNS)
        return {"sum": f"{a}{first}({b}{second}{c})", "result": str(_arithmetic_of(first, a, _arithmetic_of(second, b, c)))}
    sign = SIGNS[list(WORDS).index(kind)]
    return {"sum": f"{a} {WORDS[kind]} {b}", "result": str(_arithmetic_of(sign, a, b))}


def _arithmetic_of(sign: str, a: int, b: int) -> int:
    return a + b if sign == "+" else a - b if sign == "-" else a * b
