"""The run folder as every conversion needs it: opened with its model, made whole or not at all, laid out anew."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nextword.checkpoint import RunFolder
from nextword.contract import NextwordError, Tokenizer, Unsupported
from nextword.models import count_parameters, model_class
from nextword.ngrams.trie import Trie
from nextword.recipe import Recipe, check_types, from_tables, to_tables
from nextword.tokens import load_tokenizer, vocabulary

NAME = "a run folder"
LAYOUT = ("model.layout", "model.bits")  # what of a back-off model can be changed without estimating it again
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
class BackOff:
    """A run of a model that is a table of n-grams, their probabilities and back-offs: it has `trie` and `of_trie`."""

    run: RunFolder
    recipe: Recipe
    tokenizer: Tokenizer
    trie: Trie


def open_backoff(path: Path) -> BackOff:
    run = RunFolder.open(path)
    recipe = run.recipe
    cls = model_class(recipe.slug)
    files = sorted(run.manifest.get("files", {}).keys() - {"recipe.toml", "tokenizer.json"})
    if not hasattr(cls, "trie"):
        raise Unsupported(
            f"{path} is a run of {cls.__name__}, which is no table of n-grams: neither an ARPA file nor another layout "
            f"holds it. There is no other format for it yet; its weights are in {' and '.join(files) or 'no file yet'}."
        )
    if not files:
        raise NextwordError(f"{path} has no model yet. Go on training with `nextword train --resume --out {path}`.")
    run.verify()
    tokenizer = load_tokenizer(run.path / "tokenizer.json")
    network = cls.load(run.path, cls.Config(**recipe.model), vocabulary(tokenizer, spellings=True))
    return BackOff(run, recipe, tokenizer, network.trie())


def create_backoff(
    target: Path, recipe: Recipe, tokenizer: Tokenizer, trie: Trie, notes: Sequence[str] = (), **facts: Any
) -> Made:
    """The run appears under its name when it is whole; whatever stops it before leaves nothing behind."""
    settings = model_settings(recipe)
    target.parent.mkdir(parents=True, exist_ok=True)
    empty = target.is_dir()  # it may be where someone stands, or another disk: then it is filled, not replaced
    with tempfile.TemporaryDirectory(dir=target if empty else target.parent, prefix=".new-") as name:
        place = Path(name)
        network = model_class(recipe.slug).of_trie(trie, settings, vocabulary(tokenizer), place)
        run = RunFolder.create(place / "run", recipe, tokenizer, **facts)
        run.save_model(network.save, finished=True, parameters=count_parameters(network))
        if empty:
            for path in sorted(run.path.iterdir(), key=lambda path: path.name == "manifest.json"):
                os.rename(path, target / path.name)
        else:
            os.rename(run.path, target)
    size = sum(path.stat().st_size for path in target.iterdir() if path.is_file())
    return Made(target, NAME, size, counted(trie), f'nextword next {target} "the"', list(notes))


def relaid(source: Path, target: Path, changes: Sequence[str], progress: Progress) -> Made:
    """The same model in another layout. Its evaluations stay behind: with fewer bits it is another model."""
    refuse_changes(changes, LAYOUT)
    before = RunFolder.open(source)
    manifest = before.manifest
    recipe = from_tables(to_tables(before.recipe), str(manifest.get("recipe")), changes)
    model_settings(recipe)
    found = open_backoff(source)
    progress(f"writing {target.name}", 0, None)
    facts = {key: manifest[key] for key in ("data", "texts") if key in manifest}
    origin = {"from": source.name, "format": NAME, "files": manifest["files"]}
    return create_backoff(target, recipe, found.tokenizer, found.trie, converted=origin, **facts)


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
