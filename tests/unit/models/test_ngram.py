"""The n-gram model: recipes, tokenizers, mixtures, the cache, invalid input, and interruption."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nextword
from nextword.core import pytree
from nextword.core.errors import DataError, InvalidSetting, RunError
from nextword.core.io import cache_folder
from nextword.core.scratch import PREFIX
from nextword.core.types import Beam, Greedy, Sample, Stop, Vocabulary
from nextword.models import ngram
from nextword.models.ngram import NGram
from nextword.ngrams import counting
from nextword.ngrams.layouts import MAGIC
from nextword.recipe import RECIPES, load_recipe, parse_recipe
from nextword.run_folder import RunFolder
from nextword.tokenizers import vocabulary
from nextword.tokenizers.loading import load_tokenizer
from nextword.training.train import train_events

NAMES = sorted(path.stem for path in RECIPES.glob("ngram/*.toml"))
TOKENIZERS: list[dict[str, Any]] = [
    {"kind": "words"},
    {"kind": "words", "lines": False},
    {"kind": "characters"},
    {"kind": "bytes"},
    {"kind": "bpe", "size": 300},
    {"kind": "classic-bpe", "size": 200},
    {"kind": "wordpiece", "size": 200},
    {"kind": "unigram", "size": 120},
]


def draw_sentences(seed: int, lines: int) -> str:
    draw = np.random.default_rng(seed)
    who = ["the cat", "a dog", "the old man", "my sister", "a small bird"]
    does = ["sees", "likes", "chases", "paints", "<unk>"]
    whom = ["the house", "a tree", "the cat", "me", "the red door"]
    when = ["", " today", " at night", " again and again"]
    result = [" ".join(draw.choice(part) for part in (who, does, whom)) + draw.choice(when) for _ in range(lines)]
    return "\n".join(result) + "\n"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a corpus of three files, each a single document of lines."""
    parts = {"train": draw_sentences(0, 200), "valid": draw_sentences(1, 40), "test": draw_sentences(2, 20)}
    return write_corpus(tmp_path_factory.mktemp("corpus") / "animals", **parts)


def write_corpus(folder: Path, **parts: str) -> Path:
    folder.mkdir()
    for name, content in parts.items():
        (folder / f"{name}.txt").write_text(content)
    return folder


def make_tables(text: Path, tokenizer: dict[str, Any], estimator: dict[str, Any], **model: Any) -> dict[str, Any]:
    return {
        "paper": {"slug": "ngram"},
        "tokenizer": tokenizer,
        "model": {"order": 3, **model},
        "phase": [{"kind": "count", "data": str(text), "estimator": estimator}],
    }


def train_ngram(
    folder: Path,
    text: Path,
    tokenizer: dict[str, Any] | None = None,
    estimator: dict[str, Any] | None = None,
    **model: Any,
) -> Path:
    recipe = parse_recipe(make_tables(text, tokenizer or {"kind": "words"}, estimator or {}, **model), "here")
    list(train_events(recipe, folder, device="cpu"))
    return folder


@pytest.fixture(scope="module")
def plain(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of order 3 over words, which tests must not change."""
    base = tmp_path_factory.mktemp("plain")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(base / "cache"))
        return train_ngram(base / "run", text)


def assert_works(folder: Path, sample: str = "the cat sees") -> None:
    """Assert that the run loads, scores texts as the sum of normalized steps, and generates with every strategy."""
    manifest = RunFolder.open(folder).manifest
    assert manifest["finished"]
    assert manifest["parameters"] > 0
    lm = nextword.load(folder, device="cpu")
    last, state = lm.network.start(1)
    total = 0.0
    ids = lm.tokenizer.encode(f"{sample}\n{sample} me today\n").ids
    for id in ids.tolist():
        log_p, state = lm.network.step(last, state)
        assert log_p.exp().sum().item() == pytest.approx(1, abs=1e-5)
        total -= log_p[0, id].item()
        last = torch.tensor([id])
    assert lm.score(f"{sample}\n{sample} me today\n").nats == pytest.approx(total, rel=1e-5)
    assert lm.stream_nats(ids).sum() == pytest.approx(total, rel=1e-5)
    assert len(lm.next(sample, k=3)) == 3
    for how in (Greedy(), Sample(seed=1), Beam(width=3)):
        pieces = list(lm.generate(sample, how, Stop(max_tokens=8)))
        assert pieces[-1].reason
        assert all(np.isfinite(piece.log_prob) for piece in pieces)


# ------------------------------------------------------------------------------------------------ recipes, tokenizers


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_trains_loads_scores_and_generates(name: str, text: Path, tmp_path: Path) -> None:
    recipe = load_recipe(f"ngram/{name}", [f"phase.0.data={text}"])
    events = list(train_events(recipe, tmp_path / "run", device="cpu"))
    assert events[-1].values["reason"] == "counted"
    fractions = [event.values["fraction"] for event in events if "fraction" in event.values]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    assert_works(tmp_path / "run", "the cat sees the house")


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=lambda t: "-".join(map(str, t.values())))
def test_ngram_works_with_every_tokenizer(tokenizer: dict[str, Any], text: Path, tmp_path: Path) -> None:
    folder = train_ngram(tmp_path / "run", text, tokenizer)
    assert_works(folder)
    lm = nextword.load(folder, device="cpu")
    last, state = lm.network.start(1)
    assert last.item() == lm.network.boundary
    p = lm.network.step(last, state)[0][0].exp()
    for name, id in lm.tokenizer.special.items():
        open = id == lm.network.boundary or "unk" in name.lower()
        assert (p[id].item() > 0) == open, name


def test_ngram_with_wordpieces_uses_end_as_boundary(text: Path, tmp_path: Path) -> None:
    lm = nextword.load(train_ngram(tmp_path / "run", text, {"kind": "wordpiece", "size": 200}), device="cpu")
    assert lm.tokenizer.begin != lm.tokenizer.end
    assert lm.network.boundary == lm.tokenizer.end
    pieces = list(lm.generate("the cat sees", Sample(seed=3), Stop(max_tokens=4000)))
    assert lm.tokenizer.begin not in [id for piece in pieces for id in piece.ids]


def test_literal_special_tokens_in_text_are_ordinary_or_unknown_words(tmp_path: Path) -> None:
    """`<unk>` and `<eos>` are the unknown word; `<s>` and `</s>` are ordinary words."""
    corpus = write_corpus(
        tmp_path / "marks", train="a <unk> b\n<s> a b </s>\na <eos> b\n" * 3, valid="a b\n", test="b\n"
    )
    lm = nextword.load(train_ngram(tmp_path / "run", corpus, order=2, estimator={"kind": "additive"}), device="cpu")
    words = lm.tokenizer
    assert sorted(words.words) == ["</s>", "<s>", "a", "b"]
    assert words.encode("a <unk> <eos> \n").ids.tolist() == [*words.encode("a").ids, 0, 0, words.begin]
    p = {word: guess.probability for guess in lm.next("a", k=6) for word in [guess.text]}
    # After a: b 3, <unk> 3, and <eos> 3, read as <unk>; 9 in total, plus one for each of six words
    assert p == pytest.approx(
        {"<unk>": 7 / 15, "b": 4 / 15, "a": 1 / 15, "<s>": 1 / 15, "</s>": 1 / 15, "<eos>": 1 / 15}
    )
    first = {guess.text: guess.probability for guess in lm.next("", k=6)}
    assert first["<s>"] == pytest.approx(4 / 15)  # three of nine lines start with that word
    assert first["a"] == pytest.approx(7 / 15)


# ------------------------------------------------------------------------------------------------ mixtures, the cache


def compute_mean_nats(folder: Path, ids: np.ndarray) -> float:
    return float(nextword.load(folder, device="cpu").stream_nats(ids).mean())


@pytest.mark.parametrize("cache", [0, 30])
def test_mixture_scores_no_worse_than_its_better_part(cache: int, text: Path, plain: Path, tmp_path: Path) -> None:
    tokenizer = {"load": str(plain / "tokenizer.json")}
    five = train_ngram(tmp_path / "five", text, tokenizer, {"kind": "witten-bell"}, order=5)
    mix = {"kind": "maximum-likelihood", "mix": [str(plain), str(five)]}
    mixed = train_ngram(tmp_path / "mixed", text, tokenizer, mix, order=2, cache=cache)
    network = nextword.load(mixed, device="cpu").network
    assert len(network.weights) == 3 + bool(cache)
    assert network.weights.sum() == pytest.approx(1, abs=1e-9)
    assert network.window == (None if cache else 4)  # of the part with the highest order
    ids = load_tokenizer(plain / "tokenizer.json").encode((text / "valid.txt").read_text()).ids
    parts = [compute_mean_nats(plain, ids), compute_mean_nats(five, ids)]
    assert compute_mean_nats(mixed, ids) <= min(parts) + 1e-5
    assert_works(mixed)
    reported = [line for line in RunFolder.open(mixed).read_log() if "weights" in line]
    assert reported[-1]["weights"] == pytest.approx(network.weights.tolist(), abs=1e-6)


def test_cache_improves_score_of_repetitive_text(text: Path, tmp_path: Path) -> None:
    repeating = "".join(line * 6 for line in draw_sentences(3, 8).splitlines(keepends=True))
    parts = {"train": (text / "train.txt").read_text(), "valid": repeating, "test": repeating}
    corpus = write_corpus(tmp_path / "repeating", **parts)
    lm = nextword.load(train_ngram(tmp_path / "with", corpus, order=1, cache=30), device="cpu")
    without = nextword.load(train_ngram(tmp_path / "without", corpus, order=1), device="cpu")
    assert lm.context is None
    assert 0.01 < lm.network.weights[-1] < 0.99
    assert lm.score(repeating).nats < without.score(repeating).nats - 1
    assert_works(tmp_path / "with")


def test_take_state_rows_equals_steps_of_those_rows(text: Path, tmp_path: Path) -> None:
    network = nextword.load(train_ngram(tmp_path / "run", text, order=4, cache=5), device="cpu").network
    last, state = network.start(3)
    for _ in range(4):
        log_p, state = network.step(last, state)
        last = torch.tensor([int(log_p[row].topk(row + 1).indices[row]) for row in range(3)])
    straight, _ = network.step(last, state)
    rows = torch.tensor([2, 0, 2, 1])
    taken, after = network.step(last[rows], pytree.take(state, rows))
    assert torch.equal(taken, straight[rows])
    assert after.shape == (4, network.back)


def test_compact_layout_scores_like_fast_layout(text: Path, plain: Path, tmp_path: Path) -> None:
    lm = nextword.load(train_ngram(tmp_path / "run", text, layout="compact"), device="cpu")
    ids = lm.tokenizer.encode((text / "test.txt").read_text()).ids
    assert compute_mean_nats(plain, ids) == pytest.approx(float(lm.stream_nats(ids).mean()), rel=1e-6)
    assert_works(tmp_path / "run")


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("estimator", "model", "key"),
    [
        ({}, {"order": 0}, "model.order"),
        ({}, {"order": 5000}, "model.order"),
        ({}, {"bits": 8}, "model.bits"),
        ({}, {"layout": "hash"}, "model.layout"),
        ({"kind": "kneser"}, {}, "estimator.kind"),
        ({"discount": 1}, {}, "estimator.discount"),
        ({"discounts": [[2.0]]}, {}, "estimator.discounts"),
        ({"prune": "1"}, {}, "estimator.prune"),
        ({"prune": 1}, {}, "estimator.prune"),
        ({"prune": [0, "1"]}, {}, "estimator.prune"),
        ({"prune": [0, 2, 1]}, {}, "estimator.prune"),
        ({"prune": [0, -1]}, {}, "estimator.prune"),
        ({"prune": [1, 1]}, {}, "estimator.prune"),
        ({"memory": "lots"}, {}, "estimator.memory"),
        ({"memory": 2}, {}, "estimator.memory"),
        ({"memory": "1MB", "on_disk": True}, {}, "estimator.memory"),
        ({"interpolated": 3}, {}, "estimator.interpolated"),
        ({"cutoff": True}, {}, "estimator.cutoff"),
        ({"cutoff": 0}, {}, "estimator.cutoff"),
        ({"kind": "additive", "add": 0}, {}, "estimator.add"),
        ({"kind": "additive", "add": float("inf")}, {}, "estimator.add"),
        ({"kind": "stupid", "alpha": -1}, {}, "estimator.alpha"),
        ({"add": "a"}, {}, "estimator.add"),
        ({"entropy": -1e-8}, {}, "estimator.entropy"),
        ({"mix": "runs/one"}, {}, "estimator.mix"),
    ],
)
def test_invalid_setting_raises(
    estimator: dict[str, Any], model: dict[str, Any], key: str, text: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidSetting) as error:
        train_ngram(tmp_path / "run", text, {"kind": "words"}, estimator, **model)
    assert error.value.key == key
    del error
    gc.collect()
    assert not list(cache_folder("prepared").glob(f"{PREFIX}*"))


def test_mixing_unmixable_runs_raises(text: Path, plain: Path, tmp_path: Path) -> None:
    load = {"load": str(plain / "tokenizer.json")}
    mix = {"mix": [str(plain)]}
    with pytest.raises(RunError):
        train_ngram(tmp_path / "bytes", text, {"kind": "bytes"}, mix)
    swapped = tmp_path / "swapped.json"  # as many words, but in another order
    content = json.loads((plain / "tokenizer.json").read_text())
    swapped.write_text(json.dumps(content | {"words": content["words"][::-1]}))
    with pytest.raises(RunError):
        train_ngram(tmp_path / "swapped", text, {"load": str(swapped)}, mix)
    mixture = train_ngram(tmp_path / "mixture", text, load, mix)
    with pytest.raises(RunError) as error:
        train_ngram(tmp_path / "twice", text, load, {"mix": [str(mixture)]})
    assert error.value.path == str(mixture)
    with pytest.raises(RunError) as error:
        train_ngram(tmp_path / "missing", text, load, {"mix": ["nowhere"]})
    assert error.value.path == "nowhere"


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram", "characters", "bytes"])
def test_runs_with_loaded_tokenizer_can_be_mixed(kind: str, text: Path, tmp_path: Path) -> None:
    spec = {"kind": kind} | ({"size": 300 if kind == "bpe" else 120} if kind in ("bpe", "wordpiece", "unigram") else {})
    first = train_ngram(tmp_path / "one", text, spec)
    two = train_ngram(tmp_path / "two", text, {"load": str(first / "tokenizer.json")}, {"mix": [str(first)]}, order=2)
    assert len(nextword.load(two, device="cpu").network.parts) == 2


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def change_version(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(MAGIC)] = 99
    path.write_bytes(data)


def remove_header(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(MAGIC) + 8] = 0
    path.write_bytes(data)


def change_kind(path: Path) -> None:
    path.write_bytes(b"\\data\\\nngram 1=3\n" + path.read_bytes())


def empty_file(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    "damage",
    [truncate, change_version, remove_header, change_kind, empty_file],
)
def test_damaged_file_raises(damage: Callable[[Path], None], plain: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(plain, run)
    damage(run / ngram.FILE)
    with pytest.raises(RunError):
        nextword.load(run, device="cpu")
    words = vocabulary(load_tokenizer(run / "tokenizer.json"))
    with pytest.raises(DataError) as error:
        NGram.load(run, NGram.Config(order=3), words)
    assert error.value.path == str(run / ngram.FILE)


def test_swapped_tokenizer_raises(text: Path, plain: Path, tmp_path: Path) -> None:
    other = train_ngram(tmp_path / "other", text, {"kind": "characters"})
    run = tmp_path / "run"
    shutil.copytree(plain, run)
    shutil.copyfile(other / "tokenizer.json", run / "tokenizer.json")
    with pytest.raises(RunError):
        nextword.load(run, device="cpu")
    with pytest.raises(RunError):
        NGram.load(run, NGram.Config(order=3), vocabulary(load_tokenizer(run / "tokenizer.json")))
    right = vocabulary(load_tokenizer(plain / "tokenizer.json"))
    with pytest.raises(RunError):
        NGram.load(run, NGram.Config(order=3), Vocabulary(right.size, right.begin, right.special, end=0))


# ------------------------------------------------------------------------------------------------ interrupted


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("steps", [1, 4, 7, 10])
def test_interrupted_run_resumes_to_the_same_model(
    steps: int, on_disk: bool, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "BLOCK", 256)
    estimator = {"on_disk": on_disk, "memory": "1GB"}
    uninterrupted = train_ngram(tmp_path / "whole", text, estimator=estimator, order=4)
    call_count = 0

    def stop() -> bool:
        nonlocal call_count
        call_count += 1
        return call_count == steps

    recipe = parse_recipe(make_tables(text, {"kind": "words"}, estimator, order=4), "here")
    events = list(train_events(recipe, tmp_path / "run", device="cpu", stop=stop))
    assert events[-1].values["reason"] == "interrupted"
    assert not (tmp_path / "run" / ngram.FILE).exists()
    with pytest.raises(RunError):
        nextword.load(tmp_path / "run", device="cpu")
    del events
    gc.collect()
    assert not list(cache_folder("prepared").glob(f"{PREFIX}*"))
    assert list(train_events(None, tmp_path / "run", resume=True, device="cpu"))[-1].values["reason"] == "counted"
    for name in (ngram.FILE, ngram.WEIGHTS):
        assert (tmp_path / "run" / name).read_bytes() == (uninterrupted / name).read_bytes()
    assert RunFolder.open(tmp_path / "run").manifest["finished"]
    gc.collect()
    assert not list(cache_folder("prepared").glob(f"{PREFIX}*"))
