"""Which tokens of a text speak for what a head says: integrated gradients over the embeddings.

Sundararajan, Taly & Yan, "Axiomatic Attribution for Deep Networks" (2017). The text fades in: the vectors e_t that its
tokens are looked up as come, by α from 0 to 1, out of the vector b of a blank, while the tokens of the frame around it
stay as they are. A blank is the token for padding, where the vocabulary has one, and else the mean of the table. Zeros
would be nothing that a network has ever seen: BERTs are sure of what they say of them, and to a norm that comes first,
as in T5, any α above 0 is the same.

    F(α)   = z_c − mean_k z_k                    how far the class c lies above all of them; of a number, the number
    a_t    = ∫₀¹ (e_t − b) · ∂F/∂x_t dα          at x_t = b + α (e_t − b), by Gauss and Legendre, in 16 places or 64
    Σ_t a_t = F(1) − F(0)                        nothing is left over but what the places miss (`Attribution.gap`)

Where F is linear in the embeddings, a_t is exactly what token t adds to it. Vectors are faded where they are looked up,
be it in a module or in a table that is never trained, so that it serves every network that looks its tokens up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from nextword.batching.examples import Bucketed, Examples
from nextword.core.errors import Unsupported
from nextword.core.types import Batch
from nextword.layers.quantized import Int8Embedding
from nextword.tokenizers.base import MARKS

STEPS = 16
LEFT = 0.05  # of all weights
Place = Callable[[Batch], Batch]  # to where the network is
TOGETHER = 4096  # tokens read at once, with all that a backward pass needs


@dataclass(frozen=True)
class Attribution:
    tokens: np.ndarray  # (tokens of the example,) in the order of its frames
    said: float  # F of the whole text
    blank: float  # F of a text of blanks

    @property
    def gap(self) -> float:
        """What the sum misses: 0 but for the places between those where gradients were taken."""
        return float(self.tokens.sum()) - (self.said - self.blank)


def attributed(
    headed: Any, example: Examples, own: np.ndarray, output: int, place: Place, steps: int = STEPS, again: bool = True
) -> Attribution:
    """Of one example (all its frames), for one output of the head. `own`: which of its tokens are the text's.

    `again`: where more than LEFT of the weights would be left over, four times as many steps are taken.
    """
    found = _integrated(headed, example, own, output, place, steps)
    if again and abs(found.gap) > LEFT * float(np.abs(found.tokens).sum()):
        return _integrated(headed, example, own, output, place, 4 * steps)
    return found


def _integrated(headed: Any, example: Examples, own: np.ndarray, output: int, place: Place, steps: int) -> Attribution:
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    alphas, weights = np.array([0.0, *(nodes + 1) / 2, 1.0]), np.array([0.0, *weights / 2, 0.0])
    rows = max(1, TOGETHER // len(own))
    sums, values = np.zeros(len(own)), []
    for at in range(0, len(alphas), rows):
        chosen = slice(at, at + rows)
        found, parts = _gradients(headed, example, own, output, alphas[chosen], place)
        values += found.tolist()
        sums += weights[chosen] @ parts
    return Attribution(sums, values[-1], values[0])


def _gradients(
    headed: Any, example: Examples, own: np.ndarray, output: int, alphas: np.ndarray, place: Place
) -> tuple[np.ndarray, np.ndarray]:
    """F (n,) and (e_t − b) · ∂F/∂x_t (n, tokens) at each α; the example is repeated, a row for each."""
    each, n = example.each, len(alphas)
    inside = np.split(own, example.starts[1:-1])  # by frame
    longest = max(map(len, inside))
    many = n + 1 if n * each == longest else n  # never as many rows as columns: so it is seen which way they lie
    batch = place(Bucketed(pack=False).batch(example, np.zeros(many, np.int64), 0))
    ids = batch.inputs.ids
    faded = np.zeros((each, longest), bool)
    for i, one in enumerate(inside):
        faded[i, : len(one)] = one
    text = torch.from_numpy(np.tile(faded, (many, 1))).to(ids.device)  # (many · each, T)
    if batch.inputs.characters is not None:
        text &= ids < headed.encoder.known  # words by their letters alone are in no table: they stay
    alpha = torch.from_numpy(np.resize(alphas, many).repeat(each)).to(ids.device)
    share = torch.where(text, alpha.unsqueeze(1), 1.0)
    with _fading(headed.encoder, ids, text, share) as fade, torch.enable_grad():
        z = headed.judge(headed.layer(batch.inputs), batch).double()  # (many, outputs)
        value = z[:, output] - (z.mean(1) if z.shape[1] > 1 else 0.0)
        if not fade.vectors:
            raise Unsupported(
                f"{type(headed.encoder).__name__} looks no token up in a table, so what each of them adds cannot be told."
            )
        gradients = torch.autograd.grad(value[:n].sum(), [x for _, x in fade.vectors], allow_unused=True)
    parts = torch.zeros(text.shape, dtype=torch.float64, device=ids.device)
    for (way, _), gradient in zip(fade.vectors, gradients, strict=True):
        if gradient is not None:
            mine = (way.double() * gradient.double()).sum(-1)
            parts += mine if mine.shape == text.shape else mine.t()
    parts = parts.masked_fill(~text, 0.0).view(many, each, longest)[:n]
    cut = [parts[:, i, : len(one)] for i, one in enumerate(inside)]
    return value[:n].detach().cpu().numpy(), torch.cat(cut, 1).cpu().numpy()


class _Fade(TorchFunctionMode):
    """Fades what the batch's own ids are looked up as, and keeps how far that goes, and what becomes of it."""

    def __init__(self, ids: Tensor, text: Tensor, share: Tensor, pad: int | None) -> None:
        super().__init__()
        self.ids, self.text, self.share, self.pad = ids, text, share, pad
        self.vectors: list[tuple[Tensor, Tensor]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is not F.embedding:
            return out
        return self.faded(args[0], out, args[1] if len(args) > 1 else (kwargs or {})["weight"])

    def faded(self, index: Tensor, vectors: Tensor, table: Tensor | None = None) -> Tensor:
        """Rows may lie beside each other or, as recurrent networks like them, one step of all after the other. Where a
        network has a window of words, others stand before the first of a text."""
        more = index.shape[-1] - self.ids.shape[-1]
        if index.dim() == 2 and len(index) == len(self.ids) and more > 0:
            return torch.cat([vectors[:, :more], self.faded(index[:, more:], vectors[:, more:], table)], 1)
        for ids, text, share in ((self.ids, self.text, self.share), (self.ids.t(), self.text.t(), self.share.t())):
            if index.shape == ids.shape and torch.equal(index[text], ids[text]):
                base = self.blank(table, vectors)
                way = vectors.detach() - base
                x = (base + way * share.unsqueeze(-1).to(way.dtype)).requires_grad_()
                self.vectors.append((way, x))
                return x
        return vectors

    def blank(self, table: Tensor | None, like: Tensor) -> Tensor:
        """(D,); zeros where vectors are made of letters and there is no table."""
        if table is None:
            return like.new_zeros(like.shape[-1])
        known = self.pad is not None and self.pad < len(table)
        return (table[self.pad] if known else table.mean(0)).detach().to(like.dtype)


@contextmanager
def _fading(network: Any, ids: Tensor, text: Tensor, share: Tensor) -> Iterator[_Fade]:
    """While it lasts, texts are read faded. A module that makes vectors of letters is caught as a whole."""
    special = network.vocabulary.special
    fade = _Fade(ids, text, share, next((special[name] for name in MARKS["pad"] if name in special), None))
    module = getattr(network, "embedding", None)
    hook = None
    if isinstance(module, nn.Module) and not isinstance(module, nn.Embedding):
        table = module.table() if isinstance(module, Int8Embedding) else None
        hook = module.register_forward_hook(lambda _, args, out: fade.faded(args[0], out, table))
    try:
        # the recurrent kernels of a GPU go backward in training alone
        with fade, torch.backends.cudnn.flags(enabled=False):
            yield fade
    finally:
        if hook is not None:
            hook.remove()


def of_words(values: Sequence[float] | np.ndarray, words: np.ndarray, count: int) -> list[float | None]:
    """Sums over the tokens of each of `count` words; None for a word of which nothing was read.

    `words` says whose each token is, as `Encoding.words`; there may be fewer tokens than that, where a text was cut.
    """
    mine = np.minimum(words[: len(values)], max(count - 1, 0))
    sums = np.bincount(mine, np.asarray(values, np.float64), minlength=count)
    read = np.bincount(mine, minlength=count) > 0
    return [float(x) if there else None for x, there in zip(sums, read, strict=True)]
