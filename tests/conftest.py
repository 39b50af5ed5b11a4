from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side, and threads that wait spin

settings.register_profile("patient", deadline=None)  # how long an example takes on a busy machine proves nothing
settings.load_profile("patient")
pytest.register_assert_rewrite(
    "tests.support.hf_folders"
)  # it asserts what tests are about: failures shall show both sides

SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "data"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real data sets laid beside the repository; users do not have them."""
    if not SHARED.is_dir():
        pytest.skip(f"REAL DATA ABSENT: {SHARED} does not exist, so this test proves nothing here")
    return SHARED


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has its own data home; the cache of prepared ids is shared, for it is addressed by content."""
    base = tmp_path_factory.getbasetemp()
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("NEXTWORD_HOME", str(folder))
    monkeypatch.setenv("NEXTWORD_CACHE", str(base / "cache"))
    monkeypatch.delenv("NEXTWORD_DATA", raising=False)
    return folder
