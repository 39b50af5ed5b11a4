"""The loops of a projected LSTM over a whole sequence, with hand-written gradients.

Reference: `ProjectedLSTM.stepwise` (layers/recurrent.py). A step is two products and one pass over the gates, forward
and backward; weight gradients are one product over all steps and rows.

    forward    z_t += U h_{t−1} ─▶ gates, c_t, m_t = σ(o) tanh(c_t) ─▶ h_t = clip(R m_t)
    backward   dh_t = dy_t + Uᵀ dz_{t+1}, 0 where h was clipped ─▶ dm_t = Rᵀ dh_t ─▶ dz_t, dc_{t−1}
    then       dU = Σ dz_t h_{t−1}ᵀ    dR = Σ dh_t m_tᵀ    dW = Σ dz_t x_tᵀ    dx = Wᵀ dz

The loops write into preallocated buffers (`Workspace`). On a GPU they are captured as CUDA graphs at the third sequence
of a shape, because a loop of small kernels waits for Python; the passes over the gates are Triton kernels there, and
torch functions elsewhere.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nextword.kernels import triton_kernels as kernels
from nextword.kernels.graph_capture import capture_graph

SEEN = 2  # sequences of a shape before its loops are captured
GRAPHS = 4  # captured per layer: for batches in training and evaluation; not for the rest of an epoch

Limits = tuple[float, float]  # of cells and of the projection; 0: none
Weights = tuple[Tensor, Tensor, Tensor, Tensor]


class Workspace:
    """The buffers of the loops over one sequence; H cells, h of width P."""

    def __init__(self, sides: int, steps: int, rows: int, like: Weights, limits: Limits, training: bool = True) -> None:
        _, from_state, _, project = like
        cells, width, kind, device = project.shape[2], project.shape[1], project.dtype, project.device
        wide = torch.promote_types(kind, torch.float32)
        self.limits, self.steps = limits, steps

        def empty(*shape: int, dtype: torch.dtype = kind) -> Tensor:
            return torch.empty(sides, *shape, dtype=dtype, device=device)

        self.z = empty(steps, rows, 4 * cells)  # gates before their nonlinearity, after it, and finally their gradient
        self.c = empty(steps + 1, rows, cells, dtype=wide)
        self.m = empty(steps, rows, cells)
        self.h = empty(steps + 1, rows, width)
        if training:
            self.dy = empty(steps, rows, width)
            self.dh = empty(steps, rows, width)
            self.dm = empty(rows, cells)
            self.dc = empty(rows, cells, dtype=wide)
        self.training = training
        self.from_state, self.project = from_state, project
        self.graphs: list[torch.cuda.CUDAGraph] = []  # of the forward and of the backward loop
        self.serial = 0  # number of the sequence in the buffers; changes when they are overwritten

    def forward(self) -> None:
        """From z, which holds the product with the inputs, and the first h and c."""
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
        """From dy and, in dc, the gradient of the last c; afterwards z holds dz, and dc the gradient of the first c."""
        cell_clip, projection_clip = self.limits
        for t in reversed(range(self.steps)):
            dh = self.dh[:, t]
            if t + 1 < self.steps:
                torch.baddbmm(self.dy[:, t], self.z[:, t + 1], self.from_state, out=dh)
            else:
                dh.copy_(self.dy[:, t])
            if projection_clip:
                kernels.zero_where_clipped(dh, self.h[:, t + 1], projection_clip)
            torch.bmm(dh, self.project, out=self.dm)
            kernels.close_gates(self.z[:, t], self.c[:, t], self.c[:, t + 1], self.dm, self.dc, cell_clip)

    def capture(self) -> None:
        """Capture the loops. From now on weights are copied in, because a graph reads fixed addresses."""
        self.from_state, self.project = self.from_state.clone(), self.project.clone()
        made = []
        for work in (self.forward, self.backward) if self.training else (self.forward,):
            with capture_graph() as graph:  # captured, not computed
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


class ProjectedLoops:
    """The loops of one layer, and the workspaces whose loops are captured."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.seen: dict[Any, int] = {}
        self.workspaces: dict[Any, Workspace] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> ProjectedLoops:
        return ProjectedLoops(self.limits)  # the copy captures its own

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
                workspace = _run_forward(*given[:3], given[3:], self, training=False)
                y, last = workspace.h[:, 1:].clone(), workspace.c[:, -1].clone()
        return y, y[:, -1], last

    def workspace(self, x: Tensor, weights: Weights, training: bool) -> Workspace:
        """A new workspace, or one whose loops are captured."""
        sides, steps, rows, _ = x.shape
        key = (sides, steps, rows, x.dtype, training)
        if key in self.workspaces:
            return self.workspaces[key]
        workspace = Workspace(sides, steps, rows, weights, self.limits, training)
        if not x.is_cuda or torch.cuda.is_current_stream_capturing():
            return workspace
        self.seen[key] = self.seen.get(key, 0) + 1
        if self.seen[key] > SEEN and len(self.workspaces) < GRAPHS:
            workspace.capture()
            self.workspaces[key] = workspace
        return workspace


class _Sequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, h: Tensor, c: Tensor, *rest: Any) -> Any:
        *weights, loops = rest
        workspace = _run_forward(x, h, c, tuple(weights), loops)
        ctx.save_for_backward(x, h, c, *weights)
        ctx.loops, ctx.workspace, ctx.serial = loops, workspace, workspace.serial
        return workspace.h[:, 1:].clone(), workspace.c[:, -1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, last: Tensor) -> Any:
        x, h, c, *weights = ctx.saved_tensors
        workspace: Workspace = ctx.workspace
        if workspace.serial != ctx.serial:  # overwritten since: compute it again
            workspace = _run_forward(x, h, c, tuple(weights), ctx.loops, alone=True)
        from_input, from_state, *_ = weights
        workspace.dy.copy_(dy)
        workspace.dc.copy_(last)
        workspace.play(1)
        workspace.serial += 1
        dz, dh, before = (t.flatten(1, 2) for t in (workspace.z, workspace.dh, workspace.h[:, : workspace.steps]))
        wanted = ctx.needs_input_grad
        return (
            (dz @ from_input).view_as(x) if wanted[0] else None,
            workspace.z[:, 0] @ from_state if wanted[1] else None,
            workspace.dc.clone() if wanted[2] else None,
            dz.mT @ x.flatten(1, 2) if wanted[3] else None,
            dz.mT @ before if wanted[4] else None,
            dz.sum(1) if wanted[5] else None,
            dh.mT @ workspace.m.flatten(1, 2) if wanted[6] else None,
            None,
        )


def _run_forward(
    x: Tensor, h: Tensor, c: Tensor, weights: Weights, loops: ProjectedLoops, alone: bool = False, training: bool = True
) -> Workspace:
    """A workspace in which the forward loop has run."""
    from_input, from_state, bias, project = weights
    sides, steps, rows, _ = x.shape
    workspace = Workspace(sides, steps, rows, weights, loops.limits) if alone else loops.workspace(x, weights, training)
    torch.baddbmm(bias.unsqueeze(1), x.flatten(1, 2), from_input.mT, out=workspace.z.flatten(1, 2))
    workspace.h[:, 0].copy_(h)
    workspace.c[:, 0].copy_(c)
    if workspace.graphs:
        workspace.from_state.copy_(from_state)
        workspace.project.copy_(project)
    workspace.play(0)
    workspace.serial += 1
    return workspace
