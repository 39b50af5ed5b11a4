"""Weights in files: float32, or a half, a quarter or an eighth of it. Reading restores float32, for further training.

    fp32    as trained
    bf16    the upper half of each number
    int8    each row of a matrix as integers from −127 to 127 times a scale
    int4    each row of the difference from a starter model as integers from −7 to 7 times a scale, two in a byte; the
            file has the checksum of that model (`base`), whose tensors are read first

Vectors and scales stay in float32. `[model] bits = 8` is something else: a network that computes in int8, and cannot be
trained (layers/quantized.py).

A run may come from a stranger, whose recipe may claim sizes that its file does not have. So before memory is allocated
for a network, it is built without memory and compared with the header of the file (`check_weights`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.overrides import TorchFunctionMode

from nextword.core.errors import DataError, NextwordError, RunError, unknown
from nextword.core.named_models import starter_folder, starter_names

FILE = "model.safetensors"
SCALE = "::scale"  # suffix of the scales of a matrix of integers; no module can have such a name
DIFFERENCE = "::difference"  # suffix of the packed integers of a difference
DTYPES = {  # of safetensors, those that networks have
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
CALLS_PER_TENSOR = 20  # of torch, at most, to build the layers of a network; a tensor takes about six
CALLS_PER_NETWORK = 1000
MOST_TENSORS = 10_000  # of a network; GPT-3 with 175 billion parameters has 1,156
FILLING = ("normal_", "uniform_", "zero_", "zeros_", "ones_", "fill_", "constant_", "mul_", "copy_", "index_fill_")
MAX_NAMED = 5  # tensors in an error
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
    with _open_safetensors(file) as opened:
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


def load_checked_weights(file: Path) -> dict[str, Tensor]:
    """Read tensors; raise RunError if a number is infinite or none (NaN)."""
    tensors = load_weights(file)
    for name, tensor in tensors.items():
        # The sum needs no memory; it is finite unless a number is not, or the numbers are absurdly large
        if tensor.is_floating_point() and not tensor.sum().isfinite() and not tensor.isfinite().all():
            raise _damaged(file, f"{name} has numbers that are infinite, or none (NaN)")
    return tensors


# ------------------------------------------------------------------------------------------------ before loading


def check_weights(file: Path, build: Callable[[], Mapping[str, Tensor]]) -> None:
    """Raise RunError unless the file has exactly the tensors of a network, with their shapes and types.

    `build` builds the network and returns its tensors. It gets tensors without memory ("meta"), and is stopped when it
    builds more layers than the file can have.
    """
    stored = _read_header(file)
    with building_without_memory(len(stored), file.parent / "recipe.toml", RunError):
        expected = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in build().items()}
    wrong = sorted(name for name in {**stored, **expected} if stored.get(name) != expected.get(name))
    if wrong:
        raise RunError(
            f"The weights in {file} do not match the recipe: {', '.join(wrong[:MAX_NAMED])}. One of the two was "
            "changed after training; restore it.",
            path=file,
        )


@contextmanager
def building_without_memory(
    num_tensors: int, settings: Path, error_type: type[RunError] | type[DataError]
) -> Iterator[None]:
    """Build a network with "meta" tensors here. Raise if it needs many more than `num_tensors`, or cannot be built.

    `settings` is the file that describes the network.
    """
    try:
        with torch.device("meta"), _LimitCalls(CALLS_PER_NETWORK + CALLS_PER_TENSOR * min(num_tensors, MOST_TENSORS)):
            yield
    except NextwordError:
        raise
    except _TooManyCalls:
        problem = "a network with more layers than there are weights for"
        raise error_type(f"{settings} describes {problem}. Restore the folder from a copy.", path=settings) from None
    except Exception as error:  # whatever torch or Python makes of an absurd setting
        problem = f"no network that can be built ({type(error).__name__}: {str(error).strip()[:100]})"
        raise error_type(f"{settings} describes {problem}. Restore the folder from a copy.", path=settings) from error


class _TooManyCalls(Exception):
    pass


class _LimitCalls(TorchFunctionMode):
    """Count the calls of torch in this thread, of which a layer needs some, and fill no tensors."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.left = most

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch._C._set_grad_enabled:  # must not raise: it would leave gradients disabled for everyone
            return func(*args, **kwargs)
        self.left -= 1
        if self.left < 0:
            raise _TooManyCalls
        if func.__name__ in FILLING:  # there is nothing to fill, and torch would import its compiler for it (a second)
            tensor = args[0] if args else kwargs["tensor"]
            if tensor.is_meta:
                return tensor
        return func(*args, **kwargs)


def _read_header(file: Path) -> dict[str, tuple[tuple[int, ...], torch.dtype | None]]:
    """Shape and type of each tensor that `load_weights` returns, without reading any."""
    with _open_safetensors(file) as opened:
        metadata = opened.metadata() or {}
        slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 (it is no dictionary)
        stored = {name: (tuple(part.get_shape()), DTYPES.get(part.get_dtype())) for name, part in slices.items()}
    if "storage" not in metadata:
        return stored
    restored = _read_header(_base_file(file, metadata)) if "base" in metadata else {}
    for name, (shape, dtype) in stored.items():
        if name.endswith(DIFFERENCE):
            name = name.removesuffix(DIFFERENCE)
            base_shape = restored[name][0] if name in restored else ()
            if shape != (torch.Size(base_shape).numel() // 2,) or dtype != torch.int8:
                raise _damaged(file, f"{name} is a difference from no tensor of the starter model")
            _check_scale(file, name, base_shape, stored)
        elif name + SCALE in stored:
            _check_scale(file, name, shape, stored)
            restored[name] = shape, torch.float32
        elif not name.endswith(SCALE):
            restored[name] = shape, torch.float32 if dtype is not None and dtype.is_floating_point else dtype
    return restored


def _check_scale(file: Path, name: str, shape: tuple[int, ...], stored: Mapping[str, Any]) -> None:
    if stored.get(name + SCALE) != (shape[:1], torch.float32):
        raise _damaged(file, f"the scales of {name} do not match it")


@contextmanager
def _open_safetensors(file: Path) -> Iterator[Any]:
    try:
        with safe_open(str(file), framework="pt") as opened:
            yield opened
    except (SafetensorError, OSError) as error:
        raise _damaged(file, str(error)) from None


def _damaged(file: Path, problem: str) -> RunError:
    return RunError(f"{file} is not a complete file of weights ({problem}). Restore it, or train again.", path=file)


# ------------------------------------------------------------------------------------------------ rounding


def _round_rows(matrix: Tensor, largest: int) -> tuple[Tensor, Tensor]:
    """Integers of at most this size (N, …), and the scale of each row (N,)."""
    rows = matrix.float().flatten(1)
    scale = rows.abs().amax(1).clamp(min=1e-12) / largest
    return (rows / scale.unsqueeze(1)).round().to(torch.int8).view(matrix.shape), scale


def _scale_rows(rows: Tensor, scale: Tensor) -> Tensor:
    return rows.float() * scale.view(-1, *[1] * (rows.dim() - 1))


def _base_weights(file: Path, metadata: Mapping[str, str]) -> dict[str, Tensor]:
    """The tensors of the model from which a file stores differences."""
    return load_weights(_base_file(file, metadata)) if "base" in metadata else {}


def _base_file(file: Path, metadata: Mapping[str, str]) -> Path:
    """The weights of the starter model from which a file stores differences."""
    if metadata["base"] not in starter_names():
        raise unknown("starter model", metadata["base"], starter_names(), where=str(file))
    base_file = starter_folder(metadata["base"]) / FILE
    if _sha256(base_file) != metadata.get("base_sha256"):
        raise RunError(
            f"{file} stores differences from another version of {metadata['base']} than the one that is installed. "
            "Install the two from the same release.",
            path=file,
        )
    return base_file


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
