"""Comparisons as the playground shows them: what `nextword compare --json` prints, without paths of this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from nextword.comparison.compare import FILE
from nextword.comparison.report import describe_winner
from nextword.comparison.result import ComparisonResult
from nextword.core.errors import as_keywords
from nextword.core.io import read_json

Object = dict[str, Any]
T = TypeVar("T")
MAX_CURVE = 500  # points of a model
PRIVATE_KEYS = ("plan", "source", "run")  # they hold paths
FOLDERS = re.compile(r"(?<![\w/:.~])~?/(?:[^/\s]+/)*(?=[^/\s])")  # of an absolute path; not of https://…


def find_comparisons(runs: Mapping[str, Path], folders: Mapping[str, Path]) -> dict[str, Path]:
    """Name → folder of the comparisons in `folders`, and of all others whose runs are served."""
    found = {name: folder for name, folder in folders.items() if (folder / FILE).is_file()}
    known = {folder.resolve() for folder in found.values()}
    for run in runs.values():
        folder = run.resolve().parent
        if folder not in known and (folder / FILE).is_file():
            known.add(folder)
            name = folder.name
            while name in found:
                name += "-2"
            found[name] = folder
    return found


def read_comparison(folder: Path, served: Mapping[str, Path], data: str = "") -> Object:
    """The results so far. `served`: name → run folder; `data`: the name of the text for people, if there is one."""
    content = read_json(folder / FILE, {"plan": dict, "models": list, "data": dict})
    names = tuple(entry["name"] for entry in content["plan"]["entries"])
    place = {path.resolve(): name for name, path in served.items()}
    public: Object = {key: value for key, value in content.items() if key not in PRIVATE_KEYS}
    public["data"] = {key: value for key, value in content["data"].items() if key not in PRIVATE_KEYS}
    public["data"]["name"] = data or Path(public["data"]["name"]).name
    is_scored = any(model["status"] == "done" for model in content["models"])
    public["warnings"] = [hide_folders(as_keywords(warning)) for warning in content.get("warnings") or ()]
    return public | {
        "names": names,
        "winner": ComparisonResult(folder, content, None, names, False).winner,
        "headline": describe_winner(public) if is_scored else None,
        "models": [describe_row(row, place.get((folder / row["name"]).resolve())) for row in content["models"]],
    }


def describe_row(model: Mapping[str, Any], served: str | None = None) -> Object:
    """A row of the leaderboard; `served` is the name of the model in /v1/models."""
    row = {key: value for key, value in model.items() if key not in (*PRIVATE_KEYS, "surprisal")}
    error = hide_folders(as_keywords(model["error"])) if model.get("error") else None
    return row | {"served": served, "error": error, "curve": thin(model.get("curve") or [], MAX_CURVE)}


def hide_folders(text: str) -> str:
    """A text in which files have their names, not their paths."""
    return FOLDERS.sub("", text)


def thin(points: Sequence[T], most: int) -> list[T]:
    """At most so many points, evenly spread, with the first and the last."""
    if len(points) <= most:
        return [*points]
    return [points[round(i * (len(points) - 1) / (most - 1))] for i in range(most)]
