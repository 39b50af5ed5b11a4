"""What strangers can send, and clients that misbehave: refused or cancelled, and the server goes on."""

from __future__ import annotations

import json
import logging
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nextword.core.errors import InvalidSetting
from nextword.server import native_routes, security
from nextword.server.engine import Engine
from nextword.server.security import Access, host_name, parse_origins
from tests.support.running_server import KEY, PATIENCE, Running, eventually, held, run_server

PATH = "/m/lstm/v1/completions"
LONG = {"prompt": "the king", "max_tokens": 8192, "ignore_eos": True}  # takes a while


def is_alive(server: Running) -> bool:
    return bool(server.client.get("/health").json()["status"] == "ok")


def connect(server: Running, buffer: int = 0) -> socket.socket:
    """A connection; `buffer`: bytes that the client takes without reading."""
    host, _, port = server.address.removeprefix("http://").partition(":")
    connection = socket.socket()
    connection.settimeout(PATIENCE)
    if buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.connect((host, int(port)))
    return connection


def raw_request(path: str, body: object, **headers: str) -> bytes:
    content = json.dumps(body).encode()
    lines = {
        "host": "localhost",
        "content-type": "application/json",
        "content-length": str(len(content)),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + content


def read_all(connection: socket.socket) -> bytes:
    """What the server sends until it closes the connection."""
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


# ------------------------------------------------------------------------------------------------ hosts and browsers


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:9", "[::1]:8000", "localhost."])
def test_loopback_names_are_accepted(server: Running, host: str) -> None:
    assert server.client.get("/v1/models", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::2]", "0"]
)
def test_other_hosts_are_refused(server: Running, host: str) -> None:
    answer = server.client.get("/v1/models", headers={"host": host})
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "host_refused"


def test_host_names_are_parsed() -> None:
    assert [host_name(text) for text in ("a:1", "[::1]:2", " A. ", "[::1]", "")] == ["a", "::1", "a", "::1", ""]


@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json"]
)
def test_bodies_must_be_declared_as_json(server: Running, kind: str | None) -> None:
    headers = {} if kind is None else {"content-type": kind}
    answer = server.client.post(PATH, content=b'{"prompt": "x"}', headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "content_type")


def test_charset_of_json_may_be_named(server: Running) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    content = b'{"prompt": "x", "max_tokens": 1}'
    assert server.client.post(PATH, content=content, headers=headers).status_code == 200


def test_other_origins_get_no_permission(server: Running) -> None:
    preflight = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    answers = [
        server.client.options(PATH, headers=preflight),
        server.client.get("/v1/models", headers={"origin": "https://evil.example"}),
    ]
    for answer in answers:
        assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answers[0].status_code == 405


def test_allowed_origins_may_use_the_server(server: Running) -> None:
    friend = "https://friend.example"
    access = Access(key=KEY, origins=parse_origins([friend + "/"]))
    with run_server({"lstm": server.folders["lstm"]}, access=access) as open_server:
        for origin, allowed in ((friend, friend), ("https://evil.example", None)):
            headers = {"origin": origin, "access-control-request-method": "POST"}
            answer = open_server.client.options(PATH, headers=headers)
            assert answer.headers.get("access-control-allow-origin") == allowed
            answer = open_server.client.get("/v1/models", headers={"origin": origin, "authorization": ""})
            assert answer.status_code == 401
            assert answer.headers.get("access-control-allow-origin") == allowed  # so that the page can read the error


@pytest.mark.parametrize("origin", ["*", "https://*.example", "friend.example", "https://", "ftp://a", "https://a/b"])
def test_origins_without_a_name_are_refused(origin: str) -> None:
    with pytest.raises(InvalidSetting):
        parse_origins([origin])


def test_every_answer_has_the_security_headers(server: Running) -> None:
    for answer in (
        server.client.get("/health"),
        server.client.get("/nope"),
        server.client.get("/docs"),
        server.client.get("/v1/models", headers={"host": "evil.example"}),
        server.client.post(PATH, json={"nope": 1}),
        server.client.post(PATH, json={"prompt": "x", "max_tokens": 1, "stream": True}),
    ):
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "server" not in answer.headers


# ------------------------------------------------------------------------------------------------ keys


def test_key_is_needed(server: Running) -> None:
    with run_server({"lstm": server.folders["lstm"]}, access=Access(key=KEY)) as locked:
        body = {"prompt": "x", "max_tokens": 1}
        assert locked.post("/v1/completions", body)["model"] == "lstm"
        for value in ("", "Bearer", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", KEY, f"Basic {KEY}", f"Bearer  {KEY}"):
            for path in ("/v1/models", "/metrics", "/tokenizer_info", "/nope"):
                answer = locked.client.get(path, headers={"authorization": value})
                assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error"), value
                assert answer.headers["www-authenticate"] == "Bearer"
        for path in ("/health", "/version", "/openapi.json", "/docs"):
            assert locked.client.get(path, headers={"authorization": ""}).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_other_machines_need_a_key(host: str) -> None:
    with pytest.raises(InvalidSetting) as error:
        Access(host)
    assert error.value.key == "api_key"
    assert Access(host, KEY).hosts is None  # the key protects the server, under any name


@pytest.mark.parametrize("key", ["with space", "ümlaut", "line\nend"])
def test_keys_that_no_header_can_carry_are_refused(key: str) -> None:
    with pytest.raises(InvalidSetting):
        Access(key=key)


# ------------------------------------------------------------------------------------------------ bodies


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\x00",
        b"\xff\xfe",
        b"nonsense",
        b"null",
        b"[]",
        b'"text"',
        b"7",
        b'{"prompt": NaN}',
        b'{"prompt": "x", "temperature": Infinity}',
        b'{"prompt": "x", "temperature": 1e999}',
        b'{"prompt": "x", "prompt": "y"}',
        b'{"prompt": "\\ud800"}',
        b'{"prompt": "x", "max_tokens": ' + b"9" * 10_000 + b"}",
        b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"prompt": "x", "' + b"k" * 100_000 + b'": 1}',
        b'{"prompt": [' + b"[1]," * 200_000 + b"[1]]}",
        b'{"prompt": [' + b'"a",' * 200_000 + b"1]}",
    ],
    ids=lambda content: content[:30].decode("latin-1"),
)
def test_malformed_bodies_are_refused(server: Running, content: bytes) -> None:
    answer = server.client.post(PATH, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert len(answer.content) < 2000  # what was wrong is not sent back
    assert "Traceback" not in answer.text


def chunks_of(size: int) -> Iterator[bytes]:
    for _ in range(size >> 16):
        yield b" " * (1 << 16)


@pytest.mark.parametrize("is_chunked", [False, True])
def test_large_bodies_are_refused(server: Running, is_chunked: bool) -> None:
    content: Any = chunks_of(security.MAX_BODY + (1 << 17)) if is_chunked else b" " * (security.MAX_BODY + 1)
    answer = server.client.post(PATH, content=content, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
    body = json.dumps({"prompt": "x", "max_tokens": 1}).encode().ljust(security.MAX_BODY)
    assert server.client.post(PATH, content=body, headers={"content-type": "application/json"}).status_code == 200


def test_memory_for_bodies_is_limited(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "MAX_BUFFERED", -1)
    answer = server.client.post(PATH, json={"prompt": "x"})
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0


# ------------------------------------------------------------------------------------------------ slow clients


@pytest.mark.parametrize("start", [b"", b"POST / HT", b"GET /health HTTP/1.1\r\nHost: local"])
def test_half_open_connections_are_closed(server: Running, monkeypatch: pytest.MonkeyPatch, start: bytes) -> None:
    monkeypatch.setattr(security, "HEADER_SECONDS", 0.2)
    with connect(server) as connection:
        connection.sendall(start)
        assert read_all(connection) == b""
    assert is_alive(server)


def test_second_request_has_a_deadline_too(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "HEADER_SECONDS", 0.2)
    with connect(server) as connection:
        connection.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
        first = b""
        while not first.endswith(b"}"):
            first += connection.recv(1 << 16)
        connection.sendall(b"GET /ver")
        assert read_all(connection) == b""


def test_slow_bodies_are_refused(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "BODY_SECONDS", 0.2)
    monkeypatch.setattr(security, "DISCARD_SECONDS", 0.2)
    with connect(server) as connection:
        connection.sendall(raw_request(PATH, {"prompt": "x"}, content_length="9999"))
        assert read_all(connection).startswith(b"HTTP/1.1 408")
    assert is_alive(server)


def test_clients_that_do_not_read_are_dropped(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "SEND_SECONDS", 0.2)
    text = "the king " * 40_000  # whose tokens and spans are many megabytes
    with connect(server, buffer=4096) as connection:
        connection.sendall(raw_request("/m/lstm/tokenize", {"prompt": text}))
        assert eventually(lambda: _is_reset(connection))
    assert is_alive(server)


def _is_reset(connection: socket.socket) -> bool:
    """Whether the server has aborted the connection, without reading from it."""
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0


def test_answers_are_sent_at_once(server: Running) -> None:
    server.client.get("/version")
    sockets = [each.transport.get_extra_info("socket") for each in server.server.server_state.connections]
    assert sockets
    assert all(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in sockets)


def test_what_is_no_http_is_refused(server: Running) -> None:
    for content in (b"\x16\x03\x01\x02\x00" * 20, b"\r\n\r\n\r\n\r\nnope\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
        with connect(server) as connection:
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
            assert not read_all(connection).startswith(b"HTTP/1.1 2")
    with connect(server) as connection:
        connection.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * (security.MAX_HEADERS + 1))
        assert read_all(connection).startswith(b"HTTP/1.1 400")
    assert is_alive(server)


def test_connections_are_limited(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "MAX_CONNECTIONS", 0)
    with connect(server) as connection:
        assert read_all(connection) == b""
    monkeypatch.undo()
    assert is_alive(server)


def test_sources_are_limited(server: Running) -> None:
    source = "king " * (native_routes.MAX_SOURCE + 1)
    for path, body in (
        ("/m/seq2seq/api/translate", {"source": source}),
        ("/m/seq2seq/api/generate", {"prompt": source}),
        ("/m/seq2seq/api/score", {"texts": ["king"], "given": [source]}),
        ("/m/seq2seq/v1/completions", {"prompt": source}),
    ):
        assert "at most" in server.post(path, body, 400)["error"]["message"]


# ------------------------------------------------------------------------------------------------ leaving and queues


def test_request_is_cancelled_when_the_client_leaves(server: Running) -> None:
    engine = server.service.pool.get("lstm")
    before = engine.stats()
    with held(engine):
        with connect(server) as connection:
            connection.sendall(raw_request(PATH, LONG))
            assert eventually(lambda: engine.stats().waiting == before.waiting + 1)
        assert eventually(lambda: server.service.metrics.active._value.get() == 0)
    assert eventually(lambda: engine.is_idle)
    after = engine.stats()
    assert (after.cancelled - before.cancelled, after.tokens - before.tokens) == (1, 0)


def test_stream_is_cancelled_when_the_client_leaves(server: Running) -> None:
    engine = server.service.pool.get("lstm")
    before = engine.stats()
    with connect(server) as connection:
        connection.sendall(raw_request(PATH, {**LONG, "stream": True}))
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    assert eventually(lambda: engine.is_idle)
    after = engine.stats()
    assert after.cancelled == before.cancelled + 1
    assert after.tokens - before.tokens < LONG["max_tokens"]


def test_call_is_dropped_when_the_client_leaves(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = server.service.pool.get("lstm")
    scored: list[object] = []
    monkeypatch.setattr(native_routes.ScoreTexts, "__call__", lambda *arguments: scored.append(arguments))
    with held(engine):
        with connect(server) as connection:
            connection.sendall(raw_request("/m/lstm/api/score", {"texts": ["x"]}))
            assert eventually(lambda: engine.stats().calls > 0)
        assert eventually(lambda: server.service.metrics.active._value.get() == 0)
    assert eventually(lambda: engine.is_idle)
    assert not scored


def test_full_queue_is_429(server: Running) -> None:
    with run_server({"lstm": server.folders["lstm"]}, queue=1, rows=1) as small:
        engine = small.service.pool.get("lstm")
        answers: list[Any] = []
        body = {"prompt": "x", "max_tokens": 2, "temperature": 0}
        with held(engine):
            first = threading.Thread(target=lambda: answers.append(small.post("/v1/completions", body)))
            first.start()
            assert eventually(lambda: engine.stats().waiting == 1)
            for path, content in (
                ("/v1/completions", body),
                ("/api/score", {"texts": ["x"]}),
                ("/api/next", {"text": "x"}),
            ):
                answer = small.client.post(path, json=content)
                assert (answer.status_code, answer.json()["error"]["type"]) == (429, "rate_limit_error")
                assert int(answer.headers["retry-after"]) >= 1
        first.join(PATIENCE)
        assert answers[0]["choices"][0]["finish_reason"] == "length"
        many = small.post("/v1/completions", {**body, "prompt": ["the king"] * 9, "n": 2})["choices"]
        assert len({choice["text"] for choice in many}) == 1  # more rows than the queue holds take turns
        assert len(many) == 18


# ------------------------------------------------------------------------------------------------ errors of the server


def test_unexpected_errors_reveal_nothing(
    server: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    prompt = "secret prompt"

    def fail(*_: object) -> None:
        raise ValueError(prompt)

    monkeypatch.setattr(native_routes, "_score_object", fail)
    with caplog.at_level(logging.INFO):
        answer = server.client.post("/m/lstm/api/score", json={"texts": [prompt]})
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "server_error"
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert "ValueError" in caplog.text
    assert "secret" not in caplog.text
    assert is_alive(server)


def test_prompts_are_not_logged(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        server.post(PATH, {"prompt": "secret prompt", "max_tokens": 2})
        server.post(PATH, {"prompt": "secret prompt", "max_tokens": -2}, 400)
        server.post("/m/bert/api/fill", {"text": "secret prompt"}, 400)
    assert "secret" not in caplog.text


def test_damaged_run_is_an_error_without_its_path(server: Running, tmp_path: Path) -> None:
    folder = shutil.copytree(server.folders["lstm"], tmp_path / "damaged")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    with run_server({"damaged": folder, "good": server.folders["ngram"]}) as broken:
        for _ in range(2):
            answer = broken.client.post("/m/damaged/v1/completions", json={"prompt": "x"})
            assert answer.status_code == 503
            assert str(tmp_path) not in answer.text
        broken.post("/m/good/v1/completions", {"prompt": "x", "max_tokens": 1})
        assert [entry["id"] for entry in broken.client.get("/v1/models").json()["data"]] == ["damaged", "good"]


def test_paths_of_runs_are_not_revealed(server: Running) -> None:
    for name in ("tags", "word2vec", "answers"):
        text = server.client.post(f"/m/{name}/v1/completions", json={"prompt": "x"}).text
        assert str(server.folders[name].parent) not in text


def test_error_in_a_stream_is_an_event(server: Running) -> None:
    with run_server({"lstm": server.folders["lstm"]}) as doomed:
        body = {**LONG, "stream": True}
        with doomed.client.stream("POST", "/v1/completions", json=body) as answer:
            lines = (line.removeprefix("data: ") for line in answer.iter_lines() if line)
            assert "choices" in json.loads(next(lines))
            threading.Thread(target=doomed.service.pool.close).start()
            last = list(lines)[-1]
        assert json.loads(last)["error"]["type"] == "server_error"


def test_silent_streams_send_pings(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    from nextword.server import replies

    monkeypatch.setattr(replies, "PING_SECONDS", 0.05)
    engine, lines = server.service.pool.get("lstm"), []

    def read() -> None:
        with server.client.stream("POST", PATH, json={"prompt": "x", "max_tokens": 2, "stream": True}) as answer:
            lines.extend(answer.iter_lines())

    with held(engine):
        reader = threading.Thread(target=read)
        reader.start()
        assert eventually(lambda: ": ping" in lines or _has_waited(engine))
        time.sleep(0.2)
    reader.join(PATIENCE)
    assert ": ping" in lines
    assert "data: [DONE]" in lines


def _has_waited(engine: Engine) -> bool:
    return engine.stats().waiting > 0


def test_health_says_whether_the_server_is_ready(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    from nextword.server import pool

    ready, load = threading.Event(), pool.load

    def load_slowly(*args: Any, **options: Any) -> Any:
        assert ready.wait(PATIENCE)
        return load(*args, **options)

    monkeypatch.setattr(pool, "load", load_slowly)
    with run_server({"lstm": server.folders["lstm"]}) as starting:
        answer = starting.client.get("/health")
        assert (answer.status_code, answer.json()["status"]) == (503, "loading")
        ready.set()
        assert eventually(lambda: starting.client.get("/health").status_code == 200)
        starting.service.is_draining = True
        answer = starting.client.get("/health")
        assert (answer.status_code, answer.json()["status"]) == (503, "draining")
        answer = starting.client.post("/v1/completions", json={"prompt": "x"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "draining")
