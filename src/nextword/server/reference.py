"""The reference page of the API, made from its OpenAPI schema: one HTML file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from nextword import __version__
from nextword.core.io import to_json
from nextword.html.formatting import escape
from nextword.html.page import Section, document
from nextword.server.security import CONTENT_POLICY

Schema = Mapping[str, Any]
# heading → id, in the order of the page
TAGS = {"OpenAI": "openai", "nextword": "native", "lens": "lens", "server": "server"}


def reference_page(api: Schema) -> str:
    """All routes with their fields."""
    sections: list[Section] = []
    for tag, anchor in TAGS.items():
        routes = [
            _route(path, method, operation, api)
            for path, operations in api["paths"].items()
            for method, operation in operations.items()
            if tag in operation.get("tags", ())
        ]
        sections.append((anchor, escape(f"{tag} routes"), "".join(routes)))
    headline = (
        f'<p class="over">nextword {escape(__version__)}</p><h1>The server’s API</h1>'
        f'<p class="lede">{_text(api["info"]["description"])} The same as data: '
        '<a href="/openapi.json">/openapi.json</a>.</p>'
    )
    return document("nextword: the server’s API", headline, sections, __version__)


def policy_of(page: str) -> str:
    """A content security policy that allows the page's own style sheet and nothing else."""
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'"
        for style in re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    ]
    return f"{CONTENT_POLICY}; style-src {' '.join(hashes)}; script-src 'none'; img-src data:"


def _route(path: str, method: str, operation: Schema, api: Schema) -> str:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    fields = list(_fields(_resolve(content, api), api)) if content else []
    for each in operation.get("parameters", ()):
        fields.append(_field(each["name"], each["schema"], each.get("required", False), api))
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        f'<td class="config">{_text(text)}<small>{escape(facts)}</small></td></tr>'
        for name, facts, text in fields
    )
    caption = escape(f"Fields of {method.upper()} {path}")
    table = (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}"><table><caption>{caption}</caption>'
        '<thead><tr><th scope="col">field</th><th scope="col">meaning</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
        if rows
        else ""
    )
    title = f"{method.upper()} {path}"
    return f"<h3>{escape(title)}</h3><p>{_text(operation.get('description', ''))}</p>{table}"


def _fields(schema: Schema, api: Schema) -> Iterator[tuple[str, str, str]]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        yield _field(name, field, name in required, api)


def _field(name: str, field: Schema, is_required: bool, api: Schema) -> tuple[str, str, str]:
    """Name; type and default; meaning."""
    facts = _type(field, api)
    if is_required:
        facts += ", required"
    elif field.get("default") is not None:
        facts += f", default {to_json(field['default'])}"
    return name, facts, str(field.get("description", ""))


def _type(schema: Schema, api: Schema) -> str:
    """A type in a few words: "list of text", "number 0–1", "mean | first | last"."""
    schema = _resolve(schema, api)
    if "anyOf" in schema:
        kinds = [_type(part, api) for part in schema["anyOf"]]
        return " | ".join(dict.fromkeys(kind for kind in kinds if kind != "null"))
    if "enum" in schema or "const" in schema:
        return " | ".join(schema.get("enum", (schema.get("const"),)))
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_type(schema.get('items', {}), api)}"
    if kind == "object":
        values = schema.get("additionalProperties")
        return (
            f"object of {_type(values, api)}"
            if isinstance(values, dict)
            else "object: " + ", ".join(schema.get("properties", ()))
        )
    names: Mapping[str, str] = {
        "string": "text",
        "integer": "integer",
        "number": "number",
        "boolean": "true | false",
        "null": "null",
    }
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    limits = "" if low is None and high is None else f" {_limit(low)}–{_limit(high)}"
    return names.get(kind, kind) + limits


def _limit(value: float | None) -> str:
    return "" if value is None else f"{value:,.10g}" if abs(value) < 1e7 else f"{value:.0e}"


def _resolve(schema: Schema, api: Schema) -> Schema:
    while "$ref" in schema:
        schema = api["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def _text(text: str) -> str:
    """Escaped, with `code` marked."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))
