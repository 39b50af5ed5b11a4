"""A network's weights in groups from the input up: the embedding, each layer, and what is made of the last one.

    AWD-LSTM by itself            layer 1 │ layer 2 │ layer 3 │ embedding, which is the readout too
    AWD-LSTM under a head         embedding │ layer 1 │ layer 2 │ layer 3 │ head
    BERT under a head             embeddings │ block 1 │ … │ block 12, pooler │ head

What reads words lies lowest, what says something of them highest. So a matrix that the readout shares with the
embedding is trained with the readout; under a head nothing is read out, and it is an embedding alone. Rates that fall
from group to group, and layers that learn one after the other, are counted in these (Howard & Ruder 2018).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from torch import nn

# Attributes that hold layers, those that lie below first. The i-th members of lists that stand together are one layer,
# and a module that is no list is a layer by itself
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
LOWEST = ("lift",)  # that leads from a narrow embedding to the layers' width
Named = list[tuple[str, nn.Parameter]]


def groups(network: Any) -> list[list[nn.Parameter]]:
    """All that is learnt, each weight once, the lowest group first; none is empty."""
    encoder = network.base
    if encoder is network:
        found = layer_groups(network)
        shared = _shared(network)
        lowest = [one for one in found[0] if one[1] not in shared]
        found = [lowest, *found[1:-1], [*(one for one in found[0] if one[1] in shared), *found[-1]]]
    else:
        below = layer_groups(encoder, encodes=True)
        own = [(name, p) for name, p in network.named_parameters() if not name.startswith("encoder.")]
        found = [*below[:-2], [*below[-2], *below[-1]], own]
    return [[p for _, p in group] for group in found if group]


def layer_groups(network: nn.Module, encodes: bool = False) -> list[Named]:
    """The weights below all layers, those of each layer, and those above: with n layers, n + 2 lists.

    `encodes`: of a network that has an encoder the layers are those of that alone, for nothing else is read.
    """
    stacks = [stack for stack in STACKS if _at(network, stack[0]) is not None]
    if encodes:
        stacks = [stack for stack in stacks if stack[0].startswith("encoder.")] or stacks
    layers: list[Named] = []
    place: dict[str, int] = {}  # prefix of a name → its layer
    for stack in stacks:
        first = len(layers)
        for prefix, i in chain.from_iterable(_members(network, name) for name in stack):
            place[prefix] = first + i
            layers.extend([] for _ in range(first + i + 1 - len(layers)))
    below: Named = []
    above: Named = []
    last = -1  # the layer that was met last
    for name, p in network.named_parameters():
        layer = next((place[prefix] for prefix in _prefixes(name) if prefix in place), None)
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


def _at(network: nn.Module, path: str) -> Any:
    here: Any = network
    for part in path.split("."):
        here = getattr(here, part, None)
    return here if isinstance(here, nn.Module) else None


def _members(network: nn.Module, path: str) -> Iterator[tuple[str, int]]:
    """Prefixes of the names of weights, and which of the stack's layers they are of."""
    module = _at(network, path)
    if isinstance(module, nn.ModuleList):
        yield from ((f"{path}.{i}", i) for i in range(len(module)))
    elif module is not None:
        yield path, 0


def _prefixes(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[: i + 1]) for i in range(len(parts)))


def _shared(network: Any) -> set[nn.Parameter]:
    """Weights of embeddings that the readout reads the other way (layers/softmax.py)."""
    readout = getattr(network, "readout", None)
    parts = readout.modules() if isinstance(readout, nn.Module) else ()
    return {p for part in parts for one in getattr(part, "tied", ()) for p in one.parameters()}
