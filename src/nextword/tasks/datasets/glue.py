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

Tabs alone divide: quotation marks are text. Test labels are kept back by the benchmark: such a split is read without
labels, for a file of predictions (submission.py); where a copy has them, they are read, and measured apart. Of MRPC,
the original files have no dev split: GLUE's `dev_ids.tsv` is used where it lies beside them, otherwise a tenth of the
training pairs is held out (407 pairs, where GLUE has 408). STS-B is read as its authors hand it out, too: sts-*.csv,
in which tabs divide, and the test set has its labels. So is CoLA: in_domain_*.tsv and out_of_domain_dev.tsv.
"""

from __future__ import annotations

from pathlib import Path

from nextword.core.errors import NextwordError
from nextword.data.files import lines
from nextword.data.tables import Rows, held_out, joined_rows
from nextword.tasks.datasets.base import (
    NUMBER,
    TENTH,
    Read,
    Task,
    Wanted,
    agreed,
    needed,
    read_either,
    splits_of,
    table,
)

SUITE = "glue"
FIVE = ("CoLA", "MRPC", "RTE", "SST-2", "STS-B")  # whose labels are at hand and which small networks learn something of
TRAINS = ("train.tsv",)
FILES = {split: f"{split}.tsv" for split in ("train", "dev", "test")}
INDEX = ("index", "id")
TWO = ("0", "1")
FOLLOWS = ("entailment", "not_entailment")
OF_THREE = ("contradiction", "entailment", "neutral", "-")
MULTINLI = "multinli_1.0_train"


def _cola(folder: Path) -> Read:
    """No header: source, label, the author's star, sentence. A train set that was cut in two is joined again.

    As its authors hand it out, dev is in two parts, of the sources of train and of others; GLUE has both as one.
    """
    wanted = Wanted(3, None, 1, labels=TWO)
    if not (folder / "train.tsv").is_file():
        names = ("in_domain_train.tsv", "in_domain_dev.tsv", "out_of_domain_dev.tsv")
        (train, notes), *parts = (table(folder / name, wanted, name) for name in names if (folder / name).is_file())
        found = {"train": train, **({"dev": joined_rows([rows for rows, _ in parts])} if parts else {})}
        return needed(folder, found, {"dev": names[1]}), notes
    train, notes = table(folder / "train.tsv", wanted)
    if (folder / "val.tsv").is_file():
        train = joined_rows([train, table(folder / "val.tsv", wanted)[0]])
        notes = [*notes, f"train.tsv and val.tsv together are the official {len(train):,} training sentences"]
    found = {"train": train}
    if (folder / "dev.tsv").is_file():
        found["dev"] = table(folder / "dev.tsv", wanted, "dev")[0]
    if (folder / "test.tsv").is_file():  # this one has a header
        found["test"] = table(folder / "test.tsv", Wanted(("sentence",), id=INDEX), "test")[0]
    return needed(folder, found, FILES), notes


def _wnli(folder: Path) -> Read:
    wanted = Wanted(("sentence1",), ("sentence2",), ("label",), INDEX, TWO)
    splits, notes = splits_of(wanted, **FILES)(folder)
    if (folder / "val.tsv").is_file():  # a part of train, without a header
        more, _ = table(folder / "val.tsv", Wanted(1, 2, 3, labels=TWO))
        splits["train"] = joined_rows([splits["train"], more])
        notes = [*notes, f"train.tsv and val.tsv together are the official {len(splits['train']):,} training pairs"]
    return splits, notes


def _mrpc(folder: Path) -> Read:
    wanted = Wanted(("#1 String",), ("#2 String",), ("Quality",), ("index",), TWO)
    if (folder / "train.tsv").is_file() and (folder / "dev.tsv").is_file():
        return splits_of(wanted, **FILES)(folder)
    if not (folder / "msr_paraphrase_train.txt").is_file():
        raise NextwordError(f"{folder} lacks dev.tsv. Expected the official files.")
    train, notes = table(folder / "msr_paraphrase_train.txt", wanted)
    ids = folder / "dev_ids.tsv"
    if ids.is_file():
        named = {tuple(line.split()) for line in lines(ids)}
        first, _ = table(folder / "msr_paraphrase_train.txt", Wanted(("#1 ID",), ("#2 ID",)))
        dev = [i for i, pair in enumerate(zip(first.texts, first.seconds or [], strict=True)) if pair in named]
    else:
        dev = held_out(train)
        notes = [*notes, f"no dev_ids.tsv: {len(dev)} training pairs are held out, the same ones each time"]
    rest = sorted(set(range(len(train))) - set(dev))
    splits = {"train": train.take(rest), "dev": train.take(dev)}
    if (folder / "msr_paraphrase_test.txt").is_file():
        splits["test"], told = table(folder / "msr_paraphrase_test.txt", wanted, "test")
        notes = [*notes, *told]
    return splits, notes


def _stsb(folder: Path) -> Read:
    """From GLUE, or as its authors hand it out: genre, file, year, number, score, both sentences, and no header."""
    if (folder / "train.tsv").is_file():
        return splits_of(Wanted(("sentence1",), ("sentence2",), ("score",), INDEX, NUMBER), **FILES)(folder)
    return splits_of(Wanted(5, 6, 4, labels=NUMBER), **{split: f"sts-{split}.csv" for split in FILES})(folder)


def _mnli(folder: Path) -> Read:
    """The matched dev set checks training; the mismatched one, of other genres, is measured at the end.

    From GLUE, or as its authors hand it out (multinli_1.0_*.jsonl, .txt). The diagnostic sentences of GLUE, which this
    task's network answers, lie beside the others or in a folder `diagnostic`.
    """
    wanted = Wanted(("sentence1",), ("sentence2",), ("gold_label",), INDEX, OF_THREE)
    original = next((end for end in ("jsonl", "txt") if (folder / f"{MULTINLI}.{end}").is_file()), "")
    train, dev = (
        (f"{MULTINLI}.{original}", f"multinli_1.0_dev_{{}}.{original}") if original else ("train.tsv", "dev_{}.tsv")
    )
    names = {"train": train, "dev": dev.format("matched"), "mismatched": dev.format("mismatched")}
    names |= {"test": "test_matched.tsv", "test_mismatched": "test_mismatched.tsv"}
    places = {split: folder / name for split, name in names.items()}
    for place in (folder, folder / "diagnostic", folder.parent / "diagnostic"):
        if (place / "diagnostic.tsv").is_file():
            places["diagnostic"] = place / "diagnostic.tsv"
    found: dict[str, Rows] = {}
    notes: list[str] = []
    for split, file in places.items():
        if file.is_file():
            found[split], told = read_either(file, wanted, split)
            notes += told
    splits, told = agreed(needed(folder, found, names))
    return splits, [*notes, *told]


TASKS = (
    Task(
        *("CoLA", "is the sentence acceptable?", "classify", "classify", ("mcc", "accuracy")),
        files=("train.tsv", "in_domain_train.tsv"),
        reader=_cola,
        submission={"test": "CoLA.tsv"},
    ),
    Task(
        *("SST-2", "is the review for or against the film?", "classify", "classify", ("accuracy",), TRAINS),
        reader=splits_of(Wanted(("sentence", "content"), None, ("label",), INDEX, TWO), **FILES),
        submission={"test": "SST-2.tsv"},
    ),
    Task(
        *("MRPC", "do two sentences say the same?", "pair", "similar", ("f1", "accuracy")),
        files=("msr_paraphrase_train.txt", "train.tsv"),
        reader=_mrpc,
        dev=f"GLUE's dev_ids, or {TENTH}",
        submission={"test": "MRPC.tsv"},
    ),
    Task(
        *("STS-B", "how alike are two sentences?", "regress", "similar", ("spearman", "pearson")),
        files=("train.tsv", "sts-train.csv"),
        reader=_stsb,
        submission={"test": "STS-B.tsv"},
        bounds=(0.0, 5.0),
    ),
    Task(
        *("QQP", "do two questions ask the same?", "pair", "similar", ("f1", "accuracy"), TRAINS),
        reader=splits_of(Wanted(("question1",), ("question2",), ("is_duplicate",), INDEX, TWO), **FILES),
        submission={"test": "QQP.tsv"},
    ),
    Task(
        *("MNLI", "does the second follow?", "pair", "entail", ("accuracy",)),
        files=("train.tsv", f"{MULTINLI}.jsonl", f"{MULTINLI}.txt"),
        reader=_mnli,
        submission={"test": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv", "diagnostic": "AX.tsv"},
    ),
    Task(
        *("QNLI", "does the sentence answer the question?", "pair", "entail", ("accuracy",), TRAINS),
        reader=splits_of(Wanted(("question",), ("sentence",), ("label",), INDEX, FOLLOWS), **FILES),
        submission={"test": "QNLI.tsv"},
    ),
    Task(
        *("RTE", "does the second follow from the first?", "pair", "entail", ("accuracy",), TRAINS),
        reader=splits_of(Wanted(("sentence1",), ("sentence2",), ("label",), INDEX, FOLLOWS), **FILES),
        submission={"test": "RTE.tsv"},
    ),
    Task(
        *("WNLI", "does the second follow, of pronouns?", "pair", "entail", ("accuracy",), TRAINS, _wnli),
        submission={"test": "WNLI.tsv"},
    ),
)
