"""Comparisons for the playground: no paths of this machine, and a damaged one does not hide the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nextword.server.comparisons import hide_folders, read_comparison
from nextword.server.job_routes import _list_comparisons
from nextword.server.pool import ModelPool
from nextword.server.service import Service


def write_comparison(folder: Path) -> None:
    row = {"name": "lstm", "status": "failed", "error": f"Cannot read {folder}/lstm/tokens.bin: the disk is full."}
    content = {
        "plan": {"entries": [{"name": "lstm"}]},
        "data": {"name": f"{folder}/tale.txt", "source": f"{folder}/tale.txt"},
        "budget": {"minutes": 1.0},
        "created": "2026-01-01T00:00:00",
        "models": [row],
        "warnings": [f"{folder}/tale.txt is short."],
    }
    folder.mkdir()
    (folder / "comparison.json").write_text(json.dumps(content))


def test_comparison_names_no_folders(tmp_path: Path) -> None:
    write_comparison(tmp_path / "duel")
    shown = read_comparison(tmp_path / "duel", {})
    assert str(tmp_path) not in json.dumps(shown)
    assert shown["models"][0]["error"] == "Cannot read tokens.bin: the disk is full."
    assert shown["warnings"] == ["tale.txt is short."]


@pytest.mark.parametrize("content", ["{", '{"plan": {}, "models": [], "data": {}}', '{"plan": {"entries": [1]}}'])
def test_damaged_comparison_is_left_out_of_the_list(tmp_path: Path, content: str) -> None:
    write_comparison(tmp_path / "duel")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "comparison.json").write_text(content)
    pool = ModelPool({"a": tmp_path / "bad" / "a", "lstm": tmp_path / "duel" / "lstm"})
    assert [entry["name"] for entry in _list_comparisons(Service(pool))["comparisons"]] == ["duel"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Cannot read /home/me/runs/a/model: damaged.", "Cannot read model: damaged."),
        ('open "/a/b c" or (~/x/y.txt)', 'open "b c" or (y.txt)'),
        ("see https://example.org/a/b, a/b and 1/2, or /", "see https://example.org/a/b, a/b and 1/2, or /"),
    ],
)
def test_paths_become_names(text: str, expected: str) -> None:
    assert hide_folders(text) == expected
