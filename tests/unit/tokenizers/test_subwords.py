"""The words we cut ourselves are the library's words, character by character."""

from __future__ import annotations

from itertools import product

import numpy as np
from tokenizers import pre_tokenizers

from nextword.tokenizers import subwords as gpt2_rule
from nextword.tokenizers.subwords import _PORTION, portions, rule
from nextword.tokenizers.training import train_tokenizer

SENTENCE = "The cat's naïve, 戦場 of 1,234 words:\n\n  don't  cut\there… "


def library_words(text: str) -> list[str]:
    found = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)
    return [text[start:end] for _, (start, end) in found]


def test_every_character_is_in_the_class_the_library_puts_it_in():
    cut, strange = rule()
    plain = [chr(point) for point in range(0x10000) if not 0xD800 <= point < 0xE000]
    plain = [character for character in plain if not strange.match(character)]
    assert len(plain) > 45_000  # all of the common scripts
    for start in range(0, len(plain), 5_000):
        text = "".join(f"a{c}1{c}.{c} {c}{c}  {c}\n" for c in plain[start : start + 5_000])
        assert cut.findall(text) == library_words(text)


def test_short_texts_of_every_sort_of_character():
    cut, _ = rule()
    for parts in product(["a", "1", ".", " ", "\n", "\u00a0", "'", "s", "'ll", "é"], repeat=4):
        text = "".join(parts)
        assert cut.findall(text) == library_words(text), repr(text)


def test_long_texts_are_cut_where_nothing_changes():
    text = SENTENCE * (3 * _PORTION // len(SENTENCE))
    assert len(portions(text)) > 2
    assert "".join(portions(text)) == text
    tokenizer = train_tokenizer({"kind": "bpe", "size": 400}, [SENTENCE] * 9)
    for content in (text, text + "👩 " + text, "👩" + text):  # what the rule does not know goes to the library
        whole = tokenizer._encoder.encode(content, add_special_tokens=False).ids
        assert tokenizer.encode(content).ids.tolist() == whole


def test_a_text_without_a_seam_stays_whole():
    assert portions("戦" * (3 * _PORTION)) == ["戦" * (3 * _PORTION)]


def test_forgetting_changes_nothing(monkeypatch):
    tokenizer = train_tokenizer({"kind": "bpe", "size": 400}, [SENTENCE] * 9)
    texts = [SENTENCE, "other words", SENTENCE, "", "👩"]
    expected = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    monkeypatch.setattr(gpt2_rule, "_MEMORY", 0)
    for _ in range(2):
        for ids, encoding in zip(expected, tokenizer.encode_batch(texts), strict=True):
            np.testing.assert_array_equal(ids, encoding.ids)
