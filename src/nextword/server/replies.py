"""How requests are parsed and answers are sent: strict JSON, error objects, server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from nextword.core.errors import DataError
from nextword.core.io import parse_json, to_json
from nextword.server.security import ClientGone, Receive, Refusal, Scope, Send
from nextword.server.service import Service

PING_SECONDS = 15.0  # of silence in a stream, after which a comment is sent, so that proxies do not end it
SHOWN_MESSAGES = 3  # of the mistakes in a request
MAX_NAME = 80  # characters of the name of a field in a message


class Reply(Response):
    """A JSON value. Infinities become null."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return to_json(content).encode()


async def reply(service: Service, content: object) -> Response:
    """A JSON value that may be large: it is written in a thread, since other requests would wait meanwhile."""
    return await service.in_thread(Reply, content)


def get_service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceOf = Annotated[Service, Depends(get_service)]


class JsonRoute(APIRoute):
    """A route whose body is strict JSON, and whose errors are error objects."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(_JsonRequest(request.scope, request.receive))
            except ClientGone:
                raise
            except Exception as error:
                return refuse(error, get_service(request))

        return answer


class _JsonRequest(Request):
    async def json(self) -> Any:
        """The body. Two equal keys, numbers out of range and halves of surrogate pairs are mistakes, not guesses."""
        body = await self.body()
        try:
            return await get_service(self).compute(_parse, body, len(body))
        except DataError as error:
            raise HTTPException(400, str(error)) from None


def _parse(body: bytes) -> Any:
    return parse_json(body, "the body", remedy="Correct the request.")


def refuse(error: Exception, service: Service) -> Response:
    """The answer to a request that cannot be fulfilled."""
    match error:
        case RequestValidationError():
            refusal = explain_validation(error)
        case HTTPException():
            refusal = Refusal(error.status_code, str(error.detail), headers=error.headers)
        case _:
            refusal = service.explain(error)
    return Reply(refusal.content, refusal.status, refusal.headers)


def explain_validation(error: RequestValidationError) -> Refusal:
    """Which fields are wrong, and what was expected. The values are left out: they may be long, or secret."""
    problems: dict[str, str] = {}
    for problem in error.errors():
        path, *_ = [part[:MAX_NAME] for part in problem["loc"][1:] if isinstance(part, str)][:1] or ["body"]
        problems.setdefault(path, problem["msg"])
    shown = [f"{name}: {message}" for name, message in list(problems.items())[:SHOWN_MESSAGES]]
    return Refusal(400, "; ".join(shown) + ".", code="invalid_value", param=next(iter(problems), None))


STREAMS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "The answer; with stream, server-sent events."}
}


class EventStream(Response):
    """Server-sent events: JSON objects, then [DONE]. An error on the way is one of the objects.

    When the client leaves, the generator is closed, and with it what it waits for. `stack` is closed in any case.
    """

    media_type = "text/event-stream"

    def __init__(self, service: Service, objects: AsyncIterator[dict[str, Any]], stack: AsyncExitStack) -> None:
        super().__init__(headers={"x-accel-buffering": "no"})
        self.service, self.objects, self.stack = service, objects, stack
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self.stack:
            sender = asyncio.ensure_future(self._send_all(send))
            watcher = asyncio.ensure_future(_disconnected(receive))
            try:
                await asyncio.wait({sender, watcher}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (sender, watcher):
                    task.cancel()
                await asyncio.gather(sender, watcher, return_exceptions=True)

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

        async def send_part(text: str) -> None:
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

        try:
            await _with_pings(self.objects, lambda value: send_part(f"data: {to_json(value)}\n\n"), send_part)
            await send_part("data: [DONE]\n\n")
        except Exception as error:
            await send_part(f"data: {to_json(self.service.explain(error).content)}\n\n")
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _with_pings(
    objects: AsyncIterator[dict[str, Any]],
    on_object: Callable[[dict[str, Any]], Awaitable[None]],
    on_ping: Callable[[str], Awaitable[None]],
) -> None:
    """Send all objects, and a comment after each silence."""
    following: asyncio.Future[dict[str, Any]] | None = None
    try:
        while True:
            following = following or asyncio.ensure_future(anext(objects))
            done, _ = await asyncio.wait({following}, timeout=PING_SECONDS)
            if not done:
                await on_ping(": ping\n\n")
                continue
            try:
                value = following.result()
            except StopAsyncIteration:
                return
            following = None
            await on_object(value)
    finally:
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
