"""Devices and number formats: which device to use, mixed precision, quantization, and how much of a GPU is used."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

import torch

from nextword.core.errors import InvalidSetting, Unsupported, invalid
from nextword.core.types import Batch, Inputs
from nextword.models.base import Network
from nextword.recipe import Phase

WEIGHT_PRECISIONS = ("fp32", "bf16", "int8")  # of a model in use; training has fp32 weights

# Peak bf16 FLOP/s of dense matrix products, from the data sheets
PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "4090": 165e12, "V100": 125e12}

N = TypeVar("N", bound=Network)


def choose_device(name: str = "auto") -> torch.device:
    """`auto` is the GPU if there is one. A GPU that was named but is missing is an error, never a silent CPU run."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise InvalidSetting(f"There is no device '{name}'. Use cpu, cuda, cuda:1 or auto.", key="device", value=name)
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise InvalidSetting(
            f"Device '{name}' is not available: torch {torch.__version__} sees {torch.cuda.device_count()} GPUs. Use "
            "--device cpu, or install a CUDA build of torch.",
            key="device",
            value=name,
        )
    return device


def cpu_has_bf16() -> bool:
    """Whether the CPU has instructions for products of 16-bit numbers (AVX512-BF16 or AMX)."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# ------------------------------------------------------------------------------------------------ batches


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Copy a batch to a GPU through pinned memory: an ordinary copy would wait for all work before it."""
    if device.type == "cpu":
        return batch
    return replace(
        batch,
        inputs=_inputs_to_device(batch.inputs, device),
        targets=_to_device(batch.targets, device),
        target_positions=_to_device(batch.target_positions, device),
        pair_labels=_to_device(batch.pair_labels, device),
    )


def _inputs_to_device(inputs: Inputs, device: torch.device) -> Inputs:
    fields: dict[str, Any] = {
        name: _inputs_to_device(value, device) if isinstance(value, Inputs) else _to_device(value, device)
        for name, value in vars(inputs).items()
    }
    return Inputs(**fields)


T = TypeVar("T")


def _to_device(value: T, device: torch.device) -> T:
    if not isinstance(value, torch.Tensor) or value.is_cuda:
        return value
    return value.pin_memory().to(device, non_blocking=True)  # type: ignore[return-value]


# ------------------------------------------------------------------------------------------------ precision


@contextlib.contextmanager
def autocast(precision: str, device: torch.device) -> Iterator[None]:
    """Set the precision of matrix products. The weights are fp32 throughout.

    fp32 is exact; tf32 lets a GPU round the operands; bf16 computes in 16 bits.
    """
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


def quantize(network: N, precision: str) -> N:
    """Convert the weights of a trained network, in place.

    fp32    as trained
    bf16    half the memory, three significant digits; faster where 16-bit products are fast, as on a GPU
    int8    a quarter of the memory (layers/quantized.py)
    """
    if precision not in WEIGHT_PRECISIONS:
        raise invalid("precision", precision, f"must be one of {', '.join(WEIGHT_PRECISIONS)}.")
    if precision == "fp32":
        return network
    name = type(network.base).__name__
    if not any(True for _ in network.parameters()):
        raise Unsupported(
            f"{name} has no weights to convert to {precision}. Leave the precision out.", ability="quantize"
        )
    if network.base.is_quantized:
        raise Unsupported("The weights of this run are int8 already. Leave the precision out.", ability="quantize")
    if precision == "bf16":
        return network.to(torch.bfloat16)
    network.base.quantize()
    return network


# ------------------------------------------------------------------------------------------------ training


def check_network_options(network: Network, phase: Phase) -> None:
    """Raise an error if the network cannot be trained with the phase's `compile` and `checkpointing`."""
    if network.base.is_quantized:
        raise invalid("model.bits", 8, "makes int8 weights, which cannot be trained. Leave it out.")
    options = {
        "compile": (phase.compile, network.base.can_compile),
        "checkpointing": (phase.checkpointing, network.base.can_checkpoint),
    }
    for key, (is_wanted, is_possible) in options.items():
        if is_wanted and not is_possible:
            problem = f"needs a Transformer, and {type(network).__name__} is not one. Leave it out."
            raise invalid(key, True, problem, f"phase '{phase.name}'")


def configure_network(network: Network, phase: Phase, device: torch.device) -> None:
    """Switch on what the phase asks for: activation checkpointing, and torch.compile on a GPU."""
    if network.base.can_checkpoint:
        network.base.checkpointing = phase.checkpointing
    if phase.compile and device.type == "cuda":
        network.base.compile_training()


def flops_utilization(network: Network, tokens_per_second: float, length: int, device: torch.device) -> float | None:
    """Model FLOPs utilization (MFU): the fraction of the GPU's peak that training uses; None if either is unknown."""
    if device.type != "cuda" or network.base is not network:
        return None
    name = torch.cuda.get_device_name(device)
    peak = next((peak for gpu, peak in PEAK_FLOPS.items() if gpu in name), None)
    flops = network.flops_per_token(length)
    return None if peak is None or flops is None else flops * tokens_per_second / peak
