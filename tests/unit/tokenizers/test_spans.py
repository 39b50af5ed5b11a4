"""Bytes, characters and words of ids, on texts where each can be counted by hand."""

from __future__ import annotations

import sys

import numpy as np

from nextword.tokenizers import base as spans
from nextword.tokenizers.training import train_tokenizer


def test_every_space_there_is():
    every = [chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000]
    text = "".join(every)
    lengths = [len(character.encode()) for character in every]
    expected = np.repeat([character.isspace() for character in every], lengths)
    np.testing.assert_array_equal(spans.spaces(text.encode()), expected)


def test_a_space_belongs_to_the_word_that_follows():
    #        0123456789
    text = b" the  cat "
    words = spans.words_at(text, np.arange(len(text) + 1))
    assert words.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1]  # the last space has no word after it
    assert spans.words_at(b" \n ", np.arange(4)).tolist() == [-1] * 4
    assert spans.words_at(b"", np.arange(1)).tolist() == [-1]


def test_characters_begin_at_bytes():
    assert spans.character_bytes("aï戦👩".encode()).tolist() == [0, 1, 3, 6, 10]


def test_shared_characters_go_to_the_first_id():
    shared = np.array([[0, 2], [0, 2], [2, 3], [2, 5], [1, 4]])
    assert spans.in_order(shared).tolist() == [[0, 2], [2, 2], [2, 3], [3, 5], [5, 5]]
    assert spans.in_order(np.zeros((0, 2), dtype=np.int64)).shape == (0, 2)


def test_byte_level_spans_cut_through_characters():
    tokenizer = train_tokenizer({"kind": "bpe", "size": 257}, ["x"])
    encoding = tokenizer.encode("é x")
    assert encoding.spans.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert encoding.words.tolist() == [0, 0, 1, 1]


def test_lossy_spans_leave_out_what_was_dropped():
    tokenizer = train_tokenizer({"kind": "wordpiece", "size": 60}, ["the cat sat"] * 3)
    encoding = tokenizer.encode("  The\u00a0cät ")
    raw = "  The\u00a0cät ".encode()
    assert [raw[start:end].decode() for start, end in encoding.spans] == ["The", "cät"]
    assert encoding.words.tolist() == [0, 1]
