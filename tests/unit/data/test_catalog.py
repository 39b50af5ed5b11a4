"""The catalog: complete entries, and installs that are atomic."""

from __future__ import annotations

import http.server
import io
import os
import re
import threading
import zipfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from nextword.core.errors import CannotWrite, DataError, MissingFile, Unsupported
from nextword.data import catalog as module
from nextword.data.catalog import (
    KINDS,
    Download,
    catalog,
    data_folders,
    data_home,
    download,
    find_entry,
    install,
    install_home,
)
from nextword.data.filters.decontaminate import count_leaks
from nextword.data.opening import open_corpus
from tests.support.errors import raises

NAMED_IN_THE_SEEDS = (
    "ptb wikitext-2 wikitext-2-raw wikitext-103 1b-word bookscorpus wikipedia enwik8 text8 tinyshakespeare brown squad "
    "race story-cloze swag rte snli mnli qnli scitail conll2003 ontonotes reuters fgn sst-2 imdb yelp-2 ag-news "
    "dbpedia trec mrpc qqp sts-b cola conll2000 wsj-pos conll2004-srl conll2005-srl conll2012 wmt15-en-cs wmt14-en-de "
    "iwslt15-en-vi multi30k lambada cbt glue decanlp glove-6b common-crawl webtext"
)


def test_catalog_has_every_expected_data_set() -> None:
    assert set(NAMED_IN_THE_SEEDS.split()) <= set(catalog())


@pytest.mark.parametrize("entry", catalog().values(), ids=lambda entry: entry.name)
def test_entry_is_complete(entry: module.Entry) -> None:
    assert entry.kind in KINDS
    assert entry.title
    assert entry.license
    assert entry.home.startswith("http")
    assert set(entry.layout) <= {"train", "valid", "test", "all"}
    assert set(entry.splits) <= {"train", "valid", "test"} or set(entry.splits) == {"all"} <= set(entry.layout)
    assert bool(entry.splits) <= bool(entry.unit)
    assert entry.reader in ("auto", "lines", "tagged", "breaks")
    assert not entry.contiguous or sum(entry.contiguous.values()) == pytest.approx(1)
    for known in [*entry.sha256.values(), *(item.sha256 for item in entry.get if item.sha256)]:
        assert re.fullmatch(r"[0-9a-f]{64}", known)
    names = {name for alternatives in entry.layout.values() for group in alternatives for name in group.split(" + ")}
    assert set(entry.sha256) <= names


@pytest.mark.parametrize("entry", catalog().values(), ids=lambda entry: entry.name)
def test_download_is_over_https_or_has_a_checksum(entry: module.Entry) -> None:
    assert all(item.sha256 or module.is_secure(item.url) for item in entry.get)


def test_install_home_is_the_first_shared_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", os.pathsep.join(map(str, (tmp_path / "a", tmp_path / "b"))))
    assert install_home() == data_home()  # the tests set NEXTWORD_HOME, which says where
    monkeypatch.delenv("NEXTWORD_HOME")
    assert install_home() == tmp_path / "a"
    assert data_folders()[0] == tmp_path / "a"
    monkeypatch.delenv("NEXTWORD_DATA")
    assert install_home() == data_home()


def test_find_entry_by_name_and_alias() -> None:
    assert find_entry("wt2") is catalog()["wikitext-2"]
    assert find_entry("sent-conv") is None  # that folder holds three data sets
    assert find_entry("nothing") is None


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("race", "RACE/train/middle/1.txt"),
        ("swag", "swagaf/data/train.csv"),
        ("snli", "snli_1.0/snli_1.0_train.jsonl"),
        ("mnli", "multinli_1.0/multinli_1.0_train.jsonl"),
        ("scitail", "SciTailV1.1/tsv_format/scitail_1.0_train.tsv"),
        ("sts-b", "stsbenchmark/sts-train.csv"),
        ("ud-english-ewt", "UD_English-EWT/en_ewt-ud-train.conllu"),
        ("lambada", "lambada-dataset/lambada_test_plain_text.txt"),
    ],
)
def test_find_folder_locates_the_layout_of_the_owners_archive(
    name: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("x")
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path))
    assert catalog()[name].find_folder() == tmp_path / file.partition("/")[0]


def test_open_corpus_not_installed_says_how_to_get_it() -> None:
    with raises(MissingFile, path="ptb") as error:
        open_corpus("ptb")
    for word in ("catalog.ldc.upenn.edu", "nextword data ptb --install PATH", "--download"):
        assert word in str(error.value)


def test_open_corpus_of_a_task_raises() -> None:
    with raises(Unsupported, match="squad"):
        open_corpus("squad")


@pytest.fixture
def shakespeare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> module.Entry:
    """An entry like tinyshakespeare's whose file is small and known."""
    text = "".join(f"Line {i} of the play.\n" for i in range(100))
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "input.txt").write_text(text)
    entry = replace(
        catalog()["tinyshakespeare"],
        name="play",
        aliases=(),
        sha256={"input.txt": sha256(text.encode()).hexdigest()},
        get=(),
    )
    monkeypatch.setattr(module, "catalog", lambda: {"play": entry})
    return entry


def test_install_from_folder_makes_the_corpus_available(shakespeare: module.Entry, tmp_path: Path) -> None:
    updates: list[tuple[int, int | None]] = []
    place = install(shakespeare, tmp_path / "source", lambda done, total: updates.append((done, total)))
    assert place == data_home() / "play"
    assert updates[-1][0] == updates[-1][1]
    assert shakespeare.verify(place) == {"input.txt": True}
    corpus = open_corpus("play")
    text = (tmp_path / "source" / "input.txt").read_text()
    parts = ["".join(d.text for d in corpus.documents(split)) for split in ("train", "valid")]
    assert corpus.splits == ("train", "valid")
    assert "".join(parts) == text
    assert len(parts[0]) == int(0.9 * len(text)) == corpus.bytes("train")
    install(shakespeare, tmp_path / "source")  # replaces the old folder
    assert sorted(os.listdir(data_home())) == ["play"]


def test_install_from_file_and_from_archive(shakespeare: module.Entry, tmp_path: Path) -> None:
    assert install(shakespeare, tmp_path / "source" / "input.txt") == data_home() / "play"
    with zipfile.ZipFile(tmp_path / "play.zip", "w") as archive:
        archive.write(tmp_path / "source" / "input.txt", "deep/down/input.txt")
    place = install(shakespeare, tmp_path / "play.zip")
    assert [p.name for p in place.iterdir()] == ["input.txt"]


def test_install_of_wrong_source_raises_and_changes_nothing(shakespeare: module.Entry, tmp_path: Path) -> None:
    place = install(shakespeare, tmp_path / "source")
    (tmp_path / "source" / "input.txt").write_text("something else")
    with raises(DataError, path=tmp_path / "source" / "input.txt"):
        install(shakespeare, tmp_path / "source")
    (tmp_path / "empty").mkdir()
    with raises(MissingFile, match=r"input\.txt", path=tmp_path / "empty"):
        install(shakespeare, tmp_path / "empty")
    (tmp_path / "bad.zip").write_bytes(b"PK nonsense")
    with raises(DataError, path=tmp_path / "bad.zip"):
        install(shakespeare, tmp_path / "bad.zip")
    with raises(MissingFile, path=tmp_path / "absent"):
        install(shakespeare, tmp_path / "absent")
    assert shakespeare.verify(place) == {"input.txt": True}
    assert sorted(os.listdir(data_home())) == ["play"]


class Ranged(http.server.BaseHTTPRequestHandler):
    """Serves `data` from the requested offset; if `broken`, truncates the next response."""

    data = b""
    broken = False
    modified = "Wed, 18 Nov 2026 10:00:00 GMT"
    elsewhere = ""

    def do_GET(self) -> None:
        if self.path.endswith("absent"):
            self.send_error(404)
            return
        if self.path.startswith("/elsewhere"):
            self.send_response(302)
            self.send_header("Location", self.elsewhere)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start = int(self.headers["Range"][6:-1])
        if self.headers.get("If-Range", self.modified) != self.modified:
            start = 0
        self.send_response(206 if start else 200)
        self.send_header("Last-Modified", self.modified)
        self.send_header("Content-Length", str(len(self.data) - start))
        self.end_headers()
        if Ranged.broken:
            Ranged.broken = False
            self.wfile.write(self.data[start : len(self.data) // 2])
        else:
            self.wfile.write(self.data[start:])

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(shakespeare: module.Entry, tmp_path: Path):
    Ranged.data = (tmp_path / "source" / "input.txt").read_bytes()
    Ranged.broken, Ranged.modified = False, "Wed, 18 Nov 2026 10:00:00 GMT"
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ranged)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_address[1]}"
    running.shutdown()
    running.server_close()


def test_download_interrupted_resumes(shakespeare: module.Entry, server: str) -> None:
    known = shakespeare.sha256["input.txt"]
    entry = replace(shakespeare, get=(Download(f"{server}/input.txt", known),))
    Ranged.broken = True
    with raises(MissingFile, match="1,045", path=f"{server}/input.txt"):
        download(entry)
    assert entry.find_folder() is None
    assert download(entry) == data_home() / "play"
    assert entry.verify(data_home() / "play") == {"input.txt": True}
    assert not (data_home() / ".downloads" / "play").exists()


def test_download_of_changed_or_missing_file_raises(shakespeare: module.Entry, server: str) -> None:
    with raises(Unsupported, ability="download"):
        download(shakespeare)
    with raises(DataError, path=f"{server}/input.txt"):
        download(replace(shakespeare, get=(Download(f"{server}/input.txt", "0" * 64),)))
    with raises(MissingFile, match="404", path=f"{server}/absent"):
        download(replace(shakespeare, get=(Download(f"{server}/absent"),)))
    with raises(MissingFile, path="http://127.0.0.1:9/input.txt"):
        download(replace(shakespeare, get=(Download("http://127.0.0.1:9/input.txt"),)))
    assert shakespeare.find_folder() is None


def test_rest_of_another_version_is_not_appended(shakespeare: module.Entry, server: str) -> None:
    """Without a checksum, the time of the server's file tells whether it is still the same."""
    entry = replace(shakespeare, get=(Download(f"{server}/input.txt"),), sha256={})
    Ranged.broken = True
    with raises(MissingFile, path=f"{server}/input.txt"):
        download(entry)
    Ranged.data, Ranged.modified = b"another version\n" * 10, "Thu, 19 Nov 2026 10:00:00 GMT"
    assert (download(entry) / "input.txt").read_bytes() == Ranged.data


def test_download_without_checksum_stays_on_https(shakespeare: module.Entry, server: str) -> None:
    with raises(Unsupported, ability="download"):
        download(replace(shakespeare, get=(Download("http://example.org/input.txt"),)))
    Ranged.elsewhere = f"{server.replace('127.0.0.1', 'localhost')}/input.txt"  # to a host that is not this machine's
    with raises(MissingFile, match="https", path=f"{server}/elsewhere/input.txt"):
        download(replace(shakespeare, get=(Download(f"{server}/elsewhere/input.txt"),)))
    known = shakespeare.sha256["input.txt"]
    assert download(replace(shakespeare, get=(Download(f"{server}/elsewhere/input.txt", known),))).exists()


def test_download_that_is_not_what_was_expected_starts_again(shakespeare: module.Entry, server: str) -> None:
    entry = replace(shakespeare, get=(Download(f"{server}/play.zip"),))
    right, Ranged.data = Ranged.data, b"PK nonsense"
    with pytest.raises(DataError):
        download(entry)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("input.txt", right)
    Ranged.data = content.getvalue()
    assert entry.verify(download(entry)) == {"input.txt": True}


def test_second_download_at_once_is_refused(shakespeare: module.Entry, server: str) -> None:
    entry = replace(shakespeare, get=(Download(f"{server}/input.txt"),))
    folder = data_home() / module.DOWNLOADS / "play"
    folder.mkdir(parents=True)
    with module._lock(folder, entry), raises(CannotWrite, path=folder):
        download(entry)
    assert download(entry).exists()


def test_installed_data_sets_have_known_checksums(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(shared))
    for name in ("ptb", "wikitext-2", "tinyshakespeare", "squad"):
        entry = catalog()[name]
        place = entry.find_folder()
        assert place is not None
        checked = entry.verify(place)
        assert checked
        assert all(checked.values())
    ptb = open_corpus("ptb")
    assert {s: sum(d.text.count("\n") for d in ptb.documents(s)) for s in ptb.splits} == catalog()["ptb"].splits
    small = open_corpus("tinyshakespeare")
    assert {s: small.bytes(s) for s in small.splits} == catalog()["tinyshakespeare"].splits
    assert open_corpus("lambada").splits == ("valid", "test")


@pytest.mark.slow
def test_count_leaks_imdb_shares_123_reviews(shared: Path) -> None:
    corpus = open_corpus(shared / "imdb")
    corpus.held_out = {}  # as published: no validation split
    assert count_leaks(corpus) == {"test": 123}
