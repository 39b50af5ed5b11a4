"""Checkpoints from strangers: configs and headers that lie are refused with one error, before anything is built."""

from __future__ import annotations

import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from nextword.conversion import convert
from nextword.core.errors import DataError, MissingFile, NextwordError, Unsupported
from nextword.models import storage
from tests.support.resealing import write_safetensors
from tests.support.tiny_transfer import make_run

HUGE = 10**9
SLUGS = ("gpt1", "bert", "roberta", "albert", "xlnet", "t5")
LAYERS = {"gpt1": "n_layer", "xlnet": "n_layer", "t5": "num_layers"}
WIDTH = {"gpt1": "n_embd", "xlnet": "d_model", "t5": "d_model"}
Copy = Callable[..., Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder of a tiny random network of each kind."""
    folder = tmp_path_factory.mktemp("folders")
    for slug in SLUGS:
        convert(make_run(folder / "runs" / slug, slug), folder / slug, to="huggingface")
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Copy:
    """Copy a folder, and change its config.json; None removes a key."""

    def copy(slug: str, **settings: Any) -> Path:
        folder = Path(shutil.copytree(made / slug, tmp_path / slug))
        config = json.loads((folder / "config.json").read_text()) | settings
        (folder / "config.json").write_text(json.dumps({key: v for key, v in config.items() if v is not None}))
        return folder

    return copy


def refuse(folder: Path, error: type[NextwordError] = NextwordError) -> str:
    with pytest.raises(error) as problem:
        convert(folder, folder.with_name("target"))
    assert not folder.with_name("target").exists()
    return str(problem.value)


@pytest.mark.parametrize("slug", SLUGS)
def test_unchanged_folder_is_converted(copy: Copy, slug: str) -> None:
    folder = copy(slug)
    convert(folder, folder.with_name("target"))


# ------------------------------------------------------------------------------------------------ config.json


@pytest.mark.parametrize("slug", SLUGS)
def test_sizes_beyond_the_weights_are_refused(copy: Copy, slug: str) -> None:
    layers, width = LAYERS.get(slug, "num_hidden_layers"), WIDTH.get(slug, "hidden_size")
    for name, value in ((layers, HUGE), (layers, 999), (width, HUGE), (width, 1 << 20), ("vocab_size", HUGE)):
        folder = copy(slug, **{name: value})
        if not (slug == "albert" and value == 999):  # its layers share their weights: any number has them
            refuse(folder)
        shutil.rmtree(folder)


def test_no_network_with_memory_is_built_for_wrong_sizes(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr("nextword.conversion.name_map._to_float32", lambda *given: calls.append(given))
    refuse(copy("bert", intermediate_size=1 << 22), DataError)
    assert calls == []


@pytest.mark.parametrize("value", [-1, 0, 2.5, 1e300, "2", True, [], {}, 10**30])
@pytest.mark.parametrize("slug", ["bert", "t5"])
def test_layers_of_a_wrong_type_are_refused(copy: Copy, slug: str, value: object) -> None:
    refuse(copy(slug, **{LAYERS.get(slug, "num_hidden_layers"): value}))


@pytest.mark.parametrize("value", [-1, 1.5, "100", True, [], HUGE, 10**30])
def test_vocabulary_of_a_wrong_size_is_refused(copy: Copy, value: object) -> None:
    refuse(copy("bert", vocab_size=value), DataError)


@pytest.mark.parametrize("value", [10**18, 10**30, 0, "2"])
def test_roberta_segments_of_a_wrong_size_are_refused(copy: Copy, value: object) -> None:
    refuse(copy("roberta", type_vocab_size=value), DataError)


@pytest.mark.parametrize("classes", [None, 5, "BertModel", ["Odd"], {}, [[]]])
def test_unknown_architecture_is_refused(copy: Copy, classes: object) -> None:
    refuse(copy("bert", model_type=None, architectures=classes), Unsupported)


@pytest.mark.parametrize("text", ["{", "[]", '{"a":' * 10**5, '{"n_layer": 1' + "0" * 5000 + "}", "\xff", '{"a": NaN}'])
def test_damaged_config_is_refused(copy: Copy, text: str) -> None:
    folder = copy("bert")
    (folder / "config.json").write_bytes(text.encode("latin-1"))
    refuse(folder, DataError)


def test_layers_are_limited_by_the_number_of_tensors(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "CALLS_PER_NETWORK", 0)  # the network is tiny
    assert "more layers" in refuse(copy("bert", num_hidden_layers=900), DataError)


# ------------------------------------------------------------------------------------------------ safetensors


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors.pop("bert.embeddings.word_embeddings.weight"),
        lambda tensors: tensors.update({"embeddings.LayerNorm.weight": torch.ones(32)}),  # twice, with its prefix
        lambda tensors: tensors["bert.embeddings.LayerNorm.weight"].fill_(float("nan")),
        lambda tensors: tensors["bert.embeddings.LayerNorm.weight"].fill_(float("-inf")),
        lambda tensors: tensors.update({"bert.embeddings.LayerNorm.weight": torch.ones(32, dtype=torch.complex64)}),
        lambda tensors: tensors.update({"bert.embeddings.word_embeddings.weight": torch.ones(())}),
    ],
    ids=["missing", "twice", "nan", "infinite", "complex", "scalar"],
)
def test_tensors_that_do_not_fit_are_refused(copy: Copy, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    folder = copy("bert")
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    refuse(folder)


def test_headers_that_lie_are_refused(copy: Copy) -> None:
    folder = copy("bert")
    path = folder / "model.safetensors"
    tensor = {"dtype": "F32", "shape": [HUGE, HUGE], "data_offsets": [0, 16]}
    for header in (tensor, {**tensor, "data_offsets": [0, 4 * HUGE * HUGE]}, {**tensor, "shape": [-1, -4]}):
        write_safetensors(path, {"bert.embeddings.word_embeddings.weight": header}, bytes(16))
        refuse(folder, DataError)


@pytest.mark.parametrize("name", ["../elsewhere.safetensors", "/etc/passwd", "..", ".", "", "sub/file", "none"])
def test_index_that_points_outside_is_refused(copy: Copy, name: str) -> None:
    folder = copy("bert")
    shutil.copy(folder / "model.safetensors", folder.parent / "elsewhere.safetensors")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    refuse(folder)


@pytest.mark.parametrize("index", [{}, {"weight_map": []}, {"weight_map": {}}, {"weight_map": {"a": 5}}, []])
def test_index_of_another_form_is_refused(copy: Copy, index: object) -> None:
    folder = copy("bert")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    refuse(folder, DataError)


# ------------------------------------------------------------------------------------------------ pickles


class Command:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("was-run"),)


def use_pickle(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content: dict[str, Any] = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    change(content)
    torch.save(content, folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(1).expand(HUGE, HUGE),
        torch.zeros(4).as_strided((HUGE, 4), (0, 1)),
        torch.zeros(4, 4).to_sparse(),
        torch.zeros(4, device="meta"),
        [1, 2],
        "text",
    ],
    ids=["repeated number", "repeated row", "sparse", "without numbers", "list", "text"],
)
def test_pickle_of_other_things_than_numbers_is_refused(copy: Copy, value: object) -> None:
    folder = copy("bert")
    use_pickle(folder, lambda content: content.update({"bert.pooler.dense.bias": value}))
    refuse(folder, DataError)


def test_pickled_program_is_not_run(copy: Copy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = copy("bert")
    use_pickle(folder, lambda content: content.update(command=Command()))
    refuse(folder, DataError)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Command()))  # as before 2020: no archive
    refuse(folder, DataError)
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Command()))
    refuse(folder, DataError)
    assert not (tmp_path / "was-run").exists()


# ------------------------------------------------------------------------------------------------ tokenizers


def change_tokenizer(folder: Path, change: Callable[[Any], Any]) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"].pop("nextword", None)
    change(content)
    (folder / "tokenizer.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["model"]["vocab"].update({"the": HUGE}),
        lambda content: content["model"]["vocab"].update({"the": -1}),
        lambda content: content["model"]["vocab"].update({"the": "x"}),
        lambda content: content["model"].update(vocab=[]),
        lambda content: content["model"].update(type="Odd"),
        lambda content: content["added_tokens"][0].update(id=HUGE),
        lambda content: content.update(added_tokens=5),
        lambda content: content.update(pre_tokenizer={"type": "Odd"}),
        lambda content: content.update(normalizer=[1]),
        lambda content: content.update(model=5),
    ],
)
def test_damaged_tokenizer_is_refused(copy: Copy, change: Callable[[Any], Any]) -> None:
    folder = copy("bert")
    change_tokenizer(folder, change)
    refuse(folder, DataError)


@pytest.mark.parametrize("settings", [{"do_lower_case": "x"}, {"strip_accents": [5]}, {"cls_token": {"content": 5}}])
def test_tokenizer_config_of_wrong_types_is_refused_or_ignored(copy: Copy, settings: dict[str, Any]) -> None:
    folder = copy("bert")
    change_tokenizer(folder, lambda content: None)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    if "cls_token" in settings:
        convert(folder, folder.with_name("target"))  # the name of the token is in tokenizer.json
    else:
        refuse(folder, DataError)


def test_folder_in_place_of_a_file_is_refused(copy: Copy) -> None:
    folder = copy("bert")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()
    refuse(folder, MissingFile)
