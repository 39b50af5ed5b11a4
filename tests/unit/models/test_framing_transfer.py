"""Initializing from another run (`init = RUN`): matching weights, added tokens, and errors for mismatches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from nextword.core.errors import NextwordError
from nextword.models import MODELS
from nextword.models.base import FILE
from nextword.models.framing import SPREAD
from nextword.recipe import parse_recipe
from nextword.run_folder import RunFolder
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.training import train_tokenizer
from nextword.training.train import build_network, train_events

TEXT = "the king of the land went to see his house and the queen of the sea went home\n"
SHAPE = {"width": 24, "layers": 1, "heads": 2, "window": 16, "dropout": 0.0}
SPEC = {"kind": "classic-bpe", "size": 100}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a text, and to `run` a network trained on it for a few steps, with [model] extra_tokens = 0."""
    place = tmp_path_factory.mktemp("begin")
    write_text(place / "text", TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(place / "cache"))
        train(place, "run", steps=3)
    return place


def write_text(place: Path, text: str) -> None:
    place.mkdir()
    for split in ("train", "valid", "test"):
        (place / f"{split}.txt").write_text(text * 20)


@pytest.fixture(autouse=True)
def cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_CACHE", str(folder / "cache"))


def make_recipe(folder: Path, slug: str = "gpt1", tokenizer: Any = None, model: Any = None, **phase: Any) -> Any:
    batches = {"kind": "blocks", "rows": 4, "length": 16}
    phase = {"data": str(folder / "text"), "batches": batches, "steps": 1, "keep": "last", **phase}
    tables = {"paper": {"slug": slug}, "tokenizer": tokenizer or SPEC, "model": SHAPE if model is None else model}
    return parse_recipe({**tables, "phase": [phase]}, "made")


def train(folder: Path, name: str, *args: Any, **options: Any) -> dict[str, torch.Tensor]:
    list(train_events(make_recipe(folder, *args, **options), folder / name, device="cpu"))
    return load_file(str(folder / name / FILE))


def negligible_step(folder: Path, **model: Any) -> dict[str, Any]:
    """Settings of one training step from the run with a negligible learning rate."""
    return {
        "init_from": str(folder / "run"),
        "model": {**SHAPE, **model},
        "optimizer": {"kind": "sgd", "rate": 1e-30},
    }


def expect_error(folder: Path, *args: Any, **options: Any) -> str:
    with pytest.raises(NextwordError) as error:
        train(folder, "refused", *args, **{"init_from": str(folder / "run"), **options})
    assert not (folder / "refused").exists()  # raised before the folder exists
    return str(error.value)


def test_phase_with_init_starts_from_the_weights_of_the_run(folder: Path) -> None:
    there = load_file(str(folder / "run" / FILE))
    here = train(folder, "same", **negligible_step(folder))
    fresh = build_network(make_recipe(folder), load_tokenizer(folder / "run" / "tokenizer.json")).state_dict()
    assert here.keys() == there.keys() == fresh.keys()
    assert all(torch.equal(here[name], there[name]) for name in there)
    assert not all(torch.equal(fresh[name], there[name]) for name in there)  # not just the initial weights


def test_recipe_with_extra_tokens_resizes_the_run(folder: Path) -> None:
    there = load_file(str(folder / "run" / FILE))
    here = train(folder, "grown", **negligible_step(folder, extra_tokens=3))
    rows = here.pop("extra.weight")
    assert here.keys() == there.keys()
    assert all(torch.equal(here[name], there[name]) for name in there)
    assert rows.shape == (3, SHAPE["width"])
    assert 0.5 * SPREAD < rows.std() < 1.5 * SPREAD
    again = train(folder, "grown-again", **negligible_step(folder, extra_tokens=3))
    assert torch.equal(again["extra.weight"], rows)  # drawn with the seed of the phase
    other = train(folder, "grown-otherwise", **negligible_step(folder, extra_tokens=3), seed=2)
    assert not torch.equal(other["extra.weight"], rows)


def test_resized_run_keeps_its_rows_and_resizes_further(folder: Path) -> None:
    rows = train(folder, "grown3", **negligible_step(folder, extra_tokens=3))["extra.weight"]
    options = {**negligible_step(folder, extra_tokens=3), "init_from": str(folder / "grown3"), "seed": 9}
    assert torch.equal(train(folder, "as-it-is", **options)["extra.weight"], rows)
    options["model"] = {**SHAPE, "extra_tokens": 5}
    more = train(folder, "grown5", **options)["extra.weight"]
    assert torch.equal(more[:3], rows)
    assert more.shape == (5, SHAPE["width"])
    message = expect_error(folder, init_from=str(folder / "grown3"))  # and rows are never dropped silently
    assert "extra.weight is (3, 24)" in message


def test_resized_run_resumes_bit_identically(folder: Path) -> None:
    """Resuming loads the state of the phase, not the initial run."""
    options = {**negligible_step(folder, extra_tokens=3), "optimizer": {"kind": "adam", "rate": 0.01}, "steps": 4}
    full = train(folder, "whole", **options)
    calls = iter([False, True])
    list(train_events(make_recipe(folder, **options), folder / "cut", device="cpu", stop=lambda: next(calls)))
    list(train_events(None, folder / "cut", resume=True, device="cpu"))
    resumed = load_file(str(folder / "cut" / FILE))
    assert all(torch.equal(resumed[name], full[name]) for name in full)


def test_init_with_other_shapes_names_the_tensors(folder: Path) -> None:
    message = expect_error(folder, model={**SHAPE, "window": 32})
    assert "'gpt1'" in message
    assert "positions.weight is (16, 24) there and (32, 24) here" in message


def test_init_with_other_layers_names_the_first_few_tensors(folder: Path) -> None:
    message = expect_error(folder, model={**SHAPE, "layers": 2})
    assert message.count("blocks.1.") == 4
    assert "8 more" in message


def test_init_from_another_network_raises(folder: Path) -> None:
    message = expect_error(folder, "lstm", model={"width": 24}, batches={"kind": "rows", "rows": 4, "length": 16})
    assert "'gpt1'" in message


@pytest.mark.parametrize("extra", [0, 3])
def test_init_with_another_tokenizer_raises_before_comparing_shapes(folder: Path, extra: int) -> None:
    message = expect_error(folder, tokenizer={**SPEC, "size": 60}, model={**SHAPE, "extra_tokens": extra})
    assert "another tokenizer (classic-bpe, " in message
    assert f'load = "{folder / "run" / "tokenizer.json"}"' in message


def test_init_with_another_vocabulary_of_equal_size_raises(folder: Path) -> None:
    """All shapes match, but every id has another meaning."""
    theirs = load_tokenizer(folder / "run" / "tokenizer.json")
    other = train_other_tokenizer(len(theirs))
    assert len(other) == len(theirs)
    other.save(folder / "other.json")
    message = expect_error(folder, tokenizer={"load": str(folder / "other.json")})
    assert "another tokenizer" in message


def train_other_tokenizer(size: int) -> Tokenizer:
    """Train a tokenizer of exactly this size on other words."""
    words = " ".join(f"{a}{b}{c}" for a in "bdfgkl" for b in "aeiou" for c in "mnprst")
    return train_tokenizer({**SPEC, "size": size}, [words] * 5)


def test_init_with_loaded_tokenizer_of_the_run_succeeds(folder: Path) -> None:
    there = load_file(str(folder / "run" / FILE))
    own = {"load": str(folder / "run" / "tokenizer.json")}
    write_text(folder / "more", "his sea was the queen of his land and his home\n")
    options = {**negligible_step(folder), "tokenizer": own, "data": str(folder / "more")}
    here = train(folder, "elsewhere", **options)
    assert all(torch.equal(here[name], there[name]) for name in there)


def test_init_from_unfinished_run_without_model_raises(folder: Path) -> None:
    tokenizer = load_tokenizer(folder / "run" / "tokenizer.json")
    RunFolder.create(folder / "begun", make_recipe(folder), tokenizer)
    assert str(folder / "begun") in expect_error(folder, init_from=str(folder / "begun"))


def test_init_from_counting_model_raises(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "toy", "tests.support.toy_bigram:Bigram")
    counting = {"model": {"add": 0.5}, "kind": "count", "steps": 0}
    list(train_events(make_recipe(folder, "toy", **counting), folder / "counted", device="cpu"))
    assert str(folder / "counted") in expect_error(folder, init_from=str(folder / "counted"))
    expect_error(folder, "toy", **counting)
