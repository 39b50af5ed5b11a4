"""Models in the formats of other programs. A run folder stands in the middle: each format reads into one and writes
from one, so a new format is one module and one line of the table.

    SOURCE ── read ──→ run folder ── write ──→ TARGET

    convert("kn5.arpa.gz", "runs/kn5")
    convert("runs/kn5", "kn5.arpa")
    convert("runs/kn5", "runs/kn5-small", ["model.layout=compact", "model.bits=8"])
    convert("runs/stars", "runs/stars-small", ["model.bits=8"])
    convert("downloads/gpt2", "runs/gpt2")
    convert("runs/gpt2-small", "my-gpt2", to="huggingface")
    convert("downloads/elmo", "runs/elmo")
    convert("runs/word2vec", "mine.vec.gz")

Nothing is overwritten, and what is written appears under its name when it is whole.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from nextword.convert import arpa, elmo, huggingface
from nextword.convert import base as run
from nextword.convert import word_vectors as vectors
from nextword.convert.base import Made, Progress, is_run
from nextword.core.errors import NextwordError
from nextword.ngrams.layouts import MAGIC


@dataclass(frozen=True)
class Format:
    key: str  # what `to` calls it
    name: str
    known_by: str  # its endings, for people
    is_source: Callable[[Path], bool]
    is_target: Callable[[Path], bool]  # by its name alone: it is not there yet
    read: Callable[[Path, Path, Sequence[str], Progress], Made]  # a file or folder → a run folder, with changes
    write: Callable[[Path, Path, Sequence[str], Progress], Made]  # a run folder → a file or folder
    folder: bool = False


FORMATS = (
    Format("arpa", arpa.NAME, arpa.ENDINGS, arpa.is_source, arpa.is_target, arpa.read, arpa.write),
    Format(
        "huggingface",
        huggingface.NAME,
        huggingface.KNOWN_BY,
        huggingface.is_source,
        lambda path: False,  # a folder has no ending: it is asked for
        huggingface.read,
        huggingface.write,
        folder=True,
    ),
    Format("elmo", elmo.NAME, elmo.KNOWN_BY, elmo.is_source, lambda path: False, elmo.read, elmo.write, folder=True),
    *(
        Format(
            vectors.SLUGS[header],
            vectors.NAMES[header],
            vectors.ENDINGS[header],
            partial(vectors.is_source, header=header),
            partial(vectors.is_target, header=header),
            partial(vectors.read, header=header),
            partial(vectors.write, header=header),
        )
        for header in (True, False)
    ),
)
# Names that are no folder's: whoever writes one means a file
OTHERS = (".bin", ".binary", ".klm", ".mmap", ".ngram", ".fst", ".json", ".toml", ".safetensors", ".pt")
PACKED = (".gz", ".bz2", ".xz", ".zst")
KENLM = b"mmap lm http://kheafield.com/code"


def convert(
    source: str | Path,
    target: str | Path,
    changes: Sequence[str] = (),
    progress: Progress | None = None,
    to: str = "",
) -> Made:
    """Make TARGET of SOURCE. What they are is seen from what SOURCE holds and from how TARGET is called, or from `to`.

    `to` is the key of one of the FORMATS.
    """
    source, target = Path(source), Path(target)
    progress = progress or (lambda label, done, total: None)
    before, after = _source(source), _asked(target, to) if to else _target(target)
    file = after is not None and not after.folder
    if target.exists() and (not target.is_dir() or file or any(target.iterdir())):
        raise NextwordError(
            f"{target} is there already, and nothing is overwritten. Choose another name, or remove it."
        )
    above = next((path for path in target.parents if path.exists()), target)
    if not above.is_dir():
        raise NextwordError(f"{target} cannot be made: {above} is a file, not a folder. Choose another name.")
    if before is None and after is None:
        return run.relaid(source, target, changes, progress)
    if before is None:
        assert after is not None
        return after.write(source, target, changes, progress)
    if after is None:
        return before.read(source, target, changes, progress)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as place:
        between = before.read(source, Path(place) / "run", (), progress)
        made = after.write(between.target, target, changes, progress)
    return replace(made, notes=between.notes + made.notes)


def _source(path: Path) -> Format | None:
    """The format of what is there; None for a run folder."""
    if not path.exists():
        raise NextwordError(
            f"There is no {path} to convert. Give {_all()}; `nextword runs` lists the runs that are here."
        )
    if is_run(path):
        return None
    for format in FORMATS:
        if format.is_source(path):
            return format
    if path.is_dir():
        raise NextwordError(f"{path} is a folder without manifest.json, so it is no run. Give {_all()}.")
    if path.suffix in (".safetensors", ".bin", ".json") and any(format.is_source(path.parent) for format in FORMATS):
        raise NextwordError(f"{path} is one file of a model. Give the folder that it lies in, {path.parent}.")
    with path.open("rb") as file:
        begins = file.read(64)
    if begins.startswith(KENLM):
        raise NextwordError(
            f"{path} is a binary of KenLM, which only KenLM reads. Give the ARPA file it was built from."
        )
    if begins.startswith(MAGIC):
        raise NextwordError(f"{path} is the model alone, without its tokenizer. Give the run folder that it lies in.")
    raise NextwordError(f"{path} is of no format that is known here. Give {_all()}.")


def _asked(path: Path, to: str) -> Format:
    """The format of this key, which the name must not gainsay."""
    format = next((format for format in FORMATS if format.key == to), None)
    if format is None:
        raise NextwordError(f"--to {to}: expected one of {', '.join(format.key for format in FORMATS)}.")
    if format.folder and (path.name.lower().endswith(OTHERS + PACKED) or any(f.is_target(path) for f in FORMATS)):
        raise NextwordError(f"{path}: {format.name} is written, and this is the name of a file. Leave its ending away.")
    return format


def _target(path: Path) -> Format | None:
    """The format that the name asks for; None for a run folder."""
    for format in FORMATS:
        if format.is_target(path):
            return format
    if path.name.lower().endswith(OTHERS + PACKED):
        raise NextwordError(
            f"{path}: no format that is written here has this ending. Give {_all()}; other names are new run folders."
        )
    return None


def _all() -> str:
    return " or ".join([run.NAME, *(f"{format.name} ({format.known_by})" for format in FORMATS)])
