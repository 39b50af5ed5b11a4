"""Pieces of the report's page: tables and their columns, names, dates, and what is said of a passage in words.

The shell of a page: one HTML file with its style inside, which forbids itself to load anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from typing import Any

from nextword.core.io import NAME
from nextword.html.charts import escape, number, whole

Model = Mapping[str, Any]
Column = tuple[str, str, Callable[[Model], str]]  # heading, class, cell
NONE = "–"


def amount(heading: str, write: Callable[[float], str] = whole, key: str = "") -> Column:
    def cell(model: Model) -> str:
        value = number(model.get(key or heading.lower()))
        if value is None:
            return NONE
        return NAME if value == math.inf else write(value)

    named = any(letter.isupper() for letter in heading)  # chrF is called so
    return heading if named else heading.capitalize(), "n", cell


def told(heading: str, key: str = "", css: str = "") -> Column:
    return heading, css, lambda model: escape(model.get(key or heading.lower()) or NONE)


def table(caption: str, columns: Sequence[Column], rows: Iterable[Model]) -> str:
    def cell(css: str, content: str) -> str:
        tag, scope = ("th", ' scope="row"') if css == "model" else ("td", "")
        return f'<{tag}{scope} class="{css}">{content}</{tag}>'

    head = "".join(f'<th scope="col" class="{css}">{heading}</th>' for heading, css, _ in columns)
    body = "".join("<tr>" + "".join(cell(css, show(row)) for _, css, show in columns) + "</tr>\n" for row in rows)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}"><table><caption>{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def hardest(tokens: Sequence[str], bits: Sequence[float | None]) -> str:
    paid = [(cost, token) for token, b in zip(tokens, bits, strict=False) if (cost := number(b)) is not None]
    possible = [cost for cost, _ in paid if cost < math.inf]
    worst, token = max(paid, default=(0.0, ""), key=lambda pair: pair[0])
    quoted, mean = f"“{escape(token.strip() or token)}”", f"{sum(possible) / max(1, len(possible)):.2f} bits a token"
    if worst < math.inf:
        return f"{mean}; the hardest is {quoted} with {worst:.1f}."
    found = len(paid) - len(possible)
    if found == 1:
        return f"{quoted} is impossible under this model; the rest costs {mean}."
    return f"{found} tokens are impossible under this model, the first of them {quoted}; the rest costs {mean}."


def impossible(model: Model) -> str:
    """Why its cost is infinite, in words: 3 of 1,200 tokens have probability 0."""
    count, tokens = number(model.get("impossible")) or 0, number(model.get("tokens"))
    of, plural = f" of {whole(tokens)}" if tokens else "", tokens or count != 1
    return f"{whole(count)}{of} token{'s' if plural else ''} {'has' if count == 1 else 'have'} probability 0"


def plain_name(model: Model) -> str:
    return str(model.get("name") or model.get("slug") or "unnamed")


def named(model: Model) -> str:
    return escape(plain_name(model))


def listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def under(tree: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The table at the end of the path, empty where any of it is null or missing."""
    for key in path:
        tree = tree.get(key) or {}
    return tree


def dated(created: object) -> str:
    try:
        date = datetime.fromisoformat(str(created))
    except ValueError:
        return f" · {escape(created)}" if created else ""
    return f" · {date.day} {date:%B %Y, %H:%M}"


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
    css = files("nextword.html").joinpath("page.css").read_text(encoding="utf-8")
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
