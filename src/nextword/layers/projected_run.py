"""Training a projected LSTM (projected.py) over a whole sequence: both loops over time with nothing but what they need.

A step forward is two products and one walk over the gates; a step backward likewise. Gradients of the weights are not
made step by step: each step leaves its own part behind, and one product over all steps and rows follows.

    forward    z_t += U h_{t−1} ─▶ gates, c_t, m_t = σ(o) tanh(c_t) ─▶ h_t = clip(R m_t)
    backward   dh_t = dy_t + Uᵀ dz_{t+1}, 0 where h was cut ─▶ dm_t = Rᵀ dh_t ─▶ dz_t, dc_{t−1}
    then       dU = Σ dz_t h_{t−1}ᵀ    dR = Σ dh_t m_tᵀ    dW = Σ dz_t x_tᵀ    dx = Wᵀ dz

What the loops write is laid out beforehand (`Room`). On a GPU that is the place for a recorded graph, too: at the third
sequence of a shape the loops are recorded, and from then on replayed, for a loop of small kernels waits for Python. So
is reading without learning, which is the loop forward alone. The walks over the gates are Triton's there
(projected_kernels.py); elsewhere they are torch's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nextword.layers import projected_kernels as kernels
from nextword.layers.graph import recorded

SEEN = 2  # sequences of a shape before its loops are recorded
GRAPHS = 4  # recorded for a layer: for the shape of every batch, for those of reading; the rest of an epoch is none

Limits = tuple[float, float]  # of cells and of the projection; 0: none
Weights = tuple[Tensor, Tensor, Tensor, Tensor]


class Room:
    """All that the loops over one sequence read and write. H cells, P the width of h."""

    def __init__(self, sides: int, steps: int, rows: int, like: Weights, limits: Limits, learning: bool = True) -> None:
        _, from_state, _, project = like
        cells, width, kind, device = project.shape[2], project.shape[1], project.dtype, project.device
        wide = torch.promote_types(kind, torch.float32)
        self.limits, self.steps = limits, steps

        def empty(*shape: int, dtype: torch.dtype = kind) -> Tensor:
            return torch.empty(sides, *shape, dtype=dtype, device=device)

        self.z = empty(steps, rows, 4 * cells)  # gates before their functions, after them, and at last their gradient
        self.c = empty(steps + 1, rows, cells, dtype=wide)
        self.m = empty(steps, rows, cells)
        self.h = empty(steps + 1, rows, width)
        if learning:
            self.dy = empty(steps, rows, width)
            self.dh = empty(steps, rows, width)
            self.dm = empty(rows, cells)
            self.dc = empty(rows, cells, dtype=wide)
        self.learning = learning
        self.from_state, self.project = from_state, project
        self.graphs: list[torch.cuda.CUDAGraph] = []  # of the loop forward, and of the one backward
        self.serial = 0  # of the sequence that lies here; changes when it is overwritten

    def forward(self) -> None:
        """From z, the product with the inputs, and the first h and c."""
        cell_clip, projection_clip = self.limits
        down, up = self.project.mT, self.from_state.mT
        for t in range(self.steps):
            z, h = self.z[:, t], self.h[:, t + 1]
            z.baddbmm_(self.h[:, t], up)
            kernels.open_gates(z, self.c[:, t], self.c[:, t + 1], self.m[:, t], cell_clip)
            torch.bmm(self.m[:, t], down, out=h)
            if projection_clip:
                h.clamp_(-projection_clip, projection_clip)

    def backward(self) -> None:
        """From dy and the gradient of the last c, in dc; afterwards z holds dz, and dc is that of the first c."""
        cell_clip, projection_clip = self.limits
        for t in reversed(range(self.steps)):
            dh = self.dh[:, t]
            if t + 1 < self.steps:
                torch.baddbmm(self.dy[:, t], self.z[:, t + 1], self.from_state, out=dh)
            else:
                dh.copy_(self.dy[:, t])
            if projection_clip:
                kernels.stop_where_cut(dh, self.h[:, t + 1], projection_clip)
            torch.bmm(dh, self.project, out=self.dm)
            kernels.close_gates(self.z[:, t], self.c[:, t], self.c[:, t + 1], self.dm, self.dc, cell_clip)

    def record(self) -> None:
        """The loops as graphs. The weights are copied in from here on, for a graph reads from where they were."""
        self.from_state, self.project = self.from_state.clone(), self.project.clone()
        made = []
        for work in (self.forward, self.backward) if self.learning else (self.forward,):
            with recorded() as graph:  # nothing is computed meanwhile
                work()
            made.append(graph)
        self.graphs = made

    def play(self, which: int) -> None:
        if self.graphs:
            self.graphs[which].replay()
        elif which:
            self.backward()
        else:
            self.forward()


class Quick:
    """The loops of one layer, and the rooms in which it has recorded them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.seen: dict[Any, int] = {}
        self.rooms: dict[Any, Room] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Quick:
        return Quick(self.limits)  # the copy records its own

    def __call__(self, x: Tensor, h: Tensor, c: Tensor, weights: Weights) -> tuple[Tensor, Tensor, Tensor]:
        """(S, T, B, I), (S, B, P), (S, B, H) → (S, T, B, P), and h and c after the last step."""
        device = x.device.type
        narrow = torch.is_autocast_enabled(device)
        kind = torch.get_autocast_dtype(device) if narrow else weights[0].dtype
        wide = torch.promote_types(kind, torch.float32)
        from_input, from_state, bias, project = (w.to(kind) for w in weights)
        given = (x.to(kind), h.to(kind), c.to(wide), from_input, from_state, bias, project)
        with torch.autocast(device, enabled=False):
            if torch.is_grad_enabled():
                y, last = _Sequence.apply(*given, self)
            else:
                room = _filled(*given[:3], given[3:], self, learning=False)
                y, last = room.h[:, 1:].clone(), room.c[:, -1].clone()
        return y, y[:, -1], last

    def room(self, x: Tensor, weights: Weights, learning: bool) -> Room:
        """One for this sequence alone, or one that is recorded."""
        sides, steps, rows, _ = x.shape
        key = (sides, steps, rows, x.dtype, learning)
        if key in self.rooms:
            return self.rooms[key]
        room = Room(sides, steps, rows, weights, self.limits, learning)
        if not x.is_cuda or torch.cuda.is_current_stream_capturing():
            return room
        self.seen[key] = self.seen.get(key, 0) + 1
        if self.seen[key] > SEEN and len(self.rooms) < GRAPHS:
            room.record()
            self.rooms[key] = room
        return room


class _Sequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, h: Tensor, c: Tensor, *rest: Any) -> Any:
        *weights, quick = rest
        room = _filled(x, h, c, tuple(weights), quick)
        ctx.save_for_backward(x, h, c, *weights)
        ctx.quick, ctx.room, ctx.serial = quick, room, room.serial
        return room.h[:, 1:].clone(), room.c[:, -1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, last: Tensor) -> Any:
        x, h, c, *weights = ctx.saved_tensors
        room: Room = ctx.room
        if room.serial != ctx.serial:  # another sequence lies there by now, or the gradient of this one: once more
            room = _filled(x, h, c, tuple(weights), ctx.quick, alone=True)
        from_input, from_state, *_ = weights
        room.dy.copy_(dy)
        room.dc.copy_(last)
        room.play(1)
        room.serial += 1
        dz, dh, before = (t.flatten(1, 2) for t in (room.z, room.dh, room.h[:, : room.steps]))
        wanted = ctx.needs_input_grad
        return (
            (dz @ from_input).view_as(x) if wanted[0] else None,
            room.z[:, 0] @ from_state if wanted[1] else None,
            room.dc.clone() if wanted[2] else None,
            dz.mT @ x.flatten(1, 2) if wanted[3] else None,
            dz.mT @ before if wanted[4] else None,
            dz.sum(1) if wanted[5] else None,
            dh.mT @ room.m.flatten(1, 2) if wanted[6] else None,
            None,
        )


def _filled(
    x: Tensor, h: Tensor, c: Tensor, weights: Weights, quick: Quick, alone: bool = False, learning: bool = True
) -> Room:
    """A room in which the loop forward has run."""
    from_input, from_state, bias, project = weights
    sides, steps, rows, _ = x.shape
    room = Room(sides, steps, rows, weights, quick.limits) if alone else quick.room(x, weights, learning)
    torch.baddbmm(bias.unsqueeze(1), x.flatten(1, 2), from_input.mT, out=room.z.flatten(1, 2))
    room.h[:, 0].copy_(h)
    room.c[:, 0].copy_(c)
    if room.graphs:
        room.from_state.copy_(from_state)
        room.project.copy_(project)
    room.play(0)
    room.serial += 1
    return room
