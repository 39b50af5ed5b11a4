"""Recurrent layers one step at a time, for decoders that attend to a source between two steps.

Such a decoder multiplies by the same matrices at every step. Autograd would compute a gradient of each matrix at each
step and add it to the others. `StepwiseLinear` (kernels/lstm.py) notes inputs and output gradients instead, and
computes the gradient of the matrix once, after all steps. The gates are one operation each (`FUSED_GATES`); their
reference is `gru_gates` and `lstm_gates` of recurrent.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch.nn.functional as F
from torch import Tensor

from nextword.kernels.lstm import FUSED_GATES, StepwiseLinear
from nextword.layers.recurrent import CellState, RecurrentLayer

__all__ = ["StepwiseLayers", "StepwiseLinear"]


class StepwiseLayers:
    """A stack of recurrent layers; the first one reads [x_t; extra_t].

    Its product with x is computed for all steps at once; only that with `extra` needs to wait for each step.
    """

    def __init__(
        self,
        layers: Sequence[RecurrentLayer],
        x: Tensor,
        states: Sequence[CellState],
        dropout: Callable[[Tensor], Tensor],
    ) -> None:
        """x (B, T, I), the states before the first step, and the dropout between layers."""
        self.states, self.dropout = tuple(states), dropout
        weights = [layer.weights() for layer in layers]
        matrix, _, bias, _ = weights[0]
        width = x.shape[-1]
        self.from_x = F.linear(x, matrix[:, :width], bias).unbind(1)  # T times (B, G·D)
        self.from_input = [StepwiseLinear(matrix[:, width:]), *(StepwiseLinear(w[0], w[2]) for w in weights[1:])]
        self.from_state = [StepwiseLinear(w[1], w[3]) for w in weights]
        self.gates = FUSED_GATES[layers[0].kind.fused]
        self.outputs: list[Tensor] = []  # of the last layer, (B, D) each

    @property
    def output(self) -> Tensor:
        """h of the last layer, (B, D)."""
        return self.states[-1][0]

    def step(self, t: int, extra: Tensor) -> None:
        states: list[CellState] = []
        for i, state in enumerate(self.states):
            from_input = self.from_input[i](self.dropout(states[-1][0]) if i else extra)
            from_input = from_input if i else self.from_x[t] + from_input
            states.append(self.gates(from_input, self.from_state[i](state[0]), state))
        self.states = tuple(states)
        self.outputs.append(self.output)
