"""N-gram files that were damaged, or written by a stranger: refused, or read to the end without a crash."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nextword
from nextword.core.errors import DataError, InvalidSetting, MissingFile, NextwordError, RunError
from nextword.models.ngram import FILE, MAX_CACHE, WEIGHTS, NGramConfig
from nextword.ngrams.counting import check_order
from nextword.ngrams.hash_layout import MAX_RUN, ROW
from nextword.ngrams.layouts import MAGIC, open_layout, write_layout
from nextword.ngrams.trie import MAX_ORDER, NONE, Level, Trie
from nextword.ngrams.trie_layout import CODE, HIGH, PLAN
from tests.support.ngram_files import (
    LAYOUTS,
    edit_array,
    read_header,
    with_header,
    write_ngram_files,
)
from tests.support.ngram_runs import make_ngram_run, reseal

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_ngram_files(folder)
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_ngram_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def run(plain: Path, tmp_path: Path) -> Path:
    shutil.copytree(plain, tmp_path / "run")
    return tmp_path / "run"


def assert_refused(path: Path) -> None:
    with pytest.raises(DataError) as error:
        open_layout(path)
    assert error.value.path == str(path)


# ------------------------------------------------------------------------------------------------ damage anywhere


def test_damage_anywhere_is_refused_or_harmless(files: Path) -> None:
    """In a process of its own, which a crash or its watchdog may end."""
    command = [sys.executable, "-m", "tests.support.ngram_files", "0-2", *(str(files / name) for name in LAYOUTS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"{lines[-1:]}\n{done.stderr}"
    assert lines.pop() == "done"
    assert len(lines) == 2 * 6 * (4 + 5 + 5)
    outcomes = {line.rsplit(": ", 1)[1] for line in lines}
    assert outcomes <= {"refused", "same", "other numbers"}, [line for line in lines if "UNSOUND" in line]
    assert outcomes >= {"refused", "same"}
    assert all(line.endswith("refused") for line in lines if "starts" in line or "numbers, noise" in line)


# ------------------------------------------------------------------------------------------------ the fast layout


def hashed_context(contexts: np.ndarray) -> Any:
    """The first context whose words are in a hash table."""
    return contexts[1 + int(np.flatnonzero(contexts["places"][1:] > ROW)[0])]


def set_field(name: str, value: Callable[[np.ndarray], int | float]) -> Callable[[np.ndarray], None]:
    def edit(array: np.ndarray) -> None:
        array[name][len(array) // 2] = value(array)

    return edit


FAST: dict[str, tuple[str, Callable[[np.ndarray], None]]] = {
    "falls back to itself": ("contexts", set_field("fall", lambda contexts: len(contexts) // 2)),
    "falls back to a later context": ("contexts", set_field("fall", lambda contexts: len(contexts) - 1)),
    "slots outside the file": ("contexts", set_field("first", lambda _: NONE)),
    "slots without end": ("contexts", set_field("places", lambda _: NONE)),
    "more slots": ("contexts", set_field("places", lambda contexts: 1 + int(contexts["places"][len(contexts) // 2]))),
    "NaN as a back-off": ("contexts", set_field("backoff", lambda _: np.nan)),
    "an infinite back-off": ("contexts", set_field("backoff", lambda _: np.inf)),
    "leads to a context that is not there": ("slots", set_field("next", lambda _: NONE)),
    "a word outside the vocabulary": ("slots", set_field("word", lambda _: 60)),
    "NaN as a log probability": ("slots", set_field("log_prob", lambda _: np.nan)),
    "a probability above 1": ("slots", set_field("log_prob", lambda _: 0.01)),
}


@pytest.mark.parametrize("name", FAST)
def test_fast_file_that_would_lead_astray_is_refused(name: str, files: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    shutil.copyfile(files / "fast", path)
    edit_array(path, *FAST[name])
    assert_refused(path)


def test_context_after_one_word_that_is_too_long_is_refused(files: Path, tmp_path: Path) -> None:
    """It would fall back more often than a reader of a short history has room for."""
    path = tmp_path / "model"
    shutil.copyfile(files / "fast", path)
    edit_array(path, "slots", lambda slots: slots["next"].__setitem__(5, len(open_layout(path).contexts) - 1))  # type: ignore[attr-defined]
    assert_refused(path)


def test_hash_table_without_an_empty_slot_is_refused(files: Path, tmp_path: Path) -> None:
    """A search for a word that is not in it would never end."""
    path = tmp_path / "model"
    shutil.copyfile(files / "fast", path)
    model = open_layout(path)
    context = hashed_context(model.contexts)  # type: ignore[attr-defined]
    first, last = int(context["first"]), int(context["first"]) + int(context["places"])

    def fill(slots: np.ndarray) -> None:
        table = slots[first:last]
        table["word"][table["word"] == NONE] = 7

    edit_array(path, "slots", fill)
    assert_refused(path)


def test_hash_table_that_makes_searches_slow_is_refused(tmp_path: Path) -> None:
    """All words of a context side by side: half of the slots are empty, but a search passes all of the others."""
    size, path = 2 * MAX_RUN, tmp_path / "model"
    words = np.arange(size, dtype=np.uint32)
    first = np.full(size + 1, size, np.uint32)
    first[0] = 0
    values = np.full(size, -9.0, np.float32)
    trie = Trie([Level(words, None, first, values, values), Level(words, words, None, values, None)], 0)
    write_layout(trie, path)
    open_layout(path)

    def move(slots: np.ndarray) -> None:
        table = slots[size:]
        table[:] = table[np.argsort(table["word"], kind="stable")]

    edit_array(path, "slots", move)
    assert_refused(path)


# ------------------------------------------------------------------------------------------------ the compact layout


def set_plan(level: int, column: int, change: int) -> Callable[[np.ndarray], None]:
    def edit(plan: np.ndarray) -> None:
        plan[level * PLAN + column] += change

    return edit


COMPACT: dict[str, tuple[str, Callable[[np.ndarray], None]]] = {
    "an offset outside the file": ("plan", set_plan(2, 0, 1 << 40)),
    "a negative offset": ("plan", set_plan(2, HIGH, -(1 << 40))),
    "a width of 64 bits": ("plan", set_plan(1, CODE, 64)),
    "children that end before they begin": ("numbers", lambda numbers: numbers.__setitem__(30, NONE - 1)),
    "a wrong stored position": ("numbers", lambda numbers: numbers.__setitem__(-1, NONE)),
    "NaN as a log probability": ("values", lambda values: values.__setitem__(3, np.nan)),
    "an infinite back-off": ("values", lambda values: values.__setitem__(63, np.inf)),
    "no coded numbers": ("bits", lambda bits: bits.fill(0)),
    "all bits set": ("bits", lambda bits: bits.fill((1 << 64) - 1)),
}


@pytest.mark.parametrize("layout", ["compact", "quantized"])
@pytest.mark.parametrize("name", COMPACT)
def test_compact_file_that_would_lead_astray_is_refused(name: str, layout: str, files: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    shutil.copyfile(files / layout, path)
    edit_array(path, *COMPACT[name])
    assert_refused(path)


# ------------------------------------------------------------------------------------------------ the header

HEADERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "no order": lambda header: header["facts"].pop("order"),
    "order 0": lambda header: header["facts"].update(order=0),
    "an absurd order": lambda header: header["facts"].update(order=MAX_ORDER + 1),
    "true for an order": lambda header: header["facts"].update(order=True),
    "another order": lambda header: header["facts"].update(order=3),
    "no words": lambda header: header["facts"].update(size=0),
    "more words": lambda header: header["facts"].update(size=61),
    "text for a size": lambda header: header["facts"].update(size="60"),
    "a boundary outside": lambda header: header["facts"].update(boundary=60),
    "a negative boundary": lambda header: header["facts"].update(boundary=-1),
    "entries that are no list": lambda header: header["facts"].update(entries=4),
    "another number of 2-grams": lambda header: header["facts"]["entries"].__setitem__(1, 7),
    "a negative number of 2-grams": lambda header: header["facts"]["entries"].__setitem__(1, -7),
    "more 4-grams than ids": lambda header: header["facts"]["entries"].__setitem__(3, 1 << 40),
    "an unknown layout": lambda header: header.update(layout="x"),
    "a list for a layout": lambda header: header.update(layout=[]),
    "no arrays": lambda header: header.update(arrays={}),
    "an array less": lambda header: header["arrays"].popitem(),
    "an array as text": lambda header: header["arrays"].update(dict.fromkeys(header["arrays"], "x")),
    "Python objects": lambda header: next(iter(header["arrays"].values())).update(type="|O"),
    "a longer array": lambda header: next(iter(header["arrays"].values())).update(length=10**9),
    "a negative length": lambda header: next(iter(header["arrays"].values())).update(length=-1),
    "a place outside": lambda header: next(iter(header["arrays"].values())).update(place=10**9),
    "a place as a fraction": lambda header: next(iter(header["arrays"].values())).update(place=512.0),
}


@pytest.mark.parametrize("layout", ["fast", "compact"])
@pytest.mark.parametrize("name", HEADERS)
def test_impossible_header_is_refused(name: str, layout: str, files: Path, tmp_path: Path) -> None:
    content = (files / layout).read_bytes()
    header = read_header(content)
    HEADERS[name](header)
    path = tmp_path / "model"
    path.write_bytes(with_header(content, header))
    assert_refused(path)


@pytest.mark.parametrize("text", [b"[" * 400, b"[]", b"9" * 400, b"\xff" * 400, b"{}", b'{"size": NaN}'])
def test_header_that_is_no_header_is_refused(text: bytes, files: Path, tmp_path: Path) -> None:
    content = bytearray((files / "fast").read_bytes())
    start = len(MAGIC) + 8
    content[start : start + 400] = text.ljust(400)
    content[start + 400 : content.index(b"\0", start)] = b" " * (content.index(b"\0", start) - start - 400)
    (tmp_path / "model").write_bytes(content)
    assert_refused(tmp_path / "model")


def test_header_of_gigabytes_is_refused_unread(files: Path, tmp_path: Path) -> None:
    content = bytearray((files / "fast").read_bytes())
    content[len(MAGIC) + 4 : len(MAGIC) + 8] = b"\xff" * 4
    (tmp_path / "model").write_bytes(content)
    assert_refused(tmp_path / "model")


def test_pipe_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model")
    with pytest.raises(MissingFile):
        open_layout(tmp_path / "model")


# ------------------------------------------------------------------------------------------------ runs


def flip_bits(path: Path, count: int, seed: int) -> None:
    content = bytearray(path.read_bytes())
    draw = np.random.default_rng(seed)
    for at in draw.integers(len(content), size=count):
        content[at] ^= 1 << int(draw.integers(8))
    path.write_bytes(content)


@pytest.mark.parametrize("seed", range(3))
def test_changed_run_is_refused_and_a_resealed_one_does_no_harm(seed: int, run: Path) -> None:
    flip_bits(run / FILE, 64, seed)
    with pytest.raises(RunError) as error:
        nextword.load(run, device="cpu")
    assert error.value.path == str(run / FILE)
    reseal(run)
    with contextlib.suppress(NextwordError):
        assert nextword.load(run, device="cpu").score("w1 w2 w3").nats >= 0


@pytest.mark.parametrize(
    "about",
    [
        {},
        [],
        {"files": [FILE], "weights": []},
        {"files": [FILE], "weights": [0.5]},
        {"files": [FILE], "weights": ["1"]},
        {"files": [FILE], "weights": [2.0, -1.0]},
        {"files": [FILE], "weights": [0.5, 0.5]},
        {"files": [], "weights": [1.0]},
        {"files": ["../model.ngram"], "weights": [1.0]},
        {"files": [FILE, FILE], "weights": [0.5, 0.5]},
        {"files": [7], "weights": [1.0]},
    ],
)
def test_impossible_weights_are_refused(about: object, run: Path) -> None:
    (run / WEIGHTS).write_text(json.dumps(about))
    reseal(run)
    with pytest.raises((RunError, DataError)) as error:
        nextword.load(run, device="cpu")
    assert error.value.path == str(run / WEIGHTS)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_ids_outside_the_vocabulary_are_refused(layout: str, files: Path) -> None:
    model = open_layout(files / layout)
    ids = np.array([1, 2, 60, 3], np.uint32)
    with pytest.raises(DataError):
        model.read(ids)
    with pytest.raises(DataError):
        model.distributions(ids[None])
    assert np.isfinite(model.read(np.array([59, NONE], np.uint32))).all()


def test_absurd_order_and_cache_are_refused() -> None:
    with pytest.raises(InvalidSetting):
        NGramConfig(order=MAX_ORDER + 1)
    with pytest.raises(InvalidSetting):
        check_order(MAX_ORDER + 1, 10**9)
    for cache in (-1, MAX_CACHE + 1):
        with pytest.raises(InvalidSetting):
            NGramConfig(cache=cache)
