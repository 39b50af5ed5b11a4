"""Word vectors from characters: a CNN with highway layers (ELMo), and smaller encoders for taggers.

    " cat"  →  ⟨ · c a t ⟩ ▢ ▢ …   an embedding per character
               filters of width 1, 2, 3 …, and the maximum of each anywhere in the word   (relu or tanh)
               highway  y = g · relu(W x + b) + (1 − g) · x,   g = σ(V x + c)
               projection to the width wanted

Kim et al., "Character-aware neural language models" (2016); Jozefowicz et al., "Exploring the limits of language
modeling" (2016); sizes as in ELMo (Peters et al. 2018). Characters are the bytes of UTF-8, between a begin and an end
mark. Special tokens have one character each. A word is read as if it had `max_word_length` characters, the rest being
padding; a longer word is cut (of 50 characters two are marks, so 48 bytes are read).

In evaluation, once as many vectors were requested as there are words, those of all words are computed and cached until
the weights change (`WordVectors`). `CharacterEmbedding` replaces an `nn.Embedding`; words without an id are read by
their characters.

`CharacterEncoder` is for taggers, which meet words never seen before:

    "EU"  →  ⟨ E U ⟩ ▢ ▢      padded to the longest word of the batch
    cnn      filters, and the maximum of each anywhere in the word                      Ma & Hovy (2016)
    lstm     both directions, and what each has read at its end                         Lample et al. (2016)

A word's vector does not depend on the words beside it: filters may reach over its end, but never start there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import DataError, InvalidSetting, UnknownName, Unsupported, did_you_mean
from nextword.core.types import Vocabulary
from nextword.layers.recurrent import BiLSTM

BEGIN, END, PADDING = 256, 257, 258  # after the 256 bytes
OTHERS = 259  # then the special tokens
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "tanh": torch.tanh}
ELMO = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))  # width and number of filters
MAX_WORD_LENGTH = 256  # each word of the vocabulary may take as much memory
EDGES = (8, 11, 15, 22)  # words up to these lengths, marks included, are read together
CHUNK = 1 << 21  # characters × filters in memory at once while the vectors of all words are computed


class WordVectors(nn.Module):
    """A vector per id, `forward(ids (K,)) → (K, D)`, computed from weights that words share."""

    size: int
    held: int  # numbers in memory while one vector is computed
    cached: tuple[Any, Tensor] | None = None  # version of the weights, and the vectors of all words
    requested: tuple[Any, int] | None = None  # version of the weights, and how many vectors were requested

    def table(self) -> Tensor:
        """Vectors of all words with the current weights, (V, D)."""
        all_ids = torch.arange(self.size, device=next(self.parameters()).device)
        if self.needs_grad():
            return self(all_ids)
        version = self._weights_version()
        if self.cached is None or self.cached[0] != version:
            with torch.inference_mode(False), torch.no_grad():
                parts = [self(ids) for ids in all_ids.split(max(1, CHUNK // self.held))]
            self.cached = version, torch.cat(parts)
        return self.cached[1]

    def lookup(self, ids: Tensor) -> Tensor:
        """Vectors of these ids: computed if gradients are needed, else from the table."""
        return self(ids) if self.needs_grad() else F.embedding(ids, self.table())

    def is_table_worthwhile(self, ids: Tensor) -> bool:
        """Whether as many vectors were requested so far as there are words; counts these ids."""
        version = self._weights_version()
        if self.cached is not None and self.cached[0] == version:
            return True
        before = self.requested[1] if self.requested is not None and self.requested[0] == version else 0
        self.requested = version, before + ids.numel()
        return self.requested[1] >= self.size

    def _weights_version(self) -> list[tuple[int, int]]:
        return [(p.data_ptr(), p._version) for p in self.parameters()]

    def needs_grad(self) -> bool:
        return torch.is_grad_enabled() and any(p.requires_grad for p in self.parameters())

    def train(self, mode: bool = True) -> WordVectors:
        """Also forget the table: a captured training step changes weights without changing their version."""
        self.cached = self.requested = None
        return super().train(mode)


class CharacterCNN(WordVectors):
    spellings: Tensor  # (V, L)

    def __init__(
        self,
        width: int,
        vocabulary: Vocabulary,
        filters: Sequence[Sequence[int]] = ELMO,
        character_width: int = 16,
        highway: int = 2,
        max_word_length: int = 50,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise InvalidSetting(
                f"characters: activation = {activation!r} is unknown. Use {' or '.join(ACTIVATIONS)}.",
                key="characters.activation",
                value=activation,
            )
        if not filters or any(len(f) != 2 or min(f) < 1 for f in filters) or character_width < 1 or highway < 0:
            raise InvalidSetting(
                f"characters: filters = {[list(f) for f in filters]}, character_width = {character_width}, highway = "
                f"{highway}. Filters must be pairs [width, number], character_width at least 1, highway at least 0.",
                key="characters.filters",
                value=filters,
            )
        widest, found = max(f[0] for f in filters), sum(f[1] for f in filters)
        if not max(widest, 3) <= max_word_length <= MAX_WORD_LENGTH:
            raise InvalidSetting(
                f"characters: max_word_length = {max_word_length} must be from {max(widest, 3)}, the widest filter, to "
                f"{MAX_WORD_LENGTH}.",
                key="characters.max_word_length",
                value=max_word_length,
            )
        self.longest, self.widest, self.activation = max_word_length, widest, ACTIVATIONS[activation]
        self.register_buffer(
            "spellings", torch.from_numpy(spell_vocabulary(vocabulary, max_word_length, widest)), persistent=False
        )
        self.characters = nn.Embedding(OTHERS + len(vocabulary.special), character_width)
        self.filters = nn.ModuleList(nn.Conv1d(character_width, number, size) for size, number in filters)
        self.highway = nn.ModuleList(nn.Linear(found, 2 * found) for _ in range(highway))
        for layer in self.highway:
            nn.init.constant_(layer.bias[found:], -2.0)  # type: ignore[index]  # at first, most is carried through
        self.projection = nn.Linear(found, width)
        self.size, self.held = vocabulary.size, found * self.spellings.shape[1]

    def forward(self, ids: Tensor) -> Tensor:
        """(K,) → (K, width)."""
        return self.from_characters(self.spellings[ids])

    def from_characters(self, letters: Tensor) -> Tensor:
        """(K, L) → (K, width): words by their characters, as `spell_words` encodes them."""
        x = self.activation(self._max_pool(letters))
        for layer in self.highway:
            new, gate = layer(x).chunk(2, -1)
            gate = torch.sigmoid(gate)
            x = gate * F.relu(new) + (1 - gate) * x
        return self.projection(x)

    def _max_pool(self, letters: Tensor) -> Tensor:
        """(K, L) → (K, filters): the maximum of each filter.

        Words of similar length are read together, so that little of it is padding: most words are far shorter than the
        longest.
        """
        lengths = (letters != PADDING).sum(1)
        edges = [edge for edge in EDGES if edge + self.widest <= letters.shape[1]]
        groups = torch.bucketize(lengths, torch.tensor(edges, device=letters.device))
        order = groups.argsort()
        sizes = torch.bincount(groups, minlength=len(edges) + 1).tolist()
        parts: list[Tensor] = []
        for edge, rows in zip([*edges, None], order.split(sizes), strict=True):
            if len(rows) or not parts:  # at least one part, possibly without words
                # Windows start at each character and once after the last; later ones would see only padding again
                parts.append(self._convolve(letters[rows, : None if edge is None else edge + self.widest]))
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        return torch.cat(parts).index_select(0, back)

    def _convolve(self, letters: Tensor) -> Tensor:
        x = self.characters(letters.long()).transpose(1, 2)  # (K, characters, L)
        return torch.cat([layer(x).max(-1).values for layer in self.filters], -1)


class CharacterEmbedding(nn.Module):
    """ids of any shape → their vectors. In training, each word of the batch is computed once."""

    def __init__(self, width: int, vocabulary: Vocabulary, **options: Any) -> None:
        super().__init__()
        self.cnn = CharacterCNN(width, vocabulary, **options)

    def forward(self, ids: Tensor) -> Tensor:
        if not self.cnn.needs_grad() and self.cnn.is_table_worthwhile(ids):
            return self.cnn.lookup(ids)
        if ids.is_cuda and torch.cuda.is_current_stream_capturing():
            raise Unsupported(
                "Character input cannot be captured in a CUDA graph. Remove graphs = true from the phase.",
                ability="graphs",
            )
        words, place = ids.unique(return_inverse=True)
        return F.embedding(place, self.cnn(words))


def make_embedding(width: int, vocabulary: Vocabulary, options: Mapping[str, Any]) -> nn.Embedding | CharacterEmbedding:
    """An embedding table, or with options (those of `CharacterCNN`) vectors from characters."""
    if options:
        return make_character_embedding(width, vocabulary, options)
    table = nn.Embedding(vocabulary.size, width)
    nn.init.uniform_(table.weight, -0.1, 0.1)  # torch's N(0, 1) would make a tied output overconfident
    return table


def make_character_embedding(width: int, vocabulary: Vocabulary, options: Mapping[str, Any]) -> CharacterEmbedding:
    """Vectors from characters, with a recipe's options."""
    keys = list(inspect.signature(CharacterCNN).parameters)[2:]
    unknown = [key for key in options if key not in keys]
    if unknown:
        raise UnknownName(
            f"[model] characters has no key '{unknown[0]}'.{did_you_mean(unknown[0], keys)} It has {', '.join(keys)}.",
            name=unknown[0],
            known=keys,
        )
    try:
        return CharacterEmbedding(width, vocabulary, **options)
    except TypeError as problem:
        raise InvalidSetting(
            f"[model] characters = {dict(options)} has a value of the wrong type: {problem}.",
            key="model.characters",
            value=options,
        ) from None


def spell_vocabulary(vocabulary: Vocabulary, longest: int, widest: int) -> np.ndarray:
    """(V, L): the characters of each entry of a vocabulary."""
    if len(vocabulary.pieces) != vocabulary.size:
        raise DataError(
            f"The vocabulary has spellings for {len(vocabulary.pieces)} of its {vocabulary.size} words, but character "
            "input needs all. Use vocabulary(tokenizer, spellings=True)."
        )
    marks = special_characters(vocabulary)
    return spell_words([marks.get(id) or list(piece) for id, piece in enumerate(vocabulary.pieces)], longest, widest)


def special_characters(vocabulary: Vocabulary) -> dict[int, list[int]]:
    """The character of each special token."""
    return {id: [OTHERS + i] for i, id in enumerate(sorted(vocabulary.special.values()))}


def spell_words(words: Sequence[Sequence[int]], longest: int, widest: int) -> np.ndarray:
    """(K, L): each word's characters between marks, then padding; long words are cut.

    L is as small as gives the same result as `longest`: each word is followed by as much padding as the widest filter
    reads, and more would show that filter nothing new.
    """
    length = max(widest, min(longest, 2 + max(map(len, words), default=0) + widest))
    found = np.full((len(words), length), PADDING, np.int16)
    for row, word in zip(found, words, strict=True):
        word = [BEGIN, *word[: longest - 2], END]
        row[: len(word)] = word
    return found


KINDS = ("cnn", "lstm")
LOWER, INITIAL, UPPER, MIXED, NO_LETTERS = range(5)  # capitalization patterns


def word_characters(words: Sequence[str], longest: int) -> np.ndarray:
    """(words, L) int16: the bytes of each word between marks; long words are cut."""
    return spell_words([list(word.encode("utf-8", "replace")) for word in words], longest, 3)


class CharacterEncoder(nn.Module):
    """(…, L) characters → (…, width). `filters` are pairs (width, number); the LSTM has `inner` units per direction."""

    def __init__(self, kind: str, letters: int, filters: Sequence[Sequence[int]], inner: int, dropout: float) -> None:
        super().__init__()
        if kind not in KINDS:
            raise InvalidSetting(
                f"[model] characters = {kind!r} is unknown. Use {' or '.join(KINDS)}, or an empty string for none.",
                key="model.characters",
                value=kind,
            )
        if kind == "cnn" and (not filters or any(len(pair) != 2 or min(pair) < 1 for pair in filters)):
            raise InvalidSetting(
                f"[model] filters = {list(filters)} must be pairs [width, number], such as [[3, 30]].",
                key="model.filters",
                value=filters,
            )
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
        found = self._convolve(x, flat) if self.lstm is None else self.lstm.ends(x, _lengths(flat))
        return found.view(*spellings.shape[:-1], self.width)

    def _convolve(self, x: Tensor, flat: Tensor) -> Tensor:
        assert self.filters is not None
        gone = (flat == PADDING).unsqueeze(1)  # (N, 1, L)
        gone[:, :, 0] = False  # an empty word needs a maximum too
        parts = []
        for layer in self.filters:
            reach: Any = layer.kernel_size
            y = layer(F.pad(x.transpose(1, 2), (0, reach[0] - 1)))
            parts.append(y.masked_fill(gone, -torch.inf).amax(-1))
        return torch.relu(torch.cat(parts, 1))


def _lengths(flat: Tensor) -> Tensor:
    return (flat != PADDING).sum(1).clamp(min=1)


def capitalization(spellings: Tensor) -> Tensor:
    """(…, L) → (…): the capitalization pattern, judged by the letters A to Z."""
    upper, lower = (_between(spellings, *ends) for ends in (("A", "Z"), ("a", "z")))
    first, some, more = upper[..., 1], upper.any(-1), upper.sum(-1) > 1
    found = torch.where(lower.any(-1), LOWER, NO_LETTERS)
    found = torch.where(some, MIXED, found)
    found = torch.where(first & ~more, INITIAL, found)
    return torch.where(some & ~lower.any(-1) & (more | ~first), UPPER, found)


def _between(spellings: Tensor, first: str, last: str) -> Tensor:
    return (spellings >= ord(first)) & (spellings <= ord(last))
