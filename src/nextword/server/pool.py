"""Several models by name: loaded on first use, and the least recently used unloaded when memory is short."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal

from nextword.server.engine import Engine


class ModelPool:
    """Engines for run folders.

    folders    name → run folder
    memory     bytes for all models together; None: no limit. A model that runs requests is never unloaded.
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
        raise NotImplementedError

    @property
    def names(self) -> tuple[str, ...]:
        raise NotImplementedError

    def status(self, name: str) -> Literal["unloaded", "loading", "loaded"]:
        """Raises UnknownName."""
        raise NotImplementedError

    def get(self, name: str) -> Engine:
        """The engine of a model, which is loaded if it is not yet; blocks meanwhile. Raises UnknownName, RunError."""
        raise NotImplementedError

    def lease(self, name: str) -> AbstractContextManager[Engine]:
        """As `get`; within the context the model is not unloaded. Afterwards it stays while requests run."""
        raise NotImplementedError

    def loaded(self) -> dict[str, Engine]:
        """The engines of all models that are loaded now."""
        raise NotImplementedError

    def close(self, drain_seconds: float = 0) -> None:
        raise NotImplementedError
