"""The unit of text: everything that reads text yields documents."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Document:
    """A text, or one passage of a text too long to hold in memory.

    `continues` is True when this passage goes on exactly where the one before it stopped: the two are one document,
    with no end-of-document token between them.

    In a pair, `text` is the target (a translation, a summary) and `source` what it is made from; a pair is never cut
    into passages.
    """

    text: str
    id: str = ""
    title: str = ""
    continues: bool = False
    source: str | None = None
