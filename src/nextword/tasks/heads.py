"""A head over a network: one vector for an example, and from it a class or a number. One head for every encoder.

    frames ──network.encode──▶ h (B, T, D) ──speaker, or mean──▶ (n, D) ──[dense, tanh]── linear──▶ (n, outputs)

What is read follows the papers, and is seen from what a network can do, not from its name:

    a pooler that was trained on pairs      tanh(W h₁), as BERT and ALBERT have it; it is kept and trained on
    sees both sides, has no pooler          the same with new weights: RoBERTa at <s>, XLNet at its last token
    reads from left to right                the last token's vector as it is: GPT, recurrent networks

New weights are drawn from N(0, 0.02²). With `reads = "mean"` it is the mean of all vectors of a frame, and no tanh; so
are "last", "max" and "concat", which is all three (pooling.py). With `classifier = "blocks"` there are two linear
layers or more, with batch norm (blocks.py).

    frames ──a layer of network.encode──▶ (B, T, D) ──biattentive.py──▶ (n, outputs)

With `classifier = "biattentive"` a network of its own reads all vectors, and none has to speak for the others. `frozen`
leaves the network under the head as it came: what it gives are features. `chunk` and `kept` are for texts of any length
over a network that carries its state from left to right (pieces.py).

One vector of the many that a network has for a text, whichever way texts lie in a batch.

    last      h_T              mean   1/T Σ h_t              max   the greatest of each number
    concat    [h_T; max; mean]                               three times as wide (Howard & Ruder 2018, section 3.3)

Padding is never read.

The classifier of Howard & Ruder (2018, section 3.3): blocks of batch norm, dropout and a linear layer.

x ─ norm ─ dropout 0.4 ─ linear to 50 ─ relu ─ norm ─ dropout 0.1 ─ linear to the classes

The biattentive classification network of McCann et al. (2017, section 5): two texts, each read in view of the other.

    X = biLSTM(relu(W w̃_x))                   Y = biLSTM(relu(W w̃_y))                 w̃: features of each word
    A = X Yᵀ                                   A_x = softmax(A), by columns             A_y = softmax(Aᵀ), by columns
    C_x = A_xᵀ X                               C_y = A_yᵀ Y                             what each sees of the other
    X|y = biLSTM₁([X; X − C_y; X ⊙ C_y])       Y|x = biLSTM₂([Y; Y − C_x; Y ⊙ C_x])
    x = [max; mean; min; Σ_t β_t X|y_t]        β = softmax(X|y v + d)                   y likewise, of Y|x
    [x; y] ─▶ maxout, twice, with batch norm ─▶ linear ─▶ classes

Of one text both sides are that text. Padding is never read: LSTMs end where their row does, and all the softmaxes and
pools leave it out. Shapes: B examples, T and S words of either text, D = 2 · width.

Texts of any length, read piece by piece with the state carried over; the gradient reaches back as far as is kept.

    chunk = 3, kept = 7      a b c│d e f│g h i│j k            of 11 tokens
                             no gradient│ kept: read by the head, and learnt through

Backpropagation through time for text classification (BPT3C: Howard & Ruder 2018, section 3.3). Pieces begin at
multiples of `chunk`, and those are kept that begin among the last `kept` tokens: so fastai does it. Within what is kept
the state is carried with its gradient, so that for a text no longer than that all is as if it were read at once. What
lies before costs time, but no memory. For networks that carry their state from left to right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from nextword.core import pytree
from nextword.core.errors import NextwordError
from nextword.core.protocols import Infilling
from nextword.core.types import Batch, Inputs, State
from nextword.layers.bilstm import BiLSTM
from nextword.models.framing import SPREAD, combine
from nextword.tasks.base import ModelWithHead

TIMES = {"last": 1, "mean": 1, "max": 1, "concat": 3}  # how much wider than the layer the vector is


def pooled(how: str, h: Tensor, inputs: Inputs) -> Tensor:
    """(B, T, D) → (frames, D), in 32 bits or more; of "concat" (frames, 3 D)."""
    if how == "mean":
        return mean(h, inputs)
    x, there = rows(h.to(torch.promote_types(h.dtype, torch.float32)), inputs)
    sizes = there.sum(1).clamp(min=1)
    last = x[torch.arange(len(x), device=x.device), sizes - 1]
    if how == "last":
        return last
    most = x.masked_fill(~there.unsqueeze(-1), -torch.inf).amax(1)
    if how == "max":
        return most
    return torch.cat([last, most, mean(x, Inputs(inputs.ids, there))], -1)


def rows(h: Tensor, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """(frames, T, D), and where there is something, whichever way the frames lie."""
    if inputs.starts is not None:
        sizes = inputs.starts.long().diff()
        parts = h[0].split(sizes.tolist())
        padded = pad_sequence(list(parts), batch_first=True)
        return padded, torch.arange(padded.shape[1], device=h.device) < sizes.unsqueeze(1)
    there = torch.ones(h.shape[:2], dtype=torch.bool, device=h.device) if inputs.token_mask is None else inputs.token_mask
    return h, there


def mean(h: Tensor, inputs: Inputs) -> Tensor:
    """(frames, D): the mean of the vectors of each frame, whichever way they lie."""
    wide = h.to(torch.promote_types(h.dtype, torch.float32))
    if inputs.starts is not None:
        starts = inputs.starts.long()
        sizes = starts.diff()
        slots = torch.arange(wide.shape[1], device=h.device)
        whose = torch.searchsorted(starts, slots, right=True) - 1
        sums = wide.new_zeros(len(sizes), wide.shape[-1]).index_add(0, whose, wide[0])
        return sums / sizes.clamp(min=1).unsqueeze(1)
    if inputs.token_mask is None:
        return wide.mean(1)
    there = inputs.token_mask.unsqueeze(-1).to(wide.dtype)
    return (wide * there).sum(1) / there.sum(1).clamp(min=1)


class Blocks(nn.Module):
    """`inner`: the widths between the linear layers; `drops`: the share that is dropped before each of them."""

    def __init__(self, inputs: int, inner: Sequence[int], outputs: int, drops: Sequence[float]) -> None:
        super().__init__()
        sizes = [inputs, *inner, outputs]
        self.drops = tuple(drops)
        self.norms = nn.ModuleList(Norm(size) for size in sizes[:-1])
        self.linear = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) → (…, outputs)."""
        shape = x.shape[:-1]
        x = x.flatten(0, -2)
        for i, (norm, linear, drop) in enumerate(zip(self.norms, self.linear, self.drops, strict=True)):
            x = torch.relu(x) if i else x
            x = linear(F.dropout(norm(x), drop, self.training))
        return x.unflatten(0, shape)


class Norm(nn.BatchNorm1d):
    """Batch norm that can be used after a few steps: what is kept of all batches is their mean at first.

    Torch begins with a variance of 1 and goes a tenth towards that of each batch. The vectors of a text may differ from
    another's by hundredths, so that after fifty steps, all that a hundred labels give, 1 still outweighs what was seen.
    Here the n-th batch counts 1/n, and a tenth from the tenth on.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or len(x) == 1:
            return in_use(self, x)
        seen: Any = self.num_batches_tracked
        with torch.no_grad():
            share = (1 / seen.add_(1).to(x.dtype)).clamp(min=self.momentum)
            for kept, now in ((self.running_mean, x.mean(0)), (self.running_var, x.var(0))):
                kept.lerp_(now, share)  # type: ignore[union-attr]
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


def normed(norm: Any, x: Tensor) -> Tensor:
    """Batch norm. A batch of one has no spread to be divided by: it is normed with what was seen before, as in use."""
    return in_use(norm, x) if norm.training and len(x) == 1 else norm(x)


def in_use(norm: Any, x: Tensor) -> Tensor:
    return F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, 0.0, norm.eps)


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


TOGETHER = 2048  # tokens of all texts that are read at once, where nothing is learnt, or drawn for a piece

Read = Callable[[Inputs, State], tuple[Tensor, State]]  # what the head reads (B, T, D), and the state after it


def skipped(sizes: Sequence[int], chunk: int, kept: int) -> np.ndarray:
    """Tokens at the beginning of each text that are read without a gradient; `kept` = 0: none."""
    beyond = np.maximum(np.array(sizes, np.int64) - kept, 0) if kept else np.zeros(len(sizes), np.int64)
    return -(-beyond // chunk) * chunk


def in_pieces(
    read: Read, initial: State, batch: Batch, chunk: int, kept: int, drawn: bool = True
) -> tuple[Tensor, Batch]:
    """The vectors of what is kept (frames, T, D), and the batch as it lies then: rows of that alone, padded.

    `initial` is the state that every frame begins with, a row each. `drawn`: dropout is drawn for every piece; where it
    is not, what is not kept is read many pieces at once, which says the same.
    """
    inputs = batch.inputs
    begins, sizes = _layout(inputs)
    ids, device = inputs.ids.reshape(-1), inputs.ids.device
    skips = skipped(sizes.tolist(), chunk, kept)
    state = initial
    with torch.no_grad():
        at = 0
        while len(those := np.flatnonzero(skips > at)):  # they go on together until one of them is as far as it goes
            until, going = int(skips[those].min()), torch.from_numpy(those).to(device)
            some = pytree.take(state, going)
            step = chunk if drawn else chunk * max(1, TOGETHER // (len(those) * chunk))
            for begin in range(at, until, step):
                piece = begins[those, None] + np.arange(begin, min(begin + step, until))
                some = read(_whole(inputs, ids[torch.from_numpy(piece).to(device)]), some)[1]
            state, at = _put(state, going, some), until
    rest = sizes - skips
    there = np.arange(int(rest.max())) < rest[:, None]
    places = np.where(there, (begins + skips)[:, None] + np.arange(there.shape[1]), begins[:, None])
    rows = ids[torch.from_numpy(places).to(device)]
    found = []
    for at in range(0, rows.shape[1], chunk):
        those = np.flatnonzero(rest > at)  # a text that has ended is read no further
        if len(those) == len(rows):
            h, state = read(_whole(inputs, rows[:, at : at + chunk]), state)
        else:
            going = torch.from_numpy(those).to(device)
            some, after = read(_whole(inputs, rows[going, at : at + chunk]), pytree.take(state, going))
            h, state = some.new_zeros(len(rows), *some.shape[1:]).index_copy(0, going, some), _put(state, going, after)
        found.append(h)
    assert batch.target_positions is not None
    moved = torch.from_numpy(np.arange(len(sizes)) * there.shape[1] - begins - skips).to(device)
    laid = Inputs(rows, torch.from_numpy(there).to(device), sizes=tuple(rest.tolist()))
    return torch.cat(found, 1), replace(batch, inputs=laid, target_positions=batch.target_positions + moved)


def _whole(inputs: Inputs, ids: Tensor) -> Inputs:
    """Ids of rows without padding, or with some that nobody looks at: from left to right it comes too late."""
    return replace(inputs, ids=ids, token_mask=None, starts=None, sizes=None)


def _layout(inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
    """Where each frame begins among the flat ids, and its tokens."""
    rows, width = inputs.ids.shape
    if inputs.starts is not None:
        sizes = np.array(inputs.sizes or inputs.starts.diff().tolist(), np.int64)
        return np.cumsum(sizes) - sizes, sizes
    there = [width] * rows if inputs.token_mask is None else inputs.token_mask.sum(1).tolist()
    return np.arange(rows) * width, np.array(inputs.sizes or there, np.int64)


def _put(state: State, rows: Tensor, values: State) -> State:
    """The state with these rows replaced."""
    new, _ = pytree.flatten(values, "state")
    old, shape = pytree.flatten(state, "state")
    return pytree.unflatten({name: t.index_copy(0, rows, new[name].to(t.dtype)) for name, t in old.items()}, shape)


READS = ("speaker", *TIMES)
CLASSIFIERS = ("linear", "blocks", "biattentive")


@dataclass(frozen=True)
class HeadConfig:
    model: Any  # the network's class
    settings: Any  # its Config
    outputs: int  # classes, or 1 for a number
    frame: str = "classify"  # how examples are framed: models/frames.py
    reads: str = "speaker"
    dropout: float = 0.1
    classifier: str = "linear"
    features: str = ""  # the layer that is read: a name that the network has for it, or a number; "": the last
    frozen: bool = False  # nothing of the network is trained
    width: int = 300  # of a biattentive classifier, in each direction
    reduction: int = 4  # of its first maxout layer
    inner: Sequence[int] = (50,)  # of blocks: widths between the linear layers
    drops: Sequence[float] = ()  # of blocks: what is dropped before each linear layer; empty: `dropout`
    chunk: int = 0  # tokens read at once, the state carried over; 0: all
    kept: int = 0  # tokens at the end of a text that the head reads and the gradient reaches; 0: all
    weights: tuple[float, ...] = ()  # of the classes in the loss; none: all alike

    def __post_init__(self) -> None:
        for name, known in (("reads", READS), ("classifier", CLASSIFIERS)):
            if getattr(self, name) not in known:
                raise NextwordError(f"[task] {name} = {getattr(self, name)!r}; expected {' or '.join(known)}.")
        for name in ("width", "reduction"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise NextwordError(f"[task] {name} = {value!r} must be a whole number of at least 1.")
        for name in ("chunk", "kept"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise NextwordError(f"[task] {name} = {value!r} must be a whole number of tokens, or 0 for all.")
        if self.kept and not self.kept >= self.chunk > 0:
            raise NextwordError(
                f"[task] kept = {self.kept} with chunk = {self.chunk}: what is kept are whole pieces of a text, so it "
                "has to be as long as one at least, as in chunk = 70, kept = 1400."
            )
        self._check_blocks()
        if not isinstance(self.frozen, bool):
            raise NextwordError(f"[task] frozen = {self.frozen!r} must be true or false.")
        if isinstance(self.dropout, bool) or not isinstance(self.dropout, (int, float)) or not 0 <= self.dropout < 1:
            raise NextwordError(f"[task] dropout = {self.dropout!r} is the share dropped before the head, below 1.")

    def _check_blocks(self) -> None:
        whole = all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in self.inner)
        if not whole:
            raise NextwordError(f"[task] inner = {list(self.inner)} are widths between linear layers, as [50].")
        shares = all(isinstance(p, (int, float)) and not isinstance(p, bool) and 0 <= p < 1 for p in self.drops)
        if not shares or len(self.drops) not in (0, len(self.inner) + 1):
            raise NextwordError(
                f"[task] drops = {list(self.drops)}: give the share dropped before each of the {len(self.inner) + 1} "
                "linear layers, below 1, as [0.4, 0.1]; or none, for dropout before each."
            )


class Headed(ModelWithHead):
    """What it says is one vector an example."""

    def __init__(self, config: HeadConfig, network: Any) -> None:
        super().__init__(config, network)
        self.weights: Tensor | None
        self.register_buffer("weights", torch.tensor(config.weights) if config.weights else None, persistent=False)
        width = network.widths[self.at]
        self.out: Any
        self.dense: nn.Linear | None = None
        self.pools = False
        if config.classifier == "biattentive":
            self.out = Biattentive(width, config.outputs, config.width, config.reduction, config.dropout)
            return
        speaker, inputs = config.reads == "speaker", TIMES.get(config.reads, 1) * width
        self.pools = speaker and self.at == -1 and getattr(network, "pooler", None) is not None
        if config.classifier == "blocks":
            drops = tuple(config.drops) or (config.dropout,) * (len(config.inner) + 1)
            self.out = Blocks(inputs, config.inner, config.outputs, drops)
            return
        dense = speaker and not self.pools and isinstance(network, Infilling)
        self.dense = nn.Linear(width, width) if dense else None
        self.out = nn.Linear(inputs, config.outputs)
        for layer in (self.dense, self.out):
            if layer is not None:
                nn.init.normal_(layer.weight, std=SPREAD)
                nn.init.zeros_(layer.bias)

    @property
    def recordable(self) -> bool:
        """Whether forward and backward ask nothing of a GPU on the way."""
        plain = type(self) is Headed and self.config.classifier == "linear" and self.config.reads in ("speaker", "mean")
        return plain and not self.is_stateful and bool(getattr(self.encoder, "recordable", False))

    # -------------------------------------------------------------------------------------------- what it computes

    def forward(self, batch: Batch) -> Tensor:
        """(n, outputs) in 32 bits: logits of the classes, or one number."""
        if self.is_stateful:
            return self.judge(*self.read_on(batch))
        return self.judge(self.read_layer(batch.inputs), batch)

    @property
    def is_stateful(self) -> bool:
        """Are texts read piece by piece?"""
        return bool(self.config.chunk) and getattr(self.encoder, "is_stateful", False)

    def read_on(self, batch: Batch) -> tuple[Tensor, Batch]:
        """What the head reads of texts of any length, and the batch as it lies then."""
        frames = len(batch.inputs.ids) if batch.inputs.starts is None else len(batch.inputs.starts) - 1

        def read(inputs: Inputs, state: State) -> tuple[Tensor, State]:
            layers, state = self.encoder.encode(inputs, state)
            return layers[self.at], state

        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.config.frozen):
            initial = self.encoder.start(frames)[1]
            drawn = self.encoder.training and self.encoder.locks
            return in_pieces(read, initial, batch, self.config.chunk, self.config.kept, drawn)

    def judge(self, h: Tensor, batch: Batch) -> Tensor:
        """The same of the layer that is read (B, T, D), for whoever needs that layer besides."""
        h = h[..., : self.encoder.widths[self.at]]
        frames = None if batch.target_positions is None else len(batch.target_positions)  # a text that only fills up a row is none of them
        if self.config.classifier == "biattentive":
            x, there = (t[:frames] for t in rows(h, batch.inputs))
            with torch.autocast(x.device.type, enabled=False):
                return self.out(x.to(self.out.out.weight.dtype), there, len(x) // len(batch.targets))
        if self.config.reads != "speaker":
            x = pooled(self.config.reads, h, batch.inputs)[:frames]
        else:
            assert batch.target_positions is not None
            x = h.reshape(-1, h.shape[-1]).index_select(0, batch.target_positions)  # (frames, D)
        return self.score(x, len(batch.targets))

    def score(self, x: Tensor, examples: int | None = None) -> Tensor:
        """(n, outputs) of the vectors (frames, D) that stand for frames; `examples`: how many those belong to, if not
        each to its own."""
        if self.pools:
            x = self.encoder.pooled(x)
        elif self.dense is not None:
            x = torch.tanh(self.dense(F.dropout(x, self.config.dropout, self.training)))
        if examples is not None:
            x = combine(self.config.frame, x.view(examples, -1, x.shape[-1]))
        if self.config.classifier == "linear":
            x = F.dropout(x, self.config.dropout, self.training)
        with torch.autocast(x.device.type, enabled=False):
            return self.out(x.to(next(self.out.parameters()).dtype))
