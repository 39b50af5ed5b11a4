"""`nextword convert` with folders of transformers: runs that work with every command, and rejected folders."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from nextword.conversion import convert
from nextword.conversion.huggingface import CheckpointFiles
from nextword.core.scratch import PREFIX
from nextword.lm.loading import load

from .conftest import Cli, contents, expect_error

Js = Callable[..., Any]
SMALL = ("--set", "tokenizer.size=300", "--set", "model.width=12", "--set", "phase.0.steps=8")


@pytest.fixture(scope="module")
def run(cli: Cli, text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small GPT-2 run; do not modify."""
    folder = tmp_path_factory.mktemp("gpt2") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        cli("train", "gpt2/tiny", "--data", text, "--out", folder, *SMALL)
    return folder


@pytest.fixture(scope="module")
def written(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("written") / "folder"
    convert(run, target, to="huggingface")
    return target


def test_run_without_a_format_gets_the_commands_that_work(cli: Cli, run: Path, trained: Path, tmp_path: Path) -> None:
    message = expect_error(cli, run, tmp_path / "out")
    assert f"nextword convert {run} {tmp_path / 'out'} --to huggingface" in message
    assert f"nextword convert {run} {tmp_path / 'out'} --set model.bits=8" in message
    assert "arpa" not in message
    message = expect_error(cli, trained, tmp_path / "out")  # an LSTM over bytes
    assert "--to int8 (a smaller file)" in message
    assert "huggingface" not in message


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy of the folder that tests may modify."""
    return Path(shutil.copytree(written, tmp_path / "folder"))


def change(path: Path, **settings: Any) -> None:
    config = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in {**config, **settings}.items() if value != "absent"}))


def rewrite(folder: Path, changed: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = load_file(folder / "model.safetensors")
    changed(tensors)
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "model.safetensors")


# ---------------------------------------------------------------------------------------------- what works


def test_converted_run_works_with_every_command(
    cli: Cli, js: Js, run: Path, folder: Path, text: Path, tmp_path: Path
) -> None:
    shown = cli("convert", folder, tmp_path / "runs" / "gpt").stdout
    made = tmp_path / "runs" / "gpt"
    assert f"nextword generate {made}" in shown
    assert "300 tokens · width 12 · layers 2 · heads 3 · window 64" in shown
    prompt = "the king"
    for command, *rest in (("next",), ("generate", "--temperature", 0), ("generate", "--seed", 3)):
        mine, other = (json.dumps(js(command, place, prompt, *rest)) for place in (run, made))
        assert mine.replace(str(run), "") == other.replace(str(made), "")
    (tmp_path / "other.txt").write_text(text.read_text(encoding="utf-8")[:5000], encoding="utf-8")
    measured, other = (js("evaluate", place, "--data", tmp_path / "other.txt")["nats"] for place in (run, made))
    assert other == pytest.approx(measured, rel=1e-6)
    for place in (run, made):
        cli("embed", place, text, "--out", tmp_path / f"{place.name}.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "run.npy"), np.load(tmp_path / "gpt.npy"))
    (result,) = js("runs", "--folder", made.parent)
    assert (result["slug"], result["recipe"], result["status"]) == ("gpt2", "folder", "finished")
    assert "unknown" in cli("runs", made).stdout
    assert "--data" in cli("evaluate", made, fails=True).stderr
    assert "--data" in cli("train", "--resume", "--out", made, fails=True).stderr


def test_converted_run_records_its_source(cli: Cli, folder: Path, tmp_path: Path) -> None:
    cli("convert", folder, tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["converted"]["from"] == "folder"
    assert manifest["converted"]["files"].keys() == {"config.json", "model.safetensors"}
    recipe = (tmp_path / "run" / "recipe.toml").read_text()
    assert 'title = "Language Models are Unsupervised Multitask Learners"' in recipe
    assert "read from folder" in recipe


def test_convert_to_huggingface_describes_the_folder(cli: Cli, js: Js, run: Path, tmp_path: Path) -> None:
    shown = cli("convert", run, tmp_path / "a", "--to", "huggingface").stdout
    assert "a Hugging Face folder" in shown
    assert "from transformers import pipeline" in shown
    output = js("convert", run, tmp_path / "b", "--to", "huggingface")
    assert output["parameters"] == load(run).parameters
    assert (output["vocabulary"], output["model"]["width"]) == (300, 12)
    assert output["size"] == sum(path.stat().st_size for path in (tmp_path / "b").iterdir())
    assert "card.md" not in contents(tmp_path / "a")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_convert_into_an_empty_folder_fills_it(
    cli: Cli, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    cli("convert", run, ".", "--to", "huggingface")
    (tmp_path / "there").mkdir()
    cli("convert", ".", tmp_path / "there")
    assert load(tmp_path / "there").score("the king").nats == pytest.approx(load(run).score("the king").nats)
    assert not list(tmp_path.rglob(f"{PREFIX}*"))


def test_convert_huggingface_folder_to_another_dtype(cli: Cli, folder: Path, tmp_path: Path) -> None:
    cli("convert", folder, tmp_path / "small", "--to", "huggingface", "--set", "huggingface.dtype=bfloat16")
    before, after = (load_file(place / "model.safetensors") for place in (folder, tmp_path / "small"))
    assert {name: t.bfloat16().tolist() for name, t in before.items()} == {n: t.tolist() for n, t in after.items()}
    assert {t.dtype for t in after.values()} == {torch.bfloat16}
    assert json.loads((tmp_path / "small" / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_convert_with_a_tokenizer_from_another_folder(cli: Cli, folder: Path, run: Path, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "vocab.json", "merges.txt"):
        (folder / name).unlink()
    message = expect_error(cli, folder, tmp_path / "run")
    assert "--tokenizer PATH" in message
    cli("convert", folder, tmp_path / "run", "--tokenizer", run)
    assert load(tmp_path / "run").score("the king").nats == pytest.approx(load(run).score("the king").nats)


# ---------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "llama"}, "'llama'"),
        ({"model_type": "absent", "architectures": ["Odd"]}, "['Odd']"),
        ({"activation_function": "relu"}, "activation_function = 'relu'"),
        ({"activation_function": "gelu"}, "'gelu_new' or 'gelu_pytorch_tanh'"),
        ({"scale_attn_weights": False}, "scale_attn_weights = False"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True"),
        ({"add_cross_attention": True}, "add_cross_attention = True"),
        ({"n_inner": 13}, "n_inner = 13"),
        ({"n_embd": "wide"}, "n_embd = 'wide'"),
        ({"n_embd": 12.5}, "width = 12.5 must be a whole number"),
        ({"n_head": 5}, "heads = 5"),
        ({"n_layer": 0}, "layers = 0"),
        ({"n_layer": None}, "n_layer"),
        ({"n_layer": 3}, "h.2.ln_1"),
        ({"n_layer": 1}, "has 12 tensors that gpt2 has no place for: h.1."),
        ({"n_embd": 24}, "wte.weight is 300 × 12, not 300 × 24"),
        ({"n_positions": 65}, "wpe.weight is 64 × 12, not 65"),
        ({"vocab_size": 299}, "vocab_size = 299"),
        ({"vocab_size": 301}, "vocab_size = 301"),
        ({"tie_word_embeddings": False}, "lm_head.weight"),
    ],
)
def test_read_unsupported_settings_names_the_key(
    cli: Cli, folder: Path, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    change(folder / "config.json", **settings)
    assert message in expect_error(cli, folder, tmp_path / "run")


def test_convert_with_missing_or_extra_tensors_names_them(cli: Cli, folder: Path, tmp_path: Path) -> None:
    whole = contents(folder)["model.safetensors"]
    rewrite(folder, lambda tensors: [tensors.pop(name) for name in list(tensors) if ".mlp." in name or "ln_" in name])
    message = expect_error(cli, folder, tmp_path / "run")
    assert "lacks 18 tensors" in message
    assert message.count("h.") == 10
    assert "… (8 more)" in message
    (folder / "model.safetensors").write_bytes(whole)
    rewrite(folder, lambda tensors: tensors.update({"score.weight": torch.zeros(2, 12)}))
    message = expect_error(cli, folder, tmp_path / "run")
    assert "1 tensor that gpt2 has no place for: score.weight" in message
    assert "GPT2LMHeadModel" in message
    (folder / "model.safetensors").write_bytes(whole)
    rewrite(folder, lambda tensors: tensors.update({"lm_head.weight": torch.zeros(300, 12)}))
    assert "lm_head.weight" in expect_error(cli, folder, tmp_path / "run")
    (folder / "model.safetensors").write_bytes(whole)
    rewrite(folder, lambda tensors: tensors.update({n: t.to(torch.int8) for n, t in tensors.items()}))
    assert "wte.weight has the type int8" in expect_error(cli, folder, tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", b"{", "config.json"),
        ("config.json", b"[]", "expected a JSON object"),
        ("config.json", None, "manifest.json"),
        ("model.safetensors", None, "pytorch_model.bin"),
        ("model.safetensors", b"cut short", "model.safetensors"),
        ("tokenizer.json", b"{", "tokenizer.json"),
        ("tokenizer.json", b"{}", "neither a tokenizer"),
    ],
)
def test_convert_incomplete_folder_names_the_file(
    cli: Cli, folder: Path, tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    assert message in expect_error(cli, folder, tmp_path / "run")


def test_convert_truncated_or_unsupported_weights_names_the_file(cli: Cli, folder: Path, tmp_path: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert "model.safetensors" in expect_error(cli, folder, tmp_path / "run")
    assert "model.safetensors" in expect_error(cli, path, tmp_path / "run")
    path.rename(folder / "tf_model.h5")
    assert "tf_model.h5" in expect_error(cli, folder, tmp_path / "run")


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{}", "weight_map"),
        ('{"weight_map": []}', "weight_map"),
        ('{"weight_map": {"a": 1}}', "weight_map"),
        ('{"weight_map": {"a": "part-2.safetensors"}}', "lacks part-2.safetensors"),
        ('{"weight_map": {"a": "../elsewhere.safetensors"}}', "../elsewhere.safetensors"),
        ('{"weight_map": {"a": "part-1.safetensors"}}', "part-1.safetensors"),
    ],
)
def test_convert_with_invalid_shard_index_names_the_problem(
    cli: Cli, folder: Path, tmp_path: Path, index: str, message: str
) -> None:
    (folder / "model.safetensors").rename(folder / "part-1.safetensors")
    (folder / "model.safetensors.index.json").write_text(index)
    assert message in expect_error(cli, folder, tmp_path / "run")


class Trap:
    """Creates a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("how", ["archive", "plain", "raw"])
def test_convert_malicious_pickle_executes_nothing(cli: Cli, folder: Path, tmp_path: Path, how: str) -> None:
    (folder / "model.safetensors").unlink()
    sprung, path = tmp_path / "sprung", folder / "pytorch_model.bin"
    held = {"transformer.wte.weight": torch.zeros(2), "trap": Trap(sprung)}
    if how == "raw":
        path.write_bytes(pickle.dumps(held))
    else:
        torch.save(held, path, _use_new_zipfile_serialization=how == "archive")
    message = expect_error(cli, folder, tmp_path / "run")
    assert "pytorch_model.bin" in message
    assert not sprung.exists()
    if how != "raw":  # the trap is a real one
        torch.load(path, weights_only=False)
        assert sprung.exists()


def test_convert_pickle_without_weights_names_the_file(cli: Cli, folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"state_dict": {}}, folder / "pytorch_model.bin")
    assert "pytorch_model.bin" in expect_error(cli, folder, tmp_path / "run")
    (folder / "pytorch_model.bin").write_bytes(b"nothing of the kind")
    assert "pytorch_model.bin" in expect_error(cli, folder, tmp_path / "run")


def test_convert_to_wrong_format_or_setting_names_it(
    cli: Cli, run: Path, trained: Path, folder: Path, tmp_path: Path
) -> None:
    there = ("--to", "huggingface")
    assert "overwrites" in expect_error(cli, run, folder, *there)
    assert "out.safetensors" in expect_error(cli, run, tmp_path / "out.safetensors", *there)
    assert "out.arpa" in expect_error(cli, run, tmp_path / "out.arpa", *there)
    assert "onnx" in expect_error(cli, run, tmp_path / "out", "--to", "onnx")
    for asked, message in (("dtype=int8", "float16"), ("shards=2", "huggingface.shards")):
        assert message in expect_error(cli, run, tmp_path / "out", *there, "--set", f"huggingface.{asked}")
    assert "tokenizer.load" in expect_error(cli, folder, tmp_path / "o", "--set", "model.width=3")
    message = expect_error(cli, trained, tmp_path / "out", *there)
    assert "LSTM" in message
    assert "gpt1, gpt2, gpt3" in message
    assert "n-gram" in expect_error(cli, folder, tmp_path / "out.arpa")


def test_convert_banded_layers_to_huggingface_fails(cli: Cli, text: Path, tmp_path: Path) -> None:
    cli("train", "gpt3/tiny", "--data", text, "--out", tmp_path / "run", *SMALL, "--set", "phase.0.steps=1")
    message = expect_error(cli, tmp_path / "run", tmp_path / "out", "--to", "huggingface")
    assert "[model] local_window = 16" in message


def test_convert_to_float16_with_overflow_names_the_tensor(cli: Cli, run: Path, tmp_path: Path) -> None:
    lm = load(run)
    with torch.no_grad():
        lm.network.embedding.weight[3, 4] = 1e5
    from nextword.conversion.base import create_run
    from nextword.run_folder import RunFolder

    create_run(tmp_path / "large", RunFolder.open(run).recipe, lm.tokenizer, lambda place: lm.network)
    asked = ("--to", "huggingface", "--set", "huggingface.dtype=float16")
    assert "transformer.wte.weight" in expect_error(cli, tmp_path / "large", tmp_path / "out", *asked)


def test_convert_notes_different_dropouts(js: Js, folder: Path, tmp_path: Path) -> None:
    change(folder / "config.json", attn_pdrop=0.2, n_ctx=32)
    notes = js("convert", folder, tmp_path / "run")["notes"]
    assert notes == [
        "n_ctx is 32, but n_positions is 64; the run has 64.",
        "attn_pdrop is 0.2, but resid_pdrop is 0.0; the run has 0.0.",
    ]


def test_convert_from_python_writes_a_folder(run: Path, tmp_path: Path) -> None:
    made = convert(run, tmp_path / "there", to="huggingface")
    assert made.facts["parameters"] == load(run).parameters
    assert "transformer.wte.weight" in CheckpointFiles(made.target).names()
