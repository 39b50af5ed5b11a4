"""Adding embeddings for frame tokens keeps all other outputs, in memory and in files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

import nextword
from nextword.conversion import convert
from nextword.conversion.base import create_run
from nextword.core.errors import InvalidSetting, RunError, Unsupported
from nextword.core.types import IGNORE, Inputs
from nextword.models.framing import (
    add_missing_tokens,
    collate,
    combine,
    next_token_targets,
    resize_embeddings,
    take_positions,
)
from nextword.models.gpt1 import GPT1, GPT1Config
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.recipe import load_recipe
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer
from tests.support.errors import raises
from tests.support.small_gpt1 import BEGIN, EXTRACT, SHAPE, SIZE, START, VOCABULARY, A, B, C, make_gpt1

# ------------------------------------------------------------------------------------------------ growing


@torch.no_grad()
def test_resize_embeddings_keeps_known_outputs_bit_identical() -> None:
    network = make_gpt1()
    ids, lengths = torch.randint(0, SIZE, (3, 15)), torch.tensor([15, 15, 15])
    h, _ = network.encode(Inputs(ids))
    before = (
        *h,
        network.readout.log_probs(h[-1].flatten(0, 1)),
        network.score(ids, lengths, network.initial(3))[0],
        network.step(ids[:, 0], network.initial(3))[0],
        network.embedding.weight.clone(),
    )
    network.fast.gpu.captured.append(object())  # type: ignore[arg-type]  # recorded on a GPU, without room for new tokens
    assert resize_embeddings(network, 3) is network
    assert not network.fast.gpu.captured
    h, _ = network.encode(Inputs(ids))
    after = (
        *h,
        network.readout.log_probs(h[-1].flatten(0, 1)),
        network.score(ids, lengths, network.initial(3))[0],
        network.step(ids[:, 0], network.initial(3))[0],
        network.embedding.weight,
    )
    for old, new in zip(before, after, strict=True):
        assert torch.equal(old, new)
    assert after[-2].shape == (3, SIZE)  # new tokens are never predicted
    assert network.config == dataclasses.replace(GPT1Config(**SHAPE), extra_tokens=3)
    assert network.vocabulary.size == SIZE


@torch.no_grad()
def test_new_tokens_have_separate_embedding_rows() -> None:
    network = resize_embeddings(make_gpt1(), 3)
    ids = torch.tensor([[START, 1, EXTRACT, SIZE - 1]])
    rows = torch.stack(
        [network.extra.weight[0], network.embedding.weight[1], network.extra.weight[2], network.embedding.weight[-1]]
    )
    want = rows + network.positions.weight[:4]
    assert torch.equal(network.encode(Inputs(ids))[0][0][0], want)
    state = network.initial(1)
    for i in range(4):  # and one by one with a state
        layers, state = network.encode(Inputs(ids[:, i : i + 1]), state)
        assert torch.equal(layers[0][0, 0], want[i])


def test_new_embedding_rows_are_initialized_as_in_the_paper() -> None:
    network = make_gpt1()
    resize_embeddings(network, 2000, torch.Generator().manual_seed(1))
    assert network.extra.weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert network.extra.weight.mean().item() == pytest.approx(0, abs=5e-4)
    again = resize_embeddings(make_gpt1(), 2000, torch.Generator().manual_seed(1))
    assert torch.equal(again.extra.weight, network.extra.weight)
    kept = network.extra.weight.detach().clone()
    resize_embeddings(network, 5)
    assert network.config.extra_tokens == 2005
    assert torch.equal(network.extra.weight[:2000], kept)
    assert network.num_parameters() == make_gpt1().num_parameters() + 2005 * 24
    torch.manual_seed(2)
    result = GPT1(GPT1Config(**SHAPE, extra_tokens=2000), VOCABULARY)  # from the start
    assert result.extra is not None
    assert result.extra.weight.std().item() == pytest.approx(0.02, rel=0.02)


def test_gradients_reach_new_and_old_embedding_rows() -> None:
    network = resize_embeddings(make_gpt1(), 3)
    inputs, pooled_position = collate(network.frames("similar", [A, B]), BEGIN)
    combine("similar", take_positions(network.encode(inputs)[0][-1], pooled_position)).square().sum().backward()
    assert network.extra.weight.grad is not None
    assert (network.extra.weight.grad.abs().sum(1) > 0).all()
    touched = network.embedding.weight.grad.abs().sum(1) > 0
    assert touched.nonzero().flatten().tolist() == [1, 2, 3, 7, 8]


def test_training_with_task_and_language_loss_updates_all_weights() -> None:
    """L₃ = L₂ + λ L₁ (eq. 5) with λ = 0.5, as in fine-tuning."""
    network = resize_embeddings(make_gpt1(), 3).train()
    head = nn.Linear(24, 2)
    optimizer = torch.optim.Adam([*network.parameters(), *head.parameters()], 0.01)
    inputs, pooled_position = collate([network.frame(A, B), network.frame(B, C)], BEGIN)
    losses = []
    for _ in range(25):
        h = network.encode(inputs)[0][-1]
        targets = next_token_targets(inputs, SIZE)
        language = network.readout.total(h.flatten(0, 1), targets.flatten()) / (targets != IGNORE).sum()
        loss = F.cross_entropy(head(take_positions(h, pooled_position)), torch.tensor([0, 1])) + 0.5 * language
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_add_missing_tokens_resizes_once_and_only_if_needed() -> None:
    network = add_missing_tokens(make_gpt1())
    rows = network.extra.weight
    assert network.config.extra_tokens == 3
    assert add_missing_tokens(network).extra.weight is rows
    other = GPT2(GPT2Config(**SHAPE), VOCABULARY)
    assert add_missing_tokens(other) is other


def test_resize_embeddings_with_unsupported_network_or_size_raises() -> None:
    with raises(InvalidSetting, key="model.extra_tokens"):
        make_gpt1().frame(A)
    with raises(Unsupported, ability="extra tokens"):
        resize_embeddings(GPT2(GPT2Config(**SHAPE), VOCABULARY), 3)
    with raises(InvalidSetting, key="n"):
        resize_embeddings(make_gpt1(), -1)
    with raises(Unsupported, ability="extra tokens"):
        resize_embeddings(GPT1(GPT1Config(**SHAPE, bits=8), VOCABULARY), 3)
    with raises(InvalidSetting, key="model.extra_tokens"):
        GPT1Config(**SHAPE, extra_tokens=-1)
    network = make_gpt1()
    assert resize_embeddings(network, 0).config.extra_tokens == 0
    assert network.extra is None


# ------------------------------------------------------------------------------------------------ files


def save_run(folder: Path, network: Any, tokenizer: Any, *changes: str) -> Any:
    recipe = load_recipe("gpt1/tiny", ["tokenizer.size=300", *changes])
    create_run(folder, recipe, tokenizer, lambda place: network)
    return nextword.load(folder, "cpu")


@pytest.fixture(scope="module")
def words() -> Any:
    return train_tokenizer({"kind": "classic-bpe", "size": 300}, ["the king of a land went to see his house " * 20])


def make_tiny(tokenizer: Any) -> GPT1:
    torch.manual_seed(1)
    return GPT1(GPT1Config(**load_recipe("gpt1/tiny").model), vocabulary(tokenizer)).eval()


@torch.no_grad()
def test_resized_run_saves_and_loads(tmp_path: Path, words: Any) -> None:
    plain = save_run(tmp_path / "plain", make_tiny(words), words)
    network = add_missing_tokens(make_tiny(words))
    grown = save_run(tmp_path / "grown", network, words, "model.extra_tokens=3")
    assert grown.network.config.extra_tokens == 3
    assert grown.parameters == plain.parameters + 3 * 48
    assert grown.score("the king went home") == plain.score("the king went home")
    a, b = words.encode_batch(["the king", "his house"])
    here, there = network.frame(a, b), grown.network.frame(a, b)
    assert here.ids.tolist() == there.ids.tolist() == [len(words), *a.ids, len(words) + 1, *b.ids, len(words) + 2]
    inputs, _ = collate([here], words.begin)
    for ours, theirs in zip(network.encode(inputs)[0], grown.network.encode(inputs)[0], strict=True):
        assert torch.equal(ours, theirs)
    (tmp_path / "torn").mkdir()
    network.save(tmp_path / "torn")
    with pytest.raises(RunError):  # saved with extra tokens, loaded without
        GPT1.load(tmp_path / "torn", plain.network.config, plain.network.vocabulary)


@torch.no_grad()
def test_resized_run_in_int8_still_frames(tmp_path: Path, words: Any) -> None:
    network = add_missing_tokens(make_tiny(words))
    save_run(tmp_path / "grown", network, words, "model.extra_tokens=3")
    convert(tmp_path / "grown", tmp_path / "small", ["model.bits=8"])
    small = nextword.load(tmp_path / "small", "cpu").network
    inputs, pooled_position = collate([small.frame(words.encode("the king"))], words.begin)
    near = take_positions(small.encode(inputs)[0][-1], pooled_position)
    torch.testing.assert_close(near, take_positions(network.encode(inputs)[0][-1], pooled_position), rtol=0.1, atol=0.1)


def test_export_of_plain_run_round_trips_and_of_resized_run_raises(tmp_path: Path, words: Any) -> None:
    plain, grown = make_tiny(words), add_missing_tokens(make_tiny(words))
    save_run(tmp_path / "plain", plain, words)
    save_run(tmp_path / "grown", grown, words, "model.extra_tokens=3")
    convert(tmp_path / "plain", tmp_path / "folder", to="huggingface")
    convert(tmp_path / "folder", tmp_path / "back")
    back = load_file(tmp_path / "back" / "model.safetensors")
    assert back.keys() == plain.state_dict().keys()
    assert all(torch.equal(back[name], t) for name, t in plain.state_dict().items())
    with raises(Unsupported, ability="extra_tokens"):
        convert(tmp_path / "grown", tmp_path / "lost", to="huggingface")
    assert not (tmp_path / "lost").exists()
