"""The tasks of GLUE (Wang et al. 2018), from their official files, which differ in headers, order and quoting.

| task  |                                            | headline metric, others |
| ----- | ------------------------------------------ | ----------------------- |
| CoLA  | is the sentence acceptable?                | mcc, accuracy           |
| SST-2 | is the review positive?                    | accuracy                |
| MRPC  | are two sentences paraphrases?             | f1, accuracy            |
| STS-B | how similar are two sentences, 0 to 5?     | spearman, pearson       |
| QQP   | do two questions ask the same?             | f1, accuracy            |
| MNLI  | entailment, contradiction or neutral?      | accuracy, on two devs   |
| QNLI  | does the sentence answer the question?     | accuracy                |
| RTE   | does the second follow from the first?     | accuracy                |
| WNLI  | the same, about pronouns                   | accuracy                |

The tab is the only delimiter: quotation marks are text. The benchmark keeps most test labels secret: such a split is
read without labels, for a file of predictions (submission.py). If a copy has test labels, they are read and scored.

MRPC's original files have no dev split. The reader takes GLUE's `dev_ids.tsv` if it is present, otherwise it holds out
a tenth of the training pairs (407 pairs; GLUE has 408). STS-B and CoLA are also read from their authors' files
(sts-*.csv, tab-delimited despite the name, with test labels; in_domain_*.tsv and out_of_domain_dev.tsv).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nextword.data.files import read_lines
from nextword.data.tables import choose_held_out, concatenate_rows
from nextword.tasks.datasets.base import (
    NUMBER,
    PUBLISHED,
    TENTH_OF_TRAIN,
    Benchmark,
    ColumnSpec,
    Labels,
    Read,
    Reader,
    Splits,
    Submission,
    bad_data,
    drop_disputed_pairs,
    read_tsv,
    read_tsv_or_jsonl,
    require_splits,
    split_off_dev,
    splits_reader,
)

SUITE = "glue"
SUITE_TASKS = ("CoLA", "MRPC", "RTE", "SST-2", "STS-B")  # small enough for small networks, with labels available
FILES = {split: f"{split}.tsv" for split in ("train", "dev", "test")}
ID = ("index", "id")
BINARY = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")
NLI_LABELS = ("contradiction", "entailment", "neutral", "-")
MULTINLI = "multinli_1.0_train"


def _read_cola(folder: Path) -> Read:
    """No header: source, label, the author's star, sentence. A training set that was cut in two is rejoined.

    In the authors' files dev has two parts, from the sources of train and from others; GLUE merges them.
    """
    spec = ColumnSpec(3, None, 1, labels=BINARY)
    if not (folder / "train.tsv").is_file():
        names = ("in_domain_train.tsv", "in_domain_dev.tsv", "out_of_domain_dev.tsv")
        (train, notes), *parts = (read_tsv(folder / name, spec, name) for name in names if (folder / name).is_file())
        splits = {"train": train, **({"dev": concatenate_rows([rows for rows, _ in parts])} if parts else {})}
        return require_splits(folder, splits, {"dev": names[1]}), notes
    train, notes = read_tsv(folder / "train.tsv", spec)
    if (folder / "val.tsv").is_file():
        train = concatenate_rows([train, read_tsv(folder / "val.tsv", spec)[0]])
        notes = [*notes, f"train.tsv and val.tsv together are the official {len(train):,} training sentences"]
    splits = {"train": train}
    if (folder / "dev.tsv").is_file():
        splits["dev"] = read_tsv(folder / "dev.tsv", spec, "dev")[0]
    if (folder / "test.tsv").is_file():  # only this file has a header
        splits["test"] = read_tsv(folder / "test.tsv", ColumnSpec(("sentence",), id=ID), "test")[0]
    return require_splits(folder, splits, FILES), notes


def _read_wnli(folder: Path) -> Read:
    spec = ColumnSpec(("sentence1",), ("sentence2",), ("label",), ID, BINARY)
    splits, notes = splits_reader(spec, **FILES)(folder)
    if (folder / "val.tsv").is_file():  # a part of train, without a header
        more, _ = read_tsv(folder / "val.tsv", ColumnSpec(1, 2, 3, labels=BINARY))
        splits["train"] = concatenate_rows([splits["train"], more])
        notes = [*notes, f"train.tsv and val.tsv together are the official {len(splits['train']):,} training pairs"]
    return splits, notes


def _read_mrpc(folder: Path) -> Read:
    spec = ColumnSpec(("#1 String",), ("#2 String",), ("Quality",), ("index",), BINARY)
    if (folder / "train.tsv").is_file() and (folder / "dev.tsv").is_file():
        return splits_reader(spec, **FILES)(folder)
    original, test = folder / "msr_paraphrase_train.txt", folder / "msr_paraphrase_test.txt"
    if not original.is_file():
        raise bad_data(folder, "dev.tsv is missing. Expected the official files.")
    rows, notes = read_tsv(original, spec)
    if (folder / "dev_ids.tsv").is_file():
        dev_pairs = {tuple(line.split()) for line in read_lines(folder / "dev_ids.tsv")}
        ids, _ = read_tsv(original, ColumnSpec(("#1 ID",), ("#2 ID",)))
        chosen = [i for i, pair in enumerate(zip(ids.texts, ids.seconds or [], strict=True)) if pair in dev_pairs]
    else:
        chosen = choose_held_out(rows)
        notes = [*notes, f"no dev_ids.tsv: {len(chosen)} training pairs are held out, the same each time"]
    train, dev = split_off_dev(rows, chosen)
    splits = {"train": train, "dev": dev}
    if test.is_file():
        splits["test"], more = read_tsv(test, spec, "test")
        notes = [*notes, *more]
    return splits, notes


def _read_stsb(folder: Path) -> Read:
    """GLUE's files, or the authors': genre, file, year, number, score, both sentences, without a header."""
    if (folder / "train.tsv").is_file():
        return splits_reader(ColumnSpec(("sentence1",), ("sentence2",), ("score",), ID, NUMBER), **FILES)(folder)
    return splits_reader(ColumnSpec(5, 6, 4, labels=NUMBER), **{split: f"sts-{split}.csv" for split in FILES})(folder)


def _read_mnli(folder: Path) -> Read:
    """Training validates on the matched dev set; the mismatched one, from other genres, is scored at the end.

    GLUE's files, or the authors' (multinli_1.0_*.jsonl, .txt). GLUE's diagnostic sentences, which this task's network
    answers, are in the same folder or in a folder `diagnostic`.
    """
    spec = ColumnSpec(("sentence1",), ("sentence2",), ("gold_label",), ID, NLI_LABELS)
    original = next((suffix for suffix in ("jsonl", "txt") if (folder / f"{MULTINLI}.{suffix}").is_file()), "")
    train, dev = (
        (f"{MULTINLI}.{original}", f"multinli_1.0_dev_{{}}.{original}") if original else ("train.tsv", "dev_{}.tsv")
    )
    names = {"train": train, "dev": dev.format("matched"), "mismatched": dev.format("mismatched")}
    names |= {"test": "test_matched.tsv", "test_mismatched": "test_mismatched.tsv"}
    files = {split: folder / name for split, name in names.items()}
    for place in (folder, folder / "diagnostic", folder.parent / "diagnostic"):
        if (place / "diagnostic.tsv").is_file():
            files["diagnostic"] = place / "diagnostic.tsv"
    splits: Splits = {}
    notes: list[str] = []
    for split, file in files.items():
        if file.is_file():
            splits[split], more = read_tsv_or_jsonl(file, spec, split)
            notes += more
    splits, more = drop_disputed_pairs(require_splits(folder, splits, names))
    return splits, [*notes, *more]


def _benchmark(
    name: str,
    title: str,
    kind: str,
    frame: str,
    metrics: tuple[str, ...],
    read: Reader,
    files: tuple[str, ...] = ("train.tsv",),
    submission: Submission | None = None,
    dev: str = PUBLISHED,
) -> Benchmark:
    own = submission or Submission({"test": f"{name}.tsv"})
    return Benchmark(name, title, kind, frame, metrics, files, read, dev=dev, submission=own)


def _tsv(text: Sequence[str], second: Sequence[str] | None, label: str, labels: Labels) -> Reader:
    return splits_reader(ColumnSpec(text, second, (label,), ID, labels), **FILES)


ONE, PAIR, ACCURACY = "classification", "pair_classification", ("accuracy",)
STS_FILES = Submission({"test": "STS-B.tsv"}, bounds=(0.0, 5.0))
MNLI_FILES = Submission({"test": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv", "diagnostic": "AX.tsv"})
_sst2 = _tsv(("sentence", "content"), None, "label", BINARY)
_qqp = _tsv(("question1",), ("question2",), "is_duplicate", BINARY)
_qnli = _tsv(("question",), ("sentence",), "label", ENTAILMENT)
_rte = _tsv(("sentence1",), ("sentence2",), "label", ENTAILMENT)
# fmt: off
BENCHMARKS = (
    _benchmark("CoLA", "is the sentence acceptable?", ONE, "classify", ("mcc", "accuracy"), _read_cola,
               ("train.tsv", "in_domain_train.tsv")),
    _benchmark("SST-2", "is the review positive?", ONE, "classify", ACCURACY, _sst2),
    _benchmark("MRPC", "are two sentences paraphrases?", PAIR, "similar", ("f1", "accuracy"), _read_mrpc,
               ("msr_paraphrase_train.txt", "train.tsv"), dev=f"GLUE's dev_ids, or {TENTH_OF_TRAIN}"),
    _benchmark("STS-B", "how similar are two sentences?", "regression", "similar", ("spearman", "pearson"), _read_stsb,
               ("train.tsv", "sts-train.csv"), STS_FILES),
    _benchmark("QQP", "do two questions ask the same?", PAIR, "similar", ("f1", "accuracy"), _qqp),
    _benchmark("MNLI", "entailment, contradiction or neutral?", PAIR, "entail", ACCURACY, _read_mnli,
               ("train.tsv", f"{MULTINLI}.jsonl", f"{MULTINLI}.txt"), MNLI_FILES),
    _benchmark("QNLI", "does the sentence answer the question?", PAIR, "entail", ACCURACY, _qnli),
    _benchmark("RTE", "does the second follow from the first?", PAIR, "entail", ACCURACY, _rte),
    _benchmark("WNLI", "does the second follow, about pronouns?", PAIR, "entail", ACCURACY, _read_wnli),
)
# fmt: on
