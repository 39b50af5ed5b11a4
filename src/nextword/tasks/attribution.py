"""Integrated gradients: how much each token contributes to what a task head predicts.

Sundararajan, Taly & Yan, "Axiomatic Attribution for Deep Networks" (2017). The text is interpolated from a baseline:
the embedding e_t of each of its tokens comes, as α goes from 0 to 1, out of the baseline b, while special tokens stay.
The baseline is the embedding of the padding token if the vocabulary has one, otherwise the mean of the table. Zeros
would be an input that no network has ever seen: BERT is confident about them, and a network that normalizes first, such
as T5, sees no difference between any two α > 0.

    F(α)    = z_c − mean_k z_k                   logit of class c above the mean; for regression, the number
    a_t     = ∫₀¹ (e_t − b) · ∂F/∂x_t dα         at x_t = b + α (e_t − b), by Gauss-Legendre quadrature, 16 or 64 nodes
    Σ_t a_t = F(1) − F(0)                        complete, up to the error of the quadrature (`Attribution.gap`)

If F is linear in the embeddings, a_t is exactly the contribution of token t. Embeddings are interpolated where they are
looked up, in a module or in a fixed table, so this works for every network that looks its tokens up.
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
from nextword.core.slices import end_slice, slice_tokens
from nextword.core.types import Batch
from nextword.layers.quantized import Int8Embedding
from nextword.models.base import Network
from nextword.tasks.heads import ModelWithHead
from nextword.tokenizers.special_tokens import MARKS

NODES = 16
MAX_GAP = 0.05  # relative to the sum of absolute attributions
MAX_TOKENS = 4096  # in one forward and backward pass
ToDevice = Callable[[Batch], Batch]


@dataclass(frozen=True)
class Attribution:
    tokens: np.ndarray  # (T,) contribution of each token of the example, frame after frame
    score: float  # F(1), for the text
    baseline: float  # F(0), for the baseline

    @property
    def gap(self) -> float:
        """What the sum of contributions misses: the error of the quadrature."""
        return float(self.tokens.sum()) - (self.score - self.baseline)


@dataclass(frozen=True)
class Explanation:
    """How much each word of an example contributes to a label; negative: it is evidence against the label."""

    label: str
    words: tuple[list[str], ...]  # of the text, or of both texts
    weights: tuple[list[float | None], ...]  # None: the text was truncated before this word
    score: float  # the label's logit above the mean of all logits; for regression, the number
    baseline: float  # the same for a text of padding; the weights sum to score − baseline
    gap: float  # up to this error


def attribute_tokens(
    model: ModelWithHead,
    example: Examples,
    is_text: np.ndarray,
    output: int,
    to_device: ToDevice,
    nodes: int = NODES,
    refine: bool = True,
) -> Attribution:
    """Attribute one output of the head to the tokens of one example.

    `is_text` marks the tokens that belong to the text, not to the frame. `refine`: take four times as many nodes if the
    gap is larger than MAX_GAP.
    """
    attribution = _integrate(model, example, is_text, output, to_device, nodes)
    if refine and abs(attribution.gap) > MAX_GAP * float(np.abs(attribution.tokens).sum()):
        return _integrate(model, example, is_text, output, to_device, 4 * nodes)
    return attribution


def sum_by_word(values: Sequence[float] | np.ndarray, words: np.ndarray, count: int) -> list[float | None]:
    """Sum token values over each of `count` words; None for a word without tokens.

    `words` gives the word index of each token, as `Encoding.words`. A truncated text has fewer values than tokens.
    """
    index = np.minimum(words[: len(values)], max(count - 1, 0))
    sums = np.bincount(index, np.asarray(values, np.float64), minlength=count)
    has_tokens = np.bincount(index, minlength=count) > 0
    return [float(value) if read else None for value, read in zip(sums, has_tokens, strict=True)]


# ------------------------------------------------------------------------------------------------ integration


def _integrate(
    model: ModelWithHead, example: Examples, is_text: np.ndarray, output: int, to_device: ToDevice, nodes: int
) -> Attribution:
    points, weights = np.polynomial.legendre.leggauss(nodes)
    # The two ends have weight 0: they are evaluated for the scores alone.
    alphas, weights = np.array([0.0, *(points + 1) / 2, 1.0]), np.array([0.0, *weights / 2, 0.0])
    batch_size = max(1, slice_tokens(MAX_TOKENS) // len(is_text))
    integral, scores = np.zeros(len(is_text)), []
    for start in range(0, len(alphas), batch_size):
        chosen = slice(start, start + batch_size)
        values, gradients = _gradients(model, example, is_text, output, alphas[chosen], to_device)
        scores += values.tolist()
        integral += weights[chosen] @ gradients
        end_slice()
    return Attribution(integral, scores[-1], scores[0])


def _gradients(
    model: ModelWithHead, example: Examples, is_text: np.ndarray, output: int, alphas: np.ndarray, to_device: ToDevice
) -> tuple[np.ndarray, np.ndarray]:
    """Return F (n,) and (e_t − b) · ∂F/∂x_t (n, T) at each of n values of α; the batch repeats the example for each."""
    num_frames, n = example.each, len(alphas)
    by_frame = np.split(is_text, example.starts[1:-1])
    longest = max(map(len, by_frame))
    # Never as many rows as columns: so it shows whether a network looks tokens up batch first or time first.
    rows = n + 1 if n * num_frames == longest else n
    batch = to_device(Bucketed(pack=False).batch(example, np.zeros(rows, np.int64), 0))
    ids = batch.inputs.ids
    frame_mask = np.zeros((num_frames, longest), bool)
    for i, mask in enumerate(by_frame):
        frame_mask[i, : len(mask)] = mask
    text = torch.from_numpy(np.tile(frame_mask, (rows, 1))).to(ids.device)  # (rows · frames, T)
    if batch.inputs.characters is not None:
        text &= ids < model.encoder.known  # a word read by its characters is in no table, so it is not interpolated
    alpha = torch.from_numpy(np.resize(alphas, rows).repeat(num_frames)).to(ids.device)
    share = torch.where(text, alpha.unsqueeze(1), 1.0)
    with interpolate_embeddings(model.encoder, ids, text, share) as lookups, torch.enable_grad():
        logits = model.score_layer(model.layer(batch.inputs), batch).double()  # (rows, outputs)
        score = logits[:, output] - (logits.mean(1) if logits.shape[1] > 1 else 0.0)
        if not lookups:
            raise Unsupported(
                f"{type(model.encoder).__name__} has no embedding table, so its tokens have no attributions.",
                ability="explain",
            )
        gradients = torch.autograd.grad(score[:n].sum(), [x for _, x in lookups], allow_unused=True)
    parts = torch.zeros(text.shape, dtype=torch.float64, device=ids.device)
    for (direction, _), gradient in zip(lookups, gradients, strict=True):
        if gradient is not None:
            part = (direction.double() * gradient.double()).sum(-1)
            parts += part if part.shape == text.shape else part.t()
    parts = parts.masked_fill(~text, 0.0).view(rows, num_frames, longest)[:n]
    unpadded = [parts[:, i, : len(mask)] for i, mask in enumerate(by_frame)]
    return score[:n].detach().cpu().numpy(), torch.cat(unpadded, 1).cpu().numpy()


# ------------------------------------------------------------------------------------------------ interpolation

Lookups = list[tuple[Tensor, Tensor]]  # e − b, and the interpolated x, of every lookup of the batch's ids


class _Interpolation(TorchFunctionMode):
    """Interpolates the embeddings of the batch's own ids, wherever they are looked up, and records them."""

    def __init__(self, ids: Tensor, text: Tensor, alpha: Tensor, pad: int | None) -> None:
        super().__init__()
        self.ids, self.text, self.alpha, self.pad = ids, text, alpha, pad
        self.lookups: Lookups = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is not F.embedding:
            return out
        return self.interpolate(args[0], out, args[1] if len(args) > 1 else (kwargs or {})["weight"])

    def interpolate(self, index: Tensor, vectors: Tensor, table: Tensor | None = None) -> Tensor:
        """Return the interpolated vectors, or `vectors` if the index is not that of the batch.

        The index may be batch first, or time first as in recurrent networks. A network with a window of words (NPLM)
        has extra columns before the first token.
        """
        extra = index.shape[-1] - self.ids.shape[-1]
        if index.dim() == 2 and len(index) == len(self.ids) and extra > 0:
            return torch.cat([vectors[:, :extra], self.interpolate(index[:, extra:], vectors[:, extra:], table)], 1)
        for ids, text, alpha in ((self.ids, self.text, self.alpha), (self.ids.t(), self.text.t(), self.alpha.t())):
            if index.shape == ids.shape and torch.equal(index[text], ids[text]):
                baseline = self._baseline(table, vectors)
                direction = vectors.detach() - baseline
                x = (baseline + direction * alpha.unsqueeze(-1).to(direction.dtype)).requires_grad_()
                self.lookups.append((direction, x))
                return x
        return vectors

    def _baseline(self, table: Tensor | None, vectors: Tensor) -> Tensor:
        """(D,); zeros if vectors are computed from characters and there is no table."""
        if table is None:
            return vectors.new_zeros(vectors.shape[-1])
        has_pad = self.pad is not None and self.pad < len(table)
        return (table[self.pad] if has_pad else table.mean(0)).detach().to(vectors.dtype)


@contextmanager
def interpolate_embeddings(network: Network, ids: Tensor, text: Tensor, alpha: Tensor) -> Iterator[Lookups]:
    """Interpolate embeddings inside the block. An embedding that is not a plain table is caught by a forward hook."""
    special = network.vocabulary.special
    pad = next((special[name] for name in MARKS["pad"] if name in special), None)
    interpolation = _Interpolation(ids, text, alpha, pad)
    module = network.embedding
    hook = None
    if isinstance(module, nn.Module) and not isinstance(module, nn.Embedding):
        table = module.table() if isinstance(module, Int8Embedding) else None
        hook = module.register_forward_hook(lambda _, args, out: interpolation.interpolate(args[0], out, table))
    try:
        # cuDNN's recurrent kernels have a backward pass in training mode only.
        with interpolation, torch.backends.cudnn.flags(enabled=False):
            yield interpolation.lookups
    finally:
        if hook is not None:
            hook.remove()
