"""SQuAD metrics compared with the port of the official script in lm-evaluation-harness."""

from __future__ import annotations

import random
from typing import Any

import pytest

from nextword.metrics.squad import ANSWER_METRICS, score_answers

WORDS = (
    "The",
    "a",
    "an",
    "Denver",
    "denver,",
    "Broncos!",
    "in",
    "2015",
    "U.S.",
    "$5.30",
    "well-known",
    "theatre",
    "São",
    "–",
)


@pytest.fixture(scope="module")
def theirs() -> Any:
    return pytest.importorskip(
        "lm_eval.tasks.super_glue.record.t5_utils", reason="LM-EVAL ABSENT: SQuAD's metrics meet no outside reference"
    )


def test_scores_with_several_gold_answers_equal_reference(theirs: Any) -> None:
    draw = random.Random(0)
    said, golds = [], []
    for _ in range(300):
        said.append(" ".join(draw.choices(WORDS, k=draw.randint(1, 5))))
        golds.append([" ".join(draw.choices(WORDS, k=draw.randint(1, 5))) for _ in range(draw.randint(1, 3))])
    ours = score_answers(ANSWER_METRICS, said, golds, False)
    each = [[(text, f"{i}_{gold}") for gold in some] for i, (text, some) in enumerate(zip(said, golds, strict=True))]
    exact = [theirs.squad_em_agg(items) for items in each]
    assert 0.02 < ours["exact"] < 0.9  # there is something to compare
    assert ours["exact"] == pytest.approx(sum(exact) / len(exact))
    assert ours["answer_f1"] == pytest.approx(sum(theirs.squad_f1_agg(items) for items in each) / len(each))
