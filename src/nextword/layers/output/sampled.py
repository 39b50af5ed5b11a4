"""Training on a few words instead of all: sampled softmax and noise-contrastive estimation. Evaluation stays exact.

A few words are drawn for the whole batch from a proposal q: `unigram` (the training text's frequencies, to some power)
or `log-uniform` (q falls as 1/rank, for which only the order of frequency must be known).

    sampled   the target against the words drawn, in a softmax whose logits are corrected for how likely a word was to
              be there at all: z_w − log P(w drawn). Bengio & Senécal (2003), Jean et al. (2015); as in TensorFlow, a
              word drawn that is the target is not its own rival. With all words it is the softmax.
    nce       each word drawn, and the target, against the question "from the text, or from q?", with odds
              exp(z_w) / (V · k q_w): Mnih & Teh (2012). The sum over all words never appears; it is taken to be V,
              and learnt to be so.

Both reach the same model as full softmax would, with more noise. In evaluation `total` is exact, so that validation is.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.core.errors import NextwordError
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
    """Words drawn by chance, and how likely each is."""

    q: Tensor  # (V,)
    below: Tensor  # (V,) Σ of q up to and with each word, in float64

    def __init__(self, size: int, kind: str = "unigram", power: float = 1.0) -> None:
        super().__init__(size)
        if kind not in PROPOSALS:
            raise NextwordError(f"Words are drawn from a proposal {' or '.join(PROPOSALS)}; the readout says {kind!r}.")
        self.kind, self.power = kind, power
        self.register_buffer("q", torch.from_numpy(self._chances(np.arange(size, 0, -1))))
        self.build_tables()

    def _chances(self, counts: np.ndarray) -> np.ndarray:
        if self.kind == "unigram":
            mass = (counts + 1.0) ** self.power  # a word never seen must be ruled out too, now and then
        else:
            mass = np.log1p(1.0 / (frequency_ranks(counts) + 1.0))  # log((r + 2)/(r + 1)): sums to log(V + 1)
        return (mass / mass.sum()).astype(np.float32)

    def count(self, ids: np.ndarray) -> None:
        self.q.copy_(torch.from_numpy(self._chances(count_ids(ids, self.size))))

    def build_tables(self) -> None:
        below = self.q.double().cumsum(0)
        self.set_table("below", below / below[-1])

    def draw(self, number: int) -> Tensor:
        """Words, with replacement."""
        at = torch.rand(number, dtype=torch.float64, device=self.q.device)
        return torch.searchsorted(self.below, at, right=True).clamp_(max=self.size - 1)


class SampledSoftmax(Readout):
    """`words` is the softmax that is trained so. `samples` are drawn for each batch; from V on, all are taken."""

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
            raise NextwordError(f"samples = {samples}: at least one word must be drawn to learn from.")
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
    """Σ of −log p(target) among the words drawn and the target."""
    everything = samples >= proposal.size
    drawn = torch.arange(proposal.size, device=h.device) if everything else proposal.draw(samples)
    words, place = torch.cat([targets, drawn]).unique(return_inverse=True)  # each word's vector is needed once
    vectors, bias = rows(words)
    z = at_least_float32(F.linear(h, vectors, bias))  # (N, K)
    if not everything:
        z = z - _log_drawn(proposal.q[words], samples)
    there = torch.zeros(len(words), dtype=torch.bool, device=h.device)
    there[place[len(targets) :]] = True
    own = place[: len(targets), None]
    rivals = there.repeat(len(h), 1).scatter(1, own, True)  # words drawn, and each row's own target, once
    z = z.masked_fill(~rivals, -math.inf)
    return (torch.logsumexp(z, 1) - z.gather(1, own).squeeze(1)).sum()


def _log_drawn(q: Tensor, samples: int) -> Tensor:
    """log of the chance that a word is among the draws, 1 − (1 − q)^k."""
    return torch.log(-torch.expm1(samples * torch.log1p(-q.double()))).float()


def contrastive_loss(h: Tensor, targets: Tensor, proposal: Proposal, samples: int, rows: Rows) -> Tensor:
    """Σ over rows of −log p(target is from the text) − Σ over the words drawn of log p(it is from the proposal)."""
    drawn = proposal.draw(samples)
    constant = math.log(proposal.size)  # what the sum over all words is taken to be

    words, place = torch.cat([targets, drawn]).unique(return_inverse=True)  # each word's vector is needed once
    vectors, bias = rows(words)
    odds = at_least_float32(F.linear(h, vectors, bias)) - (constant + torch.log(proposal.q[words] * samples))  # (N, K)
    from_text = F.logsigmoid(odds.gather(1, place[: len(targets), None]))
    times = torch.bincount(place[len(targets) :], minlength=len(words))
    from_noise = F.logsigmoid(-odds) * times
    return -from_text.sum() - from_noise.sum()
