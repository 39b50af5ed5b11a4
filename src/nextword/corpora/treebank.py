"""Words with parts of speech out of the Penn Treebank's own trees (.mrg).

    ( (S (NP-SBJ (NNP Pierre) (NNP Vinken)) (VP (MD will) (VP (VB join) … )) (. .)))      →  Pierre/NNP Vinken/NNP …

A tree in brackets of its own is a sentence. Traces (-NONE-) are no words and are left out, as everybody does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from nextword.contract_errors import NextwordError
from nextword.corpora.tagged_text import TaggedSentence

TREEBANK_SUFFIX = ".mrg"
TRACE = "-NONE-"
_TOKEN = re.compile(r"[()]|[^\s()]+")


def read_trees(name: str, source: Iterable[str]) -> Iterator[TaggedSentence]:
    """The sentences of one file, in order."""
    open: list[list[str]] = []  # what stands in each bracket that is not yet closed, brackets within left out
    began = number = 0
    words: list[tuple[str, str, int]] = []
    for number, line in enumerate(source, 1):
        for token in _TOKEN.findall(line):
            if token == "(":
                began = began if open else number
                open.append([])
            elif not open:
                raise NextwordError(f"{name}, line {number}: {token[:40]!r} stands outside of any tree.")
            elif token != ")":
                open[-1].append(token)
            else:
                words += _leaf(name, number, open.pop())
                if not open:
                    if words:
                        yield TaggedSentence(*zip(*words, strict=True))
                    words = []
    if open:
        raise NextwordError(f"{name}: the tree that begins in line {began} is never closed; the file ends at {number}.")


def _leaf(name: str, number: int, inside: list[str]) -> list[tuple[str, str, int]]:
    """The word of a bracket that has one: (NN house)."""
    if len(inside) < 2:  # the label of a phrase, or nothing, as at the root
        return []
    if len(inside) > 2:
        raise NextwordError(
            f"{name}, line {number}: ({' '.join(inside)[:40]}) is neither a word with its tag nor a phrase."
        )
    tag, word = inside
    return [] if tag == TRACE else [(word, tag, number)]
