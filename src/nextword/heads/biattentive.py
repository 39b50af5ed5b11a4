"""The biattentive classification network of McCann et al. (2017, section 5): two texts, each read in view of the other.

    X = biLSTM(relu(W w̃_x))                   Y = biLSTM(relu(W w̃_y))                 w̃: features of each word
    A = X Yᵀ                                   A_x = softmax(A), by columns             A_y = softmax(Aᵀ), by columns
    C_x = A_xᵀ X                               C_y = A_yᵀ Y                             what each sees of the other
    X|y = biLSTM₁([X; X − C_y; X ⊙ C_y])       Y|x = biLSTM₂([Y; Y − C_x; Y ⊙ C_x])
    x = [max; mean; min; Σ_t β_t X|y_t]        β = softmax(X|y v + d)                   y likewise, of Y|x
    [x; y] ─▶ maxout, twice, with batch norm ─▶ linear ─▶ classes

Of one text both sides are that text. Padding is never read: LSTMs end where their row does, and all the softmaxes and
pools leave it out. Shapes: B examples, T and S words of either text, D = 2 · width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.heads.blocks import normed
from nextword.layers.bilstm import BiLSTM

CHANNELS = 4  # that a maxout unit chooses from


class Biattentive(nn.Module):
    """`reduction`: how many times narrower the first maxout layer is than what was pooled; the second halves that."""

    def __init__(self, inputs: int, outputs: int, width: int, reduction: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.lead = nn.Linear(inputs, width)
        self.encoder = BiLSTM(width, width)
        self.integrate = nn.ModuleList(BiLSTM(6 * width, width) for _ in range(2))
        self.attend = nn.ModuleList(nn.Linear(2 * width, 1) for _ in range(2))
        pooled = 2 * 4 * 2 * width
        first = max(1, pooled // reduction)
        second = max(1, first // 2)
        self.maxout = nn.ModuleList((Maxout(pooled, first), Maxout(first, second)))
        self.out = nn.Linear(second, outputs)

    def forward(self, x: Tensor, there: Tensor, each: int = 1) -> Tensor:
        """(n · each, T, I) features, (n · each, T) where there is a word → (n, outputs); `each` is 2 for pairs."""
        x = self.encoder(torch.relu(self.lead(self._dropped(x))), there)
        sides = [(x[i::each], there[i::each]) for i in range(each)]
        (x, in_x), (y, in_y) = sides[0], sides[-1]
        c_x, c_y = biattention(x, in_x, y, in_y)
        views = ((x, c_y, in_x), (y, c_x, in_y))
        pools = [self._pooled(i, *view) for i, view in enumerate(views)]
        z = torch.cat(pools, -1)
        for layer in self.maxout:
            z = layer(self._dropped(z))
        return self.out(self._dropped(z))

    def _pooled(self, side: int, x: Tensor, context: Tensor, there: Tensor) -> Tensor:
        h = self.integrate[side](torch.cat([x, x - context, x * context], -1), there)
        return max_mean_pooled(h, there, self.attend[side](h).squeeze(-1))

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)


def biattention(x: Tensor, in_x: Tensor, y: Tensor, in_y: Tensor) -> tuple[Tensor, Tensor]:
    """(B, T, D), (B, S, D) → C_x (B, S, D), what each word of y sees of x; C_y (B, T, D), what each of x sees of y."""
    a = x @ y.transpose(1, 2)  # (B, T, S)
    a_x = a.masked_fill(~in_x.unsqueeze(2), -torch.inf).softmax(1)
    a_y = a.masked_fill(~in_y.unsqueeze(1), -torch.inf).softmax(2)
    return a_x.transpose(1, 2) @ x, a_y @ y


def max_mean_pooled(h: Tensor, there: Tensor, scores: Tensor) -> Tensor:
    """(B, T, D) → (B, 4 D): the greatest, the mean, the least, and the mean by attention."""
    gone = ~there.unsqueeze(-1)
    count = there.sum(1, keepdim=True).to(h.dtype)
    mean = h.masked_fill(gone, 0).sum(1) / count
    weights = scores.masked_fill(~there, -torch.inf).softmax(1)
    attended = (weights.unsqueeze(1) @ h.masked_fill(gone, 0)).squeeze(1)
    most, least = h.masked_fill(gone, -torch.inf).amax(1), h.masked_fill(gone, torch.inf).amin(1)
    return torch.cat([most, mean, least, attended], 1)


class Maxout(nn.Module):
    """Goodfellow et al. (2013) with batch norm: each unit is the greatest of its channels."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, CHANNELS * units, bias=False)
        self.norm = nn.BatchNorm1d(CHANNELS * units)

    def forward(self, x: Tensor) -> Tensor:
        return normed(self.norm, self.linear(x)).unflatten(-1, (-1, CHANNELS)).amax(-1)
