"""Incremental decoding: complete characters, and one space between words."""

from __future__ import annotations

import pytest

from nextword.tokenizers.base import Decoder
from nextword.tokenizers.training import train_tokenizer

TEXTS = ["the cat sat on the mat\nand the dog didn't\n"] * 9


def test_push_half_a_character_emits_nothing():
    decoder = Decoder(train_tokenizer({"kind": "bytes"}, ()))
    assert [decoder.push(byte) for byte in "a👩b".encode()] == ["a", "", "", "", "👩", "b"]
    assert decoder.flush() == ""


def test_push_invalid_bytes_become_replacement_characters():
    decoder = Decoder(train_tokenizer({"kind": "bytes"}, ()))
    assert [decoder.push(byte) for byte in b"\xf0\x9fa"] == ["", "", "\ufffda"]
    assert decoder.push(0xE2) == ""
    assert decoder.flush() == "\ufffd"


def test_push_special_token_emits_nothing():
    tokenizer = train_tokenizer({"kind": "bpe", "size": 300}, TEXTS)
    decoder = Decoder(tokenizer)
    assert decoder.push(tokenizer.end) == ""


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"kind": "words"}, "the cat\nthe dog sat"),
        ({"kind": "classic-bpe", "size": 200}, "the cat the dog sat"),
        ({"kind": "wordpiece", "size": 200}, "the cat the dog sat"),
        ({"kind": "unigram", "size": 200}, "the cat the dog sat"),
    ],
)
def test_decode_lossy_kind_puts_one_space_between_words(spec, text):
    tokenizer = train_tokenizer(spec, TEXTS)
    ids = tokenizer.encode(text).ids.tolist()
    assert tokenizer.decode(ids) == text
    prompt = tokenizer.encode("the cat").ids.tolist()
    decoder = Decoder(tokenizer, after=prompt)
    assert "the cat" + "".join([decoder.push(id) for id in ids[len(prompt) :]]) == text


def test_piece_of_first_token_of_a_word_includes_the_space():
    """Words are recognizable by the first byte with any tokenizer."""
    for spec in ({"kind": "words"}, {"kind": "wordpiece", "size": 200}, {"kind": "unigram", "size": 200}):
        tokenizer = train_tokenizer(spec, TEXTS)
        assert tokenizer.piece(tokenizer.encode("the").ids[0]) == b" the"
    tokenizer = train_tokenizer({"kind": "bpe", "size": 300}, TEXTS)
    assert tokenizer.piece(tokenizer.encode("on the").ids[-1]) == b" the"
    tokenizer = train_tokenizer({"kind": "classic-bpe", "size": 200}, TEXTS)
    assert tokenizer.piece(tokenizer.encode("the").ids[0]) == b"the "
