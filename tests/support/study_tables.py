"""Tables of studies: read back from files, changed, or made up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from nextword.studies._study import Part, Table

# Cells that a test of a difference can meet: [mean, low, high]
ABOVE, BELOW, UNSURE, ONE_SEED = [1.0, 0.5, 1.5], [-1.0, -1.5, -0.5], [0.1, -1.0, 1.2], [1.0, None, None]


def read_tables(folder: Path) -> dict[str, Table]:
    """The tables in numbers.json."""
    content = json.loads((folder / "numbers.json").read_text())["tables"]
    return {
        name: Table(table["title"], tuple(table["columns"]), tuple(map(tuple, table["rows"])), table["detailed"])
        for name, table in content.items()
    }


def change(table: Table, column: str, value: Any, **where: Any) -> Table:
    """The table with other cells in the matching rows; `value` may be a function of the row as a dictionary."""
    rows = []
    for row in table.rows:
        named = dict(zip(table.columns, row, strict=True))
        if all(named[key.replace("_", " ")] == wanted for key, wanted in where.items()):
            named[column] = value(named) if callable(value) else value
        rows.append(tuple(named.values()))
    assert tuple(rows) != table.rows
    return replace(table, rows=tuple(rows))


def verdicts(parts: list[Part]) -> list[str]:
    return [part.verdict for part in parts]
