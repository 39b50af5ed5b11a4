"""Products of a matrix of bytes with many rows at a time: small tiles whose sums never leave the registers.

A float product does 16 multiplications in a cycle on a core with AVX2. `vpmaddwd` does 32, of numbers in sixteen bits,
and adds them up in pairs in 32; so weights of eight bits, widened when they are loaded, go with an x of up to sixteen:

    sums[r, c] = Σ_k q[c, k] · x[r, k]        whole numbers, exact        r one of 1 … 6 rows, c one of 16 columns

    q as it lies    panel │ pair of k │ 16 columns │ 2         16 bytes are 8 columns of a pair: one load, one vector
    x as it lies    row │ pair of k │ 2                        4 bytes are a pair: one load, the same in every lane

An x of `limit(width)` at most keeps the sums within 32 bits, whatever the weights.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils

from nextword.layers.dots import I8, I32, I64, declared, intrinsic, loaded

UNITS = 8  # sums in a vector
COLUMNS = 2 * UNITS  # of a panel
ROWS = 6  # of a tile, at most: 12 sums, 2 vectors of weights, 1 of x and 1 of products are held in 16 registers
MOST = 127  # of a weight
SUMS, PAIRS, BYTES = ir.VectorType(I32, UNITS), ir.VectorType(ir.IntType(16), COLUMNS), ir.VectorType(I8, COLUMNS)


@cache
def has_pair_products() -> bool:
    """Whether this machine multiplies and adds pairs of sixteen bits, sixteen at a time."""
    return bool(binding.get_host_cpu_features().get("avx2"))


def limit(width: int) -> int:
    """How large the numbers of x may be, so that no sum of so many products overflows."""
    return min((1 << 15) - 1, ((1 << 31) - 1) // (MOST * max(width, 1)))


def tile_of(rows: int) -> Any:
    """tile(panel, pairs, x, apart, sums): addresses of a panel, of the first row and of the sums; `apart` is how many
    numbers one row of x lies behind the other."""

    @intrinsic
    def tile(typingctx: Any, panel: Any, pairs: Any, x: Any, apart: Any, sums: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            weights, count, first, step, out = args
            q, to = builder.inttoptr(weights, I8.as_pointer()), builder.inttoptr(out, I32.as_pointer())
            base = builder.inttoptr(first, I8.as_pointer())
            starts = [builder.gep(base, [builder.mul(step, I64(2 * r))]) for r in range(rows)]
            places = [[cgutils.alloca_once(builder, SUMS) for _ in range(2)] for _ in starts]
            for place in (one for pair in places for one in pair):
                builder.store(ir.Constant(SUMS, [0] * UNITS), place)
            multiply = declared(builder, "llvm.x86.avx2.pmadd.wd", SUMS, [PAIRS, PAIRS])
            with cgutils.for_range(builder, count) as loop:
                at = builder.mul(loop.index, I64(2 * COLUMNS))
                halves = [loaded(builder, q, builder.add(at, I64(COLUMNS * c)), BYTES) for c in range(2)]
                wide = [builder.sext(half, PAIRS) for half in halves]
                for start, pair in zip(starts, places, strict=True):
                    value = _everywhere(builder, loaded(builder, start, builder.mul(loop.index, I64(4)), I32))
                    for w, place in zip(wide, pair, strict=True):
                        more = builder.call(multiply, [w, value])
                        builder.store(builder.add(builder.load(place), more), place)
            for r, pair in enumerate(places):
                for c, place in enumerate(pair):
                    there = builder.bitcast(builder.gep(to, [I64(COLUMNS * r + UNITS * c)]), SUMS.as_pointer())
                    builder.store(builder.load(place), there).align = 4
            return context.get_dummy_value()

        n = types.int64
        return types.void(n, n, n, n, n), codegen

    return tile


def _everywhere(builder: Any, pair: Any) -> Any:
    """32 bits in every lane, seen as pairs of sixteen."""
    none = ir.Constant(SUMS, ir.Undefined)
    first = builder.insert_element(none, pair, I32(0))
    return builder.bitcast(builder.shuffle_vector(first, none, ir.Constant(SUMS, [0] * UNITS)), PAIRS)
