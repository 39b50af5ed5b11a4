"""Words that have no id, for networks that read words by their letters.

The zweiback was stale .          12  ▢  7  ▢  3     ▢ is a number from the network's `known` on, one a new word
characters  z w e i b a c k, s t a l e               their letters go with the batch (`Inputs.characters`)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nextword.contract import Encoding, Inputs
from nextword.contract_protocols import Tokenizer


class Unseen:
    """Words that have no id, for a network that reads letters (it has `spelled`): numbered from its `known` on."""

    def __init__(self, network: Any, tokenizer: Tokenizer) -> None:
        self.network, self.tokenizer = network, tokenizer
        self.spells = hasattr(network, "spelled")
        self.unknown = next((id for name, id in tokenizer.special.items() if "unk" in name.lower()), None)
        self.words: dict[bytes, int] = {}
        self.numbers: dict[str, int] = {}  # of words that were asked for one by one

    def ids(self, text: str, encoding: Encoding) -> np.ndarray:
        """The ids of a text, in which a word that is unknown has a number of its own."""
        ids = encoding.ids.astype(np.int64)
        if self.spells and self.unknown is not None:
            raw = text.encode()
            for at in np.flatnonzero(ids == self.unknown).tolist():
                ids[at] = self._number(raw[slice(*encoding.spans[at])])
        return ids

    def of_words(self, words: Sequence[str]) -> np.ndarray:
        """Of words that stay as they are, whatever the tokenizer would make of them."""
        for word in dict.fromkeys(word for word in words if word not in self.numbers):
            found = self.tokenizer.encode_batch([word])[0].ids
            known = len(found) == 1 and found[0] != self.unknown
            self.numbers[word] = int(found[0]) if known else self._number(word.encode())
        return np.array([self.numbers[word] for word in words], np.int64)

    def _number(self, word: bytes) -> int:
        return self.network.known + self.words.setdefault(word, len(self.words))

    def spelled(self, inputs: Inputs) -> Inputs:
        """With the letters of those words that are in it."""
        new = inputs.ids >= self.network.known if self.words else None
        if new is None or not new.any():
            return inputs
        found, places = inputs.ids[new].unique(return_inverse=True)
        names = list(self.words)
        letters = self.network.spelled([names[id - self.network.known] for id in found.tolist()])
        ids = inputs.ids.masked_scatter(new, places + self.network.known)
        return replace(inputs, ids=ids, characters=letters)
