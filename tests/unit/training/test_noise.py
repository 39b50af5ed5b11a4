"""NoisyTune: the paper's noise bit for bit, once for each weight, and only where it makes sense."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import BertConfig, BertForMaskedLM

import nextword
from nextword.core.errors import InvalidSetting, NextwordError
from nextword.models.base import FILE
from nextword.training.noise import KINDS, add_noise

WORDS = ["the", "king", "saw", "old", "house", "and", "queen", "went", "to", "river"]


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_bert() -> BertForMaskedLM:
    torch.manual_seed(0)
    config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24)
    return BertForMaskedLM(config)


def test_uniform_noise_equals_the_papers_snippet_bit_for_bit() -> None:
    ours, theirs, generator = make_bert(), make_bert(), seeded()
    add_noise(ours, seeded(), strength=0.15)
    with torch.no_grad():
        for _, parameter in theirs.named_parameters():
            parameter[:] += (torch.rand(parameter.size(), generator=generator) - 0.5) * 0.15 * torch.std(parameter)
    for name, parameter in ours.named_parameters():
        assert torch.equal(parameter, theirs.state_dict()[name]), name
    tied = ours.cls.predictions.decoder.weight
    assert tied is ours.bert.embeddings.word_embeddings.weight  # so it got its noise once


@pytest.mark.parametrize("kind", KINDS)
def test_noise_has_the_variance_of_its_kind(kind: str) -> None:
    network = nn.ModuleDict({"wide": nn.Linear(300, 300, bias=False), "narrow": nn.Linear(300, 300, bias=False)})
    with torch.no_grad():
        network["wide"].weight.normal_(0, 1.0, generator=seeded(1))
        network["narrow"].weight.normal_(0, 0.1, generator=seeded(2))
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    overall = torch.cat([p.flatten() for p in before.values()]).std()
    add_noise(network, seeded(), kind, 0.3)
    for name, parameter in network.named_parameters():
        noise = parameter.detach() - before[name]
        spread = overall if kind.startswith("global-") else before[name].std()
        assert float(noise.std()) == pytest.approx(0.3 * float(spread) / math.sqrt(12), rel=0.02)
        if kind.endswith("uniform"):
            assert noise.abs().max() <= 0.15 * spread * 1.001


def test_constant_parameters_and_single_numbers_stay_as_they_are() -> None:
    network = nn.ParameterDict({"ones": nn.Parameter(torch.ones(5)), "number": nn.Parameter(torch.tensor(2.0))})
    add_noise(network, seeded())
    assert network["ones"].tolist() == [1.0] * 5
    assert network["number"].item() == 2.0


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("noise")
    text = folder / "text.txt"
    draw = random.Random(1)
    text.write_text("".join(" ".join(draw.choices(WORDS, k=9)) + "\n" for _ in range(400)), encoding="utf-8")
    nextword.train("bert/tiny", text, out=folder / "bert", steps=2, progress=False, device="cpu")
    return folder / "bert"


def fine_tune(bert: Path, name: str, **settings: Any) -> dict[str, torch.Tensor]:
    """The weights after one step at a rate of almost zero."""
    rows = [(f"the {WORDS[i % 9]} {WORDS[i % 7]} of number {i}", "ab"[i % 2]) for i in range(80)]
    out = bert.parent / name
    frozen = {"kind": "sgd", "rate": 1e-30}
    nextword.transfer(
        "bert/finetune", bert, rows, out=out, progress=False, device="cpu", steps=1,
        optimizer=frozen, **settings,
    )  # fmt: skip
    return load_file(str(out / FILE))


def test_fine_tuning_begins_with_noisy_weights_and_records_the_setting(bert: Path) -> None:
    plain, noisy = fine_tune(bert, "plain"), fine_tune(bert, "noisy", noise={"strength": 0.2})
    changed = {name for name in plain if not torch.equal(plain[name], noisy[name])}
    source = load_file(str(bert / FILE))
    assert {
        name for name, tensor in source.items() if tensor.numel() > 1 and tensor.std() > 0
    } & plain.keys() <= changed
    assert "noise" in (bert.parent / "noisy" / "recipe.toml").read_text(encoding="utf-8")


def test_noise_of_strength_zero_changes_nothing(bert: Path) -> None:
    plain, same = fine_tune(bert, "plain-0"), fine_tune(bert, "zero", noise={"strength": 0.0})
    assert all(torch.equal(plain[name], same[name]) for name in plain)


def test_embeddings_can_be_left_without_noise(bert: Path) -> None:
    plain = fine_tune(bert, "plain-1")
    noisy = fine_tune(bert, "no-embeddings", noise={"embeddings": False})
    table = next(name for name in plain if name.endswith("embedding.weight"))
    assert torch.equal(plain[table], noisy[table])
    assert any(not torch.equal(plain[name], noisy[name]) for name in plain)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"strength": -0.1}, "noise.strength"),
    ({"strength": "much"}, "noise.strength"),
    ({"kind": "laplace"}, "noise.kind"),
    ({"embeddings": 1}, "noise.embeddings"),
]


@pytest.mark.parametrize(("noise", "key"), WRONG)
def test_wrong_setting_is_an_error_that_names_it(bert: Path, noise: dict[str, Any], key: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        fine_tune(bert, f"wrong-{key}-{noise}", noise=noise)
    assert caught.value.key == key


def test_unknown_key_is_refused(bert: Path) -> None:
    with pytest.raises(NextwordError, match="lambda"):
        fine_tune(bert, "unknown", noise={"lambda": 0.1})


def test_noise_without_pretrained_weights_is_refused(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting) as caught:
        nextword.train("bert/tiny", bert.parent / "text.txt", out=tmp_path / "x", noise={"strength": 0.1})
    assert caught.value.key == "noise"
