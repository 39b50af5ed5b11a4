"""One model in several threads or processes, and several processes on one cache or run folder: as if alone."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import nextword
from nextword.batching.token_stream import prepare
from nextword.core.errors import RunError
from nextword.core.io import cache_folder
from nextword.data.opening import open_corpus
from nextword.run_folder import RunFolder
from nextword.tokenizers.training import train_tokenizer
from tests.fuzz.formats import NETWORKS, build_ngram_run, build_run, texts, use_abilities
from tests.support.killing import run_child, wait

SETTINGS = [
    'tokenizer={kind="bytes"}',
    "model.width=8",
    "phase.0.batches.rows=4",
    "phase.0.log_every=1",
    "phase.0.save_every=0",
]
WORKERS = 4


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Any:
    """A parallel operation before a fork would leave the child waiting for threads that it does not have."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=[*NETWORKS, "ngram"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    if request.param == "ngram":
        build_ngram_run(folder)
    else:
        build_run(folder / "run", request.param)
    return folder / "run"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "my.txt"
    path.write_text("\n\n".join(texts(600)) + "\n")
    return path


def in_children(*works: Callable[[], object]) -> list[Any]:
    """Run each in a forked child, all at once; return what they return, through JSON."""
    readers, pids = [], []
    for work in works:
        reader, writer = os.pipe()

        def send(work: Callable[[], object] = work, writer: int = writer) -> None:
            with os.fdopen(writer, "w") as file:
                json.dump(work(), file)

        pids.append(run_child(send))
        os.close(writer)
        readers.append(reader)
    results = [os.fdopen(reader).read() for reader in readers]
    assert [wait(pid) for pid in pids] == [0] * len(pids)
    return [json.loads(result) for result in results]


def plain(value: object) -> Any:
    return json.loads(json.dumps(value))


def open_and_use(run: Path) -> tuple[Any, Any]:
    """A model, and what it says. ELMo's first words fill a table, whose vectors are rounded otherwise: use it twice."""
    lm = nextword.load(run, device="cpu")
    use_abilities(lm)
    return lm, use_abilities(lm)


def test_threads_share_a_model(run: Path) -> None:
    lm, alone = open_and_use(run)
    with ThreadPoolExecutor(WORKERS) as pool:
        assert list(pool.map(lambda _: use_abilities(lm), range(2 * WORKERS))) == [alone] * (2 * WORKERS)


def test_fork_after_loading_keeps_the_model(run: Path) -> None:
    lm, alone = open_and_use(run)
    assert in_children(*[lambda: use_abilities(lm)] * 2) == [plain(alone)] * 2


def load_and_use(folders: list[str]) -> list[object]:
    torch.set_num_threads(1)
    return [use_abilities(nextword.load(folder, device="cpu")) for folder in folders]


def test_spawned_worker_loads_the_same_models(tmp_path: Path) -> None:
    folders = []
    for slug in ("lstm", "bert", "seq2seq"):
        build_run(tmp_path / slug, slug)
        folders.append(str(tmp_path / slug))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(load_and_use, (folders,)) == load_and_use(folders)


def test_processes_prepare_the_same_text_at_once(text: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tokenizer = train_tokenizer({"kind": "bytes"}, ["x"])
    corpus = open_corpus(str(text))

    def work() -> object:
        return [prepare(corpus, split, tokenizer).ids.tolist() for split in corpus.splits]

    monkeypatch.setenv("NEXTWORD_CACHE", str(tmp_path / "alone"))
    alone = work()
    monkeypatch.setenv("NEXTWORD_CACHE", str(tmp_path / "shared"))
    assert in_children(*[work] * WORKERS) == [alone] * WORKERS
    assert len(list(cache_folder("prepared").iterdir())) == len(corpus.splits)  # and nothing is left over


def test_processes_train_from_one_cache_at_once(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(name: str) -> str:
        changes = [*SETTINGS, "phase.0.steps=6", "phase.0.validate_every=3"]
        nextword.train("lstm/tiny", text, out=tmp_path / name, changes=changes, device="cpu", progress=False)
        return name

    monkeypatch.setenv("NEXTWORD_CACHE", str(tmp_path / "cache"))
    train("alone")
    monkeypatch.setenv("NEXTWORD_CACHE", str(tmp_path / "other"))
    in_children(*[lambda i=i: train(f"{i}") for i in range(2)])
    weights = {(tmp_path / name / "model.safetensors").read_bytes() for name in ("alone", "0", "1")}
    assert len(weights) == 1


def test_run_can_be_read_while_it_is_trained(text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    changes = [*SETTINGS, "phase.0.steps=40", "phase.0.validate_every=1"]
    end = time.monotonic() + 120
    pid = run_child(
        lambda: nextword.train("lstm/tiny", text, out=folder, changes=changes, device="cpu", progress=False)
    )
    seen: list[float] = []
    while not (folder / "manifest.json").is_file() or not nextword.Run(folder).is_finished:
        assert time.monotonic() < end
        if not (folder / "manifest.json").is_file():
            time.sleep(0.001)
            continue
        assert "lstm/tiny" in repr(nextword.Run(folder))
        has_model = RunFolder.open(folder).has_model
        try:
            seen.append(nextword.load(folder, device="cpu").score("the old king").nats)
        except RunError:
            assert not has_model
    assert wait(pid) == 0
    assert len(set(seen)) > 1, "training ended before the run was read twice"
    assert nextword.load(folder, device="cpu").score("the old king").nats < max(seen)
