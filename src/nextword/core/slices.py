"""Long computations in slices: between two of them, whoever runs the computation may do something else.

    def score(texts):                                              with interruptible(serve_others, lambda: 512):
        for batch in batches(texts, slice_tokens(8192)):               score(texts)
            …                                                      # serve_others() runs after every batch
            end_slice()

A library function that may compute for long calls `end_slice` after each of its batches, chunks or steps, outside of
any torch mode except no_grad. Outside of `interruptible`, `end_slice` does nothing and `slice_tokens` returns `most`.
An exception that the interrupting function raises ends the computation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class _Interruption(NamedTuple):
    function: Callable[[], None]
    tokens: Callable[[], int]  # of a slice, from now on


_interruption: ContextVar[_Interruption | None] = ContextVar("interruption", default=None)


def slice_tokens(most: int) -> int:
    """How many tokens to compute at once: `most`, or fewer if the computation is to be interrupted often."""
    interruption = _interruption.get()
    return most if interruption is None else min(most, interruption.tokens())


def end_slice() -> None:
    """Let whoever runs this computation do something else. That is not interrupted in turn."""
    interruption = _interruption.get()
    if interruption is None:
        return
    token = _interruption.set(None)
    try:
        interruption.function()
    finally:
        _interruption.reset(token)


@contextmanager
def interruptible(function: Callable[[], None], tokens: Callable[[], int]) -> Iterator[None]:
    """Within the block, call a function after each slice of a computation; a slice has about so many tokens at most."""
    token = _interruption.set(_Interruption(function, tokens))
    try:
        yield
    finally:
        _interruption.reset(token)
