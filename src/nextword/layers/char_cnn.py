"""Vectors made of a word's letters: a convolution over characters, the greatest value of each filter, highway layers.

    " cat"  →  ⟨ · c a t ⟩ ▢ ▢ …   each character a vector
               filters of width 1, 2, 3 …, and of each its greatest value anywhere in the word   (relu or tanh)
               highway  y = g · relu(W x + b) + (1 − g) · x,   g = σ(V x + c)
               projection to the width wanted

Kim et al., "Character-aware neural language models" (2016); Jozefowicz et al., "Exploring the limits of language
modeling" (2016); sizes as in ELMo (Peters et al. 2018). Characters are the bytes of UTF-8, and words begin and end with
marks. Special tokens, which have no spelling, have a character each. A word is read as if it stood in `longest` places,
the rest of them padding; a longer word loses its end (of 50 places two are for the marks, so 48 bytes are read).

In evaluation, once as many vectors were asked for as there are words, those of all words are computed and kept until
the weights change (`WordVectors`). `CharacterEmbedding` stands where a network has its `nn.Embedding`; words that have
no id are read by their `letters` alone.

Vectors of words from their letters, of any word whatever: for networks that tag, and that meet words never seen.

    "EU"  →  ⟨ E U ⟩ ▢ ▢      bytes between marks (layers/characters.py), and padding up to the longest of the batch
    cnn      filters over them, and of each its greatest value anywhere in the word     Ma & Hovy (2016)
    lstm     from both sides, and what each direction has read at its end               Lample et al. (2016)

A word's vector is the same beside words of any length: filters may reach over its end, but never begin there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import NextwordError
from nextword.core.types import Vocabulary
from nextword.layers.bilstm import BiLSTM

BEGIN, END, PADDING = 256, 257, 258  # after the 256 bytes
OTHERS = 259  # then the special tokens
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "tanh": torch.tanh}
ELMO = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))  # width and number of filters
EDGES = (8, 11, 15, 22)  # characters of words, marks included, that are read together up to there
CHUNK = 1 << 21  # characters × filters held at once while all words' vectors are computed for evaluation


class WordVectors(nn.Module):
    """A vector for each id, `forward(ids (K,)) → (K, D)`, computed from weights that words share."""

    size: int
    held: int  # numbers in memory while one vector is computed
    kept: tuple[Any, Tensor] | None = None
    asked: tuple[Any, int] | None = None  # how many vectors were, of which weights

    def table(self) -> Tensor:
        """Vectors of all words, (V, D): those of the weights as they are."""
        everything = torch.arange(self.size, device=next(self.parameters()).device)
        if self.learning():
            return self(everything)
        weights = self._weights()
        if self.kept is None or self.kept[0] != weights:
            with torch.inference_mode(False), torch.no_grad():
                parts = [self(ids) for ids in everything.split(max(1, CHUNK // self.held))]
            self.kept = weights, torch.cat(parts)
        return self.kept[1]

    def some(self, ids: Tensor) -> Tensor:
        """Of these ids alone, while learning; else from the table."""
        return self(ids) if self.learning() else F.embedding(ids, self.table())

    def few(self, ids: Tensor) -> bool:
        """Whether it is not yet worth its while to compute all of them: fewer were asked for than there are words."""
        weights = self._weights()
        if self.kept is not None and self.kept[0] == weights:
            return False
        before = self.asked[1] if self.asked is not None and self.asked[0] == weights else 0
        self.asked = weights, before + ids.numel()
        return self.asked[1] < self.size

    def _weights(self) -> list[tuple[int, int]]:
        return [(p.data_ptr(), p._version) for p in self.parameters()]

    def learning(self) -> bool:
        return torch.is_grad_enabled() and any(p.requires_grad for p in self.parameters())

    def train(self, mode: bool = True) -> WordVectors:
        """What was kept is forgotten too: a recorded step changes weights without a trace."""
        self.kept = self.asked = None
        return super().train(mode)


class CharacterCNN(WordVectors):
    spellings: Tensor  # (V, L)

    def __init__(
        self,
        width: int,
        vocabulary: Vocabulary,
        filters: Sequence[Sequence[int]] = ELMO,
        characters: int = 16,
        highway: int = 2,
        longest: int = 50,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise NextwordError(f"activation = {activation!r} of the filters; expected {' or '.join(ACTIVATIONS)}.")
        if not filters or any(len(f) != 2 or min(f) < 1 for f in filters) or characters < 1 or highway < 0:
            raise NextwordError(
                f"filters are pairs [width, number], as [[1, 32], [2, 64]], characters at least 1 and highway not "
                f"negative; given were {[list(f) for f in filters]}, {characters} and {highway}."
            )
        widest, found = max(f[0] for f in filters), sum(f[1] for f in filters)
        if longest < max(widest, 3):
            raise NextwordError(f"longest = {longest} characters of a word: the widest filter reads {widest}.")
        self.longest, self.widest, self.activation = longest, widest, ACTIVATIONS[activation]
        self.register_buffer(
            "spellings", torch.from_numpy(spell_vocabulary(vocabulary, longest, widest)), persistent=False
        )
        self.characters = nn.Embedding(OTHERS + len(vocabulary.special), characters)
        self.filters = nn.ModuleList(nn.Conv1d(characters, number, size) for size, number in filters)
        self.highway = nn.ModuleList(nn.Linear(found, 2 * found) for _ in range(highway))
        for layer in self.highway:
            nn.init.constant_(layer.bias[found:], -2.0)  # type: ignore[index]  # at first most is carried through
        self.projection = nn.Linear(found, width)
        self.size, self.held = vocabulary.size, found * self.spellings.shape[1]

    def forward(self, ids: Tensor) -> Tensor:
        """(K,) → (K, width)."""
        return self.from_characters(self.spellings[ids])

    def from_characters(self, letters: Tensor) -> Tensor:
        """(K, L) → (K, width): words by their characters, as `spelled` writes them."""
        x = self.activation(self._greatest(letters))
        for layer in self.highway:
            new, gate = layer(x).chunk(2, -1)
            gate = torch.sigmoid(gate)
            x = gate * F.relu(new) + (1 - gate) * x
        return self.projection(x)

    def _greatest(self, letters: Tensor) -> Tensor:
        """(K, L) → (K, filters): of each filter its greatest value. Words of like length go together, so that little of
        what is read is padding: most are far shorter than the longest."""
        lengths = (letters != PADDING).sum(1)
        edges = [edge for edge in EDGES if edge + self.widest <= letters.shape[1]]
        groups = torch.bucketize(lengths, torch.tensor(edges, device=letters.device))
        order = groups.argsort()
        sizes = torch.bincount(groups, minlength=len(edges) + 1).tolist()
        parts: list[Tensor] = []
        for edge, rows in zip([*edges, None], order.split(sizes), strict=True):
            if len(rows) or not parts:  # one at least, of no words
                parts.append(self._everywhere(letters[rows]) if edge is None else self._windows(letters[rows], edge))
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        return torch.cat(parts).index_select(0, back)

    def _everywhere(self, letters: Tensor) -> Tensor:
        x = self.characters(letters.long()).transpose(1, 2)  # (K, characters, L)
        return torch.cat([layer(x).max(-1).values for layer in self.filters], -1)

    def _windows(self, letters: Tensor, longest: int) -> Tensor:
        """Words of at most so many characters: all filters in one product, the narrow ones wider by zeros.

        Windows begin at each character and once behind the last: those further on would see padding again.
        """
        x = self.characters(letters[:, : longest + self.widest].long()).unfold(1, self.widest, 1)  # (K, P, C, widest)
        filters: list[Any] = list(self.filters)
        weight = torch.cat([F.pad(f.weight, (0, self.widest - f.weight.shape[-1])) for f in filters])
        return F.linear(x.flatten(2), weight.flatten(1), torch.cat([f.bias for f in filters])).max(1).values


class CharacterEmbedding(nn.Module):
    """ids of any shape → their vectors. While learning, only for the words that are there, each once."""

    def __init__(self, width: int, vocabulary: Vocabulary, **options: Any) -> None:
        super().__init__()
        self.cnn = CharacterCNN(width, vocabulary, **options)

    def forward(self, ids: Tensor) -> Tensor:
        if not self.cnn.learning() and not self.cnn.few(ids):
            return self.cnn.some(ids)
        if ids.is_cuda and torch.cuda.is_current_stream_capturing():
            raise NextwordError("Input by characters cannot be recorded: leave graphs = true out of the phase.")
        words, place = ids.unique(return_inverse=True)
        return F.embedding(place, self.cnn(words))


def make_embedding(width: int, vocabulary: Vocabulary, options: Mapping[str, Any]) -> nn.Embedding | CharacterEmbedding:
    """A table of vectors, or with options (`CharacterCNN`'s) vectors from letters."""
    if options:
        return make_character_embedding(width, vocabulary, options)
    table = nn.Embedding(vocabulary.size, width)
    nn.init.uniform_(table.weight, -0.1, 0.1)  # torch's N(0, 1) would make a tied output far too sure
    return table


def make_character_embedding(width: int, vocabulary: Vocabulary, options: Mapping[str, Any]) -> CharacterEmbedding:
    """Vectors from letters, with a recipe's options."""
    keys = list(inspect.signature(CharacterCNN).parameters)[2:]
    unknown = [key for key in options if key not in keys]
    if unknown:
        raise NextwordError(f"characters has no key '{unknown[0]}'; it has {', '.join(keys)}.")
    try:
        return CharacterEmbedding(width, vocabulary, **options)
    except TypeError as problem:
        raise NextwordError(f"characters = {dict(options)} has a value of the wrong type: {problem}.") from None


def spell_vocabulary(vocabulary: Vocabulary, longest: int, widest: int) -> np.ndarray:
    """(V, L): the characters of each word of a vocabulary."""
    if len(vocabulary.pieces) != vocabulary.size:
        raise NextwordError(
            f"Words are to be read by their letters, but the vocabulary gives spellings for {len(vocabulary.pieces)} "
            f"of its {vocabulary.size}. Give it all of them, as vocabulary(tokenizer, spellings=True) does."
        )
    marks = special_characters(vocabulary)
    return spell_words([marks.get(id) or list(piece) for id, piece in enumerate(vocabulary.pieces)], longest, widest)


def special_characters(vocabulary: Vocabulary) -> dict[int, list[int]]:
    """The one character that stands for each special token."""
    return {id: [OTHERS + i] for i, id in enumerate(sorted(vocabulary.special.values()))}


def spell_words(words: Sequence[Sequence[int]], longest: int, widest: int) -> np.ndarray:
    """(K, L): each word's characters between marks, and padding. Of words too long the beginning is read.

    L is as short as it can be without a difference to `longest`: behind each word stands as much padding as the widest
    filter reads, and more of it would show that filter nothing new.
    """
    length = max(widest, min(longest, 2 + max(map(len, words), default=0) + widest))
    found = np.full((len(words), length), PADDING, np.int16)
    for row, word in zip(found, words, strict=True):
        word = [BEGIN, *word[: longest - 2], END]
        row[: len(word)] = word
    return found


KINDS = ("cnn", "lstm")
LOWER, INITIAL, UPPER, MIXED, NO_LETTERS = range(5)  # how a word is capitalised


def word_characters(words: Sequence[str], longest: int) -> np.ndarray:
    """(words, L) int16: the bytes of each between marks; of a word too long, the beginning."""
    return spell_words([list(word.encode("utf-8", "replace")) for word in words], longest, 3)


class CharacterEncoder(nn.Module):
    """(…, L) letters → (…, width). `filters` are pairs of a width and a number; an LSTM has `inner` units a side."""

    def __init__(self, kind: str, letters: int, filters: Sequence[Sequence[int]], inner: int, dropout: float) -> None:
        super().__init__()
        if kind not in KINDS:
            raise NextwordError(f"[model] characters = {kind!r}; expected {' or '.join(KINDS)}, or nothing.")
        if kind == "cnn" and (not filters or any(len(one) != 2 or min(one) < 1 for one in filters)):
            raise NextwordError(f"[model] filters are pairs [width, number], as [[3, 30]]; given were {list(filters)}.")
        self.dropout = dropout
        self.letters = nn.Embedding(OTHERS, letters, padding_idx=PADDING)
        nn.init.uniform_(self.letters.weight[:PADDING], -((3 / letters) ** 0.5), (3 / letters) ** 0.5)
        self.filters: nn.ModuleList | None = None
        self.lstm: BiLSTM | None = None
        if kind == "cnn":
            self.filters = nn.ModuleList(nn.Conv1d(letters, number, size) for size, number in filters)
            self.width = sum(number for _, number in filters)
        else:
            self.lstm = BiLSTM(letters, inner)
            self.width = 2 * inner

    def forward(self, spellings: Tensor) -> Tensor:
        flat = spellings.reshape(-1, spellings.shape[-1]).long()  # (N, L)
        x = F.dropout(self.letters(flat), self.dropout, self.training)  # (N, L, letters)
        found = self._filtered(x, flat) if self.lstm is None else self.lstm.ends(x, _lengths(flat))
        return found.view(*spellings.shape[:-1], self.width)

    def _filtered(self, x: Tensor, flat: Tensor) -> Tensor:
        assert self.filters is not None
        gone = (flat == PADDING).unsqueeze(1)  # (N, 1, L)
        gone[:, :, 0] = False  # no word at all: something has to be the greatest
        parts = []
        for layer in self.filters:
            reach: Any = layer.kernel_size
            y = layer(F.pad(x.transpose(1, 2), (0, reach[0] - 1)))
            parts.append(y.masked_fill(gone, -torch.inf).amax(-1))
        return torch.relu(torch.cat(parts, 1))


def _lengths(flat: Tensor) -> Tensor:
    return (flat != PADDING).sum(1).clamp(min=1)


def capitalization(spellings: Tensor) -> Tensor:
    """(…, L) → (…): one of the five above, seen from the letters A to Z."""
    upper, lower = (_between(spellings, *ends) for ends in (("A", "Z"), ("a", "z")))
    first, some, more = upper[..., 1], upper.any(-1), upper.sum(-1) > 1
    found = torch.where(lower.any(-1), LOWER, NO_LETTERS)
    found = torch.where(some, MIXED, found)
    found = torch.where(first & ~more, INITIAL, found)
    return torch.where(some & ~lower.any(-1) & (more | ~first), UPPER, found)


def _between(spellings: Tensor, first: str, last: str) -> Tensor:
    return (spellings >= ord(first)) & (spellings <= ord(last))
