"""Options of fine-tuning: class weights, reinitialized layers, and early stopping."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import nextword
from nextword import tasks as transfer
from nextword.core.errors import InvalidSetting, UnknownName
from nextword.models import model_class
from nextword.run_folder import RunFolder
from nextword.tasks.heads import tensors_of_last_layers
from nextword.tasks.plan import make_plan
from nextword.tasks.text_data import read_one
from tests.support.small_encoders import make_encoder
from tests.support.task_models import build_model
from tests.support.tiny_transfer import draw_color_texts, make_run, make_transfer_folder, write_table

QUICK = ["phase.0.optimizer.rate=3e-3", "phase.0.batches.rows=16", "model.dropout=0.0"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_transfer_folder(tmp_path_factory.mktemp("options"))
    blue = [row for row in draw_color_texts(600) if row[1] == "blue"][:135]
    red = [row for row in draw_color_texts(600, 1) if row[1] == "red"][:15]
    write_table(folder / "rare.csv", ["text", "label"], blue + red)
    return folder


def finetune(place: Path, out: Path, slug: str = "bert", data: str = "color", changes: Any = (), **more: Any) -> Any:
    changes = [*QUICK, *changes]
    return transfer.run("bert/finetune", place / slug, str(place / f"{data}.csv"), out, changes=changes, **more)


# ------------------------------------------------------------------------------------------------ weights


def test_balanced_class_weights_follow_the_training_rows(place: Path, tmp_path: Path) -> None:
    heard: list[Any] = []
    finetune(
        place,
        tmp_path / "w",
        data="rare",
        changes=["task.class_weights=balanced", "phase.0.steps=2"],
        on_plan=heard.append,
    )
    train = read_one(str(place / "rare.csv")).splits["train"].labels or []
    wanted = [len(train) / (2 * train.count(label)) for label in ("blue", "red")]
    assert RunFolder.open(tmp_path / "w").recipe.task["class_weights"] == pytest.approx(wanted)
    assert any("blue 0." in note for note in heard[0].notes)
    network = build_model(RunFolder.open(tmp_path / "w").recipe, heard[0].tokenizer)
    assert network.weights.tolist() == pytest.approx(wanted)
    assert "weights" not in load_file(tmp_path / "w/head.safetensors")
    assert nextword.load(tmp_path / "w", device="cpu").predict(["a red one"])[0].label in ("red", "blue")


def test_heavier_class_is_predicted_more_often(place: Path, tmp_path: Path) -> None:
    """The head learns class priors before it learns anything about the texts."""
    outputs = []
    for name, weights in (("light", "{red=0.02}"), ("heavy", "{red=50.0}")):
        changes = [f"task.class_weights={weights}", "phase.0.steps=20", "phase.0.optimizer.rate=1e-2"]
        finetune(place, tmp_path / name, data="color", changes=changes)
        predictions = nextword.load(tmp_path / name, device="cpu").predict(
            [text for text, _ in draw_color_texts(40, 7)]
        )
        outputs.append(float(np.mean([prediction.probabilities["red"] for prediction in predictions])))
    assert outputs[0] < 0.3
    assert outputs[1] > 0.7


@pytest.mark.parametrize(
    ("data", "change", "key"),
    [
        ("count", "task.class_weights=balanced", "task.class_weights"),
        ("color", "task.class_weights=3", "task.class_weights"),
        ("color", "task.reinit_layers=-1", "task.reinit_layers"),
        ("color", "task.reinit_layers=3", "task.reinit_layers"),
    ],
)
def test_invalid_option_raises_before_the_folder_exists(place: Path, data: str, change: str, key: str) -> None:
    with pytest.raises(InvalidSetting) as error:
        finetune(place, place / "no", data=data, changes=[change])
    assert error.value.key == key
    assert not (place / "no").exists()


def test_weight_of_an_unknown_class_raises(place: Path) -> None:
    with pytest.raises(UnknownName) as error:
        finetune(place, place / "no", changes=["task.class_weights={green=2.0}"])
    assert (error.value.name, error.value.known) == ("green", ("blue", "red"))


# ------------------------------------------------------------------------------------------------ fresh layers


@pytest.mark.parametrize("slug", ["bert", "roberta"])
def test_tensors_of_last_layers_of_transformer_are_its_last_blocks(slug: str) -> None:
    network = make_encoder(slug)
    names = tensors_of_last_layers(network, 2)
    numbers = {name.split(".")[1] for name in names if name.startswith(("attending", "feeding"))}
    assert numbers == {"1", "2"}  # of three
    others = {name.split(".")[0] for name in names} - {"attending", "feeding"}
    assert others == ({"pooler"} if slug == "bert" else set())
    assert tensors_of_last_layers(network, 0) == ()


@pytest.mark.parametrize(
    ("slug", "first"), [("gpt2", "blocks.1."), ("t5", "encoder.blocks.1."), ("xlnet", "blocks.1.")]
)
def test_tensors_of_last_layers_of_other_networks_start_with_expected_name(slug: str, first: str) -> None:
    cls = model_class(slug)
    config = cls.Config(**{"t5": {"width": 8, "ffn_width": 8, "heads": 2, "head_width": 4, "layers": 2}}.get(
        slug, {"width": 8, "layers": 2, "heads": 2, **({"window": 8} if slug == "gpt2" else {"ffn_width": 8})}
    ))  # fmt: skip
    network = cls(config, nextword.core.types.Vocabulary(20, 0, {"<s>": 0}, end=1))
    names = tensors_of_last_layers(network, 1)
    assert names
    assert all(name.startswith(first) for name in names)


def test_reinit_layers_reinitializes_last_layers_by_seed_and_loads_the_rest(place: Path, tmp_path: Path) -> None:
    """A negligible learning rate keeps the initial weights."""
    changes = [
        "task.reinit_layers=1",
        "phase.0.steps=1",
        "phase.0.optimizer.rate=1e-30",
        "phase.0.optimizer.weight_decay=0.0",
    ]
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        finetune(place, tmp_path / name, changes=changes, seed=seed)
    source = load_file(place / "bert/model.safetensors")
    a, b, c = (load_file(tmp_path / name / "model.safetensors") for name in "abc")
    anew = [name for name in source if not torch.allclose(a[name], source[name], atol=1e-9)]
    assert {".".join(name.split(".")[:2]) for name in anew} <= {"attending.1", "feeding.1", "pooler.weight"}
    assert "attending.1.attention.out.weight" in anew
    assert "pooler.weight" in anew
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["pooler.weight"], c["pooler.weight"])
    plan = make_plan("bert/finetune", place / "bert", str(place / "color.csv"), changes=[*QUICK, *changes])
    torch.testing.assert_close(
        a["pooler.weight"], build_model(plan.recipe, plan.tokenizer).encoder.pooler.weight.detach()
    )


def test_reinit_layers_of_networks_without_separate_layers_raises(place: Path, tmp_path: Path) -> None:
    for slug, name in (("lstm", "LSTM"), ("albert", "ALBERT")):
        with pytest.raises(InvalidSetting, match=name):
            finetune(place, tmp_path / slug, slug=slug, changes=["task.reinit_layers=1"])
    free = make_run(tmp_path / "free", "albert", sharing="none")
    finetune(
        tmp_path,
        tmp_path / "out",
        slug=free.name,
        data=str(place / "color"),
        changes=["task.reinit_layers=1", "phase.0.steps=1"],
    )


# ------------------------------------------------------------------------------------------------ stopping early


def test_patience_stops_and_keeps_the_best_weights(place: Path, tmp_path: Path) -> None:
    changes = ["phase.0.epochs=40", "phase.0.patience=2", "phase.0.keep=best", "phase.0.schedule={kind='constant'}"]
    outcome = finetune(place, tmp_path / "out", changes=changes)
    checks = [line for line in RunFolder(tmp_path / "out").read_log() if line["event"] == "valid"]
    values = [line["accuracy"] for line in checks]
    assert outcome.results[0]["stopped"] == "patience"
    assert len(values) < 40
    best = max(range(len(values)), key=lambda i: (values[i], -checks[i]["valid"], -i))  # ties: the lowest loss
    assert [i for i, line in enumerate(checks) if line["best"]][-1] == best
    assert len(values) == values.index(max(values)) + 1 + 3  # more than two after the first best one
    assert outcome.mean == values[best]
    dev = read_one(str(place / "color.csv")).splits["dev"]
    predictions = nextword.load(tmp_path / "out", device="cpu").predict(dev.texts)
    assert np.mean([p.label == gold for p, gold in zip(predictions, dev.labels or [], strict=True)]) == values[best]
