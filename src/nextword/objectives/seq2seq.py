"""Predict a target from its source, token by token, fed the true past: J = −Σ_t log p(y_t | y_<t, source).

With label smoothing ε the target is not one token but a mixture: 1 − ε of it, and ε spread over all V (Szegedy et al.
2016). What that adds is linear in the logits,

    (1 − ε) · −log p(y) + ε · mean_v −log p(v)   =   −log p(y) + ε · (z_y − mean_v z_v)

so that it needs one dot product more for each token, with W_y − mean W, and no second softmax. Nats do not hold it.

Cross-view training of a network that translates: in turn, pairs, and sources alone (Clark et al. 2018, section 3.4).

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

from nextword.batching.examples import UNTAGGED
from nextword.batching.seq2seq import Beside, Pairs, Sequences, in_turn
from nextword.core.errors import NextwordError, Unsupported
from nextword.core.types import IGNORE, Batch, Inputs, Loss, State
from nextword.layers.output.softmax import Linear
from nextword.objectives.causal import Sampled

REDUCE = ("token", "sequence")


class Seq2SeqObjective:
    """`reduce` says what the gradient is a mean over: tokens, or pairs. `sampled` and `ramp`: sampled.py."""

    parallel = True  # its text is pairs of a source and a target
    likelihood = False  # of a text given another: no bits of plain text

    def __init__(
        self,
        batches: Mapping[str, Any],
        smoothing: float = 0.0,
        reduce: str = "token",
        sampled: float = 0.0,
        ramp: float = 0.0,
    ) -> None:
        options = dict(batches)
        kind = options.pop("kind", "sequences")
        if kind != "sequences" or reduce not in REDUCE:
            raise NextwordError(
                f"The sequence objective has batches of kind sequences and reduce = {' or '.join(REDUCE)}; the recipe "
                f"says '{kind}' and '{reduce}'."
            )
        try:
            self.layout = Sequences(**options)
        except TypeError:
            raise NextwordError(
                "Batches of kind 'sequences' take rows, length, stretch, long and pack; the recipe says "
                f"{', '.join(options)}."
            ) from None
        if isinstance(smoothing, bool) or not isinstance(smoothing, (int, float)) or not 0 <= smoothing < 1:
            raise NextwordError(f"objective: smoothing = {smoothing!r} is a share of the target: 0 up to below 1.")
        self.smoothing, self.reduce = float(smoothing), reduce
        self.sampled = Sampled(sampled, ramp)
        if self.layout.pack and sampled:
            raise NextwordError(
                f"objective: sampled = {sampled} feeds a network its own tokens one by one, which cannot be done in "
                "rows of several pairs. Leave it out, or batches.pack."
            )

    @property
    def length(self) -> int:
        """Tokens in the longest target."""
        return self.layout.length

    def per_epoch(self, text: Pairs) -> int:
        return self.layout.per_epoch(text)

    def batches(self, text: Pairs, seed: int, step: int) -> Iterator[Batch]:
        return self.layout.batches(text, seed, step)

    def held_out(self, text: Pairs) -> Iterator[Batch]:
        return self.layout.held_out(text)

    def check(self, network: Any) -> None:
        """What this network cannot do."""
        if self.layout.pack and not getattr(network, "packs", False):
            raise Unsupported(
                f"batches: pack = true puts several pairs into a row, which {type(network).__name__} would read as "
                "one. Leave it out (--set phase.0.batches.pack=false)."
            )

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        layers, _ = self.sampled(network, batch, None)
        h, targets = layers[-1].flatten(0, 1), batch.targets.flatten()
        nats = network.readout.total(h, targets)
        value = nats
        if self.smoothing and network.training:
            value = nats + self.smoothing * surplus(network.readout, h, targets)
        value = value / (batch.predicted if self.reduce == "token" else len(batch.targets))
        return Loss(value, nats.detach(), batch.predicted)


def surplus(readout: Any, h: Tensor, targets: Tensor) -> Tensor:
    """Σ z_y − mean_v z_v, over the targets y that are there."""
    if not isinstance(readout, Linear):
        raise Unsupported(
            f"Label smoothing needs the logits of all tokens, which {type(readout).__name__} does not have. Set "
            "smoothing = 0, or a full softmax."
        )
    there = targets != IGNORE
    with torch.autocast(h.device.type, enabled=False):
        x = readout.lead(h).float() if h.dtype == torch.bfloat16 else readout.lead(h)
        matrix, bias = readout.matrix, readout.bias
        chosen = targets.masked_fill(~there, 0)
        z = (x * (torch.nn.functional.embedding(chosen, matrix) - matrix.mean(0))).sum(-1)
        if bias is not None:
            z = z + bias[chosen] - bias.mean()
    return (z * there).sum()


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
