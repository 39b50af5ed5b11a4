"""A real server on loopback, in a thread of this process; tiny runs are trained once for all test processes."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

import nextword
from nextword.lm.base import TextModel
from nextword.server.app import Server, create_app, listen, make_server
from nextword.server.chat import find_template
from nextword.server.engine import Engine
from nextword.server.pool import ModelPool
from nextword.server.security import Access
from nextword.server.service import Service
from tests.support.server_runs import train_runs

KEY = "secret-of-the-tests"
PATIENCE = 30.0  # seconds after which something that should happen has not


@dataclass
class Running:
    """A server in a thread of this process, and a client for it."""

    address: str
    service: Service
    client: httpx.Client
    folders: dict[str, Path]
    server: Server

    def post(self, path: str, body: object, status: int = 200, **more: Any) -> Any:
        """The JSON value that answers a JSON value."""
        answer = self.client.post(path, json=body, **more)
        assert answer.status_code == status, answer.text
        return answer.json()

    def events(self, path: str, body: object) -> list[Any]:
        """The objects of a stream, which must end with [DONE]."""
        with self.client.stream("POST", path, json=body) as answer:
            assert answer.status_code == 200, answer.read()
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
        assert lines[-1] == "[DONE]"
        return [json.loads(line) for line in lines[:-1]]


@contextmanager
def run_server(
    folders: dict[str, Path],
    chat: str = "",
    access: Access = Access(),
    port: int = 0,
    train: Path | None = None,
    **pool: Any,
) -> Iterator[Running]:
    """Serve runs until the context ends. Port 0: any that is free. `train`: the folder that clients may train into."""
    service = Service(ModelPool(folders, device="cpu", **pool), find_template(chat) if chat else None)
    if train is not None:
        service.allow_training(train)
    server: Server = make_server(create_app(service, access), drain_seconds=5)
    with listen("127.0.0.1", port) as socket:
        address = f"http://127.0.0.1:{socket.getsockname()[1]}"
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([socket])), daemon=True)
        thread.start()
        headers = {"authorization": f"Bearer {access.key}"} if access.key else {}
        with httpx.Client(base_url=address, timeout=60, headers=headers) as client:
            try:
                yield Running(address, service, client, folders, server)
            finally:
                server.handle_exit(15, None)
                thread.join(30)
        assert not thread.is_alive()


@contextmanager
def run_trainer(folder: Path) -> Iterator[Running]:
    """A server without models, which trains into a folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        with run_server({}, train=folder) as running:
            yield running


def train_once(factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Name → run; the first process that needs them trains them. Do not modify them."""
    base = factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    place = base / "served"
    place.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch, (place / "lock").open("w") as lock:
        patch.setenv("NEXTWORD_CACHE", str(place / "cache"))
        patch.setenv("NEXTWORD_HOME", str(place / "home"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "done").exists():
            train_runs(place / "runs")
            (place / "done").touch()
    return {path.parent.name: path.parent for path in sorted((place / "runs").glob("*/manifest.json"))}


def make_loader(folders: dict[str, Path]) -> Callable[[str], TextModel]:
    """A function that loads a run into this process, once, to compare with what the server answers."""
    loaded: dict[str, TextModel] = {}

    def get(name: str) -> TextModel:
        if name not in loaded:
            loaded[name] = nextword.load(folders[name], device="cpu")
        return loaded[name]

    return get


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether something becomes true before patience ends."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@contextmanager
def held(engine: Engine) -> Iterator[None]:
    """Nothing happens on the engine's thread within this context."""
    is_held, release = threading.Event(), threading.Event()

    def hold(_: TextModel) -> None:
        is_held.set()
        release.wait(PATIENCE)

    done = engine.call(hold)
    assert is_held.wait(PATIENCE)
    try:
        yield
    finally:
        release.set()
        done.result(PATIENCE)
