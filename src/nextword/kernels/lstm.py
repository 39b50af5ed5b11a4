"""Recurrent loops with hand-written gradients.

**`FUSED_GATES`.** The gates of one GRU or LSTM step as one operation each. Reference: `gru_gates` and `lstm_gates` of
layers/recurrent.py, of which autograd makes twenty small operations. For decoders that attend between two steps
(layers/stepwise.py).

**`run_padded_cpu`.** A recurrent layer over padded rows on a CPU, in one direction or both. Reference: `run_packed` of
layers/bilstm.py. torch runs rows of unequal length as slices of a packed tensor, and the gradient of a slice is a
tensor of zeros as large as the whole: T of them, T additions. Here rows stay padded, and each direction reads a row
from its own first token, so that padding only ever follows what is read. Both directions take a step in one batched
product:

    forward       a b c d ·      h after each, the end at d
    backward      d c b a ·      the same, the end at a; reversed again afterwards

**`StepwiseLinear`, `StepwiseWeightedSum`, `StepwiseEnergies`.** Products that are computed step by step with the same
operand. Reference: F.linear, matmul and tanh. Autograd would compute a gradient of the operand at each step and add
them up: T small products and T passes over the matrix. Here each step notes its input and output gradient, and one
product follows after all steps:

    y_t = W x_t            dW = Σ_t dy_t x_tᵀ = [dy_1 … dy_T] [x_1 … x_T]ᵀ

**`ProjectedLoops`.** A projected LSTM over a whole sequence. Reference: `ProjectedLSTM.stepwise` (layers/bilstm.py). A
step is two products and one pass over the gates, forward and backward; weight gradients are one product over all steps
and rows.

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
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nextword.kernels import triton_kernels as kernels
from nextword.kernels.graph_capture import capture_graph
from nextword.layers.recurrent import CellState, reverse_padded

aten = torch.ops.aten


def gru(from_input: Tensor, from_state: Tensor, memory: CellState) -> CellState:
    """Products (B, 3 D) each, and the state h (B, D)."""
    return (_GRU.apply(from_input, from_state, memory[0]),)


def lstm(from_input: Tensor, from_state: Tensor, memory: CellState) -> CellState:
    """Products (B, 4 D) each, and the state h and c (B, D)."""
    return _LSTM.apply(from_input, from_state, memory[1])


FUSED_GATES = {"gru": gru, "lstm": lstm}


class _GRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, s: Tensor, h: Tensor) -> Tensor:
        width = h.shape[-1]
        x = x.to(s.dtype)
        both = (x[..., : 2 * width] + s[..., : 2 * width]).sigmoid_()
        reset, update = both.chunk(2, -1)
        n = torch.addcmul(x[..., 2 * width :], reset, s[..., 2 * width :]).tanh_()
        ctx.save_for_backward(both, n, s, h)
        return torch.addcmul(n, update.to(n.dtype), h.to(n.dtype) - n)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor) -> Any:
        both, n, s, h = ctx.saved_tensors
        reset, update = both.chunk(2, -1)
        kept = dh * update
        dn = aten.tanh_backward(dh - kept, n)
        dz = aten.sigmoid_backward(dh * (h - n), update)
        dr = aten.sigmoid_backward(dn * s[..., 2 * n.shape[-1] :], reset)
        return torch.cat([dr, dz, dn], -1), torch.cat([dr, dz, dn * reset], -1), kept.to(h.dtype)


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, s: Tensor, c: Tensor) -> Any:
        a = x.to(s.dtype) + s
        i, f, g, o = a.chunk(4, -1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        new = torch.addcmul(f.to(c.dtype) * c, i.to(c.dtype), g.to(c.dtype))
        bent = torch.tanh(new)
        ctx.save_for_backward(i, f, g, o, c, bent)
        return o * bent.to(o.dtype), new

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor, dc: Tensor) -> Any:
        i, f, g, o, c, bent = ctx.saved_tensors
        dc = dc + aten.tanh_backward(dh * o, bent)
        parts = (
            aten.sigmoid_backward(dc * g, i),
            aten.sigmoid_backward(dc * c, f),
            aten.tanh_backward(dc * i, g),
            aten.sigmoid_backward(dh * bent, o),
        )
        da = torch.cat(parts, -1).to(o.dtype)
        return da, da, (dc * f).to(c.dtype)


Steps = tuple[Tensor, ...]  # (T, K, B, D) each: h, and c for an LSTM


def run_padded_cpu(layer: nn.RNNBase, x: Tensor, lengths: Tensor) -> tuple[Tensor, CellState]:
    """(B, S, I), (B,) → (B, S, K·D) with zeros at padding, and each row's memory at its end, (B, K·D) each."""
    ways = 2 if layer.bidirectional else 1
    there = torch.arange(x.shape[1]).unsqueeze(0) < lengths.unsqueeze(1)  # (B, S)
    inputs = [x, reverse_padded(x, lengths)][:ways]
    flat: Any = layer._flat_weights
    weights = [flat[4 * k : 4 * k + 4] for k in range(ways)]  # per direction
    products = [nn.functional.linear(each.transpose(0, 1), w[0], w[2]) for each, w in zip(inputs, weights, strict=True)]
    matrix, bias = (torch.stack([w[i] for w in weights]) for i in (1, 3))
    steps: Steps = SCANS[layer.mode].apply(torch.stack(products, 1).to(matrix.dtype), matrix, bias)
    y = list((steps[0] * there.t()[:, None, :, None]).permute(1, 2, 0, 3))  # K times (B, S, D)
    y[1:] = [reverse_padded(each, lengths) for each in y[1:]]
    at = (lengths - 1).view(1, 1, -1, 1).expand(1, *steps[0].shape[1:])
    ends = tuple(each.gather(0, at)[0].transpose(0, 1).flatten(1) for each in steps)
    return torch.cat(y, -1), ends


class _BidirectionalGRU(torch.autograd.Function):
    """r, z = σ(a), σ(b)    n = tanh(c + r · u)    h' = n + z (h − n), where a, b, c and u are parts of products."""

    @staticmethod
    def forward(ctx: Any, products: Tensor, matrix: Tensor, bias: Tensor) -> Any:
        steps, ways, rows, gates = products.shape
        width, turned, bias = gates // 3, matrix.transpose(1, 2).contiguous(), bias.unsqueeze(1)
        h = products.new_zeros(steps + 1, ways, rows, width)  # before the first step and after each
        old, both, candidate = (products.new_empty(steps, ways, rows, n * width) for n in (3, 2, 1))
        for t in range(steps):
            torch.baddbmm(bias, h[t], turned, out=old[t])
            torch.add(products[t, ..., : 2 * width], old[t, ..., : 2 * width], out=both[t]).sigmoid_()
            reset, update = both[t].chunk(2, -1)
            n = torch.addcmul(products[t, ..., 2 * width :], reset, old[t, ..., 2 * width :], out=candidate[t]).tanh_()
            torch.addcmul(n, update, h[t] - n, out=h[t + 1])
        ctx.save_for_backward(matrix, h, both, candidate, old)
        return (h[1:],)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor) -> Any:
        matrix, h, both, candidate, old = ctx.saved_tensors
        steps, ways, rows, width = candidate.shape
        (reset, update), old = both.chunk(2, -1), old[..., 2 * width :]
        da = given.new_empty(steps, ways, rows, 3 * width)  # of the products
        # Independent of the loop: how a change of h' goes through each gate
        by_candidate = (1 - update) * (1 - candidate * candidate)
        by_update = (h[:-1] - candidate) * update * (1 - update)
        by_reset = old * reset * (1 - reset)
        ds = torch.empty_like(da)  # of U h + b
        dh = torch.zeros_like(h[0])
        for t in range(steps - 1, -1, -1):
            dh = dh + given[t]
            dn = torch.mul(dh, by_candidate[t], out=da[t, ..., 2 * width :])
            torch.mul(dn, by_reset[t], out=ds[t, ..., :width])
            torch.mul(dh, by_update[t], out=ds[t, ..., width : 2 * width])
            torch.mul(dn, reset[t], out=ds[t, ..., 2 * width :])
            dh = torch.baddbmm(dh * update[t], ds[t], matrix)
        da[..., : 2 * width] = ds[..., : 2 * width]
        return da, *_of_weights(ds, h[:-1])


class _BidirectionalLSTM(torch.autograd.Function):
    """i, f, o = σ(·)    g = tanh(·)    c' = f c + i g    h' = o tanh(c')."""

    @staticmethod
    def forward(ctx: Any, products: Tensor, matrix: Tensor, bias: Tensor) -> Any:
        steps, ways, rows, gates = products.shape
        width, turned = gates // 4, matrix.transpose(1, 2).contiguous()
        products = products + bias.unsqueeze(1)
        h, c = (products.new_zeros(steps + 1, ways, rows, width) for _ in range(2))
        acts, squashed = torch.empty_like(products), torch.empty_like(h[1:])
        for t in range(steps):
            a = torch.baddbmm(products[t], h[t], turned)
            g = a[..., 2 * width : 3 * width].tanh()
            torch.sigmoid(a, out=acts[t])
            acts[t, ..., 2 * width : 3 * width] = g
            i, f, g, o = acts[t].chunk(4, -1)
            torch.addcmul(f * c[t], i, g, out=c[t + 1])
            torch.tanh(c[t + 1], out=squashed[t])
            torch.mul(o, squashed[t], out=h[t + 1])
        ctx.save_for_backward(matrix, h, c, acts, squashed)
        return h[1:], c[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor, given_c: Tensor) -> Any:
        matrix, h, c, acts, squashed = ctx.saved_tensors
        i, f, g, o = acts.chunk(4, -1)
        by_c = o * (1 - squashed * squashed)  # how a change of h' reaches c'
        # how a change of c' (at the last gate, of h') goes through each gate
        gates = torch.cat([g * i * (1 - i), c[:-1] * f * (1 - f), i * (1 - g * g), squashed * o * (1 - o)], -1)
        da, width = torch.empty_like(acts), h.shape[-1]
        dh, dc = torch.zeros_like(h[0]), torch.zeros_like(h[0])
        for t in range(len(acts) - 1, -1, -1):
            dh = dh + given[t]
            dc = torch.addcmul(dc + given_c[t], dh, by_c[t])
            torch.mul(torch.cat([dc, dc, dc, dh], -1), gates[t], out=da[t])
            dh = torch.bmm(da[t], matrix)
            dc = dc * acts[t, ..., width : 2 * width]
        return da, *_of_weights(da, h[:-1])


def _of_weights(ds: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """(T, K, B, G), (T, K, B, D) → the gradients of matrix (K, G, D) and bias (K, G)."""
    ds, h = (each.transpose(0, 1).flatten(1, 2) for each in (ds, h))
    return ds.transpose(1, 2) @ h, ds.sum(1)


SCANS: dict[str, Any] = {"GRU": _BidirectionalGRU, "LSTM": _BidirectionalLSTM}


Noted = list[tuple[Tensor, Tensor]]  # per step: the input, and the gradient of the output


class StepwiseLinear:
    """x → x Wᵀ + b."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias
        self.noted: Noted | None = None
        if torch.is_grad_enabled() and (weight.requires_grad or (bias is not None and bias.requires_grad)):
            self.noted = []
            self.weight, self.bias = _Weights.apply(weight, bias, self.noted)

    def __call__(self, x: Tensor) -> Tensor:
        """(…, K) → (…, N)."""
        if self.noted is None:
            return F.linear(x, self.weight, self.bias)
        return _Multiplied.apply(x, self.weight, self.bias, self.noted)


class StepwiseWeightedSum:
    """Weights (B, T, S) → Σ_s weights_s · memory_s, for the memory (B, S, M) of a source."""

    def __init__(self, memory: Tensor) -> None:
        self.memory = memory
        self.noted: Noted | None = None
        if torch.is_grad_enabled() and memory.requires_grad:
            self.noted = []
            self.memory = _Memory.apply(memory, self.noted)

    def __call__(self, weights: Tensor) -> Tensor:
        if self.noted is None:
            return weights @ self.memory
        return _Mixed.apply(weights, self.memory, self.noted)


class StepwiseEnergies:
    """Queries (B, T, D) → vᵀ tanh(query + key_s) (B, T, S), for the keys (B, S, D) of a source.

    Gradients are summed rather than noted, because notes would be S times as large as the queries.
    """

    def __init__(self, keys: Tensor, score: Tensor) -> None:
        self.keys, self.score = keys, score
        self.sums: list[Tensor] | None = None
        if torch.is_grad_enabled() and (keys.requires_grad or score.requires_grad):
            self.sums = []
            self.keys, self.score = _Keys.apply(keys, score, self.sums)

    def __call__(self, query: Tensor) -> Tensor:
        if self.sums is None:
            return torch.tanh(query.unsqueeze(2) + self.keys.unsqueeze(1)) @ self.score
        return _Energy.apply(query, self.keys, self.score, self.sums)


class _Keys(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keys: Tensor, score: Tensor, sums: list[Tensor]) -> Any:
        ctx.sums, ctx.kinds = sums, (keys.dtype, score.dtype)
        ctx.set_materialize_grads(False)
        return keys.view_as(keys), score.view_as(score)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *none: Any) -> Any:
        keys, score = (part.to(kind) for part, kind in zip(ctx.sums, ctx.kinds, strict=True))
        ctx.sums.clear()
        return keys, score, None


class _Energy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, score: Tensor, sums: list[Tensor]) -> Tensor:
        bent = torch.tanh(query.unsqueeze(2) + keys.unsqueeze(1))  # (B, T, S, D)
        ctx.save_for_backward(bent, score)
        ctx.sums, ctx.kind = sums, query.dtype
        return bent @ score

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, de: Tensor) -> Any:
        bent, score = ctx.saved_tensors
        of_score = de.reshape(-1) @ bent.to(de.dtype).flatten(0, 2)
        d = torch.ops.aten.tanh_backward(de.unsqueeze(-1) * score.to(de.dtype), bent.to(de.dtype))
        of_keys = d.squeeze(1) if d.shape[1] == 1 else d.sum(1)
        if ctx.sums:
            ctx.sums[0] += of_keys
            ctx.sums[1] += of_score
        else:
            ctx.sums[:] = of_keys, of_score
        return d.sum(2).to(ctx.kind), None, None, None


class _Weights(torch.autograd.Function):
    """Its backward runs after those of all steps, because each step has it among its operands."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor | None, noted: Noted) -> Any:
        ctx.noted = noted
        ctx.kinds = weight.dtype, None if bias is None else bias.dtype
        ctx.set_materialize_grads(False)  # the steps return none
        return weight.view_as(weight), None if bias is None else bias.view_as(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *none: Any) -> Any:
        x, dy = _concatenate(ctx.noted, 0)
        wanted, kinds = ctx.needs_input_grad, ctx.kinds
        weight = (dy.t() @ x).to(kinds[0]) if wanted[0] else None
        return weight, dy.sum(0).to(kinds[1]) if wanted[1] else None, None


class _Multiplied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, noted: Noted) -> Tensor:
        y = F.linear(x, weight, bias)
        ctx.save_for_backward(x, weight)
        ctx.noted = noted
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        ctx.noted.append((x.to(dy.dtype).reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])))
        return (dy @ weight.to(dy.dtype)).to(x.dtype) if ctx.needs_input_grad[0] else None, None, None, None


class _Memory(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, memory: Tensor, noted: Noted) -> Tensor:
        ctx.noted, ctx.kind = noted, memory.dtype
        ctx.set_materialize_grads(False)
        return memory.view_as(memory)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, none: Any) -> Any:
        weights, dy = _concatenate(ctx.noted, 1)
        return (weights.transpose(1, 2) @ dy).to(ctx.kind), None


class _Mixed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, memory: Tensor, noted: Noted) -> Tensor:
        ctx.save_for_backward(weights, memory)
        ctx.noted = noted
        return weights @ memory

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        weights, memory = ctx.saved_tensors
        ctx.noted.append((weights.to(dy.dtype), dy))
        return (dy @ memory.to(dy.dtype).transpose(1, 2)).to(weights.dtype), None, None


def _concatenate(noted: Noted, axis: int) -> list[Tensor]:
    """Concatenate what all steps have noted, and clear it."""
    parts = [torch.cat(parts, axis) for parts in zip(*noted, strict=True)]
    noted.clear()
    return parts


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
