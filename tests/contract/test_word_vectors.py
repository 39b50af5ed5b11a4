"""Contract of every word-vector model (embeddings, no probabilities), run over the tiny recipe of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nextword
from nextword.core.errors import InvalidSetting, NextwordError, Unsupported
from nextword.core.protocols import Autoregressive, Encoder, Infilling, Online
from nextword.lm.embedding import WordVectorModel
from nextword.recipe import load_recipe
from nextword.run_folder import RunFolder
from nextword.training.train import train_events
from tests.support.model_kinds import list_word_vector_slugs

SLUGS = list_word_vector_slugs()
TEXTS = ["the value of an expression is", "object", "", "zyzzyva", "the value of an expression is an object"]


@pytest.fixture(scope="module", params=SLUGS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        list(train_events(load_recipe(f"{request.param}/tiny", ["phase.0.steps=60"]), folder, device="cpu"))
    return folder


@pytest.fixture
def lm(run: Path) -> WordVectorModel:
    model = nextword.load(run, device="cpu")
    assert isinstance(model, WordVectorModel)
    return model


def test_slugs_are_not_empty() -> None:
    assert len(SLUGS) >= 2


def test_model_can_only_embed(lm: WordVectorModel) -> None:
    assert lm.can == {"embed"}
    assert isinstance(lm.network, Encoder)
    assert isinstance(lm.network, Online)
    assert not isinstance(lm.network, Autoregressive | Infilling)


@pytest.mark.parametrize(
    ("method", "argument", "ability"),
    [
        ("score", "a", "score"),
        ("score_many", ["a"], "score"),
        ("stream_nats", np.zeros(2), "score"),
        ("next", "a", "next"),
        ("fill", "a ___", "fill"),
        ("generate", "a", "generate"),
        ("generate_many", ["a"], "generate"),
        ("predict", ["a"], "predict"),
    ],
)
def test_other_methods_raise_unsupported(lm: WordVectorModel, method: str, argument: Any, ability: str) -> None:
    with pytest.raises(Unsupported) as unsupported:
        getattr(lm, method)(argument)
    assert unsupported.value.ability == ability


def test_unknown_attribute_raises_attribute_error(lm: WordVectorModel) -> None:
    with pytest.raises(AttributeError):
        lm.nonsense  # noqa: B018


def test_embed_text_is_mean_of_its_word_vectors(lm: WordVectorModel) -> None:
    batch = lm.embed(TEXTS)
    assert batch.shape == (len(TEXTS), lm.network.widths[0])
    for text, vector in zip(TEXTS, batch, strict=True):
        torch.testing.assert_close(lm.embed([text])[0], vector)
        ids = lm.tokenizer.encode(text).ids
        table, special = lm.network.table.detach(), set(lm.tokenizer.special.values())
        vectors = [torch.zeros(32) if id in special else table[id] for id in ids]
        expected = torch.stack(vectors).mean(0) if vectors else torch.zeros(32)
        torch.testing.assert_close(vector, expected)


def test_embed_word_is_independent_of_context(lm: WordVectorModel) -> None:
    """Unlike contextual embeddings such as ELMo's."""
    a, b = "the value of the object", "object"
    first, second = (lm.embed([text], pooling="last")[0] for text in (a, b))
    assert torch.equal(first, second)


def test_nearest_returns_sorted_cosines_and_suggests_known_words(lm: WordVectorModel) -> None:
    neighbors = lm.nearest("object", 5)
    assert len(neighbors) == 5
    assert "object" not in dict(neighbors)
    cosines = [cosine for _, cosine in neighbors]
    assert cosines == sorted(cosines, reverse=True)
    rows = lm.vectors.rows
    unit = lm.vectors.matrix / np.linalg.norm(lm.vectors.matrix, axis=1, keepdims=True)
    assert cosines[0] == pytest.approx(float(unit[rows["object"]] @ unit[rows[neighbors[0][0]]]), abs=1e-5)
    with pytest.raises(NextwordError, match=r"'objekt'.*'object'"):
        lm.nearest("objekt")


def test_load_again_gives_same_embeddings(lm: WordVectorModel, run: Path) -> None:
    assert torch.equal(nextword.load(run, device="cpu").embed(TEXTS), lm.embed(TEXTS))


@pytest.mark.parametrize("slug", SLUGS)
def test_resume_gives_bit_identical_result(slug: str, tmp_path: Path) -> None:
    recipe = load_recipe(f"{slug}/tiny", ["phase.0.steps=30", "phase.0.save_every=0", "phase.0.log_every=1"])
    list(train_events(recipe, tmp_path / "straight", device="cpu"))
    calls = iter(range(100))
    events = list(train_events(recipe, tmp_path / "interrupted", device="cpu", stop=lambda: next(calls) >= 16))
    assert events[-1].values["reason"] == "interrupted"
    list(train_events(None, tmp_path / "interrupted", resume=True, device="cpu"))
    a, b = (RunFolder(tmp_path / name).load_state() for name in ("straight", "interrupted"))
    assert a is not None
    assert b is not None
    for name in a[0]:
        assert torch.equal(a[0][name], b[0][name]), name
    straight, interrupted = (
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("straight", "interrupted")
    )
    assert straight == interrupted


@pytest.mark.parametrize("slug", SLUGS)
def test_batched_training_with_adam_reduces_loss(slug: str, tmp_path: Path) -> None:
    """The path of a GPU: batched gradients of the same objective."""
    changes = ["phase.0.online=false", "phase.0.optimizer={ kind = 'adam', rate = 0.01 }", "phase.0.steps=40"]
    events = list(train_events(load_recipe(f"{slug}/tiny", changes), tmp_path / "run", device="cpu"))
    losses = [event.values["loss"] for event in events if event.kind == "step"]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("phase.0.optimizer={ kind = 'adam', rate = 0.1 }", "optimizer"),
        ("phase.0.optimizer.weight_decay=0.1", "optimizer"),
        ("phase.0.clip=1.0", "clip"),
    ],
)
@pytest.mark.parametrize("slug", SLUGS)
def test_invalid_recipe_raises_before_creating_the_run_folder(slug: str, change: str, key: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting) as invalid:
        list(train_events(load_recipe(f"{slug}/tiny", [change]), tmp_path / "run", device="cpu"))
    assert invalid.value.key == key
    assert not (tmp_path / "run").exists()


def test_online_training_of_other_networks_raises(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="NPLM"):
        list(train_events(load_recipe("nplm/tiny", ["phase.0.online=true"]), tmp_path / "run", device="cpu"))
