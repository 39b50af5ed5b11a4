"""Models by name: loaded once, on first use; unloaded when memory is short, but never under a request or a lease."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nextword.core.errors import OutOfMemory, RunError, UnknownName
from nextword.core.types import Stop
from nextword.server import pool as pool_module
from nextword.server.pool import ModelPool
from nextword.server.requests import EngineClosed, GenerationRequest, MemoryBusy, TokenEvent
from tests.support.ngram_runs import make_ngram_run

NAMES = ("one", "two", "three")
LONG = GenerationRequest(stop=Stop(10**6, at_end=False))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    parent = tmp_path_factory.mktemp("runs")
    return {name: make_ngram_run(parent / name) for name in NAMES}


@pytest.fixture
def pool(folders: dict[str, Path]) -> Iterator[ModelPool]:
    """A pool with memory for two of three models."""
    size = (folders["one"] / "model.ngram").stat().st_size
    pool = ModelPool(folders, memory=int(2.5 * size), prefix_bytes=1000)
    yield pool
    pool.close()


def test_model_is_loaded_on_first_use(pool: ModelPool) -> None:
    assert pool.names == NAMES
    assert pool.status("one") == "unloaded"
    engine = pool.get("one")
    assert pool.status("one") == "loaded"
    assert pool.get("one") is engine
    assert pool.loaded() == {"one": engine}


def test_least_recently_used_model_is_unloaded(pool: ModelPool) -> None:
    one, two = pool.get("one"), pool.get("two")
    pool.get("one")
    pool.get("three")
    assert set(pool.loaded()) == {"one", "three"}
    with pytest.raises(EngineClosed):
        two.submit(GenerationRequest())
    assert pool.get("one") is one


def test_model_in_use_is_not_unloaded(pool: ModelPool) -> None:
    handle = pool.get("one").submit(LONG)
    assert isinstance(next(iter(handle)), TokenEvent)
    with pool.lease("two"):
        with pytest.raises(MemoryBusy) as error:
            pool.get("three")
        assert error.value.retry_after > 0
        assert pool.status("three") == "unloaded"
    pool.get("three")
    assert set(pool.loaded()) == {"one", "three"}
    handle.cancel()
    assert list(handle)


def test_model_larger_than_the_memory_is_refused(folders: dict[str, Path]) -> None:
    pool = ModelPool(folders, memory=100)
    with pytest.raises(OutOfMemory):
        pool.get("one")
    pool.close()


def test_calls_at_the_same_time_load_a_model_once(pool: ModelPool, monkeypatch: pytest.MonkeyPatch) -> None:
    load, loads, all_wait = pool_module.load, list[Path](), threading.Barrier(4)

    def load_slowly(folder: Path, **settings: str) -> object:
        loads.append(folder)
        all_wait.wait(timeout=30)
        return load(folder, **settings)

    def get() -> None:
        engines.append(pool.get("one"))

    monkeypatch.setattr(pool_module, "load", load_slowly)
    engines: list[object] = []
    threads = [threading.Thread(target=get) for _ in range(3)]
    for thread in threads:
        thread.start()
    while not loads:
        assert pool.status("one") != "loaded"
    assert pool.status("one") == "loading"
    for _ in range(3):  # the other parties of the barrier
        threading.Thread(target=all_wait.wait).start()
    for thread in threads:
        thread.join()
    assert len(loads) == 1
    assert len(set(map(id, engines))) == 1


def test_unknown_and_broken_runs_are_errors(folders: dict[str, Path], tmp_path: Path) -> None:
    pool = ModelPool({**folders, "broken": tmp_path})
    with pytest.raises(UnknownName) as error:
        pool.get("tow")
    assert error.value.name == "tow"
    with pytest.raises(UnknownName):
        pool.status("tow")
    for _ in range(2):
        with pytest.raises(RunError):
            pool.get("broken")
        assert pool.status("broken") == "unloaded"
    pool.close()


def test_run_without_the_precision_is_served_as_it_is(folders: dict[str, Path]) -> None:
    pool = ModelPool(folders, precision="int8")
    assert pool.get("one").num_bytes() > 0
    pool.close()


def test_closed_pool_cancels_requests_and_loads_nothing(folders: dict[str, Path]) -> None:
    pool = ModelPool(folders)
    handle = pool.get("one").submit(LONG)
    pool.close()
    assert list(handle)
    assert pool.loaded() == {}
    with pytest.raises(EngineClosed):
        pool.get("one")


def test_models_come_and_go(folders: dict[str, Path]) -> None:
    pool = ModelPool({"one": folders["one"]})
    assert pool.add("two", folders["two"]) == "two"
    assert pool.add("one", folders["three"]) == "one-2"
    first = pool.get("one")
    assert pool.add("again", folders["one"]) == "one"  # its weights may be new
    assert pool.status("one") == "unloaded"
    assert pool.get("one") is not first
    handle = pool.get("one-2").submit(LONG)
    assert isinstance(next(iter(handle)), TokenEvent)
    assert not pool.remove("one-2")
    handle.cancel()
    assert list(handle)
    assert pool.remove("two")
    assert pool.names == ("one", "one-2")
    with pytest.raises(UnknownName):
        pool.get("two")
    pool.close()
