"""Context windows with noise words, and co-occurrence counts, against slow references."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nextword.batching.token_stream import Stream
from nextword.batching.word_vectors import Contexts, build_word_sampler, count_cells, count_cooccurrences
from nextword.core.errors import DataError, InvalidSetting
from nextword.core.types import IGNORE, Vocabulary

WORDS = Vocabulary(50, 1, {"<unk>": 0, "<eos>": 1}, 1)


def text(size: int = 3000) -> np.ndarray:
    draw = np.random.default_rng(5)
    ids = 2 + draw.zipf(1.4, size) % 48
    ids[draw.random(size) < 0.1] = 1
    ids[draw.random(size) < 0.05] = 0
    return ids.astype(np.uint16)


def test_windows_stay_within_their_size_and_line() -> None:
    ids = np.array([2, 3, 1, 4, 0, 5, 6, 7, 1, 8])
    layout = Contexts(words=100, window=2, subsample=0, negatives=3)
    draws = build_word_sampler(ids, WORDS, 0, 0.75)
    contexts: dict[int, set[tuple[int, ...]]] = {}
    for seed in range(60):
        batch = layout.batch(ids, draws, seed, 0)
        assert 8 not in batch.targets[:, 0]  # alone on its line
        for row, targets in zip(batch.inputs.ids.tolist(), batch.targets.tolist(), strict=True):
            contexts.setdefault(targets[0], set()).add(tuple(sorted(id for id in row if id >= 0)))
    assert contexts[2] == {(3,)}
    assert contexts[4] == {(5,), (5, 6)}  # the unknown word is removed, which brings 6 closer
    assert contexts[6] == {(5, 7), (4, 5, 7)}
    assert contexts[7] == {(6,), (5, 6)}


def test_batch_depends_on_seed_and_step_alone() -> None:
    ids = text()
    layout, draws = Contexts(words=512), build_word_sampler(ids, WORDS, 1e-2, 0.75)
    batches = layout.batches(ids, draws, 3, 4)
    for k in (4, 5, 6, 7):  # across the end of an epoch
        batch, expected = next(batches), layout.batch(ids, draws, 3, k)
        assert batch.inputs.ids.equal(expected.inputs.ids)
        assert batch.targets.equal(expected.targets)
        assert batch.epoch == k // 6
    assert not layout.batch(ids, draws, 3, 0).targets.equal(layout.batch(ids, draws, 3, 6).targets)


def test_frequent_words_are_dropped_with_their_probability() -> None:
    ids = text(60_000)
    draws, counts = build_word_sampler(ids, WORDS, 1e-2, 0.75), np.bincount(ids, minlength=50)
    frequency = counts / counts[2:].sum()
    layout = Contexts(words=len(ids), subsample=1e-2)
    centers = np.bincount(layout.batch(ids, draws, 0, 0).targets[:, 0], minlength=50)
    common = int(np.argmax(counts[2:])) + 2
    expected = min(1.0, np.sqrt(1e-2 / frequency[common]) + 1e-2 / frequency[common])
    assert centers[common] / counts[common] == pytest.approx(expected, rel=0.08)
    assert not centers[:2].any()
    without = layout.__class__(words=len(ids), subsample=0)
    unsampled = np.bincount(
        without.batch(ids, build_word_sampler(ids, WORDS, 0, 0.75), 0, 0).targets[:, 0], minlength=50
    )
    assert unsampled[common] > 0.9 * counts[common]


def test_noise_follows_powered_counts_and_excludes_the_target() -> None:
    ids = text(40_000)
    counts = np.bincount(ids, minlength=50).astype(float)
    counts[:2] = 0
    draws = build_word_sampler(ids, WORDS, 0, 0.75)
    targets = Contexts(words=len(ids), subsample=0, negatives=20).batch(ids, draws, 1, 0).targets.numpy()
    assert not (targets[:, 1:] == targets[:, :1]).any()
    rare = targets[targets[:, 0] == int(np.argsort(counts)[-20])][:, 1:]
    drawn = np.bincount(rare[rare != IGNORE], minlength=50) / np.count_nonzero(rare != IGNORE)
    noise = counts**0.75
    noise[int(np.argsort(counts)[-20])] = 0
    np.testing.assert_allclose(drawn, noise / noise.sum(), atol=0.012)


@pytest.mark.parametrize(
    ("key", "value"),
    [("window", 0), ("negatives", 0), ("subsample", -1.0)],
)
def test_invalid_settings_are_rejected(key: str, value: float) -> None:
    with pytest.raises(InvalidSetting) as error:
        Contexts(**{key: value})  # type: ignore[arg-type]
    assert (error.value.key, error.value.value) == (f"batches.{key}", value)


def test_text_of_one_word_is_rejected() -> None:
    with pytest.raises(DataError):
        build_word_sampler(np.array([2, 2, 0, 1, 2]), WORDS, 1e-3, 0.75)


# ------------------------------------------------------------------------------------------------ co-occurrences


def count_naively(ids: np.ndarray, window: int) -> dict[tuple[int, int], float]:
    counts: dict[tuple[int, int], float] = {}
    line: list[int] = []
    for id in [*ids.tolist(), 1]:
        if id != 1:
            line.append(id)
            continue
        for i, a in enumerate(line):
            for j in range(max(0, i - window), i):
                if a > 1 and line[j] > 1:
                    for pair in ((a, line[j]), (line[j], a)):
                        counts[pair] = counts.get(pair, 0.0) + 1 / (i - j)
        line = []
    return counts


@pytest.mark.parametrize("window", [1, 4, 15])
def test_cells_match_a_naive_count(window: int) -> None:
    cells, expected = count_cells(text(), WORDS, window), count_naively(text(), window)
    assert {tuple(pair) for pair in cells.pairs.tolist()} == expected.keys()
    assert len(cells) == len(expected)
    for pair, count in zip(cells.pairs.tolist(), cells.counts.tolist(), strict=True):
        assert count == pytest.approx(expected[pair[0], pair[1]], rel=1e-5)


def test_hash_table_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """More cells than the initial capacity."""
    size = 70_000
    ids = 2 + np.random.default_rng(0).permutation(size)
    cells = count_cells(ids, Vocabulary(size + 2, 1, {"<unk>": 0, "<eos>": 1}, 1), 1)
    assert len(cells) == 2 * (size - 1)
    assert (cells.counts == 1).all()


def test_cells_are_cached_next_to_the_text(tmp_path: Path) -> None:
    from dataclasses import replace

    stream = replace(Stream.from_ids(text()), folder=tmp_path)
    first, files = count_cooccurrences(stream, WORDS, 3), list(tmp_path.iterdir())
    assert len(files) == 1
    empty = replace(stream, ids=stream.ids[:0])  # read from the cache
    cached = count_cooccurrences(empty, WORDS, 3)
    np.testing.assert_array_equal(first.pairs, cached.pairs)
    np.testing.assert_array_equal(first.counts, cached.counts)
    with pytest.raises(DataError):
        count_cooccurrences(empty, WORDS, 4)
    with pytest.raises(InvalidSetting):
        count_cooccurrences(stream, WORDS, 0)
