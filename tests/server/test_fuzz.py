"""A few dozen of the cases that `make fuzz-server` sends."""

from __future__ import annotations

import pytest

from tests.support.running_server import Running


@pytest.mark.timeout(300)
def test_server_survives_what_the_schema_allows_and_forbids(server: Running) -> None:
    from tests.fuzz.server import fuzz

    results = fuzz(server, 90)
    assert results["schema"].total() >= 50
    assert results["schema"]["200"] > 0
    assert results["schema"]["400"] > 0
    assert results["bytes"].total() == 30
