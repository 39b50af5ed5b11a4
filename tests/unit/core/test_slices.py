"""Long computations in slices: they pause often enough, and compute what they compute at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nextword import lens
from nextword.core.slices import end_slice, interruptible, slice_tokens
from nextword.core.types import Beam, Greedy, Stop
from nextword.lm.base import TextModel
from tests.support.masked_models import make_model
from tests.support.served_models import make_served_model

TEXT = "The value of an expression is an object; the types of operands differ."
TEXTS = [TEXT[:9], TEXT, TEXT[:30], TEXT[:50]]
STOP = Stop(6, at_end=False)


def test_slices_end_without_anybody_to_serve() -> None:
    assert slice_tokens(512) == 512
    end_slice()


def test_function_is_called_after_each_slice_and_not_within_itself() -> None:
    calls = []

    def serve() -> None:
        calls.append(slice_tokens(512))
        end_slice()

    with interruptible(serve, lambda: 64):
        assert (slice_tokens(512), slice_tokens(8)) == (64, 8)
        end_slice()
        end_slice()
    end_slice()
    assert calls == [512, 512]


def test_errors_of_the_function_end_the_computation() -> None:
    def leave() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), interruptible(leave, lambda: 64):
        end_slice()
    end_slice()


def numbers(value: Any) -> list[float]:
    """All numbers in a value, in order."""
    if isinstance(value, (bool, str)) or value is None:
        return []
    if isinstance(value, (int, float)):
        return [float(value)]
    if isinstance(value, (list, tuple)):
        return [number for part in value for number in numbers(part)]
    if isinstance(value, dict):
        return numbers(list(value.values()))
    return np.asarray(value, float).ravel().tolist() if hasattr(value, "__array__") else numbers(vars(value))


@pytest.mark.parametrize(
    ("slug", "compute", "at_least"),
    [
        ("gpt2", lambda lm: lm.score_many(TEXTS), 4),
        ("lstm", lambda lm: lm.score(TEXT * 40), 3),
        ("seq2seq", lambda lm: lm.score_many(TEXTS, TEXTS), 4),
        ("bert", lambda lm: lm.score_many(TEXTS[:2]), 10),
        ("gpt2", lambda lm: lm.embed(TEXTS), 3),
        ("bert", lambda lm: lm.embed(TEXTS), 4),
        ("lstm", lambda lm: [row.vectors for row in lm.embed_words(TEXTS)], 3),
        ("gpt2", lambda lm: lens.explain_text(lm, TEXT * 6), 3),
        ("ngram", lambda lm: lens.explain_text(lm, TEXT * 20), 3),
        ("bert", lambda lm: lens.explain_text(lm, TEXT), 10),
        ("gpt2", lambda lm: lens.predict_by_layer(lm, TEXT), 3),
        ("gpt2", lambda lm: lens.attribute_word(lm, TEXT[:30], steps=16), 16),
        ("gpt2", lambda lm: lens.trace_beam(lm, TEXT, Beam(2), STOP), 4),
        ("gpt2", lambda lm: [c.score for c in lm.n_best(TEXT, Beam(2), STOP)], 4),
        ("seq2seq", lambda lm: lm.generate_many(TEXTS[:2], Greedy(), STOP), 4),
        ("glm", lambda lm: lm.infill("The ___ of an ___.", Greedy(), STOP)[0].score, 3),
        ("bert", lambda lm: lm.fill("The ___ of an ___."), 4),
    ],
)
def test_functions_compute_the_same_in_small_slices(
    slug: str, compute: Callable[[TextModel], Any], at_least: int
) -> None:
    lm = make_model() if slug == "bert" else make_served_model(slug)
    slices: list[None] = []
    expected = compute(lm)
    with interruptible(lambda: slices.append(None), lambda: 16):
        sliced = compute(lm)
    assert len(slices) >= at_least
    assert numbers(sliced) == pytest.approx(numbers(expected), rel=1e-4, abs=1e-6)
