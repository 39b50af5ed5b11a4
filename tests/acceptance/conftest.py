"""Fixtures of the acceptance tests: the command line, as in tests/cli."""

from __future__ import annotations

from tests.cli.conftest import cli, js

__all__ = ["cli", "js"]
