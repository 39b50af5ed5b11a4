"""How objects look in a notebook, for `_repr_html_`: plain small tables, and charts in the report's style."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files

from rich.console import Console, RenderableType

from nextword.html.formatting import escape

LEFT, RIGHT = "text-align:left", "text-align:right"


def facts_html(title: str, facts: Iterable[tuple[str, object]], *parts: str) -> str:
    """A title, a table with a row per fact (those with an empty value are left out), and further HTML."""
    rows = "".join(
        f'<tr><td style="{LEFT}"><b>{escape(name)}</b></td><td style="{LEFT}">{escape(value)}</td></tr>'
        for name, value in facts
        if value not in (None, "")
    )
    return f"<div><b>{escape(title)}</b><table>{rows}</table>{''.join(parts)}</div>"


def table_html(header: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> str:
    """A table whose first column has names and whose other columns have numbers, and a note below it."""
    aligned = [LEFT, *[RIGHT] * (len(header) - 1)]
    head = "".join(f'<th style="{style}">{escape(cell)}</th>' for cell, style in zip(header, aligned, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{style}">{escape(cell)}</td>' for cell, style in zip(row, aligned, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" + (
        f"<p>{escape(note)}</p>" if note else ""
    )


@cache
def _nested_css() -> str:
    """The style of the report's page, for what is inside of `.nextword` only."""
    css = files("nextword.html").joinpath("page.css").read_text(encoding="utf-8")
    css = re.sub(r"(?m)^(\s*)(?::root|body) \{", r"\1& {", css)
    return f".nextword {{\n{css}\npadding: 8px 16px;\n}}"


def styled_fragment(content: str) -> str:
    """Charts and tables in the classes of page.css, which bring their style along and change nothing around them."""
    return f'<div class="nextword"><style>{_nested_css()}</style>{content}</div>'


def rich_html(renderable: RenderableType, width: int = 100) -> str:
    """A table or text of rich as HTML, with its colors."""
    console = Console(record=True, file=io.StringIO(), width=width, highlight=False, force_jupyter=False)
    console.print(renderable)
    return console.export_html(inline_styles=True, code_format='<pre style="line-height:1.2">{code}</pre>')
