"""Sentence boundaries, and pairs of segments for next-sentence and sentence-order prediction."""

from __future__ import annotations

from itertools import chain, islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextword.batching.masked import RecentCache, SentencePairs, Sentences, Texts, pack_in_order
from nextword.batching.token_stream import DOCUMENT, ROW, SENTENCE, WORD, Stream
from nextword.core.errors import DataError, InvalidSetting
from nextword.tokenizers.special_tokens import Marks

END = 3
MARKS = Marks(cls=2, sep=3, mask=4, pad=0)
Document = list[list[int]]


def stream(documents: list[Document], end: int | None = END) -> Stream:
    """Build a stream from documents, each a list of sentences, each a list of ids."""
    ids: list[int] = []
    marks: list[int] = []
    starts = []
    for document in documents:
        starts.append(len(ids))
        for i, sentence in enumerate(document):
            ids += sentence
            marks += [WORD | SENTENCE | (DOCUMENT if not i else 0)] + [WORD] * (len(sentence) - 1)
        ids += [] if end is None else [end]
        marks += [] if end is None else [0]
    rows = np.zeros(len(documents), ROW)
    rows["start"] = starts
    return Stream(np.array(ids, np.uint16), np.array(marks, np.uint8), rows, 0, 0, 0)


def make_documents(shape: list[list[int]]) -> list[Document]:
    """Documents with sentences of the given lengths, in which every token is different."""
    ids = iter(range(10, 60_000))
    return [[list(islice(ids, n)) for n in document] for document in shape]


def segments(text: Stream, texts: Texts) -> list[tuple[list[int], ...]]:
    """Each text as its segments."""
    result = []
    for i in range(len(texts)):
        spans = range(texts.stretches[i], texts.stretches[i + 1])
        result.append(tuple(text.ids[texts.first[k] :][: texts.length[k]].tolist() for k in spans))
    return result


def pairs(documents: list[Document], seed: int = 0, **options: object) -> list[tuple[int, tuple[list[int], ...]]]:
    text = stream(documents)
    texts = SentencePairs(**options).texts(Sentences.of(text, END), seed, 0)  # type: ignore[arg-type]
    labels = [-1] * len(texts) if texts.labels is None else texts.labels.tolist()
    return list(zip(labels, segments(text, texts), strict=True))


# ------------------------------------------------------------------------------------------------ sentences


@pytest.mark.parametrize("end", [END, None])
def test_sentences_are_found_with_and_without_end_tokens(end: int | None) -> None:
    documents = make_documents([[3, 2], [4], [1, 1, 5]])
    text = stream([documents[0], [], *documents[1:], []], end)  # empty documents are skipped
    sentences = Sentences.of(text, end)
    assert sentences.documents.tolist() == [0, 2, 3, 6]
    actual = [text.ids[a:b].tolist() for a, b in zip(sentences.first, sentences.last, strict=True)]
    assert actual == [*chain(*documents)]


def test_leading_space_of_a_document_belongs_to_its_first_sentence() -> None:
    text = stream([[[10, 11, 12], [13, 14]]])
    text.marks[0], text.marks[1] = DOCUMENT, WORD | SENTENCE
    sentences = Sentences.of(text, END)
    assert sentences.first.tolist() == [0, 3]
    assert sentences.last.tolist() == [3, 5]


def test_truncated_text_without_end_keeps_its_last_sentence() -> None:
    sentences = Sentences.of(stream(make_documents([[3, 2], [4, 4]])).first(9), END)
    assert sentences.last.tolist() == [3, 5, 9]


def test_text_without_tokens_is_rejected() -> None:
    with pytest.raises(DataError):
        Sentences.of(stream([[], []]), END)


def test_texts_are_framed_in_rows_or_in_one_row() -> None:
    text = stream([[[10, 11, 12], [13, 14]], [[15]]])
    text.marks[1] = 0  # 10 11 is one word
    texts = Texts(np.array([0, 3, 6]), np.array([3, 2, 1]), np.array([0, 2, 3]))
    rows = texts.frame(text, np.array([1, 0]), MARKS, 10)
    assert rows.ids.reshape(2, 10).tolist() == [
        [2, 15, 3, 0, 0, 0, 0, 0, 0, 0],
        [2, 10, 11, 12, 3, 13, 14, 3, 0, 0],
    ]
    assert rows.segments.reshape(2, 10)[1].tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 0, 0]
    assert np.flatnonzero(rows.begins).tolist() == [1, 11, 13, 15, 16]
    assert (rows.first.tolist(), rows.sizes.tolist()) == ([0, 10], [3, 8])
    assert texts.sizes().tolist() == [8, 3]
    packed = texts.frame(text, np.array([0, 1]), MARKS, 12, in_one_row=True)
    assert packed.ids.tolist() == [2, 10, 11, 12, 3, 13, 14, 3, 2, 15, 3, 0]
    assert packed.first.tolist() == [0, 8]


def test_pack_in_order_fills_rows_up_to_their_capacity() -> None:
    sizes, between = np.array([3, 3, 3, 9, 1, 1]), np.array([1, 1, 0, 0, 1, 0])
    assert pack_in_order(sizes, between, 9).tolist() == [0, 2, 3, 4, 6]  # 3 + 1 + 3 | 3 | 9 | 1 + 1
    assert pack_in_order(sizes, 0 * between, 9).tolist() == [0, 3, 4, 6]
    assert pack_in_order(sizes, 0 * between, 9, most=2).tolist() == [0, 2, 3, 4, 6]


def test_recent_cache_compares_texts_by_identity() -> None:
    keys: list[int] = []
    cache = RecentCache(lambda text, key: keys.append(key) or len(keys))  # type: ignore[func-returns-value]
    first, second = [1], [1]
    assert [cache(first, 5), cache(first, 5), cache(second, 5), cache(first, 6), cache(first, 5)] == [1, 1, 2, 3, 1]


# ------------------------------------------------------------------------------------------------ next sentence


def test_pairs_of_two_documents_cover_all_cases() -> None:
    """Two documents of two sentences each, which fit into one row.

    A document gives either (s1, s2), or s1 and then s2, each with a random segment of the other document.
    """
    a, b, c, d = [10, 11], [12, 13, 14], [15], [16, 17]
    others = {"first": (c + d, d), "second": (a + b, b)}
    cases = set()
    for seed in range(60):
        remaining = iter(pairs([[a, b], [c, d]], seed, length=32, short_fraction=0.0))
        for s1, s2, other in ((a, b, others["first"]), (c, d, others["second"])):
            label, (first, second) = next(remaining)
            assert first == s1
            if label == 0:
                assert second == s2
            else:
                assert second in other
                label_, (first_, second_) = next(remaining)
                assert (label_, first_) == (1, s2)
                assert second_ in other
            cases.add((s1[0], label, second[0]))
        assert next(remaining, None) is None
    assert len(cases) == 6  # per document: the next sentence, and either sentence of the other document


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=12), min_size=2, max_size=6),
    room=st.integers(10, 60),
    seed=st.integers(0, 1000),
    short=st.sampled_from([0.0, 0.5]),
)
def test_every_label_matches_its_pair(shape: list[list[int]], room: int, seed: int, short: float) -> None:
    documents = make_documents(shape)
    home = {id: (d, k) for d, document in enumerate(documents) for k, id in enumerate(chain(*document))}
    for label, (a, b) in pairs(documents, seed, length=room + 3, short_fraction=short):
        assert len(a) + len(b) <= room
        for segment in (a, b):
            assert segment == list(range(segment[0], segment[0] + len(segment)))  # contiguous in the text
            assert len({home[id][0] for id in segment}) == 1
        (own, last), (other, first) = home[a[-1]], home[b[0]]
        assert (own == other) is (label == 0)
        if label == 0:
            assert first > last


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(1, 40), min_size=2, max_size=5),
    seed=st.integers(0, 1000),
    fit=st.integers(2, 20),
)
def test_every_sentence_is_read_once_in_order(counts: list[int], seed: int, fit: int) -> None:
    """A of random pairs and both segments of the others make up the documents. Rows hold `fit` sentences exactly."""
    documents = make_documents([[4] * n for n in counts])
    read: list[int] = []
    for label, (a, b) in pairs(documents, seed, length=4 * fit + 3, short_fraction=0.0):
        read += a if label else a + b
    assert read == [id for document in documents for sentence in document for id in sentence]


def test_half_of_the_pairs_have_a_random_second_segment() -> None:
    documents = make_documents([[5] * 40 for _ in range(100)])
    examples = pairs(documents, length=64, short_fraction=0.0)
    labels = np.array([label for label, _ in examples])
    assert abs(labels.mean() - 0.5) < 0.05
    random_documents = np.array([b[0] // 200 for label, (_, b) in examples if label])
    assert len(set(random_documents.tolist())) > 90
    for label, (a, b) in examples:  # B extends until the row is full or its document ends
        assert len(a) + len(b) in (60, 61) or (b[-1] - 9) % 200 == 0 or label == 0


def test_one_document_in_ten_has_shorter_rows() -> None:
    documents = make_documents([[2] * 30 for _ in range(800)])
    for short, low, high in ((0.0, 0.0, 0.0), (0.1, 0.06, 0.14)):
        first: dict[int, int] = {}  # size of each document's first pair, if B follows A
        for label, (a, b) in pairs(documents, length=63, short_fraction=short):
            if (a[0] - 10) % 60 == 0 and label == 0:
                first[a[0]] = len(a) + len(b)
        assert 300 < len(first) < 500
        assert low <= np.mean([size < 60 for size in first.values()]) <= high


def test_too_long_pair_loses_tokens_of_the_longer_segment_at_either_end() -> None:
    documents = make_documents([[100, 3], [100, 3]])
    fronts = []
    for seed in range(60):
        for label, (a, b) in pairs(documents, seed, length=23, short_fraction=0.0):
            if label == 1 and len(a) == 3:
                continue  # the second sentence with a random segment
            first = 10 if a[0] < 113 else 113
            if len(b) == 3:
                assert len(a) == 17  # only the longer segment is cut
            else:
                assert (len(a), len(b)) == (10, 10)  # both are cut
            fronts.append((a[0] - first) / (100 - len(a)))
    assert 0.4 < np.mean(fronts) < 0.6  # about as many at the front as at the end
    assert min(fronts) < 0.45 < 0.55 < max(fronts)


def test_document_of_one_sentence_gets_a_random_second_segment() -> None:
    examples = pairs(make_documents([[4], [4], [4]]), length=32)
    assert [label for label, _ in examples] == [1, 1, 1]
    assert [a for _, (a, _) in examples] == [[10, 11, 12, 13], [14, 15, 16, 17], [18, 19, 20, 21]]
    assert all(a != b for _, (a, b) in examples)


def test_single_document_counts_as_two_halves() -> None:
    documents = make_documents([[4] * 20])
    examples = pairs(documents, length=32, short_fraction=0.0)
    assert {label for label, _ in examples} == {0, 1}
    for label, (a, b) in examples:
        assert ((a[0] < 50) is (b[0] < 50)) is (label == 0)


# ------------------------------------------------------------------------------------------------ order


def test_half_of_the_ordered_pairs_are_swapped() -> None:
    a, b = [10, 11], [12, 13, 14]
    examples = [pairs([[a, b]], seed, length=32, pair="order") for seed in range(100)]
    assert all(result in ([(0, (a, b))], [(1, (b, a))]) for result in examples)
    assert 30 < sum(result[0][0] for result in examples) < 70


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=12), min_size=1, max_size=6),
    room=st.integers(10, 60),
    seed=st.integers(0, 1000),
)
def test_ordered_pairs_are_consecutive_segments_of_one_document(shape: list[list[int]], room: int, seed: int) -> None:
    documents = make_documents(shape)
    if all(len(document) == 1 for document in documents):
        with pytest.raises(DataError, match="pair=none"):
            pairs(documents, seed, length=room + 3, pair="order")
        return
    home = {id: d for d, document in enumerate(documents) for id in chain(*document)}
    examples = pairs(documents, seed, length=room + 3, pair="order")
    for label, (a, b) in examples:
        assert (a[-1] < b[0]) is (label == 0)
        assert len({home[id] for id in a + b}) == 1
        assert len(a) + len(b) <= room
    with_pairs = {d for d, document in enumerate(documents) if len(document) > 1}
    assert {home[a[0]] for _, (a, _) in examples} == with_pairs  # all other documents are used


def test_last_sentence_alone_is_paired_with_the_one_before() -> None:
    s = make_documents([[10, 10, 10]])[0]
    examples = pairs([s], length=20 + 3, pair="order", short_fraction=0.0)
    assert [sorted((tuple(a), tuple(b))) for _, (a, b) in examples] == [
        [tuple(s[0]), tuple(s[1])],
        [tuple(s[1]), tuple(s[2])],
    ]


def test_sentence_that_fills_the_row_is_paired_with_the_next() -> None:
    s = make_documents([[50, 4, 4]])[0]
    examples = pairs([s], length=20 + 3, pair="none", short_fraction=0.0)
    (_, (a, b)), (_, (c, d)) = examples
    assert set(a) < set(s[0])
    assert len(a) == 16
    assert (b, c, d) == (s[1], s[1], s[2])


def test_unlabeled_pairs_are_in_order_and_keep_a_single_sentence() -> None:
    documents = make_documents([[3, 3], [5]])
    examples = pairs(documents, length=32, pair="none")
    assert examples == [(-1, (documents[0][0], documents[0][1])), (-1, (documents[1][0],))]


# ------------------------------------------------------------------------------------------------ settings


def test_text_of_one_sentence_has_no_pairs() -> None:
    with pytest.raises(DataError, match="next"):
        pairs(make_documents([[9]]), length=32)


@pytest.mark.parametrize(
    ("key", "value"),
    [("rows", 0), ("length", 4), ("length", 12.5), ("pair", "nsp"), ("short_fraction", 2), ("short_fraction", "often")],
)
def test_invalid_settings_are_rejected(key: str, value: object) -> None:
    with pytest.raises(InvalidSetting) as error:
        SentencePairs(**{key: value})  # type: ignore[arg-type]
    assert (error.value.key, error.value.value) == (f"batches.{key}", value)
