"""Group a network's parameters from the input to the output: the embedding, each layer, and what follows the last one.

    AWD-LSTM alone                layer 1 │ layer 2 │ layer 3 │ embedding, which is the output matrix too
    AWD-LSTM with a task head     embedding │ layer 1 │ layer 2 │ layer 3 │ head
    BERT with a task head         embeddings │ block 1 │ … │ block 12, pooler │ head

A matrix that the readout shares with the embedding is trained with the readout. With a task head there is no readout,
so it is an embedding only. Discriminative learning rates and gradual unfreezing count in these groups (Howard & Ruder
2018).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from torch import nn

from nextword.layers.output.base import Readout

# Attributes that hold layers, the lowest first. The i-th members of lists in one tuple form one layer; a module that is
# not a list is a layer by itself.
STACKS = (
    ("encoder.layers",),
    ("encoder.blocks",),
    ("layers",),
    ("blocks",),
    ("decoder.blocks",),
    ("attending", "feeding"),
    ("inner",),
    ("first",),
    ("second",),
)
LOWEST = ("lift",)  # maps a narrow embedding to the width of the layers
NamedParameters = list[tuple[str, nn.Parameter]]


def groups(network: Any) -> list[list[nn.Parameter]]:
    """All trainable parameters, each once, the lowest group first; no group is empty."""
    base = network.base
    if base is network:
        parts = layer_groups(network)
        shared = _shared_parameters(network)
        lowest = [item for item in parts[0] if item[1] not in shared]
        parts = [lowest, *parts[1:-1], [*(item for item in parts[0] if item[1] in shared), *parts[-1]]]
    else:
        below = layer_groups(base, encoder_only=True)
        head = [(name, p) for name, p in network.named_parameters() if not name.startswith("encoder.")]
        parts = [*below[:-2], [*below[-2], *below[-1]], head]
    return [[p for _, p in part] for part in parts if part]


def layer_groups(network: nn.Module, encoder_only: bool = False) -> list[NamedParameters]:
    """The parameters below all layers, those of each layer, and those above: with n layers, n + 2 lists.

    `encoder_only`: of an encoder-decoder, count only the encoder's layers, because a task head reads nothing else.
    """
    stacks = [stack for stack in STACKS if _submodule(network, stack[0]) is not None]
    if encoder_only:
        stacks = [stack for stack in stacks if stack[0].startswith("encoder.")] or stacks
    layers: list[NamedParameters] = []
    layer_of: dict[str, int] = {}  # prefix of a parameter's name → its layer
    for stack in stacks:
        first = len(layers)
        for prefix, i in chain.from_iterable(_members(network, name) for name in stack):
            layer_of[prefix] = first + i
            layers.extend([] for _ in range(first + i + 1 - len(layers)))
    below: NamedParameters = []
    above: NamedParameters = []
    last = -1  # the last layer seen so far
    for name, p in network.named_parameters():
        layer = next((layer_of[prefix] for prefix in _prefixes(name) if prefix in layer_of), None)
        if layer is not None:
            layers[layer].append((name, p))
            last = layer
        elif last < 0 or name.startswith(LOWEST):
            below.append((name, p))
        elif last < len(layers) - 1:  # between two stacks
            layers[last].append((name, p))
        else:
            above.append((name, p))
    return [below, *layers, above]


def _submodule(network: nn.Module, path: str) -> nn.Module | None:
    module: nn.Module | None = network
    for part in path.split("."):
        module = dict(module.named_children()).get(part) if module is not None else None
    return module


def _members(network: nn.Module, path: str) -> Iterator[tuple[str, int]]:
    """Prefixes of parameter names, with the index of their layer in the stack."""
    module = _submodule(network, path)
    if isinstance(module, nn.ModuleList):
        yield from ((f"{path}.{i}", i) for i in range(len(module)))
    elif module is not None:
        yield path, 0


def _prefixes(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[: i + 1]) for i in range(len(parts)))


def _shared_parameters(network: Any) -> set[nn.Parameter]:
    """Parameters of embeddings that the readout uses as its matrix."""
    if not isinstance(network.readout, nn.Module):
        return set()
    tied = [module.tied for module in network.readout.modules() if isinstance(module, Readout)]
    return {p for embeddings in tied for embedding in embeddings for p in embedding.parameters()}
