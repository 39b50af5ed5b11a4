"""Sentence and word boundaries in cases that can be checked by hand."""

from __future__ import annotations

import pytest

from nextword.data.segmentation import is_unspaced, opening_words, sentence_spans, word_starts


@pytest.mark.parametrize(
    "parts",
    [
        ["The cat sat. ", "The dog ran."],
        ["Mr. Smith met Dr. Jones in St. Louis. ", "They talked."],
        ["J. R. R. Tolkien wrote it. ", "Others read it."],
        ["It rose 3.5 percent to 1,000.25 points. ", "Then it fell."],
        ['He said "Stop!" and left. ', "She stayed."],
        ['"Really?" ', "She asked twice."],
        ["(See Fig. 3.) ", "It is there."],
        ["Wait... ", "What was that?! ", "Nothing."],
        ["Well... perhaps not."],
        ["A heading\n\n", "A paragraph\nof two lines. ", "And more.\n \n", "Another"],
        ["今天很好。", "我们去公园！", "「好。」", "他说。"],
        ["3. Results are here. ", "We won."],
        ["It happened in 1999. ", "Nobody saw it."],
        ["the cat sat . ", "The dog ran ."],
        ["No stop at all"],
    ],
    ids=lambda parts: parts[0][:20],
)
def test_sentence_spans_split_at_sentence_ends(parts: list[str]) -> None:
    text = "".join(parts)
    assert [text[a:b] for a, b in sentence_spans(text)] == parts


def test_sentence_spans_of_empty_text_are_empty() -> None:
    assert sentence_spans("") == []


def test_word_starts_are_starts_of_non_space_runs() -> None:
    text = " two\u3000words,\u00a0and\tmore\n"
    starts = word_starts(text)
    assert [text[s:].split()[0] for s in starts] == text.split()


def test_opening_of_a_text_is_a_few_words_or_characters() -> None:
    assert opening_words("In the beginning, God created the heavens") == "In the beginning, God"
    assert opening_words("a b c", 12) == "a b c"
    chinese = "中国位于亚洲东部，太平洋西岸。中国历史悠久。" * 9
    assert is_unspaced(chinese)
    assert opening_words(chinese) == "中国位于亚洲东部"
    assert opening_words("ประเทศไทยอยู่ในเอเชีย") == "ประเทศไท"
    assert not is_unspaced("The word 中国 means China")
    assert not is_unspaced("")
    assert opening_words("") == ""
