"""Infinite numbers are null in JSON and ∞ when printed; compressed and atomic files."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path

import pytest

from nextword.core.errors import DataError, MissingFile
from nextword.core.io import (
    DecompressedFile,
    format_number,
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
