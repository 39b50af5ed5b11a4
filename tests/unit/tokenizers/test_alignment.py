"""Spans and word indices of ids, on texts short enough to count by hand."""

from __future__ import annotations

import sys

import numpy as np

from nextword.tokenizers.alignment import character_bytes, remove_overlaps, spaces, words_at
from nextword.tokenizers.training import train_tokenizer


def test_spaces_all_of_unicode_agrees_with_str_isspace():
    every = [chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000]
    text = "".join(every)
    lengths = [len(character.encode()) for character in every]
    expected = np.repeat([character.isspace() for character in every], lengths)
    np.testing.assert_array_equal(spaces(text.encode()), expected)


def test_words_at_space_belongs_to_following_word():
    #        0123456789
    text = b" the  cat "
    words = words_at(text, np.arange(len(text) + 1))
    assert words.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1]  # no word follows the last space
    assert words_at(b" \n ", np.arange(4)).tolist() == [-1] * 4
    assert words_at(b"", np.arange(1)).tolist() == [-1]


def test_character_bytes_multibyte_text_returns_first_byte_of_each():
    assert character_bytes("aï戦👩".encode()).tolist() == [0, 1, 3, 6, 10]


def test_remove_overlaps_shared_character_goes_to_first_id():
    shared = np.array([[0, 2], [0, 2], [2, 3], [2, 5], [1, 4]])
    assert remove_overlaps(shared).tolist() == [[0, 2], [2, 2], [2, 3], [3, 5], [5, 5]]
    assert remove_overlaps(np.zeros((0, 2), dtype=np.int64)).shape == (0, 2)


def test_encode_bpe_spans_may_split_a_character():
    tokenizer = train_tokenizer({"kind": "bpe", "size": 257}, ["x"])
    encoding = tokenizer.encode("é x")
    assert encoding.spans.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert encoding.words.tolist() == [0, 0, 1, 1]


def test_encode_lossy_spans_leave_out_dropped_spaces():
    tokenizer = train_tokenizer({"kind": "wordpiece", "size": 60}, ["the cat sat"] * 3)
    encoding = tokenizer.encode("  The\u00a0cät ")
    raw = "  The\u00a0cät ".encode()
    assert [raw[start:end].decode() for start, end in encoding.spans] == ["The", "cät"]
    assert encoding.words.tolist() == [0, 1]
