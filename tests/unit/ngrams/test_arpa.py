"""ARPA files: accepted variants, errors with their line, and round trips."""

from __future__ import annotations

import bz2
import gzip
import lzma
import math
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextword.core.errors import DataError, InvalidSetting, MissingDependency, NextwordError, Unsupported
from nextword.ngrams import arpa
from nextword.ngrams.arpa import read_arpa, write_arpa
from nextword.ngrams.trie import NONE, Level, Trie, build_section
from nextword.tokenizers.words import Words
from tests.support.reference_ngrams import assert_sound, find_node, log_prob

LN10 = math.log(10)

SMALL = """\\data\\
ngram 1=5
ngram 2=3
ngram 3=1

\\1-grams:
-1\t<unk>\t-0.5
-99\t<s>\t-0.25
-0.5\t</s>
-0.75\ta\t-0.125
-1.25\tb\t0.5

\\2-grams:
-0.25\t<s> a\t-1
-0.5\ta b\t0
-0.3\tb </s>

\\3-grams:
-0.1\t<s> a b

\\end\\
"""  # a: 2, b: 3


def write_file(folder: Path, text: str | bytes, name: str = "model.arpa") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def value(trie: Trie, *ngram: int) -> float:
    node = find_node(trie, ngram)
    assert node is not None
    return float(trie.levels[len(ngram) - 1].log_probs[node]) / LN10


def backoff(trie: Trie, *ngram: int) -> float:
    node, backoffs = find_node(trie, ngram), trie.levels[len(ngram) - 1].log_backoffs
    assert node is not None
    assert backoffs is not None
    return float(backoffs[node]) / LN10


def assert_same(a: Trie, b: Trie) -> None:
    assert [len(level) for level in a.levels] == [len(level) for level in b.levels]
    for level, other in zip(a.levels, b.levels, strict=True):
        for name in ("words", "links", "first"):
            assert np.array_equal(getattr(level, name), getattr(other, name))
        np.testing.assert_allclose(other.log_probs, level.log_probs, rtol=0, atol=1e-6)
        if level.log_backoffs is not None:
            np.testing.assert_allclose(other.log_backoffs, level.log_backoffs, rtol=0, atol=1e-6)


def test_read_arpa_gives_the_values_of_the_file(tmp_path: Path) -> None:
    trie, names = read_arpa(write_file(tmp_path, SMALL))
    assert_sound(trie)
    assert names == ["<unk>", "<eos>", "a", "b"]
    assert (trie.order, trie.size, trie.boundary, trie.facts["inserted"]) == (3, 4, 1, 0)
    assert value(trie, 1) == pytest.approx(-0.5)  # of </s>
    assert backoff(trie, 1) == pytest.approx(-0.25)  # of <s>
    assert backoff(trie, 3) == pytest.approx(0.5)
    assert value(trie, 1, 2, 3) == pytest.approx(-0.1)
    assert log_prob(trie, [1, 2], 2) == pytest.approx(LN10 * (-1 - 0.125 - 0.75))  # both back-offs, then the unigram a


def test_read_arpa_names_fit_the_tokenizer(tmp_path: Path) -> None:
    _, names = read_arpa(write_file(tmp_path, SMALL))
    assert Words(names[2:]).encode("a b\nc").ids.tolist() == [2, 3, 1, 0]


def test_spaces_blank_lines_and_a_preamble_are_accepted(tmp_path: Path) -> None:
    loose = SMALL.replace("\t", " ").replace("\n", " \r\n").replace("-0.5 a b", "\r\n  -0.5   a   b  ")
    trie, names = read_arpa(
        write_file(tmp_path, "# made by hand\n\nanything\n" + loose.replace("ngram 1=", "ngram  1 = "))
    )
    expected, same_names = read_arpa(write_file(tmp_path, SMALL))
    assert names == same_names
    assert_same(expected, trie)


def test_byte_order_mark_and_missing_last_line_end_are_accepted(tmp_path: Path) -> None:
    assert_same(
        read_arpa(write_file(tmp_path, SMALL))[0], read_arpa(write_file(tmp_path, "\ufeff" + SMALL.rstrip("\n")))[0]
    )


def test_lines_may_be_in_any_order(tmp_path: Path) -> None:
    reordered = SMALL.replace(
        "-0.25\t<s> a\t-1\n-0.5\ta b\t0\n-0.3\tb </s>", "-0.3\tb </s>\n-0.5\ta b\n-0.25\t<s> a\t-1"
    )
    assert reordered != SMALL
    assert_same(read_arpa(write_file(tmp_path, SMALL))[0], read_arpa(write_file(tmp_path, reordered))[0])


def test_only_ascii_spaces_separate_words(tmp_path: Path) -> None:
    word = "a\u00a0b\u2028\x0b\x85"
    trie, names = read_arpa(write_file(tmp_path, SMALL.replace("a", word).replace(f"\\d{word}t{word}", "\\data")
                                .replace(f"gr{word}m", "gram")))  # fmt: skip
    assert names[2] == word
    assert value(trie, 2, 3) == pytest.approx(-0.5)


def test_unknown_word_is_read_under_either_name_or_inserted(tmp_path: Path) -> None:
    trie, names = read_arpa(write_file(tmp_path, SMALL.replace("<unk>", "<UNK>")))
    assert names[0] == "<unk>"
    assert value(trie, 0) == pytest.approx(-1)
    trie, names = read_arpa(write_file(tmp_path, SMALL.replace("<unk>", "word")))
    assert names == ["<unk>", "<eos>", "word", "a", "b"]
    assert value(trie, 0) == pytest.approx(-100)
    assert backoff(trie, 0) == 0
    trie, names = read_arpa(
        write_file(tmp_path, SMALL.replace("\ta\t", "\t<UNK>\t").replace(" a", " <UNK>").replace("\ta ", "\t<UNK> "))
    )
    assert names == ["<unk>", "<eos>", "<UNK>", "b"]


@pytest.mark.parametrize("number", ["-99", "0", "-inf", "5", "1e3"])
def test_probability_of_the_sentence_start_is_ignored(tmp_path: Path, number: str) -> None:
    assert_same(
        read_arpa(write_file(tmp_path, SMALL))[0], read_arpa(write_file(tmp_path, SMALL.replace("-99", number)))[0]
    )


@pytest.mark.parametrize(
    ("number", "expected"),
    [("0", 0), ("-0.0", 0), ("-99", -99), ("-inf", -math.inf), ("-1.5e-3", -0.0015), ("-.5E1", -5)],
)
def test_numbers_in_formats_of_other_tools_are_read(tmp_path: Path, number: str, expected: float) -> None:
    trie, _ = read_arpa(write_file(tmp_path, SMALL.replace("-0.75\ta", f"{number}\ta")))
    assert value(trie, 2) == pytest.approx(expected)


def parse(text: str) -> float:
    raw = np.frombuffer(bytearray(text.encode()), np.uint8)
    return arpa.parse_number(raw, 0, len(raw))


@given(st.floats(-1e300, 1e300) | st.just(-math.inf), st.sampled_from(["{!r}", "{:.7g}", "{:.20e}", "{:+.9f}", "{:E}"]))
def test_parse_number_matches_python(x: float, form: str) -> None:
    text = form.format(x)
    assert parse(text) == pytest.approx(float(text), rel=1e-14, abs=1e-300)


@given(st.text(alphabet="0123456789.eE+-infaty ", max_size=8))
def test_parse_number_of_invalid_text_is_nan(text: str) -> None:
    try:
        expected = float(text) if text == text.strip() else math.nan
    except ValueError:
        expected = math.nan
    assert parse(text) == pytest.approx(expected, rel=1e-14, abs=1e-300, nan_ok=True)


def test_missing_parents_and_links_are_inserted(tmp_path: Path) -> None:
    pruned = SMALL.replace("-0.25\t<s> a\t-1\n-0.5\ta b\t0\n", "").replace("ngram 2=3", "ngram 2=1")
    trie, _ = read_arpa(write_file(tmp_path, pruned))
    assert_sound(trie)
    assert trie.facts["inserted"] == 2
    assert value(trie, 1, 2) == pytest.approx(-0.25 - 0.75)  # back-off of <s>, then a
    assert value(trie, 2, 3) == pytest.approx(-0.125 - 1.25)
    assert backoff(trie, 1, 2) == backoff(trie, 2, 3) == 0


def test_missing_orders_are_inserted(tmp_path: Path) -> None:
    """Only 4-grams: every lower level is inserted, including parents and suffixes of inserted n-grams."""
    text = SMALL.split("\\2-grams")[0].replace("ngram 2=3\nngram 3=1", "ngram 2=0\nngram 3=0\nngram 4=1")
    trie, _ = read_arpa(write_file(tmp_path, text + "\\4-grams:\n-0.1 <s> a b </s>\n\\end\\\n"))
    assert_sound(trie)
    assert [len(level) for level in trie.levels] == [4, 3, 2, 1]
    assert trie.facts["inserted"] == 5
    assert value(trie, 1, 2, 3) == pytest.approx(-0.125 - 1.25)  # <s> a was missing: only the back-off of a


@pytest.mark.parametrize("ending", ["\\3-grams:\n\n\\end\\\n", "\\end\\\n"])
def test_highest_order_may_be_empty(tmp_path: Path, ending: str) -> None:
    text = SMALL.replace("ngram 3=1", "ngram 3=0").split("\\3-grams")[0] + ending
    trie, names = read_arpa(write_file(tmp_path, text))
    assert_sound(trie)
    assert [len(level) for level in trie.levels] == [4, 3, 0]
    assert log_prob(trie, [1, 2], 2) == pytest.approx(LN10 * (-1 - 0.125 - 0.75))
    write_arpa(trie, names, tmp_path / "again.arpa")
    assert_same(trie, read_arpa(tmp_path / "again.arpa")[0])


def test_unigrams_alone_are_a_model(tmp_path: Path) -> None:
    trie, names = read_arpa(write_file(tmp_path, "\\data\\\nngram 1=3\n\\1-grams:\n-1 <s>\n-0.3 </s>\n-0.3 a\n\\end\\"))
    assert_sound(trie)
    for convention in arpa.CONVENTIONS:
        write_arpa(trie, names, tmp_path / "again.arpa", convention)
        assert_same(trie, read_arpa(tmp_path / "again.arpa")[0])


def test_model_larger_than_a_block_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, names = read_arpa(write_file(tmp_path, SMALL))
    monkeypatch.setattr(arpa, "_BLOCK", 16)
    monkeypatch.setattr(arpa, "_ROOM", 1)
    trie, same_names = read_arpa(write_file(tmp_path, SMALL))
    assert names == same_names
    assert_same(expected, trie)
    updates: list[float] = []
    write_arpa(trie, names, tmp_path / "again.arpa", progress=lambda done, total: updates.append(done))
    assert updates == list(range(1, 10))
    assert_same(expected, read_arpa(tmp_path / "again.arpa")[0])


ONE_BIGRAM = "-0.5\ta b\t0\n"
FAULTS = {
    "no data": ("just\ntext\n", 3, "data"),
    "empty": ("", 1, "data"),
    "a binary of KenLM": ("mmap lm http://kheafield.com/code format version 5\n\0", 1, "KenLM"),
    "no counts": ("\\data\\\n\n\\1-grams:\n", 3, "ngram 1="),
    "counts that skip": (SMALL.replace("ngram 2=3\n", ""), 3, "'ngram 2='"),
    "an invalid count": (SMALL.replace("ngram 2=3", "ngram 2=many"), 3, "'ngram 2=many'"),
    "a negative count": (SMALL.replace("ngram 2=3", "ngram 2=-3"), 3, "'ngram 2=-3'"),
    "a count above the file's size": (SMALL.replace("ngram 2=3", "ngram 2=1000"), 3, "room"),
    "a count above the rest of the file": (SMALL.replace("1=5", f"1={len(SMALL) // 4}"), 3, "room"),
    "a huge count": (SMALL.replace("ngram 2=3", "ngram 2=" + 30 * "9"), 3, "room"),
    "a count of thousands of digits": (SMALL.replace("ngram 2=3", "ngram 2=" + 9000 * "9"), 3, "room"),
    "an order of thousands of digits": (SMALL.replace("ngram 2=3", f"ngram {9000 * '2'}=3"), 3, "'ngram 2='"),
    "an absurd order": ("\\data\\\nngram 1=1\n" + "".join(f"ngram {n}=0\n" for n in range(2, 999)), 258, "up to 256"),
    "no such section": (SMALL.replace("\\2-grams:", "\\3-grams:"), 13, "expected the section \\2-grams:"),
    "text in place of a section": (SMALL.replace("\\1-grams:", "words"), 6, "'words'"),
    "one section too many": (SMALL.replace("\\end\\", "\\4-grams:\n\\end\\"), 21, "expected \\end\\"),
    "fewer n-grams than counted": (SMALL.replace(ONE_BIGRAM, ""), 17, "after 2 2-grams; expected 3"),
    "more n-grams than counted": (SMALL.replace(ONE_BIGRAM, ONE_BIGRAM + "-0.1 b b\n"), 17, "one more 2-gram"),
    "fewer words than counted": (SMALL.replace("-1.25\tb\t0.5\n", ""), 12, "after 4 1-grams; expected 5"),
    "no probability": (SMALL.replace("-0.5\ta b", "a b"), 15, "'a'; expected a number"),
    "half a number": (SMALL.replace("-0.5\ta b", "-0.5x\ta b"), 15, "'-0.5x'; expected a number"),
    "not a number": (SMALL.replace("-0.5\ta b", "nan\ta b"), 15, "'nan'; expected a number"),
    "a positive probability": (SMALL.replace("-0.5\ta b", "0.5\ta b"), 15, "'0.5'; expected a log10 probability"),
    "a positive unigram": (SMALL.replace("-0.75\ta", "0.1\ta"), 10, "'0.1'"),
    "an invalid back-off": (SMALL.replace("a b\t0", "a b\tb"), 15, "'b'; expected a finite number"),
    "an infinite back-off": (SMALL.replace("a b\t0", "a b\tinf"), 15, "'inf'; expected a finite number"),
    "a huge back-off": (SMALL.replace("a b\t0", "a b\t1e9"), 15, "'1e9'; expected a finite number"),
    "one word too few": (SMALL.replace("<s> a b", "<s> a"), 19, "3 columns ('-0.1\\t<s> a'); expected 4 or 5"),
    "one word too many": (SMALL.replace("a b\t0", "a b b\t0"), 15, "5 columns ('-0.5\\ta b b\\t0'); expected 3 or 4"),
    "an unknown word": (SMALL.replace("a b\t0", "a c\t0"), 15, "'c'; expected a word"),
    "a word twice": (SMALL.replace("-1.25\tb", "-1.25\ta"), 11, "'a' for the second time"),
    "the unknown word twice": (SMALL.replace("-1.25\tb", "-1.25\t<unk>"), 11, "second time"),
    "an n-gram twice": (SMALL.replace("-0.5\ta b", "\n-0.5\t<s> a"), 16, "'<s> a' for the second time"),
    "<s> within": (SMALL.replace("<s> a b", "a <s> b"), 19, "'<s>'; expected <s> as the first"),
    "</s> within": (SMALL.replace("<s> a b", "a </s> b"), 19, "'</s>'; expected </s> as the last"),
    "</s> first": (SMALL.replace("a b\t0", "</s> b\t0"), 15, "'</s>'"),
    "no end": (SMALL.replace("\\end\\\n", ""), 21, "truncated; expected \\end\\"),
    "truncated in the header": (SMALL[:20], 3, "'ngr'"),
    "truncated after a line": (SMALL[: SMALL.index("-0.3\tb")], 16, "truncated; expected 1 more 2-grams"),
    "truncated in a word": (SMALL[: SMALL.index("-0.3\tb") + 5], 16, "truncated"),
    "not UTF-8": (SMALL.encode().replace(b"\tb", b"\t\xff"), 11, "not UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_bad_file_is_rejected_with_its_line(tmp_path: Path, fault: str) -> None:
    text, line, quoted = FAULTS[fault]
    path = write_file(tmp_path, text)
    with pytest.raises(DataError) as error:
        read_arpa(path)
    assert (error.value.path, error.value.line) == (str(path), line)
    assert quoted in str(error.value)


def test_huge_count_in_a_compressed_file_allocates_nothing(tmp_path: Path) -> None:
    """How long the text is, nobody knows before it is read; an allocation of this size would be 50 GB."""
    for count, quoted in (("4000000000", "after 3 2-grams"), ("5000000000", "no room for more")):
        text = gzip.compress(SMALL.replace("ngram 2=3", f"ngram 2={count}").encode())
        with pytest.raises(DataError, match=quoted):
            read_arpa(write_file(tmp_path, text, f"{count}.arpa.gz"))


def test_missing_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(NextwordError, match=r"none\.arpa"):
        read_arpa(tmp_path / "none.arpa")


def test_file_truncated_anywhere_is_rejected(tmp_path: Path) -> None:
    for length in range(len(SMALL) - 1):
        with pytest.raises(NextwordError):
            read_arpa(write_file(tmp_path, SMALL[:length].removesuffix("\\end\\")))


@given(st.integers(0, len(SMALL) - 1), st.integers(0, 3), st.binary(max_size=3))
def test_damaged_file_is_read_or_rejected(start: int, removed: int, inserted: bytes) -> None:
    raw = SMALL.encode()
    with tempfile.TemporaryDirectory() as folder:
        path = write_file(Path(folder), raw[:start] + inserted + raw[start + removed :])
        try:
            trie = read_arpa(path)[0]
        except DataError:
            return
        assert_sound(trie)


def zstd(text: bytes) -> bytes:
    return pytest.importorskip("zstandard").ZstdCompressor().compress(text)


PACKERS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd}


@pytest.mark.parametrize("suffix", PACKERS)
def test_compressed_files_are_read_and_written(tmp_path: Path, suffix: str) -> None:
    expected, names = read_arpa(write_file(tmp_path, SMALL))
    packed = PACKERS[suffix](SMALL.encode())
    assert_same(expected, read_arpa(write_file(tmp_path, packed, f"model.arpa.{suffix}"))[0])
    assert_same(
        expected, read_arpa(write_file(tmp_path, packed, "model.arpa"))[0]
    )  # recognized by content, not by name
    write_arpa(expected, names, tmp_path / f"again.arpa.{suffix}")
    assert (tmp_path / f"again.arpa.{suffix}").read_bytes()[:2] == packed[:2]
    assert_same(expected, read_arpa(tmp_path / f"again.arpa.{suffix}")[0])
    with pytest.raises(DataError):
        read_arpa(write_file(tmp_path, packed[: len(packed) // 2], f"cut.arpa.{suffix}"))


def test_zstd_without_its_package_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trie, names = read_arpa(write_file(tmp_path, SMALL))
    packed = write_file(tmp_path, zstd(SMALL.encode()), "model.arpa.zst")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingDependency):
        read_arpa(packed)
    with pytest.raises(MissingDependency):
        write_arpa(trie, names, tmp_path / "again.arpa.zst")


def small_trie() -> Trie:
    """Four words <unk>, boundary, a, b; bigrams <s> a, <s> </s>, a b, b </s>, b b."""
    return Trie(
        [
            Level(
                np.arange(4, dtype=np.uint32), None, np.array([0, 0, 2, 3, 5], np.uint32),
                np.array([-2.5, -2, -1.5, -1], np.float32), np.array([0, -0.5, -0.25, 0.75], np.float32),
            ),
            Level(
                np.array([1, 2, 3, 1, 3], np.uint32), np.array([1, 2, 3, 1, 3], np.uint32), None,
                np.array([-np.inf, -0.25, -1e-9, -31.25, 1e-7], np.float32), None,
            ),
        ],
        boundary=1,
    )  # fmt: skip


def test_write_arpa_in_either_convention_gives_expected_lines(tmp_path: Path) -> None:
    names = ["<unk>", "anything", "a", "b"]
    write_arpa(small_trie(), names, tmp_path / "kenlm.arpa")
    write_arpa(small_trie(), names, tmp_path / "srilm.arpa", "srilm")
    lines = (tmp_path / "kenlm.arpa").read_text().split("\n")
    assert lines[:9] == [
        "\\data\\", "ngram 1=5", "ngram 2=5", "", "\\1-grams:",
        "-1.0857362\t<unk>\t0", "0\t<s>\t-0.21714724", "-0.86858896\t</s>\t0", "-0.65144172\ta\t-0.10857362",
    ]  # fmt: skip
    assert lines[10:] == [
        "", "\\2-grams:",
        "-99\t<s> </s>", "-0.10857362\t<s> a", "0\ta b", "-13.57170256\tb </s>", "0\tb b",
        "", "\\end\\", "",
    ]  # fmt: skip
    other = (tmp_path / "srilm.arpa").read_text().split("\n")
    assert [(a, b) for a, b in zip(lines, other, strict=True) if a != b] == [
        ("0\t<s>\t-0.21714724", "-99\t<s>\t-0.21714724"),
        ("-0.86858896\t</s>\t0", "-0.86858896\t</s>"),
    ]


def test_unwritable_model_is_rejected_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "model.arpa"
    for names, word in (
        (["<unk>", "", "a b", "c"], "'a b'"),
        (["<unk>", "", "", "c"], "''"),
        (["<unk>", "", "a", "a"], "'a'"),
        (["<unk>", "", "<s>", "a"], "'<s>'"),
    ):
        with pytest.raises(Unsupported, match=word):
            write_arpa(small_trie(), names, path)
    with pytest.raises(InvalidSetting, match="irstlm"):
        write_arpa(small_trie(), ["<unk>", "", "a", "b"], path, "irstlm")
    for invalid in (0.5, np.nan, np.inf):
        trie = small_trie()
        trie.levels[1].log_probs[2] = invalid
        with pytest.raises(DataError, match="2-grams"):
            write_arpa(trie, ["<unk>", "", "a", "b"], path)
    assert trie.levels[0].log_backoffs is not None
    trie.levels[0].log_backoffs[2] = np.inf
    with pytest.raises(DataError, match="1-grams"):
        write_arpa(trie, ["<unk>", "", "a", "b"], path)
    assert list(tmp_path.iterdir()) == []


def test_write_arpa_with_any_boundary_id_round_trips(tmp_path: Path) -> None:
    trie = small_trie()
    trie.boundary = 3  # ids 0, 1, 2 are words; of the bigrams only "2 </s>" remains valid
    trie.levels[0].first[:] = [0, 0, 0, 1, 1]
    trie.levels[1] = Level(*(None if a is None else a[2:3] for a in vars(trie.levels[1]).values()))  # type: ignore[index]
    write_arpa(trie, ["x", "y", "z", ""], tmp_path / "model.arpa")
    restored, names = read_arpa(tmp_path / "model.arpa")
    assert names == ["<unk>", "<eos>", "x", "y", "z"]
    assert value(restored, 4, 1) == pytest.approx(0, abs=1e-6)
    assert value(restored, 1) == pytest.approx(-1 / LN10)
    assert backoff(restored, 1) == pytest.approx(0.75 / LN10)


# ------------------------------------------------------------------------------------------------ chosen collisions


def count_longest_run(slots: np.ndarray) -> int:
    """Full slots of a hash table in a row."""
    runs = "".join("x" if full else " " for full in slots[:-1] != NONE).split()
    return max(map(len, runs))


def colliding(hashes: np.ndarray, count: int) -> np.ndarray:
    """Indices of hashes that belong into the same slot of a table of `count` entries."""
    slot = hashes & np.uint64((1 << (2 * count).bit_length()) - 1)
    values, counts = np.unique(slot, return_counts=True)
    return np.flatnonzero(slot == values[counts.argmax()])[:count]


def test_ngrams_that_were_chosen_to_collide_do_not() -> None:
    count = 100
    candidates = np.random.default_rng(0).integers(0, 1 << 20, (1 << 16, 2)).astype(np.uint32)
    h = np.zeros(len(candidates), np.uint64)
    for column in candidates.T:
        h = (h ^ column) * np.uint64(0x9E3779B97F4A7C15)
        h ^= h >> np.uint64(32)
    rows = candidates[colliding(h, count)]
    assert len(rows) == count
    values = np.zeros(count, np.float32)
    section, duplicate = build_section(rows, values, values)
    assert duplicate == -1
    assert count_longest_run(section.slots) < count // 2


def test_words_that_were_chosen_to_collide_do_not() -> None:
    count = 100
    letters = np.random.default_rng(0).integers(97, 123, (1 << 16, 8)).astype(np.uint8)
    h = np.full(len(letters), 0xCBF29CE484222325, np.uint64)
    for column in letters.T:
        h = (h ^ column) * np.uint64(0x100000001B3)
    words = [bytes(row) for row in letters[colliding(h ^ (h >> np.uint64(29)), count)]]
    assert len(set(words)) == count
    table = arpa.WordTable(words, np.arange(count, dtype=np.uint32))
    assert count_longest_run(table.slots) < count // 2
