"""The run folder as every conversion needs it: opened with its model, made whole or not at all, laid out anew."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nextword.core.errors import NextwordError, Unsupported
from nextword.core.protocols import Tokenizer
from nextword.models import count_parameters, model_class
from nextword.ngrams.trie import Trie
from nextword.recipe import Recipe, check_types, from_tables, to_tables
from nextword.run_folder import RunFolder
from nextword.tasks.settings import PROMPT, settings_of
from nextword.tokenizers import vocabulary
from nextword.tokenizers.loading import load_tokenizer

NAME = "a run folder"
LAYOUT = ("model.layout", "model.bits")  # what of a back-off model can be changed without estimating it again
LAST = ("manifest.json", "config.json")  # what makes a folder known for what it is
Progress = Callable[[str, float, float | None], None]


@dataclass(frozen=True)
class Made:
    """What came of a conversion."""

    target: Path
    format: str
    size: int  # bytes
    facts: dict[str, Any]  # in JSON's terms
    use: str  # a command to go on with
    notes: list[str] = field(default_factory=list)  # what the user should know of it


def is_run(path: Path) -> bool:
    return (path / "manifest.json").is_file()


@dataclass(frozen=True)
class Opened:
    """A run that was read: its model is whole and checked."""

    run: RunFolder
    recipe: Recipe
    tokenizer: Tokenizer
    network: Any


def open_run(path: Path, suits: Callable[[RunFolder, Any], None], headed: bool = False) -> Opened:
    """`suits` is asked first, with the model's class, and raises where the conversion is not for such a model. Of a run
    of a task it is the network alone or, `headed`, with its head."""
    run = RunFolder.open(path)
    recipe = run.recipe
    cls = model_class(recipe.slug)
    suits(run, cls)
    if not model_files(run):
        raise NextwordError(f"{path} has no model yet. Go on training with `nextword train --resume --out {path}`.")
    run.verify()
    tokenizer = load_tokenizer(run.path / "tokenizer.json")
    known = vocabulary(tokenizer, spellings=True)
    if headed and recipe.task:
        network = settings_of(recipe.task, str(path)).load(run.path, cls, recipe.model, known)
    else:
        network = cls.load(run.path, cls.Config(**recipe.model), known)
    return Opened(run, recipe, tokenizer, network)


def model_files(run: RunFolder) -> list[str]:
    return sorted(run.manifest.get("files", {}).keys() - {"recipe.toml", "tokenizer.json"})


def create_run(target: Path, recipe: Recipe, tokenizer: Tokenizer, network: Callable[[Path], Any], **facts: Any) -> int:
    """A finished run of a network, which is made when there is a folder for its scratch; its parameters."""
    with whole(target) as place:
        model = network(place)
        run = RunFolder.create(place / "run", recipe, tokenizer, **facts)
        parameters = count_parameters(model)
        run.save_model(model.save, finished=True, parameters=parameters)
        appear(run.path, target)
    return parameters


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """A hidden folder beside the target, or in it where it is there and empty; gone at the end, whatever happens."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target if target.is_dir() else target.parent, prefix=".new-") as name:
        yield Path(name)


def appear(made: Path, target: Path) -> None:
    """The folder appears under its name when it is whole; an empty one may be where someone stands, and is filled."""
    if not target.is_dir():
        os.rename(made, target)
        return
    for path in sorted(made.iterdir(), key=lambda path: path.name in LAST):
        os.rename(path, target / path.name)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


# ---------------------------------------------------------------------------------------------- tables of n-grams


@dataclass(frozen=True)
class BackOff:
    """A run of a model that is a table of n-grams, their probabilities and back-offs: it has `trie` and `of_trie`."""

    run: RunFolder
    recipe: Recipe
    tokenizer: Tokenizer
    trie: Trie


def open_backoff(path: Path) -> BackOff:
    found = open_run(path, _is_table)
    return BackOff(found.run, found.recipe, found.tokenizer, found.network.trie())


def _is_table(run: RunFolder, cls: Any) -> None:
    if not hasattr(cls, "trie"):
        raise Unsupported(
            f"{run.path} is a run of {cls.__name__}, which is no table of n-grams: neither an ARPA file nor another "
            f"layout holds it. Its weights are in {' and '.join(model_files(run)) or 'no file yet'}; some networks can "
            "be written for other programs with --to huggingface."
        )


def create_backoff(
    target: Path, recipe: Recipe, tokenizer: Tokenizer, trie: Trie, notes: Sequence[str] = (), **facts: Any
) -> Made:
    """The run appears under its name when it is whole; whatever stops it before leaves nothing behind."""
    settings = model_settings(recipe)

    def network(place: Path) -> Any:
        return model_class(recipe.slug).of_trie(trie, settings, vocabulary(tokenizer), place)

    create_run(target, recipe, tokenizer, network, **facts)
    return Made(target, NAME, size_of(target), counted(trie), f'nextword next {target} "the"', list(notes))


def relaid(source: Path, target: Path, changes: Sequence[str], progress: Progress) -> Made:
    """The same model in another layout. Its evaluations stay behind: with fewer bits it is another model."""
    refuse_changes(changes, LAYOUT)
    before = RunFolder.open(source)
    cls = model_class(before.recipe.slug)
    narrows = hasattr(cls, "narrowed")
    if changes and not narrows and not hasattr(cls, "trie"):
        raise Unsupported(
            f"{source} is a run of {cls.__name__}: neither another layout nor fewer bits are there for such a network. "
            "Tables of n-grams have layouts, and GPTs and AWD-LSTMs are read in eight bits."
        )
    if (before.recipe.task or {}).get("classifier") == PROMPT:
        raise Unsupported(
            f"{source} is a language model with a prompt before it. Convert the model that it was made of, and show "
            f"that the examples: nextword transfer {before.manifest.get('recipe')} --from CONVERTED --data X"
        )
    manifest = before.manifest
    recipe = from_tables(to_tables(before.recipe), str(manifest.get("recipe")), changes)
    model_settings(recipe)
    facts: dict[str, Any] = {key: manifest[key] for key in ("data", "texts") if key in manifest}
    facts["converted"] = {"from": source.name, "format": NAME, "files": manifest["files"]}
    if narrows:
        return _narrowed(source, target, recipe, progress, facts)
    found = open_backoff(source)
    progress(f"writing {target.name}", 0, None)
    return create_backoff(target, recipe, found.tokenizer, found.trie, **facts)


def _narrowed(source: Path, target: Path, recipe: Recipe, progress: Progress, facts: Mapping[str, Any]) -> Made:
    """A network with its weights in fewer bits, and with the head over it as it is."""
    found = open_run(source, lambda run, cls: None, headed=True)
    before, after = (int(r.model.get("bits", 0)) for r in (found.recipe, recipe))
    if before or not after:
        raise NextwordError(
            f"{source} has weights in {before or 32} bits, and --set model.bits=8 makes 8 of 32: there is nothing to "
            "change. Digits that were rounded away do not come back."
        )
    progress(f"writing {target.name}", 0, None)
    found.network.narrowed()
    parameters = create_run(target, recipe, found.tokenizer, lambda place: found.network, **facts)
    use = f"nextword predict {target} FILE" if recipe.task else f'nextword generate {target} "The" --length 60'
    return Made(target, NAME, size_of(target), shapes(parameters, recipe, found.tokenizer), use)


def shapes(parameters: int, recipe: Recipe, tokenizer: Tokenizer) -> dict[str, Any]:
    """What is told of a network."""
    return {"parameters": parameters, "vocabulary": len(tokenizer), "model": dict(recipe.model)}


def model_settings(recipe: Recipe) -> Any:
    cls = model_class(recipe.slug)
    check_types(recipe.model, cls.Config, f"{recipe.name}: in [model],")
    return cls.Config(**recipe.model)


def refuse_changes(changes: Iterable[str], known: Sequence[str]) -> None:
    """What the conversion does not know is an error, not a wish that nobody heard."""
    for change in changes:
        if change.partition("=")[0].strip() not in known:
            raise NextwordError(
                f"--set {change}: this conversion knows {', '.join(known)}. The rest is what the model was made with."
            )


def counted(trie: Trie) -> dict[str, Any]:
    return {"order": trie.order, "ngrams": [len(level) for level in trie.levels]}


def read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise NextwordError(f"{path} is no whole JSON file ({problem}). Copy it again.") from None
    if not isinstance(found, dict):
        raise NextwordError(f"{path} holds a JSON {type(found).__name__}, where settings by name were expected.")
    return found
