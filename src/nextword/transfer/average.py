"""What several runs of one task said of its test set, averaged: forward and backward (Howard & Ruder 2018, 3.3).

forward    0.9 0.1 ┐
backward   0.4 0.6 ┴▶ 0.65 0.35        said.npz of each run is enough: no weights are needed
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nextword.checkpoint import RunFolder
from nextword.contract_errors import NextwordError
from nextword.heads.settings import settings_of
from nextword.objectives.task import measured
from nextword.transfer.run import SAID, data_of

SPLIT = "test"


def averaged(runs: Sequence[Path], metric: str) -> float:
    """The metric of the mean of the probabilities, or of the numbers, that runs have kept of the test set.

    What is right is read as the first of them has read it: its columns and its classes.
    """
    found = [_said(run) for run in runs]
    recipe = RunFolder.open(runs[0]).recipe
    data, settings = data_of(recipe), settings_of(recipe.task or {}, recipe.name)
    rows = data.splits.get(SPLIT)
    if rows is None or rows.labels is None:
        raise NextwordError(f"{data.name} has no labels for {SPLIT}, so that an average cannot be measured.")
    shapes = {one.shape for one in found} | {(len(rows), found[0].shape[1])}
    if len(shapes) > 1:
        raise NextwordError(f"{', '.join(map(str, runs))} have said of {SPLIT} what does not fit together: {shapes}.")
    return measured((metric,), settings.encoded(rows.labels), np.mean(found, 0))[metric]


def _said(run: Path) -> np.ndarray:
    path = run / SAID
    if path.is_file():
        with np.load(path, allow_pickle=False) as kept:
            if SPLIT in kept:
                return kept[SPLIT].astype(np.float64)
    raise NextwordError(f"{run} has kept nothing that it said of {SPLIT} ({SAID}), so there is nothing to average.")
