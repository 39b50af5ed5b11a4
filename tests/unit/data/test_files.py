"""Encodings: UTF-8, UTF-16 with its mark, and the guess for tables that are neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from nextword.core.errors import DataError
from nextword.data.files import TextStream, guess_encoding, read_chunks
from tests.support.errors import raises

WESTERN = "Größe, café – “l'été” à l'œuvre: 5 €\r\nnaïve\n"
CHINESE = "这部电影很好看，我还想再看一遍。\n房间很小，服务不好\n"
KOREAN = "이 영화는 정말 재미있었다. 다시 보고 싶은 영화다.\n"
RUSSIAN = "Этот фильм мне очень понравился, но актёры играли плохо.\n"
JAPANESE = "この映画はとても面白かったです。また見たいと思います。\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "windows-1252", "gb18030"])
def test_read_text_in_its_encoding(encoding: str, tmp_path: Path) -> None:
    text = CHINESE if encoding == "gb18030" else WESTERN
    (tmp_path / "a.csv").write_bytes(("plain,1\n" * 200_000 + text).encode(encoding))  # more than one block
    stream = TextStream(tmp_path / "a.csv", legacy=True)
    assert "".join(stream.chunks()) == "plain,1\n" * 200_000 + text.replace("\r\n", "\n")
    assert stream.encoding == encoding


def test_text_is_strictly_utf8_unless_a_table(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"plain\n" + WESTERN.encode("windows-1252"))
    with raises(DataError, match="iconv", line=2):
        list(read_chunks(tmp_path / "a.txt"))
    (tmp_path / "b.txt").write_bytes(WESTERN.encode() + b"caf\xe9\n")  # begins as UTF-8
    with raises(DataError, match="0xe9", line=3):
        list(TextStream(tmp_path / "b.txt", legacy=True).chunks())


@pytest.mark.parametrize(
    "data",
    [
        KOREAN.encode("euc-kr"),
        RUSSIAN.encode("windows-1251"),
        RUSSIAN.encode("koi8-r"),
        JAPANESE.encode("shift-jis"),
        JAPANESE.encode("euc-jp"),
        "這部電影很好看，我還想再看一遍。".encode("big5"),
        "déjà vu, l'été".encode("mac-roman"),
        WESTERN.encode() + b"\xff",  # damaged UTF-8
        b"\x03\x04\xe9\x14",
    ],
)
def test_other_encodings_are_not_guessed(data: bytes) -> None:
    assert guess_encoding(data) == ""


def test_ascii_files_have_no_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\n")
    stream = TextStream(tmp_path / "a.csv", legacy=True)
    assert list(stream.lines()) == ["text,label\n"]
    assert stream.encoding == ""
