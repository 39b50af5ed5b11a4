"""The engine: one thread owns a model and serves many requests side by side, token by token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TypeVar

from nextword.lm.base import TextModel
from nextword.server.requests import EngineStats, Event, GenerationRequest

T = TypeVar("T")
X = TypeVar("X")


class Handle:
    """The events of one request, for one reader: `for event in handle` or `async for event in handle`.

    The last event is `Finished`. Any thread may cancel.
    """

    request: GenerationRequest

    def __iter__(self) -> Iterator[Event]:
        raise NotImplementedError

    def __aiter__(self) -> AsyncIterator[Event]:
        raise NotImplementedError

    def cancel(self) -> None:
        """End the request at the next turn: `Finished("cancelled")` follows. Does nothing after the end."""
        raise NotImplementedError


class Engine:
    """Serve one model from a thread of its own.

    rows          requests that generate side by side
    queue         requests that may wait; one more raises QueueFull
    prefix_bytes  memory for the states after earlier prompts; 0: none
    """

    def __init__(self, model: TextModel, rows: int = 32, queue: int = 256, prefix_bytes: int = 64 << 20) -> None:
        self.model = model
        raise NotImplementedError

    def submit(self, request: GenerationRequest) -> Handle:
        """Queue a request. Raises QueueFull, EngineClosed, and the errors of `lm.generate` for impossible settings."""
        raise NotImplementedError

    def call(self, function: Callable[[TextModel], T]) -> Future[T]:
        """Call a function with the model on the model's thread, between two steps. Raises QueueFull, EngineClosed."""
        raise NotImplementedError

    def map(self, function: Callable[[TextModel, Sequence[X]], Sequence[T]], item: X) -> Future[T]:
        """Like `call`, but items that wait for the same function are handed to it together, at most `rows` of them."""
        raise NotImplementedError

    def stats(self) -> EngineStats:
        raise NotImplementedError

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing waits."""
        raise NotImplementedError

    def num_bytes(self) -> int:
        """Memory of the weights and the prefix cache."""
        raise NotImplementedError

    def close(self, drain_seconds: float = 0) -> None:
        """Refuse new requests, let the others finish for so long, cancel the rest and end the thread."""
        raise NotImplementedError
