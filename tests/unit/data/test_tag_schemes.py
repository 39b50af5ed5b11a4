"""Schemes of tags: spans into tags and back, which scheme a text has, and what does not fit."""

from __future__ import annotations

import itertools
import random

import pytest

from nextword.core.errors import NextwordError
from nextword.data.conll import TaggedSentence, TaggedText, scheme_of
from nextword.data.tag_schemes import (
    LETTERS,
    SCHEMES,
    Span,
    allowed,
    converted,
    has_spans,
    parts,
    spans,
    violation,
    written,
)

DRAWN = {
    "IOB1": "I-PER I-PER O I-PER B-PER O I-LOC",
    "IOB2": "B-PER I-PER O B-PER B-PER O B-LOC",
    "BIOES": "B-PER E-PER O S-PER S-PER O S-LOC",
    "BILOU": "B-PER L-PER O U-PER U-PER O U-LOC",
}
SPANS = [Span(0, 2, "PER"), Span(3, 4, "PER"), Span(4, 5, "PER"), Span(6, 7, "LOC")]


def drawn(seed: int) -> tuple[list[Span], int]:
    """Spans that do not overlap, often side by side, of a sentence."""
    draw = random.Random(seed)
    found, at = [], 0
    while at < 12:
        end = at + draw.randint(1, 3)
        if draw.random() < 0.7:
            found.append(Span(at, end, draw.choice(["PER", "LOC", "B-X"])))
        at = end
    return found, at


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_drawing(scheme: str) -> None:
    tags = DRAWN[scheme].split()
    assert written(SPANS, 7, scheme) == tags
    assert spans(tags) == SPANS
    assert violation(tags, scheme) is None


@pytest.mark.parametrize("scheme", SCHEMES)
def test_spans_come_back_from_every_scheme_and_through_every_other(scheme: str) -> None:
    for seed in range(200):
        found, length = drawn(seed)
        tags = written(found, length, scheme)
        assert violation(tags, scheme) is None
        assert spans(tags) == found
        for other in SCHEMES:
            assert converted(converted(tags, other), scheme) == tags


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_allowed_is_exactly_what_is_no_violation(scheme: str) -> None:
    tags = ["O", *(f"{letter}-{type}" for letter in LETTERS[scheme] for type in "XY")]
    pairs, first, last = allowed(tags, scheme)
    for n in (1, 2, 3):
        for path in itertools.product(range(len(tags)), repeat=n):
            fits = first[path[0]] and last[path[-1]] and all(pairs[a, b] for a, b in itertools.pairwise(path))
            named = [tags[i] for i in path]
            assert fits == (violation(named, scheme) is None), named
            assert fits == (written(spans(named), n, scheme) == named), named


def test_tags_that_are_no_spans_stay_as_they_are() -> None:
    assert not has_spans({"NN", "VB", "-LRB-", "O", "."})
    assert has_spans({"O", "B-PER"})
    assert not has_spans({"O"})
    assert converted(["NN", "VB"], "") == ["NN", "VB"]
    assert parts("-LRB-") == ("", "-LRB-")
    with pytest.raises(NextwordError, match=r"No scheme of tags is called 'IOB3'.*BIOES"):
        allowed(["O"], "IOB3")


def text(name: str, *sentences: str) -> TaggedText:
    found, line = [], 1
    for sentence in sentences:
        tags = tuple(sentence.split())
        found.append(TaggedSentence(("w",) * len(tags), tags, tuple(range(line, line + len(tags)))))
        line += len(tags) + 1
    return TaggedText(name, found)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_scheme_is_found_out(scheme: str) -> None:
    assert scheme_of({"train": text("a", "O O", DRAWN[scheme]), "dev": text("b", "O")}) == scheme


def test_a_text_that_several_schemes_fit_is_read_as_all_splits_can_be() -> None:
    assert scheme_of({"train": text("a", "B-X I-X"), "dev": text("b", "B-X B-X")}) == "IOB2"
    assert scheme_of({"train": text("a", "I-X I-X"), "dev": text("b", "I-X B-X")}) == "IOB1"
    assert scheme_of({"train": text("a", "NN VB")}) == ""


@pytest.mark.parametrize(
    ("train", "dev", "said"),
    [
        (("B-X I-X O", "O I-X"), (), r"a\.txt, line 6: 'I-X' after 'O' is not IOB2"),
        (("B-X I-X O",), ("O I-X B-X I-Y",), r"b\.txt, line 2: 'I-X' after 'O' is not IOB2"),
        (("B-X E-X", "O B-X O"), (), r"a\.txt, line 6: 'O' after 'B-X' is not BIOES"),
        (("B-X E-X O S-X", "B-X"), (), r"a\.txt, line 6: the sentence ends with 'B-X'"),
        (("B-X I-X O", "PER O"), (), r"a\.txt, line 5: 'PER' is no tag of IOB2"),
    ],
)
def test_tags_that_fit_no_scheme_are_refused_with_their_line(
    train: tuple[str, ...], dev: tuple[str, ...], said: str
) -> None:
    splits = {"train": text("a.txt", *train)} | ({"dev": text("b.txt", *dev)} if dev else {})
    with pytest.raises(NextwordError, match=said):
        scheme_of(splits)
