"""Contract of every language model, run over the tiny recipe of each and over a counting model."""

from __future__ import annotations

import inspect
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import nextword
from nextword.core import pytree
from nextword.core.errors import InvalidSetting, NextwordError, Unsupported
from nextword.core.protocols import Autoregressive, Counting, Encoder, Infilling
from nextword.core.types import EXACT, PSEUDO, Beam, Greedy, Sample, Stop
from nextword.lm import causal as language_model
from nextword.models import MODELS
from nextword.recipe import load_recipe, parse_recipe
from nextword.run_folder import RunFolder
from nextword.training.train import train_events
from tests.support.model_kinds import is_language_model

TEXTS = ["The value of an expression is", "a", "If the operands are of different types,\nthey are converted.", ""]
TOY = {
    "paper": {"slug": "toy", "title": "Counting", "authors": "Nobody", "year": 1913},
    "tokenizer": {"kind": "bytes"},
    "model": {"add": 0.5},
    "phase": [{"kind": "count", "data": "python"}],
}


# Sequence-to-sequence models and word vectors have contracts of their own (test_seq2seq.py, test_word_vectors.py).
TEXT_MODELS = [slug for slug in MODELS if is_language_model(slug)]


@pytest.fixture(scope="module", params=[*TEXT_MODELS, "toy"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    slug = request.param
    folder = tmp_path_factory.mktemp("runs") / slug
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        patch.setitem(MODELS, "toy", "tests.support.toy_bigram:Bigram")
        recipe = parse_recipe(TOY, "toy") if slug == "toy" else load_recipe(f"{slug}/tiny", ["phase.0.steps=60"])
        events = list(train_events(recipe, folder, device="cpu"))
        assert [e.kind for e in events][0 :: len(events) - 1] == ["begin", "end"]
    return folder


@pytest.fixture
def lm(run: Path, monkeypatch: pytest.MonkeyPatch) -> language_model.CausalLM:
    monkeypatch.setitem(MODELS, "toy", "tests.support.toy_bigram:Bigram")
    return nextword.load(run, device="cpu")


def skip_if_not_causal(lm: language_model.CausalLM) -> None:
    """Skip the rest of a test that needs steps and states."""
    if "generate" not in lm.can:
        pytest.skip("this model is not causal: it has no steps and no states")


def encode_ids(lm: language_model.CausalLM, text: str) -> torch.Tensor:
    return torch.from_numpy(lm.tokenizer.encode(text).ids.astype(np.int64))


def test_protocol_members_are_found_statically(lm: language_model.CausalLM) -> None:
    """Since Python 3.12, `isinstance` looks up protocol members statically, which misses torch submodules."""
    for protocol in (Autoregressive, Infilling, Encoder, Counting):
        if isinstance(lm.network, protocol):
            names = [*getattr(protocol, "__annotations__", ()), *(n for n in vars(protocol) if not n.startswith("_"))]
            assert names
            for name in names:
                inspect.getattr_static(lm.network, name)


def test_run_folder_holds_expected_files_and_no_pickle(run: Path) -> None:
    files = {p.name for p in run.iterdir()}
    assert {"recipe.toml", "tokenizer.json", "log.jsonl", "manifest.json"} <= files
    assert any(name.startswith("model.") for name in files)
    for path in run.rglob("*"):
        if path.is_file():
            assert path.read_bytes()[:2] not in (b"\x80\x02", b"\x80\x04", b"PK"), path  # pickles; torch's zip of them
    for line in (run / "log.jsonl").read_text().splitlines():
        assert {"event", "phase", "step", "seconds"} <= json.loads(line).keys()


def test_step_returns_a_normalized_distribution(lm: language_model.CausalLM) -> None:
    skip_if_not_causal(lm)
    last, state = lm.network.start(3)
    for _ in range(3):
        log_p, state = lm.network.step(last, state)
        assert log_p.shape == (3, len(lm.tokenizer))
        torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(3), atol=1e-4, rtol=0)
        last = log_p.argmax(-1)


def test_score_equals_sum_over_steps(lm: language_model.CausalLM) -> None:
    skip_if_not_causal(lm)
    ids = encode_ids(lm, TEXTS[2])
    last, state = lm.network.start(1)
    total = 0.0
    for id in ids:
        log_p, state = lm.network.step(last, state)
        total -= log_p[0, id].item()
        last = id[None]
    assert lm.score(TEXTS[2]).nats == pytest.approx(total, rel=1e-4)


def test_state_summarizes_everything_read(lm: language_model.CausalLM) -> None:
    """Scoring a text equals scoring its first half, then its second half from the returned state."""
    skip_if_not_causal(lm)
    last, state = lm.network.start(1)
    ids = torch.cat([last, encode_ids(lm, TEXTS[2])])[None]
    half = ids.shape[1] // 2
    expected, _ = lm.network.score(ids, torch.tensor([ids.shape[1]]), state)
    _, state = lm.network.start(1)
    first, state = lm.network.score(ids[:, : half + 1], torch.tensor([half + 1]), state)
    second, _ = lm.network.score(ids[:, half:], torch.tensor([ids.shape[1] - half]), state)
    torch.testing.assert_close(torch.cat([first, second], 1), expected, atol=1e-4, rtol=1e-4)


def test_take_state_rows_equals_steps_of_those_rows(lm: language_model.CausalLM) -> None:
    """Beam search reorders and repeats rows; each must continue as if it were alone."""
    skip_if_not_causal(lm)
    last, state = lm.network.start(2)
    log_p, state = lm.network.step(last, state)
    ids = log_p.topk(2).indices[0]
    _, state = lm.network.step(ids, state)
    swapped = pytree.take(pytree.clone(state), torch.tensor([1, 0, 1]))
    straight, _ = lm.network.step(ids, pytree.clone(state))
    taken, _ = lm.network.step(ids[[1, 0, 1]], swapped)
    torch.testing.assert_close(taken, straight[[1, 0, 1]], atol=1e-5, rtol=1e-5)


def test_score_many_equals_single_scores(lm: language_model.CausalLM) -> None:
    for text, score in zip(TEXTS, lm.score_many(TEXTS), strict=True):
        assert lm.score(text).nats == pytest.approx(score.nats, rel=1e-4, abs=1e-4)
        assert score.bytes == len(text.encode())
        assert score.words == len(text.split())


def test_scores_of_prompt_and_text_add_up(lm: language_model.CausalLM) -> None:
    skip_if_not_causal(lm)
    expected = lm.score("the type of the object")
    first, second = lm.score("the type"), lm.score(" of the object", given="the type")
    assert (first + second).nats == pytest.approx(expected.nats, rel=1e-4)
    assert (first + second).tokens == expected.tokens


def test_bits_per_byte_equals_nats_over_bytes(lm: language_model.CausalLM) -> None:
    score = lm.score(TEXTS[0])
    if lm.tokenizer.lossless:
        assert score.bits_per_byte() == pytest.approx(score.nats / math.log(2) / len(TEXTS[0].encode()))
    else:
        assert score.bits_per_byte() is None
    assert lm.score("").bits_per_byte() is None


def test_stream_scores_every_token_once(lm: language_model.CausalLM) -> None:
    ids = np.concatenate([lm.tokenizer.encode(t).ids for t in TEXTS])
    nats = lm.stream_nats(ids)
    assert len(nats) == len(ids)
    np.testing.assert_allclose(nats, lm.token_nats([ids])[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(lm.windowed_nats(ids, len(ids), len(ids)), nats, rtol=1e-4, atol=1e-4)


def test_stream_scores_are_independent_of_chunk_size(
    lm: language_model.CausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = lm.tokenizer.encode(TEXTS[2] * 3).ids
    expected = lm.stream_nats(ids)
    monkeypatch.setattr(language_model, "CHUNK", 7)
    np.testing.assert_allclose(lm.stream_nats(ids), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("context", "stride"), [(5, 1), (6, 3), (4, 4)])
def test_windowed_scores_use_stated_context(lm: language_model.CausalLM, context: int, stride: int) -> None:
    skip_if_not_causal(lm)
    ids = lm.tokenizer.encode(TEXTS[2]).ids
    nats = lm.windowed_nats(ids, context, stride)
    begin = lm.tokenizer.begin
    for t in range(len(ids)):
        window = 0 if t < context else (t - context) // stride + 1
        end = min(context + window * stride, len(ids))
        padded = [begin, *ids.tolist()]
        seen = torch.tensor(padded[max(0, end - context) : t + 2])[None]
        _, state = lm.network.start(1)
        log_p, _ = lm.network.score(seen, torch.tensor([seen.shape[1]]), state)
        assert nats[t] == pytest.approx(-log_p[0, -1].item(), rel=1e-3, abs=1e-4)


def test_next_returns_words_sorted_by_probability(lm: language_model.CausalLM) -> None:
    guesses = lm.next("the value of the", k=5)
    values = [g.probability for g in guesses]
    assert values == sorted(values, reverse=True)
    assert 0 < sum(values) <= 1 + 1e-6
    raw = lm.next("the value of the", k=3, tokens=True)
    assert len(raw) == 3
    with pytest.raises(NextwordError):
        lm.next("the", k=0)


@pytest.mark.parametrize(
    "strategy", [Greedy(), Sample(0.8, seed=3), Sample(1.0, top_k=5, seed=3), Sample(top_p=0.9, seed=3), Beam(3)]
)
def test_generation_repeats_and_its_log_probs_equal_scores(lm: language_model.CausalLM, strategy: object) -> None:
    skip_if_not_causal(lm)
    stop = Stop(max_tokens=12, at_end=False)
    pieces = list(lm.generate("The value", strategy, stop))  # type: ignore[arg-type]
    again = list(lm.generate("The value", strategy, stop))  # type: ignore[arg-type]
    assert [p.ids for p in pieces] == [p.ids for p in again]
    assert pieces[-1].reason == "length"
    assert sum(len(p.ids) for p in pieces) == 12
    prompt = lm.tokenizer.encode("The value").ids
    generated = np.array([id for p in pieces for id in p.ids])
    nats = lm.token_nats([np.concatenate([prompt, generated])])[0][len(prompt) :]
    np.testing.assert_allclose([-p.log_prob for p in pieces], nats, rtol=1e-3, atol=1e-3)


def test_generate_without_ability_raises_immediately(lm: language_model.CausalLM) -> None:
    if "generate" in lm.can:
        pytest.skip("this model generates")
    with pytest.raises(Unsupported):
        lm.generate("The value")
    with pytest.raises(Unsupported):
        lm.generate_many(["The value"])


def test_fill_probabilities_sum_to_one(lm: language_model.CausalLM) -> None:
    if "fill" not in lm.can:
        with pytest.raises(Unsupported):
            lm.next("the value of", " is", k=3)
        return
    (guesses,) = lm.fill("the ___ of the object", k=5)
    assert guesses == lm.next("the", "of the object", k=5)
    assert all(g.text.strip() == g.text != "" for g in guesses)
    assert 0 < sum(g.probability for g in lm.fill("the ___ of the object", k=500)[0]) <= 1 + 1e-6
    raw = lm.fill("the ___ of the object", k=len(lm.tokenizer), tokens=True)[0]
    assert sum(g.probability for g in raw) == pytest.approx(1, abs=1e-4)


def test_score_kind_is_exact_or_pseudo(lm: language_model.CausalLM) -> None:
    assert lm.score(TEXTS[0]).kind == lm.kind == (EXACT if "generate" in lm.can else PSEUDO)


def test_load_again_gives_same_scores(lm: language_model.CausalLM, run: Path) -> None:
    assert nextword.load(run, device="cpu").score(TEXTS[0]) == lm.score(TEXTS[0])


def test_embed_returns_one_finite_vector_per_text(lm: language_model.CausalLM) -> None:
    if "embed" not in lm.can:
        pytest.skip("this model cannot embed")
    for layer in range(len(lm.network.widths)):
        vectors = lm.embed(TEXTS, layer)
        assert vectors.shape == (len(TEXTS), lm.network.widths[layer])
        assert torch.isfinite(vectors).all()
    with pytest.raises(InvalidSetting, match="9"):
        lm.embed(TEXTS, 9)


def test_training_beats_uniform_model(lm: language_model.CausalLM) -> None:
    score = lm.score("the value of the object is the type of the name")
    assert score.nats / score.tokens < 0.9 * math.log(len(lm.tokenizer))


GRADIENT_MODELS = [slug for slug in TEXT_MODELS if load_recipe(f"{slug}/tiny").phases[0].kind == "gradient"]


@pytest.mark.parametrize("slug", GRADIENT_MODELS)
def test_resume_gives_bit_identical_result(slug: str, tmp_path: Path) -> None:
    changes = ["phase.0.steps=30", "phase.0.log_every=1", "phase.0.save_every=0", "phase.0.validate_every=10"]
    recipe = load_recipe(f"{slug}/tiny", changes)
    list(train_events(recipe, tmp_path / "straight", device="cpu"))
    calls = 0

    def stop() -> bool:
        nonlocal calls
        calls += 1
        return calls == 17  # between two validations, in the middle of an epoch

    events = list(train_events(recipe, tmp_path / "interrupted", device="cpu", stop=stop))
    assert events[-1].values["reason"] == "interrupted"
    list(train_events(None, tmp_path / "interrupted", resume=True, device="cpu"))
    a, b = RunFolder(tmp_path / "straight").load_state(), RunFolder(tmp_path / "interrupted").load_state()
    assert a is not None
    assert b is not None
    assert a[0].keys() == b[0].keys()
    for name in a[0]:
        assert torch.equal(a[0][name], b[0][name]), name
    assert a[1]["validations"] == b[1]["validations"]
    for name in ("model.safetensors", "tokenizer.json", "recipe.toml"):
        assert (tmp_path / "straight" / name).read_bytes() == (tmp_path / "interrupted" / name).read_bytes()
    steps = [line["step"] for line in RunFolder(tmp_path / "interrupted").read_log() if line["event"] == "step"]
    assert steps == list(range(1, 31))
