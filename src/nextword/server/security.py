"""What every request passes before a route sees it: limits on connections, hosts, keys, types, sizes and times.

    connection ──TimedProtocol──▶ headers ──Guard──▶ Host, key, JSON, size, time ──▶ route ──Guard──▶ time ──▶ client

A server on loopback must expect attacks from the browser: any page can send requests to 127.0.0.1. What stops them:

- The Host header must name the loopback: a page cannot reach the server under a name of its own (DNS rebinding).
- Bodies must be declared as JSON, which a page of another origin cannot do without a preflight request (CORS).
- There are no CORS headers unless an origin was allowed, so a page of another origin cannot read an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from nextword.core.errors import InvalidSetting
from nextword.core.io import to_json

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY = 8 << 20  # bytes of a request
MAX_BUFFERED = 256 << 20  # bytes of all requests that are being read or answered
MAX_CONNECTIONS = 512  # a process may usually open 1,024 files
MAX_HEADERS = 64 << 10  # bytes of a request's headers
HEADER_SECONDS = 10.0  # from a connection, or from the first byte of a further request, to the end of its headers
BODY_SECONDS = 30.0  # from the headers to the end of the body
SEND_SECONDS = 60.0  # for a client that has fallen behind to take what waits for it
DISCARD_SECONDS = 2.0  # how long a refused body is read, so that the client sees the answer rather than a reset
OPEN_PATHS = ("/", "/health", "/version", "/openapi.json", "/docs")  # need no key: they tell nothing of models or use
OPEN_FOLDER = "/web/"  # nor do the files of the playground
CONTENT_POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {
    b"content-security-policy": CONTENT_POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Access:
    """Who may use the server."""

    host: str = "127.0.0.1"
    key: str = ""
    origins: tuple[str, ...] = ()  # other origins whose pages may use it (CORS)

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.key:
            raise InvalidSetting(
                f"--host {self.host} can be reached from other machines, so it needs a key. Add --api-key KEY, or set "
                "NEXTWORD_API_KEY.",
                key="api_key",
            )
        if self.key and not (self.key.isascii() and self.key.isprintable() and " " not in self.key):
            raise InvalidSetting("--api-key must consist of printable ASCII characters without spaces.", key="api_key")

    @property
    def hosts(self) -> frozenset[str] | None:
        """Names that the Host header may have; None: any, since the key protects the server."""
        return frozenset({*LOOPBACK, self.host.lower()}) if is_loopback(self.host) else None

    def has_key(self, authorization: bytes) -> bool:
        """Whether an Authorization header has the key; the time it takes does not depend on where they differ."""
        return not self.key or hmac.compare_digest(authorization, b"Bearer " + self.key.encode())


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def host_name(header: str) -> str:
    """The name in a Host header, without its port: "[::1]:8000" → "::1"."""
    name = header.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0].removesuffix(".")


# ------------------------------------------------------------------------------------------------ errors

ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 408: "timeout_error", 429: "rate_limit_error"}


class Refusal(Exception):
    """A request that is not answered, with the status and what the error object says."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: float = 0,  # seconds
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.headers = dict(headers or {})
        if retry_after:
            self.headers["retry-after"] = str(max(1, round(retry_after)))
        if status == 401:
            self.headers["www-authenticate"] = "Bearer"

    @property
    def content(self) -> dict[str, Any]:
        """The error object of OpenAI's API, which all routes use."""
        kind = ERROR_TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


# ------------------------------------------------------------------------------------------------ requests


class Guard:
    """ASGI middleware: refuse what must not reach a route, and add the security headers to every answer."""

    def __init__(self, app: App, access: Access) -> None:
        self.app, self.access = app, access
        self.buffered = 0  # bytes of bodies in memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        send, incoming = _with_headers(send), _Incoming(receive)
        held = 0
        try:
            headers = {name: value for name, value in reversed(scope["headers"])}  # the first of several counts
            self._check_access(scope, headers)
            body = b""
            if scope["method"] in ("POST", "PUT", "PATCH", "DELETE"):
                incoming.is_complete = not ({b"content-length", b"transfer-encoding"} & headers.keys())
                self._check_body(headers)
                body = await incoming.read()
            held = len(body)
            self.buffered += held
            await self.app(scope, _replay(body, receive), send)
        except Refusal as refusal:
            await incoming.discard()
            await send_refusal(send, refusal)
        except ClientGone:
            pass  # nobody is there to be told
        finally:
            self.buffered -= held

    def _check_access(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        hosts = self.access.hosts
        if hosts is not None and host_name(headers.get(b"host", b"").decode("latin-1")) not in hosts:
            raise Refusal(403, "The Host header must name this machine: localhost or 127.0.0.1.", code="host_refused")
        is_preflight = scope["method"] == "OPTIONS" and b"access-control-request-method" in headers
        is_open = scope["path"] in OPEN_PATHS or scope["path"].startswith(OPEN_FOLDER)
        if is_open or is_preflight or self.access.has_key(headers.get(b"authorization", b"")):
            return
        raise Refusal(401, "Send the API key: Authorization: Bearer KEY.", code="invalid_api_key")

    def _check_body(self, headers: dict[bytes, bytes]) -> None:
        kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refusal(415, "The body must be JSON: Content-Type: application/json.", code="content_type")
        length = headers.get(b"content-length", b"0").decode("latin-1")
        if length.isdecimal() and int(length) > MAX_BODY:
            raise _too_large()
        if self.buffered > MAX_BUFFERED:
            raise Refusal(503, "The server has too many large requests. Try again later.", retry_after=5)


class ClientGone(Exception):
    """The client has closed the connection."""


class _Incoming:
    """The body of a request while it arrives."""

    def __init__(self, receive: Receive) -> None:
        self.receive = receive
        self.is_complete = True  # nothing is left to read

    async def read(self) -> bytes:
        """The whole body, counted while it arrives: a chunked one has no length to check before."""
        parts, size = [], 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while not self.is_complete:
                    part = await self._read_part()
                    size += len(part)
                    if size > MAX_BODY:
                        raise _too_large()
                    parts.append(part)
        except TimeoutError:
            raise Refusal(408, f"The body did not arrive within {BODY_SECONDS:.0f} seconds.", code="timeout") from None
        return b"".join(parts)

    async def discard(self) -> None:
        """Read what a refused client still sends, for a moment; it may listen only after it has sent everything."""
        with contextlib.suppress(TimeoutError, ClientGone):
            async with asyncio.timeout(DISCARD_SECONDS):
                while not self.is_complete:
                    await self._read_part()

    async def _read_part(self) -> bytes:
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        self.is_complete = not message.get("more_body", False)
        part: bytes = message.get("body", b"")
        return part


def _too_large() -> Refusal:
    return Refusal(413, f"The body has more than {MAX_BODY >> 20} MB, the limit.", code="body_too_large")


def _replay(body: bytes, receive: Receive) -> Receive:
    """A receive function for a body that has been read already; then that of the connection, which ends some time."""
    is_replayed = False

    async def replay() -> Message:
        nonlocal is_replayed
        if is_replayed:
            return await receive()
        is_replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _with_headers(send: Send) -> Send:
    """A send function that adds the security headers."""

    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message.get("headers", ())}
            added = [(name, value) for name, value in HEADERS.items() if name not in present]
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await send(message)

    return add


async def send_refusal(send: Send, refusal: Refusal) -> None:
    body = to_json(refusal.content).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    pairs = [(name.encode(), value.encode()) for name, value in (headers | refusal.headers).items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


# ------------------------------------------------------------------------------------------------ connections


class TimedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 with limits on connections, on the time of headers, and on clients that do not read."""

    _deadline: asyncio.TimerHandle | None = None  # for the headers of a request
    _reading_deadline: asyncio.TimerHandle | None = None  # for the client to read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # asyncio does so only for sockets that name their protocol; without it, a client waits 40 ms for an answer in
        # two parts (Nagle's algorithm, and its delayed acknowledgment).
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        else:
            self._start_deadline()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:  # a part of the headers
            self._start_deadline()
        else:
            self._stop_deadline()

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        super().pause_writing()
        if self._reading_deadline is None:
            self._reading_deadline = self.loop.call_later(SEND_SECONDS, self._reset)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_reading_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        self._stop_reading_deadline()
        super().connection_lost(exc)

    def _reset(self) -> None:
        """Close the connection at once. Otherwise the kernel would keep what the client does not read."""
        connection = self.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _stop_reading_deadline(self) -> None:
        if self._reading_deadline is not None:
            self._reading_deadline.cancel()
            self._reading_deadline = None

    def _start_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def parse_origins(origins: Iterable[str]) -> tuple[str, ...]:
    """The origins of --cors: scheme, name and port. A wildcard would open the server to every page."""
    parsed = tuple(origin.rstrip("/") for origin in origins)
    for origin in parsed:
        scheme, separator, rest = origin.partition("://")
        if scheme not in ("http", "https") or not separator or not rest or set(rest) & set("/*?# "):
            raise InvalidSetting(
                f"--cors {origin}: expected an origin, such as https://example.org or http://localhost:3000.",
                key="cors",
                value=origin,
            )
    return parsed
