"""CoVe helps a classifier with few examples to generalize to words that it has never seen.

The word vectors are random: river3 is no closer to river4 than to coin7 (tests/support/tiny_cove.py). The translator
has to distinguish the groups to translate the words around them. A classifier trained on three words of each group is
tested on the nine others, which it can recognize by CoVe, but not by the word vectors alone.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from nextword import tasks as transfer
from tests.support.tiny_cove import MEMBERS, draw_sentences, train_cove, write_cove_data
from tests.support.tiny_transfer import write_table

SHOWN = 3
QUICK = ("task.width=16", "phase.0.optimizer.rate=5e-3", "phase.0.batches.rows=8", "phase.0.epochs=10")


@pytest.mark.slow
def test_cove_classifies_unseen_words_that_glove_cannot(tmp_path: Path) -> None:
    place = write_cove_data(tmp_path / "place")
    (place / "task").mkdir()
    for split, n, members in (("train", 80, range(SHOWN)), ("dev", 200, range(SHOWN, MEMBERS))):
        rows = [(source, group) for source, _, group in draw_sentences(n, n, members)]
        write_table(place / "task" / f"{split}.csv", ["text", "label"], rows)
    found: dict[str, list[float]] = {"glove": [], "both": []}
    for seed in range(3):
        run = train_cove(
            place, f"run-{seed}", f"phase.0.seed={seed}", "phase.0.steps=400", "phase.0.optimizer.rate=1e-2"
        )
        for features, values in found.items():
            changes = [*QUICK, f"task.features={features}", "phase.0.keep=last"]
            out = place / f"{features}-{seed}"
            outcome = transfer.run(
                "cove/classify", run, str(place / "task"), out, seed=seed, changes=changes, device="cpu"
            )
            values += outcome.values()
    assert statistics.median(found["both"]) > 0.85
    assert statistics.median(found["glove"]) < 0.65
