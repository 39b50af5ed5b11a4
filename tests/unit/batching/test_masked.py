"""Masking of tokens: fractions, whole words and n-grams, replacements, and independence of the batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextword.batching.masked import Masking, derive_key, random_below, random_bits, random_uniform
from nextword.core.errors import InvalidSetting, NextwordError, Unsupported
from nextword.core.types import IGNORE, Vocabulary
from nextword.tokenizers.special_tokens import Marks

SPECIAL = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
VOCABULARY = Vocabulary(1000, 2, SPECIAL, 3)
KEY = derive_key(1, 2, 3)


class Masked(NamedTuple):
    before: np.ndarray
    after: np.ndarray
    targets: np.ndarray
    positions: np.ndarray
    texts: list[slice]

    @property
    def chosen(self) -> np.ndarray:
        return self.targets != IGNORE


def mask(
    texts: list[np.ndarray], begins: np.ndarray | None = None, key: Any = KEY, numbers: Any = None, **settings: Any
) -> Masked:
    """Mask concatenated texts; each token is a word of its own unless `begins` marks the starts of words."""
    ids = np.concatenate(texts).astype(np.int64)
    ends = np.cumsum([len(text) for text in texts])
    first = ends - [len(text) for text in texts]
    masking = Masking(VOCABULARY, **settings)
    after = ids.copy()
    room = masking.max_targets(len(ids), len(texts))
    numbers = np.arange(len(texts)) if numbers is None else np.asarray(numbers)
    begins = np.ones(len(ids), bool) if begins is None else begins
    targets, positions, n = masking(after, begins, first, ends, numbers, key, room)
    assert len(positions) == room
    assert not positions[n:].any()
    return Masked(ids, after, targets, positions[:n], [slice(a, b) for a, b in zip(first, ends, strict=True)])


def make_text(rng: np.random.Generator, n: int) -> np.ndarray:
    """[CLS], n ordinary tokens of which some are unknown, [SEP]."""
    inner = rng.integers(5, 1000, n)
    inner[rng.random(n) < 0.1] = 1
    return np.concatenate(([2], inner, [3]))


# ------------------------------------------------------------------------------------------------ special tokens


@pytest.mark.parametrize(
    ("special", "expected"),
    [
        (SPECIAL, Marks(2, 3, 4, 0)),
        ({"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 9}, Marks(0, 2, 9, 1)),  # RoBERTa
        ({"<pad>": 0, "<unk>": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}, Marks(2, 3, 4, 0)),  # ALBERT has both kinds
    ],
)
def test_special_tokens_are_found_by_either_name(special: dict[str, int], expected: Marks) -> None:
    assert Marks.of(Vocabulary(10, 0, special)) == expected


def test_tokenizer_without_special_tokens_is_rejected() -> None:
    with pytest.raises(NextwordError, match=r"<\|endoftext\|>"):
        Marks.of(Vocabulary(300, 256, {"<|endoftext|>": 256}))


# ------------------------------------------------------------------------------------------------ properties


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=30),
    fraction=st.floats(0.05, 0.6),
    max_ngram=st.integers(0, 4),
    whole_words=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_only_ordinary_tokens_are_masked_and_targets_are_the_originals(
    sizes: list[int], fraction: float, max_ngram: int, whole_words: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    texts = [make_text(rng, n) for n in sizes]
    begins = rng.random(sum(map(len, texts))) < 0.7
    masked = mask(
        texts, begins, key=derive_key(seed), mask_fraction=fraction, max_ngram=max_ngram, whole_words=whole_words
    )
    chosen = masked.chosen
    assert sorted(masked.positions.tolist()) == np.flatnonzero(chosen).tolist()
    assert (masked.before[chosen] >= 5).all()  # never a special or unknown token
    np.testing.assert_array_equal(masked.targets[chosen], masked.before[chosen])
    np.testing.assert_array_equal(masked.after[~chosen], masked.before[~chosen])
    assert np.isin(masked.after[chosen], [0, 1, 2, 3], invert=True).all()  # [MASK] or an ordinary token
    for part in masked.texts:
        candidates = int((masked.before[part] >= 5).sum())
        assert min(candidates, 1) <= chosen[part].sum() <= max(1, int(fraction * candidates) + 1)


@settings(max_examples=15, deadline=None)
@given(length=st.integers(1, 300), fraction=st.sampled_from([0.15, 0.3, 0.5]), seed=st.integers(0, 50))
def test_masked_fraction_is_right_on_average_for_any_length(length: int, fraction: float, seed: int) -> None:
    texts = [np.full(length, 7)] * (60_000 // length)
    masked = mask(texts, key=derive_key(seed), mask_fraction=fraction)
    expected = max(fraction, 1 / length)
    assert abs(masked.chosen.mean() - expected) < 0.005


def test_chosen_tokens_become_mask_random_or_stay_in_the_given_fractions() -> None:
    rng = np.random.default_rng(0)
    masked = mask([rng.integers(5, 1000, 128) for _ in range(3000)])
    before, after = masked.before[masked.chosen], masked.after[masked.chosen]
    n = len(before)
    assert abs((after == 4).sum() / n - 0.8) < 0.01
    assert abs((after == before).sum() / n - 0.1) < 0.01
    other = after[(after != 4) & (after != before)]
    assert abs(len(other) / n - 0.1) < 0.01
    assert other.min() == 5
    assert other.max() == 999
    assert np.bincount(other, minlength=1000)[5:].max() < 30  # uniform: six of each are expected

    always = mask([np.full(100, 7)] * 100, mask_token_fraction=1.0, random_token_fraction=0.0)
    assert (always.after[always.chosen] == 4).all()


def test_every_position_is_equally_likely() -> None:
    masked = mask([np.full(20, 7)] * 20_000, mask_fraction=0.2)
    frequencies = masked.chosen.reshape(-1, 20).mean(0)
    assert np.abs(frequencies - 0.2).max() < 0.015


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), max_ngram=st.sampled_from([0, 1, 3]))
def test_whole_words_are_masked_completely(seed: int, max_ngram: int) -> None:
    rng = np.random.default_rng(seed)
    texts = [make_text(rng, int(rng.integers(60, 120))) for _ in range(8)]
    begins = rng.random(sum(map(len, texts))) < 0.6
    masked = mask(
        texts, begins, key=derive_key(seed), whole_words=max_ngram == 0, max_ngram=max_ngram, mask_fraction=0.2
    )
    free = masked.before >= 5
    for part in masked.texts:
        word: list[int] = []
        for p in range(part.start, part.stop + 1):
            inside = p < part.stop and free[p]
            if word and (not inside or begins[p]):
                assert len({bool(masked.chosen[q]) for q in word}) == 1
                word = []
            if inside:
                word.append(p)
    assert masked.chosen.sum() > 0.15 * free.sum()  # words that do not fit are skipped for words that do


def test_run_of_n_words_has_weight_one_over_n() -> None:
    rng = np.random.default_rng(0)
    texts = [np.full(4000, 7) for _ in range(100)]
    begins = rng.random(400_000) < 0.5
    begins[::4000] = True
    masked = mask(texts, begins, max_ngram=3, mask_fraction=0.02)
    word = np.cumsum(begins)
    hidden = np.unique(word[masked.chosen])
    breaks = np.flatnonzero(np.diff(hidden, prepend=-1, append=hidden[-1] + 9) > 1)
    lengths = np.bincount(np.diff(breaks), minlength=4)
    fractions = lengths[1:4] / lengths.sum()
    np.testing.assert_allclose(fractions, np.array([6, 3, 2]) / 11, atol=0.04)  # some runs are adjacent by chance


def test_runs_do_not_cross_special_tokens() -> None:
    """With one word between special tokens no run has two words, so neighbors are masked independently."""
    masked = mask([np.array([2, *[7, 3] * 50])] * 400, max_ngram=4, mask_fraction=0.3)
    words = masked.chosen.reshape(400, -1)[:, 1::2]
    both = (words[:, 1:] & words[:, :-1]).mean() / words.mean()
    assert 0.27 < both < 0.31


def test_start_of_a_word_is_masked_if_no_word_fits() -> None:
    begins = np.zeros(22, bool)
    begins[1] = True
    text = np.array([2, *range(5, 25), 3])  # one word of twenty tokens, of which three may be masked
    for k in range(20):
        masked = mask([text], begins, key=derive_key(k), whole_words=True)
        assert np.flatnonzero(masked.chosen).tolist() == [1, 2, 3]


def test_text_of_special_tokens_has_no_targets() -> None:
    masked = mask([np.array([2, 1, 3]), np.array([2, 9, 3])])
    assert np.flatnonzero(masked.chosen).tolist() == [4]


# ------------------------------------------------------------------------------------------------ randomness


def test_mask_of_a_text_is_independent_of_its_position_in_the_batch() -> None:
    rng = np.random.default_rng(0)
    texts = [make_text(rng, n) for n in (30, 50, 7)]
    alone = [mask([text], numbers=[i]) for i, text in enumerate(texts)]
    reordered = mask([texts[i] for i in (2, 0, 1)], numbers=[2, 0, 1])
    for part, i in zip(reordered.texts, (2, 0, 1), strict=True):
        np.testing.assert_array_equal(reordered.after[part], alone[i].after)
        np.testing.assert_array_equal(reordered.targets[part], alone[i].targets)
    assert (mask([texts[1]], numbers=[8]).targets != alone[1].targets).any()
    assert (mask([texts[1]], numbers=[1], key=derive_key(9)).targets != alone[1].targets).any()


def test_random_draws_are_uniform() -> None:
    key = derive_key(0, 7)
    assert key == derive_key(0, 7)
    assert key != derive_key(7, 0)
    u = np.array([random_uniform(key, i) for i in range(4000)])
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(u.mean() - 0.5) < 0.02
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 0.05
    faces = np.bincount([random_below(key, i, 6) for i in range(6000)], minlength=6)
    assert faces.min() > 850
    assert len({int(random_bits(key, i)) for i in range(1000)}) == 1000


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mask_fraction", 0),
        ("mask_fraction", 1.5),
        ("mask_token_fraction", 0.95),  # more than 1 together with random_token_fraction = 0.1
        ("random_token_fraction", -0.1),
        ("whole_words", 1),
        ("max_ngram", 2.5),
        ("max_ngram", True),
    ],
)
def test_invalid_settings_are_rejected(key: str, value: Any) -> None:
    with pytest.raises(InvalidSetting) as error:
        Masking(VOCABULARY, **{key: value})
    assert (error.value.key, error.value.value) == (f"objective.{key}", value)


def test_vocabulary_of_special_tokens_alone_is_unsupported() -> None:
    with pytest.raises(Unsupported):
        Masking(Vocabulary(5, 2, SPECIAL))
