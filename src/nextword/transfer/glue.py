"""The tasks of GLUE (Wang et al. 2018) in their official files, which differ in headers, order and quoting.

| task  |                                                  | kind     | headline, and more  |
| ----- | ------------------------------------------------ | -------- | ------------------- |
| CoLA  | is the sentence acceptable?                      | classify | mcc                 |
| SST-2 | is the review for or against the film?           | classify | accuracy            |
| MRPC  | do two sentences say the same?                   | pair     | f1, accuracy        |
| STS-B | how alike are two sentences, from 0 to 5?        | regress  | spearman, pearson   |
| QQP   | do two questions ask the same?                   | pair     | f1, accuracy        |
| MNLI  | does the second follow, contradict, or neither?  | pair     | accuracy, both devs |
| QNLI  | does the sentence answer the question?           | pair     | accuracy            |
| RTE   | does the second follow from the first?           | pair     | accuracy            |
| WNLI  | the same, of pronouns                            | pair     | accuracy            |

Tabs alone divide: quotation marks are text. Test labels are kept back by the benchmark; where a copy has them, they are
read, and measured apart. Of MRPC, the original files have no dev split: GLUE's `dev_ids.tsv` is used where it lies
beside them, otherwise a tenth of the training pairs is held out (408 pairs, as GLUE's).

Beside them stand sets of single sentences in files of their own (sentences.py): `SST-binary` and `SST-fine` are whole
sentences of the treebank, of which GLUE's SST-2 has phrases; `TREC-6` and `TREC-50` are questions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nextword.contract import NextwordError
from nextword.corpora.catalog import data_home, shared_folders
from nextword.corpora.decoding import lines
from nextword.transfer.sentences import coarse, labelled, place_in_catalog
from nextword.transfer.tables import Rows, held_out

Read = tuple[dict[str, Rows], list[str]]
SUITE = "glue"
FIVE = ("CoLA", "MRPC", "RTE", "SST-2", "STS-B")  # whose labels are at hand and which small networks learn something of


@dataclass(frozen=True)
class Task:
    name: str
    title: str
    kind: str
    frame: str  # models/frames.py; "similar" where neither text comes first
    metrics: tuple[str, ...]  # the first is the headline
    files: tuple[str, ...]  # one of these must be there
    reader: Callable[[Path], Read]
    catalog: str = ""  # the name that its files have in the catalog, where it is not GLUE's
    aliases: tuple[str, ...] = ()

    def read(self, folder: Path) -> Read:
        return self.reader(folder)


def find_task(name: str) -> Task | None:
    """By name, `RTE`, `rte` or `glue/RTE`; a file of that name in this folder is meant as a file."""
    plain = name.lower().removeprefix("glue/")
    found = {
        key: task
        for task in TASKS.values()
        for name_of in (task.name.lower(), *task.aliases)
        for key in (name_of, name_of.replace("-", ""))
    }
    return None if Path(name).is_file() else found.get(plain)


def place_of(task: Task) -> Path:
    """The folder of a task's files: in the data home, then in each folder of $NEXTWORD_DATA."""
    if task.catalog:
        return place_in_catalog(task.catalog)
    looked = []
    for home in (data_home(), *shared_folders()):
        for name in (f"glue/{task.name}", f"GLUE/{task.name}", task.name, task.name.lower()):
            folder = home / name
            looked.append(folder)
            if any((folder / file).is_file() for file in task.files):
                return folder
    raise NextwordError(
        f"{task.name} ({task.title}) is not on this machine. Its home is https://gluebenchmark.com/tasks. Put its "
        f"folder at {looked[0]}, or into a folder named in $NEXTWORD_DATA, as glue/{task.name}."
    )


# ------------------------------------------------------------------------------------------------ files


@dataclass(frozen=True)
class Wanted:
    """Where a file has what: names of columns, of which one is there, or numbers in a file without a header."""

    text: Sequence[str] | int
    second: Sequence[str] | int | None = None
    label: Sequence[str] | int | None = None


def _table(file: Path, wanted: Wanted, header: bool | None = None) -> tuple[Rows, list[str]]:
    """The rows of a file; short ones are left out, and that is said. Without a label column there are no labels."""
    source = (line.rstrip("\n").split("\t") for line in lines(file))
    named = not isinstance(wanted.text, int) if header is None else header
    names = next(source, []) if named else []
    at = [_at(file, names, one, optional=role == "label") for role, one in vars(wanted).items()]
    text, second, label = at
    most = max(i for i in at if i is not None)
    found: list[list[str]] = []
    short = 0
    for row in source:
        if len(row) > most:
            found.append(row)
        elif row != [""]:
            short += 1
    assert text is not None
    rows = Rows(
        [row[text] for row in found],
        None if second is None else [row[second] for row in found],
        None if label is None else [row[label].strip() for row in found],
    )
    return rows, [f"{short:,} rows of {file.name} have too few columns and are left out"] if short else []


def _at(file: Path, names: Sequence[str], one: Sequence[str] | int | None, optional: bool) -> int | None:
    if one is None or isinstance(one, int):
        return one
    for name in one:
        if name in names:
            return names.index(name)
    if optional:
        return None
    raise NextwordError(
        f"{file} has no column {' or '.join(map(repr, one))}; its first line is {' '.join(names)[:100]!r}. Expected "
        "the official file of GLUE."
    )


def _splits(wanted: Wanted, **files: str) -> Callable[[Path], Read]:
    """A reader of files that have the same columns, split → name."""

    def read(folder: Path) -> Read:
        found: dict[str, Rows] = {}
        notes: list[str] = []
        for split, name in files.items():
            if (folder / name).is_file():
                found[split], told = _table(folder / name, wanted)
                notes += told
        return _needed(folder, found, files), notes

    return read


def _needed(folder: Path, found: dict[str, Rows], files: Mapping[str, str]) -> dict[str, Rows]:
    for split in ("train", "dev"):
        if split not in found:
            raise NextwordError(f"{folder} lacks {files.get(split, split)}. Expected the official files of GLUE.")
    return {split: rows for split, rows in found.items() if rows.labels is not None or split in ("train", "dev")}


def _cola(folder: Path) -> Read:
    """No header: source, label, the author's star, sentence. A train set that was cut in two is joined again."""
    wanted = Wanted(3, None, 1)
    train, notes = _table(folder / "train.tsv", wanted)
    dev, told = _table(folder / "dev.tsv", wanted)
    if (folder / "val.tsv").is_file():
        train = _joined(train, _table(folder / "val.tsv", wanted)[0])
        notes = [*notes, f"train.tsv and val.tsv together are the official {len(train):,} training sentences"]
    return {"train": train, "dev": dev}, notes + told


def _wnli(folder: Path) -> Read:
    wanted = Wanted(("sentence1",), ("sentence2",), ("label",))
    splits, notes = _splits(wanted, train="train.tsv", dev="dev.tsv")(folder)
    if (folder / "val.tsv").is_file():  # a part of train, without a header
        splits["train"] = _joined(splits["train"], _table(folder / "val.tsv", Wanted(1, 2, 3))[0])
        notes = [*notes, f"train.tsv and val.tsv together are the official {len(splits['train']):,} training pairs"]
    return splits, notes


def _joined(a: Rows, b: Rows) -> Rows:
    both = lambda x, y: None if x is None or y is None else [*x, *y]  # noqa: E731
    return Rows([*a.texts, *b.texts], both(a.seconds, b.seconds), both(a.labels, b.labels))


def _mrpc(folder: Path) -> Read:
    wanted = Wanted(("#1 String",), ("#2 String",), ("Quality",))
    if (folder / "train.tsv").is_file() and (folder / "dev.tsv").is_file():
        return _splits(wanted, train="train.tsv", dev="dev.tsv")(folder)
    train, notes = _table(folder / "msr_paraphrase_train.txt", wanted)
    ids = folder / "dev_ids.tsv"
    if ids.is_file():
        named = {tuple(line.split()) for line in lines(ids)}
        first, _ = _table(folder / "msr_paraphrase_train.txt", Wanted(("#1 ID",), ("#2 ID",)))
        dev = [i for i, pair in enumerate(zip(first.texts, first.seconds or [], strict=True)) if pair in named]
    else:
        dev = held_out(train)
        notes = [*notes, f"no dev_ids.tsv: {len(dev)} training pairs are held out, the same ones each time"]
    rest = sorted(set(range(len(train))) - set(dev))
    splits = {"train": train.take(rest), "dev": train.take(dev)}
    if (folder / "msr_paraphrase_test.txt").is_file():
        splits["test"], told = _table(folder / "msr_paraphrase_test.txt", wanted)
        notes = [*notes, *told]
    return splits, notes


def _mnli(folder: Path) -> Read:
    """The matched dev set checks training; the mismatched one, of other genres, is measured at the end."""
    wanted = Wanted(("sentence1",), ("sentence2",), ("gold_label",))
    names = {"train": "train.tsv", "dev": "dev_matched.tsv", "mismatched": "dev_mismatched.tsv"}
    splits, notes = _splits(wanted, **names)(folder)
    for split, rows in splits.items():
        agreed = [i for i, label in enumerate(rows.labels or ()) if label != "-"]
        if len(agreed) < len(rows):
            notes.append(f"{len(rows) - len(agreed):,} pairs of {split} have no label that annotators agreed on")
            splits[split] = rows.take(agreed)
    return splits, notes


PAIR = Wanted(("sentence1",), ("sentence2",), ("label",))
TRAINS = ("train.tsv",)
TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task("CoLA", "is the sentence acceptable?", "classify", "classify", ("mcc", "accuracy"), TRAINS, _cola),
        Task(
            "SST-2",
            "is the review for or against the film?",
            "classify",
            "classify",
            ("accuracy",),
            TRAINS,
            _splits(
                Wanted(("sentence", "content"), None, ("label",)), train="train.tsv", dev="dev.tsv", test="test.tsv"
            ),
        ),
        Task(
            "MRPC",
            "do two sentences say the same?",
            "pair",
            "similar",
            ("f1", "accuracy"),
            ("msr_paraphrase_train.txt", "train.tsv"),
            _mrpc,
        ),
        Task(
            "STS-B",
            "how alike are two sentences?",
            "regress",
            "similar",
            ("spearman", "pearson"),
            TRAINS,
            _splits(Wanted(("sentence1",), ("sentence2",), ("score",)), train="train.tsv", dev="dev.tsv"),
        ),
        Task(
            "QQP",
            "do two questions ask the same?",
            "pair",
            "similar",
            ("f1", "accuracy"),
            TRAINS,
            _splits(Wanted(("question1",), ("question2",), ("is_duplicate",)), train="train.tsv", dev="dev.tsv"),
        ),
        Task("MNLI", "does the second follow?", "pair", "entail", ("accuracy",), TRAINS, _mnli),
        Task(
            "QNLI",
            "does the sentence answer the question?",
            "pair",
            "entail",
            ("accuracy",),
            TRAINS,
            _splits(Wanted(("question",), ("sentence",), ("label",)), train="train.tsv", dev="dev.tsv"),
        ),
        Task(
            "RTE",
            "does the second follow from the first?",
            "pair",
            "entail",
            ("accuracy",),
            TRAINS,
            _splits(PAIR, train="train.tsv", dev="dev.tsv"),
        ),
        Task("WNLI", "does the second follow, of pronouns?", "pair", "entail", ("accuracy",), TRAINS, _wnli),
        *(
            Task(name, title, "classify", "classify", ("accuracy",), (), reader, catalog, aliases)
            for name, title, reader, catalog, aliases in (
                ("SST-binary", "is the sentence for or against?", labelled("sst-2"), "sst-2", ("stsa.binary",)),
                ("SST-fine", "how good, of five grades?", labelled("sst-5"), "sst-5", ("stsa.fine", "sst-5")),
                ("TREC-6", "what does the question ask for?", labelled("trec", coarse), "trec", ("trec",)),
                ("TREC-50", "what does it ask for, exactly?", labelled("trec"), "trec", ()),
            )
        ),
    )
}
