"""What holds for every model, whatever its paper: run over each slug's tiny recipe, and over a counting model."""

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
from nextword.core.protocols import Autoregressive, Counting, Encoder, Infilling, Network
from nextword.core.types import EXACT, PSEUDO, Beam, Greedy, Sample, Stop
from nextword.lm import causal as language_model
from nextword.models import MODELS
from nextword.recipe import load_recipe, parse_recipe
from nextword.run_folder import RunFolder
from nextword.training.train import train_events
from tests.support.model_kinds import models_text

TEXTS = ["The value of an expression is", "a", "If the operands are of different types,\nthey are converted.", ""]
TOY = {
    "paper": {"slug": "toy", "title": "Counting", "authors": "Nobody", "year": 1913},
    "tokenizer": {"kind": "bytes"},
    "model": {"add": 0.5},
    "phase": [{"kind": "count", "data": "python"}],
}


# Those that write from a source have a contract of their own (test_conditional.py), and so have those that give words
# vectors and no probabilities (test_vectored.py); those that tag words model no text: tests/unit/test_tagging.py
OF_TEXT = [slug for slug in MODELS if models_text(slug)]


@pytest.fixture(scope="module", params=[*OF_TEXT, "toy"])
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


def onward(lm: language_model.CausalLM) -> None:
    """What follows is about reading from left to right."""
    if "generate" not in lm.can:
        pytest.skip("this model sees both sides: it has no steps and no states")


def ids_of(lm: language_model.CausalLM, text: str) -> torch.Tensor:
    return torch.from_numpy(lm.tokenizer.encode(text).ids.astype(np.int64))


def test_what_a_network_can_do_is_seen_without_its_submodules(lm: language_model.CausalLM) -> None:
    """Since Python 3.12 isinstance looks a protocol's members up statically, which finds no submodule of torch's."""
    for protocol in (Autoregressive, Infilling, Encoder, Counting):
        if isinstance(lm.network, protocol):
            names = [*getattr(protocol, "__annotations__", ()), *(n for n in vars(protocol) if not n.startswith("_"))]
            assert names
            for name in names:
                inspect.getattr_static(lm.network, name)
    assert not getattr(Network, "_is_runtime_protocol", False)  # it has a readout


def test_the_folder_holds_what_is_promised_and_no_pickle(run: Path) -> None:
    files = {p.name for p in run.iterdir()}
    assert {"recipe.toml", "tokenizer.json", "log.jsonl", "manifest.json"} <= files
    assert any(name.startswith("model.") for name in files)
    for path in run.rglob("*"):
        if path.is_file():
            assert path.read_bytes()[:2] not in (b"\x80\x02", b"\x80\x04", b"PK"), path  # pickles; torch's zip of them
    for line in (run / "log.jsonl").read_text().splitlines():
        assert {"event", "phase", "step", "seconds"} <= json.loads(line).keys()


def test_a_step_is_a_distribution(lm: language_model.CausalLM) -> None:
    onward(lm)
    last, state = lm.network.start(3)
    for _ in range(3):
        log_p, state = lm.network.step(last, state)
        assert log_p.shape == (3, len(lm.tokenizer))
        torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(3), atol=1e-4, rtol=0)
        last = log_p.argmax(-1)


def test_score_is_the_sum_of_steps(lm: language_model.CausalLM) -> None:
    onward(lm)
    ids = ids_of(lm, TEXTS[2])
    last, state = lm.network.start(1)
    total = 0.0
    for id in ids:
        log_p, state = lm.network.step(last, state)
        total -= log_p[0, id].item()
        last = id[None]
    assert lm.score(TEXTS[2]).nats == pytest.approx(total, rel=1e-4)


def test_the_state_says_all_that_was_read(lm: language_model.CausalLM) -> None:
    """score(whole) = score(first half), then score(second half) from the state that came out."""
    onward(lm)
    last, state = lm.network.start(1)
    ids = torch.cat([last, ids_of(lm, TEXTS[2])])[None]
    half = ids.shape[1] // 2
    whole, _ = lm.network.score(ids, torch.tensor([ids.shape[1]]), state)
    _, state = lm.network.start(1)
    first, state = lm.network.score(ids[:, : half + 1], torch.tensor([half + 1]), state)
    second, _ = lm.network.score(ids[:, half:], torch.tensor([ids.shape[1] - half]), state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole, atol=1e-4, rtol=1e-4)


def test_rows_of_a_state_can_be_taken(lm: language_model.CausalLM) -> None:
    """Beam search reorders and repeats rows; each must go on as if it were alone."""
    onward(lm)
    last, state = lm.network.start(2)
    log_p, state = lm.network.step(last, state)
    words = log_p.topk(2).indices[0]
    _, state = lm.network.step(words, state)
    swapped = pytree.take(pytree.clone(state), torch.tensor([1, 0, 1]))
    straight, _ = lm.network.step(words, pytree.clone(state))
    taken, _ = lm.network.step(words[[1, 0, 1]], swapped)
    torch.testing.assert_close(taken, straight[[1, 0, 1]], atol=1e-5, rtol=1e-5)


def test_a_text_scores_the_same_alone_and_in_company(lm: language_model.CausalLM) -> None:
    together = lm.score_many(TEXTS)
    for text, score in zip(TEXTS, together, strict=True):
        assert lm.score(text).nats == pytest.approx(score.nats, rel=1e-4, abs=1e-4)
        assert score.bytes == len(text.encode())
        assert score.words == len(text.split())


def test_given_and_text_add_up(lm: language_model.CausalLM) -> None:
    onward(lm)
    whole = lm.score("the type of the object")
    first, second = lm.score("the type"), lm.score(" of the object", given="the type")
    assert (first + second).nats == pytest.approx(whole.nats, rel=1e-4)
    assert (first + second).tokens == whole.tokens


def test_bits_per_byte_follow_from_the_sums(lm: language_model.CausalLM) -> None:
    score = lm.score(TEXTS[0])
    if lm.tokenizer.lossless:
        assert score.bits_per_byte() == pytest.approx(score.nats / math.log(2) / len(TEXTS[0].encode()))
    else:
        assert score.bits_per_byte() is None
    assert lm.score("").bits_per_byte() is None


def test_a_stream_scores_every_token_once(lm: language_model.CausalLM) -> None:
    ids = np.concatenate([lm.tokenizer.encode(t).ids for t in TEXTS])
    nats = lm.stream_nats(ids)
    assert len(nats) == len(ids)
    np.testing.assert_allclose(nats, lm.token_nats([ids])[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(lm.windowed_nats(ids, len(ids), len(ids)), nats, rtol=1e-4, atol=1e-4)


def test_chunks_leave_no_seam(lm: language_model.CausalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = lm.tokenizer.encode(TEXTS[2] * 3).ids
    whole = lm.stream_nats(ids)
    monkeypatch.setattr(language_model, "CHUNK", 7)
    np.testing.assert_allclose(lm.stream_nats(ids), whole, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("context", "stride"), [(5, 1), (6, 3), (4, 4)])
def test_windows_score_every_token_once_with_the_context_stated(
    lm: language_model.CausalLM, context: int, stride: int
) -> None:
    onward(lm)
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


def test_next_words_are_likely_first_and_no_more_than_all(lm: language_model.CausalLM) -> None:
    guesses = lm.next("the value of the", k=5)
    values = [g.probability for g in guesses]
    assert values == sorted(values, reverse=True)
    assert 0 < sum(values) <= 1 + 1e-6
    raw = lm.next("the value of the", k=3, tokens=True)
    assert len(raw) == 3
    with pytest.raises(NextwordError):
        lm.next("the", k=0)


@pytest.mark.parametrize(
    "how", [Greedy(), Sample(0.8, seed=3), Sample(1.0, top_k=5, seed=3), Sample(top_p=0.9, seed=3), Beam(3)]
)
def test_generation_repeats_itself_and_costs_what_score_says(lm: language_model.CausalLM, how: object) -> None:
    onward(lm)
    stop = Stop(length=12, at_end=False)
    pieces = list(lm.generate("The value", how, stop))  # type: ignore[arg-type]
    again = list(lm.generate("The value", how, stop))  # type: ignore[arg-type]
    assert [p.ids for p in pieces] == [p.ids for p in again]
    assert pieces[-1].reason == "length"
    assert sum(len(p.ids) for p in pieces) == 12
    prompt = lm.tokenizer.encode("The value").ids
    written = np.array([id for p in pieces for id in p.ids])
    nats = lm.token_nats([np.concatenate([prompt, written])])[0][len(prompt) :]
    np.testing.assert_allclose([-p.log_prob for p in pieces], nats, rtol=1e-3, atol=1e-3)


def test_what_cannot_write_says_so_at_once(lm: language_model.CausalLM) -> None:
    if "generate" in lm.can:
        pytest.skip("this model writes")
    with pytest.raises(Unsupported):
        lm.generate("The value")
    with pytest.raises(Unsupported):
        lm.generate_many(["The value"])


def test_what_fills_blanks_is_a_distribution_over_words(lm: language_model.CausalLM) -> None:
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


def test_scores_say_what_kind_they_are(lm: language_model.CausalLM) -> None:
    assert lm.score(TEXTS[0]).kind == lm.kind == (EXACT if "generate" in lm.can else PSEUDO)


def test_loading_again_gives_the_same_model(lm: language_model.CausalLM, run: Path) -> None:
    assert nextword.load(run, device="cpu").score(TEXTS[0]) == lm.score(TEXTS[0])


def test_embedding_has_a_vector_a_text(lm: language_model.CausalLM) -> None:
    if "embed" not in lm.can:
        pytest.skip("this model has no vectors to give")
    for layer in range(len(lm.network.widths)):
        vectors = lm.embed(TEXTS, layer)
        assert vectors.shape == (len(TEXTS), lm.network.widths[layer])
        assert torch.isfinite(vectors).all()
    with pytest.raises(InvalidSetting, match="9"):
        lm.embed(TEXTS, 9)


def test_training_has_taught_it_something(lm: language_model.CausalLM) -> None:
    score = lm.score("the value of the object is the type of the name")
    assert score.nats / score.tokens < 0.9 * math.log(len(lm.tokenizer))


LEARNERS = [slug for slug in OF_TEXT if load_recipe(f"{slug}/tiny").phases[0].kind == "gradient"]


@pytest.mark.parametrize("slug", LEARNERS)
def test_resume_goes_on_to_the_same_bits(slug: str, tmp_path: Path) -> None:
    changes = ["phase.0.steps=30", "phase.0.log=1", "phase.0.save=0", "phase.0.validate=10"]
    recipe = load_recipe(f"{slug}/tiny", changes)
    list(train_events(recipe, tmp_path / "straight", device="cpu"))
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked == 17  # between two validations, in the middle of an epoch

    events = list(train_events(recipe, tmp_path / "broken", device="cpu", stop=stop))
    assert events[-1].values["reason"] == "interrupted"
    list(train_events(None, tmp_path / "broken", resume=True, device="cpu"))
    a, b = RunFolder(tmp_path / "straight").load_state(), RunFolder(tmp_path / "broken").load_state()
    assert a is not None
    assert b is not None
    assert a[0].keys() == b[0].keys()
    for name in a[0]:
        assert torch.equal(a[0][name], b[0][name]), name
    assert a[1]["validations"] == b[1]["validations"]
    for name in ("model.safetensors", "tokenizer.json", "recipe.toml"):
        assert (tmp_path / "straight" / name).read_bytes() == (tmp_path / "broken" / name).read_bytes()
    steps = [line["step"] for line in RunFolder(tmp_path / "broken").read_log() if line["event"] == "step"]
    assert steps == list(range(1, 31))
