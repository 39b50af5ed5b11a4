from pathlib import Path

import numpy as np
import pytest

from nextword.core.errors import DataError, InvalidSetting
from nextword.ngrams.layouts import open_layout
from nextword.ngrams.trie import Level, Trie
from nextword.ngrams.trie_layout import CHUNK, TrieLayout, encode_losslessly, quantize_column, read, write_trie_layout
from tests.support.random_tries import make_random_trie

A, B, C, END = 0, 1, 2, 3


def u4(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.uint32)


def f4(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def small_trie() -> Trie:
    """a b, a c, b c, ⟨s⟩ a; a b c. After b only c; b c is a context without words but with a back-off."""
    return Trie(
        [
            Level(u4(A, B, C, END), None, u4(0, 2, 3, 3, 4), f4(-1, -2, -3, -4), f4(-0.5, -0.25, 0, -0.125)),
            Level(u4(B, C, C, A), u4(B, C, C, A), u4(0, 1, 1, 1, 1), f4(-0.1, -0.2, -0.3, -0.4), f4(-8, -16, -32, -64)),
            Level(u4(C), u4(2), None, f4(-0.01), None),
        ],
        END,
        {"estimator": "by hand"},
    )


def write_and_open(trie: Trie, folder: Path, bits: int = 0) -> TrieLayout:
    write_trie_layout(trie, folder / "model", bits)
    model = open_layout(folder / "model")
    assert isinstance(model, TrieLayout)
    return model


def test_read_equals_hand_computation(tmp_path: Path) -> None:
    model = write_and_open(small_trie(), tmp_path)
    ids = u4(A, B, C, A, END, A, END, 0xFFFFFFFF, C, A)
    expected = [
        -1,
        -0.1,  # a b
        -0.01,  # a b c
        -32 + 0 + -1,  # b c is a context without words; the back-off of c is 0; a
        -0.5 + -4,  # end after a
        -0.4,  # ⟨s⟩ a
        -64 + -0.5 + -4,  # end after ⟨s⟩ a
        0,  # resets the context
        -3,
        0 + -1,
    ]
    assert np.allclose(model.read(ids), expected, atol=1e-6)
    assert (model.order, model.size, model.boundary, model.entries) == (3, 4, END, [4, 4, 1])
    assert model.facts["estimator"] == "by hand"


def test_distributions_equal_hand_computation(tmp_path: Path) -> None:
    model = write_and_open(small_trie(), tmp_path)
    actual = model.distributions(u4(0xFFFFFFFF, A, A, B, A, END).reshape(3, 2))
    after_a = [-0.5 - 1, -0.1, -0.2, -0.5 - 4]
    after_a_b = [-8 - 0.25 - 1, -8 - 0.25 - 2, -0.01, -8 - 0.25 - 4]
    after_begin = [-0.4, -0.125 - 2, -0.125 - 3, -0.125 - 4]
    assert np.allclose(actual, [after_a, after_a_b, after_begin], atol=1e-6)
    assert model.distributions(np.zeros((2, 0), np.uint32)).tolist() == [[-1, -2, -3, -4]] * 2


def test_stream_read_in_parts_matches_reading_at_once(tmp_path: Path) -> None:
    trie = make_random_trie(seed=1, order=4, size=50, boundary=0, length=4000)
    model = write_and_open(trie, tmp_path)
    ids = np.ascontiguousarray(trie.ngrams(3)[:500].ravel())  # all stored 4-grams: long contexts everywhere
    parts = np.zeros(len(ids), np.float32)
    for begin in range(0, len(ids), 3):
        read(begin, min(begin + 3, len(ids)), *model._arrays, ids, model.boundary, parts)
    assert np.array_equal(parts, model.read(ids))


def test_trie_larger_than_a_chunk_is_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nextword.ngrams.trie_layout.CHUNK", 100)
    trie = make_random_trie(seed=3, order=4, size=300, boundary=0, length=3000)
    assert len(trie.levels[3]) > 300
    restored = write_and_open(trie, tmp_path).trie()
    for level, other in zip(trie.levels, restored.levels, strict=True):
        for name, array in vars(level).items():
            assert array is None or np.array_equal(array, getattr(other, name)), name


def test_fewer_bits_make_smaller_files_and_larger_errors(tmp_path: Path) -> None:
    trie = make_random_trie(seed=4, order=3, size=2000, boundary=0, length=20_000)
    sizes, errors = [], []
    for bits in (0, 16, 8, 4, 2):
        restored = write_and_open(trie, tmp_path, bits).trie()
        sizes.append((tmp_path / "model").stat().st_size)
        total = 0.0
        for level, other in zip(trie.levels, restored.levels, strict=True):
            assert np.array_equal(level.words, other.words)
            pairs = [(level.log_probs, other.log_probs), (level.log_backoffs, other.log_backoffs)]
            for a, b in pairs:
                if a is None:
                    continue
                assert np.array_equal(np.isinf(a), np.isinf(b))
                assert (b[a == 0] == 0).all()
                finite = np.isfinite(a)
                total += float(np.square(a[finite] - b[finite]).sum())
        errors.append(total)
    assert sizes[2:] == sorted(sizes[2:], reverse=True)
    assert sizes[2] < 0.6 * sizes[0]
    assert errors[0] == 0
    assert errors == sorted(errors)


def test_quantization_beats_equally_filled_bins() -> None:
    draw = np.random.default_rng(5)
    values = -draw.gamma(2.0, 2.0, 50_000).astype(np.float32)
    column = quantize_column(values, 8)
    assert column.table is not None
    errors = np.abs(column.table[column.encode(values)] - values)
    bin_errors = np.concatenate([np.abs(part - part.mean()) for part in np.array_split(np.sort(values), 256)])
    assert np.square(errors).mean() < np.square(bin_errors).mean() / 4
    assert errors.max() < bin_errors.max() / 4


def test_encode_losslessly_uses_a_table_for_few_values_and_a_range_for_many() -> None:
    draw = np.random.default_rng(6)
    few = np.log(draw.integers(1, 101, 3 * CHUNK)).astype(np.float32)
    assert encode_losslessly(few).bits == 7
    assert encode_losslessly(few).table is not None
    many = -draw.uniform(1, 16, 3 * CHUNK).astype(np.float32)
    assert encode_losslessly(many).table is None
    assert encode_losslessly(many).bits == 25  # two of the exponent, 23 of the fraction
    many[0] = 0
    assert encode_losslessly(many).bits == 31  # 0 is encoded with the negative numbers


@pytest.mark.parametrize("bits", [-1, 1, 17])
def test_bits_out_of_range_are_rejected(bits: int, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="bits"):
        write_trie_layout(small_trie(), tmp_path / "model", bits)
    assert not (tmp_path / "model").exists()


def test_truncated_file_is_rejected(tmp_path: Path) -> None:
    write_trie_layout(small_trie(), tmp_path / "model")
    content = (tmp_path / "model").read_bytes()
    (tmp_path / "model").write_bytes(content[:-100])
    with pytest.raises(DataError, match="model"):
        open_layout(tmp_path / "model")


def test_ids_outside_the_vocabulary_are_rejected(tmp_path: Path) -> None:
    model = write_and_open(small_trie(), tmp_path)
    with pytest.raises(DataError, match="Id 4"):
        model.read(u4(A, 4))
    with pytest.raises(DataError, match="Id 9"):
        model.distributions(u4(A, 9).reshape(1, 2))
