"""The likeliest next words, whole, from a model that writes them in pieces.

A word is a run of letters and digits, with single apostrophes and hyphens inside, or else a run of punctuation; any
byte that is not ASCII counts as a letter. Whitespace may come before it. A word is over when something follows that
is not part of it, so its probability needs one token of foresight:

    P(word) = Σ over the token sequences that spell it   P(sequence) · P(next token does not go on with the word)

Sequences are followed level by level, all in one step of the model, the likeliest `width` of them. What falls
off the beam is missing from the sums: the probabilities are lower bounds and add up to at most one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from nextword.core import pytree as nest
from nextword.core.errors import NextwordError
from nextword.core.protocols import Autoregressive
from nextword.core.types import State
from nextword.generation.logits_processors import ensure_numbers

# Where a text ends, seen from its first word.
START = 0  # before the word: nothing or whitespace
WORD = 1  # "cat"     goes on with a letter, or with ' or - and a letter
JOINT = 2  # "cat'"    goes on with a letter; else the word was "cat"
MARKS = 3  # "..."     goes on with punctuation
EITHER = 4  # "'" after a letter: more of that word, or punctuation
OVER = 5  # beyond the word

_LETTERS = rb"[A-Za-z0-9\x80-\xff]+"
_WORD = re.compile(_LETTERS + rb"(?:['-]" + _LETTERS + rb")*")
_MARKS = re.compile(rb"[^\sA-Za-z0-9\x80-\xff]+")
_JOINTS = (b"'", b"-")


def read(text: bytes, inside: bool = False) -> tuple[bytes, int]:
    """The first word of a text, as far as it goes, and where the text ends in it.

    `inside`: a letter stands before the text, so that the text may begin with the rest of a word. Whitespace before
    the word becomes one space.
    """
    if inside and goes_on(text):
        return _letters(text, _reach(_WORD, b"a" + text) - 1)
    if inside and text in _JOINTS:
        return text, EITHER
    bare = text.lstrip()
    if not bare:
        return b"", START
    space = b" " if len(bare) < len(text) else b""
    if letters := _reach(_WORD, bare):
        return _letters(space + bare, len(space) + letters)
    marks = _reach(_MARKS, bare)
    return space + bare[:marks], MARKS if marks == len(bare) else OVER


def goes_on(text: bytes) -> bool:
    """Whether the text, written after a letter, is for certain more of the same word."""
    return _reach(_WORD, b"a" + text) > 1


def _reach(pattern: re.Pattern[bytes], text: bytes) -> int:
    found = pattern.match(text)
    return found.end() if found else 0


def _letters(text: bytes, length: int) -> tuple[bytes, int]:
    word, rest = text[:length], text[length:]
    if not rest:
        return word, WORD
    return word, JOINT if rest in _JOINTS else OVER


class Spelling:
    """The bytes of every id, and which ids bring an open word to its end; to be built once for a tokenizer.

    An id that writes nothing, or is named special, ends any word.
    """

    def __init__(self, pieces: Sequence[bytes], special: Iterable[int] = ()):
        silent = set(special)
        self.pieces = [b"" if id in silent else bytes(piece) for id, piece in enumerate(pieces)]
        # Two bytes decide: a letter, a mark, a space, or a joint with what comes after it.
        self.ends = torch.tensor([_ends(piece[:2]) for piece in self.pieces]).T.contiguous()  # (5, V) by where it ends
        self.goes_on = torch.tensor([goes_on(piece) for piece in self.pieces])  # (V,)

    def __len__(self) -> int:
        return len(self.pieces)


@cache
def _ends(piece: bytes) -> tuple[bool, ...]:
    if not piece:
        return (True,) * OVER
    places: tuple[tuple[bytes, bool], ...] = ((b"a", False), (b"a'", False), (b".", False), (b"'", True))
    return (False, *(read(text + piece, inside) == (read(text, inside)[0], OVER) for text, inside in places))


@torch.no_grad()
def next_words(
    model: Autoregressive,
    last: Tensor,
    state: State,
    spelling: Spelling,
    k: int = 10,
    *,
    left: bytes = b"",
    inside: bool = False,
    width: int | None = None,
    depth: int = 16,
) -> list[tuple[bytes, float]]:
    """The k likeliest next words and their probabilities, likeliest first; may be fewer, if the beam finds fewer.

    `last` (1,) is fed first; the state is consumed. `left` is the text so far: only its last byte is looked at. If that
    is a letter, the word there is taken for whole and the probabilities are those given that it is; with `inside` the
    first token may also go on with it, and b"at" is then the rest of a word where b" at" is a new one. The space stays
    on a word where `left` does not already end in one. `width`: sequences followed at once (4k); `depth`: tokens in a
    word, and the one after it.
    """
    if k < 1:
        raise NextwordError(f"k is {k}; it must be 1 or more words.")
    letter = _reach(_WORD, left[-1:]) > 0
    spaced = not left[-1:].strip()  # also when there is no text yet
    whole = letter and not inside
    found: dict[bytes, float] = defaultdict(float)
    growing = [_Growing(0, -1, b"", b"", START, 1.0)]
    for level in range(depth):
        if level:
            last = last.new_tensor([one.id for one in growing])
            state = nest.take(state, torch.tensor([one.row for one in growing], device=last.device))
        log_probs, state = model.step(last, state)
        masses = log_probs.double().exp()  # (H, V): each growing sequence, with each id after it
        masses = masses * masses.new_tensor([[one.probability] for one in growing])
        ensure_numbers(masses)
        if whole and level == 0:
            masses = masses.masked_fill(spelling.goes_on.to(masses.device), 0.0)
            masses = masses / masses.sum().clamp(min=torch.finfo(masses.dtype).tiny)

        ends = spelling.ends[[one.place for one in growing]].to(masses.device)
        for one, probability in zip(growing, (masses * ends).sum(1).tolist(), strict=True):
            if one.place != START:
                found[one.word] += probability

        likeliest = masses.masked_fill(ends, 0.0).flatten().topk(min(width or max(4 * k, 32), masses.numel()))
        before, growing = growing, []
        for probability, index in zip(likeliest.values.tolist(), likeliest.indices.tolist(), strict=True):
            row, id = divmod(index, masses.shape[1])
            text = before[row].text + spelling.pieces[id]
            if probability == 0 or (whole and goes_on(text)):
                continue
            word, place = read(text, letter)
            word = word.lstrip() if spaced else word
            if place == OVER:
                found[word] += probability
            else:
                growing.append(_Growing(row, id, text, word, place, probability))
        if not growing or _decided(found, k, sum(one.probability for one in growing)):
            break
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return [(word, min(probability, 1.0)) for word, probability in ranked[:k] if probability > 0]


class _Growing(NamedTuple):
    """A sequence of tokens that has not yet gone beyond its first word."""

    row: int  # of the sequence it continues, in the step before
    id: int
    text: bytes
    word: bytes
    place: int
    probability: float


def _decided(found: dict[bytes, float], k: int, rest: float) -> bool:
    """Whether all that still grows, even if it spelled one word, could not change which k words are the likeliest."""
    ranked = sorted(found.values(), reverse=True)
    return len(ranked) >= k and rest < ranked[k - 1] - (ranked[k] if len(ranked) > k else 0.0)
