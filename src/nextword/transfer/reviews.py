"""Longer texts with a class: IMDb (Maas et al. 2011), and the csv files of Zhang et al. (2015).

    aclImdb/train/pos/0_9.txt        a file a review, the class is its folder: number _ stars
    train.jsonl                      {"id": "0_9", "label": "pos", "text": "…"}
    ag_news_csv/train.csv            "3","Wall St. Bears Claw Back","Reuters - Short-sellers …"

None of them has a dev split: a tenth of each class of train becomes one, the same rows each time. In a csv the texts of
a row are joined by a space, and the two characters \\n that stand for a line end there become one, as IMDb's <br /> do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from nextword.contract_errors import NextwordError
from nextword.corpora.catalog import Entry, find
from nextword.corpora.decoding import chunks
from nextword.corpora.readers import broken
from nextword.transfer.official import Labels, Wanted, json_table, quoted_table
from nextword.transfer.tables import Rows
from nextword.transfer.task import TENTH, Read, Task, with_dev

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
            raise NextwordError(f"{folder} is called neither {' nor '.join(POLARITIES)}. Expected the official folders.")
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
