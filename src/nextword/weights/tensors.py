"""Files of tensors as transformers lays them into a folder, in the order in which they are looked for.

    model.safetensors                   one file
    model.safetensors.index.json        several, and which tensor is in which
    pytorch_model.bin                   the same two as torch pickles
    pytorch_model.bin.index.json

A pickle can hold a program that runs when it is opened. These are opened so that nothing but tensors can come of them
(torch's weights_only); one that needs more is refused, and nothing of it has run.
"""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from nextword.contract_errors import NextwordError

SAFE, PICKLE, INDEX = "model.safetensors", "pytorch_model.bin", ".index.json"
FOREIGN = ("tf_model.h5", "flax_model.msgpack", "rust_model.ot", "adapter_model.safetensors")


class Tensors:
    """Tensors by name, over one file or several; those in safetensors are read when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.files, where = _files(folder)
        self._read: dict[str, Callable[[str], Tensor]] = {}
        for file in self.files:
            names, read = _safetensors(file) if file.name.endswith(".safetensors") else _pickle(file)
            self._read |= dict.fromkeys(names, read)
        if absent := [name for name in where if name not in self._read]:
            raise NextwordError(
                f"{folder}: the index names {len(absent):,} tensors that its files do not hold, the first of them "
                f"{absent[0]} in {where[absent[0]]}. Copy the folder again."
            )

    def names(self) -> Sequence[str]:
        return list(self._read)

    def get(self, name: str) -> Tensor:
        return self._read[name](name)


def _files(folder: Path) -> tuple[list[Path], dict[str, str]]:
    """The files, and which of them an index promises each tensor in."""
    for whole in (SAFE, PICKLE):
        if (folder / whole).is_file():
            return [folder / whole], {}
        if (folder / (whole + INDEX)).is_file():
            where = _index(folder / (whole + INDEX))
            return [folder / name for name in dict.fromkeys(where.values())], where
    found = [name for name in FOREIGN if (folder / name).is_file()]
    raise NextwordError(
        f"{folder} has no weights: looked for {SAFE} and {PICKLE}, in one file or with an index of several. "
        + (f"It has {', '.join(found)}, which is not read here: save it as safetensors." if found else "Copy it again.")
    )


def _index(path: Path) -> dict[str, str]:
    try:
        where = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        whole = bool(where) and all(isinstance(name, str) for pair in where.items() for name in pair)
    except (ValueError, TypeError, KeyError, AttributeError):
        whole = False
    if not whole:
        raise NextwordError(f"{path} is no index of tensors: expected JSON with a weight_map. Copy it again.")
    for name in dict.fromkeys(where.values()):
        if Path(name).name != name:
            raise NextwordError(f"{path} names the file {name!r}, which is not in its folder. It is not opened.")
        if not (path.parent / name).is_file():
            raise NextwordError(f"{path.parent} lacks {name}, which {path.name} names. Copy it again.")
    return dict(where)


def _safetensors(path: Path) -> tuple[list[str], Callable[[str], Tensor]]:
    try:
        file = safe_open(str(path), framework="pt", device="cpu")
        return list(file.keys()), file.get_tensor
    except (SafetensorError, OSError) as problem:
        raise NextwordError(f"{path} is no whole safetensors file ({problem}). Copy it again.") from None


def _pickle(path: Path) -> tuple[list[str], Callable[[str], Tensor]]:
    found: Any
    try:
        with warnings.catch_warnings():  # about pickles of unusual sorts, which are refused below
            warnings.simplefilter("ignore")
            # files of before 2020 are no archives, and cannot be mapped
            found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as problem:  # whatever a broken or forbidden pickle raises
        raise NextwordError(
            f"{path} cannot be read as weights alone: it is damaged, or holds something that is no tensor and might "
            f"run a program, which it did not ({_first_line(problem)}). Get the model as model.safetensors instead."
        ) from None
    if not isinstance(found, dict) or not all(isinstance(t, Tensor) and isinstance(n, str) for n, t in found.items()):
        raise NextwordError(f"{path} holds no table of tensors by name, which is what transformers saves.")
    return list(found), found.__getitem__


def _first_line(problem: Exception) -> str:
    line = (str(problem).splitlines() or [""])[0]
    return f"{type(problem).__name__}: {line[:100]}"
