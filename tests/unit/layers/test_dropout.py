"""Dropout of single functions and of networks: what is masked, for how long, and with which gradient.

Weight-drop that silently stops dropping is how ports of AWD-LSTM have failed, so the last part asks networks alone.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import InvalidSetting
from nextword.core.types import Batch, Inputs, Vocabulary
from nextword.layers.dropout import drop_connections, drop_words, locked_dropout
from nextword.layers.recurrent import CELLS, RecurrentLayer
from nextword.models.awd_lstm import AWDLSTM, AWDConfig
from nextword.objectives.causal import CausalObjective

SHARE = 0.4
SCALE = 1 / (1 - SHARE)
SHARES = ("word_dropout", "input_dropout", "layer_dropout", "output_dropout", "weight_dropout", "input_weight_dropout")
NONE = dict.fromkeys(SHARES, 0.0)
SIZE = 11


def assert_close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


# ------------------------------------------------------------------------------------------------ locked


def test_locked_mask_is_constant_over_time_and_differs_by_row_and_call() -> None:
    torch.manual_seed(0)
    x = torch.randn(9, 4, 50, dtype=torch.float64) + 10  # without zeros
    first, second = (locked_dropout(x, SHARE, True) / x for _ in range(2))
    assert first.shape == x.shape
    assert_close(first, first[:1].expand_as(first))
    assert len({tuple((row != 0).tolist()) for row in first[0]}) == 4
    assert not torch.equal(first, second)
    assert_close(first[first != 0], torch.full_like(first[first != 0], SCALE))


def test_gradient_of_locked_dropout_equals_its_mask() -> None:
    torch.manual_seed(0)
    x = torch.ones(5, 3, 20, dtype=torch.float64, requires_grad=True)
    y = locked_dropout(x, SHARE, True)
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert_close(grad, y.detach())  # of ones, the output is the mask


# ------------------------------------------------------------------------------------------------ words


def test_word_dropout_drops_all_occurrences_of_a_word() -> None:
    torch.manual_seed(0)
    embedding = nn.Embedding(40, 6).double()
    ids = torch.randint(40, (30, 8))
    before = embedding.weight.detach().clone()
    dropped = []
    for _ in range(2):
        vectors = drop_words(embedding, ids, SHARE, True)
        gone = {word for word in ids.unique().tolist() if not vectors[ids == word].any()}
        for word in ids.unique().tolist():
            expected = 0 * before[word] if word in gone else before[word] * SCALE
            assert_close(vectors[ids == word], expected.expand(int((ids == word).sum()), -1))
        assert 5 < len(gone) < 30
        dropped.append(gone)
    assert dropped[0] != dropped[1]
    assert torch.equal(embedding.weight, before)


def test_gradient_of_word_dropout_reaches_kept_words_scaled() -> None:
    torch.manual_seed(0)
    embedding = nn.Embedding(12, 3).double()
    ids = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 0, 1, 0, 0]])  # word 0 five times, words 8 to 11 never
    vectors = drop_words(embedding, ids, SHARE, True)
    (grad,) = torch.autograd.grad(vectors.sum(), embedding.weight)
    times = torch.bincount(ids.flatten(), minlength=12).double()
    kept = torch.tensor([bool((ids == w).any() and vectors[ids == w].any()) for w in range(12)])
    assert 0 < kept.sum() < 8
    assert_close(grad, (times * kept * SCALE).unsqueeze(1).expand(-1, 3))


# ------------------------------------------------------------------------------------------------ connections


def test_drop_connections_masks_single_weights_and_their_gradients() -> None:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(30, 20, dtype=torch.float64))
    masked = drop_connections(weight, SHARE, True)
    kept = masked != 0
    assert 0 < kept.sum(1).min() < kept.sum(1).max() < 20  # neither entire rows nor entire columns
    assert_close(masked, weight * kept * SCALE)
    (grad,) = torch.autograd.grad((masked * torch.arange(20)).sum(), weight)
    assert_close(grad, kept.double() * SCALE * torch.arange(20))
    assert not torch.equal(kept, drop_connections(weight, SHARE, True) != 0)


FUNCTIONS: dict[str, Any] = {
    "locked": lambda x, share, training: locked_dropout(x.unsqueeze(0), share, training)[0],
    "words": lambda x, share, training: drop_words(
        nn.Embedding(*x.shape, _weight=x), torch.arange(len(x)), share, training
    ),
    "connections": drop_connections,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("share", [0.1, 0.65])
def test_dropout_functions_keep_expectation_and_rate(name: str, share: float) -> None:
    torch.manual_seed(0)
    x = torch.ones(20_000, 5 if name == "words" else 50)
    y = FUNCTIONS[name](x, share, True).detach()
    assert float((y == 0).float().mean()) == pytest.approx(share, abs=0.015)
    assert float(y.mean()) == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("share", "training"), [(0.5, False), (0.0, True), (0.0, False)])
def test_dropout_functions_do_nothing_in_evaluation_or_at_rate_zero(name: str, share: float, training: bool) -> None:
    x = torch.randn(7, 5)
    before = torch.get_rng_state()
    assert torch.equal(FUNCTIONS[name](x, share, training), x)
    assert torch.equal(torch.get_rng_state(), before)  # and no random number is drawn


# ------------------------------------------------------------------------------------------------ recurrent layers


def run_layer(layer: RecurrentLayer, way: str, seed: int, x: Tensor) -> list[Tensor]:
    """Return outputs, last memory and gradients with the connections dropped by this seed."""
    memory = tuple(torch.full_like(m, 0.3) for m in layer.start(x.shape[1]))
    torch.manual_seed(seed)
    y, after = getattr(layer, way)(x, memory)
    g = torch.Generator().manual_seed(9)
    value = sum((t * torch.randn(t.shape, generator=g, dtype=t.dtype)).sum() for t in (y, *after))
    return [y, *after, *torch.autograd.grad(value, [x, *layer.parameters()])]  # type: ignore[arg-type]


@pytest.mark.parametrize("drop", [(0.0, 0.5), (0.3, 0.5), (0.3, 0.0)])
@pytest.mark.parametrize("kind", CELLS)
def test_fused_and_stepwise_layers_drop_the_same_connections(kind: str, drop: tuple[float, float]) -> None:
    torch.manual_seed(0)
    layer = RecurrentLayer(kind, 5, 4, drop=drop).double()
    x = torch.randn(7, 3, 5, dtype=torch.float64, requires_grad=True)
    fused, stepwise = (run_layer(layer, way, 3, x) for way in ("fused", "stepwise"))
    for a, b in zip(fused, stepwise, strict=True):
        assert_close(a, b)
    for way in ("fused", "stepwise", "forward"):
        other = run_layer(layer, way, 4, x)
        assert not torch.allclose(other[0], fused[0])  # another seed drops other connections
    layer.eval()
    for way in ("fused", "stepwise"):
        assert torch.equal(run_layer(layer, way, 3, x)[0], run_layer(layer, way, 4, x)[0])


@pytest.mark.parametrize("way", ["fused", "stepwise"])
@pytest.mark.parametrize("time", [1, 6])
def test_weight_mask_is_constant_over_steps_and_masks_the_gradient(way: str, time: int) -> None:
    """Cell by cell with the masked matrix; the gradient of the weight is that of the matrix, masked and scaled."""
    torch.manual_seed(0)
    layer = RecurrentLayer("lstm", 5, 4, drop=(0.0, SHARE)).double()
    x = torch.randn(time, 3, 5, dtype=torch.float64)
    memory = (torch.full((3, 4), 0.3, dtype=torch.float64),) * 2  # nonzero, so that one step reads the state
    torch.manual_seed(5)
    mask = F.dropout(torch.ones_like(layer.weight_hh), SHARE)  # the first draw is that of the layer
    masked = (layer.weight_hh.detach() * mask).requires_grad_()
    h, c = memory
    outputs = []
    for x_t in x:
        i, f, g, o = (x_t @ layer.weight_ih.T + layer.bias_ih + h @ masked.T + layer.bias_hh).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        outputs.append(h)
    (theirs,) = torch.autograd.grad(torch.stack(outputs).pow(2).sum(), masked)
    torch.manual_seed(5)
    y, _ = getattr(layer, way)(x, memory)
    assert_close(y, torch.stack(outputs))
    (ours,) = torch.autograd.grad(y.pow(2).sum(), layer.weight_hh)
    assert_close(ours, theirs * mask)
    assert 0 < (mask == 0).sum() < mask.numel()
    assert not ours[mask == 0].any()
    assert (ours[mask != 0] != 0).all()


# ------------------------------------------------------------------------------------------------ whole networks


def make_network(core: str = "lstm", seed: int = 0, **shares: float) -> AWDLSTM:
    torch.manual_seed(seed)
    config = AWDConfig(embedding=6, width=8, layers=3, cell=core, **{**NONE, **shares})
    return AWDLSTM(config, Vocabulary(SIZE, 0)).double()


def compute_losses(net: AWDLSTM, *seeds: int, time: int = 9) -> list[float]:
    ids = torch.arange(4 * (time + 1)).view(4, -1) * 7 % SIZE
    out = []
    for seed in seeds:
        torch.manual_seed(seed)
        out.append(CausalObjective({}).loss(net, Batch(Inputs(ids[:, :-1]), ids[:, 1:]), None).value.item())
    return out


@pytest.mark.parametrize("core", ["lstm", "gru"])
@pytest.mark.parametrize("share", SHARES)
def test_each_dropout_changes_the_training_loss(share: str, core: str) -> None:
    net, plain = make_network(core, **{share: 0.5}), make_network(core)
    assert len({*compute_losses(net.train(), 1, 2, 3)}) == 3
    first, again = compute_losses(net, 1, 1)
    assert first == again
    quiet = compute_losses(net.eval(), 1, 2)
    assert quiet[0] == quiet[1] == compute_losses(plain.eval(), 3)[0] == compute_losses(plain.train(), 3)[0]
    assert compute_losses(net.train(), 4)[0] != quiet[0]  # dropout is active again after an evaluation


def test_dropout_applies_to_a_single_step() -> None:
    """On the CPU a single step takes another path; without a state only input connections matter."""
    net = make_network(input_weight_dropout=0.5)
    assert len({*compute_losses(net.train(), 1, 2, 3, time=1)}) == 3


def test_weight_dropout_masks_gradients_of_every_layer() -> None:
    net = make_network(weight_dropout=0.5).train()
    ids = torch.randint(SIZE, (4, 10))
    CausalObjective({}).loss(net, Batch(Inputs(ids[:, :-1]), ids[:, 1:]), None).value.backward()
    for layer in net.layers:
        zeros = (layer.weight_hh.grad == 0).double().mean()
        assert 0.35 < zeros < 0.65
        assert (layer.weight_ih.grad != 0).all()


@pytest.mark.parametrize("how", ["saved", "copied", "state"])
def test_weight_dropout_survives_saving_copying_and_loading(how: str, tmp_path: Path) -> None:
    before = make_network(weight_dropout=0.5, seed=7)
    compute_losses(before.train(), 1)  # a forward pass must leave no masked weights behind
    weights = {name: t.clone() for name, t in before.state_dict().items()}
    if how == "saved":
        before.save(tmp_path)
        torch.set_default_dtype(torch.float64)  # as in the file
        try:
            after = AWDLSTM.load(tmp_path, before.config, before.vocabulary)
        finally:
            torch.set_default_dtype(torch.float32)
    elif how == "copied":
        after = copy.deepcopy(before)
    else:
        after = make_network(weight_dropout=0.5, seed=8)
        after.load_state_dict(before.state_dict())
    assert after.state_dict().keys() == weights.keys()
    for name, tensor in after.state_dict().items():
        assert torch.equal(tensor, weights[name])
    result = compute_losses(after.train(), 1, 2, 3)
    assert result == pytest.approx(compute_losses(before, 1, 2, 3), rel=1e-12)
    assert len(set(result)) == 3
    optimizer = torch.optim.SGD(after.parameters(), 1.0)
    ids = torch.randint(SIZE, (4, 10))
    CausalObjective({}).loss(after, Batch(Inputs(ids[:, :-1]), ids[:, 1:]), None).value.backward()
    optimizer.step()  # the masked weights are the trained ones, not a copy
    for i, layer in enumerate(after.layers):
        moved = layer.weight_hh != weights[f"layers.{i}.weight_hh"]
        assert torch.equal(moved, layer.weight_hh.grad != 0)
        assert 0.35 < moved.double().mean() < 0.65


def test_weight_dropout_survives_compilation() -> None:
    """Masks are drawn by the traced program, not frozen into it."""
    layer = RecurrentLayer("lstm", 5, 4, drop=(0.0, 0.5)).double()
    x = torch.randn(3, 2, 5, dtype=torch.float64)
    traced = torch.compile(layer.stepwise, backend="eager")
    outputs = [traced(x, layer.start(2))[0] for _ in range(3)]
    assert not torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[1], outputs[2])


@pytest.mark.parametrize("share", SHARES)
def test_dropout_rate_outside_zero_to_one_raises(share: str) -> None:
    for zero in (0, 0.0):  # a recipe may write either
        AWDConfig(**{share: zero})
    for bad in (1, 1.0, -0.1):
        with pytest.raises(InvalidSetting):
            AWDConfig(**{share: bad})
