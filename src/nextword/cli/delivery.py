"""What every kind of `nextword predict` does with its result: which endings, where it is written, how good it is."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from nextword.cli.console import console, emit_json, err

JSON_LINES = ".jsonl"
PREDICTED = "predicted"
SHARES = re.compile(r"probabilities|p\(.*\)", re.DOTALL)  # columns beside it, by the kind of file that was written
BREAKS = re.compile(r"[\t\r\n]+")  # what a cell of a .tsv cannot have in it


def refuse_ending(output: Path | None, endings: Sequence[str], what: str = "predictions") -> None:
    from nextword.contract_errors import NextwordError

    if output is not None and output.suffix not in endings:
        raise NextwordError(f"--output {output}: {what} are written as {', '.join(endings)}.")


def refuse_taken(option: str, place: Path) -> None:
    """A file that is there stays as it is, as with every command. (What is no file, as /dev/null, may be written.)"""
    from nextword.contract_errors import NextwordError

    if place.is_file():
        raise NextwordError(
            f"{option} {place} is there already, and nothing is overwritten. Choose another name, or remove it."
        )


def unfinished(runs: Sequence[str]) -> list[str]:
    """Of runs that were interrupted: their weights can be used, and are not what was meant."""
    from nextword.checkpoint import RunFolder

    cut = [run for run in runs if not RunFolder(run).manifest.get("finished")]
    return [
        f"{run} is not finished: what it has learnt so far speaks. Go on with nextword transfer --resume --out {run}"
        for run in cut
    ]


def deliver(
    written: str,
    output: Path | None,
    what: str,
    notes: Sequence[str] = (),
    quiet: bool = False,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Into the file, or to standard output; then what is to be known of it. `facts`: those instead, as JSON."""
    if facts is not None:
        if output is not None:
            output.write_text(written, encoding="utf-8")
        emit_json({**facts, "notes": list(notes), **({"file": str(output)} if output is not None else {})})
        return
    if output is None:
        sys.stdout.write(written)
        sys.stdout.flush()
    else:
        output.write_text(written, encoding="utf-8")
        console.print(f"[green]✓[/] {what} → {escape(str(output))}", soft_wrap=True)
    for note in notes if not quiet else ():
        err.print(f"[yellow]·[/] {escape(note)}", soft_wrap=True)


def compared(numbers: Mapping[str, float], what: str, quiet: bool) -> None:
    """How good it is, where the file says what is right; `what` says where."""
    if numbers and not quiet:
        said = " · ".join(f"{name} {100 * value:.1f}" for name, value in numbers.items())
        err.print(f"against {escape(what)}: {said}", soft_wrap=True)


def json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def refuse_twice(table: Any, output: Path | None) -> None:
    """Two columns of one name cannot both be keys of a JSON object."""
    from nextword.contract_errors import NextwordError

    twice = next((name for name in table.header if table.header.count(name) > 1), None)
    if twice is not None and output is not None and output.suffix == JSON_LINES:
        raise NextwordError(
            f"{table.name} has more than one column {twice!r}, which a line of JSON cannot hold: rename one, or write "
            f"{output.with_suffix('.csv')}."
        )


def beside(table: Any, cells: Sequence[dict[str, Any]], ending: str) -> tuple[str, list[str]]:
    """A table with more columns on the right, and what is to be said of that.

    Columns of earlier predictions go, from whatever kind of file; otherwise JSON lines stay what they were. In a .tsv
    tabs and line ends alone divide, as where one is read: nothing is quoted.
    """
    new = list(cells[0]) if cells else []
    again = PREDICTED in table.header and PREDICTED in new
    old = [name for name in table.header if name in new or (again and SHARES.fullmatch(name))]
    notes = [f"what stood in {', '.join(map(repr, old))} before is replaced"] if old else []
    kept = [i for i, name in enumerate(table.header) if name not in old]
    if ending == JSON_LINES:
        given = table.objects or [dict(zip(table.header, row, strict=True)) for row in table.rows]
        given = [{key: value for key, value in one.items() if key not in old} for one in given]
        return json_lines({**one, **more} for one, more in zip(given, cells, strict=True)), notes
    rows: list[list[str]] = [[*(table.header[i] for i in kept), *new]]
    rows += ([*(row[i] for i in kept), *more.values()] for row, more in zip(table.rows, cells, strict=True))
    if ending == ".tsv":
        flat = [[" ".join(BREAKS.split(str(cell))) for cell in row] for row in rows]
        changed = sum(before != after for before, after in zip(rows, flat, strict=True))
        if changed:
            rows_have = "rows have a tab or a line end in them" if changed > 1 else "row has a tab or a line end in it"
            notes.append(f"{changed:,} {rows_have}: in a .tsv that is a space")
        return "".join("\t".join(row) + "\n" for row in flat), notes
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue(), notes
