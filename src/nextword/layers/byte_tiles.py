"""Products of a matrix of bytes with many rows at a time: small tiles whose sums never leave the registers.

A core with AVX2 multiplies 16 floats in a cycle. `vpmaddwd` does 32, of numbers in sixteen bits, and adds them up in
pairs in 32; `vpdpwssd` of AVX512-VNNI, twice as wide, adds them to the sums as well. So weights of eight bits, widened
when they are loaded, go with an x of up to sixteen:

    sums[r, c] = Σ_k q[c, k] · x[r, k]        whole numbers, exact        r one of 1 … ROWS rows, c one of COLUMNS

    q as it lies    panel │ pair of k │ COLUMNS │ 2        half of it is one load, one vector
    x as it lies    row │ pair of k │ 2                    4 bytes are a pair: one load, the same in every lane

An x of `limit(width)` at most keeps the sums within 32 bits, whatever the weights.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils

from nextword.compiled import has_instructions
from nextword.layers.dots import I8, I32, I64, declared, intrinsic, loaded

binding.initialize_native_asmparser()  # for an instruction by name
WIDE = has_instructions("avx512f", "avx512bw", "avx512vnni")
UNITS = 16 if WIDE else 8  # sums in a vector
COLUMNS = 2 * UNITS  # of a panel
TILE_ROWS = 12 if WIDE else 6  # of a tile, at most: its sums, 2 vectors of weights, x and a product fill the registers
MOST = 127  # of a weight
SUMS, PAIRS, TILE_BYTES = ir.VectorType(I32, UNITS), ir.VectorType(ir.IntType(16), COLUMNS), ir.VectorType(I8, COLUMNS)


def has_pair_products() -> bool:
    """Whether this machine multiplies and adds pairs of sixteen bits, at least sixteen at a time."""
    return has_instructions("avx2")


def limit(width: int) -> int:
    """How large the numbers of x may be, so that no sum of so many products overflows."""
    return min((1 << 15) - 1, ((1 << 31) - 1) // (MOST * max(width, 1)))


@intrinsic
def multiply_tile(typingctx: Any, rows: Any, panel: Any, pairs: Any, x: Any, apart: Any, sums: Any) -> Any:
    """Addresses of a panel, of the first row and of the sums; `apart` is how many numbers one row of x lies behind the
    other. Code for each number of rows, and a branch to that of this one."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
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
            value = _everywhere(builder, loaded(builder, start, builder.mul(loop.index, I64(4)), I32))
            for w, place in zip(wide, pair, strict=True):
                builder.store(_added(builder, builder.load(place), w, value), place)
    for r, pair in enumerate(places):
        for c, place in enumerate(pair):
            there = builder.gep(to, [I64(4 * (COLUMNS * r + UNITS * c))])
            builder.store(builder.load(place), builder.bitcast(there, SUMS.as_pointer())).align = 4


def _added(builder: Any, sums: Any, w: Any, value: Any) -> Any:
    """sums + the products of both, in pairs."""
    if WIDE:  # by name: LLVM would make two instructions of it, which are sooner done one by one and later all together
        kind = ir.FunctionType(SUMS, [SUMS, SUMS, SUMS])
        return builder.asm(kind, "vpdpwssd $2, $1, $0", "=v,v,v,0", [builder.bitcast(w, SUMS), value, sums], False)
    multiply = declared(builder, "llvm.x86.avx2.pmadd.wd", SUMS, [PAIRS, PAIRS])
    return builder.add(sums, builder.call(multiply, [w, builder.bitcast(value, PAIRS)]))


def _everywhere(builder: Any, pair: Any) -> Any:
    """32 bits in every lane: a pair of sixteen."""
    none = ir.Constant(SUMS, ir.Undefined)
    first = builder.insert_element(none, pair, I32(0))
    return builder.shuffle_vector(first, none, ir.Constant(SUMS, [0] * UNITS))
