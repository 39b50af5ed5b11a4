"""Contract of every sequence-to-sequence model, run over the tiny recipe of each."""

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
VOCABULARY_SIZES = {"seq2seq": 280, "cvt-seq2seq": 280, "t5": 100, "cove": 40}
TARGETS = ["In the beginning, God created the heavens and the earth.", "It was so.", "", "Jesus wept."]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parallel text in which the target spells every source word backwards."""
    folder, draw = tmp_path_factory.mktemp("pairs"), np.random.default_rng(0)
    words = ["the", "king", "went", "up", "and", "saw", "water", "of", "his", "house", "day", "light"]
    for split, count in (("train", 400), ("valid", 40), ("test", 40)):
        lines = [draw.choice(words, draw.integers(2, 8)).tolist() for _ in range(count)]
        (folder / f"{split}.xx").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{split}.yy").write_text("".join(" ".join(w[::-1] for w in line) + "\n" for line in lines))
    return folder


def make_recipe(slug: str, pairs: Path, *changes: str) -> Any:
    common = [
        "phase.0.objective={ kind = 'seq2seq' }",
        "phase.0.batches={ kind = 'sequences', rows = 16, length = 60 }",
    ]
    common += [f"tokenizer.size={VOCABULARY_SIZES[slug]}", "phase.0.steps=40"]
    return load_recipe(f"{slug}/tiny", [f"phase.0.data={pairs}:xx-yy", *common, *changes])


@pytest.fixture(scope="module", params=SLUGS)
def run(request: pytest.FixtureRequest, pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        list(train_events(make_recipe(request.param, pairs), folder, device="cpu"))
    return folder


@pytest.fixture
def lm(run: Path) -> Any:
    model = nextword.load(run, device="cpu")
    assert isinstance(model, Seq2SeqLM)
    return model


def encode_sources(lm: Any, sources: list[str]) -> tuple[torch.Tensor, Any]:
    return lm._read_prompts(lm._encode_prompts(sources, "slide"))


@torch.no_grad()
def test_step_returns_a_normalized_distribution(lm: Any) -> None:
    last, state = encode_sources(lm, SOURCES[:3])
    for _ in range(3):
        log_p, state = lm.network.step(last, state)
        assert log_p.shape == (3, len(lm.tokenizer))
        torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(3), atol=1e-4, rtol=0)
        last = log_p.argmax(-1)


@torch.no_grad()
def test_score_equals_sum_over_steps(lm: Any) -> None:
    for source, text in zip(SOURCES, TARGETS, strict=True):
        ids = [*lm.tokenizer.encode(text).ids.tolist(), lm.end]
        last, state = encode_sources(lm, [source])
        total = 0.0
        for id in ids:
            log_p, state = lm.network.step(last, state)
            total -= float(log_p[0, id])
            last = torch.tensor([id])
        score = lm.score(text, given=source)
        assert score.nats == pytest.approx(total, rel=1e-4, abs=1e-4)
        assert score.tokens == len(ids)


def test_score_many_equals_single_scores(lm: Any) -> None:
    scores = lm.score_many(TARGETS, SOURCES)
    for text, source, score in zip(TARGETS, SOURCES, scores, strict=True):
        assert lm.score(text, source).nats == pytest.approx(score.nats, rel=1e-4, abs=1e-4)


def test_take_state_rows_equals_steps_of_those_rows(lm: Any) -> None:
    last, state = encode_sources(lm, SOURCES[:3])
    _, state = lm.network.step(last, state)
    rows = torch.tensor([2, 0, 2])
    ids = torch.tensor([5, 6, 7])
    taken = lm.network.step(ids[rows], pytree.take(state, rows))[0]
    torch.testing.assert_close(taken, lm.network.step(ids, state)[0][rows], rtol=1e-4, atol=1e-4)


def test_parallel_decoding_equals_stepwise_decoding(lm: Any) -> None:
    ids = torch.randint(5, 100, (2, 6), generator=torch.Generator().manual_seed(0))
    last, state = encode_sources(lm, SOURCES[:2])
    parallel = lm.network.hidden(Inputs(ids), state)[0][-1]
    _, state = encode_sources(lm, SOURCES[:2])
    for t in range(6):
        layers, state = lm.network.hidden(Inputs(ids[:, t : t + 1]), state)
        torch.testing.assert_close(layers[-1][:, 0], parallel[:, t], rtol=1e-4, atol=1e-4)
    assert last.shape == (2,)


def test_beam_of_one_equals_greedy_and_wider_beam_sorts_by_score(lm: Any) -> None:
    greedy = lm.generate_many(SOURCES, Greedy(), Stop(12))
    for beam in (Beam(1), Beam(1, 1.0)):
        for pieces, other in zip(greedy, lm.generate_many(SOURCES, beam, Stop(12)), strict=True):
            assert [p.ids for p in pieces] == [p.ids for p in other]
    for source, pieces in zip(SOURCES, greedy, strict=True):
        assert [p.ids for p in lm.generate(source, Greedy(), Stop(12))] == [p.ids for p in pieces]
    for best in lm.n_best_many(SOURCES, Beam(4), Stop(12)):
        scores = [candidate.score for candidate in best]
        assert scores == sorted(scores, reverse=True)


def test_beam_search_with_reorder_equals_taking_all_state_rows(lm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `reorder`, beam search takes rows of the entire state at every step."""
    beam, stop = Beam(4, 0.6, coverage=0.2 if lm.has_attention else 0.0), Stop(12)
    reordered = lm.n_best_many(SOURCES, beam, stop)
    monkeypatch.delattr(next(cls for cls in type(lm.network).__mro__ if "reorder" in vars(cls)), "reorder")
    for best, other in zip(reordered, lm.n_best_many(SOURCES, beam, stop), strict=True):
        assert [c.ids for c in best] == [c.ids for c in other]
        assert [c.score for c in best] == pytest.approx([c.score for c in other], rel=1e-5)


def test_sampling_with_same_seed_repeats(lm: Any) -> None:
    samples = ["".join(p.text for p in lm.generate(SOURCES[0], Sample(seed=3), Stop(15))) for _ in range(2)]
    assert samples[0] == samples[1]


def test_alignment_weights_sum_to_one(lm: Any) -> None:
    if not lm.has_attention:
        with pytest.raises(Unsupported):
            lm.alignment("it was so", "and it was so")
        return
    alignment = lm.alignment("it was so", "and it was so")
    assert alignment.weights.shape == (len(alignment.target), len(alignment.source))
    np.testing.assert_allclose(alignment.weights.sum(1), 1, atol=1e-5)


def test_unsupported_requests_raise(lm: Any) -> None:
    requests = [lambda: lm.next("the"), lambda: lm.fill("the ___")]
    if "embed" not in lm.can:
        requests.append(lambda: lm.embed(["the"]))
    for request in requests:
        with pytest.raises(Unsupported):
            request()
    with pytest.raises(InvalidSetting):
        lm.score_many(["a"])
    with pytest.raises(NextwordError):
        list(lm.generate("a", Contrastive(), Stop(3)))


def test_embed_batch_equals_single_texts(lm: Any) -> None:
    if "embed" not in lm.can:
        pytest.skip("this model cannot embed")
    for layer, width in enumerate(lm.network.widths):
        vectors = lm.embed(SOURCES, layer)
        assert vectors.shape == (len(SOURCES), width)
        for text, vector in zip(SOURCES, vectors, strict=True):
            torch.testing.assert_close(lm.embed([text], layer)[0], vector, rtol=1e-4, atol=1e-5)


def test_training_beats_uniform_model(lm: Any, pairs: Path) -> None:
    sources, targets = ((pairs / f"test.{side}").read_text().splitlines() for side in ("xx", "yy"))
    scores = lm.score_many(targets, sources)
    nats = math.fsum(s.nats for s in scores) / sum(s.tokens for s in scores)
    assert nats < 0.8 * math.log(len(lm.tokenizer))


@pytest.mark.parametrize("slug", SLUGS)
def test_resume_gives_bit_identical_result(
    slug: str, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEXTWORD_CACHE", str(tmp_path / "cache"))
    recipe = make_recipe(slug, pairs, "phase.0.steps=12", "model.dropout=0.2")
    list(train_events(recipe, tmp_path / "straight", device="cpu"))
    calls = iter(range(100))
    list(train_events(recipe, tmp_path / "interrupted", device="cpu", stop=lambda: next(calls) >= 5))
    list(train_events(None, tmp_path / "interrupted", resume=True, device="cpu"))
    a, b = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("straight", "interrupted"))
    assert a == b
