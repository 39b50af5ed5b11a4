"""A tagger with characters finds unseen names; one with words alone cannot (Lample et al. 2016; Ma & Hovy 2016).

In this artificial language every word in -polis is a place, and most places of the test set are new. A person follows
`mister`, which a network without characters learns, too.
"""

from __future__ import annotations

import statistics

import pytest

from nextword import tasks as transfer
from tests.support.tiny_tagged import quick_changes, write_tagged_data

SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """The median F1 on the test split, with letters and without."""
    folder = tmp_path_factory.mktemp("letters")
    data = write_tagged_data(folder / "names", 300, 50)
    found = {}
    for characters in ("cnn", ""):
        changes = [*quick_changes(), f"model.characters={characters}"]
        values = []
        for seed in SEEDS:
            out = folder / f"{characters or 'none'}-{seed}"
            outcome = transfer.run("tagger/tiny", "", str(data), out, changes=changes, device="cpu", seed=seed)
            values.append(outcome.values("span_f1", "test")[0])
        found[characters] = statistics.median(values)
    return found


def test_tagger_with_characters_finds_unseen_names(scores: dict[str, float]) -> None:
    assert scores["cnn"] > 0.9
    assert scores[""] < 0.8
