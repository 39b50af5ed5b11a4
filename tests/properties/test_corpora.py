"""Invariants of segmentation, splits and prepared streams for any text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nextword.batching.token_stream import DOCUMENT, SENTENCE, WORD, _batches, _Writer
from nextword.core.types import Document
from nextword.data.corpus import ByteRange, assign_split, select_passages
from nextword.data.files import split_lines
from nextword.data.segmentation import sentence_spans, split_passages, word_starts
from nextword.tokenizers.training import train_tokenizer

text = st.text(st.characters(exclude_categories=["Cs"]))
prose = st.text(st.sampled_from(list("abcXY .!?…\"')\n\r\t。！ é\u3000\U0001f600")), max_size=400)
HELD_OUT = {"valid": 0.2, "test": 0.2}


@given(st.one_of(text, prose))
def test_sentence_spans_partition_any_text(text: str) -> None:
    spans = sentence_spans(text)
    assert "".join(text[a:b] for a, b in spans) == text
    assert all(a < b for a, b in spans)
    assert all(not text[a].isspace() for a, _ in spans[1:])


@given(st.one_of(text, prose))
def test_word_starts_equal_str_split(text: str) -> None:
    assert [text[s:].split()[0] for s in word_starts(text)] == text.split()


@given(st.lists(prose), st.integers(2, 50))
def test_split_passages_join_to_the_text_for_any_chunks(pieces: list[str], size: int) -> None:
    whole = "".join(pieces)
    found = list(split_passages(pieces, size))
    assert "".join(found) == whole
    assert found == list(split_passages([whole], size))
    assert all(0 < len(passage) <= size + size // 2 for passage in found)


@given(st.lists(prose))
def test_split_lines_join_to_the_text_and_end_at_newlines(pieces: list[str]) -> None:
    whole = "".join(pieces)
    assert list(split_lines(pieces)) == [line + "\n" for line in whole.split("\n")[:-1]] + whole.split("\n")[-1:] * (
        not whole.endswith("\n") and bool(whole)
    )


@given(st.lists(prose, min_size=1, max_size=4), st.integers(0, 100), st.integers(0, 100))
def test_byte_ranges_join_to_the_text_at_character_boundaries(texts: list[str], a: int, b: int) -> None:
    class Some:
        def documents(self):
            return (Document(text, continues=i > 0) for i, text in enumerate(texts))

    low, high = sorted((a / 100, b / 100))
    parts = [ByteRange(Some(), start, end) for start, end in ((0, low), (low, high), (high, 1))]
    assert "".join(d.text for part in parts for d in part.documents()) == "".join(texts)


@given(prose)
def test_assign_split_ignores_case_and_spacing(text: str) -> None:
    assert assign_split(text) == assign_split("  " + text.replace(" ", " \n ") + "\n")
    assert assign_split("Some Words") == assign_split("some  words ")


@given(st.lists(prose.filter(bool), max_size=5), st.integers(2, 40))
def test_select_passages_partitions_the_text_in_order(texts: list[str], size: int) -> None:
    documents = [Document(text, str(i)) for i, text in enumerate(texts)]
    parts = {split: list(select_passages(documents, split, HELD_OUT, size)) for split in ("train", *HELD_OUT)}
    assert sum(len(d.text) for part in parts.values() for d in part) == sum(map(len, texts))
    for part in parts.values():
        at = dict.fromkeys(range(len(texts)), 0)
        for document in part:
            place = texts[int(document.id)].find(document.text, at[int(document.id)])
            assert place >= 0
            at[int(document.id)] = place + len(document.text)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(prose, st.booleans()), min_size=1, max_size=8), st.sampled_from(["bytes", "words"]))
def test_prepared_ids_equal_those_of_each_document(tmp_path_factory, parts, kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    documents = [Document(text, continues=i > 0 and goes_on) for i, (text, goes_on) in enumerate(parts)]
    folder: Path = tmp_path_factory.mktemp("stream")
    names = ("ids", "marks", "rows")
    with open(folder / "ids", "wb") as a, open(folder / "marks", "wb") as b, open(folder / "rows", "wb") as c:
        writer = _Writer(a, b, c, tokenizer)
        for i in range(0, len(documents), 3):  # batches that cut documents anywhere
            for batch in _batches(documents[i : i + 3]):
                writer.add(batch)
        writer.close()
    ids, marks, rows = (
        np.fromfile(folder / n, k) for n, k in zip(names, (writer.type, np.uint8, "i8,i8,i8,i8"), strict=True)
    )
    expected: list[int] = []
    starts = []
    for document in documents:
        if not document.continues:
            if starts and tokenizer.end is not None:
                expected.append(tokenizer.end)
            starts.append(len(expected))
        expected += tokenizer.encode(document.text).ids.tolist()
    expected += [] if tokenizer.end is None else [tokenizer.end]
    assert ids.tolist() == expected
    assert rows["f0"].tolist() == starts
    assert writer.documents == len(starts)
    assert writer.bytes == rows["f1"].sum() == sum(len(d.text.encode()) for d in documents)
    assert writer.words == rows["f2"].sum() == sum(len(d.text.split()) for d in documents)
    assert writer.lines == rows["f3"].sum() == sum(d.text.count("\n") for d in documents)
    assert (marks[ids == tokenizer.end] == 0).all() if tokenizer.end is not None else True
    assert ((marks & WORD) > 0).sum() == writer.words  # neither tokenizer joins two words in one id
    assert ((marks & DOCUMENT) > 0).sum() <= len(starts)
    assert ((marks & SENTENCE) > 0).sum() >= ((marks & DOCUMENT) > 0).sum()


TOKENIZERS = {
    "bytes": train_tokenizer({"kind": "bytes"}, ["x"]),
    "words": train_tokenizer({"kind": "words", "size": 10}, ["abc cab . \n", "X Y"]),
}
