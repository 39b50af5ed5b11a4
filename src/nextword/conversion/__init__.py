"""Convert models between formats. A run folder is in the middle: each format reads into one and writes from one, so a
new format is one module and one entry of FORMATS.

    SOURCE ── read ──→ run folder ── write ──→ TARGET

    convert("kn5.arpa.gz", "runs/kn5")
    convert("runs/kn5", "kn5.arpa")
    convert("bpe.arpa", "runs/bpe", tokenizer="spm.model")
    convert("runs/kn5", "runs/kn5-small", ["model.layout=compact", "model.bits=8"])
    convert("runs/stars", "runs/stars-small", ["model.bits=8"])
    convert("runs/bert", "runs/bert-small", to="int8")
    convert("downloads/gpt2", "runs/gpt2")
    convert("runs/gpt2-small", "my-gpt2", to="huggingface")
    convert("downloads/elmo", "runs/elmo")
    convert("runs/word2vec", "mine.vec.gz")

Nothing is overwritten, and a target appears under its name only when it is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from nextword.conversion import arpa, elmo, huggingface, word_vectors
from nextword.conversion.base import RUN_FORMAT, TOKENIZER_KEY, Conversion, Progress, check_changes, convert_run
from nextword.conversion.compact import compact
from nextword.core.errors import DataError, InvalidSetting, MissingFile, RunError, Unsupported, unknown
from nextword.core.scratch import scratch_folder
from nextword.models import model_class
from nextword.models.base import Network
from nextword.models.ngram import NGram
from nextword.models.storage import STORAGES
from nextword.ngrams.layouts import MAGIC
from nextword.run_folder import RunFolder, is_run


@dataclass(frozen=True)
class Format:
    key: str  # the value of `to`
    name: str
    known_by: str  # endings or files, for people
    is_source: Callable[[Path], bool]
    is_target: Callable[[Path], bool]  # by its name alone: it does not exist yet
    read: Callable[[Path, Path, Sequence[str], Progress], Conversion]  # file or folder → run folder, with changes
    write: Callable[[Path, Path, Sequence[str], Progress], Conversion]  # run folder → file or folder
    can_write: Callable[[RunFolder, type[Network]], bool]  # whether a run of this model has such a form
    is_folder: bool = False
    can_take_tokenizer: bool = False  # whether a source may lack its tokenizer


FORMATS = (
    Format(
        "arpa",
        arpa.NAME,
        arpa.KNOWN_BY,
        arpa.is_source,
        arpa.is_target,
        arpa.read,
        arpa.write,
        arpa.can_write,
        can_take_tokenizer=True,
    ),
    *(
        Format(
            key,
            module.NAME,
            module.KNOWN_BY,
            module.is_source,
            lambda path: False,  # a folder has no ending: it must be requested with `to`
            module.read,
            module.write,
            module.can_write,
            is_folder=True,
            can_take_tokenizer=module is huggingface,
        )
        for key, module in (("huggingface", huggingface), ("elmo", elmo))
    ),
    *(
        Format(
            word_vectors.SLUGS[has_header],
            word_vectors.NAMES[has_header],
            word_vectors.SUFFIXES[has_header],
            partial(word_vectors.is_source, has_header=has_header),
            partial(word_vectors.is_target, has_header=has_header),
            partial(word_vectors.read, has_header=has_header),
            partial(word_vectors.write, has_header=has_header),
            word_vectors.can_write,
        )
        for has_header in (True, False)
    ),
)
# Endings that are never those of a folder
OTHER_FILES = (".bin", ".binary", ".klm", ".mmap", ".ngram", ".fst", ".json", ".toml", ".safetensors", ".pt")
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
KENLM_MAGIC = b"mmap lm http://kheafield.com/code"


def convert(
    source: str | Path,
    target: str | Path,
    changes: Sequence[str] = (),
    progress: Progress | None = None,
    to: str = "",
    tokenizer: str | Path = "",
) -> Conversion:
    """Convert SOURCE to TARGET. The formats follow from the content of SOURCE and the name of TARGET, or from `to`.

    `to` is the key of one of the FORMATS, or one of the STORAGES: a run with rounded weights, which reading restores to
    float32. `changes` are settings such as "model.bits=8". `tokenizer` is a run or a tokenizer file for a SOURCE
    without one: an ARPA file of subwords, a Hugging Face folder.
    """
    source, target = Path(source), Path(target)
    progress = progress or (lambda label, done, total: None)
    source_format = _detect_source(source)
    if tokenizer:
        if source_format is None or not source_format.can_take_tokenizer:
            raise InvalidSetting(
                f"{source} has its own tokenizer; --tokenizer is for ARPA files and Hugging Face. Leave it out.",
                key="tokenizer",
                value=tokenizer,
            )
        changes = [*changes, f"{TOKENIZER_KEY}={tokenizer}"]
    if to in STORAGES and source_format is None:
        check_changes(changes, ())
        _check_target(target, is_file=False)
        return compact(source, target, to, progress)
    target_format = _requested_target(target, to) if to else _detect_target(target)
    _check_target(target, is_file=target_format is not None and not target_format.is_folder)
    if source_format is None and target_format is None:
        if not changes:
            _require_change(source, target)
        return convert_run(source, target, changes, progress)
    if source_format is None:
        assert target_format is not None
        return target_format.write(source, target, changes, progress)
    if target_format is None:
        return source_format.read(source, target, changes, progress)
    target.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(target.parent) as folder:
        reading = [change for change in changes if change.partition("=")[0].strip() == TOKENIZER_KEY]
        between = source_format.read(source, folder / "run", reading, progress)
        changes = [change for change in changes if change not in reading]
        result = target_format.write(between.target, target, changes, progress)
    return replace(result, notes=between.notes + result.notes, warnings=between.warnings)


def _require_change(source: Path, target: Path) -> None:
    """Raise if this run would only be copied; name the conversions that it has. N-grams get the default layout."""
    run = RunFolder.open(source)
    cls = model_class(run.recipe.slug)
    if issubclass(cls, NGram):
        return
    commands = [
        f"nextword convert {source} {target} --to {format.key}"
        if format.is_folder
        else f"nextword convert {source} {target}{format.known_by.split()[0]}"
        for format in FORMATS
        if format.can_write(run, cls)
    ]
    commands += [f"nextword convert {source} {target} --set model.bits=8 (int8 arithmetic)"] if cls.can_quantize else []
    commands += [f"nextword convert {source} {target} --to int8 (a smaller file)"]
    raise InvalidSetting(
        f"{source} is a run already, and no format is named. This {cls.__name__} can become: {'; '.join(commands)}.",
        key="to",
    )


def _check_target(target: Path, is_file: bool) -> None:
    """Refuse to overwrite; an empty folder may be filled."""
    if target.exists() and (not target.is_dir() or is_file or any(target.iterdir())):
        raise RunError(f"{target} exists already, and convert overwrites nothing. Choose another name.", path=target)
    parent = next((path for path in target.parents if path.exists()), target)
    if not parent.is_dir():
        raise RunError(f"Cannot create {target}: {parent} is a file, not a folder.", path=target)


def _detect_source(path: Path) -> Format | None:
    """The format of a file or folder; None for a run folder."""
    if is_run(path):
        return None
    if not path.exists():
        raise MissingFile(f"{path} does not exist. Give {_all_formats()}.", path=path)
    for format in FORMATS:
        if format.is_source(path):
            return format
    if path.is_dir():
        raise DataError(f"{path} is not a run folder: it has no manifest.json. Give {_all_formats()}.", path=path)
    if path.suffix in (".safetensors", ".bin", ".json") and any(format.is_source(path.parent) for format in FORMATS):
        raise DataError(f"{path} is one file of a model. Give its folder: {path.parent}.", path=path)
    with path.open("rb") as file:
        start = file.read(64)
    if start.startswith(KENLM_MAGIC):
        raise Unsupported(
            f"{path} is a KenLM binary, which only KenLM can read. Give the ARPA file it was built from.",
            ability="kenlm",
        )
    if start.startswith(MAGIC):
        raise DataError(f"{path} is a model without its tokenizer. Give its run folder.", path=path)
    raise DataError(f"{path} has an unknown format. Give {_all_formats()}.", path=path)


def _detect_target(path: Path) -> Format | None:
    """The format that belongs to the ending of the name; None for a run folder."""
    for format in FORMATS:
        if format.is_target(path):
            return format
    if path.name.lower().endswith(OTHER_FILES + COMPRESSED):
        raise DataError(
            f"{path}: no format with this ending can be written. Write {_all_formats()}.",
            path=path,
        )
    return None


def _requested_target(path: Path, to: str) -> Format:
    """The format with this key, if the name of the target allows it."""
    format = next((format for format in FORMATS if format.key == to), None)
    if format is None:
        raise unknown("format", to, [*(format.key for format in FORMATS), *STORAGES], where="--to")
    is_file_name = path.name.lower().endswith(OTHER_FILES + COMPRESSED) or any(f.is_target(path) for f in FORMATS)
    if format.is_folder and is_file_name:
        raise DataError(f"{path}: --to {to} writes a folder, but this name has the ending of a file.", path=path)
    return format


def _all_formats() -> str:
    return f"{RUN_FORMAT}, {', '.join(f'{format.name} ({format.known_by})' for format in FORMATS)}"
