"""AWD-LSTM on a GPU: kernels compared with torch, and captured graphs with eager steps."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.core.types import IGNORE
from nextword.kernels import triton_kernels as kernels
from nextword.layers.output.softmax import total_cross_entropy
from nextword.training.steps import CudaGraphStep
from nextword.training.trainer import Trainer
from tests.support.small_job import draw_walk, make_small_job

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="NO GPU HERE: this test proves nothing")
needs_triton = pytest.mark.skipif(not kernels.available(), reason="NO TRITON HERE: this test proves nothing")
GPU = torch.device("cuda")

SIZE = 40
MODEL = {"embedding": 16, "width": 24, "layers": 3}
NONE = dict.fromkeys(("word_dropout", "input_dropout", "layer_dropout", "output_dropout", "weight_dropout"), 0.0)
TRAIN = draw_walk(SIZE - 1, 3000)
PHASE: dict[str, Any] = {
    "batches": {"kind": "variable", "rows": 4, "length": 12, "length_std": 1.0, "half_probability": 0.2},
    "objective": {"kind": "causal", "activation_penalty": 2.0, "temporal_penalty": 1.0},
    "optimizer": {"kind": "nt-asgd", "rate": 2.0, "weight_decay": 1e-4, "start": 20},
    "clip": 0.25,
    "steps": 60,
}


def make_trainer(folder: Path, model: dict[str, Any], **phase: Any) -> Trainer:
    job = make_small_job(folder, "awd-lstm", model, SIZE, TRAIN, None, **{**PHASE, **phase})
    found = Trainer(dataclasses.replace(job, device=GPU))
    found.begin()
    return found


def steps(found: Trainer, n: int) -> list[float]:
    """The loss of each, in nats."""
    batches, out = found.batches(), []
    for _ in range(n):
        found.nats.zero_()
        found.step(batches)
        out.append(found.nats.item())
    return out


def tensors(found: Trainer) -> dict[str, Tensor]:
    means = {f"mean.{name}": found.optimizer.state[p]["mean"] for name, p in found.network.named_parameters()}
    return {**dict(found.network.named_parameters()), **means}


# ------------------------------------------------------------------------------------------------ kernels


@needs_triton
@pytest.mark.parametrize(("rows", "size"), [(1, 5), (7, 64), (33, 4097), (64, 10_000)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_softmax_kernel_equals_torch(rows: int, size: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    width = -(-size // 64) * 64
    z = (5 * torch.randn(rows, width, device=GPU)).to(dtype)
    bias = torch.randn(size, device=GPU)
    targets = torch.randint(size, (rows,), device=GPU)
    targets[::3] = IGNORE
    exact = (z[:, :size].float() + bias).requires_grad_()
    expected = F.cross_entropy(exact, targets, ignore_index=IGNORE, reduction="none")
    (grad,) = torch.autograd.grad(expected.sum(), exact)
    nll = kernels.softmax_gradient(z, bias, targets, size)
    torch.testing.assert_close(nll, expected.detach(), rtol=1e-5, atol=1e-4)
    loose = {"rtol": 1e-2, "atol": 1e-6} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-6}
    torch.testing.assert_close(z[:, :size].float(), grad, **loose)
    assert not z[:, size:].any()
    assert not z[::3].any()


@needs_triton
@pytest.mark.parametrize("bias", [True, False])
def test_softmax_total_in_bf16_equals_torch_autocast(bias: bool) -> None:
    """The products' operands are rounded alike, so that the loss agrees closely and gradients to a few bits."""
    torch.manual_seed(0)
    h = torch.randn(70, 40, device=GPU, requires_grad=True)
    weight = (torch.randn(1001, 40, device=GPU) / 6).requires_grad_()
    plus = torch.randn(1001, device=GPU, requires_grad=True) if bias else None
    leaves = [h, weight, *([plus] if plus is not None else [])]
    targets = torch.randint(1001, (70,), device=GPU)
    targets[5] = IGNORE
    with torch.autocast("cuda", torch.bfloat16):
        ours = total_cross_entropy(h, weight, plus, targets)
    rounded = [h.bfloat16().float(), weight.bfloat16().float()]
    exact = F.cross_entropy(F.linear(*rounded, plus), targets, ignore_index=IGNORE, reduction="sum")
    torch.testing.assert_close(ours, exact, rtol=2e-3, atol=0)
    found = torch.autograd.grad(3 * ours, leaves)
    for a, b in zip(found, torch.autograd.grad(3 * exact, leaves), strict=True):
        assert (a - b).norm() < 0.02 * b.norm()


# ------------------------------------------------------------------------------------------------ recorded steps


def shapes_repeat(found: Trainer) -> bool:
    return isinstance(found.take_step, CudaGraphStep) and len(found.take_step.recorded) >= 3


@pytest.mark.parametrize("model", [{**MODEL, **NONE}, MODEL], ids=["quiet", "dropping"])
def test_graph_steps_give_losses_of_eager_steps(model: dict[str, Any], tmp_path: Path) -> None:
    """Also with dropout: a replay draws from the same random numbers, and as many, as the step would."""
    losses, weights = [], []
    for graphs in (False, True):
        found = make_trainer(tmp_path / str(graphs), model, cuda_graphs=graphs)
        losses.append(steps(found, 50))
        weights.append(tensors(found))
        assert shapes_repeat(found) == graphs
    torch.testing.assert_close(torch.tensor(losses[1]), torch.tensor(losses[0]), rtol=1e-3, atol=1e-2)
    for name, plain in weights[0].items():
        torch.testing.assert_close(weights[1][name], plain, rtol=1e-2, atol=1e-3, msg=lambda t, n=name: f"{n}: {t}")


def test_graph_steps_in_bf16_give_losses_of_eager_steps(tmp_path: Path) -> None:
    losses = []
    for graphs in (False, True):
        found = make_trainer(tmp_path / str(graphs), MODEL, cuda_graphs=graphs, precision="bf16")
        losses.append(steps(found, 40))
    torch.testing.assert_close(torch.tensor(losses[1]), torch.tensor(losses[0]), rtol=2e-2, atol=0.1)


@pytest.mark.parametrize("optimizer", [{"kind": "adam", "rate": 0.01}, {"kind": "sgd", "rate": 1.0, "momentum": 0.9}])
def test_graph_steps_with_uncaptured_optimizer_give_losses_of_eager_steps(
    optimizer: dict[str, Any], tmp_path: Path
) -> None:
    losses = []
    for graphs in (False, True):
        found = make_trainer(tmp_path / str(graphs), {**MODEL, **NONE}, cuda_graphs=graphs, optimizer=optimizer)
        losses.append(steps(found, 60))
        assert shapes_repeat(found) == graphs
    torch.testing.assert_close(torch.tensor(losses[1]), torch.tensor(losses[0]), rtol=1e-3, atol=0.05)
    assert sum(losses[1][-10:]) < sum(losses[1][:10])


@pytest.mark.parametrize("share", NONE)
def test_dropout_in_captured_graph_draws_new_masks(share: str, tmp_path: Path) -> None:
    """One batch replayed at rate 0 from the same state loses something else each time; without dropout, the same."""
    for dropped in (0.0, 0.5):
        found = make_trainer(tmp_path / str(dropped), {**MODEL, **NONE, share: dropped}, cuda_graphs=True)
        batch = dataclasses.replace(next(found.batches()), reset_state=True, scale=0.0)
        losses = []
        for _ in range(5):  # as usual, recorded and replayed, then replayed
            found.nats.zero_()
            found.step(iter([batch]))
            losses.append(found.nats.item())
        assert isinstance(found.take_step, CudaGraphStep)
        assert len(found.take_step.recorded) == 1
        assert len({*losses[1:]}) == (4 if dropped else 1), losses


def test_captured_graph_reads_current_rate_average_batch_and_state(tmp_path: Path) -> None:
    """The rate, the averages' share, the batch and a fresh state are not frozen into what was recorded."""
    found = make_trainer(
        tmp_path / "run", {**MODEL, **NONE}, cuda_graphs=True, optimizer={"kind": "nt-asgd", "rate": 1.0}
    )
    batch = next(found.batches())
    for _ in range(3):
        found.step(iter([batch]))
    first = next(found.network.parameters())
    before = first.detach().clone()
    found.step(iter([dataclasses.replace(batch, scale=0.0)]))
    assert torch.equal(first, before)
    found.step(iter([batch]))
    assert not torch.equal(first, before)
    assert torch.equal(found.optimizer.state[first]["mean"], first)
    found.optimizer.param_groups[0]["triggered"] = True
    seen = []
    for _ in range(3):
        found.step(iter([batch]))
        seen.append(first.detach().double())
    mean = found.optimizer.state[first]["mean"].double()
    torch.testing.assert_close(mean, torch.stack(seen).mean(0), rtol=1e-5, atol=1e-6)
    quiet = dataclasses.replace(batch, scale=0.0, reset_state=False)
    found.step(iter([dataclasses.replace(quiet, reset_state=True)]))
    memory = found.state[0][0].clone()
    found.step(iter([quiet]))
    assert not torch.allclose(found.state[0][0], memory)  # read on from where it was
    found.step(iter([dataclasses.replace(quiet, reset_state=True)]))
    torch.testing.assert_close(found.state[0][0], memory)  # and anew


def test_time_budget_recaptures_graph_after_timing_steps(tmp_path: Path) -> None:
    """Steps that only took the time must leave no graph with the optimizer that was thrown away."""
    job = make_small_job(
        tmp_path / "run",
        "awd-lstm",
        {**MODEL, **NONE},
        SIZE,
        TRAIN,
        None,
        **{**PHASE, "minutes": 0.05, "cuda_graphs": True} | {"steps": 0},
    )
    found = Trainer(dataclasses.replace(job, device=GPU))
    found.begin()
    assert found.steps_done == 0
    steps(found, 30)
    first = next(found.network.parameters())
    assert found.optimizer.param_groups[0]["steps"] == 30
    mean = found.optimizer.state[first]["mean"].clone()
    steps(found, 3)
    assert not torch.equal(found.optimizer.state[first]["mean"], mean)  # the new optimizer's averages move


def test_resume_with_graphs_continues_losses(tmp_path: Path) -> None:
    straight = make_trainer(tmp_path / "straight", MODEL, cuda_graphs=True)
    expected = steps(straight, 40)[30:]
    broken = make_trainer(tmp_path / "broken", MODEL, cuda_graphs=True)
    steps(broken, 30)
    broken.save("interrupted")
    job = make_small_job(tmp_path / "broken", "awd-lstm", MODEL, SIZE, TRAIN, None, **{**PHASE, "cuda_graphs": True})
    again = Trainer(dataclasses.replace(job, device=GPU))
    assert again.restore()
    torch.testing.assert_close(torch.tensor(steps(again, 10)), torch.tensor(expected), rtol=1e-3, atol=1e-2)
