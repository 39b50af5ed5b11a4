"""Longer texts with a class: IMDb (Maas et al. 2011), and the csv files of Zhang et al. (2015).

    aclImdb/train/pos/0_9.txt        a file a review, the class is its folder: number _ stars
    train.jsonl                      {"id": "0_9", "label": "pos", "text": "…"}
    ag_news_csv/train.csv            "3","Wall St. Bears Claw Back","Reuters - Short-sellers …"

None of them has a dev split: a tenth of each class of train becomes one, the same rows each time. In a csv the texts of
a row are joined by a space, and the two characters \n that stand for a line end there become one, as IMDb's <br /> do.

Sentences with a label before each, as the sets of sentence classification are passed on.

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
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from nextword.core.errors import NextwordError
from nextword.data.catalog import Entry, absent, find
from nextword.data.files import chunks, lines, open_bytes
from nextword.data.readers import broken
from nextword.data.tables import Rows
from nextword.tasks.datasets.base import (
    OWN,
    TENTH,
    Labels,
    Read,
    Task,
    Wanted,
    json_table,
    needed,
    quoted_table,
    with_dev,
)

IMDB = "imdb"
POLARITIES = ("neg", "pos")
TOPICS = {"1": "World", "2": "Sports", "3": "Business", "4": "Sci/Tech"}
THINGS = {
    str(i): name
    for i, name in enumerate(
        (
            *("Company", "EducationalInstitution", "Artist", "Athlete", "OfficeHolder", "MeanOfTransportation"),
            *("Building", "NaturalPlace", "Village", "Animal", "Plant", "Album", "Film", "WrittenWork"),
        ),
        1,
    )
}


def _entry(name: str) -> Entry:
    entry = find(name)
    assert entry is not None, name
    return entry


def _trained(name: str, folder: Path, found: dict[str, Rows]) -> Read:
    if "train" not in found:
        names = " or ".join(_entry(name).layout["train"])
        raise NextwordError(f"{folder} has no training texts of {name}. Expected {names}.")
    return with_dev(found)


def _imdb(folder: Path) -> Read:
    found = {}
    for split, files in _entry(IMDB).locate(folder).items():
        if files[0].is_dir():
            found[split] = _reviews(files)
        else:
            rows = json_table(files[0], Wanted(("text",), None, ("label",), labels=POLARITIES))
            found[split] = replace(rows, texts=[broken(text) for text in rows.texts])
    return _trained(IMDB, folder, found)


def _reviews(folders: Sequence[Path]) -> Rows:
    """One file a review, in the order of their numbers; the folder's name is the label."""
    texts: list[str] = []
    labels: list[str] = []
    for folder in folders:
        if folder.name not in POLARITIES:
            raise NextwordError(
                f"{folder} is called neither {' nor '.join(POLARITIES)}. Expected the official folders."
            )
        files = sorted(folder.glob("*.txt"), key=_number)
        if not files:
            raise NextwordError(f"{folder} has no review in it. Expected files as 0_9.txt.")
        texts += [broken("".join(chunks(file))) for file in files]
        labels += [folder.name] * len(files)
    return Rows(texts, None, labels)


def _number(file: Path) -> tuple[int, str]:
    before = file.stem.partition("_")[0]
    if not before.isdigit():
        raise NextwordError(f"{file} is no review of IMDb: their names are a number, _ and the stars, as 0_9.txt.")
    return int(before), file.name


def _csv(name: str, columns: int, labels: Labels) -> Callable[[Path], Read]:
    def read(folder: Path) -> Read:
        files = _entry(name).locate(folder)
        found = {split: quoted_table(some[0], columns, labels, _text) for split, some in files.items()}
        return _trained(name, folder, found)

    return read


def _text(cells: Sequence[str]) -> str:
    return " ".join(cells).replace("\\n", "\n")


def _task(name: str, title: str, catalog: str, reader: Callable[[Path], Read]) -> Task:
    return Task(name, title, "classify", "classify", ("accuracy",), (), reader, catalog, dev=TENTH)


REVIEW_TASKS = (
    _task("IMDb", "is the review for or against the film?", IMDB, _imdb),
    _task("AG-News", "what is the article about, of four topics?", "ag-news", _csv("ag-news", 3, TOPICS)),
    _task("DBpedia", "what is it, of fourteen kinds?", "dbpedia", _csv("dbpedia", 3, THINGS)),
    _task("Yelp-2", "is the review for or against?", "yelp-2", _csv("yelp-2", 2, {"1": "neg", "2": "pos"})),
    _task("Yelp-5", "how many stars?", "yelp-5", _csv("yelp-5", 2, tuple("12345"))),
)


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


SENTENCE_TASKS = tuple(
    Task(name, title, "classify", "classify", ("accuracy",), (), reader, catalog, aliases, dev)
    for name, title, reader, catalog, aliases, dev in (
        ("SST-binary", "is the sentence for or against?", films("sst-2", two=True), "sst-2", ("stsa.binary",), OWN),
        ("SST-fine", "how good, of five grades?", films("sst-5", two=False), "sst-5", ("stsa.fine", "sst-5"), OWN),
        ("TREC-6", "what does the question ask for?", labelled("trec", coarse), "trec", ("trec",), TENTH),
        ("TREC-50", "what does it ask for, exactly?", labelled("trec"), "trec", (), TENTH),
    )
)
