"""Where, in which arithmetic, how compiled: device choice, mixed precision, and what of a GPU's arithmetic is used."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from nextword.core.errors import NextwordError, Unsupported
from nextword.core.types import Batch, Inputs
from nextword.recipe import Phase

PRECISIONS = ("fp32", "bf16", "int8")  # of weights that are read with

# Dense bf16 products a second, by the makers' data sheets
PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "4090": 165e12, "V100": 125e12}


def choose_device(name: str = "auto") -> torch.device:
    """`auto` is the GPU where there is one; asking for one that is not there is an error, never a silent CPU run."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise NextwordError(f"--device {name} is no device that nextword uses. Use cpu, cuda, cuda:1 or auto.")
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise NextwordError(
            f"--device {name} was asked for, but torch {torch.__version__} sees {torch.cuda.device_count()} CUDA "
            "devices here. Use --device cpu, or install a CUDA build of torch."
        )
    return device


def narrowed(network: Any, precision: str) -> Any:
    """A network to read with, its weights in "fp32", as they are; in "bf16", half the memory, and where products in
    16 bits are quick, as on a GPU, less time, with three digits of each number; or in "int8" (layers/eight_bits.py).
    """
    if precision not in PRECISIONS:
        raise NextwordError(f"precision {precision!r}: expected {', '.join(PRECISIONS[:-1])} or {PRECISIONS[-1]}.")
    if precision == "fp32":
        return network
    below = getattr(network, "encoder", network)  # without a head
    if not isinstance(network, torch.nn.Module) or not any(True for _ in network.parameters()):
        raise NextwordError(f"{type(below).__name__} has no weights to round to {precision}. Leave the precision out.")
    if getattr(below.config, "bits", 0):
        raise NextwordError("The weights of this run are in eight bits already. Leave the precision out.")
    if precision == "bf16":
        return network.to(torch.bfloat16)
    if not hasattr(below, "narrowed"):
        raise Unsupported(
            f"precision 'int8': {type(below).__name__} is not read in eight bits; GPTs and AWD-LSTMs are. Leave the "
            "precision out."
        )
    below.narrowed()
    return network


@contextlib.contextmanager
def arithmetic(precision: str, device: torch.device) -> Iterator[None]:
    """fp32 is exact; tf32 lets a GPU round the products' operands; bf16 computes in 16 bits over fp32 weights."""
    if precision in ("fp32", "tf32") and device.type == "cuda":
        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = precision == "tf32"  # torch's default rounds in recurrent layers
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before[0])
            torch.backends.cudnn.allow_tf32 = before[1]
    elif precision == "bf16":
        with torch.autocast(device.type, torch.bfloat16):
            yield
    else:
        yield


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def placed(batch: Batch, device: torch.device) -> Batch:
    """A batch where the network is."""
    if device.type == "cpu":
        return batch
    rest = {name: _moved(getattr(batch, name), device) for name in ("targets", "at", "pair")}
    return replace(batch, inputs=_moved(batch.inputs, device), **rest)


def _moved(part: Any, device: torch.device) -> Any:
    """Through pinned memory, so that nobody waits for the copy: an ordinary one waits for all work before it."""
    if isinstance(part, Inputs):
        return Inputs(**{name: _moved(value, device) for name, value in vars(part).items()})
    if not isinstance(part, torch.Tensor) or part.is_cuda:
        return part
    return part.pin_memory().to(device, non_blocking=True)


def fitted_out(network: Any, phase: Phase, device: torch.device) -> None:
    """A network made ready for a phase that asks for compiling or for computing activations again."""
    if getattr(getattr(network, "encoder", network).config, "bits", 0):
        raise NextwordError(
            "[model] bits = 8 is for reading: eight bits cannot be trained. Leave it out of the recipe."
        )
    wanted = {"compile": "compile_training", "checkpointing": "checkpointing"}
    for key, needed in wanted.items():
        if getattr(phase, key) and not hasattr(network, needed):
            raise NextwordError(
                f"Phase '{phase.name}': {key} = true is for networks of attention blocks; {type(network).__name__} has "
                "none. Leave it out of the recipe."
            )
    if hasattr(network, "checkpointing"):
        network.checkpointing = phase.checkpointing
    if phase.compile and device.type == "cuda":
        network.compile_training()


def utilisation(network: Any, tokens_per_second: float, length: int, device: torch.device) -> float | None:
    """The share of the GPU's peak that training's own products make use of (MFU), where both are known."""
    if device.type != "cuda" or not hasattr(network, "work"):
        return None
    name = torch.cuda.get_device_name(device)
    peak = next((peak for known, peak in PEAKS.items() if known in name), None)
    return None if peak is None else network.work(length) * tokens_per_second / peak
