"""One server for each test process, with runs that are trained once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nextword.lm.base import TextModel
from tests.support.running_server import Running, make_loader, run_server, train_once


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Name → run. Do not modify."""
    return train_once(tmp_path_factory)


@pytest.fixture(scope="session")
def server(folders: dict[str, Path]) -> Iterator[Running]:
    with run_server(folders, chat="plain") as running:
        yield running


@pytest.fixture(scope="session")
def models(folders: dict[str, Path]) -> Callable[[str], TextModel]:
    """The same models in this process, to compare with."""
    return make_loader(folders)
