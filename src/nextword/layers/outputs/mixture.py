"""Mixture of softmaxes: several softmaxes over the same words, weighed by the context.

Yang et al., "Breaking the softmax bottleneck: a high-rank RNN language model" (2018):

    p(w | h) = Σ_k π_k(h) · softmax(W tanh(U_k h + u_k) + b)_w        π(h) = softmax(P h)

The logarithms of a single softmax's probabilities are a matrix (contexts × words) of rank D + 1 at most; a mixture's
are not so bound. W is one matrix for all experts, the embedding's where it is tied.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.contract import NextwordError
from nextword.layers.outputs.prepared import wide
from nextword.layers.softmax import Full, Tied, linear_cross_entropy

ACTIVATIONS = {"tanh": torch.tanh, "none": lambda x: x}


class Mixture(nn.Module):
    """`latent` is the width of what an expert's softmax reads; 0: the embedding's where it is tied, else that of h."""

    def __init__(
        self,
        width: int,
        size: int,
        experts: int = 10,
        latent: int = 0,
        dropout: float = 0.0,
        activation: str = "tanh",
        embedding: nn.Embedding | None = None,
    ) -> None:
        super().__init__()
        tied = 0 if embedding is None else embedding.embedding_dim
        latent = latent or tied or width
        if experts < 1 or activation not in ACTIVATIONS or not 0 <= dropout < 1:
            raise NextwordError(
                "A mixture has one expert or more, a dropout below 1, and an activation of "
                f"{' or '.join(ACTIVATIONS)}; the readout says {experts}, {dropout} and {activation!r}."
            )
        if tied and latent != tied:
            raise NextwordError(
                f"latent = {latent}, but a tied output has the embedding's width, {tied}: leave latent out, or set "
                "tied = false."
            )
        self.experts, self.dropout, self.activation = experts, dropout, activation
        self.prior = nn.Linear(width, experts, bias=False)
        self.latent = nn.Linear(width, experts * latent)
        self.words: Full | Tied = Full(latent, size) if embedding is None else Tied(embedding)

    @property
    def bias(self) -> Tensor | None:
        return self.words.bias

    def _experts(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """log π (N, K), and what each expert reads (N, K, D)."""
        x = ACTIVATIONS[self.activation](self.latent(h)).unflatten(-1, (self.experts, -1))
        return F.log_softmax(wide(self.prior(h)), -1), F.dropout(x, self.dropout, self.training)

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        log_prior, x = self._experts(h)
        each = linear_cross_entropy(
            x.flatten(0, 1), self.words.matrix, self.words.bias, targets.repeat_interleave(self.experts)
        )
        nll = -torch.logsumexp(log_prior - each.view(-1, self.experts), -1)
        return nll.masked_fill(targets < 0, 0.0)

    def total(self, h: Tensor, targets: Tensor) -> Tensor:
        return self.nll(h, targets).sum()

    def log_probs(self, h: Tensor) -> Tensor:
        log_prior, x = self._experts(h)
        mixed = None
        for k in range(self.experts):  # one expert's (N, V) at a time
            term = self.words.log_probs(x[:, k]) + log_prior[:, k, None]
            mixed = term if mixed is None else torch.logaddexp(mixed, term)
        assert mixed is not None
        return mixed
