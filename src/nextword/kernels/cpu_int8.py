"""Int8 on a CPU: inner loops in LLVM code, as this machine has instructions for them, and an LSTM layer made of them.

**A few rows** (`four_floats`, `four_bytes`, used by cpu_matmul.py). Four rows of a matrix at once, from four distant
places: so a core waits for four streams of memory, not one, and each stream is read from beginning to end.

    floats   w · x                                   16 lanes, as many at a time as the machine has
    bytes    w · (256 hi + lo), x in sixteen bits    vpdpbusd: 64 products of an unsigned and a signed byte, added up;
                                                     elsewhere the same sums with wider numbers

`arrive` and `arrived` let threads wait for each other without leaving compiled code.

**Many rows** (`multiply_tile`). Small tiles whose sums never leave the registers. A core with
AVX2 multiplies 16 floats per cycle; `vpmaddwd` multiplies 32 16-bit integers and adds pairs in 32 bits; `vpdpwssd` of
AVX512-VNNI is twice as wide and also adds to the sums. So int8 weights, widened when loaded, are multiplied with an x
of up to sixteen bits:

    sums[r, c] = Σ_k q[c, k] · x[r, k]        integers, exact        r one of 1 … TILE_ROWS rows, c one of COLUMNS

    q in memory    panel │ pair of k │ COLUMNS │ 2        half of it is one load, one vector
    x in memory    row │ pair of k │ 2                    4 bytes are a pair: one load, the same in every lane

With x up to `limit(width)`, the sums fit into 32 bits, whatever the weights.

**LSTM gates** (`pass_gates`), for UNITS units at a time: from integer sums to c and h in
registers. (Numba would take one unit after the other and call a function for each exponential.)

    z = (W x)ₛ · scale · a + (U h)ₛ · b + bias        ₛ: integer sums; a, b: what a one of each stands for
    c' = σ(f) c + σ(i) tanh(g)        h = σ(o) tanh(c')        and h as integers, for the next product

    σ(x) = 1 / (1 + e⁻ˣ)    tanh(x) = 1 − 2 / (1 + e²ˣ)    eˣ = 2ⁿ · e^f, |f| ≤ ln 2 / 2, seven terms of its series

**LSTM layer** (`run_int8_lstm`). Reference: `Int8LSTM.forward` of layers/quantized.py with dequantized matrices
(tests/unit/kernels/test_cpu_int8_lstm.py). Selected there, on CPUs with AVX2, where no gradient is needed.

    W ≈ scale · Q        one scale per row; x and h are quantized to up to sixteen bits

    for each step                                     quantize x and the previous h
      for UNITS units, i f g o side by side           their weights stay in the cache for all rows
        for up to TILE_ROWS rows                      integer sums of W x and of U h, exact
          i f g o → c, h                              while the sums are in registers

|h| < 1, so its scale is known beforehand; each row of x is scaled by its own largest number. Each thread takes some of
the texts through all steps and waits for nobody.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic
from torch import Tensor

from nextword.core.jit import OPTIONS, has_cpu_features, numba_jit, run_concurrently

intrinsic: Any = _intrinsic  # its type knows nothing of how what it makes is called

LANES = 16  # floats, or groups of four bytes, taken at once
ROWS = 4
I8, I32, I64, F32 = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
FLOATS, WORDS, BYTES = ir.VectorType(F32, LANES), ir.VectorType(I32, LANES), ir.VectorType(I8, LANES)


def has_byte_products() -> bool:
    """Whether this machine has instructions that multiply 64 bytes at a time."""
    return has_cpu_features("avx512vnni")


def declared(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    module = builder.module
    return module.globals.get(name) or ir.Function(module, ir.FunctionType(result, arguments), name)


def loaded(builder: Any, start: Any, at: Any, kind: Any) -> Any:
    value = builder.load(builder.bitcast(builder.gep(start, [at]), kind.as_pointer()))
    value.align = 1
    return value


def _data(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return context.make_array(kind)(context, builder, value).data


@intrinsic
def four_floats(typingctx, matrix, width, row, apart, x, at, sums):
    """sums[k] = Σ_j matrix[row + k · apart, j] · x[at + j], k = 0 … 3; the matrix by its address, `width` by LANES."""

    def codegen(context, builder, signature, args):
        address, wide, first, step, vector, begin, out = args
        base = builder.inttoptr(address, F32.as_pointer())
        rows = [
            builder.gep(base, [builder.mul(builder.add(first, builder.mul(step, I64(k))), wide)]) for k in range(ROWS)
        ]
        xs = builder.gep(_data(context, builder, signature.args[4], vector), [begin])
        sums = [cgutils.alloca_once(builder, FLOATS) for _ in rows]
        for place in sums:
            builder.store(ir.Constant(FLOATS, [0.0] * LANES), place)
        with cgutils.for_range(builder, builder.udiv(wide, I64(LANES))) as loop:
            here = builder.mul(loop.index, I64(LANES))
            v = loaded(builder, xs, here, FLOATS)
            for start, place in zip(rows, sums, strict=True):
                more = builder.fmul(loaded(builder, start, here, FLOATS), v, flags=("contract",))
                builder.store(builder.fadd(builder.load(place), more, flags=("contract",)), place)
        total = declared(builder, f"llvm.vector.reduce.fadd.v{LANES}f32", F32, [F32, FLOATS])
        to = _data(context, builder, signature.args[6], out)
        for k, place in enumerate(sums):
            whole = builder.call(total, [F32(0.0), builder.load(place)], fastmath=("fast",))
            builder.store(whole, builder.gep(to, [I64(k)]))
        return context.get_dummy_value()

    n = types.int64
    return types.void(n, n, n, n, x, n, sums), codegen


@intrinsic
def tile_floats(
    typingctx: Any, matrix: Any, width: Any, row: Any, apart: Any, x: Any, at: Any, stride: Any, sums: Any
) -> Any:
    """`four_floats` of four rows of x at once, `stride` apart: sums[4 i + k] of row i. Each sum has the same bits."""

    def codegen(context, builder, signature, args):
        address, wide, first, step, vector, begin, between, out = args
        base = builder.inttoptr(address, F32.as_pointer())
        rows = [
            builder.gep(base, [builder.mul(builder.add(first, builder.mul(step, I64(k))), wide)]) for k in range(ROWS)
        ]
        whole = _data(context, builder, signature.args[4], vector)
        xs = [builder.gep(whole, [builder.add(begin, builder.mul(between, I64(i)))]) for i in range(ROWS)]
        sums = [[cgutils.alloca_once(builder, FLOATS) for _ in rows] for _ in xs]
        for place in (place for line in sums for place in line):
            builder.store(ir.Constant(FLOATS, [0.0] * LANES), place)
        with cgutils.for_range(builder, builder.udiv(wide, I64(LANES))) as loop:
            here = builder.mul(loop.index, I64(LANES))
            weights = [loaded(builder, start, here, FLOATS) for start in rows]
            for start, line in zip(xs, sums, strict=True):
                v = loaded(builder, start, here, FLOATS)
                for weight, place in zip(weights, line, strict=True):
                    more = builder.fmul(weight, v, flags=("contract",))
                    builder.store(builder.fadd(builder.load(place), more, flags=("contract",)), place)
        total = declared(builder, f"llvm.vector.reduce.fadd.v{LANES}f32", F32, [F32, FLOATS])
        to = _data(context, builder, signature.args[7], out)
        for k, place in enumerate(place for line in sums for place in line):
            all_lanes = builder.call(total, [F32(0.0), builder.load(place)], fastmath=("fast",))
            builder.store(all_lanes, builder.gep(to, [I64(k)]))
        return context.get_dummy_value()

    n = types.int64
    return types.void(n, n, n, n, x, n, n, sums), codegen


def _products(builder: Any, rows: list[Any], halves: list[Any], here: Any, sums: list[list[Any]]) -> None:
    """Multiply 64 bytes of each row by those of each half; four products per sum."""
    multiply = declared(builder, "llvm.x86.avx512.vpdpbusd.512", WORDS, [WORDS, WORDS, WORDS])
    values = [loaded(builder, half, here, WORDS) for half in halves]
    for k, start in enumerate(rows):
        weights = loaded(builder, start, here, WORDS)
        for value, places in zip(values, sums, strict=True):
            builder.store(builder.call(multiply, [builder.load(places[k]), value, weights]), places[k])


def _wide_products(builder: Any, rows: list[Any], halves: list[Any], here: Any, sums: list[list[Any]]) -> None:
    """Multiply 16 bytes of each, widened: works on any machine."""
    values = [builder.zext(loaded(builder, half, here, BYTES), WORDS) for half in halves]
    for k, start in enumerate(rows):
        weights = builder.sext(loaded(builder, start, here, BYTES), WORDS)
        for value, places in zip(values, sums, strict=True):
            builder.store(builder.add(builder.load(places[k]), builder.mul(value, weights)), places[k])


@intrinsic
def four_bytes(
    typingctx: Any, matrix: Any, width: Any, row: Any, apart: Any, hi: Any, lo: Any, at: Any, sums: Any
) -> Any:
    """sums[k] = Σ_j matrix[row + k · apart, j] · hi[at + j], and sums[4 + k] the same of lo; `width` by 4 · LANES."""

    def codegen(context, builder, signature, args):
        address, wide, first, step, upper, lower, begin, out = args
        base = builder.inttoptr(address, I8.as_pointer())
        rows = [
            builder.gep(base, [builder.mul(builder.add(first, builder.mul(step, I64(k))), wide)]) for k in range(ROWS)
        ]
        halves = [
            builder.gep(_data(context, builder, kind, value), [begin])
            for kind, value in zip(signature.args[4:6], (upper, lower), strict=True)
        ]
        sums = [[cgutils.alloca_once(builder, WORDS) for _ in rows] for _ in halves]
        for place in (*sums[0], *sums[1]):
            builder.store(ir.Constant(WORDS, [0] * LANES), place)
        at_once = 4 * LANES if has_byte_products() else LANES
        add = _products if has_byte_products() else _wide_products
        with cgutils.for_range(builder, builder.udiv(wide, I64(at_once))) as loop:
            add(builder, rows, halves, builder.mul(loop.index, I64(at_once)), sums)
        total = declared(builder, f"llvm.vector.reduce.add.v{LANES}i32", I32, [WORDS])
        to = _data(context, builder, signature.args[7], out)
        for k, place in enumerate((*sums[0], *sums[1])):
            builder.store(builder.call(total, [builder.load(place)]), builder.gep(to, [I64(k)]))
        return context.get_dummy_value()

    n = types.int64
    return types.void(n, n, n, n, hi, lo, n, sums), codegen


@intrinsic
def arrive(typingctx, gate):
    """Count one more thread at the gate (an array of one number)."""

    def codegen(context, builder, signature, args):
        builder.atomic_rmw("add", _data(context, builder, signature.args[0], args[0]), I64(1), "seq_cst")
        return context.get_dummy_value()

    return types.void(gate), codegen


@intrinsic
def arrived(typingctx, gate):
    """How many threads have arrived."""

    def codegen(context, builder, signature, args):
        return builder.load_atomic(_data(context, builder, signature.args[0], args[0]), "seq_cst", 8)

    return types.int64(gate), codegen


@intrinsic
def power_of_two(typingctx, n):
    """2ⁿ for an int32 from −126 to 127, as a float: its bits, put together."""

    def codegen(context, builder, signature, args):
        bits = builder.shl(builder.add(args[0], I32(127)), I32(23))
        return builder.bitcast(bits, F32)

    return types.float32(types.int32), codegen


@intrinsic
def place(typingctx, address):
    """An address as a pointer, for numba's carray."""

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), codegen


binding.initialize_native_asmparser()  # for an instruction by name
WIDE = has_cpu_features("avx512f", "avx512bw", "avx512vnni")
UNITS = 16 if WIDE else 8  # sums in a vector
COLUMNS = 2 * UNITS  # of a panel
TILE_ROWS = 12 if WIDE else 6  # of a tile, at most: its sums, 2 vectors of weights, x and a product fill the registers
MOST = 127  # of a weight
SUMS, PAIRS, TILE_BYTES = ir.VectorType(I32, UNITS), ir.VectorType(ir.IntType(16), COLUMNS), ir.VectorType(I8, COLUMNS)


def has_pair_products() -> bool:
    """Whether this machine multiplies and adds at least sixteen pairs of 16-bit integers at a time."""
    return has_cpu_features("avx2")


def limit(width: int) -> int:
    """The largest integer of x for which no sum of `width` products overflows."""
    return min((1 << 15) - 1, ((1 << 31) - 1) // (MOST * max(width, 1)))


@intrinsic
def multiply_tile(typingctx, rows, panel, pairs, x, apart, sums):
    """Addresses of a panel, of the first row and of the sums; `apart` is how many numbers one row of x lies behind the
    other. Code for each number of rows, and a branch to that of this one."""

    def codegen(context, builder, signature, args):
        rows, weights, count, first, step, out = args
        q, to, base = (builder.inttoptr(a, I8.as_pointer()) for a in (weights, out, first))
        after = builder.append_basic_block("after")
        branch = builder.switch(rows, after)
        for n in range(1, TILE_ROWS + 1):
            block = builder.append_basic_block(f"rows_{n}")
            branch.add_case(I64(n), block)
            builder.position_at_end(block)
            _tile(builder, n, q, count, base, step, to)
            builder.branch(after)
        builder.position_at_end(after)
        return context.get_dummy_value()

    n = types.int64
    return types.void(n, n, n, n, n, n), codegen


def _tile(builder: Any, rows: int, q: Any, count: Any, base: Any, step: Any, to: Any) -> None:
    starts = [builder.gep(base, [builder.mul(step, I64(2 * r))]) for r in range(rows)]
    places = [[cgutils.alloca_once(builder, SUMS) for _ in range(2)] for _ in starts]
    for place in (one for pair in places for one in pair):
        builder.store(ir.Constant(SUMS, [0] * UNITS), place)
    with cgutils.for_range(builder, count) as loop:
        at = builder.mul(loop.index, I64(2 * COLUMNS))
        halves = [loaded(builder, q, builder.add(at, I64(COLUMNS * c)), TILE_BYTES) for c in range(2)]
        wide = [builder.sext(half, PAIRS) for half in halves]
        for start, pair in zip(starts, places, strict=True):
            value = _broadcast(builder, loaded(builder, start, builder.mul(loop.index, I64(4)), I32))
            for w, place in zip(wide, pair, strict=True):
                builder.store(_add_pairs(builder, builder.load(place), w, value), place)
    for r, pair in enumerate(places):
        for c, place in enumerate(pair):
            there = builder.gep(to, [I64(4 * (COLUMNS * r + UNITS * c))])
            builder.store(builder.load(place), builder.bitcast(there, SUMS.as_pointer())).align = 4


def _add_pairs(builder: Any, sums: Any, w: Any, value: Any) -> Any:
    """sums + w · value, in pairs."""
    if WIDE:  # by name: LLVM would make two instructions of it, which are sooner done one by one and later all together
        kind = ir.FunctionType(SUMS, [SUMS, SUMS, SUMS])
        return builder.asm(kind, "vpdpwssd $2, $1, $0", "=v,v,v,0", [builder.bitcast(w, SUMS), value, sums], False)
    multiply = declared(builder, "llvm.x86.avx2.pmadd.wd", SUMS, [PAIRS, PAIRS])
    return builder.add(sums, builder.call(multiply, [w, builder.bitcast(value, PAIRS)]))


def _broadcast(builder: Any, pair: Any) -> Any:
    """The same 32 bits (a pair of 16-bit integers) in every lane."""
    none = ir.Constant(SUMS, ir.Undefined)
    first = builder.insert_element(none, pair, I32(0))
    return builder.shuffle_vector(first, none, ir.Constant(SUMS, [0] * UNITS))


GATE_FLOATS, SHORTS = ir.VectorType(F32, UNITS), ir.VectorType(ir.IntType(16), UNITS)
FAST = ("fast",)
GATES = 4  # i, f, g, o


class Lanes:
    """Arithmetic on vectors of floats; a Python number is the same in every lane."""

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
        """Round x + above, which is at least 0, to an integer."""
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
def pass_gates(typingctx, table, sums, scale, most, c, h, rounded):
    """Of one row, all by address: table (3, 4 · UNITS) of a, b and biases; sums (2, 2, ROWS, COLUMNS) from this row on;
    c, read and written; h and, `most` for 1, its whole numbers, written."""

    def codegen(context, builder, signature, args):
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
                do.floats(loaded(builder, found, I64(4 * (2 * TILE_ROWS * COLUMNS * k + place)), SUMS))
                for k in range(2)
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


# ------------------------------------------------------------------------------------------------ an LSTM layer


fast: Any = numba_jit(**OPTIONS, fastmath=True)
FEW = 3  # texts of a thread: for fewer, all of the weights are read by one more thread


@fast
def round_int16(x: float) -> np.int32:
    """The nearest, of numbers from −32767 to 32767."""
    return np.int32(np.int32(x + np.float32(32768.5)) - 32768)


@fast
def multiply_rows(rows: int, panel: int, pairs: int, x: np.ndarray, sums: int) -> None:
    """The first rows of x with a panel."""
    multiply_tile(rows, panel, pairs, x.ctypes.data, x.shape[1], sums)


@fast
def round_rows(x: np.ndarray, most: int, out: np.ndarray, scales: np.ndarray) -> None:
    """x ≈ scale · out, whole numbers up to `most`, a scale for each row."""
    for r in range(len(x)):
        top = np.float32(1e-30)
        for j in range(x.shape[1]):
            top = max(top, abs(x[r, j]))
        up = np.float32(most) / top
        for j in range(x.shape[1]):
            out[r, j] = round_int16(x[r, j] * up)
        scales[r] = top / np.float32(most)


@fast
def run_lstm(
    begin: int,  # these texts are this thread's
    end: int,
    x: np.ndarray,  # (T, B, inputs)
    from_input: np.ndarray,  # (blocks, 2, pairs, COLUMNS, 2) bytes
    from_state: np.ndarray,
    table: np.ndarray,  # (blocks, 3, 4 · UNITS): what a one of W x and of U h stands for, and the bias
    most: tuple[int, int],  # of the whole numbers of x and of h
    h: np.ndarray,  # (B, width) before
    c: np.ndarray,  # (B, padded) before, and then after
    out: np.ndarray,  # (T, B, padded)
) -> None:
    n, blocks = end - begin, len(table)
    groups = (n + TILE_ROWS - 1) // TILE_ROWS  # nearly equal
    pairs, one = (from_input.shape[2], from_state.shape[2]), np.float32(most[1])
    xs, scales = np.zeros((n, 2 * pairs[0]), np.int16), np.zeros(n, np.float32)
    before, after = np.zeros((n, blocks * UNITS), np.int16), np.zeros((n, blocks * UNITS), np.int16)
    sums = np.zeros((2, 2, TILE_ROWS, COLUMNS), np.int32)
    for r in range(n):
        for j in range(h.shape[1]):
            before[r, j] = round_int16(h[begin + r, j] * one)
    for t in range(len(x)):
        round_rows(x[t, begin:end], most[0], xs, scales)
        for b in range(blocks):
            for g in range(groups):
                first, rows = n * g // groups, n * (g + 1) // groups - n * g // groups
                for half in range(2):
                    to = sums[0, half].ctypes.data, sums[1, half].ctypes.data
                    multiply_rows(rows, from_input[b, half].ctypes.data, pairs[0], xs[first:], to[0])
                    multiply_rows(rows, from_state[b, half].ctypes.data, pairs[1], before[first:], to[1])
                for r in range(first, first + rows):
                    pass_gates(
                        table[b].ctypes.data,
                        sums[0, 0, r - first].ctypes.data,
                        scales[r],
                        one,
                        c[begin + r, b * UNITS :].ctypes.data,
                        out[t, begin + r, b * UNITS :].ctypes.data,
                        after[r, b * UNITS :].ctypes.data,
                    )
        before, after = after, before


def pack_matrix(q: Tensor, width: int) -> np.ndarray:
    """(4 · width, inputs) bytes → (blocks, 2, pairs, COLUMNS, 2), with zeros where there is no unit or input."""
    blocks, pairs = -(-width // UNITS), -(-q.shape[1] // 2)
    room = q.new_zeros(GATES, blocks * UNITS, 2 * pairs)
    room[:, :width, : q.shape[1]] = q.view(GATES, width, -1)
    laid = room.view(2, 2, blocks, UNITS, pairs, 2).permute(2, 0, 4, 1, 3, 5)
    return np.ascontiguousarray(laid.reshape(blocks, 2, pairs, COLUMNS, 2).numpy())


def pack_rows(values: Tensor, width: int) -> Tensor:
    """(4 · width,) → (blocks, 4 · UNITS), in the order of the packed columns."""
    blocks = -(-width // UNITS)
    room = values.new_zeros(GATES, blocks * UNITS)
    room[:, :width] = values.view(GATES, width)
    return room.view(GATES, blocks, UNITS).transpose(0, 1).reshape(blocks, -1)


def run_int8_lstm(x: Tensor, tables: tuple[Any, ...], h: Tensor, c: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """(T, B, I), packed matrices, h and c (B, D) → outputs (T, B, D) and the last c (B, D)."""
    values = x.detach().float().contiguous().numpy()
    rows, padded = x.shape[1], -(-width // UNITS) * UNITS
    h, cells, out = h.float().contiguous(), torch.zeros(rows, padded), torch.empty(len(x), rows, padded)
    cells[:, :width] = c
    arguments = values, *tables, h.numpy(), cells.numpy(), out.numpy()
    threads = min(torch.get_num_threads(), -(-rows // FEW))
    edges = [rows * t // threads for t in range(threads + 1)]
    run_concurrently(threads, lambda t: run_lstm(edges[t], edges[t + 1], *arguments))
    return out[..., :width], cells[:, :width]
