"""The catalog: strict, complete, and able to bring a data set in without ever leaving half of one."""

from __future__ import annotations

import http.server
import os
import re
import threading
import zipfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from nextword.core.errors import NextwordError
from nextword.data import catalog as module
from nextword.data.catalog import KINDS, Download, catalog, data_home, fetch, find, install
from nextword.data.filters.decontaminate import leakage
from nextword.data.opening import open_corpus

NAMED_IN_THE_SEEDS = (
    "ptb wikitext-2 wikitext-2-raw wikitext-103 1b-word bookscorpus wikipedia enwik8 text8 tinyshakespeare brown squad "
    "race story-cloze swag rte snli mnli qnli scitail conll2003 ontonotes reuters fgn sst-2 imdb yelp-2 ag-news "
    "dbpedia trec mrpc qqp sts-b cola conll2000 wsj-pos conll2004-srl conll2005-srl conll2012 wmt15-en-cs wmt14-en-de "
    "iwslt15-en-vi multi30k lambada cbt glue decanlp glove-6b common-crawl webtext"
)


def test_every_data_set_of_the_seeds_has_an_entry() -> None:
    assert set(NAMED_IN_THE_SEEDS.split()) <= set(catalog())


@pytest.mark.parametrize("entry", catalog().values(), ids=lambda entry: entry.name)
def test_entry_is_whole(entry: module.Entry) -> None:
    assert entry.kind in KINDS
    assert entry.title
    assert entry.licence
    assert entry.home.startswith("http")
    assert set(entry.layout) <= {"train", "valid", "test", "all"}
    assert set(entry.splits) <= {"train", "valid", "test"}
    assert bool(entry.splits) <= bool(entry.unit)
    assert entry.reader in ("auto", "lines", "tagged", "breaks")
    assert not entry.contiguous or sum(entry.contiguous.values()) == pytest.approx(1)
    for known in [*entry.sha256.values(), *(item.sha256 for item in entry.get if item.sha256)]:
        assert re.fullmatch(r"[0-9a-f]{64}", known)
    names = {name for alternatives in entry.layout.values() for one in alternatives for name in one.split(" + ")}
    assert set(entry.sha256) <= names


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(NextwordError, match=r"unknown key 'license'. Did you mean 'licence'"):
        module._entry("x", {"title": "", "kind": "text", "license": "", "home": "", "layout": {}})


def test_names_and_aliases() -> None:
    assert find("wt2") is catalog()["wikitext-2"]
    assert find("sent-conv") is None  # three sets lie in that folder
    assert find("nothing") is None


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
def test_what_an_owners_archive_unpacks_to_is_found(
    name: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("x")
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path))
    assert catalog()[name].place() == tmp_path / file.partition("/")[0]


def test_absent_data_set_says_where_it_is_and_what_to_do() -> None:
    with pytest.raises(NextwordError) as problem:
        open_corpus("ptb")
    for word in ("catalog.ldc.upenn.edu", "nextword data ptb --from PATH", "--get"):
        assert word in str(problem.value)


def test_a_task_is_not_a_text() -> None:
    with pytest.raises(NextwordError, match="is a set for a task"):
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


def test_install_and_open(shakespeare: module.Entry, tmp_path: Path) -> None:
    heard: list[tuple[int, int | None]] = []
    place = install(shakespeare, tmp_path / "source", lambda done, total: heard.append((done, total)))
    assert place == data_home() / "play"
    assert heard[-1][0] == heard[-1][1]
    assert shakespeare.verify(place) == {"input.txt": True}
    corpus = open_corpus("play")
    text = (tmp_path / "source" / "input.txt").read_text()
    parts = ["".join(d.text for d in corpus.documents(split)) for split in ("train", "valid")]
    assert corpus.splits == ("train", "valid")
    assert "".join(parts) == text
    assert len(parts[0]) == int(0.9 * len(text)) == corpus.bytes("train")
    install(shakespeare, tmp_path / "source")  # again, over the old
    assert sorted(os.listdir(data_home())) == ["play"]


def test_install_from_a_file_and_from_an_archive(shakespeare: module.Entry, tmp_path: Path) -> None:
    assert install(shakespeare, tmp_path / "source" / "input.txt") == data_home() / "play"
    with zipfile.ZipFile(tmp_path / "play.zip", "w") as archive:
        archive.write(tmp_path / "source" / "input.txt", "deep/down/input.txt")
    place = install(shakespeare, tmp_path / "play.zip")
    assert [p.name for p in place.iterdir()] == ["input.txt"]


def test_install_refuses_what_is_not_it_and_changes_nothing(shakespeare: module.Entry, tmp_path: Path) -> None:
    place = install(shakespeare, tmp_path / "source")
    (tmp_path / "source" / "input.txt").write_text("something else")
    with pytest.raises(NextwordError, match="is not the file others use"):
        install(shakespeare, tmp_path / "source")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NextwordError, match=r"none of the files of play. Expected all: input.txt"):
        install(shakespeare, tmp_path / "empty")
    (tmp_path / "bad.zip").write_bytes(b"PK nonsense")
    with pytest.raises(NextwordError, match="damaged"):
        install(shakespeare, tmp_path / "bad.zip")
    with pytest.raises(NextwordError, match="There is no file"):
        install(shakespeare, tmp_path / "absent")
    assert shakespeare.verify(place) == {"input.txt": True}
    assert sorted(os.listdir(data_home())) == ["play"]


class Ranged(http.server.BaseHTTPRequestHandler):
    """Serves `data`, from where the request says; breaks off the first answer half way."""

    data = b""
    broken = False

    def do_GET(self) -> None:
        if self.path.endswith("absent"):
            self.send_error(404)
            return
        start = int(self.headers["Range"][6:-1])
        self.send_response(206)
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
    Ranged.broken = False
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ranged)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_address[1]}"
    running.shutdown()
    running.server_close()


def test_fetch_goes_on_where_it_broke_off(shakespeare: module.Entry, server: str) -> None:
    known = shakespeare.sha256["input.txt"]
    entry = replace(shakespeare, get=(Download(f"{server}/input.txt", known),))
    Ranged.broken = True
    with pytest.raises(NextwordError, match="goes on from the 1,"):
        fetch(entry)
    assert entry.place() is None
    assert fetch(entry) == data_home() / "play"
    assert entry.verify(data_home() / "play") == {"input.txt": True}
    assert not (data_home() / ".downloads" / "play").exists()


def test_fetch_refuses_a_changed_file_and_says_what_is_wrong(shakespeare: module.Entry, server: str) -> None:
    with pytest.raises(NextwordError, match="has no --get"):
        fetch(shakespeare)
    with pytest.raises(NextwordError, match="is not what it was"):
        fetch(replace(shakespeare, get=(Download(f"{server}/input.txt", "0" * 64),)))
    with pytest.raises(NextwordError, match="answers 404"):
        fetch(replace(shakespeare, get=(Download(f"{server}/absent"),)))
    with pytest.raises(NextwordError, match="Check the network"):
        fetch(replace(shakespeare, get=(Download("http://127.0.0.1:9/input.txt"),)))
    assert shakespeare.place() is None


def test_real_data_sets_are_found_and_are_what_they_should_be(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(shared))
    for name in ("ptb", "wikitext-2", "tinyshakespeare", "squad"):
        entry = catalog()[name]
        place = entry.place()
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
def test_imdb_shares_123_reviews_between_its_splits(shared: Path) -> None:
    corpus = open_corpus(shared / "imdb")
    corpus.held_out = {}  # as published: no validation part
    assert leakage(corpus) == {"test": 123}
