"""The gates of an LSTM for UNITS units at a time, in LLVM's own words: from whole sums to c and h, in registers.

    z = (W x)ₛ · scale · a + (U h)ₛ · b + bias        ₛ: sums of whole numbers; a, b what a one of each stands for
    c' = σ(f) c + σ(i) tanh(g)        h = σ(o) tanh(c')        and h as whole numbers, for the next product

    σ(x) = 1 / (1 + e⁻ˣ)    tanh(x) = 1 − 2 / (1 + e²ˣ)    eˣ = 2ⁿ · e^f, |f| ≤ ln 2 / 2, seven terms of its series

numba would take one unit after the other, and call a function for each e.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from nextword.layers.byte_tiles import COLUMNS, TILE_ROWS, SUMS, UNITS
from nextword.layers.dots import F32, I8, I32, I64, declared, intrinsic, loaded

GATE_FLOATS, SHORTS = ir.VectorType(F32, UNITS), ir.VectorType(ir.IntType(16), UNITS)
FAST = ("fast",)
GATES = 4  # i, f, g, o


class Lanes:
    """Arithmetic on vectors of floats; a number stands for itself in every lane."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def of(self, value: Any) -> Any:
        return ir.Constant(GATE_FLOATS, [value] * UNITS) if isinstance(value, (int, float)) else value

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(self.of(a), self.of(b), flags=FAST)

    def sub(self, a: Any, b: Any) -> Any:
        return self.builder.fsub(self.of(a), self.of(b), flags=FAST)

    def mul(self, a: Any, b: Any) -> Any:
        return self.builder.fmul(self.of(a), self.of(b), flags=FAST)

    def div(self, a: Any, b: Any) -> Any:
        return self.builder.fdiv(self.of(a), self.of(b), flags=FAST)

    def everywhere(self, value: Any) -> Any:
        none = ir.Constant(GATE_FLOATS, ir.Undefined)
        first = self.builder.insert_element(none, value, I32(0))
        return self.builder.shuffle_vector(first, none, ir.Constant(SUMS, [0] * UNITS))

    def whole(self, x: Any, above: int) -> Any:
        """The nearest whole number of x + above, which is at least 0."""
        return self.builder.fptosi(self.add(x, above + 0.5), SUMS)

    def floats(self, x: Any) -> Any:
        return self.builder.sitofp(x, GATE_FLOATS)

    def exp(self, x: Any) -> Any:
        least, most = (
            declared(self.builder, f"llvm.{name}.v{UNITS}f32", GATE_FLOATS, [GATE_FLOATS, GATE_FLOATS])
            for name in ("minnum", "maxnum")
        )
        y = self.mul(x, 1 / math.log(2))
        y = self.builder.call(least, [self.builder.call(most, [y, self.of(-126.0)]), self.of(126.0)])
        n = self.whole(y, 127)  # as a float has it in its exponent
        f = self.mul(self.sub(self.add(y, 127), self.floats(n)), math.log(2))
        series = self.of(1 / math.factorial(6))
        for k in reversed(range(6)):
            series = self.add(self.mul(series, f), 1 / math.factorial(k))
        power = self.builder.bitcast(self.builder.shl(n, ir.Constant(SUMS, [23] * UNITS)), GATE_FLOATS)
        return self.mul(series, power)

    def sigmoid(self, x: Any) -> Any:
        return self.div(1, self.add(1, self.exp(self.sub(0, x))))

    def tanh(self, x: Any) -> Any:
        return self.sub(1, self.div(2, self.add(1, self.exp(self.add(x, x)))))


def _store(builder: Any, value: Any, start: Any) -> None:
    builder.store(value, builder.bitcast(start, value.type.as_pointer())).align = 1


@intrinsic
def pass_gates(typingctx: Any, table: Any, sums: Any, scale: Any, most: Any, c: Any, h: Any, rounded: Any) -> Any:
    """Of one row, all by address: table (3, 4 · UNITS) of a, b and biases; sums (2, 2, ROWS, COLUMNS) from this row on;
    c, read and written; h and, `most` for 1, its whole numbers, written."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lists, found, step, one, memory, said, numbers = args
        do = Lanes(builder)
        lists, found, memory, said, numbers = (
            builder.inttoptr(a, I8.as_pointer()) for a in (lists, found, memory, said, numbers)
        )
        step, zs = do.everywhere(step), []
        for gate in range(GATES):
            a, b, bias = (loaded(builder, lists, I64(4 * UNITS * (GATES * k + gate)), GATE_FLOATS) for k in range(3))
            place = TILE_ROWS * COLUMNS * (gate // 2) + UNITS * (gate % 2)
            x, u = (
                do.floats(loaded(builder, found, I64(4 * (2 * TILE_ROWS * COLUMNS * k + place)), SUMS)) for k in range(2)
            )
            zs.append(do.add(do.add(do.mul(do.mul(x, step), a), do.mul(u, b)), bias))
        i, f, g, o = zs
        before = loaded(builder, memory, I64(0), GATE_FLOATS)
        now = do.add(do.mul(do.sigmoid(f), before), do.mul(do.sigmoid(i), do.tanh(g)))
        out = do.mul(do.sigmoid(o), do.tanh(now))
        _store(builder, now, memory)
        _store(builder, out, said)
        near = do.whole(do.mul(out, do.everywhere(one)), 1 << 15)
        near = builder.sub(near, ir.Constant(SUMS, [1 << 15] * UNITS))
        _store(builder, builder.trunc(near, SHORTS), numbers)
        return context.get_dummy_value()

    n, real = types.int64, types.float32
    return types.void(n, n, real, real, n, n, n), codegen
