"""`nextword convert` rejects existing targets, unknown formats, and incomplete runs."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from .conftest import BY_HAND, Cli, expect_error, sets


@pytest.mark.parametrize(
    ("target", "changes", "message"),
    [
        ("hand.arpa", (), "overwrites"),
        ("full", (), "overwrites"),
        ("full.arpa", (), "overwrites"),
        ("hand.arpa/run", (), "hand.arpa is a file, not a folder"),
        ("model.bin", (), "ending"),
        ("model.gz", (), "ending"),
        ("run", ("model.order=2",), "model.layout and model.bits"),
        ("run", ("modle.layout=fast",), "model.layout and model.bits"),
        ("run", ("model.layout",), "model.layout"),
        ("run", ("model.layout=small",), "compact"),
        ("run", ("model.bits=8",), "'compact'"),
        ("run", ("model.bits=few",), "must be a whole number"),
        ("run", ("model.layout=compact", "model.bits=99"), "bits = 99"),
        ("run", ("tokenizer.lower=perhaps",), "tokenizer.lower"),
        ("out.arpa", ("arpa.convention=moses",), "kenlm, srilm"),
        ("out.arpa", ("model.layout=compact",), "arpa.convention"),
    ],
)
def test_write_to_wrong_target_or_setting_names_it(
    cli: Cli, by_hand: Path, tmp_path: Path, target: str, changes: tuple[str, ...], message: str
) -> None:
    for name in ("full", "full.arpa"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / "mine.txt").write_text("to be kept")
    settings = sets(*changes)
    assert message in expect_error(cli, by_hand, tmp_path / target, *settings)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("nothing", None, "does not exist"),
        ("text.txt", b"once upon a time\n", "text.txt"),
        ("packed.gz", gzip.compress(b"once upon a time\n", mtime=0), "packed.gz"),
        ("cut.gz", gzip.compress(BY_HAND.encode())[:-12], "cut.gz"),
        ("cut.arpa", BY_HAND[:-20].encode(), "line 13"),
        ("empty.arpa", b"", "expected a line \\data\\"),
        ("kenlm.bin", b"mmap lm http://kheafield.com/code format version 5\n\0", "KenLM binary"),
        ("kenlm.arpa", b"mmap lm http://kheafield.com/code format version 5\n\0", "KenLM binary"),
        ("model.ngram", b"nextword n-grams\0\0\0\0", "run folder"),
        ("folder/file", b"", "manifest.json"),
    ],
)
def test_read_wrong_source_names_the_problem(
    cli: Cli, tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    path = tmp_path / "in" / name
    path.parent.mkdir(parents=True)
    if content is not None:
        path.write_bytes(content)
    source = path.parent if name == "folder/file" else path
    assert message in expect_error(cli, source, tmp_path / "run")


def test_convert_network_to_arpa_fails(cli: Cli, run: Path, tmp_path: Path) -> None:
    for target in ("out.arpa", "again"):
        message = expect_error(cli, run, tmp_path / target)
        assert "LSTM" in message


def test_convert_unsupported_network_to_int8_fails(cli: Cli, run: Path, tmp_path: Path) -> None:
    message = expect_error(cli, run, tmp_path / "again", *sets("model.bits=8"))
    assert "LSTM" in message
    assert "int8" in message


def test_convert_cache_mixture_to_arpa_fails(cli: Cli, data: Path, tmp_path: Path) -> None:
    asked = ("--set", "model.order=2", "--set", "model.cache=10")
    cli("train", "ngram/kn5", "--data", data, "--out", tmp_path / "run", *asked)
    for target in ("out.arpa", "again"):
        assert "no back-off model" in expect_error(cli, tmp_path / "run", tmp_path / target)


def test_convert_damaged_or_unfinished_run_fails(cli: Cli, words: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(words, tmp_path / "broken"))
    path = broken / "model.ngram"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    assert "checksum" in expect_error(cli, broken, tmp_path / "out.arpa")
    manifest = json.loads((broken / "manifest.json").read_text())
    for name in ("model.ngram", "model.json"):
        del manifest["files"][name]
    (broken / "manifest.json").write_text(json.dumps(manifest))
    assert "has no model yet" in expect_error(cli, broken, tmp_path / "out.arpa")
