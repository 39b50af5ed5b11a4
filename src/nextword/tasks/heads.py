"""A network with a task head on top of it, and the heads that turn the tokens of a text into one vector of logits.

    frames ──network.encode──▶ h (B, T, D) ──pooling──▶ (n, D) ──[dense, tanh]── linear──▶ (n, outputs)

`ModelWithHead` is the base class of every head; tagging, question answering and the others define theirs in their own
files. `TextHead` gives one vector of logits per example. What it reads follows the papers, and depends on what a
network can do, not on its name (`pooling = "auto"`):

    has a pretrained pooler          tanh(W h₁), as BERT and ALBERT have it; it is fine-tuned with the rest
    bidirectional, no pooler         the same with new weights: RoBERTa at <s>, XLNet at its last token
    BERT trained without pairs       the mean of the last layer, unchanged
    reads left to right              the vector of the last token, unchanged: GPT, recurrent networks

New weights are drawn from N(0, 0.02²). Other values of `pooling` replace the one token by a pool over all tokens,
without tanh. `classifier` chooses what computes the logits: "linear", "mlp" or "biattentive".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from nextword.core import pytree
from nextword.core.errors import InvalidSetting, Unsupported
from nextword.core.protocols import Infilling
from nextword.core.types import Batch, Inputs, State
from nextword.layers.recurrent import BiLSTM
from nextword.models.base import Network
from nextword.models.framing import SPREAD, combine
from nextword.models.storage import load_checked_weights

if TYPE_CHECKING:
    from nextword.tasks.classification import TextHeadConfig

HEAD_FILE = "head.safetensors"


# ------------------------------------------------------------------------------------------------ a network with a head


class ModelWithHead(Network):
    """A network and a head, trained, saved and loaded as one.

    `features` names the layer that the head reads, and a `frozen` network stays as it is. The network's own files are
    unchanged by the head, so the run can also be opened without it.
    """

    encoder: Any  # a Network that is an Encoder
    out: Any
    weights: Tensor | None  # (classes,) class weights of the loss

    def __init__(self, network: Network, features: str | int = "", frozen: bool = False) -> None:
        super().__init__(None, network.vocabulary)
        self.encoder, self.frozen = network, frozen
        self.layer_index = find_layer(network, str(features))
        self.register_buffer("weights", None, persistent=False)
        if frozen:
            network.requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        """Switch training mode on or off; a frozen network has no dropout either way."""
        super().train(mode)
        if self.frozen:
            self.encoder.eval()
        return self

    def read_layer(self, inputs: Inputs) -> Tensor:
        """The layer that the head reads (B, T, D)."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            return self.layer(inputs)

    def layer(self, inputs: Inputs) -> Tensor:
        """The same layer; gradients flow through a frozen network too, for attributions."""
        layer: Tensor = self.encoder.layer_at(inputs, self.layer_index)
        return layer

    def forward(self, batch: Batch) -> Tensor:
        """The head's outputs for a batch."""
        return self.score_layer(self.read_layer(batch.inputs), batch)

    def score_layer(self, h: Tensor, batch: Batch) -> Tensor:
        """The head's outputs from the layer that it reads (B, T, D), for callers that need that layer themselves."""
        raise Unsupported(f"{type(self).__name__} cannot attribute its outputs to words.", ability="explain")

    # -------------------------------------------------------------------------------------------- for the trainer

    @property
    def base(self) -> Network:
        """The network without its task head."""
        network: Network = self.encoder
        return network

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.out.parameters()).device
        return device

    def num_parameters(self) -> int:
        """Learned numbers of the network and the head."""
        own = sum(p.numel() for name, p in self.named_parameters() if not name.startswith("encoder."))
        return self.base.num_parameters() + own

    # -------------------------------------------------------------------------------------------- files

    def quantize(self) -> None:
        """Replace the network's weights by int8 weights; the head keeps its own."""
        self.encoder.quantize()

    def save(self, folder: Path) -> list[str]:
        save_file({name: t.contiguous() for name, t in self.head_tensors().items()}, str(folder / HEAD_FILE))
        return [*self.encoder.save(folder), HEAD_FILE]

    def reload(self, folder: Path) -> None:
        """Replace the weights by those in the folder."""
        self.encoder.reload(folder)
        self.load_head(folder)

    def load_head(self, folder: Path) -> None:
        """Replace the weights of the head by those in the folder."""
        self.load_state_dict(load_checked_weights(folder / HEAD_FILE), strict=False)

    def head_tensors(self) -> dict[str, Tensor]:
        return {name: t for name, t in self.state_dict().items() if not name.startswith("encoder.")}


def find_layer(network: Network, name: str) -> int:
    """Return the index of the layer of `encode` that a name or a number means; "" is the last."""
    if not name:
        return -1
    if name in network.layer_names:
        return network.layer_names[name]
    depth = len(network.widths)
    if not name.lstrip("-").isdecimal() or not -depth <= int(name) < depth:
        known = ", ".join([*network.layer_names, f"a layer from 0 (embeddings) to {depth - 1}, or -1 for the last"])
        raise InvalidSetting(
            f"[task] features = {name!r}: {type(network).__name__} has no such layer. Expected {known}.",
            key="task.features",
            value=name,
        )
    return -1 if int(name) == depth - 1 else int(name)  # the last layer has one index, so that -1 means it everywhere


def tensors_of_last_layers(network: Network, n: int) -> tuple[str, ...]:
    """Return the names of the tensors of the last n layers, and of the pooler if there is one.

    They are reinitialized before fine-tuning: Zhang et al., "Revisiting Few-sample BERT Fine-tuning" (2021), section 5,
    find that on small data new weights in the last layers make fine-tuning more stable.
    """

    def error(reason: str) -> InvalidSetting:
        return InvalidSetting(f"[task] reinit_layers = {n}: {reason}", key="task.reinit_layers", value=n)

    if not n:
        return ()
    name, stacks = type(network).__name__, network.stacks()
    if not stacks:
        raise error(f"{name} has no stack of layers to reinitialize. Leave it out.")
    layers = network.config.layers
    if min(map(len, stacks)) < layers:
        raise error(
            f"the {layers} layers of this {name} share their weights, so the last ones cannot be reinitialized alone. "
            "Leave it out, or start without any pretrained weights (--scratch)."
        )
    if n > layers:
        raise error(f"this {name} has {layers} layers. Expected at most {layers}.")
    modules = [layer for stack in stacks for layer in stack[-n:]]
    modules += [] if network.pooler is None else [network.pooler]
    chosen = {id(module) for module in modules}
    prefixes = tuple(name + "." for name, module in network.named_modules() if id(module) in chosen)
    return tuple(name for name in network.state_dict() if name.startswith(prefixes))


# ------------------------------------------------------------------------------------------------ pooling

POOLINGS = {"last": 1, "mean": 1, "max": 1, "concat": 3}  # how many times wider than the layer the pooled vector is


def pool(how: str, h: Tensor, inputs: Inputs) -> Tensor:
    """(B, T, D) → (frames, D) in at least 32 bits. "concat" is [last; max; mean], (frames, 3 D): Howard & Ruder 2018.

    Frames are padded rows, or packed end to end in one row (`inputs.starts`). Padding is never read.
    """
    if how == "mean":
        return mean_pool(h, inputs)
    x, mask = unpack_rows(h.to(torch.promote_types(h.dtype, torch.float32)), inputs)
    sizes = mask.sum(1).clamp(min=1)
    last = x[torch.arange(len(x), device=x.device), sizes - 1]
    if how == "last":
        return last
    highest = x.masked_fill(~mask.unsqueeze(-1), -torch.inf).amax(1)
    if how == "max":
        return highest
    return torch.cat([last, highest, mean_pool(x, Inputs(inputs.ids, mask))], -1)


def unpack_rows(h: Tensor, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """(frames, T, D), and a mask (frames, T) that is True where there is a token."""
    if inputs.starts is not None:
        sizes = inputs.starts.long().diff()
        padded = pad_sequence(list(h[0].split(sizes.tolist())), batch_first=True)
        return padded, torch.arange(padded.shape[1], device=h.device) < sizes.unsqueeze(1)
    if inputs.token_mask is None:
        return h, torch.ones(h.shape[:2], dtype=torch.bool, device=h.device)
    return h, inputs.token_mask


def mean_pool(h: Tensor, inputs: Inputs) -> Tensor:
    """(frames, D): the mean of the vectors of each frame."""
    wide = h.to(torch.promote_types(h.dtype, torch.float32))
    if inputs.starts is not None:
        starts = inputs.starts.long()
        sizes = starts.diff()
        slots = torch.arange(wide.shape[1], device=h.device)
        frame = torch.searchsorted(starts, slots, right=True) - 1
        sums = wide.new_zeros(len(sizes), wide.shape[-1]).index_add(0, frame, wide[0])
        return sums / sizes.clamp(min=1).unsqueeze(1)
    if inputs.token_mask is None:
        return wide.mean(1)
    mask = inputs.token_mask.unsqueeze(-1).to(wide.dtype)
    return (wide * mask).sum(1) / mask.sum(1).clamp(min=1)


# ------------------------------------------------------------------------------------------------ the "mlp" classifier


class MLPClassifier(nn.Module):
    """Blocks of batch norm, dropout and a linear layer, with ReLU between them (Howard & Ruder 2018, section 3.3).

    x ─ norm ─ dropout 0.4 ─ linear to 50 ─ relu ─ norm ─ dropout 0.1 ─ linear to the classes
    """

    def __init__(self, inputs: int, hidden_sizes: Sequence[int], outputs: int, dropouts: Sequence[float]) -> None:
        super().__init__()
        sizes = [inputs, *hidden_sizes, outputs]
        self.dropouts = tuple(dropouts)
        self.norms = nn.ModuleList(QuickBatchNorm(size) for size in sizes[:-1])
        self.linear = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) → (…, outputs)."""
        shape = x.shape[:-1]
        x = x.flatten(0, -2)
        for i, (norm, linear, dropout) in enumerate(zip(self.norms, self.linear, self.dropouts, strict=True)):
            x = torch.relu(x) if i else x
            x = linear(F.dropout(norm(x), dropout, self.training))
        logits: Tensor = x.unflatten(0, shape)
        return logits


class QuickBatchNorm(nn.BatchNorm1d):
    """Batch norm whose running statistics are good after a few steps: they start as a plain mean over batches.

    Torch starts with a variance of 1 and moves a tenth towards that of each batch. The vectors of two texts may differ
    by hundredths, so after fifty steps, all that a hundred labels give, the initial 1 still outweighs the data. Here
    the n-th batch has weight 1/n, and a tenth from the tenth on.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or len(x) == 1:
            return normalize_with_running_stats(self, x)
        assert self.num_batches_tracked is not None
        with torch.no_grad():
            weight = (1 / self.num_batches_tracked.add_(1).to(x.dtype)).clamp(min=self.momentum)
            for running, now in ((self.running_mean, x.mean(0)), (self.running_var, x.var(0))):
                running.lerp_(now, weight)  # type: ignore[union-attr]
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


def batch_norm(norm: nn.BatchNorm1d, x: Tensor) -> Tensor:
    """Batch norm; a batch of one has no variance, so it is normalized with the running statistics."""
    return normalize_with_running_stats(norm, x) if norm.training and len(x) == 1 else norm(x)


def normalize_with_running_stats(norm: nn.BatchNorm1d, x: Tensor) -> Tensor:
    return F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, 0.0, norm.eps)


# ------------------------------------------------------------------------------------------------ the "biattentive" one

CHANNELS = 4  # per maxout unit


class BiattentiveClassifier(nn.Module):
    """The biattentive classification network of McCann et al. (2017, section 5): each text is read given the other.

        X = biLSTM(relu(W w̃_x))                   Y = biLSTM(relu(W w̃_y))                 w̃: features of each word
        A = X Yᵀ                                   A_x = softmax(A), by columns             A_y = softmax(Aᵀ), by
        columns C_x = A_xᵀ X                               C_y = A_yᵀ Y                             what each sees of
        the other X|y = biLSTM₁([X; X − C_y; X ⊙ C_y])       Y|x = biLSTM₂([Y; Y − C_x; Y ⊙ C_x])
        x = [max; mean; min; Σ_t β_t X|y_t]        β = softmax(X|y v + d)                   y likewise, of Y|x
        [x; y] ─▶ maxout, twice, with batch norm ─▶ linear ─▶ classes

    With one text, both sides are that text. Padding is never read. `reduction` is how many times narrower the first
    maxout layer is than the pooled vector; the second halves that. Shapes: B examples, T and S words, D = 2 · width.
    """

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

    def forward(self, x: Tensor, mask: Tensor, texts: int = 1) -> Tensor:
        """(n · texts, T, I) features, (n · texts, T) mask → (n, outputs); `texts` is 2 for pairs."""
        x = self.encoder(torch.relu(self.lead(self._dropout(x))), mask)
        sides = [(x[i::texts], mask[i::texts]) for i in range(texts)]
        (x, in_x), (y, in_y) = sides[0], sides[-1]
        c_x, c_y = biattention(x, in_x, y, in_y)
        views = ((x, c_y, in_x), (y, c_x, in_y))
        z = torch.cat([self._integrate(i, *view) for i, view in enumerate(views)], -1)
        for layer in self.maxout:
            z = layer(self._dropout(z))
        logits: Tensor = self.out(self._dropout(z))
        return logits

    def _integrate(self, side: int, x: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        h = self.integrate[side](torch.cat([x, x - context, x * context], -1), mask)
        return max_mean_min_attention_pool(h, mask, self.attend[side](h).squeeze(-1))

    def _dropout(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)


def biattention(x: Tensor, in_x: Tensor, y: Tensor, in_y: Tensor) -> tuple[Tensor, Tensor]:
    """(B, T, D), (B, S, D) → C_x (B, S, D), what each word of y sees of x; C_y (B, T, D), what each of x sees of y."""
    a = x @ y.transpose(1, 2)  # (B, T, S)
    a_x = a.masked_fill(~in_x.unsqueeze(2), -torch.inf).softmax(1)
    a_y = a.masked_fill(~in_y.unsqueeze(1), -torch.inf).softmax(2)
    return a_x.transpose(1, 2) @ x, a_y @ y


def max_mean_min_attention_pool(h: Tensor, mask: Tensor, scores: Tensor) -> Tensor:
    """(B, T, D) → (B, 4 D): maximum, mean, minimum, and the mean weighted by softmax(scores)."""
    padding = ~mask.unsqueeze(-1)
    count = mask.sum(1, keepdim=True).to(h.dtype)
    mean = h.masked_fill(padding, 0).sum(1) / count
    weights = scores.masked_fill(~mask, -torch.inf).softmax(1)
    attended = (weights.unsqueeze(1) @ h.masked_fill(padding, 0)).squeeze(1)
    highest, lowest = h.masked_fill(padding, -torch.inf).amax(1), h.masked_fill(padding, torch.inf).amin(1)
    return torch.cat([highest, mean, lowest, attended], 1)


class Maxout(nn.Module):
    """Goodfellow et al. (2013) with batch norm: each unit is the maximum of its channels."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, CHANNELS * units, bias=False)
        self.norm = nn.BatchNorm1d(CHANNELS * units)

    def forward(self, x: Tensor) -> Tensor:
        channels: Tensor = batch_norm(self.norm, self.linear(x)).unflatten(-1, (-1, CHANNELS))
        return channels.amax(-1)


# ------------------------------------------------------------------------------------------------ long texts, in chunks
#
#     chunk = 3, bptt_window = 7      a b c│d e f│g h i│j k            of 11 tokens
#                                     no gradient│ in the window: read by the head, with gradients
#
# Backpropagation through time for text classification (BPT3C: Howard & Ruder 2018, section 3.3), for networks that
# carry their state from left to right. Chunks begin at multiples of `chunk`, and those that begin among the last
# `bptt_window` tokens are in the window, as in fastai. Within the window the state carries its gradient, so a text no
# longer than that is read as if at once. What lies before the window costs time, but no memory.

TOGETHER = 2048  # tokens of all texts that are read at once without gradients, if dropout does not depend on chunks

Read = Callable[[Inputs, State], tuple[Tensor, State]]  # the layer that the head reads (B, T, D), and the new state


def tokens_before_window(sizes: Sequence[int], chunk: int, bptt_window: int) -> np.ndarray:
    """Tokens at the beginning of each text that are read without a gradient; `bptt_window` = 0: none."""
    if not bptt_window:
        return np.zeros(len(sizes), np.int64)
    beyond = np.maximum(np.array(sizes, np.int64) - bptt_window, 0)
    return -(-beyond // chunk) * chunk


def read_in_chunks(
    read: Read, initial: State, batch: Batch, chunk: int, bptt_window: int, drawn: bool = True
) -> tuple[Tensor, Batch]:
    """The vectors of the window (frames, T, D), and the batch reduced to it: padded rows.

    `initial` is the state in which every frame begins, one row each. `drawn`: the network draws dropout masks per
    chunk; if not, many chunks before the window are read at once, with the same result.
    """
    inputs = batch.inputs
    starts, sizes = _frames_of(inputs)
    ids, device = inputs.ids.reshape(-1), inputs.ids.device
    skips = tokens_before_window(sizes.tolist(), chunk, bptt_window)
    state = initial
    with torch.no_grad():
        done = 0
        while len(active := np.flatnonzero(skips > done)):  # texts that are not at their window yet go on together
            until, rows_on = int(skips[active].min()), torch.from_numpy(active).to(device)
            part = pytree.take(state, rows_on)
            step = chunk if drawn else chunk * max(1, TOGETHER // (len(active) * chunk))
            for begin in range(done, until, step):
                piece = starts[active, None] + np.arange(begin, min(begin + step, until))
                part = read(_unpadded(inputs, ids[torch.from_numpy(piece).to(device)]), part)[1]
            state, done = _put(state, rows_on, part), until
    rest = sizes - skips
    mask = np.arange(int(rest.max())) < rest[:, None]
    positions = np.where(mask, (starts + skips)[:, None] + np.arange(mask.shape[1]), starts[:, None])
    rows = ids[torch.from_numpy(positions).to(device)]
    layers = []
    for start in range(0, rows.shape[1], chunk):
        active = np.flatnonzero(rest > start)  # texts that have not ended
        if len(active) == len(rows):
            h, state = read(_unpadded(inputs, rows[:, start : start + chunk]), state)
        else:
            rows_on = torch.from_numpy(active).to(device)
            part, after = read(_unpadded(inputs, rows[rows_on, start : start + chunk]), pytree.take(state, rows_on))
            h = part.new_zeros(len(rows), *part.shape[1:]).index_copy(0, rows_on, part)
            state = _put(state, rows_on, after)
        layers.append(h)
    assert batch.target_positions is not None
    moved = torch.from_numpy(np.arange(len(sizes)) * mask.shape[1] - starts - skips).to(device)
    window = Inputs(rows, torch.from_numpy(mask).to(device), sizes=tuple(rest.tolist()))
    return torch.cat(layers, 1), replace(batch, inputs=window, target_positions=batch.target_positions + moved)


def _unpadded(inputs: Inputs, ids: Tensor) -> Inputs:
    """Rows without a mask: padding at their ends is read after everything that counts, so it changes nothing."""
    return replace(inputs, ids=ids, token_mask=None, starts=None, sizes=None)


def _frames_of(inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
    """Where each frame starts among the flat ids, and its number of tokens."""
    rows, width = inputs.ids.shape
    if inputs.starts is not None:
        sizes = np.array(inputs.sizes or inputs.starts.diff().tolist(), np.int64)
        return np.cumsum(sizes) - sizes, sizes
    counts = [width] * rows if inputs.token_mask is None else inputs.token_mask.sum(1).tolist()
    return np.arange(rows) * width, np.array(inputs.sizes or counts, np.int64)


def _put(state: State, rows: Tensor, values: State) -> State:
    """The state with these rows replaced."""
    new, _ = pytree.flatten(values, "state")
    old, shape = pytree.flatten(state, "state")
    return pytree.unflatten({name: t.index_copy(0, rows, new[name].to(t.dtype)) for name, t in old.items()}, shape)


# ------------------------------------------------------------------------------------------------ logits of a text

AUTO = "auto"
CLASSIFIERS = ("linear", "mlp", "biattentive")


class TextHead(ModelWithHead):
    """One vector of logits, or one number, per example."""

    def __init__(
        self, network: Network, config: TextHeadConfig, outputs: int, class_weights: Sequence[float] = ()
    ) -> None:
        """`outputs`: the number of classes, or 1 for a number."""
        super().__init__(network, config.features, config.frozen)
        self.config = config
        self.weights = torch.tensor(class_weights) if class_weights else None
        width = network.widths[self.layer_index]
        self.out: Any
        self.dense: nn.Linear | None = None
        self.uses_pooler = False
        self.pooling = config.pooling
        if config.classifier == "biattentive":
            self.out = BiattentiveClassifier(width, outputs, config.width, config.reduction, config.dropout)
            return
        self.pooling = "mean" if config.pooling == AUTO and network.pools_mean else config.pooling
        auto, inputs = self.pooling == AUTO, POOLINGS.get(self.pooling, 1) * width
        self.uses_pooler = auto and self.layer_index == -1 and network.pooler is not None
        if config.classifier == "mlp":
            dropouts = tuple(config.dropouts) or (config.dropout,) * (len(config.hidden_sizes) + 1)
            self.out = MLPClassifier(inputs, config.hidden_sizes, outputs, dropouts)
            return
        dense = auto and not self.uses_pooler and isinstance(network, Infilling)
        self.dense = nn.Linear(width, width) if dense else None
        self.out = nn.Linear(inputs, outputs)
        for layer in (self.dense, self.out):
            if layer is not None:
                nn.init.normal_(layer.weight, std=SPREAD)
                nn.init.zeros_(layer.bias)

    @property
    def recordable(self) -> bool:  # type: ignore[override]
        """Whether training steps can be captured in a CUDA graph: they never synchronize with the GPU."""
        plain = type(self) is TextHead and self.config.classifier == "linear" and self.pooling in (AUTO, "mean")
        return plain and not self.is_stateful and self.base.recordable

    @property
    def is_stateful(self) -> bool:  # type: ignore[override]
        return bool(self.config.chunk) and self.base.is_stateful

    def forward(self, batch: Batch) -> Tensor:
        """(n, outputs) in 32 bits: logits of the classes, or one number."""
        if self.is_stateful:
            return self.score_layer(*self.read_chunks(batch))
        return self.score_layer(self.read_layer(batch.inputs), batch)

    def read_chunks(self, batch: Batch) -> tuple[Tensor, Batch]:
        """The layer that the head reads, of texts of any length, and the batch reduced to what it reads."""
        frames = len(batch.inputs.ids) if batch.inputs.starts is None else len(batch.inputs.starts) - 1

        def read(inputs: Inputs, state: State) -> tuple[Tensor, State]:
            layers, state = self.encoder.encode(inputs, state)
            return layers[self.layer_index], state

        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            initial = self.encoder.start(frames)[1]
            drawn = self.encoder.training and self.encoder.has_locked_dropout
            return read_in_chunks(read, initial, batch, self.config.chunk, self.config.bptt_window, drawn)

    def score_layer(self, h: Tensor, batch: Batch) -> Tensor:
        """(n, outputs)"""
        h = h[..., : self.encoder.widths[self.layer_index]]
        positions = batch.target_positions
        frames = None if positions is None else len(positions)  # a frame that only fills up a row does not count
        if self.config.classifier == "biattentive":
            x, mask = (t[:frames] for t in unpack_rows(h, batch.inputs))
            with torch.autocast(x.device.type, enabled=False):
                logits: Tensor = self.out(x.to(self.out.out.weight.dtype), mask, len(x) // len(batch.targets))
            return logits
        if self.pooling != AUTO:
            x = pool(self.pooling, h, batch.inputs)[:frames]
        else:
            assert positions is not None
            x = h.reshape(-1, h.shape[-1]).index_select(0, positions)  # (frames, D)
        return self.score_vectors(x, len(batch.targets))

    def score_vectors(self, x: Tensor, examples: int | None = None) -> Tensor:
        """(n, outputs) from one vector per frame (frames, D); `examples`: how many examples the frames belong to, if an
        example may have several."""
        if self.uses_pooler:
            x = self.encoder.pooled(x)
        elif self.dense is not None:
            x = torch.tanh(self.dense(F.dropout(x, self.config.dropout, self.training)))
        if examples is not None:
            x = combine(self.config.frame, x.view(examples, -1, x.shape[-1]))
        if self.config.classifier == "linear":
            x = F.dropout(x, self.config.dropout, self.training)
        with torch.autocast(x.device.type, enabled=False):
            logits: Tensor = self.out(x.to(next(self.out.parameters()).dtype))
        return logits
