"""Natural language inference beyond GLUE: SNLI (Bowman et al. 2015) and SciTail (Khot et al. 2018), official files.

    snli_1.0_train.jsonl        {"gold_label": "entailment", "sentence1": "…", "sentence2": "…", …}
    snli_1.0_train.txt          gold_label  …  sentence1  sentence2  …            the same as a table with a header
    scitail_1.0_train.tsv       premise  hypothesis  entails|neutral              no header (tsv_format)
    scitail_1.0_train.txt       JSON lines like SNLI's (snli_format), with `entailment` for `entails`

Pairs whose annotators disagreed (label `-`, 785 of SNLI's 550,152) are skipped, as the authors do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from nextword.data.tables import Rows
from nextword.tasks.datasets.base import (
    Benchmark,
    ColumnSpec,
    Reader,
    bad_data,
    drop_disputed_pairs,
    read_catalog_splits,
    read_tsv_or_jsonl,
)
from nextword.tasks.datasets.glue import NLI_LABELS

SNLI = ColumnSpec(("sentence1",), ("sentence2",), ("gold_label",), labels=NLI_LABELS)
SCITAIL_LABELS = {"entails": "entails", "entailment": "entails", "neutral": "neutral"}


def _reader(name: str, choose_spec: Callable[[Path], ColumnSpec]) -> Reader:
    def read(split: str, files: Sequence[Path]) -> Rows:
        rows, _ = read_tsv_or_jsonl(files[0], choose_spec(files[0]), split)
        if rows.labels is None:
            raise bad_data(files[0], "there is no label column. Expected the official file.")
        return rows

    return lambda folder: drop_disputed_pairs(read_catalog_splits(name, folder, read))


def _scitail_spec(file: Path) -> ColumnSpec:
    if file.name.endswith(".tsv"):
        return ColumnSpec(0, 1, 2, labels=SCITAIL_LABELS)
    return ColumnSpec(("sentence1",), ("sentence2",), ("gold_label",), labels=SCITAIL_LABELS)


BENCHMARKS = (
    Benchmark(
        *("SNLI", "entailment, contradiction or neutral?", "pair_classification", "entail", ("accuracy",), ()),
        read=_reader("snli", lambda file: SNLI),
        catalog="snli",
    ),
    Benchmark(
        *("SciTail", "does the answer follow from the text?", "pair_classification", "entail", ("accuracy",), ()),
        read=_reader("scitail", _scitail_spec),
        catalog="scitail",
    ),
)
