"""Products of four rows at once give equal sums with every instruction set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nextword.core.jit import numba_jit
from nextword.kernels import cpu_int8 as dots

WIDTH, APART = 128, 3


def make_bytes(rows: int) -> np.ndarray:
    return np.random.default_rng(3).integers(-127, 128, (rows, WIDTH), np.int8)


@pytest.mark.parametrize("instructions", [True, False])
def test_byte_products_equal_integer_products(instructions: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if instructions and not dots.has_byte_products():
        pytest.skip("this machine has no products of bytes")
    monkeypatch.setattr(dots, "has_byte_products", lambda: instructions)
    four_bytes = dots.four_bytes

    @numba_jit(nogil=True)  # compiled here and not cached
    def products(address: int, hi: Any, lo: Any, at: int, sums: Any) -> None:
        four_bytes(address, WIDTH, 1, APART, hi, lo, at, sums)

    matrix = make_bytes(2 + 3 * APART)
    matrix[1] = -127  # the largest possible sums
    halves = np.random.default_rng(4).integers(0, 256, (2, 5 + WIDTH), np.uint8)
    halves[0, 5:] = 255
    sums = np.zeros(8, np.int32)
    products(matrix.ctypes.data, halves[0], halves[1], 5, sums)
    rows = matrix[1::APART].astype(np.int64)
    np.testing.assert_array_equal(sums, np.concatenate([rows @ half[5:].astype(np.int64) for half in halves]))


def test_float_products_equal_numpy() -> None:
    four_floats = dots.four_floats

    @numba_jit(nogil=True)
    def products(address: int, x: Any, sums: Any) -> None:
        four_floats(address, WIDTH, 1, APART, x, 5, sums)

    generator = np.random.default_rng(3)
    matrix = generator.normal(size=(2 + 3 * APART, WIDTH)).astype(np.float32)
    x, sums = generator.normal(size=5 + WIDTH).astype(np.float32), np.zeros(4, np.float32)
    products(matrix.ctypes.data, x, sums)
    np.testing.assert_allclose(sums, matrix[1::APART] @ x[5:], rtol=1e-4, atol=1e-4)
