"""What every conversion needs: run folders that are opened with their model, created completely or not at all, and
converted to another layout or to int8 weights.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nextword.core.errors import InvalidSetting, RunError, Unsupported, invalid, unknown
from nextword.core.scratch import scratch_folder
from nextword.models import model_class
from nextword.models.base import Network
from nextword.models.ngram import NGram
from nextword.ngrams.trie import Trie
from nextword.recipe import Recipe, network_config, parse_recipe, recipe_tables
from nextword.run_folder import RunFolder
from nextword.tasks import parse_task
from nextword.tokenizers import vocabulary
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.loading import load_tokenizer

RUN_FORMAT = "a run folder"
LAYOUT_KEYS = ("model.layout", "model.bits")  # what of an n-gram model can change without estimating it again
TOKENIZER_KEY = "tokenizer.load"  # the path of a tokenizer, for a source that does not come with its own
COMPLETING_FILES = ("manifest.json", "config.json")  # moved last: they make a folder a run, or a model
Progress = Callable[[str, float, float | None], None]  # label, done, total


@dataclass(frozen=True)
class Conversion:
    """The result of a conversion."""

    target: Path
    format: str
    size: int  # bytes
    facts: dict[str, Any]  # for JSON
    use: str  # a command to try it with
    notes: list[str] = field(default_factory=list)  # for the user
    warnings: list[str] = field(default_factory=list)  # why the result may be useless


# ------------------------------------------------------------------------------------------------ opening runs


@dataclass(frozen=True)
class OpenedRun:
    """A run with its verified model."""

    run: RunFolder
    recipe: Recipe
    tokenizer: Tokenizer
    network: Any  # a Network, or one with a task head


def open_run(path: Path, check: Callable[[RunFolder, type[Network]], None], with_head: bool = False) -> OpenedRun:
    """Open a run and load its network; of a task's run the encoder alone, or the whole model (`with_head`).

    `check` gets the run and the model's class first, and raises if the conversion is not for such a model.
    """
    run = RunFolder.open(path)
    recipe = run.recipe
    cls = model_class(recipe.slug)
    check(run, cls)
    if not model_files(run):
        raise RunError(f"{path} has no model yet. Resume it: nextword train --resume --out {path}.", path=path)
    run.verify()
    tokenizer = load_tokenizer(run.path / "tokenizer.json")
    words = vocabulary(tokenizer, spellings=True)
    network: Any
    if with_head and recipe.task:
        network = parse_task(recipe.task, str(path)).load_model(run.path, cls, network_config(recipe), words)
    else:
        network = cls.load(run.path, network_config(recipe), words)
    return OpenedRun(run, recipe, tokenizer, network)


def model_files(run: RunFolder) -> list[str]:
    return sorted(run.manifest.get("files", {}).keys() - {"recipe.toml", "tokenizer.json"})


# ------------------------------------------------------------------------------------------------ creating folders


def create_run(
    target: Path, recipe: Recipe, tokenizer: Tokenizer, build: Callable[[Path], Network], **facts: Any
) -> int:
    """Create a finished run and return its number of parameters. `build` gets a scratch folder, returns the network."""
    with temporary_folder(target) as scratch:
        network = build(scratch)
        run = RunFolder.create(scratch / "run", recipe, tokenizer, **facts)
        num_parameters: int = network.num_parameters()
        run.save_model(network.save, finished=True, parameters=num_parameters)
        move_into_place(run.path, target)
    return num_parameters


def describe_origin(source: Path, format: str, recipe: Recipe, **checksums: object) -> dict[str, Any]:
    """What the manifest of a run says about a model that was trained elsewhere."""
    data = {phase.name: f"unknown; the model was read from {source.name}" for phase in recipe.phases}
    return {"data": data, "converted": {"from": source.name, "format": format, **checksums}}


@contextmanager
def temporary_folder(target: Path) -> Iterator[Path]:
    """A hidden folder next to the target, or inside it if it is an empty folder; removed at the end."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(target if target.is_dir() else target.parent) as folder:
        yield folder


def move_into_place(folder: Path, target: Path) -> None:
    """Give a complete folder its name. An empty target is filled, since it may be somebody's working directory."""
    if not target.is_dir():
        os.rename(folder, target)
        return
    for path in sorted(folder.iterdir(), key=lambda path: path.name in COMPLETING_FILES):
        os.rename(path, target / path.name)


def folder_size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


# ------------------------------------------------------------------------------------------------ n-gram models


def open_ngrams(path: Path) -> tuple[OpenedRun, Trie]:
    """A run whose model is a table of n-grams, and the table."""
    run = open_run(path, _require_ngrams)
    return run, run.network.trie()


def _require_ngrams(run: RunFolder, cls: type[Network]) -> None:
    if not issubclass(cls, NGram):
        raise Unsupported(
            f"{run.path} is a run of {cls.__name__}, not a table of n-grams, so it has no ARPA form. Neural networks "
            "can be written with --to huggingface, where transformers has the same network.",
            ability="arpa",
        )


def create_ngram_run(
    target: Path, recipe: Recipe, tokenizer: Tokenizer, trie: Trie, notes: Sequence[str] = (), **facts: Any
) -> Conversion:
    settings = network_config(recipe)

    def build(scratch: Path) -> Network:
        return NGram.of_trie(trie, settings, vocabulary(tokenizer), scratch)

    create_run(target, recipe, tokenizer, build, **facts)
    use = f'nextword next {target} "the"'
    return Conversion(target, RUN_FORMAT, folder_size(target), ngram_facts(trie), use, list(notes))


def ngram_facts(trie: Trie) -> dict[str, Any]:
    return {"order": trie.order, "ngrams": [len(level) for level in trie.levels]}


# ------------------------------------------------------------------------------------------------ run → run


def convert_run(source: Path, target: Path, changes: Sequence[str], progress: Progress) -> Conversion:
    """The same model in another layout or with int8 weights. Its evaluations are not copied: it is another model."""
    check_changes(changes, LAYOUT_KEYS)
    run = RunFolder.open(source)
    cls = model_class(run.recipe.slug)
    if changes and not cls.can_quantize and not issubclass(cls, NGram):
        raise Unsupported(
            f"{source} is a run of {cls.__name__}, which has neither other layouts nor int8 weights. N-gram models "
            "have layouts; GPTs and AWD-LSTMs have int8 weights.",
            ability="layout",
        )
    if run.recipe.task and not parse_task(run.recipe.task, str(source)).trains:
        raise Unsupported(
            f"{source} is a language model with a prompt. Convert the language model, then repeat: nextword transfer "
            f"{run.manifest.get('recipe')} --from CONVERTED --data X",
            ability="prompt",
        )
    manifest = run.manifest
    recipe = parse_recipe(recipe_tables(run.recipe), str(manifest.get("recipe")), changes)
    network_config(recipe)
    facts: dict[str, Any] = {key: manifest[key] for key in ("data", "texts") if key in manifest}
    facts["converted"] = {"from": source.name, "format": RUN_FORMAT, "files": manifest["files"]}
    if cls.can_quantize:
        return _quantize(source, target, recipe, progress, facts)
    opened, trie = open_ngrams(source)
    progress(f"writing {target.name}", 0, None)
    return create_ngram_run(target, recipe, opened.tokenizer, trie, **facts)


def _quantize(source: Path, target: Path, recipe: Recipe, progress: Progress, facts: Mapping[str, Any]) -> Conversion:
    """The network with int8 weights; a task head stays as it is."""
    opened = open_run(source, lambda run, cls: None, with_head=True)
    before, after = (int(r.model.get("bits", 0)) for r in (opened.recipe, recipe))
    if before or not after:
        raise InvalidSetting(
            f"{source} has {before or 32}-bit weights; only 32 bits can become 8 (--set model.bits=8).",
            key="model.bits",
            value=after,
        )
    progress(f"writing {target.name}", 0, None)
    opened.network.quantize()
    num_parameters = create_run(target, recipe, opened.tokenizer, lambda scratch: opened.network, **facts)
    use = f"nextword predict {target} FILE" if recipe.task else f'nextword generate {target} "The" --max-tokens 60'
    network = network_facts(num_parameters, recipe, opened.tokenizer)
    return Conversion(target, RUN_FORMAT, folder_size(target), network, use)


def network_facts(num_parameters: int, recipe: Recipe, tokenizer: Tokenizer) -> dict[str, Any]:
    return {"parameters": num_parameters, "vocabulary": len(tokenizer), "model": dict(recipe.model)}


# ------------------------------------------------------------------------------------------------ settings


def check_changes(changes: Iterable[str], known: Sequence[str]) -> None:
    """Refuse a --set that this conversion would ignore."""
    for change in changes:
        key = change.partition("=")[0].strip()
        if key not in known:
            hint = f"This conversion can change {' and '.join(known)}." if known else "Leave --set out."
            raise unknown("setting", key, known, where=f"--set {change}", hint=hint)


def take_tokenizer(changes: Sequence[str]) -> tuple[str, list[str]]:
    """The path of the tokenizer that is asked for, "" if none is, and the other changes."""
    by_key = [(change.partition("=")[0].strip() == TOKENIZER_KEY, change) for change in changes]
    path = last_value([change for is_path, change in by_key if is_path], "").strip("\"'")
    return path, [change for is_path, change in by_key if not is_path]


def last_value(changes: Sequence[str], default: str, allowed: Collection[str] | None = None) -> str:
    """The value of the last change, where only one key is possible."""
    value = [default, *(change.partition("=")[2].strip() for change in changes)][-1]
    if allowed is not None and value not in allowed:
        key = changes[-1].partition("=")[0].strip()
        raise invalid(key, value, f"must be one of {', '.join(allowed)}.", "--set")
    return value


def require_bool(recipe: Recipe, key: str) -> None:
    """Check a true-or-false key of [tokenizer]."""
    value = recipe.tokenizer.get(key, False)
    if not isinstance(value, bool):
        raise invalid(f"tokenizer.{key}", value, "must be true or false.", "--set")
