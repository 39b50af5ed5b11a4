"""What all routes share: the models that are served, and how a request waits for one of them.

A route never touches a network. It submits generation requests to the engine of a model, or has a function called on
the engine's thread, and waits for either without blocking other requests. If the client leaves meanwhile, what it
asked for is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from fastapi import Request

from nextword.core.errors import (
    CannotWrite,
    InvalidSetting,
    MissingDependency,
    MissingFile,
    NextwordError,
    OutOfMemory,
    RunError,
    UnknownName,
    Unsupported,
    as_keywords,
)
from nextword.lm.base import TextModel
from nextword.server.catalog import Catalog
from nextword.server.chat import ChatTemplate
from nextword.server.engine import Engine, Handle
from nextword.server.jobs import Jobs
from nextword.server.metrics import Metrics
from nextword.server.pool import ModelPool
from nextword.server.requests import (
    EngineClosed,
    EngineStats,
    Event,
    Finished,
    GenerationRequest,
    MemoryBusy,
    QueueFull,
    TokenEvent,
)
from nextword.server.schema import Body
from nextword.server.security import ClientGone, Refusal

T = TypeVar("T")
X = TypeVar("X")
Row = tuple[int, Event]  # index of a generation request, and an event of it

WAITERS = 64  # threads that wait for models to be loaded, or compute for a while
LARGE = 10_000  # characters or tokens, from which on they are encoded and decoded in a thread
logger = logging.getLogger("nextword.server")


@dataclass(frozen=True)
class Lease:
    """A model that stays loaded for a request."""

    name: str
    engine: Engine
    metrics: Metrics

    @property
    def model(self) -> TextModel:
        return self.engine.model

    async def call(self, function: Callable[[TextModel], T], size: int = 0) -> T:
        """Call a function with the model on the engine's thread; if this is cancelled, the call ends at its next slice.

        size   how many tokens it computes, about
        """
        return await asyncio.wrap_future(self.engine.call(function, size))

    async def map(
        self, function: Callable[[TextModel, Sequence[X]], Sequence[T]], items: Sequence[X], sizes: Sequence[int]
    ) -> list[T]:
        """The results of a function for these items, which are computed together with those of other clients."""
        return await asyncio.wrap_future(self.engine.map(function, items, sizes))

    def start(self, requests: Sequence[GenerationRequest]) -> Rows:
        """Submit generation requests. Raises what `Engine.submit` raises for the first."""
        return Rows(self, requests)


class Service:
    """The models of a server, by name."""

    def __init__(self, pool: ModelPool, chat: ChatTemplate | None = None) -> None:
        self.pool, self.chat = pool, chat
        self.jobs: Jobs | None = None  # training from the page, see `allow_training`
        self.catalog = Catalog(pool.folders)
        self.metrics = Metrics(self._stats)
        self.is_draining = False
        self._waiters = ThreadPoolExecutor(WAITERS, "model-waiter")
        self._loading: Future[None] | None = None  # of the only model

    def _stats(self) -> Mapping[str, EngineStats]:
        return {name: engine.stats() for name, engine in self.pool.loaded().items()}

    @property
    def status(self) -> str:
        """ "ok"; "draining"; "loading": the only model is not loaded yet."""
        if self.is_draining:
            return "draining"
        return "loading" if self._loading is not None and not self._loading.done() else "ok"

    def preload(self) -> None:
        """Begin to load the model, if there is only one."""
        if len(self.pool.names) == 1:
            self._loading = self._waiters.submit(self._load, self.pool.names[0])

    def _load(self, name: str) -> None:
        try:
            self.pool.get(name)
        except Exception as error:  # the first request will be told
            self.explain(error)

    def explain(self, error: Exception) -> Refusal:
        """What a client is told of an error: models have their names there, not the paths of their folders."""
        refusal = explain(error)
        for name, folder in self.catalog.folders.items():
            refusal.message = refusal.message.replace(str(folder), name)
        return refusal

    def allow_training(self, folder: Path) -> None:
        """Let clients train into a folder, and serve what they have trained."""
        self.jobs = Jobs(folder, self.add_model, self.remove_model, self.pool.device)

    def add_model(self, name: str, folder: Path) -> str:
        """Serve a run from now on; return its name."""
        added = self.pool.add(name, folder)
        self.catalog.update(self.pool.folders, added)
        return added

    def remove_model(self, name: str) -> bool:
        """Serve a run no longer; False if it answers requests now."""
        is_removed = self.pool.remove(name)
        self.catalog.update(self.pool.folders, name)
        return is_removed

    def describe(self, name: str) -> dict[str, Any]:
        """A model as /v1/models lists it."""
        engine = self.pool.loaded().get(name)
        return self.catalog.describe(name, engine.model if engine else None, self.pool.status(name))

    def choose(self, in_path: str | None, in_body: str | None) -> str:
        """The name of the model that a request asks for: in its path, in its body, or the only one there is."""
        name = in_path or in_body
        if in_path and in_body and in_path != in_body:
            raise Refusal(
                400, f"The path names the model {in_path[:80]!r} and the body {in_body[:80]!r}.", param="model"
            )
        names = self.pool.names
        if not names:
            problem = "No model is served yet. Train one on the page Train, or start the server with a run folder."
            raise Refusal(404, problem, code="no_model", param="model")
        if name is None:
            if len(names) > 1:
                known = ", ".join(names)
                raise Refusal(400, f"Several models are served. Set model to one of {known}.", param="model")
            return names[0]
        if name not in names:
            known = ", ".join(names)
            problem = f"There is no model {name[:80]!r}. Served: {known}."
            raise Refusal(404, problem, code="model_not_found", param="model")
        return name

    def choose_for(self, request: Request, body: Body) -> str:
        return self.choose(request.path_params.get("model_name"), body.model)

    def lease_for(self, request: Request, body: Body) -> AbstractAsyncContextManager[Lease]:
        return self.lease(self.choose_for(request, body))

    async def compute(self, function: Callable[[X], T], argument: X, size: int) -> T:
        """Call a function here, or in a thread if its argument is large, since other requests wait meanwhile."""
        return function(argument) if size < LARGE else await self.in_thread(function, argument)

    async def in_thread(self, function: Callable[[X], T], argument: X) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._waiters, function, argument)

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncIterator[Lease]:
        """The engine of a model, which is loaded first if necessary."""
        if self.is_draining:
            raise Refusal(503, "The server is shutting down.", code="draining", retry_after=30)
        context = self.pool.lease(name)
        entering = self._waiters.submit(context.__enter__)
        try:
            engine = await asyncio.wrap_future(entering)
        except asyncio.CancelledError:  # the model is loaded all the same; give it back then
            if not entering.cancel():
                entering.add_done_callback(lambda done: done.exception() or context.__exit__(None, None, None))
            raise
        try:
            yield Lease(name, engine, self.metrics)
        finally:
            context.__exit__(None, None, None)

    async def run(self, request: Request, work: Coroutine[object, object, T]) -> T:
        """Await work for a client, and cancel it when the client leaves."""
        task = asyncio.ensure_future(work)
        watcher = asyncio.ensure_future(_wait_for_disconnect(request))
        try:
            await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ClientGone
            return task.result()
        finally:
            for other in (task, watcher):
                other.cancel()
            await asyncio.gather(task, watcher, return_exceptions=True)

    async def use(self, request: Request, name: str, work: Callable[[Lease], Awaitable[T]]) -> T:
        """Await work with a model for a client, and cancel it when the client leaves."""

        async def lease_and_work() -> T:
            async with self.lease(name) as lease:
                return await work(lease)

        return await self.run(request, lease_and_work())

    async def call(self, request: Request, name: str, function: Callable[[TextModel], T]) -> T:
        """Call a function with a model on its thread, for a client."""
        return await self.use(request, name, lambda lease: lease.call(function))

    def close(self, drain_seconds: float) -> None:
        if self.jobs is not None:
            self.jobs.close()
        self.pool.close(drain_seconds)
        self._waiters.shutdown(wait=False, cancel_futures=True)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


# ------------------------------------------------------------------------------------------------ generation


class Rows:
    """The generation requests of one client. They share the engine with those of others.

    At most as many as the engine has rows are submitted at a time, so that one client with many prompts does not fill
    the queue. Only the first can be refused because the queue is full; the others wait.
    """

    def __init__(self, lease: Lease, requests: Sequence[GenerationRequest]) -> None:
        self.lease, self.requests = lease, requests
        self.at_once = lease.engine.rows
        self.start = perf_counter()
        self._handles: dict[int, Handle] = {0: lease.engine.submit(requests[0])} if requests else {}
        self._next = len(self._handles)
        self._events: asyncio.Queue[Row | Exception] = asyncio.Queue()
        self._readers: set[asyncio.Task[None]] = set()

    async def events(self) -> AsyncGenerator[Row, None]:
        """The events of all requests as they come. An error of one ends all."""
        unfinished, is_first = len(self.requests), True
        try:
            for row, handle in list(self._handles.items()):
                self._read(row, handle)
            while unfinished:
                self._submit()
                item = await self._events.get()
                if isinstance(item, Exception):
                    raise item
                row, event = item
                if isinstance(event, Finished):
                    unfinished -= 1
                    del self._handles[row]
                    if event.reason == "cancelled":
                        raise EngineClosed
                    if event.error is not None:
                        raise event.error
                elif isinstance(event, TokenEvent) and is_first:
                    is_first = False
                    seconds = self.lease.metrics.first_token_seconds.labels(self.lease.name)
                    seconds.observe(perf_counter() - self.start)
                yield item
        finally:
            self.cancel()

    def cancel(self) -> None:
        """End all requests that have not finished."""
        for handle in self._handles.values():
            handle.cancel()
        for reader in self._readers:
            reader.cancel()

    def _submit(self) -> None:
        """Submit as many further requests as may run now."""
        while self._next < len(self.requests) and len(self._handles) < self.at_once:
            try:
                handle = self.lease.engine.submit(self.requests[self._next])
            except QueueFull:
                if self._handles:
                    return
                raise
            self._handles[self._next] = handle
            self._read(self._next, handle)
            self._next += 1

    def _read(self, row: int, handle: Handle) -> None:
        async def read() -> None:
            try:
                async for event in handle:
                    self._events.put_nowait((row, event))
            except Exception as error:
                self._events.put_nowait(error)

        reader = asyncio.ensure_future(read())
        self._readers.add(reader)
        reader.add_done_callback(self._readers.discard)


# ------------------------------------------------------------------------------------------------ errors


def explain(error: Exception) -> Refusal:
    """What the client is told of an error. Problems of the server itself are logged, and nothing of them is told."""
    match error:
        case Refusal():
            return error
        case QueueFull():
            return Refusal(429, str(error), code="queue_full", retry_after=error.retry_after)
        case MemoryBusy():
            return Refusal(503, str(error), code="memory_busy", retry_after=error.retry_after)
        case EngineClosed():
            return Refusal(503, str(error), code="unloaded", retry_after=1)
        case Unsupported():
            return Refusal(400, as_keywords(str(error)), code="unsupported")
        case InvalidSetting():
            return Refusal(400, as_keywords(str(error)), code="invalid_value", param=error.key or None)
        case OutOfMemory():
            return Refusal(503, "The server has not enough memory for this.", code="out_of_memory", retry_after=10)
        case RunError() | MissingFile() | CannotWrite() | MissingDependency():
            logger.error("a model cannot be used: %s", error)
            return Refusal(503, "The model cannot be used. The server's log says why.", code="model_error")
        case UnknownName() | NextwordError():
            return Refusal(400, as_keywords(str(error)), code="invalid_value")
    log_without_values(error)
    return Refusal(500, "Internal error. The server's log has the place.", code="internal_error")


def log_without_values(error: BaseException) -> None:
    """Log where an unexpected error happened. Its message is left out, since it may quote a text."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    logger.error("unexpected %s\n%s", type(error).__name__, frames)
