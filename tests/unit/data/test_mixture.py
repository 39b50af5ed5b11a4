"""Mixtures: documents follow the weights, epochs equal the table, and a mixture opens like any corpus."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from nextword.batching.token_stream import prepare
from nextword.core.errors import DataError, InvalidSetting, MissingFile, UnknownName
from nextword.core.types import Document
from nextword.data.corpus import Corpus
from nextword.data.mixture import MixedText
from nextword.data.opening import open_corpus, open_unsplit
from nextword.tokenizers.training import train_tokenizer
from tests.support.errors import raises


def folder(path: Path, name: str, counts: dict[str, int], size: int = 100) -> Path:
    """A corpus with the given number of different documents of `size` bytes in each split."""
    place = path / name
    place.mkdir()
    for split, count in counts.items():
        texts = [f"{name} {split} {i} ".ljust(size, "x") for i in range(count)]
        (place / f"{split}.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    return place


def mixture(path: Path, *sources: tuple[str, object], top: str = "", name: str = "mix.toml") -> Path:
    tables = "".join(f'[[source]]\ndata = "{data}"\nweight = {weight}\n' for data, weight in sources)
    (path / name).write_text(f"{top}\n{tables}")
    return path / name


def origins(corpus: Corpus, split: str = "train") -> list[str]:
    return [document.text.split()[0] for document in corpus.documents(split)]


@pytest.fixture
def three(tmp_path: Path) -> Path:
    folder(tmp_path, "a", {"train": 600, "valid": 3, "test": 2})
    folder(tmp_path, "b", {"train": 300, "valid": 4, "test": 1})
    folder(tmp_path, "c", {"train": 100, "valid": 1, "test": 1}, size=50)
    return tmp_path


def train(corpus: Corpus) -> MixedText:
    text = corpus.texts["train"]
    assert isinstance(text, MixedText)
    return text


def test_documents_follow_the_weights_throughout(three: Path) -> None:
    corpus = open_corpus(mixture(three, ("a", 0.5), ("b", 0.3), ("c", 0.2)))
    actual = Counter[str]()
    for number, document in enumerate(corpus.documents("train"), 1):
        actual[document.text.split()[0]] += len(document.text)
        if number % 100 == 0:
            total = sum(actual.values())
            for name, weight in {"a": 0.5, "b": 0.3, "c": 0.2}.items():
                assert abs(actual[name] - weight * total) <= 100
    assert abs(sum(actual.values()) - 95_000) <= 100  # as long as all sources together


def test_table_gives_epochs_of_each_source(three: Path) -> None:
    corpus = open_corpus(mixture(three, ("a", 6), ("b", 2), ("c", 2), top="bytes = 100_000"))
    rows = {row.name: row for row in train(corpus).table()}
    assert {name: (row.weight, row.bytes) for name, row in rows.items()} == {
        "a": (0.6, 60_000),
        "b": (0.2, 30_000),
        "c": (0.2, 5_000),
    }
    read = Counter(document.text for document in corpus.documents("train"))
    for name, epochs in {"a": 1.0, "b": 2 / 3, "c": 4.0}.items():
        assert rows[name].epochs == pytest.approx(epochs)
        times = [read[d.text] for d in open_corpus(three / name).documents("train")]
        assert abs(sum(times) / len(times) - epochs) < 0.02
        assert max(times) - min(times) <= 1
    assert times[0] == 4


def test_source_with_natural_weight_is_read_once(three: Path) -> None:
    corpus = open_corpus(mixture(three, ("a", 60), ("b", 30), ("c", 5)))
    read = Counter(document.text for document in corpus.documents("train"))
    assert set(read.values()) == {1}
    assert len(read) == 1000


def test_held_out_splits_are_those_of_the_sources(three: Path) -> None:
    corpus = open_corpus(mixture(three, ("b", 1), ("a", 9)))
    assert corpus.splits == ("train", "valid", "test")
    assert origins(corpus, "valid") == ["b"] * 4 + ["a"] * 3
    assert origins(corpus, "test") == ["b"] + ["a"] * 2
    assert [d.text for d in open_unsplit(three / "mix.toml").documents("test")] == [
        d.text for d in corpus.documents("test")
    ]


def test_documents_stay_whole_and_long_ones_alternate(tmp_path: Path) -> None:
    folder(tmp_path, "short", {"train": 1000, "valid": 1, "test": 1})
    (tmp_path / "long").mkdir()
    for split in ("train", "valid", "test"):
        (tmp_path / "long" / f"{split}.txt").write_text("long words of a book without end\n" * 10_000)
    corpus = open_corpus(mixture(tmp_path, ("short", 1), ("long", 1)))
    actual = list(corpus.documents("train"))
    assert any(document.continues for document in actual)
    last = Document("")
    stretches = 0
    for document in actual:
        if document.continues:
            assert "without end" in last.text
        elif "without end" in document.text:
            stretches += 1
        last = document
    assert stretches > 3
    sizes = Counter[str]()
    for document in actual:
        sizes["long" if "without end" in document.text else "short"] += len(document.text)
    assert abs(sizes["long"] - sizes["short"]) < 1 << 17


def test_fingerprint_depends_on_sources_weights_and_length(three: Path) -> None:
    first = open_corpus(mixture(three, ("a", 1), ("b", 1))).fingerprint
    assert open_corpus(mixture(three, ("a", 2), ("b", 2.0), name="same.toml")).fingerprint == first
    others = [
        open_corpus(mixture(three, ("a", 1), ("b", 1.5))).fingerprint,
        open_corpus(mixture(three, ("b", 1), ("a", 1))).fingerprint,
        open_corpus(mixture(three, ("a", 1), ("c", 1))).fingerprint,
        open_corpus(mixture(three, ("a", 1), ("b", 1), top="bytes = 50_000")).fingerprint,
    ]
    with open(three / "b" / "train.jsonl", "a") as file:
        file.write('{"text": "one more"}\n')
    others.append(open_corpus(mixture(three, ("a", 1), ("b", 1))).fingerprint)
    assert len({first, *others}) == 6


def test_mixture_can_be_prepared_like_any_corpus(three: Path) -> None:
    corpus = open_corpus(mixture(three, ("a", 1), ("python", 1), top="bytes = 40_000"))
    tokenizer = train_tokenizer({"kind": "bytes"}, (d.text for d in corpus.documents("train")))
    stream = prepare(corpus, "train", tokenizer)
    assert stream.bytes == sum(len(d.text.encode()) for d in corpus.documents("train"))
    assert 40_000 <= stream.bytes < 200_000
    assert prepare(corpus, "valid", tokenizer).bytes > 0


def test_documents_are_the_same_in_every_process(three: Path) -> None:
    path = mixture(three, ("a", 0.7), ("c", 0.1), ("b", 0.2))
    code = (
        "import sys; from hashlib import sha256; from nextword.data.opening import open_corpus;"
        "c = open_corpus(sys.argv[1]);"
        "print(c.fingerprint, sha256(''.join(d.text for d in c.documents('train')).encode()).hexdigest())"
    )
    outputs = {
        subprocess.run([sys.executable, "-c", code, path], text=True, capture_output=True, check=True).stdout
        for _ in range(2)
    }
    assert len(outputs) == 1
    assert open_corpus(str(path)).fingerprint in outputs.pop()


SOURCE = '[[source]]\ndata = "a"\n'


@pytest.mark.parametrize("text", ["", "source = 3", "[[source]"])
def test_open_mixture_without_sources_raises(three: Path, text: str) -> None:
    (three / "mix.toml").write_text(text)
    with raises(DataError, path=three / "mix.toml"):
        open_corpus(three / "mix.toml")


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        (SOURCE, "weight", None),
        (f"{SOURCE}weight = 0", "weight", 0),
        (f"{SOURCE}weight = -1.5", "weight", -1.5),
        (f"{SOURCE}weight = inf", "weight", math.inf),
        (f'{SOURCE}weight = "much"', "weight", "much"),
        (f"{SOURCE}weight = true", "weight", True),
        ("[[source]]\nweight = 1", "data", None),
        (f"bytes = 0\n{SOURCE}weight = 1", "bytes", 0),
        ('[[source]]\ndata = "mix.toml"\nweight = 1', "data", "mix.toml"),
        ('[[source]]\ndata = "-"\nweight = 1', "data", "-"),
    ],
)
def test_open_mixture_with_invalid_value_names_the_key(three: Path, text: str, key: str, value: object) -> None:
    (three / "mix.toml").write_text(text)
    with raises(InvalidSetting, key=key, value=value):
        open_corpus(three / "mix.toml")


def test_open_mixture_with_nan_weight_raises(three: Path) -> None:
    (three / "mix.toml").write_text(f"{SOURCE}weight = nan")
    with raises(InvalidSetting, key="weight"):
        open_corpus(three / "mix.toml")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"{SOURCE}weight = 1\nwieght = 2", "wieght"),
        (f"weights = 1\n{SOURCE}weight = 1", "weights"),
        ('[[source]]\ndata = "absent"\nweight = 1', "absent"),
    ],
)
def test_open_mixture_with_unknown_key_or_source_names_it(three: Path, text: str, name: str) -> None:
    (three / "mix.toml").write_text(text)
    with raises(UnknownName, name=name):
        open_corpus(three / "mix.toml")


def test_open_mixture_of_missing_or_held_out_source_raises(three: Path) -> None:
    (three / "mix.toml").write_text('[[source]]\ndata = "absent.txt"\nweight = 1')
    with raises(MissingFile, path="absent.txt"):
        open_corpus(three / "mix.toml")
    (three / "held").mkdir()
    (three / "held" / "test.txt").write_text("held out\n")
    (three / "mix.toml").write_text('[[source]]\ndata = "held"\nweight = 1')
    with raises(DataError, path="held"):
        open_corpus(three / "mix.toml")
