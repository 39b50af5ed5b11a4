"""Several models by name: loaded on first use, and the least recently used unloaded when memory is short.

Models can be added and removed while the server runs. `folders` is replaced then, never changed, so whoever iterates
over it needs no lock.

    with pool.lease("gpt2") as engine:        within it, the model stays
        handle = engine.submit(request)       and afterwards, until its requests are over

What counts are the weights and the prefix caches. Before a model is loaded, the size of its files stands for it.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from typing import Literal

from nextword.core.errors import OutOfMemory, Unsupported, unknown
from nextword.lm.base import TextModel
from nextword.lm.loading import load
from nextword.run_folder import INITIAL_FILES, RunFolder
from nextword.server.engine import Engine
from nextword.server.requests import EngineClosed, MemoryBusy

RELATIVE_SIZE = {"fp32": 1.0, "bf16": 0.5, "int8": 0.25}  # of weights in memory, to those in the file
RETRY_SECONDS = 5.0


class ModelPool:
    """Engines for run folders.

    folders    name → run folder
    memory     bytes for all models together; None: no limit. A model that runs requests is never unloaded.
    precision  of the weights, where a run supports it; other runs keep fp32
    """

    def __init__(
        self,
        folders: Mapping[str, Path],
        memory: int | None = None,
        *,
        device: str = "auto",
        precision: str = "fp32",
        rows: int = 32,
        queue: int = 256,
        prefix_bytes: int = 64 << 20,
    ) -> None:
        self.folders, self.memory, self.device, self.precision = dict(folders), memory, device, precision
        self.rows, self.queue, self.prefix_bytes = rows, queue, prefix_bytes
        self._changed = threading.Condition()  # guards the rest
        self._engines: OrderedDict[str, Engine] = OrderedDict()  # the least recently used first
        self._loading: dict[str, int] = {}  # bytes that models being loaded will need
        self._leases = Counter[str]()
        self._is_closed = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.folders)

    def add(self, name: str, folder: Path) -> str:
        """Serve a run folder from now on; return its name, with a number if another folder has that name already."""
        for known, other in self.folders.items():
            if other.resolve() == folder.resolve():
                self.unload(known)  # it may have better weights now
                return known
        with self._changed:
            unique = next(n for n in chain([name], (f"{name}-{i}" for i in count(2))) if n not in self.folders)
            self.folders = {**self.folders, unique: folder}
            return unique

    def remove(self, name: str) -> bool:
        """Serve a model no longer. False, and nothing happens, if it is being loaded or answers requests."""
        with self._changed:
            is_removed = self.unload(name)
            if is_removed:
                self.folders = {other: folder for other, folder in self.folders.items() if other != name}
        return is_removed

    def unload(self, name: str) -> bool:
        """Load the model again when it is next used. False, and nothing happens, if it is in use."""
        with self._changed:
            engine = self._engines.get(name)
            if name in self._loading or self._leases[name] or (engine is not None and not engine.is_idle):
                return False
            self._engines.pop(name, None)
        if engine is not None:
            engine.close()
        return True

    def status(self, name: str) -> Literal["unloaded", "loading", "loaded"]:
        """Raises UnknownName."""
        self._check(name)
        with self._changed:
            if name in self._engines:
                return "loaded"
            return "loading" if name in self._loading else "unloaded"

    def get(self, name: str) -> Engine:
        """The engine of a model, which is loaded if it is not yet; blocks meanwhile.

        Raises UnknownName, OutOfMemory, MemoryBusy, EngineClosed, and the errors of loading a run. Another call may
        unload the model before the engine gets a request, which then raises EngineClosed: see `lease`.
        """
        with self.lease(name) as engine:
            return engine

    @contextmanager
    def lease(self, name: str) -> Iterator[Engine]:
        """As `get`; within the context the model is not unloaded. Afterwards it stays while requests run."""
        engine = self._acquire(name)
        try:
            yield engine
        finally:
            with self._changed:
                self._leases[name] -= 1
                self._changed.notify_all()

    def loaded(self) -> dict[str, Engine]:
        """The engines of all models that are loaded now."""
        with self._changed:
            return dict(self._engines)

    def close(self, drain_seconds: float = 0) -> None:
        """Close all engines side by side, and load no more."""
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: not self._loading)
            engines = list(self._engines.values())
            self._engines.clear()
        threads = [threading.Thread(target=engine.close, args=(drain_seconds,)) for engine in engines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    # -------------------------------------------------------------------------------------------- loading

    def _check(self, name: str) -> None:
        folders = self.folders
        if name not in folders:
            raise unknown("model", name, folders)

    def _acquire(self, name: str) -> Engine:
        """Load the model if needed, and count a lease."""
        with self._changed:
            self._changed.wait_for(lambda: name not in self._loading)
            self._check(name)
            if name in self._engines:
                self._engines.move_to_end(name)
                self._leases[name] += 1
                return self._engines[name]
            if self._is_closed:
                raise EngineClosed
            self._loading[name] = 0
        try:
            self._make_room(name)
            engine = Engine(self._load(name), self.rows, self.queue, self.prefix_bytes)
            with self._changed:
                self._engines[name] = engine
                self._leases[name] += 1
                return engine
        finally:
            with self._changed:
                del self._loading[name]
                self._changed.notify_all()

    def _load(self, name: str) -> TextModel:
        try:
            model: TextModel = load(self.folders[name], device=self.device, precision=self.precision)
        except Unsupported as error:
            if self.precision == "fp32" or error.ability != "quantize":
                raise
            model = load(self.folders[name], device=self.device)
        return model

    def _make_room(self, name: str) -> None:
        """Reserve memory for a model, and unload others until there is enough."""
        if self.memory is None:
            return
        needed = int(_file_bytes(self.folders[name]) * RELATIVE_SIZE.get(self.precision, 1.0))
        if needed > self.memory:
            sizes = f"about {needed >> 20:,} MB, but the limit is {self.memory >> 20:,} MB"
            raise OutOfMemory(f"{name} needs {sizes}. Raise the limit, or use --precision int8 or bf16.")
        unloaded = []
        with self._changed:
            self._loading[name] = needed
            used = sum(self._loading.values()) + sum(engine.num_bytes() for engine in self._engines.values())
            for other, engine in list(self._engines.items()):
                if used <= self.memory:
                    break
                if not self._leases[other] and engine.is_idle:
                    used -= engine.num_bytes()
                    unloaded.append(self._engines.pop(other))
            self._changed.notify_all()
        for engine in unloaded:
            engine.close()
        if used > self.memory:
            raise MemoryBusy(RETRY_SECONDS)


def _file_bytes(folder: Path) -> int:
    """Size of the files of a run's model."""
    run = RunFolder.open(folder)
    names = run.manifest.get("files", {}).keys() - set(INITIAL_FILES)
    return sum((run.path / name).stat().st_size for name in names if (run.path / name).is_file())
