"""Small trainings for the study of ULMFiT's parts: a task, and the three stages with one part or another left out.

general text ──▶ stage 1 ──▶ stage 2, on the task's texts ──▶ stage 3, on its labels ──▶ probabilities of test
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nextword import transfer
from nextword.contract_errors import NextwordError
from nextword.corpora import open_whole
from nextword.loading_lm import load
from nextword.recipe import load_recipe
from nextword.training import train
from nextword.transfer.data import open_data
from nextword.transfer.tables import Rows

GENERAL, TUNED, CLASSIFIED = "ulmfit/tiny", "ulmfit/tiny-lm", "ulmfit/tiny-classify"
SOURCES = (("TREC-6", "wikitext-2"), ("SST-5", "wikitext-2"))  # task and general text: the first that are here
BOOKS = "books of the World English Bible"  # on every machine: of which part of it is a verse?
PARTS = {  # the first book of each
    "Genesis": "law",
    "Joshua": "history",
    "Job": "poetry",
    "Isaiah": "prophets",
    "Matthew": "gospels",
    "Romans": "letters",
}
SPLITS = ("train", "dev", "test")
ALL, ALONE, ONE_RATE, CONSTANT, BACKWARD = "all parts", "no pretraining", "one rate", "constant rate", "backwards"
NO_TUNING, NEITHER, AT_ONCE, LAST = "no tuning", "neither", "thawed at once", "last vector"
TOGETHER = "both directions"
OFF = {ONE_RATE: "phase.*.optimizer.discount=1", CONSTANT: "phase.*.schedule=constant"}  # in stages 2 and 3
TUNINGS = (ALL, ALONE, ONE_RATE, CONSTANT, BACKWARD)  # ways of the second stage
CLASSIFIERS = (ALL, ALONE, NO_TUNING, NEITHER, ONE_RATE, CONSTANT, AT_ONCE, LAST, BACKWARD)


@dataclass(frozen=True)
class Size:
    examples: tuple[int, int, int] = (500, 300, 500)  # train, dev, test
    general: int = 1500  # steps of the first stage, of 16 rows of 32 words
    tuned: int = 300  # of the second
    epochs: int = 6  # of the third, when all layers learn
    embedding: int = 64
    width: int = 128

    @property
    def network(self) -> list[str]:
        return [f"model.embedding={self.embedding}", f"model.width={self.width}"]


@dataclass(frozen=True)
class Said:
    """What a classifier says of the test examples."""

    p: np.ndarray  # (n, classes)
    gold: np.ndarray  # (n,)

    @property
    def error(self) -> float:
        """In %."""
        return 100 * float((self.p.argmax(1) != self.gold).mean())


# ------------------------------------------------------------------------------------------------ the task


def write_task(folder: Path, counts: Sequence[int]) -> tuple[str, str]:
    """The beginning of each split, and all its texts without labels: the task's name, and the general text's."""
    name, text, splits = _found()
    folder.mkdir(parents=True)
    texts = []
    for split, count in zip(SPLITS, counts, strict=True):
        rows = splits[split]
        texts += rows.texts
        few = rows.take(_drawn(len(rows))[:count])
        lines = ({"text": t, "label": label} for t, label in zip(few.texts, few.labels or (), strict=True))
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    plain = "".join(json.dumps({"text": t}) + "\n" for t in texts)
    folder.with_suffix(".texts.jsonl").write_text(plain, encoding="utf-8")
    return name, text


def _drawn(size: int) -> list[int]:
    return np.random.default_rng(size).permutation(size).tolist()


def _found() -> tuple[str, str, Mapping[str, Rows]]:
    for name, text in SOURCES:
        try:
            splits = open_data(name).splits
            open_whole(text)
        except NextwordError:  # not on this machine
            continue
        return name, text, splits
    return BOOKS, "kjv", _verses()


def _verses() -> dict[str, Rows]:
    """Verses with the part of the book that they are of; chapters, not verses, are shared out among the splits."""
    found: dict[str, tuple[list[str], list[str]]] = {split: ([], []) for split in SPLITS}
    corpus = open_whole("web")
    part, chapters = "", [one for split in corpus.splits for one in corpus.documents(split)]
    for i, chapter in enumerate(chapters):
        part = PARTS.get(chapter.title.rpartition(" ")[0], part)
        texts, labels = found["dev" if i % 10 == 3 else "test" if i % 10 == 7 else "train"]
        verses = [verse for verse in chapter.text.splitlines() if len(verse.split()) > 5]
        texts += verses
        labels += [part] * len(verses)
    return {split: Rows(texts, labels=labels) for split, (texts, labels) in found.items()}


# ------------------------------------------------------------------------------------------------ the stages


def first(out: str, text: str, seed: int, backward: bool, size: Size) -> None:
    changes = [*size.network, f"phase.0.steps={size.general}", f"phase.0.validate={size.general}"]
    _trained(GENERAL, [*changes, *_turned(backward)], text, out, seed)


def second(out: str, texts: str, init: str, how: str, seed: int, size: Size) -> None:
    changes = [*size.network, f"phase.1.steps={size.tuned}", f"phase.1.validate={size.tuned}"]
    changes += [f"phase.0.init={init}"] if how != ALONE else ["phase.0.init=''", "phase.*.trains=0"]
    changes += [OFF[how]] if how in OFF else []
    _trained(TUNED, [*changes, *_turned(how == BACKWARD)], texts, out, seed)


def third(out: str, data: str, source: str, how: str, seed: int, size: Size) -> Said:
    changes = [f"phase.all.epochs={size.epochs}"]
    changes += [OFF[how]] if how in OFF else []
    changes += ["phase.*.trains=0"] if how == AT_ONCE else ["task.reads=last"] if how == LAST else []
    transfer.run(CLASSIFIED, source, data, out, seed=seed, scratch=how == NEITHER, changes=changes, device="cpu")
    model: Any = load(out, "cpu")
    rows = open_data(data).splits["test"]
    return Said(model.settings.decoded(model.said(rows.texts)), model.settings.encoded(rows.labels or ()))


def _turned(backward: bool) -> list[str]:
    return ["model.backward=true"] if backward else []


def _trained(recipe: str, changes: Sequence[str], data: str, out: str, seed: int) -> None:
    own = [*changes, *(f"phase.{i}.seed={seed + 1000 * i}" for i in range(len(load_recipe(recipe).phases)))]
    for _ in train(load_recipe(recipe, own).with_data([data]), out, device="cpu"):
        pass
