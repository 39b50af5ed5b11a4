"""Weights in files: float32, or a half, a quarter or an eighth of it. Reading restores float32, for further training.

    fp32    as trained
    bf16    the upper half of each number
    int8    each row of a matrix as integers from −127 to 127 times a scale
    int4    each row of the difference from a starter model as integers from −7 to 7 times a scale, two in a byte; the
            file has the checksum of that model (`base`), whose tensors are read first

Vectors and scales stay in float32. `[model] bits = 8` is something else: a network that computes in int8, and cannot be
trained (layers/quantized.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from nextword.core.errors import RunError
from nextword.core.named_models import starter_folder

FILE = "model.safetensors"
SCALE = "::scale"  # suffix of the scales of a matrix of integers; no module can have such a name
DIFFERENCE = "::difference"  # suffix of the packed integers of a difference
STORAGES = {"bf16": "bf16", "int8": "int8", "int4": "4-bit differences from a starter model"}


def save_weights(tensors: Mapping[str, Tensor], file: Path, storage: str, base: str = "") -> None:
    """Write tensors in one of the STORAGES; with int4, those that `base` lacks are stored as int8."""
    metadata = {"storage": storage}
    shared: Mapping[str, Tensor] = {}
    if storage == "int4":
        base_file = starter_folder(base) / FILE
        shared = load_weights(base_file)
        if tensors.keys() & shared.keys():  # a task head has a file of its own
            metadata |= {"base": base, "base_sha256": _sha256(base_file)}
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu()
        if name in shared and torch.equal(tensor, shared[name]):
            continue
        if not tensor.is_floating_point() or (tensor.dim() < 2 and storage != "bf16"):
            stored[name] = tensor.contiguous()
        elif storage == "bf16":
            stored[name] = tensor.to(torch.bfloat16).contiguous()
        elif name in shared and tensor.shape == shared[name].shape and not tensor[0].numel() % 2:
            rows, stored[name + SCALE] = _round_rows(tensor - shared[name], 7)
            low, high = rows.flatten().view(-1, 2).unbind(1)
            stored[name + DIFFERENCE] = ((low & 15) | (high << 4)).contiguous()
        else:
            stored[name], stored[name + SCALE] = _round_rows(tensor, 127)
    save_file(stored, str(file), metadata)


def load_weights(file: Path) -> dict[str, Tensor]:
    """Read tensors; those of a rounded file as float32."""
    with safe_open(str(file), framework="pt") as opened:
        metadata = opened.metadata() or {}
        stored = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (it is no dictionary)
    if "storage" not in metadata:
        return stored
    restored = _base_weights(file, metadata)
    for name, tensor in stored.items():
        if name.endswith(DIFFERENCE):
            name = name.removesuffix(DIFFERENCE)
            rows = torch.stack((tensor << 4 >> 4, tensor >> 4), 1).view(restored[name].shape)
            restored[name] = restored[name] + _scale_rows(rows, stored[name + SCALE])
        elif name + SCALE in stored:
            restored[name] = _scale_rows(tensor, stored[name + SCALE])
        elif not name.endswith(SCALE):
            restored[name] = tensor.float() if tensor.is_floating_point() else tensor
    return restored


def _round_rows(matrix: Tensor, largest: int) -> tuple[Tensor, Tensor]:
    """Integers of at most this size (N, …), and the scale of each row (N,)."""
    rows = matrix.float().flatten(1)
    scale = rows.abs().amax(1).clamp(min=1e-12) / largest
    return (rows / scale.unsqueeze(1)).round().to(torch.int8).view(matrix.shape), scale


def _scale_rows(rows: Tensor, scale: Tensor) -> Tensor:
    return rows.float() * scale.view(-1, *[1] * (rows.dim() - 1))


def _base_weights(file: Path, metadata: Mapping[str, str]) -> dict[str, Tensor]:
    """The tensors of the model from which a file stores differences."""
    if "base" not in metadata:
        return {}
    base_file = starter_folder(metadata["base"]) / FILE
    if _sha256(base_file) != metadata["base_sha256"]:
        raise RunError(
            f"{file} stores differences from another version of {metadata['base']} than the one that is installed. "
            "Install the two from the same release.",
            path=file,
        )
    return load_weights(base_file)


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
