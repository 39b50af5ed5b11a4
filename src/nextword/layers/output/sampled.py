"""Training on a sample of the words: sampled softmax and noise-contrastive estimation. Evaluation stays exact.

Some words are drawn for the whole batch from a proposal q: `unigram` (the training text's frequencies, to some power)
or `log-uniform` (q falls as 1/rank, so only the order by frequency must be known).

    sampled   the target against the drawn words, in a softmax whose logits are corrected for how likely a word was to
    be
              drawn: z_w − log P(w drawn). Bengio & Senécal (2003), Jean et al. (2015); as in TensorFlow, a drawn word
              that is the target is not its own rival. With all words it is the softmax.
    nce       for each drawn word and the target: "from the text, or from q?", with odds exp(z_w) / (V · k q_w): Mnih &
    Teh
              (2012). The sum over all words never appears; it is assumed to be V, and learned to be so.

Both converge to the model that the full softmax gives, with more noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.core.errors import InvalidSetting
from nextword.core.types import IGNORE
from nextword.layers.output.base import (
    CountedReadout,
    Readout,
    at_least_float32,
    count_ids,
    frequency_ranks,
    refuse_graph_capture,
)
from nextword.layers.output.softmax import LinearReadout

PROPOSALS = ("unigram", "log-uniform")


class Proposal(CountedReadout):
    """A distribution to draw words from."""

    q: Tensor  # (V,)
    below: Tensor  # (V,) cumulative q, in float64

    def __init__(self, size: int, kind: str = "unigram", power: float = 1.0) -> None:
        super().__init__(size)
        if kind not in PROPOSALS:
            raise InvalidSetting(
                f"readout: proposal = {kind!r} is unknown. Use {' or '.join(PROPOSALS)}.",
                key="model.readout.proposal",
                value=kind,
            )
        self.kind, self.power = kind, power
        self.register_buffer("q", torch.from_numpy(self._probabilities(np.arange(size, 0, -1))))
        self.build_tables()

    def _probabilities(self, counts: np.ndarray) -> np.ndarray:
        if self.kind == "unigram":
            mass = (counts + 1.0) ** self.power  # unseen words must be ruled out too, now and then
        else:
            mass = np.log1p(1.0 / (frequency_ranks(counts) + 1.0))  # log((r + 2)/(r + 1)): sums to log(V + 1)
        return (mass / mass.sum()).astype(np.float32)

    def count(self, ids: np.ndarray) -> None:
        self.q.copy_(torch.from_numpy(self._probabilities(count_ids(ids, self.size))))

    def build_tables(self) -> None:
        below = self.q.double().cumsum(0)
        self.set_table("below", below / below[-1])

    def draw(self, number: int) -> Tensor:
        """Words, with replacement."""
        at = torch.rand(number, dtype=torch.float64, device=self.q.device)
        return torch.searchsorted(self.below, at, right=True).clamp_(max=self.size - 1)


class SampledSoftmax(Readout):
    """`words` is the softmax to train. `samples` words are drawn for each batch; from V on, all are used."""

    def __init__(
        self,
        words: LinearReadout,
        size: int,
        samples: int = 1024,
        proposal: str = "unigram",
        power: float = 1.0,
        contrastive: bool = False,
    ) -> None:
        super().__init__()
        if samples < 1:
            raise InvalidSetting(
                f"readout: samples = {samples} must be at least 1.", key="model.readout.samples", value=samples
            )
        self.words, self.samples, self.contrastive = words, samples, contrastive
        self.proposal = Proposal(size, proposal, power)

    @property
    def output_bias(self) -> Tensor | None:
        return self.words.bias

    def fit_vocabulary(self, ids: np.ndarray) -> None:
        self.proposal.fit_vocabulary(ids)

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        return self.words.nll(h, targets)

    def log_probs(self, h: Tensor) -> Tensor:
        return self.words.log_probs(h)

    def total(self, h: Tensor, targets: Tensor) -> Tensor:
        if not self.training:
            return self.words.total(h, targets)
        refuse_graph_capture("sampled", h.device)
        rows = (targets != IGNORE).nonzero().squeeze(1)
        if len(rows) < len(targets):
            h, targets = h[rows], targets[rows]
        h = self.words.project(h)
        loss = contrastive_loss if self.contrastive else sampled_loss
        return loss(h, targets, self.proposal, self.samples, self._rows)

    def _rows(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        bias = self.words.bias
        return self.words.vectors_of(ids), None if bias is None else bias[ids]


Rows = Callable[[Tensor], tuple[Tensor, Tensor | None]]  # ids (K,) → their vectors (K, D) and biases (K,)


def sampled_loss(h: Tensor, targets: Tensor, proposal: Proposal, samples: int, rows: Rows) -> Tensor:
    """Σ −log p(target) in a softmax over the drawn words and the target."""
    all_words = samples >= proposal.size
    drawn = torch.arange(proposal.size, device=h.device) if all_words else proposal.draw(samples)
    words, place = torch.cat([targets, drawn]).unique(return_inverse=True)  # each vector is needed once
    vectors, bias = rows(words)
    z = at_least_float32(F.linear(h, vectors, bias))  # (N, K)
    if not all_words:
        z = z - _log_drawn(proposal.q[words], samples)
    is_drawn = torch.zeros(len(words), dtype=torch.bool, device=h.device)
    is_drawn[place[len(targets) :]] = True
    own = place[: len(targets), None]
    rivals = is_drawn.repeat(len(h), 1).scatter(1, own, True)  # the drawn words, and each row's target once
    z = z.masked_fill(~rivals, -math.inf)
    return (torch.logsumexp(z, 1) - z.gather(1, own).squeeze(1)).sum()


def _log_drawn(q: Tensor, samples: int) -> Tensor:
    """log of the probability that a word is drawn at least once, 1 − (1 − q)^k."""
    return torch.log(-torch.expm1(samples * torch.log1p(-q.double()))).float()


def contrastive_loss(h: Tensor, targets: Tensor, proposal: Proposal, samples: int, rows: Rows) -> Tensor:
    """Σ over rows of −log p(target is from the text) − Σ over drawn words of log p(it is from the proposal)."""
    drawn = proposal.draw(samples)
    log_total = math.log(proposal.size)  # the assumed sum over all words
    words, place = torch.cat([targets, drawn]).unique(return_inverse=True)  # each vector is needed once
    vectors, bias = rows(words)
    odds = at_least_float32(F.linear(h, vectors, bias)) - (log_total + torch.log(proposal.q[words] * samples))  # (N, K)
    from_text = F.logsigmoid(odds.gather(1, place[: len(targets), None]))
    times = torch.bincount(place[len(targets) :], minlength=len(words))
    from_noise = F.logsigmoid(-odds) * times
    return -from_text.sum() - from_noise.sum()
