"""What is known of a model: from its run folder, and, once it is loaded, from the model itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from nextword.core.errors import NextwordError
from nextword.lens import list_views
from nextword.lm.base import TextModel
from nextword.lm.loading import wrap_run
from nextword.models import model_class
from nextword.recipe import network_config
from nextword.results import Run
from nextword.run_folder import RunFolder
from nextword.tasks import parse_task
from nextword.tasks.base import AnyTask
from nextword.tasks.classification import TextTask
from nextword.tasks.multitask import Multitask
from nextword.tokenizers import vocabulary
from nextword.tokenizers.base import Tokenizer, fingerprint
from nextword.tokenizers.loading import load_tokenizer


class Catalog:
    """Facts about runs by name, each read from its folder once."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self.folders = folders
        self._facts: dict[str, dict[str, Any]] = {}

    def update(self, folders: Mapping[str, Path], changed: str) -> None:
        """Describe these runs from now on; one of them was added, changed or removed."""
        self.folders = folders
        self._facts.pop(changed, None)

    def describe(self, name: str, model: TextModel | None, status: str) -> dict[str, Any]:
        """A model as OpenAI's API lists it; the field `nextword` holds what it has no field for."""
        facts = self._facts.get(name)
        if facts is None:
            facts = self._facts[name] = _read_facts(self.folders[name])
        if model is not None:
            facts |= _describe_model(model) | {"parameters": model.parameters}
        shown = {key: value for key, value in facts.items() if key not in ("created", "window")}
        return {
            "id": name,
            "object": "model",
            "created": facts["created"],
            "owned_by": "nextword",
            "max_model_len": facts["window"],
            "nextword": shown | {"status": status},
        }


def _describe_model(model: TextModel) -> dict[str, Any]:
    """What a model can do and show."""
    return {
        "abilities": sorted(model.can),
        "views": list_views(model),
        "kind": model.kind,
        "is_seq2seq": model.is_seq2seq,
        "infills": model.can_infill,
        "window": model.context,
        "tokenizer": _describe_tokenizer(model.tokenizer),
    }


def _describe_tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "kind": tokenizer.kind,
        "size": len(tokenizer),
        "lossless": tokenizer.lossless,
        "fingerprint": fingerprint(tokenizer),  # equal for equal tokenizers
    }


def _read_facts(folder: Path) -> dict[str, Any]:
    """The facts in a run folder. An unreadable one has few, and an error when it is used."""
    unknown = ("abilities", "views", "kind", "is_seq2seq", "infills", "window", "tokenizer", "task", "task_settings")
    facts: dict[str, Any] = dict.fromkeys(("slug", "recipe", "data", "parameters", "bits_per_byte", *unknown)) | {
        "created": 0
    }
    try:
        run = RunFolder.open(folder)
        summary = Run(run.path).summary()
        facts |= {key: summary[key] for key in ("slug", "recipe", "parameters", "bits_per_byte")}
        sources = run.recipe.phases[0].data.split(" + ")
        facts["data"] = " + ".join(
            Path(source).name for source in sources
        )  # without their folders, which clients need not know
        facts["created"] = int((run.path / "manifest.json").stat().st_mtime)
        task = run.recipe.task
        if task is not None:
            return facts | {"abilities": ["predict"], "task": task["kind"], "task_settings": _describe_task(run)}
        facts |= _sketch(run)
    except (NextwordError, OSError):
        pass
    return facts


def _describe_task(run: RunFolder) -> dict[str, Any]:
    """What a fine-tuned run predicts, and for what, from its recipe."""
    task = parse_task(run.recipe.task, run.name)
    parts = task.each if isinstance(task, Multitask) else {}
    return {
        **_describe_labels(task),
        "tasks": [
            {"name": Path(name).name, "kind": part.config.kind, **_describe_labels(part)}
            for name, part in parts.items()
        ],
    }


def _describe_labels(task: AnyTask) -> dict[str, Any]:
    reads_pairs, has_numbers = (task.is_pair, task.is_numeric) if isinstance(task, TextTask) else (False, False)
    return {"labels": list(task.config.labels), "is_pair": reads_pairs, "is_numeric": has_numbers}


def _sketch(run: RunFolder) -> dict[str, Any]:
    """What a language model can do, from its network without its weights."""
    recipe = run.recipe
    tokenizer = load_tokenizer(run.path / "tokenizer.json")
    try:
        with torch.device("meta"):
            network = model_class(recipe.slug)(network_config(recipe), vocabulary(tokenizer, spellings=True))
            model = wrap_run(network, tokenizer, run)
            return _describe_model(model)
    except Exception:  # not every network can be built without memory: then these facts come with the weights
        return {"tokenizer": _describe_tokenizer(tokenizer)}
