"""What all results of the lens share: tokens with their place in the text, plain values, and HTML.

result ──as_dict──▶ {"field": …}        plain JSON values, for programs, `--json` and the server
       ──_repr_html_──▶ a fragment       with its styles, for a notebook
       ──page──▶ an HTML file            which loads nothing
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nextword.core.errors import invalid
from nextword.core.io import to_json
from nextword.html.formatting import escape
from nextword.html.notebook import styled_fragment
from nextword.html.page import document
from nextword.lm.base import TextModel
from nextword.tokenizers.base import Tokenizer

DIGITS = 7  # significant digits of the arrays in `as_dict`: what a float32 has
LINE_END = "⏎"


@dataclass(frozen=True)
class Token:
    """A token as the model reads it. A special token stands for no bytes: its span is empty."""

    text: str  # its bytes in the text, or the name of a special token
    id: int
    start: int  # first byte in the UTF-8 text
    end: int  # first byte after it


@dataclass(frozen=True, eq=False)
class LensResult:
    """A frozen value. A subclass adds fields, a `title`, and the `sections` that show it."""

    model: str  # name of the run

    @property
    def title(self) -> str:
        raise NotImplementedError

    def sections(self) -> list[tuple[str, str]]:
        """Headings, and HTML in the classes of page.css."""
        raise NotImplementedError

    def as_dict(self) -> dict[str, Any]:
        """The fields as plain values: lists, dictionaries, numbers and strings."""
        values: dict[str, Any] = _plain(self)
        return values

    def to_json(self, indent: int | None = None) -> str:
        """`as_dict` as JSON, in which infinities are null."""
        return to_json(self.as_dict(), indent)

    def page(self) -> str:
        """The result as one HTML file."""
        from nextword import __version__

        headline = f'<p class="over">{escape(self.model)}</p><h1>{escape(self.title)}</h1>'
        parts = [(f"part-{i}", escape(heading), content) for i, (heading, content) in enumerate(self.sections(), 1)]
        return document(self.title, headline, parts, __version__)

    def _repr_html_(self) -> str:
        content = "".join(
            f"<details{' open' * (not i)}><summary>{escape(heading)}</summary>{part}</details>"
            for i, (heading, part) in enumerate(self.sections())
        )
        return styled_fragment(f"<h3>{escape(self.title)}</h3>{content}")


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(vars(value)[field.name]) for field in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        return _round(value).tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(part) for part in value]
    return value


def _round(values: np.ndarray) -> np.ndarray:
    """To DIGITS significant digits, so that JSON does not spell out the noise of float32."""
    values = values.astype(np.float64)
    size = np.abs(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = np.where((size > 0) & np.isfinite(size), np.floor(np.log10(size)), 0.0)
    places = DIGITS - 1 - exponent.clip(-280, 280)
    scale = 10.0**places
    rounded: np.ndarray = np.where(np.isfinite(values), np.round(values * scale) / scale, values)
    return rounded


# ------------------------------------------------------------------------------------------------ tokens


class TokenNames:
    """How the tokens of a model are shown."""

    def __init__(self, model: TextModel) -> None:
        self.tokenizer: Tokenizer = model.tokenizer
        self.special = {id: name for name, id in self.tokenizer.special.items()}

    def name(self, id: int) -> str:
        """A special token's name, or the text of any other, with the space before it if it has one."""
        if id in self.special:
            return self.special[id]
        return self.tokenizer.piece(id).decode("utf-8", "replace") if id < len(self.tokenizer) else f"[{id}]"

    def tokens(self, text: str, ids: Sequence[int] | np.ndarray, spans: np.ndarray) -> tuple[Token, ...]:
        """The tokens of a text. Those that stand for no bytes go by their names."""
        raw = text.encode()
        tokens = []
        for id, (start, end) in zip(np.asarray(ids).tolist(), np.asarray(spans).reshape(-1, 2).tolist(), strict=True):
            own = raw[start:end].decode("utf-8", "replace") if start < end else ""
            tokens.append(Token(own or self.name(id), id, start, end))
        return tuple(tokens)

    def bare(self, ids: Sequence[int] | np.ndarray) -> tuple[Token, ...]:
        """Tokens that are not in the text: those of a frame, and what a text begins with."""
        return tuple(Token(self.name(id), id, 0, 0) for id in np.asarray(ids).tolist())


def label(token: Token) -> str:
    """A token as a label of a chart: never empty, on one line."""
    text = token.text.replace("\n", LINE_END)
    return text.strip() or "␣" * len(text) or "∅"


def show_piece(text: str) -> str:
    """The text of a token in a sentence: without spaces around it, or quoted if there is nothing else."""
    return text.strip().replace("\n", LINE_END) or repr(text)


def choose_numbers(name: str, chosen: Sequence[int] | None, count: int) -> list[int]:
    """Indices, from 0, of what is numbered 1 … count; negative numbers count from the last. None: all."""
    if chosen is None:
        return list(range(count))
    for number in chosen:
        if not (1 <= number <= count or -count <= number <= -1):
            raise invalid(name, number, f"must be from 1 to {count}, or negative from the last.")
    return [number - 1 if number > 0 else count + number for number in chosen]


def run_name(model: TextModel) -> str:
    """The name of the run's folder, not its path: pages and answers of a server are shown to others."""
    return Path(model.name).name or type(model.network).__name__
