"""The neural cache equals its definition at every position, and helps with repetitive text."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from nextword.core.errors import DataError, InvalidSetting, Unsupported
from nextword.core.types import Inputs, Vocabulary
from nextword.evaluation.neural_cache import (
    CacheSettings,
    best_lambda,
    cache_nats,
    cache_probabilities,
    check_network,
    mix_nats,
    read_blocks,
    search_cache_settings,
)
from nextword.lm.causal import CausalLM
from nextword.models.awd_lstm import AWDLSTM
from nextword.models.nplm import NPLM
from nextword.models.rnn import GRU, LSTM, RNN
from tests.support.small_job import BYTES, train_small_job
from tests.support.toy_bigram import Bigram, Config

SIZE = 12
IDS = np.random.default_rng(0).integers(0, SIZE - 1, 60).astype(np.uint8)


def network(cls: Any = LSTM, **config: Any) -> Any:
    torch.manual_seed(0)
    model = cls(cls.Config(**({"width": 8} | config)), Vocabulary(SIZE, SIZE - 1)).eval()
    with torch.no_grad():
        for weight in model.parameters():  # so that states differ
            weight.mul_(4)
    return model


def reference_nats(model: Any, ids: np.ndarray, cache: CacheSettings) -> list[float]:
    """The definition in float64: the complete distribution over words at each position."""
    lambda_, theta, window = cache.lambda_, cache.theta, cache.window
    assert lambda_ is not None
    assert theta is not None
    assert window is not None
    last, state = model.start(1)
    with torch.no_grad():
        inputs = torch.cat([last, torch.from_numpy(ids[:-1].astype(np.int64))]).unsqueeze(0)
        h = model.hidden(Inputs(inputs), state)[0][-1][0]
        vocabulary = model.readout.log_probs(h).double().exp()
    h = h.double()
    nats = []
    for t in range(len(ids)):
        p = vocabulary[t].clone()
        cached = range(max(0, t - window), t)
        if cached:
            weights = torch.tensor([theta * float(h[t] @ h[i]) for i in cached]).double().softmax(0)
            p *= 1 - lambda_
            for weight, i in zip(weights, cached, strict=True):
                p[int(ids[i])] += lambda_ * weight
        assert float(p.sum()) == pytest.approx(1)
        nats.append(-math.log(p[int(ids[t])]))
    return nats


@pytest.mark.parametrize("window", [1, 7, 16, 59, 500])
@pytest.mark.parametrize("block", [4, 16, 512])
def test_cache_nats_equal_the_definition(window: int, block: int) -> None:
    model, cache = network(), CacheSettings(0.3, 0.7, window)
    nats, without = cache_nats(read_blocks(model, IDS, block=block), cache)
    assert nats == pytest.approx(reference_nats(model, IDS, cache), abs=1e-5)
    assert without == pytest.approx(CausalLM(model, BYTES).stream_nats(IDS), abs=1e-5)


@pytest.mark.parametrize("cls", [RNN, GRU, LSTM, AWDLSTM, NPLM])
def test_cache_nats_equal_the_definition_for_every_network(cls: Any) -> None:
    model, cache = network(cls, embedding=8), CacheSettings(0.2, 1.5, 9)
    nats, _ = cache_nats(read_blocks(model, IDS, block=10), cache)
    assert nats == pytest.approx(reference_nats(model, IDS, cache), abs=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cache_nats_on_gpu_equal_the_definition() -> None:
    cache = CacheSettings(0.3, 0.7, 16)
    nats, _ = cache_nats(read_blocks(network().cuda(), IDS, block=16), cache)
    assert nats == pytest.approx(reference_nats(network(), IDS, cache), abs=1e-4)


def test_cache_probabilities_of_many_settings_equal_each_alone() -> None:
    model = network()
    kinds = [(3, 0.0), (20, 0.5), (100, 2.0)]
    together = np.concatenate([p for _, p in cache_probabilities(read_blocks(model, IDS, block=8), kinds)], 1)
    for kind, p in zip(kinds, together, strict=True):
        alone = np.concatenate([p for _, p in cache_probabilities(read_blocks(model, IDS, block=8), [kind])], 1)
        assert p == pytest.approx(alone[0], abs=1e-6)


@pytest.mark.parametrize("length", [1, 2, 30])
def test_mixture_sums_to_one(length: int) -> None:
    """Sum over every possible last word."""
    model, total = network(), 0.0
    for word in range(SIZE):
        ids = np.append(IDS[: length - 1], word).astype(np.uint8)
        total += math.exp(-cache_nats(read_blocks(model, ids), CacheSettings(0.6, 0.8, 10))[0][-1])
    assert total == pytest.approx(1, abs=1e-6)


def test_cache_with_theta_zero_counts_words() -> None:
    """With θ = 0, p_cache is the frequency of the word in the window. a b a a: 0, then 0, 1/2, 2/3."""
    ids = np.array([0, 1, 0, 0], np.uint8)
    ((nats, p),) = cache_probabilities(read_blocks(network(), ids), [(10, 0.0)])
    assert p[0, 1:] == pytest.approx([0, 1 / 2, 2 / 3])
    assert p[0, 0] == pytest.approx(math.exp(-nats[0]))  # the cache is empty


def test_cache_with_lambda_zero_equals_the_plain_model() -> None:
    model = network()
    nats, without = cache_nats(read_blocks(model, IDS), CacheSettings(0.0, 1.0, 10))
    assert (nats == without).all()
    assert [len(x) for x in cache_nats(read_blocks(model, IDS[:0]), CacheSettings(0.1, 1.0, 10))] == [0, 0]


def test_mix_nats_is_stable_for_tiny_probabilities() -> None:
    """exp(−800) underflows, but its cost is finite: 800 − log(1 − λ)."""
    nats = mix_nats(np.array([800.0, 800.0]), np.array([0.0, 0.5]), 0.25)
    assert nats == pytest.approx([800 - math.log(0.75), -math.log(0.125)])


def test_best_lambda_minimizes_the_cost() -> None:
    rng = np.random.default_rng(1)
    nats, cached = rng.gamma(2, 1, 500), rng.random(500) * (rng.random(500) < 0.4)
    best = best_lambda(nats, cached)
    assert 0 < best < 1
    costs = [mix_nats(nats, cached, lambda_).sum() for lambda_ in (best - 0.01, best, best + 0.01)]
    assert costs[1] == min(costs)
    assert best_lambda(nats, np.zeros(500)) == 0.0


def test_search_cache_settings_keeps_given_values() -> None:
    model = network()
    cache = search_cache_settings(read_blocks(model, IDS), CacheSettings(window=5, theta=0.7))
    assert (cache.window, cache.theta) == (5, 0.7)
    assert cache.complete
    fixed = search_cache_settings(read_blocks(model, IDS), CacheSettings(lambda_=0.2))
    assert fixed.lambda_ == 0.2
    assert fixed.complete
    with pytest.raises(DataError):
        search_cache_settings(read_blocks(model, IDS[:0]), CacheSettings())


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"lambda_": 1.0}, "lambda"),
        ({"lambda_": -0.1}, "lambda"),
        ({"theta": -1.0}, "theta"),
        ({"theta": math.nan}, "theta"),
        ({"window": 0}, "window"),
    ],
)
def test_settings_with_an_invalid_value_are_rejected(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(InvalidSetting) as error:
        CacheSettings(**settings)
    assert error.value.key == f"cache.{key}"


def test_check_network_rejects_a_model_without_hidden_states() -> None:
    with pytest.raises(Unsupported) as error:
        check_network(Bigram(Config(), Vocabulary(SIZE, SIZE - 1)), "with a cache")
    assert error.value.ability == "hidden"


def test_cache_lowers_the_cost_of_recurring_names(tmp_path: Any) -> None:
    """A model that knows the pattern but not the names predicts better with a cache of recent names.

    Each passage repeats one of 40 names in the same frame: a b NAME c d, a b NAME c d, …
    """
    names, frame = 40, (40, 41, 42, 43)

    def passages(count: int, seed: int) -> np.ndarray:
        drawn = np.random.default_rng(seed).integers(0, names, count)
        return np.array([w for n in drawn for _ in range(8) for w in (*frame[:2], n, *frame[2:])], np.uint8)

    model, _ = train_small_job(
        tmp_path / "run", "lstm", {"width": 16}, 45, passages(100, 0),
        batches={"kind": "rows", "rows": 16, "length": 20}, optimizer={"kind": "adam", "rate": 0.01}, steps=150,
        log_every=60, save_every=1e9,
    )  # fmt: skip
    cache = search_cache_settings(read_blocks(model, passages(50, 1)), CacheSettings(window=30))
    nats, without = cache_nats(read_blocks(model, passages(50, 2)), cache)
    assert nats.mean() < 0.8 * without.mean(), (nats.mean(), without.mean(), cache)
