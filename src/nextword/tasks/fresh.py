"""The last layers of a network drawn anew before fine-tuning: what they have learnt is of the old task.

Zhang, Wu, Katiyar, Weinberger & Artzi, "Revisiting Few-sample BERT Fine-tuning" (2021), section 5: on little data, few
layers with new weights, and a new pooler, make it steadier. They are drawn by the run's seed, as in a new network.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from nextword.core.errors import NextwordError


def last_layers(network: Any, n: int) -> tuple[str, ...]:
    """Names of the tensors of the last n blocks, and of the pooler if there is one."""
    if not n:
        return ()
    kind = type(network).__name__
    found = stacks(network)
    if not found:
        raise NextwordError(
            f"[task] fresh = {n}: {kind} has no stack of blocks whose last ones could be drawn anew. Leave it out."
        )
    layers = network.config.layers
    shared = min(map(len, found))
    if shared < layers:
        raise NextwordError(
            f"[task] fresh = {n}: the {layers} layers of this {kind} share their weights, so the last cannot be drawn "
            "anew without the first. Leave it out, or begin without them all (--scratch)."
        )
    if n > layers:
        raise NextwordError(f"[task] fresh = {n}: this {kind} has {layers} layers. Give at most so many.")
    chosen = [block for stack in found for block in stack[-n:]]
    pooler = getattr(network, "pooler", None)
    chosen += [] if pooler is None else [pooler]
    wanted = {id(module) for module in chosen}
    places = [name + "." for name, module in network.named_modules() if id(module) in wanted]
    return tuple(name for name in network.state_dict() if name.startswith(tuple(places)))


def stacks(network: Any) -> list[nn.ModuleList]:
    """Lists of blocks that a text goes through one after the other, as a network names them or as they are called."""
    if hasattr(network, "stacks"):
        return network.stacks()
    blocks = getattr(network, "blocks", None)
    return [blocks] if isinstance(blocks, nn.ModuleList) else []
