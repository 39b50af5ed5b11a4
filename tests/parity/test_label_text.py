"""Labels and numbers as text (t5/finetune) compared with transformers: costs, training loss and gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nextword import tasks
from nextword.batching.examples import Bucketed
from nextword.conversion import convert
from nextword.objectives import make_objective
from nextword.tasks.heads import ModelWithHead
from nextword.tasks.plan import Plan, make_plan
from nextword.tokenizers.training import train_tokenizer
from tests.parity.test_huggingface_t5 import FORMS, folder_of
from tests.support.task_models import build_model
from tests.support.tiny_transfer import (
    COLORS,
    FILLER,
    draw_color_counts,
    draw_color_pairs,
    draw_color_texts,
    write_table,
)

transformers = pytest.importorskip("transformers")
IGNORED = -100  # what their loss leaves out


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    text = " ".join([*FILLER, *COLORS, "classify : sentence1 : sentence2 : the red one is a blue one . "] * 30)
    train_tokenizer({"kind": "unigram", "size": 80, "sentinels": 5}, [text]).save(path)
    return path


def both(form: str, tokenizer: Path, place: Path, data: str, *changes: str) -> tuple[Any, Plan, ModelWithHead]:
    """Their network, the plan of a transfer of the same weights, and the network of that plan."""
    peer = folder_of(form, place / "theirs", tokenizer)
    convert(place / "theirs", place / "run", [f"tokenizer.load={tokenizer}"])
    plan = make_plan("t5/finetune", place / "run", data, device="cpu", changes=["model.dropout=0.0", *changes])
    ours = build_model(plan.recipe, plan.tokenizer)
    from nextword.lm.loading import load

    ours.encoder.load_state_dict(load(place / "run", device="cpu").network.state_dict())
    return peer, plan, ours


def tokens(plan: Plan, text: str) -> torch.Tensor:
    end = plan.tokenizer.end
    assert end is not None
    return torch.tensor([[*plan.tokenizer.encode(text).ids.tolist(), end]])


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_label_scores_equal_transformers(form: str, tokenizer: Path, tmp_path: Path) -> None:
    data = str(write_table(tmp_path / "pair.csv", ["text", "second", "label"], draw_color_pairs(60)))
    peer, plan, ours = both(form, tokenizer, tmp_path, data, "task.label_words={red='the red one',blue='blue'}")
    rows = plan.data.splits["dev"]
    said = ours.eval()(Bucketed().batch(plan.examples["dev"], np.arange(len(rows)), 0))
    for i, (a, b) in enumerate(zip(rows.texts, rows.seconds, strict=True)):
        source = tokens(plan, f"classify sentence1: {a} sentence2: {b}")
        for k, words in enumerate(("blue", "the red one")):  # as the labels are in order
            target = tokens(plan, words)
            want = -peer(source, labels=target).loss * target.shape[1]  # theirs is a mean over tokens
            torch.testing.assert_close(said[i, k], want, rtol=1e-4, atol=1e-4)


def test_loss_and_gradients_equal_transformers(tokenizer: Path, tmp_path: Path) -> None:
    data = str(write_table(tmp_path / "color.csv", ["text", "label"], draw_color_texts(40)))
    peer, plan, ours = both("1.1", tokenizer, tmp_path, data)
    phase = plan.recipe.phases[0]
    objective = make_objective(phase.objective, phase.batches, ours.vocabulary)
    chosen = np.arange(6)
    rows = plan.data.splits["train"]
    loss = objective.loss(ours.train(), Bucketed().batch(plan.examples["train"], chosen, 0), None)
    loss.value.backward()

    total: Any = 0.0
    for text, label in zip(rows.texts[:6], rows.labels[:6], strict=True):
        target = tokens(plan, label)
        total = total + peer(tokens(plan, f"classify: {text}"), labels=target).loss * target.shape[1]
    (total / 6).backward()
    torch.testing.assert_close(loss.value, total / 6, rtol=1e-4, atol=1e-4)
    assert float(loss.nats) == pytest.approx(float(total.detach()), rel=1e-4)
    torch.testing.assert_close(ours.encoder.embedding.weight.grad, peer.shared.weight.grad, rtol=1e-3, atol=5e-4)
    weighted = ours.train()
    weighted.weights = torch.tensor([1.0, 3.0])
    batch = Bucketed().batch(plan.examples["train"], chosen, 0)
    costs = -weighted.score_targets(batch).detach()
    share = weighted.weights[batch.targets]
    want = (share * costs).sum() / share.sum()
    torch.testing.assert_close(objective.loss(weighted, batch, None).value.detach(), want)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer that knows digits, too."""
    path = tmp_path_factory.mktemp("digits") / "tokenizer.json"
    text = " ".join([*FILLER, *COLORS, "classify :", *(f"{i / 10}" for i in range(50))] * 30)
    train_tokenizer({"kind": "unigram", "size": 80, "sentinels": 5}, [text]).save(path)
    return path


def test_number_scores_equal_scores_of_their_strings(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = str(write_table(tmp_path / "count.csv", ["text", "label"], draw_color_counts(60)))
    peer, plan, ours = both("1.0", digits, tmp_path, data, "task.number_step=0.5")
    numbers = [f"{i / 2:.1f}" for i in range(9)]
    assert plan.task.config.numbers == numbers
    rows, phase = plan.data.splits["train"], plan.recipe.phases[0]
    objective = make_objective(phase.objective, phase.batches, ours.vocabulary)
    nearest = [min(numbers, key=lambda one, label=label: abs(float(one) - float(label))) for label in rows.labels]
    batch = Bucketed().batch(plan.examples["train"], np.arange(8), 0)
    total: Any = 0.0
    for text, number in zip(rows.texts[:8], nearest[:8], strict=True):
        target = tokens(plan, number)
        total = total + peer(tokens(plan, f"classify: {text}"), labels=target).loss * target.shape[1]
    (total / 8).backward()
    loss = objective.loss(ours.train(), batch, None)
    loss.value.backward()
    torch.testing.assert_close(loss.value, total / 8, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.encoder.embedding.weight.grad, peer.shared.weight.grad, rtol=1e-3, atol=5e-4)

    with torch.no_grad():
        found = objective.loss(ours.eval(), batch, None)
        torch.testing.assert_close(found.value, (total / 8).detach(), rtol=1e-4, atol=1e-4)
        at_once = ours(batch), ours.score_labels(batch)
        monkeypatch.setattr("nextword.tasks.label_text.LABEL_TOKENS", 11)  # two strings at a time
        torch.testing.assert_close((ours(batch), ours.score_labels(batch)), at_once)
        likeliest = []
        for text in rows.texts[:8]:
            targets = [tokens(plan, number) for number in numbers]
            costs = [float(peer(tokens(plan, f"classify: {text}"), labels=one).loss) * one.shape[1] for one in targets]
            likeliest.append(float(numbers[int(np.argmin(costs))]))
        assert found.outputs is not None
        assert plan.task.decode(found.outputs.numpy())[:, 0].tolist() == likeliest


def test_saved_run_holds_the_network_without_a_head(tokenizer: Path, tmp_path: Path) -> None:
    """So a run that writes labels can be used as any text-to-text run, or transferred again."""
    data = str(write_table(tmp_path / "color.csv", ["text", "label"], draw_color_texts(40)))
    _, plan, _ = both("1.0", tokenizer, tmp_path, data, "phase.0.steps=2")
    for _ in tasks.transfer(plan, tmp_path / "out"):
        pass
    kept = transformers.T5ForConditionalGeneration
    convert(tmp_path / "run", tmp_path / "before", to="huggingface")
    before = kept.from_pretrained(tmp_path / "before").state_dict()
    from safetensors.torch import load_file

    assert load_file(tmp_path / "out/head.safetensors") == {}
    found = load_file(tmp_path / "out/model.safetensors")
    assert len(found) >= 10
    assert before["shared.weight"].shape == found["embedding.weight"].shape
    assert not torch.equal(before["shared.weight"], found["embedding.weight"])  # it has learnt
