"""Counting, estimating and reading n-grams of any small text equal dictionaries and definitions."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nextword.core import jit
from nextword.ngrams import counting, estimators, hash_layout
from nextword.ngrams.counting import NgramCounts, count_ngrams
from nextword.ngrams.discounts import DISCOUNTS, MAX_COUNT
from nextword.ngrams.estimators import INTERPOLABLE, KINDS, Estimator, estimate
from nextword.ngrams.hash_layout import LANES
from nextword.ngrams.layouts import Layout, open_layout, write_layout
from nextword.ngrams.trie import NONE, Level, Trie
from tests.support.random_tries import make_random_trie
from tests.support.reference_estimators import PlainModel, count_ngrams_with_dict
from tests.support.reference_ngrams import assert_sound, log_prob

FORMS = [(kind, True) for kind in KINDS] + [(kind, False) for kind in INTERPOLABLE]
AMPLE = 1 << 40


@dataclass(frozen=True)
class Text:
    ids: tuple[int, ...]
    size: int
    boundary: int
    closed: frozenset[int] = frozenset()

    @property
    def mask(self) -> np.ndarray:
        return np.isin(np.arange(self.size), list(self.closed))


@st.composite
def texts(draw: Any, longest: int = 40) -> Text:
    """Words of few kinds; some of the vocabulary may never occur, some may never be predicted."""
    used = draw(st.integers(1, 5))
    unseen, never = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    size = used + unseen + never
    names = draw(st.permutations(range(size)))
    common = draw(st.integers(0, used - 1))  # drawn twice as often: lines and counts of all lengths
    words = st.sampled_from([*range(used), common])
    ids = [names[w] for w in draw(st.lists(words, min_size=1, max_size=longest))]
    if draw(st.booleans()):
        ids += names[:used]  # all occur
    boundary = names[draw(st.integers(0, used + unseen - 1))]
    return Text(tuple(ids), size, boundary, frozenset(names[used + unseen :]))


# All the same word; ends of lines alone; one token; lines that are empty; bytes
SAME = Text((1,) * 30, 2, 0)
ENDS = Text((0,) * 12, 1, 0)
SINGLE = Text((2,), 4, 1, frozenset({3}))
EMPTY_LINES = Text((1, 1, 2, 1, 1, 1, 2, 2, 1), 3, 1)
BYTES = Text(tuple(b"the cat sat on the mat. the cat sat. \xc3\xa4 the mat!" * 3), 257, 256)


def counted(text: Text, order: int, memory: int = AMPLE, **where: Any) -> NgramCounts:
    *_, found = count_ngrams(np.array(text.ids, np.uint16), order, text.size, text.boundary, memory, **where)
    assert isinstance(found, NgramCounts)
    return found


def estimated(text: Text, order: int, **how: Any) -> Trie:
    *_, trie = estimate(counted(text, order), Estimator(**how), text.mask)
    assert isinstance(trie, Trie)
    return trie


@contextmanager
def written(trie: Trie) -> Iterator[Layout]:
    with tempfile.TemporaryDirectory() as folder:
        write_layout(trie, Path(folder, "model"))
        yield open_layout(Path(folder, "model"))


def contexts(text: Text, order: int) -> list[tuple[int, ...]]:
    """All there are, or for many words those of the text; then one that is longer than the order can see."""
    if text.size ** (order - 1) < 400:
        found = [c for n in range(order) for c in product(range(text.size), repeat=n)]
    else:
        found = sorted({text.ids[i : i + n] for n in range(order) for i in range(len(text.ids))})
    return [*found, text.ids[: order + 2]]


def padded(rows: list[tuple[int, ...]]) -> np.ndarray:
    width = max(map(len, rows))
    return np.array([[NONE] * (width - len(row)) + list(row) for row in rows], np.uint32).reshape(len(rows), width)


def assert_sums_to_one(found: np.ndarray, text: Text, positive: bool) -> None:
    assert not np.isnan(found).any()
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)
    assert (found >= 0).all()
    assert not found[:, text.mask].any()
    assert not positive or (found[:, ~text.mask] > 0).all()


orders = st.integers(1, 4)


@pytest.mark.parametrize(("kind", "interpolated"), FORMS)
@settings(max_examples=25, deadline=None)
@given(text=texts(), order=orders, prune=st.sampled_from([(), (), (0, 1), (0, 0, 2), (0, 1, 1, 3)]))
@example(text=SAME, order=4, prune=())
@example(text=ENDS, order=3, prune=())
@example(text=ENDS, order=1, prune=())
@example(text=SINGLE, order=2, prune=())
@example(text=EMPTY_LINES, order=4, prune=(0, 1))
@example(text=BYTES, order=4, prune=())
@example(text=BYTES, order=3, prune=(0, 1, 2))
@example(text=Text((1, 2, 2, 3, 3, 3, 0), 5, 0), order=1, prune=())  # n1, n2, n3 and no n4
def test_estimators_equal_definition_and_sum_to_one(
    kind: str, interpolated: bool, text: Text, order: int, prune: tuple[int, ...]
) -> None:
    order = min(order, len(text.ids) + 1)
    how = Estimator(kind, interpolated, prune=prune, add=0.3)
    trie = estimated(text, order, kind=kind, interpolated=interpolated, prune=prune, add=0.3)
    occurs = count_ngrams_with_dict(text.ids, order, text.boundary)
    plain = PlainModel(how, order, text.size, text.boundary, text.closed, occurs)
    rows = contexts(text, order)
    with written(trie) as layout:
        found = np.exp(layout.distributions(padded(rows)))
    assert_sums_to_one(found, text, kind != "maximum-likelihood")
    expected = np.array([plain.distribution(row) for row in rows])
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)
    if kind == "maximum-likelihood":
        assert np.array_equal(found > 0, expected > 0)


@pytest.mark.parametrize(("kind", "interpolated"), FORMS)
def test_nearly_certain_word_leaves_mass_for_unseen_words(kind: str, interpolated: bool) -> None:
    """`q u` 300,000 times, and `x q u` once: there unseen words share what p(u | q) leaves them, 1 in 100,000 or so."""
    end, q, u, x = 1, 2, 3, 4
    text = Text((q, u) * 300_000 + (end, x, q, u, end, q, x, end), 6, end)
    with written(estimated(text, 3, kind=kind, interpolated=interpolated)) as layout:
        found = np.exp(layout.distributions(padded([(x, q), (u, q), (q,), ()])).astype(np.float64))
    assert_sums_to_one(found, text, kind != "maximum-likelihood")


@settings(max_examples=80, deadline=None)
@given(texts(), orders)
def test_counts_equal_dictionary(text: Text, order: int) -> None:
    order = min(order, len(text.ids) + 1)
    expected = count_ngrams_with_dict(text.ids, order, text.boundary)
    expected.update({(w,): 0 for w in range(text.size)})
    got = counted(text, order)
    levels = [Level(w, None, None, np.zeros(0), None) for w in got.words]
    for level, first in zip(levels, got.first, strict=False):
        level.first = first
    spelled = Trie(levels, text.boundary)
    found: dict[tuple[int, ...], int] = {}
    for k in range(order):
        rows = [tuple(row) for row in spelled.ngrams(k).tolist()]
        assert rows == sorted(rows)
        found.update(zip(rows, got.counts[k].tolist(), strict=True))
        if k:
            assert [row[1:] for row in rows] == [tuple(r) for r in spelled.ngrams(k - 1)[got.links[k]].tolist()]
    assert found == expected


streams = st.lists(st.integers(0, 6) | st.just(int(NONE)), max_size=60)


@pytest.mark.parametrize("kind", ["modified-kneser-ney", "good-turing", "maximum-likelihood"])
@settings(max_examples=40, deadline=None)
@given(texts(), orders, streams, st.sampled_from([(), (0, 1)]))
def test_read_equals_definition(kind: str, text: Text, order: int, stream: list[int], prune: tuple[int, ...]) -> None:
    order = min(order, len(text.ids) + 1)
    trie = estimated(text, order, kind=kind, prune=prune)
    assert_sound(trie)
    assert_reads_as_defined(trie, stream)


@settings(max_examples=100, deadline=None)
@given(
    st.builds(
        make_random_trie,
        seed=st.integers(0, 10**6),
        order=st.integers(1, 5),
        size=st.sampled_from([7, 30]),
        boundary=st.integers(0, 3),
        length=st.integers(0, 300),
        keep=st.sampled_from([1.0, 0.7]),
    ),
    streams,
)
def test_read_of_random_trie_equals_definition(trie: Trie, stream: list[int]) -> None:
    """Back-offs that no estimator gives: above 1, and after the end of a sentence."""
    assert_reads_as_defined(trie, stream)


def assert_reads_as_defined(trie: Trie, stream: list[int]) -> None:
    ids = [id if id == NONE else id % trie.size for id in stream]
    expected, rows, before = [], [], []
    for id in ids:
        rows.append(tuple(before))
        expected.append(0.0 if id == NONE else log_prob(trie, before, id))
        before = [] if id == NONE else [*before, id]
    with written(trie) as layout:
        got = layout.read(np.array(ids, np.uint32))
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
        if ids:
            each = layout.distributions(padded(rows))
            words = [(t, id) for t, id in enumerate(ids) if id != NONE]
            assert [float(each[t, id]) for t, id in words] == [float(got[t]) for t, _ in words]


@pytest.mark.parametrize("order", [1, 2, 5])
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(64 * LANES - 1, 80 * LANES))
def test_long_stream_reads_alike_in_lanes_and_parts(order: int, seed: int, length: int) -> None:
    draw = np.random.default_rng(seed)
    size = 40  # contexts with few words and with many: both kinds of table
    text = Text(tuple(np.minimum(draw.geometric(0.15, 1500), size - 1).tolist()), size, 3)
    ids = np.minimum(draw.geometric(0.12, length), size - 1).astype(np.uint32)
    ids[draw.random(length) < 0.03] = NONE
    back = order - 1
    with written(estimated(text, order, kind="witten-bell")) as layout:
        whole = layout.read(ids)
        edges = [0, *sorted(draw.integers(0, length, 9).tolist()), length]
        pieces = [layout.read(ids[max(a - back, 0) : b])[a - max(a - back, 0) :] for a, b in pairwise(edges)]
        assert max(map(len, pieces)) < 64 * LANES  # read in one lane
        assert np.array_equal(np.concatenate(pieces), whole)


@contextmanager
def small_parts(memory_floor: int = 0) -> Iterator[None]:
    """Blocks of a few entries, and a cap that may be tiny."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "MIN_BUFFER", memory_floor)
        patch.setattr(counting, "BLOCK", 16)
        for module in (counting, estimators, hash_layout):
            blocks = module.blocks
            patch.setattr(module, "blocks", lambda total, size, blocks=blocks: blocks(total, min(size, 7)))
        yield


def file_of(text: Text, order: int, how: dict[str, Any], **where: Any) -> bytes:
    found = counted(text, order, **where)
    *_, trie = estimate(found, Estimator(**how), text.mask)
    with tempfile.TemporaryDirectory() as folder:
        write_layout(trie, Path(folder, "model"), block=found.block)
        return Path(folder, "model").read_bytes()


@pytest.mark.parametrize(("kind", "interpolated"), FORMS)
@settings(max_examples=8, deadline=None)
@given(text=texts(longest=120), order=orders, rest=st.sampled_from([{}, {"prune": (0, 1)}, {"entropy": 1e-3}]))
@example(text=ENDS, order=3, rest={})
@example(text=BYTES, order=3, rest={"prune": (0, 0, 1)})
def test_counting_on_disk_writes_the_same_file(
    kind: str, interpolated: bool, text: Text, order: int, rest: dict[str, Any]
) -> None:
    order = min(order, len(text.ids) + 1)
    how = {"kind": kind, "interpolated": interpolated, **rest}
    plain = file_of(text, order, how)
    commonest = int(np.bincount(text.ids).max())
    tiny = 3 * (12 * order + 32) * (commonest + 1) + 16 * text.size
    with small_parts(), tempfile.TemporaryDirectory() as folder:
        assert file_of(text, order, how, memory=tiny, folder=Path(folder), on_disk=True) == plain
        assert not list(Path(folder).iterdir())


@settings(max_examples=30, deadline=None)
@given(texts(longest=120), orders, st.integers(2, 5))
def test_counting_with_any_thread_count_writes_the_same_file(text: Text, order: int, threads: int) -> None:
    order = min(order, len(text.ids) + 1)
    alone = file_of(text, order, {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jit, "num_cores", lambda: threads)
        for module in (counting, hash_layout):
            patch.setattr(module, "run_parallel", partial(jit.run_parallel, least=1))
        assert file_of(text, order, {}) == alone


@pytest.mark.parametrize(("kind", "interpolated"), FORMS)
@settings(max_examples=8, deadline=None)
@given(texts(), orders, st.sampled_from([1e-6, 1e-3, 0.1]))
def test_entropy_pruned_distributions_sum_to_one(
    kind: str, interpolated: bool, text: Text, order: int, entropy: float
) -> None:
    order = min(order, len(text.ids) + 1)
    trie = estimated(text, order, kind=kind, interpolated=interpolated, entropy=entropy)
    assert_sound(trie)
    with written(trie) as layout:
        found = np.exp(layout.distributions(padded(contexts(text, order))))
    assert_sums_to_one(found, text, kind != "maximum-likelihood")


@settings(max_examples=30, deadline=None)
@given(texts(longest=100), orders, st.sampled_from(KINDS), st.sampled_from([(), (0, 1)]))
def test_trie_read_from_file_writes_the_same_file(text: Text, order: int, kind: str, prune: tuple[int, ...]) -> None:
    order = min(order, len(text.ids) + 1)
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "first"), Path(folder, "second")
        write_layout(estimated(text, order, kind=kind, prune=prune), first)
        back = open_layout(first).trie()
        assert_sound(back)
        write_layout(back, second)
        assert first.read_bytes() == second.read_bytes()


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(sorted(DISCOUNTS)),
    st.lists(st.integers(0, 4) | st.integers(0, 10**9), min_size=MAX_COUNT, max_size=MAX_COUNT),
    st.integers(1, 20),
    st.booleans(),
)
def test_discounts_are_between_zero_and_count(kind: str, of: list[int], cutoff: int, interpolated: bool) -> None:
    table, note = DISCOUNTS[kind](np.array([0, *of]), cutoff, interpolated)
    assert table[0] == 0
    assert np.isfinite(table).all()
    assert all(0 <= discount <= r for r, discount in enumerate(table))
    assert interpolated or all(discount < r for r, discount in enumerate(table[1:], 1))
    assert len(table) <= MAX_COUNT
    if not of[0]:
        assert note
