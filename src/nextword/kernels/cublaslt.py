"""Products of cuBLASLt that torch has no name for: they do at their end what else would walk over memory once more.

    gelu_product      g = gelu(x Wᵀ + b), and what stood before the gelu, for the way back
    gelu_gradient     (dy W) · gelu'(what stood before), and its sum over the rows: the gradient of b
    weight_gradient   dyᵀ x, and the sum of dy over the rows: the gradients of W and b

Apart, the gelu reads what the product has just written, and writes as much again: for a GPU, which waits for memory
between its products, that is a fifth of a feed-forward part. The gelu is its approximation by tanh. All are operators
of their own, so that a compiler can place them. They are used once they have given what torch's functions give; and
whether a sum is made on the way or apart, by the clock, once for each shape.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p, sizeof
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.kernels import triton_kernels as kernels

NAMES = ("libcublasLt.so.13", "libcublasLt.so.12")  # what torch has loaded already
WORKSPACE = 32 << 20  # bytes
TRIED = 6  # ways to compute a product that are timed once, for each shape

# From cublasLt.h
BF16, FP32, COMPUTE = 14, 0, 68  # CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F
TRANSPOSED_A, TRANSPOSED_B, EPILOGUE, BIAS, AUX, AUX_ROWS = 3, 4, 7, 8, 11, 12  # attributes of a product
GELU_AUX_BIAS, DGELU, DGELU_BGRAD, BGRADB = 164, 192, 208, 512  # epilogues
MOST_WORKSPACE = 1  # a preference


class _Way(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t: one way to compute a product."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


@cache
def library() -> Any:
    """The library, or None."""
    if torch.version.cuda and torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0):
        for name in NAMES:
            try:
                return ctypes.CDLL(name)
            except OSError:
                continue
    return None


@cache
def _handle() -> c_void_p:
    made = c_void_p()
    _check(library().cublasLtCreate(byref(made)), "cublasLtCreate")
    return made


@cache
def _workspace(device: int) -> Tensor:
    return torch.empty(WORKSPACE, dtype=torch.uint8, device=f"cuda:{device}")


def _check(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"cuBLASLt: {what} answered {code}.")


class Plan:
    """One product of one shape: D = A B and its epilogue, all stored by columns, of which a row-major tensor has one a
    row. `transposed` says of A and B whether they lie there the other way round. The fastest of a few ways is kept.
    """

    def __init__(self, rows: tuple[int, int], inner: int, transposed: str, epilogue: int, device: int) -> None:
        lib, (n, m) = library(), rows  # D is (n, m), A (n, inner) and B (inner, m)
        self.device, self.picked = device, -1
        self.a = self._layout(*((inner, n) if "A" in transposed else (n, inner)))
        self.b = self._layout(*((m, inner) if "B" in transposed else (inner, m)))
        self.d = self._layout(n, m)
        self.product = c_void_p()
        _check(lib.cublasLtMatmulDescCreate(byref(self.product), COMPUTE, FP32), "cublasLtMatmulDescCreate")
        self._set(TRANSPOSED_A, c_int32(int("A" in transposed)))
        self._set(TRANSPOSED_B, c_int32(int("B" in transposed)))
        self._set(EPILOGUE, c_uint32(epilogue))
        if epilogue != BGRADB:
            self._set(AUX_ROWS, c_int64(n))
        preference = c_void_p()
        _check(lib.cublasLtMatmulPreferenceCreate(byref(preference)), "cublasLtMatmulPreferenceCreate")
        most = c_uint64(WORKSPACE)
        _check(
            lib.cublasLtMatmulPreferenceSetAttribute(preference, MOST_WORKSPACE, byref(most), c_size_t(8)), "workspace"
        )
        self.ways, found = (_Way * TRIED)(), c_int()
        layouts = self.a, self.b, self.d, self.d
        _check(
            lib.cublasLtMatmulAlgoGetHeuristic(
                _handle(), self.product, *layouts, preference, TRIED, self.ways, byref(found)
            ),
            "cublasLtMatmulAlgoGetHeuristic",
        )
        self.found = found.value

    def __call__(self, a: Tensor, b: Tensor, d: Tensor, bias: Tensor | None, aux: Tensor | None = None) -> None:
        """`bias` is read, or where the epilogue is the gradient of one, written."""
        if bias is not None:
            self._set(BIAS, c_void_p(bias.data_ptr()))
        if aux is not None:
            self._set(AUX, c_void_p(aux.data_ptr()))
        if self.picked < 0:
            self.picked = _quickest([partial(self._run, way, a, b, d) for way in range(self.found)])
        self._run(self.picked, a, b, d)

    def _run(self, way: int, a: Tensor, b: Tensor, d: Tensor) -> None:
        one, zero, space = c_float(1), c_float(0), _workspace(self.device)
        at = [c_void_p(t.data_ptr()) for t in (a, b, d)]
        stream = c_void_p(torch.cuda.current_stream(self.device).cuda_stream)
        _check(
            library().cublasLtMatmul(
                _handle(),
                self.product,
                byref(one),
                at[0],
                self.a,
                at[1],
                self.b,
                byref(zero),
                at[2],
                self.d,
                at[2],
                self.d,
                byref(self.ways[way].algorithm),
                c_void_p(space.data_ptr()),
                c_size_t(WORKSPACE),
                stream,
            ),
            "cublasLtMatmul",
        )

    def _layout(self, rows: int, columns: int) -> c_void_p:
        made = c_void_p()
        _check(
            library().cublasLtMatrixLayoutCreate(byref(made), BF16, c_uint64(rows), c_uint64(columns), c_int64(rows)),
            "cublasLtMatrixLayoutCreate",
        )
        return made

    def _set(self, attribute: int, value: Any) -> None:
        code = library().cublasLtMatmulDescSetAttribute(self.product, attribute, byref(value), c_size_t(sizeof(value)))
        _check(code, f"attribute {attribute}")


@cache
def _plan(rows: tuple[int, int], inner: int, transposed: str, epilogue: int, device: int) -> Plan:
    return Plan(rows, inner, transposed, epilogue, device)


def _quickest(ways: list[Callable[[], None]]) -> int:
    """Which of these takes the least time; one that cannot be done takes for ever."""
    took = []
    for way in ways:
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        try:
            way()
            before.record()
            for _ in range(5):
                way()
            after.record()
            after.synchronize()
            took.append(before.elapsed_time(after))
        except RuntimeError:
            took.append(math.inf)
    if min(took, default=math.inf) == math.inf:
        raise RuntimeError("cuBLASLt: no way to compute this product.")
    return took.index(min(took))


_chosen: dict[tuple[Any, ...], int] = {}


def _do(key: tuple[Any, ...], *ways: Callable[[], None]) -> None:
    """One of these, which all have the same result: the quickest, as found when it was first asked for."""
    if key not in _chosen:
        _chosen[key] = _quickest(list(ways))
    ways[_chosen[key]]()


# ------------------------------------------------------------------------------------------------ operators


def suits(x: Tensor, *weights: Tensor | None) -> bool:
    """Whether cuBLASLt takes these: 16 bits on a GPU, sizes in multiples of 16."""
    given = [x, *(w for w in weights if w is not None)]
    return len(given) > len(weights) and all(
        t.is_cuda and t.dtype == torch.bfloat16 and not t.shape[-1] % 16 for t in given
    )


@torch.library.custom_op("nextword::gelu_product", mutates_args=())
def gelu_product(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """(M, K), (N, K), (N,) → the gelu (M, N), and what stood before it."""
    if library() is None or not suits(x, weight, bias):
        before = F.linear(x, weight, bias)
        return F.gelu(before, approximate="tanh"), before
    (m, k), n = x.shape, len(weight)
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    g, before = x.new_empty(m, n), x.new_empty(m, n)
    _plan((n, m), k, "A", GELU_AUX_BIAS, x.device.index)(weight, x, g, bias, before)
    return g, before


@torch.library.custom_op("nextword::gelu_gradient", mutates_args=())
def gelu_gradient(dy: Tensor, weight: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """(M, D), (D, N), (M, N) → (dy W) · gelu'(before), (M, N), and its sum over the rows, (N,)."""
    if library() is None or not suits(dy, weight, before):
        out = torch.ops.aten.gelu_backward(dy @ weight, before, approximate="tanh")
        return out, out.sum(0)
    (m, d), n, device = dy.shape, weight.shape[1], dy.device.index
    dy, weight, before = dy.contiguous(), weight.contiguous(), before.contiguous()
    out, summed = dy.new_empty(m, n), dy.new_empty(n)

    def at_once() -> None:
        _plan((n, m), d, "", DGELU_BGRAD, device)(weight, dy, out, summed, before)

    def apart(sums: Any) -> None:
        _plan((n, m), d, "", DGELU, device)(weight, dy, out, None, before)
        sums(out, summed)

    _do(("gelu", m, d, n, device), at_once, *(partial(apart, sums) for sums in _sums()))
    return out, summed


@torch.library.custom_op("nextword::weight_gradient", mutates_args=())
def weight_gradient(dy: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """(M, N), (M, K) → dyᵀ x, (N, K), and the sum of dy over the rows, (N,)."""
    if library() is None or not suits(dy, x):
        return dy.t() @ x, dy.sum(0)
    (m, n), k, device = dy.shape, x.shape[1], dy.device.index
    dy, x = dy.contiguous(), x.contiguous()
    out, summed = dy.new_empty(n, k), dy.new_empty(n)

    def at_once() -> None:
        _plan((k, n), m, "B", BGRADB, device)(x, dy, out, summed)

    def apart(sums: Any) -> None:
        torch.mm(dy.t(), x, out=out)
        sums(dy, summed)

    _do(("weight", m, n, k, device), at_once, *(partial(apart, sums) for sums in _sums()))
    return out, summed


def _sums() -> list[Callable[[Tensor, Tensor], Any]]:
    """Ways to add up the rows of a matrix."""
    own = [kernels.column_sums] if kernels.available() else []
    return [lambda x, out: torch.sum(x, 0, out=out), *own]


@gelu_product.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(len(x), len(weight)), x.new_empty(len(x), len(weight))


@gelu_gradient.register_fake
def _(dy: Tensor, weight: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    return dy.new_empty(len(dy), weight.shape[1]), dy.new_empty(weight.shape[1])


@weight_gradient.register_fake
def _(dy: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return dy.new_empty(dy.shape[1], x.shape[1]), dy.new_empty(dy.shape[1])


class FeedForward(torch.autograd.Function):
    """W₂ gelu(W₁ x + b₁) + b₂ over (M, D), all of one type."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
        g, before = gelu_product(x, w1, b1)
        ctx.save_for_backward(x, w1, w2, g, before)
        return torch.addmm(b2, g, w2.t())

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, w1, w2, g, before = ctx.saved_tensors
        inner, db1 = gelu_gradient(dy, w2, before)
        dw2, db2 = weight_gradient(dy, g)
        return inner @ w1, inner.t() @ x, db1, dw2, db2


class LinearLayer(torch.autograd.Function):
    """W x + b over (M, D), all of one type."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return torch.addmm(b, x, w.t())

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, w = ctx.saved_tensors
        return dy @ w, *weight_gradient(dy, x)


READY = False  # said once and for all by `make_ready`, for a compiler cannot look into this


def make_ready() -> None:
    """From now on `feed_forward` and `linear` make use of them, if they can be used here."""
    global READY
    READY = usable()


@cache
def usable() -> bool:
    """Whether they do here what torch's functions do, tried once on a small case."""
    if library() is None:
        return False
    draw = torch.Generator("cuda").manual_seed(0)
    x, w, b, dy, back = (
        torch.randn(shape, generator=draw, device="cuda", dtype=torch.bfloat16)
        for shape in ((64, 32), (48, 32), (48,), (64, 32), (32, 48))
    )
    before = F.linear(x, w, b)
    inner = torch.ops.aten.gelu_backward(dy @ back, before, approximate="tanh")
    wanted = F.gelu(before, approximate="tanh"), inner, inner.sum(0), dy.t() @ x, dy.sum(0)
    try:
        g, kept = gelu_product(x, w, b)
        found = g, *gelu_gradient(dy, back, kept), *weight_gradient(dy, x)
    except RuntimeError:
        return False
    return all(bool((one - other).norm() <= 0.01 * other.norm()) for one, other in zip(found, wanted, strict=True))


def feed_forward(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """W₂ gelu(W₁ x + b₁) + b₂ where `applies_to` holds: (…, D) → (…, D)."""
    return _in_16_bits(FeedForward, x, w1, b1, w2, b2)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """(…, K), (N, K), (N,) → (…, N): where `applies_to` says so, a layer whose gradients are made as above."""
    return _in_16_bits(LinearLayer, x, weight, bias)


def applies_to(x: Tensor, layer: Any) -> bool:
    """Whether a layer is trained where and how these products can be used."""
    if not (READY and x.is_cuda and torch.is_grad_enabled()) or layer.bias is None:
        return False
    fits = not any(n % 16 for n in layer.weight.shape)
    return fits and torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16


def _in_16_bits(function: Any, x: Tensor, *weights: Tensor) -> Tensor:
    with torch.autocast(x.device.type, enabled=False):
        given = [t.to(torch.bfloat16) for t in (x.flatten(0, -2), *weights)]
        return function.apply(*given).view(*x.shape[:-1], -1)
