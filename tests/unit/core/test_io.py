"""Numbers without end: null in files, infinite again when read, ∞ to people."""

from __future__ import annotations

import json
import math

from nextword.core.io import finite, infinite, number

RULED_OUT = {
    "nats": math.inf,
    "bits_per_byte": math.inf,
    "bits_per_byte_low": math.inf,
    "bits_per_byte_high": math.inf,
    "word_perplexity": math.inf,
    "token_perplexity": math.inf,
    "tokens": 8,
    "impossible": 1,
    "lossless": True,
    "context": None,
    "conventions": [{"name": "all", "perplexity": math.inf, "nats": math.inf, "impossible": 1}],
    "surprisal": [1.0, math.inf, 2.0],
}


def test_what_went_through_json_is_what_it_was() -> None:
    text = json.dumps(finite(RULED_OUT), allow_nan=False)
    assert infinite(json.loads(text)) == RULED_OUT


def test_null_stays_null_where_all_was_possible() -> None:
    short = {"bits_per_byte": 2.0, "bits_per_byte_low": None, "word_perplexity": None, "impossible": 0}
    assert infinite(short) == short
    assert infinite({"bits_per_byte": None, "token_perplexity": 5.0}) == {
        "bits_per_byte": None,
        "token_perplexity": 5.0,
    }


def test_a_lossy_tokenizer_has_no_bits_per_byte_not_even_infinite_ones() -> None:
    words = {
        "bits_per_byte": None,
        "bits_per_byte_low": None,
        "token_perplexity": None,
        "impossible": 3,
        "lossless": False,
    }
    assert infinite(words) == words | {"token_perplexity": math.inf}


def test_json_is_cleaned_however_deep() -> None:
    assert finite({"a": (math.inf, [math.nan, {"b": -math.inf}], 1.5, "inf", None)}) == {
        "a": [None, [None, {"b": None}], 1.5, "inf", None]
    }


def test_numbers_for_people() -> None:
    assert [number(value, 2) for value in (None, math.inf, 1234.567)] == ["–", "∞", "1,234.57"]
