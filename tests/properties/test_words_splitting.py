"""Compiled word splitting equals plain Python, on every text."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nextword.core.types import Encoding
from nextword.tokenizers.alignment import SPACES, spaces, utf8, words_at
from nextword.tokenizers.words import (
    LONG,
    WordCounter,
    Words,
    build_table,
    concatenate,
    find,
    scan,
    train_words,
)

KNOWN = ["the", "cat", "naïve", "戦場", "İstanbul", "i̇stanbul", "ὀδυσσεύς", "seven77", "eight888", "a-rather-long-word"]
KNOWN += [
    "a-rather-long-wore",
    "\x00",
    "\x00\x00",
    "e\u0301",
    "👩\u200d👩",
    "<unk>",
    "</s>",
    "\u200b",
    "\ufeff",
    "~" * 300,
]
TRICKY = [
    *KNOWN,
    *SPACES,
    "\r\n",
    "\n\n",
    "<eos>",
    "İSTANBUL",
    "ὈΔΥΣΣΕΎΣ",
    "Σ",
    "ﬁ",
    "\u2027",
    "\u202e",
    "\u3001",
    "\u1681",
]
TRICKY += [
    "\x84",
    "\x86",
    "\xa1",
    "\u200c",
    "\u2030",
    "\u205e",
    "\u2060",
    "\u1000",
    "Á",
    "ｅ",
    "\U0001d54f",
    "\U0010ffff",
]
text_of = st.one_of(st.text(), st.lists(st.one_of(st.sampled_from(TRICKY), st.text(max_size=3))).map("".join))
many = st.lists(text_of, max_size=6)
quick = settings(max_examples=150, deadline=None)
kinds = pytest.mark.parametrize("lower", [False, True])
lined = pytest.mark.parametrize("lines", [True, False])


@cache
def tokenizer_of(lower: bool, lines: bool) -> Words:
    return Words(KNOWN, lower, lines)


def plain(tokenizer: Words, text: str) -> Encoding:
    """The definition: a regular expression for the words, a dict for their ids, whole-array arithmetic for places."""
    raw = utf8(text)
    lookup = {word: id for id, word in enumerate(tokenizer.words, 2)} | ({"\n": 1} if tokenizer.lines else {})
    found = re.findall(r"\n|\S+" if tokenizer.lines else r"\S+", text.lower() if tokenizer.lower else text)
    ids = np.array([lookup.get(word, 0) for word in found], dtype=np.int64)
    blank = np.append(spaces(raw), True)
    first, last = ~blank[:-1], ~blank[:-1]
    first[1:] &= blank[:-2]
    last &= blank[1:]
    if tokenizer.lines:
        line_end = np.frombuffer(raw, dtype=np.uint8) == ord("\n")
        first |= line_end
        last |= line_end
    spans = np.stack([np.flatnonzero(first), np.flatnonzero(last) + 1], axis=1)
    return Encoding(ids, spans, words_at(raw, spans[:, 0]))


def same(got: Encoding, expected: Encoding) -> None:
    for name in ("ids", "spans", "words"):
        ours, theirs = getattr(got, name), getattr(expected, name)
        assert ours.dtype == theirs.dtype == np.int64
        np.testing.assert_array_equal(ours, theirs, err_msg=name)


@kinds
@lined
@given(texts=many)
@example(texts=[])
@example(texts=["", "", "a\n", "", "\n\n", "the", "cat the\r\n\r\n the", "\n the \n", ""])
@example(texts=["ΟΔΟΣ", "ΑΣ", "Σ ὈΔΥΣΣΕΎΣ"])  # how Σ is lowered depends on what follows it
@example(texts=["<unk> <eos> <UNK>", "İSTANBUL İ\n"])
@quick
def test_encode_equals_plain_python(lower: bool, lines: bool, texts: list[str]) -> None:
    tokenizer = tokenizer_of(lower, lines)
    expected = [plain(tokenizer, text) for text in texts]
    for text, one in zip(texts, expected, strict=True):
        same(tokenizer.encode(text), one)
    together = tokenizer.encode_batch(texts)
    assert len(together) == len(texts)
    for got, one in zip(together, expected, strict=True):
        same(got, one)
    ids, counts, sizes = tokenizer.encode_flat(texts)
    assert ids.tolist() == [id for one in expected for id in one.ids.tolist()]
    assert counts.tolist() == [len(one) for one in expected]
    assert sizes == [len(text.encode()) for text in texts]


@given(texts=many, size=st.integers(0, 3))
@example(texts=[chr(i) + "x" * (i % 20) for i in range(300, 1300)], size=0)
@quick
def test_word_counter_equals_collections_counter(texts: list[str], size: int) -> None:
    counter = WordCounter(words=4 << size)  # so small that it has to grow
    for i in range(0, len(texts), 3):
        counter.add(texts[i : i + 3])
    counts = Counter(word for text in texts for word in text.split())
    words, numbers = counter.result()
    assert words == list(counts)  # in the order of first occurrence
    assert numbers == list(counts.values())


@kinds
@given(texts=many)
@quick
def test_train_orders_by_frequency_then_alphabetically(lower: bool, texts: list[str]) -> None:
    counts = Counter(word for text in texts for word in (text.lower() if lower else text).split())
    expected = sorted(counts.keys() - {"<unk>", "<eos>"}, key=lambda word: (-counts[word], word))
    assert train_words(iter(texts), None, 1, lower, True).words == tuple(expected)
    frequent = [word for word in expected if counts[word] >= 2]
    assert train_words(iter(texts), 4, 2, lower, True).words == tuple(frequent[:2])


def test_words_with_whitespace_are_never_matched() -> None:
    words = ["", "a b", "b\u00a0", " c", "\n", "d", "twice", "d", "twice-as-long", "twice-as-long", "\n\n"]
    tokenizer = Words(words)
    assert tokenizer.encode("a b c d twice twice-as-long\n").ids.tolist() == [
        0,
        0,
        0,
        9,
        8,
        11,
        1,
    ]
    assert Words(["", " "]).encode("a \n").ids.tolist() == [0, 1]
    assert Words([]).encode("a \n").ids.tolist() == [0, 1]


def test_find_distinguishes_words_with_equal_hashes() -> None:
    """Here all keys are equal, so only the bytes differ."""
    words = ["first-of-them", "second-of-it", "third-of-them"]
    table = build_table(words)
    raw, _ = concatenate([" ".join([*words[::-1], "fourth-of-it"])])
    keys, spans, _ = scan(raw, True, np.empty(1, np.int64))
    blob_keys, blob_spans, _ = scan(table.blob, True, np.empty(3, np.int64))
    slots, ids = np.zeros(16, np.uint64), np.array([2, 3, 4])
    find(table.blob, np.full_like(blob_keys, LONG), blob_spans, ids, 0, -1, slots, *table[1:])
    found = np.empty(4, np.int64)
    find(raw, np.full_like(keys, LONG), spans, found, 0, 0, slots, *table[1:])
    assert found.tolist() == [4, 3, 2, 0]


@given(words=st.lists(st.text(alphabet="ab\x00é", min_size=1, max_size=12), unique=True))
@quick
def test_scan_key_of_short_word_is_unique(words: list[str]) -> None:
    raw, sizes = concatenate(words)
    keys, *_ = scan(raw, True, np.empty(len(words), np.int64))
    long = np.array(sizes) > 7
    assert ((keys >= LONG) == long).all()
    assert len(set(keys[~long].tolist())) == (~long).sum()
