"""Data files that are damaged, hostile or too large: one clear error, in bounded memory and time."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import resource
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nextword.core.errors import CannotWrite, DataError, InvalidSetting, MissingFile, NextwordError
from nextword.core.io import SMALL, DecompressedFile
from nextword.data import files as module
from nextword.data.files import (
    LINE_VARIABLE,
    list_members,
    open_archive,
    read_chunks,
    read_member,
    split_lines,
)
from nextword.data.opening import open_corpus, open_unsplit
from nextword.data.readers import read
from nextword.data.tables import read_table
from tests.support.errors import raises
from tests.support.processes import fork, join

zstandard = pytest.importorskip("zstandard")
TEXT = b"the old king went to the far house and saw a river\n" * 5000


def zst(data: bytes, **settings: Any) -> bytes:
    return bytes(zstandard.ZstdCompressor(**settings).compress(data))


# ------------------------------------------------------------------------------------------------ compression


@pytest.mark.parametrize("settings", [{}, {"write_checksum": True}, {"write_content_size": False}, {"level": 19}])
@pytest.mark.parametrize("cut", [1, 3, 30, 0.5, 0.98])
def test_truncated_zst_is_refused(settings: dict[str, Any], cut: float, tmp_path: Path) -> None:
    path, data = tmp_path / "a.txt.zst", zst(TEXT + os.urandom(5000).hex().encode(), **settings)
    path.write_bytes(data[:-cut] if isinstance(cut, int) else data[: int(cut * len(data))])
    with raises(DataError, path=path):
        list(read_chunks(path))


def test_zst_of_several_frames_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.zst"
    skippable = b"\x50\x2a\x4d\x18\x04\0\0\0skip"  # as pzstd writes
    path.write_bytes(zst(TEXT) + skippable + zst(b"second\n") + zst(b"") + zst(TEXT))
    assert "".join(read_chunks(path)).encode() == TEXT + b"second\n" + TEXT
    path.write_bytes(zst(TEXT) + zst(TEXT)[:-4])
    with raises(DataError, path=path):
        list(read_chunks(path))
    path.write_bytes(zst(TEXT) + b"garbage")
    with raises(DataError, path=path):
        list(read_chunks(path))


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".zst", zst)])
def test_compressed_text_that_holds_too_much_is_refused(
    suffix: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = tmp_path / f"bomb.txt{suffix}"
    path.write_bytes(pack(b"a b\n" * (30 << 20)))
    with raises(DataError, path=path):
        for _ in read_chunks(path):
            pass


def test_zst_is_read_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bomb.txt.zst").write_bytes(zst(b"a b\n" * (1 << 26)))
    monkeypatch.setattr("nextword.core.io.SMALL", 1 << 30)

    def read_within_limit() -> int:
        limit_memory(200 << 20)
        return sum(map(len, read_chunks(tmp_path / "bomb.txt.zst")))

    assert join(fork(read_within_limit)) == 1 << 28


def limit_memory(size: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + size,) * 2)


# ------------------------------------------------------------------------------------------------ files that change


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_file_that_grows_while_it_is_read_is_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"log.txt{suffix}"
    data = {"": lambda text: text, ".gz": gzip.compress, ".zst": zst}[suffix](TEXT)
    path.write_bytes(data)
    chunks = read_chunks(path)
    next(chunks)
    with path.open("ab") as file:
        file.write(data)
    with raises(DataError, path=path):
        list(chunks)


def test_file_that_is_overwritten_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(TEXT)
    with DecompressedFile(path) as file:
        file.read(10)
        path.write_bytes(bytes(reversed(TEXT)))
        os.utime(path, (1, 1))
        with raises(DataError, path=path):
            while file.read(1 << 20):
                pass


# ------------------------------------------------------------------------------------------------ what is no file


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe.txt"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("use", [open_corpus, open_unsplit, read_table, lambda path: list(read(path))])
def test_pipe_without_writer_is_refused(use: Callable[[Path], object], pipe: Path) -> None:
    def read_pipe() -> str:
        with raises(MissingFile, path=pipe):
            use(pipe)
        return "refused"

    assert join(fork(read_pipe)) == "refused"  # a child, which is ended if it waits


def test_pipe_in_place_of_a_toml_file_or_an_archive_is_refused(tmp_path: Path) -> None:
    for name in ("mixture.toml", "pairs.zip", "pairs.tgz"):
        os.mkfifo(tmp_path / name)

    def read_pipes() -> int:
        for use, name in ((open_corpus, "mixture.toml"), (list_members, "pairs.zip"), (list_members, "pairs.tgz")):
            with pytest.raises(NextwordError):
                use(tmp_path / name)
        return 3

    assert join(fork(read_pipes)) == 3


@pytest.mark.parametrize("name", ["x" * 300 + ".txt", "~nobody-has-this-name/x.txt", "a/" * 3000 + "b"])
def test_name_that_no_file_can_have_is_a_missing_file(name: str) -> None:
    with pytest.raises(MissingFile):
        open_corpus(name)


# ------------------------------------------------------------------------------------------------ long lines


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", b'{"text": "' + b"x" * 3000 + b'"}'),
        ("a.csv", b"text,label\n" + b"x" * 3000 + b",1\n"),
        ("a.csv", b'text,label\n"' + b"x\n" * 3000 + b'",1\n'),
        ("a.csv", b'text,label\n"' + b'x\n","' * 3000 + b'",1\n'),
        ("a.tsv", b"text\tlabel\n" + b"x" * 3000 + b"\t1\n"),
    ],
)
def test_line_over_the_limit_is_refused(
    name: str, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    monkeypatch.setattr(module, "MAX_LINE", 1000)
    with raises(DataError, path=path, match=LINE_VARIABLE):
        read_table(path)


def test_line_limit_can_be_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "x" * 3000}))
    monkeypatch.setattr(module, "MAX_LINE", 1000)
    monkeypatch.setenv(LINE_VARIABLE, "5000")
    assert len(read_table(path).rows) == 1
    monkeypatch.setenv(LINE_VARIABLE, "many")
    with raises(InvalidSetting, key=LINE_VARIABLE):
        read_table(path)


def test_endless_line_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        file.write(b'{"text": "')
        for _ in range(100):
            file.write(b"x" * (1 << 20))

    def read_within_limit() -> str:
        limit_memory(500 << 20)
        with raises(DataError, path=path, line=1):
            list(read(path))
        return "refused"

    assert join(fork(read_within_limit)) == "refused"


def test_large_cell_is_read(tmp_path: Path) -> None:
    """8 MB: less than the limit; `make test` would show if it took minutes."""
    cell = "one two\n" * (1 << 20)
    (tmp_path / "a.csv").write_text(f'text,label\n"{cell}",1\nshort,0\n')
    assert [len(row[0]) for row in read_table(tmp_path / "a.csv").rows] == [len(cell), 5]
    assert sum(len(document.text) for document in read(tmp_path / "a.csv")) == len(cell) + 5


def test_split_lines_of_any_chunks_gives_the_lines() -> None:
    text = "one\n\ntwo\x0cthree\nfour"
    for size in range(1, len(text) + 1):
        chunks = [text[i : i + size] for i in range(0, len(text), size)]
        assert list(split_lines(chunks)) == ["one\n", "\n", "two\x0cthree\n", "four"]


@pytest.mark.parametrize(
    "line",
    [b"[" * 100_000, b'{"a":' * 100_000, b'{"text": NaN}', b'{"text": 1' + b"0" * 5000 + b"}", b'{"text": "\xff"}'],
)
def test_json_line_that_cannot_be_used_names_its_line(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "fine"}\n' + line + b"\n")
    with raises(DataError, path=path, line=2):
        list(read(path))


# ------------------------------------------------------------------------------------------------ archives


def tar(members: Iterator[tuple[tarfile.TarInfo, bytes]], mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zip_of(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return out.getvalue()


def read_everything(path: Path, folder: Path) -> None:
    folder.mkdir()
    with open_archive(path) as archive:
        archive.unpack(folder)
    for member in list_members(path):
        assert list(read_member(path, member)) is not None


GOOD = {"a.txt": TEXT, "folder/b.txt": b"b\n"}


@pytest.mark.parametrize("kind", ["zip", "tgz", "tar"])
def test_archive_is_unpacked(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{kind}"
    members = ((tarfile.TarInfo(name), content) for name, content in GOOD.items())
    path.write_bytes(zip_of(GOOD) if kind == "zip" else tar(members, "w" if kind == "tar" else "w:gz"))
    read_everything(path, tmp_path / "out")
    unpacked = {str(file.relative_to(tmp_path / "out")): file for file in (tmp_path / "out").rglob("*.txt")}
    assert {name: file.read_bytes() for name, file in unpacked.items()} == GOOD
    assert "".join(read_member(path, "a.txt")).encode() == TEXT


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("kind", ["zip", "tgz"])
def test_damaged_archive_raises_nothing_but_a_data_error(kind: str, seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    members = ((tarfile.TarInfo(name), content) for name, content in GOOD.items())
    data = bytearray(zip_of(GOOD) if kind == "zip" else tar(members))
    if seed % 2:
        del data[draw.randrange(len(data)) :]
    for _ in range(draw.choice((1, 20))):
        data[draw.randrange(len(data))] = draw.randrange(256)
    path = tmp_path / f"x.{kind}"
    path.write_bytes(data)
    with suppress(DataError):
        read_everything(path, tmp_path / "out")


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "..\\evil", "C:\\evil", ".", "x" * 300, "a.txt"])
@pytest.mark.parametrize("kind", ["zip", "tgz"])
def test_archive_never_writes_outside_of_the_folder(kind: str, name: str, tmp_path: Path) -> None:
    path, inside = tmp_path / f"x.{kind}", tmp_path / "deep" / "out"
    inside.mkdir(parents=True)
    members = {"a.txt": b"1"} if name == "." else {"a.txt/b": b"1", name: b"2"} if name == "a.txt" else {name: b"1"}
    path.write_bytes(zip_of(members) if kind == "zip" else tar((tarfile.TarInfo(n), c) for n, c in members.items()))
    if name == ".":
        rename_member(path, b"a.txt", b".\0\0\0\0" if kind == "tgz" else b"./././"[:5])
    with pytest.raises(DataError), open_archive(path) as archive:
        archive.unpack(inside)
    assert not (tmp_path / "evil").exists()
    assert not (tmp_path / "deep" / "evil").exists()


def rename_member(path: Path, old: bytes, new: bytes) -> None:
    """Replace a name; the checksum of a tar's header is corrected."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".tgz" else path.read_bytes()
    data = data.replace(old, new)
    if path.suffix == ".tgz":
        total = sum(data[:148]) + 8 * 32 + sum(data[156:512])
        data = data[:148] + b"%06o\0 " % total + data[156:]
        data = gzip.compress(data)
    path.write_bytes(data)


def test_links_and_devices_in_archives_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.tgz"

    def members() -> Iterator[tuple[tarfile.TarInfo, bytes]]:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            info = tarfile.TarInfo(f"special-{kind.decode()}")
            info.type, info.linkname = kind, "/etc/passwd"
            yield info, b""
        yield tarfile.TarInfo("a.txt"), TEXT

    path.write_bytes(tar(members()))
    read_everything(path, tmp_path / "out")
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["a.txt"]


@pytest.mark.parametrize("kind", ["zip", "tgz"])
def test_bomb_is_refused_before_it_is_unpacked(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{kind}"
    bomb = {f"{i}.txt": b"a b\n" * (10 << 20) for i in range(3)}
    members = ((tarfile.TarInfo(name), content) for name, content in bomb.items())
    path.write_bytes(zip_of(bomb) if kind == "zip" else tar(members))
    (tmp_path / "out").mkdir()
    with raises(DataError, path=path), open_archive(path) as archive:
        archive.unpack(tmp_path / "out")
    if kind == "tgz":
        with raises(DataError, path=path):
            list_members(path)
    assert sum(file.stat().st_size for file in (tmp_path / "out").iterdir()) <= SMALL


def test_archive_larger_than_the_free_space_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(zip_of(GOOD))
    usage = module.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda place: usage._replace(free=1000))
    with raises(CannotWrite, path=tmp_path), open_archive(path) as archive:
        archive.unpack(tmp_path)


def test_header_of_a_tar_that_claims_gigabytes_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "x.tgz"
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, 4 << 30
    with gzip.open(path, "wb", 1) as file:
        file.write(header.tobuf())
        for _ in range(100):
            file.write(bytes(1 << 20))
    with raises(DataError, path=path):
        list_members(path)


def test_encrypted_zip_and_unknown_method_are_refused(tmp_path: Path) -> None:
    path, data = tmp_path / "x.zip", zip_of(GOOD)
    at = data.index(b"PK\1\2")
    for offset, value in ((8, b"\1\0"), (10, b"\x63\0")):
        path.write_bytes(data[: at + offset] + value + data[at + offset + 2 :])
        with raises(DataError, path=path):
            list(read_member(path, "a.txt"))
