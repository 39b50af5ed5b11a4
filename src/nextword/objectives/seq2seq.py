"""Sequence-to-sequence learning: predict a target from its source, token by token, with teacher forcing.

    J = −Σ_t log p(y_t | y_<t, source)

Label smoothing ε replaces the one-hot target by a mixture: 1 − ε of it, and ε spread over all V tokens (Szegedy et al.
2016). What that adds is linear in the logits z,

    (1 − ε) · −log p(y) + ε · mean_v −log p(v)   =   −log p(y) + ε · (z_y − mean_v z_v)

so it costs one more dot product per token, with W_y − mean W, and no second softmax. Nats do not include it.

The second half of this file is cross-view training of a translation network (Clark et al. 2018, section 3.4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from nextword.batching.examples import UNLABELED
from nextword.batching.seq2seq import Mixture, Pairs, PairsAndSources, Sequences, alternate_batches
from nextword.batching.settings import require_choice, require_number
from nextword.core.errors import Unsupported, invalid
from nextword.core.types import IGNORE, Batch, Inputs, Loss, State
from nextword.layers.output.softmax import LinearReadout
from nextword.objectives.base import Objective, build_layout
from nextword.objectives.scheduled_sampling import ScheduledSampling

REDUCTIONS = ("token", "sequence")


class Seq2SeqObjective(Objective[Any]):
    """Translate pairs.

    `reduce`: the gradient is a mean over tokens, or over pairs. `label_smoothing`: ε of label smoothing.
    `scheduled_sampling`, `sampling_ramp`: see objectives/scheduled_sampling.py; 0: teacher forcing.
    """

    is_parallel = True
    is_likelihood = False  # of a text given another one: no bits per byte of plain text

    def __init__(
        self,
        batches: Mapping[str, Any],
        label_smoothing: float = 0.0,
        reduce: str = "token",
        scheduled_sampling: float = 0.0,
        sampling_ramp: float = 0.0,
    ) -> None:
        self.layout = build_layout(batches, {"sequences": Sequences}, "seq2seq")
        require_choice("objective.reduce", reduce, REDUCTIONS)
        require_number("objective.label_smoothing", label_smoothing, 0, 1, exclude_high=True)
        self.label_smoothing, self.reduce = float(label_smoothing), reduce
        self.scheduled_sampling = ScheduledSampling.from_settings(scheduled_sampling, sampling_ramp)
        if self.layout.pack and scheduled_sampling:
            problem = "reads token by token, so a row cannot hold several pairs. Set it to 0, or batches.pack = false."
            raise invalid("objective.scheduled_sampling", scheduled_sampling, problem)

    @property
    def length(self) -> int:
        return self.layout.length

    def check(self, network: Any) -> None:
        if self.layout.pack and not network.is_packable:
            raise Unsupported(
                f"batches: pack = true puts several pairs into a row, but {type(network).__name__} would read them as "
                "one text. Set it to false (--set phase.0.batches.pack=false).",
                ability="packing",
            )

    def batches_per_epoch(self, text: Pairs) -> int:
        return self.layout.batches_per_epoch(text)

    def batches(self, text: Pairs, seed: int, step: int) -> Iterator[Batch]:
        return self.layout.batches(text, seed, step)

    def validation_batches(self, text: Pairs) -> Iterator[Batch]:
        return self.layout.validation_batches(text)

    def notes(self, text: Pairs | Mixture) -> list[str]:
        """How many pairs are left out. A mixture has no fixed number of examples."""
        dropped = len(text) - len(self.layout.fitting(text)) if isinstance(text, Pairs) else 0
        if not dropped:
            return []
        limit = f"{self.length} tokens on a side (batches.length)"
        return [f"{dropped:,} of {len(text):,} pairs are not trained on, because they have more than {limit}"]

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        if self.scheduled_sampling and network.training:
            layers, _ = self.scheduled_sampling.hidden(network, batch, None)
            h = layers[-1]
        else:
            h, _ = network.last_hidden(batch.inputs, None)
        h, targets = h.flatten(0, 1), batch.targets.flatten()
        nats = network.readout.total(h, targets)
        value = nats
        if self.label_smoothing and network.training:
            value = nats + self.label_smoothing * label_smoothing_term(network.readout, h, targets)
        value = value / (batch.num_targets if self.reduce == "token" else len(batch.targets))
        return Loss(value, nats.detach(), batch.num_targets)


def label_smoothing_term(readout: Any, h: Tensor, targets: Tensor) -> Tensor:
    """Σ_y z_y − mean_v z_v over all targets y but IGNORE."""
    if not isinstance(readout, LinearReadout):
        raise Unsupported(
            f"Label smoothing needs the logits of all tokens, and {type(readout).__name__} has none. Set "
            "label_smoothing = 0, or use a full softmax.",
            ability="label smoothing",
        )
    is_target = targets != IGNORE
    x = readout.project(h)  # under autocast, as the likelihood's
    with torch.autocast(h.device.type, enabled=False):
        x = x.float() if x.dtype == torch.bfloat16 else x
        matrix, bias = readout.matrix, readout.bias
        chosen = targets.masked_fill(~is_target, 0)
        z = (x * (torch.nn.functional.embedding(chosen, matrix) - matrix.mean(0))).sum(-1)
        if bias is not None:
            z = z + bias[chosen] - bias.mean()
    return (z * is_target).sum()


# ------------------------------------------------------------------------------------------------ cross-view training

TARGETS = ("soft", "hard")


class CrossViewSeq2SeqObjective(Seq2SeqObjective):
    """Alternate between pairs and sources without targets, which teach auxiliary decoders with a restricted view.

        pairs      the loss of Seq2SeqObjective
        sources    y = greedy decoding by the primary decoder, without dropout
                   J = 1/T Σ_views Σ_t −Σ_v p(v | y_<t+a, source) log q(v | y_<t, source)

    A view q reads y_<t and predicts the token `a` positions further on: a = 0 if it sees less of the source, 1 if it
    looks ahead. Its target p, without gradient, is the primary decoder's distribution at that position
    (`targets = "soft"`) or the token y alone ("hard", as in the paper, which finds y by beam search).

    `unlabeled`: plain text in the source language, named as --data names one; "": pairs only.
    """

    def __init__(
        self, batches: Mapping[str, Any], unlabeled: str = "", targets: str = "soft", label_smoothing: float = 0.0
    ) -> None:
        super().__init__(batches, label_smoothing)
        require_choice("objective.targets", targets, TARGETS)
        if self.layout.pack:
            raise invalid("batches.pack", True, "does not work with sources without targets. Set it to false.")
        self.unlabeled, self.targets = unlabeled, targets

    def batches_per_epoch(self, text: Pairs | PairsAndSources) -> int:
        if isinstance(text, PairsAndSources):
            return 2 * super().batches_per_epoch(text.pairs)
        return super().batches_per_epoch(text)

    def notes(self, text: Pairs | Mixture | PairsAndSources) -> list[str]:
        return super().notes(text.pairs if isinstance(text, PairsAndSources) else text)

    def batches(self, text: Pairs | PairsAndSources, seed: int, step: int) -> Iterator[Batch]:
        if isinstance(text, PairsAndSources):
            return alternate_batches(self.layout, text, seed, step)
        return super().batches(text, seed, step)

    def loss(self, network: Any, batch: Batch, state: State) -> Loss:
        if batch.task_index != UNLABELED:
            return super().loss(network, batch, state)
        if not network.has_auxiliary_decoders:
            raise Unsupported(
                f"{type(network).__name__} has no auxiliary decoders, so it cannot learn from sources alone. Use a "
                "recipe for cross-view training.",
                ability="cross-view training",
            )
        source = batch.inputs.source
        assert source is not None
        ids, log_probs, is_token = decode_greedily(network, source, self.layout.length)
        if self.targets == "soft":
            target = log_probs.exp()
        else:
            target = torch.zeros_like(log_probs).scatter_(2, ids.unsqueeze(2), 1.0)
        inputs = torch.cat([torch.full_like(ids[:, :1], network.vocabulary.begin), ids[:, :-1]], 1)
        losses: dict[str, Tensor] = {}
        for name, (view_log_probs, ahead) in network.auxiliary(Inputs(inputs, source=source)).items():
            steps = ids.shape[1] - ahead
            nats = -(target[:, ahead:] * view_log_probs[:, :steps]).sum(-1) * is_token[:, ahead:]
            losses[name] = nats.sum() / is_token.sum()
        value = torch.stack(list(losses.values())).sum()
        terms = {name: loss.detach() for name, loss in losses.items()}
        return Loss(value, value.detach().new_zeros(()), 0, terms=terms)


@torch.no_grad()
def decode_greedily(network: Any, source: Inputs, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Decode sources without dropout: ids (B, T), log p (B, T, V), and which ids count, up to the end token (B, T)."""
    was_training = network.training
    network.eval()
    last, state = network.start(len(source.ids), source)
    ids: list[Tensor] = []
    log_probs: list[Tensor] = []
    is_token: list[Tensor] = []
    is_open = torch.ones_like(last, dtype=torch.bool)
    while len(ids) < length and bool(is_open.any()):
        log_p, state = network.step(last, state)
        last = log_p.argmax(-1)
        ids.append(last)
        log_probs.append(log_p)
        is_token.append(is_open)
        is_open = is_open & (last != network.vocabulary.end)
    network.train(was_training)
    return torch.stack(ids, 1), torch.stack(log_probs, 1), torch.stack(is_token, 1)
