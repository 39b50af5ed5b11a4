"""N-gram estimators on a dozen words, each number computed by hand.

    the cat sat / the cat ran / the dog sat on the cat          S: start of a sentence, E: end of a sentence

Eight words can come next: <unk>, E, the, cat, dog, sat, ran, on. There are 15 tokens; S is never predicted.

    words      the 4, cat 3, E 3, sat 2, dog 1, ran 1, on 1
    pairs      S the 3, the cat 3; once: the dog, cat sat, cat ran, cat E, sat E, sat on, ran E, dog sat, on the
    triples    S the cat 2; once: S the dog, the cat sat, the cat ran, the cat E, cat sat E, cat ran E, the dog sat,
               dog sat on, sat on the, on the cat

Kneser-Ney counts distinct preceding words, in all orders but the highest (the start of a sentence has none and
keeps its count):

    words      E 3 (cat, sat, ran), the 2 (S, on), sat 2 (cat, dog), cat 1, dog 1, ran 1, on 1; 11 in total
    pairs      S the 3, the cat 2 (S, on), and 1 for the other nine
"""

from __future__ import annotations

from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest

from nextword.ngrams.counting import count_ngrams
from nextword.ngrams.discounts import absolute_discount, good_turing_discounts, modified_kneser_ney_discounts
from nextword.ngrams.estimators import Estimator, estimate
from nextword.ngrams.trie import Trie
from tests.support.reference_ngrams import log_prob

WORDS = ["<unk>", "E", "the", "cat", "dog", "sat", "ran", "on"]
TEXT = "the cat sat E the cat ran E the dog sat on the cat E"
KATZ_WORDS = ["<unk>", "E", *"abcdefg"]
KATZ_TEXT = "a b E a b E a c d e f g E"


def trie(order: int, text: str = TEXT, words: list[str] = WORDS, **settings: Any) -> Trie:
    ids = np.array([words.index(word) for word in text.split()], np.uint16)
    *_, counts = count_ngrams(ids, order, len(words), words.index("E"), 1 << 40)
    *_, model = estimate(counts, Estimator(**settings), np.zeros(len(words), bool))  # type: ignore[arg-type]
    assert isinstance(model, Trie)
    return model


def check(model: Trie, expected: dict[str, F], words: list[str] = WORDS) -> None:
    """Compare probabilities; the key `"cat | S the"` is p(cat | S the)."""
    for key, p in expected.items():
        word, _, context = key.partition(" | ")
        before = [words.index("E" if w == "S" else w) for w in context.split()]
        probability = np.exp(log_prob(model, before, words.index(word)))
        assert probability == pytest.approx(float(p), rel=2e-6, abs=0), f"p({key}) = {p}"


def test_kneser_ney_bigrams_equal_hand_computation() -> None:
    """One discount per order. Words: n1 = 4, n2 = 2, so 4 / (4 + 2·2) = 1/2. Pairs: n2 = 0, so it is set to 1/2."""
    model = trie(2, kind="kneser-ney")
    assert model.facts["discounts"] == [[0.5], [0.5]]
    assert model.facts["notes"] == ["2-grams: no n-gram occurs twice: the discount is set to 0.5"]
    words = {
        # γ = 7 · 1/2 / 11 = 7/22, so each of the eight words gets 7/176
        "the": F(31, 176),  # (2 − 1/2) / 11 + 7/176 = 24/176 + 7/176
        "sat": F(31, 176),
        "cat": F(15, 176),  # (1 − 1/2) / 11 + 7/176 = 8/176 + 7/176
        "dog": F(15, 176),
        "ran": F(15, 176),
        "on": F(15, 176),
        "E": F(47, 176),  # (3 − 1/2) / 11 + 7/176 = 40/176 + 7/176
        "<unk>": F(7, 176),
    }
    assert sum(words.values()) == 1
    check(model, words)
    after_the = {
        # 4 tokens, 2 types: γ = 2 · 1/2 / 4 = 1/4
        "cat | the": F(455, 704),  # (3 − 1/2) / 4 + 1/4 · 15/176 = 440/704 + 15/704
        "dog | the": F(103, 704),  # (1 − 1/2) / 4 + 1/4 · 15/176 = 88/704 + 15/704
        "sat | the": F(31, 704),  # 1/4 · 31/176
        "the | the": F(31, 704),
        "ran | the": F(15, 704),
        "on | the": F(15, 704),
        "E | the": F(47, 704),
        "<unk> | the": F(7, 704),
    }
    assert sum(after_the.values()) == 1
    check(model, after_the)
    check(model, {"the | S": F(911, 1056)})  # (3 − 1/2) / 3 + 1/6 · 31/176 = 880/1056 + 31/1056
    check(model, {"cat | <unk>": F(15, 176), "cat | dog <unk>": F(15, 176)})  # <unk> was never seen as context: p(cat)


def test_kneser_ney_trigrams_equal_hand_computation() -> None:
    """Words as above. Pairs: n1 = 9, n2 = 1, D = 9/11. Triples: n1 = 10, n2 = 1, D = 10/12 = 5/6."""
    model = trie(3, kind="kneser-ney")
    assert model.facts["discounts"] == [[0.5], [round(9 / 11, 6)], [round(5 / 6, 6)]]
    assert model.facts["notes"] == []
    expected = {
        "cat": F(15, 176),
        # After the: cat 2, dog 1; γ = 2 · 9/11 / 3 = 6/11
        "cat | the": F(1279, 2904),  # (2 − 9/11) / 3 + 6/11 · 15/176 = 13/33 + 45/968
        "dog | the": F(311, 2904),  # (1 − 9/11) / 3 + 45/968 = 2/33 + 45/968
        "sat | the": F(93, 968),  # 6/11 · 31/176
        # After S: the 3, its plain count; γ = 9/11 / 3 = 3/11
        "the | S": F(1501, 1936),  # (3 − 9/11) / 3 + 3/11 · 31/176 = 8/11 + 93/1936
        # After S the: cat 2, dog 1; γ = 2 · 5/6 / 3 = 5/9
        "cat | S the": F(16559, 26136),  # (2 − 5/6) / 3 + 5/9 · 1279/2904 = 7/18 + 6395/26136
        "sat | S the": F(155, 2904),  # 5/9 · 93/968
        # After on the: cat 1; γ = 5/6
        "cat | on the": F(9299, 17424),  # 1/6 + 5/6 · 1279/2904
        # sat the was never seen: p(cat | the); neither was <unk> <unk>: p(cat)
        "cat | sat the": F(1279, 2904),
        "cat | <unk> <unk>": F(15, 176),
        # The previous sentence is ignored: dog E counts as S
        "the | dog S": F(1501, 1936),
    }
    check(model, expected)


def test_modified_kneser_ney_bigrams_equal_hand_computation() -> None:
    """Words: n1 = 4, n2 = 2, n3 = 1, n4 = 0, so Y = 4/8 = 1/2 and the formula gives the discounts

    D1 = 1 − 2 · 1/2 · 2/4 = 1/2     D2 = 2 − 3 · 1/2 · 1/2 = 5/4     D3 = 3 − 4 · 1/2 · 0/1 = 3

    Pairs: n2 = 0, so they are set to 1/2, 1, 3/2.
    """
    model = trie(2)
    assert model.facts["estimator"] == "modified-kneser-ney"
    assert model.facts["discounts"] == [[0.5, 1.25, 3.0], [0.5, 1.0, 1.5]]
    assert model.facts["notes"] == ["2-grams: no n-gram occurs twice: the discounts are set to 0.5, 1, 1.5"]
    words = {
        # γ = (4 · 1/2 + 2 · 5/4 + 1 · 3) / 11 = 15/22, so each of the eight words gets 15/176
        "cat": F(23, 176),  # (1 − 1/2) / 11 + 15/176 = 8/176 + 15/176
        "dog": F(23, 176),
        "ran": F(23, 176),
        "on": F(23, 176),
        "the": F(27, 176),  # (2 − 5/4) / 11 + 15/176 = 12/176 + 15/176
        "sat": F(27, 176),
        "E": F(15, 176),  # (3 − 3) / 11 + 15/176
        "<unk>": F(15, 176),
    }
    assert sum(words.values()) == 1
    check(model, words)
    after_the = {
        # cat 3, dog 1; γ = (3/2 + 1/2) / 4 = 1/2
        "cat | the": F(155, 352),  # (3 − 3/2) / 4 + 1/2 · 23/176 = 132/352 + 23/352
        "dog | the": F(67, 352),  # (1 − 1/2) / 4 + 1/2 · 23/176 = 44/352 + 23/352
        "the | the": F(27, 352),  # 1/2 · 27/176
        "sat | the": F(27, 352),
        "ran | the": F(23, 352),
        "on | the": F(23, 352),
        "E | the": F(15, 352),
        "<unk> | the": F(15, 352),
    }
    assert sum(after_the.values()) == 1
    check(model, after_the)
    check(model, {"cat | <unk>": F(23, 176)})


def test_modified_kneser_ney_trigrams_equal_hand_computation() -> None:
    """Pairs: n1 = 9, n2 = 1, n3 = 1, so Y = 9/11 and D2 = 2 − 3 · 9/11 · 1/1 = −5/11, which is invalid.

    Triples: n3 = 0. Both are set to 1/2, 1, 3/2.
    """
    model = trie(3)
    assert model.facts["discounts"] == [[0.5, 1.25, 3.0], [0.5, 1.0, 1.5], [0.5, 1.0, 1.5]]
    assert model.facts["notes"] == [
        "2-grams: the discount for count 2 would be -0.45: the discounts are set to 0.5, 1, 1.5",
        "3-grams: no n-gram occurs three times: the discounts are set to 0.5, 1, 1.5",
    ]
    expected = {
        "cat": F(23, 176),
        # After the: cat 2, dog 1; γ = (1 + 1/2) / 3 = 1/2
        "cat | the": F(421, 1056),  # (2 − 1) / 3 + 1/2 · 23/176 = 352/1056 + 69/1056
        "dog | the": F(245, 1056),  # (1 − 1/2) / 3 + 69/1056
        "sat | the": F(27, 352),  # 1/2 · 27/176
        "the | S": F(203, 352),  # (3 − 3/2) / 3 + 1/2 · 27/176 = 176/352 + 27/352
        # After cat: sat, ran, E once; γ = 1/2
        "sat | cat": F(257, 1056),  # 1/6 + 1/2 · 27/176 = 176/1056 + 81/1056
        # After S the: cat 2, dog 1; γ = 1/2
        "cat | S the": F(375, 704),  # 1/3 + 1/2 · 421/1056 = 704/2112 + 421/2112
        "dog | S the": F(199, 704),  # 1/6 + 1/2 · 245/1056 = 352/2112 + 245/2112
        "sat | S the": F(27, 704),  # 1/2 · 27/352
        # After the cat: sat, ran, E once; γ = 1/2
        "sat | the cat": F(203, 704),  # 1/6 + 1/2 · 257/1056 = 352/2112 + 257/2112
        "dog | the cat": F(23, 704),  # 1/2 · 1/2 · 23/176: backs off from "the cat" to "cat" to no context
        # ran the was never seen
        "cat | ran the": F(421, 1056),
    }
    check(model, expected)


def test_discounts_from_complete_counts_of_counts_equal_formula() -> None:
    """n = 10, 4, 2, 1: Y = 10/18 = 5/9; D1 = 1 − 2 · 5/9 · 4/10, D2 = 2 − 3 · 5/9 · 2/4, D3 = 3 − 4 · 5/9 · 1/2."""
    n = np.array([0, 10, 4, 2, 1, *[0] * 12])
    table, note = modified_kneser_ney_discounts(n, 5, True)
    assert (table, note) == (pytest.approx([0, 5 / 9, 7 / 6, 17 / 9]), "")
    table, note = absolute_discount(n, 5, True)
    assert (table, note) == (pytest.approx([0, 5 / 9]), "")


def test_good_turing_discounts_equal_hand_computation() -> None:
    """n = 6, 2, 1, and counts above 2 are not discounted. The term common to both ratios: 3 · 1/6 = 1/2.

    d1 = (2 · 2/6 − 1/2) / (1 − 1/2) = 1/3     d2 = (3 · 1/2 / 2 − 1/2) / (1 − 1/2) = 1/2
    """
    table, note = good_turing_discounts(np.array([0, 6, 2, 1, *[0] * 13]), 2, False)
    assert (table, note) == (pytest.approx([0, 1 * (1 - F(1, 3)), 2 * (1 - F(1, 2)), 0]), "")


def test_katz_bigrams_equal_hand_computation() -> None:
    """a b / a b / a c d e f g, nine words with <unk>. Pairs: S a 3, a b 2, b E 2, six once: d1 = 1/3, d2 = 1/2.

    Words: a 3, E 3, b 2, five once: n = 5, 1, 2 is not decreasing, so count 1 is discounted by 1/2.
    """
    model = trie(2, KATZ_TEXT, KATZ_WORDS, kind="good-turing", cutoff=2)
    expected = {
        "a": F(3, 13),
        "b": F(2, 13),
        "c": F(1, 26),  # (1 − 1/2) / 13
        "<unk>": F(5, 26),  # 5 · 1/2 / 13, all for the one unseen word
        # After a: b 2, c 1; 1 − 1/3 − 1/9 = 5/9 is free, for words with a total of 1 − 2/13 − 1/26 = 21/26: α = 130/189
        "b | a": F(1, 3),  # 1/2 · 2/3
        "c | a": F(1, 9),  # 1/3 · 1/3
        "a | a": F(10, 63),  # 130/189 · 3/13
        "<unk> | a": F(25, 189),  # 130/189 · 5/26
        # After S: a 3, not discounted: no mass is free, so S counts once more; α = 1/4 / (10/13) = 13/40
        "a | S": F(3, 4),
        "b | S": F(1, 20),  # 13/40 · 2/13
        "b | <unk>": F(2, 13),
    }
    check(model, expected, KATZ_WORDS)


def test_witten_bell_bigrams_equal_hand_computation() -> None:
    """15 tokens, 7 types: T / (C + T) = 7/22 is free. After the: 4 tokens, 2 types: 2/6 = 1/3."""
    expected = {
        "cat": F(31, 176),  # 3/22 + 7/22 · 1/8 = 24/176 + 7/176
        "sat": F(23, 176),
        "<unk>": F(7, 176),
        "cat | the": F(295, 528),  # 3/6 + 1/3 · 31/176
        "sat | the": F(23, 528),
        "sat | <unk>": F(23, 176),
    }
    check(trie(2, kind="witten-bell"), expected)
    backoff = {
        "cat": F(3, 22),
        "<unk>": F(7, 22),  # all free mass
        "cat | the": F(1, 2),
        # α = 1/3 / (1 − 3/22 − 1/22) = 11/27
        "sat | the": F(1, 27),  # 11/27 · 2/22
        "<unk> | the": F(7, 54),
    }
    check(trie(2, kind="witten-bell", interpolated=False), backoff)


def test_absolute_discounting_bigrams_equal_hand_computation() -> None:
    """Words: n1 = 3, n2 = 1, D = 3/5, and 7 · 3/5 / 15 = 7/25 is free. Pairs: D = 1/2; after the, 1/4 is free."""
    expected = {
        "cat": F(39, 200),  # (3 − 3/5) / 15 + 7/25 · 1/8 = 32/200 + 7/200
        "sat": F(77, 600),  # (2 − 3/5) / 15 + 7/200 = 56/600 + 21/600
        "cat | the": F(539, 800),  # 5/8 + 1/4 · 39/200
        "sat | the": F(77, 2400),
    }
    check(trie(2, kind="absolute"), expected)
    backoff = {
        "cat": F(4, 25),
        "<unk>": F(7, 25),
        "cat | the": F(5, 8),
        "sat | the": F(7, 244),  # 1/4 / (1 − 4/25 − 2/75) · 7/75 = 75/244 · 7/75
    }
    check(trie(2, kind="absolute", interpolated=False), backoff)


def test_additive_smoothing_equals_hand_computation() -> None:
    """δ = 1/2 for each of eight words: 4 in total."""
    pairs = {
        "cat | the": F(7, 16),  # (3 + 1/2) / (4 + 4)
        "sat | the": F(1, 16),
        "cat | <unk>": F(1, 8),  # 1/2 / 4
    }
    check(trie(2, kind="additive", add=0.5), pairs)
    triples = {
        "cat | S the": F(5, 14),  # (2 + 1/2) / (3 + 4)
        "sat | S the": F(1, 14),
        "the | S": F(1, 2),  # (3 + 1/2) / (3 + 4): no longer context exists at the start of a sentence
        "cat | sat the": F(1, 8),
    }
    check(trie(3, kind="additive", add=0.5), triples)
    check(trie(1, kind="additive", add=0.5), {"the": F(9, 38), "<unk>": F(1, 38), "the | cat": F(9, 38)})


def test_stupid_backoff_equals_hand_computation() -> None:
    """α = 2/5. Words: Z = 1 + 2/5 · 1/8 = 21/20. After the: Z = 1 + 2/5 · (1 − 4/21 − 4/63) = 1 + 94/315 = 409/315."""
    expected = {
        "cat": F(4, 21),  # 3/15 · 20/21
        "<unk>": F(1, 21),  # 2/5 · 1/8 · 20/21
        "cat | the": F(945, 1636),  # 3/4 · 315/409
        "sat | the": F(16, 409),  # 2/5 · 8/63 · 315/409
        "sat | <unk>": F(8, 63),  # 2/15 · 20/21
    }
    check(trie(2, kind="stupid"), expected)


def test_maximum_likelihood_equals_hand_computation() -> None:
    expected = {"cat": F(1, 5), "<unk>": F(0), "cat | the": F(3, 4), "sat | the": F(0), "cat | <unk>": F(1, 5)}
    check(trie(2, kind="maximum-likelihood"), expected)
