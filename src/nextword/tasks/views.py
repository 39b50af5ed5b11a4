"""Heads of tags that see a word from six sides, over a network that has such sides (models/cvt.py): for each task six.

    primary     [uni; bi]      the whole sentence. The one that is used, and that learns from tags
    full        [uni; bi]      the same without a relu                       ┐
    forwards    uni_fw         the word and all before it                    │  these learn to say what the
    backwards   uni_bw         the word and all after it                     │  primary says, of sentences that
    future      uni_fw, t − 1  all before the word, but not the word         │  nobody has tagged
    past        uni_bw, t + 1  all after the word                            ┘

Each is linear, relu, linear. Where nothing has been read, before the first word and after the last, there are zeros.
Tags that a scheme forbids in a row are not looked for (Viterbi), as with any other head of tags.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import NextwordError
from nextword.core.types import Batch, Inputs
from nextword.data.tag_schemes import PLAIN, allowed
from nextword.layers.crf import penalties
from nextword.tasks.base import ModelWithHead
from nextword.tasks.tag_head import best_of_softmax, softmax_nats

PRIMARY = "primary"
VIEWS = ("full", "forwards", "backwards", "future", "past")


@dataclass(frozen=True)
class TagTask:
    """What one of several tasks says of a word."""

    name: str
    tags: tuple[str, ...]
    scheme: str = PLAIN


@dataclass(frozen=True)
class ViewsConfig:
    model: Any  # the network's class
    settings: Any  # its Config
    tasks: tuple[TagTask, ...]
    width: int = 512  # between the two linear layers of a head
    features: str = ""
    frozen: bool = False

    def __post_init__(self) -> None:
        if not hasattr(self.model, "views"):
            raise NextwordError(
                "[task] classifier = 'views' is for networks that see a word from several sides; "
                f"{self.model.__name__} does not. Take a recipe of cross-view training, or classifier = 'crf'."
            )


class Head(nn.Sequential):
    """(…, D) → (…, tags)."""

    def __init__(self, inputs: int, width: int, tags: int, bent: bool = True) -> None:
        layers = nn.Linear(inputs, width), nn.Linear(width, tags)
        super().__init__(layers[0], nn.ReLU() if bent else nn.Identity(), layers[1])
        for layer in layers:
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


class Heads(nn.Module):
    """The six of one task, over a network with this width of a side and of the whole."""

    forbidden: Tensor

    def __init__(self, task: TagTask, side: int, whole: int, width: int) -> None:
        super().__init__()
        tags = len(task.tags)
        own = {PRIMARY: Head(whole, width, tags), "full": Head(whole, width, tags, bent=False)}
        own |= {name: Head(side, width, tags) for name in VIEWS[1:]}
        self.heads = nn.ModuleDict(own)
        self.free = task.scheme == PLAIN
        steps = None
        if not self.free:
            steps = [torch.from_numpy(part) for part in allowed(task.tags, task.scheme)]
        self.register_buffer("forbidden", penalties(tags, steps), persistent=False)

    def primary(self, seen: Any) -> Tensor:
        """(B, T, K), not yet probabilities."""
        return self.heads[PRIMARY](seen.both)

    def auxiliary(self, seen: Any) -> dict[str, Tensor]:
        """What each of the others says, (B, T, K)."""
        sights = {
            "full": seen.both,
            "forwards": seen.left,
            "backwards": seen.right,
            "future": F.pad(seen.left, (0, 0, 1, 0))[:, :-1],
            "past": F.pad(seen.right, (0, 0, 0, 1))[:, 1:],
        }
        return {name: self.heads[name](sight) for name, sight in sights.items()}

    def best(self, emissions: Tensor, there: Tensor) -> Tensor:
        return best_of_softmax(emissions, there, None if self.free else self.forbidden)


class Views(ModelWithHead):
    """All tasks' heads over one network. A batch says of which task its tags are (`part`)."""

    def __init__(self, config: ViewsConfig, network: Any) -> None:
        super().__init__(config, network)
        side, whole = network.widths[1] // 2, network.widths[2]
        self.out = nn.ModuleList(Heads(task, side, whole, config.width) for task in config.tasks)

    def seen(self, inputs: Inputs, dropout: float = 0.0) -> Any:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.config.frozen):
            return self.encoder.views(inputs, dropout)

    def forward(self, batch: Batch) -> Tensor:
        """(B, W, K): what the primary head of the batch's task says."""
        dropout = self.encoder.config.dropout if self.training and not self.config.frozen else 0.0
        return self.out[batch.part].primary(self.seen(batch.inputs, dropout)).float()

    @torch.no_grad()
    def taught(self, inputs: Inputs) -> list[Tensor]:
        """Of every task, the primary head's probabilities (B, W, K): nothing is dropped, and nothing learnt."""
        seen = self.seen(inputs)
        return [heads.primary(seen).float().softmax(-1) for heads in self.out]

    def auxiliary(self, inputs: Inputs, dropout: float) -> list[Mapping[str, Tensor]]:
        """Of every task, what its other heads say."""
        seen = self.seen(inputs, dropout)
        return [heads.auxiliary(seen) for heads in self.out]

    def nats(self, emissions: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """(B,): −log p of the tags of each row, as heads/tags.py has it."""
        return softmax_nats(emissions, targets, smoothing)

    def best(self, emissions: Tensor, there: Tensor, part: int = 0) -> Tensor:
        """(B, W): the best tags that the scheme of this task allows; 0 where there is no word."""
        return self.out[part].best(emissions, there)

    def best_of_all(self, inputs: Inputs, there: Tensor) -> list[Tensor]:
        """Of every task, the best tags (B, W); the network is read once."""
        seen = self.seen(inputs)
        return [heads.best(heads.primary(seen).float(), there) for heads in self.out]


def soft_cross_entropy(emissions: Tensor, targets: Tensor, there: Tensor) -> Tensor:
    """−Σ_k p_k log q_k, summed over the words that are there: (B, W, K), probabilities (B, W, K), (B, W) → ()."""
    each = -(targets * emissions.float().log_softmax(-1)).sum(-1)
    return (each * there).sum()
