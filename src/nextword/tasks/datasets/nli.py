"""Does the second text follow from the first? SNLI (Bowman et al. 2015) and SciTail (Khot et al. 2018), official files.

    snli_1.0_train.jsonl        {"gold_label": "entailment", "sentence1": "…", "sentence2": "…", …}
    snli_1.0_train.txt          gold_label  …  sentence1  sentence2  …            the same as a table, with a header
    scitail_1.0_train.tsv       premise  hypothesis  entails|neutral              no header (tsv_format)
    scitail_1.0_train.txt       as SNLI's JSON lines (snli_format), where `entails` is called entailment

A pair on whose label annotators did not agree (`-`, 785 of SNLI's 550,152) is left out, as its authors do; how many
those are is said.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nextword.core.errors import NextwordError
from nextword.data.catalog import find
from nextword.data.tables import Rows
from nextword.tasks.datasets.base import Read, Task, Wanted, agreed, needed, read_either
from nextword.tasks.datasets.glue import OF_THREE

SPLITS = {"train": "train", "valid": "dev", "test": "test"}  # the catalog's names → ours
SNLI = Wanted(("sentence1",), ("sentence2",), ("gold_label",), labels=OF_THREE)
SCIENCE = {"entails": "entails", "entailment": "entails", "neutral": "neutral"}


def _files(name: str, wanted: Callable[[Path], Wanted]) -> Callable[[Path], Read]:
    """A reader of a set of the catalog whose files have the columns that `wanted` says."""

    def read(folder: Path) -> Read:
        entry = find(name)
        assert entry is not None, name
        found: dict[str, Rows] = {}
        for split, files in entry.locate(folder).items():
            found[SPLITS[split]], _ = read_either(files[0], wanted(files[0]), SPLITS[split])
            if found[SPLITS[split]].labels is None:
                raise NextwordError(f"{files[0]} has no column of labels. Expected the official file.")
        names = {SPLITS[split]: " or ".join(some) for split, some in entry.layout.items()}
        return agreed(needed(folder, found, names))

    return read


def _scitail(file: Path) -> Wanted:
    if file.name.endswith(".tsv"):
        return Wanted(0, 1, 2, labels=SCIENCE)
    return Wanted(("sentence1",), ("sentence2",), ("gold_label",), labels=SCIENCE)


TASKS = (
    Task(
        *("SNLI", "does the second follow, contradict, or neither?", "pair", "entail", ("accuracy",), ()),
        reader=_files("snli", lambda file: SNLI),
        catalog="snli",
    ),
    Task(
        *("SciTail", "does the answer follow from the text?", "pair", "entail", ("accuracy",), ()),
        reader=_files("scitail", _scitail),
        catalog="scitail",
    ),
)
