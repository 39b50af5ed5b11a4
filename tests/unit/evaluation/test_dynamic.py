"""Dynamic evaluation against the update written out by hand, and on text that is unlike what was trained on."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nextword.core.errors import NextwordError
from nextword.core.types import Inputs, Vocabulary
from nextword.evaluation.dynamic import (
    OLD,
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
from tests.support.small_job import small_job, trained, walk

SIZE = 9
TRAIN = walk(SIZE - 1, 2650, seed=1)
IDS = walk(SIZE - 1, 23, seed=2)


def network(cls: Any = LSTM, **config: Any) -> Any:
    torch.manual_seed(0)
    return cls(cls.Config(**({"width": 6} | config)), Vocabulary(SIZE, SIZE - 1)).eval()


def cost(model: Any, ids: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
    layers, state = model.hidden(Inputs(ids[:, :-1]), state)
    log_p = model.readout.log_probs(layers[-1])
    return -log_p.gather(-1, ids[:, 1:, None])[..., 0], state


def cut(state: Any) -> Any:
    return state.detach() if isinstance(state, torch.Tensor) else tuple(cut(part) for part in state)


def mean_squares(model: Any, ids: np.ndarray, rows: int, length: int) -> tuple[dict[str, torch.Tensor], int]:
    model = copy.deepcopy(model)
    across = len(ids) // rows
    text = torch.from_numpy(ids[: rows * across].astype(np.int64)).view(rows, across)
    state = model.start(rows)[1]
    total = {name: torch.zeros_like(w) for name, w in model.named_parameters()}
    count = 0
    for at in range(0, across - length, length):
        model.zero_grad()
        nats, state = cost(model, text[:, at : at + length + 1], cut(state))
        nats.mean().backward()
        for name, w in model.named_parameters():
            total[name] += w.grad**2
        count += 1
    return {name: t / count for name, t in total.items()}, count


def plainly(
    model: Any, ids: np.ndarray, squares: dict[str, torch.Tensor] | None, rate: float, pull: float, epsilon: float
) -> list[float]:
    """One weight tensor after the other, as the paper has it; without statistics, plain SGD."""
    adapted = copy.deepcopy(model)
    first, state = adapted.start(1)
    text = torch.cat([first, torch.from_numpy(ids.astype(np.int64))]).unsqueeze(0)
    roots = {} if squares is None else {name: square**0.5 for name, square in squares.items()}
    mean = sum(float(root.mean()) for root in roots.values()) / max(len(roots), 1)
    nats: list[float] = []
    for at in range(0, len(ids), 5):
        adapted.zero_grad()
        costs, state = cost(adapted, text[:, at : at + 6], cut(state))
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


def test_the_statistics_are_mean_squared_gradients() -> None:
    model = network()
    gathered = collect_statistics(model, TRAIN)
    assert (gathered.rows, gathered.length) == (100, 5)
    squares, count = mean_squares(model, TRAIN, 100, 5)
    assert gathered.segments == count == 5
    assert gathered.squares.keys() == squares.keys()
    for name, square in squares.items():
        torch.testing.assert_close(gathered.squares[name], square, rtol=1e-4, atol=1e-10)


def test_few_segments_or_a_short_text_do() -> None:
    model = network()
    assert collect_statistics(model, TRAIN, segments=2).segments == 2
    few = collect_statistics(model, TRAIN[:4])
    assert (few.rows, few.length, few.segments) == (1, 3, 1)
    with pytest.raises(NextwordError, match="no two tokens"):
        collect_statistics(model, TRAIN[:1])


@pytest.mark.parametrize("cls", [RNN, GRU, LSTM, AWDLSTM, NPLM])
@pytest.mark.parametrize("pull", [0.1, 0.9])  # with 0.9 some weights would be drawn beyond where they began
def test_adaptation_is_the_update_by_hand(cls: Any, pull: float) -> None:
    model = network(cls, embedding=6)
    rate, epsilon = 0.01, 0.003
    gathered = collect_statistics(model, TRAIN)
    squares = dict(gathered.squares)
    mean = sum(float(s.sqrt().mean()) for s in squares.values()) / len(squares)
    assert pull < 0.5 or any((pull * s.sqrt() / mean > 1).any() for s in squares.values())
    nats = dynamic_nats(DynamicEvaluator(model, DynamicSettings(rate, pull, epsilon), gathered), IDS)
    assert nats == pytest.approx(plainly(model, IDS, squares, rate, pull, epsilon), abs=1e-5)
    assert nats[:5] == pytest.approx(CausalLM(model, None).stream_nats(IDS)[:5], abs=1e-5)  # type: ignore[arg-type]
    assert nats[5:] != pytest.approx(CausalLM(model, None).stream_nats(IDS)[5:], abs=1e-3)  # type: ignore[arg-type]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("cls", [RNN, GRU, LSTM, AWDLSTM, NPLM])
def test_on_a_gpu_where_steps_are_recorded_it_is_the_same(cls: Any) -> None:
    model, ids = network(cls, embedding=6), walk(SIZE - 1, 203, seed=2)
    gathered = collect_statistics(model, TRAIN)
    expected = dynamic_nats(DynamicEvaluator(model, DynamicSettings(0.01, 0.1, 0.003), gathered), ids)
    there = collect_statistics(model.cuda(), TRAIN)
    for name, square in gathered.squares.items():
        torch.testing.assert_close(there.squares[name].cpu(), square, rtol=1e-3, atol=1e-9)
    adapting = DynamicEvaluator(model, DynamicSettings(0.01, 0.1, 0.003), there)
    assert dynamic_nats(adapting, ids) == pytest.approx(expected, abs=1e-3)
    assert dynamic_nats(adapting, ids) == pytest.approx(expected, abs=1e-3)  # and once more, recorded anew


def test_plain_sgd_is_the_update_by_hand() -> None:
    model = network()
    nats = dynamic_nats(DynamicEvaluator(model, DynamicSettings(0.5, 0.05, kind="sgd")), IDS)
    assert nats == pytest.approx(plainly(model, IDS, None, 0.5, 0.05, 0.0), abs=1e-5)


def test_another_readout_adapts_too() -> None:
    """Class by class instead of all words at once: whatever is exact and has a gradient will do."""
    model = network(readout={"kind": "classes", "classes": 3})
    gathered = collect_statistics(model, TRAIN)
    nats = dynamic_nats(DynamicEvaluator(model, DynamicSettings(0.01, 0.1, 0.003), gathered), IDS)
    assert nats == pytest.approx(plainly(model, IDS, dict(gathered.squares), 0.01, 0.1, 0.003), abs=1e-5)


def test_without_a_rate_it_is_the_plain_model() -> None:
    model = network()
    nats = dynamic_nats(DynamicEvaluator(model, DynamicSettings(0.0, 0.1), collect_statistics(model, TRAIN)), IDS)
    assert nats == pytest.approx(CausalLM(model, None).stream_nats(IDS), abs=1e-5)  # type: ignore[arg-type]


def test_the_network_is_untouched_and_each_reading_begins_anew() -> None:
    model = network()
    before = copy.deepcopy(model.state_dict())
    adapting = DynamicEvaluator(model, DynamicSettings(0.05, 0.01), collect_statistics(model, TRAIN))
    first, second = dynamic_nats(adapting, IDS), dynamic_nats(adapting, IDS)
    assert (first == second).all()
    assert not model.training
    assert all(weight.grad is None for weight in model.parameters())
    assert all((model.state_dict()[name] == weight).all() for name, weight in before.items())
    assert any((a != b).any() for a, b in zip(adapting.weights, model.parameters(), strict=True))


def test_dropout_has_no_part_in_it() -> None:
    model = network(AWDLSTM, embedding=6).train()  # as it is in the midst of training
    adapting = DynamicEvaluator(model, DynamicSettings(0.01, 0.01), collect_statistics(model, TRAIN))
    assert (dynamic_nats(adapting, IDS) == dynamic_nats(adapting, IDS)).all()
    assert model.training


def test_units_of_the_first_code() -> None:
    model = network()
    gathered = collect_statistics(model, TRAIN)
    old = to_equation_units(DynamicSettings(old=True), gathered)
    root, tensors = math.sqrt(gathered.segments), len(list(model.parameters()))
    assert (old.rate, old.lambda_, old.epsilon) == pytest.approx((OLD[0] / root, OLD[1] / tensors, OLD[2] / root))
    nats = dynamic_nats(DynamicEvaluator(model, DynamicSettings(0.4, 1.4, 0.01, old=True), gathered), IDS)
    squares = dict(gathered.squares)
    assert nats == pytest.approx(plainly(model, IDS, squares, 0.4 / root, 1.4 / tensors, 0.01 / root), abs=1e-5)


def test_the_cache_works_on_what_adapts() -> None:
    model = network()
    adapting = DynamicEvaluator(model, DynamicSettings(0.01, 0.01), collect_statistics(model, TRAIN))
    nats, without = cache_nats(adapting.read(IDS), CacheSettings(0.2, 1.0, 10))
    assert without == pytest.approx(dynamic_nats(adapting, IDS))
    assert nats != pytest.approx(without, abs=1e-3)


def run_folder(folder: Path) -> tuple[RunFolder, Any]:
    job = small_job(
        folder, "lstm", {"width": 6}, SIZE, TRAIN, optimizer={"kind": "sgd", "rate": 0.1}, batches={"rows": 2}, steps=1
    )
    job.run.save_model(job.network.save)
    return job.run, job.network.eval()


def test_statistics_stay_in_the_folder_until_something_differs(tmp_path: Path) -> None:
    run, model = run_folder(tmp_path / "run")
    asked = []

    def train() -> np.ndarray:
        asked.append(True)
        return TRAIN

    first = load_or_collect_statistics(run, model, train, DynamicSettings())
    again = load_or_collect_statistics(run, model, train, DynamicSettings())
    assert len(asked) == 1
    assert (again.segments, again.rows, again.length) == (first.segments, first.rows, first.length)
    assert all((again.squares[name] == square).all() for name, square in first.squares.items())
    load_or_collect_statistics(run, model, train, DynamicSettings(fresh=True))
    load_or_collect_statistics(run, model, train, DynamicSettings(length=3))
    assert len(asked) == 3
    load_or_collect_statistics(run, model, train, DynamicSettings())  # of another length
    (run.path / STATISTICS_FILE).write_bytes((run.path / STATISTICS_FILE).read_bytes()[:100])  # cut short
    load_or_collect_statistics(run, model, train, DynamicSettings())
    assert len(asked) == 5
    with torch.no_grad():
        model.embedding.weight.add_(1)
    run.save_model(model.save)  # trained on: other weights
    load_or_collect_statistics(run, model, train, DynamicSettings())
    assert len(asked) == 6
    assert not list(run.path.glob(".new-*"))
    run.verify()


def test_what_is_given_stays_and_the_rest_is_found() -> None:
    model = network()
    gathered = collect_statistics(model, TRAIN)
    given = search_settings(model, IDS, DynamicSettings(rate=0.01), gathered)
    assert given.rate == 0.01
    assert given.lambda_ is not None
    unsearched = search_settings(model, IDS, DynamicSettings(search=0), gathered)
    assert (unsearched.rate, unsearched.lambda_, unsearched.epsilon) == (5e-5, 0.002, 2e-5)
    searched = search_settings(model, IDS, DynamicSettings(), gathered)
    costs = [dynamic_nats(DynamicEvaluator(model, d, gathered), IDS).sum() for d in (unsearched, searched)]
    assert costs[1] <= costs[0]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"rate": -1.0}, "zero or more"),
        ({"lambda_": math.nan}, "zero or more"),
        ({"epsilon": math.inf}, "zero or more"),
        ({"length": 0}, "at least 1"),
        ({"kind": "adam"}, "rms or sgd"),
        ({"kind": "sgd", "old": True}, "rms"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(NextwordError, match=says):
        DynamicSettings(**settings)


@pytest.mark.parametrize("kind", ["rms", "sgd"])
def test_a_text_with_habits_of_its_own_is_learnt_while_it_is_read(tmp_path: Path, kind: str) -> None:
    """The claim: trained on counting up by one, two or three, tested on a text that always goes by the same figure."""
    train = walk(20, 4000, seed=3)
    model, _ = trained(
        tmp_path / "run", "lstm", {"width": 16}, 21, train, batches={"kind": "rows", "rows": 16, "length": 20},
        optimizer={"kind": "adam", "rate": 0.01}, steps=60, log=60, save=1e9,
    )  # fmt: skip
    figure = np.tile(np.array([0, 2, 3, 6, 7, 9, 12, 13, 15, 18], np.uint8), 80)
    gathered = collect_statistics(model, train) if kind == "rms" else None
    settings = search_settings(model, figure[:300], DynamicSettings(kind=kind), gathered)
    plain = CausalLM(model, None).stream_nats(figure).mean()  # type: ignore[arg-type]
    assert dynamic_nats(DynamicEvaluator(model, settings, gathered), figure).mean() < 0.6 * plain, (plain, settings)
