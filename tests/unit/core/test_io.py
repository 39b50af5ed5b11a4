"""JSON is read within limits; infinite numbers are null in it and ∞ when printed; compressed and atomic files."""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from pathlib import Path

import pytest

from nextword.core.errors import DataError, MissingFile
from nextword.core.io import (
    MAX_JSON_DEPTH,
    DecompressedFile,
    cache_folder,
    forget,
    format_number,
    parse_json,
    read_json,
    remembered,
    replace_nonfinite,
    restore_infinities,
    write_atomically,
)

IMPOSSIBLE = {
    "nats": math.inf,
    "bits_per_byte": math.inf,
    "bits_per_byte_low": math.inf,
    "bits_per_byte_high": math.inf,
    "word_perplexity": math.inf,
    "token_perplexity": math.inf,
    "tokens": 8,
    "impossible": 1,
    "lossless": True,
    "context": None,
    "conventions": [{"name": "all", "perplexity": math.inf, "nats": math.inf, "impossible": 1}],
    "surprisal": [1.0, math.inf, 2.0],
}


def test_infinities_round_trip_through_json() -> None:
    text = json.dumps(replace_nonfinite(IMPOSSIBLE), allow_nan=False)
    assert restore_infinities(json.loads(text)) == IMPOSSIBLE


def test_restore_infinities_without_impossible_tokens_keeps_none() -> None:
    short = {"bits_per_byte": 2.0, "bits_per_byte_low": None, "word_perplexity": None, "impossible": 0}
    assert restore_infinities(short) == short
    assert restore_infinities({"bits_per_byte": None, "token_perplexity": 5.0}) == {
        "bits_per_byte": None,
        "token_perplexity": 5.0,
    }


def test_restore_infinities_of_lossy_tokenizer_keeps_bits_per_byte_none() -> None:
    words = {
        "bits_per_byte": None,
        "bits_per_byte_low": None,
        "token_perplexity": None,
        "impossible": 3,
        "lossless": False,
    }
    assert restore_infinities(words) == words | {"token_perplexity": math.inf}


def test_replace_nonfinite_reaches_nested_values() -> None:
    assert replace_nonfinite({"a": (math.inf, [math.nan, {"b": -math.inf}], 1.5, "inf", None)}) == {
        "a": [None, [None, {"b": None}], 1.5, "inf", None]
    }


def test_format_number_handles_none_and_infinity() -> None:
    assert [format_number(value, 2) for value in (None, math.inf, 1234.567)] == ["–", "∞", "1,234.57"]


@pytest.mark.parametrize("value", [1e7, 3.23423e73, 1e300])
def test_format_number_of_huge_perplexity_is_short(value: float) -> None:
    shown = format_number(value, 2)
    assert len(shown) <= 9
    assert float(shown) == pytest.approx(value, rel=0.01)


def read_all(file: DecompressedFile) -> bytes:
    buffer, size = bytearray(100_000), 0
    while count := file.read_into(memoryview(buffer)[size:]):
        size += count
    return bytes(buffer[:size])


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz"])
def test_written_file_of_any_compression_reads_back(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"file{suffix}"
    with write_atomically(path) as stream:
        stream.write(b"some bytes" * 1000)
    file = DecompressedFile(path)
    assert read_all(file) == b"some bytes" * 1000
    assert file.position() == file.size
    file.close()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_write_atomically_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with suppress(KeyError), write_atomically(path) as stream:
        stream.write(b"half of the new")
        raise KeyError
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_decompressed_file_missing_or_truncated_raises(tmp_path: Path) -> None:
    with pytest.raises(MissingFile) as missing:
        DecompressedFile(tmp_path / "nowhere.gz")
    assert missing.value.path == str(tmp_path / "nowhere.gz")
    path = tmp_path / "file.gz"
    with write_atomically(path) as stream:
        stream.write(bytes(range(256)) * 100)
    path.write_bytes(path.read_bytes()[:-20])
    file = DecompressedFile(path)
    with pytest.raises(DataError) as damaged:
        read_all(file)
    assert damaged.value.path == str(path)


# ------------------------------------------------------------------------------------------------ memory


class Length:
    """The length of a file, and how often it was computed."""

    def __init__(self, folder: Path) -> None:
        self.path, self.count = folder / "file", 0
        self.path.write_text("first")

    def __call__(self) -> str:
        def compute() -> str:
            self.count += 1
            return self.path.read_text()

        return remembered(self.path, "text", compute)


@pytest.fixture
def fact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Length:
    monkeypatch.setenv("NEXTWORD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("nextword.core.io.REMEMBERED_SIZE", 1)
    monkeypatch.setattr("nextword.core.io.SETTLED", -10.0)  # or else only files of a certain age are remembered
    return Length(tmp_path)


def test_fact_about_an_unchanged_file_is_computed_once(fact: Length) -> None:
    assert [fact(), fact(), remembered(fact.path, "other", lambda: "another fact"), fact()] == [
        "first", "first", "another fact", "first"
    ]  # fmt: skip
    assert fact.count == 1
    forget(fact.path)
    assert (fact(), fact.count) == ("first", 2)


def test_fact_is_computed_again_if_a_change_leaves_size_and_time(fact: Length) -> None:
    before = fact.path.stat()
    fact()
    fact.path.write_text("again")
    os.utime(fact.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (fact.path.stat().st_size, fact.path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert (fact(), fact.count) == ("again", 2)


def test_fact_is_computed_again_if_another_file_takes_the_name(fact: Length) -> None:
    fact()
    other = fact.path.with_name("other")
    other.write_text("other")
    os.replace(other, fact.path)
    assert (fact(), fact.count) == ("other", 2)


def test_fact_about_a_small_or_fresh_file_is_not_remembered(fact: Length, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nextword.core.io.SETTLED", 1e9)
    assert (fact(), fact(), fact.count) == ("first", "first", 2)
    monkeypatch.setattr("nextword.core.io.SETTLED", -10.0)
    monkeypatch.setattr("nextword.core.io.REMEMBERED_SIZE", 100)
    assert (fact(), fact(), fact.count) == ("first", "first", 4)
    assert not cache_folder("files").exists()


def test_fact_is_not_remembered_if_the_file_changes_meanwhile(fact: Length) -> None:
    def compute() -> str:
        fact.path.write_text("changed meanwhile")
        return "first"

    assert remembered(fact.path, "text", compute) == "first"
    assert (fact(), fact.count) == ("changed meanwhile", 1)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"version": 7, "text": "wrong"}', b"\xff"])
def test_damaged_memory_is_computed_again(content: bytes, fact: Length) -> None:
    fact()
    (entry,) = cache_folder("files").iterdir()
    entry.write_bytes(content)
    assert (fact(), fact.count) == ("first", 2)
    assert (fact(), fact.count) == ("first", 2)


def test_cache_folder_that_cannot_be_made_is_no_error(fact: Length, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert (fact(), fact(), fact.count) == ("first", "first", 2)
    forget(fact.path)


# ------------------------------------------------------------------------------------------------ JSON

REFUSED = {
    "nothing": b"",
    "half an object": b'{"a": 1',
    "not UTF-8": b'\n{"a": "caf\xe9"}',
    "NaN": b'{"a": NaN}',
    "an infinity": b'{"a": -Infinity}',
    "a number beyond all floats": b'{"a": 1e999}',
    "an integer of 5,000 digits": b'{"a": ' + b"9" * 5_000 + b"}",
    "a key twice": b'{"b": [{"a": 1, "a": 2}]}',
    "half of a surrogate pair": b'{"a": "\\ud83d"}',
    "levels over the limit": b'{"a": ' * (MAX_JSON_DEPTH + 1) + b"1" + b"}" * (MAX_JSON_DEPTH + 1),
    "levels beyond the stack": b"[" * 200_000 + b"]" * 200_000,
    "levels that do not end": b'{"a":' * 200_000,
    "a list": b"[1]",
    "a string full of brackets": b'"' + b"[" * 200 + b'"',
    "no key": b"{}",
    "null": b'{"a": null}',
    "a boolean for an integer": b'{"a": true}',
}


@pytest.mark.parametrize("content", REFUSED.values(), ids=REFUSED.keys())
def test_json_file_that_cannot_be_used_is_a_data_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_json(path, {"a": int})
    assert caught.value.path == str(path)


def test_json_error_names_the_line() -> None:
    for text, line in ((b'{\n"a" 1}', 2), (b'{\n\n"a": "\xff"}', 3)):
        with pytest.raises(DataError) as caught:
            parse_json(text, "a.json")
        assert caught.value.line == line
    with pytest.raises(DataError) as caught:
        parse_json('{"a" 1}', "a.jsonl", 17)
    assert caught.value.line == 17


def test_json_within_the_limits_is_read(tmp_path: Path) -> None:
    deep = "[" * MAX_JSON_DEPTH + "]" * MAX_JSON_DEPTH
    assert parse_json(deep, "deep") == json.loads(deep)
    path = tmp_path / "a.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1, "b": {"c": "\\ud83d\\ude00"}, "d": [[0.5]]}')
    types = {"a": float, "b": dict | None, "d": list, "e": str | None}
    assert read_json(path, types) == {"a": 1, "b": {"c": "\U0001f600"}, "d": [[0.5]]}


def test_json_file_over_the_size_limit_is_refused_before_it_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nextword.core.io.MAX_JSON_BYTES", 10)
    path = tmp_path / "a.json"
    path.write_text('{"a": 123}')
    assert read_json(path) == {"a": 123}
    path.write_text('{"a": 1234}')
    with pytest.raises(DataError):
        read_json(path)


def test_json_path_without_a_file_is_a_missing_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "none.json", tmp_path, tmp_path / "pipe"):
        with pytest.raises(MissingFile):
            read_json(path)
