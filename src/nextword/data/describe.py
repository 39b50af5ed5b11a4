"""Describe data sets: what `nextword data` lists and shows.

list_data_sets     every built-in corpus and catalog entry, and whether it is installed
describe_corpus    one of them, or any text: license, splits, files, checksums, counts, overlap of splits
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

from nextword.data.builtin import BUILT_IN, is_installed
from nextword.data.catalog import Entry, catalog
from nextword.data.corpus import Corpus, hash_text
from nextword.data.filters.decontaminate import count_leaks
from nextword.data.mixture import MixedText
from nextword.data.opening import open_corpus, open_entry
from nextword.data.parallel import BIBLE, VERSIONS, is_parallel, open_parallel, parse
from nextword.data.parallel_files import ParallelCorpus

BUILT_IN_LICENSES = {"web": "public domain", "kjv": "public domain (Crown rights in the UK)", "python": "PSF License"}

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
    if is_parallel(name):
        is_bible = parse(name)[0] == BIBLE
        facts = {"title": VERSIONS, "license": BUILT_IN_LICENSES["kjv"]} if is_bible else {}
        return {"kind": "parallel", **facts, **_count_pairs(open_parallel(name), on_progress)}
    corpus = open_corpus(name)
    facts = {"name": corpus.name, "kind": "text", "source": corpus.source}
    return {**facts, **_count_documents(corpus, on_progress)}


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
    if is_parallel(name) or entry.pair:  # the pairs rather than one side of them as a text
        facts |= _count_pairs(open_parallel(name), on_progress)
    elif entry.is_text:
        corpus = open_entry(entry, folder)
        facts |= {"source": corpus.source, **_count_documents(corpus, on_progress)}
    return facts


def _count_documents(corpus: Corpus, on_progress: OnProgress) -> dict[str, Any]:
    """Documents, bytes and words of each split, and how many held-out documents are also in train."""
    counts = {}
    for split in corpus.splits:
        num_documents = size = num_words = 0
        total = corpus.bytes(split)
        for document in corpus.documents(split):
            num_documents += not document.continues
            size += len(document.text.encode())
            num_words += len(document.text.split())
            on_progress(f"counting {split}", size, total)
        counts[split] = {"documents": num_documents, "bytes": size, "words": num_words}
    facts: dict[str, Any] = {"splits": counts, "leakage": count_leaks(corpus)}
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
