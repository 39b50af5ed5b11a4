"""Dynamic evaluation equals a reference of the paper's update, and adapts to text unlike the training text."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nextword.core.errors import DataError, InvalidSetting
from nextword.core.scratch import PREFIX
from nextword.core.types import Inputs, Vocabulary
from nextword.evaluation.dynamic import (
    LEGACY_DEFAULTS,
    STATISTICS_FILE,
    DynamicEvaluator,
    DynamicSettings,
    collect_statistics,
    dynamic_nats,
    load_or_collect_statistics,
    search_settings,
    to_equation_units,
)
from nextword.evaluation.neural_cache import CacheSettings, cache_nats
from nextword.lm.causal import CausalLM
from nextword.models.awd_lstm import AWDLSTM
from nextword.models.nplm import NPLM
from nextword.models.rnn import GRU, LSTM, RNN
from nextword.run_folder import RunFolder
from tests.support.small_job import draw_walk, make_small_job, train_small_job

SIZE = 9
TRAIN = draw_walk(SIZE - 1, 2650, seed=1)
IDS = draw_walk(SIZE - 1, 23, seed=2)


def network(cls: Any = LSTM, **config: Any) -> Any:
    torch.manual_seed(0)
    return cls(cls.Config(**({"width": 6} | config)), Vocabulary(SIZE, SIZE - 1)).eval()


def cost(model: Any, ids: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
    layers, state = model.hidden(Inputs(ids[:, :-1]), state)
    log_p = model.readout.log_probs(layers[-1])
    return -log_p.gather(-1, ids[:, 1:, None])[..., 0], state


def detach(state: Any) -> Any:
    return state.detach() if isinstance(state, torch.Tensor) else tuple(detach(part) for part in state)


def mean_squares(model: Any, ids: np.ndarray, rows: int, length: int) -> tuple[dict[str, torch.Tensor], int]:
    model = copy.deepcopy(model)
    columns = len(ids) // rows
    text = torch.from_numpy(ids[: rows * columns].astype(np.int64)).view(rows, columns)
    state = model.start(rows)[1]
    total = {name: torch.zeros_like(w) for name, w in model.named_parameters()}
    count = 0
    for start in range(0, columns - length, length):
        model.zero_grad()
        nats, state = cost(model, text[:, start : start + length + 1], detach(state))
        nats.mean().backward()
        for name, w in model.named_parameters():
            total[name] += w.grad**2
        count += 1
    return {name: t / count for name, t in total.items()}, count


def reference_nats(
    model: Any, ids: np.ndarray, squares: dict[str, torch.Tensor] | None, rate: float, pull: float, epsilon: float
) -> list[float]:
    """The update of the paper for each weight tensor; plain SGD without statistics."""
    adapted = copy.deepcopy(model)
    first, state = adapted.start(1)
    text = torch.cat([first, torch.from_numpy(ids.astype(np.int64))]).unsqueeze(0)
    roots = {} if squares is None else {name: square**0.5 for name, square in squares.items()}
    mean = sum(float(root.mean()) for root in roots.values()) / max(len(roots), 1)
    nats: list[float] = []
    for start in range(0, len(ids), 5):
        adapted.zero_grad()
        costs, state = cost(adapted, text[:, start : start + 6], detach(state))
        costs.mean().backward()
        nats += costs[0].tolist()
        with torch.no_grad():
            for (name, w), origin in zip(adapted.named_parameters(), model.parameters(), strict=True):
                if squares is None:
                    w += -rate * w.grad + pull * (origin - w)
                    continue
                decay = pull * (roots[name] / mean).clamp(max=1 / pull)
                w += -rate * w.grad / (roots[name] + epsilon) + decay * (origin - w)
    return nats


def test_collect_statistics_equals_mean_squared_gradients() -> None:
    model = network()
    statistics = collect_statistics(model, TRAIN)
    assert (statistics.rows, statistics.length) == (100, 5)
    squares, count = mean_squares(model, TRAIN, 100, 5)
    assert statistics.segments == count == 5
    assert statistics.squares.keys() == squares.keys()
    for name, square in squares.items():
        torch.testing.assert_close(statistics.squares[name], square, rtol=1e-4, atol=1e-10)


def test_collect_statistics_accepts_few_segments_and_short_texts() -> None:
    model = network()
    assert collect_statistics(model, TRAIN, segments=2).segments == 2
    few = collect_statistics(model, TRAIN[:4])
    assert (few.rows, few.length, few.segments) == (1, 3, 1)
    with pytest.raises(DataError):
        collect_statistics(model, TRAIN[:1])


@pytest.mark.parametrize("cls", [RNN, GRU, LSTM, AWDLSTM, NPLM])
@pytest.mark.parametrize("pull", [0.1, 0.9])  # with 0.9 some weights would overshoot their origin
def test_dynamic_nats_equal_the_update_by_hand(cls: Any, pull: float) -> None:
    model = network(cls, embedding=6)
    rate, epsilon = 0.01, 0.003
    statistics = collect_statistics(model, TRAIN)
    squares = dict(statistics.squares)
    mean = sum(float(s.sqrt().mean()) for s in squares.values()) / len(squares)
    assert pull < 0.5 or any((pull * s.sqrt() / mean > 1).any() for s in squares.values())
    nats = dynamic_nats(DynamicEvaluator(model, DynamicSettings(rate, pull, epsilon), statistics), IDS)
    assert nats == pytest.approx(reference_nats(model, IDS, squares, rate, pull, epsilon), abs=1e-5)
    assert nats[:5] == pytest.approx(CausalLM(model, None).stream_nats(IDS)[:5], abs=1e-5)  # type: ignore[arg-type]
    assert nats[5:] != pytest.approx(CausalLM(model, None).stream_nats(IDS)[5:], abs=1e-3)  # type: ignore[arg-type]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("cls", [RNN, GRU, LSTM, AWDLSTM, NPLM])
def test_dynamic_nats_on_gpu_with_cuda_graphs_equal_cpu(cls: Any) -> None:
    model, ids = network(cls, embedding=6), draw_walk(SIZE - 1, 203, seed=2)
    statistics = collect_statistics(model, TRAIN)
    expected = dynamic_nats(DynamicEvaluator(model, DynamicSettings(0.01, 0.1, 0.003), statistics), ids)
    gpu_statistics = collect_statistics(model.cuda(), TRAIN)
    for name, square in statistics.squares.items():
        torch.testing.assert_close(gpu_statistics.squares[name].cpu(), square, rtol=1e-3, atol=1e-9)
    adapting = DynamicEvaluator(model, DynamicSettings(0.01, 0.1, 0.003), gpu_statistics)
    assert dynamic_nats(adapting, ids) == pytest.approx(expected, abs=1e-3)
    assert dynamic_nats(adapting, ids) == pytest.approx(expected, abs=1e-3)  # with a new CUDA graph


def test_dynamic_nats_with_sgd_equal_the_update_by_hand() -> None:
    model = network()
    nats = dynamic_nats(DynamicEvaluator(model, DynamicSettings(0.5, 0.05, kind="sgd")), IDS)
    assert nats == pytest.approx(reference_nats(model, IDS, None, 0.5, 0.05, 0.0), abs=1e-5)


def test_dynamic_nats_with_a_class_readout_equal_the_update_by_hand() -> None:
    """A class-based softmax: any exact readout with a gradient works."""
    model = network(readout={"kind": "classes", "classes": 3})
    statistics = collect_statistics(model, TRAIN)
    nats = dynamic_nats(DynamicEvaluator(model, DynamicSettings(0.01, 0.1, 0.003), statistics), IDS)
    assert nats == pytest.approx(reference_nats(model, IDS, dict(statistics.squares), 0.01, 0.1, 0.003), abs=1e-5)


def test_dynamic_nats_with_rate_zero_equal_the_plain_model() -> None:
    model = network()
    nats = dynamic_nats(DynamicEvaluator(model, DynamicSettings(0.0, 0.1), collect_statistics(model, TRAIN)), IDS)
    assert nats == pytest.approx(CausalLM(model, None).stream_nats(IDS), abs=1e-5)  # type: ignore[arg-type]


def test_evaluator_copies_the_network_and_restarts_for_each_text() -> None:
    model = network()
    before = copy.deepcopy(model.state_dict())
    adapting = DynamicEvaluator(model, DynamicSettings(0.05, 0.01), collect_statistics(model, TRAIN))
    first, second = dynamic_nats(adapting, IDS), dynamic_nats(adapting, IDS)
    assert (first == second).all()
    assert not model.training
    assert all(weight.grad is None for weight in model.parameters())
    assert all((model.state_dict()[name] == weight).all() for name, weight in before.items())
    assert any((a != b).any() for a, b in zip(adapting.weights, model.parameters(), strict=True))


def test_evaluator_ignores_dropout() -> None:
    model = network(AWDLSTM, embedding=6).train()  # in training mode
    adapting = DynamicEvaluator(model, DynamicSettings(0.01, 0.01), collect_statistics(model, TRAIN))
    assert (dynamic_nats(adapting, IDS) == dynamic_nats(adapting, IDS)).all()
    assert model.training


def test_legacy_units_are_converted_to_equation_units() -> None:
    model = network()
    statistics = collect_statistics(model, TRAIN)
    old = to_equation_units(DynamicSettings(legacy_units=True), statistics)
    root, tensors = math.sqrt(statistics.segments), len(list(model.parameters()))
    assert (old.rate, old.lambda_, old.epsilon) == pytest.approx(
        (LEGACY_DEFAULTS[0] / root, LEGACY_DEFAULTS[1] / tensors, LEGACY_DEFAULTS[2] / root)
    )
    nats = dynamic_nats(DynamicEvaluator(model, DynamicSettings(0.4, 1.4, 0.01, legacy_units=True), statistics), IDS)
    squares = dict(statistics.squares)
    assert nats == pytest.approx(reference_nats(model, IDS, squares, 0.4 / root, 1.4 / tensors, 0.01 / root), abs=1e-5)


def test_cache_combines_with_dynamic_evaluation() -> None:
    model = network()
    adapting = DynamicEvaluator(model, DynamicSettings(0.01, 0.01), collect_statistics(model, TRAIN))
    nats, without = cache_nats(adapting.read(IDS), CacheSettings(0.2, 1.0, 10))
    assert without == pytest.approx(dynamic_nats(adapting, IDS))
    assert nats != pytest.approx(without, abs=1e-3)


def run_folder(folder: Path) -> tuple[RunFolder, Any]:
    job = make_small_job(
        folder, "lstm", {"width": 6}, SIZE, TRAIN, optimizer={"kind": "sgd", "rate": 0.1}, batches={"rows": 2}, steps=1
    )
    job.run.save_model(job.network.save)
    return job.run, job.network.eval()


def test_statistics_are_reused_until_weights_or_settings_change(tmp_path: Path) -> None:
    run, model = run_folder(tmp_path / "run")
    calls = []

    def train() -> np.ndarray:
        calls.append(True)
        return TRAIN

    first = load_or_collect_statistics(run, model, train, DynamicSettings())
    cached = load_or_collect_statistics(run, model, train, DynamicSettings())
    assert len(calls) == 1
    assert (cached.segments, cached.rows, cached.length) == (first.segments, first.rows, first.length)
    assert all((cached.squares[name] == square).all() for name, square in first.squares.items())
    load_or_collect_statistics(run, model, train, DynamicSettings(recompute=True))
    load_or_collect_statistics(run, model, train, DynamicSettings(length=3))
    assert len(calls) == 3
    load_or_collect_statistics(run, model, train, DynamicSettings())  # another segment length
    (run.path / STATISTICS_FILE).write_bytes((run.path / STATISTICS_FILE).read_bytes()[:100])  # truncated
    load_or_collect_statistics(run, model, train, DynamicSettings())
    assert len(calls) == 5
    with torch.no_grad():
        model.embedding.weight.add_(1)
    run.save_model(model.save)  # other weights
    load_or_collect_statistics(run, model, train, DynamicSettings())
    assert len(calls) == 6
    assert not list(run.path.glob(f"{PREFIX}*"))
    run.verify()


def test_search_settings_keeps_given_values() -> None:
    model = network()
    statistics = collect_statistics(model, TRAIN)
    given = search_settings(model, IDS, DynamicSettings(rate=0.01), statistics)
    assert given.rate == 0.01
    assert given.lambda_ is not None
    unsearched = search_settings(model, IDS, DynamicSettings(search=0), statistics)
    assert (unsearched.rate, unsearched.lambda_, unsearched.epsilon) == (5e-5, 0.002, 2e-5)
    searched = search_settings(model, IDS, DynamicSettings(), statistics)
    costs = [dynamic_nats(DynamicEvaluator(model, d, statistics), IDS).sum() for d in (unsearched, searched)]
    assert costs[1] <= costs[0]


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"rate": -1.0}, "rate"),
        ({"lambda_": math.nan}, "lambda"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"length": 0}, "length"),
        ({"kind": "adam"}, "kind"),
        ({"kind": "sgd", "legacy_units": True}, "legacy_units"),
    ],
)
def test_settings_with_an_invalid_value_are_rejected(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(InvalidSetting) as error:
        DynamicSettings(**settings)
    assert error.value.key == f"dynamic.{key}"


@pytest.mark.parametrize("kind", ["rms", "sgd"])
def test_dynamic_evaluation_learns_a_repetitive_text(tmp_path: Path, kind: str) -> None:
    """Train on counting up by one, two, or three; test on a text that repeats one pattern."""
    train = draw_walk(20, 4000, seed=3)
    model, _ = train_small_job(
        tmp_path / "run", "lstm", {"width": 16}, 21, train, batches={"kind": "rows", "rows": 16, "length": 20},
        optimizer={"kind": "adam", "rate": 0.01}, steps=60, log_every=60, save_every=1e9,
    )  # fmt: skip
    pattern = np.tile(np.array([0, 2, 3, 6, 7, 9, 12, 13, 15, 18], np.uint8), 80)
    statistics = collect_statistics(model, train) if kind == "rms" else None
    settings = search_settings(model, pattern[:300], DynamicSettings(kind=kind), statistics)
    plain = CausalLM(model, None).stream_nats(pattern).mean()  # type: ignore[arg-type]
    assert dynamic_nats(DynamicEvaluator(model, settings, statistics), pattern).mean() < 0.6 * plain, (plain, settings)
