"""Cross-view training of a network that translates: in turn, pairs, and sources alone (Clark et al. 2018, section 3.4).

    pairs      as `sequence`
    sources    y = what the network writes, greedily, with nothing dropped
               J = 1/T Σ_views Σ_t −Σ_v p(v | y_<t+a, source) log q(v | y_<t, source)

A view q reads the words before y_t and says a word that lies `a` beyond: 0 where it differs in what it sees, 1 where it
has to look ahead. The target p is what the network itself says at that place, and no gradient goes into it: with
`targets = "soft"` its probabilities, with "hard" the word y alone, as the paper has it (there found by beam search).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from nextword.batching.sequences import Pairs
from nextword.batching.several import UNTAGGED
from nextword.batching.untranslated import Beside, in_turn
from nextword.contract import Batch, Inputs, Loss, State
from nextword.contract_errors import NextwordError, Unsupported
from nextword.objectives.sequence import Seq2SeqObjective

TARGETS = ("soft", "hard")


class CrossViewSequence(Seq2SeqObjective):
    """`unlabelled`: a text in the language of the sources, as --data names one; "": none, and all steps are pairs."""

    def __init__(
        self, batches: Mapping[str, Any], unlabelled: str = "", targets: str = "soft", smoothing: float = 0.0
    ) -> None:
        super().__init__(batches, smoothing)
        if targets not in TARGETS:
            raise NextwordError(f"objective: targets = {targets!r}; expected {' or '.join(TARGETS)}.")
        if self.layout.pack:
            raise NextwordError("objective: sources without targets cannot be packed. Leave batches.pack out.")
        self.unlabelled, self.targets = unlabelled, targets

    def per_epoch(self, text: Pairs | Beside) -> int:
        return 2 * super().per_epoch(text.pairs) if isinstance(text, Beside) else super().per_epoch(text)

    def batches(self, text: Pairs | Beside, seed: int, step: int) -> Iterator[Batch]:
        if isinstance(text, Beside):
            return in_turn(self.layout, text, seed, step)
        return super().batches(text, seed, step)

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        if batch.part != UNTAGGED:
            return super().loss(network, batch, state)
        if not hasattr(network, "auxiliary"):
            raise Unsupported(
                f"{type(network).__name__} has no decoders that see less, so it learns nothing from sources alone. "
                "Take a recipe of cross-view training."
            )
        assert batch.inputs.source is not None
        ids, log_p, there = written(network, batch.inputs.source, self.layout.length)
        target = log_p.exp() if self.targets == "soft" else torch.zeros_like(log_p).scatter_(2, ids.unsqueeze(2), 1.0)
        read = torch.cat([torch.full_like(ids[:, :1], network.vocabulary.begin), ids[:, :-1]], 1)
        losses: dict[str, Tensor] = {}
        for name, (said, ahead) in network.auxiliary(Inputs(read, source=batch.inputs.source)).items():
            size = ids.shape[1] - ahead
            each = -(target[:, ahead:] * said[:, :size]).sum(-1) * there[:, ahead:]
            losses[name] = each.sum() / there.sum()
        value = torch.stack(list(losses.values())).sum()
        parts = {name: loss.detach() for name, loss in losses.items()}
        return Loss(value, value.detach().new_zeros(()), 0, parts=parts)


@torch.no_grad()
def written(network: Any, source: Inputs, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """What a network writes of sources, greedily: ids (B, T), log p at every place (B, T, V), and where there is a word
    (B, T), its end counted. Nothing is dropped."""
    learning = network.training
    network.eval()
    last, state = network.start(len(source.ids), source)
    end = network.vocabulary.end
    ids: list[Tensor] = []
    said: list[Tensor] = []
    there: list[Tensor] = []
    open = torch.ones_like(last, dtype=torch.bool)
    while len(ids) < length and bool(open.any()):
        log_p, state = network.step(last, state)
        last = log_p.argmax(-1)
        for found, part in ((ids, last), (said, log_p), (there, open)):
            found.append(part)
        open = open & (last != end)
    network.train(learning)
    return torch.stack(ids, 1), torch.stack(said, 1), torch.stack(there, 1)
