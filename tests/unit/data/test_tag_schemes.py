"""Tagging schemes: conversion between spans and tags, detection of the scheme, and violations."""

from __future__ import annotations

import itertools
import random

import pytest

from nextword.core.errors import DataError, UnknownName
from nextword.data.conll import TaggedSentence, TaggedText, detect_scheme
from nextword.data.tag_schemes import (
    LETTERS,
    SCHEMES,
    Span,
    allowed_transitions,
    convert_tags,
    find_spans,
    find_violation,
    has_spans,
    parse_tag,
    write_tags,
)
from tests.support.errors import raises

EXAMPLES = {
    "IOB1": "I-PER I-PER O I-PER B-PER O I-LOC",
    "IOB2": "B-PER I-PER O B-PER B-PER O B-LOC",
    "BIOES": "B-PER E-PER O S-PER S-PER O S-LOC",
    "BILOU": "B-PER L-PER O U-PER U-PER O U-LOC",
}
SPANS = [Span(0, 2, "PER"), Span(3, 4, "PER"), Span(4, 5, "PER"), Span(6, 7, "LOC")]


def random_spans(seed: int) -> tuple[list[Span], int]:
    """Return spans that do not overlap but are often adjacent, and the length of the sentence."""
    draw = random.Random(seed)
    spans, start = [], 0
    while start < 12:
        end = start + draw.randint(1, 3)
        if draw.random() < 0.7:
            spans.append(Span(start, end, draw.choice(["PER", "LOC", "B-X"])))
        start = end
    return spans, start


@pytest.mark.parametrize("scheme", SCHEMES)
def test_write_tags_and_find_spans_by_hand(scheme: str) -> None:
    tags = EXAMPLES[scheme].split()
    assert write_tags(SPANS, 7, scheme) == tags
    assert find_spans(tags) == SPANS
    assert find_violation(tags, scheme) is None


@pytest.mark.parametrize("scheme", SCHEMES)
def test_find_spans_round_trips_through_every_scheme(scheme: str) -> None:
    for seed in range(200):
        spans, length = random_spans(seed)
        tags = write_tags(spans, length, scheme)
        assert find_violation(tags, scheme) is None
        assert find_spans(tags) == spans
        for other in SCHEMES:
            assert convert_tags(convert_tags(tags, other), scheme) == tags


@pytest.mark.parametrize("scheme", SCHEMES)
def test_allowed_transitions_are_exactly_the_valid_ones(scheme: str) -> None:
    tags = ["O", *(f"{letter}-{type}" for letter in LETTERS[scheme] for type in "XY")]
    pairs, first, last = allowed_transitions(tags, scheme)
    for n in (1, 2, 3):
        for path in itertools.product(range(len(tags)), repeat=n):
            fits = first[path[0]] and last[path[-1]] and all(pairs[a, b] for a, b in itertools.pairwise(path))
            named = [tags[i] for i in path]
            assert fits == (find_violation(named, scheme) is None), named
            assert fits == (write_tags(find_spans(named), n, scheme) == named), named


def test_tags_without_spans_are_unchanged() -> None:
    assert not has_spans({"NN", "VB", "-LRB-", "O", "."})
    assert has_spans({"O", "B-PER"})
    assert not has_spans({"O"})
    assert convert_tags(["NN", "VB"], "") == ["NN", "VB"]
    assert parse_tag("-LRB-") == ("", "-LRB-")
    with raises(UnknownName, name="IOB3", known=SCHEMES):
        allowed_transitions(["O"], "IOB3")


def text(name: str, *sentences: str) -> TaggedText:
    tagged, line = [], 1
    for sentence in sentences:
        tags = tuple(sentence.split())
        tagged.append(TaggedSentence(("w",) * len(tags), tags, tuple(range(line, line + len(tags)))))
        line += len(tags) + 1
    return TaggedText(name, tagged)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_detect_scheme(scheme: str) -> None:
    assert detect_scheme({"train": text("a", "O O", EXAMPLES[scheme]), "dev": text("b", "O")}) == scheme


def test_detect_scheme_must_fit_all_splits() -> None:
    assert detect_scheme({"train": text("a", "B-X I-X"), "dev": text("b", "B-X B-X")}) == "IOB2"
    assert detect_scheme({"train": text("a", "I-X I-X"), "dev": text("b", "I-X B-X")}) == "IOB1"
    assert detect_scheme({"train": text("a", "NN VB")}) == ""


@pytest.mark.parametrize(
    ("train", "dev", "file", "line", "tags"),
    [
        (("B-X I-X O", "O I-X"), (), "a.txt", 6, "'I-X'.*'O'.*IOB2"),
        (("B-X I-X O",), ("O I-X B-X I-Y",), "b.txt", 2, "'I-X'.*'O'.*IOB2"),
        (("B-X E-X", "O B-X O"), (), "a.txt", 6, "'O'.*'B-X'.*BIOES"),
        (("B-X E-X O S-X", "B-X"), (), "a.txt", 6, "'B-X'"),
        (("B-X I-X O", "PER O"), (), "a.txt", 5, "'PER'.*IOB2"),
    ],
)
def test_detect_scheme_of_invalid_tags_gives_their_line(
    train: tuple[str, ...], dev: tuple[str, ...], file: str, line: int, tags: str
) -> None:
    splits = {"train": text("a.txt", *train)} | ({"dev": text("b.txt", *dev)} if dev else {})
    with raises(DataError, match=tags, path=file, line=line):
        detect_scheme(splits)
