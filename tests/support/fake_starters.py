"""A package of starter models made of small untrained networks, for tests of the names `starter/NAME`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nextword.conversion import convert
from nextword.core.named_models import STARTER_PACKAGE
from tests.support.tiny_transfer import make_run


def install_starter(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str = "bert", slug: str = "bert") -> Path:
    """Make `starter/NAME` known: an untrained network, stored in int8. Returns its run folder."""
    package = folder / "site" / STARTER_PACKAGE
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(package.parent))
    sys.modules.pop(STARTER_PACKAGE, None)
    target = package / "models" / name
    convert(make_run(folder / f"float32-{name}", slug), target, to="int8")
    return target
