"""From text to ids on disk: exact counts and marks, one pass, and complete files or none."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nextword.batching import token_stream as module
from nextword.batching.token_stream import DOCUMENT, SENTENCE, WORD, Stream, cache_folder, id_type, open_stream, prepare
from nextword.core.errors import CannotWrite, DataError
from nextword.core.scratch import PREFIX, scratch_folder
from nextword.data.corpus import Corpus
from nextword.data.opening import open_corpus
from nextword.tokenizers.training import train_tokenizer

BYTES = train_tokenizer({"kind": "bytes"}, ["x"])


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEXTWORD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "prepared"


def corpus(folder: Path, *texts: str) -> Corpus:
    folder.mkdir(exist_ok=True)
    for split in ("train", "valid", "test"):
        (folder / f"{split}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return open_corpus(folder)


def test_ids_marks_and_documents(tmp_path: Path) -> None:
    stream = prepare(corpus(tmp_path / "c", "Ab c. De\n", "é"), "train", BYTES)
    end = BYTES.end
    assert stream.ids.tolist() == [*b"Ab c. De\n", end, *"é".encode(), end]
    #                                       A  b  ␣  c  .  ␣  D  e  ⏎  end é·   end
    assert (stream.marks & WORD).tolist() == [1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0]
    assert np.flatnonzero(stream.marks & SENTENCE).tolist() == [0, 6, 10]
    assert np.flatnonzero(stream.marks & DOCUMENT).tolist() == [0, 10]
    assert stream.documents.tolist() == [(0, 9, 3, 1), (10, 2, 1, 0)]
    assert (stream.tokens, stream.bytes, stream.words, stream.lines) == (13, 11, 4, 1)
    assert len(stream) == 13
    assert stream.ids.dtype == np.uint16  # 257 ids do not fit into a byte


def test_beginning_has_complete_documents_and_their_counts(tmp_path: Path) -> None:
    stream = prepare(corpus(tmp_path / "text", "a bc\nd", "ef gh", "ijk"), "train", BYTES)
    starts = stream.documents["start"].tolist()
    part = stream.beginning(starts[1] + 1)  # one token of the second document, so all of it
    assert len(part) == starts[2]
    assert (part.bytes, part.words, part.lines, len(part.documents)) == (11, 5, 1, 2)
    assert len(stream.beginning(starts[1])) == starts[1]
    for tokens in (0, starts[2] + 1, 10**9):
        assert stream.beginning(tokens) is stream


def test_space_before_a_word_belongs_to_it_in_byte_level_bpe(tmp_path: Path) -> None:
    texts = ["In the beginning. The end.\nNow the end. The beginning.\n"] * 50
    tokenizer = train_tokenizer({"kind": "bpe", "size": 300}, texts)
    stream = prepare(corpus(tmp_path / "c", texts[0]), "train", tokenizer)
    starts = [tokenizer.piece(int(id)) for id in stream.ids[(stream.marks & SENTENCE) > 0]]
    assert [piece.strip()[:1] for piece in starts] == [b"I", b"T", b"N", b"T"]
    assert ((stream.marks & WORD) > 0).sum() == stream.words == len(texts[0].split())


def test_word_tokenizer_has_no_end_token(tmp_path: Path) -> None:
    tokenizer = train_tokenizer({"kind": "words", "size": 10}, ["a b\n"])
    stream = prepare(corpus(tmp_path / "c", "a b\n", "b zz\n"), "train", tokenizer)
    assert stream.tokens == 6
    assert stream.documents["start"].tolist() == [0, 3]
    assert stream.ids.dtype == np.uint8


def test_long_document_in_passages_is_one_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 3000)
    text = "".join(f"Line {i} of a long text.\n" for i in range(30_000))
    (tmp_path / "c").mkdir()
    for split in ("train", "valid", "test"):
        (tmp_path / "c" / f"{split}.txt").write_text(text)
    stream = prepare(open_corpus(tmp_path / "c"), "train", BYTES)
    assert bytes(stream.ids[:-1].astype(np.uint8)) == text.encode()
    assert stream.documents.tolist() == [(0, len(text), len(text.split()), 30_000)]
    assert ((stream.marks & DOCUMENT) > 0).sum() == 1


def test_second_preparation_comes_from_the_cache(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = corpus(tmp_path / "c", "some text")
    updates: list[tuple[int, int | None]] = []
    first = prepare(text, "train", BYTES, progress=lambda *update: updates.append(update))
    assert updates == [(9, None)]
    monkeypatch.setattr(module, "_write", lambda *_: pytest.fail("prepared again"))
    cached = prepare(open_corpus(tmp_path / "c"), "train", BYTES)
    assert cached.ids.tolist() == first.ids.tolist()
    assert cached.folder == first.folder
    assert first.folder is not None
    assert first.folder.parent == cache == cache_folder("prepared")
    assert open_stream(first.folder).tokenizer_hash == first.tokenizer_hash


def test_key_depends_on_text_split_and_tokenizer(tmp_path: Path, cache: Path) -> None:
    text = corpus(tmp_path / "c", "some text")
    prepare(text, "train", BYTES)
    prepare(text, "valid", BYTES)
    prepare(text, "train", train_tokenizer({"kind": "characters"}, ["some text"]))
    prepare(corpus(tmp_path / "c", "another"), "train", BYTES)
    assert len(os.listdir(cache)) == 4


def test_damaged_cache_is_rebuilt_and_damaged_folder_rejected(tmp_path: Path) -> None:
    text = corpus(tmp_path / "c", "some text")
    stream = prepare(text, "train", BYTES)
    assert stream.folder is not None
    with open(stream.folder / "ids.bin", "r+b") as file:
        file.truncate(3)
    with pytest.raises(DataError) as error:
        open_stream(stream.folder)
    assert error.value.path == str(stream.folder / "ids.bin")
    assert prepare(text, "train", BYTES).tokens == 10
    with pytest.raises(DataError) as error:
        open_stream(tmp_path)
    assert error.value.path == str(tmp_path)


@pytest.mark.parametrize("name", ["ids.bin", "marks.bin", "documents.bin", "stream.json"])
@pytest.mark.parametrize("place", [0.0, 0.3, 0.5, 0.9])
def test_flipped_bit_in_the_cache_changes_nothing(name: str, place: float, tmp_path: Path) -> None:
    text = corpus(tmp_path / "c", *(f"text number {i}" for i in range(200)))
    expected = prepare(text, "train", BYTES)
    assert expected.folder is not None
    totals = expected.bytes, expected.words, expected.lines, expected.ids.tobytes(), expected.marks.tobytes()
    data = bytearray((expected.folder / name).read_bytes())
    data[int(place * len(data))] ^= 1
    (expected.folder / name).write_bytes(data)
    with pytest.raises(DataError):
        open_stream(expected.folder)
    again = prepare(text, "train", BYTES)
    assert (again.bytes, again.words, again.lines, again.ids.tobytes(), again.marks.tobytes()) == totals


def test_text_that_changes_before_it_is_read_is_refused(tmp_path: Path, cache: Path) -> None:
    text = corpus(tmp_path / "c", "some text")
    assert text.fingerprint
    for path in (tmp_path / "c").rglob("*.*"):
        path.write_text(path.read_text() + "more\n")
    with pytest.raises(DataError):
        prepare(text, "train", BYTES)
    assert os.listdir(cache) == []


def test_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module._Writer, "add", full)
    with pytest.raises(CannotWrite, match="NEXTWORD_CACHE"):
        prepare(corpus(tmp_path / "c", "some text"), "train", BYTES)
    assert os.listdir(cache) == []


def test_interrupted_preparation_leaves_nothing(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._Writer, "add", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        prepare(corpus(tmp_path / "c", "some text"), "train", BYTES)
    assert os.listdir(cache) == []


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path, cache: Path) -> None:
    (cache / f"{PREFIX}left").mkdir(parents=True)
    with scratch_folder(cache) as used:
        prepare(corpus(tmp_path / "c", "some text"), "train", BYTES)
        assert used.exists()
        assert len(os.listdir(cache)) == 2


def test_cache_deleted_during_preparation_is_an_error(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = module._write

    def delete_and_write(*args: Any) -> None:
        shutil.rmtree(cache)
        write(*args)

    monkeypatch.setattr(module, "_write", delete_and_write)
    with pytest.raises(CannotWrite, match="NEXTWORD_CACHE"):
        prepare(corpus(tmp_path / "c", "some text"), "train", BYTES)


def test_concurrent_preparations_agree(tmp_path: Path, cache: Path) -> None:
    text = corpus(tmp_path / "c", *(f"text number {i}" for i in range(200)))
    streams: list[Stream] = []
    threads = [threading.Thread(target=lambda: streams.append(prepare(text, "train", BYTES))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({stream.ids.tobytes() for stream in streams}) == 1
    assert len(streams) == 4
    assert len(os.listdir(cache)) == 1


def test_split_without_text_is_rejected(tmp_path: Path, cache: Path) -> None:
    words = train_tokenizer({"kind": "wordpiece", "size": 60}, ["abc " * 50])
    with pytest.raises(DataError, match="train"):
        prepare(corpus(tmp_path / "c", "\u200b\u200b"), "train", words)
    assert os.listdir(cache) == []


def test_stream_from_ids_in_memory() -> None:
    stream = Stream.from_ids([3, 1, 300], bytes=9, words=2)
    assert stream.ids.dtype == np.uint16
    assert (stream.tokens, stream.bytes, stream.words, stream.lines) == (3, 9, 2, 0)
    assert stream.marks.tolist() == [WORD | SENTENCE | DOCUMENT, WORD, WORD]


@pytest.mark.parametrize(("size", "kind"), [(2, np.uint8), (256, np.uint8), (257, np.uint16), (70_000, np.uint32)])
def test_id_type_is_the_smallest_that_fits(size: int, kind: type) -> None:
    assert id_type(size) is kind
