"""A finished run that is asked for once more (`--resume`): its result is taken only if the same is asked for.

Taken for the same, though it is written otherwise: a path relative or absolute; and the precision, unless it was named:
what a GPU has learnt in sixteen bits may be put into a table on a machine without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nextword.checkpoint import RunFolder
from nextword.contract_errors import NextwordError
from nextword.heads.settings import settings_of
from nextword.recipe import Recipe, differing
from nextword.training import other_settings
from nextword.transfer.plan import names_precision

FIRST = ("task.source", "phase.0.data")  # of what differs, said first: the rest may follow from it


def refuse_if_other(folder: str | Path, recipe: Recipe, data: Any, changes: Sequence[str] = ()) -> None:
    """An error that names what differs, where a finished run has learnt otherwise, or from other rows."""
    run = RunFolder.open(folder)
    there, asked = _plain(run.recipe), _plain(recipe)
    if not names_precision(changes):
        there, asked = (
            replace(one, phases=tuple(replace(phase, precision="fp32") for phase in one.phases))
            for one in (there, asked)
        )
    found = sorted(differing(there, asked), key=lambda one: not one.startswith(FIRST))
    if found:
        raise other_settings(folder, recipe, found)
    read = set(run.manifest.get("texts", {}).values())
    if not all(one == data.fingerprint or one.startswith(f"{data.fingerprint}-") for one in read):
        raise NextwordError(
            f"{folder} was trained on other rows than {data.name} has now: the file or its splits have changed. "
            "Restore it, or train anew with another --out."
        )


def _plain(recipe: Recipe) -> Recipe:
    """With every key of [task], and paths in full."""
    task = settings_of(recipe.task or {}, recipe.name).table()
    phases = (replace(phase, data=_whole(phase.data), init=_whole(phase.init)) for phase in recipe.phases)
    return replace(recipe, task={**task, "source": _whole(task["source"])}, phases=tuple(phases))


def _whole(name: str) -> str:
    return str(Path(name).expanduser().resolve()) if name and Path(name).expanduser().exists() else name
