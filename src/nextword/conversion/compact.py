"""The same run with rounded weights in a smaller file (models/storage.py). It can still be trained."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from nextword.conversion.base import (
    RUN_FORMAT,
    Conversion,
    Progress,
    folder_size,
    model_files,
    move_into_place,
    network_facts,
    temporary_folder,
)
from nextword.core.errors import InvalidSetting, RunError, Unsupported, invalid
from nextword.core.named_models import STARTERS
from nextword.model_card import example_commands
from nextword.models.storage import FILE, STORAGES, load_weights, save_weights
from nextword.run_folder import RunFolder
from nextword.tokenizers.loading import load_tokenizer

KEPT_FACTS = ("finished", "parameters", "data", "texts", "result")


def compact(source: Path, target: Path, storage: str, progress: Progress) -> Conversion:
    """Write the run with weights in `storage`, with its log and the scores that it had before rounding.

    int4 is for runs that were trained from a starter model: their files have the differences from it.
    """
    run = RunFolder.open(source)
    run.verify()
    if not run.is_finished:
        raise RunError(f"{source} is not finished. Resume it with --resume --out {source}.", path=source)
    names = model_files(run)
    weights = [name for name in names if name.endswith(".safetensors")]
    if FILE not in weights:
        raise Unsupported(f"{source} is a table of n-grams, without weights to round. Leave --to out.", ability="int8")
    recipe, manifest, tokenizer = run.recipe, run.manifest, load_tokenizer(run.path / "tokenizer.json")
    if recipe.model.get("bits"):
        raise InvalidSetting(f"{source} has {recipe.model['bits']}-bit weights already.", key="to")
    base = recipe.phases[0].init_from
    if storage == "int4" and not base.startswith(STARTERS):
        problem = f"is for runs that were trained from a starter model, and {source} was not. Use int8."
        raise invalid("--to", storage, problem)
    progress(f"writing {target.name}", 0, None)

    def save(folder: Path) -> list[str]:
        for name in weights:
            save_weights(load_weights(run.path / name), folder / name, storage, base)
        return weights

    with temporary_folder(target) as scratch:
        facts = {key: manifest[key] for key in KEPT_FACTS if key in manifest}
        new = RunFolder.create(scratch / "run", recipe, tokenizer, storage=storage, **facts)
        new.save_model(save, recipe=manifest.get("recipe"), commit=manifest.get("commit"))
        if (run.path / "log.jsonl").is_file():
            shutil.copyfile(run.path / "log.jsonl", new.path / "log.jsonl")
        move_into_place(new.path, target)
    number = int(manifest.get("parameters") or 0)
    return Conversion(
        target,
        RUN_FORMAT,
        folder_size(target),
        network_facts(number, recipe, tokenizer),
        f"nextword predict {target} FILE" if recipe.task else example_commands(RunFolder(target))[0],
        [f"weights: {STORAGES[storage]}, {os.path.getsize(target / FILE) / 1e6:.1f} MB; reading restores float32"],
    )
