"""The most probable next words, whole, from a model that generates them in pieces.

A word is a run of letters and digits, with single apostrophes and hyphens inside, or else a run of punctuation; any
byte that is not ASCII counts as a letter. Whitespace may precede it. A word is over when something follows that is not
part of it, so its probability needs one token of lookahead:

    P(word) = Σ over the token sequences that spell it   P(sequence) · P(the next token does not continue the word)

Sequences are followed level by level, the `width` most probable of them, all in one step of the model. What falls off
the beam is missing from the sums: the probabilities are lower bounds and add up to at most one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from nextword.core import pytree
from nextword.core.errors import invalid
from nextword.core.types import State
from nextword.generation.beam_search import Stepper
from nextword.generation.logits_processors import reject_nan

# Where a text ends, relative to its first word
START = 0  # before the word: nothing or whitespace
WORD = 1  # "cat"     continues with a letter, or with ' or - and a letter
JOINT = 2  # "cat'"    continues with a letter; otherwise the word was "cat"
MARKS = 3  # "..."     continues with punctuation
EITHER = 4  # "'" after a letter: more of that word, or punctuation
OVER = 5  # beyond the word

_LETTERS = rb"[A-Za-z0-9\x80-\xff]+"
_WORD = re.compile(_LETTERS + rb"(?:['-]" + _LETTERS + rb")*")
_MARKS = re.compile(rb"[^\sA-Za-z0-9\x80-\xff]+")
_JOINTS = (b"'", b"-")
_REMEMBERED = 1 << 16  # beginnings of words: while somebody types, the same ones come up after every letter


@lru_cache(_REMEMBERED)
def read_word(text: bytes, inside: bool = False) -> tuple[bytes, int]:
    """The first word of a text, as far as it is there, and where the text ends in it.

    `inside`: a letter precedes the text, so that the text may begin with the rest of a word. Whitespace before the word
    becomes one space.
    """
    if inside and continues_word(text):
        return _letters(text, _match_length(_WORD, b"a" + text) - 1)
    if inside and text in _JOINTS:
        return text, EITHER
    bare = text.lstrip()
    if not bare:
        return b"", START
    space = b" " if len(bare) < len(text) else b""
    if letters := _match_length(_WORD, bare):
        return _letters(space + bare, len(space) + letters)
    marks = _match_length(_MARKS, bare)
    return space + bare[:marks], MARKS if marks == len(bare) else OVER


@lru_cache(_REMEMBERED)
def continues_word(text: bytes) -> bool:
    """Whether the text, after a letter, certainly continues the same word."""
    return _match_length(_WORD, b"a" + text) > 1


def _match_length(pattern: re.Pattern[bytes], text: bytes) -> int:
    match = pattern.match(text)
    return match.end() if match else 0


def _letters(text: bytes, length: int) -> tuple[bytes, int]:
    word, rest = text[:length], text[length:]
    if not rest:
        return word, WORD
    return word, JOINT if rest in _JOINTS else OVER


class Spelling:
    """The bytes of every id, and which ids end an open word; build it once for a tokenizer.

    An id without bytes, or a special one, ends any word.
    """

    def __init__(self, pieces: Sequence[bytes], special: Iterable[int] = ()):
        silent = set(special)
        self.pieces = [b"" if id in silent else bytes(piece) for id, piece in enumerate(pieces)]
        # Two bytes decide: a letter, punctuation, a space, or a joint and what follows it.
        self.ends = torch.tensor([_ends(piece[:2]) for piece in self.pieces]).T.contiguous()  # (5, V) by where it ends
        self.weights = self.ends.double()  # (5, V), to sum what ends: weights @ masses (V, H)
        self.continues = torch.tensor([continues_word(piece) for piece in self.pieces])  # (V,)

    def __len__(self) -> int:
        return len(self.pieces)


@cache
def _ends(piece: bytes) -> tuple[bool, ...]:
    if not piece:
        return (True,) * OVER
    places: tuple[tuple[bytes, bool], ...] = ((b"a", False), (b"a'", False), (b".", False), (b"'", True))
    return (False, *(read_word(text + piece, inside) == (read_word(text, inside)[0], OVER) for text, inside in places))


@torch.no_grad()
def next_words(
    model: Stepper,
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
    """The k most probable next words with their probabilities, best first; fewer if the beam finds fewer.

    `last` (1,) is the first input; the state is consumed. `left` is the text so far, of which only the last byte
    matters. If that is a letter, the word there counts as complete, and the probabilities are conditional on that. With
    `inside` the first token may also continue it: b"at" is then the rest of a word, and b" at" a new one. A word keeps
    its space unless `left` ends in one. `width`: sequences followed at once (4k); `depth`: tokens in a word, plus the
    one after it.
    """
    if k < 1:
        raise invalid("k", k, "must be 1 or more words.")
    after_letter = _match_length(_WORD, left[-1:]) > 0
    after_space = not left[-1:].strip()  # also without any text
    is_complete = after_letter and not inside
    words: dict[bytes, float] = defaultdict(float)
    growing = [_Growing(0, -1, b"", b"", START, 1.0)]
    for level in range(depth):
        if level:
            last = last.new_tensor([sequence.id for sequence in growing])
            state = pytree.take(state, torch.tensor([sequence.row for sequence in growing], device=last.device))
        log_probs, state = model.step(last, state)
        # (H, V): each growing sequence with each id after it. Further steps work in place, because memory that is fresh
        # from the system costs more than the arithmetic.
        before_step = [[sequence.probability] for sequence in growing]
        masses = log_probs.exp() * torch.tensor(before_step, dtype=torch.float64, device=log_probs.device)
        if is_complete and level == 0:
            masses.masked_fill_(spelling.continues.to(masses.device), 0.0)
            masses /= masses.sum().clamp(min=torch.finfo(masses.dtype).tiny)

        ended = (spelling.weights.to(masses.device) @ masses.T).tolist()  # (5, H)
        reject_nan(ended[START])  # a NaN makes all sums of its sequence NaN
        for i, sequence in enumerate(growing):
            if sequence.place != START:
                words[sequence.word] += ended[sequence.place][i]

        masses.masked_fill_(spelling.ends[[sequence.place for sequence in growing]].to(masses.device), 0.0)
        likeliest = masses.flatten().topk(min(width or max(4 * k, 32), masses.numel()))
        before, growing = growing, []
        for probability, index in zip(likeliest.values.tolist(), likeliest.indices.tolist(), strict=True):
            row, id = divmod(index, masses.shape[1])
            text = before[row].text + spelling.pieces[id]
            if probability == 0 or (is_complete and continues_word(text)):
                continue
            word, place = read_word(text, after_letter)
            word = word.lstrip() if after_space else word
            if place == OVER:
                words[word] += probability
            else:
                growing.append(_Growing(row, id, text, word, place, probability))
        if not growing or _is_decided(words, k, sum(sequence.probability for sequence in growing)):
            break
    ranked = sorted(words.items(), key=lambda item: (-item[1], item[0]))
    return [(word, min(probability, 1.0)) for word, probability in ranked[:k] if probability > 0]


class _Growing(NamedTuple):
    """A sequence of tokens within its first word."""

    row: int  # of the sequence it extends, in the step before
    id: int
    text: bytes
    word: bytes
    place: int
    probability: float


def _is_decided(words: dict[bytes, float], k: int, rest: float) -> bool:
    """Whether the remaining sequences, even if all spelled one word, could not change the k best words."""
    ranked = sorted(words.values(), reverse=True)
    return len(ranked) >= k and rest < ranked[k - 1] - (ranked[k] if len(ranked) > k else 0.0)
