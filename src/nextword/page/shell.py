"""The shell of a page: one HTML file with its style inside, which forbids itself to load anything."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from nextword.page.charts import escape

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
Section = tuple[str, str, str]  # id, heading, content


def document(title: str, headline: str, sections: Sequence[Section], version: str, script: str = "") -> str:
    """The whole page; a section without content is left out."""
    shown = [section for section in sections if section[2]]
    links = "".join(f'<a href="#{id}">{heading}</a>' for id, heading, _ in shown)
    body = "".join(
        f'<section id="{id}" aria-labelledby="{id}-h"><h2 id="{id}-h">{heading}</h2>{content}</section>\n'
        for id, heading, content in shown
    )
    css = files("nextword.page").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>\n{css}</style></head>\n<body>"
        f'<header>{headline}<nav aria-label="Sections">{links}</nav></header>\n<main>{body}</main>\n'
        f"<footer><p>Made by nextword {escape(version)}. "
        f"This page is one file and loads nothing.</p></footer>{f'<script>{script}</script>' if script else ''}"
        "</body></html>\n"
    )
