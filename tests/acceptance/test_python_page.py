"""Run every Python block of docs/python.md, then of docs/lens.md, in one folder, with small budgets."""

from __future__ import annotations

import ast
import importlib.util
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_starters import install_starter
from tests.support.tiny_transfer import draw_sentence, write_table

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCKS = [
    (name, block)
    for name in ("python.md", "lens.md")  # the second uses the runs that the first has trained
    for block in re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), re.S)
]
SMALLER = ((r"/small\b", "/tiny"), (r"\bminutes=\d+", "minutes=0.02"))


def small(block: str) -> str:
    """The same block with tiny recipes and budgets."""
    for pattern, budget in SMALLER:
        block = re.sub(pattern, budget, block)
    return block


def missing_package(block: str) -> str:
    """A package that a block imports and that is not installed."""
    names = [alias.name for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Import) for alias in node.names]
    return next((name for name in names if importlib.util.find_spec(name) is None), "")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The names that the blocks share, in a folder with the files they read."""
    folder = tmp_path_factory.mktemp("page")
    draw = random.Random(1)
    lines = [draw_sentence(draw, "cat", length=(6, 16)) + " ." for _ in range(900)]
    (folder / "my.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = [(f"{draw_sentence(draw)} {label}", label) for label in ("good", "bad") * 40]
    write_table(folder / "reviews.csv", ["text", "label"], rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("NEXTWORD_HOME", str(folder / "home"))
        install_starter(folder, patch, "bert", "bert")
        install_starter(folder, patch, "gpt2", "gpt1")
        yield {"__name__": "page"}


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_block_runs(number: int, page: dict[str, Any]) -> None:
    name, block = BLOCKS[number][0], small(BLOCKS[number][1])
    if package := missing_package(block):
        pytest.skip(f"PACKAGE ABSENT: {package} is not installed, so block {number} of docs/{name} was not run")
    exec(compile(block, f"docs/{name}, block {number}", "exec"), page)
