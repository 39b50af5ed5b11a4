"""Send a server what its schema allows, what it forbids, and bytes that are no requests.

    python -m tests.fuzz.server --cases 4500        # what `make fuzz-server` runs

Schemathesis makes requests from the OpenAPI schema, valid and invalid ones, for every route and for models of many
families. No answer may be a 5xx, have another form than the schema says, or show a traceback; an invalid request must
be refused. Damaged requests are sent as bytes. In the end the server must answer as it did before.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.fuzz.mutations import BYTES
from tests.support.running_server import Running, run_server
from tests.support.server_runs import train_runs

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
MOST = {
    "max_tokens": 8,
    "n": 4,
    "best_of": 4,
    "max_completion_tokens": 8,
    "steps": 4,
    "beam": 4,
}  # so that cases are quick
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
SECONDS = 60.0  # for an answer
MAX_SHOWN = 4000  # characters of a failure


# ------------------------------------------------------------------------------------------------ from the schema


def fuzz_schema(server: Running, cases: int, first_seed: int = 0) -> Counter[str]:
    """Send so many cases or a few more; return how often each status came back. A wrong answer is an AssertionError."""
    schema = schemathesis.openapi.from_url(f"{server.address}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    share = max(1, -(-cases // (len(operations) * len(MODES))))
    statuses: Counter[str] = Counter()
    models = cycle(server.folders)
    for number, operation in enumerate(operations):
        for mode in MODES:
            if mode is GenerationMode.NEGATIVE and not operation.body:  # no name in a path is invalid
                continue
            fuzz_operation(server, operation, mode, share, first_seed + number, models, statuses)
    return statuses


def fuzz_operation(
    server: Running, operation: Any, mode: Any, cases: int, number: int, models: Iterator[str], statuses: Counter[str]
) -> None:
    @seed(number)
    @settings(
        max_examples=cases, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=HealthCheck
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        name = next(models)
        has_model = operation.path.startswith(("/v1/", "/api/", "/token", "/detok"))
        has_model = has_model and "training" not in operation.tags
        if isinstance(case.body, dict) and mode is GenerationMode.POSITIVE:
            shorten(case.body, name)
        base = f"{server.address}/m/{name}" if has_model else server.address
        response = case.call(base_url=base, timeout=SECONDS)
        statuses[str(response.status_code)] += 1
        assert response.status_code < 500, (operation.label, name, case.body, response.content[:300])
        assert b"Traceback" not in response.content
        assert mode is GenerationMode.POSITIVE or response.status_code >= 400, (operation.label, case.body)
        if response.status_code >= 400:
            assert {"message", "type", "param", "code"} == response.json()["error"].keys()
        case.validate_response(response, checks=CHECKS)

    run()


def shorten(body: dict[str, Any], model: str) -> None:
    """Name the right model, and ask for little: long texts are tested elsewhere."""
    if "model" in body:
        body["model"] = model
    for key, most in MOST.items():
        if isinstance(body.get(key), int) and not isinstance(body[key], bool):
            body[key] = min(body[key], most)


# ------------------------------------------------------------------------------------------------ damaged bytes

BODIES = [
    ("/v1/completions", {"prompt": "the king", "max_tokens": 3, "logprobs": 2, "stop": ["x"], "echo": True}),
    ("/v1/embeddings", {"input": ["the king"]}),
    ("/api/generate", {"prompt": "the king", "max_tokens": 3, "stream": True}),
    ("/tokenize", {"prompt": "the king"}),
]


def fuzz_bytes(server: Running, cases: int, first_seed: int = 0) -> Counter[str]:
    """Send damaged requests; return how often each status came back."""
    host, _, port = server.address.removeprefix("http://").partition(":")
    statuses: Counter[str] = Counter()
    names = list(server.folders)
    for number in range(first_seed, first_seed + cases):
        draw = random.Random(number)
        path, body = draw.choice(BODIES)
        content = json.dumps(body).encode()
        if draw.random() < 0.5:  # damage what the server parses, or all of the request
            content = draw.choice(BYTES)(content, draw)
        head = f"POST /m/{draw.choice(names)}{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        request = f"{head}Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content
        if content == json.dumps(body).encode():
            request = draw.choice(BYTES)(request, draw) or b"\n"
        with socket.create_connection((host, int(port)), timeout=SECONDS) as connection:
            answer = exchange(connection, request)
        status = answer[9:12].decode("latin-1") if answer.startswith(b"HTTP/1.1 ") else "closed"
        assert not status.startswith("5"), (number, request, answer[:500])
        assert b"Traceback" not in answer, (number, request)
        statuses[status] += 1
    return statuses


def exchange(connection: socket.socket, request: bytes) -> bytes:
    """Send a request and its end, and read all of the answer."""
    answer = b""
    try:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(1 << 16):
            answer += part
    except ConnectionError:
        pass
    return answer


# ------------------------------------------------------------------------------------------------ all of it


def ask(server: Running) -> list[Any]:
    """What the models answer to a fixed question, to compare before and after."""
    answers = []
    for name in server.folders:
        body = {"prompt": "the king", "max_tokens": 4, "temperature": 0}
        answer = httpx.post(f"{server.address}/m/{name}/v1/completions", json=body, timeout=SECONDS).json()
        answers.append([choice["text"] for choice in answer["choices"]] if "choices" in answer else answer)
    return answers


def fuzz(server: Running, cases: int, first_seed: int = 0) -> dict[str, Counter[str]]:
    """Two thirds from the schema, one third damaged bytes."""
    before = ask(server)
    results = {
        "schema": fuzz_schema(server, 2 * cases // 3, first_seed),
        "bytes": fuzz_bytes(server, cases // 3, first_seed),
    }
    assert ask(server) == before
    for name, engine in server.service.pool.loaded().items():
        assert engine.is_idle, name
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.server")
    parser.add_argument("--cases", type=int, default=4500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="nextword-fuzz-") as base:
        os.environ.update(NEXTWORD_CACHE=f"{base}/cache", NEXTWORD_HOME=f"{base}/home")
        runs = train_runs(Path(base) / "runs")
        folders = {path.parent.name: path.parent for path in sorted(runs.glob("*/manifest.json"))}
        with run_server(folders, chat="plain", train=Path(base) / "trained") as server:
            begin = time.monotonic()
            try:
                results = fuzz(server, given.cases, given.seed)
            except BaseException as error:  # schemathesis quotes requests of many megabytes
                print(f"{type(error).__name__}: {str(error)[:MAX_SHOWN]}")
                return 1
    for kind, statuses in results.items():
        counts = ", ".join(f"{number:,} × {status}" for status, number in sorted(statuses.items()))
        print(f"{kind:8} {statuses.total():6,} cases: {counts}")
    print(f"no 5xx, no traceback, the server is alive · {time.monotonic() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
