"""A few damaged files of every format, and the damage that once caused a failure. `make fuzz`: a thousand of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.formats import FORMATS
from tests.fuzz.harness import run_format, silence
from tests.support.processes import fork, join

SEEDS = range(12)
KEPT = {  # seeds that failed once
    "archives": (300066, 300208),
    "cache": (100000, 100025),
    "choices": (100032, 100214, 100349),
    "compressed": (100050, 100059),
    "huggingface/bert": (100036, 100131, 100150, 100247),
    "huggingface/pickle": (700198,),
    "json-lines": (100098, 100535),
    "questions": (100032, 100216),
    "recipes": (100343, 100539, 100921, 100973, 100976, 300111, 300403),
    "run/gpt2": (300122,),
    "run/seq2seq": (300325,),
    "run/tagger": (11,),
    "state": (100004, 100310, 100352),
    "tables": (100465,),
    "toml-data": (100018, 100132, 100191, 100343, 100387, 100445, 100474, 100657, 100835),
}


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_file_is_refused_or_read_within_limits(name: str, tmp_path: Path) -> None:
    def work() -> list[str]:
        silence()
        results = run_format(name, [*SEEDS, *KEPT.get(name, ())], tmp_path)
        assert len(results) == len(SEEDS) + len(KEPT.get(name, ()))
        return [str(result) for result in results if result.is_failure]

    assert join(fork(work)) == []  # a child, whose environment the harness changes


def test_kept_seeds_are_of_known_formats() -> None:
    assert KEPT.keys() <= FORMATS.keys()
