"""Taggers for the study of mixes: an ELMo, sentences with several columns of tags, and one small tagger after another.

words  pos  chunks  names          one file a split, a column a task: all tasks read the same sentences
  └──▶ every layer of the ELMo, once ──▶ a tagger for each task, λ, place and seed, by the recipe of taggers
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nextword import transfer
from nextword.contract_errors import NextwordError
from nextword.corpora.tagged import open_tagged
from nextword.loading_lm import load
from nextword.recipe import load_recipe
from nextword.training import train
from nextword.transfer.tables import Columns

ELMO, TAGGER = "elmo/tiny", "tagger/tiny"
NAMES, CHUNKS, PARTS = "names", "chunks", "parts of speech"
SOURCES: Sequence[tuple[str, Mapping[str, str]]] = (  # the first that is on this machine; column of each task
    ("conll2003", {NAMES: "ner", CHUNKS: "chunk", PARTS: "pos"}),
    ("conll2000", {CHUNKS: "chunk", PARTS: "pos"}),
    ("ud-english-ewt", {PARTS: "upos"}),
    ("python-names", {NAMES: ""}),
)


@dataclass(frozen=True)
class Size:
    """What the study's own ELMo learns, and how large a task is."""

    elmo: int = 500  # steps
    width: int = 64  # of the ELMo, a side
    sentences: tuple[int, int, int] = (1000, 300, 600)  # train, dev, test
    steps: int = 250  # of a tagger
    inner: int = 32  # width of the tagger, a side
    rate: float = 1e-2


@dataclass(frozen=True)
class Tagged:
    """What came of one tagger."""

    score: float  # on the test sentences, in %
    mixes: Mapping[str, tuple[Sequence[float], float]]  # place → shares of the layers, γ


@contextmanager
def cache_in(folder: str | Path) -> Iterator[None]:
    """Everything that is kept for later is kept there, and goes with it."""
    before = os.environ.get("NEXTWORD_CACHE")
    os.environ["NEXTWORD_CACHE"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["NEXTWORD_CACHE"]
        else:
            os.environ["NEXTWORD_CACHE"] = before


def small_elmo(folder: Path, data: str, seed: int, size: Size) -> Path:
    changes = [f"model.width={size.width}", f"model.cells={2 * size.width}", f"phase.0.steps={size.elmo}"]
    changes += [f"phase.0.seed={seed}", f"phase.0.validate={size.elmo}"]
    for _ in train(load_recipe(ELMO, changes).with_data([data]), folder):
        pass
    return folder


def write_tasks(folder: Path, counts: Sequence[int]) -> tuple[str, dict[str, str]]:
    """The beginning of each split as files with a column for each task: whose they are, and task → column."""
    for name, columns in SOURCES:
        try:
            found = {task: open_tagged(name, column) for task, column in columns.items()}
        except NextwordError:  # not on this machine
            continue
        folder.mkdir(parents=True)
        for split, count in zip(("train", "dev", "test"), counts, strict=True):
            if not all(split in one for one in found.values()):
                continue  # without a dev split a part of train is held out
            rows = zip(*(one[split].sentences[:count] for one in found.values()), strict=True)
            text = "\n".join(_lines(tagged) for tagged in rows)
            (folder / f"{split}.conll").write_text(text, encoding="utf-8")
        return name, {task: str(i) for i, task in enumerate(found, 1)}
    raise NextwordError("There are no tagged sentences on this machine. `nextword data conll2003 --from PATH`.")


def _lines(tagged: Sequence[Any]) -> str:
    """One sentence: a word a line, and its tags in every task."""
    words = (word.replace(" ", "_") for word in tagged[0].words)
    return "".join("\t".join(row) + "\n" for row in zip(words, *(one.tags for one in tagged), strict=True))


def settings(elmo: str, place: str, penalty: float, size: Size) -> list[str]:
    """Of the recipe of taggers; an empty place is none: words and letters alone."""
    found = [f"phase.0.steps={size.steps}", f"phase.0.validate={size.steps // 3}", f"model.width={size.inner}"]
    found += [f"phase.0.optimizer.rate={size.rate}", "phase.0.save=3600"]
    if place:
        found += [f"model.contextual={elmo}", f"model.contextual_at={place}", f"model.contextual_l2={penalty}"]
    return found


def ready(elmo: str, data: str, column: str, size: Size) -> None:
    """Vectors of all sentences, found once and kept for the taggers."""
    transfer.make_plan(TAGGER, "", data, Columns(label=column), changes=settings(elmo, "input", 0.0, size))


def tagged(elmo: str, data: str, out: str, column: str, place: str, penalty: float, seed: int, size: Size) -> Tagged:
    changes = settings(elmo, place, penalty, size)
    found = transfer.run(TAGGER, "", data, out, columns=Columns(label=column), seed=seed, changes=changes).results[0]
    network: Any = load(out, "cpu").network
    return Tagged(100 * found["test"][found["metric"]], network.learnt)
