"""Sentences with a label before each, as the sets of sentence classification are passed on.

    1 a stirring , funny and finally transporting re-imagining …       the Stanford Sentiment Treebank: stsa.binary.*
    DESC:manner How did serfdom develop in and then leave Russia ?     TREC: a kind, and a finer one after the colon

`SST-binary` and `SST-fine` are whole sentences of the treebank, of which GLUE's SST-2 has phrases. One line is one
example: the label, a space, the text. Lines are UTF-8, and where they are not, Latin-1.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nextword.contract import NextwordError
from nextword.corpora.catalog import Entry, absent, find
from nextword.corpora.decoding import open_bytes
from nextword.transfer.tables import Rows
from nextword.transfer.task import OWN, TENTH, Read, Task, with_dev

SPLITS = {"train": "train", "valid": "dev", "test": "test"}  # the catalog's names → ours


def place_in_catalog(name: str) -> Path:
    """The folder that has the files of a set of the catalog."""
    entry = _entry(name)
    folder = entry.place()
    if folder is None:
        raise absent(entry)
    return folder


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


TASKS = tuple(
    Task(name, title, "classify", "classify", ("accuracy",), (), reader, catalog, aliases, dev)
    for name, title, reader, catalog, aliases, dev in (
        ("SST-binary", "is the sentence for or against?", labelled("sst-2"), "sst-2", ("stsa.binary",), OWN),
        ("SST-fine", "how good, of five grades?", labelled("sst-5"), "sst-5", ("stsa.fine", "sst-5"), OWN),
        ("TREC-6", "what does the question ask for?", labelled("trec", coarse), "trec", ("trec",), TENTH),
        ("TREC-50", "what does it ask for, exactly?", labelled("trec"), "trec", (), TENTH),
    )
)
