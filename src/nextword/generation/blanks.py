"""The likeliest words for a blank, whole, from a network that sees both sides and fills in single tokens.

    The [?] sat on the mat            one token is hidden: every word of one piece, and its probability, at once
    The [?] [?] sat on the mat        two: the first piece, then, with that one in its place, the second
    The [?] [?] [?] sat on the mat    three

What is hidden has a number, and the network gives no probability to that. So it is taken from text: as many words have
one, two or three pieces as among those around the blank and `EXPECTED` others.

    P(word) = Σ over the ways to spell it in n ≤ 3 pieces   P(n) · Π_i P(piece i | what is around, pieces before i)

Pieces are followed from left to right, the likeliest `width` of them; what falls off, and words of more pieces, are
missing: the probabilities are lower bounds and add up to at most one. What a word is: generation/words.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nextword.contract_protocols import Tokenizer
from nextword.generation.words import MARKS, WORD, goes_on, read

HIDDEN = -1  # in a row of ids: a token that is asked for
MOST = 3  # pieces of a word
EXPECTED = (8.0, 1.5, 0.5)  # words of one, two and three pieces, of ten in English under a vocabulary of 30 000

Guess = Callable[[np.ndarray], Tensor]  # rows of ids (B, T), equally many HIDDEN in each → their log p (B, hidden, V)


class Pieces:
    """What each id can be in a word; to be built once for a tokenizer. Special ids are never part of one."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.bytes = [tokenizer.piece(id) for id in range(len(tokenizer))]
        for id in tokenizer.special.values():
            self.bytes[id] = b""
        places = [read(piece)[1] if read(piece)[0].strip() == piece.strip() else 0 for piece in self.bytes]
        spaced = torch.tensor([piece[:1].isspace() for piece in self.bytes])
        letters = torch.tensor([place == WORD for place in places])
        marks = torch.tensor([place == MARKS for place in places])
        self.inner = torch.tensor(
            [goes_on(piece) and read(b"a" + piece) == (b"a" + piece, WORD) for piece in self.bytes]
        )
        # Where a space is lost and a piece without one goes on with a word, none can begin one or stand alone
        marked = tokenizer.kind == "wordpiece"
        self.begins = letters & spaced  # a word after another
        self.bare = letters & ~spaced & (not marked)  # a word right after a mark, or at the very start
        self.marks = marks & (spaced | (not marked))
        self.most = 1 if tokenizer.kind == "words" else MOST

    def shares(self, *texts: Sequence[int]) -> list[float]:
        """P(n): of the words in these texts, and of those that are expected anyway, the share with n pieces."""
        counts = list(EXPECTED[: self.most])
        begins, inner, bare = (flags.numpy() for flags in (self.begins, self.inner, self.bare))
        for ids in texts:
            length = 0
            for id in [*ids, HIDDEN]:  # which ends the last word
                if id >= 0 and length and inner[id]:
                    length += 1
                    continue
                if 0 < length <= self.most:
                    counts[length - 1] += 1
                length = int(id >= 0 and (begins[id] or bare[id]))
        return [count / sum(counts) for count in counts]


class _Growing(NamedTuple):
    ids: tuple[int, ...]
    probability: float


@torch.no_grad()
def blank_words(
    guess: Guess,
    left: Sequence[int],
    right: Sequence[int],
    pieces: Pieces,
    k: int = 10,
    *,
    bare: bool = False,
    width: int | None = None,
) -> list[tuple[str, float]]:
    """The k likeliest words between two rows of ids and their probabilities, likeliest first; may be fewer.

    `bare`: the word may begin without a space, since nothing or a mark stands before it. Other blanks in `left` and
    `right` are HIDDEN. `width`: beginnings of words that are followed at once.
    """
    found: dict[str, float] = defaultdict(float)
    width = width or min(max(16, 2 * k), 64)
    first = pieces.begins | pieces.bare if bare else pieces.begins
    own = sum(id == HIDDEN for id in left)  # blanks before this one
    for n, share in enumerate(pieces.shares(left, right), 1):
        growing = [_Growing((), share)]
        for at in range(n):
            rows = [[*left, *one.ids, *[HIDDEN] * (n - at), *right] for one in growing]
            masses = guess(np.array(rows, np.int64))[:, own].double().exp()  # (H, V)
            masses = masses * masses.new_tensor([[one.probability] for one in growing])
            allowed = pieces.inner if at else first | pieces.marks if n == 1 else first
            masses = masses.masked_fill(~allowed.to(masses.device), 0.0)
            # A word that is likely enough now is counted; a beginning that cannot become one is left
            least = _least(found, k)
            best = masses.flatten().topk(min(width if at < n - 1 else width + k, masses.numel()))
            before, growing = growing, []
            for probability, index in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                row, id = divmod(index, masses.shape[1])
                if probability > least:
                    growing.append(_Growing((*before[row].ids, id), probability))
            if not growing:
                break
        for one in growing:
            word = _spelled(pieces, one.ids)
            if len(one.ids) == n and word:
                found[word] += one.probability
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return [(word, min(probability, 1.0)) for word, probability in ranked[:k]]


def _least(found: dict[str, float], k: int) -> float:
    """What a word must have to be among the k; zero as long as there are fewer."""
    ranked = sorted(found.values(), reverse=True)
    return ranked[k - 1] if len(ranked) >= k else 0.0


def _spelled(pieces: Pieces, ids: Sequence[int]) -> str:
    """The word that these ids write; nothing where that is no text, as of bytes inside a character."""
    try:
        return b"".join([pieces.bytes[id] for id in ids]).decode().strip()
    except UnicodeDecodeError:
        return ""


def around(left: Sequence[int], right: Sequence[int], room: int) -> tuple[Sequence[int], Sequence[int]]:
    """The tokens nearest to the blank, at most `room` of them: half on either side, more where the other has less."""
    before = min(len(left), max(room // 2, room - len(right)))
    return left[len(left) - before :], right[: max(0, room - before)]
