"""Our implementation of GPT-2's splitting rule equals the library's, for every character."""

from __future__ import annotations

from itertools import product

import numpy as np
from tokenizers import pre_tokenizers

from nextword.tokenizers import subwords
from nextword.tokenizers.subwords import PORTION, cut_portions, gpt2_rule
from nextword.tokenizers.training import train_tokenizer

SENTENCE = "The cat's naïve, 戦場 of 1,234 words:\n\n  don't  cut\there… "


def library_words(text: str) -> list[str]:
    words = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)
    return [text[start:end] for _, (start, end) in words]


def test_gpt2_rule_every_covered_character_is_split_like_the_library():
    rule, uncovered = gpt2_rule()
    covered = [chr(point) for point in range(0x10000) if not 0xD800 <= point < 0xE000]
    covered = [character for character in covered if not uncovered.match(character)]
    assert len(covered) > 45_000  # all of the common scripts
    for start in range(0, len(covered), 5_000):
        text = "".join(f"a{c}1{c}.{c} {c}{c}  {c}\n" for c in covered[start : start + 5_000])
        assert rule.findall(text) == library_words(text)


def test_gpt2_rule_all_short_combinations_are_split_like_the_library():
    rule, _ = gpt2_rule()
    for parts in product(["a", "1", ".", " ", "\n", "\u00a0", "'", "s", "'ll", "é"], repeat=4):
        text = "".join(parts)
        assert rule.findall(text) == library_words(text), repr(text)


def test_encode_long_text_cut_into_portions_gives_same_ids():
    text = SENTENCE * (3 * PORTION // len(SENTENCE))
    assert len(cut_portions(text)) > 2
    assert "".join(cut_portions(text)) == text
    tokenizer = train_tokenizer({"kind": "bpe", "size": 400}, [SENTENCE] * 9)
    for content in (
        text,
        text + "👩 " + text,
        "👩" + text,
    ):  # 👩 is not covered by our rule
        expected = tokenizer._encoder.encode(content, add_special_tokens=False).ids
        assert tokenizer.encode(content).ids.tolist() == expected


def test_cut_portions_text_without_seam_stays_in_one_piece():
    assert cut_portions("戦" * (3 * PORTION)) == ["戦" * (3 * PORTION)]


def test_word_cache_when_cleared_gives_same_ids(monkeypatch):
    tokenizer = train_tokenizer({"kind": "bpe", "size": 400}, [SENTENCE] * 9)
    texts = [SENTENCE, "other words", SENTENCE, "", "👩"]
    expected = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    monkeypatch.setattr(subwords, "CACHE_SIZE", 0)
    for _ in range(2):
        for ids, encoding in zip(expected, tokenizer.encode_batch(texts), strict=True):
            np.testing.assert_array_equal(ids, encoding.ids)
