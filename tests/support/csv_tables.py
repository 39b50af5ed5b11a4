"""The tables of a study as they were written, to be judged again."""

from __future__ import annotations

import json
from pathlib import Path

from nextword.studies._study import Table


def read_tables(folder: Path) -> dict[str, Table]:
    content = json.loads((folder / "numbers.json").read_text())["tables"]
    return {
        name: Table(table["title"], tuple(table["columns"]), tuple(map(tuple, table["rows"])), table["detailed"])
        for name, table in content.items()
    }
