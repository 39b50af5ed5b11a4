"""What holds for every model that writes from a source, whatever its paper."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nextword
from nextword.core import pytree
from nextword.core.errors import InvalidSetting, NextwordError, Unsupported
from nextword.core.types import Beam, Contrastive, Greedy, Inputs, Sample, Stop
from nextword.lm.seq2seq import Seq2SeqLM
from nextword.models import MODELS, model_class
from nextword.recipe import load_recipe
from nextword.training.train import train_events

SLUGS = [slug for slug in MODELS if getattr(model_class(slug), "is_conditional", False)]
SOURCES = ["In the beginning God created the heaven and the earth.", "And it was so.", "Jesus wept.", ""]
SIZES = {"seq2seq": 280, "cvt-seq2seq": 280, "t5": 100, "cove": 40}  # of vocabularies
TARGETS = ["In the beginning, God created the heavens and the earth.", "It was so.", "", "Jesus wept."]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A little language: every word is written backwards."""
    folder, draw = tmp_path_factory.mktemp("pairs"), np.random.default_rng(0)
    words = ["the", "king", "went", "up", "and", "saw", "water", "of", "his", "house", "day", "light"]
    for split, count in (("train", 400), ("valid", 40), ("test", 40)):
        lines = [draw.choice(words, draw.integers(2, 8)).tolist() for _ in range(count)]
        (folder / f"{split}.xx").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{split}.yy").write_text("".join(" ".join(w[::-1] for w in line) + "\n" for line in lines))
    return folder


def recipe_of(slug: str, pairs: Path, *more: str) -> Any:
    own = ["phase.0.objective={ kind = 'seq2seq' }", "phase.0.batches={ kind = 'sequences', rows = 16, length = 60 }"]
    own += [f"tokenizer.size={SIZES[slug]}", "phase.0.steps=40"]
    return load_recipe(
        f"{slug}/tiny",
        [f"phase.0.data={pairs}:xx-yy", *own, *more],
    )


@pytest.fixture(scope="module", params=SLUGS)
def run(request: pytest.FixtureRequest, pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        list(train_events(recipe_of(request.param, pairs), folder, device="cpu"))
    return folder


@pytest.fixture
def lm(run: Path) -> Any:
    found = nextword.load(run, device="cpu")
    assert isinstance(found, Seq2SeqLM)
    return found


def begun(lm: Any, sources: list[str]) -> tuple[torch.Tensor, Any]:
    return lm._read_prompts(lm._encode_prompts(sources, "slide"))


@torch.no_grad()
def test_a_step_is_a_distribution(lm: Any) -> None:
    last, state = begun(lm, SOURCES[:3])
    for _ in range(3):
        log_p, state = lm.network.step(last, state)
        assert log_p.shape == (3, len(lm.tokenizer))
        torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(3), atol=1e-4, rtol=0)
        last = log_p.argmax(-1)


@torch.no_grad()
def test_score_is_the_sum_of_steps(lm: Any) -> None:
    for source, text in zip(SOURCES, TARGETS, strict=True):
        ids = [*lm.tokenizer.encode(text).ids.tolist(), lm.end]
        last, state = begun(lm, [source])
        total = 0.0
        for id in ids:
            log_p, state = lm.network.step(last, state)
            total -= float(log_p[0, id])
            last = torch.tensor([id])
        found = lm.score(text, given=source)
        assert found.nats == pytest.approx(total, rel=1e-4, abs=1e-4)
        assert found.tokens == len(ids)


def test_a_text_scores_the_same_alone_and_in_company(lm: Any) -> None:
    together = lm.score_many(TARGETS, SOURCES)
    for text, source, one in zip(TARGETS, SOURCES, together, strict=True):
        assert lm.score(text, source).nats == pytest.approx(one.nats, rel=1e-4, abs=1e-4)


def test_rows_of_a_state_can_be_taken(lm: Any) -> None:
    last, state = begun(lm, SOURCES[:3])
    _, state = lm.network.step(last, state)
    rows = torch.tensor([2, 0, 2])
    ids = torch.tensor([5, 6, 7])
    taken = lm.network.step(ids[rows], pytree.take(state, rows))[0]
    torch.testing.assert_close(taken, lm.network.step(ids, state)[0][rows], rtol=1e-4, atol=1e-4)


def test_a_whole_target_at_once_is_step_by_step(lm: Any) -> None:
    ids = torch.randint(5, 100, (2, 6), generator=torch.Generator().manual_seed(0))
    last, state = begun(lm, SOURCES[:2])
    whole = lm.network.hidden(Inputs(ids), state)[0][-1]
    _, state = begun(lm, SOURCES[:2])
    for t in range(6):
        layers, state = lm.network.hidden(Inputs(ids[:, t : t + 1]), state)
        torch.testing.assert_close(layers[-1][:, 0], whole[:, t], rtol=1e-4, atol=1e-4)
    assert last.shape == (2,)


def test_a_beam_of_one_is_greedy_and_costs_what_score_says(lm: Any) -> None:
    greedy = lm.generate_many(SOURCES, Greedy(), Stop(12))
    for how in (Beam(1), Beam(1, 1.0)):
        for one, other in zip(greedy, lm.generate_many(SOURCES, how, Stop(12)), strict=True):
            assert [p.ids for p in one] == [p.ids for p in other]
    for source, pieces in zip(SOURCES, greedy, strict=True):
        assert [p.ids for p in lm.generate(source, Greedy(), Stop(12))] == [p.ids for p in pieces]
    for best in lm.n_best_many(SOURCES, Beam(4), Stop(12)):
        assert [one.score for one in best] == sorted((one.score for one in best), reverse=True)


def test_a_source_need_not_be_moved_within_its_search(lm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `reorder` and without, where the whole state is taken anew at every step."""
    how, stop = Beam(4, 0.6, coverage=0.2 if lm.has_attention else 0.0), Stop(12)
    quick = lm.n_best_many(SOURCES, how, stop)
    monkeypatch.delattr(next(cls for cls in type(lm.network).__mro__ if "reorder" in vars(cls)), "reorder")
    for one, other in zip(quick, lm.n_best_many(SOURCES, how, stop), strict=True):
        assert [c.ids for c in one] == [c.ids for c in other]
        assert [c.score for c in one] == pytest.approx([c.score for c in other], rel=1e-5)


def test_drawing_repeats_itself(lm: Any) -> None:
    found = ["".join(p.text for p in lm.generate(SOURCES[0], Sample(seed=3), Stop(15))) for _ in range(2)]
    assert found[0] == found[1]


def test_where_it_looks_adds_up(lm: Any) -> None:
    if not lm.has_attention:
        with pytest.raises(Unsupported):
            lm.alignment("it was so", "and it was so")
        return
    found = lm.alignment("it was so", "and it was so")
    assert found.weights.shape == (len(found.target), len(found.source))
    np.testing.assert_allclose(found.weights.sum(1), 1, atol=1e-5)


def test_what_it_cannot_do_is_said(lm: Any) -> None:
    asked = [lambda: lm.next("the"), lambda: lm.fill("the ___")]
    if "embed" not in lm.can:
        asked.append(lambda: lm.embed(["the"]))
    for ask in asked:
        with pytest.raises(Unsupported):
            ask()
    with pytest.raises(InvalidSetting):
        lm.score_many(["a"])
    with pytest.raises(NextwordError):
        list(lm.generate("a", Contrastive(), Stop(3)))


def test_what_embeds_has_a_vector_a_text_alone_and_in_company(lm: Any) -> None:
    if "embed" not in lm.can:
        pytest.skip("this model has no vectors to give")
    for layer, width in enumerate(lm.network.widths):
        together = lm.embed(SOURCES, layer)
        assert together.shape == (len(SOURCES), width)
        for text, one in zip(SOURCES, together, strict=True):
            torch.testing.assert_close(lm.embed([text], layer)[0], one, rtol=1e-4, atol=1e-5)


def test_training_has_taught_it_something(lm: Any, pairs: Path) -> None:
    sources, targets = ((pairs / f"test.{side}").read_text().splitlines() for side in ("xx", "yy"))
    scores = lm.score_many(targets, sources)
    nats = math.fsum(s.nats for s in scores) / sum(s.tokens for s in scores)
    assert nats < 0.8 * math.log(len(lm.tokenizer))


@pytest.mark.parametrize("slug", SLUGS)
def test_resume_goes_on_to_the_same_bits(
    slug: str, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEXTWORD_CACHE", str(tmp_path / "cache"))
    recipe = recipe_of(slug, pairs, "phase.0.steps=12", "model.dropout=0.2")
    list(train_events(recipe, tmp_path / "whole", device="cpu"))
    asked = iter(range(100))
    list(train_events(recipe, tmp_path / "parts", device="cpu", stop=lambda: next(asked) >= 5))
    list(train_events(None, tmp_path / "parts", resume=True, device="cpu"))
    a, b = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert a == b
