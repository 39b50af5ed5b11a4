"""Write a finding to files: figure.svg, figure.png, numbers.json with all tables, and study.md to read."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from pathlib import Path

from nextword.core.errors import InvalidSetting
from nextword.studies._figures import STYLE
from nextword.studies._statistics import format_cell
from nextword.studies._study import Finding, Part, Study, Table

DPI = 160


def write(finding: Finding, study: Study, folder: Path) -> list[Path]:
    """Write the four files, replacing those of an earlier run; each file is replaced atomically."""
    files = {
        **render_figure(finding, study),
        "numbers.json": (json.dumps(finding.as_dict(), ensure_ascii=False, indent=1, allow_nan=False) + "\n").encode(),
        "study.md": to_markdown(finding).encode(),
    }
    for name, content in files.items():
        _replace(folder / name, content)
    return [folder / name for name in files]


def check_writable(folder: Path) -> None:
    """Create the folder and write to it, so that a study does not run in vain."""
    _replace(folder / "try", b"")
    (folder / "try").unlink()


def _replace(file: Path, content: bytes) -> None:
    part = file.with_name(f".{file.name}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        os.replace(part, file)
    except OSError as error:
        raise InvalidSetting(
            f"Cannot write to {file.parent}: {error.strerror or error}. Choose another folder with --out FOLDER.",
            key="out",
            value=file.parent,
        ) from error


def render_figure(finding: Finding, study: Study) -> dict[str, bytes]:
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(11, 5), facecolor="white", layout="constrained")
        FigureCanvasAgg(figure)  # no window, whatever back end the user has configured
        study.draw(finding.tables, figure)
        files = {}
        for kind, options in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": DPI})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, **options)
            files[f"figure.{kind}"] = buffer.getvalue()
    return files


def to_markdown(finding: Finding) -> str:
    lines = [
        f"# {finding.name}: {finding.verdict}",
        f"> {finding.claim.sentence}\n>\n> {finding.claim.source}",
        finding.summary,
        f"Uncertainty: {finding.uncertainty}.",
        f"![{finding.claim.sentence}](figure.svg)",
        "## Part by part",
        "\n".join(_part_line(part) for part in finding.parts),
        "## Numbers",
    ]
    for table in finding.tables.values():
        lines += [f"### {table.title}", _table_lines(table)]
    conditions = [f"- {key}: {_condition(value)}" for key, value in finding.conditions.items()]
    lines += ["## Conditions", "\n".join(conditions)]
    return "\n\n".join(lines) + "\n"


def _part_line(part: Part) -> str:
    side = "" if part.decides else " (side result)"
    return f"- {part.statement} **{part.verdict}**{side}. {part.evidence} _{part.uncertainty}._"


def _table_lines(table: Table) -> str:
    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = row(["---"] + ["---:"] * (len(table.columns) - 1))
    return "\n".join([row(table.columns), rule, *(row([format_cell(cell) for cell in cells]) for cells in table.rows)])


def _condition(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
