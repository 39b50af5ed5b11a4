"""Sentences with a label before each, as the sets of sentence classification are passed on.

    1 a stirring , funny and finally transporting re-imagining …       the Stanford Sentiment Treebank: stsa.binary.*
    DESC:manner How did serfdom develop in and then leave Russia ?     TREC: a kind, and a finer one after the colon
    (3 (2 It) (4 (2 's) (4 great)))                                    the same treebank from its owner: trees/*.txt

`SST-binary` and `SST-fine` are whole sentences of the treebank, of which GLUE's SST-2 has phrases. One line is one
example: the label, a space, the text; or a tree, of which the grade of the whole counts, from 0 to 4. Of two classes,
0 and 1 are against, 3 and 4 for, and the neutral 2 is left out and counted. Lines are UTF-8, and where they are not,
Latin-1.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from nextword.contract_errors import NextwordError
from nextword.corpora.catalog import Entry, absent, find
from nextword.corpora.decoding import lines, open_bytes
from nextword.transfer.official import needed
from nextword.transfer.tables import Rows
from nextword.transfer.task import OWN, TENTH, Read, Task, with_dev

SPLITS = {"train": "train", "valid": "dev", "test": "test"}  # the catalog's names → ours
TREES = "trees"  # the folder of the owner's files
BINARY_OF_GRADE = {"0": "0", "1": "0", "2": "", "3": "1", "4": "1"}  # grade → of two classes
LEAF = re.compile(r"\([0-4] ([^()\s]+)\)")
NODE = re.compile(r"\([0-4]\s*\)")  # whose parts have been taken out
WRITTEN = {"-LRB-": "(", "-RRB-": ")"}


def place_in_catalog(name: str) -> Path:
    """The folder that has the files of a set of the catalog."""
    entry = _entry(name)
    folder = entry.place()
    if folder is None:
        raise absent(entry)
    return folder


def films(name: str, two: bool) -> Callable[[Path], Read]:
    """A reader of the treebank of films, in lines or in trees; `two` classes, or five."""

    def read(folder: Path) -> Read:
        entry = _entry(name)
        found: dict[str, Rows] = {}
        notes: list[str] = []
        for split, files in entry.locate(folder).items():
            in_trees = files[0].parent.name == TREES
            rows = read_trees(files[0]) if in_trees else read_labelled(files[0])
            if in_trees and two:
                sides = [BINARY_OF_GRADE[label] for label in rows.labels or ()]
                kept = [i for i, side in enumerate(sides) if side]
                rows = replace(rows.take(kept), labels=[sides[i] for i in kept])
                notes.append(f"{len(sides) - len(kept):,} sentences of {SPLITS[split]} are neutral and left out")
            found[SPLITS[split]] = rows
        return needed(
            folder, found, {SPLITS[split]: " or ".join(names) for split, names in entry.layout.items()}
        ), notes

    return read


def read_trees(path: Path) -> Rows:
    """The sentence of each tree, with the grade of the whole of it."""
    texts, labels = [], []
    for number, line in enumerate(lines(path), 1):
        tree = line.strip()
        if not tree:
            continue
        if not _is_tree(tree):
            raise NextwordError(
                f"{path}, line {number} is {tree[:60]!r}, which is no tree of the treebank. Expected grades from 0 to "
                "4, as in (3 (2 Good) (2 film))."
            )
        texts.append(
            " ".join(WRITTEN.get(word, word.replace("\\/", "/").replace("\\*", "*")) for word in LEAF.findall(tree))
        )
        labels.append(tree[1])
    if not texts:
        raise NextwordError(f"{path} has no tree in it. Expected the official file.")
    return Rows(texts, None, labels)


def _is_tree(text: str) -> bool:
    """One bracket from end to end, with nothing within but grades, brackets and words."""
    deep = list(accumulate((letter == "(") - (letter == ")") for letter in text))
    rest = LEAF.sub("", text)
    while (less := NODE.sub("", rest)) != rest:
        rest = less
    return LEAF.search(text) is not None and not rest and deep[-1] == 0 and 0 not in deep[:-1]


def labelled(name: str, label: Callable[[str], str] = str) -> Callable[[Path], Read]:
    """A reader of a set of the catalog. Without a dev split, a tenth of the training sentences is held out."""

    def read(folder: Path) -> Read:
        found = {SPLITS[split]: read_labelled(files[0], label) for split, files in _entry(name).locate(folder).items()}
        if "train" not in found:
            raise NextwordError(f"{folder} has no training sentences of {name}. Expected {_entry(name).layout}.")
        return with_dev(found, "sentences")

    return read


def read_labelled(path: Path, label: Callable[[str], str] = str) -> Rows:
    """The sentences of one file, with what `label` makes of each label."""
    texts, labels = [], []
    with open_bytes(path) as file:
        for number, raw in enumerate(file, 1):
            line = _decoded(raw).strip()
            if not line:
                continue
            before, _, text = line.partition(" ")
            if not text.strip():
                raise NextwordError(
                    f"{path}, line {number} is {line[:60]!r}: no text follows the label. Expected a label, a space and "
                    "a sentence."
                )
            texts.append(text.strip())
            labels.append(label(before))
    return Rows(texts, None, labels)


def coarse(label: str) -> str:
    """`DESC:manner` → `DESC`."""
    return label.partition(":")[0]


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _entry(name: str) -> Entry:
    entry = find(name)
    assert entry is not None, name
    return entry


SENTENCE_TASKS = tuple(
    Task(name, title, "classify", "classify", ("accuracy",), (), reader, catalog, aliases, dev)
    for name, title, reader, catalog, aliases, dev in (
        ("SST-binary", "is the sentence for or against?", films("sst-2", two=True), "sst-2", ("stsa.binary",), OWN),
        ("SST-fine", "how good, of five grades?", films("sst-5", two=False), "sst-5", ("stsa.fine", "sst-5"), OWN),
        ("TREC-6", "what does the question ask for?", labelled("trec", coarse), "trec", ("trec",), TENTH),
        ("TREC-50", "what does it ask for, exactly?", labelled("trec"), "trec", (), TENTH),
    )
)
