from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nextword.batching.masked import Sentences
from nextword.core.errors import DataError
from nextword.data.opening import open_corpus
from nextword.studies import nsp_vs_sop as study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Table, overall_verdict
from nextword.studies._transformers import encode_corpus
from tests.support.study_tables import ABOVE, BELOW, ONE_SEED, UNSURE, verdicts


@pytest.fixture(scope="module")
def sentences() -> Sentences:
    """Thirty documents of ten sentences of 3 to 9 tokens."""
    lengths = np.random.default_rng(1).integers(3, 10, 300)
    first = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    return Sentences(first, first + lengths, np.arange(0, 301, 10))


@pytest.mark.parametrize("each", [1, 2])
def test_neighbors_are_whole_and_adjacent(sentences: Sentences, each: int) -> None:
    texts = study.NeighborPairs(4, 24, "order", each=each).texts(sentences, 0, 0)
    document = np.repeat(np.arange(30), 10)
    pairs = zip(texts.first.reshape(-1, 2), texts.length.reshape(-1, 2), texts.labels, strict=True)
    for (a, b), (m, n), label in pairs:
        if label:
            a, m, b, n = b, n, a, m
        assert (a + m == b, m + n <= 21) == (True, True)
        at = int(np.searchsorted(sentences.first, a))
        assert (sentences.first[at], sentences.last[at + 2 * each - 1]) == (a, b + n)
        assert document[at] == document[at + 2 * each - 1]
    assert 0.4 < texts.labels.mean() < 0.6


def test_wrong_seconds_are_from_other_documents_and_equally_long(sentences: Sentences) -> None:
    texts = study.NeighborPairs(4, 24, "next").texts(sentences, 0, 0)
    document = np.searchsorted(sentences.first, texts.first.reshape(-1, 2)) // 10
    is_wrong = texts.labels == 1
    assert (document[is_wrong, 0] != document[is_wrong, 1]).all()
    assert (document[~is_wrong, 0] == document[~is_wrong, 1]).all()
    assert 0.35 < is_wrong.mean() < 0.6
    lengths = texts.length.reshape(-1, 2)
    assert abs(lengths[is_wrong, 1].mean() - lengths[~is_wrong, 1].mean()) < 0.6  # length gives nothing away
    assert len(study.NeighborPairs(4, 24, "order").texts(sentences, 0, 0)) == len(texts)


def test_strangers_of_a_single_document_are_a_permutation() -> None:
    strangers = study.find_strangers(np.arange(6), np.zeros(6, np.int64), np.random.default_rng(0))
    assert sorted(strangers.tolist()) == list(range(6))


def test_length_tells_the_order_in_short_rows() -> None:
    text = encode_corpus(open_corpus("python"), 400)[0]
    table = study.guess_order_by_length(text.train, text.vocabulary.end)
    assert table.column("row length") == list(study.ROW_LENGTHS)
    accuracy = table.column(study.ACCURACY)
    assert all(50 <= value <= 100 for value in accuracy)
    assert accuracy[0] > 55


def test_text_without_pairs_is_rejected() -> None:
    alone = Sentences(np.array([0, 5]), np.array([5, 9]), np.array([0, 1, 2]))
    with pytest.raises(DataError):
        study.NeighborPairs(4, 24, "order").texts(alone, 0, 0)


def make_tables(
    own: Any = ABOVE, crossed: float = 51.0, back: float = 60.0, short: float = 70.0, order: float = 70.0
) -> dict[str, Table]:
    accuracy = {("NSP", "NSP"): 80.0, ("NSP", "SOP"): crossed, ("SOP", "NSP"): back, ("SOP", "SOP"): order}
    cells = {key: [value, value - 2, value + 2] for key, value in accuracy.items()}
    columns = ("trained on", "tested on", study.ACCURACY, study.MEAN)
    return {
        "pairs": Table("", columns, tuple((*key, cell, cell) for key, cell in cells.items())),
        "differences": Table("", ("points",), ((own,),)),
        "lengths": Table("", ("row length", "pairs", study.ACCURACY), ((64, 10, short), (512, 10, 51.0))),
    }


@pytest.mark.parametrize(
    ("cell", "expected"), [(ABOVE, HOLDS), (BELOW, FAILS), (UNSURE, UNDECIDED), (ONE_SEED, UNDECIDED)]
)
def test_nsp_must_be_easier(cell: Any, expected: str) -> None:
    parts = study.judge(make_tables(cell))
    assert verdicts(parts) == [expected, *[HOLDS] * 5]
    assert overall_verdict(parts) == expected


@pytest.mark.parametrize(
    ("cells", "at", "expected"),
    [
        ({"crossed": 65.0}, 2, FAILS),
        ({"crossed": 54.5}, 2, UNDECIDED),
        ({"back": 45.0}, 3, FAILS),
        ({"back": 51.0}, 3, UNDECIDED),
        ({"short": 52.0}, 5, FAILS),
    ],
)
def test_transfer_between_tasks_is_judged(cells: dict[str, float], at: int, expected: str) -> None:
    assert study.judge(make_tables(**cells))[at].verdict == expected


def test_order_that_was_not_learned_leaves_transfer_undecided() -> None:
    parts = study.judge(make_tables(order=50.5))
    assert verdicts(parts) == [HOLDS, HOLDS, UNDECIDED, UNDECIDED, UNDECIDED, HOLDS]
    assert study.NOT_LEARNED in parts[2].evidence
    assert study.judge(make_tables(order=45.0))[4].verdict == FAILS
