"""Classification heads: the vector that they read, and the loss with or without the language-model loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nextword.batching.examples import Bucketed
from nextword.core.errors import InvalidSetting, Unsupported
from nextword.models.framing import SPREAD, collate, combine, take_positions
from nextword.tasks.classification import Classifier, LabelObjective
from nextword.tasks.encoding import encode_texts
from nextword.tasks.heads import TextHead
from nextword.tasks.plan import make_plan
from tests.support.task_models import build_model
from tests.support.tiny_transfer import SPECS, make_transfer_folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_transfer_folder(tmp_path_factory.mktemp("transfer"))


# ------------------------------------------------------------------------------------------------ what a head reads


def make_head(
    place: Path, slug: str, data: str = "pair", pooling: str = "auto", changes: tuple[str, ...] = ()
) -> tuple[TextHead, Any]:
    changes = (f"task.pooling={pooling}", *changes)
    plan = make_plan("bert/finetune", place / slug, str(place / f"{data}.csv"), changes=changes)
    torch.manual_seed(1)
    network = build_model(plan.recipe, plan.tokenizer).eval()
    with torch.no_grad():
        for p in network.parameters():
            p.add_(torch.randn_like(p) * 0.1)  # so that no parameter is zero or one
    return network, plan


@pytest.mark.parametrize("slug", list(SPECS))
def test_head_reads_the_vector_of_the_paper(place: Path, slug: str) -> None:
    """Computed by hand from frames padded by `collate`."""
    network, plan = make_head(place, slug)
    encoder = network.encoder
    rows = plan.data.splits["dev"]
    pairs = list(zip(*(plan.tokenizer.encode_batch(c[:5]) for c in (rows.texts, rows.seconds)), strict=True))
    frames = [frame for pair in pairs for frame in encoder.frames("entail", pair)]
    inputs, pooled_position = collate(frames, pad=0)
    with torch.no_grad():
        x = take_positions(encoder.encode(inputs)[0][-1], pooled_position)
        if slug in ("bert", "albert"):
            x = encoder.pooled(x)
        elif slug in ("roberta", "xlnet"):
            assert network.dense is not None
            x = torch.tanh(network.dense(x))
        else:
            assert network.dense is None
        by_hand = network.out(combine("entail", x.unsqueeze(1)))
        model = Classifier(network, plan.tokenizer, plan.task, 128)
        logits = model.logits(rows.texts[:5], rows.seconds[:5])
    assert np.allclose(logits, by_hand.numpy(), atol=1e-5)


@pytest.mark.parametrize("slug", ["bert", "gpt1"])
def test_features_index_of_last_layer_equals_minus_one(place: Path, slug: str) -> None:
    """The index of the last layer keeps the pooler, like −1; a lower layer does not."""
    last = len(make_head(place, slug)[0].encoder.widths) - 1
    heads = [make_head(place, slug, changes=(f"task.features={name}",))[0] for name in ("", "-1", str(last))]
    assert len({(head.uses_pooler, head.layer_index) for head in heads}) == 1
    assert heads[0].uses_pooler == (slug == "bert")
    assert not make_head(place, slug, changes=(f"task.features={last - 1}",))[0].uses_pooler


def test_similarity_logits_are_symmetric(place: Path) -> None:
    plan = make_plan("gpt1/finetune", place / "gpt1", str(place / "pair.csv"), changes=["task.frame=similar"])
    assert plan.examples["train"].each == 2
    model = Classifier(build_model(plan.recipe, plan.tokenizer), plan.tokenizer, plan.task, 32)
    first, other = model.logits(["red king", "a river"], ["a river", "red king"])
    assert np.allclose(first, other, atol=1e-6)
    assert plan.recipe.model["extra_tokens"] == 3


@pytest.mark.parametrize("slug", ["bert", "lstm"])
def test_mean_pool_ignores_padding(place: Path, slug: str) -> None:
    network, plan = make_head(place, slug, "color", "mean")
    assert network.dense is None
    assert not network.uses_pooler
    text = "the king saw a red house"
    with torch.no_grad():
        frame = network.encoder.frame(plan.tokenizer.encode(text))
        inputs, _ = collate([frame], pad=0)
        by_hand = network.out(network.encoder.encode(inputs)[0][-1].mean(1))
        logits = Classifier(network, plan.tokenizer, plan.task, 128).logits([text, "a", "the new queen"])
    assert np.allclose(logits[0], by_hand[0].numpy(), atol=1e-5)


@pytest.mark.parametrize("slug", list(SPECS))
@pytest.mark.parametrize("pooling", ["auto", "mean"])
def test_logits_of_packed_padded_and_single_examples_are_equal(place: Path, slug: str, pooling: str) -> None:
    network, plan = make_head(place, slug, "pair", pooling)
    model = Classifier(network, plan.tokenizer, plan.task, 128)
    rows = plan.data.splits["dev"]
    together = model.logits(rows.texts, rows.seconds)
    single = [model.logits([a], [b])[0] for a, b in zip(rows.texts[:6], rows.seconds[:6], strict=True)]
    assert np.allclose(together[:6], single, atol=1e-5)
    dev = plan.examples["dev"]
    with torch.no_grad():
        for pack in (True, False):
            batch = Bucketed(pack=pack).batch(dev, np.arange(len(dev)), 0)
            assert np.allclose(network(batch).numpy(), together, atol=1e-5)


def test_gradients_of_packed_and_padded_batches_are_equal(place: Path) -> None:
    grads = []
    for pack in (True, False):
        network, plan = make_head(place, "bert")
        batch = Bucketed(pack=pack).batch(plan.examples["train"], np.arange(20), 0)
        LabelObjective({}).loss(network, batch, None).value.backward()
        grads.append({name: p.grad for name, p in network.named_parameters() if p.grad is not None})
    assert grads[0].keys() == grads[1].keys()
    for name, grad in grads[0].items():
        assert torch.allclose(grad, grads[1][name], atol=1e-5), name
    assert "encoder.pooler.weight" in grads[0]
    assert not any("readout" in name for name in grads[0])


def test_new_head_has_small_weights_and_zero_bias(place: Path) -> None:
    network = build_model(
        make_plan("bert/finetune", place / "roberta", str(place / "color.csv")).recipe, _tokens(place)
    )
    assert network.dense is not None
    for layer in (network.dense, network.out):
        assert torch.all(layer.bias == 0)
    assert abs(float(network.dense.weight.detach().std()) - SPREAD) < 0.1 * SPREAD


def _tokens(place: Path) -> Any:
    from nextword.tokenizers.loading import load_tokenizer

    return load_tokenizer(place / "roberta" / "tokenizer.json")


def test_encode_texts_truncates_long_texts(place: Path) -> None:
    network, plan = make_head(place, "bert")
    result, cut = encode_texts(
        network.encoder, plan.tokenizer, "entail", ["red " * 50, "red"], ["blue " * 5, "a"], length=20
    )
    assert cut == 1
    assert np.diff(result.starts).tolist() == [20, 5]
    names = plan.tokenizer.special
    assert result.ids[:20].tolist().count(names["[SEP]"]) == 2
    assert result.segments is not None
    assert result.segments[:20].tolist() == [0] * 14 + [1] * 6  # [CLS], 12 and [SEP]; 5 and [SEP]
    with pytest.raises(InvalidSetting, match=r"4 tokens.* 3 "):
        encode_texts(network.encoder, plan.tokenizer, "entail", ["red"], ["blue"], length=4)


# ------------------------------------------------------------------------------------------------ the loss


def test_loss_equals_cross_entropy_or_squared_error(place: Path) -> None:
    network, plan = make_head(place, "bert", "color")
    batch = Bucketed().batch(plan.examples["train"], np.arange(10), 0)
    loss = LabelObjective({}).loss(network, batch, None)
    log_p = network(batch).log_softmax(-1)
    assert loss.count == 10
    assert torch.allclose(loss.value, -log_p[torch.arange(10), batch.targets].mean(), atol=1e-6)
    network, plan = make_head(place, "bert", "count")
    assert plan.task.config.kind == "regression"
    batch = Bucketed().batch(plan.examples["train"], np.arange(10), 0)
    loss = LabelObjective({}).loss(network, batch, None)
    assert torch.allclose(loss.nats, ((network(batch)[:, 0] - batch.targets) ** 2).sum(), atol=1e-5)
    scaled = plan.examples["train"].labels
    assert abs(scaled.mean()) < 1e-5
    assert abs(scaled.std() - 1) < 1e-5


def test_language_loss_is_added_to_the_task_loss(place: Path) -> None:
    network, plan = make_head(place, "gpt1", "color", changes=("model.dropout=0.0", "task.dropout=0.0"))
    batch = Bucketed().batch(plan.examples["train"], np.arange(10), 0)
    network.train()
    alone, beside = (LabelObjective({}, lm_weight=weight).loss(network, batch, None) for weight in (0.0, 0.5))
    assert set(beside.terms) == {"task", "language"}
    assert torch.allclose(beside.value, alone.value + 0.5 * beside.terms["language"], atol=1e-5)
    rows = network.encoder.encode(batch.inputs)[0][-1].detach()
    nats, count = 0.0, 0
    for row, ids, there in zip(rows, batch.inputs.ids, batch.inputs.token_mask, strict=True):
        for t in range(int(there.sum()) - 1):
            if ids[t + 1] < network.vocabulary.size:
                nats -= network.encoder.readout.log_probs(row[t : t + 1])[0, ids[t + 1]].item()
                count += 1
    assert float(beside.terms["language"]) == pytest.approx(nats / count, rel=1e-4)
    with pytest.raises(Unsupported, match="BERT"):
        LabelObjective({}, lm_weight=0.5).check(make_head(place, "bert", "color")[0])
