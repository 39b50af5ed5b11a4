"""The engine: one thread owns a model and serves many requests side by side, token by token.

    submit ──▶ queue ──read the prompt, chunk by chunk──▶ batch ──step for all rows──▶ choose, row by row ──▶ Handle

A turn of the thread: drop what was cancelled, run one of the other calls, read about CHUNK tokens of the prompts that
wait longest, and advance every row by one token. Rows join the batch as soon as their prompts are read, and leave it as
soon as they end. Prompts are read from where the prefix cache ends.

Other calls (vectors, labels, scores) share batches: items that wait for the same function are computed together. A call
that takes long is interrupted after each of its slices (core/slices.py), for a turn in which everything else goes on:

    turn   turn   turn                                  turn          short calls run between the slices of a long one;
    long call  ├ slice ┤ turn ├ slice ┤ turn ├ slice ┤  end           long calls wait for each other

What a row is given depends only on the row: its own state, its own rules and its own generator of random numbers
(`TokenChooser`, which puts rows of equal settings together, so that choosing costs little). A batch of another size may
round sums differently, in the last bits of a float32. Decoders of at least 20 million weights on a CPU do not: the
kernel (kernels/cpu_decode.py) computes each row as if it were alone.

Some networks cannot join states of unequal lengths (T5, GLM, seq2seq: `can_join`). Whoever waits then starts together
in a batch of their own, beside the batches that run. Beam searches with equal settings also start together.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Any, Literal, TypeVar

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from nextword.core.errors import invalid
from nextword.core.slices import interruptible
from nextword.core.types import Beam, Contrastive, Decoding, Guess, Inputs, Piece, Sample, State, Stop
from nextword.lm.base import TextModel
from nextword.lm.causal import CausalLM
from nextword.lm.generation_mixin import Continuation, GenerationMixin
from nextword.server.prefix_cache import PrefixCache
from nextword.server.requests import (
    EngineClosed,
    EngineStats,
    Event,
    Finished,
    GenerationRequest,
    PromptScores,
    QueueFull,
    TokenEvent,
    TokenScore,
    Top,
)

CHUNK = 512  # tokens of prompts that are read between two steps, and at once
SMALL = 8_000_000  # weights; a network with fewer computes in the engine's thread alone
GPU_SLICE = 8192  # tokens of a call that a GPU computes at once; a CPU computes CHUNK,
SLICE_WEIGHTS = 16e9  # or, while texts are generated, so many tokens × weights: some tenths of a second on two cores,
MIN_SLICE = 32  # but never fewer tokens
MAX_ITEMS = 256  # of calls that are computed together
NO_NESTED_CALLS = 2  # a call may interrupt another one, but not a third
SCORED_ROWS = 64  # distributions over the vocabulary held at once while a prompt is scored

T = TypeVar("T")
X = TypeVar("X")


# ------------------------------------------------------------------------------------------------ what a caller holds


class Handle:
    """The events of one request, for one reader: `for event in handle` or `async for event in handle`.

    The last event is `Finished`. Any thread may cancel.
    """

    def __init__(self, request: GenerationRequest, on_cancel: Callable[[], None]) -> None:
        self.request, self._on_cancel = request, on_cancel
        self._events: deque[Event] = deque()
        self._arrived = threading.Condition()
        self._wake: Callable[[], object] | None = None  # resumes a reader in an event loop
        self.is_cancelled = self.is_finished = False  # finished: `Finished` has been put,
        self._is_over = False  # and taken

    def cancel(self) -> None:
        """End the request at the next turn: `Finished("cancelled")` follows. Does nothing after the end."""
        self.is_cancelled = True
        self._on_cancel()

    def put(self, event: Event) -> None:
        """For the engine: deliver an event."""
        with self._arrived:
            self._events.append(event)
            self.is_finished = isinstance(event, Finished)
            wake, self._wake = self._wake, None
            self._arrived.notify()
        if wake is not None:
            try:
                wake()
            except RuntimeError:  # the reader's loop is closed
                self.cancel()

    def __iter__(self) -> Iterator[Event]:
        while not self._is_over:
            with self._arrived:
                while not self._events:
                    self._arrived.wait()
                event = self._take()
            yield event

    async def __aiter__(self) -> AsyncIterator[Event]:
        loop = asyncio.get_running_loop()
        while not self._is_over:
            arrived = asyncio.Event()
            with self._arrived:
                event = self._take() if self._events else None
                if event is None:
                    self._wake = partial(loop.call_soon_threadsafe, arrived.set)
            if event is None:
                await arrived.wait()
            else:
                yield event

    def _take(self) -> Event:
        event = self._events.popleft()
        self._is_over = isinstance(event, Finished)
        return event


# ------------------------------------------------------------------------------------------------ what the thread holds


class _Row:
    """A request in progress."""

    def __init__(self, handle: Handle, text: Continuation) -> None:
        self.handle, self.request, self.text = handle, handle.request, text
        self.ids: list[int] = []  # generated so far
        self.cached = 0
        self.began = time.monotonic()

    @property
    def is_searched(self) -> bool:
        """Whether its tokens are not chosen one after the other from the model's distribution."""
        return isinstance(self.request.decoding, (Beam, Contrastive))


class _Group:
    """Rows of a batch with equal settings, in the chooser's order."""

    def __init__(self, settings: Decoding, row: _Row) -> None:
        self.settings, self.chooser, self.rows = settings, row.text.make_chooser(), [row]

    def join(self, row: _Row) -> None:
        self.chooser.join(row.text.make_chooser())
        self.rows.append(row)

    def keep(self, rows: set[_Row]) -> None:
        kept = [i for i, row in enumerate(self.rows) if row in rows]
        if len(kept) < len(self.rows):
            self.rows = [self.rows[i] for i in kept]
            self.chooser.take(kept)


class _Batch:
    """Rows that step together."""

    def __init__(self, network: Any, rows: list[_Row], last: Tensor, state: State) -> None:
        self.network, self.rows, self.last, self.state = network, rows, last, state
        self.groups: list[_Group] = []
        for row in rows:
            self._add_to_group(row)

    def _add_to_group(self, row: _Row) -> None:
        settings = row.text.decoding
        if isinstance(settings, Sample):
            settings = replace(settings, seed=None)
        for group in self.groups:
            if group.settings == settings:
                return group.join(row)
        self.groups.append(_Group(settings, row))

    def join(self, other: _Batch) -> None:
        """Take over the rows of another batch; both have stepped as often as their texts are long."""
        self.state = self.network.join([self.state, other.state])
        self.last = torch.cat([self.last, other.last])
        self.rows += other.rows
        for group in other.groups:
            for own in self.groups:
                if own.settings == group.settings:
                    own.chooser.join(group.chooser)
                    own.rows += group.rows
                    break
            else:
                self.groups.append(group)

    def keep(self, rows: set[_Row]) -> None:
        """Continue with these rows only. Rows from the end take the places that become free."""
        count = len(rows)
        if count == len(self.rows):
            return
        moving = [i for i in range(count, len(self.rows)) if self.rows[i] in rows]
        order = [i if self.rows[i] in rows else moving.pop() for i in range(count)]
        self.rows = [self.rows[i] for i in order]
        for group in self.groups:
            group.keep(rows)
        self.groups = [group for group in self.groups if group.rows]
        if order:
            index = torch.tensor(order, device=self.last.device)
            self.last, self.state = self.last[index], self.network.take(self.state, index)

    @torch.no_grad()
    def step(self, fail: Callable[[_Row, Exception], None]) -> Iterator[tuple[_Row, int, float, Top]]:
        """One more token for every row: its id, its log p, and the likeliest tokens if the request wants them.

        `fail` is called for rows among which no token can be chosen.
        """
        log_probs, self.state = self.network.step(self.last, self.state)
        place = {row: i for i, row in enumerate(self.rows)}
        inputs = self.last.clone()
        for group in self.groups:
            at = [place[row] for row in group.rows]
            index = torch.tensor(at, device=log_probs.device)
            own = log_probs if at == list(range(len(log_probs))) else log_probs[index]
            try:
                chosen, tokens = group.chooser.choose(own)
            except Exception as error:
                for row in group.rows:
                    fail(row, error)
                continue
            inputs[index] = chosen.to(inputs)
            counts = [row.request.top for row in group.rows]
            tops = likeliest(own, tokens, counts) if any(counts) else [()] * len(at)
            for row, (id, log_prob), top in zip(group.rows, tokens, tops, strict=True):
                yield row, id, log_prob, top
        self.last = inputs


class _Reading:
    """A prompt that is being read, for a request or for a call that needs the state after it."""

    def __init__(self, ids: Sequence[int], scored: int | None = None) -> None:
        self.ids, self.scored = ids, scored  # scored: how many of the likeliest tokens to report; None: no scores
        self.at = 0  # tokens of the prompt behind `last`
        self.cached = 0
        self.last: Any = None  # the token to feed next (1,), and the state before it
        self.state: State = None
        self.scores: list[TokenScore] = []

    @property
    def is_done(self) -> bool:
        return self.last is not None and self.at == len(self.ids)


class _Lookup:
    """A call that needs the state after a prompt."""

    def __init__(self, ids: Sequence[int], function: Callable[[Tensor, State], Any]) -> None:
        self.ids, self.function, self.future = ids, function, Future[Any]()


class _Call:
    """Items that wait for a function. Its future is pending until all of them are done, so that it can be cancelled."""

    def __init__(
        self, function: Callable[..., Sequence[Any]], items: Sequence[Any], sizes: Sequence[int], is_single: bool
    ) -> None:
        self.function, self.items, self.sizes, self.is_single = function, items, sizes, is_single
        self.future = Future[Any]()  # of the results, or of the only one
        self.results: list[Any] = []
        self.taken = 0  # items that have been handed over
        self.is_over = False

    @property
    def is_cancelled(self) -> bool:
        return self.future.cancelled()

    def waiting(self) -> Iterator[tuple[_Call, int]]:
        """This call with the index of each item that has not been handed over."""
        return ((self, i) for i in range(self.taken, len(self.items)))


def _in_turn(calls: Sequence[_Call]) -> Iterator[tuple[_Call, int]]:
    """The waiting items of several calls, one of each call in turn."""
    for column in zip_longest(*(call.waiting() for call in calls)):
        yield from (item for item in column if item is not None)


class _Abandoned(Exception):
    """All clients of a call have left."""


class _Search:
    """Requests that are served by a search of their own, step by step."""

    def __init__(self, rows: list[_Row], steps: Iterator[list[tuple[_Row, Piece]]]) -> None:
        self.rows, self.steps = rows, steps


def likeliest(log_probs: Tensor, tokens: Sequence[tuple[int, float]], counts: Sequence[int]) -> list[Top]:
    """For each row of (B, V), its likeliest ids with log p; at the end its own token, if it is not among them."""
    best = log_probs.topk(min(max(counts), log_probs.shape[-1]), dim=-1)
    tops: list[Top] = []
    for ids, values, token, count in zip(best.indices.tolist(), best.values.tolist(), tokens, counts, strict=True):
        top = tuple(zip(ids[:count], values[:count], strict=True))
        tops.append(top if not count or token[0] < 0 or token[0] in ids[:count] else (*top, token))
    return tops


# ------------------------------------------------------------------------------------------------ the engine


class Engine:
    """Serve one model from a thread of its own.

    rows          requests that generate side by side
    queue         requests and calls that may wait; one more raises QueueFull
    prefix_bytes  memory for the states after earlier prompts; 0: none
    """

    def __init__(self, model: TextModel, rows: int = 32, queue: int = 256, prefix_bytes: int = 64 << 20) -> None:
        self.model, self.rows, self.queue = model, rows, queue
        self.prefixes = PrefixCache(model.network, prefix_bytes)
        self._changed = threading.Condition()  # guards what other threads see: the next five, and `_open`
        self._waiting: deque[_Row] = deque()
        self._lookups: deque[_Lookup] = deque()
        self._calls: deque[_Call] = deque()
        self._is_closing = self._is_stopped = False
        self._open = 0  # requests and calls that are not over
        self._has_cancelled = False  # since the last turn
        # Of the thread alone
        self._weights: int = sum(weight.numel() for weight in model.network.parameters())
        self._reading: tuple[_Reading, _Row | _Lookup] | None = None
        self._batches: list[_Batch] = []
        self._searches: list[_Search] = []
        self._seconds = 1.0  # that a request takes, on average
        self._finished = self._cancelled = self._failed = self._steps = self._tokens = 0
        self._prompt_tokens = self._cached_tokens = 0
        self._thread = threading.Thread(target=self._run, name=f"engine {model.name}", daemon=True)
        self._thread.start()

    # -------------------------------------------------------------------------------------------- for other threads

    def submit(self, request: GenerationRequest) -> Handle:
        """Queue a request. Raises QueueFull, EngineClosed, and the errors of `lm.generate` for impossible settings."""
        handle = Handle(request, self._on_cancel)
        row = _Row(handle, self._begin(request))
        with self._changed:
            self._admit()
            self._waiting.append(row)
        return handle

    def _begin(self, request: GenerationRequest) -> Continuation:
        model = self.model
        if not isinstance(model, GenerationMixin):
            raise model.unsupported("generate")
        if request.top < 0:
            raise invalid("top", request.top, "must be 0 or more tokens.")
        if request.prompt_top is not None and (model.is_seq2seq or request.prompt_top < 0):
            raise invalid("prompt_top", request.prompt_top, "must be 0 or more tokens, of a prompt that is continued.")
        if request.top and isinstance(request.decoding, (Beam, Contrastive)):
            raise invalid("top", request.top, "needs greedy decoding or sampling.")
        if (request.source is None) == model.is_seq2seq:
            expected = "must be a text: the model generates from it." if model.is_seq2seq else "is not for this model."
            raise invalid("source", request.source, expected)
        prompt = request.prompt if request.source is None else request.source
        return model.begin(prompt, request.decoding, request.stop, request.overflow)

    def call(self, function: Callable[[TextModel], T], size: int = 0) -> Future[T]:
        """Call a function with the model on the model's thread, between two steps. Raises QueueFull, EngineClosed.

        size   how many tokens it computes, about. If they are more than a slice, shorter calls may interrupt it.
        """
        return self._enqueue(_Call(lambda model, _: [function(model)], [None], [size], is_single=True))

    def map(
        self,
        function: Callable[[TextModel, Sequence[X]], Sequence[T]],
        items: Sequence[X],
        sizes: Sequence[int] | None = None,
    ) -> Future[list[T]]:
        """Like `call`, with the results of a function for many items, which may be computed with those of other calls.

        Items of calls with equal functions are handed over together, one of each call in turn, as many as have at most
        a slice's tokens. An error that only some calls cause is the error of those alone.

        sizes   how many tokens each item has, about
        """
        return self._enqueue(_Call(function, items, sizes or [0] * len(items), is_single=False))

    def _enqueue(self, call: _Call) -> Future[Any]:
        with self._changed:
            self._admit()
            if call.items:
                self._calls.append(call)
        if not call.items:
            self._end_call(call)
        return call.future

    def next(self, left: str, right: str = "", k: int = 10, tokens: bool = False) -> Future[list[Guess]]:
        """`model.next`, which reads the text from where the prefix cache ends."""
        model = self.model
        if right or not isinstance(model, CausalLM) or "next" not in model.can or not model.network.can_join:
            return self.call(lambda model: model.next(left, right, k, tokens))
        causal = model
        return self.after_prompt(
            causal.tokenizer.encode(left).ids.tolist(),
            lambda last, state: causal.next_after(left, last, state, k, tokens),
        )

    def after_prompt(self, ids: Sequence[int], function: Callable[[Tensor, State], T]) -> Future[T]:
        """Call a function on the model's thread with the state after a prompt, for a network that `can_join`.

        Its arguments are the token to feed next (1,) and the state before it, which it may consume.
        """
        lookup = _Lookup(ids, function)
        with self._changed:
            self._admit()
            self._lookups.append(lookup)
        return lookup.future

    def _admit(self) -> None:
        if self._is_closing:
            raise EngineClosed
        waiting = len(self._waiting) + len(self._calls) + len(self._lookups)
        if waiting >= self.queue:
            raise QueueFull(waiting, max(1.0, waiting * self._seconds / self.rows))
        self._open += 1
        self._changed.notify_all()

    def _on_cancel(self) -> None:
        with self._changed:
            self._has_cancelled = True
            self._changed.notify_all()

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing waits."""
        with self._changed:
            return not self._open

    def num_bytes(self) -> int:
        """Memory of the weights and the prefix cache."""
        weights: int = self.model.network.num_bytes()
        return weights + self.prefixes.num_bytes

    def stats(self) -> EngineStats:
        with self._changed:
            waiting, calls = len(self._waiting), len(self._calls) + len(self._lookups)
        running, reading = len(self._running()), self._reading
        return EngineStats(
            running=running,
            waiting=waiting + (reading is not None),
            calls=calls,
            rows=self.rows,
            queue=self.queue,
            requests=self._finished,
            cancelled=self._cancelled,
            failed=self._failed,
            steps=self._steps,
            tokens=self._tokens,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            prefix_lookups=self.prefixes.lookups,
            prefix_hits=self.prefixes.hits,
            prefix_entries=len(self.prefixes),
            prefix_bytes=self.prefixes.num_bytes,
        )

    def close(self, drain_seconds: float = 0) -> None:
        """Refuse new requests, let the others finish for so long, cancel the rest and end the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.wait_for(lambda: not self._open, timeout=drain_seconds)
            self._is_stopped = True
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # -------------------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        # torch divides an operation among threads that wait for each other. For small networks that gains little, and
        # when something else needs the cores, such as another engine, each wait can take milliseconds.
        torch.get_num_threads()  # torch initializes the number for each thread, on the first occasion
        with threadpool_limits(1 if self._weights < SMALL else None, user_api="openmp"):
            self._serve()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopped or self._has_work())
                if self._is_stopped:
                    break
            self._turn()
        self._end_everything("cancelled", EngineClosed())

    def _has_work(self) -> bool:
        return bool(
            self._has_cancelled
            or self._calls
            or self._lookups
            or self._waiting
            or self._reading
            or self._batches
            or self._searches
        )

    def _turn(self, depth: int = 0) -> None:
        """Advance everything by a little. `depth`: how many calls the turn interrupts."""
        try:
            self._advance_all(depth)
        except Exception as error:  # a bug outside of what the methods below guard
            self._end_everything("error", error)

    def _advance_all(self, depth: int) -> None:
        with self._changed:
            has_cancelled, self._has_cancelled = self._has_cancelled, False
        if has_cancelled:
            self._drop_cancelled()
        if depth < NO_NESTED_CALLS:
            self._run_calls(depth)
        self._read_prompts()
        for batch in list(self._batches):
            self._advance(batch)
        self._batches = [batch for batch in self._batches if batch.rows]
        for search in list(self._searches):
            self._advance_search(search)
        self._searches = [search for search in self._searches if search.rows]

    def _running(self) -> list[_Row]:
        batches = [row for batch in self._batches for row in batch.rows]
        return batches + [row for search in self._searches for row in search.rows]

    # -------------------------------------------------------------------------------------------- calls

    def _run_calls(self, depth: int) -> None:
        """Run the call that waits longest, or as many of its items as a slice holds, with those of other calls.

        depth   how many calls this one interrupts. Only short ones interrupt others.
        """
        with self._changed:
            cancelled = [call for call in self._calls if call.is_cancelled]
            limit = self._slice_tokens() if depth else None
            batch = self._take_items(limit)
        for call in cancelled:
            self._end_call(call)
        if batch:
            self._compute(batch, depth)

    def _slice_tokens(self) -> int:
        """How many tokens of a call are computed between two turns."""
        if self.model.device.type != "cpu":
            return GPU_SLICE
        if not self._weights or not self._running():
            return CHUNK
        return max(MIN_SLICE, min(CHUNK, int(SLICE_WEIGHTS / self._weights)))

    def _take_items(self, limit: int | None) -> list[tuple[_Call, int]]:
        """Take the items to compute now, the first of them not larger than the limit. The calls have the lock.

        A call that has more items goes to the end of the queue, so that it does not hold up calls of other functions.
        """
        calls = [call for call in self._calls if not call.is_cancelled]
        first = next((call for call in calls if limit is None or call.sizes[call.taken] <= limit), None)
        if first is None:
            return []
        sharing = [first, *(call for call in calls if call is not first and call.function == first.function)]
        batch: list[tuple[_Call, int]] = []
        tokens, most = 0, self._slice_tokens()
        for call, i in _in_turn(sharing):
            tokens += call.sizes[i]
            if batch and (tokens > most or len(batch) == MAX_ITEMS):
                break
            batch.append((call, i))
            call.taken = i + 1
        self._calls.remove(first)
        self._calls = deque(call for call in self._calls if call.taken < len(call.items))
        if first.taken < len(first.items):
            self._calls.append(first)
        return batch

    def _compute(self, batch: list[tuple[_Call, int]], depth: int) -> None:
        """Compute items of one or several calls with the same function. Calls that fail together are tried alone."""
        calls = list(dict.fromkeys(call for call, _ in batch))
        try:
            with interruptible(partial(self._interrupt, calls, depth + 1), self._slice_tokens):
                results = calls[0].function(self.model, [call.items[i] for call, i in batch])
            for (call, _), result in zip(batch, results, strict=True):
                call.results.append(result)
        except (_Abandoned, EngineClosed) as error:
            for call in calls:
                self._end_call(call, error)
        except Exception as error:
            if len(calls) == 1:
                self._end_call(calls[0], error)
            else:
                for call in calls:
                    self._compute([(other, i) for other, i in batch if other is call], depth)
            return
        for call in calls:
            if len(call.results) == len(call.items):
                self._end_call(call)

    def _interrupt(self, calls: Sequence[_Call], depth: int) -> None:
        """Between two slices of calls, do what else is to be done."""
        if self._is_stopped:
            raise EngineClosed
        if all(call.is_cancelled for call in calls):
            raise _Abandoned
        if self._has_work():
            with torch.enable_grad():  # the mode of a thread, which the interrupted function may have changed
                self._turn(depth)

    def _end_call(self, call: _Call, error: Exception | None = None) -> None:
        """Deliver the results or the error of a call, unless it is over."""
        if call.is_over:
            return
        call.is_over = True
        with self._changed:
            if call in self._calls:
                self._calls.remove(call)
        if call.future.set_running_or_notify_cancel():
            if error is None:
                call.future.set_result(call.results[0] if call.is_single else call.results)
            else:
                call.future.set_exception(error)
        self._close(1)

    def _close(self, count: int) -> None:
        """Count requests and calls as over."""
        with self._changed:
            self._open -= count
            self._changed.notify_all()

    # -------------------------------------------------------------------------------------------- reading prompts

    def _read_prompts(self) -> None:
        """Read the prompts that wait longest, until CHUNK tokens have been read."""
        room = CHUNK
        while room > 0:
            if self._reading is None and not self._choose_prompt():
                return
            if self._reading is None:  # it is served otherwise
                continue
            reading, reader = self._reading
            try:
                room -= self._read_chunk(reading)
            except Exception as error:
                self._reading = None
                self._fail(reader, error)
                continue
            if reading.is_done:
                self._reading = None
                self._start(reading, reader)

    def _choose_prompt(self) -> bool:
        """Choose the prompt to read next. False: there is none, or no room for it."""
        with self._changed:
            if self._lookups:
                lookup = self._lookups.popleft()
                self._reading = _Reading(lookup.ids), lookup
                return True
            if not self._waiting or len(self._running()) >= self.rows:
                return False
            row = self._waiting.popleft()
            together = [row]
            if row.is_searched or not self.model.network.can_join:
                room = self.rows - len(self._running())
                together += [other for other in self._waiting if _can_start_together(row, other)][: room - 1]
                self._waiting = deque(other for other in self._waiting if other not in together)
        if row.is_searched or not self.model.network.can_join:
            self._start_together(together)
        else:
            scored = row.request.prompt_top
            self._reading = _Reading(row.text.ids, scored), row
        return True

    def _read_chunk(self, reading: _Reading) -> int:
        """Read some of a prompt; returns how many tokens."""
        model: Any = self.model
        if reading.last is None:
            reading.last, reading.state = model.network.start(1)
            # The last token is not read, but fed in the first step
            cached = self.prefixes.find(reading.ids[:-1]) if reading.scored is None else None
            if cached is not None:
                reading.state = cached.state
                reading.last = torch.full_like(reading.last, reading.ids[cached.length])
                reading.at, reading.cached = cached.length + 1, cached.length
        part = reading.ids[reading.at : reading.at + min(CHUNK, model.network.chunk)]
        if not part:
            return 1
        ids = torch.tensor([part], device=reading.last.device)
        if reading.scored is None:
            reading.last, reading.state = model.read_chunk(reading.last, ids, reading.state)
        else:
            reading.last, reading.state = self._score_chunk(reading, ids)
        reading.at += len(part)
        if model.network.can_join:
            self.prefixes.add(reading.ids[: reading.at - 1], reading.state)
        return len(part)

    @torch.no_grad()
    def _score_chunk(self, reading: _Reading, ids: Tensor) -> tuple[Tensor, State]:
        """Read more of a prompt, and append the scores of its tokens."""
        network, state = self.model.network, reading.state
        chunk = torch.cat([reading.last.unsqueeze(1), ids], 1)
        top, own = reading.scored or 0, ids[0]
        if network.has_hidden_states:
            layers, state = network.hidden(Inputs(chunk[:, :-1]), state)
            for h, part in zip(layers[-1][0].split(SCORED_ROWS), own.split(SCORED_ROWS), strict=True):
                reading.scores += score_tokens(network.readout.log_probs(h), part, top)
        elif top:
            for fed, id in zip(chunk[0, :-1].split(1), own.split(1), strict=True):
                log_probs, state = network.step(fed, state)
                reading.scores += score_tokens(log_probs, id, top)
        else:
            log_p, state = network.score(chunk, torch.tensor([chunk.shape[1]], device=ids.device), state)
            reading.scores += map(TokenScore, own.tolist(), log_p[0].tolist())
        return chunk[:, -1], state

    def _start(self, reading: _Reading, reader: _Row | _Lookup) -> None:
        """A prompt has been read: call what waits for its state, or let its row join the others."""
        self._prompt_tokens += len(reading.ids)
        self._cached_tokens += reading.cached
        if isinstance(reader, _Lookup):
            if reader.future.set_running_or_notify_cancel():
                try:
                    reader.future.set_result(reader.function(reading.last, reading.state))
                except Exception as error:
                    reader.future.set_exception(error)
            return self._close(1)
        reader.cached = reading.cached
        if reading.scored is not None:
            reader.handle.put(PromptScores(tuple(reading.scores)))
        if self._is_over_before_it_starts(reader):
            return
        try:
            batch = _Batch(self.model.network, [reader], reading.last, reading.state)
        except Exception as error:
            return self._fail(reader, error)
        self._advance(batch)  # its first token does not wait for the others
        if not batch.rows:
            return
        if not self._batches:
            self._batches = [batch]
            return
        try:
            self._batches[0].join(batch)
        except Exception as error:
            self._fail_batch(self._batches[0], error)
            self._fail_batch(batch, error)

    def _is_over_before_it_starts(self, row: _Row) -> bool:
        if row.handle.is_cancelled:
            self._finish(row, "cancelled")
        elif row.text.reason:  # no tokens were asked for
            self._finish(row, row.text.reason)
        else:
            return False
        return True

    # -------------------------------------------------------------------------------------------- batches

    def _start_together(self, rows: list[_Row]) -> None:
        """Start rows of a network that cannot join them later, or a search."""
        for row in rows:
            self._prompt_tokens += len(row.text.ids)
            if row.request.prompt_top is not None:
                try:
                    self._score_prompt(row)
                except Exception as error:
                    self._fail(row, error)
        rows = [row for row in rows if not row.handle.is_finished and not self._is_over_before_it_starts(row)]
        if not rows:
            return
        if rows[0].is_searched:
            self._searches.append(_Search(rows, self._search(rows)))
            return
        model: Any = self.model
        by_text = {row.text: row for row in rows}
        for group in model.group_texts(list(by_text)):
            members = [by_text[text] for text in group]
            try:
                self._batches.append(_Batch(model.network, members, *model.read(group)))
            except Exception as error:
                for row in members:
                    self._fail(row, error)

    def _score_prompt(self, row: _Row) -> None:
        reading = _Reading(row.text.ids, row.request.prompt_top)
        while not reading.is_done:
            self._read_chunk(reading)
        row.handle.put(PromptScores(tuple(reading.scores)))

    def _advance(self, batch: _Batch) -> None:
        """One token for every row of a batch."""
        self._steps += 1
        try:
            for row, id, log_prob, top in batch.step(self._fail):
                self._emit(row, row.text.add(id, log_prob), top)
            batch.keep({row for row in batch.rows if not row.handle.is_finished})
        except Exception as error:
            self._fail_batch(batch, error)

    def _advance_search(self, search: _Search) -> None:
        self._steps += 1
        try:
            for row, piece in next(search.steps):
                self._emit(row, piece)
            search.rows = [row for row in search.rows if not row.handle.is_finished]
        except Exception as error:
            for row in search.rows:
                self._fail(row, error)
            search.rows = []

    def _search(self, rows: list[_Row]) -> Generator[list[tuple[_Row, Piece]], None, None]:
        """The pieces that each step of a search yields: for contrastive search one, for a beam all at the end."""
        model: Any = self.model
        if isinstance(rows[0].request.decoding, Contrastive):
            for piece in model.stream(rows[0].text):
                yield [(rows[0], piece)]
            return
        steps = model.search([row.text for row in rows])
        while True:
            try:
                next(steps)
            except StopIteration as end:
                yield [(row, piece) for row, pieces in zip(rows, end.value, strict=True) for piece in pieces]
                return
            yield []

    def _emit(self, row: _Row, piece: Piece, top: Top = ()) -> None:
        """Deliver a piece of text, and the end if it is the last."""
        if row.handle.is_finished:
            return
        row.ids += piece.ids
        if piece.ids:
            self._tokens += 1
            if not row.is_searched:
                model: Any = self.model
                piece = model.finish_piece(piece, row.ids, row.text.prompt)
        if piece.ids or piece.text:
            row.handle.put(TokenEvent(piece.ids[0] if piece.ids else None, piece.text, piece.log_prob, top))
        if piece.reason:
            self._finish(row, piece.reason)

    # -------------------------------------------------------------------------------------------- ends

    def _drop_cancelled(self) -> None:
        with self._changed:
            dropped = [row for row in self._waiting if row.handle.is_cancelled]
            self._waiting = deque(row for row in self._waiting if not row.handle.is_cancelled)
        if self._reading is not None and isinstance(self._reading[1], _Row) and self._reading[1].handle.is_cancelled:
            dropped.append(self._reading[1])
            self._reading = None
        dropped += [row for row in self._running() if row.handle.is_cancelled]
        for row in dropped:
            self._finish(row, "cancelled")
        for batch in self._batches:
            try:
                batch.keep({row for row in batch.rows if not row.handle.is_finished})
            except Exception as error:
                self._fail_batch(batch, error)
        for search in self._searches:
            search.rows = [row for row in search.rows if not row.handle.is_finished]
        self._batches = [batch for batch in self._batches if batch.rows]
        self._searches = [search for search in self._searches if search.rows]

    def _finish(self, row: _Row, reason: str, error: Exception | None = None) -> None:
        if row.handle.is_finished:
            return
        self._finished += 1
        if reason == "cancelled":
            self._cancelled += 1
        elif reason == "error":
            self._failed += 1
        else:
            self._seconds += 0.1 * (time.monotonic() - row.began - self._seconds)
        row.handle.put(Finished(_REASONS[reason], error, len(row.ids), row.cached))
        self._close(1)

    def _fail(self, reader: _Row | _Lookup, error: Exception) -> None:
        if isinstance(reader, _Row):
            self._finish(reader, "error", error)
        else:
            if reader.future.set_running_or_notify_cancel():
                reader.future.set_exception(error)
            self._close(1)

    def _fail_batch(self, batch: _Batch, error: Exception) -> None:
        for row in batch.rows:
            self._fail(row, error)
        batch.rows = []

    def _end_everything(self, reason: str, error: Exception) -> None:
        with self._changed:
            rows, lookups, calls = list(self._waiting), list(self._lookups), list(self._calls)
            self._waiting.clear()
            self._lookups.clear()
        if self._reading is not None:
            reader = self._reading[1]
            if isinstance(reader, _Row):
                rows.append(reader)
            else:
                lookups.append(reader)
        rows += self._running()
        self._reading, self._batches, self._searches = None, [], []
        for row in rows:
            self._finish(row, reason, error if reason == "error" else None)
        for lookup in lookups:
            self._fail(lookup, error)
        for call in calls:
            self._end_call(call, error)


_REASONS: dict[str, Literal["stop", "length", "cancelled", "error"]] = {
    "end": "stop",
    "stop": "stop",
    "length": "length",
    "cancelled": "cancelled",
    "error": "error",
}


def _can_start_together(row: _Row, other: _Row) -> bool:
    """Whether two requests of a network that cannot join them later, or two searches, can start together."""
    if not row.is_searched or not other.is_searched:
        return row.is_searched == other.is_searched
    if isinstance(row.request.decoding, Contrastive):
        return False
    return row.text.decoding == other.text.decoding and _without_strings(row) == _without_strings(other)


def _without_strings(row: _Row) -> Stop:
    return replace(row.request.stop, strings=())


def score_tokens(log_probs: Tensor, ids: Tensor, top: int) -> list[TokenScore]:
    """The scores of these ids (T,), each in its own distribution (T, V)."""
    own = log_probs.gather(1, ids.to(log_probs.device).unsqueeze(1)).squeeze(1).tolist()
    tokens = list(zip(ids.tolist(), own, strict=True))
    tops = likeliest(log_probs, tokens, [top] * len(tokens)) if top else [()] * len(tokens)
    return [TokenScore(id, log_prob, best) for (id, log_prob), best in zip(tokens, tops, strict=True)]
