"""The Python reference as a corpus: the prose of `pydoc_data.topics`, which is part of every Python.

One document a topic. Kept are paragraphs of sentences, unwrapped to a line each; gone are headings, tables, grammar,
code, footnote marks and emphasis. A paragraph that stands in several topics is kept once, in the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nextword.corpora.document import Document

_NOISE = re.compile(r"::=|^\+[-=+]+\+|^\||^>>>|^\.\.\. |^[*=~\-^]{3,}$|\*\*Source code:\*\*", re.M)
_HYPHEN = re.compile(r"(?<=[a-z])-\n(?=[a-z])")
_FOOTNOTE = re.compile(r"\s*\[\d+\]")
_EMPHASIS = re.compile(r"(?<![\w*\"'])\*{1,2}([A-Za-z_][^*\n]*?)\*{1,2}(?![\w*])")
_WORD = re.compile(r"[A-Za-z’']+")
_COMMON = frozenset(
    re.findall(r"\w+", "a an and are as be by can for from if in is it not of on or that the this to with")
)


def topics() -> Iterator[Document]:
    """Every topic that has prose, in alphabetical order."""
    from pydoc_data.topics import topics as pages

    seen: set[str] = set()
    for name in sorted(pages):
        kept = []
        for block in re.split(r"\n\s*\n", pages[name]):
            paragraph = prose(block)
            if paragraph and paragraph not in seen:
                seen.add(paragraph)
                kept.append(paragraph)
        if kept:
            yield Document("".join(f"{paragraph}\n\n" for paragraph in kept).rstrip("\n") + "\n", name, name)


def prose(block: str) -> str | None:
    """The block as one line, or None where it is not sentences."""
    if _NOISE.search("\n".join(line.strip() for line in block.splitlines())):
        return None
    text = re.sub(r"^\s*(?:\*|\d+\.|\[\d+\]) +", "", block)  # the mark of a list item or footnote
    text = " ".join(_HYPHEN.sub("-", re.sub(r"\n +", "\n", text)).split())
    text = _EMPHASIS.sub(r"\1", _FOOTNOTE.sub("", text))
    words = _WORD.findall(text)
    # Code and tables have few of the words that every English sentence is full of, and many signs.
    common = sum(word.lower() in _COMMON for word in words)
    letters = sum(character.isalpha() or character == " " for character in text)
    sentences = len(words) >= 8 and common >= len(words) / 8 and letters >= 0.8 * len(text)
    return text if sentences and text.endswith((".", ":", "?", ")")) else None
