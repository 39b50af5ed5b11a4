"""How far the gradient of one prediction reaches back through time: ‖∂L/∂h_t‖ at every step t.

    L = −log p(target | text)          ∂L/∂h_t = Σ over all paths from h_t to the prediction

    h_1 ──▶ h_2 ──▶ … ──▶ h_T ──▶ L    each arrow back multiplies by a Jacobian ∂h_{t+1}/∂h_t

Where the norm falls exponentially, words far back cannot teach the network anything: the vanishing gradient (Bengio,
Simard & Frasconi 1994; Pascanu, Mikolov & Bengio 2013). An LSTM's cell keeps it up, because it changes by addition.
The study `vanishing-gradients` measures the norms of the Jacobians themselves, over passages and seeds; this is the
gradient of one word in one text.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from nextword.core.errors import Unsupported
from nextword.html.charts import Axis, Point, Series, line_chart, responsive_figure
from nextword.lens.recurrent_traces import read_tokens
from nextword.lens.result import LensResult, Token, TokenNames, label, run_name
from nextword.lm.base import TextModel


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


def trace_gradient(model: TextModel, text: str, target: str | None = None) -> GradientReach:
    """The norm of ∂L/∂h_t at every step of a text, for L = −log p of the token after it.

    target   the token after the text, as it would stand there (" mat"); None: the likeliest
    """
    if model.network.is_recurrent:
        model.require("next")
    tokens, inputs = read_tokens(model, text)
    network = model.network
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        layers, h = network.trace(inputs)
        log_p = network.readout.log_probs(h[:, -1]).double()[0]
        id = int(log_p.argmax()) if target is None else _first_token(model, text, target)
        loss = -log_p[int(network.predicted_ids(torch.tensor(id)))]
        states = [state for (trace,) in layers for state in trace.states]
        parts = [part for state in states for part in state]
        if not loss.requires_grad:
            raise Unsupported("The weights of this network take no gradients. Load it in fp32.", ability="gradient")
        gradients = torch.autograd.grad(loss, parts, allow_unused=True)
    norms = [0.0 if gradient is None else float(gradient.double().norm()) for gradient in gradients]
    reach, at = [], 0
    for i, (trace,) in enumerate(layers):
        memories, steps = len(trace.states[0]), len(trace.states)
        own = np.array(norms[at : at + memories * steps]).reshape(steps, memories)
        at += memories * steps
        reach.append(LayerReach(i + 1, own[:, 0], own[:, 1] if memories > 1 else None))
    name = TokenNames(model).name(id)
    return GradientReach(run_name(model), text, name, float(loss.detach()), tokens, tuple(reach))


def _first_token(model: TextModel, text: str, target: str) -> int:
    """The first token of what follows the text."""
    encoding = model.scored_tokens(target, text)
    if not len(encoding):
        raise Unsupported(f"{target!r} has no token, so there is nothing to predict.", ability="gradient")
    return int(encoding.ids[0])
