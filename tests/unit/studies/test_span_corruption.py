from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nextword.data.parallel import open_parallel
from nextword.studies import span_corruption as study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Table, overall_verdict
from nextword.studies._translators import PairData, TranslatorSize, load_pairs
from tests.support.small_pairs import write_pairs
from tests.support.study_tables import ABOVE, BELOW, UNSURE

SMALL = TranslatorSize(pieces=280, width=16, rows=8, length=60, longest=60, steps=3, held=50)


@pytest.fixture
def pairs(tmp_path: Path) -> PairData:
    return load_pairs(write_pairs(tmp_path), SMALL)[1]


def test_halves_keep_all_tokens_of_a_block(pairs: PairData) -> None:
    text, size = pairs.train.target, TranslatorSize(rows=3, length=20)
    batch = next(study.split_in_halves(text, size, 11, begin=7, end=8, seed=0))
    assert batch.inputs.source is not None
    source, target = batch.inputs.source.ids, batch.targets
    assert (source.shape, target.shape) == ((3, 6), (3, 7))
    assert (source[:, -1] == 8).all()
    assert (target[:, -1] == 8).all()
    assert batch.inputs.ids.tolist() == [[7, *row[:-1]] for row in target.tolist()]
    blocks = [[*a[:-1], *b[:-1]] for a, b in zip(source.tolist(), target.tolist(), strict=True)]
    ids = text.ids.astype(int).tolist()
    assert all(any(ids[i : i + 11] == block for i in range(len(ids))) for block in blocks)


def test_pairs_without_titles_have_one_task(pairs: PairData, tmp_path: Path) -> None:
    corpus = open_parallel(write_pairs(tmp_path))
    tasks = study.make_tasks(corpus, SMALL, 30, pairs.tokenizer, np.arange(5))
    assert list(tasks) == [study.TRANSLATION]
    task = tasks[study.TRANSLATION]
    assert len(task.train) == 30
    assert task.targets[0] == " ".join(w[::-1] for w in task.sources[0].split())


def make_tables(translation: Any = ABOVE, books: Any = ABOVE, none: Any = ABOVE) -> dict[str, Table]:
    cells = {study.TRANSLATION: translation, study.BOOKS: books}
    pairs = ((study.SPANS, study.PREFIX), (study.SPANS, study.NONE), (study.PREFIX, study.NONE))
    rows = [
        (task, name, other, cell if other == study.PREFIX else none, ABOVE)
        for name, other in pairs
        for task, cell in cells.items()
    ]
    columns = ("task", "pretraining", "compared with", study.NATS, study.QUALITY)
    return {"differences": Table("", columns, tuple(rows))}


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({}, HOLDS),
        ({"translation": BELOW}, FAILS),
        ({"books": UNSURE}, UNDECIDED),
        ({"books": BELOW, "translation": UNSURE}, FAILS),
        ({"none": BELOW}, HOLDS),  # side results
    ],
)
def test_verdict_needs_every_task(cells: dict[str, Any], expected: str) -> None:
    assert overall_verdict(study.judge(make_tables(**cells))) == expected
