"""A whole Transformer step on a CPU, for a few tokens, made of matrix products that read every weight once.

Reference: DecoderLM.forward_cached (tests/unit/kernels/test_cpu_decode.py); used by cpu_decode.py. A few
tokens through a whole stack of blocks, in float32 or int8. Such a step is bound by reading every weight once, and the
many small operations between the products should not matter. So threads go through the stack together, each with its
share of every matrix's rows (and of the heads), and wait for each other only where one needs what another has computed:

    norm, join │ store k, v │ attend │ out, add │ norm, wide, gelu │ narrow, add │ … │ norm, readout │ log softmax

Every thread computes the norms for itself, which is cheaper than waiting. Weights are given by address, a row of
`COLUMNS` numbers per block; 0 stands for a missing weight.
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
from numba import carray, types

from nextword.core.jit import OPTIONS, numba_jit
from nextword.kernels.cpu_int8 import ROWS, arrive, arrived, four_bytes, four_floats, place, power_of_two, tile_floats

# of a block: a norm is (weight, bias), a matrix (weight, scale, sums of its rows, bias)
NORM1, JOIN, OUT, NORM2, WIDE, NARROW_STEP, KEYS, VALUES, BAND, COLUMNS = 0, 2, 6, 10, 12, 16, 20, 21, 22, 23
# of the end: its norm and its matrix
LAST_NORM, LAST = 0, 2
# of the sizes
BATCH, WIDTH, HEADS, INNER, WORDS, SLOTS, AFTER, BITS = range(8)

fast: Any = numba_jit(**OPTIONS, fastmath=True)
yield_core: Any = (
    types.ExternalFunction("sched_yield", types.int32()) if hasattr(os, "sched_yield") else fast(lambda: 0)
)


exact: Any = numba_jit(**OPTIONS)  # without fastmath, which would merge the two parts of ln 2


@exact
def exponential(x: np.float32) -> np.float32:
    """eˣ = 2ⁿ · e^f with |f| ≤ ln 2 / 2, by a polynomial, to the last bits; loops over it become vector code.

    (Numba would call a function for each number.)
    """
    x = min(max(x, np.float32(-87.0)), np.float32(88.0))
    n = np.float32(math.floor(x * np.float32(1.4426950408889634) + np.float32(0.5)))
    f = x - n * np.float32(0.693359375)
    f = f + n * np.float32(2.12194440e-4)
    y = np.float32(1.9875691500e-4)
    y = y * f + np.float32(1.3981999507e-3)
    y = y * f + np.float32(8.3334519073e-3)
    y = y * f + np.float32(4.1665795894e-2)
    y = y * f + np.float32(1.6666665459e-1)
    y = y * f + np.float32(0.5)
    y = y * f * f + f + np.float32(1.0)
    return y * power_of_two(np.int32(n))


@fast
def meet(gate: np.ndarray, turn: int, threads: int) -> int:
    """Wait until all threads are here for the `turn`-th time; returns how often they have met."""
    arrive(gate)
    spins = 0
    while arrived(gate) < (turn + 1) * threads:
        spins += 1
        if spins & 1023 == 0:  # another thread may need this core to arrive at all
            yield_core()
    return turn + 1


@fast
def layer_norm(x: np.ndarray, width: int, weight: int, bias: int, epsilon: float, out: np.ndarray) -> None:
    """LayerNorm of each row of x; a copy if there is no weight."""
    w = carray(place(weight), width, np.float32)
    b = carray(place(bias), width, np.float32)
    for r in range(len(x)):
        if weight == 0:
            for j in range(width):
                out[r, j] = x[r, j]
            continue
        mean = np.float32(0)
        for j in range(width):
            mean += x[r, j]
        mean /= np.float32(width)
        variance = np.float32(0)
        for j in range(width):
            variance += (x[r, j] - mean) * (x[r, j] - mean)
        scale = np.float32(1) / np.float32(math.sqrt(variance / np.float32(width) + np.float32(epsilon)))
        if bias == 0:
            for j in range(width):
                out[r, j] = (x[r, j] - mean) * scale * w[j]
        else:
            for j in range(width):
                out[r, j] = (x[r, j] - mean) * scale * w[j] + b[j]


@fast
def quantize_halves(x: np.ndarray, width: int, hi: np.ndarray, lo: np.ndarray, scales: np.ndarray) -> None:
    """x ≈ scale · (256 hi + lo − 32768): sixteen bits in two bytes, with a scale per row."""
    for r in range(len(x)):
        most = np.float32(1e-30)
        for j in range(width):
            most = max(most, abs(x[r, j]))
        up = np.float32(32767) / most
        for j in range(width):
            whole = np.int32(x[r, j] * up + np.float32(32768.5))
            hi[r, j] = whole >> 8
            lo[r, j] = whole & 255
        scales[r] = most / np.float32(32767)


@fast
def multiply(matrix, rows, width, thread, threads, x, own, bits, out):
    """out[r, i] = Σ_j W[i, j] x[r, j] + b[i], for this thread's share of the i; four distant rows at a time."""
    begin, end = rows * thread // threads, rows * (thread + 1) // threads
    hi, lo, scales, sums, counts = own
    weight, bias = matrix[0], carray(place(matrix[3]), rows, np.float32)
    scale = carray(place(matrix[1]), rows, np.float32)
    total = carray(place(matrix[2]), rows, np.int32)
    if bits:
        quantize_halves(x, width, hi, lo, scales)
    apart = (end - begin) // ROWS
    for i in range(apart + 1):
        first, step = begin + i, apart
        if i == apart:  # if four do not divide them: the last four once more
            if (end - begin) % ROWS == 0:
                break
            first, step = end - ROWS, 1
        tiles = 0 if bits else len(x) // ROWS
        for tile in range(tiles):
            r = ROWS * tile
            tile_floats(weight, width, first, step, x, r * x.shape[1], x.shape[1], sums)
            for k in range(ROWS * ROWS):
                out[r + k // ROWS, first + k % ROWS * step] = sums[k]
        for r in range(ROWS * tiles, len(x)):
            if bits:
                four_bytes(weight, width, first, step, hi, lo, r * hi.shape[1], counts)
                for k in range(ROWS):
                    at = first + k * step
                    whole = 256 * np.int64(counts[k]) + counts[ROWS + k] - 32768 * np.int64(total[at])
                    out[r, at] = np.float32(whole) * scale[at] * scales[r]
            else:
                four_floats(weight, width, first, step, x, r * x.shape[1], sums)
                for k in range(ROWS):
                    out[r, first + k * step] = sums[k]
    if matrix[3] != 0:
        for r in range(len(x)):
            for i in range(begin, end):
                out[r, i] += bias[i]


def multiply_buffers(rows: int, width: int) -> tuple[np.ndarray, ...]:
    """A thread's buffers for `multiply`: bytes of x and their scales, sums of floats, sums of bytes."""
    halved = np.empty((2, rows, width), np.uint8)
    return halved[0], halved[1], np.empty(rows, np.float32), np.empty(ROWS**2, np.float32), np.empty(2 * ROWS, np.int32)


@fast
def store_keys_values(block, where, sizes, thread, threads, joint):
    """Store this thread's share of keys and values in the slots that `where` names."""
    batch, width, heads, slots = sizes[BATCH], sizes[WIDTH], sizes[HEADS], sizes[SLOTS]
    each = width // heads
    keys = carray(place(block[KEYS]), (batch, heads, slots, each), np.float32)
    values = carray(place(block[VALUES]), (batch, heads, slots, each), np.float32)
    for item in range(thread, len(joint) * heads, threads):
        r, head = item // heads, item % heads
        for j in range(each):
            keys[where[0, r], head, where[1, r], j] = joint[r, width + head * each + j]
            values[where[0, r], head, where[1, r], j] = joint[r, 2 * width + head * each + j]


@fast
def attend(block, where, sizes, thread, threads, joint, scores, out):
    """Attention of this thread's share of tokens and heads to their text, up to themselves.

    A text's keys are read in four distant places at once, and so are its values, for the same reason as weights are.
    `scores` has room for all slots and, after them, for one head's result.
    """
    batch, width, heads, slots, band = sizes[BATCH], sizes[WIDTH], sizes[HEADS], sizes[SLOTS], block[BAND]
    each = width // heads
    all_values = carray(place(block[VALUES]), (batch, heads, slots, each), np.float32)
    root = np.float32(1 / math.sqrt(each))
    result = scores[slots:]
    for item in range(thread, len(joint) * heads, threads):
        r, head = item // heads, item % heads
        now, at = where[1, r], head * each
        first = max(0, now + 1 - band) if band else 0
        count = now + 1 - first
        apart = count // ROWS
        keys = block[KEYS] + 4 * each * ((where[0, r] * heads + head) * slots + first)
        for s in range(apart):
            four_floats(keys, each, s, apart, joint, r * joint.shape[1] + at, result)
            for k in range(ROWS):
                scores[s + k * apart] = result[k]
        for s in range(ROWS * apart, count):
            four_floats(keys, each, s, 0, joint, r * joint.shape[1] + at, result)
            scores[s] = result[0]
        most, total = np.float32(-3e38), np.float32(0)
        for s in range(count):
            most = max(most, scores[s])
        for s in range(count):
            scores[s] = exponential(root * (scores[s] - most))
            total += scores[s]
        for j in range(each):
            result[j] = np.float32(0)
        values = all_values[where[0, r], head, first:]
        for s in range(apart):
            s1, s2, s3 = s + apart, s + 2 * apart, s + 3 * apart
            p0, p1, p2, p3 = scores[s], scores[s1], scores[s2], scores[s3]
            for j in range(each):
                result[j] += p0 * values[s, j] + p1 * values[s1, j] + p2 * values[s2, j] + p3 * values[s3, j]
        for s in range(ROWS * apart, count):
            for j in range(each):
                result[j] += scores[s] * values[s, j]
        for j in range(each):
            out[r, at + j] = result[j] / total


@fast
def gelu(u: np.ndarray, begin: int, end: int) -> None:
    """½ x (1 + tanh y) = x / (1 + e⁻²ʸ) with y = √(2/π) (x + 0.044715 x³)."""
    for r in range(len(u)):
        row = u[r, begin:end]
        for i in range(len(row)):
            x = row[i]
            exponent = np.float32(-1.5957691216057308) * (x + np.float32(0.044715) * x * x * x)
            row[i] = x / (np.float32(1) + exponential(exponent))


@fast
def log_softmax(z: np.ndarray, thread: int, threads: int, gate: np.ndarray, turn: int, parts: np.ndarray) -> int:
    """In place, each thread for its share of the words; `parts` (threads, 2, N) holds maxima and sums."""
    words = z.shape[1]
    begin, end = words * thread // threads, words * (thread + 1) // threads
    for r in range(len(z)):
        most, total = np.float32(-3e38), np.float32(0)
        for i in range(begin, end):
            most = max(most, z[r, i])
        for i in range(begin, end):
            total += exponential(z[r, i] - most)
        parts[thread, 0, r], parts[thread, 1, r] = most, total
    turn = meet(gate, turn, threads)
    for r in range(len(z)):
        most, total = np.float32(-3e38), np.float32(0)
        for t in range(threads):
            most = max(most, parts[t, 0, r])
        for t in range(threads):
            total += parts[t, 1, r] * np.float32(math.exp(parts[t, 0, r] - most))
        down = most + np.float32(math.log(total))
        for i in range(begin, end):
            z[r, i] -= down
    return turn


@numba_jit(**OPTIONS, fastmath=True)
def walk(
    thread: int,
    threads: int,
    gate: np.ndarray,  # (1,) zero
    blocks: np.ndarray,  # (layers, COLUMNS) addresses
    end: np.ndarray,  # addresses
    sizes: np.ndarray,
    epsilon: float,
    where: np.ndarray,  # (2, N) of each token: its text, and its position
    x: np.ndarray,  # (N, width) embeddings, then the residual sum
    joint: np.ndarray,  # (N, 3 · width), shared as the next three
    looked: np.ndarray,  # (N, width)
    wide: np.ndarray,  # (N, inner)
    z: np.ndarray,  # (N, words): log p; empty if not wanted
    parts: np.ndarray,
    h: np.ndarray,  # (N, width), this thread's own, as are the following
    own: tuple[np.ndarray, ...],
    scores: np.ndarray,
) -> None:
    width, inner, words, after, bits = sizes[WIDTH], sizes[INNER], sizes[WORDS], sizes[AFTER], sizes[BITS]
    begin, stop = width * thread // threads, width * (thread + 1) // threads
    turn = 0
    base = h if after else x  # what is added to: the residual sum, or its norm
    for n in range(len(blocks)):
        block = blocks[n]
        layer_norm(x, width, block[NORM1], block[NORM1 + 1], epsilon, h)
        multiply(block[JOIN:OUT], 3 * width, width, thread, threads, h, own, bits, joint)
        turn = meet(gate, turn, threads)
        store_keys_values(block, where, sizes, thread, threads, joint)
        turn = meet(gate, turn, threads)
        attend(block, where, sizes, thread, threads, joint, scores, looked)
        turn = meet(gate, turn, threads)
        # written to a buffer that nobody reads now
        multiply(block[OUT:NORM2], width, width, thread, threads, looked, own, bits, joint)
        for r in range(len(x)):
            for i in range(begin, stop):
                x[r, i] = base[r, i] + joint[r, i]
        turn = meet(gate, turn, threads)
        layer_norm(x, width, block[NORM2], block[NORM2 + 1], epsilon, h)
        multiply(block[WIDE:NARROW_STEP], inner, width, thread, threads, h, own, bits, wide)
        gelu(wide, inner * thread // threads, inner * (thread + 1) // threads)
        turn = meet(gate, turn, threads)
        multiply(block[NARROW_STEP:KEYS], width, inner, thread, threads, wide, own, bits, joint)
        for r in range(len(x)):
            for i in range(begin, stop):
                x[r, i] = base[r, i] + joint[r, i]
        turn = meet(gate, turn, threads)
    if len(z) == 0:
        return
    layer_norm(x, width, end[LAST_NORM], end[LAST_NORM + 1], epsilon, h)
    multiply(end[LAST:], words, width, thread, threads, h, own, bits, z)
    log_softmax(z, thread, threads, gate, turn, parts)
