"""Vectors of words from their letters, of any word whatever: for networks that tag, and that meet words never seen.

    "EU"  →  ⟨ E U ⟩ ▢ ▢      bytes between marks (layers/characters.py), and padding up to the longest of the batch
    cnn      filters over them, and of each its greatest value anywhere in the word     Ma & Hovy (2016)
    lstm     from both sides, and what each direction has read at its end               Lample et al. (2016)

A word's vector is the same beside words of any length: filters may reach over its end, but never begin there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.contract_errors import NextwordError
from nextword.layers.bilstm import BiLSTM
from nextword.layers.characters import OTHERS, PADDING, spelled

KINDS = ("cnn", "lstm")
LOWER, INITIAL, UPPER, MIXED, NO_LETTERS = range(5)  # how a word is capitalised


def letters_of(words: Sequence[str], longest: int) -> np.ndarray:
    """(words, L) int16: the bytes of each between marks; of a word too long, the beginning."""
    return spelled([list(word.encode("utf-8", "replace")) for word in words], longest, 3)


class Spelling(nn.Module):
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


def capitals(spellings: Tensor) -> Tensor:
    """(…, L) → (…): one of the five above, seen from the letters A to Z."""
    upper, lower = (_between(spellings, *ends) for ends in (("A", "Z"), ("a", "z")))
    first, some, more = upper[..., 1], upper.any(-1), upper.sum(-1) > 1
    found = torch.where(lower.any(-1), LOWER, NO_LETTERS)
    found = torch.where(some, MIXED, found)
    found = torch.where(first & ~more, INITIAL, found)
    return torch.where(some & ~lower.any(-1) & (more | ~first), UPPER, found)


def _between(spellings: Tensor, first: str, last: str) -> Tensor:
    return (spellings >= ord(first)) & (spellings <= ord(last))
