"""A finding as files: figure.svg and figure.png, numbers.json, and study.md to read."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nextword.contract_errors import NextwordError
from nextword.studies.measures import written
from nextword.studies.study import Finding, Part, Study, Table

DOTS = 160  # per inch in the PNG


def write(finding: Finding, study: Study, folder: Path) -> list[Path]:
    """Put the four files into the folder, replacing those of an earlier run; each appears whole or not at all."""
    files = {
        **pictures(finding, study),
        "numbers.json": (json.dumps(finding.as_dict(), ensure_ascii=False, indent=1, allow_nan=False) + "\n").encode(),
        "study.md": page(finding).encode(),
    }
    for name, content in files.items():
        _replace(folder / name, content)
    return [folder / name for name in files]


def ready(folder: Path) -> None:
    """Make the folder and try it, so that a study is not run for nothing."""
    _replace(folder / "try", b"")
    (folder / "try").unlink()


def _replace(file: Path, content: bytes) -> None:
    part = file.with_name(f".{file.name}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        os.replace(part, file)
    except OSError as problem:
        raise NextwordError(
            f"The study cannot be written to {file.parent}: {problem.strerror or problem}. "
            "Give a folder that can be written to: --out FOLDER."
        ) from problem


def pictures(finding: Finding, study: Study) -> dict[str, bytes]:
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from nextword.studies.drawing import STYLE

    with rc_context(STYLE):
        figure = Figure(figsize=(11, 5), facecolor="white", layout="constrained")
        FigureCanvasAgg(figure)  # no window, whatever back end the user's settings name
        study.draw(finding.tables, figure)
        found = {}
        for kind, options in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": DOTS})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, **options)
            found[f"figure.{kind}"] = buffer.getvalue()
    return found


def page(finding: Finding) -> str:
    """The finding in Markdown, with the figure beside it in the folder."""
    lines = [
        f"# {finding.name}: {finding.verdict}",
        f"> {finding.claim.sentence}\n>\n> {finding.claim.source}",
        finding.sentence,
        f"Uncertainty: {finding.uncertainty}.",
        f"![{finding.claim.sentence}](figure.svg)",
        "## Part by part",
        "\n".join(_point(part) for part in finding.parts),
        "## Numbers",
    ]
    for table in finding.tables.values():
        lines += [f"### {table.title}", _markdown(table)]
    lines += ["## Conditions", "\n".join(f"- {key}: {_plain(value)}" for key, value in finding.conditions.items())]
    return "\n\n".join(lines) + "\n"


def _point(part: Part) -> str:
    beside = "" if part.decides else " (beside the claim)"
    return f"- {part.says} **{part.verdict}**{beside}. {part.found} _{part.uncertainty}._"


def _markdown(table: Table) -> str:
    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = row(["---"] + ["---:"] * (len(table.columns) - 1))
    return "\n".join([row(table.columns), rule, *(row([written(cell) for cell in cells]) for cells in table.rows)])


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
