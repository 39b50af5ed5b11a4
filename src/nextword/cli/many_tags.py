"""`nextword predict` of a run that has learnt several tasks: the tags of all of them, a column each."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from nextword.cli.console import console, emit_json, err, progress_bar
from nextword.cli.tags import ENDINGS, JSON_LINES, given_sentences

TABLE = ".tsv"


def predict_many(lm: Any, run: str, file: str, output: Path | None, json: bool, quiet: bool) -> None:
    from nextword.contract import NextwordError

    if output is not None and output.suffix not in ENDINGS:
        raise NextwordError(f"--output {output}: tags are written as {', '.join(ENDINGS)}.")
    given = given_sentences(lm, file)
    with progress_bar("tagging", len(given), quiet or json) as update:
        found = lm.predict([one.words for one in given], update)
    rows = [_fields(one) for one in found]
    if json:
        labels = {task.name: list(task.tags) for task in lm.settings.of_tags}
        emit_json({"run": run, "labels": labels, "sentences": rows})
        return
    text = _written(lm.names, rows, output.suffix if output else ".conll")
    if output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        output.write_text(text, encoding="utf-8")
        words = sum(len(row["words"]) for row in rows)
        console.print(f"[green]✓[/] {words:,} words of {len(rows):,} sentences → {escape(str(output))}", soft_wrap=True)
    if not quiet:
        err.print(f"columns: word, {escape(', '.join(lm.names))}", soft_wrap=True)


def _fields(one: Mapping[str, Any]) -> dict[str, Any]:
    """The words of a sentence, and under each task's name its tags."""
    words = next(iter(one.values())).words
    return {"words": list(words), "tags": {name: list(tagged.tags) for name, tagged in one.items()}}


def _written(names: Sequence[str], rows: Sequence[dict[str, Any]], ending: str) -> str:
    """A word and its tags on each line, and an empty line after each sentence; a table begins with its header."""
    if ending == JSON_LINES:
        import json as library

        return "".join(library.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    parts = ["\t".join(("word", *names)) + "\n"] if ending == TABLE else []
    for row in rows:
        columns = [row["words"], *(row["tags"][name] for name in names)]
        parts += ["\t".join(cells) + "\n" for cells in zip(*columns, strict=True)]
        parts.append("\n")
    return "".join(parts)
