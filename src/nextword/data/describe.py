"""Describe data sets: what `nextword data` lists and shows.

list_data_sets     every built-in corpus and catalog entry, and whether it is installed
describe_corpus    one of them, or any text: license, splits, files, checksums, counts, overlap of splits
"""

from __future__ import annotations

import shlex
from array import array
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from nextword.core.errors import DataError
from nextword.data.builtin import BUILT_IN, is_installed
from nextword.data.catalog import ALL, Entry, catalog
from nextword.data.conll import KIND as TAGGING
from nextword.data.corpus import Corpus, hash_text
from nextword.data.files import TextStream, format_suffix, is_archive, read_chunks, read_lines
from nextword.data.filters.decontaminate import count_leaks
from nextword.data.mixture import MixedText
from nextword.data.opening import open_corpus, open_entry, open_unsplit
from nextword.data.parallel import BIBLE, VERSIONS, is_parallel, open_parallel, parse
from nextword.data.parallel_files import ParallelCorpus, group_by_stem, list_folder, list_languages
from nextword.data.readers import read
from nextword.data.segmentation import is_unspaced
from nextword.data.squad import read_squad
from nextword.data.tables import read_rows

BUILT_IN_LICENSES = {"web": "public domain", "kjv": "public domain (Crown rights in the UK)", "python": "PSF License"}

SAMPLE = 2_000  # characters of a text that show whether its script has spaces between words

OnProgress = Callable[[str, float, float | None], None]  # label, done, total


def list_data_sets() -> list[dict[str, Any]]:
    """One row per data set; `place` is its folder, or None if it is not installed."""
    built_in = [
        {
            **_built_in_facts(name),
            "home": "",
            "unit": "",
            "splits": {},
            "place": "built in" if is_installed(name) else None,
        }
        for name in BUILT_IN
    ]
    return built_in + [
        {**_entry_facts(entry), "unit": entry.unit, "splits": dict(entry.splits)} for entry in catalog().values()
    ]


def _built_in_facts(name: str) -> dict[str, Any]:
    return {"name": name, "title": BUILT_IN[name][0], "kind": "text", "license": BUILT_IN_LICENSES[name]}


def _entry_facts(entry: Entry) -> dict[str, Any]:
    folder = entry.find_folder()
    facts = {key: getattr(entry, key) for key in ("name", "title", "kind", "license", "home")}
    return {**facts, "place": str(folder) if folder else None}


def describe_corpus(name: str, entry: Entry | None, on_progress: OnProgress) -> dict[str, Any]:
    """Everything about a data set (its catalog `entry`) or a text; with counts if it is installed."""
    if name in BUILT_IN:
        corpus = open_corpus(name)
        return {**_built_in_facts(name), "source": corpus.source, **_count_documents(corpus, on_progress)}
    if entry is not None:
        return _describe_entry(name, entry, on_progress)
    if Path(name).is_dir() and len(sides := list_languages(group_by_stem(list_folder(Path(name))))) == 2:
        name = f"{name}:{'-'.join(sides)}"  # aligned files, as train.de and train.en
    if is_parallel(name):
        is_bible = parse(name)[0] == BIBLE
        facts = {"title": VERSIONS, "license": BUILT_IN_LICENSES["kjv"]} if is_bible else {}
        command = f"nextword train seq2seq/small --data {shlex.quote(name)}"
        return {"kind": "parallel", **facts, **_count_pairs(open_parallel(name), on_progress), "command": command}
    warnings = []
    try:
        corpus = open_corpus(name)
        counts = _count_documents(corpus, on_progress)
    except DataError as error:  # too short to split, perhaps
        corpus = open_unsplit(name)
        counts = _count_documents(corpus, on_progress)
        warnings = [str(error)]
    facts = {"name": corpus.name, "kind": "text", "source": corpus.source}
    command = f"nextword compare --data {shlex.quote(name)}"
    return {**facts, **counts, "warnings": warnings, "command": command}


def _describe_entry(name: str, entry: Entry, on_progress: OnProgress) -> dict[str, Any]:
    folder = entry.find_folder()
    facts: dict[str, Any] = {
        **_entry_facts(entry),
        "note": entry.note,
        "published": {**entry.splits, "unit": entry.unit} if entry.splits else {},
        "layout": {split: list(names) for split, names in entry.layout.items()},
        "get": [item.url for item in entry.get],
    }
    if folder is None:
        return facts
    files = entry.locate(folder)
    facts["files"] = {split: [str(path.relative_to(folder)) for path in paths] for split, paths in files.items()}
    facts["checksums"] = {file: "as known" if ok else "DIFFERENT" for file, ok in entry.verify(folder).items()}
    facts["warnings"] = compare_sizes(entry, folder)
    if is_parallel(name) or entry.pair:  # the pairs rather than one side of them as a text
        facts |= _count_pairs(open_parallel(name), on_progress)
    elif entry.is_text:
        corpus = open_entry(entry, folder)
        facts |= {"source": corpus.source, **_count_documents(corpus, on_progress)}
    return facts


# ------------------------------------------------------------------------------------------------ published sizes

TOLERANCE = 0.99  # counts differ a little between editions, and by a header line


def compare_sizes(entry: Entry, folder: Path) -> list[str]:
    """Return a warning for each split that has fewer examples than were published."""
    files = entry.locate(folder)
    actual = {split: _count_examples(entry, paths) for split, paths in files.items()}
    published = dict(entry.splits)
    if ALL in actual and ALL not in published:  # text that is split by position
        published = {ALL: sum(published.values())}
    elif "valid" in actual and "valid" not in published:  # GLUE's dev split of MRPC is a part of the published train
        actual["train"] = _add(actual.get("train"), actual.pop("valid"))
    name = {ALL: entry.name}
    return [
        f"{name.get(split, split)} has {count:,} {entry.unit}, but {published[split]:,} were published: this copy is "
        f"incomplete or a sample. Get all of it from {entry.home}"
        for split, count in actual.items()
        if count is not None and split in published and count < TOLERANCE * published[split]
    ]


def _add(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _count_examples(entry: Entry, paths: Sequence[Path]) -> int | None:
    """Count what the catalog's `unit` counts; None for formats without one line, row or file per example."""
    counts = [_count_in_file(entry, path) for path in paths[: 1 if entry.kind == "translation" else None]]
    known = [count for count in counts if count is not None]
    return sum(known) if counts and len(known) == len(counts) else None


def _count_in_file(entry: Entry, path: Path) -> int | None:
    if path.is_dir():  # IMDb: one file per review
        files = sum(1 for _ in path.glob("*.txt"))
        return files if entry.unit == "reviews" and files else None
    if is_archive(path) or path.suffix == ".mrg" or entry.name in MULTILINE:
        return None
    if entry.kind == "questions":
        return len(read_squad(path))
    if entry.kind in (TAGGING, "roles"):
        blocks = groupby(read_lines(path), lambda line: bool(line.strip()) and not line.startswith("-DOCSTART-"))
        return sum(is_sentence for is_sentence, _ in blocks)
    if entry.unit == "bytes":
        return sum(len(chunk.encode()) for chunk in read_chunks(path))
    if entry.unit == "tokens":  # words and line ends
        return sum(len(line.split()) + 1 for line in read_lines(path))
    if entry.kind == "text" and entry.column is None and entry.unit == "articles":
        return sum(not document.continues for document in read(path))
    if format_suffix(path) == ".csv" and entry.name not in TABBED:
        return sum(bool(row) for _, row in read_rows(path, TextStream(path, legacy=True).lines(), ".csv"))
    return sum(bool(line.strip()) for line in TextStream(path, legacy=True).lines())


MULTILINE = ("cbt",)  # 21 lines per question
TABBED = ("sts-b",)  # sts-train.csv: tabs, and quotation marks are text


# ------------------------------------------------------------------------------------------------ counts


def _count_documents(corpus: Corpus, on_progress: OnProgress) -> dict[str, Any]:
    """Documents, bytes, words and characters of each split, and how many held-out documents are also in train."""
    counts = {}
    sample = ""
    for split in corpus.splits:
        num_documents = size = num_words = num_characters = 0
        total = corpus.bytes(split)
        for document in corpus.documents(split):
            num_documents += not document.continues
            size += len(document.text.encode())
            num_words += len(document.text.split())
            num_characters += len(document.text)
            sample = sample or document.text[:SAMPLE]
            on_progress(f"counting {split}", size, total)
        counts[split] = {
            "documents": num_documents,
            "bytes": size,
            "words": num_words,
            "characters": num_characters,
        }
    facts: dict[str, Any] = {"splits": counts, "is_unspaced": is_unspaced(sample), "leakage": count_leaks(corpus)}
    if isinstance(mixture := corpus.texts.get("train"), MixedText):
        facts["sources"] = [vars(row) for row in mixture.table()]
    return facts


def _count_pairs(corpus: ParallelCorpus, on_progress: OnProgress) -> dict[str, Any]:
    """Pairs and mean lengths of each split, how many held-out sources are also in train, and the first pair."""
    counts: dict[str, Any] = {}
    sample: dict[str, str] = {}
    source_hashes: dict[str, np.ndarray] = {}
    for split in corpus.splits:
        hashes, words, characters, size = array("Q"), [0, 0], [0, 0], 0
        total = corpus.bytes(split)
        for document in corpus.documents(split):
            source = document.source or ""
            for i, text in enumerate((source, document.text)):
                words[i] += len(text.split())
                characters[i] += len(text)
            size += len(document.text.encode())
            hashes.append(hash_text(source))
            sample = sample or {"id": document.id, "source": source, "target": document.text}
            on_progress(f"counting {split}", size, total)
        source_hashes[split] = np.asarray(hashes, np.uint64)
        n = len(hashes)
        counts[split] = {
            "pairs": n,
            "mean_words": {"source": words[0] / n, "target": words[1] / n},
            "mean_characters": {"source": characters[0] / n, "target": characters[1] / n},
        }
    train = source_hashes.get("train")
    leaks = {
        split: int(np.isin(hashes, train).sum())
        for split, hashes in source_hashes.items()
        if train is not None and split != "train"
    }
    facts = {"name": corpus.name, "pair": dict(zip(("source", "target"), corpus.pair, strict=True))}
    return {**facts, "source": corpus.source, "splits": counts, "leakage": leaks, "sample": sample}
