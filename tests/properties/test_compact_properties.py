"""The compact layout equals the definition, word by word."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nextword.ngrams.layouts import Layout, open_layout
from nextword.ngrams.trie import NONE, Trie
from nextword.ngrams.trie_layout import (
    NOTED,
    encode_losslessly,
    high_length,
    low_bits,
    notes_length,
    put_rising,
    quantize_column,
    rising_pair,
    words_for,
    write_trie_layout,
)
from tests.support.random_tries import make_random_trie
from tests.support.reference_ngrams import assert_sound, log_prob

SIZE = 9


def compact(trie: Trie, bits: int = 0) -> Layout:
    with tempfile.TemporaryDirectory() as folder:
        write_trie_layout(trie, Path(folder, "model"), bits)
        return open_layout(Path(folder, "model"))


def expected(trie: Trie, ids: list[int]) -> list[float]:
    out = []
    for at, word in enumerate(ids):
        before = ids[:at]
        while NONE in before:
            before = before[before.index(NONE) + 1 :]
        out.append(0.0 if word == NONE else log_prob(trie, before, word))
    return out


tries = st.builds(
    make_random_trie,
    seed=st.integers(0, 10**6),
    order=st.integers(1, 5),
    size=st.just(SIZE),
    boundary=st.integers(0, 3),
    length=st.integers(0, 300),
    keep=st.sampled_from([1.0, 0.9, 0.6]),
)
streams = st.lists(st.integers(0, 3) | st.integers(0, SIZE - 1) | st.just(NONE), max_size=40)


@settings(max_examples=150, deadline=None)
@given(tries, streams)
def test_read_equals_definition(trie, ids):
    got = compact(trie).read(np.array(ids, np.uint32))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected(trie, ids), rtol=1e-5, atol=1e-5)


@settings(max_examples=80, deadline=None)
@given(tries, st.integers(0, 6).flatmap(lambda m: st.lists(st.lists(streams.filter(len), min_size=m, max_size=m))))
def test_distributions_equal_word_by_word_reading(trie, pieces):
    contexts = [[piece[0] for piece in row] for row in pieces]
    width = len(contexts[0]) if contexts else 0
    got = compact(trie).distributions(np.array(contexts, np.uint32).reshape(len(contexts), width))
    assert got.shape == (len(contexts), SIZE)
    for context, row in zip(contexts, got, strict=True):
        each = [expected(trie, [*context, word])[-1] for word in range(SIZE)]
        np.testing.assert_allclose(row, each, rtol=1e-5, atol=1e-5)


@settings(max_examples=80, deadline=None)
@given(tries)
def test_trie_of_lossless_layout_equals_original(trie):
    back = compact(trie).trie()
    assert_sound(back)
    assert (back.order, back.size, back.boundary) == (trie.order, trie.size, trie.boundary)
    for level, other in zip(trie.levels, back.levels, strict=True):
        for name in ("words", "links", "first", "log_probs", "log_backoffs"):
            a, b = getattr(level, name), getattr(other, name)
            assert (a is None) == (b is None), name
            assert a is None or (a.dtype == b.dtype and np.array_equal(a, b)), name


floats = st.floats(width=32, allow_nan=False, max_value=2.0)
columns = st.lists(floats | st.sampled_from([0.0, -np.inf, -1.5]), max_size=60).map(lambda v: np.array(v, np.float32))


@settings(max_examples=300, deadline=None)
@given(columns)
def test_lossless_column_round_trips(values):
    column = encode_losslessly(values)
    codes = column.encode(values)
    assert not len(codes) or int(codes.max()) < 1 << column.bits
    if column.table is None:
        back = (codes + np.uint32(column.low)).view(np.float32)
    else:
        back = column.table[codes]
    assert np.array_equal(back, values)


@settings(max_examples=300, deadline=None)
@given(columns, st.integers(2, 5))
def test_quantized_column_maps_to_nearest_value_and_keeps_special_values(values, bits):
    column = quantize_column(values, bits)
    assert column.table is not None
    assert len(column.table) <= 1 << bits
    back = column.table[column.encode(values)]
    special = (values == 0) | np.isinf(values)
    assert np.array_equal(back[special], values[special])
    assert not np.isinf(back[~special]).any()
    if len(np.unique(values)) <= 1 << bits:
        assert np.array_equal(back, values)
    finite = column.table[np.isfinite(column.table)].astype(np.float64)
    for value, got in zip(values[~special].astype(np.float64), back[~special], strict=True):
        assert abs(value - got) <= np.abs(finite - value).min() * (1 + 1e-9)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 3, 70, 1000]), min_size=1, max_size=300), st.integers(0, 130))
def test_rising_pairs_equal_packed_numbers(steps, offset):
    numbers = np.cumsum([0, *steps]).astype(np.uint32)
    count, largest = len(numbers), int(numbers[-1])
    width = low_bits(count, largest)
    low = offset
    high = low + width * count
    packed = np.zeros(words_for(high + high_length(count, largest)), np.uint64)
    notes = np.zeros(notes_length(count), np.uint32)
    half = count // 2
    put_rising(packed, high, low, width, notes, 0, numbers[:half])
    put_rising(packed, high, low, width, notes, half, numbers[half:])
    pairs = [rising_pair(packed, high, low, width, notes[i >> NOTED], i) for i in range(count - 1)]
    assert pairs == list(zip(numbers[:-1].tolist(), numbers[1:].tolist(), strict=True))
