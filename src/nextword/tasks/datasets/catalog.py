"""All benchmarks that `--data NAME` knows, and where their files are on this machine.

| module                 | benchmarks                                                                   |
| ---------------------- | ---------------------------------------------------------------------------- |
| glue.py                | CoLA SST-2 MRPC STS-B QQP MNLI QNLI RTE WNLI                                 |
| nli.py                 | SNLI SciTail                                                                 |
| text_classification.py | SST-binary SST-fine TREC-6 TREC-50 IMDb AG-News DBpedia Yelp-2 Yelp-5        |
| multiple_choice.py     | RACE RACE-middle RACE-high Story-Cloze SWAG                                  |

Tagging and question answering read the data catalog directly (data/catalog.toml); prompted benchmarks are in
evaluation/prompt_tasks.
"""

from __future__ import annotations

from pathlib import Path

from nextword.core.errors import MissingFile, NextwordError, UnknownName, did_you_mean
from nextword.data.catalog import Entry, data_folders, find_entry
from nextword.data.text_to_text import is_tasks
from nextword.tasks.datasets import glue, multiple_choice, nli, text_classification
from nextword.tasks.datasets.base import Benchmark, catalog_entry_named

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for module in (glue, nli, text_classification, multiple_choice)
    for benchmark in module.BENCHMARKS
}


def find_benchmark(name: str) -> Benchmark | None:
    """Find `RTE`, `rte` or `glue/RTE`. A file of that name in the current folder takes precedence."""
    names = {
        key: benchmark
        for benchmark in BENCHMARKS.values()
        for alias in (benchmark.name.lower(), *benchmark.aliases)
        for key in (alias, alias.replace("-", ""))
    }
    return None if Path(name).is_file() else names.get(name.lower().removeprefix("glue/"))


def catalog_entry(benchmark: Benchmark) -> Entry | None:
    return find_entry(benchmark.catalog or f"glue/{benchmark.name}")


def locate_benchmark(benchmark: Benchmark) -> Path:
    """Find the folder of a benchmark's files: in the data home or in a folder of $NEXTWORD_DATA."""
    if benchmark.catalog:
        return catalog_entry_named(benchmark.catalog).require_folder()
    glue_entry = catalog_entry(benchmark)
    aliases = (glue_entry.name, *glue_entry.aliases) if glue_entry else ()
    names = dict.fromkeys((f"glue/{benchmark.name}", f"GLUE/{benchmark.name}", benchmark.name, *aliases))
    folders = [home / name for home in data_folders() for name in names]
    for folder in folders:
        if any((folder / file).is_file() for file in benchmark.files):
            return folder
    raise MissingFile(
        f"{benchmark.name} ({benchmark.title}) is not on this machine. Download it from "
        f"https://gluebenchmark.com/tasks and put its folder at {folders[0]}, or at glue/{benchmark.name} in a folder "
        "listed in $NEXTWORD_DATA.",
        path=folders[0],
    )


def is_installed(benchmark: Benchmark) -> bool:
    try:
        locate_benchmark(benchmark)
    except NextwordError:
        return False
    return True


def unknown_data(name: str) -> UnknownName:
    """Explain a --data value that is neither a file nor a benchmark: it may belong to another command or recipe."""
    entry = find_entry(name)
    if entry is not None and entry.kind == "tagging":
        advice = (
            f"{entry.name} has tagged words. Use a tagging recipe: nextword transfer bert/tag --from RUN --data "
            f"{entry.name}."
        )
    elif entry is not None and (entry.is_text or entry.kind == "choice"):
        advice = (
            f"{entry.name} ({entry.title}) is not a data set of labeled texts. List the benchmarks for language models "
            "with `nextword evaluate --list-tasks`."
        )
    elif is_tasks(name) or (entry is not None and entry.kind == "translation"):
        advice = (
            f"{name} is a text-to-text data set: nextword train t5/tasks --data {name} (from a pretrained run: --set "
            "phase.0.init_from=RUN). To fine-tune T5 on labels, use t5/finetune."
        )
    else:
        lower = {known.lower(): known for known in BENCHMARKS}
        hint = did_you_mean(name.lower(), lower)
        for key, known in lower.items():
            hint = hint.replace(f"'{key}'", known)
        advice = (
            f"--data {name} is neither a file, a folder nor a known benchmark.{hint} Benchmarks: "
            f"{', '.join(BENCHMARKS)}, or glue for a suite of five. Or pass a csv, tsv or jsonl file."
        )
    return UnknownName(advice, name=name, known=BENCHMARKS)
