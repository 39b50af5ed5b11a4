"""What every kind of `nextword predict` does with its result: which endings, where it is written, how good it is."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from nextword.cli.console import console, err

JSON_LINES = ".jsonl"


def refuse_ending(output: Path | None, endings: Sequence[str], what: str = "predictions") -> None:
    from nextword.contract import NextwordError

    if output is not None and output.suffix not in endings:
        raise NextwordError(f"--output {output}: {what} are written as {', '.join(endings)}.")


def deliver(written: str, output: Path | None, what: str) -> None:
    """Into the file, or to standard output."""
    if output is None:
        sys.stdout.write(written)
        sys.stdout.flush()
        return
    output.write_text(written, encoding="utf-8")
    console.print(f"[green]✓[/] {what} → {escape(str(output))}", soft_wrap=True)


def compared(numbers: Mapping[str, float], what: str, quiet: bool) -> None:
    """How good it is, where the file says what is right; `what` says where."""
    if numbers and not quiet:
        said = " · ".join(f"{name} {100 * value:.1f}" for name, value in numbers.items())
        err.print(f"against {escape(what)}: {said}", soft_wrap=True)


def json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def beside(header: Sequence[str], rows: Sequence[Sequence[str]], cells: Sequence[dict[str, Any]], ending: str) -> str:
    """A table with more columns on the right."""
    if ending == JSON_LINES:
        return json_lines(dict(zip(header, row, strict=True)) | more for row, more in zip(rows, cells, strict=True))
    out = io.StringIO()
    writer = csv.writer(out, delimiter="\t" if ending == ".tsv" else ",", lineterminator="\n")
    writer.writerow([*header, *(cells[0] if cells else ())])
    writer.writerows([*row, *more.values()] for row, more in zip(rows, cells, strict=True))
    return out.getvalue()
