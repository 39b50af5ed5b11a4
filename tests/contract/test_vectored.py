"""What holds for every model that gives words vectors and no probabilities, whatever its paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nextword
from nextword.core.errors import InvalidSetting, NextwordError, Unsupported
from nextword.core.protocols import Autoregressive, Encoder, Infilling, Online
from nextword.lm.word_vectors import WordVectorModel
from nextword.recipe import load_recipe
from nextword.run_folder import RunFolder
from nextword.training.train import train_events
from tests.support.model_kinds import vectored

SLUGS = vectored()
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
    found = nextword.load(run, device="cpu")
    assert isinstance(found, WordVectorModel)
    return found


def test_there_are_some() -> None:
    assert len(SLUGS) >= 2


def test_it_is_what_it_says(lm: WordVectorModel) -> None:
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


def test_unknown_attributes_stay_errors(lm: WordVectorModel) -> None:
    with pytest.raises(AttributeError):
        lm.nonsense  # noqa: B018


def test_a_text_is_the_mean_of_its_words_alone_and_in_company(lm: WordVectorModel) -> None:
    together = lm.embed(TEXTS)
    assert together.shape == (len(TEXTS), lm.network.widths[0])
    for text, one in zip(TEXTS, together, strict=True):
        torch.testing.assert_close(lm.embed([text])[0], one)
        ids = lm.tokenizer.encode(text).ids
        table, special = lm.network.table.detach(), set(lm.tokenizer.special.values())
        vectors = [torch.zeros(32) if id in special else table[id] for id in ids]
        expected = torch.stack(vectors).mean(0) if vectors else torch.zeros(32)
        torch.testing.assert_close(one, expected)


def test_a_word_has_one_vector_wherever_it_stands(lm: WordVectorModel) -> None:
    """The contrast to ELMo and all after it."""
    a, b = "the value of the object", "object"
    first, second = (lm.embed([text], pooling="last")[0] for text in (a, b))
    assert torch.equal(first, second)


def test_words_near_a_word(lm: WordVectorModel) -> None:
    found = lm.nearest("object", 5)
    assert len(found) == 5
    assert "object" not in dict(found)
    cosines = [cosine for _, cosine in found]
    assert cosines == sorted(cosines, reverse=True)
    place = lm.vectors.rows
    unit = lm.vectors.matrix / np.linalg.norm(lm.vectors.matrix, axis=1, keepdims=True)
    assert cosines[0] == pytest.approx(float(unit[place["object"]] @ unit[place[found[0][0]]]), abs=1e-5)
    with pytest.raises(NextwordError, match=r"'objekt'.*'object'"):
        lm.nearest("objekt")


def test_loading_again_gives_the_same(lm: WordVectorModel, run: Path) -> None:
    assert torch.equal(nextword.load(run, device="cpu").embed(TEXTS), lm.embed(TEXTS))


@pytest.mark.parametrize("slug", SLUGS)
def test_resume_goes_on_to_the_same_bits(slug: str, tmp_path: Path) -> None:
    recipe = load_recipe(f"{slug}/tiny", ["phase.0.steps=30", "phase.0.save=0", "phase.0.log=1"])
    list(train_events(recipe, tmp_path / "whole", device="cpu"))
    asked = iter(range(100))
    events = list(train_events(recipe, tmp_path / "parts", device="cpu", stop=lambda: next(asked) >= 16))
    assert events[-1].values["reason"] == "interrupted"
    list(train_events(None, tmp_path / "parts", resume=True, device="cpu"))
    a, b = (RunFolder(tmp_path / name).load_state() for name in ("whole", "parts"))
    assert a is not None
    assert b is not None
    for name in a[0]:
        assert torch.equal(a[0][name], b[0][name]), name
    whole, parts = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert whole == parts


@pytest.mark.parametrize("slug", SLUGS)
def test_in_batches_with_any_optimizer_too(slug: str, tmp_path: Path) -> None:
    """What a GPU does: gradients of the same objective."""
    changes = ["phase.0.online=false", "phase.0.optimizer={ kind = 'adam', rate = 0.01 }", "phase.0.steps=40"]
    events = list(train_events(load_recipe(f"{slug}/tiny", changes), tmp_path / "run", device="cpu"))
    losses = [event.values["loss"] for event in events if event.kind == "step"]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("phase.0.optimizer={ kind = 'adam', rate = 0.1 }", "optimizer"),
        ("phase.0.optimizer.decay=0.1", "optimizer"),
        ("phase.0.clip=1.0", "clip"),
    ],
)
@pytest.mark.parametrize("slug", SLUGS)
def test_recipes_that_cannot_be_are_refused_before_there_is_a_folder(
    slug: str, change: str, key: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidSetting) as invalid:
        list(train_events(load_recipe(f"{slug}/tiny", [change]), tmp_path / "run", device="cpu"))
    assert invalid.value.key == key
    assert not (tmp_path / "run").exists()


def test_other_networks_do_not_learn_online(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="NPLM"):
        list(train_events(load_recipe("nplm/tiny", ["phase.0.online=true"]), tmp_path / "run", device="cpu"))
