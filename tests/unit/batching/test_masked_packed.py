"""Rows of full sentences, and texts packed into one row: every token is read exactly once."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextword.batching.masked import FullSentences, PackedTexts, Sentences, cut_pieces
from nextword.core.errors import InvalidSetting
from tests.unit.batching.test_masked_pairs import END, make_documents, segments, stream


def test_full_sentences_of_three_documents_equal_hand_computation() -> None:
    (a1, a2, a3), (b1,), (c1, c2) = documents = make_documents([[3, 3, 3], [2], [4, 4]])
    text = stream(documents)
    sentences = Sentences.of(text, END)
    # [CLS] a1 a2 a3 [SEP] b1 [SEP] has 14 tokens; with c1 and [SEP] it would have 19
    assert segments(text, FullSentences(1, 18).texts(sentences, 0, 0)) == [(a1 + a2 + a3, b1), (c1 + c2,)]
    assert segments(text, FullSentences(1, 19).texts(sentences, 0, 0)) == [(a1 + a2 + a3, b1, c1), (c2,)]
    assert segments(text, FullSentences(1, 9).texts(sentences, 0, 0)) == [(a1 + a2,), (a3, b1), (c1,), (c2,)]
    apart = FullSentences(1, 18, separate_documents=True).texts(sentences, 0, 0)
    assert segments(text, apart) == [(a1 + a2 + a3,), (b1,), (c1 + c2,)]


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=8), min_size=1, max_size=8),
    length=st.integers(3, 50),
    apart=st.booleans(),
)
def test_rows_are_as_full_as_whole_sentences_allow(shape: list[list[int]], length: int, apart: bool) -> None:
    documents = make_documents(shape)
    text = stream(documents)
    layout = FullSentences(2, length, apart)
    texts = layout.texts(Sentences.of(text, END), 0, 0)
    rows = segments(text, texts)
    assert [id for row in rows for part in row for id in part] == [id for d in documents for s in d for id in s]
    sizes = texts.sizes()
    assert sizes.max() <= length
    document_starts = {d[0][0] for d in documents}
    assert all(
        part[0] in document_starts for row in rows for part in row[1:]
    )  # within a row only documents are separated
    sentence_sizes = {s[0]: len(s) for d in documents for s in d}
    for size, row, following in zip(sizes[:-1].tolist(), rows[:-1], rows[1:], strict=True):
        next_id = following[0][0]
        room = length - size - (next_id in document_starts)
        if not (apart and next_id in document_starts):
            assert (
                min(sentence_sizes.get(next_id, 1), length - 2) > room
            )  # the next sentence, or part of one, did not fit
        assert not apart or len(row) == 1


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=4), min_size=1, max_size=40),
    length=st.integers(3, 40),
    extra=st.integers(0, 100),
    seed=st.integers(0, 100),
)
def test_epoch_of_packed_rows_reads_every_token_once(
    shape: list[list[int]], length: int, extra: int, seed: int
) -> None:
    documents = make_documents(shape)
    text = stream(documents)
    sentences = Sentences.of(text, END)
    layout = PackedTexts(length + extra, length)
    selections = layout.selections(sentences, seed, 0, 0)
    for epoch in range(3):
        chosen: list[int] = []
        rows = layout.rows_in_epoch(sentences, seed, epoch)
        for selection in islice(selections, rows):
            sizes = selection.texts.sizes()[selection.chosen]
            assert selection.epoch == selection.variant == epoch
            assert sizes.max() <= length
            assert sizes.sum() <= length + extra
            assert len(sizes) <= layout.max_texts(sentences)
            chosen += selection.chosen.tolist()
        assert sorted(chosen) == list(range(len(selection.texts)))
    parts = segments(text, selection.texts)
    assert [id for (part,) in parts for id in part] == [id for d in documents for s in d for id in s]
    held_out = [i for selection in layout.validation_selections(sentences) for i in selection.chosen.tolist()]
    assert held_out == list(range(len(selection.texts)))


def test_packed_rows_have_little_padding() -> None:
    rng = np.random.default_rng(0)
    documents = make_documents([rng.integers(1, 20, int(rng.integers(1, 12))).tolist() for _ in range(800)])
    sentences = Sentences.of(stream(documents), END)
    layout = PackedTexts(4096, 128)
    assert layout.batches_per_epoch(sentences) > 10
    fill_rates = [t.texts.sizes()[t.chosen].sum() / 4096 for t in islice(layout.selections(sentences, 1, 0, 0), 10)]
    assert min(fill_rates) > 1 - 128 / 4096


def test_cut_pieces_cuts_spans_to_the_given_length() -> None:
    begin, length, span = cut_pieces(np.array([0, 20]), np.array([7, 23]), 3)
    assert begin.tolist() == [0, 3, 6, 20]
    assert length.tolist() == [3, 3, 1, 3]
    assert span.tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("layout", "key", "value"),
    [
        (FullSentences, "length", 2),
        (FullSentences, "separate_documents", 1),
        (PackedTexts, "tokens", 100),  # less than length = 128
        (PackedTexts, "tokens", True),
    ],
)
def test_invalid_settings_are_rejected(layout: Any, key: str, value: object) -> None:
    with pytest.raises(InvalidSetting) as error:
        layout(**{key: value})
    assert (error.value.key, error.value.value) == (f"batches.{key}", value)
