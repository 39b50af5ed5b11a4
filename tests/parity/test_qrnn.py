"""The QRNN layer compared with the paper, its definition and the original code; on a GPU, its kernels."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.core.errors import InvalidSetting
from nextword.core.types import Vocabulary
from nextword.evaluation.dynamic import DynamicEvaluator, DynamicSettings, dynamic_nats
from nextword.evaluation.neural_cache import CacheSettings, cache_nats, read_blocks
from nextword.kernels import triton_kernels as kernels
from nextword.layers.qrnn import QRNN, _Fused, fo_pool, forget_mult
from nextword.models.awd_lstm import AWDLSTM, AWDConfig
from nextword.training.steps import CudaGraphStep
from nextword.training.trainer import Trainer
from tests.support.errors import raises
from tests.support.small_job import draw_walk, filter_events, make_small_job, train_small_job

TIME, ROWS, INPUTS, WIDTH = 7, 3, 5, 4
SHAPES = [(1, 1), (1, 3), (7, 1), (7, 3)]  # time, rows


def same(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-13)


def layer(window: int = 1, drop: float = 0.0) -> QRNN:
    torch.manual_seed(0)
    return QRNN(INPUTS, WIDTH, window, drop).double()


def given(window: int, time: int = TIME, rows: int = ROWS) -> tuple[Tensor, ...]:
    """Input, then a memory that something has been read into."""
    g = torch.Generator().manual_seed(1)
    shapes = [(time, rows, INPUTS), (rows, WIDTH), (rows, INPUTS)][: 1 + window]
    return tuple(torch.randn(shape, generator=g).double().requires_grad_() for shape in shapes)


# ------------------------------------------------------------------------------------------------ values, gradients


@pytest.mark.parametrize(("time", "rows"), SHAPES)
@pytest.mark.parametrize("window", [1, 2])
def test_parallel_forward_equals_definition(window: int, time: int, rows: int) -> None:
    """Outputs, memory, and gradients for weights, input and the memory before."""
    net = layer(window)
    x, *memory = given(window, time, rows)
    leaves = [x, *memory, *net.parameters()]
    found = []
    for run in (net.forward, net.stepwise):
        h, after = run(x, tuple(memory))
        assert h.shape == (time, rows, WIDTH)
        assert [m.shape for m in after] == [m.shape for m in memory]
        factors = torch.linspace(0.5, 2, h.numel()).view_as(h).double()
        value = (h * factors).sum() + sum((m**2).sum() for m in after)
        found.append([h, *after, *torch.autograd.grad(value, leaves)])
    for a, b in zip(*found, strict=True):
        same(a, b)


@pytest.mark.parametrize("window", [1, 2])
def test_forward_equals_convolution_of_paper(window: int) -> None:
    """Three filter banks over time, masked so that none sees ahead, and fo-pooling over what they found."""
    net = layer(window)
    x, *_ = given(window)
    h, after = net(x, net.start(ROWS))
    w = net.weight.view(3, WIDTH, window, INPUTS).flip(2).permute(0, 1, 3, 2)  # a filter's last tap is on x_t
    padded = F.pad(x.permute(1, 2, 0), (window - 1, 0))
    z, f, o = (F.conv1d(padded, w[i], net.bias.view(3, -1)[i]).permute(2, 0, 1) for i in range(3))
    c = torch.zeros(ROWS, WIDTH).double()
    for t in range(TIME):
        c = f[t].sigmoid() * c + (1 - f[t].sigmoid()) * z[t].tanh()
        same(h[t], o[t].sigmoid() * c)
    same(after[0], c)
    if window == 2:
        assert torch.equal(after[1], x[-1])


def test_forget_gate_equals_complement_in_original_code() -> None:
    """c ← f z + (1 − f) c, with [x_t; x_{t−1}] side by side: our weights with the sign of f's rows changed."""
    net = layer(2)
    x, c, before = given(2)
    expected, _ = net(x, (c, before))
    weight, bias = net.weight.detach().clone(), net.bias.detach().clone()
    weight[WIDTH : 2 * WIDTH] *= -1
    bias[WIDTH : 2 * WIDTH] *= -1
    source = torch.cat([x, torch.cat([before[None], x[:-1]])], 2)
    z, f, o = (source @ weight.t() + bias).chunk(3, 2)
    for t in range(TIME):
        c = f[t].sigmoid() * z[t].tanh() + (1 - f[t].sigmoid()) * c
        same(o[t].sigmoid() * c, expected[t])


def test_forget_mult_equals_hand_computation() -> None:
    ones = torch.ones(3, 1, 1)
    assert forget_mult(0.5 * ones, ones, torch.zeros(1, 1)).flatten().tolist() == [0.5, 0.75, 0.875]
    assert forget_mult(0.25 * ones, 0 * ones, torch.full((1, 1), 64.0)).flatten().tolist() == [16, 4, 1]
    assert forget_mult(ones, ones, torch.full((1, 1), 7.0)).flatten().tolist() == [7, 7, 7]  # nothing is forgotten
    assert forget_mult(0 * ones, 3 * ones, torch.full((1, 1), 7.0)).flatten().tolist() == [3, 3, 3]  # all is


@pytest.mark.parametrize(("time", "rows"), SHAPES)
def test_fo_pool_gradients_equal_finite_differences(time: int, rows: int) -> None:
    g = torch.Generator().manual_seed(2)
    f, z, c = (
        torch.rand(shape, generator=g).double().requires_grad_() for shape in [(time, rows, 2)] * 2 + [(rows, 2)]
    )
    assert torch.autograd.gradcheck(forget_mult, (f, z, c))
    gates = torch.randn(time, rows, 6, generator=g).double().requires_grad_()
    assert torch.autograd.gradcheck(fo_pool, (gates, c))


@pytest.mark.parametrize("window", [1, 2])
def test_layer_gradients_equal_finite_differences(window: int) -> None:
    net = layer(window)
    x, *memory = given(window, 4, 2)

    def run(x: Tensor, weight: Tensor, bias: Tensor, *memory: Tensor) -> tuple[Tensor, ...]:
        h, after = torch.func.functional_call(net, {"weight": weight, "bias": bias}, (x, memory))
        return h, *after

    assert torch.autograd.gradcheck(run, (x, net.weight, net.bias, *memory))


# ------------------------------------------------------------------------------------------------ memory


@pytest.mark.parametrize("window", [1, 2])
def test_carried_state_equals_whole_sequence_for_any_chunks(window: int) -> None:
    """Step by step, and in pieces, it reads what it reads at once."""
    net = layer(window)
    x, *_ = given(window, 12)
    whole, end = net(x, net.start(ROWS))
    for cuts in ([1] * 12, [5, 7], [1, 10, 1]):
        memory, parts = net.start(ROWS), []
        for part in x.split(cuts):
            h, memory = net(part, memory)
            parts.append(h)
        same(torch.cat(parts), whole)
        for a, b in zip(memory, end, strict=True):
            same(a, b)
    f, z = torch.rand(12, ROWS, WIDTH), torch.randn(12, ROWS, WIDTH)
    c = torch.randn(ROWS, WIDTH)
    whole = forget_mult(f, z, c)
    for t in range(12):
        c = forget_mult(f[t : t + 1], z[t : t + 1], c)[0]
        assert torch.equal(c, whole[t])  # to the bit: the average is taken alike


def test_window_of_two_reads_previous_input() -> None:
    net = layer(2)
    x, c, before = given(2)
    h, _ = net(x, (c, before))
    other, _ = net(x, (c, before + 1))
    assert not torch.allclose(h[0], other[0])
    assert len(layer(1).start(ROWS)) == 1
    assert [m.shape for m in net.start(ROWS)] == [(ROWS, WIDTH), (ROWS, INPUTS)]


# ------------------------------------------------------------------------------------------------ dropping, 16 bits


@pytest.mark.parametrize("window", [1, 2])
def test_weight_dropout_masks_the_single_matrix(window: int) -> None:
    """Another mask a sequence, the same for every step of it, and gradients for the entries that were there."""
    net = layer(window, 0.5)
    x, *memory = given(window)
    torch.manual_seed(4)
    h, _ = net(x, tuple(memory))
    torch.manual_seed(4)
    by_steps, _ = net.stepwise(x, tuple(memory))
    same(h, by_steps)
    torch.manual_seed(4)
    cut = F.dropout(torch.ones_like(net.weight), 0.5)
    quiet = layer(window)
    quiet.weight.data.mul_(cut)
    same(h, quiet(x, tuple(memory))[0])
    (grad,) = torch.autograd.grad(h.sum(), net.weight)
    assert torch.equal(grad != 0, cut != 0)
    assert not torch.equal(net(x, tuple(memory))[0], net(x, tuple(memory))[0])
    net.eval()
    same(net(x, tuple(memory))[0], layer(window)(x, tuple(memory))[0])


def test_bf16_forward_keeps_float32_state() -> None:
    net = layer(2).float()
    x, *memory = (t.detach().float() for t in given(2, 40))
    exact, end = net(x, tuple(memory))
    with torch.autocast("cpu", torch.bfloat16):
        h, after = net(x, tuple(memory))
        value = (h.float() * exact.detach()).sum()
    assert h.dtype == torch.bfloat16
    assert [m.dtype for m in after] == [torch.float32] * 2
    torch.testing.assert_close(h.float(), exact, rtol=0, atol=0.02)
    torch.testing.assert_close(after[0], end[0], rtol=0, atol=0.02)
    grads = torch.autograd.grad(value, list(net.parameters()))
    for a, b in zip(grads, torch.autograd.grad((exact**2).sum() / 2, list(net.parameters())), strict=True):
        assert (a - b).norm() < 0.02 * b.norm()


def test_initial_weights_lie_in_original_ranges() -> None:
    """nn.Linear's own: bounded by the root of all the inputs that a gate sees."""
    net = QRNN(100, 50, window=2)
    for parameter in net.parameters():
        assert 0.95 * 200**-0.5 < parameter.abs().max() <= 200**-0.5
    assert net.weight.shape == (150, 200)


# ------------------------------------------------------------------------------------------------ the whole network

SIZE = 30
MODEL = {"embedding": 12, "width": 20, "layers": 3, "cell": "qrnn"}
QUIET = dict.fromkeys(("word_dropout", "input_dropout", "layer_dropout", "output_dropout", "weight_dropout"), 0.0)


def network(**options: Any) -> AWDLSTM:
    torch.manual_seed(0)
    return AWDLSTM(AWDConfig(**{**MODEL, **options}), Vocabulary(SIZE, SIZE - 1)).eval()


def test_network_windows_are_two_then_one() -> None:
    net = network()
    assert [(x.inputs, x.width, x.window) for x in net.layers] == [(12, 20, 2), (20, 20, 1), (20, 12, 1)]
    assert all(x.drop == 0.5 for x in net.layers)
    with raises(InvalidSetting, key="model.input_weight_dropout"):
        AWDConfig(**MODEL, input_weight_dropout=0.2)


def originals_parameters(size: int, embedding: int, width: int, layers: int) -> int:
    """Of salesforce/awd-lstm-lm with --model QRNN: encoder, linear layers of three gates, decoder's bias."""
    ends = [(2 * embedding, width), *[(width, width)] * (layers - 2), (width, embedding)]
    return size * embedding + sum(3 * d * (i + 1) for i, d in ends) + size


def test_parameter_count_equals_original() -> None:
    config = AWDConfig(width=1550, layers=4, cell="qrnn")
    with torch.device("meta"):
        net = AWDLSTM(config, Vocabulary(10_000, 0))
    assert sum(p.numel() for p in net.parameters()) == originals_parameters(10_000, 400, 1550, 4) == 24_020_150


def test_stepwise_scores_equal_parallel_scores() -> None:
    net = network().double()
    ids = torch.from_numpy(draw_walk(SIZE - 1, 2 * 15).astype(np.int64)).view(2, 15)
    expected, end = net.score(ids, torch.tensor([15, 15]), net.initial(2))
    state, found = net.initial(2), []
    for t in range(14):
        log_p, state = net.step(ids[:, t], state)
        found.append(log_p.gather(1, ids[:, t + 1 : t + 2]))
    same(torch.cat(found, 1), expected)
    for a, b in zip(state, end, strict=True):
        for m, n in zip(a, b, strict=True):
            same(m, n)


def test_neural_cache_and_dynamic_evaluation_accept_qrnn() -> None:
    """In blocks of any size the cache is the same; a rate of zero adapts to nothing, and a small one to the text."""
    net, ids = network(), draw_walk(5, 300)  # few of the words, again and again
    found = [cache_nats(read_blocks(net, ids, block=block), CacheSettings(0.2, 1.0, 50)) for block in (7, 300)]
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)
    with_it, plain = found[1]
    assert with_it.sum() < 0.95 * plain.sum()
    still = dynamic_nats(DynamicEvaluator(net, DynamicSettings(0.0, 0.0, kind="sgd")), ids)
    np.testing.assert_allclose(still, plain, rtol=1e-4)
    assert dynamic_nats(DynamicEvaluator(net, DynamicSettings(0.5, 0.0, kind="sgd")), ids).sum() < 0.95 * plain.sum()


def test_qrnn_learns_and_resumes_bit_exactly(tmp_path: Path) -> None:
    train, valid = draw_walk(SIZE - 1, 3000), draw_walk(SIZE - 1, 600, seed=1)
    phase: dict[str, Any] = {
        "batches": {"kind": "variable", "rows": 8, "length": 12},
        "objective": {"kind": "causal", "activation_penalty": 2.0, "temporal_penalty": 1.0},
        "optimizer": {"kind": "adam", "rate": 0.01},
        "clip": 0.25,
        "steps": 100,
        "validate_every": 25,
        "log_every": 1,
    }
    model = {
        **MODEL,
        "word_dropout": 0.0,
        "input_dropout": 0.05,
        "layer_dropout": 0.05,
        "output_dropout": 0.05,
        "weight_dropout": 0.1,
    }
    model = {
        **MODEL,
        "word_dropout": 0.0,
        "input_dropout": 0.05,
        "layer_dropout": 0.05,
        "output_dropout": 0.05,
        "weight_dropout": 0.1,
    }
    straight, events = train_small_job(tmp_path / "run", "awd-lstm", model, SIZE, train, valid, **phase)
    nats = [event.values["valid"] for event in filter_events(events, "valid")]
    assert nats[-1] < 0.7 * np.log(SIZE)
    loaded = AWDLSTM.load(tmp_path / "run", straight.config, straight.vocabulary)
    ids = torch.from_numpy(valid[:50].astype(np.int64))[None]
    for a, b in zip(*(net.score(ids, torch.tensor([50]), None) for net in (straight, loaded)), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked == 33

    train_small_job(tmp_path / "broken", "awd-lstm", model, SIZE, train, valid, stop=stop, **phase)
    broken, _ = train_small_job(tmp_path / "broken", "awd-lstm", model, SIZE, train, valid, **phase)
    for name, tensor in straight.state_dict().items():
        assert torch.equal(tensor, broken.state_dict()[name]), name


# ------------------------------------------------------------------------------------------------ on a GPU

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="NO GPU HERE: this test proves nothing")
needs_triton = pytest.mark.skipif(not kernels.available(), reason="NO TRITON HERE: this test proves nothing")
GPU = torch.device("cuda")


@needs_triton
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (1, 3, 5), (5, 2, 3), (16, 2, 40), (17, 3, 30), (70, 20, 155), (300, 4, 64)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_equal_float64_reference(sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    """Against the pass over time in 64 bits, on the same gates: outputs, last memory and both gradients."""
    time, rows, width = sizes
    torch.manual_seed(0)
    gates = (2 * torch.randn(time, rows, 3 * width, device=GPU)).to(dtype).requires_grad_()
    c = torch.randn(rows, width, device=GPU, requires_grad=True)
    factors = torch.randn(rows, time, width, device=GPU).transpose(0, 1)  # so that gradients come in another layout
    h, last = _Fused.apply(gates, c)
    assert (h.dtype, last.dtype) == (dtype, torch.float32)
    found = [h, last, *torch.autograd.grad((h.float() * factors).sum() + (last**2).sum(), (gates, c))]
    exact = gates.detach().double().requires_grad_(), c.detach().double().requires_grad_()
    h, last = fo_pool(*exact)
    expected = [h, last, *torch.autograd.grad((h * factors).sum() + (last**2).sum(), exact)]
    loose = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, **loose)


@needs_triton
@pytest.mark.parametrize("window", [1, 2])
def test_layer_with_kernels_equals_definition(window: int) -> None:
    net = layer(window).float().to(GPU)
    x, *memory = (t.detach().float().to(GPU).requires_grad_() for t in given(window, 50))
    leaves = [x, *memory, *net.parameters()]
    found = []
    for run in (net.forward, net.stepwise):
        h, after = run(x, tuple(memory))
        value = (h**2).sum() + sum((m**2).sum() for m in after)
        found.append([h, *after, *torch.autograd.grad(value, leaves)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def make_trainer(folder: Path, model: dict[str, Any], **phase: Any) -> Trainer:
    phase |= {
        "batches": {"kind": "variable", "rows": 4, "length": 12, "length_std": 1.0, "half_probability": 0.2},
        "objective": {"kind": "causal", "activation_penalty": 2.0, "temporal_penalty": 1.0},
        "optimizer": {"kind": "nt-asgd", "rate": 2.0, "weight_decay": 1e-4, "start": 20},
    }
    job = make_small_job(folder, "awd-lstm", model, SIZE, draw_walk(SIZE - 1, 3000), None, clip=0.25, steps=60, **phase)
    found = Trainer(dataclasses.replace(job, device=GPU))
    found.begin()
    return found


def losses(found: Trainer, steps: int) -> Tensor:
    batches, out = found.batches(), []
    for _ in range(steps):
        found.nats.zero_()
        found.step(batches)
        out.append(found.nats.item())
    return torch.tensor(out)


@on_gpu
@pytest.mark.parametrize("model", [{**MODEL, **QUIET}, MODEL], ids=["quiet", "dropping"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_graph_steps_give_losses_of_eager_steps(model: dict[str, Any], precision: str, tmp_path: Path) -> None:
    plain, recorded = (
        make_trainer(tmp_path / str(graphs), model, cuda_graphs=graphs, precision=precision) for graphs in (False, True)
    )
    loose = {"rtol": 2e-2, "atol": 0.1} if precision == "bf16" else {"rtol": 1e-3, "atol": 1e-2}
    torch.testing.assert_close(losses(recorded, 40), losses(plain, 40), **loose)
    assert isinstance(recorded.take_step, CudaGraphStep)
    assert len(recorded.take_step.recorded) >= 3


@on_gpu
def test_weight_dropout_in_captured_graph_draws_new_masks(tmp_path: Path) -> None:
    """One batch replayed at rate 0 from the same state loses something else each time; without dropout, the same."""
    for dropped in (0.0, 0.5):
        found = make_trainer(tmp_path / str(dropped), {**MODEL, **QUIET, "weight_dropout": dropped}, cuda_graphs=True)
        batch = dataclasses.replace(next(found.batches()), reset_state=True, scale=0.0)
        out = []
        for _ in range(5):  # as usual, recorded and replayed, then replayed
            found.nats.zero_()
            found.step(iter([batch]))
            out.append(found.nats.item())
        assert len({*out[1:]}) == (4 if dropped else 1), out
