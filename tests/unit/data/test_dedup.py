"""Near-duplicates equal a slow comparison of all pairs; distinct texts are kept."""

from __future__ import annotations

import errno
import io
import random
import tempfile
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextword.core.errors import CannotWrite, InvalidSetting
from nextword.core.types import Document
from nextword.data.filters.dedup import (
    NEW,
    DuplicateIndex,
    choose_bands,
    detection_probability,
    find_duplicates,
    remove_duplicates,
)
from nextword.data.filters.word_hashes import OVERLAP, fold_words, hash_ngrams, hash_words, join_passages
from tests.support.errors import raises
from tests.support.hash_seeds import run_with_two_hash_seeds

WORDS = [f"w{i}" for i in range(400)]


def text(seed: int, length: int = 200) -> list[str]:
    return random.Random(seed).choices(WORDS, k=length)


def change_words(source: list[str], count: int, seed: int) -> list[str]:
    """Replace `count` words by unique words."""
    draw = random.Random(seed)
    out = list(source)
    for i in draw.sample(range(len(out)), count):
        out[i] = f"x{seed}y{i}"
    return out


@cache
def shingles(document: str, n: int = 5) -> set[tuple[str, ...]]:
    words = fold_words(document)
    return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)} or ({tuple(words)} if words else set())


def jaccard(a: str, b: str) -> float:
    first, second = shingles(a), shingles(b)
    return len(first & second) / len(first | second) if first | second else 0.0


def compare_all(texts: list[str], threshold: float) -> list[int]:
    """Index of the first kept text that each text duplicates, by comparing it with all kept texts."""
    kept: list[str] = []
    out = []
    for item in texts:
        matches = [i for i, other in enumerate(kept) if shingles(item) and jaccard(item, other) >= threshold]
        out.append(matches[0] if matches else NEW)
        if not matches:
            kept.append(item)
    return out


# ------------------------------------------------------------------------------------------------ words

letters = st.text(st.sampled_from("aBcÉß İςΣ中文ไ ,.'-\n\u00ad\u200d1٣@😀\u3000\U00020000"), max_size=40)


@given(st.lists(letters, max_size=5))
@settings(max_examples=200, deadline=None)
def test_hash_words_has_the_words_of_fold_words(texts: list[str]) -> None:
    result = hash_words(texts)
    folded = [fold_words(item) for item in texts]
    assert np.diff(result.firsts).tolist() == [len(item) for item in folded]
    spelled = [word for item in folded for word in item]
    joined = "".join(texts)
    assert [fold_words(joined[a:b]) for a, b in result.spans.tolist()] == [[word] for word in spelled]
    assert len(set(result.hashes.tolist())) == len(set(spelled))  # hashes are equal exactly for equal words
    assert len({*zip(result.hashes.tolist(), spelled, strict=True)}) == len(set(spelled))


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=12), max_size=5), st.integers(1, 5))
@settings(max_examples=100, deadline=None)
def test_hash_ngrams_are_equal_if_their_words_are(texts: list[list[str]], n: int) -> None:
    hashes, at = hash_ngrams(hash_words([" ".join(item) for item in texts]), n)
    runs, places, start = [], [], 0
    for item in texts:
        runs += [tuple(item[i : i + n]) for i in range(len(item) - n + 1)]
        places += [start + i for i in range(len(item) - n + 1)]
        start += len(item)
    assert at.tolist() == places
    assert len({*zip(hashes.tolist(), runs, strict=True)}) == len(set(runs)) == len(set(hashes.tolist()))


def test_fold_words_of_tokenized_text_equal_plain_text() -> None:
    assert fold_words("Ruth 's state @-@ of @-@ the @-@ art cost 1 @,@ 000") == fold_words(
        "ruth’s STATE-of-the-art cost 1,000"
    )
    assert fold_words("中文 text") == ["中", "文", "text"]


def test_join_passages_joins_and_cuts_long_documents() -> None:
    source = [Document("a b ", "1"), Document("c d ", "1", continues=True), Document("e", "2", "title")]
    assert [part.document for part in join_passages(source)] == [Document("a b c d ", "1"), Document("e", "2", "title")]
    long = [Document("abc " * 1000, "1", continues=i > 0) for i in range(5)] + [Document("end", "2")]
    result = list(join_passages(long, 8000))
    assert [len(part.document.text) for part in result] == [8000, 8000, 4000, 3]
    assert [part.document.continues for part in result] == [False, True, True, False]
    assert [len(part.before) for part in result] == [0, OVERLAP, OVERLAP, 0]


# ------------------------------------------------------------------------------------------------ duplicates


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_index_agrees_with_comparing_all_pairs(data: st.DataObject) -> None:
    """If no pair is close to the threshold, the chance of a miss is below one in a million."""
    texts: list[list[str]] = []
    for seed in range(data.draw(st.integers(1, 12))):
        if texts and data.draw(st.booleans()):
            source = data.draw(st.sampled_from(texts))
            texts.append(change_words(source, data.draw(st.sampled_from([0, 1, 2, 60])), seed))
        else:
            texts.append(text(seed))
    spelled = [" ".join(item) for item in texts]
    assert [result.of for result in DuplicateIndex().add(spelled)] == compare_all(spelled, 0.8)


def test_index_reports_exact_similarity() -> None:
    spelled = []
    for seed in range(100):
        source = text(seed)
        spelled += [" ".join(source), " ".join(change_words(source, seed % 16, 1000 + seed))]
    index = DuplicateIndex()
    kept: list[str] = []
    near = hit = 0
    for item, result in zip(spelled, index.add(spelled), strict=True):
        if result.of == NEW:
            near += max((jaccard(item, other) for other in kept), default=0) >= 0.8
            kept.append(item)
        else:
            assert result.similarity == pytest.approx(jaccard(item, kept[result.of]))
            assert result.similarity >= 0.8
            hit += 1
    assert hit > 20
    assert near <= 1  # missed: one in 573 at the threshold, far fewer above


def test_signatures_estimate_similarity() -> None:
    """The fraction of equal hashes estimates the known similarity of pairs."""
    index = DuplicateIndex(exact=False)
    errors = []
    for seed in range(60):
        source = text(seed, 300)
        other = change_words(source, 12, seed)
        index.add([" ".join(source)])
        index.add([" ".join(text(5000 + seed, 300))])
        index.least = 0  # report every text that shares a band, with its estimate
        (result,) = index.add([" ".join(other)])
        index.least = 64
        if result.of != NEW:
            errors.append(result.similarity - jaccard(" ".join(source), " ".join(other)))
    assert len(errors) > 40
    assert abs(np.mean(errors)) < 0.025
    assert np.std(errors) < 0.08


def test_choose_bands_misses_at_most_the_promised_fraction() -> None:
    assert choose_bands(0.8) == (16, 5)
    for threshold in (0.3, 0.5, 0.7, 0.8, 0.9, 0.95):
        bands, rows = choose_bands(threshold)
        assert bands * rows <= 96
        assert detection_probability(threshold, bands, rows) >= 0.998
    assert choose_bands(1.0)[0] == 1
    assert round(1 / (1 - detection_probability(0.8, 16, 5))) == 574
    assert detection_probability(0.3, 16, 5) < 0.05


def test_remove_duplicates_keeps_the_first_and_distinct_texts() -> None:
    documents = [Document(" ".join(text(i)), str(i)) for i in range(300)]
    planted = [Document(d.text.upper().replace(" ", " ,\n"), f"copy {d.id}") for d in documents[::7]]
    result = list(remove_duplicates([*documents, *planted]))
    assert result == documents
    assert list(remove_duplicates(documents)) == documents
    results = [r for d, r in find_duplicates([*documents, *planted]) if d.id.startswith("copy")]
    assert [r.of for r in results] == list(range(0, 300, 7))


def test_index_short_and_empty_texts() -> None:
    result = [r.of for r in DuplicateIndex().add(["one two", "One, two!", "one three", "", "...", "", "one"])]
    assert result == [NEW, 0, NEW, NEW, NEW, NEW, NEW]


def test_index_grows_over_many_batches() -> None:
    index = DuplicateIndex(exact=True)
    for seed in range(30):
        index.add([" ".join(text(100 * seed + i, 30)) for i in range(100)])
    assert index.kept == 3000
    repeated = index.add([" ".join(text(i, 30)) for i in range(3000)])
    assert [r.of for r in repeated] == list(range(3000))


def test_index_is_the_same_in_every_process() -> None:
    code = (
        "from nextword.data.filters.dedup import DuplicateIndex; import random;"
        "t=[' '.join(random.Random(i % 50).choices('abcdefghij', k=60)) + ' z' * (i % 4) for i in range(200)];"
        "print([tuple(r) for r in DuplicateIndex(0.7).add(t)])"
    )
    first, second = run_with_two_hash_seeds(code)
    assert first == second
    assert "-1" in first


@pytest.mark.parametrize("setting", [{"threshold": 0.0}, {"threshold": 1.5}, {"shingle": 0}])
def test_index_with_invalid_setting_names_it(setting: dict[str, float]) -> None:
    ((key, value),) = setting.items()
    with raises(InvalidSetting, key=key, value=value):
        DuplicateIndex(**setting)  # type: ignore[arg-type]


def test_full_disk_for_temporary_files_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class FullFile(io.BytesIO):
        def write(self, data: object, /) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: FullFile())
    index = DuplicateIndex()
    with pytest.raises(CannotWrite, match="TMPDIR"):
        index.add(["one two three four five six seven"])
