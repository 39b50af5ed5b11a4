"""How far the gradient of one prediction reaches back through time: ‖∂L/∂h_t‖ at every step t.

    L = −log p(target | text)          ∂L/∂h_t = Σ over all paths from h_t to the prediction

    h_1 ──▶ h_2 ──▶ … ──▶ h_T ──▶ L    each arrow back multiplies by a Jacobian ∂h_{t+1}/∂h_t

Where the norm falls exponentially, words far back cannot teach the network anything: the vanishing gradient (Bengio,
Simard & Frasconi 1994; Pascanu, Mikolov & Bengio 2013). An LSTM's cell keeps it up, because it changes by addition.
The study `vanishing-gradients` measures the norms of the Jacobians themselves, over passages and seeds; this is the
gradient of one word in one text (`trace_gradient`), or of each word of a text (`trace_gradients`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from nextword.core.errors import Unsupported
from nextword.core.slices import end_slice
from nextword.html.charts import Axis, Point, Series, attention_map, line_chart, responsive_figure
from nextword.lens.recurrent_traces import MAX_STEPS, read_tokens
from nextword.lens.result import LensResult, Token, TokenNames, label, run_name
from nextword.lm.base import TextModel

MAX_GRADIENTS = 64  # predictions whose gradients are computed at once

_Norms = tuple[np.ndarray, np.ndarray | None]  # of hidden states and of cells


@dataclass(frozen=True, eq=False)
class LayerReach:
    """‖∂L/∂h_t‖ and ‖∂L/∂c_t‖ of one layer, by step."""

    layer: int  # from 1
    hidden: np.ndarray = field(repr=False)  # (T,)
    cell: np.ndarray | None = field(repr=False)  # (T,); None without a cell state

    @property
    def factor(self) -> float | None:
        """By what the norm changes per step back, as a geometric mean; of the cell, where there is one."""
        norms = self.hidden if self.cell is None else self.cell
        if len(norms) < 2 or not norms[0] > 0 or not norms[-1] > 0:
            return None
        return float((norms[0] / norms[-1]) ** (1 / (len(norms) - 1)))


@dataclass(frozen=True, eq=False, repr=False)
class GradientReach(LensResult):
    """How far the gradient of a predicted word reaches back through a recurrent network."""

    text: str
    target: str
    nats: float  # L
    tokens: tuple[Token, ...]  # what was read at each step
    layers: tuple[LayerReach, ...] = field(repr=False)

    def __repr__(self) -> str:
        factors = ", ".join("–" if layer.factor is None else f"{layer.factor:.3f}" for layer in self.layers)
        return f"GradientReach({self.text[-40:]!r} → {self.target!r}: factor per step back {factors})"

    @property
    def title(self) -> str:
        return f"How far the gradient of “{self.target.strip()}” reaches back"

    def sections(self) -> list[tuple[str, str]]:
        last = len(self.tokens) - 1
        series = []
        for i, layer in enumerate(self.layers):
            for name, norms in (("h", layer.hidden), ("c", layer.cell)):
                if norms is not None:
                    points = [
                        Point(float(last - t), float(norm), note=f"{label(self.tokens[t])}: {norm:.3g}")
                        for t, norm in enumerate(norms.tolist())
                        if norm > 0
                    ][::-1]
                    series.append(Series(f"{name}, layer {layer.layer}", points, 2 * i + (name == "c")))
        x, y = Axis("steps back →"), Axis("gradient norm", "{:.0e}".format, log=True)
        chart = responsive_figure(
            lambda width, height: line_chart(series, x, y, self.title, width, height), (960, 360), (360, 300)
        )
        factors = [f"layer {layer.layer}: × {layer.factor:.3f}" for layer in self.layers if layer.factor is not None]
        note = f"Change of the norm per step back: {'; '.join(factors) or 'unknown'}."
        return [("Norm of the gradient by distance", f"{chart}<p class='note'>{note}</p>")]


@dataclass(frozen=True)
class GradientTarget:
    """A predicted token, whose −log p has a gradient."""

    text: str
    id: int
    nats: float  # L


@dataclass(frozen=True, eq=False)
class LayerReaches:
    """‖∂L_p/∂h_t‖ and ‖∂L_p/∂c_t‖ of one layer: the prediction after step p by row, step t by column; 0 for t > p."""

    layer: int  # from 1
    hidden: np.ndarray = field(repr=False)  # (T, T)
    cell: np.ndarray | None = field(repr=False)  # (T, T); None without a cell state


@dataclass(frozen=True, eq=False, repr=False)
class GradientReaches(LensResult):
    """How far the gradients of all words of a text reach back, and that of the word after it."""

    text: str
    tokens: tuple[Token, ...]  # what was read at each step
    targets: tuple[GradientTarget, ...]  # what was predicted after each step; the last one follows the text
    layers: tuple[LayerReaches, ...] = field(repr=False)

    def __repr__(self) -> str:
        return f"GradientReaches({self.text[:40]!r}: {len(self.targets)} predictions, {len(self.layers)} layers)"

    @property
    def title(self) -> str:
        return "How far the gradient of each word reaches back"

    def sections(self) -> list[tuple[str, str]]:
        """Each norm as a share of the one at the prediction's own step."""
        columns = [label(token) for token in self.tokens[:MAX_STEPS]]
        rows = [target.text.strip() or target.text for target in self.targets[:MAX_STEPS]]
        parts = []
        for layer in self.layers:
            norms = layer.hidden if layer.cell is None else layer.cell
            own = np.diagonal(norms)[:, None]
            shares = np.divide(norms, own, out=np.zeros_like(norms), where=own > 0)
            picture = attention_map(columns, rows, shares[: len(rows), : len(columns)].tolist(), self.title)
            parts.append((f"Layer {layer.layer}", f'<div class="maps">{picture}</div>'))
        return parts


def trace_gradient(model: TextModel, text: str, target: str | None = None) -> GradientReach:
    """The norm of ∂L/∂h_t at every step of a text, for L = −log p of the token after it.

    target   the token after the text, as it would stand there (" mat"); None: the likeliest
    """
    graph = _read(model, text)
    id = graph.likeliest if target is None else _first_token(model, text, target)
    steps = len(graph.tokens)
    (nats,), norms = graph.norms([steps - 1], [id])
    layers = tuple(
        LayerReach(number, hidden[0], None if cell is None else cell[0])
        for number, (hidden, cell) in enumerate(norms, 1)
    )
    return GradientReach(run_name(model), text, TokenNames(model).name(id), nats, graph.tokens, layers)


def trace_gradients(model: TextModel, text: str, target: str | None = None) -> GradientReaches:
    """The norms of ∂L/∂h_t for every prediction of a text: each of its tokens from those before it, and the one after.

    target   the token after the text, as for `trace_gradient`
    """
    graph = _read(model, text)
    last = graph.likeliest if target is None else _first_token(model, text, target)
    ids = [*(token.id for token in graph.tokens[1:]), last]
    losses: list[float] = []
    chunks = []
    for start in range(0, len(ids), MAX_GRADIENTS):
        chosen = ids[start : start + MAX_GRADIENTS]
        nats, norms = graph.norms(list(range(start, start + len(chosen))), chosen)
        losses += nats
        chunks.append(norms)
        end_slice()
    names = TokenNames(model)
    texts = [*(token.text for token in graph.tokens[1:]), names.name(last)]
    targets = tuple(GradientTarget(*each) for each in zip(texts, ids, losses, strict=True))
    layers = []
    for number, parts in enumerate(zip(*chunks, strict=True), 1):
        hidden = np.concatenate([hidden for hidden, _ in parts])
        cells = [cell for _, cell in parts if cell is not None]
        layers.append(LayerReaches(number, hidden, np.concatenate(cells) if cells else None))
    return GradientReaches(run_name(model), text, graph.tokens, targets, tuple(layers))


@dataclass(frozen=True, eq=False)
class _Graph:
    """A text that a recurrent network has read, with what autograd needs to go back."""

    model: TextModel
    tokens: tuple[Token, ...]
    states: list[list[tuple[Tensor, ...]]]  # by layer, then by step: (h,) or (h, c), each (1, D)
    h: Tensor  # (1, T, D), what the output layer reads after each step
    likeliest: int  # token after the text

    def norms(self, steps: list[int], ids: list[int]) -> tuple[list[float], list[_Norms]]:
        """−log p of a token after each of some steps, and, by layer, the norms (n, T) of its gradients."""
        network, n = self.model.network, len(ids)
        with torch.enable_grad():
            h = self.h.detach()[0, steps].requires_grad_()
            outputs = network.predicted_ids(torch.tensor(ids)).to(h.device)
            losses = -network.readout.log_probs(h).double()[torch.arange(n), outputs]
            (slopes,) = torch.autograd.grad(losses.sum(), h)  # (n, D): each loss depends on its own row
        seeds = slopes.new_zeros(n, *self.h.shape)
        seeds[torch.arange(n), 0, steps] = slopes
        parts = [part for layer in self.states for state in layer for part in state]
        with torch.backends.cudnn.flags(enabled=False):
            gradients = torch.autograd.grad(
                self.h, parts, seeds, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
        none = torch.zeros(n, device=losses.device, dtype=torch.float64)
        norms = iter([none if g is None else g.double().flatten(1).norm(dim=1) for g in gradients])
        found = []
        for layer in self.states:
            own = [[next(norms) for _ in state] for state in layer]  # steps × memories
            hidden, *cell = (torch.stack(memory, 1).cpu().numpy() for memory in zip(*own, strict=True))
            found.append((hidden, cell[0] if cell else None))
        return losses.tolist(), found


def _read(model: TextModel, text: str) -> _Graph:
    if model.network.is_recurrent:
        model.require("next")
    tokens, inputs = read_tokens(model, text)
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        layers, h = model.network.trace(inputs)
        likeliest = int(model.network.readout.log_probs(h[0, -1:]).argmax())
    if not h.requires_grad:
        raise Unsupported("The weights of this network take no gradients. Load it in fp32.", ability="gradient")
    return _Graph(model, tokens, [trace.states for (trace,) in layers], h, likeliest)


def _first_token(model: TextModel, text: str, target: str) -> int:
    """The first token of what follows the text."""
    encoding = model.scored_tokens(target, text)
    if not len(encoding):
        raise Unsupported(f"{target!r} has no token, so there is nothing to predict.", ability="gradient")
    return int(encoding.ids[0])
