"""What a perplexity counts: over a closed vocabulary the literature mixes four conventions, so all are given.

    the cat sat on the <unk> <eos>    7 tokens; 6 without <eos> (others write </s>); 6 without <unk>; 5 without both

A token that is left out leaves both the sum and the count; as context it stays, so the model reads the same text each
time. The same 5-gram on Penn Treebank has 141.2, 160.4, 161.8 and 186.7. A lossless tokenizer spells every word, and
its bits per byte need no such choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

import numpy as np

from nextword.contract import Score


@dataclass(frozen=True)
class Convention:
    """Sums over the tokens that one convention counts."""

    name: str  # in the tokenizer's own words: "without <eos>, with <unk>"
    line_ends: bool  # whether line ends are counted
    unknown: bool  # whether unknown words are
    tokens: int
    nats: float
    impossible: int  # of the tokens, those with probability zero

    def perplexity(self) -> float | None:
        return Score(self.nats, self.tokens, words=0, bytes=0).token_perplexity()

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "perplexity": self.perplexity()}


def conventions(tokenizer: Any, ids: np.ndarray, nats: np.ndarray) -> tuple[Convention, ...]:
    """All tokens, without line ends, without unknown words, without both; nothing where that is all the same."""
    if tokenizer.lossless:
        return ()
    end, unknown = _line_end(tokenizer), _unknown(tokenizer)
    named = end | unknown
    present = [name for name, id in named.items() if (ids == id).any()]
    found = []
    for left_out in chain.from_iterable(combinations(present, n) for n in range(len(present) + 1)):
        paid = nats[~np.isin(ids, [named[name] for name in left_out])]
        if len(paid):
            said = ", ".join(f"{'without' if name in left_out else 'with'} {name}" for name in present)
            sums = len(paid), float(paid.sum()), int(np.isinf(paid).sum())
            found.append(Convention(said, not end.keys() & left_out, not unknown.keys() & left_out, *sums))
    return tuple(found) if len(found) > 1 else ()


def notes(tokenizer: Any, ids: np.ndarray, nats: np.ndarray) -> tuple[str, ...]:
    """What the number counts, in words."""
    said = []
    if tokenizer.end is None:
        said.append("each line end is predicted and counts as a word (<eos>)")
    else:
        said.append("the end of each document is predicted and paid for")
    for name, id in _unknown(tokenizer).items() if len(ids) else ():
        share = float((np.asarray(ids) == id).mean())
        said.append(f"words outside the vocabulary are scored as {name} ({100 * share:.1f} % of the tokens)")
    if not tokenizer.lossless:
        said.append("no bits per byte: this tokenizer does not keep the whole text")
    impossible = int(np.isinf(nats).sum())
    if impossible:
        said.append(_impossible(impossible, nats[~np.isinf(nats)]))
    return tuple(said)


def _impossible(count: int, rest: np.ndarray) -> str:
    has, them = ("token has", "it") if count == 1 else ("tokens have", "them")
    note = f"{count:,} {has} probability 0"
    perplexity = Score(float(rest.sum()), len(rest), words=0, bytes=0).token_perplexity()
    return note if perplexity is None else f"{note}; without {them}, token perplexity is {perplexity:,.2f}"


def _line_end(tokenizer: Any) -> dict[str, int]:
    """Name and id of the line end, where it is predicted like a word."""
    if tokenizer.end is not None:
        return {}
    return {name: id for name, id in tokenizer.special.items() if tokenizer.piece(id) == b"\n"}


def _unknown(tokenizer: Any) -> dict[str, int]:
    found = [(name, id) for name, id in tokenizer.special.items() if "unk" in name.lower()]
    return dict(found[:1])
