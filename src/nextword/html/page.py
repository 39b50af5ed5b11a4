"""The page of a report: one HTML file with its style inside, which loads nothing; its tables and its sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from typing import Any

from nextword.core.io import INFINITY
from nextword.html.formatting import as_number, escape, format_integer

CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
DASH = "–"  # an empty cell

Model = Mapping[str, Any]  # a row: a model's results
Column = tuple[str, str, Callable[[Model], str]]  # heading, CSS class, cell
Section = tuple[str, str, str]  # id, heading, content


def document(title: str, headline: str, sections: Sequence[Section], version: str, script: str = "") -> str:
    """The complete page; sections without content are left out."""
    shown = [section for section in sections if section[2]]
    links = "".join(f'<a href="#{id}">{heading}</a>' for id, heading, _ in shown)
    body = "".join(
        f'<section id="{id}" aria-labelledby="{id}-h"><h2 id="{id}-h">{heading}</h2>{content}</section>\n'
        for id, heading, content in shown
    )
    css = files("nextword.html").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>\n{css}</style></head>\n<body>"
        f'<header>{headline}<nav aria-label="Sections">{links}</nav></header>\n<main>{body}</main>\n'
        f"<footer><p>Made by nextword {escape(version)}. "
        f"This page is one file and loads nothing.</p></footer>{f'<script>{script}</script>' if script else ''}"
        "</body></html>\n"
    )


# ------------------------------------------------------------------------------------------------ tables


def html_table(caption: str, columns: Sequence[Column], rows: Iterable[Model]) -> str:
    """A table that scrolls sideways inside its own box."""

    def cell(css: str, content: str) -> str:
        tag, scope = ("th", ' scope="row"') if css == "model" else ("td", "")
        return f'<{tag}{scope} class="{css}">{content}</{tag}>'

    head = "".join(f'<th scope="col" class="{css}">{heading}</th>' for heading, css, _ in columns)
    body = "".join("<tr>" + "".join(cell(css, show(row)) for _, css, show in columns) + "</tr>\n" for row in rows)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}"><table><caption>{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def number_column(heading: str, write: Callable[[float], str] = format_integer, key: str = "") -> Column:
    """A column of numbers; `key` is the row's key, by default the heading in lower case."""

    def cell(model: Model) -> str:
        value = as_number(model.get(key or heading.lower()))
        if value is None:
            return DASH
        return INFINITY if value == math.inf else write(value)

    has_capitals = any(letter.isupper() for letter in heading)  # keep the spelling of names such as chrF
    return heading if has_capitals else heading.capitalize(), "n", cell


def text_column(heading: str, key: str = "", css: str = "") -> Column:
    return heading, css, lambda model: escape(model.get(key or heading.lower()) or DASH)


# ------------------------------------------------------------------------------------------------ sentences


def describe_hardest_token(tokens: Sequence[str], bits: Sequence[float | None]) -> str:
    """The mean surprisal of a passage and its most surprising token."""
    costs = [(cost, token) for token, b in zip(tokens, bits, strict=False) if (cost := as_number(b)) is not None]
    finite = [cost for cost, _ in costs if cost < math.inf]
    worst, token = max(costs, default=(0.0, ""), key=lambda pair: pair[0])
    quoted, mean = f"“{escape(token.strip() or token)}”", f"{sum(finite) / max(1, len(finite)):.2f} bits per token"
    if worst < math.inf:
        return f"{mean} on average; the most surprising is {quoted} with {worst:.1f}."
    num_impossible = len(costs) - len(finite)
    if num_impossible == 1:
        return f"{quoted} is impossible under this model; the rest costs {mean}."
    return f"{num_impossible} tokens are impossible under this model, first {quoted}; the rest costs {mean}."


def describe_impossible(model: Model) -> str:
    """Why a cost is infinite: 3 of 1,200 tokens have probability 0."""
    count, tokens = as_number(model.get("impossible")) or 0, as_number(model.get("tokens"))
    of_total, is_plural = f" of {format_integer(tokens)}" if tokens else "", tokens or count != 1
    verb = "has" if count == 1 else "have"
    return f"{format_integer(count)}{of_total} token{'s' if is_plural else ''} {verb} probability 0"


def plain_name(model: Model) -> str:
    return str(model.get("name") or model.get("slug") or "unnamed")


def html_name(model: Model) -> str:
    return escape(plain_name(model))


def join_names(names: Sequence[str]) -> str:
    """["a", "b", "c"] → a, b and c"""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def get_table(tree: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The nested table at this path; {} where any part is null or missing."""
    for key in path:
        tree = tree.get(key) or {}
    return tree


def format_date(created: object) -> str:
    """ " · 5 March 2024, 14:00" from an ISO date."""
    try:
        date = datetime.fromisoformat(str(created))
    except ValueError:
        return f" · {escape(created)}" if created else ""
    return f" · {date.day} {date:%B %Y, %H:%M}"
