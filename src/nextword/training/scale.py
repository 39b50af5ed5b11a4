"""Where and in which arithmetic: device choice and mixed precision."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from nextword.contract import NextwordError


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


@contextlib.contextmanager
def arithmetic(precision: str, device: torch.device) -> Iterator[None]:
    """fp32 as it is; tf32 lets a GPU round the products' operands; bf16 computes in 16 bits over fp32 weights."""
    if precision == "tf32" and device.type == "cuda":
        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
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
