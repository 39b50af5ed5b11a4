"""The states after earlier prompts, so that a prompt is read only from where it differs from all of them.

Someone who types asks for the next word of "the", "the cat", "the cat sat"; requests share instructions and examples.

    prompt          the cat sat on the mat
    an earlier one  the cat sat by                 a recurrent state helps only where it is: after "the cat sat by"
                    ───────────                    a KV cache can be cut: to "the cat sat"

States are copied on their way in and out, because whoever continues a state may overwrite it. The least recently used
are dropped when the tensors need more than `max_bytes`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from nextword.core import pytree
from nextword.core.types import State
from nextword.models.base import Network

ID_BYTES = 4


class CachedPrefix(NamedTuple):
    length: int  # tokens of the prompt that the state has read, after the begin token
    state: State


class PrefixCache:
    """For one network, used from one thread. A key is what a state of one row has read after the begin token."""

    def __init__(self, network: Network, max_bytes: int) -> None:
        self.network, self.max_bytes = network, max_bytes
        self.num_bytes = self.lookups = self.hits = 0
        self._states: OrderedDict[bytes, State] = OrderedDict()  # the least recently used first
        self._sizes: dict[bytes, int] = {}
        self._keys: list[bytes] = []  # sorted, so that keys with a common prefix are neighbors

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, ids: Sequence[int]) -> CachedPrefix | None:
        """A copy of the state that has read the most of a prompt, if there is any."""
        self.lookups += 1
        prompt = _key(ids)
        best, cut = b"", 0
        for key in self._neighbors(prompt):
            common = _common_length(key, prompt)
            if common > cut and self._cut(key, common) is not None:
                best, cut = key, common
        contained = self._longest_contained(prompt)
        if contained is not None and _length(contained) >= cut:
            best, cut = contained, _length(contained)
        if not cut:
            return None
        self.hits += 1
        self._states.move_to_end(best)
        return CachedPrefix(cut, pytree.clone(self._cut(best, cut)))

    def add(self, ids: Sequence[int], state: State) -> None:
        """Store a copy of the state after these tokens."""
        key = _key(ids)
        if not key or self.max_bytes <= 0:
            return
        for other in self._neighbors(key):
            if _common_length(other, key) == _length(key) and self._cut(other, _length(key)) is not None:
                self._states.move_to_end(other)  # a longer one contains it
                return
        state = self.network.truncate(state, len(ids) + 1, len(ids) + 1)
        state = pytree.clone(state)
        size = len(key) + count_bytes(state)
        if size > self.max_bytes:
            return
        contained = self._longest_contained(key)
        if contained is not None and self.network.truncate(state, len(ids) + 1, _length(contained) + 1) is not None:
            self._remove(contained)  # a shorter one, which the new one contains
        self._keys.insert(bisect_left(self._keys, key), key)
        self._states[key], self._sizes[key] = state, size
        self.num_bytes += size
        while self.num_bytes > self.max_bytes:
            self._remove(next(iter(self._states)))

    def clear(self) -> None:
        while self._keys:
            self._remove(self._keys[-1])

    def _cut(self, key: bytes, length: int) -> State | None:
        """The state after the first `length` tokens of a key; the begin token was read as well."""
        return self.network.truncate(self._states[key], _length(key) + 1, length + 1)

    def _remove(self, key: bytes) -> None:
        del self._states[key], self._keys[bisect_left(self._keys, key)]
        self.num_bytes -= self._sizes.pop(key)

    def _neighbors(self, key: bytes) -> list[bytes]:
        """The keys before and after this one: no others have more in common with it."""
        at = bisect_left(self._keys, key)
        return self._keys[max(0, at - 1) : at + 1]

    def _longest_contained(self, prompt: bytes) -> bytes | None:
        """The longest key that the prompt begins with."""
        while prompt:
            at = bisect_right(self._keys, prompt)
            if not at:
                return None
            before = self._keys[at - 1]
            if prompt.startswith(before):
                return before
            # Any key that the prompt begins with precedes it, and so do its beginnings up to where the two differ.
            prompt = prompt[: ID_BYTES * _common_length(before, prompt)]
        return None


def count_bytes(state: State) -> int:
    """Memory of the tensors of a state."""
    sizes: list[int] = []

    def add(tensor: Tensor) -> Tensor:
        sizes.append(tensor.untyped_storage().nbytes())
        return tensor

    pytree.map_tensors(add, state)
    return sum(sizes)


def _key(ids: Sequence[int]) -> bytes:
    """Bytes that sort as the ids do."""
    return np.asarray(ids, dtype=">u4").tobytes()


def _length(key: bytes) -> int:
    return len(key) // ID_BYTES


def _common_length(a: bytes, b: bytes) -> int:
    """How many ids two keys have in common at their beginning."""
    n = min(len(a), len(b))
    different = np.flatnonzero(np.frombuffer(a[:n], np.uint8) != np.frombuffer(b[:n], np.uint8))
    return (int(different[0]) if len(different) else n) // ID_BYTES
