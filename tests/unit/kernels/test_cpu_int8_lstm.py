"""LSTM layers in int8: exact integer products, layers compared with torch, states, files, networks, errors."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nextword.core.errors import InvalidSetting, Unsupported
from nextword.core.types import Inputs, Vocabulary
from nextword.evaluation.dynamic import DynamicEvaluator, DynamicSettings
from nextword.kernels.cpu_int8 import (
    COLUMNS,
    TILE_ROWS,
    UNITS,
    WIDE,
    has_pair_products,
    limit,
    multiply_rows,
    pack_matrix,
)
from nextword.layers import quantized
from nextword.layers.quantized import Int8LSTM
from nextword.layers.recurrent import CellState, RecurrentLayer
from nextword.models.awd_lstm import AWDLSTM, AWDConfig
from nextword.tasks.encoding import require_encoder, require_trainable
from nextword.training.device import quantize
from nextword.training.trainer import Trainer
from tests.support.errors import raises
from tests.support.small_job import draw_walk, make_small_job

SHAPE: dict[str, Any] = {"embedding": 20, "width": 36, "layers": 3}
VOCABULARY = Vocabulary(50, 0)
compiled = pytest.mark.skipif(not has_pair_products(), reason="this machine has no products of pairs (AVX2)")


def make_layers(inputs: int, width: int, seed: int = 0) -> tuple[nn.LSTM, Int8LSTM]:
    """Make the same layer twice: of torch, and in int8."""
    torch.manual_seed(seed)
    layer = RecurrentLayer("lstm", inputs, width)
    own = nn.LSTM(inputs, width)
    own.load_state_dict({f"{name}_l0": value for name, value in layer.state_dict().items()})
    return own, Int8LSTM(layer)


def make_memory(rows: int, width: int) -> tuple[Tensor, Tensor]:
    return torch.rand(rows, width) * 2 - 1, torch.randn(rows, width)


def run_dequantized(layer: Int8LSTM, x: Tensor, before: CellState) -> tuple[Tensor, CellState]:
    """Compute the int8 layer without its kernel, as on any machine."""
    return RecurrentLayer.forward(layer, x, before)


# ------------------------------------------------------------------------------------------------ products


@compiled
@pytest.mark.parametrize("rows", range(1, TILE_ROWS + 1))
@pytest.mark.parametrize("inputs", [1, 2, 7, 64, 1152])
@pytest.mark.parametrize("extreme", [False, True])
def test_integer_products_are_exact(rows: int, inputs: int, extreme: bool) -> None:
    draw, most = np.random.default_rng(rows), limit(inputs)
    q = draw.integers(-127, 128, (4 * UNITS, inputs)).astype(np.int8)
    x = draw.integers(-most, most + 1, (rows, inputs))
    if extreme:  # the largest possible sums of both signs
        q[:], x[:] = 127, most
        q[::2] = -127
    panels = pack_matrix(torch.from_numpy(q), UNITS)
    padded = np.zeros((rows, inputs + inputs % 2), np.int16)
    padded[:, :inputs] = x
    want = torch.from_numpy(x) @ torch.from_numpy(q.astype(np.int64)).t()  # (rows, i f g o of all units)
    for half in range(2):
        sums = np.zeros((TILE_ROWS, COLUMNS), np.int32)
        multiply_rows(rows, panels[0, half].ctypes.data, panels.shape[2], padded, sums.ctypes.data)
        assert sums[:rows].tolist() == want[:, half * COLUMNS : (half + 1) * COLUMNS].tolist()
        assert not sums[rows:].any()


@pytest.mark.skipif(not WIDE, reason="this machine has no others than those that the other tests run (AVX2, or less)")
def test_kernels_compiled_for_avx2_pass_the_same_tests(tmp_path: Path) -> None:
    """Run these tests again with kernels compiled for a machine that has only AVX2."""
    older = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2", "NUMBA_CACHE_DIR": str(tmp_path)}
    some = [
        __file__,
        "-p",
        "no:cacheprovider",
        "-k",
        "exact or compiled_layer or saturated or independent or approximates_the",
    ]
    code = f"import pytest; from nextword.kernels.cpu_int8 import UNITS; assert UNITS == 8; exit(pytest.main({some}))"
    environment = {**os.environ, **older}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout


def test_limit_prevents_int32_overflow() -> None:
    for width in (1, 2, 400, 516, 517, 1152, 4096):
        assert 127 * width * limit(width) < 2**31
    assert limit(400) == 32767
    assert 127 * 1152 * (limit(1152) + 1) >= 2**31


# ------------------------------------------------------------------------------------------------ one layer


@compiled
@pytest.mark.parametrize(("inputs", "width"), [(1, 1), (3, 13), (20, 8), (37, 24), (64, 50)])
@pytest.mark.parametrize(("steps", "rows"), [(1, 1), (2, 5), (3, 6), (4, 7), (2, 13), (1, 31)])
@torch.no_grad()
def test_compiled_layer_equals_dequantized_layer(inputs: int, width: int, steps: int, rows: int) -> None:
    """Includes odd numbers of rows, and widths that are no multiple of the vector size or of two."""
    _, layer = make_layers(inputs, width)
    x, before = torch.randn(steps, rows, inputs) * torch.logspace(-4, 0, rows).view(-1, 1), make_memory(rows, width)
    for got, want in zip(flatten(layer(x, before)), flatten(run_dequantized(layer, x, before)), strict=True):
        assert got.shape == want.shape
        torch.testing.assert_close(got, want, rtol=0, atol=1e-4)


def flatten(said: tuple[Tensor, CellState]) -> list[Tensor]:
    return [said[0], *said[1]]


@pytest.mark.parametrize("plain", [False, True])
@torch.no_grad()
def test_int8_layer_approximates_torch_lstm(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the rounding of the weights differs: about a hundredth of the output at every step."""
    if plain:  # as on another machine
        monkeypatch.setattr(quantized, "has_pair_products", lambda: False)
        monkeypatch.setattr(Int8LSTM, "compiled", None)
    own, layer = make_layers(40, 64)
    x, (h, c) = torch.randn(30, 9, 40), make_memory(9, 64)
    want, (_, last) = own(x, (h.unsqueeze(0), c.unsqueeze(0)))
    got, after = layer(x, (h, c))
    assert 0 < (got - want).abs().max() < 0.02
    assert (got - want).std() < 0.01 * want.std()
    assert (after[1] - last[0]).abs().max() < 0.05


@compiled
@torch.no_grad()
def test_saturated_gates_stay_finite() -> None:
    """With gates far beyond the range of exp in float32, and an input that int8 represents exactly."""
    _, layer = make_layers(4, 8)
    layer.scale_ih *= 1000
    x, before = torch.randint(-1, 2, (3, 5, 4)).float(), make_memory(5, 8)
    got, want = flatten(layer(x, before)), flatten(run_dequantized(layer, x, before))
    assert all(torch.isfinite(t).all() for t in got)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-3)


@compiled
@torch.no_grad()
def test_rows_are_independent_of_other_rows_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit-identical in any batch and with any number of threads."""
    _, layer = make_layers(12, 24)
    x, before = torch.randn(4, 17, 12), make_memory(17, 24)
    want = flatten(layer(x, before))
    for threads in (1, 2, 3, 40):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert all(map(torch.equal, flatten(layer(x, before)), want))
    for row in (0, 7, 16):
        alone = layer(x[:, row : row + 1], tuple(m[row : row + 1] for m in before))
        assert torch.equal(alone[0][:, 0], want[0][:, row])


@compiled
@torch.no_grad()
def test_reading_in_parts_equals_reading_at_once() -> None:
    _, layer = make_layers(12, 21)
    x, state = torch.randn(11, 4, 12), layer.start(4)
    full, after = layer(x, state)
    parts = []
    for piece in x.split([1, 4, 6]):
        outputs, state = layer(piece, state)
        parts.append(outputs)
    torch.testing.assert_close(torch.cat(parts), full, rtol=0, atol=1e-5)
    for item, other in zip(state, after, strict=True):
        torch.testing.assert_close(item, other, rtol=0, atol=1e-5)


def test_gradients_of_input_equal_those_of_dequantized_layer() -> None:
    """The reference is an ordinary layer with the rounded matrices."""
    own, layer = make_layers(6, 8)
    wide = dict(zip(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), layer.weights(), strict=True))
    own.load_state_dict(wide)
    x = torch.randn(5, 3, 6)
    first, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    layer(first, layer.start(3))[0].square().sum().backward()
    own(other)[0].square().sum().backward()
    assert first.grad is not None
    torch.testing.assert_close(first.grad, other.grad)
    assert not any(p.requires_grad for p in layer.parameters())


@compiled
@torch.no_grad()
def test_layer_follows_changed_weights() -> None:
    _, layer = make_layers(6, 8)
    _, another = make_layers(6, 8, seed=1)
    x, start = torch.randn(2, 3, 6), layer.start(3)
    before = layer(x, start)[0]
    layer.load_state_dict(another.state_dict())
    assert torch.equal(layer(x, start)[0], another(x, start)[0])
    assert torch.equal(copy.deepcopy(layer)(x, start)[0], another(x, start)[0])
    assert not torch.equal(layer(x, start)[0], before)


# ------------------------------------------------------------------------------------------------ a network


@pytest.mark.parametrize(
    ("more", "bytes_too"),
    [
        ({}, True),
        ({"width": 37, "backward": True}, True),
        ({"tied": False, "last_width": 24}, True),
        ({"tied": False, "readout": {"kind": "adaptive", "cutoffs": [20]}}, True),
        ({"readout": {"kind": "mixture", "experts": 2}, "last_width": 24}, False),
        ({"readout": {"kind": "sampled", "samples": 8}}, False),
    ],
)
@torch.no_grad()
def test_int8_network_approximates_the_original(more: dict[str, Any], bytes_too: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    shape = {**SHAPE, **more}
    wide = AWDLSTM(AWDConfig(**shape), VOCABULARY).eval()
    for p in wide.parameters():
        p.mul_(2)
    ids, lengths = torch.randint(0, 50, (3, 12)), torch.tensor([12, 12, 12])
    before, _ = wide.score(ids, lengths, wide.initial(3))
    parameters, size = wide.num_parameters(), sum(p.numel() for p in wide.layers.parameters())
    wide.quantize()
    wide.save(tmp_path)
    again = AWDLSTM.load(tmp_path, AWDConfig(**shape, bits=8), VOCABULARY)
    after, _ = again.score(ids, lengths, again.initial(3))
    assert 0 < (after - before).abs().max() < 0.1
    assert after.sum().item() == pytest.approx(before.sum().item(), rel=0.01)
    assert again.num_parameters() == parameters
    assert sum(t.nbytes for t in again.layers.state_dict().values()) < 0.4 * 4 * size
    assert (again.embedding.weight.dtype == torch.int8) is bytes_too
    state, steps = again.initial(3), []
    for t in range(11):
        log_p, state = again.step(ids[:, t], state)
        steps.append(log_p.gather(1, ids[:, t + 1 : t + 2]))
    torch.testing.assert_close(torch.cat(steps, 1), after, rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_network_without_byte_products_gives_equal_results(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    network, ids = AWDLSTM(AWDConfig(**SHAPE, bits=8), VOCABULARY).eval(), torch.randint(0, 50, (7, 9))
    want = network.hidden(Inputs(ids), None)[0]
    monkeypatch.setattr(quantized, "has_pair_products", lambda: False)
    for item, other in zip(network.hidden(Inputs(ids), None)[0], want, strict=True):
        torch.testing.assert_close(item, other, rtol=0, atol=1e-4)


def test_unsupported_int8_settings_raise(tmp_path: Path) -> None:
    with raises(InvalidSetting, key="model.bits"):
        AWDConfig(bits=4)
    for core in ("gru", "qrnn"):
        with raises(InvalidSetting, key="model.bits"):
            AWDConfig(cell=core, bits=8)
    job = make_small_job(tmp_path / "run", "awd-lstm", {**SHAPE, "bits": 8}, 30, draw_walk(29, 300), None, steps=1)
    with raises(InvalidSetting, key="model.bits"):
        Trainer(job)
    network = AWDLSTM(AWDConfig(**SHAPE, bits=8), VOCABULARY)
    with raises(Unsupported, ability="train"):
        require_trainable(network)
    require_encoder(network)
    with raises(Unsupported, ability="quantize"):
        quantize(network, "bf16")
    with raises(Unsupported, ability="train"):
        DynamicEvaluator(network, DynamicSettings(rate=0.001, lambda_=0.001))
