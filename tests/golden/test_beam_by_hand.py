"""A beam of two over "a / the" and "cat / dog", small enough to follow by hand: greedy search fails, the beam succeeds.

begin ─┬─ a   .6 ─── cat, dog, bird, mouse .25 each     cat  ─┬─ sat .6     dog ─┬─ sat .1     sat ─── end 1
       └─ the .4 ─┬─ cat  .50                                 └─ end .4          └─ end .9
                  ├─ dog  .45
                  └─ bird .05                           bird, mouse ─── end 1

step 1        step 2                    step 3                     step 4
a    .6 ◂     a   cat .15  a dog .15    the cat sat .120 ◂         the cat sat end .12 ◂ complete
the  .4 ◂     the cat .20 ◂             the cat end .080
              the dog .18 ◂             the dog end .162 ◂ complete: one slot is left
                                        the dog sat .018
"""

from __future__ import annotations

import math
from itertools import pairwise, product
from typing import Any

import pytest
import torch

from nextword.core.types import Beam, Greedy
from nextword.generation.beam_search import beam_search
from nextword.generation.sampling import generate_tokens
from tests.support.toy_models import ToyModel

WORDS = ["end", "a", "the", "cat", "dog", "bird", "mouse", "sat", "begin"]
AFTER = {
    "end": {"end": 1.0},
    "begin": {"a": 0.6, "the": 0.4},
    "a": {"cat": 0.25, "dog": 0.25, "bird": 0.25, "mouse": 0.25},
    "the": {"cat": 0.5, "dog": 0.45, "bird": 0.05},
    "cat": {"sat": 0.6, "end": 0.4},
    "dog": {"sat": 0.1, "end": 0.9},
    "bird": {"end": 1.0},
    "mouse": {"end": 1.0},
    "sat": {"end": 1.0},
}
END = WORDS.index("end")


class Table(ToyModel):
    window = 1

    def __init__(self) -> None:
        rows = [[AFTER[before].get(word, 0.0) for word in WORDS] for before in WORDS]
        self.log_p = torch.tensor(rows, dtype=torch.float64).log()

    def start(self, batch: int, source: Any = None) -> tuple[torch.Tensor, None]:
        return torch.full((batch,), WORDS.index("begin")), None

    def step(self, last: torch.Tensor, state: None) -> tuple[torch.Tensor, None]:
        return self.log_p[last], None


def search(beam: Beam, length: int, **options: Any) -> list[tuple[str, float]]:
    model = Table()
    best = beam_search(model, *model.start(1), beam, length, END, **options)[0]  # type: ignore[arg-type]
    return [(" ".join(WORDS[id] for id in hypothesis.ids), round(math.exp(hypothesis.score), 9)) for hypothesis in best]


def probability(text: str) -> float:
    words = ["begin", *text.split()]
    return math.prod(AFTER[a].get(b, 0.0) for a, b in pairwise(words))


@pytest.mark.parametrize(
    ("steps", "hypotheses"),
    [
        (1, [("a", 0.6), ("the", 0.4)]),
        (2, [("the cat", 0.2), ("the dog", 0.18)]),
        (3, [("the dog end", 0.162), ("the cat sat", 0.12)]),
        (4, [("the dog end", 0.162), ("the cat sat end", 0.12)]),
        (9, [("the dog end", 0.162), ("the cat sat end", 0.12)]),
    ],
)
def test_beam_of_two_keeps_expected_hypotheses_at_each_step(steps: int, hypotheses: list[tuple[str, float]]) -> None:
    assert search(Beam(2), steps) == hypotheses


def test_beam_of_one_takes_likelier_article_and_misses_best_text() -> None:
    assert search(Beam(1), 9) == [("a cat sat end", 0.09)]  # the first of cat, dog, bird, and mouse, which tie
    stream = generate_tokens(Table(), *Table().start(1), Greedy())  # type: ignore[arg-type]
    assert [WORDS[next(stream)[0]] for _ in range(4)] == ["a", "cat", "sat", "end"]
    assert probability("a cat sat end") < probability("the dog end")


def test_wide_beam_ranks_texts_as_exhaustive_search() -> None:
    all_texts = {
        " ".join(words[: words.index("end") + 1])
        for words in product(WORDS[:-1], repeat=4)
        if "end" in words and probability(" ".join(words[: words.index("end") + 1]))
    }
    ranked = sorted(all_texts, key=probability, reverse=True)
    assert ranked[0] == search(Beam(2), 4)[0][0] == "the dog end"
    assert [score for _, score in search(Beam(50), 4, n=9)] == pytest.approx([probability(text) for text in ranked[:9]])
    assert sum(map(probability, all_texts)) == pytest.approx(1.0)


def test_length_normalized_scores_equal_hand_computation() -> None:
    # ln .162 = −1.820, ln .12 = −2.120; over 3 and 4: −.607, −.530; GNMT, over 8/6 and 9/6: −1.365, −1.414
    model = Table()
    best = beam_search(model, *model.start(1), Beam(2, 1.0), 9, END)[0]  # type: ignore[arg-type]
    assert [len(hypothesis.ids) for hypothesis in best] == [4, 3]
    assert [hypothesis.score for hypothesis in best] == pytest.approx([math.log(0.12) / 4, math.log(0.162) / 3])
    best = beam_search(model, *model.start(1), Beam(2, 1.0, normalization="gnmt"), 9, END)[0]  # type: ignore[arg-type]
    assert [len(hypothesis.ids) for hypothesis in best] == [3, 4]
    assert [hypothesis.score for hypothesis in best] == pytest.approx(
        [math.log(0.162) / (8 / 6), math.log(0.12) / (9 / 6)]
    )


def test_diverse_groups_equal_hand_computation() -> None:
    """Group 1 is greedy and takes "a"; that costs group 2 a factor e^−1 on "a": .6 / e = .22 < .4, so it takes "the".

    Then group 1 takes "cat", and group 2 "dog", since "cat" is penalized (.5 / e = .18 < .45); then "sat" and "end".
    """
    assert search(Beam(2, groups=2, diversity=1.0), 9) == [("the dog end", 0.162), ("a cat sat end", 0.09)]
    # without diversity both groups find the same hypothesis
    assert search(Beam(2, groups=2, diversity=0.0), 9) == [("a cat sat end", 0.09)]
    # the groups diverge from a diversity of ln(.6 / .4) = .405
    assert [text[:3] for text, _ in search(Beam(2, groups=2, diversity=0.41), 2)] == ["the", "a c"]
    assert [text[:2] for text, _ in search(Beam(2, groups=2, diversity=0.40), 2)] == ["a ", "a "]
