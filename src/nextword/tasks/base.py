"""A network with a head over it, whatever the head says: trained, saved and loaded as one.

The network's own files stay as they are, so that a run of it can be read without its head.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nextword.core.errors import NextwordError
from nextword.core.types import Inputs, Vocabulary

FILE = "head.safetensors"


class ModelWithHead(nn.Module):
    """The settings say the network's class (`model`), its Config (`settings`), which layer is read (`features`), and
    whether nothing of the network is trained (`frozen`)."""

    out: Any
    fresh: tuple[str, ...] = ()  # tensors of the network that stay as they were drawn, whatever run it begins with
    readout: Any = None  # not the network's: nothing of it is to be made ready for the words of a task

    def __init__(self, config: Any, network: Any) -> None:
        super().__init__()
        self.config, self.encoder = config, network
        self.at = layer_of(network, config.features)
        if config.frozen:
            network.requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        """What is frozen does not drop anything either."""
        super().train(mode)
        if self.config.frozen:
            self.encoder.eval()
        return self

    def read_layer(self, inputs: Inputs) -> Tensor:
        """The layer that the head reads (B, T, D)."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.config.frozen):
            return self.layer(inputs)

    def layer(self, inputs: Inputs) -> Tensor:
        """The same with gradients, where they are wanted, also through what is frozen."""
        if hasattr(self.encoder, "layer_at"):
            return self.encoder.layer_at(inputs, self.at)
        return self.encoder.encode(inputs)[0][self.at]

    # -------------------------------------------------------------------------------------------- as the loop sees it

    @property
    def vocabulary(self) -> Vocabulary:
        return self.encoder.vocabulary

    @property
    def device(self) -> torch.device:
        return next(self.out.parameters()).device

    @property
    def stored(self) -> int | None:
        """How many numbers it has, where those of the network are in another form than parameters."""
        below = getattr(self.encoder, "stored", None)
        own = sum(p.numel() for name, p in self.named_parameters() if not name.startswith("encoder."))
        return None if below is None else int(below) + own

    @property
    def checkpointing(self) -> bool:
        return self.encoder.checkpointing

    @checkpointing.setter
    def checkpointing(self, value: bool) -> None:
        self.encoder.checkpointing = value

    @property
    def compile_training(self) -> Any:
        return self.encoder.compile_training

    # -------------------------------------------------------------------------------------------- files

    def narrowed(self) -> None:
        """The network's weights in fewer bits; the head keeps its own."""
        self.encoder.narrowed()

    def save(self, folder: Path) -> list[str]:
        save_file({name: t.contiguous() for name, t in self._own().items()}, str(folder / FILE))
        return [*self.encoder.save(folder), FILE]

    @classmethod
    def load(cls, folder: Path, config: Any, vocabulary: Vocabulary) -> Self:
        headed = cls(config, config.model.load(folder, config.settings, vocabulary))
        found, wanted = load_file(str(folder / FILE)), headed._own()
        if {n: t.shape for n, t in found.items()} != {n: t.shape for n, t in wanted.items()}:
            raise NextwordError(
                f"{folder / FILE} does not fit its recipe's [task]: one of them was changed after training. Restore "
                "either from where it came."
            )
        headed.load_state_dict(found, strict=False)
        return headed.eval()

    def _own(self) -> dict[str, Tensor]:
        """The head's tensors, without the network's."""
        return {name: t for name, t in self.state_dict().items() if not name.startswith("encoder.")}


def layer_of(network: Any, name: str) -> int:
    """Which layer of `encode` a name or a number means."""
    names = getattr(network, "layers_of", {})
    if not name:
        return -1
    if name in names:
        return names[name]
    depth = len(network.widths)
    if not name.lstrip("-").isdigit() or not -depth <= int(name) < depth:
        known = ", ".join([*names, f"a layer from 0 (words) to {depth - 1}, or −1 for the last"])
        raise NextwordError(f"[task] features = {name!r}; {type(network).__name__} has {known}.")
    return -1 if int(name) == depth - 1 else int(name)  # the last has one name: what is kept for it is kept either way
