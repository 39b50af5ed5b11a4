"""The data, opened as a recipe learns them: what a file or a name holds, and an error where that is something else.

    texts   labels of one text or two, or one of several candidates       bert/finetune, bert/choice, ulmfit/classify
    span    questions that a passage answers                              bert/span
    tag     a tag for every word                                          bert/tag

A name is looked up. A file is judged by its ending, its header and its first lines, and only where that is clear.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from nextword.contract_errors import NextwordError
from nextword.corpora.catalog import find
from nextword.corpora.decoding import chunks, json_objects, lines, plain_name
from nextword.corpora.delimited import rows
from nextword.corpora.tagged import is_columns
from nextword.heads.settings import DECIDED_BY_DATA, Settings, settings_of
from nextword.metrics import OF_CLASSES, OF_NUMBERS
from nextword.metrics.spans import ACCURACY
from nextword.metrics.spans import OF_TAGS as METRICS_OF_TAGS
from nextword.recipe import Recipe
from nextword.transfer import questions
from nextword.transfer.catalog import find_task
from nextword.transfer.choices import offers
from nextword.transfer.questions import open_questions
from nextword.transfer.several import DataSets, TagSets, open_several, open_texts
from nextword.transfer.tables import DELIMITERS, TABLE_JSON_SUFFIXES, Columns

TEXTS, CHOICE, SPAN, TAG = "texts", "choice", "span", "tag"
LEARNS = {TEXTS: "labels of texts", SPAN: "answers out of passages", TAG: "tags of words"}
HAS = {
    TEXTS: ("has labelled texts", "bert/finetune"),
    CHOICE: ("has several candidates in each row", "bert/choice"),
    SPAN: ("has questions that a passage answers", "bert/span"),
    TAG: ("has tags of words", "bert/tag"),
}
OF_CATALOG = {"tagging": TAG, "questions": SPAN}
CROSS_VIEW = "cross-view"  # objectives, by what they learn
OF_TAGS = ("tag", CROSS_VIEW)
OF_ANSWERS = "span"
OF_KIND = {"classify": OF_CLASSES, "pair": OF_CLASSES, "choice": OF_CLASSES, "regress": OF_NUMBERS}
OPTIONS = {
    **{"kind": "--kind", "text": "--text", "second": "--second", "label": "--label"},
    **{"source": "--from", "scratch": "--scratch", "tasks": "--data 'A + B'"},
}
ALL_THE_SAME = ("frame", "metrics")  # that may be set, though data have their own
SEEN = 200  # lines of a file that are looked at
SQUAD = ('"paragraphs"', '"data"')


def tags_words(recipe: Recipe) -> bool:
    return recipe.phases[0].objective.get("kind") in OF_TAGS


def opened(recipe: Recipe, data: str, columns: Columns, kind: str) -> Any:
    """The data, as the recipe's objective has to have it."""
    refuse_decided(recipe)
    learns = TAG if tags_words(recipe) else SPAN if recipe.phases[0].objective.get("kind") == OF_ANSWERS else TEXTS
    if columns != Columns() or kind:  # what is what has been said
        found = _opened_as(learns, recipe, data, columns, kind)
    else:
        with fitting(recipe.name, learns, data):
            found = _opened_as(learns, recipe, data, columns, kind)
    _refuse_metrics(recipe, found)
    return found


def refuse_decided(recipe: Recipe) -> None:
    """An error where [task] says what the data and the command decide: it would count for nothing."""
    asked = settings_of(recipe.task or {}, recipe.name)
    for key, usual in DECIDED_BY_DATA.items():
        value = getattr(asked, key)
        if key in ALL_THE_SAME or value == usual or (not value and not usual):
            continue
        how = f"said with {OPTIONS[key]}, and not here" if key in OPTIONS else "decided by the data: leave it out"
        raise NextwordError(f"{recipe.name}: [task] {key} = {str(value)[:60]} is {how}.")


def _refuse_metrics(recipe: Recipe, data: Any) -> None:
    """An error where [task] metrics are of another kind of task."""
    fits = _metrics_of(data)
    odd = next((name for name in settings_of(recipe.task or {}, recipe.name).metrics if name not in fits), None)
    if odd is not None:
        what = f"there are {', '.join(fits)}" if fits else "each of several tasks has its own"
        raise NextwordError(f"{recipe.name}: [task] metrics names '{odd}', which {data.name} cannot have: {what}.")


def _metrics_of(data: Any) -> Sequence[str]:
    """All that the data can be measured by."""
    if isinstance(data, (DataSets, TagSets)):
        return ()
    if data.kind == TAG:
        return METRICS_OF_TAGS if tuple(data.metrics) != (ACCURACY,) else (ACCURACY,)
    names = OF_KIND.get(data.kind, data.metrics)
    return [name for name in names if name != "f1" or len(data.labels) == 2]  # which is of two classes


def _opened_as(learns: str, recipe: Recipe, data: str, columns: Columns, kind: str) -> Any:
    if learns == SPAN:
        if kind not in ("", "span"):
            raise NextwordError(f"{recipe.name} learns answers to questions: leave --kind {kind} out.")
        return open_questions(data, columns)
    if learns == TEXTS:
        if kind in ("tag", "span"):
            raise NextwordError(
                f"{recipe.name} learns labels of texts. For tags of words there is bert/tag, for questions bert/span."
            )
        return open_texts(data, columns, kind)
    if kind not in ("", "tag") or columns.text or columns.second:
        raise NextwordError(f"{recipe.name} learns tags of words: leave --kind, --text and --second out.")
    asked = settings_of(recipe.task or {}, recipe.name).scheme
    found = open_several(data, columns.label, asked or Settings.scheme)
    if isinstance(found, TagSets) and recipe.phases[0].objective.get("kind") != CROSS_VIEW:
        raise NextwordError(f"{data} are several tasks, and {recipe.name} learns one. Take a recipe as cvt/multi.")
    return found


@contextmanager
def fitting(recipe: str, learns: str, data: str) -> Iterator[None]:
    """While the data are opened: if that fails because they are of another kind than the recipe `learns`, the error
    says which recipe fits."""
    if (learns, held_in(data)) == (SPAN, CHOICE):  # a label that is a number may stand in the passage by chance
        raise NextwordError(_misfit(recipe, learns, data, CHOICE))
    try:
        yield
    except NextwordError as problem:
        found = held_in(data)
        if not found or found == learns or (learns, found) == (TEXTS, CHOICE):
            raise
        ours = Path(data).suffix.lower() in (*DELIMITERS, ".jsonl") and learns != TAG  # columns may be called anyhow
        raise NextwordError(f"{problem} Or: " * ours + _misfit(recipe, learns, data, found)) from None


def _misfit(recipe: str, learns: str, data: str, found: str) -> str:
    has, fits = HAS[found]
    return (
        f"{recipe} learns {LEARNS[learns]}, and {data} {has}. Take a recipe that learns those: nextword transfer "
        f"{fits} --from RUN --data {data}"
    )


def held_in(data: str) -> str:
    """What the data are, of the kinds above; "" where that is not clear."""
    path = Path(data).expanduser()
    if not path.exists():
        task, entry = find_task(data), find(data)
        if task is not None:
            return CHOICE if task.kind == "choice" else TEXTS
        return OF_CATALOG.get(entry.kind, "") if entry is not None else ""
    if path.is_dir():
        path = next((one for one in sorted(path.iterdir()) if "train" in one.name.lower() and one.is_file()), path)
    return _held_in_file(path) if path.is_file() else ""


def _held_in_file(path: Path) -> str:
    name = plain_name(path)
    suffix = Path(name).suffix.lower()
    if suffix == ".json" and all(part in next(chunks(path), "") for part in SQUAD):
        return SPAN
    try:
        if suffix in (*DELIMITERS, *TABLE_JSON_SUFFIXES):
            return _held_in_table(_header(path, name, suffix))
        return TAG if is_columns(name, list(islice(lines(path), SEEN))) else ""
    except NextwordError:  # whoever reads it says what is wrong
        return ""


def _header(path: Path, name: str, suffix: str) -> list[str]:
    """Of a table, without reading all of it; of JSON lines the keys of the first."""
    if suffix in DELIMITERS:
        return next(rows(name, lines(path), suffix), (0, []))[1]
    return list(next(json_objects(name, lines(path)), {}))


def _held_in_table(header: Sequence[str]) -> str:
    low = {name.lower() for name in header}
    answers = any(name in low for name in ("answers", "answer"))
    if answers and low & set(questions.ASKED[:2]) and low & set(questions.CONTEXTS[:3]):
        return SPAN
    return CHOICE if offers(header) else TEXTS if len(low) > 1 else ""
