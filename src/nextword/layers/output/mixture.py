"""Mixture of softmaxes: several softmaxes over the same words, weighted by the context.

Yang et al., "Breaking the softmax bottleneck: a high-rank RNN language model" (2018):

    p(w | h) = Σ_k π_k(h) · softmax(W tanh(U_k h + u_k) + b)_w        π(h) = softmax(P h)

The log probabilities of a single softmax are a matrix (contexts × words) of rank at most D + 1; those of a mixture are
not bounded so. W is shared by all experts; it is the embedding's where the output is tied.

The experts' inputs, tanh(U_k h + u_k), have locked dropout: one mask for all time steps of a row, another for each
expert. A readout sees vectors, not rows, so the network sets `rows` before each batch.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import invalid
from nextword.layers.dropout import locked_dropout
from nextword.layers.output.base import Readout, at_least_float32
from nextword.layers.output.softmax import FullSoftmax, TiedSoftmax, linear_cross_entropy

ACTIVATIONS = {"tanh": torch.tanh, "none": lambda x: x}


class MixtureOfSoftmaxes(Readout):
    """`latent` is the width of an expert's input; 0: the embedding's where it is tied, else that of h.

    `dropout` is that of the experts' inputs. `rows`: h holds the vectors of the first row, then of the second, and so
    on; 0: unknown, each vector has a mask of its own.
    """

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
        if experts < 1:
            raise invalid("model.readout.experts", experts, "must be at least 1.")
        if activation not in ACTIVATIONS:
            raise invalid("model.readout.activation", activation, f"is unknown. Use {' or '.join(ACTIVATIONS)}.")
        if not 0 <= dropout < 1:
            raise invalid("model.readout.dropout", dropout, "must be at least 0 and below 1.")
        if tied and latent != tied:
            raise invalid("model.readout.latent", latent, f"must be the tied embedding's width, {tied}. Leave it out.")
        self.experts, self.dropout, self.activation = experts, dropout, activation
        self.rows = 0
        self.prior = nn.Linear(width, experts, bias=False)
        self.latent = nn.Linear(width, experts * latent)
        self.words: FullSoftmax | TiedSoftmax = (
            FullSoftmax(latent, size) if embedding is None else TiedSoftmax(embedding)
        )

    @property
    def output_bias(self) -> Tensor | None:
        return self.words.bias

    def _experts(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """log π (N, K), and what each expert reads (N, K, D)."""
        x = ACTIVATIONS[self.activation](self.latent(h))
        if self.training and self.dropout:
            by_time = x.unflatten(0, (self.rows or len(x), -1)).transpose(0, 1)  # (T, B, K·D)
            x = locked_dropout(by_time, self.dropout, True).transpose(0, 1).flatten(0, 1)
        return F.log_softmax(at_least_float32(self.prior(h)), -1), x.unflatten(-1, (self.experts, -1))

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        log_prior, x = self._experts(h)
        each = linear_cross_entropy(
            x.flatten(0, 1), self.words.matrix, self.words.bias, targets.repeat_interleave(self.experts)
        )
        nll = -torch.logsumexp(log_prior - each.view(-1, self.experts), -1)
        return nll.masked_fill(targets < 0, 0.0)

    def log_probs(self, h: Tensor) -> Tensor:
        log_prior, x = self._experts(h)
        mixed = None
        for k in range(self.experts):  # (N, V) of one expert at a time
            term = self.words.log_probs(x[:, k]) + log_prior[:, k, None]
            mixed = term if mixed is None else torch.logaddexp(mixed, term)
        assert mixed is not None
        return mixed
