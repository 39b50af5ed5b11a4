"""Matrices in int8: rounding, products of a few rows, files and networks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import nextword
from nextword.conversion import convert
from nextword.core.errors import InvalidSetting, TrainingDiverged
from nextword.core.types import IGNORE, Inputs, Vocabulary
from nextword.layers.quantized import Int8Linear, RowSums, int8_linear, quantize_network, quantize_rows
from nextword.models.gpt1 import GPT1, GPT1Config
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.training.trainer import Trainer, run_gradient_phase
from tests.support.errors import raises
from tests.support.small_job import draw_walk, make_small_job

SHAPE = {"width": 24, "layers": 2, "heads": 3, "window": 12, "dropout": 0.0}


def test_quantize_rows_equals_hand_computation() -> None:
    q, scale = quantize_rows(torch.tensor([[1.27, -0.5, 0.004, 0.006], [0.0, 0.0, 0.0, 0.0]]))
    assert q.tolist() == [[127, -50, 0, 1], [0, 0, 0, 0]]
    assert scale[0].item() == pytest.approx(0.01)


@pytest.mark.parametrize("rows", [1, 3, 8, 9, 40])
@pytest.mark.parametrize("size", [1, 4, 7, 130])
@pytest.mark.parametrize("width", [37, 128])  # the second one uses the compiled loop
@torch.no_grad()
def test_int8_linear_equals_product_with_rounded_matrix(rows: int, size: int, width: int) -> None:
    torch.manual_seed(rows)
    w, x, b = torch.randn(size, width), torch.randn(rows, width), torch.randn(size)
    q, scale = quantize_rows(w)
    assert (q.float() * scale.unsqueeze(1) - w).abs().max() <= scale.max() / 2 + 1e-6
    want = F.linear(x, q * scale.unsqueeze(1), b)
    torch.testing.assert_close(int8_linear(x, q, scale, RowSums(), b), want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_int8_linear_of_nonfinite_weights_raises(odd: float) -> None:
    layer = nn.Linear(8, 5)
    with torch.no_grad():
        layer.weight[1, 2] = odd
    with pytest.raises(TrainingDiverged):
        Int8Linear(layer)


def test_int8_linear_keeps_its_bias() -> None:
    layer = nn.Linear(8, 5)
    torch.testing.assert_close(Int8Linear(layer)(torch.zeros(2, 8)), layer.bias.expand(2, 5))


@pytest.mark.parametrize(("cls", "config"), [(GPT1, GPT1Config), (GPT2, GPT2Config)])
@torch.no_grad()
def test_int8_network_approximates_the_original(cls: type, config: type, tmp_path: Path) -> None:
    torch.manual_seed(0)
    vocabulary = Vocabulary(50, 0)
    wide = cls(config(**SHAPE), vocabulary).eval()
    for p in wide.parameters():
        p.mul_(4)
    ids, lengths = torch.randint(0, 50, (3, 12)), torch.tensor([12, 12, 12])
    before, _ = wide.score(ids, lengths, wide.initial(3))
    parameters = wide.num_parameters()
    quantize_network(wide)
    wide.save(tmp_path)
    again = cls.load(tmp_path, config(**SHAPE, bits=8), vocabulary)
    after, _ = again.score(ids, lengths, again.initial(3))
    assert 0 < (after - before).abs().max() < 0.5
    assert after.sum().item() == pytest.approx(before.sum().item(), rel=0.02)
    assert again.num_parameters() == parameters
    assert (tmp_path / "model.safetensors").stat().st_size < 0.5 * 4 * parameters
    state, steps = again.initial(3), []  # single rows use the compiled loop, many rows use torch
    for t in range(11):
        log_p, state = again.step(ids[:, t], state)
        steps.append(log_p.gather(1, ids[:, t + 1 : t + 2]))
    torch.testing.assert_close(torch.cat(steps, 1), after, rtol=1e-3, atol=1e-3)
    assert torch.allclose(
        again.readout.log_probs(again.hidden(Inputs(ids), None)[0][-1]).exp().sum(-1), torch.ones(3, 12)
    )
    ignored = torch.full((4,), IGNORE)
    assert again.readout.nll(torch.randn(4, 24), ignored).abs().sum() == 0


def test_unsupported_bits_and_training_in_int8_raise(tmp_path: Path) -> None:
    with raises(InvalidSetting, key="model.bits"):
        GPT2Config(bits=4)
    job = make_small_job(tmp_path / "run", "gpt2", {**SHAPE, "bits": 8}, 30, draw_walk(29, 300), None, steps=1)
    with raises(InvalidSetting, key="model.bits"):
        Trainer(job)


def test_convert_to_int8_keeps_scores_and_twice_raises(tmp_path: Path) -> None:
    phase = {"steps": 5, "batches": {"kind": "blocks", "rows": 2, "length": 12}}
    job = make_small_job(tmp_path / "run", "gpt2", SHAPE, 257, draw_walk(256, 300), None, **phase)
    list(run_gradient_phase(job))
    job.run.seal(finished=True)
    conversion = convert(tmp_path / "run", tmp_path / "small", ["model.bits=8"])
    assert conversion.facts["model"]["bits"] == 8
    assert conversion.size < 0.6 * sum(p.stat().st_size for p in (tmp_path / "run").iterdir() if p.is_file())
    wide, narrowed = (nextword.load(tmp_path / name, "cpu") for name in ("run", "small"))
    assert narrowed.parameters == wide.parameters
    assert narrowed.score("some text").nats == pytest.approx(wide.score("some text").nats, rel=0.01)
    with raises(InvalidSetting, key="model.bits"):
        convert(tmp_path / "small", tmp_path / "smaller", ["model.bits=8"])
