"""Leaks of evaluation text: verdicts equal those of plain sets of word tuples."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextword.core.errors import DataError, InvalidSetting, NextwordError
from nextword.core.types import Document, Score
from nextword.data.corpus import Corpus, TextFiles
from nextword.data.filters.decontaminate import (
    MAX_PIECES,
    WINDOW,
    NgramIndex,
    choose_ngram_length,
    cut_spans,
    remove_contamination,
    split_by_contamination,
)
from nextword.data.filters.word_hashes import fold_words
from nextword.data.opening import open_unsplit
from nextword.evaluation.contamination import score_by_contamination
from tests.support.errors import raises

WORDS = [f"w{i}" for i in range(3000)]


def prose(seed: int, length: int = 400) -> str:
    draw = random.Random(seed)
    return " ".join(draw.choices(WORDS, k=length))


def runs(text: str, n: int) -> set[tuple[str, ...]]:
    words = fold_words(text)
    return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}


def documents(texts: Sequence[str], name: str = "") -> list[Document]:
    return [Document(text, f"{name}{i}") for i, text in enumerate(texts)]


# ------------------------------------------------------------------------------------------------ verdicts


@given(
    st.lists(st.lists(st.sampled_from("ab,"), max_size=14).map(" ".join), min_size=1, max_size=4),
    st.lists(st.lists(st.sampled_from("abC-"), max_size=14).map(" ".join), max_size=4),
    st.integers(1, 5),
)
@settings(max_examples=150, deadline=None)
def test_verdicts_equal_plain_sets(evaluated: list[str], trained: list[str], n: int) -> None:
    if max(len(fold_words(text)) for text in evaluated) < n:
        with raises(DataError):
            NgramIndex(documents(evaluated), n)
        return
    index = NgramIndex(documents(evaluated), n).read(documents(trained, "t"))
    seen = set().union(*(runs(text, n) for text in trained))
    for text, verdict in zip(evaluated, index.verdicts(), strict=True):
        words = fold_words(text)
        mine = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
        assert verdict.grams == len(mine)
        assert verdict.seen == sum(run in seen for run in mine)
        if verdict.is_dirty:
            assert tuple(fold_words(verdict.gram)) == next(run for run in mine if run in seen)
            first = next(i for i, text in enumerate(trained) if tuple(fold_words(verdict.gram)) in runs(text, n))
            assert verdict.seen_in == f"t{first}"
    counts = {tuple(fold_words(index.spelling(int(index.first[g])))): int(index.seen[g]) for g in range(index.size)}
    assert counts == {run: sum(run in runs(text, n) for text in trained) for run in counts}


def test_index_finds_a_planted_sentence_whatever_its_form() -> None:
    evaluated = documents([prose(i) for i in range(20)], "e")
    words = fold_words(evaluated[7].text)[100:113]
    leak = ", ".join(word.upper() for word in words)
    trained = documents([prose(100 + i) for i in range(50)], "t")
    trained[30] = Document(f"{prose(1)[:500]}zz {leak}! {prose(2)[:500]}", "leaky")
    index = NgramIndex(evaluated).read(trained)
    assert index.n == 13
    dirty = [v for v in index.verdicts() if v.is_dirty]
    assert [v.document.id for v in dirty] == ["e1", "e2", "e7"]  # the prose around the leak is also evaluation text
    assert (dirty[2].gram, dirty[2].seen_in, dirty[2].seen) == (" ".join(words), "leaky", 1)
    twelve = [Document(" ".join(words[:12]), "short of one")]
    assert not any(v.is_dirty for v in NgramIndex(evaluated).read(twelve).verdicts())


def test_index_finds_ngrams_across_passages() -> None:
    evaluated = [Document(prose(1, 100))]
    words = fold_words(evaluated[0].text)
    filler = prose(2, 150_000)
    text = f"{filler} {' '.join(words[20:40])} {filler}"
    at = len(filler) + 60
    assert len(text[:at]) > 1 << 19
    passages = [Document(text[:at], "long"), Document(text[at:], "long", continues=True)]
    (full,) = NgramIndex(evaluated).read([Document(text, "long")]).verdicts()
    (cut,) = NgramIndex(evaluated).read(passages).verdicts()
    assert (full.seen, full.seen_in) == (cut.seen, cut.seen_in) == (8, "long")


@pytest.mark.parametrize(
    ("lengths", "n"),
    [([100] * 20, 13), ([3] * 20, 8), ([10] * 20, 10), ([2] * 2 + [40] * 98, 13), ([11] * 6 + [40] * 94, 11)],
)
def test_choose_ngram_length_is_the_5th_percentile_within_8_and_13(lengths: list[int], n: int) -> None:
    assert choose_ngram_length(lengths) == n


def test_index_verifies_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verdicts are correct even if all hashes are equal."""
    import nextword.data.filters.decontaminate as module

    def equal_hashes(words: object, n: int) -> tuple[np.ndarray, np.ndarray]:
        hashes, at = real(words, n)
        return hashes * np.uint64(0) + np.uint64(5), at

    real = module.hash_ngrams
    monkeypatch.setattr(module, "hash_ngrams", equal_hashes)
    evaluated = documents(["a b c d e", "f g h i j"])
    index = NgramIndex(evaluated, 5).read(documents(["k l m n o", "p q r s t"]))
    assert not any(verdict.is_dirty for verdict in index.verdicts())
    (first, second) = NgramIndex(evaluated, 5).read(documents(["a b c d e"])).verdicts()
    assert first.is_dirty
    assert not second.is_dirty


def test_index_with_bad_input_raises() -> None:
    with raises(DataError, path="nothing"):
        NgramIndex([], name="nothing")
    with raises(DataError, match="3 words.*8", path="tiny"):
        NgramIndex([Document("one two three")], name="tiny")
    with raises(InvalidSetting, key="n", value=0):
        NgramIndex([Document("one two three")], n=0)


# ------------------------------------------------------------------------------------------------ filtering


def clean(trained: list[Document], *evaluated: list[Document], **more: int) -> list[list[Document]]:
    indexes = [NgramIndex(documents).read(trained) for documents in evaluated]
    return [result.left for result in remove_contamination(trained, indexes, **more)]


def test_remove_contamination_removes_the_leak_with_its_surroundings() -> None:
    evaluated = [Document(prose(1))]
    leak = " ".join(fold_words(evaluated[0].text)[50:70])
    before, after = prose(2), prose(3)
    trained = [*documents([prose(10 + i) for i in range(20)]), Document(f"{before} {leak} {after}", "leaky", "Leaky")]
    left = clean(trained, evaluated)
    assert left[:20] == [[document] for document in trained[:20]]
    first, second = left[20]
    assert before.startswith(first.text)
    assert after.endswith(second.text)
    assert WINDOW - 2 <= len(before) - len(first.text) <= WINDOW + 8  # cut at the next space
    assert WINDOW - 2 <= len(after) - len(second.text) <= WINDOW + 8
    assert set(fold_words(first.text)) | set(fold_words(second.text)) <= set(WORDS)
    assert [(d.id, d.title) for d in (first, second)] == [("leaky#1", "Leaky"), ("leaky#2", "Leaky")]


@given(st.integers(0, 10_000), st.integers(0, 14))
@settings(max_examples=30, deadline=None)
def test_remove_contamination_leaves_no_ngram(seed: int, leaks: int) -> None:
    draw = random.Random(seed)
    evaluated = [Document(prose(seed), "e")]
    words = fold_words(evaluated[0].text)
    text = prose(seed + 1, 200)
    for _ in range(leaks):
        start = draw.randrange(len(words) - 20)
        leak = " ".join(words[start : start + draw.randint(5, 20)])
        text += f" {leak} {prose(draw.randrange(10**6) + 10**5, draw.choice([5, 100]))}"
    (left,) = clean([Document(text, "t")], evaluated)
    quoted = runs(text, 13) & runs(evaluated[0].text, 13)
    assert quoted or left == [Document(text, "t")]
    for piece in left:
        assert piece.text in text
        assert not runs(piece.text, 13) & quoted


def test_cut_spans_drops_short_pieces_and_fragmented_documents() -> None:
    text = "".join(f"{i:09d} " for i in range(2000))
    assert cut_spans(text, [(0, 100)]) == [text[300:].strip()]
    assert cut_spans(text, [(300, 400)]) == [text[600:].strip()]  # 100 preceding characters are too few
    assert cut_spans(text, [(3000, 3100), (3150, 3300)]) == [text[:2800].strip(), text[3500:].strip()]
    far = [(1000 * i, 1000 * i + 100) for i in range(1, MAX_PIECES)]
    assert len(cut_spans(text, far)) == MAX_PIECES
    assert cut_spans(text, [*far, (1000 * MAX_PIECES, 1000 * MAX_PIECES + 100)]) == []


def test_remove_contamination_keeps_common_phrases() -> None:
    phrase = "this work is licensed under the terms that stand at the end of it all"
    evaluated = [Document(f"{prose(1)} {phrase} {prose(2)}")]
    trained = documents([f"{prose(100 + i)} {phrase} {prose(200 + i)}" for i in range(11)])
    assert clean(trained, evaluated) == [[document] for document in trained]
    assert all(len(left) == 2 for left in clean(trained[:10], evaluated))
    assert NgramIndex(evaluated).read(trained).verdicts()[0].is_dirty
    assert not NgramIndex(evaluated).read(trained).verdicts(common=10)[0].is_dirty


def test_remove_contamination_of_several_sets() -> None:
    first, second = [Document(prose(1))], [Document(prose(2))]
    trained = [Document(f"{prose(3)} {prose(1)[:300]} {prose(4)} {prose(2)[:300]} {prose(5)}")]
    assert len(clean(trained, first)[0]) == len(clean(trained, second)[0]) == 2
    assert len(clean(trained, first, second)[0]) == 3


# ------------------------------------------------------------------------------------------------ separate scores


class BitPerByte:
    """A model under which every byte costs one bit, or two in documents with the word `hard`."""

    can = frozenset({"score"})
    tokenizer = SimpleNamespace()
    parameters = 0

    def score_many(self, texts: Sequence[str], given: Sequence[str] | None = None) -> list[Score]:
        sizes = [len(text.encode()) for text in texts]
        bits = [size * (2 if "hard" in text else 1) for size, text in zip(sizes, texts, strict=True)]
        return [Score(b * math.log(2), n, n, n) for b, n in zip(bits, sizes, strict=True)]


def corpus(folder: Path, name: str, texts: Sequence[str], split: str = "test") -> Corpus:
    paths = []
    for i, text in enumerate(texts):
        paths.append(folder / f"{name}{i}.txt")
        paths[-1].write_text(text)
    return Corpus(name, name, {split: TextFiles(tuple(paths))})


def test_clean_and_dirty_documents_are_scored_separately(tmp_path: Path) -> None:
    texts = [prose(i) for i in range(5)] + [f"{prose(9)} hard"]
    evaluated = corpus(tmp_path, "eval", texts)
    trained = corpus(tmp_path, "train", [prose(50), f"{prose(51)} {prose(3)}"], "train")
    contamination = split_by_contamination(evaluated, "test", trained)
    assert [d.text for d in contamination.dirty] == [texts[3]]
    assert [d.text for d in contamination.clean] == [text for text in texts if text != texts[3]]
    report = score_by_contamination(BitPerByte(), contamination)  # type: ignore[arg-type]
    assert report["dirty"]["bits_per_byte"] == pytest.approx(1)
    hard_fraction = len(texts[5]) / sum(map(len, [*texts[:3], *texts[4:]]))
    assert report["clean"]["bits_per_byte"] == pytest.approx(1 + hard_fraction)
    assert (
        report["clean"]["bits_per_byte_low"]
        <= report["clean"]["bits_per_byte"]
        <= report["clean"]["bits_per_byte_high"]
    )
    assert report["contamination"]["dirty"] == 1
    assert report["contamination"]["training_documents"] == 2
    assert report["examples"][0]["seen_in"] == "train1.txt"


def test_all_clean_gives_an_empty_dirty_subset(tmp_path: Path) -> None:
    contamination = split_by_contamination(
        corpus(tmp_path, "eval", [prose(1)]), "test", corpus(tmp_path, "train", [prose(2)], "train")
    )
    report = score_by_contamination(BitPerByte(), contamination)  # type: ignore[arg-type]
    assert report["dirty"]["documents"] == 0
    assert report["dirty"]["bits_per_byte"] is None
    assert report["clean"]["documents"] == 1
    unable = SimpleNamespace(can=frozenset(), score_many=None)
    with pytest.raises(NextwordError):
        score_by_contamination(unable, contamination)  # type: ignore[arg-type]


def test_index_finds_wikitext_articles_in_their_own_text(shared: Path) -> None:
    evaluated = open_unsplit(shared / "wikitext-2-raw")
    articles = list(evaluated.documents("test"))
    plain = articles[5].text.replace(" @-@ ", "-").replace(" ,", ",").replace(" 's", "'s")
    index = NgramIndex(articles).read([Document(plain[:2000], "plain")])
    dirty = [verdict for verdict in index.verdicts() if verdict.is_dirty]
    assert [verdict.document.title for verdict in dirty] == [articles[5].title]
    assert dirty[0].seen > 250
