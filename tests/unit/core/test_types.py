"""Scores add up; single examples are not lists."""

from __future__ import annotations

import pytest

from nextword.core.errors import InvalidSetting
from nextword.core.types import PSEUDO, Score, require_list, texts_of


def test_score_of_passages_adds_up() -> None:
    total = Score(3.0, 4, 2, 10) + Score(5.0, 6, 3, 14)
    assert (total.nats, total.tokens, total.words, total.bytes) == (8.0, 10, 5, 24)


def test_score_of_different_kinds_cannot_be_added() -> None:
    with pytest.raises(InvalidSetting) as kind:
        Score(1.0, 1, 1, 1) + Score(1.0, 1, 1, 1, PSEUDO)
    assert kind.value.key == "kind"
    with pytest.raises(InvalidSetting) as lossless:
        Score(1.0, 1, 1, 1) + Score(1.0, 1, 1, 1, lossless=False)
    assert lossless.value.key == "lossless"


@pytest.mark.parametrize("example", ["a text", b"bytes", {"text": "a"}, 3])
def test_require_list_of_a_single_example_raises(example: object) -> None:
    with pytest.raises(InvalidSetting) as error:
        require_list(example)
    assert error.value.value == example
    assert require_list([example]) == [example]


def test_texts_of_a_text_and_of_a_pair() -> None:
    assert texts_of("a") == ("a",)
    assert texts_of(["a", "b"]) == ("a", "b")
