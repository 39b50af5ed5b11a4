"""Run folders as a stranger could make them: changed, and sealed again."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from nextword.recipe import load_recipe, recipe_tables
from nextword.run_folder import RunFolder


def reseal(folder: Path) -> None:
    """Write checksums for the files as they are."""
    run = RunFolder(folder)
    run.seal(*run.manifest["files"])


def change_model(folder: Path, **settings: Any) -> None:
    """Change [model] of a run's recipe, and seal the run again."""
    tables = recipe_tables(load_recipe(folder / "recipe.toml"))
    tables["model"] |= settings
    (folder / "recipe.toml").write_text(tomli_w.dumps(tables))
    reseal(folder)


def write_safetensors(path: Path, header: Mapping[str, Any], data: bytes = b"") -> None:
    """A file with this header, whether or not it is true."""
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)
