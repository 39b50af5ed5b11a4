"""What the gates of a recurrent network do, word by word.

    LSTM    c_t = forget · c_{t−1} + input · candidate        h_t = output · tanh(c_t)
    GRU     h_t = update · h_{t−1} + (1 − update) · candidate, the candidate from reset · (U h_{t−1})
    RNN     h_t = tanh(…): no gates

A gate near 1 is open, near 0 closed: a forget gate near 1 keeps its cell, so the cell remembers what it read long ago.
"Visualizing and Understanding Recurrent Networks" (Karpathy, Johnson & Li 2015) looks at single cells in this way.

The layer is run step by step, by the cell that is the reference of the fused kernels (layers/recurrent.py), so the
hidden states are those of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from nextword.core.types import Inputs
from nextword.html.charts import attention_map
from nextword.layers.recurrent import CellTrace
from nextword.lens.result import LensResult, Token, TokenNames, choose_numbers, label, run_name
from nextword.lm.base import TextModel

MAX_STEPS = 60  # drawn
MAX_UNITS = 12  # drawn: those whose gate changes most


@dataclass(frozen=True, eq=False)
class LayerTrace:
    """One recurrent layer in one direction."""

    layer: int  # from 1
    direction: str  # "forward", or "backward": from the last token to the first
    units: tuple[int, ...] = field(repr=False)  # numbers, from 1, of the D cells
    gates: Mapping[str, np.ndarray] = field(repr=False)  # name → (T, D) activations
    hidden: np.ndarray = field(repr=False)  # (T, D)
    cell: np.ndarray | None = field(repr=False)  # (T, D); None without a cell state


@dataclass(frozen=True, eq=False, repr=False)
class GateTraces(LensResult):
    """Gates, cells and hidden states of a recurrent network at every time step of a text."""

    text: str
    tokens: tuple[Token, ...]  # what was read at each step
    layers: tuple[LayerTrace, ...] = field(repr=False)

    def __repr__(self) -> str:
        names = ", ".join(self.layers[0].gates) or "none"
        return f"GateTraces({self.text[:40]!r}: {len(self.tokens)} steps, {len(self.layers)} layers, gates {names})"

    @property
    def title(self) -> str:
        return "Gates over time"

    def sections(self) -> list[tuple[str, str]]:
        steps = [label(token) for token in self.tokens[:MAX_STEPS]]
        parts = []
        for trace in self.layers:
            side = f", {trace.direction}" if trace.direction == "backward" else ""
            rows = {name: values.mean(1) for name, values in trace.gates.items() if name != "candidate"}
            rows |= {f"|{name}|": np.abs(values).mean(1) for name, values in _magnitudes(trace).items()}
            picture = _heat(steps, rows, f"Means over {trace.hidden.shape[1]} units; the darker, the closer to 1")
            picture += _unit_maps(steps, trace, _lively_units(trace))
            parts.append((f"Layer {trace.layer}{side}", picture))
        return parts


def trace_gates(
    model: TextModel, text: str, layers: Sequence[int] | None = None, units: Sequence[int] | None = None
) -> GateTraces:
    """Gates, cells and hidden states of every layer at every time step of a text, or of a source for seq2seq.

    A language model first reads its begin token. A network that reads backward has the steps in its own order.

    layers   numbers of the layers to keep, from 1, or negative from the last; None: all
    units    likewise; an ELMo, which has more cells than outputs, can choose among as many as it has outputs
    """
    tokens, inputs = read_tokens(model, text)
    with torch.no_grad():
        traced, _ = model.network.trace(inputs)
    kept = choose_numbers("layers", layers, len(traced))
    traces = tuple(_to_arrays(i + 1, trace, units) for i in kept for trace in traced[i])
    return GateTraces(run_name(model), text, tokens, traces)


def read_tokens(model: TextModel, text: str) -> tuple[tuple[Token, ...], Inputs]:
    """What a recurrent network reads: the begin token and the text; or a source with its end."""
    names = TokenNames(model)
    if not model.network.is_recurrent:
        model.network.trace(Inputs(torch.zeros(1, 0, dtype=torch.long)))  # raises Unsupported with the reason
    if model.is_seq2seq:
        encoding = model.scored_tokens(text)
        tokens = names.tokens(text, encoding.ids, encoding.spans)
        ids = torch.from_numpy(encoding.ids).long().to(model.device)
    else:
        encoding = model.tokenizer.encode(text)
        first = model.network.start(1)[0]
        own = torch.from_numpy(encoding.ids).long().to(first.device)
        read = names.tokens(text, encoding.ids, encoding.spans)
        if model.network.is_backward:
            own, read = own.flip(0), read[::-1]
        ids, tokens = torch.cat([first, own]), (*names.bare(first.tolist()), *read)
    return tokens, Inputs(ids.unsqueeze(0))


def _to_arrays(number: int, trace: CellTrace, units: Sequence[int] | None) -> LayerTrace:
    widths = [part.shape[1] for part in trace.states[0]]
    kept = choose_numbers("units", units, max(widths) if units is None else min(widths))

    def stack(parts: list[Tensor]) -> np.ndarray:
        array: np.ndarray = torch.stack(parts)[:, 0].float().cpu().numpy()
        return array if units is None else array[:, kept]

    gates = {name: stack([step[name] for step in trace.gates]) for name in trace.gates[0]}
    hidden = stack([state[0] for state in trace.states])
    cell = stack([state[1] for state in trace.states]) if len(trace.states[0]) > 1 else None
    return LayerTrace(number, trace.name or "forward", tuple(i + 1 for i in kept), gates, hidden, cell)


# ------------------------------------------------------------------------------------------------ drawing


def _magnitudes(trace: LayerTrace) -> dict[str, np.ndarray]:
    parts = {"candidate": trace.gates.get("candidate"), "hidden": trace.hidden}
    return {name: values for name, values in parts.items() if values is not None}


def _lively_units(trace: LayerTrace) -> np.ndarray:
    """The units whose remembering changes most over time."""
    values = trace.gates.get("forget", trace.gates.get("update", trace.hidden))
    order = np.argsort(-values.std(0), kind="stable")[:MAX_UNITS]
    return np.sort(order)


def _unit_maps(steps: list[str], trace: LayerTrace, units: np.ndarray) -> str:
    name = next((name for name in ("forget", "update") if name in trace.gates), "")
    values = trace.gates[name] if name else np.abs(trace.hidden)
    rows = {f"unit {trace.units[unit]}": values[:, unit] for unit in units.tolist()}
    return _heat(steps, rows, f"{name.capitalize() + ' gate' if name else '|h|'} of the units that change most")


def _heat(steps: list[str], rows: dict[str, np.ndarray], title: str) -> str:
    weights = [values[: len(steps)].tolist() for values in rows.values()]
    picture = attention_map(steps, list(rows), weights, title)
    return f'<figure class="maps"><figcaption>{title}</figcaption>{picture}</figure>'
