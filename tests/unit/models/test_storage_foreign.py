"""Run folders from strangers: sizes, headers and numbers are checked before memory is allocated."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from nextword.core.errors import InvalidSetting, NextwordError, RunError, UnknownName
from nextword.lm.loading import load
from nextword.models import MODELS, model_class, storage
from nextword.models.storage import FILE, check_weights, save_weights
from nextword.recipe import load_recipe, network_config, recipe_names
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer
from tests.support.resealing import change_model, reseal, write_safetensors
from tests.support.tiny_transfer import SHAPES, make_run

HUGE = 10**8
Change = Callable[[dict[str, torch.Tensor]], Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for slug in ("bert", "albert", "lstm", "xlnet", "t5", "elmo"):
        make_run(folder / slug, slug)
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Callable[[str], Path]:
    return lambda slug: Path(shutil.copytree(made / slug, tmp_path / slug))


def rewrite(folder: Path, change: Change) -> None:
    tensors = load_file(folder / FILE)
    change(tensors)
    save_file(tensors, folder / FILE)
    reseal(folder)


# ------------------------------------------------------------------------------------------------ sizes in the recipe


@pytest.mark.parametrize(
    ("slug", "settings"),
    [
        ("bert", {"layers": HUGE}),
        ("bert", {"layers": 999}),
        ("bert", {"width": HUGE}),
        ("bert", {"width": 1 << 20}),
        ("bert", {"window": 1 << 24}),
        ("bert", {"segments": 1 << 24}),
        ("bert", {"ffn_width": 10**18}),
        ("albert", {"layers": HUGE}),  # its layers are shared, so the file does not say how many there are
        ("albert", {"embedding": 1 << 24}),
        ("lstm", {"layers": HUGE}),
        ("lstm", {"width": 1 << 24}),
        ("lstm", {"readout": {"kind": "classes", "classes": 10**12}}),
        ("lstm", {"readout": {"kind": "mixture", "experts": 10**9}}),
        ("lstm", {"characters": {"filters": [[10**9, 10**9]]}}),
        ("xlnet", {"layers": 999}),
        ("xlnet", {"memory": HUGE}),
        ("t5", {"decoder_layers": 999}),
        ("t5", {"distance_buckets": 1 << 24}),
        ("elmo", {"layers": 999}),
        ("elmo", {"characters": {**SHAPES["elmo"]["characters"], "highway": 10**9}}),
        ("elmo", {"characters": {**SHAPES["elmo"]["characters"], "max_word_length": 10**9}}),
    ],
)
def test_sizes_beyond_the_weights_are_refused(run: Any, slug: str, settings: dict[str, Any]) -> None:
    folder = run(slug)
    change_model(folder, **settings)
    with pytest.raises(NextwordError):
        load(folder)


@pytest.mark.parametrize("value", [-1, "two", 2.5, True, [2]])
def test_size_of_a_wrong_type_is_refused(run: Any, value: object) -> None:
    folder = run("bert")
    change_model(folder, layers=value)
    with pytest.raises(InvalidSetting):
        load(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_number_without_a_float32_is_refused(run: Any, value: float) -> None:
    folder = run("elmo")
    change_model(folder, cell_clip=value)
    with pytest.raises(InvalidSetting):
        load(folder)


def test_unknown_setting_is_refused(run: Any) -> None:
    folder = run("bert")
    change_model(folder, depth=2)
    with pytest.raises(UnknownName):
        load(folder)


@pytest.mark.parametrize("most", range(40))
def test_network_that_is_stopped_leaves_torch_as_it_was(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "CALLS_PER_NETWORK", most)  # stopped at every moment of an initialization

    def build() -> None:
        with storage.building_without_memory(0, Path("recipe.toml"), RunError):
            torch.nn.ModuleList(torch.nn.LSTM(3, 4) for _ in range(20))

    with pytest.raises(RunError):
        build()
    assert torch.is_grad_enabled()
    assert torch.zeros(1).device.type == "cpu"


def test_network_is_not_built_before_it_is_compared(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network that is compared has no memory, and none that has memory is built after it."""
    folder = run("bert")
    change_model(folder, ffn_width=80)
    built: list[str] = []
    cls = model_class("bert")
    original = cls.__init__

    def record(self: Any, *given: Any) -> None:
        original(self, *given)
        built.append(self.embedding.weight.device.type)

    monkeypatch.setattr(cls, "__init__", record)
    with pytest.raises(RunError):
        load(folder)
    assert built == ["meta"]


@pytest.mark.parametrize("slug", [slug for slug in MODELS if slug != "ngram"])
def test_every_model_can_be_compared_without_memory(slug: str, tmp_path: Path) -> None:
    name = f"{slug}/tiny" if f"{slug}/tiny" in recipe_names() else f"{slug}/tiny-lm"
    recipe = load_recipe(name)
    sizes = {} if recipe.tokenizer.get("kind") == "bytes" else {"size": 300}
    text = "the quick brown fox jumps over the lazy dog, and the king of a land went to see his house\n" * 9
    words = vocabulary(train_tokenizer({**recipe.tokenizer, **sizes}, [text]), spellings=True)
    cls, config = model_class(slug), network_config(recipe)
    save_file({name: t.contiguous() for name, t in cls(config, words).state_dict().items()}, tmp_path / FILE)
    calls: list[str] = []

    class Counted(storage._LimitCalls):
        def __torch_function__(self, func: Any, *rest: Any) -> Any:
            calls.append(func.__name__)
            return super().__torch_function__(func, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "_LimitCalls", Counted)
        check_weights(tmp_path / FILE, lambda: cls(config, words).state_dict())
    assert len(calls) < storage.CALLS_PER_TENSOR / 2 * len(load_file(tmp_path / FILE))  # far from the limit


# ------------------------------------------------------------------------------------------------ the file of weights


def test_header_that_lies_is_refused(run: Any) -> None:
    folder = run("lstm")
    path = folder / FILE
    whole = path.read_bytes()
    tensor = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
    cases: list[Callable[[], object]] = [
        lambda: path.write_bytes(b""),
        lambda: path.write_bytes(whole[:-8]),
        lambda: path.write_bytes(whole + b"more"),
        lambda: path.write_bytes(struct.pack("<Q", 1 << 63) + whole[8:]),
        lambda: path.write_bytes(struct.pack("<Q", len(whole)) + whole[8:]),
        lambda: path.write_bytes(struct.pack("<Q", 2) + b"[]"),
        lambda: write_safetensors(path, {"a": tensor, "b": tensor}, bytes(16)),  # overlap
        lambda: write_safetensors(path, {"a": {**tensor, "data_offsets": [0, 1 << 60]}}, bytes(16)),
        lambda: write_safetensors(path, {"a": {**tensor, "shape": [1 << 62]}}, bytes(16)),
        lambda: write_safetensors(path, {"a": {**tensor, "shape": [1 << 33, 1 << 33]}}, bytes(16)),
        lambda: write_safetensors(path, {"a": {**tensor, "shape": [-4]}}, bytes(16)),
        lambda: write_safetensors(path, {"a": {**tensor, "dtype": "O"}}, bytes(16)),
    ]
    for damage in cases:
        damage()
        reseal(folder)
        with pytest.raises(RunError):
            load(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors.pop("readout.bias"),
        lambda tensors: tensors.update(more=torch.zeros(3)),
        lambda tensors: tensors.update({"readout.bias": tensors["readout.bias"].long()}),
        lambda tensors: tensors.update({"readout.bias": tensors["readout.bias"].half()}),
        lambda tensors: tensors.update({"readout.bias": tensors["readout.bias"][:-1]}),
        lambda tensors: tensors["readout.bias"].fill_(float("nan")),
        lambda tensors: tensors["readout.bias"].__setitem__(3, float("inf")),
    ],
    ids=["missing", "more", "integers", "half", "shorter", "nan", "infinite"],
)
def test_other_tensors_than_the_network_has_are_refused(run: Any, change: Change) -> None:
    folder = run("lstm")
    rewrite(folder, change)
    with pytest.raises(RunError):
        load(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors.update({"embedding.weight::scale": torch.ones(3)}),
        lambda tensors: tensors.update({"embedding.weight::scale": torch.ones(1 << 4, 1 << 4)}),
        lambda tensors: tensors.pop("embedding.weight::scale"),
        lambda tensors: tensors.update({"other::difference": torch.zeros(1 << 8, dtype=torch.int8)}),
    ],
    ids=["short scales", "scales of another shape", "no scales", "difference from nothing"],
)
def test_rounded_weights_that_do_not_fit_are_refused(run: Any, change: Change) -> None:
    folder = run("lstm")
    save_weights(load_file(folder / FILE), folder / FILE, "int8")
    stored = load_file(folder / FILE)
    change(stored)
    save_file(stored, folder / FILE, {"storage": "int8"})
    reseal(folder)
    with pytest.raises(RunError):
        load(folder)


@pytest.mark.parametrize("base", ["starter/../../../elsewhere", "/etc", "starter/none"])
def test_difference_from_another_place_than_a_starter_is_refused(run: Any, base: str) -> None:
    folder = run("lstm")
    save_file(load_file(folder / FILE), folder / FILE, {"storage": "int4", "base": base, "base_sha256": "0"})
    reseal(folder)
    with pytest.raises(UnknownName):
        load(folder)
