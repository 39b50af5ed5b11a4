"""The inner loops of a product with few rows, as the machine has instructions for them.

Four rows of a matrix at once, from four places far apart: so a core waits for four streams of memory, not one, and
each stream is read from its beginning to its end. Numbers that numba has no words for are written in LLVM's own:

    floats   w · x                                   lanes of 16, as many at a time as the machine has
    bytes    w · (256 hi + lo), x in sixteen bits    vpdpbusd: 64 products of an unsigned and a signed byte, added up;
                                                     elsewhere the same sums out of wider numbers

`arrive` and `arrived` let threads wait for each other without leaving compiled code.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic

from nextword.compiled import has_instructions

intrinsic: Any = _intrinsic  # its type knows nothing of how what it makes is called

LANES = 16  # floats, or groups of four bytes, taken at once
ROWS = 4
I8, I32, I64, F32 = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
FLOATS, WORDS, BYTES = ir.VectorType(F32, LANES), ir.VectorType(I32, LANES), ir.VectorType(I8, LANES)


def has_byte_products() -> bool:
    """Whether this machine multiplies bytes by itself, 64 at a time."""
    return has_instructions("avx512vnni")


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
def four_floats(typingctx: Any, matrix: Any, width: Any, row: Any, apart: Any, x: Any, at: Any, sums: Any) -> Any:
    """sums[k] = Σ_j matrix[row + k · apart, j] · x[at + j], k = 0 … 3; the matrix by its address, `width` by LANES."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
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
                more = builder.fmul(loaded(builder, start, here, FLOATS), v, flags=("fast",))
                builder.store(builder.fadd(builder.load(place), more, flags=("fast",)), place)
        total = declared(builder, f"llvm.vector.reduce.fadd.v{LANES}f32", F32, [F32, FLOATS])
        to = _data(context, builder, signature.args[6], out)
        for k, place in enumerate(sums):
            whole = builder.call(total, [F32(0.0), builder.load(place)], fastmath=("fast",))
            builder.store(whole, builder.gep(to, [I64(k)]))
        return context.get_dummy_value()

    n = types.int64
    return types.void(n, n, n, n, x, n, sums), codegen


def _products(builder: Any, rows: list[Any], halves: list[Any], here: Any, sums: list[list[Any]]) -> None:
    """64 bytes of each row with those of each half, four products to a sum."""
    multiply = declared(builder, "llvm.x86.avx512.vpdpbusd.512", WORDS, [WORDS, WORDS, WORDS])
    values = [loaded(builder, half, here, WORDS) for half in halves]
    for k, start in enumerate(rows):
        weights = loaded(builder, start, here, WORDS)
        for value, places in zip(values, sums, strict=True):
            builder.store(builder.call(multiply, [builder.load(places[k]), value, weights]), places[k])


def _wide_products(builder: Any, rows: list[Any], halves: list[Any], here: Any, sums: list[list[Any]]) -> None:
    """16 bytes of each, made wider: any machine can."""
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

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
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
def arrive(typingctx: Any, gate: Any) -> Any:
    """One more thread has come to the gate (an array of one number)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.atomic_rmw("add", _data(context, builder, signature.args[0], args[0]), I64(1), "seq_cst")
        return context.get_dummy_value()

    return types.void(gate), codegen


@intrinsic
def arrived(typingctx: Any, gate: Any) -> Any:
    """How many have come so far."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_data(context, builder, signature.args[0], args[0]), "seq_cst", 8)

    return types.int64(gate), codegen


@intrinsic
def place(typingctx: Any, address: Any) -> Any:
    """An address as a pointer, for numba's carray."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), codegen
