"""The closed vocabulary of PTB and WikiText: every convention that changes a token count."""

from __future__ import annotations

import pytest

from nextword.tokenizers.training import train_tokenizer

TEXT = "the cat sat\n\nthe <unk> <eos> cat the\n"


def encode_names(tokenizer, text):
    names = {id: name for name, id in tokenizer.special.items()}
    return [names.get(id) or tokenizer.piece(id).decode().strip() for id in tokenizer.encode(text).ids.tolist()]


def test_encode_line_ends_and_empty_lines_are_eos():
    tokenizer = train_tokenizer({"kind": "words"}, [TEXT])
    assert encode_names(tokenizer, "the cat\n\nsat\n") == ["the", "cat", "<eos>", "<eos>", "sat", "<eos>"]
    assert (tokenizer.begin, tokenizer.end) == (1, None)


def test_encode_unfinished_line_has_no_eos():
    """A prompt is continued, so it must not end with <eos>."""
    tokenizer = train_tokenizer({"kind": "words"}, [TEXT])
    assert encode_names(tokenizer, "the cat") == ["the", "cat"]


def test_encode_literal_special_names_are_unknown():
    tokenizer = train_tokenizer({"kind": "words"}, [TEXT])
    assert encode_names(tokenizer, "<unk> <eos> unseen") == ["<unk>", "<unk>", "<unk>"]
    assert len(tokenizer) == 2 + 3  # neither name became a word


def test_train_orders_by_frequency_then_alphabetically():
    tokenizer = train_tokenizer({"kind": "words"}, ["b a c c"])
    assert [tokenizer.piece(id) for id in range(2, 5)] == [b" c", b" a", b" b"]


@pytest.mark.parametrize("option", [{"size": 4}, {"min_count": 2}])
def test_train_with_limit_makes_the_rest_unknown(option):
    tokenizer = train_tokenizer({"kind": "words", **option}, [TEXT])
    assert len(tokenizer) == 4
    assert encode_names(tokenizer, "the cat sat") == ["the", "cat", "<unk>"]


def test_lower_spans_refer_to_the_original_text():
    tokenizer = train_tokenizer({"kind": "words", "lower": True}, ["The the THE İstanbul"])
    assert len(tokenizer) == 4
    encoding = tokenizer.encode("tHe İSTANBUL\n")
    assert encoding.spans.tolist() == [[0, 3], [4, 13], [13, 14]]  # İ has two bytes, its lowercase form three


def test_without_lines_eos_ends_the_document():
    tokenizer = train_tokenizer({"kind": "words", "lines": False}, [TEXT])
    assert encode_names(tokenizer, "the cat\n\nsat\n") == ["the", "cat", "sat"]
    assert tokenizer.end == tokenizer.begin == tokenizer.special["<eos>"]


def test_decode_puts_one_space_between_words_and_none_at_line_ends():
    tokenizer = train_tokenizer({"kind": "words"}, [TEXT])
    assert tokenizer.decode(tokenizer.encode(" the  cat \n sat\n\nthe").ids) == "the cat\nsat\n\nthe"


@pytest.mark.parametrize(
    ("file", "tokens", "types"),
    [("wikitext-2/train.txt", 2_088_628, 33_278), ("ptb/ptb.train.txt", 929_589, 10_000)],
)
def test_benchmarks_have_the_published_token_counts(shared, file, tokens, types):
    text = (shared / file).read_text(encoding="utf-8")
    tokenizer = train_tokenizer({"kind": "words"}, [text])
    assert len(tokenizer) == types
    assert len(tokenizer.encode(text)) == tokens
