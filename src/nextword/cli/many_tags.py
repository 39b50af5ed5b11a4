"""`nextword predict` of a run that has learnt several tasks: the tags of all of them, a column each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from nextword.cli.console import err
from nextword.cli.delivery import JSON_LINES, deliver, json_lines
from nextword.cli.tags import tagged

TABLE = ".tsv"


def predict_many(
    lm: Any, run: str, file: str, output: Path | None, told: Sequence[str], json: bool, quiet: bool
) -> None:
    given, found = tagged(lm, file, output, quiet or json)
    rows = [_many_tag_fields(one) for one in found]
    facts = None
    if json:
        labels = {task.name: list(task.tags) for task in lm.settings.of_tags}
        facts = {"run": run, "labels": labels, "sentences": rows}
    text = _written_many_tags(lm.names, rows, output.suffix if output else ".conll")
    words = sum(len(one.words) for one in given)
    deliver(text, output, f"{words:,} words of {len(given):,} sentences", told, quiet, facts)
    if not quiet and not json:
        err.print(f"columns: word, {escape(', '.join(lm.names))}", soft_wrap=True)


def _many_tag_fields(one: Mapping[str, Any]) -> dict[str, Any]:
    """The words of a sentence, and under each task's name its tags."""
    words = next(iter(one.values())).words
    return {"words": list(words), "tags": {name: list(tagged.tags) for name, tagged in one.items()}}


def _written_many_tags(names: Sequence[str], rows: Sequence[dict[str, Any]], ending: str) -> str:
    """A word and its tags on each line, and an empty line after each sentence; a table begins with its header."""
    if ending == JSON_LINES:
        return json_lines(rows)
    parts = ["\t".join(("word", *names)) + "\n"] if ending == TABLE else []
    for row in rows:
        columns = [row["words"], *(row["tags"][name] for name in names)]
        parts += ["\t".join(cells) + "\n" for cells in zip(*columns, strict=True)]
        parts.append("\n")
    return "".join(parts)
