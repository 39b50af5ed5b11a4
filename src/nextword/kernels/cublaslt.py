"""cuBLASLt products with epilogues that torch does not expose: bias, gelu and bias gradients fused into the product.

    gelu_product      g = gelu(x Wᵀ + b), and the input of the gelu, for the backward pass
    gelu_gradient     (dy W) · gelu'(input), and its sum over the rows: the gradient of b
    weight_gradient   dyᵀ x, and the sum of dy over the rows: the gradients of W and b

Reference: F.linear and F.gelu (tests/parity/test_gpt.py); selected in layers/linear.py after `make_ready()`.
Separately, the gelu would read what the product has just written and write as much again: a fifth of the time of a
feed-forward part on a GPU. The gelu is the tanh approximation. All are torch operators, so that torch.compile can place
them. They are used only after they have been checked against torch on a small case; and whether a sum is fused or
separate is decided by timing, once per shape.
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

NAMES = ("libcublasLt.so.13", "libcublasLt.so.12")  # torch has loaded one of them already
WORKSPACE = 32 << 20  # bytes
TRIED = 6  # algorithms that are timed, once per shape

# From cublasLt.h
BF16, FP32, COMPUTE = 14, 0, 68  # CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F
TRANSPOSED_A, TRANSPOSED_B, EPILOGUE, BIAS, AUX, AUX_ROWS = 3, 4, 7, 8, 11, 12  # attributes of a product
GELU_AUX_BIAS, DGELU, DGELU_BGRAD, BGRADB = 164, 192, 208, 512  # epilogues
MOST_WORKSPACE = 1  # a preference


class _Algorithm(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

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
    """One product of one shape: D = A B and its epilogue, in column-major order (rows of a row-major tensor are
    columns).

    `transposed` names those of "A" and "B" that are transposed. The fastest of a few algorithms is used.
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
        self.ways, found = (_Algorithm * TRIED)(), c_int()
        layouts = self.a, self.b, self.d, self.d
        _check(
            lib.cublasLtMatmulAlgoGetHeuristic(
                _handle(), self.product, *layouts, preference, TRIED, self.ways, byref(found)
            ),
            "cublasLtMatmulAlgoGetHeuristic",
        )
        self.found = found.value

    def __call__(self, a: Tensor, b: Tensor, d: Tensor, bias: Tensor | None, aux: Tensor | None = None) -> None:
        """`bias` is read; if the epilogue is a bias gradient, it is written."""
        if bias is not None:
            self._set(BIAS, c_void_p(bias.data_ptr()))
        if aux is not None:
            self._set(AUX, c_void_p(aux.data_ptr()))
        if self.picked < 0:
            self.picked = _fastest([partial(self._run, way, a, b, d) for way in range(self.found)])
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


def _fastest(ways: list[Callable[[], None]]) -> int:
    """The index of the fastest function; those that fail are skipped."""
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
        raise RuntimeError("cuBLASLt: no algorithm for this product.")
    return took.index(min(took))


_chosen: dict[tuple[Any, ...], int] = {}


def _run_fastest(key: tuple[Any, ...], *ways: Callable[[], None]) -> None:
    """Run the fastest of these equivalent functions, timed on the first call."""
    if key not in _chosen:
        _chosen[key] = _fastest(list(ways))
    ways[_chosen[key]]()


# ------------------------------------------------------------------------------------------------ operators


def suits(x: Tensor, *weights: Tensor | None) -> bool:
    """Whether cuBLASLt accepts these: bf16 on a GPU, sizes in multiples of 16."""
    given = [x, *(w for w in weights if w is not None)]
    return len(given) > len(weights) and all(
        t.is_cuda and t.dtype == torch.bfloat16 and not t.shape[-1] % 16 for t in given
    )


@torch.library.custom_op("nextword::gelu_product", mutates_args=())
def gelu_product(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """(M, K), (N, K), (N,) → the gelu (M, N), and its input."""
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

    _run_fastest(("gelu", m, d, n, device), at_once, *(partial(apart, sums) for sums in _sums()))
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

    _run_fastest(("weight", m, n, k, device), at_once, *(partial(apart, sums) for sums in _sums()))
    return out, summed


def _sums() -> list[Callable[[Tensor, Tensor], Any]]:
    """Functions that sum the rows of a matrix."""
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
    """W₂ gelu(W₁ x + b₁) + b₂ over (M, D), all of one dtype."""

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
    """W x + b over (M, D), all of one dtype."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return torch.addmm(b, x, w.t())

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, w = ctx.saved_tensors
        return dy @ w, *weight_gradient(dy, x)


READY = False  # set by `make_ready`, because torch.compile cannot trace the check itself


def make_ready() -> None:
    """Use these products from now on, if they work here."""
    global READY
    READY = usable()


@cache
def usable() -> bool:
    """Whether they give the same results as torch, checked once on a small case."""
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
    return _in_bf16(FeedForward, x, w1, b1, w2, b2)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x Wᵀ + b where `applies_to` holds: (…, K), (N, K), (N,) → (…, N)."""
    return _in_bf16(LinearLayer, x, weight, bias)


def applies_to(x: Tensor, layer: Any) -> bool:
    """Whether these products can be used: training under bf16 autocast on a GPU, a bias, sizes in multiples of 16."""
    if not (READY and x.is_cuda and torch.is_grad_enabled()) or layer.bias is None:
        return False
    fits = not any(n % 16 for n in layer.weight.shape)
    return fits and torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16


def _in_bf16(function: Any, x: Tensor, *weights: Tensor) -> Tensor:
    with torch.autocast(x.device.type, enabled=False):
        given = [t.to(torch.bfloat16) for t in (x.flatten(0, -2), *weights)]
        return function.apply(*given).view(*x.shape[:-1], -1)
