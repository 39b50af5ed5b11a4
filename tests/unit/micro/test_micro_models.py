"""NPLM, RNN and LSTM on the engine: one training step equals PyTorch's, and they learn a small text."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor as TorchTensor
from torch.nn import functional

from nextword.micro import LSTM, NPLM, RNN, encode, train
from nextword.micro.models import Model

WORDS, RATE = 11, 0.3
Weights = dict[str, TorchTensor]


def torch_nplm(model: NPLM, w: Weights, ids: TorchTensor) -> TorchTensor:
    x = functional.embedding(ids.unfold(1, model.context, 1), w["C"]).reshape(-1, model.context * w["C"].shape[1])
    hidden = functional.linear(x, w["H"].T, w["d"]).tanh()
    return functional.linear(hidden, w["U"].T, w["b"]) + functional.linear(x, w["W"].T)


def torch_rnn(model: RNN, w: Weights, ids: TorchTensor) -> TorchTensor:
    cell = torch.nn.RNN(w["W_xh"].shape[0], model.hidden, batch_first=True).double()
    own = {
        "weight_ih_l0": w["W_xh"].T,
        "weight_hh_l0": w["W_hh"].T,
        "bias_ih_l0": w["b"],
        "bias_hh_l0": torch.zeros_like(w["b"]),
    }
    states, _ = torch.func.functional_call(cell, own, (functional.embedding(ids, w["C"]),))
    return states.reshape(-1, model.hidden) @ w["W_hy"] + w["b_y"]


def torch_lstm(model: LSTM, w: Weights, ids: TorchTensor) -> TorchTensor:
    cell = torch.nn.LSTM(w["W_xi"].shape[0], model.hidden, batch_first=True).double()
    bias = torch.cat([w[f"b_{gate}"] for gate in LSTM.GATES])
    own = {
        "weight_ih_l0": torch.cat([w[f"W_x{gate}"].T for gate in LSTM.GATES]),
        "weight_hh_l0": torch.cat([w[f"W_h{gate}"].T for gate in LSTM.GATES]),
        "bias_ih_l0": bias,
        "bias_hh_l0": torch.zeros_like(bias),
    }
    states, _ = torch.func.functional_call(cell, own, (functional.embedding(ids, w["C"]),))
    return states.reshape(-1, model.hidden) @ w["W_hy"] + w["b_y"]


MODELS: list[tuple[Model, Callable[..., TorchTensor]]] = [
    (NPLM(WORDS, context=3, embedding=5, hidden=7), torch_nplm),
    (RNN(WORDS, embedding=5, hidden=7), torch_rnn),
    (LSTM(WORDS, embedding=5, hidden=7), torch_lstm),
]


@pytest.mark.parametrize(("model", "reference"), MODELS, ids=["nplm", "rnn", "lstm"])
def test_training_step_equals_torch(model: Model, reference: Callable[..., TorchTensor]) -> None:
    pieces = np.random.default_rng(3).integers(0, WORDS, (4, 9))
    theirs = {name: torch.tensor(weight.data.copy(), requires_grad=True) for name, weight in model.weights.items()}
    loss = model.loss(pieces[:, :-1], pieces[:, 1:])
    loss.backward()
    targets = torch.tensor(model.targets(pieces[:, :-1], pieces[:, 1:]).copy())
    expected = functional.cross_entropy(reference(model, theirs, torch.tensor(pieces[:, :-1].copy())), targets)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-10)
    with torch.no_grad():
        for name, weight in model.weights.items():
            assert theirs[name].grad is not None
            stepped = theirs[name] - RATE * theirs[name].grad
            np.testing.assert_allclose(weight.data - RATE * weight.grad, stepped.numpy(), rtol=1e-10, atol=1e-10)


TEXT = "the cat sat on the mat and the dog sat on the rug and the bird sat on the roof and " * 8


@pytest.mark.parametrize("kind", [NPLM, RNN, LSTM])
def test_model_learns_a_text_that_repeats(kind: type[NPLM] | type[RNN] | type[LSTM]) -> None:
    ids, words = encode(TEXT)
    losses = list(train(kind(len(words)), ids, steps=150, rate=1.0))
    assert losses[0] == pytest.approx(np.log(len(words)), rel=0.3)  # it begins by guessing
    assert np.mean(losses[-10:]) < 0.35 * losses[0]


def test_text_shorter_than_a_piece_is_refused() -> None:
    ids, words = encode("the cat sat")
    with pytest.raises(ValueError, match="time=12"):
        next(train(RNN(len(words)), ids))
