"""Which tokens are hidden, and what becomes of them: the shares, the words, and that a mask belongs to its text."""

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


class Found(NamedTuple):
    before: np.ndarray
    after: np.ndarray
    targets: np.ndarray
    at: np.ndarray
    texts: list[slice]

    @property
    def chosen(self) -> np.ndarray:
        return self.targets != IGNORE


def mask(
    texts: list[np.ndarray], begins: np.ndarray | None = None, key: Any = KEY, numbers: Any = None, **how: Any
) -> Found:
    """Texts end to end, all of a word each unless it is said."""
    ids = np.concatenate(texts).astype(np.int64)
    ends = np.cumsum([len(text) for text in texts])
    first = ends - [len(text) for text in texts]
    masking = Masking(VOCABULARY, **how)
    after = ids.copy()
    room = masking.max_targets(len(ids), len(texts))
    numbers = np.arange(len(texts)) if numbers is None else np.asarray(numbers)
    begins = np.ones(len(ids), bool) if begins is None else begins
    targets, at, n = masking(after, begins, first, ends, numbers, key, room)
    assert len(at) == room
    assert not at[n:].any()
    return Found(ids, after, targets, at[:n], [slice(a, b) for a, b in zip(first, ends, strict=True)])


def framed(rng: np.random.Generator, n: int) -> np.ndarray:
    """[CLS] n ordinary tokens, now and then an unknown one, [SEP]."""
    inner = rng.integers(5, 1000, n)
    inner[rng.random(n) < 0.1] = 1
    return np.concatenate(([2], inner, [3]))


# ------------------------------------------------------------------------------------------------ marks


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
    share=st.floats(0.05, 0.6),
    grams=st.integers(0, 4),
    whole=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_only_ordinary_tokens_are_masked_and_targets_are_the_originals(
    sizes: list[int], share: float, grams: int, whole: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    texts = [framed(rng, n) for n in sizes]
    begins = rng.random(sum(map(len, texts))) < 0.7
    found = mask(texts, begins, key=derive_key(seed), mask_fraction=share, max_ngram=grams, whole_words=whole)
    chosen = found.chosen
    assert sorted(found.at.tolist()) == np.flatnonzero(chosen).tolist()
    assert (found.before[chosen] >= 5).all()  # never a mark, nor what the tokenizer does not know
    np.testing.assert_array_equal(found.targets[chosen], found.before[chosen])
    np.testing.assert_array_equal(found.after[~chosen], found.before[~chosen])
    assert np.isin(found.after[chosen], [0, 1, 2, 3], invert=True).all()  # the mask itself, or ordinary
    for part in found.texts:
        can = int((found.before[part] >= 5).sum())
        assert min(can, 1) <= chosen[part].sum() <= max(1, int(share * can) + 1)


@settings(max_examples=15, deadline=None)
@given(length=st.integers(1, 300), share=st.sampled_from([0.15, 0.3, 0.5]), seed=st.integers(0, 50))
def test_share_is_right_on_average_for_any_length(length: int, share: float, seed: int) -> None:
    texts = [np.full(length, 7)] * (60_000 // length)
    found = mask(texts, key=derive_key(seed), mask_fraction=share)
    expected = max(share, 1 / length)
    assert abs(found.chosen.mean() - expected) < 0.005


def test_chosen_tokens_become_mask_random_or_stay_by_their_shares() -> None:
    rng = np.random.default_rng(0)
    found = mask([rng.integers(5, 1000, 128) for _ in range(3000)])
    was, now = found.before[found.chosen], found.after[found.chosen]
    n = len(was)
    assert abs((now == 4).sum() / n - 0.8) < 0.01
    assert abs((now == was).sum() / n - 0.1) < 0.01
    other = now[(now != 4) & (now != was)]
    assert abs(len(other) / n - 0.1) < 0.01
    assert other.min() == 5
    assert other.max() == 999
    assert np.bincount(other, minlength=1000)[5:].max() < 30  # all alike: six of each are expected

    always = mask([np.full(100, 7)] * 100, mask_token_fraction=1.0, random_token_fraction=0.0)
    assert (always.after[always.chosen] == 4).all()


def test_every_position_is_equally_likely() -> None:
    found = mask([np.full(20, 7)] * 20_000, mask_fraction=0.2)
    places = found.chosen.reshape(-1, 20).mean(0)
    assert np.abs(places - 0.2).max() < 0.015


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), grams=st.sampled_from([0, 1, 3]))
def test_whole_words_are_masked_completely(seed: int, grams: int) -> None:
    rng = np.random.default_rng(seed)
    texts = [framed(rng, int(rng.integers(60, 120))) for _ in range(8)]
    begins = rng.random(sum(map(len, texts))) < 0.6
    found = mask(texts, begins, key=derive_key(seed), whole_words=grams == 0, max_ngram=grams, mask_fraction=0.2)
    free = found.before >= 5
    for part in found.texts:
        word: list[int] = []
        for p in range(part.start, part.stop + 1):
            inside = p < part.stop and free[p]
            if word and (not inside or begins[p]):
                assert len({bool(found.chosen[q]) for q in word}) == 1
                word = []
            if inside:
                word.append(p)
    assert found.chosen.sum() > 0.15 * free.sum()  # words that do not fit are passed over for those that do


def test_run_of_n_words_has_weight_one_over_n() -> None:
    rng = np.random.default_rng(0)
    texts = [np.full(4000, 7) for _ in range(100)]
    begins = rng.random(400_000) < 0.5
    begins[::4000] = True
    found = mask(texts, begins, max_ngram=3, mask_fraction=0.02)
    word = np.cumsum(begins)
    hidden = np.unique(word[found.chosen])
    breaks = np.flatnonzero(np.diff(hidden, prepend=-1, append=hidden[-1] + 9) > 1)
    lengths = np.bincount(np.diff(breaks), minlength=4)
    shares = lengths[1:4] / lengths.sum()
    np.testing.assert_allclose(shares, np.array([6, 3, 2]) / 11, atol=0.04)  # a few stand side by side by chance


def test_runs_do_not_cross_special_tokens() -> None:
    """Between marks there is one word each, so that no run has two: that one is hidden says nothing of the next."""
    found = mask([np.array([2, *[7, 3] * 50])] * 400, max_ngram=4, mask_fraction=0.3)
    words = found.chosen.reshape(400, -1)[:, 1::2]
    both = (words[:, 1:] & words[:, :-1]).mean() / words.mean()
    assert 0.27 < both < 0.31


def test_beginning_of_a_word_is_masked_if_no_word_fits() -> None:
    begins = np.zeros(22, bool)
    begins[1] = True
    text = np.array([2, *range(5, 25), 3])  # one word of twenty tokens, of which three may be hidden
    for k in range(20):
        found = mask([text], begins, key=derive_key(k), whole_words=True)
        assert np.flatnonzero(found.chosen).tolist() == [1, 2, 3]


def test_text_of_special_tokens_has_no_targets() -> None:
    found = mask([np.array([2, 1, 3]), np.array([2, 9, 3])])
    assert np.flatnonzero(found.chosen).tolist() == [4]


# ------------------------------------------------------------------------------------------------ chance


def test_mask_of_a_text_does_not_depend_on_its_place_in_the_batch() -> None:
    rng = np.random.default_rng(0)
    texts = [framed(rng, n) for n in (30, 50, 7)]
    alone = [mask([text], numbers=[i]) for i, text in enumerate(texts)]
    turned = mask([texts[i] for i in (2, 0, 1)], numbers=[2, 0, 1])
    for part, i in zip(turned.texts, (2, 0, 1), strict=True):
        np.testing.assert_array_equal(turned.after[part], alone[i].after)
        np.testing.assert_array_equal(turned.targets[part], alone[i].targets)
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
