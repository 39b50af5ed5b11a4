r"""Text classification: reviews and topics (IMDb, AG News, DBpedia, Yelp), and sentences (SST, TREC).

IMDb (Maas et al. 2011), and the csv files of Zhang et al. (2015). None has a dev split: a tenth of each class of train
becomes one, the same rows each time.

    aclImdb/train/pos/0_9.txt        one file per review, named NUMBER_STARS; the folder is the class
    train.jsonl                      {"id": "0_9", "label": "pos", "text": "…"}
    ag_news_csv/train.csv            "3","Wall St. Bears Claw Back","Reuters - Short-sellers …"

The text cells of a csv row are joined by a space. Line breaks, written as the two characters \n in the csv files and as
<br /> in IMDb, become real ones.

The Stanford Sentiment Treebank and TREC, one sentence per line after its label; or the treebank's own trees.

    1 a stirring , funny and finally transporting re-imagining …       SST: stsa.binary.*, stsa.fine.*
    DESC:manner How did serfdom develop in and then leave Russia ?     TREC: a coarse label, and a fine one after ":"
    (3 (2 It) (4 (2 's) (4 great)))                                    SST: trees/*.txt

`SST-binary` and `SST-fine` have whole sentences of the treebank; GLUE's SST-2 also has phrases. The label of a tree is
the grade of its root, 0 to 4. For two classes, 0 and 1 are negative, 3 and 4 positive, and neutral sentences (2) are
skipped.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from nextword.data.files import TextStream, read_chunks, read_lines
from nextword.data.readers import replace_breaks
from nextword.data.tables import Rows
from nextword.tasks.datasets.base import (
    PUBLISHED,
    TENTH_OF_TRAIN,
    Benchmark,
    ColumnSpec,
    Labels,
    Read,
    Reader,
    RowCollector,
    SplitReader,
    bad_data,
    hold_out_dev,
    read_catalog_splits,
    read_jsonl,
)

# ------------------------------------------------------------------------------------------------ reviews and topics

POLARITIES = ("neg", "pos")
YELP_POLARITY = {"1": "neg", "2": "pos"}
TOPICS = {"1": "World", "2": "Sports", "3": "Business", "4": "Sci/Tech"}
DBPEDIA_CLASSES = {
    str(i): name
    for i, name in enumerate(
        (
            *("Company", "EducationalInstitution", "Artist", "Athlete", "OfficeHolder", "MeanOfTransportation"),
            *("Building", "NaturalPlace", "Village", "Animal", "Plant", "Album", "Film", "WrittenWork"),
        ),
        1,
    )
}


def _read_with_held_out_dev(name: str, folder: Path, read: SplitReader, unit: str = "rows") -> Read:
    splits = read_catalog_splits(name, folder, read, ("train",))
    return hold_out_dev(splits, splits["train"], folder, unit)


def _read_imdb(folder: Path) -> Read:
    return _read_with_held_out_dev("imdb", folder, _read_reviews)


def _read_reviews(split: str, places: Sequence[Path]) -> Rows:
    """Read a JSON lines file, or folders of one file per review, in the order of their numbers."""
    if not places[0].is_dir():
        rows = read_jsonl(places[0], ColumnSpec(("text",), None, ("label",), labels=POLARITIES))
        return replace(rows, texts=[replace_breaks(text) for text in rows.texts])
    texts: list[str] = []
    labels: list[str] = []
    for folder in places:
        if folder.name not in POLARITIES:
            raise bad_data(folder, f"unexpected folder. Expected the official {' and '.join(POLARITIES)}.")
        files = sorted(folder.glob("*.txt"), key=_review_number)
        if not files:
            raise bad_data(folder, "there are no reviews. Expected files such as 0_9.txt.")
        texts += [replace_breaks("".join(read_chunks(file))) for file in files]
        labels += [folder.name] * len(files)
    return Rows(texts, None, labels)


def _review_number(file: Path) -> tuple[int, str]:
    number = file.stem.partition("_")[0]
    if not (number.isdecimal() and len(number) < 20):
        raise bad_data(file, "not a review of IMDb. Expected a name NUMBER_STARS.txt, such as 0_9.txt.")
    return int(number), file.name


def _csv_reader(name: str, width: int, labels: Labels) -> Reader:
    """Return a reader of the csv files of Zhang et al.: no header, the class first, then texts, all cells quoted."""

    def read(split: str, files: Sequence[Path]) -> Rows:
        csv.field_size_limit(1 << 30)
        file = files[0]
        rows = RowCollector(file, labels)
        lines = csv.reader(read_lines(file), strict=True)
        try:
            for cells in filter(None, lines):
                if len(cells) != width:
                    raise bad_data(file, f"{len(cells)} columns instead of {width}, a class and texts.", lines.line_num)
                text = " ".join(cells[1:]).replace("\\n", "\n")
                rows.add(lines.line_num, {"label": cells[0], "text": text})
        except csv.Error as problem:
            raise bad_data(file, f"not a valid csv row: {problem}.", lines.line_num) from None
        return rows.rows()

    return lambda folder: _read_with_held_out_dev(name, folder, read)


# ------------------------------------------------------------------------------------------------ sentences

BINARY_OF_GRADE = {"0": "0", "1": "0", "2": "", "3": "1", "4": "1"}
LEAF = re.compile(r"\([0-4] ([^()\s]+)\)")
EMPTY_NODE = re.compile(r"\([0-4]\s*\)")  # a node whose children have been removed
BRACKETS = {"-LRB-": "(", "-RRB-": ")"}


def _treebank_reader(name: str, binary: bool) -> Reader:
    """Return a reader of SST, from lines or trees, with two or five classes."""

    def read(folder: Path) -> Read:
        notes: list[str] = []

        def read_split(split: str, files: Sequence[Path]) -> Rows:
            file = files[0]
            has_trees = file.parent.name == "trees"
            rows = read_trees(file) if has_trees else read_labeled_lines(file)
            if not has_trees or not binary:
                return rows
            polarities = [BINARY_OF_GRADE[label] for label in rows.labels or ()]
            chosen = [i for i, polarity in enumerate(polarities) if polarity]
            notes.append(f"skipped {len(polarities) - len(chosen):,} neutral sentences of {split}")
            return replace(rows.take(chosen), labels=[polarities[i] for i in chosen])

        return read_catalog_splits(name, folder, read_split), notes

    return read


def read_trees(path: Path) -> Rows:
    """Read the sentence of each tree, labeled with the grade of its root."""
    texts, labels = [], []
    for number, line in enumerate(read_lines(path), 1):
        tree = line.strip()
        if not tree:
            continue
        if not _is_tree(tree):
            expected = "Expected grades from 0 to 4, as in (3 (2 Good) (2 film))."
            raise bad_data(path, f"not a tree of the treebank: {tree[:60]!r}. {expected}", number)
        words = [BRACKETS.get(word, word.replace("\\/", "/").replace("\\*", "*")) for word in LEAF.findall(tree)]
        texts.append(" ".join(words))
        labels.append(tree[1])
    if not texts:
        raise bad_data(path, "there are no trees. Expected the official file.")
    return Rows(texts, None, labels)


def _is_tree(text: str) -> bool:
    """Whether the line is one bracket from end to end that contains only grades, brackets and words."""
    depths = list(accumulate((letter == "(") - (letter == ")") for letter in text))
    rest = LEAF.sub("", text)
    while (smaller := EMPTY_NODE.sub("", rest)) != rest:
        rest = smaller
    return LEAF.search(text) is not None and not rest and depths[-1] == 0 and 0 not in depths[:-1]


def _lines_reader(name: str, map_label: Callable[[str], str] = str) -> Reader:
    def read(split: str, files: Sequence[Path]) -> Rows:
        return read_labeled_lines(files[0], map_label)

    return lambda folder: _read_with_held_out_dev(name, folder, read, "sentences")


def read_labeled_lines(path: Path, map_label: Callable[[str], str] = str) -> Rows:
    """Read lines of a label, a space and a sentence."""
    texts, labels = [], []
    for number, line in enumerate(TextStream(path, legacy=True).lines(), 1):
        if not line.strip():
            continue
        label, _, text = line.strip().partition(" ")
        if not text.strip():
            expected = "Expected a label, a space and a sentence."
            raise bad_data(path, f"no text after the label in {line.strip()[:60]!r}. {expected}", number)
        texts.append(text.strip())
        labels.append(map_label(label))
    return Rows(texts, None, labels)


def coarse_label(label: str) -> str:
    """`DESC:manner` → `DESC`."""
    return label.partition(":")[0]


SST_FINE = ("stsa.fine", "sst-5")
BENCHMARKS = tuple(
    Benchmark(name, title, "classification", "classify", ("accuracy",), (), reader, catalog, aliases, dev)
    for name, title, catalog, aliases, dev, reader in (
        ("SST-binary", "is it positive?", "sst-2", ("stsa.binary",), PUBLISHED, _treebank_reader("sst-2", True)),
        ("SST-fine", "sentiment, in five grades", "sst-5", SST_FINE, PUBLISHED, _treebank_reader("sst-5", False)),
        ("TREC-6", "type of the question", "trec", ("trec",), TENTH_OF_TRAIN, _lines_reader("trec", coarse_label)),
        ("TREC-50", "type of the question, fine", "trec", (), TENTH_OF_TRAIN, _lines_reader("trec")),
        ("IMDb", "is the film review positive?", "imdb", (), TENTH_OF_TRAIN, _read_imdb),
        ("AG-News", "one of four topics", "ag-news", (), TENTH_OF_TRAIN, _csv_reader("ag-news", 3, TOPICS)),
        ("DBpedia", "one of 14 classes", "dbpedia", (), TENTH_OF_TRAIN, _csv_reader("dbpedia", 3, DBPEDIA_CLASSES)),
        ("Yelp-2", "is the review positive?", "yelp-2", (), TENTH_OF_TRAIN, _csv_reader("yelp-2", 2, YELP_POLARITY)),
        ("Yelp-5", "how many stars?", "yelp-5", (), TENTH_OF_TRAIN, _csv_reader("yelp-5", 2, tuple("12345"))),
    )
)
